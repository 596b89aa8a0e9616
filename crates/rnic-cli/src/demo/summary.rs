//! The demonstration as a table.

use std::path::Path;

use super::contest::{Carrier, Contest, Run};
use crate::{number, table};

/// Heads of the table.
pub const HEADS: [&str; 9] = [
    "transport",
    "Gbit/s real",
    "Gbit/s simulated",
    "sent again real",
    "sent again simulated",
    "p50 real",
    "p99 real",
    "p50 / p99 simulated",
    "verified",
];

/// One row for each transport.
pub fn rows(contest: &Contest) -> Vec<Vec<String>> {
    let mut transports: Vec<&str> = Vec::new();
    for run in &contest.runs {
        if !transports.contains(&run.transport.as_str()) {
            transports.push(&run.transport);
        }
    }
    transports.into_iter().map(|transport| row(contest, transport)).collect()
}

fn row(contest: &Contest, transport: &str) -> Vec<String> {
    let (real, simulated) = (contest.run(transport, Carrier::Udp), contest.run(transport, Carrier::Sim));
    let cell = |run: Option<&Run>, text: fn(&Run) -> String| run.map_or_else(|| "-".to_owned(), text);
    let both = |run: &Run| format!("{} / {}", number::micros(run.latency_us.p50), number::micros(run.latency_us.p99));
    let is_verified = [real, simulated].into_iter().flatten().all(|run| run.verified);
    vec![
        transport.to_owned(),
        cell(real, |run| number::short(run.goodput_gbps)),
        cell(simulated, |run| number::short(run.goodput_gbps)),
        cell(real, |run| number::grouped(run.packets_retransmitted)),
        cell(simulated, |run| number::grouped(run.packets_retransmitted)),
        cell(real, |run| number::micros(run.latency_us.p50)),
        cell(real, |run| number::micros(run.latency_us.p99)),
        cell(simulated, both),
        if is_verified { "yes".to_owned() } else { "NO".to_owned() },
    ]
}

/// Says what is about to happen.
pub fn announcement(contest: &Contest, path: &Path) -> String {
    format!(
        "Moving {} ({}) by RDMA Write between two processes over UDP, through {} loss and {} reordering, then the \
         same bytes across a simulated 100 Gbit/s link.",
        path.display(),
        number::size(contest.bytes),
        number::percent(contest.loss),
        number::percent(contest.reorder)
    )
}

/// The table, and what to keep in mind when reading it.
pub fn text(contest: &Contest) -> String {
    format!(
        "{}Real: software on {}, not RDMA hardware. Simulated: one 100 Gbit/s link.\n",
        table::results(&HEADS, rows(contest)),
        contest.machine.summary()
    )
}
