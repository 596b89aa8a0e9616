//! The sockets of a NIC that has its own port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::net::UDP_PORT;

use crate::config::NicConfig;
use crate::error::NicError;
use crate::link::lane::Lane;
use crate::ports::{SORTS, draw_port};
use crate::secrets::SecretStream;
use crate::sys::{SocketOptions, UdpSocket};

/// Opens the sockets of a NIC that has its own port: one lane for each IP version that the machine has. Also returns
/// the error that prevented sending from port 4791, if there was one.
pub(crate) fn open(config: &NicConfig, random: &mut SecretStream) -> Result<(Vec<Lane>, Option<io::Error>), NicError> {
    let (port, first) = choose_port(config, random)?;
    let mut refused = None;
    let mut lanes = Vec::new();
    for socket in [Some(first), receiver(config, IpAddr::V6(Ipv6Addr::UNSPECIFIED), port).ok()].into_iter().flatten() {
        let source = match source(config, socket.local_addr().ip()) {
            Ok(source) => Some(source),
            // Packets of real adapters arrive at this port only.
            Err(error) if config.real_roce_peers => {
                return Err(NicError::opening(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), UDP_PORT), error));
            }
            Err(error) => {
                refused.get_or_insert(error);
                None
            }
        };
        lanes.push(Lane::new(socket, source, config.real_roce_peers));
    }
    Ok((lanes, refused))
}

/// Finds a free port: one for many queue pairs, then one for fewer, first outside of the kernel's ephemeral range.
/// Round ports are used last: a program that wants port 20000 for its connections shall not find a device there.
fn choose_port(config: &NicConfig, random: &mut SecretStream) -> Result<(u16, UdpSocket), NicError> {
    for attempt in 0..SORTS * TRIES {
        let Some(port) = draw_port(attempt / TRIES, random) else { continue };
        match receiver(config, IpAddr::V4(Ipv4Addr::UNSPECIFIED), port) {
            Ok(socket) if is_free_in_ipv6(config, port) => return Ok((port, socket)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(NicError::opening(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), error)),
        }
    }
    Err(NicError::NoPort)
}

/// Returns whether no process uses the port in IPv6, or the machine has no IPv6.
fn is_free_in_ipv6(config: &NicConfig, port: u16) -> bool {
    let tried = receiver(config, IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    !tried.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn receiver(config: &NicConfig, ip: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, port);
    let (receive, send) = (config.receive_buffer_bytes, config.send_buffer_bytes);
    UdpSocket::open(&SocketOptions::at(bind, receive, send, config.receive_offload))
}

/// Opens the socket from which packets are sent. With real adapters as peers their packets arrive on it too, and it
/// cannot be shared.
fn source(config: &NicConfig, ip: IpAddr) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, UDP_PORT);
    let hears = config.real_roce_peers;
    let marks_congestion = hears && config.marks_congestion;
    let receive = if hears { config.receive_buffer_bytes } else { DEAF_BUFFER_BYTES };
    let options = SocketOptions::at(bind, receive, config.send_buffer_bytes, hears && config.receive_offload);
    // Packets sent over IPv6 have a UDP checksum: adapters omit it in theirs but accept one, and the kernel does not
    // segment trains without it.
    UdpSocket::open(&SocketOptions {
        shares_port: !hears,
        takes_no_checksum: hears,
        marks_congestion,
        reports_ecn: hears,
        drops_all_input: !hears,
        ..options
    })
}

/// Number of random ports that are tried among each sort: with half of all in use, the chance to find none of the first
/// sort is one in 2^256.
const TRIES: u32 = 256;

/// Buffer of a socket that receives no packets, in bytes: it needs space for reported errors only.
const DEAF_BUFFER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{is_port_of_nic, queue_pairs_of};
    use crate::secrets::Secrets;

    #[test]
    fn ports_are_free_and_those_for_many_queue_pairs_come_first() {
        let config = NicConfig::shared();
        let mut random = Secrets::of_seed(7).stream("ports");
        let mut held = Vec::new();
        for _ in 0..300 {
            let (port, socket) = choose_port(&config, &mut random).expect("there are many");
            assert!(is_port_of_nic(port) && queue_pairs_of(port) == 16_384 && port % 1_000 > 0, "{port}");
            held.push((port, socket));
        }
        held.sort_by_key(|(port, _)| *port);
        held.dedup_by_key(|(port, _)| *port);
        assert_eq!(held.len(), 300, "each has its own");
    }
}
