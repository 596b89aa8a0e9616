//! The representation of one Falcon packet (OCP Falcon Transport Protocol, Rev 0.9, section 7).

use core::fmt;

use rnic_base::{Psn32, Serial};

use crate::falcon::{Acknowledgement, Bitmaps, Nack, PacketType, ResyncCode, Timestamp, Window, nvme, rdma};

/// A connection identifier: 24 bits, chosen by the receiver of packets that carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cid(u32);

impl Cid {
    /// The largest identifier.
    pub const MAX: Self = Self(0xff_ffff);

    /// Takes the low 24 bits of `number`.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MAX.0)
    }

    /// The number.
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

/// The request sequence number: the place of a transaction in the order of its initiator, counted modulo 2^32. Pull
/// Data has its request's.
pub type Rsn = Serial<32>;

/// The 20-bit label of an IPv6 header, as Falcon uses it: switches hash it, and its low bits say which of the
/// connection's flows a packet belongs to (paper, section 4.3). How many bits is agreed by both ends: two for up to
/// four flows, three for up to eight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FlowLabel(u32);

impl FlowLabel {
    /// The largest label.
    pub const MAX: Self = Self(0xf_ffff);

    /// Takes the low 20 bits of `label`.
    #[inline]
    pub const fn new(label: u32) -> Self {
        Self(label & Self::MAX.0)
    }

    /// A label of flow `index` in a connection whose flows take `index_bits` bits: the rest is `entropy`'s.
    ///
    /// # Panics
    /// When the index needs more bits than that, or they are more than [`Self::INDEX_BITS_MAX`].
    #[inline]
    pub const fn of_flow(index: u8, index_bits: u32, entropy: u32) -> Self {
        assert!(index_bits <= Self::INDEX_BITS_MAX && (index as u32) < 1 << index_bits);
        Self::new(entropy << index_bits | index as u32)
    }

    /// The label's bits.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The flow that it belongs to.
    ///
    /// # Panics
    /// When `index_bits` are more than [`Self::INDEX_BITS_MAX`].
    #[inline]
    pub const fn flow(self, index_bits: u32) -> u8 {
        assert!(index_bits <= Self::INDEX_BITS_MAX);
        (self.0 & ((1 << index_bits) - 1)) as u8
    }

    /// Most bits that an index may take: eight flows, twice what the paper's hardware has.
    pub const INDEX_BITS_MAX: u32 = 3;
}

/// The base sequence numbers of a receiver's two windows: everything before has been acknowledged. Every packet carries
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct WindowBases {
    /// Of the data window.
    pub data: Psn32,
    /// Of the request window.
    pub request: Psn32,
}

impl WindowBases {
    /// `psn` in both windows.
    pub const fn both(psn: Psn32) -> Self {
        Self { data: psn, request: psn }
    }

    /// The base of `window`.
    #[inline]
    pub const fn of(&self, window: Window) -> Psn32 {
        match window {
            Window::Request => self.request,
            Window::Data => self.data,
        }
    }
}

/// Which upper layer a packet belongs to (3 bits on the wire).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum UlpProtocol {
    /// None: acknowledgements, whose header has no such field.
    #[default]
    None,
    /// RDMA.
    Rdma,
    /// NVMe.
    Nvme,
}

impl PacketType {
    /// The window of packets of this type that belong to a transaction; none for acknowledgements, and for Resyncs,
    /// which stand for a packet of either.
    #[inline]
    pub const fn window(self) -> Option<Window> {
        match self {
            Self::PullRequest => Some(Window::Request),
            Self::PullData | Self::PushData => Some(Window::Data),
            Self::Resync | Self::Nack | Self::Ack | Self::ExtendedAck => None,
        }
    }
}

/// The upper layer's headers. The transport carries them and never looks into them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ulp {
    /// None. Packets of a transaction without them cannot be encoded: simulations of the transport alone use this.
    None,
    /// RDMA over Falcon.
    Rdma(rdma::Header),
    /// NVMe over Falcon.
    Nvme(nvme::Header),
}

/// What kind of packet it is, with what only that kind carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// Asks for data. Carries no payload.
    PullRequest {
        /// Place in the request window.
        psn: Psn32,
        /// The transaction.
        rsn: Rsn,
        /// Bytes of the Pull Data's payload: upper layer's headers, data and padding.
        length: u16,
        /// The upper layer's headers.
        ulp: Ulp,
    },
    /// Data that was asked for.
    PullData {
        /// Place in the data window.
        psn: Psn32,
        /// The transaction: that of the request.
        rsn: Rsn,
        /// The upper layer's headers.
        ulp: Ulp,
    },
    /// Data that was not asked for.
    PushData {
        /// Place in the data window.
        psn: Psn32,
        /// The transaction.
        rsn: Rsn,
        /// Bytes of this packet's payload: upper layer's headers, data and padding.
        length: u16,
        /// The upper layer's headers.
        ulp: Ulp,
    },
    /// Takes the place, and the sequence numbers, of a packet that will not be sent again.
    Resync {
        /// That packet's.
        psn: Psn32,
        /// That packet's.
        rsn: Rsn,
        /// Why.
        code: ResyncCode,
        /// That packet's type: Pull Request, Pull Data or Push Data.
        of: PacketType,
        /// Means nothing to the protocol; 0 when unused.
        vendor: u32,
    },
    /// BACK: acknowledges everything before the bases.
    Ack(Acknowledgement),
    /// EACK: says also what came beyond them.
    ExtendedAck(Acknowledgement, Bitmaps),
    /// Refuses a packet.
    Nack(Nack),
}

impl Body {
    /// Its packet's type.
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

    /// The window that its PSN counts in; none for acknowledgements. A Resync has its original's.
    #[inline]
    pub const fn window(&self) -> Option<Window> {
        match self {
            Self::Resync { of, .. } => of.window(),
            _ => self.packet_type().window(),
        }
    }

    /// Its sequence number; none for acknowledgements.
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

    /// Its transaction; none for acknowledgements.
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

    /// The upper layer's headers, where the kind of packet has room for them.
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
    /// The connection that it is for, by its receiver's number.
    pub cid: Cid,
    /// The function of the receiver's host that it is for, 24 bits that name host, physical and virtual function; zero
    /// in acknowledgements, which do not carry it.
    pub function: u32,
    /// The upper layer; [`UlpProtocol::None`] in acknowledgements.
    pub protocol: UlpProtocol,
    /// The sender wants an acknowledgement at once; never in acknowledgements.
    pub ack_request: bool,
    /// How far the sender, as a receiver, has come.
    pub bases: WindowBases,
    /// When it left: T1 of packets with data, T3 of acknowledgements. Travels in the encryption header
    /// ([`psp::Iv`](crate::falcon::psp::Iv)), so that whoever puts the packet on the wire can write it.
    pub timestamp: Timestamp,
    /// Payload bytes behind the upper layer's headers, without padding.
    pub payload_len: u32,
    /// Everything else.
    pub body: Body,
}

// Two cache lines: bodies hand packets around by value.
const _: () = assert!(size_of::<Packet>() <= 128);
