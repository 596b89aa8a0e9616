//! Starts the other process of a local measurement: another instance of this program, which listens on loopback.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::address::PORT;
use crate::failure::Failure;

/// A listening process that exits when this process exits.
#[derive(Debug)]
pub struct ListenerProcess {
    child: Child,
    /// Address at which the process listens.
    pub address: SocketAddr,
}

impl ListenerProcess {
    /// Starts the process, with packets of at most `mtu` payload bytes, the secret in `key` and a link that it shares
    /// with the processes of `link_group`, and waits until it listens. It uses the port of RoCEv2 on a loopback address
    /// of its own, so that captures show the protocol, or any free port if that fails.
    ///
    /// # Errors
    /// When the process cannot be started or does not begin to listen; the error includes the message of the process.
    pub fn start(mtu: u32, key: Option<&Path>, link_group: Option<&str>) -> Result<Self, Failure> {
        let [.., high, low] = process::id().to_be_bytes();
        let own = SocketAddr::from(([127, high, low, 2], PORT));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let start_at = |bind| Self::start_at(bind, mtu, key, link_group);
        start_at(own).or_else(|_| start_at(any))
    }

    fn start_at(bind: SocketAddr, mtu: u32, key: Option<&Path>, link_group: Option<&str>) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::input(format!("cannot start the process for the other end: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["perf", "--attached", "--listen", &bind.to_string(), "--mtu", &mtu.to_string()])
            .args(key.into_iter().flat_map(|key| [OsStr::new("--key"), key.as_os_str()]))
            .args(link_group.into_iter().flat_map(|group| ["--link-group", group]))
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
