//! Errors of streams.

use std::net::SocketAddr;

use rnic_base::limits::MTU_MIN;
use rnic_engine::{PostError, ResourceError, WcStatus};
use rnic_stream::SEGMENT_BYTES_MAX;

use super::limits::SEGMENT_BYTES_LEAST;
use crate::error::{ConnectError, NicError};

/// Reason that a call failed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection could not be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The NIC refused a call.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The NIC did not accept a posted request.
    #[error("cannot post a message: {0}")]
    Post(#[from] PostError),
    /// The transport does not exist, or an option of it is invalid.
    #[error(transparent)]
    Transport(#[from] rnic_transports::SelectError),
    /// The settings of the stream layer are invalid.
    #[error(transparent)]
    Config(#[from] rnic_stream::ConfigError),
    /// The segment size is out of range.
    #[error("the segment size is {0} bytes, but must be {SEGMENT_BYTES_LEAST} to {SEGMENT_BYTES_MAX}")]
    SegmentBytes(u32),
    /// The request of a peer has no valid description of a stream.
    #[error("{0} requested a connection that is not a stream of this version; use the same release at both ends")]
    NotAStream(SocketAddr),
    /// The stream has ended with an error.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// There is no such stream, or it is not established yet.
    #[error("the stream does not exist, or is not established yet")]
    Unknown,
}

impl From<ResourceError> for StreamError {
    fn from(error: ResourceError) -> Self {
        Self::Nic(error.into())
    }
}

/// Reason that an established stream ended early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// The remote end closed the connection before the end of its data.
    #[error("{0} closed the stream before the end of its data")]
    Reset(SocketAddr),
    /// Data could not be delivered.
    #[error("data could not be delivered to {peer}: a Send completed with status {status:?}")]
    Undelivered {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Status of the completion.
        status: WcStatus,
    },
    /// The remote end violated the protocol.
    #[error("{peer} violated the protocol of streams: {what}; the stream has been closed")]
    Violation {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Description of the violation.
        what: String,
    },
    /// The NIC of this end did not accept a request.
    #[error("the NIC refused a request for the stream with {peer}: {why}")]
    Refused {
        /// Address of the remote end.
        peer: SocketAddr,
        /// Error of the NIC.
        why: String,
    },
}

const _: () = assert!(SEGMENT_BYTES_LEAST <= MTU_MIN, "every path carries a segment");
