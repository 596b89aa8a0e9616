//! The client side: finds observed devices and fetches their snapshots.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use socket2::{Domain, SockAddr, Socket, Type};

use super::control::{ControlReply, LimitRequest, ProgramRequest, SignalBatch, SignalsRequest};
use super::credentials::{own_user, peer_user};
use super::snapshot::Snapshot;
use super::{CONTROL_PREFIX, NAME_PREFIX};
use crate::user::is_one_user;

/// A device that can be observed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// User ID of the owner of the process.
    pub user: u32,
    /// Process ID.
    pub pid: u32,
    /// Index of the device among all devices of its process.
    pub number: u32,
}

/// Reason that a device could not be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A system call failed.
    #[error("cannot query process {pid}: {error}")]
    System {
        /// Process ID of the queried process.
        pid: u32,
        /// Error reported by the system.
        error: io::Error,
    },
    /// The socket with this name belongs to another user.
    #[error("the control socket named after process {pid} belongs to another user, {user}")]
    Impostor {
        /// Process ID in the socket's name.
        pid: u32,
        /// User ID of the socket's owner.
        user: u32,
    },
    /// The user ID of the process stands for several users in this user namespace.
    #[error(
        "cannot verify the owner of process {pid}: user {user} represents several users in this user namespace; map \
         it, as `unshare --map-root-user` does"
    )]
    Unmapped {
        /// Process ID of the queried process.
        pid: u32,
        /// User ID that the kernel reports for the process.
        user: u32,
    },
    /// The received data is not a snapshot.
    #[error("the response of process {pid} is invalid, possibly because it runs another version of OpenRNIC: {reason}")]
    Malformed {
        /// Process ID of the queried process.
        pid: u32,
        /// Description of the parse error.
        reason: String,
    },
}

impl Endpoint {
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix(NAME_PREFIX)?.split('-').map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok);
        let endpoint = Self { user: next()?, pid: next()?, number: next()? };
        numbers.next().is_none().then_some(endpoint)
    }

    fn name(&self, prefix: &str) -> String {
        format!("{prefix}{}-{}-{}", self.user, self.pid, self.number)
    }
}

/// Returns the devices in this network namespace that may be observed: those of this user, or if this user is root,
/// those of all users.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn endpoints() -> io::Result<Vec<Endpoint>> {
    // Any process can choose any bytes as a name: a name that is not text must not hide the others.
    let list = fs::read("/proc/net/unix")?;
    let list = String::from_utf8_lossy(&list);
    let own = own_user();
    let mut found: Vec<Endpoint> = list
        .lines()
        .filter_map(|line| line.rsplit_once('@').and_then(|(_, name)| Endpoint::parse(name)))
        .filter(|endpoint| own == 0 || endpoint.user == own)
        .collect();
    found.sort();
    // An established connection is listed under the name of its listening end.
    found.dedup();
    Ok(found)
}

/// Returns the devices of process `pid`.
///
/// # Errors
/// When it has none, or the kernel's list cannot be read; the text gives the reason.
pub fn devices_of(pid: u32) -> Result<Vec<Endpoint>, String> {
    let all = endpoints().map_err(|error| format!("cannot read /proc/net/unix: {error}"))?;
    let devices: Vec<_> = all.into_iter().filter(|endpoint| endpoint.pid == pid).collect();
    if devices.is_empty() {
        return Err(format!(
            "no process {pid} of this user has opened the software device; `rnic top` lists those that have"
        ));
    }
    Ok(devices)
}

/// Fetches one snapshot of a device.
///
/// # Errors
/// When the device no longer exists, does not respond in time, or its socket belongs to another user than its name
/// states.
pub fn fetch(endpoint: &Endpoint, timeout: Duration) -> Result<Snapshot, ObserveError> {
    let system = |error| ObserveError::System { pid: endpoint.pid, error };
    let stream = connect_to(endpoint, NAME_PREFIX)?;
    stream.set_nonblocking(false).map_err(system)?;
    parse_snapshot(endpoint, &read_all(stream, timeout).map_err(system)?)
}

/// Requests a limit of queue pairs from a device.
///
/// # Errors
/// As [`fetch`].
pub fn set_limit(endpoint: &Endpoint, request: &LimitRequest, timeout: Duration) -> Result<ControlReply, ObserveError> {
    send_request(endpoint, request, timeout)
}

/// Requests a device to load a program, or to unload the loaded ones.
///
/// # Errors
/// As [`fetch`].
pub fn load_program(
    endpoint: &Endpoint,
    request: &ProgramRequest,
    timeout: Duration,
) -> Result<ControlReply, ObserveError> {
    send_request(endpoint, request, timeout)
}

/// Fetches the signals that a device has collected since the last request, at most `max` records. The first request
/// starts collecting.
///
/// # Errors
/// As [`fetch`], and when the device refuses, with its reason.
pub fn fetch_signals(endpoint: &Endpoint, max: u32, timeout: Duration) -> Result<SignalBatch, ObserveError> {
    match send_request(endpoint, &SignalsRequest { signals_max: max }, timeout)? {
        ControlReply::Signals(batch) => Ok(batch),
        ControlReply::Refused(reason) => Err(ObserveError::Malformed { pid: endpoint.pid, reason }),
        ControlReply::QueuePairs(_) | ControlReply::Loaded { .. } => {
            Err(ObserveError::Malformed { pid: endpoint.pid, reason: "it answers another request".to_owned() })
        }
    }
}

fn send_request(
    endpoint: &Endpoint,
    request: &impl Serialize,
    timeout: Duration,
) -> Result<ControlReply, ObserveError> {
    let pid = endpoint.pid;
    let system = |error| ObserveError::System { pid, error };
    let mut stream = connect_to(endpoint, CONTROL_PREFIX)?;
    stream.set_nonblocking(false).map_err(system)?;
    let line = serde_json::to_string(request).map_err(|error| system(error.into()))? + "\n";
    stream.set_write_timeout(Some(timeout)).map_err(system)?;
    stream.write_all(line.as_bytes()).map_err(system)?;
    let answer = read_all(stream, timeout).map_err(system)?;
    serde_json::from_slice(&answer).map_err(|error| ObserveError::Malformed { pid, reason: error.to_string() })
}

/// Queries all devices concurrently, and returns the snapshots of those that respond in time. There is one timeout
/// for all devices together, so devices that do not respond do not delay the others.
pub fn fetch_all(endpoints: &[Endpoint], timeout: Duration) -> Vec<Snapshot> {
    let mut sockets_per_user = BTreeMap::new();
    let mut snapshots = Vec::new();
    let mut pending = Vec::new();
    for endpoint in endpoints {
        // Any process can choose any name: a socket counts toward the limit of the user in its name only if it
        // belongs to that user.
        let Ok(stream) = connect_to(endpoint, NAME_PREFIX) else { continue };
        let count: &mut usize = sockets_per_user.entry(endpoint.user).or_default();
        *count += 1;
        if *count <= SOCKETS_PER_USER_MAX {
            pending.push(PartialSnapshot { endpoint, stream, text: Vec::new() });
        }
        if pending.len() == QUERIES_PER_BATCH {
            snapshots.extend(read_together(std::mem::take(&mut pending), timeout));
        }
    }
    snapshots.extend(read_together(pending, timeout));
    snapshots
}

/// A response that is being read.
struct PartialSnapshot<'a> {
    endpoint: &'a Endpoint,
    stream: UnixStream,
    text: Vec<u8>,
}

/// Reads responses as they arrive, until all are complete or the timeout has expired.
fn read_together(mut pending: Vec<PartialSnapshot<'_>>, timeout: Duration) -> Vec<Snapshot> {
    let (start, mut snapshots, mut chunk) = (Instant::now(), Vec::new(), vec![0; CHUNK_BYTES]);
    while !pending.is_empty() {
        let mut moved = false;
        pending.retain_mut(|answer| match answer.stream.read(&mut chunk) {
            Ok(0) => {
                snapshots.extend(parse_snapshot(answer.endpoint, &answer.text));
                false
            }
            Ok(count) if answer.text.len() + count <= SNAPSHOT_BYTES_MAX => {
                answer.text.extend_from_slice(&chunk[..count]);
                moved = true;
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            Ok(_) => false,
        });
        if start.elapsed() >= timeout {
            break;
        }
        if !moved && !pending.is_empty() {
            thread::sleep(POLL_INTERVAL);
        }
    }
    snapshots.sort_by_key(|snapshot: &Snapshot| (snapshot.pid, snapshot.context));
    snapshots
}

/// Connects to a socket of a device, if it belongs to the expected user. The stream is non-blocking.
fn connect_to(endpoint: &Endpoint, prefix: &str) -> Result<UnixStream, ObserveError> {
    let pid = endpoint.pid;
    let system = |error| ObserveError::System { pid, error };
    let stream = connect(&endpoint.name(prefix)).map_err(system)?;
    match peer_user(&stream).map_err(system)? {
        user if user != endpoint.user => Err(ObserveError::Impostor { pid, user }),
        user if !is_one_user(user) => Err(ObserveError::Unmapped { pid, user }),
        _ => Ok(stream),
    }
}

fn parse_snapshot(endpoint: &Endpoint, text: &[u8]) -> Result<Snapshot, ObserveError> {
    let pid = endpoint.pid;
    let malformed = |error: serde_json::Error| ObserveError::Malformed { pid, reason: error.to_string() };
    let snapshot: Snapshot = serde_json::from_slice(text).map_err(malformed)?;
    // The snapshot is identified by the socket's name, regardless of its contents.
    Ok(Snapshot { user: endpoint.user, pid, context: endpoint.number, ..snapshot })
}

fn read_all(mut stream: UnixStream, timeout: Duration) -> io::Result<Vec<u8>> {
    let start = Instant::now();
    let mut text = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(text),
            Ok(count) if text.len() + count <= SNAPSHOT_BYTES_MAX => text.extend_from_slice(&chunk[..count]),
            Ok(_) => return Err(io::ErrorKind::FileTooLarge.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the abstract name `name`; fails without waiting when the listener's backlog is full.
pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Abstract names begin with a zero byte.
    let name = format!("\0{name}");
    socket.connect(&SockAddr::unix(OsStr::from_bytes(name.as_bytes()))?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Size limit of a snapshot in bytes: each queue pair needs some hundred.
const SNAPSHOT_BYTES_MAX: usize = 16 << 20;
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum number of devices of one user that are queried, and maximum number of devices that are queried at a time:
/// each needs a descriptor, of which a process has 1024 by default.
const SOCKETS_PER_USER_MAX: usize = 1_024;
const QUERIES_PER_BATCH: usize = 512;

/// Time to sleep between two polls for outstanding responses.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
