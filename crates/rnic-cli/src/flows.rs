//! What flows did, where Falcon's connections have several, as a table.

use rnic_fabric::FalconFlow;

use crate::number;

/// Heads of [`rows`].
pub const HEADS: [&str; 5] = ["flow of each connection", "packets", "share", "retransmitted", "path changes"];

/// A row for flow 0 of every connection, one for flow 1 of every one, and so on.
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
