//! Length of a packet on the wire, computed without encoding it, because the fabric needs it for every packet.

use crate::header::{
    aeth, atomic_ack_eth, atomic_eth, bth, cnp, deth, fasr, ieth, immdt, irn, placement, reth, xrceth,
};
use crate::net::{self, IpVersion};
use crate::packet::{Format, Headers, Packet, SendTail};

/// Length of the invariant CRC at the end of every packet, in bytes.
pub const ICRC_LEN: usize = 4;

/// Maximum length of a packet's headers in bytes: that of an atomic request in [`Format::Fasr`].
pub const HEADERS_MAX: usize = bth::LEN + atomic_eth::LEN + irn::WQE_SN_LEN + fasr::EXPECTED_PSN_LEN;

/// Maximum length of the headers of a packet with payload, in bytes, plus eight bytes in reserve. The payload that
/// fits on a path is computed from this: both ends must get the same result, so the value stays the same when the
/// headers of a packet without payload grow.
pub const DATA_HEADERS_MAX: usize = bth::LEN + reth::LEN + immdt::LEN + irn::WQE_SN_LEN + 8;

const _: () = assert!(HEADERS_MAX >= bth::LEN + reth::LEN + immdt::LEN + irn::WQE_SN_LEN);
const _: () = assert!(DATA_HEADERS_MAX >= bth::LEN + aeth::LEN + fasr::ADDRESS_LEN && DATA_HEADERS_MAX <= HEADERS_MAX);
const _: () = assert!(HEADERS_MAX >= bth::LEN + cnp::LEN);
const _: () = assert!(placement::LEN_MAX <= atomic_eth::LEN);
const _: () = assert!(irn::SACK_LEN == fasr::LOSS_REPORT_LEN);
const _: () = assert!(irn::PULL_LEN == aeth::LEN + irn::SACK_LEN);

impl Packet {
    /// Returns the length of the base and extended transport headers in bytes. For a packet that `format` can
    /// represent, this is the length written by [`crate::codec::encode_headers`]; for another, the fields that are
    /// present are counted.
    #[inline]
    pub const fn headers_len(&self, format: Format) -> u32 {
        let extended = format.allows_independent_placement();
        let shared = len_if(self.headers.srqn().is_some(), xrceth::LEN);
        let extended = match &self.headers.unshared() {
            Headers::Send { tail, placement, .. } => {
                let tail = match tail {
                    SendTail::Plain => 0,
                    SendTail::Immediate(_) => immdt::LEN,
                    SendTail::Invalidate(_) => ieth::LEN,
                };
                tail + len_if(placement.is_some(), irn::PLACEMENT_LEN)
            }
            Headers::Write { position, reth, immediate, recv_sn } => {
                let short = matches!(format, Format::Fasr) && fasr::is_short(*position, immediate.is_some());
                len_if(reth.is_some(), if short { fasr::ADDRESS_LEN } else { reth::LEN })
                    + len_if(immediate.is_some(), immdt::LEN)
                    + len_if(recv_sn.is_some(), irn::WQE_SN_LEN)
            }
            Headers::ReadRequest { read_sn, fasr, .. } => {
                reth::LEN
                    + len_if(read_sn.is_some(), irn::WQE_SN_LEN)
                    + len_if(fasr.is_some(), fasr::FASR_READ_FIELDS_LEN)
            }
            Headers::ReadResponse { aeth, sink, .. } => {
                len_if(aeth.is_some(), aeth::LEN) + len_if(sink.is_some(), fasr::ADDRESS_LEN)
            }
            Headers::AtomicRequest { read_sn, .. } => {
                let expected_psn = matches!(format, Format::Fasr);
                atomic_eth::LEN
                    + len_if(read_sn.is_some(), irn::WQE_SN_LEN)
                    + len_if(expected_psn, fasr::EXPECTED_PSN_LEN)
            }
            Headers::PlacementRequest { op, read_sn, .. } => {
                let expected_psn = matches!(format, Format::Fasr);
                placement::len(op)
                    + len_if(read_sn.is_some(), irn::WQE_SN_LEN)
                    + len_if(expected_psn, fasr::EXPECTED_PSN_LEN)
            }
            Headers::AtomicResponse { sink, .. } => {
                aeth::LEN + atomic_ack_eth::LEN + len_if(sink.is_some(), fasr::ADDRESS_LEN)
            }
            Headers::Ack { .. } | Headers::ReadAck { .. } => aeth::LEN + len_if(extended, irn::SACK_LEN),
            Headers::LossAck { .. } => aeth::LEN + fasr::LOSS_REPORT_LEN,
            Headers::TrimNack { .. } => aeth::LEN + irn::SACK_LEN,
            Headers::Pull { .. } => irn::PULL_LEN,
            Headers::Datagram { immediate, .. } => deth::LEN + len_if(immediate.is_some(), immdt::LEN),
            Headers::Cnp => cnp::LEN,
            Headers::SharedSend { .. } | Headers::SharedWrite { .. } => 0,
        };
        (bth::LEN + shared + extended) as u32
    }

    /// Returns the number of padding bytes that extend the payload to a multiple of four.
    #[inline]
    pub const fn pad_len(&self) -> u32 {
        self.payload_len.wrapping_neg() & 3
    }

    /// Returns the length of the UDP payload in bytes: base transport header through ICRC.
    #[inline]
    pub const fn udp_payload_len(&self, format: Format) -> u32 {
        self.headers_len(format) + self.payload_len + self.pad_len() + ICRC_LEN as u32
    }

    /// Returns the length of the Ethernet frame in bytes, header to frame check sequence; see [`net::frame_len`].
    #[inline]
    pub const fn frame_len(&self, format: Format, ip: IpVersion) -> u32 {
        net::frame_len(ip, self.udp_payload_len(format))
    }

    /// Returns the number of byte times for which the packet occupies a link; see [`net::link_len`].
    #[inline]
    pub const fn link_len(&self, format: Format, ip: IpVersion) -> u32 {
        net::link_len(ip, self.udp_payload_len(format))
    }
}

#[inline]
const fn len_if(present: bool, len: usize) -> usize {
    if present { len } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{PacketFlags, Position, Qpn, Reth, SendPlacement, Sink, WqeSn};
    use rnic_base::{Psn, Serial};

    fn packet(payload_len: u32, headers: Headers) -> Packet {
        Packet { dest_qpn: Qpn::new(2), psn: Psn::new(3), flags: PacketFlags::default(), payload_len, headers }
    }

    #[test]
    fn irn_header_overhead_matches_the_paper() {
        // Section 6.3: 16 bytes more on a Write packet that had no RETH, 6 bytes more on a Send packet.
        let write =
            |reth| packet(1024, Headers::Write { position: Position::Middle, reth, immediate: None, recv_sn: None });
        let (roce, irn) = (write(None), write(Some(Reth::default())));
        assert_eq!(roce.udp_payload_len(Format::RoceV2), 12 + 1024 + 4);
        assert_eq!(irn.udp_payload_len(Format::Irn), roce.udp_payload_len(Format::RoceV2) + 16);

        let send =
            |placement| packet(1024, Headers::Send { position: Position::Only, tail: SendTail::Plain, placement });
        let (roce, irn) = (send(None), send(Some(SendPlacement { recv_sn: WqeSn::new(0), offset: Serial::new(0) })));
        assert_eq!(irn.udp_payload_len(Format::Irn), roce.udp_payload_len(Format::RoceV2) + 6);
    }

    /// Header overhead of FaSR (FaSR mechanism R-20 and R-R17; paper, section IV-D: 6 to 14 bytes, 0.58 % to 1.3 %
    /// less goodput at 1024 bytes). A Send has 6 additional bytes. A later packet of a Write has 12: the paper's 8, and
    /// 4 for an R_Key that OpenRNIC adds. A packet with both a placement and an address would have 14.
    #[test]
    fn r20_fasr_header_overhead_matches_the_paper() {
        let goodput_loss = |extra_bytes: u32| 10_000 * extra_bytes / (1_024 + extra_bytes);
        assert_eq!((goodput_loss(6), goodput_loss(14)), (58, 134), "hundredths of a per cent: 0.58 and 1.3");
        let write = |position, reth| packet(1024, Headers::Write { position, reth, immediate: None, recv_sn: None });
        let send =
            |placement| packet(1024, Headers::Send { position: Position::Middle, tail: SendTail::Plain, placement });
        let placement = Some(SendPlacement { recv_sn: WqeSn::new(0), offset: Serial::new(0) });
        let reth = Some(Reth::default());
        let extra_bytes =
            |fasr: Packet, roce: Packet| fasr.udp_payload_len(Format::Fasr) - roce.udp_payload_len(Format::RoceV2);
        assert_eq!(extra_bytes(send(placement), send(None)), 6);
        assert_eq!(extra_bytes(write(Position::Middle, reth), write(Position::Middle, None)), 12);
        assert_eq!(extra_bytes(write(Position::First, reth), write(Position::First, reth)), 0);
        let response = |position, sink| packet(1024, Headers::ReadResponse { position, aeth: None, sink });
        let sink = Some(Sink { read_sn: WqeSn::new(0), offset: 0 });
        assert_eq!(extra_bytes(response(Position::Middle, sink), response(Position::Middle, None)), 12);
        let write_stream_loss = goodput_loss(12);
        assert!((58..=134).contains(&write_stream_loss), "{write_stream_loss}");
    }

    #[test]
    fn payload_is_padded_to_words() {
        let send =
            |len| packet(len, Headers::Send { position: Position::Only, tail: SendTail::Plain, placement: None });
        let lengths: Vec<u32> = (0..6).map(|len| send(len).udp_payload_len(Format::RoceV2)).collect();
        assert_eq!(lengths, [16, 20, 20, 20, 20, 24]);
    }

    #[test]
    fn full_size_write_frame() {
        let headers =
            Headers::Write { position: Position::Only, reth: Some(Reth::default()), immediate: None, recv_sn: None };
        let packet = packet(1024, headers);
        // Ethernet 14 + 4, IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4.
        assert_eq!(packet.frame_len(Format::RoceV2, IpVersion::V4), 1024 + 78);
        assert_eq!(packet.link_len(Format::RoceV2, IpVersion::V4), 1024 + 78 + 20);
        assert_eq!(packet.frame_len(Format::RoceV2, IpVersion::V6), 1024 + 98);
    }
}
