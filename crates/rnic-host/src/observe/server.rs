//! The side of the program that is watched.

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

/// Answers watchers until it is dropped.
#[derive(Debug)]
pub struct Observer {
    name: String,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// From now on, answers watchers of this process with what `snapshot` gives, from a thread of its own. `None` ends it.
///
/// `snapshot` is called once for each watcher that asks; it may lock what it reads.
///
/// # Errors
/// When the system gives no socket or no thread: the program can run on, unwatched.
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
                // A watcher that goes away, or does not read, is its own affair.
                Ok(watcher) if is_welcome(&watcher) => match snapshot() {
                    Some(snapshot) => drop(tell(watcher, &snapshot)),
                    None => return,
                },
                Ok(_) => {}
                // Out of descriptors, most likely: not for ever, and no reason to burn a core.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    };
    let thread = background::spawn("rnic-observe", answer)?;
    Ok(Observer { name, ends, thread: Some(thread) })
}

impl Observer {
    /// The name of its socket, without the zero byte in front.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Whoever connects wakes the thread, and it finds out that it is to end.
        let woken = client::connect(&self.name);
        // So does everybody of a queue that is full.
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
        // One time for all of it: who reads a byte now and then keeps others waiting no longer.
        let left = PATIENCE.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        watcher.set_write_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        rest = &rest[watcher.write(rest)?..];
    }
    Ok(())
}

/// Devices that one process opens: far more than programs do.
const DEVICES_MAX: u32 = 256;
/// How long a watcher may keep us from the next one.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(50);
