//! What can be wrong with bytes from the network, and with a packet that is to become bytes.

use crate::packet::Format;

/// Why a datagram is not a packet that we understand: the peer's error, never ours. A body counts it and drops the
/// datagram; none of these is answered (a NAK needs a connection to belong to).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// The datagram ends inside its headers or its ICRC.
    #[error("the datagram ends inside its headers")]
    Short,
    /// The transport header version is neither RoCEv2's nor IRN's.
    #[error("unknown transport header version")]
    Version,
    /// No packet of this version has this opcode.
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
    /// An acknowledgement says something that has no meaning.
    #[error("reserved acknowledgement syndrome")]
    Syndrome,
    /// A management datagram that is not for the general services queue pair.
    #[error("unreliable datagram for another queue pair than the general services one")]
    Destination,
    /// A management datagram without the well-known queue key.
    #[error("wrong queue key")]
    QueueKey,
}

/// Why a packet cannot be written in a format: the caller's error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The format, or the packet's place in its message, has no room for a field that is there.
    #[error("a {format:?} packet of this kind and position cannot carry {field}")]
    Unexpected {
        /// The format asked for.
        format: Format,
        /// The field that has no place.
        field: &'static str,
    },
    /// The format, or the packet's place in its message, demands a field that is not there.
    #[error("a {format:?} packet of this kind and position needs {field}")]
    Missing {
        /// The format asked for.
        format: Format,
        /// The field that is absent.
        field: &'static str,
    },
    /// A value does not fit the bits that it has.
    #[error("{field} is {value}, more than {max}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The largest that fits.
        max: u32,
    },
    /// The payload is longer or shorter than a packet of this kind may carry.
    #[error("a packet of this kind cannot carry a payload of {bytes} bytes")]
    PayloadLength {
        /// The length asked for.
        bytes: u32,
    },
}
