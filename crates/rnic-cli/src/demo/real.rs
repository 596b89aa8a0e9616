//! Transfers the file between two processes over UDP.

use std::time::Instant;

use rnic_base::Duration;
use rnic_host::transfer::{self, TransferConfig, TransferReport};
use rnic_host::{Impairment, Nic, NicConfig};

use super::comparison::{Carrier, Latency, Run};
use super::{DEPTH, MTU, WRITE_BYTES};
use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::perf::bind_address_for;
use crate::perf::listener_process::{ListenerOptions, ListenerProcess};

/// Transfers `content` to another process and compares the received data, several times, because real time varies
/// between transfers. Returns the transfer with the median goodput, and the goodputs of all transfers. The result
/// counts as verified only if every transfer was.
///
/// # Errors
/// When the other process cannot be started, or the file does not arrive.
pub fn transfer(content: &[u8], transport: &str, args: &DemoArgs) -> Result<Run, Failure> {
    let start = Instant::now();
    let mut runs: Vec<Run> = Vec::new();
    while runs.len() < TRANSFERS && start.elapsed() < TRANSFERS_TIME_MAX {
        // Uses another seed for each transfer, so that each has its own loss pattern at the same loss rate.
        runs.push(transfer_once(content, transport, args, args.seed.wrapping_add(runs.len() as u64))?);
    }
    runs.sort_by(|a, b| a.goodput_gbps.total_cmp(&b.goodput_gbps));
    let goodputs_gbps = runs.iter().map(|run| run.goodput_gbps).collect();
    let verified = runs.iter().all(|run| run.verified);
    let median = runs.swap_remove((runs.len() - 1) / 2);
    Ok(Run { goodputs_gbps, verified, ..median })
}

fn transfer_once(content: &[u8], transport: &str, args: &DemoArgs, seed: u64) -> Result<Run, Failure> {
    let listener_process = ListenerProcess::start(ListenerOptions { mtu: MTU, ..ListenerOptions::default() })?;
    let bind = bind_address_for(listener_process.address);
    let config = NicConfig { name: "demo".to_owned(), mtu_max_bytes: MTU, ..NicConfig::at(bind) };
    rnic_host::shorten_slices();
    let mut nic = Nic::open(config.with_environment().map_err(Failure::input)?).map_err(Failure::input)?;
    let config = TransferConfig {
        chunk_bytes: WRITE_BYTES,
        depth: DEPTH,
        transport: transport.to_owned(),
        impairment: Impairment { seed, loss: args.loss, reorder: args.reorder, ..Impairment::default() },
        timeout: RESPONSE_TIMEOUT,
        ..TransferConfig::default()
    };
    let report = transfer::send_bytes(&mut nic, listener_process.address, content, &config).map_err(Failure::input)?;
    Ok(run(report))
}

fn run(report: TransferReport) -> Run {
    Run {
        transport: report.transport,
        wire: Carrier::Udp,
        goodput_gbps: report.goodput_gbps,
        goodputs_gbps: Vec::new(),
        elapsed_s: report.elapsed_s,
        packets_sent: report.packets_sent,
        packets_retransmitted: report.packets_retransmitted,
        latency_us: Latency { p50: report.latency_us.p50, p99: report.latency_us.p99 },
        verified: report.verified,
        delivered: report.delivered,
    }
}

/// Number of transfers of the file with each transport.
pub const TRANSFERS: usize = 5;
/// Time after which no further transfer with the same transport is started.
const TRANSFERS_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(8);
/// Timeout for the response of the remote end, which computes a checksum of the complete file before it responds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
