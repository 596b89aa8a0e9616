//! Acceptance of received packets, by their position in the window.
//!
//! Source: specification Rev 0.9, sections 9.2.2 (acceptance), 9.2.5 and 11 (responses); Falcon (SIGCOMM'25) section
//! 4.1. The encryption layer has already checked integrity, replay and keys.
//!
//! | state of the packet | action |
//! |---|---|
//! | acknowledged | dropped, and acknowledged again, because the acknowledgement was lost |
//! | received, not acknowledged | passed to the transaction layer, which may repeat a NACK; a Resync is offered |
//! | new | offered to the transaction layer |
//! | beyond the window | dropped with a notification (paper: if resources are short; specification: always) |
//!
//! In each case the bases carried by the packet are processed first (section 11: "piggybacked acknowledgement
//! processed"), and T1 and T2 are recorded for the flow. Pull Data acknowledges its Pull Request, which belongs to
//! the sender. Contradiction 17 (a NACK for packets beyond the window): only the notification is sent, because no
//! NACK code is defined for this case.

use rnic_base::{Seq, Time};
use rnic_wire::falcon::{Body, NackCode, Packet, Rsn};

use crate::delivery::exchange::Reception;
use crate::delivery::shared::Shared;
use crate::interface::{Received, Upper, Verdict};

use super::DeliveryReceiver;
use super::rx_window::{Arrived, WindowPosition};

/// Outcome of a received packet; if it is an accepted response, also the RSN of the local Pull Request that it
/// responds to.
pub(crate) type Acceptance = (Reception, Option<Rsn>);

impl DeliveryReceiver {
    /// Processes a packet with a sequence number in a window, received on `flow`.
    #[inline]
    pub(crate) fn receive_packet(
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
        let (seq, position) = self.rx[window].locate(psn);
        match position {
            WindowPosition::New => self.offer(now, flow, packet, received, seq, upper),
            WindowPosition::Acknowledged => {
                shared.counters.duplicates += 1;
                self.repeat(now, flow, packet);
                (Reception::Duplicate, None)
            }
            WindowPosition::Received => (self.receive_duplicate(shared, now, flow, packet, received, upper), None),
            WindowPosition::Beyond => match self.offer(now, flow, packet, received, seq, upper) {
                (Reception::NoResources, _) => (self.drop_beyond_window(shared, now, flow, received), None),
                kept => kept,
            },
            WindowPosition::Outside => (self.drop_beyond_window(shared, now, flow, received), None),
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
        let arrived = Arrived { flow, requests_ack: packet.ack_request };
        let rx = &mut self.rx[received.window];
        match upper.offer(now, packet) {
            Verdict::Accepted { acknowledged } => {
                let fills_gap = rx.fills_gap(seq, flow);
                rx.receive(seq, arrived, acknowledged);
                self.pend(now, flow, 1 + u32::from(acknowledged));
                if fills_gap || (acknowledged && packet.ack_request) {
                    self.echo.make_due(now, flow);
                }
                let answered = match packet.body {
                    Body::PullData { rsn, .. } => Some(rsn),
                    _ => None,
                };
                (Reception::Kept, answered)
            }
            Verdict::Refused(code) => {
                rx.receive(seq, arrived, false);
                self.pend(now, flow, 1);
                self.nacks.push(flow, received, code);
                (Reception::Kept, None)
            }
            Verdict::NoResources => {
                let beyond = rx.locate(received.psn).1 == WindowPosition::Beyond;
                if !beyond {
                    self.nacks.push(flow, received, NackCode::Resource);
                }
                (Reception::NoResources, None)
            }
            Verdict::Dropped => (Reception::Dropped, None),
        }
    }

    /// Handles a duplicate of a packet that was received but is not acknowledged.
    fn receive_duplicate(
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

    /// Counts a duplicate as to be acknowledged again, immediately if it requests an acknowledgement.
    fn repeat(&mut self, now: Time, flow: u8, packet: &Packet) {
        self.pend(now, flow, 2);
        if packet.ack_request {
            self.echo.make_due(now, flow);
        }
    }

    fn drop_beyond_window(&mut self, shared: &mut Shared, now: Time, flow: u8, received: Received) -> Reception {
        shared.counters.out_of_window += 1;
        self.rx[received.window].out_of_window = true;
        // The AR bit of a dropped packet is ignored (specification 9.2.2.4).
        self.pend(now, flow, 2);
        Reception::OutOfWindow
    }
}
