//! The shared sequence space: reads, atomics, and what happens when their answers are lost.

use super::*;

/// Read requests of the left side as (microseconds, PSN offset, offset into memory, bytes, sent again).
fn read_requests(pair: &Pair) -> Vec<(u64, i64, u64, u32, bool)> {
    let entry = |sent: &Sent| match sent.packet.headers {
        Headers::ReadRequest { reth, read_sn, .. } => {
            assert_eq!(read_sn, None, "RoCE's headers have no such field");
            let at = sent.at.as_ps() / Duration::from_us(1).as_ps();
            let again = sent.kind.is_retransmission();
            Some((at, FIRST.distance_to(sent.packet.psn), reth.va - BASE, reth.dma_len, again))
        }
        _ => None,
    };
    pair.log.iter().filter_map(entry).collect()
}

const FULL: u64 = MTU as u64;

/// A read takes a number for every response packet: Write 0, Read 1 to 3, Write 4.
#[test]
fn responses_use_the_numbers_of_their_request() {
    let mut pair = roce();
    write(&mut pair, 1, 1);
    read(&mut pair, 2, 3);
    write(&mut pair, 3, 1);
    pair.run();
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false), (1, false), (4, false)]);
    assert_eq!(pair.data_of(From::Right, FIRST), [(1, false), (2, false), (3, false)]);
    assert_eq!(pair.acks_of(From::Left), 0, "nobody acknowledges responses");
    assert_eq!(pair.right.info().expected, pair.left.info().next);
    all_succeed(&mut pair.left, 1..4);
}

/// Response 2 of 0..4 is lost, 3 shows it: the requester asks again from 2 on, with the address and length of the rest.
#[test]
fn a_lost_response_is_asked_for_again_from_where_it_is_missing() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(2, 0)]));
    read(&mut pair, 1, 5);
    pair.run();
    assert_eq!(read_requests(&pair), [(0, 0, 0, 5 * MTU, false), (10, 2, 2 * FULL, 3 * MTU, true)]);
    let responses: Vec<_> = pair.data_of(From::Right, FIRST).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(responses, [0, 1, 2, 3, 4, 2, 3, 4]);
    assert_eq!(pair.left.memory[500_000..505_120], pair.right.memory[..5_120]);
    assert_eq!(pair.right.info().msn, 1, "one message");
    all_succeed(&mut pair.left, [1]);
}

/// The last response is lost and nothing follows: the timer, and just the last packet.
#[test]
fn a_lost_last_response_waits_for_the_timer() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(4, 0)]));
    read(&mut pair, 1, 5);
    pair.run();
    assert_eq!(read_requests(&pair)[1..], [(330, 4, 4 * FULL, MTU, true)], "320 us after the last response");
    all_succeed(&mut pair.left, [1]);
}

/// Past the edge: a Write follows. Its acknowledgement tells the requester at once that the response is lost: it goes
/// back to the read, and repeats the Write, too.
#[test]
fn an_acknowledgement_of_a_later_request_shows_a_lost_response() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(4, 0)]));
    read(&mut pair, 1, 5);
    write(&mut pair, 2, 1);
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 4), (10, 5)]);
    assert_eq!(pair.left.info().stats.timeouts, 0);
    assert_eq!(pair.right.info().msn, 2);
    all_succeed(&mut pair.left, 1..3);
}

/// The first of two reads is lost altogether; the second one's response shows it. Both are asked for again.
#[test]
fn a_response_to_a_later_read_shows_a_lost_one() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (1, 0)]));
    read(&mut pair, 1, 2);
    read(&mut pair, 2, 2);
    pair.run();
    let expected = [(10, 0, 0, 2 * MTU, true), (10, 2, 0, 2 * MTU, true)];
    assert_eq!(read_requests(&pair)[2..], expected);
    all_succeed(&mut pair.left, 1..3);
}

/// A lost read request is a gap like any other: the Write behind it draws a NAK.
#[test]
fn a_lost_read_request_draws_a_nak() {
    let mut pair = roce();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    read(&mut pair, 1, 3);
    write(&mut pair, 2, 1);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(0, None)]);
    assert_eq!(pair.resent_at(From::Left, FIRST), [(10, 0), (10, 3)]);
    all_succeed(&mut pair.left, 1..3);
}

fn word(memory: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
}

fn post_atomics(pair: &mut Pair, count: u64) {
    pair.right.memory[800..808].copy_from_slice(&100u64.to_ne_bytes());
    for wr_id in 0..count {
        let remote = pair.right.remote(800);
        pair.left.post(wr_id, SendOp::FetchAdd { remote, add: 1 }, &[pair.left.sge(600_000 + wr_id * 8, 8)]);
    }
}

fn atomics_found(pair: &Pair, count: u64) -> Vec<u64> {
    (0..count).map(|wr_id| word(&pair.left.memory, 600_000 + wr_id as usize * 8)).collect()
}

/// The response to an atomic is lost: the repeated request gets the remembered result, and nothing is added again.
#[test]
fn a_repeated_atomic_gets_the_remembered_result() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (0, 1)]));
    post_atomics(&mut pair, 1);
    pair.run_until(us(300));
    pair.right.memory[800..808].copy_from_slice(&5_000u64.to_ne_bytes());
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(320, 0), (640, 0)]);
    assert_eq!(atomics_found(&pair, 1), [100], "as it was when it ran");
    assert_eq!(word(&pair.right.memory, 800), 5_000, "nothing is added a second time");
    all_succeed(&mut pair.left, [0]);
}

/// As many are remembered as may be outstanding: all four responses are lost, all four are answered from memory.
#[test]
fn every_outstanding_atomic_is_remembered() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (1, 0), (2, 0), (3, 0)]));
    post_atomics(&mut pair, 9);
    pair.run();
    assert_eq!(atomics_found(&pair, 9), (100..109).collect::<Vec<_>>());
    assert_eq!(word(&pair.right.memory, 800), 109);
    all_succeed(&mut pair.left, 0..9);
}

/// Reads and atomics mixed, every response lost once, at every place.
#[test]
fn losing_any_one_response_of_a_mix_changes_nothing() {
    for lost in 0..9 {
        let mut pair = roce();
        pair.wire(drop_data(From::Right, FIRST, &[(lost, 0)]));
        post_atomics(&mut pair, 2);
        read(&mut pair, 10, 3);
        write(&mut pair, 11, 1);
        let remote = pair.right.remote(800);
        pair.left.post(12, SendOp::CompareSwap { remote, compare: 102, swap: 7 }, &[pair.left.sge(600_016, 8)]);
        read(&mut pair, 13, 2);
        pair.run();
        assert_eq!(pair.left.statuses().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 10, 11, 12, 13]);
        assert_eq!(atomics_found(&pair, 3), [100, 101, 102], "{lost} lost");
        assert_eq!(word(&pair.right.memory, 800), 7);
    }
}

/// The window is three, the answer eight packets: it is asked for in pieces, each when the last has come in.
#[test]
fn an_answer_larger_than_the_window_is_asked_for_in_pieces() {
    let mut pair = roce_with(&[("cap_packets", "3")]);
    let (sge, remote) = (pair.left.sge(TARGET, 8 * MTU - 100), pair.right.remote(0));
    pair.left.post(1, SendOp::Read { remote }, &[sge]);
    pair.run();
    let expected =
        [(0, 0, 0, 3 * MTU, false), (10, 3, 3 * FULL, 3 * MTU, false), (20, 6, 6 * FULL, 2 * MTU - 100, false)];
    assert_eq!(read_requests(&pair), expected);
    assert_eq!(pair.left.memory[500_000..508_092], pair.right.memory[..8_092]);
    all_succeed(&mut pair.left, [1]);
}

/// The edge: a window as large as the answer takes one request, one packet less takes two.
#[test]
fn pieces_are_as_large_as_the_window_allows() {
    for (cap, pieces) in [("9", 1), ("8", 1), ("7", 2), ("4", 2), ("1", 8)] {
        let mut pair = roce_with(&[("cap_packets", cap)]);
        read(&mut pair, 1, 8);
        pair.run();
        assert_eq!(read_requests(&pair).len(), pieces, "cap {cap}");
        all_succeed(&mut pair.left, [1]);
    }
}

/// A response of the middle piece is lost: what is missing of that piece is asked for again, then the next piece.
#[test]
fn a_loss_within_a_piece_repeats_the_rest_of_the_piece() {
    let mut pair = roce_with(&[("cap_packets", "3")]);
    pair.wire(drop_data(From::Right, FIRST, &[(4, 0)]));
    read(&mut pair, 1, 8);
    pair.run();
    let expected = [
        (0, 0, 0, 3 * MTU, false),
        (10, 3, 3 * FULL, 3 * MTU, false),
        (20, 4, 4 * FULL, 2 * MTU, true),
        (30, 6, 6 * FULL, 2 * MTU, false),
    ];
    assert_eq!(read_requests(&pair), expected);
    assert_eq!(pair.left.memory[500_000..508_192], pair.right.memory[..8_192]);
    all_succeed(&mut pair.left, [1]);
}

/// A spurious timeout while a long answer is merely slow: the request is repeated, the answer arrives twice, and is
/// taken once. Requests that follow are served, although repeated answers are still on their way out.
#[test]
fn a_slow_answer_asked_for_again_does_no_harm() {
    let mut setup = Setup::new("roce-gbn", &[]);
    setup.reads = 1;
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    // Responses take 340 us: the requester times out at 320 us and asks again; both answers are complete.
    pair.wire(|sent| if sent.from == From::Right { Fate::Late(Duration::from_us(330)) } else { Fate::Deliver });
    (0..6).for_each(|wr_id| read(&mut pair, wr_id, 3));
    pair.run();
    assert!(pair.right.engine.stats().packets_duplicate > 0);
    all_succeed(&mut pair.left, 0..6);
}

/// The worst moment: a duplicate of the first read comes in together with the second, new one, when one may be
/// outstanding. The duplicate does not count against the limit: its requester has the answer.
#[test]
fn a_duplicate_read_does_not_use_up_the_limit() {
    let mut setup = Setup::new("roce-gbn", &[]);
    setup.reads = 1;
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    let mut seen = false;
    pair.wire(move |sent| match (sent.from, FIRST.distance_to(sent.packet.psn)) {
        // The network doubles the first request; the copy takes 10 us longer, as long as the second one needs to
        // follow.
        (From::Left, 0) if !std::mem::replace(&mut seen, true) => Fate::TwiceLate(Duration::from_us(10)),
        _ => Fate::Deliver,
    });
    read(&mut pair, 0, 1);
    read(&mut pair, 1, 1);
    pair.run();
    assert_eq!(pair.right.engine.stats().packets_duplicate, 1);
    all_succeed(&mut pair.left, 0..2);
}
