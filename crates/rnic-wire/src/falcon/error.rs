//! What can be wrong with bytes from the network, and with a packet that is to become bytes.

use crate::falcon::PacketType;

/// Why a datagram is not a Falcon packet that we understand: the peer's error, never ours. A body counts it and drops
/// the datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum WireError {
    /// The datagram ends inside its headers, or inside the check value at its end.
    #[error("the datagram ends inside its headers")]
    Short,
    /// PSP or ESP carries something else than Falcon.
    #[error("not Falcon inside PSP or ESP")]
    NextHeader,
    /// A PSP header that PSP does not have: its fixed bit, version or length.
    #[error("malformed PSP header")]
    Psp,
    /// An ESP datagram with another index than ours have, or a trailer that ESP does not have.
    #[error("malformed ESP header or trailer")]
    Esp,
    /// Something else than the connection identifier travels in clear.
    #[error("not Falcon's PSP crypt offset")]
    CryptOffset,
    /// Not version 1 of Falcon.
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
    /// A Resync for a packet that has no sequence number.
    #[error("Resync of a packet without a sequence number")]
    Original,
    /// Not version 1 of the upper layer's protocol.
    #[error("unknown version of the upper layer's protocol")]
    UlpVersion,
    /// A reserved opcode, or packet type, of the upper layer.
    #[error("unknown opcode of the upper layer")]
    Opcode,
    /// The upper layer's packet does not travel in this type of Falcon packet.
    #[error("the upper layer's opcode does not belong into this packet type")]
    Transaction,
    /// Push Data whose length is not that of its payload.
    #[error("request length is not the payload's")]
    RequestLength,
    /// The pad count does not make payload and padding a multiple of four bytes.
    #[error("payload and padding are not a multiple of four bytes")]
    Padding,
    /// The payload is longer or shorter than a packet of this kind may carry.
    #[error("payload length does not fit the packet")]
    PayloadLength,
}

impl WireError {
    /// All of them.
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

/// Why a packet cannot be written: the caller's error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum EncodeError {
    /// This type of packet, or the packet's place in its message, has no room for a field that is there.
    #[error("a {packet_type:?} packet cannot carry {field}")]
    Unexpected {
        /// The type.
        packet_type: PacketType,
        /// The field that has no place.
        field: &'static str,
    },
    /// This type of packet demands a field that is not there.
    #[error("a {packet_type:?} packet needs {field}")]
    Missing {
        /// The type.
        packet_type: PacketType,
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
    /// Push Data that does not say its own length.
    #[error("request length is {length}, headers and payload make {payload}")]
    RequestLength {
        /// What it says.
        length: u16,
        /// Bytes of the upper layer's headers, payload and padding.
        payload: u32,
    },
}
