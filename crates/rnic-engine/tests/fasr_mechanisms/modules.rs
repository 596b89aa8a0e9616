//! what software can verify of FaSR's modules and queues: modules that do not depend on each other,
//! and kinds of work that do not wait for each other. The circuits can only be tested in RTL.

use rnic_wire::Qpn;

use super::*;

/// Request packets, responses or acknowledgements, each as (microsecond, offset from the first PSN, kind).
type Trace = Vec<(u64, i64, TransmitKind)>;

/// Returns what the left side has sent to `dest` until `until`.
fn trace(pair: &Pair, dest: Qpn, until: Time) -> Trace {
    let sent =
        pair.log.iter().filter(|sent| sent.from == From::Left && sent.packet.dest_qpn == dest && sent.at < until);
    sent.map(|sent| {
        let us = sent.at.as_ps() / Duration::from_us(1).as_ps();
        (us, FIRST.distance_to(sent.packet.psn), sent.kind)
    })
    .collect()
}

/// recovery and congestion control are separate modules. With every congestion control, recovery retransmits
/// the same packets; with another recovery module, all of them retransmit what that module selects.
#[test]
fn r17_recovery_is_independent_of_congestion_control() {
    for (recovery, repairs) in [("fasr", vec![5, 8]), ("irn", vec![5, 8]), ("go-back-n", (5..10).collect())] {
        for control in ["line-rate", "dcqcn", "timely", "aimd", "dctcp", "new-reno"] {
            let mut pair = Pair::new(&Setup::new("fasr", &[("recovery", recovery), ("control", control)]));
            pair.wire(drop_requests(FIRST, &[(5, 0), (8, 0)]));
            write(&mut pair, 1, 10);
            pair.run();
            arrives(&mut pair, 10);
            let mut resent = pair.resent(From::Left, FIRST);
            resent.dedup();
            assert_eq!(resent, repairs, "{recovery} under {control}");
        }
    }
}

/// Kind of work that is blocked on its queue pair for the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    /// New requests: acknowledgements are lost, so the window is full.
    New,
    /// Read requests: they are lost, and only one may be in flight.
    Reads,
    /// Repairs: fetching their payload takes longer than the run.
    LossRecoveries,
}

/// Creates four queue pairs, each with one kind of work for the left side: new requests, Read requests, repairs,
/// acknowledgements. Returns what the left side sends on each until 400 us, while some kinds are blocked.
fn four_kinds(stopped: &'static [Stopped]) -> [Trace; 4] {
    let options = [("cap_packets", "16"), ("rto_low", "5ms"), ("rto_high", "5ms")];
    let setup = Setup { reads: 1, ..Setup::new("fasr", &options) };
    let slow = Setup::new("fasr", &[&options[..], &[("retransmit_fetch", "1ms")]].concat());
    let repairing = if stopped.contains(&Stopped::LossRecoveries) { &slow } else { &setup };
    let mut pair = Pair::new(&setup);
    let new = (pair.left.qpn, pair.right.qpn);
    let (reads, repairs, acks) = (pair.another(&setup), pair.another(repairing), pair.another(&setup));
    pair.wire(move |sent| {
        let (dest, at) = (sent.packet.dest_qpn, FIRST.distance_to(sent.packet.psn));
        let is = |kind, mine| stopped.contains(&kind) && dest == mine;
        let answer = is(Stopped::New, new.0) && sent.from == From::Right;
        let read = is(Stopped::Reads, reads.1) && sent.kind != TransmitKind::Ack;
        let loss = dest == repairs.1 && sent.kind == TransmitKind::Request && at % 16 == 5;
        if answer || read || loss { Fate::Drop } else { Fate::Deliver }
    });
    let post = |side: &mut Side, qpn, op, sge: Sge| {
        let request = SendRequest { wr_id: 0, op, sges: &[sge], flags: SendFlags::SIGNALED };
        side.engine.post_send(qpn, &request).expect("the queue is not full");
    };
    let (here, there) = (pair.left.remote(TARGET), pair.right.remote(TARGET));
    let (mine, theirs) = (pair.left.sge(0, 300 * MTU), pair.right.sge(0, 300 * MTU));
    let to = |remote| SendOp::Write { remote, immediate: None };
    post(&mut pair.left, new.0, to(there), mine);
    for _ in 0..30 {
        let sge = pair.left.sge(TARGET, 4 * MTU);
        post(&mut pair.left, reads.0, SendOp::Read { remote: there }, sge);
    }
    post(&mut pair.left, repairs.0, to(there), mine);
    post(&mut pair.right, acks.1, to(here), theirs);
    pair.run_until(us(400));
    [new, reads, repairs, acks].map(|(_, right)| trace(&pair, right, us(400)))
}

/// each kind is blocked in turn, then all that can be; the others send the same packets at the same times as
/// without that. Acknowledgements cannot be blocked, because they wait for nothing.
#[test]
fn r18_blocking_one_kind_of_work_blocks_no_other() {
    use Stopped::{LossRecoveries, New, Reads};
    let free = four_kinds(&[]);
    assert_eq!(free.each_ref().map(|trace| trace.len() >= 60), [true; 4], "{:?}", free.each_ref().map(Vec::len));
    assert!(free[2].iter().any(|(.., kind)| kind.is_retransmission()));
    let cases: [(&[Stopped], [bool; 4]); 4] = [
        (&[New], [true, false, false, false]),
        (&[Reads], [false, true, false, false]),
        (&[LossRecoveries], [false, false, true, false]),
        (&[New, Reads, LossRecoveries], [true, true, true, false]),
    ];
    for (stopped, expected) in cases {
        let held = four_kinds(stopped);
        for ((held, free), is_stopped) in held.iter().zip(&free).zip(expected) {
            if is_stopped {
                assert!(held.len() * 2 < free.len(), "{stopped:?}: {} of {}", held.len(), free.len());
            } else {
                assert!(held == free, "{stopped:?}: {} of {}", held.len(), free.len());
            }
        }
    }
}

/// R-18 within one queue pair: its own requests wait for a full window, and so does the response to the peer's Read,
/// which is scheduled like a Write; the acknowledgements of the peer's packets leave without delay.
#[test]
fn r18_a_full_window_delays_no_acknowledgements() {
    let sent = |stuck: bool| {
        let mut pair = Pair::new(&Setup::new("fasr", &[("cap_packets", "8"), ("rto_high", "5ms"), ("rto_low", "5ms")]));
        pair.wire(move |sent| {
            let answers = matches!(sent.packet.headers, Headers::Ack { .. } | Headers::LossAck { .. });
            if stuck && sent.from == From::Right && answers { Fate::Drop } else { Fate::Deliver }
        });
        write(&mut pair, 1, 80);
        let (remote, sge) = (pair.left.remote(0), pair.right.sge(TARGET, 40 * MTU));
        pair.right.post(2, SendOp::Read { remote }, &[sge]);
        let (remote, sge) = (pair.left.remote(TARGET), pair.right.sge(0, 40 * MTU));
        pair.right.post(3, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.run_until(us(400));
        let all = trace(&pair, pair.right.qpn, us(400));
        let (own, others): (Trace, Trace) = all.into_iter().partition(|(.., kind)| *kind != TransmitKind::Ack);
        (own.len(), others)
    };
    let ((held, others), (free, undisturbed)) = (sent(true), sent(false));
    assert_eq!((held, free), (8, 120));
    assert!(undisturbed.len() >= 41 && others == undisturbed, "{} {}", others.len(), undisturbed.len());
}
