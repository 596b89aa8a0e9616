//! Writes the trace of a run, and divides the latency of each operation, from the logs of nodes: between windows, so
//! that each packet of a window is known at both ends before an operation can complete by it.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use rnic_base::{Psn, Seq, Time};
use rnic_engine::{OperationTimes, QpSnapshot, WcOpcode, WcStatus};
use rnic_wire::Qpn;

use super::Simulation;
use super::builder::meter;
use super::parts::Parts;
use crate::fault::matches;
use crate::host::{start_log, take_log};
use crate::report::latency_parts::{LatencyCollector, LatencyParts, Moments};
use crate::topology::Topology;
use crate::trace::encode::{Event, TraceFile, Track, TrackKind, Value};
use crate::trace::log::{Answer, DepartureRecord, Fate, HostRecord, PacketSummary, PortRecord};
use crate::trace::{TraceError, TracePlan};

/// A trace in progress.
pub(super) struct Tracer {
    plan: TracePlan,
    /// `None` when only latencies are measured, and after the end of the trace.
    file: Option<TraceFile>,
    /// Reason why the trace has ended before the run.
    failure: Option<TraceError>,
    nodes: Vec<Node>,
    hosts: u32,
    /// By host and number.
    queue_pairs: BTreeMap<(u32, u32), QueuePair>,
    /// Requests that queue pairs have received and answered, by host and number.
    received: BTreeMap<(u32, u32), Received>,
    latencies: Option<LatencyCollector>,
    /// Time in which operations are posted that count in the report.
    counted: (Time, Time),
    has_transactions: bool,
}

/// A node, and its tracks.
#[derive(Debug)]
struct Node {
    name: String,
    process: Option<Track>,
    ports: Vec<PortTracks>,
}

/// Tracks of a direction of a link.
#[derive(Debug)]
struct PortTracks {
    packets: Track,
    events: Track,
    paused: Track,
    /// Bytes that wait for the link, when a switch sends on it.
    queue: Option<Track>,
    /// Start of the present pause.
    paused_since: Option<Time>,
}

/// Tracks of a queue pair.
#[derive(Debug)]
struct QueuePair {
    peer: u32,
    /// `None` when the plan does not select it.
    track: Option<Track>,
    recovery: Option<Track>,
    /// Tracks of operations that overlap, and the ends of the last of each.
    lanes: Vec<(Track, Time)>,
}

/// Requests that a queue pair has received, and its answers: as many as operations in flight may need.
#[derive(Debug, Default)]
struct Received {
    /// First request not received, and the time since when.
    expected: VecDeque<(Seq, Time)>,
    answers: VecDeque<(Answer, Time)>,
    /// Times of the last packets of responses.
    responses: VecDeque<Time>,
}

/// Most entries of each list of [`Received`].
const RECEIVED_MAX: usize = 1 << 16;

fn push<T>(list: &mut VecDeque<T>, value: T) {
    if list.len() == RECEIVED_MAX {
        list.pop_front();
    }
    list.push_back(value);
}

impl Tracer {
    fn new(simulation: &Simulation) -> Self {
        let topology = simulation.plan.topology.build();
        let node = |node| Node { name: topology.name(node), process: None, ports: Vec::new() };
        Self {
            plan: simulation.plan.trace.clone(),
            file: None,
            failure: None,
            nodes: (0..topology.node_count() as u32).map(node).collect(),
            hosts: topology.hosts,
            queue_pairs: BTreeMap::new(),
            received: BTreeMap::new(),
            latencies: None,
            counted: simulation
                .steady_interval()
                .unwrap_or_else(|| (Time::ZERO + simulation.plan.run.warmup, crate::calendar::NEVER)),
            has_transactions: simulation.plan.uses_falcon(),
        }
    }

    /// Declares the tracks of all links of nodes that the plan selects; returns these nodes.
    fn open(&mut self, mut file: TraceFile, topology: &Topology) -> Vec<u32> {
        let neighbours = topology.neighbours();
        let mut selected = Vec::new();
        for (number, node) in (0..).zip(&mut self.nodes) {
            if !matches(&self.plan.nodes, &node.name) {
                continue;
            }
            selected.push(number);
            let process = file.track(None, TrackKind::Process(number), &node.name);
            node.process = Some(process);
            for (there, _) in &neighbours[number as usize] {
                let name = format!("{}>{}", node.name, topology.name(there.node));
                let packets = file.track(Some(process), TrackKind::Events, &name);
                let mut child = |kind, what: &str| file.track(Some(process), kind, &format!("{what} {name}"));
                let (events, paused) = (child(TrackKind::Events, "events"), child(TrackKind::Events, "paused"));
                let queue = (number >= topology.hosts).then(|| child(TrackKind::Bytes, "queue"));
                node.ports.push(PortTracks { packets, events, paused, queue, paused_since: None });
            }
        }
        self.file = Some(file);
        selected
    }

    /// Returns the latencies' parts, if they are measured.
    pub(super) fn latency_parts(&self) -> Option<LatencyParts> {
        self.latencies.as_ref()?.parts()
    }

    /// Writes what has happened since the last call.
    pub(super) fn collect(&mut self, parts: &mut Parts) {
        let mut operations = Vec::new();
        for host in 0..self.hosts {
            let (records, done) = take_log(parts.host_mut(host));
            for record in &records {
                self.note_received(host, record);
                self.write_record(host, record, parts);
            }
            operations.extend(done.into_iter().map(|times| (host, times)));
        }
        for (host, times) in operations {
            self.end_operation(host, &times);
        }
        for node in 0..self.nodes.len() {
            let is_host = node < self.hosts as usize;
            for port in 0..self.nodes[node].ports.len() {
                let port_of = match is_host {
                    true => &mut parts.host_mut(node as u32).port,
                    false => &mut parts.switch_mut(node - self.hosts as usize).ports_mut()[port],
                };
                for record in port_of.take_log() {
                    if let Some(file) = &mut self.file {
                        write_port(file, &self.plan, &mut self.nodes[node].ports[port], &record);
                    }
                }
            }
        }
        if self.file.as_ref().is_some_and(|file| !file.is_open()) {
            self.failure = self.file.take().and_then(TraceFile::finish);
        }
    }

    /// Remembers what an operation of the peer may need.
    fn note_received(&mut self, host: u32, record: &HostRecord) {
        match *record {
            HostRecord::Expected { at, qpn, expected } => {
                push(&mut self.received.entry((host, qpn)).or_default().expected, (expected, at));
            }
            HostRecord::Departure(DepartureRecord { at, qpn, answer: Some(answer), .. }) => {
                let received = self.received.entry((host, qpn)).or_default();
                match answer {
                    Answer::Response => push(&mut received.responses, at),
                    // Without requests there is nothing to answer.
                    _ if received.expected.is_empty() => {}
                    _ => push(&mut received.answers, (answer, at)),
                }
            }
            _ => {}
        }
    }

    /// Returns the times that divide the latency of an operation.
    fn divide(&mut self, times: &OperationTimes) -> Moments {
        let OperationTimes { posted, admitted, sent, completed, numbers: [first, end], .. } = *times;
        let mut moments = [posted, admitted, sent, sent, sent, completed];
        let Some(received) = self.received.get_mut(&(times.peer.0, times.dest_qpn.get())) else { return moments };
        while received.expected.len() > 1 && received.expected.front().is_some_and(|(expected, _)| *expected < end) {
            received.expected.pop_front();
        }
        let arrived = received.expected.front().filter(|(expected, _)| *expected >= end).map(|(_, at)| *at);
        let delivered = arrived.unwrap_or(completed).clamp(sent, completed);
        while received.answers.front().is_some_and(|(_, at)| *at < delivered) {
            received.answers.pop_front();
        }
        let covers = |answer: &Answer| match answer {
            Answer::Covers(before) => end.wire().distance_to(Psn::new(*before)) >= 0,
            Answer::All => true,
            Answer::Response => false,
        };
        let mut answered = received.answers.iter().find(|(answer, _)| covers(answer)).map(|(_, at)| *at);
        if is_fetch(times.opcode) && !received.responses.is_empty() {
            let count = if self.has_transactions { end.since(first) } else { 1 };
            answered = (0..count).filter_map(|_| received.responses.pop_front()).last();
        }
        moments[3] = delivered;
        moments[4] = answered.unwrap_or(completed).clamp(delivered, completed);
        moments
    }

    /// Writes an operation that has completed, with the parts of its latency.
    fn end_operation(&mut self, host: u32, times: &OperationTimes) {
        let moments = self.divide(times);
        let counts = times.status == WcStatus::Success && (self.counted.0..self.counted.1).contains(&times.posted);
        if let Some(latencies) = self.latencies.as_mut().filter(|_| counts) {
            latencies.add(&moments);
        }
        if !self.plan.covers(times.posted) {
            return;
        }
        let Some(track) = self.queue_pair(host, times.qpn.get(), Some(times.peer.0)) else { return };
        let Self { file: Some(file), queue_pairs, .. } = self else { return };
        let Some(queue_pair) = queue_pairs.get_mut(&(host, times.qpn.get())) else { return };
        let free = queue_pair.lanes.iter().position(|(_, end)| *end <= times.posted);
        let lane = free.unwrap_or_else(|| {
            queue_pair.lanes.push((file.track(Some(track), TrackKind::Events, "operations"), Time::ZERO));
            queue_pair.lanes.len() - 1
        });
        let (track, end) = &mut queue_pair.lanes[lane];
        *end = times.completed;
        let [first, last] = times.numbers.map(|number| u64::from(number.wire::<24>().value()));
        let arguments = [
            ("bytes", Value::Number(times.bytes.into())),
            ("wr_id", Value::Number(times.wr_id)),
            ("first_psn", Value::Number(first)),
            ("next_psn", Value::Number(last)),
            ("status", Value::Text(status_name(times.status))),
        ];
        file.begin(*track, times.posted, &event("operation", operation_name(times.opcode), &arguments));
        for (index, name) in PARTS.into_iter().enumerate() {
            let (from, until) = (moments[index], moments[index + 1]);
            if from < until {
                file.slice(*track, from, until, &event("part", name, &[]));
            }
        }
        file.end(*track, times.completed);
    }

    /// Returns the track of a queue pair, if the plan selects it.
    fn queue_pair(&mut self, host: u32, qpn: u32, peer: Option<u32>) -> Option<Track> {
        let Self { file: Some(file), nodes, queue_pairs, plan, .. } = self else { return None };
        let known = queue_pairs.get(&(host, qpn)).filter(|known| peer.is_none_or(|peer| peer == known.peer));
        if let Some(known) = known {
            return known.track;
        }
        let peer = peer?;
        let name = |node: u32| nodes.get(node as usize).map_or("-", |node| node.name.as_str());
        let [here, there] = [host, peer].map(name);
        let [name, reverse] = [format!("{here}>{there}"), format!("{there}>{here}")];
        let is_selected = matches(&plan.queue_pairs, &name) || matches(&plan.queue_pairs, &reverse);
        let track = is_selected.then(|| {
            let node = &mut nodes[host as usize];
            let Node { process, name: node_name, .. } = node;
            let process = *process.get_or_insert_with(|| file.track(None, TrackKind::Process(host), node_name));
            file.track(Some(process), TrackKind::Events, &format!("queue pair {qpn} {name}"))
        });
        queue_pairs.insert((host, qpn), QueuePair { peer, track, recovery: None, lanes: Vec::new() });
        track
    }

    /// Writes an event of a queue pair or of a host.
    fn write_record(&mut self, host: u32, record: &HostRecord, parts: &Parts) {
        let (at, qpn, name, arguments) = match *record {
            HostRecord::Departure(DepartureRecord { at, qpn, psn, is_retransmission: true, .. }) => {
                (at, qpn, "retransmission", [("psn", psn.unwrap_or(0))])
            }
            HostRecord::Nack { at, qpn, psn } => (at, qpn, "NACK", [("psn", psn.unwrap_or(0))]),
            HostRecord::Timeout { at, qpn, count } => (at, qpn, "timeout", [("count", count)]),
            HostRecord::Recovery { from, qpn, .. } => (from, qpn, "recovery", [("qpn", qpn)]),
            HostRecord::Damaged { at, packet } => return self.discard(host, at, "damaged", packet.as_ref()),
            HostRecord::Dropped { at, packet } => return self.discard(host, at, "NIC full", Some(&packet)),
            HostRecord::Departure(_) | HostRecord::Expected { .. } => return,
        };
        if self.file.is_none() || !self.plan.covers(at) {
            return;
        }
        let peer = match self.queue_pairs.get(&(host, qpn)) {
            Some(known) => Some(known.peer),
            None => QpSnapshot::of(&parts.host(host).engine, Qpn::new(qpn)).map(|snapshot| snapshot.peer.0),
        };
        let Some(track) = self.queue_pair(host, qpn, peer) else { return };
        let Self { file: Some(file), queue_pairs, .. } = self else { return };
        if let HostRecord::Recovery { from, until, .. } = *record {
            let Some(queue_pair) = queue_pairs.get_mut(&(host, qpn)) else { return };
            let recovery = queue_pair.recovery;
            let track = recovery.unwrap_or_else(|| file.track(Some(track), TrackKind::Events, "recovery"));
            queue_pair.recovery = Some(track);
            return file.slice(track, from, until, &event("recovery", name, &[]));
        }
        let arguments = arguments.map(|(name, value)| (name, Value::Number(value.into())));
        file.instant(track, at, &event("queue pair", name, &arguments));
    }

    /// Writes that a host discards a packet that has arrived.
    fn discard(&mut self, host: u32, at: Time, name: &'static str, packet: Option<&PacketSummary>) {
        let (Some(file), Some(port)) = (&mut self.file, self.nodes[host as usize].ports.first()) else { return };
        if self.plan.covers(at) {
            let arguments = packet.map(arguments);
            file.instant(port.events, at, &event("drop", name, arguments.as_ref().map_or(&[], |list| &list[..])));
        }
    }

    /// Ends the trace at `now`.
    fn finish(&mut self, now: Time) {
        let Some(mut file) = self.file.take() else { return };
        for port in self.nodes.iter().flat_map(|node| &node.ports) {
            if let Some(from) = port.paused_since {
                file.slice(port.paused, from, now.max(from), &event("pause", "paused", &[]));
            }
        }
        self.failure = file.finish();
    }
}

/// Names of the parts of an operation.
const PARTS: [&str; 5] = ["admission", "window", "wire", "remote NIC", "acknowledgement"];

fn event<'e>(category: &'static str, name: &'static str, arguments: &'e [(&'static str, Value)]) -> Event<'e> {
    Event { category, name, arguments }
}

fn arguments(packet: &PacketSummary) -> [(&'static str, Value); 6] {
    let number = |value: u32| Value::Number(value.into());
    [
        ("psn", number(packet.psn.unwrap_or(0))),
        ("bytes", number(packet.frame_len.into())),
        ("payload", number(packet.payload_len)),
        ("from_host", number(packet.from)),
        ("to_host", number(packet.to)),
        ("qpn", number(packet.qpn.unwrap_or(0))),
    ]
}

/// Writes an event of a port.
fn write_port(file: &mut TraceFile, plan: &TracePlan, port: &mut PortTracks, record: &PortRecord) {
    match *record {
        PortRecord::Packet { from, until, packet, fate } if plan.covers(from) => {
            file.slice(port.packets, from, until, &event("packet", packet.kind, &arguments(&packet)));
            let name = match fate {
                Fate::Sent => return,
                Fate::Lost => "lost",
                Fate::Damaged => "damaged on the link",
                Fate::Duplicated => "duplicated",
            };
            let category = if fate == Fate::Lost { "drop" } else { "fault" };
            file.instant(port.events, until, &event(category, name, &arguments(&packet)));
        }
        PortRecord::PauseFrame { from, until, is_pause } if plan.covers(from) => {
            let name = if is_pause { "pause" } else { "resume" };
            file.slice(port.packets, from, until, &event("pause frame", name, &[]));
        }
        PortRecord::Paused { at } => port.paused_since = Some(at),
        PortRecord::Resumed { at } => {
            let from = port.paused_since.take().unwrap_or(at);
            if plan.covers(from) {
                file.slice(port.paused, from, at, &event("pause", "paused", &[]));
            }
        }
        PortRecord::Depth { at, bytes } if plan.covers(at) => {
            if let Some(queue) = port.queue {
                file.count(queue, at, bytes);
            }
        }
        PortRecord::Dropped { at, packet } if plan.covers(at) => {
            file.instant(port.events, at, &event("drop", "no buffer", &arguments(&packet)));
        }
        PortRecord::Marked { at, packet } if plan.covers(at) => {
            file.instant(port.events, at, &event("mark", "ECN mark", &arguments(&packet)));
        }
        PortRecord::Trimmed { at, packet } if plan.covers(at) => {
            file.instant(port.events, at, &event("trim", "trimmed", &arguments(&packet)));
        }
        _ => {}
    }
}

fn is_fetch(opcode: WcOpcode) -> bool {
    matches!(
        opcode,
        WcOpcode::RdmaRead | WcOpcode::CompareSwap | WcOpcode::FetchAdd | WcOpcode::AtomicWrite | WcOpcode::Flush
    )
}

fn operation_name(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::RdmaWrite => "write",
        WcOpcode::Send => "send",
        WcOpcode::RdmaRead => "read",
        WcOpcode::CompareSwap => "compare and swap",
        WcOpcode::FetchAdd => "fetch and add",
        WcOpcode::AtomicWrite => "atomic write",
        WcOpcode::Flush => "flush",
        WcOpcode::BindWindow => "bind",
        _ => "operation",
    }
}

fn status_name(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "success",
        WcStatus::WrFlushed => "flushed",
        _ => "failed",
    }
}

/// The trace of a run.
pub struct Traces<'s>(&'s mut Simulation);

impl<'s> Traces<'s> {
    /// Returns the trace of `simulation`.
    pub fn of(simulation: &'s mut Simulation) -> Self {
        Self(simulation)
    }

    /// Makes the hosts log their queue pairs, and returns the tracer.
    fn start(self) -> &'s mut Tracer {
        let simulation = self.0;
        if simulation.tracer.is_none() {
            simulation.tracer = Some(Box::new(Tracer::new(simulation)));
            let Simulation { parts, plan, .. } = &mut *simulation;
            for number in 0..plan.topology.hosts() {
                start_log(parts.host_mut(number), || meter(plan, plan.host_rate(number)));
            }
        }
        simulation.tracer.as_mut().expect("it was created")
    }

    /// Starts to divide the latencies of operations, for the report. To be called before the run.
    pub(super) fn measure_latencies(self) {
        self.start().latencies = Some(LatencyCollector::default());
    }

    /// Writes what the plan selects to `output`, in the native format of Perfetto. To be called before the run.
    pub fn write_to(self, output: impl Write + Send + 'static) {
        let simulation = self.0;
        let topology = simulation.plan.topology.build();
        let file = TraceFile::new(Box::new(output), simulation.plan.trace.events_max);
        let selected = Traces(&mut *simulation).start().open(file, &topology);
        for node in selected {
            match node.checked_sub(topology.hosts) {
                None => simulation.parts.host_mut(node).port.start_log(),
                Some(switch) => simulation.parts.switch_mut(switch as usize).start_log(),
            }
        }
    }

    /// Returns the reason why the trace ended before the run, if it did.
    pub fn take_failure(self) -> Option<TraceError> {
        self.0.tracer.as_mut()?.failure.take()
    }
}

/// Ends the trace of a run that has ended.
pub(super) fn finish(simulation: &mut Simulation) {
    if let Some(tracer) = &mut simulation.tracer {
        tracer.collect(&mut simulation.parts);
        tracer.finish(simulation.now);
    }
}
