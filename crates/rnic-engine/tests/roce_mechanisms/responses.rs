//! The shared sequence space: reads, atomics, and the loss of their responses.

use super::*;

/// Returns the read requests of the left side as (microseconds, PSN offset, offset into memory, bytes, `true` if
/// retransmitted).
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
fn responses_use_the_psns_of_their_request() {
    let mut pair = roce();
    write(&mut pair, 1, 1);
    read(&mut pair, 2, 3);
    write(&mut pair, 3, 1);
    pair.run();
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false), (1, false), (4, false)]);
    assert_eq!(pair.data_of(From::Right, FIRST), [(1, false), (2, false), (3, false)]);
    assert_eq!(pair.acks_of(From::Left), 0, "a response is acknowledged");
    assert_eq!(pair.right.info().expected, pair.left.info().next);
    all_succeed(&mut pair.left, 1..4);
}

/// Response 2 of 0..4 is lost and 3 reveals it: the requester repeats the request from 2 on, with the address and
/// length of the rest.
#[test]
fn a_lost_response_is_requested_again_from_the_missing_packet() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(2, 0)]));
    read(&mut pair, 1, 5);
    pair.run();
    assert_eq!(read_requests(&pair), [(0, 0, 0, 5 * MTU, false), (10, 2, 2 * FULL, 3 * MTU, true)]);
    let responses: Vec<_> = pair.data_of(From::Right, FIRST).into_iter().map(|(seq, _)| seq).collect();
    assert_eq!(responses, [0, 1, 2, 3, 4, 2, 3, 4]);
    assert_eq!(pair.left.memory[500_000..505_120], pair.right.memory[..5_120]);
    assert_eq!(pair.right.info().msn, 1, "not one message");
    all_succeed(&mut pair.left, [1]);
}

/// The last response is lost and none follows: the timer repeats the request, for the last packet only.
#[test]
fn a_lost_last_response_waits_for_the_timer() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(4, 0)]));
    read(&mut pair, 1, 5);
    pair.run();
    assert_eq!(read_requests(&pair)[1..], [(330, 4, 4 * FULL, MTU, true)], "320 us after the last response");
    all_succeed(&mut pair.left, [1]);
}

/// Beyond the limit: a Write follows. Its acknowledgement tells the requester immediately that the response is lost:
/// it goes back to the read, and repeats the Write, too.
#[test]
fn an_acknowledgement_of_a_later_request_reveals_a_lost_response() {
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

/// All responses of the first of two reads are lost; the response of the second one reveals it. Both reads are
/// requested again.
#[test]
fn a_response_to_a_later_read_reveals_a_lost_response() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (1, 0)]));
    read(&mut pair, 1, 2);
    read(&mut pair, 2, 2);
    pair.run();
    let expected = [(10, 0, 0, 2 * MTU, true), (10, 2, 0, 2 * MTU, true)];
    assert_eq!(read_requests(&pair)[2..], expected);
    all_succeed(&mut pair.left, 1..3);
}

/// A lost read request is a gap like any other: the Write after it draws a NAK.
#[test]
fn a_lost_read_request_causes_a_nak() {
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

/// The response to an atomic is lost: the repeated request gets the stored result, and the atomic is not executed
/// again.
#[test]
fn a_retransmitted_atomic_gets_the_stored_result() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (0, 1)]));
    post_atomics(&mut pair, 1);
    pair.run_until(us(300));
    pair.right.memory[800..808].copy_from_slice(&5_000u64.to_ne_bytes());
    pair.run();
    assert_eq!(pair.resent_at(From::Left, FIRST), [(320, 0), (640, 0)]);
    assert_eq!(atomics_found(&pair, 1), [100], "not the value at execution");
    assert_eq!(word(&pair.right.memory, 800), 5_000, "the atomic is executed twice");
    all_succeed(&mut pair.left, [0]);
}

/// The results of as many atomics are stored as may be outstanding: all four responses are lost, and all four are
/// retransmitted from the stored results.
#[test]
fn the_result_of_every_outstanding_atomic_is_stored() {
    let mut pair = roce();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (1, 0), (2, 0), (3, 0)]));
    post_atomics(&mut pair, 9);
    pair.run();
    assert_eq!(atomics_found(&pair, 9), (100..109).collect::<Vec<_>>());
    assert_eq!(word(&pair.right.memory, 800), 109);
    all_succeed(&mut pair.left, 0..9);
}

/// Reads and atomics mixed, with each response lost once in turn.
#[test]
fn the_loss_of_any_one_response_of_a_mix_does_not_change_the_result() {
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

/// The window is three packets, the response eight: it is requested in pieces, each when the previous one has
/// arrived.
#[test]
fn a_response_larger_than_the_window_is_requested_in_pieces() {
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

/// At the limit: a window as large as the response needs one request, a window one packet smaller needs two.
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

/// A response of the middle piece is lost: the missing rest of that piece is requested again, then the next piece.
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

/// A spurious timeout while a long response is merely late: the request is repeated, the response arrives twice and
/// is placed once. Later requests are served although repeated responses are still to be sent.
#[test]
fn a_late_response_that_is_requested_again_is_placed_once() {
    let mut setup = Setup::new("roce-gbn", &[]);
    setup.reads = 1;
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    // Responses take 340 us: the requester times out at 320 us and repeats the request; both responses are complete.
    pair.wire(|sent| if sent.from == From::Right { Fate::Late(Duration::from_us(330)) } else { Fate::Deliver });
    (0..6).for_each(|wr_id| read(&mut pair, wr_id, 3));
    pair.run();
    assert!(pair.right.engine.stats().packets_duplicate > 0);
    all_succeed(&mut pair.left, 0..6);
}

/// The worst case: a duplicate of the first read arrives together with the second, new one, when one may be
/// outstanding. The duplicate does not count against the limit, because its requester already has the response.
#[test]
fn a_duplicate_read_does_not_count_against_the_limit() {
    let mut setup = Setup::new("roce-gbn", &[]);
    setup.reads = 1;
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    let mut seen = false;
    pair.wire(move |sent| match (sent.from, FIRST.distance_to(sent.packet.psn)) {
        // The network duplicates the first request; the copy is 10 us late, which is the time after which the second
        // request follows.
        (From::Left, 0) if !std::mem::replace(&mut seen, true) => Fate::TwiceLate(Duration::from_us(10)),
        _ => Fate::Deliver,
    });
    read(&mut pair, 0, 1);
    read(&mut pair, 1, 1);
    pair.run();
    assert_eq!(pair.right.engine.stats().packets_duplicate, 1);
    all_succeed(&mut pair.left, 0..2);
}
