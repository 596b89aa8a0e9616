//! Receiver and sender, one decision each, from states drawn at random.

use rnic_base::RandomStream;
use rnic_rtl::spec::fasr::{Context, Event, Kind, Lane, Lost, Pack, Place, Record, Say, Then, place, plus, rx, tx};
use rnic_rtl::verilated::Model;

use super::{Differences, events, verilated};

/// A number below 2^24, half of the time close before or after the wrap.
pub fn start(random: &mut RandomStream) -> u32 {
    let low = random.below(3_000) as u32;
    if random.below(2) == 0 { plus(0xff_fa00, low) } else { random.bits() as u32 & 0xff_ffff }
}

pub fn lost(random: &mut RandomStream) -> Lost {
    match random.below(8) {
        0 => Lost { count: 7, overflow: true },
        1 | 2 => Lost { count: 1, overflow: false },
        _ => Lost { count: random.below(8) as u8, overflow: false },
    }
}

/// A bitmap behind the gap at `hole`, mostly one that can occur.
fn lane(random: &mut RandomStream, hole: u32) -> Lane {
    if random.below(3) == 0 {
        return Lane::default();
    }
    let slow = random.below(3) != 0;
    let near = |random: &mut RandomStream, bound: u64| plus(hole, random.below(bound) as u32);
    let base = near(random, 40);
    let blocks = random.below(30) as u32;
    let last = plus(base, 10 * blocks);
    let high = if slow { plus(last, random.below(10) as u32) } else { near(random, 520) };
    let wild = random.below(20) == 0;
    let run_bound = if random.below(2) == 0 { 12 } else { 500 };
    Lane {
        open: true,
        fallen: random.below(8) == 0,
        slow,
        lost: if slow { lost(random) } else { Lost { count: 1, overflow: false } },
        high: if wild { start(random) } else { high },
        run: random.below(run_bound) as u16,
        base: if slow { base } else { 0 },
        last: if slow { last } else { 0 },
        head: if slow { random.below(70) as u8 } else { 0 },
        tail: if slow { random.below(70) as u8 } else { 0 },
    }
}

fn context(random: &mut RandomStream) -> Context {
    let (rcv_nxt, una) = (start(random), start(random));
    let some = |random: &mut RandomStream, odds: u64| random.below(odds) == 0;
    let near = |random: &mut RandomStream| plus(rcv_nxt, random.below(600) as u32);
    Context {
        rcv_nxt,
        gap_at: some(random, 2).then(|| near(random)),
        refuses_to: some(random, 4).then(|| near(random)),
        una,
        recovering: some(random, 2),
        acted: some(random, 2),
        lost: lost(random),
        unit: some(random, 2).then(|| random.below(20) as u8),
    }
}

/// A packet around `near`, mostly in the window.
fn packet(random: &mut RandomStream, near: u32, lane: &Lane) -> u32 {
    let around = |random: &mut RandomStream, of: u32| plus(of, (random.below(5) as u32).wrapping_sub(2));
    match random.below(8) {
        0 => near,
        1 => around(random, near),
        2 | 3 => around(random, lane.high),
        4 => plus(near, random.below(1_200) as u32),
        5 => start(random),
        _ => plus(near, random.below(520) as u32),
    }
}

/// Each port in words of its own.
fn ports(packs: &[Pack]) -> Vec<u64> {
    packs.iter().flat_map(Pack::words).collect()
}

/// Checks the place of so many packets, at all distances of ten bits.
pub fn check_place(model: Model, packets: u64) {
    let mut differences = Differences::new(model, 10);
    let mut random = differences.stream("places");
    for _ in 0..packets {
        let hole = start(&mut random);
        let lane = lane(&mut random, hole);
        let from = if lane.slow { lane.last } else { place(&lane, hole, 0).first_base };
        let psn = plus(from, random.below(1_024) as u32);
        let Place { needed, bit, first, first_base, run } = place(&lane, hole, psn);
        let bits = |value: u64, width: u32| Pack::default().field(value, width);
        let outputs = vec![
            bits(needed.into(), 7),
            bits(bit.into(), 10),
            bits(first.into(), 10),
            bits(first_base.into(), 24),
            bits(run.into(), 10),
        ];
        let inputs = ports(&[Pack::from(&lane), bits(hole.into(), 24), bits(psn.into(), 24)]);
        differences.push(inputs, outputs, move || format!("{lane:?} behind {hole}, packet {psn}"));
    }
    differences.finish();
}

#[test]
fn r13_a_packet_has_the_specified_place_in_the_blocks() {
    let Some(verilated) = verilated() else { return };
    check_place(verilated.start("fasr_place", 1).expect("the model starts"), events());
}

/// Checks the decisions on so many packets; returns how many have each answer.
pub fn check_receiver(model: Model, packets: u64) -> [u64; 6] {
    let mut differences = Differences::new(model, 11);
    let mut random = differences.stream("receiver");
    let mut seen = [0; 6];
    for _ in 0..packets {
        let before = context(&mut random);
        let lane = lane(&mut random, before.rcv_nxt);
        let psn = packet(&mut random, before.rcv_nxt, &lane);
        let (can_open, free) = (random.below(3) != 0, random.below(71).min(random.below(71)) as u8);
        let found = rx::decide(psn, before, lane, can_open, free);
        seen[found.say as usize] += 1;
        let bits = |value: u64, width: u32| Pack::default().field(value, width);
        let inputs = ports(&[
            bits(psn.into(), 24),
            Pack::from(&before),
            Pack::from(&lane),
            bits(can_open.into(), 1),
            bits(free.into(), 7),
        ]);
        let walk = Pack::default().field_if(
            found.then == Then::Walk,
            plus(before.rcv_nxt, 1 + u32::from(lane.run)).into(),
            24,
        );
        let is_new = found.record.is_some_and(|record| record.needed > 0);
        let expected = Lane { head: 0, tail: 0, ..found.lane };
        let outputs = vec![
            Pack::from(&found.context),
            without_list(&expected),
            bits(found.say as u64, 3),
            bits(found.placed.into(), 1),
            // The count is not sent with every answer.
            Pack::default().field_if(
                matches!(found.say, Say::Sack | Say::Aack | Say::Fnack),
                u64::from(found.lost.count) | u64::from(found.lost.overflow) << 3,
                4,
            ),
            bits(found.record.is_some().into(), 1),
            Pack::default().field_if(found.record.is_some(), found.record.unwrap_or_default().needed.into(), 7),
            Pack::default().field_if(found.record.is_some(), found.record.unwrap_or_default().bit.into(), 10),
            Pack::default().field_if(is_new, found.record.unwrap_or_default().first.into(), 10),
            bits(found.then as u64, 3),
            walk,
        ];
        differences.push(inputs, outputs, move || format!("{before:?} {lane:?} packet {psn} {can_open} {free}"));
    }
    differences.finish();
    seen
}

#[test]
fn r1_r2_r3_r4_r13_r14_r15_r16_receiver_decides_as_specified_in_a_million_packets() {
    let Some(verilated) = verilated() else { return };
    let seen = check_receiver(verilated.start("fasr_rx", 1).expect("the model starts"), events());
    assert!(seen.iter().all(|count| *count > events() / 200), "not all answers occur: {seen:?}");
}

/// The bitmap without the indices of blocks, which the SR module sets.
fn without_list(lane: &Lane) -> Pack {
    Pack::default()
        .field(lane.open.into(), 1)
        .field(lane.fallen.into(), 1)
        .field(lane.slow.into(), 1)
        .field(u64::from(lane.lost.overflow) << 3 | u64::from(lane.lost.count), 4)
        .field(lane.high.into(), 24)
        .field(lane.run.into(), 10)
        .field_if(lane.slow, lane.base.into(), 24)
        .field_if(lane.slow, lane.last.into(), 24)
        .field_if(false, 0, 14)
}

/// Checks the decisions on so many events; returns how many are followed by each step.
pub fn check_sender(model: Model, events: u64) -> [u64; 7] {
    let mut differences = Differences::new(model, 12);
    let mut random = differences.stream("sender");
    let mut seen = [0; 7];
    for _ in 0..events {
        let before = context(&mut random);
        let lane = lane(&mut random, before.una);
        let next = match random.below(12) {
            0 => before.una,
            1 => start(&mut random),
            _ => plus(before.una, random.below(500) as u32),
        };
        let kind = Kind::ALL[1 + random.below(6) as usize];
        let cumulative = if random.below(2) == 0 { before.una } else { packet(&mut random, before.una, &lane) };
        let event =
            Event { qp: 0, kind, cumulative, psn: packet(&mut random, before.una, &lane), lost: lost(&mut random) };
        let (can_open, free) = (random.below(3) != 0, random.below(71).min(random.below(71)) as u8);
        let found = tx::decide(&event, next, before, lane, can_open, free);
        seen[found.then as usize] += 1;
        let bits = |value: u64, width: u32| Pack::default().field(value, width);
        let inputs = ports(&[
            bits(kind as u64, 4),
            bits(cumulative.into(), 24),
            bits(event.psn.into(), 24),
            Pack::from(event.lost),
            bits(next.into(), 24),
            Pack::from(&before),
            Pack::from(&lane),
            bits(can_open.into(), 1),
            bits(free.into(), 7),
        ]);
        let (from, to) = found.retransmit.unwrap_or_default();
        let is_record = found.record.is_some();
        let Record { needed, bit, first } = found.record.unwrap_or_default();
        let optional = |is_known: bool, value: u64, width: u32| Pack::default().field_if(is_known, value, width);
        let outputs = vec![
            Pack::from(&found.context),
            without_list(&found.lane),
            bits(found.advanced.into(), 1),
            bits(found.is_empty.into(), 1),
            bits((found.then != Then::Trim).into(), 1),
            bits(found.retransmit.is_some().into(), 1),
            optional(found.retransmit.is_some(), from.into(), 24),
            optional(found.retransmit.is_some(), to.into(), 24),
            bits(is_record.into(), 1),
            optional(is_record, needed.into(), 7),
            optional(is_record, bit.into(), 10),
            optional(is_record && needed > 0, first.into(), 10),
            bits(found.then as u64, 3),
        ];
        differences
            .push(inputs, outputs, move || format!("{before:?} {lane:?} {event:?} next {next} {can_open} {free}"));
    }
    differences.finish();
    seen
}

#[test]
fn r5_r6_r7_r8_r15_r16_sender_decides_as_specified_in_a_million_events() {
    let Some(verilated) = verilated() else { return };
    let seen = check_sender(verilated.start("fasr_tx", 1).expect("the model starts"), events());
    let steps = [0, 1, 3, 4, 5, 6].map(|then| seen[then]);
    assert!(steps.iter().all(|count| *count > events() / 2_000), "not all steps occur: {seen:?}");
}
