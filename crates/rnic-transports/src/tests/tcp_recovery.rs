//! TCP's recovery decisions on windows constructed by hand, by RFC.

use rnic_base::{Duration, SeqRange};
use rnic_policy::RecoveryEvent;

use super::window::{Window, range};
use crate::recovery::tcp_sack::TcpSack;

fn sent(next: u64) -> Window {
    Window::of::<TcpSack>(next, &[])
}

fn sack(window: &mut Window, index: u64) -> Option<SeqRange> {
    window.nack(index).retransmit
}

fn sample(window: &mut Window, rtt: Duration) -> Option<Duration> {
    window.event(RecoveryEvent::Acked { packets: 1, rtt: Some(rtt) }).rto.flatten()
}

/// RFC 6675, section 5: a packet is lost when the third selective acknowledgement above it arrives, not before.
#[test]
fn fast_retransmit_at_the_third_selective_acknowledgement() {
    let mut window = sent(20);
    assert_eq!([sack(&mut window, 5), sack(&mut window, 6)], [None, None]);
    assert_eq!(sack(&mut window, 7), range(0, 5), "0 to 4 have three above them, but are not lost");
    assert_eq!(sack(&mut window, 8), None, "a packet that has arrived was retransmitted");
    assert_eq!([sack(&mut window, 10), sack(&mut window, 11)], [None, None], "9 is lost with two above it");
    assert_eq!(sack(&mut window, 12), range(9, 10));
}

/// RFC 6675, IsLost: each missing packet is lost as soon as three packets above it have been selectively
/// acknowledged.
#[test]
fn a_missing_packet_is_lost_after_three_sacks_above_it() {
    let mut window = sent(40);
    for index in [1, 2, 3] {
        sack(&mut window, index);
    }
    assert_eq!(
        [sack(&mut window, 11), sack(&mut window, 12)],
        [None, None],
        "retransmitted although 0 was retransmitted and 1 to 3 have arrived"
    );
    assert_eq!(sack(&mut window, 13), range(4, 11), "4 to 10 are not lost");
}

/// RFC 6582: partial acknowledgements continue the recovery; an acknowledgement beyond the recovery point ends it.
#[test]
fn recovery_ends_at_the_recovery_point() {
    let mut window = sent(20);
    for index in [2, 3, 4] {
        sack(&mut window, index);
    }
    window.next = 30;
    let partial = window.ack_up_to(5);
    assert_eq!((partial.retransmit, partial.recovering), (range(5, 6), true), "RFC 6582, section 3.2, step 3");
    assert!(window.ack_up_to(19).recovering);
    assert!(!window.ack_up_to(20).recovering, "still recovering, although 20 was sent after recovery began");
}

/// RFC 6675, section 5.1, and RFC 6298, sections 2 and 5.
#[test]
fn timeouts_retransmit_everything_and_back_off() {
    let us = Duration::from_us;
    let mut window = sent(20);
    assert_eq!((window.policy.initial_rto)(&window.params), Some(us(320)));
    assert_eq!(sample(&mut window, us(50)), Some(us(320)), "not the floor, although 50 + 4 * 25 is below it");
    assert_eq!(sample(&mut window, us(850)), Some(us(150 + 4 * 218) + Duration::from_ns(3_000)), "RFC 6298, 2.3");
    let first = window.event(RecoveryEvent::TimedOut { extended: false });
    assert_eq!((first.retransmit, first.rto), (range(0, 20), Some(Some(us(2 * (150 + 4 * 218)) + us(6)))));
    let mut last = Duration::ZERO;
    for _ in 0..20 {
        let rto = window.event(RecoveryEvent::TimedOut { extended: false }).rto.flatten().expect("the timeout is set");
        assert!(rto > last || rto == Duration::from_secs(1), "not doubled up to rto_max");
        last = rto;
    }
    assert_eq!(last, Duration::from_secs(1));
    assert_eq!(window.ack_up_to(5).rto, None, "Karn: no sample, no change");
    assert!(
        sample(&mut window, us(100)) < Some(Duration::from_ms(2)),
        "a measured round trip did not end the back-off"
    );
}
