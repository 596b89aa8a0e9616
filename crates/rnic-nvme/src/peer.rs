//! Errors of a peer, and status codes of a device.

/// Status fields of completions (NVM Express Base Specification, status codes: type 0, generic).
pub mod status {
    /// Successful completion.
    pub const SUCCESS: u16 = 0x00;
    /// Invalid request; reported when a Pull cannot be refused.
    pub const INVALID_FIELD: u16 = 0x02;
    /// The data of a Write did not arrive, or is invalid.
    pub const DATA_TRANSFER_ERROR: u16 = 0x04;
    /// There is no such namespace at this target.
    pub const INVALID_NAMESPACE: u16 = 0x0b;
    /// Blocks beyond the last block of the namespace.
    pub const OUT_OF_RANGE: u16 = 0x80;
    /// The medium did not accept the data (type 2, media).
    pub const WRITE_FAULT: u16 = 0x280;
    /// The medium cannot be read at this location: a file that backs it is shorter than the namespace (type 2, media).
    pub const UNRECOVERED_READ: u16 = 0x281;

    /// Returns the name of `status` in the specification.
    pub const fn name(status: u16) -> &'static str {
        match status {
            SUCCESS => "successful completion",
            INVALID_FIELD => "invalid field in command",
            DATA_TRANSFER_ERROR => "data transfer error",
            INVALID_NAMESPACE => "invalid namespace",
            OUT_OF_RANGE => "LBA out of range",
            WRITE_FAULT => "write fault",
            UNRECOVERED_READ => "unrecovered read error",
            _ => "unknown status code",
        }
    }
}

/// Reason for which a packet of the peer is refused. Its number is carried in a refusal (CIE), so that the peer can
/// report it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum PeerError {
    /// The transaction has no NVMe headers.
    #[error("the transaction has no NVMe headers")]
    NotNvme = 1,
    /// Packet of a type that this end never receives, or that does not belong to the command of its tag.
    #[error("the packet type is not valid here, or not valid for the command that its tag identifies")]
    Unexpected = 2,
    /// No unit (part of a command's data) on this connection has that tag: it never existed, or is finished.
    #[error("the tag belongs to no unit in flight on this connection")]
    UnknownTag = 3,
    /// The tag is known, but belongs to the transfer of another part of the data, or to another command or function.
    #[error("the tag belongs to another unit, command or function")]
    Mismatch = 4,
    /// The packet has more or fewer bytes than the part of the command's data to which its tag belongs.
    #[error("the data length differs from the length of the unit")]
    WrongLength = 5,
    /// More units (4 KiB parts of a command's data) are in flight than were agreed.
    #[error("more units are in flight than were agreed")]
    TooManyUnits = 6,
    /// The tag belongs to a unit (4 KiB part of a command's data) that is still in flight.
    #[error("the tag is already in use by a unit in flight")]
    TagInUse = 7,
    /// Number of blocks of the command, number of its units (4 KiB parts) and index of this unit are inconsistent.
    #[error("the number of blocks, the number of units and the unit number are inconsistent")]
    BadUnits = 8,
    /// Data reported as written that was never fetched.
    #[error("a write was reported as complete before its data was fetched")]
    Early = 9,
    /// The target has requested the same data twice.
    #[error("the same data was requested twice")]
    Repeated = 10,
    /// The queue pair at the other end does not support NVMe.
    #[error("the peer's queue pair does not support NVMe")]
    NoNvme = 11,
}

impl PeerError {
    /// All errors, by number.
    pub const ALL: [Self; 11] = [
        Self::NotNvme,
        Self::Unexpected,
        Self::UnknownTag,
        Self::Mismatch,
        Self::WrongLength,
        Self::TooManyUnits,
        Self::TagInUse,
        Self::BadUnits,
        Self::Early,
        Self::Repeated,
        Self::NoNvme,
    ];

    /// Returns the number of the error.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the error with that number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// Number of occurrences of each error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerErrors([u64; PeerError::ALL.len()]);

impl PeerErrors {
    pub(crate) fn count(&mut self, error: PeerError) {
        self.0[usize::from(error.code()) - 1] += 1;
    }

    /// Returns the number of occurrences of `error`.
    pub fn of(&self, error: PeerError) -> u64 {
        self.0[usize::from(error.code()) - 1]
    }

    /// Returns the total number of errors.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_decode_to_their_errors() {
        let decoded: Vec<_> = (0..=255).filter_map(PeerError::from_code).collect();
        assert_eq!(decoded, PeerError::ALL);
        assert!(PeerError::ALL.iter().all(|error| PeerError::from_code(error.code()) == Some(*error)));
    }
}
