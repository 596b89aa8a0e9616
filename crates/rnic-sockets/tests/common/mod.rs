//! Programs in Python, with the library or without it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rnic_host::observe;
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

/// Where `scripts/link-verbs` has put the libraries.
pub fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        // This program stands in `<target>/<profile>/deps/`.
        let exe = std::env::current_exe().expect("a running test knows its file");
        let target = exe.ancestors().nth(3).expect("three directories above");
        let mut link = Command::new(root.join("scripts/link-verbs"));
        let output = link.arg(profile).env("CARGO_TARGET_DIR", target).output().expect("scripts/link-verbs runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "link-verbs: {said}{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(said.lines().last().expect("link-verbs prints the directory"))
    })
}

/// A running program.
pub struct Program {
    child: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Program {
    /// Starts a script; returns `None` if Python is not installed and may be missing.
    pub fn python(script: &str, arguments: &[&str], is_ours: bool) -> Option<Self> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "90", "python3", "-c", script]).args(arguments);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RNIC_") {
                command.env_remove(name);
            }
        }
        if is_ours {
            command.env("RNIC_LOSS", "1%").env("LD_PRELOAD", libraries().join("librnic_sockets.so"));
        }
        if !is_installed("python3") {
            return None;
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is `timeout`");
        let input = child.stdin.take().expect("it is captured");
        let output = BufReader::new(child.stdout.take().expect("it is captured"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Some(Self { child, input, lines })
    }

    /// Returns the rest of the next line, which must begin with `start`.
    pub fn line(&mut self, start: &str) -> String {
        let line = self.lines.recv_timeout(Duration::from_secs(60)).expect("a line");
        line.strip_prefix(start).unwrap_or_else(|| panic!("`{line}` instead of `{start}`")).to_owned()
    }

    pub fn say(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).expect("it reads");
    }

    /// Returns the number of the Python process, a child of `timeout`.
    pub fn pid(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(path).expect("it runs");
        children.split_whitespace().next().expect("timeout has a child").parse().expect("a number")
    }

    pub fn kill(&mut self) {
        let pid = Pid::from_raw(self.pid() as i32).expect("not zero");
        kill_process(pid, Signal::KILL).expect("it runs");
    }

    pub fn succeed(mut self) {
        let status = self.child.wait().expect("it is a child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // `timeout` ends its program.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Returns the number of streams that a process has opened, as `rnic top` shows it.
pub fn opened_streams(pid: u32) -> u64 {
    // A process without a NIC has no devices, which is an error of this call.
    let devices = observe::devices_of(pid).unwrap_or_default();
    let snapshots = devices.iter().map(|device| observe::fetch(device, Duration::from_secs(10)).expect("it answers"));
    snapshots.map(|snapshot| snapshot.counters.streams_opened).sum()
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    assert!(found || std::env::var_os("RNIC_REQUIRE_APPS").is_none(), "{program} is not installed");
    found
}

/// Returns a TCP socket that is bound to a free port, and the port.
pub fn bound_socket() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    let port = socket.local_addr().expect("it is bound").as_socket().expect("an address of IP").port();
    (socket, port)
}
