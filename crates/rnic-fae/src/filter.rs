//! Admission of events to the queue: at most one outstanding event per flow, and stricter rules as the queue fills.
//!
//! Source: specification 10.6.1 (two predicates, three occupancy thresholds, but no table of the resulting actions)
//! and the public simulator's decisions. Below the first threshold every event is admitted; below the second, events
//! that satisfy P1 or P2; below the third, those that satisfy P1; above it, those that satisfy both; a full queue
//! admits none. P1: more than `quiet` has passed since the flow's last event. P2: more than `packets` packets of the
//! flow were acknowledged since then.
//!
//! When an event is refused, only its momentary signals are lost: its count of acknowledged packets is added up (to
//! at most 1023) and included in the next event that is admitted, whatever its type.

use rnic_base::Duration;
use rnic_policy::control::report::Ticks;

use crate::record::Event;

/// Maximum number of acknowledged packets that an event record can hold.
const ACKED_MAX: u16 = 1_023;

/// The admission rules of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Queue occupancies, in ascending order; admission becomes stricter at each.
    pub thresholds: [usize; 3],
    /// Used by P1: minimum time since the flow's last event, exclusive.
    pub quiet: Ticks,
    /// Used by P2: minimum number of packets acknowledged since the flow's last event, exclusive.
    pub packets: u16,
}

impl Filter {
    /// Returns the published defaults for a queue of `capacity` events: no event is refused before the queue is full.
    pub const fn open(capacity: usize) -> Self {
        Self { thresholds: [capacity; 3], quiet: Ticks::of(Duration::from_ns(134_144)), packets: 512 }
    }

    /// Admits `event` of the flow that `admission` belongs to, to a queue of `capacity`, in which `occupancy` events
    /// wait; returns the event to enqueue.
    ///
    /// # Errors
    /// Returns the reason for which `event` is refused. `admission` then counts its acknowledged packets for the next
    /// event.
    #[inline]
    pub fn admit(
        &self,
        admission: &mut FlowAdmission,
        event: &Event,
        occupancy: usize,
        capacity: usize,
    ) -> Result<Event, Refusal> {
        let now = event.report.t4;
        admission.acked = admission.acked.saturating_add(event.report.acked).min(ACKED_MAX);
        if admission.outstanding {
            return Err(Refusal::Outstanding);
        }
        if occupancy >= capacity {
            return Err(Refusal::Full);
        }
        let is_quiet = !admission.has_reported || now.since(admission.last) > self.quiet;
        let has_many_packets = admission.acked > self.packets;
        let [p1_or_p2, p1, p1_and_p2] = self.thresholds;
        let is_admitted = match occupancy {
            waiting if waiting < p1_or_p2 => true,
            waiting if waiting < p1 => is_quiet || has_many_packets,
            waiting if waiting < p1_and_p2 => is_quiet,
            _ => is_quiet && has_many_packets,
        };
        if !is_admitted {
            return Err(Refusal::Busy);
        }
        let mut admitted = *event;
        admitted.report.acked = admission.acked;
        *admission = FlowAdmission { last: now, acked: 0, outstanding: true, has_reported: true };
        Ok(admitted)
    }
}

/// Reason why an event is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The flow's last event has no response yet.
    #[error("the previous event of this flow has no response yet")]
    Outstanding,
    /// The queue is so full that only more urgent events are admitted.
    #[error("the event queue is nearly full and admits only more urgent events")]
    Busy,
    /// The queue is full.
    #[error("the event queue is full")]
    Full,
}

/// State of one flow of a connection, held by the datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowAdmission {
    last: Ticks,
    acked: u16,
    outstanding: bool,
    has_reported: bool,
}

impl FlowAdmission {
    /// Records that the response to the flow's event has arrived.
    #[inline]
    pub fn note_response(&mut self) {
        self.outstanding = false;
    }

    /// Returns `true` if an event is outstanding.
    #[inline]
    pub const fn is_outstanding(&self) -> bool {
        self.outstanding
    }

    /// Returns the number of acknowledged packets that were not reported in any event yet.
    #[inline]
    pub const fn unreported(&self) -> u16 {
        self.acked
    }
}

#[cfg(test)]
#[path = "filter/tests.rs"]
mod tests;
