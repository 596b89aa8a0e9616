//! Processing of received acknowledgements and NACKs.
//!
//! Source: specification Rev 0.9, sections 9.2.3, 9.2.4 and 11; Falcon (SIGCOMM'25) sections 4.1 and 4.3.
//!
//! - Stale acknowledgements: when either base is older than the current one, the complete acknowledgement is dropped
//!   (9.2.3), unless `accept_stale` is set: with several flows acknowledgements overtake each other, and packets that
//!   an old one reports as received have been received.
//! - Acknowledged packets are attributed to the flow on which they were sent, according to the sender's records
//!   (Falcon mechanism F-28).
//! - The recovery policy of a flow is notified when one of the flow's packets has arrived. For the flow of the
//!   acknowledgement, this is derived from T1, which is coarse (the start of its unit is used, so packets sent later
//!   within the unit are not considered lost). For all flows, it is derived from the records of packets that were sent
//!   once and are newly acknowledged or reported in the bitmaps. This is the addition that allows a loss on one path to
//!   be recovered by acknowledgements on another (Falcon mechanism F-29). For a packet that was sent twice it is
//!   unknown which copy arrived.
//! - With several flows, each flow measures a round trip by the first acknowledgement that echoes a packet. A packet
//!   that waited, for ordering, for a packet on another flow is acknowledged separately (Falcon mechanism F-28), and
//!   that acknowledgement echoes a packet that was echoed before, so its T1 is too old by the length of that time. It
//!   is reported to the adaptive engine like a packet that arrived with the same delay and was acknowledged immediately
//!   (Falcon mechanism F-17). RACK (RFC 8985) does not use a T1 twice either. If the first acknowledgement was lost,
//!   the next one is used, although its round trip includes that time.
//! - Out of window notification: packets that have not arrived and were last sent more than a round trip ago are
//!   retransmitted (9.2.3).
//! - Pull Data acknowledges its Pull Request (RSN), which is then not retransmitted; its sequence number remains in
//!   the window until the base passes it.
//!
//! NACKs: codes that the specification leaves to the transaction layer are passed to it once ([`Upper::nacked`]), and
//! the Resync is sent immediately (contradiction 21: the Resync is as reliable as the packet whose numbers it uses).
//! RNR makes the packet wait for max(RTO, the timeout in the NACK); until the packet was retransmitted, further RNR
//! NACKs are ignored, because the network has duplicated the NACK or the packet that caused it. So each wait is
//! reported to the upper layer once. It is not reported at all if the packet was retransmitted and the NACK echoes a
//! packet sent before that retransmission, because that NACK has most likely been reported already. A NACK for lack
//! of resources is only reported, because loss recovery and the timeout cover the packet, which the peer has dropped.
//! The packet's timeout count is reset, because the peer is alive. The interval between probes, however, which
//! doubles up to the timeout, is reset only when a packet is acknowledged or another type of response arrives.

use rnic_base::{Seq, Time};
use rnic_policy::control::report::ReportKind;
use rnic_policy::paths::FLOWS_MAX;
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Nack, NackCode, OutOfWindow, Packet, Rsn, Timestamp, Window, WindowBases, reflected,
};

use crate::delivery::exchange::Reception;
use crate::delivery::shared::Shared;
use crate::delivery::windows::Windows;
use crate::interface::Upper;

use super::DeliverySender;
use super::report::Path;
use super::tx_window::{HoldReason, Kind, Sent};

/// For each flow, send time of the latest packet that is newly known to have arrived and that was sent only once.
pub(super) type Newest = [Time; FLOWS_MAX];

impl DeliverySender {
    /// Processes an acknowledgement received on `flow`.
    pub(crate) fn on_ack_packet(
        &mut self,
        shared: &mut Shared,
        now: Time,
        flow: u8,
        packet: &Packet,
        (ack, bitmaps): (&Acknowledgement, Option<&Bitmaps>),
        upper: &mut impl Upper,
    ) -> Reception {
        let Some(bases) = self.usable_bases(shared, &packet.bases) else { return Reception::Stale };
        let Some(bases) = bases else { return Reception::Dropped };
        let mut newest = [Time::ZERO; FLOWS_MAX];
        self.advance(shared, now, bases, &mut newest, upper);
        if let Some(bitmaps) = bitmaps {
            self.apply_bitmaps(shared, now, bases, bitmaps, &mut newest, upper);
        }
        let &Acknowledgement { t1, t2, hops, rx_level, ecn, metadata, out_of_window } = ack;
        let (extended, window_drop) = (bitmaps.is_some(), out_of_window.any());
        let again = shared.flows.note_echo(now, flow, t1, t2);
        let csig = reflected(metadata);
        let path = Path { t1, t2, t3: packet.timestamp, again, hops, rx_level, ecn, csig, extended, window_drop };
        self.waits.probes = 0;
        self.process_arrivals_of(shared, now, flow, &path, &mut newest);
        if out_of_window.any() {
            self.retransmit_beyond_window(shared, now, out_of_window);
        }
        self.report(shared, now, flow, ReportKind::Acked, &path);
        Reception::Processed
    }

    /// Processes a NACK received on `flow`.
    pub(crate) fn on_nack_packet(
        &mut self,
        shared: &mut Shared,
        now: Time,
        flow: u8,
        packet: &Packet,
        nack: &Nack,
        upper: &mut impl Upper,
    ) -> Reception {
        let Some(bases) = self.usable_bases(shared, &packet.bases) else { return Reception::Stale };
        let Some(bases) = bases else { return Reception::Dropped };
        let mut newest = [Time::ZERO; FLOWS_MAX];
        self.advance(shared, now, bases, &mut newest, upper);
        let &Nack { t1, t2, hops, rx_level, ecn, metadata, .. } = nack;
        let again = shared.flows.note_echo(now, flow, t1, t2);
        let csig = reflected(metadata);
        let path = Path { t1, t2, t3: packet.timestamp, again, hops, rx_level, ecn, csig, ..Path::default() };
        let window = nack.window;
        let tx = &self.tx[window];
        let seq = nack.psn.extend(tx.next);
        if seq >= tx.next {
            shared.counters.peer_errors += 1;
            return Reception::Dropped;
        }
        if seq >= tx.base && !tx.sent(seq).acknowledged {
            self.apply_nack(now, window, seq, (nack.code, t1), upper);
        }
        // A probe sent immediately would most likely be refused again: most of the packets that reach such a peer
        // would be probes.
        if nack.code != NackCode::Resource {
            self.waits.probes = 0;
        }
        self.process_arrivals_of(shared, now, flow, &path, &mut newest);
        self.report(shared, now, flow, ReportKind::Nacked { code: nack.code.code() }, &path);
        Reception::Processed
    }

    /// Handles NACK `code` for packet `seq`; the NACK echoes a packet sent at `echoed`.
    fn apply_nack(
        &mut self,
        now: Time,
        window: Window,
        seq: Seq,
        (code, echoed): (NackCode, Timestamp),
        upper: &mut impl Upper,
    ) {
        let tx = &mut self.tx[window];
        match code {
            NackCode::Resource => tx.sent_mut(seq).timeouts = 0,
            NackCode::NotReady { timeout } => {
                let sent = tx.sent(seq);
                if sent.held == HoldReason::NotReady || sent.replaced {
                    return;
                }
                let (sent_at, context, is_first) = (Timestamp::at(sent.last), sent.context, sent.transmissions == 1);
                let wait = now + self.waits.rto().max(timeout.wait());
                tx.unmark(seq);
                tx.hold_not_ready(seq);
                let sent = tx.sent_mut(seq);
                (sent.not_before, sent.timeouts) = (wait, 0);
                tx.timer = tx.timer.min(wait);
                if is_first || !echoed.is_before(sent_at) {
                    upper.not_ready(now, context);
                }
            }
            NackCode::Xlr
            | NackCode::CompleteInError { .. }
            | NackCode::NonRecoverable { .. }
            | NackCode::InvalidCid => {
                let sent = tx.sent_mut(seq);
                if !sent.replaced {
                    (sent.replaced, sent.timeouts, sent.not_before) = (true, 0, Time::ZERO);
                    let context = sent.context;
                    tx.clear_arrived(seq);
                    tx.mark(seq);
                    upper.nacked(now, context, code);
                }
            }
        }
    }

    /// Processes the bases carried by a data or request packet of the peer. Such a packet echoes no timestamps, so it
    /// only acknowledges packets.
    #[inline]
    pub(crate) fn apply_bases(&mut self, shared: &mut Shared, now: Time, bases: &WindowBases, upper: &mut impl Upper) {
        if bases.request == self.tx.request.base.wire() && bases.data == self.tx.data.base.wire() {
            return;
        }
        // The bases of an old packet are older than the current ones and have no effect.
        let bases = Windows::new(|window| {
            let base = self.tx[window].base;
            bases.of(window).extend(base).max(base)
        });
        if bases.iter().zip(self.tx.iter()).any(|(base, tx)| *base > tx.next) {
            shared.counters.peer_errors += 1;
            return;
        }
        let mut newest = [Time::ZERO; FLOWS_MAX];
        if self.advance(shared, now, bases, &mut newest, upper) {
            self.process_arrivals(shared, now, None, &newest);
        }
    }

    /// Returns the bases of an acknowledgement or NACK as extended sequence numbers; `None` if it is stale, and
    /// `Some(None)` if it acknowledges packets that were never sent.
    fn usable_bases(&mut self, shared: &mut Shared, bases: &WindowBases) -> Option<Option<Windows<Seq>>> {
        let extended = Windows::new(|window| bases.of(window).extend(self.tx[window].base));
        let is_behind = extended.iter().zip(self.tx.iter()).any(|(base, tx)| *base < tx.base);
        if is_behind && !self.config.accept_stale {
            shared.counters.stale_acks += 1;
            return None;
        }
        if extended.iter().zip(self.tx.iter()).any(|(base, tx)| *base > tx.next) {
            shared.counters.peer_errors += 1;
            return Some(None);
        }
        Some(Some(extended))
    }

    /// Advances both bases; returns `true` if at least one of them moved.
    #[inline]
    fn advance(
        &mut self,
        shared: &mut Shared,
        now: Time,
        bases: Windows<Seq>,
        newest: &mut Newest,
        upper: &mut impl Upper,
    ) -> bool {
        let mut moved = false;
        for window in Window::ALL {
            if bases[window] <= self.tx[window].base {
                continue;
            }
            moved = true;
            self.tx[window].opened = now;
            while self.tx[window].base < bases[window] {
                let seq = self.tx[window].base;
                let is_new_arrival = !self.tx[window].has_arrived(seq);
                let was_spurious = self.tx[window].was_spurious(seq, now, self.waits.last_round_trip());
                let sent = self.tx[window].pop();
                if is_new_arrival {
                    shared.counters.timeouts_spurious += u32::from(was_spurious);
                    note_arrival(&sent, newest);
                }
                if !sent.acknowledged {
                    self.finish(shared, now, window, sent, upper);
                }
            }
        }
        if moved {
            (self.waits.quiet_since, self.waits.probes) = (now, 0);
        }
        moved
    }

    /// Completes an acknowledged packet: removes it from all counts, and notifies the upper layer.
    #[inline(always)]
    fn finish(&mut self, shared: &mut Shared, now: Time, window: Window, sent: Sent, upper: &mut impl Upper) {
        self.tx[window].discount(sent);
        let flow = shared.flows.get_mut(sent.flow);
        flow.outstanding -= 1;
        flow.acknowledged = flow.acknowledged.saturating_add(1);
        upper.acked(now, sent.context);
    }

    /// Completes the outstanding packet `seq`, which is acknowledged by a bitmap or a response instead of the base.
    fn finish_at(&mut self, shared: &mut Shared, now: Time, window: Window, seq: Seq, upper: &mut impl Upper) {
        let tx = &mut self.tx[window];
        let sent = *tx.sent(seq);
        if !sent.acknowledged {
            tx.unmark(seq);
            tx.sent_mut(seq).acknowledged = true;
            self.finish(shared, now, window, sent, upper);
        }
    }

    /// Processes the bitmaps, which describe packets beyond the bases.
    fn apply_bitmaps(
        &mut self,
        shared: &mut Shared,
        now: Time,
        bases: Windows<Seq>,
        bitmaps: &Bitmaps,
        newest: &mut Newest,
        upper: &mut impl Upper,
    ) {
        let requests = u128::from(bitmaps.request_received);
        let arrived = Windows { request: requests, data: bitmaps.data_received | bitmaps.data_acked };
        let acknowledged = Windows { request: requests, data: bitmaps.data_acked };
        for window in Window::ALL {
            self.collect_arrivals(shared, now, window, bases[window], arrived[window], newest);
            let mut bits = self.limit_to_sent(window, bases[window], acknowledged[window]);
            while bits != 0 {
                let seq = self.tx[window].base + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                self.finish_at(shared, now, window, seq, upper);
            }
        }
    }

    fn collect_arrivals(
        &mut self,
        shared: &mut Shared,
        now: Time,
        window: Window,
        base: Seq,
        bits: u128,
        newest: &mut Newest,
    ) {
        let round_trip = self.waits.last_round_trip();
        let mut bits = self.limit_to_sent(window, base, bits) & !self.tx[window].arrived_bits();
        while bits != 0 {
            let tx = &mut self.tx[window];
            let seq = tx.base + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            shared.counters.timeouts_spurious += u32::from(tx.was_spurious(seq, now, round_trip));
            note_arrival(tx.sent(seq), newest);
            tx.set_arrived(seq);
        }
    }

    /// Returns `bits` of an acknowledgement with this `base`, shifted to the local base and limited to packets that
    /// were sent.
    fn limit_to_sent(&self, window: Window, base: Seq, bits: u128) -> u128 {
        let tx = &self.tx[window];
        let shift = tx.base.since(base);
        let bits = if shift < 128 { bits >> shift } else { 0 };
        let span = tx.span();
        if span < 128 { bits & ((1 << span) - 1) } else { bits }
    }

    /// Passes the packet arrivals reported by an acknowledgement or NACK to the recovery policies.
    fn process_arrivals_of(&mut self, shared: &mut Shared, now: Time, flow: u8, path: &Path, newest: &mut Newest) {
        // `None` if T1 is in the future, or if no packet is echoed.
        let rtt = path.t1.last_time_of(now).map(|sent| {
            let newest = &mut newest[usize::from(flow)];
            *newest = sent.max(*newest);
            Timestamp::at(now).since(path.t1)
        });
        self.waits.quiet_since = now;
        let echoed = rtt.filter(|_| !path.again).map(|rtt| (flow, rtt));
        let rtt = echoed.map(|(_, rtt)| rtt);
        self.change_timeout(|waits, attempts| waits.note_response(now, rtt, attempts));
        self.process_arrivals(shared, now, echoed, newest);
    }

    /// Marks for retransmission the packets that were beyond the peer's window and were last sent longer ago than a
    /// round trip of their path.
    fn retransmit_beyond_window(&mut self, shared: &mut Shared, now: Time, out_of_window: OutOfWindow) {
        for window in Window::ALL.into_iter().filter(|window| out_of_window.of(*window)) {
            let tx = &mut self.tx[window];
            for offset in 0..tx.span() {
                let seq = tx.base + offset;
                let sent = tx.sent(seq);
                let round_trip = shared.flows.round_trip(sent.flow).unwrap_or(self.waits.round_trip());
                let must_wait = sent.not_before > now || now.since(sent.last) <= round_trip || tx.has_arrived(seq);
                if !must_wait {
                    shared.counters.retransmitted_early += u64::from(tx.mark(seq));
                    tx.hold(seq, HoldReason::BeyondWindow);
                }
            }
            if self.config.pause_after_out_of_window && !tx.is_idle() {
                tx.paused_below = tx.base + 1;
            }
        }
    }

    /// Completes the Pull Request of transaction `rsn`, whose Pull Data was received: it need not be retransmitted.
    pub(crate) fn acknowledge_request(&mut self, shared: &mut Shared, now: Time, rsn: Rsn, upper: &mut impl Upper) {
        let tx = &self.tx.request;
        // RSNs are ascending in this window, and usually the base has already passed the request.
        let next = (0..tx.span()).map(|offset| tx.base + offset).find(|seq| !tx.sent(*seq).rsn.is_before(rsn));
        if let Some(seq) = next.filter(|seq| tx.sent(*seq).kind == Kind::PullRequest && tx.sent(*seq).rsn == rsn) {
            self.finish_at(shared, now, Window::Request, seq, upper);
        }
    }
}

/// Records in `newest` the send time of a packet that is newly known to have arrived. A packet sent more than once is
/// skipped, because it is unknown which copy arrived.
#[inline]
fn note_arrival(sent: &Sent, newest: &mut Newest) {
    if sent.transmissions == 1 {
        let newest = &mut newest[usize::from(sent.flow)];
        *newest = sent.last.max(*newest);
    }
}
