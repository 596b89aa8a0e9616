//! RDMA's base transport header (OCP RDMA over Falcon Transport, Rev 0.9, section 8.2).
//!
//! ```text
//!     0               1               2               3
//!  0 |version|          reserved           |E|pad|R|S|    opcode     | E: complete in error, S: solicited event
//!  1 |            destination queue pair             |   reserved    |
//!  2 |                      sequence number                          |
//! ```
//!
//! The table has one more bit, a request for acknowledgement; the figure has no position for it, and it is not sent:
//! Falcon's own base header carries the request.

use super::split;
use crate::bytes::{be24, be32, put, put24};
use crate::falcon::WireError;
use crate::falcon::rdma::{Header, Sn};
use crate::packet::Qpn;

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Length of the header in bytes.
pub const LEN: usize = 12;

/// View of RDMA's base transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct RbthView<'a>(&'a [u8; LEN]);

impl<'a> RbthView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the version of the protocol.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Returns whether the message is to be completed in error.
    #[inline]
    pub const fn complete_in_error(self) -> bool {
        self.0[2] & COMPLETE_IN_ERROR != 0
    }

    /// Returns the number of padding bytes after the payload, at most 3.
    #[inline]
    pub const fn pad(self) -> u8 {
        self.0[2] >> PAD_SHIFT & 3
    }

    /// Returns whether a solicited event is raised at the receiver.
    #[inline]
    pub const fn solicited(self) -> bool {
        self.0[2] & SOLICITED != 0
    }

    /// Returns the code of the packet type.
    #[inline]
    pub const fn opcode(self) -> u8 {
        self.0[3]
    }

    /// Returns the destination queue pair number.
    #[inline]
    pub fn dest_qpn(self) -> Qpn {
        Qpn::new(be24(self.0, 4))
    }

    /// Returns the sequence number of the message.
    #[inline]
    pub fn sn(self) -> Sn {
        Sn::new(be32(self.0, 8))
    }
}

/// Encodes the header; `pad` is at most 3.
#[inline]
pub fn emit(header: &Header, opcode: u8, pad: u8, out: &mut [u8; LEN]) {
    let flags = if header.complete_in_error { COMPLETE_IN_ERROR } else { 0 }
        | pad << PAD_SHIFT
        | if header.solicited { SOLICITED } else { 0 };
    put(out, 0, [VERSION << 4, 0, flags, opcode]);
    put24(out, 4, header.dest_qpn.get());
    out[7] = 0;
    put(out, 8, header.sn.value().to_be_bytes());
}

const COMPLETE_IN_ERROR: u8 = 0x10;
const PAD_SHIFT: u32 = 2;
const SOLICITED: u8 = 0x01;
