//! Captures of the packets of either driver (simulation or sockets), for Wireshark and tshark.
//!
//! The file is nanosecond pcap with Ethernet frames; `pcap-file` writes it. A frame has the content that an OpenRNIC
//! host would send: Ethernet header, IPv4 (identification 0, "don't fragment") or IPv6, UDP with its checksum, the
//! datagram. As in a capture from a sending host there is neither Ethernet padding nor frame check sequence.
//!
//! Times are those of the driver's clock, so that a capture of a simulation starts near the epoch; picoseconds are
//! truncated to nanoseconds.
#![expect(
    clippy::disallowed_types,
    reason = "pcap-file represents a timestamp as the standard library's duration; no clock is read"
)]

use std::borrow::Cow;
use std::io::Write;

use byteorder::BigEndian;
use pcap_file::pcap::{PcapHeader, PcapPacket};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use core::net::IpAddr;
use core::time::Duration as Timestamp;

use rnic_base::Time;

use crate::net::{self, Addresses, ETHERNET_LEN, IPV4_CHECKSUM_AT, IpFields, PROTOCOL_UDP, UDP_CHECKSUM_AT, UDP_LEN};

/// Writer of a capture.
#[derive(Debug)]
pub struct Capture<W: Write> {
    output: W,
    frame: Vec<u8>,
    /// Record as encoded by `pcap-file`, field by field, before it is written in one call, so that the output has,
    /// during the run and after an abort, no partial record.
    record: Vec<u8>,
}

/// Reason why a capture could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file, pipe or socket of the capture failed.
    #[error("cannot write the capture: {}", reason(.0))]
    Output(#[from] PcapError),
    /// The length exceeds that of any UDP datagram.
    #[error("a datagram of {bytes} bytes exceeds the maximum length of a UDP datagram")]
    TooLong {
        /// Length of the datagram in bytes.
        bytes: usize,
    },
}

/// Returns the operating system's error, because `pcap-file` reports every file error as "reading bytes".
fn reason(error: &PcapError) -> &dyn core::fmt::Display {
    match error {
        PcapError::IoError(error) => error,
        error => error,
    }
}

impl<W: Write> Capture<W> {
    /// Starts a capture on `output`, which should be buffered. The file header and each packet are written completely
    /// in one call.
    ///
    /// # Errors
    /// [`CaptureError::Output`] when the file header cannot be written.
    pub fn new(output: W) -> Result<Self, CaptureError> {
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            endianness: Endianness::Big,
            ts_resolution: TsResolution::NanoSecond,
            snaplen: FRAME_MAX,
            ..PcapHeader::default()
        };
        let mut capture = Self { output, frame: Vec::new(), record: Vec::new() };
        header.write_to(&mut capture.record)?;
        capture.write_buffered()?;
        Ok(capture)
    }

    fn write_buffered(&mut self) -> Result<(), PcapError> {
        let result = self.output.write_all(&self.record);
        self.record.clear();
        result.map_err(PcapError::IoError)
    }

    /// Adds the datagram that was on the wire at `time`, with ordinary IP fields.
    ///
    /// # Errors
    /// [`CaptureError`] when it is too long for IP or cannot be written.
    pub fn write(&mut self, time: Time, addresses: &Addresses, datagram: &[u8]) -> Result<(), CaptureError> {
        self.write_with(time, addresses, IpFields::default(), datagram)
    }

    /// Like [`Capture::write`], with the IP fields that the packet had on the wire: a congestion mark, a hop limit.
    ///
    /// # Errors
    /// As for [`Capture::write`].
    pub fn write_with(
        &mut self,
        time: Time,
        addresses: &Addresses,
        fields: IpFields,
        datagram: &[u8],
    ) -> Result<(), CaptureError> {
        if datagram.len() > net::UDP_PAYLOAD_MAX as usize {
            return Err(CaptureError::TooLong { bytes: datagram.len() });
        }
        self.frame.clear();
        write_frame(addresses, fields, datagram, &mut self.frame);
        let packet = PcapPacket {
            timestamp: timestamp(time),
            orig_len: self.frame.len() as u32,
            data: Cow::Borrowed(&self.frame),
        };
        packet.write_to::<_, BigEndian>(&mut self.record, TsResolution::NanoSecond, FRAME_MAX)?;
        Ok(self.write_buffered()?)
    }

    /// Returns the output, so that the caller can close it and handle its errors.
    pub fn into_inner(self) -> W {
        self.output
    }
}

/// Appends the Ethernet frame around `datagram` to `out`, without padding and frame check sequence.
///
/// # Panics
/// When the datagram is longer than [`net::UDP_PAYLOAD_MAX`].
pub fn write_frame(addresses: &Addresses, fields: IpFields, datagram: &[u8], out: &mut Vec<u8>) {
    let mut headers = [0; net::IP_UDP_MAX];
    let len = net::write_ip_udp(addresses, fields, datagram.len() as u32, &mut headers);
    let udp_at = len - UDP_LEN as usize;
    let (src, dst) = (addresses.src().ip(), addresses.dst().ip());
    if addresses.src().is_ipv4() {
        let checksum = Checksum::default().add(&headers[..udp_at]).finish();
        headers[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].copy_from_slice(&checksum);
    }
    let pseudo = Checksum::default().add_ip(src).add_ip(dst).add(&[0, PROTOCOL_UDP]);
    let udp_len = (UDP_LEN as usize + datagram.len()) as u16;
    let checksum = match pseudo.add(&udp_len.to_be_bytes()).add(&headers[udp_at..len]).add(datagram).finish() {
        [0, 0] => [0xff; 2], // zero means "none" in UDP
        checksum => checksum,
    };
    headers[udp_at + UDP_CHECKSUM_AT..udp_at + UDP_CHECKSUM_AT + 2].copy_from_slice(&checksum);

    out.reserve(ETHERNET_LEN as usize + len + datagram.len());
    out.extend_from_slice(&mac(dst));
    out.extend_from_slice(&mac(src));
    out.extend_from_slice(if addresses.src().is_ipv4() { &ETHERTYPE_IPV4 } else { &ETHERTYPE_IPV6 });
    out.extend_from_slice(&headers[..len]);
    out.extend_from_slice(datagram);
}

/// Returns a locally administered Ethernet address made of the last four bytes of the IP address: one per host, and
/// easy to read.
fn mac(ip: IpAddr) -> [u8; 6] {
    let [.., a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    [0x02, 0x00, a, b, c, d]
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_nanos(time.since(Time::ZERO).as_ns())
}

/// Internet checksum (RFC 1071) in computation.
#[derive(Clone, Copy, Default)]
struct Checksum(u64);

impl Checksum {
    /// Adds `bytes`, which start at an even offset; when their number is odd, the last one counts as the high byte of
    /// a word.
    fn add(self, bytes: &[u8]) -> Self {
        let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)));
        Self(self.0 + words.sum::<u64>())
    }

    fn add_ip(self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.add(&ip.octets()),
            IpAddr::V6(ip) => self.add(&ip.octets()),
        }
    }

    fn finish(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!sum as u16).to_be_bytes()
    }
}

/// Largest frame length in bytes: the file header states it as snapshot length, because no frame is truncated.
const FRAME_MAX: u32 = ETHERNET_LEN + net::IPV6_LEN + UDP_LEN + net::UDP_PAYLOAD_MAX;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icrc;
    use pcap_file::pcap::PcapReader;

    fn addresses(src: &str, dst: &str) -> Addresses {
        Addresses::new(src.parse().expect("an address"), dst.parse().expect("an address")).expect("one IP version")
    }

    /// The congestion notification packet in `icrc/tests.rs`, whose checksum an adapter computed.
    #[test]
    fn ipv4_checksum_matches_an_adapters() {
        let fields = IpFields { traffic_class: 0xc2, identification: 0x718c, ..IpFields::default() };
        let mut frame = Vec::new();
        write_frame(&addresses("10.0.17.1:0", "10.0.18.1:4791"), fields, &[0; 32], &mut frame);
        assert_eq!(frame[..12], [0x02, 0, 10, 0, 18, 1, 0x02, 0, 10, 0, 17, 1]);
        assert_eq!(
            frame[12..34],
            [
                0x08, 0x00, 0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 10, 0, 17, 1, 10,
                0, 18, 1
            ]
        );
    }

    /// Records the length of each write.
    #[derive(Default)]
    struct WriteLengths(Vec<usize>);

    impl Write for WriteLengths {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn header_and_packets_are_each_one_write() {
        let mut capture = Capture::new(WriteLengths::default()).expect("writes to memory succeed");
        let path = addresses("10.1.2.3:49152", "10.4.5.6:4791");
        (0..3).for_each(|_| capture.write(Time::ZERO, &path, &[7; 100]).expect("writes to memory succeed"));
        assert_eq!(capture.into_inner().0, [24, 158, 158, 158]);
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut capture = Capture::new(Vec::new()).expect("writes to memory succeed");
        let paths = [addresses("10.1.2.3:49152", "10.4.5.6:4791"), addresses("[fd00::1]:49152", "[fd00::2]:4791")];
        for (index, path) in paths.iter().enumerate() {
            let mut datagram = vec![0x04, 0x40, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, index as u8, 1, 2, 3, 4];
            let icrc = icrc::Icrc::new(path, 20, &datagram).finish();
            datagram.extend_from_slice(&icrc);
            let time = Time::from_ps(1_000_000_000_999 + index as u64 * 1_000);
            capture.write(time, path, &datagram).expect("writes to memory succeed");
        }
        let file = capture.into_inner();
        let mut reader = PcapReader::new(&file[..]).expect("a pcap header");
        assert_eq!(reader.header().ts_resolution, TsResolution::NanoSecond);
        for (index, ip_len) in [20, 40].into_iter().enumerate() {
            let packet = reader.next_packet().expect("another packet").expect("a whole packet");
            assert_eq!(packet.timestamp.as_nanos(), 1_000_000_000 + index as u128);
            assert_eq!((packet.orig_len as usize, packet.data.len()), (14 + ip_len + 28, 14 + ip_len + 28));
            assert!(icrc::verify_ip_packet(&packet.data[14..]));
        }
        assert!(reader.next_packet().is_none());
    }

    #[test]
    fn too_long_is_an_error_not_a_panic() {
        let mut capture = Capture::new(Vec::new()).expect("writes to memory succeed");
        let path = addresses("10.1.2.3:49152", "10.4.5.6:4791");
        let error = capture.write(Time::ZERO, &path, &vec![0; 65_508]).expect_err("one byte too many");
        assert_eq!(error.to_string(), "a datagram of 65508 bytes exceeds the maximum length of a UDP datagram");
        capture.write(Time::ZERO, &path, &vec![0; 65_507]).expect("the longest datagram is written");
    }

    #[test]
    fn checksum_of_an_odd_number_of_bytes() {
        // RFC 1071's example words 0001 f203 f4f5 f6f7 sum to ddf2; one byte fewer leaves f600 as the last word.
        assert_eq!(Checksum::default().add(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]).finish(), [!0xdd, !0xf2]);
        assert_eq!(Checksum::default().add(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6]).finish(), [!0xdc, !0xfb]);
    }
}
