//! Transport programs as recovery policies that also control congestion.
//!
//! A program (`rnic-program`, Tonic section 3.5) is used in place of a recovery policy: each window of a connection has
//! a state of its own, and the answer sets the window, the rate and the timer beside the packets to retransmit. Ids of
//! programs are the lowest 24 bits of sequence numbers.
//!
//! | event of a window | call |
//! |---|---|
//! | the cumulative acknowledgement advanced | `incoming`: `ack`, with `start` after `old_start` |
//! | NACK of a packet that did not advance it | `incoming`: `ack` (a duplicate one) and `nack` |
//! | NACK of a packet that did | the two calls, the second without `ack` |
//! | NACK that is older than the last acknowledgement | `incoming`: `sacked` only |
//! | trimmed packet, CNP | `incoming`: `trimmed`, `cnp` |
//! | timeout | `periodic`: `expired` |
//! | a deadline of the state | `periodic`; or after another event that shows that it has passed, unless that marks |
//!
//! An answer is cut to the contract: packets to retransmit are outstanding (those beyond a window that has shrunk wait
//! until it covers them), a window has a packet at least, and a timeout that has been extended once marks the oldest
//! packet. A timer of zero is none.
//!
//! Acknowledgements that the program ignores by its graph ([`rnic_program::ignored`]) are no events: an answer says by
//! [`RecoveryActions::recovering`] if acknowledgements after it are events, until the next answer.
//!
//! A program that was loaded from a file is not trusted: after its first answer outside the contract, a built-in
//! program decides in that window, from its own initial state on, and the engine counts the event.

use core::fmt;

use bytemuck::{Pod, Zeroable};
use rnic_base::{AnyRing, BitRate, Duration, Seq, SeqRange, Time};
use rnic_program::fields::{Fields as _, STATE_BYTES_MAX, Text};
use rnic_program::transport::{Condition, Setting};
use rnic_program::value::MAP_WORDS;
use rnic_program::{
    Actions, Bundle, Description, Due, Executor, Id, Incoming, Initial, LoadError, Map, Needs, Offset, Periodic, Rate,
    Ticks, Transport, U,
};

use crate::field::FootprintField;
use crate::parameters;
use crate::params::{ParamSpec, Params};
use crate::recovery::{RecoveryActions, RecoveryEvent, TimerChange, WindowView};
use crate::state::PolicyState;

/// Picoseconds of a tick.
const TICK_PS: u64 = rnic_program::interface::TICK_NS * 1_000;

/// A program and what is computed from its description once.
pub struct ProgramPolicy {
    transport: &'static dyn Transport,
    description: Description,
    /// Positions, in the program's state, of the deadlines that are times and of those that are counts of sent packets.
    times: Vec<usize>,
    counts: Vec<usize>,
    /// Parts of the window and of the answer that the program uses.
    needs: Needs,
    /// Values of settings while the program ignores acknowledgements; `None` for one that never does.
    ignored: Option<Vec<Held>>,
    /// The program that takes over a window after an answer outside the contract, with the words of its parameters, if
    /// this program is not trusted.
    substitute: Option<(&'static ProgramPolicy, Params)>,
}

impl fmt::Debug for ProgramPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramPolicy({})", self.description.name)
    }
}

/// State of a window-based program at run time: its private state block, and the settings that its results can change.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Running {
    block: [u8; STATE_BYTES_MAX],
    rate: u32,
    timer: u32,
    /// The window in the lowest nine bits, and [`REPLACED`].
    window: u16,
    /// Number of packets beyond the first unacknowledged one that were selectively acknowledged after the last call of
    /// the program; maintained only if the program uses this count.
    sacked: u16,
    /// The first unacknowledged id after the last call; [`UNKNOWN`] before the first one, and while the program ignores
    /// acknowledgements.
    start: u32,
}

/// A setting of a flow, and the value that it has while the program ignores acknowledgements.
#[derive(Clone, Copy)]
struct Held {
    place: Place,
    value: Word,
}

/// Where a setting is stored.
#[derive(Clone, Copy)]
enum Place {
    /// In the block, from this position on, in this number of bytes.
    Block(usize, usize),
    Window,
    Rate,
    Timer,
}

/// A value that is constant for a flow.
#[derive(Clone, Copy)]
enum Word {
    Constant(u64),
    Parameter(usize),
}

/// Value of [`Running::start`] when it is not known.
const UNKNOWN: u32 = u32::MAX;

/// Parameter of programs that take congestion notifications.
pub(crate) const CNP_INTERVAL: &str = "cnp_interval";

/// Bit of [`Running::window`]: the program's substitute decides.
const REPLACED: u16 = 1 << 15;

/// Largest window that an answer may set, in packets (Tonic, section 4.3: 256 segments).
const WINDOW_MAX: u64 = 256;

/// Settings of a flow when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstSettings {
    /// Packets from the first unacknowledged one on that may be outstanding.
    pub window: u32,
    /// Sending rate; `None` for the rate of the link.
    pub rate: Option<BitRate>,
    /// Retransmission timeout; `None` for none.
    pub timeout: Option<Duration>,
}

impl ProgramPolicy {
    /// Prepares a program.
    ///
    /// # Errors
    /// When its description has a fault, or one of its functions has no graph.
    pub fn new(transport: &'static dyn Transport) -> Result<Self, LoadError> {
        let description = transport.description();
        description.check()?;
        let (times, counts) = (description.deadlines(Due::Time), description.deadlines(Due::Sent));
        let needs = transport.needs()?;
        // The number of newly acknowledged packets is that since the last call.
        let conditions = needs.ignored.as_ref().filter(|_| !needs.newly);
        let ignored = conditions.map(|all| all.iter().map(|one| Held::of(one, &description)).collect());
        Ok(Self { transport, description, times, counts, needs, ignored, substitute: None })
    }

    /// Makes this a program that is not trusted: `substitute`, with its defaults, takes over each window in which this
    /// program answers outside the contract.
    #[must_use]
    pub fn with_substitute(self, substitute: &'static Self) -> Self {
        let words = substitute.words(&Params::defaults(&substitute.specs()));
        Self { substitute: Some((substitute, words)), ..self }
    }

    /// Returns the program.
    pub const fn transport(&self) -> &'static dyn Transport {
        self.transport
    }

    /// Returns this policy with `transport` in place of its program: one with the same description and decisions, which
    /// also notes its calls. The program that takes over after an answer outside the contract stays the same.
    ///
    /// # Errors
    /// As [`ProgramPolicy::new`].
    pub fn with_transport(&self, transport: &'static dyn Transport) -> Result<Self, LoadError> {
        Ok(Self { substitute: self.substitute, ..Self::new(transport)? })
    }

    /// Returns how the program is carried out.
    pub fn executor(&self) -> Executor {
        self.transport.executor()
    }

    /// Returns whether packets that arrive out of order certainly cause no retransmissions, by the program's graphs.
    pub const fn tolerates_reordering(&self) -> bool {
        self.needs.tolerates_reordering
    }

    /// Returns whether the program was loaded from a file: it is not trusted.
    pub const fn is_loaded(&self) -> bool {
        self.substitute.is_some()
    }

    /// Returns the description of the program.
    pub const fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the name of the parameter that is the first timer of a flow, if a parameter is.
    pub fn timer_parameter(&self) -> Option<&str> {
        match &self.description.start.timer {
            Initial::Parameter(name) => Some(name),
            Initial::Constant(_) => None,
        }
    }

    /// Returns the parameters of the program as parameters of a policy.
    pub fn specs(&self) -> Vec<ParamSpec> {
        parameters::specs(&self.description.parameters)
    }

    /// Returns the state that a circuit stores: that of the program, and the settings that it changes.
    pub fn footprint(&self) -> Vec<FootprintField> {
        let settings = u64::from(<Actions as Bundle>::bits()) - 2 * 24 - 2;
        vec![
            FootprintField::connection("state of the program", self.description.state_bits().into()),
            FootprintField::connection("window, rate and timer, as the program sets them", settings),
        ]
    }

    /// Returns the words that the program gets for the values of a policy's parameters.
    pub fn words(&self, params: &Params) -> Params {
        parameters::words(&self.description.parameters, params)
    }

    /// Returns the value of the parameter called `name`, if there is one.
    pub fn value(&self, name: &str, params: &Params) -> Option<u64> {
        let position = self.description.parameters.iter().position(|parameter| parameter.name == name);
        position.map(|position| params.get(position))
    }

    fn parameters<'p>(&self, words: &'p Params) -> &'p [u64] {
        words.words(self.description.parameters.len())
    }

    /// Returns the settings of a new flow, given the words of the parameters.
    pub fn first(&self, words: &Params) -> FirstSettings {
        let actions = self.description.initial_actions(self.parameters(words));
        FirstSettings {
            window: window_of(actions.window),
            rate: rate_of(actions.rate),
            timeout: (actions.timer != 0).then(|| timeout_of(actions.timer)),
        }
    }

    /// Returns the state of a new window, given the words of the parameters.
    pub(crate) fn start(&self, words: &Params) -> PolicyState {
        let parameters = self.parameters(words);
        let actions = self.description.initial_actions(parameters);
        let mut running = Running::zeroed();
        running.keep(&actions);
        running.start = UNKNOWN;
        let block = self.description.initial_state(parameters);
        running.block[..block.len()].copy_from_slice(&block);
        PolicyState::of(running)
    }

    /// Returns whether connections are paced, or notify their peers of congestion: whether the program or its
    /// substitute sets rates, or takes notifications.
    pub fn paces(&self) -> bool {
        let sets_rate = |program: &Self| program.needs.rate || program.description.start.rate != Initial::Constant(0);
        let takes_notifications = self.description.parameters.iter().any(|one| one.name == CNP_INTERVAL);
        sets_rate(self) || takes_notifications || self.substitute.as_ref().is_some_and(|(other, _)| sets_rate(other))
    }

    /// Returns whether acknowledgements are events of a new window, given the words of the parameters.
    pub(crate) fn starts_with_acknowledgements(&self, words: &Params) -> bool {
        let mut state = self.start(words);
        !self.ignores(state.get_mut::<Running>(), self.parameters(words))
    }

    /// Records that the first unacknowledged packet was `una`, before an acknowledgement that was no event although the
    /// program ignores none from now on.
    pub(crate) fn note_start(state: &mut PolicyState, una: Seq) {
        let running = state.get_mut::<Running>();
        if running.start == UNKNOWN {
            running.start = id(una).get() as u32;
        }
    }

    /// Passes an event to the program, or to its substitute, and returns the answer as actions of a policy.
    pub(crate) fn on_event(
        &self,
        state: &mut PolicyState,
        event: &RecoveryEvent,
        view: &WindowView<'_>,
        words: &Params,
    ) -> RecoveryActions {
        match &self.substitute {
            None => self.decide(state, event, view, words),
            Some(substitute) => self.decide_untrusted(state, event, view, (words, substitute)),
        }
    }

    /// Does the same as [`ProgramPolicy::on_event`] for a program that is not trusted, given its substitute.
    fn decide_untrusted(
        &self,
        state: &mut PolicyState,
        event: &RecoveryEvent,
        view: &WindowView<'_>,
        (words, (substitute, own_words)): (&Params, &(&'static Self, Params)),
    ) -> RecoveryActions {
        let before = *state.get_mut::<Running>();
        if before.window & REPLACED != 0 {
            return substitute.decide(state, event, view, own_words);
        }
        let actions = self.decide(state, event, view, words);
        if !actions.replaced {
            return actions;
        }
        *state = substitute.start(own_words);
        let running = state.get_mut::<Running>();
        (running.start, running.sacked) = (before.start, before.sacked);
        running.window |= REPLACED;
        let actions = substitute.decide(state, event, view, own_words);
        let rate = actions.rate.unwrap_or_else(|| rate_of(state.get_mut::<Running>().actions().rate));
        RecoveryActions { rate: Some(rate), replaced: true, ..actions }
    }

    /// Returns how the answer of the program to an event is outside the contract, if it is.
    pub(crate) fn breach(
        &self,
        mut state: PolicyState,
        event: &RecoveryEvent,
        view: &WindowView<'_>,
        words: &Params,
    ) -> Option<Breach> {
        let actions = self.ask(state.get_mut(), event, view, self.parameters(words))?;
        breach_of(&actions, view)
    }

    /// Passes an event to the program, and returns its answer; `None` for events that programs do not get.
    #[inline]
    fn ask(
        &self,
        running: &mut Running,
        event: &RecoveryEvent,
        view: &WindowView<'_>,
        parameters: &[u64],
    ) -> Option<Actions> {
        let sacked = view.sacked.filter(|_| self.needs.newly).map_or(0, AnyRing::popcount) as u16;
        let mut actions = running.actions();
        let old_start = running.old_start(event, view);
        let newly = running.newly(event, old_start, view, sacked);
        (running.start, running.sacked) = (id(view.una).get() as u32, sacked);
        match *event {
            RecoveryEvent::TimedOut { .. } | RecoveryEvent::Tick => {
                self.visit(running, (event, old_start, newly), view, parameters, &mut actions);
            }
            RecoveryEvent::Delivered { .. } | RecoveryEvent::Quiet => return None,
            _ => {
                let packet = self.packet(event, view, (old_start, newly));
                self.transport.incoming(&packet, parameters, &mut running.block, &mut actions);
                if !actions.mark && self.is_due(running, view) {
                    let visit = self.periodic(view, false);
                    self.transport.periodic(&visit, parameters, &mut running.block, &mut actions);
                }
            }
        }
        Some(actions)
    }

    /// Passes an event to the program, and returns the program's result as actions of a policy. For a program that is
    /// not trusted, [`RecoveryActions::replaced`] reports whether the result violated the contract.
    fn decide(
        &self,
        state: &mut PolicyState,
        event: &RecoveryEvent,
        view: &WindowView<'_>,
        words: &Params,
    ) -> RecoveryActions {
        let running = state.get_mut::<Running>();
        let parameters = self.parameters(words);
        let Some(actions) = self.ask(running, event, view, parameters) else {
            return RecoveryActions { recovering: true, ..RecoveryActions::default() };
        };
        let rate = actions.rate.get() as u32 != running.rate;
        running.keep(&actions);
        let recovering = !self.ignores(running, parameters);
        if !recovering {
            running.start = UNKNOWN;
        }
        let (retransmit, timer) = answer(event, &actions, view);
        RecoveryActions {
            retransmit,
            timer,
            rto: Some((actions.timer != 0).then(|| timeout_of(actions.timer))),
            recovering,
            window: Some(window_of(actions.window)),
            rate: rate.then(|| rate_of(actions.rate)),
            tick_after: self.next_tick(running, view.now),
            replaced: self.substitute.is_some() && breach_of(&actions, view).is_some(),
            ..RecoveryActions::default()
        }
    }

    /// Passes a timeout or tick, before which `old_start` was the first unacknowledged id, to the program.
    fn visit(
        &self,
        running: &mut Running,
        (event, old_start, newly): (&RecoveryEvent, Id, Offset),
        view: &WindowView<'_>,
        parameters: &[u64],
        actions: &mut Actions,
    ) {
        if old_start != id(view.una) {
            // An acknowledgement that came with the peer's next request, and was no event of its own.
            let packets = (id(view.una) - old_start).get();
            let packet = self.packet(&RecoveryEvent::Acked { packets, rtt: None }, view, (old_start, newly));
            self.transport.incoming(&packet, parameters, &mut running.block, actions);
        }
        let silent = *actions;
        actions.mark = false;
        let extended = matches!(event, RecoveryEvent::TimedOut { extended: true });
        let visit = self.periodic(view, matches!(event, RecoveryEvent::TimedOut { .. }));
        self.transport.periodic(&visit, parameters, &mut running.block, actions);
        if extended && !actions.mark {
            // The timer has been extended already: the program, whose state tells so now, is asked again.
            self.transport.periodic(&visit, parameters, &mut running.block, actions);
        }
        if silent.mark && !actions.mark {
            *actions = Actions { mark: true, from: silent.from, to: silent.to, ..*actions };
        }
    }

    /// Returns the packet of an event, before which `old_start` was the first unacknowledged id, and which acknowledges
    /// `newly` packets for the first time.
    #[inline]
    fn packet(&self, event: &RecoveryEvent, view: &WindowView<'_>, (old_start, newly): (Id, Offset)) -> Incoming {
        let una = id(view.una);
        let mut packet = Incoming {
            cum: una,
            start: una,
            old_start,
            next: id(view.next),
            newly,
            total_sent: Id::new(view.sent),
            now: ticks(view.now),
            acked: map(view.sacked.filter(|_| self.needs.acked)),
            marked: map(view.marked.filter(|_| self.needs.marked)),
            ..Incoming::default()
        };
        match *event {
            RecoveryEvent::Acked { .. } => packet.ack = true,
            RecoveryEvent::Nacked { sack, is_new, advanced, .. } => {
                (packet.ack, packet.nack) = (!advanced, true);
                (packet.sacked, packet.sack_new) = (sack.is_some(), is_new);
                packet.sack = sack.map_or(una, id);
            }
            RecoveryEvent::Trimmed { seq } => (packet.trimmed, packet.sack) = (true, id(seq)),
            RecoveryEvent::Arrived { seq } => {
                (packet.sacked, packet.sack_new, packet.sack) = (true, true, id(seq));
            }
            RecoveryEvent::Congested => packet.cnp = true,
            RecoveryEvent::TimedOut { .. }
            | RecoveryEvent::Tick
            | RecoveryEvent::Delivered { .. }
            | RecoveryEvent::Quiet => {}
        }
        packet
    }

    fn periodic(&self, view: &WindowView<'_>, expired: bool) -> Periodic {
        Periodic {
            expired,
            start: id(view.una),
            next: id(view.next),
            total_sent: Id::new(view.sent),
            now: ticks(view.now),
            acked: map(view.sacked.filter(|_| self.needs.acked)),
            marked: map(view.marked.filter(|_| self.needs.marked)),
        }
    }

    /// Returns whether the program ignores acknowledgements, and has no periodic work that one would show to be due.
    #[inline]
    fn ignores(&self, running: &Running, parameters: &[u64]) -> bool {
        self.ignored.as_ref().is_some_and(|held| self.holds(held, running, parameters))
    }

    #[inline(never)]
    fn holds(&self, held: &[Held], running: &Running, parameters: &[u64]) -> bool {
        held.iter().all(|one| one.holds(running, parameters))
            && (1..=WINDOW_MAX).contains(&u64::from(running.window & !REPLACED))
            && self.times.iter().chain(&self.counts).all(|at| running.deadline(*at).is_none())
    }

    /// Returns whether a deadline of the state has passed.
    fn is_due(&self, running: &Running, view: &WindowView<'_>) -> bool {
        let (now, sent) = (ticks(view.now), Id::new(view.sent));
        let has_passed = |at: &usize, value: Id| running.deadline(*at).is_some_and(|deadline| value.at_least(deadline));
        self.times.iter().any(|at| has_passed(at, now)) || self.counts.iter().any(|at| has_passed(at, sent))
    }

    /// Returns the time until the first deadline of the state that is a time.
    fn next_tick(&self, running: &Running, now: Time) -> Option<Duration> {
        let now = ticks(now);
        let until = |at: &usize| {
            let deadline = running.deadline(*at)?;
            Some(if now.at_least(deadline) { 1 } else { (deadline - now).get() })
        };
        self.times.iter().filter_map(until).min().map(|ticks| Duration::from_ps(ticks * TICK_PS))
    }
}

impl Held {
    fn of(condition: &Condition, description: &Description) -> Self {
        let place = match condition.setting {
            Setting::State(at) => {
                let (position, bytes) = description.place(at);
                Place::Block(position, bytes)
            }
            Setting::Window => Place::Window,
            Setting::Rate => Place::Rate,
            Setting::Timer => Place::Timer,
        };
        let position = |name: &Text| description.parameters.iter().position(|parameter| parameter.name == *name);
        let value = match &condition.value {
            Initial::Constant(value) => Word::Constant(*value),
            Initial::Parameter(name) => position(name).map_or(Word::Constant(0), Word::Parameter),
        };
        Self { place, value }
    }

    fn holds(self, running: &Running, parameters: &[u64]) -> bool {
        let value = match self.place {
            Place::Block(at, bytes) => {
                running.block[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            Place::Window => (running.window & !REPLACED).into(),
            Place::Rate => running.rate.into(),
            Place::Timer => running.timer.into(),
        };
        value
            == match self.value {
                Word::Constant(value) => value,
                Word::Parameter(at) => parameters[at],
            }
    }
}

impl Running {
    fn actions(&self) -> Actions {
        Actions {
            window: Offset::new((self.window & !REPLACED).into()),
            rate: Rate::new(self.rate.into()),
            timer: Ticks::new(self.timer.into()),
            ..Actions::default()
        }
    }

    /// Returns the first unacknowledged id before `event`.
    fn old_start(&self, event: &RecoveryEvent, view: &WindowView<'_>) -> Id {
        match *event {
            _ if self.start != UNKNOWN => Id::new(self.start.into()),
            RecoveryEvent::Acked { packets, .. } => id(view.una) - Id::new(packets),
            _ => id(view.una),
        }
    }

    /// Returns the number of packets that `event` acknowledges for the first time. `sacked` packets are selectively
    /// acknowledged after it: the result is the packets that have left the window, without those among them that were
    /// acknowledged before.
    fn newly(&self, event: &RecoveryEvent, old_start: Id, view: &WindowView<'_>, sacked: u16) -> Offset {
        let left = (id(view.una) - old_start).get();
        match *event {
            RecoveryEvent::Acked { .. } => Offset::new((left + u64::from(sacked)).saturating_sub(self.sacked.into())),
            RecoveryEvent::Nacked { is_new, .. } => Offset::new(is_new.into()),
            RecoveryEvent::Arrived { .. } => Offset::new(1),
            _ => Offset::new(0),
        }
    }

    fn keep(&mut self, actions: &Actions) {
        self.window = (self.window & REPLACED) | actions.window.get() as u16;
        self.rate = actions.rate.get() as u32;
        self.timer = actions.timer.get() as u32;
    }

    /// Returns the deadline at position `at` of the program's state; `None` when it is not set.
    fn deadline(&self, at: usize) -> Option<Id> {
        let bytes: [u8; 4] = self.block[at..at + 4].try_into().ok()?;
        Some(U::new(u32::from_le_bytes(bytes).into())).filter(|deadline| *deadline != 0)
    }
}

fn ticks(now: Time) -> Ticks {
    Ticks::new(now.as_ps() / TICK_PS)
}

fn id(seq: Seq) -> Id {
    Id::new(seq.get())
}

fn window_of(window: Offset) -> u32 {
    window.get().max(1) as u32
}

fn rate_of(rate: Rate) -> Option<BitRate> {
    (rate != 0).then(|| BitRate::bps(rate.get() * 390_625 / 32))
}

fn timeout_of(timer: Ticks) -> Duration {
    Duration::from_ps(timer.get().max(1) * TICK_PS)
}

/// Returns the first bits of a ring as a map.
#[inline]
fn map(ring: Option<&AnyRing>) -> Map {
    ring.map_or(Map::default(), map_of)
}

#[inline(never)]
fn map_of(ring: &AnyRing) -> Map {
    let mut words = [0; MAP_WORDS];
    let low = ring.first_128();
    (words[0], words[1]) = (low as u64, (low >> 64) as u64);
    if ring.bits() > 128 {
        for offset in 128..ring.bits().min(256) {
            words[(offset / 64) as usize] |= u64::from(ring.test(offset)) << (offset % 64);
        }
    }
    Map::new(words)
}

/// Returns how an answer is outside the contract, if it is. Packets that have been acknowledged may be marked, and are
/// not sent.
fn breach_of(actions: &Actions, view: &WindowView<'_>) -> Option<Breach> {
    let next = id(view.next);
    let unsent = |end: Id| (!next.at_least(end)).then(|| (end - next).get());
    if !(1..=WINDOW_MAX).contains(&actions.window.get()) {
        return Some(Breach::Window(actions.window.get()));
    }
    let marked = |name, end| unsent(end).map(|beyond| Breach::Unsent { name, beyond });
    if actions.mark { marked("a.from", actions.from).or_else(|| marked("a.to", actions.to)) } else { None }
}

/// How an answer of a program is outside the contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Breach {
    /// The window is zero or too large.
    Window(u64),
    /// The answer marks packets that have not been sent.
    Unsent {
        /// The action with the end of the marked packets.
        name: &'static str,
        /// Number of packets from the first that has not been sent to that end.
        beyond: u64,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(window) => write!(f, "a.window is {window}: from 1 to {WINDOW_MAX} packets are possible"),
            Self::Unsent { name, beyond } => {
                write!(
                    f,
                    "a.mark is set, and {name} is {beyond} beyond i.next: only packets that were sent can be marked"
                )
            }
        }
    }
}

/// Returns an event as the inputs of a program that tell it.
pub(crate) fn inputs_of(event: &RecoveryEvent) -> &'static str {
    match event {
        RecoveryEvent::Acked { .. } => "incoming with i.ack",
        RecoveryEvent::Nacked { sack: Some(_), .. } => "incoming with i.nack and i.sacked",
        RecoveryEvent::Nacked { .. } => "incoming with i.nack",
        RecoveryEvent::Trimmed { .. } => "incoming with i.trimmed",
        RecoveryEvent::Arrived { .. } => "incoming with i.sacked",
        RecoveryEvent::Congested => "incoming with i.cnp",
        RecoveryEvent::TimedOut { .. } => "periodic with v.expired",
        RecoveryEvent::Tick => "periodic without v.expired",
        RecoveryEvent::Delivered { .. } | RecoveryEvent::Quiet => "no call",
    }
}

/// Returns the packets to retransmit and the change of the timer by a program's answer to `event`, cut to what the
/// contract permits.
#[inline]
fn answer(event: &RecoveryEvent, actions: &Actions, view: &WindowView<'_>) -> (Option<SeqRange>, TimerChange) {
    let is_timeout = matches!(event, RecoveryEvent::TimedOut { .. });
    let is_last = matches!(event, RecoveryEvent::TimedOut { extended: true }) && view.in_flight() > 0;
    let range = if actions.mark { marked(actions, view) } else { None };
    let range = range.or_else(|| is_last.then(|| SeqRange::single(view.una)));
    let timer = if is_timeout && range.is_none() && actions.timer != 0 {
        TimerChange::Extend(timeout_of(actions.timer))
    } else if actions.restart || is_timeout {
        // After a timeout, with the duration that the program has just set.
        TimerChange::Restart
    } else {
        TimerChange::Continue
    };
    (range, timer)
}

/// Returns the outstanding packets of the range that the program's result marks for retransmission, if there are any.
fn marked(actions: &Actions, view: &WindowView<'_>) -> Option<SeqRange> {
    // An id before the first unacknowledged one stands for that one.
    let distance = |of: Id| if of.at_least(id(view.una)) { (of - id(view.una)).get() } else { 0 };
    let (from, to) = (distance(actions.from), distance(actions.to).min(view.in_flight()));
    (from < to).then(|| SeqRange::new(view.una + from, view.una + to))
}
