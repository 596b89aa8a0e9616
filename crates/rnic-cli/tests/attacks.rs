//! Attacks on the command: clients that block its Prometheus endpoint, and files without an end.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{command, finish, first_line, rnic};

/// Sends one scrape request and returns how long the response took.
fn scrape(address: &str) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("the reader is running");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it answers and closes");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    start.elapsed()
}

/// Checks that other clients do not delay a scrape: one that sends a byte now and then, a hundred silent ones, and a
/// crowd that connects at the same moment. Each of these cases once delayed scrapes by two seconds or more.
#[test]
fn scrapers_are_served_despite_slow_or_silent_clients() {
    let mut child = command(&["top", "--prometheus", "127.0.0.1:0"]).spawn().expect("the command starts");
    let line = first_line(child.stderr.as_mut().expect("it is captured"));
    let address = line.strip_prefix("metrics at http://").and_then(|rest| rest.split('/').next()).expect("an address");
    scrape(address);

    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let stop_requested = Arc::new(AtomicBool::new(false));
    let (is_stopping, mut slow) = (Arc::clone(&stop_requested), TcpStream::connect(address).expect("it listens"));
    let drip = thread::spawn(move || {
        let start = Instant::now();
        while !is_stopping.load(Ordering::Relaxed) && slow.write_all(b"G").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        start.elapsed()
    });
    let scrape_times: Vec<Duration> = (0..10).map(|_| scrape(address)).collect();
    // Waiting for a hundred silent clients one after the other would take 200 seconds, waiting for one would take
    // two.
    let longest = scrape_times.iter().max().expect("there are ten measurements");
    assert!(*longest < Duration::from_millis(1_500), "{scrape_times:?} with {} silent clients", silent.len());
    // The server disconnects the slow client when its time limit is over, however often that client sends a byte.
    let start = Instant::now();
    while !drip.is_finished() && start.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
    }
    stop_requested.store(true, Ordering::Relaxed);
    let lived = drip.join().expect("it ends");
    assert!(lived < Duration::from_secs(20), "the slow client was kept for {lived:?}");

    // More connections than the server accepts at the same time.
    let crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let scrape_time = scrape(address);
    assert!(scrape_time < Duration::from_millis(1_500), "{scrape_time:?} with {} silent clients", crowd.len());
    child.kill().expect("it runs");
    finish(child);
}

/// Names of abstract sockets are arbitrary bytes, and any process may choose one: a name that is not text must not
/// hide any process from `rnic top`.
#[test]
fn a_socket_with_an_unexpected_name_hides_no_process() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let bind = |name: &[u8]| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).expect("a name"));
    let strange: Vec<_> = [&b"rnic-attack-\xff\xfe"[..], b"rnic-attack-\n0: @rnic-top-0-1-0\n", b"rnic-top-0-1-0\xff"]
        .into_iter()
        .map(|name| bind(name).expect("the name is free"))
        .collect();
    rnic(&["top", "--json"]).ok();
    drop(strange);
}

#[test]
fn endless_files_and_folders_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let huge = folder.path().join("huge.toml");
    // A sparse file: it needs no disk space.
    std::fs::File::create(&huge).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let huge = huge.to_str().expect("text");
    let experiments = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    let out = folder.path().join("out");
    let out = out.to_str().expect("text");
    let results = ["--read-results", "/dev/zero", "--fast", "irn/fig1"];
    for (arguments, expected) in [
        (&["sim", "/dev/zero"][..], &["/dev/zero", "a device"][..]),
        (&["sim", "/"], &["/: this is a directory"]),
        (&["sim", huge], &[huge, "maximum size of 16 MiB"]),
        (&["demo", "--file", "/dev/zero"], &["/dev/zero", "regular file"]),
        (&["demo", "--file", huge], &[huge, "1 GiB"]),
        (&["perf", "--transport", "falcon", "--wire", "udp", "--key", "/dev/zero"], &["64 hexadecimal digits"]),
        (
            &[&["reproduce", "--experiments", experiments, "--out", out][..], &results].concat(),
            &["/dev/zero", "a device"],
        ),
    ] {
        rnic(arguments).assert_refused(2, expected);
    }
    // Files that a plan refers to are limited in size too.
    let plan = folder.path().join("plan.toml");
    let text = include_str!("../../../plans/incast.toml");
    let (network, _) = text.split_once("[workload]").expect("the plan has a workload");
    std::fs::write(&plan, format!("{network}[workload]\nkind = \"trace\"\nfile = \"/dev/zero\"\n")).expect("writable");
    rnic(&["sim", plan.to_str().expect("text")]).assert_refused(2, &["a device"]);
}
