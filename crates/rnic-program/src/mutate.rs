//! Mutants of a graph: single errors that a comparison must detect.

use crate::graph::{Graph, Node, Op};

/// Returns every mutant of `graph` that differs in one place: another operation, exchanged arguments, an inverted
/// condition, or a constant that is off by one.
pub fn mutants(graph: &Graph) -> Vec<Graph> {
    let mut found = Vec::new();
    for (at, node) in graph.nodes().iter().enumerate() {
        for fault in faults(node) {
            let mut nodes = graph.nodes().to_vec();
            nodes[at] = fault;
            let mutant = Graph::new(graph.inputs().to_vec(), graph.outputs().to_vec(), nodes);
            found.extend(mutant.ok().filter(|mutant| mutant != graph));
        }
    }
    found
}

fn faults(node: &Node) -> Vec<Node> {
    let [a, b, c] = node.args;
    let with = |op| Node { op, ..*node };
    let exchanged = |args| Node { args, ..*node };
    match node.op {
        Op::Add => vec![with(Op::Sub)],
        Op::Sub => vec![with(Op::Add), exchanged([b, a, 0])],
        Op::And => vec![with(Op::Or)],
        Op::Or => vec![with(Op::And)],
        Op::Xor => vec![with(Op::Or)],
        Op::Lt => vec![exchanged([b, a, 0]), with(Op::Eq)],
        Op::Eq => vec![with(Op::Lt)],
        Op::Mux => vec![exchanged([a, c, b])],
        Op::Not => vec![with(Op::Resize)],
        Op::FirstZero => vec![with(Op::FirstOne)],
        Op::FirstOne => vec![with(Op::FirstZero)],
        Op::Shl(bits) => vec![with(Op::Shr(bits))],
        Op::Shr(bits) => vec![with(Op::Shr(bits + 1))],
        Op::Constant(value) => vec![with(Op::Constant(value.wrapping_add(1) & crate::fields::mask(node.width)))],
        Op::Input(_) | Op::Mul | Op::Div | Op::Resize | Op::Test | Op::Count => Vec::new(),
    }
}
