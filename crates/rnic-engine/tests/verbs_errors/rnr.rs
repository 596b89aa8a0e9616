//! Receiver not ready: the RNR timer, and the counter that bounds the attempts.

use super::*;

fn rnr_setup(transport: &str, rnr_retry: Option<u32>, code: u8) -> Setup {
    let mut setup = setup(transport);
    (setup.rnr_retry, setup.rnr_timer) = (rnr_retry, RnrTimer::from_code(code));
    setup
}

/// Returns when the left side's packets with PSN offset `seq` left, in microseconds.
fn attempts(pair: &Pair, setup: &Setup, seq: i64) -> Vec<u64> {
    let trace = pair.trace_of(From::Left, setup.psn);
    trace.iter().filter(|(_, found, _)| *found == seq).map(|(at, ..)| *at).collect()
}

/// No receive is ever posted. There are the first attempt and `rnr_retry` more, each after the time that the NAK
/// names; then the Send fails.
#[test]
fn rnr_retry_limits_the_attempts_and_the_rnr_timer_spaces_them() {
    for transport in TRANSPORTS {
        for (rnr_retry, code) in [(0, 1), (1, 1), (3, 12), (6, 8)] {
            let setup = rnr_setup(transport, Some(rnr_retry), code);
            let wait = micros(Time::ZERO + setup.rnr_timer.wait());
            let mut pair = Pair::new(&setup);
            send(&mut pair, 0, 100);
            send(&mut pair, 1, 100);
            pair.run();
            let expected: Vec<_> = (0..=u64::from(rnr_retry)).map(|nth| nth * (10 + wait)).collect();
            assert_eq!(attempts(&pair, &setup, 0), expected, "{transport}, {rnr_retry} retries, code {code}");
            assert_eq!(pair.left.statuses(), fails_at(0, WcStatus::RnrRetryExceeded, 2));
            assert_eq!(pair.left.info().stats.timeouts, 0, "the retransmission timer expired during the pause");
            assert_eq!(pair.right.info().state, QpState::ReadyToSend, "{transport}: the receiver has failed");
        }
    }
}

/// A receive that is posted just before the last attempt is in time; one that is posted just after it is too late.
#[test]
fn a_receive_posted_before_the_last_attempt_is_in_time() {
    for transport in TRANSPORTS {
        for (posted_at, status) in [(64, WcStatus::Success), (66, WcStatus::RnrRetryExceeded)] {
            let setup = rnr_setup(transport, Some(3), 1);
            let mut pair = Pair::new(&setup);
            send(&mut pair, 0, 100);
            // Attempts leave at 0, 20, 40 and 60 us and arrive 5 us later.
            pair.run_until(us(posted_at));
            post_recvs(&mut pair.right, 100..101, 100);
            pair.run();
            assert_eq!(pair.left.statuses(), [(0, status)], "{transport}, posted at {posted_at}");
        }
    }
}

/// Without a bound the sender retries forever; here for 50 ms, with the shortest timer and a longer one.
#[test]
fn with_infinite_rnr_retry_a_send_waits_without_limit() {
    for transport in TRANSPORTS {
        for code in [1, 20] {
            let setup = rnr_setup(transport, None, code);
            let mut pair = Pair::new(&setup);
            send(&mut pair, 0, 3_000);
            write(&mut pair, 1, 3_000);
            pair.run_until(us(50_000));
            assert_eq!(pair.left.completions(), []);
            post_recvs(&mut pair.right, 100..101, 3_000);
            pair.run();
            assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success), "{transport}");
        }
    }
}

/// The counter applies to one refused packet, not to the connection: it restarts when a packet is accepted.
#[test]
fn progress_resets_the_rnr_retry_count() {
    for transport in TRANSPORTS {
        let setup = rnr_setup(transport, Some(2), 1);
        let mut pair = Pair::new(&setup);
        for wr_id in 0..5 {
            send(&mut pair, wr_id, 100);
        }
        for wr_id in 100..105 {
            // Two failed attempts of each.
            let refused = pair.right.engine.stats().rnr_naks_sent;
            while pair.right.engine.stats().rnr_naks_sent < refused + 2 {
                let next = pair.now + Duration::from_us(1);
                pair.run_until(next);
                pair.now = next;
                assert!(pair.now < Time::ZERO + Duration::from_ms(100), "{transport}: failed before {wr_id}");
            }
            post_recvs(&mut pair.right, wr_id..wr_id + 1, 100);
        }
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..5, WcStatus::Success), "{transport}");
        assert_eq!(pair.right.statuses(), all(100..105, WcStatus::Success));
    }
}

/// A Write with immediate needs its receive when its last packet arrives: only that packet is refused and repeated.
#[test]
fn a_write_with_immediate_needs_its_receive_at_the_last_packet() {
    for transport in TRANSPORTS {
        let setup = rnr_setup(transport, Some(6), 1);
        let mut pair = Pair::new(&setup);
        let (sge, remote) = (pair.left.sge(0, 3 * MTU), pair.right.remote(TARGET));
        pair.left.post(0, SendOp::Write { remote, immediate: Some(7) }, &[sge]);
        pair.run_until(us(30));
        post_recvs(&mut pair.right, 100..101, 0);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)], "{transport}");
        assert_eq!(pair.resent(From::Left, setup.psn), [2, 2], "{transport}: at 20 and 40 us");
        assert_eq!(pair.right.memory[500_000..503_072], pair.left.memory[..3_072]);
        assert_eq!(pair.right.info().msn, 1);
    }
}

/// The outcome is the same whichever packet is lost, one of the refusals among them.
#[test]
fn lost_packets_do_not_change_the_outcome() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            let mut pair = Pair::new(&rnr_setup(transport, Some(2), 5));
            pair.wire(lose_nth(&losses));
            write(&mut pair, 0, 2_000);
            send(&mut pair, 1, 2_000);
            write(&mut pair, 2, 2_000);
            pair.run();
            let expected = fails_at(1, WcStatus::RnrRetryExceeded, 3);
            assert_eq!(pair.left.statuses(), expected, "{transport}, losing {losses:?}");

            let mut pair = Pair::new(&rnr_setup(transport, None, 5));
            pair.wire(lose_nth(&losses));
            send(&mut pair, 0, 2_000);
            read(&mut pair, 1, 2_000);
            pair.run_until(us(1_000));
            post_recvs(&mut pair.right, 100..101, 2_000);
            pair.run();
            assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success), "{transport}, losing {losses:?}");
        }
    }
}

/// The network duplicates every packet. A refusal that arrives twice counts once.
#[test]
fn a_duplicated_rnr_nak_counts_once() {
    for transport in TRANSPORTS {
        let setup = rnr_setup(transport, Some(3), 1);
        let mut pair = Pair::new(&setup);
        pair.wire(|_| Fate::Twice);
        send(&mut pair, 0, 100);
        pair.run();
        assert_eq!(attempts(&pair, &setup, 0), [0, 20, 40, 60], "{transport}");
        assert_eq!(pair.left.statuses(), [(0, WcStatus::RnrRetryExceeded)]);
    }
}

/// Packets after the refused one arrive before the refusal is sent (the driver receives in batches): it is still a
/// refusal, not a gap, and the sender waits for the RNR timer.
#[test]
fn packets_after_the_refused_one_do_not_hide_the_rnr_nak() {
    for transport in TRANSPORTS {
        let setup = rnr_setup(transport, Some(2), 8);
        let mut pair = Pair::new(&setup);
        pair.batch = true;
        send(&mut pair, 0, 100);
        (1..5).for_each(|wr_id| write(&mut pair, wr_id, 100));
        pair.run();
        assert_eq!(attempts(&pair, &setup, 0), [0, 170, 340], "{transport}");
        assert_eq!(pair.left.statuses(), fails_at(0, WcStatus::RnrRetryExceeded, 5), "{transport}");
    }
}

/// A read is still being answered when the Send after it is refused for the last time: the read succeeds, then the
/// Send fails.
#[test]
fn the_refused_send_fails_and_the_read_before_it_succeeds() {
    for transport in TRANSPORTS {
        let mut setup = Setup::new(transport, &[("cap_packets", "4")]);
        setup.rnr_retry = Some(0);
        let mut pair = Pair::new(&setup);
        read(&mut pair, 0, 100 * MTU);
        send(&mut pair, 1, 100);
        write(&mut pair, 2, 100);
        pair.run();
        assert_eq!(pair.left.statuses(), fails_at(1, WcStatus::RnrRetryExceeded, 3), "{transport}");
    }
}

/// A read waits for a Send that is refused for 100 ms: that is longer than any timeout, and yet no queue pair fails.
#[test]
fn a_read_after_a_refused_send_waits_for_it() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&rnr_setup(transport, None, 20));
        send(&mut pair, 0, 100);
        read(&mut pair, 1, 3_000);
        pair.run_until(us(100_000));
        post_recvs(&mut pair.right, 100..101, 100);
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success), "{transport}");
    }
}
