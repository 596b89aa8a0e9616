//! The data delivery engine, which decides which segment a flow sends next (Tonic, section 3.2).
//!
//! Five modules work side by side, each on a flow of its own choice: both stages of Incoming, Periodic Updates, Segment
//! Generation, Segment Transmitted. In a cycle all of them read, all compute, the results of one flow are merged, and
//! all is written; a module thus sees every write of earlier cycles and none of its own cycle. Of the credit engine it
//! knows three wires: addresses forward, parameters forward, departed addresses back.
//!
//! A program's function takes most of a cycle, so its answer is merged and written in the next one. The function that
//! runs in that cycle for the same flow is given the answer's settings and state, so that packets of one flow may
//! follow each other without a gap.

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
use crate::shape::{FlowId, SegmentId, Shape, Ticks, tick_of};
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

/// An answer of the program, between the cycle in which it is computed and the cycle in which it is merged. The new
/// state of the program is in [`DataDelivery::answered_states`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answered {
    flow: FlowId,
    answer: Answer,
    /// For a visit: the timer had expired.
    is_expired: bool,
    /// The answer may change something. A visit before its flow's deadline does not.
    is_due: bool,
    /// For a packet: the total that its receiver has granted.
    grant: Option<SegmentId>,
}

impl Answered {
    /// Returns whether the answer stops or restarts the timer, so that the present one cannot expire any more.
    fn ends_timer(&self) -> bool {
        self.answer.restart || self.is_expired || self.answer.timer.value() == 0
    }
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
    /// Answers to a packet and to a visit of the cycle before.
    answered: [Option<Answered>; 2],
    /// The program's state blocks after these answers.
    answered_states: [Vec<u8>; 2],
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
            answered: [None; 2],
            answered_states: [vec![0; state_bytes], vec![0; state_bytes]],
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
        let answered = self.answered.iter().flatten().map(|answered| answered.flow);
        let departed = self.departed.into_iter().flatten();
        let mut held = packets.chain(commands).chain(second).chain(answered).chain(departed);
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
        let mut touched = self.touched.take();
        let mut delivered = Delivered::default();

        // Read and compute. The order of the modules is that of their insertions into the active set.
        self.generation(&mut touched, &mut delivered);
        // A flow that was removed in the cycle before has no answers and no second stage.
        let answered = self.answered.map(|answered| answered.filter(|answered| self.window(answered.flow).in_use));
        if let Some(Answered { flow, answer, .. }) = answered[0] {
            touched.of(flow).incoming = Some(answer);
        }
        if let Some(Answered { flow, answer, is_expired, .. }) = answered[1] {
            touched.of(flow).periodic = Some((answer, is_expired));
        }
        if let Some(flow) = self.departed[2].filter(|flow| self.window(*flow).in_use) {
            touched.of(flow).transmitted = true;
        }
        let second = self.second.take().filter(|second| self.window(second.flow).in_use);
        let acknowledged = self.first_stage(&mut touched);
        let is_visit_dropped = self.run_program(second.as_ref(), acknowledged, &answered, now);

        // Merge and write.
        for (flow, events) in touched.iter() {
            self.write(*flow, events, &answered, now, &mut delivered);
        }
        self.touched = touched;
        self.initialize(&delivered);
        core::mem::swap(&mut self.answered_states, &mut self.next_states);

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

    /// Runs the fixed stage of the Incoming module. Returns the flow of a packet that takes effect.
    fn first_stage(&mut self, touched: &mut Touched<Events>) -> Option<FlowId> {
        let (flow, packet) = self.packet?;
        if !self.window(flow).in_use {
            self.counters.unknown += 1;
            return None;
        }
        self.counters.packets += 1;
        let Some(acknowledged) = acknowledge(self.window(flow), &packet, &self.shape) else {
            self.counters.ignored += 1;
            return None;
        };
        touched.of(flow).acknowledged = Some(acknowledged);
        self.second = Some(Second { flow, packet, acknowledged });
        Some(flow)
    }

    /// Runs the program for a packet and for the visited flow; their answers are merged in the next cycle. Returns
    /// whether the visit is dropped.
    fn run_program(
        &mut self,
        second: Option<&Second>,
        acknowledged: Option<FlowId>,
        answered: &[Option<Answered>; 2],
        now: u64,
    ) -> bool {
        let tick = tick_of(now);
        self.answered[0] = second.map(|second| self.run_incoming(second, answered, tick));
        self.answered[1] = None;
        let visit = self.round.current().flow;
        if !self.window(visit).in_use {
            return false;
        }
        // A visit that changes nothing meets a packet too: circuits do not know which ones do.
        let has_packet = acknowledged == Some(visit) || second.is_some_and(|second| second.flow == visit);
        // An answer to a packet that is not merged yet can bring the deadline forward.
        let is_moved = answered[0].is_some_and(|answered| answered.flow == visit);
        let is_due = is_moved || self.deadlines.is_due(visit, now);
        if !has_packet && (self.visits == Visits::All || is_due) {
            self.answered[1] = Some(Answered { is_due, ..self.run_periodic(visit, answered, tick) });
        }
        self.counters.dropped_visits += u64::from(has_packet);
        has_packet
    }

    /// Runs the programmable stage of the Incoming module.
    fn run_incoming(&mut self, second: &Second, answered: &[Option<Answered>; 2], now: Ticks) -> Answered {
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
        let mut actions = self.current_actions(*flow, answered);
        let mut state = self.current_state(*flow, answered, 0);
        self.program.incoming(&seen, &mut state, &mut actions);
        self.next_states[0] = state;
        let answer = Answer::new(&actions, &self.shape);
        Answered { flow: *flow, answer, is_expired: false, is_due: true, grant: packet.grant }
    }

    /// Runs the Periodic Updates module.
    fn run_periodic(&mut self, flow: FlowId, answered: &[Option<Answered>; 2], now: Ticks) -> Answered {
        let (window, duty) = (self.window(flow), self.duty(flow));
        let is_ending = pending(answered, flow).is_some_and(|(_, answered)| answered.ends_timer());
        let is_expired = duty.timer_on && duty.expiry.distance_to(now) >= 0 && !is_ending;
        let seen = Periodic {
            expired: is_expired,
            start: number(window.start),
            next: number(window.next),
            total_sent: number(duty.total_sent),
            now: number(now),
            acked: view(&window.acked, window.start, &self.shape),
            marked: view(&duty.marked, window.start, &self.shape),
        };
        let mut actions = self.current_actions(flow, answered);
        let mut state = self.current_state(flow, answered, 1);
        self.program.periodic(&seen, &mut state, &mut actions);
        self.next_states[1] = state;
        Answered { flow, answer: Answer::new(&actions, &self.shape), is_expired, is_due: true, grant: None }
    }

    /// Returns the initial outputs of a program's function: the current settings, and no marks.
    fn current_actions(&self, flow: FlowId, answered: &[Option<Answered>; 2]) -> Actions {
        let (window, duty) = (self.window(flow), self.duty(flow));
        let (size, rate, timer) = match pending(answered, flow) {
            Some((_, Answered { answer, .. })) => (answer.window, answer.rate, answer.timer),
            None => (window.size, duty.rate, duty.timer),
        };
        let (window, rate) = (U::new(u64::from(size)), U::new(u64::from(rate)));
        Actions { window, rate, timer: number(timer), ..Actions::default() }
    }

    /// Returns the program's current state for a flow, in the buffer for the next one.
    fn current_state(&mut self, flow: FlowId, answered: &[Option<Answered>; 2], function: usize) -> Vec<u8> {
        let mut state = core::mem::take(&mut self.next_states[function]);
        state.copy_from_slice(match pending(answered, flow) {
            Some((place, _)) => &self.answered_states[place],
            None => self.state(flow),
        });
        state
    }

    /// Merges the events of a flow into its next state, and stores it.
    fn write(
        &mut self,
        flow: FlowId,
        events: &Events,
        answered: &[Option<Answered>; 2],
        now: u64,
        delivered: &mut Delivered,
    ) {
        let (window, duty) = (*self.window(flow), *self.duty(flow));
        let merged = merge(&window, &duty, events, tick_of(now), &self.shape);
        self.windows[usize::from(flow)] = merged.window;
        self.duties[usize::from(flow)] = merged.duty;
        if let Some((place, answered)) = pending(answered, flow) {
            let start = usize::from(flow) * self.state_bytes;
            self.states[start..start + self.state_bytes].copy_from_slice(&self.answered_states[place]);
            let has_rate = merged.duty.rate != duty.rate && self.shape.scheme() == Scheme::Rate;
            let is_token = self.shape.scheme() == Scheme::Token;
            let parameters = Parameters {
                flow,
                rate: has_rate.then_some(merged.duty.rate),
                grant: answered.grant.filter(|_| is_token),
                extra: if is_token { merged.timed_out } else { 0 },
            };
            let to_credit = Some(parameters).filter(|parameters| !parameters.is_empty());
            *[&mut delivered.from_incoming, &mut delivered.from_periodic][place] = to_credit;
        }
        self.count(events);
        self.membership(flow, events);
        self.set_deadline(flow, now + 1);
    }

    fn count(&mut self, events: &Events) {
        let counters = &mut self.counters;
        if let Some(generated) = events.generated {
            counters.generated += 1;
            counters.repeats += u64::from(generated.is_repeat);
        }
        let has_expired = events.periodic.is_some_and(|(_, is_expired)| is_expired);
        counters.timeouts += u64::from(has_expired);
    }

    /// Decides, once per cycle and from merged values, whether the flow is in the active set.
    fn membership(&mut self, flow: FlowId, events: &Events) {
        let is_removed = matches!(events.command, Some(Command::Remove));
        let is_wanted = is_eligible(self.window(flow), self.duty(flow)) && !is_removed;
        if self.active.current().is_some_and(|turn| turn.flow == flow && !turn.is_extra) {
            self.active.settle(is_wanted);
            return;
        }
        // A segment that the first stage of Incoming makes possible waits for the answer to its packet, whether or not
        // the flow is visited in between.
        let is_visited = events.periodic.is_some() && events.acknowledged.is_none();
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
        let is_answered = self.answered.iter().flatten().any(|answered| answered.is_due);
        let is_command = self.command_fetch.is_some() || self.command.is_some();
        let is_departed = self.departed.iter().any(Option::is_some);
        is_packet || is_answered || is_command || is_departed || !self.active.is_idle() || !self.round.is_regular()
    }

    /// Returns the first cycle in `now..end` in which the periodic function of a flow may change its state; `None` if
    /// there is none.
    pub(crate) fn next_service_cycle(&mut self, now: u64, end: u64) -> Option<u64> {
        self.deadlines.next_service_cycle(&self.round, now, end)
    }

    /// Skips `cycles` cycles in which nothing changes.
    pub(crate) fn skip(&mut self, cycles: u64) {
        self.answered = [None; 2];
        self.round.skip(cycles);
    }
}

/// Returns the answer for a flow that is being merged in this cycle, and which of both it is: there is one at most,
/// because the program is not called for a packet and a visit of one flow in the same cycle.
fn pending(answered: &[Option<Answered>; 2], flow: FlowId) -> Option<(usize, &Answered)> {
    let answers = answered.iter().enumerate().filter_map(|(place, answered)| Some((place, answered.as_ref()?)));
    answers.into_iter().find(|(_, answered)| answered.flow == flow)
}
