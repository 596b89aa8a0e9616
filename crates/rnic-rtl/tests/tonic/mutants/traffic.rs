//! Traffic for cases that other traffic does not have: single segments at a rate, grants at the limit of what is
//! believed, resets, and a wheel with more flows in a period than fall in time.

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::tonic::nic::{Bench, Difference};
use rnic_rtl::verilated::Model;
use rnic_tonic::cr::merge::GRANT_STEP_MAX;
use rnic_tonic::cr::wheel::Wheel;
use rnic_tonic::{FlowId, FlowSetup, Input, Packet, SegmentId};

use crate::bench::Case;

pub mod calm {
    use rnic_program::prelude::*;

    transport! {
        /// Sends at one of two rates.
        program Calm("calm") {
            scheme: rate,
            start: { window: 64, rate: start_rate, timer: 0 },
        }
        state State {
            packets: 8 = 0,
        }
        parameters Parameters {
            /// Rate of a new flow.
            start_rate: 23 = 131072 [0..=1000000],
        }
    }

    #[program]
    pub fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
        s.packets += 1;
        a.mark = i.nack;
        a.rate = if (s.packets & 64) == 0 { p.start_rate } else { p.start_rate << 2 };
    }

    #[program]
    pub fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
        a.mark = v.expired;
        if v.expired {
            s.packets = u(0);
            a.rate = p.start_rate;
        }
    }
}

/// Announces one segment at a time to one flow after the other, about as often as its rate lets one leave, so that a
/// ring is empty or has one address. One in `full` is no last segment of another length, which credit may never suffice
/// for: with two, such a one often follows while the other waits for credit.
pub fn try_trickle(bench: &mut Bench, case: &Case, full: u64, cycles: u64) -> Result<(), Box<Difference>> {
    let seed = 7;
    let mut random = RandomStreams::new(seed).stream("trickle");
    let (mut flow, mut bytes, mut gap) = (0, 1, 8);
    for cycle in 0..cycles {
        if cycle % 512 == 0 {
            flow = random.below(case.flows.into()) as FlowId;
            let most = [3, 40][random.below(2) as usize];
            bytes = 1 + random.below(most) as u16;
            gap = 2 << random.below(4);
            let _ = bench.tonic.set_segment_bytes(flow, bytes);
        }
        let view = bench.tonic.flow(flow).expect("the flow is in range");
        if random.below(gap) == 0 {
            let last = match (random.below(full), random.below(8)) {
                (0, _) => 0,
                (_, 0) => 4 * bytes,
                (_, 1) => 4 * bytes + 1,
                _ => 1 + random.below(3 * u64::from(bytes)) as u16,
            };
            let setup = FlowSetup { first: SegmentId::new(random.bits() as u32), segment_bytes: bytes };
            let _ = if view.exists {
                bench.tonic.set_limit(flow, view.limit.plus(1), last)
            } else {
                bench.tonic.add_flow(flow, setup)
            };
        }
        let acknowledges = Packet { ack: true, cum: view.next, sack: view.next, ..Packet::default() };
        let packet = (view.exists && random.below(4) == 0).then_some((flow, acknowledges));
        bench.step(&Input { packet, is_blocked: random.below(32) == 0 }, flow)?;
    }
    bench.flush()
}

/// Grants as much as is believed at once, or about that.
pub fn try_grants(bench: &mut Bench, case: &Case, seed: u64, cycles: u64) -> Result<(), Box<Difference>> {
    let mut random = RandomStreams::new(seed).stream("grants");
    let mut believed = vec![0; usize::from(case.flows)];
    for flow in 0..case.flows {
        let setup = FlowSetup { first: SegmentId::new(random.bits() as u32), segment_bytes: 1 };
        bench.tonic.add_flow(flow, setup).expect("no flow is there");
    }
    for cycle in 0..cycles {
        let flow = random.below(case.flows.into()) as FlowId;
        let start = bench.tonic.flow(flow).expect("the flow is in range").start;
        // The commands come first.
        let is_sent = cycle > 64 * u64::from(case.flows) && random.below(2) == 0;
        let packet = is_sent.then(|| {
            let step = GRANT_STEP_MAX + 1 - random.below(3) as u32;
            let total: &mut u32 = &mut believed[usize::from(flow)];
            let granted = SegmentId::new(total.wrapping_add(step));
            if step <= GRANT_STEP_MAX {
                *total = granted.value();
            }
            (flow, Packet { ack: true, cum: start, sack: start, grant: Some(granted), ..Packet::default() })
        });
        bench.step(&Input { packet, is_blocked: false }, flow)?;
    }
    bench.flush()
}

/// Runs a NIC without any flow after a reset.
pub fn try_idle(bench: &mut Bench, cycles: u64) -> Result<(), Box<Difference>> {
    for cycle in 0..cycles {
        bench.step(&Input::default(), (cycle % 8) as FlowId)?;
    }
    bench.flush()
}

/// Periods from one crowd to the next one.
const CROWD: u64 = 8 << 10;

/// Compares a wheel of 2048 flows with the model. Nearly all flows are armed for one period and some for the next one,
/// so that many fall after the period has begun, and others are behind them. A part of these falls late, while no flow
/// is due; and in that time the flow that left last is armed again, with a successor.
pub fn check_crowd(model: &mut Model, cycles: u64) -> Result<(), String> {
    const FLOWS: u16 = 2_048;
    let mut random = RandomStreams::new(3).stream("crowd");
    let mut wheel = Wheel::new(FLOWS);
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    let first = (1 << 24) - CROWD;
    let mut last_left = 0;
    for now in first..first + cycles {
        let expired = wheel.advance(now);
        let at = now % CROWD;
        let mut arms = [None; 2];
        if at < 1_000 {
            let crowd = |flow: u64, random: &mut RandomStream| {
                // After this many cycles of its period it falls.
                let falls = flow.saturating_sub(1_024);
                let is_late = falls > 0 && random.below(3) == 0;
                let offset = if is_late { random.below(falls) } else { 960 + random.below(64) };
                let period = if flow < 1_900 { 3 } else { 4 };
                (flow as FlowId, (period << 10) + offset - at)
            };
            arms = [2 * at, 2 * at + 1].map(|flow| Some(crowd(flow, &mut random)));
        } else if (3 << 10..4 << 10).contains(&at) && random.below(4) == 0 {
            let delay = 1 + random.below(12);
            arms = [Some((last_left, delay)), Some((2_000 + random.below(48) as FlowId, delay))];
        }
        let mut record = [now & 0xFF_FFFF, 0, 0, 0];
        for (port, arm) in (0_u32..).zip(arms) {
            let free = arm.filter(|(flow, _)| !wheel.is_armed(*flow) && expired != Some(*flow));
            if let Some((flow, delay)) = free {
                wheel.arm(flow, now + delay, now);
                record[1] |= 1 << port;
                record[2] |= u64::from(flow) << (port * 11);
                record[3] |= delay << (port * 21);
            }
        }
        records.extend(record);
        last_left = expired.unwrap_or(last_left);
        expected.push(expired);
    }
    let answers = model.run(&records).map_err(|error| error.to_string())?;
    for ((now, answer), expected) in (first..).zip(answers.chunks_exact(2)).zip(&expected) {
        let found = (answer[0] == 1).then(|| answer[1] as FlowId);
        if found != *expected {
            return Err(format!("cycle {now}: {found:?}, not {expected:?}"));
        }
    }
    Ok(())
}
