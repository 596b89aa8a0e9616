//! Table of the statistics of flows, for Falcon connections that have several.

use rnic_fabric::FalconFlow;
use rnic_page::number;

/// Column heads of [`rows`].
pub const HEADS: [&str; 5] = ["flow of each connection", "packets", "share", "retransmitted", "path changes"];

/// Returns one row for the first flow (0) of all connections, one for flow 1 of all connections, and so on.
pub fn rows(flows: &[FalconFlow]) -> Vec<Vec<String>> {
    let row = |(index, flow): (usize, &FalconFlow)| {
        vec![
            index.to_string(),
            number::grouped(flow.packets),
            format!("{} %", number::short(flow.share * 100.0)),
            number::grouped(flow.packets_retransmitted),
            number::grouped(flow.path_changes),
        ]
    };
    flows.iter().enumerate().map(row).collect()
}
