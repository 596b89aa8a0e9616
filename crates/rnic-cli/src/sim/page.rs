//! A simulation's report as an HTML page.

use rnic_fabric::{FlowRecord, Plan, Report};
use rnic_page::{
    Axis, Bar, BarChart, BarGroup, Colour, Facts, Figure, LineChart, Page, Series, Spacing, Width, number,
};
use rnic_reproduce::machine::Machine;

use super::history::History;
use super::summary;
use crate::flows;

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
    /// Time series that were recorded.
    pub history: Option<History>,
}

/// Returns the HTML page.
pub fn page(source: &Source<'_>, report: &Report) -> String {
    let verdict = if report.violations.is_empty() { "every check passed" } else { "CHECKS FAILED" };
    let mut figures = Vec::new();
    if !report.records.is_empty() {
        figures.extend([slowdowns(report), completion_times(source.plan, report), by_size(report)]);
    }
    figures.extend([losses(report), queues(source.plan, report)]);
    let lead = format!(
        "{} of simulated time, {} flows, {}; {verdict}. Slowdown is a flow's completion time over the time that it \
         would take in an empty network.",
        number::micros(report.simulated_us),
        number::grouped(report.flows),
        number::size(report.bytes),
    );
    let plots = source.history.as_ref().map(History::plots).unwrap_or_default();
    let page = Page {
        title: summary::title(report),
        overline: format!("OpenRNIC simulation: {}", summary::title(report)),
        headline: headline(report),
        content: Page::figures_and_plots(&lead, &figures, &plots, &facts(source, report)),
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

/// Returns the cumulative distribution of `values`: for each value, the percentage of values that are at or below it.
fn cumulative(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len() as f64;
    values.into_iter().zip(1u32..).map(|(value, rank)| (value, f64::from(rank) / count * 100.0)).collect()
}

fn distribution(title: &str, axis: &str, lines: Vec<(&str, Colour, Vec<f64>)>) -> LineChart {
    let lines: Vec<_> = lines.into_iter().filter(|(.., values)| !values.is_empty()).collect();
    let all = lines.iter().flat_map(|(.., values)| values.iter().copied());
    let x = Axis::of_values(axis, all, Spacing::Log);
    LineChart {
        description: format!("{title}: share of flows at or below a value"),
        title: title.to_owned(),
        x,
        y: Axis::of_values("% of flows", [100.0], Spacing::FromZero),
        reference: None,
        series: lines.into_iter().map(|(name, colour, values)| Series::new(name, colour, cumulative(values))).collect(),
        width: 460.0,
    }
}

fn slowdowns(report: &Report) -> Figure {
    let values: Vec<f64> = report.records.iter().map(FlowRecord::slowdown).collect();
    let chart = distribution("All flows", "slowdown, logarithmic", vec![("", Colour::COOL, values)]);
    Figure {
        title: "Slowdown".to_owned(),
        caption: "Share of flows that were slowed down by no more than so much; 1 is an empty network.".to_owned(),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn completion_times(plan: &Plan, report: &Report) -> Figure {
    let mtu_bytes = u64::from(plan.mtu);
    let times = |is_in_class: &dyn Fn(&FlowRecord) -> bool| -> Vec<f64> {
        report.records.iter().filter(|flow| is_in_class(flow)).map(|flow| flow.fct.as_us_f64()).collect()
    };
    let lines = vec![
        ("one packet", Colour::COOL, times(&|flow| flow.bytes <= mtu_bytes)),
        ("more", Colour::WARM, times(&|flow| flow.bytes > mtu_bytes)),
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
    let (mut median, mut p99) = (Vec::new(), Vec::new());
    for class in flows.chunks(flows.len().div_ceil(SIZE_CLASSES).max(1)) {
        let mut slowdowns: Vec<f64> = class.iter().map(|(_, slowdown)| *slowdown).collect();
        slowdowns.sort_unstable_by(f64::total_cmp);
        let rank = |percent: usize| slowdowns[(slowdowns.len() * percent).div_ceil(100).max(1) - 1];
        let bytes = class.last().map_or(1.0, |(bytes, _)| *bytes as f64);
        median.push((bytes, rank(50)));
        p99.push((bytes, rank(99)));
    }
    let all = || median.iter().chain(&p99);
    let chart = LineChart {
        description: "Median and 99th percentile of slowdown by flow size".to_owned(),
        title: "Flows sorted by size, in twenty equal parts".to_owned(),
        x: Axis::of_values("bytes, logarithmic", all().map(|(bytes, _)| *bytes), Spacing::Log),
        y: Axis::of_values("slowdown, logarithmic", all().map(|(_, slowdown)| *slowdown).chain([1.0]), Spacing::Log),
        reference: None,
        series: vec![Series::new("p99", Colour::WARM, p99.clone()), Series::new("p50", Colour::COOL, median.clone())],
        width: 950.0,
    };
    Figure {
        title: "Slowdown by flow size".to_owned(),
        caption: "Each point is one part, at its largest flow.".to_owned(),
        width: Width::Full,
        pictures: vec![chart.draw()],
    }
}

fn bar(label: &str, value: f64, text: String, colour: Colour) -> Bar {
    Bar { label: label.to_owned(), value, range: None, text, colour, is_hatched: true }
}

fn losses(report: &Report) -> Figure {
    let drops = &report.drops;
    let bar = |label: &str, count: u64, colour| bar(label, count as f64, number::grouped(count), colour);
    let dropped = vec![
        bar("no buffer", drops.buffer, Colour::WARM),
        bar("fault", drops.fault, Colour::WARM),
        bar("damage", drops.corrupt, Colour::WARM),
    ];
    let mut signals = vec![bar("pauses", report.pauses, Colour::PLAIN), bar("marks", report.ecn_marks, Colour::PLAIN)];
    if report.trimmed > 0 {
        signals.push(bar("trimmed", report.trimmed, Colour::PLAIN));
    }
    let chart = BarChart {
        description: "Packets dropped by cause, retransmissions, pauses and marks".to_owned(),
        title: String::new(),
        groups: vec![
            BarGroup::new("Packets dropped", dropped),
            BarGroup::new("Retransmitted packets", vec![bar("data", report.packets_retransmitted, Colour::THIRD)]),
            BarGroup::new("Pauses (PFC) and marks (ECN)", signals),
        ],
        width: 460.0,
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
    let bar = |label: &str, bytes: f64| bar(label, bytes, number::size(bytes as u64), Colour::THIRD);
    let bars = vec![bar("mean", report.queue_mean_bytes), bar("largest", report.queue_max_bytes as f64)];
    let chart = BarChart {
        description: "Mean and largest queue at an output of a switch".to_owned(),
        title: String::new(),
        groups: vec![BarGroup::new("Bytes waiting for one output", bars)],
        width: 460.0,
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
        table("Parts of latencies", &summary::PART_HEADS, summary::latency_parts(report)),
        table("Tenants", &summary::TENANT_HEADS, summary::tenants(report)),
        table("Traffic", &summary::GROUP_HEADS, summary::groups(report)),
        table("Classes", &summary::CLASS_HEADS, summary::classes(report)),
        table("Flows", &flows::HEADS, summary::flows(report)),
        table("Conditions", &[], conditions),
        table("Plan", &[], vec![vec![source.text.to_owned()]]),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}
