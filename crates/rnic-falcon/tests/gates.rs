//! Windows that hold packets back, and pacing (F-16, F-19, F-20).

mod two_ends;

use rnic_base::{Duration, Psn32};
use rnic_falcon::delivery::{AckRequestRule, ControlSettings, Departure};
use rnic_policy::Cwnd;
use rnic_wire::falcon::PacketType;
use two_ends::link::{LOST, Link, after};
use two_ends::upper::Acknowledging;
use two_ends::{config, micros};

const DELAY: Duration = Duration::from_us(5);

#[test]
fn f16_the_smaller_window_limits_the_packets() {
    let pushes_first = [PacketType::PushData, PacketType::PullRequest];
    let windows = [(8, 64, 8), (64, 5, 5), (200, 100, 100)];
    let kinds = [&pushes_first[..], &pushes_first[1..]];
    for ((fcwnd, ncwnd, expected), kinds) in windows.into_iter().flat_map(|window| kinds.map(|kinds| (window, kinds))) {
        let mut config = config();
        (config.fcwnd, config.ncwnd) = (Cwnd::packets(fcwnd), ncwnd);
        // No acknowledgement arrives.
        let rule = |_, from, _: &_| if from == 1 { LOST } else { after(DELAY) };
        let mut link = Link::new(config, Box::new(rule));
        for kind in kinds {
            (0..300).for_each(|_| queue(&mut link, *kind));
        }
        link.run_for(micros(100));
        let left = link.ends[0].left(kinds[0]).len();
        assert_eq!((left, link.ends[0].log.len()), (expected, expected), "fcwnd {fcwnd}, ncwnd {ncwnd}: {kinds:?}");
    }
}

fn queue(link: &mut Link<'_>, kind: PacketType) {
    let upper = &mut link.ends[0].upper;
    match kind {
        PacketType::PullRequest => upper.pull(),
        PacketType::PullData => upper.pull_data(Psn32::new(0)),
        _ => upper.push(),
    };
}

/// Ten packets are lost, and when they time out, ncwnd allows four requests to be retransmitted.
#[test]
fn f16_ncwnd_limits_retransmissions() {
    let kinds = [(PacketType::PushData, 4), (PacketType::PullRequest, 4), (PacketType::PullData, 10)];
    for (kind, expected) in kinds {
        let mut config = config();
        config.ack_request = AckRequestRule::ALWAYS;
        let rule = |_, from, sent: &Departure| if from == 0 && !sent.is_retransmission { LOST } else { after(DELAY) };
        let mut link = Link::new(config, Box::new(rule));
        link.ends[1].upper.answers = false;
        (0..10).for_each(|_| queue(&mut link, kind));
        link.run_for(micros(100));
        assert_eq!(link.ends[0].log.len(), 10);
        link.ends[0].delivery.apply(0, &ControlSettings { ncwnd: Some(4), ..Default::default() });
        link.run_for(micros(1_100));
        let retransmission_times: Vec<_> =
            link.ends[0].log.iter().filter(|(_, sent)| sent.is_retransmission).map(|(at, _)| *at).collect();
        let at_once = retransmission_times.iter().filter(|at| at.since(retransmission_times[0]) < micros(10)).count();
        assert_eq!((retransmission_times.len(), at_once), (10, expected), "{kind:?}");
        // Each acknowledgement allows one more.
        let second = retransmission_times.iter().filter(|at| at.since(retransmission_times[0]) < micros(20)).count();
        assert_eq!(second, (2 * expected).min(10), "{kind:?}");
        assert!(link.ends[0].upper.all_acked());
    }
}

/// Nineteen retransmissions have arrived and wait at the receiver for the twentieth packet, which was lost again;
/// meanwhile the window shrinks to ten. The missing packet is retransmitted all the same.
#[test]
fn f16_arrived_retransmissions_do_not_block_others() {
    let mut config = config();
    (config.ack_request, config.ncwnd) = (AckRequestRule::ALWAYS, 20);
    let mut copies = 0;
    let rule = move |_, from, sent: &Departure| {
        let is_first = from == 0 && sent.packet.body.psn() == Some(Psn32::new(0));
        copies += u32::from(is_first);
        let lost = from == 0 && !sent.is_retransmission || is_first && copies == 2;
        if lost { LOST } else { after(DELAY) }
    };
    let mut link = Link::new(config, Box::new(rule));
    link.ends[1].upper.acknowledging = Acknowledging::Never;
    link.ends[0].upper.pushes(20);
    link.run_for(micros(1_006));
    assert_eq!(link.ends[0].left_again(), 20, "all packets have timed out");
    link.ends[0].delivery.apply(0, &ControlSettings { ncwnd: Some(10), ..Default::default() });
    link.run_for(micros(100));
    assert_eq!(link.ends[1].upper.kept.len(), 20);
    assert!(link.ends[0].left_again() > 20, "the twentieth packet was not retransmitted");
}

#[test]
fn f16_window_changes_apply_to_the_next_packet() {
    let mut link = Link::new(config(), Box::new(|_, from, _: &_| if from == 1 { LOST } else { after(DELAY) }));
    link.ends[0].upper.pushes(300);
    link.run_for(micros(50));
    assert_eq!(link.ends[0].log.len(), 32);
    link.ends[0].delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(50)), ..Default::default() });
    link.run_for(micros(50));
    assert_eq!(link.ends[0].log.len(), 50);
    link.ends[0].delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(500)), ..Default::default() });
    link.run_for(micros(50));
    assert_eq!(link.ends[0].log.len(), 64, "ncwnd is the smaller window now");
}

#[test]
fn f19_pull_data_is_not_limited_by_ncwnd() {
    let mut config = config();
    config.ncwnd = 1;
    let rule = |_, from, _: &_| if from == 1 { LOST } else { after(DELAY) };
    let mut link = Link::new(config, Box::new(rule));
    link.ends[0].upper.pushes(10);
    link.run_for(micros(1));
    assert_eq!(link.ends[0].left(PacketType::PushData).len(), 1, "ncwnd allows one Push");
    for rsn in 0..100 {
        link.ends[0].upper.pull_data(Psn32::new(rsn));
    }
    link.run_for(micros(100));
    assert_eq!(link.ends[0].left(PacketType::PullData).len(), 31, "as many as fcwnd allows");

    // Also after a Push that waits for ncwnd in the same window, in both directions at the same time.
    let mut link = Link::new(config, Box::new(|_, _, _: &_| after(DELAY)));
    for end in &mut link.ends {
        for _ in 0..100 {
            end.upper.pull();
        }
        end.upper.pushes(100);
    }
    link.run_for(Duration::from_ms(10));
    assert!(link.ends.iter().all(|end| end.upper.all_acked() && end.upper.kept.len() == 300));
}

#[test]
fn f20_a_window_of_a_tenth_sends_a_packet_every_ten_round_trips() {
    let mut link = Link::new(config(), Box::new(|_, _, _: &_| after(DELAY)));
    let tenth = Cwnd::from_fixed(Cwnd::ONE.fixed() / 10);
    let gap = micros(10).saturating_mul(10).saturating_sub(micros(10));
    let settings = ControlSettings { fcwnd: Some(tenth), packet_gap: Some(gap), ..Default::default() };
    link.ends[0].delivery.apply(0, &settings);
    link.ends[0].upper.pushes(20);
    link.run_for(Duration::from_ms(3));
    let left = link.ends[0].left(PacketType::PushData);
    assert_eq!(left.len(), 20, "no packet is retransmitted");
    for pair in left.windows(2) {
        let gap = pair[1].0.since(pair[0].0);
        assert!(gap >= micros(100) && gap < micros(101), "{gap}");
    }
    assert!(link.ends[0].upper.all_acked());
}

#[test]
fn f20_both_windows_together_keep_the_gap() {
    let mut link = Link::new(config(), Box::new(|_, _, _: &_| after(DELAY)));
    let settings =
        ControlSettings { fcwnd: Some(Cwnd::from_fixed(1)), packet_gap: Some(micros(50)), ..Default::default() };
    link.ends[0].delivery.apply(0, &settings);
    link.ends[1].upper.answers = false;
    for _ in 0..10 {
        link.ends[0].upper.pull();
        link.ends[0].upper.push();
    }
    link.run_for(Duration::from_ms(3));
    let left: Vec<_> = link.ends[0].log.iter().filter(|(_, departure)| departure.context.is_some()).collect();
    assert_eq!(left.len(), 20);
    assert!(left.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= micros(50)));
}
