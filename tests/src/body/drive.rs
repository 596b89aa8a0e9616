//! NVMe commands beside the RDMA connections: an initiator at one host, a namespace and its target at another.
//!
//! Commands on the same blocks are never in flight together, so that a model of the blocks predicts the data of each
//! Read and the final content of the drive. Some commands exceed the last block of the namespace; only these commands
//! fail.

use std::sync::Arc;

use rnic_base::{BitRate, Duration, Psn, RandomStream, RandomStreams};
use rnic_engine::{
    Access, Completion, CqId, DeviceConfig, DeviceService, NamespaceConfig, NvmeFailure, NvmeInitiator, NvmeRole, PdId,
    PostError, QpAttributes, QpConnection, QpState, QpTiming, RemoteMemory, RnrTimer, SendFlags, SendOp, SendRequest,
    Service, Sge, Transport, WcStatus,
};
use rnic_wire::Qpn;

use crate::backend::{Backend, RegionId};
use crate::scenario::DriveUse;

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Command {
    is_write: bool,
    first: u64,
    blocks: u32,
    /// True when it exceeds the last block.
    is_out_of_range: bool,
}

/// An NVMe connection: a host that uses a drive of another host.
pub(super) struct Drive {
    plan: DriveUse,
    qpns: [Qpn; 2],
    cq: CqId,
    /// Memory of the commands, and of the namespace.
    regions: [RegionId; 2],
    /// Content of the namespace after completion of all commands in flight.
    model: Vec<u8>,
    /// Commands in flight, by their slot in memory.
    in_flight: Vec<Option<Command>>,
    random: RandomStream,
    pub(super) done: u64,
}

/// Bytes of a block, as the exponent of a power of two.
const BLOCK_LOG2: u32 = 9;
/// Number of blocks of the namespace.
const BLOCKS: u64 = 512;
/// Maximum number of blocks of a command.
const COMMAND_BLOCKS_MAX: u32 = 40;
const COMMAND_BYTES: usize = (COMMAND_BLOCKS_MAX as usize) << BLOCK_LOG2;
const NAMESPACE_NUMBER: u16 = 5;
/// Percentage of commands that exceed the last block.
const OUT_OF_RANGE_PERCENT: u64 = 3;
const STATUS_LBA_OUT_OF_RANGE: u16 = 0x80;

impl Drive {
    /// Connects the hosts of `plan` by `transport`.
    pub(super) fn new(
        backend: &mut impl Backend,
        plan: DriveUse,
        transport: &Arc<Transport>,
        streams: &RandomStreams,
    ) -> Self {
        let mut random = streams.stream("body/drive");
        let [user, owner] = plan.hosts;
        let memory = backend.register(user, COMMAND_BYTES * plan.depth as usize, Access::LOCAL_WRITE);
        let namespace = backend.register(owner, (BLOCKS as usize) << BLOCK_LOG2, Access::LOCAL_WRITE);
        crate::pattern::fill(backend.bytes(owner, namespace), random.bits(), 0);
        let model = backend.bytes(owner, namespace).to_vec();
        let service = |us| DeviceService { latency: Duration::from_us(us), bandwidth: BitRate::gbps(50) };
        let device = DeviceConfig {
            read: service(plan.latency_us),
            write: service(plan.latency_us / 2),
            queue_depth: plan.queue,
            block_log2: BLOCK_LOG2,
        };
        let (addr, key) = backend.region(owner, namespace);
        let pd: PdId = backend.domain(owner);
        let key = rnic_engine::Key(key);
        let config = NamespaceConfig { number: NAMESPACE_NUMBER, blocks: BLOCKS, pd, addr, key, device };
        let target = NvmeRole::Target(backend.create_namespace(owner, &config));
        let (block_log2, timeout) = (BLOCK_LOG2, Duration::from_secs(600));
        let initiator =
            NvmeRole::Initiator(NvmeInitiator { namespace: NAMESPACE_NUMBER, block_log2, reads: plan.reads, timeout });
        let cqs = plan.hosts.map(|host| backend.create_cq(host, CQ_ENTRIES));
        let roles = [initiator, target];
        let qpns = [0, 1].map(|side| {
            let host = plan.hosts[side];
            backend.create_qp(
                host,
                &QpAttributes {
                    pd: backend.domain(host),
                    send_cq: cqs[side],
                    recv_cq: cqs[side],
                    srq: None,
                    max_send_wr: plan.depth * 4,
                    max_recv_wr: 1,
                    max_send_sge: 2,
                    max_recv_sge: 1,
                    signal_all: false,
                    service: Service::ReliableConnection,
                    transport: Arc::clone(transport),
                    number: None,
                    nvme: Some(roles[side]),
                },
            )
        });
        let psns = [(); 2].map(|()| Psn::new(random.bits() as u32));
        for (own, other) in [(0, 1), (1, 0)] {
            let connection = QpConnection {
                peer: Default::default(),
                dest_qpn: qpns[other],
                rq_psn: psns[other],
                mtu: DriveUse::MTU,
                min_rnr_timer: RnrTimer::from_code(1),
                max_dest_rd_atomic: 1,
            };
            let timing = QpTiming { sq_psn: psns[own], retry_count: u32::MAX, rnr_retry: None, max_rd_atomic: 1 };
            backend.connect_qp(plan.hosts[own], qpns[own], plan.hosts[other], &connection, &timing);
        }
        let in_flight = vec![None; plan.depth as usize];
        Self { plan, qpns, cq: cqs[0], regions: [memory, namespace], model, in_flight, random, done: 0 }
    }

    /// Returns whether `qpn` at `host` is one of its queue pairs.
    pub(super) fn owns(&self, host: usize, qpn: Qpn) -> bool {
        (0..2).any(|side| (self.plan.hosts[side], self.qpns[side]) == (host, qpn))
    }

    /// Returns the number of commands in flight.
    pub(super) fn outstanding(&self) -> usize {
        self.in_flight.iter().flatten().count()
    }

    /// Posts a command at random times.
    ///
    /// # Errors
    /// When one is not accepted.
    pub(super) fn post(&mut self, backend: &mut impl Backend) -> Result<(), String> {
        let Some(slot) = self.in_flight.iter().position(Option::is_none).filter(|_| self.random.below(3) > 0) else {
            return Ok(());
        };
        let is_out_of_range = self.random.below(100) < OUT_OF_RANGE_PERCENT;
        let blocks = self.random.between(1, COMMAND_BLOCKS_MAX.into()) as u32;
        let first = if is_out_of_range { BLOCKS } else { self.random.below(BLOCKS - u64::from(blocks) + 1) };
        let command = Command { is_write: self.random.below(2) == 0, first, blocks, is_out_of_range };
        if !is_out_of_range && self.in_flight.iter().flatten().any(|other| other.overlaps(&command)) {
            return Ok(());
        }
        let (user, len) = (self.plan.hosts[0], (blocks as usize) << BLOCK_LOG2);
        let at = slot * COMMAND_BYTES;
        let bytes = &mut backend.bytes(user, self.regions[0])[at..at + len];
        crate::pattern::fill(bytes, self.random.bits(), 0);
        if command.is_write && !is_out_of_range {
            let from = (first as usize) << BLOCK_LOG2;
            self.model[from..from + len].copy_from_slice(bytes);
        }
        let (addr, lkey) = backend.region(user, self.regions[0]);
        // Two scatter/gather entries, split at a random offset.
        let split_offset = self.random.below(len as u64) as u32;
        let sge = |from: u32, to: u32| Sge { addr: addr + at as u64 + u64::from(from), len: to - from, lkey };
        let remote = RemoteMemory { addr: first << BLOCK_LOG2, rkey: 0 };
        let op = if command.is_write { SendOp::Write { remote, immediate: None } } else { SendOp::Read { remote } };
        let sges = [sge(0, split_offset), sge(split_offset, len as u32)];
        let request = SendRequest { wr_id: slot as u64, op, sges: &sges, flags: SendFlags::SIGNALED };
        match backend.post_send(user, self.qpns[0], &request) {
            Ok(()) => self.in_flight[slot] = Some(command),
            Err(PostError::QueueFull) => return Err("four times as many entries as commands are full".to_owned()),
            Err(error) => return Err(format!("a command is not taken: {error}")),
        }
        Ok(())
    }

    /// Processes completions; returns the number of commands completed.
    ///
    /// # Errors
    /// When a completion or its data are wrong.
    pub(super) fn drain(&mut self, backend: &mut impl Backend) -> Result<u64, String> {
        let before = self.done;
        while let Some(completion) = backend.poll(self.plan.hosts[0], self.cq) {
            self.complete(backend, &completion).map_err(|what| format!("NVMe: {what}: {completion:?}"))?;
        }
        Ok(self.done - before)
    }

    fn complete(&mut self, backend: &mut impl Backend, completion: &Completion) -> Result<(), String> {
        let slot = completion.wr_id as usize;
        let command = self.in_flight.get_mut(slot).and_then(Option::take).ok_or("it is not in flight")?;
        self.done += 1;
        if command.is_out_of_range {
            let failure = completion.nvme_failure();
            let is_named = failure == Some(NvmeFailure::Status(STATUS_LBA_OUT_OF_RANGE));
            return if is_named { Ok(()) } else { Err(format!("it reaches beyond the end: {failure:?}")) };
        }
        if completion.status != WcStatus::Success {
            return Err(format!("{:?}", completion.nvme_failure()));
        }
        let (len, at) = ((command.blocks as usize) << BLOCK_LOG2, slot * COMMAND_BYTES);
        let from = (command.first as usize) << BLOCK_LOG2;
        let expected = &self.model[from..from + len];
        let found = &backend.bytes(self.plan.hosts[0], self.regions[0])[at..at + len];
        match expected.iter().zip(found).position(|(expected, found)| expected != found) {
            Some(byte) => Err(format!("{command:?} has byte {byte} wrong")),
            None => Ok(()),
        }
    }

    /// Checks, when no command is in flight, that the drive holds the expected data.
    ///
    /// # Errors
    /// When it does not, or a queue pair has failed.
    pub(super) fn check(&self, backend: &mut impl Backend) -> Result<(), String> {
        for (host, qpn) in self.plan.hosts.into_iter().zip(self.qpns) {
            let state = backend.query(host, qpn).map(|info| info.state);
            if state != Some(QpState::ReadyToSend) {
                return Err(format!("NVMe: the queue pair at host {host} is {state:?}"));
            }
        }
        let found = backend.bytes(self.plan.hosts[1], self.regions[1]);
        match self.model.iter().zip(found).position(|(expected, found)| expected != found) {
            Some(byte) => Err(format!("NVMe: byte {byte} of the drive is wrong")),
            None => Ok(()),
        }
    }
}

impl Command {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |command: &Self| command.first + u64::from(command.blocks);
        self.first < end(other) && other.first < end(self)
    }
}

/// Completion queue entries: more than the requests that can be posted between two polls.
const CQ_ENTRIES: u32 = 1 << 10;
