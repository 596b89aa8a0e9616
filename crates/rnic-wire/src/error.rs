//! Errors in received bytes, and in packets that are to be encoded.

use crate::packet::Format;

/// Reason why a datagram is not a valid packet: always an error of the peer. A driver counts it and drops the datagram;
/// no response is sent to any of these (a NAK has to belong to a connection).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// The datagram is too short for its headers or its ICRC.
    #[error("the datagram is too short for its headers and its ICRC")]
    Short,
    /// The transport header version is not that of RoCEv2, IRN or FaSR.
    #[error("the transport header version is unknown")]
    Version,
    /// The opcode is not defined for this version.
    #[error("the opcode is not defined for this transport header version")]
    Opcode,
    /// The partition key is not the default one.
    #[error("the partition key is not the default key, 0xffff")]
    PartitionKey,
    /// The pad count does not make payload and padding a multiple of four bytes.
    #[error("the length of payload and padding is not a multiple of 4 bytes")]
    Padding,
    /// The payload is longer or shorter than a packet with this opcode may carry.
    #[error("the payload length is not allowed for the opcode")]
    PayloadLength,
    /// An acknowledgement has a syndrome without a meaning.
    #[error("the acknowledgement syndrome is reserved")]
    Syndrome,
    /// A management datagram that is not for the general services queue pair.
    #[error("the management datagram is not addressed to the general services queue pair")]
    Destination,
    /// A management datagram without the well-known queue key.
    #[error("the queue key of the management datagram is not the well-known key")]
    QueueKey,
}

/// Reason why a packet cannot be encoded in a format: an error of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A field is present that the format, or the packet's position in its message, does not allow.
    #[error("a {format:?} packet of this type and position in its message cannot carry {field}")]
    Unexpected {
        /// Format that was requested.
        format: Format,
        /// Name of the unexpected field.
        field: &'static str,
    },
    /// A field is absent that the format, or the packet's position in its message, requires.
    #[error("a {format:?} packet of this type and position in its message requires {field}")]
    Missing {
        /// Format that was requested.
        format: Format,
        /// Name of the missing field.
        field: &'static str,
    },
    /// A value exceeds the width of its field.
    #[error("{field} is {value}, which exceeds the maximum of {max}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u32,
        /// Largest value that fits.
        max: u32,
    },
    /// The payload is longer or shorter than a packet of this type may carry.
    #[error("a packet of this type cannot carry a payload of {bytes} bytes")]
    PayloadLength {
        /// Requested length, in bytes.
        bytes: u32,
    },
}
