//! FaSR's loss recovery with the state of the circuits in `rtl/fasr`: packet numbers of 24 bits, lists of blocks by
//! index, and a pool from which the first free unit or block is taken.
//!
//! Source: FaSR (2025) sections III and IV-B. The mechanisms and choices are those of the engine (its `window/pool.rs`,
//! and `recovery/fasr.rs` of rnic-transports), which a test compares with this text on the same events. Choices of
//! hardware, where the paper does not specify:
//!
//! * of the sender's state, the flags, the count that was last reported and UNACK are in the context of the queue pair;
//!   the paper has them in the unit. Without this a sender for which no unit is free would retransmit the same window
//!   for every report;
//! * a receiver without a unit stores in the context up to which packet it keeps none;
//! * retransmissions are ranges, or the zeros of a block, in the order of the events. A packet that is requested twice
//!   is sent twice, as there is no bitmap of requested packets.

mod endpoint;
pub mod gbn;
mod pack;
mod place;
mod pool;
pub mod rx;
pub mod sr;
pub mod tx;

pub use endpoint::Endpoint;
pub use pack::Pack;
pub use place::{Place, place};
pub use pool::{Pool1, Pool2};

/// Number of units of the pool (section III-D).
pub const UNITS: usize = 20;

/// Number of blocks of the pool (section III-D).
pub const BLOCKS: usize = 70;

/// Number of bits of a block (section III-D).
pub const BLOCK_BITS: u32 = 10;

/// Number of packets from RCV-NXT on that a receiver can record.
pub const REACH: u32 = 512;

/// Maximum number of packets in flight of a queue pair.
pub const CAP: u32 = 500;

/// Number of packet numbers.
pub const PSNS: u32 = 1 << 24;

/// Returns `psn + packets`.
pub const fn plus(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) % PSNS
}

/// Returns the distance from `from` to `to`, modulo the number of packet numbers.
pub const fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) % PSNS
}

/// Returns whether `psn` follows `other`: by less than half of all packet numbers.
pub const fn is_after(psn: u32, other: u32) -> bool {
    let distance = distance(other, psn);
    distance != 0 && distance < PSNS / 2
}

/// `lost-cnt`: number of packets that a receiver misses below the highest one received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// The number, at most seven.
    pub count: u8,
    /// Set when more than seven were missing, until the recovery is over; the number stays at seven.
    pub overflow: bool,
}

impl Lost {
    /// Returns whether exactly one packet is missing.
    pub const fn is_one(self) -> bool {
        self.count == 1 && !self.overflow
    }

    /// Returns whether no packet is missing.
    pub const fn is_none(self) -> bool {
        self.count == 0 && !self.overflow
    }

    /// Returns whether more than one packet is missing.
    pub const fn is_several(self) -> bool {
        self.count > 1 || self.overflow
    }

    const fn with(self, packets: u32) -> Self {
        let sum = self.count as u32 + packets;
        if self.overflow || sum > 7 { Self { count: 7, overflow: true } } else { Self { count: sum as u8, ..self } }
    }
}

/// A bitmap of a unit: the packets received behind a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lane {
    /// Set while it is in use.
    pub open: bool,
    /// Receiver: set when no further packets are kept until the recovery is over.
    pub fallen: bool,
    /// Set while there are blocks.
    pub slow: bool,
    /// Receiver: number of missing packets.
    pub lost: Lost,
    /// `sack-high`: the highest packet received.
    pub high: u32,
    /// `compression-cnt`: consecutive packets received directly behind the gap.
    pub run: u16,
    /// Packet of the first bit of the head block.
    pub base: u32,
    /// Packet of the first bit of the tail block.
    pub last: u32,
    /// Index of the first block of the list.
    pub head: u8,
    /// Index of the last block of the list.
    pub tail: u8,
}

impl Lane {
    /// Returns a bitmap without any packet behind the gap at `hole`.
    pub fn opened(hole: u32) -> Self {
        Self { open: true, high: hole, ..Self::default() }
    }
}

/// A unit of the pool: the bitmaps of a queue pair's receiver and sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unit {
    /// Packets that the receiver has kept.
    pub rx: Lane,
    /// Packets that the peer has reported as kept.
    pub tx: Lane,
}

/// Context of a queue pair: the group that the SR module writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Context {
    /// RCV-NXT: the next packet in order.
    pub rcv_nxt: u32,
    /// The last packet seen behind a gap that was reported by a NAK, until RCV-NXT advances.
    pub gap_at: Option<u32>,
    /// No packet is kept before RCV-NXT has reached this one, because there was no unit or no block.
    pub refuses_to: Option<u32>,
    /// UNACK: the oldest packet that is not acknowledged.
    pub una: u32,
    /// Set while the sender recovers from a loss.
    pub recovering: bool,
    /// Set after an FNACK, NAK or timeout was processed, until UNACK advances.
    pub acted: bool,
    /// The number of missing packets that the peer has last reported.
    pub lost: Lost,
    /// The unit that the queue pair holds.
    pub unit: Option<u8>,
}

/// The retransmission timer of a queue pair, in units of the circuit's clock of 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timer {
    /// Set while it runs.
    pub on: bool,
    /// Set when it was extended since it was last started.
    pub extended: bool,
    /// Time at which it expires.
    pub deadline: u32,
}

impl Timer {
    /// Returns whether the timer has expired.
    pub fn is_due(&self, now: u32) -> bool {
        self.on && !is_after(self.deadline, now)
    }
}

/// Kinds of events of the SR module, in the order of their codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A data packet was received.
    Data,
    /// An acknowledgement.
    Ack,
    /// The report of a packet that was kept.
    Sack,
    /// The acknowledgement of a packet that was missing.
    Aack,
    /// The report of a packet between the gap and the highest one.
    Fnack,
    /// The report of a receiver that keeps no packet.
    Nak,
    /// The timer has expired.
    Timeout,
    /// The timer has expired, and is to be extended.
    Extend,
    /// The timer is to be started: packets are in flight without it.
    Arm,
    /// The queue pair is destroyed.
    Release,
}

impl Kind {
    /// All kinds, by code.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Ack,
        Self::Sack,
        Self::Aack,
        Self::Fnack,
        Self::Nak,
        Self::Timeout,
        Self::Extend,
        Self::Arm,
        Self::Release,
    ];
}

/// An event of the SR module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Index of the queue pair.
    pub qp: u16,
    /// Kind of event.
    pub kind: Kind,
    /// The packet received, or the packet that the peer expects.
    pub cumulative: u32,
    /// The packet reported by a SACK or FNACK.
    pub psn: u32,
    /// The number of missing packets reported.
    pub lost: Lost,
}

/// Kinds of acknowledgements, in the order of their codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Say {
    /// Everything before RCV-NXT was received.
    Ack,
    /// The packet was kept.
    Sack,
    /// A missing packet was received.
    Aack,
    /// The packet was dropped: it is between the gap and the highest one.
    Fnack,
    /// The packet was dropped: it cannot be recorded.
    Nak,
    /// None is sent.
    Nothing,
}

/// An acknowledgement to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Index of the queue pair.
    pub qp: u16,
    /// Kind of acknowledgement.
    pub say: Say,
    /// Set if the packet's payload is written to memory.
    pub placed: bool,
    /// RCV-NXT.
    pub cumulative: u32,
    /// The packet that is acknowledged.
    pub psn: u32,
    /// The number of missing packets.
    pub lost: Lost,
}

/// Packets to retransmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retransmission {
    /// Index of the queue pair.
    pub qp: u16,
    /// The first packet, or that of bit 0.
    pub psn: u32,
    /// Set if the packets are the bits of `argument`; otherwise their number is `argument`.
    pub is_map: bool,
    /// A number of packets or a bitmap.
    pub argument: u16,
}

impl Retransmission {
    /// Returns the packets, in ascending order.
    pub fn packets(self) -> impl Iterator<Item = u32> {
        let end = if self.is_map { BLOCK_BITS } else { self.argument.into() };
        (0..end).filter(move |at| !self.is_map || self.argument & 1 << at != 0).map(move |at| plus(self.psn, at))
    }
}

/// Steps on the blocks of a bitmap that follow an event's decision, in the order of their codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// None.
    Nothing,
    /// Further blocks are taken.
    Append,
    /// The next gap is searched from this packet on.
    Walk,
    /// All blocks are released.
    Release,
    /// The blocks before UNACK are released, and then the event is processed again.
    Trim,
    /// A bit is set in a block that is not the last.
    Seek,
    /// The packets whose bits are zero are retransmitted.
    Scan,
}

/// Access to the blocks in the cycle of the decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Number of blocks to take; if zero, a bit is set in the tail block.
    pub needed: u8,
    /// The bit of the packet in its block.
    pub bit: u16,
    /// Bits of the first block that were a number before.
    pub first: u16,
}
