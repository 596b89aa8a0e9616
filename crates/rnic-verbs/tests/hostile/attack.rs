//! An attacker on the same machine that sends packets to every UDP port of some processes.
#![expect(unsafe_code, reason = "one option of a socket needs a system call")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rnic_base::Psn;
use rnic_host::observe::{self, Snapshot};
use rnic_wire::cm::ServiceId;
use rnic_wire::{Addresses, Qpn};

use super::packets::{PacketGenerator, Target};
use super::victim::{memory_of, ports_of};

/// Statistics of an attack, and of the processes during it.
#[derive(Default, Debug)]
pub struct Tally {
    pub datagrams: u64,
    pub trains: u64,
    /// The largest number of dropped packets seen at one process.
    pub dropped: u64,
    /// Memory of each process in bytes: some time after the start of the attack, and the maximum.
    pub memory: BTreeMap<u32, (u64, u64)>,
}

/// An attack on two processes.
pub struct Attack<'a> {
    pub seed: u64,
    pub name: &'a str,
    pub pids: [u32; 2],
    /// First sequence numbers of the victims; filled in when the attacker learns them.
    pub sequences: &'a Mutex<Vec<Psn>>,
    /// Port of the victims' service, which the attacker does not request.
    pub service_port: u16,
    /// Binds the socket from which packets are sent.
    pub socket: fn(IpAddr) -> io::Result<UdpSocket>,
}

impl Attack<'_> {
    /// Sends packets until `stop` is set.
    pub fn run(&self, stop: &AtomicBool) -> Tally {
        let mut generator = PacketGenerator::new(self.seed, self.name, ServiceId::for_port(!self.service_port));
        let mut tally = Tally::default();
        let begin = Instant::now();
        let mut sockets = BTreeMap::new();
        while !stop.load(Ordering::Relaxed) {
            let targets = self.find_targets(&mut sockets, begin.elapsed() > WARM_UP, &mut tally);
            let round = Instant::now();
            while round.elapsed() < POLL_INTERVAL && !stop.load(Ordering::Relaxed) {
                for (socket, target) in &targets {
                    let Some(socket) = sockets.get(socket) else { continue };
                    // Most packets go to addresses with a connection, where they can do most damage.
                    for _ in 0..if socket.local_addr().is_ok_and(|from| from.ip().is_loopback()) { 1 } else { 4 } {
                        tally.datagrams += send(&mut generator, socket, target, &mut tally.trains);
                    }
                }
                // The victims need processor time too, and so do other tests.
                std::thread::sleep(ROUND_PAUSE);
            }
        }
        tally
    }

    /// Returns the targets of the attack, each with the local address to send from.
    fn find_targets(
        &self,
        sockets: &mut BTreeMap<IpAddr, UdpSocket>,
        warmed_up: bool,
        tally: &mut Tally,
    ) -> Vec<(IpAddr, Target)> {
        let mut targets = Vec::new();
        let first_psns = self.sequences.lock().expect("no thread panics while it holds the lock").clone();
        for pid in self.pids {
            let memory = memory_of(pid);
            if warmed_up && memory > 0 {
                let (_, most) = tally.memory.entry(pid).or_insert((memory, memory));
                *most = memory.max(*most);
            }
            let snapshots = snapshots(pid);
            let pairs: Vec<_> = snapshots.iter().flat_map(|snapshot| &snapshot.queue_pairs).collect();
            let dropped = snapshots.iter().map(|snapshot| snapshot.counters.packets_dropped).sum();
            tally.dropped = tally.dropped.max(dropped);
            let queue_pairs: Vec<Qpn> = pairs.iter().map(|pair| Qpn::new(pair.number)).collect();
            let sent = pairs.iter().map(|pair| pair.packets_sent).max().unwrap_or(0);
            let sequences: Vec<Psn> = first_psns.iter().map(|first| first.plus(sent as u32)).collect();
            // Both ends are on this machine: a peer's address is the victim's as well.
            let mut hosts: Vec<IpAddr> =
                pairs.iter().filter_map(|pair| Some(pair.peer.parse::<SocketAddr>().ok()?.ip())).collect();
            hosts.extend([IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]);
            hosts.sort();
            hosts.dedup();
            for port in ports_of(pid) {
                for host in &hosts {
                    if !sockets.contains_key(host) {
                        // A machine may be without IPv6.
                        let Ok(socket) = (self.socket)(*host) else { continue };
                        sockets.insert(*host, socket);
                    }
                    let from = sockets[host].local_addr().expect("a bound socket");
                    let path = Addresses::new(from, SocketAddr::new(*host, port)).expect("one IP version");
                    targets
                        .push((*host, Target { path, queue_pairs: queue_pairs.clone(), sequences: sequences.clone() }));
                }
            }
        }
        targets
    }
}

/// Sends a few single datagrams and a train; returns the number of datagrams.
fn send(generator: &mut PacketGenerator, socket: &UdpSocket, target: &Target, trains: &mut u64) -> u64 {
    let mut sent = 0;
    for _ in 0..8 {
        // The kernel may refuse a datagram; the next one is sent instead.
        sent += u64::from(socket.send_to(&generator.datagram(target), target.path.dst()).is_ok());
    }
    let (bytes, segment) = generator.train(target);
    if set_segment_size(socket, segment).is_ok() {
        let was_sent = socket.send_to(&bytes, target.path.dst()).is_ok();
        *trains += u64::from(was_sent);
        sent += if was_sent { bytes.len().div_ceil(segment.into()) as u64 } else { 0 };
        let _ = set_segment_size(socket, 0);
    }
    sent
}

/// Makes the kernel divide what is sent into datagrams of `segment` bytes (udp(7)); 0 switches this off.
fn set_segment_size(socket: &UdpSocket, segment: u16) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment.into())
}

/// Calls setsockopt(2) with a number.
pub fn set_option(socket: &impl AsRawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and the length is that of the option.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the snapshots that the devices of a process provide during the attack.
fn snapshots(pid: u32) -> Vec<Snapshot> {
    let endpoints = observe::endpoints().unwrap_or_default();
    let of_process = endpoints.iter().filter(|endpoint| endpoint.pid == pid);
    of_process.filter_map(|endpoint| observe::fetch(endpoint, Duration::from_secs(1)).ok()).collect()
}

/// Interval at which the attacker searches for targets.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Pause between two rounds of packets to all targets.
const ROUND_PAUSE: Duration = Duration::from_micros(300);
/// Time after which programs have allocated all the memory that they need.
const WARM_UP: Duration = Duration::from_millis(800);
