//! Messages from bytes: one function for each type of packet.

use core::ops::Range;

use super::{Decoded, nvme, rdma};
use crate::falcon::header::acknowledgement::AcknowledgementView;
use crate::falcon::header::base::{self, StartView};
use crate::falcon::header::refusal::RefusalView;
use crate::falcon::header::resync::ResyncView;
use crate::falcon::header::{bitmaps, request_length};
use crate::falcon::{Body, Nack, Packet, PacketType, Timestamp, Ulp, UlpProtocol, WireError};

/// A message of which the first words are read.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// The message's length.
    pub(super) message_len: usize,
    /// What kind of packet it is.
    pub(super) packet_type: PacketType,
    /// Its first words.
    pub(super) start: StartView<'a>,
    /// When it left its sender.
    pub(super) timestamp: Timestamp,
}

/// The upper layer's part of a message: headers, where the payload stands from its end, how long that is.
pub(super) struct Upper {
    /// The headers.
    pub(super) ulp: Ulp,
    /// Bytes behind the headers.
    pub(super) rest_len: usize,
    /// How many of them are payload.
    pub(super) payload_len: usize,
}

/// Reads what follows the first words.
#[inline]
pub(super) fn message(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    match start.packet_type {
        PacketType::PullRequest => pull_request(start, rest),
        PacketType::PullData => pull_data(start, rest),
        PacketType::PushData => push_data(start, rest),
        PacketType::Resync => resync(start, rest),
        PacketType::Ack => {
            let (ack, rest) = AcknowledgementView::split(rest)?;
            start.acknowledgement(Body::Ack(ack.to_repr()), rest)
        }
        PacketType::ExtendedAck => {
            let (ack, rest) = AcknowledgementView::split(rest)?;
            let (bitmaps, rest) = bitmaps::split_bitmaps(rest)?;
            start.acknowledgement(Body::ExtendedAck(ack.to_repr(), bitmaps), rest)
        }
        PacketType::Nack => nack(start, rest),
    }
}

impl Start<'_> {
    /// The upper layer that the base header names.
    #[inline]
    fn protocol(&self) -> Result<UlpProtocol, WireError> {
        UlpProtocol::from_code(self.start.protocol()).ok_or(WireError::Protocol)
    }

    /// The upper layer's headers and payload.
    #[inline]
    fn upper(&self, rest: &[u8]) -> Result<Upper, WireError> {
        let upper = match self.protocol()? {
            UlpProtocol::Rdma => rdma::read(rest)?,
            UlpProtocol::Nvme => nvme::read(rest)?,
            UlpProtocol::None => return Err(WireError::Protocol),
        };
        if upper.ulp.packet_type() == Some(self.packet_type) { Ok(upper) } else { Err(WireError::Transaction) }
    }

    /// The packet of a transaction with `body` and the payload of `upper`.
    #[inline]
    fn transaction(&self, body: Body, upper: &Upper) -> Result<Decoded, WireError> {
        let payload_len = u32::try_from(upper.payload_len).map_err(|_| WireError::PayloadLength)?;
        let start = self.message_len - upper.rest_len;
        let packet = self.packet(upper.ulp.protocol(), body, payload_len);
        self.finish(packet, start..start + upper.payload_len)
    }

    #[inline]
    fn packet(&self, protocol: UlpProtocol, body: Body, payload_len: u32) -> Packet {
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

    #[inline]
    fn finish(&self, packet: Packet, payload: Range<usize>) -> Result<Decoded, WireError> {
        if !packet.allows_payload(packet.payload_len) {
            return Err(WireError::PayloadLength);
        }
        Ok(Decoded { packet, payload })
    }

    /// A packet without payload, of which `rest` is left over.
    #[inline]
    fn bare(&self, packet: Packet, rest: &[u8]) -> Result<Decoded, WireError> {
        if !rest.is_empty() {
            return Err(WireError::PayloadLength);
        }
        Ok(Decoded { packet, payload: self.message_len..self.message_len })
    }

    /// An acknowledgement: what it does not carry is zero, whatever its reserved bits are.
    #[inline]
    fn acknowledgement(&self, body: Body, rest: &[u8]) -> Result<Decoded, WireError> {
        let packet = Packet { function: 0, ack_request: false, ..self.packet(UlpProtocol::None, body, 0) };
        self.bare(packet, rest)
    }
}

#[inline]
fn pull_request(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let (length, rest) = request_length::split_length::<{ request_length::PULL_LEN }>(rest)?;
    let upper = start.upper(rest)?;
    start.transaction(Body::PullRequest { psn, rsn, length, ulp: upper.ulp }, &upper)
}

#[inline]
fn pull_data(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let upper = start.upper(rest)?;
    start.transaction(Body::PullData { psn, rsn, ulp: upper.ulp }, &upper)
}

#[inline]
fn push_data(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let (length, rest) = request_length::split_length::<{ request_length::PUSH_LEN }>(rest)?;
    if rest.len() != usize::from(length) {
        return Err(WireError::RequestLength);
    }
    let upper = start.upper(rest)?;
    start.transaction(Body::PushData { psn, rsn, length, ulp: upper.ulp }, &upper)
}

fn resync(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let (own, rest) = ResyncView::split(rest)?;
    let body = Body::Resync { psn, rsn, code: own.code()?, of: own.original()?, vendor: own.vendor() };
    start.bare(start.packet(start.protocol()?, body, 0), rest)
}

fn nack(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let (ack, rest) = AcknowledgementView::split(rest)?;
    let (refusal, rest) = RefusalView::split(rest)?;
    let nack = Nack {
        t1: ack.t1(),
        t2: ack.t2(),
        hops: ack.hops(),
        rx_level: ack.rx_level(),
        ecn: ack.ecn(),
        metadata: ack.nack_metadata(),
        psn: refusal.psn(),
        window: refusal.window(),
        code: refusal.code()?,
    };
    start.acknowledgement(Body::Nack(nack), rest)
}
