//! Network addresses of simulated hosts, as in captures and in the checksums of encoded packets.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use rnic_wire::Addresses;
use rnic_wire::net::UDP_PORT;

/// Returns the addresses of a packet from host `src` to host `dst`: 10.0.0.1 is host 0.
pub(crate) fn addresses(src: u32, dst: u32, source_port: u16) -> Addresses {
    let ip = |host: u32| IpAddr::V4(Ipv4Addr::from_bits(FIRST_HOST_ADDRESS + host));
    let source = SocketAddr::new(ip(src), source_port);
    Addresses::new(source, SocketAddr::new(ip(dst), UDP_PORT)).expect("both addresses are IPv4")
}

const FIRST_HOST_ADDRESS: u32 = 0x0a00_0001;
