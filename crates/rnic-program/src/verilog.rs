//! SystemVerilog of a graph: one module a function, one wire an operation.
//!
//! Inputs and outputs are ports, named as in the graph. A value that its author named keeps that name, with a suffix,
//! so that no name is a reserved word. Maps are vectors of `K` bits; an operation on a map is an instance of a module
//! of [`LIBRARY`]. All literals have a width, and all operands that of their operation.

use core::fmt::Write as _;

use crate::graph::{Graph, Kind, Node, Op};

/// Modules that emitted functions instantiate.
pub const LIBRARY: &str = include_str!("program_maps.sv");

/// Returns the text of a module called `name`.
pub fn emit(name: &str, graph: &Graph) -> String {
    let emitter = Emitter { graph, names: names(graph) };
    let mut text = String::new();
    let ports: Vec<String> = graph
        .inputs()
        .iter()
        .map(|port| format!("    input  logic {}{}", range(port.kind), port.name))
        .chain(graph.outputs().iter().map(|(port, _)| format!("    output logic {}{}", range(port.kind), port.name)))
        .collect();
    let has_maps = graph.inputs().iter().any(|port| port.kind == Kind::Map);
    let parameter = if has_maps { " #(\n    parameter int unsigned K = 128\n)" } else { "" };
    let _ = write!(text, "module {name}{parameter} (\n{}\n);\n", ports.join(",\n"));
    for (at, node) in graph.nodes().iter().enumerate() {
        if node.op.arity() > 0 {
            emitter.node(at, node, &mut text);
        }
    }
    for (port, index) in graph.outputs() {
        let _ = writeln!(text, "  assign {} = {};", port.name, emitter.names[usize::from(*index)]);
    }
    text.push_str("endmodule\n");
    text
}

/// Returns whether the module of `graph` instantiates modules of [`LIBRARY`].
pub fn uses_library(graph: &Graph) -> bool {
    graph.nodes().iter().any(|node| matches!(node.op, Op::Test | Op::FirstZero | Op::FirstOne | Op::Count))
}

/// Returns the name of the module of a program's function: `<program>_<function>`.
pub fn module_name(program: &str, function: &str) -> String {
    format!("{}_{function}", program.replace('-', "_"))
}

struct Emitter<'a> {
    graph: &'a Graph,
    /// Name, or literal, of each node's value.
    names: Vec<String>,
}

/// Returns the name of each node's value: a literal, a port, a name given by the author, or a number.
fn names(graph: &Graph) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(graph.nodes().len());
    let is_port = |name: &str| {
        let outputs = graph.outputs().iter().map(|(port, _)| port);
        graph.inputs().iter().chain(outputs).any(|port| port.name == name)
    };
    for (at, node) in graph.nodes().iter().enumerate() {
        let name = match node.op {
            Op::Constant(value) => format!("{}'d{value}", node.width),
            Op::Input(position) => graph.inputs()[usize::from(position)].name.clone(),
            _ => match graph.label(at).map(|label| format!("{}_v", label.trim_start_matches("r#"))) {
                Some(label) if !names.contains(&label) && !is_port(&label) => label,
                _ => format!("t{at}"),
            },
        };
        names.push(name);
    }
    names
}

fn range(kind: Kind) -> String {
    match kind {
        Kind::Bits(1) => String::new(),
        Kind::Bits(bits) => format!("[{}:0] ", bits - 1),
        Kind::Map => "[K-1:0] ".to_owned(),
    }
}

impl Emitter<'_> {
    fn node(&self, at: usize, node: &Node, text: &mut String) {
        let of = |arg: usize| self.names[usize::from(node.args[arg])].as_str();
        let name = &self.names[at];
        let wire = format!("  wire {}{name}", range(Kind::Bits(node.width)));
        let instance = |module: &str, parameter: &str, ports: &str, output: &str| {
            format!("{wire};\n  {module} #(.K(K){parameter}) i{at} (.map({}){ports}, .{output}({name}));\n", of(0))
        };
        let from = |name: &str| format!(", .from({name})");
        let value = match node.op {
            Op::Test => {
                text.push_str(&instance("program_map_bit", "", &format!(", .offset({})", of(1)), "value"));
                return;
            }
            Op::FirstZero | Op::FirstOne => {
                let ones = if node.op == Op::FirstOne { ", .ONES(1'b1)" } else { ", .ONES(1'b0)" };
                text.push_str(&instance("program_map_first", ones, &from(of(1)), "first"));
                return;
            }
            Op::Count => {
                text.push_str(&instance("program_map_count", "", "", "count"));
                return;
            }
            op => self.expression(op, node),
        };
        let _ = writeln!(text, "{wire} = {value};");
    }

    fn expression(&self, op: Op, node: &Node) -> String {
        let of = |arg: usize| self.names[usize::from(node.args[arg])].as_str();
        let sized = |arg: usize| self.resized(node.args[arg].into(), node.width);
        match op {
            Op::Add => format!("{} + {}", of(0), of(1)),
            Op::Sub => format!("{} - {}", of(0), of(1)),
            Op::Mul => format!("{} * {}", sized(0), sized(1)),
            Op::Div => {
                let width = node.width;
                format!("({1} == {width}'d0) ? {{{width}{{1'b1}}}} : {0} / {1}", of(0), of(1))
            }
            Op::And => format!("{} & {}", of(0), of(1)),
            Op::Or => format!("{} | {}", of(0), of(1)),
            Op::Xor => format!("{} ^ {}", of(0), of(1)),
            Op::Not => format!("~{}", of(0)),
            Op::Shl(bits) | Op::Shr(bits) if bits >= node.width => format!("{}'d0", node.width),
            Op::Shl(bits) => format!("{} << {bits}", of(0)),
            Op::Shr(bits) => format!("{} >> {bits}", of(0)),
            Op::Eq => format!("{} == {}", of(0), of(1)),
            Op::Lt => format!("{} < {}", of(0), of(1)),
            Op::Mux => format!("{} ? {} : {}", of(0), of(1), of(2)),
            Op::Resize => sized(0),
            Op::Constant(_) | Op::Input(_) | Op::Test | Op::FirstZero | Op::FirstOne | Op::Count => of(0).to_owned(),
        }
    }

    /// Returns the value of node `index` with `width` bits.
    fn resized(&self, index: usize, width: u8) -> String {
        let (name, own) = (&self.names[index], self.graph.nodes()[index].width);
        match self.graph.nodes()[index].op {
            Op::Constant(value) => format!("{width}'d{}", value & crate::fields::mask(width)),
            _ if own == width => name.clone(),
            _ if own < width => format!("{{{}'d0, {name}}}", width - own),
            _ if width == 1 => format!("{name}[0]"),
            _ => format!("{name}[{}:0]", width - 1),
        }
    }
}
