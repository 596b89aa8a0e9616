//! HTTP endpoint for metrics scrapers: implements only what a GET of one page needs of HTTP/1.1 (RFC 9112).
//!
//! No HTTP crate is used because only one page is served, and so that every limit is visible here. Clients that can
//! reach the address may be hostile. Therefore each client has its own thread and one deadline for its complete
//! request; the number of clients is bounded; and when that number is reached, a new client causes the oldest
//! connection to be closed. A client that sends nothing, or sends slowly, occupies a slot until the deadline but
//! delays no other client.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::console;
use crate::failure::Failure;

/// Serves the result of `metrics` to scrapers at `bind`; `metrics` is called for one client at a time.
///
/// # Errors
/// When the address cannot be used.
pub fn serve(bind: SocketAddr, metrics: impl Fn() -> Result<String, Failure> + Send + 'static) -> Result<(), Failure> {
    let refused = |error| Failure::input(format!("cannot listen on {bind}: {error}"));
    let listener = TcpListener::bind(bind).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    console::line(&format!("metrics at http://{address}/metrics; stop with ctrl-c"));
    let (clients, metrics) = (Clients::default(), Arc::new(Mutex::new(metrics)));
    for client in listener.incoming() {
        // The process probably has no descriptors or threads left, which is temporary.
        if client.and_then(|client| clients.serve(client, &metrics)).is_err() {
            thread::sleep(RETRY_DELAY);
        }
    }
    Ok(())
}

/// Clients that are being served, oldest first.
#[derive(Clone, Default)]
struct Clients(Arc<Mutex<VecDeque<Arc<TcpStream>>>>);

impl Clients {
    /// Serves a client on a thread of its own.
    fn serve<F>(&self, client: TcpStream, metrics: &Arc<Mutex<F>>) -> io::Result<()>
    where
        F: Fn() -> Result<String, Failure> + Send + 'static,
    {
        let client = Arc::new(client);
        self.enter(Arc::clone(&client));
        let (clients, served, metrics) = (self.clone(), Arc::clone(&client), Arc::clone(metrics));
        let serve = move || {
            let page = || metrics.lock().unwrap_or_else(PoisonError::into_inner)();
            // It is no error if the client disconnects or is disconnected.
            let _ = respond(&served, page);
            clients.remove_client(&served);
        };
        let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).map(drop);
        if started.is_err() {
            self.remove_client(&client);
        }
        started
    }

    fn enter(&self, client: Arc<TcpStream>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= CLIENTS_MAX
            && let Some(oldest) = all.pop_front()
        {
            // The thread of that client then finds its connection closed.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        all.push_back(client);
    }

    fn remove_client(&self, client: &Arc<TcpStream>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| !Arc::ptr_eq(known, client));
    }
}

fn respond(client: &TcpStream, metrics: impl Fn() -> Result<String, Failure>) -> io::Result<()> {
    let reply = match read_request(client)? {
        Request::Metrics => match metrics() {
            Ok(text) => reply("200 OK", &text),
            Err(failure) => reply("500 Internal Server Error", &format!("{failure}\n")),
        },
        Request::OtherPath => reply("404 Not Found", "this path does not exist; metrics are at /metrics\n"),
        Request::OtherMethod => reply("405 Method Not Allowed", "only the method GET is supported\n"),
        Request::Malformed => reply("400 Bad Request", "the HTTP request is malformed\n"),
    };
    write_all(client, reply.as_bytes())?;
    // The kernel resets a connection that is closed with unread bytes, and the reply may then be lost.
    client.shutdown(Shutdown::Write)?;
    read_rest(client)
}

fn reply(status: &str, body: &str) -> String {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// A parsed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Metrics,
    OtherPath,
    OtherMethod,
    Malformed,
}

/// Reads to the end of the request head: closing the connection before that could lose the reply.
fn read_request(mut client: &TcpStream) -> io::Result<Request> {
    let deadline = Deadline::new();
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        client.set_read_timeout(Some(deadline.left()?))?;
        match client.read(&mut part)? {
            0 => return Ok(Request::Malformed),
            count => head.extend_from_slice(&part[..count]),
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(Request::Malformed);
        }
    }
    Ok(parse(&head))
}

/// Writes all bytes, before a client's deadline.
fn write_all(mut client: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Deadline::new();
    while !bytes.is_empty() {
        client.set_write_timeout(Some(deadline.left()?))?;
        match client.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// Reads and discards further input of a client, up to a limit of bytes and time.
fn read_rest(mut client: &TcpStream) -> io::Result<()> {
    let (deadline, mut part, mut count) = (Deadline::new(), [0; 1024], 0);
    loop {
        client.set_read_timeout(Some(deadline.left()?))?;
        let read = client.read(&mut part)?;
        count += read;
        if read == 0 || count > REST_BYTES_MAX {
            return Ok(());
        }
    }
}

/// Deadline for one step of serving a client, regardless of the number of reads or writes in it.
struct Deadline(Instant);

impl Deadline {
    fn new() -> Self {
        Self(Instant::now() + CLIENT_TIMEOUT)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

fn parse(head: &[u8]) -> Request {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Request::Malformed };
    if !version.starts_with("HTTP/1.") {
        return Request::Malformed;
    }
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/metrics") => Request::Metrics,
        ("GET", _) => Request::OtherPath,
        _ => Request::OtherMethod,
    }
}

/// Maximum number of concurrent clients, far more than the number of scrapers of any installation. A scraper that
/// finishes in a few milliseconds is disconnected only if that many others connect in the meantime.
const CLIENTS_MAX: usize = 128;
/// Stack of a client's thread, in bytes: the thread only reads a few kilobytes and formats a page.
const STACK_BYTES: usize = 512 << 10;
/// Maximum size of a request head, in bytes: scrapers send a few hundred.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Maximum number of bytes of further input that are read and discarded before the connection is closed.
const REST_BYTES_MAX: usize = 64 << 10;
/// Time within which a client must send its request, and then again to read its page: a scraper does both
/// immediately.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_metrics_path_is_served() {
        for (head, request) in [
            (&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..], Request::Metrics),
            (b"GET /metrics?a=b HTTP/1.0\r\n\r\n", Request::Metrics),
            (b"GET / HTTP/1.1\r\n\r\n", Request::OtherPath),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Request::OtherMethod),
            (b"GET /metrics\r\n\r\n", Request::Malformed),
            (b"\x16\x03\x01\r\n\r\n", Request::Malformed),
            (b"GET /metrics SSH-2.0\r\n\r\n", Request::Malformed),
        ] {
            assert_eq!(parse(head), request, "{head:?}");
        }
    }

    #[test]
    fn replies_have_a_content_length() {
        let said = reply("200 OK", "a 1\n");
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\na 1\n"), "{said}");
        assert!(said.contains("Content-Length: 4\r\n"), "{said}");
    }

    #[test]
    fn the_oldest_client_is_disconnected_when_there_are_too_many() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("the socket is bound");
        let clients = Clients::default();
        let metrics = Arc::new(Mutex::new(|| Ok("a 1\n".to_owned())));
        let mut silent = Vec::new();
        for _ in 0..CLIENTS_MAX + 3 {
            silent.push(TcpStream::connect(address).expect("it listens"));
            clients.serve(listener.accept().expect("a client has connected").0, &metrics).expect("a thread");
        }
        assert!(clients.0.lock().expect("no thread has panicked").len() <= CLIENTS_MAX);
        for stream in &mut silent[..3] {
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
            match stream.read(&mut [0; 1]) {
                Ok(count) => assert_eq!(count, 0, "the disconnected client got a reply"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "the connection was not reset"),
            }
        }
    }
}
