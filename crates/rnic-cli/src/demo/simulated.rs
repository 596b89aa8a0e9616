//! Transfers the file over a simulated link, with the same bytes, Writes, loss and reordering, in simulated time.

use rnic_base::{Duration, Time};
use rnic_engine::{RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_fabric::simulation::QueuePairSpec;
use rnic_fabric::{Plan, Simulation};
use rnic_wire::Qpn;

use super::comparison::{Carrier, Latency, Run};
use super::{DEPTH, MTU, WRITE_BYTES};
use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::link::{self, Link};

/// Transfers `content` from one simulated host to another and compares the received data.
///
/// # Errors
/// When the transfer cannot be simulated, or the file does not arrive.
pub fn transfer(content: &[u8], transport: &str, args: &DemoArgs) -> Result<Run, Failure> {
    let mut simulation = Simulation::new(&plan(transport, args)?, args.seed).map_err(Failure::input)?;
    let spec = QueuePairSpec { sends: DEPTH, receives: 1, sges: 1 };
    let (qpn, _) = simulation.connect_manually(SENDER, RECEIVER, spec);
    let bytes = content.len() as u64;
    let (source, addr, key) = simulation.allocate(SENDER, bytes);
    let (target, remote_addr, rkey) = simulation.allocate(RECEIVER, bytes);
    simulation.memory(SENDER).bytes_mut(source.local, bytes).copy_from_slice(content);
    let from = Sge { addr, len: 0, lkey: key };
    let mut course = TransferProgress::new(bytes, qpn, from, RemoteMemory { addr: remote_addr, rkey });
    course.run(&mut simulation)?;
    let verified = simulation.memory(RECEIVER).bytes(target.local, bytes) == content;
    Ok(course.result(transport, &simulation, verified))
}

fn plan(transport: &str, args: &DemoArgs) -> Result<Plan, Failure> {
    let (loss, reorder) = (args.loss, args.reorder);
    let link = Link { rate: link::RATE, delay: link::DELAY, loss, reorder, mtu: MTU, transport, options: Vec::new() };
    link.plan("demo", "checked", "[workload]\nkind = \"manual\"\n")
}

/// Progress of the transfer.
struct TransferProgress {
    bytes: u64,
    qpn: Qpn,
    from: Sge,
    to: RemoteMemory,
    /// Bytes posted.
    posted: u64,
    /// Time at which each Write was posted, in order.
    posted_at: Vec<Time>,
    /// Time at which each Write completed, and the number of bytes that had arrived by then.
    done: Vec<(Time, u64)>,
}

impl TransferProgress {
    fn new(bytes: u64, qpn: Qpn, from: Sge, to: RemoteMemory) -> Self {
        Self { bytes, qpn, from, to, posted: 0, posted_at: Vec::new(), done: Vec::new() }
    }

    fn run(&mut self, simulation: &mut Simulation) -> Result<(), Failure> {
        self.post(simulation)?;
        while self.delivered() < self.bytes {
            if !simulation.advance(LIMIT) {
                let after = simulation.now();
                return Err(Failure::Check(format!(
                    "check failed: the simulated transfer is incomplete after {after}"
                )));
            }
            while let Some((at, completion)) = simulation.poll(SENDER) {
                if completion.status != WcStatus::Success {
                    let status = completion.status;
                    return Err(Failure::Check(format!(
                        "check failed: a simulated Write completed with status {status:?}"
                    )));
                }
                self.done.push((at, self.delivered() + completion.wr_id));
            }
            self.post(simulation)?;
        }
        Ok(())
    }

    fn delivered(&self) -> u64 {
        self.done.last().map_or(0, |(_, bytes)| *bytes)
    }

    /// Posts Writes until the maximum number is in flight.
    fn post(&mut self, simulation: &mut Simulation) -> Result<(), Failure> {
        while self.posted < self.bytes && self.posted_at.len() - self.done.len() < DEPTH as usize {
            let len = u64::from(WRITE_BYTES).min(self.bytes - self.posted) as u32;
            let remote = RemoteMemory { addr: self.to.addr + self.posted, ..self.to };
            let sge = Sge { addr: self.from.addr + self.posted, len, ..self.from };
            let op = SendOp::Write { remote, immediate: None };
            let request = SendRequest { wr_id: len.into(), op, sges: &[sge], flags: SendFlags::SIGNALED };
            simulation.post_send(SENDER, self.qpn, &request).map_err(Failure::input)?;
            self.posted_at.push(simulation.now());
            self.posted += u64::from(len);
        }
        Ok(())
    }

    fn result(self, transport: &str, simulation: &Simulation, verified: bool) -> Run {
        let stats = simulation.engine(SENDER).stats();
        let end = self.done.last().map_or(Time::ZERO, |(at, _)| *at);
        let elapsed_s = end.as_secs_f64();
        let mut latencies: Vec<Duration> =
            self.done.iter().zip(&self.posted_at).map(|((done, _), posted)| done.since(*posted)).collect();
        latencies.sort_unstable();
        let at = |percent: usize| latencies[(latencies.len() * percent).div_ceil(100).max(1) - 1].as_us_f64();
        Run {
            transport: transport.to_owned(),
            wire: Carrier::Sim,
            goodput_gbps: self.bytes as f64 * 8.0 / elapsed_s / 1e9,
            goodputs_gbps: Vec::new(),
            elapsed_s,
            packets_sent: stats.packets_sent + stats.packets_retransmitted,
            packets_retransmitted: stats.packets_retransmitted,
            latency_us: Latency { p50: at(50), p99: at(99) },
            verified,
            delivered: self.done.iter().map(|(at, bytes)| (at.as_secs_f64(), *bytes)).collect(),
        }
    }
}

const SENDER: u32 = 0;
const RECEIVER: u32 = 1;
/// Simulated time after which a transfer has failed: no file of a permitted size takes that long.
const LIMIT: Time = Time::from_us(100_000_000);
