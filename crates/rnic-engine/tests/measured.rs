//! Timeouts from measured round-trip times: the cost of a loss, the effect of a process that was descheduled, and
//! which peers are declared gone.
//!
//! Source: RFC 6298, RFC 8985, Karn and Partridge (SIGCOMM'87). The wire takes 5 us one way: a round trip is 10 us.

mod common;

use common::*;
use rnic_base::{Duration, Psn, RandomStreams};
use rnic_engine::*;
use rnic_wire::Headers;

/// The first PSN of both sides.
const FIRST: Psn = Psn::new(0xff_fffa);
/// Offset in memory that Writes go to.
const TARGET: u64 = 500_000;
const TRANSPORTS: [&str; 7] = ["irn", "srnic", "fasr", "roce-sr", "roce-gbn", "tcp", "roce-ar"];
/// Packets of a message.
const PACKETS: u32 = 50;
/// Time within which lost packets have arrived: a few round trips.
const FEW_ROUND_TRIPS: Duration = Duration::from_us(100);

/// As on sockets: a timeout of 8 ms until the first measurement.
fn setup(transport: &str) -> Setup {
    let recovery = rnic_transports::profile(transport).expect("registered").recovery.policy;
    let first = |name: &'static str| recovery.params.iter().any(|spec| spec.name == name).then_some((name, "8ms"));
    let timeouts = ["rto_low", "rto_high", "rto", "rto_min"].into_iter().filter_map(first);
    let options: Vec<_> = timeouts.chain([("measured_timeouts", "true")]).collect();
    Setup::new(transport, &options)
}

fn pair(transport: &str) -> Pair {
    Pair::new(&setup(transport))
}

fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

fn succeeds(pair: &mut Pair, wr_ids: impl IntoIterator<Item = u64>, context: &str) {
    let expected: Vec<_> = wr_ids.into_iter().map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(pair.left.statuses(), expected, "{context}");
}

/// Writes some messages without a loss, so that the round-trip time is known. The next packet is number `WARM` from
/// the first.
fn warm_up(pair: &mut Pair) {
    for wr_id in 0..40 {
        write(pair, 1_000 + wr_id, PACKETS);
        pair.run();
    }
    assert_eq!(pair.left.statuses().len(), 40);
    assert_eq!(pair.left.info().stats.packets_retransmitted, 0, "acknowledged packets are retransmitted");
}

const WARM: i64 = 40 * PACKETS as i64;

/// Returns how long a Write takes whose packets `drops` (number from the Write's first, transmission) are lost.
fn time_with_losses(transport: &str, drops: &[(i64, u32)]) -> Duration {
    let mut pair = pair(transport);
    warm_up(&mut pair);
    let drops: Vec<_> = drops.iter().map(|(packet, nth)| (WARM + packet, *nth)).collect();
    pair.wire(drop_requests(FIRST, &drops));
    let start = pair.now;
    write(&mut pair, 1, PACKETS);
    let mut step = Duration::ZERO;
    while pair.left.engine.objects().cq_level(pair.left.cq).is_some_and(|(level, _)| level == 0) {
        step += Duration::from_us(1);
        pair.run_until(start + step);
    }
    succeeds(&mut pair, [1], transport);
    step
}

#[test]
fn a_lost_tail_costs_a_few_round_trips() {
    for transport in TRANSPORTS {
        for lost in [1, 2, 5, 20, 50] {
            let drops: Vec<_> = (i64::from(PACKETS) - lost..i64::from(PACKETS)).map(|packet| (packet, 0)).collect();
            let took = time_with_losses(transport, &drops);
            // Transports without NACKs, those whose NACKs name one hole each, and those with windows may need one
            // round trip per lost packet.
            let is_slow = matches!(transport, "roce-ar" | "roce-sr" | "tcp");
            let limit = if is_slow { Duration::from_us(2_000) } else { FEW_ROUND_TRIPS };
            assert!(took <= limit, "{transport}, the last {lost}: {took}");
        }
    }
}

#[test]
fn a_lost_retransmission_costs_a_few_round_trips() {
    for transport in TRANSPORTS {
        for packet in [0, 20, 48] {
            let took = time_with_losses(transport, &[(packet, 0), (packet, 1)]);
            assert!(took <= FEW_ROUND_TRIPS, "{transport}, packet {packet} twice: {took}");
        }
    }
}

/// A peer that is silent for less than the timer of a program, and for longer than the measured time, causes no
/// timeout. Probes do not reach the program.
#[test]
fn the_timer_of_a_program_is_the_least_timeout() {
    for transport in ["tonic-reno", "tonic-new-reno", "tonic-sack", "tonic-dcqcn"] {
        let mut pair = pair(transport);
        warm_up(&mut pair);
        let silent_until = pair.now + Duration::from_ms(6);
        pair.wire(
            move |sent| if sent.at < silent_until { Fate::Late(silent_until.since(sent.at)) } else { Fate::Deliver },
        );
        write(&mut pair, 1, PACKETS);
        pair.run();
        succeeds(&mut pair, [1], transport);
        assert_eq!(pair.left.info().stats.timeouts, 0, "{transport}");
    }
}

/// Monitoring shows the window of the program, which starts with ten packets.
#[test]
fn the_window_of_a_program_is_monitored() {
    let mut pair = pair("tonic-reno");
    let window = |pair: &Pair| pair.left.engine.queue_pairs().next().expect("a queue pair").window;
    assert_eq!(window(&pair), 10);
    warm_up(&mut pair);
    assert!((20..=128).contains(&window(&pair)), "{} packets", window(&pair));
}

/// The initial timeout was 8 ms. After a measurement, a silence costs the measured time plus a granule of one
/// millisecond.
#[test]
fn the_initial_timeout_is_replaced_by_measurements() {
    for transport in TRANSPORTS {
        let mut pair = pair(transport);
        warm_up(&mut pair);
        let start = pair.now;
        let silent_until = start + Duration::from_ms(2);
        pair.wire(move |sent| if sent.at < silent_until { Fate::Drop } else { Fate::Deliver });
        write(&mut pair, 1, 1);
        pair.run_until(start + Duration::from_ms(5));
        succeeds(&mut pair, [1], transport);
        assert_eq!(pair.left.info().stats.timeouts, 1, "{transport}");
    }
}

/// All acknowledgements have arrived, but the driver has not run for 50 ms: nothing is retransmitted, whatever it
/// processes first.
#[test]
fn nothing_is_retransmitted_after_the_driver_was_descheduled() {
    for transport in TRANSPORTS {
        let mut pair = pair(transport);
        warm_up(&mut pair);
        write(&mut pair, 1, PACKETS);
        let start = pair.now;
        let mut sent = Vec::new();
        while let Some(transmit) = pair.left.engine.transmit(start).and_then(Departure::roce) {
            sent.push(*transmit);
        }
        let late = start + Duration::from_ms(50);
        pair.left.engine.note_absence(late, Duration::from_ms(50));
        pair.left.engine.tick(late);
        assert!(!pair.left.engine.has_packets(), "{transport}: retransmits before it has processed ACKs");
        let meta = RxMeta { peer: PeerId(7), congested: false };
        for transmit in sent {
            let payload = vec![0; transmit.packet.payload_len as usize];
            pair.right.receive(late, transmit.format, &transmit.packet, meta, &payload);
        }
        while let Some(ack) = pair.right.engine.transmit(late).and_then(Departure::roce).copied() {
            pair.left.receive(late, ack.format, &ack.packet, meta, &[]);
        }
        succeeds(&mut pair, [1], transport);
        assert_eq!(pair.left.info().stats.packets_retransmitted, 0, "{transport}");
        // The measurement is not distorted by this: the next loss takes no longer than before.
        let at = late + Duration::from_us(1);
        pair.now = at;
        pair.wire(drop_requests(FIRST, &[(WARM + i64::from(PACKETS), 0)]));
        write(&mut pair, 2, 1);
        pair.run_until(at + FEW_ROUND_TRIPS);
        succeeds(&mut pair, [2], transport);
    }
}

/// As above, where the acknowledgements never arrive: the loss is detected one waiting time later.
#[test]
fn a_loss_before_an_absence_is_detected_after_it() {
    for transport in TRANSPORTS {
        let mut pair = pair(transport);
        warm_up(&mut pair);
        let start = pair.now;
        pair.wire(move |sent| if sent.at == start { Fate::Drop } else { Fate::Deliver });
        write(&mut pair, 1, 1);
        while pair.left.engine.transmit(start).is_some() {}
        let late = start + Duration::from_ms(50);
        pair.left.engine.note_absence(late, Duration::from_ms(50));
        pair.now = late;
        pair.run_until(late + FEW_ROUND_TRIPS);
        succeeds(&mut pair, [1], transport);
    }
}

/// A path of 20 ms with an initial timeout of 8 ms: the timeout is doubled until there is a sample, and from then on
/// nothing is sent twice.
#[test]
fn a_round_trip_longer_than_the_initial_timeout_is_measured() {
    let far = Duration::from_ms(10);
    for transport in TRANSPORTS {
        let mut pair = pair(transport);
        pair.wire(move |_| Fate::Late(far));
        for wr_id in 0..20 {
            write(&mut pair, wr_id, 1);
            pair.run();
        }
        succeeds(&mut pair, 0..20, transport);
        let before = pair.left.info().stats.packets_retransmitted;
        assert!(before <= 20, "{transport}: {before}");
        for wr_id in 20..40 {
            write(&mut pair, wr_id, 1);
            pair.run();
        }
        assert_eq!(pair.left.info().stats.packets_retransmitted, before, "{transport}");
    }
}

/// Returns the time after which a request fails when every packet from now on has the given `fate`.
fn fails_after(transport: &str, retry_count: u32, fate: impl FnMut(&Sent) -> Fate + 'static) -> Option<Duration> {
    let mut setup = setup(transport);
    setup.retry_count = retry_count;
    let mut pair = Pair::new(&setup);
    warm_up(&mut pair);
    pair.wire(fate);
    let start = pair.now;
    write(&mut pair, 1, PACKETS);
    for step in 1..1_000 {
        pair.run_until(start + Duration::from_ms(step));
        if let Some((wr_id, status)) = pair.left.statuses().first() {
            assert_eq!((*wr_id, *status), (1, WcStatus::RetryExceeded), "{transport}");
            return Some(Duration::from_ms(step));
        }
    }
    None
}

/// A peer is declared gone after the time that the retries take with the fixed timeout, 8 ms each.
#[test]
fn a_silent_peer_is_declared_gone_in_time() {
    for transport in TRANSPORTS {
        for retries in [0, 3, 7, 60] {
            let patience = Duration::from_ms(8 * u64::from(retries + 1));
            let after = fails_after(transport, retries, |_| Fate::Drop).expect("the peer is declared gone");
            let most = patience.saturating_mul(2) + Duration::from_ms(5);
            assert!(after >= patience && after <= most, "{transport}, {retries} retries: {after} of {patience}");
        }
    }
}

/// The oldest packet never arrives, but the peer responds to each probe: it is not declared gone.
#[test]
fn a_peer_that_responds_is_not_declared_gone() {
    // TCP is not tested: its window is then one packet, the oldest.
    for transport in ["irn", "fasr", "roce-sr"] {
        // The newest packet of each probe arrives, and the oldest never does.
        let oldest = FIRST.plus(WARM as u32);
        let fate = move |sent: &Sent| {
            let is_oldest = sent.from == From::Left && sent.packet.psn == oldest && sent.kind != TransmitKind::Ack;
            if is_oldest { Fate::Drop } else { Fate::Deliver }
        };
        assert_eq!(fails_after(transport, 1, fate), None, "{transport}");
    }
}

/// Tests the response to a Read, and losses that only the responder's timer can repair.
#[test]
fn responses_are_probed_by_the_responder() {
    for transport in TRANSPORTS {
        let mut pair = pair(transport);
        let read = |pair: &mut Pair, wr_id| {
            let (sge, remote) = (pair.left.sge(TARGET, PACKETS * MTU), pair.right.remote(0));
            pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
        };
        for wr_id in 0..40 {
            read(&mut pair, wr_id);
            pair.run();
        }
        assert_eq!(pair.left.statuses().len(), 40, "{transport}");
        let mut answers = 0;
        pair.wire(move |sent| {
            let is_answer = matches!(sent.packet.headers, Headers::ReadResponse { .. });
            answers += u32::from(is_answer);
            if is_answer && answers > PACKETS - 5 && answers <= PACKETS { Fate::Drop } else { Fate::Deliver }
        });
        let start = pair.now;
        read(&mut pair, 50);
        // Where the complete Read is requested again, that takes a timeout.
        pair.run_until(start + Duration::from_ms(3));
        succeeds(&mut pair, [50], transport);
    }
}

/// Losses of all kinds, in both directions: everything arrives, and no peer is declared gone.
#[test]
fn random_losses_fail_no_connection() {
    for transport in TRANSPORTS {
        for seed in 0..3 {
            let mut pair = pair(transport);
            let mut random = RandomStreams::new(seed).stream("measured");
            let loss = [1, 5, 20][seed as usize % 3];
            pair.wire(move |_| match random.below(100) {
                lost if lost < loss => Fate::Drop,
                late if late < loss + 2 => Fate::Late(Duration::from_us(30)),
                twice if twice < loss + 3 => Fate::Twice,
                _ => Fate::Deliver,
            });
            for wr_id in 0..10 {
                write(&mut pair, wr_id, PACKETS);
            }
            pair.run();
            succeeds(&mut pair, 0..10, &format!("{transport}, seed {seed}"));
            let (from, to) = (..(PACKETS * MTU) as usize, TARGET as usize);
            assert!(pair.right.memory[to..][from] == pair.left.memory[from], "{transport}, seed {seed}");
        }
    }
}

/// A message times out. Its packets were either lost, or arrive so late that the acknowledgement comes one microsecond
/// after the timeout: only the second timeout is spurious.
#[test]
fn timeouts_of_packets_that_were_not_lost_are_counted_as_spurious() {
    for transport in TRANSPORTS {
        let mut pair = pair(transport);
        warm_up(&mut pair);
        let start = pair.now;
        pair.wire(move |sent| if sent.at < start + Duration::from_ms(2) { Fate::Drop } else { Fate::Deliver });
        write(&mut pair, 1, 1);
        let mut now = start;
        while pair.left.info().stats.timeouts == 0 {
            now += Duration::from_us(1);
            pair.run_until(now);
        }
        let waited = now.since(start);
        pair.run();
        succeeds(&mut pair, [1], transport);
        assert_eq!(pair.left.info().timeouts_spurious, 0, "{transport}: the packets were lost");

        let mut pair = self::pair(transport);
        warm_up(&mut pair);
        let arrival = pair.now + waited - Duration::from_us(9);
        pair.wire(move |sent| if sent.at < arrival { Fate::Late(arrival.since(sent.at)) } else { Fate::Deliver });
        write(&mut pair, 1, 1);
        pair.run();
        succeeds(&mut pair, [1], transport);
        let (of_pair, of_engine) = (pair.left.info(), pair.left.engine.stats());
        assert_eq!((of_pair.stats.timeouts, of_pair.timeouts_spurious), (1, 1), "{transport}");
        assert_eq!((of_engine.timeouts, of_engine.timeouts_spurious), (1, 1), "{transport}");
    }
}
