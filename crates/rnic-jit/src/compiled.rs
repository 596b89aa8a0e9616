//! A program that runs as machine code.

use rnic_program::loaded::{Words, input_words, output_count};
use rnic_program::{
    Actions, Bundle, Description, Executor, Fields as _, Graphs, Incoming, Loaded, Lowering, Needs, Periodic,
    RecordError, Transport,
};

use crate::code::{Code, CompileError};

/// A program as machine code.
#[derive(Debug)]
pub struct Compiled {
    program: Loaded,
    description: Description,
    code: Code,
}

impl Compiled {
    /// Compiles both functions of `program`.
    ///
    /// # Errors
    /// When Cranelift does not support this processor, or the system gives no executable memory.
    pub fn new(program: Loaded) -> Result<Self, CompileError> {
        let Graphs { incoming, periodic } = program.graphs_ref();
        let code = Code::new(&[incoming, periodic])?;
        Ok(Self { description: program.description(), program, code })
    }

    fn run<E: Bundle>(&self, function: usize, event: &E, around: (&[u64], &mut [u8], &mut Actions)) {
        let (parameters, state, actions) = around;
        let inputs = input_words(&self.description, event, parameters, state, actions);
        let fields = self.description.state.len();
        let mut outputs: Words = std::iter::repeat_n(0, output_count(&self.description)).collect();
        self.code.run(function, &inputs, &mut outputs);
        self.description.store_state(&outputs[..fields], state);
        *actions = Actions::read_words(&outputs[fields..]);
    }
}

/// Positions of the functions.
const INCOMING: usize = 0;
const PERIODIC: usize = 1;

impl Transport for Compiled {
    fn description(&self) -> Description {
        self.description.clone()
    }

    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.run(INCOMING, packet, (parameters, state, actions));
    }

    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.run(PERIODIC, visit, (parameters, state, actions));
    }

    fn graphs(&self, lowering: Lowering) -> Result<Graphs, RecordError> {
        self.program.graphs(lowering)
    }

    fn needs(&self) -> Result<Needs, RecordError> {
        self.program.needs()
    }

    fn executor(&self) -> Executor {
        Executor::Compiled
    }
}
