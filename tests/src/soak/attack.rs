//! The attacks of another user of a machine on NICs whose ports and names it knows: packets that are nearly right,
//! letters that nobody has asked for, names that are taken, clients that say nothing.
//!
//! Each kind alone is tested in `crates/rnic-host/tests/attacks.rs`; here all of them meet NICs that work.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::{RandomStream, RandomStreams};

/// Attacks `targets` for so long.
pub(super) fn run(time: Duration, targets: &[String]) {
    let names: Vec<Name> = targets.iter().filter_map(|target| named(target.strip_prefix('@')?)).collect();
    let addresses: Vec<SocketAddr> = targets.iter().filter_map(|target| target.parse().ok()).collect();
    let mut random = RandomStreams::new(u64::from(std::process::id())).stream("attack");
    let squatted: Vec<UnixDatagram> = addresses.iter().flat_map(|address| squat(address.port())).collect();
    let letters = UnixDatagram::unbound();
    // The kernel takes packets to whole networks for a mistake; everything else may fail, too.
    let packets = UdpSocket::bind("0.0.0.0:0");
    let mut silent: Vec<UnixStream> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..BURST {
            for address in &addresses {
                let packet = packet(&mut random);
                let _ = packets.as_ref().map(|socket| socket.send_to(&packet, address));
            }
        }
        for name in &names {
            let letter = noise(&mut random, 96);
            if let Ok(socket) = &letters {
                let _ = socket.set_nonblocking(true);
                let _ = socket.send_to_addr(&letter, name);
            }
            if silent.len() < SILENT_MAX {
                silent.extend(UnixStream::connect_addr(name));
            }
        }
        thread::sleep(PAUSE);
    }
    drop(squatted);
}

fn named(name: &str) -> Option<Name> {
    Name::from_abstract_name(name).ok()
}

/// The names that letterboxes of a NIC at `port` have, as far as they are free.
fn squat(port: u16) -> Vec<UnixDatagram> {
    let names = [format!("rnic-wire-{port}"), format!("rnic-wire-{port}.1"), format!("rnic-wire-{port}.2")];
    names.iter().filter_map(|name| UnixDatagram::bind_addr(&named(name)?).ok()).collect()
}

/// A packet: noise, one with RoCE's head for some queue pair or for the management one, or one that begins as Falcon's.
fn packet(random: &mut RandomStream) -> Vec<u8> {
    let len = random.between(0, 1_400) as usize;
    let mut bytes = noise(random, len);
    match random.below(4) {
        0 => {}
        kind @ (1 | 2) if len >= 20 => {
            let queue_pair = if kind == 1 { random.below(1 << 24) as u32 } else { 1 };
            bytes[0] = random.below(0x20) as u8;
            bytes[1] = 0x40;
            bytes[2..4].copy_from_slice(&[0xff, 0xff]);
            bytes[4..8].copy_from_slice(&queue_pair.to_be_bytes());
            // A queue key of management.
            bytes[12..16].copy_from_slice(&0x8001_0000_u32.to_be_bytes());
        }
        _ if len > 0 => bytes[0] = 0x10 | (random.below(16) as u8),
        _ => {}
    }
    bytes
}

fn noise(random: &mut RandomStream, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.bits() as u8).collect()
}

/// Some 3000 packets a second to each address.
const BURST: usize = 16;
const PAUSE: Duration = Duration::from_millis(5);
/// Clients that say nothing.
const SILENT_MAX: usize = 200;

/// Returns the ports of UDP and abstract names of the process `id` that another user finds; its machine is `host`.
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
