//! Congestion signal (CSIG): a value that the most congested hop of a path has written into a packet.
//!
//! Source: "Congestion Signaling (CSIG)", draft-ravi-ippm-csig-01: a tag of four bytes between a frame's Ethernet and
//! IP headers, whose value every switch replaces when its own is worse; the receiver reflects it. Of its signals
//! (minimum of the available bandwidth, as such or as a share of the link, and maximum of the delay per hop) this
//! module implements the last, max(PD), in the compact format: the tag has 16 bits besides its EtherType. From the
//! highest bit down these are the type (3 bits), a reserved bit that is 0, the level (5 bits) and the locator (7
//! bits).
//!
//! The draft leaves the following choices to a deployment. Code 2 means max(PD). A level is a delay in units of 2^17
//! ps (131.072 ns), rounded down to three significant bits: 0 to 7 units exactly, then in steps of a quarter of each
//! power of two, up to 448 units (58.7 us); longer delays are clamped to this. Levels therefore compare like delays,
//! and a level is less than a fifth below the delay that it represents. The locator is the low 7 bits of the switch
//! number.

use core::num::NonZeroU16;

use crate::time::Duration;

/// The 16 bits of a tag. All received bits are kept; a tag that is not a delay in this format yields no delay. Zero
/// means no tag; as a tag it would not be a delay either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Csig(NonZeroU16);

const _: () = assert!(size_of::<Option<Csig>>() == 2);

impl Csig {
    /// Tag that a sender writes: no hop has delayed the packet yet.
    pub const NO_DELAY: Self = Self::from_value(0);
    /// Maximum delay that a tag can represent.
    pub const DELAY_MAX: Duration = Duration::from_ps(448 << UNIT_PS_LOG2);
    /// Number of bits that differ between tags with a delay: level and locator.
    pub const VALUE_BITS: u32 = TYPE_SHIFT - 1;

    /// Returns the tag with these bits; `None` when all are zero.
    #[inline]
    pub const fn from_bits(bits: u16) -> Option<Self> {
        match NonZeroU16::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Returns the bits of `tag`; zero without a tag.
    #[inline]
    pub const fn bits(tag: Option<Self>) -> u16 {
        match tag {
            Some(tag) => tag.0.get(),
            None => 0,
        }
    }

    /// Returns the delay tag with this level and locator: the low [`Csig::VALUE_BITS`] bits of `value`.
    #[inline]
    pub const fn from_value(value: u16) -> Self {
        Self(HOP_DELAY.saturating_add(value & VALUE_MASK))
    }

    /// Returns level and locator.
    #[inline]
    pub const fn value(self) -> u16 {
        self.0.get() & VALUE_MASK
    }

    /// Returns the tag after a hop with number `locator` that delays the packet by `delay`: a tag with the hop's own
    /// level when that is higher, otherwise the received tag. A tag that is not a delay is returned unchanged.
    #[inline]
    pub const fn after_hop(self, delay: Duration, locator: u32) -> Self {
        let level = level_of(delay);
        if !self.is_hop_delay() || level <= self.level() {
            return self;
        }
        Self::from_value(level << LOCATOR_BITS | locator as u16 & LOCATOR_MASK)
    }

    /// Returns the delay of the worst hop, rounded down as the module describes; `None` for another signal.
    #[inline]
    pub const fn hop_delay(self) -> Option<Duration> {
        if !self.is_hop_delay() {
            return None;
        }
        let level = self.level() as u64;
        let units = if level < LEVELS_PER_DOUBLING {
            level
        } else {
            (LEVELS_PER_DOUBLING + level % LEVELS_PER_DOUBLING) << (level / LEVELS_PER_DOUBLING - 1)
        };
        Some(Duration::from_ps(units << UNIT_PS_LOG2))
    }

    /// Returns the low bits of the number of the switch that delayed the packet most; 0 when no switch delayed it.
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
    let units = delay.as_ps() >> UNIT_PS_LOG2;
    if units < LEVELS_PER_DOUBLING {
        return units as u16;
    }
    let exponent = units.ilog2() - LEVELS_PER_DOUBLING.ilog2();
    let level = (exponent as u64 + 1) * LEVELS_PER_DOUBLING + (units >> exponent) % LEVELS_PER_DOUBLING;
    if level > LEVEL_MAX { LEVEL_MAX as u16 } else { level as u16 }
}

/// Number of levels in each doubling of the delay.
const LEVELS_PER_DOUBLING: u64 = 4;
const LEVEL_MAX: u64 = 31;
/// Base-2 logarithm of a unit in picoseconds: the unit of Falcon's timestamps.
const UNIT_PS_LOG2: u32 = 17;
const LOCATOR_BITS: u32 = 7;
const LOCATOR_MASK: u16 = (1 << LOCATOR_BITS) - 1;
const TYPE_SHIFT: u32 = 13;
const VALUE_MASK: u16 = (1 << Csig::VALUE_BITS) - 1;
/// Type 2, all other bits zero.
const HOP_DELAY: NonZeroU16 = NonZeroU16::new(2 << TYPE_SHIFT).expect("not zero");

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Duration = Duration::from_ps(1 << UNIT_PS_LOG2);

    fn of(delay: Duration) -> Csig {
        Csig::NO_DELAY.after_hop(delay, 1)
    }

    #[test]
    fn levels_are_exact_for_small_delays_and_less_than_a_fifth_too_low_for_others() {
        let mut levels = std::collections::BTreeSet::new();
        for units in 0..=2_000u64 {
            let delay = of(UNIT * units).hop_delay().expect("a delay");
            levels.insert(delay);
            assert!(delay <= UNIT * units && (units > 7 || delay == UNIT * units), "{units} units: {delay}");
            assert!(units >= 512 || (UNIT * units).as_ps() * 4 < delay.as_ps() * 5 + 1, "{units} units: {delay}");
        }
        assert_eq!((levels.len(), levels.last()), (32, Some(&Csig::DELAY_MAX)));
        assert_eq!(of(Duration::from_secs(5)).hop_delay(), Some(Csig::DELAY_MAX));
        assert_eq!(of(Duration::from_ps((1 << UNIT_PS_LOG2) - 1)), Csig::NO_DELAY, "not rounded to zero");
    }

    #[test]
    fn the_hop_with_the_longest_delay_is_kept_and_the_first_of_two_equal_ones() {
        let hops = [(3, 10), (9, 11), (9, 12), (5, 13), (0, 14)];
        let tag = hops.iter().fold(Csig::NO_DELAY, |tag, (units, switch)| tag.after_hop(UNIT * *units, *switch));
        assert_eq!((tag.hop_delay(), tag.locator()), (Some(UNIT * 8), 11));
        assert_eq!(Csig::NO_DELAY.after_hop(UNIT * 3, 300).locator(), 44);
        assert_eq!(Csig::from_value(tag.value()), tag);
    }

    /// A tag may come from a faulty or hostile sender: every value yields a delay within bounds, or none.
    #[test]
    fn any_tag_value_gives_a_bounded_delay_or_none() {
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
                None => assert_eq!(tag.after_hop(Duration::from_secs(1), 3), tag, "another signal is changed"),
            }
        }
        assert_eq!(delays, 1 << Csig::VALUE_BITS);
    }
}
