//! Extensions of IRN to RoCEv2's headers ("Revisiting Network Support for RDMA", SIGCOMM'18, section 5).
//!
//! The paper specifies the fields and part of their sizes, but no layout. This is the layout of OpenRNIC.
//!
//! | packet | paper | here |
//! |---|---|---|
//! | any | "extensions to RDMA's packet format", inside UDP as RoCEv2 | TVer in the BTH is 1 (RoCEv2: 0) |
//! | Write | 5.3.1, 6.3: the 16-byte RETH in every packet | RETH as it is, VA of this packet's first byte |
//! | Send | 5.3.2, 6.3: `recv_WQE_SN` and offset, 6 bytes, in every packet | [`PlacementView`], after ImmDt or IETH |
//! | Write with immediate, last packet | 5.3.2: `recv_WQE_SN`, no size given | [`WqeSnView`], after ImmDt |
//! | Read and atomic request | 5.3.2: `read_WQE_SN`, no size given | [`WqeSnView`], after RETH or AtomicETH |
//! | ACK, NAK, RNR NAK | 3.1: cumulative acknowledgement and the PSN that triggered it | [`SackView`], after AETH |
//! | read (N)ACK | 5.2: one of the eight unused RC opcodes | opcode 0x18, AETH and [`SackView`] |
//! | data packet cut by a switch | NDP 3.1: the header without payload | no payload, FECN in the BTH |
//! | NACK of such a packet | NDP 3.2: names the packet | as (read) NACK, T in [`SackView`] |
//! | pull | NDP 3.2: a cumulative counter of pulls | opcode 0x19, [`PullView`] |
//! | Read response, atomic response | 6.3: no addition | no addition |
//!
//! ```text
//!        0               1               2               3               4               5
//!  placement, 6 bytes
//!     |                 recv_WQE_SN                   |                   offset                      |
//!  WQE sequence number, 4 bytes
//!     |   reserved    |          recv_WQE_SN or read_WQE_SN           |
//!  SACK, 4 bytes
//!     |V|T| reserved  |       selectively acknowledged PSN            |
//!  pull, 8 bytes
//!     |   reserved    |   packets granted, modulo 2^24                |           reserved            |
//!     |           reserved            |
//! ```
//!
//! Reasons for choices where the paper is silent:
//!
//! - *TVer distinguishes the formats*, so that a datagram is self-describing: captures, checkers and a mixed pair
//!   (paper, section 7) need no connection state. A RoCEv2 receiver drops version 1 by its existing rules.
//! - *The extensions follow the InfiniBand headers*, so that these are where every RoCE parser expects them.
//! - *Sequence numbers have 24 bits*: the paper adds 3 bytes to a WQE for one (section 6.1), and 3 + 3 are the 6 bytes
//!   of a Send. The offset counts packets ("relative offset in the packet sequence number"); the receiver multiplies by
//!   the path MTU.
//! - *A separate sequence number takes four bytes*: InfiniBand headers consist of words, and one more byte per
//!   message is negligible. Only Send packets are not a multiple of four bytes long; the pad count still refers to
//!   the payload alone.
//! - *V is needed*, because an in-order ACK acknowledges no packet selectively and every 24-bit number is a valid PSN.
//!   Without V the PSN is reserved. The field is in every acknowledgement, so that its length does not depend on its
//!   content.
//! - *A trimmed packet* ("Re-architecting datacenter networks and stacks for low latency and high performance",
//!   SIGCOMM'17, NDP) *keeps its headers*: they name the connection and the packet, which is all that the receiver
//!   needs. FECN, which RoCEv2 does not use, says that a switch cut it; so a packet that its sender sent without
//!   payload is not mistaken for one. The switch computes the ICRC again. Dissectors show a data packet without data.
//! - *T, in a NAK for a missing packet without V*: the PSN is that of a packet which arrived without its payload. Other
//!   acknowledgements ignore T. A receiver that does not know T sees a NAK that acknowledges no packet selectively.
//! - *The counter of a pull is cumulative*, so that a pull repairs the loss of those before it. It counts packets, as
//!   NDP's does; 24 bits are enough, because fewer than 2^23 packets are in flight. A pull is as long as an
//!   acknowledgement, so that a system that sends trains of packets of one length can put both into one.

use rnic_base::{Psn, Serial};

use crate::bytes::{be24, put24, split};
use crate::error::WireError;
use crate::packet::{SendPlacement, WqeSn};

/// Transport header version of RoCEv2 packets.
pub const VERSION_ROCE: u8 = 0;
/// Transport header version of packets with these extensions.
pub const VERSION_IRN: u8 = 1;

/// Length of a Send packet's placement in bytes.
pub const PLACEMENT_LEN: usize = 6;
/// Length of a separate WQE sequence number in bytes.
pub const WQE_SN_LEN: usize = 4;
/// Length of the SACK field in bytes.
pub const SACK_LEN: usize = 4;
/// Length of a pull in bytes.
pub const PULL_LEN: usize = 8;

/// View of a Send packet's placement in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct PlacementView<'a>(&'a [u8; PLACEMENT_LEN]);

impl<'a> PlacementView<'a> {
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
    pub fn to_repr(self) -> SendPlacement {
        SendPlacement { recv_sn: WqeSn::new(be24(self.0, 0)), offset: Serial::new(be24(self.0, 3)) }
    }
}

impl SendPlacement {
    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; PLACEMENT_LEN]) {
        put24(out, 0, self.recv_sn.value());
        put24(out, 3, self.offset.value());
    }
}

/// View of a WQE sequence number in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct WqeSnView<'a>(&'a [u8; WQE_SN_LEN]);

impl<'a> WqeSnView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the sequence number of the work queue entry.
    #[inline]
    pub fn wqe_sn(self) -> WqeSn {
        WqeSn::new(u32::from_be_bytes(*self.0))
    }
}

/// Writes a WQE sequence number.
#[inline]
pub fn emit_wqe_sn(wqe_sn: WqeSn, out: &mut [u8; WQE_SN_LEN]) {
    *out = wqe_sn.value().to_be_bytes();
}

/// View of a SACK field in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct SackView<'a>(&'a [u8; SACK_LEN]);

impl<'a> SackView<'a> {
    /// Splits the field off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the packet that is selectively acknowledged, if there is one.
    #[inline]
    pub fn sack(self) -> Option<Psn> {
        (self.0[0] & SACK_VALID != 0).then(|| Psn::new(u32::from_be_bytes(*self.0)))
    }

    /// Returns the packet that arrived without its payload, if the field names one. Valid in a NAK for a missing
    /// packet.
    #[inline]
    pub fn trimmed(self) -> Option<Psn> {
        (self.0[0] & (SACK_VALID | TRIMMED) == TRIMMED).then(|| Psn::new(u32::from_be_bytes(*self.0)))
    }
}

/// View of a pull in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct PullView<'a>(&'a [u8; PULL_LEN]);

impl<'a> PullView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the number of packets granted, modulo 2^24.
    #[inline]
    pub fn granted(self) -> Serial<24> {
        Serial::new(be24(self.0, 1))
    }
}

/// Writes a pull.
#[inline]
pub fn emit_pull(granted: Serial<24>, out: &mut [u8; PULL_LEN]) {
    *out = [0; PULL_LEN];
    put24(out, 1, granted.value());
}

/// Writes a SACK field.
#[inline]
pub fn emit_sack(sack: Option<Psn>, out: &mut [u8; SACK_LEN]) {
    *out = sack.map_or(0, |psn| u32::from(SACK_VALID) << 24 | psn.value()).to_be_bytes();
}

/// Writes a SACK field that names a packet which arrived without its payload.
#[inline]
pub fn emit_trimmed(trimmed: Psn, out: &mut [u8; SACK_LEN]) {
    *out = (u32::from(TRIMMED) << 24 | trimmed.value()).to_be_bytes();
}

const SACK_VALID: u8 = 0x80;
const TRIMMED: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_golden() {
        let placement = SendPlacement { recv_sn: WqeSn::new(0x01_0203), offset: Serial::new(0x04_0506) };
        let mut bytes = [0xee; PLACEMENT_LEN];
        placement.emit(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6]);
        assert_eq!(PlacementView::split(&bytes).map(|(view, rest)| (view.to_repr(), rest.len())), Ok((placement, 0)));
        assert_eq!(PlacementView::split(&bytes[..5]).err(), Some(WireError::Short));
    }

    #[test]
    fn wqe_sn_golden() {
        let mut bytes = [0xee; WQE_SN_LEN];
        emit_wqe_sn(WqeSn::new(0x01_0203), &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3]);
        bytes[0] = 0xff;
        let split = WqeSnView::split(&bytes).map(|(view, rest)| (view.wqe_sn(), rest.len()));
        assert_eq!(split, Ok((WqeSn::new(0x01_0203), 0)), "the reserved byte is ignored");
        assert_eq!(WqeSnView::split(&bytes[..3]).err(), Some(WireError::Short));
    }

    #[test]
    fn sack_golden() {
        let cases =
            [(None, [0, 0, 0, 0]), (Some(Psn::new(0)), [0x80, 0, 0, 0]), (Some(Psn::MAX), [0x80, 255, 255, 255])];
        for (sack, expected) in cases {
            let mut bytes = [0xee; SACK_LEN];
            emit_sack(sack, &mut bytes);
            assert_eq!(bytes, expected);
            assert_eq!(SackView::split(&bytes).map(|(view, _)| view.sack()), Ok(sack));
        }
        assert_eq!(SackView::split(&[0x7f, 1, 2, 3]).map(|(view, _)| view.sack()), Ok(None), "reserved without V");
        assert_eq!(SackView::split(&[0x80]).err(), Some(WireError::Short));
    }

    #[test]
    fn a_trimmed_packet_is_named_by_t_without_v() {
        let mut bytes = [0xee; SACK_LEN];
        emit_trimmed(Psn::new(0x01_0203), &mut bytes);
        assert_eq!(bytes, [0x40, 1, 2, 3]);
        for (first, trimmed) in [(0x40, Some(Psn::new(0x01_0203))), (0x7f, Some(Psn::new(0x01_0203))), (0xc0, None)] {
            bytes[0] = first;
            assert_eq!(SackView::split(&bytes).map(|(view, _)| view.trimmed()), Ok(trimmed), "{first:#x}");
        }
        assert_eq!(SackView::split(&[0x3f, 1, 2, 3]).map(|(view, _)| view.trimmed()), Ok(None));
    }

    #[test]
    fn pull_golden() {
        let mut bytes = [0xee; PULL_LEN];
        emit_pull(Serial::new(0x01_0203), &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 0, 0, 0, 0]);
        (bytes[0], bytes[7]) = (0xff, 0xff);
        let split = PullView::split(&bytes).map(|(view, rest)| (view.granted(), rest.len()));
        assert_eq!(split, Ok((Serial::new(0x01_0203), 0)), "reserved bytes are ignored");
        assert_eq!(PullView::split(&bytes[..7]).err(), Some(WireError::Short));
    }
}
