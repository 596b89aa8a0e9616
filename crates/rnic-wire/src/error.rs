//! Errors in received bytes, and in packets that are to be encoded.

use crate::packet::Format;

/// Reason why a datagram is not a valid packet: always an error of the peer. A driver counts it and drops the datagram;
/// no response is sent to any of these (a NAK has to belong to a connection).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// The datagram is too short for its headers or its ICRC.
    #[error("the datagram ends inside its headers")]
    Short,
    /// The transport header version is not that of RoCEv2, IRN or FaSR.
    #[error("unknown transport header version")]
    Version,
    /// The opcode is not defined for this version.
    #[error("unknown opcode")]
    Opcode,
    /// The partition key is not the default one.
    #[error("not the default partition key")]
    PartitionKey,
    /// The pad count does not make payload and padding a multiple of four bytes.
    #[error("payload and padding are not a multiple of four bytes")]
    Padding,
    /// The payload is longer or shorter than a packet with this opcode may carry.
    #[error("payload length does not fit the opcode")]
    PayloadLength,
    /// An acknowledgement has a syndrome without a meaning.
    #[error("reserved acknowledgement syndrome")]
    Syndrome,
    /// A management datagram that is not for the general services queue pair.
    #[error("unreliable datagram for another queue pair than the general services one")]
    Destination,
    /// A management datagram without the well-known queue key.
    #[error("wrong queue key")]
    QueueKey,
}

/// Reason why a packet cannot be encoded in a format: an error of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A field is present that the format, or the packet's position in its message, does not allow.
    #[error("a {format:?} packet of this kind and position cannot carry {field}")]
    Unexpected {
        /// The requested format.
        format: Format,
        /// Name of the unexpected field.
        field: &'static str,
    },
    /// A field is absent that the format, or the packet's position in its message, requires.
    #[error("a {format:?} packet of this kind and position needs {field}")]
    Missing {
        /// The requested format.
        format: Format,
        /// Name of the missing field.
        field: &'static str,
    },
    /// A value exceeds the width of its field.
    #[error("{field} is {value}, more than {max}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// Largest value that fits.
        max: u32,
    },
    /// The payload is longer or shorter than a packet of this type may carry.
    #[error("a packet of this kind cannot carry a payload of {bytes} bytes")]
    PayloadLength {
        /// Requested length, in bytes.
        bytes: u32,
    },
}
