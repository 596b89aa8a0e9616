//! The interpreter of WebAssembly modules: `wasmi`.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use wasmi::{Config, Engine, Linker, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, TypedFunc};

use super::module::{self, printable};
use super::{FUEL, INPUTS_AT, OUTPUTS_AT, WasmError};
use crate::bundle::Bundle;
use crate::fields::Fields as _;
use crate::interface::{Actions, Incoming, Periodic};
use crate::loaded::{WORDS_MAX, Words, input_words, output_count};
use crate::record::{Lowering, RecordError};
use crate::transport::{Description, Executor, Graphs, Needs, Transport};

/// Size of the memory in bytes: one page.
const MEMORY_BYTES: usize = 64 << 10;

/// Maximum depth of calls inside a module.
const RECURSION_MAX: usize = 64;

/// A program that is a WebAssembly module.
pub struct WasmProgram {
    description: Description,
    running: Mutex<Running>,
}

type Function = TypedFunc<(u32, u32), ()>;

struct Running {
    store: Store<StoreLimits>,
    memory: Memory,
    /// Contents of the memory at the beginning of each call.
    initial: Box<[u8]>,
    incoming: Function,
    periodic: Function,
}

impl fmt::Debug for WasmProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WasmProgram({})", self.description.name)
    }
}

impl WasmProgram {
    /// Checks a module and prepares it for execution.
    ///
    /// # Errors
    /// When it is not a valid program.
    pub fn new(bytes: &[u8]) -> Result<Self, WasmError> {
        let description = module::description(bytes)?;
        description.check().map_err(crate::loaded::LoadError::from)?;
        Ok(Self { running: Mutex::new(Running::new(bytes)?), description })
    }

    fn run<E: Bundle>(&self, is_incoming: bool, event: &E, around: (&[u64], &mut [u8], &mut Actions)) {
        let (parameters, state, actions) = around;
        let inputs = input_words(&self.description, event, parameters, state, actions);
        let fields = self.description.state.len();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.call(is_incoming, &inputs, output_count(&self.description)) {
            Some(outputs) => {
                self.description.store_state(&outputs[..fields], state);
                *actions = Actions::read_words(&outputs[fields..]);
            }
            // Outside the contract.
            None => *actions = Actions::default(),
        }
    }
}

impl Running {
    fn new(bytes: &[u8]) -> Result<Self, WasmError> {
        let invalid = |error: wasmi::Error| WasmError::Invalid(printable(&error.to_string()));
        let engine = Engine::new(&config());
        let module = Module::new(&engine, bytes).map_err(invalid)?;
        let limits = StoreLimitsBuilder::new().memory_size(MEMORY_BYTES).memories(1).tables(0).instances(1).build();
        let mut store = Store::new(&engine, limits);
        store.limiter(|limits| limits);
        store.set_fuel(FUEL).map_err(invalid)?;
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module).map_err(invalid)?;
        let memory = instance.get_memory(&store, "memory").ok_or(WasmError::Export("`memory`"))?;
        let initial: Box<[u8]> = memory.data(&store).into();
        if initial.len() != MEMORY_BYTES {
            return Err(WasmError::Forbidden(
                "a memory that does not begin with one page",
                "link it with --initial-memory=65536 -z stack-size=1024",
            ));
        }
        let function = |name: &str, error| {
            let function: Result<Function, _> = instance.get_typed_func(&store, name);
            function.map_err(|_| WasmError::Export(error))
        };
        let incoming = function("incoming", "`incoming`, a function (i32, i32) -> ()")?;
        let periodic = function("periodic", "`periodic`, a function (i32, i32) -> ()")?;
        Ok(Self { memory, initial, incoming, periodic, store })
    }

    /// Runs a function; returns `None` if it trapped or exceeded its limit of operations.
    fn call(&mut self, is_incoming: bool, inputs: &[u64], count: usize) -> Option<Words> {
        let bytes = self.memory.data_mut(&mut self.store);
        bytes.copy_from_slice(&self.initial);
        for (place, word) in bytes[INPUTS_AT..].chunks_exact_mut(8).zip(inputs) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let function = if is_incoming { self.incoming } else { self.periodic };
        self.store.set_fuel(FUEL).ok()?;
        function.call(&mut self.store, (INPUTS_AT as u32, OUTPUTS_AT as u32)).ok()?;
        let outputs = self.memory.data(&self.store)[OUTPUTS_AT..].chunks_exact(8).take(count);
        Some(outputs.filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes).collect())
    }
}

/// Returns the settings of the interpreter: plain WebAssembly without floating point, with a limit of operations.
fn config() -> Config {
    const { assert!(INPUTS_AT + 8 * WORDS_MAX <= OUTPUTS_AT && OUTPUTS_AT + 8 * WORDS_MAX <= MEMORY_BYTES) };
    let mut config = Config::default();
    config.consume_fuel(true).floats(false).allow_start_fn(false);
    config.wasm_mutable_global(false).wasm_reference_types(false).wasm_bulk_memory(false).wasm_tail_call(false);
    config.wasm_multi_memory(false).wasm_custom_page_sizes(false);
    config.set_max_recursion_depth(RECURSION_MAX);
    config
}

impl Transport for WasmProgram {
    fn description(&self) -> Description {
        self.description.clone()
    }

    fn incoming(&self, packet: &Incoming, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.run(true, packet, (parameters, state, actions));
    }

    fn periodic(&self, visit: &Periodic, parameters: &[u64], state: &mut [u8], actions: &mut Actions) {
        self.run(false, visit, (parameters, state, actions));
    }

    fn graphs(&self, _: Lowering) -> Result<Graphs, RecordError> {
        Err(RecordError::Construct("a WebAssembly module has no graph, and so no gates".to_owned()))
    }

    fn needs(&self) -> Result<Needs, RecordError> {
        Ok(Needs::ALL)
    }

    fn executor(&self) -> Executor {
        Executor::Interpreted
    }
}
