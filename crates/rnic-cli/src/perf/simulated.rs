//! Performs the measurements of `rnic perf` on the simulated fabric: two hosts and a link.

use std::num::NonZeroUsize;

use rnic_base::Duration;
use rnic_fabric::{Plan, Report};
use rnic_reproduce::machine::Machine;

use super::{Outcome, bound, size_bytes};
use crate::args::PerfArgs;
use crate::args::values::{Op, pairs};
use crate::failure::Failure;
use crate::link::{self, Link};
use crate::sim;

/// Simulates the measurement that `args` request.
///
/// # Errors
/// When the measurement cannot be simulated, or a run violated an invariant.
pub fn measure(args: &PerfArgs, machine: Machine) -> Result<Outcome, Failure> {
    let checked = memory_bytes(args) <= CHECKED_BYTES_MAX;
    let plan = plan(args, checked)?;
    let outputs = sim::Outputs { pcap: args.pcap.as_deref(), ..sim::Outputs::default() };
    let (report, _) = sim::simulate(&plan, args.seed, NonZeroUsize::MIN, outputs)?;
    let limited_by = Some(bound::limited_by(args, &plan, &report));
    let outcome = Outcome { limited_by, ..Outcome::from_simulation(args, &report, checked, machine) };
    report.check().map_err(|failure| Failure::Check(format!("check failed: {}", failure.violations.join("; "))))?;
    Ok(outcome)
}

/// Returns the memory in bytes that both ends need for the operations in flight.
fn memory_bytes(args: &PerfArgs) -> u64 {
    let in_flight = args.count.map_or(args.depth, |count| count.min(args.depth));
    u64::from(size_bytes(args)) * u64::from(in_flight) * u64::from(args.qps) * 2
}

/// Builds the plan as text and parses it, so that the plan reader validates it.
fn plan(args: &PerfArgs, checked: bool) -> Result<Plan, Failure> {
    let op = match args.op {
        Op::Write | Op::NvmeWrite => "write",
        Op::Send => "send",
        Op::Read | Op::NvmeRead => "read",
        Op::Atomic => "fetch-add",
    };
    let length = match (args.count, args.duration) {
        (Some(count), _) => format!("count = {count}"),
        (None, duration) => format!("duration = \"{}\"", duration.unwrap_or_else(|| duration_for(args))),
    };
    let limit = LIMIT.max(args.duration.unwrap_or_default().saturating_mul(2));
    let (message, depth) = (size_bytes(args), args.depth);
    let rest = if args.op.is_nvme() {
        check_nvme(args)?;
        format!(
            "[workload]\nkind = \"nvme\"\nop = \"{op}\"\nmessage = {message}\ndepth = {depth}\n{length}\n\
             [workload.drive]\n{DRIVE}\n[run]\nlimit = \"{limit}\"\n"
        )
    } else {
        format!(
            "[workload]\nkind = \"closed-loop\"\nop = \"{op}\"\nmessage = {message}\ndepth = {depth}\n\
             queue_pairs = {}\n{length}\n[run]\nlimit = \"{limit}\"\n",
            args.qps,
        )
    };
    link(args).plan("perf", if checked { "checked" } else { "none" }, &rest)
}

/// Rejects options that simulated hosts with a drive do not support.
fn check_nvme(args: &PerfArgs) -> Result<(), Failure> {
    let op = args.op.name();
    match args {
        PerfArgs { count: Some(_), .. } => {
            Err(Failure::input(format!("--count: a simulated {op} runs for a given time; use --duration instead")))
        }
        PerfArgs { qps, .. } if *qps > 1 => {
            Err(Failure::input(format!("--qps {qps}: a simulated {op} has a single queue pair; use --depth instead")))
        }
        _ => Ok(()),
    }
}

/// A drive that is never slower than the link: it is in memory, as in measurements over sockets.
const DRIVE: &str = "read_rate = \"10000Gbps\"\nread_latency = \"0ns\"\nwrite_rate = \"10000Gbps\"\n\
    write_latency = \"0ns\"\nqueue_depth = 65536";

/// Returns the default duration of a measurement: long enough for many rounds of all operations in flight, also on a
/// slow link.
fn duration_for(args: &PerfArgs) -> Duration {
    let link = link(args);
    let in_flight = u64::from(size_bytes(args)) * u64::from(args.depth) * u64::from(args.qps);
    let round = link.delay * 2 + link.rate.serialize(in_flight.min(IN_FLIGHT_MAX));
    (round * ROUNDS).clamp(DURATION, LIMIT / 2)
}

fn link(args: &PerfArgs) -> Link<'_> {
    Link {
        rate: args.rate.unwrap_or(link::RATE),
        delay: args.delay.unwrap_or(link::DELAY),
        loss: args.loss,
        reorder: args.reorder,
        mtu: args.mtu,
        transport: &args.transport,
        options: pairs(&args.settings),
    }
}

impl Outcome {
    fn from_simulation(args: &PerfArgs, report: &Report, checked: bool, machine: Machine) -> Self {
        let bytes = report.messages * u64::from(size_bytes(args));
        let elapsed_s = report.elapsed_us / 1e6;
        let by_time = |amount: f64| if elapsed_s > 0.0 { amount / elapsed_s } else { 0.0 };
        let (link, latency) = (link(args), report.latency_us.unwrap_or_default());
        Self {
            transport: report.transport.clone(),
            simulated: true,
            delay_us: link.delay.as_us_f64(),
            rate_gbps: Some(link.rate.as_gbps_f64()),
            ops: report.messages,
            bytes,
            elapsed_s,
            goodput_gbps: by_time(bytes as f64 * 8.0 / 1e9),
            ops_per_s: by_time(report.messages as f64),
            latency_us: [latency.p50, latency.p99, latency.p999, latency.max].into(),
            packets_sent: report.packets_sent + report.packets_retransmitted,
            packets_retransmitted: report.packets_retransmitted,
            ops_verified: if checked { report.messages } else { 0 },
            verified: checked && report.violations.is_empty() && report.flows_unfinished == 0,
            flows: report.falcon.as_ref().map_or_else(Vec::new, |figures| figures.flows.clone()),
            trace_hash: Some(report.trace_hash.clone()),
            ..Self::with_parameters(args, machine)
        }
    }
}

/// Minimum of the default duration: about a second of real time, and enough losses for an average.
const DURATION: Duration = Duration::from_ms(20);
/// Number of rounds that is enough for an average.
const ROUNDS: u64 = 20;
/// Maximum number of bytes in flight from which the length of a round is computed: with more, the computed time would
/// overflow.
const IN_FLIGHT_MAX: u64 = 1 << 40;
/// Simulated time after which even a transport without progress is stopped.
const LIMIT: Duration = Duration::from_secs(10);
/// Above this amount of memory in bytes, payload bytes are not simulated: on small machines, the memories of both
/// hosts would not fit.
const CHECKED_BYTES_MAX: u64 = 2 << 30;
