//! A packet as the network sees it: 24 bytes that travel by value; 32 with the time of arrival, or with the place in a
//! queue.
//!
//! A switch needs a destination, a length, a hash and a few flags; what only the ends understand (headers, payload)
//! stays in [`crate::packets`] under an index. Entries are copied from ring to ring instead of lying in a slab: a ring
//! is read and written in sequence, so the next entry is already in the cache, and no node reaches into memory that
//! another node owns.

use rnic_wire::net::{INTERFRAME_GAP_LEN, PREAMBLE_LEN};

/// A packet on a link or in a switch. Little of it changes on the way: it is copied whole, and a copy
/// that follows a change of a part at once makes the processor wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Who it is, for the trace: the same in every run and in every order of execution.
    pub(crate) identity: u64,
    /// What switches hash: source, destination, label.
    pub(crate) flow_hash: u32,
    /// Where its headers and payload are.
    pub(crate) packet: u32,
    /// Destination host, and flags above it.
    pub(crate) dst_and_flags: u32,
    /// Bytes of the Ethernet frame, header to frame check sequence.
    pub(crate) frame_len: u16,
    /// The port that it came in at, while it waits.
    pub(crate) input: u16,
}

const _: () = assert!(size_of::<Entry>() == 24);

/// What is said of an entry beside its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(u32);

impl Flags {
    /// Data.
    pub(crate) const NONE: Self = Self(0);
    /// An acknowledgement of any kind, or a notification.
    pub(crate) const ACK: Self = Self(1 << 24);
    /// A switch on the way was congested.
    pub(crate) const MARKED: Self = Self(1 << 25);
    /// Bits were flipped on the way.
    pub(crate) const CORRUPT: Self = Self(1 << 26);
    /// A pause frame: stop.
    pub(crate) const PAUSE: Self = Self(1 << 27);
    /// A pause frame: go on.
    pub(crate) const RESUME: Self = Self(1 << 28);
    /// A Falcon packet: its headers lie apart.
    pub(crate) const FALCON: Self = Self(1 << 29);
    /// A Falcon packet that is an acknowledgement.
    pub(crate) const FALCON_ACK: Self = Self(Self::FALCON.0 | Self::ACK.0);
}

/// Hosts that an entry can name.
pub(crate) const HOSTS_MAX: u32 = 1 << 24;

impl Entry {
    pub(crate) fn new(identity: u64, flow_hash: u32, packet: u32, dst: u32, frame_len: u32, flags: Flags) -> Self {
        debug_assert!(dst < HOSTS_MAX && frame_len <= u32::from(u16::MAX));
        Self { identity, flow_hash, packet, dst_and_flags: dst | flags.0, frame_len: frame_len as u16, input: 0 }
    }

    /// The pause frame that says `flags`.
    pub(crate) fn pause_frame(flags: Flags) -> Self {
        Self::new(u64::from(flags.0), 0, NO_PACKET, 0, PAUSE_FRAME_LEN, flags)
    }

    #[inline]
    pub(crate) fn dst(&self) -> u32 {
        self.dst_and_flags & (HOSTS_MAX - 1)
    }

    #[inline]
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.dst_and_flags & flags.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: Flags) {
        self.dst_and_flags |= flags.0;
    }

    #[inline]
    pub(crate) fn is_pause_frame(&self) -> bool {
        self.dst_and_flags & (Flags::PAUSE.0 | Flags::RESUME.0) != 0
    }

    /// Byte times that it keeps a link busy.
    #[inline]
    pub(crate) fn link_len(&self) -> u64 {
        u64::from(self.frame_len) + LINK_OVERHEAD
    }

    /// What the trace records of it, beside when and where.
    #[inline]
    pub(crate) fn trace_word(&self) -> u64 {
        self.identity ^ u64::from(self.dst_and_flags) << 32
    }
}

/// The index of a packet that has none: pause frames.
pub(crate) const NO_PACKET: u32 = u32::MAX;

/// A pause frame is a minimal Ethernet frame (IEEE 802.1Qbb).
pub(crate) const PAUSE_FRAME_LEN: u32 = 64;

/// Preamble and gap: what a frame takes on a link and not in a buffer.
pub(crate) const LINK_OVERHEAD: u64 = (PREAMBLE_LEN + INTERFRAME_GAP_LEN) as u64;
