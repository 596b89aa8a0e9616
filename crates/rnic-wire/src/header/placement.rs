//! Headers of the memory placement extensions (InfiniBand Architecture volume 1, annex A19): flush and atomic write.
//!
//! A flush has a flush extended transport header (FETH) before its RETH:
//!
//! ```text
//!        0               1               2               3
//!  0  |                 reserved                  |SEL|    PLT    |
//! ```
//!
//! SEL (2 bits) selects the memory to flush, PLT (4 bits) the guarantee required. An atomic write is a RETH and eight
//! bytes, which the annex defines as its payload.

use crate::header::reth;
use crate::packet::PlacementOp;

/// Length of a FETH in bytes.
pub const FETH_LEN: usize = 4;

/// Maximum length of an operation's headers in bytes, without the additions of IRN and FaSR.
pub const LEN_MAX: usize = reth::LEN + 8;

const SELECTIVITY_SHIFT: u32 = 4;
const SELECTIVITY_MASK: u8 = 0x3;
const PLACEMENT_MASK: u8 = 0xf;

/// Returns the length of an operation's headers in bytes, without the additions of IRN and FaSR.
#[inline]
pub const fn len(op: &PlacementOp) -> usize {
    match op {
        PlacementOp::AtomicWrite { .. } => reth::LEN + 8,
        PlacementOp::Flush { .. } => FETH_LEN + reth::LEN,
    }
}

/// Returns a FETH.
#[inline]
pub const fn feth(placement: u8, selectivity: u8) -> [u8; FETH_LEN] {
    [0, 0, 0, placement & PLACEMENT_MASK | (selectivity & SELECTIVITY_MASK) << SELECTIVITY_SHIFT]
}

/// Decodes a FETH; returns placement type and selectivity level. Reserved bits are ignored.
#[inline]
pub const fn read_feth(bytes: [u8; FETH_LEN]) -> (u8, u8) {
    (bytes[3] & PLACEMENT_MASK, bytes[3] >> SELECTIVITY_SHIFT & SELECTIVITY_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        assert_eq!(feth(1, 0), [0, 0, 0, 0x01]);
        assert_eq!(feth(2, 1), [0, 0, 0, 0x12]);
        assert_eq!(read_feth([0xff, 0xff, 0xff, 0xd2]), (2, 1), "reserved bits are ignored");
        for (placement, selectivity) in (0..16).flat_map(|placement| (0..4).map(move |sel| (placement, sel))) {
            assert_eq!(read_feth(feth(placement, selectivity)), (placement, selectivity));
        }
    }
}
