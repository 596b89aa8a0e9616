//! The round of Periodic Updates: one flow a cycle, all flows in turn; and when a visit may next change something.

use crate::shape::FlowId;

/// A visit on its way through the stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Visit {
    pub(crate) flow: FlowId,
    /// The flow's visit in its turn met a packet of the same flow.
    pub(crate) is_retry: bool,
}

/// The round and its two stages.
///
/// A visit that meets a packet of its flow is repeated two cycles later, in the slot of the next flow, which the round
/// serves one cycle later. Without that, acknowledgements in step with the round could hide a timeout for ever. A
/// repeated visit that meets a packet again waits for the next round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    flows: u16,
    next: FlowId,
    fetch: Visit,
    process: Visit,
}

impl Round {
    /// Creates the round in the state in which it has just passed the last flow.
    pub(crate) fn new(flows: u16) -> Self {
        let visit = |flow| Visit { flow, is_retry: false };
        Self { flows, next: 1 % flows, fetch: visit(0), process: visit(flows - 1) }
    }

    /// Returns the visit that is processed in this cycle.
    #[inline]
    pub(crate) fn current(&self) -> Visit {
        self.process
    }

    /// Ends the cycle; `is_dropped` when this cycle's visit met a packet of its flow.
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

    /// Returns whether all visits in the stages are in their turn, so that later ones can be computed.
    #[inline]
    pub(crate) fn is_regular(&self) -> bool {
        !self.fetch.is_retry && !self.process.is_retry
    }

    /// Passes `cycles` cycles without visits that change anything. The stages are regular.
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

/// A deadline that never comes.
const NEVER: u64 = u64::MAX;

/// For each flow the cycle from which a visit may change something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Deadlines {
    at: Vec<u64>,
    /// No deadline is earlier. May be too early, as deadlines mostly move to later times.
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

    /// Returns whether the deadline of a flow has come.
    #[inline]
    pub(crate) fn is_due(&self, flow: FlowId, now: u64) -> bool {
        self.at[usize::from(flow)] <= now
    }

    /// Returns the first cycle from `now` on, and before `end`, in which a visit may change something.
    pub(crate) fn next_visit(&mut self, round: &Round, now: u64, end: u64) -> Option<u64> {
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
