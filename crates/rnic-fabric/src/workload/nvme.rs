//! Hosts that read and write a drive of another host, over Falcon.
//!
//! Source: Falcon (SIGCOMM'25) section 6.3 and table 4 (Near Local Flash). Clients keep so many commands under way
//! until the clock ends it, each for blocks at a random place of a gigabyte of its own. With `local` nobody uses the
//! network: the drive's own host does what one client would, which is what the others are held against.

use rnic_base::{Duration, Time};
use rnic_nvme::{DeviceConfig, Direction, Reads};

/// The workload `nvme`: who uses whose drive, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmePlan {
    /// Reads, or writes.
    pub direction: Direction,
    /// Bytes of a command.
    pub bytes: u64,
    /// Commands of a client under way at once.
    pub depth: u32,
    /// The first host that posts.
    pub from: u32,
    /// How many hosts post: those after `from` too.
    pub clients: u32,
    /// The host with the drive.
    pub to: u32,
    /// Its own host posts, and nobody else.
    pub local: bool,
    /// Post nothing new from then on.
    pub until: Time,
    /// Which transactions a Read is.
    pub reads: Reads,
    /// Payload is carried and checked: clients have small parts of the drive.
    pub checked: bool,
    /// The drive.
    pub drive: DeviceConfig,
}

/// Of a block, the power of two.
pub const BLOCK_LOG2: u32 = 9;

impl NvmePlan {
    /// Blocks of a command.
    pub const fn blocks(&self) -> u32 {
        (self.bytes >> BLOCK_LOG2) as u32
    }

    /// Blocks of a client's part of the drive: a gigabyte, or four megabytes where every byte is kept.
    pub const fn span(&self) -> u64 {
        1 << (if self.checked { 22 } else { 30 } - BLOCK_LOG2)
    }

    /// Blocks of the drive.
    pub const fn drive_blocks(&self) -> u64 {
        self.span() * self.clients as u64
    }

    /// What a command takes of the drive when it is alone there.
    pub fn ideal_time(&self) -> Duration {
        let service = match self.direction {
            Direction::Read => self.drive.read,
            Direction::Write => self.drive.write,
        };
        service.latency + service.bandwidth.serialize(self.bytes)
    }

    /// Which client `host` is, if it is one.
    pub fn client(&self, host: u32) -> Option<u32> {
        host.checked_sub(self.from).filter(|client| *client < self.clients && !self.local)
    }
}
