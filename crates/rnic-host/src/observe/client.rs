//! The side of the watcher.

use std::fs;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use super::NAME_PREFIX;
use super::credentials::{own_user, peer_user};
use super::snapshot::Snapshot;

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
    let list = fs::read_to_string("/proc/net/unix")?;
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
    let pid = endpoint.pid;
    let system = |error| ObserveError::System { pid, error };
    let stream = address(&endpoint.name()).and_then(|address| UnixStream::connect_addr(&address)).map_err(system)?;
    let user = peer_user(&stream).map_err(system)?;
    if user != endpoint.user {
        return Err(ObserveError::Impostor { pid, user });
    }
    let text = read_all(stream, timeout).map_err(system)?;
    let malformed = |error: serde_json::Error| ObserveError::Malformed { pid, reason: error.to_string() };
    let snapshot: Snapshot = serde_json::from_slice(&text).map_err(malformed)?;
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

pub(super) fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Some hundred bytes for each queue pair that is told.
const SNAPSHOT_BYTES_MAX: usize = 16 << 20;
const PART_BYTES: usize = 64 << 10;
