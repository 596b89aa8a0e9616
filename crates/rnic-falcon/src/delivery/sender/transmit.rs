//! Selection of the next packet to send, after acknowledgements and NACKs: retransmissions first, then new packets.
//!
//! Source: specification Rev 0.9, sections 9.1.2 and 9.1.3; Falcon (SIGCOMM'25) section 4.3.
//!
//! On ordered connections packets are retransmitted in RSN order across both windows ("UR rule"), and in PSN order
//! within one window. The RSNs of Pull Data are those of the other direction, so Pull Data is sent first. On
//! unordered connections, the packet with the oldest last transmission is sent first. Packets blocked by `ncwnd` do
//! not block later Pull Data (Falcon mechanism F-19).

use rnic_base::{Seq, Time};
use rnic_wire::falcon::{Body, FlowLabel, Packet, Timestamp, Window};

use crate::delivery::config::NEVER;
use crate::delivery::exchange::DepartureInfo;
use crate::delivery::flows::Flows;
use crate::delivery::shared::Shared;
use crate::delivery::windows::Windows;
use crate::interface::{Gates, Upper, number};

use super::DeliverySender;
use super::tx_window::{HoldReason, Kind, Sent, TxWindow};

impl DeliverySender {
    /// Writes the next packet to be sent to `packet`, except for the bases, which the receiver adds. If no packet is
    /// sent, `packet` may have been modified.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        shared: &mut Shared,
        now: Time,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> Option<DepartureInfo> {
        (self.paced_until, self.blocked_on_credit) = (NEVER, false);
        if self.new_packet_next || self.tx.iter().any(TxWindow::has_marks) {
            return self.transmit_with_retransmissions(shared, now, packet, upper);
        }
        self.send_first(shared, now, packet, upper)
    }

    /// Returns the time at which a packet that is ready but held back by pacing may be sent.
    #[inline]
    pub(crate) fn departure(&self) -> Option<Time> {
        (self.paced_until < NEVER && !self.terminated).then_some(self.paced_until)
    }

    /// Selects the next packet while packets are marked for retransmission.
    #[inline(never)]
    fn transmit_with_retransmissions(
        &mut self,
        shared: &mut Shared,
        now: Time,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> Option<DepartureInfo> {
        if self.new_packet_next
            && let Some(departure) = self.send_first(shared, now, packet, upper)
        {
            self.new_packet_next = false;
            return Some(departure);
        }
        if let Some((window, seq)) = self.next_retransmission(&shared.flows, now) {
            // Some packets are marked for retransmission faster than they can be sent: probes under pacing, and
            // packets beyond the peer's window, which are marked once per round trip. In these cases, every other
            // packet sent is a new one, because a new packet may open the window.
            self.new_packet_next =
                self.limits.are_paced() || self.tx[window].sent(seq).held == HoldReason::BeyondWindow;
            return Some(self.retransmit(shared, now, window, seq, packet, upper));
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
    ) -> Option<DepartureInfo> {
        // Under pacing, the departure time is determined even if no packet is ready yet.
        if !self.limits.are_paced() && !upper.has_next() {
            return None;
        }
        let fcwnd = shared.flows.fcwnd();
        let open = self.limits.first(&self.tx, fcwnd);
        let open = self.apply_pacing(now, open);
        if !open.any() {
            return None;
        }
        if self.limits.peer_space == 0 {
            self.blocked_on_credit = upper.has_next();
            return None;
        }
        let context = upper.write_next(now, open, packet)?;
        let body = &packet.body;
        assert!(open.admits(body), "the upper layer sends {body:?} through a closed gate");
        let (window, kind) = match body {
            Body::PullRequest { .. } => (Window::Request, Kind::PullRequest),
            Body::PullData { .. } => (Window::Data, Kind::PullData),
            _ => (Window::Data, Kind::PushData),
        };
        let rsn = body.rsn().expect("requests and data have an RSN");
        let flow = shared.flows.choose(now, &self.config.policies.paths);
        let flow_state = shared.flows.get_mut(flow);
        flow_state.outstanding += 1;
        flow_state.packets_since_report = flow_state.packets_since_report.saturating_add(1);
        // The packet that uses the last credit requests an acknowledgement, because the next packet cannot be sent
        // before it.
        let requests_ack =
            self.ack_requester.must_request(&self.config.ack_request, fcwnd) | (self.limits.peer_space == 1);
        if self.waits.are_measured() && self.all_acknowledged() {
            self.waits.note_start(now);
        }
        let transmissions = 1;
        let sent = Sent { first: now, last: now, context, rsn, transmissions, flow, kind, ..Sent::default() };
        let seq = self.tx[window].push(sent);
        shared.counters.first_transmissions += 1;
        let label = self.complete(shared, now, window, seq, requests_ack, packet);
        Some(DepartureInfo { label, context: Some(context), is_retransmission: false })
    }

    /// Closes the gates for which it is too early under pacing, and records the time at which the first of them
    /// opens.
    #[inline]
    fn apply_pacing(&mut self, now: Time, mut open: Gates) -> Gates {
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
    fn next_retransmission(&mut self, flows: &Flows, now: Time) -> Option<(Window, Seq)> {
        let found =
            match [self.first_retransmission(flows, Window::Request), self.first_retransmission(flows, Window::Data)] {
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

    fn first_retransmission(&mut self, flows: &Flows, window: Window) -> Option<Seq> {
        let (window, fcwnd) = (&mut self.tx[window], flows.fcwnd());
        let mut marked = window.first_marked();
        while let Some(seq) = marked {
            if self.limits.may_retransmit(window, seq, fcwnd) {
                return marked;
            }
            // The packet that would open this window may be waiting for credit, so the blocked packet does not count
            // as in flight.
            window.hold(seq, HoldReason::BlockedByGate);
            marked = window.next_marked(seq);
        }
        None
    }

    /// Returns `true` if, of two packets to be retransmitted, one in each window, the one in the data window is sent
    /// first.
    pub(super) fn data_goes_first(&self, request: Seq, data: Seq) -> bool {
        let (request, data) = (self.tx.request.sent(request), self.tx.data.sent(data));
        if !self.config.ordered {
            // The older one is sent first, so that under pacing neither window can prevent the retransmissions of the
            // other.
            return data.last <= request.last;
        }
        data.kind == Kind::PullData || data.rsn.is_before(request.rsn)
    }

    fn retransmit(
        &mut self,
        shared: &mut Shared,
        now: Time,
        window: Window,
        seq: Seq,
        packet: &mut Packet,
        upper: &mut impl Upper,
    ) -> DepartureInfo {
        let tx = &mut self.tx[window];
        tx.unmark(seq);
        tx.resume_in_flight(seq);
        let sent = tx.sent_mut(seq);
        (sent.last, sent.not_before, sent.is_retransmission) = (now, Time::ZERO, true);
        sent.transmissions = sent.transmissions.saturating_add(1);
        let (context, is_request, flow) = (sent.context, sent.kind.is_request(), sent.flow);
        tx.outstanding_retransmissions += u32::from(is_request);
        shared.flows.count_retransmission(flow);
        let flow_state = shared.flows.get_mut(flow);
        flow_state.packets_since_report = flow_state.packets_since_report.saturating_add(1);
        let outgoing = upper.retransmission(now, context);
        outgoing.put(packet);
        let label = self.complete(shared, now, window, seq, true, packet);
        DepartureInfo { label, context: Some(outgoing.context), is_retransmission: true }
    }

    /// Completes packet `seq`, which is sent now: writes the header fields of this layer, and updates the packet's
    /// timer and the pacing. Returns the label of its flow.
    #[inline]
    fn complete(
        &mut self,
        shared: &Shared,
        now: Time,
        window: Window,
        seq: Seq,
        requests_ack: bool,
        packet: &mut Packet,
    ) -> FlowLabel {
        let tx = &mut self.tx[window];
        tx.timer = tx.timer.min(now + self.waits.rto());
        let flow = tx.sent(seq).flow;
        self.limits.account_sent(now, packet.payload_len);
        self.waits.quiet_since = now;
        (packet.cid, packet.function) = (shared.cid, shared.function);
        (packet.ack_request, packet.timestamp) = (requests_ack, Timestamp::at(now));
        number(&mut packet.body, seq.wire());
        shared.flows.get(flow).label
    }
}
