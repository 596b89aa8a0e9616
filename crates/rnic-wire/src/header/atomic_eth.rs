//! Atomic extended transport header (InfiniBand Architecture volume 1, section 9.3): an operation on eight bytes.
//!
//! ```text
//!        0               1               2               3
//!  0  |                       virtual address                         |
//!  4  |                                                               |
//!  8  |                             R_Key                             |
//! 12  |                     swap, or add, data                        |
//! 16  |                                                               |
//! 20  |            compare data (reserved for fetch and add)          |
//! 24  |                                                               |
//! ```

use crate::bytes::{be32, be64, put, split};
use crate::error::WireError;
use crate::packet::AtomicOp;

/// Length of the header in bytes.
pub const LEN: usize = 28;

/// View of an atomic extended transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AtomicEthView<'a>(&'a [u8; LEN]);

impl<'a> AtomicEthView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the address of the eight bytes.
    #[inline]
    pub fn va(self) -> u64 {
        be64(self.0, 0)
    }

    /// Returns the key that grants access.
    #[inline]
    pub fn rkey(self) -> u32 {
        be32(self.0, 8)
    }

    /// Returns the operation, for the opcode compare and swap.
    #[inline]
    pub fn compare_swap(self) -> AtomicOp {
        AtomicOp::CompareSwap { compare: be64(self.0, 20), swap: be64(self.0, 12) }
    }

    /// Returns the operation, for the opcode fetch and add.
    #[inline]
    pub fn fetch_add(self) -> AtomicOp {
        AtomicOp::FetchAdd { add: be64(self.0, 12) }
    }
}

/// Writes the header.
#[inline]
pub fn emit(va: u64, rkey: u32, op: &AtomicOp, out: &mut [u8; LEN]) {
    let (swap_or_add, compare) = match *op {
        AtomicOp::CompareSwap { compare, swap } => (swap, compare),
        AtomicOp::FetchAdd { add } => (add, 0),
    };
    put(out, 0, va.to_be_bytes());
    put(out, 8, rkey.to_be_bytes());
    put(out, 12, swap_or_add.to_be_bytes());
    put(out, 20, compare.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let op = AtomicOp::CompareSwap { compare: 0x1011_1213_1415_1617, swap: 0x2021_2223_2425_2627 };
        let mut bytes = [0xee; LEN];
        emit(0x0011_2233_4455_6670, 0x8899_aabb, &op, &mut bytes);
        assert_eq!(bytes[..12], [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x70, 0x88, 0x99, 0xaa, 0xbb]);
        assert_eq!(bytes[12..20], [0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27]);
        assert_eq!(bytes[20..], [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17]);
        let (view, rest) = AtomicEthView::split(&bytes).expect("28 bytes");
        assert_eq!((view.va(), view.rkey(), rest.len()), (0x0011_2233_4455_6670, 0x8899_aabb, 0));
        assert_eq!(view.compare_swap(), op);
        assert_eq!(view.fetch_add(), AtomicOp::FetchAdd { add: 0x2021_2223_2425_2627 });
        assert_eq!(AtomicEthView::split(&bytes[..27]).err(), Some(WireError::Short));
    }

    #[test]
    fn fetch_add_leaves_the_compare_field_zero() {
        let mut bytes = [0xee; LEN];
        emit(8, 1, &AtomicOp::FetchAdd { add: 5 }, &mut bytes);
        assert_eq!(bytes[12..], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
