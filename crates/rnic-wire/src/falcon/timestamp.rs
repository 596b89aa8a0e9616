//! Falcon's clock: units of 131.072 ns (2^17 ps), 32 bits on the wire.

use rnic_base::{Duration, Time};

/// A moment of somebody's clock, in units of 131.072 ns, modulo 2^32 (563 s). Two of the same clock have a difference;
/// two of different clocks only if the clocks agree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Timestamp(u32);

impl Timestamp {
    /// Bits by which picoseconds are shifted: the unit is 2^17 ps.
    pub const UNIT_SHIFT: u32 = 17;
    /// The unit.
    pub const UNIT: Duration = Duration::from_ps(1 << Self::UNIT_SHIFT);

    /// The timestamp with these bits.
    #[inline]
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// What a clock that shows `time` says.
    #[inline]
    pub const fn at(time: Time) -> Self {
        Self((time.as_ps() >> Self::UNIT_SHIFT) as u32)
    }

    /// The bits as they travel.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The low 24 bits, which is what events of the adaptive engine carry; they wrap after 2.199 s.
    #[inline]
    pub const fn low24(self) -> u32 {
        self.0 & 0xff_ffff
    }

    /// Units from `earlier` to `self`, modulo 2^32.
    #[inline]
    pub const fn units_since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Time from `earlier` to `self`, modulo 2^32 units.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_ps((self.units_since(earlier) as u64) << Self::UNIT_SHIFT)
    }

    /// Whether `self` comes before `other` on the shorter way round.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        let ahead = other.0.wrapping_sub(self.0);
        ahead != 0 && ahead < 1 << 31
    }
}
