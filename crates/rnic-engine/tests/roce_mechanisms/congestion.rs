//! Congestion marks and notifications (RoCEv2, annex A17.9.3), with a transport that uses them and with one that does
//! not.

use rnic_wire::{Format, Packet, PacketFlags};

use super::*;

/// Returns a CNP as adapters send it.
fn cnp(dest_qpn: rnic_wire::Qpn) -> Packet {
    let flags = PacketFlags { becn: true, ..PacketFlags::default() };
    Packet { dest_qpn, psn: Psn::new(0), flags, payload_len: 0, headers: Headers::Cnp }
}

fn take_cnp(side: &mut Side, now: Time) -> RxOutcome {
    let (packet, meta) = (cnp(side.qpn), RxMeta { peer: PeerId(7), congested: false });
    side.receive(now, Format::RoceV2, &packet, meta, &[])
}

/// By default no rate is reduced: a CNP in the middle of a Write is counted, and the Write continues unchanged. A
/// packet that arrives marked draws no CNP.
#[test]
fn without_rate_control_cnps_are_only_counted_and_marks_cause_no_cnp() {
    let mut quiet = roce();
    write(&mut quiet, 1, 200);
    quiet.run();
    let mut pair = roce();
    pair.wire(|sent| if sent.from == From::Left { Fate::Marked } else { Fate::Deliver });
    write(&mut pair, 1, 200);
    pair.run_until(us(3));
    assert_eq!(take_cnp(&mut pair.left, us(3)), RxOutcome::Accepted);
    pair.run();
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.trace_of(From::Left, FIRST), quiet.trace_of(From::Left, FIRST));
    assert_eq!(pair.left.engine.stats().cnps_received, 1);
    let right = pair.right.engine.stats();
    assert_eq!((right.marks_received, right.cnps_sent), (200, 0));
}

/// With DCQCN, marks draw a CNP, at most one in 50 us, and the sender that receives it reduces its rate: of two
/// Writes the second one is slower.
#[test]
fn dcqcn_sends_cnps_for_marks_and_reduces_the_rate_on_cnps() {
    let run = |fate: Fate| {
        let mut pair = roce_with(&[("control", "dcqcn")]);
        pair.wire(move |sent| if sent.from == From::Left { fate } else { Fate::Deliver });
        write(&mut pair, 0, 200);
        pair.run_until(us(30));
        write(&mut pair, 1, 400);
        pair.run();
        all_succeed(&mut pair.left, 0..2);
        let ended = pair.trace_of(From::Left, FIRST).last().expect("packets were sent").0;
        let (left, right) = (pair.left.engine.stats(), pair.right.engine.stats());
        assert_eq!(left.cnps_received, right.cnps_sent, "a CNP is lost");
        (ended - 30, right.marks_received, right.cnps_sent)
    };
    let ((free_us, unmarked, none), (slowed_us, marked, cnps)) = (run(Fate::Deliver), run(Fate::Marked));
    assert_eq!((unmarked, none, marked, free_us), (0, 0, 600, 0));
    assert!(slowed_us >= 60, "400 packets took {slowed_us} us at half the rate of 100 Gbit/s or less");
    assert!((2..=(30 + slowed_us) / 50 + 1).contains(&cnps), "{cnps} in {slowed_us} us");
}

/// A queue pair of a program that only receives never reaches `ReadyToSend`. Its marked packets draw CNPs all the
/// same.
#[test]
fn a_queue_pair_that_only_receives_sends_cnps_for_marks() {
    let setup = Setup::new("roce-gbn", &[("control", "dcqcn")]);
    let mut pair = Pair::new(&setup);
    let (receiver, peer) = (pair.right.qpn, pair.left.qpn);
    pair.right.engine.modify_to_reset(receiver).expect("legal in every state");
    pair.right.engine.modify_to_init(receiver).expect("from reset");
    pair.right.engine.modify_to_rtr(receiver, &connection(&setup, peer)).expect("from init");
    pair.wire(|sent| if sent.from == From::Left { Fate::Marked } else { Fate::Deliver });
    write(&mut pair, 1, 20);
    pair.run();
    all_succeed(&mut pair.left, [1]);
    assert_eq!(pair.right.info().state, QpState::ReadyToReceive);
    assert_eq!((pair.right.engine.stats().cnps_sent, pair.left.engine.stats().cnps_received), (1, 1));
}

/// Queue pairs of unreliable services, and those that are not connected, drop CNPs.
#[test]
fn cnps_for_other_queue_pairs_are_dropped() {
    for service in [Service::UnreliableConnection, Service::UnreliableDatagram] {
        let mut setup = Setup::new("roce-gbn", &[]);
        setup.service = service;
        let mut pair = Pair::new(&setup);
        assert_eq!(take_cnp(&mut pair.left, us(1)), RxOutcome::Dropped(DropReason::WrongFormat), "{service:?}");
        assert_eq!(pair.left.info().state, QpState::ReadyToSend);
    }
    let mut pair = roce();
    pair.left.engine.modify_to_error(pair.left.qpn).expect("it exists");
    assert_eq!(take_cnp(&mut pair.left, us(1)), RxOutcome::Dropped(DropReason::State));
    assert_eq!(pair.left.engine.stats().cnps_received, 0);
}
