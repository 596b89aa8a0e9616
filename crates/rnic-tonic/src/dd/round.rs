//! The schedule of the Periodic Updates module: it visits all flows in turn, one per cycle. Also the next cycle in
//! which a visit may change anything.

use crate::shape::FlowId;

/// A call of the program's periodic function for a flow (visit), in the pipeline stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Visit {
    pub(crate) flow: FlowId,
    /// True if the call is repeated because the first one coincided with a packet of the same flow.
    pub(crate) is_retry: bool,
}

/// The round-robin schedule and its two pipeline stages.
///
/// A visit that coincides with a packet of its flow is repeated two cycles later, in the slot of the next flow, which
/// the round serves one cycle later. Without that, acknowledgements in step with the round could hide a timeout for
/// ever. A repeated visit that coincides with a packet again is dropped until the next round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    flows: u16,
    next: FlowId,
    fetch: Visit,
    process: Visit,
}

impl Round {
    /// Creates the schedule in the state in which it has just visited the last flow.
    pub(crate) fn new(flows: u16) -> Self {
        let visit = |flow| Visit { flow, is_retry: false };
        Self { flows, next: 1 % flows, fetch: visit(0), process: visit(flows - 1) }
    }

    /// Returns the flow whose periodic function is called in this cycle.
    #[inline]
    pub(crate) fn current(&self) -> Visit {
        self.process
    }

    /// Ends the cycle. `is_dropped` is true if the result of this cycle's periodic call was discarded, because it
    /// coincided with a packet of the same flow.
    #[inline]
    pub(crate) fn advance(&mut self, is_dropped: bool) {
        let last = self.process;
        self.process = self.fetch;
        if is_dropped && !last.is_retry {
            self.fetch = Visit { flow: last.flow, is_retry: true };
        } else {
            self.fetch = Visit { flow: self.next, is_retry: false };
            self.next = self.after(self.next, 1);
        }
    }

    /// Returns whether all periodic calls in the pipeline stages are in regular order, so that later ones can be
    /// computed.
    #[inline]
    pub(crate) fn is_regular(&self) -> bool {
        !self.fetch.is_retry && !self.process.is_retry
    }

    /// Skips `cycles` cycles whose periodic calls change nothing. Those in the pipeline stages must be in regular
    /// order.
    pub(crate) fn skip(&mut self, cycles: u64) {
        let steps = (cycles % u64::from(self.flows)) as u16;
        for flow in [&mut self.process.flow, &mut self.fetch.flow, &mut self.next] {
            *flow = (*flow + steps) % self.flows;
        }
    }

    /// Returns the first cycle, at or after `from`, in which `flow` is visited, given that `now` is the current one.
    #[inline]
    fn visit(&self, flow: FlowId, from: u64, now: u64) -> u64 {
        let flows = u64::from(self.flows);
        let turns = u64::from(flow) + flows - u64::from(self.process.flow);
        from + (turns + flows - (from - now) % flows) % flows
    }

    fn after(&self, flow: FlowId, steps: u16) -> FlowId {
        (flow + steps) % self.flows
    }
}

/// Value of a deadline that never expires.
const NEVER: u64 = u64::MAX;

/// For each flow the earliest cycle in which a call of the program's periodic function can change its state; calls in
/// earlier cycles can be skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Deadlines {
    at: Vec<u64>,
    /// Lower bound of all deadlines. It may be too early, because deadlines mostly move to later times.
    soonest: u64,
}

impl Deadlines {
    pub(crate) fn new(flows: u16) -> Self {
        Self { at: vec![NEVER; usize::from(flows)], soonest: NEVER }
    }

    /// Sets the deadline of a flow.
    #[inline]
    pub(crate) fn set(&mut self, flow: FlowId, deadline: Option<u64>) {
        let deadline = deadline.unwrap_or(NEVER);
        self.at[usize::from(flow)] = deadline;
        self.soonest = self.soonest.min(deadline);
    }

    /// Returns whether the deadline of a flow has passed.
    #[inline]
    pub(crate) fn is_due(&self, flow: FlowId, now: u64) -> bool {
        self.at[usize::from(flow)] <= now
    }

    /// Returns the first cycle in `now..end` in which the periodic function of a flow may change its state, so that
    /// earlier cycles can be skipped; `None` if there is none.
    pub(crate) fn next_service_cycle(&mut self, round: &Round, now: u64, end: u64) -> Option<u64> {
        if self.soonest >= end {
            return None;
        }
        self.soonest = self.at.iter().copied().min().unwrap_or(NEVER);
        if self.soonest >= end {
            return None;
        }
        let with_deadline = (0..).zip(&self.at).filter(|(_, at)| **at < end);
        with_deadline.map(|(flow, at)| round.visit(flow, (*at).max(now), now)).min().filter(|visit| *visit < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_computed_as_the_round_makes_them() {
        let mut round = Round::new(5);
        for now in 0..40_u64 {
            for from in now..now + 12 {
                let mut later = round.clone();
                later.skip(from - now);
                for flow in 0..5 {
                    let mut walked = later.clone();
                    let steps = (0..5_u64).find(|_| {
                        let is_there = walked.current().flow == flow;
                        walked.advance(false);
                        is_there
                    });
                    let expected = from + steps.unwrap();
                    assert_eq!(round.visit(flow, from, now), expected, "flow {flow} from {from} at {now}");
                }
            }
            // Now and then a visit is dropped; two cycles later it is repeated.
            let is_dropped = now % 7 == 3 && round.is_regular();
            let dropped = round.current().flow;
            round.advance(is_dropped);
            if is_dropped {
                let mut repeated = round.clone();
                repeated.advance(false);
                assert_eq!(repeated.current(), Visit { flow: dropped, is_retry: true });
                assert!(!round.is_regular());
                // Two more cycles, until the stages are regular.
                round.advance(false);
                round.advance(false);
            }
        }
    }

    #[test]
    fn a_repeated_visit_is_not_repeated_again() {
        let mut round = Round::new(8);
        round.advance(true);
        round.advance(false);
        assert!(round.current().is_retry);
        round.advance(true);
        assert!(!round.fetch.is_retry);
    }
}
