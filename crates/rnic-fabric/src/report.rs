//! What a run has measured.

mod fields;
mod parquet_file;
mod percentile;
mod pool;
mod queue_pairs;
mod slices;
mod tail;

use core::ops::Range;

use rnic_base::{BitRate, Duration, Time};
use serde::Serialize;

use crate::falcon_counts::FalconFigures;
pub use crate::host::Recoveries;
pub use crate::host::nic::NicFigures;
pub use parquet_file::ParquetError;
pub use percentile::Spread;
pub use pool::PoolFigures;
pub use queue_pairs::QueuePairs;
pub use slices::{HostSlices, Slices};
pub use tail::{FlowFigures, TailPoint};

/// A flow that is done; where hosts use a drive, a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// Its number: flows are numbered in the order of (start, source).
    pub id: u32,
    /// The host that posted.
    pub src: u32,
    /// The host at the other end.
    pub dst: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// When the work was posted.
    pub start: Time,
    /// From then until the receiver's completion of the last message; for operations that the receiver does not hear
    /// of, until the sender's.
    pub fct: Duration,
    /// What it would take in an empty network, by serialisation and propagation alone; a command, of its drive without
    /// a network.
    pub ideal: Duration,
    /// The request that it is a part of, in an incast.
    pub request: Option<u32>,
}

impl FlowRecord {
    /// Completion time over ideal time.
    pub fn slowdown(&self) -> f64 {
        self.fct.as_ps() as f64 / self.ideal.as_ps() as f64
    }
}

/// Packets lost, by where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Drops {
    /// No room in a switch.
    pub buffer: u64,
    /// No room in a receiving NIC whose memory is modelled.
    pub nic: u64,
    /// By a fault rule.
    pub fault: u64,
    /// Of those two, acknowledgements and notifications.
    pub acks: u64,
    /// Damaged, and found so by the receiving NIC.
    pub corrupt: u64,
    /// Not used by the receiving NIC's engine: out of order, unknown queue pair, ...
    pub unused: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The plan's name.
    pub plan: String,
    /// The transport's name.
    pub transport: &'static str,
    /// The seed.
    pub seed: u64,
    /// Fingerprint of everything that happened, 16 hexadecimal digits.
    pub trace_hash: String,
    /// Flows that are done; where hosts use a drive, commands are meant wherever flows are.
    pub flows: u64,
    /// Flows that were not when the run ended.
    pub flows_unfinished: u64,
    /// The plan's limit, microseconds, where it has cut the run off before all flows were done: those that were not
    /// count for nothing in what follows.
    pub cut_at_us: Option<f64>,
    /// When the first flow that the limit kept from beginning would have begun, microseconds. Such flows are counted
    /// nowhere.
    pub not_begun_from_us: Option<f64>,
    /// Messages completed at their senders.
    pub messages: u64,
    /// Payload bytes of the flows that are done.
    pub bytes: u64,
    /// From the start of the first flow to the end of the last, microseconds.
    pub elapsed_us: f64,
    /// Payload bytes of flows that are done, by that time.
    pub goodput_gbps: f64,
    /// Completion time over ideal time, of the flows that started after the warm-up.
    pub slowdown_avg: f64,
    /// Its median.
    pub slowdown_p50: f64,
    /// Its 99th percentile.
    pub slowdown_p99: f64,
    /// Flow completion times of the same flows: the average.
    pub fct_avg_us: f64,
    /// The median.
    pub fct_p50_us: f64,
    /// The 99th percentile.
    pub fct_p99_us: f64,
    /// The 99.9th percentile.
    pub fct_p999_us: f64,
    /// Completion times of flows of one packet, where there are any.
    pub single_packet_fct_us: Option<Spread>,
    /// The upper tail of the same: from 90 % to 99.9 % of them (IRN's figure 8).
    pub single_packet_tail: Vec<TailPoint>,
    /// Completion times of requests, where the workload has any: from the start of the first flow of a request to the
    /// end of its last one; of collectives, from the end of the one before to the last rank's end. Those that
    /// were not done when the run ended are missing.
    pub rct_us: Option<Spread>,
    /// Requests that were not done when the run ended.
    pub requests_unfinished: u64,
    /// The flows that are no part of a request, where there are flows that are. Those that started before the warm-up
    /// do not count.
    pub background: Option<FlowFigures>,
    /// Payload that messages of a loop brought between the warm-up and the end of its duration, by that time.
    pub steady_goodput_gbps: Option<f64>,
    /// Commands done in the same time, a second, where hosts use a drive (IOPS).
    pub ops_per_s: Option<f64>,
    /// Post to completion of every message, where the workload asks for it; of those posted after the warm-up, where a
    /// loop has a duration. In an open loop it begins when the message comes.
    pub latency_us: Option<Spread>,
    /// Goodput by queue pair in the same time.
    pub queue_pairs: Option<QueuePairs>,
    /// What each host got, slice by slice, where the plan asks for it.
    pub slices: Option<Slices>,
    /// Request and response packets sent for the first time.
    pub packets_sent: u64,
    /// The same, sent again.
    pub packets_retransmitted: u64,
    /// Acknowledgements of every kind, and notifications.
    pub acks_sent: u64,
    /// Packets lost in the network: no room, faults, damage.
    pub packets_dropped: u64,
    /// Packets lost, by cause.
    pub drops: Drops,
    /// Data packets lost in the network, by room or by faults, of all that were sent.
    pub drop_rate: f64,
    /// What the memory of NICs has done, where it is modelled.
    pub nic: Option<NicFigures>,
    /// How many packets were missing in each recovery, where receivers keep early packets and something was lost.
    pub recoveries: Option<Recoveries>,
    /// What pools shared by queue pairs have done, where there are any and something was lost.
    pub pool: Option<PoolFigures>,
    /// What left hosts that speak Falcon.
    pub falcon: Option<FalconFigures>,
    /// Timeouts on which recovery acted.
    pub timeouts: u64,
    /// NACKs taken by senders.
    pub nacks: u64,
    /// Pause frames (XOFF) sent.
    pub pauses: u64,
    /// Time that ports were kept from sending, summed over ports, microseconds.
    pub pause_time_us: f64,
    /// Packets marked.
    pub ecn_marks: u64,
    /// The most bytes that have waited for one output of a switch.
    pub queue_max_bytes: u64,
    /// Bytes waiting for an output, averaged over time and over all outputs of switches.
    pub queue_mean_bytes: f64,
    /// Packets times links crossed, acknowledgements included.
    pub packet_hops: u64,
    /// Steps of the simulation.
    pub events: u64,
    /// Packets under way at once, at most, as seen between windows of time.
    pub packets_under_way_max: u64,
    /// Simulated time when the run ended, microseconds.
    pub simulated_us: f64,
    /// Seconds that the run took on the caller's clock, which fills this in.
    pub wall_s: Option<f64>,
    /// Promises that were broken, one line each; none is what should be.
    pub violations: Vec<String>,
    /// What is probably not meant, in the plan or in what it led to, one line each.
    pub warnings: Vec<String>,
    /// The flows that are done.
    #[serde(skip)]
    pub records: Vec<FlowRecord>,
}

/// Broken promises: the run has failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} (repeat with plan `{plan}`, seed {seed})", violations.join("; "))]
pub struct CheckFailure {
    /// The plan's name.
    pub plan: String,
    /// The seed that repeats it.
    pub seed: u64,
    /// What was broken, one line each.
    pub violations: Vec<String>,
}

impl Report {
    /// Whether every promise was kept.
    ///
    /// # Errors
    /// Those that were not, with what repeats the run.
    pub fn check(&self) -> Result<(), CheckFailure> {
        if self.violations.is_empty() {
            return Ok(());
        }
        let Self { plan, seed, violations, .. } = self;
        Err(CheckFailure { plan: plan.clone(), seed: *seed, violations: violations.clone() })
    }

    /// All but the single flows, as one JSON object.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("numbers, texts and lists have a JSON form")
    }

    /// Fills in everything that follows from the records of flows. Those that begin in `counts` count in averages;
    /// `packet` is how many bytes a single packet holds.
    pub(crate) fn summarise(&mut self, counts: Range<Time>, packet: u64) {
        let counted: Vec<&FlowRecord> = self.records.iter().filter(|flow| counts.contains(&flow.start)).collect();
        let spread = |values: &mut Vec<f64>| Spread::of(values);
        let mut slowdowns: Vec<f64> = counted.iter().map(|flow| flow.slowdown()).collect();
        let mut times: Vec<f64> = counted.iter().map(|flow| flow.fct.as_us_f64()).collect();
        let is_single = |flow: &&&FlowRecord| flow.bytes <= packet;
        let mut singles: Vec<f64> = counted.iter().filter(is_single).map(|flow| flow.fct.as_us_f64()).collect();
        let (slowdown, fct) = (spread(&mut slowdowns).unwrap_or_default(), spread(&mut times).unwrap_or_default());
        (self.slowdown_avg, self.slowdown_p50, self.slowdown_p99) = (slowdown.avg, slowdown.p50, slowdown.p99);
        (self.fct_avg_us, self.fct_p50_us, self.fct_p99_us, self.fct_p999_us) = (fct.avg, fct.p50, fct.p99, fct.p999);
        self.single_packet_fct_us = spread(&mut singles);
        self.single_packet_tail = tail::upper_tail(&singles);
        if counted.iter().any(|flow| flow.request.is_some()) {
            let rest = counted.iter().filter(|flow| flow.request.is_none()).copied();
            self.background = FlowFigures::of(rest, packet);
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

    /// A flow that starts at `start` and takes `fct` microseconds; a packet of 1000 bytes would take one.
    fn flow(start: u64, fct: u64, bytes: u64) -> FlowRecord {
        let (start, fct) = (Time::from_us(start), Duration::from_us(fct));
        let ideal = Duration::from_us(bytes.div_ceil(1_000));
        FlowRecord { id: 0, src: 0, dst: 1, bytes, start, fct, ideal, request: None }
    }

    /// Every figure that follows from flows, in its unit. Averages leave out the warm-up, totals do not.
    #[test]
    fn figures_follow_from_the_flows() {
        let mut report = Report::empty();
        // Before the warm-up ends a slow flow; after it a thousand of 2 to 2000 us, each tenth of one packet.
        report.records.push(flow(10, 9_000, 1_000));
        report
            .records
            .extend((1..=1_000).map(|index| flow(100, 2 * index, if index % 10 == 0 { 1_000 } else { 2_000 })));
        report.summarise(Time::from_us(100)..Time::from_us(101), 1_000);
        assert_eq!((report.flows, report.bytes), (1_001, 1_000 + 100 * 1_000 + 900 * 2_000));
        assert_eq!((report.fct_avg_us, report.fct_p50_us), (1_001.0, 1_000.0));
        assert_eq!((report.fct_p99_us, report.fct_p999_us), (1_980.0, 1_998.0));
        let single = report.single_packet_fct_us.expect("there are some");
        assert_eq!((single.count, single.p50, single.max), (100, 1_000.0, 2_000.0));
        // 2, 4, .. 2000 for one packet in ten (20, 40, ..), half of that for two packets.
        assert_eq!((report.slowdown_avg, report.slowdown_p50, report.slowdown_p99), (551.0, 526.0, 1_800.0));
        // From 10 us, when the first one starts, to 9010 us: 1.901 MB in 9 ms.
        assert_eq!(report.elapsed_us, 9_000.0);
        assert!((report.goodput_gbps - 1.901e6 * 8.0 / 9e-3 / 1e9).abs() < 1e-6, "{}", report.goodput_gbps);
    }

    #[test]
    fn no_flows_no_figures() {
        let mut report = Report::empty();
        report.summarise(Time::ZERO..Time::from_us(1), 1_000);
        assert_eq!((report.flows, report.fct_avg_us, report.goodput_gbps), (0, 0.0, 0.0));
        assert_eq!(report.single_packet_fct_us, None);
    }
}
