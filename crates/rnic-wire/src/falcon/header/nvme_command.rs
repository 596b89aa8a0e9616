//! Words after NVMe's base header in Read and Write Requests (OCP NVMe over Falcon Transport, Rev 0.9, sections 8.3
//! and 8.5).
//!
//! ```text
//!     0               1               2               3
//!  8 |  namespace at the initiator   |    namespace at the target    |
//!  9 |            starting logical block, bits 31 to 0               |
//! 10 |            starting logical block, bits 63 to 32              |
//! 11 |       logical blocks          | rsvd  | dtype |rsv| prinfo|F|L| F: force unit access, L: limited retry
//! 12 | dataset mgmt  |   reserved    |      directive specific       |
//! 13 |                       reference tag                           |
//! 14 |     application tag mask      |       application tag         |
//! 15 |                   reserved                    | target queue  |
//! ```
//!
//! Only a Write has the directive; in a Read these bits are reserved. The low word of the logical block is first.

use super::split;
use crate::bytes::{be16, be32, put};
use crate::falcon::WireError;
use crate::falcon::nvme::{Command, Directive};

/// Length of words 8 to 15 in bytes.
pub const LEN: usize = 32;
/// Largest protection information and directive type: 4 bits.
pub const NIBBLE_MAX: u8 = 0xf;

/// View of words 8 to 15 in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct CommandView<'a>(&'a [u8; LEN]);

impl<'a> CommandView<'a> {
    /// Splits words 8 to 15 off the front of `bytes`; returns them and the bytes after them.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the command.
    #[inline]
    pub fn command(self) -> Command {
        let bytes = self.0;
        Command {
            initiator_nsid: be16(bytes, 0),
            target_nsid: be16(bytes, 2),
            slba: u64::from(be32(bytes, 8)) << 32 | u64::from(be32(bytes, 4)),
            blocks: be16(bytes, 12),
            protection: bytes[15] >> PROTECTION_SHIFT & NIBBLE_MAX,
            force_unit_access: bytes[15] & FORCE_UNIT_ACCESS != 0,
            limited_retry: bytes[15] & LIMITED_RETRY != 0,
            dataset: bytes[16],
            reference_tag: be32(bytes, 20),
            application_mask: be16(bytes, 24),
            application_tag: be16(bytes, 26),
            target_queue: bytes[31],
        }
    }

    /// Returns the directive; meaningful only in a Write.
    #[inline]
    pub fn directive(self) -> Directive {
        Directive { kind: self.0[14] & NIBBLE_MAX, specific: be16(self.0, 18) }
    }
}

/// Writes words 8 to 15; for a Read, the directive is all zero.
#[inline]
pub fn emit(command: &Command, directive: &Directive, out: &mut [u8; LEN]) {
    put(out, 0, command.initiator_nsid.to_be_bytes());
    put(out, 2, command.target_nsid.to_be_bytes());
    put(out, 4, (command.slba as u32).to_be_bytes());
    put(out, 8, ((command.slba >> 32) as u32).to_be_bytes());
    put(out, 12, command.blocks.to_be_bytes());
    out[14] = directive.kind;
    out[15] = command.protection << PROTECTION_SHIFT
        | if command.force_unit_access { FORCE_UNIT_ACCESS } else { 0 }
        | if command.limited_retry { LIMITED_RETRY } else { 0 };
    put(out, 16, [command.dataset, 0]);
    put(out, 18, directive.specific.to_be_bytes());
    put(out, 20, command.reference_tag.to_be_bytes());
    put(out, 24, command.application_mask.to_be_bytes());
    put(out, 26, command.application_tag.to_be_bytes());
    put(out, 28, [0, 0, 0, command.target_queue]);
}

const PROTECTION_SHIFT: u32 = 2;
const FORCE_UNIT_ACCESS: u8 = 0x02;
const LIMITED_RETRY: u8 = 0x01;
