//! One rank of a collective: the messages of a step leave when all of the step before have come.

use std::collections::VecDeque;

use rnic_base::Time;

use crate::workload::collective::CollectivePlan;

/// See the module. Message `n` of every connection belongs to step `n`.
#[derive(Debug)]
pub(crate) struct Rank {
    /// Messages that come in each step.
    incoming: u32,
    /// Steps in all, and of one collective.
    steps: u32,
    steps_of_each: u32,
    /// The step whose messages are awaited.
    step: u32,
    /// Messages that have come, by step from that one on: others may be ahead.
    arrived: VecDeque<u32>,
    /// Its senders, by their numbers among the sessions.
    pub(super) senders: Vec<u32>,
    /// When it had all of each collective.
    finished: Vec<Time>,
}

impl Rank {
    /// A rank of `plan`.
    pub(crate) fn of(plan: &CollectivePlan) -> Self {
        Self::new(plan.connections_of_rank() as u32, plan.messages() as u32, plan.kind.steps(plan.ranks))
    }

    /// A rank to which `incoming` messages come in each of `steps` steps, `steps_of_each` of which are a collective.
    pub(crate) fn new(incoming: u32, steps: u32, steps_of_each: u32) -> Self {
        let (arrived, senders, finished) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { incoming, steps, steps_of_each, step: 0, arrived, senders, finished }
    }

    /// Messages of each sender that may leave.
    pub(super) fn released(&self) -> u32 {
        (self.step + 1).min(self.steps)
    }

    /// Whether nothing is left to be released.
    pub(super) fn is_at_last_step(&self) -> bool {
        self.released() == self.steps
    }

    /// Message `index` has come on one of its connections. Whether more may leave now.
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

    /// When it had all of each collective, in order.
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
