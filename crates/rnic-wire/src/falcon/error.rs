//! Errors in received bytes, and in packets that are to be encoded.

use crate::falcon::PacketType;

/// Reason why a datagram is not a valid Falcon packet: always an error of the peer. A driver counts it and drops the
/// datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// The datagram is too short for its headers, or for the check value at its end.
    #[error("the datagram ends inside its headers")]
    Short,
    /// PSP or ESP carries another protocol than Falcon.
    #[error("not Falcon inside PSP or ESP")]
    NextHeader,
    /// The PSP header is invalid: its fixed bit, version or length.
    #[error("malformed PSP header")]
    Psp,
    /// An ESP datagram whose index is not of the form that OpenRNIC assigns, or whose trailer is invalid.
    #[error("malformed ESP header or trailer")]
    Esp,
    /// Another part than the connection identifier is in clear.
    #[error("not Falcon's PSP crypt offset")]
    CryptOffset,
    /// The Falcon version is not 1.
    #[error("unknown Falcon version")]
    Version,
    /// A reserved packet type.
    #[error("reserved packet type")]
    PacketType,
    /// A reserved upper layer.
    #[error("reserved upper layer protocol")]
    Protocol,
    /// A reserved NACK or Resync code.
    #[error("reserved NACK or Resync code")]
    Code,
    /// A Resync that replaces a packet without a sequence number.
    #[error("Resync of a packet without a sequence number")]
    Original,
    /// The version of the upper layer's protocol is not 1.
    #[error("unknown version of the upper layer's protocol")]
    UlpVersion,
    /// A reserved opcode, or packet type, of the upper layer.
    #[error("unknown opcode of the upper layer")]
    Opcode,
    /// The upper layer's packet is not allowed in this type of Falcon packet.
    #[error("the upper layer's opcode does not belong into this packet type")]
    Transaction,
    /// Push Data whose length field does not match its payload.
    #[error("request length is not the payload's")]
    RequestLength,
    /// The pad count does not make payload and padding a multiple of four bytes.
    #[error("payload and padding are not a multiple of four bytes")]
    Padding,
    /// The payload is longer or shorter than a packet of this type may carry.
    #[error("payload length does not fit the packet")]
    PayloadLength,
}

impl WireError {
    /// All errors.
    pub const ALL: [Self; 16] = [
        Self::Short,
        Self::NextHeader,
        Self::Psp,
        Self::Esp,
        Self::CryptOffset,
        Self::Version,
        Self::PacketType,
        Self::Protocol,
        Self::Code,
        Self::Original,
        Self::UlpVersion,
        Self::Opcode,
        Self::Transaction,
        Self::RequestLength,
        Self::Padding,
        Self::PayloadLength,
    ];
}

/// Reason why a packet cannot be encoded: an error of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum EncodeError {
    /// A field is present that this type of packet, or the packet's position in its message, does not allow.
    #[error("a {packet_type:?} packet cannot carry {field}")]
    Unexpected {
        /// Type of the packet.
        packet_type: PacketType,
        /// Name of the unexpected field.
        field: &'static str,
    },
    /// A field is absent that this type of packet requires.
    #[error("a {packet_type:?} packet needs {field}")]
    Missing {
        /// Type of the packet.
        packet_type: PacketType,
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
    /// Push Data whose length field does not match its own length.
    #[error("request length is {length}, headers and payload make {payload}")]
    RequestLength {
        /// Value of the length field.
        length: u16,
        /// Actual length: bytes of the upper layer's headers, payload and padding.
        payload: u32,
    },
}
