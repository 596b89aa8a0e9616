//! Names of the numeric fields of a report.

use super::{
    BusFigures, ClassFigures, CollectiveFigures, Drops, ExecutionFigures, Fairness, FlowFigures, GroupFigures,
    LatencyParts, NicFigures, PacketBufferFigures, PoolFigures, ProcessorFigures, QueuePairs, Recoveries, Report,
    ScrFigures, Slices, Spread, TableFigures, TenantFigures,
};
use crate::falcon_counts::FalconFigures;

impl Report {
    /// Returns the names of the numbers that reports contain, as paths with dots: `goodput_gbps`, `drops.buffer`.
    /// Some are present only in some reports: `nic.miss_share` when the NIC memory is modelled. `*` stands for the name
    /// of a tenant, of a group of traffic, or of a class.
    pub fn numbers() -> Vec<String> {
        let spread = Some(Spread::default());
        let background = FlowFigures {
            flows: 0,
            slowdown: Spread::default(),
            fct_us: Spread::default(),
            single_packet_fct_us: spread,
        };
        let tenant = TenantFigures { latency_us: spread, ..TenantFigures::default() };
        let group = GroupFigures {
            fct_us: spread,
            slowdown: spread,
            latency_us: spread,
            rct_us: spread,
            ..GroupFigures::default()
        };
        let nic = NicFigures {
            tables: Some(TableFigures::default()),
            packet_buffer: Some(PacketBufferFigures::default()),
            ..NicFigures::default()
        };
        let full_report = Self {
            single_packet_fct_us: spread,
            rct_us: spread,
            background: Some(background),
            steady_goodput_gbps: Some(0.0),
            ops_per_s: Some(0.0),
            latency_us: spread,
            latency_parts: Some(LatencyParts::default()),
            queue_pairs: Some(QueuePairs::default()),
            collective: Some(CollectiveFigures::default()),
            execution: Some(ExecutionFigures::default()),
            tenants: Some([("*".to_owned(), tenant)].into()),
            classes: Some([("*".to_owned(), ClassFigures::default())].into()),
            groups: Some([("*".to_owned(), group)].into()),
            fairness: Some(Fairness::default()),
            bus: Some(BusFigures::default()),
            processors: Some(ProcessorFigures::default()),
            slices: Some(Slices::default()),
            drops: Drops::default(),
            nic: Some(nic),
            recoveries: Some(Recoveries::default()),
            pool: Some(PoolFigures::default()),
            falcon: Some(FalconFigures::default()),
            scr: Some(ScrFigures { round_trip_us: spread, ..ScrFigures::default() }),
            cut_at_us: Some(0.0),
            not_begun_from_us: Some(0.0),
            wall_s: Some(0.0),
            ..Self::empty()
        };
        let mut numbers = Vec::new();
        collect(&full_report.to_json(), "", &mut numbers);
        numbers
    }

    /// Returns the names of the series that reports may contain, with one value per slice of a run: paths as in
    /// [`Report::numbers`], with `*` instead of the name of a host, a tenant or a queue pair.
    pub fn series() -> [&'static str; 15] {
        [
            "slices.fairness.goodput_gbps",
            "slices.fairness.jain_queue_pairs",
            "slices.fairness.jain_tenants",
            "slices.hosts.*.goodput_gbps",
            "slices.hosts.*.queue_mean_bytes",
            "slices.queue_pairs.*.control_gbps",
            "slices.queue_pairs.*.dequeue_gbps",
            "slices.queue_pairs.*.goodput_gbps",
            "slices.queue_pairs.*.path_changes",
            "slices.queue_pairs.*.probes.max_us",
            "slices.queue_pairs.*.probes.mean_us",
            "slices.queue_pairs.*.probes.median_us",
            "slices.queue_pairs.*.probes.min_us",
            "slices.queue_pairs.*.probes.spread_us",
            "slices.tenants.*.goodput_gbps",
        ]
    }

    /// Returns whether `path` is one of these series, for any host, tenant or queue pair.
    pub fn is_series(path: &str) -> bool {
        Self::series().into_iter().any(|name| Self::is_instance(path, name))
    }

    /// Returns whether `path` is `name`, a name of [`Report::numbers`] or [`Report::series`], with any name for `*`.
    pub fn is_instance(path: &str, name: &str) -> bool {
        let (path, name) = (path.split('.'), name.split('.'));
        name.clone().count() == path.clone().count() && name.zip(path).all(|(part, other)| part == other || part == "*")
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
    use super::super::{FairnessSlices, HostSlices, ProbeSlices, QueuePairSlices, TenantSlices};
    use super::*;

    /// Every series is a list with one value per slice, and every such list in a report is a series.
    #[test]
    fn every_list_of_a_slice_is_a_series() {
        let name = || "*".to_owned();
        let pair = QueuePairSlices {
            goodput_gbps: Vec::new(),
            dequeue_gbps: Some(Vec::new()),
            control_gbps: Some(Vec::new()),
            path_changes: Some(Vec::new()),
            probes: Some(ProbeSlices::default()),
        };
        let slices = Slices {
            slice_us: 1.0,
            hosts: [(name(), HostSlices::default())].into(),
            tenants: [(name(), TenantSlices::default())].into(),
            queue_pairs: [(name(), pair)].into(),
            fairness: Some(FairnessSlices::default()),
        };
        let slices = serde_json::to_value(slices).expect("slices have a JSON form");
        let mut lists = Vec::new();
        collect_lists(&slices, "slices", &mut lists);
        assert_eq!(lists, Report::series());
        assert!(Report::is_series("slices.tenants.small.goodput_gbps"));
        assert!(Report::is_series("slices.hosts.host-3.goodput_gbps"));
        for path in ["slices.slice_us", "slices.hosts.goodput_gbps", "slices.hosts.a.b.goodput_gbps", "goodput_gbps"] {
            assert!(!Report::is_series(path), "{path}");
        }
    }

    fn collect_lists(value: &serde_json::Value, path: &str, lists: &mut Vec<String>) {
        match value {
            serde_json::Value::Array(_) => lists.push(path.to_owned()),
            serde_json::Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| collect_lists(value, &format!("{path}.{name}"), lists));
            }
            _ => {}
        }
    }

    /// The example report contains every optional part; otherwise `numbers` panics.
    #[test]
    fn numbers_include_every_optional_part() {
        let numbers = Report::numbers();
        for path in
            ["goodput_gbps", "drops.buffer", "trimmed", "nic.miss_share", "recoveries.single_share", "pool.fallbacks"]
        {
            assert!(numbers.iter().any(|number| number == path), "{path}");
        }
        assert!(numbers.iter().any(|number| number == "background.single_packet_fct_us.p99"));
        for path in ["trace_hash", "violations", "nic", "recoveries.by_missed"] {
            assert!(!numbers.iter().any(|number| number == path), "{path} is no number");
        }
    }
}
