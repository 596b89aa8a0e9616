//! One rank of a collective: the messages of a step are sent when all messages of the step before have been received.

use std::collections::VecDeque;

use rnic_base::Time;

use crate::workload::collective::CollectivePlan;

/// A rank: one participant of a collective operation. Message `n` of each of its connections belongs to step `n`.
#[derive(Debug)]
pub(crate) struct Rank {
    /// Messages that are received in each step.
    incoming: u32,
    /// Total number of steps, and number of steps of one collective.
    steps: u32,
    steps_per_operation: u32,
    /// The step whose messages are not all received yet.
    step: u32,
    /// Number of messages received, by step, from `step` on: some senders may be several steps ahead.
    arrived: VecDeque<u32>,
    /// Slots, in the host's table of sessions, of the senders that belong to this rank.
    pub(super) senders: Vec<u32>,
    /// For each collective, the time at which the rank had received everything.
    finished: Vec<Time>,
}

impl Rank {
    /// Creates a rank of `plan`.
    pub(crate) fn of(plan: &CollectivePlan) -> Self {
        Self::new(plan.connections_of_rank() as u32, plan.messages() as u32, plan.kind.steps(plan.ranks))
    }

    /// Creates a rank that receives `incoming` messages in each of `steps` steps, `steps_per_operation` of which make
    /// one collective.
    pub(crate) fn new(incoming: u32, steps: u32, steps_per_operation: u32) -> Self {
        let (arrived, senders, finished) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { incoming, steps, steps_per_operation, step: 0, arrived, senders, finished }
    }

    /// Returns the number of messages that each sender may have sent so far.
    pub(super) fn released(&self) -> u32 {
        (self.step + 1).min(self.steps)
    }

    /// Returns whether the senders may send all of their messages.
    pub(super) fn is_at_last_step(&self) -> bool {
        self.released() == self.steps
    }

    /// Records that message `index` arrived on one of its connections. Returns whether more messages may be sent now.
    pub(super) fn arrive(&mut self, now: Time, index: u32) -> bool {
        let steps_ahead = (index - self.step) as usize;
        if self.arrived.len() <= steps_ahead {
            self.arrived.resize(steps_ahead + 1, 0);
        }
        self.arrived[steps_ahead] += 1;
        let before = self.released();
        while self.arrived.front() == Some(&self.incoming) {
            self.arrived.pop_front();
            self.step += 1;
            if self.step.is_multiple_of(self.steps_per_operation) {
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
    fn a_step_starts_when_all_messages_of_the_previous_one_have_arrived() {
        let mut rank = Rank::new(2, 4, 2);
        assert_eq!(rank.released(), 1, "the first step needs no messages");
        assert!(!rank.arrive(Time::from_us(1), 0));
        assert!(!rank.arrive(Time::from_us(2), 1), "a message of a later step started a step");
        assert!(rank.arrive(Time::from_us(3), 0));
        assert_eq!((rank.released(), rank.finished().len()), (2, 0));
        assert!(rank.arrive(Time::from_us(4), 1), "both messages of the step have arrived");
        assert_eq!((rank.released(), rank.finished()), (3, &[Time::from_us(4)][..]));
        assert!(!rank.arrive(Time::from_us(5), 2));
        assert!(!rank.arrive(Time::from_us(5), 3));
        assert!(rank.arrive(Time::from_us(6), 2));
        assert!(!rank.arrive(Time::from_us(7), 3), "more messages were released after the last step");
        assert_eq!((rank.released(), rank.finished()), (4, &[Time::from_us(4), Time::from_us(7)][..]));
    }
}
