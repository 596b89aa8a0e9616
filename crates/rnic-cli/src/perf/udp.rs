//! The client, over UDP sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_base::Duration;
use rnic_fabric::FalconFlow;
use rnic_host::perf::{self, FlowReport, Length, PerfConfig, PerfReport};
use rnic_host::{Impairment, Nic, Notice};
use rnic_reproduce::machine::Machine;

use super::listener_process::{ListenerOptions, ListenerProcess};
use super::{Outcome, address, listen, size_bytes};
use crate::args::PerfArgs;
use crate::args::values::{Op, Wire};
use crate::console;
use crate::failure::Failure;

/// Measures against the named host, or against a second process on this machine.
///
/// # Errors
/// When the remote end does not exist, rejects the measurement, or stops responding.
pub fn measure(args: &PerfArgs, machine: Machine) -> Result<Outcome, Failure> {
    // Reports invalid options before a second process is started or a minute is spent on measuring; `verify` is set
    // because the round after the measurement compares data.
    let verified = PerfConfig { verify: true, ..config(args) };
    perf::check(&verified, args.mtu).map_err(Failure::input)?;
    let (listener_process, remote) = match &args.host {
        Some(host) => (None, address::resolve(host)?),
        None => {
            let listener_process = ListenerProcess::start(ListenerOptions::of(args))?;
            let address = listener_process.address;
            (Some(listener_process), address)
        }
    };
    let mut nic = listen::open("perf", bind_address_for(remote), args)?;
    let spinner = console::spinner("measuring");
    let result = rounds(&mut nic, remote, args);
    spinner.finish_and_clear();
    drop(listener_process);
    let notices = notices(&mut nic);
    let capture_failure = end_capture(&mut nic, args, &notices).err();
    let notices: Vec<String> = notices.iter().map(Notice::to_string).collect();
    let print_notices = |_: &Failure| notices.iter().for_each(|notice| console::line(&format!("rnic: {notice}")));
    let (measured, compared) = result.inspect_err(print_notices)?;
    Ok(Outcome { notices, capture_failure, ..Outcome::from_sockets(args, &measured, compared.as_ref(), machine) })
}

/// Measures; then, unless the measurement itself compared data, transfers further operations through the same network
/// and compares every byte. Comparing takes several times as long as transferring the data, so doing both together
/// would measure the comparison.
fn rounds(nic: &mut Nic, remote: SocketAddr, args: &PerfArgs) -> Result<(PerfReport, Option<PerfReport>), Failure> {
    let mut config = config(args);
    let measured = perf::measure(nic, remote, &config).map_err(Failure::input)?;
    if config.verify {
        return Ok((measured, None));
    }
    let count = compared_count(&config, measured.ops_per_s);
    config.verify = true;
    config.depth = config.depth.min(u32::try_from(count).unwrap_or(u32::MAX));
    config.length = Length::Count(count);
    match perf::measure(nic, remote, &config) {
        Ok(compared) => Ok((measured, Some(compared))),
        // Comparing takes more memory than measuring, and the remote end may refuse it. The measurement remains
        // valid. Fewer operations in flight would not help: their number is already limited to a few megabytes of
        // data, or to one per queue pair.
        Err(perf::PerfError::Refused { reason, .. }) if reason.contains("of memory") => {
            console::line(&format!("rnic: the data was not compared: {reason}"));
            Ok((measured, None))
        }
        Err(error) => Err(Failure::input(error)),
    }
}

/// Returns the number of operations of each queue pair to compare, given the measured operations per second: as many
/// as a slow path transfers in a short time, up to a limit that suffices.
fn compared_count(config: &PerfConfig, ops_per_s: f64) -> u64 {
    let bytes = u64::from(config.operation_bytes().max(1));
    let fitting = (COMPARED_BYTES / bytes).min(COMPARED_MAX);
    let in_time = (ops_per_s * COMPARED_FOR.as_secs_f64()) as u64;
    (fitting.min(in_time) / u64::from(config.qps)).max(1)
}

/// Returns a local address to bind to for the peer `remote`: any port on all addresses, or on loopback when the peer is
/// on loopback.
pub fn bind_address_for(remote: SocketAddr) -> SocketAddr {
    let ip = match remote.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(ip, 0)
}

/// Returns the name of the transport, with the policies that have been exchanged.
fn label(args: &PerfArgs, transport: &str) -> String {
    let is_policy = |key: &str| ["recovery", "control", "paths", "schedule"].contains(&key);
    let exchanged = args.settings.iter().filter(|setting| is_policy(&setting.key));
    exchanged.fold(transport.to_owned(), |label, setting| format!("{label} + {}", setting.value))
}

fn config(args: &PerfArgs) -> PerfConfig {
    let length = match (args.count, args.duration) {
        (Some(count), _) => Length::Count(count.into()),
        (None, duration) => Length::Time(duration.unwrap_or(DURATION)),
    };
    PerfConfig {
        op: match args.op {
            Op::Write => perf::Op::Write,
            Op::Send => perf::Op::Send,
            Op::Read => perf::Op::Read,
            Op::Atomic => perf::Op::Atomic,
            Op::NvmeRead => perf::Op::NvmeRead,
            Op::NvmeWrite => perf::Op::NvmeWrite,
        },
        size_bytes: size_bytes(args),
        qps: args.qps,
        depth: args.depth,
        length,
        verify: args.verify,
        stream: args.stream,
        ping_pong: (args.stream || args.op == Op::Send) && args.depth == 1 && args.qps == 1,
        transport: args.transport.clone(),
        options: args.settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect(),
        impairment: Impairment {
            seed: args.seed,
            loss: args.loss,
            reorder: args.reorder,
            delay: args.delay.unwrap_or_default(),
            rate: args.rate,
            rate_queue_bytes: RATE_QUEUE_BYTES,
            trim: args.trim,
            mark: args.mark,
            ..Impairment::default()
        },
        sleeps_at_once: args.events,
        ..PerfConfig::default()
    }
}

/// Returns the notices of the NIC without repetitions: a path MTU may become too small and sufficient again many
/// times.
fn notices(nic: &mut Nic) -> Vec<Notice> {
    let mut notices = Vec::new();
    while let Some(notice) = nic.poll_notice() {
        if !notices.contains(&notice) {
            notices.push(notice);
        }
    }
    notices
}

fn end_capture(nic: &mut Nic, args: &PerfArgs, notices: &[Notice]) -> Result<(), Failure> {
    let reason = || notices.iter().find(|notice| matches!(notice, Notice::CaptureEnded(_)));
    match (nic.stop_capture(), &args.pcap) {
        (Some(mut output), Some(path)) => output.flush().map_err(|error| Failure::file(path, error)),
        (None, Some(path)) => Err(Failure::file(
            path,
            reason().map_or_else(|| "the packet capture stopped early and is incomplete".to_owned(), Notice::to_string),
        )),
        _ => Ok(()),
    }
}

impl Outcome {
    fn from_sockets(args: &PerfArgs, report: &PerfReport, compared: Option<&PerfReport>, machine: Machine) -> Self {
        let latency = &report.latency_us;
        let compared = compared.unwrap_or(report);
        Self {
            transport: label(args, &report.transport),
            wire: Wire::Udp.name(),
            simulated: false,
            ops: report.ops,
            bytes: report.bytes,
            elapsed_s: report.elapsed_s,
            goodput_gbps: report.goodput_gbps,
            ops_per_s: report.ops_per_s,
            latency_us: [latency.p50, latency.p99, latency.p999, latency.max].into(),
            latency_kind: match report.latency_kind {
                perf::LatencyKind::Operation => "operation",
                perf::LatencyKind::HalfRoundTrip => "half-round-trip",
            },
            packets_sent: report.packets_sent,
            packets_retransmitted: report.packets_retransmitted,
            verified: compared.verified,
            ops_verified: compared.ops_verified,
            ops_wrong: compared.ops_wrong,
            mtu_bytes: report.wire_mtu_bytes,
            flows: flows_of(report),
            ..Self::with_parameters(args, machine)
        }
    }
}

/// Returns the statistics of the flows, in the format of simulations.
fn flows_of(report: &PerfReport) -> Vec<FalconFlow> {
    let all: u64 = report.flows.iter().map(|flow| flow.packets).sum();
    let of = |flow: &FlowReport| {
        let FlowReport { packets, packets_retransmitted, path_changes } = *flow;
        FalconFlow { packets, packets_retransmitted, share: packets as f64 / all.max(1) as f64, path_changes }
    };
    report.flows.iter().map(of).collect()
}

/// Bytes that may wait for a slow link: more than transports have in flight, so that `--loss` alone determines packet
/// loss.
const RATE_QUEUE_BYTES: u64 = 16 << 20;
/// Limits of the comparison after a measurement, in bytes and in operations, on all queue pairs: some milliseconds of
/// work.
const COMPARED_BYTES: u64 = 32 << 20;
const COMPARED_MAX: u64 = 1_000;
/// Time limit of the comparison: over a path on which windows stay small, that many operations would take many times as
/// long as the measurement.
const COMPARED_FOR: Duration = Duration::from_secs(1);
/// Default duration of a measurement.
const DURATION: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verification_is_bounded_in_bytes_operations_and_time() {
        let count = |size_bytes, qps, ops_per_s| {
            compared_count(&PerfConfig { size_bytes, qps, ..PerfConfig::default() }, ops_per_s)
        };
        assert_eq!(count(64 << 10, 1, 1e5), 512, "not 32 MiB");
        assert_eq!(count(64 << 10, 4, 1e5), 128);
        assert_eq!(count(8, 1, 1e5), 1_000);
        assert_eq!(count(64 << 10, 1, 16.1), 16, "not a second on a slow path");
        assert_eq!(count(64 << 10, 1_024, 16.1), 1, "not one operation for each queue pair");
        assert_eq!(count(1 << 30, 1, 0.0), 1);
    }
}
