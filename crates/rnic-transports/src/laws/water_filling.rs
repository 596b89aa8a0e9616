//! `water-filling`: queue pairs that use their rate get more of it while there is any; the others give it back.
//!
//! Source: SCR (NSDI'25) section 5.1 and mechanisms S-18 to S-21, as the hand-written
//! [`crate::schedule::water_filling`].
//!
//! Deviations from it: use is measured in intervals and not by a moving average; a newcomer always starts with its
//! part by weight; use below 81 % counts as slack, and a quarter of the rate is given back. A rate of `e.rate` units of
//! 65,536 bit/s carries `e.rate` times `t` / 122,070 bytes in `t` nanoseconds.

use rnic_program::prelude::*;

rnic_program::law! {
    /// shares by weight, and what some do not use goes to the others (SCR 5.1), as a law
    law WaterFilling("water-filling") for schedule
    state State {
        /// Start of the interval.
        since: 32,
        /// Bytes sent in it.
        bytes: 24,
        /// Intervals in a row with slack.
        slack: 3,
    }
    parameters Parameters {
        /// interval in which use is measured
        share_interval: 24 = 20 us [1..=1000],
        /// increase an interval (SCR Table 5: 0.05 GB/s)
        share_step: 24 = 400 mbps [1..=100000],
        /// lowest rate (SCR 5.1: 1 Gbit/s, at most the part by weight)
        share_floor: 24 = 1000 mbps [1..=100000],
    }
}

/// The scheduler.
#[program]
pub fn decide(e: &ScheduleInput, p: &Parameters, s: &mut State, a: &mut ScheduleOutput) {
    a.packets = u(1);
    if e.joined {
        s.since = e.now;
        s.bytes = u(0);
        s.slack = u(0);
        a.rate = e.equal.max(u(1));
        a.saturated = false;
    }
    // Packets without data precede the first rate.
    if e.served && e.rate != 0 {
        s.bytes = s.bytes.saturating_add(e.wire_bytes);
        let elapsed = e.last_at - s.since;
        if elapsed >= p.share_interval.to::<32>() {
            let per_byte: U<17> = u(122_070);
            let used = s.bytes.times::<48>(per_byte);
            let allowed = e.rate.times::<48>(elapsed.min(u(16_777_215)).to::<24>());
            let has_slack = used + (allowed >> 3) + (allowed >> 4) < allowed;
            let full = used + (allowed >> 5) >= allowed || (e.held && !has_slack);
            let is_limited = e.permitted != 0 && e.permitted < e.rate;
            a.saturated = full;
            s.slack = if has_slack && !e.held && !is_limited { s.slack + 1 } else { u(0) };
            if full {
                let step = p.share_step.min(e.max_min >> 2).max(u(1));
                if e.rate < e.max_min {
                    a.rate = (e.rate + step).min(e.max_min);
                } else {
                    a.rate = e.rate - ((e.rate - e.max_min) >> 3);
                }
            }
            if s.slack == 4 {
                s.slack = u(0);
                a.rate = (e.rate - (e.rate >> 2)).max(p.share_floor.min(e.equal)).max(u(1));
            }
            s.since = e.last_at;
            s.bytes = u(0);
        }
    }
}
