//! Results of a run.

mod classes;
mod collective;
mod fields;
mod groups;
pub(crate) mod latency_parts;
mod parquet_file;
mod percentile;
mod pool;
mod processors;
mod queue_pairs;
mod scr;
mod slices;
mod tail;
mod tenants;

use core::ops::Range;
use std::borrow::Cow;
use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, Time};
use serde::Serialize;

use crate::falcon_counts::FalconFigures;
pub use crate::host::Recoveries;
pub use crate::host::nic::{NicFigures, PacketBufferFigures, TableFigures};
pub use classes::ClassFigures;
pub use collective::{CollectiveFigures, ExecutionFigures};
pub use groups::GroupFigures;
pub use latency_parts::LatencyParts;
pub use parquet_file::ParquetError;
pub use percentile::Spread;
pub use pool::PoolFigures;
pub use processors::ProcessorFigures;
pub use queue_pairs::QueuePairs;
pub use scr::ScrFigures;
pub use slices::{FairnessSlices, HostSlices, ProbeSlices, QueuePairSlices, Slices, TenantSlices};
pub use tail::{FlowFigures, TailPoint};
pub use tenants::{BusFigures, Fairness, TenantFigures};

/// A completed flow; for hosts that use a drive, a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// Number of the flow: flows are numbered in the order of (start, source).
    pub id: u32,
    /// The host that posted the work.
    pub src: u32,
    /// The host at the other end.
    pub dst: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Time at which the work was posted.
    pub start: Time,
    /// Flow completion time: from the start until the receiver's completion of the last message; for operations without
    /// a completion at the receiver, until the sender's.
    pub fct: Duration,
    /// Completion time in an empty network, from serialization and propagation alone; for a command, the time that
    /// the drive takes without a network.
    pub ideal: Duration,
    /// Number of the request that the flow is a part of, in an incast.
    pub request: Option<u32>,
    /// Index of the tenant that the flow belongs to, in the order of names, in the workload `tenants`.
    pub tenant: Option<u32>,
    /// Index of the group of traffic that the flow belongs to, in the order of names, when the plan has groups.
    pub group: Option<u32>,
}

impl FlowRecord {
    /// Returns the completion time divided by the ideal time.
    pub fn slowdown(&self) -> f64 {
        self.fct.as_ps() as f64 / self.ideal.as_ps() as f64
    }
}

/// Packets lost, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Drops {
    /// Packets dropped because a switch had no buffer space.
    pub buffer: u64,
    /// Packets dropped because the receive buffer of a modelled NIC had no space.
    pub nic: u64,
    /// Packets lost to a fault rule.
    pub fault: u64,
    /// Of the packets lost in switches and to fault rules, acknowledgements and notifications.
    pub acks: u64,
    /// Damaged packets that the receiving NIC detected.
    pub corrupt: u64,
    /// Packets that the receiving NIC's engine did not use: out of order, without their payload, unknown queue pair,
    /// and other reasons.
    pub unused: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Name of the plan.
    pub plan: String,
    /// Name of the transport, with the policies that the plan has exchanged: `roce-gbn + dcqcn`.
    pub transport: String,
    /// Transport program that decides instead of the transport's own: read from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Cow<'static, str>>,
    /// How that program was carried out: `interpreted`, or `compiled` (feature `jit`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<&'static str>,
    /// Seed of the run.
    pub seed: u64,
    /// Hash of all events of the run, 16 hexadecimal digits.
    pub trace_hash: String,
    /// Number of completed flows; for hosts that use a drive, "flow" means a command in all fields.
    pub flows: u64,
    /// Number of flows that were not complete at the end of the run.
    pub flows_unfinished: u64,
    /// The plan's limit, in microseconds, when it ended the run before all flows were complete; incomplete flows are
    /// not included in the following fields.
    pub cut_at_us: Option<f64>,
    /// Start time, in microseconds, of the first flow that did not start because of the limit. Such flows are not
    /// counted in any field.
    pub not_begun_from_us: Option<f64>,
    /// Messages completed at their senders.
    pub messages: u64,
    /// Payload bytes of the completed flows.
    pub bytes: u64,
    /// Time from the start of the first flow to the end of the last one, in microseconds.
    pub elapsed_us: f64,
    /// Payload of completed flows divided by that time, in Gbit/s.
    pub goodput_gbps: f64,
    /// Average slowdown (completion time divided by ideal time) of the flows that started after the warm-up.
    pub slowdown_avg: f64,
    /// Median of the slowdown.
    pub slowdown_p50: f64,
    /// 99th percentile of the slowdown.
    pub slowdown_p99: f64,
    /// Average flow completion time of the same flows, in microseconds.
    pub fct_avg_us: f64,
    /// Median of the flow completion time, in microseconds.
    pub fct_p50_us: f64,
    /// 99th percentile of the flow completion time, in microseconds.
    pub fct_p99_us: f64,
    /// 99.9th percentile of the flow completion time, in microseconds.
    pub fct_p999_us: f64,
    /// Completion times of flows of one packet, in microseconds, when there are such flows.
    pub single_packet_fct_us: Option<Spread>,
    /// Upper tail of these completion times: from 90 % to 99.9 % of the flows (IRN's figure 8).
    pub single_packet_tail: Vec<TailPoint>,
    /// Completion times of requests, in microseconds, when the workload has requests: from the start of the first flow
    /// of a request to the end of its last one; for collectives, from the end of the previous one to the end at the
    /// last rank. Requests that were not complete at the end of the run are not included.
    pub rct_us: Option<Spread>,
    /// Number of requests that were not complete at the end of the run.
    pub requests_unfinished: u64,
    /// Completion times and slowdowns of the flows that do not belong to a request, when the workload also has
    /// requests. Flows that started before the warm-up ended are not included.
    pub background: Option<FlowFigures>,
    /// Payload of completed messages of a loop between the warm-up and the end of its duration, divided by that time,
    /// in Gbit/s.
    pub steady_goodput_gbps: Option<f64>,
    /// Commands completed per second in the same time, when hosts use a drive (IOPS).
    pub ops_per_s: Option<f64>,
    /// Time from post to completion of every message, in microseconds, when the workload measures it; only messages
    /// posted after the warm-up, when a loop has a duration. In an open loop the time starts with the arrival of the
    /// message.
    pub latency_us: Option<Spread>,
    /// Parts of the time from post to completion of the same messages, in microseconds, when the plan asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_parts: Option<LatencyParts>,
    /// Goodput per queue pair between the warm-up and the end of a loop's duration.
    pub queue_pairs: Option<QueuePairs>,
    /// Bandwidth of a collective as NCCL's tests define it, when the workload is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveFigures>,
    /// Results of execution traces, when the workload has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionFigures>,
    /// Results of each tenant, by its name, when the workload has tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<BTreeMap<String, TenantFigures>>,
    /// Results of each group of traffic, by its name, when the plan has groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<BTreeMap<String, GroupFigures>>,
    /// Results of each class of packets, by its name, when the plan has classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<BTreeMap<String, ClassFigures>>,
    /// Fairness between queue pairs and between tenants, when the workload has tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// Traffic between NICs and their hosts' memories, over all hosts, between warm-up and cooldown, when the workload
    /// has tenants and the plan models NICs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<BusFigures>,
    /// Work of the threads on which schedulers run, over all hosts and the whole run, when the plan has such threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<ProcessorFigures>,
    /// Goodput and queue of each host per time slice, and of tenants, when the plan has slices.
    pub slices: Option<Slices>,
    /// Request and response packets sent, without retransmissions.
    pub packets_sent: u64,
    /// Retransmissions of request and response packets.
    pub packets_retransmitted: u64,
    /// Acknowledgements of every type, and notifications, sent.
    pub acks_sent: u64,
    /// Packets lost: no buffer space, faults, damage.
    pub packets_dropped: u64,
    /// Packets lost, by cause.
    pub drops: Drops,
    /// Share of the sent data packets that were lost to full switch buffers or to faults.
    pub drop_rate: f64,
    /// Results of the NIC memory model, when the plan has one.
    pub nic: Option<NicFigures>,
    /// Numbers of packets missing in each recovery, when receivers accept out-of-order packets and packets were lost.
    pub recoveries: Option<Recoveries>,
    /// Counters of the pools shared by queue pairs, when there are pools and packets were lost.
    pub pool: Option<PoolFigures>,
    /// Counters of Falcon packets and of Falcon NICs, when the transport is Falcon.
    pub falcon: Option<FalconFigures>,
    /// Counters of the messages between NICs, when the plan has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scr: Option<ScrFigures>,
    /// Timeouts that caused a recovery action.
    pub timeouts: u64,
    /// NACKs processed by senders.
    pub nacks: u64,
    /// Congestion notifications (CNP) processed by senders.
    pub cnps: u64,
    /// Pause frames (XOFF) sent.
    pub pauses: u64,
    /// Time that ports were paused, summed over all ports, in microseconds.
    pub pause_time_us: f64,
    /// Packets that switches, and faults, marked with ECN.
    pub ecn_marks: u64,
    /// Packets whose payload switches cut, so that only their headers were forwarded.
    pub trimmed: u64,
    /// Maximum number of bytes that waited for one output of a switch.
    pub queue_max_bytes: u64,
    /// Bytes that waited for an output, averaged over time and over all outputs of switches.
    pub queue_mean_bytes: f64,
    /// Number of links crossed, summed over all packets, acknowledgements included.
    pub packet_hops: u64,
    /// Number of simulation events.
    pub events: u64,
    /// Maximum number of packets in flight, as measured between windows of time.
    pub packets_under_way_max: u64,
    /// Simulated time at the end of the run, in microseconds.
    pub simulated_us: f64,
    /// Duration of the run in seconds on the caller's clock; the caller sets this field.
    pub wall_s: Option<f64>,
    /// Violations of checked properties, one line each; empty in a correct run.
    pub violations: Vec<String>,
    /// Warnings about properties of the plan or of the results that are probably not intended, one line each.
    pub warnings: Vec<String>,
    /// The completed flows.
    #[serde(skip)]
    pub records: Vec<FlowRecord>,
}

/// A failed run: checked properties were violated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}; repeat the run with plan `{plan}` and seed {seed}", violations.join("; "))]
pub struct CheckFailure {
    /// Name of the plan.
    pub plan: String,
    /// Seed that reproduces the run.
    pub seed: u64,
    /// The violations, one line each.
    pub violations: Vec<String>,
}

impl Report {
    /// Checks that there were no violations.
    ///
    /// # Errors
    /// The violations, with the plan and the seed that reproduce the run.
    pub fn check(&self) -> Result<(), CheckFailure> {
        if self.violations.is_empty() {
            return Ok(());
        }
        let Self { plan, seed, violations, .. } = self;
        Err(CheckFailure { plan: plan.clone(), seed: *seed, violations: violations.clone() })
    }

    /// Returns all fields except the records of single flows, as one JSON object.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("numbers, texts and lists have a JSON form")
    }

    /// Computes all fields that depend on the records of flows. Flows that start in `counted_starts` are included in
    /// averages; `packet_bytes` is the number of bytes of a full packet.
    pub(crate) fn summarise(&mut self, counted_starts: Range<Time>, packet_bytes: u64) {
        let counted: Vec<&FlowRecord> =
            self.records.iter().filter(|flow| counted_starts.contains(&flow.start)).collect();
        let spread = |values: &mut Vec<f64>| Spread::of(values);
        let mut slowdowns: Vec<f64> = counted.iter().map(|flow| flow.slowdown()).collect();
        let mut times: Vec<f64> = counted.iter().map(|flow| flow.fct.as_us_f64()).collect();
        let is_single = |flow: &&&FlowRecord| flow.bytes <= packet_bytes;
        let mut singles: Vec<f64> = counted.iter().filter(is_single).map(|flow| flow.fct.as_us_f64()).collect();
        let (slowdown, fct) = (spread(&mut slowdowns).unwrap_or_default(), spread(&mut times).unwrap_or_default());
        (self.slowdown_avg, self.slowdown_p50, self.slowdown_p99) = (slowdown.avg, slowdown.p50, slowdown.p99);
        (self.fct_avg_us, self.fct_p50_us, self.fct_p99_us, self.fct_p999_us) = (fct.avg, fct.p50, fct.p99, fct.p999);
        self.single_packet_fct_us = spread(&mut singles);
        self.single_packet_tail = tail::upper_tail(&singles);
        if counted.iter().any(|flow| flow.request.is_some()) {
            let rest = counted.iter().filter(|flow| flow.request.is_none()).copied();
            self.background = FlowFigures::of(rest, packet_bytes);
        }
        self.flows = self.records.len() as u64;
        self.bytes = self.records.iter().map(|flow| flow.bytes).sum();
        let start = self.records.iter().map(|flow| flow.start).min().unwrap_or_default();
        let end = self.records.iter().map(|flow| flow.start + flow.fct).max().unwrap_or_default();
        let elapsed = end.since(start);
        self.elapsed_us = elapsed.as_us_f64();
        self.goodput_gbps = BitRate::from_transfer(self.bytes, elapsed).as_gbps_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the record of a flow that starts at `start` and completes after `fct` microseconds; its ideal time is
    /// that of a packet of 1000 bytes, one microsecond.
    fn flow(start: u64, fct: u64, bytes: u64) -> FlowRecord {
        let (start, fct) = (Time::from_us(start), Duration::from_us(fct));
        let ideal = Duration::from_us(bytes.div_ceil(1_000));
        FlowRecord { id: 0, src: 0, dst: 1, bytes, start, fct, ideal, request: None, tenant: None, group: None }
    }

    /// All results that are computed from the records of flows, with their units. Averages exclude the warm-up,
    /// totals include it.
    #[test]
    fn figures_are_computed_from_the_flows() {
        let mut report = Report::empty();
        // One slow flow before the end of the warm-up; after it a thousand flows that take 2 to 2000 us, every tenth
        // of which is a single packet.
        report.records.push(flow(10, 9_000, 1_000));
        report
            .records
            .extend((1..=1_000).map(|index| flow(100, 2 * index, if index % 10 == 0 { 1_000 } else { 2_000 })));
        report.summarise(Time::from_us(100)..Time::from_us(101), 1_000);
        assert_eq!((report.flows, report.bytes), (1_001, 1_000 + 100 * 1_000 + 900 * 2_000));
        assert_eq!((report.fct_avg_us, report.fct_p50_us), (1_001.0, 1_000.0));
        assert_eq!((report.fct_p99_us, report.fct_p999_us), (1_980.0, 1_998.0));
        let single = report.single_packet_fct_us.expect("there are flows of one packet");
        assert_eq!((single.count, single.p50, single.max), (100, 1_000.0, 2_000.0));
        // Completion times 2, 4, .. 2000 us; 20, 40, .. us for the flows of one packet. The slowdown is the same
        // number, halved for flows of two packets.
        assert_eq!((report.slowdown_avg, report.slowdown_p50, report.slowdown_p99), (551.0, 526.0, 1_800.0));
        // From 10 us, the start of the first flow, to 9010 us, the end of the last: 1.901 MB in 9 ms.
        assert_eq!(report.elapsed_us, 9_000.0);
        assert!((report.goodput_gbps - 1.901e6 * 8.0 / 9e-3 / 1e9).abs() < 1e-6, "{}", report.goodput_gbps);
    }

    #[test]
    fn a_report_without_flows_has_no_figures() {
        let mut report = Report::empty();
        report.summarise(Time::ZERO..Time::from_us(1), 1_000);
        assert_eq!((report.flows, report.fct_avg_us, report.goodput_gbps), (0, 0.0, 0.0));
        assert_eq!(report.single_packet_fct_us, None);
    }
}
