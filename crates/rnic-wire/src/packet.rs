//! The representation of one RDMA packet, as the engine makes and takes it.
//!
//! A [`Packet`] holds exactly what its headers say, no more: what a protocol does not carry on the wire (RoCE's middle
//! Write packets have no address) is `None` here too, so that a simulation that never encodes a packet cannot know more
//! than one that does. `tests/` holds the proof: the trace hash of a run is the same with every packet encoded to bytes
//! and back.
//!
//! Sources: InfiniBand Architecture volume 1, chapter 9 (BTH, RETH, AETH, AtomicETH, ImmDt, IETH; opcodes in table 38),
//! annex A17 (RoCEv2, CNP); IRN (SIGCOMM'18) section 5 for what [`Format::Irn`] adds, FaSR (2025) section IV-D for what
//! [`Format::Fasr`] does.

use core::fmt;

use rnic_base::{Psn, Serial};

/// Which headers a connection's packets carry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// InfiniBand transport headers over UDP, unchanged.
    RoceV2,
    /// RoCEv2 with IRN's extensions: RETH in every Write packet, WQE sequence numbers, offsets, a SACK field in every
    /// acknowledgement, acknowledgements for Read responses.
    Irn,
    /// RoCEv2 with FaSR's extensions: an address in every Write packet, a place in every Send packet, and what the
    /// receiver misses in acknowledgements that report losses.
    Fasr,
    /// RoCEv2's unreliable connections: Sends and Writes that nobody acknowledges.
    UnreliableConnection,
    /// RoCEv2's unreliable datagrams: a message is one packet, which says whom it comes from.
    UnreliableDatagram,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::RoceV2, Self::Irn, Self::Fasr, Self::UnreliableConnection, Self::UnreliableDatagram];

    /// Whether each packet can be placed alone, and responses are acknowledged.
    #[inline]
    pub const fn places_alone(self) -> bool {
        matches!(self, Self::Irn | Self::Fasr)
    }
}

/// A queue pair number: 24 bits, chosen by the receiver of packets that carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The largest number.
    pub const MAX: Self = Self(0xff_ffff);

    /// The queue pair for connection management (general services interface).
    pub const GSI: Self = Self(1);

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

    /// Whether it belongs to management (IBA 10.3.1.1): 0 for subnet, 1 for general services.
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

/// IRN's `recv_WQE_SN` and `read_WQE_SN`: the place of a work request in its queue, counted from 0, modulo 2^24.
pub type WqeSn = Serial<24>;

/// The single-bit fields of the base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PacketFlags {
    /// Solicited event: wakes a receiver that asked to be woken for such messages only.
    pub solicited: bool,
    /// The sender wants an acknowledgement of this packet.
    pub ack_request: bool,
    /// Forward congestion notification (FECN): unused by RoCEv2, which has the IP header's ECN bits.
    pub fecn: bool,
    /// Backward congestion notification (BECN): set in CNPs.
    pub becn: bool,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// The position of packet `index` of a message of `count` packets.
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

    /// Whether a message starts here.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends here.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// RDMA extended transport header: what remote memory is meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Reth {
    /// Virtual address. In [`Format::RoceV2`] that of the message's first byte; in [`Format::Irn`], where every Write
    /// packet has a RETH, that of this packet's own first byte, so that it can be placed alone (IRN section 5.3.1); so
    /// in [`Format::Fasr`].
    pub va: u64,
    /// The key that grants access.
    pub rkey: u32,
    /// Length of the whole message in bytes; in [`Format::Fasr`] zero where a packet neither begins the message nor
    /// brings the immediate that ends it.
    pub dma_len: u32,
}

/// Why a responder refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// An earlier packet is missing.
    PsnSequenceError,
    /// The request is malformed or not supported here.
    InvalidRequest,
    /// The key, range or rights do not cover the request.
    RemoteAccessError,
    /// The responder failed on its own.
    RemoteOperationalError,
}

/// What an acknowledgement says, beside its PSN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Received, with end-to-end credits in their 5-bit encoding; 31 means "not counted".
    Ack {
        /// The encoded credit count.
        credits: u8,
    },
    /// No receive work request is posted: come back after the time that the 5-bit code stands for.
    RnrNak {
        /// The encoded wait.
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
}

impl Syndrome {
    /// A plain acknowledgement that counts no credits.
    pub const ACK: Self = Self::Ack { credits: 31 };
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// What is said.
    pub syndrome: Syndrome,
    /// Messages the responder has completed, modulo 2^24.
    pub msn: Serial<24>,
}

/// What a receiver of [`Format::Fasr`] says with an acknowledgement that concerns losses (sections III-B, III-D, IV-D).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LossNote {
    /// What it answers.
    pub cause: LossCause,
    /// The packet that it answers.
    pub psn: Psn,
    /// Packets missing below the highest that is here: `lost-cnt`, 0 to 7.
    pub lost: u8,
    /// There are, or were, more in this recovery than the counter can say.
    pub overflow: bool,
}

/// FaSR's kinds of acknowledgements, beside the plain one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossCause {
    /// SACK: a packet came early and was kept.
    Early,
    /// AACK: a packet that had been missing came.
    Repaired,
    /// FNACK: a packet came from between the first missing and the highest packet, and was dropped.
    Misplaced,
}

/// Where a Send packet belongs, independent of the packets before it ([`Format::Irn`], section 5.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendPlacement {
    /// Which receive work request.
    pub recv_sn: WqeSn,
    /// How many packets of the message precede this one.
    pub offset: Serial<24>,
}

/// What a Read request says of itself in [`Format::Fasr`], where the answer comes as the responder's own packets do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Asked {
    /// The packet that the requester expects next from the responder: where the numbers of a responder that has never
    /// sent anything begin.
    pub expects: Psn,
    /// When this copy of the request left, by the requester's clock: a request that is submitted again has a later one.
    pub stamp: u32,
}

/// A PSN in three bytes: an atomic request has no room for more.
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

/// Where a packet of an answer belongs, whatever came before it ([`Format::Fasr`]): the remote address of a Write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sink {
    /// Which Read or atomic it answers: this names the memory, as a key does, for as long as the request is under way.
    pub read_sn: WqeSn,
    /// Address of the packet's first byte in that memory, which begins at 0.
    pub offset: u64,
}

/// What the last packet of a Send carries beside data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendTail {
    /// Nothing.
    Plain,
    /// Four bytes for the completion.
    Immediate(u32),
    /// A key to invalidate.
    Invalidate(u32),
}

/// The two atomic operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// Store `swap` when the value equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add `add`, wrapping.
    FetchAdd {
        /// Summand.
        add: u64,
    },
}

/// The operations of the memory placement extensions (InfiniBand Architecture volume 1, annex A19). Each is done once
/// everything before it has been, and answered by a Read response without payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlacementOp {
    /// Store eight bytes, all at once.
    AtomicWrite {
        /// The bytes, in the order in which they lie in memory.
        value: [u8; 8],
    },
    /// Make sure of what has been written before.
    Flush {
        /// Bytes, when a range is meant.
        len: u32,
        /// Four bits of what to make sure of: 1 visible to everybody, 2 persistent.
        placement: u8,
        /// Two bits of what is meant: 0 a range, 1 all that the key grants; others are reserved.
        selectivity: u8,
    },
}

/// The extended headers, by kind of packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Headers {
    /// Data for a posted receive.
    Send {
        /// Place in the message.
        position: Position,
        /// Immediate or key; only where the message ends.
        tail: SendTail,
        /// In [`Format::Irn`] and [`Format::Fasr`] always, in [`Format::RoceV2`] never.
        placement: Option<SendPlacement>,
    },
    /// Data for remote memory.
    Write {
        /// Place in the message.
        position: Position,
        /// In [`Format::RoceV2`] where the message starts; in [`Format::Irn`] and [`Format::Fasr`] always.
        reth: Option<Reth>,
        /// Four bytes for the receiver's completion; only where the message ends.
        immediate: Option<u32>,
        /// Which receive work request the immediate consumes; in [`Format::Irn`] and [`Format::Fasr`] together with it.
        recv_sn: Option<WqeSn>,
    },
    /// As `Send`, to a queue pair that takes receives from the shared receive queue that the packet names: extended
    /// reliable connections (XRC).
    SharedSend {
        /// The number of the queue.
        srqn: Qpn,
        /// As in `Send`.
        position: Position,
        /// As in `Send`.
        tail: SendTail,
        /// As in `Send`.
        placement: Option<SendPlacement>,
    },
    /// As the end of a `Write` with immediate, in the same way.
    SharedWrite {
        /// The number of the queue.
        srqn: Qpn,
        /// As in `Write`: last or only.
        position: Position,
        /// As in `Write`.
        reth: Option<Reth>,
        /// As in `Write`.
        immediate: u32,
        /// As in `Write`.
        recv_sn: Option<WqeSn>,
    },
    /// Asks for remote memory.
    ReadRequest {
        /// What to read.
        reth: Reth,
        /// Slot of the responder's Read WQE buffer; in [`Format::Irn`] and [`Format::Fasr`] always.
        read_sn: Option<WqeSn>,
        /// In [`Format::Fasr`] always, else never.
        asked: Option<Asked>,
    },
    /// Data that was asked for.
    ReadResponse {
        /// Place in the response.
        position: Position,
        /// Everywhere but in the middle.
        aeth: Option<Aeth>,
        /// In [`Format::Fasr`] always, else never.
        sink: Option<Sink>,
    },
    /// Asks for an atomic operation on eight bytes.
    AtomicRequest {
        /// Address, a multiple of 8.
        va: u64,
        /// The key that grants access.
        rkey: u32,
        /// What to do.
        op: AtomicOp,
        /// Slot of the responder's Read WQE buffer; in [`Format::Irn`] and [`Format::Fasr`] always.
        read_sn: Option<WqeSn>,
        /// In [`Format::Fasr`] as in [`Asked`], else zero.
        expects: PackedPsn,
    },
    /// Asks for an operation of the memory placement extensions.
    PlacementRequest {
        /// First address.
        va: u64,
        /// The key that grants access.
        rkey: u32,
        /// What to do.
        op: PlacementOp,
        /// As in `AtomicRequest`.
        read_sn: Option<WqeSn>,
        /// As in `AtomicRequest`.
        expects: PackedPsn,
    },
    /// The value from before an atomic operation.
    AtomicResponse {
        /// Acknowledgement part.
        aeth: Aeth,
        /// What was there before.
        original: u64,
        /// In [`Format::Fasr`] always, else never.
        sink: Option<Sink>,
    },
    /// Acknowledges requests. The packet's PSN is, for an ACK, the last packet received in order; for a NAK or RNR NAK,
    /// the packet expected next.
    Ack {
        /// Acknowledgement part.
        aeth: Aeth,
        /// In [`Format::Irn`]: the packet whose out-of-order arrival triggered this, when it was kept.
        sack: Option<Psn>,
    },
    /// An acknowledgement that reports on losses ([`Format::Fasr`] only); the PSN as in `Ack`.
    LossAck {
        /// Acknowledgement part: an ACK for [`LossCause::Repaired`], else a NAK for a missing packet.
        aeth: Aeth,
        /// The report.
        note: LossNote,
    },
    /// Acknowledges Read and atomic responses ([`Format::Irn`] only: FaSR's are packets like any other); fields as in
    /// `Ack`.
    ReadAck {
        /// Acknowledgement part; the MSN field is zero.
        aeth: Aeth,
        /// See `Ack`.
        sack: Option<Psn>,
    },
    /// A message in one packet for whoever has the queue key ([`Format::UnreliableDatagram`] only).
    Datagram {
        /// The key that lets it in.
        queue_key: u32,
        /// The queue pair that it comes from.
        source_qpn: Qpn,
        /// Four bytes for the receiver's completion.
        immediate: Option<u32>,
    },
    /// Congestion notification packet: the sender's data met congestion.
    Cnp,
}

impl Headers {
    /// The shared receive queue that the packet names.
    #[inline]
    pub const fn srqn(&self) -> Option<Qpn> {
        match self {
            Self::SharedSend { srqn, .. } | Self::SharedWrite { srqn, .. } => Some(*srqn),
            _ => None,
        }
    }

    /// The same without that name, as it is between two queue pairs alone.
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

    /// The same with the name of a shared receive queue; `None` of what takes no receive.
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
    /// The queue pair that it is for.
    pub dest_qpn: Qpn,
    /// Its sequence number.
    pub psn: Psn,
    /// Single-bit fields.
    pub flags: PacketFlags,
    /// Payload bytes, without padding.
    pub payload_len: u32,
    /// Everything else.
    pub headers: Headers,
}

// One cache line: the engine and the fabric hand packets around by value.
const _: () = assert!(size_of::<Packet>() <= 64);
