//! Flows: labels, windows, choice, attribution, recovery (F-24 to F-29, conformance probe 9).

mod two_ends;

use std::collections::BTreeSet;

use rnic_base::{Duration, RandomStreams, Serial, Time};
use rnic_falcon::delivery::{
    AckRequestRule, ControlSettings, Delivery, DeliveryConfig, Departure, FlowCounters, FlowView,
};
use rnic_falcon::interface::Window;
use rnic_policy::control::report::ReportKind;
use rnic_policy::{Cwnd, FlowActions};
use rnic_wire::falcon::{Body, PacketType, Timestamp};
use two_ends::link::{End, Inline, LOST, Link, after};
use two_ends::packets::{ack, give};
use two_ends::upper::{Acknowledging, Counting};
use two_ends::{config_of, micros};

const DELAY: Duration = Duration::from_us(5);

fn flows(paths: &str, count: u8) -> DeliveryConfig {
    let mut config = config_of("rack-tlp", paths);
    config.flows = count;
    config.accept_stale = true;
    config.ack_request = AckRequestRule::ALWAYS;
    config
}

/// Returns the flow of a departure of a connection with four flows.
fn flow(departure: &Departure) -> usize {
    usize::from(departure.label.flow(2))
}

fn set_windows(link: &mut Link<'_>, windows: [u64; 4]) {
    for (flow, packets) in windows.into_iter().enumerate() {
        let settings = ControlSettings { fcwnd: Some(Cwnd::packets(packets)), ..Default::default() };
        link.ends[0].delivery.apply(flow as u8, &settings);
    }
}

#[test]
fn f24_flows_have_distinct_labels_with_their_index_in_the_low_bits() {
    for (count, bits) in [(1u8, 0), (2, 1), (3, 2), (4, 2), (8, 3)] {
        let mut link = Link::new(flows("spray", count), Box::new(|_, _, _: &_| after(DELAY)));
        link.ends[0].upper.pushes(100);
        link.run_for(Duration::from_ms(1));
        let labels: BTreeSet<_> = link.ends[0].log.iter().map(|(_, departure)| departure.label).collect();
        assert_eq!(labels.len(), usize::from(count));
        let indices: BTreeSet<u8> = labels.iter().map(|label| label.flow(bits)).collect();
        assert_eq!(indices, (0..count).collect());
        let entropies: BTreeSet<u32> = labels.iter().map(|label| label.get() >> bits).collect();
        assert_eq!(entropies.len(), usize::from(count), "labels differ only in the index");
    }
}

#[test]
fn f24_a_moved_flow_keeps_its_index_and_moves_its_acknowledgements() {
    let mut link = Link::new(flows("largest-window", 4), Box::new(|_, _, _: &_| after(DELAY)));
    let before = link.ends[0].delivery.label(2);
    link.ends[0].delivery.apply(2, &ControlSettings { label: Some(0x1234), ..Default::default() });
    let moved = link.ends[0].delivery.label(2);
    assert!(moved != before && moved.flow(2) == 2);
    link.ends[0].upper.pushes(40);
    link.run_for(micros(200));
    assert!(link.ends[0].log.iter().any(|(_, departure)| departure.label == moved));
    assert!(link.ends[1].log.iter().any(|(_, answer)| answer.label == moved));
    assert!(link.ends[1].log.iter().all(|(_, answer)| answer.label != before));
}

/// On sockets, the low four bits of a label, including the flow index, determine the UDP source port of packets.
#[test]
fn f30_a_moved_flow_changes_its_path_even_if_there_are_few() {
    let (_, first) = Inline::new("swift", &[]);
    for (count, bits) in [(1u8, 0), (2, 1), (4, 2), (8, 3)] {
        let mut link = Link::new(flows("spray", count), Box::new(|_, _, _: &_| after(DELAY)));
        let delivery = &mut link.ends[0].delivery;
        for flow in (0..count).cycle().take(100) {
            let before = delivery.label(flow);
            delivery.apply_response(flow, &FlowActions { repath: true, ..first });
            let moved = delivery.label(flow);
            assert_eq!(moved.flow(bits), before.flow(bits));
            assert_ne!(moved.get() & 15, before.get() & 15, "{count} flows, flow {flow}");
        }
    }
}

#[test]
fn f25_the_sum_of_the_windows_limits_and_a_single_flow_may_exceed_its_own() {
    let mut link = Link::new(flows("spray", 4), Box::new(|_, from, _: &_| if from == 1 { LOST } else { after(DELAY) }));
    set_windows(&mut link, [1, 1, 1, 29]);
    assert_eq!(link.ends[0].delivery.fcwnd(), Cwnd::packets(32));
    link.ends[0].upper.pushes(200);
    link.run_for(micros(100));
    let delivery = &link.ends[0].delivery;
    assert_eq!(delivery.span(Window::Data), 32);
    assert_eq!([0, 1, 2, 3].map(|flow| delivery.outstanding_on(flow)), [8, 8, 8, 8]);
}

/// As in the specification, the sum of the flows' windows limits each of the two sequence spaces, so twice that many
/// packets may be in flight; a flow's unacknowledged packets are counted over both.
#[test]
fn f16_f25_the_sum_of_the_windows_limits_each_sequence_space() {
    let (mut delivery, mut upper) = (Delivery::new(flows("spray", 4)), Counting::new());
    for number in 0..100 {
        upper.pull();
        upper.pull_data(Serial::new(number));
    }
    while delivery.transmit(Time::from_us(1_000), &mut upper).is_some() {}
    let each = delivery.fcwnd().whole_packets();
    assert_eq!([Window::Request, Window::Data].map(|window| delivery.span(window)), [each, each]);
    assert_eq!((0..4).map(|flow| u64::from(delivery.outstanding_on(flow))).sum::<u64>(), 2 * each);
}

#[test]
fn f26_probe9_every_packet_uses_the_flow_with_the_largest_open_window() {
    let windows = [10, 6, 4, 12];
    let rule = |_, from, _: &_| if from == 1 { LOST } else { after(DELAY) };
    let mut link = Link::new(flows("largest-window", 4), Box::new(rule));
    set_windows(&mut link, windows);
    link.ends[0].upper.pushes(32);
    link.run_for(micros(100));
    let mut open = windows.map(|window| window as i64);
    for (number, (_, departure)) in link.ends[0].log.iter().enumerate() {
        let chosen = flow(departure);
        assert_eq!(open[chosen], *open.iter().max().expect("it has four flows"), "packet {number} of {open:?}");
        open[chosen] -= 1;
    }
    assert_eq!(open, [0, 0, 0, 0], "a window is not full");
}

/// With the `weighted` policy, the share of packets on each flow equals its share in the sum of the windows, also
/// after windows change. Other policies use windows differently or not at all.
#[test]
fn weighted_flows_send_in_proportion_to_their_windows() {
    let mut link = Link::new(flows("weighted", 4), Box::new(|_, _, _: &_| after(DELAY)));
    let mut before = 0;
    for windows in [[60, 20, 8, 12], [10, 10, 70, 10], [25, 25, 25, 25]] {
        set_windows(&mut link, windows);
        link.ends[0].upper.pushes(4_000);
        link.run_for(Duration::from_ms(50));
        assert!(link.ends[0].upper.all_acked());
        let mut counts = [0; 4];
        link.ends[0].log[before..]
            .iter()
            .filter(|(_, left)| !left.is_retransmission)
            .for_each(|(_, left)| counts[flow(left)] += 1);
        before = link.ends[0].log.len();
        let total: u64 = windows.iter().sum();
        for (count, window) in counts.into_iter().zip(windows) {
            let (share, expected) = (f64::from(count) / 4_000.0, window as f64 / total as f64);
            assert!((share - expected).abs() < 0.02, "{counts:?} for {windows:?}");
        }
    }
}

/// The same while acknowledgements arrive and windows change: the next packet always takes the flow whose window
/// minus its unacknowledged packets is largest.
#[test]
fn f26_probe9_open_windows_are_compared_for_every_packet() {
    let mut random = RandomStreams::new(26).stream("windows");
    let (mut delivery, mut upper) = (Delivery::new(flows("largest-window", 4)), Counting::new());
    upper.pushes(4_000);
    let (mut now, mut acknowledged, mut sent) = (Time::from_us(1_000), 0, 0);
    let mut used = [0; 4];
    while sent < 4_000 {
        now += micros(1);
        match random.below(3) {
            0 => {
                // From a thirty-second of a packet to eight packets, most of them below one, in steps of the
                // resolution at which windows are compared.
                let most = 1 << (10 + random.below(10));
                let fcwnd = Some(Cwnd::from_fixed(2_048 + random.below(most) / 256 * 256));
                delivery.apply(random.below(4) as u8, &ControlSettings { fcwnd, ..Default::default() });
            }
            1 => {
                acknowledged += random.below(u64::from(sent - acknowledged) + 1) as u32;
                give(&mut delivery, &mut upper, now, ack(0, acknowledged, now - micros(1), now));
            }
            _ => {}
        }
        let left = |flow: FlowView| flow.fcwnd.fixed() as i64 - (i64::from(flow.outstanding) << 16);
        let open: Vec<i64> = delivery.flows().map(left).collect();
        let Some(departure) = delivery.transmit(now, &mut upper).filter(|departure| !departure.is_retransmission)
        else {
            continue;
        };
        assert_eq!(open[flow(&departure)], *open.iter().max().expect("it has four flows"), "packet {sent} of {open:?}");
        used[flow(&departure)] += 1;
        sent += 1;
    }
    assert!(used.iter().all(|packets| *packets > 500), "{used:?}");
}

#[test]
fn f26_ties_are_broken_round_robin_and_a_slow_path_gets_fewer_packets() {
    let slow = |factor: u64| {
        let rule = move |_, _, departure: &Departure| {
            after(if flow(departure) == 2 { DELAY.saturating_mul(factor) } else { DELAY })
        };
        let mut link = Link::new(flows("largest-window", 4), Box::new(rule));
        link.ends[0].upper.pushes(4_000);
        link.run_for(Duration::from_ms(50));
        assert!(link.ends[0].upper.all_acked());
        let share = link.ends[0].log.iter().filter(|(_, departure)| flow(departure) == 2).count();
        (share, link.ends[0].delivery.counters())
    };
    let (even, _) = slow(1);
    assert!((990..=1_010).contains(&even), "{even} of 4000 on one of four equal paths");
    let (uneven, counters) = slow(5);
    // Windows remain equal here, as there is no adaptive engine; with one, the window of the slow path would shrink
    // too.
    assert!(uneven < 800, "{uneven} of 4000 on a path of five times the delay");
    assert_eq!(counters.timeouts, 0);
    // One packet at a time: all windows are equally open, and flows alternate.
    let mut link = Link::new(flows("largest-window", 4), Box::new(|_, _, _: &_| after(DELAY)));
    for _ in 0..8 {
        link.ends[0].upper.push();
        link.run_for(micros(50));
    }
    let order: Vec<usize> = link.ends[0].log.iter().map(|(_, departure)| flow(departure)).collect();
    assert_eq!(order[..4].iter().collect::<BTreeSet<_>>().len(), 4, "{order:?}");
    assert_eq!(order[..4], order[4..]);
}

#[test]
fn f27_an_acknowledgement_echoes_the_latest_packet_of_its_own_flow() {
    let rule = |_, _, departure: &Departure| after(DELAY.saturating_mul(1 + flow(departure) as u64));
    let mut link = Link::new(flows("spray", 4), Box::new(rule));
    link.ends[0].upper.pushes(400);
    link.run_for(Duration::from_ms(5));
    let mut checked = [0; 4];
    for (at, answer) in &link.ends[1].log {
        let (Body::Ack(told) | Body::ExtendedAck(told, _)) = answer.packet.body else { continue };
        let index = flow(answer);
        let delay = DELAY.saturating_mul(1 + index as u64);
        // The last packet of this flow that had arrived when the acknowledgement left.
        let latest = link.ends[0].log.iter().rfind(|(sent, packet)| flow(packet) == index && *sent + delay <= *at);
        let (sent, _) = latest.expect("a packet arrived on this flow");
        assert_eq!((told.t1, told.t2), (Timestamp::at(*sent), Timestamp::at(*sent + delay)), "flow {index}");
        checked[index] += 1;
    }
    assert!(checked.iter().all(|count| *count > 50), "{checked:?}");
}

/// A packet that the upper layer acknowledges late is acknowledged on its own flow, and echoes the timestamps of its
/// arrival. The time in the upper layer is not part of the path's delay: windows below one packet would be paced by
/// it, a hundred times too slowly.
#[test]
fn f17_f27_a_late_acknowledgement_does_not_change_the_measured_round_trip() {
    let wait = Duration::from_ms(2);
    let mut link = Link::new(flows("spray", 2), Box::new(|_, _, _: &_| after(DELAY)));
    link.ends[1].upper.acknowledging = Acknowledging::After(wait);
    link.ends[0].upper.pushes(2);
    link.run_for(wait.saturating_mul(2));
    assert!(link.ends[0].upper.all_acked());
    let reports = &link.ends[0].signals;
    let late = reports.iter().filter(|report| report.t4.since(reports[0].t4).duration() > wait.saturating_mul(9) / 10);
    assert_eq!(late.clone().map(|report| report.acked).sum::<u16>(), 2, "{reports:?}");
    let soon = DELAY.saturating_mul(4);
    for report in late {
        assert!(report.rtt().duration() < soon, "{report:?}");
        assert!(report.delay().get().abs_diff(reports[0].delay().get()) <= 2, "different delay: {report:?}");
    }
    let round_trips: Vec<_> = link.ends[0].delivery.flows().map(|flow| flow.round_trip).collect();
    assert!(round_trips.iter().all(|measured| measured.is_some_and(|rtt| rtt < soon)), "{round_trips:?}");
}

#[test]
fn f28_probe9_acknowledged_packets_count_for_the_flow_that_they_were_sent_on() {
    // Flow 3's acknowledgements are lost: others acknowledge its packets.
    let rule = |_, from, departure: &Departure| {
        if from == 1 && flow(departure) == 3 { LOST } else { after(DELAY) }
    };
    let mut config = flows("scatter", 4);
    config.ack_request = AckRequestRule::DEFAULT;
    let mut link = Link::new(config, Box::new(rule));
    link.ends[0].upper.pushes(2_000);
    link.run_for(Duration::from_ms(20));
    assert!(link.ends[0].upper.all_acked());
    let end = &link.ends[0];
    for index in 0..4u8 {
        let sent = end.log.iter().filter(|(_, d)| !d.is_retransmission && flow(d) == usize::from(index)).count() as u64;
        let told: u64 = end.signals.iter().filter(|signal| signal.flow == index).map(|s| u64::from(s.acked)).sum();
        let unreported = u64::from(end.delivery.unreported_on(index));
        assert_eq!(told + unreported, sent, "flow {index}");
        assert_eq!(end.delivery.outstanding_on(index), 0);
    }
    assert!(end.signals.iter().all(|signal| signal.flow != 3 || signal.kind != ReportKind::Acked));
}

/// Path `slow` has five times the delay of the other.
fn two_paths(departure: &Departure, slow: u8) -> Duration {
    if departure.label.flow(1) == slow { DELAY.saturating_mul(5) } else { DELAY }
}

/// Checks that the counters of each flow agree with the log, and that the slow one has the longer round trip.
fn assert_flows_add_up<U>(end: &End<U>, slow: u8) {
    let views: Vec<_> = end.delivery.flows().collect();
    for (index, view) in views.iter().enumerate() {
        let is_data = |departure: &Departure| departure.packet.body.psn().is_some();
        let on = |departure: &Departure| is_data(departure) && usize::from(departure.label.flow(1)) == index;
        let left = end.log.iter().filter(|(_, departure)| on(departure)).count();
        assert_eq!(
            view.counters,
            FlowCounters { sent: left as u64, retransmitted_packets: 0, moves: 0 },
            "flow {index}"
        );
        assert_eq!((view.label, view.outstanding), (end.delivery.label(index as u8), 0));
    }
    let [fast, slow] = [1 - slow, slow].map(|flow| views[usize::from(flow)].round_trip.expect("it has a round trip"));
    assert!(slow > fast.saturating_mul(3), "{slow}, and {fast} on the fast path");
}

#[test]
fn f29_paths_of_different_delay_cause_no_retransmission() {
    for (paths, slow) in [("largest-window", 1), ("spray", 1), ("scatter", 1), ("spray", 0)] {
        let rule = move |_, _, departure: &Departure| after(two_paths(departure, slow));
        let mut link = Link::new(flows(paths, 2), Box::new(rule));
        link.ends[0].upper.pushes(5_000);
        link.run_for(Duration::from_ms(100));
        let end = &link.ends[0];
        assert!(end.upper.all_acked(), "{paths}");
        assert_eq!(end.left_again(), 0, "{paths}: {:?}", end.delivery.counters());
        assert_flows_add_up(end, slow);
        let extended = link.ends[1].delivery.counters().extended_acks_sent;
        assert!(extended > 100, "{paths}: only {extended} acknowledgements report a gap");
    }
}

#[test]
fn f29_acknowledgements_on_another_path_reveal_a_loss() {
    // All acknowledgements on path 0 are lost, and one of its packets.
    let rule = |_, from, departure: &Departure| {
        let on_first = departure.label.flow(1) == 0;
        let number = departure.packet.body.psn().map_or(0, |psn| psn.value());
        let lost = on_first && (from == 1 || !departure.is_retransmission && (100..102).contains(&number));
        if lost { LOST } else { after(DELAY) }
    };
    let mut config = flows("spray", 2);
    (config.fcwnd, config.ncwnd) = (Cwnd::packets(128), 128);
    let mut link = Link::new(config, Box::new(rule));
    link.packet_time = Duration::from_ns(200);
    link.ends[0].upper.pushes(1_000);
    link.run_for(micros(900));
    let counters = link.ends[0].delivery.counters();
    assert!(link.ends[0].upper.all_acked());
    assert_eq!((counters.timeouts, counters.retransmitted_early), (0, 1));
    let again_by_flow: Vec<_> = link.ends[0].delivery.flows().map(|flow| flow.counters.retransmitted_packets).collect();
    assert_eq!(again_by_flow[1], 0, "no packet was lost on path 1");
    assert!(again_by_flow[0] > 0);
    let retransmissions: Vec<_> =
        link.ends[0].log.iter().filter(|(_, departure)| departure.is_retransmission).collect();
    assert!(retransmissions.iter().all(|(_, departure)| departure.label.flow(1) == 0), "retransmitted on another flow");
    assert!(link.ends[0].left(PacketType::PushData).len() <= 1_002, "{counters:?}");
}
