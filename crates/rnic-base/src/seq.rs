//! Sequence numbers: the wrapping ones in packets, and the non-wrapping ones used internally.
//!
//! A packet carries a 24-bit PSN (RoCE, InfiniBand Architecture volume 1, section 9.7) or a 32-bit one (Falcon).
//! Internally, a [`Seq`] never wraps: it is computed from the wire value and a nearby reference, so that ordinary
//! comparison is correct everywhere and the wrap is handled in exactly one function, [`Serial::extend`].

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number of `BITS` bits as carried in a packet; arithmetic is modulo 2^`BITS` (compare RFC 1982).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Serial<const BITS: u32>(u32);

/// The 24-bit packet sequence number of RoCE and IRN.
pub type Psn = Serial<24>;
/// The 32-bit packet sequence number of Falcon.
pub type Psn32 = Serial<32>;

impl<const BITS: u32> Serial<BITS> {
    const MASK: u32 = if BITS == 32 { u32::MAX } else { (1 << BITS) - 1 };
    const HALF: u32 = 1 << (BITS - 1);
    /// Largest value.
    pub const MAX: Self = Self(Self::MASK);

    /// Creates a sequence number from the low `BITS` bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        const { assert!(BITS >= 8 && BITS <= 32) };
        Self(value & Self::MASK)
    }

    /// Returns the bits as transmitted.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the number `count` steps ahead, wrapping.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count) & Self::MASK)
    }

    /// Returns the number of steps from `self` forward to `other`: negative when `other` is in the half of the number
    /// space behind `self`.
    #[inline]
    pub const fn distance_to(self, other: Self) -> i64 {
        let forward = other.0.wrapping_sub(self.0) & Self::MASK;
        if forward < Self::HALF { forward as i64 } else { forward as i64 - (1i64 << BITS) }
    }

    /// Returns `true` if `self` is before `other` in the shorter direction modulo 2^`BITS`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_to(other) > 0
    }

    /// Extends this serial number to a sequence number that does not wrap: the one nearest to `reference` whose low
    /// `BITS` bits equal `self`.
    #[inline]
    pub const fn extend(self, reference: Seq) -> Seq {
        let distance = reference.wire::<BITS>().distance_to(self);
        Seq(reference.0.wrapping_add_signed(distance))
    }
}

impl<const BITS: u32> fmt::Debug for Serial<BITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<const BITS: u32> fmt::Display for Serial<BITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A sequence number that never wraps: the wire value plus 2^32 times the epoch, starting in epoch 1 so that numbers
/// from before the start of a connection (old packets) can be represented too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// A value smaller than every number of every stream: for fields that have no value yet.
    pub const UNSET: Self = Self(0);

    /// Returns the first number of a stream whose first packet carries `initial`.
    #[inline]
    pub const fn start<const BITS: u32>(initial: Serial<BITS>) -> Self {
        Self((1 << 32) | initial.0 as u64)
    }

    /// Returns the number as transmitted in a packet.
    #[inline]
    pub const fn wire<const BITS: u32>(self) -> Serial<BITS> {
        Serial::new(self.0 as u32)
    }

    /// Returns the complete number, for traces and for indexing rings.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of steps from `earlier` to `self`; zero when `earlier` is not before `self`.
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, count: u64) -> Seq {
        Seq(self.0 + count)
    }
}

impl Sub<u64> for Seq {
    type Output = Seq;
    #[inline]
    fn sub(self, count: u64) -> Seq {
        Seq(self.0 - count)
    }
}

impl AddAssign<u64> for Seq {
    #[inline]
    fn add_assign(&mut self, count: u64) {
        self.0 += count;
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Seq {
    /// Formats the number as `epoch:low`, so that a trace shows both the transmitted value and the number of wraps at
    /// 32 bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 32, self.0 as u32)
    }
}

/// A half-open range `start..end` of sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqRange {
    /// First number in the range.
    pub start: Seq,
    /// First number after the range.
    pub end: Seq,
}

impl SeqRange {
    /// Returns the range `start..end`; empty when `end` is not after `start`.
    #[inline]
    pub const fn new(start: Seq, end: Seq) -> Self {
        Self { start, end }
    }

    /// Returns the range that contains only `seq`.
    #[inline]
    pub fn single(seq: Seq) -> Self {
        Self { start: seq, end: seq + 1 }
    }

    /// Returns `true` if the range is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns the number of sequence numbers in the range.
    #[inline]
    pub fn len(self) -> u64 {
        self.end.since(self.start)
    }

    /// Returns `true` if `seq` is in the range.
    #[inline]
    pub fn contains(self, seq: Seq) -> bool {
        self.start <= seq && seq < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn psn_wraps_at_24_bits() {
        assert_eq!(Psn::MAX.value(), 0xff_ffff);
        assert_eq!(Psn::MAX.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0x100_0005), Psn::new(5));
        assert!(Psn::MAX.is_before(Psn::new(3)));
        assert!(!Psn::new(3).is_before(Psn::MAX));
        assert_eq!(Psn::new(3).distance_to(Psn::MAX), -4);
        assert_eq!(Psn32::MAX.plus(2), Psn32::new(1));
    }

    #[test]
    fn extend_crosses_the_wrap_in_both_directions() {
        let reference = Seq::start(Psn::new(0xff_fffe)) + 4;
        assert_eq!(reference.wire::<24>(), Psn::new(2));
        assert_eq!(Psn::new(0xff_ffff).extend(reference), reference - 3);
        assert_eq!(Psn::new(7).extend(reference), reference + 5);
    }

    #[test]
    fn extend_reaches_below_the_first_packet() {
        let start = Seq::start(Psn::new(0));
        assert!(Psn::MAX.extend(start) < start);
    }

    proptest! {
        #[test]
        fn extend_inverts_truncation_within_half_the_circle(
            base in (1u64 << 33)..(1u64 << 40),
            offset in -(1i64 << 23)..(1i64 << 23) - 1,
        ) {
            let reference = Seq(base);
            let distant = Seq(base.wrapping_add_signed(offset));
            prop_assert_eq!(distant.wire::<24>().extend(reference), distant);
            prop_assert_eq!(distant.wire::<32>().extend(reference), distant);
        }

        #[test]
        fn distance_is_antisymmetric(a in any::<u32>(), b in any::<u32>()) {
            let (a, b) = (Psn::new(a), Psn::new(b));
            let distance = a.distance_to(b);
            prop_assert_eq!(a.plus(distance as u32), b);
            if distance != -(1 << 23) {
                prop_assert_eq!(b.distance_to(a), -distance);
            }
        }
    }
}
