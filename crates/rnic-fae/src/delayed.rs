//! The engine with a latency in simulated time, for simulations.
//!
//! Source: the public simulator (66 ns of work per event, 234 ns of interface latency); figure 22b of the paper adds to
//! the latter. One event is processed at a time, in order of arrival. The response to an event that does not have to
//! wait arrives 300 ns after it. A prefetching engine prefetches the state of later events as they advance in the
//! queue, which changes no response.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use crate::filter::{Filter, FlowGate, Refusal};
use crate::processor::{FaeError, Processor};
use crate::program::Program;
use crate::queue::EventQueue;
use crate::record::{Event, ResponseRecord};

/// Latency of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Latency between datapath and engine, both directions together.
    pub interface: Duration,
    /// Processing time of one event.
    pub work: Duration,
}

impl Latency {
    /// The published values: 15 million events per second.
    pub const FALCON: Self = Self { interface: Duration::from_ns(234), work: Duration::from_ns(66) };
}

/// An engine that responds after a latency.
pub struct Delayed<P: Program> {
    processor: Processor<P>,
    latency: Latency,
    queue: EventQueue,
    /// Arrival time of each event in the queue.
    arrivals: VecDeque<Time>,
    /// Responses in flight, with their arrival times.
    on_the_way: VecDeque<(Time, ResponseRecord)>,
    /// Time at which processing of the last event ends.
    busy_until: Time,
}

impl<P: Program> Delayed<P> {
    /// Creates an engine that runs `processor` with `latency` and a queue of `capacity` events.
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
    /// As for [`Processor::grow`].
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

    /// Submits `event` of the flow with `gate` at time `now`, which must not decrease between calls.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    pub fn offer(&mut self, now: Time, gate: &mut FlowGate, event: &Event) -> Result<(), Refusal> {
        self.work_until(now);
        self.queue.offer(gate, event)?;
        self.arrivals.push_back(now);
        // The state of events further behind is prefetched as the queue advances.
        if self.processor.ahead().is_some_and(|ahead| self.queue.len() <= ahead) {
            self.processor.fetch_state(event.connection);
        }
        Ok(())
    }

    /// Returns the next response that has arrived by `now`.
    pub fn poll(&mut self, now: Time) -> Option<ResponseRecord> {
        self.work_until(now);
        self.on_the_way.pop_front_if(|(arrives, _)| *arrives <= now).map(|(_, response)| response)
    }

    /// Returns the arrival time of the next response.
    pub fn next_at(&self) -> Option<Time> {
        let waiting = self.arrivals.front().map(|arrival| self.begins(*arrival) + self.answer_time());
        self.on_the_way.front().map(|(arrives, _)| *arrives).or(waiting)
    }

    /// Returns the number of events whose processing has not started.
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn begins(&self, arrival: Time) -> Time {
        arrival.max(self.busy_until)
    }

    fn answer_time(&self) -> Duration {
        self.latency.work + self.latency.interface
    }

    /// Processes the events whose processing starts by `now`. A response that is not polled keeps its slot, and
    /// processing waits for a free slot.
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
