//! Times: the gate of one change a round trip, the smoothed round trip, timeouts, the gap between packets.
//!
//! Source: specification 10.3.4 and 10.3.5; paper, sections 4.1 and 4.2 and table 3 (which asks for RACK's and TLP's
//! times, that the specification does not have). RACK: what was sent so long ago that the newest round
//! trip and a quarter of the smoothed one have passed is lost. TLP: two smoothed round trips, and the time for which a
//! receiver may hold an acknowledgement back.
//!
//! Rounding: the smoothed round trip is kept in whole ticks and stops within two of a constant one (262 ns).

use core::hint::select_unpredictable;

use rnic_policy::control::report::{Gap, InForce, Ticks};

use super::state::WINDOW_ONE;

/// Before anything was measured every timeout is 1 ms, where the datapath does not begin with another.
pub(super) const UNMEASURED: Ticks = Ticks::new(7_629);

/// Retransmission timeout in smoothed round trips.
const RTO_FACTOR: u32 = 2;
/// How long a receiver coalesces acknowledgements: 8 us.
const ACK_COALESCING: u32 = 61;
/// `tlp_factor` is given in thousandths.
const WHOLE: u32 = 1_000;

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
pub(super) fn smooth(srtt: Ticks, rtt: Ticks) -> Ticks {
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

/// The retransmission timeout: no less than `least`; `before` as long as nothing was measured.
#[inline(always)]
pub(super) fn rto(srtt: Ticks, gap: Gap, least: u32, before: Ticks) -> Ticks {
    // 25 bits and 23.
    let span = (RTO_FACTOR * srtt.get() + gap.ticks() as u32).max(least).max(1).min(Ticks::MAX.get());
    measured(srtt, span, before)
}

/// `span`, once there was a sample.
#[inline(always)]
fn measured(srtt: Ticks, span: u32, before: Ticks) -> Ticks {
    Ticks::new(select_unpredictable(srtt == Ticks::ZERO, before.get(), span))
}

/// What timeouts are until there is a sample: what the datapath has now, which it began with.
#[inline(always)]
pub(super) fn before(in_force: &InForce) -> Ticks {
    if in_force.rto == Ticks::ZERO { UNMEASURED } else { in_force.rto }
}

/// RACK's timeout of a flow whose newest round trip is `rtt`.
#[inline(always)]
pub(super) fn rack(rtt: Ticks, srtt: Ticks, before: Ticks) -> Ticks {
    // A round trip is less than half of the circle, so this is less than all of it.
    measured(srtt, rtt.get() + srtt.get().div_ceil(4), before)
}

/// The time of inactivity after which a probe is sent.
#[inline(always)]
pub(super) fn tlp(srtt: Ticks, factor: u32, before: Ticks) -> Ticks {
    // srtt * factor / 1000 in 32 bits: the factor is 16,000 at most.
    let (whole, rest) = (srtt.get() / WHOLE, srtt.get() % WHOLE);
    measured(srtt, (whole * factor + rest * factor / WHOLE + ACK_COALESCING).min(Ticks::MAX.get()), before)
}
