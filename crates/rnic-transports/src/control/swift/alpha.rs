//! Backpressure: which share of the free resources a connection may hold (dynamic thresholds).
//!
//! Source: paper, section 4.6: `alpha_c = beta_c alpha`, where `beta_c` is proportional to fcwnd and ncwnd and
//! inversely proportional to fabric delay and buffer occupancy; it gives no formula. The public simulator has `min(1,
//! target/delay, target_level/level)` for requests, the first two for responses, half of alpha on retransmissions, and
//! powers of two.
//!
//! Ours: the simulator's, and for the paper's windows the term `window / initial window` for each of the two, where
//! that is below one; responses are not gated by ncwnd (F-19), so only fcwnd counts for them. Ratios are rounded down
//! to powers of two of their inverse, that is, alpha is rounded up, as the simulator does; no division is needed.

use core::hint::select_unpredictable;

use rnic_policy::control::report::{Alpha, Ticks};
use rnic_policy::Params;

use super::{ALPHA, initial_ncwnd, initial_window, rx_target};

/// The largest code.
const CODE_MAX: u32 = 15;

/// Codes (each one more halves the share) for requests and responses.
#[derive(Clone, Copy)]
pub(super) struct Alphas {
    requests: u32,
    responses: u32,
    /// Not for windows to change.
    is_fixed: bool,
}

/// The share of an uncongested connection.
pub(super) fn base(code: u64) -> Alpha {
    Alpha::code(code as u32)
}

impl Alphas {
    /// By what an acknowledgement says.
    #[inline(always)]
    pub(super) fn measured(delay: Ticks, target: Ticks, level: u32, params: &Params) -> Self {
        let code = params.get(ALPHA) as u32;
        let by_delay = halvings(delay.get(), target.get());
        let by_level = halvings(level, rx_target(params));
        Self { requests: code + by_delay.max(by_level), responses: code + by_delay, is_fixed: false }
    }

    /// After a retransmission: half of an uncongested connection's, whatever the delay.
    #[inline(always)]
    pub(super) fn lossy(params: &Params) -> Self {
        let code = params.get(ALPHA) as u32 + 1;
        Self { requests: code, responses: code, is_fixed: true }
    }

    /// No more than the windows are worth.
    #[inline(always)]
    pub(super) fn for_windows(self, fcwnd: u32, ncwnd: u32, params: &Params) -> Self {
        if self.is_fixed {
            return self;
        }
        let code = params.get(ALPHA) as u32;
        let by_fabric = halvings(initial_window(params), fcwnd);
        let by_nic = halvings(initial_ncwnd(params), ncwnd);
        Self {
            requests: self.requests.max(code + by_fabric.max(by_nic)),
            responses: self.responses.max(code + by_fabric),
            is_fixed: false,
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

/// How often `small` can be doubled without exceeding `large`, both below 2^31, but no more than 15 times, which is all
/// that a code holds; zero when it is larger already.
///
/// By halves, with nothing that is not done to several connections side by side.
#[inline(always)]
fn halvings(large: u32, small: u32) -> u32 {
    let (mut large, small) = (large.max(1).cast_signed(), small.max(1).cast_signed());
    let mut count = 0;
    for step in [8, 4, 2, 1] {
        let still = large >> step >= small;
        count = select_unpredictable(still, count + step, count);
        large = select_unpredictable(still, large >> step, large);
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
