//! An adaptive engine whose responses arrive after a latency in simulated time.
//!
//! Source: the public simulator (66 ns of processing per event, 234 ns of interface latency); figure 22b of the paper
//! includes more in the latter. One event is processed at a time, in order of arrival. The response to an event that
//! arrives at an idle engine is available 300 ns later. A prefetching engine prefetches the state of later events as
//! they advance in the queue, which does not affect the responses.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};

use crate::filter::{Filter, FlowAdmission, Refusal};
use crate::processor::{FaeError, Processor};
use crate::program::Program;
use crate::queue::EventQueue;
use crate::record::{Event, ResponseRecord};

/// Components of the latency of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Latency between datapath and engine, both directions together.
    pub interface: Duration,
    /// Processing time of one event.
    pub processing: Duration,
}

impl Latency {
    /// The published values: at most 15 million events per second.
    pub const FALCON: Self = Self { interface: Duration::from_ns(234), processing: Duration::from_ns(66) };
}

/// An adaptive engine that responds after a delay.
pub struct Delayed<P: Program> {
    processor: Processor<P>,
    latency: Latency,
    queue: EventQueue,
    /// Arrival time of each event in the queue.
    arrivals: VecDeque<Time>,
    /// Responses in flight, with their arrival times.
    responses_in_flight: VecDeque<(Time, ResponseRecord)>,
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
            responses_in_flight: VecDeque::with_capacity(capacity),
            busy_until: Time::ZERO,
        }
    }

    /// See [`Processor::grow`].
    ///
    /// # Errors
    /// See [`Processor::grow`].
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

    /// Submits `event` of the flow that `admission` belongs to, at time `now`, which must not decrease between calls.
    ///
    /// # Errors
    /// See [`Filter::admit`].
    pub fn offer(&mut self, now: Time, admission: &mut FlowAdmission, event: &Event) -> Result<(), Refusal> {
        self.process_until(now);
        self.queue.offer(admission, event)?;
        self.arrivals.push_back(now);
        // If the event is further back in the queue, its state is prefetched later, as the queue advances.
        if self.processor.prefetch_distance().is_some_and(|ahead| self.queue.len() <= ahead) {
            self.processor.fetch_state(event.connection);
        }
        Ok(())
    }

    /// Returns the next response that has arrived by `now`.
    pub fn poll(&mut self, now: Time) -> Option<ResponseRecord> {
        self.process_until(now);
        self.responses_in_flight.pop_front_if(|(arrives, _)| *arrives <= now).map(|(_, response)| response)
    }

    /// Returns the arrival time of the next response.
    pub fn next_at(&self) -> Option<Time> {
        let waiting = self.arrivals.front().map(|arrival| self.start_time(*arrival) + self.response_delay());
        self.responses_in_flight.front().map(|(arrives, _)| *arrives).or(waiting)
    }

    /// Returns the number of events whose processing has not started.
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn start_time(&self, arrival: Time) -> Time {
        arrival.max(self.busy_until)
    }

    fn response_delay(&self) -> Duration {
        self.latency.processing + self.latency.interface
    }

    /// Processes all events whose processing starts no later than `now`. A response that is not polled occupies a
    /// slot, and processing waits for a free slot.
    fn process_until(&mut self, now: Time) {
        while let Some(arrival) = self.arrivals.front().copied()
            && self.start_time(arrival) <= now
            && self.responses_in_flight.len() < self.responses_in_flight.capacity()
        {
            let Some(event) = self.queue.pop() else { return };
            self.arrivals.pop_front();
            if let Some(later) =
                self.processor.prefetch_distance().and_then(|ahead| self.queue.peek(ahead.checked_sub(1)?))
            {
                self.processor.fetch(later);
            }
            let start = self.start_time(arrival);
            self.busy_until = start + self.latency.processing;
            let response = self.processor.handle_at(start, &event);
            self.responses_in_flight.push_back((start + self.response_delay(), response));
        }
    }
}
