//! Unreliable services over plain UDP: the receiver's socket buffer is not overrun, a peer that does not support
//! credits is not waited for, and only the peer can grant credit.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{HALF, Side, connect_qps, drive, drive_for, new_qp, start};
use rnic_base::{Probability, Psn};
use rnic_engine::{DatagramAddress, PeerId, SendOp, Service, WcStatus};
use rnic_host::{Impairment, Nic, NicConfig, RxDrop};
use rnic_wire::credit::Credit;
use rnic_wire::gsi::{self, GsiPacket};
use rnic_wire::{Addresses, Qpn};

const HOST: &str = "127.0.0.1";
const QKEY: u32 = 0x1111;
/// Requested buffer size, of which the kernel grants twice as much.
const BUFFER_BYTES: usize = 64 << 10;

fn host() -> IpAddr {
    HOST.parse().expect("an address")
}

/// Without the shared-memory bypass, and with a small receive buffer.
fn small() -> NicConfig {
    NicConfig { bypass: false, receive_buffer_bytes: BUFFER_BYTES, ..NicConfig::shared() }
}

fn datagram_qp(side: &mut Side) -> Qpn {
    let qpn = new_qp(side, Service::UnreliableDatagram, "irn", 4_096);
    side.nic.verbs().set_qkey(qpn, QKEY).expect("datagram queue pairs have a queue key");
    side.nic.verbs().modify_to_rtr_unconnected(qpn, 4_096).expect("valid");
    start(side, qpn, 77, 0);
    qpn
}

/// An unreliable connection between both sides.
fn connect(left: &mut Side, right: &mut Side) -> (Qpn, Qpn) {
    let ends = [&mut *left, &mut *right].map(|side| new_qp(side, Service::UnreliableConnection, "irn", 4_096));
    connect_qps(left, right, ends.into(), 77);
    ends.into()
}

fn send(side: &mut Side, from: Qpn, peer: PeerId, to: Qpn, len: u32) {
    let to = DatagramAddress { peer, qpn: to, qkey: QKEY, mark: 0 };
    side.post(from, 500, SendOp::Datagram { to, immediate: None }, &[side.sge(0, len)]);
}

fn drops_of(nic: &Nic) -> u64 {
    nic.stats().drops.iter().sum()
}

/// Drives a sender that polls all the time and a receiver that polls rarely, until the receiver has `count`
/// completions.
fn drive_slowly(left: &mut Side, right: &mut Side, count: usize) {
    let (start, mut received) = (Instant::now(), 0);
    while received < count {
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_micros(1_500) {
            left.nic.progress();
        }
        right.nic.progress();
        received += right.completions().iter().filter(|done| done.status == WcStatus::Success).count();
        assert!(start.elapsed() < common::TEST_TIMEOUT, "{received} of {count}: {:?}", left.nic.stats());
    }
}

#[test]
fn a_slow_receiver_gets_every_datagram() {
    let (mut left, mut right) = (Side::open(small()), Side::open(small()));
    let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut right));
    let peer = left.nic.acquire_host(host(), None).expect("loopback");
    const COUNT: u32 = 2_000;
    for slot in 0..u64::from(COUNT) {
        right.post_recv(to, slot, &[right.sge(HALF, 4_136)]);
        send(&mut left, from, peer, to, 4_096);
    }
    drive_slowly(&mut left, &mut right, COUNT as usize);
    let stats = left.nic.stats();
    assert!(stats.credit_requests >= u64::from(COUNT) / 8 && stats.credit_given_up == 0, "{stats:?}");
    assert_eq!((drops_of(&left.nic), drops_of(&right.nic)), (0, 0));
    assert_eq!(left.completions().len(), COUNT as usize);
}

#[test]
fn a_slow_receiver_gets_every_message_of_a_connection() {
    let (mut left, mut right) = (Side::open(small()), Side::open(small()));
    let (from, to) = connect(&mut left, &mut right);
    for wr_id in 0..40 {
        right.post_recv(to, wr_id, &[]);
        let (sge, remote) = (left.sge(0, 200_000), right.region.remote(HALF));
        left.post(from, wr_id, SendOp::Write { remote, immediate: Some(7) }, &[sge]);
    }
    drive_slowly(&mut left, &mut right, 40);
    assert!(right.nic.bytes(&right.region)[HALF..HALF + 200_000] == left.nic.bytes(&left.region)[..200_000]);
}

#[test]
fn credit_for_a_few_remaining_packets_is_returned() {
    let (mut left, mut right) = (Side::open(small()), Side::open(small()));
    let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut right));
    let peer = left.nic.acquire_host(host(), None).expect("loopback");
    send(&mut left, from, peer, to, 100);
    drive(&mut left, &mut right, |left, _| (left.nic.stats().credit_requests > 0).then_some(()));
    drive_for(&mut left, &mut right, Duration::from_millis(30));
    assert_eq!((left.nic.stats().credit_requests, right.nic.stats().credit_answers), (1, 1));
    assert_eq!(left.nic.next_deadline(), None, "a timer is pending");
    assert!(left.nic.stats().credit_given_up == 0);
}

#[test]
fn a_lossy_path_does_not_stall_senders() {
    let impairment = Impairment { loss: Probability::ratio(10, 100), ..Impairment::default() };
    let lossy = |name: &str| Side::open(NicConfig { impairment, name: name.to_owned(), ..small() });
    let (mut left, mut right) = (lossy("left"), lossy("right"));
    let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut right));
    let peer = left.nic.acquire_host(host(), None).expect("loopback");
    for slot in 0..3_000 {
        right.post_recv(to, slot, &[right.sge(HALF, 4_136)]);
        send(&mut left, from, peer, to, 4_096);
    }
    let (mut sent, mut received) = (0, 0);
    drive(&mut left, &mut right, |left, right| {
        sent += left.completions().len();
        received += right.completions().len();
        (sent == 3_000).then_some(())
    });
    drive_for(&mut left, &mut right, Duration::from_millis(20));
    received += right.completions().len();
    let lost = left.nic.stats().impairment.lost;
    assert!(received as u64 + lost >= 3_000, "{received} arrived, {lost} were dropped by impairment");
    assert_eq!(left.nic.stats().credit_given_up, 0);
}

/// A port that a NIC might have, at which nothing supports credits.
struct SilentPeer {
    socket: UdpSocket,
    qpn: Qpn,
}

impl SilentPeer {
    fn open() -> Self {
        let free = |port: &u16| UdpSocket::bind((HOST, *port)).is_ok();
        let port = (20_032..32_000).step_by(64).find(free).expect("a free port");
        let socket = UdpSocket::bind((HOST, port)).expect("it was free");
        socket.set_nonblocking(true).expect("a socket can");
        Self { socket, qpn: Qpn::new(u32::from(port) << 8 | 5) }
    }

    /// Returns what has arrived: the number of data packets, and the cookies of credit requests.
    fn receive_message(&self) -> (usize, Vec<u64>) {
        let (mut packets, mut cookies, mut buffer) = (0, Vec::new(), [0; 9_000]);
        while let Ok((len, _)) = self.socket.recv_from(&mut buffer) {
            if !gsi::is_gsi(&buffer[..len]) {
                packets += 1;
                continue;
            }
            let packet = gsi::decode(&buffer[..len]).expect("a management datagram");
            match Credit::parse(packet.mad) {
                Some(Credit::Request { cookie, .. }) => cookies.push(cookie),
                other => panic!("{other:?} instead of a request"),
            }
        }
        (packets, cookies)
    }

    fn answer(&self, to: &Nic, cookie: u64) {
        let target = SocketAddr::new(host(), to.port());
        let addresses = Addresses::new(self.socket.local_addr().expect("it is bound"), target).expect("one version");
        let mad = Credit::Response { cookie }.emit();
        let packet = GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(0), mad: &mad }.encode(&addresses);
        self.socket.send_to(&packet, target).expect("loopback");
    }
}

#[test]
fn senders_stop_waiting_for_a_peer_that_never_responds() {
    let mut left = Side::open(small());
    let from = datagram_qp(&mut left);
    let peer = left.nic.acquire_host(host(), None).expect("loopback");
    let silent = SilentPeer::open();
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    (0..4_000).for_each(|_| send(&mut left, from, peer, silent.qpn, 100));
    while sent < 4_000 {
        left.nic.progress();
        received += silent.receive_message().0;
        sent += left.completions().len();
        assert!(start.elapsed() < Duration::from_secs(5), "{sent}: {:?}", left.nic.stats());
    }
    received += silent.receive_message().0;
    assert_eq!(received, 4_000);
    let stats = left.nic.stats();
    assert!(stats.credit_given_up == 1 && (3..20).contains(&stats.credit_requests), "{stats:?}");
}

#[test]
fn only_the_right_cookie_returns_credit_and_only_once() {
    let mut left = Side::open(small());
    let from = datagram_qp(&mut left);
    let peer = left.nic.acquire_host(host(), None).expect("loopback");
    let silent = SilentPeer::open();
    (0..1_000).for_each(|_| send(&mut left, from, peer, silent.qpn, 100));
    let run = |left: &mut Side| {
        for _ in 0..50 {
            left.nic.progress();
        }
        silent.receive_message()
    };
    let (window, cookies) = run(&mut left);
    let first = cookies[0];
    assert!((8..100).contains(&window), "{window}");
    for guess in [0, 1, u64::MAX, first ^ 1, first.swap_bytes()] {
        silent.answer(&left.nic, guess);
    }
    assert_eq!(run(&mut left).0, 0, "a guessed cookie returned credit");
    assert_eq!(left.nic.stats().dropped(RxDrop::Management), 5);
    silent.answer(&left.nic, first);
    let (more, _) = run(&mut left);
    assert!((1..=window).contains(&more), "{more} of {window}");
    // The same answer a second time.
    silent.answer(&left.nic, first);
    assert_eq!(run(&mut left).0, 0);
    assert_eq!(left.nic.stats().dropped(RxDrop::Management), 6);
}

#[test]
fn responses_go_only_to_the_sender_of_the_request() {
    let mut right = Side::open(small());
    let silent = SilentPeer::open();
    let target = SocketAddr::new(host(), right.nic.port());
    let own = silent.socket.local_addr().expect("the socket is bound");
    let addresses = Addresses::new(own, target).expect("one version");
    // The port of a NIC, and three that cannot be a NIC's.
    for (response_port, answers) in [(own.port(), 1), (53, 1), (0, 1), (own.port() + 1, 1)] {
        let mad = Credit::Request { cookie: 9, response_port }.emit();
        let packet = GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(0), mad: &mad }.encode(&addresses);
        silent.socket.send_to(&packet, target).expect("loopback");
        for _ in 0..20 {
            right.nic.progress();
        }
        assert_eq!(right.nic.stats().credit_answers, answers, "{response_port}");
    }
    let mut buffer = [0; 1_000];
    let (len, from) = silent.socket.recv_from(&mut buffer).expect("the response arrives");
    let packet = gsi::decode(&buffer[..len]).expect("a management datagram");
    assert_eq!(Credit::parse(packet.mad), Some(Credit::Response { cookie: 9 }));
    let back = Addresses::new(from, own).expect("one version");
    assert!(rnic_wire::icrc::verify(&back, &buffer[..len]));
}
