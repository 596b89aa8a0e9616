//! Queue pairs that use several flows for messages that may be delivered in any order (Tonic, appendix A, T-27).

mod common;

use common::*;
use rnic_base::{Duration, RandomStreams, Time};
use rnic_engine::*;
use rnic_wire::{Headers, Qpn};

/// The six programs, with timeouts of about a hundred microseconds.
const PROGRAMS: [(&str, &[(&str, &str)]); 6] = [
    ("tonic-reno", &[("rto_min", "100us"), ("rto_max", "1ms")]),
    ("tonic-new-reno", &[("rto_min", "100us"), ("rto_max", "1ms")]),
    ("tonic-sack", &[("rto_min", "100us"), ("rto_max", "1ms")]),
    ("tonic-ndp", &[("rto", "100us")]),
    ("tonic-dcqcn", &[("rto", "100us")]),
    ("tonic-irn", &[("cap", "64"), ("rto_low", "50us"), ("rto_high", "200us")]),
];

const TARGET: u64 = 400_000;

fn setup((transport, options): (&str, &[(&str, &str)]), flows: &str) -> Setup {
    let options: Vec<_> = options.iter().copied().chain([("flows", flows)]).collect();
    Setup { reads: 16, ..Setup::new(transport, &options) }
}

fn us(time: u64) -> Time {
    Time::from_us(time)
}

/// Posts request `wr_id`, with data or space of `len` bytes of its own at both ends.
fn post(pair: &mut Pair, wr_id: u64, len: u32, op: fn(RemoteMemory) -> SendOp) {
    let at = wr_id * 8_192;
    let (sge, remote) = (pair.left.sge(at, len), pair.right.remote(TARGET + at));
    pair.left.post(wr_id, op(remote), &[sge]);
}

const WRITE: fn(RemoteMemory) -> SendOp = |remote| SendOp::Write { remote, immediate: None };
const READ: fn(RemoteMemory) -> SendOp = |remote| SendOp::Read { remote };

/// Returns which of the first `count` requests have moved their data.
fn moved(pair: &Pair, count: u64, len: usize) -> Vec<u64> {
    let has_moved = |wr_id: &u64| {
        let at = *wr_id as usize * 8_192;
        pair.left.memory[at..at + len] == pair.right.memory[TARGET as usize + at..][..len]
    };
    (0..count).filter(has_moved).collect()
}

/// Loses the packets of message 0 until 90 us: on its flow, all that a Write or a Read of one packet sends first.
fn lose_first(pair: &mut Pair) {
    let mut first = None;
    pair.wire(move |sent| {
        if sent.from != From::Left || sent.kind == TransmitKind::Ack || sent.at > us(90) {
            return Fate::Deliver;
        }
        let it = (sent.packet.dest_qpn, sent.packet.psn);
        if *first.get_or_insert(it) == it { Fate::Drop } else { Fate::Deliver }
    });
}

/// Messages complete at the other end in another order than that of their posting, and are reported in that order.
#[test]
fn t27_a_loss_on_one_flow_does_not_hold_the_messages_of_others() {
    for program in PROGRAMS {
        for (op, is_held) in [(READ, true), (WRITE, program.0 == "tonic-dcqcn")] {
            let outcome = |flows| {
                let mut pair = Pair::new(&setup(program, flows));
                lose_first(&mut pair);
                for wr_id in 0..8 {
                    post(&mut pair, wr_id, 800, op);
                }
                pair.run_until(us(80));
                let early = (moved(&pair, 8, 800), pair.left.statuses().len());
                pair.run();
                let ids: Vec<u64> = pair.left.completions().iter().map(|done| done.wr_id).collect();
                assert_eq!((moved(&pair, 8, 800), ids), ((0..8).collect(), (0..8).collect()), "{program:?}");
                early
            };
            // Requests 0 and 4 are on the first of four flows. Where Writes are placed out of order, one flow does not
            // hold them either, as long as its window has space.
            let [expected, on_one_flow] =
                if is_held { [vec![1, 2, 3, 5, 6, 7], vec![]] } else { [1, 1].map(|first| (first..8).collect()) };
            assert_eq!(outcome("4"), (expected, 0), "{program:?}");
            assert_eq!(outcome("1"), (on_one_flow, 0), "{program:?}");
        }
    }
}

/// A wire that loses, delays and duplicates packets in both directions.
fn trouble(seed: u64) -> impl FnMut(&Sent) -> Fate + 'static {
    let mut random = RandomStreams::new(seed).stream("wire");
    move |_| match random.below(20) {
        0 => Fate::Drop,
        1 => Fate::Twice,
        2 => Fate::TwiceLate(Duration::from_us(random.below(60))),
        3 | 4 => Fate::Late(Duration::from_us(random.below(40))),
        _ => Fate::Deliver,
    }
}

/// Writes, Reads, Sends, Writes with immediate data and atomics, each delivered once under loss, reordering and
/// duplicates: sums of atomics count each once, and a Send is received after the Writes before it.
#[test]
fn t27_all_operations_are_delivered_exactly_once_over_several_flows() {
    for program in PROGRAMS {
        for (flows, seed) in [("2", 1), ("4", 2), ("8", 3), ("4", 4)] {
            let mut pair = Pair::new(&setup(program, flows));
            pair.wire(trouble(seed));
            let word = TARGET + 500_000;
            pair.right.memory[word as usize..][..8].copy_from_slice(&0u64.to_ne_bytes());
            let mut sums = Vec::new();
            for wr_id in 0..48 {
                match wr_id % 8 {
                    3 => {
                        let sge = pair.right.sge(TARGET + wr_id * 8_192, 4_096);
                        pair.right.post_recv(wr_id, &[sge]);
                        let sge = pair.left.sge(wr_id * 8_192, 3_000);
                        pair.left.post(wr_id, SendOp::Send { immediate: None }, &[sge]);
                    }
                    5 => {
                        let remote = pair.right.remote(word);
                        let sge = pair.left.sge(wr_id * 8_192, 8);
                        pair.left.post(wr_id, SendOp::FetchAdd { remote, add: 1 }, &[sge]);
                        sums.push(wr_id as usize * 8_192);
                    }
                    7 => {
                        pair.right.post_recv(wr_id, &[]);
                        post(&mut pair, wr_id, 3_000, |remote| SendOp::Write { remote, immediate: Some(7) });
                    }
                    1 => post(&mut pair, wr_id, 5_000, READ),
                    _ => post(&mut pair, wr_id, 3_000, WRITE),
                }
            }
            pair.run();
            let (place, done) = (format!("{} flows={flows} seed {seed}", program.0), pair.left.completions());
            let reported: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
            assert_eq!(reported, (0..48).map(|wr_id| (wr_id, WcStatus::Success)).collect::<Vec<_>>(), "{place}");
            assert!(done.iter().all(|done| done.opcode != WcOpcode::RdmaRead || done.byte_len == 5_000), "{place}");
            let received: Vec<u64> = pair.right.completions().iter().map(|done| done.wr_id).collect();
            assert_eq!(received, (0..48).filter(|wr_id| matches!(wr_id % 8, 3 | 7)).collect::<Vec<_>>(), "{place}");
            let atomics = sums.iter().map(|at| u64::from_ne_bytes(pair.left.memory[*at..at + 8].try_into().unwrap()));
            assert_eq!(atomics.collect::<Vec<_>>(), (0..6).collect::<Vec<_>>(), "{place}");
            let plain: Vec<u64> = (0..48).filter(|wr_id| wr_id % 8 != 5).collect();
            let all = moved(&pair, 48, 3_000);
            assert!(plain.iter().all(|wr_id| all.contains(wr_id)), "{place}: {all:?}");
            assert!(pair.left.info().stats.packets_retransmitted > 0, "{place}: nothing was lost");
        }
    }
}

/// The order of posting is kept by Sends and atomics behind Writes, requests to the same memory, fenced requests.
#[test]
fn t27_messages_that_depend_on_earlier_ones_wait_for_them() {
    let program = PROGRAMS[5];
    let trace = |act: &dyn Fn(&mut Pair)| {
        let mut pair = Pair::new(&setup(program, "4"));
        lose_first(&mut pair);
        act(&mut pair);
        pair.run_until(us(80));
        let numbers = pair.log.iter().filter(|sent| sent.from == From::Left && sent.kind == TransmitKind::Request);
        let qpn = pair.right.qpn.get();
        let flows: Vec<u32> = numbers.map(|sent| sent.packet.dest_qpn.get() ^ qpn).collect();
        pair.run();
        assert!(pair.left.completions().iter().all(|done| done.status == WcStatus::Success));
        (flows, pair)
    };
    let send = |pair: &mut Pair| {
        pair.right.post_recv(9, &[pair.right.sge(900_000, 100)]);
        pair.left.post(9, SendOp::Send { immediate: None }, &[pair.left.sge(0, 100)]);
    };
    // Two Writes on two flows; the Send waits, and the Write behind it too.
    let (flows, _) = trace(&|pair| {
        post(pair, 0, 800, WRITE);
        post(pair, 1, 800, WRITE);
        send(pair);
        post(pair, 2, 800, WRITE);
    });
    assert_eq!(flows, [1, 2]);
    // A Write or Read that overlaps an earlier Write is behind it on its flow.
    let (flows, pair) = trace(&|pair| {
        post(pair, 0, 800, WRITE);
        let remote = pair.right.remote(TARGET + 799);
        pair.left.post(1, SendOp::Write { remote, immediate: None }, &[pair.left.sge(20_000, 800)]);
        pair.left.post(2, SendOp::Read { remote }, &[pair.left.sge(30_000, 800)]);
        post(pair, 3, 800, WRITE);
    });
    // The fourth, on another flow, does not wait for its turn behind them.
    assert_eq!(flows, [1, 2, 1, 1]);
    // As on one flow, the byte that both Writes have is that of the packet placed last, without `fence_overlaps`.
    assert_eq!(pair.left.memory[30_001..30_800], pair.left.memory[20_001..20_800]);
    // One that overlaps two Writes on different flows waits for both, as a fenced one does for all.
    let across = |flags: SendFlags, len: u32| {
        trace(&move |pair| {
            post(pair, 0, 8_192, WRITE);
            post(pair, 1, 800, WRITE);
            let sges = [pair.left.sge(50_000, len)];
            let op = SendOp::Write { remote: pair.right.remote(TARGET + 8_000), immediate: None };
            let request = SendRequest { wr_id: 2, op, sges: &sges, flags: flags | SendFlags::SIGNALED };
            pair.left.engine.post_send(pair.left.qpn, &request).expect("space");
        })
        .0
    };
    assert!(!across(SendFlags::empty(), 400).contains(&3));
    assert_eq!(across(SendFlags::empty(), 100).last(), Some(&1));
    assert!(!across(SendFlags::FENCE, 0).contains(&3));
    assert!(across(SendFlags::empty(), 0).contains(&3));
}

/// A Write that is refused on its flow fails both queue pairs; requests whose result is unknown are flushed, and both
/// ends can be connected again.
#[test]
fn t27_a_refused_message_fails_the_queue_pair_and_all_its_flows() {
    for program in PROGRAMS {
        let setup = setup(program, "4");
        let mut pair = Pair::new(&setup);
        for round in 0..2 {
            if round == 0 {
                lose_first(&mut pair);
            } else {
                pair.wire(|_| Fate::Deliver);
            }
            pair.right.post_recv(77, &[]);
            post(&mut pair, 0, 800, WRITE);
            post(&mut pair, 1, 800, WRITE);
            let op = SendOp::Write { remote: RemoteMemory { addr: BASE, rkey: 0xbad }, immediate: None };
            pair.left.post(2, op, &[pair.left.sge(0, 800)]);
            post(&mut pair, 3, 800, WRITE);
            pair.run();
            let first = if round == 0 { WcStatus::WrFlushed } else { WcStatus::Success };
            let statuses = pair.left.statuses();
            assert_eq!(statuses.len(), 4, "{program:?} {statuses:?}");
            assert_eq!(statuses[0], (0, first), "{program:?} {statuses:?}");
            assert_eq!(statuses[2..], [(2, WcStatus::RemoteAccess), (3, WcStatus::WrFlushed)], "{program:?}");
            assert_eq!(pair.right.statuses(), [(77, WcStatus::WrFlushed)], "{program:?}");
            let event = pair.right.engine.objects_mut().poll_event();
            assert_eq!(event, Some(AsyncEvent::QpAccessError(pair.right.qpn)), "{program:?}");
            assert_eq!([&pair.left, &pair.right].map(|side| side.info().state), [QpState::Error; 2], "{program:?}");
            // Packets that arrive late for a flow have no effect.
            let ids = [pair.right.qpn, pair.left.qpn];
            for (side, to) in [&mut pair.left, &mut pair.right].into_iter().zip(ids) {
                side.engine.modify_to_reset(side.qpn).expect("it exists");
                side.connect_qp(side.qpn, &setup, to);
            }
            post(&mut pair, 4, 5_000, WRITE);
            pair.run();
            assert_eq!(pair.left.statuses(), [(4, WcStatus::Success)], "{program:?}");
        }
    }
}

/// Local errors of a flow complete in order; a program that fails its queue pair, and a peer that is gone, end all
/// flows; so does the destruction, after which the numbers are free.
#[test]
fn t27_flows_end_with_their_queue_pair() {
    let setup = setup(PROGRAMS[2], "8");
    let mut pair = Pair::new(&setup);
    lose_first(&mut pair);
    post(&mut pair, 0, 800, WRITE);
    let remote = pair.right.remote(TARGET + 100_000);
    pair.left.post(1, SendOp::Read { remote }, &[Sge { addr: BASE, len: 8, lkey: 0xbad }]);
    post(&mut pair, 2, 800, WRITE);
    pair.run();
    let expected = [(0, WcStatus::Success), (1, WcStatus::LocalProtection), (2, WcStatus::WrFlushed)];
    assert_eq!(pair.left.statuses(), expected);

    for gone in [false, true] {
        let mut pair = Pair::new(&setup);
        pair.wire(|_| Fate::Drop);
        (0..40).for_each(|wr_id| post(&mut pair, wr_id, 800, WRITE));
        pair.run_until(us(50));
        if gone {
            pair.left.engine.on_peer_gone(pair.left.qpn).expect("it exists");
        } else {
            pair.left.engine.modify_to_error(pair.left.qpn).expect("it exists");
        }
        let first = if gone { WcStatus::RetryExceeded } else { WcStatus::WrFlushed };
        let statuses = pair.left.statuses();
        assert_eq!((statuses.len(), statuses[0], statuses[39]), (40, (0, first), (39, WcStatus::WrFlushed)));
        let sent = pair.log.len();
        pair.run();
        assert_eq!(pair.log.iter().skip(sent).filter(|sent| sent.from == From::Left).count(), 0, "a flow still sends");
        pair.left.engine.destroy_qp(pair.left.qpn).expect("it exists");
        for bits in 0..=8 {
            let number = Some(Qpn::new(pair.left.qpn.get() ^ bits));
            let attributes =
                QpAttributes { number, ..default_attributes(&Setup::new("irn", &[]), pair.left.pd, pair.left.cq) };
            pair.left.engine.create_qp(&attributes).expect("the number is free");
        }
        let taken = QpAttributes { number: None, ..default_attributes(&setup, pair.left.pd, pair.left.cq) };
        let qpn = pair.left.engine.create_qp(&taken).expect("other numbers are free");
        let refused = QpAttributes { number: Some(Qpn::new(pair.left.qpn.get() ^ 9)), ..taken };
        let error = pair.left.engine.create_qp(&refused).expect_err("its flows' numbers are in use");
        assert!(matches!(error, ResourceError::NumberInUse(_)), "{error}");
        assert_eq!(pair.left.engine.queue_pairs().count(), 10, "flows are listed");
        pair.left.engine.destroy_qp(qpn).expect("it exists");
    }
}

/// All messages of a drained send queue complete, and a drained queue sends no new ones.
#[test]
fn t27_a_send_queue_with_flows_drains() {
    let setup = setup(PROGRAMS[5], "4");
    let mut pair = Pair::new(&setup);
    lose_first(&mut pair);
    (0..6).for_each(|wr_id| post(&mut pair, wr_id, 800, WRITE));
    pair.run_until(us(2));
    pair.left.engine.modify_to_sqd(pair.left.qpn).expect("it is ready to send");
    post(&mut pair, 6, 800, WRITE);
    pair.run();
    assert_eq!(pair.left.statuses().len(), 6);
    let event = pair.left.engine.objects_mut().poll_event();
    assert_eq!(event, Some(AsyncEvent::SendQueueDrained(pair.left.qpn)));
    pair.left.engine.modify_to_rts(pair.now, pair.left.qpn, &timing(&setup)).expect("it is drained");
    pair.run();
    assert_eq!(pair.left.statuses(), [(6, WcStatus::Success)]);
}

/// Rights that a queue pair has when it gets a transport with flows hold on these: a Write is refused.
#[test]
fn t27_flows_have_the_rights_of_their_queue_pair() {
    for early in [true, false] {
        let (one, four) = (setup(PROGRAMS[5], "1"), setup(PROGRAMS[5], "4"));
        let mut pair = Pair::new(&one);
        let ids = [pair.right.qpn, pair.left.qpn];
        for (side, to) in [&mut pair.left, &mut pair.right].into_iter().zip(ids) {
            side.engine.modify_to_reset(side.qpn).expect("it exists");
            if early {
                side.engine.set_access(side.qpn, Access::REMOTE_READ).expect("it exists");
            }
            side.engine.set_transport(side.qpn, &four.transport).expect("it is not connected");
            side.connect_qp(side.qpn, &four, to);
            if !early {
                side.engine.set_access(side.qpn, Access::REMOTE_READ).expect("it exists");
            }
        }
        post(&mut pair, 0, 800, READ);
        post(&mut pair, 1, 800, WRITE);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::Success), (1, WcStatus::RemoteInvalidRequest)], "{early}");
    }
}

/// A transport that is replaced before the connection brings its own flows; a limit of the rate is divided.
#[test]
fn t27_flows_follow_the_transport_and_share_the_limit_of_the_rate() {
    let (one, four) = (setup(PROGRAMS[5], "1"), setup(PROGRAMS[5], "4"));
    let mut pair = Pair::new(&one);
    let operator = Some(RateLimit { rate: rnic_base::BitRate::gbps(3), burst_bytes: None });
    for side in [&mut pair.left, &mut pair.right] {
        side.engine.modify_to_reset(side.qpn).expect("it exists");
        side.engine.set_rate_limit(Time::ZERO, side.qpn, LimitSource::Operator, operator).expect("a legal rate");
        let of = |side: &Side| (side.info().rate_limits[LimitSource::Operator as usize], side.info().dequeue_rate);
        side.engine.set_transport(side.qpn, &four.transport).expect("it is not connected");
        assert_eq!(of(side), (operator, Some(rnic_base::BitRate::bps(600_000_000))));
        side.engine.set_transport(side.qpn, &one.transport).expect("it is not connected");
        assert_eq!(of(side), (operator, operator.map(|limit| limit.rate)));
        side.engine.set_transport(side.qpn, &four.transport).expect("it is not connected");
    }
    let ids = [pair.right.qpn, pair.left.qpn];
    for (side, to) in [&mut pair.left, &mut pair.right].into_iter().zip(ids) {
        side.connect_qp(side.qpn, &four, to);
    }
    let limit = RateLimit { rate: rnic_base::BitRate::gbps(1), burst_bytes: Some(2_000) };
    pair.left.engine.set_rate_limit(pair.now, pair.left.qpn, LimitSource::Program, Some(limit)).expect("a legal rate");
    assert_eq!(pair.left.info().rate_limits[LimitSource::Program as usize], Some(limit));
    let begin = pair.now;
    (0..40).for_each(|wr_id| post(&mut pair, wr_id, 5_000, WRITE));
    pair.run();
    assert_eq!(pair.left.statuses().len(), 40);
    let last = pair.log.iter().filter(|sent| matches!(sent.packet.headers, Headers::Write { .. })).map(|sent| sent.at);
    let took = last.max().expect("Writes").since(begin).as_ps() as f64 / 1e6;
    // 40 messages of 5 packets with 78 bytes of headers each at 1 Gbit/s; four of five parts of it carry Writes.
    let at_limit = 40.0 * (5_000.0 + 5.0 * 78.0) * 8.0 / 1_000.0;
    assert!((0.9 * at_limit..1.4 * at_limit).contains(&took), "{took} us, {at_limit} at the limit");
}
