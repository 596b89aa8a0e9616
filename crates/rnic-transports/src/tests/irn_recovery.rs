//! IRN's recovery decisions on hand-made windows, by mechanism id.

use rnic_base::{Duration, Time};
use rnic_policy::{Params, RecoveryActions, RecoveryEvent, TimerChange};

use super::window::{Window, range};
use crate::recovery::irn::Irn;

fn sent(next: u64, options: &[(&str, &str)]) -> Window {
    Window::of::<Irn>(next, options)
}

#[test]
fn i4_first_the_cumulative_packet_then_only_holes_below_a_sack() {
    let mut window = sent(10, &[]);
    window.ack_up_to(5);
    let entered = window.nack(6);
    assert_eq!((entered.retransmit, entered.recovering), (range(5, 6), true));
    assert_eq!(window.nack(7).retransmit, None, "7 reveals no new hole");
    assert_eq!(window.nack(9).retransmit, range(8, 9));
    assert_eq!(window.nack(9).retransmit, None, "each hole is sent again once");
}

#[test]
fn i6_recovery_ends_past_the_last_packet_sent_before_the_retransmission() {
    let mut window = sent(10, &[]);
    window.nack(3);
    window.next = 14;
    assert!(!window.ack_up_to(10).recovering, "10 was sent after it");

    let mut window = sent(10, &[]);
    window.nack(3);
    window.next = 14;
    let partial = window.ack_up_to(9);
    assert!(partial.recovering, "9 was sent before it");
    assert_eq!(partial.retransmit, None, "and nothing has overtaken it");
    assert_eq!(window.nack(10).retransmit, range(9, 10), "now 10 has");
    assert!(window.ack_up_to(13).recovering, "that retransmission moved the recovery sequence to 13");
    assert!(!window.ack_up_to(14).recovering);
}

/// 1 to 3 are reordered, not lost: acknowledgements of what merely came late must send nothing.
#[test]
fn i4_what_was_sent_before_a_nack_is_lost_only_if_overtaken() {
    let mut window = sent(10, &[]);
    assert_eq!(window.nack(3).retransmit, range(0, 3));
    for una in 1..=9 {
        assert_eq!(window.ack_up_to(una).retransmit, None, "up to {una}");
    }
}

/// After a timeout each acknowledgement uncovers the next packet that was sent before it, and sends it once.
#[test]
fn i4_what_was_sent_before_a_timeout_is_lost_when_uncovered() {
    let mut window = sent(4, &[]);
    assert_eq!(window.event(RecoveryEvent::TimedOut { extended: true }).retransmit, range(0, 1));
    window.next = 6;
    assert_eq!(window.ack_up_to(1).retransmit, range(1, 2));
    assert_eq!(window.ack_up_to(2).retransmit, range(2, 3));
    assert_eq!(window.ack_up_to(4).retransmit, None, "4 was sent after the timeout");
}

/// Without the bitmap, what was sent before recovery began is lost when uncovered, however it began.
#[test]
fn i4_without_the_bitmap_uncovered_packets_are_lost() {
    let mut window = sent(10, &[("sack_bitmap", "false")]);
    assert_eq!(window.nack(3).retransmit, range(0, 1));
    assert_eq!(window.ack_up_to(2).retransmit, range(2, 3));
    window.next = 12;
    assert_eq!(window.ack_up_to(9).retransmit, range(9, 10));
    assert_eq!(window.ack_up_to(10).retransmit, None, "10 was sent after recovery began");
}

/// The acknowledgements of 4 to 11 are lost, so the SACK of 12 shows holes that are none, and moves the recovery
/// sequence to 13. Then acknowledgements come in order again: none of them may send anything, or recovery would never
/// end.
#[test]
fn i4_i6_ordinary_acknowledgements_keep_no_recovery_alive() {
    let mut window = sent(10, &[]);
    window.nack(3);
    window.next = 14;
    assert_eq!(window.nack(12).retransmit, range(4, 12));
    window.next = 20;
    let acked = window.ack_up_to(13);
    assert_eq!((acked.retransmit, acked.recovering), (None, true), "13 was sent after recovery began");
    assert!(!window.ack_up_to(14).recovering);
}

#[test]
fn i7_i24_low_timeout_acts_only_with_few_packets_in_flight() {
    let low = Duration::from_us(100);
    let mut few = sent(2, &[]);
    assert_eq!((few.policy.initial_rto)(&few.params), Some(low));
    assert_eq!(few.event(RecoveryEvent::TimedOut { extended: false }).retransmit, range(0, 1));

    let mut many = sent(3, &[]);
    let extended = many.event(RecoveryEvent::TimedOut { extended: false });
    assert_eq!((extended.retransmit, extended.timer), (None, TimerChange::Extend(Duration::from_us(220))));
    assert_eq!(many.event(RecoveryEvent::TimedOut { extended: true }).retransmit, range(0, 1));
}

#[test]
fn i10_loss_alone_never_touches_the_rate() {
    use rnic_policy::{ControlEvent, ControlView};
    let policy = crate::control::find("line-rate").expect("registered");
    let view = ControlView { now: Time::ZERO, line_rate: rnic_base::BitRate::gbps(40), mtu: 1_024, in_flight: 1 };
    let params = Params::default();
    let (mut state, first) = (policy.start)(&params, &view);
    assert_eq!(first, Default::default(), "starts at line rate: no window, no rate");
    for event in [ControlEvent::Nacked { lost: true }, ControlEvent::TimedOut, ControlEvent::Cnp] {
        assert_eq!((policy.on_event)(&mut state, &event, &view, &params), Default::default());
    }
}

/// I-22, as far as software can say it: each module turns context and event into context and actions, and has no other
/// input. Two queue pairs that are served in turn, packet by packet, decide as each would alone.
#[test]
fn i22_context_and_event_in_context_and_actions_out() {
    type Script = [fn(&mut Window) -> RecoveryActions; 6];
    // `receiveAck` three times, `timeout` twice, `receiveAck` again.
    let one: Script = [
        |window| window.nack(7),
        |window| window.nack(9),
        |window| window.ack_up_to(8),
        |window| window.event(RecoveryEvent::TimedOut { extended: false }),
        |window| window.event(RecoveryEvent::TimedOut { extended: true }),
        |window| window.ack_up_to(10),
    ];
    let other: Script = [
        |window| window.event(RecoveryEvent::TimedOut { extended: false }),
        |window| window.ack_up_to(1),
        |window| window.nack(4),
        |window| window.nack(5),
        |window| window.ack_up_to(9),
        |window| window.event(RecoveryEvent::TimedOut { extended: true }),
    ];
    let alone = |script: Script| {
        let mut window = sent(10, &[]);
        script.map(|step| step(&mut window))
    };
    let (mut first, mut second) = (sent(10, &[]), sent(10, &[]));
    let in_turn: Vec<_> = one.iter().zip(&other).map(|(one, other)| [one(&mut first), other(&mut second)]).collect();
    let [one, other] = [one, other].map(alone);
    let apart: Vec<_> = one.into_iter().zip(other).map(|(one, other)| [one, other]).collect();
    assert_eq!(in_turn, apart);
    let decided = apart.iter().flatten().filter(|actions| actions.retransmit.is_some()).count();
    assert!(decided >= 5, "{apart:?}");
}

#[test]
fn i28_nack_threshold_waits_before_it_believes_in_loss() {
    let mut window = sent(20, &[("nack_threshold", "3")]);
    assert_eq!(window.nack(5).retransmit, None);
    assert_eq!(window.nack(6).retransmit, None);
    assert_eq!(window.nack(7).retransmit, range(0, 7));
    let mut reordered = sent(20, &[("nack_threshold", "3")]);
    reordered.nack(5);
    reordered.nack(6);
    reordered.ack_up_to(7);
    assert_eq!(reordered.nack(9).retransmit, None, "an advance starts the count anew");
}

#[test]
fn variant_without_bitmap_repairs_one_hole_a_round_trip() {
    let mut window = sent(20, &[("sack_bitmap", "false")]);
    assert_eq!(window.nack(5).retransmit, range(0, 1));
    assert_eq!(window.nack(9).retransmit, None);
    assert_eq!(window.ack_up_to(3).retransmit, range(3, 4));
}

#[test]
fn variant_dynamic_timeout_follows_the_round_trip() {
    let mut window = sent(50, &[("dynamic_rto", "true")]);
    window.event(RecoveryEvent::Acked { packets: 0, rtt: Some(Duration::from_us(200)) });
    let extended = window.event(RecoveryEvent::TimedOut { extended: false });
    // RFC 6298: srtt 200 us + 4 * 100 us, less the 100 us that have passed.
    assert_eq!(extended.timer, TimerChange::Extend(Duration::from_us(500)));
}
