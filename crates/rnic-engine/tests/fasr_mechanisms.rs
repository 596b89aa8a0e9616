//! FaSR's mechanisms, one test for each id, as seen on the wire, in memory and in the counters of the pool.
//!
//! Source: FaSR (2025) sections III and IV. The ids are those of the project's table of mechanisms.
//! Tested elsewhere: the counts and lists inside the pool (R-1, R-9 to in
//! `window/pool/tests.rs`), the bytes of the headers (R-20 in `rnic-wire`), sizes (R-12, R-23 in `rnic-transports`),
//! the model of the NIC (R-19, R-22, R-25 in `rnic-fabric`), programs (R-27 in `rnic-verbs`). `docs/mechanisms.md`
//! lists them all.
//!
//! The wire takes 5 us one way and any number of packets at the same time, so a round trip is 10 us and times in
//! microseconds are exact. Packets are named by their distance from the first PSN, which lies six before the wrap.

mod common;

#[path = "fasr_mechanisms/modules.rs"]
mod modules;

use common::*;
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;
use rnic_wire::{Headers, LossCause, Position};

const FIRST: Psn = Psn::new(0xff_fffa);
const TARGET: u64 = 500_000;

fn fasr() -> Pair {
    Pair::of("fasr")
}

fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(TARGET));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

/// Runs a Write of `packets` packets over a wire that loses `drops`, and checks that it arrives.
fn written(packets: u32, drops: &[(i64, u32)]) -> Pair {
    let mut pair = fasr();
    pair.wire(drop_requests(FIRST, drops));
    write(&mut pair, 1, packets);
    pair.run();
    arrives(&mut pair, packets);
    pair
}

fn arrives(pair: &mut Pair, packets: u32) {
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    let (at, len) = (TARGET as usize, (packets * MTU) as usize);
    assert!(pair.right.memory[at..at + len] == pair.left.memory[..len], "the memory differs from the data sent");
    for side in [&pair.left, &pair.right] {
        let pool = side.engine.pool_stats();
        assert_eq!((pool.units_in_use, pool.blocks_in_use), (0, 0), "units or blocks are still in use");
    }
}

/// Returns the loss reports of one side: cause, offset of the packet, count, overflow.
fn notes(pair: &Pair, from: From) -> Vec<(LossCause, i64, u8, bool)> {
    let report = |sent: &Sent| match sent.packet.headers {
        Headers::LossAck { report, .. } if sent.from == from => {
            Some((report.cause, FIRST.distance_to(report.psn), report.lost, report.overflow))
        }
        _ => None,
    };
    pair.log.iter().filter_map(report).collect()
}

/// Loses the SACKs for the packets at `offsets`, and the data of `drops`.
fn lose_sacks(offsets: &'static [i64], drops: &[(i64, u32)]) -> impl FnMut(&Sent) -> Fate + 'static {
    let mut data = drop_requests(FIRST, drops);
    move |sent| match sent.packet.headers {
        Headers::LossAck { report, .. } if offsets.contains(&FIRST.distance_to(report.psn)) => Fate::Drop,
        _ => data(sent),
    }
}

fn us(us: u64) -> Time {
    Time::from_us(us)
}

/// SACKs carry the number of packets that are missing; each repair lowers that number, and its
/// acknowledgement carries the new one. Packets that arrive in order get plain acknowledgements.
#[test]
fn r1_r5_sacks_carry_the_number_of_missing_packets() {
    use LossCause::{OutOfOrder, Repaired};
    let pair = written(12, &[(5, 0), (8, 0)]);
    let early = [(6, 1), (7, 1), (9, 2), (10, 2), (11, 2)].map(|(at, lost)| (OutOfOrder, at, lost, false));
    let repaired = [(5, 1), (8, 0)].map(|(at, lost)| (Repaired, at, lost, false));
    assert_eq!(notes(&pair, From::Right), [&early[..], &repaired].concat());
    assert_eq!(pair.acks_of(From::Right), 12);
}

/// with one loss, whatever arrives after it, neither end uses a bitmap.
#[test]
fn r2_a_single_loss_uses_no_bitmap() {
    let pair = written(400, &[(5, 0)]);
    assert_eq!(pair.resent(From::Left, FIRST), [5]);
    let [left, right] = [&pair.left, &pair.right].map(|side| side.engine.pool_stats());
    assert_eq!((left.blocks_in_use_max, right.blocks_in_use_max), (0, 0));
    assert_eq!((right.fast_path, right.slow_path, right.blocks_visited), (395, 0, 0));
    assert_eq!((right.recoveries_without_blocks, right.losses_per_recovery[1]), (1, 1));
    assert_eq!((left.units_in_use_max, right.units_in_use_max), (1, 1));
}

/// with two packets missing, the bitmap tells where the next hole is, and the acknowledgement of the repair
/// (AACK) carries that; with one left, the blocks are returned to the pool.
#[test]
fn r3_r4_two_losses_use_the_slow_path_and_one_the_fast_path() {
    let pair = written(40, &[(5, 0), (8, 0)]);
    let right = pair.right.engine.pool_stats();
    assert!(right.slow_path > 30 && right.blocks_in_use_max == 4, "{right:?}");
    assert_eq!((right.slow_to_fast, right.traversals, right.losses_per_recovery[2]), (1, 0, 1));
    let aack = pair.log.iter().filter_map(|sent| match sent.packet.headers {
        Headers::LossAck { report, .. } if report.cause == LossCause::Repaired => {
            Some(FIRST.distance_to(sent.packet.psn) + 1)
        }
        _ => None,
    });
    assert_eq!(aack.collect::<Vec<_>>(), [8, 40], "not the packets expected after each retransmission");
}

/// when data is lost, exactly the holes are retransmitted; when a SACK is lost during the recovery, nothing more
/// is.
#[test]
fn r6_a_gap_in_sacks_without_more_losses_is_a_lost_sack() {
    assert_eq!(written(12, &[(5, 0), (8, 0)]).resent(From::Left, FIRST), [5, 8]);
    let resent = |sacks, drops: &[(i64, u32)]| {
        let mut pair = fasr();
        pair.wire(lose_sacks(sacks, drops));
        write(&mut pair, 1, 12);
        pair.run();
        arrives(&mut pair, 12);
        pair.resent(From::Left, FIRST)
    };
    assert_eq!(resent(&[8, 9], &[(5, 0)]), [5]);
    assert_eq!(resent(&[6], &[(5, 0)]), [5, 6], "the first SACK does not retransmit all earlier packets");
    assert_eq!(resent(&[7], &[(5, 0), (8, 0)]), [5, 7, 8], "a gap with more losses does not retransmit the whole gap");
}

/// only the acknowledgement advances UNACK, while the bitmap still describes the packets after it.
#[test]
fn r7_una_advances_only_by_the_acknowledgement() {
    let mut pair = fasr();
    let mut drop = drop_requests(FIRST, &[(5, 0), (8, 0)]);
    pair.wire(move |sent| match drop(sent) {
        Fate::Deliver
            if sent.kind == TransmitKind::RequestRetransmission && FIRST.distance_to(sent.packet.psn) == 8 =>
        {
            Fate::Late(Duration::from_us(20))
        }
        fate => fate,
    });
    write(&mut pair, 1, 12);
    pair.run_until(us(20));
    let info = pair.left.info();
    assert_eq!(info.next.since(info.una), 4, "una is not 8");
    assert!(pair.left.engine.pool_stats().units_in_use == 1);
    pair.run();
    arrives(&mut pair, 12);
}

/// a timeout retransmits the whole window when nothing is known; one packet when that one is known to be
/// missing; with more missing, the oldest one and the zeros of the bitmap.
#[test]
fn r8_a_timeout_retransmits_the_packets_known_to_be_missing() {
    let all: Vec<_> = (0..4).map(|packet| (packet, 0)).collect();
    let times = |pair: &Pair| pair.resent_at(From::Left, FIRST);
    assert_eq!(times(&written(4, &all)), [(320, 0), (320, 1), (320, 2), (320, 3)]);
    assert_eq!(times(&written(10, &[(5, 0), (5, 1)])), [(10, 5), (330, 5)]);
    let both = [(3, 0), (5, 0), (3, 1), (5, 1)];
    assert_eq!(times(&written(10, &both)), [(10, 3), (10, 5), (330, 3), (330, 5)]);
}

/// as many units are in use as queue pairs are in recovery, at either end; none when there is no recovery.
#[test]
fn r9_units_in_use_equal_the_queue_pairs_in_recovery() {
    let setup = Setup::new("fasr", &[]);
    let mut pair = Pair::new(&setup);
    let (left, _) = pair.another(&setup);
    pair.wire(drop_requests(FIRST, &[(1, 0), (1, 1)]));
    write(&mut pair, 1, 4);
    let (sge, remote) = (pair.left.sge(0, 4 * MTU), pair.right.remote(TARGET));
    let op = SendOp::Write { remote, immediate: None };
    let request = SendRequest { wr_id: 2, op, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(left, &request).expect("the queue is not full");
    pair.run_until(us(9));
    assert_eq!(pair.right.engine.pool_stats().units_in_use, 2);
    assert_eq!(pair.left.engine.pool_stats().units_in_use, 0, "the sender holds a unit before the first SACK");
    pair.run_until(us(12));
    assert_eq!(pair.left.engine.pool_stats().units_in_use, 2);
    pair.run();
    assert_eq!(pair.left.statuses().len(), 2);
    assert_eq!(pair.right.engine.pool_stats().units_in_use + pair.left.engine.pool_stats().units_in_use, 0);
}

/// when the pool is too small for the losses, the receiver falls back to go-back-N, retains what it has
/// received, and everything arrives; the next recovery is selective again.
#[test]
fn r14_an_exhausted_pool_causes_go_back_n_until_the_recovery_ends() {
    let options = [("pool_units", "1"), ("pool_blocks", "1"), ("pool_block_bits", "10")];
    let mut pair = Pair::new(&Setup::new("fasr", &options));
    pair.wire(drop_requests(FIRST, &[(5, 0), (30, 0), (105, 0)]));
    write(&mut pair, 1, 100);
    pair.run();
    arrives(&mut pair, 100);
    let right = pair.right.engine.pool_stats();
    assert_eq!((right.fallbacks, right.blocks_in_use_max), (1, 1));
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, None)], "the gap is not reported once");
    let resent = pair.resent(From::Left, FIRST);
    assert!(!resent.contains(&31) && resent.contains(&40), "recorded packets are retransmitted: {resent:?}");
    write(&mut pair, 1, 100);
    pair.run();
    arrives(&mut pair, 100);
    assert_eq!(pair.right.engine.pool_stats().fallbacks, 1);
    assert_eq!(pair.resent(From::Left, FIRST)[resent.len()..], [105]);
}

/// a retransmission is lost and those after it are not: the first FNACK restarts the recovery, one round-trip
/// time later, and the second one changes nothing.
#[test]
fn r15_a_lost_retransmission_costs_a_round_trip() {
    let pair = written(12, &[(3, 0), (5, 0), (7, 0), (3, 1)]);
    let [first, second] = [10, 20].map(|at| [3, 5, 7].map(|packet| (at, packet)));
    assert_eq!(pair.resent_at(From::Left, FIRST), [first, second].concat());
    let fnacks: Vec<_> = notes(&pair, From::Right)
        .into_iter()
        .filter(|report| report.0 == LossCause::Misplaced)
        .map(|report| report.1)
        .collect();
    assert_eq!(fnacks, [5, 7]);
    assert_eq!((pair.left.info().stats.timeouts, pair.right.engine.pool_stats().misplaced), (0, 2));
}

/// R-15, edge cases: a retransmission that is lost twice in a row; and the last one of a recovery, after which no
/// packet reveals its loss, so that a timeout repairs it.
#[test]
fn r15_a_retransmission_lost_twice_and_a_lost_last_retransmission() {
    let pair = written(12, &[(3, 0), (5, 0), (3, 1), (3, 2)]);
    let times = pair.resent_at(From::Left, FIRST);
    assert_eq!(times[..4], [(10, 3), (10, 5), (20, 3), (20, 5)]);
    assert_eq!(pair.left.info().stats.timeouts, 1, "not one timeout without a new acknowledgement");
    assert_eq!(written(12, &[(3, 0), (3, 1)]).left.info().stats.timeouts, 1);
}

/// ten losses in a window: the counter overflows and reports that, and each hole is still found without a
/// timeout.
#[test]
fn r16_ten_losses_in_a_window_overflow_the_counter_and_are_repaired() {
    let holes: Vec<(i64, u32)> = (1..=10).map(|hole| (hole * 2, 0)).collect();
    let pair = written(40, &holes);
    let expected: Vec<i64> = holes.iter().map(|(hole, _)| *hole).collect();
    assert_eq!(pair.resent(From::Left, FIRST), expected);
    assert_eq!(pair.left.info().stats.timeouts, 0);
    let overflow = notes(&pair, From::Right).into_iter().find(|(_, _, _, overflow)| *overflow);
    assert_eq!(overflow, Some((LossCause::OutOfOrder, 17, 7, true)));
    let right = pair.right.engine.pool_stats();
    assert_eq!((right.overflows, right.losses_per_recovery[10], right.slow_to_fast), (1, 1, 0));
}

/// every Write packet carries the address that it is written to; only the first one carries the message length.
/// Sends carry the number of their message and the offset in it.
#[test]
fn r20_each_packet_carries_its_own_placement() {
    let mut pair = fasr();
    pair.right.post_recv(9, &[pair.right.sge(TARGET, 5_000)]);
    pair.wire(drop_requests(FIRST, &[(0, 0), (4, 0)]));
    write(&mut pair, 1, 4);
    pair.left.post(2, SendOp::Send { immediate: None }, &[pair.left.sge(0, 2 * MTU)]);
    pair.run_until(us(6));
    let mut writes = Vec::new();
    let mut sends = Vec::new();
    for sent in &pair.log {
        match sent.packet.headers {
            Headers::Write { reth: Some(reth), .. } => writes.push((reth.va - BASE - TARGET, reth.dma_len)),
            Headers::Send { position, placement: Some(placement), .. } => {
                sends.push((position, placement.recv_sn.value(), placement.offset.value()));
            }
            _ => {}
        }
    }
    assert_eq!(writes, [(0, 4_096), (1_024, 0), (2_048, 0), (3_072, 0)]);
    assert_eq!(sends, [(Position::First, 0, 0), (Position::Last, 0, 1)]);
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

/// packets after a hole, of a Write and of a Send, are placed in host memory immediately; the application gets
/// the completion only when the hole is filled.
#[test]
fn r26_out_of_order_data_is_placed_immediately_and_completed_in_order() {
    let mut pair = fasr();
    let len = MTU as usize;
    let (written, received) = (TARGET as usize, TARGET as usize + 8 * len);
    pair.right.post_recv(9, &[pair.right.sge(received as u64, 2 * MTU)]);
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    write(&mut pair, 1, 4);
    pair.left.post(2, SendOp::Send { immediate: None }, &[pair.left.sge(100_000, 2 * MTU)]);
    pair.run_until(us(9));
    assert!(pair.right.memory[written + len..written + 4 * len] == pair.left.memory[len..4 * len]);
    assert!(pair.right.memory[written..written + len] != pair.left.memory[..len], "the lost packet is placed");
    assert!(pair.right.memory[received..received + 2 * len] == pair.left.memory[100_000..100_000 + 2 * len]);
    assert_eq!((pair.right.statuses(), pair.left.statuses()), (vec![], vec![]), "a completion is reported too early");
    pair.run();
    assert!(pair.right.memory[written..written + 4 * len] == pair.left.memory[..4 * len]);
    assert_eq!(pair.right.statuses(), [(9, WcStatus::Success)]);
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

/// Read requests are acknowledged; one that is lost is retransmitted when its timer expires. A lost
/// response is retransmitted by its sender; the request is not repeated for it.
#[test]
fn r20_r21_a_lost_read_request_is_retransmitted() {
    let reads = |drops: Vec<(From, i64)>| {
        let mut pair = fasr();
        let mut left: Vec<_> = drops;
        pair.wire(move |sent| {
            let at = left.iter().position(|(from, offset)| {
                sent.from == *from && sent.kind != TransmitKind::Ack && FIRST.distance_to(sent.packet.psn) == *offset
            });
            at.map_or(Fate::Deliver, |at| {
                left.swap_remove(at);
                Fate::Drop
            })
        });
        let (sge, remote) = (pair.left.sge(TARGET, 8 * MTU), pair.right.remote(0));
        pair.left.post(1, SendOp::Read { remote }, &[sge]);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
        (pair.resent_at(From::Left, FIRST), pair.resent_at(From::Right, FIRST))
    };
    assert_eq!(reads(vec![]), (vec![], vec![]));
    assert_eq!(reads(vec![(From::Left, 0)]), (vec![(100, 0)], vec![]));
    assert_eq!(reads(vec![(From::Right, 3)]), (vec![], vec![(15, 3)]));
    assert_eq!(reads(vec![(From::Right, 3), (From::Right, 5)]), (vec![], vec![(15, 3), (15, 5)]));
}

/// Returns the packets of responses in the order in which they left: offset from the first PSN, offset in the
/// response, name of the request.
fn answers(pair: &Pair, from: From) -> Vec<(i64, u64, u32)> {
    let place = |sent: &Sent| match sent.packet.headers {
        Headers::ReadResponse { sink: Some(sink), .. } | Headers::AtomicResponse { sink: Some(sink), .. }
            if sent.from == from =>
        {
            Some((FIRST.distance_to(sent.packet.psn), sink.offset, sink.read_sn.value()))
        }
        _ => None,
    };
    pair.log.iter().filter_map(place).collect()
}

fn read(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(TARGET, packets * MTU), pair.right.remote(0));
    pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
}

/// the packets of a response have PSNs of the responder's own request stream, are acknowledged like its
/// requests, and carry their offset: those that have arrived are placed although the first one is missing.
#[test]
fn r20_responses_have_psns_of_the_responders_request_stream() {
    let mut pair = fasr();
    let (sge, remote) = (pair.right.sge(0, 3 * MTU), pair.left.remote(TARGET + 100_000));
    pair.right.post(7, SendOp::Write { remote, immediate: None }, &[sge]);
    let mut lost = false;
    pair.wire(move |sent| {
        let first = matches!(sent.packet.headers, Headers::ReadResponse { position: Position::First, .. });
        if first && !std::mem::replace(&mut lost, first) { Fate::Drop } else { Fate::Deliver }
    });
    read(&mut pair, 1, 4);
    pair.left.post(2, SendOp::FetchAdd { remote: pair.right.remote(800), add: 1 }, &[pair.left.sge(900_000, 8)]);
    pair.run_until(us(12));
    let mtu = u64::from(MTU);
    let expected = [(3, 0, 0), (4, mtu, 0), (5, 2 * mtu, 0), (6, 3 * mtu, 0), (7, 0, 1)];
    assert_eq!(answers(&pair, From::Right), expected);
    let (at, len) = (TARGET as usize, MTU as usize);
    assert!(pair.left.memory[at + len..at + 4 * len] == pair.right.memory[len..4 * len], "three are not placed");
    assert!(pair.left.statuses().is_empty());
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(pair.right.statuses(), [(7, WcStatus::Success)]);
    assert!(pair.left.memory[at..at + len] == pair.right.memory[..len]);
    assert_eq!(pair.resent(From::Right, FIRST), [3]);
    let apart = pair.log.iter().any(|sent| matches!(sent.packet.headers, Headers::ReadAck { .. }));
    assert!(!apart, "there is another kind of acknowledgement");
}

/// responses to Reads and the responder's own Writes alternate message by message; one cap applies to both.
#[test]
fn r20_responses_and_own_requests_alternate() {
    let mut pair = Pair::new(&Setup::new("fasr", &[("cap_packets", "4")]));
    for wr_id in 0..3 {
        read(&mut pair, wr_id, 2);
    }
    pair.run_until(us(5));
    for wr_id in 0..3 {
        let (sge, remote) = (pair.right.sge(0, 3 * MTU), pair.left.remote(TARGET + 100_000));
        pair.right.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
    }
    pair.run();
    let kinds: Vec<(i64, bool)> = pair
        .log
        .iter()
        .filter(|sent| sent.from == From::Right && sent.kind != TransmitKind::Ack)
        .map(|sent| (FIRST.distance_to(sent.packet.psn), matches!(sent.packet.headers, Headers::ReadResponse { .. })))
        .collect();
    let turns = [[true; 4].as_slice(), &[false; 3], &[true; 2], &[false; 6]].concat();
    assert_eq!(kinds, (0..15).zip(turns).collect::<Vec<_>>());
    let at = |packet: usize| pair.trace_of(From::Right, FIRST)[packet].0;
    assert_eq!((at(0), at(3), at(4), at(7)), (5, 5, 15, 15), "more than four packets in flight");
    assert_eq!((pair.left.statuses().len(), pair.right.statuses().len()), (3, 3));
}

/// a queue pair that was never made ready to send still serves requests, although its first PSN was never
/// configured.
#[test]
fn r20_a_queue_pair_that_only_responds_learns_its_first_psn() {
    let setup = Setup::new("fasr", &[]);
    let mut pair = Pair::new(&setup);
    let attributes = default_attributes(&setup, pair.right.pd, pair.right.cq);
    let server = pair.right.engine.create_qp(&attributes).expect("legal attributes");
    let attributes = default_attributes(&setup, pair.left.pd, pair.left.cq);
    let client = pair.left.engine.create_qp(&attributes).expect("legal attributes");
    pair.left.connect_qp(client, &setup, server);
    pair.right.engine.modify_to_init(server).expect("from reset");
    pair.right.engine.modify_to_rtr(server, &connection(&setup, client)).expect("from init");
    let (sge, remote) = (pair.left.sge(TARGET, 5 * MTU), pair.right.remote(0));
    let request = SendRequest { wr_id: 1, op: SendOp::Read { remote }, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(client, &request).expect("the queue is not full");
    pair.wire(drop_answers(&[2]));
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(answers(&pair, From::Right).iter().map(|(seq, ..)| *seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 2]);
    pair.right.engine.modify_to_rts(pair.now, server, &timing(&setup)).expect("from ready to receive");
    let info = pair.right.engine.query_qp(server).expect("it exists");
    assert_eq!(FIRST.distance_to(info.next.wire()), 5, "the next PSN does not follow");
}

/// Loses the response packets at `offsets` the first time.
fn drop_answers(offsets: &[i64]) -> impl FnMut(&Sent) -> Fate + 'static {
    let mut left = offsets.to_vec();
    move |sent| {
        let offset = FIRST.distance_to(sent.packet.psn);
        let answer = matches!(sent.packet.headers, Headers::ReadResponse { .. });
        match left.iter().position(|lost| answer && *lost == offset) {
            Some(at) => {
                left.swap_remove(at);
                Fate::Drop
            }
            None => Fate::Deliver,
        }
    }
}

/// the acknowledgement of a Read request is lost, so the request is submitted again with a later
/// timestamp. By that timestamp the responder recognises it and does not serve it twice. Copies that the network
/// makes have the same timestamp.
#[test]
fn r21_a_resubmitted_request_is_recognized_by_its_timestamp() {
    let run = |fate: fn(&Sent) -> bool, drops: bool| {
        let mut pair = fasr();
        let mut done = false;
        pair.wire(move |sent| {
            if done || !fate(sent) {
                return Fate::Deliver;
            }
            done = true;
            if drops { Fate::Drop } else { Fate::Twice }
        });
        read(&mut pair, 1, 4);
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
        assert_eq!((answers(&pair, From::Right).len(), pair.right.engine.stats().packets_duplicate), (4, 1));
        let stamps = pair.log.iter().filter_map(|sent| match sent.packet.headers {
            Headers::ReadRequest { fasr, .. } => fasr.map(|fasr| (sent.at, fasr.stamp)),
            _ => None,
        });
        (stamps.collect::<Vec<_>>(), pair.right.engine.stats().reads_resubmitted)
    };
    let is_ack = |sent: &Sent| sent.from == From::Right && matches!(sent.packet.headers, Headers::Ack { .. });
    let (stamps, resubmitted) = run(is_ack, true);
    assert_eq!(stamps.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [us(0), us(100)]);
    assert!(stamps[1].1 - stamps[0].1 >= 95, "{stamps:?}, in microseconds and a bit");
    let is_request = |sent: &Sent| matches!(sent.packet.headers, Headers::ReadRequest { .. });
    let (stamps, copied) = run(is_request, false);
    assert_eq!((stamps.len(), resubmitted, copied), (1, 0, 0));
}

/// a request is submitted again while its response is in flight, because its acknowledgements are lost: the
/// response continues unchanged, and what was lost of it is repaired by the responder's recovery.
#[test]
fn r21_resubmission_does_not_disturb_the_response() {
    let mut pair = Pair::new(&Setup::new("fasr", &[("cap_packets", "2")]));
    let mut data = drop_answers(&[3, 11]);
    pair.wire(move |sent| {
        let early = sent.at < us(150) && sent.from == From::Right;
        if early && matches!(sent.packet.headers, Headers::Ack { .. }) { Fate::Drop } else { data(sent) }
    });
    read(&mut pair, 1, 60);
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    let (at, len) = (TARGET as usize, 60 * MTU as usize);
    assert!(pair.left.memory[at..at + len] == pair.right.memory[..len]);
    assert_eq!(pair.resent(From::Right, FIRST), [3, 11]);
    assert_eq!(pair.resent_at(From::Left, FIRST), [(100, 0), (200, 0)]);
    assert_eq!(pair.right.engine.stats().reads_resubmitted, 2);
}

/// a requester whose memory is deregistered when the response arrives fails its Read and notifies the
/// responder.
#[test]
fn r20_a_response_that_cannot_be_placed_fails_both_ends() {
    let mut pair = fasr();
    read(&mut pair, 1, 4);
    pair.run_until(us(7));
    let key = pair.left.key;
    pair.left.engine.objects_mut().deregister(Key(key)).expect("it exists");
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::LocalProtection)]);
    assert_eq!((pair.left.info().state, pair.right.info().state), (QpState::Error, QpState::Error));
}

/// A choice of this project: a copy of a packet that has already arrived is dropped and acknowledged, on the fast
/// path too.
#[test]
fn duplicates_are_acknowledged() {
    let mut pair = fasr();
    let mut drop = drop_requests(FIRST, &[(2, 0)]);
    pair.wire(move |sent| match drop(sent) {
        Fate::Deliver if sent.kind == TransmitKind::Request => Fate::Twice,
        fate => fate,
    });
    write(&mut pair, 1, 8);
    pair.run();
    arrives(&mut pair, 8);
    assert_eq!(pair.resent(From::Left, FIRST), [2]);
    assert_eq!(pair.right.engine.stats().packets_duplicate, 7);
    assert_eq!(pair.right.engine.pool_stats().misplaced, 0);
}
