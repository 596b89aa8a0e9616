//! Headers that let RDMA place out-of-order data (OCP RDMA over Falcon Transport, Rev 0.9, sections 8.3.2 to 8.3.4):
//! the sink tag of Reads (STETH), and the one-word headers SETH (message number) and OETH (offset in the message).
//!
//! ```text
//!     0               1               2               3
//!  0 |                       virtual address                         | STETH, 12 bytes
//!  1 |                                                               |
//!  2 |                            L_Key                              |
//!
//!  0 |                  request message number                       | SETH, 4 bytes
//!
//!  0 |                    offset in the message                      | OETH, 4 bytes
//! ```

use super::split;
use crate::bytes::{be32, be64, put};
use crate::falcon::WireError;
use crate::falcon::rdma::SinkTag;

/// Length of the sink tag in bytes.
pub const LEN: usize = 12;
/// Length of SETH and of OETH, in bytes.
pub const WORD_LEN: usize = 4;

/// Reads a sink tag.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_tag(bytes: &[u8]) -> Result<(SinkTag, &[u8]), WireError> {
    let (field, rest) = split::<LEN>(bytes)?;
    Ok((SinkTag { va: be64(field, 0), lkey: be32(field, 8) }, rest))
}

/// Writes a sink tag.
#[inline]
pub fn emit(tag: &SinkTag, out: &mut [u8; LEN]) {
    put(out, 0, tag.va.to_be_bytes());
    put(out, 8, tag.lkey.to_be_bytes());
}

/// Reads a header of one word.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_word(bytes: &[u8]) -> Result<(u32, &[u8]), WireError> {
    let (field, rest) = split::<WORD_LEN>(bytes)?;
    Ok((u32::from_be_bytes(*field), rest))
}
