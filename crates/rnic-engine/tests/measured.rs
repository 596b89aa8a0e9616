//! Timeouts that are measured: what a loss costs, what a process off its core may not cause, who is given up.
//!
//! Source: RFC 6298, RFC 8985, Karn and Partridge (SIGCOMM'87). The wire takes 5 us one way: a round trip is 10 us.

mod common;

use common::*;
use rnic_base::{Duration, Psn, RandomStreams};
use rnic_engine::*;
use rnic_wire::Headers;

/// The first PSN of both sides.
const FIRST: Psn = Psn::new(0xff_fffa);
/// Where Writes go.
const TARGET: u64 = 500_000;
const TRANSPORTS: [&str; 7] = ["irn", "srnic", "fasr", "roce-sr", "roce-gbn", "tcp", "roce-ar"];
/// A message of so many packets.
const PACKETS: u32 = 50;
/// A few round trips, and all that is lost is here.
const FEW_ROUND_TRIPS: Duration = Duration::from_us(100);

/// As on sockets: a timeout of 8 ms until something is measured.
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

/// Some messages without a loss: the path is known. The next packet is number `WARM` from the first.
fn warm_up(pair: &mut Pair) {
    for wr_id in 0..40 {
        write(pair, 1_000 + wr_id, PACKETS);
        pair.run();
    }
    assert_eq!(pair.left.statuses().len(), 40);
    assert_eq!(pair.left.info().stats.packets_retransmitted, 0, "nothing is probed that is answered");
}

const WARM: i64 = 40 * PACKETS as i64;

/// How long a Write takes whose packets `drops` (number from the Write's first, transmission) are lost.
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
            // Without NACKs, with one hole a NACK, and with windows, every packet of it may take a round trip.
            let is_slow = matches!(transport, "roce-ar" | "roce-sr" | "tcp");
            let limit = if is_slow { Duration::from_us(2_000) } else { FEW_ROUND_TRIPS };
            assert!(took <= limit, "{transport}, the last {lost}: {took}");
        }
    }
}

#[test]
fn a_lost_repair_costs_a_few_round_trips() {
    for transport in TRANSPORTS {
        for packet in [0, 20, 48] {
            let took = time_with_losses(transport, &[(packet, 0), (packet, 1)]);
            assert!(took <= FEW_ROUND_TRIPS, "{transport}, packet {packet} twice: {took}");
        }
    }
}

/// The first timeout was 8 ms. What a silence costs is what was measured, a granule of a millisecond above it.
#[test]
fn what_a_connection_begins_with_does_not_last() {
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

/// All acknowledgements are here, but nobody has looked for 50 ms: nothing is sent again, whatever comes first.
#[test]
fn a_driver_that_was_off_its_core_sends_nothing_again() {
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
        assert!(!pair.left.engine.has_packets(), "{transport}: it may have been answered");
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
        // It has learned nothing wrong from it: the next loss costs what it did.
        let at = late + Duration::from_us(1);
        pair.now = at;
        pair.wire(drop_requests(FIRST, &[(WARM + i64::from(PACKETS), 0)]));
        write(&mut pair, 2, 1);
        pair.run_until(at + FEW_ROUND_TRIPS);
        succeeds(&mut pair, [2], transport);
    }
}

/// The same where they never come: it is found out one wait later.
#[test]
fn what_was_lost_before_an_absence_is_found_after_it() {
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

/// A path of 20 ms, where all begins with a timeout of 8 ms: it is backed off from until there is a sample, and from
/// then on nothing is sent twice.
#[test]
fn a_path_that_is_longer_than_the_first_timeout_is_learned() {
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

/// When a request fails whose peer answers with `fate` from now on.
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

/// Patience is what the retries of the fixed timeout take: 8 ms each.
#[test]
fn a_peer_that_is_gone_is_given_up_in_time() {
    for transport in TRANSPORTS {
        for retries in [0, 3, 7, 60] {
            let patience = Duration::from_ms(8 * u64::from(retries + 1));
            let after = fails_after(transport, retries, |_| Fate::Drop).expect("it is gone");
            let most = patience.saturating_mul(2) + Duration::from_ms(5);
            assert!(after >= patience && after <= most, "{transport}, {retries} retries: {after} of {patience}");
        }
    }
}

/// Nothing gets through, but the peer says so each time: it is not given up.
#[test]
fn a_peer_that_answers_is_not_given_up() {
    // TCP's window is one packet by then: the oldest.
    for transport in ["irn", "fasr", "roce-sr"] {
        // The newest packet of each probe comes in, and the oldest never does.
        let oldest = FIRST.plus(WARM as u32);
        let fate = move |sent: &Sent| {
            let is_oldest = sent.from == From::Left && sent.packet.psn == oldest && sent.kind != TransmitKind::Ack;
            if is_oldest { Fate::Drop } else { Fate::Deliver }
        };
        assert_eq!(fails_after(transport, 1, fate), None, "{transport}");
    }
}

/// A Read's answer, and what only the responder's timer can repair.
#[test]
fn answers_are_probed_for_too() {
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
        // Where a Read is asked for again as a whole, that takes a timeout.
        pair.run_until(start + Duration::from_ms(3));
        succeeds(&mut pair, [50], transport);
    }
}

/// Losses of all kinds, in both directions: everything arrives, and nobody is given up.
#[test]
fn random_losses_end_nothing() {
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
