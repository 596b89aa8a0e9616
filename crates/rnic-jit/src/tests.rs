//! Random graphs of all operations: machine code yields what the interpreter does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rnic_base::{RandomStream, RandomStreams};
use rnic_program::loaded::WORDS_MAX;
use rnic_program::{Graph, Kind, Machine, Node, Op, Port};

use crate::code::Code;

/// Makes a test wait for the others, because one of them counts what memory the process has.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const WIDTHS: [u8; 6] = [1, 8, 9, 24, 48, 64];

fn mask(width: u8) -> u64 {
    u64::MAX >> (64 - width)
}

/// Returns a number of `width` bits, often an extreme one.
fn number(random: &mut RandomStream, width: u8) -> u64 {
    let value = match random.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(4),
        3 => 1 << random.below(64),
        _ => random.bits(),
    };
    value & mask(width)
}

/// Returns a graph of two maps and some numbers, whose outputs are all numbers in it.
fn drawn(random: &mut RandomStream) -> Option<Graph> {
    let number_ports = WIDTHS.map(|width| (format!("in_{width}"), Kind::Bits(width)));
    let maps = ["in_a", "in_b"].map(|name| (name.to_owned(), Kind::Map));
    let ports = number_ports.into_iter().chain(maps).map(|(name, kind)| Port { name, kind });
    let inputs: Vec<Port> = ports.collect();
    let mut nodes = Vec::new();
    for (at, port) in inputs.iter().enumerate() {
        let width = if let Kind::Bits(bits) = port.kind { bits } else { 0 };
        nodes.push(Node { op: Op::Input(at as u16), args: [0; 3], width });
    }
    let first = nodes.len();
    while nodes.len() < first + 40 {
        let (width, other) = (WIDTHS[random.below(6) as usize], WIDTHS[random.below(6) as usize]);
        let mut of = |width: u8| {
            let all: Vec<u16> = (0..nodes.len()).filter(|&at| nodes[at].width == width).map(|at| at as u16).collect();
            all[random.below(all.len() as u64) as usize]
        };
        let (a, b, bit, x, y) = (of(width), of(width), of(1), of(other), of(other));
        let (map, offset) = (of(0), of(9));
        let bits = random.below(64) as u8;
        let narrow = width.min(other);
        let (op, args, width) = match random.below(20) {
            0 => (Op::Add, [a, b, 0], width),
            1 => (Op::Sub, [a, b, 0], width),
            2 if width <= 24 && other <= 24 => (Op::Mul, [a, x, 0], 48),
            3 if width <= 8 => (Op::Div, [a, b, 0], width),
            4 => (Op::And, [a, b, 0], width),
            5 => (Op::Or, [a, b, 0], width),
            6 => (Op::Xor, [a, b, 0], width),
            7 => (Op::Not, [a, 0, 0], width),
            8 => (Op::Shl(bits), [a, 0, 0], width),
            9 => (Op::Shr(bits), [a, 0, 0], width),
            10 => (Op::Eq, [x, y, 0], 1),
            11 => (Op::Lt, [x, y, 0], 1),
            12 => (Op::Mux, [bit, a, b], width),
            13 => (Op::Resize, [x, 0, 0], width),
            14 => (Op::Test, [map, offset, 0], 1),
            15 => (Op::FirstZero, [map, offset, 0], 9),
            16 => (Op::FirstOne, [map, offset, 0], 9),
            17 => (Op::Count, [map, 0, 0], 9),
            18 => (Op::Constant(number(random, width)), [0; 3], width),
            _ => (Op::Resize, [x, 0, 0], narrow),
        };
        nodes.push(Node { op, args, width });
    }
    let numbers = (0..).zip(&nodes).filter(|(_, node)| node.width > 0);
    let output = |(at, node): (u16, &Node)| (Port { name: format!("node_{at}"), kind: Kind::Bits(node.width) }, at);
    let outputs = numbers.map(output).collect();
    // Some are too deep.
    Graph::new(inputs, outputs, nodes).ok()
}

#[test]
fn machine_code_yields_what_the_interpreter_does() {
    let _alone = alone();
    let mut random = RandomStreams::new(3).stream("graphs");
    let mut graphs = 0;
    while graphs < 250 {
        let Some(graph) = drawn(&mut random) else { continue };
        graphs += 1;
        let (code, machine) = (Code::new(&[&graph]).expect("this processor has a compiler"), Machine::new(&graph));
        for _ in 0..400 {
            let mut inputs: Vec<u64> = WIDTHS.iter().map(|&width| number(&mut random, width)).collect();
            for _ in 0..8 {
                // Maps of any bits, of few ones, and of few zeros.
                let word = random.bits() & random.bits() & random.bits();
                inputs.push([random.bits(), word, !word, 0, u64::MAX][random.below(5) as usize]);
            }
            let mut expected = [0; WORDS_MAX];
            let mut found = [7; WORDS_MAX];
            machine.run(&inputs, &mut expected);
            code.run(0, &inputs, &mut found);
            let count = graph.outputs().len();
            assert_eq!(found[..count], expected[..count], "{graph:?} of {inputs:?}");
            assert!(found[count..].iter().all(|word| *word == 7), "more words are written than the graph has");
        }
    }
}

#[test]
#[should_panic(expected = "fewer words than the graph has")]
fn too_few_words_are_refused() {
    let _alone = alone();
    let mut random = RandomStreams::new(4).stream("graphs");
    let graph = std::iter::from_fn(|| Some(drawn(&mut random))).flatten().next().expect("one is not too deep");
    let code = Code::new(&[&graph]).expect("this processor has a compiler");
    code.run(0, &[0; 13], &mut [0; WORDS_MAX]);
}

/// Each program has at least a page; a process that loads programs for hours must not keep those that it has dropped.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads how much memory it has")]
fn memory_is_freed_with_the_code() {
    let _alone = alone();
    let mut random = RandomStreams::new(5).stream("graphs");
    let graph = std::iter::from_fn(|| Some(drawn(&mut random))).flatten().next().expect("one is not too deep");
    let executable = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        maps.lines().filter(|line| line.contains("r-xp") && line.ends_with(" 0 ")).count()
    };
    let before = executable();
    let codes: Vec<Code> = (0..20).map(|_| Code::new(&[&graph]).expect("this processor has a compiler")).collect();
    let during = executable();
    drop(codes);
    let after = executable();
    assert!(during > before, "no executable memory was found: {before} and {during} regions");
    assert!(after <= before, "{before}, {during} and {after} executable regions without a file");
}
