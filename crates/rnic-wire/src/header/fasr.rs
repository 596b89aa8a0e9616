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
//! | Read request | acknowledged; "a timestamp" | IRN's `read_WQE_SN`, 4 bytes; [`FasrReadFieldsView`], 8 bytes |
//! | atomic request | nothing | IRN's `read_WQE_SN`, 4 bytes; [`ExpectedPsnView`], 4 bytes |
//! | Read and atomic response, every packet | "similar to the Write operation" | a Write's [`AddressView`] |
//! | SACK | lost-cnt, 3 bits; overflow, "the unused op-type value" | [`LossReportView`], after the AETH |
//! | AACK, FNACK | an ACK; the PSN of the dropped packet | the same field |
//!
//! ```text
//!        0               1               2               3
//!  address, 12 bytes
//!     |                     virtual address                           |
//!     |                        (8 bytes)                              |
//!     |                           key                                 |
//!  request state, 8 bytes; an atomic request has only the first 4
//!     |   reserved    |           PSN expected next                   |
//!     |                        timestamp                              |
//!  loss report, 4 bytes
//!     | type  |O| lost|                     PSN                       |
//! ```
//!
//! Types: 0 no report, 1 SACK, 2 AACK, 3 FNACK. O is the overflow flag: a count that overflows stays at 7.
//!
//! Reasons for choices where the paper is silent or this implementation differs:
//!
//! - *The key is in every Write packet.* The address gives the destination of a packet, but not the right to write
//!   there: when the packet with the RETH is lost, the packets after it could not be checked, and a NIC must not
//!   write without a check. This costs 4 bytes more than stated in the paper.
//! - *The packet with the immediate data carries the message's length*, which the completion reports.
//! - *The offset counts packets*, as in IRN: a three-byte count of bytes would be limited to 16 MiB.
//! - *A response is addressed by its request*: the key is the request's `read_WQE_SN`, which identifies the memory to
//!   be filled while the request is in flight, and the address counts from 0 there. The program's own addresses are not
//!   sent: there may be many, in memory that the peer has no right to access. Responses are numbered like the
//!   responder's own requests; their scheduling is described in the engine's `qp/fetch/scheduled.rs`.
//! - *Responses have RoCE's opcodes and AETH*, so that existing packet analysers can decode them; the address adds 12
//!   bytes, as in a Write.
//! - *Requests carry the PSN that their sender expects next*: verbs set a queue pair's first PSN in its transition to
//!   ready-to-send, and a queue pair that only responds need not make this transition. Without the field it would not
//!   know the first PSN of its responses.
//! - *The timestamp is the requester's clock in units of 2^20 ps*: about a microsecond, wrapping after 75 minutes. Each
//!   copy that is submitted has its own timestamp. The sequence number determines whether a request is new; the
//!   timestamp distinguishes requests submitted again from duplicates created by the network.

use rnic_base::Psn;

use crate::bytes::split;
use crate::error::WireError;
use crate::packet::{FasrReadFields, LossCause, LossReportFields, NakCode, Position, Reth, Syndrome};

/// Transport header version of packets with these extensions.
pub const VERSION: u8 = 2;

/// Length of the address in a Write packet other than the first, in bytes.
pub const ADDRESS_LEN: usize = 12;
/// Length of the loss report in an acknowledgement, in bytes.
pub const LOSS_REPORT_LEN: usize = 4;

/// Number of bytes that a Read request has in addition to IRN's: the PSN that its sender expects next, and the
/// timestamp.
pub const FASR_READ_FIELDS_LEN: usize = EXPECTED_PSN_LEN + 4;
/// Number of bytes that an atomic request has in addition to IRN's: the PSN that its sender expects next.
pub const EXPECTED_PSN_LEN: usize = 4;

/// Returns whether a Write packet has the short address instead of the RETH.
#[inline]
pub const fn is_short(position: Position, has_immediate: bool) -> bool {
    !position.starts() && !has_immediate
}

/// View of the address of a Write packet other than the first, in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AddressView<'a>(&'a [u8; ADDRESS_LEN]);

impl<'a> AddressView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
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
pub struct FasrReadFieldsView<'a>(&'a [u8; FASR_READ_FIELDS_LEN]);

impl<'a> FasrReadFieldsView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the decoded header.
    #[inline]
    pub fn to_repr(self) -> FasrReadFields {
        let [a, b, c, d, stamp @ ..] = *self.0;
        FasrReadFields { expected_psn: Psn::new(u32::from_be_bytes([a, b, c, d])), stamp: u32::from_be_bytes(stamp) }
    }
}

/// Encodes the additional fields of a Read request.
#[inline]
pub fn emit_read_fields(fields: &FasrReadFields, out: &mut [u8; FASR_READ_FIELDS_LEN]) {
    out[..4].copy_from_slice(&fields.expected_psn.value().to_be_bytes());
    out[4..].copy_from_slice(&fields.stamp.to_be_bytes());
}

/// View of the PSN that the sender of an atomic request expects next, in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedPsnView<'a>(&'a [u8; EXPECTED_PSN_LEN]);

impl<'a> ExpectedPsnView<'a> {
    /// Splits the field off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the expected PSN.
    #[inline]
    pub fn psn(self) -> Psn {
        Psn::new(u32::from_be_bytes(*self.0))
    }
}

/// Encodes the PSN that is expected next.
#[inline]
pub fn emit_expected_psn(expected_psn: Psn, out: &mut [u8; EXPECTED_PSN_LEN]) {
    *out = expected_psn.value().to_be_bytes();
}

/// View of a loss report in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct LossReportView<'a>(&'a [u8; LOSS_REPORT_LEN]);

impl<'a> LossReportView<'a> {
    /// Splits the field off the front of `bytes`; returns it and the bytes after it.
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
    pub fn to_repr(self, syndrome: Syndrome) -> Result<Option<LossReportFields>, WireError> {
        let first = self.0[0];
        let cause = match first >> TYPE_SHIFT {
            0 => return Ok(None),
            1 => LossCause::OutOfOrder,
            2 => LossCause::Repaired,
            3 => LossCause::Misplaced,
            _ => return Err(WireError::Syndrome),
        };
        let psn = Psn::new(u32::from_be_bytes(*self.0));
        let report = LossReportFields { cause, psn, lost: first & LOST_MASK, overflow: first & OVERFLOW != 0 };
        if fits(syndrome, &report) { Ok(Some(report)) } else { Err(WireError::Syndrome) }
    }
}

/// Encodes a loss report, or its absence.
#[inline]
pub fn emit_loss_report(report: Option<&LossReportFields>, out: &mut [u8; LOSS_REPORT_LEN]) {
    *out = report.map_or(0, |report| u32::from(first_byte(report)) << 24 | report.psn.value()).to_be_bytes();
}

fn first_byte(report: &LossReportFields) -> u8 {
    let kind = match report.cause {
        LossCause::OutOfOrder => 1,
        LossCause::Repaired => 2,
        LossCause::Misplaced => 3,
    };
    kind << TYPE_SHIFT | if report.overflow { OVERFLOW } else { 0 } | report.lost & LOST_MASK
}

/// Returns whether an acknowledgement with `syndrome` may carry `report`.
#[inline]
pub fn fits(syndrome: Syndrome, report: &LossReportFields) -> bool {
    let matches_cause = match report.cause {
        LossCause::Repaired => matches!(syndrome, Syndrome::Ack { .. }),
        LossCause::OutOfOrder | LossCause::Misplaced => syndrome == Syndrome::Nak(NakCode::PsnSequenceError),
    };
    matches_cause && report.lost <= LOST_MASK
}

const TYPE_SHIFT: u32 = 4;
const OVERFLOW: u8 = 0x08;
const LOST_MASK: u8 = 0x07;

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE_ERROR: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);

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
    fn read_fields_golden() {
        let fields = FasrReadFields { expected_psn: Psn::new(0x01_0203), stamp: 0x0405_0607 };
        let mut bytes = [0xee; FASR_READ_FIELDS_LEN];
        emit_read_fields(&fields, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7]);
        bytes[0] = 0xff;
        let split = FasrReadFieldsView::split(&bytes).map(|(view, rest)| (view.to_repr(), rest.len()));
        assert_eq!(split, Ok((fields, 0)), "the reserved byte is ignored");
        assert_eq!(FasrReadFieldsView::split(&bytes[..7]).err(), Some(WireError::Short));
    }

    #[test]
    fn loss_report_golden() {
        let report = |cause, lost, overflow| LossReportFields { cause, psn: Psn::new(0x01_0203), lost, overflow };
        let cases = [
            (Syndrome::ACK, None, [0, 0, 0, 0]),
            (SEQUENCE_ERROR, Some(report(LossCause::OutOfOrder, 1, false)), [0x11, 1, 2, 3]),
            (SEQUENCE_ERROR, Some(report(LossCause::OutOfOrder, 7, true)), [0x1f, 1, 2, 3]),
            (Syndrome::ACK, Some(report(LossCause::Repaired, 0, false)), [0x20, 1, 2, 3]),
            (SEQUENCE_ERROR, Some(report(LossCause::Misplaced, 5, false)), [0x35, 1, 2, 3]),
        ];
        for (syndrome, report, expected) in cases {
            let mut bytes = [0xee; LOSS_REPORT_LEN];
            emit_loss_report(report.as_ref(), &mut bytes);
            assert_eq!(bytes, expected);
            assert_eq!(LossReportView::split(&bytes).and_then(|(view, _)| view.to_repr(syndrome)), Ok(report));
        }
        assert_eq!(LossReportView::split(&[0x11, 1, 2]).err(), Some(WireError::Short));
    }

    #[test]
    fn loss_reports_and_syndromes_must_match() {
        let read = |first: u8, syndrome| LossReportView(&[first, 0, 0, 0]).to_repr(syndrome);
        let refused = Syndrome::Nak(NakCode::InvalidRequest);
        for (first, syndrome) in [
            (0x11, Syndrome::ACK),
            (0x20, SEQUENCE_ERROR),
            (0x31, refused),
            (0x40, SEQUENCE_ERROR),
            (0xf0, SEQUENCE_ERROR),
        ] {
            assert_eq!(read(first, syndrome), Err(WireError::Syndrome), "{first:#x}");
        }
        assert_eq!(read(0x0f, refused), Ok(None), "a report without a type was decoded");
    }
}
