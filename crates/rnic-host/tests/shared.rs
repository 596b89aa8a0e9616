//! NICs that share their machine's addresses: queue pair numbers determine ports, a peer is a host, and programs
//! exchange queue pair numbers themselves.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use common::{HALF, SharedFile, Side, chosen, drive, drive_for};
use rnic_base::{Probability, Psn};
use rnic_engine::{DatagramAddress, PeerId, QpConnection, QpTiming, RnrTimer, SendOp, Service, WcFlags, WcStatus};
use rnic_host::{Impairment, Nic, NicConfig, NicError, Notice, PackedIpFields, Protection, RxDrop, TransportChoice};
use rnic_psp::{Secret, SecurityFormat};
use rnic_wire::falcon::codec;
use rnic_wire::falcon::psp::Cipher;
use rnic_wire::{Addresses, IcrcPrefix, Qpn};

const V4: &str = "127.0.0.1";
const V6: &str = "::1";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// One end of a pair of queue pairs.
#[derive(Clone, Copy)]
struct End {
    qpn: Qpn,
    peer: PeerId,
}

fn new_qp(side: &mut Side) -> Qpn {
    new_qp_of(side, &chosen("irn", &[]))
}

fn new_qp_of(side: &mut Side, choice: &TransportChoice) -> Qpn {
    common::new_qp_of(side, Service::ReliableConnection, choice, 128)
}

fn ready(side: &mut Side, qpn: Qpn, dest_qpn: Qpn, peer: PeerId) {
    let mtu = side.nic.wire_mtu_to(peer);
    let connection = QpConnection {
        peer,
        dest_qpn,
        rq_psn: Psn::new(77),
        mtu,
        min_rnr_timer: RnrTimer::at_least(rnic_base::Duration::from_us(100)),
        max_dest_rd_atomic: 16,
    };
    side.nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
    let timing = QpTiming { sq_psn: Psn::new(77), retry_count: 7, rnr_retry: None, max_rd_atomic: 16 };
    side.nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
}

/// Connects a queue pair of each side in the way of programs that exchange addresses and numbers.
fn link(left: &mut Side, right: &mut Side, address: &str) -> (End, End) {
    let (from, to) = (new_qp(left), new_qp(right));
    join(left, right, [from, to], address)
}

fn join(left: &mut Side, right: &mut Side, [from, to]: [Qpn; 2], address: &str) -> (End, End) {
    let there = left.nic.acquire_host(ip(address), None).expect("loopback");
    let back = right.nic.acquire_host(ip(address), None).expect("loopback");
    ready(left, from, to, there);
    ready(right, to, from, back);
    (End { qpn: from, peer: there }, End { qpn: to, peer: back })
}

/// Connects a queue pair of each side with these configurations and transports; returns the notices about differences
/// on both sides.
fn notices_of(configs: [NicConfig; 2], choices: [TransportChoice; 2]) -> [Vec<String>; 2] {
    let [mut left, mut right] = configs.map(Side::open);
    let numbers = [new_qp_of(&mut left, &choices[0]), new_qp_of(&mut right, &choices[1])];
    join(&mut left, &mut right, numbers, V4);
    // Each side has sent a hello and received an answer.
    drive(&mut left, &mut right, |left, right| {
        let sent = |side: &Side| side.nic.stats().hellos_sent;
        (sent(left) > 0 && sent(right) > 0).then_some(())
    });
    drive_for(&mut left, &mut right, Duration::from_millis(20));
    [left, right].map(|mut side| {
        let notices = std::iter::from_fn(|| side.nic.poll_notice());
        notices
            .filter(|notice| matches!(notice, Notice::PeerSettingsDiffer(_)))
            .map(|notice| notice.to_string())
            .collect()
    })
}

/// Programs that exchange only queue pair numbers would otherwise just lose packets.
#[test]
fn both_ends_report_differing_settings() {
    let both = |config: NicConfig| [config.clone(), config];
    for choice in [chosen("irn", &[]), chosen("roce-gbn", &[]), chosen("falcon", &[("flows", "4")])] {
        let same = notices_of(both(udp()), [choice.clone(), choice]);
        assert_eq!(same, [vec![], vec![]] as [Vec<String>; 2]);
    }
    let names = notices_of(both(udp()), [chosen("irn", &[]), chosen("falcon", &[])]);
    assert!(names[0].len() == 1 && names[0][0].contains("transport falcon, but this end uses irn"), "{names:?}");
    assert!(names[1].len() == 1 && names[1][0].contains("transport irn, but this end uses falcon"), "{names:?}");
    let small_mtu = NicConfig { mtu_max_bytes: 1_024, ..udp() };
    let mtus = notices_of([udp(), small_mtu], [chosen("irn", &[]), chosen("irn", &[])]);
    assert!(mtus[0].len() == 1 && mtus[0][0].contains("packets of 1024 bytes"), "{mtus:?}");
    assert!(mtus[1].len() == 1 && mtus[1][0].contains("but this end sends packets of 1024"), "{mtus:?}");
    let orders = notices_of(both(udp()), [chosen("falcon", &[]), chosen("falcon", &[("ordering", "weak")])]);
    assert!(orders[0].len() == 1 && orders[0][0].contains("ordering=weak"), "{orders:?}");
    let keyed = |byte| {
        let protection = Protection::new(Secret::new([byte; 32]), Cipher::Gcm128);
        NicConfig { protection: Some(protection), ..udp() }
    };
    let keys = notices_of([keyed(1), keyed(2)], [chosen("falcon", &[]), chosen("falcon", &[])]);
    assert!(keys[0].len() == 1 && keys[0][0].contains("the --key secrets differ"), "{keys:?}");
    assert!(keys[1].len() == 1, "{keys:?}");
}

/// A hello is repeated: the ends get it although half of all packets are lost.
#[test]
fn a_lost_hello_is_retransmitted() {
    let impairment = Impairment { loss: Probability::ratio(1, 2), ..Impairment::default() };
    let config = |number: u32| NicConfig { impairment, name: format!("lossy {number}"), ..udp() };
    let mut notified = 0;
    for number in 0..10 {
        let configs = [config(2 * number), config(2 * number + 1)];
        let [mut left, mut right] = configs.map(Side::open);
        let numbers = [new_qp(&mut left), new_qp_of(&mut right, &chosen("roce-gbn", &[]))];
        join(&mut left, &mut right, numbers, V4);
        drive_for(&mut left, &mut right, Duration::from_millis(400));
        notified += [left, right].into_iter().filter_map(|mut side| side.nic.poll_notice()).count();
    }
    // With only the first hellos and their answers, five of eight ends would get one.
    assert!(notified >= 17, "only {notified} of 20 ends were notified");
}

fn write_and_check(left: &mut Side, right: &mut Side, from: Qpn, len: usize) {
    let sent = left.nic.bytes(&left.region)[..len].to_vec();
    right.nic.bytes_mut(&right.region)[HALF..HALF + len].fill(0xee);
    let (sge, remote) = (left.sge(0, len as u32), right.region.remote(HALF));
    left.post(from, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    let done = drive(left, right, |left, _| left.completions().pop());
    assert_eq!(done.status, WcStatus::Success);
    assert!(right.nic.bytes(&right.region)[HALF..HALF + len] == sent[..], "{len} bytes arrived changed");
}

/// Shared memory between two NICs exists as long as queue pairs of theirs are connected.
#[test]
fn a_ring_is_released_with_its_last_queue_pair() {
    let (mut left, mut right) = (Side::open(NicConfig::shared()), Side::open(NicConfig::shared()));
    let pairs = [link(&mut left, &mut right, V4), link(&mut left, &mut right, V4)];
    let lasting = left.nic.acquire_host(ip(V4), None).expect("loopback");
    let is_made = |left: &mut Side, _: &mut Side| (left.nic.bypass_rings() == 1).then_some(());
    drive(&mut left, &mut right, is_made);
    write_and_check(&mut left, &mut right, pairs[0].0.qpn, 10_000);
    left.nic.verbs().destroy_qp(pairs[0].0.qpn).expect("it exists");
    write_and_check(&mut left, &mut right, pairs[1].0.qpn, 10_000);
    assert_eq!(left.nic.bypass_rings(), 1, "the ring was released although a queue pair uses it");
    left.nic.verbs().destroy_qp(pairs[1].0.qpn).expect("it exists");
    assert_eq!(left.nic.bypass_rings(), 0);
    let again = link(&mut left, &mut right, V4);
    drive(&mut left, &mut right, is_made);
    write_and_check(&mut left, &mut right, again.0.qpn, 10_000);
    left.nic.release_peer(lasting);
}

/// Only a connected queue pair counts: destroying one that failed before, or was reset, does not remove the ring from
/// the others.
#[test]
fn destroying_an_unconnected_queue_pair_keeps_the_ring() {
    let (mut left, mut right) = (Side::open(NicConfig::shared()), Side::open(NicConfig::shared()));
    let pairs = [link(&mut left, &mut right, V4), link(&mut left, &mut right, V4)];
    drive(&mut left, &mut right, |left, _| (left.nic.bypass_rings() == 1).then_some(()));
    let failed = new_qp(&mut left);
    left.nic.verbs().modify_to_error(failed).expect("legal in every state");
    left.nic.verbs().destroy_qp(failed).expect("it exists");
    left.nic.verbs().modify_to_reset(pairs[0].0.qpn).expect("it exists");
    left.nic.verbs().modify_to_reset(pairs[0].0.qpn).expect("it exists");
    left.nic.verbs().destroy_qp(pairs[0].0.qpn).expect("it exists");
    assert_eq!(left.nic.bypass_rings(), 1, "the ring was released although a queue pair uses it");
    write_and_check(&mut left, &mut right, pairs[1].0.qpn, 10_000);
    left.nic.verbs().destroy_qp(pairs[1].0.qpn).expect("it exists");
    assert_eq!(left.nic.bypass_rings(), 0);
}

#[test]
fn queue_pair_numbers_encode_the_port_and_are_unique() {
    let mut side = Side::open(NicConfig::shared());
    let (port, most) = (side.nic.port(), side.nic.queue_pairs_max());
    assert!(port.is_multiple_of((most / 256) as u16) && port >= 1_024, "{port}, {most} queue pairs");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let qpn = new_qp(&mut side);
        assert_eq!(qpn.get() & !(most - 1), u32::from(port) << 8);
        assert!(seen.insert(qpn));
    }
    let mut sorted: Vec<_> = seen.iter().copied().collect();
    sorted.dedup_by(|b, a| b.get() == a.get() + 1);
    assert!(sorted.len() > 300, "numbers do not follow from each other: {}", sorted.len());
}

#[test]
fn ipv4_and_ipv6_and_several_nics_of_a_process_work_together() {
    let mut sides: Vec<Side> = (0..3).map(|_| Side::open(NicConfig::shared())).collect();
    let ports: std::collections::BTreeSet<u16> = sides.iter().map(|side| side.nic.port()).collect();
    assert_eq!(ports.len(), 3, "a port was used twice");
    let mut third = sides.pop().expect("three");
    let mut second = sides.pop().expect("three");
    let mut first = sides.pop().expect("three");
    let (to_second, _) = link(&mut first, &mut second, V4);
    let (to_third, _) = link(&mut first, &mut third, V4);
    let (over_v6, _) = link(&mut first, &mut second, V6);
    assert_eq!(to_second.peer, to_third.peer, "one host has two peer numbers");
    assert_ne!(to_second.peer, over_v6.peer);
    for len in [1, 8, 4_097, 300_001] {
        write_and_check(&mut first, &mut second, to_second.qpn, len);
        write_and_check(&mut first, &mut third, to_third.qpn, len);
        write_and_check(&mut first, &mut second, over_v6.qpn, len);
    }
}

#[test]
fn packets_are_sent_from_port_4791_to_the_port_in_the_queue_pair_number() {
    let (mut left, mut right) = (Side::open(udp()), Side::open(udp()));
    let file = SharedFile::default();
    left.nic.start_capture(Box::new(file.clone())).expect("a file");
    let (from, _) = link(&mut left, &mut right, V4);
    write_and_check(&mut left, &mut right, from.qpn, 20_000);
    drop(left.nic.stop_capture());
    let frames = file.frames();
    let is_outgoing = |frame: &&Vec<u8>| frame[36..38] == right.nic.port().to_be_bytes();
    let outgoing: Vec<_> = frames.iter().filter(is_outgoing).collect();
    assert!(!outgoing.is_empty());
    let from_4791 = left.nic.poll_notice().is_none();
    let expected = if from_4791 { 4_791 } else { left.nic.port() };
    for frame in outgoing {
        assert_eq!(frame[34..36], expected.to_be_bytes());
        assert!(rnic_wire::icrc::verify_ip_packet(&frame[14..]), "the ICRC is wrong");
    }
}

/// Configuration without the shared-memory bypass.
fn udp() -> NicConfig {
    NicConfig { bypass: false, ..NicConfig::shared() }
}

fn bad_network() -> Impairment {
    Impairment {
        loss: Probability::ratio(2, 100),
        reorder: Probability::ratio(5, 100),
        duplicate: Probability::ratio(1, 100),
        corrupt: Probability::ratio(1, 100),
        ..Impairment::default()
    }
}

#[test]
fn impairment_is_survived() {
    let impairment = bad_network();
    for bypass in [false, true] {
        let side = |name: &str| {
            Side::open(NicConfig {
                impairment,
                name: name.to_owned(),
                bypass,
                mtu_max_bytes: 1_024,
                ..NicConfig::shared()
            })
        };
        let (mut left, mut right) = (side("left"), side("right"));
        let (from, _) = link(&mut left, &mut right, V4);
        for _ in 0..4 {
            write_and_check(&mut left, &mut right, from.qpn, 400_001);
        }
        let done = left.nic.stats().impairment;
        assert!(done.lost > 0 && done.reordered > 0 && done.corrupted > 0 && done.duplicated > 0, "{done:?}");
    }
}

/// Falcon's packets use the shared-memory path too: unencrypted, encrypted, captured, on several flows, and impaired.
#[test]
fn falcon_uses_shared_memory() {
    let bad = bad_network();
    let key = Protection::new(Secret::new([7; 32]), Cipher::Gcm128);
    for options in [&[][..], &[("flows", "4"), ("ordering", "weak")]] {
        for (protection, impairment) in [(None, None), (Some(&key), None), (None, Some(bad)), (Some(&key), Some(bad))] {
            for is_captured in [false, true] {
                falcon_by_memory(options, protection.cloned(), impairment, is_captured);
            }
        }
    }
}

fn falcon_by_memory(
    options: &[(&str, &str)],
    protection: Option<Protection>,
    impairment: Option<Impairment>,
    is_captured: bool,
) {
    let case = format!("{options:?}, key {}, {impairment:?}, captured {is_captured}", protection.is_some());
    let side = |name: &str| {
        let (name, protection) = (name.to_owned(), protection.clone());
        Side::open(NicConfig { name, protection, impairment: impairment.unwrap_or_default(), ..NicConfig::shared() })
    };
    let (mut left, mut right) = (side("left"), side("right"));
    let files = [SharedFile::default(), SharedFile::default()];
    if is_captured {
        left.nic.start_capture(Box::new(files[0].clone())).expect("a file");
        right.nic.start_capture(Box::new(files[1].clone())).expect("a file");
    }
    let numbers = [new_qp_of(&mut left, &chosen("falcon", options)), new_qp_of(&mut right, &chosen("falcon", options))];
    let (from, _) = join(&mut left, &mut right, numbers, V4);
    drive(&mut left, &mut right, |left, right| {
        (left.nic.bypass_rings() == 1 && right.nic.bypass_rings() == 1).then_some(())
    });
    for len in [1, 10, 4_097, 300_001] {
        write_and_check(&mut left, &mut right, from.qpn, len);
    }
    let (sge, remote) = (left.sge(HALF, 100_000), right.region.remote(0));
    right.nic.bytes_mut(&right.region)[..100_000].fill(0x3c);
    left.post(from.qpn, 2, SendOp::Read { remote }, &[sge]);
    let done = drive(&mut left, &mut right, |left, _| left.completions().pop());
    assert_eq!(done.status, WcStatus::Success, "{case}");
    assert!(left.nic.bytes(&left.region)[HALF..HALF + 100_000] == [0x3c; 100_000], "{case}");
    for end in [&left.nic, &right.nic] {
        let stats = end.stats();
        assert!(stats.bypass_sent > 10 && stats.datagrams_sent < 10, "{case}: {stats:?}");
        let refused = stats.dropped(RxDrop::Protection) + stats.dropped(RxDrop::Malformed);
        assert!(impairment.is_some() || refused == 0, "{case}: {stats:?}");
    }
    let done = left.nic.stats().impairment;
    let impaired = done.lost + done.corrupted + done.duplicated + done.reordered;
    assert_eq!(impaired > 0, impairment.is_some(), "{case}: {done:?}");
    if is_captured && impairment.is_none() {
        let packets = files[1].frames();
        let falcon = packets.iter().filter_map(|frame| codec::decode_datagram(frame.get(42..)?).ok());
        assert!(protection.is_some() || falcon.count() > 30, "{case}: {} frames", packets.len());
    }
    left.nic.verbs().destroy_qp(from.qpn).expect("it exists");
    assert_eq!(left.nic.bypass_rings(), 0, "{case}: the ring was not released");
}

/// Returns an unencrypted packet for `to` with the ICRC for a packet from `source`.
fn forged(to: Qpn, source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0u8; 12];
    bytes[0] = 0x04; // RC, Send Only
    bytes[2..4].copy_from_slice(&0xffffu16.to_be_bytes());
    bytes[5..8].copy_from_slice(&to.get().to_be_bytes()[1..]);
    bytes[9..12].copy_from_slice(&77u32.to_be_bytes()[1..]);
    bytes.extend_from_slice(&[0x55; 16]);
    let addresses = Addresses::new(source, target).expect("one version");
    let icrc = IcrcPrefix::new(&addresses, bytes.len() as u32 + 4).start(&bytes).finish();
    bytes.extend_from_slice(&icrc);
    bytes
}

#[test]
fn packets_from_wrong_ports_and_unknown_peers_are_dropped_and_counted() {
    let (mut left, mut right) = (Side::open(udp()), Side::open(udp()));
    let (from, to) = link(&mut left, &mut right, V4);
    let target = SocketAddr::new(ip(V4), right.nic.port());
    // The right address, but a port that is neither 4791 nor that of the peer.
    let stray = UdpSocket::bind((V4, 0)).expect("a free port");
    let source = stray.local_addr().expect("the socket is bound");
    stray.send_to(&forged(to.qpn, source, target), target).expect("loopback");
    drive(&mut left, &mut right, |_, right| (right.nic.stats().dropped(RxDrop::ForeignPort) == 1).then_some(()));
    // Another address of this machine, at which there is no peer.
    let unknown_peer = UdpSocket::bind(("127.0.0.7", 0)).expect("a free port");
    let source = unknown_peer.local_addr().expect("the socket is bound");
    unknown_peer.send_to(&forged(to.qpn, source, target), target).expect("loopback");
    drive(&mut left, &mut right, |_, right| (right.nic.stats().dropped(RxDrop::UnknownPeer) == 1).then_some(()));
    // Invalid datagrams to both ports, and a connection management message, which this NIC does not handle.
    for len in [0, 1, 11, 12, 40, 1_500] {
        stray.send_to(&vec![0xa5; len], target).expect("loopback");
        stray.send_to(&vec![0xa5; len], (V4, 4_791)).expect("loopback");
    }
    let mut management = forged(Qpn::new(1), source, target);
    management[0] = 0x64;
    stray.send_to(&management, target).expect("loopback");
    drive(&mut left, &mut right, |_, right| (right.nic.stats().dropped(RxDrop::Management) == 1).then_some(()));
    write_and_check(&mut left, &mut right, from.qpn, 100_000);
    assert_eq!(right.nic.stats().dropped(RxDrop::Malformed), 6, "{:?}", right.nic.stats());
}

#[test]
fn fixed_and_shared_modes_are_not_mixed() {
    let mut shared = Nic::open(NicConfig::shared()).expect("a free port");
    let address = SocketAddr::new(ip(V4), 4_791);
    assert!(matches!(shared.acquire_peer(address), Err(NicError::Mode(_))));
    let mut fixed = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a free port");
    assert!(matches!(fixed.acquire_host(ip(V4), None), Err(NicError::Mode(_))));
    assert!(matches!(shared.acquire_host(ip(V4), Some(ip(V6))), Err(NicError::IpVersion(_))));
    assert!(matches!(shared.acquire_host(ip(V4), Some(ip("192.0.2.1"))), Err(NicError::System { .. })));
    let chosen = shared.acquire_host(ip("127.0.0.2"), Some(ip("127.0.0.3"))).expect("loopback");
    let other = shared.acquire_host(ip("127.0.0.2"), None).expect("loopback");
    assert_ne!(chosen, other, "peers with different local addresses are equal");
}

#[test]
fn one_nic_can_bind_one_address_of_port_4791() {
    let _sharing = Side::open(udp());
    let at = || Nic::open(NicConfig::at("127.31.7.1:4791".parse().expect("an address")));
    let first = at().expect("no socket is bound to the address");
    assert_eq!(first.local_addr().port(), 4_791);
    assert!(matches!(at(), Err(NicError::AddressInUse(_))));
    drop(first);
    at().expect("the address is free again");
}

#[test]
fn an_event_loop_gets_the_next_deadline() {
    let (mut left, mut right) = (Side::open(NicConfig::shared()), Side::open(NicConfig::shared()));
    let (from, _) = link(&mut left, &mut right, V4);
    assert!(left.nic.raw_fds().len() >= 2, "not a socket for each IP version");
    drive_for(&mut left, &mut right, Duration::from_millis(5));
    let later = left.nic.next_deadline().expect("a keepalive timer is pending");
    assert!(later > rnic_base::Duration::from_ms(200), "a timer is pending: {later}");
    let (sge, remote) = (left.sge(0, 8), right.region.remote(0));
    left.post(from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    while left.nic.wants_progress() {}
    assert!(left.nic.next_deadline().is_some(), "no retransmission timer is pending");
    // The other side sleeps until the packet arrives, then responds; and so does this one.
    while !right.nic.progress() {
        right.nic.wait(rnic_base::Duration::from_secs(5)).expect("the system call succeeds");
    }
    let done = loop {
        right.nic.progress();
        left.nic.wait(rnic_base::Duration::from_ms(100)).expect("the system call succeeds");
        left.nic.progress();
        if let Some(done) = left.completions().pop() {
            break done;
        }
    };
    assert_eq!(done.status, WcStatus::Success);
}

/// A datagram queue pair with queue key 0x1111, ready, and receives posted for it: 40 bytes of route header, then 256.
fn datagram_qp(side: &mut Side) -> Qpn {
    let qpn = common::new_qp(side, Service::UnreliableDatagram, "irn", 128);
    side.nic.verbs().set_qkey(qpn, 0x1111).expect("datagram queue pairs have a queue key");
    side.nic.verbs().modify_to_rtr_unconnected(qpn, 4_096).expect("valid");
    let timing = QpTiming { sq_psn: Psn::new(0), retry_count: 0, rnr_retry: None, max_rd_atomic: 0 };
    side.nic.verbs().modify_to_rts(qpn, &timing).expect("valid");
    for slot in 0..100 {
        side.post_recv(qpn, slot, &[side.sge(HALF + slot as usize * 512, 296)]);
    }
    qpn
}

#[test]
fn datagrams_from_any_peer_have_a_grh() {
    for (bypass, address) in [(false, V4), (true, V4), (false, V6), (true, V6)] {
        let config = NicConfig { bypass, ..NicConfig::shared() };
        let (mut left, mut right) = (Side::open(config.clone()), Side::open(config));
        let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut right));
        // The receiver has no peers.
        let peer = left.nic.acquire_host(ip(address), None).expect("loopback");
        for round in 0..20_u64 {
            let to = DatagramAddress { peer, qpn: to, qkey: 0x1111, mark: 0 };
            left.post(from, 500, SendOp::Datagram { to, immediate: None }, &[left.sge(round as usize, 200)]);
            let received = drive(&mut left, &mut right, |_, right| right.completions().pop());
            assert_eq!((received.status, received.byte_len, received.wr_id), (WcStatus::Success, 240, round));
            assert!(received.flags.contains(WcFlags::GRH) && received.source == from, "{received:?}");
            let at = HALF + round as usize * 512;
            let bytes = &right.nic.bytes(&right.region)[at..at + 240];
            assert!(bytes[40..] == left.nic.bytes(&left.region)[round as usize..round as usize + 200]);
            let (version, source) = match ip(address) {
                IpAddr::V4(ip) => (bytes[20] >> 4, bytes[32..36] == ip.octets()),
                IpAddr::V6(ip) => (bytes[0] >> 4, bytes[8..24] == ip.octets()),
            };
            assert_eq!((version, source), (if address == V4 { 4 } else { 6 }, true));
            // The first datagrams use UDP, until the message that passes the ring has been processed.
            drive_for(&mut left, &mut right, Duration::from_micros(200));
        }
        assert_eq!(left.nic.stats().bypass_sent > 0, bypass, "{:?}", left.nic.stats());
    }
}

/// Traffic class, hop limit and flow label in a datagram's address appear in the route header at the receiver, on
/// every path, for single datagrams and for trains.
#[test]
fn the_grh_contains_the_ip_fields_of_the_sender() {
    let slow = Impairment { delay: rnic_base::Duration::from_us(50), ..Impairment::default() };
    let configs = [(false, Impairment::default()), (true, Impairment::default()), (false, slow)];
    for (address, (bypass, impairment)) in [V4, V6].into_iter().flat_map(|address| configs.map(|way| (address, way))) {
        let config = NicConfig { bypass, impairment, ..NicConfig::shared() };
        let (mut left, mut right) = (Side::open(config.clone()), Side::open(config));
        let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut right));
        let peer = left.nic.acquire_host(ip(address), None).expect("loopback");
        let ip_fields = [(0xb8, 1, 0xa_bcde), (0xb8, 1, 0xa_bcde), (0, 64, 0), (0, 255, 0), (0x20, 64, 0), (0, 64, 7)];
        for round in 0..4 {
            for (class, hops, label) in ip_fields {
                let mark = PackedIpFields::new(class, hops, label).bits();
                let to = DatagramAddress { peer, qpn: to, qkey: 0x1111, mark };
                left.post(from, 500, SendOp::Datagram { to, immediate: None }, &[left.sge(0, 200)]);
            }
            for (class, hops, label) in ip_fields {
                let received = drive(&mut left, &mut right, |_, right| right.nic.verbs().poll_cq_one(right.cq));
                let at = HALF + received.wr_id as usize * 512;
                let grh = &right.nic.bytes(&right.region)[at..at + 40];
                let said = match ip(address) {
                    IpAddr::V4(_) => (grh[21], grh[28], label),
                    IpAddr::V6(_) => {
                        let word = u32::from_be_bytes([grh[0], grh[1], grh[2], grh[3]]);
                        // The kernel may set a flow label if the program sets none.
                        ((word >> 20) as u8, grh[7], if label == 0 { 0 } else { word & 0xf_ffff })
                    }
                };
                let expected = (class, hops, label);
                assert_eq!(said, expected, "{address}, memory {bypass}, round {round}: {:?}", left.nic.stats());
            }
            // The first datagrams use UDP, until the message that passes the ring has been processed.
            drive_for(&mut left, &mut right, Duration::from_millis(1));
        }
        assert_eq!(left.nic.stats().bypass_sent > 0, bypass, "{:?}", left.nic.stats());
    }
}

/// The traffic class of a queue pair is in the IP headers of all its packets, as the kernel of the receiver reports
/// them, acknowledgements included; queue pairs without a class have the default. There are more classes than a batch
/// has trains.
#[test]
fn packets_have_the_traffic_class_of_their_queue_pair() {
    let slow = Impairment { delay: rnic_base::Duration::from_us(50), ..Impairment::default() };
    let networks = [(V4, Impairment::default()), (V6, Impairment::default()), (V4, slow)];
    for (transport, (address, impairment)) in
        ["irn", "roce-gbn", "falcon"].into_iter().flat_map(|name| networks.map(|network| (name, network)))
    {
        let config = NicConfig { impairment, ..udp() };
        let (mut left, mut right) = (Side::open(config.clone()), Side::open(config));
        // With a queue pair for datagrams, a NIC asks the kernel for the fields, and its captures contain them.
        datagram_qp(&mut left);
        datagram_qp(&mut right);
        let files = [&mut left, &mut right].map(|side| {
            let file = SharedFile::default();
            side.nic.start_capture(Box::new(file.clone())).expect("memory");
            file
        });
        let mut classes = BTreeMap::new();
        let ends: Vec<End> = (0..40)
            .map(|index| {
                let choice = chosen(transport, &[]);
                let numbers = [new_qp_of(&mut left, &choice), new_qp_of(&mut right, &choice)];
                let (from, to) = join(&mut left, &mut right, numbers, address);
                // The lower two bits are not the program's.
                let class = index * 4;
                left.nic.verbs().set_traffic_class(from.qpn, from.peer, class | index & 3);
                right.nic.verbs().set_traffic_class(to.qpn, to.peer, class | 1);
                classes.extend([(from.qpn.get(), class), (to.qpn.get(), class)]);
                from
            })
            .collect();
        for len in [1, 10_000, 1] {
            let remote = right.region.remote(HALF);
            for end in &ends {
                left.post(end.qpn, 1, SendOp::Write { remote, immediate: None }, &[left.sge(0, len)]);
            }
            let mut done = 0;
            drive(&mut left, &mut right, |left, _| {
                done += left.completions().iter().filter(|one| one.status == WcStatus::Success).count();
                (done == ends.len()).then_some(())
            });
        }
        drive_for(&mut left, &mut right, Duration::from_millis(2));
        for (file, side) in files.iter().zip([&left, &right]) {
            let seen = classes_received(transport, file, side.addr().port(), &classes);
            assert_eq!(seen.len(), ends.len(), "{transport}, {address}");
            for (qpn, found) in seen {
                assert_eq!(found, BTreeSet::from([classes[&qpn]]), "{transport}, {address}: queue pair {qpn}");
            }
        }
    }
}

/// Returns the traffic classes of the packets in a capture that were received at `port` for each of these queue pairs.
fn classes_received(
    transport: &str,
    file: &SharedFile,
    port: u16,
    classes: &BTreeMap<u32, u8>,
) -> BTreeMap<u32, BTreeSet<u8>> {
    let mut seen: BTreeMap<u32, BTreeSet<u8>> = BTreeMap::new();
    for frame in file.frames() {
        let ip = &frame[14..];
        let (class, udp) = if ip[0] >> 4 == 4 { (ip[1], &ip[20..]) } else { (ip[0] << 4 | ip[1] >> 4, &ip[40..]) };
        let datagram = &udp[8..];
        let falcon = codec::decode_datagram(datagram).ok().map(|(_, decoded)| decoded.packet.cid.get());
        let roce = rnic_wire::codec::decode(datagram).ok().map(|decoded| decoded.packet.dest_qpn.get());
        let qpn = if transport == "falcon" { falcon } else { roce };
        // Messages between NICs belong to no queue pair.
        if let Some(qpn) = qpn.filter(|qpn| udp[2..4] == port.to_be_bytes() && classes.contains_key(qpn)) {
            seen.entry(qpn).or_default().insert(class);
        }
    }
    seen
}

#[test]
fn a_flood_through_shared_memory_waits_for_the_reader_and_loses_nothing() {
    let (mut left, mut right) = (Side::open(NicConfig::shared()), Side::open(NicConfig::shared()));
    let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut right));
    let peer = left.nic.acquire_host(ip(V4), None).expect("loopback");
    let send = |left: &mut Side, len| {
        let op = SendOp::Datagram { to: DatagramAddress { peer, qpn: to, qkey: 0x1111, mark: 0 }, immediate: None };
        left.post(from, 500, op, &[left.sge(0, len)]);
    };
    // The first datagram causes the ring to be set up.
    send(&mut left, 100);
    drive(&mut left, &mut right, |_, right| right.completions().pop());
    drive(&mut left, &mut right, |left, _| (left.nic.bypass_rings() == 1).then_some(()));
    // Four megabytes through a ring of one megabyte, all of which the receiver drops because of the wrong queue key.
    let before = left.nic.stats().bypass_sent;
    for _ in 0..10 {
        for _ in 0..100 {
            let to = DatagramAddress { peer, qpn: to, qkey: 0x2222, mark: 0 };
            left.post(from, 500, SendOp::Datagram { to, immediate: None }, &[left.sge(0, 4_096)]);
        }
        let mut done = 0;
        drive(&mut left, &mut right, |left, _| {
            done += left.completions().len();
            (done >= 100).then_some(())
        });
    }
    drive_for(&mut left, &mut right, Duration::from_millis(2));
    let stats = left.nic.stats();
    assert_eq!((stats.bypass_sent - before, stats.bypass_lost), (1_000, 0), "{stats:?}");
    assert!(right.nic.stats().bypass_received >= 1_000);
}

#[test]
fn a_peer_that_does_not_read_delays_others_only_briefly() {
    let mut sides: Vec<Side> = (0..3).map(|_| Side::open(NicConfig::shared())).collect();
    let (mut slow_reader, mut active_reader, mut left) =
        (sides.pop().expect("three"), sides.pop().expect("three"), sides.pop().expect("three"));
    let (to_active_reader, _) = link(&mut left, &mut active_reader, V4);
    let (from, to) = (datagram_qp(&mut left), datagram_qp(&mut slow_reader));
    let peer = left.nic.acquire_host(ip(V4), None).expect("loopback");
    let op = SendOp::Datagram { to: DatagramAddress { peer, qpn: to, qkey: 0x1111, mark: 0 }, immediate: None };
    // Packets use the socket until shared memory has been set up between the two NICs.
    let begin = std::time::Instant::now();
    while left.nic.stats().bypass_sent == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", left.nic.stats());
        left.post(from, 500, op, &[left.sge(0, 100)]);
        drive_for(&mut left, &mut slow_reader, Duration::from_millis(5));
    }
    left.completions();
    // From here on the receiver does not read.
    let start = std::time::Instant::now();
    for _ in 0..6 {
        (0..100).for_each(|_| left.post(from, 500, op, &[left.sge(0, 4_096)]));
        let mut done = 0;
        drive(&mut left, &mut active_reader, |left, _| {
            done += left.completions().len();
            (done >= 100).then_some(())
        });
    }
    let stats = *left.nic.stats();
    assert!(stats.bypass_lost > 100 && stats.bypass_held > 0, "{stats:?}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    write_and_check(&mut left, &mut active_reader, to_active_reader.qpn, 300_000);
}

/// A program that polls late finds the acknowledgements that have arrived in the meantime and does not retransmit,
/// whether or not it slept before.
#[test]
fn acknowledgements_that_arrived_before_a_late_poll_prevent_retransmission() {
    for sleeps in [false, true] {
        let again: u64 = (0..5).map(|_| repeated_after_a_pause(sleeps)).sum();
        assert!(again <= 1, "{again} of 5 retransmitted, slept before: {sleeps}");
    }
}

fn repeated_after_a_pause(sleeps: bool) -> u64 {
    let (mut left, mut right) = (Side::open(udp()), Side::open(udp()));
    let numbers = [new_qp_of(&mut left, &chosen("falcon", &[])), new_qp_of(&mut right, &chosen("falcon", &[]))];
    let (from, _) = join(&mut left, &mut right, numbers, V4);
    write_and_check(&mut left, &mut right, from.qpn, 100);
    drive_for(&mut left, &mut right, Duration::from_millis(20));
    for _ in 0..200 {
        left.nic.progress();
    }
    if sleeps {
        left.nic.wait(rnic_base::Duration::from_ms(1)).expect("the system call succeeds");
        for _ in 0..3 {
            left.nic.progress();
        }
    }
    let again = |left: &Side| left.nic.engine_stats().packets_retransmitted;
    let before = again(&left);
    let (sge, remote) = (left.sge(0, 8), right.region.remote(0));
    left.post(from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    left.nic.progress();
    for _ in 0..200 {
        right.nic.progress();
    }
    std::thread::sleep(Duration::from_millis(60));
    left.nic.progress();
    drive(&mut left, &mut right, |left, _| left.completions().pop());
    again(&left) - before
}

/// A packet that an impairment delays is delivered even though its sender has ended.
#[test]
fn delayed_packets_arrive_after_their_sender_has_ended() {
    for (transport, bypass) in [("irn", false), ("irn", true), ("falcon", false), ("falcon", true)] {
        let open = |name: &str| Side::open(NicConfig { name: name.to_owned(), bypass, ..NicConfig::shared() });
        let (mut left, mut right) = (open("left"), open("right"));
        let numbers = [new_qp_of(&mut left, &chosen(transport, &[])), new_qp_of(&mut right, &chosen(transport, &[]))];
        let (from, _) = join(&mut left, &mut right, numbers, V4);
        write_and_check(&mut left, &mut right, from.qpn, 100);
        drive_for(&mut left, &mut right, Duration::from_millis(20));
        let delay = rnic_base::Duration::from_ms(300);
        left.nic.set_impairment(Impairment { delay, ..Impairment::default() });
        right.nic.bytes_mut(&right.region)[..8].fill(0);
        left.nic.bytes_mut(&left.region)[..8].fill(9);
        let (sge, remote) = (left.sge(0, 8), right.region.remote(0));
        left.post(from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
        for _ in 0..10 {
            left.nic.progress();
        }
        drop(left);
        for _ in 0..200 {
            right.nic.progress();
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(right.nic.bytes(&right.region)[..8], [9; 8], "{transport}, bypass {bypass}");
    }
}

/// Each packet is encrypted once, whichever path it takes, and counted once by the receiver.
#[test]
fn f42_each_packet_is_encrypted_once() {
    let cases = [(true, true), (true, false), (false, false)];
    for ((left_bypass, right_bypass), form) in
        cases.into_iter().flat_map(|way| [(way, SecurityFormat::Psp), (way, SecurityFormat::Esp)])
    {
        let protection = Protection::new(Secret::new([7; 32]), Cipher::Gcm128).within(form);
        let protection = Some(Protection { packets_per_key: 16, ..protection });
        let open = |name: &str, bypass| {
            let (name, protection) = (name.to_owned(), protection.clone());
            Side::open(NicConfig { name, bypass, protection, ..NicConfig::shared() })
        };
        let (mut left, mut right) = (open("left", left_bypass), open("right", right_bypass));
        let numbers = [new_qp_of(&mut left, &chosen("falcon", &[])), new_qp_of(&mut right, &chosen("falcon", &[]))];
        let (from, _) = join(&mut left, &mut right, numbers, V4);
        drive_for(&mut left, &mut right, Duration::from_millis(20));
        (0..10).for_each(|_| write_and_check(&mut left, &mut right, from.qpn, 300_000));
        let (sent, received) = (*left.nic.stats(), *right.nic.stats());
        let packets = sent.datagrams_sent + sent.bypass_sent;
        assert!(packets > 300, "{sent:?}");
        assert!(sent.key_changes <= packets / 16 + 1, "{} keys for {packets} packets", sent.key_changes);
        assert_eq!(sent.bypass_sent > packets / 2, left_bypass && right_bypass, "{sent:?}");
        assert!(received.datagrams_received + received.bypass_received <= packets, "{received:?} of {packets}");
    }
}
