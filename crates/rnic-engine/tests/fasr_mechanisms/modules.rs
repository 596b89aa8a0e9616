//! what software can say of FaSR's modules and queues. Parts that do not know each other; kinds of work
//! that do not wait for each other. The circuits wait for RTL.

use rnic_wire::Qpn;

use super::*;

/// A request packet, response or acknowledgement: microsecond, number from the first PSN, kind.
type Trace = Vec<(u64, i64, TransmitKind)>;

/// What the left side has sent to `dest` until `until`.
fn trace(pair: &Pair, dest: Qpn, until: Time) -> Trace {
    let sent =
        pair.log.iter().filter(|sent| sent.from == From::Left && sent.packet.dest_qpn == dest && sent.at < until);
    sent.map(|sent| {
        let us = sent.at.as_ps() / Duration::from_us(1).as_ps();
        (us, FIRST.distance_to(sent.packet.psn), sent.kind)
    })
    .collect()
}

/// recovery and congestion control are modules apart. Whatever controls congestion, recovery sends the same
/// again; with another recovery in its place, all of them send what that one says.
#[test]
fn r17_recovery_does_not_know_what_controls_congestion() {
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

/// What is stopped on its queue pair, for the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopped {
    /// New requests: acknowledgements do not come, the window is full.
    New,
    /// Read requests: they are lost, one may be under way.
    Reads,
    /// Repairs: they are fetched for longer than the run takes.
    Repairs,
}

/// Four queue pairs, each with one kind of work for the left side: new requests, Read requests, repairs,
/// acknowledgements. What the left side sends on each until 400 us, while some kinds are stopped.
fn four_kinds(stopped: &'static [Stopped]) -> [Trace; 4] {
    let options = [("cap_packets", "16"), ("rto_low", "5ms"), ("rto_high", "5ms")];
    let setup = Setup { reads: 1, ..Setup::new("fasr", &options) };
    let slow = Setup::new("fasr", &[&options[..], &[("retransmit_fetch", "1ms")]].concat());
    let repairing = if stopped.contains(&Stopped::Repairs) { &slow } else { &setup };
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
        side.engine.post_send(qpn, &request).expect("room");
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

/// each kind is stopped in turn, then all that can be; the others send what they send without that, at the same
/// times. Acknowledgements cannot be stopped: they wait for nothing.
#[test]
fn r18_a_kind_of_work_that_is_stopped_stops_no_other() {
    use Stopped::{New, Reads, Repairs};
    let free = four_kinds(&[]);
    assert_eq!(free.each_ref().map(|trace| trace.len() >= 60), [true; 4], "{:?}", free.each_ref().map(Vec::len));
    assert!(free[2].iter().any(|(.., kind)| kind.is_retransmission()));
    let cases: [(&[Stopped], [bool; 4]); 4] = [
        (&[New], [true, false, false, false]),
        (&[Reads], [false, true, false, false]),
        (&[Repairs], [false, false, true, false]),
        (&[New, Reads, Repairs], [true, true, true, false]),
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

/// R-18 within one queue pair: its own requests are stuck behind a full window, and the answer to the peer's Read with
/// them, as it is scheduled like a Write; the acknowledgements of the peer's packets leave as if nothing were.
#[test]
fn r18_a_full_window_holds_no_acknowledgements() {
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
