//! A program given by its graphs, such as one loaded from a file: it is run by the interpreter.

use arrayvec::ArrayVec;

use crate::bundle::Bundle;
use crate::fields::{DescriptionError, Fields as _};
use crate::graph::{Graph, Kind, Port};
use crate::ignored;
use crate::interface::{Actions, Incoming, Periodic};
use crate::machine::Machine;
use crate::record::{Lowering, RecordError};
use crate::transport::{Current, Description, Executor, Graphs, Needs, Transport};

/// Maximum number of words of the inputs, and of the outputs, of a function.
pub const WORDS_MAX: usize = 160;

/// Words of a function's inputs or outputs.
pub type Words = ArrayVec<u64, WORDS_MAX>;

/// A program that the interpreter runs.
#[derive(Clone, Debug)]
pub struct Loaded {
    description: Description,
    graphs: Graphs,
    incoming: Machine,
    periodic: Machine,
}

/// Reason why graphs and a description are not a valid program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The description is invalid.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A function could not be traced into a graph.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A graph has other inputs or outputs than the description requires.
    #[error("function {function}: its {direction} are not those of this program: expected {expected}, found {found}")]
    Ports {
        /// `incoming`, `periodic` or `decide`.
        function: &'static str,
        /// `inputs` or `outputs`.
        direction: &'static str,
        /// First port that differs, as required.
        expected: String,
        /// First port that differs, as found.
        found: String,
    },
}

impl Loaded {
    /// Builds a program from a description and its graphs, after checking both.
    ///
    /// # Errors
    /// When the description is invalid, or a graph does not have the inputs and outputs that follow from it.
    pub fn new(description: Description, graphs: Graphs) -> Result<Self, LoadError> {
        description.check()?;
        check_ports::<Incoming>("incoming", &description, &graphs.incoming)?;
        check_ports::<Periodic>("periodic", &description, &graphs.periodic)?;
        let (incoming, periodic) = (Machine::new(&graphs.incoming), Machine::new(&graphs.periodic));
        Ok(Self { description, graphs, incoming, periodic })
    }

    /// Traces the functions of `program` into dataflow graphs, and prepares these for execution.
    ///
    /// # Errors
    /// When a function cannot be represented as a graph.
    pub fn of(program: &dyn Transport) -> Result<Self, LoadError> {
        Self::new(program.description(), program.graphs(Lowering::Joins)?)
    }

    /// Returns the graphs.
    pub const fn graphs_ref(&self) -> &Graphs {
        &self.graphs
    }

    fn run<E: Bundle>(&self, machine: &Machine, event: &E, around: (&[u64], &mut [u8], &mut Actions)) {
        let (parameters, state, actions) = around;
        let inputs = input_words(&self.description, event, parameters, state, actions);
        let fields = self.description.state.len();
        let mut outputs: Words = core::iter::repeat_n(0, output_count(&self.description)).collect();
        machine.run(&inputs, &mut outputs);
        self.description.store_state(&outputs[..fields], state);
        *actions = Actions::read_words(&outputs[fields..]);
    }
}

impl Transport for Loaded {
    fn description(&self) -> Description {
        self.description.clone()
    }

    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.run(&self.incoming, packet, (parameters, state, actions));
    }

    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.run(&self.periodic, visit, (parameters, state, actions));
    }

    fn graphs(&self, _: Lowering) -> Result<Graphs, RecordError> {
        Ok(self.graphs.clone())
    }

    fn needs(&self) -> Result<Needs, RecordError> {
        ignored::needs(self)
    }

    fn executor(&self) -> Executor {
        Executor::Interpreted
    }
}

/// Returns the words of a function's inputs, in the order of its graph's ports.
pub fn input_words<E: Bundle>(
    program: &Description,
    event: &E,
    parameters: &[u64],
    state: &[u8],
    actions: &Actions,
) -> Words {
    let mut words: Words = core::iter::repeat_n(0, E::WORDS).collect();
    event.write_words(&mut words);
    let parameter_words = program.parameters.iter().zip(parameters);
    words.extend(parameter_words.map(|(parameter, word)| word & crate::fields::mask(parameter.bits)));
    words.extend(program.state_words(state));
    words.extend([actions.window.get(), actions.rate.get(), actions.timer.get()]);
    words
}

/// Returns the words of a function's outputs, in the order of its graph's ports.
pub fn output_words(program: &Description, state: &[u8], actions: &Actions) -> Words {
    let mut words: Words = program.state_words(state).collect();
    let fields = words.len();
    words.extend(core::iter::repeat_n(0, Actions::WORDS));
    actions.write_words(&mut words[fields..]);
    words
}

/// Returns the number of output words of every function.
pub fn output_count(program: &Description) -> usize {
    program.state.len() + Actions::WORDS
}

/// Returns the ports of a program: the inputs of `incoming`, those of `periodic`, and the outputs of both.
pub fn ports(program: &Description) -> [Vec<Port>; 3] {
    [inputs::<Incoming>(program), inputs::<Periodic>(program), outputs(program)]
}

/// Returns the inputs of a function that takes `E`.
pub(crate) fn inputs<E: Bundle>(program: &Description) -> Vec<Port> {
    let mut inputs = E::ports("in");
    inputs.extend(program.parameters.iter().map(|parameter| named("cfg", &parameter.name, parameter.bits)));
    inputs.extend(program.state.iter().map(|field| named("state", &field.name, field.bits)));
    inputs.extend(Current::ports("cur"));
    inputs
}

/// Returns the outputs of every function.
pub(crate) fn outputs(program: &Description) -> Vec<Port> {
    let mut outputs: Vec<Port> = program.state.iter().map(|field| named("next", &field.name, field.bits)).collect();
    outputs.extend(Actions::ports("act"));
    outputs
}

/// Returns the port of a number.
pub(crate) fn named(group: &str, name: &str, bits: u8) -> Port {
    Port { name: format!("{group}_{name}"), kind: Kind::Bits(bits) }
}

fn check_ports<E: Bundle>(function: &'static str, program: &Description, graph: &Graph) -> Result<(), LoadError> {
    compare(function, "inputs", &inputs::<E>(program), graph.inputs())?;
    let found: Vec<Port> = graph.outputs().iter().map(|(port, _)| port.clone()).collect();
    compare(function, "outputs", &outputs(program), &found)
}

/// Compares the inputs or the outputs of a loaded function with those that it should have.
///
/// # Errors
/// An error that names the first one that differs.
pub(crate) fn compare(
    function: &'static str,
    direction: &'static str,
    expected: &[Port],
    found: &[Port],
) -> Result<(), LoadError> {
    let show = |port: Option<&Port>| match port {
        Some(Port { name, kind: Kind::Bits(bits) }) => format!("{name} ({bits} bits)"),
        Some(Port { name, kind: Kind::Map }) => format!("{name} (map)"),
        None => "none".to_owned(),
    };
    match (0..expected.len().max(found.len())).find(|&at| expected.get(at) != found.get(at)) {
        None => Ok(()),
        Some(at) => {
            let (expected, found) = (show(expected.get(at)), show(found.get(at)));
            Err(LoadError::Ports { function, direction, expected, found })
        }
    }
}
