//! The engine itself, inline: an event in, a response out, and where the program's state lies.
//!
//! Source: Falcon (SIGCOMM'25) section 5.3 and figure 9. Stateless: the state travels in the event and back in the
//! response. Stateful: it lies in a table. Prefetching: it lies in a table, and the line of a later event is asked for
//! before the present one is handled, so that it has come when its turn comes.

use rnic_base::{BitRate, Time};
use rnic_policy::control::lanes::{Answers, LANES, LaneSet, StateLanes};
use rnic_policy::control::report::{Carried, FlowActions, FlowReport, Ticks};
use rnic_policy::{ControlActions, ControlEvent, ControlView};

use crate::program::Program;
use crate::record::{self, CONNECTIONS_MAX, Event, EventRecord, Response, ResponseRecord};
use crate::table::{States, Table};

/// Where the program's state lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In events and responses.
    Stateless,
    /// In a table.
    Table,
    /// In a table, fetched for the event that many behind the present one.
    Prefetching {
        /// How far ahead, at most [`AHEAD_MAX`].
        ahead: usize,
    },
}

/// Furthest that state is fetched ahead: what is fetched much earlier may be gone again when its turn comes.
pub const AHEAD_MAX: usize = 64;

/// How far ahead state is fetched at least where events are worked on side by side: one batch and a half, so that
/// something is under way where one batch ends and the next begins.
const AHEAD_OF_LANES: usize = LANES + LANES / 2;

/// So many events side by side take as long as one by one.
const FEW: u32 = 4;

impl Form {
    /// The distance that did best where it was measured, for states of one line and of eight: between 4 and 16 it
    /// hardly matters for one line; further ahead, lines of large states displace each other.
    pub const PREFETCHING: Self = Self::Prefetching { ahead: 8 };
}

/// What an engine must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorConfig {
    /// Where state lies.
    pub form: Form,
    /// Connections are numbered from zero to below this.
    pub connections: u32,
    /// Rate of the link.
    pub line_rate: BitRate,
    /// Payload bytes of a full packet.
    pub mtu: u32,
}

/// Why an engine cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaeError {
    /// The program answers no reports, and leaves no place for what would make them into events.
    #[error("this control policy reads no reports of a datapath with flows, and keeps too much to be told of events")]
    NoReports,
    /// The program's state does not travel.
    #[error("this control policy needs a memory: it cannot run stateless")]
    NotStateless,
    /// More connections than 24 bits name.
    #[error("{0} connections are more than {max}", max = CONNECTIONS_MAX)]
    TooManyConnections(u32),
    /// Fetching too far ahead.
    #[error("state is fetched {0} events ahead; at most {max} make sense", max = AHEAD_MAX)]
    TooFarAhead(usize),
    /// The system gives no thread, or nobody may ask it for one.
    #[error("there is no thread for the adaptive engine")]
    NoThread,
}

/// The engine.
pub struct Processor<P: Program> {
    program: P,
    view: ControlView,
    /// When the latest event happened, in ticks that do not wrap: what the 24 bits of events are made into.
    ticks: u64,
    first: FlowActions,
    fresh: P::State,
    /// By connection; empty when stateless.
    table: Table,
    /// How many it has.
    connections: u32,
    ahead: Option<usize>,
    is_stateless: bool,
    has_lanes: bool,
    distinct: Distinct,
}

impl<P: Program> Processor<P> {
    /// An engine that runs `program`.
    ///
    /// # Errors
    /// When `program` cannot run as `config` says.
    pub fn new(program: P, config: &ProcessorConfig) -> Result<Self, FaeError> {
        if config.connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(config.connections));
        }
        if !program.understands_reports() {
            return Err(FaeError::NoReports);
        }
        let view = ControlView { now: Time::ZERO, line_rate: config.line_rate, mtu: config.mtu, in_flight: 0 };
        let (mut fresh, first) = program.start(&view);
        let first = first.flow.ok_or(FaeError::NoReports)?;
        let ahead = match config.form {
            Form::Prefetching { ahead } => Some(ahead),
            Form::Stateless | Form::Table => None,
        };
        if let Some(ahead) = ahead.filter(|ahead| *ahead > AHEAD_MAX) {
            return Err(FaeError::TooFarAhead(ahead));
        }
        let is_stateless = config.form == Form::Stateless;
        if is_stateless && program.carry(&mut fresh).is_none() {
            return Err(FaeError::NotStateless);
        }
        let connections = if is_stateless { 0 } else { config.connections as usize };
        let table = Table::new(connections, &fresh);
        let connections = config.connections;
        let (has_lanes, distinct) = (program.has_lanes(), Distinct::new());
        let ticks = 0;
        Ok(Self { program, view, ticks, first, fresh, table, connections, ahead, is_stateless, has_lanes, distinct })
    }

    /// From now on, connections are numbered from zero to below `connections`, if that is more than before.
    ///
    /// # Errors
    /// When there are more than 24 bits name; nothing has changed then.
    pub fn grow(&mut self, connections: u32) -> Result<(), FaeError> {
        if connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(connections));
        }
        if connections <= self.connections {
            return Ok(());
        }
        if !self.is_stateless {
            let mut table = Table::new(connections as usize, &self.fresh);
            for number in 0..self.connections as usize {
                *table.get_mut::<P::State>(number) = *self.table.get_mut::<P::State>(number);
            }
            self.table = table;
        }
        self.connections = connections;
        Ok(())
    }

    /// Whether state travels in events and responses.
    #[inline]
    pub const fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    /// What a fresh connection does before the first response; its flows share the window.
    pub const fn first(&self) -> &FlowActions {
        &self.first
    }

    /// The response to `event`, where nobody knows the time but from events: of what passes between two, multiples of
    /// 2.199 s are lost.
    ///
    /// # Panics
    /// When its connection is none of the configured ones, or the program breaks its contract.
    #[inline]
    pub fn handle(&mut self, event: &EventRecord) -> ResponseRecord {
        self.advance(event.now());
        self.respond_to(event)
    }

    /// The response to `event`, which happened `now` or less than 2.199 s before.
    ///
    /// # Panics
    /// As [`Processor::handle`].
    #[inline]
    pub fn handle_at(&mut self, now: Time, event: &EventRecord) -> ResponseRecord {
        self.advance_to(now, event.now());
        self.respond_to(event)
    }

    #[inline]
    fn respond_to(&mut self, event: &EventRecord) -> ResponseRecord {
        if self.is_stateless { self.handle_carried(event) } else { self.handle_kept(event) }
    }

    /// Handles an event whose state lies in the table.
    ///
    /// A function of its own, since within a loop LLVM turns conditional moves into branches, and the conditions of a
    /// controller are as good as random.
    #[inline(never)]
    fn handle_kept(&mut self, event: &EventRecord) -> ResponseRecord {
        let (report, connection) = (event.report(), event.connection() as usize);
        if event.is_first() {
            *self.table.get_mut(connection) = self.fresh;
        }
        let state = self.table.get_mut::<P::State>(connection);
        let actions = self.program.on_event(state, &ControlEvent::Reported(report), &self.view);
        respond(event, &report, actions, Carried::default())
    }

    /// The response to `event`, which nobody else is to see, without a record of either: the same as that of
    /// [`Processor::handle_at`], unpacked.
    ///
    /// # Panics
    /// As [`Processor::handle`].
    #[inline]
    pub fn answer(&mut self, now: Time, event: &Event) -> Response {
        self.advance_to(now, event.report.t4);
        if self.is_stateless {
            self.handle_carried(&EventRecord::pack(event, false)).unpack()
        } else {
            self.answer_kept(event)
        }
    }

    #[inline(never)]
    fn answer_kept(&mut self, event: &Event) -> Response {
        let report = record::as_recorded(&event.report);
        let state = self.table.get_mut::<P::State>(event.connection as usize);
        if event.first {
            *state = self.fresh;
        }
        let actions = self.program.on_event(state, &ControlEvent::Reported(report), &self.view);
        let actions = actions.flow.expect("the contract: every report is answered");
        let (flow, queue, delay) = (report.flow, event.queue & 3, report.delay);
        let actions = record::actions_as_recorded(&actions);
        Response { connection: event.connection, flow, queue, delay, actions, carried: Carried::default() }
    }

    /// Handles an event that brings its state.
    #[inline(never)]
    fn handle_carried(&mut self, event: &EventRecord) -> ResponseRecord {
        let report = event.report();
        let restored = if event.is_first() { None } else { self.program.restore(&event.carried(), &report) };
        let mut state = restored.unwrap_or(self.fresh);
        let actions = self.program.on_event(&mut state, &ControlEvent::Reported(report), &self.view);
        let carried = self.program.carry(&mut state).expect("checked when the engine was made");
        respond(event, &report, actions, carried)
    }

    /// The responses to `events`, in their order; fetches state ahead if it is to.
    #[inline]
    pub fn handle_all(&mut self, events: &[EventRecord], mut respond: impl FnMut(ResponseRecord)) {
        if self.is_stateless {
            events.iter().for_each(|event| respond(self.handle(event)));
            return;
        }
        let ahead =
            self.ahead.map_or(events.len(), |ahead| if self.has_lanes { ahead.max(AHEAD_OF_LANES) } else { ahead });
        if self.ahead.is_some() {
            events.iter().take(ahead).for_each(|event| self.fetch(event));
        }
        let (batches, rest) = if self.has_lanes { events.as_chunks::<LANES>() } else { (&[][..], events) };
        let mut responses = [ResponseRecord::default(); LANES];
        for (index, batch) in batches.iter().enumerate() {
            let later = events.get(index * LANES + ahead..).unwrap_or_default();
            self.handle_batch(batch, later, &mut responses, &mut respond);
        }
        let done = batches.len() * LANES;
        for (index, event) in rest.iter().enumerate() {
            if let Some(later) = events.get(done + index + ahead) {
                self.fetch(later);
            }
            respond(self.handle(event));
        }
    }

    /// Handles events side by side as far as they are acknowledgements of different connections; the others one by
    /// one, behind them, in their order. So events of one connection keep their order.
    #[inline(always)]
    fn handle_batch(
        &mut self,
        events: &[EventRecord; LANES],
        later: &[EventRecord],
        responses: &mut [ResponseRecord; LANES],
        respond: &mut impl FnMut(ResponseRecord),
    ) {
        let mut connections = [0; LANES];
        let set = self.distinct.of(events, &mut connections);
        later.iter().take(LANES).for_each(|event| self.fetch(event));
        // For a few it does not pay.
        let is_worth_it = set.count_ones() > FEW;
        let done = if is_worth_it { self.work_on(events, &connections, set, responses) } else { 0 };
        for (lane, event) in events.iter().enumerate() {
            if done & (1 << lane) != 0 {
                self.advance(event.now());
                respond(responses[lane]);
            } else {
                respond(self.handle(event));
            }
        }
    }

    /// Puts the responses of lanes in `set` into `responses`; answers which lanes it has dealt with.
    #[inline(always)]
    fn work_on(
        &mut self,
        events: &[EventRecord; LANES],
        connections: &[u32; LANES],
        set: LaneSet,
        responses: &mut [ResponseRecord; LANES],
    ) -> LaneSet {
        let acks = record::acks(events);
        let mut states = TableLanes { states: self.table.states(), connections };
        let mut answers = Answers::default();
        let done = self.program.on_acks(&mut states, &acks, set, &mut answers);
        record::responses(events, &acks, &answers, responses);
        done
    }

    /// How far ahead [`Processor::fetch`] should be called.
    #[inline]
    pub const fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    /// Asks for the state that `event` will need.
    #[inline]
    pub fn fetch(&self, event: &EventRecord) {
        self.table.fetch::<P::State>(event.connection() as usize);
    }

    /// Asks for the state of `connection`, where that lies here.
    #[inline]
    pub fn fetch_state(&self, connection: u32) {
        if !self.is_stateless {
            self.table.fetch::<P::State>(connection as usize);
        }
    }

    /// Brings the time forward to the next instant that looks like `event`; never back. Events of several datapaths, or
    /// of one that held some of them back, may be a little out of order: what seems to be nearly a whole circle ahead
    /// is behind.
    #[inline]
    fn advance(&mut self, event: Ticks) {
        let step = event.since(Ticks::new(self.ticks as u32)).get();
        let is_behind = step > Ticks::MAX.get() - BEHIND_MAX;
        self.set_ticks(self.ticks + if is_behind { 0 } else { u64::from(step) });
    }

    /// Brings the time forward to the last instant that looks like `event`, when it is `now`; never back.
    #[inline]
    fn advance_to(&mut self, now: Time, event: Ticks) {
        let ago = Ticks::at(now).since(event).get();
        let happened = Ticks::count(now).saturating_sub(u64::from(ago));
        self.set_ticks(self.ticks.max(happened));
    }

    #[inline]
    fn set_ticks(&mut self, ticks: u64) {
        self.ticks = ticks;
        self.view.now = Ticks::time(ticks);
    }
}

/// Events are behind each other by so many ticks at most, 137 ms: many times what they wait in any queue.
const BEHIND_MAX: u32 = 1 << 20;

/// The states of a batch's connections.
struct TableLanes<'a> {
    states: States<'a>,
    connections: &'a [u32; LANES],
}

impl<S: bytemuck::Pod> StateLanes<S> for TableLanes<'_> {
    #[inline(always)]
    fn state(&mut self, lane: usize) -> &mut S {
        self.states.get_mut(self.connections[lane] as usize)
    }
}

/// Finds events that can be handled side by side: no two of one connection. One in a hundred that could is not found.
struct Distinct {
    /// By low bits of the connection: the batch that it was last in.
    seen: [u16; Self::PLACES],
    batch: u16,
}

impl Distinct {
    const PLACES: usize = 1 << 10;

    const fn new() -> Self {
        Self { seen: [0; Self::PLACES], batch: 0 }
    }

    /// The connections of `events`, and the set of those that are acknowledgements, not the first of their
    /// connection, and with none of their connection before them.
    #[inline(always)]
    fn of(&mut self, events: &[EventRecord; LANES], connections: &mut [u32; LANES]) -> LaneSet {
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 {
            // Numbers of batches come again.
            *self = Self { batch: 1, ..Self::new() };
        }
        let mut set = 0;
        for (lane, event) in events.iter().enumerate() {
            connections[lane] = event.connection();
            let place = &mut self.seen[connections[lane] as usize % Self::PLACES];
            let is_alone = *place != self.batch;
            *place = self.batch;
            set |= LaneSet::from(is_alone & event.is_plain_ack()) << lane;
        }
        set
    }
}

/// The record of what the program wants.
#[inline(always)]
fn respond(event: &EventRecord, report: &FlowReport, actions: ControlActions, carried: Carried) -> ResponseRecord {
    let actions = actions.flow.expect("the contract: every report is answered");
    let (connection, queue) = (event.connection(), event.queue());
    ResponseRecord::pack(&Response { connection, flow: report.flow, queue, delay: report.delay, actions, carried })
}
