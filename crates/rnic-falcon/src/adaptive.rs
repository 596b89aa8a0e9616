//! The adaptive engine of a NIC, as its connections see it: numbers, events, answers.
//!
//! Source: Falcon (SIGCOMM'25) section 5.1 and figure 8. Connections of one transport share an engine, which runs in
//! place, behind a latency, or on a thread ([`Location`]). A number is given to a connection for its life. When that
//! ends while an event is under way, the number rests until the answer has come: an answer never reaches a connection
//! that did not ask.
//!
//! **A thread's answers** come when they come, and the driver, who may be asleep, has to notice. So while any are owed
//! [`AdaptiveEngine::next_at`] names a moment a little later, again and again. The thread could wake the driver
//! instead; but what wakes it depends on the body (a file descriptor, a condition), would have to reach down to here,
//! and costs the thread a call of the kernel for each answer. A moment is what every driver waits for anyway; none is
//! lost, and where no answer is owed there is none.

use std::sync::Arc;

use rnic_base::{Duration, Time, near_whole};
use rnic_fae::{
    Delayed, Erased, Event, FaeError, Filter, FlowGate, Latency, Port, Processor, ProcessorConfig, Refusal, Spawn,
};
use rnic_fae::{ResponseRecord, record::Response};
use rnic_policy::FlowActions;

use crate::delivery::{DeliveryConfig, Policies};

/// An engine, and who its connections are.
pub struct AdaptiveEngine {
    place: Place,
    /// Whose each number is, by number.
    owners: Vec<Owner>,
    /// Numbers that are nobody's.
    free: Vec<u32>,
    /// Those of its connections' delivery layers: one entry, where all are made alike.
    policies: Vec<Arc<Policies>>,
    counts: EventCounts,
}

/// What became of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Answered, or to be answered.
    pub entered: u64,
    /// Not let into a queue that was too full for them; what they told of comes with the flow's next.
    pub held_back: u64,
}

impl EventCounts {
    /// Adds those of another engine.
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

/// On a thread.
struct Threaded {
    port: Port,
    /// When to look for answers, if any are owed.
    look_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// As the driver knows it; `None` after its end.
    name: Option<u32>,
    /// Events that are not answered.
    under_way: u32,
}

/// Where to run.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Where.
    pub location: Location,
    /// Where answers take time: events that can wait for the engine.
    pub queue: usize,
    /// Where answers take time: which of them enter.
    pub filter: Filter,
}

/// See [`Placement`].
#[derive(Clone, Copy, Debug)]
pub enum Location {
    /// In place: an answer takes no time at all.
    Inline,
    /// In place, with answers that take so long.
    Behind(Latency),
    /// On a thread, which is started so.
    Thread(Spawn),
}

/// Numbers that there is room for in the beginning; doubled when they do not suffice.
const NUMBERS_FIRST: u32 = 16;

/// From one look for a thread's answers to the next. An engine that is awake takes less for an event and its way there
/// and back; a driver that polls looks at each of its turns that are longer. One that sleeps is woken by the kernel
/// after some 50 us more, which is a round trip between hosts that sleep.
const LOOK_AGAIN: Duration = Duration::from_us(5);

impl AdaptiveEngine {
    /// An engine for `program`, at `placement`. `config` says how many connections there will be at first.
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

    /// What a fresh connection does; its flows share the window.
    pub const fn first(&self) -> &FlowActions {
        match &self.place {
            Place::Inline(processor) => processor.first(),
            Place::Delayed(delayed) => delayed.first(),
            Place::Thread(thread) => thread.port.first(),
        }
    }

    /// Whether connections keep its policy's state themselves, and hand it over with each event.
    pub const fn is_stateless(&self) -> bool {
        match &self.place {
            Place::Inline(processor) => processor.is_stateless(),
            Place::Delayed(delayed) => delayed.is_stateless(),
            Place::Thread(thread) => thread.port.is_stateless(),
        }
    }

    /// A number for the connection that its driver calls `name`.
    ///
    /// # Errors
    /// When there are no more.
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

    /// What a connection with this `config` shares with others.
    pub(crate) fn policies_of(&mut self, config: &DeliveryConfig) -> Arc<Policies> {
        if let Some(known) = self.policies.iter().find(|known| known.are_those_of(config)) {
            return Arc::clone(known);
        }
        let (recovery, paths) = (config.recovery, config.paths);
        self.policies.push(Arc::new(Policies { recovery, paths }));
        Arc::clone(&self.policies[self.policies.len() - 1])
    }

    /// The connection with `number` is no more.
    pub fn leave(&mut self, number: u32) {
        let owner = &mut self.owners[number as usize];
        owner.name = None;
        if owner.under_way == 0 {
            self.free.push(number);
        }
    }

    /// `event` of the flow with `gate` happens now; answers the response if that comes at once.
    ///
    /// # Errors
    /// When it does not enter ([`Filter::admit`]).
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

    /// Whether it has no connections, and owes no answers.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.owners.len()
    }

    /// What became of events so far.
    pub const fn counts(&self) -> EventCounts {
        self.counts
    }

    /// Has the engine itself brought near, where answers come at once.
    #[inline]
    pub fn touch(&self) {
        if let Place::Inline(processor) = &self.place {
            near_whole(&**processor);
        }
    }

    /// The same for the state of the connection with `number`, where answers come at once.
    #[inline]
    pub fn touch_state(&self, number: u32) {
        if let Place::Inline(processor) = &self.place {
            processor.fetch_state(number);
        }
    }

    /// The next answer that has come by now, and whose it is.
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

    /// When the next answer comes, or may have come.
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
        // Those that are owed already keep their moment.
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
