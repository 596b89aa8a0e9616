//! Falcon's clock: units of 131.072 ns (2^17 ps), 32 bits on the wire.

use rnic_base::{Duration, Time};

/// A time of one clock, in units of 131.072 ns, modulo 2^32 (563 s). The difference of two timestamps is valid only if
/// they are from the same clock, or from synchronized clocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Timestamp(u32);

impl Timestamp {
    /// Number of bits by which picoseconds are shifted: the unit is 2^17 ps.
    pub const UNIT_SHIFT: u32 = 17;
    /// Unit of a timestamp.
    pub const UNIT: Duration = Duration::from_ps(1 << Self::UNIT_SHIFT);

    /// Returns the timestamp with these bits.
    #[inline]
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// Returns the timestamp of a clock at `time`.
    #[inline]
    pub const fn at(time: Time) -> Self {
        Self((time.as_ps() >> Self::UNIT_SHIFT) as u32)
    }

    /// Returns the bits as transmitted.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the low 24 bits, which events of the adaptive engine carry; they wrap after 2.199 s.
    #[inline]
    pub const fn low24(self) -> u32 {
        self.0 & 0xff_ffff
    }

    /// Returns the number of units of 131.072 ns from `earlier` to `self`, modulo 2^32.
    #[inline]
    pub const fn units_since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns the time from `earlier` to `self`, modulo 2^32 units.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_ps((self.units_since(earlier) as u64) << Self::UNIT_SHIFT)
    }

    /// Returns the start of the last unit in which the clock had this value, where `now` is the present time. Returns
    /// `None` when that start is more than half the wrap-around period ago, so that the timestamp is more likely in
    /// the future, or before the start of the clock.
    #[inline]
    pub const fn last_time_of(self, now: Time) -> Option<Time> {
        let (units_ago, units) = (Self::at(now).units_since(self), now.as_ps() >> Self::UNIT_SHIFT);
        if units_ago < 1 << 31 && units_ago as u64 <= units {
            Some(Time::from_ps((units - units_ago as u64) << Self::UNIT_SHIFT))
        } else {
            None
        }
    }

    /// Returns whether `self` is before `other` by the shorter distance modulo 2^32.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        let distance = other.0.wrapping_sub(self.0);
        distance != 0 && distance < 1 << 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_shown_finds_the_time_across_wraps() {
        let at = |units: u64| Time::from_ps(units << Timestamp::UNIT_SHIFT);
        for now in [0_u64, 5, 1 << 31, (1 << 32) - 1, 1 << 32, (5 << 32) + 3, (1 << 47) - 1] {
            for units_ago in [0, 1, 6, (1 << 31) - 1, 1 << 31, (1 << 32) - 1] {
                let expected = now.checked_sub(units_ago).filter(|_| units_ago < 1 << 31);
                let timestamp = Timestamp::new(now.wrapping_sub(units_ago) as u32);
                // A later time within the same unit gives the same result.
                let later_in_unit = at(now) + Duration::from_ps(77);
                assert_eq!(timestamp.last_time_of(later_in_unit), expected.map(at), "{units_ago} before {now}");
            }
        }
    }
}
