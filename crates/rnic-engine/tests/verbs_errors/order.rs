//! The order of completions: flushing, late posts, draining, fences, unsignalled successes.

use super::*;

fn post_flagged(pair: &mut Pair, wr_id: u64, op: SendOp, sges: &[Sge], flags: SendFlags) {
    let request = SendRequest { wr_id, op, sges, flags };
    pair.left.engine.post_send(pair.left.qpn, &request).expect("the queue is not full");
}

/// Returns when the first transmission of the packet with PSN offset `seq` left, in microseconds.
fn left_at(pair: &Pair, seq: i64) -> Option<u64> {
    let trace = pair.trace_of(From::Left, setup("irn").psn);
    trace.iter().find(|(_, found, _)| *found == seq).map(|(at, ..)| *at)
}

/// Requests that are completed, in flight and not yet sent: the first stay successful, all others are flushed, each
/// queue in the order of posting. Requests that are posted later are flushed immediately.
#[test]
fn the_error_state_flushes_everything_in_order() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "4")]));
        post_recvs(&mut pair.left, 100..103, 10);
        (0..5).for_each(|wr_id| write(&mut pair, wr_id, 3 * MTU));
        pair.run_until(us(15));
        pair.left.engine.modify_to_error(pair.left.qpn).expect("legal in every state");
        let statuses = pair.left.statuses();
        let sends: Vec<_> = statuses.iter().filter(|(wr_id, _)| *wr_id < 100).copied().collect();
        let receives: Vec<_> = statuses.iter().filter(|(wr_id, _)| *wr_id >= 100).copied().collect();
        let succeeded = sends.iter().filter(|(_, status)| *status == WcStatus::Success).count() as u64;
        assert!((1..5).contains(&succeeded), "{transport}: {statuses:?}");
        assert_eq!(sends, [all(0..succeeded, WcStatus::Success), all(succeeded..5, WcStatus::WrFlushed)].concat());
        assert_eq!(receives, all(100..103, WcStatus::WrFlushed));
        write(&mut pair, 5, 10);
        post_recvs(&mut pair.left, 103..104, 10);
        write(&mut pair, 6, 10);
        let late = [5, 103, 6].map(|wr_id| (wr_id, WcStatus::WrFlushed));
        assert_eq!(pair.left.statuses(), late, "{transport}");
        pair.run();
        assert_eq!(pair.left.statuses(), [], "{transport}: a late acknowledgement completes a request");
    }
}

/// Entering the error state twice flushes once.
#[test]
fn the_error_state_is_entered_once() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        write(&mut pair, 0, 10);
        for _ in 0..2 {
            pair.left.engine.modify_to_error(pair.left.qpn).expect("legal in every state");
        }
        assert_eq!(pair.left.statuses(), [(0, WcStatus::WrFlushed)], "{transport}");
    }
}

/// Draining: the message in flight is finished, the next one does not begin, and the event is raised once, when the
/// last acknowledgement has arrived. Back in `ReadyToSend` the remaining messages are sent.
#[test]
fn a_draining_send_queue_finishes_the_message_in_flight() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "4")]));
        write(&mut pair, 0, 10 * MTU);
        write(&mut pair, 1, 10);
        pair.run_until(us(2));
        pair.left.engine.modify_to_sqd(pair.left.qpn).expect("from ready to send");
        assert_eq!(events(&mut pair.left), [], "{transport}: drained with packets in flight");
        write(&mut pair, 2, 10);
        pair.run();
        assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)], "{transport}");
        assert_eq!(events(&mut pair.left), [AsyncEvent::SendQueueDrained(pair.left.qpn)]);
        let now = pair.now;
        pair.left.engine.modify_to_rts(now, pair.left.qpn, &timing(&setup(transport))).expect("from drained");
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
        assert_eq!(events(&mut pair.left), []);
    }
}

/// A read is complete when its response has arrived, not when its request is acknowledged.
#[test]
fn draining_waits_for_responses() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            let mut pair = Pair::new(&Setup::new(transport, &[("cap_packets", "4")]));
            pair.wire(lose_nth(&losses));
            read(&mut pair, 0, 10 * MTU);
            pair.run_until(us(2));
            pair.left.engine.modify_to_sqd(pair.left.qpn).expect("from ready to send");
            while events(&mut pair.left).is_empty() {
                assert_eq!(pair.left.completions(), [], "{transport}: drained too late");
                pair.run_until(pair.now + Duration::from_us(1));
                pair.now += Duration::from_us(1);
                assert!(pair.now < us(10_000), "{transport}, losing {losses:?}: never drained");
            }
            assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)], "{transport}");
            pair.run();
            assert_eq!(events(&mut pair.left), [], "{transport}, losing {losses:?}: drained once");
        }
    }
}

/// A queue with nothing in flight is drained immediately; the queue pair still receives.
#[test]
fn an_idle_send_queue_is_drained_at_once() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        pair.right.engine.modify_to_sqd(pair.right.qpn).expect("from ready to send");
        assert_eq!(events(&mut pair.right), [AsyncEvent::SendQueueDrained(pair.right.qpn)]);
        write(&mut pair, 0, 5_000);
        read(&mut pair, 1, 5_000);
        pair.run();
        assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success), "{transport}");
    }
}

/// A fenced request waits for the reads and atomics before it; an unfenced one, and one with only Writes before it,
/// does not.
#[test]
fn a_fence_waits_for_reads_and_atomics() {
    for transport in TRANSPORTS {
        let remote = |pair: &Pair| pair.right.remote(TARGET);
        let write_op = |pair: &Pair| SendOp::Write { remote: remote(pair), immediate: None };
        for (fetch, flags, leaves_at) in
            [(true, SendFlags::FENCE, 10), (true, SendFlags::empty(), 0), (false, SendFlags::FENCE, 0)]
        {
            let mut pair = Pair::new(&setup(transport));
            let (op, sge) = if fetch {
                (SendOp::FetchAdd { remote: pair.right.remote(800), add: 1 }, pair.left.sge(TARGET, 8))
            } else {
                (write_op(&pair), pair.left.sge(0, 8))
            };
            pair.left.post(0, op, &[sge]);
            let (op, sge) = (write_op(&pair), pair.left.sge(0, 100));
            post_flagged(&mut pair, 1, op, &[sge], flags);
            pair.run();
            assert_eq!(left_at(&pair, 1), Some(leaves_at), "{transport}, {flags:?}");
            assert_eq!(pair.left.statuses(), all(0..2, WcStatus::Success));
        }
    }
}

/// A fence also holds under loss, and requests after the fenced one wait too: order is preserved.
#[test]
fn a_fence_is_respected_under_loss() {
    for transport in TRANSPORTS {
        for losses in loss_patterns() {
            let mut pair = Pair::new(&setup(transport));
            pair.wire(lose_nth(&losses));
            // Reads a word and then (fenced) sends it from the address of the response: the sent word must be the one
            // that was read.
            let answer = pair.left.sge(TARGET, 8);
            let (from, to) = (pair.right.remote(800), pair.right.remote(900));
            pair.left.memory[500_000..500_008].fill(0xee);
            pair.left.post(0, SendOp::Read { remote: from }, &[answer]);
            post_flagged(&mut pair, 1, SendOp::Write { remote: to, immediate: None }, &[answer], SendFlags::FENCE);
            write(&mut pair, 2, 10);
            pair.run();
            assert_eq!(pair.left.statuses(), all(0..3, WcStatus::Success), "{transport}, losing {losses:?}");
            assert_eq!(pair.right.memory[900..908], pair.right.memory[800..808], "{transport}, losing {losses:?}");
        }
    }
}

/// The read limit delays only reads, and has capacity again as reads complete.
#[test]
fn reads_in_flight_never_exceed_the_limit() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport);
        setup.reads = 2;
        let mut pair = Pair::new(&setup);
        (0..6).for_each(|wr_id| read(&mut pair, wr_id, 10));
        pair.run();
        let times: Vec<_> = (0..6).map(|seq| left_at(&pair, seq).expect("the packet was sent")).collect();
        assert_eq!(times, [0, 0, 10, 10, 20, 20], "{transport}");
        assert!(pair.left.engine.stats().waits[WaitReason::ReadLimit as usize] > 0);
        assert_eq!(pair.left.statuses(), all(0..6, WcStatus::Success));
    }
}

/// Unsignalled requests that succeed produce no completion, but free their entries; failed and flushed ones always
/// produce one.
#[test]
fn unsignalled_requests_produce_completions_only_when_they_fail() {
    for transport in TRANSPORTS {
        let mut setup = setup(transport);
        (setup.signal_all, setup.depth) = (false, 4);
        let mut pair = Pair::new(&setup);
        let remote = pair.right.remote(TARGET);
        let (op, sge) = (SendOp::Write { remote, immediate: None }, pair.left.sge(0, 100));
        for round in 0..10 {
            let flags = if round == 9 { SendFlags::SIGNALED } else { SendFlags::empty() };
            for wr_id in 0..4 {
                post_flagged(&mut pair, round * 4 + wr_id, op, &[sge], flags);
            }
            pair.run();
        }
        assert_eq!(pair.left.statuses(), all(36..40, WcStatus::Success), "{transport}");
        post_flagged(&mut pair, 40, op, &[sge], SendFlags::empty());
        post_flagged(&mut pair, 41, op, &[Sge { lkey: 5, ..sge }], SendFlags::empty());
        post_flagged(&mut pair, 42, op, &[sge], SendFlags::empty());
        pair.run();
        let expected = [(41, WcStatus::LocalProtection), (42, WcStatus::WrFlushed)];
        assert_eq!(pair.left.statuses(), expected, "{transport}: 40 succeeds silently");
    }
}

/// Checks the fields of completions: operation, bytes, queue pair.
#[test]
fn completions_report_operation_bytes_and_queue_pair() {
    for transport in TRANSPORTS {
        let mut pair = Pair::new(&setup(transport));
        pair.right.post_recv(100, &[pair.right.sge(TARGET, 5_000)]);
        pair.right.post_recv(101, &[pair.right.sge(TARGET, 5_000)]);
        let (remote, word) = (pair.right.remote(TARGET), pair.right.remote(800));
        let (sge, eight) = (pair.left.sge(0, 3_000), pair.left.sge(TARGET, 8));
        pair.left.post(0, SendOp::Write { remote, immediate: Some(0x1234_5678) }, &[sge]);
        pair.left.post(1, SendOp::Send { immediate: Some(7) }, &[sge]);
        pair.left.post(2, SendOp::Read { remote }, &[pair.left.sge(TARGET, 3_000)]);
        pair.left.post(3, SendOp::CompareSwap { remote: word, compare: 0, swap: 0 }, &[eight]);
        pair.left.post(4, SendOp::FetchAdd { remote: word, add: 0 }, &[eight]);
        pair.run();
        let qpn = pair.left.qpn;
        let done = pair.left.completions();
        assert!(done.iter().all(|c| c.qpn == qpn && c.flags.is_empty()));
        use WcOpcode::*;
        let said: Vec<_> = done.iter().map(|c| (c.wr_id, c.opcode)).collect();
        assert_eq!(said, [(0, RdmaWrite), (1, Send), (2, RdmaRead), (3, CompareSwap), (4, FetchAdd)], "{transport}");
        assert_eq!([done[2].byte_len, done[3].byte_len, done[4].byte_len], [3_000, 8, 8]);
        let received = pair.right.completions();
        let said: Vec<_> = received.iter().map(|c| (c.wr_id, c.opcode, c.byte_len, c.word, c.flags)).collect();
        let imm = WcFlags::WITH_IMM;
        assert_eq!(said, [(100, RecvRdmaWithImm, 3_000, 0x1234_5678, imm), (101, Recv, 3_000, 7, imm)]);
        assert!(received.iter().all(|c| c.qpn == pair.right.qpn));
    }
}
