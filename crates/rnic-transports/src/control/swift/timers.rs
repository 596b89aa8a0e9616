//! Times: the gate of one change a round trip, the smoothed round trip, timeouts, the gap between packets.
//!
//! Source: specification 10.3.4 and 10.3.5; paper, sections 4.1 and 4.2 and table 3 (which asks for RACK's and TLP's
//! times, that the specification does not have). RACK: what was sent so long ago that the newest round
//! trip and a quarter of the smoothed one have passed is lost. TLP: two smoothed round trips, and the time for which a
//! receiver may hold an acknowledgement back. A quarter, two and that time are parameters ([`Waits`]).
//!
//! Rounding: the smoothed round trip is kept in whole ticks and stops within two of a constant one (262 ns).

use core::hint::select_unpredictable;

use rnic_policy::Params;
use rnic_policy::control::report::{Gap, InForce, Ticks};

use super::state::WINDOW_ONE;
use super::{REORDER_PERCENT, RTO_MIN, ticks};

/// Before anything was measured every timeout is 1 ms, where the datapath does not begin with another.
pub(in crate::control) const UNMEASURED: Ticks = Ticks::new(7_629);

/// Retransmission timeout in smoothed round trips.
const RTO_FACTOR: u32 = 2;

/// Whether a round trip has passed since `marker`. Always, before one was measured.
#[inline(always)]
pub(super) fn is_gate_open(now: Ticks, marker: Ticks, srtt: Ticks) -> bool {
    (srtt == Ticks::ZERO) | (now.since(marker) >= srtt)
}

/// Keeps `marker` within a round trip of `now`, or at it after a change, so that the circle of 24 bits is never gone
/// round in silence while acknowledgements come.
#[inline(always)]
pub(super) fn settle(marker: &mut Ticks, now: Ticks, srtt: Ticks, changed: bool) {
    let old = select_unpredictable(now.since(*marker) > srtt, now.since(srtt), *marker);
    *marker = select_unpredictable(changed, now, old);
}

/// Three quarters of the old value and one of the new; the first sample counts whole.
#[inline(always)]
pub(in crate::control) fn smooth(srtt: Ticks, rtt: Ticks) -> Ticks {
    let mixed = if srtt == Ticks::ZERO { rtt.get() } else { (3 * srtt.get() + rtt.get() + 2) >> 2 };
    Ticks::new(mixed.max(1))
}

/// What follows a packet while the window is below one: rtt/fcwnd - rtt.
#[inline(always)]
pub(super) fn gap(fcwnd: u32, srtt: Ticks) -> Gap {
    if fcwnd >= WINDOW_ONE {
        return Gap::NONE;
    }
    let fcwnd = u64::from(fcwnd.max(1));
    Gap::of_ticks((u64::from(srtt.get()) * (u64::from(WINDOW_ONE) - fcwnd)).div_ceil(fcwnd))
}

/// What timeouts are computed with; times in ticks.
#[derive(Clone, Copy)]
pub(in crate::control) struct Waits {
    rto_min: u32,
    reorder_percent: u32,
    reorder_min: u32,
    probe_percent: u32,
    probe_extra: u32,
    probe_min: u32,
}

impl Waits {
    /// Swift's.
    #[inline(always)]
    pub(super) fn of(params: &Params) -> Self {
        Self::at(params, RTO_MIN, REORDER_PERCENT)
    }

    /// Of a policy that has the shortest timeout as parameter `rto_min`, and from `reorder` on what it shares with
    /// recovery: [`REORDER`](crate::recovery::rack_tlp::REORDER) and then
    /// [`PROBE`](crate::recovery::rack_tlp::PROBE).
    #[inline(always)]
    pub(in crate::control) fn at(params: &Params, rto_min: usize, reorder: usize) -> Self {
        Self {
            rto_min: ticks(params, rto_min),
            reorder_percent: params.get(reorder) as u32,
            reorder_min: ticks(params, reorder + 1),
            probe_percent: params.get(reorder + 2) as u32,
            probe_extra: ticks(params, reorder + 3),
            probe_min: ticks(params, reorder + 4),
        }
    }

    /// The retransmission timeout; `before` as long as nothing was measured.
    #[inline(always)]
    pub(in crate::control) fn rto(self, srtt: Ticks, gap: Gap, before: Ticks) -> Ticks {
        // 25 bits and 23.
        measured(srtt, (RTO_FACTOR * srtt.get() + gap.ticks() as u32).max(self.rto_min), before)
    }

    /// RACK's timeout of a flow whose newest round trip is `rtt`.
    #[inline(always)]
    pub(in crate::control) fn rack(self, rtt: Ticks, srtt: Ticks, before: Ticks) -> Ticks {
        measured(srtt, rtt.get() + percent(srtt, self.reorder_percent).max(self.reorder_min), before)
    }

    /// The time of inactivity after which a probe is sent.
    #[inline(always)]
    pub(in crate::control) fn tlp(self, srtt: Ticks, before: Ticks) -> Ticks {
        let span = percent(srtt, self.probe_percent) + self.probe_extra;
        measured(srtt, span.max(self.probe_min), before)
    }
}

/// `share` percent of `srtt`, rounded up: 28 bits, as shares are 1600 at most.
#[inline(always)]
fn percent(srtt: Ticks, share: u32) -> u32 {
    let (whole, rest) = (srtt.get() / 100, srtt.get() % 100);
    whole * share + (rest * share).div_ceil(100)
}

/// `span` as a timeout, once there was a sample.
#[inline(always)]
fn measured(srtt: Ticks, span: u32, before: Ticks) -> Ticks {
    let span = span.max(1).min(Ticks::MAX.get());
    Ticks::new(select_unpredictable(srtt == Ticks::ZERO, before.get(), span))
}

/// What timeouts are until there is a sample: what the datapath has now, which it began with.
#[inline(always)]
pub(in crate::control) fn before(in_force: &InForce) -> Ticks {
    if in_force.rto == Ticks::ZERO { UNMEASURED } else { in_force.rto }
}
