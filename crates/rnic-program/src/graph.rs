//! The graph of a function: typed integer operations in the order in which they are evaluated.
//!
//! A graph has no loop, call, memory or trap, so it is total, and its cost is its length. Constants come first, then
//! operations; an operation refers only to nodes before it, so one pass checks a graph.

use std::collections::BTreeMap;

use crate::value::{DIVIDE_BITS_MAX, MAP_BITS_MAX, MULTIPLY_BITS_MAX};

/// Position of a node in its graph.
pub type Index = u16;

/// Maximum number of nodes of a graph. Tonic's six programs need at most half of them.
pub const NODES_MAX: usize = 512;

/// Maximum number of inputs, and of outputs, of a graph.
pub const PORTS_MAX: usize = 96;

/// Maximum depth of a graph in levels of logic (Tonic, section 6.1: 31 fit into 10 ns).
pub const LEVELS_MAX: u32 = 64;

/// Levels of logic that fit into a cycle of 10 ns (Tonic, section 6.1).
pub const LEVELS_OF_A_CYCLE: u32 = 31;

/// Width in bits of offsets into a map, and of counts of its bits.
pub(crate) const OFFSET_BITS: u32 = 9;

/// Type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number of this many bits. A flag has one.
    Bits(u8),
    /// A window map.
    Map,
}

/// A named input or output.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Name, unique among the inputs or outputs: the bundle and the field, joined by an underscore.
    pub name: String,
    /// Type.
    pub kind: Kind,
}

/// An operation. `a`, `b` and `c` are the arguments of its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A constant.
    Constant(u64),
    /// The input at this position.
    Input(u16),
    /// `a + b`, wrapping.
    Add,
    /// `a - b`, wrapping.
    Sub,
    /// `a * b`, truncated to the width of the node.
    Mul,
    /// `a / b`; all ones when `b` is zero.
    Div,
    /// Bitwise AND.
    And,
    /// Bitwise OR.
    Or,
    /// Bitwise XOR.
    Xor,
    /// Bitwise inverse of `a`.
    Not,
    /// `a` shifted to the left by a constant.
    Shl(u8),
    /// `a` shifted to the right by a constant.
    Shr(u8),
    /// `a == b`.
    Eq,
    /// `a < b`, unsigned.
    Lt,
    /// `b` if `a`, else `c`.
    Mux,
    /// `a` with the width of the node: zero-extended or truncated.
    Resize,
    /// Bit `b` of map `a`.
    Test,
    /// Offset of the first zero bit of map `a` at or after `b`.
    FirstZero,
    /// Offset of the first one bit of map `a` at or after `b`.
    FirstOne,
    /// Number of one bits of map `a`.
    Count,
}

impl Op {
    /// Returns the number of arguments.
    pub const fn arity(self) -> usize {
        match self {
            Self::Constant(_) | Self::Input(_) => 0,
            Self::Not | Self::Shl(_) | Self::Shr(_) | Self::Resize | Self::Count => 1,
            Self::Mux => 3,
            Self::Add | Self::Sub | Self::Mul | Self::Div | Self::And | Self::Or | Self::Xor => 2,
            Self::Eq | Self::Lt | Self::Test | Self::FirstZero | Self::FirstOne => 2,
        }
    }

    /// Returns the estimated delay, in half levels of logic, for operands of `bits` bits; row T-R4 of `rnic reproduce
    /// tonic` compares it with synthesis.
    pub(crate) const fn half_levels(self, bits: u32) -> u32 {
        match self {
            Self::Constant(_) | Self::Input(_) | Self::Shl(_) | Self::Shr(_) | Self::Resize => 0,
            Self::And | Self::Or | Self::Xor | Self::Not => 1,
            Self::Mux => 2,
            Self::Add | Self::Sub | Self::Eq | Self::Lt => 2 + bits.div_ceil(8),
            Self::Mul => 8,
            Self::Div => 40,
            Self::Test => 8,
            Self::FirstZero | Self::FirstOne => 22,
            Self::Count => 16,
        }
    }
}

/// A node: an operation, its arguments, and the type of its result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node {
    /// Operation.
    pub op: Op,
    /// Arguments; those beyond [`Op::arity`] are zero.
    pub args: [Index; 3],
    /// Width of the result in bits; zero for a map.
    pub width: u8,
}

/// An error in a graph: the node or port, and the reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GraphError {
    /// The graph has too many nodes.
    #[error("{0} nodes, at most {max} are possible", max = NODES_MAX)]
    TooLong(usize),
    /// The graph has too many inputs or outputs.
    #[error("{0} inputs or outputs, at most {max} are possible", max = PORTS_MAX)]
    TooManyPorts(usize),
    /// An argument does not refer to an earlier node.
    #[error("node {0} refers to a node that does not precede it")]
    Forward(usize),
    /// An operand has another type than the operation requires.
    #[error("node {0} ({1:?}): {2}")]
    Type(usize, Op, &'static str),
    /// An output refers to a node that does not exist, or to one of another type.
    #[error("output {0}: {1}")]
    Output(String, &'static str),
    /// The name of an input or output is invalid.
    #[error("the name `{0}` is used twice or invalid: 1 to 48 of the characters a-z, 0-9 and _")]
    Name(String),
    /// The longest path does not fit into a pipeline stage.
    #[error("the path to output {0} has {1} levels of logic, at most {max} are possible", max = LEVELS_MAX)]
    TooDeep(String, u32),
}

/// A function as a dataflow graph. Every value of this type has passed the checks of [`Graph::new`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    inputs: Vec<Port>,
    outputs: Vec<(Port, Index)>,
    nodes: Vec<Node>,
    labels: BTreeMap<Index, &'static str>,
}

impl Graph {
    /// Builds a graph and checks all of it.
    ///
    /// # Errors
    /// When it is too long or too deep, an argument does not precede its node, or a type or name is invalid.
    pub fn new(inputs: Vec<Port>, outputs: Vec<(Port, Index)>, nodes: Vec<Node>) -> Result<Self, GraphError> {
        if nodes.len() > NODES_MAX {
            return Err(GraphError::TooLong(nodes.len()));
        }
        if inputs.len().max(outputs.len()) > PORTS_MAX {
            return Err(GraphError::TooManyPorts(inputs.len().max(outputs.len())));
        }
        check_names(inputs.iter())?;
        check_names(outputs.iter().map(|(port, _)| port))?;
        for at in 0..nodes.len() {
            check_node(&nodes, at, &inputs)?;
        }
        let graph = Self { inputs, outputs, nodes, labels: BTreeMap::new() };
        for (port, index) in &graph.outputs {
            let fault = |reason| GraphError::Output(port.name.clone(), reason);
            let node = graph.nodes.get(usize::from(*index)).ok_or_else(|| fault("it refers to no node"))?;
            match port.kind {
                Kind::Bits(width) if width == node.width && width > 0 => {}
                Kind::Bits(_) => return Err(fault("the width of the port differs from that of the node")),
                Kind::Map => return Err(fault("functions return no maps")),
            }
        }
        for ((port, _), levels) in graph.outputs.iter().zip(graph.levels()) {
            if levels > LEVELS_MAX {
                return Err(GraphError::TooDeep(port.name.clone(), levels));
            }
        }
        Ok(graph)
    }

    /// Returns the same graph with names for some nodes.
    pub(crate) fn labelled(self, labels: BTreeMap<Index, &'static str>) -> Self {
        Self { labels, ..self }
    }

    /// Returns the name that the author of the function gave to the value of a node.
    pub fn label(&self, node: usize) -> Option<&'static str> {
        self.labels.get(&(node as Index)).copied()
    }

    /// Returns the inputs, in the order in which they are passed.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// Returns the outputs, in the order in which they are returned, with their nodes.
    pub fn outputs(&self) -> &[(Port, Index)] {
        &self.outputs
    }

    /// Returns the nodes, in the order of evaluation.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the number of operations: nodes that are neither constants nor inputs.
    pub fn operations(&self) -> usize {
        self.nodes.iter().filter(|node| node.op.arity() > 0).count()
    }

    /// Returns, for each output, the number of levels of logic on its longest path.
    pub fn levels(&self) -> Vec<u32> {
        let mut depths: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let args = &node.args[..node.op.arity()];
            let before = args.iter().map(|&arg| depths[usize::from(arg)]).max().unwrap_or(0);
            let bits = args.iter().map(|&arg| u32::from(self.nodes[usize::from(arg)].width)).max().unwrap_or(0);
            depths.push(before + node.op.half_levels(bits));
        }
        self.outputs.iter().map(|(_, index)| depths[usize::from(*index)].div_ceil(2)).collect()
    }

    /// Returns whether the input called `name` is used.
    pub fn reads(&self, name: &str) -> bool {
        let position = self.inputs.iter().position(|port| port.name == name);
        position.is_some_and(|position| self.nodes.iter().any(|node| node.op == Op::Input(position as u16)))
    }

    /// Returns whether the output called `output` is always the input called `input`.
    pub fn passes_on(&self, input: &str, output: &str) -> bool {
        let position = self.inputs.iter().position(|port| port.name == input);
        let node = self.outputs.iter().find(|(port, _)| port.name == output).map(|(_, index)| usize::from(*index));
        node.zip(position).is_some_and(|(node, position)| self.nodes[node].op == Op::Input(position as u16))
    }
}

fn check_names<'a>(ports: impl Iterator<Item = &'a Port> + Clone) -> Result<(), GraphError> {
    for (at, port) in ports.clone().enumerate() {
        let twice = ports.clone().take(at).any(|other| other.name == port.name);
        if twice || !is_name(&port.name) {
            return Err(GraphError::Name(port.name.chars().take(60).collect()));
        }
    }
    Ok(())
}

/// Returns whether `name` is a lower-case identifier of at most 48 characters.
pub(crate) fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= 48 && name.bytes().all(legal) && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
}

fn check_node(nodes: &[Node], at: usize, inputs: &[Port]) -> Result<(), GraphError> {
    let node = nodes[at];
    let fault = |reason| Err(GraphError::Type(at, node.op, reason));
    let arity = node.op.arity();
    if node.args[..arity].iter().any(|&arg| usize::from(arg) >= at) || node.args[arity..].iter().any(|&arg| arg != 0) {
        return Err(GraphError::Forward(at));
    }
    let width = u32::from(node.width);
    let of = |arg: usize| u32::from(nodes[usize::from(node.args[arg])].width);
    if let Op::Input(position) = node.op {
        let expected = match inputs.get(usize::from(position)).map(|port| port.kind) {
            Some(Kind::Bits(bits)) if (1..=64).contains(&bits) => u32::from(bits),
            Some(Kind::Bits(_)) => return fault("the input's width is not 1 to 64"),
            Some(Kind::Map) => 0,
            None => return fault("there is no such input"),
        };
        return if width == expected { Ok(()) } else { fault("its width is not that of the input") };
    }
    if width == 0 || width > 64 {
        return fault("the width is not 1 to 64");
    }
    let is_map = |arg: usize| of(arg) == 0;
    let legal = match node.op {
        Op::Constant(value) => value <= u64::MAX >> (64 - width),
        Op::Input(_) => true,
        Op::Add | Op::Sub | Op::And | Op::Or | Op::Xor => of(0) == width && of(1) == width,
        Op::Mul => {
            let factor = |arg| !is_map(arg) && of(arg) <= MULTIPLY_BITS_MAX;
            factor(0) && factor(1) && width <= 2 * MULTIPLY_BITS_MAX
        }
        Op::Div => of(0) == width && of(1) == width && width <= DIVIDE_BITS_MAX,
        Op::Not => of(0) == width,
        Op::Shl(bits) | Op::Shr(bits) => of(0) == width && u32::from(bits) < 64,
        Op::Eq | Op::Lt => of(0) == of(1) && !is_map(0) && width == 1,
        Op::Mux => of(0) == 1 && of(1) == width && of(2) == width,
        Op::Resize => !is_map(0),
        Op::Test => is_map(0) && of(1) == OFFSET_BITS && width == 1,
        Op::FirstZero | Op::FirstOne => is_map(0) && of(1) == OFFSET_BITS && width == OFFSET_BITS,
        Op::Count => is_map(0) && width == OFFSET_BITS,
    };
    const { assert!(MAP_BITS_MAX < 1 << OFFSET_BITS) };
    if legal { Ok(()) } else { fault("widths do not agree, or exceed what the operation allows") }
}
