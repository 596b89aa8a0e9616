//! Two ends and a link, with events in order of time.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, Time};
use rnic_falcon::delivery::{Arrival, Delivery, DeliveryConfig, Departure};
use rnic_falcon::seam::Upper;
use rnic_policy::control::report::{FlowActions, FlowReport};
use rnic_policy::{ControlEvent, ControlPolicy, ControlView, Cwnd, Params, PolicyState};
use rnic_wire::falcon::{FlowLabel, Packet, PacketType};

use super::upper::Counting;

/// What stands on a delivery layer here.
pub trait Above: Upper {
    /// Does what it has to do now, and says what it has settled.
    fn work(&mut self, now: Time, delivery: &mut Delivery);

    /// When it has something to do.
    fn wake(&self) -> Option<Time>;
}

/// One end.
pub struct End<U> {
    pub delivery: Delivery,
    pub upper: U,
    busy_until: Time,
    /// Everything that left, with when.
    pub log: Vec<(Time, Departure)>,
    pub keeps_log: bool,
    /// Everything that went to the adaptive engine.
    pub signals: Vec<FlowReport>,
    /// The adaptive engine, inline.
    pub control: Option<Inline>,
}

impl<U> End<U> {
    fn new(config: DeliveryConfig, upper: U) -> Self {
        Self {
            delivery: Delivery::new(config),
            upper,
            busy_until: Time::ZERO,
            log: Vec::new(),
            keeps_log: true,
            signals: Vec::new(),
            control: None,
        }
    }

    /// Takes reports to the adaptive engine, and its answers back.
    fn report_to_fae(&mut self, now: Time) {
        while let Some(report) = self.delivery.signal() {
            self.signals.push(report);
            if let Some(actions) = self.control.as_mut().and_then(|control| control.answer(now, report)) {
                self.delivery.apply_response(report.flow, &actions);
            }
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

/// A control policy that is asked at once.
pub struct Inline {
    policy: ControlPolicy,
    params: Params,
    state: PolicyState,
}

impl Inline {
    /// The policy called `name`, with its defaults but for these parameters, and its first word.
    pub fn new(name: &str, options: &[(&str, &str)]) -> (Self, FlowActions) {
        Self::of(rnic_transports::control::find(name).expect("a registered control policy"), options)
    }

    /// This policy.
    pub fn of(policy: ControlPolicy, options: &[(&str, &str)]) -> (Self, FlowActions) {
        let mut params = Params::defaults(policy.params);
        for (name, value) in options {
            assert_eq!(params.set(policy.params, name, value), Ok(true), "{name}");
        }
        let (state, first) = (policy.start)(&params, &view(Time::ZERO));
        (Self { policy, params, state }, first.flow.expect("it understands reports"))
    }

    /// What it says to `report`.
    pub fn answer(&mut self, now: Time, report: FlowReport) -> Option<FlowActions> {
        let event = ControlEvent::Reported(report);
        (self.policy.on_event)(&mut self.state, &event, &view(now), &self.params).flow
    }
}

/// Puts Swift above end 0 of `link`, whose connection has `flows` flows.
pub fn with_swift<U>(link: &mut Link<'_, U>, flows: u8, options: &[(&str, &str)]) {
    let (swift, first) = Inline::new("swift", options);
    link.ends[0].control = Some(swift);
    for flow in 0..flows {
        let share = Cwnd::from_fixed(first.fcwnd.fixed() / u64::from(flows));
        link.ends[0].delivery.apply_response(flow, &FlowActions { fcwnd: share, ..first });
    }
}

fn view(now: Time) -> ControlView {
    ControlView { now, line_rate: BitRate::gbps(200), mtu: 4_096, in_flight: 0 }
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
}

/// What the link does to the packet that end `from` sends.
pub type Rule<'r> = Box<dyn FnMut(Time, usize, &Departure) -> Fate + 'r>;

/// See the module.
pub struct Link<'r, U = Counting> {
    pub now: Time,
    pub ends: [End<U>; 2],
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    rule: Rule<'r>,
    /// How long a packet occupies the sender's link.
    pub packet_time: Duration,
}

impl<'r> Link<'r> {
    /// Both ends alike, and above them what only counts.
    pub fn new(config: DeliveryConfig, rule: Rule<'r>) -> Self {
        Self::of([Counting::new(), Counting::new()], config, rule)
    }
}

impl<'r, U: Above> Link<'r, U> {
    /// Both ends alike, with `uppers` above; a packet takes 100 ns to send.
    pub fn of(uppers: [U; 2], config: DeliveryConfig, rule: Rule<'r>) -> Self {
        let [first, second] = uppers;
        let mut other = config;
        (other.first_sent, other.first_received) = (config.first_received, config.first_sent);
        Self {
            now: Time::from_us(1_000),
            ends: [End::new(config, first), End::new(other, second)],
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
        let below = end.delivery.deadline().map(|at| at.max(end.busy_until));
        [below, end.upper.wake()].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Goes on until `end`.
    pub fn run_until(&mut self, end: Time) {
        self.pump(0);
        self.pump(1);
        let mut idle_wakes = 0;
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let wakes = [self.wake(0), self.wake(1)];
            let next = [event, wakes[0], wakes[1]].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
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
                    end.upper.work(next, &mut end.delivery);
                    end.report_to_fae(next);
                    self.pump(side);
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let side = match event {
            Event::Free { end } => end,
            Event::Arrive { to, packet, label } => {
                let end = &mut self.ends[to];
                let arrival = Arrival { packet: &packet, label, marked: false, hops: 3, csig: None };
                end.delivery.receive(self.now, &arrival, &mut end.upper);
                end.upper.work(self.now, &mut end.delivery);
                end.report_to_fae(self.now);
                to
            }
        };
        self.pump(side);
    }

    /// Runs for so long.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }
}
