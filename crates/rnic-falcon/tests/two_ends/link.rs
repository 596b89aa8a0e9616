//! Two ends and a link, with events in order of time.

use std::collections::BTreeMap;

use rnic_base::{Duration, Time};
use rnic_falcon::delivery::{Arrival, ControlSignal, Delivery, DeliveryConfig, Departure};
use rnic_falcon::seam::Received;
use rnic_wire::falcon::{FlowLabel, Packet, PacketType};

use super::upper::{Acknowledging, Counting};

/// One end.
pub struct End {
    pub delivery: Delivery,
    pub upper: Counting,
    busy_until: Time,
    /// Everything that left, with when.
    pub log: Vec<(Time, Departure)>,
    pub keeps_log: bool,
    /// Everything that went to the adaptive engine.
    pub signals: Vec<ControlSignal>,
    /// Push Data is acknowledged so long after it came.
    pub upper_delay: Duration,
}

impl End {
    fn new(config: DeliveryConfig) -> Self {
        Self {
            delivery: Delivery::new(config),
            upper: Counting::new(),
            busy_until: Time::ZERO,
            log: Vec::new(),
            keeps_log: true,
            signals: Vec::new(),
            upper_delay: Duration::ZERO,
        }
    }

    /// Departures of one type.
    pub fn left(&self, kind: PacketType) -> Vec<(Time, Departure)> {
        self.log.iter().filter(|(_, departure)| departure.packet.body.packet_type() == kind).copied().collect()
    }

    /// Packets that left again.
    pub fn left_again(&self) -> usize {
        self.log.iter().filter(|(_, departure)| departure.again).count()
    }
}

/// How long a packet takes: nothing, once or twice.
pub type Fate = [Option<Duration>; 2];

/// A packet is lost.
pub const LOST: Fate = [None, None];

/// A packet takes so long.
pub fn after(delay: Duration) -> Fate {
    [Some(delay), None]
}

enum Event {
    Arrive { to: usize, packet: Box<Packet>, label: FlowLabel },
    Free { end: usize },
    Acknowledge { end: usize, received: Received },
}

/// What the link does to the packet that end `from` sends.
pub type Rule<'r> = Box<dyn FnMut(Time, usize, &Departure) -> Fate + 'r>;

/// See the module.
pub struct Link<'r> {
    pub now: Time,
    pub ends: [End; 2],
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    rule: Rule<'r>,
    /// How long a packet occupies the sender's link.
    pub packet_time: Duration,
}

impl<'r> Link<'r> {
    /// Both ends alike; a packet takes 100 ns to send.
    pub fn new(config: DeliveryConfig, rule: Rule<'r>) -> Self {
        let mut other = config;
        (other.first_sent, other.first_received) = (config.first_received, config.first_sent);
        Self {
            now: Time::from_us(1_000),
            ends: [End::new(config), End::new(other)],
            events: BTreeMap::new(),
            count: 0,
            rule,
            packet_time: Duration::from_ns(100),
        }
    }

    pub fn set_rule(&mut self, rule: Rule<'r>) {
        self.rule = rule;
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// Lets everything leave that may.
    fn pump(&mut self, from: usize) {
        while self.ends[from].busy_until <= self.now {
            let end = &mut self.ends[from];
            let Some(departure) = end.delivery.transmit(self.now, &mut end.upper) else { break };
            if end.keeps_log {
                end.log.push((self.now, departure));
            }
            end.busy_until = self.now + self.packet_time;
            let free = end.busy_until;
            self.schedule(free, Event::Free { end: from });
            for delay in (self.rule)(self.now, from, &departure).into_iter().flatten() {
                let packet = Box::new(departure.packet);
                self.schedule(self.now + delay, Event::Arrive { to: 1 - from, packet, label: departure.label });
            }
        }
    }

    fn wake(&self, end: usize) -> Option<Time> {
        let end = &self.ends[end];
        end.delivery.deadline().map(|at| at.max(self.now).max(end.busy_until))
    }

    /// Goes on until `end`, or until nothing is left to happen.
    pub fn run_until(&mut self, end: Time) {
        self.pump(0);
        self.pump(1);
        let mut idle_wakes = 0;
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let wakes = [self.wake(0), self.wake(1)];
            let Some(next) = [event, wakes[0], wakes[1]].into_iter().flatten().min() else { return };
            if next > end {
                self.now = end;
                return;
            }
            idle_wakes = if next == self.now && event != Some(next) { idle_wakes + 1 } else { 0 };
            assert!(idle_wakes < 10_000, "it wakes again and again at {next} and nothing happens");
            self.now = next;
            if event == Some(next) {
                let (_, event) = self.events.pop_first().expect("just seen");
                self.happen(event);
                continue;
            }
            for side in [0, 1] {
                if wakes[side] == Some(next) {
                    let end = &mut self.ends[side];
                    end.delivery.expire(next, &mut end.upper);
                    self.pump(side);
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let side = match event {
            Event::Free { end } => end,
            Event::Acknowledge { end, received } => {
                self.ends[end].delivery.acknowledge(self.now, received);
                end
            }
            Event::Arrive { to, packet, label } => {
                let end = &mut self.ends[to];
                let arrival = Arrival { packet: &packet, label, marked: false, hops: 3 };
                end.delivery.receive(self.now, &arrival, &mut end.upper);
                self.take_waiting(to);
                let end = &mut self.ends[to];
                end.signals.extend(std::iter::from_fn(|| end.delivery.signal()));
                to
            }
        };
        self.pump(side);
    }

    /// What came and is to be acknowledged by the upper layer, in time.
    fn take_waiting(&mut self, side: usize) {
        let delay = self.ends[side].upper_delay;
        if delay == Duration::ZERO || self.ends[side].upper.acknowledging == Acknowledging::AtOnce {
            return;
        }
        while let Some((received, _)) = self.ends[side].upper.waiting.pop_front() {
            self.schedule(self.now + delay, Event::Acknowledge { end: side, received });
        }
    }

    /// Runs for so long.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }
}
