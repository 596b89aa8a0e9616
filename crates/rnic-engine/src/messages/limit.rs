//! The limit that grants and back-pressure of a peer put on the rate of a queue pair.
//!
//! Source: SCR (NSDI'25) section A.8, mechanism S-25 (a sender keeps a granted rate until the next grant) and S-26
//! (a notice halves the rate, which then grows again). The bounds are OpenRNIC's, because the peer may be hostile:
//!
//! - The limit only lowers the rate that the local NIC would use, and never below [`Bounds::floor`].
//! - At most one decrease for each round trip. A lower grant waits until then.
//! - A grant that is not renewed while it is valid fades: the limit grows by a quarter each period until it is gone.
//!   After back-pressure the limit grows by a step each round trip until it is gone, at the latest [`VALID_MAX`] after
//!   the last notice.
//!
//! That messages are applied in the order of their numbers is checked before ([`super::peer`]).

use rnic_base::{BitRate, Duration, Time};
use rnic_wire::scr::{Grant, GrantKind};

/// Minimum of the floor.
pub const FLOOR_MIN: BitRate = BitRate::bps(1_000_000);

/// Maximum time for which a grant is valid, or a notice of back-pressure has an effect, unless it is repeated.
pub const VALID_MAX: Duration = Duration::from_ms(100);

/// Maximum round trip and period: a peer cannot prolong a limit further by delaying its acknowledgements.
pub const INTERVAL_MAX: Duration = Duration::from_ms(100);

/// Bounds of a limit, which the local NIC sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Rate from which on there is no limit.
    capacity: BitRate,
    /// Minimum of the limit.
    floor: BitRate,
    /// Growth after back-pressure in one round trip.
    step: BitRate,
    /// Time in which the limit of an expired grant grows by a quarter.
    period: Duration,
}

impl Bounds {
    /// Growth after back-pressure in one round trip, unless a driver chooses otherwise: 0.05 GB/s.
    pub const STEP: BitRate = BitRate::bps(400_000_000);

    /// Returns the bounds for each of `flows` queue pairs that send to one peer, with a local capacity of `capacity`:
    /// the floor is 1 % of it, divided by the number of queue pairs, and at least [`FLOOR_MIN`].
    #[must_use]
    pub fn shared(capacity: BitRate, flows: u32, step: BitRate, period: Duration) -> Self {
        let floor = BitRate::bps(capacity.as_bps() / 100 / u64::from(flows.max(1)));
        Self::with_floor(capacity, floor, step, period)
    }

    /// Returns bounds with a given floor, but at least [`FLOOR_MIN`].
    #[must_use]
    pub fn with_floor(capacity: BitRate, floor: BitRate, step: BitRate, period: Duration) -> Self {
        let (floor, step) = (floor.max(FLOOR_MIN), step.max(FLOOR_MIN));
        Self { capacity, floor, step, period: interval(period) }
    }
}

/// Limit of one queue pair by messages of its peer.
#[derive(Clone, Copy, Default, Debug)]
pub struct RemoteLimit {
    grant: Option<Granted>,
    pressure: Option<Pressed>,
    /// Time from which the limit may be reduced again.
    may_fall_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    /// Rate limit in force.
    rate: BitRate,
    /// A lower granted rate that is applied after a round trip, and the round trip.
    lower: Option<(BitRate, Duration)>,
    /// Time at which the limit is next raised: first at the end of the grant's validity, then once per period.
    grows_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Pressed {
    rate: BitRate,
    grows_at: Time,
    round_trip: Duration,
    /// Time at which the limit ends in any case, however slowly it grows: the peer determines the round trip, and the
    /// user the step.
    ends_at: Time,
}

impl RemoteLimit {
    /// Applies a grant that arrived at `now`.
    pub fn granted(&mut self, grant: &Grant, round_trip: Duration, now: Time, bounds: &Bounds) {
        self.advance(now, bounds);
        if grant.kind == GrantKind::Lift {
            self.grant = None;
            return;
        }
        let rate = BitRate::bps(u64::from(grant.rate_kbps) * 1_000).max(bounds.floor);
        let grows_at = now + Duration::from_us(u64::from(grant.valid_us)).min(VALID_MAX);
        let in_force = self.grant.map_or(bounds.capacity, |granted| granted.rate);
        self.grant = if rate >= in_force {
            (rate < bounds.capacity).then_some(Granted { rate, lower: None, grows_at })
        } else if now < self.may_fall_at {
            Some(Granted { rate: in_force, lower: Some((rate, interval(round_trip))), grows_at })
        } else {
            self.may_fall_at = now + interval(round_trip);
            Some(Granted { rate, lower: None, grows_at })
        };
    }

    /// Applies a notice of back-pressure. `rate` is the rate of the queue pair at `now`, by this and all local limits.
    pub fn pressed(&mut self, rate: BitRate, round_trip: Duration, now: Time, bounds: &Bounds) {
        self.advance(now, bounds);
        if let Some(pressed) = &mut self.pressure {
            pressed.ends_at = now + VALID_MAX;
        }
        if now >= self.may_fall_at {
            let round_trip = interval(round_trip);
            let rate = self.apply(rate.min(bounds.capacity), bounds);
            let rate = BitRate::bps(rate.as_bps() / 2).max(bounds.floor);
            if rate < bounds.capacity {
                let (grows_at, ends_at) = (now + round_trip, now + VALID_MAX);
                self.pressure = Some(Pressed { rate, grows_at, round_trip, ends_at });
                self.may_fall_at = now + round_trip;
            }
        }
    }

    /// Advances the limit to `now`: it grows after a grant has expired, and after back-pressure.
    pub fn advance(&mut self, now: Time, bounds: &Bounds) {
        if let Some(granted) = &mut self.grant {
            if granted.grows_at <= now {
                granted.lower = None;
            }
            // At most 140 times: from 1 Mbit/s, that many quarters exceed any rate.
            while granted.grows_at <= now && granted.rate < bounds.capacity {
                granted.rate = BitRate::bps((granted.rate.as_bps() / 4).saturating_mul(5));
                granted.grows_at += bounds.period;
            }
            if let Some((lower, round_trip)) = granted.lower.filter(|_| self.may_fall_at <= now) {
                self.may_fall_at = now + round_trip;
                (granted.rate, granted.lower) = (lower, None);
            }
            self.grant = self.grant.filter(|granted| granted.rate < bounds.capacity || granted.lower.is_some());
        }
        self.pressure = self.pressure.filter(|pressed| pressed.ends_at > now);
        if let Some(pressed) = &mut self.pressure
            && pressed.grows_at <= now
        {
            let steps = 1 + now.since(pressed.grows_at).as_ps() / pressed.round_trip.as_ps();
            pressed.rate =
                BitRate::bps(pressed.rate.as_bps().saturating_add(bounds.step.as_bps().saturating_mul(steps)));
            pressed.grows_at += pressed.round_trip.saturating_mul(steps);
            self.pressure = self.pressure.filter(|pressed| pressed.rate < bounds.capacity);
        }
    }

    /// Returns the limit, if there is one; never less than the floor.
    #[must_use]
    pub fn limit(&self, bounds: &Bounds) -> Option<BitRate> {
        let (grant, pressure) = (self.grant.map(|grant| grant.rate), self.pressure.map(|pressed| pressed.rate));
        let lowest = grant.into_iter().chain(pressure).min().filter(|rate| *rate < bounds.capacity);
        lowest.map(|rate| rate.max(bounds.floor))
    }

    /// Returns the rate of a queue pair that may locally send at `local`.
    #[must_use]
    pub fn apply(&self, local: BitRate, bounds: &Bounds) -> BitRate {
        self.limit(bounds).map_or(local, |limit| local.min(limit))
    }

    /// Returns the time at which [`Self::advance`] changes the limit.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let lower = self.grant.and_then(|grant| grant.lower).map(|_| self.may_fall_at);
        let grant = self.grant.map(|grant| grant.grows_at);
        let pressure = self.pressure.map(|pressed| pressed.grows_at.min(pressed.ends_at));
        lower.into_iter().chain(grant).chain(pressure).min()
    }
}

/// Returns an interval that is neither zero, which would make growth infinitely fast, nor above the maximum.
pub(super) fn interval(interval: Duration) -> Duration {
    interval.clamp(Duration::from_us(1), INTERVAL_MAX)
}

#[cfg(test)]
#[path = "limit/tests.rs"]
mod tests;
