//! Graphviz output of a graph: an operation is a box, a value an arrow.

use core::fmt::Write as _;

use crate::graph::{Graph, Op};

/// Returns the text of a directed graph called `name`.
pub fn emit(name: &str, graph: &Graph) -> String {
    let mut text = format!("digraph {name} {{\n  rankdir = LR;\n  node [shape = box, fontname = monospace];\n");
    for (at, node) in graph.nodes().iter().enumerate() {
        let operation = match node.op {
            Op::Constant(value) => value.to_string(),
            Op::Input(position) => graph.inputs()[usize::from(position)].name.clone(),
            op => format!("{op:?}").to_lowercase().replace(['(', ')'], " ").trim().to_owned(),
        };
        let label = graph.label(at).map_or(operation.clone(), |label| format!("{label}\\n{operation}"));
        let _ = writeln!(text, "  n{at} [label = \"{label}\"];");
        for arg in &node.args[..node.op.arity()] {
            let _ = writeln!(text, "  n{arg} -> n{at} [label = \"{}\"];", graph.nodes()[usize::from(*arg)].width);
        }
    }
    for (port, index) in graph.outputs() {
        let _ = writeln!(text, "  {0} [shape = oval];\n  n{index} -> {0};", port.name);
    }
    text.push_str("}\n");
    text
}
