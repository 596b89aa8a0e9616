//! A drive used by its own host: commands are divided into units (parts of at most 4 KiB), like commands from the
//! network.

use rnic_base::Time;
use rnic_nvme::device::Io;
use rnic_nvme::initiator::Command;
use rnic_nvme::{DeviceConfig, Drive, Extent, UNIT};

use crate::workload::nvme::BLOCK_LOG2;

/// A drive used by its own host, without the network.
#[derive(Debug)]
pub(super) struct LocalDrive {
    drive: Drive,
    /// Number of parts (units) of each command that have not completed, indexed by the command's cookie.
    remaining_units: Box<[u32]>,
}

/// Maximum number of blocks of a unit, the part of a command that the drive serves at once.
const UNIT_BLOCKS: u32 = UNIT >> BLOCK_LOG2;

impl LocalDrive {
    /// Returns a drive that accepts commands whose identifiers (cookies) are below `depth`.
    pub(super) fn new(config: DeviceConfig, depth: u32) -> Self {
        Self { drive: Drive::new(config), remaining_units: vec![0; depth as usize].into_boxed_slice() }
    }

    /// Accepts a command. The parts into which its data is divided wait while the drive has no free slot.
    pub(super) fn submit(&mut self, now: Time, command: &Command) {
        let Command { direction, first_block, blocks, cookie } = *command;
        self.remaining_units[cookie as usize] = blocks.div_ceil(UNIT_BLOCKS);
        for offset in (0..blocks).step_by(UNIT_BLOCKS as usize) {
            let blocks = (blocks - offset).min(UNIT_BLOCKS);
            let extent = Extent { first_block: first_block + u64::from(offset), blocks };
            self.drive.submit(now, Io { owner: 0, tag: cookie as u32, direction, extent });
        }
    }

    /// Returns a command whose last part has completed by `now`, if there is one, and removes it.
    pub(super) fn done(&mut self, now: Time) -> Option<u64> {
        loop {
            let io = self.drive.done(now)?;
            let remaining_units = &mut self.remaining_units[io.tag as usize];
            *remaining_units -= 1;
            if *remaining_units == 0 {
                return Some(io.tag.into());
            }
        }
    }

    /// Returns the time at which the next part of a command completes.
    pub(super) fn next_done(&self) -> Option<Time> {
        self.drive.next_done()
    }
}
