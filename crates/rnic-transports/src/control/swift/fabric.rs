//! fcwnd: the window of a flow, controlled by its delay.
//!
//! Source: specification 10.3.3; the documentation of [`super`] lists the decisions on contradictions. For each
//! acknowledgement, which covers `n` packets of the flow: up to the target delay, `fcwnd += ai n / fcwnd`, or `ai n`
//! below one packet; above it, at most once a round trip, `fcwnd *= max(1 - md (delay - target) / delay, 1 -
//! max_md)`.
//!
//! Rounding: an increase to the nearest 1/1024 packet; a decrease is smaller than the exact one by less than 1/1024
//! packet and 1/32768 of the window for delays up to 8.6 ms (1/128 for the longest).

use core::hint::select_unpredictable;

use rnic_policy::control::report::Ticks;

use super::quotient::quotient;
use super::state::Flow;
use super::timers;
use super::unit::WINDOW_ONE;

/// Default of the smallest window: 0.01 packets, as 10/1024.
pub(super) const FCWND_MIN: u32 = 10;
/// Multiplicative decrease factor md = 0.8, in 1/1024.
const DECREASE: u32 = 819;
/// Largest cut of a window, max_md = 0.5, as the base-2 logarithm of its inverse.
const DECREASE_MAX_LOG2: u32 = 1;
/// Number of retransmissions of a packet at which the window of its flow is set to the minimum.
const RETRANSMIT_LIMIT: u32 = 3;
/// Denominator of `increase`, which is given in thousandths.
pub(super) const THOUSAND: u64 = 1_000;

/// One measurement, from an acknowledgement or a NACK.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) now: Ticks,
    pub(super) delay: Ticks,
    pub(super) target: Ticks,
    pub(super) changes: WindowChanges,
}

/// Quotients needed for a change of the window.
///
/// Both are computed and one is used: the branch cannot be predicted, and a misprediction costs more than both
/// divisions.
#[derive(Clone, Copy)]
pub(super) struct WindowChanges {
    /// Increase of the window when the delay is not above the target: `ai * acked / fcwnd` packets, or `ai * acked`
    /// below one packet.
    pub(super) up: u32,
    /// 2^32 divided by the delay, for a cut.
    pub(super) inverse: u32,
}

impl WindowChanges {
    /// Computes the quotients for a window `fcwnd`, after `acked` packets of the flow were acknowledged with `delay`.
    #[inline(always)]
    pub(super) fn of(fcwnd: u32, acked: u32, delay: Ticks, increase: u64) -> Self {
        // The largest product is 16 * 1023 packets.
        let most = if increase == THOUSAND {
            acked * WINDOW_ONE
        } else {
            (u64::from(acked) * u64::from(WINDOW_ONE) * increase / THOUSAND) as u32
        };
        // Divides only for a window of one packet or more. 16368 packets in units of 1/1024 have 24 bits; a 32-bit
        // division is several times faster than one of 64 bits.
        let divisor = fcwnd.max(WINDOW_ONE);
        let up = match most.checked_mul(WINDOW_ONE).and_then(|scaled| scaled.checked_add(divisor / 2)) {
            Some(scaled) => scaled / divisor,
            None => ((u64::from(most) * u64::from(WINDOW_ONE) + u64::from(divisor / 2)) / u64::from(divisor)) as u32,
        };
        Self { up, inverse: u32::MAX / divided(delay) }
    }

    /// Computes the same quotients for an additive increase of one packet per round trip, in a form that can be
    /// performed for several connections in parallel.
    #[inline(always)]
    pub(super) fn of_one(fcwnd: u32, acked: u32, delay: Ticks) -> Self {
        let divisor = fcwnd.max(WINDOW_ONE);
        // No overflow: 1023 packets with 20 fractional bits, plus half of 21 bits.
        let up = quotient(acked * WINDOW_ONE * WINDOW_ONE + divisor / 2, divisor);
        Self { up, inverse: quotient(u32::MAX, divided(delay)) }
    }
}

/// Returns the delay as a divisor.
#[inline(always)]
fn divided(delay: Ticks) -> u32 {
    delay.get().max(1)
}

/// Applies `sample`, which is already included in `flow.srtt`, to the window. The window stays between `least` and
/// `largest`.
#[inline(always)]
pub(super) fn adapt(flow: &mut Flow, sample: &Sample, least: u32, largest: u32) {
    let before = flow.fcwnd;
    let is_above = sample.delay > sample.target;
    let cuts = is_above & timers::is_gate_open(sample.now, flow.marker, flow.srtt);
    let cut = before - cut_of(before, sample);
    let above = select_unpredictable(cuts, cut, before);
    flow.fcwnd = select_unpredictable(is_above, above, before + sample.changes.up).max(least).min(largest);
    timers::settle(&mut flow.marker, sample.now, flow.srtt, cuts | (flow.fcwnd == least));
}

/// Returns `fcwnd * min(md * (delay - target) / delay, max_md)`; zero for a delay up to the target.
#[inline(always)]
fn cut_of(fcwnd: u32, sample: &Sample) -> u32 {
    let excess = sample.delay.get().saturating_sub(sample.target.get());
    let share = (u64::from(excess) * u64::from(sample.changes.inverse)) >> 16;
    // No overflow: 21 bits times 10 bits times 17 bits.
    let cut = (u64::from(fcwnd * DECREASE) * (share & u64::from(u32::MAX))) >> (10 + 16);
    (cut as u32).min(fcwnd >> DECREASE_MAX_LOG2)
}

/// Handles the `count`th retransmission of a packet; returns `true` if the window was cut.
#[inline]
pub(super) fn on_loss(flow: &mut Flow, count: u32, is_open: bool, least: u32) -> bool {
    let cut = match count {
        1 => flow.fcwnd - (flow.fcwnd >> DECREASE_MAX_LOG2),
        RETRANSMIT_LIMIT.. => least,
        _ => return false,
    };
    if is_open {
        flow.fcwnd = cut.max(least);
    }
    is_open
}
