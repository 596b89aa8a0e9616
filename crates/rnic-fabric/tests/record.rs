//! Time series of a run: they change nothing, depend only on plan and seed, and their sums are those of the report.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::*;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use rnic_fabric::record::{Batch, Metric, Object, ObjectKind, ParquetRecording, RecordError, Recording, Sample};
use rnic_fabric::{NodeOrder, Report, Simulation};

/// A recording in memory.
#[derive(Default)]
struct InMemory {
    objects: Vec<Object>,
    samples: Vec<Sample>,
    is_finished: bool,
}

impl Recording for InMemory {
    fn write(&mut self, objects: &[Object], batch: Batch) -> Result<(), RecordError> {
        self.objects = objects.to_vec();
        assert_eq!(batch.samples().count(), batch.len());
        self.samples.extend(batch.samples());
        Ok(())
    }

    fn finish(&mut self, _: &[Object]) -> Result<(), RecordError> {
        assert!(!self.is_finished, "finished twice");
        self.is_finished = true;
        Ok(())
    }
}

impl InMemory {
    /// Returns the samples of `metric` of objects of `kind`, with the names of the objects.
    fn of(&self, kind: ObjectKind, metric: Metric) -> impl Iterator<Item = (&Object, Sample)> {
        let samples = self.samples.iter().map(|sample| (&self.objects[sample.object as usize], *sample));
        samples.filter(move |(object, sample)| object.kind == kind && sample.metric == metric)
    }

    fn sum(&self, kind: ObjectKind, metric: Metric) -> f64 {
        self.of(kind, metric).map(|(_, sample)| sample.value).sum()
    }

    /// Returns the bytes that arrived for objects of `kind`: rates, times the time since the object's previous sample.
    fn arrived_bytes(&self, kind: ObjectKind) -> BTreeMap<u32, f64> {
        let times: BTreeSet<_> = self.samples.iter().map(|sample| sample.at.as_ps()).collect();
        let mut bytes = BTreeMap::new();
        for (_, sample) in self.of(kind, Metric::Arrived) {
            let before = times.range(..sample.at.as_ps()).next_back().copied().unwrap_or(0);
            let us = (sample.at.as_ps() - before) as f64 / 1e6;
            *bytes.entry(sample.object).or_default() += sample.value * us * 1e3 / 8.0;
        }
        bytes
    }
}

fn record(mut simulation: Simulation) -> (Report, InMemory) {
    simulation.time_series().record_to(InMemory::default());
    let report = simulation.run(&mut |_| core::ops::ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    let (recording, failure) = simulation.time_series().take::<InMemory>().expect("a recording was made");
    assert!(failure.is_none() && recording.is_finished);
    (report, *recording)
}

const RECORD: (&str, &str) = ("record", "{ interval = \"5us\" }");

/// Neither the trace nor the report changes by a recording, and a recording depends on neither the order of nodes nor
/// the number of parts.
#[test]
fn a_recording_changes_nothing_and_is_the_same_in_any_order_and_any_parts() {
    for (name, text, overrides) in cases() {
        let expected = run(text, &overrides, 1).to_json();
        let with: Vec<_> = overrides.iter().copied().chain([RECORD]).collect();
        let (report, forward) = record(simulation(text, &with, 1));
        assert_eq!(report.to_json(), expected, "{name}");
        let mut backwards = simulation(text, &with, 1);
        backwards.set_node_order(NodeOrder::Backward);
        let mut in_parts = Simulation::in_parts(&plan(text, &with), 1, 2).expect("the plan is valid");
        in_parts.set_runner(Box::new(Threads));
        for other in [backwards, in_parts] {
            let (_, other) = record(other);
            assert!(other.samples == forward.samples && other.objects == forward.objects, "{name}");
        }
    }
}

/// The sums over all samples are the counters of the report.
#[test]
fn sums_over_time_are_the_counters_of_the_report() {
    for (name, text, overrides) in cases() {
        let with: Vec<_> = overrides.iter().copied().chain([RECORD]).collect();
        let (report, recording) = record(simulation(text, &with, 1));
        let same = |what: &str, found: f64, expected: u64| {
            assert!((found - expected as f64).abs() < 0.5, "{name}, {what}: {found} and {expected}");
        };
        same("drops", recording.sum(ObjectKind::Switch, Metric::Dropped), report.drops.buffer);
        same("marks", recording.sum(ObjectKind::Switch, Metric::Marked), report.ecn_marks);
        same("faults", recording.sum(ObjectKind::Link, Metric::Lost), report.drops.fault);
        for kind in [ObjectKind::Host, ObjectKind::Flow] {
            let retransmitted = recording.sum(kind, Metric::Retransmitted);
            same("retransmissions", retransmitted, report.packets_retransmitted);
        }
        same("timeouts", recording.sum(ObjectKind::Host, Metric::Timeouts), report.timeouts);
        for kind in [ObjectKind::Host, ObjectKind::Flow, ObjectKind::Traffic] {
            let arrived: f64 = recording.arrived_bytes(kind).values().sum();
            let error = (arrived - report.bytes as f64).abs() / report.bytes as f64;
            assert!(error < 1e-3, "{name}, {kind:?}: {arrived} and {}", report.bytes);
        }
    }
}

/// Links are never used for more than all of the time, a link that carries a stream is used for nearly all of it, and
/// queues are within the buffer.
#[test]
fn shares_are_at_most_one_and_queues_fit_the_buffer() {
    let (report, recording) = record(simulation(STAR, &[RECORD], 1));
    let largest = |kind, metric| recording.of(kind, metric).map(|(_, sample)| sample.value).fold(0.0, f64::max);
    let utilisation = largest(ObjectKind::Link, Metric::Utilisation);
    assert!((0.99..=1.0).contains(&utilisation), "{utilisation}");
    for metric in [Metric::QueueBytes, Metric::QueueMean] {
        let queue = largest(ObjectKind::Link, metric);
        assert!(queue > 10_000.0 && queue <= report.queue_max_bytes as f64, "{metric:?}: {queue}");
    }
    // Five senders of one packet time each: the last link of the incast is busy until the end.
    let to_receiver = |object: &Object| object.name.starts_with("switch>") || object.name.contains(">host-");
    let busiest = recording.of(ObjectKind::Link, Metric::Utilisation).filter(|(_, sample)| sample.value > 0.99);
    assert!(busiest.filter(|(object, _)| to_receiver(object)).count() > 3);
    let window = largest(ObjectKind::Flow, Metric::Window);
    let in_flight = largest(ObjectKind::Flow, Metric::InFlight);
    assert!(in_flight > 1.0 && in_flight <= window, "{in_flight} of {window}");
    assert!(largest(ObjectKind::Flow, Metric::RoundTrip) > 4.0);
    let paused = |overrides: &[(&str, &str)]| {
        let (report, recording) = record(simulation(STAR, &[&[RECORD], overrides].concat(), 1));
        (report.pauses, recording.sum(ObjectKind::Switch, Metric::PausesSent), {
            recording.of(ObjectKind::Link, Metric::Paused).map(|(_, sample)| sample.value).fold(0.0, f64::max)
        })
    };
    let (pauses, recorded, share) = paused(&[("switch.pfc.enabled", "true")]);
    assert!(pauses > 0 && recorded == pauses as f64 && share > 0.1 && share <= 1.0, "{pauses} {recorded} {share}");
    assert_eq!(paused(&[]), (0, 0.0, 0.0));
}

/// Requests and background flows are apart; every flow is an object with its number.
#[test]
fn requests_are_apart_from_background_flows() {
    let workload = r#"{ kind = "incast", senders = 5, bytes = "500KB", repeats = 3, interval = "200us",
        background = { load = "20%", sizes = "irn-heavy-tail", duration = "600us" } }"#;
    let (report, recording) = record(simulation(STAR, &[RECORD, ("workload", workload)], 1));
    let classes = recording.arrived_bytes(ObjectKind::Traffic);
    let named = |name: &str| {
        let object = recording.objects.iter().position(|object| object.name == name).expect("the class exists");
        classes[&(object as u32)]
    };
    let (mut requests, mut background) = (0, 0);
    report.records.iter().for_each(|flow| match flow.request {
        Some(_) => requests += flow.bytes,
        None => background += flow.bytes,
    });
    for (name, bytes) in [("requests", requests), ("background", background)] {
        assert!(bytes > 0 && (named(name) / bytes as f64 - 1.0).abs() < 1e-3, "{name}: {} of {bytes}", named(name));
    }
    let flows: BTreeSet<_> = recording.objects.iter().filter_map(|object| object.flow).collect();
    assert_eq!(flows.len(), report.records.len());
    let by_flow = recording.arrived_bytes(ObjectKind::Flow);
    assert!(by_flow.values().all(|bytes| *bytes > 0.0));
}

/// Falcon's and Tonic's flows are recorded like others; with several flows a queue pair, what arrives for them is the
/// queue pair's.
#[test]
fn every_kind_of_transport_is_recorded() {
    for transport in [r#"{ name = "falcon" }"#, r#"{ name = "tonic-irn", flows = 4 }"#, r#"{ name = "tonic-ndp" }"#] {
        let workload = r#"{ kind = "closed-loop", op = "write", message = "10KB", depth = 8, count = 50 }"#;
        let with = [RECORD, ("transport", transport), ("workload", workload)];
        let (report, recording) = record(simulation(WIRE, &with, 1));
        let arrived: f64 = recording.arrived_bytes(ObjectKind::Host).values().sum();
        let of_traffic: f64 = recording.arrived_bytes(ObjectKind::Traffic).values().sum();
        for found in [arrived, of_traffic] {
            assert!((found / report.bytes as f64 - 1.0).abs() < 1e-3, "{transport}: {found} of {}", report.bytes);
        }
        assert!(recording.of(ObjectKind::Flow, Metric::Window).any(|(_, sample)| sample.value > 0.0), "{transport}");
    }
}

/// Only what the plan names is recorded, at the times that it names.
#[test]
fn the_plan_chooses_what_is_recorded_and_how_often() {
    let what = ("record", r#"{ interval = "7us", what = ["hosts"] }"#);
    let (_, recording) = record(simulation(STAR, &[what], 1));
    assert!(recording.objects.iter().all(|object| object.kind == ObjectKind::Host));
    let times: BTreeSet<_> = recording.samples.iter().map(|sample| sample.at.as_ps()).collect();
    let gaps: Vec<_> = times.iter().zip(times.iter().skip(1)).map(|(a, b)| b - a).collect();
    // A sample is late by at most the delay of a link; the last one is at the end of the run.
    let (_, regular) = gaps.split_last().expect("several samples");
    assert!(regular.iter().all(|gap| (6_000_000..=8_000_000).contains(gap)), "{gaps:?}");
    let mut none = simulation(STAR, &[], 1);
    none.time_series().record_to(InMemory::default());
    assert!(none.time_series().take::<InMemory>().is_none(), "the plan has no recording");
}

/// A file of limited size: writing fails when it is full.
#[derive(Clone)]
struct FullDisk(Arc<Mutex<usize>>);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut left = self.0.lock().expect("no thread has panicked");
        match left.checked_sub(bytes.len()) {
            Some(rest) => {
                *left = rest;
                Ok(bytes.len())
            }
            None => Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A full disk ends the recording, with its reason, and not the run.
#[test]
fn a_full_disk_ends_the_recording_and_not_the_run() {
    let expected = run(STAR, &[], 1).trace_hash;
    let mut simulation = simulation(STAR, &[RECORD], 1);
    simulation
        .time_series()
        .record_to(ParquetRecording::new(FullDisk(Arc::new(Mutex::new(100)))).expect("the head fits"));
    let report = simulation.run(&mut |_| core::ops::ControlFlow::Continue(()));
    assert_eq!(report.trace_hash, expected);
    let (_, failure) = simulation.time_series().take::<ParquetRecording<FullDisk>>().expect("there is a recording");
    let failure = failure.expect("the disk was full").to_string();
    assert!(failure.contains("no space left on device"), "{failure}");
}

/// The file has the same rows as a recording in memory.
#[test]
fn the_file_is_a_long_table_of_the_samples() {
    let (_, mut expected) = record(simulation(STAR, &[RECORD], 1));
    expected.samples.sort_by_key(|sample| (sample.object, sample.metric));
    let (mut simulation, file) = (simulation(STAR, &[RECORD], 1), Shared::default());
    simulation.time_series().record_to(ParquetRecording::new(file.clone()).expect("writing to memory succeeds"));
    simulation.run(&mut |_| core::ops::ControlFlow::Continue(()));
    let (_, failure) = simulation.time_series().take::<ParquetRecording<Shared>>().expect("there is a recording");
    assert!(failure.is_none());
    let reader = SerializedFileReader::new(Bytes::from(file.bytes())).expect("the output is a Parquet file");
    let mut rows = 0;
    for (row, sample) in reader.get_row_iter(None).expect("the file has rows").zip(&expected.samples) {
        let row = row.expect("the row is readable");
        let object = &expected.objects[sample.object as usize];
        assert_eq!(row.get_ulong(0).expect("time"), sample.at.as_ps());
        assert_eq!(row.get_string(1).expect("kind"), object.kind.name());
        assert_eq!(*row.get_string(2).expect("name"), object.name);
        assert_eq!(row.get_uint(3).ok(), object.flow);
        assert_eq!(row.get_string(4).expect("metric"), sample.metric.name());
        assert_eq!(row.get_double(5).expect("value").to_bits(), sample.value.to_bits());
        rows += 1;
    }
    assert_eq!(rows, expected.samples.len());
}

#[test]
fn every_kind_and_metric_is_documented() {
    let page = include_str!("../../../docs/sweeps.md");
    for metric in Metric::ALL {
        let row = format!("| `{}` | {} | {} |", metric.name(), metric.unit(), metric.about());
        assert!(page.contains(&row), "docs/sweeps.md lacks {row}");
    }
    for kind in ObjectKind::ALL {
        assert!(page.contains(&format!("| `{}` |", kind.name())), "docs/sweeps.md lacks {}", kind.name());
    }
}
