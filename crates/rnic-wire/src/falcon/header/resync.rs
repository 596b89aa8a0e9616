//! Words behind the base header of a Resync (OCP Falcon Transport Protocol, Rev 0.9, section 7.6).
//!
//! ```text
//!     0               1               2               3
//!  6 |     code      | type  |               reserved                | type: of the packet that it stands for
//!  7 |                       vendor defined                          |
//! ```
//!
//! Section 7.2 counts a Resync's PSN in the data window, 9.2.5 in "the corresponding" one. Here it is the window of the
//! packet that the Resync replaces, whose PSN it uses: a Pull Request has no number in the data window. A type without
//! a sequence number is therefore rejected.

use super::split;
use crate::bytes::{be32, put};
use crate::falcon::{PacketType, ResyncCode, WireError};

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// View of a Resync's own words in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct ResyncView<'a>(&'a [u8; LEN]);

impl<'a> ResyncView<'a> {
    /// Splits the words off the front of `bytes`; returns them and the bytes behind.
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
    /// [`WireError::Code`] when it is reserved.
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

/// Writes the words.
#[inline]
pub fn emit(code: ResyncCode, of: PacketType, vendor: u32, out: &mut [u8; LEN]) {
    put(out, 0, [code.code(), of.code() << 4, 0, 0]);
    put(out, 4, vendor.to_be_bytes());
}
