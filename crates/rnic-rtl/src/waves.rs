//! One connection of a simulated network in a circuit: what its engines receive and decide, recorded by observers, and
//! replayed in the circuit, whose signals become waves.
//!
//! | transport | circuit | event |
//! |---|---|---|
//! | a program (`tonic-*`, program files) | its two emitted functions around its state | a call of the program |
//! | `irn` | `irn_connection`: the four modules around the contexts of both ends | a packet, a timeout |
//! | `fasr` | `fasr_connection`: the SR module of each end, with pools of its own | a packet, a timeout |
//!
//! The circuit answers each event, in one cycle or some, as the engine did: its outputs are compared with what the
//! engine decided.
//! The time of the waves is that of the simulation.

mod fasr;
mod irn;
mod program;
mod save;

use core::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rnic_base::Time;
use rnic_engine::{DriverCall, Engine, Observer, Transport};
use rnic_policy::Protocol;
use rnic_wire::Qpn;

use crate::circuit::{Circuit, record_words};
use crate::tools::ToolError;
use crate::verilated::Verilated;

pub use save::save_file;

/// Largest number of events that are recorded: waves of more take hundreds of megabytes.
pub const EVENTS_MAX: usize = 200_000;

/// Time for which the inputs of an event are shown, unless the next event is earlier.
const PULSE_PS: u64 = 10_000;

/// Time between two records at least: a cycle takes two half cycles of a picosecond.
const CYCLE_PS: u64 = 2;

/// Records in a batch for the circuit.
const BATCH: usize = 4_096;

/// An event at one end of a connection, for the circuit.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    at: Time,
    /// Further cycles, without inputs, after which the outputs are determined.
    cycles: usize,
    /// Words of the inputs, without the time, which is the first one.
    inputs: Vec<u64>,
    /// Words of the outputs that are determined, and their values.
    outputs: Vec<(usize, u64)>,
}

impl Event {
    /// Returns an event of a circuit with these names of inputs and of outputs. Inputs without a value are zero, and
    /// other outputs than the expected ones are not determined.
    fn of(
        at: Time,
        cycles: usize,
        [inputs, outputs]: [&[&str]; 2],
        values: &[(&str, u64)],
        expected: &[(&str, u64)],
    ) -> Self {
        let place = |names: &[&str], name: &str| {
            names.iter().position(|known| *known == name).expect("the port is in the list of the recording")
        };
        let mut words = vec![0; inputs.len()];
        values.iter().for_each(|(name, value)| words[place(inputs, name)] = *value);
        let outputs = expected.iter().map(|(name, value)| (place(outputs, name), *value)).collect();
        Self { at, cycles, inputs: words, outputs }
    }
}

/// Events of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Name of the events, in the plural.
    pub name: &'static str,
    /// Number of them.
    pub events: u64,
}

/// A recording of a connection.
trait Recorded: Debug + Send {
    /// Records a call of `engine` at one end, 0 for the sender, whose queue pair is `qpn`; `engine` has the state after
    /// it.
    fn note(&mut self, engine: &Engine, now: Time, end: usize, qpn: Qpn, call: &DriverCall<'_>);

    /// Returns the number of recorded events.
    fn len(&self) -> usize;

    /// Returns them as a stimulus of the circuit, each end in order of time.
    ///
    /// # Errors
    /// When the engine did something else than the specification of the circuit.
    fn take(&mut self) -> Result<Stimulus, String>;
}

/// Recorder of one connection. Copies record into the same place.
#[derive(Clone, Debug)]
pub struct Recorder {
    recording: Arc<Mutex<Box<dyn Recorded>>>,
    transport: Option<Arc<Transport>>,
}

impl Recorder {
    /// Returns a recorder for a connection with the transport `planned`.
    ///
    /// # Errors
    /// When no circuit does what the transport does; the text says why, and which transports have one.
    pub fn new(planned: &Transport) -> Result<Self, String> {
        let profile = planned.profile();
        let recovery = &profile.recovery.policy;
        let (recording, transport): (Box<dyn Recorded>, _) = if recovery.program.is_some() {
            let (recording, transport) = program::Recording::new(profile)?;
            (Box::new(recording), Some(Arc::new(transport)))
        } else if profile.protocol == Protocol::Irn && recovery.name == "irn" {
            (irn::recording(profile)?, None)
        } else if profile.protocol == Protocol::Fasr && recovery.name == "fasr" {
            (Box::new(fasr::Recording::new(profile)?), None)
        } else {
            let programs: Vec<&str> = rnic_transports::programs::policies().iter().map(|policy| policy.name).collect();
            let programs = programs.join(", ");
            let name = profile.name;
            return Err(format!(
                "transport `{name}` has no circuit to show packets in; these have one: fasr, irn, {programs}"
            ));
        };
        Ok(Self { recording: Arc::new(Mutex::new(recording)), transport })
    }

    /// Returns the transport that the sender must use, if it is not the planned one: it notes the calls of the program.
    pub fn transport(&self) -> Option<Arc<Transport>> {
        self.transport.clone()
    }

    /// Returns the observer of the engine at one end, 0 for the sender, whose queue pair is `qpn`.
    pub fn observer(&self, end: usize, qpn: Qpn) -> Box<dyn Observer> {
        Box::new(End { recorder: self.clone(), end, qpn })
    }

    /// Returns whether as many events have been recorded as are shown.
    pub fn is_full(&self) -> bool {
        self.lock().len() >= EVENTS_MAX
    }

    /// Returns what has been recorded, as a stimulus of a circuit.
    ///
    /// # Errors
    /// When nothing was recorded, or the engine did something that the specification of the circuit does not do.
    pub fn take(&self) -> Result<Stimulus, String> {
        let mut stimulus = self.lock().take()?;
        if stimulus.events.is_empty() {
            return Err("nothing happens in this connection that a circuit decides".to_owned());
        }
        stimulus.events.sort_by_key(|event| event.at);
        Ok(stimulus)
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Recorded>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Observer of the engine at one end of the connection.
#[derive(Debug)]
struct End {
    recorder: Recorder,
    end: usize,
    qpn: Qpn,
}

impl Observer for End {
    fn note(&mut self, engine: &Engine, now: Time, call: &DriverCall<'_>) {
        let mut recording = self.recorder.lock();
        if recording.len() < EVENTS_MAX {
            recording.note(engine, now, self.end, self.qpn, call);
        }
    }
}

/// Inputs of a circuit over time, and its expected answers.
#[derive(Debug)]
pub struct Stimulus {
    circuit: Circuit,
    events: Vec<Event>,
    /// Events by kind.
    pub counts: Vec<Count>,
    /// Signals that show most.
    pub signals: Vec<String>,
}

/// Answers of a circuit that were compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Cycles of the circuit.
    pub cycles: u64,
    /// Events.
    pub events: u64,
    /// Values of outputs that were compared.
    pub compared: u64,
}

/// Reason why there are no waves, or wrong ones.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A tool is missing or fails.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The model's process has ended.
    #[error("the model of the circuit has ended: {0}")]
    Ended(#[from] std::io::Error),
    /// The circuit has decided another way than the engine.
    #[error("at {at} the circuit answers {output} = {found}, and the engine {expected}")]
    Differs {
        /// Time of the event.
        at: Time,
        /// Name of the output.
        output: String,
        /// Value in the circuit.
        found: u64,
        /// Value in the engine.
        expected: u64,
    },
}

impl Stimulus {
    /// Returns the name of the circuit's module.
    pub fn module(&self) -> &str {
        &self.circuit.module
    }

    /// Compiles the model of the circuit.
    ///
    /// # Errors
    /// When a tool is missing or fails.
    pub fn build(&self) -> Result<Verilated, ToolError> {
        Verilated::build_with_waves(std::slice::from_ref(&self.circuit))
    }

    /// Runs the circuit on all events, writes its signals to `waves`, and compares its answers.
    ///
    /// # Errors
    /// The first difference; the waves end after it.
    pub fn replay(&self, verilated: &Verilated, waves: &Path) -> Result<Answered, ReplayError> {
        let model = &mut verilated.start_with_waves(&self.circuit.name, 1, waves)?;
        let mut answered = Answered { cycles: 0, events: self.events.len() as u64, compared: 0 };
        let (times, words) = (self.times(), record_words(&self.circuit.inputs));
        for (first, batch) in (0..).step_by(BATCH).zip(self.events.chunks(BATCH)) {
            let (mut records, mut positions) = (Vec::new(), Vec::new());
            for (number, event) in (first..).zip(batch) {
                let mut now = times[number];
                records.push(now);
                records.extend(&event.inputs);
                for _ in 0..event.cycles {
                    now += CYCLE_PS;
                    records.push(now);
                    records.extend(core::iter::repeat_n(0, words - 1));
                }
                positions.push(records.len() / words - 1);
                if times.get(number + 1).is_none_or(|next| *next > now + PULSE_PS + CYCLE_PS) {
                    records.push(now + PULSE_PS);
                    records.extend(core::iter::repeat_n(0, words - 1));
                }
            }
            answered.cycles += (records.len() / words) as u64;
            answered.compared += self.compare(batch, &positions, &model.run(&records)?)?;
        }
        Ok(answered)
    }

    /// Returns the times of the events in the waves, in picoseconds: those of the simulation, and later where several
    /// events have the same.
    fn times(&self) -> Vec<u64> {
        let mut free = CYCLE_PS;
        let time = |event: &Event| {
            let now = event.at.as_ps().max(free);
            free = now + (2 + event.cycles as u64) * CYCLE_PS;
            now
        };
        self.events.iter().map(time).collect()
    }

    /// Compares the answers to a batch, in which events have the records at `positions`; returns how many values.
    fn compare(&self, batch: &[Event], positions: &[usize], answers: &[u64]) -> Result<u64, ReplayError> {
        let words = record_words(&self.circuit.outputs);
        let mut compared = 0;
        for (event, position) in batch.iter().zip(positions) {
            let answer = &answers[position * words..][..words];
            if let Some((at, expected)) = event.outputs.iter().find(|(at, expected)| answer[*at] != *expected) {
                let output = self.output_of(*at);
                return Err(ReplayError::Differs { at: event.at, output, found: answer[*at], expected: *expected });
            }
            compared += event.outputs.len() as u64;
        }
        Ok(compared)
    }

    /// Returns the name of the output with this word.
    fn output_of(&self, word: usize) -> String {
        let mut words = self.circuit.outputs.iter().flat_map(|wire| core::iter::repeat_n(&wire.name, wire.words));
        words.nth(word).cloned().unwrap_or_default()
    }
}
