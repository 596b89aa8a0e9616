//! The state of a flow, in four groups (Tonic, table 2 and section 4). The data delivery engine stores the *window*
//! (range of segments, and which are acknowledged) and the *duty* (what is to be done: retransmissions, timer, rate);
//! the credit engine stores the *ring* of segments to be transmitted and the *credit*.
//!
//! Each field is declared once, with its width. From this declaration follow the number of bits of a group, its packed
//! form, with which generated hardware is compared, and the list of fields. Two fields are not in Tonic's table:
//! `limit`, the end of the segments that the driver has announced, and the length of a short last segment.

use crate::bits::RingMap;
use crate::program::Scheme;
use crate::shape::{LENGTH_BITS, RING_MAX, SegmentId, Shape, Ticks};

/// A field of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// Width in bits; zero when the credit scheme does not use it.
    pub bits: u32,
}

/// Fields packed into words, the first field lowest, without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packed {
    words: Vec<u64>,
    bits: u32,
}

impl Packed {
    /// Returns the words; bits beyond [`Packed::bits`] are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Appends the lowest `bits` bits of `value`.
    ///
    /// # Panics
    /// When the value is wider: the declared width of its field is then wrong.
    pub fn put(&mut self, value: u64, bits: u32) {
        assert!(bits >= 64 || value >> bits == 0, "{value:#x} does not fit into {bits} bits");
        if bits == 0 {
            return;
        }
        let shift = self.bits % 64;
        if shift == 0 {
            self.words.push(0);
        }
        let last = self.words.len() - 1;
        self.words[last] |= value << shift;
        if shift + bits > 64 {
            self.words.push(value >> (64 - shift));
        }
        self.bits += bits;
    }
}

/// A value that can be stored in a field.
pub(crate) trait Pack {
    fn pack(&self, bits: u32, packed: &mut Packed);
}

impl Pack for bool {
    fn pack(&self, bits: u32, packed: &mut Packed) {
        packed.put(u64::from(*self), bits);
    }
}

impl Pack for SegmentId {
    fn pack(&self, bits: u32, packed: &mut Packed) {
        packed.put(u64::from(self.value()), bits);
    }
}

impl Pack for u64 {
    fn pack(&self, bits: u32, packed: &mut Packed) {
        packed.put(*self, bits);
    }
}

macro_rules! pack_small {
    ($($type:ty)*) => {
        $(impl Pack for $type {
            fn pack(&self, bits: u32, packed: &mut Packed) {
                packed.put(u64::from(*self), bits);
            }
        })*
    };
}
pack_small!(u8 u16 u32);

impl Pack for RingMap {
    fn pack(&self, bits: u32, packed: &mut Packed) {
        let mut left = bits;
        for word in self.words() {
            packed.put(*word, left.min(64));
            left -= left.min(64);
        }
    }
}

impl Pack for [Entry; RING_MAX as usize] {
    fn pack(&self, bits: u32, packed: &mut Packed) {
        for entry in &self[..(bits / Entry::BITS) as usize] {
            packed.put(u64::from(entry.0), Entry::BITS);
        }
    }
}

/// Declares a group of fields with the width of each field, for a given shape.
macro_rules! group {
    ($(#[$meta:meta])* $name:ident of $shape:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $bits:expr,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
        }

        impl $name {
            /// Returns the fields, lowest bits first.
            pub fn fields($shape: &Shape) -> Vec<Field> {
                let _ = $shape;
                vec![$(Field { name: stringify!($field), bits: $bits },)*]
            }

            /// Returns the number of bits of the group.
            pub fn bits($shape: &Shape) -> u32 {
                Self::fields($shape).iter().map(|field| field.bits).sum()
            }

            /// Appends the fields to `packed`.
            pub(crate) fn pack(&self, $shape: &Shape, packed: &mut Packed) {
                let _ = $shape;
                $(self.$field.pack($bits, packed);)*
            }
        }
    };
}

pub(crate) use group;

/// Returns `bits` if the credit scheme is `scheme`, otherwise zero.
fn only(shape: &Shape, scheme: Scheme, bits: u32) -> u32 {
    if shape.scheme() == scheme { bits } else { 0 }
}

group! {
    /// Group A, the window: written by Segment Generation, both stages of Incoming, and Periodic Updates.
    Window of shape {
        /// The flow exists.
        in_use: bool = 1,
        /// First unacknowledged segment.
        start: SegmentId = 24,
        /// Size of the window in segments, from `start`: at most K.
        size: u16 = Shape::bits_for(shape.window()),
        /// Next segment to be sent for the first time (Tonic: highest-sent, plus one).
        next: SegmentId = 24,
        /// End (exclusive) of the segments that the driver has announced.
        limit: SegmentId = 24,
        /// The last segment before `limit` is shorter than the others.
        has_short_last: bool = 1,
        /// Selectively acknowledged segments.
        acked: RingMap = shape.window(),
        /// Lower bit of the number of retransmissions of each segment, which saturates at 3 (Tonic: rtx-cnt).
        repeats_low: RingMap = shape.window(),
        /// Upper bit of the number of retransmissions of each segment.
        repeats_high: RingMap = shape.window(),
    }
}

group! {
    /// Group B, the duty (pending work) of a flow: written by all modules except the first stage of Incoming.
    Duty of shape {
        /// Segments marked for retransmission.
        marked: RingMap = shape.window(),
        /// Number of generated addresses that have not left the credit engine.
        outstanding: u8 = Shape::bits_for(u32::from(shape.sizes().ring)),
        /// Generation has stopped because too many addresses wait for credit.
        back_pressured: bool = 1,
        /// The flow has no segment to send.
        idle: bool = 1,
        /// Number of addresses generated, modulo 2^24.
        total_sent: SegmentId = 24,
        /// The retransmission timer is running.
        timer_on: bool = 1,
        /// Time at which the retransmission timer expires.
        expiry: Ticks = 24,
        /// Duration of the retransmission timer in ticks; zero for none.
        timer: Ticks = 24,
        /// Rate chosen by the program: a copy, because the credit engine's state cannot be accessed from here.
        rate: u32 = only(shape, Scheme::Rate, 23),
    }
}

/// An entry in the ring of segments to be transmitted: segment number (24 bits), number of earlier transmissions (2),
/// and a flag for the short last segment (1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry(u32);

impl Entry {
    /// Width of an entry in bits.
    pub const BITS: u32 = 27;

    /// Builds a ring entry.
    pub fn new(segment: SegmentId, times_sent: u8, is_short: bool) -> Self {
        Self(segment.value() | u32::from(times_sent & 3) << 24 | u32::from(is_short) << 26)
    }

    /// Returns the number of the segment.
    #[inline]
    pub fn segment(self) -> SegmentId {
        SegmentId::new(self.0)
    }

    /// Returns how many times the segment has been sent before, at most 3.
    #[inline]
    pub fn times_sent(self) -> u8 {
        (self.0 >> 24 & 3) as u8
    }

    /// Returns whether the segment is the short last one.
    #[inline]
    pub fn is_short(self) -> bool {
        self.0 >> 26 & 1 == 1
    }
}

group! {
    /// The ring of addresses that wait for credit. Entries are written by Enqueue, the head by Transmit.
    Ring of shape {
        /// The addresses; the oldest is at `head`.
        entries: [Entry; RING_MAX as usize] = Entry::BITS * u32::from(shape.sizes().ring),
        /// Position of the oldest address.
        head: u8 = Shape::bits_for(u32::from(shape.sizes().ring) - 1),
        /// Number of entries in the ring.
        count: u8 = Shape::bits_for(u32::from(shape.sizes().ring)),
    }
}

group! {
    /// Credit: determines when the next address may be passed on to the link.
    Credit of shape {
        /// Length of a segment in bytes.
        segment_bytes: u16 = LENGTH_BITS,
        /// Length of the short last segment in bytes; zero if there is none.
        last_bytes: u16 = LENGTH_BITS,
        /// Rate in bytes per 2^16 cycles.
        rate: u32 = only(shape, Scheme::Rate, 23),
        /// Credit at `since`, in bytes, with 16 fractional bits.
        credit: u64 = only(shape, Scheme::Rate, 40),
        /// Cycle in which `credit` was computed, modulo 2^24.
        since: SegmentId = only(shape, Scheme::Rate, 24),
        /// Number of segments that the receiver has granted.
        granted: SegmentId = only(shape, Scheme::Token, 24),
        /// Number of segments that timeouts have granted.
        extra: SegmentId = only(shape, Scheme::Token, 24),
        /// Number of segments passed on to the link.
        sent: SegmentId = only(shape, Scheme::Token, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Sizes;

    fn shape(window: u16, scheme: Scheme, state_bits: u32) -> Shape {
        Shape::new(Sizes { window, ..Sizes::default() }, scheme, state_bits).unwrap()
    }

    #[test]
    fn t8_t9_a_flow_has_the_bits_of_its_declaration() {
        for (window, size_bits) in [(64, 7), (128, 8), (256, 9)] {
            let shape = shape(window, Scheme::Window, 82);
            let k = u32::from(window);
            // Start, size, next and three maps of table 2; then existence, limit and the flag of a short last segment.
            assert_eq!(Window::bits(&shape), 24 + size_bits + 24 + 3 * k + 1 + 24 + 1);
            // Marks, outstanding and its flag, idle, total sent, timer: 5 + 2 + 24 + 49.
            assert_eq!(Duty::bits(&shape), k + 5 + 2 + 24 + 49);
            assert_eq!(Ring::bits(&shape), 16 * 27 + 4 + 5);
            assert_eq!(Credit::bits(&shape), 14 + 14);
        }
        let (rate, token) = (shape(128, Scheme::Rate, 0), shape(128, Scheme::Token, 0));
        assert_eq!(Duty::bits(&rate) - Duty::bits(&token), 23, "the copy of the rate");
        assert_eq!(Credit::bits(&rate), 28 + 23 + 40 + 24);
        assert_eq!(Credit::bits(&token), 28 + 3 * 24);
    }

    #[test]
    fn fields_are_packed_without_gaps_and_the_first_is_lowest() {
        let shape = shape(64, Scheme::Window, 0);
        let mut packed = Packed::default();
        let window = Window { in_use: true, start: SegmentId::new(0xAB_CDEF), size: 64, ..Window::default() };
        window.pack(&shape, &mut packed);
        assert_eq!(packed.words()[0], 1 | 0xAB_CDEF << 1 | 64 << 25);
        assert_eq!(packed.bits(), Window::bits(&shape));
        let names: Vec<_> = Window::fields(&shape).into_iter().map(|field| field.name).collect();
        assert_eq!(names[..3], ["in_use", "start", "size"]);
    }

    #[test]
    #[should_panic(expected = "does not fit into 14 bits")]
    fn a_value_wider_than_its_field_is_noticed() {
        let shape = shape(64, Scheme::Window, 0);
        Credit { segment_bytes: 1 << 14, ..Credit::default() }.pack(&shape, &mut Packed::default());
    }

    #[test]
    fn t7_an_address_has_27_bits_in_its_ring() {
        let entry = Entry::new(SegmentId::new(0xFF_FFFF), 3, true);
        assert_eq!((entry.segment(), entry.times_sent(), entry.is_short()), (SegmentId::new(0xFF_FFFF), 3, true));
        assert_eq!(entry.0 >> Entry::BITS, 0);
        assert_eq!(Entry::new(SegmentId::new(5), 7, false).segment(), SegmentId::new(5));
    }
}
