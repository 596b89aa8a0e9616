//! Snapshots formatted as tables.

use std::collections::BTreeMap;

use rnic_host::observe::{DeviceCounters, FlowSnapshot, QueuePairSnapshot, Snapshot};
use rnic_page::number;

use crate::table::Fit;
use crate::{fit, table};

/// Formats the rates per second between two snapshots, in lines of at most `columns`.
pub fn rates(before: &[Snapshot], now: &[Snapshot], pairs_max: usize, columns: usize) -> String {
    let mut text = devices(before, now, columns);
    let mut pairs = pairs(before, now);
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.weight));
    let all = pairs.len() as u64 + now.iter().map(|snapshot| snapshot.queue_pairs_omitted).sum::<u64>();
    pairs.truncate(pairs_max);
    let hidden = all - pairs.len() as u64;
    if !pairs.is_empty() {
        text += "\n";
        let (mut rows, mut latencies, mut flows) = (Vec::new(), Vec::new(), Vec::new());
        for pair in pairs {
            rows.push(pair.row);
            latencies.extend(pair.latency);
            flows.extend(pair.flows);
        }
        let tables = [(&PAIRS, rows), (&LATENCIES, latencies), (&FLOWS, flows)];
        for (index, (fit, rows)) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()).enumerate() {
            text += if index > 0 { "\n" } else { "" };
            let (table, omitted) = table::fitted(fit, &rows, columns);
            text += &table;
            text += &omission_note(omitted, columns);
        }
    }
    if hidden > 0 {
        text += &fit::lines(&format!("and {hidden} more queue pairs with fewer packets"), columns);
    }
    text
}

/// Formats the rates of each device, and how each is configured.
pub(super) fn devices(before: &[Snapshot], now: &[Snapshot], columns: usize) -> String {
    if now.is_empty() {
        return fit::lines(NO_PROCESS, columns);
    }
    let devices: Vec<_> = now.iter().map(|new| device_row(earlier(before, new), new)).collect();
    let (mut text, omitted) = table::fitted(&DEVICES, &devices, columns);
    text += &omission_note(omitted, columns);
    text + &device_descriptions(now, columns)
}

/// Returns the rows of all queue pairs.
pub(super) fn pairs(before: &[Snapshot], now: &[Snapshot]) -> Vec<PairRows> {
    let of_device = |new: &'_ Snapshot| -> Vec<PairRows> {
        new.queue_pairs.iter().map(|pair| pair_rows(earlier(before, new), new, pair)).collect()
    };
    now.iter().flat_map(of_device).collect()
}

/// Returns the snapshot among `before` that is of the same device as `new`.
fn earlier<'s>(before: &'s [Snapshot], new: &Snapshot) -> Option<&'s Snapshot> {
    before.iter().find(|old| (old.pid, old.context) == (new.pid, new.context))
}

/// Lists the columns that the table above omits.
pub(super) fn omission_note(omitted: Vec<&str>, columns: usize) -> String {
    let Some((first, others)) = omitted.split_first() else { return String::new() };
    let head = format!("too narrow for: {first}");
    let parts: Vec<String> = [head].into_iter().chain(others.iter().map(|name| (*name).to_owned())).collect();
    fit::list(&parts, columns)
}

/// Formats the totals of the counters, for each device.
pub fn totals(now: &[Snapshot], columns: usize) -> String {
    if now.is_empty() {
        return fit::lines(NO_PROCESS, columns);
    }
    let line = |snapshot: &Snapshot| {
        let Snapshot { device, counters, queue_pairs, .. } = snapshot;
        let replaced = (counters.programs_replaced > 0).then(|| {
            format!("{} windows whose program violated its contract", number::grouped(counters.programs_replaced))
        });
        let parts = [
            process(snapshot),
            format!("{device}: {} queue pairs", queue_pairs.len()),
            format!("{} packets sent", number::grouped(counters.packets_sent + counters.packets_retransmitted)),
            format!("{} of them again", number::grouped(counters.packets_retransmitted)),
        ];
        let parts: Vec<_> = parts.into_iter().chain(replaced).map(|part| fit::printable(&part)).collect();
        fit::list(&parts, columns)
    };
    now.iter().map(line).collect()
}

fn device_row(before: Option<&Snapshot>, now: &Snapshot) -> Vec<String> {
    let none = DeviceCounters::default();
    let (old, new) = (before.map_or(&none, |before| &before.counters), &now.counters);
    let seconds = seconds_between(before, now);
    let per_second = |count: fn(&DeviceCounters) -> u64| rate(count(old), count(new), seconds);
    let gbps = |count: fn(&DeviceCounters) -> u64| number::short(per_second(count) * 8.0 / 1e9);
    let sent = |of: &DeviceCounters| of.packets_sent + of.packets_retransmitted;
    let again = new.packets_retransmitted as f64 / sent(new).max(1) as f64 * 100.0;
    vec![
        process(now),
        gbps(|of| of.bytes_sent),
        gbps(|of| of.bytes_received),
        number::short(per_second(sent)),
        number::short(per_second(|of| of.packets_received)),
        format!("{} ({} %)", number::grouped(new.packets_retransmitted), number::short(again)),
        number::grouped(new.packets_out_of_order),
        number::grouped(new.packets_dropped),
        number::grouped(new.rnr_naks_sent),
        timeouts(new.timeouts, new.timeouts_spurious),
    ]
}

/// Returns the name and id of the process; and the number of its device, if it is not the first.
pub(super) fn process(snapshot: &Snapshot) -> String {
    let Snapshot { program, pid, context, .. } = snapshot;
    let program = fit::printable(program);
    if *context == 0 { format!("{program} ({pid})") } else { format!("{program} ({pid}/{context})") }
}

/// Returns a number of timeouts; and of them, how many were spurious, if any were.
fn timeouts(all: u64, spurious: u64) -> String {
    let all = number::grouped(all);
    if spurious == 0 { all } else { format!("{all} ({} spurious)", number::grouped(spurious)) }
}

/// Returns one text for each process, which describes its device and the impairments that the user has configured.
fn device_descriptions(now: &[Snapshot], columns: usize) -> String {
    let line = |snapshot: &Snapshot| {
        let Snapshot { device, transport, wire, impairment, counters, host_delay_us, capacity_gbps, .. } = snapshot;
        let mut parts = vec![format!("{}: {device}", process(snapshot)), transport.clone(), wire.clone()];
        parts.extend(loaded_programs(snapshot));
        if counters.bytes_sent_by_memory > 0 {
            let share = counters.bytes_sent_by_memory as f64 / counters.bytes_sent.max(1) as f64 * 100.0;
            parts.push(format!("{} % through memory", number::short(share)));
        }
        if counters.marks_received + counters.cnps_sent + counters.cnps_received > 0 {
            let [marks, sent, received] =
                [counters.marks_received, counters.cnps_sent, counters.cnps_received].map(number::grouped);
            parts.push(format!("{marks} marks received, {sent} CNPs sent, {received} received"));
        }
        if let Some(gbps) = capacity_gbps {
            parts.push(format!("schedulers divide {} Gbit/s", number::short(*gbps)));
        }
        if let Some(delay_us) = host_delay_us {
            parts.push(format!("host delay {}", number::micros(*delay_us)));
        }
        if !impairment.is_empty() {
            parts.extend(impairment.iter().cloned());
            parts.push(format!("{} lost on purpose", number::grouped(counters.impairment_lost)));
        }
        fit::list(&parts.iter().map(|part| fit::printable(part)).collect::<Vec<_>>(), columns)
    };
    now.iter().map(line).collect()
}

/// Returns the programs that were loaded from files, and the number of queue pairs in which each decides.
fn loaded_programs(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let mut count_of = BTreeMap::new();
    for program in snapshot.queue_pairs.iter().filter_map(|pair| pair.program.clone()) {
        *count_of.entry(program).or_insert(0_u32) += 1;
    }
    count_of.into_iter().map(|(program, count)| format!("program {program} in {count} queue pairs"))
}

/// A queue pair: process, index of its device, number.
pub(super) type PairKey = (u32, u32, u32);

/// Table rows of a queue pair and its flows, and a weight that states how active it is.
pub(super) struct PairRows {
    pub(super) key: PairKey,
    weight: u64,
    pub(super) row: Vec<String>,
    /// Numbers by which rows are sorted, one for each of [`PAIRS`]' columns; NaN for texts.
    pub(super) numbers: Vec<f64>,
    /// Where its operations have spent their time, if that is measured and some have completed.
    latency: Option<Vec<String>>,
    flows: Vec<Vec<String>>,
}

fn pair_rows(before: Option<&Snapshot>, now: &Snapshot, pair: &QueuePairSnapshot) -> PairRows {
    let old = before.and_then(|before| before.queue_pairs.iter().find(|old| old.number == pair.number));
    let seconds = seconds_between(before, now);
    let sent = |of: &QueuePairSnapshot| of.packets_sent + of.packets_retransmitted;
    let (sent_before, received_before) = old.map_or((0, 0), |old| (sent(old), old.packets_received));
    // Processes of one machine share the port of RoCEv2, so the port is omitted; the QP number identifies the peer.
    let address = pair.peer.strip_suffix(":4791").unwrap_or(&pair.peer);
    let peer = if address.is_empty() { "-".to_owned() } else { format!("{address} {:#x}", pair.peer_number) };
    let window = pair.window_packets.map_or_else(String::new, |window| format!(" / {window}"));
    let out_per_s = rate(sent_before, sent(pair), seconds);
    let in_per_s = rate(received_before, pair.packets_received, seconds);
    let row = vec![
        format!("{} {:#08x}", now.pid, pair.number),
        fit::printable(&format!("{} {}", pair.service, pair.state)),
        fit::printable(&peer),
        number::short(out_per_s),
        number::short(in_per_s),
        number::grouped(pair.packets_retransmitted),
        number::grouped(pair.packets_out_of_order),
        number::grouped(pair.packets_dropped),
        number::grouped(pair.rnr_naks),
        timeouts(pair.timeouts, pair.timeouts_spurious),
        pair.dequeue_gbps.map_or_else(|| "-".to_owned(), number::short),
        format!("{}{window}", pair.packets_in_flight),
        pair.round_trip_us.map_or_else(|| "-".to_owned(), number::micros),
    ];
    let counts =
        [pair.packets_retransmitted, pair.packets_out_of_order, pair.packets_dropped, pair.rnr_naks, pair.timeouts];
    let mut numbers = vec![f64::NAN, f64::NAN, f64::NAN, out_per_s, in_per_s];
    numbers.extend(counts.map(|count| count as f64));
    numbers.extend([
        pair.dequeue_gbps.unwrap_or(0.0),
        pair.packets_in_flight as f64,
        pair.round_trip_us.unwrap_or(0.0),
    ]);
    let weight = (sent(pair) + pair.packets_received).saturating_sub(sent_before + received_before);
    let flow = |(index, flow): (usize, &FlowSnapshot)| {
        let name = format!("{} {:#08x}", now.pid, pair.number);
        flow_row(name, index, old.and_then(|old| old.flows.get(index)), flow, seconds)
    };
    let latency = latency_row(format!("{} {:#08x}", now.pid, pair.number), old, pair, seconds);
    let key = (now.pid, now.context, pair.number);
    PairRows { key, weight, row, numbers, latency, flows: pair.flows.iter().enumerate().map(flow).collect() }
}

/// Returns the average latency of the operations that have completed between two snapshots, and its parts.
fn latency_row(
    name: String,
    old: Option<&QueuePairSnapshot>,
    pair: &QueuePairSnapshot,
    seconds: f64,
) -> Option<Vec<String>> {
    let increase = |count: fn(&QueuePairSnapshot) -> u64| count(pair).saturating_sub(old.map_or(0, count));
    let operations = increase(|of| of.operations);
    let parts = [increase(|of| of.admission_ns), increase(|of| of.window_ns), increase(|of| of.network_ns)];
    let average = |ns: u64| number::micros(ns as f64 / 1e3 / operations as f64);
    (operations > 0).then(|| {
        let mut row = vec![name, number::short(rate(0, operations, seconds)), average(parts.iter().sum())];
        row.extend(parts.map(average));
        row
    })
}

fn flow_row(pair: String, index: usize, old: Option<&FlowSnapshot>, flow: &FlowSnapshot, seconds: f64) -> Vec<String> {
    let sent = |of: &FlowSnapshot| of.packets_sent + of.packets_retransmitted;
    vec![
        pair,
        index.to_string(),
        format!("{:#07x}", flow.label),
        number::short(rate(old.map_or(0, sent), sent(flow), seconds)),
        number::grouped(flow.packets_retransmitted),
        number::grouped(flow.path_changes),
        format!("{} / {}", flow.packets_in_flight, number::short(flow.window_packets)),
        flow.round_trip_us.map_or_else(|| "-".to_owned(), number::micros),
    ]
}

/// Returns the seconds between two snapshots, according to the device's clock.
pub(super) fn seconds_between(before: Option<&Snapshot>, now: &Snapshot) -> f64 {
    let since = before.map_or(0, |before| before.uptime_us);
    now.uptime_us.saturating_sub(since) as f64 / 1e6
}

pub(super) fn rate(before: u64, now: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

/// Device table, with the order in which columns are omitted on a narrow terminal: first those whose values are
/// usually zero, then those that repeat data of other columns.
const DEVICES: Fit<'_> = Fit {
    heads: &[
        "process",
        "Gbit/s out",
        "in",
        "packet/s out",
        "in",
        "retransmitted",
        "out of order",
        "dropped",
        "RNR",
        "timeouts",
    ],
    texts: 1,
    omittable: &[
        (8, "RNR"),
        (6, "out of order"),
        (4, "packet/s in"),
        (3, "packet/s out"),
        (7, "dropped"),
        (9, "timeouts"),
    ],
};
pub(super) const PAIRS: Fit<'_> = Fit {
    heads: &[
        "queue pair",
        "state",
        "peer",
        "packet/s out",
        "in",
        "retx",
        "ooo",
        "dropped",
        "RNR",
        "timeouts",
        "limit Gbit/s",
        "window",
        "RTT",
    ],
    texts: 3,
    omittable: &[
        (8, "RNR"),
        (6, "ooo"),
        (7, "dropped"),
        (10, "limit Gbit/s"),
        (9, "timeouts"),
        (11, "window"),
        (1, "state"),
        (12, "RTT"),
    ],
};
const LATENCIES: Fit<'_> = Fit {
    heads: &["queue pair", "operations/s", "latency", "admission", "window", "network"],
    texts: 1,
    omittable: &[(1, "operations/s")],
};
const FLOWS: Fit<'_> = Fit {
    heads: &["queue pair", "flow", "label", "packet/s out", "retx", "path changes", "window", "RTT"],
    texts: 2,
    omittable: &[(2, "label"), (5, "path changes"), (6, "window")],
};
const NO_PROCESS: &str =
    "No process of yours has opened the software device (in this network namespace); rnic perf has NICs of its own.\n";

#[cfg(test)]
mod tests;
