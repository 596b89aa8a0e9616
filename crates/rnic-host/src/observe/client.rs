//! The side of the watcher.

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

/// A device that can be watched.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// The user whose process it is.
    pub user: u32,
    /// The process.
    pub pid: u32,
    /// Which of its devices.
    pub number: u32,
}

/// Why a device could not be watched.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The system does not let us.
    #[error("process {pid}: {error}")]
    System {
        /// Whom we asked.
        pid: u32,
        /// What it said.
        error: io::Error,
    },
    /// Somebody else has taken the name.
    #[error("process {pid}: its socket belongs to user {user}")]
    Impostor {
        /// Whose name it is.
        pid: u32,
        /// Who has it.
        user: u32,
    },
    /// Its user's number stands for several users here.
    #[error(
        "process {pid}: user {user} may be anybody in this user namespace: map the user, as `unshare --map-root-user` \
         does"
    )]
    Unmapped {
        /// Whom we asked.
        pid: u32,
        /// What the kernel calls him.
        user: u32,
    },
    /// What it says is not a snapshot.
    #[error("process {pid}: cannot be understood; is it of another version? {reason}")]
    Malformed {
        /// Whom we asked.
        pid: u32,
        /// What is wrong.
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

/// The devices that we may watch: those of this user, or of everybody for root; in this network namespace.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn endpoints() -> io::Result<Vec<Endpoint>> {
    // Names are bytes, and anybody's: one that is no text must not hide the others.
    let list = fs::read("/proc/net/unix")?;
    let list = String::from_utf8_lossy(&list);
    let own = own_user();
    let mut found: Vec<Endpoint> = list
        .lines()
        .filter_map(|line| line.rsplit_once('@').and_then(|(_, name)| Endpoint::parse(name)))
        .filter(|endpoint| own == 0 || endpoint.user == own)
        .collect();
    found.sort();
    // Connections under way are listed by the name of the end that was connected to.
    found.dedup();
    Ok(found)
}

/// Asks a device once.
///
/// # Errors
/// When it is gone, does not answer in time, or is not what its name says.
pub fn fetch(endpoint: &Endpoint, timeout: Duration) -> Result<Snapshot, ObserveError> {
    let system = |error| ObserveError::System { pid: endpoint.pid, error };
    let stream = ask(endpoint)?;
    stream.set_nonblocking(false).map_err(system)?;
    understand(endpoint, &read_all(stream, timeout).map_err(system)?)
}

/// Asks devices all at once, and gives what those say that answer in time. The time is that of all together, so those
/// that do not answer keep nobody else from being seen.
pub fn fetch_all(endpoints: &[Endpoint], timeout: Duration) -> Vec<Snapshot> {
    let mut of_user = BTreeMap::new();
    let mut snapshots = Vec::new();
    let mut asked = Vec::new();
    for endpoint in endpoints {
        // Names are anybody's: only what belongs to the user of its name counts against that user.
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

/// An answer that is being read.
struct Answer<'a> {
    endpoint: &'a Endpoint,
    stream: UnixStream,
    text: Vec<u8>,
}

/// Reads answers as they come, until all are there or the time is over.
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

/// Connects to a device, which answers then; to nobody else. The connection does not block.
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
    // It is known by its name, whatever it says.
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

/// Connects to the abstract name `name`; does not wait where so many wait that there is no room for one more.
pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Abstract names begin with a zero.
    let name = format!("\0{name}");
    socket.connect(&SockAddr::unix(OsStr::from_bytes(name.as_bytes()))?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Some hundred bytes for each queue pair that is told.
const SNAPSHOT_BYTES_MAX: usize = 16 << 20;
const PART_BYTES: usize = 64 << 10;

/// Devices of one user that are asked, and devices that are asked at a time: each takes a descriptor, of which a
/// process has 1024 by default.
const OF_USER_MAX: usize = 1_024;
const AT_ONCE: usize = 512;

/// Between two looks at answers that have not come.
const PAUSE: Duration = Duration::from_millis(1);
