//! Timeouts of the NIC, of its peers, and of its queue pairs: at most one each.

use std::collections::{BTreeMap, BTreeSet};

use rnic_base::Time;
use rnic_wire::Qpn;

use crate::NicId;

/// Owner of a timeout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    Nic,
    Partner(NicId),
    Flow(Qpn),
}

/// All timeouts, ordered by time and owner.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    due: BTreeSet<(Time, Owner)>,
    times: BTreeMap<Owner, Time>,
}

impl Alarms {
    /// Replaces the timeout of `owner`; `None` removes it.
    pub(super) fn set(&mut self, owner: Owner, at: Option<Time>) {
        let before = match at {
            Some(at) => self.times.insert(owner, at),
            None => self.times.remove(&owner),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, owner));
        }
        if let Some(at) = at {
            self.due.insert((at, owner));
        }
    }

    /// Returns the earliest time at which a timeout is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes the earliest timeout if it is due, and returns its owner.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<Owner> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        let (_, owner) = self.due.pop_first()?;
        self.times.remove(&owner);
        Some(owner)
    }
}
