//! The environment of all steps: the command, the processes that keep running, the cable.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::draw::{OFFERED_TOGETHER, TRANSPORTS};
use super::role::Role;
use super::survivor::{Survivor, SurvivorKind};
use crate::apps::{free_port, wait_for_port};
use crate::cable::Cable;
use crate::running::Running;

/// Processes, network namespaces and files that the steps of a soak run share. Dropping it removes them.
#[derive(Debug)]
pub struct Stage {
    /// Path of the `rnic` command; its libraries are beside it.
    rnic: PathBuf,
    /// A folder that every user can read, with a copy of this program.
    scratch: TempDir,
    /// The folder for temporary files of a step's programs.
    temporary: PathBuf,
    pub(super) is_root: bool,
    /// The cable; `None` without root.
    pub(super) cable: Option<Cable>,
    /// The processes that keep running, one of each type.
    survivors: [Option<Survivor>; SurvivorKind::ALL.len()],
    trends: Vec<Trend>,
}

/// Memory of a process that keeps running, after each step, in KiB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trend {
    name: &'static str,
    memory_kib: Vec<u64>,
}

impl Stage {
    /// Prepares the environment for the command in `bin`.
    ///
    /// # Errors
    /// When something does not exist; a description.
    pub fn prepare(bin: &Path) -> Result<Self, String> {
        let rnic = bin.join("rnic");
        let library = bin.join("lib/rnic/libibverbs.so.1");
        if let Some(missing) = [&rnic, &library].into_iter().find(|path| !path.is_file()) {
            return Err(format!("{} is not there: run `make build` first", missing.display()));
        }
        let rnic = rnic.canonicalize().map_err(|error| error.to_string())?;
        let make = || {
            let scratch = TempDir::with_prefix("rnic-soak-")?;
            fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
            fs::copy(std::env::current_exe()?, scratch.path().join("soak"))?;
            let temporary = scratch.path().join("temporary");
            fs::create_dir(&temporary)?;
            Ok((scratch, temporary))
        };
        let (scratch, temporary) = make().map_err(|error: std::io::Error| error.to_string())?;
        let is_root = rustix::process::geteuid().is_root();
        let cable = if is_root { Some(Cable::create()?) } else { None };
        Ok(Self { rnic, scratch, temporary, is_root, cable, survivors: [None, None, None], trends: Vec::new() })
    }

    /// Starts a program of a step.
    pub(super) fn spawn(&self, name: &'static str, mut command: Command, mark: &str) -> Result<Running, String> {
        let (variable, value) = mark.split_once('=').expect("a mark is a variable and its value");
        command.env(variable, value).env("TMPDIR", &self.temporary).stdin(Stdio::null());
        Running::spawn(name, command, self.scratch.path())
    }

    /// Returns the `rnic` command, on this host or at one end of the cable.
    pub(super) fn rnic(&self, cable_end: Option<usize>) -> Command {
        self.at(cable_end, &self.rnic)
    }

    /// Returns the command of this program in a role, as another user if `is_other_user`.
    pub(super) fn role(&self, role: &Role, cable_end: Option<usize>, is_other_user: bool) -> Command {
        let program = self.scratch.path().join("soak");
        let mut command = if is_other_user {
            let mut command = self.at(cable_end, Path::new("setpriv"));
            command.args([format!("--reuid={FREE_UID}"), format!("--regid={FREE_UID}")]).args(["--clear-groups", "--"]);
            command.arg(program);
            command
        } else {
            self.at(cable_end, &program)
        };
        command.arg("--role").args(role.words());
        command
    }

    fn at(&self, cable_end: Option<usize>, program: &Path) -> Command {
        match (cable_end, &self.cable) {
            (Some(end), Some(cable)) => {
                let mut command = cable.inside(end);
                command.arg(program);
                command
            }
            _ => Command::new(program),
        }
    }

    /// Returns the survivor; starts it if there is none.
    pub(super) fn survivor(&mut self, which: SurvivorKind) -> Result<&mut Survivor, String> {
        if self.survivors[which as usize].is_none() {
            self.survivors[which as usize] = Some(self.start(which)?);
            // Performs its first transfer, so that resources acquired by it count as those at rest.
            self.check_survivor(which)?;
        }
        Ok(self.survivors[which as usize].as_mut().expect("the survivor was started"))
    }

    fn start(&self, which: SurvivorKind) -> Result<Survivor, String> {
        let (end, host) = match which {
            SurvivorKind::FarListener => (Some(0), Cable::ADDRESSES[0]),
            SurvivorKind::Listener | SurvivorKind::Rping => (None, "127.0.0.1"),
        };
        let mut command = self.rnic(end);
        if which != SurvivorKind::Rping {
            command.args(["perf", "--attached", "--listen", &format!("{host}:0")]);
            return Survivor::start(command, self.scratch.path());
        }
        let port = free_port().to_string();
        command.args(["run", "--quiet", "--transport", &TRANSPORTS[..OFFERED_TOGETHER].join(","), "--"]);
        command.args(["rping", "-s", "-P", "-V", "-a", host, "-p", &port]).stdin(Stdio::null());
        let mut process = Running::spawn("rping's server", command, self.scratch.path())?;
        wait_for_port(&mut process, &port)?;
        Ok(Survivor::of(process, port))
    }

    /// Returns true when the survivor of this type exists.
    pub(super) fn has_survivor(&self, which: SurvivorKind) -> bool {
        self.survivors[which as usize].is_some()
    }

    /// Ends the survivor, and keeps the record of its memory.
    pub(super) fn dismiss(&mut self, which: SurvivorKind) {
        if let Some(survivor) = self.survivors[which as usize].take() {
            self.trends.push(Trend { name: which.name(), memory_kib: survivor.memory_kib });
        }
    }

    /// Runs a small transfer without faults against a survivor, and checks the resources that it holds afterwards.
    ///
    /// # Errors
    /// When it fails, or holds more than at rest.
    pub(super) fn check_survivor(&mut self, which: SurvivorKind) -> Result<(), String> {
        let address = match &self.survivors[which as usize] {
            Some(survivor) => survivor.address.clone(),
            None => return Err(format!("{} is not there", which.name())),
        };
        let start = Instant::now();
        loop {
            let mut command = self.rnic((which == SurvivorKind::FarListener).then_some(1));
            if which == SurvivorKind::Rping {
                command.args([
                    "run",
                    "--quiet",
                    "--",
                    "rping",
                    "-c",
                    "-V",
                    "-C",
                    "20",
                    "-a",
                    "127.0.0.1",
                    "-p",
                    &address,
                ]);
            } else {
                command.args(["perf", &address, "--op", "send", "--size", "4KiB", "--count", "200", "--verify"]);
            }
            let mut probe = self.spawn("a clean piece of work", command, "SOAK_PROBE=1")?;
            if probe.wait(PROBE_TIME_MAX) && probe.has_succeeded() {
                break;
            }
            // A listener serves one client at a time, and needs a moment to detect that its client was killed.
            if start.elapsed() > PROBE_TIME_MAX || !probe.said().contains("busy with another session") {
                return Err(format!("{}: {}", which.name(), probe.tail()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let survivor = self.survivors[which as usize].as_mut().expect("the survivor exists");
        survivor.check().map_err(|why| format!("{}: {why}", which.name()))
    }

    /// Ends all survivors.
    pub(super) fn dismiss_all(&mut self) {
        SurvivorKind::ALL.into_iter().for_each(|which| self.dismiss(which));
    }

    /// Returns the files that programs of a step have left, and deletes them.
    pub(super) fn temporary_files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.temporary).into_iter().flatten().flatten();
        let names = entries.map(|entry| {
            let path = entry.path();
            // Deleted so that a later step does not report them again.
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            path.to_string_lossy().into_owned()
        });
        names.collect()
    }

    /// Ends all survivors and returns the records of their memory.
    pub fn finish(mut self) -> Vec<Trend> {
        self.dismiss_all();
        std::mem::take(&mut self.trends)
    }
}

impl Trend {
    /// Returns true when memory grew continuously: the minimum of the last quarter exceeds the maximum of the second,
    /// by a margin. Too few steps return false.
    pub fn grows(&self) -> bool {
        let quarter = self.memory_kib.len() / 4;
        if quarter < QUARTER_STEPS_MIN {
            return false;
        }
        let most = self.memory_kib[quarter..2 * quarter].iter().max().copied().unwrap_or(0);
        let least = self.memory_kib[3 * quarter..].iter().min().copied().unwrap_or(0);
        least > most + GROWTH_MARGIN_KIB
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, memory_kib } = self;
        let (first, last) = (memory_kib.first().unwrap_or(&0), memory_kib.last().unwrap_or(&0));
        let most = memory_kib.iter().max().unwrap_or(&0);
        write!(f, "{name}: {} times looked at, {first} KiB at first, {most} at most, {last} at last", memory_kib.len())
    }
}

/// A user id that no user has.
const FREE_UID: u32 = 64_321;
/// Maximum time for the transfer after a step, and for a listener to detect that its client was killed.
const PROBE_TIME_MAX: Duration = Duration::from_secs(20);
/// Minimum number of steps in a quarter.
const QUARTER_STEPS_MIN: usize = 8;
/// Growth that allocators alone may cause, in KiB.
const GROWTH_MARGIN_KIB: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_growth_of_memory_is_distinguished_from_variation() {
        let grows = |memory_kib: Vec<u64>| Trend { name: "it", memory_kib }.grows();
        assert!(grows((0..40).map(|step| 10_000 + step * 1_000).collect()));
        assert!(!grows((0..40).map(|step| 10_000 + step % 7 * 20_000).collect()));
        assert!(
            !grows((0..40).map(|step| if step < 8 { 10_000 } else { 90_000 }).collect()),
            "memory is constant at a higher level"
        );
        assert!(!grows((0..12).map(|step| 10_000 + step * 9_000).collect()), "there are too few steps");
    }
}
