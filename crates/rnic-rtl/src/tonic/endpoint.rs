//! The circuit in place of the model: a NIC for simulated hosts, which runs every cycle.

use rnic_tonic::{Address, Command, Driver, FlowId, FlowSetup, FlowView, Input, Refused, SegmentId, Ticks};

use super::nic::{COMMAND_CYCLES, Nic, bits_at};
use crate::verilated::Model;

/// Number of the first group of a flow's state among the circuit's outputs: the address has four, then come pulses and
/// events.
const FIRST_GROUP: usize = 6;

/// Place of a field among the words of a cycle's outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    word: usize,
    at: u32,
    bits: u32,
}

/// Fields of a flow's state that a driver reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Places {
    in_use: Place,
    start: Place,
    next: Place,
    limit: Place,
    size: Place,
    acked: Place,
    total_sent: Place,
    marked: Place,
    outstanding: Place,
    timer: Place,
    rate: Place,
}

/// A Tonic NIC that is a simulated circuit, with a driver.
#[derive(Debug)]
pub struct CircuitNic {
    nic: Nic,
    circuit: Model,
    driver: Driver,
    config: Vec<u64>,
    places: Places,
    views: Vec<FlowView>,
    /// For each flow, the cycle from which on its state can be read: before its first command it is random.
    known_from: Vec<u64>,
    /// The flow whose state the circuit shows in the next cycle.
    shown: FlowId,
    now: u64,
}

impl CircuitNic {
    /// Returns the NIC of a circuit that has just been started.
    pub fn new(nic: Nic, circuit: Model) -> Self {
        let (flows, zero) = (nic.flows(), SegmentId::default());
        let absent = FlowView {
            exists: false,
            start: zero,
            next: zero,
            limit: zero,
            window: 0,
            total_sent: zero,
            marked: 0,
            acked: 0,
            outstanding: 0,
            timer: Ticks::default(),
            rate: 0,
        };
        Self {
            config: nic.config_words(),
            places: places(&nic),
            driver: Driver::new(flows),
            views: vec![absent; flows.into()],
            known_from: vec![u64::MAX; flows.into()],
            shown: 0,
            now: 0,
            nic,
            circuit,
        }
    }

    /// Notes the state that the circuit shows.
    fn read(&mut self, words: &[u64]) {
        let flow = usize::from(self.shown);
        if self.now < self.known_from[flow] {
            return;
        }
        let value = |place: Place| bits_at(&words[place.word..], place.at, place.bits);
        let id = |place: Place| SegmentId::new(value(place) as u32);
        let count = |place: Place| {
            let parts = (0..place.bits).step_by(64);
            let part = |offset: u32| bits_at(&words[place.word..], place.at + offset, (place.bits - offset).min(64));
            parts.map(|offset| part(offset).count_ones()).sum()
        };
        let places = &self.places;
        self.views[flow] = FlowView {
            exists: value(places.in_use) == 1,
            start: id(places.start),
            next: id(places.next),
            limit: id(places.limit),
            window: value(places.size) as u16,
            total_sent: id(places.total_sent),
            marked: count(places.marked),
            acked: count(places.acked),
            outstanding: value(places.outstanding) as u8,
            timer: Ticks::new(value(places.timer) as u32),
            rate: value(places.rate) as u32,
        };
    }
}

impl rnic_tonic::Nic for CircuitNic {
    fn now(&self) -> u64 {
        self.now
    }

    fn add_flow(&mut self, flow: FlowId, setup: FlowSetup) -> Result<(), Refused> {
        // A flow that was removed is not added again: what the stages hold of it cannot be seen from outside.
        let is_new = self.known_from.get(usize::from(flow)).is_none_or(|known| *known == u64::MAX);
        self.driver.add_flow(flow, setup, is_new)
    }

    fn set_limit(&mut self, flow: FlowId, limit: SegmentId, last_bytes: u16) -> Result<(), Refused> {
        let view = self.flow(flow)?;
        self.driver.set_limit(flow, view.exists.then_some(view.start), limit, last_bytes)
    }

    fn flow(&self, flow: FlowId) -> Result<FlowView, Refused> {
        self.driver.check(flow)?;
        Ok(self.views[usize::from(flow)])
    }

    /// # Panics
    /// When the model's process has ended, because an assertion of the circuit failed: its message is on standard
    /// output.
    fn step(&mut self, input: &Input) -> Option<Address> {
        let command = self.driver.take();
        if let Some((flow, Command::Add(_))) = command {
            let known_from = &mut self.known_from[usize::from(flow)];
            *known_from = (*known_from).min(self.now + COMMAND_CYCLES);
        }
        // The state of flows with packets, and of all others in turn.
        let observed = input.packet.map_or((self.now % u64::from(self.nic.flows())) as FlowId, |(flow, _)| flow);
        let mut record = Vec::new();
        self.nic.record(&self.config, input, command, observed, 0, &mut record);
        let words = self.circuit.run(&record).expect("the model of the circuit runs");
        self.read(&words);
        self.shown = observed;
        self.now += 1;
        let (flow, segment) = (words[1] as FlowId, SegmentId::new(words[2] as u32));
        (words[0] == 1).then_some(Address { flow, segment, times_sent: words[3] as u8 })
    }

    fn next_event(&mut self, end: u64) -> Option<u64> {
        (self.now < end).then_some(self.now)
    }

    fn advance_to(&mut self, end: u64) -> Option<(u64, Address)> {
        while self.now < end {
            let cycle = self.now;
            if let Some(address) = self.step(&Input::default()) {
                return Some((cycle, address));
            }
        }
        None
    }
}

/// Returns the places of the fields that a driver reads.
///
/// # Panics
/// When the state has no such field.
fn places(nic: &Nic) -> Places {
    let outputs = nic.circuit("places", None).outputs;
    let mut word: usize = outputs[..FIRST_GROUP].iter().map(|wire| wire.words).sum();
    let mut found = Vec::new();
    for (group, wire) in nic.groups().iter().zip(&outputs[FIRST_GROUP..]) {
        debug_assert_eq!(group.port, wire.name, "the groups are outputs in this order");
        let mut at = 0;
        for (name, bits) in &group.widths {
            found.push((name.clone(), Place { word, at, bits: *bits }));
            at += bits;
        }
        word += wire.words;
    }
    let place = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, place)| *place).expect(name);
    Places {
        in_use: place("in_use"),
        start: place("start"),
        next: place("next"),
        limit: place("limit"),
        size: place("size"),
        acked: place("acked"),
        total_sent: place("total_sent"),
        marked: place("marked"),
        outstanding: place("outstanding"),
        timer: place("timer"),
        rate: place("rate"),
    }
}
