//! The representation of one RDMA packet, as the engine creates and accepts it.
//!
//! A [`Packet`] holds exactly the content of its headers: a field that a protocol does not carry on the wire (RoCE's
//! middle Write packets have no address) is `None` here too, so that a simulation that never encodes packets has no
//! more information than one that does. `tests/` verify this: the trace hash of a run is the same with every packet
//! encoded to bytes and back.
//!
//! Sources: InfiniBand Architecture volume 1, chapter 9 (BTH, RETH, AETH, AtomicETH, ImmDt, IETH; opcodes in table 38),
//! annex A17 (RoCEv2, CNP); IRN (SIGCOMM'18) section 5 for the additions of [`Format::Irn`], FaSR (2025) section IV-D
//! for those of [`Format::Fasr`].

use core::fmt;

use rnic_base::{Psn, Serial};

/// Header format of a connection's packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// InfiniBand transport headers over UDP, unchanged.
    RoceV2,
    /// RoCEv2 with IRN's extensions: RETH in every Write packet, WQE sequence numbers, offsets, a SACK field in every
    /// acknowledgement, acknowledgements for Read responses.
    Irn,
    /// RoCEv2 with FaSR's extensions: an address in every Write packet, a placement in every Send packet, and the
    /// number of missing packets in acknowledgements that report losses.
    Fasr,
    /// RoCEv2's unreliable connections: Sends and Writes without acknowledgement.
    UnreliableConnection,
    /// RoCEv2's unreliable datagrams: a message is one packet, which carries its source queue pair.
    UnreliableDatagram,
}

impl Format {
    /// All packet formats.
    pub const ALL: [Self; 5] =
        [Self::RoceV2, Self::Irn, Self::Fasr, Self::UnreliableConnection, Self::UnreliableDatagram];

    /// Returns whether each packet can be placed independently of other packets; in such formats responses are
    /// acknowledged, too.
    #[inline]
    pub const fn allows_independent_placement(self) -> bool {
        matches!(self, Self::Irn | Self::Fasr)
    }
}

/// A queue pair number: 24 bits, chosen by the receiver of packets that carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// Largest number.
    pub const MAX: Self = Self(0xff_ffff);

    /// Queue pair of connection management (general services interface).
    pub const GSI: Self = Self(1);

    /// Creates a queue pair number from the low 24 bits of `number`.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MAX.0)
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether the number is reserved for management (IBA 10.3.1.1): 0 for subnet management, 1 for general
    /// services.
    #[inline]
    pub const fn is_management(self) -> bool {
        self.0 < 2
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// IRN's `recv_WQE_SN` and `read_WQE_SN`: the position of a work request in its queue, counted from 0, modulo 2^24.
pub type WqeSn = Serial<24>;

/// Single-bit fields of the base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PacketFlags {
    /// Solicited event: wakes a receiver that waits for such messages only.
    pub solicited: bool,
    /// True when the sender requests an acknowledgement of this packet.
    pub ack_request: bool,
    /// Forward congestion notification (FECN): unused by RoCEv2, which has the IP header's ECN bits. In a data packet
    /// of [`Format::Irn`] without payload it means that a switch has cut the payload ([`Packet::is_trimmed`]).
    pub fecn: bool,
    /// Backward congestion notification (BECN): set in CNPs.
    pub becn: bool,
}

/// Position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// First of several packets.
    First,
    /// Neither the first nor the last packet.
    Middle,
    /// Last of several packets.
    Last,
    /// Only packet of the message.
    Only,
}

impl Position {
    /// Returns the position of packet `index` of a message of `count` packets.
    #[inline]
    pub const fn of(index: u32, count: u32) -> Self {
        if count == 1 {
            return Self::Only;
        }
        match (index == 0, index + 1 == count) {
            (true, _) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// Returns whether the packet is the first of its message.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns whether the packet is the last of its message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// RDMA extended transport header: the remote memory that is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Reth {
    /// Virtual address. In [`Format::RoceV2`] that of the message's first byte; in [`Format::Irn`], where every Write
    /// packet has a RETH, that of this packet's own first byte, so that the packet can be placed without others (IRN
    /// section 5.3.1); likewise in [`Format::Fasr`].
    pub va: u64,
    /// Key that grants access.
    pub rkey: u32,
    /// Length of the complete message in bytes; in [`Format::Fasr`] zero in a packet that neither starts the message
    /// nor carries the immediate data at its end.
    pub dma_len: u32,
}

/// Reason why a responder rejects a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// An earlier packet is missing.
    PsnSequenceError,
    /// The request is malformed or not supported by the responder.
    InvalidRequest,
    /// The key, range or rights do not cover the request.
    RemoteAccessError,
    /// The responder has an error that the request did not cause.
    RemoteOperationalError,
}

/// Result reported in an acknowledgement, in addition to its PSN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// ACK, with the end-to-end credits in their 5-bit encoding; 31 means "not counted".
    Ack {
        /// Encoded credit count.
        credits: u8,
    },
    /// No receive work request is posted: the requester must retry after the time encoded in the 5-bit code.
    RnrNak {
        /// Encoded wait time.
        timer: u8,
    },
    /// The request was rejected.
    Nak(NakCode),
}

impl Syndrome {
    /// A plain acknowledgement without credits.
    pub const ACK: Self = Self::Ack { credits: 31 };
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Result reported by the acknowledgement.
    pub syndrome: Syndrome,
    /// Number of messages that the responder has completed, modulo 2^24.
    pub msn: Serial<24>,
}

/// Loss report of a receiver of [`Format::Fasr`] in an acknowledgement (sections III-B, III-D, IV-D).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LossReportFields {
    /// Event that caused the acknowledgement.
    pub cause: LossCause,
    /// PSN of the packet that is acknowledged.
    pub psn: Psn,
    /// Number of packets missing below the highest received packet: `lost-cnt`, 0 to 7.
    pub lost: u8,
    /// True when, at any time in this recovery, more packets have been missing than the counter can hold.
    pub overflow: bool,
}

/// FaSR's types of acknowledgements, in addition to the plain one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossCause {
    /// SACK: a packet was received out of order and stored.
    OutOfOrder,
    /// AACK: a packet that had been missing was received.
    Repaired,
    /// FNACK: a packet between the first missing and the highest packet was received and dropped.
    Misplaced,
}

/// Position of a Send packet, independent of the packets before it ([`Format::Irn`], section 5.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendPlacement {
    /// Number of the receive work request.
    pub recv_sn: WqeSn,
    /// Number of packets of the message before this one.
    pub offset: Serial<24>,
}

/// Additional fields of a Read request in [`Format::Fasr`], where the responses are numbered like the responder's own
/// packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FasrReadFields {
    /// Packet that the requester expects next from the responder: a responder that has never sent a packet starts its
    /// PSNs with it.
    pub expected_psn: Psn,
    /// Time at which this copy of the request was sent, by the requester's clock: a later copy of the same request
    /// has a later time.
    pub stamp: u32,
}

/// A PSN in three bytes, because an atomic request has no space for more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PackedPsn([u8; 3]);

impl From<Psn> for PackedPsn {
    fn from(psn: Psn) -> Self {
        let [_, number @ ..] = psn.value().to_be_bytes();
        Self(number)
    }
}

impl From<PackedPsn> for Psn {
    fn from(PackedPsn([a, b, c]): PackedPsn) -> Self {
        Self::new(u32::from_be_bytes([0, a, b, c]))
    }
}

/// Destination of a packet of a response, independent of the packets before it ([`Format::Fasr`]): corresponds to the
/// remote address of a Write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sink {
    /// Number of the Read or atomic request: identifies the memory, as a key does, while the request is in flight.
    pub read_sn: WqeSn,
    /// Address of the packet's first byte in that memory, which starts at 0.
    pub offset: u64,
}

/// Additional data carried by the last packet of a Send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendTail {
    /// No additional data.
    Plain,
    /// Four bytes of immediate data for the completion.
    Immediate(u32),
    /// Key to invalidate.
    Invalidate(u32),
}

/// The two atomic operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// Stores `swap` when the value equals `compare`.
    CompareSwap {
        /// Value with which the remote bytes are compared.
        compare: u64,
        /// Value that is stored if the comparison succeeds.
        swap: u64,
    },
    /// Adds `add`, wrapping.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
}

/// Operations of the memory placement extensions (InfiniBand Architecture volume 1, annex A19). Each is executed
/// after all earlier requests, and acknowledged by a Read response without payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementOp {
    /// Stores eight bytes atomically.
    AtomicWrite {
        /// The bytes, in memory order.
        value: [u8; 8],
    },
    /// Ensures that earlier writes are visible or persistent.
    Flush {
        /// Length in bytes, when a range is selected.
        len: u32,
        /// Placement type, four bits that give the guarantee required: 1 globally visible, 2 persistent.
        placement: u8,
        /// Selectivity level, two bits: 0 a range, 1 all memory that the key grants access to; others are reserved.
        selectivity: u8,
    },
}

/// Extended headers, by packet type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Headers {
    /// Data for a posted receive buffer.
    Send {
        /// Position of the packet in its message.
        position: Position,
        /// Immediate data or key; only in the last packet of the message.
        tail: SendTail,
        /// Always present in [`Format::Irn`] and [`Format::Fasr`], never in [`Format::RoceV2`].
        placement: Option<SendPlacement>,
    },
    /// Data for remote memory.
    Write {
        /// Position of the packet in its message.
        position: Position,
        /// In [`Format::RoceV2`] present in the first packet of the message; in [`Format::Irn`] and [`Format::Fasr`] in
        /// every packet.
        reth: Option<Reth>,
        /// Four bytes of immediate data for the receiver's completion; only in the last packet of the message.
        immediate: Option<u32>,
        /// Number of the receive work request that the immediate data consumes; in [`Format::Irn`] and
        /// [`Format::Fasr`] present together with it.
        recv_sn: Option<WqeSn>,
    },
    /// Like `Send`, to a queue pair that consumes receives from the shared receive queue named in the packet: extended
    /// reliable connections (XRC).
    SharedSend {
        /// Number of the shared receive queue.
        srqn: Qpn,
        /// Same as in `Send`.
        position: Position,
        /// Same as in `Send`.
        tail: SendTail,
        /// Same as in `Send`.
        placement: Option<SendPlacement>,
    },
    /// Like the last or only packet of a `Write` with immediate, for XRC.
    SharedWrite {
        /// Number of the shared receive queue.
        srqn: Qpn,
        /// Same as in `Write`: last or only.
        position: Position,
        /// Same as in `Write`.
        reth: Option<Reth>,
        /// Same as in `Write`.
        immediate: u32,
        /// Same as in `Write`.
        recv_sn: Option<WqeSn>,
    },
    /// Request to read remote memory.
    ReadRequest {
        /// Memory to read.
        reth: Reth,
        /// Slot of the responder's Read WQE buffer; always present in [`Format::Irn`] and [`Format::Fasr`].
        read_sn: Option<WqeSn>,
        /// Always present in [`Format::Fasr`], never in other formats.
        fasr: Option<FasrReadFields>,
    },
    /// Data that was requested.
    ReadResponse {
        /// Position of the packet in the response.
        position: Position,
        /// Present in all packets except middle ones.
        aeth: Option<Aeth>,
        /// Always present in [`Format::Fasr`], never in other formats.
        sink: Option<Sink>,
    },
    /// Request for an atomic operation on eight bytes.
    AtomicRequest {
        /// Address, a multiple of 8.
        va: u64,
        /// Key that grants access.
        rkey: u32,
        /// Operation to perform.
        op: AtomicOp,
        /// Slot of the responder's Read WQE buffer; always present in [`Format::Irn`] and [`Format::Fasr`].
        read_sn: Option<WqeSn>,
        /// In [`Format::Fasr`] the same as in [`FasrReadFields`], otherwise zero.
        expected_psn: PackedPsn,
    },
    /// Request for an operation of the memory placement extensions.
    PlacementRequest {
        /// First address.
        va: u64,
        /// Key that grants access.
        rkey: u32,
        /// Operation to perform.
        op: PlacementOp,
        /// Same as in `AtomicRequest`.
        read_sn: Option<WqeSn>,
        /// Same as in `AtomicRequest`.
        expected_psn: PackedPsn,
    },
    /// Response with the value from before an atomic operation.
    AtomicResponse {
        /// Acknowledgement header of the response.
        aeth: Aeth,
        /// Value from before the operation.
        original: u64,
        /// Always present in [`Format::Fasr`], never in other formats.
        sink: Option<Sink>,
    },
    /// Acknowledges requests. The packet's PSN is, for an ACK, the last packet received in order; for a NAK or RNR NAK,
    /// the packet expected next.
    Ack {
        /// Acknowledgement header of the response.
        aeth: Aeth,
        /// In [`Format::Irn`]: the packet whose out-of-order arrival triggered this acknowledgement, when the packet
        /// was stored.
        sack: Option<Psn>,
    },
    /// An acknowledgement that carries a loss report ([`Format::Fasr`] only); the PSN is as in `Ack`.
    LossAck {
        /// Acknowledgement header: an ACK for [`LossCause::Repaired`], otherwise a NAK for a missing packet.
        aeth: Aeth,
        /// Loss report.
        report: LossReportFields,
    },
    /// Acknowledges Read and atomic responses ([`Format::Irn`] only; with FaSR, responses are acknowledged like other
    /// packets); fields as in `Ack`.
    ReadAck {
        /// Acknowledgement header; the MSN field is zero.
        aeth: Aeth,
        /// See `Ack`.
        sack: Option<Psn>,
    },
    /// Negative acknowledgement of a packet whose payload a switch has cut ([`Packet::is_trimmed`]; [`Format::Irn`]
    /// only). The packet's PSN is the packet expected next, as in a NAK.
    TrimNack {
        /// Acknowledgement header: a NAK for a missing packet.
        aeth: Aeth,
        /// Packet that arrived without its payload.
        trimmed: Psn,
        /// True when that packet is a Read response; the MSN field is then zero.
        of_response: bool,
    },
    /// Grants the receiver of the pull the transmission of further packets ([`Format::Irn`] only). The packet's PSN is
    /// zero.
    Pull {
        /// Number of packets granted since the connection exists, modulo 2^24. Packets that may be sent without a grant
        /// are not included.
        granted: Serial<24>,
    },
    /// A message in one packet, to a queue pair with the same queue key ([`Format::UnreliableDatagram`] only).
    Datagram {
        /// Queue key; the receiver accepts the datagram only with its own key.
        queue_key: u32,
        /// Queue pair that sent the datagram.
        source_qpn: Qpn,
        /// Four bytes of immediate data for the receiver's completion.
        immediate: Option<u32>,
    },
    /// Congestion notification packet: data packets of its receiver have experienced congestion.
    Cnp,
}

impl Headers {
    /// Returns whether packets with these headers can have payload on a reliable connection.
    #[inline]
    pub const fn carry_data(&self) -> bool {
        matches!(
            self,
            Self::Send { .. }
                | Self::Write { .. }
                | Self::SharedSend { .. }
                | Self::SharedWrite { .. }
                | Self::ReadResponse { .. }
        )
    }

    /// Returns the shared receive queue named in the packet.
    #[inline]
    pub const fn srqn(&self) -> Option<Qpn> {
        match self {
            Self::SharedSend { srqn, .. } | Self::SharedWrite { srqn, .. } => Some(*srqn),
            _ => None,
        }
    }

    /// Returns the headers without the shared receive queue number, as on a connection of two ordinary queue pairs.
    #[inline]
    pub const fn unshared(self) -> Self {
        match self {
            Self::SharedSend { position, tail, placement, .. } => Self::Send { position, tail, placement },
            Self::SharedWrite { position, reth, immediate, recv_sn, .. } => {
                Self::Write { position, reth, immediate: Some(immediate), recv_sn }
            }
            plain => plain,
        }
    }

    /// Returns the headers with a shared receive queue number; `None` for headers that do not consume a receive.
    #[inline]
    pub const fn shared(self, srqn: Qpn) -> Option<Self> {
        match self {
            Self::Send { position, tail, placement } => Some(Self::SharedSend { srqn, position, tail, placement }),
            Self::Write { position, reth, immediate: Some(immediate), recv_sn } => {
                Some(Self::SharedWrite { srqn, position, reth, immediate, recv_sn })
            }
            _ => None,
        }
    }
}

/// One packet without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// Destination queue pair.
    pub dest_qpn: Qpn,
    /// Sequence number.
    pub psn: Psn,
    /// Single-bit fields.
    pub flags: PacketFlags,
    /// Length of the payload in bytes, without padding.
    pub payload_len: u32,
    /// Extended headers.
    pub headers: Headers,
}

impl Packet {
    /// Returns whether a switch has cut the packet's payload: a data packet of [`Format::Irn`], the only format with
    /// such packets, that has no payload and the flag FECN.
    #[inline]
    pub const fn is_trimmed(&self) -> bool {
        self.flags.fecn && self.payload_len == 0 && self.headers.carry_data()
    }

    /// Returns the packet as a switch forwards it after cutting its payload (NDP, SIGCOMM'17, section 3.1); `None`
    /// for a packet without payload, or of a format whose receivers do not know such packets.
    pub const fn trimmed(&self, format: Format) -> Option<Self> {
        if !matches!(format, Format::Irn) || self.payload_len == 0 || !self.headers.carry_data() {
            return None;
        }
        let flags = PacketFlags { fecn: true, ..self.flags };
        Some(Self { payload_len: 0, flags, ..*self })
    }
}

// One cache line, because the engine and the fabric pass packets by value.
const _: () = assert!(size_of::<Packet>() <= 64);
