//! The results of the demonstration as an HTML page.

use rnic_base::Bytes;

use super::contest::{Carrier, Contest, Run};
use super::summary;
use crate::chart::{
    Axis, Bar, BarChart, BarGroup, Facts, Figure, Hue, LineChart, Page, Range, RangeChart, Series, Width,
};
use crate::number;

const UDP: &str = "Real: two processes, UDP over loopback";
const SIM: &str = "Simulated: 100 Gbit/s link";
/// Share of the fastest run that the enlarged chart shows.
const CLOSER_SHARE: f64 = 0.12;
const GBN: &str = "roce-gbn";
const IRN: &str = "irn";

/// Returns the HTML page.
pub fn page(contest: &Contest) -> String {
    let Contest { file, bytes, loss, reorder, .. } = contest;
    let conditions = format!("{} packet loss, {} reordered", number::percent(*loss), number::percent(*reorder));
    let page = Page {
        title: format!("One file, {conditions}"),
        kicker: format!("OpenRNIC: {file}, {}, by RDMA Write through {conditions}", number::size(*bytes)),
        headline: headline(contest),
        lead: lead(contest),
        figures: vec![delivered(contest), goodput(contest), retransmitted(contest), closer(contest), latency(contest)],
        facts: vec![results(contest), conditions_of(contest)],
    };
    page.to_html()
}

fn hue(transport: &str) -> Hue {
    match transport {
        GBN => Hue::Warm,
        IRN => Hue::Cool,
        _ => Hue::Third,
    }
}

/// Describes how many times as fast as go-back-N selective retransmission was.
fn gain(contest: &Contest, wire: Carrier) -> String {
    let goodput = |transport| contest.run(transport, wire).map_or(0.0, |run| run.goodput_gbps);
    let gain = goodput(IRN) / goodput(GBN);
    match gain {
        gain if !gain.is_finite() => "? times".to_owned(),
        gain if gain >= 10.0 => format!("{gain:.0} times"),
        gain => format!("{gain:.1} times"),
    }
}

fn headline(contest: &Contest) -> String {
    let (real, simulated) = (gain(contest, Carrier::Udp), gain(contest, Carrier::Sim));
    let loss = number::percent(contest.loss);
    let reordering = if contest.reorder > 0.0 { " and reordering" } else { "" };
    // Uses non-breaking hyphens, to keep the name on one line.
    format!(
        "Through {loss} loss{reordering}, IRN moves a file {real} as fast as go\u{2011}back\u{2011}N, \
         and {simulated} as fast on a simulated 100\u{a0}Gbit/s link"
    )
}

fn lead(contest: &Contest) -> String {
    let Contest { write_bytes, depth, .. } = contest;
    format!(
        "The same engine drives both bodies. Go-back-N throws away all that follows a gap and sends it again; IRN \
         keeps what arrives and repeats only what is missing; Falcon does so too, by time, under congestion control. \
         The file crosses in Writes of {}, {depth} at a time, and {}. Loss and reordering strike packet by packet, in \
         both directions.",
        Bytes::new(*write_bytes),
        if contest.is_verified() { "was compared byte for byte each time" } else { "DID NOT ARRIVE INTACT every time" },
    )
}

fn delivered(contest: &Contest) -> Figure {
    let pictures = [(Carrier::Udp, UDP), (Carrier::Sim, SIM)].map(|(wire, title)| {
        let runs: Vec<&Run> = contest.runs.iter().filter(|run| run.wire == wire).collect();
        let longest = runs.iter().map(|run| run.elapsed_s * 1e3).fold(0.0, f64::max);
        let series = runs.iter().map(|run| Series {
            label: format!("{}, {}", run.transport, number::micros(run.elapsed_s * 1e6)),
            hue: hue(&run.transport),
            is_dashed: false,
            points: run.delivered.iter().map(|(at, bytes)| (at * 1e3, *bytes as f64 / 1e6)).collect(),
        });
        let time = if wire == Carrier::Sim { "simulated time, ms" } else { "time, ms" };
        let chart = LineChart {
            description: format!("{title}: megabytes delivered over time, for each transport"),
            title: title.to_owned(),
            x: Axis::from_zero(time, longest),
            y: Axis::from_zero("MB delivered", contest.bytes as f64 / 1e6),
            series: series.collect(),
            size: (460.0, 330.0),
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

/// Returns the figure of the beginning of the simulated runs, where single stalls can be seen.
fn closer(contest: &Contest) -> Figure {
    let runs: Vec<&Run> = contest.runs.iter().filter(|run| run.wire == Carrier::Sim).collect();
    let shortest = runs.iter().map(|run| run.elapsed_s).fold(f64::INFINITY, f64::min);
    let end_s = shortest * CLOSER_SHARE;
    let in_view = |run: &Run| -> Vec<(f64, f64)> {
        let seen = run.delivered.iter().take_while(|(at, _)| *at <= end_s);
        steps(seen.map(|(at, bytes)| (at * 1e6, *bytes as f64 / 1e6)), end_s * 1e6)
    };
    let series: Vec<Series> = runs
        .iter()
        .map(|run| Series {
            label: run.transport.clone(),
            hue: hue(&run.transport),
            is_dashed: false,
            points: in_view(run),
        })
        .collect();
    let most = series.iter().flat_map(|series| &series.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let chart = LineChart {
        description: "Megabytes delivered at the beginning of the simulated runs".to_owned(),
        title: SIM.to_owned(),
        x: Axis::from_zero("simulated time, us", end_s * 1e6),
        y: Axis::from_zero("MB delivered", most),
        series,
        size: (460.0, 300.0),
    };
    Figure {
        title: "A closer look".to_owned(),
        caption: "The first part of the simulated runs, Write by Write: a flat piece is a stall.".to_owned(),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

/// Returns a step line: each value holds until the next one.
fn steps(points: impl Iterator<Item = (f64, f64)>, end: f64) -> Vec<(f64, f64)> {
    let mut line: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        line.extend(line.last().map(|(_, before)| (x, *before)));
        line.push((x, y));
    }
    line.extend(line.last().map(|(_, y)| (end, *y)));
    line
}

/// Returns groups of bars, one for each wire; `value` gives a run's length and text.
fn bars(contest: &Contest, full: [Option<f64>; 2], value: impl Fn(&Run) -> (f64, String)) -> Vec<BarGroup> {
    let group = |wire: Carrier, label: &str, full| BarGroup {
        label: label.to_owned(),
        full,
        bars: contest.runs.iter().filter(|run| run.wire == wire).map(|run| bar(run, value(run))).collect(),
    };
    vec![group(Carrier::Udp, UDP, full[0]), group(Carrier::Sim, SIM, full[1])]
}

fn bar(run: &Run, (value, text): (f64, String)) -> Bar {
    let is_simulated = run.wire == Carrier::Sim;
    Bar { label: run.transport.clone(), value, text, hue: hue(&run.transport), is_simulated }
}

fn goodput(contest: &Contest) -> Figure {
    let text = |run: &Run| (run.goodput_gbps, format!("{} Gbit/s", number::short(run.goodput_gbps)));
    let chart = BarChart {
        description: "Goodput of each transport, real and simulated".to_owned(),
        groups: bars(contest, [None, Some(100.0)], text),
    };
    Figure {
        title: "Goodput".to_owned(),
        caption: format!(
            "Payload by time. Hatched bars are simulated, on a scale of 100 Gbit/s. Solid ones are real, the median of \
             {} transfers, on a scale of their own: they show this machine's software, not RDMA hardware.",
            contest.transfers()
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn retransmitted(contest: &Contest) -> Figure {
    let text = |run: &Run| {
        let share = run.packets_retransmitted as f64 / run.packets_sent.max(1) as f64;
        let count = number::grouped(run.packets_retransmitted);
        (run.packets_retransmitted as f64, format!("{count} ({} %)", number::short(share * 100.0)))
    };
    let chart = BarChart {
        description: "Retransmitted packets of each transport, real and simulated".to_owned(),
        groups: bars(contest, [None, None], text),
    };
    let packets = contest.bytes.div_ceil(u64::from(contest.mtu.max(1)));
    Figure {
        title: "Retransmitted packets".to_owned(),
        caption: format!(
            "The file fills {} packets of {} bytes; the share is of all data packets sent.",
            number::grouped(packets),
            contest.mtu
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn latency(contest: &Contest) -> Figure {
    let runs = || contest.runs.iter().map(|run| run.latency_us);
    let least = runs().map(|latency| latency.p50).fold(f64::INFINITY, f64::min);
    let most = runs().map(|latency| latency.p99).fold(0.0, f64::max);
    let range = |run: &Run| Range {
        label: run.transport.clone(),
        ends: (run.latency_us.p50, run.latency_us.p99),
        texts: (number::micros(run.latency_us.p50), number::micros(run.latency_us.p99)),
        hue: hue(&run.transport),
        is_simulated: run.wire == Carrier::Sim,
    };
    let group = |wire: Carrier, label: &str| {
        (label.to_owned(), contest.runs.iter().filter(|run| run.wire == wire).map(range).collect())
    };
    let chart = RangeChart {
        description: "Median and 99th percentile of the time that a Write takes".to_owned(),
        axis: Axis::decades("microseconds, logarithmic", least, most),
        ends: ("p50".to_owned(), "p99".to_owned()),
        groups: vec![group(Carrier::Udp, UDP), group(Carrier::Sim, SIM)],
    };
    Figure {
        title: "How long a Write takes".to_owned(),
        caption: format!(
            "From posting to completion, with {} Writes in flight: most of it is waiting in line.",
            contest.depth
        ),
        width: Width::Half,
        pictures: vec![chart.draw()],
    }
}

fn results(contest: &Contest) -> Facts {
    Facts {
        title: "Results".to_owned(),
        heads: summary::HEADS.map(str::to_owned).to_vec(),
        rows: summary::rows(contest),
    }
}

/// Describes the goodputs of all real transfers, to show how reliable the median is.
fn spread_of_transfers(contest: &Contest) -> String {
    let real = contest.runs.iter().filter(|run| run.wire == Carrier::Udp && !run.goodputs_gbps.is_empty());
    let line = |run: &Run| {
        let all: Vec<String> = run.goodputs_gbps.iter().map(|goodput| number::short(*goodput)).collect();
        format!("{} {} Gbit/s", run.transport, all.join(", "))
    };
    real.map(line).collect::<Vec<_>>().join("; ")
}

fn conditions_of(contest: &Contest) -> Facts {
    let Contest { file, bytes, loss, reorder, seed, write_bytes, depth, mtu, command, machine, .. } = contest;
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
            pair("real transfers", spread_of_transfers(contest)),
            pair("machine", machine.summary()),
        ],
    }
}

#[cfg(test)]
#[path = "page/tests.rs"]
mod tests;
