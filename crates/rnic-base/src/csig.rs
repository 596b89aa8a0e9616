//! A congestion signal: what the most congested hop of a path has written into a packet (CSIG).
//!
//! Source: "Congestion Signaling (CSIG)", draft-ravi-ippm-csig-01: a tag of four bytes between a frame's Ethernet and
//! IP headers, of which every switch replaces the value where its own is worse; the receiver reflects it. Of its
//! signals (minimum of the available bandwidth, as such or as a share of the link, and maximum of the delay per hop)
//! this is the last, max(PD), in the compact format: what of the tag is not its EtherType are 16 bits. From the highest
//! on these are the type (3 bits), a reserved one that is 0, the level (5 bits) and the locator (7 bits).
//!
//! Choices, which the draft leaves to a deployment: code 2 stands for max(PD). A level is a delay in units of 2^17 ps
//! (131.072 ns), rounded down to a number of two significant bits behind the first: 0 to 7 units exactly, then in steps
//! of a quarter of each power of two, up to 448 units (58.7 us), for which longer ones count too. So levels compare as
//! delays do, and a level is less than a fifth below the delay that it stands for. The locator is the number of the
//! switch, of which the low 7 bits travel.

use core::num::NonZeroU16;

use crate::time::Duration;

/// The 16 bits of a tag. Whatever bits came are kept; what does not say a delay in this format tells none. Zero stands
/// for no tag at all: as one of another signal it would say nothing here either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Csig(NonZeroU16);

const _: () = assert!(size_of::<Option<Csig>>() == 2);

impl Csig {
    /// The tag that a sender writes: no hop has delayed the packet yet.
    pub const NO_DELAY: Self = Self::from_value(0);
    /// The longest delay that a tag can say.
    pub const DELAY_MAX: Duration = Duration::from_ps(448 << UNIT_LOG2);
    /// Bits of a tag that are not the same in all that say a delay: level and locator.
    pub const VALUE_BITS: u32 = TYPE_SHIFT - 1;

    /// Returns the tag of these bits; none where all are zero.
    #[inline]
    pub const fn from_bits(bits: u16) -> Option<Self> {
        match NonZeroU16::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Returns the bits of `tag`: zero without one.
    #[inline]
    pub const fn bits(tag: Option<Self>) -> u16 {
        match tag {
            Some(tag) => tag.0.get(),
            None => 0,
        }
    }

    /// Returns the tag that says a delay with this level and locator: the low [`Csig::VALUE_BITS`] bits of `value`.
    #[inline]
    pub const fn from_value(value: u16) -> Self {
        Self(HOP_DELAY.saturating_add(value & VALUE_MASK))
    }

    /// Returns level and locator.
    #[inline]
    pub const fn value(self) -> u16 {
        self.0.get() & VALUE_MASK
    }

    /// Returns the tag behind a hop that delays the packet by `delay` and is called `locator`: its own level where that
    /// is higher, else what came. A tag that says no delay passes as it is.
    #[inline]
    pub const fn behind(self, delay: Duration, locator: u32) -> Self {
        let level = level_of(delay);
        if !self.is_hop_delay() || level <= self.level() {
            return self;
        }
        Self::from_value(level << LOCATOR_BITS | locator as u16 & LOCATOR_MASK)
    }

    /// Returns the delay of the worst hop, rounded down as the module says; `None` of another signal.
    #[inline]
    pub const fn hop_delay(self) -> Option<Duration> {
        if !self.is_hop_delay() {
            return None;
        }
        let level = self.level() as u64;
        let units = if level < STEPS { level } else { (STEPS + level % STEPS) << (level / STEPS - 1) };
        Some(Duration::from_ps(units << UNIT_LOG2))
    }

    /// Returns the low bits of the number of the switch that delayed the packet most; 0 where none did.
    #[inline]
    pub const fn locator(self) -> u8 {
        (self.0.get() & LOCATOR_MASK) as u8
    }

    const fn is_hop_delay(self) -> bool {
        self.0.get() & !VALUE_MASK == HOP_DELAY.get()
    }

    const fn level(self) -> u16 {
        self.value() >> LOCATOR_BITS
    }
}

/// Returns the level of `delay`.
#[inline]
const fn level_of(delay: Duration) -> u16 {
    let units = delay.as_ps() >> UNIT_LOG2;
    if units < STEPS {
        return units as u16;
    }
    let exponent = units.ilog2() - STEPS.ilog2();
    let level = (exponent as u64 + 1) * STEPS + (units >> exponent) % STEPS;
    if level > LEVEL_MAX { LEVEL_MAX as u16 } else { level as u16 }
}

/// Levels in each power of two.
const STEPS: u64 = 4;
const LEVEL_MAX: u64 = 31;
/// A unit is 2 to this power of picoseconds: Falcon's ticks.
const UNIT_LOG2: u32 = 17;
const LOCATOR_BITS: u32 = 7;
const LOCATOR_MASK: u16 = (1 << LOCATOR_BITS) - 1;
const TYPE_SHIFT: u32 = 13;
const VALUE_MASK: u16 = (1 << Csig::VALUE_BITS) - 1;
/// Type 2, all else zero.
const HOP_DELAY: NonZeroU16 = NonZeroU16::new(2 << TYPE_SHIFT).expect("not zero");

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Duration = Duration::from_ps(1 << UNIT_LOG2);

    fn of(delay: Duration) -> Csig {
        Csig::NO_DELAY.behind(delay, 1)
    }

    #[test]
    fn levels_are_exact_for_small_delays_and_less_than_a_fifth_short_for_others() {
        let mut levels = std::collections::BTreeSet::new();
        for units in 0..=2_000u64 {
            let told = of(UNIT * units).hop_delay().expect("a delay");
            levels.insert(told);
            assert!(told <= UNIT * units && (units > 7 || told == UNIT * units), "{units} units: {told}");
            assert!(units >= 512 || (UNIT * units).as_ps() * 4 < told.as_ps() * 5 + 1, "{units} units: {told}");
        }
        assert_eq!((levels.len(), levels.last()), (32, Some(&Csig::DELAY_MAX)));
        assert_eq!(of(Duration::from_secs(5)).hop_delay(), Some(Csig::DELAY_MAX));
        assert_eq!(of(Duration::from_ps((1 << UNIT_LOG2) - 1)), Csig::NO_DELAY, "less than a unit is none");
    }

    #[test]
    fn the_worst_hop_is_kept_and_of_two_alike_the_first() {
        let hops = [(3, 10), (9, 11), (9, 12), (5, 13), (0, 14)];
        let tag = hops.iter().fold(Csig::NO_DELAY, |tag, (units, switch)| tag.behind(UNIT * *units, *switch));
        assert_eq!((tag.hop_delay(), tag.locator()), (Some(UNIT * 8), 11));
        assert_eq!(Csig::NO_DELAY.behind(UNIT * 3, 300).locator(), 44);
        assert_eq!(Csig::from_value(tag.value()), tag);
    }

    /// A tag may come from a faulty or hostile sender: every value tells a delay within bounds, or none.
    #[test]
    fn any_bits_tell_a_bounded_delay_or_none() {
        let mut delays = 0u32;
        assert_eq!((Csig::from_bits(0), Csig::bits(None)), (None, 0));
        for bits in 1..=u16::MAX {
            let tag = Csig::from_bits(bits).expect("not zero");
            assert_eq!(Csig::bits(Some(tag)), bits);
            match tag.hop_delay() {
                Some(delay) => {
                    assert!(delay <= Csig::DELAY_MAX);
                    delays += 1;
                }
                None => assert_eq!(tag.behind(Duration::from_secs(1), 3), tag, "another signal passes as it is"),
            }
        }
        assert_eq!(delays, 1 << Csig::VALUE_BITS);
    }
}
