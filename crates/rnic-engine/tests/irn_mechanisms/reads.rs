//! I-11, I-12, I-19: reads and atomics, and the separate sequence space of responses.

use super::*;

/// Left reads ten packets; responses 3 and 7 are lost. The requester acknowledges every response packet it receives
/// and names the missing ones, and the responder retransmits only those. The request is not repeated.
#[test]
fn i11_lost_responses_are_retransmitted_by_the_responder() {
    let mut pair = irn();
    pair.wire(drop_data(From::Right, FIRST, &[(3, 0), (7, 0)]));
    read(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Left, FIRST).len(), 5, "4, 5, 6, 8 and 9 are out of order");
    assert_eq!(pair.resent_at(From::Right, FIRST), [(15, 3), (15, 7)]);
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false)], "one request");
    assert_eq!(response_acks(&pair, From::Left), 10, "twelve sent, ten arrived");
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.left.memory[500_000..510_240], pair.right.memory[..10_240]);
}

/// The requester's acknowledgements are all lost for 200 us: the responder, not the requester, times out, and repeats
/// the responses.
#[test]
fn i11_the_responder_times_out_when_acknowledgements_are_lost() {
    let mut pair = irn();
    pair.wire(|sent| {
        let killed = matches!(sent.packet.headers, Headers::ReadAck { .. }) && sent.at < us(200);
        if killed { Fate::Drop } else { Fate::Deliver }
    });
    read(&mut pair, 1, 2);
    pair.run();
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.resent_at(From::Right, FIRST), [(105, 0), (205, 0)], "the second answer is acknowledged");
    assert_eq!((pair.right.info().stats.timeouts, pair.left.info().stats.timeouts), (2, 0));
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false)]);
}

/// Beyond the limit: the request itself is lost. The requester repairs that, after its own timeout.
#[test]
fn i11_a_lost_request_is_retransmitted_by_the_requester() {
    let mut pair = irn();
    pair.wire(drop_requests(FIRST, &[(0, 0)]));
    read(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false), (0, true)]);
    assert_eq!(pair.resent(From::Right, FIRST), []);
    all_succeed(&mut pair.left, [1]);
}

/// Each response packet is acknowledged, in order or not; the request gets an acknowledgement of its own.
#[test]
fn i11_every_response_is_acknowledged() {
    for packets in [1, 7, 250] {
        let mut pair = irn();
        read(&mut pair, 1, packets);
        pair.run();
        assert_eq!(response_acks(&pair, From::Left), packets as usize);
        assert_eq!(pair.acks_of(From::Right), 1);
    }
}

/// Beyond the limit: more responses arrive at the same time than acknowledgements can be queued.
#[test]
fn i11_response_acknowledgements_beyond_the_queue_are_merged() {
    let mut setup = Setup::new("irn", &[("cap_packets", "0")]);
    (setup.reads, setup.mtu) = (128, 256);
    let mut pair = Pair::new(&setup);
    pair.batch = true;
    for wr_id in 0..128 {
        let (sge, remote) = (pair.left.sge(TARGET, 40 * 256), pair.right.remote(wr_id));
        pair.left.post(wr_id, SendOp::Read { remote }, &[sge]);
    }
    pair.run();
    assert_eq!(pair.left.engine.stats().acks_folded, 128 * 40 - 4_096);
    assert_eq!(response_acks(&pair, From::Left), 4_097);
    assert_eq!(pair.resent(From::Right, FIRST), []);
    all_succeed(&mut pair.left, 0..128);
}

fn post_atomic(pair: &mut Pair, wr_id: u64) {
    let (sge, remote) = (pair.left.sge(600_000 + wr_id * 8, 8), pair.right.remote(800));
    pair.left.post(wr_id, SendOp::FetchAdd { remote, add: 5 }, &[sge]);
}

fn word(memory: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
}

/// The response to an atomic is lost: the responder repeats it after its timeout, with the same value. The atomic is
/// executed once.
#[test]
fn i12_a_lost_atomic_response_is_retransmitted_and_the_atomic_executed_once() {
    let mut pair = irn();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (0, 1)]));
    let before = word(&pair.right.memory, 800);
    post_atomic(&mut pair, 0);
    pair.run();
    assert_eq!(pair.resent_at(From::Right, FIRST), [(105, 0), (205, 0)]);
    assert_eq!(pair.data_of(From::Left, FIRST), [(0, false)]);
    assert_eq!((word(&pair.left.memory, 600_000), word(&pair.right.memory, 800)), (before, before + 5));
    assert_eq!(response_acks(&pair, From::Left), 1);
    all_succeed(&mut pair.left, [0]);
}

/// The request arrives, its acknowledgement and the response do not: the repeated request is a duplicate and is not
/// executed again.
#[test]
fn i12_a_retransmitted_atomic_request_is_not_executed_again() {
    let mut pair = irn();
    let deaf = us(150);
    pair.wire(move |sent| if sent.from == From::Right && sent.at < deaf { Fate::Drop } else { Fate::Deliver });
    let before = word(&pair.right.memory, 800);
    (0..3).for_each(|wr_id| post_atomic(&mut pair, wr_id));
    pair.run();
    assert!(!pair.resent(From::Left, FIRST).is_empty());
    assert_eq!(word(&pair.right.memory, 800), before + 15);
    let found: Vec<_> = (0..3).map(|wr_id| word(&pair.left.memory, 600_000 + wr_id * 8)).collect();
    assert_eq!(found, [before, before + 5, before + 10]);
    all_succeed(&mut pair.left, 0..3);
}

/// Requests are numbered by sPSN, one number each, however many packets their responses take; response packets are
/// numbered consecutively by rPSN.
#[test]
fn i19_requests_and_responses_have_separate_sequence_numbers() {
    let mut pair = irn();
    write(&mut pair, 1, 2);
    read(&mut pair, 2, 3);
    write(&mut pair, 3, 1);
    read(&mut pair, 4, 2);
    pair.run();
    let numbers = |from| pair.data_of(from, FIRST).into_iter().map(|(seq, _)| seq).collect::<Vec<_>>();
    assert_eq!(numbers(From::Left), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(From::Right), [0, 1, 2, 3, 4]);
    let (left, right) = (pair.left.info(), pair.right.info());
    assert_eq!(left.una, right.expected, "sPSN: five requests");
    assert_eq!(left.response_expected, left.una, "rPSN: five responses");
    all_succeed(&mut pair.left, 1..5);
}

/// The loss of responses does not affect requests: none is repeated, and Writes posted after the Read are
/// acknowledged in the meantime.
#[test]
fn i19_lost_responses_do_not_retransmit_requests() {
    let mut pair = irn();
    pair.wire(drop_data(From::Right, FIRST, &[(0, 0), (1, 0), (2, 0), (0, 1)]));
    read(&mut pair, 1, 3);
    write(&mut pair, 2, 20);
    pair.run_until(us(50));
    let info = pair.left.info();
    assert_eq!(info.una, info.next, "all requests are acknowledged");
    assert_eq!(pair.left.completions(), [], "a Write completes before the Read");
    pair.run();
    assert_eq!(pair.resent(From::Left, FIRST), []);
    assert!(pair.resent(From::Right, FIRST).len() >= 4);
    all_succeed(&mut pair.left, [1, 2]);
}

/// Conversely, lost requests do not delay the responses of earlier ones.
#[test]
fn i19_lost_requests_do_not_delay_responses() {
    let mut pair = irn();
    let all: Vec<_> = (1..20).flat_map(|seq| [(seq, 0), (seq, 1)]).collect();
    pair.wire(drop_requests(FIRST, &all));
    read(&mut pair, 1, 300);
    write(&mut pair, 2, 19);
    pair.run_until(us(60));
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.left.info().next.since(pair.left.info().una), 19);
}
