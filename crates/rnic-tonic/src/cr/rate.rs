//! Rates: how long a flow waits for credit, and how much credit has grown (Tonic, section 4 and appendix B).
//!
//! A rate is a number of bytes in 2^16 cycles of 10 ns: 23 bits, units of 12,207.03125 bit/s. The several
//! representations of Tonic are prefixes of this one number: `rate >> s` bytes in `2^(16 - s)` cycles. Each is rounded
//! down, so a time computed from it is exact or too long, and the most precise is the smallest. Credit grows by the
//! exact rate; what a time was too long is credit for the next segment, so that the long-run rate is exact as long as
//! the credit is not cut off.

use crate::shape::SegmentId;

/// Fractional bits of a credit.
pub const FRACTION_BITS: u32 = 16;

/// Number of bits by which a rate is shortened in each representation: bytes in 1, 16, 256, 4096 and 65536 cycles.
const SHIFTS: [u32; 5] = [16, 12, 8, 4, 0];

/// Maximum width of a divisor in bits. Wider prefixes are not used: a shorter one is precise enough.
const DIVISOR_BITS: u32 = 12;

/// Maximum number of cycles that are credited at once.
const ELAPSED_MAX: u32 = 1 << 22;

/// Maximum credit of a flow in segments, which limits its bursts.
pub const BURST_SEGMENTS: u64 = 4;

/// Returns the number of cycles, rounded up, after which a flow that lacks `bytes` bytes of credit has them; `None` if
/// the rate is zero.
#[inline]
pub fn cycles_for(bytes: u32, rate: u32) -> Option<u64> {
    let cycles = |shift: u32| {
        let divisor = rate >> shift;
        let is_usable = divisor != 0 && divisor >> DIVISOR_BITS == 0;
        is_usable.then(|| u64::from(bytes.div_ceil(divisor)) << (16 - shift))
    };
    SHIFTS.into_iter().filter_map(cycles).min()
}

/// Returns the result of an exact division, given the missing credit with its fraction: the reference for
/// [`cycles_for`].
pub fn exact_cycles_for(missing: u64, rate: u32) -> Option<u64> {
    (rate != 0).then(|| missing.div_ceil(u64::from(rate)))
}

/// Returns the maximum credit of a flow with segments of `segment_bytes` bytes.
#[inline]
pub fn credit_max(segment_bytes: u16) -> u64 {
    (BURST_SEGMENTS * u64::from(segment_bytes)) << FRACTION_BITS
}

/// Returns the credit in cycle `now` of a flow that had `credit` in cycle `since`; both cycles modulo 2^24.
///
/// A flow that was not served for 2^24 cycles (168 ms) or longer receives too little credit, never too much.
#[inline]
pub fn credit_at(credit: u64, since: SegmentId, now: SegmentId, rate: u32, segment_bytes: u16) -> u64 {
    let elapsed = crate::shape::forward(since, now).min(ELAPSED_MAX);
    (credit + u64::from(elapsed) * u64::from(rate)).min(credit_max(segment_bytes))
}

/// Returns the number of bytes, rounded up, that `credit` lacks for a segment; zero if it suffices.
#[inline]
pub fn missing_bytes(credit: u64, segment_bytes: u16) -> u32 {
    let missing = (u64::from(segment_bytes) << FRACTION_BITS).saturating_sub(credit);
    missing.div_ceil(1 << FRACTION_BITS) as u32
}

#[cfg(test)]
mod tests {
    use rnic_base::RandomStreams;
    use rnic_program::interface::rate;

    use super::*;

    fn rate_of(bps: u64) -> u32 {
        rate(bps) as u32
    }

    #[test]
    fn t20_the_papers_example_waits_60_cycles() {
        let rate = rate_of(20_000_000_000);
        assert_eq!(rate >> 16, 25, "20 Gbit/s are 25 bytes a cycle");
        assert_eq!(cycles_for(1_500, rate), Some(60));
        assert_eq!(cycles_for(200, rate), Some(8));
        assert_eq!(cycles_for(0, rate), Some(0));
        assert_eq!(cycles_for(1, 0), None);
    }

    #[test]
    fn t20_times_are_never_too_short_and_the_coarser_ones_add_little() {
        let mut random = RandomStreams::new(20).stream("rates");
        for _ in 0..200_000 {
            let bits = 1 + random.below(23);
            let rate = (1 + random.below(1 << bits)).min((1 << 23) - 1) as u32;
            let bytes = 1 + random.below(16_383) as u32;
            let exact = exact_cycles_for(u64::from(bytes) << FRACTION_BITS, rate).unwrap();
            let time = cycles_for(bytes, rate).unwrap();
            assert!(time >= exact, "{bytes} B at {rate}: {time} before {exact}");
            // The longest usable prefix has at least 9 of its 12 bits, unless it is the whole rate. Its unit is the
            // time that rounding up may add.
            let shift = (0..=16).step_by(4).find(|shift| rate >> shift < 1 << DIVISOR_BITS).unwrap();
            let bound = exact + exact / 128 + (1 << (16 - shift));
            assert!(time <= bound, "{bytes} B at {rate}: {time} long after {exact}");
        }
    }

    #[test]
    fn t20_bits_per_second_are_said_with_less_than_a_thousandth_of_error() {
        for bps in [1_000_000, 1_500_000, 10_000_000, 100_000_000, 999_999_999, 19_900_000_000, 100_000_000_000_u64] {
            let said = u64::from(rate_of(bps)) * 390_625 / 32;
            assert!(said.abs_diff(bps) * 1_000 < bps, "{bps} bit/s become {said}");
        }
        assert_eq!(rate_of(100_000_000_000), 8_192_000);
        assert!(rate_of(100_000_000_000) < 1 << 23);
    }

    #[test]
    fn t15_credit_grows_by_the_exact_rate_up_to_the_burst() {
        let cycle = |cycle: u32| SegmentId::new(cycle);
        // 1 Mbit/s: 82 bytes in 65536 cycles.
        let one = credit_at(0, cycle(0xFF_FFF0), cycle(0x10), 82, 1_500);
        assert_eq!(one, 32 * 82, "the elapsed cycles are counted across the wrap");
        assert_eq!(credit_at(0, cycle(0), cycle(1_000_000), 8_192_000, 1_500), credit_max(1_500));
        assert_eq!(credit_at(0, cycle(0), cycle(0xFF_FFFF), 82, 1_500), (1 << 22) * 82);
        assert_eq!(missing_bytes(0, 1_500), 1_500);
        assert_eq!(missing_bytes(1 << FRACTION_BITS, 1_500), 1_499);
        assert_eq!(missing_bytes((1 << FRACTION_BITS) - 1, 1_500), 1_500);
        assert_eq!(missing_bytes(1_500 << FRACTION_BITS, 1_500), 0);
    }
}
