//! Extensions of FaSR to RoCEv2's headers ("Fast and Scalable Selective Retransmission for RDMA", 2025, section IV-D).
//!
//! The paper specifies the fields and mostly their sizes, but no layout. This is the layout of OpenRNIC.
//!
//! | packet | paper | here |
//! |---|---|---|
//! | any | nothing | TVer in the BTH is 2 (RoCEv2: 0, IRN: 1) |
//! | Send | 3 bytes message sequence number, 3 bytes payload offset | IRN's placement: the same two fields |
//! | Write, first packet | its address, which RoCEv2's RETH has | RETH as it is |
//! | Write, other packets | 8 bytes of address | [`AddressView`]: the address, and the key: 12 bytes |
//! | Write with immediate, last packet | nothing | RETH, and the 4 bytes of IRN's `recv_WQE_SN` |
//! | Read request | acknowledged; "a timestamp" | IRN's `read_WQE_SN`, 4 bytes; [`AskedView`], 8 bytes |
//! | atomic request | nothing | IRN's `read_WQE_SN`, 4 bytes; [`ExpectsView`], 4 bytes |
//! | Read and atomic response, every packet | "similar to the Write operation" | a Write's [`AddressView`] |
//! | SACK | lost-cnt, 3 bits; overflow, "the unused op-type value" | [`NoteView`] behind the AETH |
//! | AACK, FNACK | an ACK; the PSN of the dropped packet | the same field |
//!
//! ```text
//!        0               1               2               3
//!  address, 12 bytes
//!     |                     virtual address                           |
//!     |                        (8 bytes)                              |
//!     |                           key                                 |
//!  asked, 8 bytes, of which an atomic request has the first 4
//!     |   reserved    |           PSN expected next                   |
//!     |                        timestamp                              |
//!  note, 4 bytes
//!     | type  |O| lost|                     PSN                       |
//! ```
//!
//! Types: 0 nothing to report, 1 SACK, 2 AACK, 3 FNACK. O is the overflow flag: a count that overflows stays at 7.
//!
//! Reasons for choices where the paper is silent or this implementation differs:
//!
//! - *The key is in every Write packet.* The address gives the destination of a packet, but not the right to write
//!   there: when the packet with the RETH is lost, the packets behind it could not be checked, and a NIC must not write
//!   without a check. This takes 4 bytes more than the paper counts.
//! - *The immediate's packet has the message's length*, for the completion.
//! - *The offset counts packets*, as in IRN: a three-byte count of bytes would be limited to 16 MiB.
//! - *A response is addressed by its request*: the key is the request's `read_WQE_SN`, which identifies the memory to
//!   be filled while the request is in flight, and the address counts from 0 there. The program's own addresses are not
//!   sent: there may be many, in memory that the peer has no right to access. Responses are numbered like the
//!   responder's own requests; their scheduling is described in the engine's `qp/fetch/scheduled.rs`.
//! - *Responses keep RoCE's opcodes and AETH*, so that other programs can read them; with the address they have 12
//!   bytes more than RoCE's, as in a Write.
//! - *Requests carry the number that their sender expects next*: a queue pair that only responds is never given its own
//!   first number (verbs set it in the transition to ready-to-send), and could not send.
//! - *The timestamp is the requester's clock in units of 2^20 ps*: about a microsecond, wrapping after 75 minutes. Each
//!   copy that is submitted has its own timestamp. The sequence number determines whether a request is new; the
//!   timestamp distinguishes requests submitted again from duplicates created by the network.

use rnic_base::Psn;

use crate::bytes::split;
use crate::error::WireError;
use crate::packet::{Asked, LossCause, LossNote, NakCode, Position, Reth, Syndrome};

/// Transport header version of packets with these extensions.
pub const VERSION: u8 = 2;

/// Length of the address in a Write packet other than the first, in bytes.
pub const ADDRESS_LEN: usize = 12;
/// Length of the loss report in an acknowledgement, in bytes.
pub const NOTE_LEN: usize = 4;

/// Number of bytes that a Read request has in addition to IRN's: the expected number, and the timestamp.
pub const ASKED_LEN: usize = EXPECTS_LEN + 4;
/// Number of bytes that an atomic request has in addition to IRN's: the number that its sender expects next.
pub const EXPECTS_LEN: usize = 4;

/// Returns whether a Write packet has the short address in place of the RETH.
#[inline]
pub const fn is_short(position: Position, has_immediate: bool) -> bool {
    !position.starts() && !has_immediate
}

/// View of the address of a Write packet other than the first, in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AddressView<'a>(&'a [u8; ADDRESS_LEN]);

impl<'a> AddressView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes behind.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the decoded header.
    #[inline]
    pub fn to_repr(self) -> Reth {
        let [a, b, c, d, e, f, g, h, key @ ..] = *self.0;
        Reth { va: u64::from_be_bytes([a, b, c, d, e, f, g, h]), rkey: u32::from_be_bytes(key), dma_len: 0 }
    }
}

/// Encodes the address of a Write packet other than the first.
#[inline]
pub fn emit_address(reth: &Reth, out: &mut [u8; ADDRESS_LEN]) {
    out[..8].copy_from_slice(&reth.va.to_be_bytes());
    out[8..].copy_from_slice(&reth.rkey.to_be_bytes());
}

/// View of the additional fields of a Read request in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AskedView<'a>(&'a [u8; ASKED_LEN]);

impl<'a> AskedView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes behind.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the decoded header.
    #[inline]
    pub fn to_repr(self) -> Asked {
        let [a, b, c, d, stamp @ ..] = *self.0;
        Asked { expects: Psn::new(u32::from_be_bytes([a, b, c, d])), stamp: u32::from_be_bytes(stamp) }
    }
}

/// Encodes the additional fields of a Read request.
#[inline]
pub fn emit_asked(asked: &Asked, out: &mut [u8; ASKED_LEN]) {
    out[..4].copy_from_slice(&asked.expects.value().to_be_bytes());
    out[4..].copy_from_slice(&asked.stamp.to_be_bytes());
}

/// View of the number that the sender of an atomic request expects next.
#[derive(Clone, Copy, Debug)]
pub struct ExpectsView<'a>(&'a [u8; EXPECTS_LEN]);

impl<'a> ExpectsView<'a> {
    /// Splits the field off the front of `bytes`; returns it and the bytes behind.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the expected number.
    #[inline]
    pub fn psn(self) -> Psn {
        Psn::new(u32::from_be_bytes(*self.0))
    }
}

/// Encodes the number that is expected next.
#[inline]
pub fn emit_expects(expects: Psn, out: &mut [u8; EXPECTS_LEN]) {
    *out = expects.value().to_be_bytes();
}

/// View of a loss report in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct NoteView<'a>(&'a [u8; NOTE_LEN]);

impl<'a> NoteView<'a> {
    /// Splits the field off the front of `bytes`; returns it and the bytes behind.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the loss report, if there is one, of an acknowledgement with `syndrome`.
    ///
    /// # Errors
    /// [`WireError::Syndrome`] when report and syndrome do not match, or the type is not defined.
    #[inline]
    pub fn to_repr(self, syndrome: Syndrome) -> Result<Option<LossNote>, WireError> {
        let first = self.0[0];
        let cause = match first >> TYPE_SHIFT {
            0 => return Ok(None),
            1 => LossCause::Early,
            2 => LossCause::Repaired,
            3 => LossCause::Misplaced,
            _ => return Err(WireError::Syndrome),
        };
        let psn = Psn::new(u32::from_be_bytes(*self.0));
        let note = LossNote { cause, psn, lost: first & LOST_MASK, overflow: first & OVERFLOW != 0 };
        if fits(syndrome, &note) { Ok(Some(note)) } else { Err(WireError::Syndrome) }
    }
}

/// Encodes a loss report, or its absence.
#[inline]
pub fn emit_note(note: Option<&LossNote>, out: &mut [u8; NOTE_LEN]) {
    *out = note.map_or(0, |note| u32::from(first_byte(note)) << 24 | note.psn.value()).to_be_bytes();
}

fn first_byte(note: &LossNote) -> u8 {
    let kind = match note.cause {
        LossCause::Early => 1,
        LossCause::Repaired => 2,
        LossCause::Misplaced => 3,
    };
    kind << TYPE_SHIFT | if note.overflow { OVERFLOW } else { 0 } | note.lost & LOST_MASK
}

/// Returns whether an acknowledgement with `syndrome` may carry `note`.
#[inline]
pub fn fits(syndrome: Syndrome, note: &LossNote) -> bool {
    let says = match note.cause {
        LossCause::Repaired => matches!(syndrome, Syndrome::Ack { .. }),
        LossCause::Early | LossCause::Misplaced => syndrome == Syndrome::Nak(NakCode::PsnSequenceError),
    };
    says && note.lost <= LOST_MASK
}

const TYPE_SHIFT: u32 = 4;
const OVERFLOW: u8 = 0x08;
const LOST_MASK: u8 = 0x07;

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

    #[test]
    fn address_golden() {
        let reth = Reth { va: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c, dma_len: 0 };
        let mut bytes = [0xee; ADDRESS_LEN];
        emit_address(&reth, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(AddressView::split(&bytes).map(|(view, rest)| (view.to_repr(), rest.len())), Ok((reth, 0)));
        assert_eq!(AddressView::split(&bytes[..11]).err(), Some(WireError::Short));
    }

    #[test]
    fn asked_golden() {
        let asked = Asked { expects: Psn::new(0x01_0203), stamp: 0x0405_0607 };
        let mut bytes = [0xee; ASKED_LEN];
        emit_asked(&asked, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7]);
        bytes[0] = 0xff;
        let split = AskedView::split(&bytes).map(|(view, rest)| (view.to_repr(), rest.len()));
        assert_eq!(split, Ok((asked, 0)), "the reserved byte is ignored");
        assert_eq!(AskedView::split(&bytes[..7]).err(), Some(WireError::Short));
    }

    #[test]
    fn note_golden() {
        let note = |cause, lost, overflow| LossNote { cause, psn: Psn::new(0x01_0203), lost, overflow };
        let cases = [
            (Syndrome::ACK, None, [0, 0, 0, 0]),
            (GAP, Some(note(LossCause::Early, 1, false)), [0x11, 1, 2, 3]),
            (GAP, Some(note(LossCause::Early, 7, true)), [0x1f, 1, 2, 3]),
            (Syndrome::ACK, Some(note(LossCause::Repaired, 0, false)), [0x20, 1, 2, 3]),
            (GAP, Some(note(LossCause::Misplaced, 5, false)), [0x35, 1, 2, 3]),
        ];
        for (syndrome, note, expected) in cases {
            let mut bytes = [0xee; NOTE_LEN];
            emit_note(note.as_ref(), &mut bytes);
            assert_eq!(bytes, expected);
            assert_eq!(NoteView::split(&bytes).and_then(|(view, _)| view.to_repr(syndrome)), Ok(note));
        }
        assert_eq!(NoteView::split(&[0x11, 1, 2]).err(), Some(WireError::Short));
    }

    #[test]
    fn a_note_and_its_syndrome_agree() {
        let read = |first: u8, syndrome| NoteView(&[first, 0, 0, 0]).to_repr(syndrome);
        let refused = Syndrome::Nak(NakCode::InvalidRequest);
        for (first, syndrome) in [(0x11, Syndrome::ACK), (0x20, GAP), (0x31, refused), (0x40, GAP), (0xf0, GAP)] {
            assert_eq!(read(first, syndrome), Err(WireError::Syndrome), "{first:#x}");
        }
        assert_eq!(read(0x0f, refused), Ok(None), "without a type there is nothing");
    }
}
