//! Receivers that pull, packets without payload and tokens: Tonic's mechanisms T-14, T-16 and T-25 as seen on the wire.
//!
//! Source: Tonic (NSDI'20) section 3.3; NDP (SIGCOMM'17) section 3. Recovery is that of [`common::ndp`]. The wire takes
//! 5 us one way, the link of a receiver 88 ns for a full packet. Packets are named by their distance from the first
//! PSN.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::*;
use rnic_base::{BitRate, Duration, Psn, RandomStreams, Serial, Time};
use rnic_engine::*;
use rnic_wire::{Aeth, Headers, NakCode, Packet, PacketFlags, Syndrome};

/// The first PSN of both sides.
const FIRST: Psn = Psn::new(0xff_fffa);
/// Offset in memory that Writes go to.
const TARGET: u64 = 500_000;
/// Packets sent before any grant.
const WINDOW: u32 = 16;

fn pair() -> Pair {
    Pair::new(&ndp::setup(WINDOW))
}

fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

fn assert_written(pair: &mut Pair, packets: u32) {
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    let (len, target) = ((packets * MTU) as usize, TARGET as usize);
    assert!(pair.left.memory[..len] == pair.right.memory[target..target + len], "the data differs");
}

fn is_pull(sent: &Sent) -> bool {
    matches!(sent.packet.headers, Headers::Pull { .. })
}

/// Returns the pulls of the right side: the times and the counts.
fn pulls(pair: &Pair) -> Vec<(Time, u32)> {
    let entry = |sent: &Sent| match sent.packet.headers {
        Headers::Pull { granted } if sent.from == From::Right => Some((sent.at, granted.value())),
        _ => None,
    };
    pair.log.iter().filter_map(entry).collect()
}

/// The first window leaves at once; each packet that arrives earns the next one, and a receiver whose packets all
/// arrive at the same time grants them at the rate of its link.
#[test]
fn t25_each_arrival_earns_a_pull_at_the_rate_of_the_link() {
    let mut pair = pair();
    write(&mut pair, 1, 40);
    pair.run();
    let data = pair.trace_of(From::Left, FIRST);
    assert_eq!(data.len(), 40);
    assert!(data[..16].iter().all(|(us, ..)| *us == 0) && data[16..].iter().all(|(us, ..)| *us >= 10), "{data:?}");
    let pulls = pulls(&pair);
    assert!(pulls.iter().map(|(_, count)| *count).eq(1..=40), "{pulls:?}");
    let gap = BitRate::gbps(100).serialize(u64::from(MTU) + 78);
    assert!(pulls.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= gap), "{pulls:?}");
    assert_eq!(pulls[15].0.since(pulls[0].0), gap * 15, "the pulls are late");
    assert_eq!(pair.left.engine.stats().timeouts, 0);
    assert_written(&mut pair, 40);
}

/// A packet without payload is answered at once by a NACK that names it, and earns a pull as others do. The packets
/// that arrived whole are not sent again.
#[test]
fn t25_a_trimmed_packet_is_named_by_a_nack_and_sent_again() {
    let mut pair = pair();
    pair.wire(|sent| {
        let is_trimmed =
            sent.kind == TransmitKind::Request && [0, 5, 6, 15].contains(&FIRST.distance_to(sent.packet.psn));
        if is_trimmed { Fate::Trim } else { Fate::Deliver }
    });
    write(&mut pair, 1, 20);
    pair.run();
    let nacks = pair.log.iter().filter_map(|sent| match sent.packet.headers {
        Headers::TrimNack { aeth, trimmed, of_response: false } => {
            assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::PsnSequenceError));
            Some((sent.at, FIRST.distance_to(sent.packet.psn), FIRST.distance_to(trimmed)))
        }
        _ => None,
    });
    let nacks: Vec<_> = nacks.collect();
    let at = Time::from_us(5);
    assert_eq!(nacks, [(at, 0, 0), (at, 0, 5), (at, 0, 6), (at, 0, 15)]);
    assert_eq!(pair.resent(From::Left, FIRST), [0, 5, 6, 15]);
    assert_eq!(pulls(&pair).last().map(|(_, count)| *count), Some(24), "20 packets, four of them twice");
    assert_eq!(pair.right.engine.stats().drops[DropReason::Trimmed as usize], 4);
    assert_written(&mut pair, 20);
}

/// Read responses are granted, trimmed and reported in the same way; they share the tokens of their sender.
#[test]
fn t25_responses_are_pulled_too() {
    let mut pair = pair();
    pair.wire(|sent| {
        let is_trimmed = sent.kind == TransmitKind::Response && [3, 7].contains(&FIRST.distance_to(sent.packet.psn));
        if is_trimmed { Fate::Trim } else { Fate::Deliver }
    });
    let (sge, remote) = (pair.left.sge(TARGET, 40 * MTU), pair.right.remote(0));
    pair.left.post(1, SendOp::Read { remote }, &[sge]);
    pair.run();
    let responses = pair.trace_of(From::Right, FIRST);
    assert!(responses[..16].iter().all(|(us, ..)| *us == 5) && responses[16].0 >= 15, "{responses:?}");
    assert_eq!(pair.resent(From::Right, FIRST), [3, 7]);
    let named = |sent: &&Sent| matches!(sent.packet.headers, Headers::TrimNack { of_response: true, .. });
    assert_eq!(pair.log.iter().filter(named).count(), 2);
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    assert!(pair.right.memory[..40 * MTU as usize] == pair.left.memory[TARGET as usize..][..40 * MTU as usize]);
    assert_eq!(pair.right.engine.stats().timeouts, 0);
}

/// All pulls are lost, and half of the first window arrives without payload. The NACKs alone let nothing leave. After
/// a timeout, the packets that it marks leave, and nothing else.
#[test]
fn t16_without_pulls_the_packets_that_a_timeout_marks_leave_and_nothing_else() {
    let mut pair = pair();
    pair.wire(|sent| match sent.kind {
        TransmitKind::Request if (8..16).contains(&FIRST.distance_to(sent.packet.psn)) => Fate::Trim,
        _ if is_pull(sent) => Fate::Drop,
        _ => Fate::Deliver,
    });
    write(&mut pair, 1, 40);
    pair.run_until(Time::from_us(ndp::RTO_US));
    assert_eq!(pair.trace_of(From::Left, FIRST).len(), 16, "something left without a grant");
    assert!(pair.left.engine.stats().waits[WaitReason::Tokens as usize] > 0);
    // The timer restarts with the acknowledgement of packet 7, at 10 us.
    pair.run_until(Time::from_us(2 * ndp::RTO_US));
    let after = &pair.trace_of(From::Left, FIRST)[16..];
    let expected: Vec<_> = (8..16).map(|offset| (ndp::RTO_US + 10, offset, true)).collect();
    assert_eq!(after, expected);
    // All packets sent have been acknowledged, so no timeout runs: one packet leaves after the same time.
    pair.run_until(Time::from_us(3 * ndp::RTO_US));
    let probe = &pair.trace_of(From::Left, FIRST)[24..];
    assert_eq!(probe, [(2 * ndp::RTO_US + 20, 16, false)]);
    assert_eq!(pair.left.engine.stats().probes, 1);
    // A single pull, which counts all packets that have arrived, repairs the loss of the others.
    pair.wire(|_| Fate::Deliver);
    pair.run();
    assert_eq!(pair.left.engine.stats().timeouts, 1);
    assert_written(&mut pair, 40);
}

/// Tokens, over a long run in which packets of every type are lost, duplicated and trimmed at random: what has been
/// sent never exceeds the first window, the grants that have arrived, and what timeouts have added.
#[test]
fn t14_tokens_bound_what_is_sent() {
    for seed in 0..8 {
        bounded_by_tokens(seed);
    }
}

fn bounded_by_tokens(seed: u64) {
    let mut random = RandomStreams::new(seed).stream("tokens");
    let mut pair = pair();
    let marked_before = ndp::marked();
    // For each packet sent: the number sent, the grants that had arrived, the packets that timeouts had marked.
    let steps = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&steps);
    let (mut sent_count, mut grants) = (0u64, Vec::<(Time, u64)>::new());
    pair.wire(move |sent| {
        let roll = random.below(100);
        let fate = match sent.kind {
            TransmitKind::Ack if roll < 10 => Fate::Drop,
            TransmitKind::Request | TransmitKind::RequestRetransmission if roll < 4 => Fate::Drop,
            TransmitKind::Request | TransmitKind::RequestRetransmission if roll < 40 => Fate::Trim,
            _ if roll > 95 => Fate::TwiceLate(Duration::from_us(roll)),
            _ => Fate::Deliver,
        };
        if let Headers::Pull { granted } = sent.packet.headers
            && sent.from == From::Right
            && fate != Fate::Drop
        {
            grants.push((sent.at + DELAY, granted.value().into()));
        }
        if sent.from == From::Left && sent.kind != TransmitKind::Ack {
            sent_count += 1;
            let arrived = grants.iter().filter(|(at, _)| *at <= sent.at).map(|(_, count)| *count).max();
            log.borrow_mut().push((sent_count, arrived.unwrap_or(0), ndp::marked() - marked_before));
        }
        fate
    });
    for wr_id in 0..30 {
        write(&mut pair, wr_id, 200);
    }
    pair.run();
    let probes = pair.left.engine.stats().probes;
    let steps = steps.borrow();
    for (sent, granted, marked) in steps.iter().copied() {
        let allowed = u64::from(WINDOW) + granted + marked + probes;
        assert!(sent <= allowed, "seed {seed}: {sent} packets sent, {allowed} allowed");
    }
    let (sent, granted, marked) = *steps.last().expect("packets were sent");
    assert!(sent > 7_000 && granted > sent * 9 / 10, "{sent} sent, {granted} granted, {marked} marked");
    let completed = pair.left.statuses();
    assert_eq!(completed.len(), 30, "seed {seed}");
    assert!(completed.iter().all(|(_, status)| *status == WcStatus::Success), "seed {seed}: {completed:?}");
}

/// A peer that claims to have granted millions of packets opens no more than the first window.
#[test]
fn t16_grants_of_a_hostile_peer_are_clamped() {
    let mut pair = pair();
    pair.wire(|sent| if is_pull(sent) { Fate::Drop } else { Fate::Deliver });
    write(&mut pair, 1, 100);
    pair.run_until(Time::from_us(20));
    let pull = Packet {
        dest_qpn: pair.left.qpn,
        psn: Psn::new(0),
        flags: PacketFlags::default(),
        payload_len: 0,
        headers: Headers::Pull { granted: Serial::new((1 << 23) - 1) },
    };
    let (format, meta) = (pair.left.format, RxMeta { peer: PeerId(7), congested: false });
    assert_eq!(pair.left.receive(pair.now, format, &pull, meta, &[]), RxOutcome::Accepted);
    pair.run_until(Time::from_us(30));
    assert_eq!(pair.trace_of(From::Left, FIRST).len(), 32, "a first window and one more");
    assert_eq!(pair.left.receive(pair.now, format, &pull, meta, &[]), RxOutcome::Duplicate);
}

/// NACKs of packets that are not outstanding, and of packets that were never sent, mark nothing.
#[test]
fn nacks_of_packets_that_are_not_missing_have_no_effect() {
    let mut pair = pair();
    write(&mut pair, 1, 4);
    pair.run();
    let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), msn: Serial::new(0) };
    let (format, meta) = (pair.left.format, RxMeta { peer: PeerId(7), congested: false });
    for (psn, trimmed, of_response, expected) in [
        (4, 2, false, RxOutcome::Duplicate),
        (4, 4, false, RxOutcome::Duplicate),
        (9, 9, false, RxOutcome::Dropped(DropReason::Unsolicited)),
        (0, 0, true, RxOutcome::Dropped(DropReason::Unsolicited)),
    ] {
        let headers = Headers::TrimNack { aeth, trimmed: FIRST.plus(trimmed), of_response };
        let (dest_qpn, flags) = (pair.left.qpn, PacketFlags::default());
        let packet = Packet { dest_qpn, psn: FIRST.plus(psn), flags, payload_len: 0, headers };
        assert_eq!(pair.left.receive(pair.now, format, &packet, meta, &[]), expected, "{psn} {trimmed}");
    }
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), []);
    assert_written(&mut pair, 4);
}

/// A connection whose receiver does not pull drops packets without payload, and recovers as from a loss.
#[test]
fn without_pulls_a_trimmed_packet_counts_as_lost() {
    let mut pair = Pair::of("irn");
    pair.wire(|sent| {
        let is_trimmed = sent.kind == TransmitKind::Request && FIRST.distance_to(sent.packet.psn) == 3;
        if is_trimmed { Fate::Trim } else { Fate::Deliver }
    });
    write(&mut pair, 1, 20);
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), [3]);
    assert_eq!(pair.right.engine.stats().drops[DropReason::Trimmed as usize], 1);
    assert!(!pair.log.iter().any(|sent| is_pull(sent) || matches!(sent.packet.headers, Headers::TrimNack { .. })));
    assert_written(&mut pair, 20);
}
