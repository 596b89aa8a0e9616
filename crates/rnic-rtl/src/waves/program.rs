//! Transport programs: the calls of a sender's program, with the packets around them.

use core::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use rnic_base::Time;
use rnic_engine::{Arrival, Departure, DriverCall, Engine, Transport};
use rnic_policy::{Profile, ProgramPolicy, RecoveryPolicy};
use rnic_program::loaded::{Words, input_words, output_words};
use rnic_program::value::MAP_WORDS;
use rnic_program::{
    Actions, Bundle as _, Description, Executor, Graph, Graphs, Incoming, Kind, Lowering, Needs, Periodic, Port,
    RecordError, verilog,
};
use rnic_wire::{Headers, Packet, Qpn};

use super::{Count, Event, Recorded, Stimulus};
use crate::circuit::{Circuit, Wire};

/// Inputs of the circuit around both functions, and their widths. The acknowledgement and the packet that is sent are
/// for the eye: the functions see what follows from them.
const INPUTS: [(&str, u32); 11] = [
    ("now_ps_i", 64),
    ("start_i", 1),
    ("incoming_i", 1),
    ("periodic_i", 1),
    ("send_i", 1),
    ("send_psn_i", 24),
    ("send_is_again_i", 1),
    ("ack_i", 1),
    ("ack_is_nack_i", 1),
    ("ack_psn_i", 24),
    ("ack_selective_i", 24),
];

/// Positions among the inputs after the time.
const START: usize = 0;
const INCOMING: usize = 1;
const PERIODIC: usize = 2;
const SEND: usize = 3;
const ACK: usize = 6;

/// Kinds of events, and their names.
const KINDS: [&str; 4] = ["packets sent", "acknowledgements", "calls for packets", "calls for timers"];

/// Widest maps of an emitted circuit.
const MAP_BITS_MAX: u32 = 256;

/// Words of a program's settings: window, rate and timer.
const SETTINGS: usize = 3;

/// A call of a program.
#[derive(Clone, Debug)]
struct Call {
    is_incoming: bool,
    /// Words of the function's inputs, and of its outputs.
    before: Words,
    after: Words,
}

/// The calls that the engine has made and the observer has not seen yet.
type Calls = Arc<Mutex<Vec<Call>>>;

/// A program that notes its calls.
struct Noting {
    program: &'static dyn rnic_program::Transport,
    description: Description,
    calls: Calls,
}

impl Noting {
    /// Notes a call of `function`, with a copy of the state and actions that have only their settings, as in a circuit.
    fn note(
        &self,
        is_incoming: bool,
        before: Words,
        state: &[u8],
        actions: &Actions,
        function: impl FnOnce(&mut [u8], &mut Actions),
    ) {
        let mut state = state.to_vec();
        let Actions { window, rate, timer, .. } = *actions;
        let mut actions = Actions { window, rate, timer, ..Actions::default() };
        function(&mut state, &mut actions);
        let after = output_words(&self.description, &state, &actions);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(Call { is_incoming, before, after });
    }
}

impl rnic_program::Transport for Noting {
    fn description(&self) -> Description {
        self.program.description()
    }

    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        let before = input_words(&self.description, packet, parameters, state, actions);
        self.note(true, before, state, actions, |state, actions| {
            self.program.incoming(packet, parameters, state, actions);
        });
        self.program.incoming(packet, parameters, state, actions);
    }

    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        let before = input_words(&self.description, visit, parameters, state, actions);
        self.note(false, before, state, actions, |state, actions| {
            self.program.periodic(visit, parameters, state, actions);
        });
        self.program.periodic(visit, parameters, state, actions);
    }

    fn graphs(&self, lowering: Lowering) -> Result<Graphs, RecordError> {
        self.program.graphs(lowering)
    }

    fn needs(&self) -> Result<Needs, RecordError> {
        self.program.needs()
    }

    fn executor(&self) -> Executor {
        self.program.executor()
    }
}

/// Recording of the calls of a sender's program.
#[derive(Debug)]
pub(super) struct Recording {
    description: Description,
    graphs: Graphs,
    /// Width of maps in the circuit.
    map_bits: u32,
    calls: Calls,
    /// State and settings after the last call.
    last: Option<Vec<u64>>,
    difference: Option<String>,
    events: Vec<Event>,
    counts: [u64; KINDS.len()],
}

impl Recording {
    /// Returns the recording of a connection with the program of `profile`, and the transport that its sender must use.
    ///
    /// # Errors
    /// When the circuit of the program does not have the connection's shape.
    pub(super) fn new(profile: &Profile) -> Result<(Self, Transport), String> {
        let policy = &profile.recovery.policy;
        let planned = policy.program.ok_or_else(|| format!("transport `{}` is no program", profile.name))?;
        if profile.flows.is_some_and(|flows| flows > 1) {
            return Err("a queue pair with several flows has a program for each: remove `flows`".to_owned());
        }
        if profile.window_bits > MAP_BITS_MAX {
            return Err(format!("maps of programs have at most {MAP_BITS_MAX} bits in circuits"));
        }
        let (program, calls) = (planned.transport(), Calls::default());
        let description = program.description();
        let graphs = program.graphs(Lowering::Joins).map_err(|error| error.to_string())?;
        // Connections keep the program for as long as they exist: it stays until the process ends, as a loaded one.
        let noting = Noting { program, description: description.clone(), calls: Arc::clone(&calls) };
        let own = planned.with_transport(Box::leak(Box::new(noting))).map_err(|error| error.to_string())?;
        let own: &'static ProgramPolicy = Box::leak(Box::new(own));
        let mut profile = profile.clone();
        profile.recovery.policy = RecoveryPolicy::of_program(policy.name, own);
        let map_bits = if profile.window_bits <= 128 { 128 } else { MAP_BITS_MAX };
        let transport = Transport::new(profile).map_err(|error| error.to_string())?;
        let recording = Self {
            description,
            graphs,
            map_bits,
            calls,
            last: None,
            difference: None,
            events: Vec::new(),
            counts: [0; KINDS.len()],
        };
        Ok((recording, transport))
    }

    /// Returns the words of an event's inputs, all zero, after the time.
    fn blank(&self) -> Vec<u64> {
        let words =
            Incoming::WORDS + Periodic::WORDS + self.description.parameters.len() + self.description.state.len();
        vec![0; INPUTS.len() - 1 + words + SETTINGS]
    }

    /// Records the calls that the engine has made at `now`.
    fn drain(&mut self, now: Time) {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        for call in calls {
            let (parameters, fields) = (self.description.parameters.len(), self.description.state.len());
            let event = if call.is_incoming { Incoming::WORDS } else { Periodic::WORDS };
            let flags = INPUTS.len() - 1;
            let configuration = flags + Incoming::WORDS + Periodic::WORDS;
            let settings = &call.before[event + parameters..];
            match &self.last {
                None => {
                    let mut inputs = self.blank();
                    inputs[START] = 1;
                    inputs[configuration + parameters..].copy_from_slice(settings);
                    self.events.push(Event { at: now, cycles: 0, inputs, outputs: Vec::new() });
                }
                Some(last) if *last != settings => {
                    let text =
                        format!("at {now} the program's state is {settings:?}, and was {last:?} after its last call");
                    self.difference.get_or_insert(text);
                    return;
                }
                Some(_) => {}
            }
            let mut inputs = self.blank();
            inputs[if call.is_incoming { INCOMING } else { PERIODIC }] = 1;
            let at = if call.is_incoming { flags } else { flags + Incoming::WORDS };
            inputs[at..at + event].copy_from_slice(&call.before[..event]);
            inputs[configuration..configuration + parameters].copy_from_slice(&call.before[event..event + parameters]);
            let outputs = call.after.iter().copied().enumerate().collect();
            self.events.push(Event { at: now, cycles: 0, inputs, outputs });
            self.counts[if call.is_incoming { 2 } else { 3 }] += 1;
            let after = Actions::read_words(&call.after[fields..]);
            let mut last = call.after[..fields].to_vec();
            last.extend([after.window.get(), after.rate.get(), after.timer.get()]);
            self.last = Some(last);
        }
    }

    fn packet(&mut self, now: Time, kind: usize, at: usize, words: &[u64]) {
        self.counts[kind] += 1;
        let mut inputs = self.blank();
        inputs[at..at + words.len()].copy_from_slice(words);
        self.events.push(Event { at: now, cycles: 0, inputs, outputs: Vec::new() });
    }
}

impl Recorded for Recording {
    fn note(&mut self, _: &Engine, now: Time, end: usize, qpn: Qpn, call: &DriverCall<'_>) {
        if end != 0 || self.difference.is_some() {
            return;
        }
        if let DriverCall::Receive(Arrival::Roce(_, packet, _), _) = call
            && packet.dest_qpn == qpn
            && let Headers::Ack { aeth, sack } = packet.headers
        {
            let is_nack = matches!(aeth.syndrome, rnic_wire::Syndrome::Nak(_));
            let selective = sack.map_or(0, |psn| psn.value().into());
            self.packet(now, 1, ACK, &[1, is_nack.into(), packet.psn.value().into(), selective]);
        }
        self.drain(now);
        if let DriverCall::Transmit(Some(Departure::Roce(transmit))) = call
            && transmit.from == qpn
            && is_data(&transmit.packet)
        {
            let is_again = transmit.kind.is_retransmission();
            self.packet(now, 0, SEND, &[1, transmit.packet.psn.value().into(), is_again.into()]);
        }
    }

    fn len(&self) -> usize {
        self.events.len()
    }

    fn take(&mut self) -> Result<Stimulus, String> {
        if let Some(difference) = self.difference.take() {
            return Err(difference);
        }
        if self.last.is_none() {
            return Err("the program is not called in this connection: it ignores what happens there".to_owned());
        }
        let counts = KINDS.iter().zip(self.counts).map(|(name, events)| Count { name, events }).collect();
        let signals = ["send_i", "send_psn_i", "send_is_again_i", "ack_i", "ack_is_nack_i", "ack_psn_i"];
        let more = ["incoming_i", "packet_start", "packet_next", "periodic_i", "visit_expired", "act_mark", "act_from"];
        let state = self.description.state.iter().map(|field| format!("next_{}", field.name));
        let signals = signals.into_iter().chain(more).map(str::to_owned);
        let last = ["act_to", "act_window", "act_timer"].map(str::to_owned);
        let signals = signals.chain(last).chain(state).collect();
        Ok(Stimulus { circuit: self.circuit(), events: std::mem::take(&mut self.events), counts, signals })
    }
}

impl Recording {
    /// Returns the circuit: both functions around the program's state, which has the values of its inputs after a
    /// start.
    fn circuit(&self) -> Circuit {
        let name = self.description.name.replace('-', "_");
        let module = format!("{name}_flow");
        let wire = |name: String, kind: Kind| match kind {
            Kind::Bits(bits) => Wire::new(&name, bits.into()),
            Kind::Map => Wire { words: MAP_WORDS, ..Wire::new(&name, self.map_bits) },
        };
        let mut inputs: Vec<Wire> = INPUTS.iter().map(|(name, bits)| Wire::new(name, *bits)).collect();
        inputs.extend(events(&self.graphs.incoming).map(|port| wire(renamed(&port.name, "in_", "packet_"), port.kind)));
        inputs.extend(events(&self.graphs.periodic).map(|port| wire(renamed(&port.name, "in_", "visit_"), port.kind)));
        inputs.extend(named(&self.graphs.periodic, "cfg_").map(|port| wire(port.name.clone(), port.kind)));
        inputs.extend(stored(&self.graphs.periodic).map(|port| wire(format!("first_{}", port.name), port.kind)));
        let ports = self.graphs.periodic.outputs().iter().map(|(port, _)| port);
        let outputs: Vec<Wire> = ports.map(|port| wire(port.name.clone(), port.kind)).collect();
        let text = self.text(&name, &module, &inputs, &outputs);
        let circuit = Circuit::around(&module, inputs, outputs, text);
        circuit.with("K", self.map_bits.into())
    }

    fn text(&self, name: &str, module: &str, inputs: &[Wire], outputs: &[Wire]) -> String {
        let functions = [("incoming", &self.graphs.incoming), ("periodic", &self.graphs.periodic)];
        let mut text = String::new();
        for (function, graph) in functions {
            text += &verilog::emit(&verilog::module_name(name, function), graph);
        }
        let range = |bits: u32| if bits == 1 { String::new() } else { format!("[{}:0] ", bits - 1) };
        let ports = |direction: &str, wires: &[Wire]| -> String {
            wires.iter().map(|wire| format!(",\n    {direction} logic {}{}", range(wire.bits), wire.name)).collect()
        };
        let _ = writeln!(
            text,
            "module {module} #(\n    parameter int unsigned K = 128\n) (\n    input logic clk{}{}\n);",
            ports("input", inputs),
            ports("output", outputs)
        );
        for port in stored(&self.graphs.periodic) {
            let _ = writeln!(text, "  logic {}{}_q;", range(bits(port, self.map_bits)), port.name);
        }
        for (function, graph) in functions {
            text += &self.instance(&verilog::module_name(name, function), function, graph);
        }
        for Wire { name, .. } in outputs {
            let _ = writeln!(text, "  assign {name} = periodic_i ? periodic_{name} : incoming_{name};");
        }
        text.push_str("  always_ff @(posedge clk) begin\n    if (start_i) begin\n");
        for port in stored(&self.graphs.periodic) {
            let _ = writeln!(text, "      {0}_q <= first_{0};", port.name);
        }
        text.push_str("    end else if (incoming_i || periodic_i) begin\n");
        for port in stored(&self.graphs.periodic) {
            let next = match port.name.strip_prefix("state_") {
                Some(field) => format!("next_{field}"),
                None => renamed(&port.name, "cur_", "act_"),
            };
            let _ = writeln!(text, "      {}_q <= {next};", port.name);
        }
        text.push_str("    end\n  end\nendmodule\n");
        text
    }

    /// Returns the instance of a function, and the wires of its outputs.
    fn instance(&self, module: &str, function: &str, graph: &Graph) -> String {
        let mut text = String::new();
        for (port, _) in graph.outputs() {
            let bits = bits(port, self.map_bits);
            let range = if bits == 1 { String::new() } else { format!("[{}:0] ", bits - 1) };
            let _ = writeln!(text, "  logic {range}{function}_{};", port.name);
        }
        let prefix = if function == "incoming" { "packet_" } else { "visit_" };
        let input = |port: &Port| match port.name.split_once('_') {
            Some(("in", _)) => renamed(&port.name, "in_", prefix),
            Some(("cfg", _)) => port.name.clone(),
            _ => format!("{}_q", port.name),
        };
        let inputs = graph.inputs().iter().map(|port| format!("      .{}({})", port.name, input(port)));
        let outputs = graph.outputs().iter().map(|(port, _)| format!("      .{0}({function}_{0})", port.name));
        let ports: Vec<String> = inputs.chain(outputs).collect();
        let _ = writeln!(text, "  {module} #(.K(K)) i_{function} (\n{}\n  );", ports.join(",\n"));
        text
    }
}

fn bits(port: &Port, map_bits: u32) -> u32 {
    match port.kind {
        Kind::Bits(bits) => bits.into(),
        Kind::Map => map_bits,
    }
}

fn named<'g>(graph: &'g Graph, prefix: &'static str) -> impl Iterator<Item = &'g Port> {
    graph.inputs().iter().filter(move |port| port.name.starts_with(prefix))
}

/// Returns the inputs of a function's event.
fn events(graph: &Graph) -> impl Iterator<Item = &Port> {
    named(graph, "in_")
}

/// Returns the inputs that a circuit stores: the state and the settings.
fn stored(graph: &Graph) -> impl Iterator<Item = &Port> {
    named(graph, "state_").chain(named(graph, "cur_"))
}

fn renamed(name: &str, from: &str, to: &str) -> String {
    format!("{to}{}", name.strip_prefix(from).unwrap_or(name))
}

const fn is_data(packet: &Packet) -> bool {
    matches!(packet.headers, Headers::Send { .. } | Headers::Write { .. })
}
