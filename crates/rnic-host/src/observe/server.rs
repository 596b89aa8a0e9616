//! The server side, in the observed program.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::credentials::{own_user, peer_user};
use super::snapshot::Snapshot;
use super::{NAME_PREFIX, client};
use crate::background;
use crate::user::is_one_user;

/// Serves observers until it is dropped.
#[derive(Debug)]
pub struct Observer {
    name: String,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a thread that serves observers of this process with the snapshots that `snapshot` returns. `None` stops it.
///
/// `snapshot` is called once for each client that connects; it may lock the data that it reads.
///
/// # Errors
/// When the system provides no socket or no thread: the program can continue without being observed.
pub fn serve(snapshot: impl Fn() -> Option<Snapshot> + Send + 'static) -> io::Result<Observer> {
    let (name, listener) = listen()?;
    let ends = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ends);
    let answer = move || {
        for watcher in listener.incoming() {
            if told.load(Ordering::Acquire) {
                return;
            }
            match watcher {
                // A client that closes the connection or does not read only harms itself.
                Ok(watcher) if is_welcome(&watcher) => match snapshot() {
                    Some(snapshot) => drop(tell(watcher, &snapshot)),
                    None => return,
                },
                Ok(_) => {}
                // Most likely out of descriptors, which is temporary: sleeping avoids a busy loop.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    };
    let thread = background::spawn("rnic-observe", answer)?;
    Ok(Observer { name, ends, thread: Some(thread) })
}

impl Observer {
    /// Returns the name of its socket, without the leading zero byte.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Any connection wakes the thread, which then reads the flag and stops.
        let woken = client::connect(&self.name);
        // A full backlog wakes the thread too.
        let wakes = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if let (true, Some(thread)) = (woken.as_ref().map_or_else(wakes, |_| true), self.thread.take()) {
            // Its panic, if there was one, has been reported.
            let _ = thread.join();
        }
    }
}

fn listen() -> io::Result<(String, UnixListener)> {
    let (user, pid) = (own_user(), process::id());
    for number in 0..DEVICES_MAX {
        let name = format!("{NAME_PREFIX}{user}-{pid}-{number}");
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
            Ok(listener) => return Ok((name, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn is_welcome(watcher: &UnixStream) -> bool {
    peer_user(watcher).is_ok_and(|user| (user == own_user() || user == 0) && is_one_user(user))
}

fn tell(mut watcher: UnixStream, snapshot: &Snapshot) -> io::Result<()> {
    let (start, text) = (Instant::now(), serde_json::to_vec(snapshot)?);
    let mut rest = &text[..];
    while !rest.is_empty() {
        // One timeout for the complete write, so that a client that reads a byte now and then does not delay the others
        // for longer.
        let left = PATIENCE.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        watcher.set_write_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        rest = &rest[watcher.write(rest)?..];
    }
    Ok(())
}

/// Maximum number of devices of one process: far more than programs open.
const DEVICES_MAX: u32 = 256;
/// Maximum time that one client may delay the next one.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(50);
