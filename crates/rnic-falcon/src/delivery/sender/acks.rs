//! Acknowledgements and NACKs come in.
//!
//! Source: specification Rev 0.9, sections 9.2.3, 9.2.4 and 11; Falcon (SIGCOMM'25) sections 4.1 and 4.3.
//!
//! - Stale: when either base is behind, all of it is dropped (9.2.3), unless `accept_stale`: with several flows
//!   acknowledgements overtake each other, and what an old one says to have arrived has arrived.
//! - Acknowledged packets count for the flow that they were sent on, by the sender's record (F-28).
//! - Flows hear when a packet of theirs has arrived: the flow of the acknowledgement from T1, which is coarse (the
//!   beginning of its unit is taken: what left later in it is not judged); and all from the record of
//!   packets that were sent once and are newly acknowledged or in the bitmaps (the addition that lets a loss on one
//!   path be repaired by what comes back on another, F-29; of a packet that was sent twice nobody knows which copy
//!   arrived).
//! - Of several flows, each measures a round trip by the first answer that comes to echo a packet. What waited for a
//!   packet on another flow, for the sake of order, is acknowledged on its own (F-28), and that answer echoes what was
//!   echoed before: its T1 is as old as the wait is long. The adaptive engine hears of it as of a packet that came with
//!   the same delay and was answered at once (F-17). RACK (RFC 8985) looks at no T1 twice, either. Where the first
//!   answer was lost, the next one counts, with its wait.
//! - Out of window notification: what has not arrived and was last sent more than a round trip ago is sent again
//!   (9.2.3).
//! - Pull Data acknowledges its Pull Request (RSN), which is then not sent again; its number waits for the base.
//!
//! NACKs: what the specification leaves to the transaction layer goes there once ([`Upper::nacked`]), and the Resync
//! leaves at once (contradiction 21: the Resync is as reliable as the packet whose numbers it takes). RNR makes the
//! packet wait for max(RTO, the timeout in the NACK); until it has left again, further ones say nothing new: the
//! network has doubled the NACK, or the packet that drew it. So one wait counts once at the upper layer, and not at all
//! when the packet was sent before and the NACK echoes what left before it did the last time: most likely that one has
//! been counted. For want of resources nothing is done but the report, for recovery and timeout know that the packet
//! has not arrived; and timeouts are counted anew, for who says so lives. It is no progress, though: the wait for the
//! next probe stays what it has become, up to the timeout, until something is acknowledged or there is another answer.

use rnic_base::{Seq, Time};
use rnic_policy::control::report::ReportKind;
use rnic_policy::paths::FLOWS_MAX;
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Nack, NackCode, OutOfWindow, Packet, Rsn, Timestamp, Window, WindowBases, reflected,
};

use crate::delivery::exchange::Reception;
use crate::delivery::shared::Shared;
use crate::delivery::windows::Windows;
use crate::seam::Upper;

use super::DeliverySender;
use super::report::Path;
use super::tx_window::{Held, Kind, Sent};

/// By flow: when the latest packet left that is newly known to have arrived and was sent once.
pub(super) type Newest = [Time; FLOWS_MAX];

impl DeliverySender {
    /// Takes in an acknowledgement, which came on `flow`.
    pub(crate) fn take_ack(
        &mut self,
        shared: &mut Shared,
        now: Time,
        flow: u8,
        packet: &Packet,
        (answer, bitmaps): (&Acknowledgement, Option<&Bitmaps>),
        upper: &mut impl Upper,
    ) -> Reception {
        let Some(bases) = self.usable_bases(shared, &packet.bases) else { return Reception::Stale };
        let Some(bases) = bases else { return Reception::Dropped };
        let mut newest = [Time::ZERO; FLOWS_MAX];
        self.advance(shared, now, bases, &mut newest, upper);
        if let Some(bitmaps) = bitmaps {
            self.take_bitmaps(shared, now, bases, bitmaps, &mut newest, upper);
        }
        let &Acknowledgement { t1, t2, hops, rx_level, ecn, metadata, out_of_window } = answer;
        let (extended, window_drop) = (bitmaps.is_some(), out_of_window.any());
        let again = shared.flows.echoes_again(now, flow, t1, t2);
        let csig = reflected(metadata);
        let path = Path { t1, t2, t3: packet.timestamp, again, hops, rx_level, ecn, csig, extended, window_drop };
        self.waits.probes = 0;
        self.hear(shared, now, flow, &path, &mut newest);
        if out_of_window.any() {
            self.send_beyond_again(shared, now, out_of_window);
        }
        self.report(shared, now, flow, ReportKind::Acked, &path);
        Reception::Answer
    }

    /// Takes in a NACK, which came on `flow`.
    pub(crate) fn take_nack(
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
        let again = shared.flows.echoes_again(now, flow, t1, t2);
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
        // Asked again at once, it would most likely say the same: probes would be most of what it gets.
        if nack.code != NackCode::Resource {
            self.waits.probes = 0;
        }
        self.hear(shared, now, flow, &path, &mut newest);
        self.report(shared, now, flow, ReportKind::Nacked { code: nack.code.code() }, &path);
        Reception::Answer
    }

    /// Packet `seq` was refused, in a NACK that echoes what left at `echoed`.
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
                if sent.held == Held::NotReady || sent.replaced {
                    return;
                }
                let (left, context, is_first) = (Timestamp::at(sent.last), sent.context, sent.transmissions == 1);
                let wait = now + self.waits.rto().max(timeout.wait());
                tx.unmark(seq);
                tx.hold_not_ready(seq);
                let sent = tx.sent_mut(seq);
                (sent.not_before, sent.timeouts) = (wait, 0);
                tx.timer = tx.timer.min(wait);
                if is_first || !echoed.is_before(left) {
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

    /// Bases that came with a packet in the other direction: no timestamps, so only what they acknowledge counts.
    #[inline]
    pub(crate) fn take_bases(&mut self, shared: &mut Shared, now: Time, bases: &WindowBases, upper: &mut impl Upper) {
        if bases.request == self.tx.request.base.wire() && bases.data == self.tx.data.base.wire() {
            return;
        }
        // An old packet's bases are nothing to speak of.
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
            self.deliver_news(shared, now, None, &newest);
        }
    }

    /// Bases of an answer as growing numbers. `None`: it is stale. `Some(None)`: it acknowledges what
    /// was never sent.
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

    /// Moves both bases on; whether one moved.
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
                let is_news = !self.tx[window].has_arrived(self.tx[window].base);
                let sent = self.tx[window].pop();
                if is_news {
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

    /// The packet is acknowledged: off all counts, and up.
    #[inline(always)]
    fn finish(&mut self, shared: &mut Shared, now: Time, window: Window, sent: Sent, upper: &mut impl Upper) {
        self.tx[window].discount(sent);
        let flow = shared.flows.get_mut(sent.flow);
        flow.outstanding -= 1;
        flow.acknowledged = flow.acknowledged.saturating_add(1);
        upper.acked(now, sent.context);
    }

    /// Outstanding packet `seq` is acknowledged, wherever the base is.
    fn finish_at(&mut self, shared: &mut Shared, now: Time, window: Window, seq: Seq, upper: &mut impl Upper) {
        let tx = &mut self.tx[window];
        let sent = *tx.sent(seq);
        if !sent.acknowledged {
            tx.unmark(seq);
            tx.sent_mut(seq).acknowledged = true;
            self.finish(shared, now, window, sent, upper);
        }
    }

    /// What came beyond the bases.
    fn take_bitmaps(
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
            self.take_arrivals(window, bases[window], arrived[window], newest);
            let mut bits = self.within(window, bases[window], acknowledged[window]);
            while bits != 0 {
                let seq = self.tx[window].base + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                self.finish_at(shared, now, window, seq, upper);
            }
        }
    }

    fn take_arrivals(&mut self, window: Window, base: Seq, bits: u128, newest: &mut Newest) {
        let mut bits = self.within(window, base, bits) & !self.tx[window].arrived_bits();
        while bits != 0 {
            let tx = &mut self.tx[window];
            let seq = tx.base + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            note_arrival(tx.sent(seq), newest);
            tx.set_arrived(seq);
        }
    }

    /// `bits` of an answer with this base, counted from our base instead; only of packets that were sent.
    fn within(&self, window: Window, base: Seq, bits: u128) -> u128 {
        let tx = &self.tx[window];
        let behind = tx.base.since(base);
        let bits = if behind < 128 { bits >> behind } else { 0 };
        let span = tx.span();
        if span < 128 { bits & ((1 << span) - 1) } else { bits }
    }

    /// Tells recovery what the answer says about arrivals.
    fn hear(&mut self, shared: &mut Shared, now: Time, flow: u8, path: &Path, newest: &mut Newest) {
        // None for an echo from the future, or of nothing.
        let rtt = path.t1.last_shown(now).map(|sent| {
            let newest = &mut newest[usize::from(flow)];
            *newest = sent.max(*newest);
            Timestamp::at(now).since(path.t1)
        });
        self.waits.quiet_since = now;
        let echoed = rtt.filter(|_| !path.again).map(|rtt| (flow, rtt));
        let rtt = echoed.map(|(_, rtt)| rtt);
        self.change_timeout(|waits, attempts| waits.note_answer(now, rtt, attempts));
        self.deliver_news(shared, now, echoed, newest);
    }

    /// What lay beyond the peer's window and is a round trip of its path old leaves again.
    fn send_beyond_again(&mut self, shared: &mut Shared, now: Time, out_of_window: OutOfWindow) {
        for window in Window::ALL.into_iter().filter(|window| out_of_window.of(*window)) {
            let tx = &mut self.tx[window];
            for offset in 0..tx.span() {
                let seq = tx.base + offset;
                let sent = tx.sent(seq);
                let recent = shared.flows.round_trip(sent.flow).unwrap_or(self.waits.round_trip());
                let rests = sent.not_before > now || now.since(sent.last) <= recent || tx.has_arrived(seq);
                if !rests {
                    shared.counters.sent_again_early += u64::from(tx.mark(seq));
                    tx.hold(seq, Held::BeyondWindow);
                }
            }
            if self.config.pause_after_out_of_window && !tx.is_idle() {
                tx.paused_below = tx.base + 1;
            }
        }
    }

    /// Pull Data for transaction `rsn` has come: its request need not be sent again.
    pub(crate) fn acknowledge_request(&mut self, shared: &mut Shared, now: Time, rsn: Rsn, upper: &mut impl Upper) {
        let tx = &self.tx.request;
        // RSNs ascend here, and most often the base has passed it.
        let next = (0..tx.span()).map(|offset| tx.base + offset).find(|seq| !tx.sent(*seq).rsn.is_before(rsn));
        if let Some(seq) = next.filter(|seq| tx.sent(*seq).kind == Kind::PullRequest && tx.sent(*seq).rsn == rsn) {
            self.finish_at(shared, now, Window::Request, seq, upper);
        }
    }
}

/// A packet is newly known to have arrived. Of packets that were sent more than once nobody knows which.
#[inline]
fn note_arrival(sent: &Sent, newest: &mut Newest) {
    if sent.transmissions == 1 {
        let newest = &mut newest[usize::from(sent.flow)];
        *newest = sent.last.max(*newest);
    }
}
