//! What follows the base header of a Resync (OCP Falcon Transport Protocol, Rev 0.9, section 7.6).
//!
//! ```text
//!     0               1               2               3
//!  6 |     code      | type  |               reserved                | type: of the packet that it stands for
//!  7 |                       vendor defined                          |
//! ```
//!
//! Section 7.2 has a Resync's PSN count in the data window, 9.2.5 in "the corresponding" one. Here it is the window
//! of the packet that the Resync stands for, whose PSN it takes: a Pull Request has no place in the data window. So a
//! type without a sequence number is refused.

use super::split;
use crate::bytes::{be32, put};
use crate::falcon::{PacketType, ResyncCode, WireError};

/// Bytes of the header.
pub const LEN: usize = 8;

/// A Resync's own words in place.
#[derive(Clone, Copy, Debug)]
pub struct ResyncView<'a>(&'a [u8; LEN]);

impl<'a> ResyncView<'a> {
    /// Takes the words off the front of `bytes`; gives them and what follows.
    ///
    /// # Errors
    /// [`WireError::Short`] when they are not all there.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Why.
    ///
    /// # Errors
    /// [`WireError::Code`] when it is reserved.
    #[inline]
    pub fn code(self) -> Result<ResyncCode, WireError> {
        ResyncCode::from_code(self.0[0]).ok_or(WireError::Code)
    }

    /// The type of the packet that it stands for.
    ///
    /// # Errors
    /// [`WireError::Original`] when that has no sequence number, or is reserved.
    #[inline]
    pub fn original(self) -> Result<PacketType, WireError> {
        PacketType::from_code(self.0[1] >> 4).filter(|kind| kind.window().is_some()).ok_or(WireError::Original)
    }

    /// The vendor's word.
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
