//! A simulation's report as an HTML page.

use rnic_fabric::{FlowRecord, Plan, Report};

use super::summary;
use crate::chart::{Axis, Bar, BarChart, BarGroup, Facts, Figure, Hue, LineChart, Page, Series, Width};
use crate::machine::Machine;
use crate::{flows, number};

/// Source of a report.
#[derive(Debug)]
pub struct Source<'s> {
    /// Plan that ran.
    pub plan: &'s Plan,
    /// Text of the plan file.
    pub text: &'s str,
    /// Command that repeats the run.
    pub command: &'s str,
    /// Machine on which it ran.
    pub machine: &'s Machine,
}

/// Returns the HTML page.
pub fn page(source: &Source<'_>, report: &Report) -> String {
    let verdict = if report.violations.is_empty() { "every check passed" } else { "CHECKS FAILED" };
    let mut figures = Vec::new();
    if !report.records.is_empty() {
        figures.extend([slowdowns(report), completion_times(source.plan, report), by_size(report)]);
    }
    figures.extend([losses(report), queues(source.plan, report)]);
    let page = Page {
        title: summary::title(report),
        kicker: format!("OpenRNIC simulation: {}", summary::title(report)),
        headline: headline(report),
        lead: format!(
            "{} of simulated time, {} flows, {}; {verdict}. Slowdown is a flow's completion time over the time that it \
             would take in an empty network.",
            number::micros(report.simulated_us),
            number::grouped(report.flows),
            number::size(report.bytes),
        ),
        figures,
        facts: facts(source, report),
    };
    page.to_html()
}

fn headline(report: &Report) -> String {
    format!(
        "Average slowdown {}, average completion time {}, 99th percentile {}",
        number::short(report.slowdown_avg),
        number::micros(report.fct_avg_us),
        number::micros(report.fct_p99_us)
    )
}

/// Returns the cumulative distribution of `values`: for each of them, the percentage that is at or below it.
fn cumulative(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len() as f64;
    values.into_iter().zip(1u32..).map(|(value, rank)| (value, f64::from(rank) / count * 100.0)).collect()
}

fn distribution(title: &str, axis: &str, lines: Vec<(String, Hue, Vec<f64>)>) -> LineChart {
    let lines: Vec<_> = lines.into_iter().filter(|(.., values)| !values.is_empty()).collect();
    let all = || lines.iter().flat_map(|(.., values)| values.iter().copied());
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let line = |(label, hue, values)| Series { label, hue, is_dashed: false, points: cumulative(values) };
    LineChart {
        description: format!("{title}: share of flows at or below a value"),
        title: title.to_owned(),
        x: Axis::decades(axis, least, most),
        y: Axis { label: "% of flows".to_owned(), from: 0.0, to: 100.0, is_log: false },
        series: lines.into_iter().map(line).collect(),
        size: (460.0, 310.0),
    }
}

fn slowdowns(report: &Report) -> Figure {
    let values: Vec<f64> = report.records.iter().map(FlowRecord::slowdown).collect();
    let chart = distribution("All flows", "slowdown, logarithmic", vec![(String::new(), Hue::Cool, values)]);
    Figure {
        title: "Slowdown".to_owned(),
        caption: "Share of flows that were slowed down by no more than so much; 1 is an empty network.".to_owned(),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn completion_times(plan: &Plan, report: &Report) -> Figure {
    let single = u64::from(plan.mtu);
    let times = |is_mine: &dyn Fn(&FlowRecord) -> bool| -> Vec<f64> {
        report.records.iter().filter(|flow| is_mine(flow)).map(|flow| flow.fct.as_us_f64()).collect()
    };
    let lines = vec![
        ("one packet".to_owned(), Hue::Cool, times(&|flow| flow.bytes <= single)),
        ("more".to_owned(), Hue::Warm, times(&|flow| flow.bytes > single)),
    ];
    Figure {
        title: "Flow completion time".to_owned(),
        caption: "Flows of one packet apart from larger ones: the small ones feel queues, the large ones bandwidth."
            .to_owned(),
        width: Width::Half,
        pictures: vec![distribution("By size", "microseconds, logarithmic", lines).draw()],
    }
}

/// Number of equal parts into which the flows, sorted by size, are divided.
const SIZE_CLASSES: usize = 20;

/// Returns the figure with the median and 99th percentile of slowdown for each class of flow sizes, drawn at the
/// largest size of the class.
fn by_size(report: &Report) -> Figure {
    let mut flows: Vec<(u64, f64)> = report.records.iter().map(|flow| (flow.bytes.max(1), flow.slowdown())).collect();
    flows.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut median, mut tail) = (Vec::new(), Vec::new());
    for class in flows.chunks(flows.len().div_ceil(SIZE_CLASSES).max(1)) {
        let mut slowdowns: Vec<f64> = class.iter().map(|(_, slowdown)| *slowdown).collect();
        slowdowns.sort_unstable_by(f64::total_cmp);
        let rank = |percent: usize| slowdowns[(slowdowns.len() * percent).div_ceil(100).max(1) - 1];
        let bytes = class.last().map_or(1.0, |(bytes, _)| *bytes as f64);
        median.push((bytes, rank(50)));
        tail.push((bytes, rank(99)));
    }
    let all = || median.iter().chain(&tail);
    let sizes = || all().map(|(bytes, _)| *bytes);
    let highest = all().map(|(_, slowdown)| *slowdown).fold(1.0, f64::max);
    let line = |label: &str, hue, points| Series { label: label.to_owned(), hue, is_dashed: false, points };
    let chart = LineChart {
        description: "Median and 99th percentile of slowdown by flow size".to_owned(),
        title: "Flows sorted by size, in twenty equal parts".to_owned(),
        x: Axis::decades("bytes, logarithmic", sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max)),
        y: Axis::decades("slowdown, logarithmic", 1.0, highest),
        series: vec![line("p99", Hue::Warm, tail.clone()), line("p50", Hue::Cool, median.clone())],
        size: (950.0, 330.0),
    };
    Figure {
        title: "Who is slowed down".to_owned(),
        caption: "Each point is one part, at its largest flow.".to_owned(),
        width: Width::Full,
        pictures: vec![chart.draw()],
    }
}

fn bar(label: &str, value: u64, hue: Hue) -> Bar {
    let text = number::grouped(value);
    Bar { label: label.to_owned(), value: value as f64, text, hue, is_simulated: true }
}

fn losses(report: &Report) -> Figure {
    let drops = &report.drops;
    let group = |label: &str, bars| BarGroup { label: label.to_owned(), full: None, bars };
    let chart = BarChart {
        description: "Packets dropped by cause, retransmissions, pauses and marks".to_owned(),
        groups: vec![
            group(
                "Packets dropped",
                vec![
                    bar("no room", drops.buffer, Hue::Warm),
                    bar("fault", drops.fault, Hue::Warm),
                    bar("damage", drops.corrupt, Hue::Warm),
                ],
            ),
            group("Retransmitted packets", vec![bar("data", report.packets_retransmitted, Hue::Third)]),
            group(
                "Pauses (PFC) and marks (ECN)",
                vec![bar("pauses", report.pauses, Hue::Plain), bar("marks", report.ecn_marks, Hue::Plain)],
            ),
        ],
    };
    Figure {
        title: "Losses and pauses".to_owned(),
        caption: format!(
            "{} data packets were sent, retransmissions included. Ports were stopped for {} in all.",
            number::grouped(report.packets_sent + report.packets_retransmitted),
            number::micros(report.pause_time_us)
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn queues(plan: &Plan, report: &Report) -> Figure {
    let bar = |label: &str, bytes: f64| Bar {
        label: label.to_owned(),
        value: bytes,
        text: number::size(bytes as u64),
        hue: Hue::Third,
        is_simulated: true,
    };
    let bars = vec![bar("mean", report.queue_mean_bytes), bar("largest", report.queue_max_bytes as f64)];
    let chart = BarChart {
        description: "Mean and largest queue at an output of a switch".to_owned(),
        groups: vec![BarGroup { label: "Bytes waiting for one output".to_owned(), full: None, bars }],
    };
    let caption = if plan.switch.is_some() {
        "The mean is over time and over all outputs of switches."
    } else {
        "This network has no switch."
    };
    Figure { title: "Queues".to_owned(), caption: caption.to_owned(), width: Width::Half, pictures: vec![chart.draw()] }
}

fn facts(source: &Source<'_>, report: &Report) -> Vec<Facts> {
    let pair = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let mut conditions: Vec<Vec<String>> =
        summary::facts(report).into_iter().map(|(name, value)| pair(name, &value)).collect();
    conditions.push(pair("command", source.command));
    conditions.push(pair("machine", &source.machine.summary()));
    let table = |title: &str, heads: &[&str], rows| {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Facts { title: title.to_owned(), heads, rows }
    };
    let tables = [
        table("Results", &summary::SPREAD_HEADS, summary::spreads(report)),
        table("Flows", &flows::HEADS, summary::flows(report)),
        table("Conditions", &[], conditions),
        table("Plan", &[], vec![vec![source.text.to_owned()]]),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}
