//! The number of distinct flows, in 2 KiB.
//!
//! Source: SCR (NSDI'25), section 4.3.3; Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality
//! estimation algorithm", AofA 2007. The hash has 64 bits, so large numbers need no correction.
//!
//! Restrictions: the estimate uses integers alone, and is the same on every machine. Its standard error is
//! 1.04 / sqrt(2048) = 2.3 %.

use crate::tools::hash::keyed_hash;

/// Bits of a hash that select the register.
const PRECISION: u32 = 11;

const REGISTERS: usize = 1 << PRECISION;

/// `alpha * m^2`, with `alpha = 0.7213 / (1 + 1.079 / m)` for `m` registers.
const ALPHA_M_SQUARED: u64 = 3_023_758;

/// Largest raw estimate that is replaced by linear counting, which uses the number of empty registers: `2.5 m`.
const LINEAR_MAX: u64 = 5 * REGISTERS as u64 / 2;

/// The number of distinct items that were inserted.
#[derive(Clone, Debug)]
pub struct HyperLogLog {
    registers: Box<[u8]>,
    key: u64,
}

impl HyperLogLog {
    /// Creates an empty set; `key` is the driver's secret.
    pub fn new(key: u64) -> Self {
        Self { registers: vec![0; REGISTERS].into_boxed_slice(), key }
    }

    /// Returns the memory that it uses, in bytes.
    pub const fn memory() -> usize {
        REGISTERS
    }

    /// Inserts `item`.
    #[inline]
    pub fn insert(&mut self, item: u64) {
        let hash = keyed_hash(self.key, item);
        let register = &mut self.registers[(hash >> (u64::BITS - PRECISION)) as usize];
        // The position of the first one in the other 53 bits; the bit behind them bounds it.
        let rank = (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros() + 1;
        *register = (*register).max(rank as u8);
    }

    /// Returns the estimated number of distinct items.
    pub fn estimate(&self) -> u64 {
        // The sum of 2^-M in Q32; a register above 32 adds less than half of a unit.
        let sum: u64 = self.registers.iter().map(|rank| (1u64 << 32) >> rank).sum();
        let estimate = (ALPHA_M_SQUARED << 32) / sum.max(1);
        let empty = self.registers.iter().filter(|rank| **rank == 0).count() as u64;
        if estimate <= LINEAR_MAX && empty > 0 { linear_count(empty) } else { estimate }
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.registers.fill(0);
    }
}

/// Returns `m ln(m / empty)`, rounded: the number of items that leave `empty` of `m` registers empty.
const fn linear_count(empty: u64) -> u64 {
    /// ln 2 in Q32.
    const LN_2: u64 = 2_977_044_472;
    let log2 = ((PRECISION as u64) << 16) - log2_q16(empty);
    // 11 bits of registers, 20 of the logarithm, 32 of ln 2.
    (REGISTERS as u64 * log2 * (LN_2 >> 16) + (1 << 31)) >> 32
}

/// Returns log2 of `value`, which is not zero, with 16 fractional bits: a bit for each squaring.
const fn log2_q16(value: u64) -> u64 {
    let whole = value.ilog2();
    // In [1, 2), as 1.31.
    let mut mantissa = (value << (63 - whole)) >> 32;
    let mut log2 = whole as u64;
    let mut bit = 0;
    while bit < 16 {
        mantissa = (mantissa * mantissa) >> 31;
        log2 <<= 1;
        if mantissa >= 1 << 32 {
            mantissa >>= 1;
            log2 |= 1;
        }
        bit += 1;
    }
    log2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the estimates of `sets` sets of `count` items, each with another key.
    fn estimates(sets: u64, count: u64) -> impl Iterator<Item = u64> {
        (0..sets).map(move |key| {
            let mut flows = HyperLogLog::new(key);
            (0..count).for_each(|item| flows.insert(item));
            flows.estimate()
        })
    }

    #[test]
    fn s16_estimates_are_within_two_standard_errors_in_95_of_100_sets() {
        for count in [100, 1_000, 10_000, 100_000, 1_000_000] {
            let near = estimates(200, count).filter(|estimate| estimate.abs_diff(count) * 1_000 <= 46 * count).count();
            assert!(near >= 190, "{near} of 200 sets of {count} flows");
        }
    }

    #[test]
    fn s16_the_bias_where_the_formula_changes_is_below_a_standard_error() {
        // Up to 5120 empty registers are counted; the original algorithm has its known bias above.
        for count in [3_000, 4_500, 5_000, 5_500, 6_000, 8_000] {
            let mean = estimates(400, count).sum::<u64>() / 400;
            assert!(mean.abs_diff(count) * 1_000 <= 23 * count, "{mean} of {count} flows");
        }
    }

    #[test]
    fn s16_items_count_once() {
        let mut flows = HyperLogLog::new(1);
        assert_eq!(flows.estimate(), 0);
        flows.insert(9);
        assert_eq!(flows.estimate(), 1);
        for _ in 0..100 {
            (0..500).for_each(|item| flows.insert(item));
        }
        assert!(flows.estimate().abs_diff(500) <= 23, "{} of 500", flows.estimate());
        flows.clear();
        assert_eq!((flows.estimate(), HyperLogLog::memory(), flows.registers.len()), (0, 2_048, 2_048));
    }

    #[test]
    fn s16_constants_and_logarithms_are_those_of_real_numbers() {
        let registers = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / registers);
        assert!((ALPHA_M_SQUARED as f64 - alpha * registers * registers).abs() < 1.0);
        for value in 1..=2_048u64 {
            let log2 = log2_q16(value) as f64 / 65_536.0;
            assert!((log2 - (value as f64).log2()).abs() < 4e-5, "{value}: {log2}");
            let count = linear_count(value) as f64;
            assert!((count - registers * (registers / value as f64).ln()).abs() < 0.6, "{value}: {count}");
        }
    }
}
