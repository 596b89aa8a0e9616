//! Connections whose receivers pull: arrivals that earn grants, packets that arrive without their payload, NACKs of
//! such packets, pulls.
//!
//! Source: NDP (SIGCOMM'17) section 3. The wire formats are in `rnic-wire`, `header/irn.rs`; the counters are in
//! [`super::shared`], the pacing is in [`crate::pulls`].

use rnic_base::{Psn, Serial};
use rnic_wire::{Format, Headers, Packet, PacketFlags};

use super::RoceConnection;
use super::requester::acks::on_trim_nack;
use super::shared::send_ack;
use crate::core::Core;
use crate::error::{DropReason, RxOutcome};
use crate::limiter::OVERHEAD_BYTES;
use crate::verbs::Verbs;

impl RoceConnection {
    /// Handles a packet that is specific to receivers that pull, or arrived without payload; returns `None` for any
    /// other packet, which has to be processed as with other transports.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_pulled(&mut self, verbs: &mut Verbs, core: &mut Core, packet: &Packet) -> Option<RxOutcome> {
        let pulls = verbs.head.transport.pulls > 0 && verbs.head.state.receives();
        match packet.headers {
            Headers::Pull { granted } => pulls.then(|| self.on_pull(verbs, core, granted)),
            Headers::TrimNack { trimmed, of_response, .. } => {
                pulls.then(|| self.on_trim_nack(verbs, core, (packet.psn, trimmed), of_response))
            }
            Headers::Ack { .. } | Headers::ReadAck { .. } | Headers::LossAck { .. } | Headers::Cnp => None,
            _ => {
                if pulls {
                    self.requester.shared.earn_pull(&verbs.head, core);
                }
                let is_trimmed = packet.is_trimmed() && verbs.head.transport.format == Format::Irn;
                is_trimmed.then(|| {
                    if pulls {
                        self.on_trimmed(verbs, core, packet);
                    }
                    RxOutcome::Dropped(core.drop_packet(DropReason::Trimmed))
                })
            }
        }
    }

    /// Answers a packet that arrived without its payload.
    fn on_trimmed(&mut self, verbs: &mut Verbs, core: &mut Core, packet: &Packet) {
        let Self { requester, responder } = self;
        match packet.headers {
            Headers::ReadResponse { .. } => {
                let Some(responses) = requester.responses.as_mut().filter(|_| verbs.head.state.sends()) else { return };
                responses.on_trimmed(&mut requester.shared, &verbs.head, core, packet.psn);
            }
            _ => responder.on_trimmed_request(requester, verbs, core, packet.psn),
        }
    }

    /// Handles the report of a receiver that expects packet `psn` that packet `trimmed` arrived without its payload.
    fn on_trim_nack(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        (psn, trimmed): (Psn, Psn),
        of_response: bool,
    ) -> RxOutcome {
        let Self { requester, responder } = self;
        if of_response {
            responder.on_response_trim_nack(requester, verbs, core, (psn, trimmed))
        } else if verbs.head.transmits() {
            on_trim_nack(requester, verbs, core, psn, trimmed)
        } else {
            RxOutcome::Dropped(core.drop_packet(DropReason::State))
        }
    }

    /// Handles a pull: both halves may send again.
    fn on_pull(&mut self, verbs: &mut Verbs, core: &mut Core, granted: Serial<24>) -> RxOutcome {
        let Self { requester, responder } = self;
        let in_flight = requester.in_flight();
        if !requester.shared.on_pull(in_flight, granted) {
            return RxOutcome::Duplicate;
        }
        if verbs.head.transmits() {
            requester.wake(verbs, core);
        }
        if responder.has_work() {
            requester.shared.wake_responder(&verbs.head, core);
        }
        RxOutcome::Accepted
    }

    /// Builds the next pull of the queue pair in `core.out`; returns whether there is one. The queue pair has been
    /// removed from the queue of pulls.
    pub(crate) fn transmit_pull(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let shared = &mut self.requester.shared;
        let Some(owed) = shared.owed_pulls(&verbs.head) else { return false };
        let packet_bytes = u64::from(verbs.head.mtu()) + OVERHEAD_BYTES;
        let gap = core.config.line_rate.serialize(packet_bytes);
        let count = core.pulls.take(core.now, owed, gap, core.config.burst.catch_up);
        let granted = shared.grant_pulls(&verbs.head, core, count);
        let packet = &mut core.out.packet;
        (packet.psn, packet.payload_len) = (Psn::new(0), 0);
        packet.flags = PacketFlags::default();
        packet.headers = Headers::Pull { granted };
        send_ack(&verbs.head, &verbs.recv, core);
        true
    }
}
