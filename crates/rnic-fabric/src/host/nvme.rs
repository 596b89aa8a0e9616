//! A host that uses a drive: by commands on a queue pair for NVMe, or, at the drive's own host, without the network.
//!
//! Sources: those of `rnic-nvme`, and Falcon (SIGCOMM'25) figure 2, where NVMe stands beside RDMA on the same two
//! layers. A client has one queue pair, with a target of its own at the drive's host; all targets share the drive,
//! whose places they get by turns. To the loop of a host it is a queue pair like all others.
//!
//! With `payload = "checked"` bytes count: a block of a drive that is read has the pattern of its number from the
//! beginning on, and one that is written has in the end that of its number and of the last command that wrote it, or of
//! one of the last, where they were under way at once ([`first_wrong_block`]).

mod load;
mod local;
mod written;

use rnic_base::{Duration, Time};
use rnic_engine::{Completion, Engine, PostError, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_nvme::initiator::Command;
use rnic_nvme::{Direction, Extent};
use rnic_wire::Qpn;

use super::memory::Memory;
use super::{Buffers, Host, Sessions};
use crate::check::Violations;
use crate::workload::nvme::{BLOCK_LOG2, NvmePlan};

pub(crate) use load::Load;
use local::LocalDrive;

/// Work request numbers with this bit are commands.
pub(crate) const NVME_WORK: u64 = 1 << 61;

/// What [`Host::start_at`] starts where it is no sender: commands.
pub(crate) const NVME_START: u32 = u32::MAX;

/// What a host has that uses a drive.
#[derive(Debug)]
pub(crate) struct NvmeUser {
    load: Load,
    way: Way,
}

/// How commands reach the drive.
#[derive(Debug)]
enum Way {
    /// By a queue pair, from and to these buffers: one for each command under way.
    Remote { qpn: Qpn, buffers: Buffers },
    /// The drive is the host's own.
    Local(Box<LocalDrive>),
}

impl NvmeUser {
    /// Returns a client whose initiator is `qpn`.
    pub(crate) fn remote(load: Load, qpn: Qpn, buffers: Buffers) -> Self {
        Self { load, way: Way::Remote { qpn, buffers } }
    }

    /// Returns a host that uses its own drive.
    pub(crate) fn local(load: Load, plan: &NvmePlan) -> Self {
        Self { load, way: Way::Local(Box::new(LocalDrive::new(plan.drive, plan.depth))) }
    }

    /// Returns how many commands are not done.
    pub(crate) fn under_way(&self) -> u64 {
        self.load.under_way() as u64
    }

    /// Returns when each command was posted that is done, and how long it took.
    pub(crate) fn all_done(&self) -> &[(Time, Duration)] {
        self.load.all_done()
    }

    /// Returns the blocks that commands have written, and the passes that may be there.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Extent, Vec<u64>)> {
        self.load.written()
    }
}

/// What the host of a user has for it.
pub(super) struct Parts<'a> {
    pub(super) sessions: &'a mut Sessions,
    pub(super) engine: &'a mut Engine,
    pub(super) memory: Option<&'a mut Memory>,
    pub(super) violations: &'a mut Violations,
}

impl NvmeUser {
    /// Posts commands; at a drive of its own, does what is due there. Returns when it wants to be called again.
    #[cold]
    pub(super) fn start(&mut self, now: Time, mut parts: Parts<'_>) -> Option<Time> {
        if let Way::Local(drive) = &mut self.way {
            while let Some(cookie) = drive.done(now) {
                self.load.done(now, cookie, parts.sessions);
            }
        }
        self.post(now, &mut parts);
        if let Way::Local(drive) = &self.way { drive.next_done() } else { None }
    }

    /// Takes the end of a command, and posts the next.
    #[cold]
    pub(super) fn complete(&mut self, now: Time, completion: &Completion, mut parts: Parts<'_>) {
        let Self { load, way } = self;
        let cookie = completion.wr_id & !NVME_WORK;
        if completion.status == WcStatus::Success {
            let place = if let Way::Remote { buffers, .. } = way { buffers.block } else { None };
            if let (Direction::Read, Some(block), Some(memory)) = (load.plan().direction, place, &parts.memory) {
                let local = block.local + cookie * load.plan().bytes;
                if let Some((number, byte)) = first_wrong_block(memory, local, load.extent(cookie), &[AT_FIRST]) {
                    let what = format!("an NVMe command has read block {number} wrong, from byte {byte} on");
                    parts.violations.add(now, what);
                }
            }
            load.done(now, cookie, parts.sessions);
        } else {
            let why = completion.nvme_failure().map_or_else(|| format!("{:?}", completion.status), |f| f.to_string());
            parts.violations.add(now, format!("an NVMe command failed: {why}"));
            load.failed(cookie);
            if completion.nvme_failure().is_none() {
                // The queue pair has failed: what is posted to it is flushed at once, at this very time.
                load.end();
            }
        }
        self.post(now, &mut parts);
    }

    fn post(&mut self, now: Time, parts: &mut Parts<'_>) {
        let Self { load, way } = self;
        while let Some(command) = load.next(now) {
            let result = match way {
                Way::Remote { qpn, buffers } => {
                    let (wr_id, op, sge) = request(buffers, load.plan(), &command);
                    if let (Direction::Write, Some(memory)) = (command.direction, &mut parts.memory) {
                        fill(memory, buffers, sge.addr, &command, load.pass(command.cookie));
                    }
                    let request = SendRequest { wr_id, op, sges: &[sge], flags: SendFlags::SIGNALED };
                    parts.engine.post_send(*qpn, &request)
                }
                Way::Local(drive) => {
                    drive.submit(now, &command);
                    Ok(())
                }
            };
            let Err(error) = result else { continue };
            load.take_back(command.cookie);
            if error != PostError::QueueFull {
                // Nor will it be taken later.
                load.end();
                parts.violations.add(now, format!("an NVMe command cannot be posted: {error}"));
            }
            return;
        }
    }
}

impl Host {
    /// From now on it uses a drive. The first commands leave at the beginning.
    pub(crate) fn set_nvme(&mut self, user: NvmeUser) {
        self.nvme = Some(Box::new(user));
        self.start_at(Time::ZERO, NVME_START);
    }

    /// Lets its user of a drive act: on `completion`, or because a start has come.
    #[cold]
    pub(super) fn use_drive(&mut self, now: Time, completion: Option<&Completion>) {
        let Self { nvme: Some(user), sessions, engine, memory, violations, .. } = self else { return };
        let parts = Parts { sessions, engine, memory: memory.as_mut(), violations };
        let again = match completion {
            Some(completion) => {
                user.complete(now, completion, parts);
                None
            }
            None => user.start(now, parts),
        };
        if let Some(at) = again {
            self.start_at(at, NVME_START);
        }
    }
}

/// The pass over a drive that is there before any command has written.
const AT_FIRST: u64 = 0;

/// Returns the pattern of block `number` in that pass.
fn pattern_of(number: u64, pass: u64) -> u64 {
    pass << 32 ^ number
}

/// Fills `blocks` of a drive, whose first byte is at `local`, with their patterns.
pub(crate) fn fill_drive(memory: &mut Memory, local: u64, blocks: u64) {
    for number in 0..blocks {
        memory.fill(local + (number << BLOCK_LOG2), 1 << BLOCK_LOG2, pattern_of(number, AT_FIRST));
    }
}

/// Returns the first block of `extent`, whose first byte is at `local`, that has the pattern of none of `passes`, and
/// the first byte of it that is wrong.
pub(crate) fn first_wrong_block(memory: &Memory, local: u64, extent: Extent, passes: &[u64]) -> Option<(u64, u64)> {
    (extent.first_block..).zip(0..u64::from(extent.blocks)).find_map(|(number, at)| {
        let at = local + (at << BLOCK_LOG2);
        let wrong = |pass: &u64| memory.first_difference(at, 1 << BLOCK_LOG2, pattern_of(number, *pass));
        let wrong = passes.iter().map(wrong).min().flatten();
        wrong.map(|byte| (number, byte))
    })
}

/// Returns the work request of `command`: its number, what it does, and its memory.
fn request(buffers: &Buffers, plan: &NvmePlan, command: &Command) -> (u64, SendOp, Sge) {
    let remote = RemoteMemory { addr: command.first_block << BLOCK_LOG2, rkey: 0 };
    let op = match command.direction {
        Direction::Read => SendOp::Read { remote },
        Direction::Write => SendOp::Write { remote, immediate: None },
    };
    let addr = buffers.addr + command.cookie * plan.bytes;
    (command.cookie | NVME_WORK, op, Sge { addr, len: plan.bytes as u32, lkey: buffers.key.0 })
}

/// Fills the memory of a command that writes with the patterns of its blocks in its pass.
fn fill(memory: &mut Memory, buffers: &Buffers, addr: u64, command: &Command, pass: u64) {
    let Some(block) = buffers.block else { return };
    let local = block.local + (addr - buffers.addr);
    for (number, at) in (command.first_block..).zip(0..u64::from(command.blocks)) {
        memory.fill(local + (at << BLOCK_LOG2), 1 << BLOCK_LOG2, pattern_of(number, pass));
    }
}
