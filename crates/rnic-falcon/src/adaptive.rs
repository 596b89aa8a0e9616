//! The adaptive engine of a NIC, as its connections see it: numbers, events, answers.
//!
//! Source: Falcon (SIGCOMM'25) section 5.1 and figure 8. Connections of one transport share an engine, which runs in
//! place or behind a latency ([`rnic_fae`] has both, and a third in a thread). A number is given to a connection for
//! its life. When that ends while an event is under way, the number rests until the answer has come: an answer never
//! reaches a connection that did not ask.

use std::sync::Arc;

use rnic_base::{Time, near_whole};
use rnic_fae::{
    Delayed, Erased, Event, FaeError, Filter, FlowGate, Form, Latency, Processor, ProcessorConfig, Refusal,
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
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    /// As the driver knows it; `None` after its end.
    name: Option<u32>,
    /// Events that are not answered.
    under_way: u32,
}

/// Where to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// How long an answer takes; `None`: no time at all.
    pub latency: Option<Latency>,
    /// With a latency: events that can wait for the engine.
    pub queue: usize,
    /// With a latency: which of them enter.
    pub filter: Filter,
}

/// Numbers that there is room for in the beginning; doubled when they do not suffice.
const NUMBERS_FIRST: u32 = 16;

impl AdaptiveEngine {
    /// An engine for `program`, at `placement`. `config` says how many connections there will be at first.
    ///
    /// # Errors
    /// When `program` cannot run here.
    pub fn new(program: Erased, config: &ProcessorConfig, placement: &Placement) -> Result<Self, FaeError> {
        let config = ProcessorConfig { connections: config.connections.max(NUMBERS_FIRST), ..*config };
        let processor = Processor::new(program, &config)?;
        let place = match placement.latency {
            None => Place::Inline(Box::new(processor)),
            Some(latency) => {
                Place::Delayed(Box::new(Delayed::new(processor, latency, placement.queue, placement.filter)))
            }
        };
        Ok(Self { place, owners: Vec::new(), free: Vec::new(), policies: Vec::new(), counts: EventCounts::default() })
    }

    /// Where state lies: in a table, for connections keep none of it themselves.
    pub const FORM: Form = Form::Table;

    /// What a fresh connection does; its flows share the window.
    pub const fn first(&self) -> &FlowActions {
        match &self.place {
            Place::Inline(processor) => processor.first(),
            Place::Delayed(delayed) => delayed.first(),
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
        let answer = match &mut self.place {
            Place::Inline(processor) => Some(processor.answer(event)),
            Place::Delayed(delayed) => {
                if let Err(refusal) = delayed.offer(now, gate, event) {
                    self.counts.held_back += u64::from(refusal != Refusal::Outstanding);
                    return Err(refusal);
                }
                self.owners[event.connection as usize].under_way += 1;
                None
            }
        };
        self.counts.entered += 1;
        Ok(answer)
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
            let Place::Delayed(delayed) = &mut self.place else { return None };
            let response = ResponseRecord::unpack(&delayed.poll(now)?);
            let owner = &mut self.owners[response.connection as usize];
            owner.under_way -= 1;
            match owner.name {
                Some(name) => return Some((name, response)),
                None if owner.under_way == 0 => self.free.push(response.connection),
                None => {}
            }
        }
    }

    /// When the next answer comes.
    pub fn next_at(&self) -> Option<Time> {
        match &self.place {
            Place::Inline(_) => None,
            Place::Delayed(delayed) => delayed.next_at(),
        }
    }
}

impl core::fmt::Debug for AdaptiveEngine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let place = match self.place {
            Place::Inline(_) => "inline",
            Place::Delayed(_) => "behind a latency",
        };
        f.debug_struct("AdaptiveEngine").field("place", &place).field("numbers", &self.owners.len()).finish()
    }
}
