//! Windows, rates and tokens.

use rnic_program::interface::rate;
use rnic_tonic::{FlowSetup, Input, Packet, SegmentId, Tonic};

use crate::network::{Conditions, Network, flows, template};
use crate::programs::{granted::Granted, rated::Rated};

const FIRST: SegmentId = SegmentId::new(0xFF_FE00);

/// A template with one flow that sends at `bps` bits per second, and a network that acknowledges everything.
fn at_rate(bps: u64, segment_bytes: u16, segments: u32) -> (Tonic, Network) {
    let mut tonic = template(flows(1), &Rated, &[rate(bps), 0, 0]);
    tonic.add_flow(0, FlowSetup { first: FIRST, segment_bytes }).expect("the flow exists");
    tonic.set_limit(0, FIRST.plus(segments), 0).expect("the flow exists");
    let mut network = Network::new(15, 1, Conditions { delay: 30, ..Conditions::default() });
    network.expect(0, FIRST);
    (tonic, network)
}

/// Returns cycles and segments from the segment `skip` to the last.
fn span(network: &Network, skip: usize) -> (u64, u64) {
    let (first, last) = (network.left[skip].0, network.left.last().expect("the template is well formed").0);
    (last - first, (network.left.len() - 1 - skip) as u64)
}

#[test]
fn t15_t20_twenty_gigabit_send_1500_bytes_each_60_cycles() {
    let (mut tonic, mut network) = at_rate(20_000_000_000, 1_500, 2_000);
    network.run(&mut tonic, 130_000, |_, _| {});
    assert_eq!(network.left.len(), 2_000);
    let steady = &network.left[8..];
    let gaps: Vec<_> = steady.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.iter().all(|gap| *gap == 60), "{:?}", &gaps[..20]);
}

#[test]
fn t15_t20_the_long_run_rate_is_exact_from_1_megabit_to_100_gigabit() {
    for (bps, bytes, segments) in [
        (1_000_000, 1_500, 400),
        (1_000_000, 100, 4_000),
        (10_000_000, 1_500, 1_000),
        (123_456_789, 1_000, 400),
        (1_000_000_000, 9_000, 400),
        (1_000_000_000, 64, 8_000),
        (10_000_000_000, 1_500, 4_000),
        (40_000_000_000, 4_096, 4_000),
        (100_000_000_000, 1_500, 20_000),
        (100_000_000_000, 256, 40_000),
        (100_000_000_000, 128, 80_000),
    ] {
        let (mut tonic, mut network) = at_rate(bps, bytes, segments);
        network.run_lazily(&mut tonic, 600_000_000);
        assert_eq!(network.left.len(), segments as usize, "{bps} bit/s");
        // The first segments are the burst that the credit of a new flow allows.
        let (cycles, sent) = span(&network, 16);
        // Against the rate in its units; that these are within a thousandth of the wanted one is tested with them.
        let expected = rate(bps) * cycles;
        let measured = sent * u64::from(bytes) * 65_536;
        let error = measured.abs_diff(expected) * 100_000 / expected;
        assert!(error < 100, "{bps} bit/s with {bytes} B: {sent} segments in {cycles} cycles, error {error} / 100000");
    }
}

#[test]
fn t15_19_9_gigabit_are_exact_to_a_hundredth_of_a_percent() {
    let (mut tonic, mut network) = at_rate(19_900_000_000, 1_500, 100_100);
    network.run_lazily(&mut tonic, 7_000_000);
    assert_eq!(network.left.len(), 100_100);
    let (cycles, sent) = span(&network, 99);
    // Against the rate as it is said in units of 12,207.03125 bit/s.
    let said = u128::from(rate(19_900_000_000));
    let measured = u128::from(sent) * 1_500 * 65_536;
    let expected = said * u128::from(cycles);
    assert!(measured.abs_diff(expected) * 10_000 < expected, "{measured} against {expected}");
}

#[test]
fn t14_t15_a_rate_and_its_burst_bound_every_interval() {
    let bps = 7_300_000_000;
    let count = 5;
    let mut tonic = template(flows(count), &Rated, &[rate(bps), 0, 300]);
    let conditions = Conditions { loss: 10, jitter: 50, has_nacks: true, ..Conditions::default() };
    let mut network = Network::new(14, count, conditions);
    for flow in 0..count {
        tonic.add_flow(flow, FlowSetup { first: FIRST, segment_bytes: 900 }).unwrap();
        tonic.set_limit(flow, FIRST.plus(400_000), 0).unwrap();
        network.expect(flow, FIRST);
    }
    network.run(&mut tonic, 1_000_000, |_, _| {});
    let unit = rate(bps);
    for flow in 0..count {
        // A bucket that fills at the rate and holds the burst of four segments: it never runs dry. Addresses leave up
        // to three cycles after their credit was counted, in order.
        let burst = 4 * 900 * 65_536;
        let (mut level, mut last) = (burst, 0);
        let mut sent = 0_u64;
        for (cycle, _) in network.left.iter().filter(|(_, address)| address.flow == flow) {
            level = burst.min(level + (cycle - last) * unit);
            assert!(level >= 900 * 65_536, "flow {flow}, cycle {cycle}");
            (level, last) = (level - 900 * 65_536, *cycle);
            sent += 900;
        }
        let share = sent * 65_536 * 100 / (unit * 1_000_000);
        assert!(share >= 99, "flow {flow} uses {share} % of its rate");
    }
}

#[test]
fn t7_t15_a_short_last_segment_costs_its_own_length() {
    let (mut tonic, mut network) = at_rate(8_000_000_000, 1_000, 40);
    network.run(&mut tonic, 10_000, |_, _| {});
    tonic.set_limit(0, FIRST.plus(50), 100).unwrap();
    let at = network.left.len();
    network.run(&mut tonic, 20_000, |_, _| {});
    tonic.set_limit(0, FIRST.plus(52), 0).unwrap();
    network.run(&mut tonic, 30_000, |_, _| {});
    // Ten bytes a cycle: 100 cycles for each segment, 10 for the short one, after a burst of four.
    let gaps: Vec<_> = network.left[at..at + 10].windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps[4..8].iter().all(|gap| *gap == 100), "{gaps:?}");
    assert_eq!(gaps[8], 10, "{gaps:?}");
    assert_eq!(network.left.len(), 52);
}

#[test]
fn t15_a_rate_that_changes_takes_effect() {
    let (mut tonic, mut network) = at_rate(20_000_000_000, 1_500, 4_000);
    network.run(&mut tonic, 12_000, |_, _| {});
    let cnp = Packet { cnp: true, ..Packet::default() };
    tonic.step(&Input { packet: Some((0, cnp)), is_blocked: false });
    assert_eq!(tonic.flow(0).unwrap().rate, rate(20_000_000_000) as u32);
    network.run(&mut tonic, 13_000, |_, _| {});
    assert_eq!(tonic.flow(0).unwrap().rate, rate(20_000_000_000) as u32 / 2);
    let before = network.left.len();
    network.run(&mut tonic, 25_000, |_, _| {});
    assert_eq!(network.left.len() - before, 100, "one each 120 cycles");
}

#[test]
fn t14_t16_what_leaves_is_bounded_by_grants_and_timeouts() {
    let count = 4;
    let mut tonic = template(flows(count), &Granted, &[120]);
    let conditions =
        Conditions { loss: 12, trims: 12, ack_loss: 24, jitter: 40, has_grants: true, ..Conditions::default() };
    let mut network = Network::new(16, count, conditions);
    for flow in 0..count {
        tonic.add_flow(flow, FlowSetup { first: FIRST, segment_bytes: 900 }).unwrap();
        tonic.set_limit(flow, FIRST.plus(400_000), 0).unwrap();
        network.expect(flow, FIRST);
    }
    network.run(&mut tonic, 400_000, |_, _| {});
    let arrived = (0..count).map(|flow| u64::from(FIRST.value().abs_diff(network.expected(flow).value()) & 0xFF_FFFF));
    assert!(arrived.sum::<u64>() > 2_000);
    let (delivery, _) = tonic.counters();
    // Every arrival grants one; a timeout grants what it marks, which is repeated at most once each.
    let left = network.left.len() as u64;
    assert!(delivery.timeouts > 20 && left > 4_000);
    assert!(left <= 16 * u64::from(count) + left * 232 / 256 + delivery.repeats, "{left}, {delivery:?}");
}

#[test]
fn t16_without_grants_sixteen_segments_leave_and_after_a_timeout_those_that_it_marks() {
    let mut tonic = template(flows(1), &Granted, &[100]);
    tonic.add_flow(0, FlowSetup { first: FIRST, segment_bytes: 900 }).unwrap();
    tonic.set_limit(0, FIRST.plus(1_000), 0).unwrap();
    let mut left = Vec::new();
    let mut run = |tonic: &mut Tonic, cycles: u64, packet: Option<(u16, Packet)>| {
        let mut count = 0;
        for cycle in 0..cycles {
            let input = Input { packet: packet.filter(|_| cycle == 0), is_blocked: false };
            if let Some(address) = tonic.step(&input) {
                left.push(address);
                count += 1;
            }
        }
        count
    };
    assert_eq!(run(&mut tonic, 1_500, None), 16, "the first window");
    let generated = tonic.flow(0).unwrap().total_sent.value();
    assert_eq!(generated, 16 + 11, "eleven more wait in the ring");
    // The timer of 1600 cycles expires once: 27 segments are marked, and as many may leave.
    assert_eq!(run(&mut tonic, 1_200, None), 27);
    // A pull that arrives says how many were granted in total: lost ones are made up for.
    let grant = Packet { ack: true, cum: FIRST, grant: Some(SegmentId::new(5)), ..Packet::default() };
    let before = tonic.counters().0.timeouts;
    assert_eq!(run(&mut tonic, 100, Some((0, grant))), 5);
    assert_eq!(tonic.counters().0.timeouts, before);
    let stale = Packet { grant: Some(SegmentId::new(3)), ..grant };
    assert_eq!(run(&mut tonic, 100, Some((0, stale))), 0, "an older total grants nothing");
    let wild = Packet { grant: Some(SegmentId::new(5 + (1 << 13))), ..grant };
    assert_eq!(run(&mut tonic, 100, Some((0, wild))), 0, "nor does one that no receiver can mean");
    assert!(left[..16].iter().all(|address| address.times_sent == 0));
    assert!(left[27..43].iter().all(|address| address.times_sent == 1), "{:?}", &left[16..43]);
}
