//! Checks that `rnic top` shows the counters of a NIC in another process (here this test process).

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process;

use common::{command, finish, first_line, rnic};
use rnic_host::observe::{self, Identity, Observer};
use rnic_host::{Nic, NicConfig, Settings};

fn observed_device() -> Observer {
    let nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a NIC");
    let mut settings = Settings::default();
    settings.impairment.loss = "1%".parse().expect("a chance");
    let identity = Identity::of_process("rnic0", "RoCEv2 over UDP", &settings);
    observe::serve(move || Some(nic.snapshot(&identity))).expect("a socket and a thread")
}

#[test]
fn the_processes_that_use_the_device_are_listed() {
    let _observer = observed_device();
    let output = rnic(&["top", "--once", "--interval", "10ms"]).ok();
    // The output also shows other tests of this process and other programs of this user.
    let is_own = |line: &&str| [')', '/'].iter().any(|end| line.contains(&format!("({}{end}", process::id())));
    let own: Vec<&str> = output.out.lines().filter(is_own).collect();
    let row = own.iter().find(|line| !line.contains("rnic0")).expect("a row of numbers");
    assert!(row.split_whitespace().any(|word| word == "0"), "{output:#?}");
    assert!(own.iter().any(|line| line.contains("): rnic0, irn, RoCEv2 over UDP, loss 1%")), "{output:#?}");
    assert!(output.out.lines().all(|line| line.chars().count() <= 120), "{output:#?}");
}

#[test]
fn the_json_output_has_every_counter() {
    let _observer = observed_device();
    let all = rnic(&["top", "--json"]).json();
    let devices = all["devices"].as_array().expect("a list");
    let own = devices.iter().find(|device| device["pid"] == process::id()).expect("this process");
    assert_eq!((&own["device"], &own["counters"]["packets_sent"]), (&"rnic0".into(), &0.into()));
    assert!(own["queue_pairs"].as_array().is_some_and(Vec::is_empty), "{own}");
}

#[test]
fn scrapers_get_metrics() {
    let _observer = observed_device();
    let mut child = command(&["top", "--prometheus", "127.0.0.1:0"]).spawn().expect("the command starts");
    let line = first_line(child.stderr.as_mut().expect("it is captured"));
    let address = line.strip_prefix("metrics at http://").and_then(|rest| rest.split('/').next()).expect("an address");
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("the reader is running");
        let mut output = String::new();
        stream.read_to_string(&mut output).expect("it answers and closes");
        output
    };
    // A client that sends nothing delays other clients by no more than its own time limit.
    let _silent = TcpStream::connect(address).expect("it listens");
    let output = ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(output.starts_with("HTTP/1.1 200 OK\r\n"), "{output}");
    let (head, body) = output.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.contains("# TYPE rnic_packets_sent_total counter"), "{body}");
    assert!(body.contains(&format!("pid=\"{}\"", process::id())), "{body}");
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("PUT /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(10_000))).starts_with("HTTP/1.1 400"));
    child.kill().expect("it runs");
    finish(child);
}

#[test]
fn node_exporter_gets_a_file_of_metrics() {
    let _observer = observed_device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("rnic.prom");
    let path = file.to_str().expect("UTF-8");
    let mut child = command(&["top", "--textfile", path, "--interval", "10ms"]).spawn().expect("the command starts");
    let start = std::time::Instant::now();
    let own = format!("pid=\"{}\"", process::id());
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&own)) {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "the file does not appear");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().expect("it runs");
    finish(child);
    rnic(&["top", "--textfile", "rnic.txt"]).assert_refused(2, &["rnic.txt", "must end in .prom"]);
    rnic(&["top", "--textfile", "nowhere/rnic.prom"]).assert_refused(2, &["nowhere", "no such folder"]);
}

#[test]
fn an_address_in_use_is_a_one_line_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("the socket is bound").to_string();
    rnic(&["top", "--prometheus", &address]).assert_refused(2, &[&address, "in use"]);
    rnic(&["top", "--prometheus", "nowhere"]).assert_refused(2, &["nowhere"]);
    rnic(&["top", "--json", "--once"]).assert_refused(2, &["--once"]);
}
