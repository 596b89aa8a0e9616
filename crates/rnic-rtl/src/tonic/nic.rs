//! The NIC as a circuit beside the model: a record of words for each cycle, and what the circuit has to answer.

use rnic_base::{RandomStream, RandomStreams};
use rnic_program::{Description, Fields as _, Scheme};
use rnic_tonic::shape::Shape;
use rnic_tonic::state::{Credit, Duty, Field, Packed, Ring, Window};
use rnic_tonic::{Address, Command, CreditCounters, DeliveryCounters, FlowId, Input, Packet, SegmentId, Tonic};

use super::generated::{COMMAND, PACKET, fields_of_all_schemes, folder, parameter_bits, state_bits};
use crate::circuit::{Circuit, Timing};
use crate::verilated::Model;

/// Number of cycles that a circuit runs at once.
const BATCH: usize = 1_024;

/// Number of cycles in which a command reaches all memories.
pub(super) const COMMAND_CYCLES: u64 = 8;

/// Position of the first bit for waits among the pulses of the circuit.
const WAITS: u32 = 8;

/// Position of the first bit of a grant in a packet.
const GRANT: u32 = 56;

/// A configuration of the NIC: its circuit, and the words of records.
#[derive(Clone, Debug)]
pub struct Nic {
    description: Description,
    parameters: Vec<u64>,
    link_rate: u32,
    window: u16,
    flows: u16,
}

/// The first cycle in which circuit and model differ.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cycle {cycle}: {output} of the circuit is {found:#x}, but {expected:#x} in the model")]
pub struct Difference {
    /// Number of the cycle.
    pub cycle: u64,
    /// The output that differs (a flow's state is that after the cycle before), or the message of a failed assertion,
    /// which is of this cycle or of one of the batch that begins with it.
    pub output: String,
    /// The model's value: the lowest 64 bits that differ.
    pub expected: u64,
    /// The circuit's value.
    pub found: u64,
}

impl Nic {
    /// Returns the configuration for a program with the values of its parameters.
    pub fn new(description: Description, parameters: Vec<u64>, link_rate: u32, window: u16, flows: u16) -> Self {
        Self { description, parameters, link_rate, window, flows }
    }

    /// Returns the circuit, called `name`. The program's files are in `rtl/gen`, or in the folder `at`.
    pub fn circuit(&self, name: &str, at: Option<&str>) -> Circuit {
        let own = format!("gen/{}", folder(&self.description));
        let (program, package) = (at.unwrap_or(&own), format!("gen/k{}", self.window));
        let flow = self.flow_bits();
        let inputs = [
            ("config_i", parameter_bits(&self.description)),
            ("link_rate_i", 23),
            ("command_valid_i", 1),
            ("command_flow_i", flow),
            ("command_i", width(COMMAND)),
            ("packet_valid_i", 1),
            ("packet_flow_i", flow),
            ("packet_i", width(PACKET)),
            ("address_ready_i", 1),
            ("debug_flow_i", flow),
        ];
        let mut outputs = vec![
            ("address_valid_o", 1),
            ("address_flow_o", flow),
            ("address_segment_o", 24),
            ("address_times_sent_o", 2),
            ("stats_o", 10),
            ("debug_events_o", 30),
        ];
        outputs.extend(self.groups().iter().map(|group| (group.port, group.bits())));
        outputs.push(("debug_state_o", state_bits(&self.description)));
        let folders = ["tonic", "lib", "gen/maps", &package, program];
        let circuit = Circuit::written("tonic_top", &folders, Timing::Clocked, &inputs, &outputs);
        circuit.with("FLOWS", self.flows.into()).with("DEBUG", 1).called(name)
    }

    /// Returns the number of flows.
    pub(super) fn flows(&self) -> u16 {
        self.flows
    }

    /// Returns the values of the program's parameters as the circuit receives them.
    pub fn config_words(&self) -> Vec<u64> {
        let mut config = Packed::default();
        for (parameter, value) in self.description.parameters.iter().zip(&self.parameters) {
            config.put(*value, parameter.bits.into());
        }
        if config.bits() == 0 {
            config.put(0, 1);
        }
        config.words().to_vec()
    }

    /// Appends the inputs of a cycle to `records`; the circuit shows the state of `observed` in the next cycle. Inputs
    /// that say nothing in this cycle have bits of `unused`.
    pub(super) fn record(
        &self,
        config: &[u64],
        input: &Input,
        command: Option<(FlowId, Command)>,
        observed: FlowId,
        unused: u64,
        records: &mut Vec<u64>,
    ) {
        records.extend(config);
        records.push(self.link_rate.into());
        let nothing = (unused >> 40, unused);
        let (flow, word) = command.map_or(nothing, |(flow, command)| (flow.into(), command_word(&command)));
        records.extend([u64::from(command.is_some()), flow, word]);
        records.push(input.packet.is_some().into());
        match input.packet {
            Some((flow, packet)) => {
                let grant = if packet.grant.is_none() { (unused << GRANT, unused >> 48) } else { (0, 0) };
                let words = packet_words(&packet);
                records.extend([flow.into(), words[0] | grant.0, words[1] | grant.1]);
            }
            None => records.extend([unused >> 24, unused.rotate_left(32), unused]),
        }
        records.extend([u64::from(!input.is_blocked), observed.into()]);
    }

    fn flow_bits(&self) -> u32 {
        u32::from(self.flows).ilog2()
    }

    /// Returns the groups of a flow's state, in the order of the circuit's outputs.
    pub(super) fn groups(&self) -> [Group; 4] {
        let group = |port, fields: fn(&Shape) -> Vec<Field>| Group {
            port,
            fields,
            widths: fields_of_all_schemes(fields, self.window)
                .into_iter()
                .filter(|(name, _)| name != "entries")
                .collect(),
        };
        [
            group("debug_window_o", Window::fields),
            group("debug_duty_o", Duty::fields),
            group("debug_ring_o", Ring::fields),
            group("debug_credit_o", Credit::fields),
        ]
    }
}

/// A group of the state of a flow.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) port: &'static str,
    fields: fn(&Shape) -> Vec<Field>,
    /// Fields in the circuit, with their widths there.
    pub(super) widths: Vec<(String, u32)>,
}

impl Group {
    fn bits(&self) -> u32 {
        self.widths.iter().map(|(_, bits)| bits).sum()
    }
}

fn width(fields: &[(&str, u32)]) -> u32 {
    fields.iter().map(|(_, bits)| bits).sum()
}

/// Returns the lowest `bits` bits of `value`, at most 64.
fn low(value: u64, bits: u32) -> u64 {
    value & u64::MAX.checked_shr(64 - bits.min(64)).unwrap_or(0)
}

/// Returns the `bits` bits of words from bit `at` on, the lowest first; at most 64.
pub(super) fn bits_at(words: &[u64], at: u32, bits: u32) -> u64 {
    let word = |index: u32| words.get(index as usize).copied().unwrap_or(0);
    let (index, shift) = (at / 64, at % 64);
    let low = word(index) >> shift;
    let all = if shift == 0 { low } else { low | word(index + 1) << (64 - shift) };
    if bits == 0 { 0 } else { all & u64::MAX >> (64 - bits) }
}

/// Returns a packet as the circuit receives it.
pub fn packet_words(packet: &Packet) -> Vec<u64> {
    let mut bits = Packed::default();
    let flags = [packet.ack, packet.nack, packet.trimmed, packet.cnp, packet.sacked];
    flags.into_iter().for_each(|flag| bits.put(flag.into(), 1));
    bits.put(packet.cum.value().into(), 24);
    bits.put(packet.sack.value().into(), 24);
    bits.put(packet.times_sent.into(), 2);
    bits.put(packet.grant.is_some().into(), 1);
    bits.put(packet.grant.unwrap_or_default().value().into(), 24);
    bits.words().to_vec()
}

/// Returns a command as the circuit receives it.
pub fn command_word(command: &Command) -> u64 {
    let (kind, id, bytes) = match *command {
        Command::Add(setup) => (0, setup.first.value(), setup.segment_bytes),
        Command::Remove => (1, 0, 0),
        Command::Limit { limit, last_bytes } => (2, limit.value(), last_bytes),
        Command::SegmentBytes(bytes) => (3, 0, bytes),
    };
    kind | u64::from(id) << 2 | u64::from(bytes) << 26
}

/// Words of the outputs in a cycle, and which of their bits are compared.
#[derive(Clone, Debug, Default)]
struct Expected {
    words: Vec<u64>,
    masks: Vec<u64>,
}

impl Expected {
    fn word(&mut self, value: u64, mask: u64) {
        self.words.push(value & mask);
        self.masks.push(mask);
    }
}

/// Model and circuit, cycle by cycle.
#[derive(Debug)]
pub struct Bench {
    nic: Nic,
    groups: [Group; 4],
    /// The model.
    pub tonic: Tonic,
    circuit: Model,
    counters: (DeliveryCounters, CreditCounters),
    /// For each flow, the cycle from which on its state is compared: before its first command it is random.
    known_from: Vec<u64>,
    /// The state of a flow that the circuit shows in the next cycle.
    shown: Expected,
    records: Vec<u64>,
    expected: Vec<Expected>,
    names: Vec<(String, usize)>,
    config: Vec<u64>,
    /// Values of inputs that say nothing.
    unused: RandomStream,
    done: u64,
    /// Number of times that a flow had each of the 32 subsets of events in a cycle: first stage, second stage, visit,
    /// generation and departure, the first one lowest.
    pub events: [u64; 32],
    /// Number of times that a program's answer, on its way to be merged, met a call of the program for its flow: a
    /// packet after a packet, a visit after a packet, and a visit whose timer that packet ends; and of visits that met
    /// the first or the second stage of Incoming. A packet never follows a visit: in that cycle, it was in the first
    /// stage.
    pub conflicts: [u64; 5],
}

impl Bench {
    /// Puts a model and a circuit of the same configuration beside each other.
    pub fn new(nic: Nic, tonic: Tonic, circuit: Model) -> Self {
        let wires = nic.circuit("names", None).outputs;
        let names = wires.into_iter().map(|wire| (wire.name, wire.words)).collect();
        let mut bench = Self {
            counters: tonic.counters(),
            known_from: vec![u64::MAX; usize::from(nic.flows)],
            shown: Expected::default(),
            records: Vec::new(),
            expected: Vec::new(),
            names,
            config: nic.config_words(),
            unused: RandomStreams::new(0).stream("inputs that say nothing"),
            done: 0,
            events: [0; 32],
            conflicts: [0; 5],
            groups: nic.groups(),
            nic,
            tonic,
            circuit,
        };
        bench.shown = bench.state(0);
        bench
    }

    /// Runs a cycle of the model; the circuit follows later, and sees the state of `observed` after this cycle. Returns
    /// the address in the output register.
    ///
    /// # Errors
    /// The first difference of the cycles that the circuit has run.
    pub fn step(&mut self, input: &Input, observed: FlowId) -> Result<Option<Address>, Box<Difference>> {
        let command = self.tonic.next_command();
        self.nic.record(&self.config, input, command, observed, self.unused.bits(), &mut self.records);
        let address = self.tonic.step(input);
        if let Some((flow, Command::Add(_))) = command {
            let known_from = &mut self.known_from[usize::from(flow)];
            *known_from = (*known_from).min(self.tonic.now() + COMMAND_CYCLES);
        }
        let pulses = self.pulses();
        let mut expected = Expected::default();
        let mask = |bits: u32| if address.is_some() { (1 << bits) - 1 } else { 0 };
        let shown = address.unwrap_or(Address { flow: 0, segment: SegmentId::default(), times_sent: 0 });
        expected.word(address.is_some().into(), 1);
        expected.word(shown.flow.into(), mask(self.nic.flow_bits()));
        expected.word(shown.segment.value().into(), mask(24));
        expected.word(shown.times_sent.into(), mask(2));
        expected.word(pulses, u64::MAX);
        expected.word(0, 0);
        let state = self.state(observed);
        let Expected { words, masks } = core::mem::replace(&mut self.shown, state);
        expected.words.extend(words);
        expected.masks.extend(masks);
        self.expected.push(expected);
        if self.expected.len() == BATCH {
            self.flush()?;
        }
        Ok(address)
    }

    /// Returns the pulses of the cycle that the model has run.
    fn pulses(&mut self) -> u64 {
        let (delivery, credit) = self.tonic.counters();
        let (old, old_credit) = core::mem::replace(&mut self.counters, (delivery, credit));
        let pulses = [
            delivery.generated - old.generated,
            delivery.repeats - old.repeats,
            delivery.packets - old.packets,
            delivery.ignored - old.ignored,
            delivery.unknown - old.unknown,
            delivery.timeouts - old.timeouts,
            delivery.dropped_visits - old.dropped_visits,
            credit.transmitted - old_credit.transmitted,
            credit.waits - old_credit.waits,
        ];
        pulses.iter().zip(0..).map(|(pulse, at)| pulse << at).sum()
    }

    /// Returns the state of a flow as the circuit shows it.
    fn state(&self, flow: FlowId) -> Expected {
        let (packed, block) = self.tonic.context(flow).expect("the flow is in range");
        let is_compared = self.tonic.now() >= self.known_from[usize::from(flow)];
        let (mut expected, mut at) = (Expected::default(), 0);
        for group in &self.groups {
            let (mut values, mut masks) = (Packed::default(), Packed::default());
            let mut widths = group.widths.iter();
            for Field { name, bits } in (group.fields)(self.tonic.shape()) {
                if name == "entries" {
                    at += bits;
                    continue;
                }
                let full = widths.next().map_or(0, |(_, bits)| *bits);
                // Up to 64 bits at once; a field that the scheme does not use has none here.
                for offset in (0..full).step_by(64) {
                    let part = (full - offset).min(64);
                    let there = bits.saturating_sub(offset).min(part);
                    values.put(bits_at(packed.words(), at + offset, there), part);
                    masks.put(if is_compared && there == part { low(u64::MAX, part) } else { 0 }, part);
                }
                at += bits;
            }
            values.words().iter().zip(masks.words()).for_each(|(value, mask)| expected.word(*value, *mask));
        }
        let mut state = Packed::default();
        let fields = self.nic.description.state.iter().zip(self.nic.description.state_words(block));
        fields.for_each(|(field, word)| state.put(word, field.bits.into()));
        if state.bits() == 0 {
            state.put(0, 1);
        }
        state.words().iter().for_each(|word| expected.word(*word, if is_compared { u64::MAX } else { 0 }));
        expected
    }

    /// Runs the circuit through all recorded cycles, and compares.
    ///
    /// # Errors
    /// The first difference. A circuit whose process has ended, because an assertion failed, differs in all outputs.
    pub fn flush(&mut self) -> Result<(), Box<Difference>> {
        let records = core::mem::take(&mut self.records);
        let expected = core::mem::take(&mut self.expected);
        let words: usize = self.names.iter().map(|(_, words)| words).sum();
        let answers = self.circuit.run(&records);
        let answers = answers.map_err(|error| self.ended(error.to_string()))?;
        for (number, (expected, answer)) in expected.iter().zip(answers.chunks_exact(words)).enumerate() {
            self.compare(self.done + number as u64, expected, answer)?;
        }
        self.done += expected.len() as u64;
        Ok(())
    }

    fn ended(&self, output: String) -> Box<Difference> {
        Box::new(Difference { cycle: self.done, output, expected: 1, found: 0 })
    }

    fn compare(&mut self, cycle: u64, expected: &Expected, answer: &[u64]) -> Result<(), Box<Difference>> {
        let mut at = 0;
        for (name, words) in &self.names {
            let range = at..at + words;
            let wanted = expected.words[range.clone()].iter().zip(&expected.masks[range.clone()]);
            for (part, (found, (wanted, mask))) in answer[range].iter().zip(wanted).enumerate() {
                let mut found = *found;
                if name == "stats_o" {
                    let waits = u64::from((found >> WAITS).count_ones());
                    found = found & ((1 << WAITS) - 1) | waits << WAITS;
                }
                if found & mask != *wanted {
                    let output = format!("{name}[{}..]", part * 64);
                    return Err(Box::new(Difference { cycle, output, expected: *wanted, found: found & mask }));
                }
                if name == "debug_events_o" {
                    (0..5).for_each(|flow| self.events[(found >> (5 * flow) & 31) as usize] += 1);
                    (0..5).for_each(|case| self.conflicts[case] += found >> (25 + case) & 1);
                }
            }
            at += words;
        }
        Ok(())
    }

    /// Returns the scheme of the program.
    pub fn scheme(&self) -> Scheme {
        self.nic.description.scheme
    }
}
