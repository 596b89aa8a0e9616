//! Creates hosts, memory, queues, connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rnic_base::{Psn, RandomStream, RandomStreams};
use rnic_engine::{Access, CqId, QpAttributes, QpConnection, QpState, RnrTimer, Service, Transport};
use rnic_wire::Qpn;

use super::drive::Drive;
use super::end::{Drain, End, State, Word};
use super::ends::Ends;
use super::memory::Memory;
use super::progress::Progress;
use super::tickets::Tickets;
use super::{Body, Host, Log, Tally};
use crate::backend::Backend;
use crate::scenario::{Link, PlannedFailure, Scenario};

impl<'b, B: Backend> Body<'b, B> {
    pub(super) fn new(backend: &'b mut B, scenario: &'b Scenario) -> Result<Self, String> {
        let streams = RandomStreams::new(scenario.seed);
        let transport = |link| match Transport::new(scenario.profile(link)) {
            Ok(transport) => Ok(Arc::new(transport)),
            Err(error) => Err(error.to_string()),
        };
        let mut body = Self {
            backend,
            scenario,
            hosts: Vec::new(),
            memory: Memory::new(scenario, streams.stream("body/passing")),
            ends: Ends::default(),
            links: vec![State::Alive; scenario.links.len()],
            drive: None,
            cqs: Vec::new(),
            transports: [transport(0)?, transport(1)?],
            steps: streams.stream("body/steps"),
            rates: streams.stream("body/rates"),
            shares: streams.stream("body/shares"),
            log: Log::default(),
            tally: Tally::default(),
            is_calm: false,
            progress: Progress::new(),
        };
        for host in 0..scenario.network.hosts {
            body.make_host(host, streams.stream(&format!("body/host-{host}")));
        }
        for (index, link) in scenario.links.iter().enumerate() {
            body.make_ends(index, link, &streams);
            body.make_queue_pairs(index);
            body.connect(index);
        }
        body.drive = scenario.drive.map(|plan| Drive::new(body.backend, plan, &body.transports[0], &streams));
        body.limit_peers(scenario.peer_limit);
        Ok(body)
    }

    fn make_host(&mut self, host: usize, mut random: RandomStream) {
        self.memory.add(self.backend, self.scenario.arena_bytes(), random.bits());
        let closed = self.backend.register(host, CLOSED_BYTES, Access::LOCAL_WRITE);
        let edge = self.backend.register(host, EDGE_BYTES, Access::all());
        let own_edge = self.backend.register(host, EDGE_BYTES, Access::empty());
        crate::pattern::fill(self.backend.bytes(host, own_edge), EDGE_COLOUR, 0);
        let tickets = Tickets::new(self.memory.word(self.backend, host, &mut random));
        let entries = self.scenario.shared_entries();
        let srq = (entries > 0).then(|| self.backend.create_srq(host, entries, SGES));
        if self.scenario.shared_cq {
            let cq = self.backend.create_cq(host, CQ_ENTRIES);
            self.cqs.push((host, cq));
        }
        let shared = BTreeMap::new();
        self.hosts.push(Host { closed, edge, own_edge, srq, shared, tickets, random, receives_posted: 0 });
    }

    fn cq_for(&mut self, host: usize) -> CqId {
        if self.scenario.shared_cq {
            return self.cqs.iter().find(|(owner, _)| *owner == host).expect("every host has a completion queue").1;
        }
        let cq = self.backend.create_cq(host, CQ_ENTRIES);
        self.cqs.push((host, cq));
        cq
    }

    fn make_ends(&mut self, index: usize, link: &Link, streams: &RandomStreams) {
        for side in 0..2 {
            let host = link.hosts[side];
            let (send_cq, recv_cq) = (self.cq_for(host), self.cq_for(host));
            let mut random = streams.stream(&format!("body/end-{}", index * 2 + side));
            let shares = self.scenario.shared_receives.is_some();
            let planned = link.planned.filter(|(failing_side, ..)| *failing_side == side).map(|(_, at, planned)| {
                match planned {
                    // Other queue pairs would continue to post receives to the shared queue.
                    PlannedFailure::NeverReady if shares => (at, PlannedFailure::QpFailedLocally),
                    planned => (at, planned),
                }
            });
            let block = self.memory.word(self.backend, link.hosts[1 - side], &mut random);
            self.ends.push(End {
                host,
                qpn: Qpn::new(0),
                send_cq,
                recv_cq,
                salt: random.bits(),
                random,
                depth: link.sends as usize,
                is_active: link.active[side],
                planned,
                posted: 0,
                ops: VecDeque::new(),
                silent: 0,
                acknowledged: 0,
                received: 0,
                messages: VecDeque::new(),
                targets: BTreeMap::new(),
                word: Word { block, value: 0, history: VecDeque::from([0]) },
                receives: VecDeque::new(),
                receives_max: (link.receives as usize).min(self.scenario.receives_max(self.scenario.links.len())),
                psn: link.psns[side],
                drain: Drain::No,
                failed: false,
                was_refused: false,
                got_error_event: false,
                fallen: Vec::new(),
                failed_receives: Vec::new(),
            });
        }
    }

    /// Creates the queue pairs of a connection.
    pub(super) fn make_queue_pairs(&mut self, index: usize) {
        let link = &self.scenario.links[index];
        for side in 0..2 {
            let end = &self.ends[index * 2 + side];
            let attributes = QpAttributes {
                pd: self.backend.domain(end.host),
                send_cq: end.send_cq,
                recv_cq: end.recv_cq,
                srq: self.hosts[end.host].srq,
                max_send_wr: link.sends,
                max_recv_wr: link.receives,
                max_send_sge: SGES,
                max_recv_sge: SGES,
                signal_all: false,
                service: Service::ReliableConnection,
                transport: Arc::clone(&self.transports[index % 2]),
                number: None,
                nvme: None,
            };
            let qpn = self.backend.create_qp(end.host, &attributes);
            self.ends.name(index * 2 + side, qpn);
        }
    }

    /// Connects the queue pairs of a connection to each other.
    pub(super) fn connect(&mut self, index: usize) {
        let link = &self.scenario.links[index];
        for side in 0..2 {
            let (own, other) = (index * 2 + side, index * 2 + 1 - side);
            let connection = QpConnection {
                peer: Default::default(),
                dest_qpn: self.ends[other].qpn,
                rq_psn: Psn::new(self.ends[other].psn),
                mtu: link.mtu,
                min_rnr_timer: RnrTimer::from_code(link.rnr_code),
                max_dest_rd_atomic: link.reads,
            };
            let (End { host, qpn, .. }, timing) = (&self.ends[own], self.ends.timing(own, link.reads));
            self.backend.connect_qp(*host, *qpn, link.hosts[1 - side], &connection, &timing);
        }
    }

    pub(super) fn limit_peers(&mut self, packets: Option<u64>) {
        for host in 0..self.hosts.len() {
            for to in (0..self.hosts.len()).filter(|to| *to != host) {
                self.backend.set_peer_limit(host, to, packets);
            }
        }
    }

    /// Checks at the end of a run: the queue pairs, the words, the receives left and the free memory.
    pub(super) fn tear_down(&mut self) -> Result<(), String> {
        for index in 0..self.ends.len() {
            if self.links[index / 2] == State::Closed {
                continue;
            }
            let End { host, qpn, .. } = self.ends[index];
            let info = self.backend.query(host, qpn).ok_or_else(|| format!("end {index} is gone"))?;
            if info.state != QpState::ReadyToSend || info.una != info.next {
                return Err(format!("end {index} is not at rest: {info:?}"));
            }
            let there = self.ends[index ^ 1].host;
            let Word { block, value, .. } = self.ends[index].word;
            let found = self.memory.word_at(self.backend, there, block);
            if found != value {
                return Err(format!("the word of end {index} is {found}, not {value}"));
            }
            self.memory.release(self.backend, there, block)?;
            for receive in std::mem::take(&mut self.ends[index].receives) {
                self.memory.check_untouched(self.backend, host, &receive.pieces.blocks)?;
                self.memory.release_all(self.backend, host, &receive.pieces.blocks)?;
            }
        }
        for host in 0..self.hosts.len() {
            self.tear_down_host(host)?;
        }
        Ok(())
    }

    fn tear_down_host(&mut self, host: usize) -> Result<(), String> {
        for (_, receive) in std::mem::take(&mut self.hosts[host].shared) {
            self.memory.check_untouched(self.backend, host, &receive.pieces.blocks)?;
            self.memory.release_all(self.backend, host, &receive.pieces.blocks)?;
        }
        let Host { tickets, closed, .. } = &self.hosts[host];
        let found = self.memory.word_at(self.backend, host, tickets.block());
        tickets.check_count(found).map_err(|what| format!("host {host}: {what}"))?;
        self.memory.release(self.backend, host, tickets.block())?;
        self.memory.check_empty(self.backend, host)?;
        if self.backend.bytes(host, *closed).iter().any(|byte| *byte != 0) {
            return Err(format!("host {host}: memory that grants nothing was written"));
        }
        Ok(())
    }
}

impl PlannedFailure {
    /// Failures for which the responder denies access.
    pub(super) const DENIED: &[Self] = &[
        Self::WriteKey,
        Self::WriteRight,
        Self::WriteRange,
        Self::ReadKey,
        Self::ReadRight,
        Self::AtomicRight,
        Self::InvalidateKey,
        Self::InvalidateRight,
    ];
    /// Failures for which the responder reports an invalid request.
    pub(super) const INVALID: &[Self] = &[Self::AtomicAlignment, Self::SendTooLong];
    /// Failures that no packet reports: one end exceeds its retries.
    pub(super) const GIVEN_UP: &[Self] = &[
        Self::WriteLocalKey,
        Self::SendLocalRange,
        Self::ReadLocalKey,
        Self::QpFailedByPeer,
        Self::QpFailedLocally,
        Self::PeerUnresponsive,
        Self::NeverReady,
    ];
}

/// Bytes of the memory that grants no access.
const CLOSED_BYTES: usize = 4_096;

/// Bytes of each region whose end is exceeded by requests that will fail.
pub(super) const EDGE_BYTES: usize = 1 << 16;

/// Pattern of the region whose end a host exceeds when it sends.
pub(super) const EDGE_COLOUR: u64 = 0xed6e;

/// Scatter/gather entries of every queue.
pub(super) const SGES: u32 = 4;

/// Completion queue entries: more than the requests that can be posted between two polls.
const CQ_ENTRIES: u32 = 1 << 14;
