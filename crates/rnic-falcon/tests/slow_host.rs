//! Both layers and the adaptive engine, with receive buffers that fill: a host that processes less than the network
//! delivers (F-18), and buffers smaller than the packets that wait for lost ones (F-37).

mod two_ends;

use rnic_base::{BitRate, Duration, RandomStreams};
use rnic_falcon::delivery::{ControlSettings, Departure};
use rnic_falcon::resources::{Amount, ResourceConfig, ResourcePart};
use rnic_policy::Cwnd;
use rnic_policy::control::report::FlowReport;
use rnic_policy::falcon::FalconShape;
use two_ends::host::{Host, LENGTH};
use two_ends::link::{Inline, LOST, Link, after};
use two_ends::{config_of, micros};

const DELAY: Duration = Duration::from_us(5);

/// Transmission time of 4 KB at 200 Gbit/s.
const PACKET: Duration = Duration::from_ns(164);

/// A NIC with room for this many packets of requests from the peer.
fn room_for(packets: u32) -> ResourceConfig {
    let mut resources = ResourceConfig::GBPS_200;
    let buffers = packets * u32::from(LENGTH) / resources.units.rx;
    resources.capacity[ResourcePart::RequestRx as usize] = Amount { packets, buffers };
    resources.zones.green = Amount { packets: packets * 19 / 20, buffers: buffers * 19 / 20 };
    resources
}

/// A sender with an endless workload, and a receiver with room for 128 packets.
fn endless() -> Link<'static, Host> {
    let hosts = [Host::sending(u64::MAX, ResourceConfig::GBPS_200), Host::sending(0, room_for(128))];
    let mut link = Link::of(hosts, config_of("rack-tlp", "ecmp"), Box::new(|_, _, _: &_| after(DELAY)));
    link.packet_time = PACKET;
    link.ends.iter_mut().for_each(|end| end.keeps_log = false);
    link
}

fn adaptive(mut link: Link<'static, Host>) -> Link<'static, Host> {
    let (swift, first) = Inline::new("swift", &[]);
    link.ends[0].control = Some(swift);
    link.ends[0].delivery.apply_response(0, &first);
    link
}

/// Fixes the windows, so that nothing reduces them.
fn blind(mut link: Link<'static, Host>) -> Link<'static, Host> {
    let windows = ControlSettings { fcwnd: Some(Cwnd::packets(256)), ncwnd: Some(256), ..Default::default() };
    link.ends[0].delivery.apply(0, &windows);
    link
}

#[test]
fn f18_a_slow_host_reduces_ncwnd_instead_of_dropping_packets() {
    // From 3 ms on, the host processes half of what the network can deliver. The measurement covers 4 ms to 8 ms.
    let slow = |mut link: Link<'static, Host>| {
        let ncwnd = |link: &Link<'static, Host>| link.ends[0].signals.last().map(|signal| signal.in_force.ncwnd);
        let counts = |link: &Link<'static, Host>| {
            let counters = link.ends[1].delivery.counters();
            (link.ends[1].upper.load.taken.len() as u64, counters.nacks_sent + counters.out_of_window)
        };
        link.run_for(Duration::from_ms(3));
        let open = ncwnd(&link);
        link.ends[1].upper.load.service = PACKET.saturating_mul(2);
        link.run_for(Duration::from_ms(1));
        let (taken, dropped) = counts(&link);
        link.run_for(Duration::from_ms(4));
        let (taken_then, dropped_then) = counts(&link);
        let fullest = link.ends[0].signals.iter().map(|signal| signal.rx_level).max();
        (taken_then - taken, dropped_then - dropped, fullest, open, ncwnd(&link))
    };
    let could = Duration::from_ms(4).as_ps() / PACKET.saturating_mul(2).as_ps();

    let (taken, dropped, fullest, open, closed) = slow(adaptive(endless()));
    assert!(taken * 100 >= could * 95, "{taken} of {could} that the host could process");
    assert!(fullest >= Some(15) && closed < open.map(|open| open / 2), "level {fullest:?}, ncwnd {open:?}, {closed:?}");
    assert!(dropped * 1_000 <= taken, "{dropped} packets were dropped");

    let (taken, dropped, ..) = slow(blind(endless()));
    assert!(dropped * 4 >= taken, "without ncwnd only {dropped} packets were dropped, {taken} accepted");
}

/// The other way that buffers fill: on an ordered connection, packets that arrive after a lost one wait there for it.
#[test]
fn f18_packets_that_wait_for_lost_ones_reduce_ncwnd() {
    let run = |lost: u64, steered: bool| {
        let mut random = RandomStreams::new(6).stream("losses");
        let rule = move |_, from, departure: &Departure| {
            let is_lost = from == 0 && departure.context.is_some() && lost > 0 && random.below(lost) == 0;
            if is_lost { LOST } else { after(DELAY) }
        };
        let hosts = [Host::sending(u64::MAX, ResourceConfig::GBPS_200), Host::sending(0, room_for(128))];
        let mut config = config_of("rack-tlp", "ecmp");
        config.data_window = 512;
        let link = Link::of(hosts, config, Box::new(rule));
        let mut link = if steered { adaptive(link) } else { blind(link) };
        link.packet_time = PACKET;
        link.ends.iter_mut().for_each(|end| end.keeps_log = false);
        link.run_for(Duration::from_ms(8));
        let signals = &link.ends[0].signals;
        let late = signals.len() / 2..signals.len();
        let mean = |of: fn(&FlowReport) -> u64| {
            signals[late.clone()].iter().map(of).sum::<u64>() as f64 / late.len().max(1) as f64
        };
        let counters = link.ends[1].delivery.counters();
        let refused = counters.nacks_sent + counters.out_of_window;
        let taken = link.ends[1].upper.load.taken.len();
        (mean(|of| of.rx_level.into()), mean(|of| of.in_force.ncwnd.into()), refused as f64 / taken as f64)
    };
    let (clean, lossy, blind) = (run(0, true), run(100, true), run(100, false));
    let said = format!("level, ncwnd, refused of taken: {clean:?} without losses, {lossy:?} with, {blind:?} blind");
    assert_eq!(clean.0, 0.0, "{said}");
    assert!(lossy.0 > 1.0 && lossy.1 < clean.1 / 2.0, "ncwnd was not reduced: {said}");
    assert!(blind.2 > 1e-3 && lossy.2 < blind.2 / 10.0, "too many packets were refused: {said}");
}

/// Microseconds until 20,000 Pushes are complete, when one packet in `lost` is lost and there is room for `packets`.
fn time_to_finish(packets: u32, lost: u64) -> u64 {
    const PUSHES: u64 = 20_000;
    let hosts = [Host::sending(PUSHES, ResourceConfig::GBPS_200), Host::sending(0, room_for(packets))];
    let mut random = RandomStreams::new(5).stream("losses");
    let rule = move |_, from, departure: &Departure| {
        let is_lost = from == 0 && departure.context.is_some() && random.below(lost) == 0;
        if is_lost { LOST } else { after(DELAY) }
    };
    let mut config = config_of("rack-tlp", "ecmp");
    (config.fcwnd, config.data_window) = (Cwnd::packets(256), 512);
    let mut link = adaptive(Link::of(hosts, config, Box::new(rule)));
    link.packet_time = PACKET;
    link.ends.iter_mut().for_each(|end| end.keeps_log = false);
    let start = link.now;
    while link.ends[0].upper.load.completed < PUSHES {
        link.run_for(micros(100));
        assert!(link.now.since(start) < Duration::from_secs(2), "buffers for {packets} packets: it does not end");
    }
    assert!(link.ends[1].upper.load.taken.iter().map(|rsn| u64::from(rsn.value())).eq(0..PUSHES), "not once in order");
    link.now.since(start).as_ns() / 1_000
}

/// 50 us at 200 Gbit/s are 1.25 MB (paper, section 5.2). The resources of connections are `resources` percent of
/// those of the public simulator's NIC, with receive buffers of 2.1 MB for responses and 2.9 MB for requests.
#[test]
fn f37_receive_buffers_hold_one_to_three_bandwidth_delay_products() {
    for (gbps, resources_percent) in [(200, 100), (400, 200), (800, 400)] {
        let resources = ResourceConfig::of(&FalconShape { resources_percent, ..FalconShape::DEFAULT });
        let product = BitRate::gbps(gbps).bytes_in(micros(50));
        for part in [ResourcePart::ResponseRx, ResourcePart::RequestRx] {
            let capacity = resources.capacity[part as usize];
            let bytes = u64::from(capacity.buffers) * u64::from(resources.units.rx);
            assert!((product..3 * product).contains(&bytes), "{part:?}: {bytes} bytes at {gbps} Gbit/s");
            let packets = u64::from(capacity.packets) * u64::from(LENGTH);
            assert!(packets >= product, "{part:?}: contexts of {packets} bytes at {gbps} Gbit/s");
        }
        let room = resources.capacity[ResourcePart::RequestRx as usize];
        assert!(room.covers(resources.zones.green) && resources.zones.green.buffers * 10 > room.buffers * 9);
    }
}

#[test]
fn f37_buffers_smaller_than_the_backlog_slow_connections_down_without_a_deadlock() {
    // 10 us at 200 Gbit/s are 61 packets, and a loss is repaired after 12.5 us; the buffers hold that, half of it and
    // so on.
    let full = time_to_finish(80, 200);
    let mut before = full;
    for halvings in 1..=4 {
        let halved = time_to_finish(80 >> halvings, 200);
        assert!(halved < before * 5 / 2, "buffers for {} packets: {halved} us after {before}", 80 >> halvings);
        before = halved;
    }
    assert!(before > full * 3 / 2, "small buffers are not slower: {before} us instead of {full}");
}
