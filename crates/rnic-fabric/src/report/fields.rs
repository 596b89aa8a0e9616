//! What a report can be asked for.

use super::{Drops, FalconFigures, FlowFigures, NicFigures, PoolFigures, QueuePairs, Recoveries, Report, Spread};

impl Report {
    /// The numbers that reports have, as paths with dots: `goodput_gbps`, `drops.buffer`. Some are there in some runs
    /// only: `nic.miss_share` where the memory of NICs is modelled.
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
            latency_us: spread,
            queue_pairs: Some(QueuePairs::default()),
            drops: Drops::default(),
            nic: Some(NicFigures::default()),
            recoveries: Some(Recoveries::default()),
            pool: Some(PoolFigures::default()),
            falcon: Some(FalconFigures::default()),
            wall_s: Some(0.0),
            ..Self::empty()
        };
        let mut numbers = Vec::new();
        collect(&whole.to_json(), "", &mut numbers);
        numbers
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
    use super::*;

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
