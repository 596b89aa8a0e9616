//! The interpreter of graphs: one pass over a flat list of operations.
//!
//! It is the reference for native code and circuits, and runs programs that were loaded from a file. `unsafe`-free:
//! positions are checked when a graph is built, and once more by the slices.

use arrayvec::ArrayVec;

use crate::graph::{Graph, Kind, NODES_MAX, Op};
use crate::value::{MAP_WORDS, Map, Offset, U};

/// An operation and the mask of its result.
#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    a: u16,
    b: u16,
    c: u16,
    mask: u64,
}

/// A graph that is prepared for execution.
#[derive(Clone, Debug)]
pub struct Machine {
    constants: Vec<u64>,
    steps: Vec<Step>,
    /// Position of the first word of each input.
    words: Vec<usize>,
    outputs: Vec<u16>,
}

impl Machine {
    /// Prepares `graph` for execution.
    pub fn new(graph: &Graph) -> Self {
        let mut at = 0;
        let words = graph.inputs().iter().map(|port| {
            let start = at;
            at += if port.kind == Kind::Map { MAP_WORDS } else { 1 };
            start
        });
        let words = words.collect();
        let (mut constants, mut steps) = (Vec::new(), Vec::new());
        for node in graph.nodes() {
            let [a, b, c] = node.args;
            let mask = if node.width == 0 { 0 } else { u64::MAX >> (64 - node.width) };
            match node.op {
                // Constants lead in a recorded graph; in a file one may stand anywhere.
                Op::Constant(value) if steps.is_empty() => constants.push(value),
                op => steps.push(Step { op, a, b, c, mask }),
            }
        }
        let outputs = graph.outputs().iter().map(|(_, index)| *index).collect();
        Self { constants, steps, words, outputs }
    }

    /// Runs the function: `inputs` has a word for each number and four for each map, in order; `outputs` receives a
    /// word for each output.
    ///
    /// # Panics
    /// When there are fewer words than the graph has.
    pub fn run(&self, inputs: &[u64], outputs: &mut [u64]) {
        let mut values = ArrayVec::<u64, NODES_MAX>::new();
        values.extend(self.constants.iter().copied());
        for step in &self.steps {
            values.push(self.apply(step, &values, inputs));
        }
        for (output, &index) in outputs.iter_mut().zip(&self.outputs) {
            *output = values[usize::from(index)];
        }
    }

    #[inline]
    fn apply(&self, step: &Step, values: &[u64], inputs: &[u64]) -> u64 {
        let of = |index: u16| values[usize::from(index)];
        let map = |index: u16| {
            // The value of a map is the position of its words.
            let at = of(index) as usize;
            let mut words = [0; MAP_WORDS];
            words.copy_from_slice(&inputs[at..at + MAP_WORDS]);
            Map::new(words)
        };
        let (a, b) = (step.a, step.b);
        let value = match step.op {
            Op::Constant(value) => value,
            Op::Input(position) => {
                let at = self.words[usize::from(position)];
                if step.mask == 0 { return at as u64 } else { inputs[at] }
            }
            Op::Add => of(a).wrapping_add(of(b)),
            Op::Sub => of(a).wrapping_sub(of(b)),
            Op::Mul => of(a).wrapping_mul(of(b)),
            Op::Div => of(a).checked_div(of(b)).unwrap_or(u64::MAX),
            Op::And => of(a) & of(b),
            Op::Or => of(a) | of(b),
            Op::Xor => of(a) ^ of(b),
            Op::Not => !of(a),
            Op::Shl(bits) => of(a) << bits,
            Op::Shr(bits) => of(a) >> bits,
            Op::Eq => u64::from(of(a) == of(b)),
            Op::Lt => u64::from(of(a) < of(b)),
            Op::Mux => of(if of(a) == 1 { b } else { step.c }),
            Op::Resize => of(a),
            Op::Test => u64::from(map(a).test(Offset::new(of(b)))),
            Op::FirstZero => map(a).first_zero(U::<9>::new(of(b))).get(),
            Op::FirstOne => map(a).first_one(U::<9>::new(of(b))).get(),
            Op::Count => map(a).count().get(),
        };
        value & step.mask
    }
}
