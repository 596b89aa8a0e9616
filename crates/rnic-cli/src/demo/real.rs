//! The file between two processes.

use rnic_base::Duration;
use rnic_host::transfer::{self, TransferConfig, TransferReport};
use rnic_host::{Impairment, Nic, NicConfig};

use super::contest::{Carrier, Latency, Run};
use super::{DEPTH, MTU, WRITE_BYTES};
use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::perf::near_side_of;
use crate::perf::neighbour::Neighbour;

/// Moves `content` to another process and compares what arrived.
///
/// # Errors
/// When there is no other process, or it does not get there.
pub fn transfer(content: &[u8], transport: &str, args: &DemoArgs) -> Result<Run, Failure> {
    let neighbour = Neighbour::start(MTU)?;
    let bind = near_side_of(neighbour.address);
    let config = NicConfig { name: "demo".to_owned(), mtu_max_bytes: MTU, ..NicConfig::at(bind) };
    let mut nic = Nic::open(config.with_environment().map_err(Failure::input)?).map_err(Failure::input)?;
    let config = TransferConfig {
        chunk_bytes: WRITE_BYTES,
        depth: DEPTH,
        transport: transport.to_owned(),
        impairment: Impairment { seed: args.seed, loss: args.loss, reorder: args.reorder, ..Impairment::default() },
        timeout: PATIENCE,
        ..TransferConfig::default()
    };
    let report = transfer::send_bytes(&mut nic, neighbour.address, content, &config).map_err(Failure::input)?;
    Ok(run(report))
}

fn run(report: TransferReport) -> Run {
    Run {
        transport: report.transport,
        wire: Carrier::Udp,
        goodput_gbps: report.goodput_gbps,
        elapsed_s: report.elapsed_s,
        packets_sent: report.packets_sent,
        packets_retransmitted: report.packets_retransmitted,
        latency_us: Latency { p50: report.latency_us.p50, p99: report.latency_us.p99 },
        verified: report.verified,
        delivered: report.delivered,
    }
}

/// The far end computes a checksum of the whole file before it answers.
const PATIENCE: Duration = Duration::from_secs(20);
