//! The engine itself, inline: processes an event into a response, with the program's state in one of three forms.
//!
//! Source: Falcon (SIGCOMM'25) section 5.3 and figure 9. Stateless: the state travels in the event and is returned in
//! the response. Stateful: it is stored in a table. Prefetching: it is stored in a table, and the line of a later event
//! is prefetched before the current one is handled, so that it is in the cache when the later event is handled.

use rnic_base::{BitRate, Time};
use rnic_policy::control::lanes::{LANES, LaneSet, ResponseLanes, StateLanes};
use rnic_policy::control::report::{Carried, FlowActions, FlowReport, Ticks};
use rnic_policy::{ControlActions, ControlEvent, ControlView};

use crate::program::Program;
use crate::record::{self, CONNECTIONS_MAX, Event, EventRecord, Response, ResponseRecord};
use crate::table::{States, Table};

/// The location of the program's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateLocation {
    /// The state is in events and responses.
    Stateless,
    /// The state is in a table of the engine.
    Table,
    /// The state is in a table, and the state for the event that is `ahead` positions after the current one is
    /// prefetched.
    Prefetching {
        /// Prefetch distance in events, at most [`PREFETCH_DISTANCE_MAX`].
        ahead: usize,
    },
}

/// Largest prefetch distance in events: state prefetched much earlier may be evicted before it is used.
pub const PREFETCH_DISTANCE_MAX: usize = 64;

/// Smallest prefetch distance when events are processed in batches: one and a half batches, so that prefetches are in
/// flight while one batch ends and the next starts.
const PREFETCH_BATCH_MIN: usize = LANES + LANES / 2;

/// Number of events up to which processing them in one batch is not faster than one by one.
const SMALL_BATCH_MAX: u32 = 4;

impl StateLocation {
    /// The prefetch distance with the best measured rate, for states of one cache line and of eight. For one line,
    /// distances between 4 and 16 hardly differ; at larger distances, the lines of large states displace each other.
    pub const PREFETCHING: Self = Self::Prefetching { ahead: 8 };
}

/// Configuration of an adaptive engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorConfig {
    /// Location of the program's state.
    pub form: StateLocation,
    /// Number of connections; connection numbers range from zero to one less than this.
    pub connections: u32,
    /// Rate of the link to which the NIC sends.
    pub line_rate: BitRate,
    /// Payload bytes of a full packet.
    pub mtu: u32,
}

/// The reason for which an engine cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaeError {
    /// The program does not process reports, and its state leaves no space for the state of the adapter that converts
    /// reports into events.
    #[error(
        "the control policy does not process flow reports, and its state leaves no space for the adapter that \
         converts reports to events"
    )]
    NoReports,
    /// The state has to be carried in events and responses, which the program does not support.
    #[error("the control policy needs memory for its state, so it cannot run in the stateless form")]
    NotStateless,
    /// There are more connections than 24 bits can number.
    #[error("{0} connections exceed the adaptive engine's maximum of {max}", max = CONNECTIONS_MAX)]
    TooManyConnections(u32),
    /// The prefetch distance is too large.
    #[error("a prefetch distance of {0} events exceeds the maximum of {max} events", max = PREFETCH_DISTANCE_MAX)]
    PrefetchTooFar(usize),
    /// The system provides no thread, or the driver does not allow threads.
    #[error("no thread is available for the adaptive engine")]
    NoThread,
}

/// The engine: runs a program and holds the state of its connections.
pub struct Processor<P: Program> {
    program: P,
    view: ControlView,
    /// Time of the latest event, in ticks that do not wrap: used to extend the 24-bit times of events.
    ticks: u64,
    first: FlowActions,
    initial_state: P::State,
    /// States by connection; empty when stateless.
    table: Table,
    /// Number of connections.
    connections: u32,
    prefetch_distance: Option<usize>,
    is_stateless: bool,
    has_lanes: bool,
    distinct: DistinctConnections,
}

impl<P: Program> Processor<P> {
    /// Creates an engine that runs `program`.
    ///
    /// # Errors
    /// Returns an error if `program` cannot run with this `config`.
    pub fn new(program: P, config: &ProcessorConfig) -> Result<Self, FaeError> {
        if config.connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(config.connections));
        }
        if !program.understands_reports() {
            return Err(FaeError::NoReports);
        }
        let view = ControlView { now: Time::ZERO, line_rate: config.line_rate, mtu: config.mtu, in_flight: 0 };
        let (mut initial_state, first) = program.start(&view);
        let first = first.flow.ok_or(FaeError::NoReports)?;
        let ahead = match config.form {
            StateLocation::Prefetching { ahead } => Some(ahead),
            StateLocation::Stateless | StateLocation::Table => None,
        };
        if let Some(ahead) = ahead.filter(|ahead| *ahead > PREFETCH_DISTANCE_MAX) {
            return Err(FaeError::PrefetchTooFar(ahead));
        }
        let is_stateless = config.form == StateLocation::Stateless;
        if is_stateless && program.carry(&mut initial_state).is_none() {
            return Err(FaeError::NotStateless);
        }
        let connections = if is_stateless { 0 } else { config.connections as usize };
        let table = Table::new(connections, &initial_state);
        let connections = config.connections;
        let (has_lanes, distinct) = (program.has_lanes(), DistinctConnections::new());
        let ticks = 0;
        Ok(Self {
            program,
            view,
            ticks,
            first,
            initial_state,
            table,
            connections,
            prefetch_distance: ahead,
            is_stateless,
            has_lanes,
            distinct,
        })
    }

    /// Extends the range of connection numbers to `0..connections`, if that is larger than before.
    ///
    /// # Errors
    /// Returns an error, without any change, if 24 bits cannot hold so many connection numbers.
    pub fn grow(&mut self, connections: u32) -> Result<(), FaeError> {
        if connections > CONNECTIONS_MAX {
            return Err(FaeError::TooManyConnections(connections));
        }
        if connections <= self.connections {
            return Ok(());
        }
        if !self.is_stateless {
            let mut table = Table::new(connections as usize, &self.initial_state);
            for number in 0..self.connections as usize {
                *table.get_mut::<P::State>(number) = *self.table.get_mut::<P::State>(number);
            }
            self.table = table;
        }
        self.connections = connections;
        Ok(())
    }

    /// Returns `true` if the state travels in events and responses.
    #[inline]
    pub const fn is_stateless(&self) -> bool {
        self.is_stateless
    }

    /// Returns the settings of a new connection until its first response. Each of its flows uses a share of the
    /// returned window.
    pub const fn first(&self) -> &FlowActions {
        &self.first
    }

    /// Returns the response to `event`, for a caller whose only source of time is the events: whole multiples of
    /// 2.199 s between two events are not noticed.
    ///
    /// # Panics
    /// If the connection of `event` is outside the configured range, or the program violates its contract.
    #[inline]
    pub fn handle(&mut self, event: &EventRecord) -> ResponseRecord {
        self.advance(event.now());
        self.respond_to(event)
    }

    /// Returns the response to `event`, which happened at `now` or less than 2.199 s before.
    ///
    /// # Panics
    /// See [`Processor::handle`].
    #[inline]
    pub fn handle_at(&mut self, now: Time, event: &EventRecord) -> ResponseRecord {
        self.advance_to(now, event.now());
        self.respond_to(event)
    }

    #[inline]
    fn respond_to(&mut self, event: &EventRecord) -> ResponseRecord {
        if self.is_stateless { self.handle_carried_state(event) } else { self.handle_table_state(event) }
    }

    /// Handles an event whose state is in the table.
    ///
    /// A separate function, because within a loop LLVM turns conditional moves into branches, and the conditions of a
    /// controller are practically random.
    #[inline(never)]
    fn handle_table_state(&mut self, event: &EventRecord) -> ResponseRecord {
        let (report, connection) = (event.report(), event.connection() as usize);
        if event.is_first() {
            *self.table.get_mut(connection) = self.initial_state;
        }
        let state = self.table.get_mut::<P::State>(connection);
        let actions = self.program.on_event(state, &ControlEvent::Reported(report), &self.view);
        respond(event, &report, actions, Carried::default())
    }

    /// Returns the response to `event` without packing records, for a caller that does not need the event as a
    /// record. The response equals that of [`Processor::handle_at`], unpacked.
    ///
    /// # Panics
    /// See [`Processor::handle`].
    #[inline]
    pub fn respond(&mut self, now: Time, event: &Event) -> Response {
        self.advance_to(now, event.report.t4);
        if self.is_stateless {
            self.handle_carried_state(&EventRecord::pack(event, false)).unpack()
        } else {
            self.respond_from_table(event)
        }
    }

    #[inline(never)]
    fn respond_from_table(&mut self, event: &Event) -> Response {
        let report = record::as_recorded(&event.report);
        let state = self.table.get_mut::<P::State>(event.connection as usize);
        if event.first {
            *state = self.initial_state;
        }
        let actions = self.program.on_event(state, &ControlEvent::Reported(report), &self.view);
        let actions = actions.flow.expect("the program responds to every report");
        let (flow, queue, delay) = (report.flow, event.queue & 3, report.delay);
        let actions = record::actions_as_recorded(&actions);
        Response { connection: event.connection, flow, queue, delay, actions, carried: Carried::default() }
    }

    /// Handles an event that carries the program's state.
    #[inline(never)]
    fn handle_carried_state(&mut self, event: &EventRecord) -> ResponseRecord {
        let report = event.report();
        let restored = if event.is_first() { None } else { self.program.restore(&event.carried(), &report) };
        let mut state = restored.unwrap_or(self.initial_state);
        let actions = self.program.on_event(&mut state, &ControlEvent::Reported(report), &self.view);
        let carried = self.program.carry(&mut state).expect("the program supports carried state");
        respond(event, &report, actions, carried)
    }

    /// Handles `events` and passes their responses to `respond` in the same order; prefetches state if so configured.
    #[inline]
    pub fn handle_all(&mut self, events: &[EventRecord], mut respond: impl FnMut(ResponseRecord)) {
        if self.is_stateless {
            events.iter().for_each(|event| respond(self.handle(event)));
            return;
        }
        let ahead = self
            .prefetch_distance
            .map_or(events.len(), |ahead| if self.has_lanes { ahead.max(PREFETCH_BATCH_MIN) } else { ahead });
        if self.prefetch_distance.is_some() {
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

    /// Handles the acknowledgements of different connections in one batch, and then the other events one by one, in
    /// their order. Thus the events of each connection are handled in order.
    #[inline(always)]
    fn handle_batch(
        &mut self,
        events: &[EventRecord; LANES],
        later: &[EventRecord],
        responses: &mut [ResponseRecord; LANES],
        respond: &mut impl FnMut(ResponseRecord),
    ) {
        let mut connections = [0; LANES];
        let set = self.distinct.select(events, &mut connections);
        later.iter().take(LANES).for_each(|event| self.fetch(event));
        // A batch of only a few events is not faster.
        let uses_batch = set.count_ones() > SMALL_BATCH_MAX;
        let done = if uses_batch { self.handle_lanes(events, &connections, set, responses) } else { 0 };
        for (lane, event) in events.iter().enumerate() {
            if done & (1 << lane) != 0 {
                self.advance(event.now());
                respond(responses[lane]);
            } else {
                respond(self.handle(event));
            }
        }
    }

    /// Writes the responses to the events of a batch whose positions (lanes) are in `set` into `responses`; returns the
    /// set of those that were processed.
    #[inline(always)]
    fn handle_lanes(
        &mut self,
        events: &[EventRecord; LANES],
        connections: &[u32; LANES],
        set: LaneSet,
        responses: &mut [ResponseRecord; LANES],
    ) -> LaneSet {
        let acks = record::acks(events);
        let mut states = TableLanes { states: self.table.states(), connections };
        let mut answers = ResponseLanes::default();
        let done = self.program.on_acks(&mut states, &acks, set, &mut answers);
        record::responses(events, &acks, &answers, responses);
        done
    }

    /// Returns the prefetch distance: how many events ahead [`Processor::fetch`] should be called.
    #[inline]
    pub const fn prefetch_distance(&self) -> Option<usize> {
        self.prefetch_distance
    }

    /// Prefetches the state that `event` will need.
    #[inline]
    pub fn fetch(&self, event: &EventRecord) {
        self.table.fetch::<P::State>(event.connection() as usize);
    }

    /// Prefetches the state of `connection`, if it is stored in this engine.
    #[inline]
    pub fn fetch_state(&self, connection: u32) {
        if !self.is_stateless {
            self.table.fetch::<P::State>(connection as usize);
        }
    }

    /// Advances the current time to the next time whose low 24 bits equal `event`; never moves it backwards. Events
    /// of several datapaths, or of one datapath that delayed some of them, may be slightly out of order: a time that
    /// appears to be almost a complete wrap ahead is treated as earlier than the current time.
    #[inline]
    fn advance(&mut self, event: Ticks) {
        let step = event.since(Ticks::new(self.ticks as u32)).get();
        let is_behind = step > Ticks::MAX.get() - REORDER_TICKS_MAX;
        self.set_ticks(self.ticks + if is_behind { 0 } else { u64::from(step) });
    }

    /// Advances the current time to the last time not after `now` whose low 24 bits equal `event`; never moves it
    /// backwards.
    #[inline]
    fn advance_to(&mut self, now: Time, event: Ticks) {
        let ago = Ticks::at(now).since(event).get();
        let event_ticks = Ticks::count(now).saturating_sub(u64::from(ago));
        self.set_ticks(self.ticks.max(event_ticks));
    }

    #[inline]
    fn set_ticks(&mut self, ticks: u64) {
        self.ticks = ticks;
        self.view.now = Ticks::time(ticks);
    }
}

/// Largest time difference between events that arrive out of order, in ticks: 137 ms, many times their waiting time
/// in any queue.
const REORDER_TICKS_MAX: u32 = 1 << 20;

/// Access to the states of the connections in a batch.
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

/// Finds events of different connections, which can be handled in one batch. About one in a hundred suitable events is
/// not found.
struct DistinctConnections {
    /// Batch number in which a connection last occurred, indexed by the low bits of the connection.
    seen: [u16; Self::ENTRIES],
    batch: u16,
}

impl DistinctConnections {
    const ENTRIES: usize = 1 << 10;

    const fn new() -> Self {
        Self { seen: [0; Self::ENTRIES], batch: 0 }
    }

    /// Writes the connections of `events` and returns the set of events that can be handled in a batch:
    /// acknowledgements that are not the first event of their connection and that follow no other event of it in
    /// `events`.
    #[inline(always)]
    fn select(&mut self, events: &[EventRecord; LANES], connections: &mut [u32; LANES]) -> LaneSet {
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 {
            // The batch number has wrapped, so old entries must be cleared.
            *self = Self { batch: 1, ..Self::new() };
        }
        let mut set = 0;
        for (lane, event) in events.iter().enumerate() {
            connections[lane] = event.connection();
            let last_batch = &mut self.seen[connections[lane] as usize % Self::ENTRIES];
            let is_first_in_batch = *last_batch != self.batch;
            *last_batch = self.batch;
            set |= LaneSet::from(is_first_in_batch & event.is_plain_ack()) << lane;
        }
        set
    }
}

/// Returns the response record with the program's actions.
#[inline(always)]
fn respond(event: &EventRecord, report: &FlowReport, actions: ControlActions, carried: Carried) -> ResponseRecord {
    let actions = actions.flow.expect("the program responds to every report");
    let (connection, queue) = (event.connection(), event.queue());
    ResponseRecord::pack(&Response { connection, flow: report.flow, queue, delay: report.delay, actions, carried })
}
