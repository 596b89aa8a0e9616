//! `dcqcn`: RoCEv2's go-back-N, with a rate that follows congestion notifications.
//!
//! Source: "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM'15) section 3, and its parameter table.
//!
//! Choices: alpha has 16 fractional bits; the rate and alpha timers are separate, and a notification restarts both, as
//! in the hand-written [`crate::control::dcqcn`], which has one timer; the byte counter counts segments;
//! when timer and byte counter expire in the same visit, both rounds are counted, and the rate is raised once; halving
//! the distance to the target rounds up, so that the target is reached. A deadline of zero stands for none;
//! others are odd, so that none of them is zero.

use rnic_program::prelude::*;

rnic_program::transport! {
    /// go-back-N with rates by DCQCN (IBA 9.7.5, SIGCOMM'15)
    program Dcqcn("dcqcn") {
        scheme: rate,
        receiver: drops,
        start: { window: window, rate: line_rate, timer: rto },
    }
    state State {
        /// Rate to which the current one returns.
        target: 23 = line_rate,
        /// Congestion estimate: 65536 is one.
        alpha: 17 = 65536,
        /// Expirations of the rate timer since the last cut.
        timer_rounds: 8,
        /// Expirations of the byte counter since the last cut.
        byte_rounds: 8,
        /// Time of the next decrease of alpha.
        alpha_at: 24 due time,
        /// Time of the next increase of the rate; zero when rate and alpha have recovered.
        rate_at: 24 due time,
        /// Count of sent segments at the next increase of the rate.
        bytes_at: 24 due sent,
    }
    parameters Parameters {
        /// maximum number of outstanding segments, counted from the first unacknowledged one
        window: 9 = 128 [1..=256],
        /// time without progress after which everything outstanding is repeated
        rto: 24 = 320 us,
        /// rate of the link, which simulations set
        line_rate: 23 = 100 gbps [1..=102],
        /// minimum interval of notifications for a connection, sent by the receiver
        cnp_interval: 24 = 50 us,
        /// minimum rate
        rate_min: 23 = 100 mbps [1..=100000],
        /// step of the additive increase
        rate_ai: 23 = 40 mbps [1..=100000],
        /// step of the hyper increase
        rate_hai: 23 = 200 mbps [1..=100000],
        /// period of the rate timer
        rate_timer: 24 = 55 us [1..=1000000],
        /// period without notifications after which alpha decreases
        alpha_timer: 24 = 55 us [1..=1000000],
        /// segments of a round of the byte counter (10 MB of 1000 bytes)
        round_segments: 24 = 10000 [1..=8000000],
        /// number of rounds of fast recovery
        fast_rounds: 8 = 5 [1..=254],
    }
}

#[program]
pub(super) fn incoming(i: &Incoming, p: &Parameters, s: &mut State, a: &mut Actions) {
    a.mark = i.nack && i.next != i.start;
    a.from = i.start;
    a.to = i.next;
    a.restart = i.start != i.old_start;
    if i.cnp {
        let cut = (a.rate.times::<40>(s.alpha) >> 17).to::<23>();
        s.target = a.rate;
        a.rate = (a.rate - cut).max(p.rate_min).min(p.line_rate);
        s.alpha = s.alpha - (s.alpha >> 8) + 256;
        s.timer_rounds = u(0);
        s.byte_rounds = u(0);
        s.alpha_at = (i.now + p.alpha_timer) | 1;
        s.rate_at = (i.now + p.rate_timer) | 1;
        s.bytes_at = (i.total_sent + p.round_segments) | 1;
    }
}

#[program]
pub(super) fn periodic(v: &Periodic, p: &Parameters, s: &mut State, a: &mut Actions) {
    a.mark = v.expired && v.next != v.start;
    a.from = v.start;
    a.to = v.next;
    let active = s.rate_at != 0;
    let is_recovered = a.rate == p.line_rate && s.alpha < 256;
    let timer = active && v.now.at_least(s.rate_at);
    let bytes = active && v.total_sent.at_least(s.bytes_at);
    if active && v.now.at_least(s.alpha_at) {
        s.alpha = s.alpha - (s.alpha >> 8);
        s.alpha_at = (v.now + p.alpha_timer) | 1;
    }
    let slow_timer = s.timer_rounds > p.fast_rounds || (timer && s.timer_rounds == p.fast_rounds);
    let slow_bytes = s.byte_rounds > p.fast_rounds || (bytes && s.byte_rounds == p.fast_rounds);
    if timer {
        s.rate_at = (v.now + p.rate_timer) | 1;
        s.timer_rounds = s.timer_rounds.saturating_add(1);
    }
    if bytes {
        s.bytes_at = (v.total_sent + p.round_segments) | 1;
        s.byte_rounds = s.byte_rounds.saturating_add(1);
    }
    if timer || bytes {
        let step = if slow_timer && slow_bytes {
            p.rate_hai
        } else if slow_timer || slow_bytes {
            p.rate_ai
        } else {
            u(0)
        };
        let target = (s.target.to::<24>() + step.to::<24>()).min(p.line_rate.to::<24>());
        s.target = target.to::<23>();
        a.rate = ((a.rate.to::<24>() + target + 1) >> 1).to::<23>().max(p.rate_min).min(p.line_rate);
    }
    if timer && is_recovered {
        s.alpha_at = u(0);
        s.rate_at = u(0);
        s.bytes_at = u(0);
    }
}
