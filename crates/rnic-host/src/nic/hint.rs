//! The part of a NIC that applies the hints of its program (SCR mechanism S-9).
//!
//! A hint changes the weight of the process at the shared link, as `--weight` sets it, and adds a limit to every queue
//! pair of this NIC, so it affects its own process only: the share of the others changes as if the process had been
//! started with this weight. The lowest limit is in force, so a hint lifts no limit of an operator.

use std::sync::Arc;

use rnic_base::{BitRate, Time};
use rnic_engine::{LimitSource, RATE_LIMIT_MIN, RateLimit, Signals, WEIGHT_MAX};
use rnic_wire::Qpn;

use super::device::Device;
use super::verbs::Verbs;
use crate::hint::{Hint, HintLine};

impl Device {
    /// Applies the hint of the program, if it has written a new one. Otherwise this costs one load, whatever the number
    /// of queue pairs.
    #[inline]
    pub(super) fn apply_hint(&mut self, now: Time) {
        if self.hint.has_changed() {
            self.read_hint(now);
        }
    }

    /// Reads the line; an incomplete or invalid hint changes nothing.
    #[cold]
    fn read_hint(&mut self, now: Time) {
        let Ok(hint) = self.hint.read() else {
            self.link.stats.hints_rejected += 1;
            return;
        };
        let weight = u16::try_from(hint.weight).ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        let is_cap_valid = cap_of(hint).is_none_or(|cap| (RATE_LIMIT_MIN..=self.config.line_rate).contains(&cap));
        let Some(weight) = weight.filter(|_| is_cap_valid) else {
            self.link.stats.hints_rejected += 1;
            return;
        };
        let before = self.hint.in_force();
        self.hint.set_in_force(hint);
        self.link.stats.hints_applied += 1;
        let cap_bps = cap_of(hint).map_or(0, BitRate::as_bps);
        Signals::of(&mut self.engine).note_hint(now, 0, weight, cap_bps);
        if hint.weight != before.weight {
            self.set_share_weight(now, weight);
        }
        if hint.cap_kbps != before.cap_kbps {
            let queue_pairs: Vec<Qpn> = self.engine.queue_pairs().map(|view| view.info.number).collect();
            queue_pairs.into_iter().for_each(|qpn| self.limit_by_hint(now, qpn));
        }
    }

    /// Applies the rate limit of the hint to an existing queue pair.
    pub(super) fn limit_by_hint(&mut self, now: Time, qpn: Qpn) {
        let limit = cap_of(self.hint.in_force()).map(|rate| RateLimit { rate, burst_bytes: None });
        let limited = self.engine.set_rate_limit(now, qpn, LimitSource::Hint, limit);
        limited.expect("the cap was checked before it was in force");
    }

    /// Returns whether a hint limits queue pairs.
    pub(super) fn is_capped_by_hint(&self) -> bool {
        self.hint.in_force().cap_kbps != 0
    }
}

impl Verbs<'_> {
    /// Returns the memory in which the program may set its weight and a rate limit for its queue pairs, by plain
    /// stores. The NIC applies a hint with its next turn: the next [`Nic::progress`] or [`Nic::doorbell`].
    ///
    /// [`Nic::progress`]: super::Nic::progress
    /// [`Nic::doorbell`]: super::Nic::doorbell
    pub fn hint_line(&self) -> &Arc<HintLine> {
        self.device.hint.line()
    }
}

/// Returns the rate limit of a hint, if it has one.
fn cap_of(hint: Hint) -> Option<BitRate> {
    (hint.cap_kbps > 0).then(|| BitRate::bps(u64::from(hint.cap_kbps) * 1_000))
}

#[cfg(test)]
mod tests;
