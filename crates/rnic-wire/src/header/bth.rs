//! Base transport header (InfiniBand Architecture volume 1, section 9.2): the start of every packet.
//!
//! ```text
//!        0               1               2               3
//!  0  |    opcode     |S|M|Pad| TVer  |             P_Key             |
//!  4  |F|B|  resv8a   |            destination QP                     |
//!  8  |A|   resv7     |                  PSN                          |
//!
//!  S solicited event   M migration state   Pad bytes of padding (0..3)   TVer transport header version
//!  F, B congestion notification forward, backward   A acknowledgement requested
//! ```

use crate::bytes::{be16, be32, put, split};
use crate::error::WireError;
use crate::packet::{PacketFlags, Qpn};
use rnic_base::Psn;

/// Length of the header in bytes.
pub const LEN: usize = 12;

/// The default partition key, the only one used in RoCE networks.
pub const DEFAULT_PARTITION_KEY: u16 = 0xffff;

/// Offset of the byte that routers may change (F, B and resv8a) and that the ICRC therefore excludes.
pub const VARIANT_BYTE: usize = 4;

/// View of a base transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct BthView<'a>(&'a [u8; LEN]);

impl<'a> BthView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the opcode of the packet.
    #[inline]
    pub const fn opcode(self) -> u8 {
        self.0[0]
    }

    /// Returns the migration state bit.
    #[inline]
    pub const fn migrated(self) -> bool {
        self.0[1] & MIGRATED != 0
    }

    /// Returns the number of padding bytes between payload and ICRC, at most 3.
    #[inline]
    pub const fn pad(self) -> u8 {
        self.0[1] >> PAD_SHIFT & 3
    }

    /// Returns the transport header version.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[1] & VERSION
    }

    /// Returns the partition key.
    #[inline]
    pub fn partition_key(self) -> u16 {
        be16(self.0, 2)
    }

    /// Returns the destination queue pair.
    #[inline]
    pub fn dest_qpn(self) -> Qpn {
        Qpn::new(be32(self.0, 4))
    }

    /// Returns the sequence number.
    #[inline]
    pub fn psn(self) -> Psn {
        Psn::new(be32(self.0, 8))
    }

    /// Single-bit fields.
    #[inline]
    pub const fn flags(self) -> PacketFlags {
        PacketFlags {
            solicited: self.0[1] & SOLICITED != 0,
            ack_request: self.0[8] & ACK_REQUEST != 0,
            fecn: self.0[VARIANT_BYTE] & FECN != 0,
            becn: self.0[VARIANT_BYTE] & BECN != 0,
        }
    }
}

/// Content of a base transport header. The partition key is always the default one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// Opcode of the packet.
    pub opcode: u8,
    /// Migration state bit.
    pub migrated: bool,
    /// Number of padding bytes, at most 3.
    pub pad: u8,
    /// Transport header version, at most 15.
    pub version: u8,
    /// Destination queue pair.
    pub dest_qpn: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
    /// Single-bit fields.
    pub flags: PacketFlags,
}

impl Bth {
    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        debug_assert!(self.pad <= 3 && self.version <= VERSION, "{self:?}");
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out[0] = self.opcode;
        out[1] = flag(self.flags.solicited, SOLICITED)
            | flag(self.migrated, MIGRATED)
            | self.pad << PAD_SHIFT
            | self.version;
        put(out, 2, DEFAULT_PARTITION_KEY.to_be_bytes());
        let congestion = flag(self.flags.fecn, FECN) | flag(self.flags.becn, BECN);
        put(out, VARIANT_BYTE, (u32::from(congestion) << 24 | self.dest_qpn.get()).to_be_bytes());
        let ack_request = flag(self.flags.ack_request, ACK_REQUEST);
        put(out, 8, (u32::from(ack_request) << 24 | self.psn.value()).to_be_bytes());
    }
}

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const VERSION: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_bits() {
        let header = Bth {
            opcode: 0x0a,
            migrated: true,
            pad: 3,
            version: 1,
            dest_qpn: Qpn::new(0x12_3456),
            psn: Psn::new(0xab_cdef),
            flags: PacketFlags { solicited: true, ack_request: true, fecn: true, becn: false },
        };
        let mut bytes = [0xee; LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes, [0x0a, 0xf1, 0xff, 0xff, 0x80, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef]);
        let (view, rest) = BthView::split(&bytes).expect("twelve bytes");
        assert!(rest.is_empty());
        assert_eq!((view.opcode(), view.migrated(), view.pad(), view.version()), (0x0a, true, 3, 1));
        assert_eq!((view.partition_key(), view.dest_qpn(), view.psn()), (0xffff, header.dest_qpn, header.psn));
        assert_eq!(view.flags(), header.flags);
    }

    #[test]
    fn each_flag_alone() {
        let (bits, none) = ([0x80, 0x80, 0x80, 0x40], PacketFlags::default());
        let flags = [
            (1, PacketFlags { solicited: true, ..none }),
            (8, PacketFlags { ack_request: true, ..none }),
            (4, PacketFlags { fecn: true, ..none }),
            (4, PacketFlags { becn: true, ..none }),
        ];
        for ((byte, flags), bit) in flags.into_iter().zip(bits) {
            let mut bytes = [0; LEN];
            bytes[byte] = bit;
            let (view, _) = BthView::split(&bytes).expect("twelve bytes");
            assert_eq!(view.flags(), flags);
        }
    }

    #[test]
    fn eleven_bytes_are_too_few() {
        assert_eq!(BthView::split(&[0; LEN - 1]).err(), Some(WireError::Short));
    }
}
