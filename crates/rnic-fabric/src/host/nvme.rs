//! A host that uses a drive: by commands on an NVMe queue pair, or, at the drive's own host, without the network.
//!
//! Sources: those of `rnic-nvme`, and Falcon (SIGCOMM'25) figure 2, where NVMe is shown next to RDMA on the same two
//! layers. A client has one queue pair, connected to a separate target at the drive's host; all targets share the
//! drive, whose slots are assigned to them in round-robin order. The event loop of a host treats it like any other
//! queue pair.
//!
//! With `payload = "checked"`, bytes are compared: a block of a drive that is read contains the pattern of its number
//! from the start of the run. A block that is written must contain, at the end, the pattern of its number and of the
//! last command that wrote it, or of one of the last commands if several were in flight at the same time
//! ([`first_wrong_block`]).

mod load;
mod local;
mod write_history;

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

/// Bit set in the work request identifiers of NVMe commands.
pub(crate) const NVME_WORK: u64 = 1 << 61;

/// Sender number that makes [`Host::start_at`] start NVMe commands instead of a sender.
pub(crate) const NVME_START: u32 = u32::MAX;

/// State of a host that uses a drive.
#[derive(Debug)]
pub(crate) struct NvmeUser {
    load: Load,
    access: DriveAccess,
}

/// The path of commands to the drive.
#[derive(Debug)]
enum DriveAccess {
    /// Commands are sent on a queue pair and use these buffers, one for each command in flight.
    Remote { qpn: Qpn, buffers: Buffers },
    /// The host uses its own drive.
    Local(Box<LocalDrive>),
}

impl NvmeUser {
    /// Returns a client whose initiator is `qpn`.
    pub(crate) fn remote(load: Load, qpn: Qpn, buffers: Buffers) -> Self {
        Self { load, access: DriveAccess::Remote { qpn, buffers } }
    }

    /// Returns a host that uses its own drive.
    pub(crate) fn local(load: Load, plan: &NvmePlan) -> Self {
        Self { load, access: DriveAccess::Local(Box::new(LocalDrive::new(plan.drive, plan.depth))) }
    }

    /// Returns the number of commands that have not completed.
    pub(crate) fn in_flight(&self) -> u64 {
        self.load.in_flight() as u64
    }

    /// Returns, for each completed command, the time at which it was posted and its duration.
    pub(crate) fn completed(&self) -> &[(Time, Duration)] {
        self.load.completed()
    }

    /// Returns the blocks that commands have written, and the sequence numbers of the writes whose data each may
    /// contain.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Extent, Vec<u64>)> {
        self.load.written()
    }
}

/// The parts of a host that NVMe commands use.
pub(super) struct Parts<'a> {
    pub(super) sessions: &'a mut Sessions,
    pub(super) engine: &'a mut Engine,
    pub(super) memory: Option<&'a mut Memory>,
    pub(super) violations: &'a mut Violations,
}

impl NvmeUser {
    /// Posts commands; with a local drive, also processes the completions that are due. Returns the time of the next
    /// call, if one is needed.
    #[cold]
    pub(super) fn start(&mut self, now: Time, mut parts: Parts<'_>) -> Option<Time> {
        if let DriveAccess::Local(drive) = &mut self.access {
            while let Some(cookie) = drive.done(now) {
                self.load.done(now, cookie, parts.sessions);
            }
        }
        self.post(now, &mut parts);
        if let DriveAccess::Local(drive) = &self.access { drive.next_done() } else { None }
    }

    /// Processes the completion of a command, and posts the next one.
    #[cold]
    pub(super) fn complete(&mut self, now: Time, completion: &Completion, mut parts: Parts<'_>) {
        let Self { load, access } = self;
        let cookie = completion.wr_id & !NVME_WORK;
        if completion.status == WcStatus::Success {
            let block = if let DriveAccess::Remote { buffers, .. } = access { buffers.block } else { None };
            if let (Direction::Read, Some(block), Some(memory)) = (load.plan().direction, block, &parts.memory) {
                let local = block.local + cookie * load.plan().bytes;
                if let Some((number, byte)) = first_wrong_block(memory, local, load.extent(cookie), &[INITIAL_PASS]) {
                    let what = format!("an NVMe command has read wrong data from block {number}, from byte {byte} on");
                    parts.violations.add(now, what);
                }
            }
            load.done(now, cookie, parts.sessions);
        } else {
            let reason = completion
                .nvme_failure()
                .map_or_else(|| format!("{:?}", completion.status), |failure| failure.to_string());
            parts.violations.add(now, format!("an NVMe command failed: {reason}"));
            load.failed(cookie);
            if completion.nvme_failure().is_none() {
                // The queue pair has failed: commands posted to it would be flushed at this same instant.
                load.end();
            }
        }
        self.post(now, &mut parts);
    }

    fn post(&mut self, now: Time, parts: &mut Parts<'_>) {
        let Self { load, access } = self;
        while let Some(command) = load.next(now) {
            let result = match access {
                DriveAccess::Remote { qpn, buffers } => {
                    let (wr_id, op, sge) = request(buffers, load.plan(), &command);
                    if let (Direction::Write, Some(memory)) = (command.direction, &mut parts.memory) {
                        fill(memory, buffers, sge.addr, &command, load.pass(command.cookie));
                    }
                    let request = SendRequest { wr_id, op, sges: &[sge], flags: SendFlags::SIGNALED };
                    parts.engine.post_send(*qpn, &request)
                }
                DriveAccess::Local(drive) => {
                    drive.submit(now, &command);
                    Ok(())
                }
            };
            let Err(error) = result else { continue };
            load.take_back(command.cookie);
            if error != PostError::QueueFull {
                // A later attempt would fail as well.
                load.end();
                parts.violations.add(now, format!("an NVMe command cannot be posted: {error}"));
            }
            return;
        }
    }
}

impl Host {
    /// Makes this host use a drive. The first commands are posted at the start of the run.
    pub(crate) fn set_nvme(&mut self, user: NvmeUser) {
        self.nvme = Some(Box::new(user));
        self.start_at(Time::ZERO, NVME_START);
    }

    /// Runs the NVMe workload of this host: because of `completion`, or because its scheduled start is due.
    #[cold]
    pub(super) fn use_drive(&mut self, now: Time, completion: Option<&Completion>) {
        let Self { nvme: Some(user), sessions, engine, memory, violations, .. } = self else { return };
        let parts = Parts { sessions, engine, memory: memory.as_mut(), violations };
        let next_start = match completion {
            Some(completion) => {
                user.complete(now, completion, parts);
                None
            }
            None => user.start(now, parts),
        };
        if let Some(at) = next_start {
            self.start_at(at, NVME_START);
        }
    }
}

/// Pass number of the data on a drive before any write.
const INITIAL_PASS: u64 = 0;

/// Returns the pattern of block `number` in that pass.
fn pattern_of(number: u64, pass: u64) -> u64 {
    pass << 32 ^ number
}

/// Fills `blocks` of a drive, whose first byte is at `local`, with their patterns.
pub(crate) fn fill_drive(memory: &mut Memory, local: u64, blocks: u64) {
    for number in 0..blocks {
        memory.fill(local + (number << BLOCK_LOG2), 1 << BLOCK_LOG2, pattern_of(number, INITIAL_PASS));
    }
}

/// Returns the number of the first block of `extent`, whose first byte is at `local`, that matches the pattern of
/// none of `passes`, and the first wrong byte in it.
pub(crate) fn first_wrong_block(memory: &Memory, local: u64, extent: Extent, passes: &[u64]) -> Option<(u64, u64)> {
    (extent.first_block..).zip(0..u64::from(extent.blocks)).find_map(|(number, at)| {
        let at = local + (at << BLOCK_LOG2);
        let wrong = |pass: &u64| memory.first_difference(at, 1 << BLOCK_LOG2, pattern_of(number, *pass));
        let wrong = passes.iter().map(wrong).min().flatten();
        wrong.map(|byte| (number, byte))
    })
}

/// Returns the work request of `command`: its number, its operation, and its memory.
fn request(buffers: &Buffers, plan: &NvmePlan, command: &Command) -> (u64, SendOp, Sge) {
    let remote = RemoteMemory { addr: command.first_block << BLOCK_LOG2, rkey: 0 };
    let op = match command.direction {
        Direction::Read => SendOp::Read { remote },
        Direction::Write => SendOp::Write { remote, immediate: None },
    };
    let addr = buffers.addr + command.cookie * plan.bytes;
    (command.cookie | NVME_WORK, op, Sge { addr, len: plan.bytes as u32, lkey: buffers.key.0 })
}

/// Fills the buffer of a write command with the patterns of its blocks in its pass.
fn fill(memory: &mut Memory, buffers: &Buffers, addr: u64, command: &Command, pass: u64) {
    let Some(block) = buffers.block else { return };
    let local = block.local + (addr - buffers.addr);
    for (number, at) in (command.first_block..).zip(0..u64::from(command.blocks)) {
        memory.fill(local + (at << BLOCK_LOG2), 1 << BLOCK_LOG2, pattern_of(number, pass));
    }
}
