//! NVMe's base transport header (OCP NVMe over Falcon Transport, Rev 0.9, section 8.2).
//!
//! ```text
//!     0               1               2               3
//!  0 |version| type  |           initiator function                  |
//!  1 |rsv|I|S|G| rsvd|               target tag                      | I: data invalid, S: split, G: second group
//!  2 |  units - 1    |             initiator tag                     |
//!  3 |     unit      |               command                         |
//!  4 to 7                         reserved
//! ```

use super::split;
use crate::bytes::{be24, put24};
use crate::falcon::WireError;
use crate::falcon::nvme::Base;

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Length of the header in bytes.
pub const LEN: usize = 32;
/// Largest function, tag or command: 24 bits.
pub const TAG_MAX: u32 = 0xff_ffff;

/// View of NVMe's base transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct NbthView<'a>(&'a [u8; LEN]);

impl<'a> NbthView<'a> {
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

    /// Returns the code of the packet type.
    #[inline]
    pub const fn packet_type(self) -> u8 {
        self.0[0] & 0xf
    }

    /// Returns the fields of the header other than the operation.
    #[inline]
    pub fn to_repr(self) -> Base {
        Base {
            initiator_function: be24(self.0, 1),
            data_invalid: self.0[4] & DATA_INVALID != 0,
            split: self.0[4] & SPLIT != 0,
            second_group: self.0[4] & SECOND_GROUP != 0,
            target_tag: be24(self.0, 5),
            initiator_tag: be24(self.0, 9),
            command: be24(self.0, 13),
            units_less_one: self.0[8],
            unit: self.0[12],
        }
    }
}

/// Writes the header.
#[inline]
pub fn emit(base: &Base, packet_type: u8, out: &mut [u8; LEN]) {
    out.fill(0);
    out[0] = VERSION << 4 | packet_type;
    put24(out, 1, base.initiator_function);
    out[4] = if base.data_invalid { DATA_INVALID } else { 0 }
        | if base.split { SPLIT } else { 0 }
        | if base.second_group { SECOND_GROUP } else { 0 };
    put24(out, 5, base.target_tag);
    out[8] = base.units_less_one;
    put24(out, 9, base.initiator_tag);
    out[12] = base.unit;
    put24(out, 13, base.command);
}

const DATA_INVALID: u8 = 0x20;
const SPLIT: u8 = 0x10;
const SECOND_GROUP: u8 = 0x08;
