//! The window of a peer (`set_peer_limit`): all queue pairs connected to the peer share it, and none of them starves.

use rnic_base::{Probability, RandomStreams};

use super::*;

const PEER: PeerId = PeerId(7);

/// Returns a pair with `count` connections, and the queue pair numbers of all of them on the left side.
fn with_queue_pairs(setup: &Setup, count: usize) -> (Pair, Vec<rnic_wire::Qpn>) {
    let mut pair = Pair::new(setup);
    let mut numbers = vec![pair.left.qpn];
    numbers.extend((1..count).map(|_| pair.another(setup).0));
    (pair, numbers)
}

fn write_on(pair: &mut Pair, qpn: rnic_wire::Qpn, wr_id: u64, len: u32) {
    let (sge, remote) = (pair.left.sge(0, len), pair.right.remote(TARGET));
    let op = SendOp::Write { remote, immediate: None };
    let request = SendRequest { wr_id, op, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(qpn, &request).expect("the queue is not full");
}

fn in_flight(pair: &Pair, numbers: &[rnic_wire::Qpn]) -> u64 {
    let of = |qpn: &rnic_wire::Qpn| pair.left.engine.query_qp(*qpn).map_or(0, |info| info.next.since(info.una));
    numbers.iter().map(of).sum()
}

/// Eight connections and a limit of five packets: never more are in flight, all connections finish, and each
/// continuously gets its share.
#[test]
fn the_peer_limit_is_shared_without_starvation() {
    for transport in TRANSPORTS {
        let (mut pair, numbers) = with_queue_pairs(&setup(transport), 8);
        pair.left.engine.set_peer_limit(PEER, Some(5));
        for (wr_id, qpn) in (0..).zip(&numbers) {
            write_on(&mut pair, *qpn, wr_id, 40 * MTU);
        }
        let mut most = 0;
        while in_flight(&pair, &numbers) > 0 || pair.now == Time::ZERO {
            pair.run_until(pair.now + Duration::from_us(1));
            pair.now += Duration::from_us(1);
            most = most.max(in_flight(&pair, &numbers));
            let sent: Vec<_> =
                numbers.iter().map(|qpn| pair.left.engine.query_qp(*qpn).expect("exists").stats.packets_sent).collect();
            let (least, greatest) = (sent.iter().min().expect("not empty"), sent.iter().max().expect("not empty"));
            assert!(greatest - least <= 5, "{transport}: {sent:?} at {}", pair.now);
            assert!(pair.now < us(10_000), "{transport}: stuck with {sent:?}");
        }
        pair.run();
        assert_eq!(most, 5, "{transport}");
        let mut done: Vec<_> = pair.left.statuses();
        done.sort_by_key(|(wr_id, _)| *wr_id);
        assert_eq!(done, all(0..8, WcStatus::Success), "{transport}");
    }
}

/// The same with losses, and with reads among the Writes: in IRN the responses of the other direction count as well.
#[test]
fn all_requests_complete_under_loss() {
    for transport in TRANSPORTS {
        for limit in [1, 2, 7] {
            let (mut pair, numbers) = with_queue_pairs(&setup(transport), 6);
            pair.left.engine.set_peer_limit(PEER, Some(limit));
            pair.right.engine.set_peer_limit(PEER, Some(limit));
            let (mut random, loss) = (RandomStreams::new(limit).stream("peers/loss"), Probability::ratio(1, 20));
            pair.wire(move |_| if random.chance(loss) { Fate::Drop } else { Fate::Deliver });
            let mut wr_id = 0;
            for _ in 0..3 {
                for qpn in &numbers {
                    write_on(&mut pair, *qpn, wr_id, 5 * MTU);
                    let (sge, remote) = (pair.left.sge(TARGET, 7 * MTU), pair.right.remote(0));
                    let op = SendOp::Read { remote };
                    let request = SendRequest { wr_id: wr_id + 1, op, sges: &[sge], flags: SendFlags::SIGNALED };
                    pair.left.engine.post_send(*qpn, &request).expect("the queue is not full");
                    wr_id += 2;
                }
            }
            pair.run();
            let mut done = pair.left.statuses();
            done.sort_by_key(|(wr_id, _)| *wr_id);
            assert_eq!(done, all(0..wr_id, WcStatus::Success), "{transport}, limit {limit}");
        }
    }
}

/// Packets that a receiver that is not ready has dropped do not count against the limit: another queue pair's packets
/// may cause the receive to be posted. When the RNR wait is over they count again.
#[test]
fn a_queue_pair_in_rnr_wait_uses_none_of_the_peer_limit() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport);
        setup.rnr_timer = RnrTimer::at_least(Duration::from_us(100));
        let (mut pair, numbers) = with_queue_pairs(&setup, 2);
        pair.left.engine.set_peer_limit(PEER, Some(3));
        send(&mut pair, 0, 3 * MTU);
        pair.run_until(us(20));
        write_on(&mut pair, numbers[1], 1, 10 * MTU);
        pair.run_until(us(90));
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "{transport}: the other Write is blocked");
        post_recvs(&mut pair.right, 100..101, 3 * MTU);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)], "{transport}: the paused request is blocked");
        write_on(&mut pair, numbers[1], 2, 10 * MTU);
        let mut most = 0;
        while in_flight(&pair, &numbers) > 0 || most == 0 {
            pair.run_until(pair.now + Duration::from_us(1));
            pair.now += Duration::from_us(1);
            most = most.max(in_flight(&pair, &numbers));
            assert!(pair.now < us(20_000_000), "{transport}: stuck");
        }
        assert_eq!(most, 3, "{transport}: the limit is not respected exactly");
    }
}

/// Raising or removing the limit wakes the queue pairs that wait for it, even when no packet is in flight whose
/// acknowledgement could do so.
#[test]
fn a_raised_peer_limit_wakes_waiting_queue_pairs() {
    for transport in TRANSPORTS {
        for raised in [Some(3), None] {
            let (mut pair, numbers) = with_queue_pairs(&setup(transport), 3);
            pair.left.engine.set_peer_limit(PEER, Some(0));
            for (wr_id, qpn) in (0..).zip(&numbers) {
                write_on(&mut pair, *qpn, wr_id, 4 * MTU);
            }
            pair.run();
            assert_eq!(pair.log.len(), 0);
            pair.left.engine.set_peer_limit(PEER, raised);
            pair.run();
            assert_eq!(pair.left.statuses().len(), 3, "{transport}: raised to {raised:?}");
        }
    }
}

/// Waiting queue pairs are woken one by one as packets are acknowledged. If the next one has failed, was reset or
/// destroyed, or has nothing left to send, the one after it is woken.
#[test]
fn freed_credit_goes_to_queue_pairs_that_can_use_it() {
    type End = fn(&mut Engine, rnic_wire::Qpn);
    let ends: [(&str, End); 4] = [
        ("error", |engine, qpn| engine.modify_to_error(qpn).expect("legal in every state")),
        ("reset", |engine, qpn| engine.modify_to_reset(qpn).expect("legal in every state")),
        ("destroyed", |engine, qpn| engine.destroy_qp(qpn).expect("it exists")),
        ("drained", |engine, qpn| engine.modify_to_sqd(qpn).expect("ready to send")),
    ];
    for transport in TRANSPORTS {
        for (what, end) in ends {
            let (mut pair, numbers) = with_queue_pairs(&setup(transport), 4);
            pair.left.engine.set_peer_limit(PEER, Some(1));
            for (wr_id, qpn) in (0..).zip(&numbers) {
                write_on(&mut pair, *qpn, wr_id, MTU);
            }
            // The first one's packet is in flight; the others wait, in order.
            pair.run_until(us(3));
            end(&mut pair.left.engine, numbers[1]);
            end(&mut pair.left.engine, numbers[2]);
            pair.run();
            let done: Vec<_> = pair.left.statuses().into_iter().filter(|(_, s)| *s == WcStatus::Success).collect();
            assert_eq!(done, [(0, WcStatus::Success), (3, WcStatus::Success)], "{transport}: {what}");
        }
    }
}

/// The queue pair with packets in flight fails or is destroyed: its share of the limit is free immediately.
#[test]
fn failed_queue_pairs_release_their_credit() {
    type End = fn(&mut Engine, rnic_wire::Qpn);
    let ends: [(&str, End); 3] = [
        ("error", |engine, qpn| engine.modify_to_error(qpn).expect("legal in every state")),
        ("reset", |engine, qpn| engine.modify_to_reset(qpn).expect("legal in every state")),
        ("destroyed", |engine, qpn| engine.destroy_qp(qpn).expect("it exists")),
    ];
    for transport in TRANSPORTS {
        for (what, end) in ends {
            let (mut pair, numbers) = with_queue_pairs(&setup(transport), 2);
            pair.left.engine.set_peer_limit(PEER, Some(3));
            pair.wire(|sent| if sent.at < us(5) { Fate::Drop } else { Fate::Deliver });
            write_on(&mut pair, numbers[0], 0, 10 * MTU);
            pair.run_until(us(3));
            write_on(&mut pair, numbers[1], 1, 10 * MTU);
            pair.run_until(us(6));
            end(&mut pair.left.engine, numbers[0]);
            pair.run();
            let done = pair.left.statuses();
            assert!(done.contains(&(1, WcStatus::Success)), "{transport}: {what}: {done:?}");
        }
    }
}

/// A queue pair whose receiver is not ready does not use its share of the limit; others use the remaining capacity.
#[test]
fn a_queue_pair_in_rnr_wait_does_not_block_the_others() {
    for transport in TRANSPORTS {
        let (mut pair, numbers) = with_queue_pairs(&setup(transport), 3);
        pair.left.engine.set_peer_limit(PEER, Some(2));
        send(&mut pair, 0, 10);
        for (wr_id, qpn) in (1..).zip(&numbers[1..]) {
            write_on(&mut pair, *qpn, wr_id, 20 * MTU);
        }
        pair.run_until(us(2_000));
        let done: Vec<_> = pair.left.statuses();
        assert_eq!(done.len(), 2, "{transport}: {done:?}");
        post_recvs(&mut pair.right, 100..101, 10);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)]);
    }
}

/// The limit is lowered below the number of packets in flight: no new packet leaves until enough are acknowledged,
/// and all of them are. (In RoCE the timer may be needed for that: packets that left under the higher limit did not
/// request an acknowledgement.)
#[test]
fn after_the_limit_is_lowered_the_packets_in_flight_drain_to_it() {
    for transport in TRANSPORTS {
        let (mut pair, numbers) = with_queue_pairs(&setup(transport), 2);
        pair.left.engine.set_peer_limit(PEER, Some(50));
        write_on(&mut pair, numbers[0], 0, 120 * MTU);
        write_on(&mut pair, numbers[1], 1, 120 * MTU);
        pair.run_until(us(3));
        pair.left.engine.set_peer_limit(PEER, Some(4));
        pair.run();
        assert_eq!(pair.left.statuses().len(), 2, "{transport}");
    }
}
