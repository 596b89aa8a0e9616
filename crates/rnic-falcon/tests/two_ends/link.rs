//! Two ends and a link, with events in order of time.

use rnic_base::{BitRate, Duration, Time};
use rnic_falcon::delivery::{Arrival, Delivery, DeliveryConfig, Departure};
use rnic_falcon::interface::Upper;
use rnic_policy::control::report::{FlowActions, FlowReport};
use rnic_policy::{Configured, ControlEvent, ControlPolicy, ControlView, Cwnd, Params, PolicyState};
use rnic_wire::falcon::{FlowLabel, Packet, PacketType};

use super::driver::{Timeline, control};
use super::upper::Counting;

/// End of a link.
pub trait Side {
    /// The packet that leaves now, if any.
    fn transmit(&mut self, now: Time) -> Option<Departure>;

    /// Takes a packet that arrives now, and does what follows from it.
    fn receive(&mut self, now: Time, arrival: &Arrival<'_>);

    /// Does what is due now.
    fn expire(&mut self, now: Time);

    /// When something is due; what is to be sent waits for the link, which is free at `free_at`.
    fn wake(&self, free_at: Time) -> Option<Time>;
}

/// The layer above a delivery layer in these tests.
pub trait Above: Upper {
    /// Does the work that is due, and passes settled requests to `delivery`.
    fn work(&mut self, now: Time, delivery: &mut Delivery);

    /// Returns the time of its next work, if any.
    fn wake(&self) -> Option<Time>;
}

/// One end: a delivery layer and what stands on it.
pub struct End<U> {
    pub delivery: Delivery,
    pub upper: U,
    /// Every packet sent, with its time.
    pub log: Vec<(Time, Departure)>,
    pub keeps_log: bool,
    /// Every report to the adaptive engine.
    pub signals: Vec<FlowReport>,
    /// The adaptive engine, inline.
    pub control: Option<Inline>,
}

impl<U> End<U> {
    pub fn new(config: DeliveryConfig, upper: U) -> Self {
        Self {
            delivery: Delivery::new(config),
            upper,
            log: Vec::new(),
            keeps_log: true,
            signals: Vec::new(),
            control: None,
        }
    }

    /// Passes reports to the adaptive engine, and its responses to the delivery layer.
    fn report_to_fae(&mut self, now: Time) {
        while let Some(report) = self.delivery.signal() {
            self.signals.push(report);
            if let Some(actions) = self.control.as_mut().and_then(|control| control.respond(now, report)) {
                self.delivery.apply_response(report.flow, &actions);
            }
        }
    }

    /// Departures of one type.
    pub fn left(&self, kind: PacketType) -> Vec<(Time, Departure)> {
        self.log.iter().filter(|(_, departure)| departure.packet.body.packet_type() == kind).copied().collect()
    }

    /// Returns the number of retransmitted packets.
    pub fn left_again(&self) -> usize {
        self.log.iter().filter(|(_, departure)| departure.is_retransmission).count()
    }
}

impl<U: Above> Side for End<U> {
    fn transmit(&mut self, now: Time) -> Option<Departure> {
        let departure = self.delivery.transmit(now, &mut self.upper)?;
        if self.keeps_log {
            self.log.push((now, departure));
        }
        Some(departure)
    }

    fn receive(&mut self, now: Time, arrival: &Arrival<'_>) {
        self.delivery.receive(now, arrival, &mut self.upper);
        self.upper.work(now, &mut self.delivery);
        self.report_to_fae(now);
    }

    fn expire(&mut self, now: Time) {
        self.delivery.expire(now, &mut self.upper);
        self.upper.work(now, &mut self.delivery);
        self.report_to_fae(now);
    }

    fn wake(&self, free_at: Time) -> Option<Time> {
        let below = self.delivery.deadline().map(|at| at.max(free_at));
        [below, self.upper.wake()].into_iter().flatten().min()
    }
}

/// A control policy that answers each report immediately.
pub struct Inline {
    policy: ControlPolicy,
    params: Params,
    state: PolicyState,
}

impl Inline {
    /// Returns the policy called `name`, with its defaults except for `options`, and its first decision.
    pub fn new(name: &str, options: &[(&str, &str)]) -> (Self, FlowActions) {
        let Configured { policy, params } = control(name, options);
        let (state, first) = (policy.start)(&params, &view(Time::ZERO));
        (Self { policy, params, state }, first.flow.expect("the policy processes reports"))
    }

    /// Returns its response to `report`.
    pub fn respond(&mut self, now: Time, report: FlowReport) -> Option<FlowActions> {
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

/// Delays of the copies of a packet: none, one or two.
pub type Fate = [Option<Duration>; 2];

/// A packet is lost.
pub const LOST: Fate = [None, None];

/// The packet arrives once, after `delay`.
pub fn after(delay: Duration) -> Fate {
    [Some(delay), None]
}

enum Event {
    Arrive { to: usize, packet: Box<Packet>, label: FlowLabel },
    Free { end: usize },
}

/// Decides what happens to each packet that end `from` sends.
pub type Rule<'r> = Box<dyn FnMut(Time, usize, &Departure) -> Fate + 'r>;

/// A link, and what is at its two ends.
pub struct Wire<'r, S> {
    pub now: Time,
    pub ends: [S; 2],
    /// When the link takes the next packet of each end.
    free_at: [Time; 2],
    events: Timeline<Event>,
    rule: Rule<'r>,
    /// How long a packet occupies the sender's link.
    pub packet_time: Duration,
}

/// A link between two delivery layers.
pub type Link<'r, U = Counting> = Wire<'r, End<U>>;

impl<'r> Link<'r> {
    /// Returns a link between two equal ends with a `Counting` layer above each.
    pub fn new(config: DeliveryConfig, rule: Rule<'r>) -> Self {
        Self::of([Counting::new(), Counting::new()], config, rule)
    }
}

impl<'r, U: Above> Link<'r, U> {
    /// Both ends alike, with `uppers` above.
    pub fn of(uppers: [U; 2], config: DeliveryConfig, rule: Rule<'r>) -> Self {
        let [first, second] = uppers;
        let mut other = config;
        (other.first_sent, other.first_received) = (config.first_received, config.first_sent);
        Self::between([End::new(config, first), End::new(other, second)], rule)
    }
}

impl<'r, S: Side> Wire<'r, S> {
    /// A link on which a packet takes 100 ns to send.
    pub fn between(ends: [S; 2], rule: Rule<'r>) -> Self {
        Self {
            now: Time::from_us(1_000),
            ends,
            free_at: [Time::ZERO; 2],
            events: Timeline::new(),
            rule,
            packet_time: Duration::from_ns(100),
        }
    }

    pub fn set_rule(&mut self, rule: Rule<'r>) {
        self.rule = rule;
    }

    /// Packets that arrived or will, and times that the link was free again.
    pub fn events(&self) -> u64 {
        self.events.count()
    }

    /// Sends every packet that may be sent.
    fn pump(&mut self, from: usize) {
        while self.free_at[from] <= self.now {
            let Some(departure) = self.ends[from].transmit(self.now) else { break };
            let free = self.now + self.packet_time;
            self.free_at[from] = free;
            self.events.schedule(free, Event::Free { end: from });
            for delay in (self.rule)(self.now, from, &departure).into_iter().flatten() {
                let packet = Box::new(departure.packet);
                let event = Event::Arrive { to: 1 - from, packet, label: departure.label };
                self.events.schedule(self.now + delay, event);
            }
        }
    }

    /// Goes on until `end`.
    pub fn run_until(&mut self, end: Time) {
        self.pump(0);
        self.pump(1);
        let mut idle_wakes = 0;
        loop {
            let event = self.events.next_at();
            let wakes = [0, 1].map(|side| self.ends[side].wake(self.free_at[side]).map(|at| at.max(self.now)));
            let next = [event, wakes[0], wakes[1]].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            idle_wakes = if next == self.now && event != Some(next) { idle_wakes + 1 } else { 0 };
            assert!(idle_wakes < 10_000, "an end wakes repeatedly at {next} without any action");
            self.now = next;
            if event == Some(next) {
                let event = self.events.pop().expect("an event is queued");
                self.happen(event);
                continue;
            }
            for side in [0, 1] {
                if wakes[side] == Some(next) {
                    self.ends[side].expire(next);
                    self.pump(side);
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let side = match event {
            Event::Free { end } => end,
            Event::Arrive { to, packet, label } => {
                let arrival = Arrival { packet: &packet, label, marked: false, hops: 3, csig: None };
                self.ends[to].receive(self.now, &arrival);
                to
            }
        };
        self.pump(side);
    }

    /// Processes events for this long.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }
}
