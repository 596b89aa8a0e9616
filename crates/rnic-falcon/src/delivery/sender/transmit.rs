//! Selection of the next packet to send, after acknowledgements and NACKs: retransmissions first, then new packets.
//!
//! Source: specification Rev 0.9, sections 9.1.2 and 9.1.3; Falcon (SIGCOMM'25) section 4.3.
//!
//! On ordered connections packets are retransmitted in RSN order across both windows ("UR rule"), in PSN order within
//! one. Pull Data has RSNs of the other direction and is sent first. On unordered connections, the packet with the
//! oldest last transmission is sent first. Packets blocked by `ncwnd` do not block Pull Data behind them (F-19).

use rnic_base::{Psn32, Seq, Time};
use rnic_wire::falcon::{Body, FlowLabel, Packet, Timestamp, Window};

use crate::delivery::config::NEVER;
use crate::delivery::exchange::Leaving;
use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::delivery::windows::Windows;
use crate::seam::{Gates, Upper};

use super::DeliverySender;
use super::tx_window::{Held, Kind, Sent, TxWindow};

impl DeliverySender {
    /// Writes the next packet to be sent to `packet`, except for the bases, which the receiver adds. When no packet is
    /// sent, `packet` may have been modified.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        shared: &mut Shared,
        now: Time,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> Option<Leaving> {
        (self.paced_until, self.blocked_on_credit) = (NEVER, false);
        if self.new_packet_next || self.tx.iter().any(TxWindow::has_marks) {
            return self.transmit_repairing(shared, now, packet, upper);
        }
        self.send_first(shared, now, packet, upper)
    }

    /// Returns the time at which a packet that is ready but held back by pacing may be sent.
    #[inline]
    pub(crate) fn departure(&self) -> Option<Time> {
        (self.paced_until < NEVER && !self.dead).then_some(self.paced_until)
    }

    /// Selects the next packet when packets are marked for retransmission.
    #[inline(never)]
    fn transmit_repairing(
        &mut self,
        shared: &mut Shared,
        now: Time,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> Option<Leaving> {
        if self.new_packet_next
            && let Some(fresh) = self.send_first(shared, now, packet, upper)
        {
            self.new_packet_next = false;
            return Some(fresh);
        }
        if let Some((window, seq)) = self.next_again(&shared.flows, now) {
            // Some retransmissions are requested faster than they can be sent: probes under pacing, and packets beyond
            // the peer's window, in each round trip. New packets then get every other turn, because one of them may
            // open the window.
            self.new_packet_next = self.limits.are_paced() || self.tx[window].sent(seq).held == Held::BeyondWindow;
            return Some(self.send_again(shared, now, window, seq, packet, upper));
        }
        self.send_first(shared, now, packet, upper)
    }

    #[inline]
    fn send_first(
        &mut self,
        shared: &mut Shared,
        now: Time,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> Option<Leaving> {
        // Under pacing the departure time is determined even if no packet is ready yet.
        if !self.limits.are_paced() && !upper.has_next() {
            return None;
        }
        let fcwnd = shared.flows.fcwnd();
        let open = self.limits.first(&self.tx, fcwnd);
        let open = self.paced(now, open);
        if !open.any() {
            return None;
        }
        if self.limits.room == 0 {
            self.blocked_on_credit = upper.has_next();
            return None;
        }
        let context = upper.put_next(now, open, packet)?;
        let body = &packet.body;
        assert!(open.admits(body), "the upper layer sends {body:?} through a closed gate");
        let (window, kind) = match body {
            Body::PullRequest { .. } => (Window::Request, Kind::PullRequest),
            Body::PullData { .. } => (Window::Data, Kind::PullData),
            _ => (Window::Data, Kind::PushData),
        };
        let rsn = body.rsn().expect("requests and data have one");
        let flow = shared.flows.choose(now, &self.config.policies.paths);
        let told = shared.flows.get_mut(flow);
        told.outstanding += 1;
        told.left = told.left.saturating_add(1);
        // The packet that uses the last credit requests an acknowledgement, because the next packet waits for it.
        let ask = self.requester.ask(&self.config.ack_request, fcwnd) | (self.limits.room == 1);
        if self.waits.are_measured() && self.is_quiet() {
            self.waits.note_start(now);
        }
        let transmissions = 1;
        let sent = Sent { first: now, last: now, context, rsn, transmissions, flow, kind, ..Sent::default() };
        let seq = self.tx[window].push(sent);
        shared.counters.sent += 1;
        let label = self.complete(shared, now, window, seq, ask, packet);
        Some(Leaving { label, context: Some(context), again: false })
    }

    /// Closes gates for which it is too early, and records the time at which the first of them opens.
    #[inline]
    fn paced(&mut self, now: Time, mut open: Gates) -> Gates {
        let departures = Windows::new(|window| self.limits.departure(&self.tx[window]));
        if open.pull_request && departures.request > now {
            self.paced_until = self.paced_until.min(departures.request);
            open.pull_request = false;
        }
        if (open.push_data || open.pull_data) && departures.data > now {
            self.paced_until = self.paced_until.min(departures.data);
            (open.push_data, open.pull_data) = (false, false);
        }
        open
    }

    /// Returns the next packet to retransmit, if gates and pacing permit.
    #[inline]
    fn next_again(&mut self, flows: &Flows, now: Time) -> Option<(Window, Seq)> {
        let found = match [self.first_again(flows, Window::Request), self.first_again(flows, Window::Data)] {
            [None, None] => return None,
            [Some(request), None] => (Window::Request, request),
            [None, Some(data)] => (Window::Data, data),
            [Some(request), Some(data)] if self.data_goes_first(request, data) => (Window::Data, data),
            [Some(request), Some(_)] => (Window::Request, request),
        };
        let departure = self.limits.departure(&self.tx[found.0]);
        if departure > now {
            self.paced_until = self.paced_until.min(departure);
            return None;
        }
        Some(found)
    }

    fn first_again(&mut self, flows: &Flows, window: Window) -> Option<Seq> {
        let (window, fcwnd) = (&mut self.tx[window], flows.fcwnd());
        let mut marked = window.first_marked();
        while let Some(seq) = marked {
            if self.limits.again(window, seq, fcwnd) {
                return marked;
            }
            // The packet that would open this window may be waiting for the credit that this packet uses.
            window.hold(seq, Held::ForTurn);
            marked = window.next_marked(seq);
        }
        None
    }

    /// Returns whether, of two packets to be retransmitted, one in each window, the one in the data window is sent
    /// first.
    pub(super) fn data_goes_first(&self, request: Seq, data: Seq) -> bool {
        let (request, data) = (self.tx.request.sent(request), self.tx.data.sent(data));
        if !self.config.ordered {
            // Neither window may starve the other while packets are paced.
            return data.last <= request.last;
        }
        data.kind == Kind::PullData || data.rsn.is_before(request.rsn)
    }

    fn send_again(
        &mut self,
        shared: &mut Shared,
        now: Time,
        window: Window,
        seq: Seq,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> Leaving {
        let tx = &mut self.tx[window];
        tx.unmark(seq);
        tx.leave_again(seq);
        let sent = tx.sent_mut(seq);
        (sent.last, sent.not_before, sent.again) = (now, Time::ZERO, true);
        sent.transmissions = sent.transmissions.saturating_add(1);
        let (context, is_request, flow) = (sent.context, sent.kind.is_request(), sent.flow);
        tx.outstanding_again += u32::from(is_request);
        shared.flows.count_again(flow);
        let told = shared.flows.get_mut(flow);
        told.left = told.left.saturating_add(1);
        let outgoing = upper.again(now, context);
        outgoing.put(packet);
        let label = self.complete(shared, now, window, seq, true, packet);
        Leaving { label, context: Some(outgoing.context), again: true }
    }

    /// Completes packet `seq`, which is sent now: writes this layer's fields, updates its timer and the pacing. Returns
    /// the label of its flow.
    #[inline]
    fn complete(
        &mut self,
        shared: &Shared,
        now: Time,
        window: Window,
        seq: Seq,
        ask: bool,
        packet: &mut Packet,
    ) -> FlowLabel {
        let tx = &mut self.tx[window];
        tx.timer = tx.timer.min(now + self.waits.rto());
        let flow = tx.sent(seq).flow;
        self.limits.leave(now, packet.payload_len);
        self.waits.quiet_since = now;
        (packet.cid, packet.function) = (shared.cid, shared.function);
        (packet.ack_request, packet.timestamp) = (ask, Timestamp::at(now));
        number(&mut packet.body, seq.wire());
        shared.flows.get(flow).label
    }
}

/// Writes the sequence number `number` into `body`.
#[inline]
fn number(body: &mut Body, number: Psn32) {
    match body {
        Body::PullRequest { psn, .. }
        | Body::PullData { psn, .. }
        | Body::PushData { psn, .. }
        | Body::Resync { psn, .. } => *psn = number,
        Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => {
            panic!("the upper layer sends requests, data and Resyncs, not {body:?}")
        }
    }
}
