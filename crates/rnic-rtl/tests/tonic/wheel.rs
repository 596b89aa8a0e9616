//! The timing wheel as a circuit against the model, with more flows in a slot and in a period than leave in time.

use rnic_base::RandomStreams;
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_tonic::FlowId;
use rnic_tonic::cr::wheel::{WAIT_MAX, Wheel};

/// Returns the circuit of a wheel of so many flows.
pub fn circuit(flows: u16) -> Circuit {
    let flow = u32::from(flows).ilog2();
    let inputs = [("now_i", 24), ("arm_i", 2), ("flow_i", 2 * flow), ("delay_i", 42)];
    Circuit::written(
        "wheel",
        &["tonic", "lib", "gen/k128", "gen/reno", "gen/maps"],
        Timing::Clocked,
        &inputs,
        &[("valid_o", 1), ("flow_o", flow)],
    )
    .with("FLOWS", flows.into())
    .called(&format!("wheel_{flows}"))
}

#[test]
fn t15_the_wheel_expires_equally_with_full_slots_and_full_periods() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    const CYCLES: u64 = 200_000;
    let sizes = [16_u16, 2_048];
    let verilated = Verilated::build(&sizes.map(circuit)).expect("the circuits compile without warnings");
    for (seed, flows) in (1..).zip(sizes) {
        let mut model = verilated.start(&circuit(flows).name, 15).expect("the model starts");
        let expiries = try_wheel(&mut model, flows, seed, CYCLES).unwrap_or_else(|difference| panic!("{difference}"));
        assert!(expiries > CYCLES / 100, "{flows} flows: {expiries} flows have left");
    }
}

/// Compares a circuit with the model in so many cycles; returns how many flows have left, or the first difference.
pub fn try_wheel(model: &mut Model, flows: u16, seed: u64, cycles: u64) -> Result<u64, String> {
    let mut random = RandomStreams::new(seed).stream("wheel");
    let mut wheel = Wheel::new(flows);
    let bits = u32::from(flows).ilog2();
    let (mut records, mut expected, mut expiries) = (Vec::new(), Vec::new(), 0);
    // The wheel begins near the wrap of its cycle numbers, at the beginning of a period.
    let first = (1 << 24) - (8 << 10);
    let mut spread = 0;
    for now in first..first + cycles {
        if now % 4_096 == 0 {
            spread = (now - first) / 4_096 % 6;
        }
        let expired = wheel.advance(now);
        expiries += u64::from(expired.is_some());
        let (mut arms, mut arm_flows, mut delays) = (0, 0, 0);
        for port in 0..2 {
            let flow = random.below(flows.into()) as FlowId;
            // The division before it takes four cycles, so a flow is not armed in the cycle in which it leaves.
            if wheel.is_armed(flow) || expired == Some(flow) || random.below(8) == 0 {
                continue;
            }
            let most = 1 << random.below(15);
            let delay = match spread {
                0 => 1 + random.below(6),
                1 => 1 + random.below(3_000),
                // Into every other period: more than fall in a period.
                2 => (((now >> 11) + 2) << 11) + random.below(1_024) - now,
                // Into one cycle of the next period.
                3 => (((now >> 10) + 1) << 10) + 7 - now,
                // Into some cycles of the next period, beside flows that fall into them.
                4 => (((now >> 10) + 1 + 2 * random.below(2)) << 10) + 16 * random.below(64) - now,
                _ => 1 + random.below(most),
            };
            let delay = if random.below(4_000) == 0 { WAIT_MAX } else { delay };
            wheel.arm(flow, now + delay, now);
            arms |= 1 << port;
            arm_flows |= u64::from(flow) << (port * bits);
            delays |= delay << (port * 21);
        }
        records.extend([now & 0xFF_FFFF, arms, arm_flows, delays]);
        expected.push(expired);
    }
    let answers = model.run(&records).map_err(|error| error.to_string())?;
    for ((now, answer), expected) in (first..).zip(answers.chunks_exact(2)).zip(&expected) {
        let found = (answer[0] == 1).then(|| answer[1] as FlowId);
        if found != *expected {
            return Err(format!("{flows} flows, seed {seed}, cycle {now}: {found:?}, not {expected:?}"));
        }
    }
    Ok(expiries)
}
