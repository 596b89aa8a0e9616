//! Runs a program in a process group of its own and keeps its output.
//!
//! Terminals send signals to the foreground group alone, so an interrupt ends only this process: [`end_on_signal`] then
//! ends all groups, and the rest of a run fails immediately and cleans up.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A running program. Dropping it kills its complete process group.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    pub(crate) child: Child,
    output: File,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts `command`, whose standard input the caller has set; its output goes to a file in `scratch`.
    ///
    /// # Errors
    /// When it cannot be started; a description.
    pub(crate) fn spawn(name: &'static str, mut command: Command, scratch: &Path) -> Result<Self, String> {
        let output = tempfile::tempfile_in(scratch).map_err(|error| error.to_string())?;
        let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(|error| error.to_string());
        command.stdout(copy(&output)?).stderr(copy(&output)?).process_group(0);
        let mut groups = groups();
        if groups.are_ended {
            return Err(format!("{name}: interrupted"));
        }
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        groups.running.insert(child.id());
        Ok(Self { name, child, output, status: None })
    }

    /// Returns true when the program has exited.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// Returns the exit status; `None` while the program runs.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Returns true when the program has exited with exit code 0.
    pub(crate) fn has_succeeded(&mut self) -> bool {
        self.has_ended() && self.status.is_some_and(|how| how.success())
    }

    /// Waits until the program exits, at most for `time_max`; returns whether it has.
    pub(crate) fn wait(&mut self, time_max: Duration) -> bool {
        let start = Instant::now();
        while !self.has_ended() && start.elapsed() < time_max {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.has_ended()
    }

    /// Sends a signal to the process alone, not to its group. A process that has exited receives none.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.has_ended() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.status = self.child.wait().ok().or(self.status);
    }

    /// Returns the complete output.
    pub(crate) fn said(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.output.rewind();
        let _ = self.output.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the name, the exit status and the last lines of output.
    pub(crate) fn tail(&mut self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!("{} ({}):\n    {}", self.name, self.how(), lines[from..].join("\n    "))
    }

    fn how(&self) -> String {
        self.status.map_or_else(|| "still running".to_owned(), |status| status.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Kills its children too: mpirun has some.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
        groups().running.remove(&self.child.id());
    }
}

/// Kills every running program when this process receives SIGINT, SIGTERM or SIGHUP, and starts no more from then on.
///
/// # Errors
/// When the system refuses an operation; a description.
pub fn end_on_signal() -> Result<(), String> {
    ctrlc::set_handler(end_all).map_err(|error| error.to_string())
}

/// Returns the exit code of a run that was interrupted; `None` if it was not.
#[must_use]
pub fn interrupted() -> Option<ExitCode> {
    groups().are_ended.then(|| ExitCode::from(INTERRUPTED))
}

fn end_all() {
    let mut groups = groups();
    groups.are_ended = true;
    for id in &groups.running {
        if let Some(group) = i32::try_from(*id).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The process groups of all programs that have not been dropped.
#[derive(Debug)]
struct Groups {
    running: BTreeSet<u32>,
    are_ended: bool,
}

static GROUPS: Mutex<Groups> = Mutex::new(Groups { running: BTreeSet::new(), are_ended: false });

fn groups() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exit code that shells report for a command that was interrupted.
const INTERRUPTED: u8 = 130;

/// Number of output lines shown of a failed program.
const TAIL_LINES: usize = 30;
