//! Falcon on real sockets: ordered and unordered connections, several paths, protection, and parameters that must be
//! equal at both ends.

mod common;

use std::net::SocketAddr;

use common::{HALF, PORT, Pair, SharedFile, Side, drive};
use rnic_base::{Probability, Psn};
use rnic_engine::{QpConnection, QpTiming, RnrTimer, SendOp, WcStatus};
use rnic_host::TransportChoice;
use rnic_host::{ConnectionConfig, ConnectionEvent, Impairment, NicConfig, Protection, RxDrop};
use rnic_psp::{Secret, SecurityFormat};
use rnic_wire::Qpn;
use rnic_wire::falcon::psp::Cipher;

fn protection(byte: u8, cipher: Cipher) -> Option<Protection> {
    Some(Protection::new(Secret::new([byte; 32]), cipher))
}

/// The same protection in ESP encapsulation.
fn esp(byte: u8, cipher: Cipher) -> Option<Protection> {
    protection(byte, cipher).map(|protection| protection.within(SecurityFormat::Esp))
}

fn side(name: &str, protection: Option<Protection>, impairment: Impairment) -> Side {
    let bind = "127.0.0.1:0".parse().expect("an address");
    Side::open(NicConfig { name: name.to_owned(), protection, impairment, ..NicConfig::at(bind) })
}

fn config(side: &Side, options: &[(&str, &str)]) -> ConnectionConfig {
    let choice = TransportChoice::named("falcon", options).expect("legal options");
    ConnectionConfig::new(side.pd, side.cq).with_transports(vec![choice])
}

fn pair(options: &[(&str, &str)], protection: Option<Protection>, impairment: Impairment) -> Pair {
    let (left, right) = (side("left", protection.clone(), impairment), side("right", protection, impairment));
    let (from, to) = (config(&left, options), config(&right, options));
    Pair::connected_with(left, right, &from, &to)
}

/// Checks that Writes, Reads and Sends arrive completely.
fn exchange(pair: &mut Pair) {
    let (slots, len) = (8, 30_001);
    for slot in 0..slots {
        let (sge, remote) = (pair.left.sge(slot * len, len as u32), pair.right.region.remote(HALF + slot * len));
        pair.left.post(pair.from.qpn, slot as u64, SendOp::Write { remote, immediate: None }, &[sge]);
    }
    pair.succeed(slots);
    let sent = &pair.left.nic.bytes(&pair.left.region)[..slots * len];
    assert!(pair.right.nic.bytes(&pair.right.region)[HALF..HALF + slots * len] == *sent, "the written bytes differ");
    pair.left.nic.bytes_mut(&pair.left.region)[HALF..].fill(0xaa);
    for slot in 0..slots {
        let (sge, remote) = (pair.left.sge(HALF + slot * len, len as u32), pair.right.region.remote(slot * len));
        pair.left.post(pair.from.qpn, slot as u64, SendOp::Read { remote }, &[sge]);
    }
    pair.succeed(slots);
    let there = &pair.right.nic.bytes(&pair.right.region)[..slots * len];
    assert!(pair.left.nic.bytes(&pair.left.region)[HALF..HALF + slots * len] == *there, "the read bytes differ");
    let (messages, len) = (50, 1_000);
    for message in 0..messages {
        let sge = pair.right.sge(HALF + message * len, len as u32);
        pair.right.post_recv(pair.to.qpn, message as u64, &[sge]);
        let sge = pair.left.sge(message * len, len as u32);
        pair.left.post(pair.from.qpn, message as u64, SendOp::Send { immediate: Some(message as u32) }, &[sge]);
    }
    pair.succeed(messages);
    let mut received = Vec::new();
    pair.drive(|_, right| {
        received.extend(right.completions());
        (received.len() == messages).then_some(())
    });
    assert!(received.iter().all(|completion| completion.status == WcStatus::Success), "{received:?}");
    let mut numbers: Vec<u32> = received.iter().map(|completion| completion.word).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..messages as u32), "not every message once");
}

fn bad_network(seed: u64) -> Impairment {
    let percent = |percent| Probability::ratio(percent, 100);
    let (loss, corrupt, duplicate, reorder) = (percent(2), percent(1), percent(2), percent(5));
    Impairment { seed, loss, corrupt, duplicate, reorder, ..Impairment::default() }
}

const FORMS: [&[(&str, &str)]; 5] = [
    &[],
    &[("ordering", "weak")],
    &[("flows", "3")],
    &[("flows", "4")],
    &[("flows", "4"), ("ordering", "weak"), ("data_window", "512")],
];

#[test]
fn every_falcon_configuration_transfers_data() {
    for options in FORMS {
        let mut pair = pair(options, None, Impairment::default());
        assert_eq!(pair.from.transport, "falcon");
        exchange(&mut pair);
        let (left, right) = (pair.left.nic.stats(), pair.right.nic.stats());
        assert_eq!(RxDrop::ALL.map(|reason| left.dropped(reason) + right.dropped(reason)), [0; RxDrop::COUNT]);
    }
}

#[test]
fn every_falcon_configuration_survives_impairment_with_and_without_encryption() {
    for options in FORMS {
        for protection in [None, protection(1, Cipher::Gcm128), esp(1, Cipher::Gcm128)] {
            let mut pair = pair(options, protection.clone(), bad_network(3));
            exchange(&mut pair);
            let (left, right) = (*pair.left.nic.stats(), *pair.right.nic.stats());
            assert!(left.impairment.lost > 0 && left.impairment.corrupted > 0, "{left:?}");
            let reason = if protection.is_some() { RxDrop::Forged } else { RxDrop::Icrc };
            assert!(right.dropped(reason) > 0, "no corrupt packet was detected: {right:?}");
            assert!(pair.left.nic.engine_stats().packets_retransmitted > 0);
        }
    }
}

/// Where the adaptive engine's state is stored, and where the engine runs.
const ENGINES: [&[(&str, &str)]; 5] = [
    &[("fae_form", "stateless")],
    &[("fae_form", "prefetching"), ("fae_interface", "2us"), ("fae_work", "1us")],
    &[("fae_place", "thread")],
    &[("fae_place", "thread"), ("fae_form", "prefetching"), ("flows", "4")],
    &[("fae_place", "thread"), ("fae_form", "stateless"), ("flows", "4"), ("ordering", "weak")],
];

/// F-40: with the engine in every location and form, data arrives over a network that loses and reorders packets, and
/// the engine ends with its NIC.
#[test]
fn f40_every_adaptive_engine_transfers_data_over_an_impaired_network() {
    for options in ENGINES {
        let mut pair = pair(options, None, bad_network(5));
        exchange(&mut pair);
        let stats = pair.left.nic.engine_stats();
        assert!(stats.packets_retransmitted > 0, "{options:?}: {stats:?}");
    }
}

/// A table on a thread grows with new connections, and keeps its size when connections are destroyed, even with
/// events in progress.
#[test]
fn f40_connections_are_created_and_destroyed_while_the_engine_runs_on_a_thread() {
    let options: &[(&str, &str)] = &[("fae_place", "thread"), ("fae_form", "prefetching")];
    let mut pair = pair(options, None, Impairment::default());
    let (from, to) = (config(&pair.left, options), config(&pair.right, options));
    let mut connections = Vec::new();
    for _ in 0..40 {
        let (local, _) = common::connect(&mut pair.left, &mut pair.right, &from, &to);
        connections.push(local.qpn);
    }
    for round in 0..3 {
        for qpn in &connections {
            let (sge, remote) = (pair.left.sge(0, 20_000), pair.right.region.remote(HALF));
            pair.left.post(*qpn, round, SendOp::Write { remote, immediate: None }, &[sge]);
        }
        pair.succeed(connections.len());
        // Half of them are destroyed immediately, while their last events are in progress.
        for qpn in connections.split_off(connections.len().div_ceil(2)) {
            pair.left.nic.verbs().destroy_qp(qpn).expect("it exists");
        }
    }
    exchange(&mut pair);
}

/// Checks that closing a NIC with events and packets in flight also ends its engine's thread, without waiting for a
/// peer.
#[test]
fn dropping_a_nic_stops_its_engine_thread() {
    for options in ENGINES {
        let mut pair = pair(options, None, Impairment::default());
        for wr_id in 0..8 {
            let (sge, remote) = (pair.left.sge(0, 60_000), pair.right.region.remote(HALF));
            pair.left.post(pair.from.qpn, wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
        }
        pair.left_completions(1);
        let started = std::time::Instant::now();
        drop(pair);
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{options:?}");
    }
}

/// An option that has no effect with another one is rejected when it is set.
#[test]
fn an_interface_latency_is_rejected_for_an_engine_on_a_thread() {
    let options: &[(&str, &str)] = &[("fae_place", "thread"), ("fae_interface", "1us")];
    let error = TransportChoice::named("falcon", options).expect_err("no effect").to_string();
    assert!(
        error.contains("have no effect when the adaptive engine runs on a thread") && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn f42_packets_are_sealed_with_every_cipher() {
    for cipher in Cipher::ALL {
        for protection in [protection(1, cipher), esp(1, cipher)] {
            exchange(&mut pair(&[], protection, Impairment::default()));
        }
    }
}

/// A connection is refused if parameters that must be equal differ, and the initiator is told the other end's
/// parameters.
#[test]
fn ends_with_different_parameters_do_not_connect() {
    let plain: &[(&str, &str)] = &[];
    let key = || protection(1, Cipher::Gcm128);
    type Case = (&'static [(&'static str, &'static str)], [Option<Protection>; 2], &'static str);
    let cases: [Case; 6] = [
        (&[("ordering", "weak")], [None, None], "ordering=weak"),
        (&[("flows", "4")], [None, None], "flows=4"),
        (&[("errors", "complete-in-error")], [None, None], "complete-in-error"),
        (plain, [key(), None], "no key"),
        (plain, [key(), esp(1, Cipher::Gcm128)], " in ESP"),
        (plain, [key(), protection(2, Cipher::Gcm128)], "key "),
    ];
    for (options, [here, there], expected_text) in cases {
        let mut left = side("left", here, Impairment::default());
        let mut right = side("right", there, Impairment::default());
        right.nic.listen(PORT, 8).expect("a free service");
        let (from, to) = (config(&left, options), config(&right, plain));
        left.nic.start_connect(right.addr(), PORT, &from).expect("there is a route to the other side");
        let mut refused = None;
        let error = drive(&mut left, &mut right, |left, right| {
            if let Some(ConnectionEvent::Requested(request)) = right.event() {
                refused = right.nic.accept(request.id, &to).err();
            }
            match left.event()? {
                ConnectionEvent::Failed { error, .. } => Some(error),
                event => panic!("{event:?}"),
            }
        });
        let refused = refused.expect("the other end refuses the connection").to_string();
        assert!(refused.contains(expected_text), "{refused}");
        assert!(error.to_string().contains("the other end uses falcon with ordering=ordered"), "{error}");
    }
}

/// An end may disconnect right after refusing a request: its peer still learns the reason, whichever of the two
/// messages it processes first.
#[test]
fn a_disconnect_right_after_a_refusal_keeps_the_reason() {
    type End = fn(&mut Side, &rnic_host::Connection);
    let ends: [End; 2] =
        [|side, to| side.nic.disconnect(to.id).expect("it is connected"), |side, to| side.nic.close(to.id)];
    for end in ends {
        for options in [&[][..], &[("ordering", "weak")], &[("flows", "4")]] {
            let mut pair = pair(options, None, Impairment::default());
            let mut remote = pair.right.region.remote(HALF);
            remote.rkey ^= 0x1357;
            for wr_id in 0..3 {
                let sge = pair.left.sge(0, 5_000);
                pair.left.post(pair.from.qpn, wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
            }
            let (to, mut has_ended) = (pair.to.clone(), false);
            let mut done = Vec::new();
            pair.drive(|left, right| {
                if right.nic.verbs().poll_event().is_some() && !std::mem::replace(&mut has_ended, true) {
                    end(right, &to);
                }
                done.extend(left.completions().iter().map(|completion| (completion.wr_id, completion.status)));
                (done.len() == 3).then_some(())
            });
            let flushed = [1, 2].map(|wr_id| (wr_id, WcStatus::WrFlushed));
            assert!(
                has_ended && done == [&[(0, WcStatus::RemoteAccess)], &flushed[..]].concat(),
                "{options:?}: {done:?}"
            );
        }
    }
}

/// The first queue pair of a NIC determines the NIC's resources; an error for a queue pair that wants other resources
/// names both values, at either end.
#[test]
fn resources_that_differ_from_those_of_the_nic_are_refused() {
    let mut left = side("left", None, Impairment::default());
    let mut right = side("right", None, Impairment::default());
    right.nic.listen(PORT, 8).expect("a free service");
    let small: &[(&str, &str)] = &[("resources", "200")];
    let (from, to) = (config(&left, small), config(&right, small));
    common::connect(&mut left, &mut right, &from, &to);
    // A configuration without a choice accepts the NIC's resources, even if they differ from the default.
    let (from, to) = (config(&left, &[]), config(&right, &[]));
    common::connect(&mut left, &mut right, &from, &to);

    let check_error = |error: &str| {
        let both = error.contains("resources=300") && error.contains("resources=200");
        assert!(both && error.lines().count() == 1, "{error}");
    };
    let large = config(&left, &[("resources", "300")]);
    let error = left.nic.start_connect(right.addr(), PORT, &large).expect_err("no effect");
    check_error(&error.to_string());
    left.nic.start_connect(right.addr(), PORT, &from).expect("there is a route to the other side");
    let large = config(&right, &[("resources", "300")]);
    let error = drive(&mut left, &mut right, |_, right| match right.event()? {
        ConnectionEvent::Requested(request) => Some(right.nic.accept(request.id, &large).err()),
        _ => None,
    });
    check_error(&error.expect("the other end refuses the connection").to_string());
}

/// Ends with different secrets connect if their fingerprints happen to be equal, but then no packet is authenticated.
#[test]
fn packets_with_another_secret_are_not_authenticated() {
    let secret = |number: u32| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        Secret::new(bytes)
    };
    // Found by trial and error.
    let [here, there] = [0, 112_244].map(secret);
    assert!(here != there && here.fingerprint() == there.fingerprint());
    let protection = |secret| Some(Protection::new(secret, Cipher::Gcm128));
    let mut left = side("left", protection(here), Impairment::default());
    let mut right = side("right", protection(there), Impairment::default());
    let peer_timeout = rnic_base::Duration::from_ms(200);
    let (from, to) = (config(&left, &[]), config(&right, &[]));
    let from = ConnectionConfig { peer_timeout, ..from };
    right.nic.listen(PORT, 8).expect("a free service");
    let (from, _) = common::connect(&mut left, &mut right, &from, &to);
    let (sge, remote) = (left.sge(0, 100), right.region.remote(HALF));
    let before = right.nic.bytes(&right.region).to_vec();
    left.post(from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    drive(&mut left, &mut right, |_, right| (right.nic.stats().dropped(RxDrop::Forged) > 3).then_some(()));
    assert!(right.nic.bytes(&right.region) == before, "data were placed");
    assert_eq!(left.completions().len(), 0);
}

/// Resets a queue pair and connects it to `dest_qpn` of the other side, as a program does after an error.
fn connect_anew(side: &mut Side, qpn: Qpn, dest_qpn: Qpn, at: SocketAddr) {
    let peer = side.nic.acquire_peer(at).expect("the other end");
    let (mtu, psn) = (4_096, Psn::new(5));
    side.nic.verbs().modify_to_reset(qpn).expect("it exists");
    side.nic.verbs().modify_to_init(qpn).expect("it is reset");
    let min_rnr_timer = RnrTimer::at_least(rnic_base::Duration::from_us(100));
    let connection = QpConnection { peer, dest_qpn, rq_psn: psn, mtu, min_rnr_timer, max_dest_rd_atomic: 16 };
    side.nic.verbs().modify_to_rtr(qpn, &connection).expect("legal attributes");
    let timing = QpTiming { sq_psn: psn, retry_count: 7, rnr_retry: None, max_rd_atomic: 16 };
    side.nic.verbs().modify_to_rts(qpn, &timing).expect("legal attributes");
}

/// The end that is ready first receives packets that the other sent before its reset; these are dropped, and later
/// ones are accepted.
#[test]
fn f42_queue_pairs_that_are_reset_one_after_the_other_exchange_data() {
    [protection(1, Cipher::Gcm128), esp(1, Cipher::Gcm128)].into_iter().for_each(reset_one_after_the_other);
}

fn reset_one_after_the_other(protection: Option<Protection>) {
    let mut pair = pair(&[], protection, Impairment::default());
    exchange(&mut pair);
    let (from, to) = (pair.from.qpn, pair.to.qpn);
    for round in 0..5u64 {
        let (sge, remote) = (pair.left.sge(0, 100), pair.right.region.remote(HALF));
        let write = SendOp::Write { remote, immediate: None };
        let (left_addr, dropped) = (pair.left.addr(), pair.right.nic.stats().dropped(RxDrop::Protection));
        connect_anew(&mut pair.right, to, from, left_addr);
        pair.left.post(from, round, write, &[sge]);
        pair.drive(|_, right| (right.nic.stats().dropped(RxDrop::Protection) > dropped).then_some(()));
        let right_addr = pair.right.addr();
        connect_anew(&mut pair.left, from, to, right_addr);
        pair.left.post(from, 100 + round, write, &[sge]);
        let done = pair.drive(|left, _| left.completions().into_iter().find(|done| done.wr_id == 100 + round));
        assert_eq!(done.status, WcStatus::Success, "round {round}");
    }
    exchange(&mut pair);
}

/// Acknowledgements are delayed in order to be combined. If a queue pair ends right after its last completion, its
/// peer still gets them.
#[test]
fn a_queue_pair_sends_its_pending_acknowledgements_before_it_ends() {
    type End = fn(&mut Side, &rnic_host::Connection);
    let ends: [(&str, End); 4] = [
        ("destroyed", |side, to| side.nic.verbs().destroy_qp(to.qpn).expect("it exists")),
        ("failed", |side, to| side.nic.verbs().modify_to_error(to.qpn).expect("it exists")),
        ("disconnected", |side, to| side.nic.disconnect(to.id).expect("it is connected")),
        ("closed", |side, to| side.nic.close(to.id)),
    ];
    for (name, end) in ends {
        for options in [&[][..], &[("ordering", "weak")], &[("flows", "4")]] {
            let mut pair = pair(options, None, Impairment::default());
            let sge = pair.right.sge(HALF, 100);
            pair.right.post_recv(pair.to.qpn, 7, &[sge]);
            let sge = pair.left.sge(0, 100);
            pair.left.post(pair.from.qpn, 1, SendOp::Send { immediate: None }, &[sge]);
            let to = pair.to.clone();
            pair.drive(|_, right| {
                let received = right.completions().pop()?;
                assert_eq!(received.status, WcStatus::Success);
                end(right, &to);
                Some(())
            });
            let done = pair.left_completions(1);
            assert_eq!(done[0].status, WcStatus::Success, "{name}, {options:?}");
        }
    }
}

/// Keys rotate at both ends while packets are in flight, with loss, delay and duplication.
#[test]
fn f42_keys_rotate_under_traffic() {
    let often = Protection { packets_per_key: 5, ..protection(7, Cipher::Gcm256).expect("the protection exists") };
    for (options, form) in [&[][..], &[("flows", "4"), ("ordering", "weak")]]
        .into_iter()
        .flat_map(|options| [(options, SecurityFormat::Psp), (options, SecurityFormat::Esp)])
    {
        let mut pair = pair(options, Some(often.clone().within(form)), bad_network(3));
        exchange(&mut pair);
        for stats in [pair.left.nic.stats(), pair.right.nic.stats()] {
            assert!(stats.key_changes > 5, "{options:?}: {}", stats.key_changes);
            // Late packets do not count as replays. In ESP, packets that the network has duplicated are refused by
            // their sequence number.
            let refused = stats.dropped(RxDrop::Replay);
            assert!(form == SecurityFormat::Esp || refused == 0, "{options:?}: {stats:?}");
        }
    }
}

/// In ESP, a recorded packet is refused immediately because of its sequence number.
#[test]
fn f42_replayed_esp_packets_are_refused_immediately() {
    let file = SharedFile::default();
    let mut pair = pair(&[], esp(7, Cipher::Gcm256), Impairment::default());
    pair.right.nic.start_capture(Box::new(file.clone())).expect("a capture");
    exchange(&mut pair);
    let to = pair.right.addr();
    let is_incoming = |frame: &Vec<u8>| frame[36..38] == to.port().to_be_bytes() && frame[42] >= 0xc0;
    let recorded: Vec<Vec<u8>> = file.frames().into_iter().filter(is_incoming).collect();
    let attacker = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for frame in &recorded {
        attacker.send_to(&frame[42..], to).expect("it is sent");
        let refused = pair.right.nic.stats().dropped(RxDrop::Replay);
        pair.drive(|_, right| (right.nic.stats().dropped(RxDrop::Replay) > refused).then_some(()));
    }
    assert!(recorded.len() > 50, "{} packets", recorded.len());
    exchange(&mut pair);
}

/// Packets recorded on the network are sent another time later in the connection, when they must be refused.
#[test]
fn f42_packets_replayed_later_are_refused() {
    let file = SharedFile::default();
    let mut pair = pair(&[], protection(7, Cipher::Gcm128), Impairment::default());
    pair.right.nic.start_capture(Box::new(file.clone())).expect("a capture");
    exchange(&mut pair);
    let port = pair.right.addr().port();
    let recorded: Vec<Vec<u8>> =
        file.frames().into_iter().filter(|frame| falcon_source(frame, port).is_some()).collect();
    std::thread::sleep(std::time::Duration::from_millis(600));
    exchange(&mut pair);
    let attacker = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    const SENT: usize = 20;
    for frame in &recorded[..SENT] {
        attacker.send_to(&frame[42..], pair.right.addr()).expect("it is sent");
    }
    pair.drive(|_, right| (right.nic.stats().drops[RxDrop::Replay as usize] == SENT as u64).then_some(()));
    exchange(&mut pair);
    assert_eq!(pair.right.nic.stats().drops[RxDrop::Forged as usize], 0);
}

/// Packets of different flows are sent from different ports, those of one flow from one port at a time.
#[test]
fn flows_use_separate_source_ports() {
    for (flows, least, most) in [("1", 1, 1), ("3", 2, 12), ("4", 3, 16)] {
        let file = SharedFile::default();
        let mut pair = pair(&[("flows", flows)], None, Impairment::default());
        pair.right.nic.start_capture(Box::new(file.clone())).expect("a capture");
        exchange(&mut pair);
        let ports = falcon_sources(&file, pair.right.addr().port());
        assert!((least..=most).contains(&ports.len()), "{flows} flows from the ports {ports:?}");
        assert_eq!(ports.contains(&pair.left.addr().port()), flows == "1");
    }
}

/// Packets that an impairment delays are still sent from the ports of their flows, as the receiver's capture shows.
#[test]
fn delayed_packets_use_the_source_ports_of_their_flows() {
    let file = SharedFile::default();
    let delay = rnic_base::Duration::from_us(200);
    let mut pair = pair(&[("flows", "4")], None, Impairment { delay, ..Impairment::default() });
    pair.right.nic.start_capture(Box::new(file.clone())).expect("a capture");
    exchange(&mut pair);
    let ports = falcon_sources(&file, pair.right.addr().port());
    assert!((3..=16).contains(&ports.len()) && !ports.contains(&pair.left.addr().port()), "{ports:?}");
}

/// Returns the distinct source ports of the Falcon packets to port `to`; panics if there are 50 packets or less.
fn falcon_sources(file: &SharedFile, to: u16) -> Vec<u16> {
    let mut ports: Vec<u16> = file.frames().iter().filter_map(|frame| falcon_source(frame, to)).collect();
    assert!(ports.len() > 50, "{} packets", ports.len());
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Returns the source port of a Falcon packet to port `to`; the frame must be IPv4 without options.
fn falcon_source(frame: &[u8], to: u16) -> Option<u16> {
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (port(36) == to && frame[42] == 252).then(|| port(34))
}
