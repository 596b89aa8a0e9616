//! One keyed hash for all tools.
//!
//! Source: the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA
//! 2014), applied twice with a key between.
//!
//! Restrictions: it is no cryptographic function. Its key is a secret of the driver (drawn on a host, from the seed in
//! a simulation), so that a peer that chooses numbers cannot make many of them collide on purpose.

/// Returns 64 bits that depend on every bit of `key` and `item`.
#[inline]
pub const fn keyed_hash(key: u64, item: u64) -> u64 {
    mix(mix(item ^ key).wrapping_add(key.rotate_left(32)))
}

/// Returns a number in which every bit of `value` changes half of the bits. Different values give different numbers.
#[inline]
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_of_key_or_item_changes_half_of_the_hash() {
        let mut changed = 0;
        for item in 0..64u64 {
            for bit in 0..64 {
                changed += (keyed_hash(7, item) ^ keyed_hash(7, item ^ 1 << bit)).count_ones();
                changed += (keyed_hash(item, 7) ^ keyed_hash(item ^ 1 << bit, 7)).count_ones();
            }
        }
        let mean = f64::from(changed) / (64.0 * 64.0 * 2.0);
        assert!((31.5..32.5).contains(&mean), "{mean} of 64 bits");
    }
}
