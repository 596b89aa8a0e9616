//! Cranelift's instructions from graphs: a value of 64 bits for each node.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;
use rnic_program::value::{MAP_WORDS, Map};
use rnic_program::{Graph, Kind, Node, Op};

/// Bytes of a word.
const WORD: i32 = 8;

/// Appends the evaluation of `graph` to the current block: it reads the words at `inputs`, and stores a word for each
/// output at `outputs`.
pub(crate) fn graph(builder: &mut FunctionBuilder<'_>, graph: &Graph, inputs: Value, outputs: Value) {
    let places = places(graph);
    let mut emitter = Emitter { builder, inputs, places, values: Vec::with_capacity(graph.nodes().len()) };
    for node in graph.nodes() {
        let value = emitter.node(node);
        emitter.values.push(value);
    }
    let values = emitter.values;
    for (at, (_, index)) in (0..).zip(graph.outputs()) {
        builder.ins().store(MemFlagsData::trusted(), values[usize::from(*index)], outputs, WORD * at);
    }
}

/// Returns the number of words of a graph's inputs.
pub(crate) fn input_words(graph: &Graph) -> usize {
    graph.inputs().iter().map(|port| words(port.kind)).sum()
}

fn words(kind: Kind) -> usize {
    if kind == Kind::Map { MAP_WORDS } else { 1 }
}

/// Returns the position of the first word of each input.
fn places(graph: &Graph) -> Vec<usize> {
    let mut at = 0;
    let place = |kind: Kind| {
        let place = at;
        at += words(kind);
        place
    };
    graph.inputs().iter().map(|port| port.kind).map(place).collect()
}

struct Emitter<'b, 'f> {
    builder: &'b mut FunctionBuilder<'f>,
    inputs: Value,
    places: Vec<usize>,
    /// Of the nodes so far; that of a map is the address of its words.
    values: Vec<Value>,
}

impl Emitter<'_, '_> {
    /// Returns the value of `node`.
    fn node(&mut self, node: &Node) -> Value {
        let [a, b, c] = node.args.map(|arg| self.values.get(usize::from(arg)).copied());
        // Unary operations have no second argument, and constants none at all.
        let [a, b, c] = [a, b, c].map(|value| value.unwrap_or(self.inputs));
        let value = match node.op {
            Op::Constant(value) => self.constant(value),
            Op::Input(position) => return self.input(usize::from(position), node.width),
            Op::Add => self.builder.ins().iadd(a, b),
            Op::Sub => self.builder.ins().isub(a, b),
            Op::Mul => self.builder.ins().imul(a, b),
            Op::Div => self.quotient(a, b),
            Op::And => self.builder.ins().band(a, b),
            Op::Or => self.builder.ins().bor(a, b),
            Op::Xor => self.builder.ins().bxor(a, b),
            Op::Not => self.builder.ins().bnot(a),
            Op::Shl(bits) => self.shifted_left(a, bits.into()),
            Op::Shr(bits) => self.shifted_right(a, bits.into()),
            Op::Eq => self.compare(IntCC::Equal, a, b),
            Op::Lt => self.compare(IntCC::UnsignedLessThan, a, b),
            Op::Mux => self.builder.ins().select(a, b, c),
            Op::Resize => a,
            Op::Test => self.test(a, b),
            Op::FirstZero => self.first(a, b, u64::MAX),
            Op::FirstOne => self.first(a, b, 0),
            Op::Count => self.count(a),
        };
        if may_exceed(node.op) { self.cut(value, node.width) } else { value }
    }

    fn constant(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(types::I64, value as i64)
    }

    /// Returns the lowest bits of `value`.
    fn cut(&mut self, value: Value, bits: u8) -> Value {
        if bits == 64 {
            return value;
        }
        self.masked(value, u64::MAX >> (64 - bits))
    }

    fn input(&mut self, position: usize, bits: u8) -> Value {
        let at = WORD * self.places[position] as i32;
        if bits == 0 {
            let offset = self.constant(at as u64);
            return self.builder.ins().iadd(self.inputs, offset);
        }
        let value = self.builder.ins().load(types::I64, MemFlagsData::trusted(), self.inputs, at);
        self.cut(value, bits)
    }

    fn shifted_left(&mut self, value: Value, bits: u64) -> Value {
        let bits = self.constant(bits);
        self.builder.ins().ishl(value, bits)
    }

    fn shifted_right(&mut self, value: Value, bits: u64) -> Value {
        let bits = self.constant(bits);
        self.builder.ins().ushr(value, bits)
    }

    /// Returns the bits of `value` that `mask` has.
    fn masked(&mut self, value: Value, mask: u64) -> Value {
        let mask = self.constant(mask);
        self.builder.ins().band(value, mask)
    }

    fn compare(&mut self, condition: IntCC, a: Value, b: Value) -> Value {
        let flag = self.builder.ins().icmp(condition, a, b);
        self.builder.ins().uextend(types::I64, flag)
    }

    /// Returns `a / b`; all ones when `b` is zero. The machine's division would trap.
    fn quotient(&mut self, a: Value, b: Value) -> Value {
        let (one, ones) = (self.constant(1), self.constant(u64::MAX));
        let divisor = self.builder.ins().select(b, b, one);
        let quotient = self.builder.ins().udiv(a, divisor);
        self.builder.ins().select(b, quotient, ones)
    }

    /// Returns bit `offset` of a map, zero beyond it.
    fn test(&mut self, map: Value, offset: Value) -> Value {
        const { assert!(MAP_WORDS.is_power_of_two() && WORD == 1 << 3) };
        // The index is cut to the words that there are; beyond them, the bit that is found is not used.
        let index = self.shifted_right(offset, 6);
        let index = self.masked(index, MAP_WORDS as u64 - 1);
        let bytes = self.shifted_left(index, 3);
        let place = self.builder.ins().iadd(map, bytes);
        let word = self.builder.ins().load(types::I64, MemFlagsData::trusted(), place, 0);
        let position = self.masked(offset, 63);
        let word = self.builder.ins().ushr(word, position);
        let bit = self.masked(word, 1);
        let (zero, end) = (self.constant(0), self.constant(Map::NONE));
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThan, offset, end);
        self.builder.ins().select(is_inside, bit, zero)
    }

    /// Returns the first offset from `from` on whose bit, exclusive-or `flip`, is one; 256 when there is none.
    fn first(&mut self, map: Value, from: Value, flip: u64) -> Value {
        let (flip, zero, ones) = (self.constant(flip), self.constant(0), self.constant(u64::MAX));
        let mut found = self.constant(Map::NONE);
        for at in (0..MAP_WORDS).rev() {
            let (low, high) = (self.constant(64 * at as u64), self.constant(64 * (at as u64 + 1)));
            let builder = &mut *self.builder;
            let word = builder.ins().load(types::I64, MemFlagsData::trusted(), map, WORD * at as i32);
            let word = builder.ins().bxor(word, flip);
            // Bits of this word from `from` on: shifts use the lowest six bits of their distance.
            let shifted = builder.ins().ishl(ones, from);
            let is_before = builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, from, low);
            let is_behind = builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, from, high);
            let keep = builder.ins().select(is_behind, zero, shifted);
            let keep = builder.ins().select(is_before, ones, keep);
            let word = builder.ins().band(word, keep);
            let offset = builder.ins().ctz(word);
            let offset = builder.ins().iadd(offset, low);
            found = builder.ins().select(word, offset, found);
        }
        found
    }

    /// Returns the number of ones of a map.
    fn count(&mut self, map: Value) -> Value {
        let mut sum = self.constant(0);
        for at in 0..MAP_WORDS {
            let word = self.builder.ins().load(types::I64, MemFlagsData::trusted(), map, WORD * at as i32);
            let ones = self.builder.ins().popcnt(word);
            sum = self.builder.ins().iadd(sum, ones);
        }
        sum
    }
}

/// Returns whether the result of an operation may be wider than its node.
const fn may_exceed(op: Op) -> bool {
    matches!(op, Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Not | Op::Shl(_) | Op::Resize)
}
