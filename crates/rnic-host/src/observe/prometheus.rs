//! Snapshots in Prometheus' text exposition format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

use rnic_engine::LatencyHistogram;

use super::fairness::{Fairness, SharedLink, shared_links};
use super::snapshot::{DeviceCounters, FlowSnapshot, QueuePairSnapshot, ShareSnapshot, Snapshot};

/// A metric: name, type, help text, and a function that returns its value. By convention, names end in their unit,
/// and names of counters in `_total`.
type Metric<T> = (&'static str, Kind, &'static str, fn(&T) -> Option<f64>);

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Returns all metrics of `snapshots` in the exposition format.
pub fn exposition(snapshots: &[Snapshot]) -> String {
    let mut text = String::new();
    let devices: Vec<(String, &DeviceCounters)> =
        snapshots.iter().map(|snapshot| (device_labels(snapshot), &snapshot.counters)).collect();
    for metric in DEVICE_METRICS {
        family(&mut text, metric, devices.iter().map(|(labels, counters)| (labels.as_str(), *counters)));
    }
    let states: Vec<(String, &Snapshot)> =
        snapshots.iter().map(|snapshot| (device_labels(snapshot), snapshot)).collect();
    for metric in STATE_METRICS {
        family(&mut text, metric, states.iter().map(|(labels, snapshot)| (labels.as_str(), *snapshot)));
    }
    histogram(&mut text, states.iter().map(|(labels, snapshot)| (labels.as_str(), *snapshot)));
    let shares: Vec<(String, &ShareSnapshot)> =
        snapshots.iter().filter_map(|snapshot| Some((device_labels(snapshot), snapshot.share.as_ref()?))).collect();
    for metric in SHARE_METRICS {
        family(&mut text, metric, shares.iter().map(|(labels, share)| (labels.as_str(), *share)));
    }
    let links = shared_links(snapshots);
    let fairness: Vec<(String, Fairness)> =
        links.iter().filter_map(|link| Some((link_labels(link), link.fairness()?))).collect();
    for metric in FAIRNESS_METRICS {
        family(&mut text, metric, fairness.iter().map(|(labels, fairness)| (labels.as_str(), fairness)));
    }
    let pairs: Vec<(String, &QueuePairSnapshot)> = snapshots
        .iter()
        .flat_map(|snapshot| snapshot.queue_pairs.iter().map(|pair| (pair_labels(snapshot, pair), pair)))
        .collect();
    for metric in PAIR_METRICS {
        family(&mut text, metric, pairs.iter().map(|(labels, pair)| (labels.as_str(), *pair)));
    }
    let with_label = |labels: &str, flow: usize| format!(r#"{labels},flow="{flow}""#);
    let flows: Vec<(String, &FlowSnapshot)> = pairs
        .iter()
        .flat_map(|(labels, pair)| {
            pair.flows.iter().enumerate().map(move |(index, flow)| (with_label(labels, index), flow))
        })
        .collect();
    for metric in FLOW_METRICS {
        family(&mut text, metric, flows.iter().map(|(labels, flow)| (labels.as_str(), *flow)));
    }
    text
}

/// Returns name, type and meaning of every metric that [`exposition`] may contain.
pub fn metrics() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    fn described<T>((name, kind, help, _): &Metric<T>) -> (&'static str, &'static str, &'static str) {
        (name, kind.name(), help)
    }
    let (name, help) = LATENCY_HISTOGRAM;
    let device = DEVICE_METRICS.iter().map(described).chain(STATE_METRICS.iter().map(described));
    let device = device.chain([(name, Kind::Histogram.name(), help)]);
    let device = device.chain(SHARE_METRICS.iter().map(described)).chain(FAIRNESS_METRICS.iter().map(described));
    device.chain(PAIR_METRICS.iter().map(described)).chain(FLOW_METRICS.iter().map(described))
}

/// Writes one metric family: first its header lines, then one line for each item that has a value.
fn family<'a, T: 'a>(text: &mut String, metric: &Metric<T>, of: impl Iterator<Item = (&'a str, &'a T)>) {
    let (name, kind, help, value) = metric;
    let mut is_first = true;
    for (labels, thing) in of {
        let Some(value) = value(thing) else { continue };
        if std::mem::take(&mut is_first) {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
        }
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

/// Writes the histogram of the latencies of each process that measures them.
fn histogram<'a>(text: &mut String, of: impl Iterator<Item = (&'a str, &'a Snapshot)>) {
    let (name, help) = LATENCY_HISTOGRAM;
    let mut is_first = true;
    for (labels, latencies) in of.filter_map(|(labels, of)| Some((labels, of.latencies.as_ref()?))) {
        if std::mem::take(&mut is_first) {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n", Kind::Histogram.name());
        }
        let mut sum = 0_u64;
        for (index, count) in latencies.counts.iter().enumerate() {
            sum = sum.saturating_add(*count);
            if index < LatencyHistogram::BOUNDS {
                let bound = LatencyHistogram::bound(index).as_us_f64() / 1e6;
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}");
            }
        }
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {sum}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", latencies.sum_ns as f64 / 1e9);
        let _ = writeln!(text, "{name}_count{{{labels}}} {sum}");
    }
}

fn device_labels(snapshot: &Snapshot) -> String {
    let Snapshot { device, pid, context, program, transport, .. } = snapshot;
    format!(
        r#"device="{}",pid="{pid}",context="{context}",program="{}",transport="{}""#,
        escaped(device),
        escaped(program),
        escaped(transport)
    )
}

fn pair_labels(snapshot: &Snapshot, pair: &QueuePairSnapshot) -> String {
    format!(
        r#"device="{}",pid="{}",context="{}",program="{}",qp="{}",service="{}",peer="{}""#,
        escaped(&snapshot.device),
        snapshot.pid,
        snapshot.context,
        escaped(&snapshot.program),
        pair.number,
        escaped(&pair.service),
        escaped(&pair.peer)
    )
}

fn link_labels(link: &SharedLink<'_>) -> String {
    format!(r#"device="all",user="{}",link="{}""#, link.user, link.page)
}

/// Returns `text` escaped as a label value.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

const DEVICE_METRICS: &[Metric<DeviceCounters>] = &[
    ("rnic_packets_sent_total", Kind::Counter, "Data packets sent for the first time.", |of| count(of.packets_sent)),
    ("rnic_packets_retransmitted_total", Kind::Counter, "Data packets retransmitted.", |of| {
        count(of.packets_retransmitted)
    }),
    ("rnic_acks_sent_total", Kind::Counter, "Acknowledgements sent.", |of| count(of.acks_sent)),
    ("rnic_packets_received_total", Kind::Counter, "Packets received.", |of| count(of.packets_received)),
    ("rnic_packets_out_of_order_total", Kind::Counter, "Out-of-order packets received and stored.", |of| {
        count(of.packets_out_of_order)
    }),
    ("rnic_packets_duplicate_total", Kind::Counter, "Duplicate packets received.", |of| count(of.packets_duplicate)),
    ("rnic_packets_dropped_total", Kind::Counter, "Packets received and dropped.", |of| count(of.packets_dropped)),
    ("rnic_sent_bytes_total", Kind::Counter, "Bytes of packets sent, over UDP or shared memory.", |of| {
        count(of.bytes_sent)
    }),
    ("rnic_received_bytes_total", Kind::Counter, "Bytes of packets received.", |of| count(of.bytes_received)),
    ("rnic_sent_by_memory_bytes_total", Kind::Counter, "Bytes of packets sent through shared memory.", |of| {
        count(of.bytes_sent_by_memory)
    }),
    ("rnic_timeouts_total", Kind::Counter, "Timeouts that caused a retransmission.", |of| count(of.timeouts)),
    (
        "rnic_timeouts_spurious_total",
        Kind::Counter,
        "Timeouts of these after which packets were acknowledged too soon to have been lost.",
        |of| count(of.timeouts_spurious),
    ),
    ("rnic_nacks_total", Kind::Counter, "Negative acknowledgements received.", |of| count(of.nacks)),
    ("rnic_rnr_naks_sent_total", Kind::Counter, "RNR NAKs sent: no receive was posted.", |of| count(of.rnr_naks_sent)),
    ("rnic_marks_received_total", Kind::Counter, "Packets received with an ECN mark (CE).", |of| {
        count(of.marks_received)
    }),
    ("rnic_cnps_sent_total", Kind::Counter, "Congestion notification packets sent.", |of| count(of.cnps_sent)),
    ("rnic_cnps_received_total", Kind::Counter, "Congestion notification packets received.", |of| {
        count(of.cnps_received)
    }),
    ("rnic_programs_replaced_total", Kind::Counter, "Windows whose program answered outside its contract.", |of| {
        count(of.programs_replaced)
    }),
    ("rnic_datagrams_refused_total", Kind::Counter, "Datagrams that the kernel rejected permanently.", |of| {
        count(of.datagrams_refused)
    }),
    ("rnic_hints_applied_total", Kind::Counter, "Hints of the program that were applied.", |of| {
        count(of.hints_applied)
    }),
    ("rnic_hints_rejected_total", Kind::Counter, "Hints that were invalid or not complete.", |of| {
        count(of.hints_rejected)
    }),
    ("rnic_streams_opened_total", Kind::Counter, "Streams of bytes that were made.", |of| count(of.streams_opened)),
    ("rnic_streams_in_software_total", Kind::Counter, "Streams of these for which no flow id was left.", |of| {
        count(of.streams_in_software)
    }),
    ("rnic_nic_messages_sent_total", Kind::Counter, "Messages sent to the NICs of peers.", |of| {
        count(of.nic_messages_sent)
    }),
    ("rnic_nic_messages_received_total", Kind::Counter, "Messages of the NICs of peers that were accepted.", |of| {
        count(of.nic_messages_received)
    }),
    ("rnic_nic_messages_dropped_total", Kind::Counter, "Messages of the NICs of peers that were dropped.", |of| {
        count(of.nic_messages_dropped)
    }),
    ("rnic_impairment_lost_total", Kind::Counter, "Packets dropped by impairment.", |of| count(of.impairment_lost)),
    ("rnic_impairment_reordered_total", Kind::Counter, "Packets delayed behind later ones by impairment.", |of| {
        count(of.impairment_reordered)
    }),
    ("rnic_impairment_duplicated_total", Kind::Counter, "Packets duplicated by impairment.", |of| {
        count(of.impairment_duplicated)
    }),
    ("rnic_impairment_corrupted_total", Kind::Counter, "Packets corrupted by impairment.", |of| {
        count(of.impairment_corrupted)
    }),
    ("rnic_impairment_trimmed_total", Kind::Counter, "Received packets whose payload impairment cut.", |of| {
        count(of.impairment_trimmed)
    }),
    ("rnic_impairment_marked_total", Kind::Counter, "Received packets that impairment marked.", |of| {
        count(of.impairment_marked)
    }),
];

const STATE_METRICS: &[Metric<Snapshot>] = &[
    ("rnic_capacity_bits_per_second", Kind::Gauge, "Measured rate that schedulers divide among queue pairs.", |of| {
        of.capacity_gbps.map(|gbps| gbps * 1e9)
    }),
    (
        "rnic_host_delay_seconds",
        Kind::Gauge,
        "Mean time that received packets have lately waited until the NIC took them.",
        |of| of.host_delay_us.map(|us| us / 1e6),
    ),
];

/// Name and meaning of the histogram of [`Snapshot::latencies`].
const LATENCY_HISTOGRAM: (&str, &str) =
    ("rnic_operation_seconds", "Time of send requests from post to completion, while latencies are measured.");

const SHARE_METRICS: &[Metric<ShareSnapshot>] = &[
    ("rnic_share_weight", Kind::Gauge, "Weight of the process among those that share the link.", |of| {
        count(of.weight.into())
    }),
    ("rnic_share_bits_per_second", Kind::Gauge, "Share of the link that the process may use.", |of| {
        of.share_gbps.map(|gbps| gbps * 1e9)
    }),
    ("rnic_share_payload_bits_per_second", Kind::Gauge, "Payload rate of the process, over some 200 ms.", |of| {
        Some(of.payload_gbps * 1e9)
    }),
    ("rnic_share_sent_bytes_total", Kind::Counter, "Bytes sent, counting Ethernet framing.", |of| {
        count(of.wire_bytes_sent)
    }),
    ("rnic_share_payload_sent_bytes_total", Kind::Counter, "Payload bytes sent.", |of| count(of.payload_bytes_sent)),
    ("rnic_link_bits_per_second", Kind::Gauge, "Rate of the shared link.", |of| of.link_gbps.map(|gbps| gbps * 1e9)),
    ("rnic_link_waits_total", Kind::Counter, "Waits for space in the queue of the shared link.", |of| {
        count(of.link_waits)
    }),
];

const FAIRNESS_METRICS: &[Metric<Fairness>] = &[(
    "rnic_fairness_jain",
    Kind::Gauge,
    "Jain's index of the payload rates, by weight, of the processes of a user that share a link.",
    |of| Some(of.jain),
)];

const PAIR_METRICS: &[Metric<QueuePairSnapshot>] = &[
    ("rnic_qp_packets_sent_total", Kind::Counter, "Data packets sent for the first time.", |of| count(of.packets_sent)),
    ("rnic_qp_packets_retransmitted_total", Kind::Counter, "Data packets retransmitted.", |of| {
        count(of.packets_retransmitted)
    }),
    ("rnic_qp_packets_received_total", Kind::Counter, "Packets received from the peer and accepted.", |of| {
        count(of.packets_received)
    }),
    (
        "rnic_qp_packets_out_of_order_total",
        Kind::Counter,
        "Out-of-order packets received from the peer and stored.",
        |of| count(of.packets_out_of_order),
    ),
    ("rnic_qp_packets_duplicate_total", Kind::Counter, "Duplicate packets received from the peer.", |of| {
        count(of.packets_duplicate)
    }),
    ("rnic_qp_packets_dropped_total", Kind::Counter, "Packets received from the peer and dropped.", |of| {
        count(of.packets_dropped)
    }),
    ("rnic_qp_rnr_naks_total", Kind::Counter, "RNR NAKs received: the peer had no receive posted.", |of| {
        count(of.rnr_naks)
    }),
    ("rnic_qp_rnr_naks_sent_total", Kind::Counter, "RNR NAKs sent to the peer: no receive was posted.", |of| {
        count(of.rnr_naks_sent)
    }),
    ("rnic_qp_nacks_total", Kind::Counter, "Negative acknowledgements received from the peer.", |of| count(of.nacks)),
    ("rnic_qp_timeouts_total", Kind::Counter, "Timeouts that caused a retransmission.", |of| count(of.timeouts)),
    (
        "rnic_qp_timeouts_spurious_total",
        Kind::Counter,
        "Timeouts of these after which packets were acknowledged too soon to have been lost.",
        |of| count(of.timeouts_spurious),
    ),
    ("rnic_qp_in_flight_packets", Kind::Gauge, "Packets in flight.", |of| count(of.packets_in_flight)),
    ("rnic_qp_window_packets", Kind::Gauge, "Largest number of packets that may be in flight.", |of| {
        of.window_packets.and_then(count)
    }),
    ("rnic_qp_dequeue_bits_per_second", Kind::Gauge, "Dequeue rate in force, if it is limited.", |of| {
        of.dequeue_gbps.map(|gbps| gbps * 1e9)
    }),
    ("rnic_qp_peer_limit_bits_per_second", Kind::Gauge, "Limit by grants or back-pressure of the peer.", |of| {
        of.peer_limit_gbps.map(|gbps| gbps * 1e9)
    }),
    ("rnic_qp_probed_round_trip_seconds", Kind::Gauge, "Round trip of the path by the last probe.", |of| {
        of.probed_round_trip_us.map(|us| us / 1e6)
    }),
    ("rnic_qp_peer_host_delay_seconds", Kind::Gauge, "Host delay of the peer, as it has reported it lately.", |of| {
        of.peer_host_delay_us.map(|us| us / 1e6)
    }),
    ("rnic_qp_dequeue_waits_total", Kind::Counter, "Waits of packets for the dequeue rate.", |of| {
        count(of.dequeue_waits)
    }),
    ("rnic_qp_round_trip_seconds", Kind::Gauge, "Round-trip time measured last.", |of| {
        of.round_trip_us.map(|us| us / 1e6)
    }),
    ("rnic_qp_operations_total", Kind::Counter, "Send requests completed, while latencies are measured.", |of| {
        measured(of, of.operations as f64)
    }),
    ("rnic_qp_admission_seconds_total", Kind::Counter, "Time of these before only the window held them.", |of| {
        measured(of, of.admission_ns as f64 / 1e9)
    }),
    ("rnic_qp_window_seconds_total", Kind::Counter, "Time from then until their first packets were sent.", |of| {
        measured(of, of.window_ns as f64 / 1e9)
    }),
    ("rnic_qp_network_seconds_total", Kind::Counter, "Time from then until they completed.", |of| {
        measured(of, of.network_ns as f64 / 1e9)
    }),
];

/// Returns `value` if latencies are measured.
fn measured(pair: &QueuePairSnapshot, value: f64) -> Option<f64> {
    (pair.operations > 0).then_some(value)
}

const FLOW_METRICS: &[Metric<FlowSnapshot>] = &[
    ("rnic_flow_packets_sent_total", Kind::Counter, "Data packets sent for the first time on a flow.", |of| {
        count(of.packets_sent)
    }),
    ("rnic_flow_packets_retransmitted_total", Kind::Counter, "Data packets retransmitted on a flow.", |of| {
        count(of.packets_retransmitted)
    }),
    ("rnic_flow_path_changes_total", Kind::Counter, "Path changes of a flow.", |of| count(of.path_changes)),
    ("rnic_flow_in_flight_packets", Kind::Gauge, "Packets in flight on a flow.", |of| count(of.packets_in_flight)),
    ("rnic_flow_window_packets", Kind::Gauge, "Window of a flow, in packets.", |of| Some(of.window_packets)),
    ("rnic_flow_round_trip_seconds", Kind::Gauge, "Round-trip time measured last on a flow.", |of| {
        of.round_trip_us.map(|us| us / 1e6)
    }),
];

/// Integers are exact up to 2^53, which no counter in a snapshot reaches.
#[allow(clippy::unnecessary_wraps, reason = "values that may be missing and those that may not share one table")]
fn count(value: u64) -> Option<f64> {
    Some(value as f64)
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::LatencySnapshot;
    use super::*;

    fn snapshot() -> Snapshot {
        let pair = QueuePairSnapshot {
            number: 17,
            service: "RC".to_owned(),
            peer: "192.0.2.1:4800".to_owned(),
            packets_sent: 5,
            round_trip_us: Some(250.0),
            flows: vec![
                FlowSnapshot { packets_sent: 3, window_packets: 0.25, ..FlowSnapshot::default() },
                FlowSnapshot { packets_sent: 2, round_trip_us: Some(90.0), ..FlowSnapshot::default() },
            ],
            ..QueuePairSnapshot::default()
        };
        Snapshot {
            device: "rnic0".to_owned(),
            pid: 4_711,
            program: "a \"b\" \\c".to_owned(),
            share: Some(ShareSnapshot {
                weight: 2,
                link_gbps: Some(2.0),
                payload_gbps: 0.5,
                ..ShareSnapshot::default()
            }),
            counters: DeviceCounters { packets_sent: 9, ..DeviceCounters::default() },
            queue_pairs: vec![pair.clone(), QueuePairSnapshot { number: 18, round_trip_us: None, ..pair }],
            ..Snapshot::default()
        }
    }

    /// Checks the requirements of a scraper: each header occurs once and before its samples, no sample is duplicate,
    /// labels are quoted, and values are numbers.
    fn check_format(text: &str) {
        assert!(text.ends_with('\n') || text.is_empty());
        let (mut family, mut helped, mut seen) = (String::new(), Vec::new(), Vec::new());
        let mut is_histogram = false;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                rest.split_once(' ').expect("a help text").0.clone_into(&mut family);
                assert!(!helped.contains(&family), "{family} is not one group");
                helped.push(family.clone());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(name, family);
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                is_histogram = kind == "histogram";
            } else {
                let (sample, value) = line.rsplit_once(' ').expect("a value");
                value.parse::<f64>().expect("a number");
                let (name, labels) = sample.strip_suffix('}').expect("labels").split_once('{').expect("labels");
                let histogram = ["_bucket", "_sum", "_count"].map(|end| format!("{family}{end}"));
                assert!(name == family || (is_histogram && histogram.contains(&name.to_owned())), "{name}");
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
                assert!(labels.starts_with("device=\"") && labels.ends_with('"'));
                assert!(!seen.contains(&sample.to_owned()), "{sample} is listed twice");
                seen.push(sample.to_owned());
            }
        }
    }

    #[test]
    fn the_exposition_follows_the_prometheus_format() {
        let two = [snapshot(), Snapshot { user: 7, context: 1, ..snapshot() }];
        let text = exposition(&two);
        check_format(&text);
        for line in [
            "# TYPE rnic_packets_sent_total counter",
            r#"rnic_packets_sent_total{device="rnic0",pid="4711",context="0",program="a \"b\" \\c",transport=""} 9"#,
            r#",context="1",program="a \"b\" \\c",transport=""} 2000000000"#,
            r#"rnic_fairness_jain{device="all",user="0",link="0"} 1"#,
            r#"rnic_fairness_jain{device="all",user="7",link="0"} 1"#,
            r#",qp="17",service="RC",peer="192.0.2.1:4800"} 0.00025"#,
            r#",qp="17",service="RC",peer="192.0.2.1:4800",flow="0"} 0.25"#,
            r#",qp="18",service="RC",peer="192.0.2.1:4800",flow="1"} 0.00009"#,
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.matches("rnic_qp_round_trip_seconds{").count(), 2, "wrong number of round trips");
        assert_eq!(exposition(&[]), "");
    }

    /// Buckets are cumulative, the last one is infinite and equal to the count, and processes without measurements
    /// have none.
    #[test]
    fn latencies_are_a_histogram_of_each_process() {
        let mut counts = vec![0; LatencyHistogram::BOUNDS + 1];
        (counts[0], counts[3], counts[LatencyHistogram::BOUNDS]) = (2, 5, 1);
        let latencies = Some(LatencySnapshot { counts, sum_ns: 4_300_000_000 });
        let text = exposition(&[snapshot(), Snapshot { context: 1, latencies, ..snapshot() }]);
        check_format(&text);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("rnic_operation_seconds")).collect();
        assert_eq!(lines.len(), LatencyHistogram::BOUNDS + 3, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains(r#",context="1","#)), "{lines:?}");
        for (line, end) in [
            (0, r#"le="0.000001"} 2"#),
            (2, r#"le="0.000004"} 2"#),
            (3, r#"le="0.000008"} 7"#),
            (LatencyHistogram::BOUNDS - 1, r#"le="4.194304"} 7"#),
            (LatencyHistogram::BOUNDS, r#"le="+Inf"} 8"#),
            (LatencyHistogram::BOUNDS + 1, "} 4.3"),
            (LatencyHistogram::BOUNDS + 2, "} 8"),
        ] {
            assert!(lines[line].ends_with(end), "{} does not end with {end}", lines[line]);
        }
    }
}
