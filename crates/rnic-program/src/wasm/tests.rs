//! Modules against native code and graphs, and modules that are refused.

use wasm_encoder::{
    CodeSection, CustomSection, ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType,
    ImportSection, MemorySection, MemoryType, Module, StartSection, TypeSection, ValType,
};

use super::*;
use crate::fields::Fields as _;
use crate::file::{self, tests::Repeat};
use crate::{Actions, Lowering, Stimuli, Transport, lockstep};

fn module_of(program: &dyn Transport) -> Vec<u8> {
    let graphs = program.graphs(Lowering::Joins).expect("it has graphs");
    emit(&program.description(), &graphs).expect("it is written")
}

#[test]
fn an_emitted_module_decides_as_the_native_program() {
    let module = WasmProgram::new(&module_of(&Repeat)).expect("a program");
    assert_eq!(module.description(), Repeat.description());
    lockstep::compare(&Repeat, &module, 3, 40_000).expect("equal");
    assert!(module.graphs(Lowering::Joins).is_err());
}

/// A module whose functions have the body `body`, after `change` has added sections.
fn made(body: &Function, sections: impl FnOnce(&mut Module)) -> Vec<u8> {
    let mut module = Module::new();
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32, ValType::I32], []);
    types.ty().function([], []);
    module.section(&types);
    sections(&mut module);
    let mut code = CodeSection::new();
    code.function(body).function(body);
    module.section(&code);
    let text = file::write_description(&Repeat.description()).expect("it is written");
    module.section(&CustomSection { name: SECTION.into(), data: text.as_bytes().into() });
    module.finish()
}

fn functions(module: &mut Module) {
    let mut functions = FunctionSection::new();
    functions.function(0).function(0);
    module.section(&functions);
}

fn memory(module: &mut Module, pages: u64) {
    let mut memories = MemorySection::new();
    let memory = MemoryType { minimum: pages, maximum: None, memory64: false, shared: false, page_size_log2: None };
    memories.memory(memory);
    module.section(&memories);
}

fn exports(module: &mut Module) {
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("incoming", ExportKind::Func, 0).export("periodic", ExportKind::Func, 1);
    module.section(&exports);
}

fn usual(module: &mut Module) {
    functions(module);
    memory(module, 1);
    exports(module);
}

fn empty() -> Function {
    let mut body = Function::new([]);
    body.instructions().end();
    body
}

#[test]
fn a_module_that_could_keep_values_or_reach_outside_is_refused() {
    let refused = |bytes: &[u8]| {
        let error = WasmProgram::new(bytes).expect_err("it is no program").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    WasmProgram::new(&made(&empty(), usual)).expect("a program that answers with zeros");
    let with_global = |body: &Function| {
        made(body, |module| {
            functions(module);
            memory(module, 1);
            let mut globals = GlobalSection::new();
            let kind = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
            globals.global(kind, &wasm_encoder::ConstExpr::i32_const(0));
            module.section(&globals);
            exports(module);
        })
    };
    // Linkers declare the pointer of a stack that no function uses.
    WasmProgram::new(&with_global(&empty())).expect("a program");
    let mut sets = Function::new([]);
    sets.instructions().i32_const(1).global_set(0).end();
    assert!(refused(&with_global(&sets)).contains("sets a global"));
    let import = made(&empty(), |module| {
        let mut imports = ImportSection::new();
        imports.import("env", "clock", wasm_encoder::EntityType::Function(1));
        module.section(&imports);
        usual(module);
    });
    assert!(refused(&import).contains("imports"));
    let start = made(&empty(), |module| {
        usual(module);
        module.section(&StartSection { function_index: 0 });
    });
    assert!(refused(&start).contains("start function"));
    let large = made(&empty(), |module| {
        functions(module);
        memory(module, 40_000);
        exports(module);
    });
    assert!(!refused(&large).is_empty());
    let hidden = made(&empty(), |module| {
        functions(module);
        memory(module, 1);
    });
    assert!(refused(&hidden).contains("`memory`"));
    let mut float = Function::new([]);
    float.instructions().f64_const(1.0).drop().end();
    assert!(!refused(&made(&float, usual)).is_empty());
    assert!(refused(&vec![0; MODULE_BYTES_MAX + 1]).contains("at most"));
    assert!(!refused(b"\0asm\x01\0\0\0").is_empty());
}

#[test]
fn a_module_that_does_not_end_or_traps_answers_outside_the_contract() {
    let mut endless = Function::new([]);
    endless.instructions().loop_(wasm_encoder::BlockType::Empty).br(0).end().end();
    let mut trap = Function::new([]);
    trap.instructions().unreachable().end();
    let mut deep = Function::new([]);
    deep.instructions().local_get(0).local_get(1).call(0).end();
    let mut outside = Function::new([]);
    let at = wasm_encoder::MemArg { offset: 65_536, align: 0, memory_index: 0 };
    outside.instructions().local_get(0).i64_const(1).i64_store(at).end();
    for body in [endless, trap, deep, outside] {
        let program = WasmProgram::new(&made(&body, usual)).expect("it is known at run time only");
        let mut stimuli = Stimuli::new(1);
        let description = program.description();
        let parameters = description.defaults();
        let mut state = description.initial_state(&parameters);
        let before = state.clone();
        for _ in 0..3 {
            let mut actions = description.initial_actions(&parameters);
            program.incoming(&stimuli.incoming(), &parameters, &mut state, &mut actions);
            assert_eq!((actions.window.get(), &state), (0, &before));
        }
    }
}

/// A module that counts its calls in memory, and answers with the count as the window.
#[test]
fn nothing_remains_in_memory_from_one_event_to_the_next() {
    let mut body = Function::new([]);
    let at = |offset| wasm_encoder::MemArg { offset, align: 3, memory_index: 0 };
    let window = 8 * (Repeat.description().state.len() as u64 + 3);
    let mut code = body.instructions();
    code.i32_const(0).i32_const(0).i64_load(at(512)).i64_const(1).i64_add().i64_store(at(512));
    code.local_get(1).i32_const(0).i64_load(at(512)).i64_store(at(window)).end();
    let program = WasmProgram::new(&made(&body, usual)).expect("a program");
    let mut stimuli = Stimuli::new(1);
    let parameters = program.description().defaults();
    let mut state = program.description().initial_state(&parameters);
    for _ in 0..5 {
        let mut actions = Actions::default();
        program.incoming(&stimuli.incoming(), &parameters, &mut state, &mut actions);
        assert_eq!(actions.window.get(), 1);
    }
}

#[test]
fn a_description_is_put_into_a_module_once() {
    let bytes = module_of(&Repeat);
    let mut other = Repeat.description();
    other.name = "other".into();
    let twice = with_description(&with_description(&bytes, &other).expect("a module"), &other).expect("a module");
    assert_eq!(WasmProgram::new(&twice).expect("a program").description().name, "other");
    assert!(with_description(b"text", &other).is_err());
}

#[test]
fn mutated_modules_are_refused_or_run() {
    let bytes = module_of(&Repeat);
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    for _ in 0..3_000 {
        let mut mutated = bytes.clone();
        for _ in 0..1 + next() % 3 {
            let at = next() % mutated.len();
            mutated[at] = next() as u8;
        }
        let Ok(program) = WasmProgram::new(&mutated) else { continue };
        let mut stimuli = Stimuli::new(1);
        let parameters = program.description().defaults();
        let mut state = program.description().initial_state(&parameters);
        let mut actions = program.description().initial_actions(&parameters);
        program.incoming(&stimuli.incoming(), &parameters, &mut state, &mut actions);
        program.periodic(&stimuli.periodic(), &parameters, &mut state, &mut actions);
    }
}
