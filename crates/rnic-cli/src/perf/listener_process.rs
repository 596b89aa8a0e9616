//! Starts the other process of a local measurement: another instance of this program, which listens on loopback.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::address::PORT;
use crate::args::PerfArgs;
use crate::failure::Failure;

/// Options of the process, which are those of the client.
#[derive(Clone, Copy, Default, Debug)]
pub struct ListenerOptions<'a> {
    /// Maximum number of payload bytes of a packet.
    pub mtu: u32,
    /// File with the secret of the packets.
    pub key: Option<&'a Path>,
    /// Name of the group of processes that share a link.
    pub link_group: Option<&'a str>,
    /// True to sleep while no packet arrives.
    pub events: bool,
}

impl<'a> ListenerOptions<'a> {
    /// Returns the options that `args` ask for.
    pub fn of(args: &'a PerfArgs) -> Self {
        let PerfArgs { mtu, key, link_group, events, .. } = args;
        Self { mtu: *mtu, key: key.as_deref(), link_group: link_group.as_deref(), events: *events }
    }
}

/// A listening process that exits when this process exits.
#[derive(Debug)]
pub struct ListenerProcess {
    child: Child,
    /// Address at which the process listens.
    pub address: SocketAddr,
}

impl ListenerProcess {
    /// Starts the process and waits until it listens. It uses the port of RoCEv2 on a loopback address of its own, so
    /// that captures show the protocol, or any free port if that fails.
    ///
    /// # Errors
    /// When the process cannot be started or does not begin to listen; the error includes the message of the process.
    pub fn start(options: ListenerOptions<'_>) -> Result<Self, Failure> {
        let [.., high, low] = process::id().to_be_bytes();
        let own = SocketAddr::from(([127, high, low, 2], PORT));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(own, options).or_else(|_| Self::start_at(any, options))
    }

    fn start_at(bind: SocketAddr, options: ListenerOptions<'_>) -> Result<Self, Failure> {
        let ListenerOptions { mtu, key, link_group, events } = options;
        let failed =
            |error: std::io::Error| Failure::input(format!("cannot start the process for the other end: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["perf", "--attached", "--listen", &bind.to_string(), "--mtu", &mtu.to_string()])
            .args(key.into_iter().flat_map(|key| [OsStr::new("--key"), key.as_os_str()]))
            .args(link_group.into_iter().flat_map(|group| ["--link-group", group]))
            .args(events.then_some("--events"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        let read = child.stdout.take().map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
        match (read, line.trim().parse()) {
            (Ok(_), Ok(address)) => Ok(Self { child, address }),
            (Err(error), _) => Err(failed(error)),
            (Ok(_), Err(_)) => {
                let mut complaint = String::new();
                let stderr = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut complaint));
                let _ = (stderr, child.wait());
                Err(Failure::input(format!("the process for the other end has failed: {}", complaint.trim())))
            }
        }
    }
}

impl Drop for ListenerProcess {
    /// Closes the standard input of the process, which makes it exit.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let start = Instant::now();
        while start.elapsed() < EXIT_TIMEOUT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exits this process when its parent, which has the other end of its standard input, has exited.
pub fn end_with_parent() {
    thread::spawn(|| {
        // The parent writes nothing: the read returns when the parent closes the pipe or exits.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        process::exit(0);
    });
}

/// Timeout for the exit of the process, far longer than the process needs.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
