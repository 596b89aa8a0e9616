//! Errors in the verbs mode and in the complete-in-error mode, and the errors that end a connection.

use rnic_base::{Duration, RandomStreams};
use rnic_engine::*;
use rnic_wire::Qpn;
use rnic_wire::falcon::rdma::{Header, Sn};
use rnic_wire::falcon::{Body, FlowLabel, PacketType, Ulp};

use crate::common::{BASE, DELAY, DELIVERED, Fate, INBOX, LOST, MTU, Pair, Sent, Setup, bad};

const VERBS: [&[(&str, &str)]; 2] = [&[], &[("ordering", "weak")]];
const ALONE: [&[(&str, &str)]; 3] = [
    &[("errors", "complete-in-error")],
    &[("ordering", "weak"), ("errors", "complete-in-error")],
    &[("ordering", "unordered"), ("errors", "complete-in-error")],
];

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

/// Runs the test on a reliable and on an unreliable wire.
fn on_wires(options: &[(&'static str, &'static str)], mut test: impl FnMut(&str, Pair)) {
    for wire in 0..3 {
        let setup = Setup::new(options);
        let random = RandomStreams::new(wire).stream("wire");
        let pair = match wire {
            0 => Pair::new(&setup, |_| DELIVERED),
            1 => Pair::new(&setup, bad(random, 150, 0, 0)),
            _ => Pair::new(&setup, bad(random, 50, 100, 300)),
        };
        test(&format!("{options:?}, wire {wire}"), pair);
    }
}

/// Requests that the peer refuses, each with its length and its completion status.
fn refused(pair: &Pair) -> Vec<(SendOp, u32, WcStatus)> {
    let nowhere = RemoteMemory { addr: 0x7000, rkey: pair.ends[1].key };
    let no_key = RemoteMemory { addr: INBOX, rkey: pair.ends[1].key ^ 0x1357 };
    let crooked = RemoteMemory { addr: INBOX + 4, rkey: pair.ends[1].key };
    vec![
        (SendOp::Write { remote: nowhere, immediate: None }, 3 * MTU, WcStatus::RemoteAccess),
        (SendOp::Write { remote: no_key, immediate: None }, 1, WcStatus::RemoteAccess),
        (SendOp::Read { remote: nowhere }, 2 * MTU, WcStatus::RemoteAccess),
        (SendOp::FetchAdd { remote: no_key, add: 1 }, 8, WcStatus::RemoteAccess),
        (SendOp::CompareSwap { remote: crooked, compare: 0, swap: 1 }, 8, WcStatus::RemoteInvalidRequest),
        (SendOp::Send { immediate: None }, 900, WcStatus::RemoteInvalidRequest),
        (SendOp::SendInvalidate { rkey: 0x1234 }, 10, WcStatus::RemoteAccess),
    ]
}

#[test]
fn a_refused_request_fails_both_queue_pairs() {
    for options in VERBS {
        for case in 0..7 {
            on_wires(options, |name, mut pair| {
                let (op, len, status) = refused(&pair)[case];
                let name = format!("{name}, {op:?}");
                pair.ends[1].post_recv(50, INBOX, 100);
                let remote = pair.remote(0, INBOX + 1_000);
                pair.ends[0].post(0, SendOp::Write { remote, immediate: None }, BASE, 2 * MTU + 1);
                pair.ends[0].post(1, op, BASE, len);
                for wr_id in 2..6 {
                    pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE + 50_000, 3_000);
                }
                pair.run_for(ms(100));
                let flushed = (2..6).map(|wr_id| (wr_id, WcStatus::WrFlushed));
                let all: Vec<_> = [(0, WcStatus::Success), (1, status)].into_iter().chain(flushed).collect();
                assert_eq!(pair.ends[0].take(), all, "{name}");
                let expected = if status == WcStatus::RemoteInvalidRequest && len == 900 {
                    WcStatus::LocalLength
                } else {
                    WcStatus::WrFlushed
                };
                let receives = pair.ends[1].take();
                assert!(
                    receives == [(50, expected)] || options.len() == 1 && receives.len() == 1,
                    "{name}: {receives:?}"
                );
                assert_eq!([pair.ends[0].state(), pair.ends[1].state()], [QpState::Error; 2], "{name}");
                let [from, to] = [BASE, INBOX + 1_000].map(|at| at - BASE);
                let (sent, got) = (&pair.ends[0].memory[from as usize..], &pair.ends[1].memory[to as usize..]);
                // With weak ordering, data is placed as it arrives.
                let is_untouched = sent[..2_049] == got[..2_049];
                assert!(is_untouched || options.len() == 1, "{name}: a request after the failed one was executed");
                // The refused end stops retransmitting its last responses after its retries.
                pair.run_for(ms(2_000));
                for end in &pair.ends {
                    let is_idle = end.engine.falcon_stats().is_some_and(|stats| stats.is_idle);
                    assert!(is_idle && end.kept.is_empty(), "{name}: resources are held");
                }
            });
        }
    }
}

/// Checks that a request is refused as invalid when the queue pair itself lacks the right, whatever the key grants.
#[test]
fn a_queue_pair_without_the_right_refuses_a_request_as_invalid() {
    for options in VERBS.into_iter().chain(ALONE) {
        for case in 0..3 {
            on_wires(options, |name, mut pair| {
                let remote = pair.remote(0, INBOX);
                let (op, len, right) = [
                    (SendOp::Write { remote, immediate: None }, 100, Access::REMOTE_WRITE),
                    (SendOp::Read { remote }, 2 * MTU, Access::REMOTE_READ),
                    (SendOp::FetchAdd { remote, add: 1 }, 8, Access::REMOTE_ATOMIC),
                ][case];
                let qpn = pair.ends[1].qpn;
                pair.ends[1].engine.set_access(qpn, Access::all() - right).expect("it exists");
                pair.ends[0].post(0, op, BASE, len);
                pair.run_for(ms(100));
                assert_eq!(pair.ends[0].take(), [(0, WcStatus::RemoteInvalidRequest)], "{name}, {op:?}");
                let mut events = std::iter::from_fn(|| pair.ends[1].engine.objects_mut().poll_event());
                let fails = options.iter().all(|option| option.0 != "errors");
                let told = events.any(|event| event == AsyncEvent::QpRequestError(qpn));
                assert_eq!(told, fails, "{name}, {op:?}");
            });
        }
    }
}

#[test]
fn with_complete_in_error_only_the_refused_request_fails() {
    for options in ALONE {
        let unordered = options.contains(&("ordering", "unordered"));
        on_wires(options, |name, mut pair| {
            let cases = refused(&pair);
            for wr_id in 0..14 {
                pair.ends[1].post_recv(100 + wr_id, INBOX + 400_000, 100);
            }
            let mut expected = Vec::new();
            for (nth, (op, len, status)) in cases.into_iter().enumerate() {
                let (wr_id, at) = (nth as u64 * 3, nth as u64 * 10_000);
                pair.ends[0].post(wr_id, op, BASE, len);
                let remote = pair.remote(0, INBOX + at);
                pair.ends[0].post(wr_id + 1, SendOp::Write { remote, immediate: None }, BASE + at, 2 * MTU + 9);
                pair.ends[0].post(wr_id + 2, SendOp::Send { immediate: None }, BASE + at, 100);
                expected.extend([(wr_id, status), (wr_id + 1, WcStatus::Success), (wr_id + 2, WcStatus::Success)]);
            }
            pair.run_for(ms(200));
            let mut done = pair.ends[0].take();
            if unordered {
                done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
            }
            assert_eq!(done, expected, "{name}");
            assert_eq!([pair.ends[0].state(), pair.ends[1].state()], [QpState::ReadyToSend; 2], "{name}");
            for at in (0..7).map(|nth| nth * 10_000) {
                let got = pair.ends[1].bytes(INBOX + at, 2 * MTU + 9);
                assert_eq!(got, pair.ends[0].bytes(BASE + at, 2 * MTU + 9), "{name}");
            }
            let received = pair.ends[1].take();
            let well = received.iter().filter(|(_, status)| *status == WcStatus::Success).count();
            let short = received.iter().filter(|(_, status)| *status == WcStatus::LocalLength).count();
            assert_eq!((well, short), (7, 1), "{name}: {received:?}");
            assert!(pair.ends[1].kept.is_empty(), "{name}");
            pair.run_for(ms(50));
            for end in &pair.ends {
                assert!(end.engine.falcon_stats().is_some_and(|stats| stats.is_idle), "{name}: resources are held");
            }
        });
    }
}

#[test]
fn a_message_of_several_packets_is_refused_as_a_whole() {
    for options in &ALONE[..2] {
        on_wires(options, |name, mut pair| {
            for wr_id in 0..4 {
                pair.ends[1].post_recv(wr_id, INBOX + wr_id * 10_000, 2 * MTU);
            }
            for (wr_id, len) in [(0, 2 * MTU), (1, 5 * MTU), (2, 2 * MTU), (3, 0)] {
                pair.ends[0].post(wr_id, SendOp::Send { immediate: Some(7) }, BASE + wr_id * 10_000, len);
            }
            pair.run_for(ms(200));
            let failed = (1, WcStatus::RemoteInvalidRequest);
            let [first, third, fourth] = [0, 2, 3].map(|wr_id| (wr_id, WcStatus::Success));
            assert_eq!(pair.ends[0].take(), [first, failed, third, fourth], "{name}");
            assert_eq!(pair.ends[1].take(), [first, (1, WcStatus::LocalLength), third, fourth], "{name}");
            let inbox = |nth: u64| INBOX + nth * 10_000;
            for nth in [0, 2] {
                let sent = pair.ends[0].bytes(BASE + nth * 10_000, 2 * MTU);
                assert_eq!(pair.ends[1].bytes(inbox(nth), 2 * MTU), sent, "{name}");
            }
        });
    }
}

#[test]
fn an_invalid_local_key_fails_the_request_and_the_queue_pair() {
    for options in VERBS {
        on_wires(options, |name, mut pair| {
            let remote = pair.remote(0, INBOX);
            pair.ends[0].post(0, SendOp::Write { remote, immediate: None }, BASE, 4 * MTU);
            let wrong = Sge { addr: BASE, len: 10, lkey: 1 };
            let op = SendOp::Write { remote, immediate: None };
            pair.ends[0].try_post(1, op, &[wrong], SendFlags::empty()).expect("the completion reports the error");
            pair.ends[0].post(2, op, BASE, 10);
            pair.run_for(ms(100));
            let statuses = [WcStatus::Success, WcStatus::LocalProtection, WcStatus::WrFlushed];
            let all: Vec<_> = (0..3).zip(statuses).collect();
            assert_eq!(pair.ends[0].take(), all, "{name}");
            assert_eq!(pair.ends[0].state(), QpState::Error, "{name}");
        });
    }
}

/// Loses everything that one end sends after a certain time.
fn silent(end: usize) -> impl FnMut(&Sent) -> Fate {
    move |sent| if sent.from == end && sent.at > rnic_base::Time::from_us(150) { LOST } else { DELIVERED }
}

#[test]
fn a_silent_peer_is_declared_gone() {
    for options in VERBS.into_iter().chain(ALONE) {
        for (nth, read) in [(0, false), (1, true)] {
            let mut pair = Pair::new(&Setup::new(options), silent(1));
            pair.run_for(Duration::from_us(100));
            let remote = pair.remote(0, INBOX);
            let op = if read { SendOp::Read { remote } } else { SendOp::Write { remote, immediate: None } };
            for wr_id in 0..3 {
                pair.ends[0].post(wr_id, op, BASE, 100);
            }
            pair.run_for(ms(2_000));
            let name = format!("{options:?}, {nth}");
            let all = [(0, WcStatus::RetryExceeded), (1, WcStatus::WrFlushed), (2, WcStatus::WrFlushed)];
            assert_eq!(pair.ends[0].take(), all, "{name}");
            assert_eq!(pair.ends[0].state(), QpState::Error, "{name}");
            let stats = pair.ends[0].engine.falcon_stats().expect("Falcon is in use");
            assert!(stats.is_idle, "{name}: resources are held");
        }
    }
}

/// Checks that a queue pair can repeat its last acknowledgement before its program ends it.
#[test]
fn the_last_acknowledgement_is_repeated() {
    for options in [&[][..], &[("ordering", "weak")], &[("flows", "4")]] {
        for read in [false, true] {
            let mut pair = Pair::new(&Setup::new(options), |_| DELIVERED);
            // The target of Writes acknowledges them; the initiator of a Read acknowledges its data.
            let who = usize::from(!read);
            let (now, qpn) = (pair.now, pair.ends[who].qpn);
            assert!(!pair.ends[who].engine.repeat_acks(qpn), "an acknowledgement is repeated before the first packet");
            let remote = pair.remote(0, INBOX);
            let op = if read { SendOp::Read { remote } } else { SendOp::Write { remote, immediate: None } };
            pair.ends[0].post(0, op, BASE, 3 * MTU);
            pair.run_for(ms(1));
            assert_eq!(pair.ends[0].take(), [(0, WcStatus::Success)]);
            let engine = &mut pair.ends[who].engine;
            assert!(engine.transmit(now + ms(1)).is_none(), "a packet is pending");
            assert!(engine.repeat_acks(qpn), "{options:?}, {read}");
            let again = engine.transmit(now + ms(1)).and_then(Departure::falcon).expect("it is repeated");
            assert_eq!((again.kind, again.from), (TransmitKind::Ack, qpn));
            engine.modify_to_error(qpn).expect("legal in every state");
            assert!(!engine.repeat_acks(qpn), "a failed queue pair repeats its acknowledgement");
        }
    }
}

/// A program closes its queue pair as soon as it has failed. If the network has lost the refusal, the peer would only
/// learn that the connection has ended, so the refusal is repeated.
#[test]
fn a_refusal_is_repeated() {
    for options in VERBS {
        let setup = Setup::new(options);
        let mut pair = Pair::new(&setup, |sent| if sent.from == 1 { LOST } else { DELIVERED });
        let key = pair.ends[1].key ^ 0x1357;
        let write = |addr, rkey| SendOp::Write { remote: RemoteMemory { addr, rkey }, immediate: None };
        pair.ends[0].post(0, write(INBOX, key), BASE, 2 * MTU);
        pair.ends[0].post(1, write(INBOX, key ^ 0x1357), BASE, 10);
        pair.run_for(Duration::from_us(100));
        assert_eq!((pair.ends[1].state(), pair.ends[0].take()), (QpState::Error, vec![]), "{options:?}");
        pair.set_fate(|_| DELIVERED);
        let qpn = pair.ends[1].qpn;
        assert!(pair.ends[1].engine.repeat_acks(qpn), "{options:?}");
        pair.run_for(Duration::from_ns(1));
        pair.ends[1].engine.destroy_qp(qpn).expect("it exists");
        pair.run_for(Duration::from_us(20));
        // Its Resync reaches no queue pair, but it knows about the refusal; the connection manager reports the end of
        // the connection.
        let qpn = pair.ends[0].qpn;
        pair.ends[0].engine.modify_to_error(qpn).expect("legal in every state");
        pair.poll();
        let refused = [(0, WcStatus::RemoteAccess), (1, WcStatus::WrFlushed)];
        assert_eq!(pair.ends[0].take(), refused, "{options:?}");
        assert!(!pair.ends[0].engine.repeat_acks(qpn), "the refused requester repeats a refusal");
    }
}

/// A refusal is complete when the Resync that replaces the request is acknowledged. An end that learns before that
/// that the connection has ended or that the peer is gone still completes the refused request with the reason of the
/// refusal.
#[test]
fn a_request_known_to_be_refused_is_not_flushed() {
    for options in VERBS.into_iter().chain(ALONE) {
        for is_gone in [false, true] {
            let mut pair = Pair::new(&Setup::new(options), |sent| match sent.packet.body {
                Body::Resync { .. } => LOST,
                _ => DELIVERED,
            });
            let (good, key) = (pair.remote(0, INBOX), pair.ends[1].key ^ 0x1357);
            let bad = RemoteMemory { rkey: key, ..good };
            for (wr_id, remote) in [(0, good), (1, bad), (2, good)] {
                pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE, 2 * MTU);
            }
            pair.run_for(Duration::from_us(100));
            let (mut done, qpn) = (pair.ends[0].take(), pair.ends[0].qpn);
            assert!(done.contains(&(0, WcStatus::Success)) && done.iter().all(|(wr_id, _)| *wr_id != 1), "{done:?}");
            let engine = &mut pair.ends[0].engine;
            let ended = if is_gone { engine.on_peer_gone(qpn) } else { engine.modify_to_error(qpn) };
            ended.expect("it exists");
            pair.poll();
            done.extend(pair.ends[0].take());
            assert!(done.contains(&(1, WcStatus::RemoteAccess)), "{options:?}, {is_gone}: {done:?}");
            assert_eq!((done.len(), pair.ends[0].state()), (3, QpState::Error), "{options:?}, {is_gone}: {done:?}");
        }
    }
}

/// The request is acknowledged, but its data never arrives: the peer is declared gone.
#[test]
fn a_peer_that_owes_data_and_is_silent_is_declared_gone() {
    let data = |sent: &Sent| if matches!(sent.packet.body, Body::PullData { .. }) { LOST } else { DELIVERED };
    let mut pair = Pair::new(&Setup::new(&[]), data);
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(0, SendOp::Read { remote }, BASE, 100);
    pair.run_for(ms(2_000));
    let done = pair.ends[0].take();
    assert_eq!(done, [(0, WcStatus::RetryExceeded)], "the Read does not fail with exceeded retries");
    assert_eq!(pair.ends[0].state(), QpState::Error);
}

/// The request is acknowledged; after that nothing arrives, and nothing is left to send: the peer is declared gone.
#[test]
fn a_peer_that_owes_data_and_has_failed_is_declared_gone() {
    let mut pair = Pair::new(&Setup::new(&[]), |sent| match sent.packet.body {
        Body::PullData { .. } => LOST,
        _ => DELIVERED,
    });
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(0, SendOp::Read { remote }, BASE, 100);
    pair.run_for(Duration::from_us(100));
    let qpn = pair.ends[1].qpn;
    pair.ends[1].engine.modify_to_error(qpn).expect("it exists");
    pair.run_for(ms(2_000));
    assert_eq!(pair.ends[0].take(), [(0, WcStatus::RetryExceeded)]);
}

/// A peer that was just heard from is not silent, whatever data it still has to send: its data leaves a few packets
/// at a time, long after it has acknowledged the request.
#[test]
fn a_peer_that_owes_data_and_sends_packets_is_not_declared_gone() {
    for options in VERBS.into_iter().chain(ALONE) {
        let options: Vec<_> = options.iter().copied().chain([("rto", "100us"), ("rto_min", "100us")]).collect();
        let mut setup = Setup::new(&options);
        setup.retry_count = 0;
        let mut pair = Pair::new(&setup, |_| DELIVERED);
        pair.keeps_log = false;
        pair.ends[1].engine.set_peer_limit(PeerId(0), Some(8));
        let remote = pair.remote(0, BASE);
        for wr_id in 0..150 {
            pair.ends[0].post(wr_id, SendOp::Read { remote }, INBOX, 64 * MTU);
            let until = pair.now + ms(1);
            while pair.ends[0].done.is_empty() && pair.now < until {
                pair.run_for(Duration::from_us(1));
            }
            assert_eq!(pair.ends[0].take(), [(wr_id, WcStatus::Success)], "{options:?} at {}", pair.now);
        }
        // A peer may be silent for ten of the initial timeouts.
        assert!(pair.now > rnic_base::Time::from_us(8_000), "the watch timer expired too rarely: {}", pair.now);
    }
}

/// Without retries, a queue pair fails only after a full period of silence, ten timeouts long, whenever the
/// supervision began.
#[test]
fn without_retries_a_peer_that_owes_data_may_be_silent_for_ten_timeouts() {
    let mut setup = Setup::new(&[("rto", "1ms")]);
    setup.retry_count = 0;
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(0, SendOp::Read { remote }, BASE, 100);
    pair.run_for(ms(8));
    assert_eq!(pair.ends[0].take(), [(0, WcStatus::Success)]);
    pair.set_fate(|sent| if matches!(sent.packet.body, Body::PullData { .. }) { LOST } else { DELIVERED });
    pair.ends[0].post(1, SendOp::Read { remote }, BASE, 100);
    pair.run_for(Duration::from_us(100));
    let qpn = pair.ends[1].qpn;
    pair.ends[1].engine.modify_to_error(qpn).expect("it exists");
    pair.run_for(Duration::from_us(9_850));
    assert_eq!(pair.ends[0].take(), []);
    pair.run_for(Duration::from_us(150));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::RetryExceeded)]);
}

#[test]
fn a_send_to_a_receiver_that_is_never_ready_fails_after_rnr_retry_attempts() {
    for options in VERBS.into_iter().chain(ALONE) {
        let mut setup = Setup::new(options);
        setup.rnr_retry = Some(3);
        let mut pair = Pair::new(&setup, |_| DELIVERED);
        pair.ends[0].post(0, SendOp::Send { immediate: None }, BASE, 100);
        pair.run_for(ms(100));
        assert_eq!(pair.ends[0].take(), [(0, WcStatus::RnrRetryExceeded)], "{options:?}");
        let sent = |sent: &&Sent| sent.from == 0 && sent.packet.body.packet_type() == PacketType::PushData;
        assert_eq!(pair.log.iter().filter(sent).count(), 4, "{options:?}: not one attempt and three retries");
    }
}

/// Two RNR NACKs for the same attempt count once: the network has duplicated the packet or its NACK.
#[test]
fn duplicated_packets_do_not_reduce_the_number_of_attempts() {
    for options in VERBS.into_iter().chain(ALONE) {
        let mut setup = Setup::new(options);
        setup.rnr_retry = Some(2);
        for later in [0, 1, 20] {
            let mut pair = Pair::new(&setup, move |_| [Some(DELAY), Some(DELAY + Duration::from_us(later))]);
            pair.ends[0].post(0, SendOp::Send { immediate: None }, BASE, 100);
            let attempts = |pair: &Pair| {
                let sent = |sent: &&Sent| sent.from == 0 && sent.packet.body.packet_type() == PacketType::PushData;
                pair.log.iter().filter(sent).count()
            };
            while attempts(&pair) < 2 {
                pair.run_for(Duration::from_us(10));
                assert_eq!(pair.ends[0].take(), [], "{options:?}, {later} us");
            }
            // Both waits have begun; the third attempt is the last.
            pair.run_for(Duration::from_us(100));
            assert_eq!((attempts(&pair), pair.ends[0].take()), (2, vec![]), "{options:?}, {later} us");
            pair.ends[1].post_recv(50, INBOX, 100);
            pair.run_for(ms(100));
            assert_eq!(pair.ends[0].take(), [(0, WcStatus::Success)], "{options:?}, {later} us");
            assert_eq!((attempts(&pair), pair.ends[1].take()), (3, vec![(50, WcStatus::Success)]));
        }
    }
}

#[test]
fn a_queue_pair_in_the_error_state_flushes_and_releases_all_resources() {
    for options in VERBS.into_iter().chain(ALONE) {
        on_wires(options, |name, mut pair| {
            let remote = pair.remote(0, INBOX);
            for wr_id in 0..20 {
                pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE, 5 * MTU);
                pair.ends[1].post_recv(wr_id, INBOX, 10);
            }
            pair.run_for(Duration::from_us(12));
            for end in [0, 1] {
                let qpn = pair.ends[end].qpn;
                pair.ends[end].engine.modify_to_error(qpn).expect("it exists");
            }
            pair.poll();
            let done = pair.ends[0].take();
            assert_eq!(done.len(), 20, "{name}");
            assert!(done.iter().any(|(_, status)| *status == WcStatus::WrFlushed), "{name}");
            assert_eq!(pair.ends[1].take().len(), 20, "{name}");
            pair.run_for(ms(50));
            assert_eq!(pair.ends[0].take(), [], "{name}");
            for end in &pair.ends {
                assert!(end.engine.falcon_stats().is_none_or(|stats| stats.is_idle), "{name}");
            }
        });
    }
}

#[test]
fn a_queue_pair_can_be_destroyed_with_traffic_in_flight_and_its_slot_reused() {
    for options in VERBS.into_iter().chain(ALONE) {
        on_wires(options, |name, mut pair| {
            let setup = Setup::new(options);
            for round in 0..4 {
                let remote = pair.remote(0, INBOX);
                for wr_id in 0..20 {
                    let op = if wr_id % 2 == 0 {
                        SendOp::Write { remote, immediate: None }
                    } else {
                        SendOp::Read { remote }
                    };
                    pair.ends[0].post(wr_id, op, BASE, 5 * MTU);
                }
                pair.run_for(Duration::from_us(13 + 7 * round));
                for end in [0, 1] {
                    let qpn = pair.ends[end].qpn;
                    pair.ends[end].take();
                    pair.ends[end].engine.modify_to_reset(qpn).expect("it exists");
                }
                pair.poll();
                pair.run_for(ms(1));
                for end in &mut pair.ends {
                    assert_eq!(end.take(), [], "{name}, round {round}: an old request completes");
                    assert!(end.engine.falcon_stats().is_some_and(|stats| stats.is_idle), "{name}, round {round}");
                }
                let numbers = [0, 1].map(|end| pair.ends[end].qpn);
                for end in [0, 1] {
                    pair.ends[end].begin_receiving(&setup, numbers[1 - end], end);
                    pair.ends[end].begin_sending(pair.now, &setup, end);
                }
            }
            let remote = pair.remote(0, INBOX);
            pair.ends[0].post(99, SendOp::Write { remote, immediate: None }, BASE, 9 * MTU);
            pair.run_for(ms(50));
            assert_eq!(pair.ends[0].take(), [(99, WcStatus::Success)], "{name}");
            assert_eq!(pair.ends[1].bytes(INBOX, 9 * MTU), pair.ends[0].bytes(BASE, 9 * MTU), "{name}");
            assert!(pair.ends[1].kept.is_empty(), "{name}: payload is still kept");
        });
    }
}

#[test]
fn a_send_queue_drains_and_resumes() {
    for options in VERBS {
        on_wires(options, |name, mut pair| {
            let (setup, remote, qpn) = (Setup::new(options), pair.remote(0, INBOX), pair.ends[0].qpn);
            for wr_id in 0..30 {
                pair.ends[0].post(wr_id, SendOp::Write { remote, immediate: None }, BASE, 20 * MTU);
            }
            pair.run_for(Duration::from_us(1));
            pair.ends[0].engine.modify_to_sqd(qpn).expect("the queue pair is ready to send");
            pair.run_for(ms(50));
            let done = pair.ends[0].take().len();
            assert!(0 < done && done < 30, "{name}: {done}");
            let mut events = std::iter::from_fn(|| pair.ends[0].engine.objects_mut().poll_event());
            assert!(events.any(|event| event == AsyncEvent::SendQueueDrained(qpn)), "{name}");
            pair.ends[0].begin_sending(pair.now, &setup, 0);
            pair.run_for(ms(100));
            assert_eq!(pair.ends[0].take().len(), 30 - done, "{name}");
        });
    }
}

/// A queue pair that only serves requests never has to enter the ready-to-send state; it learns the first PSN from
/// its peer.
#[test]
fn reads_are_served_before_the_target_is_ready_to_send() {
    for options in VERBS {
        let setup = Setup::new(options);
        let mut pair = Pair::unconnected(&setup, bad(RandomStreams::new(4).stream("wire"), 50, 50, 100));
        let numbers = [0, 1].map(|end| pair.ends[end].qpn);
        for end in [0, 1] {
            pair.ends[end].begin_receiving(&setup, numbers[1 - end], end);
        }
        pair.ends[0].begin_sending(pair.now, &setup, 0);
        let remote = pair.remote(0, BASE);
        for wr_id in 0..10 {
            pair.ends[0].post(wr_id, SendOp::Read { remote }, INBOX, 10_000);
        }
        pair.run_for(ms(50));
        assert_eq!(pair.ends[0].take().len(), 10, "{options:?}");
        assert_eq!(pair.ends[0].bytes(INBOX, 10_000), pair.ends[1].bytes(BASE, 10_000), "{options:?}");
        pair.ends[1].begin_sending(pair.now, &setup, 1);
        let remote = pair.remote(1, INBOX);
        pair.ends[1].post(7, SendOp::Write { remote, immediate: None }, BASE, 10_000);
        pair.run_for(ms(50));
        assert_eq!(pair.ends[1].take(), [(7, WcStatus::Success)], "{options:?}");
    }
}

#[test]
fn unordered_connections_refuse_sends_and_writes_with_immediate_longer_than_the_mtu() {
    let mut pair = Pair::new(&Setup::new(ALONE[2]), |_| DELIVERED);
    let (sge, remote) = (pair.ends[0].sge(BASE, MTU + 1), pair.remote(0, INBOX));
    let long = Err(PostError::TooLongWithoutOrder { bytes: MTU + 1, mtu: MTU });
    let flags = SendFlags::empty();
    assert_eq!(pair.ends[0].try_post(0, SendOp::Send { immediate: None }, &[sge], flags), long);
    assert_eq!(pair.ends[0].try_post(0, SendOp::Write { remote, immediate: Some(1) }, &[sge], flags), long);
    assert_eq!(pair.ends[0].try_post(0, SendOp::Write { remote, immediate: None }, &[sge], flags), Ok(()));
    assert_eq!(pair.ends[0].try_post(0, SendOp::Read { remote }, &[sge], flags), Ok(()));
}

/// With resources for hardly more than one packet, traffic both ways over an unreliable wire is slow, but every
/// request completes.
#[test]
fn with_small_pools_all_requests_still_complete() {
    for options in VERBS.into_iter().chain(ALONE) {
        let unordered = options.contains(&("ordering", "unordered"));
        for isolation in ["none", "static", "dynamic"] {
            let mut all = options.to_vec();
            all.extend([("resources", "1"), ("isolation", isolation)]);
            all.extend((isolation == "static").then_some(("isolation_packets", "3")));
            let setup = Setup::new(&all);
            let mut pair = Pair::new(&setup, bad(RandomStreams::new(9).stream("wire"), 30, 30, 100));
            for end in [0, 1] {
                let remote = pair.remote(end, INBOX);
                for wr_id in 0..60 {
                    pair.ends[end].post_recv(1_000 + wr_id, INBOX + 400_000, 6 * MTU);
                    let op = match wr_id % 4 {
                        0 => SendOp::Write { remote, immediate: None },
                        1 => SendOp::Read { remote },
                        2 => SendOp::Send { immediate: None },
                        _ => SendOp::FetchAdd { remote, add: 1 },
                    };
                    let len = match wr_id % 4 {
                        2 if unordered => MTU,
                        3 => 8,
                        _ => 6 * MTU,
                    };
                    pair.ends[end].post(wr_id, op, BASE, len);
                }
            }
            pair.run_for(ms(2_000));
            for end in [0, 1] {
                let done = pair.ends[end].take();
                assert_eq!(done.len(), 75, "{all:?}: {done:?}");
                assert!(done.iter().all(|(_, status)| *status == WcStatus::Success), "{all:?}: {done:?}");
                let stats = pair.ends[end].engine.falcon_stats().expect("Falcon is in use");
                assert!(stats.is_idle && pair.ends[end].kept.is_empty(), "{all:?}: {stats:?}");
            }
        }
    }
}

/// With weak ordering a Send waits for the Write before it: the peer has received the Send and not acknowledged it
/// when everything that the peer sends begins to be lost.
#[test]
fn a_peer_that_receives_and_never_acknowledges_is_declared_gone() {
    let lost_first = |sent: &Sent| {
        let is_first = sent.from == 0 && sent.packet.body.rsn().is_some_and(|rsn| rsn.value() == 0xff_fffa);
        let is_over = sent.from == 1 && sent.at > rnic_base::Time::from_us(3_000);
        if is_first || is_over { LOST } else { DELIVERED }
    };
    let mut setup = Setup::new(&[("ordering", "weak"), ("rto_min", "1ms")]);
    setup.retry_count = 1_000;
    let mut pair = Pair::new(&setup, lost_first);
    pair.ends[1].post_recv(0, INBOX, 100);
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(0, SendOp::Write { remote, immediate: None }, BASE, 10);
    pair.ends[0].post(1, SendOp::Send { immediate: None }, BASE, 100);
    pair.run_for(ms(20_000));
    assert_eq!(pair.ends[0].take(), [(0, WcStatus::RetryExceeded), (1, WcStatus::WrFlushed)]);
}

/// A response carries the sequence number of its request and the number of the requesting queue pair. This end-to-end
/// check detects a lower layer that mixes up two responses.
#[test]
fn a_response_of_another_request_is_not_accepted() {
    type Change = fn(&mut Header);
    let same: Change = |_| {};
    let number: Change = |header| header.sn = Sn::new(header.sn.value() + 1);
    let queue_pair: Change = |header| header.dest_qpn = Qpn::new(header.dest_qpn.get() ^ 1);
    let cases = [(same, WcStatus::Success), (number, WcStatus::BadResponse), (queue_pair, WcStatus::BadResponse)];
    for fetch_len in [MTU, 8] {
        for (change, expected) in cases {
            let is_data = |sent: &Sent| sent.packet.body.packet_type() == PacketType::PullData;
            let mut pair = Pair::new(&Setup::new(&[]), move |sent| if is_data(sent) { LOST } else { DELIVERED });
            let remote = pair.remote(0, INBOX);
            let op = if fetch_len == 8 { SendOp::FetchAdd { remote, add: 1 } } else { SendOp::Read { remote } };
            pair.ends[0].post(1, op, BASE, fetch_len);
            pair.run_for(DELAY * 2);
            let mut packet = pair.log.iter().find(|sent| is_data(sent)).expect("the response").packet;
            let Body::PullData { ulp: Ulp::Rdma(header), .. } = &mut packet.body else { panic!("not for RDMA") };
            change(header);
            pair.deliver(0, &packet, FlowLabel::new(0), &vec![0xa5; packet.payload_len as usize]);
            pair.run_for(DELAY);
            assert_eq!(pair.ends[0].take(), [(1, expected)]);
        }
    }
}
