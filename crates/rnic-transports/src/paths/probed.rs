//! Probed paths: the queue pair uses the one of a few labels whose probed round trip is the shortest.
//!
//! Source: SCR (NSDI'25) appendix A.7, mechanism S-24: paths are UDP source ports; a prober sends a probe on each every
//! period, and a selector uses the best path and leaves one that has failed.
//!
//! Deviations and choices, where the source leaves a choice:
//!
//! * four labels (`paths`) of the dynamic range, drawn from the hash of the connection; the round trip of a path is
//!   smoothed with weight 1/8;
//! * two lost probes in a row mean that a path has failed; three answers in a row that it works again. After eight
//!   lost probes in a row the path gets a new label;
//! * another path is better when its round trip is shorter by more than a tenth in three rounds in a row;
//! * the switch to a better path waits until all packets are acknowledged ([`PathActions::drain`]), so nothing is
//!   reordered; a failed path is left at once, because what was sent on it is lost.

use bytemuck::{Pod, Zeroable};
use rnic_base::Duration;
use rnic_policy::paths::PROBED_MAX;
use rnic_policy::{ParamSpec, Params, PathActions, PathEvent, PathLabel, PathProbe, PathView, Paths};

/// State of the paths of a queue pair.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Probed {
    /// State of the generator of labels.
    random: u64,
    /// Smoothed round trips, in units of 64 ps; 0 before the first answer.
    rtts: [u32; PROBED_MAX],
    labels: [u16; PROBED_MAX],
    /// Lost probes in a row.
    lost: [u8; PROBED_MAX],
    /// Number of consecutive answers on a path that has failed, plus one; 0 for a path that works.
    recovering: [u8; PROBED_MAX],
    /// Index of the path in use.
    current: u8,
    /// Path that is probed next.
    next: u8,
    /// Rounds in a row in which another path was better.
    better_rounds: u8,
    /// Path to switch to when the present one is drained, plus one; 0 for none.
    switching: u8,
    padding: u32,
}

const PATHS_INDEX: usize = 0;
const PERIOD_INDEX: usize = 1;
const TIMEOUT_INDEX: usize = 2;

/// Lost probes in a row after which a path has failed.
const FAILED_AFTER: u8 = 2;
/// Number of consecutive answers after which a failed path is considered working.
const RECOVERED_AFTER: u8 = 3;
/// Number of consecutive lost probes after which a path is assigned another label.
const RELABELLED_AFTER: u8 = 8;
/// Rounds in a row in which a path must be better.
const BETTER_ROUNDS: u8 = 3;

impl Paths for Probed {
    const NAME: &'static str = "probed";
    const SUMMARY: &'static str = "the one of a few labels with the shortest probed round trip (SCR A.7)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec::count("paths", 4, 1, PROBED_MAX as u64, "number of labels"),
        ParamSpec {
            min: Duration::from_us(8).as_ps(),
            ..ParamSpec::duration("probe_period", Duration::from_us(20), "time in which each path is probed once")
        },
        ParamSpec {
            min: Duration::from_us(2).as_ps(),
            ..ParamSpec::duration("probe_timeout", Duration::from_us(100), "time after which a probe is lost")
        },
    ];
    const REORDERS: bool = false;
    const PROBES: bool = true;

    fn start(_: &Params, view: &PathView) -> (Self, PathLabel) {
        let mut state = Self { random: view.flow_hash, ..Self::zeroed() };
        (0..PROBED_MAX).for_each(|path| state.labels[path] = state.draw_label());
        (state, PathLabel(state.labels[0]))
    }

    fn per_packet(_: &Params) -> bool {
        false
    }

    fn on_event(&mut self, event: &PathEvent, _: &PathView, params: &Params) -> PathActions {
        let count = params.get(PATHS_INDEX) as usize;
        match *event {
            PathEvent::Tick => self.probe_next(count, params),
            PathEvent::Probed { path, rtt } if usize::from(path) < count => {
                self.on_answer(usize::from(path), rtt);
                PathActions::default()
            }
            PathEvent::ProbeLost { path } if usize::from(path) < count => self.on_lost(usize::from(path), count),
            PathEvent::Drained if self.switching > 0 => {
                let path = std::mem::take(&mut self.switching) - 1;
                // The path may have failed in the meantime.
                if self.has_failed(usize::from(path)) { PathActions::default() } else { self.use_path(path) }
            }
            _ => PathActions::default(),
        }
    }
}

impl Probed {
    /// Returns a label of the dynamic range of ports.
    fn draw_label(&mut self) -> u16 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.random;
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash >> 48) as u16 | 0xc000
    }

    fn has_failed(&self, path: usize) -> bool {
        self.recovering[path] > 0
    }

    /// Returns the path with the shortest round trip of those that work and have been measured.
    fn best(&self, count: usize) -> Option<usize> {
        let works = |path: &usize| !self.has_failed(*path) && self.rtts[*path] > 0;
        (0..count).filter(works).min_by_key(|path| self.rtts[*path])
    }

    fn use_path(&mut self, path: u8) -> PathActions {
        (self.current, self.better_rounds, self.switching) = (path, 0, 0);
        PathActions { label: Some(PathLabel(self.labels[usize::from(path)])), ..PathActions::default() }
    }

    /// Probes the next path; at the end of a round, compares them.
    fn probe_next(&mut self, count: usize, params: &Params) -> PathActions {
        let path = self.next % count as u8;
        self.next = (path + 1) % count as u8;
        let (period, timeout) = (params.get(PERIOD_INDEX), params.get(TIMEOUT_INDEX));
        let label = PathLabel(self.labels[usize::from(path)]);
        let drain = path == 0 && self.finds_better(count);
        PathActions {
            probe: Some(PathProbe { path, label, timeout: Duration::from_ps(timeout) }),
            tick_after: Some(Duration::from_ps(period / count as u64)),
            drain,
            ..PathActions::default()
        }
    }

    /// Returns whether another path has been better for long enough, and begins to switch to it.
    fn finds_better(&mut self, count: usize) -> bool {
        let (Some(best), false) = (self.best(count), self.switching > 0) else { return false };
        let (shortest, present) = (u64::from(self.rtts[best]), u64::from(self.rtts[usize::from(self.current)]));
        let is_better = best != usize::from(self.current) && present > 0 && shortest * 10 < present * 9;
        self.better_rounds = if is_better { self.better_rounds + 1 } else { 0 };
        if self.better_rounds >= BETTER_ROUNDS {
            self.switching = best as u8 + 1;
            self.better_rounds = 0;
        }
        self.switching > 0
    }

    fn on_answer(&mut self, path: usize, rtt: Duration) {
        let sample = u32::try_from(rtt.as_ps() / 64).unwrap_or(u32::MAX).max(1);
        let before = self.rtts[path];
        self.rtts[path] = if before == 0 {
            sample
        } else if sample > before {
            before + (sample - before) / 8
        } else {
            before - (before - sample) / 8
        };
        self.lost[path] = 0;
        if self.recovering[path] > 0 {
            self.recovering[path] += 1;
            if self.recovering[path] > RECOVERED_AFTER {
                self.recovering[path] = 0;
            }
        }
    }

    fn on_lost(&mut self, path: usize, count: usize) -> PathActions {
        self.lost[path] = self.lost[path].saturating_add(1);
        if self.recovering[path] > 0 {
            self.recovering[path] = 1;
        }
        if self.lost[path] < FAILED_AFTER {
            return PathActions::default();
        }
        self.recovering[path] = self.recovering[path].max(1);
        let best = self.best(count);
        if self.lost[path] >= RELABELLED_AFTER && path != usize::from(self.current) {
            (self.labels[path], self.rtts[path], self.lost[path]) = (self.draw_label(), 0, 0);
        }
        match best {
            Some(best) if path == usize::from(self.current) => self.use_path(best as u8),
            _ => PathActions::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::Time;

    const VIEW: PathView = PathView { now: Time::ZERO, flow_hash: 7 };

    struct Driver {
        state: Probed,
        label: PathLabel,
        params: Params,
    }

    impl Driver {
        fn new() -> Self {
            let params = Params::defaults(Probed::PARAMS);
            let (state, label) = Probed::start(&params, &VIEW);
            Self { state, label, params }
        }

        fn event(&mut self, event: PathEvent) -> PathActions {
            let actions = self.state.on_event(&event, &VIEW, &self.params);
            self.label = actions.label.unwrap_or(self.label);
            actions
        }

        /// Probes each path once; paths with a round trip answer. Returns whether the policy requests a drain.
        fn round(&mut self, rtts_us: [Option<u64>; 4]) -> bool {
            let mut drains = false;
            for (path, rtt) in rtts_us.into_iter().enumerate() {
                let actions = self.event(PathEvent::Tick);
                let probe = actions.probe.expect("a probe in each tick");
                assert_eq!((usize::from(probe.path), probe.label.0), (path, self.state.labels[path]));
                assert_eq!(actions.tick_after, Some(Duration::from_us(5)), "probes are staggered");
                drains |= actions.drain;
                let path = probe.path;
                match rtt {
                    Some(us) => self.event(PathEvent::Probed { path, rtt: Duration::from_us(us) }),
                    None => self.event(PathEvent::ProbeLost { path }),
                };
            }
            drains
        }
    }

    #[test]
    fn s24_labels_are_different_ports_of_the_dynamic_range() {
        let driver = Driver::new();
        let mut labels = driver.state.labels;
        labels.sort_unstable();
        assert!(labels.windows(2).all(|pair| pair[0] < pair[1]) && labels[0] >= 49_152, "{labels:?}");
        assert_eq!(driver.label.0, driver.state.labels[0]);
    }

    #[test]
    fn s24_a_better_path_is_used_after_three_rounds_and_a_drain() {
        let mut driver = Driver::new();
        let rtts = [Some(20), Some(15), Some(19), Some(20)];
        assert!(!driver.round(rtts), "before any round is complete");
        assert!(!driver.round(rtts) && !driver.round(rtts), "too early");
        assert!(driver.round(rtts), "no drain");
        assert_eq!(driver.label.0, driver.state.labels[0], "the label changes before the drain");
        driver.event(PathEvent::Drained);
        assert_eq!(driver.label.0, driver.state.labels[1]);
        assert!(!(0..10).any(|_| driver.round(rtts)), "a switch without reason");
    }

    #[test]
    fn s24_a_path_that_is_better_by_less_than_a_tenth_is_not_used() {
        let mut driver = Driver::new();
        assert!(!(0..20).any(|_| driver.round([Some(20), Some(19), Some(19), Some(20)])));
    }

    #[test]
    fn s24_a_failed_path_is_left_at_once_and_used_again_after_three_answers() {
        let mut driver = Driver::new();
        driver.round([Some(10), Some(20), Some(15), Some(20)]);
        driver.round([None, Some(20), Some(15), Some(20)]);
        assert_eq!(driver.label.0, driver.state.labels[0], "one loss is no failure");
        driver.round([None, Some(20), Some(15), Some(20)]);
        assert_eq!(driver.label.0, driver.state.labels[2], "the best of the others");
        let back = [Some(10), Some(20), Some(15), Some(20)];
        let drains: Vec<bool> = (0..7).map(|_| driver.round(back)).collect();
        // Works after three answers; better in the three rounds after that.
        assert_eq!(drains, [false, false, false, false, false, true, false]);
        driver.event(PathEvent::Drained);
        assert_eq!(driver.label.0, driver.state.labels[0]);
    }

    #[test]
    fn s24_a_path_that_stays_dead_gets_another_label() {
        let mut driver = Driver::new();
        let before = driver.state.labels[3];
        (0..8).for_each(|_| assert!(!driver.round([Some(10), Some(10), Some(10), None])));
        assert_ne!(driver.state.labels[3], before);
    }
}
