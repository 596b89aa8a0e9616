//! Backpressure: the share of the free resources that a connection may hold (dynamic thresholds).
//!
//! Source: paper, section 4.6: `alpha_c = beta_c alpha`, where `beta_c` is proportional to fcwnd and ncwnd and
//! inversely proportional to fabric delay and buffer occupancy; the paper gives no formula. The public simulator uses
//! `min(1, target/delay, target_level/level)` for requests, the first two terms for responses, half of alpha on
//! retransmissions, and values that are powers of two.
//!
//! The formula here is the simulator's, with an additional term for each of the two windows that the paper mentions:
//! `window / initial window`, where that is below one; responses are not gated by ncwnd (Falcon mechanism F-19), so
//! only fcwnd is used for them. Ratios are rounded down to powers of two of their inverse, that is, alpha is rounded
//! up, as the simulator does; no division is needed.
//!
//! With several flows, delay is that of the flow that reported last, as in the simulator; windows are those of all
//! flows. The share thus depends on the path of the latest report, and one congested path does not permanently reduce
//! the share of the others.
//!
//! A retransmission halves alpha at least: the windows are taken into account then too, and the previous value is
//! retained if it is smaller. The simulator sets half whatever the previous value was, which gives the larger share
//! to a connection the more congested it is. A report of a retransmission contains no delay and no level, so the
//! shares set last are part of the state (in `cc_metadata`, where reports carry the state).

use core::hint::select_unpredictable;

use rnic_policy::Params;
use rnic_policy::control::report::{Alpha, Ticks};

use super::{ALPHA_INDEX, initial_ncwnd, initial_window, rx_target};

const CODE_BITS: u32 = 4;
/// The largest code.
const CODE_MAX: u32 = (1 << CODE_BITS) - 1;

/// Codes (each one more halves the share) for requests and responses.
#[derive(Clone, Copy)]
pub(super) struct Alphas {
    requests: u32,
    responses: u32,
}

/// Returns the share of an uncongested connection.
pub(super) fn base(code: u64) -> Alpha {
    Alpha::code(code as u32)
}

impl Alphas {
    /// Returns the shares according to the values of an acknowledgement.
    #[inline(always)]
    pub(super) fn measured(delay: Ticks, target: Ticks, level: u32, params: &Params) -> Self {
        let code = params.get(ALPHA_INDEX) as u32;
        let by_delay = halvings(delay.get(), target.get());
        let by_level = halvings(level, rx_target(params));
        Self { requests: code + by_delay.max(by_level), responses: code + by_delay }
    }

    /// Returns the shares after a retransmission: half of an uncongested connection's, or the previous ones where
    /// these are smaller.
    pub(super) fn lossy(before: Self, params: &Params) -> Self {
        let code = params.get(ALPHA_INDEX) as u32 + 1;
        Self { requests: before.requests.max(code), responses: before.responses.max(code) }
    }

    /// Returns the shares encoded in [`Alphas::bits`]. Zero, the value before the first report, gives the largest share
    /// for both.
    #[inline(always)]
    pub(super) fn from_bits(bits: u32) -> Self {
        Self { requests: bits & CODE_MAX, responses: bits >> CODE_BITS & CODE_MAX }
    }

    /// Returns both codes in eight bits.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.requests() | self.responses() << CODE_BITS
    }

    /// Reduces the shares in proportion to the windows, where these are below their initial values.
    #[inline(always)]
    pub(super) fn for_windows(self, fcwnd: u32, ncwnd: u32, params: &Params) -> Self {
        let code = params.get(ALPHA_INDEX) as u32;
        let by_fabric = halvings(initial_window(params), fcwnd);
        let by_nic = halvings(initial_ncwnd(params), ncwnd);
        Self {
            requests: self.requests.max(code + by_fabric.max(by_nic)),
            responses: self.responses.max(code + by_fabric),
        }
    }

    #[inline(always)]
    pub(super) fn requests(self) -> u32 {
        self.requests.min(CODE_MAX)
    }

    #[inline(always)]
    pub(super) fn responses(self) -> u32 {
        self.responses.min(CODE_MAX)
    }
}

/// Returns the number of times that `small` can be doubled without exceeding `large`, both below 2^31, but at most
/// 15, which is the largest code; zero when `small` is already larger.
///
/// Uses binary search, and only operations that can be performed for several connections in parallel.
#[inline(always)]
fn halvings(large: u32, small: u32) -> u32 {
    let (mut large, small) = (large.max(1).cast_signed(), small.max(1).cast_signed());
    let mut count = 0;
    for step in [8, 4, 2, 1] {
        let fits = large >> step >= small;
        count = select_unpredictable(fits, count + step, count);
        large = select_unpredictable(fits, large >> step, large);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halvings_round_the_ratio_down_to_a_power_of_two_up_to_fifteen() {
        for large in (0..400).chain([1 << 20, (1 << 24) - 1]) {
            for small in 0..400 {
                let ratio = f64::from(large.max(1)) / f64::from(small.max(1));
                let exact = if ratio < 1.0 { 0 } else { (ratio.log2().floor() as u32).min(15) };
                assert_eq!(halvings(large, small), exact, "{large} / {small}");
            }
        }
    }
}
