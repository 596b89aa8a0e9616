//! Completion queues.

use rnic_wire::Qpn;

use crate::completion::{Completion, WcFlags, WcStatus};
use crate::fifo::Fifo;

/// Condition under which the owner is notified of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notify {
    /// No notification; the owner polls the queue.
    Off,
    /// Notification of the next completion that is solicited or has an error status.
    Solicited,
    /// Notification of the next completion.
    Next,
    /// The flows of a queue pair use the queue: the engine takes each completion at once.
    Flows,
}

/// A completion queue: completions in the order in which they were generated.
#[derive(Debug)]
pub(crate) struct Cq {
    entries: Fifo<Completion>,
    capacity: u32,
    /// Slot of the queue pair whose flows use the queue, with [`Notify::Flows`].
    slot: u32,
    notify: Notify,
    /// `true` if more completions were added than fit. As in a hardware NIC, such a queue is unusable.
    overrun: bool,
    /// Number of uses of this queue as the send or receive completion queue of a queue pair.
    pub(crate) users: u32,
}

/// Event of which the owner must be notified after a completion was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    Quietly,
    Notify,
    Overrun,
    /// The engine takes the completion, for the queue pair in this slot.
    ForFlows(u32),
}

impl Cq {
    pub(crate) fn new(capacity: u32) -> Self {
        // Large queues are rarely full: memory is allocated as they fill.
        let entries = Fifo::new(Completion::BLANK);
        Self { entries, capacity, slot: 0, notify: Notify::Off, overrun: false, users: 0 }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, completion: Completion, solicited: bool) -> Added {
        if self.entries.len() == self.capacity as usize {
            let is_first_overrun = !self.overrun;
            self.overrun = true;
            return if is_first_overrun { Added::Overrun } else { Added::Quietly };
        }
        self.entries.push(completion);
        let is_requested = match self.notify {
            Notify::Off => return Added::Quietly,
            Notify::Next => true,
            Notify::Solicited => solicited || completion.status != WcStatus::Success,
            Notify::Flows => return Added::ForFlows(self.slot),
        };
        if is_requested {
            self.notify = Notify::Off;
            return Added::Notify;
        }
        Added::Quietly
    }

    /// Removes the newest completion, if `is_match` returns `true` for it.
    #[cold]
    pub(crate) fn remove_newest(&mut self, is_match: impl Fn(&Completion) -> bool) {
        let newest = (self.entries.len() as u32).checked_sub(1).and_then(|newest_index| self.entries.get(newest_index));
        if newest.is_some_and(|newest| is_match(&newest)) {
            self.entries.drop_newest();
        }
    }

    #[inline]
    pub(crate) fn poll(&mut self, into: &mut [Completion]) -> usize {
        let mut count = 0;
        for slot in into {
            let Some(completion) = self.entries.pop() else { break };
            *slot = completion;
            count += 1;
        }
        count
    }

    /// Prefetches the next completion.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.entries.prefetch();
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.entries.pop()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes the completions of `qpn`; the order of all other completions is kept.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        for _ in 0..self.entries.len() {
            if let Some(completion) = self.entries.pop().filter(|completion| completion.qpn != qpn) {
                self.entries.push(completion);
            }
        }
    }

    /// Sets the capacity of the queue; the caller ensures that the queue does not already contain more completions.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// Passes the completions to the engine from now on, for the queue pair in `slot`.
    pub(crate) fn serve_flows_of(&mut self, slot: u32) {
        (self.notify, self.slot) = (Notify::Flows, slot);
    }

    /// Returns the slot of the queue pair whose flows use the queue, if it is such a queue.
    pub(crate) fn flows_of(&self) -> Option<u32> {
        match self.notify {
            Notify::Flows => Some(self.slot),
            Notify::Off | Notify::Solicited | Notify::Next => None,
        }
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun
    }

    pub(crate) fn request_notify(&mut self, notify: Notify) {
        // A request for notification of any completion is not replaced by a later one for solicited completions only
        // (IBA 11.4.2.2).
        if self.notify != Notify::Next {
            self.notify = notify;
        }
    }
}

/// Returns `true` if a completion counts as solicited.
#[inline]
pub(crate) fn is_solicited(completion: &Completion) -> bool {
    completion.flags.contains(WcFlags::SOLICITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_one_queue_pair_can_be_removed_and_the_capacity_changed() {
        let mut cq = Cq::new(3);
        for (wr_id, qpn) in [(1, 7), (2, 8), (3, 7)] {
            assert_eq!(cq.push(Completion { wr_id, qpn: Qpn::new(qpn), ..Completion::BLANK }, false), Added::Quietly);
        }
        cq.set_capacity(4);
        assert_eq!(cq.push(Completion { wr_id: 4, qpn: Qpn::new(9), ..Completion::BLANK }, false), Added::Quietly);
        assert_eq!(cq.push(Completion::BLANK, false), Added::Overrun);
        cq.forget(Qpn::new(7));
        assert_eq!([cq.pop(), cq.pop(), cq.pop()].map(|left| left.map(|left| left.wr_id)), [Some(2), Some(4), None]);
    }
}
