//! The sockets of a NIC that has its own UDP port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::net::UDP_PORT;

use crate::config::NicConfig;
use crate::error::NicError;
use crate::link::lane::Lane;
use crate::ports::{PORT_CLASSES, draw_port};
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
            // Real adapters send their packets to this port only.
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

/// Finds a free port: preferably one for many queue pairs, otherwise one for fewer, and preferably outside of the
/// kernel's ephemeral range. Round ports are used last: a program that wants to use port 20000, for example, should
/// not find it taken by a device.
fn choose_port(config: &NicConfig, random: &mut SecretStream) -> Result<(u16, UdpSocket), NicError> {
    for attempt in 0..PORT_CLASSES * TRIES_PER_CLASS {
        let Some(port) = draw_port(attempt / TRIES_PER_CLASS, random) else { continue };
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
    let result = receiver(config, IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    !result.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn receiver(config: &NicConfig, ip: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, port);
    let (receive, send) = (config.receive_buffer_bytes, config.send_buffer_bytes);
    UdpSocket::open(&SocketOptions::at(bind, receive, send, config.receive_offload))
}

/// Opens the socket from which packets are sent. If peers are real adapters, it also receives their packets and
/// cannot be shared.
fn source(config: &NicConfig, ip: IpAddr) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, UDP_PORT);
    let receives = config.real_roce_peers;
    let marks_congestion = receives && config.marks_congestion;
    let receive = if receives { config.receive_buffer_bytes } else { SEND_ONLY_BUFFER_BYTES };
    let options = SocketOptions::at(bind, receive, config.send_buffer_bytes, receives && config.receive_offload);
    // Packets sent over IPv6 have a UDP checksum: adapters omit it in their own packets but accept one, and the
    // kernel does not segment trains without it.
    UdpSocket::open(&SocketOptions {
        shares_port: !receives,
        takes_no_checksum: receives,
        marks_congestion,
        reports_ecn: receives,
        drops_all_input: !receives,
        ..options
    })
}

/// Number of random ports that are tried in each category: if half of all ports are in use, the probability of
/// finding no free port of the first category is one in 2^256.
const TRIES_PER_CLASS: u32 = 256;

/// Buffer of a socket that receives no packets, in bytes: it needs space for reported errors only.
const SEND_ONLY_BUFFER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{is_port_of_nic, queue_pairs_of};
    use crate::secrets::Secrets;

    #[test]
    fn chosen_ports_are_free_and_of_the_class_with_most_queue_pairs() {
        let config = NicConfig::shared();
        let mut random = Secrets::of_seed(7).stream("ports");
        let mut chosen = Vec::new();
        for _ in 0..300 {
            let (port, socket) = choose_port(&config, &mut random).expect("there are many");
            assert!(is_port_of_nic(port) && queue_pairs_of(port) == 16_384 && port % 1_000 > 0, "{port}");
            chosen.push((port, socket));
        }
        chosen.sort_by_key(|(port, _)| *port);
        chosen.dedup_by_key(|(port, _)| *port);
        assert_eq!(chosen.len(), 300, "a port was chosen twice");
    }
}
