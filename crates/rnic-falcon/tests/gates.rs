//! Windows that hold packets back, and pacing (F-16, F-19, F-20).

mod two_ends;

use rnic_base::{Duration, Psn32};
use rnic_falcon::delivery::ControlSettings;
use rnic_policy::Cwnd;
use rnic_wire::falcon::PacketType;
use two_ends::link::{LOST, Link, after};
use two_ends::{config, micros};

const DELAY: Duration = Duration::from_us(5);

#[test]
fn f16_the_smaller_window_holds_packets_back() {
    for (fcwnd, ncwnd, expected) in [(8, 64, 8), (64, 5, 5), (200, 100, 100)] {
        let mut config = config();
        (config.fcwnd, config.ncwnd) = (Cwnd::packets(fcwnd), ncwnd);
        // Nothing comes back.
        let rule = |_, from, _: &_| if from == 1 { LOST } else { after(DELAY) };
        let mut link = Link::new(config, Box::new(rule));
        link.ends[0].upper.pushes(300);
        for _ in 0..300 {
            link.ends[0].upper.pull();
        }
        link.run_for(micros(100));
        assert_eq!(link.ends[0].left(PacketType::PushData).len(), expected, "fcwnd {fcwnd}, ncwnd {ncwnd}");
    }
}

#[test]
fn f16_windows_that_change_take_effect_with_the_next_packet() {
    let mut link = Link::new(config(), Box::new(|_, from, _: &_| if from == 1 { LOST } else { after(DELAY) }));
    link.ends[0].upper.pushes(300);
    link.run_for(micros(50));
    assert_eq!(link.ends[0].log.len(), 32);
    link.ends[0].delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(50)), ..Default::default() });
    link.run_for(micros(50));
    assert_eq!(link.ends[0].log.len(), 50);
    link.ends[0].delivery.apply(0, &ControlSettings { fcwnd: Some(Cwnd::packets(500)), ..Default::default() });
    link.run_for(micros(50));
    assert_eq!(link.ends[0].log.len(), 64, "now ncwnd is the smaller");
}

#[test]
fn f19_pull_data_is_not_held_back_by_ncwnd() {
    let mut config = config();
    config.ncwnd = 1;
    let rule = |_, from, _: &_| if from == 1 { LOST } else { after(DELAY) };
    let mut link = Link::new(config, Box::new(rule));
    link.ends[0].upper.pushes(10);
    link.run_for(micros(1));
    assert_eq!(link.ends[0].left(PacketType::PushData).len(), 1, "ncwnd holds back the second Push");
    for rsn in 0..100 {
        link.ends[0].upper.pull_data(Psn32::new(rsn));
    }
    link.run_for(micros(100));
    assert_eq!(link.ends[0].left(PacketType::PullData).len(), 31, "as many as fcwnd allows");

    // And behind a Push that waits for ncwnd in the same window, in both directions at once.
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
fn f20_a_window_of_a_tenth_lets_a_packet_out_every_ten_round_trips() {
    let mut link = Link::new(config(), Box::new(|_, _, _: &_| after(DELAY)));
    let tenth = Cwnd::from_fixed(Cwnd::ONE.fixed() / 10);
    let gap = micros(10).saturating_mul(10).saturating_sub(micros(10));
    let settings = ControlSettings { fcwnd: Some(tenth), packet_gap: Some(gap), ..Default::default() };
    link.ends[0].delivery.apply(0, &settings);
    link.ends[0].upper.pushes(20);
    link.run_for(Duration::from_ms(3));
    let left = link.ends[0].left(PacketType::PushData);
    assert_eq!(left.len(), 20, "nothing is sent twice");
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
