//! Somebody on the same machine who sends what he likes to every UDP port of some processes.

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

use super::packets::{Aim, Forge};
use super::victim::{memory_of, ports_of};

/// What an attack was, and what was seen meanwhile.
#[derive(Default, Debug)]
pub struct Tally {
    pub datagrams: u64,
    pub trains: u64,
    /// The most that a process was seen to have dropped.
    pub dropped: u64,
    /// Memory of each process, in bytes: when the attack had been going on for a while, and at most.
    pub memory: BTreeMap<u32, (u64, u64)>,
}

/// An attack on processes.
pub struct Attack<'a> {
    pub seed: u64,
    pub name: &'a str,
    pub pids: [u32; 2],
    /// What packets are counted from; filled in when that leaks.
    pub sequences: &'a Mutex<Vec<Psn>>,
    /// Not asked for.
    pub service_port: u16,
    /// Sends from this port, as `bind` gives it.
    pub socket: fn(IpAddr) -> io::Result<UdpSocket>,
}

impl Attack<'_> {
    /// Sends until `stop`.
    pub fn run(&self, stop: &AtomicBool) -> Tally {
        let mut forge = Forge::new(self.seed, self.name, ServiceId::for_port(!self.service_port));
        let mut tally = Tally::default();
        let begin = Instant::now();
        let mut sockets = BTreeMap::new();
        while !stop.load(Ordering::Relaxed) {
            let aims = self.look(&mut sockets, begin.elapsed() > SETTLED, &mut tally);
            let round = Instant::now();
            while round.elapsed() < LOOK_AGAIN && !stop.load(Ordering::Relaxed) {
                for (socket, aim) in &aims {
                    let Some(socket) = sockets.get(socket) else { continue };
                    // Where a connection is, there is most to be broken.
                    for _ in 0..if socket.local_addr().is_ok_and(|from| from.ip().is_loopback()) { 1 } else { 4 } {
                        tally.datagrams += send(&mut forge, socket, aim, &mut tally.trains);
                    }
                }
                // The victims want to work, too, and there are tests beside us.
                std::thread::sleep(BREATH);
            }
        }
        tally
    }

    /// Who is there to be attacked, from which of our sockets.
    fn look(&self, sockets: &mut BTreeMap<IpAddr, UdpSocket>, settled: bool, tally: &mut Tally) -> Vec<(IpAddr, Aim)> {
        let mut aims = Vec::new();
        let leaked = self.sequences.lock().expect("nobody panics with it").clone();
        for pid in self.pids {
            let memory = memory_of(pid);
            if settled && memory > 0 {
                let (_, most) = tally.memory.entry(pid).or_insert((memory, memory));
                *most = memory.max(*most);
            }
            let snapshots = snapshots(pid);
            let pairs: Vec<_> = snapshots.iter().flat_map(|snapshot| &snapshot.queue_pairs).collect();
            let dropped = snapshots.iter().map(|snapshot| snapshot.counters.packets_dropped).sum();
            tally.dropped = tally.dropped.max(dropped);
            let queue_pairs: Vec<Qpn> = pairs.iter().map(|pair| Qpn::new(pair.number)).collect();
            let sent = pairs.iter().map(|pair| pair.packets_sent).max().unwrap_or(0);
            let sequences: Vec<Psn> = leaked.iter().map(|first| first.plus(sent as u32)).collect();
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
                    let way = Addresses::new(from, SocketAddr::new(*host, port)).expect("one IP version");
                    aims.push((*host, Aim { way, queue_pairs: queue_pairs.clone(), sequences: sequences.clone() }));
                }
            }
        }
        aims
    }
}

/// A few datagrams one by one, and a train; how many that were.
fn send(forge: &mut Forge, socket: &UdpSocket, aim: &Aim, trains: &mut u64) -> u64 {
    let mut sent = 0;
    for _ in 0..8 {
        // The kernel may refuse one; then it is another one's turn.
        sent += u64::from(socket.send_to(&forge.datagram(aim), aim.way.dst()).is_ok());
    }
    let (bytes, segment) = forge.train(aim);
    if cut_into(socket, segment).is_ok() {
        let gone = socket.send_to(&bytes, aim.way.dst()).is_ok();
        *trains += u64::from(gone);
        sent += if gone { bytes.len().div_ceil(segment.into()) as u64 } else { 0 };
        let _ = cut_into(socket, 0);
    }
    sent
}

/// Lets the kernel cut what is sent into datagrams of `segment` bytes (udp(7)); 0 ends it.
fn cut_into(socket: &UdpSocket, segment: u16) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment.into())
}

/// setsockopt(2) of a number.
pub fn set_option(socket: &impl AsRawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: an open socket, and an option of the size that is said.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the devices of a process say of themselves, while they are attacked.
fn snapshots(pid: u32) -> Vec<Snapshot> {
    let endpoints = observe::endpoints().unwrap_or_default();
    let own = endpoints.iter().filter(|endpoint| endpoint.pid == pid);
    own.filter_map(|endpoint| observe::fetch(endpoint, Duration::from_secs(1)).ok()).collect()
}

/// How often to look whom there is to attack.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Between one handful for everybody and the next.
const BREATH: Duration = Duration::from_micros(300);
/// Programs have all the memory that they ask for by then.
const SETTLED: Duration = Duration::from_millis(800);
