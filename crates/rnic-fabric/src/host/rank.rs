//! One rank of a collective: the messages of a step are sent when all messages of the step before have been received.

use std::collections::VecDeque;

use rnic_base::Time;

use crate::workload::collective::CollectivePlan;

/// See the module. Message `n` of every connection belongs to step `n`.
#[derive(Debug)]
pub(crate) struct Rank {
    /// Messages that are received in each step.
    incoming: u32,
    /// Number of steps in total, and of one collective.
    steps: u32,
    steps_of_each: u32,
    /// The step whose messages are not all received yet.
    step: u32,
    /// Number of messages received, by step, from `step` on: senders may be ahead by some steps.
    arrived: VecDeque<u32>,
    /// Its senders, by their slots in the sessions.
    pub(super) senders: Vec<u32>,
    /// For each collective, the time at which the rank had received everything.
    finished: Vec<Time>,
}

impl Rank {
    /// Creates a rank of `plan`.
    pub(crate) fn of(plan: &CollectivePlan) -> Self {
        Self::new(plan.connections_of_rank() as u32, plan.messages() as u32, plan.kind.steps(plan.ranks))
    }

    /// Creates a rank that receives `incoming` messages in each of `steps` steps, `steps_of_each` of which make one
    /// collective.
    pub(crate) fn new(incoming: u32, steps: u32, steps_of_each: u32) -> Self {
        let (arrived, senders, finished) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { incoming, steps, steps_of_each, step: 0, arrived, senders, finished }
    }

    /// Returns the number of messages that each sender may have sent so far.
    pub(super) fn released(&self) -> u32 {
        (self.step + 1).min(self.steps)
    }

    /// Returns whether all messages are released.
    pub(super) fn is_at_last_step(&self) -> bool {
        self.released() == self.steps
    }

    /// Records that message `index` arrived on one of its connections. Returns whether more messages may be sent now.
    pub(super) fn arrive(&mut self, now: Time, index: u32) -> bool {
        let ahead = (index - self.step) as usize;
        if self.arrived.len() <= ahead {
            self.arrived.resize(ahead + 1, 0);
        }
        self.arrived[ahead] += 1;
        let before = self.released();
        while self.arrived.front() == Some(&self.incoming) {
            self.arrived.pop_front();
            self.step += 1;
            if self.step.is_multiple_of(self.steps_of_each) {
                self.finished.push(now);
            }
        }
        self.released() > before
    }

    /// Returns, for each collective in order, the time at which the rank had received everything.
    pub(crate) fn finished(&self) -> &[Time] {
        &self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_begins_when_all_of_the_one_before_has_come() {
        let mut rank = Rank::new(2, 4, 2);
        assert_eq!(rank.released(), 1, "the first begins by itself");
        assert!(!rank.arrive(Time::from_us(1), 0));
        assert!(!rank.arrive(Time::from_us(2), 1), "who is ahead has to wait");
        assert!(rank.arrive(Time::from_us(3), 0));
        assert_eq!((rank.released(), rank.finished().len()), (2, 0));
        assert!(rank.arrive(Time::from_us(4), 1), "its fellow had come");
        assert_eq!((rank.released(), rank.finished()), (3, &[Time::from_us(4)][..]));
        assert!(!rank.arrive(Time::from_us(5), 2));
        assert!(!rank.arrive(Time::from_us(5), 3));
        assert!(rank.arrive(Time::from_us(6), 2));
        assert!(!rank.arrive(Time::from_us(7), 3), "nothing is left to send");
        assert_eq!((rank.released(), rank.finished()), (4, &[Time::from_us(4), Time::from_us(7)][..]));
    }
}
