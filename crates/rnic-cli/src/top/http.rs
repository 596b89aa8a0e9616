//! The endpoint for scrapers: the few words of HTTP/1.1 (RFC 9112) that one GET of one page takes.
//!
//! Why not a crate: what is asked for is one page, by one scraper at a time, and every bound is visible here: one
//! connection at a time, one request a connection, so long a request, so much time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::console;
use crate::failure::Failure;

/// Answers scrapers at `bind` with what `metrics` gives.
///
/// # Errors
/// When the address cannot be used.
pub fn serve(bind: SocketAddr, metrics: impl Fn() -> Result<String, Failure>) -> Result<(), Failure> {
    let refused = |error| Failure::input(format!("{bind}: {error}"));
    let listener = TcpListener::bind(bind).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    console::line(&format!("metrics at http://{address}/metrics; end with ctrl-c"));
    for scraper in listener.incoming() {
        match scraper {
            // A scraper that goes away is its own affair.
            Ok(mut scraper) => drop(answer(&mut scraper, &metrics)),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    Ok(())
}

fn answer(scraper: &mut TcpStream, metrics: impl Fn() -> Result<String, Failure>) -> io::Result<()> {
    scraper.set_write_timeout(Some(PATIENCE))?;
    let reply = match read_request(scraper)? {
        Request::Metrics => match metrics() {
            Ok(text) => reply("200 OK", &text),
            Err(failure) => reply("500 Internal Server Error", &format!("{failure}\n")),
        },
        Request::OtherPath => reply("404 Not Found", "metrics are at /metrics\n"),
        Request::OtherMethod => reply("405 Method Not Allowed", "only GET is answered\n"),
        Request::Malformed => reply("400 Bad Request", "this is not a request\n"),
    };
    scraper.write_all(reply.as_bytes())?;
    // What is closed with bytes unread is reset, and the reply may be lost with it.
    scraper.shutdown(Shutdown::Write)?;
    scraper.set_read_timeout(Some(PATIENCE))?;
    io::copy(&mut scraper.take(REST_BYTES_MAX), &mut io::sink()).map(drop)
}

fn reply(status: &str, body: &str) -> String {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Metrics,
    OtherPath,
    OtherMethod,
    Malformed,
}

/// Reads to the end of the head: closing before that could make the reply get lost.
fn read_request(scraper: &mut TcpStream) -> io::Result<Request> {
    let start = Instant::now();
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = PATIENCE.checked_sub(start.elapsed()).filter(|left| !left.is_zero());
        scraper.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match scraper.read(&mut part)? {
            0 => return Ok(Request::Malformed),
            count => head.extend_from_slice(&part[..count]),
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(Request::Malformed);
        }
    }
    Ok(parse(&head))
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

/// Scrapers ask with a few hundred bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// What is thrown away of somebody who says more.
const REST_BYTES_MAX: u64 = 64 << 10;
/// A scraper in the same building sends its request at once.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_page_is_there() {
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
    fn replies_say_how_long_they_are() {
        let said = reply("200 OK", "a 1\n");
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\na 1\n"), "{said}");
        assert!(said.contains("Content-Length: 4\r\n"), "{said}");
    }
}
