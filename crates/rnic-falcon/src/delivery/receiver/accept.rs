//! Acceptance of received packets, by their position in the window.
//!
//! Source: specification Rev 0.9, sections 9.2.2 (acceptance), 9.2.5 and 11 (responses); Falcon (SIGCOMM'25) section
//! 4.1. Integrity, replay and keys are checked before (by the encryption layer).
//!
//! | place | what happens |
//! |---|---|
//! | acknowledged | dropped, and acknowledged again: the answer was lost |
//! | received, not acknowledged | the transaction layer hears of it: it may repeat a NACK; a Resync is offered |
//! | new | offered |
//! | beyond the window | dropped with a notification: the paper, where there is no room; the specification, always |
//!
//! In each case the bases carried by the packet are processed first (section 11: "piggybacked acknowledgement
//! processed"), and T1 and T2 are recorded for the flow. Pull Data acknowledges its Pull Request, which belongs to the
//! sender. Contradiction 17 (a NACK for packets beyond the window): only the notification is sent, because there is no
//! code for such a NACK.

use rnic_base::{Seq, Time};
use rnic_wire::falcon::{Body, NackCode, Packet, Rsn};

use crate::delivery::exchange::Reception;
use crate::delivery::shared::Shared;
use crate::seam::{Received, Upper, Verdict};

use super::DeliveryReceiver;
use super::rx_window::{Arrived, Place};

/// Outcome of a received packet, and the RSN of the local Pull Request that it answers, if it is a response and was
/// accepted.
pub(crate) type Acceptance = (Reception, Option<Rsn>);

impl DeliveryReceiver {
    /// Processes a packet with a sequence number in a window, received on `flow`.
    #[inline]
    pub(crate) fn take_packet(
        &mut self,
        shared: &mut Shared,
        now: Time,
        flow: u8,
        packet: &Packet,
        upper: &mut impl Upper,
    ) -> Acceptance {
        let (Some(window), Some(psn)) = (packet.body.window(), packet.body.psn()) else {
            shared.counters.peer_errors += 1;
            return (Reception::Dropped, None);
        };
        let received = Received { window, psn };
        let (seq, place) = self.rx[window].place(psn);
        match place {
            Place::New => self.offer(now, flow, packet, received, seq, upper),
            Place::Acknowledged => {
                shared.counters.duplicates += 1;
                self.repeat(now, flow, packet);
                (Reception::Duplicate, None)
            }
            Place::Received => (self.take_duplicate(shared, now, flow, packet, received, upper), None),
            Place::Beyond => match self.offer(now, flow, packet, received, seq, upper) {
                (Reception::NoResources, _) => (self.drop_beyond(shared, now, flow, received), None),
                kept => kept,
            },
            Place::Outside => (self.drop_beyond(shared, now, flow, received), None),
        }
    }

    #[inline]
    fn offer(
        &mut self,
        now: Time,
        flow: u8,
        packet: &Packet,
        received: Received,
        seq: Seq,
        upper: &mut impl Upper,
    ) -> Acceptance {
        let arrived = Arrived { flow, asks: packet.ack_request };
        let rx = &mut self.rx[received.window];
        match upper.offer(now, packet) {
            Verdict::Accepted { acknowledged } => {
                let fills_gap = rx.fills_gap(seq, flow);
                rx.receive(seq, arrived, acknowledged);
                self.owe(now, flow, 1 + u32::from(acknowledged));
                if fills_gap || (acknowledged && packet.ack_request) {
                    self.echo.hurry(now, flow);
                }
                let answered = match packet.body {
                    Body::PullData { rsn, .. } => Some(rsn),
                    _ => None,
                };
                (Reception::Kept, answered)
            }
            Verdict::Refused(code) => {
                rx.receive(seq, arrived, false);
                self.owe(now, flow, 1);
                self.nacks.push(flow, received, code);
                (Reception::Kept, None)
            }
            Verdict::NoResources => {
                let beyond = rx.place(received.psn).1 == Place::Beyond;
                if !beyond {
                    self.nacks.push(flow, received, NackCode::Resource);
                }
                (Reception::NoResources, None)
            }
            Verdict::Dropped => (Reception::Dropped, None),
        }
    }

    /// Handles a duplicate of a packet that was received and is not acknowledged.
    fn take_duplicate(
        &mut self,
        shared: &mut Shared,
        now: Time,
        flow: u8,
        packet: &Packet,
        received: Received,
        upper: &mut impl Upper,
    ) -> Reception {
        if matches!(packet.body, Body::Resync { .. }) {
            if let Verdict::Accepted { acknowledged: true } = upper.offer(now, packet) {
                self.acknowledge(now, received);
                self.repeat(now, flow, packet);
            }
            return Reception::Kept;
        }
        shared.counters.duplicates += 1;
        match upper.duplicate(now, packet) {
            Some(code) => self.nacks.push(flow, received, code),
            None => self.repeat(now, flow, packet),
        }
        Reception::Duplicate
    }

    /// Acknowledges a duplicate again: immediately when it requests an acknowledgement.
    fn repeat(&mut self, now: Time, flow: u8, packet: &Packet) {
        self.owe(now, flow, 2);
        if packet.ack_request {
            self.echo.hurry(now, flow);
        }
    }

    fn drop_beyond(&mut self, shared: &mut Shared, now: Time, flow: u8, received: Received) -> Reception {
        shared.counters.out_of_window += 1;
        self.rx[received.window].out_of_window = true;
        // The AR bit of a dropped packet is ignored (specification 9.2.2.4).
        self.owe(now, flow, 2);
        Reception::OutOfWindow
    }
}
