//! Processes that keep running from step to step, and the resources that they hold at rest.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::running::Running;

/// Types of processes that keep running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SurvivorKind {
    /// `rnic perf --listen` on this host.
    Listener,
    /// The same, at the other end of the cable.
    FarListener,
    /// `rping -s -P`: a program of the distribution, to which other programs connect through memory.
    Rping,
}

impl SurvivorKind {
    pub(super) const ALL: [Self; 3] = [Self::Listener, Self::FarListener, Self::Rping];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Listener => "the listener",
            Self::FarListener => "the listener behind the cable",
            Self::Rping => "rping's server",
        }
    }
}

/// A process that keeps running.
#[derive(Debug)]
pub(super) struct Survivor {
    pub(super) process: Running,
    /// Address or port at which it listens.
    pub(super) address: String,
    /// Resources held after its first transfer.
    resting: Option<Holds>,
    /// Resident memory after each step, in KiB.
    pub(super) memory_kib: Vec<u64>,
}

/// Resources that a process holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holds {
    files: usize,
    threads: usize,
    /// Number of mappings of shared memory without a name in the file system.
    shared: usize,
}

impl Survivor {
    /// Creates the survivor of `process`, which listens at `address`.
    pub(super) fn of(process: Running, address: String) -> Self {
        Self { process, address, resting: None, memory_kib: Vec::new() }
    }

    /// Starts `command`, which prints its address in its first line and ends with its standard input.
    ///
    /// # Errors
    /// When it does not; its output.
    pub(super) fn start(mut command: Command, scratch: &Path) -> Result<Self, String> {
        command.stdin(Stdio::piped());
        let mut process = Running::spawn("listener", command, scratch)?;
        let start = Instant::now();
        loop {
            let said = process.said();
            if let Some((address, _)) = said.split_once('\n') {
                let address = address.trim().to_owned();
                return Ok(Self::of(process, address));
            }
            if process.has_ended() || start.elapsed() > WAIT_TIME_MAX {
                return Err(format!("the listener does not listen\n  {}", process.tail()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Compares the resources that it holds now with those at rest; waits, because some may take a moment to be freed.
    ///
    /// # Errors
    /// When there are more, or the process has exited.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if self.resting.is_none() {
            // The last client has exited just now.
            std::thread::sleep(CLIENT_RELEASE_TIME);
        }
        let start = Instant::now();
        loop {
            if self.process.has_ended() {
                return Err(format!("it has ended\n  {}", self.process.tail()));
            }
            let holds = Holds::of(self.process.child.id()).map_err(|error| error.to_string())?;
            let resting = *self.resting.get_or_insert(holds);
            if holds.is_within(&resting) {
                self.memory_kib.push(resident_kib(self.process.child.id()));
                return Ok(());
            }
            if start.elapsed() > WAIT_TIME_MAX {
                return Err(format!("it holds {holds}; at rest it held {resting}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Holds {
    fn of(id: u32) -> io::Result<Self> {
        let count = |what: &str| fs::read_dir(format!("/proc/{id}/{what}")).map(Iterator::count);
        let maps = fs::read_to_string(format!("/proc/{id}/maps"))?;
        let shared = maps.lines().filter(|line| line.contains("/memfd:")).count();
        Ok(Self { files: count("fd")?, threads: count("task")?, shared })
    }

    fn is_within(&self, other: &Self) -> bool {
        self.files <= other.files && self.threads <= other.threads && self.shared <= other.shared
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, {} threads and {} pieces of shared memory", self.files, self.threads, self.shared)
    }
}

fn resident_kib(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Maximum waiting time, sufficient for a busy machine.
const WAIT_TIME_MAX: Duration = Duration::from_secs(15);
/// Time in which a process frees a client's resources.
const CLIENT_RELEASE_TIME: Duration = Duration::from_millis(500);
