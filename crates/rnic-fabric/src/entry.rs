//! A packet as the network handles it: 24 bytes copied by value; 32 together with the time of arrival or the position
//! in a queue.
//!
//! A switch needs a destination, a length, a hash and a few flags; the data that only the hosts interpret (headers,
//! payload) is stored in [`crate::packets`] under an index. Entries are copied from ring to ring instead of being
//! kept in a slab: a ring is read and written in sequence, so the next entry is already in the cache, and no node
//! accesses memory that another node owns.

use rnic_wire::net::{INTERFRAME_GAP_LEN, PREAMBLE_LEN};

/// A packet on a link or in a switch. Few of its fields change in the network: it is copied as one value, because a
/// copy directly after a write to one of its fields stalls the processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Identity of the packet for the trace: the same in every run and in every order of execution.
    pub(crate) identity: u64,
    /// Hash that switches use to choose a path: of source, destination and label.
    pub(crate) flow_hash: u32,
    /// Index of its headers and payload in [`crate::packets`].
    pub(crate) packet: u32,
    /// Destination host in the low 24 bits, [`Flags`] in the bits above.
    pub(crate) dst_and_flags: u32,
    /// Length of the Ethernet frame in bytes, including header and frame check sequence.
    pub(crate) frame_len: u16,
    /// Input port at which the packet arrived, while it is queued in a switch; in the bits from [`CLASS_SHIFT`] on the
    /// class of the packet, or of those that a pause frame stops.
    pub(crate) input: u16,
}

const _: () = assert!(size_of::<Entry>() == 24);

/// Flags of an entry, stored next to its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(u32);

impl Flags {
    /// No flag: a data packet.
    pub(crate) const NONE: Self = Self(0);
    /// An acknowledgement of any type, or a notification.
    pub(crate) const ACK: Self = Self(1 << 24);
    /// Congestion was marked by a switch on the path.
    pub(crate) const MARKED: Self = Self(1 << 25);
    /// Bits were flipped on a link.
    pub(crate) const CORRUPT: Self = Self(1 << 26);
    /// A pause frame that stops the neighbour.
    pub(crate) const PAUSE: Self = Self(1 << 27);
    /// A pause frame that permits the neighbour to resume (XON).
    pub(crate) const RESUME: Self = Self(1 << 28);
    /// A Falcon packet: its headers are stored in a separate slab.
    pub(crate) const FALCON: Self = Self(1 << 29);
    /// A message between NICs, or a TCP segment: stored in a separate slab.
    pub(crate) const MESSAGE: Self = Self(1 << 30);
    /// A switch has cut the payload.
    pub(crate) const TRIMMED: Self = Self(1 << 31);
    /// A message as hosts send it. It counts as a notification: it is not marked, and its loss is not one of data.
    pub(crate) const SENT_MESSAGE: Self = Self(Self::MESSAGE.0 | Self::ACK.0);
    /// A Falcon packet that is an acknowledgement.
    pub(crate) const FALCON_ACK: Self = Self(Self::FALCON.0 | Self::ACK.0);
}

/// Maximum number of hosts that an entry can address.
pub(crate) const HOSTS_MAX: u32 = 1 << 24;

impl Entry {
    pub(crate) fn new(identity: u64, flow_hash: u32, packet: u32, dst: u32, frame_len: u32, flags: Flags) -> Self {
        debug_assert!(dst < HOSTS_MAX && frame_len <= u32::from(u16::MAX));
        Self { identity, flow_hash, packet, dst_and_flags: dst | flags.0, frame_len: frame_len as u16, input: 0 }
    }

    /// Returns a pause frame with `flags`.
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

    /// Returns whether the entry is no packet for a queue pair: a pause frame, a message between NICs, a TCP segment.
    #[inline]
    pub(crate) fn is_for_nic(&self) -> bool {
        self.dst_and_flags & (Flags::PAUSE.0 | Flags::RESUME.0 | Flags::MESSAGE.0) != 0
    }

    /// Returns the class of the packet, or of those that a pause frame stops; 0 in a network without classes.
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        (self.input >> CLASS_SHIFT) as u8
    }

    /// Sets the class of a packet that is in no queue.
    #[inline]
    pub(crate) fn set_class(&mut self, class: u8) {
        self.input = u16::from(class) << CLASS_SHIFT;
    }

    /// Returns a pause frame with `flags` for one class.
    pub(crate) fn class_pause_frame(flags: Flags, class: u8) -> Self {
        let mut frame = Self::pause_frame(flags);
        frame.set_class(class);
        frame.identity |= u64::from(class);
        frame
    }

    /// Returns the input port of a packet that is queued in a switch with classes.
    #[inline]
    pub(crate) fn input_port(&self) -> usize {
        usize::from(self.input & ((1 << CLASS_SHIFT) - 1))
    }

    /// Returns the number of byte times that the packet occupies a link.
    #[inline]
    pub(crate) fn link_len(&self) -> u64 {
        u64::from(self.frame_len) + LINK_OVERHEAD
    }

    /// Returns the value that the trace records for this packet, in addition to time and node.
    #[inline]
    pub(crate) fn trace_word(&self) -> u64 {
        self.identity ^ u64::from(self.dst_and_flags) << 32
    }
}

/// Position of the class above the number of a port.
pub(crate) const CLASS_SHIFT: u32 = 13;

const _: () = assert!(rnic_engine::CLASSES_MAX <= 1 << (u16::BITS - CLASS_SHIFT));

/// Packet index of an entry that has no headers: pause frames.
pub(crate) const NO_PACKET: u32 = u32::MAX;

/// Length of a pause frame in bytes: a minimal Ethernet frame (IEEE 802.1Qbb).
pub(crate) const PAUSE_FRAME_LEN: u32 = 64;

/// Preamble and interframe gap in bytes: the part of a frame that occupies a link but no buffer.
pub(crate) const LINK_OVERHEAD: u64 = (PREAMBLE_LEN + INTERFRAME_GAP_LEN) as u64;
