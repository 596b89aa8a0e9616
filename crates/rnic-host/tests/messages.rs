//! Messages between NICs (SCR) on sockets: round trips by probes, back-pressure, grants, and congestion control by
//! probes. The rules against hostile senders are tested in `hostile_messages.rs`.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{HALF, Pair, SharedFile, Side, chosen, connect_qps, drive, drive_for, new_qp_of};
use rnic_base::{BitRate, Psn32};
use rnic_engine::messages::cadence::Modes;
use rnic_engine::messages::peer::DropCause;
use rnic_engine::{QpSnapshot, SendOp, Service, Signal};
use rnic_host::observe::{ControlReply, ControlRequest, Identity, SignalBatch, SignalRecord, SignalsRequest};
use rnic_host::{
    Hint, Impairment, MessagesConfig, NicConfig, NicError, Notice, Protection, RxDrop, Settings, TransportChoice,
    messages_of,
};
use rnic_psp::{Secret, SecurityFormat};
use rnic_wire::falcon::psp::{self, Cipher};
use rnic_wire::scr::{Body, Cookie, Message, ProbePath, Type, is_message};
use rnic_wire::{Addresses, Qpn};

/// Messages with frequent probes, so that tests are short.
const MESSAGES: MessagesConfig = MessagesConfig {
    grants: false,
    pressure_bytes: None,
    probe_interval: Some(rnic_base::Duration::from_ms(5)),
    reports: Modes { periodic: true, sampling_bytes: None, anomaly: false },
};

fn at_loopback() -> NicConfig {
    NicConfig { messages: Some(MESSAGES), ..NicConfig::at("127.0.0.1:0".parse().expect("an address")) }
}

fn pair_of(configs: [NicConfig; 2], choices: [TransportChoice; 2]) -> Pair {
    let [left, right] = configs.map(Side::open);
    let [from, to] = choices;
    let (from, to) = (left.config("irn").with_transports(vec![from]), right.config("irn").with_transports(vec![to]));
    Pair::connected_with(left, right, &from, &to)
}

/// Writes `len` bytes, at most half of a side's memory, and waits for the completion.
fn write(left: &mut Side, right: &mut Side, qpn: Qpn, len: u32) {
    let remote = right.region.remote(HALF);
    let sge = left.sge(0, len);
    left.post(qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    drive(left, right, |left, _| left.completions().pop());
}

fn view(side: &Side, qpn: Qpn) -> QpSnapshot {
    let mut views = side.nic.queue_pairs().map(|(view, _)| view);
    views.find(|view| view.info.number == qpn).expect("the queue pair exists")
}

/// Waits until both ends know each other, and a probe of `qpn` has been answered.
fn measured(left: &mut Side, right: &mut Side, qpn: Qpn) -> rnic_base::Duration {
    let start = Instant::now();
    loop {
        write(left, right, qpn, 1_000);
        drive_for(left, right, Duration::from_millis(2));
        if let Some(round_trip) = messages_of(&left.nic).and_then(|messages| messages.round_trip(qpn)) {
            return round_trip;
        }
        assert!(
            start.elapsed() < common::TEST_TIMEOUT,
            "no round trip: {:?}",
            messages_of(&left.nic).map(|m| *m.stats())
        );
    }
}

fn assert_measured(left: &mut Side, right: &mut Side, qpn: Qpn) {
    let round_trip = measured(left, right, qpn);
    assert!(round_trip > rnic_base::Duration::ZERO && round_trip < rnic_base::Duration::from_secs(1), "{round_trip}");
    let stats = messages_of(&left.nic).expect("messages are on").stats();
    assert!(stats.sent(Type::Probe) > 1 && stats.accepted(Type::Answer) > 1, "{stats:?}");
    let stats = messages_of(&right.nic).expect("messages are on").stats();
    assert!(stats.accepted(Type::Probe) > 0 && stats.sent(Type::Answer) > 0, "{stats:?}");
}

#[test]
fn s8_two_nics_measure_round_trips_by_probes() {
    for transport in ["irn", "roce-gbn", "falcon"] {
        let choice = || chosen(transport, &[]);
        let Pair { mut left, mut right, from, .. } = pair_of([at_loopback(), at_loopback()], [choice(), choice()]);
        assert_measured(&mut left, &mut right, from.qpn);
    }
}

/// NICs that share their machine: the hello agrees on messages, over UDP, and in shared memory where data takes it.
#[test]
fn s8_nics_that_share_a_machine_measure_round_trips_on_the_path_of_data() {
    for bypass in [false, true] {
        let open = || Side::open(NicConfig { bypass, messages: Some(MESSAGES), ..NicConfig::shared() });
        let (mut left, mut right) = (open(), open());
        let choice = chosen("irn", &[]);
        let numbers = [&mut left, &mut right].map(|side| new_qp_of(side, Service::ReliableConnection, &choice, 64));
        connect_qps(&mut left, &mut right, numbers.into(), 77);
        assert_measured(&mut left, &mut right, numbers[0]);
        if bypass {
            let probes = |side: &Side| messages_of(&side.nic).expect("on").stats().accepted(Type::Probe);
            drive_for(&mut left, &mut right, Duration::from_millis(20));
            let (udp, before) = (right.nic.stats().datagrams_received, probes(&right));
            let start = Instant::now();
            while probes(&right) < before + 5 {
                write(&mut left, &mut right, numbers[0], 1_000);
                drive_for(&mut left, &mut right, Duration::from_millis(2));
                assert!(start.elapsed() < common::TEST_TIMEOUT, "probes do not arrive");
            }
            assert_eq!(right.nic.stats().datagrams_received, udp, "probes took another path than data");
        }
    }
}

/// In shared memory, too, messages are delayed like packets, those about a whole NIC included (rule 8 of scr.md section
/// 5.4).
#[test]
fn s6_delayed_messages_arrive_through_shared_memory() {
    let impairment = Impairment { delay: rnic_base::Duration::from_ms(1), ..Impairment::default() };
    let mut sides =
        [(); 2].map(|()| Side::open(NicConfig { bypass: true, messages: Some(MESSAGES), ..NicConfig::shared() }));
    let [left, right] = &mut sides;
    let choice = chosen("irn", &[]);
    let numbers = [&mut *left, &mut *right].map(|side| new_qp_of(side, Service::ReliableConnection, &choice, 64));
    connect_qps(left, right, numbers.into(), 77);
    left.nic.set_impairment(impairment);
    right.nic.set_impairment(impairment);
    assert_measured(left, right, numbers[0]);
    let round_trip = measured(left, right, numbers[0]);
    // A clock that has ended a delay may be late, and the time at the other end is taken out.
    assert!(round_trip > rnic_base::Duration::from_us(1_900), "{round_trip}");
    for side in sides {
        let stats = side.nic.stats();
        assert_eq!([RxDrop::ForeignPort, RxDrop::Icrc, RxDrop::Malformed].map(|reason| stats.dropped(reason)), [0; 3]);
    }
}

/// Three NICs at one address: each has its own cookies, and none takes another's messages for its peer's.
#[test]
fn s6_nics_at_one_address_are_different_peers() {
    let open = || Side::open(NicConfig { bypass: false, messages: Some(MESSAGES), ..NicConfig::shared() });
    let (mut left, mut others) = (open(), [open(), open()]);
    let choice = chosen("irn", &[]);
    for (psn, other) in (1..).zip(&mut others) {
        let numbers = [&mut left, &mut *other].map(|side| new_qp_of(side, Service::ReliableConnection, &choice, 64));
        connect_qps(&mut left, other, numbers.into(), psn);
        assert_measured(&mut left, other, numbers[0]);
    }
    assert_eq!(messages_of(&left.nic).expect("messages are on").stats().all_dropped(), 0);
}

#[test]
fn s6_a_peer_that_exchanges_no_messages_is_sent_none() {
    let silent = || NicConfig { messages: None, ..at_loopback() };
    for configs in [[at_loopback(), silent()], [silent(), at_loopback()]] {
        let mut pair = pair_of(configs, [chosen("irn", &[]), chosen("irn", &[])]);
        for _ in 0..20 {
            write(&mut pair.left, &mut pair.right, pair.from.qpn, 100_000);
            drive_for(&mut pair.left, &mut pair.right, Duration::from_millis(2));
        }
        for side in [&pair.left, &pair.right] {
            assert_eq!((side.nic.stats().nic_messages_sent, side.nic.stats().nic_messages_received), (0, 0));
        }
    }
}

/// A transport that cannot work without messages says so.
#[test]
fn s23_a_peer_without_messages_is_reported_when_congestion_control_needs_them() {
    let by_probes = TransportChoice::with_messages("irn", &[("control", "swift-rate")]).expect("a composition");
    let open = |messages| Side::open(NicConfig { bypass: false, messages, ..NicConfig::shared() });
    let (mut left, mut right) = (open(Some(MESSAGES)), open(None));
    let from = new_qp_of(&mut left, Service::ReliableConnection, &by_probes, 64);
    let to = new_qp_of(&mut right, Service::ReliableConnection, &chosen("irn", &[]), 64);
    connect_qps(&mut left, &mut right, (from, to), 77);
    let is_report = |notice: &Notice| matches!(notice, Notice::PeerWithoutMessages(_));
    drive(&mut left, &mut right, |left, _| left.nic.poll_notice().filter(is_report));
    // Its rate is not cut for probes that cannot be answered.
    write(&mut left, &mut right, from, 400_000);
    assert_eq!(view(&left, from).allowed_rate, Some(BitRate::gbps(100)));
}

#[test]
fn s8_snapshots_for_watchers_show_messages_and_probed_round_trips() {
    let mut pair = pair_of([at_loopback(), at_loopback()], [chosen("irn", &[]), chosen("irn", &[])]);
    measured(&mut pair.left, &mut pair.right, pair.from.qpn);
    let snapshot = pair.left.nic.snapshot(&Identity::of_process("rnic0", "UDP", &Settings::default()));
    let counters = snapshot.counters;
    assert!(counters.nic_messages_sent > 2 && counters.nic_messages_received > 2, "{counters:?}");
    assert!(snapshot.queue_pairs[0].probed_round_trip_us.is_some_and(|us| us > 0.0), "{snapshot:?}");
    let silent = Side::at("127.0.0.1:0").nic.snapshot(&Identity::of_process("rnic0", "UDP", &Settings::default()));
    assert_eq!(silent.counters.nic_messages_sent, 0);
}

#[test]
fn s6_a_capture_contains_messages() {
    let file = SharedFile::default();
    let mut pair = pair_of([at_loopback(), at_loopback()], [chosen("irn", &[]), chosen("irn", &[])]);
    pair.left.nic.start_capture(Box::new(file.clone())).expect("memory");
    measured(&mut pair.left, &mut pair.right, pair.from.qpn);
    pair.left.nic.stop_capture();
    let from_left = pair.left.addr().port().to_be_bytes();
    // Ethernet 14, IPv4 20, UDP 8.
    let (sent, received): (Vec<_>, Vec<_>) = file
        .frames()
        .into_iter()
        .filter(|frame| frame.len() == 42 + 128 && frame[42] == 0xc0)
        .partition(|frame| frame[34..36] == from_left);
    assert!(!sent.is_empty() && !received.is_empty(), "{} sent, {} received", sent.len(), received.len());
}

/// The receiver is driven too rarely: what waits in its receive buffer exceeds the threshold, it sends back-pressure,
/// and the sender is slowed down. When the buffer is empty again, the limit goes.
#[test]
fn s26_a_receiver_that_falls_behind_slows_its_sender_down_and_the_sender_recovers() {
    ["irn", "falcon"].into_iter().for_each(slows_its_sender_down);
}

fn slows_its_sender_down(transport: &str) {
    let plain = NicConfig { receive_offload: false, segmentation: false, ..at_loopback() };
    let pressed = MessagesConfig { pressure_bytes: Some(64 << 10), ..MESSAGES };
    let right = NicConfig { messages: Some(pressed), ..plain.clone() };
    let Pair { mut left, mut right, from, .. } =
        pair_of([plain, right], [chosen(transport, &[]), chosen(transport, &[])]);
    measured(&mut left, &mut right, from.qpn);
    assert_eq!(view(&left, from.qpn).info.peer_limit, None);
    let (sge, remote) = (left.sge(0, HALF as u32), right.region.remote(HALF));
    let start = Instant::now();
    let mut posted = 0u32;
    while view(&left, from.qpn).info.peer_limit.is_none() {
        while left.nic.send_queue_space(from.qpn).is_some_and(|space| space > 0) && posted < 1_000 {
            left.post(from.qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
            posted += 1;
        }
        (0..8).for_each(|_| {
            left.nic.progress();
        });
        right.nic.progress();
        posted -= left.completions().len() as u32;
        assert!(
            start.elapsed() < common::TEST_TIMEOUT,
            "no back-pressure: {:?}",
            messages_of(&right.nic).map(|m| *m.stats())
        );
    }
    let limit = view(&left, from.qpn).info.peer_limit.expect("it is limited");
    // Half of the line at first, and more the longer ago that was.
    assert!(limit < BitRate::gbps(100), "{limit}");
    assert!(messages_of(&right.nic).expect("messages are on").stats().notices_sent > 0);
    drive(&mut left, &mut right, |left, _| {
        posted -= left.completions().len() as u32;
        (posted == 0).then_some(())
    });
    drive(&mut left, &mut right, |left, _| view(left, from.qpn).info.peer_limit.is_none().then_some(()));
}

/// A receiver with a line of 1 Gbit/s grants no more than that, and the sender keeps to it; an idle sender's limit is
/// lifted.
#[test]
fn s25_a_receiver_grants_the_rate_of_its_line() {
    ["irn", "falcon"].into_iter().for_each(grants_the_rate_of_its_line);
}

fn grants_the_rate_of_its_line(transport: &str) {
    let granting = MessagesConfig { grants: true, ..MESSAGES };
    let right = NicConfig { messages: Some(granting), line_rate: BitRate::gbps(1), ..at_loopback() };
    let choices = [chosen(transport, &[]), chosen(transport, &[])];
    let Pair { mut left, mut right, from, .. } = pair_of([at_loopback(), right], choices);
    measured(&mut left, &mut right, from.qpn);
    let start = Instant::now();
    while view(&left, from.qpn).info.peer_limit.is_none() {
        write(&mut left, &mut right, from.qpn, HALF as u32);
        assert!(start.elapsed() < common::TEST_TIMEOUT, "no grant: {:?}", messages_of(&right.nic).map(|m| *m.stats()));
    }
    let limit = view(&left, from.qpn).info.peer_limit.expect("it is limited");
    assert!(limit <= BitRate::gbps(1), "{limit}");
    let start = Instant::now();
    let mut bits = 0;
    while start.elapsed() < Duration::from_millis(500) {
        write(&mut left, &mut right, from.qpn, HALF as u32);
        bits += 8 * HALF as u64;
    }
    let rate = bits as f64 / start.elapsed().as_secs_f64() / 1e9;
    assert!(rate < 1.1, "{rate} Gbit/s with a grant of {limit}");
    drive(&mut left, &mut right, |left, _| view(left, from.qpn).info.peer_limit.is_none().then_some(()));
}

/// Each packet of the left end takes 5 ms longer than its target: the rate falls to the lowest. Without the delay it
/// grows again.
#[test]
fn s23_swift_rate_follows_the_round_trips_of_probes_on_sockets() {
    let options = [("control", "swift-rate"), ("rate_min", "2Gbps"), ("rate_max", "20Gbps"), ("base", "2ms")];
    let choice = || TransportChoice::with_messages("irn", &options).expect("a composition");
    let delay = rnic_base::Duration::from_ms(5);
    let late = NicConfig { impairment: Impairment { delay, ..Impairment::default() }, ..at_loopback() };
    let Pair { mut left, mut right, from, .. } = pair_of([late, at_loopback()], [choice(), choice()]);
    let rate = |left: &Side| view(left, from.qpn).allowed_rate.expect("it is controlled");
    assert_eq!(rate(&left), BitRate::gbps(20));
    let start = Instant::now();
    while rate(&left) > BitRate::gbps(2) {
        write(&mut left, &mut right, from.qpn, 200_000);
        assert!(start.elapsed() < common::TEST_TIMEOUT, "still {}", rate(&left));
    }
    assert!(
        messages_of(&left.nic).expect("messages are on").stats().accepted(Type::Answer) > 1,
        "by answers, not losses"
    );
    left.nic.set_impairment(Impairment::default());
    let start = Instant::now();
    while rate(&left) < BitRate::gbps(4) {
        write(&mut left, &mut right, from.qpn, HALF as u32);
        assert!(start.elapsed() < common::TEST_TIMEOUT, "still {}", rate(&left));
    }
}

/// The answers of a NIC are limited; with the defaults, the probes of a queue pair that sends all the time are fewer.
#[test]
fn s23_no_probe_of_swift_rate_exceeds_the_answers_of_the_peer() {
    let choice = || TransportChoice::with_messages("irn", &[("control", "swift-rate")]).expect("a composition");
    let Pair { mut left, mut right, from, .. } = pair_of([at_loopback(), at_loopback()], [choice(), choice()]);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_500) {
        write(&mut left, &mut right, from.qpn, 100_000);
    }
    let stats = messages_of(&right.nic).expect("messages are on").stats();
    assert!(stats.accepted(Type::Probe) > 10, "{stats:?}");
    assert_eq!(stats.dropped(DropCause::RateLimited), 0, "{stats:?}");
}

#[test]
fn policies_that_need_messages_are_refused_without_them() {
    let refused = TransportChoice::named("irn", &[("control", "swift-rate")]).expect_err("no messages").to_string();
    assert!(refused.contains("controller `swift-rate` needs probes") && refused.contains("--messages on"), "{refused}");
    let paths = [("paths", "probed")];
    for refused in [TransportChoice::named("irn", &paths), TransportChoice::for_roce_peers(&paths)] {
        let refused = refused.expect_err("no messages").to_string();
        assert!(refused.contains("path policy `probed` needs probes") && refused.lines().count() == 1, "{refused}");
    }
    let falcon = TransportChoice::with_messages("falcon", &paths).expect_err("it has flows").to_string();
    assert!(falcon.contains("`probed`") && falcon.lines().count() == 1, "{falcon}");
}

#[test]
fn messages_are_refused_where_they_would_not_be_understood() {
    let roce = NicConfig { real_roce_peers: true, messages: Some(MESSAGES), ..NicConfig::shared() };
    let error = rnic_host::Nic::open(roce).expect_err("it has messages");
    assert!(matches!(error, NicError::Setting { what: "messages between NICs", .. }), "{error}");
}

fn protection(form: SecurityFormat) -> Option<Protection> {
    Some(Protection::new(Secret::new([1; 32]), Cipher::Gcm128).within(form))
}

/// Rule 2 of scr.md section 5.4: where packets are sealed, so are messages. No byte of them is visible, and those that
/// are not sealed are dropped.
#[test]
fn s6_nics_with_a_key_seal_their_messages() {
    for form in [SecurityFormat::Psp, SecurityFormat::Esp] {
        let config = || NicConfig { protection: protection(form), ..at_loopback() };
        let Pair { mut left, mut right, from, .. } =
            pair_of([config(), config()], [chosen("falcon", &[]), chosen("falcon", &[])]);
        let file = SharedFile::default();
        right.nic.start_capture(Box::new(file.clone())).expect("memory");
        assert_measured(&mut left, &mut right, from.qpn);
        right.nic.stop_capture();
        // Ethernet 14, IPv4 20, UDP 8.
        let is_clear = |frame: &&Vec<u8>| is_message(&frame[42..]);
        assert_eq!(file.frames().iter().filter(is_clear).count(), 0, "a message that is not sealed");
        let stats = right.nic.stats();
        assert_eq!(RxDrop::ALL.map(|reason| stats.dropped(reason)).iter().sum::<u64>(), 0, "{stats:?}");
    }
}

/// Returns the signals of `side` since the last call.
fn take_signals(side: &mut Side) -> Vec<Signal> {
    match ControlRequest::Signals(SignalsRequest { signals_max: 1_000 }).apply(&mut side.nic) {
        ControlReply::Signals(SignalBatch { records, lost: 0 }) => {
            records.iter().filter_map(SignalRecord::signal).collect()
        }
        reply => panic!("{reply:?}"),
    }
}

/// The signals of a NIC whose packets are lost, with grants, probes and a hint.
#[test]
fn s4_a_nic_collects_signals_while_an_operator_asks_for_them() {
    let config = || NicConfig { messages: Some(MessagesConfig { grants: true, ..MESSAGES }), ..at_loopback() };
    let choice = || chosen("roce-gbn", &[]);
    let Pair { mut left, mut right, from, .. } = pair_of([config(), config()], [choice(), choice()]);
    assert_eq!(take_signals(&mut left), [], "nothing was collected before");
    assert_eq!(take_signals(&mut right), []);
    left.nic.set_impairment(Impairment { loss: "5%".parse().expect("a probability"), ..Impairment::default() });
    left.nic.verbs().hint_line().write(Hint { weight: 3, cap_kbps: 500_000 });
    let wanted = ["tx", "ack", "nack", "rtt", "credit", "hint", "rx", "bus", "nic", "peer-bus", "peer-nic"];
    let mut seen: BTreeMap<&str, Vec<Signal>> = BTreeMap::new();
    let start = Instant::now();
    while !wanted.iter().all(|kind| seen.contains_key(kind)) {
        assert!(start.elapsed() < common::TEST_TIMEOUT, "{:?}", seen.keys());
        write(&mut left, &mut right, from.qpn, 50_000);
        drive_for(&mut left, &mut right, Duration::from_millis(2));
        let rx = take_signals(&mut right).into_iter().filter(|signal| signal.kind.name() == "rx");
        let signals: Vec<_> = take_signals(&mut left).into_iter().chain(rx).collect();
        signals.into_iter().for_each(|signal| seen.entry(signal.kind.name()).or_default().push(signal));
    }
    for kind in ["tx", "ack", "nack", "rtt", "credit"] {
        assert!(seen[kind].iter().all(|signal| signal.subject == from.qpn.get()), "{kind}: {:?}", seen[kind]);
    }
    let hint = seen["hint"][0];
    assert_eq!((hint.value, hint.level), (500_000_000, 3 << 16));
    assert!(seen["credit"].iter().all(|signal| signal.value > 0) && seen["rtt"].iter().all(|signal| signal.value > 0));

    // Two seconds after the last request, collecting ends.
    let end = Instant::now() + Duration::from_millis(2_100);
    while Instant::now() < end {
        drive_for(&mut left, &mut right, Duration::from_millis(20));
    }
    write(&mut left, &mut right, from.qpn, 50_000);
    assert_eq!(take_signals(&mut left), []);

    // Acknowledgements from before collecting began again are no signals.
    drive_for(&mut left, &mut right, Duration::from_millis(20));
    write(&mut left, &mut right, from.qpn, 50_000);
    drive_for(&mut left, &mut right, Duration::from_millis(20));
    let acks: Vec<_> = take_signals(&mut left).into_iter().filter(|signal| signal.kind.name() == "ack").collect();
    let bytes: u64 = acks.iter().map(|signal| signal.bytes).sum();
    assert!((50_000..100_000).contains(&bytes), "{acks:?}");
}

/// On one machine, with the port of data, and in shared memory.
#[test]
fn s6_nics_with_a_key_that_share_a_machine_exchange_messages() {
    for (bypass, form) in [(false, SecurityFormat::Psp), (true, SecurityFormat::Psp), (true, SecurityFormat::Esp)] {
        let open = || {
            let protection = protection(form);
            Side::open(NicConfig {
                bypass,
                protection,
                messages: Some(MESSAGES),
                carries_falcon: true,
                ..NicConfig::shared()
            })
        };
        let (mut left, mut right) = (open(), open());
        let choice = chosen("falcon", &[]);
        let numbers = [&mut left, &mut right].map(|side| new_qp_of(side, Service::ReliableConnection, &choice, 64));
        connect_qps(&mut left, &mut right, numbers.into(), 77);
        assert_measured(&mut left, &mut right, numbers[0]);
        for side in [&left, &right] {
            assert_eq!(messages_of(&side.nic).expect("on").stats().all_dropped(), 0);
        }
    }
}

/// Messages of a sender that has no key are dropped, whatever numbers it knows.
#[test]
fn s6_a_nic_with_a_key_drops_messages_that_are_not_sealed() {
    [SecurityFormat::Psp, SecurityFormat::Esp].into_iter().for_each(drops_messages_that_are_not_sealed);
}

fn drops_messages_that_are_not_sealed(form: SecurityFormat) {
    let config = || NicConfig { protection: protection(form), ..at_loopback() };
    let Pair { mut left, mut right, from, to } =
        pair_of([config(), config()], [chosen("falcon", &[]), chosen("falcon", &[])]);
    measured(&mut left, &mut right, from.qpn);
    let (address, target) = (left.addr(), right.addr());
    drop(left);
    let peer = std::net::UdpSocket::bind(address).expect("the address of the NIC that is gone");
    let addresses = Addresses::new(address, target).expect("both IPv4");
    let probe = Message {
        dest_qpn: to.qpn,
        source_qpn: from.qpn,
        cookie: None,
        announced: Cookie::new(7),
        answer_wanted: true,
        is_last: false,
        sequence: Psn32::new(1 << 10),
        time: 1,
        body: Body::Probe(ProbePath::default()),
    };
    let drops = |side: &Side| side.nic.stats().drops.iter().sum::<u64>();
    let (before, passed) = (drops(&right), right.nic.stats().nic_messages_received);
    let clear = probe.encode(&addresses).expect("it can be encoded");
    peer.send_to(&clear, target).expect("loopback carries it");
    // The form within a seal, with a header that claims no key, and one that claims some key.
    let [_, cid @ ..] = to.qpn.get().to_be_bytes();
    let inner = [&[0xc0], &cid[..], &clear[..124]].concat();
    for spi in [0, 1] {
        let mut header = [0; psp::LEN_MAX];
        let cookie = Some(5);
        psp::Header { spi, cookie, ..psp::Header::default() }.emit(&mut header);
        peer.send_to(&[&header[..], &inner, &[0; psp::ICV_LEN]].concat(), target).expect("loopback carries it");
    }
    while right.nic.progress() {}
    let stats = right.nic.stats();
    assert!(drops(&right) >= before + 3, "not counted: {stats:?}");
    assert_eq!(stats.nic_messages_received, passed, "a forged message was passed on");
}
