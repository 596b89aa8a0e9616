//! What leaves next: answers, then what is to be sent again, then what is new.
//!
//! Source: specification Rev 0.9, sections 9.1.2 and 9.1.3; Falcon (SIGCOMM'25) section 4.3.
//!
//! On ordered connections packets are sent again in RSN order across both windows ("UR rule"), in PSN order within one.
//! Pull Data has RSNs of the other direction and goes first. On unordered ones, what left longest ago goes first. What
//! `ncwnd` holds back does not hold back Pull Data behind it (F-19).
//!
//! Every packet carries both bases of its sender as a receiver. If they tell all there is to tell, acknowledgements
//! that only wait for company need not leave (specification 9.1.6; conformance probe 4).

use rnic_base::{Duration, Psn32, Seq, Time};
use rnic_wire::falcon::{Body, FlowLabel, Packet, Timestamp};

use crate::delivery::Delivery;
use crate::delivery::config::NEVER;
use crate::delivery::tx_window::{Kind, Sent};
use crate::seam::{Context, Gates, Outgoing, Upper};

/// A packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// It. Its timestamp is that of now; whoever puts it on the wire later may write another.
    pub packet: Packet,
    /// For the IPv6 header: which path.
    pub label: FlowLabel,
    /// What it belongs to; `None` for acknowledgements.
    pub context: Option<Context>,
    /// It was sent before.
    pub again: bool,
}

impl Delivery {
    /// The next packet that may leave now; `None` when there is none.
    #[inline]
    pub fn transmit(&mut self, now: Time, upper: &mut impl Upper) -> Option<Departure> {
        if self.dead {
            return None;
        }
        if let Some(answer) = self.answer(now, upper) {
            return Some(answer);
        }
        self.paced_until = NEVER;
        // Probes come more often than packets leave where those are paced: what is new gets every other turn.
        if self.has_repeated
            && self.limits.packet_gap > Duration::ZERO
            && let Some(fresh) = self.send_first(now, upper)
        {
            self.has_repeated = false;
            return Some(fresh);
        }
        if let Some((window, seq)) = self.next_again(now) {
            self.has_repeated = true;
            return Some(self.send_again(now, window, seq, upper));
        }
        self.send_first(now, upper)
    }

    #[inline]
    fn send_first(&mut self, now: Time, upper: &mut impl Upper) -> Option<Departure> {
        let fcwnd = self.flows.fcwnd();
        let open = self.limits.first(&self.tx, fcwnd);
        let open = self.paced(now, open);
        if !open.any() {
            return None;
        }
        let outgoing = upper.next(now, open)?;
        assert!(open.admits(&outgoing.body), "the upper layer sends {:?} through a closed gate", outgoing.body);
        let (window, kind) = match outgoing.body {
            Body::PullRequest { .. } => (0, Kind::PullRequest),
            Body::PullData { .. } => (1, Kind::PullData),
            _ => (1, Kind::PushData),
        };
        let flow = self.flows.choose(now);
        self.flows.get_mut(flow).outstanding += 1;
        let ask = self.requester.ask(&self.config.ack_request, fcwnd);
        let rsn = outgoing.body.rsn().expect("requests and data have one");
        let (context, transmissions) = (outgoing.context, 1);
        let sent = Sent { first: now, last: now, context, rsn, transmissions, flow, kind, ..Sent::default() };
        let seq = self.tx[window].push(sent);
        self.counters.sent += 1;
        Some(self.departing(now, window, seq, &outgoing, ask))
    }

    /// Closes gates for which it is too early, and remembers when to come back.
    #[inline]
    fn paced(&mut self, now: Time, mut open: Gates) -> Gates {
        let departures = [0, 1].map(|window| self.limits.departure(&self.tx[window]));
        if open.pull_request && departures[0] > now {
            self.paced_until = departures[0];
            open.pull_request = false;
        }
        if (open.push_data || open.pull_data) && departures[1] > now {
            self.paced_until = self.paced_until.min(departures[1]);
            (open.push_data, open.pull_data) = (false, false);
        }
        open
    }

    /// What is sent again next, gates and pacing permitting.
    #[inline]
    fn next_again(&mut self, now: Time) -> Option<(usize, Seq)> {
        let found = match [self.first_again(0), self.first_again(1)] {
            [None, None] => return None,
            [Some(request), None] => (0, request),
            [None, Some(data)] => (1, data),
            [Some(request), Some(data)] if self.data_goes_first(request, data) => (1, data),
            [Some(request), Some(_)] => (0, request),
        };
        let departure = self.limits.departure(&self.tx[found.0]);
        if departure > now {
            self.paced_until = departure;
            return None;
        }
        Some(found)
    }

    fn first_again(&self, window: usize) -> Option<Seq> {
        let (window, fcwnd) = (&self.tx[window], self.flows.fcwnd());
        let mut marked = window.first_marked();
        while let Some(seq) = marked {
            if self.limits.again(window, seq, fcwnd) {
                return marked;
            }
            marked = window.next_marked(seq);
        }
        None
    }

    /// Of two packets to be sent again, one in each window, whether that in the data window goes first.
    pub(super) fn data_goes_first(&self, request: Seq, data: Seq) -> bool {
        let (request, data) = (self.tx[0].sent(request), self.tx[1].sent(data));
        if !self.config.ordered {
            // No window may starve the other while packets are paced.
            return data.last <= request.last;
        }
        data.kind == Kind::PullData || data.rsn.is_before(request.rsn)
    }

    fn send_again(&mut self, now: Time, window: usize, seq: Seq, upper: &mut impl Upper) -> Departure {
        let tx = &mut self.tx[window];
        tx.unmark(seq);
        let sent = tx.sent_mut(seq);
        (sent.last, sent.not_before, sent.again) = (now, Time::ZERO, true);
        sent.transmissions = sent.transmissions.saturating_add(1);
        let (context, is_request) = (sent.context, sent.kind.is_request());
        tx.outstanding_again += u32::from(is_request);
        let outgoing = upper.again(now, context);
        Departure { again: true, ..self.departing(now, window, seq, &outgoing, true) }
    }

    #[inline]
    fn departing(&mut self, now: Time, window: usize, seq: Seq, outgoing: &Outgoing, ask: bool) -> Departure {
        let tx = &mut self.tx[window];
        tx.timer = tx.timer.min(now + self.waits.rto);
        let flow = tx.sent(seq).flow;
        self.limits.departed = now;
        self.waits.quiet_since = now;
        if self.rx.iter().all(|rx| rx.is_told_by_base()) {
            self.echo.cancel_waiting(now);
        }
        let packet = Packet {
            cid: self.config.cid,
            function: self.config.function,
            protocol: outgoing.protocol,
            ack_request: ask,
            bases: self.bases(),
            timestamp: Timestamp::at(now),
            payload_len: outgoing.payload_len,
            body: numbered(outgoing.body, seq.wire()),
        };
        let label = self.flows.get(flow).label;
        Departure { packet, label, context: Some(outgoing.context), again: false }
    }
}

/// `body` with its sequence number.
fn numbered(mut body: Body, number: Psn32) -> Body {
    match &mut body {
        Body::PullRequest { psn, .. }
        | Body::PullData { psn, .. }
        | Body::PushData { psn, .. }
        | Body::Resync { psn, .. } => *psn = number,
        Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => {
            panic!("the upper layer sends requests, data and Resyncs, not {body:?}")
        }
    }
    body
}
