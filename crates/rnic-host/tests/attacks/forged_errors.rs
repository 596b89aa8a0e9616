//! Forged ICMP "port unreachable" errors, which only the attacker sends.
//!
//! The kernel delivers such an error to the socket whose port it quotes; the attacker needs neither the address of
//! one of the ends nor any packet of the connection. The test floods every session with errors that quote what an
//! attacker can guess: no payload, a probe with a wrong nonce, a connection management message with wrong ids.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rnic_base::Time;
use rnic_engine::{QpState, SendOp, WcStatus};
use rnic_host::cm::{Binding, CmEvent, Endpoint, Inbox, ServiceKind};
use rnic_host::{NicConfig, Protection};
use rnic_psp::Secret;
use rnic_wire::cm::{Reply, Request, ServiceId};
use rnic_wire::falcon::psp::Cipher;
use rnic_wire::{Addresses, gsi};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::another_user::is_root;
use crate::common::{Pair, Side};

/// Longer than five rounds of probes.
const FLOOD_TIME: Duration = Duration::from_millis(2_600);
const SESSIONS: usize = 20;

/// Sends forged errors, from a thread, until it is dropped.
struct Flood {
    stop_requested: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    /// Starts the flood for every pair of victim and peer addresses in `address_pairs`; returns `None`, and prints a
    /// reason, if this test lacks the rights.
    fn begin(address_pairs: Vec<(SocketAddr, SocketAddr)>) -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root can send ICMP errors");
            return None;
        }
        let socket = match Socket::new(Domain::IPV4, Type::from(libc::SOCK_RAW), Some(Protocol::ICMPV4)) {
            Ok(socket) => socket,
            Err(error) => {
                eprintln!("skipped: this system lets nobody send ICMP errors: {error}");
                return None;
            }
        };
        let (stop_requested, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_stopping, count) = (Arc::clone(&stop_requested), Arc::clone(&sent));
        let payloads = payloads();
        let thread = thread::spawn(move || {
            while !is_stopping.load(Ordering::Relaxed) {
                for (victim, peer) in &address_pairs {
                    for payload in &payloads {
                        let message = port_unreachable(*victim, *peer, payload);
                        let sent = socket.send_to(&message, &SockAddr::from(*victim));
                        count.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
                    }
                }
                // The victims share two processors with this thread.
                thread::sleep(Duration::from_millis(2));
            }
        });
        Some(Self { stop_requested, sent, thread: Some(thread) })
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop_requested.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends");
        }
    }
}

/// Payloads that the forged errors quote as the victim's datagrams.
fn payloads() -> Vec<Vec<u8>> {
    let mut probe = vec![0x81, 0, 0xff, 0xff, 0, 0, 0, 2, 0, 0, 0, 0];
    probe.extend_from_slice(&[0x6b; 20]);
    let empty = probe[..12].iter().copied().chain([0; 20]).collect();
    let mut message = vec![0; gsi::DATAGRAM_LEN];
    // BTH for queue pair 1; after BTH and DETH the header of a MAD, an RTU.
    message[..8].copy_from_slice(&[0x64, 0, 0xff, 0xff, 0, 0, 0, 1]);
    message[20..24].copy_from_slice(&[1, 7, 2, 3]);
    message[36..38].copy_from_slice(&0x14u16.to_be_bytes());
    vec![Vec::new(), probe, empty, message]
}

/// ICMP type 3, code 3, quoting a UDP datagram from `victim` to `peer`.
fn port_unreachable(victim: SocketAddr, peer: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let [SocketAddr::V4(from), SocketAddr::V4(to)] = [victim, peer] else { panic!("IPv4") };
    let udp_len = 8 + payload.len() as u16;
    let mut bytes = vec![3, 3, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0x45, 0]);
    bytes.extend_from_slice(&(20 + udp_len).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend_from_slice(&from.ip().octets());
    bytes.extend_from_slice(&to.ip().octets());
    for word in [from.port(), to.port(), udp_len, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn pair(is_sealed: bool) -> Pair {
    let protection = is_sealed.then(|| Protection::new(Secret::new([7; 32]), Cipher::Gcm128));
    let side = || {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Side::open(NicConfig { protection: protection.clone(), receive_buffer_bytes: 1 << 20, ..NicConfig::at(bind) })
    };
    Pair::connected(side(), side(), if is_sealed { "falcon" } else { "irn" })
}

fn is_alive(side: &Side, connection: &rnic_host::Connection) -> bool {
    side.nic.query_qp(connection.qpn).is_some_and(|info| info.state == QpState::ReadyToSend)
}

/// Five each of idle and busy connections, with and without a key.
#[test]
fn twenty_connections_survive_a_flood_of_forged_errors() {
    let mut pairs: Vec<(Pair, bool)> = (0..SESSIONS).map(|number| (pair(number % 2 == 1), number % 4 >= 2)).collect();
    let address_pairs = pairs.iter().flat_map(|(pair, _)| {
        let (left, right) = (pair.left.addr(), pair.right.addr());
        [(left, right), (right, left)]
    });
    let Some(flood) = Flood::begin(address_pairs.collect()) else { return };
    let (start, mut rounds) = (Instant::now(), 0);
    for (pair, _) in pairs.iter_mut().filter(|(_, is_busy)| *is_busy) {
        write(pair);
    }
    while start.elapsed() < FLOOD_TIME {
        for (pair, is_busy) in &mut pairs {
            pair.left.nic.progress();
            pair.right.nic.progress();
            for done in pair.left.completions() {
                assert_eq!((done.status, *is_busy), (WcStatus::Success, true));
                rounds += 1;
                write(pair);
            }
        }
    }
    let sent = flood.sent();
    drop(flood);
    let alive = |(pair, _): &&(Pair, bool)| is_alive(&pair.left, &pair.from) && is_alive(&pair.right, &pair.to);
    assert_eq!(pairs.iter().filter(alive).count(), SESSIONS, "alive after {sent} forged errors");
    let reported: u64 = pairs.iter().map(|(pair, _)| pair.left.nic.stats().network_errors).sum();
    assert!(sent > 1_000 && reported > 500 && rounds > 0, "{sent} sent, {reported} received, {rounds} Writes");
}

fn write(pair: &mut Pair) {
    let (sge, remote) = (pair.left.sge(0, 20_000), pair.right.region.remote(0));
    pair.left.post(pair.from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
}

/// A connection management endpoint, as used by programs over `librdmacm`.
struct End {
    endpoint: Endpoint,
    inbox: Inbox,
    events: Vec<CmEvent>,
}

impl End {
    fn bind() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let endpoint = Endpoint::bind(&Binding { address, only_v6: false }, None).expect("a free port");
        Self { endpoint, inbox: Inbox::default(), events: Vec::new() }
    }

    fn drive(&mut self, now: Time) {
        self.endpoint.receive(now, &mut self.inbox);
        self.endpoint.tick(now);
        self.endpoint.flush();
        self.events.extend(std::iter::from_fn(|| self.endpoint.poll_cm_event()));
    }
}

/// Establishes a session; time is measured from `start`.
fn session(start: Instant) -> (End, End) {
    let (mut active, mut passive) = (End::bind(), End::bind());
    let service = ServiceId::for_port(7_471);
    assert!(passive.endpoint.listen(service, ServiceKind::Connections, 4));
    let addresses = Addresses::new(active.endpoint.local_addr(), passive.endpoint.local_addr()).expect("both IPv4");
    let (request, timeout) =
        (Request { service_id: service, ..Request::default() }, rnic_base::Duration::from_secs(20));
    active.endpoint.connect(since(start), addresses, request, timeout).expect("the table has space");
    let mut is_ready = false;
    while !is_ready {
        let now = since(start);
        active.drive(now);
        passive.drive(now);
        for event in passive.events.drain(..) {
            match event {
                CmEvent::Requested(id, _) => assert!(passive.endpoint.accept(now, id, Reply::default(), timeout)),
                CmEvent::Ready(_) => is_ready = true,
                event => panic!("{event:?}"),
            }
        }
        for event in active.events.drain(..) {
            match event {
                CmEvent::Replied(id, ..) => active.endpoint.confirm(id),
                event => panic!("{event:?}"),
            }
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no session was established");
    }
    (active, passive)
}

fn since(start: Instant) -> Time {
    Time::from_ps(start.elapsed().as_nanos() as u64 * 1_000)
}

#[test]
fn twenty_managed_sessions_survive_a_flood_of_forged_errors_and_detect_an_exited_peer() {
    let start = Instant::now();
    let mut sessions: Vec<(End, End)> = (0..SESSIONS).map(|_| session(start)).collect();
    let address_pairs = sessions.iter().flat_map(|(active, passive)| {
        let (left, right) = (active.endpoint.local_addr(), passive.endpoint.local_addr());
        [(left, right), (right, left)]
    });
    let Some(flood) = Flood::begin(address_pairs.collect()) else { return };
    let (begun, mut probed) = (Instant::now(), Instant::now());
    while begun.elapsed() < FLOOD_TIME {
        let is_due = probed.elapsed() > Duration::from_millis(100);
        for end in sessions.iter_mut().flat_map(|(active, passive)| [active, passive]) {
            if is_due {
                end.endpoint.probe();
            }
            end.drive(since(start));
        }
        if is_due {
            probed = Instant::now();
        }
        thread::sleep(Duration::from_millis(1));
    }
    drop(flood);
    let alive = |end: &End| end.events.is_empty() && end.endpoint.has_connections();
    let count = sessions.iter().filter(|(active, passive)| alive(active) && alive(passive)).count();
    assert_eq!(count, SESSIONS);
    let unproven: u64 = sessions.iter().map(|(active, _)| active.endpoint.stats().unproven).sum();
    assert!(unproven > 500, "only {unproven} unproven errors were received");

    // The process at the other side is gone: its socket is closed without notice. Probes are sent as often as
    // programs send them, and other sessions are not affected.
    let (mut active, passive) = sessions.pop().expect("there are some");
    let (mut other, mut idle) = sessions.pop().expect("there are some");
    drop(passive);
    let (begun, mut probed) = (Instant::now(), None::<Instant>);
    while active.events.is_empty() {
        if probed.is_none_or(|at| at.elapsed() > Duration::from_millis(500)) {
            probed = Some(Instant::now());
            active.endpoint.probe();
            other.endpoint.probe();
        }
        for end in [&mut active, &mut other, &mut idle] {
            end.drive(since(start));
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the exit was not detected: {:?}", active.endpoint.stats());
        thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(active.events[..], [CmEvent::Disconnected(_)]), "{:?}", active.events);
    assert!(other.events.is_empty() && other.endpoint.has_connections());
}
