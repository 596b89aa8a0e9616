//! Management datagrams: packets for queue pair 1, the general services interface.
//!
//! Source: InfiniBand Architecture volume 1, section 13.5 (MADs over unreliable datagrams), annex A17. Such a datagram
//! is an unreliable datagram Send in one packet: BTH, DETH with the well-known queue key, 256 bytes, ICRC. The format
//! of the 256 bytes is in [`crate::cm`].

use rnic_base::Psn;

use crate::bytes::{put, split};
use crate::error::WireError;
use crate::header::bth::{self, Bth, BthView};
use crate::header::deth::{self, DethView};
use crate::header::irn::VERSION_ROCE;
use crate::icrc::IcrcPrefix;
use crate::length::ICRC_LEN;
use crate::net::Addresses;
use crate::packet::{PacketFlags, Qpn};

/// Length of a management datagram's payload in bytes.
pub const MAD_LEN: usize = 256;

/// Length of the headers in bytes: base transport header and DETH.
pub const HEADERS_LEN: usize = bth::LEN + deth::LEN;

/// Length of the complete UDP payload in bytes.
pub const DATAGRAM_LEN: usize = HEADERS_LEN + MAD_LEN + ICRC_LEN;

/// Queue key of every general services queue pair.
pub const QUEUE_KEY: u32 = 0x8001_0000;

/// Opcode of an unreliable datagram Send in one packet.
pub const OPCODE: u8 = 0x64;

/// A management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GsiPacket<'a> {
    /// Queue pair that sent it: 1, unless a program sends management datagrams from its own queue pair.
    pub source_qpn: Qpn,
    /// Sequence number of the sender's datagrams; no receiver checks it.
    pub psn: Psn,
    /// Payload: a management datagram.
    pub mad: &'a [u8; MAD_LEN],
}

impl GsiPacket<'_> {
    /// Returns the complete UDP payload, including the ICRC.
    #[must_use]
    pub fn encode(&self, addresses: &Addresses) -> [u8; DATAGRAM_LEN] {
        let mut bth = [0; bth::LEN];
        let header = Bth {
            opcode: OPCODE,
            migrated: false,
            pad: 0,
            version: VERSION_ROCE,
            dest_qpn: Qpn::GSI,
            psn: self.psn,
            flags: PacketFlags::default(),
        };
        header.emit(&mut bth);
        let mut deth = [0; deth::LEN];
        deth::emit(QUEUE_KEY, self.source_qpn, &mut deth);

        let mut out = [0; DATAGRAM_LEN];
        put(&mut out, 0, bth);
        put(&mut out, bth::LEN, deth);
        put(&mut out, HEADERS_LEN, *self.mad);
        let icrc = IcrcPrefix::new(addresses, DATAGRAM_LEN as u32).start(&out[..DATAGRAM_LEN - ICRC_LEN]).finish();
        put(&mut out, DATAGRAM_LEN - ICRC_LEN, icrc);
        out
    }
}

/// Returns whether a datagram is to be decoded by [`decode`] rather than [`crate::codec::decode`], by its opcode and
/// destination queue pair.
#[inline]
#[must_use]
pub fn is_gsi(datagram: &[u8]) -> bool {
    datagram.first() == Some(&OPCODE) && datagram.get(5..8) == Some(&[0, 0, 1])
}

/// Decodes a management datagram. The ICRC is not checked, see [`crate::icrc::verify`].
///
/// # Errors
/// [`WireError`] when the input is not a valid management datagram for queue pair 1. No input causes a panic.
pub fn decode(datagram: &[u8]) -> Result<GsiPacket<'_>, WireError> {
    let (header, rest) = BthView::split(datagram)?;
    if header.version() != VERSION_ROCE {
        return Err(WireError::Version);
    }
    if header.opcode() != OPCODE {
        return Err(WireError::Opcode);
    }
    if header.partition_key() != bth::DEFAULT_PARTITION_KEY {
        return Err(WireError::PartitionKey);
    }
    if header.dest_qpn() != Qpn::GSI {
        return Err(WireError::Destination);
    }
    let (deth, rest) = DethView::split(rest)?;
    if deth.queue_key() != QUEUE_KEY {
        return Err(WireError::QueueKey);
    }
    if header.pad() != 0 {
        return Err(WireError::Padding);
    }
    let (mad, icrc) = split(rest).map_err(|_| WireError::PayloadLength)?;
    match icrc.len() {
        ICRC_LEN => Ok(GsiPacket { source_qpn: deth.source_qpn(), psn: header.psn(), mad }),
        _ => Err(WireError::PayloadLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icrc;

    fn addresses() -> Addresses {
        let parse = |text: &str| text.parse().expect("an address");
        Addresses::new(parse("10.0.0.1:49152"), parse("10.0.0.2:4791")).expect("both IPv4")
    }

    fn sample() -> [u8; DATAGRAM_LEN] {
        GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(7), mad: &[0x5a; MAD_LEN] }.encode(&addresses())
    }

    #[test]
    fn headers_golden_and_back() {
        let datagram = sample();
        let expected = [
            0x64, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x07, // BTH
            0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, // DETH
        ];
        assert_eq!(datagram[..HEADERS_LEN], expected);
        assert_eq!(datagram.len(), 280);
        assert!(icrc::verify(&addresses(), &datagram));
        let packet = decode(&datagram).expect("a management datagram");
        assert_eq!(packet, GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(7), mad: &[0x5a; MAD_LEN] });
        assert!(is_gsi(&datagram));
    }

    #[test]
    fn each_check_has_its_error() {
        let broken = |at: usize, value: u8| {
            let mut datagram = sample();
            datagram[at] = value;
            decode(&datagram).err()
        };
        assert_eq!(broken(0, 0x65), Some(WireError::Opcode));
        assert_eq!(broken(1, 0x01), Some(WireError::Version));
        assert_eq!(broken(1, 0x10), Some(WireError::Padding));
        assert_eq!(broken(2, 0x7f), Some(WireError::PartitionKey));
        assert_eq!(broken(7, 2), Some(WireError::Destination));
        assert_eq!(broken(12, 0), Some(WireError::QueueKey));
        let datagram = sample();
        assert_eq!(decode(&datagram[..11]).err(), Some(WireError::Short));
        assert_eq!(decode(&datagram[..19]).err(), Some(WireError::Short));
        assert_eq!(decode(&datagram[..DATAGRAM_LEN - 1]).err(), Some(WireError::PayloadLength));
        assert_eq!(decode(&[&datagram[..], &[0]].concat()).err(), Some(WireError::PayloadLength));
    }
}
