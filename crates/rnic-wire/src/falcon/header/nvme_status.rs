//! Word after NVMe's base header in Read Responses and Write Completions (OCP NVMe over Falcon Transport, Rev 0.9,
//! sections 8.4 and 8.8).
//!
//! ```text
//!     0               1               2               3
//!  8 |            reserved             |          status             | 17 and 15 bits
//! ```

use super::split;
use crate::bytes::be16;
use crate::falcon::WireError;

/// Length of the word in bytes.
pub const LEN: usize = 4;
/// Largest status: 15 bits.
pub const STATUS_MAX: u16 = 0x7fff;

/// Returns the NVMe status, and the bytes that follow its header.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_status(bytes: &[u8]) -> Result<(u16, &[u8]), WireError> {
    let (field, rest) = split::<LEN>(bytes)?;
    Ok((be16(field, 2) & STATUS_MAX, rest))
}

/// Writes the status.
#[inline]
pub fn emit(status: u16, out: &mut [u8; LEN]) {
    *out = u32::from(status).to_be_bytes();
}
