//! Errors in received bytes, and in packets that are to be encoded.

use crate::falcon::PacketType;

/// Reason why a datagram is not a valid Falcon packet: always an error of the peer. A driver counts it and drops the
/// datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// The datagram is too short for its headers, or for the check value at its end.
    #[error("the datagram is too short for its headers and its check value")]
    Short,
    /// PSP or ESP carries another protocol than Falcon.
    #[error("the PSP or ESP payload is not a Falcon packet")]
    NextHeader,
    /// The PSP header is invalid: its fixed bit, version or length.
    #[error("the fixed bit, the version or the length of the PSP header is invalid")]
    Psp,
    /// An ESP datagram whose index is not of the form that OpenRNIC assigns, or whose trailer is invalid.
    #[error("the ESP header or trailer is malformed")]
    Esp,
    /// The unencrypted part is not exactly the connection identifier.
    #[error("the PSP crypt offset is not that of Falcon")]
    CryptOffset,
    /// The Falcon version is not 1.
    #[error("the Falcon version is not 1")]
    Version,
    /// A reserved packet type.
    #[error("the Falcon packet type is reserved")]
    PacketType,
    /// A reserved upper layer.
    #[error("the upper-layer protocol is reserved")]
    Protocol,
    /// A reserved NACK or Resync code.
    #[error("the NACK or Resync code is reserved")]
    Code,
    /// A Resync that replaces a packet without a sequence number.
    #[error("the Resync replaces a packet type that has no sequence number")]
    Original,
    /// The version of the upper layer's protocol is not 1.
    #[error("the version of the upper-layer protocol is not 1")]
    UlpVersion,
    /// A reserved opcode, or packet type, of the upper layer.
    #[error("the opcode or packet type of the upper layer is reserved")]
    Opcode,
    /// The upper layer's packet is not allowed in this type of Falcon packet.
    #[error("the upper-layer opcode is not allowed in this Falcon packet type")]
    Transaction,
    /// Push Data whose length field does not match its payload.
    #[error("the request length field does not match the payload length")]
    RequestLength,
    /// The pad count does not make payload and padding a multiple of four bytes.
    #[error("the length of payload and padding is not a multiple of 4 bytes")]
    Padding,
    /// The payload is longer or shorter than a packet of this type may carry.
    #[error("the payload length is not allowed for the packet type")]
    PayloadLength,
}

impl WireError {
    /// All decoding errors.
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
    #[error("a {packet_type:?} packet cannot carry {field} here")]
    Unexpected {
        /// Type of the packet.
        packet_type: PacketType,
        /// Name of the unexpected field.
        field: &'static str,
    },
    /// A field is absent that this type of packet requires.
    #[error("a {packet_type:?} packet requires {field}")]
    Missing {
        /// Type of the packet.
        packet_type: PacketType,
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
    /// Push Data whose length field does not match its actual length.
    #[error("the request length is {length} bytes, but headers and payload have {payload} bytes")]
    RequestLength {
        /// Value of the length field.
        length: u16,
        /// Actual length: bytes of the upper layer's headers, payload and padding.
        payload: u32,
    },
}
