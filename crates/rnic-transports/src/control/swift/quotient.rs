//! Integer division of several pairs in parallel: the processor's division instruction can only divide one pair at a
//! time.
//!
//! Source: Newton's iteration for the inverse, from the line 48/17 - 32/17 d (the textbook's starting value for
//! divisors between a half and one), in fixed point; each step squares the error, from 1/17 to below 2^-31 in three.
//! The result is never too large and may be slightly too small; multiplying it by the divisor gives the correction,
//! so that the final result is exactly that of `/`.

use core::hint::select_unpredictable;

/// 48/17 with 31 fractional bits, modulo 2^32: the overflow disappears when the slope term is subtracted.
const INVERSE_START: u32 = ((48u64 << 31) / 17) as u32;
/// 16/17 with 32 fractional bits.
const SLOPE: u32 = ((16u64 << 32) / 17) as u32;
const NEWTON_STEPS: u32 = 3;
/// Largest amount by which the first quotient is too small.
const CORRECTION_STEPS: u32 = 3;

/// Returns `number / divisor`, rounded down, for a divisor above zero.
#[inline(always)]
pub(super) fn quotient(number: u32, divisor: u32) -> u32 {
    let shift = divisor.leading_zeros();
    // Between 2^31 and 2^32; its inverse, times 2^63, is in the same range.
    let scaled = divisor.wrapping_shl(shift);
    let mut inverse = INVERSE_START.wrapping_sub(high(scaled, SLOPE));
    for _ in 0..NEWTON_STEPS {
        // 2 - scaled * inverse, minus one unit so that the value never exceeds 32 bits.
        let factor = !high(scaled, inverse);
        inverse = ((u64::from(inverse) * u64::from(factor)) >> 31) as u32;
    }
    let mut quotient = high(number, inverse).wrapping_shr(31 - shift);
    let mut remainder = number.wrapping_sub(quotient.wrapping_mul(divisor));
    for _ in 0..CORRECTION_STEPS {
        let fits = remainder >= divisor;
        quotient = select_unpredictable(fits, quotient + 1, quotient);
        remainder = select_unpredictable(fits, remainder.wrapping_sub(divisor), remainder);
    }
    quotient
}

/// Returns the upper half of a product.
#[inline(always)]
fn high(left: u32, right: u32) -> u32 {
    ((u64::from(left) * u64::from(right)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use rnic_base::RandomStreams;

    use super::*;

    fn check(number: u32, divisor: u32) {
        assert_eq!(quotient(number, divisor), number / divisor, "{number} / {divisor}");
    }

    #[test]
    fn quotients_are_exact_at_every_edge() {
        for divisor in (1..5_000).chain((0..32).flat_map(|bit| [1 << bit, (1u32 << bit) | 1, u32::MAX >> bit])) {
            for number in [0, 1, u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1, 1 << 30] {
                check(number, divisor);
            }
            let most = u32::MAX / divisor;
            for multiple in [1, 2, most / 2, most.saturating_sub(1), most] {
                let product = multiple.wrapping_mul(divisor);
                for number in [product.wrapping_sub(1), product, product.wrapping_add(1)] {
                    check(number, divisor);
                }
            }
        }
    }

    #[test]
    fn quotients_are_exact_at_random() {
        let mut random = RandomStreams::new(1).stream("quotient");
        for _ in 0..2_000_000 {
            let [number, divisor] = [(); 2].map(|()| (random.below(1 << 32) as u32) >> random.below(32));
            check(number, divisor.max(1));
        }
    }

    #[test]
    #[ignore = "half a minute: every delay that a record holds"]
    fn inverses_of_all_delays_are_exact() {
        (1..1 << 24).for_each(|delay| check(u32::MAX, delay));
    }
}
