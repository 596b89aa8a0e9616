//! Hosts, memory, queues, connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rnic_base::{Psn, RandomStream, RandomStreams, Time};
use rnic_engine::{Access, CqId, QpAttributes, QpConnection, QpState, QpTiming, RnrTimer, Service, Transport};
use rnic_wire::Qpn;

use super::end::{Drain, End, State, Word};
use super::{Body, Host, Log, Tally, Tickets};
use crate::arena::{Arena, BlockId};
use crate::backend::Backend;
use crate::scenario::{Doom, Link, Scenario};

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
            ends: Vec::new(),
            links: vec![State::Alive; scenario.links.len()],
            cqs: Vec::new(),
            by_qpn: BTreeMap::new(),
            transports: [transport(0)?, transport(1)?],
            steps: streams.stream("body/steps"),
            passing: streams.stream("body/passing"),
            log: Log::default(),
            tally: Tally::default(),
            is_calm: false,
            progress_at: Time::ZERO,
            fingerprint: 0,
            activity: 0,
        };
        for host in 0..scenario.wiring.hosts {
            body.make_host(host, streams.stream(&format!("body/host-{host}")));
        }
        for (index, link) in scenario.links.iter().enumerate() {
            body.make_ends(index, link, &streams);
            body.make_queue_pairs(index);
            body.connect(index);
        }
        body.limit_peers(scenario.peer_limit);
        Ok(body)
    }

    fn make_host(&mut self, host: usize, mut random: RandomStream) {
        let region = self.backend.register(host, self.arena_bytes(), Access::all());
        let closed = self.backend.register(host, CLOSED_BYTES, Access::LOCAL_WRITE);
        let edge = self.backend.register(host, EDGE_BYTES, Access::all());
        let own_edge = self.backend.register(host, EDGE_BYTES, Access::empty());
        crate::pattern::fill(self.backend.bytes(host, own_edge), EDGE_COLOUR, 0);
        let place = self.backend.region(host, region);
        let bytes = self.backend.bytes(host, region);
        let mut arena = Arena::new(bytes, random.bits(), place);
        let block = arena.allocate(8, 8, &mut random).expect("an empty arena");
        let range = arena.range(block);
        bytes[range].fill(0);
        let tickets = Tickets { block, posted: 0, taken: Vec::new(), doubtful: false };
        let entries = self.shared_entries();
        let srq = (entries > 0).then(|| self.backend.create_srq(host, entries, SGES));
        if self.scenario.shared_cq {
            let cq = self.backend.create_cq(host, CQ_ENTRIES);
            self.cqs.push((host, cq));
        }
        let shared = BTreeMap::new();
        self.hosts.push(Host {
            region,
            arena,
            keys: BTreeMap::new(),
            closed,
            edge,
            own_edge,
            srq,
            shared,
            tickets,
            random,
            receives_posted: 0,
        });
    }

    fn of_size<T: Copy>(&self, [small, large]: [T; 2]) -> T {
        if self.scenario.mix.len_max <= SMALL_BYTES { small } else { large }
    }

    /// Bytes of a host's arena.
    pub(super) fn arena_bytes(&self) -> usize {
        self.of_size(ARENA_BYTES)
    }

    /// No further request is posted when so much memory is in use: receives must always find room, or those who wait
    /// for them would wait for ever.
    pub(super) fn request_bytes_max(&self) -> usize {
        self.arena_bytes() / 2
    }

    /// Receives of each of `queues` queues, at most.
    fn receives_max(&self, queues: usize) -> usize {
        (self.of_size(RECEIVE_BYTES) / (self.capacity() + 100) / queues).max(1)
    }

    /// Entries of a shared receive queue.
    pub(super) fn shared_entries(&self) -> u32 {
        self.scenario.shared_receives.map_or(0, |entries| entries.min(self.receives_max(1) as u32))
    }

    fn cq_for(&mut self, host: usize) -> CqId {
        if self.scenario.shared_cq {
            return self.cqs.iter().find(|(owner, _)| *owner == host).expect("every host has one").1;
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
            let doom = link.doom.filter(|(doomed, ..)| *doomed == side).map(|(_, at, doom)| match doom {
                // Others would go on posting receives.
                Doom::NeverReady if shares => (at, Doom::GivesUp),
                doom => (at, doom),
            });
            let block = self.make_word(link.hosts[1 - side], &mut random);
            self.ends.push(End {
                host,
                qpn: Qpn::new(0),
                send_cq,
                recv_cq,
                salt: random.bits(),
                random,
                depth: link.sends as usize,
                is_active: link.active[side],
                doom,
                posted: 0,
                ops: VecDeque::new(),
                silent: 0,
                acknowledged: 0,
                received: 0,
                messages: VecDeque::new(),
                targets: BTreeMap::new(),
                word: Word { block, value: 0, history: VecDeque::from([0]) },
                receives: VecDeque::new(),
                receives_max: (link.receives as usize).min(self.receives_max(self.scenario.links.len())),
                psn: link.psns[side],
                drain: Drain::No,
                failed: false,
                was_refused: false,
                was_told: false,
                fallen: Vec::new(),
                fallen_receives: Vec::new(),
            });
        }
    }

    /// A word of its own for an end, at the other host.
    pub(super) fn make_word(&mut self, there: usize, random: &mut RandomStream) -> BlockId {
        let Host { arena, region, .. } = &mut self.hosts[there];
        let block = arena.allocate(8, 8, random).expect("requests leave room for a few words");
        self.backend.bytes(there, *region)[arena.range(block)].fill(0);
        block
    }

    /// Makes the queue pairs of a connection.
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
            let (host, qpn) = (end.host, self.backend.create_qp(end.host, &attributes));
            self.ends[index * 2 + side].qpn = qpn;
            self.by_qpn.insert((host, qpn.get()), index * 2 + side);
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
            let (End { host, qpn, .. }, timing) = (&self.ends[own], self.timing(own));
            self.backend.connect_qp(*host, *qpn, link.hosts[1 - side], &connection, &timing);
        }
    }

    /// What the queue pair of `end` needs to send.
    pub(super) fn timing(&self, end: usize) -> QpTiming {
        let doom = self.ends[end].doom.or(self.ends[end ^ 1].doom).map(|(_, doom)| doom);
        let retry_count = match doom {
            None => u32::MAX,
            Some(Doom::PeerVanishes) => FEW_RETRIES,
            // RoCE cannot repeat an answer once it has refused what came behind: then a count must end the wait.
            Some(_) => DOOMED_RETRIES,
        };
        let rnr_retry = (doom == Some(Doom::NeverReady)).then_some(FEW_RETRIES);
        let max_rd_atomic = self.scenario.links[end / 2].reads;
        QpTiming { sq_psn: Psn::new(self.ends[end].psn), retry_count, rnr_retry, max_rd_atomic }
    }

    pub(super) fn limit_peers(&mut self, packets: Option<u64>) {
        for host in 0..self.hosts.len() {
            for to in (0..self.hosts.len()).filter(|to| *to != host) {
                self.backend.set_peer_limit(host, to, packets);
            }
        }
    }

    /// At the end: what stands in words and in free memory.
    pub(super) fn tear_down(&mut self) -> Result<(), String> {
        for index in 0..self.ends.len() {
            if self.links[index / 2] == State::Gone {
                continue;
            }
            let End { host, qpn, .. } = self.ends[index];
            let info = self.backend.query(host, qpn).ok_or_else(|| format!("end {index} is gone"))?;
            if info.state != QpState::ReadyToSend || info.una != info.next {
                return Err(format!("end {index} is not at rest: {info:?}"));
            }
            let there = self.ends[index ^ 1].host;
            let Word { block, value, .. } = self.ends[index].word;
            let found = self.word_at(there, block);
            if found != value {
                return Err(format!("the word of end {index} is {found}, not {value}"));
            }
            self.release(there, block)?;
            for receive in std::mem::take(&mut self.ends[index].receives) {
                self.check_untouched(self.ends[index].host, &receive)?;
                self.release_all(self.ends[index].host, &receive.pieces.blocks)?;
            }
        }
        for host in 0..self.hosts.len() {
            self.tear_down_host(host)?;
        }
        Ok(())
    }

    fn tear_down_host(&mut self, host: usize) -> Result<(), String> {
        for (_, receive) in std::mem::take(&mut self.hosts[host].shared) {
            self.check_untouched(host, &receive)?;
            self.release_all(host, &receive.pieces.blocks)?;
        }
        let Tickets { block, posted, doubtful, .. } = self.hosts[host].tickets;
        let (found, taken) = (self.word_at(host, block), self.hosts[host].tickets.taken.len() as u64);
        if found > posted || found < taken || (found != posted && !doubtful) {
            return Err(format!("host {host}: {posted} tickets were drawn, the count is {found}"));
        }
        self.release(host, block)?;
        let region = self.hosts[host].region;
        self.hosts[host]
            .arena
            .check_empty(self.backend.bytes(host, region))
            .map_err(|what| format!("host {host}: {what}"))?;
        let closed = self.hosts[host].closed;
        if self.backend.bytes(host, closed).iter().any(|byte| *byte != 0) {
            return Err(format!("host {host}: memory that grants nothing was written"));
        }
        Ok(())
    }

    /// Eight bytes of a host's memory.
    pub(super) fn word_at(&mut self, host: usize, block: BlockId) -> u64 {
        let Host { arena, region, .. } = &self.hosts[host];
        let range = arena.range(block);
        let bytes = &self.backend.bytes(host, *region)[range];
        u64::from_ne_bytes(bytes.try_into().expect("a word has eight bytes"))
    }

    /// Gives a block back; answers whether nobody else needs it.
    pub(super) fn release(&mut self, host: usize, block: BlockId) -> Result<bool, String> {
        let Host { arena, region, .. } = &mut self.hosts[host];
        let released = arena.release(block, self.backend.bytes(host, *region));
        let is_free = released.map_err(|what| format!("host {host}: {what}"))?;
        if is_free {
            self.take_key_back(host, block);
        }
        Ok(is_free)
    }

    pub(super) fn release_all(&mut self, host: usize, blocks: &[BlockId]) -> Result<(), String> {
        blocks.iter().try_for_each(|block| self.release(host, *block).map(|_| ()))
    }
}

impl Doom {
    /// What makes the responder deny access.
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
    /// What makes the responder call the request malformed.
    pub(super) const INVALID: &[Self] = &[Self::AtomicAlignment, Self::SendTooLong];
    /// What nobody is told of on the wire: one end is left with retries that come to nothing.
    pub(super) const GIVEN_UP: &[Self] = &[
        Self::WriteLocalKey,
        Self::SendLocalRange,
        Self::ReadLocalKey,
        Self::PeerGivesUp,
        Self::GivesUp,
        Self::PeerVanishes,
        Self::NeverReady,
    ];
}

/// Bytes of a host's arena, for messages of up to [`SMALL_BYTES`], and for larger ones: receives of every queue pair,
/// and requests enough to fill windows.
const ARENA_BYTES: [usize; 2] = [4 << 20, 24 << 20];

/// Messages that make do with the smaller arena.
const SMALL_BYTES: u32 = 30_000;

/// Bytes of a host's receives altogether, at most.
const RECEIVE_BYTES: [usize; 2] = [1 << 20, 6 << 20];

/// Bytes of the memory that grants nothing.
const CLOSED_BYTES: usize = 4_096;

/// Bytes of each region beyond whose end doomed requests reach.
pub(super) const EDGE_BYTES: usize = 1 << 16;

/// What stands in the region beyond whose end a host sends.
pub(super) const EDGE_COLOUR: u64 = 0xed6e;

/// Scatter/gather entries of every queue.
pub(super) const SGES: u32 = 4;

/// More than can be posted before anybody looks.
const CQ_ENTRIES: u32 = 1 << 14;

/// Retries that may be exceeded by chance.
const FEW_RETRIES: u32 = 2;

/// Timeouts in a row that no loss brings about by chance.
const DOOMED_RETRIES: u32 = 200;
