//! The adaptive engine of a NIC as seen by its connections: connection numbers, events and responses.
//!
//! Source: Falcon (SIGCOMM'25) section 5.1 and figure 8. Connections of one transport share an engine, which runs in
//! place, behind a latency, or on a thread ([`Location`]). A connection keeps its number until it is destroyed. If it
//! is destroyed while an event is in flight, the number is not reused before the response has arrived, so a response
//! never reaches a connection that did not send the event.
//!
//! **Responses of a thread** arrive asynchronously, and the driver, which may be asleep, has to notice them. While any
//! are outstanding, [`AdaptiveEngine::next_at`] therefore repeatedly names a time a little later. The thread could wake
//! the driver instead; but the wake-up mechanism depends on the driver (a file descriptor, a condition variable), would
//! have to reach down to this layer, and costs the thread a system call for each response. Every driver waits for a
//! time anyway; no response is lost, and without outstanding responses there is no such time.

use std::sync::Arc;

use rnic_base::{Duration, Time, prefetch_whole};
use rnic_fae::{
    Delayed, Erased, Event, FaeError, Filter, FlowGate, Latency, Port, Processor, ProcessorConfig, Refusal, Spawn,
};
use rnic_fae::{ResponseRecord, record::Response};
use rnic_policy::FlowActions;

use crate::delivery::{DeliveryConfig, Policies};

/// An adaptive engine and the connections registered with it.
pub struct AdaptiveEngine {
    place: Place,
    /// Owner of each number, indexed by number.
    owners: Vec<Owner>,
    /// Numbers without an owner.
    free: Vec<u32>,
    /// Policies of its connections' delivery layers: a single entry when all connections are configured alike.
    policies: Vec<Arc<Policies>>,
    counts: EventCounts,
}

/// Counts of events by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Events accepted: answered, or still to be answered.
    pub entered: u64,
    /// Events rejected because the queue was too full for them; their content is carried by the flow's next event.
    pub held_back: u64,
}

impl EventCounts {
    /// Adds the counts of another engine.
    pub fn add(&mut self, other: Self) {
        self.entered += other.entered;
        self.held_back += other.held_back;
    }
}

enum Place {
    Inline(Box<Processor<Erased>>),
    Delayed(Box<Delayed<Erased>>),
    Thread(Box<Threaded>),
}

/// An engine on a thread.
struct Threaded {
    port: Port,
    /// Time of the next poll for responses, if any are outstanding.
    look_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// The driver's name for the connection; `None` once the connection was destroyed.
    name: Option<u32>,
    /// Number of events not answered yet.
    under_way: u32,
}

/// Location of the engine, and the queueing of events for it.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Location of the engine.
    pub location: Location,
    /// Number of events that can wait for the engine; applies when responses take time.
    pub queue: usize,
    /// Selects the events that enter the queue; applies when responses take time.
    pub filter: Filter,
}

/// See [`Placement`].
#[derive(Clone, Copy, Debug)]
pub enum Location {
    /// In place: a response takes no time at all.
    Inline,
    /// In place, with responses delayed by this latency.
    Behind(Latency),
    /// On a thread, which is started this way.
    Thread(Spawn),
}

/// Initial capacity in connection numbers; doubled when it does not suffice.
const NUMBERS_FIRST: u32 = 16;

/// Interval between two polls for a thread's responses. An engine that is awake needs less for an event including the
/// way there and back; a driver that polls continuously checks in each of its iterations that is longer. A driver that
/// sleeps is woken by the kernel some 50 us later than this, which is one round trip between hosts that sleep.
const LOOK_AGAIN: Duration = Duration::from_us(5);

impl AdaptiveEngine {
    /// Creates an engine for `program` at `placement`. `config` gives the initial number of connections.
    ///
    /// # Errors
    /// When `program` cannot run here, or there is no thread for it.
    pub fn new(program: Erased, config: &ProcessorConfig, placement: &Placement) -> Result<Self, FaeError> {
        let config = ProcessorConfig { connections: config.connections.max(NUMBERS_FIRST), ..*config };
        let processor = Processor::new(program, &config)?;
        let Placement { location, queue, filter } = *placement;
        let place = match location {
            Location::Inline => Place::Inline(Box::new(processor)),
            Location::Behind(latency) => Place::Delayed(Box::new(Delayed::new(processor, latency, queue, filter))),
            Location::Thread(spawn) => {
                let port = Port::start(processor, queue, filter, spawn).map_err(|_| FaeError::NoThread)?;
                Place::Thread(Box::new(Threaded { port, look_at: Time::ZERO }))
            }
        };
        Ok(Self { place, owners: Vec::new(), free: Vec::new(), policies: Vec::new(), counts: EventCounts::default() })
    }

    /// Returns the actions for a fresh connection, before its first response; its flows share the window.
    pub const fn first(&self) -> &FlowActions {
        match &self.place {
            Place::Inline(processor) => processor.first(),
            Place::Delayed(delayed) => delayed.first(),
            Place::Thread(thread) => thread.port.first(),
        }
    }

    /// Returns whether connections keep the policy's state themselves and pass it with each event.
    pub const fn is_stateless(&self) -> bool {
        match &self.place {
            Place::Inline(processor) => processor.is_stateless(),
            Place::Delayed(delayed) => delayed.is_stateless(),
            Place::Thread(thread) => thread.port.is_stateless(),
        }
    }

    /// Registers the connection that its driver calls `name`, and returns its number.
    ///
    /// # Errors
    /// When there are no more numbers.
    pub fn enter(&mut self, name: u32) -> Result<u32, FaeError> {
        let fresh = Owner { name: Some(name), under_way: 0 };
        if let Some(number) = self.free.pop() {
            self.owners[number as usize] = fresh;
            return Ok(number);
        }
        let number = self.owners.len() as u32;
        let room = (number + 1).next_power_of_two();
        match &mut self.place {
            Place::Inline(processor) => processor.grow(room)?,
            Place::Delayed(delayed) => delayed.grow(room)?,
            Place::Thread(thread) => thread.port.grow(room)?,
        }
        self.owners.push(fresh);
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

    /// Deregisters the connection with `number`, which no longer exists.
    pub fn leave(&mut self, number: u32) {
        let owner = &mut self.owners[number as usize];
        owner.name = None;
        if owner.under_way == 0 {
            self.free.push(number);
        }
    }

    /// Submits `event`, which happens now, of the flow with `gate`; returns the response if it is available
    /// immediately.
    ///
    /// # Errors
    /// When the event is not admitted ([`Filter::admit`]).
    #[inline]
    pub fn offer(&mut self, now: Time, gate: &mut FlowGate, event: &Event) -> Result<Option<Response>, Refusal> {
        let offered = match &mut self.place {
            Place::Inline(processor) => {
                self.counts.entered += 1;
                return Ok(Some(processor.answer(now, event)));
            }
            Place::Delayed(delayed) => delayed.offer(now, gate, event),
            Place::Thread(thread) => thread.offer(now, gate, event),
        };
        if let Err(refusal) = offered {
            self.counts.held_back += u64::from(refusal != Refusal::Outstanding);
            return Err(refusal);
        }
        self.counts.entered += 1;
        self.owners[event.connection as usize].under_way += 1;
        Ok(None)
    }

    /// Returns whether it has no connections and no outstanding responses.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.owners.len()
    }

    /// Returns the event counts so far.
    pub const fn counts(&self) -> EventCounts {
        self.counts
    }

    /// Prefetches the engine itself, when it runs in place.
    #[inline]
    pub fn prefetch(&self) {
        if let Place::Inline(processor) = &self.place {
            prefetch_whole(&**processor);
        }
    }

    /// Prefetches the state of the connection with `number`, when the engine runs in place.
    #[inline]
    pub fn prefetch_state(&self, number: u32) {
        if let Place::Inline(processor) = &self.place {
            processor.fetch_state(number);
        }
    }

    /// Returns the next response that has arrived by now, with the name of its connection.
    pub fn poll(&mut self, now: Time) -> Option<(u32, Response)> {
        loop {
            let record = match &mut self.place {
                Place::Inline(_) => return None,
                Place::Delayed(delayed) => delayed.poll(now)?,
                Place::Thread(thread) => thread.poll(now)?,
            };
            let response = ResponseRecord::unpack(&record);
            let owner = &mut self.owners[response.connection as usize];
            owner.under_way -= 1;
            match owner.name {
                Some(name) => return Some((name, response)),
                None if owner.under_way == 0 => self.free.push(response.connection),
                None => {}
            }
        }
    }

    /// Returns the time at which the next response arrives, or may have arrived.
    pub fn next_at(&self) -> Option<Time> {
        match &self.place {
            Place::Inline(_) => None,
            Place::Delayed(delayed) => delayed.next_at(),
            Place::Thread(thread) => thread.port.is_owed().then_some(thread.look_at),
        }
    }
}

impl Threaded {
    fn offer(&mut self, now: Time, gate: &mut FlowGate, event: &Event) -> Result<(), Refusal> {
        let is_first = !self.port.is_owed();
        self.port.offer(gate, event)?;
        // Responses that are outstanding already keep their poll time.
        if is_first {
            self.look_at = now + LOOK_AGAIN;
        }
        Ok(())
    }

    fn poll(&mut self, now: Time) -> Option<ResponseRecord> {
        let record = self.port.poll();
        if record.is_none() {
            self.look_at = now + LOOK_AGAIN;
        }
        record
    }
}

impl core::fmt::Debug for AdaptiveEngine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let place = match self.place {
            Place::Inline(_) => "inline",
            Place::Delayed(_) => "behind a latency",
            Place::Thread(_) => "on a thread",
        };
        f.debug_struct("AdaptiveEngine").field("place", &place).field("numbers", &self.owners.len()).finish()
    }
}
