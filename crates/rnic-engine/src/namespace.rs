//! Roles of queue pairs in NVMe, the namespaces of a NIC, and the devices behind them.

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
    /// Number by which initiators refer to it.
    pub number: u16,
    /// Size in blocks.
    pub blocks: u64,
    /// Protection domain of its memory.
    pub pd: PdId,
    /// Address of its first byte, in the region with `key`. Bytes that the region does not cover, or that cannot be
    /// read or written, are reported as media errors.
    pub addr: u64,
    /// Key of the region.
    pub key: Key,
    /// The device, which determines when reads and writes are done. Its block size is the namespace's.
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
        let is_whole = wqe.remote.is_multiple_of(u64::from(block)) && wqe.length.is_multiple_of(block);
        if !is_whole || wqe.length == 0 || wqe.length > most {
            return Err(PostError::NvmeBlocks { addr: wqe.remote, bytes: wqe.length, block, most });
        }
        Ok(())
    }
}

/// Checks the block size: 512 to 4096 bytes.
pub(crate) fn check_block(block_log2: u32) -> Result<(), ResourceError> {
    size("bytes of a block (as a power of two)", block_log2.into(), 9, 12)
}

fn size(what: &'static str, asked: u64, least: u64, limit: u64) -> Result<(), ResourceError> {
    let fits = (least..=limit).contains(&asked);
    if fits { Ok(()) } else { Err(ResourceError::Size { what, asked, least, limit }) }
}

/// Slot value that represents the drives in the timers.
pub(crate) const SLOT: u32 = u32::MAX - 1;

/// All namespaces of a NIC, each with a device of its own, which the targets that serve it share.
#[derive(Debug)]
pub(crate) struct Drives {
    namespaces: Vec<Option<Namespace>>,
    /// Namespaces whose devices have requests in flight, by the completion time of the next one; idle namespaces are
    /// not searched.
    busy: BTreeSet<(Time, u32)>,
    /// Deadline of the drives' own entry in the timer heap.
    armed: Deadline,
}

#[derive(Debug)]
struct Namespace {
    config: NamespaceConfig,
    drive: Drive,
    /// Number of targets that serve it.
    users: u32,
    /// Time under which it is in `busy`, if it is.
    listed: Option<Time>,
}

impl Drives {
    pub(crate) const fn new() -> Self {
        Self { namespaces: Vec::new(), busy: BTreeSet::new(), armed: Deadline::NEVER }
    }

    /// Creates a namespace.
    pub(crate) fn create(&mut self, config: &NamespaceConfig) -> Result<NamespaceId, ResourceError> {
        let DeviceConfig { queue_depth, block_log2, .. } = config.device;
        size("queue depth of the device", queue_depth.into(), 1, QUEUE_DEPTH_MAX.into())?;
        check_block(block_log2)?;
        size("blocks of a namespace", config.blocks, 1, u64::MAX >> block_log2)?;
        let index = self.namespaces.iter().position(Option::is_none).unwrap_or(self.namespaces.len());
        if index == QUEUES_MAX as usize {
            return Err(ResourceError::Exhausted { what: "namespaces", limit: u64::from(QUEUES_MAX) });
        }
        if index == self.namespaces.len() {
            self.namespaces.push(None);
        }
        let drive = Drive::new(config.device);
        self.namespaces[index] = Some(Namespace { config: *config, drive, users: 0, listed: None });
        Ok(NamespaceId(index as u32))
    }

    /// Destroys a namespace that no target serves.
    pub(crate) fn destroy(&mut self, id: NamespaceId) -> Result<(), ResourceError> {
        let place = self.namespaces.get_mut(id.0 as usize).filter(|place| place.is_some());
        let place = place.ok_or(ResourceError::Unknown("namespace"))?;
        if place.as_ref().is_some_and(|namespace| namespace.users > 0) {
            return Err(ResourceError::Busy("namespace"));
        }
        if let Some(at) = place.take().and_then(|namespace| namespace.listed) {
            self.busy.remove(&(at, id.0));
        }
        Ok(())
    }

    /// Returns the attributes of `id`, if there is such a namespace.
    pub(crate) fn config(&self, id: NamespaceId) -> Option<&NamespaceConfig> {
        self.namespaces.get(id.0 as usize)?.as_ref().map(|namespace| &namespace.config)
    }

    /// Returns whether a namespace belongs to the protection domain `pd`.
    pub(crate) fn uses(&self, pd: PdId) -> bool {
        self.namespaces.iter().flatten().any(|namespace| namespace.config.pd == pd)
    }

    /// Changes the number of targets that serve `id` by `by`.
    pub(crate) fn count_user(&mut self, id: NamespaceId, by: i32) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(id.0 as usize) {
            namespace.users = namespace.users.saturating_add_signed(by);
        }
    }

    /// Submits `io`, whose owner is the slot of its queue pair, to the device of `id`.
    pub(crate) fn submit(&mut self, now: Time, id: NamespaceId, io: Io, timers: &mut Timers) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(id.0 as usize) {
            namespace.drive.submit(now, io);
            self.list(id.0);
            self.arm(timers);
        }
    }

    /// Returns a request that is complete at `now`, if there is one.
    pub(crate) fn done(&mut self, now: Time) -> Option<Io> {
        let (_, index) = self.busy.first().filter(|(at, _)| *at <= now)?;
        let index = *index;
        let io = self.namespaces[index as usize].as_mut().and_then(|namespace| namespace.drive.done(now));
        self.list(index);
        io
    }

    /// Updates the entry of namespace `index` in `busy`.
    fn list(&mut self, index: u32) {
        let Some(namespace) = &mut self.namespaces[index as usize] else { return };
        let next = namespace.drive.next_done();
        let listed = core::mem::replace(&mut namespace.listed, next);
        if listed != next {
            listed.map(|at| self.busy.remove(&(at, index)));
            next.map(|at| self.busy.insert((at, index)));
        }
    }

    /// Discards the requests of the queue pair in `slot` to `id`.
    pub(crate) fn forget(&mut self, now: Time, id: NamespaceId, slot: u32, timers: &mut Timers) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(id.0 as usize) {
            namespace.drive.forget(now, slot);
            self.list(id.0);
            // Its places in the device queue are used by other requests now, so the next completion time may have
            // changed.
            self.arm(timers);
        }
    }

    /// Returns whether `deadline`, which has expired in the timer heap, is the drives' entry; clears the entry.
    pub(crate) fn take_expired(&mut self, deadline: Deadline) -> bool {
        let is_ours = self.armed == deadline;
        if is_ours {
            self.armed = Deadline::NEVER;
        }
        is_ours
    }

    /// Ensures that a timer expires when the next request is complete.
    pub(crate) fn arm(&mut self, timers: &mut Timers) {
        if let Some((next, _)) = self.busy.first() {
            timers.arm(SLOT, Deadline::at(*next), &mut self.armed);
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

    /// Requests complete in the order of time across namespaces, and idle namespaces are not in `busy`.
    #[test]
    fn what_is_done_comes_by_time_and_idle_namespaces_are_not_looked_at() {
        let (mut drives, mut timers) = (Drives::new(), Timers::default());
        let ids: Vec<NamespaceId> =
            (0..64).map(|index| drives.create(&config(200 - index)).expect("a legal namespace")).collect();
        for (index, tag) in [(3, 0), (50, 1), (50, 2), (50, 3), (20, 4)] {
            drives.submit(Time::ZERO, ids[index], io(index as u32, tag), &mut timers);
        }
        assert_eq!(drives.busy.len(), 3);
        assert_eq!(drives.done(Time::from_us(149)), None);
        // The third of the one waits for a place, and so longer than the others.
        let done: Vec<u32> = core::iter::from_fn(|| drives.done(Time::from_us(250))).map(|io| io.tag).collect();
        assert_eq!((done, drives.busy.len()), (vec![1, 2, 4, 0], 1));
        drives.forget(Time::from_us(251), ids[50], 50, &mut timers);
        assert_eq!((drives.done(Time::from_us(1_000)), drives.busy.len()), (None, 0));
        drives.submit(Time::from_us(1_000), ids[3], io(3, 5), &mut timers);
        assert_eq!((drives.destroy(ids[3]), drives.busy.len()), (Ok(()), 0));
    }
}
