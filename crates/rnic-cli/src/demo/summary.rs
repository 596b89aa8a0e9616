//! The results of the demonstration as a table.

use std::path::Path;

use rnic_page::number;

use super::comparison::{Carrier, Comparison, Run};
use crate::{link, table};

/// Column heads of the table.
pub const HEADS: [&str; 8] = [
    "transport",
    "Gbit/s\nreal",
    "Gbit/s\nsimulated",
    "retransmitted\nreal",
    "retransmitted\nsimulated",
    "p50 / p99\nreal",
    "p50 / p99\nsimulated",
    "verified",
];

/// Returns one row for each transport.
pub fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let mut transports: Vec<&str> = Vec::new();
    for run in &comparison.runs {
        if !transports.contains(&run.transport.as_str()) {
            transports.push(&run.transport);
        }
    }
    transports.into_iter().map(|transport| row(comparison, transport)).collect()
}

fn row(comparison: &Comparison, transport: &str) -> Vec<String> {
    let (real, simulated) = (comparison.run(transport, Carrier::Udp), comparison.run(transport, Carrier::Sim));
    let cell = |run: Option<&Run>, text: fn(&Run) -> String| run.map_or_else(|| "-".to_owned(), text);
    let both = |run: &Run| format!("{} / {}", number::micros(run.latency_us.p50), number::micros(run.latency_us.p99));
    let is_verified = [real, simulated].into_iter().flatten().all(|run| run.verified);
    vec![
        transport.to_owned(),
        cell(real, |run| number::short(run.goodput_gbps)),
        cell(simulated, |run| number::short(run.goodput_gbps)),
        cell(real, |run| number::grouped(run.packets_retransmitted)),
        cell(simulated, |run| number::grouped(run.packets_retransmitted)),
        cell(real, both),
        cell(simulated, both),
        if is_verified { "yes".to_owned() } else { "NO".to_owned() },
    ]
}

/// Returns the text that announces the runs of the demonstration.
pub fn announcement(comparison: &Comparison, path: &Path) -> String {
    format!(
        "Moving {} ({})\nby RDMA Write between two processes over UDP, through {} loss and {} reordering;\nthen the \
         same bytes across a simulated 100 Gbit/s link.\n",
        path.display(),
        number::size(comparison.bytes),
        number::percent(comparison.loss),
        number::percent(comparison.reorder)
    )
}

/// Returns the table, and notes on how to read it.
pub fn text(comparison: &Comparison) -> String {
    let verdict = if comparison.is_verified() {
        "After each run every byte was compared."
    } else {
        "THE FILE DID NOT ARRIVE AS IT WAS SENT."
    };
    format!(
        "{}Real: the median of {} transfers; software on {}, not RDMA hardware.\n\
         Simulated: a link of 100 Gbit/s, {} each way. {verdict}\n",
        table::results(&HEADS, rows(comparison)),
        comparison.transfers(),
        comparison.machine.summary(),
        link::DELAY
    )
}
