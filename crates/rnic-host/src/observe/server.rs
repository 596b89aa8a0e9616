//! The server side of observation, in the observed program.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::control::{ControlReply, ControlRequest};
use super::credentials::{own_user, peer_user};
use super::snapshot::Snapshot;
use super::{CONTROL_LINE_MAX, CONTROL_PREFIX, NAME_PREFIX, client};
use crate::user::is_one_user;
use crate::{background, sys};

/// A server for observers, which runs until it is dropped.
#[derive(Debug)]
pub struct Observer {
    name: String,
    stop_requested: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a thread that serves observers of this process with the snapshots that `snapshot` returns. The thread stops
/// when `snapshot` returns `None`.
///
/// `snapshot` is called once for each client that connects; it may lock the data that it reads.
///
/// # Errors
/// When the system provides no socket or no thread. The program can continue without being observed.
pub fn serve(snapshot: impl Fn() -> Option<Snapshot> + Send + 'static) -> io::Result<Observer> {
    serve_with_control(snapshot, |_| Some(ControlReply::Refused("it takes no requests".to_owned())))
}

/// Does the same as [`serve`], and passes requests of operators to `request_to`.
///
/// # Errors
/// As [`serve`].
pub fn serve_with_control(
    snapshot: impl Fn() -> Option<Snapshot> + Send + 'static,
    request_to: impl Fn(ControlRequest) -> Option<ControlReply> + Send + 'static,
) -> io::Result<Observer> {
    let (name, listener, control) = listen()?;
    let stop_requested = Arc::new(AtomicBool::new(false));
    let is_stopping = Arc::clone(&stop_requested);
    let serve_observers = move || {
        loop {
            // A client that closes the connection, does not read or does not write affects only itself.
            if let Some(stream) = accept(&listener) {
                match snapshot() {
                    Some(snapshot) => drop(send_json(stream, &snapshot)),
                    None => return,
                }
            }
            if let Some(stream) = accept(&control) {
                match answer_request(stream, &request_to) {
                    Ok(()) | Err(RequestError::Client) => {}
                    Err(RequestError::DeviceIsGone) => return,
                }
            }
            // The flag is set before the connection that wakes this thread, which may just have been accepted.
            if is_stopping.load(Ordering::Acquire) {
                return;
            }
            if sys::wait(&[listener.as_raw_fd(), control.as_raw_fd()], None, false).is_err() {
                thread::sleep(RETRY_DELAY);
            }
        }
    };
    let thread = background::spawn("rnic-observe", serve_observers)?;
    Ok(Observer { name, stop_requested, thread: Some(thread) })
}

impl Observer {
    /// Returns the name of the server's socket, without the leading zero byte.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop_requested.store(true, Ordering::Release);
        // Any connection wakes the thread, which then checks the flag and stops.
        let woken = client::connect(&self.name);
        // If this connection fails because the backlog is full, the connections in the backlog wake the thread.
        let is_backlog_full = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if let (true, Some(thread)) = (woken.as_ref().map_or_else(is_backlog_full, |_| true), self.thread.take()) {
            // A panic of the thread, if there was one, has already been reported.
            let _ = thread.join();
        }
    }
}

/// Returns the name of the socket for observers, that socket, and the one for requests, both non-blocking.
fn listen() -> io::Result<(String, UnixListener, UnixListener)> {
    let (user, pid) = (own_user(), process::id());
    for number in 0..DEVICES_MAX {
        let bind = |prefix: &str| {
            let name = format!("{prefix}{user}-{pid}-{number}");
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
            listener.set_nonblocking(true)?;
            io::Result::Ok((name, listener))
        };
        match bind(NAME_PREFIX).and_then(|(name, listener)| Ok((name, listener, bind(CONTROL_PREFIX)?.1))) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Returns the next client that is allowed to be served, if one has connected.
fn accept(listener: &UnixListener) -> Option<UnixStream> {
    match listener.accept() {
        Ok((stream, _)) => (is_allowed(&stream) && stream.set_nonblocking(false).is_ok()).then_some(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // The most likely cause is a temporary lack of descriptors; sleeping avoids a busy loop.
        Err(_) => {
            thread::sleep(RETRY_DELAY);
            None
        }
    }
}

/// Reason for which a request was not answered.
enum RequestError {
    /// The client has closed the connection, or is too slow.
    Client,
    DeviceIsGone,
}

/// Reads a request, passes it to `request_to`, and sends the answer.
fn answer_request(
    mut stream: UnixStream,
    request_to: &impl Fn(ControlRequest) -> Option<ControlReply>,
) -> Result<(), RequestError> {
    let client = |_: io::Error| RequestError::Client;
    let (start, mut line) = (Instant::now(), Vec::new());
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        if line.len() > CONTROL_LINE_MAX {
            let reply = ControlReply::Refused(format!("the request is longer than {CONTROL_LINE_MAX} bytes"));
            return send_json(stream, &reply).map_err(client);
        }
        if line.ends_with(b"\n") {
            break;
        }
        let left = CLIENT_TIME_MAX.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(RequestError::Client)?)).map_err(client)?;
        match stream.read(&mut chunk).map_err(client)? {
            0 => break,
            count => line.extend_from_slice(&chunk[..count]),
        }
    }
    let reply = match ControlRequest::parse(&line) {
        Ok(request) => request_to(request).ok_or(RequestError::DeviceIsGone)?,
        Err(error) => ControlReply::Refused(format!("the request is invalid: {error}")),
    };
    send_json(stream, &reply).map_err(client)
}

fn is_allowed(stream: &UnixStream) -> bool {
    peer_user(stream).is_ok_and(|user| (user == own_user() || user == 0) && is_one_user(user))
}

fn send_json(mut stream: UnixStream, value: &impl Serialize) -> io::Result<()> {
    let (start, text) = (Instant::now(), serde_json::to_vec(value)?);
    let mut rest = &text[..];
    while !rest.is_empty() {
        // One timeout applies to the complete write, so that a client that reads very slowly does not delay the
        // others for longer.
        let left = CLIENT_TIME_MAX.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        stream.set_write_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        rest = &rest[stream.write(rest)?..];
    }
    Ok(())
}

/// Maximum number of devices of one process: far more than programs open.
const DEVICES_MAX: u32 = 256;
/// Bytes of a request that are read at once.
const CHUNK_BYTES: usize = 4_096;
/// Maximum time for which one client may delay the next one.
const CLIENT_TIME_MAX: Duration = Duration::from_millis(500);
const RETRY_DELAY: Duration = Duration::from_millis(50);
