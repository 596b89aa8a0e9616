//! Packets at the engine's border: with them comes what their headers do not say.

use rnic_base::{Csig, Psn};
use rnic_policy::PathLabel;
use rnic_wire::falcon::{self, FlowLabel, PacketType};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

use crate::PeerId;

/// Properties of a received packet that are not in its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// Whom it came from.
    pub peer: PeerId,
    /// The network marked it (ECN "congestion experienced").
    pub congested: bool,
}

/// What sort of packet leaves, for accounting and traces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransmitKind {
    /// An acknowledgement of any sort, or a CNP.
    Ack,
    /// A request, for the first time.
    Request,
    /// A request, again.
    RequestAgain,
    /// A response, for the first time.
    Response,
    /// A response, again.
    ResponseAgain,
}

impl TransmitKind {
    /// That of a packet of Falcon.
    #[inline]
    pub const fn of_falcon(packet: PacketType, again: bool) -> Self {
        match (packet, again) {
            (PacketType::Nack | PacketType::Ack | PacketType::ExtendedAck, _) => Self::Ack,
            (PacketType::PullData, false) => Self::Response,
            (PacketType::PullData, true) => Self::ResponseAgain,
            (_, false) => Self::Request,
            (_, true) => Self::RequestAgain,
        }
    }

    /// Whether the packet has been sent before.
    pub fn is_retransmission(self) -> bool {
        matches!(self, Self::RequestAgain | Self::ResponseAgain)
    }
}

/// A packet of the RoCE family, or of an unreliable service, to send. Its payload is [`crate::Engine::segments`].
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// Headers.
    pub packet: Packet,
    /// How to encode them.
    pub format: Format,
    /// Whom to send it to.
    pub peer: PeerId,
    /// What the network shall hash.
    pub label: PathLabel,
    /// The queue pair it comes from.
    pub from: Qpn,
    /// What sort of packet it is.
    pub kind: TransmitKind,
    /// Of datagrams, what their address says of it ([`crate::DatagramAddress::mark`]). Of other packets, nothing.
    pub mark: u64,
}

impl Transmit {
    /// What lies in the engine before the first packet.
    pub(crate) const BLANK: Self = Self {
        packet: Packet {
            dest_qpn: Qpn::new(0),
            psn: Psn::new(0),
            flags: PacketFlags { solicited: false, ack_request: false, fecn: false, becn: false },
            payload_len: 0,
            headers: Headers::Cnp,
        },
        format: Format::RoceV2,
        peer: PeerId(0),
        label: PathLabel(0),
        from: Qpn::new(0),
        kind: TransmitKind::Ack,
        mark: 0,
    };
}

/// A packet that has arrived, by its family.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// Of the RoCE family, or of an unreliable service.
    Roce(Format, &'a Packet, RxMeta),
    /// Falcon's.
    Falcon(FalconArrival<'a>),
}

/// A packet to send, by its family. Its payload is [`crate::Engine::segments`].
#[derive(Clone, Copy, Debug)]
pub enum Departure<'a> {
    /// Of the RoCE family, or of an unreliable service.
    Roce(&'a Transmit),
    /// Falcon's.
    Falcon(&'a FalconTransmit),
}

impl<'a> Departure<'a> {
    /// Returns the packet, where it is of the RoCE family or of an unreliable service.
    #[inline]
    pub fn roce(self) -> Option<&'a Transmit> {
        match self {
            Self::Roce(transmit) => Some(transmit),
            Self::Falcon(_) => None,
        }
    }

    /// Returns the packet, where it is Falcon's.
    #[inline]
    pub fn falcon(self) -> Option<&'a FalconTransmit> {
        match self {
            Self::Falcon(transmit) => Some(transmit),
            Self::Roce(_) => None,
        }
    }
}

/// A Falcon packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct FalconArrival<'a> {
    /// The packet. Its connection identifier is the number of the queue pair that it is for.
    pub packet: &'a falcon::Packet,
    /// The address that it came from.
    pub peer: PeerId,
    /// Which path it took.
    pub label: FlowLabel,
    /// The network marked it (ECN "congestion experienced").
    pub congested: bool,
    /// Switches on its way, at most 15; 0 where nobody counts.
    pub hops: u8,
    /// What the most congested of them wrote into its frame; `None` where they write nothing.
    pub csig: Option<Csig>,
}

/// A Falcon packet to send. Its payload is [`crate::Engine::segments`].
#[derive(Clone, Copy, Debug)]
pub struct FalconTransmit {
    /// The packet.
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
