//! Shares of the link: which queue pairs divide it, by which weights, and how much of it their schedulers have given
//! out.
//!
//! Source: SCR (NSDI'25) section 5.1, mechanisms S-19 and S-20. A scheduler decides for one queue pair and never sees
//! another one; the ledger holds the sums that it needs (see [`rnic_policy::ScheduleView`]).
//!
//! A queue pair becomes a *member* with its first data, and stays one for some time after its last: a program that
//! waits for each of its messages has no work thousands of times a second, and its share must not be given away each
//! time. Work that cannot be sent, because the peer is silent or grants no credit, does not count: a share that is held
//! for it is lost to all. Time during which a queue pair only waits for its dequeue rate or its turn does count.

use rnic_base::{BitRate, Duration, Time};
use rnic_policy::ScheduleView;
use rnic_scr::KindCounters;

use crate::limiter::RATE_LIMIT_MIN;
use crate::timer::Deadline;

/// Maximum weight of a queue pair.
pub const WEIGHT_MAX: u16 = 1_000;

/// Sums over the queue pairs of an engine whose schedulers process events.
#[derive(Debug)]
pub(crate) struct Ledger {
    line_rate: BitRate,
    /// Total rate that the queue pairs that share the link may use.
    capacity: BitRate,
    /// Time without data after which a queue pair is no longer counted among those that share the link.
    idle_after: Duration,
    members: u32,
    weights: u64,
    allocated: BitRate,
    saturated_weights: u64,
    saturated_rates: BitRate,
    epoch: u32,
}

/// A queue pair's share of the link, and its membership in the [`Ledger`].
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Share {
    is_member: bool,
    /// Weight that is included in the sum of weights.
    weight: u16,
    /// Rate that is included in the sum of rates.
    allocated: BitRate,
    is_saturated: bool,
    /// Time at which the queue pair last sent data.
    last_data: Time,
    /// Time at which membership is next checked.
    check_at: Deadline,
}

/// Totals over the members of an engine, the active queue pairs that share its link: their weights, and the rates set
/// by schedulers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Total rate that the queue pairs that share the link may use.
    pub capacity: BitRate,
    /// Number of queue pairs that share the link under a scheduler that sets rates.
    pub members: u32,
    /// Sum of the weights of the queue pairs that share the link.
    pub weights: u64,
    /// Sum of the dequeue rates of the queue pairs that share the link.
    pub allocated: BitRate,
    /// Sum of the weights of the queue pairs that use all of their rate.
    pub saturated_weights: u64,
    /// Number of records of sent packets at the processors, if schedulers run on any.
    pub records: Option<KindCounters>,
}

impl Ledger {
    pub(crate) fn new(line_rate: BitRate, idle_after: Duration) -> Self {
        Self {
            line_rate,
            capacity: line_rate,
            idle_after,
            members: 0,
            weights: 0,
            allocated: BitRate::ZERO,
            saturated_weights: 0,
            saturated_rates: BitRate::ZERO,
            epoch: 0,
        }
    }

    /// Sets the total rate that the queue pairs may use, at least [`RATE_LIMIT_MIN`]; with `None` it is that of the
    /// link.
    pub(crate) fn set_capacity(&mut self, capacity: Option<BitRate>) {
        self.capacity = capacity.map_or(self.line_rate, |rate| rate.max(RATE_LIMIT_MIN).min(self.line_rate));
    }

    /// Returns whether any queue pair shares the link.
    pub(crate) fn has_members(&self) -> bool {
        self.members > 0
    }

    /// Returns the totals, without the numbers of records.
    pub(crate) fn shares(&self) -> Shares {
        Shares {
            capacity: self.capacity,
            members: self.members,
            weights: self.weights,
            allocated: self.allocated,
            saturated_weights: self.saturated_weights,
            records: None,
        }
    }

    /// Returns the view of the scheduler at `now` of a queue pair with `share` and `weight`.
    pub(crate) fn view(&self, now: Time, share: &Share, weight: u16) -> ScheduleView {
        ScheduleView {
            now,
            line_rate: self.line_rate,
            capacity: self.capacity,
            members: self.members,
            weight: u32::from(weight),
            weights: self.weights,
            allocated: self.allocated,
            saturated_weights: self.saturated_weights,
            saturated_rates: self.saturated_rates,
            is_saturated: share.is_saturated,
            epoch: self.epoch,
            is_held: false,
            control_rate: None,
        }
    }

    /// Records that a queue pair sends data at `now`, and so is one of those that share the link (members); returns
    /// whether it was not before.
    pub(crate) fn join(&mut self, share: &mut Share, now: Time, weight: u16) -> bool {
        share.last_data = now;
        if share.is_member {
            return false;
        }
        (share.is_member, share.weight) = (true, weight);
        share.check_at = Deadline::at(now + self.idle_after);
        self.members += 1;
        self.weights += u64::from(weight);
        true
    }

    /// Removes a queue pair from those that share the link (members), if it is one of them.
    pub(crate) fn leave(&mut self, share: &mut Share) {
        self.allot(share, Some(BitRate::ZERO), Some(false));
        if share.is_member {
            self.members -= 1;
            self.weights -= u64::from(share.weight);
        }
        *share = Share::default();
    }

    /// Changes the weight of a queue pair.
    pub(crate) fn set_weight(&mut self, share: &mut Share, weight: u16) {
        if share.is_member {
            let (rate, is_saturated) = (share.allocated, share.is_saturated);
            self.allot(share, Some(BitRate::ZERO), Some(false));
            self.weights = self.weights - u64::from(share.weight) + u64::from(weight);
            share.weight = weight;
            self.allot(share, Some(rate), Some(is_saturated));
        }
    }

    /// Replaces the contribution of a queue pair to the totals: the `rate` that a scheduler has set, and whether the
    /// queue pair uses all of it. `None` leaves a value unchanged.
    pub(crate) fn allot(&mut self, share: &mut Share, rate: Option<BitRate>, is_saturated: Option<bool>) {
        if !share.is_member {
            return;
        }
        let (rate, is_saturated) = (rate.unwrap_or(share.allocated), is_saturated.unwrap_or(share.is_saturated));
        self.allocated = self.allocated.saturating_sub(share.allocated).saturating_add(rate);
        if share.is_saturated {
            self.saturated_rates = self.saturated_rates.saturating_sub(share.allocated);
            self.saturated_weights -= u64::from(share.weight);
        }
        if is_saturated {
            self.saturated_rates = self.saturated_rates.saturating_add(rate);
            self.saturated_weights += u64::from(share.weight);
        }
        (share.allocated, share.is_saturated) = (rate, is_saturated);
    }

    /// Increments the epoch.
    pub(crate) fn restart_all(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns whether a queue pair has sent no data for so long that it no longer counts as sharing the link; checks
    /// this only at intervals. A queue pair that `waits` only for its dequeue rate or its turn still counts.
    pub(crate) fn is_idle(&self, share: &mut Share, now: Time, waits: bool) -> bool {
        if !share.check_at.is_due(now) {
            return false;
        }
        let idle_at = share.last_data + self.idle_after;
        let is_idle = idle_at <= now && !waits;
        share.check_at = match is_idle {
            true => Deadline::NEVER,
            false if idle_at > now => Deadline::at(idle_at),
            // It is checked again when it has had the time to send.
            false => Deadline::at(now + self.idle_after / 4),
        };
        is_idle
    }
}

impl Share {
    /// Returns whether the queue pair is a member of the group that shares the link.
    pub(crate) fn is_member(&self) -> bool {
        self.is_member
    }

    /// Returns whether the queue pair uses all of its rate.
    pub(crate) fn is_saturated(&self) -> bool {
        self.is_saturated
    }

    /// Returns the rate that is included in the sum of rates.
    pub(crate) fn allocated(&self) -> BitRate {
        self.allocated
    }

    /// Returns the time at which membership must be checked.
    pub(crate) fn check_at(&self) -> Deadline {
        self.check_at
    }
}
