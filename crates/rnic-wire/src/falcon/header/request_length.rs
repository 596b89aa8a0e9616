//! Word or words after the base header of Pull Requests and Push Data: the length of the data (OCP Falcon Transport
//! Protocol, Rev 0.9, sections 7.3 and 7.5).
//!
//! ```text
//!     0               1               2               3
//!  6 |           reserved            |        request length         |
//!  7 |                         reserved                              | only in Pull Requests
//! ```
//!
//! In the specification the figures and the tables of these two headers agree, but only the figures show that the
//! upper half of the word is the reserved one.

use super::split;
use crate::bytes::be16;
use crate::falcon::WireError;

/// Length of this header in Push Data, in bytes.
pub const PUSH_LEN: usize = 4;
/// Length of this header in Pull Requests, in bytes.
pub const PULL_LEN: usize = 8;

/// Reads the length from `LEN` bytes: [`PUSH_LEN`] or [`PULL_LEN`].
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_length<const LEN: usize>(bytes: &[u8]) -> Result<(u16, &[u8]), WireError> {
    const { assert!(LEN == PUSH_LEN || LEN == PULL_LEN) };
    let (field, rest) = split::<LEN>(bytes)?;
    Ok((be16(field, 2), rest))
}

/// Writes the length into `LEN` bytes.
#[inline]
pub fn emit<const LEN: usize>(length: u16, out: &mut [u8; LEN]) {
    const { assert!(LEN == PUSH_LEN || LEN == PULL_LEN) };
    out.fill(0);
    out[2..4].copy_from_slice(&length.to_be_bytes());
}
