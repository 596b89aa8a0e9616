//! Traffic around model and circuit.

use rnic_base::{RandomStream, RandomStreams};
use rnic_program::{Fields as _, Scheme, Transport};
use rnic_rtl::tonic::nic::{Bench, Difference, Nic};
use rnic_rtl::verilated::{Model, Verilated};
use rnic_tonic::{FlowId, FlowSetup, Input, Installed, Packet, SegmentId, Sizes, Tonic};

use crate::network::{Call, Conditions, LINK, Network};

/// A program with some of its parameters, and the sizes of its NIC.
#[derive(Clone, Copy)]
pub struct Case {
    pub program: &'static dyn Transport,
    pub flows: u16,
    pub window: u16,
    /// Parameters that differ from the defaults.
    pub values: &'static [(&'static str, u64)],
}

impl Case {
    pub fn parameters(&self) -> Vec<u64> {
        let description = self.program.description();
        let mut values = description.defaults();
        for (parameter, value) in description.parameters.iter().zip(&mut values) {
            let changed = self.values.iter().find(|(name, _)| *name == parameter.name);
            *value = changed.map_or(*value, |(_, value)| *value);
        }
        values
    }

    pub fn nic(&self) -> Nic {
        Nic::new(self.program.description(), self.parameters(), LINK, self.window, self.flows)
    }

    pub fn name(&self) -> String {
        format!("{}_{}_{}", self.program.description().name.replace('-', "_"), self.flows, self.window)
    }

    /// Starts model and circuit.
    pub fn bench(&self, verilated: &Verilated, seed: u32) -> Bench {
        self.bench_of(verilated.start(&self.name(), seed).expect("the model starts"))
    }

    /// Puts a model in Rust beside a circuit's.
    pub fn bench_of(&self, circuit: Model) -> Bench {
        let installed = Installed::new(self.program, self.parameters(), LINK).expect("the program is well formed");
        let sizes = Sizes { flows: self.flows, window: self.window, ..Sizes::default() };
        let tonic = Tonic::new(sizes, installed).expect("the sizes are possible");
        Bench::new(self.nic(), tonic, circuit)
    }
}

/// Timeouts of a thousand cycles, so that they occur.
pub const SHORT_TIMEOUTS: &[(&str, u64)] = &[("rto", 60), ("rto_low", 60), ("rto_high", 90), ("rto_min", 60)];

/// The conditions of a bad network that has what the program's packets need.
pub fn rough(program: &dyn Transport) -> Conditions {
    let description = program.description();
    let is_token = description.scheme == Scheme::Token;
    Conditions {
        delay: 1,
        jitter: 64,
        loss: 12,
        trims: if is_token { 12 } else { 0 },
        ack_loss: 12,
        duplicates: 8,
        lies: 6,
        marks: u64::from(description.scheme == Scheme::Rate) * 10,
        has_nacks: true,
        has_grants: is_token,
    }
}

/// Draws calls of the driver: flows come, get segments in bursts, go and come again.
pub fn draw_calls(network: &mut Network, seed: u64, flows: u16, end: u64) {
    let mut random = RandomStreams::new(seed).stream("calls");
    // A command uses the slot of a generation, so most cycles have none.
    let gap = (end / 40).max(8 * u64::from(flows));
    for flow in 0..flows {
        let mut limit = SegmentId::new(0xFF_FF00 + random.below(512) as u32);
        let mut at = random.below(gap);
        let mut add = |at: u64, call: Call| network.calls.entry(at).or_default().push((flow, call));
        add(at, Call::Add(FlowSetup { first: limit, segment_bytes: 1 + random.below(9_000) as u16 }));
        while at < end {
            at += 1 + random.below(gap);
            match random.below(16) {
                0 => {
                    add(at, Call::Remove);
                    at += 1 + random.below(gap);
                    limit = SegmentId::new(random.bits() as u32);
                    add(at, Call::Add(FlowSetup { first: limit, segment_bytes: 1 + random.below(200) as u16 }));
                }
                kind => {
                    limit = limit.plus(1 + random.below(400) as u32);
                    let last_bytes = if kind < 3 { 1 + random.below(60) as u16 } else { 0 };
                    add(at, Call::Limit(limit, last_bytes));
                }
            }
        }
    }
}

/// Runs a network around model and circuit, which do not differ.
pub fn run_network(bench: &mut Bench, case: &Case, seed: u64, cycles: u64) -> usize {
    let left = try_network(bench, case, seed, cycles);
    left.unwrap_or_else(|difference| panic!("{}, seed {seed}: {difference}", case.name()))
}

/// Runs a network around model and circuit until they differ.
pub fn try_network(bench: &mut Bench, case: &Case, seed: u64, cycles: u64) -> Result<usize, Box<Difference>> {
    let mut network = Network::new(seed, case.flows, rough(case.program));
    draw_calls(&mut network, seed, case.flows, cycles);
    let mut random = RandomStreams::new(seed).stream("output");
    for cycle in 0..cycles {
        let mut input = network.input(&mut bench.tonic);
        input.is_blocked = random.below(16) == 0;
        let observed = (cycle % u64::from(case.flows)) as FlowId;
        if let Some(address) = bench.step(&input, observed)?.filter(|_| !input.is_blocked) {
            network.take(cycle, address);
        }
    }
    bench.flush()?;
    Ok(network.left.len())
}

/// Runs a network without faults, in which every segment is acknowledged `delay` cycles later; returns the cycle and
/// the flow of each address.
pub fn run_ideal(bench: &mut Bench, case: &Case, delay: u64, cycles: u64) -> Vec<(u64, FlowId)> {
    let mut network = Network::new(1, case.flows, Conditions { delay, ..Conditions::default() });
    for flow in 0..case.flows {
        let first = SegmentId::new(0xFF_FFF0);
        // Each command uses the slot of one generation.
        let at = 4 * u64::from(flow);
        network.calls.entry(at).or_default().push((flow, Call::Add(FlowSetup { first, segment_bytes: 1_500 })));
        network.calls.entry(at).or_default().push((flow, Call::Limit(first.plus(1 << 20), 0)));
    }
    for cycle in 0..cycles {
        let input = network.input(&mut bench.tonic);
        let address = bench.step(&input, (cycle % u64::from(case.flows)) as FlowId);
        let address = address.unwrap_or_else(|difference| panic!("{}: {difference}", case.name()));
        if let Some(address) = address {
            network.take(cycle, address);
        }
    }
    bench.flush().unwrap_or_else(|difference| panic!("{}: {difference}", case.name()));
    network.left.iter().map(|(cycle, address)| (*cycle, address.flow)).collect()
}

/// Which flow a hostile packet names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    Any,
    Same,
    /// The flow that is visited while the packet is in the first or in the second stage.
    Visited,
}

/// Sends packets that say anything, as often as one a cycle, to the first `flows` flows, while a driver adds and
/// removes them; model and circuit do not differ.
pub fn run_hostile(bench: &mut Bench, case: &Case, flows: u16, seed: u64, cycles: u64) -> u64 {
    let left = try_hostile(bench, case, flows, seed, cycles);
    left.unwrap_or_else(|difference| panic!("{}, seed {seed}: {difference}", case.name()))
}

/// Does the same until they differ.
pub fn try_hostile(bench: &mut Bench, case: &Case, flows: u16, seed: u64, cycles: u64) -> Result<u64, Box<Difference>> {
    let mut random = RandomStreams::new(seed).stream("hostile");
    let (mut aim, mut favourite, mut share, mut blocked, mut is_hurried) = (Aim::Any, 0, 2, 2, false);
    let (has_rate, has_tokens) = (bench.scheme() == Scheme::Rate, bench.scheme() == Scheme::Token);
    let mut left = 0;
    for cycle in 0..cycles {
        if cycle % 256 == 0 {
            aim = [Aim::Any, Aim::Same, Aim::Visited, Aim::Visited][random.below(4) as usize];
            favourite = random.below(flows.into()) as FlowId;
            // Timers expire while there are few packets.
            share = if random.below(if has_tokens { 3 } else { 6 }) == 0 { 64 } else { 1 + random.below(4) };
            // A turn stays for as long as the link is blocked.
            blocked = [0, 1, 2, 13][random.below(4) as usize];
            is_hurried = random.below(if has_rate { 2 } else { 4 }) == 0;
        }
        let most = if cycle < cycles - cycles / 8 { LAST_MOST } else { LAST_MOST + 1 };
        drive(bench, &mut random, flows, (is_hurried, most));
        let flow = match aim {
            Aim::Any => random.below(flows.into()) as FlowId,
            Aim::Same => favourite,
            Aim::Visited => ((cycle + 1 + random.below(2)) % u64::from(case.flows)) as FlowId,
        };
        let flow = if flow < flows { flow } else { 0 };
        let packet = (random.below(share) == 0).then(|| (flow, lie(bench, &mut random, flow, cycle)));
        let input = Input { packet, is_blocked: random.below(16) < blocked };
        let observed = if random.below(2) == 0 { flow } else { random.below(case.flows.into()) as FlowId };
        let address = bench.step(&input, observed)?;
        left += u64::from(address.is_some() && !input.is_blocked);
    }
    bench.flush()?;
    Ok(left)
}

/// Length of a last segment for which a flow with segments of one byte just has credit: a longer one never leaves.
const LAST_MOST: u16 = 4;

/// Makes a call of the driver now and then; some are refused. Calls in a hurry announce few segments, the last of them
/// of another length. Of every other flow, and of a single one with rates, segments have few bytes: at most `most`.
fn drive(bench: &mut Bench, random: &mut RandomStream, flows: u16, (is_hurried, most): (bool, u16)) {
    if random.below(4) != 0 {
        return;
    }
    let flow = random.below(flows.into()) as FlowId;
    let view = bench.tonic.flow(flow).expect("the flow is in range");
    let bits = random.bits();
    let has_rate = bench.scheme() == Scheme::Rate;
    // A flow that waits for a rate exists until it has waited.
    let is_removable = !has_rate || bits >> 57 == 0;
    let is_tiny = flow & 1 == 1 || flows == 1 && has_rate;
    let bytes = 1 + (bits >> 32) as u16 % if is_tiny { LAST_MOST } else { 2_048 };
    let last_bytes = (bits >> 20 & 0xFF) as u16 % if is_tiny { most + 1 } else { 256 };
    let more = |most: u32| view.limit.plus((bits >> 8) as u32 & most);
    let _ = match bits & 63 {
        0 if !is_removable => return,
        0 => bench.tonic.remove_flow(flow),
        1 => bench.tonic.set_segment_bytes(flow, bytes),
        2..5 if is_hurried => bench.tonic.set_segment_bytes(flow, bytes),
        5..60 if is_hurried => bench.tonic.set_limit(flow, more(3).plus(1), last_bytes),
        2..8 => bench.tonic.set_limit(flow, more(0x3F), last_bytes),
        _ if view.exists => bench.tonic.set_limit(flow, more(0x3FF), 0),
        _ => {
            let first = SegmentId::new(if bits >> 6 & 1 == 0 { 0xFF_FFF0 } else { (bits >> 8) as u32 });
            bench.tonic.add_flow(flow, FlowSetup { first, segment_bytes: bytes })
        }
    };
}

fn lie(bench: &Bench, random: &mut RandomStream, flow: FlowId, cycle: u64) -> Packet {
    let view = bench.tonic.flow(flow).expect("the flow is in range");
    let (bits, more) = (random.bits(), random.bits());
    let sent = view.start.distance_to(view.next).max(0) as u64;
    let ahead = match bits >> 16 & 15 {
        0 => bits >> 20 & 0xFF_FFFF,
        1 => bits >> 20 & 0xFF,
        2 => sent,
        _ => random.below(1 + sent.min(6)),
    };
    let cum = view.start.plus(ahead as u32);
    let sack = if more & 15 == 0 {
        SegmentId::new((more >> 8) as u32)
    } else {
        view.start.plus(random.below(1 + sent) as u32)
    };
    // Totals of tokens suffice for a few segments more, grow slowly, or by as much as is believed, or by one less or
    // more.
    let total = match more >> 53 & 63 {
        0 => (more >> 40 & 7) * 4_096 + (more >> 48 & 3),
        1 => cycle & 0xFFF,
        2..8 => cycle >> (8 + (bits >> 13 & 3)),
        _ => u64::from(view.total_sent.value()).wrapping_add(more >> 40 & 7).wrapping_sub(16),
    };
    Packet {
        ack: bits & 1 == 1,
        nack: bits & 14 == 2,
        trimmed: bits & 0x70 == 0x10,
        cnp: bits & 0x180 == 0x80,
        sacked: bits & 0x200 == 0x200,
        cum,
        sack,
        times_sent: (bits >> 10 & 3) as u8,
        grant: (bits >> 12 & 1 == 1).then(|| SegmentId::new(total as u32)),
    }
}
