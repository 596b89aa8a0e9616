//! S-1: one knob per queue pair, the dequeue rate (SCR, NSDI'25, section 4.2), set by the user, for every service and
//! transport (`falcon/rate_limits.rs` tests it over Falcon). S-22: responses to Reads are limited as requests are.

mod common;

use common::*;
use rnic_base::{BitRate, Duration, Psn, Time};
use rnic_engine::*;
use rnic_wire::{Headers, Qpn};

/// Bytes of a full packet on the wire.
const WIRE_BYTES: u64 = MTU as u64 + 78;

const RELIABLE: [&str; 4] = ["roce-gbn", "irn", "fasr", "roce-sr"];

fn limit(rate: BitRate) -> Option<RateLimit> {
    Some(RateLimit { rate, burst_bytes: None })
}

/// Sets or removes the program's limit of a side's queue pair.
fn set_limit(side: &mut Side, now: Time, limit: Option<RateLimit>) {
    side.engine.set_rate_limit(now, side.qpn, LimitSource::Program, limit).expect("a valid limit");
}

fn mbps(megabits: u64) -> BitRate {
    BitRate::bps(megabits * 1_000_000)
}

fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(0));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

/// Returns the times at which `from` sent packets with payload.
fn data_times(pair: &Pair, from: From) -> Vec<Time> {
    let sent = pair.log.iter().filter(|sent| sent.from == from && sent.packet.payload_len > 0);
    sent.map(|sent| sent.at).collect()
}

/// Asserts that packets sent at `times` kept to `rate` within 2 %, apart from the burst at the beginning.
fn keeps_to(times: &[Time], rate: BitRate, what: &str) {
    let times = &times[3..];
    let elapsed = times[times.len() - 1].since(times[0]);
    let measured = BitRate::from_transfer(WIRE_BYTES * (times.len() as u64 - 1), elapsed);
    assert!(measured.as_bps().abs_diff(rate.as_bps()) * 50 <= rate.as_bps(), "{what}: {measured} instead of {rate}");
}

fn waits(side: &Side) -> u64 {
    side.engine.stats().waits[WaitReason::Dequeue as usize]
}

#[test]
fn s1_a_limited_queue_pair_sends_at_the_limit_over_every_transport() {
    for transport in RELIABLE {
        for megabits in [100, 1_000, 10_000, 40_000, 90_000] {
            let mut pair = Pair::of(transport);
            set_limit(&mut pair.left, Time::ZERO, limit(mbps(megabits)));
            write(&mut pair, 1, 400);
            pair.run();
            assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport} at {megabits}");
            keeps_to(&data_times(&pair, From::Left), mbps(megabits), transport);
            assert!(waits(&pair.left) > 0, "{transport}: no wait for the dequeue rate is counted");
            assert_eq!(pair.left.info().dequeue_rate, Some(mbps(megabits)));
        }
    }
}

#[test]
fn s1_unreliable_connections_and_datagrams_are_limited() {
    for service in [Service::UnreliableConnection, Service::UnreliableDatagram] {
        let mut pair = Pair::new(&Setup { service, ..Setup::new("irn", &[]) });
        set_limit(&mut pair.left, Time::ZERO, limit(mbps(500)));
        for wr_id in 0..100 {
            let to = DatagramAddress { peer: PeerId(7), qpn: pair.right.qpn, qkey: QKEY, mark: 0 };
            let op = match service {
                Service::UnreliableDatagram => SendOp::Datagram { to, immediate: None },
                _ => SendOp::Send { immediate: None },
            };
            let sge = pair.left.sge(0, MTU);
            pair.left.post(wr_id, op, &[sge]);
        }
        pair.run();
        assert_eq!(pair.left.statuses().len(), 100, "{service:?}");
        keeps_to(&data_times(&pair, From::Left), mbps(500), "unreliable");
        assert!(waits(&pair.left) > 0);
    }
}

/// The sender of the data is limited, not the requester, whose request packets have no payload.
#[test]
fn s22_responses_to_reads_keep_to_the_limit_of_the_responder() {
    for transport in RELIABLE {
        let mut pair = Pair::of(transport);
        set_limit(&mut pair.right, Time::ZERO, limit(mbps(1_000)));
        let (sge, remote) = (pair.left.sge(0, 400 * MTU), pair.right.remote(0));
        pair.left.post(1, SendOp::Read { remote }, &[sge]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
        keeps_to(&data_times(&pair, From::Right), mbps(1_000), transport);
        assert!(waits(&pair.right) > 0, "{transport}: no wait for the dequeue rate is counted");
    }
}

/// Requests and responses of one queue pair share one limit.
#[test]
fn s22_a_queue_pair_that_writes_and_serves_reads_keeps_to_one_limit() {
    for transport in RELIABLE {
        let mut pair = Pair::of(transport);
        set_limit(&mut pair.right, Time::ZERO, limit(mbps(2_000)));
        let (sge, remote) = (pair.left.sge(0, 300 * MTU), pair.right.remote(0));
        pair.left.post(1, SendOp::Read { remote }, &[sge]);
        let (sge, remote) = (pair.right.sge(MEMORY as u64 / 2, 300 * MTU), pair.left.remote(MEMORY as u64 / 2));
        pair.right.post(2, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
        assert_eq!(pair.right.statuses(), [(2, WcStatus::Success)], "{transport}");
        keeps_to(&data_times(&pair, From::Right), mbps(2_000), transport);
    }
}

/// Checks that no timeout measures a wait for the dequeue rate: at the lowest rate, a message of 60 packets takes half
/// a second, far more than any timeout.
#[test]
fn s1_the_lowest_rate_causes_no_retransmissions() {
    for transport in RELIABLE {
        let mut pair = Pair::of(transport);
        set_limit(&mut pair.left, Time::ZERO, limit(RATE_LIMIT_MIN));
        write(&mut pair, 1, 60);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
        let stats = pair.left.engine.stats();
        assert_eq!((stats.timeouts, stats.packets_retransmitted), (0, 0), "{transport}");
    }
}

/// A limit takes effect while a message is being sent, and so does its end.
#[test]
fn s1_limits_change_while_a_message_is_sent() {
    for transport in RELIABLE {
        let mut pair = Pair::of(transport);
        set_limit(&mut pair.left, Time::ZERO, limit(mbps(1_000)));
        write(&mut pair, 1, 800);
        let step = Duration::from_ms(1);
        pair.run_until(Time::ZERO + step);
        let slow = data_times(&pair, From::Left).len();
        set_limit(&mut pair.left, pair.now, limit(mbps(4_000)));
        pair.run_until(Time::ZERO + step * 2);
        let fast = data_times(&pair, From::Left).len() - slow;
        assert!((4 * slow).abs_diff(fast) * 20 <= fast, "{transport}: {slow} packets, then {fast}");
        set_limit(&mut pair.left, pair.now, None);
        let lifted_at = pair.now;
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
        let last = *data_times(&pair, From::Left).last().expect("packets were sent");
        assert!(last.since(lifted_at) < Duration::from_us(100), "{transport}: the limit was not lifted");
        assert_eq!((pair.left.info().rate_limits, pair.left.info().dequeue_rate), ([None; LimitSource::COUNT], None));
    }
}

/// A queue pair that changes to a much higher limit does not first wait for the packet that it sent at the lower one.
#[test]
fn s1_a_higher_limit_takes_effect_at_once() {
    let mut pair = Pair::of("irn");
    set_limit(&mut pair.left, Time::ZERO, limit(RATE_LIMIT_MIN));
    write(&mut pair, 1, 20);
    pair.run_until(us(100));
    set_limit(&mut pair.left, pair.now, limit(mbps(10_000)));
    pair.run_until(us(200));
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
}

/// After a pause a queue pair may send a burst, and no more.
#[test]
fn s1_idle_time_is_not_saved_up_beyond_the_burst() {
    for burst_packets in [2, 16] {
        let mut pair = Pair::of("irn");
        let burst_bytes = (burst_packets > 2).then_some((burst_packets * WIRE_BYTES) as u32);
        let limit = RateLimit { rate: mbps(1_000), burst_bytes };
        set_limit(&mut pair.left, Time::ZERO, Some(limit));
        write(&mut pair, 1, 10);
        let idle = Time::ZERO + Duration::from_secs(1);
        pair.run_until(idle);
        pair.now = idle;
        write(&mut pair, 2, 60);
        pair.run();
        let times = data_times(&pair, From::Left);
        let at_once = times.iter().filter(|at| **at == idle).count() as u64;
        assert_eq!(at_once, burst_packets + 1, "burst of {burst_packets} packets");
    }
}

/// A driver that slept while the queue pair had work catches up; one whose queue pair had nothing to send does not.
#[test]
fn s1_only_a_queue_pair_with_work_catches_up_a_delay() {
    for has_backlog in [true, false] {
        let burst = BurstDefault { catch_up: Duration::from_ms(20), ..BurstDefault::default() };
        let mut engine = Engine::new(EngineConfig { burst, ..EngineConfig::default() });
        let setup = Setup { depth: 8, ..Setup::new("irn", &[("cap_packets", "0")]) };
        let pd = engine.objects_mut().create_pd().expect("a protection domain");
        let cq = engine.objects_mut().create_cq(16).expect("a legal size");
        let qpn = engine.create_qp(&default_attributes(&setup, pd, cq)).expect("legal attributes");
        engine.modify_to_init(qpn).expect("from reset");
        engine.modify_to_rtr(qpn, &connection(&setup, Qpn::new(77))).expect("from init");
        engine.modify_to_rts(Time::ZERO, qpn, &timing(&setup)).expect("from ready to receive");
        engine.set_rate_limit(Time::ZERO, qpn, LimitSource::Program, limit(mbps(1_000))).expect("a valid limit");
        let len = MTU * if has_backlog { 1_000 } else { 1 };
        let region = MemoryRegion { pd, addr: BASE, len: 2 << 20, local: 0, access: Access::all() };
        let key = engine.objects_mut().register(region).expect("a legal region").0;
        let sges = [Sge { addr: BASE, len, lkey: key }];
        let op = SendOp::Write { remote: RemoteMemory { addr: BASE, rkey: 1 }, immediate: None };
        let request = SendRequest { wr_id: 1, op, sges: &sges, flags: SendFlags::empty() };
        let send_all = |engine: &mut Engine, now| {
            engine.tick(now);
            std::iter::from_fn(|| engine.transmit(now).map(|_| ())).count() as u64
        };
        engine.post_send(qpn, &request).expect("the send queue is not full");
        send_all(&mut engine, Time::ZERO);
        let late = Time::ZERO + Duration::from_ms(5);
        if !has_backlog {
            for _ in 0..7 {
                engine.post_send(qpn, &request).expect("the send queue is not full");
            }
        }
        let sent = send_all(&mut engine, late);
        let missed = mbps(1_000).bytes_in(Duration::from_ms(5)) / WIRE_BYTES;
        match has_backlog {
            true => assert!(sent.abs_diff(missed) < 4, "{sent} packets of {missed} were sent"),
            false => assert_eq!(sent, 3, "more than a burst was sent after idle time"),
        }
    }
}

/// Two queue pairs with half of the link each fill it together, although each is late by the packets of the other.
#[test]
fn s1_limits_that_add_up_to_the_link_fill_it() {
    let mut pair = Pair::of("irn");
    let (second, _) = pair.another(&Setup::new("irn", &[]));
    for qpn in [pair.left.qpn, second] {
        pair.left
            .engine
            .set_rate_limit(Time::ZERO, qpn, LimitSource::Program, limit(mbps(50_000)))
            .expect("a valid limit");
    }
    for (wr_id, qpn) in [(1, pair.left.qpn), (2, second)] {
        let op = SendOp::Write { remote: pair.right.remote(0), immediate: None };
        let sges = [pair.left.sge(0, 100 * MTU)];
        let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
        pair.left.engine.post_send(qpn, &request).expect("the send queue is not full");
    }
    let line = BitRate::gbps(100);
    let (mut at, mut sent) = (Time::ZERO, 0_u64);
    let end = us(15);
    // A link sends one packet after the other, with the jitter of a driver that is late by up to one packet.
    while at < end {
        match pair.left.engine.transmit(at) {
            Some(_) => {
                sent += WIRE_BYTES;
                at += line.serialize(WIRE_BYTES);
            }
            None => match pair.left.engine.next_timeout() {
                Some(next) if next <= end => {
                    at = at.max(next);
                    pair.left.engine.tick(at);
                }
                _ => break,
            },
        }
    }
    let possible = line.bytes_in(end.since(Time::ZERO));
    assert!(sent * 100 >= possible * 99, "{sent} of {possible} bytes");
}

#[test]
fn invalid_limits_change_nothing() {
    let mut pair = Pair::of("irn");
    let qpn = pair.left.qpn;
    pair.left.engine.set_rate_limit(Time::ZERO, qpn, LimitSource::Program, limit(mbps(100))).expect("a valid limit");
    for rate in [BitRate::ZERO, BitRate::bps(999_999), BitRate::gbps(101)] {
        let error = pair
            .left
            .engine
            .set_rate_limit(Time::ZERO, qpn, LimitSource::Program, limit(rate))
            .expect_err("out of range");
        assert!(error.to_string().contains("rate limit"), "{error}");
    }
    let unknown = Qpn::new(qpn.get() ^ 1);
    assert_eq!(
        pair.left.engine.set_rate_limit(Time::ZERO, unknown, LimitSource::Program, None),
        Err(ModifyError::UnknownQp)
    );
    assert_eq!(pair.left.info().rate_limits, [limit(mbps(100)), None, None]);
}

/// A limit that is set before the queue pair is connected, and before its transport is negotiated, applies to the
/// connection.
#[test]
fn limits_are_kept_through_the_set_up_of_a_connection() {
    let setup = Setup::new("irn", &[]);
    let mut pair = Pair::of("irn");
    let qpn = pair.left.engine.create_qp(&default_attributes(&setup, pair.left.pd, pair.left.cq)).expect("valid");
    pair.left.engine.set_rate_limit(Time::ZERO, qpn, LimitSource::Program, limit(mbps(100))).expect("valid in Reset");
    let other = Setup::new("roce-gbn", &[("control", "dcqcn")]);
    pair.left.engine.set_transport(qpn, &other.transport).expect("valid in Reset");
    pair.left.connect_qp(qpn, &setup, Qpn::new(77));
    let info = pair.left.engine.query_qp(qpn).expect("the queue pair exists");
    assert_eq!((info.rate_limits, info.dequeue_rate), ([limit(mbps(100)), None, None], Some(mbps(100))));
}

/// Sets the limit of a side's queue pair that `source` has, in Mbit/s; returns the rate in force.
fn set_limit_of(side: &mut Side, source: LimitSource, megabits: Option<u64>) -> Option<BitRate> {
    let limit = megabits.and_then(|megabits| limit(mbps(megabits)));
    side.engine.set_rate_limit(Time::ZERO, side.qpn, source, limit).expect("a valid limit");
    side.info().dequeue_rate
}

/// The lowest limit is in force, and a program cannot lift its operator's.
#[test]
fn the_operator_limits_a_program_that_sets_no_limit_or_a_higher_one() {
    let mut pair = Pair::of("irn");
    let qpn = pair.left.qpn;
    let mut set = |source, megabits| set_limit_of(&mut pair.left, source, megabits);
    assert_eq!(set(LimitSource::Operator, Some(200)), Some(mbps(200)));
    assert_eq!(set(LimitSource::Program, Some(300)), Some(mbps(200)));
    assert_eq!(set(LimitSource::Program, Some(100)), Some(mbps(100)));
    assert_eq!(set(LimitSource::Program, None), Some(mbps(200)));
    assert_eq!(set(LimitSource::Program, Some(100)), Some(mbps(100)));
    pair.left.engine.modify_to_reset(qpn).expect("from any state");
    assert_eq!(
        pair.left.info().rate_limits,
        [None, limit(mbps(200)), None],
        "a reset removes the program's limit only"
    );
}

/// The cap of a hint is one more limit: it lifts neither the operator's nor that of the queue pair, and remains when
/// the queue pair is reset.
#[test]
fn s9_the_cap_of_a_hint_lowers_the_rate_and_lifts_no_limit() {
    let mut pair = Pair::of("irn");
    let qpn = pair.left.qpn;
    let mut set = |source, megabits| set_limit_of(&mut pair.left, source, megabits);
    assert_eq!(set(LimitSource::Operator, Some(200)), Some(mbps(200)));
    assert_eq!(set(LimitSource::Hint, Some(300)), Some(mbps(200)));
    assert_eq!(set(LimitSource::Hint, Some(50)), Some(mbps(50)));
    assert_eq!(set(LimitSource::Program, Some(100)), Some(mbps(50)));
    assert_eq!(set(LimitSource::Hint, None), Some(mbps(100)));
    assert_eq!(set(LimitSource::Hint, Some(150)), Some(mbps(100)));
    pair.left.engine.modify_to_reset(qpn).expect("from any state");
    assert_eq!(pair.left.info().rate_limits, [None, limit(mbps(200)), limit(mbps(150))]);
}

/// A program cannot lift the operator's limit by a burst that takes years.
#[test]
fn a_burst_of_the_program_does_not_exceed_the_operators() {
    let mut pair = Pair::of("irn");
    let qpn = pair.left.qpn;
    let mut set = |source, burst_bytes| {
        let limit = RateLimit { rate: mbps(1_000), burst_bytes };
        pair.left.engine.set_rate_limit(Time::ZERO, qpn, source, Some(limit)).expect("a valid limit");
    };
    set(LimitSource::Operator, None);
    set(LimitSource::Program, Some(u32::MAX));
    pair.now = Time::ZERO + Duration::from_secs(100);
    let start = pair.now;
    write(&mut pair, 1, 60);
    pair.run();
    let at_once = data_times(&pair, From::Left).iter().filter(|at| **at == start).count();
    assert_eq!(at_once, 3, "packets of a burst");
}

/// A packet that is retransmitted waits for the rate, and this wait is no further timeout.
#[test]
fn s1_a_loss_at_the_lowest_rate_costs_one_timeout() {
    for transport in RELIABLE {
        let mut pair = Pair::of(transport);
        set_limit(&mut pair.left, Time::ZERO, limit(RATE_LIMIT_MIN));
        pair.wire(drop_requests(Psn::new(0xff_fffa), &[(5, 0)]));
        write(&mut pair, 1, 10);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}");
        assert!(pair.left.engine.stats().timeouts <= 2, "{transport}: {:?}", pair.left.engine.stats());
    }
}

/// Under a limit, neither the responses to the peer's Reads nor the queue pair's own requests starve the other. FaSR
/// sends both in one order, in which they were posted or requested.
#[test]
fn s22_requests_and_responses_take_turns_under_a_limit() {
    for transport in ["roce-gbn", "irn", "roce-sr"] {
        let mut pair = Pair::of(transport);
        set_limit(&mut pair.right, Time::ZERO, limit(mbps(10)));
        for wr_id in 0..4 {
            let (sge, remote) = (pair.left.sge(0, 200 * MTU), pair.right.remote(0));
            pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
        }
        let (sge, remote) = (pair.right.sge(MEMORY as u64 / 2, 100 * MTU), pair.left.remote(MEMORY as u64 / 2));
        pair.right.post(9, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run_until(Time::ZERO + Duration::from_ms(50));
        let data = pair.log.iter().filter(|sent| sent.from == From::Right && sent.packet.payload_len > 0);
        let is_write = |sent: &&Sent| matches!(sent.packet.headers, Headers::Write { .. });
        let (requests, all) = (data.clone().filter(is_write).count(), data.count());
        let responses = all - requests;
        assert!(responses > 15 && requests > 15, "{transport}: {responses} responses, {requests} requests");
    }
}

fn us(us: u64) -> Time {
    Time::from_us(us)
}
