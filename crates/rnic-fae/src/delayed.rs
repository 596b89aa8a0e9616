//! The engine behind a latency, in the caller's time: what a simulation needs.
//!
//! Source: the public simulator (66 ns of work an event, 234 ns of interface); figure 22b of the paper adds to the
//! latter. One event is worked on at a time, in the order in which they came. The response to an event that waits for
//! nobody comes 300 ns after it. A prefetching engine asks for the state of later events as they move up in the queue,
//! which changes no answer.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use crate::filter::{Filter, FlowGate, Refusal};
use crate::processor::{FaeError, Processor};
use crate::program::Program;
use crate::queue::EventQueue;
use crate::record::{Event, ResponseRecord};

/// How long an answer takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Between datapath and engine, both ways together.
    pub interface: Duration,
    /// Work on one event.
    pub work: Duration,
}

impl Latency {
    /// The published ones: 15 million events a second.
    pub const FALCON: Self = Self { interface: Duration::from_ns(234), work: Duration::from_ns(66) };
}

/// An engine that answers later.
pub struct Delayed<P: Program> {
    processor: Processor<P>,
    latency: Latency,
    queue: EventQueue,
    /// When each of the queue's events came.
    arrivals: VecDeque<Time>,
    /// Responses on their way, and when they arrive.
    on_the_way: VecDeque<(Time, ResponseRecord)>,
    /// Work on the last event ends.
    busy_until: Time,
}

impl<P: Program> Delayed<P> {
    /// `processor` behind `latency` and a queue of `capacity` events.
    pub fn new(processor: Processor<P>, latency: Latency, capacity: usize, filter: Filter) -> Self {
        Self {
            processor,
            latency,
            queue: EventQueue::new(capacity, filter),
            arrivals: VecDeque::with_capacity(capacity),
            on_the_way: VecDeque::with_capacity(capacity),
            busy_until: Time::ZERO,
        }
    }

    /// See [`Processor::grow`].
    ///
    /// # Errors
    /// As there.
    pub fn grow(&mut self, connections: u32) -> Result<(), FaeError> {
        self.processor.grow(connections)
    }

    /// See [`Processor::first`].
    pub const fn first(&self) -> &rnic_policy::FlowActions {
        self.processor.first()
    }

    /// See [`Processor::is_stateless`].
    pub const fn is_stateless(&self) -> bool {
        self.processor.is_stateless()
    }

    /// `event` of the flow with `gate` happens now. Time never goes back between calls.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    pub fn offer(&mut self, now: Time, gate: &mut FlowGate, event: &Event) -> Result<(), Refusal> {
        self.work_until(now);
        self.queue.offer(gate, event)?;
        self.arrivals.push_back(now);
        // Those further behind are asked for as the queue moves on.
        if self.processor.ahead().is_some_and(|ahead| self.queue.len() <= ahead) {
            self.processor.fetch_state(event.connection);
        }
        Ok(())
    }

    /// The next response that has arrived by now.
    pub fn poll(&mut self, now: Time) -> Option<ResponseRecord> {
        self.work_until(now);
        self.on_the_way.pop_front_if(|(arrives, _)| *arrives <= now).map(|(_, response)| response)
    }

    /// When the next response arrives.
    pub fn next_at(&self) -> Option<Time> {
        let waiting = self.arrivals.front().map(|arrival| self.begins(*arrival) + self.answer_time());
        self.on_the_way.front().map(|(arrives, _)| *arrives).or(waiting)
    }

    /// Events that no work has begun on.
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn begins(&self, arrival: Time) -> Time {
        arrival.max(self.busy_until)
    }

    fn answer_time(&self) -> Duration {
        self.latency.work + self.latency.interface
    }

    /// Does the work that begins by `now`. A response that nobody fetches keeps its place, and work waits for a place.
    fn work_until(&mut self, now: Time) {
        while let Some(arrival) = self.arrivals.front().copied()
            && self.begins(arrival) <= now
            && self.on_the_way.len() < self.on_the_way.capacity()
        {
            let Some(event) = self.queue.pop() else { return };
            self.arrivals.pop_front();
            if let Some(later) = self.processor.ahead().and_then(|ahead| self.queue.peek(ahead.checked_sub(1)?)) {
                self.processor.fetch(later);
            }
            let begins = self.begins(arrival);
            self.busy_until = begins + self.latency.work;
            let response = self.processor.handle_at(begins, &event);
            self.on_the_way.push_back((begins + self.answer_time(), response));
        }
    }
}
