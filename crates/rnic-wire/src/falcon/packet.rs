//! The representation of one Falcon packet (OCP Falcon Transport Protocol, Rev 0.9, section 7).

use core::fmt;

use rnic_base::{Psn32, Serial};

use crate::falcon::{Acknowledgement, Bitmaps, Nack, PacketType, ResyncCode, Timestamp, Window, nvme, rdma};

/// A connection identifier: 24 bits, chosen by the receiver of packets that carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cid(u32);

impl Cid {
    /// Largest connection identifier.
    pub const MAX: Self = Self(0xff_ffff);

    /// Creates an identifier from the low 24 bits of `number`.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MAX.0)
    }

    /// Returns the identifier as a number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The request sequence number: position of a transaction in the order of its initiator, counted modulo 2^32. Pull
/// Data carries the number of its request.
pub type Rsn = Serial<32>;

/// The 20-bit label of an IPv6 header, as Falcon uses it: switches hash it, and its low bits are the index of the
/// packet's flow in the connection (paper, section 4.3). Both ends agree on the number of these bits: two for up to
/// four flows, three for up to eight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FlowLabel(u32);

impl FlowLabel {
    /// Largest flow label.
    pub const MAX: Self = Self(0xf_ffff);

    /// Creates a label from the low 20 bits of `label`.
    #[inline]
    pub const fn new(label: u32) -> Self {
        Self(label & Self::MAX.0)
    }

    /// Returns a label of flow `index` in a connection whose flow index has `index_bits` bits; the other bits are taken
    /// from `entropy`.
    ///
    /// # Panics
    /// When `index` needs more than `index_bits` bits, or `index_bits` exceeds [`Self::INDEX_BITS_MAX`].
    #[inline]
    pub const fn of_flow(index: u8, index_bits: u32, entropy: u32) -> Self {
        assert!(index_bits <= Self::INDEX_BITS_MAX && (index as u32) < 1 << index_bits);
        Self::new(entropy << index_bits | index as u32)
    }

    /// Returns the bits of the label.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the index of the flow that the label belongs to.
    ///
    /// # Panics
    /// When `index_bits` exceeds [`Self::INDEX_BITS_MAX`].
    #[inline]
    pub const fn flow(self, index_bits: u32) -> u8 {
        assert!(index_bits <= Self::INDEX_BITS_MAX);
        (self.0 & ((1 << index_bits) - 1)) as u8
    }

    /// Maximum number of bits of a flow index: eight flows, twice the number in the paper's hardware.
    pub const INDEX_BITS_MAX: u32 = 3;
}

/// The base sequence numbers of a receiver's two windows: all packets before them have been acknowledged. Every packet
/// carries them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct WindowBases {
    /// Base of the data window.
    pub data: Psn32,
    /// Base of the request window.
    pub request: Psn32,
}

impl WindowBases {
    /// Returns bases with `psn` for both windows.
    pub const fn both(psn: Psn32) -> Self {
        Self { data: psn, request: psn }
    }

    /// Returns the base of `window`.
    #[inline]
    pub const fn of(&self, window: Window) -> Psn32 {
        match window {
            Window::Request => self.request,
            Window::Data => self.data,
        }
    }
}

/// Upper layer that a packet belongs to (3 bits on the wire).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum UlpProtocol {
    /// No upper layer: the value for acknowledgements, whose header has no such field.
    #[default]
    None,
    /// The upper layer is RDMA.
    Rdma,
    /// The upper layer is NVMe.
    Nvme,
}

impl PacketType {
    /// Returns the window of packets of this type that belong to a transaction; `None` for acknowledgements, and for
    /// Resyncs, which replace a packet of either window.
    #[inline]
    pub const fn window(self) -> Option<Window> {
        match self {
            Self::PullRequest => Some(Window::Request),
            Self::PullData | Self::PushData => Some(Window::Data),
            Self::Resync | Self::Nack | Self::Ack | Self::ExtendedAck => None,
        }
    }
}

/// Headers of the upper layer. The transport carries them and never inspects them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ulp {
    /// No headers. Packets of a transaction without upper layer headers cannot be encoded; only simulations of the
    /// transport alone use this.
    None,
    /// RDMA over Falcon.
    Rdma(rdma::Header),
    /// NVMe over Falcon.
    Nvme(nvme::Header),
}

/// Packet type, with the fields that only this type carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// Requests data. Carries no payload.
    PullRequest {
        /// Sequence number in the request window.
        psn: Psn32,
        /// Sequence number of the transaction.
        rsn: Rsn,
        /// Length of the Pull Data's payload in bytes: upper layer's headers, data and padding.
        length: u16,
        /// The upper layer's headers.
        ulp: Ulp,
    },
    /// Data that was requested.
    PullData {
        /// Sequence number in the data window.
        psn: Psn32,
        /// Sequence number of the transaction: that of the request.
        rsn: Rsn,
        /// The upper layer's headers.
        ulp: Ulp,
    },
    /// Data that was not requested.
    PushData {
        /// Sequence number in the data window.
        psn: Psn32,
        /// Sequence number of the transaction.
        rsn: Rsn,
        /// Length of this packet's payload in bytes: upper layer's headers, data and padding.
        length: u16,
        /// The upper layer's headers.
        ulp: Ulp,
    },
    /// Replaces a packet that will not be retransmitted, and uses its sequence numbers.
    Resync {
        /// Packet sequence number (PSN) of the replaced packet.
        psn: Psn32,
        /// Request sequence number (RSN) of the replaced packet.
        rsn: Rsn,
        /// Reason for the Resync.
        code: ResyncCode,
        /// Type of the replaced packet: Pull Request, Pull Data or Push Data.
        of: PacketType,
        /// Vendor-defined value without a meaning to the protocol; 0 when unused.
        vendor: u32,
    },
    /// BACK: acknowledges all packets before the bases.
    Ack(Acknowledgement),
    /// EACK: also reports the packets received beyond the bases.
    ExtendedAck(Acknowledgement, Bitmaps),
    /// Rejects a packet.
    Nack(Nack),
}

impl Body {
    /// Returns the type of the packet.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::PullRequest { .. } => PacketType::PullRequest,
            Self::PullData { .. } => PacketType::PullData,
            Self::PushData { .. } => PacketType::PushData,
            Self::Resync { .. } => PacketType::Resync,
            Self::Ack(_) => PacketType::Ack,
            Self::ExtendedAck(..) => PacketType::ExtendedAck,
            Self::Nack(_) => PacketType::Nack,
        }
    }

    /// Returns the window that the packet's PSN belongs to; `None` for acknowledgements. For a Resync it is the
    /// window of the packet that it replaces.
    #[inline]
    pub const fn window(&self) -> Option<Window> {
        match self {
            Self::Resync { of, .. } => of.window(),
            _ => self.packet_type().window(),
        }
    }

    /// Returns the sequence number; `None` for acknowledgements.
    #[inline]
    pub const fn psn(&self) -> Option<Psn32> {
        match self {
            Self::PullRequest { psn, .. }
            | Self::PullData { psn, .. }
            | Self::PushData { psn, .. }
            | Self::Resync { psn, .. } => Some(*psn),
            Self::Ack(_) | Self::ExtendedAck(..) | Self::Nack(_) => None,
        }
    }

    /// Returns the sequence number of the transaction; `None` for acknowledgements.
    #[inline]
    pub const fn rsn(&self) -> Option<Rsn> {
        match self {
            Self::PullRequest { rsn, .. }
            | Self::PullData { rsn, .. }
            | Self::PushData { rsn, .. }
            | Self::Resync { rsn, .. } => Some(*rsn),
            Self::Ack(_) | Self::ExtendedAck(..) | Self::Nack(_) => None,
        }
    }

    /// Returns the upper layer's headers, when the packet type can carry them.
    #[inline]
    pub const fn ulp(&self) -> Option<&Ulp> {
        match self {
            Self::PullRequest { ulp, .. } | Self::PullData { ulp, .. } | Self::PushData { ulp, .. } => Some(ulp),
            Self::Resync { .. } | Self::Ack(_) | Self::ExtendedAck(..) | Self::Nack(_) => None,
        }
    }
}

/// One packet without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// Destination connection, by the identifier that the packet's receiver has assigned.
    pub cid: Cid,
    /// Destination function at the receiver's host, 24 bits that identify host, physical and virtual function; zero in
    /// acknowledgements, which do not carry it.
    pub function: u32,
    /// The upper layer; [`UlpProtocol::None`] in acknowledgements.
    pub protocol: UlpProtocol,
    /// True when the sender requests an immediate acknowledgement; never in acknowledgements.
    pub ack_request: bool,
    /// Bases of the windows in which this packet's sender receives.
    pub bases: WindowBases,
    /// Time at which the packet was sent: T1 of packets with data, T3 of acknowledgements. Carried in the encryption
    /// header ([`psp::Iv`](crate::falcon::psp::Iv)), so that the code that transmits the packet can write it.
    pub timestamp: Timestamp,
    /// Length of the payload after the upper layer's headers in bytes, without padding.
    pub payload_len: u32,
    /// Fields that depend on the packet type.
    pub body: Body,
}

impl Packet {
    /// Initial value of a packet buffer, overwritten by the next packet.
    pub const BLANK: Self = Self {
        cid: Cid::new(0),
        function: 0,
        protocol: UlpProtocol::None,
        ack_request: false,
        bases: WindowBases::both(Psn32::new(0)),
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
}

// Two cache lines, because drivers pass packets by value.
const _: () = assert!(size_of::<Packet>() <= 128);
