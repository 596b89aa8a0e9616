//! REJ (InfiniBand Architecture volume 1, section 12.6.7): rejects a connection, or gives up establishing it.
//!
//! ```text
//!   0 local communication id     4 remote communication id
//!   8 message rejected (2), reserved (6)   9 information length (7), reserved (1)   10 reason
//!  12 additional information, 72 bytes    84 private data, 148 bytes
//! ```

use core::fmt;

use super::field::{Bits, PrivateData};
use super::mad::{Body, CmError};
use crate::bytes::{array, be16, be32, put};

/// Type of the message that a REJ rejects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Rejected {
    /// The rejected message is a REQ.
    #[default]
    Request,
    /// The rejected message is a REP.
    Reply,
    /// No message: a timeout, for example.
    NoMessage,
    /// A reserved value.
    Reserved,
}

/// Reason why a connection is rejected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair is available.
    pub const NO_QP: Self = Self(1);
    /// Another resource is exhausted.
    pub const NO_RESOURCES: Self = Self(3);
    /// No response arrived in time.
    pub const TIMEOUT: Self = Self(4);
    /// The message is not supported.
    pub const UNSUPPORTED_REQUEST: Self = Self(5);
    /// The communication id is unknown.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// The pair of communication id and service does not match.
    pub const INVALID_COMM_INSTANCE: Self = Self(7);
    /// No process listens on the service.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The transport service is not offered.
    pub const INVALID_TRANSPORT_SERVICE: Self = Self(9);
    /// The queue pair still belongs to an earlier connection.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The port's address is not acceptable.
    pub const INVALID_PRIMARY_GID: Self = Self(12);
    /// The path MTU is not acceptable; the additional information may hold the code of an acceptable one.
    pub const INVALID_PATH_MTU: Self = Self(26);
    /// The peer supports too few outstanding Reads and atomics.
    pub const INSUFFICIENT_RESPONDER_RESOURCES: Self = Self(27);
    /// The application has rejected the request.
    pub const CONSUMER: Self = Self(28);
    /// The RNR retry count is not acceptable.
    pub const RNR_RETRY_COUNT: Self = Self(29);
    /// Another connection of the sender already uses the communication id.
    pub const DUPLICATE_COMM_ID: Self = Self(30);
    /// The class version is not supported.
    pub const INVALID_CLASS_VERSION: Self = Self(31);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::NO_QP => "no queue pair is available",
            Self::NO_RESOURCES => "out of resources",
            Self::TIMEOUT => "no response in time",
            Self::UNSUPPORTED_REQUEST => "unsupported request",
            Self::INVALID_COMM_ID => "unknown communication id",
            Self::INVALID_COMM_INSTANCE => "communication id does not match",
            Self::INVALID_SERVICE_ID => "no process listens to the service",
            Self::INVALID_TRANSPORT_SERVICE => "transport service not offered",
            Self::STALE_CONNECTION => "stale connection",
            Self::INVALID_PRIMARY_GID => "primary GID not acceptable",
            Self::INVALID_PATH_MTU => "path MTU not acceptable",
            Self::INSUFFICIENT_RESPONDER_RESOURCES => "too few responder resources",
            Self::CONSUMER => "the application rejected the request",
            Self::RNR_RETRY_COUNT => "RNR retry count not acceptable",
            Self::DUPLICATE_COMM_ID => "communication id in use",
            Self::INVALID_CLASS_VERSION => "unsupported version",
            Self(code) => return write!(f, "reject reason {code}"),
        };
        f.write_str(text)
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.0)
    }
}

/// Acceptable values, in a form that depends on the reject reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RejectInfo {
    len: u8,
    bytes: PrivateData<INFO_MAX>,
}

impl RejectInfo {
    /// Returns `bytes`; `None` when there are more than 72.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        PrivateData::new(bytes).map(|padded| Self { len: bytes.len() as u8, bytes: padded })
    }

    /// Returns the additional reject information.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes.0[..usize::from(self.len)]
    }
}

/// REJ: rejects a connection, or gives up establishing it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reject {
    /// Communication id that the sender has assigned to the connection; zero when it has none.
    pub local_comm_id: u32,
    /// Communication id that the receiver has assigned to the connection; zero when that is unknown.
    pub remote_comm_id: u32,
    /// Message that is rejected.
    pub rejected: Rejected,
    /// Reason for the rejection.
    pub reason: RejectReason,
    /// Acceptable values, depending on the reason.
    pub info: RejectInfo,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<148>,
}

impl Reject {
    /// MAD attribute that identifies this message.
    pub const ATTRIBUTE: u16 = 0x0012;

    pub(super) fn parse(body: &Body) -> Result<Self, CmError> {
        let len = usize::from(body[9] >> 1);
        let info: [u8; INFO_MAX] = array(body, INFO_AT);
        let info = info.get(..len).and_then(RejectInfo::new).ok_or(CmError::RejectInfo)?;
        Ok(Self {
            local_comm_id: be32(body, 0),
            remote_comm_id: be32(body, 4),
            rejected: match body[8] >> 6 {
                0 => Rejected::Request,
                1 => Rejected::Reply,
                2 => Rejected::NoMessage,
                _ => Rejected::Reserved,
            },
            reason: RejectReason(be16(body, 10)),
            info,
            private_data: PrivateData(array(body, 84)),
        })
    }

    pub(super) fn emit(&self, body: &mut Body) {
        let rejected = match self.rejected {
            Rejected::Request => 0,
            Rejected::Reply => 1,
            Rejected::NoMessage => 2,
            Rejected::Reserved => 3,
        };
        put(body, 0, self.local_comm_id.to_be_bytes());
        put(body, 4, self.remote_comm_id.to_be_bytes());
        body[8] = rejected << 6;
        body[9] = Bits::<7>::clamped(u32::from(self.info.len)).byte() << 1;
        put(body, 10, self.reason.0.to_be_bytes());
        put(body, INFO_AT, self.info.bytes.0);
        put(body, 84, self.private_data.0);
    }
}

const INFO_AT: usize = 12;
const INFO_MAX: usize = 72;
