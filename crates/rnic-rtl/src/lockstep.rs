//! Runs native code, interpreter and circuit on the same events: outputs and complete next states must be equal.

use rnic_program::loaded::{Words, input_words, output_words};
use rnic_program::{Actions, Description, Fields as _, Graphs, Law, Loaded, Lowering, Stimuli, Transport};

use crate::verilated::Model;

/// Events in a batch for the circuit.
const BATCH: usize = 2_048;

/// When a circuit is tested, one event in this many is also run by the interpreter. Without a circuit, every event is.
const INTERPRETED: u64 = 16;

/// After this many events, parameters, state and settings are drawn at random.
const RESTART: u64 = 512;

/// A function of a transport program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// The function that is called for each packet from the receiver.
    Incoming,
    /// The function that is called when a timer may have expired.
    Periodic,
}

impl Function {
    /// Both functions.
    pub const ALL: [Self; 2] = [Self::Incoming, Self::Periodic];

    /// Returns the name of the function.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Periodic => "periodic",
        }
    }

    /// Returns the graph of the function.
    pub const fn of(self, graphs: &Graphs) -> &rnic_program::Graph {
        match self {
            Self::Incoming => &graphs.incoming,
            Self::Periodic => &graphs.periodic,
        }
    }
}

/// A flow whose events are drawn from a seed, run by native code.
struct Flow<'a> {
    native: &'a dyn Transport,
    program: Description,
    stimuli: Stimuli,
    parameters: Vec<u64>,
    state: Vec<u8>,
    actions: Actions,
    events: u64,
}

impl<'a> Flow<'a> {
    fn new(native: &'a dyn Transport, seed: u64) -> Self {
        let program = native.description();
        let parameters = program.defaults();
        let (state, actions) = (program.initial_state(&parameters), program.initial_actions(&parameters));
        Self { native, program, stimuli: Stimuli::new(seed), parameters, state, actions, events: 0 }
    }

    /// Runs one event, also on `other` if there is one. Returns the words before and after it, and the words after it
    /// on `other`.
    fn step(&mut self, function: Function, other: Option<&Loaded>) -> (Words, Words, Option<Words>) {
        self.events += 1;
        if self.events.is_multiple_of(RESTART) {
            self.parameters = self.stimuli.parameters(&self.program.parameters);
            self.state = self.stimuli.state(&self.program);
            self.actions = self.stimuli.actions();
        }
        let (mut other_state, mut other_actions) = (self.state.clone(), self.actions);
        let (parameters, state, actions) = (&self.parameters, &mut self.state, &mut self.actions);
        let before = match function {
            Function::Incoming => {
                let packet = self.stimuli.incoming();
                let before = input_words(&self.program, &packet, parameters, state, actions);
                self.native.incoming(&packet, parameters, state, actions);
                if let Some(other) = other {
                    other.incoming(&packet, parameters, &mut other_state, &mut other_actions);
                }
                before
            }
            Function::Periodic => {
                let visit = self.stimuli.periodic();
                let before = input_words(&self.program, &visit, parameters, state, actions);
                self.native.periodic(&visit, parameters, state, actions);
                if let Some(other) = other {
                    other.periodic(&visit, parameters, &mut other_state, &mut other_actions);
                }
                before
            }
        };
        let after = output_words(&self.program, state, actions);
        let by_other = other.map(|_| output_words(&self.program, &other_state, &other_actions));
        self.stimuli.apply(actions);
        let Actions { window, rate, timer, .. } = *actions;
        *actions = Actions { window, rate, timer, ..Actions::default() };
        (before, after, by_other)
    }
}

/// The first event after which two forms of a function differ.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{program} {function}: the {form} differs in event {event} of seed {seed}: {output} is {found}, not {expected}"
)]
pub struct Difference {
    /// Name of the program.
    pub program: String,
    /// Name of the function.
    pub function: &'static str,
    /// `interpreter` or `circuit`.
    pub form: &'static str,
    /// Number of the event.
    pub event: u64,
    /// Seed of the events.
    pub seed: u64,
    /// The output that differs.
    pub output: String,
    /// Value computed by native code.
    pub expected: u64,
    /// Value computed by the other form.
    pub found: u64,
}

/// Runs `events` events of one function by native code, by the circuit, and by the interpreter.
///
/// # Errors
/// The first difference; or, if the model's process has ended, a difference at the first event without an answer.
pub fn run(
    native: &dyn Transport,
    function: Function,
    mut circuit: Option<&mut Model>,
    interpreter: Option<&Loaded>,
    (seed, events): (u64, u64),
) -> Result<(), Box<Difference>> {
    let mut flow = Flow::new(native, seed);
    let state = flow.program.state.iter().map(|field| format!("next_{}", field.name));
    let actions = <Actions as rnic_program::Bundle>::FIELDS.iter().map(|field| format!("act_{}", field.name));
    let names = state.chain(actions).collect();
    let outputs = Outputs { program: flow.program.name.to_string(), function: function.name(), seed, names };
    let mut done = 0;
    while done < events {
        let batch = BATCH.min((events - done) as usize) as u64;
        let (mut records, mut expected) = (Vec::new(), Vec::new());
        for event in done..done + batch {
            let referee = interpreter.filter(|_| circuit.is_none() || event % INTERPRETED == 0);
            let (before, after, by_other) = flow.step(function, referee);
            if let Some(found) = by_other {
                outputs.compare("interpreter", event, &after, &found)?;
            }
            records.extend(before);
            expected.push(after);
        }
        if let Some(circuit) = circuit.as_deref_mut() {
            outputs.compare_circuit(circuit, done, &records, &expected)?;
        }
        done += batch;
    }
    Ok(())
}

/// Runs `events` events of a law by native code and by the circuit.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// When the law has no graph, from which its circuit would have been built.
pub fn run_law(law: &dyn Law, circuit: &mut Model, (seed, events): (u64, u64)) -> Result<(), Box<Difference>> {
    let described = law.description();
    let ports = described.kind.event_ports();
    let graph = law.graph(Lowering::Joins).expect("a circuit was built from it");
    let names = graph.outputs().iter().map(|(port, _)| port.name.clone()).collect();
    let outputs = Outputs { program: described.name.to_string(), function: "decide", seed, names };
    let mut stimuli = Stimuli::new(seed);
    let (mut parameters, mut state) = (described.defaults(), described.initial_state(&described.defaults()));
    let mut decision = vec![0; described.kind.output_words()];
    let mut done = 0;
    while done < events {
        let batch = BATCH.min((events - done) as usize) as u64;
        let (mut records, mut expected) = (Vec::new(), Vec::new());
        for event in done..done + batch {
            if event.is_multiple_of(RESTART) {
                parameters = stimuli.parameters(&described.parameters);
                state = stimuli.state(&described);
            }
            let words = stimuli.words(&ports);
            records.extend(words.iter().chain(&parameters).copied().chain(described.state_words(&state)));
            law.decide(&words, &parameters, &mut state, &mut decision);
            expected.push(described.state_words(&state).chain(decision.iter().copied()).collect());
        }
        outputs.compare_circuit(circuit, done, &records, &expected)?;
        done += batch;
    }
    Ok(())
}

/// The outputs of a function whose forms are compared.
struct Outputs {
    program: String,
    function: &'static str,
    seed: u64,
    names: Vec<String>,
}

impl Outputs {
    /// Compares the outputs of `form` in an event with those expected.
    fn compare(&self, form: &'static str, event: u64, expected: &[u64], found: &[u64]) -> Result<(), Box<Difference>> {
        let differs = expected.iter().zip(found).position(|(expected, found)| expected != found);
        match differs.or((found.len() < expected.len()).then_some(found.len())) {
            None => Ok(()),
            Some(at) => Err(Box::new(Difference {
                program: self.program.clone(),
                function: self.function,
                form,
                event,
                seed: self.seed,
                output: self.names[at].clone(),
                expected: expected[at],
                found: found.get(at).copied().unwrap_or(u64::MAX),
            })),
        }
    }

    /// Passes a batch of inputs, of the events from number `first` on, to the circuit, and compares its outputs.
    fn compare_circuit(
        &self,
        circuit: &mut Model,
        first: u64,
        records: &[u64],
        expected: &[Words],
    ) -> Result<(), Box<Difference>> {
        let answers = circuit.run(records).unwrap_or_default();
        for (number, expected) in expected.iter().enumerate() {
            let start = (number * expected.len()).min(answers.len());
            let end = (start + expected.len()).min(answers.len());
            self.compare("circuit", first + number as u64, expected, &answers[start..end])?;
        }
        Ok(())
    }
}
