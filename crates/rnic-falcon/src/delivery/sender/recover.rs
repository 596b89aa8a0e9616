//! Loss detection: invokes the recovery policies, and applies the rules that they return to the contexts of packets.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 and 4.3 (Falcon mechanisms F-11, F-12, F-15, F-29). A policy has a state
//! for each flow and window, but no access to packets; contexts, marks and deadlines belong to this layer.
//!
//! The scan of a window covers only packets that acknowledgements can describe ("within the Rx bitmap's range"). It
//! stops at the first packet whose first transmission is later than the send times covered by the rules of all flows:
//! packets are first sent in the order of their numbers, so this is also true of all following packets. Without
//! reordering, that is the first packet scanned.

use rnic_base::{Duration, Seq, Time};
use rnic_policy::{RecoveryActions, RecoveryEvent};
use rnic_wire::falcon::Window;

use crate::delivery::config::NEVER;
use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::delivery::windows::Windows;

use super::DeliverySender;
use super::acks::Newest;

impl DeliverySender {
    /// Passes newly reported arrivals to the policies of the flows, and marks the packets that they consider lost.
    /// `echoed` is the flow with a newly measured round trip, and that round trip.
    pub(super) fn process_arrivals(
        &mut self,
        shared: &mut Shared,
        now: Time,
        echoed: Option<(u8, Duration)>,
        newest: &Newest,
    ) {
        if let Some((flow, rtt)) = echoed {
            self.waits.note_round_trip(rtt);
            shared.flows.note_round_trip(flow, rtt);
        }
        for flow in 0..shared.flows.count() {
            let sent = newest[usize::from(flow)];
            let rtt = echoed.filter(|(echoed, _)| *echoed == flow).map(|(_, rtt)| rtt);
            if sent == Time::ZERO && rtt.is_none() {
                continue;
            }
            for window in Window::ALL {
                self.recover(shared, now, window, flow, &RecoveryEvent::Delivered { sent, rtt });
            }
        }
        for window in Window::ALL {
            self.mark_lost(shared, now, window);
        }
    }

    /// Invokes the recovery policy of `flow`.
    pub(super) fn recover(
        &mut self,
        shared: &mut Shared,
        now: Time,
        window: Window,
        flow: u8,
        event: &RecoveryEvent,
    ) -> RecoveryActions {
        let recovery = &self.config.policies.recovery;
        let state = &mut self.recovery[flow][window];
        let view = self.tx[window].view(now);
        let actions = (recovery.policy.on_event)(state, event, &view, &recovery.params);
        if let Some(rule) = actions.lost {
            self.tx[window].rules[flow] = Some(rule);
        }
        if let Some(probe) = actions.probe {
            shared.flows.get_mut(flow).probe = probe;
        }
        actions
    }

    /// Marks the packets that are lost according to the rules, and records when the next packet reaches the age limit
    /// of a rule.
    pub(super) fn mark_lost(&mut self, shared: &mut Shared, now: Time, window: Window) {
        let tx = &mut self.tx[window];
        tx.loss_check_at = NEVER;
        if tx.is_idle() {
            return;
        }
        let latest = match tx.rules.only() {
            Some(only) => only.map(|rule| rule.sent_until),
            None => tx.rules.iter().flatten().map(|rule| rule.sent_until).max(),
        };
        let latest = latest.unwrap_or(Time::ZERO);
        let mut from = 0;
        while let Some(offset) = tx.first_missing(from) {
            from = offset + 1;
            let seq = tx.base + u64::from(offset);
            if seq >= tx.next {
                break;
            }
            let sent = *tx.sent(seq);
            if sent.first > latest {
                break;
            }
            let Some(rule) = tx.rules[sent.flow] else { continue };
            let is_covered = rule.range.contains(seq) && sent.last <= rule.sent_until && sent.not_before <= now;
            if !is_covered || sent.acknowledged || sent.early >= self.config.early_attempts_max || tx.is_marked(seq) {
                continue;
            }
            // Of packets with the same send time, only those before one that is known to have arrived were sent
            // earlier.
            if sent.last == rule.sent_until && rule.age != Duration::ZERO && !tx.has_companion_arrived(seq) {
                continue;
            }
            let rack_rto = shared.flows.get(sent.flow).rack_rto.filter(|_| rule.age != Duration::ZERO);
            let due = sent.last + rack_rto.unwrap_or(rule.age);
            if due > now {
                tx.loss_check_at = tx.loss_check_at.min(due);
            } else if tx.mark(seq) {
                tx.sent_mut(seq).early += 1;
                shared.counters.retransmitted_early += 1;
                shared.flows.get_mut(sent.flow).lost = true;
            }
        }
    }

    /// Returns the time at which a probe is due: after a time without sent packets or acknowledgements, if packets
    /// are in flight and no transmission is pending for another reason.
    #[inline]
    pub(super) fn probe_due(&self, flows: &Flows) -> Time {
        let Windows { request: requests, data } = &self.tx;
        // Retransmissions that only wait for pacing will cause a response anyway; a probe would only replace one of
        // them.
        let has_retransmissions = requests.has_marks() || data.has_marks();
        if has_retransmissions || (requests.is_idle() && data.is_idle()) {
            return NEVER;
        }
        // The recovery policy decides whether to send probes, and the adaptive engine may set the wait. For a flow
        // without a measurement, neither of them knows the wait.
        let Some(policy_wait) = flows.probe_after() else { return NEVER };
        // If the wait is not shorter than the timeout, the timeout applies instead of a probe.
        self.waits.before_probe(policy_wait).map_or(NEVER, |wait| self.waits.end_of_wait(self.waits.quiet_since, wait))
    }

    /// Retransmits one packet to obtain a response from the peer: the policy selects a packet in each window, and of
    /// these the one that is first in the order of retransmissions is sent.
    pub(super) fn probe(&mut self, shared: &mut Shared, now: Time) {
        self.waits.probes += 1;
        self.waits.quiet_since = now;
        let selected = [self.probe_in(shared, now, Window::Request), self.probe_in(shared, now, Window::Data)];
        let (window, seq) = match selected {
            [Some(request), Some(data)] if !self.data_goes_first(request, data) => (Window::Request, request),
            [_, Some(data)] => (Window::Data, data),
            [Some(request), None] => (Window::Request, request),
            [None, None] => return,
        };
        if self.tx[window].mark(seq) {
            shared.counters.probes += 1;
        }
    }

    fn probe_in(&mut self, shared: &mut Shared, now: Time, window: Window) -> Option<Seq> {
        let tx = &self.tx[window];
        if tx.is_idle() {
            return None;
        }
        let flow = tx.sent(tx.base).flow;
        let selected = self.recover(shared, now, window, flow, &RecoveryEvent::Quiet).retransmit?;
        let tx = &self.tx[window];
        let usable = |seq: &Seq| !tx.sent(*seq).acknowledged && tx.sent(*seq).not_before <= now;
        Some(selected.start).filter(|seq| selected.contains(*seq) && *seq >= tx.base && *seq < tx.next).filter(usable)
    }
}
