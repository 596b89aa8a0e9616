//! Flows, windows, sets and visits.

use rnic_program::{Fields as _, Transport};
use rnic_tonic::{
    Address, FlowId, FlowSetup, Input, Installed, Packet, Priorities, Refused, SegmentId, Sizes, Ticks, Tonic,
};

use crate::network::{Conditions, LINK, Network, flows, open, template};
use crate::programs::{adapt::Adapt, granted::Granted, rated::Rated, repeat::Repeat, spy::Spy};

/// Runs `cycles` cycles without packets; returns what leaves, with its cycle.
fn run(tonic: &mut Tonic, cycles: u64) -> Vec<(u64, Address)> {
    let end = tonic.now() + cycles;
    let mut left = Vec::new();
    while tonic.now() < end {
        let cycle = tonic.now();
        left.extend(tonic.step(&Input::default()).map(|address| (cycle, address)));
    }
    left
}

fn blocked(tonic: &mut Tonic, cycles: u64) {
    for _ in 0..cycles {
        tonic.step(&Input { is_blocked: true, packet: None });
    }
}

#[test]
fn t1_addresses_cross_the_wrap_of_ids_and_all_segments_are_delivered() {
    for loss in [0, 20] {
        let first = SegmentId::new(0xFF_FFF0);
        let mut tonic = template(flows(1), &Repeat, &[64, 500]);
        open(&mut tonic, 0, first, 64);
        let conditions = Conditions { loss, has_nacks: true, ..Conditions::default() };
        let mut network = Network::new(1, 1, conditions);
        network.expect(0, first);
        network.run(&mut tonic, 100_000, |_, _| {});
        let flow = tonic.flow(0).unwrap();
        assert_eq!((flow.start, flow.next, flow.limit), (first.plus(64), first.plus(64), SegmentId::new(0x30)));
        assert_eq!(network.expected(0), first.plus(64));
        let new = network.left.iter().filter(|(_, address)| address.times_sent == 0);
        let ids: Vec<_> = new.map(|(_, address)| address.segment.value()).collect();
        assert_eq!(ids, (0..64).map(|offset| first.plus(offset).value()).collect::<Vec<_>>(), "in order, each once");
    }
}

#[test]
fn t2_the_engines_share_wires_only() {
    let delivery = [
        include_str!("../../src/dd.rs"),
        include_str!("../../src/dd/merge.rs"),
        include_str!("../../src/dd/generate.rs"),
    ];
    let credit =
        [include_str!("../../src/cr.rs"), include_str!("../../src/cr/merge.rs"), include_str!("../../src/cr/wheel.rs")];
    for (sources, other, groups) in
        [(delivery, "crate::cr", ["Ring,", "Credit,"]), (credit, "crate::dd", ["Window,", "Duty,"])]
    {
        for source in sources {
            let code = source.split("#[cfg(test)]").next().unwrap();
            assert!(!code.contains(other), "{other} is used");
            let uses = code.lines().filter(|line| line.starts_with("use crate::state"));
            assert!(uses.into_iter().all(|line| groups.iter().all(|group| !line.contains(group))), "{groups:?}");
        }
    }
}

#[test]
fn t3_with_blocked_credit_eleven_addresses_wait_and_never_more_than_the_ring() {
    let mut tonic = template(flows(2), &Repeat, &[128, 0]);
    open(&mut tonic, 0, SegmentId::new(7), 100_000);
    blocked(&mut tonic, 60);
    let mut most = 0;
    for cycle in 0..1_000_000_u64 {
        let outstanding = tonic.flow(0).unwrap().outstanding;
        most = most.max(outstanding);
        assert!(outstanding <= 16, "cycle {cycle}");
        // One address in 23 cycles leaves, and is acknowledged now and then.
        let is_blocked = !cycle.is_multiple_of(23);
        if is_blocked && cycle < 2_000 {
            assert!((9..=16).contains(&outstanding), "cycle {cycle}: {outstanding} wait");
        }
        let start = tonic.flow(0).unwrap().start;
        let packet = Packet { ack: true, cum: start.plus(1), ..Packet::default() };
        let packet = cycle.is_multiple_of(23).then_some((0, packet));
        tonic.step(&Input { packet, is_blocked });
    }
    assert_eq!(most, 11, "generation stops at 11");
    let mut idle = template(flows(1), &Repeat, &[128, 0]);
    open(&mut idle, 0, SegmentId::new(7), 100_000);
    blocked(&mut idle, 100);
    assert_eq!(idle.flow(0).unwrap().outstanding, 11);
}

#[test]
fn t4_t5_t23_each_of_k_flows_is_served_every_k_cycles() {
    for k in [1, 2, 3, 7, 1024] {
        let mut tonic = template(flows(1024), &Rated, &[]);
        // Credit for many segments, so that only the sets decide.
        let setup = FlowSetup { first: SegmentId::new(0), segment_bytes: 1 };
        for flow in 0..k {
            while tonic.add_flow(flow, setup).is_err() {
                tonic.step(&Input::default());
            }
        }
        run(&mut tonic, 100);
        for flow in 0..k {
            while tonic.set_limit(flow, SegmentId::new(100), 0).is_err() {
                tonic.step(&Input { is_blocked: true, packet: None });
            }
        }
        // All rings are full when the output opens; each flow may send its window of 128.
        blocked(&mut tonic, 20 * u64::from(k) + 100);
        let left = run(&mut tonic, 40 * u64::from(k));
        let steady = left.windows(usize::from(k) + 1).all(|turns| turns[0].1.flow == turns[usize::from(k)].1.flow);
        assert!(steady, "{k} flows: {:?}", &left[..left.len().min(40)]);
        assert_eq!(left.len(), 40 * usize::from(k), "{k} flows: an address in every cycle");
    }
}

#[test]
fn t5_t23_an_address_leaves_in_every_cycle_while_a_packet_arrives_in_every_cycle() {
    for count in [1, 7, 1024] {
        let mut tonic = template(flows(1024), &Repeat, &[128, 0]);
        let first = SegmentId::new(0xFF_0000);
        let mut network = Network::new(5, 1024, Conditions { delay: 60, ..Conditions::default() });
        for flow in 0..count {
            while tonic.add_flow(flow, FlowSetup { first, segment_bytes: 128 }).is_err() {
                tonic.step(&Input { is_blocked: true, packet: None });
            }
            network.expect(flow, first);
        }
        for flow in 0..count {
            while tonic.set_limit(flow, first.plus(200_000), 0).is_err() {
                tonic.step(&Input { is_blocked: true, packet: None });
            }
        }
        // The driver's last commands, and the latency of the first address behind them.
        let start = tonic.now() + 64 + 12;
        network.run(&mut tonic, start, |_, _| {});
        let (mut cycles, mut empty) = (0, 0);
        network.run(&mut tonic, start + 100_000, |_, address| {
            cycles += 1;
            empty += u64::from(address.is_none());
        });
        assert_eq!((cycles, empty), (100_000, 0), "{count} flows");
        assert!(tonic.counters().0.packets > 99_000);
        assert_eq!(tonic.counters().0.repeats, 0);
    }
}

#[test]
fn t4_t5_sets_may_have_another_discipline() {
    // Flow 1 is of the highest class, flows 0 and 2 of the next.
    let set = || Priorities::new(vec![1, 0, 1]);
    let program = Installed::new(&Repeat, Repeat.description().defaults(), LINK).unwrap();
    let mut tonic = Tonic::with_sets(flows(3), program, [set(), set()]).unwrap();
    for flow in 0..3 {
        tonic.add_flow(flow, FlowSetup { first: SegmentId::new(0), segment_bytes: 100 }).unwrap();
        tonic.set_limit(flow, SegmentId::new(40), 0).unwrap();
    }
    let mut served = Vec::new();
    for cycle in 0..300 {
        // All are ready before the first leaves.
        let is_blocked = cycle < 60;
        served.extend(tonic.step(&Input { packet: None, is_blocked }).filter(|_| !is_blocked));
    }
    let flows: Vec<_> = served.iter().map(|address| address.flow).collect();
    assert_eq!(flows.len(), 120);
    // One address waited in the output register, and a flow alone in its class is served every other cycle or oftener.
    let first = flows.iter().filter(|flow| **flow == 1).count();
    let place = flows.iter().rposition(|flow| *flow == 1).unwrap();
    assert!(first == 40 && place < 90, "{flows:?}");
    let others: Vec<_> = flows[place + 1..].to_vec();
    assert!(others.windows(2).all(|pair| pair[0] != pair[1]), "{others:?}");
}

#[test]
fn t23_the_first_address_leaves_within_twelve_cycles() {
    for program in
        [template(flows(4), &Repeat, &[]), template(flows(4), &Rated, &[]), template(flows(4), &Granted, &[])]
    {
        let mut tonic = program;
        tonic.add_flow(3, FlowSetup { first: SegmentId::new(9), segment_bytes: 1_000 }).unwrap();
        run(&mut tonic, 20);
        tonic.set_limit(3, SegmentId::new(10), 0).unwrap();
        let start = tonic.now();
        let left = run(&mut tonic, 40);
        assert_eq!(left.len(), 1);
        let (cycle, address) = left[0];
        assert_eq!(address, Address { flow: 3, segment: SegmentId::new(9), times_sent: 0 });
        // Two cycles for the command, then two stages, a wire and two stages, two stages and the output register.
        assert_eq!(cycle - start, 11 - 1, "from the driver's call to the output");
    }
}

#[test]
fn t6_t13_a_departure_makes_a_full_flow_active_within_six_cycles() {
    let mut tonic = template(flows(1), &Repeat, &[128, 0]);
    open(&mut tonic, 0, SegmentId::new(0), 1_000);
    blocked(&mut tonic, 100);
    let before = tonic.flow(0).unwrap();
    assert_eq!((before.outstanding, before.total_sent.value()), (11, 12), "one in the output register");
    // The output register is taken three times; the departure that leaves fewer than ten is the second.
    let mut departures = Vec::new();
    let mut generations = Vec::new();
    let mut last = before.total_sent;
    for cycle in 0..30 {
        if tonic.step(&Input { packet: None, is_blocked: cycle >= 2 }).is_some() && cycle < 2 {
            departures.push(cycle);
        }
        let now = tonic.flow(0).unwrap().total_sent;
        if now != last {
            generations.push(cycle);
            last = now;
        }
    }
    assert_eq!(departures, [0, 1]);
    let delay = generations[0] - departures[1];
    assert!((1..=6).contains(&delay), "{generations:?} after {departures:?}");
}

#[test]
fn t6_an_acknowledgement_makes_a_waiting_flow_active() {
    let mut tonic = template(flows(1), &Repeat, &[4, 0]);
    open(&mut tonic, 0, SegmentId::new(0xFF_FFFE), 1_000);
    assert_eq!(run(&mut tonic, 60).len(), 4, "the window is full");
    let ack = Packet { ack: true, cum: SegmentId::new(0), ..Packet::default() };
    tonic.step(&Input { packet: Some((0, ack)), is_blocked: false });
    assert_eq!(run(&mut tonic, 60).len(), 2, "and opens by two");
}

#[test]
fn t7_lengths_do_not_change_while_segments_are_outstanding() {
    let first = SegmentId::new(0xFF_FFFF);
    let mut tonic = template(flows(2), &Repeat, &[8, 0]);
    open(&mut tonic, 0, first, 20);
    let mut network = Network::new(7, 2, Conditions::default());
    network.expect(0, first);
    network.run(&mut tonic, 30, |_, _| {});
    assert_eq!(tonic.set_segment_bytes(0, 500), Err(Refused::Outstanding(0)));
    network.run(&mut tonic, 2_000, |_, _| {});
    assert_eq!(tonic.flow(0).unwrap().start, first.plus(20));
    assert_eq!(tonic.set_segment_bytes(0, 500), Ok(()));
    // A short last segment is announced; nothing behind it before it is delivered.
    assert_eq!(tonic.set_limit(0, first.plus(23), 77), Ok(()));
    assert_eq!(tonic.set_limit(0, first.plus(24), 0), Err(Refused::Outstanding(0)));
    network.run(&mut tonic, 4_000, |_, _| {});
    assert_eq!(tonic.set_limit(0, first.plus(24), 0), Ok(()));
    for bytes in [0, 1 << 14] {
        assert_eq!(tonic.set_segment_bytes(0, bytes), Err(Refused::Length(bytes)));
    }
    assert_eq!(tonic.set_segment_bytes(1, 500), Err(Refused::Absent(1)));
}

#[test]
fn t9_the_driver_reads_a_flows_counters_and_is_told_what_it_cannot_do() {
    let mut tonic = template(flows(4), &Repeat, &[16, 100]);
    let setup = FlowSetup { first: SegmentId::new(3), segment_bytes: 1_000 };
    let view = tonic.flow(2).unwrap();
    assert!(!view.exists);
    assert_eq!(tonic.flow(4), Err(Refused::Outside { flow: 4, flows: 4 }));
    assert_eq!(tonic.set_limit(2, SegmentId::new(9), 0), Err(Refused::Absent(2)));
    assert_eq!(tonic.add_flow(2, setup), Ok(()));
    assert_eq!(tonic.add_flow(2, setup), Err(Refused::Exists(2)));
    let (from, to) = (SegmentId::new(3), SegmentId::new(2));
    assert_eq!(tonic.set_limit(2, to, 0), Err(Refused::Limit { flow: 2, from, to }), "backwards");
    let far = SegmentId::new(3 + (1 << 22) + 1);
    assert!(matches!(tonic.set_limit(2, far, 0), Err(Refused::Limit { .. })), "too far");
    tonic.set_limit(2, SegmentId::new(8), 0).unwrap();
    assert_eq!(run(&mut tonic, 100).len(), 5);
    let view = tonic.flow(2).unwrap();
    assert_eq!((view.start.value(), view.next.value(), view.total_sent.value()), (3, 8, 5));
    assert_eq!((view.window, view.timer, view.outstanding), (16, Ticks::new(100), 0));
    // Retransmissions count as sent: the timer of 1600 cycles expires once.
    assert_eq!(run(&mut tonic, 2_000).len(), 5);
    assert_eq!(tonic.flow(2).unwrap().total_sent.value(), 10);
    assert_eq!(tonic.counters().0.repeats, 5);
    assert_eq!(tonic.remove_flow(2), Ok(()));
    assert_eq!(tonic.add_flow(2, setup), Err(Refused::InProgress(2)));
    run(&mut tonic, 40);
    assert!(!tonic.flow(2).unwrap().exists);
    assert_eq!(tonic.add_flow(2, setup), Ok(()), "the number is free again");
    let mut commands = 0;
    while tonic.set_limit(2, SegmentId::new(4 + commands), 0) != Err(Refused::Commands) {
        commands += 1;
    }
    assert_eq!(commands, 63);
}

#[test]
fn t11_a_timeout_is_found_within_a_round_and_eight_cycles() {
    for count in [16, 1024] {
        let mut latest = 0;
        for flow in [0, count / 2, count - 1] {
            for timer in [100_u64, 131, 197] {
                let mut tonic = template(flows(count), &Repeat, &[16, timer]);
                open(&mut tonic, flow, SegmentId::new(1), 1);
                // The timer starts with the generation, and has steps of 16 cycles.
                let mut total = 0;
                let mut at = Vec::new();
                while at.len() < 2 {
                    tonic.step(&Input::default());
                    let sent = tonic.flow(flow).unwrap().total_sent.value();
                    if sent != total {
                        at.push(tonic.now() - 1);
                        total = sent;
                    }
                }
                let expiry = ((at[0] >> 4) + timer) << 4;
                assert!(at[1] >= expiry, "not early");
                latest = latest.max(at[1] - expiry);
            }
        }
        assert!(latest <= u64::from(count) + 8, "{count} flows: {latest} cycles after expiry");
        assert!(latest >= u64::from(count) / 4, "the round is what takes the time");
    }
}

#[test]
fn t11_acknowledgements_in_step_with_the_round_do_not_hide_a_timeout() {
    let count = 64_u16;
    let mut tonic = template(flows(count), &Repeat, &[16, 100]);
    open(&mut tonic, 5, SegmentId::new(1), 4);
    // Duplicate acknowledgements, so that none restarts the timer; a phase of which one meets each visit.
    let mut dropped = 0;
    for phase in 0..u64::from(count) {
        let before = tonic.counters().0;
        for _ in 0..40 * u64::from(count) {
            let is_phase = tonic.now() % u64::from(count) == phase;
            let ack = Packet { ack: true, cum: SegmentId::new(1), ..Packet::default() };
            tonic.step(&Input { packet: is_phase.then_some((5, ack)), is_blocked: false });
        }
        let after = tonic.counters().0;
        dropped += after.dropped_visits - before.dropped_visits;
        assert!(after.timeouts - before.timeouts >= 1, "phase {phase}: 25 rounds are a duration of the timer");
    }
    assert!(dropped >= 20, "{dropped} visits met a packet");
}

/// Runs `program` over a bad network, and checks in every cycle what must hold in every cycle.
fn watch(program: &'static dyn Transport, parameters: &[u64], is_window_fixed: bool) {
    let count = 6_u16;
    let mut tonic = template(flows(count), program, parameters);
    let conditions = Conditions {
        delay: 80,
        jitter: 120,
        loss: 16,
        ack_loss: 10,
        duplicates: 6,
        lies: 4,
        has_nacks: true,
        has_grants: true,
        ..Conditions::default()
    };
    let mut network = Network::new(12, count, conditions);
    for flow in 0..count {
        let first = SegmentId::new(0xFF_FF80 + u32::from(flow));
        open(&mut tonic, flow, first, 100_000);
        network.expect(flow, first);
    }
    let read = |tonic: &Tonic| (0..count).map(|flow| tonic.flow(flow).expect("the flow exists")).collect::<Vec<_>>();
    let mut last = read(&tonic);
    let mut marked_since = vec![None; usize::from(count)];
    network.run(&mut tonic, 400_000, |tonic, _| {
        let cycle = tonic.now();
        for (flow, now) in (0_u16..).zip(read(tonic)) {
            let before = last[usize::from(flow)];
            let distance = |from: SegmentId, to: SegmentId| from.distance_to(to);
            if before.exists && now.next != before.next {
                // T-14: nothing at or beyond start + size, of the window of the cycle before.
                assert!(distance(before.start, now.next) <= i64::from(before.window), "flow {flow}, cycle {cycle}");
                // T-12: no new segment while a mark stands that was set eight cycles ago; a mark beyond a smaller
                // window waits for it, so programs that move the window are left out.
                let since: Option<u64> = marked_since[usize::from(flow)];
                let is_overdue = since.is_some_and(|since| cycle - since >= 8);
                assert!(!is_window_fixed || !is_overdue, "flow {flow}, cycle {cycle}: marked since {since:?}");
            }
            // T-13: one generation and one departure a cycle at most.
            assert!(now.outstanding.abs_diff(before.outstanding) <= 1 && now.outstanding <= 11);
            if now.marked == 0 {
                marked_since[usize::from(flow)] = None;
            } else {
                marked_since[usize::from(flow)].get_or_insert(cycle);
            }
            last[usize::from(flow)] = now;
        }
        // T-8: the context packs into its declared widths, and all is zero outside of the sent segments.
        if cycle.is_multiple_of(512) {
            (0..count).for_each(|flow| assert_maps_are_inside(tonic, flow));
        }
    });
    let (delivery, credit) = tonic.counters();
    assert!(delivery.generated > 5_000 && delivery.repeats > 500, "{delivery:?}");
    let waiting: u64 = last.iter().map(|flow| u64::from(flow.outstanding)).sum();
    // T-13: what was generated has left or waits; three departures may be on their way back.
    let missing = delivery.generated - credit.transmitted;
    assert!((missing..=missing + 3).contains(&waiting), "{waiting} wait, {missing} have not left");
}

/// Reads the maps from the packed context: fields by their declared order and width.
fn assert_maps_are_inside(tonic: &Tonic, flow: FlowId) {
    use rnic_tonic::state::{Duty, Window};

    let (packed, _) = tonic.context(flow).expect("the flow exists");
    let view = tonic.flow(flow).expect("the flow exists");
    let sent = view.start.distance_to(view.next);
    let mut at = 0;
    for field in Window::fields(tonic.shape()).into_iter().chain(Duty::fields(tonic.shape())) {
        if ["acked", "repeats_low", "repeats_high", "marked"].contains(&field.name) {
            for position in 0..field.bits {
                let bit = packed.words()[((at + position) / 64) as usize] >> ((at + position) % 64) & 1;
                let offset = position.wrapping_sub(view.start.value()) & (field.bits - 1);
                assert!(bit == 0 || i64::from(offset) < sent, "{} of flow {flow} at {offset}", field.name);
            }
        }
        at += field.bits;
    }
    assert!(sent <= i64::from(tonic.shape().window()));
}

#[test]
fn t8_t12_t13_t14_marked_segments_come_first_within_the_window() {
    watch(&Repeat, &[64, 200], true);
    watch(&Adapt, &[128, 200], false);
    watch(&Rated, &[4_096_000, 0, 200], true);
    watch(&Granted, &[200], true);
}

#[test]
fn t8_windows_of_64_to_256_segments_fill_completely() {
    for window in [64, 128, 256] {
        let mut tonic = template(Sizes { window, ..flows(1) }, &Repeat, &[256, 0]);
        let first = SegmentId::new(0xFF_FFC8);
        open(&mut tonic, 0, first, 1_000);
        let left = run(&mut tonic, 600);
        assert_eq!(left.len(), usize::from(window), "the window is at most K");
        // All but the first are acknowledged selectively, then the first with all others.
        for offset in 1..u32::from(window) {
            let packet = Packet { ack: true, sacked: true, cum: first, sack: first.plus(offset), ..Packet::default() };
            tonic.step(&Input { packet: Some((0, packet)), is_blocked: false });
        }
        run(&mut tonic, 10);
        assert_eq!(tonic.flow(0).unwrap().acked, u32::from(window) - 1);
        let packet = Packet { ack: true, cum: first.plus(u32::from(window)), ..Packet::default() };
        tonic.step(&Input { packet: Some((0, packet)), is_blocked: false });
        assert_eq!(run(&mut tonic, 600).len(), usize::from(window));
        assert_eq!(tonic.flow(0).unwrap().acked, 0);
    }
}

#[test]
fn t10_the_program_sees_the_window_as_the_fixed_stage_has_left_it() {
    let first = SegmentId::new(0xFF_FFFD);
    let mut tonic = template(flows(1), &Spy, &[]);
    open(&mut tonic, 0, first, 12);
    run(&mut tonic, 50);
    let mut give = |cum: u32, sack: u32| {
        let packet = Packet {
            ack: true,
            sacked: true,
            cum: first.plus(cum),
            sack: first.plus(sack),
            times_sent: 2,
            ..Packet::default()
        };
        tonic.step(&Input { packet: Some((0, packet)), is_blocked: false });
        run(&mut tonic, 5);
        // Fields of 9 bits have two bytes each.
        let state = tonic.context(0).unwrap().1;
        let field = |at: usize| u16::from_le_bytes([state[at], state[at + 1]]);
        (field(0), field(2), field(4), state[6], state[7])
    };
    assert_eq!(give(0, 2), (1, 1, 2, 1, 2), "newly, acked, first acked, whether it is new, times sent");
    assert_eq!(give(0, 3), (1, 2, 2, 1, 2));
    assert_eq!(give(0, 3), (0, 2, 2, 0, 2), "the same segment is not new");
    assert_eq!(give(5, 9), (4, 1, 4, 1, 2), "two of the five were acknowledged; the tenth is, now at offset 4");
    assert_eq!(give(5, 2), (0, 1, 4, 0, 2), "it lies before the window");
}

/// Removes a flow at every phase of its traffic; `is_free` when nothing of it may wait afterwards.
fn remove(program: &'static dyn Transport, parameters: &[u64], is_free: bool) {
    for phase in 0..40 {
        let mut tonic = template(flows(2), program, parameters);
        open(&mut tonic, 0, SegmentId::new(5), 5_000);
        let step = |tonic: &mut Tonic| {
            // A packet in every cycle, so that one is in each stage.
            let start = tonic.flow(0).expect("the number is in the template").start;
            let packet = Packet { ack: true, nack: true, cnp: true, cum: start.plus(1), ..Packet::default() };
            tonic.step(&Input { packet: Some((0, packet)), is_blocked: false });
        };
        (0..100 + phase).for_each(|_| step(&mut tonic));
        assert_eq!(tonic.remove_flow(0), Ok(()));
        (0..500).for_each(|_| step(&mut tonic));
        run(&mut tonic, 10);
        let (packed, state) = tonic.context(0).expect("the number is in the template");
        assert!(packed.words().iter().all(|word| *word == 0) && state.iter().all(|byte| *byte == 0), "phase {phase}");
        if is_free {
            assert_eq!(tonic.next_event(u64::MAX - 1), None, "phase {phase}: nothing is left to do");
            assert_eq!(tonic.add_flow(0, FlowSetup { first: SegmentId::new(9), segment_bytes: 1 }), Ok(()));
        }
    }
}

#[test]
fn t9_a_removed_flow_leaves_nothing_behind() {
    remove(&Repeat, &[64, 40], true);
    remove(&Granted, &[40], true);
    // A number whose flow waits for its rate is free when the wait ends.
    remove(&Rated, &[800_000, 10, 40], false);
}

#[test]
fn t10_packets_of_segments_never_sent_and_of_other_flows_change_nothing() {
    let mut tonic = template(flows(2), &Repeat, &[16, 0]);
    open(&mut tonic, 0, SegmentId::new(0), 8);
    run(&mut tonic, 50);
    let before = tonic.context(0).unwrap().0;
    for (flow, cum) in [(0, 9), (0, 0x7F_FFFF), (1, 1), (7, 1)] {
        let packet = Packet { ack: true, nack: true, cum: SegmentId::new(cum), ..Packet::default() };
        tonic.step(&Input { packet: Some((flow, packet)), is_blocked: false });
    }
    run(&mut tonic, 50);
    assert_eq!(tonic.context(0).unwrap().0, before);
    let counters = tonic.counters().0;
    assert_eq!((counters.packets, counters.ignored, counters.unknown), (2, 2, 1));
}

#[test]
fn t24_templates_have_1024_flows_by_default_and_2048_at_most() {
    assert_eq!(Sizes::default().flows, 1024);
    let mut tonic = template(flows(2048), &Repeat, &[16, 0]);
    let mut network = Network::new(24, 2048, Conditions::default());
    for flow in (0..2048).rev() {
        // Two commands a flow, one a cycle.
        open(&mut tonic, flow, SegmentId::new(0), 20);
        let now = tonic.now();
        network.run(&mut tonic, now + 2, |_, _| {});
    }
    network.run(&mut tonic, 60_000, |_, _| {});
    assert_eq!(network.left.len(), 2048 * 20);
    assert!((0..2048).all(|flow| tonic.flow(flow).unwrap().start == SegmentId::new(20)));
    let parameters = Repeat.description().defaults();
    let program = || Installed::new(&Repeat, parameters.clone(), 1).unwrap();
    for (sizes, text) in [
        (flows(2049), "the number of flows is 2049, but must be 1 to 2048"),
        (flows(0), "the number of flows is 0,"),
        (Sizes { window: 100, ..Sizes::default() }, "64, 128 or 256 segments, not 100"),
        (Sizes { stop: 17, ..Sizes::default() }, "stop at 17"),
        (Sizes { start: 12, ..Sizes::default() }, "start below 12"),
    ] {
        let error = Tonic::new(sizes, program()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let error = Installed::new(&Repeat, vec![1], 1).unwrap_err();
    assert_eq!(error.to_string(), "the program has 2 parameters, but 1 values were given");
}
