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

use rnic_base::{Psn32, Seq, Time};
use rnic_wire::falcon::{
    Body, Cid, FlowLabel, Packet, PacketType, ResyncCode, Rsn, Timestamp, UlpProtocol, Window, WindowBases,
};

use crate::delivery::Delivery;
use crate::delivery::config::NEVER;
use crate::delivery::tx_window::{Held, Kind, Sent, TxWindow};
use crate::delivery::windows::Windows;
use crate::seam::{Context, Gates, Upper};

/// A packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// As it leaves. Its timestamp is that of now; whoever puts it on the wire later may write another.
    pub packet: Packet,
    /// For the IPv6 header: which path.
    pub label: FlowLabel,
    /// What it belongs to; `None` for acknowledgements.
    pub context: Option<Context>,
    /// It was sent before.
    pub again: bool,
}

/// A packet that leaves, without the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// See [`Departure::label`].
    pub label: FlowLabel,
    /// See [`Departure::context`].
    pub context: Option<Context>,
    /// See [`Departure::again`].
    pub again: bool,
}

/// What stands where the next packet will be written.
const BLANK: Packet = Packet {
    cid: Cid::new(0),
    function: 0,
    protocol: UlpProtocol::None,
    ack_request: false,
    bases: WindowBases { data: Psn32::new(0), request: Psn32::new(0) },
    timestamp: Timestamp::new(0),
    payload_len: 0,
    body: Body::Resync {
        psn: Psn32::new(0),
        rsn: Rsn::new(0),
        code: ResyncCode::LocalXlr,
        of: PacketType::PushData,
        vendor: 0,
    },
};

impl Delivery {
    /// The next packet that may leave now; `None` when there is none.
    #[inline]
    pub fn transmit(&mut self, now: Time, upper: &mut impl Upper) -> Option<Departure> {
        let mut packet = BLANK;
        let Leaving { label, context, again } = self.transmit_into(now, &mut packet, upper)?;
        Some(Departure { packet, label, context, again })
    }

    /// As [`Delivery::transmit`], with the packet written to `packet`. When none leaves, that may have been touched.
    #[inline]
    pub fn transmit_into(&mut self, now: Time, packet: &mut Packet, upper: &mut impl Upper) -> Option<Leaving> {
        if self.dead {
            return None;
        }
        if self.has_answer(now)
            && let Some(answer) = self.answer(now, packet, upper)
        {
            return Some(answer);
        }
        (self.paced_until, self.lacks_room) = (NEVER, false);
        if self.gives_way || self.tx.iter().any(TxWindow::has_marks) {
            return self.transmit_repairing(now, packet, upper);
        }
        self.send_first(now, packet, upper)
    }

    /// What leaves next, where packets are to be sent again.
    #[inline(never)]
    fn transmit_repairing(&mut self, now: Time, packet: &mut Packet, upper: &mut impl Upper) -> Option<Leaving> {
        if self.gives_way
            && let Some(fresh) = self.send_first(now, packet, upper)
        {
            self.gives_way = false;
            return Some(fresh);
        }
        if let Some((window, seq)) = self.next_again(now) {
            // Some repeats come faster than they can leave: probes where packets are paced, and what lies beyond the
            // peer's window, each round trip. What is new gets every other turn then: it may be what opens the window.
            self.gives_way = self.limits.are_paced() || self.tx[window].sent(seq).held == Held::BeyondWindow;
            return Some(self.send_again(now, window, seq, packet, upper));
        }
        self.send_first(now, packet, upper)
    }

    /// Whether an answer is due, or a packet is to be sent again.
    #[inline]
    pub(crate) fn has_to_repeat(&self, now: Time) -> bool {
        !self.nacks.is_empty() || self.echo.deadline() <= now || self.tx.iter().any(|tx| tx.first_marked().is_some())
    }

    /// The gates of first transmissions, pacing aside.
    #[inline]
    pub(crate) fn open_gates(&self) -> Gates {
        self.limits.first(&self.tx, self.flows.fcwnd())
    }

    #[inline]
    fn send_first(&mut self, now: Time, packet: &mut Packet, upper: &mut impl Upper) -> Option<Leaving> {
        // A packet that is to come and too early is waited for, even if there is none yet.
        if !self.limits.are_paced() && !upper.has_next() {
            return None;
        }
        let fcwnd = self.flows.fcwnd();
        let open = self.limits.first(&self.tx, fcwnd);
        let open = self.paced(now, open);
        if !open.any() {
            return None;
        }
        if self.limits.room == 0 {
            self.lacks_room = upper.has_next();
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
        let flow = self.flows.choose(now, &self.config.policies.paths);
        let told = self.flows.get_mut(flow);
        told.outstanding += 1;
        told.left = told.left.saturating_add(1);
        // The last that there is room for: the next waits for the answer.
        let ask = self.requester.ask(&self.config.ack_request, fcwnd) | (self.limits.room == 1);
        if self.measured.is_some() && self.is_quiet() {
            self.note_start(now);
        }
        let transmissions = 1;
        let sent = Sent { first: now, last: now, context, rsn, transmissions, flow, kind, ..Sent::default() };
        let seq = self.tx[window].push(sent);
        self.counters.sent += 1;
        let label = self.complete(now, window, seq, ask, packet);
        Some(Leaving { label, context: Some(context), again: false })
    }

    /// Closes gates for which it is too early, and remembers when to come back.
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

    /// What is sent again next, gates and pacing permitting.
    #[inline]
    fn next_again(&mut self, now: Time) -> Option<(Window, Seq)> {
        let found = match [self.first_again(Window::Request), self.first_again(Window::Data)] {
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

    fn first_again(&mut self, window: Window) -> Option<Seq> {
        let (window, fcwnd) = (&mut self.tx[window], self.flows.fcwnd());
        let mut marked = window.first_marked();
        while let Some(seq) = marked {
            if self.limits.again(window, seq, fcwnd) {
                return marked;
            }
            // What the window may open for is perhaps something that waits for the room of this one.
            window.hold(seq, Held::ForTurn);
            marked = window.next_marked(seq);
        }
        None
    }

    /// Of two packets to be sent again, one in each window, whether that in the data window goes first.
    pub(super) fn data_goes_first(&self, request: Seq, data: Seq) -> bool {
        let (request, data) = (self.tx.request.sent(request), self.tx.data.sent(data));
        if !self.config.ordered {
            // No window may starve the other while packets are paced.
            return data.last <= request.last;
        }
        data.kind == Kind::PullData || data.rsn.is_before(request.rsn)
    }

    fn send_again(
        &mut self,
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
        self.flows.count_again(flow);
        let told = self.flows.get_mut(flow);
        told.left = told.left.saturating_add(1);
        let outgoing = upper.again(now, context);
        outgoing.put(packet);
        let label = self.complete(now, window, seq, true, packet);
        Leaving { label, context: Some(outgoing.context), again: true }
    }

    /// Packet `seq` leaves: this layer's part of it, its timer, and what it spares. Which way it goes.
    #[inline]
    fn complete(&mut self, now: Time, window: Window, seq: Seq, ask: bool, packet: &mut Packet) -> FlowLabel {
        let tx = &mut self.tx[window];
        tx.timer = tx.timer.min(now + self.waits.rto);
        let flow = tx.sent(seq).flow;
        self.limits.leave(now, packet.payload_len);
        self.waits.quiet_since = now;
        if self.echo.is_waiting() && self.rx.iter().all(|rx| rx.is_told_by_base()) {
            self.echo.cancel_waiting(now);
        }
        (packet.cid, packet.function) = (self.config.cid, self.config.function);
        (packet.ack_request, packet.bases, packet.timestamp) = (ask, self.bases(), Timestamp::at(now));
        number(&mut packet.body, seq.wire());
        self.flows.get(flow).label
    }
}

/// Gives `body` its sequence number.
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
