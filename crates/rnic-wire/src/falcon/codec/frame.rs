//! The header fields that the parser has read, and the packets made of them.

use rnic_base::Psn32;

use super::Decoded;
use crate::falcon::header::base::StartView;
use crate::falcon::{Body, Packet, PacketType, Rsn, Timestamp, Ulp, UlpProtocol, WireError};

/// A message of which the first words are read.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// The message's length.
    pub(super) message_len: usize,
    /// How many of its last bytes are not given.
    pub(super) missing: usize,
    /// What kind of packet it is.
    pub(super) packet_type: PacketType,
    /// Its first words.
    pub(super) start: StartView<'a>,
    /// When it left its sender.
    pub(super) timestamp: Timestamp,
}

/// A packet of a transaction of which Falcon's own headers are read; the upper layer's follow.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) start: &'a Start<'a>,
    pub(super) psn: Psn32,
    pub(super) rsn: Rsn,
    /// Zero in Pull Data, which has none.
    pub(super) length: u16,
}

/// What is behind the upper layer's headers.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    /// Bytes of payload and padding.
    pub(super) rest_len: usize,
    /// Bytes of payload.
    pub(super) payload_len: usize,
}

impl Start<'_> {
    /// The upper layer that the base header names.
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

    /// Bytes of the message from the beginning of `rest` on, of which not all may be given.
    #[inline(always)]
    pub(super) fn bytes_from(&self, rest: &[u8]) -> usize {
        rest.len() + self.missing
    }

    /// A packet without payload, of which `rest` is left over.
    #[inline]
    pub(super) fn bare(&self, packet: Packet, rest: &[u8]) -> Result<Decoded, WireError> {
        if self.bytes_from(rest) > 0 {
            return Err(WireError::PayloadLength);
        }
        Ok(Decoded { packet, payload: self.message_len..self.message_len })
    }

    /// An acknowledgement: what it does not carry is zero, whatever its reserved bits are.
    #[inline]
    pub(super) fn acknowledgement(&self, body: Body, rest: &[u8]) -> Result<Decoded, WireError> {
        let packet = Packet { function: 0, ack_request: false, ..self.packet(UlpProtocol::None, body, 0) };
        self.bare(packet, rest)
    }
}

impl Frame<'_> {
    /// Bytes of the message from the beginning of `rest` on, of which not all may be given.
    #[inline(always)]
    pub(super) fn bytes_from(&self, rest: &[u8]) -> usize {
        self.start.bytes_from(rest)
    }

    /// Asks for data, when Falcon's headers say so too.
    #[inline(always)]
    pub(super) fn pull_request(&self, ulp: Ulp, tail: Tail) -> Result<Decoded, WireError> {
        let Self { psn, rsn, length, .. } = *self;
        self.finish(PacketType::PullRequest, Body::PullRequest { psn, rsn, length, ulp }, tail)
    }

    /// Data that was asked for, when Falcon's headers say so too.
    #[inline(always)]
    pub(super) fn pull_data(&self, ulp: Ulp, tail: Tail) -> Result<Decoded, WireError> {
        let Self { psn, rsn, .. } = *self;
        self.finish(PacketType::PullData, Body::PullData { psn, rsn, ulp }, tail)
    }

    /// Data that was not asked for, when Falcon's headers say so too.
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
