//! Detection of deadlocks and stalls.

use core::fmt::Write;

use rnic_base::{Duration, Time};

use super::Simulation;
use super::connect::{ActiveFlow, Flow};

/// Detects that no useful packet arrives any more.
#[derive(Debug)]
pub(super) struct StallWatch {
    stall_timeout: Duration,
    next_check: Time,
    useful_before: u64,
}

impl StallWatch {
    pub(super) fn new(stall_timeout: Duration) -> Self {
        Self { stall_timeout, next_check: Time::ZERO + stall_timeout, useful_before: 0 }
    }

    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.next_check
    }
}

impl Simulation {
    /// Returns whether no useful packet was received since the last check although flows were waiting all the time;
    /// if so, records a violation.
    pub(super) fn has_stalled(&mut self) -> bool {
        let useful: u64 = self.parts.hosts().map(|host| host.stats.useful).sum();
        let since = self.watch.next_check - self.watch.stall_timeout;
        let no_progress = useful == self.watch.useful_before;
        self.watch.useful_before = useful;
        self.watch.next_check = self.now + self.watch.stall_timeout;
        let waiting = self.active.iter().any(|(_, active)| {
            let Flow { start, src, .. } = self.flows[active.flow as usize];
            start <= since && self.parts.host(src).sessions.sender(active.sender).waits_since(since)
        });
        let delayed =
            || self.parts.hosts().any(|host| host.sessions.script.as_ref().is_some_and(|run| run.is_delayed()));
        if !(no_progress && waiting) || delayed() {
            return false;
        }
        let what =
            format!("the run has stalled, no useful packet has arrived since {since}: {}", self.describe_stuck());
        self.violations.add(self.now, what);
        true
    }

    /// Describes the flows that are not complete and their state: first those that have posted messages.
    pub(super) fn describe_stuck(&self) -> String {
        let has_posted = |active: &&ActiveFlow| {
            let sender = self.parts.host(self.flows[active.flow as usize].src).sessions.sender(active.sender);
            sender.posted > sender.completed
        };
        let active = self.active.iter().map(|(_, active)| active);
        let (posted, others): (Vec<&ActiveFlow>, Vec<&ActiveFlow>) = active.partition(has_posted);
        let mut text =
            format!("{} flows are incomplete, {} of them have outstanding messages", self.active.len(), posted.len());
        for active in posted.into_iter().chain(others).take(STUCK_FLOWS_SHOWN) {
            let flow = &self.flows[active.flow as usize];
            let _ = write!(text, "; flow {} from host {} to {}, {} bytes", active.flow, flow.src, flow.dst, flow.bytes);
            let (src, dst) = (self.parts.host(flow.src), self.parts.host(flow.dst));
            let sender = src.sessions.sender(active.sender);
            let _ = write!(text, ": {} of {} messages complete", sender.completed, sender.messages);
            if let Some(info) = src.engine.query_qp(active.src_qpn) {
                let _ = write!(text, ", {} packets in flight", info.next.since(info.una));
                if let Some(peer) = dst.engine.query_qp(active.dst_qpn) {
                    let _ = write!(text, " ({} of them have arrived in order)", peer.expected.since(info.una));
                }
                let _ = write!(text, ", {} timeouts", info.stats.timeouts);
            }
            if src.port.is_paused() {
                text.push_str(", its sending host is paused");
            }
            if dst.port.is_paused() {
                text.push_str(", its receiving host is paused");
            }
        }
        let paused: usize = self.parts.switches().map(crate::switch::Switch::paused_ports).sum();
        let waiting: u64 = self.parts.switches().map(crate::switch::Switch::bytes_waiting).sum();
        let _ = write!(text, "; switches hold {waiting} bytes, {paused} of their ports are paused");
        text
    }
}

/// Number of flows that the text of a violation describes; other flows are usually in the same state.
const STUCK_FLOWS_SHOWN: usize = 5;
