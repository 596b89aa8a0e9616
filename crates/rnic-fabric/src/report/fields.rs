//! Names of the numbers in a report.

use super::{Drops, FlowFigures, NicFigures, PoolFigures, QueuePairs, Recoveries, Report, Slices, Spread};
use crate::falcon_counts::FalconFigures;

impl Report {
    /// Returns the numbers that reports contain, as paths with dots: `goodput_gbps`, `drops.buffer`. Some exist only in
    /// some runs: `nic.miss_share` when the NIC memory is modelled.
    pub fn numbers() -> Vec<String> {
        let spread = Some(Spread::default());
        let background = FlowFigures {
            flows: 0,
            slowdown: Spread::default(),
            fct_us: Spread::default(),
            single_packet_fct_us: spread,
        };
        let whole = Self {
            single_packet_fct_us: spread,
            rct_us: spread,
            background: Some(background),
            steady_goodput_gbps: Some(0.0),
            ops_per_s: Some(0.0),
            latency_us: spread,
            queue_pairs: Some(QueuePairs::default()),
            slices: Some(Slices::default()),
            drops: Drops::default(),
            nic: Some(NicFigures::default()),
            recoveries: Some(Recoveries::default()),
            pool: Some(PoolFigures::default()),
            falcon: Some(FalconFigures::default()),
            cut_at_us: Some(0.0),
            not_begun_from_us: Some(0.0),
            wall_s: Some(0.0),
            ..Self::empty()
        };
        let mut numbers = Vec::new();
        collect(&whole.to_json(), "", &mut numbers);
        numbers
    }

    /// Returns the series of numbers, with one value per slice of a run, that reports may contain: as
    /// [`Report::numbers`], with `*` in place of a host's name.
    pub fn series() -> [&'static str; 2] {
        ["slices.hosts.*.goodput_gbps", "slices.hosts.*.queue_mean_bytes"]
    }

    /// Returns whether `path` is one of these series, for any host.
    pub fn is_series(path: &str) -> bool {
        let (path, parts) = (path.split('.'), |name: &'static str| name.split('.'));
        let alike = |name| parts(name).count() == path.clone().count();
        let same = |name| parts(name).zip(path.clone()).all(|(part, other)| part == other || part == "*");
        Self::series().into_iter().any(|name| alike(name) && same(name))
    }
}

fn collect(value: &serde_json::Value, path: &str, numbers: &mut Vec<String>) {
    match value {
        serde_json::Value::Number(_) => numbers.push(path.to_owned()),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect(value, &path, numbers);
            }
        }
        serde_json::Value::Null => unreachable!("`{path}` has no example in `Report::numbers`"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::HostSlices;
    use super::*;

    /// What is called a series is a list with a place for each slice, and there is no other.
    #[test]
    fn series_are_all_that_slices_have() {
        let hosts = [("*".to_owned(), HostSlices::default())].into();
        let slices = serde_json::to_value(Slices { slice_us: 1.0, hosts }).expect("it has a JSON form");
        let names = slices["hosts"]["*"].as_object().expect("fields").keys();
        assert!(names.map(|name| format!("slices.hosts.*.{name}")).eq(Report::series()));
        assert!(Report::is_series("slices.hosts.host-3.goodput_gbps"));
        for path in ["slices.slice_us", "slices.hosts.goodput_gbps", "slices.hosts.a.b.goodput_gbps", "goodput_gbps"] {
            assert!(!Report::is_series(path), "{path}");
        }
        assert!(slices["hosts"]["*"].as_object().expect("fields").values().all(serde_json::Value::is_array));
    }

    /// Every optional part of a report is in the example, or this panics.
    #[test]
    fn numbers_are_those_of_all_parts() {
        let numbers = Report::numbers();
        for path in ["goodput_gbps", "drops.buffer", "nic.miss_share", "recoveries.single_share", "pool.fallbacks"] {
            assert!(numbers.iter().any(|number| number == path), "{path}");
        }
        assert!(numbers.iter().any(|number| number == "background.single_packet_fct_us.p99"));
        for path in ["trace_hash", "violations", "nic", "recoveries.by_missed"] {
            assert!(!numbers.iter().any(|number| number == path), "{path} is no number");
        }
    }
}
