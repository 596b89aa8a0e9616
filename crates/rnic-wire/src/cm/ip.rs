//! The IP addressing header: the first 36 bytes of the private data of a REQ for a port's service, which identify the
//! requester by IP address and port.
//!
//! Source: InfiniBand Architecture volume 1, annex A11 (RDMA IP connection management service). RDMA connection
//! managers fill it in and reject a REQ without it.
//!
//! ```text
//!   0 major version (4) 0, minor version (4) 0   1 IP version (4), reserved (4)   2 source port
//!   4 source IP, 16 bytes (IPv4 in the last four)   20 destination IP, likewise   36 the application's 56 bytes
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::field::PrivateData;
use crate::bytes::{array, be16, put};

/// Content of the IP addressing header. It is followed by the application's bytes: 56 in a REQ, 180 in a SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpHeader {
    /// Source port of the request.
    pub source_port: u16,
    /// Source IP address of the request.
    pub source: IpAddr,
    /// Destination IP address of the request; of the same IP version as the source.
    pub destination: IpAddr,
}

impl IpHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 36;

    /// Splits private data into this header and the application's data; returns `None` when the version or the IP
    /// version is not a known one, or the data are too short.
    #[must_use]
    pub fn split(data: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = data.split_first_chunk::<{ Self::LEN }>()?;
        let (source, destination): ([u8; 16], [u8; 16]) = (array(bytes, 4), array(bytes, 20));
        let ip: fn([u8; 16]) -> IpAddr = match (bytes[0], bytes[1] >> 4) {
            (VERSION, 4) => |[.., a, b, c, d]| Ipv4Addr::new(a, b, c, d).into(),
            (VERSION, 6) => |octets| Ipv6Addr::from(octets).into(),
            _ => return None,
        };
        Some((Self { source_port: be16(bytes, 2), source: ip(source), destination: ip(destination) }, rest))
    }

    /// Returns private data: this header, followed by `data`; `None` when this is longer than `TOTAL` bytes, or when
    /// the two addresses are of different IP versions.
    #[must_use]
    pub fn join<const TOTAL: usize>(&self, data: &[u8]) -> Option<PrivateData<TOTAL>> {
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)).to_be_bytes(),
            IpAddr::V6(ip) => ip.octets(),
        };
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return None;
        }
        let mut bytes = [0; TOTAL];
        bytes.get_mut(Self::LEN..)?.get_mut(..data.len())?.copy_from_slice(data);
        bytes[0] = VERSION;
        bytes[1] = if self.source.is_ipv4() { 4 << 4 } else { 6 << 4 };
        put(&mut bytes, 2, self.source_port.to_be_bytes());
        put(&mut bytes, 4, octets(self.source));
        put(&mut bytes, 20, octets(self.destination));
        Some(PrivateData(bytes))
    }
}

/// The IP addressing header in a REQ, and the application's data that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpRequest {
    /// Source port of the request.
    pub source_port: u16,
    /// Source IP address of the request.
    pub source: IpAddr,
    /// Destination IP address of the request; of the same IP version as the source.
    pub destination: IpAddr,
    /// Private data from the sending application to the receiving one.
    pub private_data: PrivateData<56>,
}

impl IpRequest {
    /// Parses the private data of a REQ; returns `None` when the version or the IP version is not a known one.
    #[must_use]
    pub fn parse(data: &PrivateData<92>) -> Option<Self> {
        let (IpHeader { source_port, source, destination }, _) = IpHeader::split(&data.0)?;
        Some(Self { source_port, source, destination, private_data: PrivateData(array(&data.0, IpHeader::LEN)) })
    }

    /// Returns the private data of a REQ; `None` when the two addresses are of different IP versions.
    #[must_use]
    pub fn emit(&self) -> Option<PrivateData<92>> {
        let Self { source_port, source, destination, private_data } = *self;
        IpHeader { source_port, source, destination }.join(&private_data.0)
    }
}

const VERSION: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn golden_round_trip() {
        let private_data = PrivateData::new(b"hello").expect("the data fits");
        let request =
            IpRequest { source_port: 0x1234, source: ip("10.1.2.3"), destination: ip("10.4.5.6"), private_data };
        let data = request.emit().expect("both IPv4");
        let mut expected = vec![0x00, 0x40, 0x12, 0x34];
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3]);
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 4, 5, 6]);
        expected.extend_from_slice(b"hello");
        assert_eq!(data.0[..41], expected);
        assert_eq!(IpRequest::parse(&data), Some(request));

        let ipv6_request = IpRequest { source: ip("fd00::1"), destination: ip("fd00::2"), ..request };
        assert_eq!(IpRequest::parse(&ipv6_request.emit().expect("both IPv6")), Some(ipv6_request));

        // The same header at the start of the private data of a SIDR_REQ.
        let header = IpHeader { source_port: 7, source: request.source, destination: request.destination };
        let joined = header.join::<216>(&[5; 180]).expect("header and data fit exactly");
        assert_eq!(IpHeader::split(&joined.0), Some((header, &[5; 180][..])));
        assert_eq!(header.join::<216>(&[5; 181]), None);
        assert_eq!(IpHeader::split(&joined.0[..35]), None);
    }

    #[test]
    fn other_private_data_is_not_an_ip_header() {
        let mut data = PrivateData([0; 92]);
        assert_eq!(IpRequest::parse(&data), None, "no IP version");
        data.0[..2].copy_from_slice(&[0x10, 0x40]);
        assert_eq!(IpRequest::parse(&data), None, "another major version");
        let mixed = IpRequest {
            source_port: 1,
            source: ip("fd00::1"),
            destination: ip("10.0.0.1"),
            private_data: PrivateData::default(),
        };
        assert_eq!(mixed.emit(), None);
    }
}
