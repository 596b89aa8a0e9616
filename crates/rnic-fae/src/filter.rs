//! Admission of events to the queue: at most one outstanding per flow, and fewer of them the fuller the queue is.
//!
//! Source: specification 10.6.1 (two predicates, three thresholds of occupancy, but no table of the resulting actions)
//! and the public simulator's decisions. Below the first threshold every event is admitted; below the second, events
//! that fulfil P1 or P2; below the third, those that fulfil P1; above it, those that fulfil both; a full queue admits
//! none. P1: the flow's last event is longer ago than `quiet`. P2: more than `packets` of the flow were acknowledged
//! since.
//!
//! Of a refused event only the signals of the moment are lost: the counts of packets acknowledged add up (to 1023) and
//! are included in the next event that is admitted, whatever its type.

use rnic_base::Duration;
use rnic_policy::control::report::Ticks;

use crate::record::Event;

/// Largest number of acknowledged packets that a record can count.
const ACKED_MAX: u16 = 1_023;

/// The admission rules of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Occupancies from which on fewer events are admitted, in rising order.
    pub thresholds: [usize; 3],
    /// P1: time since the flow's last event.
    pub quiet: Ticks,
    /// P2: packets acknowledged since the flow's last event.
    pub packets: u16,
}

impl Filter {
    /// Returns the published defaults for a queue of `capacity` events: no event is refused before the queue is full.
    pub const fn open(capacity: usize) -> Self {
        Self { thresholds: [capacity; 3], quiet: Ticks::of(Duration::from_ns(134_144)), packets: 512 }
    }

    /// Admits `event` of the flow with `gate` to a queue of `capacity`, in which `occupancy` events wait; returns the
    /// event to enqueue.
    ///
    /// # Errors
    /// The reason for which it is refused. Its acknowledged packets are kept in the gate.
    #[inline]
    pub fn admit(
        &self,
        gate: &mut FlowGate,
        event: &Event,
        occupancy: usize,
        capacity: usize,
    ) -> Result<Event, Refusal> {
        let now = event.report.t4;
        gate.acked = gate.acked.saturating_add(event.report.acked).min(ACKED_MAX);
        if gate.outstanding {
            return Err(Refusal::Outstanding);
        }
        if occupancy >= capacity {
            return Err(Refusal::Full);
        }
        let is_quiet = !gate.has_sent || now.since(gate.last) > self.quiet;
        let has_many = gate.acked > self.packets;
        let [either, quiet, both] = self.thresholds;
        let enters = match occupancy {
            waiting if waiting < either => true,
            waiting if waiting < quiet => is_quiet || has_many,
            waiting if waiting < both => is_quiet,
            _ => is_quiet && has_many,
        };
        if !enters {
            return Err(Refusal::Busy);
        }
        let mut entering = *event;
        entering.report.acked = gate.acked;
        *gate = FlowGate { last: now, acked: 0, outstanding: true, has_sent: true };
        Ok(entering)
    }
}

/// The reason for which an event is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The flow's last event has no response yet.
    #[error("the flow's last event has not been answered")]
    Outstanding,
    /// The queue occupancy is so high that only more urgent events are admitted.
    #[error("the queue is filled so far that only more pressing events enter")]
    Busy,
    /// The queue is full.
    #[error("the queue is full")]
    Full,
}

/// State that a datapath keeps for each flow of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowGate {
    last: Ticks,
    acked: u16,
    outstanding: bool,
    has_sent: bool,
}

impl FlowGate {
    /// Records that the response has arrived.
    #[inline]
    pub fn answered(&mut self) {
        self.outstanding = false;
    }

    /// Returns whether an event is outstanding.
    #[inline]
    pub const fn is_outstanding(&self) -> bool {
        self.outstanding
    }

    /// Returns the number of acknowledged packets that no event has reported.
    #[inline]
    pub const fn untold(&self) -> u16 {
        self.acked
    }
}

#[cfg(test)]
#[path = "filter/tests.rs"]
mod tests;
