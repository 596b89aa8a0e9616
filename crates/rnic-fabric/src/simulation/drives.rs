//! Hosts that use an NVMe drive: creates a namespace at the drive's host, and a connection for each client.

use rnic_base::limits::WORK_REQUESTS_MAX;
use rnic_base::{Duration, RandomStreams};
use rnic_engine::{NamespaceConfig, NamespaceId, NvmeInitiator, NvmeRole};
use rnic_nvme::Direction;

use super::Simulation;
use super::connect::QueueSizes;
use crate::host::{Buffers, Host, Load, NvmeUser, fill_drive, first_wrong_block};
use crate::workload::WorkloadPlan;
use crate::workload::nvme::{BLOCK_LOG2, NvmePlan};

/// Number of the namespace.
const NAMESPACE_NUMBER: u16 = 1;
/// Timeout of a command: the default of NVMe hosts.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of transmissions of a packet: Falcon's default limit.
const TRANSMISSIONS_MAX: u32 = 64;

impl Simulation {
    /// Creates the drive of the plan, and connects its clients, which start immediately.
    pub(super) fn start_nvme(&mut self) {
        let WorkloadPlan::Nvme(plan) = self.plan.workload else { return };
        let plan = NvmePlan { checked: self.plan.checked_payload, ..plan };
        let streams = RandomStreams::new(self.seed);
        let load = |host: u32, client: u32| {
            let random = streams.stream(&format!("workload/nvme/host-{host}"));
            Load::new(plan, random, u64::from(client) * plan.span())
        };
        if plan.local {
            self.parts.host_mut(plan.to).set_nvme(NvmeUser::local(load(plan.to, 0), &plan));
            return self.parts.lower(plan.to, self.now);
        }
        let drive = make_drive(self.parts.host_mut(plan.to), &plan);
        for client in 0..plan.clients {
            let host = plan.from + client;
            let mut load = load(host, client);
            if plan.checked {
                load.record_written();
            }
            self.connect_client(&plan, host, load, &drive);
        }
        self.drive = Some(drive);
    }

    fn connect_client(&mut self, plan: &NvmePlan, host: u32, load: Load, drive: &Drive) {
        let initiator = NvmeInitiator {
            namespace: NAMESPACE_NUMBER,
            block_log2: BLOCK_LOG2,
            reads: plan.reads,
            timeout: COMMAND_TIMEOUT,
        };
        let roles = [Some(NvmeRole::Initiator(initiator)), Some(NvmeRole::Target(drive.namespace))];
        // Commands complete in any order, but an entry of the send queue becomes free only when all entries before it
        // are free; so there are more entries than commands in flight.
        let sends = plan.depth.saturating_mul(4).min(WORK_REQUESTS_MAX);
        let sizes = |sends| QueueSizes { sends, receives: 0, sges: 1 };
        let ends = [(host, sizes(sends)), (plan.to, sizes(0))];
        let transports = super::watch::planned_transports(self, 0);
        let (qpn, _) = self.connect_as(self.now, ends, roles, TRANSMISSIONS_MAX, (0, transports));
        let node = self.parts.host_mut(host);
        let buffers = node.make_buffers(plan.bytes * u64::from(plan.depth));
        node.caller_memory_bytes += node.memory_of_flows();
        node.set_nvme(NvmeUser::remote(load, qpn, buffers));
        self.parts.lower(host, self.now);
    }

    /// Checks that the drive contains the data that clients have written.
    pub(super) fn check_drive(&mut self) {
        let (WorkloadPlan::Nvme(plan), Some(drive)) = (&self.plan.workload, &self.drive) else { return };
        let written: Vec<_> =
            self.parts.hosts().filter_map(|host| host.nvme.as_deref()).flat_map(|user| user.written()).collect();
        let (now, buffers) = (self.now, drive.buffers);
        let Host { memory: Some(memory), violations, .. } = self.parts.host_mut(plan.to) else { return };
        let Some(block) = buffers.block else { return };
        for (extent, passes) in written {
            let local = block.local + (extent.first_block << BLOCK_LOG2);
            if let Some((number, byte)) = first_wrong_block(memory, local, extent, &passes) {
                let what = format!("block {number} of the drive differs from the written data from byte {byte} on");
                violations.add(now, what);
            }
        }
    }

    /// Returns the number of NVMe protocol errors that endpoints have detected in packets of their peers.
    pub(super) fn nvme_errors(&mut self) -> u64 {
        self.parts.hosts_mut().map(|host| host.engine.nvme().peer_errors()).sum()
    }
}

/// The drive of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    pub(crate) namespace: NamespaceId,
    pub(crate) buffers: Buffers,
}

/// Creates the namespace of a drive, in registered memory of `host`.
fn make_drive(host: &mut Host, plan: &NvmePlan) -> Drive {
    let buffers = host.make_buffers(plan.drive_blocks() << BLOCK_LOG2);
    host.caller_memory_bytes += host.memory_of_flows();
    if let (Direction::Read, Some(block), Some(memory)) = (plan.direction, buffers.block, &mut host.memory) {
        fill_drive(memory, block.local, plan.drive_blocks());
    }
    let config = NamespaceConfig {
        number: NAMESPACE_NUMBER,
        blocks: plan.drive_blocks(),
        pd: host.pd,
        addr: buffers.addr,
        key: buffers.key,
        device: plan.drive,
    };
    let namespace = host.engine.nvme().create_namespace(&config).expect("the plan was checked");
    Drive { namespace, buffers }
}
