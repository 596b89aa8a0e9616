//! The test driver: posts requests, advances time, polls, and checks every result against the expected one. See the
//! crate's documentation.

mod complete;
mod draft;
mod drains_and_limits;
mod drive;
mod end;
mod ends;
mod fall;
mod memory;
mod post;
mod progress;
mod receive;
mod setup;
mod sizes;
mod tickets;

use std::collections::BTreeMap;
use std::sync::Arc;

use rnic_base::{Duration, RandomStream};
use rnic_engine::{AsyncEvent, CqId, DropReason, EngineStats, QpState, SrqId, Transport, WaitReason};

use crate::backend::{Backend, RegionId};
use crate::log::{Happened, Log};
use crate::scenario::{PlannedFailure, Receives, Scenario};

use drive::Drive;
use end::{End, Receive, State};
use ends::Ends;
use memory::Memory;
use progress::Progress;
use tickets::Tickets;

/// Counters of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Packets that NICs have sent, acknowledgements and retransmissions included.
    pub packets: u64,
    /// Retransmitted packets.
    pub repeated: u64,
    /// Requests posted.
    pub posted: u64,
    /// Requests that succeeded and were checked.
    pub succeeded: u64,
    /// NVMe commands that completed and were checked.
    pub commands: u64,
    /// Requests that failed as expected.
    pub failed: u64,
    /// Receives completed and checked.
    pub received: u64,
    /// Connections that ended in an intended error.
    pub connections_failed: u64,
    /// Of these, connections established again.
    pub reconnected: u64,
    /// Send queues drained and resumed.
    pub drained: u64,
    /// Limits of dequeue rates set.
    pub rate_limits: u64,
    /// Requests whose receiver was not ready (RNR).
    pub not_ready: u64,
    /// Packets that were refused because their receiver had no buffer space.
    pub no_room: u64,
    /// Ordering mode of Falcon's queue pairs.
    pub ordering: Option<String>,
    /// Number of first failures of a queue pair, by completion status.
    pub failures: BTreeMap<String, u64>,
    /// Hash of all events, where it is reproducible.
    pub trace_hash: Option<String>,
}

impl Tally {
    /// Adds the counters of a host's engine.
    pub(crate) fn count(&mut self, stats: &EngineStats) {
        self.packets += packets_of(stats);
        self.repeated += stats.packets_retransmitted;
        self.not_ready += stats.rnr_naks_sent;
        self.no_room += stats.drops[DropReason::ReceiverNotReady as usize];
    }
}

/// Returns the number of packets that a host has sent.
pub(crate) fn packets_of(stats: &EngineStats) -> u64 {
    stats.packets_sent + stats.packets_retransmitted + stats.acks_sent
}

/// A host as the test driver sees it.
struct Host {
    /// Memory that grants peers no access.
    closed: RegionId,
    /// Regions for requests that will fail: peers' requests exceed the end of the first one, and this host's own the
    /// end of the second.
    edge: RegionId,
    own_edge: RegionId,
    srq: Option<SrqId>,
    /// Receives posted to the shared receive queue.
    shared: BTreeMap<u64, Receive>,
    /// Counter from which queue pairs of all hosts take tickets.
    tickets: Tickets,
    random: RandomStream,
    receives_posted: u64,
}

/// A run in progress.
pub struct Body<'b, B> {
    backend: &'b mut B,
    scenario: &'b Scenario,
    hosts: Vec<Host>,
    memory: Memory,
    ends: Ends,
    links: Vec<State>,
    /// NVMe traffic beside the connections, if the scenario includes it.
    drive: Option<Drive>,
    cqs: Vec<(usize, CqId)>,
    /// Transports of connections with even numbers, and with odd ones.
    transports: [Arc<Transport>; 2],
    steps: RandomStream,
    /// Decides on the limits of dequeue rates.
    rates: RandomStream,
    /// Decides on the weights of queue pairs and the capacities of hosts.
    shares: RandomStream,
    log: Log,
    tally: Tally,
    /// Set in the final phase: no more requests are posted, receives are posted early, and no more faults occur.
    is_calm: bool,
    progress: Progress,
}

impl<'b, B: Backend> Body<'b, B> {
    /// Runs `scenario` on `backend`.
    ///
    /// # Errors
    /// The first violation, with the events before it.
    pub fn run(backend: &'b mut B, scenario: &'b Scenario) -> Result<Tally, String> {
        let mut body = Self::new(backend, scenario)?;
        match body.all_phases() {
            Ok(()) => Ok(body.tally),
            Err(what) => Err(format!("{what}\nat {}\n{}{}", body.backend.now(), body.log, body.describe())),
        }
    }

    fn all_phases(&mut self) -> Result<(), String> {
        while self.packets() < self.scenario.packets && self.tally.posted < self.scenario.packets {
            self.post_everywhere()?;
            self.pass_time()?;
            if self.links.iter().all(|state| *state == State::Closed) {
                break;
            }
        }
        self.log.add(self.backend.now(), Happened::FaultsDisabled);
        self.is_calm = true;
        self.backend.end_faults();
        self.progress.restart(self.backend.now());
        self.finish_all()?;
        self.probe_peers()?;
        self.pass_time()?;
        self.tear_down()?;
        if let Some(drive) = &self.drive {
            drive.check(self.backend)?;
            self.tally.commands = drive.done;
        }
        self.tally.trace_hash = self.backend.finish()?;
        for host in 0..self.hosts.len() {
            self.drain(host)?;
        }
        self.count();
        Ok(())
    }

    fn finish_all(&mut self) -> Result<(), String> {
        while self.outstanding() > 0 {
            self.close_silent_runs()?;
            self.post_receives()?;
            self.pass_time()?;
        }
        Ok(())
    }

    /// Checks, when no packet is in flight, that a packet can be sent to each peer; otherwise some of the credit was
    /// lost.
    fn probe_peers(&mut self) -> Result<(), String> {
        self.limit_peers(Some(1));
        for end in 0..self.ends.len() {
            if self.links[end / 2] == State::Alive {
                self.post_nothing(end)?;
            }
        }
        self.finish_all().map_err(|what| format!("with room for one packet to each peer: {what}"))
    }

    fn post_everywhere(&mut self) -> Result<(), String> {
        self.post_receives()?;
        if let Some(drive) = &mut self.drive {
            drive.post(self.backend)?;
        }
        for end in 0..self.ends.len() {
            if self.ends[end].is_active && self.steps.below(4) > 0 {
                for _ in 0..1 + self.steps.below(self.scenario.mix.burst_max) {
                    if !self.post_one(end)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn post_receives(&mut self) -> Result<(), String> {
        let is_late = self.scenario.mix.receives == Receives::Late && !self.is_calm;
        for host in 0..self.hosts.len() {
            while self.hosts[host].srq.is_some() && !(is_late && self.steps.below(4) > 0) {
                if !self.post_shared_receive(host)? {
                    break;
                }
            }
        }
        for end in 0..self.ends.len() {
            while self.scenario.shared_receives.is_none() && !(is_late && self.steps.below(4) > 0) {
                if !self.post_receive(end)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Advances time by one step and processes the resulting completions and events.
    fn pass_time(&mut self) -> Result<(), String> {
        let span = Duration::from_ns(self.steps.between(1, self.scenario.mix.step_ns));
        self.backend.advance(span);
        for host in 0..self.hosts.len() {
            self.drain(host)?;
        }
        if let Some(drive) = &mut self.drive {
            (0..drive.drain(self.backend)?).for_each(|_| self.progress.note());
        }
        self.ends.check_received()?;
        self.tear_down_failed()?;
        self.drain_and_limit_randomly();
        self.progress.check(self.backend, &self.ends, self.outstanding() > 0)
    }

    fn drain(&mut self, host: usize) -> Result<(), String> {
        for index in 0..self.cqs.len() {
            let (owner, cq) = self.cqs[index];
            if owner != host {
                continue;
            }
            while let Some(completion) = self.backend.poll(host, cq) {
                self.progress.note();
                self.complete(host, cq, &completion)?;
            }
        }
        while let Some(event) = self.backend.event(host) {
            self.log.add(self.backend.now(), Happened::Event { host, event });
            self.check_event(host, event)?;
        }
        Ok(())
    }

    /// Checks that only connections that are meant to fail report an error event.
    fn check_event(&mut self, host: usize, event: AsyncEvent) -> Result<(), String> {
        let (qpn, legal): (_, &[PlannedFailure]) = match event {
            AsyncEvent::QpAccessError(qpn) => (qpn, PlannedFailure::DENIED),
            AsyncEvent::QpRequestError(qpn) => (qpn, PlannedFailure::INVALID),
            AsyncEvent::QpFatal(qpn) => (qpn, PlannedFailure::GIVEN_UP),
            AsyncEvent::SendQueueDrained(qpn) => return self.note_drained(host, qpn),
            AsyncEvent::CqOverrun(_) => return Err(format!("host {host}: {event:?}")),
            _ => return Ok(()),
        };
        if self.drive.as_ref().is_some_and(|drive| drive.owns(host, qpn)) {
            return Err(format!("host {host}: {event:?} at a queue pair for NVMe"));
        }
        let Some(end) = self.ends.find(host, qpn) else { return Ok(()) };
        self.ends[end].got_error_event |= !matches!(event, AsyncEvent::QpFatal(_));
        let failures = [end ^ 1, end].map(|end| self.ends[end].planned.map(|(_, planned)| planned));
        // A queue pair with few retries gives up as a responder too.
        let planned = failures[0].or(failures[1].filter(|planned| *planned == PlannedFailure::PeerUnresponsive));
        if planned.is_some_and(|planned| legal.contains(&planned)) {
            return Ok(());
        }
        Err(format!("host {host}: unexpected {event:?} at end {end}; planned failure: {planned:?}"))
    }

    fn packets(&self) -> u64 {
        (0..self.hosts.len()).map(|host| packets_of(&self.backend.stats(host))).sum()
    }

    fn count(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.tally.count(&self.backend.stats(host)));
    }

    /// Returns the number of requests that are not known to be complete, and of messages that have not been received.
    fn outstanding(&self) -> usize {
        let dying = self.links.iter().filter(|state| matches!(state, State::TearingDown(_))).count();
        dying + self.ends.outstanding() + self.drive.as_ref().map_or(0, Drive::outstanding)
    }

    /// Describes the state of every queue pair.
    fn describe(&self) -> String {
        let mut text = String::new();
        for (index, end) in self.ends.iter().enumerate() {
            let info = self.backend.query(end.host, end.qpn);
            let front = end.ops.front().map(|op| (op.index, op.op));
            text += &format!(
                "  end {index} at host {}: {:?}, {} posted, {} not done, first {front:?}, {} to be received, \
                 {} receives, {:?}\n",
                end.host,
                self.links[index / 2],
                end.posted,
                end.ops.len(),
                end.messages.len(),
                end.receives.len(),
                info
            );
        }
        for host in 0..self.hosts.len() {
            let stats = self.backend.stats(host);
            let waits = WaitReason::ALL.iter().map(|reason| (*reason, stats.waits[*reason as usize]));
            let waits: Vec<_> = waits.filter(|(_, count)| *count > 0).collect();
            text += &format!("  host {host}: waits {waits:?}, {stats:?}\n");
        }
        text
    }

    /// Returns whether the queue pair of `end` is in the error state.
    fn is_in_error(&self, end: usize) -> bool {
        let End { host, qpn, .. } = self.ends[end];
        self.backend.query(host, qpn).is_none_or(|info| info.state == QpState::Error)
    }
}
