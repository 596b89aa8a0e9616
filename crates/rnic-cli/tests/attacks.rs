//! Attacks on the command: clients of its endpoint for scrapers, and files that never end.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{command, finish, first_line, rnic};

/// Asks once; returns how long the answer took.
fn scrape(address: &str) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it answers and closes");
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    start.elapsed()
}

/// A client that says a byte now and then, and a hundred that say nothing, one after the other or all at once, keep
/// nobody waiting. Each of them used to, for two seconds or more.
#[test]
fn scrapers_are_answered_beside_clients_that_are_slow_or_silent() {
    let mut child = command(&["top", "--prometheus", "127.0.0.1:0"]).spawn().expect("the command starts");
    let line = first_line(child.stderr.as_mut().expect("it is captured"));
    let address = line.strip_prefix("metrics at http://").and_then(|rest| rest.split('/').next()).expect("an address");
    scrape(address);

    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let ends = Arc::new(AtomicBool::new(false));
    let (told, mut slow) = (Arc::clone(&ends), TcpStream::connect(address).expect("it listens"));
    let drip = thread::spawn(move || {
        let start = Instant::now();
        while !told.load(Ordering::Relaxed) && slow.write_all(b"G").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
        start.elapsed()
    });
    let took: Vec<Duration> = (0..10).map(|_| scrape(address)).collect();
    // A hundred that are waited for take 200 seconds, one takes two.
    let longest = took.iter().max().expect("ten");
    assert!(*longest < Duration::from_millis(1_500), "{took:?} with {} silent clients", silent.len());
    // The slow one is sent away when its time is over, however often it says something.
    let start = Instant::now();
    while !drip.is_finished() && start.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
    }
    ends.store(true, Ordering::Relaxed);
    let lived = drip.join().expect("it ends");
    assert!(lived < Duration::from_secs(20), "the slow client was kept for {lived:?}");

    // More than there is room for.
    let crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let took = scrape(address);
    assert!(took < Duration::from_millis(1_500), "{took:?} with {} silent clients", crowd.len());
    child.kill().expect("it runs");
    finish(child);
}

/// Names of abstract sockets are bytes, and anybody's: one that is no text hides nobody.
#[test]
fn a_socket_with_a_strange_name_hides_no_process() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let bind = |name: &[u8]| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).expect("a name"));
    let strange: Vec<_> = [&b"rnic-attack-\xff\xfe"[..], b"rnic-attack-\n0: @rnic-top-0-1-0\n", b"rnic-top-0-1-0\xff"]
        .into_iter()
        .map(|name| bind(name).expect("nobody has it"))
        .collect();
    rnic(&["top", "--json"]).ok();
    drop(strange);
}

#[test]
fn what_has_no_end_or_is_no_file_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let huge = folder.path().join("huge.toml");
    // It takes no room.
    std::fs::File::create(&huge).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let huge = huge.to_str().expect("text");
    let experiments = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    let out = folder.path().join("out");
    let out = out.to_str().expect("text");
    let results = ["--read-results", "/dev/zero", "--fast", "irn/fig1"];
    for (arguments, expected) in [
        (&["sim", "/dev/zero"][..], &["/dev/zero", "a device"][..]),
        (&["sim", "/"], &["/: is a directory"]),
        (&["sim", huge], &[huge, "more than 16 MiB"]),
        (&["demo", "--file", "/dev/zero"], &["/dev/zero", "regular file"]),
        (&["demo", "--file", huge], &[huge, "1 GiB"]),
        (&["perf", "--transport", "falcon", "--wire", "udp", "--key", "/dev/zero"], &["64 hexadecimal digits"]),
        (
            &[&["reproduce", "--experiments", experiments, "--out", out][..], &results].concat(),
            &["/dev/zero", "a device"],
        ),
    ] {
        rnic(arguments).refused(2, expected);
    }
    // Files that a plan names are bounded too.
    let plan = folder.path().join("plan.toml");
    let text = include_str!("../../../plans/incast.toml");
    let (network, _) = text.split_once("[workload]").expect("it has one");
    std::fs::write(&plan, format!("{network}[workload]\nkind = \"trace\"\nfile = \"/dev/zero\"\n")).expect("room");
    rnic(&["sim", plan.to_str().expect("text")]).refused(2, &["a device"]);
}
