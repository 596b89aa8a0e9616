//! Last words of a NACK (OCP Falcon Transport Protocol, Rev 0.9, section 7.8).
//!
//! ```text
//!     0               1               2               3
//!  8 |                      PSN of the rejected packet               |
//!  9 |     code      |rsvd |   wait  |W|  reserved   |upper's reason | W: 1 requests, 0 data
//! ```
//!
//! The wait time is valid with code 2 only, the upper layer's reason with 6 and 7: otherwise both are sent as zero and
//! ignored. Section 7.8 has NACKs for packets beyond the window too, but no code for them; section 9.2.2.4 drops those
//! packets and reports that in the next EACK. Code 5, which one simulator uses for them, is therefore reserved here.

use rnic_base::Psn32;

use super::split;
use crate::bytes::{be32, put};
use crate::falcon::{NackCode, RnrTimer, Window, WireError};

/// Length of words 8 and 9 in bytes.
pub const LEN: usize = 8;

/// View of words 8 and 9 in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct RefusalView<'a>(&'a [u8; LEN]);

impl<'a> RefusalView<'a> {
    /// Splits words 8 and 9 off the front of `bytes`; returns them and the bytes after them.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the sequence number of the rejected packet.
    #[inline]
    pub fn psn(self) -> Psn32 {
        Psn32::new(be32(self.0, 0))
    }

    /// Returns the window that the rejected packet belongs to.
    #[inline]
    pub const fn window(self) -> Window {
        if self.0[6] & REQUEST_WINDOW != 0 { Window::Request } else { Window::Data }
    }

    /// Returns the reason for the rejection.
    ///
    /// # Errors
    /// [`WireError::Code`] when it is reserved.
    #[inline]
    pub fn code(self) -> Result<NackCode, WireError> {
        NackCode::from_code(self.0[4], RnrTimer::from_code(self.0[5]), self.0[7]).ok_or(WireError::Code)
    }
}

/// Writes words 8 and 9.
#[inline]
pub fn emit(psn: Psn32, window: Window, code: NackCode, out: &mut [u8; LEN]) {
    let (wait, ulp) = match code {
        NackCode::NotReady { timeout } => (timeout.code(), 0),
        NackCode::CompleteInError { ulp } | NackCode::NonRecoverable { ulp } => (0, ulp),
        NackCode::Resource | NackCode::Xlr | NackCode::InvalidCid => (0, 0),
    };
    let window = match window {
        Window::Request => REQUEST_WINDOW,
        Window::Data => 0,
    };
    put(out, 0, psn.value().to_be_bytes());
    put(out, 4, [code.code(), wait, window, ulp]);
}

const REQUEST_WINDOW: u8 = 0x80;
