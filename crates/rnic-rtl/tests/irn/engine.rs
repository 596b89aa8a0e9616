//! The receiver with the contexts of all queue pairs, cycle by cycle, and the modules as pipelines.

use rnic_base::rng::{RandomStream, RandomStreams};
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::spec::irn::{Effect, ID_MASK, ReceiveContext, WINDOW, later};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};

use super::modules::{FOLDERS, Record, receive_ack, receive_data, tx_free};
use super::stimuli::{Event, Stimuli};

const QPS: usize = 1024;

/// Cycles from a packet to its answer.
const LATENCY: usize = 4;

/// Returns the receiver.
pub fn engine() -> Circuit {
    let inputs = [("valid_i", 1), ("is_set_up_i", 1), ("qp_i", 10), ("psn_i", 24), ("arrival_i", 2)];
    let outputs = [
        ("ready_o", 1),
        ("valid_o", 1),
        ("qp_o", 10),
        ("answer_o", 2),
        ("cumulative_o", 24),
        ("selective_o", 24),
        ("msn_o", 24),
        ("completions_o", 8),
        ("place_o", 1),
    ];
    Circuit::written("irn_rx_engine", &FOLDERS, Timing::Clocked, &inputs, &outputs)
}

/// A packet or, without an effect, the set-up of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Packet {
    qp: usize,
    psn: u32,
    effect: Option<Effect>,
}

/// The circuit, and what it has to answer.
struct Engine {
    model: Model,
    contexts: Vec<ReceiveContext>,
    /// Queue pairs of the packets accepted in the last three cycles.
    busy: [Option<usize>; 3],
    inputs: Vec<u64>,
    /// Words of the outputs in each cycle, as far as they are determined.
    expected: Vec<(bool, Option<Vec<u64>>)>,
}

impl Engine {
    fn new(model: Model) -> Self {
        let contexts = vec![ReceiveContext::default(); QPS];
        Self { model, contexts, busy: [None; 3], inputs: Vec::new(), expected: vec![(true, None); LATENCY] }
    }

    /// Offers a packet in one cycle; returns whether it is accepted.
    fn cycle(&mut self, packet: Option<Packet>) -> bool {
        let Packet { qp, psn, effect } = packet.unwrap_or(Packet { qp: 0, psn: 0, effect: Some(Effect::None) });
        let is_set_up = packet.is_some() && effect.is_none();
        let arrival = effect.map_or(0, |effect| effect as u64);
        self.inputs.extend([packet.is_some().into(), is_set_up.into(), qp as u64, psn.into(), arrival]);
        let is_ready = !self.busy.contains(&Some(qp));
        let now = self.expected.len() - LATENCY;
        self.expected[now].0 = is_ready;
        let accepted = packet.filter(|_| is_ready);
        self.busy = [accepted.map(|packet| packet.qp), self.busy[0], self.busy[1]];
        let answer = accepted.and_then(|packet| self.answer(packet));
        self.expected.push((true, answer));
        accepted.is_some()
    }

    fn answer(&mut self, Packet { qp, psn, effect }: Packet) -> Option<Vec<u64>> {
        let context = &mut self.contexts[qp];
        let Some(effect) = effect else {
            *context = ReceiveContext { expected: psn, ..ReceiveContext::default() };
            return None;
        };
        let received = context.receive_data(psn, effect);
        let ids = [context.expected, received.selective, context.msn, received.completions];
        let ids = ids.map(u64::from);
        Some([&[qp as u64, received.answer as u64], &ids[..], &[received.place.into()]].concat())
    }

    /// Runs the cycles so far, and compares their outputs.
    fn run(&mut self, first: usize) {
        let answers = self.model.run(&self.inputs).expect("the model runs");
        let cycles = self.expected.len() - LATENCY;
        for (cycle, (answer, (is_ready, outputs))) in answers.chunks_exact(9).zip(&self.expected).enumerate() {
            let number = first + cycle;
            assert_eq!(answer[0], u64::from(*is_ready), "ready in cycle {number}");
            assert_eq!(answer[1], u64::from(outputs.is_some()), "an answer in cycle {number}");
            if let Some(outputs) = outputs {
                assert_eq!(answer[2..], outputs[..], "the answer in cycle {number}");
            }
        }
        self.inputs.clear();
        self.expected.drain(..cycles);
    }

    /// Offers `packets` as fast as they are accepted; returns the number of cycles.
    fn offer(&mut self, packets: impl Iterator<Item = Packet>) -> usize {
        let mut cycles = 0;
        for packet in packets {
            loop {
                cycles += 1;
                let is_accepted = self.cycle(Some(packet));
                if cycles % 4_096 == 0 {
                    self.run(cycles - 4_096);
                }
                if is_accepted {
                    break;
                }
            }
        }
        for _ in 0..LATENCY {
            self.cycle(None);
        }
        self.run(cycles + LATENCY - self.inputs.len() / 5);
        cycles
    }
}

/// Returns a packet for `qp`: often the expected one, mostly one in its window.
fn draw(rng: &mut RandomStream, expected: u32, qp: usize) -> Packet {
    let psn = match rng.below(16) {
        0..8 => expected,
        8..14 => later(expected, rng.below(u64::from(WINDOW) + 2) as u32),
        14 => later(expected, ID_MASK - rng.below(40) as u32),
        _ => rng.below(1 << 24) as u32,
    };
    let effect = [Effect::None, Effect::EndsMessage, Effect::CompletesReceive][rng.below(3) as usize];
    Packet { qp, psn, effect: Some(effect) }
}

/// Checks the receiver with `packets` packets of each number of queue pairs, and five times as many in any order.
pub fn check_engine(model: Model, packets: usize) {
    let mut engine = Engine::new(model);
    let mut rng = RandomStreams::new(23).stream("packets");
    // Each starts close to the wrap.
    let set_up = |qp| Packet { qp, psn: later(qp as u32, ID_MASK - 500), effect: None };
    assert_eq!(engine.offer((0..QPS).map(set_up)), QPS, "cycles to set up all queue pairs");

    for (queue_pairs, cycles_each) in [(1, 4), (2, 2), (4, 1), (16, 1), (QPS, 1)] {
        // The packets are drawn with what the receiver expected when the previous ones were accepted.
        let mut contexts = engine.contexts.clone();
        let drawn: Vec<Packet> = (0..packets)
            .map(|number| {
                let qp = number % queue_pairs;
                let packet = draw(&mut rng, contexts[qp].expected, qp);
                contexts[qp].receive_data(packet.psn, packet.effect.unwrap_or(Effect::None));
                packet
            })
            .collect();
        let cycles = engine.offer(drawn.into_iter());
        let stalls = if queue_pairs < 4 { LATENCY - 1 } else { 0 };
        assert!(
            cycles <= packets * cycles_each && cycles + stalls >= packets * cycles_each,
            "{cycles} cycles for {packets} packets of {queue_pairs} queue pairs"
        );
    }

    // Any order of queue pairs, and pauses.
    for _ in 0..5 * packets {
        let qp = [rng.below(5), rng.below(QPS as u64)][rng.below(2) as usize] as usize;
        let packet = draw(&mut rng, engine.contexts[qp].expected, qp);
        engine.cycle((rng.below(8) != 0).then_some(packet));
    }
    engine.run(0);
}

/// The paper's receiveData takes a packet in 22 ns, about four cycles (table 2).
#[test]
fn i22_i_r23_the_receiver_accepts_a_packet_each_cycle_from_four_queue_pairs_on() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[engine()]).expect("the circuit compiles without warnings");
    check_engine(verilated.start("irn_rx_engine", 1).expect("the model starts"), 40_000);
}

/// Returns the modules with registers between their stages, and their events.
pub fn pipelines() -> [(Circuit, Event<WINDOW>); 3] {
    let pipelined = |mut circuit: Circuit| {
        circuit.timing = Timing::WithoutReset;
        let name = format!("{}_pipelined", circuit.name);
        circuit.with("PIPE", 1).called(&name)
    };
    [
        (pipelined(receive_data(WINDOW)), Stimuli::receive_data),
        (pipelined(tx_free(WINDOW)), Stimuli::tx_free),
        (pipelined(receive_ack(WINDOW)), Stimuli::receive_ack),
    ]
}

/// Checks that a pipeline answers an event each cycle, two cycles later.
pub fn check_pipeline(mut model: Model, event: Event<WINDOW>, events: u64) {
    let mut stimuli = Stimuli::new(24);
    let records: Vec<Record> = (0..events).map(|_| event(&mut stimuli)).collect();
    let inputs: Vec<u64> = records.iter().flat_map(|record| record.inputs.iter().copied()).collect();
    let answers = model.run(&inputs).expect("the model runs");
    let answers = answers.chunks_exact(records[0].outputs.len());
    for (number, (record, answer)) in records.iter().zip(answers.skip(2)).enumerate() {
        assert_eq!(record.outputs, answer, "event {number}: {:x?}", record.inputs);
    }
}

/// The modules with registers between their stages: an event each cycle, its outputs two cycles later.
#[test]
fn i_r23_pipelines_answer_each_cycle_two_cycles_later() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let circuits = pipelines().map(|(circuit, _)| circuit);
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (circuit, event) in pipelines() {
        check_pipeline(verilated.start(&circuit.name, 1).expect("the model starts"), event, 100_000);
    }
}
