//! NVMe roles of queue pairs, the namespaces of a NIC, and their devices.

use std::collections::BTreeSet;

use rnic_base::limits::QUEUES_MAX;
use rnic_base::{Duration, Time};
use rnic_nvme::device::{Io, QUEUE_DEPTH_MAX};
use rnic_nvme::{DeviceConfig, Drive, Reads, UNIT, UNITS_MAX};

use crate::PdId;
use crate::error::{PostError, ResourceError};
use crate::mr::Key;
use crate::timer::{Deadline, Timers};
use crate::wq::{SendWqe, WqeOp};
use crate::wr::SendFlags;

/// NVMe role of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvmeRole {
    /// Initiator: its requests are commands to a namespace of the peer.
    Initiator(NvmeInitiator),
    /// Target: it serves the peer's commands from a namespace of this NIC.
    Target(NamespaceId),
}

/// Attributes of an initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmeInitiator {
    /// Number of the namespace at the target.
    pub namespace: u16,
    /// Base-2 logarithm of the block size in bytes, 9 to 12: addresses and lengths of requests are multiples of the
    /// block size.
    pub block_log2: u32,
    /// Type of transactions that a Read uses.
    pub reads: Reads,
    /// Maximum duration of a command.
    pub timeout: Duration,
}

/// Identifier of a namespace of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamespaceId(pub(crate) u32);

/// Attributes of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespaceConfig {
    /// Number by which initiators refer to the namespace.
    pub number: u16,
    /// Size in blocks.
    pub blocks: u64,
    /// Protection domain of the namespace's memory.
    pub pd: PdId,
    /// Address of the namespace's first byte, in the region with `key`. Bytes that the region does not cover, or that
    /// cannot be read or written, are reported as media errors.
    pub addr: u64,
    /// Key of the region.
    pub key: Key,
    /// Configuration of the device, which determines when reads and writes are done. Its block size is also that of
    /// the namespace.
    pub device: DeviceConfig,
}

impl NvmeRole {
    /// Checks that `wqe` is a valid command of an initiator.
    pub(crate) fn check(&self, wqe: &SendWqe) -> Result<(), PostError> {
        let Self::Initiator(NvmeInitiator { block_log2, .. }) = self else { return Err(PostError::NvmeTarget) };
        if !matches!(wqe.op, WqeOp::Read | WqeOp::Write) || wqe.flags.contains(SendFlags::FENCE) {
            return Err(PostError::NvmeOperation);
        }
        let (block, most) = (1 << block_log2, UNITS_MAX * UNIT);
        let is_block_multiple = wqe.remote.is_multiple_of(u64::from(block)) && wqe.length.is_multiple_of(block);
        if !is_block_multiple || wqe.length == 0 || wqe.length > most {
            return Err(PostError::NvmeBlocks { addr: wqe.remote, bytes: wqe.length, block, most });
        }
        Ok(())
    }
}

/// Checks the block size: 512 to 4096 bytes.
pub(crate) fn check_block(block_log2: u32) -> Result<(), ResourceError> {
    check_size("base-2 logarithm of the block size in bytes", block_log2.into(), 9, 12)
}

fn check_size(what: &'static str, requested: u64, minimum: u64, limit: u64) -> Result<(), ResourceError> {
    let is_valid = (minimum..=limit).contains(&requested);
    if is_valid { Ok(()) } else { Err(ResourceError::Size { what, requested, minimum, limit }) }
}

/// Slot value that represents the namespaces in the timers.
pub(crate) const NAMESPACE_TIMER_SLOT: u32 = u32::MAX - 1;

/// All namespaces of a NIC, each with its own device, which all targets of the namespace share.
#[derive(Debug)]
pub(crate) struct Namespaces {
    namespaces: Vec<Option<Namespace>>,
    /// Namespaces whose devices have requests in flight, ordered by the completion time of the next request; idle
    /// namespaces are not searched.
    busy: BTreeSet<(Time, u32)>,
    /// Deadline of the namespaces' own entry in the timer heap.
    armed: Deadline,
}

#[derive(Debug)]
struct Namespace {
    config: NamespaceConfig,
    drive: Drive,
    /// Number of targets that serve the namespace.
    users: u32,
    /// Time with which the namespace is listed in `busy`, if it is.
    busy_time: Option<Time>,
}

impl Namespaces {
    pub(crate) const fn new() -> Self {
        Self { namespaces: Vec::new(), busy: BTreeSet::new(), armed: Deadline::NEVER }
    }

    /// Creates a namespace.
    pub(crate) fn create(&mut self, config: &NamespaceConfig) -> Result<NamespaceId, ResourceError> {
        let DeviceConfig { queue_depth, block_log2, .. } = config.device;
        check_size("queue depth of the NVMe device", queue_depth.into(), 1, QUEUE_DEPTH_MAX.into())?;
        check_block(block_log2)?;
        check_size("number of blocks of the namespace", config.blocks, 1, u64::MAX >> block_log2)?;
        let index = self.namespaces.iter().position(Option::is_none).unwrap_or(self.namespaces.len());
        if index == QUEUES_MAX as usize {
            return Err(ResourceError::Exhausted { what: "namespaces", limit: u64::from(QUEUES_MAX) });
        }
        if index == self.namespaces.len() {
            self.namespaces.push(None);
        }
        let drive = Drive::new(config.device);
        self.namespaces[index] = Some(Namespace { config: *config, drive, users: 0, busy_time: None });
        Ok(NamespaceId(index as u32))
    }

    /// Destroys a namespace that no target serves.
    pub(crate) fn destroy(&mut self, id: NamespaceId) -> Result<(), ResourceError> {
        let place = self.namespaces.get_mut(id.0 as usize).filter(|place| place.is_some());
        let place = place.ok_or(ResourceError::Unknown("namespace"))?;
        if place.as_ref().is_some_and(|namespace| namespace.users > 0) {
            return Err(ResourceError::Busy("namespace"));
        }
        if let Some(at) = place.take().and_then(|namespace| namespace.busy_time) {
            self.busy.remove(&(at, id.0));
        }
        Ok(())
    }

    /// Returns the attributes of `id`, if there is such a namespace.
    pub(crate) fn config(&self, id: NamespaceId) -> Option<&NamespaceConfig> {
        self.namespaces.get(id.0 as usize)?.as_ref().map(|namespace| &namespace.config)
    }

    /// Returns `true` if a namespace belongs to the protection domain `pd`.
    pub(crate) fn uses(&self, pd: PdId) -> bool {
        self.namespaces.iter().flatten().any(|namespace| namespace.config.pd == pd)
    }

    /// Changes the number of targets that serve `id` by `delta`.
    pub(crate) fn count_user(&mut self, id: NamespaceId, delta: i32) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(id.0 as usize) {
            namespace.users = namespace.users.saturating_add_signed(delta);
        }
    }

    /// Submits `io`, whose owner is the slot of its queue pair, to the device of `id`.
    pub(crate) fn submit(&mut self, now: Time, id: NamespaceId, io: Io, timers: &mut Timers) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(id.0 as usize) {
            namespace.drive.submit(now, io);
            self.update_busy(id.0);
            self.arm(timers);
        }
    }

    /// Returns a request that has completed by `now`, if there is one.
    pub(crate) fn done(&mut self, now: Time) -> Option<Io> {
        let (_, index) = self.busy.first().filter(|(at, _)| *at <= now)?;
        let index = *index;
        let io = self.namespaces[index as usize].as_mut().and_then(|namespace| namespace.drive.done(now));
        self.update_busy(index);
        io
    }

    /// Updates the entry of namespace `index` in `busy`.
    fn update_busy(&mut self, index: u32) {
        let Some(namespace) = &mut self.namespaces[index as usize] else { return };
        let next = namespace.drive.next_done();
        let busy_time = core::mem::replace(&mut namespace.busy_time, next);
        if busy_time != next {
            busy_time.map(|at| self.busy.remove(&(at, index)));
            next.map(|at| self.busy.insert((at, index)));
        }
    }

    /// Discards the requests of the queue pair in `slot` to `id`.
    pub(crate) fn forget(&mut self, now: Time, id: NamespaceId, slot: u32, timers: &mut Timers) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(id.0 as usize) {
            namespace.drive.forget(now, slot);
            self.update_busy(id.0);
            // Other requests now use its positions in the device queue, so the next completion time may have changed.
            self.arm(timers);
        }
    }

    /// Returns `true` if `deadline`, which has expired in the timer heap, is the namespaces' entry; clears the entry in
    /// that case.
    pub(crate) fn remove_expired(&mut self, deadline: Deadline) -> bool {
        let is_own = self.armed == deadline;
        if is_own {
            self.armed = Deadline::NEVER;
        }
        is_own
    }

    /// Ensures that a timer expires when the next request is complete.
    pub(crate) fn arm(&mut self, timers: &mut Timers) {
        if let Some((next, _)) = self.busy.first() {
            timers.arm(NAMESPACE_TIMER_SLOT, Deadline::at(*next), &mut self.armed);
        }
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::BitRate;
    use rnic_nvme::device::Service;
    use rnic_nvme::{Direction, Extent};

    use super::*;

    fn config(latency_us: u64) -> NamespaceConfig {
        let service = Service { latency: Duration::from_us(latency_us), bandwidth: BitRate::gbps(100) };
        let device = DeviceConfig { read: service, write: service, queue_depth: 2, block_log2: 9 };
        NamespaceConfig { number: 1, blocks: 64, pd: PdId(0), addr: 0, key: Key(0), device }
    }

    fn io(owner: u32, tag: u32) -> Io {
        Io { owner, tag, direction: Direction::Read, extent: Extent { first_block: 0, blocks: 1 } }
    }

    /// Requests of all namespaces complete in the order of their completion times, and idle namespaces are not in
    /// `busy`.
    #[test]
    fn requests_complete_in_order_of_completion_time_and_idle_namespaces_are_not_in_busy() {
        let (mut namespaces, mut timers) = (Namespaces::new(), Timers::default());
        let ids: Vec<NamespaceId> =
            (0..64).map(|index| namespaces.create(&config(200 - index)).expect("a legal namespace")).collect();
        for (index, tag) in [(3, 0), (50, 1), (50, 2), (50, 3), (20, 4)] {
            namespaces.submit(Time::ZERO, ids[index], io(index as u32, tag), &mut timers);
        }
        assert_eq!(namespaces.busy.len(), 3);
        assert_eq!(namespaces.done(Time::from_us(149)), None);
        // The third request to namespace 50 waits for a position in the device queue, so it completes later than the
        // others.
        let done: Vec<u32> = core::iter::from_fn(|| namespaces.done(Time::from_us(250))).map(|io| io.tag).collect();
        assert_eq!((done, namespaces.busy.len()), (vec![1, 2, 4, 0], 1));
        namespaces.forget(Time::from_us(251), ids[50], 50, &mut timers);
        assert_eq!((namespaces.done(Time::from_us(1_000)), namespaces.busy.len()), (None, 0));
        namespaces.submit(Time::from_us(1_000), ids[3], io(3, 5), &mut timers);
        assert_eq!((namespaces.destroy(ids[3]), namespaces.busy.len()), (Ok(()), 0));
    }
}
