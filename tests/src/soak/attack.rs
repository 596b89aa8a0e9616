//! Attacks by another user of a machine on NICs whose ports and names it knows: packets that are nearly valid,
//! unsolicited messages on the control socket, names that are occupied, clients that send nothing.
//!
//! Each type of attack alone is tested in `crates/rnic-host/tests/attacks.rs`; here all of them are run against NICs
//! under load.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::{RandomStream, RandomStreams};

/// Attacks `targets` for the duration `time`.
pub(super) fn run(time: Duration, targets: &[String]) {
    let names: Vec<Name> = targets.iter().filter_map(|target| named(target.strip_prefix('@')?)).collect();
    let addresses: Vec<SocketAddr> = targets.iter().filter_map(|target| target.parse().ok()).collect();
    let mut random = RandomStreams::new(u64::from(std::process::id())).stream("attack");
    let occupied: Vec<UnixDatagram> = addresses.iter().flat_map(|address| occupy_names(address.port())).collect();
    let unbound = UnixDatagram::unbound();
    // The kernel may reject packets to addresses that it considers networks; all other operations may fail, too.
    let packets = UdpSocket::bind("0.0.0.0:0");
    let mut silent: Vec<UnixStream> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..PACKETS_PER_ITERATION {
            for address in &addresses {
                let packet = packet(&mut random);
                let _ = packets.as_ref().map(|socket| socket.send_to(&packet, address));
            }
        }
        for name in &names {
            let datagram = random_bytes(&mut random, 96);
            if let Ok(socket) = &unbound {
                let _ = socket.set_nonblocking(true);
                let _ = socket.send_to_addr(&datagram, name);
            }
            if silent.len() < SILENT_MAX {
                silent.extend(UnixStream::connect_addr(name));
            }
        }
        thread::sleep(ITERATION_PAUSE);
    }
    drop(occupied);
}

fn named(name: &str) -> Option<Name> {
    Name::from_abstract_name(name).ok()
}

/// Binds the names of the control sockets of a NIC at `port`, as far as they are free.
fn occupy_names(port: u16) -> Vec<UnixDatagram> {
    let names = [format!("rnic-wire-{port}"), format!("rnic-wire-{port}.1"), format!("rnic-wire-{port}.2")];
    names.iter().filter_map(|name| UnixDatagram::bind_addr(&named(name)?).ok()).collect()
}

/// Returns a packet: random bytes, one with a RoCE header for some queue pair or for the management one, or one that
/// starts like a Falcon packet.
fn packet(random: &mut RandomStream) -> Vec<u8> {
    let len = random.between(0, 1_400) as usize;
    let mut bytes = random_bytes(random, len);
    match random.below(4) {
        0 => {}
        kind @ (1 | 2) if len >= 20 => {
            let queue_pair = if kind == 1 { random.below(1 << 24) as u32 } else { 1 };
            bytes[0] = random.below(0x20) as u8;
            bytes[1] = 0x40;
            bytes[2..4].copy_from_slice(&[0xff, 0xff]);
            bytes[4..8].copy_from_slice(&queue_pair.to_be_bytes());
            // The well-known Q_Key of QP1 (GSI).
            bytes[12..16].copy_from_slice(&0x8001_0000_u32.to_be_bytes());
        }
        _ if len > 0 => bytes[0] = 0x10 | (random.below(16) as u8),
        _ => {}
    }
    bytes
}

fn random_bytes(random: &mut RandomStream, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.bits() as u8).collect()
}

/// Packets per iteration and address: about 3000 packets per second to each address.
const PACKETS_PER_ITERATION: usize = 16;
const ITERATION_PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of connected clients that send nothing.
const SILENT_MAX: usize = 200;

/// Returns the UDP ports and abstract socket names of the process `id` that another user can find; its machine is
/// `host`.
pub(super) fn targets_of(id: u32, host: &str) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| Some(fs::read_link(file.path()).ok()?.to_string_lossy().into_owned()));
    let inodes: Vec<String> =
        links.filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let table = |name: &str| fs::read_to_string(format!("/proc/{id}/net/{name}")).unwrap_or_default();
    let mut targets = Vec::new();
    for name in ["udp", "udp6"] {
        let table = table(name);
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
        let own = rows.filter(|row| row.get(9).is_some_and(|inode| inodes.iter().any(|own| own == inode)));
        let ports = own.filter_map(|row| u16::from_str_radix(row.get(1)?.rsplit(':').next()?, 16).ok());
        targets.extend(ports.map(|port| format!("{host}:{port}")));
    }
    let table = table("unix");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let own = rows.filter(|row| row.get(6).is_some_and(|inode| inodes.iter().any(|own| own == inode)));
    targets
        .extend(own.filter_map(|row| row.get(7).filter(|name| name.starts_with('@')).map(|name| (*name).to_owned())));
    targets
}
