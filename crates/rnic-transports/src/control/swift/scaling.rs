//! Flow scaling: the smaller a window, the longer its target delay, so that many small flows can share a queue.
//!
//! Source: specification 10.3.2 in the form of Swift (SIGCOMM'20), because the specification's form is negative:
//! `alpha/sqrt(w) + beta` between 0 and the range, where `alpha = range / (1/sqrt(w_min) - 1/sqrt(w_max))` and `beta
//! = -alpha/sqrt(w_max)`; windows of 0.1 and 256 packets are the ends.
//!
//! In integers: the window is shifted by an even number of bits into [1, 4), 1/sqrt is read from a table of 192 steps
//! and interpolated linearly between two of them. The error of 1/sqrt is at most 1/10000 of its value; the resulting
//! error of the extra delay is at most one tick plus 1/10000 of the delay.

use core::hint::select_unpredictable;

use super::TIME_MAX;
use super::state::WINDOW_MAX;
use super::unit::WINDOW_ONE;

/// Steps of the table per unit of the argument.
const STEPS_PER_UNIT: usize = 64;
/// Bits of the argument below one step of the table.
const LOW_BITS: u32 = 14;
/// Number of fractional bits of 1/sqrt(x), as the table stores it.
const ROOT_BITS: u32 = 16;

/// Length of the table: a power of two, so that no index needs a check. Entries above argument 4 are never read.
const TABLE_LEN: usize = 256;

/// 1/sqrt(index / STEPS_PER_UNIT) for arguments of 1 to 4.
const TABLE: [u32; TABLE_LEN] = table();

const fn table() -> [u32; TABLE_LEN] {
    let mut table = [0; TABLE_LEN];
    let mut index = 0;
    while index < 3 * STEPS_PER_UNIT + 1 {
        // 2^16 / sqrt(i/64) = sqrt(2^38 / i), computed with one extra bit and rounded to the nearest.
        let square = (1u64 << 40) / (STEPS_PER_UNIT + index) as u64;
        table[index] = (square.isqrt() as u32 + 1) >> 1;
        index += 1;
    }
    table
}

/// Inverse of the difference between 1/sqrt of a window of 0.1 packets (3.16228) and that of 256 packets (1/16):
/// 0.32261, times 2^16.
const INVERSE_SPAN: u64 = 21_143;
/// Low bits dropped from the product of the range and that inverse, so that it fits into 32 bits.
const SPARE_BITS: u32 = 3;
/// 1/sqrt of 256 packets.
const ROOT_OF_LARGEST: u32 = (1 << ROOT_BITS) / 16;

/// Returns 1/sqrt of a window, with 16 fractional bits; the window has 10.
#[inline(always)]
pub(super) fn inverse_root(fcwnd: u32) -> u32 {
    let fcwnd = fcwnd.clamp(1, WINDOW_MAX);
    // Shifts by an even number of bits, so that the highest bit is at position 20 or 21; each shift by two bits
    // doubles the root.
    let half_shift = (fcwnd.leading_zeros() - (u32::BITS - 22)) / 2;
    let argument = fcwnd << (2 * half_shift);
    let step = ((argument >> LOW_BITS) as usize).wrapping_sub(STEPS_PER_UNIT);
    let (left, right) = (TABLE[step % TABLE_LEN], TABLE[(step + 1) % TABLE_LEN]);
    let root = left - (((left - right) * (argument & ((1 << LOW_BITS) - 1))) >> LOW_BITS);
    // The highest bit of a window of one packet is at position 10: the shift to position 20 is a factor of 2^10, or
    // 2^5 for the root.
    const { assert!(WINDOW_ONE == 1 << 10) };
    (root << half_shift) >> 5
}

/// Returns the delay that flow scaling adds to the target of a flow with window `fcwnd`, at most `range` (both in
/// ticks).
#[inline(always)]
pub(super) fn flow_scaling_delay(fcwnd: u32, range: u32) -> u32 {
    // No overflow: the first product is 20 bits (the longest time parameter) by 15 bits, and is reduced to 32 bits;
    // the second is 32 by 22 bits.
    const { assert!((TIME_MAX.as_ps() >> 17) < 1 << 20) };
    let scale = (u64::from(range) * INVERSE_SPAN) >> SPARE_BITS;
    let above = inverse_root(fcwnd).saturating_sub(ROOT_OF_LARGEST);
    let shift = 2 * ROOT_BITS - SPARE_BITS;
    let delay = ((scale * u64::from(above) + (1 << (shift - 1))) >> shift) as u32;
    select_unpredictable(delay < range, delay, range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_root_is_within_a_ten_thousandth_of_every_window() {
        for fcwnd in 1..=WINDOW_MAX {
            let exact = 1.0 / (f64::from(fcwnd) / 1_024.0).sqrt();
            let root = f64::from(inverse_root(fcwnd)) / 65_536.0;
            // Results below 2^-16 are zero.
            assert!((root - exact).abs() <= exact / 10_000.0 + 1.0 / 65_536.0, "{fcwnd}: {root} for {exact}");
        }
    }

    #[test]
    fn flow_scaling_delay_agrees_with_the_formula() {
        let range = 763.0;
        let alpha = range / (1.0 / 0.1f64.sqrt() - 1.0 / 16.0);
        assert!((alpha - 246.2).abs() < 0.2, "not the simulator's constants");
        for fcwnd in 1..=WINDOW_MAX {
            let exact = (alpha / (f64::from(fcwnd) / 1_024.0).sqrt() - alpha / 16.0).clamp(0.0, range);
            let made = f64::from(flow_scaling_delay(fcwnd, 763));
            assert!((made - exact).abs() <= 1.0 + exact / 10_000.0, "{fcwnd}: {made} for {exact}");
        }
    }

    #[test]
    fn flow_scaling_delay_ends_where_the_windows_end() {
        assert_eq!(flow_scaling_delay(10, 763), 763, "not the range for 0.01 packets");
        assert_eq!(flow_scaling_delay(256 * WINDOW_ONE, 763), 0);
        assert_eq!(flow_scaling_delay(WINDOW_MAX, 763), 0);
        assert_eq!(flow_scaling_delay(WINDOW_ONE, 0), 0, "not zero although flow scaling is off");
    }
}
