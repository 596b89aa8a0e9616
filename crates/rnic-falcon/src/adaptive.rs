//! The adaptive engine of a NIC as seen by its connections: connection numbers, events and responses.
//!
//! Source: Falcon (SIGCOMM'25) section 5.1 and figure 8. The connections of one transport share an engine, which runs
//! inline, inline with delayed responses, or on a thread ([`Location`]). A connection keeps its number until it is
//! destroyed. If it is destroyed while an event is in flight, the number is not reused before the response has
//! arrived, so a response never reaches a connection that did not send the event.
//!
//! **Responses of a thread** arrive asynchronously, and the driver, which may be asleep, has to notice them. While
//! any are outstanding, [`AdaptiveEngine::next_at`] therefore repeatedly returns a time shortly after the current
//! one. The thread could wake the driver instead; but the wake-up mechanism depends on the driver (a file descriptor,
//! a condition variable), would have to be passed down to this layer, and costs the thread a system call for each
//! response. Every driver waits for the next deadline anyway. No response is lost, and while no response is
//! outstanding, there is no such time.

use std::sync::Arc;

use rnic_base::{Duration, Time, prefetch_whole};
use rnic_fae::{
    Delayed, ErasedPolicy, Event, FaeError, Filter, FlowAdmission, Latency, Port, Processor, ProcessorConfig, Refusal,
    Spawn,
};
use rnic_fae::{ResponseRecord, record::Response};
use rnic_policy::FlowActions;

use crate::delivery::{DeliveryConfig, Policies};

/// An adaptive engine and the connections that are registered with it.
pub struct AdaptiveEngine {
    kind: EngineKind,
    /// Owner of each connection number, indexed by number.
    owners: Vec<Owner>,
    /// Connection numbers without an owner.
    free_numbers: Vec<u32>,
    /// Policies of the delivery layers of its connections: a single entry if all connections are configured alike.
    policies: Vec<Arc<Policies>>,
    counts: EventCounts,
}

/// Counts of events by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Events accepted, with or without a response yet.
    pub accepted: u64,
    /// Events rejected because of the queue occupancy; the flow's next event carries their content.
    pub rejected: u64,
}

impl EventCounts {
    /// Adds the counts of another engine.
    pub fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
    }
}

enum EngineKind {
    Inline(Box<Processor<ErasedPolicy>>),
    Delayed(Box<Delayed<ErasedPolicy>>),
    Thread(Box<ThreadedEngine>),
}

/// An engine that runs on a thread.
struct ThreadedEngine {
    port: Port,
    /// Time of the next poll for responses, if any are outstanding.
    next_poll_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// Number by which the driver identifies the connection; `None` after the connection was destroyed.
    driver_id: Option<u32>,
    /// Number of events whose response has not arrived.
    in_flight: u32,
}

/// Location of the engine, and settings of its event queue.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Location of the engine.
    pub location: Location,
    /// Capacity of the event queue; used only if responses are not immediate.
    pub queue: usize,
    /// Rules of admission to the event queue; used only if responses are not immediate.
    pub filter: Filter,
}

/// See [`Placement`].
#[derive(Clone, Copy, Debug)]
pub enum Location {
    /// Runs inline: a response takes no time.
    Inline,
    /// Runs inline, with responses delayed by this latency.
    Behind(Latency),
    /// Runs on a thread that is started by this function.
    Thread(Spawn),
}

/// Initial number of connection numbers; doubled when more are needed.
const CONNECTION_NUMBERS_INITIAL: u32 = 16;

/// Interval between two polls for a thread's responses. If the engine's thread is awake, the response to an event is
/// available sooner than this. A driver that polls continuously polls for responses once per interval, or in each of
/// its iterations if they take longer. A driver that sleeps is woken by the kernel some 50 us after the interval,
/// which is about a round trip between two hosts whose drivers sleep.
const POLL_INTERVAL: Duration = Duration::from_us(5);

impl AdaptiveEngine {
    /// Creates an engine for `program` at `placement`. `config` contains the initial number of connections.
    ///
    /// # Errors
    /// Returns an error if `program` cannot run in this engine, or no thread is available for it.
    pub fn new(program: ErasedPolicy, config: &ProcessorConfig, placement: &Placement) -> Result<Self, FaeError> {
        let config = ProcessorConfig { connections: config.connections.max(CONNECTION_NUMBERS_INITIAL), ..*config };
        let processor = Processor::new(program, &config)?;
        let Placement { location, queue, filter } = *placement;
        let kind = match location {
            Location::Inline => EngineKind::Inline(Box::new(processor)),
            Location::Behind(latency) => EngineKind::Delayed(Box::new(Delayed::new(processor, latency, queue, filter))),
            Location::Thread(spawn) => {
                let port = Port::start(processor, queue, filter, spawn).map_err(|_| FaeError::NoThread)?;
                EngineKind::Thread(Box::new(ThreadedEngine { port, next_poll_at: Time::ZERO }))
            }
        };
        let (owners, free_numbers, policies) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { kind, owners, free_numbers, policies, counts: EventCounts::default() })
    }

    /// Returns the initial settings of a connection, which apply until its first response. Each of its flows uses a
    /// share of the window.
    pub const fn first(&self) -> &FlowActions {
        match &self.kind {
            EngineKind::Inline(processor) => processor.first(),
            EngineKind::Delayed(delayed) => delayed.first(),
            EngineKind::Thread(thread) => thread.port.first(),
        }
    }

    /// Returns `true` if connections store the policy's state themselves and pass it with each event.
    pub const fn is_stateless(&self) -> bool {
        match &self.kind {
            EngineKind::Inline(processor) => processor.is_stateless(),
            EngineKind::Delayed(delayed) => delayed.is_stateless(),
            EngineKind::Thread(thread) => thread.port.is_stateless(),
        }
    }

    /// Registers a connection, which the driver identifies by `driver_id`, and returns its connection number.
    ///
    /// # Errors
    /// Returns an error if there are no more connection numbers.
    pub fn enter(&mut self, driver_id: u32) -> Result<u32, FaeError> {
        let owner = Owner { driver_id: Some(driver_id), in_flight: 0 };
        if let Some(number) = self.free_numbers.pop() {
            self.owners[number as usize] = owner;
            return Ok(number);
        }
        let number = self.owners.len() as u32;
        let capacity = (number + 1).next_power_of_two();
        match &mut self.kind {
            EngineKind::Inline(processor) => processor.grow(capacity)?,
            EngineKind::Delayed(delayed) => delayed.grow(capacity)?,
            EngineKind::Thread(thread) => thread.port.grow(capacity)?,
        }
        self.owners.push(owner);
        Ok(number)
    }

    /// Returns the policies that a connection with this `config` shares with other connections.
    pub(crate) fn policies_of(&mut self, config: &DeliveryConfig) -> Arc<Policies> {
        if let Some(known) = self.policies.iter().find(|known| known.are_those_of(config)) {
            return Arc::clone(known);
        }
        let (recovery, paths) = (config.recovery, config.paths);
        self.policies.push(Arc::new(Policies { recovery, paths }));
        Arc::clone(&self.policies[self.policies.len() - 1])
    }

    /// Deregisters the connection with `number`, which has been destroyed.
    pub fn deregister(&mut self, number: u32) {
        let owner = &mut self.owners[number as usize];
        owner.driver_id = None;
        if owner.in_flight == 0 {
            self.free_numbers.push(number);
        }
    }

    /// Submits `event`, which occurs at `now`, of the flow that `admission` belongs to; returns the response if it is
    /// available immediately.
    ///
    /// # Errors
    /// Returns an error if the event is not admitted ([`Filter::admit`]).
    #[inline]
    pub fn offer(
        &mut self,
        now: Time,
        admission: &mut FlowAdmission,
        event: &Event,
    ) -> Result<Option<Response>, Refusal> {
        let offered = match &mut self.kind {
            EngineKind::Inline(processor) => {
                self.counts.accepted += 1;
                return Ok(Some(processor.respond(now, event)));
            }
            EngineKind::Delayed(delayed) => delayed.offer(now, admission, event),
            EngineKind::Thread(thread) => thread.offer(now, admission, event),
        };
        if let Err(refusal) = offered {
            self.counts.rejected += u64::from(refusal != Refusal::Outstanding);
            return Err(refusal);
        }
        self.counts.accepted += 1;
        self.owners[event.connection as usize].in_flight += 1;
        Ok(None)
    }

    /// Returns `true` if the engine has no connections and no outstanding responses.
    pub fn is_idle(&self) -> bool {
        self.free_numbers.len() == self.owners.len()
    }

    /// Returns the event counts so far.
    pub const fn counts(&self) -> EventCounts {
        self.counts
    }

    /// Prefetches the engine's own memory, if it runs inline.
    #[inline]
    pub fn prefetch(&self) {
        if let EngineKind::Inline(processor) = &self.kind {
            prefetch_whole(&**processor);
        }
    }

    /// Prefetches the state of the connection with `number`, if the engine runs inline.
    #[inline]
    pub fn prefetch_state(&self, number: u32) {
        if let EngineKind::Inline(processor) = &self.kind {
            processor.fetch_state(number);
        }
    }

    /// Returns the next response that has arrived by `now`, and the driver's identifier of its connection.
    pub fn poll(&mut self, now: Time) -> Option<(u32, Response)> {
        loop {
            let record = match &mut self.kind {
                EngineKind::Inline(_) => return None,
                EngineKind::Delayed(delayed) => delayed.poll(now)?,
                EngineKind::Thread(thread) => thread.poll(now)?,
            };
            let response = ResponseRecord::unpack(&record);
            let owner = &mut self.owners[response.connection as usize];
            owner.in_flight -= 1;
            match owner.driver_id {
                Some(driver_id) => return Some((driver_id, response)),
                None if owner.in_flight == 0 => self.free_numbers.push(response.connection),
                None => {}
            }
        }
    }

    /// Returns the time at which the next response arrives, or, with a thread, the time at which to poll for it.
    pub fn next_at(&self) -> Option<Time> {
        match &self.kind {
            EngineKind::Inline(_) => None,
            EngineKind::Delayed(delayed) => delayed.next_at(),
            EngineKind::Thread(thread) => thread.port.has_outstanding().then_some(thread.next_poll_at),
        }
    }
}

impl ThreadedEngine {
    fn offer(&mut self, now: Time, admission: &mut FlowAdmission, event: &Event) -> Result<(), Refusal> {
        let is_first = !self.port.has_outstanding();
        self.port.offer(admission, event)?;
        // If responses are outstanding already, their poll time remains set.
        if is_first {
            self.next_poll_at = now + POLL_INTERVAL;
        }
        Ok(())
    }

    fn poll(&mut self, now: Time) -> Option<ResponseRecord> {
        let record = self.port.poll();
        if record.is_none() {
            self.next_poll_at = now + POLL_INTERVAL;
        }
        record
    }
}

impl core::fmt::Debug for AdaptiveEngine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let kind = match self.kind {
            EngineKind::Inline(_) => "inline",
            EngineKind::Delayed(_) => "behind a latency",
            EngineKind::Thread(_) => "on a thread",
        };
        f.debug_struct("AdaptiveEngine").field("kind", &kind).field("numbers", &self.owners.len()).finish()
    }
}
