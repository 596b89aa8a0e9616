//! The engine itself, inline: processes an event into a response, with the program's state in one of three forms.
//!
//! Source: Falcon (SIGCOMM'25) section 5.3 and figure 9. Stateless: the state travels in the event and is returned in
//! the response. Stateful: it is stored in a table. Prefetching: it is stored in a table, and the line of a later event
//! is prefetched before the current one is handled, so that it is in the cache when the later event is handled.

use rnic_base::{BitRate, Time};
use rnic_policy::control::lanes::{Answers, LANES, LaneSet, StateLanes};
use rnic_policy::control::report::{Carried, FlowActions, FlowReport, Ticks};
use rnic_policy::{ControlActions, ControlEvent, ControlView};

use crate::program::Program;
use crate::record::{self, CONNECTIONS_MAX, Event, EventRecord, Response, ResponseRecord};
use crate::table::{States, Table};

/// The location of the program's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In events and responses.
    Stateless,
    /// In a table of the engine.
    Table,
    /// In a table, prefetched for the event that is `ahead` positions behind the current one.
    Prefetching {
        /// Prefetch distance in events, at most [`AHEAD_MAX`].
        ahead: usize,
    },
}

/// Largest prefetch distance in events: state prefetched much earlier may be evicted before it is used.
pub const AHEAD_MAX: usize = 64;

/// Smallest prefetch distance where events are processed in batches: one and a half batches, so that prefetches are in
/// flight where one batch ends and the next starts.
const AHEAD_OF_LANES: usize = LANES + LANES / 2;

/// Number of events up to which processing in a batch takes as long as one by one.
const FEW: u32 = 4;

impl Form {
    /// The distance with the best measured rate, for states of one line and of eight: between 4 and 16 it hardly
    /// matters for one line; further ahead, lines of large states displace each other.
    pub const PREFETCHING: Self = Self::Prefetching { ahead: 8 };
}

/// Configuration of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorConfig {
    /// Location of the state.
    pub form: Form,
    /// Number of connections; they are numbered from zero to below this.
    pub connections: u32,
    /// Rate of the link.
    pub line_rate: BitRate,
    /// Payload bytes of a full packet.
    pub mtu: u32,
}

/// The reason for which an engine cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaeError {
    /// The program does not process reports, and its state leaves no space for the adapter that turns them into events.
    #[error("this control policy reads no reports of a datapath with flows, and keeps too much to be told of events")]
    NoReports,
    /// The program's state does not travel in events and responses.
    #[error("this control policy needs a memory: it cannot run stateless")]
    NotStateless,
    /// More connections than 24 bits can name.
    #[error("{0} connections are more than {max}", max = CONNECTIONS_MAX)]
    TooManyConnections(u32),
    /// The prefetch distance is too large.
    #[error("state is fetched {0} events ahead; at most {max} make sense", max = AHEAD_MAX)]
    TooFarAhead(usize),
    /// The system provides no thread, or the driver does not allow threads.
    #[error("there is no thread for the adaptive engine")]
    NoThread,
}

/// The engine.
pub struct Processor<P: Program> {
    program: P,
    view: ControlView,
    /// Time of the latest event, in ticks that do not wrap: the 24-bit times of events are extended with it.
    ticks: u64,
    first: FlowActions,
    fresh: P::State,
    /// States by connection; empty when stateless.
    table: Table,
    /// Number of connections.
    connections: u32,
    ahead: Option<usize>,
    is_stateless: bool,
    has_lanes: bool,
    distinct: Distinct,
}

impl<P: Program> Processor<P> {
    /// Creates an engine that runs `program`.
    ///
    /// # Errors
    /// When `program` cannot run with this `config`.
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

    /// Extends the range of connection numbers to zero to below `connections`, if that is more than before.
    ///
    /// # Errors
    /// When there are more than 24 bits can name; nothing has changed then.
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

    /// Returns whether state travels in events and responses.
    #[inline]
    pub const fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    /// Returns the settings of a new connection before the first response; its flows share the window.
    pub const fn first(&self) -> &FlowActions {
        &self.first
    }

    /// Returns the response to `event`, when events are the only source of time: multiples of 2.199 s between two
    /// events are lost.
    ///
    /// # Panics
    /// When its connection is outside the configured range, or the program violates its contract.
    #[inline]
    pub fn handle(&mut self, event: &EventRecord) -> ResponseRecord {
        self.advance(event.now());
        self.respond_to(event)
    }

    /// Returns the response to `event`, which happened at `now` or less than 2.199 s before.
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

    /// Handles an event whose state is in the table.
    ///
    /// A separate function, because within a loop LLVM turns conditional moves into branches, and the conditions of a
    /// controller are practically random.
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

    /// Returns the response to `event` without packing records, for a caller that passes the event to no other
    /// component: the same as the response of [`Processor::handle_at`], unpacked.
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

    /// Handles an event that carries its state.
    #[inline(never)]
    fn handle_carried(&mut self, event: &EventRecord) -> ResponseRecord {
        let report = event.report();
        let restored = if event.is_first() { None } else { self.program.restore(&event.carried(), &report) };
        let mut state = restored.unwrap_or(self.fresh);
        let actions = self.program.on_event(&mut state, &ControlEvent::Reported(report), &self.view);
        let carried = self.program.carry(&mut state).expect("checked when the engine was made");
        respond(event, &report, actions, carried)
    }

    /// Passes the responses to `events` to `respond`, in their order; prefetches state if so configured.
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

    /// Handles those events in one batch that are acknowledgements of different connections; the others are handled one
    /// by one, after them, in their order. So events of one connection keep their order.
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
        // Batching a few events does not pay off.
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

    /// Writes the responses of lanes in `set` into `responses`; returns which lanes were processed.
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

    /// Returns the distance at which [`Processor::fetch`] should be called.
    #[inline]
    pub const fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    /// Prefetches the state that `event` will need.
    #[inline]
    pub fn fetch(&self, event: &EventRecord) {
        self.table.fetch::<P::State>(event.connection() as usize);
    }

    /// Prefetches the state of `connection`, if it is stored here.
    #[inline]
    pub fn fetch_state(&self, connection: u32) {
        if !self.is_stateless {
            self.table.fetch::<P::State>(connection as usize);
        }
    }

    /// Advances the time to the next time whose low 24 bits equal `event`; never backwards. Events of several
    /// datapaths, or of one that delayed some of them, may be slightly out of order: a time that appears to be almost a
    /// complete wrap ahead is taken as earlier.
    #[inline]
    fn advance(&mut self, event: Ticks) {
        let step = event.since(Ticks::new(self.ticks as u32)).get();
        let is_behind = step > Ticks::MAX.get() - BEHIND_MAX;
        self.set_ticks(self.ticks + if is_behind { 0 } else { u64::from(step) });
    }

    /// Advances the time to the last time not after `now` whose low 24 bits equal `event`; never backwards.
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

/// Largest amount by which events can be out of order, in ticks: 137 ms, many times their waiting time in any queue.
const BEHIND_MAX: u32 = 1 << 20;

/// Access to the states of a batch's connections.
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

/// Finds events that can be handled in one batch: no two of one connection. One in a hundred of such events is not
/// found.
struct Distinct {
    /// Batch number in which a connection last occurred, indexed by the low bits of the connection.
    seen: [u16; Self::PLACES],
    batch: u16,
}

impl Distinct {
    const PLACES: usize = 1 << 10;

    const fn new() -> Self {
        Self { seen: [0; Self::PLACES], batch: 0 }
    }

    /// Writes the connections of `events` and returns the set of those events that are acknowledgements, not the first
    /// of their connection, and with none of their connection before them.
    #[inline(always)]
    fn of(&mut self, events: &[EventRecord; LANES], connections: &mut [u32; LANES]) -> LaneSet {
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 {
            // The batch number has wrapped, so old entries must be cleared.
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

/// Returns the record of the program's actions.
#[inline(always)]
fn respond(event: &EventRecord, report: &FlowReport, actions: ControlActions, carried: Carried) -> ResponseRecord {
    let actions = actions.flow.expect("the contract: every report is answered");
    let (connection, queue) = (event.connection(), event.queue());
    ResponseRecord::pack(&Response { connection, flow: report.flow, queue, delay: report.delay, actions, carried })
}
