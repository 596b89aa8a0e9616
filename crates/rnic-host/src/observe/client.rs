//! The client side: finds observed devices and fetches their snapshots.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::NAME_PREFIX;
use super::credentials::{own_user, peer_user};
use super::snapshot::Snapshot;
use crate::user::is_one_user;

/// A device that can be observed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// User ID of the owner of the process.
    pub user: u32,
    /// Process ID.
    pub pid: u32,
    /// Index of the device among those of the process.
    pub number: u32,
}

/// Reason why a device could not be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// A system call failed.
    #[error("process {pid}: {error}")]
    System {
        /// Process ID of the queried process.
        pid: u32,
        /// Error that the system reported.
        error: io::Error,
    },
    /// The socket with this name belongs to another user.
    #[error("process {pid}: its socket belongs to user {user}")]
    Impostor {
        /// Process ID in the name.
        pid: u32,
        /// User ID of the socket's owner.
        user: u32,
    },
    /// The user ID of the process stands for several users in this user namespace.
    #[error(
        "process {pid}: user {user} may be any user in this user namespace: map the user, as `unshare --map-root-user` \
         does"
    )]
    Unmapped {
        /// Process ID of the queried process.
        pid: u32,
        /// User ID that the kernel reports for it.
        user: u32,
    },
    /// The received data are not a snapshot.
    #[error("process {pid}: cannot be understood; is it of another version? {reason}")]
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

    fn name(&self) -> String {
        format!("{NAME_PREFIX}{}-{}-{}", self.user, self.pid, self.number)
    }
}

/// Returns the devices that may be observed: those of this user, or of all users for root; in this network namespace.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn endpoints() -> io::Result<Vec<Endpoint>> {
    // Any process can choose any bytes as a name: one that is not text must not hide the others.
    let list = fs::read("/proc/net/unix")?;
    let list = String::from_utf8_lossy(&list);
    let own = own_user();
    let mut found: Vec<Endpoint> = list
        .lines()
        .filter_map(|line| line.rsplit_once('@').and_then(|(_, name)| Endpoint::parse(name)))
        .filter(|endpoint| own == 0 || endpoint.user == own)
        .collect();
    found.sort();
    // Established connections are listed under the name of the end that was connected to.
    found.dedup();
    Ok(found)
}

/// Fetches one snapshot of a device.
///
/// # Errors
/// When the device no longer exists, does not respond in time, or its socket belongs to another user than its name
/// states.
pub fn fetch(endpoint: &Endpoint, timeout: Duration) -> Result<Snapshot, ObserveError> {
    let system = |error| ObserveError::System { pid: endpoint.pid, error };
    let stream = ask(endpoint)?;
    stream.set_nonblocking(false).map_err(system)?;
    understand(endpoint, &read_all(stream, timeout).map_err(system)?)
}

/// Queries all devices concurrently, and returns the snapshots of those that respond in time. The timeout applies to
/// all together, so devices that do not respond do not keep others from being seen.
pub fn fetch_all(endpoints: &[Endpoint], timeout: Duration) -> Vec<Snapshot> {
    let mut of_user = BTreeMap::new();
    let mut snapshots = Vec::new();
    let mut asked = Vec::new();
    for endpoint in endpoints {
        // Any process can choose any name: only a socket that belongs to the user in its name counts against that user.
        let Ok(stream) = ask(endpoint) else { continue };
        let count: &mut usize = of_user.entry(endpoint.user).or_default();
        *count += 1;
        if *count <= OF_USER_MAX {
            asked.push(Answer { endpoint, stream, text: Vec::new() });
        }
        if asked.len() == AT_ONCE {
            snapshots.extend(read_together(std::mem::take(&mut asked), timeout));
        }
    }
    snapshots.extend(read_together(asked, timeout));
    snapshots
}

/// A response that is being read.
struct Answer<'a> {
    endpoint: &'a Endpoint,
    stream: UnixStream,
    text: Vec<u8>,
}

/// Reads responses as they arrive, until all are complete or the timeout is over.
fn read_together(mut asked: Vec<Answer<'_>>, timeout: Duration) -> Vec<Snapshot> {
    let (start, mut snapshots, mut part) = (Instant::now(), Vec::new(), vec![0; PART_BYTES]);
    while !asked.is_empty() {
        let mut moved = false;
        asked.retain_mut(|answer| match answer.stream.read(&mut part) {
            Ok(0) => {
                snapshots.extend(understand(answer.endpoint, &answer.text));
                false
            }
            Ok(count) if answer.text.len() + count <= SNAPSHOT_BYTES_MAX => {
                answer.text.extend_from_slice(&part[..count]);
                moved = true;
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            Ok(_) => false,
        });
        if start.elapsed() >= timeout {
            break;
        }
        if !moved && !asked.is_empty() {
            thread::sleep(PAUSE);
        }
    }
    snapshots.sort_by_key(|snapshot: &Snapshot| (snapshot.pid, snapshot.context));
    snapshots
}

/// Connects to a device, which then sends its snapshot; only to a socket of the expected user. The stream is
/// non-blocking.
fn ask(endpoint: &Endpoint) -> Result<UnixStream, ObserveError> {
    let pid = endpoint.pid;
    let system = |error| ObserveError::System { pid, error };
    let stream = connect(&endpoint.name()).map_err(system)?;
    match peer_user(&stream).map_err(system)? {
        user if user != endpoint.user => Err(ObserveError::Impostor { pid, user }),
        user if !is_one_user(user) => Err(ObserveError::Unmapped { pid, user }),
        _ => Ok(stream),
    }
}

fn understand(endpoint: &Endpoint, text: &[u8]) -> Result<Snapshot, ObserveError> {
    let pid = endpoint.pid;
    let malformed = |error: serde_json::Error| ObserveError::Malformed { pid, reason: error.to_string() };
    let snapshot: Snapshot = serde_json::from_slice(text).map_err(malformed)?;
    // The snapshot is identified by the socket's name, whatever it contains.
    Ok(Snapshot { pid, context: endpoint.number, ..snapshot })
}

fn read_all(mut stream: UnixStream, timeout: Duration) -> io::Result<Vec<u8>> {
    let start = Instant::now();
    let mut text = Vec::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        let left = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(text),
            Ok(count) if text.len() + count <= SNAPSHOT_BYTES_MAX => text.extend_from_slice(&part[..count]),
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

/// Size limit of a snapshot in bytes: each queue pair takes some hundred.
const SNAPSHOT_BYTES_MAX: usize = 16 << 20;
const PART_BYTES: usize = 64 << 10;

/// Devices of one user that are queried, and devices that are queried at a time: each takes a descriptor, of which a
/// process has 1024 by default.
const OF_USER_MAX: usize = 1_024;
const AT_ONCE: usize = 512;

/// Sleep between two polls for responses that have not arrived.
const PAUSE: Duration = Duration::from_millis(1);
