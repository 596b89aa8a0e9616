//! The modules that compute credit by rates, against the model at the limits of what they compute.

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_tonic::SegmentId;
use rnic_tonic::cr::rate::{FRACTION_BITS, credit_at, credit_max, cycles_for, missing_bytes};
use rnic_tonic::cr::wheel::WAIT_MAX;
use rnic_tonic::state::Packed;

/// Number of cases for each module.
pub const CASES: u64 = 20_000;

/// Compares a module with the model in so many cases; a difference is an error that says the case.
pub type Check = fn(&mut Model, u64) -> Result<(), String>;

/// Returns the modules, each with what compares it.
pub fn modules() -> Vec<(Circuit, Check)> {
    let module = |name: &str, timing: Timing, inputs: &[(&str, u32)], outputs: &[(&str, u32)]| {
        Circuit::written(name, &["tonic", "lib", "gen/k128", "gen/reno", "gen/maps"], timing, inputs, outputs)
    };
    let divide_in = [("valid_i", 1), ("flow_i", 10), ("lack_i", 14), ("rate_i", 23)];
    let divide = module("cr_divide", Timing::Clocked, &divide_in, &[("valid_o", 1), ("flow_o", 10), ("delay_o", 21)]);
    let growth_in = [("since_i", 24), ("now_i", 24), ("rate_i", 23)];
    let growth = module("cr_growth", Timing::Combinational, &growth_in, &[("growth_o", 46)]);
    let pace_in = [("grown_i", 47), ("rate_i", 23), ("segment_bytes_i", 14), ("need_i", 15)];
    let pace = module("cr_pace", Timing::Combinational, &pace_in, &[("is_soon_o", 1), ("lack_o", 14)]);
    let oldest_in = [
        ("ring_i", 441),
        ("leaves_i", 1),
        ("enters_i", 1),
        ("entry_i", 27),
        ("segment_bytes_i", 14),
        ("last_bytes_i", 14),
    ];
    let oldest = module("cr_oldest", Timing::Combinational, &oldest_in, &[("bytes_o", 14)]);
    vec![(divide, check_divide), (growth, check_growth), (pace, check_pace), (oldest, check_oldest)]
}

/// Returns a number of at most `bits` bits, of which small ones and powers of two are as frequent as large ones.
fn number(random: &mut RandomStream, bits: u32) -> u64 {
    let most = 1 << random.below(u64::from(bits) + 1);
    match random.below(4) {
        0 => u64::min(most, (1 << bits) - 1),
        1 => most - 1,
        _ => random.below(most),
    }
}

fn check_divide(model: &mut Model, cases: u64) -> Result<(), String> {
    let mut random = RandomStreams::new(1).stream("divide");
    // A time that is the longest possible one, and not by a rate of zero.
    let mut questions = vec![[1, 1, 8_179, 256], [1, 2, 0, 0], [1, 3, 16_383, 1]];
    for _ in 0..cases {
        let valid = u64::from(random.below(4) != 0);
        questions.push([valid, random.below(1_024), number(&mut random, 14), number(&mut random, 23)]);
    }
    questions.extend([[0; 4]; 5]);
    let answers = model.run(questions.as_flattened()).map_err(|error| error.to_string())?;
    let later = answers.chunks_exact(3).skip(5);
    for (question, answer) in questions.iter().zip(later) {
        let [valid, flow, lack, rate] = *question;
        // The five cycles of the division have passed.
        let cycles = cycles_for(lack as u32 + 1, rate as u32).unwrap_or(WAIT_MAX);
        let delay = cycles.saturating_sub(5).clamp(1, WAIT_MAX);
        if answer[0] != valid || valid == 1 && answer[1..] != [flow, delay] {
            return Err(format!("{} bytes at {rate}: {answer:?}, not {delay}", lack + 1));
        }
    }
    Ok(())
}

fn check_growth(model: &mut Model, cases: u64) -> Result<(), String> {
    let mut random = RandomStreams::new(2).stream("growth");
    // So many bytes bound no growth at these rates.
    let bytes = u16::MAX;
    let questions: Vec<[u64; 3]> = (0..cases)
        .map(|_| {
            let (since, passed) = (random.below(1 << 24), number(&mut random, 24));
            [since, (since + passed) & 0xFF_FFFF, number(&mut random, 12).min(4_095)]
        })
        .collect();
    let answers = model.run(questions.as_flattened()).map_err(|error| error.to_string())?;
    for ([since, now, rate], answer) in questions.iter().zip(answers) {
        let id = |cycle: u64| SegmentId::new(cycle as u32);
        let expected = credit_at(0, id(*since), id(*now), *rate as u32, bytes);
        if answer.min(credit_max(bytes)) != expected {
            return Err(format!("from {since} to {now} at {rate}: {answer}, not {expected}"));
        }
    }
    Ok(())
}

fn check_pace(model: &mut Model, cases: u64) -> Result<(), String> {
    let mut random = RandomStreams::new(3).stream("pace");
    let mut questions = Vec::new();
    for _ in 0..cases {
        let (rate, need) = (number(&mut random, 23), number(&mut random, 15));
        let soon = need.saturating_sub(2 * (rate >> 16));
        // Near to what is needed, of credit or of its bound.
        let mut near = |value: u64| (value + random.below(5)).saturating_sub(2);
        let (grown, segment) = (near(soon), near(soon / 4).min(0x3FFF));
        let grown = if random.below(2) == 0 { grown } else { number(&mut random, 31) };
        let grown = if random.below(8) == 0 { 4 * segment } else { grown };
        let segment = if random.below(2) == 0 { segment } else { number(&mut random, 14) };
        questions.push([(grown << FRACTION_BITS) + random.below(3) * 0x7FFF, rate, segment, need]);
    }
    let answers = model.run(questions.as_flattened()).map_err(|error| error.to_string())?;
    for (question, answer) in questions.iter().zip(answers.chunks_exact(2)) {
        let [grown, rate, segment, need] = *question;
        let missing = missing_bytes(grown.min(credit_max(segment as u16)), need as u16);
        let is_soon = missing == 0 || cycles_for(missing, rate as u32).is_some_and(|cycles| cycles <= 2);
        // More than one segment is never lacking: the oldest one leaves for the next one to be considered.
        let is_used = !is_soon && missing <= 1 << 14;
        if answer[0] != u64::from(is_soon) || is_used && answer[1] + 1 != u64::from(missing) {
            return Err(format!("{question:?}: {answer:?}, not {is_soon} and {missing}"));
        }
    }
    Ok(())
}

fn check_oldest(model: &mut Model, cases: u64) -> Result<(), String> {
    let mut random = RandomStreams::new(4).stream("oldest");
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..cases {
        let shorts = random.bits() & random.bits();
        let (head, count) = (random.below(16), random.below(17));
        let mut ring = Packed::default();
        for place in 0..16 {
            ring.put(random.below(1 << 26) | (shorts >> place & 1) << 26, 27);
        }
        ring.put(head, 4);
        ring.put(count, 5);
        let leaves = random.below(2).min(count);
        let enters = if count == 16 { 0 } else { random.below(2) };
        let (is_short, segment) = (random.below(2), number(&mut random, 14));
        let last = if random.below(4) == 0 { 0 } else { number(&mut random, 14) };
        records.extend(ring.words());
        records.extend([leaves, enters, random.below(1 << 26) | is_short << 26, segment, last]);
        let mut lengths: Vec<u64> = (head..head + count).map(|place| shorts >> (place % 16) & 1).collect();
        lengths.extend((enters == 1).then_some(is_short));
        let oldest = lengths.get(leaves as usize);
        expected.push(oldest.map(|is_short| if *is_short == 1 && last != 0 { last } else { segment }));
    }
    let answers = model.run(&records).map_err(|error| error.to_string())?;
    let differs = expected.iter().zip(answers).position(|(expected, found)| expected.is_some_and(|it| it != found));
    differs.map_or(Ok(()), |case| Err(format!("case {case}: not {:?}", expected[case])))
}

#[test]
fn t15_t20_credit_grows_and_is_waited_for_equally_at_the_limits() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let modules = modules();
    let circuits: Vec<Circuit> = modules.iter().map(|(circuit, _)| circuit.clone()).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (circuit, check) in &modules {
        let mut model = verilated.start(&circuit.name, 1).expect("the model starts");
        check(&mut model, CASES).unwrap_or_else(|difference| panic!("{}: {difference}", circuit.name));
    }
}
