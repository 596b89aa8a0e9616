//! Functions of the engine that apply to Falcon packets only.
//!
//! Besides passing packets in and out, a driver for Falcon handles:
//!
//! * **time on the wire**: the engine writes [`rnic_wire::falcon::Packet::timestamp`] when it returns a packet. If
//!   the packet is put on the wire later, the driver may write the time at which it is sent. The receive time of a
//!   packet is the time of its last bit;
//! * **paths**: [`crate::FalconTransmit::label`] is the value that switches must hash (the IPv6 flow label, or a
//!   source port that represents it), and the receiver must be given the same label with the packet: its low bits
//!   identify the flow;
//! * **congestion marks** and **hops**: [`FalconArrival`]; the number of hops is the number of switches, 0 where it
//!   is not counted;
//! * **payload**: `Push Data` and `Pull Data` carry `payload_len` bytes from [`Engine::segments`]; payload that arrives
//!   out of order on an ordered connection is kept by the driver ([`Dma::keep`]);
//! * **timers**: as for all packets, [`Engine::next_timeout`] and [`Engine::tick`].

use rnic_wire::Qpn;
use rnic_wire::falcon::{Encapsulation, Form};
use rnic_wire::net::IpVersion;

use super::Engine;
use super::observer::{self, DriverCall};
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};
use crate::falcon::{BlockedOn, tick_nic};
use crate::packet::FalconArrival;
use crate::processors::PROCESSORS_TIMER_SLOT;
use crate::qp::{ProtocolState, Qp};
use crate::stats::FalconStats;
use crate::timer::Deadline;

impl Engine {
    /// Processes a received Falcon packet.
    #[inline(never)]
    pub(super) fn receive_falcon<D: Dma>(&mut self, arrival: &FalconArrival<'_>, dma: &mut D) -> RxOutcome {
        let Self { core, falcon, qps, .. } = self;
        let qpn = Qpn::new(arrival.packet.cid.get());
        if let Some(exchange) = &mut core.exchange {
            let around = Encapsulation { ip: IpVersion::V4, form: Form::Psp };
            let lengths = [arrival.packet.udp_payload_len(around), arrival.packet.payload_len];
            exchange.count_received(qpn, arrival.peer, lengths, core.now);
        }
        let Some(qp) = qps.find_mut(qpn) else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::UnknownQp));
        };
        let Some(nic) = falcon else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::WrongFormat));
        };
        nic.release_ended(dma);
        let Qp { verbs, protocol: ProtocolState::Falcon(end) } = qp else {
            return RxOutcome::Dropped(core.drop_packet(DropReason::WrongFormat));
        };
        let outcome = end.receive(verbs, core, nic, arrival, dma);
        nic.wake_waiting(&mut core.ready);
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.count(outcome);
            if core.signals.is_some() {
                super::signals::received_falcon(core, qp, arrival, outcome);
            }
        }
        if !core.overrun_cqs.is_empty() {
            self.fail_overrun();
        }
        outcome
    }

    /// Builds the next Falcon packet that may be sent now, in the NIC's `out`; returns false if there is none.
    #[inline(never)]
    pub(super) fn transmit_falcon(&mut self) -> bool {
        let Self { core, falcon, qps, .. } = self;
        let Some(nic) = falcon.as_deref_mut() else { return false };
        nic.is_out = false;
        if !core.ready.has_falcon() {
            return false;
        }
        while let Some(slot) = core.ready.pop_with_credit() {
            if let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot) {
                end.on_credit(verbs, core);
            }
        }
        let mut is_built = false;
        while !is_built && let Some((slot, tag)) = core.ready.pop_falcon() {
            let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot) else { continue };
            is_built = end.transmit(verbs, core, nic, BlockedOn::of_tag(tag));
        }
        nic.is_out = is_built;
        if !core.overrun_cqs.is_empty() {
            self.fail_overrun();
        }
        is_built
    }

    /// Returns the statistics of the state that the Falcon connections of this NIC share; `None` if there has never
    /// been such a connection.
    pub fn falcon_stats(&self) -> Option<FalconStats> {
        let nic = self.falcon.as_ref()?;
        let mut stats = nic.stats();
        for qp in self.qps.iter() {
            if let Some(delivery) = qp.falcon().and_then(|falcon| falcon.delivery()) {
                stats.add(delivery);
            }
        }
        Some(stats)
    }

    /// Handles an expired deadline of a Falcon queue pair or of the NIC; the owner may no longer exist.
    #[cold]
    pub(super) fn tick_falcon(&mut self, deadline: Deadline, slot: u32) {
        if slot == PROCESSORS_TIMER_SLOT {
            return super::sharing::run_processors(self, deadline);
        }
        let Self { core, falcon, qps, .. } = self;
        let Some(nic) = falcon else { return };
        if slot == crate::namespace::NAMESPACE_TIMER_SLOT {
            if core.namespaces.remove_expired(deadline) {
                while let Some(io) = core.namespaces.done(core.now) {
                    if let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(io.owner) {
                        end.on_device_completion(&io, verbs, core);
                    }
                }
                core.namespaces.arm(&mut core.timers);
            }
        } else if slot == crate::falcon::NIC_TIMER_SLOT {
            if nic.armed == deadline {
                tick_nic(core, nic, |slot, core, response| {
                    if let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot) {
                        end.on_decision(verbs, core, response);
                    }
                });
            }
        } else if let Some(Qp { verbs, protocol: ProtocolState::Falcon(end) }) = qps.at_mut(slot)
            && end.remove_expired(deadline)
        {
            end.on_timeout(verbs, core, nic);
        }
        nic.wake_waiting(&mut core.ready);
    }
}

impl Engine {
    /// Sets the number of payload bytes that Falcon connections have placed but that are still on their way into the
    /// host's memory; drivers whose memory accepts them immediately never call this. Until these bytes have reached
    /// the memory, they occupy receive buffers of the NIC: acknowledgements report this to peers, and packets for
    /// which there is no buffer space are rejected (Falcon, section 4.2: a bottleneck in the host).
    pub fn set_falcon_backlog(&mut self, bytes: u64) {
        if let Some(nic) = &mut self.falcon {
            nic.set_backlog(bytes);
        }
        if self.observer.is_some() {
            observer::note(self, &DriverCall::FalconBacklog(bytes));
        }
    }
}
