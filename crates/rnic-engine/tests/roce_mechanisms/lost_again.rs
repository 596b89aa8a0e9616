//! C8, "lose the same PSN k times", on both transports: recovery always succeeds, and takes exactly as long as its
//! mechanism says.
//!
//! | transport | found by | k losses of a packet with others behind it cost |
//! |---|---|---|
//! | go-back-N | a NAK every time: the packets behind it are retransmitted too | one round trip each |
//! | IRN | a NACK the first time, the timer after that | one round trip, then RTO_high each |
//! | either, with nothing behind it | the timer | one timeout each |

use super::*;

/// Runs until a request completes; returns the time in microseconds.
fn completed_at(pair: &mut Pair) -> u64 {
    for at in 0..10_000 {
        pair.run_until(us(at));
        pair.now = us(at);
        if pair.left.engine.objects().cq_level(pair.left.cq).is_some_and(|(level, _)| level > 0) {
            return at;
        }
    }
    panic!("the request never completes");
}

/// Returns when a Write of `packets` packets is complete if packet `lost` is lost the first `times` times.
fn latency(transport: &str, packets: u32, lost: i64, times: u32) -> u64 {
    let mut pair = Pair::of(transport);
    pair.wire(drop_requests(FIRST, &(0..times).map(|nth| (lost, nth)).collect::<Vec<_>>()));
    write(&mut pair, 1, packets);
    let at = completed_at(&mut pair);
    all_succeed(&mut pair.left, [1]);
    let len = (packets * MTU) as usize;
    assert_eq!(pair.right.memory[500_000..][..len], pair.left.memory[..len]);
    at
}

/// Go-back-N with packets after the loss: the receiver reports the gap again whenever the repeated packet is lost
/// too.
#[test]
fn go_back_n_reports_the_gap_again_every_time() {
    for lost in [0, 1, 5, 8] {
        for times in 0..=6u32 {
            assert_eq!(latency("roce-gbn", 10, lost, times), 10 + 10 * u64::from(times), "{lost} lost {times} times");
        }
    }
    let mut pair = roce();
    pair.wire(drop_requests(FIRST, &[(5, 0), (5, 1), (5, 2)]));
    write(&mut pair, 1, 10);
    pair.run();
    assert_eq!(pair.nacks_of(From::Right, FIRST), [(5, None); 3]);
    assert_eq!(pair.left.info().stats.timeouts, 0);
}

/// With no packet after it: one timeout of 320 us per loss. In a longer message the first timeout repeats all of it,
/// which draws the acknowledgement of all but the last packet and restarts the timer one round trip later.
#[test]
fn go_back_n_takes_one_timeout_for_each_loss_of_the_tail() {
    for times in 0..=6u32 {
        assert_eq!(latency("roce-gbn", 1, 0, times), 10 + 320 * u64::from(times));
        let round_trip = if times > 1 { 10 } else { 0 };
        assert_eq!(latency("roce-gbn", 10, 9, times), 10 + 320 * u64::from(times) + round_trip);
    }
}

/// IRN cannot detect that a repair is lost: the first loss costs one round trip, every further one RTO_high (many
/// packets are in flight), counted from the last progress at 10 us.
#[test]
fn irn_detects_a_lost_retransmission_by_timeout() {
    for lost in [1, 5, 6] {
        assert_eq!(latency("irn", 10, lost, 0), 10);
        assert_eq!(latency("irn", 10, lost, 1), 20);
        for times in 2..=6u32 {
            assert_eq!(latency("irn", 10, lost, times), 20 + 320 * u64::from(times - 1), "{lost} lost {times} times");
        }
    }
}

/// The same with fewer than N = 3 in flight: each loss costs the low timeout.
#[test]
fn irn_detects_a_lost_tail_by_the_low_timeout() {
    for times in 1..=6u32 {
        assert_eq!(latency("irn", 1, 0, times), 10 + 100 * u64::from(times));
        assert_eq!(latency("irn", 10, 9, times), 20 + 100 * u64::from(times));
        assert_eq!(latency("irn", 10, 8, times), if times == 1 { 20 } else { 20 + 100 * u64::from(times - 1) });
    }
}

/// Beyond the limit, on both: after one more timeout than allowed the peer is declared gone.
#[test]
fn after_retry_count_timeouts_the_peer_is_declared_gone() {
    for (transport, timeout) in [("roce-gbn", 320), ("irn", 100)] {
        for (times, status) in [(7, WcStatus::Success), (8, WcStatus::RetryExceeded)] {
            let mut pair = Pair::of(transport);
            pair.wire(drop_requests(FIRST, &(0..times).map(|nth| (0, nth)).collect::<Vec<_>>()));
            write(&mut pair, 1, 1);
            pair.run_until(us(8 * timeout - 1));
            assert_eq!(pair.resent(From::Left, FIRST).len(), 7, "{transport}: the retry count");
            pair.run();
            assert_eq!(pair.left.statuses(), [(1, status)], "{transport}: lost {times} times");
        }
    }
}

/// Returns when a Read of ten packets is complete if response 2 is lost the first `times` times.
fn read_latency(transport: &str, times: u32) -> u64 {
    let mut pair = Pair::of(transport);
    pair.wire(drop_data(From::Right, FIRST, &(0..times).map(|nth| (2, nth)).collect::<Vec<_>>()));
    read(&mut pair, 1, 10);
    let at = completed_at(&mut pair);
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.left.memory[500_000..510_240], pair.right.memory[..10_240]);
    at
}

/// A response packet. RoCE's requester repeats the request when later responses reveal the gap, but only once,
/// because a repeated response may still be in flight. Then its timer (320 us since the last progress) repeats the
/// request, and a gap may be revealed again: a round trip and a timeout alternate.
#[test]
fn roce_recovers_a_response_that_is_lost_repeatedly() {
    let latencies: Vec<_> = (0..=5).map(|times| read_latency("roce-gbn", times)).collect();
    assert_eq!(latencies, [10, 20, 330 + 10, 330 + 20, 650 + 10, 650 + 20]);
}

/// IRN's responder repairs: after a NACK the first time, then after its own timer.
#[test]
fn irn_recovers_a_response_that_is_lost_repeatedly() {
    let latencies: Vec<_> = (0..=5).map(|times| read_latency("irn", times)).collect();
    assert_eq!(latencies, [10, 20, 340, 660, 980, 1_300]);
}

/// I-R7, I-R9: a flow whose packets are all in flight when one is lost sends no new packet, so only retransmissions
/// can show congestion control how long a round trip takes. They are timed when the controller requests it.
#[test]
fn retransmissions_are_timed_when_the_controller_requests_it() {
    for (time_resent, gaps) in [("false", 0..=0), ("true", 100..=1_000)] {
        let timely = [("control", "timely"), ("t_low", "1us"), ("t_high", "5us"), ("time_resent", time_resent)];
        let mut pair = roce_with(&[&timely[..], &[("ack_every_packets", "16")]].concat());
        // All are retransmitted after the first loss, and those from 60 on once more: by then the acknowledgement of
        // 16 has arrived, 10 us after that packet was sent for the second time.
        pair.wire(drop_requests(FIRST, &[(1, 0), (60, 1)]));
        write(&mut pair, 1, 100);
        pair.run();
        let sent: Vec<_> = pair.log.iter().filter(|sent| sent.from == From::Left).map(|sent| sent.at).collect();
        let gap = sent[sent.len() - 20..]
            .windows(2)
            .map(|pair| pair[1].since(pair[0]).as_ns())
            .min()
            .expect("two or more packets");
        assert!(gaps.contains(&gap), "time_resent {time_resent}: {gap} ns between packets");
        assert_eq!(pair.resent(From::Left, FIRST).len(), 99 + 40);
        all_succeed(&mut pair.left, [1]);
    }
}
