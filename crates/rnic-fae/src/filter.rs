//! Which events enter the queue: one outstanding a flow, and fewer of them the fuller the queue is.
//!
//! Source: specification 10.6.1 (two predicates, three thresholds of occupancy, no table of what follows from them) and
//! the public simulator's decisions. Below the first threshold everything enters; below the second,
//! what fulfils P1 or P2; below the third, what fulfils P1; above it, what fulfils both; nothing enters a full queue.
//! P1: the flow's last event is longer ago than `quiet`. P2: more than `packets` of the flow were acknowledged since.
//!
//! What is refused is not lost but for its news: packets acknowledged add up (to 1023) and come with the next event
//! that enters, whatever its kind.

use rnic_base::Duration;
use rnic_policy::control::report::Ticks;

use crate::record::Event;

/// Packets acknowledged that a record can count.
const ACKED_MAX: u16 = 1_023;

/// The rules of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// From these occupancies on, rising, fewer events enter.
    pub thresholds: [usize; 3],
    /// P1: time since the flow's last event.
    pub quiet: Ticks,
    /// P2: packets acknowledged since the flow's last event.
    pub packets: u16,
}

impl Filter {
    /// The published defaults for a queue of `capacity` events: nothing is held back before it is full.
    pub const fn open(capacity: usize) -> Self {
        Self { thresholds: [capacity; 3], quiet: Ticks::of(Duration::from_ns(134_144)), packets: 512 }
    }

    /// Lets `event` of the flow with `gate` into a queue of `capacity`, in which `occupancy` wait: answers the event as
    /// it enters.
    ///
    /// # Errors
    /// Why it does not enter. Its acknowledged packets are kept in the gate.
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

/// Why an event does not enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The flow's last event has not been answered.
    #[error("the flow's last event has not been answered")]
    Outstanding,
    /// The queue is filled so far that only more pressing events enter.
    #[error("the queue is filled so far that only more pressing events enter")]
    Busy,
    /// The queue is full.
    #[error("the queue is full")]
    Full,
}

/// What a datapath keeps for each flow of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowGate {
    last: Ticks,
    acked: u16,
    outstanding: bool,
    has_sent: bool,
}

impl FlowGate {
    /// The answer has come.
    #[inline]
    pub fn answered(&mut self) {
        self.outstanding = false;
    }

    /// An event is under way.
    #[inline]
    pub const fn is_outstanding(&self) -> bool {
        self.outstanding
    }

    /// Packets acknowledged that no event has told of.
    #[inline]
    pub const fn untold(&self) -> u16 {
        self.acked
    }
}

#[cfg(test)]
#[path = "filter/tests.rs"]
mod tests;
