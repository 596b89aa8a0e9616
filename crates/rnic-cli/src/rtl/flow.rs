//! One flow of any plan in its transport's circuit: the plan is simulated, what the engines at both ends of the flow
//! receive and decide is recorded, and replayed in the circuit.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rnic_base::Time;
use rnic_engine::{Departure, DriverCall, Engine, Observer, Transport, observe};
use rnic_fabric::simulation::{FlowWatch, WatchedFlow, watch_flows};
use rnic_fabric::workload::Operation;
use rnic_fabric::{Plan, Progress, Simulation};
use rnic_reproduce::input::TRACE_BYTES_MAX;
use rnic_rtl::waves::{EVENTS_MAX, Recorder, ReplayError, Stimulus, save_file};
use rnic_wire::Qpn;
use serde::Serialize;

use super::{create, require_verilator};
use crate::args::TraceArgs;
use crate::args::values::pairs;
use crate::built_in::Located;
use crate::console;
use crate::failure::Failure;
use crate::heartbeat::{Heartbeat, Ticker};

/// The JSON object that `rnic rtl trace --json` prints for a flow of a plan.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    plan: &'a Path,
    seed: u64,
    flow: u32,
    transport: &'a str,
    circuit: &'a str,
    out: &'a Path,
    save_file: &'a Path,
    /// Events of the circuit, and of each kind.
    events: u64,
    kinds: BTreeMap<&'static str, u64>,
    cycles: u64,
    /// Values of the circuit's outputs that are those of the engine.
    compared: u64,
    /// Signals that show most.
    signals: &'a [String],
}

/// Shows one flow of a plan in the circuit of its transport.
///
/// # Errors
/// When the plan or a tool cannot be used, the transport has no circuit, or the circuit decides another way than the
/// engine.
pub(super) fn trace(args: &TraceArgs, found: &Located, text: &str) -> Result<(), Failure> {
    if args.program.is_some() {
        let reason = "--program is for networks of cycles (rtl/plans); here: --set 'transport={name=\"tonic-reno\"}'";
        return Err(Failure::Input(reason.to_owned()));
    }
    let plan = read_plan(args, found, text)?;
    let failed = |reason: String| Failure::file(&args.plan, reason);
    let (flow, has_loss) = match args.flow {
        Some(flow) => (flow, true),
        None => first_loss(&plan, args.seed).map_err(failed)?,
    };
    let (recorder, transport) = record(&plan, args.seed, flow).map_err(failed)?;
    let stimulus = recorder.take().map_err(|reason| failed(format!("flow {flow}: {reason}")))?;
    require_verilator()?;
    let out = create(args).map_err(Failure::Input)?;
    console::line(&format!("building the model of {} (10 to 60 s)", stimulus.module()));
    let ticker = Ticker::start(|elapsed| format!("building the model: {} s so far", elapsed.as_secs()));
    let verilated = stimulus.build().map_err(Failure::input)?;
    drop(ticker);
    let answered = stimulus.replay(&verilated, &out).map_err(|error| match error {
        ReplayError::Differs { .. } => Failure::Check(format!("{error}; the waves are in {}", args.out.display())),
        other => Failure::input(other),
    })?;
    let save = out.with_extension("gtkw");
    std::fs::write(&save, save_file(&out, &stimulus)).map_err(|error| Failure::file(&save, error))?;
    if answered.events >= EVENTS_MAX as u64 {
        console::line(&format!("rnic: the waves end after {} events", answered.events));
    }
    if !has_loss {
        console::line("rnic: no flow of this plan retransmits; these are the waves of the first");
    }
    let outcome = Outcome {
        plan: &args.plan,
        seed: args.seed,
        flow,
        transport,
        circuit: stimulus.module(),
        out: &args.out,
        save_file: &args.out.with_extension("gtkw"),
        events: answered.events,
        kinds: stimulus.counts.iter().map(|count| (count.name, count.events)).collect(),
        cycles: answered.cycles,
        compared: answered.compared,
        signals: &stimulus.signals,
    };
    console::result(&line(&outcome, &stimulus), args.json.then_some(&outcome));
    Ok(())
}

/// Returns the result as a line.
fn line(outcome: &Outcome<'_>, stimulus: &Stimulus) -> String {
    let kinds: Vec<String> = stimulus.counts.iter().map(|count| format!("{} {}", count.events, count.name)).collect();
    format!(
        "{}: {} events of flow {} ({}) in {} cycles of {}, each answered as by the engine; open them with: gtkwave {} \
         (its signals: {})\n",
        outcome.out.display(),
        outcome.events,
        outcome.flow,
        kinds.join(", "),
        outcome.cycles,
        outcome.circuit,
        outcome.save_file.display(),
        outcome.signals.join(", "),
    )
}

fn read_plan(args: &TraceArgs, found: &Located, text: &str) -> Result<Plan, Failure> {
    let mut traces = found.folder();
    let folder = traces.clone();
    let mut files = |name: &str| folder.read_text(name, TRACE_BYTES_MAX);
    Plan::from_toml_in(text, &pairs(&args.settings), &mut files, &mut traces)
        .map_err(|error| Failure::file(&found.path, error))
}

/// Observations of a run that is watched.
#[derive(Debug, Default)]
struct Seen {
    /// Number of flows that have started.
    flows: u32,
    /// Why a flow cannot be shown in a circuit, if that is so for one.
    refusal: Option<String>,
    /// Flows that can be, by host and queue pair of their senders.
    senders: HashMap<(u32, Qpn), u32>,
    /// The first flow that could be, and the first of them that retransmitted.
    first: Option<u32>,
    lossy: Option<u32>,
    /// The last flow that can be.
    shown: Option<u32>,
    /// Recorder of the chosen flow, and the name of its transport.
    recorder: Option<(Recorder, &'static str)>,
    /// True when the chosen flow has ended.
    is_done: bool,
}

/// Part of a watch that its observers share.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Seen>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the sender of a flow of such operations sends its data: circuits show Writes and Sends.
const fn sends_data(operation: Operation) -> bool {
    matches!(operation, Operation::Write | Operation::WriteImmediate | Operation::Send)
}

/// Returns a recorder for a flow, if a circuit can show it.
fn recorder_of(operation: Operation, planned: &Transport) -> Result<Recorder, String> {
    if !sends_data(operation) {
        return Err("circuits show Writes and Sends only, and its `op` is another".to_owned());
    }
    Recorder::new(planned)
}

/// Watch that looks for the first flow with a loss.
#[derive(Debug, Default)]
struct Search {
    seen: Shared,
    /// True where a circuit can show a flow with the transport of this address, and with data or not.
    tried: HashMap<(usize, bool), bool>,
}

impl FlowWatch for Search {
    fn transport(&mut self, flow: u32, operation: Operation, planned: &Arc<Transport>) -> Option<Arc<Transport>> {
        let key = (Arc::as_ptr(planned) as usize, sends_data(operation));
        let seen = &self.seen;
        let is_shown = *self.tried.entry(key).or_insert_with(|| match recorder_of(operation, planned) {
            Ok(_) => true,
            Err(refusal) => {
                seen.lock().refusal.get_or_insert(refusal);
                false
            }
        });
        let mut seen = self.seen.lock();
        seen.flows += 1;
        if is_shown {
            seen.first.get_or_insert(flow);
            seen.shown = Some(flow);
        }
        None
    }

    fn opened(&mut self, flow: &WatchedFlow, end: usize, engine: &mut Engine) {
        let mut seen = self.seen.lock();
        if end == 0 && seen.shown == Some(flow.flow) {
            let host = flow.hosts[0];
            seen.senders.insert((host, flow.qpns[0]), flow.flow);
            observe(engine, Some(Box::new(Finder { seen: self.seen.clone(), host })));
        }
    }

    fn closed(&mut self, _: u32) {}
}

/// Observer of a host that looks for retransmissions.
#[derive(Debug)]
struct Finder {
    seen: Shared,
    host: u32,
}

impl Observer for Finder {
    fn note(&mut self, _: &Engine, _: Time, call: &DriverCall<'_>) {
        let DriverCall::Transmit(Some(Departure::Roce(transmit))) = call else { return };
        if transmit.kind.is_retransmission() {
            let mut seen = self.seen.lock();
            let flow = seen.senders.get(&(self.host, transmit.from)).copied();
            seen.lossy = seen.lossy.or(flow);
        }
    }
}

/// Returns the first flow of the plan that can be shown and has a loss; or the first that can be shown, and `false`.
fn first_loss(plan: &Plan, seed: u64) -> Result<(u32, bool), String> {
    let search = Search::default();
    let seen = search.seen.clone();
    // Later flows may have another transport, but none is likely to be shown when those of a thousand are not.
    run(plan, seed, Box::new(search), || {
        let seen = seen.lock();
        seen.lossy.is_some() || seen.first.is_none() && seen.flows > 1_000
    })?;
    let seen = seen.lock();
    match (seen.lossy, seen.first) {
        (Some(flow), _) => Ok((flow, true)),
        (None, Some(flow)) => Ok((flow, false)),
        (None, None) => Err(seen.refusal.clone().unwrap_or_else(|| "the plan's workload has no flows".to_owned())),
    }
}

/// Watch that records one flow.
#[derive(Debug)]
struct Record {
    seen: Shared,
    flow: u32,
}

impl FlowWatch for Record {
    fn transport(&mut self, flow: u32, operation: Operation, planned: &Arc<Transport>) -> Option<Arc<Transport>> {
        let mut seen = self.seen.lock();
        seen.flows += 1;
        if flow != self.flow {
            return None;
        }
        match recorder_of(operation, planned) {
            Ok(recorder) => {
                let own = recorder.transport();
                seen.recorder = Some((recorder, planned.profile().name));
                own
            }
            Err(refusal) => {
                (seen.refusal, seen.is_done) = (Some(refusal), true);
                None
            }
        }
    }

    fn opened(&mut self, flow: &WatchedFlow, end: usize, engine: &mut Engine) {
        let seen = self.seen.lock();
        if let Some((recorder, _)) = seen.recorder.as_ref().filter(|_| flow.flow == self.flow) {
            observe(engine, Some(recorder.observer(end, flow.qpns[end])));
        }
    }

    fn closed(&mut self, flow: u32) {
        self.seen.lock().is_done |= flow == self.flow;
    }
}

/// Records a flow; returns the recorder and the name of the transport.
fn record(plan: &Plan, seed: u64, flow: u32) -> Result<(Recorder, &'static str), String> {
    let seen = Shared::default();
    run(plan, seed, Box::new(Record { seen: seen.clone(), flow }), || {
        let seen = seen.lock();
        seen.is_done || seen.recorder.as_ref().is_some_and(|(recorder, _)| recorder.is_full())
    })?;
    let mut seen = seen.lock();
    match (seen.recorder.take(), seen.refusal.take()) {
        (Some(found), _) => Ok(found),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => Err(format!("there is no flow {flow}: the plan has {}, from 0 on", seen.flows)),
    }
}

/// Runs the plan until `is_enough`, and shows the progress.
fn run(plan: &Plan, seed: u64, watch: Box<dyn FlowWatch>, is_enough: impl Fn() -> bool) -> Result<(), String> {
    let mut simulation = Simulation::new(plan, seed).map_err(|error| error.to_string())?;
    watch_flows(&mut simulation, watch);
    let spinner = console::spinner("simulating");
    let mut heartbeat = Heartbeat::start();
    simulation.run(&mut |progress: &Progress| {
        let text = format!("simulating: {} done, {} flows so far", progress.now, progress.flows_started);
        spinner.set_message(text.clone());
        heartbeat.beat(|_| text);
        if is_enough() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    spinner.finish_and_clear();
    Ok(())
}
