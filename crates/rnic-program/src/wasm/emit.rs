//! WebAssembly from graphs: a local for each node.

use wasm_encoder::{
    BlockType, CodeSection, CustomSection, ExportKind, ExportSection, Function, FunctionSection, InstructionSink,
    MemArg, MemorySection, MemoryType, Module, RawSection, TypeSection, ValType,
};
use wasmparser::{Parser, Payload};

use super::module::printable;
use super::{SECTION, WasmError};
use crate::file::{self, FileError};
use crate::graph::{Graph, Index, Kind, Node, Op};
use crate::transport::{Description, Graphs};
use crate::value::{MAP_WORDS, Map};

/// Parameters of a function: the addresses of its inputs and outputs. Locals follow: one for each node, and
/// [`SCRATCH`] for searches.
const INPUTS: u32 = 0;
const OUTPUTS: u32 = 1;
const NODES: u32 = 2;
const SCRATCH: u32 = 2;

/// Returns a program as a module.
///
/// # Errors
/// When the description cannot be written; this does not happen for one that has been checked.
pub fn emit(program: &Description, graphs: &Graphs) -> Result<Vec<u8>, FileError> {
    let mut module = Module::new();
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32, ValType::I32], []);
    module.section(&types);
    let mut functions = FunctionSection::new();
    functions.function(0).function(0);
    module.section(&functions);
    let mut memories = MemorySection::new();
    let page = MemoryType { minimum: 1, maximum: Some(1), memory64: false, shared: false, page_size_log2: None };
    memories.memory(page);
    module.section(&memories);
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("incoming", ExportKind::Func, 0).export("periodic", ExportKind::Func, 1);
    module.section(&exports);
    let mut code = CodeSection::new();
    code.function(&function(&graphs.incoming)).function(&function(&graphs.periodic));
    module.section(&code);
    let text = file::write_description(program)?;
    module.section(&CustomSection { name: SECTION.into(), data: text.as_bytes().into() });
    Ok(module.finish())
}

/// Returns the module `bytes` with `program` as its description, in place of any earlier one.
///
/// # Errors
/// When `bytes` are not a module.
pub fn with_description(bytes: &[u8], program: &Description) -> Result<Vec<u8>, WasmError> {
    let mut module = Module::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| WasmError::Invalid(printable(error.message())))?;
        if matches!(&payload, Payload::CustomSection(section) if section.name() == SECTION) {
            continue;
        }
        if let Some((id, range)) = payload.as_section() {
            module.section(&RawSection { id, data: &bytes[range] });
        }
    }
    let text = file::write_description(program).map_err(|error| WasmError::Description(Box::new(error)))?;
    module.section(&CustomSection { name: SECTION.into(), data: text.as_bytes().into() });
    Ok(module.finish())
}

fn function(graph: &Graph) -> Function {
    let nodes = graph.nodes();
    let mut function = Function::new([(nodes.len() as u32 + SCRATCH, ValType::I64)]);
    let places = places(graph);
    let mut code = function.instructions();
    let scratch = NODES + nodes.len() as u32;
    for (at, node) in (0..).zip(nodes) {
        emit_node(&mut code, node, &places, scratch);
        // Maps are addresses, and those results that cannot exceed the width need no mask.
        if node.width > 0 && node.width < 64 && may_exceed(node.op) {
            code.i64_const(mask(node.width) as i64).i64_and();
        }
        code.local_set(NODES + at);
    }
    for (position, (_, index)) in (0..).zip(graph.outputs()) {
        code.local_get(OUTPUTS).local_get(NODES + u32::from(*index)).i64_store(word(8 * position));
    }
    code.end();
    function
}

/// Returns the offset in bytes of each input.
fn places(graph: &Graph) -> Vec<u64> {
    let mut at = 0;
    let place = |kind: Kind| {
        let place = at;
        at += 8 * if kind == Kind::Map { MAP_WORDS as u64 } else { 1 };
        place
    };
    graph.inputs().iter().map(|port| port.kind).map(place).collect()
}

fn mask(bits: u8) -> u64 {
    u64::MAX >> (64 - bits)
}

fn word(offset: u64) -> MemArg {
    MemArg { offset, align: 3, memory_index: 0 }
}

const fn may_exceed(op: Op) -> bool {
    matches!(op, Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Not | Op::Shl(_) | Op::Resize | Op::Input(_))
}

/// Pushes the result of `node`; that of a map is the address of its words.
fn emit_node(code: &mut InstructionSink<'_>, node: &Node, places: &[u64], scratch: u32) {
    let [a, b, c] = node.args;
    let local = |index: Index| NODES + u32::from(index);
    match node.op {
        Op::Constant(value) => drop(code.i64_const(value as i64)),
        Op::Input(position) if node.width == 0 => {
            let place = places[usize::from(position)];
            code.local_get(INPUTS).i64_extend_i32_u().i64_const(place as i64).i64_add();
        }
        Op::Input(position) => drop(code.local_get(INPUTS).i64_load(word(places[usize::from(position)]))),
        Op::Mux => {
            code.local_get(local(b)).local_get(local(c)).local_get(local(a)).i32_wrap_i64().select();
        }
        Op::Div => {
            code.local_get(local(b)).i64_eqz().if_(BlockType::Result(ValType::I64)).i64_const(-1).else_();
            code.local_get(local(a)).local_get(local(b)).i64_div_u().end();
        }
        Op::Resize => drop(code.local_get(local(a))),
        Op::Not => drop(code.local_get(local(a)).i64_const(-1).i64_xor()),
        Op::Shl(bits) => drop(code.local_get(local(a)).i64_const(bits.into()).i64_shl()),
        Op::Shr(bits) => drop(code.local_get(local(a)).i64_const(bits.into()).i64_shr_u()),
        Op::Test => test(code, local(a), local(b)),
        Op::FirstZero => first(code, (local(a), local(b)), -1, scratch),
        Op::FirstOne => first(code, (local(a), local(b)), 0, scratch),
        Op::Count => {
            for index in 0..MAP_WORDS as u64 {
                code.local_get(local(a)).i32_wrap_i64().i64_load(word(8 * index)).i64_popcnt();
                if index > 0 {
                    code.i64_add();
                }
            }
        }
        Op::Add | Op::Sub | Op::Mul | Op::And | Op::Or | Op::Xor | Op::Eq | Op::Lt => {
            code.local_get(local(a)).local_get(local(b));
            match node.op {
                Op::Add => code.i64_add(),
                Op::Sub => code.i64_sub(),
                Op::Mul => code.i64_mul(),
                Op::And => code.i64_and(),
                Op::Or => code.i64_or(),
                Op::Xor => code.i64_xor(),
                Op::Eq => code.i64_eq().i64_extend_i32_u(),
                _ => code.i64_lt_u().i64_extend_i32_u(),
            };
        }
    }
}

/// Pushes bit `offset` of the map; zero outside of it.
fn test(code: &mut InstructionSink<'_>, map: u32, offset: u32) {
    code.local_get(offset).i64_const(Map::NONE as i64).i64_lt_u().if_(BlockType::Result(ValType::I64));
    code.local_get(map).local_get(offset).i64_const(6).i64_shr_u().i64_const(3).i64_shl().i64_add().i32_wrap_i64();
    code.i64_load(word(0)).local_get(offset).i64_shr_u().i64_const(1).i64_and();
    code.else_().i64_const(0).end();
}

/// Pushes the first offset at or after `from` whose bit, inverted by `flip`, is one; [`Map::NONE`] when there is none.
/// The words are passed from the last to the first, each of which replaces what was found after it.
fn first(code: &mut InstructionSink<'_>, (map, from): (u32, u32), flip: i64, found: u32) {
    let zeros = found + 1;
    code.i64_const(Map::NONE as i64).local_set(found);
    for index in (0..MAP_WORDS as u64).rev() {
        let start = (64 * index) as i64;
        // Bits before `from` are left out: all of this word when it lies before, none when `from` lies before it.
        code.local_get(from).i64_const(start + 64).i64_lt_u().if_(BlockType::Empty);
        code.local_get(map).i32_wrap_i64().i64_load(word(8 * index)).i64_const(flip).i64_xor();
        code.i64_const(-1).local_get(from).i64_const(start).i64_sub();
        code.i64_const(0).local_get(from).i64_const(start).i64_gt_u().select();
        code.i64_shl().i64_and();
        // The number of zeros below the lowest one is 64 where there is none.
        code.i64_ctz().local_tee(zeros).i64_const(64).i64_lt_u().if_(BlockType::Empty);
        code.local_get(zeros).i64_const(start).i64_add().local_set(found);
        code.end().end();
    }
    code.local_get(found);
}
