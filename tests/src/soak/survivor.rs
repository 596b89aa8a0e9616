//! Processes that live on from step to step, and what they hold at rest.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::running::Running;

/// The kinds of processes that live on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// `rnic perf --listen` here.
    Listener,
    /// The same, behind the cable.
    FarListener,
    /// `rping -s -P`: a program of the distribution, which other programs reach through memory.
    Rping,
}

impl Which {
    pub(super) const ALL: [Self; 3] = [Self::Listener, Self::FarListener, Self::Rping];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Listener => "the listener",
            Self::FarListener => "the listener behind the cable",
            Self::Rping => "rping's server",
        }
    }
}

/// A process that lives on.
#[derive(Debug)]
pub(super) struct Survivor {
    pub(super) process: Running,
    /// The address or port at which it listens.
    pub(super) address: String,
    /// Its resources after its first piece of work.
    resting: Option<Holds>,
    /// Resident memory after each step, KiB.
    pub(super) memory_kib: Vec<u64>,
}

/// The resources of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holds {
    files: usize,
    threads: usize,
    /// Mappings of memory that is shared without a name in the file system.
    shared: usize,
}

impl Survivor {
    /// `process`, which listens at `address`.
    pub(super) fn of(process: Running, address: String) -> Self {
        Self { process, address, resting: None, memory_kib: Vec::new() }
    }

    /// Starts `command`, which says its address in its first line and ends with its standard input.
    ///
    /// # Errors
    /// When it does not, in its words.
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
            if process.has_ended() || start.elapsed() > PATIENCE {
                return Err(format!("the listener does not listen\n  {}", process.tail()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Holds what it holds now against what it held at rest; some of it may take a moment to go.
    ///
    /// # Errors
    /// When there is more, or the process is gone.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if self.resting.is_none() {
            // The last client has gone just now.
            std::thread::sleep(MOMENT);
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
            if start.elapsed() > PATIENCE {
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

/// The longest time that a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time in which a process gives back a client's resources.
const MOMENT: Duration = Duration::from_millis(500);
