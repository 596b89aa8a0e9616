//! Laws: controllers, schedulers and path policies as one function over bounded state.
//!
//! A law is written, checked and used as a transport program is: it runs natively, is recorded as a graph, loaded from
//! a file and emitted as a circuit. It decides about one queue pair, in each event of its kind. Its first call, with
//! `started`, sets what holds before the first packet. An output of zero, or a flag that is not set, changes nothing.
//!
//! No output is outside the contract of policies: widths exclude most that would be, and the NIC cuts the rest, such as
//! rates above that of the link.
//!
//! Sources: Tonic (NSDI'20) section 3.5 for programs; SCR (NSDI'25) sections 4 and 5 for the three kinds of decisions.

use crate::bundle::Bundle;
use crate::fields::{DescriptionError, Fields, Parameter, StateField, Text};
use crate::graph::{Graph, Port};
use crate::loaded::{LoadError, WORDS_MAX, Words, compare, named};
use crate::machine::Machine;
use crate::record::{Lowering, RecordError, Recorder, Value};
use crate::value::U;

/// A time in nanoseconds, modulo 2^32: 4.3 s.
pub type Clock = U<32>;

/// A duration in nanoseconds; longer ones than 16.7 ms are given as that.
pub type Span = U<24>;

/// A rate in units of 65,536 bit/s: at most 1.1 Tbit/s.
pub type Speed = U<24>;

/// A congestion window in packets, with 8 fractional bits.
pub type Window = U<24>;

/// The kind of policy that a law is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LawKind {
    /// A controller: sets the congestion window and the rate.
    Control,
    /// A scheduler: sets the turn of a queue pair, and its share of the link.
    Schedule,
    /// A path policy: sets the label, or the flow, of packets.
    Paths,
}

impl LawKind {
    /// Returns the name of the part of a transport that such a law replaces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Schedule => "schedule",
            Self::Paths => "paths",
        }
    }

    /// Returns the ports of a law's event, and those of its outputs.
    fn ports(self) -> [Vec<Port>; 2] {
        match self {
            Self::Control => [ControlInput::ports("in"), ControlOutput::ports("act")],
            Self::Schedule => [ScheduleInput::ports("in"), ScheduleOutput::ports("act")],
            Self::Paths => [PathInput::ports("in"), PathOutput::ports("act")],
        }
    }

    /// Returns the ports of the events of the kind.
    pub fn event_ports(self) -> Vec<Port> {
        let [event, _] = self.ports();
        event
    }

    /// Returns all ports of the kind, of which files carry a hash.
    pub(crate) fn all_ports(self) -> Vec<Port> {
        self.ports().concat()
    }

    /// Returns the number of words of a law's outputs, without its state.
    pub fn output_words(self) -> usize {
        self.ports()[1].len()
    }
}

crate::bundle! {
    /// Event of a controller. The NIC measures only the signals whose inputs the law reads.
    pub struct ControlInput {
        /// The queue pair is created: the outputs are its first window and rate.
        started: bool,
        /// Packets were acknowledged, or a round trip was measured.
        acked: bool,
        /// Number of packets newly acknowledged.
        packets: U<16>,
        /// Number of them whose acknowledgements reported congestion marks.
        marked: U<16>,
        /// `rtt` is a measurement.
        timed: bool,
        /// Round-trip time of a packet, or of a probe.
        rtt: Span,
        /// A gap was reported that recovery treats as a loss.
        lost: bool,
        /// The retransmission timer expired.
        timed_out: bool,
        /// A congestion notification (CNP) was received.
        cnp: bool,
        /// Payload bytes of packets that were sent.
        bytes: U<24>,
        /// The requested tick is due.
        tick: bool,
        /// A requested probe was answered, after `rtt`.
        answered: bool,
        /// A requested probe was not answered.
        unanswered: bool,
        /// Packets outstanding.
        in_flight: U<16>,
        /// Payload bytes of a full packet.
        mtu: U<14>,
        /// Rate of the local link.
        line_rate: Speed,
        /// The current time.
        now: Clock,
    }
}

crate::bundle! {
    /// Decision of a controller. Zero changes nothing.
    pub struct ControlOutput {
        /// Congestion window.
        window: Window,
        /// Sending rate; above that of the link, it is cut to that.
        rate: Speed,
        /// Time until the next `tick`; at least a microsecond.
        tick: Span,
        /// Sends a probe that counts as lost after this time, at least a microsecond.
        probe: Span,
    }
}

crate::bundle! {
    /// Event of a scheduler.
    pub struct ScheduleInput {
        /// The queue pair is created.
        started: bool,
        /// The queue pair has data for the first time, or again after a pause.
        joined: bool,
        /// The queue pair has sent packets.
        served: bool,
        /// The requested tick is due.
        tick: bool,
        /// Bytes of these packets on the wire.
        wire_bytes: U<24>,
        /// Number of these packets.
        packets: U<16>,
        /// Time at which the last of them was sent.
        last_at: Clock,
        /// The current time.
        now: Clock,
        /// Rate of the local link.
        line_rate: Speed,
        /// Rate that all queue pairs that share the link may use.
        capacity: Speed,
        /// Present dequeue rate of this queue pair; zero for none.
        rate: Speed,
        /// Part of the capacity by weight of this queue pair.
        equal: Speed,
        /// Part by weight of this queue pair of what those that do not use their rate leave (weighted max-min).
        max_min: Speed,
        /// Capacity that is not allocated to any queue pair.
        headroom: Speed,
        /// Rate that congestion control permits; zero for none.
        permitted: Speed,
        /// Number of queue pairs that share the link.
        members: U<16>,
        /// The queue pair is saturated, as the law has set last.
        saturated: bool,
        /// The queue pair had to wait for its dequeue rate since the last event.
        held: bool,
    }
}

crate::bundle! {
    /// Decision of a scheduler. Zero changes nothing.
    pub struct ScheduleOutput {
        /// Dequeue rate; the NIC raises it to 1 Mbit/s and cuts it to that of the link.
        rate: Speed,
        /// Packets of a turn, at most 4095.
        packets: U<12>,
        /// Payload bytes of a turn.
        bytes: U<24>,
        /// Messages of a turn.
        messages: U<16>,
        /// The queue pair uses all of its rate, and would use more; enters as it is.
        saturated: bool,
        /// Time until the next `tick`; at least a microsecond.
        tick: Span,
    }
}

crate::bundle! {
    /// Event of a path policy.
    pub struct PathInput {
        /// The queue pair is created: the output `label` is its first one, zero included.
        started: bool,
        /// A packet is about to be sent. A law that reads this may reorder packets.
        sending: bool,
        /// That packet was sent before.
        repeated: bool,
        /// A packet is about to be sent on one of several flows (Falcon): the output `flow` names it. A law that sets
        /// it may reorder packets.
        choosing: bool,
        /// Number of flows.
        flows: U<4>,
        /// Free window of flow 0, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open0: Window,
        /// Free window of flow 1, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open1: Window,
        /// Free window of flow 2, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open2: Window,
        /// Free window of flow 3, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open3: Window,
        /// Free window of flow 4, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open4: Window,
        /// Free window of flow 5, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open5: Window,
        /// Free window of flow 6, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open6: Window,
        /// Free window of flow 7, with 8 fractional bits; zero where it is closed, or there is no such flow.
        open7: Window,
        /// The retransmission timer expired.
        timed_out: bool,
        /// The probe on `path` was answered after `rtt`.
        answered: bool,
        /// The probe on `path` was not answered.
        unanswered: bool,
        /// Number of a path.
        path: U<3>,
        /// Round-trip time of the probe.
        rtt: Span,
        /// The requested tick is due; the first one comes with the first data.
        tick: bool,
        /// All packets that were sent before `drain` are acknowledged.
        drained: bool,
        /// A constant of the queue pair.
        hash: U<32>,
        /// The current time.
        now: Clock,
    }
}

crate::bundle! {
    /// Decision of a path policy.
    pub struct PathOutput {
        /// Changes the label. A law that does not read `sending` can do so in `timed_out`, `unanswered` and `drained`
        /// only, in which nothing is reordered.
        relabel: bool,
        /// The label: a UDP source port.
        label: U<16>,
        /// Flow of the packet, in `choosing`; one that does not exist stands for that modulo their number.
        flow: U<3>,
        /// Sends a probe.
        probe: bool,
        /// Number of the path, 0 to 5.
        path: U<3>,
        /// Label of that path.
        probed: U<16>,
        /// Time after which the probe is lost; at least a microsecond.
        timeout: Span,
        /// Time until the next `tick`; at least a microsecond.
        tick: Span,
        /// Holds new packets until all earlier ones are acknowledged.
        drain: bool,
    }
}

/// An event of one kind of law.
pub trait LawInput: Bundle {
    /// The kind.
    const KIND: LawKind;
    /// The outputs.
    type Output: Bundle;

    /// Returns the outputs before the law has set any.
    fn first(&self) -> Self::Output;

    /// Does the same in a recording.
    fn record_first(g: &Recorder, event: &Self::Form) -> <Self::Output as Value>::Form;
}

impl LawInput for ControlInput {
    type Output = ControlOutput;

    const KIND: LawKind = LawKind::Control;

    fn first(&self) -> ControlOutput {
        ControlOutput::default()
    }

    fn record_first(g: &Recorder, _: &Self::Form) -> <ControlOutput as Value>::Form {
        ControlOutputForm { window: g.u(0), rate: g.u(0), tick: g.u(0), probe: g.u(0) }
    }
}

impl LawInput for ScheduleInput {
    type Output = ScheduleOutput;

    const KIND: LawKind = LawKind::Schedule;

    fn first(&self) -> ScheduleOutput {
        ScheduleOutput { saturated: self.saturated, ..ScheduleOutput::default() }
    }

    fn record_first(g: &Recorder, event: &Self::Form) -> <ScheduleOutput as Value>::Form {
        let [rate, bytes, tick] = [g.u(0); 3];
        ScheduleOutputForm { rate, packets: g.u(0), bytes, messages: g.u(0), saturated: event.saturated, tick }
    }
}

impl LawInput for PathInput {
    type Output = PathOutput;

    const KIND: LawKind = LawKind::Paths;

    fn first(&self) -> PathOutput {
        PathOutput::default()
    }

    fn record_first(g: &Recorder, _: &Self::Form) -> <PathOutput as Value>::Form {
        let ([relabel, probe, drain], [flow, path], [label, probed]) = ([g.flag(false); 3], [g.u(0); 2], [g.u(0); 2]);
        PathOutputForm { relabel, label, flow, probe, path, probed, timeout: g.u(0), tick: g.u(0), drain }
    }
}

type ControlOutputForm = <ControlOutput as Value>::Form;
type ScheduleOutputForm = <ScheduleOutput as Value>::Form;
type PathOutputForm = <PathOutput as Value>::Form;

/// A law as files, registries and reports describe it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LawDescription {
    /// Name: lower case, digits and hyphens.
    pub name: Text,
    /// One line, with the source.
    pub summary: Text,
    /// Kind.
    pub kind: LawKind,
    /// State of a queue pair.
    pub state: Vec<StateField>,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Lines of its source without blank ones and comments; zero when unknown.
    pub lines: u32,
}

impl Fields for LawDescription {
    fn state(&self) -> &[StateField] {
        &self.state
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

impl LawDescription {
    /// Checks all of it.
    ///
    /// # Errors
    /// When a name, width, bound or initial value is not possible.
    pub fn check(&self) -> Result<(), DescriptionError> {
        self.check_fields(&self.name, &self.summary)
    }

    /// Returns the inputs of the law's graph.
    pub(crate) fn inputs(&self) -> Vec<Port> {
        let [mut inputs, _] = self.kind.ports();
        inputs.extend(self.parameters.iter().map(|parameter| named("cfg", &parameter.name, parameter.bits)));
        inputs.extend(self.state.iter().map(|field| named("state", &field.name, field.bits)));
        inputs
    }

    /// Returns the outputs of the law's graph.
    pub(crate) fn outputs(&self) -> Vec<Port> {
        let mut outputs: Vec<Port> = self.state.iter().map(|field| named("next", &field.name, field.bits)).collect();
        let [_, decision] = self.kind.ports();
        outputs.extend(decision);
        outputs
    }
}

/// A law, native or loaded. Events and outputs are words in the order of their fields.
pub trait Law: Send + Sync {
    /// Returns the description.
    fn description(&self) -> LawDescription;

    /// Reacts to an event. The state block has [`Fields::state_bytes`] bytes at least, there are as many parameters and
    /// words as described; implementations may panic otherwise.
    fn decide(&self, event: &[u64], parameters: &[u64], state: &mut [u8], output: &mut [u64]);

    /// Returns the graph of the function.
    ///
    /// # Errors
    /// When it has none: a construct without gates, or it is too long or too deep.
    fn graph(&self, lowering: Lowering) -> Result<Graph, RecordError>;
}

/// The recorded form of a law's function: of its event, parameters, state and outputs.
pub type RecordedLaw<E, P, S> = fn(
    &Recorder,
    &<E as Value>::Form,
    &<P as Value>::Form,
    &mut <S as Value>::Form,
    &mut <<E as LawInput>::Output as Value>::Form,
);

/// Records the function of a law as a graph. Inputs are named `in_`, `cfg_` (parameters) and `state_`, outputs `next_`
/// (state) and `act_`.
///
/// # Errors
/// When the function is not a graph.
pub fn record_law<E: LawInput, P: Bundle, S: Bundle>(
    lowering: Lowering,
    function: RecordedLaw<E, P, S>,
) -> Result<Graph, RecordError> {
    let g = Recorder::new(lowering);
    let event = E::inputs(&g, "in");
    let parameters = P::inputs(&g, "cfg");
    let mut state = S::inputs(&g, "state");
    let mut output = E::record_first(&g, &event);
    function(&g, &event, &parameters, &mut state, &mut output);
    S::outputs(&g, "next", state);
    E::Output::outputs(&g, "act", output);
    g.finish()
}

/// A law that the interpreter runs.
#[derive(Clone, Debug)]
pub struct LoadedLaw {
    description: LawDescription,
    graph: Graph,
    machine: Machine,
}

impl LoadedLaw {
    /// Checks a description and its graph, and prepares it.
    ///
    /// # Errors
    /// When the description has a fault, or the graph does not have the inputs and outputs that follow from it.
    pub fn new(description: LawDescription, graph: Graph) -> Result<Self, LoadError> {
        description.check()?;
        compare("decide", "inputs", &description.inputs(), graph.inputs())?;
        let found: Vec<Port> = graph.outputs().iter().map(|(port, _)| port.clone()).collect();
        compare("decide", "outputs", &description.outputs(), &found)?;
        let machine = Machine::new(&graph);
        Ok(Self { description, graph, machine })
    }

    /// Records `law`, and prepares its graph.
    ///
    /// # Errors
    /// When its function has no graph.
    pub fn of(law: &dyn Law) -> Result<Self, LoadError> {
        Self::new(law.description(), law.graph(Lowering::Joins)?)
    }
}

impl Law for LoadedLaw {
    fn description(&self) -> LawDescription {
        self.description.clone()
    }

    fn decide(&self, event: &[u64], parameters: &[u64], state: &mut [u8], output: &mut [u64]) {
        let program = &self.description;
        let mut inputs: Words = event.iter().copied().collect();
        let words = program.parameters.iter().zip(parameters);
        inputs.extend(words.map(|(parameter, word)| word & crate::fields::mask(parameter.bits)));
        inputs.extend(program.state_words(state));
        let mut outputs = [0; WORDS_MAX];
        self.machine.run(&inputs, &mut outputs);
        let fields = program.state.len();
        program.store_state(&outputs[..fields], state);
        output.copy_from_slice(&outputs[fields..][..output.len()]);
    }

    fn graph(&self, _: Lowering) -> Result<Graph, RecordError> {
        Ok(self.graph.clone())
    }
}

/// Returns whether output `name` of a law's graph is always zero, or always as it enters: the law never sets it.
pub fn is_unset(graph: &Graph, name: &str) -> bool {
    let found = graph.outputs().iter().find(|(port, _)| port.name == name);
    found.is_none_or(|(_, index)| {
        let node = graph.nodes()[usize::from(*index)];
        matches!(node.op, crate::graph::Op::Constant(0))
    })
}
