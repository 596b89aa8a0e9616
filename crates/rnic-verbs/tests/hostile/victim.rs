//! A program that uses the library, and the system's information about it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rnic_base::Psn;

/// A running program.
pub struct AttackedProgram {
    line: String,
    child: Child,
    output: File,
}

impl AttackedProgram {
    /// Starts `line` with the library, without the same-host bypass. Its output can be read immediately.
    pub fn start(line: &str) -> Self {
        let output = tempfile::tempfile().expect("a file");
        let copy = || Stdio::from(output.try_clone().expect("a descriptor"));
        let mut command = Command::new("stdbuf");
        command
            .arg("-oL")
            .args(line.split(' '))
            .env("LD_LIBRARY_PATH", super::common::libraries())
            .env_remove("LD_PRELOAD");
        command.env("RNIC_BYPASS", "off").stdin(Stdio::null()).stdout(copy()).stderr(copy());
        let child = command.spawn().expect("the program is installed");
        Self { line: line.to_owned(), child, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub fn end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the status of a child can be read")
    }

    /// Waits until a socket is bound to `port`.
    pub fn wait_for_port(&mut self, port: u16) {
        let wanted = format!(":{port:04X}");
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_bound = || {
            ["tcp", "tcp6", "udp", "udp6"].iter().any(|family| {
                let table = fs::read_to_string(format!("/proc/net/{family}")).unwrap_or_default();
                table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted)))
            })
        };
        while !is_bound() {
            assert!(self.end().is_none() && Instant::now() < deadline, "the program does not listen: {}", self.story());
            std::thread::sleep(Duration::from_millis(10));
        }
        // The connection manager's port is bound before a program listens on it.
        std::thread::sleep(Duration::from_millis(200));
    }

    /// Returns its command line, its status and its output, for a message.
    pub fn story(&mut self) -> String {
        let status = self.end().map_or_else(|| "still running".to_owned(), |status| status.to_string());
        let said = self.said();
        format!("{} ({status})\n{said}", self.line)
    }

    /// Returns the first sequence numbers that it has printed, its own and its peer's.
    pub fn sequences(&mut self) -> Vec<Psn> {
        let said = self.said();
        let numbers = said.split("PSN 0x").skip(1);
        let digits = numbers.filter_map(|rest| rest.get(..6));
        digits.filter_map(|digits| u32::from_str_radix(digits, 16).ok()).map(Psn::new).collect()
    }

    pub fn said(&mut self) -> String {
        // Without moving the file position, which the program shares.
        let mut bytes = vec![0; self.output.metadata().expect("a file").len() as usize];
        self.output.read_exact_at(&mut bytes, 0).expect("a file that only grows");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for AttackedProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The UDP ports that a process has bound.
pub fn ports_of(pid: u32) -> BTreeSet<u16> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let socket =
        |link: std::path::PathBuf| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned);
    let inodes: BTreeSet<String> =
        descriptors.filter_map(|entry| fs::read_link(entry.path()).ok().and_then(socket)).collect();
    let tables = ["udp", "udp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default());
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        inodes.contains(*words.get(9)?).then(|| u16::from_str_radix(words[1].rsplit_once(':')?.1, 16).ok())?
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(port).filter(|port| *port != 0).collect()
}

/// Memory that a process has in use, in bytes; 0 when it is gone.
pub fn memory_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}
