//! Hosts that read and write a drive of another host, over Falcon.
//!
//! Source: Falcon (SIGCOMM'25) section 6.3 and table 4 (Near Local Flash). Clients keep a fixed number of commands in
//! flight until the end of the workload, each for blocks at a random position in the client's own gigabyte. With
//! `local` the network is not used: the host with the drive posts the commands of one client, as the reference for
//! the other runs.

use rnic_base::{Duration, Time};
use rnic_nvme::{DeviceConfig, Direction, Reads};

/// The workload `nvme`: clients, drive, and parameters of the commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvmePlan {
    /// Operation of the commands: read or write.
    pub direction: Direction,
    /// Bytes of a command.
    pub bytes: u64,
    /// Number of commands of a client in flight.
    pub depth: u32,
    /// The first host that posts commands.
    pub from: u32,
    /// Number of hosts that post: `from` and the hosts with the next numbers.
    pub clients: u32,
    /// The host with the drive.
    pub to: u32,
    /// True when only the host with the drive posts commands.
    pub local: bool,
    /// Time after which no new command is posted.
    pub until: Time,
    /// The transactions that a Read uses.
    pub reads: Reads,
    /// True when payload is carried and checked; each client's part of the drive is small then.
    pub checked: bool,
    /// Parameters of the drive.
    pub drive: DeviceConfig,
}

/// Binary logarithm of the size of a block in bytes.
pub const BLOCK_LOG2: u32 = 9;

impl NvmePlan {
    /// Returns the number of blocks of a command.
    pub const fn blocks(&self) -> u32 {
        (self.bytes >> BLOCK_LOG2) as u32
    }

    /// Returns the number of blocks of a client's part of the drive: a gigabyte, or four megabytes when payload is
    /// checked and stored.
    pub const fn span(&self) -> u64 {
        1 << (if self.checked { 22 } else { 30 } - BLOCK_LOG2)
    }

    /// Returns the number of blocks of the drive.
    pub const fn drive_blocks(&self) -> u64 {
        self.span() * self.clients as u64
    }

    /// Returns the time of a command on an otherwise idle drive.
    pub fn ideal_time(&self) -> Duration {
        let service = match self.direction {
            Direction::Read => self.drive.read,
            Direction::Write => self.drive.write,
        };
        service.latency + service.bandwidth.serialize(self.bytes)
    }

    /// Returns the client number of `host`, when it is a client.
    pub fn client(&self, host: u32) -> Option<u32> {
        host.checked_sub(self.from).filter(|client| *client < self.clients && !self.local)
    }
}
