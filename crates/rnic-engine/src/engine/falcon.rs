//! The doors for Falcon's packets.
//!
//! A Falcon packet is up to two cache lines, a RoCE packet one. They are two types, and bodies hand each to its own
//! door, so that nothing on the way of the RoCE family becomes larger or takes a branch.
//!
//! What a body does beside calling them:
//!
//! * **time on the wire**: the engine writes [`falcon::Packet::timestamp`] when it hands a packet out; whoever puts it
//!   on the wire later may write the moment at which it leaves. A packet is received at the moment of its last bit;
//! * **paths**: [`FalconTransmit::label`] is what switches shall hash (the IPv6 flow label, or a source port for it),
//!   and the receiver must get the same label back with the packet: its low bits name the flow;
//! * **congestion marks** and **hops**: [`FalconArrival`]; hops count switches, 0 where nobody counts;
//! * **payload**: `Push Data` and `Pull Data` carry `payload_len` bytes from [`Engine::segments`]; what arrives early
//!   on an ordered connection is kept by the body ([`Dma::keep`]);
//! * **waking**: as for all packets, [`Engine::next_timeout`] and [`Engine::tick`].

use rnic_base::Time;
use rnic_wire::Qpn;
use rnic_wire::falcon::{self, FlowLabel};

use super::{Engine, TransmitKind};
use crate::PeerId;
use crate::dma::Dma;
use crate::error::{DropReason, RxOutcome};

/// A Falcon packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct FalconArrival<'a> {
    /// It. Its connection identifier is the number of the queue pair that it is for.
    pub packet: &'a falcon::Packet,
    /// Whom it came from.
    pub peer: PeerId,
    /// Which path it took.
    pub label: FlowLabel,
    /// The network marked it (ECN "congestion experienced").
    pub congested: bool,
    /// Switches on its way, at most 15; 0 where nobody counts.
    pub hops: u8,
}

/// A Falcon packet to send. Its payload is [`Engine::segments`].
#[derive(Clone, Copy, Debug)]
pub struct FalconTransmit {
    /// It.
    pub packet: falcon::Packet,
    /// Whom to send it to.
    pub peer: PeerId,
    /// What the network shall hash.
    pub label: FlowLabel,
    /// The queue pair it comes from.
    pub from: Qpn,
    /// What sort of packet it is: Pull Data is a response, a Resync is what it stands for.
    pub kind: TransmitKind,
}

impl Engine {
    /// Takes a Falcon packet in. Its payload is what `dma` copies from.
    pub fn receive_falcon<D: Dma>(&mut self, now: Time, arrival: &FalconArrival<'_>, dma: &mut D) -> RxOutcome {
        let _ = (arrival, dma);
        self.core.now = now;
        self.core.stats.packets_received += 1;
        RxOutcome::Dropped(self.core.drop_packet(DropReason::UnknownQp))
    }

    /// The next Falcon packet to send, if there is one that may leave now. Its payload is [`Engine::segments`] until
    /// the next packet is made.
    pub fn transmit_falcon(&mut self, now: Time) -> Option<&FalconTransmit> {
        self.core.now = now;
        None
    }

    /// Whether [`Engine::transmit_falcon`] may have something to hand out.
    #[inline]
    pub fn has_falcon_packets(&self) -> bool {
        false
    }
}
