//! Results of groups of traffic.

use rnic_base::BitRate;
use serde::Serialize;

use super::{FlowRecord, Spread};

/// Results of one group of traffic. Averages and percentiles include the flows, messages and requests that started
/// after the warm-up, and, in a workload with a duration, before the cooldown.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct GroupFigures {
    /// Name of the transport, with the policies that the plan has exchanged.
    pub transport: String,
    /// Name of the class of its packets, when the plan has classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Number of completed flows.
    pub flows: u64,
    /// Number of flows that were not complete at the end of the run.
    pub flows_unfinished: u64,
    /// Payload bytes of the completed flows.
    pub bytes: u64,
    /// Payload of the completed flows, divided by the time from the start of the first to the end of the last, in
    /// Gbit/s.
    pub goodput_gbps: f64,
    /// Completion times of flows, in microseconds.
    pub fct_us: Option<Spread>,
    /// Completion times of flows, divided by their time in an empty network.
    pub slowdown: Option<Spread>,
    /// Messages that completed between warm-up and cooldown, of workloads that measure them.
    pub messages: u64,
    /// Times from post to completion of messages, in microseconds, of workloads that measure them.
    pub latency_us: Option<Spread>,
    /// Completion times of requests or collectives, in microseconds, of workloads that have them.
    pub rct_us: Option<Spread>,
    /// Packets sent by the group's queue pairs, without retransmissions and acknowledgements.
    pub packets_sent: u64,
    /// Packets retransmitted.
    pub packets_retransmitted: u64,
    /// Timeouts after which its queue pairs acted.
    pub timeouts: u64,
}

impl GroupFigures {
    /// Computes the fields that depend on the records of the group's flows, of which `is_counted` selects those for
    /// averages.
    pub(crate) fn summarise(&mut self, records: &[&FlowRecord], is_counted: impl Fn(&FlowRecord) -> bool) {
        let spread = |value: fn(&FlowRecord) -> f64| {
            Spread::of(&mut records.iter().filter(|flow| is_counted(flow)).map(|flow| value(flow)).collect::<Vec<_>>())
        };
        self.fct_us = spread(|flow| flow.fct.as_us_f64());
        self.slowdown = spread(FlowRecord::slowdown);
        self.flows = records.len() as u64;
        self.bytes = records.iter().map(|flow| flow.bytes).sum();
        let start = records.iter().map(|flow| flow.start).min().unwrap_or_default();
        let end = records.iter().map(|flow| flow.start + flow.fct).max().unwrap_or_default();
        self.goodput_gbps = BitRate::from_transfer(self.bytes, end.since(start)).as_gbps_f64();
    }
}
