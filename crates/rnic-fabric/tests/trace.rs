//! Traces for Perfetto: they change nothing, depend only on plan and seed, and their sums are those of the report.

mod common;

use core::ops::ControlFlow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use common::*;
use rnic_fabric::simulation::Traces;
use rnic_fabric::{NodeOrder, Report, Simulation};

/// Fields of a protobuf message: numbers, and the bytes of texts and of messages, by field.
#[derive(Default)]
struct Message<'b> {
    numbers: BTreeMap<u64, Vec<u64>>,
    bytes: BTreeMap<u64, Vec<&'b [u8]>>,
}

impl<'b> Message<'b> {
    fn read(mut bytes: &'b [u8]) -> Self {
        let mut message = Self::default();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            match key & 7 {
                0 => message.numbers.entry(key >> 3).or_default().push(varint(&mut bytes)),
                2 => {
                    let len = varint(&mut bytes) as usize;
                    let (value, rest) = bytes.split_at(len);
                    message.bytes.entry(key >> 3).or_default().push(value);
                    bytes = rest;
                }
                kind => panic!("no field of the trace has the wire type {kind}"),
            }
        }
        message
    }

    fn number(&self, field: u64) -> Option<u64> {
        self.numbers.get(&field).map(|values| values[0])
    }

    fn message(&self, field: u64) -> Option<Message<'b>> {
        self.bytes.get(&field).map(|values| Message::read(values[0]))
    }

    fn messages(&self, field: u64) -> impl Iterator<Item = Message<'b>> {
        self.bytes.get(&field).into_iter().flatten().map(|value| Message::read(value))
    }

    fn text(&self, field: u64) -> String {
        String::from_utf8(self.bytes[&field][0].to_vec()).expect("names are UTF-8")
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

/// A slice or an instant, which has no duration.
#[derive(Clone, Debug)]
struct Entry {
    track: u64,
    from: u64,
    until: u64,
    is_instant: bool,
    depth: usize,
    category: String,
    name: String,
    arguments: BTreeMap<String, u64>,
}

/// A track: its name, and that of its process.
#[derive(Clone, Default, Debug)]
struct TrackInfo {
    parent: Option<u64>,
    name: String,
    is_process: bool,
}

/// A trace as a viewer sees it.
#[derive(Default)]
struct Seen {
    tracks: BTreeMap<u64, TrackInfo>,
    entries: Vec<Entry>,
    /// Values by track.
    counters: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Seen {
    fn read(file: &[u8]) -> Self {
        let mut seen = Self::default();
        let mut texts = BTreeMap::new();
        let mut events = Vec::new();
        for packet in Message::read(file).messages(1) {
            for interned in packet.messages(12) {
                for kind in 1..=3 {
                    for text in interned.messages(kind) {
                        texts.insert((kind, text.number(1).expect("a number")), text.text(2));
                    }
                }
            }
            if let Some(track) = packet.message(60) {
                let process = track.message(3);
                let name = process.as_ref().map_or_else(|| track.text(2), |process| process.text(6));
                let info = TrackInfo { parent: track.number(5), name, is_process: process.is_some() };
                assert!(
                    info.parent.is_none_or(|parent| seen.tracks.contains_key(&parent)),
                    "declared after its parent"
                );
                assert!(seen.tracks.insert(track.number(1).expect("a number"), info).is_none(), "declared twice");
            }
            if let Some(event) = packet.message(11) {
                let at = packet.number(8).expect("an event has a time");
                let text = |kind: u64, field| event.number(field).map(|iid: u64| texts[&(kind, iid)].clone());
                let argument = |value: Message<'_>| (texts[&(3, value.numbers[&1][0])].clone(), value.number(3));
                let arguments = event.messages(4).map(argument);
                let arguments = arguments.filter_map(|(name, value)| Some((name, value?))).collect();
                let number = |field| event.number(field);
                events.push((
                    at,
                    number(9),
                    number(11).expect("a track"),
                    text(1, 3),
                    text(2, 10),
                    arguments,
                    number(30),
                ));
            }
        }
        // A viewer sorts by time, and keeps the order of the file at the same time.
        events.sort_by_key(|event| event.0);
        let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, kind, track, category, name, arguments, value) in events {
            assert!(seen.tracks.contains_key(&track), "an event on an unknown track");
            let stack = open.entry(track).or_default();
            match kind {
                Some(1 | 3) => {
                    let is_instant = kind == Some(3);
                    let (category, name) = (category.expect("a category"), name.expect("a name"));
                    let until = if is_instant { at } else { u64::MAX };
                    let depth = stack.len();
                    seen.entries.push(Entry { track, from: at, until, is_instant, depth, category, name, arguments });
                    if !is_instant {
                        stack.push(seen.entries.len() - 1);
                    }
                }
                Some(2) => {
                    let slice = stack.pop().expect("a slice has begun");
                    seen.entries[slice].until = at;
                }
                Some(4) => seen.counters.entry(track).or_default().push((at, value.expect("a value"))),
                _ => panic!("an event of an unknown type"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "a slice does not end");
        seen
    }

    fn of<'s>(&'s self, category: &'s str) -> impl Iterator<Item = &'s Entry> {
        self.entries.iter().filter(move |entry| entry.category == category)
    }

    fn process(&self, mut track: u64) -> &str {
        while let Some(parent) = self.tracks[&track].parent {
            track = parent;
        }
        assert!(self.tracks[&track].is_process);
        &self.tracks[&track].name
    }
}

fn traced(mut simulation: Simulation) -> (Report, Vec<u8>) {
    let file = Shared::default();
    Traces::of(&mut simulation).write_to(file.clone());
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert!(Traces::of(&mut simulation).take_failure().is_none());
    (report, file.bytes())
}

const LOOP: (&str, &str) =
    ("workload", r#"{ kind = "closed-loop", op = "write", message = "10KB", depth = 4, count = 100 }"#);
const FALCON: (&str, &str) = ("transport", r#"{ name = "falcon" }"#);
const DROPS: (&str, &str) = ("fault", r#"[{ kind = "drop", probability = "1%" }]"#);

/// Groups of traffic in a lossless and in a lossy class.
const CLASSES: &str = r#"
    mtu = 1024
    topology = { kind = "star", hosts = 4 }
    links = { rate = "40Gbps", delay = "1us" }
    switch = { model = "input-queued", buffer = "200KB", pfc = {} }
    transport = { name = "roce-gbn" }
    [classes.lossless]
    [classes.lossy]
    pfc = false
    [traffic.many]
    class = "lossless"
    kind = "incast"
    senders = 3
    bytes = "600KB"
    repeats = 1
    [traffic.others]
    class = "lossy"
    transport = "irn"
    kind = "closed-loop"
    op = "write"
    message = "100KB"
    depth = 4
    count = 5
    clients = 3
    to = 3
"#;

/// Returns the plans of other tests, and some of other transports.
fn all_cases() -> Vec<Case> {
    let mut all = cases();
    let short = r#"{ kind = "poisson", load = "60%", sizes = "irn-heavy-tail", duration = "150us" }"#;
    for (_, text, overrides) in &mut all {
        overrides.extend((*text == TREE).then_some(("workload", short)));
    }
    let trims = ("switch.trim", "{}");
    all.push(("go-back-N", WIRE, vec![("transport", TRANSPORTS[1]), DROPS, LOOP]));
    all.push(("Falcon", WIRE, vec![FALCON, DROPS, LOOP]));
    all.push(("star that trims", STAR, vec![("transport", r#"{ name = "tonic-ndp" }"#), trims]));
    all.push(("encoded", WIRE, vec![("wire", "\"encoded\""), FAULTS]));
    all.push(("classes", CLASSES, Vec::new()));
    all.push(("Falcon, encoded", WIRE, vec![("wire", "\"encoded\""), FALCON, DROPS, LOOP]));
    all
}

/// Neither the trace hash nor the report changes by a trace, and the bytes of a trace depend on neither the order of
/// nodes nor the number of parts.
#[test]
fn a_trace_changes_nothing_and_is_the_same_in_any_order_and_any_parts() {
    for (name, text, overrides) in all_cases() {
        let expected = run(text, &overrides, 1).to_json();
        let (report, forward) = traced(simulation(text, &overrides, 1));
        assert_eq!(report.to_json(), expected, "{name}");
        let mut backwards = simulation(text, &overrides, 1);
        backwards.set_node_order(NodeOrder::Backward);
        let mut in_parts = Simulation::in_parts(&plan(text, &overrides), 1, 2).expect("the plan is valid");
        in_parts.set_runner(Box::new(Threads));
        for other in [backwards, in_parts] {
            assert!(traced(other).1 == forward, "{name}: another trace");
        }
    }
}

/// The sums over a trace are the counters of the report, and slices of a track are within each other or apart.
#[test]
fn sums_of_a_trace_are_the_counters_of_the_report() {
    let mut kinds = BTreeMap::new();
    for (name, text, overrides) in all_cases() {
        let (report, file) = traced(simulation(text, &overrides, 1));
        let seen = Seen::read(&file);
        let count = |category: &str, name: &str| {
            seen.of(category).filter(|entry| name.is_empty() || entry.name == name).count() as u64
        };
        let sent = report.packets_sent + report.packets_retransmitted + report.acks_sent;
        let from_hosts = seen.of("packet").filter(|packet| seen.process(packet.track).starts_with("host-")).count();
        assert_eq!(count("packet", ""), report.packet_hops, "{name}: packets");
        assert_eq!(from_hosts as u64, sent, "{name}: packets of hosts");
        assert_eq!(count("drop", ""), report.packets_dropped, "{name}: drops");
        assert_eq!(count("drop", "lost"), report.drops.fault, "{name}: faults");
        assert_eq!(count("drop", "no buffer"), report.drops.buffer, "{name}: drops of switches");
        assert_eq!(count("mark", ""), report.ecn_marks, "{name}: marks");
        assert_eq!(count("trim", ""), report.trimmed, "{name}: cut packets");
        assert_eq!(count("pause frame", "pause"), report.pauses, "{name}: pauses");
        assert_eq!(count("queue pair", "retransmission"), report.packets_retransmitted, "{name}: retransmissions");
        let timeouts = seen.of("queue pair").filter(|entry| entry.name == "timeout");
        assert_eq!(timeouts.map(|entry| entry.arguments["count"]).sum::<u64>(), report.timeouts, "{name}: timeouts");
        assert_eq!(count("operation", ""), report.messages, "{name}: operations");
        let paused: u64 = seen.of("pause").map(|pause| pause.until - pause.from).sum();
        let error = (paused as f64 / 1e3 - report.pause_time_us).abs();
        assert!(error <= 1e-3 * report.pauses as f64, "{name}: paused {paused} ns, {} us", report.pause_time_us);
        let queue_max = seen.counters.values().flatten().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        assert!(queue_max >= report.queue_max_bytes, "{name}: {queue_max} bytes at most");
        for entry in &seen.entries {
            assert!(entry.from <= entry.until, "{name}: {entry:?}");
            assert!(entry.is_instant || entry.depth == usize::from(entry.category == "part"), "{name}: {entry:?}");
            *kinds.entry(entry.category.clone()).or_insert(0) += 1;
        }
        check_operations(name, &seen);
    }
    for kind in
        ["packet", "drop", "mark", "trim", "pause", "pause frame", "queue pair", "recovery", "operation", "part"]
    {
        assert!(kinds.contains_key(kind), "no trace has a {kind}: {kinds:?}");
    }
}

/// Each operation consists of its parts, and is on a track of a queue pair.
fn check_operations(name: &str, seen: &Seen) {
    let mut parts: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    seen.of("part").for_each(|part| parts.entry(part.track).or_default().push(part));
    for operation in seen.of("operation") {
        let of_track = parts.get(&operation.track).map_or(&[][..], Vec::as_slice);
        let inside = of_track.iter().filter(|part| part.from >= operation.from && part.until <= operation.until);
        let mut at = operation.from;
        for part in inside {
            assert_eq!(part.from, at, "{name}: parts of {operation:?} follow each other: {part:?}");
            at = part.until;
        }
        assert_eq!(at, operation.until, "{name}: the parts are all of {operation:?}");
        let parent = seen.tracks[&operation.track].parent.expect("operations belong to a queue pair");
        assert!(seen.tracks[&parent].name.starts_with("queue pair "), "{name}");
    }
}

/// The parts of each latency add up to it exactly, for transports of every kind and for fetches.
#[test]
fn parts_of_latencies_add_up_to_the_latency() {
    let transports = [r#"{ name = "irn" }"#, r#"{ name = "roce-gbn" }"#, r#"{ name = "fasr" }"#, FALCON.1];
    for transport in transports {
        for op in ["write", "send", "read"] {
            let workload =
                format!(r#"{{ kind = "closed-loop", op = "{op}", message = "10KB", depth = 4, count = 200 }}"#);
            let with = [("transport", transport), ("workload", &workload), ("run.latency_parts", "true"), DROPS];
            let report = run(WIRE, &with, 1);
            let (parts, latency) = (report.latency_parts.expect("it was asked for"), report.latency_us);
            assert_eq!(Some(parts.total_us), latency, "{transport}, {op}");
            let of_parts =
                [parts.admission_us, parts.window_us, parts.wire_us, parts.remote_us, parts.acknowledgement_us];
            let sum: f64 = of_parts.iter().map(|part| part.avg).sum();
            assert!((sum - parts.total_us.avg).abs() < 1e-6, "{transport}, {op}: {sum} of {}", parts.total_us.avg);
            // The wire takes a microsecond each way, and ten packets take 0.8 us.
            for part in [parts.wire_us, parts.acknowledgement_us] {
                assert!(part.p50 >= 1.0 && part.p50 < 6.0, "{transport}, {op}: {parts:?}");
            }
            let mut without = with.to_vec();
            without.remove(2);
            let without = run(WIRE, &without, 1);
            assert_eq!(without.trace_hash, report.trace_hash, "{transport}, {op}");
            assert_eq!(without.latency_parts, None);
        }
    }
}

/// Without waiting there is no part but the wire's, whose times are known.
#[test]
fn an_operation_alone_takes_the_time_of_the_wire() {
    let workload = r#"{ kind = "closed-loop", op = "write", message = "1KB", depth = 1, count = 20 }"#;
    for transport in [r#"{ name = "irn" }"#, r#"{ name = "roce-gbn" }"#] {
        let report = run(WIRE, &[("transport", transport), ("workload", workload), ("run.latency_parts", "true")], 1);
        let parts = report.latency_parts.expect("it was asked for");
        for part in [parts.admission_us, parts.window_us, parts.remote_us] {
            assert_eq!(part.max, 0.0, "{transport}: {parts:?}");
        }
        // A microsecond, and a packet of some 1100 bytes at 100 Gbit/s.
        assert!((1.085..1.1).contains(&parts.wire_us.max), "{transport}: {parts:?}");
        assert!((1.0..1.01).contains(&parts.acknowledgement_us.max), "{transport}: {parts:?}");
    }
}

/// A window of one packet holds an operation of many back, and one behind it waits for it.
#[test]
fn waiting_is_in_the_part_that_waits() {
    let workload = r#"{ kind = "closed-loop", op = "write", message = "1KB", depth = 8, count = 80 }"#;
    let transport = r#"{ name = "irn", cap_packets = 1 }"#;
    let report = run(WIRE, &[("transport", transport), ("workload", workload), ("run.latency_parts", "true")], 1);
    let parts = report.latency_parts.expect("it was asked for");
    // Seven round trips of those before it, the one of the last packet before it, and its own.
    assert!(parts.admission_us.p50 > 10.0, "{parts:?}");
    assert!((1.9..2.3).contains(&parts.window_us.p50), "{parts:?}");
    assert!((1.0..1.2).contains(&parts.wire_us.p50), "{parts:?}");
}

#[test]
fn the_plan_selects_nodes_queue_pairs_and_times() {
    let seen = |overrides: &[(&str, &str)]| Seen::read(&traced(simulation(STAR, overrides, 1)).1);
    let nodes = seen(&[("trace.nodes", "\"host-1\""), ("trace.queue_pairs", "\"host-2>*\"")]);
    assert!(nodes.of("packet").all(|packet| nodes.process(packet.track) == "host-1"));
    assert!(nodes.of("operation").count() > 0);
    assert!(nodes.of("operation").all(|operation| nodes.process(operation.track) == "host-2"));
    let times = seen(&[("trace.from", "\"20us\""), ("trace.until", "\"30us\"")]);
    assert!(times.of("packet").count() > 100);
    assert!(times.entries.iter().all(|entry| (20_000..30_000).contains(&entry.from) || entry.category == "part"));
}

#[test]
fn a_full_trace_ends_and_the_run_goes_on() {
    let expected = run(STAR, &[], 1).trace_hash;
    let (mut simulation, file) = (simulation(STAR, &[("trace.events_max", "1000")], 1), Shared::default());
    Traces::of(&mut simulation).write_to(file.clone());
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    assert_eq!(report.trace_hash, expected);
    let failure = Traces::of(&mut simulation).take_failure().expect("it is full").to_string();
    assert!(failure.starts_with("1000 events are the most"), "{failure}");
    let seen = Seen::read(&file.bytes());
    assert!((400..=1_001).contains(&seen.entries.len()), "{} entries", seen.entries.len());
}

/// A disk without space.
struct FullDisk;

impl Write for FullDisk {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_run() {
    let expected = run(STAR, &[], 1).trace_hash;
    let mut simulation = simulation(STAR, &[], 1);
    Traces::of(&mut simulation).write_to(FullDisk);
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    assert_eq!(report.trace_hash, expected);
    let failure = Traces::of(&mut simulation).take_failure().expect("the disk is full").to_string();
    assert!(failure.contains("no space left on device"), "{failure}");
}
