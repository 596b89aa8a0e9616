//! FaSR's mechanisms, one test an id, as the observer of the wire, of memory and of the pool's counters sees them.
//!
//! Source: FaSR (2025) sections III and IV. The ids are those of the project's table of mechanisms. Not
//! here: the counts and lists inside the pool (R-1, R-9 to in `window/pool/tests.rs`), the
//! headers' bytes (R-20 in `rnic-wire`), sizes (R-12, R-23 in `rnic-transports`), the model of the NIC (R-19, R-22,
//! R-25 in `rnic-fabric`), programs (R-27 in `rnic-verbs`). `docs/mechanisms.md` lists them all.
//!
//! The wire takes 5 us one way and any number of packets at once, so a round trip is 10 us and times in microseconds
//! are exact. Packets are named by their distance from the first PSN, which lies six before the wrap.

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
    assert!(pair.right.memory[at..at + len] == pair.left.memory[..len], "every byte is where it belongs");
    for side in [&pair.left, &pair.right] {
        let pool = side.engine.pool_stats();
        assert_eq!((pool.units_in_use, pool.blocks_in_use), (0, 0), "nothing is left in the pool");
    }
}

/// Reports on losses of one side: cause, offset of the packet, count, overflow.
fn notes(pair: &Pair, from: From) -> Vec<(LossCause, i64, u8, bool)> {
    let note = |sent: &Sent| match sent.packet.headers {
        Headers::LossAck { note, .. } if sent.from == from => {
            Some((note.cause, FIRST.distance_to(note.psn), note.lost, note.overflow))
        }
        _ => None,
    };
    pair.log.iter().filter_map(note).collect()
}

/// Loses the SACKs for the packets at `offsets`, and the data of `drops`.
fn lose_sacks(offsets: &'static [i64], drops: &[(i64, u32)]) -> impl FnMut(&Sent) -> Fate + 'static {
    let mut data = drop_requests(FIRST, drops);
    move |sent| match sent.packet.headers {
        Headers::LossAck { note, .. } if offsets.contains(&FIRST.distance_to(note.psn)) => Fate::Drop,
        _ => data(sent),
    }
}

fn us(us: u64) -> Time {
    Time::from_us(us)
}

/// SACKs carry the number of packets that are missing; repairs count down and say so in their
/// acknowledgement. Packets that come in order are acknowledged plainly.
#[test]
fn r1_r5_sacks_carry_what_the_receiver_counts() {
    use LossCause::{Early, Repaired};
    let pair = written(12, &[(5, 0), (8, 0)]);
    let early = [(6, 1), (7, 1), (9, 2), (10, 2), (11, 2)].map(|(at, lost)| (Early, at, lost, false));
    let repaired = [(5, 1), (8, 0)].map(|(at, lost)| (Repaired, at, lost, false));
    assert_eq!(notes(&pair, From::Right), [&early[..], &repaired].concat());
    assert_eq!(pair.acks_of(From::Right), 12);
}

/// one loss, whatever comes behind it: no bitmap at all, at neither end.
#[test]
fn r2_a_single_loss_touches_no_bitmap() {
    let pair = written(400, &[(5, 0)]);
    assert_eq!(pair.resent(From::Left, FIRST), [5]);
    let [left, right] = [&pair.left, &pair.right].map(|side| side.engine.pool_stats());
    assert_eq!((left.blocks_in_use_max, right.blocks_in_use_max), (0, 0));
    assert_eq!((right.fast_path, right.slow_path, right.blocks_visited), (395, 0, 0));
    assert_eq!((right.recoveries_without_blocks, right.losses_per_recovery[1]), (1, 1));
    assert_eq!((left.units_in_use_max, right.units_in_use_max), (1, 1));
}

/// with two missing, the bitmap tells where the next one is, and the repair's acknowledgement (AACK) says so;
/// with one left, the blocks go back.
#[test]
fn r3_r4_slow_path_and_back() {
    let pair = written(40, &[(5, 0), (8, 0)]);
    let right = pair.right.engine.pool_stats();
    assert!(right.slow_path > 30 && right.blocks_in_use_max == 4, "{right:?}");
    assert_eq!((right.slow_to_fast, right.traversals, right.losses_per_recovery[2]), (1, 0, 1));
    let aack = pair.log.iter().filter_map(|sent| match sent.packet.headers {
        Headers::LossAck { note, .. } if note.cause == LossCause::Repaired => {
            Some(FIRST.distance_to(sent.packet.psn) + 1)
        }
        _ => None,
    });
    assert_eq!(aack.collect::<Vec<_>>(), [8, 40], "what is expected after each repair");
}

/// data lost: exactly the holes go again. A SACK lost in the recovery: nothing more.
#[test]
fn r6_a_gap_without_more_losses_is_a_lost_sack() {
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
    assert_eq!(resent(&[6], &[(5, 0)]), [5, 6], "the first one sends everything before it, whatever it counts");
    assert_eq!(resent(&[7], &[(5, 0), (8, 0)]), [5, 7, 8], "a gap and more losses: the whole gap");
}

/// the acknowledgement alone moves UNACK, while the bitmap still has what lies behind.
#[test]
fn r7_una_follows_the_acknowledgement() {
    let mut pair = fasr();
    let mut drop = drop_requests(FIRST, &[(5, 0), (8, 0)]);
    pair.wire(move |sent| match drop(sent) {
        Fate::Deliver if sent.kind == TransmitKind::RequestAgain && FIRST.distance_to(sent.packet.psn) == 8 => {
            Fate::Late(Duration::from_us(20))
        }
        fate => fate,
    });
    write(&mut pair, 1, 12);
    pair.run_until(us(20));
    let info = pair.left.info();
    assert_eq!(info.next.since(info.una), 4, "8 is the oldest");
    assert!(pair.left.engine.pool_stats().units_in_use == 1);
    pair.run();
    arrives(&mut pair, 12);
}

/// nothing known: the whole window. One missing: that one. More: the oldest and the zeros of the bitmap.
#[test]
fn r8_a_timeout_sends_what_is_known_to_be_missing() {
    let all: Vec<_> = (0..4).map(|packet| (packet, 0)).collect();
    let times = |pair: &Pair| pair.resent_at(From::Left, FIRST);
    assert_eq!(times(&written(4, &all)), [(320, 0), (320, 1), (320, 2), (320, 3)]);
    assert_eq!(times(&written(10, &[(5, 0), (5, 1)])), [(10, 5), (330, 5)]);
    let both = [(3, 0), (5, 0), (3, 1), (5, 1)];
    assert_eq!(times(&written(10, &both)), [(10, 3), (10, 5), (330, 3), (330, 5)]);
}

/// as many units are taken as queue pairs recover, at either end; none when all is quiet.
#[test]
fn r9_units_follow_the_queue_pairs_in_recovery() {
    let setup = Setup::new("fasr", &[]);
    let mut pair = Pair::new(&setup);
    let (left, _) = pair.another(&setup);
    pair.wire(drop_requests(FIRST, &[(1, 0), (1, 1)]));
    write(&mut pair, 1, 4);
    let (sge, remote) = (pair.left.sge(0, 4 * MTU), pair.right.remote(TARGET));
    let op = SendOp::Write { remote, immediate: None };
    let request = SendRequest { wr_id: 2, op, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(left, &request).expect("room");
    pair.run_until(us(9));
    assert_eq!(pair.right.engine.pool_stats().units_in_use, 2);
    assert_eq!(pair.left.engine.pool_stats().units_in_use, 0, "nobody has told it yet");
    pair.run_until(us(12));
    assert_eq!(pair.left.engine.pool_stats().units_in_use, 2);
    pair.run();
    assert_eq!(pair.left.statuses().len(), 2);
    assert_eq!(pair.right.engine.pool_stats().units_in_use + pair.left.engine.pool_stats().units_in_use, 0);
}

/// a pool too small for the losses: the receiver falls back to go-back-N, what it had stays, everything arrives;
/// the next recovery is selective again.
#[test]
fn r14_an_empty_pool_means_go_back_n_until_it_is_over() {
    let options = [("pool_units", "1"), ("pool_blocks", "1"), ("pool_block_bits", "10")];
    let mut pair = Pair::new(&Setup::new("fasr", &options));
    pair.wire(drop_requests(FIRST, &[(5, 0), (30, 0), (105, 0)]));
    write(&mut pair, 1, 100);
    pair.run();
    arrives(&mut pair, 100);
    let right = pair.right.engine.pool_stats();
    assert_eq!((right.fallbacks, right.blocks_in_use_max), (1, 1));
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, None)], "the gap is reported once");
    let resent = pair.resent(From::Left, FIRST);
    assert!(!resent.contains(&31) && resent.contains(&40), "what was recorded stays: {resent:?}");
    write(&mut pair, 1, 100);
    pair.run();
    arrives(&mut pair, 100);
    assert_eq!(pair.right.engine.pool_stats().fallbacks, 1);
    assert_eq!(pair.resent(From::Left, FIRST)[resent.len()..], [105]);
}

/// a retransmission is lost, those behind it are not: the first FNACK starts over, a round trip later, the second
/// changes nothing.
#[test]
fn r15_a_lost_retransmission_costs_a_round_trip() {
    let pair = written(12, &[(3, 0), (5, 0), (7, 0), (3, 1)]);
    let [first, second] = [10, 20].map(|at| [3, 5, 7].map(|packet| (at, packet)));
    assert_eq!(pair.resent_at(From::Left, FIRST), [first, second].concat());
    let fnacks: Vec<_> = notes(&pair, From::Right)
        .into_iter()
        .filter(|note| note.0 == LossCause::Misplaced)
        .map(|note| note.1)
        .collect();
    assert_eq!(fnacks, [5, 7]);
    assert_eq!((pair.left.info().stats.timeouts, pair.right.engine.pool_stats().misplaced), (0, 2));
}

/// R-15, past the edge: lost twice in a row; and the last one of a recovery, behind which nothing tells: a timeout.
#[test]
fn r15_lost_again_and_the_one_that_nothing_follows() {
    let pair = written(12, &[(3, 0), (5, 0), (3, 1), (3, 2)]);
    let times = pair.resent_at(From::Left, FIRST);
    assert_eq!(times[..4], [(10, 3), (10, 5), (20, 3), (20, 5)]);
    assert_eq!(pair.left.info().stats.timeouts, 1, "no new acknowledgement since: not heeded twice");
    assert_eq!(written(12, &[(3, 0), (3, 1)]).left.info().stats.timeouts, 1);
}

/// ten losses in a window: the counter overflows and says so, and each hole is still found without a timeout.
#[test]
fn r16_ten_losses_in_a_window() {
    let holes: Vec<(i64, u32)> = (1..=10).map(|hole| (hole * 2, 0)).collect();
    let pair = written(40, &holes);
    let expected: Vec<i64> = holes.iter().map(|(hole, _)| *hole).collect();
    assert_eq!(pair.resent(From::Left, FIRST), expected);
    assert_eq!(pair.left.info().stats.timeouts, 0);
    let overflow = notes(&pair, From::Right).into_iter().find(|(_, _, _, overflow)| *overflow);
    assert_eq!(overflow, Some((LossCause::Early, 17, 7, true)));
    let right = pair.right.engine.pool_stats();
    assert_eq!((right.overflows, right.losses_per_recovery[10], right.slow_to_fast), (1, 1, 0));
}

/// every Write packet says where it belongs; only the first says how long the message is. Sends carry their
/// message's number and their place.
#[test]
fn r20_each_packet_can_be_placed_alone() {
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

/// what comes behind a hole lies in the host's memory at once, of a Write and of a Send; the application hears of
/// it when the hole is filled, and not before.
#[test]
fn r26_early_data_goes_to_memory_and_is_delivered_in_order() {
    let mut pair = fasr();
    let len = MTU as usize;
    let (written, received) = (TARGET as usize, TARGET as usize + 8 * len);
    pair.right.post_recv(9, &[pair.right.sge(received as u64, 2 * MTU)]);
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    write(&mut pair, 1, 4);
    pair.left.post(2, SendOp::Send { immediate: None }, &[pair.left.sge(100_000, 2 * MTU)]);
    pair.run_until(us(9));
    assert!(pair.right.memory[written + len..written + 4 * len] == pair.left.memory[len..4 * len]);
    assert!(pair.right.memory[written..written + len] != pair.left.memory[..len], "this one is lost");
    assert!(pair.right.memory[received..received + 2 * len] == pair.left.memory[100_000..100_000 + 2 * len]);
    assert_eq!((pair.right.statuses(), pair.left.statuses()), (vec![], vec![]), "nobody is told yet");
    pair.run();
    assert!(pair.right.memory[written..written + 4 * len] == pair.left.memory[..4 * len]);
    assert_eq!(pair.right.statuses(), [(9, WcStatus::Success)]);
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

/// Read requests are acknowledged; one that is lost is asked again when its timer runs out, and a lost
/// response is its source's business: the request is not repeated for it.
#[test]
fn r20_r21_a_lost_read_request_is_submitted_again() {
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

/// The packets of answers in the order in which they left: offset from the first PSN, place in the answer, name of the
/// request.
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

/// an answer's packets have numbers of the responder's own requests, are acknowledged as those are, and say where
/// they belong: what has come is in its place although the first one is missing.
#[test]
fn r20_answers_are_packets_of_the_responders_own() {
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
    assert!(pair.left.memory[at + len..at + 4 * len] == pair.right.memory[len..4 * len], "three of four are here");
    assert!(pair.left.statuses().is_empty());
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(pair.right.statuses(), [(7, WcStatus::Success)]);
    assert!(pair.left.memory[at..at + len] == pair.right.memory[..len]);
    assert_eq!(pair.resent(From::Right, FIRST), [3]);
    let apart = pair.log.iter().any(|sent| matches!(sent.packet.headers, Headers::ReadAck { .. }));
    assert!(!apart, "there is one kind of acknowledgement");
}

/// Reads and the responder's own Writes take turns, a message each; the cap is one for both.
#[test]
fn r20_answers_and_own_requests_take_turns() {
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
    assert_eq!((at(0), at(3), at(4), at(7)), (5, 5, 15, 15), "four at a time, whosever they are");
    assert_eq!((pair.left.statuses().len(), pair.right.statuses().len()), (3, 3));
}

/// a queue pair that was never made ready to send serves, although nobody has told it where its numbers start.
#[test]
fn r20_who_only_serves_learns_its_numbers() {
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
    pair.left.engine.post_send(client, &request).expect("room");
    pair.wire(drop_answers(&[2]));
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(answers(&pair, From::Right).iter().map(|(seq, ..)| *seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 2]);
    pair.right.engine.modify_to_rts(pair.now, server, &timing(&setup)).expect("from ready to receive");
    let info = pair.right.engine.query_qp(server).expect("it is there");
    assert_eq!(FIRST.distance_to(info.next.wire()), 5, "and goes on from there");
}

/// Loses the packets of answers at `offsets` the first time.
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

/// the acknowledgement of a Read request is lost: it is submitted again, with a later timestamp, by which
/// the responder knows it, and it is not served twice. What the network copies has the same timestamp.
#[test]
fn r21_a_resubmitted_request_is_known_by_its_timestamp() {
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
            Headers::ReadRequest { asked, .. } => asked.map(|asked| (sent.at, asked.stamp)),
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

/// a request submitted again while its answer is under way, because its acknowledgements are lost: the answer
/// goes on as it is, and what was lost of it comes by the responder's recovery.
#[test]
fn r21_resubmission_leaves_the_answer_alone() {
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

/// a requester whose memory is gone when the answer comes fails its Read and tells the responder.
#[test]
fn r20_an_answer_that_cannot_be_placed_ends_both() {
    let mut pair = fasr();
    read(&mut pair, 1, 4);
    pair.run_until(us(7));
    let key = pair.left.key;
    pair.left.engine.objects_mut().deregister(Key(key)).expect("it is there");
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::LocalProtection)]);
    assert_eq!((pair.left.info().state, pair.right.info().state), (QpState::Error, QpState::Error));
}

/// Our choice: a copy of what is here is dropped and acknowledged, on the fast path too.
#[test]
fn copies_are_acknowledged() {
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
