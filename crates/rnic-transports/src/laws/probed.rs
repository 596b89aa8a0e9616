//! `probed`: of two labels, the one with the shorter probed round trip.
//!
//! Source: SCR (NSDI'25) appendix A.7, mechanism S-24, as the hand-written [`crate::paths::probed`].
//!
//! Deviations from it: two labels; another path is better when its round trip is shorter by more than an eighth.

use rnic_program::prelude::*;

rnic_program::law! {
    /// the one of two labels with the shorter probed round trip (SCR A.7), as a law
    law Probed("probed") for paths
    state State {
        label0: 16,
        label1: 16,
        /// Smoothed round trips in ns; zero before the first answer.
        rtt0: 24,
        rtt1: 24,
        /// Lost probes in a row.
        lost0: 2,
        lost1: 2,
        /// The second label is in use.
        second: flag,
        /// The second path is probed next.
        next: flag,
        /// Rounds in a row in which the other path was better.
        better: 2,
        /// True while all outstanding packets have to be acknowledged before the path is changed.
        draining: flag,
    }
    parameters Parameters {
        /// time in which each path is probed once
        probe_period: 24 = 20 us [8..=16000],
        /// time after which a probe is lost
        probe_timeout: 24 = 100 us [2..=16000],
    }
}

/// Returns a smoothed round trip, with weight 1/8 of the newest one.
#[program]
fn smooth(old: Span, newest: Span) -> Span {
    let sum = old - (old >> 3) + (newest >> 3);
    let smoothed = if old == 0 { newest } else { sum };
    smoothed.max(u(1))
}

/// The path policy.
#[program]
pub fn decide(e: &PathInput, p: &Parameters, s: &mut State, a: &mut PathOutput) {
    if e.started {
        // Ports of the dynamic range, which differ.
        s.label0 = e.hash.to::<16>() | 0xc000;
        s.label1 = (e.hash.to::<16>() ^ (((e.hash >> 16).to::<16>() & 0x3fff) | 1)) | 0xc000;
        a.label = s.label0;
    }
    if e.tick {
        a.probe = true;
        a.path = s.next.to::<3>();
        a.probed = if s.next { s.label1 } else { s.label0 };
        a.timeout = p.probe_timeout;
        a.tick = p.probe_period >> 1;
        if !s.next {
            let present = if s.second { s.rtt1 } else { s.rtt0 };
            let other = if s.second { s.rtt0 } else { s.rtt1 };
            let is_better = other != 0 && other < present - (present >> 3);
            s.better = if is_better && !s.draining { s.better + 1 } else { u(0) };
            if s.better == 3 {
                s.better = u(0);
                s.draining = true;
                a.drain = true;
            }
        }
        s.next = !s.next;
    }
    if e.answered && e.path == 0 {
        s.rtt0 = smooth(s.rtt0, e.rtt);
        s.lost0 = u(0);
    }
    if e.answered && e.path == 1 {
        s.rtt1 = smooth(s.rtt1, e.rtt);
        s.lost1 = u(0);
    }
    if e.unanswered && e.path == 0 {
        s.lost0 = s.lost0.saturating_add(u(1));
    }
    if e.unanswered && e.path == 1 {
        s.lost1 = s.lost1.saturating_add(u(1));
    }
    let has_failed = if s.second { s.lost1 >= 2 && s.lost0 < 2 } else { s.lost0 >= 2 && s.lost1 < 2 };
    let drained = e.drained && s.draining;
    if (e.unanswered && has_failed) || drained {
        s.second = !s.second;
        s.draining = false;
        s.better = u(0);
        a.relabel = true;
        a.label = if s.second { s.label1 } else { s.label0 };
    }
}
