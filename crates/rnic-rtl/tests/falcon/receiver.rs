//! The receive window beside the engine: a delivery layer of rnic-falcon receives, specification and circuit are given
//! the same packets, and each packet that leaves must carry the bases, and each extended acknowledgement the bitmaps,
//! of their windows.

use std::cell::RefCell;
use std::rc::Rc;

use rnic_base::{Duration, Psn32, RandomStream, RandomStreams, Time};
use rnic_falcon::delivery::{Arrival, Delivery, DeliveryConfig, Departure, OutOfWindowRule, Reception};
use rnic_falcon::interface::{Context, Exhausted, Gates, Outgoing, Received, Upper, Verdict};
use rnic_policy::Cwnd;
use rnic_rtl::spec::falcon::{Operation, Position, Window};
use rnic_rtl::tools::are_installed;
use rnic_rtl::verilated::{Model, Verilated};
use rnic_wire::falcon::{Body, NackCode, Packet, PacketType, Window as WindowName, WindowBases};

use crate::ends::{End, Faults, fate, opposite, run};
use crate::two_ends::link::{End as LinkEnd, Side, Wire};
use crate::two_ends::upper::{Acknowledging, Counting};
use crate::two_ends::{config, tune};
use crate::{events, outputs, rx_window};

/// First packets: numbers wrap after a few hundred.
const FIRST: WindowBases = WindowBases { data: Psn32::new(0xffff_ff00), request: Psn32::new(0xffff_ff80) };

/// Cycles of the circuit, and what is expected in each.
#[derive(Debug)]
struct Cycles {
    windows: [Window; 2],
    widths: [u32; 2],
    model: Option<Model>,
    records: Vec<u64>,
    expected: Vec<[u64; 11]>,
    cycles: u64,
    /// Packets by their position, and extended acknowledgements that were compared.
    seen: [u64; 5],
    extended: u64,
}

impl Cycles {
    fn new(model: Option<Model>, config: &DeliveryConfig) -> Self {
        let windows = [Window::new(FIRST.data.value()), Window::new(FIRST.request.value())];
        let widths = [config.data_window, config.request_window];
        let bases = windows.each_ref().map(|window| u64::from(window.base));
        let mut cycles = Self {
            windows,
            widths,
            model,
            records: vec![1, bases[0], bases[1], 0, 0, 0, 0, 0, 128],
            expected: Vec::new(),
            cycles: 0,
            seen: [0; 5],
            extended: 0,
        };
        // Before the start the windows have any base: the answer to that record is not compared.
        cycles.run();
        cycles
    }

    /// Gives circuit and specification an operation, or none; returns the position of the packet before it.
    fn cycle(&mut self, operation: Option<Operation>, at: usize, psn: u32, acknowledged: bool) -> Position {
        let width = self.widths[at];
        let position = self.windows[at].position(psn, width);
        self.expected.push(outputs(&self.windows, position));
        let code = operation.map_or(0, |operation| operation as u64);
        let valid = u64::from(operation.is_some());
        self.records.extend([0, 0, 0, valid, at as u64, code, psn.into(), acknowledged.into(), width.into()]);
        if let Some(operation) = operation {
            self.windows[at].operate(operation, psn, acknowledged, width);
        }
        self.cycles += 1;
        if self.expected.len() == 4_096 {
            self.run();
        }
        position
    }

    fn run(&mut self) {
        let (records, expected) = (std::mem::take(&mut self.records), std::mem::take(&mut self.expected));
        let Some(model) = &mut self.model else { return };
        let answers = model.run(&records).expect("no assertion of the circuit fails");
        let first = self.cycles - expected.len() as u64;
        for (number, (expected, found)) in (first..).zip(expected.iter().zip(answers.chunks(11))) {
            assert!(expected == found, "cycle {number}: the circuit answers {found:x?}, not {expected:x?}");
        }
    }

    /// A packet has arrived, and the engine has done with it what `reception` says.
    fn arrived(&mut self, received: Received, verdict: Option<Verdict>, reception: Reception) {
        let operation = if verdict == Some(Verdict::NoResources) { Operation::Refuse } else { Operation::Arrive };
        let acknowledged = verdict == Some(Verdict::Accepted { acknowledged: true });
        let position = self.cycle(Some(operation), index(received.window), received.psn.value(), acknowledged);
        self.seen[position as usize] += 1;
        let expected = match (position, operation) {
            (Position::Acknowledged | Position::Received, _) => Reception::Duplicate,
            (Position::New, Operation::Refuse) => Reception::NoResources,
            (Position::New, _) | (Position::Beyond, Operation::Arrive) => Reception::Kept,
            (Position::Beyond | Position::Outside, _) => Reception::OutOfWindow,
        };
        assert_eq!(reception, expected, "packet {received:?} is {position:?} in the specification");
    }

    /// The engine sends a packet: what it says of the windows is what they are.
    fn left(&mut self, packet: &Packet) {
        self.cycle(None, 0, 0, false);
        let [data, request] = &self.windows;
        assert_eq!([packet.bases.data, packet.bases.request].map(Psn32::value), [data.base, request.base]);
        let (received, requests) = (data.received(), request.received() as u64);
        let is_extended = data.dropped || request.dropped || received != 0 || requests != 0;
        match &packet.body {
            Body::Ack(_) => assert!(!is_extended, "an acknowledgement without bitmaps: {packet:?}"),
            Body::ExtendedAck(acknowledgement, bitmaps) => {
                let (is_data, is_request) = (acknowledgement.out_of_window.data, acknowledgement.out_of_window.request);
                assert_eq!((is_data, is_request), (data.dropped, request.dropped));
                assert_eq!((bitmaps.data_received, bitmaps.data_acked), (received, data.acknowledged()));
                assert_eq!(bitmaps.request_received, requests);
                assert!(is_extended);
                self.extended += 1;
                [0, 1].into_iter().for_each(|at| {
                    self.cycle(Some(Operation::Report), at, 0, false);
                });
            }
            _ => {}
        }
    }
}

const fn index(window: WindowName) -> usize {
    match window {
        WindowName::Data => 0,
        WindowName::Request => 1,
    }
}

/// A transaction layer that keeps what it is offered, or has no resources, and acknowledges data later.
struct Deciding {
    inner: Counting,
    random: RandomStream,
    /// Parts in a thousand of the packets for which there are no resources.
    refused: u64,
    verdict: Option<Verdict>,
}

impl Upper for Deciding {
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing> {
        self.inner.next(now, open)
    }

    fn retransmission(&mut self, now: Time, context: Context) -> Outgoing {
        self.inner.retransmission(now, context)
    }

    fn acked(&mut self, now: Time, context: Context) {
        self.inner.acked(now, context);
    }

    fn nacked(&mut self, now: Time, context: Context, code: NackCode) {
        self.inner.nacked(now, context, code);
    }

    fn exhausted(&mut self, now: Time, context: Context) -> Exhausted {
        self.inner.exhausted(now, context)
    }

    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        let has_room = self.random.below(1_000) >= self.refused;
        let is_push = packet.body.packet_type() == PacketType::PushData;
        let late = is_push && self.random.below(2) == 0;
        self.inner.acknowledging = if late { Acknowledging::Never } else { Acknowledging::AtOnce };
        let verdict = if has_room { self.inner.offer(now, packet) } else { Verdict::NoResources };
        self.verdict = Some(verdict);
        verdict
    }

    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode> {
        self.inner.duplicate(now, packet)
    }

    fn rx_level(&self) -> u8 {
        0
    }
}

/// The receiving end.
struct Receiver {
    delivery: Delivery,
    upper: Deciding,
    cycles: Rc<RefCell<Cycles>>,
    /// Packets to be acknowledged, with the times.
    waiting: Vec<(Time, Received)>,
}

impl Receiver {
    fn work(&mut self, now: Time) {
        let due: Vec<Received> = self.waiting.iter().filter(|(due, _)| *due <= now).map(|(_, one)| *one).collect();
        self.waiting.retain(|(due, _)| *due > now);
        for received in due {
            self.delivery.acknowledge(now, received);
            self.cycles.borrow_mut().cycle(
                Some(Operation::Acknowledge),
                index(received.window),
                received.psn.value(),
                false,
            );
        }
    }
}

impl Side for Receiver {
    fn transmit(&mut self, now: Time) -> Option<Departure> {
        let departure = self.delivery.transmit(now, &mut self.upper)?;
        self.cycles.borrow_mut().left(&departure.packet);
        Some(departure)
    }

    fn receive(&mut self, now: Time, arrival: &Arrival<'_>) {
        self.upper.verdict = None;
        let reception = self.delivery.receive(now, arrival, &mut self.upper);
        let body = &arrival.packet.body;
        if let (Some(window), Some(psn)) = (body.window(), body.psn()) {
            let (received, verdict) = (Received { window, psn }, self.upper.verdict);
            self.cycles.borrow_mut().arrived(received, verdict, reception);
            if verdict == Some(Verdict::Accepted { acknowledged: false }) {
                let wait = Duration::from_ns(self.upper.random.below(20_000));
                self.waiting.push((now + wait, received));
            }
        }
        while self.delivery.signal().is_some() {}
        self.work(now);
    }

    fn expire(&mut self, now: Time) {
        self.delivery.expire(now, &mut self.upper);
        self.work(now);
    }

    fn wake(&self, free_at: Time) -> Option<Time> {
        let below = self.delivery.deadline().map(|at| at.max(free_at));
        below.into_iter().chain(self.waiting.iter().map(|(due, _)| *due)).min()
    }
}

/// Windows of 128 packets that drop what is beyond; and windows of 64 that keep it.
fn configs() -> [(DeliveryConfig, u64); 2] {
    let mut strict = config();
    (strict.first_sent, strict.fcwnd, strict.ncwnd) = (FIRST, Cwnd::packets(256), 256);
    tune(&mut strict, "rto", "200us");
    let mut keeping = strict;
    (strict.request_window, strict.out_of_window, strict.tx_window) = (128, OutOfWindowRule::Drop, 256);
    (keeping.data_window, keeping.tx_window) = (64, 128);
    [(strict, 0), (keeping, 30)]
}

/// F-9, F-10: bases, bitmaps and drops that connections of rnic-falcon put on the wire are those of the circuit, while
/// packets are lost, late and doubled, numbers wrap, and the transaction layer has no resources at times.
#[test]
fn f9_f10_the_engines_acknowledgements_are_the_words_of_the_circuit() {
    let has_tools = are_installed(&["verilator", "g++"]);
    let verilated = has_tools.then(|| Verilated::build(&[rx_window()]).expect("the circuit compiles without warnings"));
    let faults = Faults { lost: 20, late: 60, twice: 10 };
    let mut seen = [0; 5];
    for (seed, (config, refused)) in (61..).zip(configs()) {
        let model = verilated.as_ref().map(|built| built.start("falcon_rx_window", 1).expect("the model starts"));
        let cycles = Rc::new(RefCell::new(Cycles::new(model, &config)));
        let streams = RandomStreams::new(seed);
        let mut sender = LinkEnd::new(config, Counting::new());
        sender.keeps_log = false;
        let wanted = events().div_ceil(2);
        for number in 0..wanted as u32 {
            // Pulls at times alone, so that one window is idle, and mixed.
            if number % 1_000 < 700 && number % 3 != 0 {
                sender.upper.push()
            } else {
                sender.upper.pull()
            };
        }
        let upper = Deciding { inner: Counting::new(), random: streams.stream("verdicts"), refused, verdict: None };
        let delivery = Delivery::new(opposite(&config));
        let receiver = Receiver { delivery, upper, cycles: Rc::clone(&cycles), waiting: Vec::new() };
        let ends: [End; 2] = [Box::new(sender), Box::new(receiver)];
        let mut link = Wire::between(ends, Box::new(fate(streams.stream("link"), faults, Duration::from_ns(131))));
        run(&mut link, || cycles.borrow().cycles >= wanted);
        let mut cycles = cycles.borrow_mut();
        cycles.run();
        println!("seed {seed}: {} cycles, packets {:?}, extended {}", cycles.cycles, cycles.seen, cycles.extended);
        assert!(cycles.extended > wanted / 50, "few acknowledgements with bitmaps: {}", cycles.extended);
        seen.iter_mut().zip(cycles.seen).for_each(|(sum, count)| *sum += count);
    }
    let least = events() / 20_000;
    assert!(seen.iter().all(|count| *count > least), "not all positions occur: {seen:?}");
}

/// The comparison notices an engine with other windows than the specification's.
#[test]
#[should_panic(expected = "in the specification")]
fn f9_f10_another_rule_of_the_engine_is_noticed() {
    let (config, _) = configs()[0];
    let cycles = Rc::new(RefCell::new(Cycles::new(None, &config)));
    let wider = DeliveryConfig { out_of_window: OutOfWindowRule::Keep, ..config };
    let streams = RandomStreams::new(63);
    let mut sender = LinkEnd::new(config, Counting::new());
    sender.upper.pushes(20_000);
    let upper = Deciding { inner: Counting::new(), random: streams.stream("verdicts"), refused: 0, verdict: None };
    let receiver =
        Receiver { delivery: Delivery::new(opposite(&wider)), upper, cycles: Rc::clone(&cycles), waiting: Vec::new() };
    let ends: [End; 2] = [Box::new(sender), Box::new(receiver)];
    let faults = Faults { lost: 20, late: 60, twice: 10 };
    let mut link = Wire::between(ends, Box::new(fate(streams.stream("link"), faults, Duration::from_ns(131))));
    run(&mut link, || cycles.borrow().cycles >= 40_000);
}
