//! Machine code of graphs: its memory, and the calls of it.

#![expect(unsafe_code, reason = "code that was made at run time is called, and its memory is freed")]

use std::fmt;
use std::sync::{Mutex, PoisonError};

use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, InstBuilder as _, UserFuncName};
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Module as _, default_libcall_names};
use rnic_program::Graph;

use crate::emit;

/// The reason why a program has no machine code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no machine code can be made: {0}")]
pub struct CompileError(String);

impl CompileError {
    fn of(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// A compiled function: the addresses of the input and of the output words.
type Function = unsafe extern "C" fn(*const u64, *mut u64);

/// Machine code of some graphs.
pub(crate) struct Code {
    /// Owner of the memory of the code; taken when it is freed.
    module: Mutex<Option<JITModule>>,
    functions: Vec<Entry>,
}

/// A function, and the words that it reads and writes.
struct Entry {
    function: Function,
    inputs: usize,
    outputs: usize,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code of {} functions", self.functions.len())
    }
}

impl Code {
    /// Compiles `graphs`.
    ///
    /// # Errors
    /// When Cranelift has no code for this processor, or the system gives no memory for it.
    pub(crate) fn new(graphs: &[&Graph]) -> Result<Self, CompileError> {
        let mut module = empty_module()?;
        let mut context = module.make_context();
        let mut builder_context = FunctionBuilderContext::new();
        let mut made = Vec::with_capacity(graphs.len());
        for (at, graph) in (0..).zip(graphs) {
            made.push(define(&mut module, &mut context, &mut builder_context, (at, graph))?);
        }
        module.finalize_definitions().map_err(CompileError::of)?;
        let entry = |(id, graph): (FuncId, &&Graph)| {
            let address = module.get_finalized_function(id);
            // SAFETY: the address is that of a function which `define` has made with this signature, in memory that is
            // executable since `finalize_definitions`, and that is freed when `self` is dropped.
            let function = unsafe { std::mem::transmute::<*const u8, Function>(address) };
            Entry { function, inputs: emit::input_words(graph), outputs: graph.outputs().len() }
        };
        let functions = made.into_iter().zip(graphs).map(entry).collect();
        Ok(Self { module: Mutex::new(Some(module)), functions })
    }

    /// Runs the function of the graph at position `at`.
    ///
    /// # Panics
    /// When there is none, or fewer words than the graph has inputs or outputs.
    #[inline]
    pub(crate) fn run(&self, at: usize, inputs: &[u64], outputs: &mut [u64]) {
        let Entry { function, inputs: read, outputs: written } = self.functions[at];
        assert!(inputs.len() >= read && outputs.len() >= written, "fewer words than the graph has");
        // SAFETY: the function reads the first `read` words at its first argument and writes the first `written` words
        // at its second argument, nothing else: positions are constants of the graph, and those in maps are cut to the
        // words that there are. It has no loop and no division by zero. The code is there as long as `self`.
        unsafe { function(inputs.as_ptr(), outputs.as_mut_ptr()) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(module) = module {
            // SAFETY: the functions are called by `run` only, which borrows `self`, so none runs now or later.
            unsafe { module.free_memory() };
        }
    }
}

/// Returns a module for this processor without functions.
fn empty_module() -> Result<JITModule, CompileError> {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("is_pic", "false"), ("use_colocated_libcalls", "false")] {
        flags.set(name, value).map_err(CompileError::of)?;
    }
    let isa = cranelift_native::builder().map_err(CompileError::of)?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(CompileError::of)?;
    Ok(JITModule::new(JITBuilder::with_isa(isa, default_libcall_names())))
}

/// Compiles the graph at position `at` as a function of `module`.
fn define(
    module: &mut JITModule,
    context: &mut Context,
    builder_context: &mut FunctionBuilderContext,
    (at, graph): (u32, &Graph),
) -> Result<FuncId, CompileError> {
    let mut signature = module.make_signature();
    let pointer = AbiParam::new(module.target_config().pointer_type());
    if pointer.value_type.bits() != 64 {
        return Err(CompileError::of("addresses have not 64 bits"));
    }
    signature.params = vec![pointer, pointer];
    let id = module.declare_anonymous_function(&signature).map_err(CompileError::of)?;
    context.func.signature = signature;
    context.func.name = UserFuncName::user(0, at);
    let mut builder = FunctionBuilder::new(&mut context.func, builder_context);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    let (inputs, outputs) = (builder.block_params(block)[0], builder.block_params(block)[1]);
    emit::graph(&mut builder, graph, inputs, outputs);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(module.target_config());
    module.define_function(id, context).map_err(CompileError::of)?;
    module.clear_context(context);
    Ok(id)
}
