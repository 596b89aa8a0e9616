//! What a peer does wrong, and what a device says.

/// Status fields of completions (NVM Express Base Specification, status codes: type 0, generic).
pub mod status {
    /// Done.
    pub const SUCCESS: u16 = 0x00;
    /// A request that makes no sense; said where a Pull cannot be refused.
    pub const INVALID_FIELD: u16 = 0x02;
    /// The data of a Write did not come, or is bad.
    pub const DATA_TRANSFER_ERROR: u16 = 0x04;
    /// There is no such namespace here.
    pub const INVALID_NAMESPACE: u16 = 0x0b;
    /// Blocks beyond the namespace's last.
    pub const OUT_OF_RANGE: u16 = 0x80;
    /// The medium did not take the data (type 2, media).
    pub const WRITE_FAULT: u16 = 0x280;
    /// The medium cannot be read there: a file that backs it is shorter than the namespace (type 2, media).
    pub const UNRECOVERED_READ: u16 = 0x281;

    /// Returns the name of `status`, as the specification has it.
    pub const fn name(status: u16) -> &'static str {
        match status {
            SUCCESS => "successful completion",
            INVALID_FIELD => "invalid field in command",
            DATA_TRANSFER_ERROR => "data transfer error",
            INVALID_NAMESPACE => "invalid namespace",
            OUT_OF_RANGE => "LBA out of range",
            WRITE_FAULT => "write fault",
            UNRECOVERED_READ => "unrecovered read error",
            _ => "a status without a name here",
        }
    }
}

/// Why what the peer sent is refused. Its number goes with a refusal (CIE), so that the other side can name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum PeerError {
    /// No NVMe headers.
    #[error("a transaction without NVMe headers")]
    NotNvme = 1,
    /// A kind of packet that this end never gets, or that its tag's command never causes.
    #[error("a packet of a kind that was not expected")]
    Unexpected = 2,
    /// No unit has that tag, or none on this connection: it never had, or is done with.
    #[error("a tag that names nothing")]
    UnknownTag = 3,
    /// The tag is known, but belongs to another unit, command or function.
    #[error("tag, command and unit do not fit together")]
    Mismatch = 4,
    /// More or fewer bytes than the unit has.
    #[error("another length than the unit's")]
    WrongLength = 5,
    /// More units under way than was agreed.
    #[error("more units than was agreed")]
    TooManyUnits = 6,
    /// The tag of a unit that is still under way.
    #[error("a tag that is in use")]
    TagInUse = 7,
    /// Number of blocks, number of units and the unit's own number contradict each other.
    #[error("numbers of blocks and units contradict each other")]
    BadUnits = 8,
    /// Data said to be written that was never fetched.
    #[error("a completion before its data was fetched")]
    Early = 9,
    /// Data asked for twice.
    #[error("data asked for twice")]
    Repeated = 10,
    /// The queue pair at the other end is none of NVMe's.
    #[error("the peer's queue pair does not speak NVMe")]
    NoNvme = 11,
}

impl PeerError {
    /// All of them, by number.
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

    /// Its number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The error with that number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// How often each has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerErrors([u64; PeerError::ALL.len()]);

impl PeerErrors {
    pub(crate) fn count(&mut self, error: PeerError) {
        self.0[usize::from(error.code()) - 1] += 1;
    }

    /// How often `error` has happened.
    pub fn of(&self, error: PeerError) -> u64 {
        self.0[usize::from(error.code()) - 1]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_errors() {
        let back: Vec<_> = (0..=255).filter_map(PeerError::from_code).collect();
        assert_eq!(back, PeerError::ALL);
        assert!(PeerError::ALL.iter().all(|error| PeerError::from_code(error.code()) == Some(*error)));
    }
}
