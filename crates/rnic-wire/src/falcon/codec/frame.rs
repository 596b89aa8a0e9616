//! Header fields that the parser has read, and construction of packets from them.

use rnic_base::Psn32;

use super::Decoded;
use crate::falcon::header::base::StartView;
use crate::falcon::{Body, Packet, PacketType, Rsn, Timestamp, Ulp, UlpProtocol, WireError};

/// A message of which the first words have been read.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// Length of the message in bytes.
    pub(super) message_len: usize,
    /// Number of bytes at the end of the message that are not given.
    pub(super) missing: usize,
    /// Type of the packet.
    pub(super) packet_type: PacketType,
    /// First words of the packet.
    pub(super) start: StartView<'a>,
    /// Time at which the packet was sent.
    pub(super) timestamp: Timestamp,
}

/// A packet of a transaction of which Falcon's own headers have been read; the upper layer's headers follow.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) start: &'a Start<'a>,
    pub(super) psn: Psn32,
    pub(super) rsn: Rsn,
    /// Request length; zero in Pull Data, which has none.
    pub(super) length: u16,
}

/// Lengths of the part that follows the upper layer's headers.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    /// Length of payload and padding in bytes.
    pub(super) rest_len: usize,
    /// Length of the payload in bytes.
    pub(super) payload_len: usize,
}

impl Start<'_> {
    /// Returns the upper layer named in the base header.
    #[inline]
    pub(super) fn protocol(&self) -> Result<UlpProtocol, WireError> {
        UlpProtocol::from_code(self.start.protocol()).ok_or(WireError::Protocol)
    }

    #[inline(always)]
    pub(super) fn packet(&self, protocol: UlpProtocol, body: Body, payload_len: u32) -> Packet {
        Packet {
            cid: self.start.cid(),
            function: self.start.function(),
            protocol,
            ack_request: self.start.ack_request(),
            bases: self.start.bases(),
            timestamp: self.timestamp,
            payload_len,
            body,
        }
    }

    /// Returns the number of bytes of the message from the beginning of `rest`, including bytes that are missing from a
    /// truncated packet.
    #[inline(always)]
    pub(super) fn bytes_from(&self, rest: &[u8]) -> usize {
        rest.len() + self.missing
    }

    /// Returns a packet without payload; returns an error when bytes follow its headers, whether in `rest` or not
    /// given.
    #[inline]
    pub(super) fn without_payload(&self, packet: Packet, rest: &[u8]) -> Result<Decoded, WireError> {
        if self.bytes_from(rest) > 0 {
            return Err(WireError::PayloadLength);
        }
        Ok(Decoded { packet, payload: self.message_len..self.message_len })
    }

    /// Returns an acknowledgement: fields that it does not carry are zero, regardless of its reserved bits.
    #[inline]
    pub(super) fn acknowledgement(&self, body: Body, rest: &[u8]) -> Result<Decoded, WireError> {
        let packet = Packet { function: 0, ack_request: false, ..self.packet(UlpProtocol::None, body, 0) };
        self.without_payload(packet, rest)
    }
}

impl Frame<'_> {
    /// Returns the number of bytes of the message from the beginning of `rest`, including bytes that are missing from a
    /// truncated packet.
    #[inline(always)]
    pub(super) fn bytes_from(&self, rest: &[u8]) -> usize {
        self.start.bytes_from(rest)
    }

    /// Decodes the frame as a Pull Request; fails if the packet type in the Falcon header is not Pull Request, or the
    /// payload length is not allowed.
    #[inline(always)]
    pub(super) fn pull_request(&self, ulp: Ulp, tail: Tail) -> Result<Decoded, WireError> {
        let Self { psn, rsn, length, .. } = *self;
        self.finish(PacketType::PullRequest, Body::PullRequest { psn, rsn, length, ulp }, tail)
    }

    /// Decodes the frame as Pull Data; fails if the packet type in the Falcon header is not Pull Data, or the payload
    /// length is not allowed.
    #[inline(always)]
    pub(super) fn pull_data(&self, ulp: Ulp, tail: Tail) -> Result<Decoded, WireError> {
        let Self { psn, rsn, .. } = *self;
        self.finish(PacketType::PullData, Body::PullData { psn, rsn, ulp }, tail)
    }

    /// Decodes the frame as Push Data; fails if the packet type in the Falcon header is not Push Data, or the payload
    /// length is not allowed.
    #[inline(always)]
    pub(super) fn push_data(&self, ulp: Ulp, tail: Tail) -> Result<Decoded, WireError> {
        let Self { psn, rsn, length, .. } = *self;
        self.finish(PacketType::PushData, Body::PushData { psn, rsn, length, ulp }, tail)
    }

    #[inline(always)]
    fn finish(&self, packet_type: PacketType, body: Body, tail: Tail) -> Result<Decoded, WireError> {
        if packet_type != self.start.packet_type {
            return Err(WireError::Transaction);
        }
        let payload_len = u32::try_from(tail.payload_len).map_err(|_| WireError::PayloadLength)?;
        let protocol = body.ulp().map_or(UlpProtocol::None, Ulp::protocol);
        let packet = self.start.packet(protocol, body, payload_len);
        if !packet.allows_payload(payload_len) {
            return Err(WireError::PayloadLength);
        }
        let start = self.start.message_len - tail.rest_len;
        Ok(Decoded { packet, payload: start..start + tail.payload_len })
    }
}
