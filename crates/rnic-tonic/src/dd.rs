//! The data delivery engine, which decides which segment a flow sends next (Tonic, section 3.2).
//!
//! Five modules work side by side, each on a flow of its own choice: both stages of Incoming, Periodic Updates, Segment
//! Generation, Segment Transmitted. In a cycle all of them read, all compute, the results of one flow are merged, and
//! all is written; a module thus sees every write of earlier cycles and none of its own cycle. Of the credit engine it
//! knows three wires: addresses forward, parameters forward, departed addresses back.

mod generate;
mod incoming;
mod merge;
mod round;

use rnic_program::{Actions, U};

use self::generate::{Generated, is_eligible, next_segment};
use self::incoming::{Acknowledged, acknowledge};
use self::merge::{Events, merge, new_flow};
use self::round::{Deadlines, Round};
use crate::program::{Answer, Incoming, Installed, Periodic, Scheme, cycle_of, number, view};
use crate::sets::{ActiveSet, Turns};
use crate::shape::{FlowId, Shape, Ticks, tick_of};
use crate::state::{Duty, Entry, Packed, Window};
use crate::touched::Touched;
use crate::wires::{Command, Forward, Packet, Parameters};

/// A packet between the two pipeline stages of the Incoming module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Second {
    flow: FlowId,
    packet: Packet,
    acknowledged: Acknowledged,
}

/// Maximum number of flows that the modules process in one cycle.
const MODULES: usize = 5;

/// Outputs of the engine in a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) forward: Option<(FlowId, Forward)>,
    pub(crate) from_incoming: Option<Parameters>,
    pub(crate) from_periodic: Option<Parameters>,
}

/// Selection of the runs of the program's periodic function that are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Visits {
    /// All, as in a circuit.
    #[default]
    All,
    /// The periodic function is called only if the flow's timer has expired or a deadline of the program has passed.
    /// Other calls change nothing, because a program declares its deadlines; omitting them is several times faster.
    Due,
}

/// Counters of the data delivery engine since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryCounters {
    /// Number of segments generated for transmission.
    pub generated: u64,
    /// Number of these that are retransmissions.
    pub repeats: u64,
    /// Number of packets for existing flows.
    pub packets: u64,
    /// Number of received packets that were ignored, because they acknowledge segments that were never sent.
    pub ignored: u64,
    /// Number of packets for flows that do not exist.
    pub unknown: u64,
    /// Number of periodic runs in which the timer had expired.
    pub timeouts: u64,
    /// Number of periodic runs that were dropped because a packet of the same flow was processed.
    pub dropped_visits: u64,
}

/// The data delivery engine: it processes acknowledgements and timeouts, and selects the segments to be sent.
#[derive(Debug)]
pub(crate) struct DataDelivery<S> {
    shape: Shape,
    program: Installed,
    windows: Vec<Window>,
    duties: Vec<Duty>,
    /// State blocks of the program, of all flows.
    states: Vec<u8>,
    state_bytes: usize,
    active: Turns<S>,
    command_fetch: Option<(FlowId, Command)>,
    command: Option<(FlowId, Command)>,
    packet_fetch: Option<(FlowId, Packet)>,
    packet: Option<(FlowId, Packet)>,
    second: Option<Second>,
    round: Round,
    /// Flows whose addresses have been passed on to the link, by pipeline stage: on the wires, reading memory, being
    /// processed.
    departed: [Option<FlowId>; 3],
    deadlines: Deadlines,
    visits: Visits,
    counters: DeliveryCounters,
    /// Events of a cycle; reused for its allocation.
    touched: Touched<Events>,
    /// New state blocks, computed by the program's two functions in this cycle.
    next_states: [Vec<u8>; 2],
}

impl<S: ActiveSet> DataDelivery<S> {
    pub(crate) fn new(shape: Shape, program: Installed, active: S) -> Self {
        let flows = usize::from(shape.flows());
        let state_bytes = program.initial_state().len();
        Self {
            windows: vec![Window::default(); flows],
            duties: vec![Duty::default(); flows],
            states: vec![0; flows * state_bytes],
            state_bytes,
            active: Turns::new(active, shape.flows()),
            command_fetch: None,
            command: None,
            packet_fetch: None,
            packet: None,
            second: None,
            round: Round::new(shape.flows()),
            departed: [None; 3],
            deadlines: Deadlines::new(shape.flows()),
            counters: DeliveryCounters::default(),
            touched: Touched::for_modules(MODULES),
            visits: Visits::All,
            next_states: [vec![0; state_bytes], vec![0; state_bytes]],
            program,
            shape,
        }
    }

    pub(crate) fn window(&self, flow: FlowId) -> &Window {
        &self.windows[usize::from(flow)]
    }

    pub(crate) fn duty(&self, flow: FlowId) -> &Duty {
        &self.duties[usize::from(flow)]
    }

    pub(crate) fn state(&self, flow: FlowId) -> &[u8] {
        let start = usize::from(flow) * self.state_bytes;
        &self.states[start..start + self.state_bytes]
    }

    pub(crate) fn counters(&self) -> &DeliveryCounters {
        &self.counters
    }

    /// Returns whether no pipeline stage holds anything of the flow.
    pub(crate) fn is_quiet(&self, flow: FlowId) -> bool {
        let packets = [self.packet_fetch, self.packet].into_iter().flatten().map(|(flow, _)| flow);
        let commands = [self.command_fetch, self.command].into_iter().flatten().map(|(flow, _)| flow);
        let second = self.second.iter().map(|second| second.flow);
        let mut held = packets.chain(commands).chain(second).chain(self.departed.into_iter().flatten());
        !self.active.knows(flow) && !held.any(|held| held == flow)
    }

    pub(crate) fn pack(&self, flow: FlowId, packed: &mut Packed) {
        self.window(flow).pack(&self.shape, packed);
        self.duty(flow).pack(&self.shape, packed);
    }

    /// Simulates one clock cycle.
    pub(crate) fn step(
        &mut self,
        now: u64,
        packet: Option<(FlowId, Packet)>,
        command: Option<(FlowId, Command)>,
        departed: Option<FlowId>,
    ) -> Delivered {
        let tick = tick_of(now);
        let mut touched = self.touched.take();
        let mut delivered = Delivered::default();

        // Read and compute. The order of the modules is that of their insertions into the active set.
        self.generation(&mut touched, &mut delivered);
        // A flow that was removed in the cycle before has no second stage.
        let second = self.second.take().filter(|second| self.window(second.flow).in_use);
        if let Some(second) = &second {
            touched.of(second.flow).incoming = Some(self.run_incoming(second, tick));
        }
        let visit = self.round.current();
        let is_visited = self.window(visit.flow).in_use;
        if is_visited && (self.visits == Visits::All || self.deadlines.is_due(visit.flow, now)) {
            touched.of(visit.flow).periodic = Some(self.run_periodic(visit.flow, tick));
        }
        if let Some(flow) = self.departed[2].filter(|flow| self.window(*flow).in_use) {
            touched.of(flow).transmitted = true;
        }
        self.first_stage(&mut touched);
        // A visit that changes nothing meets a packet too: circuits do not know which ones do.
        let has_packet = |(flow, events): &(FlowId, Events)| {
            *flow == visit.flow && (events.acknowledged.is_some() || events.incoming.is_some())
        };
        let is_visit_dropped = is_visited && touched.iter().any(has_packet);
        self.counters.dropped_visits += u64::from(is_visit_dropped);

        // Merge and write.
        for (flow, events) in touched.iter() {
            self.write(*flow, events, second.as_ref(), now, &mut delivered);
        }
        self.touched = touched;
        self.initialize(&delivered);

        // Move what is in the stages.
        self.departed = [departed, self.departed[0], self.departed[1]];
        self.round.advance(is_visit_dropped);
        self.packet = core::mem::replace(&mut self.packet_fetch, packet);
        self.command = core::mem::replace(&mut self.command_fetch, command);
        self.active.advance(command.is_none());
        delivered
    }

    /// Runs the Segment Generation module, or the command that uses its slot.
    fn generation(&mut self, touched: &mut Touched<Events>, delivered: &mut Delivered) {
        if let Some((flow, command)) = self.command {
            if self.window(flow).in_use {
                touched.of(flow).command = Some(command);
            }
            delivered.forward = Some((flow, Forward::Command(command)));
        }
        let Some(turn) = self.active.current() else { return };
        if !self.window(turn.flow).in_use {
            self.active.settle(false);
            return;
        }
        let (window, duty) = (self.window(turn.flow), self.duty(turn.flow));
        let events = touched.of(turn.flow);
        if is_eligible(window, duty) {
            events.generated = next_segment(window, duty, &self.shape);
        }
        if let Some(Generated { id, times_sent, is_short, .. }) = events.generated {
            delivered.forward = Some((turn.flow, Forward::Address(Entry::new(id, times_sent, is_short))));
        }
    }

    /// Runs the fixed stage of the Incoming module.
    fn first_stage(&mut self, touched: &mut Touched<Events>) {
        let Some((flow, packet)) = self.packet else { return };
        if !self.window(flow).in_use {
            self.counters.unknown += 1;
            return;
        }
        self.counters.packets += 1;
        match acknowledge(self.window(flow), &packet, &self.shape) {
            Some(acknowledged) => {
                touched.of(flow).acknowledged = Some(acknowledged);
                self.second = Some(Second { flow, packet, acknowledged });
            }
            None => self.counters.ignored += 1,
        }
    }

    /// Runs the programmable stage of the Incoming module.
    fn run_incoming(&mut self, second: &Second, now: Ticks) -> Answer {
        let Second { flow, packet, acknowledged } = second;
        let (window, duty) = (self.window(*flow), self.duty(*flow));
        let seen = Incoming {
            ack: packet.ack,
            nack: packet.nack,
            trimmed: packet.trimmed,
            cnp: packet.cnp,
            sacked: packet.sacked,
            sack_new: acknowledged.sack_new,
            cum: number(packet.cum),
            sack: number(packet.sack),
            start: number(acknowledged.start),
            old_start: number(acknowledged.old_start),
            next: number(window.next),
            total_sent: number(duty.total_sent),
            now: number(now),
            newly: U::new(u64::from(acknowledged.newly)),
            times_sent: U::new(u64::from(packet.times_sent)),
            acked: view(&window.acked, window.start, &self.shape),
            marked: view(&duty.marked, window.start, &self.shape),
        };
        let mut actions = current_actions(window, duty);
        let mut state = core::mem::take(&mut self.next_states[0]);
        state.copy_from_slice(self.state(*flow));
        self.program.incoming(&seen, &mut state, &mut actions);
        self.next_states[0] = state;
        Answer::new(&actions, &self.shape)
    }

    /// Runs the Periodic Updates module. Returns the program's outputs, and whether the timer has expired.
    fn run_periodic(&mut self, flow: FlowId, now: Ticks) -> (Answer, bool) {
        let (window, duty) = (self.window(flow), self.duty(flow));
        let is_expired = duty.timer_on && duty.expiry.distance_to(now) >= 0;
        let seen = Periodic {
            expired: is_expired,
            start: number(window.start),
            next: number(window.next),
            total_sent: number(duty.total_sent),
            now: number(now),
            acked: view(&window.acked, window.start, &self.shape),
            marked: view(&duty.marked, window.start, &self.shape),
        };
        let mut actions = current_actions(window, duty);
        let mut state = core::mem::take(&mut self.next_states[1]);
        state.copy_from_slice(self.state(flow));
        self.program.periodic(&seen, &mut state, &mut actions);
        self.next_states[1] = state;
        (Answer::new(&actions, &self.shape), is_expired)
    }

    /// Merges the events of a flow into its next state, and stores it.
    fn write(&mut self, flow: FlowId, events: &Events, second: Option<&Second>, now: u64, delivered: &mut Delivered) {
        let (window, duty) = (*self.window(flow), *self.duty(flow));
        let merged = merge(&window, &duty, events, tick_of(now), &self.shape);
        self.windows[usize::from(flow)] = merged.window;
        self.duties[usize::from(flow)] = merged.duty;
        let is_visit_taken = events.periodic.is_some() && !merged.is_visit_dropped;
        let computed = if events.incoming.is_some() { Some(0) } else { is_visit_taken.then_some(1) };
        if let Some(computed) = computed {
            let start = usize::from(flow) * self.state_bytes;
            self.states[start..start + self.state_bytes].copy_from_slice(&self.next_states[computed]);
        }
        let rate = (merged.duty.rate != duty.rate && self.shape.scheme() == Scheme::Rate).then_some(merged.duty.rate);
        if let Some(second) = second.filter(|_| events.incoming.is_some()) {
            let grant = second.packet.grant.filter(|_| self.shape.scheme() == Scheme::Token);
            let parameters = Parameters { flow, rate, grant, extra: 0 };
            delivered.from_incoming = Some(parameters).filter(|parameters| !parameters.is_empty());
        } else if is_visit_taken {
            let extra = if self.shape.scheme() == Scheme::Token { merged.timed_out } else { 0 };
            let parameters = Parameters { flow, rate, grant: None, extra };
            delivered.from_periodic = Some(parameters).filter(|parameters| !parameters.is_empty());
        }
        self.count(events, merged.is_visit_dropped);
        self.membership(flow, events, is_visit_taken);
        self.set_deadline(flow, now + 1);
    }

    fn count(&mut self, events: &Events, is_visit_dropped: bool) {
        let counters = &mut self.counters;
        if let Some(generated) = events.generated {
            counters.generated += 1;
            counters.repeats += u64::from(generated.is_repeat);
        }
        let has_expired = events.periodic.is_some_and(|(_, is_expired)| is_expired);
        counters.timeouts += u64::from(has_expired && !is_visit_dropped);
    }

    /// Decides, once per cycle and from merged values, whether the flow is in the active set.
    fn membership(&mut self, flow: FlowId, events: &Events, is_visited: bool) {
        let is_removed = matches!(events.command, Some(Command::Remove));
        let is_wanted = is_eligible(self.window(flow), self.duty(flow)) && !is_removed;
        if self.active.current().is_some_and(|turn| turn.flow == flow && !turn.is_extra) {
            self.active.settle(is_wanted);
            return;
        }
        let may_activate = events.incoming.is_some() || is_visited || events.transmitted || events.command.is_some();
        if may_activate && is_wanted {
            self.active.activate(flow);
        }
    }

    /// Adds or removes a flow, if this cycle has such a command.
    fn initialize(&mut self, delivered: &Delivered) {
        let Some((flow, Forward::Command(command))) = delivered.forward else { return };
        let index = usize::from(flow);
        let state = index * self.state_bytes..(index + 1) * self.state_bytes;
        match command {
            Command::Add(setup) => {
                (self.windows[index], self.duties[index]) = new_flow(&setup, &self.program, &self.shape);
                self.states[state].copy_from_slice(self.program.initial_state());
                // The program's first deadline is set by the first visit.
                self.deadlines.set(flow, Some(0));
            }
            Command::Remove => {
                (self.windows[index], self.duties[index]) = (Window::default(), Duty::default());
                self.states[state].fill(0);
                self.deadlines.set(flow, None);
            }
            Command::Limit { .. } | Command::SegmentBytes(_) => {}
        }
    }

    /// Computes the first cycle, from `from` on, in which the periodic function of the flow may change anything.
    fn set_deadline(&mut self, flow: FlowId, from: u64) {
        let duty = self.duty(flow);
        let expiry = duty.timer_on.then(|| cycle_of(duty.expiry, from));
        let due = self.program.due(self.state(flow), from, duty.total_sent);
        let deadline = [expiry, due].into_iter().flatten().min();
        self.deadlines.set(flow, deadline);
    }

    /// Selects the runs of the periodic function that are executed.
    pub(crate) fn set_visits(&mut self, visits: Visits) {
        self.visits = visits;
    }

    /// Returns whether a stage or the active set is occupied, so that the next cycle has to be run.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        let is_packet = self.packet_fetch.is_some() || self.packet.is_some() || self.second.is_some();
        let is_command = self.command_fetch.is_some() || self.command.is_some();
        let is_departed = self.departed.iter().any(Option::is_some);
        is_packet || is_command || is_departed || !self.active.is_idle() || !self.round.is_regular()
    }

    /// Returns the first cycle in `now..end` in which the periodic function of a flow may change its state; `None` if
    /// there is none.
    pub(crate) fn next_service_cycle(&mut self, now: u64, end: u64) -> Option<u64> {
        self.deadlines.next_service_cycle(&self.round, now, end)
    }

    /// Skips `cycles` cycles in which nothing changes.
    pub(crate) fn skip(&mut self, cycles: u64) {
        self.round.skip(cycles);
    }
}

/// Returns the initial outputs of a program's functions: the current settings, and no marks.
fn current_actions(window: &Window, duty: &Duty) -> Actions {
    Actions {
        window: U::new(u64::from(window.size)),
        rate: U::new(u64::from(duty.rate)),
        timer: number(duty.timer),
        ..Actions::default()
    }
}
