//! The results of the demonstration as an HTML page.

use rnic_base::Bytes;
use rnic_page::{
    Axis, Bar, BarChart, BarGroup, Colour, Facts, Figure, LineChart, Page, Series, Spacing, Width, number,
};

use super::comparison::{Carrier, Comparison, Latency, Run};
use super::summary;

const UDP_TITLE: &str = "Real: two processes, UDP over loopback";
const SIM_TITLE: &str = "Simulated: 100 Gbit/s link";
/// Share of the fastest run that the enlarged chart shows.
const ENLARGED_SHARE: f64 = 0.12;
const GBN: &str = "roce-gbn";
const IRN: &str = "irn";

/// Returns the HTML page.
pub fn page(comparison: &Comparison) -> String {
    let Comparison { file, bytes, loss, reorder, .. } = comparison;
    let conditions = format!("{} packet loss, {} reordered", number::percent(*loss), number::percent(*reorder));
    let figures = [
        delivered(comparison),
        goodput(comparison),
        retransmitted(comparison),
        enlarged(comparison),
        latency(comparison),
    ];
    let page = Page {
        title: format!("One file, {conditions}"),
        overline: format!("OpenRNIC: {file}, {}, by RDMA Write through {conditions}", number::size(*bytes)),
        headline: headline(comparison),
        content: Page::figures(&summary_text(comparison), &figures, &[results(comparison), conditions_of(comparison)]),
    };
    page.to_html()
}

fn colour(transport: &str) -> Colour {
    match transport {
        GBN => Colour::WARM,
        IRN => Colour::COOL,
        _ => Colour::THIRD,
    }
}

/// Returns text that states how many times as fast as go-back-N selective retransmission was.
fn gain(comparison: &Comparison, wire: Carrier) -> String {
    let goodput = |transport| comparison.run(transport, wire).map_or(0.0, |run| run.goodput_gbps);
    let gain = goodput(IRN) / goodput(GBN);
    match gain {
        gain if !gain.is_finite() => "? times".to_owned(),
        gain if gain >= 10.0 => format!("{gain:.0} times"),
        gain => format!("{gain:.1} times"),
    }
}

fn headline(comparison: &Comparison) -> String {
    let (real, simulated) = (gain(comparison, Carrier::Udp), gain(comparison, Carrier::Sim));
    let loss = number::percent(comparison.loss);
    let reordering = if comparison.reorder > 0.0 { " and reordering" } else { "" };
    // Uses non-breaking hyphens, so that the name stays on one line.
    format!(
        "Through {loss} loss{reordering}, IRN moves a file {real} as fast as go\u{2011}back\u{2011}N, \
         and {simulated} as fast on a simulated 100\u{a0}Gbit/s link"
    )
}

fn summary_text(comparison: &Comparison) -> String {
    let Comparison { write_bytes, depth, .. } = comparison;
    format!(
        "The same engine runs on sockets and in the simulator. Go-back-N discards everything after a gap and \
         retransmits it; IRN keeps what arrives and retransmits only what is missing; so does Falcon, by time, and \
         with congestion control. \
         The file crosses in Writes of {}, {depth} at a time, and {}. Loss and reordering strike packet by packet, in \
         both directions.",
        Bytes::new(*write_bytes),
        if comparison.is_verified() {
            "was compared byte for byte each time"
        } else {
            "DID NOT ARRIVE INTACT every time"
        },
    )
}

fn delivered(comparison: &Comparison) -> Figure {
    let pictures = [(Carrier::Udp, UDP_TITLE), (Carrier::Sim, SIM_TITLE)].map(|(wire, title)| {
        let runs: Vec<&Run> = comparison.runs.iter().filter(|run| run.wire == wire).collect();
        let series = runs.iter().map(|run| {
            let label = format!("{}, {}", run.transport, number::micros(run.elapsed_s * 1e6));
            let points = run.delivered.iter().map(|(at, bytes)| (at * 1e3, *bytes as f64 / 1e6));
            Series::new(label, colour(&run.transport), points.collect())
        });
        let time = if wire == Carrier::Sim { "simulated time, ms" } else { "time, ms" };
        let chart = LineChart {
            description: format!("{title}: megabytes delivered over time, for each transport"),
            title: title.to_owned(),
            x: Axis::of_values(time, runs.iter().map(|run| run.elapsed_s * 1e3), Spacing::FromZero),
            y: Axis::of_values("MB delivered", [comparison.bytes as f64 / 1e6], Spacing::FromZero),
            reference: None,
            series: series.collect(),
            width: 460.0,
        };
        chart.draw()
    });
    Figure {
        title: "Bytes delivered over time".to_owned(),
        caption:
            "Each line ends when the last Write has completed. Steps are stalls: the sender goes back, or waits for a \
                  timeout. The two pictures have different time scales."
                .to_owned(),
        width: Width::Full,
        pictures: pictures.to_vec(),
    }
}

/// Returns the figure that enlarges the beginning of the simulated runs, so that single stalls are visible.
fn enlarged(comparison: &Comparison) -> Figure {
    let runs: Vec<&Run> = comparison.runs.iter().filter(|run| run.wire == Carrier::Sim).collect();
    let shortest = runs.iter().map(|run| run.elapsed_s).fold(f64::INFINITY, f64::min);
    let end_s = shortest * ENLARGED_SHARE;
    let visible_points = |run: &Run| -> Vec<(f64, f64)> {
        let seen = run.delivered.iter().take_while(|(at, _)| *at <= end_s);
        steps(seen.map(|(at, bytes)| (at * 1e6, *bytes as f64 / 1e6)), end_s * 1e6)
    };
    let line = |run: &&Run| Series::new(run.transport.clone(), colour(&run.transport), visible_points(run));
    let series: Vec<Series> = runs.iter().map(line).collect();
    let delivered_mb = series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
    let chart = LineChart {
        description: "Megabytes delivered at the beginning of the simulated runs".to_owned(),
        title: SIM_TITLE.to_owned(),
        x: Axis::of_values("simulated time, us", [end_s * 1e6], Spacing::FromZero),
        y: Axis::of_values("MB delivered", delivered_mb, Spacing::FromZero),
        reference: None,
        series,
        width: 460.0,
    };
    Figure {
        title: "A closer look".to_owned(),
        caption: "The first part of the simulated runs, Write by Write: a flat piece is a stall.".to_owned(),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

/// Returns the points of a step line: each value is constant until the next one.
fn steps(points: impl Iterator<Item = (f64, f64)>, end: f64) -> Vec<(f64, f64)> {
    let mut line: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        line.extend(line.last().map(|(_, before)| (x, *before)));
        line.push((x, y));
    }
    line.extend(line.last().map(|(_, y)| (end, *y)));
    line
}

/// Returns a chart with a group of bars for each wire.
fn bars(comparison: &Comparison, description: &str, bar: impl Fn(&Run) -> Bar) -> BarChart {
    let group = |(wire, label): (Carrier, &str)| {
        BarGroup::new(label, comparison.runs.iter().filter(|run| run.wire == wire).map(&bar).collect())
    };
    BarChart {
        description: description.to_owned(),
        title: String::new(),
        groups: [(Carrier::Udp, UDP_TITLE), (Carrier::Sim, SIM_TITLE)].map(group).to_vec(),
        width: 460.0,
    }
}

/// Returns a bar of the length `value` for `run`.
fn bar(run: &Run, value: f64, text: String) -> Bar {
    let (label, colour) = (run.transport.clone(), colour(&run.transport));
    Bar { label, value, range: None, text, colour, is_hatched: run.wire == Carrier::Sim }
}

fn goodput(comparison: &Comparison) -> Figure {
    let of = |run: &Run| bar(run, run.goodput_gbps, format!("{} Gbit/s", number::short(run.goodput_gbps)));
    let mut chart = bars(comparison, "Goodput of each transport, real and simulated", of);
    chart.groups[1].axis = Axis::of_values("", [100.0], Spacing::FromZero);
    Figure {
        title: "Goodput".to_owned(),
        caption: format!(
            "Payload by time. Hatched bars are simulated, on a scale of 100 Gbit/s. Solid ones are real, the median of \
             {} transfers, on a scale of their own: they show this machine's software, not RDMA hardware.",
            comparison.transfers()
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn retransmitted(comparison: &Comparison) -> Figure {
    let of = |run: &Run| {
        let share = run.packets_retransmitted as f64 / run.packets_sent.max(1) as f64;
        let count = number::grouped(run.packets_retransmitted);
        bar(run, run.packets_retransmitted as f64, format!("{count} ({} %)", number::short(share * 100.0)))
    };
    let chart = bars(comparison, "Retransmitted packets of each transport, real and simulated", of);
    let packets = comparison.bytes.div_ceil(u64::from(comparison.mtu.max(1)));
    Figure {
        title: "Retransmitted packets".to_owned(),
        caption: format!(
            "The file fills {} packets of {} bytes; the share is of all data packets sent.",
            number::grouped(packets),
            comparison.mtu
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn latency(comparison: &Comparison) -> Figure {
    let of = |run: &Run| {
        let Latency { p50, p99 } = run.latency_us;
        let text = format!("{} / {}", number::micros(p50), number::micros(p99));
        Bar { range: Some((p50, p99)), ..bar(run, p50, text) }
    };
    let chart = bars(comparison, "Median and 99th percentile of the time that a Write takes", of);
    Figure {
        title: "How long a Write takes".to_owned(),
        caption: format!(
            "From posting to completion, with {} Writes in flight: most of it is queueing. Bars show the \
             median, the lines on them end at the 99th percentile.",
            comparison.depth
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn results(comparison: &Comparison) -> Facts {
    Facts {
        title: "Results".to_owned(),
        heads: summary::HEADS.map(str::to_owned).to_vec(),
        rows: summary::rows(comparison),
    }
}

/// Returns text with the goodputs of all real transfers, which show how reliable the median is.
fn spread_of_transfers(comparison: &Comparison) -> String {
    let real = comparison.runs.iter().filter(|run| run.wire == Carrier::Udp && !run.goodputs_gbps.is_empty());
    let line = |run: &Run| {
        let all: Vec<String> = run.goodputs_gbps.iter().map(|goodput| number::short(*goodput)).collect();
        format!("{} {} Gbit/s", run.transport, all.join(", "))
    };
    real.map(line).collect::<Vec<_>>().join("; ")
}

fn conditions_of(comparison: &Comparison) -> Facts {
    let Comparison { file, bytes, loss, reorder, seed, write_bytes, depth, mtu, command, machine, .. } = comparison;
    let pair = |name: &str, value: String| vec![name.to_owned(), value];
    Facts {
        title: "Conditions".to_owned(),
        heads: Vec::new(),
        rows: vec![
            pair("command", command.clone()),
            pair("file", format!("{file}, {} bytes", number::grouped(*bytes))),
            pair(
                "network",
                format!(
                    "{} of packets lost, {} overtaken, seed {seed}",
                    number::percent(*loss),
                    number::percent(*reorder)
                ),
            ),
            pair(
                "traffic",
                format!("one queue pair, Writes of {write_bytes} bytes, {depth} in flight, {mtu} byte packets"),
            ),
            pair("real transfers", spread_of_transfers(comparison)),
            pair("machine", machine.summary()),
        ],
    }
}

#[cfg(test)]
#[path = "page/tests.rs"]
mod tests;
