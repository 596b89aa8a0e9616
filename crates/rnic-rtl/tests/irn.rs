//! IRN's modules as circuits: each answers as the specification, event by event.

use rnic_policy::{FootprintField, Per};
use rnic_rtl::circuit::{Change, Circuit};
use rnic_rtl::spec::irn::{Answer, Effect, ReceiveContext, Ring, SendContext, Timer, WINDOW, later};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};

#[path = "irn/engine.rs"]
mod engine;
#[path = "irn/modules.rs"]
mod modules;
#[path = "irn/mutants.rs"]
mod mutants;
#[path = "irn/stimuli.rs"]
mod stimuli;
#[path = "irn/trace.rs"]
mod trace;

use modules::{Record, receive_ack, receive_data, run_receive_data, run_timeout, run_tx_free, timeout, tx_free};
use stimuli::{Event, Stimuli};

/// Events for each module; `RNIC_LOCKSTEP_EVENTS` replaces it.
const EVENTS: u64 = 1_000_000;

/// Events in a batch for the circuit.
const BATCH: u64 = 4_096;

fn events() -> u64 {
    let wanted = std::env::var("RNIC_LOCKSTEP_EVENTS").ok();
    wanted.map_or(EVENTS, |text| text.parse().expect("RNIC_LOCKSTEP_EVENTS is a number of events"))
}

fn modules<const W: u32>() -> [(Circuit, Event<W>); 4] {
    [
        (receive_data(W), Stimuli::receive_data),
        (tx_free(W), Stimuli::tx_free),
        (receive_ack(W), Stimuli::receive_ack),
        (timeout(W), Stimuli::timeout),
    ]
}

/// Returns the first of `events` events of `seed` in which circuit and specification differ.
fn difference<const W: u32>(model: &mut Model, event: Event<W>, seed: u64, events: u64) -> Option<String> {
    let mut stimuli = Stimuli::new(seed);
    for first in (0..events).step_by(BATCH as usize) {
        let records: Vec<Record> = (0..BATCH.min(events - first)).map(|_| event(&mut stimuli)).collect();
        let inputs: Vec<u64> = records.iter().flat_map(|record| record.inputs.iter().copied()).collect();
        let answers = match model.run(&inputs) {
            Ok(answers) => answers,
            Err(error) => return Some(format!("the model does not run: {error}")),
        };
        let answers = answers.chunks_exact(records[0].outputs.len());
        let wrong = (first..).zip(records.iter().zip(answers)).find(|(_, (record, answer))| record.outputs != *answer);
        if let Some((number, (Record { inputs, outputs }, answer))) = wrong {
            return Some(format!(
                "event {number} of seed {seed}: {inputs:x?} is answered with {answer:x?} and not {outputs:x?}"
            ));
        }
    }
    None
}

#[test]
fn i22_i23_i24_i25_circuits_answer_as_the_specification_in_a_million_events_of_each_module() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    agree::<WINDOW>(events());
}

/// A window for links of 100 Gbit/s.
#[test]
fn i22_i23_circuits_with_maps_of_256_bits_answer_as_the_specification() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    agree::<256>(events() / 10);
}

/// Verilator and yosys may read a text differently: the gates that yosys makes of the modules do the same.
#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn i22_gates_of_the_circuits_answer_as_the_specification() {
    if !are_installed(&["verilator", "g++", "yosys"]) {
        return;
    }
    agree_as::<WINDOW>(events() / 10, Circuit::as_gates);
}

fn agree<const W: u32>(events: u64) {
    agree_as::<W>(events, |circuit| circuit);
}

fn agree_as<const W: u32>(events: u64, form: fn(Circuit) -> Circuit) {
    let circuits = modules::<W>().map(|(circuit, _)| form(circuit));
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (seed, (circuit, event)) in (1..).zip(modules::<W>()) {
        let mut model = verilated.start(&circuit.name, 1).expect("the model starts");
        let difference = difference(&mut model, event, seed, events);
        assert_eq!(difference, None, "{} with {W} bits", circuit.name);
    }
}

/// Faults, several of them known from public code: plain comparison of ids, a count of completions that is too narrow.
const FAULTS: [(&str, &str, &str, &str); 15] = [
    ("irn_receive_data", "serial_after", "!distance[W-1] && (distance != '0)", "a_i > b_i"),
    ("irn_receive_data", "irn_receive_data", "search.wraps = !is_later && has_first", "search.wraps = 1'b0"),
    ("irn_receive_data", "irn_receive_data", "is_early && (|distance[irn_pkg::ID_W-1:B]);", "is_early && distance[B];"),
    ("irn_receive_data", "irn_receive_data", "passed & search_q.high & search_q.low", "passed & search_q.low"),
    (
        "irn_receive_data",
        "irn_receive_data",
        "completions_o = count_q.receives + {{B{1'b0}}, completes};",
        "completions_o = {1'b0, count_q.receives[B-1:0] + {{B - 1{1'b0}}, completes}};",
    ),
    ("irn_tx_free", "irn_tx_free", "distance < {1'b0, search_q.lost}", "distance <= {1'b0, search_q.lost}"),
    ("irn_tx_free", "irn_tx_free", "has_new_i && (in_flight <", "has_new_i && (in_flight <="),
    ("irn_tx_free", "irn_tx_free", "flags_i.timed_out ? to_highest : lost_i", "lost_i"),
    ("irn_receive_ack", "irn_receive_ack", "holes_q.is_fresh && holes_q.is_exact", "holes_q.is_fresh"),
    ("irn_receive_ack", "irn_receive_ack", "common_qq.presumed > holes_q", "common_qq.presumed >= holes_q"),
    ("irn_receive_ack", "irn_receive_ack", "{1'b0, holes_q.highest} + {{B{1'b0}}, 1'b1}", "{1'b0, holes_q.highest}"),
    ("irn_receive_ack", "irn_receive_ack", "(missing & ~own)", "(missing)"),
    ("irn_receive_ack", "irn_receive_ack", "(hole_from > search_q.top)", "(1'b0)"),
    ("irn_timeout", "irn_timeout", "in_flight >= {{", "in_flight > {{"),
    ("irn_timeout", "irn_timeout", "!flags_i.extended && ", ""),
];

#[test]
#[ignore = "takes a minute: `make rtl-test`"]
fn i22_faults_in_circuits_are_noticed() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let changed = |(number, fault): (usize, &(&str, &str, &str, &str))| {
        let (module, file, from, to) = *fault;
        let (circuit, event) =
            modules::<WINDOW>().into_iter().find(|(circuit, _)| circuit.module == module).expect("a module");
        (circuit.changed(Change::new(file, from, to)).called(&format!("fault_{number}")), event)
    };
    let faults: Vec<(Circuit, Event<WINDOW>)> = FAULTS.iter().enumerate().map(changed).collect();
    let circuits: Vec<Circuit> = faults.iter().map(|(circuit, _)| circuit.clone()).collect();
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for ((circuit, event), fault) in faults.iter().zip(FAULTS) {
        let mut model = verilated.start(&circuit.name, 1).expect("the model starts");
        assert!(difference(&mut model, *event, 5, 100_000).is_some(), "{fault:?} is not noticed");
    }
}

/// Runs `record` on its circuit, and requires the specification's answer.
fn agrees(verilated: &Verilated, module: &str, record: &Record) {
    let mut model = verilated.start(module, 1).expect("the model starts");
    assert_eq!(model.run(&record.inputs).expect("the model runs"), record.outputs, "{module}: {:x?}", record.inputs);
}

/// The count of public code has seven bits, in which 128 is zero; there, a packet beyond the window changes nothing but
/// the answer, and the ids do not wrap.
#[test]
fn i22_i23_a_packet_completes_128_receives_across_the_wrap() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[receive_data(WINDOW)]).expect("the circuit compiles without warnings");
    for expected in [0, 77, 127, 0xff_ff80, 0xff_ffff] {
        let mut others = Ring::<WINDOW>::new([u64::MAX; 4]);
        others.put(expected, false);
        let mut context = ReceiveContext { expected, msn: 0xff_fff0, high: others, low: others };
        let beyond = run_receive_data(&mut context, later(expected, WINDOW), Effect::None);
        agrees(&verilated, "irn_receive_data", &beyond);
        let record = run_receive_data(&mut context, expected, Effect::CompletesReceive);
        agrees(&verilated, "irn_receive_data", &record);
        let after = ReceiveContext { expected: later(expected, WINDOW), msn: 0x70, ..ReceiveContext::default() };
        assert_eq!(context, after);
        let answer = &record.outputs[6..];
        assert_eq!(answer, [Answer::Ack as u64, 0, 128, 1], "from {expected:#x}");
    }
}

#[test]
fn i24_the_circuit_extends_the_low_timeout_once_and_then_acts() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[timeout(WINDOW)]).expect("the circuit compiles without warnings");
    let expire = |context: &mut SendContext| {
        let record = run_timeout(context, 3);
        agrees(&verilated, "irn_timeout", &record);
        (record.outputs[5], record.outputs[6])
    };
    let mut context = SendContext { next: 2, ..SendContext::new(0xff_ffff) };
    assert_eq!(context.in_flight(), 3);
    assert_eq!(expire(&mut context), (0, Timer::Extend as u64));
    assert!(context.extended && !context.recovering);
    assert_eq!(expire(&mut context), (1, Timer::Restart as u64));
    assert!(!context.extended && context.recovering);

    let mut few = SendContext { next: 1, ..SendContext::new(0xff_ffff) };
    assert_eq!(expire(&mut few), (1, Timer::Restart as u64));
    let mut idle = SendContext::new(5);
    assert_eq!(expire(&mut idle), (0, Timer::Keep as u64));
}

/// Packets 1, 2 and 5 of nine are missing, and ids wrap between them: the look-ahead returns one a call, then a new
/// packet.
#[test]
fn i25_the_circuit_returns_one_lost_packet_a_call_lowest_first() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let verilated = Verilated::build(&[tx_free(WINDOW)]).expect("the circuit compiles without warnings");
    let una = 0xff_fffe;
    let mut sacked = Ring::<WINDOW>::default();
    [3, 4, 6, 7].iter().for_each(|steps| sacked.put(later(una, *steps), true));
    let mut context =
        SendContext { next: later(una, 9), again: 1, lost: 7, recovering: true, sacked, ..SendContext::new(una) };
    let mut send = || {
        let record = run_tx_free(&mut context, true, true, 10);
        agrees(&verilated, "irn_tx_free", &record);
        record.outputs[2..5].to_vec()
    };
    let sent: Vec<Vec<u64>> = (0..5).map(|_| send()).collect();
    let again = |steps| vec![1, u64::from(later(una, steps)), 1];
    assert_eq!(sent, [again(1), again(2), again(5), vec![1, u64::from(later(una, 9)), 0], vec![0, 0, 0]]);
}

/// Returns the width of an input of a module.
fn width(circuit: &Circuit, port: &str) -> u64 {
    circuit.inputs.iter().find(|wire| wire.name == port).expect("the module has this port").bits.into()
}

/// The contexts of the circuits are what `docs/memory.md` counts: a sender at each end, with a bitmap each, the
/// responder's 2-bitmap, and the requester's bitmap of responses. The 56 bits for Reads are not part of the modules.
#[test]
fn i21_contexts_of_the_circuits_have_the_bits_of_the_footprint() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let [sender, receiver] = [receive_ack(WINDOW), receive_data(WINDOW)];
    let numbers = ["again_i", "lost_i", "presumed_i"].map(|port| width(&sender, port)).iter().sum::<u64>();
    let [recovery, flags, sacked] = ["recovery_i", "flags_i", "sacked_i"].map(|port| width(&sender, port));
    let [high, low] = ["high_i", "low_i"].map(|port| width(&receiver, port));
    let of_circuits = [
        ("PSN to retransmit, at both ends", 2 * numbers),
        ("recovery sequence, at both ends", 2 * recovery),
        ("flags, at both ends", 2 * flags),
        ("bitmaps of received packets", high + low + low),
        ("bitmaps of selective acknowledgements", 2 * sacked),
    ];
    let footprint = rnic_transports::profile("irn").expect("the transport exists").footprint();
    let of_connection = footprint.iter().filter(|field| field.per == Per::Connection);
    let (reads, others): (Vec<&FootprintField>, Vec<_>) =
        of_connection.partition(|field| field.name.starts_with("timer and Reads"));
    let others: Vec<(&str, u64)> = others.iter().map(|field| (field.name, field.bits)).collect();
    assert_eq!(others, of_circuits);
    assert_eq!(reads.iter().map(|field| field.bits).sum::<u64>(), 56);

    // The widths are those of the modules: a build compares them, and refuses others.
    Verilated::build(&[sender, receiver.clone()]).expect("the ports have these widths");
    let mut wider = receiver;
    wider.inputs[4].bits += 1;
    Verilated::build(&[wider]).expect_err("a port has another width");
}
