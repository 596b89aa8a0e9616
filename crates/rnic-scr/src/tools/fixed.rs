//! FPX-16: signed fixed-point numbers of 32 bits with 16 fractional bits (Q16.16).
//!
//! Source: SCR (NSDI'25), section 4.3.3: its processor has no floating point. The paper specifies neither rounding nor
//! error bounds; those here are defined by OpenRNIC.
//!
//! Restrictions: results that overflow saturate. Products and sums are rounded to nearest; quotients and roots have an
//! error of at most 2^-16. [`Fpx16::div_by_bits`] and [`Fpx16::sqrt_by_bits`] compute the same with shifts and
//! subtractions alone, as hardware does.

use core::fmt;
use core::ops::{Add, Div, Mul, Neg, Sub};

/// Number of fractional bits.
const FRACTION_BITS: u32 = 16;

/// A number from -32768 to 32767.99998, in steps of 2^-16.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Fpx16(i32);

impl Fpx16 {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// One.
    pub const ONE: Self = Self(1 << FRACTION_BITS);
    /// The largest number.
    pub const MAX: Self = Self(i32::MAX);
    /// The smallest number.
    pub const MIN: Self = Self(i32::MIN);

    /// Returns the number with `bits`: units of 2^-16.
    #[inline]
    pub const fn from_bits(bits: i32) -> Self {
        Self(bits)
    }

    /// Returns the number in units of 2^-16.
    #[inline]
    pub const fn to_bits(self) -> i32 {
        self.0
    }

    /// Returns `value`, limited to the range.
    #[inline]
    pub const fn from_int(value: i32) -> Self {
        saturate((value as i64) << FRACTION_BITS)
    }

    /// Returns `numerator / denominator`, rounded and limited like a division.
    #[inline]
    pub const fn ratio(numerator: i32, denominator: i32) -> Self {
        quotient(numerator, denominator)
    }

    /// Returns the integer part, rounded down.
    #[inline]
    pub const fn floor(self) -> i32 {
        self.0 >> FRACTION_BITS
    }

    /// Returns the number as a floating-point number, for printing only.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(1 << FRACTION_BITS)
    }

    /// Returns `1 / self`; the largest number for zero.
    #[inline]
    pub const fn recip(self) -> Self {
        quotient(Self::ONE.0, self.0)
    }

    /// Returns the square root, rounded down; zero for negative numbers.
    #[inline]
    pub const fn sqrt(self) -> Self {
        if self.0 <= 0 { Self::ZERO } else { Self(((self.0 as u64) << FRACTION_BITS).isqrt() as i32) }
    }

    /// Returns `1 / sqrt(self)`; the largest number for zero and negative numbers.
    #[inline]
    pub const fn recip_sqrt(self) -> Self {
        if self.0 <= 0 { Self::MAX } else { Self(((1u64 << 48) / self.0 as u64).isqrt() as i32) }
    }

    /// Returns `self / divisor` by 48 shifts and subtractions.
    pub const fn div_by_bits(self, divisor: Self) -> Self {
        if divisor.0 == 0 {
            return divided_by_zero(self.0);
        }
        let (dividend, by) = ((self.0.unsigned_abs() as u64) << FRACTION_BITS, divisor.0.unsigned_abs() as u64);
        let (mut remainder, mut result, mut bit) = (0, 0u64, 48);
        while bit > 0 {
            bit -= 1;
            remainder = remainder << 1 | dividend >> bit & 1;
            result <<= 1;
            if remainder >= by {
                remainder -= by;
                result |= 1;
            }
        }
        signed(result + (remainder >= by - remainder) as u64, (self.0 < 0) != (divisor.0 < 0))
    }

    /// Returns the square root by 24 shifts and subtractions, one for each bit of the result.
    pub const fn sqrt_by_bits(self) -> Self {
        if self.0 <= 0 {
            return Self::ZERO;
        }
        let square = (self.0 as u64) << FRACTION_BITS;
        let (mut root, mut remainder, mut pair) = (0u64, 0u64, 24);
        while pair > 0 {
            pair -= 1;
            remainder = remainder << 2 | square >> (2 * pair) & 3;
            let trial = root << 2 | 1;
            root <<= 1;
            if remainder >= trial {
                remainder -= trial;
                root |= 1;
            }
        }
        Self(root as i32)
    }
}

/// Returns the number with `bits`, limited to the range.
#[inline]
const fn saturate(bits: i64) -> Fpx16 {
    if bits > i32::MAX as i64 {
        Fpx16::MAX
    } else if bits < i32::MIN as i64 {
        Fpx16::MIN
    } else {
        Fpx16(bits as i32)
    }
}

/// Returns `magnitude` with a sign, limited to the range.
#[inline]
const fn signed(magnitude: u64, is_negative: bool) -> Fpx16 {
    // The magnitude has 48 bits at most.
    saturate(if is_negative { -(magnitude as i64) } else { magnitude as i64 })
}

/// Returns the quotient with a divisor of zero: the largest number with the sign of the dividend, zero for zero.
#[inline]
const fn divided_by_zero(dividend: i32) -> Fpx16 {
    match dividend {
        0 => Fpx16::ZERO,
        1.. => Fpx16::MAX,
        _ => Fpx16::MIN,
    }
}

/// Returns `dividend / divisor` in units of 2^-16, rounded to the nearest.
#[inline]
const fn quotient(dividend: i32, divisor: i32) -> Fpx16 {
    if divisor == 0 {
        return divided_by_zero(dividend);
    }
    let (units, by) = ((dividend.unsigned_abs() as u64) << FRACTION_BITS, divisor.unsigned_abs() as u64);
    signed((units + by / 2) / by, (dividend < 0) != (divisor < 0))
}

impl Add for Fpx16 {
    type Output = Self;
    /// Adds; the result saturates.
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Fpx16 {
    type Output = Self;
    /// Subtracts; the result saturates.
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Neg for Fpx16 {
    type Output = Self;
    /// Negates; the result saturates.
    #[inline]
    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Mul for Fpx16 {
    type Output = Self;
    /// Rounded to the nearest number, limited to the range.
    #[inline]
    fn mul(self, other: Self) -> Self {
        let product = i64::from(self.0) * i64::from(other.0);
        saturate((product + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS)
    }
}

impl Div for Fpx16 {
    type Output = Self;
    /// Divides, rounding to nearest; the result saturates. Division by zero returns the largest number with the sign of
    /// the dividend, and zero for zero.
    #[inline]
    fn div(self, divisor: Self) -> Self {
        quotient(self.0, divisor.0)
    }
}

impl fmt::Display for Fpx16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.5}", self.as_f64())
    }
}

impl fmt::Debug for Fpx16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{RandomStream, RandomStreams};

    const UNIT: f64 = 1.0 / 65_536.0;
    const EDGES: [i32; 12] =
        [0, 1, -1, 2, 65_535, 65_536, 65_537, -65_536, i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1];

    /// Returns numbers of every magnitude.
    fn draw(random: &mut RandomStream) -> Fpx16 {
        let edge = random.below(64) as usize;
        Fpx16(EDGES.get(edge).copied().unwrap_or(random.bits() as i32 >> random.below(32)))
    }

    fn limited(value: f64) -> f64 {
        value.clamp(Fpx16::MIN.as_f64(), Fpx16::MAX.as_f64())
    }

    #[test]
    fn s17_errors_of_a_million_results_are_bounded() {
        let mut random = RandomStreams::new(1).stream("fixed");
        for _ in 0..1_000_000 {
            let (a, b) = (draw(&mut random), draw(&mut random));
            let (x, y) = (a.as_f64(), b.as_f64());
            assert!(((a * b).as_f64() - limited(x * y)).abs() <= UNIT / 2.0, "{a} * {b} = {}", a * b);
            assert_eq!((a + b).as_f64(), limited(x + y), "{a} + {b}");
            assert_eq!((a - b).as_f64(), limited(x - y), "{a} - {b}");
            assert_eq!((-a).as_f64(), limited(-x));
            if b != Fpx16::ZERO {
                assert!(((a / b).as_f64() - limited(x / y)).abs() <= UNIT, "{a} / {b} = {}", a / b);
                assert!((b.recip().as_f64() - limited(1.0 / y)).abs() <= UNIT, "1 / {b} = {}", b.recip());
            }
            if a > Fpx16::ZERO {
                assert!((a.sqrt().as_f64() - x.sqrt()).abs() <= UNIT, "sqrt {a} = {}", a.sqrt());
                let inverse = 1.0 / x.sqrt();
                let error = (a.recip_sqrt().as_f64() - inverse).abs();
                assert!(error <= UNIT.max(1e-4 * inverse), "1 / sqrt {a} = {}", a.recip_sqrt());
            }
        }
    }

    #[test]
    fn s17_division_and_root_by_bits_agree_on_a_million_inputs() {
        let mut random = RandomStreams::new(2).stream("bits");
        for _ in 0..1_000_000 {
            let (a, b) = (draw(&mut random), draw(&mut random));
            assert_eq!(a.sqrt_by_bits(), a.sqrt(), "sqrt {a}");
            assert_eq!(a.div_by_bits(b), a / b, "{a} / {b}");
        }
    }

    #[test]
    fn s17_results_that_do_not_fit_are_limited() {
        let two = Fpx16::from_int(2);
        assert_eq!((Fpx16::MAX + two, Fpx16::MIN - two, -Fpx16::MIN), (Fpx16::MAX, Fpx16::MIN, Fpx16::MAX));
        assert_eq!((Fpx16::MAX * two, Fpx16::MIN * two, Fpx16::MIN * Fpx16::MIN), (Fpx16::MAX, Fpx16::MIN, Fpx16::MAX));
        assert_eq!((two / Fpx16::ZERO, -two / Fpx16::ZERO), (Fpx16::MAX, Fpx16::MIN));
        assert_eq!((Fpx16::ZERO / Fpx16::ZERO, Fpx16::ZERO.recip()), (Fpx16::ZERO, Fpx16::MAX));
        assert_eq!((Fpx16::from_int(-3).sqrt(), Fpx16::ZERO.recip_sqrt()), (Fpx16::ZERO, Fpx16::MAX));
        assert_eq!(Fpx16::from_int(40_000), Fpx16::MAX);
    }

    #[test]
    fn s17_numbers_are_exact_where_they_can_be() {
        let half = Fpx16::ratio(1, 2);
        assert_eq!((half * half, half.sqrt() * half.sqrt() <= half), (Fpx16::ratio(1, 4), true));
        assert_eq!(Fpx16::from_int(144).sqrt(), Fpx16::from_int(12));
        assert_eq!(Fpx16::from_int(16).recip_sqrt(), Fpx16::ratio(1, 4));
        assert_eq!((Fpx16::ratio(-7, 2).floor(), Fpx16::ratio(-7, 2).to_string()), (-4, "-3.50000".to_owned()));
        assert_eq!(Fpx16::from_bits(1).to_bits(), 1);
    }
}
