//! The bitmaps that an EACK adds to a BACK (OCP Falcon Transport Protocol, Rev 0.9, section 7.7.2).
//!
//! ```text
//!   8 to 11   data packets acknowledged: bits 127 to 96, 95 to 64, 63 to 32, 31 to 0
//!  12 to 15   data packets received, the same way
//!  16 to 17   requests received: bits 63 to 32, 31 to 0
//! ```
//!
//! Bit n represents the packet n after the base (section 9.2.1). The example of section 6.5 has a gap at the base and
//! writes 0b0111, where the definition gives 0b1110: this module follows the definition.

use super::split;
use crate::bytes::{array, be64, put};
use crate::falcon::{Bitmaps, WireError};

/// Length of the bitmaps in bytes.
pub const LEN: usize = 40;

/// Reads the bitmaps.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_bitmaps(bytes: &[u8]) -> Result<(Bitmaps, &[u8]), WireError> {
    let (field, rest) = split::<LEN>(bytes)?;
    let bitmaps = Bitmaps {
        data_acked: u128::from_be_bytes(array(field, 0)),
        data_received: u128::from_be_bytes(array(field, 16)),
        request_received: be64(field, 32),
    };
    Ok((bitmaps, rest))
}

/// Writes the bitmaps.
#[inline]
pub fn emit(bitmaps: &Bitmaps, out: &mut [u8; LEN]) {
    put(out, 0, bitmaps.data_acked.to_be_bytes());
    put(out, 16, bitmaps.data_received.to_be_bytes());
    put(out, 32, bitmaps.request_received.to_be_bytes());
}
