//! Packets at the engine's interface, with the properties that their headers do not contain.

use rnic_base::{Csig, Psn, Psn32};
use rnic_policy::PathLabel;
use rnic_wire::falcon::{self, FlowLabel, PacketType};
use rnic_wire::scr::{Body, Message, ProbePath};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

use crate::{NicId, PeerId};

/// Properties of a received packet that are not in its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// Peer that sent it.
    pub peer: PeerId,
    /// True when the network marked it (ECN "congestion experienced").
    pub congested: bool,
}

/// Type of a packet to be sent, for accounting and traces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransmitKind {
    /// An acknowledgement of any type, or a CNP.
    Ack,
    /// First transmission of a request.
    Request,
    /// Retransmission of a request.
    RequestRetransmission,
    /// First transmission of a response.
    Response,
    /// Retransmission of a response.
    ResponseRetransmission,
}

impl TransmitKind {
    /// Returns the type of a Falcon packet.
    #[inline]
    pub const fn of_falcon(packet: PacketType, is_retransmission: bool) -> Self {
        match (packet, is_retransmission) {
            (PacketType::Nack | PacketType::Ack | PacketType::ExtendedAck, _) => Self::Ack,
            (PacketType::PullData, false) => Self::Response,
            (PacketType::PullData, true) => Self::ResponseRetransmission,
            (_, false) => Self::Request,
            (_, true) => Self::RequestRetransmission,
        }
    }

    /// Returns whether the packet has been sent before.
    pub fn is_retransmission(self) -> bool {
        matches!(self, Self::RequestRetransmission | Self::ResponseRetransmission)
    }
}

/// A packet of the RoCE family, or of an unreliable service, to send. Its payload is in [`crate::Engine::segments`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Headers of the packet.
    pub packet: Packet,
    /// Format in which the headers are encoded.
    pub format: Format,
    /// Peer to send it to.
    pub peer: PeerId,
    /// Value that the network must hash for path selection.
    pub label: PathLabel,
    /// Queue pair that sends it.
    pub from: Qpn,
    /// Type of the packet.
    pub kind: TransmitKind,
    /// For datagrams, the mark in their address ([`crate::DatagramAddress::mark`]). Not used for other packets.
    pub mark: u64,
}

impl Transmit {
    /// Placeholder before the first packet.
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

/// A received packet, by protocol family.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A packet of the RoCE family, or of an unreliable service.
    Roce(Format, &'a Packet, RxMeta),
    /// A Falcon packet.
    Falcon(FalconArrival<'a>),
    /// A message from the NIC of a peer, whose ICRC the driver has checked.
    Message(MessageArrival<'a>),
}

/// A packet to send, by protocol family. Its payload is in [`crate::Engine::segments`].
#[derive(Clone, Copy, Debug)]
pub enum Departure<'a> {
    /// A packet of the RoCE family, or of an unreliable service.
    Roce(&'a Transmit),
    /// A Falcon packet.
    Falcon(&'a FalconTransmit),
    /// A message to the NIC of a peer. Only engines with messages enabled ([`crate::Messages`]) return any.
    Message(&'a MessageTransmit),
}

impl<'a> Departure<'a> {
    /// Returns the packet, if it is of the RoCE family or of an unreliable service.
    #[inline]
    pub fn roce(self) -> Option<&'a Transmit> {
        match self {
            Self::Roce(transmit) => Some(transmit),
            Self::Falcon(_) | Self::Message(_) => None,
        }
    }

    /// Returns the packet, if it is a Falcon packet.
    #[inline]
    pub fn falcon(self) -> Option<&'a FalconTransmit> {
        match self {
            Self::Falcon(transmit) => Some(transmit),
            Self::Roce(_) | Self::Message(_) => None,
        }
    }
}

/// A received message from the NIC of a peer.
#[derive(Clone, Copy, Debug)]
pub struct MessageArrival<'a> {
    /// Message received from another NIC.
    pub message: &'a Message,
    /// NIC with the address and the port of the sender.
    pub nic: NicId,
    /// Label with which the message was sent; the answer is sent with the same one.
    pub label: PathLabel,
}

/// A message to the NIC of a peer.
#[derive(Clone, Copy, Debug)]
pub struct MessageTransmit {
    /// NIC to send it to.
    pub nic: NicId,
    /// Value that the network must hash for path selection.
    pub label: PathLabel,
    /// Message to send to another NIC.
    pub message: Message,
}

impl MessageTransmit {
    /// Placeholder before the first message.
    pub(crate) const BLANK: Self = Self {
        nic: NicId::of(PeerId::NONE),
        label: PathLabel(0),
        message: Message {
            dest_qpn: Qpn::GSI,
            source_qpn: Qpn::GSI,
            cookie: None,
            announced: None,
            answer_wanted: false,
            is_last: false,
            sequence: Psn32::new(0),
            time: 0,
            body: Body::Probe(ProbePath { index: 0, label: 0 }),
        },
    };
}

/// A received Falcon packet.
#[derive(Clone, Copy, Debug)]
pub struct FalconArrival<'a> {
    /// The packet. Its connection identifier is the number of the destination queue pair.
    pub packet: &'a falcon::Packet,
    /// Peer that sent it.
    pub peer: PeerId,
    /// Flow label, which identifies the path that it took.
    pub label: FlowLabel,
    /// True when the network marked it (ECN "congestion experienced").
    pub congested: bool,
    /// Number of switches on its path, at most 15; 0 where switches are not counted.
    pub hops: u8,
    /// Congestion signal that the most congested switch wrote into its frame; `None` where switches write none.
    pub csig: Option<Csig>,
}

/// A Falcon packet to send. Its payload is in [`crate::Engine::segments`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FalconTransmit {
    /// Falcon packet.
    pub packet: falcon::Packet,
    /// Peer to send it to.
    pub peer: PeerId,
    /// Value that the network must hash for path selection.
    pub label: FlowLabel,
    /// Queue pair that sends it.
    pub from: Qpn,
    /// Type of the packet: Pull Data is a response, and a Resync has the type of the packet that it replaces.
    pub kind: TransmitKind,
}
