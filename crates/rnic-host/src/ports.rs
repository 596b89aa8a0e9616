//! Which queue pair lives on which UDP port, when several NICs share one machine.
//!
//! A NIC receives on a UDP port of its own, a multiple of 16. Its queue pair numbers are `port / 16` in the upper 12
//! bits and 12 random bits below, so who knows a number knows the port: programs exchange addresses and numbers only.
//! Packets leave from port 4791, which all NICs of a user share, so that captures show them as RoCEv2.
//! ARCHITECTURE.md, section "Under unmodified programs", says what else was looked at.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::Qpn;
use rnic_wire::net::UDP_PORT;

use crate::config::NicConfig;
use crate::link::lane::Lane;
use crate::secrets::SecretStream;
use crate::sys::{SocketOptions, UdpSocket};

/// The UDP port that a queue pair lives on.
#[inline]
pub(crate) fn port_of(qpn: Qpn) -> u16 {
    // 24 bits of number: 12 bits of port.
    ((qpn.get() >> INDEX_BITS) << PORT_SHIFT) as u16
}

/// The queue pair number that lives on `port` and has `index` below.
pub(crate) fn number_on(port: u16, index: u32) -> Qpn {
    Qpn::new(u32::from(port >> PORT_SHIFT) << INDEX_BITS | index & (QUEUE_PAIRS_OF_PORT - 1))
}

/// Whether `port` is one that NICs choose for their own.
pub(crate) fn is_port_of_nic(port: u16) -> bool {
    port.is_multiple_of(1 << PORT_SHIFT) && u32::from(port) >= LOWEST_STEP << PORT_SHIFT
}

/// Opens the sockets of a NIC that has a port of its own: one lane for each IP version that the machine has. Answers
/// with the error that kept packets from leaving from port 4791, if one did.
pub(crate) fn open(config: &NicConfig, random: &mut SecretStream) -> io::Result<(Vec<Lane>, Option<io::Error>)> {
    let (port, first) = choose_port(config, random)?;
    let mut refused = None;
    let mut lanes = Vec::new();
    for socket in [Some(first), receiver(config, IpAddr::V6(Ipv6Addr::UNSPECIFIED), port).ok()].into_iter().flatten() {
        let source = match source(config, socket.local_addr().ip()) {
            Ok(source) => Some(source),
            // Packets of real adapters come there, and nowhere else.
            Err(error) if config.real_roce_peers => return Err(error),
            Err(error) => {
                refused.get_or_insert(error);
                None
            }
        };
        lanes.push(Lane::new(socket, source, config.real_roce_peers));
    }
    Ok((lanes, refused))
}

/// Finds a free port, first where neither the kernel chooses ports for others nor people choose them: a program that
/// wants port 20000 for its connections shall not find a device there.
fn choose_port(config: &NicConfig, random: &mut SecretStream) -> io::Result<(u16, UdpSocket)> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..2 * TRIES {
        let step = LOWEST_STEP + random.below(u64::from(STEPS - LOWEST_STEP)) as u32;
        let port = (step << PORT_SHIFT) as u16;
        if attempt < TRIES && (EPHEMERAL.contains(&port) || port.is_multiple_of(ROUND)) {
            continue;
        }
        match receiver(config, IpAddr::V4(Ipv4Addr::UNSPECIFIED), port) {
            Ok(socket) if is_free_in_ipv6(config, port) => return Ok((port, socket)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Whether nobody has the port in IPv6, or there is none.
fn is_free_in_ipv6(config: &NicConfig, port: u16) -> bool {
    let tried = receiver(config, IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    !tried.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn receiver(config: &NicConfig, ip: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, port);
    let (receive, send) = (config.receive_buffer_bytes, config.send_buffer_bytes);
    UdpSocket::open(&SocketOptions::at(bind, receive, send, config.receive_offload))
}

/// The socket that packets leave from. With real adapters as peers it is the one that theirs come to, and nobody can
/// share that.
fn source(config: &NicConfig, ip: IpAddr) -> io::Result<UdpSocket> {
    let bind = SocketAddr::new(ip, UDP_PORT);
    let hears = config.real_roce_peers;
    let marks_congestion = hears && config.marks_congestion;
    let receive = if hears { config.receive_buffer_bytes } else { DEAF_BUFFER_BYTES };
    let options = SocketOptions::at(bind, receive, config.send_buffer_bytes, hears && config.receive_offload);
    // What we send over IPv6 has a checksum: theirs do without, but take one, and the kernel cuts no trains without.
    UdpSocket::open(&SocketOptions {
        shares_port: !hears,
        takes_no_checksum: hears,
        marks_congestion,
        hears_marks: hears,
        is_deaf: !hears,
        ..options
    })
}

/// Bits of a queue pair number below those that name the port.
const INDEX_BITS: u32 = 12;

/// Queue pairs of a NIC with a port of its own, at most.
pub(crate) const QUEUE_PAIRS_OF_PORT: u32 = 1 << INDEX_BITS;

/// Ports are multiples of 16: 12 bits name one.
const PORT_SHIFT: u32 = 4;
const STEPS: u32 = 1 << 12;

/// The first step that ordinary users may have: port 1024.
const LOWEST_STEP: u32 = 1_024 >> PORT_SHIFT;

/// What the kernel chooses from when a program does not say which port it wants, unless somebody has set it otherwise.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// What ports divide by that people like.
const ROUND: u16 = 1_000;

/// Ports tried at random among the better ones, and then among all: with half of all ports taken, the chance to find
/// none is one in 2^100.
const TRIES: u32 = 256;

/// A socket that hears nothing needs room for reported errors only.
const DEAF_BUFFER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Secrets;

    #[test]
    fn a_number_names_its_port() {
        for (port, index) in [(1_024, 0), (1_040, 4_095), (32_752, 17), (65_520, 4_095)] {
            let number = number_on(port, index);
            assert_eq!(port_of(number), port);
            assert_eq!(number.get() & 0xfff, index);
            assert!(number.get() >= 2, "0 and 1 belong to management");
        }
        assert_eq!(number_on(1_024, 0x1_003), number_on(1_024, 3), "an index does not spill into the port");
    }

    #[test]
    fn ports_are_free_and_outside_of_the_ephemeral_range() {
        let config = NicConfig::shared();
        let mut random = Secrets::of_seed(7).stream("ports");
        let mut held = Vec::new();
        for _ in 0..300 {
            let (port, socket) = choose_port(&config, &mut random).expect("there are many");
            assert!(port >= 1_024 && port % 16 == 0 && port % 1_000 > 0 && !EPHEMERAL.contains(&port), "{port}");
            held.push((port, socket));
        }
        held.sort_by_key(|(port, _)| *port);
        held.dedup_by_key(|(port, _)| *port);
        assert_eq!(held.len(), 300, "each has its own");
    }
}
