//! Packets further from the base than acknowledgements can report: 128 data, 64 requests (F-14).

mod two_ends;

use rnic_base::{Duration, Psn32, Time};
use rnic_falcon::delivery::{AckRequestRule, ControlSettings, DeliveryConfig, Departure};
use rnic_falcon::interface::{Context, Received, Window};
use rnic_policy::Cwnd;
use rnic_policy::control::report::ReportKind;
use rnic_wire::falcon::{NackCode, PacketType, RnrTimer};
use two_ends::link::{LOST, Link, Rule, after};
use two_ends::{config_of, micros};

const DELAY: Duration = Duration::from_us(5);

/// Windows that admit all packets, and up to seven attempts.
fn wide(recovery: &str) -> DeliveryConfig {
    let mut config = config_of(recovery, "ecmp");
    (config.fcwnd, config.ncwnd, config.attempts_max) = (Cwnd::packets(300), 300, 7);
    config.ack_request = AckRequestRule::ALWAYS;
    config
}

/// A Push for which the receiver is not ready for `wait`, followed by 200 Pull Data packets.
fn behind_one_that_waits(recovery: &str, wait: Duration, rule: Rule<'static>) -> Link<'static> {
    let mut link = Link::new(wide(recovery), rule);
    link.ends[1].upper.refusals.insert(0, NackCode::NotReady { timeout: RnrTimer::at_least(wait) });
    link.ends[0].upper.pushes(1);
    link.run_for(micros(1));
    (0..200).for_each(|rsn| {
        link.ends[0].upper.pull_data(Psn32::new(rsn));
    });
    link
}

/// Returns the times of all transmissions of packet `number`.
fn departures(link: &Link<'_>, number: u32) -> Vec<Time> {
    let is_it = |sent: &Departure| sent.packet.body.psn() == Some(Psn32::new(number)) && sent.context.is_some();
    link.ends[0].log.iter().filter(|(_, sent)| is_it(sent)).map(|(at, _)| *at).collect()
}

fn tells_of_timeouts(link: &Link<'_>) -> bool {
    link.ends[0].signals.iter().any(|signal| matches!(signal.kind, ReportKind::Retransmitted { .. }))
}

#[test]
fn f14_packets_behind_one_that_waits_for_its_receiver_do_not_time_out() {
    let mut link = behind_one_that_waits("rack-tlp", Duration::from_ms(100), Box::new(|_, _, _: &_| after(DELAY)));
    link.run_for(Duration::from_ms(90));
    assert_eq!(link.ends[1].upper.kept.len(), 201, "all packets have arrived");
    let end = &link.ends[0];
    assert_eq!((end.delivery.counters().timeouts, &end.upper.exhausted[..]), (0, &[][..]));
    assert!(!tells_of_timeouts(&link));
    // 0 to 127 are known to have arrived; the others are retransmitted as rarely as packets that the upper layer has
    // not acknowledged.
    let beyond = end.log.iter().filter(|(_, sent)| sent.is_retransmission && sent.context.is_some()).count();
    assert!(beyond <= 17 * 73 + 40, "{beyond} unnecessary retransmissions");
    link.ends[1].upper.refusals.clear();
    link.run_for(Duration::from_ms(35));
    let first = Received { window: Window::Data, psn: Psn32::new(0) };
    link.ends[1].delivery.acknowledge(link.now, first);
    link.run_for(Duration::from_ms(1));
    assert!(link.ends[0].upper.all_acked() && link.ends[1].upper.kept_once());
}

#[test]
fn f14_a_packet_lost_far_behind_one_that_waits_is_retransmitted() {
    let rule = |_, from, sent: &Departure| {
        let lost = from == 0 && !sent.is_retransmission && sent.packet.body.psn() == Some(Psn32::new(150));
        if lost { LOST } else { after(DELAY) }
    };
    let mut link = behind_one_that_waits("rack-tlp", Duration::from_ms(100), Box::new(rule));
    link.run_for(Duration::from_ms(6));
    assert_eq!(link.ends[1].upper.kept.len(), 201, "the lost packet was retransmitted");
    assert_eq!(link.ends[0].delivery.counters().timeouts, 0);
}

/// As soon as acknowledgements can report a packet, it has its own timeout again: no other rule repairs the last
/// packet here.
#[test]
fn f14_a_packet_that_enters_the_bitmaps_has_its_own_timeout() {
    let rule = |_, from, sent: &Departure| {
        let lost = from == 0 && !sent.is_retransmission && sent.packet.body.psn() == Some(Psn32::new(200));
        if lost { LOST } else { after(DELAY) }
    };
    let mut link = behind_one_that_waits("ooo-distance", Duration::from_us(1_900), Box::new(rule));
    link.run_for(Duration::from_ms(1));
    link.ends[1].upper.refusals.clear();
    link.run_for(micros(1_000));
    let first = Received { window: Window::Data, psn: Psn32::new(0) };
    link.ends[1].delivery.acknowledge(link.now, first);
    link.run_for(Duration::from_ms(8));
    let left = departures(&link, 200);
    assert_eq!((left.len(), link.ends[0].delivery.counters().timeouts), (2, 1));
    // In reach after 2 ms; by then its timeout of one millisecond has expired, which is noticed within another.
    let waited = left[1].since(left[0]);
    assert!(waited > micros(1_900) && waited < micros(3_100), "{waited}");
    assert!(link.ends[0].upper.all_acked());
}

/// A round trip of 200 us and a timeout of twice that: the retransmission of the first packet is acknowledged after
/// 450 us, when packets sent 50 us after it are already 400 us old.
#[test]
fn f14_packets_behind_a_loss_do_not_time_out_during_its_recovery() {
    for kind in [PacketType::PushData, PacketType::PullRequest] {
        let rule = move |_, from, sent: &Departure| {
            let is_first = sent.packet.body.psn() == Some(Psn32::new(0)) && sent.context.is_some();
            if from == 0 && is_first && !sent.is_retransmission { LOST } else { after(micros(100)) }
        };
        let mut link = Link::new(wide("rack-tlp"), Box::new(rule));
        link.packet_time = Duration::from_ns(164);
        link.ends[1].upper.answers = false;
        link.ends[0].delivery.apply(0, &ControlSettings { rto: Some(micros(400)), ..Default::default() });
        for _ in 0..300 {
            match kind {
                PacketType::PushData => link.ends[0].upper.push(),
                _ => link.ends[0].upper.pull(),
            };
        }
        link.run_for(Duration::from_ms(2));
        assert!(link.ends[0].upper.all_acked());
        assert_eq!((link.ends[0].left_again(), link.ends[0].delivery.counters().timeouts), (1, 0), "{kind:?}");
        assert!(!tells_of_timeouts(&link));
    }
}

/// A peer that has disappeared is detected through the packets that acknowledgements can report.
#[test]
fn f14_a_silent_peer_ends_the_connection_with_many_packets_in_flight() {
    let mut config = wide("rack-tlp");
    config.attempts_max = 3;
    let mut link = Link::new(config, Box::new(|_, _, _: &_| LOST));
    link.ends[0].upper.give_up = true;
    link.ends[0].upper.pushes(300);
    link.run_for(micros(4_010));
    assert!(link.ends[0].delivery.is_terminated());
    assert_eq!(link.ends[0].upper.exhausted, [Context(0)]);
}
