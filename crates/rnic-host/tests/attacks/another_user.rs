//! Another user of this machine: starts this test binary a second time, in a role, under another user id.
#![expect(unsafe_code, reason = "it calls the system as another user would")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// An arbitrary user id that no user of the machine has.
const UID: u32 = 64_321;

/// A process of another user, or on another host.
pub struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The folder of the binary that it runs, owned by the other user: this user's folder may be inaccessible.
    _folder: Option<TempDir>,
}

impl Other {
    /// Starts `role` as another user, with `variables`; returns `None`, with a reason on standard error, if this test
    /// lacks the rights.
    pub fn start(role: &str, variables: &[(&str, String)]) -> Option<Self> {
        Self::start_with(role, variables, |command| command)
    }

    /// The same, with `change` applied to the command first.
    pub fn start_with(
        role: &str,
        variables: &[(&str, String)],
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root can be another user");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (binary, open) = (folder.path().join("attacker"), std::fs::Permissions::from_mode(0o755));
        std::fs::copy(std::env::current_exe().expect("a test has a file"), &binary).expect("room for a copy");
        std::fs::set_permissions(folder.path(), open.clone()).expect("the test owns the file");
        std::fs::set_permissions(&binary, open).expect("the test owns the file");
        let mut command = Command::new(binary);
        // The path of the role within this binary.
        command.args([&format!("another_user::{role}"), "--exact", "--ignored", "--nocapture"]).current_dir("/");
        command.envs(variables.iter().map(|(name, value)| (name, value))).uid(UID).gid(UID);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match change(&mut command).spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: this system does not let a test be another user: {error}");
                return None;
            }
        };
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Some(Self { child, output, _folder: Some(folder) })
    }

    /// Starts `role`, by its whole path, as the same user, in the network namespace `namespace`.
    pub fn start_in(namespace: &str, role: &str, variables: &[(&str, String)]) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(std::env::current_exe().expect("a test has a file"));
        command.args([role, "--exact", "--ignored", "--nocapture"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ip runs it");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, output, _folder: None }
    }

    /// Returns what it prints after `word`.
    pub fn said(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("text") > 0 {
            // The test harness prints text before the role's own output.
            if let Some((_, rest)) = line.split_once(&format!("{word} ")) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("it has ended without a word on {word}");
    }

    /// Sends a line to its standard input.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{line}").expect("the reader is running");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn is_root() -> bool {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

pub fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn wait_for_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the sender exists");
    line.trim().to_owned()
}

/// Role: binds the free abstract names of a NIC's control socket, answers every message that arrives there, and
/// counts what it receives.
#[test]
#[ignore = "a role of the other tests"]
fn binds_control_socket_names() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(port) = told("RNIC_TEST_PORT") else { return };
    let names = [format!("rnic-wire-{port}"), format!("rnic-wire-{port}.1"), format!("rnic-wire-{port}.2")];
    let bind = |name: &String| {
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).expect("a name")).expect("the name is free")
    };
    let sockets: Vec<UnixDatagram> = names.iter().map(bind).collect();
    let response_to = told("RNIC_TEST_VICTIM").expect("a port");
    let victim = SocketAddr::from_abstract_name(format!("rnic-wire-{response_to}")).expect("a name");
    println!("BOUND {}", sockets.len());
    for socket in &sockets {
        socket.set_read_timeout(Some(std::time::Duration::from_millis(20))).expect("a time");
    }
    let stop = std::thread::spawn(wait_for_line);
    let (mut letters, mut files) = (0, 0);
    while !stop.is_finished() {
        for socket in &sockets {
            let (len, has_file, bytes) = receive(socket);
            if len == 0 {
                continue;
            }
            (letters, files) = (letters + 1, files + usize::from(has_file));
            // An "I am" message: the same version and nonce, with the message type of an answer.
            let mut answer = bytes[..len].to_vec();
            answer[8] = 2;
            answer[9..48].fill(0);
            let _ = socket.send_to_addr(&answer, &victim);
        }
    }
    println!("GOT {letters} letters, {files} files");
}

/// Receives from a socket: returns the length, `true` if a file descriptor was attached, and the bytes.
fn receive(socket: &std::os::unix::net::UnixDatagram) -> (usize, bool, [u8; 256]) {
    use std::os::fd::AsRawFd;
    let (mut bytes, mut control) = ([0u8; 256], [0u64; 16]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero header is valid: no address, no buffers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to `part`, which points to `bytes`, and to `control`; all of them outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, 0) };
    // No credentials were requested: any ancillary data is a file descriptor.
    (usize::try_from(received).unwrap_or(0), header.msg_controllen > 0, bytes)
}

/// Role: asks a process for its snapshot.
#[test]
#[ignore = "a role of the other tests"]
fn reads_a_snapshot() {
    use std::io::Read;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let Some(name) = told("RNIC_TEST_NAME") else { return };
    let mut stream =
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).expect("a name")).expect("it listens");
    let mut text = Vec::new();
    // The connection of an unauthorized user is closed.
    let _ = stream.read_to_end(&mut text);
    println!("READ {} bytes", text.len());
}

/// Role: serves its snapshot to observers, until the test ends it.
#[test]
#[ignore = "a role of the other tests"]
fn is_watched() {
    if told("RNIC_TEST_WATCHED").is_none() {
        return;
    }
    let snapshot = rnic_host::observe::Snapshot { device: "secret".to_owned(), ..Default::default() };
    let observer = rnic_host::observe::serve(move || Some(snapshot.clone())).expect("a socket and a thread");
    println!("NAME {}", observer.name());
    wait_for_line();
}

/// Role: prints the settings that result from the environment.
#[test]
#[ignore = "a role of the other tests"]
fn reads_its_environment() {
    if told("RNIC_TEST_ENVIRONMENT").is_none() {
        return;
    }
    // SAFETY: reads what the kernel has put beside the program's arguments.
    println!("SECURE {}", unsafe { libc::getauxval(libc::AT_SECURE) });
    let settings = rnic_host::Settings::from_environment().expect("valid");
    println!("CAPTURE {:?}", settings.capture);
}
