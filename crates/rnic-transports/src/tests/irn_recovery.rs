//! IRN's recovery decisions on windows constructed by hand, by mechanism id.

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
    assert_eq!(window.nack(7).retransmit, None, "retransmitted although 7 reveals no new gap");
    assert_eq!(window.nack(9).retransmit, range(8, 9));
    assert_eq!(window.nack(9).retransmit, None, "a gap was retransmitted twice");
}

#[test]
fn i6_recovery_ends_past_the_last_packet_sent_before_the_retransmission() {
    let mut window = sent(10, &[]);
    window.nack(3);
    window.next = 14;
    assert!(!window.ack_up_to(10).recovering, "still recovering, although 10 was sent after it");

    let mut window = sent(10, &[]);
    window.nack(3);
    window.next = 14;
    let partial = window.ack_up_to(9);
    assert!(partial.recovering, "not recovering, although 9 was sent before it");
    assert_eq!(partial.retransmit, None, "retransmitted although no later packet has arrived");
    assert_eq!(window.nack(10).retransmit, range(9, 10), "not retransmitted although 10 has arrived");
    assert!(window.ack_up_to(13).recovering, "the retransmission did not move the recovery sequence to 13");
    assert!(!window.ack_up_to(14).recovering);
}

/// Packets 1 to 3 are reordered, not lost: late acknowledgements must not cause retransmissions.
#[test]
fn i4_a_packet_sent_before_a_nack_is_lost_only_if_a_later_one_is_sacked() {
    let mut window = sent(10, &[]);
    assert_eq!(window.nack(3).retransmit, range(0, 3));
    for una in 1..=9 {
        assert_eq!(window.ack_up_to(una).retransmit, None, "up to {una}");
    }
}

/// After a timeout, each acknowledgement uncovers the next packet that was sent before the timeout; this packet is
/// retransmitted once.
#[test]
fn i4_a_packet_sent_before_a_timeout_is_lost_when_uncovered() {
    let mut window = sent(4, &[]);
    assert_eq!(window.event(RecoveryEvent::TimedOut { extended: true }).retransmit, range(0, 1));
    window.next = 6;
    assert_eq!(window.ack_up_to(1).retransmit, range(1, 2));
    assert_eq!(window.ack_up_to(2).retransmit, range(2, 3));
    assert_eq!(window.ack_up_to(4).retransmit, None, "retransmitted although 4 was sent after the timeout");
}

/// Without the bitmap, packets sent before recovery started are considered lost when an acknowledgement uncovers
/// them, regardless of the cause of the recovery.
#[test]
fn i4_without_the_bitmap_uncovered_packets_are_lost() {
    let mut window = sent(10, &[("sack_bitmap", "false")]);
    assert_eq!(window.nack(3).retransmit, range(0, 1));
    assert_eq!(window.ack_up_to(2).retransmit, range(2, 3));
    window.next = 12;
    assert_eq!(window.ack_up_to(9).retransmit, range(9, 10));
    assert_eq!(window.ack_up_to(10).retransmit, None, "10 was sent after recovery began");
}

/// The acknowledgements of packets 4 to 11 are lost, so the SACK of packet 12 shows gaps that do not exist, and
/// advances the recovery sequence to packet 13. The acknowledgements after that arrive in order: none of them may
/// cause a retransmission, otherwise recovery would not end.
#[test]
fn i4_i6_ordinary_acknowledgements_do_not_prolong_recovery() {
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
fn i10_loss_alone_never_changes_the_rate() {
    use rnic_policy::{ControlEvent, ControlView};
    let policy = crate::control::find("line-rate").expect("the policy is registered");
    let view = ControlView { now: Time::ZERO, line_rate: rnic_base::BitRate::gbps(40), mtu: 1_024, in_flight: 1 };
    let params = Params::default();
    let (mut state, first) = (policy.start)(&params, &view);
    assert_eq!(first, Default::default(), "a window or a rate at the start");
    for event in [ControlEvent::Nacked { lost: true }, ControlEvent::TimedOut, ControlEvent::Cnp] {
        assert_eq!((policy.on_event)(&mut state, &event, &view, &params), Default::default());
    }
}

/// I-22, as far as software can verify it: each module maps context and event to context and actions, and has no
/// other input. Two queue pairs that are processed alternately, packet by packet, cause the same decisions as each
/// would alone.
#[test]
fn i22_actions_depend_only_on_context_and_event() {
    type Script = [fn(&mut Window) -> RecoveryActions; 6];
    // The events call `receiveAck` three times, `timeout` twice, and `receiveAck` once more.
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
    let interleaved: Vec<_> =
        one.iter().zip(&other).map(|(one, other)| [one(&mut first), other(&mut second)]).collect();
    let [one, other] = [one, other].map(alone);
    let separate: Vec<_> = one.into_iter().zip(other).map(|(one, other)| [one, other]).collect();
    assert_eq!(interleaved, separate);
    let decided = separate.iter().flatten().filter(|actions| actions.retransmit.is_some()).count();
    assert!(decided >= 5, "{separate:?}");
}

#[test]
fn i28_recovery_starts_at_the_nack_threshold() {
    let mut window = sent(20, &[("nack_threshold", "3")]);
    assert_eq!(window.nack(5).retransmit, None);
    assert_eq!(window.nack(6).retransmit, None);
    assert_eq!(window.nack(7).retransmit, range(0, 7));
    let mut reordered = sent(20, &[("nack_threshold", "3")]);
    reordered.nack(5);
    reordered.nack(6);
    reordered.ack_up_to(7);
    assert_eq!(reordered.nack(9).retransmit, None, "an advance did not reset the count");
}

#[test]
fn variant_without_bitmap_retransmits_one_gap_a_round_trip() {
    let mut window = sent(20, &[("sack_bitmap", "false")]);
    assert_eq!(window.nack(5).retransmit, range(0, 1));
    assert_eq!(window.nack(9).retransmit, None);
    assert_eq!(window.ack_up_to(3).retransmit, range(3, 4));
}

#[test]
fn variant_restarts_the_timer_at_a_nack() {
    for (option, expected) in [("false", TimerChange::Keep), ("true", TimerChange::Restart)] {
        let mut window = sent(50, &[("rto_from_nack", option)]);
        assert_eq!(window.nack(7).timer, expected, "rto_from_nack={option}");
        assert_eq!(window.nack(9).timer, expected, "rto_from_nack={option}, in recovery");
        assert_eq!(window.ack_up_to(5).timer, TimerChange::Keep, "an advance restarts it without a request");
    }
}

#[test]
fn variant_dynamic_timeout_follows_the_round_trip() {
    let mut window = sent(50, &[("dynamic_rto", "true")]);
    window.event(RecoveryEvent::Acked { packets: 0, rtt: Some(Duration::from_us(200)) });
    let extended = window.event(RecoveryEvent::TimedOut { extended: false });
    // RFC 6298: srtt of 200 us plus 4 * 100 us, minus the 100 us that have elapsed.
    assert_eq!(extended.timer, TimerChange::Extend(Duration::from_us(500)));
}
