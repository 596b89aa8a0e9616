//! A simulation's report as text for users.

use rnic_fabric::report::{ClassFigures, CollectiveFigures, ExecutionFigures, Fairness, GroupFigures, TenantFigures};
use rnic_fabric::{FalconFigures, Report};
use rnic_page::number;

use crate::{flows, table};

/// Returns the summary for the terminal.
pub fn text(report: &Report) -> String {
    let mut text = format!("{} (simulated)\n", title(report));
    for (name, value) in facts(report) {
        text += &format!("  {name:<20} {value}\n");
    }
    text += &table::results(&SPREAD_HEADS, spreads(report));
    let tables = [
        (&PART_HEADS[..], latency_parts(report)),
        (&TENANT_HEADS[..], tenants(report)),
        (&GROUP_HEADS[..], groups(report)),
        (&CLASS_HEADS[..], classes(report)),
        (&flows::HEADS[..], flows(report)),
    ];
    for (heads, rows) in tables {
        if !rows.is_empty() {
            text += "\n";
            text += &table::results(heads, rows);
        }
    }
    text
}

/// Returns the title: what was simulated.
pub fn title(report: &Report) -> String {
    let name = if report.plan.is_empty() { "plan" } else { &report.plan };
    let program = report.program.as_ref().zip(report.executor);
    let program = program.map_or_else(String::new, |(name, how)| format!(" with the program {name} ({how})"));
    format!("{name}: {}{program}, seed {}", report.transport, report.seed)
}

/// Returns the names and values of results that are single numbers.
pub fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let count = number::grouped;
    let mut facts = vec![
        ("trace hash", report.trace_hash.clone()),
        ("flows", format!("{} done, {} unfinished", count(report.flows), count(report.flows_unfinished))),
        ("payload", format!("{} in {}", number::size(report.bytes), number::micros(report.elapsed_us))),
        ("goodput", format!("{} Gbit/s, all hosts together", number::short(report.goodput_gbps))),
        ("packets", packets(report)),
        ("dropped", drops(report)),
        ("recovery", format!("{} timeouts, {} NACKs", count(report.timeouts), count(report.nacks))),
        (
            "pauses",
            format!("{}, ports stopped for {} in all", count(report.pauses), number::micros(report.pause_time_us)),
        ),
        ("queues", queues(report)),
        ("ECN marks", count(report.ecn_marks)),
    ];
    facts.extend((report.trimmed > 0).then(|| ("trimmed", count(report.trimmed))));
    facts.extend(report.ops_per_s.map(|ops| ("operations", operations(report, ops))));
    facts.extend(report.collective.map(|figures| ("collective", collective(&figures))));
    facts.extend(report.execution.map(|figures| ("execution", execution(&figures))));
    facts.extend(report.fairness.map(|fairness| ("fairness", fairness_index(&fairness))));
    facts.extend(report.falcon.iter().flat_map(falcon));
    facts.extend(report.cut_at_us.map(|at| ("cut off", cut(report, at))));
    if let Some(wall_s) = report.wall_s {
        let rate = report.packet_hops as f64 / wall_s.max(f64::MIN_POSITIVE) / 1e6;
        let hops = count(report.packet_hops);
        facts.push((
            "simulation",
            format!("{hops} packet hops in {wall_s:.2} s, {} million a second", number::short(rate)),
        ));
    }
    if report.flows > 0 && report.slowdown_avg == 0.0 {
        facts.push(("averages", "none: every flow starts before the end of the warm-up".to_owned()));
    }
    facts.extend(report.warnings.iter().map(|warning| ("warning", warning.clone())));
    facts.push((
        "checks",
        if report.violations.is_empty() { "passed".to_owned() } else { report.violations.join("; ") },
    ));
    facts
}

/// Returns the results that exist only for Falcon.
fn falcon(figures: &FalconFigures) -> [(&'static str, String); 3] {
    let count = number::grouped;
    let [push, request, data, resyncs] =
        [figures.push_data, figures.pull_requests, figures.pull_data, figures.resyncs].map(count);
    let [early, probes, beyond, moves] =
        [figures.early_retransmissions, figures.probes, figures.out_of_window, figures.path_changes].map(count);
    let [resource, not_ready, other, pauses] =
        [figures.resource_nacks, figures.rnr_nacks, figures.other_nacks, figures.pauses].map(count);
    let [contexts, buffers] =
        [figures.contexts_max_share, figures.buffers_max_share].map(|share| number::short(share * 100.0));
    [
        ("Falcon sent", format!("{push} Push Data, {request} Pull Requests, {data} Pull Data, {resyncs} Resyncs")),
        (
            "Falcon recovery",
            format!(
                "{early} fast retransmits, {probes} probes, {beyond} dropped beyond a window, {moves} path changes"
            ),
        ),
        (
            "Falcon resources",
            format!(
                "{resource} NACKs, {not_ready} not ready, {other} of other kinds; {pauses} pauses; \
                 at most {contexts} % of contexts, {buffers} % of buffers"
            ),
        ),
    ]
}

/// Returns an explanation of why payload and goodput may be far below the amount sent or requested.
fn cut(report: &Report, limit_us: f64) -> String {
    let unfinished = (report.flows_unfinished > 0).then(|| {
        format!("{} unfinished flows are not included in payload and goodput", number::grouped(report.flows_unfinished))
    });
    let not_started = report
        .not_begun_from_us
        .map(|from_us| format!("flows that start later, the first at {}, are not included", number::micros(from_us)));
    let left_out: Vec<_> = unfinished.into_iter().chain(not_started).collect();
    format!("the run ended at its limit of {} (run.limit): {}", number::micros(limit_us), left_out.join("; "))
}

/// Returns the number of commands that a drive executed, and its commands per second (IOPS).
fn operations(report: &Report, ops_per_s: f64) -> String {
    let done = number::grouped(report.messages);
    format!("{done} commands; {} a second (IOPS) from the warm-up to the end", number::grouped(ops_per_s as u64))
}

/// Returns the bandwidths that NCCL's tests print.
fn collective(figures: &CollectiveFigures) -> String {
    let [algorithm, bus] = [figures.algbw_gbytes_per_s, figures.busbw_gbytes_per_s].map(number::short);
    format!("{} a rank: algbw {algorithm} GB/s, busbw {bus} GB/s", number::size(figures.bytes))
}

fn execution(figures: &ExecutionFigures) -> String {
    let [nodes, left, collectives] =
        [figures.nodes, figures.nodes_unfinished, figures.collectives].map(number::grouped);
    let [time, compute] = [figures.time_us, figures.compute_us].map(number::micros);
    format!("{nodes} nodes done, {left} unfinished, {collectives} collectives; {time}, without a network {compute}")
}

fn fairness_index(fairness: &Fairness) -> String {
    let [pairs, tenants] = [fairness.jain_queue_pairs, fairness.jain_tenants];
    format!("Jain's index {pairs:.3} of queue pairs, {tenants:.3} of tenants")
}

fn packets(report: &Report) -> String {
    let (sent, again) = (report.packets_sent, report.packets_retransmitted);
    let acks = number::grouped(report.acks_sent);
    format!(
        "{} sent, {} of them retransmissions, {acks} acknowledgements",
        number::grouped(sent + again),
        number::grouped(again)
    )
}

fn drops(report: &Report) -> String {
    let drops = &report.drops;
    let [all, buffer, fault, corrupt] =
        [report.packets_dropped, drops.buffer, drops.fault, drops.corrupt].map(number::grouped);
    format!("{all} packets: {buffer} buffer full, {fault} faults, {corrupt} corrupted")
}

fn queues(report: &Report) -> String {
    let mean = number::short(report.queue_mean_bytes / 1e3);
    format!("at most {} at one output, {mean} kB on average", number::size(report.queue_max_bytes))
}

/// Column heads of [`spreads`].
pub const SPREAD_HEADS: [&str; 5] = ["per flow", "average", "p50", "p99", "p99.9"];

/// Returns the distributions of slowdown, completion times and latencies.
pub fn spreads(report: &Report) -> Vec<Vec<String>> {
    let us = number::micros;
    let slowdowns = [report.slowdown_avg, report.slowdown_p50, report.slowdown_p99];
    let times = [report.fct_avg_us, report.fct_p50_us, report.fct_p99_us];
    // A counted flow never takes less than its ideal time, so an average of zero means that no flow was counted.
    let mut rows = if report.slowdown_avg == 0.0 {
        Vec::new()
    } else {
        vec![
            row("slowdown", slowdowns.map(number::short), None),
            row("flow completion time (FCT)", times.map(us), Some(us(report.fct_p999_us))),
        ]
    };
    let more = [
        ("single-packet FCT", report.single_packet_fct_us),
        ("message latency", report.latency_us),
        ("request or collective (RCT, CCT)", report.rct_us),
        ("background FCT", report.background.map(|background| background.fct_us)),
    ];
    for (name, spread) in more.into_iter().filter_map(|(name, spread)| Some((name, spread?))) {
        rows.push(row(name, [spread.avg, spread.p50, spread.p99].map(us), Some(us(spread.p999))));
    }
    rows
}

/// Column heads of [`latency_parts`].
pub const PART_HEADS: [&str; 5] = ["part of the latency", "average", "p50", "p99", "p99.9"];

/// Returns the distributions of the parts of latencies, if they were measured.
pub fn latency_parts(report: &Report) -> Vec<Vec<String>> {
    let Some(parts) = report.latency_parts else { return Vec::new() };
    let rows = [
        ("admission", parts.admission_us),
        ("window", parts.window_us),
        ("wire", parts.wire_us),
        ("remote NIC", parts.remote_us),
        ("acknowledgement", parts.acknowledgement_us),
        ("all", parts.total_us),
    ];
    let us = number::micros;
    rows.into_iter()
        .map(|(name, part)| row(name, [part.avg, part.p50, part.p99].map(us), Some(us(part.p999))))
        .collect()
}

/// Column heads of [`tenants`].
pub const TENANT_HEADS: [&str; 8] =
    ["tenant", "queue pairs", "goodput Gbit/s", "wire Gbit/s", "messages", "latency average", "p50", "p99"];

/// Returns the results of tenants, when the workload has tenants.
pub fn tenants(report: &Report) -> Vec<Vec<String>> {
    let row = |(name, tenant): (&String, &TenantFigures)| {
        let latency = tenant.latency_us.map(|latency| [latency.avg, latency.p50, latency.p99].map(number::micros));
        let counts = [tenant.queue_pairs, tenant.completions].map(number::grouped);
        let rates = [tenant.goodput_gbps, tenant.wire_gbps].map(number::short);
        let ([pairs, messages], [goodput, wire]) = (counts, rates);
        let mut row = vec![name.clone(), pairs, goodput, wire, messages];
        row.extend(latency.unwrap_or_default());
        row
    };
    report.tenants.iter().flatten().map(row).collect()
}

/// Column heads of [`groups`].
pub const GROUP_HEADS: [&str; 11] = [
    "traffic",
    "transport",
    "class",
    "flows",
    "unfinished",
    "goodput Gbit/s",
    "completion average",
    "p50",
    "p99",
    "retransmitted",
    "timeouts",
];

/// Returns the results of groups of traffic, when the plan has groups. Completion times are those of requests, else of
/// messages, else of flows.
pub fn groups(report: &Report) -> Vec<Vec<String>> {
    let row = |(name, group): (&String, &GroupFigures)| {
        let times = group.rct_us.or(group.latency_us).or(group.fct_us);
        let times = times.map(|times| [times.avg, times.p50, times.p99].map(number::micros)).unwrap_or_default();
        let [flows, unfinished, retransmitted, timeouts] =
            [group.flows, group.flows_unfinished, group.packets_retransmitted, group.timeouts].map(number::grouped);
        let class = group.class.clone().unwrap_or_default();
        let mut row = vec![name.clone(), group.transport.clone(), class, flows, unfinished];
        row.push(number::short(group.goodput_gbps));
        row.extend(times);
        row.extend([retransmitted, timeouts]);
        row
    };
    report.groups.iter().flatten().map(row).collect()
}

/// Column heads of [`classes`].
pub const CLASS_HEADS: [&str; 8] =
    ["class", "packets", "sent", "dropped", "marked", "largest queue", "pauses", "paused"];

/// Returns the results of classes of packets, when the plan has classes.
pub fn classes(report: &Report) -> Vec<Vec<String>> {
    let row = |(name, class): (&String, &ClassFigures)| {
        let [packets, dropped, marked, pauses] =
            [class.packets, class.dropped, class.marked, class.pauses].map(number::grouped);
        let [sent, queue] = [class.wire_bytes, class.queue_max_bytes].map(number::size);
        vec![name.clone(), packets, sent, dropped, marked, queue, pauses, number::micros(class.pause_time_us)]
    };
    report.classes.iter().flatten().map(row).collect()
}

/// Returns the statistics of flows, when Falcon connections have several flows.
pub fn flows(report: &Report) -> Vec<Vec<String>> {
    report.falcon.as_ref().map_or_else(Vec::new, |figures| flows::rows(&figures.flows))
}

fn row(name: &str, values: [String; 3], p999: Option<String>) -> Vec<String> {
    let [average, p50, p99] = values;
    vec![name.to_owned(), average, p50, p99, p999.unwrap_or_default()]
}
