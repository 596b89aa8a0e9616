//! Flow scaling: the smaller a window, the longer its target delay, so that many small flows can share a queue.
//!
//! Source: specification 10.3.2 with the form of Swift (SIGCOMM'20), where the specification's is negative:
//! `alpha/sqrt(w) + beta` between 0 and the range, where `alpha = range / (1/sqrt(w_min) - 1/sqrt(w_max))` and `beta =
//! -alpha/sqrt(w_max)`; windows of 0.1 and 256 packets are the ends.
//!
//! In integers: the window is shifted by an even number of bits into [1, 4), 1/sqrt is read from a table of 192 steps
//! and interpolated linearly between two of them. The error of 1/sqrt is at most 1/10000 of its value, that of the
//! extra delay with it at most one tick and 1/10000 of it.

use core::hint::select_unpredictable;

use super::TIME_MAX;
use super::state::WINDOW_MAX;
use super::unit::WINDOW_ONE;

/// Steps of the table per unit of the argument.
const STEPS: usize = 64;
/// Bits of the argument below one step of the table.
const LOW_BITS: u32 = 14;
/// Fractional bits of 1/sqrt.
const ROOT_BITS: u32 = 16;

/// Length of the table: a power of two, so that no index needs a check. Entries above argument 4 are never read.
const PLACES: usize = 256;

/// 1/sqrt(index / STEPS) for arguments of 1 to 4.
const TABLE: [u32; PLACES] = table();

const fn table() -> [u32; PLACES] {
    let mut table = [0; PLACES];
    let mut index = 0;
    while index < 3 * STEPS + 1 {
        // 2^16 / sqrt(i/64) = sqrt(2^38 / i), computed with one extra bit and rounded to the nearest.
        let square = (1u64 << 40) / (STEPS + index) as u64;
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

/// Returns 1/sqrt of a window with 10 fractional bits, with 16 fractional bits.
#[inline(always)]
pub(super) fn inverse_root(fcwnd: u32) -> u32 {
    let fcwnd = fcwnd.clamp(1, WINDOW_MAX);
    // An even shift moves the highest bit to position 20 or 21; every two positions double the root.
    let half_shift = (fcwnd.leading_zeros() - (u32::BITS - 22)) / 2;
    let argument = fcwnd << (2 * half_shift);
    let step = ((argument >> LOW_BITS) as usize).wrapping_sub(STEPS);
    let (left, right) = (TABLE[step % PLACES], TABLE[(step + 1) % PLACES]);
    let root = left - (((left - right) * (argument & ((1 << LOW_BITS) - 1))) >> LOW_BITS);
    // Positions 20 and 10 (of a window of one packet) differ by 2^10: by 2^5 for the root.
    const { assert!(WINDOW_ONE == 1 << 10) };
    (root << half_shift) >> 5
}

/// Returns the delay that flow scaling adds to the target of a flow with window `fcwnd`, at most `range` (both in
/// ticks).
#[inline(always)]
pub(super) fn extra(fcwnd: u32, range: u32) -> u32 {
    // No overflow: a product of 20 bits (the longest time parameter) by 15 bits, reduced to 32 bits; and one of 32 by
    // 22 bits.
    const { assert!((TIME_MAX.as_ps() >> 17) < 1 << 20) };
    let scale = (u64::from(range) * INVERSE_SPAN) >> SPARE_BITS;
    let above = inverse_root(fcwnd).saturating_sub(ROOT_OF_LARGEST);
    let shift = 2 * ROOT_BITS - SPARE_BITS;
    let extra = ((scale * u64::from(above) + (1 << (shift - 1))) >> shift) as u32;
    select_unpredictable(extra < range, extra, range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_root_is_within_a_ten_thousandth_of_every_window() {
        for fcwnd in 1..=WINDOW_MAX {
            let exact = 1.0 / (f64::from(fcwnd) / 1_024.0).sqrt();
            let root = f64::from(inverse_root(fcwnd)) / 65_536.0;
            // Below 2^-16 there are no bits.
            assert!((root - exact).abs() <= exact / 10_000.0 + 1.0 / 65_536.0, "{fcwnd}: {root} for {exact}");
        }
    }

    #[test]
    fn extra_is_what_the_formula_gives() {
        let range = 763.0;
        let alpha = range / (1.0 / 0.1f64.sqrt() - 1.0 / 16.0);
        assert!((alpha - 246.2).abs() < 0.2, "the simulator's constants");
        for fcwnd in 1..=WINDOW_MAX {
            let exact = (alpha / (f64::from(fcwnd) / 1_024.0).sqrt() - alpha / 16.0).clamp(0.0, range);
            let made = f64::from(extra(fcwnd, 763));
            assert!((made - exact).abs() <= 1.0 + exact / 10_000.0, "{fcwnd}: {made} for {exact}");
        }
    }

    #[test]
    fn extra_ends_where_the_windows_end() {
        assert_eq!(extra(10, 763), 763, "0.01 packets: the range");
        assert_eq!(extra(256 * WINDOW_ONE, 763), 0);
        assert_eq!(extra(WINDOW_MAX, 763), 0);
        assert_eq!(extra(WINDOW_ONE, 0), 0, "flow scaling off");
    }
}
