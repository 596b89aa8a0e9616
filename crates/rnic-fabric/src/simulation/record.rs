//! Takes the samples of a recording, between windows.

use std::sync::Arc;

use rnic_base::{BitRate, Duration, Time, prefetch, prefetch_whole};
use rnic_engine::QpSnapshot;
use slab::Slab;

use super::builder::meter;
use super::connect::{ActiveFlow, Flow};
use super::parts::Parts;
use super::{Plan, Simulation};
use crate::plan::TopologyPlan;
use crate::port::Port;
use crate::record::{Batch, Metric, Object, ObjectKind, ROWS_MAX, RecordError, RecordPlan, Recording, Sample};
use crate::topology::{LinkPoint, Topology};
use crate::workload::WorkloadPlan;

/// A recording in progress.
pub(super) struct Recorder {
    plan: RecordPlan,
    /// Names of the hosts, when they are not those of their numbers.
    host_names: Vec<String>,
    recording: Box<dyn Recording>,
    /// Nominal time of the next sample.
    next: Time,
    /// Time of the previous sample.
    last: Time,
    objects: Vec<Object>,
    /// Links that hosts and then switches send on, which are the first objects.
    links: Vec<Link>,
    /// Paused time in picoseconds and packets lost of each link, when the plan has pauses or faults.
    link_events: Vec<Counters<2>>,
    /// First object of switches, and the previous counters of each.
    switches: (u32, Vec<Counters<4>>),
    /// First object of hosts, and the previous counters of each.
    hosts: (u32, Vec<Counters<4>>),
    /// By slot of the flow in the table of flows in progress.
    flows: Slab<TrackedFlow>,
    /// By slot in the table of flows in progress: key in `flows`, plus 1; 0 for none.
    tracked: Vec<u32>,
    /// Flows that have ended since the previous sample: objects, payload that arrived since then, and packets
    /// retransmitted.
    ended: Vec<(u32, [u64; 2])>,
    classes: Vec<Class>,
    /// True when these are the groups of traffic.
    has_groups: bool,
    signals: Signals,
    /// Samples of this time.
    rows: Rows,
    written: u64,
    /// Reason why the recording has ended before the run.
    failure: Option<RecordError>,
}

/// Events that are possible in the network of a plan: metrics that are zero by the plan are not recorded.
#[derive(Clone, Copy, Debug)]
struct Signals {
    pauses: bool,
    marks: bool,
    trims: bool,
    faults: bool,
}

impl Signals {
    fn of(plan: &Plan) -> Self {
        let switch = plan.switch.as_ref().filter(|_| plan.topology != TopologyPlan::PointToPoint);
        Self {
            pauses: switch.is_some_and(|switch| switch.pfc.is_some()),
            marks: switch.is_some_and(|switch| switch.ecn.is_some()),
            trims: switch.is_some_and(|switch| switch.trim.is_some()),
            faults: !plan.faults.is_empty(),
        }
    }
}

/// Counters at the previous sample.
#[derive(Clone, Copy, Debug)]
struct Counters<const N: usize>([u64; N]);

impl<const N: usize> Counters<N> {
    /// Returns the increase of each counter since the previous sample.
    fn advance(&mut self, now: [u64; N]) -> [u64; N] {
        let increase = core::array::from_fn(|index| now[index] - self.0[index]);
        self.0 = now;
        increase
    }
}

/// Samples before they are passed on. Small, because a simulation leaves little of them in the caches from one time to
/// the next; those of many times together, because a thread that waits for them is woken for each batch.
#[derive(Default, Debug)]
struct Rows {
    times: Vec<(Time, usize)>,
    /// Series of the values of a time; empty until the first one is complete.
    series: Arc<[(u32, Metric)]>,
    /// The same of the first time.
    first: Vec<(u32, Metric)>,
    values: Vec<f64>,
    /// Samples of flows.
    of_flows: Vec<Sample>,
}

impl Rows {
    /// Adds a sample of an object that exists for the whole run: the n-th one of each time is of the same series.
    fn push(&mut self, object: u32, metric: Metric, value: f64) {
        if self.series.is_empty() {
            self.first.push((object, metric));
        }
        self.values.push(value);
    }

    /// Ends the samples of time `at`.
    fn end(&mut self, at: Time) {
        if self.series.is_empty() {
            self.series = core::mem::take(&mut self.first).into();
        }
        self.times.push((at, self.of_flows.len()));
        debug_assert_eq!(self.values.len(), self.series.len() * self.times.len());
    }

    fn len(&self) -> usize {
        self.values.len() + self.of_flows.len()
    }

    fn take(&mut self) -> Batch {
        // The next batch is about as large.
        let (values, flows) = (self.values.len(), self.of_flows.len());
        let values = core::mem::replace(&mut self.values, Vec::with_capacity(values));
        let others = core::mem::replace(&mut self.of_flows, Vec::with_capacity(flows));
        Batch::new(core::mem::take(&mut self.times), self.series.clone(), values, others)
    }
}

/// One direction of a link at the previous sample.
#[derive(Clone, Copy, Default, Debug)]
struct Link {
    /// Bytes that waited, integrated over time.
    waited: u128,
    /// Busy time.
    busy: Duration,
}

/// A flow in progress.
#[derive(Debug)]
struct TrackedFlow {
    flow: u32,
    /// The object of the flow, when flows are recorded.
    object: Option<u32>,
    class: usize,
    /// Payload that arrived, and packets retransmitted.
    counters: Counters<2>,
}

/// Flows of one class.
#[derive(Debug)]
struct Class {
    object: u32,
    /// Payload that arrived since the previous sample.
    arrived: u64,
    in_progress: u64,
}

impl Recorder {
    fn new(plan: &Plan, record: &RecordPlan, recording: Box<dyn Recording>) -> Self {
        let topology = plan.topology.build();
        let mut objects = Vec::new();
        let mut add = |kind, name, flow| {
            objects.push(Object { kind, name, flow });
            objects.len() as u32 - 1
        };
        let mut links = Vec::new();
        if record.has(ObjectKind::Link) {
            for (from, to) in directions(&topology) {
                add(ObjectKind::Link, topology.direction_name(from, to), None);
                links.push(Link::default());
            }
        }
        let mut nodes = |kind, nodes: core::ops::Range<u32>| {
            let nodes = if record.has(kind) { nodes } else { 0..0 };
            let added: Vec<u32> = nodes.map(|node| add(kind, topology.name(node), None)).collect();
            (added.first().copied().unwrap_or(0), vec![Counters([0; 4]); added.len()])
        };
        let switches = nodes(ObjectKind::Switch, topology.hosts..topology.node_count() as u32);
        let hosts = nodes(ObjectKind::Host, 0..topology.hosts);
        let classes: Vec<&str> = match &plan.workload {
            _ if !record.has(ObjectKind::Traffic) => Vec::new(),
            WorkloadPlan::Incast { background: Some(_), .. } => vec!["requests", "background"],
            WorkloadPlan::Incast { .. } => vec!["requests"],
            WorkloadPlan::Groups(groups) => groups.iter().map(|group| group.name.as_str()).collect(),
            _ => vec!["flows"],
        };
        let class = |name: &&str| Class {
            object: add(ObjectKind::Traffic, (*name).to_owned(), None),
            arrived: 0,
            in_progress: 0,
        };
        let classes = classes.iter().map(class).collect();
        Self {
            host_names: topology.host_names.clone(),
            plan: record.clone(),
            recording,
            next: Time::ZERO + record.interval,
            last: Time::ZERO,
            objects,
            link_events: vec![Counters([0; 2]); links.len()],
            links,
            switches,
            hosts,
            flows: Slab::new(),
            tracked: Vec::new(),
            ended: Vec::new(),
            classes,
            has_groups: !plan.workload.groups().is_empty(),
            signals: Signals::of(plan),
            rows: Rows::default(),
            written: 0,
            failure: None,
        }
    }

    fn follows_flows(&self) -> bool {
        self.failure.is_none() && (self.plan.has(ObjectKind::Flow) || !self.classes.is_empty())
    }

    /// Starts to follow a flow; `slot` is its position in the table of flows in progress.
    pub(super) fn open(&mut self, slot: usize, flow: &Flow, active: &ActiveFlow, parts: &Parts) {
        if !self.follows_flows() {
            return;
        }
        let class = match flow.request {
            _ if self.has_groups => usize::from(flow.group),
            None if self.classes.len() > 1 => 1,
            _ => 0,
        };
        let object = self.plan.has(ObjectKind::Flow).then(|| {
            let name =
                |host: u32| self.host_names.get(host as usize).map_or_else(|| format!("host-{host}"), Clone::clone);
            let name = format!("{}>{}", name(flow.src), name(flow.dst));
            self.objects.push(Object { kind: ObjectKind::Flow, name, flow: Some(active.flow) });
            self.objects.len() as u32 - 1
        });
        let counters = Counters([arrived(flow, active, parts), 0]);
        let key = self.flows.insert(TrackedFlow { flow: active.flow, object, class, counters });
        if self.tracked.len() <= slot {
            self.tracked.resize(slot + 1, 0);
        }
        self.tracked[slot] = key as u32 + 1;
        if let Some(class) = self.classes.get_mut(class) {
            class.in_progress += 1;
        }
    }

    /// Stops to follow a flow, whose queue pairs still exist.
    pub(super) fn close(&mut self, slot: usize, flow: &Flow, active: &ActiveFlow, parts: &Parts) {
        let Some(key) = self.tracked.get_mut(slot).map(core::mem::take).filter(|key| *key > 0) else { return };
        let mut tracked = self.flows.remove(key as usize - 1);
        debug_assert_eq!(tracked.flow, active.flow);
        let info = parts.host(flow.src).engine.query_qp(active.src_qpn);
        let retransmitted = info.map_or(tracked.counters.0[1], |info| info.stats.packets_retransmitted);
        let increase = tracked.counters.advance([arrived(flow, active, parts), retransmitted]);
        if let Some(class) = self.classes.get_mut(tracked.class) {
            class.in_progress -= 1;
            class.arrived += increase[0];
        }
        self.ended.extend(tracked.object.map(|object| (object, increase)));
    }

    fn push_of_flow(&mut self, at: Time, object: u32, metric: Metric, value: f64) {
        self.rows.of_flows.push(Sample { at, object, metric, value });
    }

    fn sample_links(&mut self, at: Time, elapsed: Duration, parts: &Parts) {
        if self.links.is_empty() {
            return;
        }
        let mut links = core::mem::take(&mut self.links);
        let mut states = links.iter_mut().zip(0..);
        for (host, next) in with_next(parts.hosts()) {
            next.inspect(|next| prefetch(&next.port));
            let (link, object) = states.next().expect("each host has one link");
            self.sample_port(at, elapsed, &host.port, object, link);
        }
        for (switch, next) in with_next(parts.switches()) {
            next.inspect(|next| next.prefetch_outputs());
            for ((output, port), (link, object)) in switch.ports().iter().enumerate().zip(&mut states) {
                self.sample_port(at, elapsed, port, object, link);
                let waited = switch.waited(output, at);
                let increase = waited - link.waited;
                // The conversion of 128 bits is a call.
                let increase = u64::try_from(increase).map_or(increase as f64, |increase| increase as f64);
                self.rows.push(object, Metric::QueueBytes, switch.waiting_at(output) as f64);
                self.rows.push(object, Metric::QueueMean, increase / elapsed.as_ps() as f64);
                link.waited = waited;
            }
        }
        debug_assert!(states.next().is_none());
        self.links = links;
    }

    /// Samples the sending end of a link.
    fn sample_port(&mut self, at: Time, elapsed: Duration, port: &Port, object: u32, link: &mut Link) {
        let share = |time: Duration| time.as_ps() as f64 / elapsed.as_ps() as f64;
        let busy = port.busy_until(at);
        self.rows.push(object, Metric::Utilisation, share(busy - link.busy));
        link.busy = busy;
        if self.signals.pauses || self.signals.faults {
            let stats = port.stats_at(at);
            let counters = &mut self.link_events[object as usize];
            let [paused, lost] = counters.advance([stats.paused.as_ps(), stats.faulted]);
            if self.signals.pauses {
                self.rows.push(object, Metric::Paused, share(Duration::from_ps(paused)));
            }
            if self.signals.faults {
                self.rows.push(object, Metric::Lost, lost as f64);
            }
        }
    }

    fn sample_switches(&mut self, parts: &Parts) {
        let (first, counters) = &mut self.switches;
        for ((switch, counters), object) in parts.switches().zip(counters).zip(*first..) {
            let pauses = switch.ports().iter().map(Port::pauses_sent).sum();
            let now = [switch.stats.dropped, switch.marked(), switch.trimmed(), pauses];
            let [dropped, marked, trimmed, pauses] = counters.advance(now);
            let mut push = |metric, value: u64| self.rows.push(object, metric, value as f64);
            push(Metric::BufferBytes, switch.bytes_waiting());
            push(Metric::Dropped, dropped);
            let optional = [
                (self.signals.marks, Metric::Marked, marked),
                (self.signals.trims, Metric::Trimmed, trimmed),
                (self.signals.pauses, Metric::PausesSent, pauses),
            ];
            optional
                .into_iter()
                .filter(|(can_happen, ..)| *can_happen)
                .for_each(|(_, metric, value)| push(metric, value));
        }
    }

    fn sample_hosts(&mut self, elapsed: Duration, parts: &Parts) {
        let (first, counters) = &mut self.hosts;
        for (((host, next), counters), object) in with_next(parts.hosts()).zip(counters).zip(*first..) {
            if let Some(next) = next {
                prefetch_whole(next.engine.stats());
                next.meter.as_deref().inspect(|meter| prefetch_whole(*meter));
            }
            let stats = host.engine.stats();
            let payload = host.meter.as_ref().map_or(0, |meter| meter.total());
            let now = [payload, stats.packets_retransmitted, stats.marks_received, stats.timeouts];
            let [payload, retransmitted, marks, timeouts] = counters.advance(now);
            let mut push = |metric, value| self.rows.push(object, metric, value);
            push(Metric::Arrived, BitRate::from_transfer(payload, elapsed).as_gbps_f64());
            push(Metric::Retransmitted, retransmitted as f64);
            if self.signals.marks {
                push(Metric::MarksReceived, marks as f64);
            }
            push(Metric::Timeouts, timeouts as f64);
        }
    }

    /// Samples a flow: its counters, and, when flows are recorded, the state of its queue pair.
    fn sample_flow(
        &mut self,
        at: Time,
        elapsed: Duration,
        tracked: &mut TrackedFlow,
        (flow, active): (&Flow, &ActiveFlow),
        parts: &Parts,
    ) {
        let engine = &parts.host(flow.src).engine;
        let snapshot = tracked.object.and_then(|_| QpSnapshot::of(engine, active.src_qpn));
        let retransmitted = snapshot.as_ref().map_or(0, |snapshot| snapshot.info.stats.packets_retransmitted);
        let increase = tracked.counters.advance([arrived(flow, active, parts), retransmitted]);
        if let Some(class) = self.classes.get_mut(tracked.class) {
            class.arrived += increase[0];
        }
        let (Some(object), Some(snapshot)) = (tracked.object, snapshot) else { return };
        self.push_counters(at, elapsed, object, increase);
        self.push_of_flow(at, object, Metric::Window, snapshot.window as f64);
        self.push_of_flow(at, object, Metric::InFlight, snapshot.in_flight as f64);
        if let Some(rate) = snapshot.allowed_rate {
            self.push_of_flow(at, object, Metric::Rate, rate.as_gbps_f64());
        }
        if let Some(round_trip) = snapshot.round_trip {
            self.push_of_flow(at, object, Metric::RoundTrip, round_trip.as_us_f64());
        }
    }

    /// Samples the flows that have ended since the previous sample, for the last time.
    fn sample_ended(&mut self, at: Time, elapsed: Duration) {
        for (object, increase) in core::mem::take(&mut self.ended) {
            self.push_counters(at, elapsed, object, increase);
        }
    }

    fn push_counters(&mut self, at: Time, elapsed: Duration, object: u32, [payload, retransmitted]: [u64; 2]) {
        self.push_of_flow(at, object, Metric::Arrived, BitRate::from_transfer(payload, elapsed).as_gbps_f64());
        self.push_of_flow(at, object, Metric::Retransmitted, retransmitted as f64);
    }

    fn sample_classes(&mut self, elapsed: Duration) {
        for class in &mut self.classes {
            let arrived = BitRate::from_transfer(core::mem::take(&mut class.arrived), elapsed);
            self.rows.push(class.object, Metric::Arrived, arrived.as_gbps_f64());
            self.rows.push(class.object, Metric::Flows, class.in_progress as f64);
        }
    }

    /// Takes the samples of all objects.
    fn sample(&mut self, at: Time, simulation: &Simulation) {
        if at <= self.last {
            return;
        }
        let (elapsed, parts) = (at.since(self.last), &simulation.parts);
        self.sample_links(at, elapsed, parts);
        self.sample_switches(parts);
        self.sample_hosts(elapsed, parts);
        if self.follows_flows() {
            let mut flows = core::mem::take(&mut self.flows);
            for (_, tracked) in &mut flows {
                let flow = &simulation.flows[tracked.flow as usize];
                let active = &simulation.active[flow.slot()];
                self.sample_flow(at, elapsed, tracked, (flow, active), parts);
            }
            self.flows = flows;
            self.sample_ended(at, elapsed);
        }
        self.sample_classes(elapsed);
        self.last = at;
        self.rows.end(at);
        if self.rows.len() >= BATCH_ROWS_MIN {
            self.write();
        }
    }

    /// Returns whether samples are due at `now`.
    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next <= now
    }

    /// Passes the samples on; a failure ends the recording.
    fn write(&mut self) {
        let batch = self.rows.take();
        self.written += batch.len() as u64;
        let written = if self.written > ROWS_MAX {
            Err(RecordError::Full(ROWS_MAX))
        } else {
            self.recording.write(&self.objects, batch)
        };
        self.failure = written.err();
    }
}

/// Number of rows that are passed on together, at least: half a megabyte.
const BATCH_ROWS_MIN: usize = 1 << 16;

/// Returns each of `items`, with one that follows a little later: it can be prefetched.
fn with_next<T>(items: impl Iterator<Item = T> + Clone) -> impl Iterator<Item = (T, Option<T>)> {
    let mut later = items.clone().skip(NODES_AHEAD);
    items.map(move |item| (item, later.next()))
}

/// Number of nodes between one that is prefetched and the one that is sampled.
const NODES_AHEAD: usize = 4;

/// Returns the payload that has arrived for a flow, at either end.
fn arrived(flow: &Flow, active: &ActiveFlow, parts: &Parts) -> u64 {
    let at = |host: u32, qpn| parts.host(host).meter.as_ref().map_or(0, |meter| meter.total_of(qpn));
    at(flow.src, active.src_qpn) + at(flow.dst, active.dst_qpn)
}

/// Returns both ends of every direction of every link, in the order of nodes and ports.
fn directions(topology: &Topology) -> impl Iterator<Item = (LinkPoint, LinkPoint)> {
    let nodes = topology.neighbours().into_iter().zip(0..);
    nodes.flat_map(|(ports, node)| {
        ports.into_iter().zip(0..).map(move |((there, _), port)| (LinkPoint { node, port }, there))
    })
}

/// The time series of a run.
pub struct TimeSeries<'s>(&'s mut Simulation);

impl TimeSeries<'_> {
    /// Records what the plan asks for; does nothing if it asks for nothing. To be called before the run.
    pub fn record_to(self, recording: impl Recording) {
        let Simulation { plan, parts, recorder, .. } = self.0;
        let Some(record) = &plan.record else { return };
        let new = Recorder::new(plan, record, Box::new(recording));
        let follows_flows = new.follows_flows();
        for (host, number) in parts.hosts_mut().zip(0..) {
            let meter = host.meter.get_or_insert_with(|| meter(plan, plan.host_rate(number)));
            if follows_flows {
                meter.count_queue_pairs();
                host.engine.watch();
            }
        }
        *recorder = Some(Box::new(new));
    }

    /// Ends the recording; returns it, and the reason why it ended before the run if it did. `None` without one, or if
    /// it is not a `T`.
    pub fn take<T: Recording>(self) -> Option<(Box<T>, Option<RecordError>)> {
        let recorder = *self.0.recorder.take()?;
        let recording: Box<dyn core::any::Any> = recorder.recording;
        Some((recording.downcast().ok()?, recorder.failure))
    }

    /// Takes the samples that are due at or before `until`; all events before it have been processed.
    #[cold]
    pub(super) fn take_until(self, until: Time) {
        let Some(mut recorder) = self.0.recorder.take() else { return };
        while recorder.next <= until && recorder.failure.is_none() {
            // The last window may extend beyond the time of the sample.
            let at = recorder.next.max(self.0.now);
            recorder.sample(at, self.0);
            recorder.next += recorder.plan.interval;
        }
        self.0.recorder = Some(recorder);
    }

    /// Takes the last sample, and completes the recording.
    pub(super) fn finish(self) {
        let Some(mut recorder) = self.0.recorder.take() else { return };
        if recorder.failure.is_none() {
            recorder.sample(self.0.now, self.0);
        }
        if recorder.failure.is_none() && recorder.rows.len() > 0 {
            recorder.write();
        }
        let finished = recorder.recording.finish(&recorder.objects);
        recorder.failure = recorder.failure.take().or(finished.err());
        self.0.recorder = Some(recorder);
    }
}

impl Simulation {
    /// Returns the time series of the run.
    pub fn time_series(&mut self) -> TimeSeries<'_> {
        TimeSeries(self)
    }
}
