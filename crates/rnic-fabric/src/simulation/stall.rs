//! Detection of deadlocks and stalls.

use core::fmt::Write;

use rnic_base::{Duration, Time};

use super::Simulation;
use super::connect::{Flow, Live};

/// Detects that no useful packet arrives any more.
#[derive(Debug)]
pub(super) struct Watch {
    patience: Duration,
    next: Time,
    useful_before: u64,
}

impl Watch {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, next: Time::ZERO + patience, useful_before: 0 }
    }

    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }
}

impl Simulation {
    /// Returns whether no useful packet was received since the last check although flows were waiting all the time;
    /// records the violation then.
    pub(super) fn has_stalled(&mut self) -> bool {
        let useful: u64 = self.parts.hosts().map(|host| host.stats.useful).sum();
        let since = self.watch.next - self.watch.patience;
        let nothing_happened = useful == self.watch.useful_before;
        self.watch.useful_before = useful;
        self.watch.next = self.now + self.watch.patience;
        let waiting = self.live.iter().any(|live| {
            let Flow { start, src, .. } = self.flows[live.flow as usize];
            start <= since && self.parts.host(src).sessions.sender(live.sender).waits_since(since)
        });
        if !(nothing_happened && waiting) {
            return false;
        }
        let what = format!("no useful packet since {since}: {}", self.describe_stuck());
        self.violations.add(self.now, what);
        true
    }

    /// Describes the flows that are not complete and their state: first those that have posted messages.
    pub(super) fn describe_stuck(&self) -> String {
        let has_posted = |live: &&Live| {
            let sender = self.parts.host(self.flows[live.flow as usize].src).sessions.sender(live.sender);
            sender.posted > sender.completed
        };
        let (posted, others): (Vec<&Live>, Vec<&Live>) = self.live.iter().partition(has_posted);
        let mut text = format!("{} flows are not done, {} have packets in flight", self.live.len(), posted.len());
        for live in posted.into_iter().chain(others).take(STUCK_SHOWN) {
            let flow = &self.flows[live.flow as usize];
            let _ = write!(text, "; flow {} from host {} to {}, {} bytes", live.flow, flow.src, flow.dst, flow.bytes);
            let (src, dst) = (self.parts.host(flow.src), self.parts.host(flow.dst));
            let sender = src.sessions.sender(live.sender);
            let _ = write!(text, ": {} of {} messages done", sender.completed, sender.messages);
            if let Some(info) = src.engine.query_qp(live.src_qpn) {
                let _ = write!(text, ", {} packets in flight", info.next.since(info.una));
                if let Some(far) = dst.engine.query_qp(live.dst_qpn) {
                    let _ = write!(text, " ({} of them arrived in order)", far.expected.since(info.una));
                }
                let _ = write!(text, ", {} timeouts", info.stats.timeouts);
            }
            if src.port.is_paused() {
                text.push_str(", its host is paused");
            }
            if dst.port.is_paused() {
                text.push_str(", the other host is paused");
            }
        }
        let paused: usize = self.parts.switches().map(crate::switch::Switch::paused_ports).sum();
        let waiting: u64 = self.parts.switches().map(crate::switch::Switch::bytes_waiting).sum();
        let _ = write!(text, "; switches hold {waiting} bytes, {paused} of their ports are paused");
        text
    }
}

/// Number of flows that a message describes; the others are usually in the same state.
const STUCK_SHOWN: usize = 5;
