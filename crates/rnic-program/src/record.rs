//! Tracing of functions into graphs: a function that is executed once with symbolic values instead of numbers yields
//! its graph.
//!
//! `#[program]` generates this second form of a function: `a + b` becomes `g.add(a, b)`, and `if` becomes two traces
//! and a join. Widths are const generics in both forms, so rustc checks them.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::graph::{Graph, GraphError, Index, Kind, NODES_MAX, Node, OFFSET_BITS, Op, Port};
use crate::value::{Divides, Map, U};

/// Translation of assignments within an `if` into gates. Both translations compute the same function, which is checked
/// for each program: they share no code from the condition to the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lowering {
    /// Each branch starts from the values before the `if`; a multiplexer joins them at its end.
    Joins,
    /// Each assignment keeps the old value unless all conditions around it hold.
    Predicated,
}

/// A symbolic number of `N` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sig<const N: u32>(Index);

/// A symbolic flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bit(Index);

/// A symbolic window map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapSig(Index);

/// A symbolic value, or a group of them.
pub trait Form: Copy {
    /// Returns a value that is `yes` where `condition` holds, and `no` elsewhere.
    fn join(g: &Recorder, condition: Bit, yes: Self, no: Self) -> Self;

    /// Returns the node of a single value.
    fn index(&self) -> Option<Index> {
        None
    }
}

impl<const N: u32> Form for Sig<N> {
    fn join(g: &Recorder, condition: Bit, yes: Self, no: Self) -> Self {
        Self(g.mux(condition, yes.0, no.0, N))
    }

    fn index(&self) -> Option<Index> {
        Some(self.0)
    }
}

impl Form for Bit {
    fn join(g: &Recorder, condition: Bit, yes: Self, no: Self) -> Self {
        Self(g.mux(condition, yes.0, no.0, 1))
    }

    fn index(&self) -> Option<Index> {
        Some(self.0)
    }
}

impl Form for MapSig {
    fn join(g: &Recorder, _: Bit, yes: Self, no: Self) -> Self {
        g.require(yes == no, "maps cannot be selected");
        yes
    }
}

impl Form for () {
    fn join(_: &Recorder, _: Bit, _: Self, _: Self) -> Self {}
}

impl<A: Form, B: Form> Form for (A, B) {
    fn join(g: &Recorder, condition: Bit, yes: Self, no: Self) -> Self {
        (A::join(g, condition, yes.0, no.0), B::join(g, condition, yes.1, no.1))
    }
}

/// Maximum number of nodes during tracing, before those that no output needs are removed.
const RECORDED_MAX: usize = 16 * NODES_MAX;

/// A symbolic number of `N` bits, or a literal.
pub trait Number<const N: u32>: Copy {
    /// Returns the signal.
    fn signal(self, g: &Recorder) -> Sig<N>;
}

impl<const N: u32> Number<N> for Sig<N> {
    fn signal(self, _: &Recorder) -> Self {
        self
    }
}

impl<const N: u32> Number<N> for u64 {
    fn signal(self, g: &Recorder) -> Sig<N> {
        g.u(self)
    }
}

/// Operands of `&`, `|`, `^`, `==` and `!=`: two numbers, a number and a literal, or two flags.
pub trait Logic<Other>: Copy {
    /// Type of the result of `&`, `|` and `^`.
    type Output;

    /// Adds the node of `op` with both operands.
    fn logic(self, g: &Recorder, op: Op, other: Other) -> Self::Output;
}

impl<const N: u32, Other: Number<N>> Logic<Other> for Sig<N> {
    type Output = Self;

    fn logic(self, g: &Recorder, op: Op, other: Other) -> Self {
        let width = if op == Op::Eq { 1 } else { N };
        Self(g.node(op, &[self.0, other.signal(g).0], width))
    }
}

impl<Other: Flag> Logic<Other> for Bit {
    type Output = Self;

    fn logic(self, g: &Recorder, op: Op, other: Other) -> Self {
        Self(g.node(op, &[self.0, other.bit(g).0], 1))
    }
}

/// A symbolic flag, or `true` or `false`.
pub trait Flag: Copy {
    /// Returns the signal.
    fn bit(self, g: &Recorder) -> Bit;
}

impl Flag for Bit {
    fn bit(self, _: &Recorder) -> Bit {
        self
    }
}

impl Flag for bool {
    fn bit(self, g: &Recorder) -> Bit {
        Bit(g.node(Op::Constant(u64::from(self)), &[], 1))
    }
}

/// Operands of `!` and `to`.
pub trait Single: Copy {
    /// Returns the node.
    fn place(self) -> Index;
    /// Returns the symbolic value of this type for a node.
    fn at(index: Index) -> Self;
    /// Width in bits.
    const WIDTH: u32;
}

impl<const N: u32> Single for Sig<N> {
    fn place(self) -> Index {
        self.0
    }

    fn at(index: Index) -> Self {
        Self(index)
    }

    const WIDTH: u32 = N;
}

impl Single for Bit {
    fn place(self) -> Index {
        self.0
    }

    fn at(index: Index) -> Self {
        Self(index)
    }

    const WIDTH: u32 = 1;
}

/// Builds the graph of one function while it is traced.
#[derive(Debug)]
pub struct Recorder {
    lowering: Lowering,
    nodes: RefCell<Vec<Node>>,
    known: RefCell<BTreeMap<Node, Index>>,
    inputs: RefCell<Vec<Port>>,
    outputs: RefCell<Vec<(Port, Index)>>,
    labels: RefCell<BTreeMap<Index, &'static str>>,
    /// Conjunction of the conditions around the statement being recorded, innermost last.
    conditions: RefCell<Vec<Bit>>,
    /// Functions being recorded, innermost last, and the line of each.
    places: RefCell<Vec<Place>>,
    /// The first function that was recorded.
    function: Cell<Option<&'static str>>,
    fault: RefCell<Option<String>>,
}

/// A line of the source of a function.
#[derive(Clone, Copy, Debug)]
struct Place {
    function: &'static str,
    file: &'static str,
    line: u32,
}

/// Reason why a function cannot be represented as a graph.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A construct has no gates; with its place in the source, if that is known.
    #[error("{0}")]
    Construct(String),
    /// The graph of a function, which is named if it has a name, has a fault.
    #[error("{}{fault}", function.map_or(String::new(), |name| format!("function `{name}`: ")))]
    Graph {
        /// The function.
        function: Option<&'static str>,
        /// The fault.
        fault: GraphError,
    },
}

impl Recorder {
    /// Creates a recorder.
    pub fn new(lowering: Lowering) -> Self {
        Self {
            lowering,
            nodes: RefCell::default(),
            known: RefCell::default(),
            inputs: RefCell::default(),
            outputs: RefCell::default(),
            labels: RefCell::default(),
            conditions: RefCell::default(),
            places: RefCell::default(),
            function: Cell::new(None),
            fault: RefCell::default(),
        }
    }

    /// Begins to record a function of the source file `file`.
    pub fn enter(&self, function: &'static str, file: &'static str) {
        if self.function.get().is_none() {
            self.function.set(Some(function));
        }
        self.places.borrow_mut().push(Place { function, file, line: 0 });
    }

    /// Ends the recording of a function.
    pub fn leave(&self) {
        self.places.borrow_mut().pop();
    }

    /// Sets the line of what is recorded next.
    pub fn line(&self, line: u32) {
        if let Some(place) = self.places.borrow_mut().last_mut() {
            place.line = line;
        }
    }

    /// Returns the graph: constants first, without operations that no output needs.
    ///
    /// # Errors
    /// When a construct has no equivalent in gates, or the graph is too long or too deep.
    pub fn finish(self) -> Result<Graph, RecordError> {
        if let Some(fault) = self.fault.take() {
            return Err(RecordError::Construct(fault));
        }
        let function = self.function.get();
        let (nodes, mut outputs) = (self.nodes.into_inner(), self.outputs.into_inner());
        let mut needed = vec![false; nodes.len()];
        for (_, index) in &outputs {
            needed[usize::from(*index)] = true;
        }
        for at in (0..nodes.len()).rev().filter(|&at| nodes[at].op.arity() > 0) {
            if needed[at] {
                nodes[at].args[..nodes[at].op.arity()].iter().for_each(|&arg| needed[usize::from(arg)] = true);
            }
        }
        let rank = |node: &Node| match node.op {
            Op::Constant(_) => 0,
            Op::Input(position) => 1 + usize::from(position),
            _ => usize::MAX,
        };
        let mut order: Vec<usize> = (0..nodes.len()).filter(|&at| needed[at]).collect();
        order.sort_by_key(|&at| rank(&nodes[at]));
        let mut moved = vec![0; nodes.len()];
        order.iter().enumerate().for_each(|(new, &old)| moved[old] = new as Index);
        let arranged = order.iter().map(|&old| {
            let mut node = nodes[old];
            node.args[..node.op.arity()].iter_mut().for_each(|arg| *arg = moved[usize::from(*arg)]);
            node
        });
        let arranged = arranged.collect();
        outputs.iter_mut().for_each(|(_, index)| *index = moved[usize::from(*index)]);
        let labels = self.labels.into_inner().into_iter().filter(|(index, _)| needed[usize::from(*index)]);
        let labels = labels.map(|(index, name)| (moved[usize::from(index)], name)).collect();
        let graph = Graph::new(self.inputs.into_inner(), outputs, arranged);
        Ok(graph.map_err(|fault| RecordError::Graph { function, fault })?.labelled(labels))
    }

    /// Declares an input.
    pub(crate) fn input(&self, name: String, kind: Kind) -> Index {
        let mut inputs = self.inputs.borrow_mut();
        inputs.push(Port { name, kind });
        let width = if let Kind::Bits(bits) = kind { u32::from(bits) } else { 0 };
        self.node(Op::Input(inputs.len() as u16 - 1), &[], width)
    }

    /// Declares an output.
    pub(crate) fn output(&self, name: String, index: Index, width: u32) {
        self.outputs.borrow_mut().push((Port { name, kind: Kind::Bits(width as u8) }, index));
    }

    /// Names a value, for the readers of emitted code.
    pub fn label<T: Form>(&self, name: &'static str, value: T) -> T {
        if let Some(index) = value.index() {
            self.labels.borrow_mut().entry(index).or_insert(name);
        }
        value
    }

    fn require(&self, holds: bool, reason: &str) {
        if !holds && self.fault.borrow().is_none() {
            let place = self.places.borrow().last().copied();
            let place = place.map_or(String::new(), |Place { function, file, line }| {
                format!("{file}, line {line}, function `{function}`: ")
            });
            self.fault.replace(Some(place + reason));
        }
    }

    /// Returns the node of an operation: an earlier equal one if there is one.
    fn node(&self, op: Op, arguments: &[Index], width: u32) -> Index {
        let mut args = [0; 3];
        args[..arguments.len()].copy_from_slice(arguments);
        let node = Node { op, args, width: width as u8 };
        let mut nodes = self.nodes.borrow_mut();
        if let Some(&index) = self.known.borrow().get(&node) {
            return index;
        }
        if nodes.len() == RECORDED_MAX {
            self.require(false, "the function is too long");
            return 0;
        }
        let index = nodes.len() as Index;
        nodes.push(node);
        self.known.borrow_mut().insert(node, index);
        index
    }

    fn mux(&self, condition: Bit, yes: Index, no: Index, width: u32) -> Index {
        if yes == no { yes } else { self.node(Op::Mux, &[condition.0, yes, no], width) }
    }

    fn two<const N: u32>(&self, op: Op, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        Sig(self.node(op, &[a.signal(self).0, b.signal(self).0], N))
    }

    /// Adds a literal.
    pub fn u<const N: u32>(&self, value: u64) -> Sig<N> {
        if value > U::<N>::MASK {
            self.require(false, &format!("the literal {value} does not fit into {N} bits (at most {})", U::<N>::MASK));
        }
        Sig(self.node(Op::Constant(value & U::<N>::MASK), &[], N))
    }

    /// Adds `true` or `false`; returns a symbolic flag unchanged.
    pub fn flag(&self, value: impl Flag) -> Bit {
        value.bit(self)
    }

    /// Adds the nodes of `a + b`.
    pub fn add<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        self.two(Op::Add, a, b)
    }

    /// Adds the nodes of `a - b`.
    pub fn sub<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        self.two(Op::Sub, a, b)
    }

    /// Adds the nodes of `a * b`; a literal has the width of `a`.
    pub fn mul<const N: u32>(&self, a: Sig<N>, b: impl Factor<N>) -> Sig<N> {
        Sig(self.node(Op::Mul, &[a.0, b.factor(self)], N))
    }

    /// Adds the nodes of `a.times::<M>(b)`.
    pub fn times<const M: u32, const N: u32, const K: u32>(&self, a: Sig<N>, b: Sig<K>) -> Sig<M> {
        Sig(self.node(Op::Mul, &[a.0, b.0], M))
    }

    /// Records `a / b`.
    pub fn div<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N>
    where
        U<N>: Divides,
    {
        self.two(Op::Div, a, b)
    }

    /// Adds the nodes of `a & b`, or `a && b`.
    pub fn and<A: Logic<B>, B>(&self, a: A, b: B) -> A::Output {
        a.logic(self, Op::And, b)
    }

    /// Adds the nodes of `a | b`, or `a || b`.
    pub fn or<A: Logic<B>, B>(&self, a: A, b: B) -> A::Output {
        a.logic(self, Op::Or, b)
    }

    /// Adds the nodes of `a ^ b`.
    pub fn xor<A: Logic<B>, B>(&self, a: A, b: B) -> A::Output {
        a.logic(self, Op::Xor, b)
    }

    /// Adds the nodes of `!a`.
    pub fn not<A: Single>(&self, a: A) -> A {
        A::at(self.node(Op::Not, &[a.place()], A::WIDTH))
    }

    /// Adds the nodes of `a << bits`.
    pub fn shl<const N: u32>(&self, a: Sig<N>, bits: u32) -> Sig<N> {
        self.shift(Op::Shl, a, bits)
    }

    /// Adds the nodes of `a >> bits`.
    pub fn shr<const N: u32>(&self, a: Sig<N>, bits: u32) -> Sig<N> {
        self.shift(Op::Shr, a, bits)
    }

    fn shift<const N: u32>(&self, op: fn(u8) -> Op, a: Sig<N>, bits: u32) -> Sig<N> {
        self.require(bits < 64, "a shift is by 64 bits or more");
        Sig(self.node(op(bits.min(63) as u8), &[a.0], N))
    }

    /// Adds the nodes of `a == b`.
    pub fn eq<A: Logic<B>, B>(&self, a: A, b: B) -> Bit
    where
        A::Output: Single,
    {
        Bit(a.logic(self, Op::Eq, b).place())
    }

    /// Adds the nodes of `a != b`.
    pub fn ne<A: Logic<B>, B>(&self, a: A, b: B) -> Bit
    where
        A::Output: Single,
    {
        self.not(self.eq(a, b))
    }

    /// Adds the nodes of `a < b`.
    pub fn lt<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        Bit(self.node(Op::Lt, &[a.signal(self).0, b.signal(self).0], 1))
    }

    /// Adds the nodes of `a > b`.
    pub fn gt<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        self.lt(b, a)
    }

    /// Adds the nodes of `a <= b`.
    pub fn le<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        self.not(self.lt(b, a))
    }

    /// Adds the nodes of `a >= b`.
    pub fn ge<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        self.not(self.lt(a, b))
    }

    /// Adds a change of width.
    pub fn to<A: Single, const M: u32>(&self, a: A) -> Sig<M> {
        if A::WIDTH == M { Sig(a.place()) } else { Sig(self.node(Op::Resize, &[a.place()], M)) }
    }

    /// Adds the nodes of `a.after(b)`.
    pub fn after<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        let distance = self.sub(a, b);
        let differs = self.ne(distance, 0_u64);
        self.and(differs, self.lt(distance, 1_u64 << (N - 1)))
    }

    /// Adds the nodes of `a.at_least(b)`.
    pub fn at_least<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        self.lt(self.sub(a, b), 1_u64 << (N - 1))
    }

    /// Adds the nodes of `a.at_most(b)`.
    pub fn at_most<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Bit {
        self.at_least(b, a)
    }

    /// Adds the nodes of `a.min(b)`.
    pub fn min<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        Sig::join(self, self.lt(b, a), b.signal(self), a.signal(self))
    }

    /// Adds the nodes of `a.max(b)`.
    pub fn max<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        Sig::join(self, self.lt(a, b), b.signal(self), a.signal(self))
    }

    /// Adds the nodes of `a.saturating_add(b)`.
    pub fn saturating_add<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        let sum = self.add(a, b);
        Sig::join(self, self.lt(sum, a), self.u(U::<N>::MASK), sum)
    }

    /// Adds the nodes of `a.saturating_sub(b)`.
    pub fn saturating_sub<const N: u32>(&self, a: impl Number<N>, b: impl Number<N>) -> Sig<N> {
        Sig::join(self, self.lt(a, b), self.u(0), self.sub(a, b))
    }

    /// Adds the nodes of `map.test(offset)`.
    pub fn test(&self, map: MapSig, offset: impl Number<9>) -> Bit {
        Bit(self.node(Op::Test, &[map.0, offset.signal(self).0], 1))
    }

    /// Adds the nodes of `map.first_zero(from)`.
    pub fn first_zero(&self, map: MapSig, from: impl Number<9>) -> Sig<9> {
        Sig(self.node(Op::FirstZero, &[map.0, from.signal(self).0], OFFSET_BITS))
    }

    /// Adds the nodes of `map.first_one(from)`.
    pub fn first_one(&self, map: MapSig, from: impl Number<9>) -> Sig<9> {
        Sig(self.node(Op::FirstOne, &[map.0, from.signal(self).0], OFFSET_BITS))
    }

    /// Adds the nodes of `map.count()`.
    pub fn count(&self, map: MapSig) -> Sig<9> {
        Sig(self.node(Op::Count, &[map.0], OFFSET_BITS))
    }

    /// Sets `place` to `value`, under the conditions of the enclosing `if`.
    pub fn set<T: Form>(&self, place: &mut T, value: T) {
        *place = match self.conditions.borrow().last() {
            Some(&condition) if self.lowering == Lowering::Predicated => T::join(self, condition, value, *place),
            _ => value,
        };
    }

    /// Begins the branch of an `if` that is taken when `condition` holds.
    pub fn begin_if(&self, condition: Bit) {
        let around = self.conditions.borrow().last().copied();
        let both = around.map_or(condition, |around| self.and(around, condition));
        self.conditions.borrow_mut().push(both);
    }

    /// Ends the first branch and begins the other. Returns the value with which the second branch starts, given those
    /// `before` the `if` and `after` the first branch.
    pub fn flip<T: Form>(&self, condition: Bit, before: T, after: T) -> T {
        self.conditions.borrow_mut().pop();
        self.begin_if(self.not(condition));
        match self.lowering {
            Lowering::Joins => before,
            Lowering::Predicated => after,
        }
    }

    /// Ends an `if`. Returns the value after it, given those at the end of both branches.
    pub fn end<T: Form>(&self, condition: Bit, yes: T, no: T) -> T {
        self.conditions.borrow_mut().pop();
        match self.lowering {
            Lowering::Joins => T::join(self, condition, yes, no),
            Lowering::Predicated => no,
        }
    }

    /// Returns the value of an `if` expression.
    pub fn select<T: Form>(&self, condition: Bit, yes: T, no: T) -> T {
        T::join(self, condition, yes, no)
    }
}

/// Second factor of a product: a symbolic number of any width, or a literal.
pub trait Factor<const N: u32>: Copy {
    /// Returns the node.
    fn factor(self, g: &Recorder) -> Index;
}

impl<const N: u32, const M: u32> Factor<N> for Sig<M> {
    fn factor(self, _: &Recorder) -> Index {
        self.0
    }
}

impl<const N: u32> Factor<N> for u64 {
    fn factor(self, g: &Recorder) -> Index {
        g.u::<N>(self).0
    }
}

/// A value of native code that has a symbolic form.
pub trait Value: Copy {
    /// The symbolic form.
    type Form: Form;
}

impl<const N: u32> Value for U<N> {
    type Form = Sig<N>;
}

impl Value for bool {
    type Form = Bit;
}

impl Value for Map {
    type Form = MapSig;
}

impl Value for () {
    type Form = ();
}

/// A single value: its type, its bytes in a state block, and its words in stimulus files and tests.
pub trait Leaf: Value {
    /// Type.
    const KIND: Kind;
    /// Number of bytes in a state block; none for maps, which are never part of a state.
    const BYTES: usize;
    /// Number of words that a value of this type occupies in stimulus files and tests.
    const WORDS: usize;

    /// Declares an input of this type.
    fn input(g: &Recorder, name: String) -> Self::Form;

    /// Declares `form` as an output.
    fn output(g: &Recorder, name: String, form: Self::Form);

    /// Stores the value into the first [`Leaf::WORDS`] words.
    fn write_words(self, words: &mut [u64]);

    /// Reads a value from the first [`Leaf::WORDS`] words, and truncates it to its width.
    fn read_words(words: &[u64]) -> Self;

    /// Stores the value into the first [`Leaf::BYTES`] bytes.
    fn store(self, bytes: &mut [u8]);

    /// Reads a value from the first [`Leaf::BYTES`] bytes.
    fn load(bytes: &[u8]) -> Self;
}

/// Returns the number of bytes that a number of `bits` bits occupies in a state block: 1, 2, 4 or 8.
pub const fn stored_bytes(bits: u32) -> usize {
    match bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

impl<const N: u32> Leaf for U<N> {
    const KIND: Kind = Kind::Bits(N as u8);
    const BYTES: usize = stored_bytes(N);
    const WORDS: usize = 1;

    fn input(g: &Recorder, name: String) -> Sig<N> {
        Sig(g.input(name, Self::KIND))
    }

    fn output(g: &Recorder, name: String, form: Sig<N>) {
        g.output(name, form.0, N);
    }

    #[inline]
    fn write_words(self, words: &mut [u64]) {
        words[0] = self.get();
    }

    #[inline]
    fn read_words(words: &[u64]) -> Self {
        Self::new(words[0])
    }

    #[inline]
    fn store(self, bytes: &mut [u8]) {
        bytes[..Self::BYTES].copy_from_slice(&self.get().to_le_bytes()[..Self::BYTES]);
    }

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        let mut word = [0; 8];
        word[..Self::BYTES].copy_from_slice(&bytes[..Self::BYTES]);
        Self::new(u64::from_le_bytes(word))
    }
}

impl Leaf for bool {
    const KIND: Kind = Kind::Bits(1);
    const BYTES: usize = 1;
    const WORDS: usize = 1;

    fn input(g: &Recorder, name: String) -> Bit {
        Bit(g.input(name, Self::KIND))
    }

    fn output(g: &Recorder, name: String, form: Bit) {
        g.output(name, form.0, 1);
    }

    #[inline]
    fn write_words(self, words: &mut [u64]) {
        words[0] = u64::from(self);
    }

    #[inline]
    fn read_words(words: &[u64]) -> Self {
        words[0] & 1 == 1
    }

    #[inline]
    fn store(self, bytes: &mut [u8]) {
        bytes[0] = u8::from(self);
    }

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        bytes[0] & 1 == 1
    }
}

impl Leaf for Map {
    const KIND: Kind = Kind::Map;
    const BYTES: usize = 0;
    const WORDS: usize = crate::value::MAP_WORDS;

    fn input(g: &Recorder, name: String) -> MapSig {
        MapSig(g.input(name, Self::KIND))
    }

    fn output(g: &Recorder, _: String, _: MapSig) {
        g.require(false, "functions return no maps");
    }

    #[inline]
    fn write_words(self, words: &mut [u64]) {
        words[..Self::WORDS].copy_from_slice(self.words());
    }

    #[inline]
    fn read_words(words: &[u64]) -> Self {
        let mut map = [0; Self::WORDS];
        map.copy_from_slice(&words[..Self::WORDS]);
        Self::new(map)
    }

    fn store(self, _: &mut [u8]) {}

    fn load(_: &[u8]) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests;
