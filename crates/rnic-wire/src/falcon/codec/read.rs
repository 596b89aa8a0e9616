//! Decoding of messages: one function for each type of packet.

use super::frame::{Frame, Start};
use super::{Decoded, nvme, rdma};
use crate::falcon::header::acknowledgement::AcknowledgementView;
use crate::falcon::header::refusal::RefusalView;
use crate::falcon::header::resync::ResyncView;
use crate::falcon::header::{base, bitmaps, request_length};
use crate::falcon::{Body, Nack, PacketType, UlpProtocol, WireError};

/// Reads the part after the first words.
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

#[inline]
fn pull_request(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let (length, rest) = request_length::split_length::<{ request_length::PULL_LEN }>(rest)?;
    let frame = Frame { start, psn, rsn, length };
    upper(&frame, rest)
}

#[inline]
fn pull_data(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let frame = Frame { start, psn, rsn, length: 0 };
    upper(&frame, rest)
}

#[inline]
fn push_data(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let (length, rest) = request_length::split_length::<{ request_length::PUSH_LEN }>(rest)?;
    if start.bytes_from(rest) != usize::from(length) {
        return Err(WireError::RequestLength);
    }
    let frame = Frame { start, psn, rsn, length };
    upper(&frame, rest)
}

fn resync(start: &Start<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    let ((psn, rsn), rest) = base::split_numbers(rest)?;
    let (own, rest) = ResyncView::split(rest)?;
    let body = Body::Resync { psn, rsn, code: own.code()?, of: own.original()?, vendor: own.vendor() };
    start.without_payload(start.packet(start.protocol()?, body, 0), rest)
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

/// Reads the upper layer's headers with that layer's own code: each of its packet types ends in one of [`Frame`]'s
/// functions, so that the headers are built in their final location.
#[inline]
fn upper(frame: &Frame<'_>, rest: &[u8]) -> Result<Decoded, WireError> {
    match frame.start.protocol()? {
        UlpProtocol::Rdma => rdma::read(frame, rest),
        UlpProtocol::Nvme => nvme::read(frame, rest),
        UlpProtocol::None => Err(WireError::Protocol),
    }
}
