//! One end of a connection beside an engine: the events of the packets that the engine receives, and the packets that
//! it must send.

use std::collections::{BTreeSet, VecDeque};

use rnic_engine::{Transmit, TransmitKind};
use rnic_wire::{Headers, LossCause, NakCode, Packet, Syndrome};

use super::sr::{Clock, Outcome, Sr};
use super::{Ack, Context, Event, Kind, Lost, Say, Timer, distance, is_after, plus};

/// State of one end, with the packets that it owes.
#[derive(Clone, Debug)]
pub struct Endpoint {
    index: u16,
    /// Maximum number of packets in flight.
    cap: u32,
    context: Context,
    next: u32,
    /// Packets that are to be retransmitted.
    marked: BTreeSet<u32>,
    /// Acknowledgements that received packets have caused.
    owed: VecDeque<Ack>,
}

impl Endpoint {
    /// Returns an end with this index among the queue pairs, whose first packet and the peer's are `first`.
    pub fn new(index: u16, first: u32, cap: u32) -> Self {
        let context = Context { rcv_nxt: first, una: first, ..Context::default() };
        Self { index, cap, context, next: first, marked: BTreeSet::new(), owed: VecDeque::new() }
    }

    /// Returns the timer that events are processed with: an engine decides by its clock when one is a timeout.
    pub const fn timer() -> Timer {
        Timer { on: true, extended: true, deadline: 0 }
    }

    /// Returns the index among the queue pairs.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Returns the context.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the next packet that is sent for the first time.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Returns the packets that are to be retransmitted.
    pub const fn marked(&self) -> &BTreeSet<u32> {
        &self.marked
    }

    /// Returns the acknowledgements that are still to be sent.
    pub const fn owed(&self) -> &VecDeque<Ack> {
        &self.owed
    }

    /// Returns the event that a packet is; `None` for packets without one.
    pub fn event_of(&self, packet: &Packet) -> Option<Event> {
        let psn = packet.psn.value();
        let event = |kind, cumulative| self.event(kind, cumulative, 0, Lost::default());
        Some(match packet.headers {
            Headers::Write { .. } | Headers::Send { .. } => event(Kind::Data, psn),
            Headers::Ack { aeth, .. } => match aeth.syndrome {
                Syndrome::Ack { .. } => event(Kind::Ack, plus(psn, 1)),
                Syndrome::Nak(NakCode::PsnSequenceError) => event(Kind::Nak, psn),
                _ => return None,
            },
            Headers::LossAck { report, .. } => {
                let lost = Lost { count: report.lost, overflow: report.overflow };
                let (kind, cumulative) = match report.cause {
                    LossCause::OutOfOrder => (Kind::Sack, psn),
                    LossCause::Repaired => (Kind::Aack, plus(psn, 1)),
                    LossCause::Misplaced => (Kind::Fnack, psn),
                };
                self.event(kind, cumulative, report.psn.value(), lost)
            }
            _ => return None,
        })
    }

    /// Returns the event of an expired timer.
    pub fn timeout(&self) -> Event {
        self.event(Kind::Timeout, 0, 0, Lost::default())
    }

    const fn event(&self, kind: Kind, cumulative: u32, psn: u32, lost: Lost) -> Event {
        Event { qp: self.index, kind, cumulative, psn, lost }
    }

    /// Processes an event with the pools of `sr`; the packets that it requests are marked.
    pub fn step(&mut self, sr: &mut Sr, event: &Event) -> Outcome {
        let outcome = sr.step(event, &mut self.context, self.next, Self::timer(), Clock::default());
        let una = self.context.una;
        self.marked.retain(|marked| !is_after(una, *marked));
        let is_legal = event.cumulative == una && distance(una, event.psn) < distance(una, self.next);
        if event.kind == Kind::Sack && is_legal {
            self.marked.remove(&event.psn);
        }
        self.marked.extend(outcome.retransmissions.iter().flat_map(|sent| sent.packets()));
        self.owed.extend(outcome.ack);
        outcome
    }

    /// Compares a packet that the engine sends with what it must send.
    ///
    /// # Errors
    /// The difference.
    pub fn sent(&mut self, sent: &Transmit) -> Result<(), String> {
        let psn = sent.packet.psn.value();
        match sent.kind {
            TransmitKind::Request => {
                if !self.marked.is_empty() || psn != self.next {
                    return Err(self.differs(format!("{psn} is sent for the first time")));
                }
                self.next = plus(self.next, 1);
                let in_flight = distance(self.context.una, self.next);
                if in_flight > self.cap {
                    return Err(self.differs(format!("with {psn}, {in_flight} packets are in flight")));
                }
            }
            TransmitKind::RequestRetransmission => {
                let una = self.context.una;
                let first = self.marked.iter().copied().min_by_key(|marked| distance(una, *marked));
                if first != Some(psn) {
                    return Err(self.differs(format!("{psn} is retransmitted")));
                }
                self.marked.remove(&psn);
            }
            TransmitKind::Ack => {
                let owed = self.owed.pop_front();
                if owed.as_ref().is_none_or(|owed| !is_sent(owed, &sent.packet)) {
                    return Err(self.differs(format!("{psn} with {:?} is sent, not {owed:?}", sent.packet.headers)));
                }
            }
            other => return Err(self.differs(format!("{other:?} is sent"))),
        }
        Ok(())
    }

    fn differs(&self, text: String) -> String {
        format!("{text}, where packets {:?} are marked and {} is the next: {:?}", self.marked, self.next, self.context)
    }
}

/// Returns whether `packet` is this acknowledgement.
fn is_sent(owed: &Ack, packet: &Packet) -> bool {
    let before = plus(owed.cumulative, 0xff_ffff);
    let (cause, psn) = match owed.say {
        Say::Ack => (None, before),
        Say::Aack => (Some(LossCause::Repaired), before),
        Say::Sack => (Some(LossCause::OutOfOrder), owed.cumulative),
        Say::Fnack => (Some(LossCause::Misplaced), owed.cumulative),
        Say::Nak => (None, owed.cumulative),
        Say::Nothing => return false,
    };
    let is_kind = match packet.headers {
        Headers::Ack { aeth, .. } => {
            cause.is_none() && matches!(aeth.syndrome, Syndrome::Ack { .. }) == (owed.say == Say::Ack)
        }
        Headers::LossAck { report, .. } => {
            let lost = Lost { count: report.lost, overflow: report.overflow };
            cause == Some(report.cause) && (report.psn.value(), lost) == (owed.psn, owed.lost)
        }
        _ => false,
    };
    is_kind && packet.psn.value() == psn
}
