//! Sequence numbers: the wrapping ones that travel, and the growing ones we compute with.
//!
//! A packet carries a 24-bit PSN (RoCE, InfiniBand Architecture volume 1, section 9.7) or a 32-bit one (Falcon).
//! Inside, a [`Seq`] never wraps: it is made from the wire value and a nearby reference, so that ordinary comparison is
//! right everywhere and the wrap is dealt with in exactly one place, [`Serial::extend`].

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number of `BITS` bits as it stands in a packet; arithmetic is modulo 2^`BITS` (compare RFC 1982).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Serial<const BITS: u32>(u32);

/// The 24-bit packet sequence number of RoCE and IRN.
pub type Psn = Serial<24>;
/// The 32-bit packet sequence number of Falcon.
pub type Psn32 = Serial<32>;

impl<const BITS: u32> Serial<BITS> {
    const MASK: u32 = if BITS == 32 { u32::MAX } else { (1 << BITS) - 1 };
    const HALF: u32 = 1 << (BITS - 1);
    /// The largest value.
    pub const MAX: Self = Self(Self::MASK);

    /// Takes the low `BITS` bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        const { assert!(BITS >= 8 && BITS <= 32) };
        Self(value & Self::MASK)
    }

    /// The bits as they travel.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `count` steps on, wrapping.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count) & Self::MASK)
    }

    /// Steps from `self` forward to `other`: negative when `other` lies in the half of the circle behind.
    #[inline]
    pub const fn distance_to(self, other: Self) -> i64 {
        let forward = other.0.wrapping_sub(self.0) & Self::MASK;
        if forward < Self::HALF { forward as i64 } else { forward as i64 - (1i64 << BITS) }
    }

    /// Whether `self` comes before `other` on the shorter way round.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_to(other) > 0
    }

    /// Returns the non-wrapping number nearest to `near` whose low bits are these.
    #[inline]
    pub const fn extend(self, near: Seq) -> Seq {
        let distance = near.wire::<BITS>().distance_to(self);
        Seq(near.0.wrapping_add_signed(distance))
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
/// from before the start of a connection (stale packets) have a place too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// Before every number of every stream: for fields that have no value yet.
    pub const UNSET: Self = Self(0);

    /// The first number of a stream whose first packet carries `initial`.
    #[inline]
    pub const fn start<const BITS: u32>(initial: Serial<BITS>) -> Self {
        Self((1 << 32) | initial.0 as u64)
    }

    /// What travels in a packet.
    #[inline]
    pub const fn wire<const BITS: u32>(self) -> Serial<BITS> {
        Serial::new(self.0 as u32)
    }

    /// The whole number, for traces and for indexing rings.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Steps from `earlier` to `self`; zero when `earlier` is not earlier.
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
    /// `epoch:low`, so that a trace shows both what travelled and how often it wrapped at 32 bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 32, self.0 as u32)
    }
}

/// The half-open range `start..end` of sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqRange {
    /// The first number inside.
    pub start: Seq,
    /// The first number past the end.
    pub end: Seq,
}

impl SeqRange {
    /// `start..end`; empty when `end` is not after `start`.
    #[inline]
    pub const fn new(start: Seq, end: Seq) -> Self {
        Self { start, end }
    }

    /// Just `seq`.
    #[inline]
    pub fn one(seq: Seq) -> Self {
        Self { start: seq, end: seq + 1 }
    }

    /// Whether nothing lies inside.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// How many numbers lie inside.
    #[inline]
    pub fn len(self) -> u64 {
        self.end.since(self.start)
    }

    /// Whether `seq` lies inside.
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
    fn extend_crosses_the_wrap_both_ways() {
        let near = Seq::start(Psn::new(0xff_fffe)) + 4;
        assert_eq!(near.wire::<24>(), Psn::new(2));
        assert_eq!(Psn::new(0xff_ffff).extend(near), near - 3);
        assert_eq!(Psn::new(7).extend(near), near + 5);
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
            let near = Seq(base);
            let far = Seq(base.wrapping_add_signed(offset));
            prop_assert_eq!(far.wire::<24>().extend(near), far);
            prop_assert_eq!(far.wire::<32>().extend(near), far);
        }

        #[test]
        fn distance_is_antisymmetric(a in any::<u32>(), b in any::<u32>()) {
            let (a, b) = (Psn::new(a), Psn::new(b));
            let there = a.distance_to(b);
            prop_assert_eq!(a.plus(there as u32), b);
            if there != -(1 << 23) {
                prop_assert_eq!(b.distance_to(a), -there);
            }
        }
    }
}
