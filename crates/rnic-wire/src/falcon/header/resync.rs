//! Words after the base header of a Resync (OCP Falcon Transport Protocol, Rev 0.9, section 7.6).
//!
//! ```text
//!     0               1               2               3
//!  6 |     code      | type  |               reserved                | type: of the packet that it replaces
//!  7 |                       vendor defined                          |
//! ```
//!
//! By section 7.2 a Resync's PSN belongs to the data window, by section 9.2.5 to "the corresponding" one. Here it
//! belongs to the window of the packet that the Resync replaces and whose PSN it uses, because a Pull Request has no
//! number in the data window. A type without a sequence number is therefore rejected.

use super::split;
use crate::bytes::{be32, put};
use crate::falcon::{PacketType, ResyncCode, WireError};

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// View of the words that only a Resync has, in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct ResyncView<'a>(&'a [u8; LEN]);

impl<'a> ResyncView<'a> {
    /// Splits the words off the front of `bytes`; returns them and the bytes after them.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the reason for the Resync.
    ///
    /// # Errors
    /// [`WireError::Code`] when its code is reserved.
    #[inline]
    pub fn code(self) -> Result<ResyncCode, WireError> {
        ResyncCode::from_code(self.0[0]).ok_or(WireError::Code)
    }

    /// Returns the type of the packet that the Resync replaces.
    ///
    /// # Errors
    /// [`WireError::Original`] when that type has no sequence number, or is reserved.
    #[inline]
    pub fn original(self) -> Result<PacketType, WireError> {
        PacketType::from_code(self.0[1] >> 4).filter(|kind| kind.window().is_some()).ok_or(WireError::Original)
    }

    /// Returns the vendor-defined word.
    #[inline]
    pub fn vendor(self) -> u32 {
        be32(self.0, 4)
    }
}

/// Writes these words.
#[inline]
pub fn emit(code: ResyncCode, of: PacketType, vendor: u32, out: &mut [u8; LEN]) {
    put(out, 0, [code.code(), of.code() << 4, 0, 0]);
    put(out, 4, vendor.to_be_bytes());
}
