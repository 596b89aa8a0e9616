//! The receiver as a circuit against the model.

use rnic_base::{RandomStream, RandomStreams};
use rnic_rtl::circuit::{Circuit, Timing};
use rnic_rtl::tonic::generated::reception_fields;
use rnic_rtl::tonic::nic::packet_words;
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_tonic::{Arrival, FlowId, Receiver, ReceiverKind, ReceiverSizes, SegmentId};

const WINDOW: u16 = 128;

/// Ticks between two notifications.
const INTERVAL: u32 = 20;

/// Cycles of a batch.
const BATCH: usize = 1_000;

const KINDS: [ReceiverKind; 6] = [
    ReceiverKind::Cumulative { delay: 0 },
    ReceiverKind::Cumulative { delay: 9 },
    ReceiverKind::Selective,
    ReceiverKind::SelectiveNack,
    ReceiverKind::Trimmed,
    ReceiverKind::GoBackN,
];

fn number(kind: ReceiverKind) -> (u64, u32) {
    match kind {
        ReceiverKind::Cumulative { delay } => (0, delay),
        ReceiverKind::Selective => (1, 0),
        ReceiverKind::SelectiveNack => (2, 0),
        ReceiverKind::Trimmed => (3, 0),
        ReceiverKind::GoBackN => (4, 0),
    }
}

fn circuit(kind: ReceiverKind, flows: u16) -> Circuit {
    let flow = u32::from(flows).ilog2();
    let state: u32 = reception_fields(WINDOW).iter().map(|(_, bits)| bits).sum();
    let inputs = [
        ("delay_i", 24),
        ("interval_i", 24),
        ("add_i", 1),
        ("remove_i", 1),
        ("arrival_valid_i", 1),
        ("flow_i", flow),
        ("segment_i", 24),
        ("times_sent_i", 2),
        ("is_trimmed_i", 1),
        ("is_marked_i", 1),
        ("debug_flow_i", flow),
    ];
    let outputs =
        [("response_valid_o", 1), ("response_flow_o", flow), ("response_o", 80), ("dropped_o", 1), ("debug_o", state)];
    let folders = ["tonic", "lib", "gen/maps", "gen/k128", "gen/reno"];
    Circuit::written("tonic_receiver", &folders, Timing::Clocked, &inputs, &outputs)
        .with("KIND", number(kind).0)
        .with("FLOWS", flows.into())
        .with("DEBUG", 1)
        .called(&format!("receiver_{}_{flows}", number(kind).0))
}

/// An event of a cycle.
#[derive(Clone, Copy)]
enum Event {
    None,
    Add(FlowId, SegmentId),
    Remove(FlowId),
    Arrival(Arrival),
}

fn draw(random: &mut RandomStream, receiver: &Receiver, flows: u16, is_full: bool) -> Event {
    let flow = random.below(flows.into()) as FlowId;
    let Some(expected) = receiver.expected(flow) else {
        let near = if random.below(2) == 0 { 0xFF_FFF0 } else { random.bits() as u32 };
        return Event::Add(flow, SegmentId::new(near));
    };
    if !is_full && random.below(2_000) == 0 {
        return Event::Remove(flow);
    }
    if !is_full && random.below(3) == 0 {
        return Event::None;
    }
    let ahead = match random.below(16) {
        0 => random.bits() as u32,
        1 => random.below(140) as u32,
        2 => 0xFF_FFF0 + random.below(16) as u32,
        3..7 => random.below(5) as u32,
        _ => 0,
    };
    Event::Arrival(Arrival {
        flow,
        segment: expected.plus(ahead),
        times_sent: random.below(4) as u8,
        is_trimmed: random.below(12) == 0,
        is_marked: random.below(12) == 0,
    })
}

/// The words of a record.
fn record(event: Event, delay: u32, observed: FlowId) -> [u64; 11] {
    let (add, remove, valid, flow, segment) = match event {
        Event::None => (0, 0, 0, 0, 0),
        Event::Add(flow, first) => (1, 0, 0, flow, first.value()),
        Event::Remove(flow) => (0, 1, 0, flow, 0),
        Event::Arrival(arrival) => (0, 0, 1, arrival.flow, arrival.segment.value()),
    };
    let (times, trimmed, marked) = match event {
        Event::Arrival(arrival) => (arrival.times_sent, arrival.is_trimmed, arrival.is_marked),
        _ => (0, false, false),
    };
    let (flow, segment) = (u64::from(flow), u64::from(segment));
    let [times, trimmed, marked] = [u64::from(times), trimmed.into(), marked.into()];
    [delay.into(), INTERVAL.into(), add, remove, valid, flow, segment, times, trimmed, marked, observed.into()]
}

/// Runs model and circuit; returns how many responses there were.
fn run(model: &mut Model, kind: ReceiverKind, flows: u16, seed: u64, cycles: usize, is_full: bool) -> usize {
    let sizes = ReceiverSizes { flows, window: WINDOW, kind, cnp_interval: INTERVAL };
    let mut receiver = Receiver::new(sizes).expect("the sizes are possible");
    let mut random = RandomStreams::new(seed).stream("receiver");
    let mut is_known = vec![false; usize::from(flows)];
    let mut pending = Event::None;
    let mut shown: Option<Vec<u64>> = None;
    let mut responses = 0;
    let state_words = receiver.bits().div_ceil(64) as usize;
    for batch in 0..cycles / BATCH {
        let (mut records, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            let event = draw(&mut random, &receiver, flows, is_full);
            let observed = random.below(flows.into()) as FlowId;
            records.extend(record(event, number(kind).1, observed));
            // The circuit reads the state of a flow for a cycle before the model is told.
            let dropped = receiver.dropped();
            let arrival = match core::mem::replace(&mut pending, event) {
                Event::Add(flow, first) => {
                    receiver.add_flow(flow, first);
                    is_known[usize::from(flow)] = true;
                    None
                }
                Event::Remove(flow) => {
                    receiver.remove_flow(flow);
                    None
                }
                Event::Arrival(arrival) => Some(arrival),
                Event::None => None,
            };
            let response = receiver.step(arrival.as_ref());
            responses += usize::from(response.is_some());
            let answer = response.map(|(flow, packet)| (u64::from(flow), packet_words(&packet)));
            expected.push((answer, receiver.dropped() - dropped, shown.take()));
            let context = receiver.context(observed).expect("the flow is in range");
            shown = is_known[usize::from(observed)].then(|| context.words().to_vec());
        }
        let answers = model.run(&records).unwrap_or_else(|error| panic!("{kind:?}, seed {seed}: {error}"));
        for (cycle, (answer, (response, dropped, state))) in
            answers.chunks_exact(5 + state_words).zip(&expected).enumerate()
        {
            let at = format!("{kind:?}, seed {seed}, cycle {}", batch * BATCH + cycle);
            let found = (answer[0] == 1).then(|| (answer[1], answer[2..4].to_vec()));
            assert_eq!(found, *response, "{at}");
            assert_eq!(answer[4], *dropped, "{at}");
            assert!(
                state.as_ref().is_none_or(|state| answer[5..] == state[..]),
                "{at}: {state:x?} {:x?}",
                &answer[5..]
            );
        }
    }
    responses
}

#[test]
fn t25_receivers_of_all_kinds_answer_equally() {
    if !are_installed(&["verilator", "g++"]) {
        return;
    }
    let mut circuits: Vec<Circuit> = KINDS.iter().skip(1).map(|kind| circuit(*kind, 16)).collect();
    circuits.push(circuit(ReceiverKind::Selective, 1024));
    circuits.push(circuit(ReceiverKind::Trimmed, 1024));
    let verilated = Verilated::build(&circuits).expect("the circuits compile without warnings");
    for (seed, kind) in (1..).zip(KINDS) {
        let mut model = verilated.start(&circuit(kind, 16).name, 1).expect("the model starts");
        let responses = run(&mut model, kind, 16, seed, 200_000, false);
        assert!(responses > 50_000, "{kind:?}: {responses} responses");
    }
    // A packet, and an answer with a grant, in each cycle.
    for kind in [ReceiverKind::Selective, ReceiverKind::Trimmed] {
        let mut model = verilated.start(&circuit(kind, 1024).name, 1).expect("the model starts");
        let responses = run(&mut model, kind, 1024, 9, 100_000, true);
        println!("{kind:?}: {responses} responses in 100000 cycles");
        assert!(responses > 80_000, "{kind:?}: {responses} responses");
    }
}
