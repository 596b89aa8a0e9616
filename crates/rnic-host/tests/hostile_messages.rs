//! Hostile messages between NICs, one test for each rule of scr.md section 5.4. The test takes the place of one end of
//! a connection, with its address, its cookies and its queue pair numbers, and sends what the rule forbids. The NIC at
//! the other end must count and drop it, must not answer it, and must still serve.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{HALF, Pair, SharedFile, Side, chosen, connect, connect_qps, drive, new_qp_of};
use rnic_base::{BitRate, Psn, Psn32};
use rnic_engine::messages::cadence::Modes;
use rnic_engine::messages::peer::{DropCause, LABELS_MAX};
use rnic_engine::{LimitSource, RateLimit, SendOp, Service};
use rnic_host::{Impairment, MessagesConfig, NicConfig, RxDrop, TransportChoice, messages_of};
use rnic_wire::scr::{
    Answer, BackPressure, Body, Cookie, Grant, GrantKind, MESSAGE_LEN, Message, NodeReport, ProbePath, Records, Type,
    is_message,
};
use rnic_wire::{Addresses, Format, Headers, Packet, PacketFlags, Position, Qpn, codec, icrc};

/// No probes but greetings, so that tests know what is sent.
const MESSAGES: MessagesConfig =
    MessagesConfig { grants: false, pressure_bytes: None, probe_interval: None, reports: NO_REPORTS };
const NO_REPORTS: Modes = Modes { periodic: false, sampling_bytes: None, anomaly: false };

/// The end that is attacked, and the place of its peer.
struct Attack {
    side: Side,
    /// Queue pair of the attacked end, and of its peer.
    ours: Qpn,
    theirs: Qpn,
    /// Bound to the address of the peer.
    peer: UdpSocket,
    addresses: Addresses,
    /// Cookie of the attacked NIC for its peer.
    cookie: Cookie,
    /// Sequence number of the next message.
    sequence: u32,
}

impl Attack {
    /// Connects two NICs, lets them learn each other's cookies, and takes the place of the left one.
    fn begin() -> Self {
        Self::over(Impairment::default())
    }

    /// The same over a network with this impairment in both directions.
    fn over(impairment: Impairment) -> Self {
        Self::on(&chosen("irn", &[]), impairment)
    }

    /// The same with this transport.
    fn on(choice: &TransportChoice, impairment: Impairment) -> Self {
        let at_loopback = NicConfig::at("127.0.0.1:0".parse().expect("valid"));
        let config = || NicConfig { messages: Some(MESSAGES), impairment, ..at_loopback.clone() };
        let (mut left, file) = (Side::open(config()), SharedFile::default());
        left.nic.start_capture(Box::new(file.clone())).expect("memory");
        let side = Side::open(config());
        let [from, to] = [&left, &side].map(|side| side.config("irn").with_transports(vec![choice.clone()]));
        let Pair { mut left, right: mut side, from, to } = Pair::connected_with(left, side, &from, &to);
        drive(&mut left, &mut side, |left, side| {
            let has_answers = |side: &Side| messages_of(&side.nic).expect("on").stats().accepted(Type::Answer) > 0;
            (has_answers(left) && has_answers(side)).then_some(())
        });
        left.nic.stop_capture();
        let (address, target) = (left.addr(), side.addr());
        drop(left);
        let (cookie, sequence) = learned(&file, address);
        let peer = UdpSocket::bind(address).expect("the address of the NIC that is gone");
        peer.set_nonblocking(true).expect("a socket");
        let addresses = Addresses::new(address, target).expect("both IPv4");
        Self { side, ours: to.qpn, theirs: from.qpn, peer, addresses, cookie, sequence }
    }

    /// The same for NICs that share a machine, and send data from port 4791.
    fn on_one_machine() -> Self {
        let open = || Side::open(NicConfig { bypass: false, messages: Some(MESSAGES), ..NicConfig::shared() });
        let (mut left, mut side, file) = (open(), open(), SharedFile::default());
        left.nic.start_capture(Box::new(file.clone())).expect("memory");
        let choice = chosen("irn", &[]);
        let [theirs, ours] =
            [&mut left, &mut side].map(|side| new_qp_of(side, Service::ReliableConnection, &choice, 64));
        connect_qps(&mut left, &mut side, (theirs, ours), 77);
        drive(&mut left, &mut side, |left, side| {
            let has_answers = |side: &Side| messages_of(&side.nic).expect("on").stats().accepted(Type::Answer) > 0;
            (has_answers(left) && has_answers(side)).then_some(())
        });
        left.nic.stop_capture();
        let at_port = |port| SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
        let (address, target) = (at_port(left.nic.port()), at_port(side.nic.port()));
        drop(left);
        let (cookie, sequence) = learned(&file, address);
        let peer = UdpSocket::bind(address).expect("the address of the NIC that is gone");
        peer.set_nonblocking(true).expect("a socket");
        let addresses = Addresses::new(address, target).expect("both IPv4");
        Self { side, ours, theirs, peer, addresses, cookie, sequence }
    }

    /// Returns a message about the whole NIC with the right cookie and the next sequence number.
    fn message(&mut self, body: Body) -> Message {
        self.sequence += 1;
        Message {
            dest_qpn: Qpn::GSI,
            source_qpn: Qpn::GSI,
            cookie: Some(self.cookie),
            announced: None,
            answer_wanted: false,
            is_last: false,
            sequence: Psn32::new(self.sequence),
            time: u64::from(self.sequence),
            body,
        }
    }

    fn probe(&mut self) -> Message {
        let probe = self.message(Body::Probe(ProbePath::default()));
        Message { answer_wanted: true, ..probe }
    }

    /// Returns a message that grants the attacked queue pair this rate.
    fn grant(&mut self, rate_kbps: u32, valid_us: u16) -> Message {
        let grant = Grant { qpn: self.ours, kind: GrantKind::Limit, rate_kbps, valid_us, reason: 0 };
        self.message(Body::Grants(Records::new(&[grant]).expect("one record")))
    }

    fn pressure(&mut self) -> Message {
        let notice = BackPressure { qpn: self.ours, severity: 2, waiting_bytes: 1 << 20, count: 9 };
        self.message(Body::BackPressure(Records::new(&[notice]).expect("one record")))
    }

    /// Returns a report of this delay in the host of the peer.
    fn report(&mut self, delay_ns: u32) -> Message {
        self.message(Body::NodeReport(NodeReport { bus_latency_ns: delay_ns, ..NodeReport::default() }))
    }

    /// Answers the probes of the attacked queue pair that have arrived, as a correct peer does; returns their number.
    fn answer_probes(&mut self) -> usize {
        let mut probes = Vec::new();
        let mut buffer = [0; 2_048];
        while let Ok((len, _)) = self.peer.recv_from(&mut buffer) {
            probes.extend(Message::parse(&buffer[..len]).ok().filter(|message| message.dest_qpn == self.theirs));
        }
        for probe in &probes {
            let Body::Probe(path) = probe.body else { continue };
            let answer = self.message(Body::Answer(Answer { path, echoed: probe.time, received: 7, sent: 7 }));
            self.send(&Message { dest_qpn: self.ours, source_qpn: self.theirs, ..answer });
        }
        probes.len()
    }

    /// Returns the rate that congestion control permits a queue pair of the attacked end.
    fn allowed_rate(&self, qpn: Qpn) -> BitRate {
        let mut pairs = self.side.nic.queue_pairs().map(|(view, _)| view);
        let view = pairs.find(|view| view.info.number == qpn).expect("the queue pair exists");
        view.allowed_rate.expect("it is controlled")
    }

    /// Sends a message from the place of the peer.
    fn send(&mut self, message: &Message) {
        let bytes = message.encode(&self.addresses).expect("it can be encoded");
        self.send_bytes(&bytes);
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.peer.send_to(bytes, self.addresses.dst()).expect("loopback carries it");
        self.settle();
    }

    /// Lets the attacked NIC process all that has arrived.
    fn settle(&mut self) {
        for _ in 0..4 {
            while self.side.nic.progress() {}
        }
    }

    /// Returns the datagrams that the NIC has sent to the place of the peer, except greetings.
    fn received(&self) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let mut buffer = [0; 2_048];
        while let Ok((len, _)) = self.peer.recv_from(&mut buffer) {
            let is_probe = Message::parse(&buffer[..len]).is_ok_and(|message| message.body.kind() == Type::Probe);
            if !is_probe {
                datagrams.push(buffer[..len].to_vec());
            }
        }
        datagrams
    }

    fn answers(&self) -> Vec<Message> {
        self.received().iter().filter_map(|bytes| Message::parse(bytes).ok()).collect()
    }

    /// Returns the limit by the peer's messages.
    fn limit(&self) -> Option<BitRate> {
        self.side.nic.query_qp(self.ours).expect("the queue pair exists").peer_limit
    }

    fn dropped(&self, cause: DropCause) -> u64 {
        messages_of(&self.side.nic).expect("messages are on").stats().dropped(cause)
    }

    fn accepted(&self, kind: Type) -> u64 {
        messages_of(&self.side.nic).expect("messages are on").stats().accepted(kind)
    }

    fn datagrams_dropped(&self, reason: RxDrop) -> u64 {
        self.side.nic.stats().dropped(reason)
    }

    /// Drives the attacked NIC for a while.
    fn drive_for(&mut self, span: Duration) {
        let start = Instant::now();
        while start.elapsed() < span {
            self.side.nic.progress();
        }
    }
}

/// Returns the attacked NIC's cookie for its peer at `address`, and the peer's last sequence number, from a capture.
fn learned(file: &SharedFile, address: SocketAddr) -> (Cookie, u32) {
    let port = address.port().to_be_bytes();
    // Ethernet 14, IPv4 20, UDP 8.
    let sent = file.frames().into_iter().filter(|frame| frame[34..36] == port && is_message(&frame[42..]));
    let sent: Vec<Message> = sent.map(|frame| Message::parse(&frame[42..]).expect("a message")).collect();
    let cookie = sent.iter().rev().find_map(|message| message.cookie).expect("the peer has learned it");
    (cookie, sent.iter().map(|message| message.sequence.value()).max().expect("the peer has sent"))
}

fn with_icrc(mut bytes: [u8; MESSAGE_LEN], addresses: &Addresses) -> [u8; MESSAGE_LEN] {
    let covered = MESSAGE_LEN - 4;
    let icrc = icrc::Icrc::new(addresses, MESSAGE_LEN as u32, &bytes[..covered]).finish();
    bytes[covered..].copy_from_slice(&icrc);
    bytes
}

/// Messages that keep the rules have an effect: the attacks below fail for their rule and for nothing else.
#[test]
fn s6_messages_by_the_rules_are_accepted_and_answered() {
    let mut attack = Attack::begin();
    let probe = attack.probe();
    attack.send(&probe);
    let answers = attack.answers();
    assert!(matches!(answers[..], [Message { body: Body::Answer(answer), .. }] if answer.echoed == probe.time));
    let about_qp = Message { dest_qpn: attack.ours, source_qpn: attack.theirs, ..attack.probe() };
    attack.send(&about_qp);
    assert_eq!(attack.answers().len(), 1);
    let grant = attack.grant(20_000_000, 60_000);
    attack.send(&grant);
    assert_eq!((attack.limit(), attack.accepted(Type::Grants)), (Some(BitRate::gbps(20)), 1));
}

/// Rule 1, source: another port of the peer's address, with everything else right.
#[test]
fn s6_rule_1_a_message_from_another_port_is_dropped_and_not_answered() {
    let mut attack = Attack::begin();
    let outsider = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    outsider.set_nonblocking(true).expect("a socket");
    let addresses = Addresses::new(outsider.local_addr().expect("it is bound"), attack.addresses.dst()).expect("IPv4");
    let (probe, grant) = (attack.probe(), attack.grant(2_000_000, 60_000));
    let before = attack.datagrams_dropped(RxDrop::UnknownPeer);
    for message in [probe, grant] {
        let bytes = message.encode(&addresses).expect("it can be encoded");
        outsider.send_to(&bytes, addresses.dst()).expect("loopback carries it");
        attack.settle();
    }
    assert_eq!(attack.datagrams_dropped(RxDrop::UnknownPeer), before + 2);
    assert_eq!((attack.limit(), attack.received().len()), (None, 0));
    assert!(outsider.recv_from(&mut [0; 256]).is_err(), "a sender without a connection was answered");
}

/// Rule 1, source, for NICs that share a machine: a message must come from the port that the queue pair named in it
/// encodes, or from 4791; one about a whole NIC only from the NIC's own port.
#[test]
fn s6_rule_1_a_message_from_a_port_of_no_queue_pair_is_dropped() {
    let open = || Side::open(NicConfig { bypass: false, messages: Some(MESSAGES), ..NicConfig::shared() });
    let (mut left, mut right) = (open(), open());
    let file = SharedFile::default();
    left.nic.start_capture(Box::new(file.clone())).expect("memory");
    let choice = chosen("irn", &[]);
    let numbers = [&mut left, &mut right].map(|side| new_qp_of(side, Service::ReliableConnection, &choice, 64));
    connect_qps(&mut left, &mut right, numbers.into(), 77);
    drive(&mut left, &mut right, |_, right| {
        (messages_of(&right.nic).expect("on").stats().accepted(Type::Answer) > 0).then_some(())
    });
    left.nic.stop_capture();
    let own = SocketAddr::new("127.0.0.1".parse().expect("an address"), left.nic.port());
    let target = SocketAddr::new(own.ip(), right.nic.port());
    let (cookie, sequence) = learned(&file, own);
    let outsider = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    outsider.set_nonblocking(true).expect("a socket");
    let addresses = Addresses::new(outsider.local_addr().expect("it is bound"), target).expect("both IPv4");
    let message = |dest_qpn, source_qpn, nth| Message {
        dest_qpn,
        source_qpn,
        cookie: Some(cookie),
        announced: None,
        answer_wanted: true,
        is_last: false,
        sequence: Psn32::new(sequence + nth),
        time: 1,
        body: Body::Probe(ProbePath::default()),
    };
    let strange = |side: &Side| [RxDrop::ForeignPort, RxDrop::Management].map(|drop| side.nic.stats().dropped(drop));
    let before = strange(&right);
    let accepted = messages_of(&right.nic).expect("on").stats().accepted(Type::Probe);
    for message in [message(numbers[1], numbers[0], 1), message(Qpn::GSI, Qpn::GSI, 2)] {
        let bytes = message.encode(&addresses).expect("it can be encoded");
        outsider.send_to(&bytes, target).expect("loopback carries it");
        while right.nic.progress() {}
    }
    let stats = messages_of(&right.nic).expect("on").stats();
    assert_eq!(stats.accepted(Type::Probe), accepted, "{stats:?}");
    let dropped: u64 = strange(&right).iter().sum::<u64>() - before.iter().sum::<u64>();
    assert_eq!(dropped, 2, "{stats:?}");
    assert!(outsider.recv_from(&mut [0; 256]).is_err(), "a sender without a connection was answered");
}

/// Rule 1, queue pairs: those named must be connected to each other.
#[test]
fn s6_rule_1_a_message_of_queue_pairs_that_are_not_connected_is_dropped() {
    let mut attack = Attack::begin();
    let (ours, theirs) = (attack.ours, attack.theirs);
    let unknown = Qpn::new(ours.get() ^ 1);
    let pairs = [(unknown, theirs), (ours, Qpn::new(theirs.get() ^ 1)), (Qpn::GSI, theirs), (ours, Qpn::GSI)];
    for (nth, (dest_qpn, source_qpn)) in (1..).zip(pairs) {
        let probe = Message { dest_qpn, source_qpn, ..attack.probe() };
        attack.send(&probe);
        assert_eq!(attack.dropped(DropCause::NotConnected), nth, "{dest_qpn:?} {source_qpn:?}");
    }
    assert_eq!(attack.received().len(), 0);
}

/// Rule 2: what changes behaviour carries our cookie, which nobody off the path knows.
#[test]
fn s6_rule_2_a_message_with_a_wrong_cookie_changes_nothing() {
    let mut attack = Attack::begin();
    let wrong = Cookie::new(attack.cookie.get() ^ 1);
    for message in [attack.grant(2_000_000, 60_000), attack.pressure(), attack.report(u32::MAX)] {
        attack.send(&Message { cookie: wrong, ..message });
    }
    assert_eq!((attack.limit(), attack.dropped(DropCause::Cookie), attack.received().len()), (None, 3, 0));
    let messages = messages_of(&attack.side.nic).expect("messages are on");
    assert_eq!(messages.host_delay_of_peer(attack.ours, attack.side.nic.now()), None);
}

/// Rule 2: no cookie at all is allowed in a first probe only, which is answered by an announcement and changes
/// nothing; announcements are limited.
#[test]
fn s6_rule_2_without_a_cookie_only_a_first_probe_is_answered() {
    let mut attack = Attack::begin();
    let grant = attack.grant(2_000_000, 60_000);
    let mut bytes = grant.encode(&attack.addresses).expect("it can be encoded");
    bytes[16..24].fill(0);
    let malformed = attack.datagrams_dropped(RxDrop::Malformed);
    let bytes = with_icrc(bytes, &attack.addresses);
    attack.send_bytes(&bytes);
    assert_eq!((attack.limit(), attack.datagrams_dropped(RxDrop::Malformed)), (None, malformed + 1));
    let start = Instant::now();
    let accepted = attack.accepted(Type::Probe);
    for _ in 0..200 {
        let first = Message { cookie: None, announced: Cookie::new(77), ..attack.probe() };
        attack.send(&first);
    }
    let answers = attack.answers();
    let most = 4 + start.elapsed().as_millis() as usize * 64 / 1_000 + 1;
    assert!((1..=most).contains(&answers.len()), "{} announcements, at most {most}", answers.len());
    assert!(answers.iter().all(|answer| answer.body == Body::Answer(Answer::default())), "not only announcements");
    assert_eq!(attack.accepted(Type::Probe), accepted);
    // The cookie of the forged probes has not replaced the peer's.
    let grant = attack.grant(20_000_000, 60_000);
    attack.send(&grant);
    assert_eq!(attack.limit(), Some(BitRate::gbps(20)));
}

/// Rule 3: a grant only lowers what the local limits allow, and only for queue pairs that are connected to its sender.
#[test]
fn s25_rule_3_a_grant_raises_nothing_and_reaches_no_other_connection() {
    let mut attack = Attack::begin();
    let limit = RateLimit { rate: BitRate::gbps(1), burst_bytes: None };
    attack.side.nic.verbs().set_rate_limit(attack.ours, LimitSource::Operator, Some(limit)).expect("a legal rate");
    let rate = |attack: &Attack| attack.side.nic.query_qp(attack.ours).expect("it exists").dequeue_rate;
    let grant = attack.grant(50_000_000, 60_000);
    attack.send(&grant);
    assert_eq!((attack.limit(), rate(&attack)), (Some(BitRate::gbps(50)), Some(BitRate::gbps(1))));
    let most = attack.grant(u32::MAX, 60_000);
    attack.send(&most);
    assert_eq!((attack.limit(), rate(&attack)), (None, Some(BitRate::gbps(1))), "above the line there is no limit");
    let mut other = Side::at("127.0.0.1:0");
    let (from, to) = (other.config("irn"), attack.side.config("irn"));
    let (_, victim) = connect(&mut other, &mut attack.side, &from, &to);
    let grant = Grant { qpn: victim.qpn, kind: GrantKind::Limit, rate_kbps: 2_000, valid_us: 60_000, reason: 0 };
    let message = attack.message(Body::Grants(Records::new(&[grant]).expect("one record")));
    attack.send(&message);
    assert_eq!(messages_of(&attack.side.nic).expect("on").stats().records_ignored, 1);
    assert_eq!(attack.side.nic.query_qp(victim.qpn).expect("it exists").peer_limit, None);
}

/// Rule 4: no message stops a queue pair: the lowest limit is 1 % of the line, divided by the queue pairs to the peer.
#[test]
fn s25_rule_4_no_grant_is_below_the_floor() {
    let mut attack = Attack::begin();
    let grant = attack.grant(0, 60_000);
    attack.send(&grant);
    assert_eq!(attack.limit(), Some(BitRate::gbps(1)));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        let notice = attack.pressure();
        attack.send(&notice);
        assert!(attack.limit().is_none_or(|limit| limit >= BitRate::gbps(1)), "{:?}", attack.limit());
    }
}

/// Rule 5: a grant fades, whatever validity it claims, and back-pressure ends.
#[test]
fn s25_rule_5_a_limit_does_not_last_without_another_message() {
    for is_grant in [true, false] {
        let mut attack = Attack::begin();
        let message = if is_grant { attack.grant(2_000_000, u16::MAX) } else { attack.pressure() };
        attack.send(&message);
        assert!(attack.limit().is_some());
        // At most 100 ms, and 18 periods of 4 ms in which 2 Gbit/s grow to 100.
        let start = Instant::now();
        while attack.limit().is_some() {
            attack.drive_for(Duration::from_millis(1));
            assert!(start.elapsed() < Duration::from_secs(2), "still {:?}", attack.limit());
        }
    }
}

/// Rules 3 to 5: a peer that reports an endless delay in its host slows down its own connections only, to no less than
/// 1 % of the line, and while it goes on to report that. Targets of 10 ms and 1 s leave room for a busy machine.
#[test]
fn s23_rules_3_to_5_a_huge_reported_delay_slows_its_own_connection_down_for_a_while() {
    let options = [("control", "swift-rate"), ("rate_max", "8Gbps"), ("base", "1s"), ("host_target", "10ms")];
    let choice = TransportChoice::with_messages("irn", &options).expect("a composition");
    let mut attack = Attack::on(&choice, Impairment::default());
    let mut other =
        Side::open(NicConfig { messages: Some(MESSAGES), ..NicConfig::at("127.0.0.1:0".parse().expect("ok")) });
    let [from, to] = [&other, &attack.side].map(|side| side.config("irn").with_transports(vec![choice.clone()]));
    let (_, victim) = connect(&mut other, &mut attack.side, &from, &to);
    let (ours, floor, highest) = (attack.ours, BitRate::gbps(1), BitRate::gbps(8));
    assert_eq!((attack.allowed_rate(ours), attack.allowed_rate(victim.qpn)), (highest, highest));
    let sge = attack.side.sge(0, 100_000);
    let write = |attack: &mut Attack, qpn, remote| {
        attack.side.post(qpn, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    };
    let remote = other.region.remote(HALF);
    write(&mut attack, ours, remote);
    let start = Instant::now();
    while attack.allowed_rate(ours) > floor {
        let report = attack.report(u32::MAX);
        attack.send(&report);
        write(&mut attack, victim.qpn, remote);
        drive(&mut other, &mut attack.side, |_, side| side.completions().pop());
        attack.answer_probes();
        assert!(start.elapsed() < common::TEST_TIMEOUT, "still {}", attack.allowed_rate(ours));
    }
    assert_eq!(attack.allowed_rate(ours), floor);
    assert!(attack.allowed_rate(victim.qpn) > floor, "another connection is slowed down");
    // Without further reports it grows again with the next probes.
    let start = Instant::now();
    while attack.allowed_rate(ours) == floor {
        attack.drive_for(Duration::from_millis(1));
        attack.answer_probes();
        assert!(start.elapsed() < common::TEST_TIMEOUT, "it stays at the floor");
    }
}

/// Rule 5: a flood of notices decreases the rate at most once in a round trip.
#[test]
fn s26_rule_5_a_flood_of_notices_decreases_the_rate_once_in_a_round_trip() {
    let delay = rnic_base::Duration::from_ms(40);
    let mut attack = Attack::over(Impairment { delay, ..Impairment::default() });
    let start = Instant::now();
    for _ in 0..20 {
        let notice = attack.pressure();
        attack.send(&notice);
    }
    let limit = attack.limit().expect("it is limited");
    // The round trip takes 80 ms; a busy machine may take longer than that for the burst.
    let round_trips = 1 + start.elapsed().as_millis() as u64 / 80;
    assert_eq!(attack.accepted(Type::BackPressure), 20);
    assert!(limit.as_bps() >= 100_000_000_000 >> round_trips, "{limit} after {:?}", start.elapsed());
}

/// Rule 5: a message that changes behaviour is newer than the last one, and not far ahead.
#[test]
fn s6_rule_5_old_and_far_sequence_numbers_are_dropped() {
    let mut attack = Attack::begin();
    let old = attack.grant(2_000_000, 60_000);
    let new = attack.grant(50_000_000, 60_000);
    attack.send(&new);
    let limit = attack.limit();
    assert_eq!(limit, Some(BitRate::gbps(50)));
    attack.send(&old);
    attack.send(&new);
    assert_eq!((attack.dropped(DropCause::Old), attack.accepted(Type::Grants)), (2, 1), "replays");
    attack.sequence += 1 << 17;
    let far = attack.grant(2_000_000, 60_000);
    attack.send(&far);
    assert_eq!((attack.dropped(DropCause::Ahead), attack.accepted(Type::Grants)), (1, 1));
    assert!(attack.limit().is_none_or(|now| Some(now) >= limit), "{:?}", attack.limit());
}

/// Rule 6: at most one answer of the same length for each question, at most 1000 per second, and no answer to an
/// answer.
#[test]
fn s8_rule_6_a_flood_of_probes_is_not_amplified() {
    let mut attack = Attack::begin();
    attack.received();
    let (start, questions) = (Instant::now(), 2_000);
    let mut received = Vec::new();
    for _ in 0..questions {
        let probe = attack.probe();
        attack.send(&probe);
        received.extend(attack.received());
    }
    let most = 64 + start.elapsed().as_millis() as usize + 1;
    assert!((1..=most.min(questions)).contains(&received.len()), "{} answers, at most {most}", received.len());
    assert!(received.iter().all(|bytes| bytes.len() <= MESSAGE_LEN), "an answer is longer than its question");
    assert!(attack.dropped(DropCause::RateLimited) > 0);
    let answer = Message { announced: None, ..attack.message(Body::Answer(Answer::default())) };
    attack.drive_for(Duration::from_millis(100));
    attack.received();
    attack.send(&answer);
    assert_eq!(attack.received().len(), 0, "an answer was answered");
    assert!(answer_that_asks(&answer, &attack.addresses).is_none(), "an answer can ask");
}

/// Returns the bytes of an answer that asks for one, if they are a message.
fn answer_that_asks(answer: &Message, addresses: &Addresses) -> Option<Message> {
    let mut bytes = answer.encode(addresses).expect("it can be encoded");
    bytes[14] |= 2;
    Message::parse_verified(&with_icrc(bytes, addresses), addresses).ok()
}

/// Sockets at the address of the peer, on other ports than its own.
fn outsiders(addresses: &Addresses, count: usize) -> Vec<(UdpSocket, Addresses)> {
    let bound = || {
        let socket = UdpSocket::bind((addresses.src().ip(), 0)).expect("a free port");
        socket.set_nonblocking(true).expect("a socket");
        let port = socket.local_addr().expect("it is bound");
        (socket, Addresses::new(port, addresses.dst()).expect("both IPv4"))
    };
    (0..count).map(|_| bound()).collect()
}

impl Attack {
    /// Returns a probe of the attacked queue pair's peer, which announces the port of these addresses.
    fn announcement(&mut self, addresses: &Addresses) -> Message {
        let path = ProbePath { index: 1, label: addresses.src().port() };
        Message { dest_qpn: self.ours, source_qpn: self.theirs, body: Body::Probe(path), ..self.probe() }
    }

    fn send_from(&mut self, (socket, addresses): &(UdpSocket, Addresses), message: &Message) {
        let bytes = message.encode(addresses).expect("it can be encoded");
        socket.send_to(&bytes, addresses.dst()).expect("loopback carries it");
        self.settle();
    }

    /// Sends a data packet for the attacked queue pair; returns whether its NIC has passed it to the engine. If not, it
    /// must have counted it.
    fn takes_data_from(&mut self, (socket, addresses): &(UdpSocket, Addresses)) -> bool {
        let headers = Headers::Write { position: Position::Middle, reth: None, immediate: None, recv_sn: None };
        let (dest_qpn, psn) = (self.ours, Psn::new(7));
        let packet = Packet { dest_qpn, psn, flags: PacketFlags::default(), payload_len: 64, headers };
        let mut datagram = Vec::new();
        codec::assemble(Format::RoceV2, &packet, &[&[7; 64]], addresses, &mut datagram).expect("a valid packet");
        let counts = |attack: &Self| {
            let dropped = [RxDrop::UnknownPeer, RxDrop::ForeignPort].map(|reason| attack.datagrams_dropped(reason));
            (dropped.iter().sum::<u64>(), attack.side.nic.engine_stats().packets_received)
        };
        let (refused, passed) = counts(self);
        socket.send_to(&datagram, addresses.dst()).expect("loopback carries it");
        self.settle();
        let (refused_now, passed_now) = counts(self);
        // NICs of other tests may send to a port that was theirs before.
        assert!(refused_now + passed_now > refused + passed, "neither counted nor passed on");
        passed_now > passed
    }
}

/// Rule 7: data from another port is taken only after a probe from this port that names it and carries our cookie.
#[test]
fn s24_rule_7_a_port_is_announced_by_a_probe_with_our_cookie_that_names_it() {
    for begin in [Attack::begin as fn() -> Attack, Attack::on_one_machine] {
        let mut attack = begin();
        let places = outsiders(&attack.addresses, 2);
        let [place, other] = &places[..] else { unreachable!("two were asked for") };
        assert!(!attack.takes_data_from(place), "before any announcement");
        let right = attack.announcement(&place.1);
        let path = |label| Body::Probe(ProbePath { index: 1, label });
        let grants = attack.grant(2_000_000, 60_000).body;
        let wrong = [
            Message { cookie: Cookie::new(attack.cookie.get() ^ 1), ..right },
            Message { cookie: None, announced: Cookie::new(77), ..right },
            Message { body: path(other.1.src().port()), ..right },
            Message { body: path(0), ..right },
            Message { dest_qpn: Qpn::GSI, source_qpn: Qpn::GSI, ..right },
            Message { source_qpn: Qpn::new(attack.theirs.get() ^ 1), ..right },
            Message { dest_qpn: Qpn::new(attack.ours.get() ^ 1), ..right },
            Message { body: grants, answer_wanted: false, ..right },
        ];
        for message in wrong {
            let before: u64 = attack.side.nic.stats().drops.iter().sum();
            attack.send_from(place, &message);
            assert!(attack.side.nic.stats().drops.iter().sum::<u64>() > before, "not counted: {message:?}");
            assert!(!attack.takes_data_from(place), "announced by {message:?}");
        }
        // One that was recorded, and is sent again from another port.
        attack.send_from(place, &right);
        attack.send_from(other, &right);
        assert!(attack.takes_data_from(place), "a port that is announced by the rules is not taken");
        assert!(!attack.takes_data_from(other), "a replay from another port");
        assert_eq!((attack.limit(), attack.accepted(Type::Probe) > 0), (None, true));
        assert!(places.iter().all(|(socket, _)| socket.recv_from(&mut [0; 256]).is_err()), "the NIC sent to a port");
    }
}

/// Rule 7: a NIC takes data from a bounded number of ports of another one.
#[test]
fn s24_rule_7_no_more_ports_are_taken_than_a_nic_has_paths() {
    let mut attack = Attack::begin();
    let places = outsiders(&attack.addresses, LABELS_MAX + 3);
    for place in &places {
        let announcement = attack.announcement(&place.1);
        attack.send_from(place, &announcement);
    }
    let taken: Vec<bool> = places.iter().map(|place| attack.takes_data_from(place)).collect();
    assert_eq!(taken, [[true].repeat(LABELS_MAX), [false].repeat(3)].concat());
    assert_eq!(attack.answers().len(), LABELS_MAX, "a probe was answered whose port is not taken");
}

/// Data from an announced port is for queue pairs that are connected to the NIC that announced it.
#[test]
fn s24_rule_7_a_port_of_one_nic_is_no_port_of_another() {
    let mut attack = Attack::begin();
    let places = outsiders(&attack.addresses, 1);
    let announcement = attack.announcement(&places[0].1);
    attack.send_from(&places[0], &announcement);
    assert!(attack.takes_data_from(&places[0]));
    let mut other = Side::at("127.0.0.1:0");
    let (from, to) = (other.config("irn"), attack.side.config("irn"));
    let (_, victim) = connect(&mut other, &mut attack.side, &from, &to);
    attack.ours = victim.qpn;
    assert!(!attack.takes_data_from(&places[0]), "data for a queue pair of another NIC");
}

/// Form: what is not exactly a message of a known type is dropped, whatever its ICRC.
#[test]
fn s6_malformed_messages_are_dropped() {
    let mut attack = Attack::begin();
    let grant = attack.grant(2_000_000, 60_000);
    let bytes = grant.encode(&attack.addresses).expect("it can be encoded");
    // Version, type, flags, number of records, reserved bits, kind of the grant.
    let changes =
        [(12, 2), (13, 0), (13, 7), (13, 255), (14, 0x80), (15, 7), (15, 255), (1, 0x10), (39, 1), (51, 9), (120, 1)];
    let mut dropped = attack.datagrams_dropped(RxDrop::Malformed);
    for (at, value) in changes {
        let mut changed = bytes;
        changed[at] = value;
        let changed = with_icrc(changed, &attack.addresses);
        attack.send_bytes(&changed);
        dropped += 1;
        assert_eq!(attack.datagrams_dropped(RxDrop::Malformed), dropped, "byte {at} = {value}");
    }
    let icrc = attack.datagrams_dropped(RxDrop::Icrc);
    attack.send_bytes(&bytes_with_wrong_icrc(bytes));
    assert_eq!(attack.datagrams_dropped(RxDrop::Icrc), icrc + 1);
    for len in [4, 12, 127] {
        attack.send_bytes(&bytes[..len]);
    }
    attack.send_bytes(&[&bytes[..], &[0; 4]].concat());
    assert_eq!((attack.limit(), attack.accepted(Type::Grants), attack.received().len()), (None, 0, 0));
    attack.send(&grant);
    assert_eq!(attack.limit(), Some(BitRate::gbps(2)), "the unchanged message is valid");
}

fn bytes_with_wrong_icrc(mut bytes: [u8; MESSAGE_LEN]) -> [u8; MESSAGE_LEN] {
    bytes[MESSAGE_LEN - 1] ^= 1;
    bytes
}

/// After all kinds of attacks, the NIC has the connections that it had, and makes new ones.
#[test]
fn s6_an_attacked_nic_continues_to_serve() {
    let mut attack = Attack::begin();
    for round in 0..2_000u32 {
        let mut message = match round % 4 {
            0 => attack.probe(),
            1 => attack.grant(round, round as u16),
            2 => attack.pressure(),
            _ => attack.message(Body::Answer(Answer { sent: u64::MAX, ..Answer::default() })),
        };
        if round % 3 == 0 {
            message.sequence = Psn32::new(round.wrapping_mul(0x9e37_79b9));
        }
        let mut bytes = message.encode(&attack.addresses).expect("it can be encoded");
        if round % 5 == 0 {
            bytes[(round % 124) as usize] = round as u8;
        }
        let bytes = with_icrc(bytes, &attack.addresses);
        attack.send_bytes(&bytes);
    }
    let mut other = Side::at("127.0.0.1:0");
    let (from, to) = (other.config("irn"), attack.side.config("irn"));
    let (from, _) = connect(&mut other, &mut attack.side, &from, &to);
    let (sge, remote) = (other.sge(0, 100_000), attack.side.region.remote(0));
    other.post(from.qpn, 9, SendOp::Write { remote, immediate: None }, &[sge]);
    drive(&mut other, &mut attack.side, |other, _| other.completions().pop());
    assert!(attack.side.nic.query_qp(attack.ours).is_some());
}
