//! Falcon header layouts, one file per header: a view over bytes that were checked for length, and the encoder of its
//! representation.
//!
//! As in [`crate::header`]: a view is created by `split`, which splits the header off the front of a slice and
//! returns [`WireError::Short`] when the slice is too short; after that no accessor can fail or panic. Reserved bits
//! are sent as zero and ignored when received. Words are numbered as in the specification's figures, in which bit 0
//! is the highest.

pub mod acknowledgement;
pub mod base;
pub mod bitmaps;
pub mod nbth;
pub mod nvme_command;
pub mod nvme_status;
pub mod rbth;
pub mod refusal;
pub mod request_length;
pub mod resync;
pub mod sink_tag;

use crate::falcon::WireError;

/// Splits the first `N` bytes off `bytes`; returns them and the rest.
#[inline]
fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), WireError> {
    bytes.split_first_chunk().ok_or(WireError::Short)
}
