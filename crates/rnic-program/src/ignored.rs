//! States of a program in which it ignores acknowledgements, found in its graph.
//!
//! A program is called for every acknowledgement unless its graph shows that the call would change nothing. The graph
//! is evaluated with the inputs of a plain acknowledgement: `ack` is set and the other flags are not, `cum` is `start`,
//! and `start` follows `old_start`; all else is unknown. Values are numbers of operations (equal numbers are equal
//! values), each with the least and the largest value that it can have. Some of the state, and of the window, rate and
//! timer, must have the value with which a flow starts; those are the conditions that the caller checks.
//!
//! In the same way the graphs show whether packets that arrive out of order make a program retransmit: not if it marks
//! nothing without a trimmed packet or an expired timer, whatever its other inputs are.

use std::collections::BTreeMap;

use crate::fields::{Initial, mask};
use crate::graph::{Graph, Kind, Op};
use crate::record::{Lowering, RecordError};
use crate::transport::{Condition, Description, Graphs, Needs, Setting, Transport};
use crate::value::MAP_BITS_MAX;

/// Returns the parts of the template that `program` uses, by its graphs.
///
/// # Errors
/// When a function has no graph.
pub fn needs(program: &dyn Transport) -> Result<Needs, RecordError> {
    let Graphs { incoming, periodic } = program.graphs(Lowering::Joins)?;
    let reads = |name| incoming.reads(name) || periodic.reads(name);
    Ok(Needs {
        acked: reads("in_acked"),
        marked: reads("in_marked"),
        newly: reads("in_newly"),
        rate: !incoming.passes_on("cur_rate", "act_rate") || !periodic.passes_on("cur_rate", "act_rate"),
        ignored: conditions(&program.description(), &incoming),
        tolerates_reordering: never_marks(&program.description(), &incoming, "in_trimmed")
            && never_marks(&program.description(), &periodic, "in_expired"),
    })
}

/// Returns whether `function` of `program` certainly marks nothing while its input `cause` is not set.
fn never_marks(program: &Description, function: &Graph, cause: &str) -> bool {
    let (_, values) = evaluate(program, function, &Event { known: &[(cause, 0)], is_progress: false }, &[]);
    let mark = function.outputs().iter().find(|(port, _)| port.name == "act_mark");
    mark.is_some_and(|(_, index)| values[usize::from(*index)].constant() == Some(0))
}

/// Known inputs of a function.
struct Event<'e> {
    /// Inputs with a known value.
    known: &'e [(&'e str, u64)],
    /// True if the packet is an acknowledgement that advances: `cum` is `start`, and `start` follows `old_start`.
    is_progress: bool,
}

/// An acknowledgement without any other report.
const PLAIN_ACK: Event<'static> = Event {
    known: &[("in_ack", 1), ("in_nack", 0), ("in_trimmed", 0), ("in_cnp", 0), ("in_sacked", 0), ("in_sack_new", 0)],
    is_progress: true,
};

/// Returns the conditions under which `incoming`, the function for packets of `program`, answers every plain
/// acknowledgement by restarting the timer and changes nothing: no part of the state, window, rate or duration of the
/// timer, and marks nothing. `None` when it cannot be shown of any state. Whether the periodic function has work is not
/// part of it.
pub fn conditions(program: &Description, incoming: &Graph) -> Option<Vec<Condition>> {
    let start = &program.start;
    let settings = [(Setting::Window, &start.window), (Setting::Rate, &start.rate), (Setting::Timer, &start.timer)];
    let fields = program.state.iter().enumerate().map(|(at, field)| (Setting::State(at), &field.initial));
    let all = settings.into_iter().chain(fields);
    let mut needed: Vec<Condition> = all.map(|(setting, value)| Condition { setting, value: value.clone() }).collect();
    if !changes_nothing(program, incoming, &needed) {
        return None;
    }
    for at in (0..needed.len()).rev() {
        let without = needed.remove(at);
        if !changes_nothing(program, incoming, &needed) {
            needed.insert(at, without);
        }
    }
    Some(needed)
}

/// Returns whether a plain acknowledgement certainly changes nothing where `conditions` hold.
fn changes_nothing(program: &Description, incoming: &Graph, conditions: &[Condition]) -> bool {
    let (inputs, values) = evaluate(program, incoming, &PLAIN_ACK, conditions);
    let input = |name: &str| incoming.inputs().iter().position(|port| port.name == name).map(|at| inputs[at]);
    incoming.outputs().iter().all(|(port, index)| {
        let value = values[usize::from(*index)];
        match port.name.as_str() {
            "act_mark" => value.constant() == Some(0),
            "act_restart" => value.constant() == Some(1),
            "act_from" | "act_to" => true,
            name => {
                let before = match name.strip_prefix("next_") {
                    Some(field) => input(&format!("state_{field}")),
                    None => name.strip_prefix("act_").and_then(|setting| input(&format!("cur_{setting}"))),
                };
                before.is_some_and(|before| before.number == value.number)
            }
        }
    })
}

/// Returns the values of the inputs and of the nodes of `graph` for an event, where `conditions` hold.
fn evaluate(
    program: &Description,
    graph: &Graph,
    event: &Event<'_>,
    conditions: &[Condition],
) -> (Vec<Value>, Vec<Value>) {
    let mut evaluation = Evaluation { graph, event, made: Vec::new(), known: BTreeMap::new() };
    let inputs = evaluation.inputs(program, conditions);
    let mut values: Vec<Value> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let value = match node.op {
            Op::Input(position) => inputs[usize::from(position)],
            op => {
                let args = node.args.map(|arg| values.get(usize::from(arg)).copied().unwrap_or(Value::NONE));
                evaluation.node(op, args, node.width)
            }
        };
        values.push(value);
    }
    (inputs, values)
}

/// A value: its number, and its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Value {
    number: u32,
    least: u64,
    most: u64,
}

impl Value {
    /// The argument that an operation does not have.
    const NONE: Self = Self { number: u32::MAX, least: 0, most: u64::MAX };

    fn constant(self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }
}

/// How a value was made: its operation, and its arguments.
#[derive(Clone, Copy)]
struct Made {
    op: Op,
    args: [Value; 3],
}

struct Evaluation<'g> {
    graph: &'g Graph,
    event: &'g Event<'g>,
    /// By number.
    made: Vec<Made>,
    /// Number of a value, by its operation, the numbers of its arguments, and its width.
    known: BTreeMap<(Op, [u32; 3], u8), u32>,
}

/// Largest distance between two ids of which one follows the other.
const AFTER_MAX: u64 = (1 << 23) - 1;

impl Evaluation<'_> {
    /// Returns the values of the inputs.
    fn inputs(&mut self, program: &Description, conditions: &[Condition]) -> Vec<Value> {
        let graph = self.graph;
        let mut inputs = Vec::with_capacity(graph.inputs().len());
        for (at, port) in graph.inputs().iter().enumerate() {
            let most = if let Kind::Bits(bits) = port.kind { mask(bits) } else { u64::MAX };
            let known = self.event.known.iter().find(|(name, _)| *name == port.name);
            inputs.push(match known {
                Some((_, value)) => self.constant(*value),
                None => self.value((Op::Input(at as u16), [Value::NONE; 3]), 0, (0, most)),
            });
        }
        let position = |name: &str| graph.inputs().iter().position(|port| port.name == name);
        if let (Some(cum), Some(start)) = (position("in_cum"), position("in_start"))
            && self.event.is_progress
        {
            inputs[cum] = inputs[start];
        }
        for condition in conditions {
            let setting = match condition.setting {
                Setting::State(at) => position(&format!("state_{}", program.state[at].name)),
                Setting::Window => position("cur_window"),
                Setting::Rate => position("cur_rate"),
                Setting::Timer => position("cur_timer"),
            };
            let value = match &condition.value {
                Initial::Constant(value) => Some(self.constant(*value)),
                Initial::Parameter(name) => position(&format!("cfg_{name}")).map(|at| inputs[at]),
            };
            if let (Some(setting), Some(value)) = (setting, value) {
                inputs[setting] = value;
            }
        }
        inputs
    }

    fn constant(&mut self, value: u64) -> Value {
        self.value((Op::Constant(value), [Value::NONE; 3]), 0, (value, value))
    }

    /// Returns the value that `made` yields, which lies within `bounds`.
    fn value(&mut self, made: (Op, [Value; 3]), width: u8, bounds: (u64, u64)) -> Value {
        let (op, args) = made;
        let (least, most) = bounds;
        if least == most && !matches!(op, Op::Constant(_)) {
            return self.constant(least);
        }
        let next = self.made.len() as u32;
        let number = *self.known.entry((op, args.map(|arg| arg.number), width)).or_insert(next);
        if number == next {
            self.made.push(Made { op, args });
        }
        Value { number, least, most }
    }

    /// Returns the value of an operation.
    fn node(&mut self, op: Op, args: [Value; 3], width: u8) -> Value {
        let [a, b, c] = args;
        let all = mask(width);
        if let Op::Constant(value) = op {
            return self.constant(value);
        }
        if let Some(same) = passed_on(op, args, all) {
            return same;
        }
        let used = op.arity();
        let is_constant = args[..used].iter().all(|arg| arg.constant().is_some());
        if let Some(value) = computed(op, args).filter(|_| is_constant) {
            return self.constant(value & all);
        }
        let bounds = match op {
            Op::And if a.constant() == Some(0) || b.constant() == Some(0) => (0, 0),
            Op::And => (0, a.most.min(b.most)),
            Op::Or if a.constant() == Some(all) || b.constant() == Some(all) => (all, all),
            Op::Xor if a.number == b.number => (0, 0),
            Op::Mul if a.constant() == Some(0) || b.constant() == Some(0) => (0, 0),
            Op::Shr(bits) => (a.least >> bits, a.most >> bits),
            Op::Add if a.most.checked_add(b.most).is_some_and(|most| most <= all) => {
                (a.least + b.least, a.most + b.most)
            }
            Op::Sub if a.number == b.number => (0, 0),
            Op::Sub if self.is_advance(a, b) => (1, AFTER_MAX),
            Op::Sub if a.least >= b.most => (a.least - b.most, a.most - b.least),
            Op::Eq => self.equality(a, b),
            Op::Lt if a.number == b.number || a.least >= b.most => (0, 0),
            Op::Lt if a.most < b.least => (1, 1),
            Op::Mux => match self.difference(a, b, c) {
                Some(from) => (0, from.most),
                None => (b.least.min(c.least), b.most.max(c.most)),
            },
            Op::Test => (0, 1),
            Op::FirstZero | Op::FirstOne | Op::Count => (0, MAP_BITS_MAX.into()),
            _ => (0, all),
        };
        self.value((op, args), width, bounds)
    }

    /// Returns the bounds of `a == b`.
    fn equality(&self, a: Value, b: Value) -> (u64, u64) {
        if a.number == b.number {
            return (1, 1);
        }
        let differs = a.most < b.least || b.most < a.least || self.is_advance(a, b) || self.is_advance(b, a);
        if differs { (0, 0) } else { (0, 1) }
    }

    /// Returns whether `a` and `b` are the first unacknowledged segments after and before the packet.
    fn is_advance(&self, a: Value, b: Value) -> bool {
        self.event.is_progress && self.is_input(a, "in_start") && self.is_input(b, "in_old_start")
    }

    fn is_input(&self, value: Value, name: &str) -> bool {
        let made = self.made.get(value.number as usize);
        matches!(made, Some(Made { op: Op::Input(at), .. }) if self.graph.inputs()[usize::from(*at)].name == name)
    }

    /// Returns `from` if the multiplexer of these arguments is `from.saturating_sub(..)`.
    fn difference(&self, condition: Value, yes: Value, no: Value) -> Option<Value> {
        let of = |value: Value| self.made.get(value.number as usize);
        let (Made { op: Op::Lt, args: compared }, Made { op: Op::Sub, args: subtracted }) = (of(condition)?, of(no)?)
        else {
            return None;
        };
        let same = compared[0].number == subtracted[0].number && compared[1].number == subtracted[1].number;
        (same && yes.constant() == Some(0)).then_some(subtracted[0])
    }
}

/// Returns the argument that an operation passes on unchanged, where it certainly does. `all` has the bits of the
/// result.
fn passed_on(op: Op, args: [Value; 3], all: u64) -> Option<Value> {
    let [a, b, c] = args;
    let is = |value: Value, constant| value.constant() == Some(constant);
    match op {
        Op::Mux if is(a, 1) || b.number == c.number => Some(b),
        Op::Mux if is(a, 0) => Some(c),
        Op::Resize if a.most <= all => Some(a),
        Op::And if a.number == b.number || is(b, all) => Some(a),
        Op::And if is(a, all) => Some(b),
        Op::Or if a.number == b.number || is(b, 0) => Some(a),
        Op::Or | Op::Xor | Op::Add if is(a, 0) => Some(b),
        Op::Xor | Op::Add | Op::Sub if is(b, 0) => Some(a),
        Op::Shl(0) | Op::Shr(0) => Some(a),
        _ => None,
    }
}

/// Returns the result of an operation on numbers, before it is cut to its width; `None` for the others.
fn computed(op: Op, args: [Value; 3]) -> Option<u64> {
    let [a, b, _] = args.map(|arg| arg.least);
    Some(match op {
        Op::Add => a.wrapping_add(b),
        Op::Sub => a.wrapping_sub(b),
        Op::Mul => a.wrapping_mul(b),
        Op::Div => a.checked_div(b).unwrap_or(u64::MAX),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Not => !a,
        Op::Shl(bits) => a << bits,
        Op::Shr(bits) => a >> bits,
        Op::Eq => u64::from(a == b),
        Op::Lt => u64::from(a < b),
        Op::Resize => a,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "ignored_tests.rs"]
mod tests;
