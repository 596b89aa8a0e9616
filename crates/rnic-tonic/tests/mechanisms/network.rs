//! An ideal network around a template: delay, loss, duplication, reordering, and a receiver that is a set of segments.
//!
//! It runs a template in every cycle, or lazily; both ways the same packets arrive in the same cycles if the template
//! behaves equally.

use std::collections::{BTreeMap, BTreeSet};

use rnic_base::{RandomStream, RandomStreams};
use rnic_program::{Fields as _, Transport};
use rnic_tonic::{Address, FlowId, FlowSetup, Input, Installed, Packet, SegmentId, Sizes, Tonic};

/// Link rate of tests: 100 Gbit/s.
pub const LINK: u32 = 8_192_000;

/// Returns a template with `program`; `parameters` replace the first defaults.
pub fn template(sizes: Sizes, program: &'static dyn Transport, parameters: &[u64]) -> Tonic {
    let mut values = program.description().defaults();
    values[..parameters.len()].copy_from_slice(parameters);
    Tonic::new(sizes, Installed::new(program, values, LINK).expect("the template is well formed"))
        .expect("the template is well formed")
}

/// Sizes with so many flows.
pub fn flows(flows: u16) -> Sizes {
    Sizes { flows, ..Sizes::default() }
}

/// Adds a flow and announces `segments` segments; runs the cycles that this takes.
pub fn open(tonic: &mut Tonic, flow: FlowId, first: SegmentId, segments: u32) {
    tonic.add_flow(flow, FlowSetup { first, segment_bytes: 1_500 }).expect("the flow exists");
    tonic.set_limit(flow, first.plus(segments), 0).expect("the flow exists");
}

/// How the network treats packets; shares are out of 256.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Least cycles from an address to the acknowledgement.
    pub delay: u64,
    /// Further cycles, at random: reordering.
    pub jitter: u64,
    /// Data packets lost.
    pub loss: u64,
    /// Data packets that lose their payload.
    pub trims: u64,
    /// Acknowledgements lost.
    pub ack_loss: u64,
    /// Acknowledgements duplicated.
    pub duplicates: u64,
    /// Packets that say something else: any ids, any flags.
    pub lies: u64,
    /// Data packets that a switch marks.
    pub marks: u64,
    /// Early segments are reported as gaps.
    pub has_nacks: bool,
    /// The receiver grants a segment for each arrival.
    pub has_grants: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: 100,
            jitter: 0,
            loss: 0,
            trims: 0,
            ack_loss: 0,
            duplicates: 0,
            lies: 0,
            marks: 0,
            has_nacks: false,
            has_grants: false,
        }
    }
}

/// A call of the driver at a cycle.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    Add(FlowSetup),
    Limit(SegmentId, u16),
    Remove,
}

#[derive(Clone, Default)]
struct Arrived {
    expected: SegmentId,
    early: BTreeSet<u32>,
    granted: u32,
}

/// The network, with what has left the template.
pub struct Network {
    conditions: Conditions,
    random: RandomStream,
    receivers: Vec<Arrived>,
    arrivals: BTreeMap<u64, (FlowId, Packet)>,
    pub calls: BTreeMap<u64, Vec<(FlowId, Call)>>,
    /// Addresses with the cycle in which they left.
    pub left: Vec<(u64, Address)>,
    /// Answers of driver calls, in order.
    pub answers: Vec<String>,
}

impl Network {
    pub fn new(seed: u64, flows: u16, conditions: Conditions) -> Self {
        Self {
            conditions,
            random: RandomStreams::new(seed).stream("network"),
            receivers: vec![Arrived::default(); usize::from(flows)],
            arrivals: BTreeMap::new(),
            calls: BTreeMap::new(),
            left: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Tells the receiver of a flow its first segment.
    pub fn expect(&mut self, flow: FlowId, first: SegmentId) {
        self.receivers[usize::from(flow)] = Arrived { expected: first, ..Arrived::default() };
    }

    /// Returns the next segment that a flow's receiver expects.
    pub fn expected(&self, flow: FlowId) -> SegmentId {
        self.receivers[usize::from(flow)].expected
    }

    fn share(&mut self, share: u64) -> bool {
        self.random.below(256) < share
    }

    /// Takes an address that leaves in `cycle`, and schedules what comes back.
    pub fn take(&mut self, cycle: u64, address: Address) {
        self.left.push((cycle, address));
        let Conditions { delay, jitter, loss, trims, ack_loss, duplicates, lies, marks, .. } = self.conditions;
        if self.share(loss) {
            return;
        }
        let mut packet = if self.share(trims) { self.trim(&address) } else { self.receive(&address) };
        packet.cnp = self.share(marks);
        if self.share(ack_loss) {
            return;
        }
        if self.share(lies) {
            packet = self.lie(packet);
        }
        for _ in 0..1 + u32::from(self.share(duplicates)) {
            let extra = if jitter == 0 { 0 } else { self.random.below(jitter) };
            let mut at = cycle + delay.max(1) + extra;
            // One packet a cycle.
            while self.arrivals.contains_key(&at) {
                at += 1;
            }
            self.arrivals.insert(at, (address.flow, packet));
        }
    }

    fn trim(&mut self, address: &Address) -> Packet {
        let receiver = &mut self.receivers[usize::from(address.flow)];
        receiver.granted += 1;
        Packet {
            trimmed: true,
            cum: receiver.expected,
            sack: address.segment,
            times_sent: address.times_sent,
            grant: self.conditions.has_grants.then(|| SegmentId::new(receiver.granted)),
            ..Packet::default()
        }
    }

    fn receive(&mut self, address: &Address) -> Packet {
        let Conditions { has_nacks, has_grants, .. } = self.conditions;
        let receiver = &mut self.receivers[usize::from(address.flow)];
        let is_early = receiver.expected.is_before(address.segment);
        let is_new = is_early && receiver.early.insert(address.segment.value());
        if receiver.expected == address.segment {
            receiver.expected = receiver.expected.plus(1);
            while receiver.early.remove(&receiver.expected.value()) {
                receiver.expected = receiver.expected.plus(1);
            }
        }
        receiver.granted += 1;
        Packet {
            ack: true,
            nack: is_early && has_nacks,
            sacked: is_new,
            sack: address.segment,
            cum: receiver.expected,
            times_sent: address.times_sent,
            grant: has_grants.then(|| SegmentId::new(receiver.granted)),
            ..Packet::default()
        }
    }

    fn lie(&mut self, packet: Packet) -> Packet {
        let bits = self.random.bits();
        let wide = if bits & 0x100 == 0 { 0xFF_FFFF } else { 0xFF };
        let mut near = |id: SegmentId| id.plus((self.random.bits() as u32) & wide).plus(0xFF_FF80);
        Packet {
            ack: bits & 1 == 1,
            nack: bits & 2 == 2,
            cnp: bits & 4 == 4,
            trimmed: bits & 32 == 32,
            sacked: bits & 8 == 8,
            cum: near(packet.cum),
            sack: near(packet.sack),
            times_sent: (bits >> 4 & 3) as u8,
            grant: (bits & 64 == 64).then(|| near(packet.cum)),
        }
    }

    fn call(&mut self, tonic: &mut Tonic, cycle: u64) {
        for (flow, call) in self.calls.remove(&cycle).unwrap_or_default() {
            let answer = match call {
                Call::Add(setup) => tonic.add_flow(flow, setup),
                Call::Limit(limit, last_bytes) => tonic.set_limit(flow, limit, last_bytes),
                Call::Remove => tonic.remove_flow(flow),
            };
            if let (Ok(()), Call::Add(setup)) = (&answer, call) {
                self.expect(flow, setup.first);
            }
            self.answers.push(format!("{cycle}: flow {flow}, {call:?}: {answer:?}"));
        }
    }

    /// Makes this cycle's calls of the driver, and returns what arrives in it.
    pub fn input(&mut self, tonic: &mut Tonic) -> Input {
        let cycle = tonic.now();
        self.call(tonic, cycle);
        Input { packet: self.arrivals.remove(&cycle), is_blocked: false }
    }

    /// Runs every cycle up to, and without, `end`; `observe` sees the template after each.
    pub fn run(&mut self, tonic: &mut Tonic, end: u64, mut observe: impl FnMut(&Tonic, Option<&Address>)) {
        while tonic.now() < end {
            let cycle = tonic.now();
            let input = self.input(tonic);
            let address = tonic.step(&input);
            if let Some(address) = address {
                self.take(cycle, address);
            }
            observe(tonic, address.as_ref());
        }
    }

    /// Runs only the cycles in which something can change, up to, and without, `end`; returns how many.
    pub fn run_lazily(&mut self, tonic: &mut Tonic, end: u64) -> u64 {
        let mut steps = 0;
        while tonic.now() < end {
            let cycle = tonic.now();
            self.call(tonic, cycle);
            let arrival = self.arrivals.keys().next().copied();
            let call = self.calls.keys().next().copied();
            let until = [arrival, call].into_iter().flatten().min().unwrap_or(end).min(end);
            if until > cycle {
                steps += 1;
                if let Some((at, address)) = tonic.advance_to(until) {
                    self.take(at, address);
                }
                continue;
            }
            steps += 1;
            let input = Input { packet: self.arrivals.remove(&cycle), is_blocked: false };
            if let Some(address) = tonic.step(&input) {
                self.take(cycle, address);
            }
        }
        steps
    }
}

/// Returns the contexts of all flows, with the program's state.
pub fn contexts(tonic: &Tonic) -> Vec<(Vec<u64>, Vec<u8>)> {
    let context = |flow| {
        let (packed, state) = tonic.context(flow).expect("the flow exists");
        (packed.words().to_vec(), state.to_vec())
    };
    (0..tonic.shape().flows()).map(context).collect()
}
