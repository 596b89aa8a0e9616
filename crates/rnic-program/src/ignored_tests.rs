//! Conditions of small programs.

use std::collections::BTreeMap;

use rnic_base::{RandomStream, RandomStreams};

use super::{PLAIN_ACK, conditions, evaluate};
use crate::fields::{Fields as _, Initial, mask};
use crate::loaded::{WORDS_MAX, input_words, inputs};
use crate::transport::{Condition, Setting, Transport};
use crate::{Actions, Graph, Id, Incoming, Kind, Lowering, Machine, Map, Node, Offset, Op, Port, Stimuli, Ticks};

/// Declares a program in `$module` whose `incoming` is `$body`, of packet `$i`, parameters `$p`, state `$s` and answer
/// `$a`.
macro_rules! program {
    ($module:ident, |$i:ident, $p:ident, $s:ident, $a:ident| $body:block) => {
        mod $module {
            use crate::prelude::*;

            crate::transport! {
                /// Answers as its test says.
                program Answering("answering") {
                    scheme: window,
                    start: { window: cap, rate: 0, timer: 2000 },
                }
                state State {
                    distance: 9,
                    count: 8 = 3,
                    last: 24,
                }
                parameters Parameters {
                    /// Segments of the window.
                    cap: 9 = 32 [1..=128],
                }
            }

            #[program]
            pub(super) fn incoming($i: &Incoming, $p: &Parameters, $s: &mut State, $a: &mut Actions) $body

            #[program]
            pub(super) fn periodic(_v: &Periodic, _p: &Parameters, s: &mut State, _a: &mut Actions) {
                s.count = u(0);
            }
        }
    };
}

program!(always, |i, _p, s, a| {
    a.restart = i.start.after(i.old_start);
    if i.nack {
        s.count += 1;
        a.window = u(1);
        a.mark = true;
    }
});

program!(distances, |i, p, s, a| {
    s.distance = s.distance.saturating_sub((i.start - i.old_start).to::<9>());
    a.restart = i.start != i.old_start;
    a.window = p.cap;
    if s.distance != 0 || s.count != 3 {
        a.mark = true;
        a.from = i.start;
        a.to = i.start + 1;
    }
});

program!(counting, |i, _p, s, a| {
    s.count += 1;
    a.restart = i.ack;
});

program!(remembering, |i, _p, s, a| {
    s.last = i.cum;
    a.restart = i.ack;
});

program!(continuing, |i, _p, _s, a| {
    a.restart = i.nack;
});

program!(looking, |i, _p, _s, a| {
    a.restart = i.ack;
    a.mark = i.acked.first_zero(0) == 0;
});

fn found(program: &dyn Transport) -> Option<Vec<Condition>> {
    let graphs: [Graph; 2] = [Lowering::Joins, Lowering::Predicated]
        .map(|lowering| program.graphs(lowering).expect("every program has graphs").incoming);
    let [joins, predicated] = graphs.map(|graph| conditions(&program.description(), &graph));
    assert!(predicated.is_none() || predicated == joins, "the other lowering has {predicated:?}, not {joins:?}");
    joins
}

#[test]
fn a_program_that_reacts_to_losses_alone_ignores_every_acknowledgement() {
    assert_eq!(found(&always::Answering), Some(Vec::new()));
}

#[test]
fn conditions_are_those_settings_on_which_the_answer_depends() {
    let condition = |setting, value| Condition { setting, value };
    let expected = vec![
        condition(Setting::Window, Initial::Parameter("cap".into())),
        condition(Setting::State(0), Initial::Constant(0)),
        condition(Setting::State(1), Initial::Constant(3)),
    ];
    assert_eq!(found(&distances::Answering), Some(expected));
}

#[test]
fn a_program_that_acknowledgements_change_ignores_none() {
    for program in
        [&counting::Answering as &dyn Transport, &remembering::Answering, &continuing::Answering, &looking::Answering]
    {
        assert_eq!(found(program), None);
    }
}

/// Returns a graph of random operations on the inputs of `distances`, whose outputs are all numbers in it.
fn drawn(random: &mut RandomStream) -> Option<Graph> {
    let inputs = inputs::<Incoming>(&distances::Answering.description());
    let mut nodes: Vec<Node> = Vec::new();
    for (at, port) in inputs.iter().enumerate() {
        let width = if let Kind::Bits(bits) = port.kind { bits } else { 0 };
        nodes.push(Node { op: Op::Input(at as u16), args: [0; 3], width });
    }
    for width in [1, 8, 9, 23, 24] {
        for value in [0, 1, mask(width), random.below(300) & mask(width)] {
            nodes.push(Node { op: Op::Constant(value), args: [0; 3], width });
        }
    }
    let first = nodes.len();
    while nodes.len() < first + 36 {
        let width = [1, 8, 9, 23, 24][random.below(5) as usize];
        let of = |random: &mut RandomStream, width: u8| {
            let all: Vec<u16> = (0..nodes.len()).filter(|&at| nodes[at].width == width).map(|at| at as u16).collect();
            all[random.below(all.len() as u64) as usize]
        };
        let (a, b, bit) = (of(random, width), of(random, width), of(random, 1));
        let other = [1, 8, 9, 23, 24][random.below(5) as usize];
        let (x, y, map, offset) = (of(random, other), of(random, other), of(random, 0), of(random, 9));
        let mut push = |op, args, width| nodes.push(Node { op, args, width });
        match random.below(20) {
            0 => push(Op::Add, [a, b, 0], width),
            1 | 2 => push(Op::Sub, [a, b, 0], width),
            3 => push(Op::And, [a, b, 0], width),
            4 => push(Op::Or, [a, b, 0], width),
            5 => push(Op::Xor, [a, b, 0], width),
            6 => push(Op::Not, [a, 0, 0], width),
            7 => push(Op::Shl(random.below(12) as u8), [a, 0, 0], width),
            8 => push(Op::Shr(random.below(12) as u8), [a, 0, 0], width),
            9 | 10 => push(Op::Eq, [x, y, 0], 1),
            11 | 12 => push(Op::Lt, [x, y, 0], 1),
            13 | 14 => push(Op::Mux, [bit, a, b], width),
            15 => push(Op::Resize, [x, 0, 0], width),
            16 => push(Op::Mul, [x, a, 0], width),
            17 => push(Op::FirstZero, [map, offset, 0], 9),
            18 => push(Op::Test, [map, offset, 0], 1),
            _ => {
                // The pattern of a difference that ends at some value, nearly always at zero.
                let end = nodes.iter().position(|node| node.op == Op::Constant(0) && node.width == width)?;
                let end = if random.below(4) == 0 { b } else { end as u16 };
                let at = nodes.len() as u16;
                nodes.push(Node { op: Op::Lt, args: [a, b, 0], width: 1 });
                nodes.push(Node { op: Op::Sub, args: [a, b, 0], width });
                nodes.push(Node { op: Op::Mux, args: [at, end, at + 1], width });
            }
        }
    }
    let numbers = nodes.iter().enumerate().skip(first).filter(|(_, node)| node.width > 0);
    let output =
        |(at, node): (usize, &Node)| (Port { name: format!("node_{at}"), kind: Kind::Bits(node.width) }, at as u16);
    let outputs = numbers.map(output).collect();
    Graph::new(inputs, outputs, nodes).ok()
}

/// Each number has the value that the interpreter computes, within its bounds; equal numbers have equal values.
#[test]
fn values_are_those_of_the_interpreter() {
    let program = distances::Answering.description();
    let mut random = RandomStreams::new(8).stream("graphs");
    let mut stimuli = Stimuli::new(9);
    let all = [
        Condition { setting: Setting::Window, value: Initial::Parameter("cap".into()) },
        Condition { setting: Setting::State(0), value: Initial::Constant(0) },
        Condition { setting: Setting::State(1), value: Initial::Constant(3) },
    ];
    let (mut graphs, mut known) = (0, 0);
    while graphs < 1_500 {
        let Some(graph) = drawn(&mut random) else { continue };
        graphs += 1;
        let conditions: Vec<Condition> = all.iter().filter(|_| random.below(2) == 0).cloned().collect();
        let (_, values) = evaluate(&program, &graph, &PLAIN_ACK, &conditions);
        let machine = Machine::new(&graph);
        for _ in 0..24 {
            let parameters = stimuli.parameters(&program.parameters);
            let mut state: Vec<u64> = program.state_words(&stimuli.state(&program)).collect();
            let mut actions = stimuli.actions();
            for condition in &conditions {
                match condition.setting {
                    Setting::State(at) => state[at] = program.initial(&condition.value, &parameters),
                    _ => actions.window = Offset::new(program.initial(&condition.value, &parameters)),
                }
            }
            let mut block = vec![0; program.state_bytes()];
            program.store_state(&state, &mut block);
            let old_start = Id::new(random.bits());
            let distance = if random.below(4) == 0 { (1 << 23) - 1 } else { 1 + random.below(400) };
            let start = old_start + Id::new(distance);
            let packet = Incoming {
                ack: true,
                nack: false,
                trimmed: false,
                cnp: false,
                sacked: false,
                sack_new: false,
                cum: start,
                start,
                old_start,
                now: Ticks::new(random.bits() >> random.below(64)),
                acked: Map::new([random.bits(), random.bits(), 0, 1 << random.below(64)]),
                ..stimuli.incoming()
            };
            let inputs = input_words(&program, &packet, &parameters, &block, &Actions { ..actions });
            let mut outputs = [0; WORDS_MAX];
            machine.run(&inputs, &mut outputs);
            let mut seen = BTreeMap::new();
            for ((port, node), output) in graph.outputs().iter().zip(outputs) {
                let value = values[usize::from(*node)];
                assert!(
                    (value.least..=value.most).contains(&output),
                    "{}: {output} in {value:?}: {graph:?}",
                    port.name
                );
                let same = *seen.entry(value.number).or_insert(output);
                assert_eq!(same, output, "{}: another {value:?}: {graph:?}", port.name);
                known += u64::from(value.constant().is_some());
            }
        }
    }
    assert!(known > 100_000, "hardly any value was known: {known}");
}
