//! XRC extended transport header (InfiniBand Architecture volume 1, section 9.3 and annex A14): the shared receive
//! queue at the target from which a message consumes a receive.
//!
//! ```text
//!        0               1               2               3
//!  0  |   reserved    |       shared receive queue number            |
//! ```
//!
//! The header follows the base transport header of packets with an XRC opcode (101 in the three high bits).
//! Deviation: by the annex all requests of such a connection have it; here only those that consume a receive have it,
//! and the others are as in a reliable connection: the memory that these may access does not depend on a shared
//! receive queue.

use crate::bytes::{be24, put24, split};
use crate::error::WireError;
use crate::packet::Qpn;

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// Transport service bits of an XRC opcode.
pub const SERVICE: u8 = 0xa0;

/// Returns whether an opcode is an XRC opcode.
#[inline]
pub const fn is_shared(opcode: u8) -> bool {
    opcode & 0xe0 == SERVICE
}

/// Splits the header off the front of `bytes`; returns the number in it and the bytes after it.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
pub fn split_off(bytes: &[u8]) -> Result<(Qpn, &[u8]), WireError> {
    let (header, rest) = split::<LEN>(bytes)?;
    Ok((Qpn::new(be24(header, 1)), rest))
}

/// Writes the header.
#[inline]
pub fn emit(srqn: Qpn, out: &mut [u8; LEN]) {
    out[0] = 0;
    put24(out, 1, srqn.get());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut bytes = [0xee; LEN];
        emit(Qpn::new(0x12_3456), &mut bytes);
        assert_eq!(bytes, [0, 0x12, 0x34, 0x56]);
        assert_eq!(split_off(&[0xff, 0x12, 0x34, 0x56, 9]), Ok((Qpn::new(0x12_3456), &[9][..])));
        assert_eq!(split_off(&bytes[..3]).err(), Some(WireError::Short));
        assert!(is_shared(0xa4) && !is_shared(0x84) && !is_shared(0x24) && !is_shared(0x81));
    }
}
