//! `rnic perf` on both wires: what programs read, both ends here and apart, and what is refused.

mod common;

use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::rnic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Every field that programs count on, and that the figures fit together.
fn assert_whole(report: &Value) {
    for key in [
        "size_bytes",
        "qps",
        "loss",
        "ops",
        "bytes",
        "elapsed_s",
        "goodput_gbps",
        "packets_sent",
        "packets_retransmitted",
        "depth",
        "reorder",
        "mtu_bytes",
        "seed",
        "ops_per_s",
    ] {
        assert!(report[key].is_number(), "{key}: {report}");
    }
    let number = |value: &Value| value.as_f64().expect("a number");
    let [p50, p99, p999, max] = ["p50", "p99", "p999", "max"].map(|key| number(&report["latency_us"][key]));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max, "{report}");
    assert_eq!(number(&report["bytes"]), number(&report["ops"]) * number(&report["size_bytes"]));
    let goodput = number(&report["bytes"]) * 8.0 / number(&report["elapsed_s"]) / 1e9;
    assert!((goodput / number(&report["goodput_gbps"]) - 1.0).abs() < 0.01, "{report}");
    assert!(number(&report["packets_sent"]) >= number(&report["ops"]), "{report}");
}

#[test]
fn every_operation_between_two_processes_through_a_lossy_network() {
    for transport in ["irn", "roce-gbn"] {
        let mut again = 0;
        for op in ["write", "send", "read", "atomic"] {
            let words = [
                "perf",
                "--op",
                op,
                "--transport",
                transport,
                "--size",
                "20000",
                "--qps",
                "2",
                "--depth",
                "8",
                "--count",
                "200",
                "--loss",
                "1%",
                "--reorder",
                "1%",
                "--verify",
                "--json",
            ];
            let report = rnic(&words).json();
            assert_whole(&report);
            assert_eq!(report["transport"], transport);
            assert_eq!((&report["op"], &report["wire"]), (&op.into(), &"udp".into()));
            assert_eq!((&report["ops"], &report["ops_verified"]), (&400.into(), &400.into()), "{report}");
            assert_eq!((&report["verified"], &report["simulated"]), (&true.into(), &false.into()), "{report}");
            again += report["packets_retransmitted"].as_u64().expect("a number");
        }
        assert!(again > 0, "{transport}: a lossy network makes work");
    }
}

#[test]
fn every_operation_on_the_fabric() {
    for transport in ["irn", "roce-gbn"] {
        for op in ["write", "send", "read", "atomic"] {
            let words = [
                "perf",
                "--wire",
                "sim",
                "--op",
                op,
                "--transport",
                transport,
                "--qps",
                "2",
                "--count",
                "100",
                "--loss",
                "1%",
                "--reorder",
                "1%",
                "--size",
                "20000",
                "--json",
            ];
            let report = rnic(&words).json();
            assert_whole(&report);
            assert_eq!((&report["wire"], &report["simulated"]), (&"sim".into(), &true.into()));
            assert_eq!((&report["ops"], &report["verified"]), (&200.into(), &true.into()), "{report}");
            assert_eq!(rnic(&words).json()["trace_hash"], report["trace_hash"], "the same run twice");
        }
    }
}

#[test]
fn on_the_fabric_loss_costs_irn_little_and_go_back_n_much() {
    let goodput = |transport: &str, loss: &str| {
        let words = ["perf", "--wire", "sim", "--transport", transport, "--loss", loss, "--json"];
        rnic(&words).json()["goodput_gbps"].as_f64().expect("a number")
    };
    let (clean, irn, gbn) = (goodput("irn", "0"), goodput("irn", "1%"), goodput("roce-gbn", "1%"));
    assert!(clean > 95.0, "a 100 Gbit/s link carries {clean}");
    assert!(irn >= 0.9 * clean, "irn {irn} of {clean}");
    assert!(gbn <= 0.65 * clean, "roce-gbn {gbn} of {clean}");
}

#[test]
fn people_read_one_table_and_where_it_comes_from() {
    let said = rnic(&["perf", "--wire", "sim", "--count", "50"]).ok();
    for shown in ["irn, write of 64 KiB", "Gbit/s", "p99.9", "Simulated"] {
        assert!(said.out.contains(shown), "{shown} is not shown: {said:#?}");
    }
    let said = rnic(&["perf", "--count", "50", "--op", "send", "--size", "8", "--depth", "1"]).ok();
    for shown in ["send of 8 B", "half of a round trip", "not figures of RDMA hardware", "load average"] {
        assert!(said.out.contains(shown), "{shown} is not shown: {said:#?}");
    }
}

/// What each flow carried is told on both wires, where there are several.
#[test]
fn f27_flows_are_told_apart() {
    for wire in ["udp", "sim"] {
        let words = |flows| ["perf", "--wire", wire, "--transport", "falcon", "--set", flows, "--count", "500"];
        let report = rnic(&[&words("flows=4")[..], &["--json", "--loss", "1%"]].concat()).json();
        let flows = report["flows"].as_array().expect("several");
        let sum = |key: &str| flows.iter().filter_map(|flow| flow[key].as_f64()).sum::<f64>();
        assert_eq!(flows.len(), 4, "{report}");
        assert!(flows.iter().all(|flow| flow["packets"].as_u64() > Some(0)), "each carries some: {report}");
        assert!((sum("share") - 1.0).abs() < 1e-9, "{report}");
        // One end writes: hardly anything else has data.
        let all = report["packets_sent"].as_f64().expect("a number");
        assert!((0.99 * all..=all).contains(&sum("packets")), "{wire}: {report}");
        assert!(sum("packets_retransmitted") > 10.0, "{wire}: {report}");
        let said = rnic(&words("flows=2")).ok();
        assert!(said.out.contains("flow of each connection"), "{said:#?}");
        assert!(rnic(&[&words("flows=1")[..], &["--json"]].concat()).json()["flows"].is_null(), "one is all of them");
    }
}

#[test]
fn what_was_not_compared_is_not_called_verified() {
    let words = ["perf", "--wire", "sim", "--size", "1GiB", "--qps", "2", "--count", "1", "--rate", "10Tbps"];
    assert!(rnic(&words).ok().out.contains("not compared"));
    let report = rnic(&[&words[..], &["--json"]].concat()).json();
    assert_eq!((&report["verified"], &report["ops_verified"]), (&false.into(), &0.into()), "{report}");
}

#[test]
fn a_slow_and_distant_link_is_slow_and_distant() {
    let words = ["perf", "--rate", "500Mbps", "--delay", "2ms", "--count", "100", "--json"];
    let report = rnic(&words).json();
    assert_whole(&report);
    let goodput = report["goodput_gbps"].as_f64().expect("a number");
    assert!((0.02..0.5).contains(&goodput), "{report}");
    assert!(report["latency_us"]["p50"].as_f64() > Some(4_000.0), "there and back: {report}");
}

#[test]
fn both_wires_write_captures() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for wire in ["udp", "sim"] {
        let file = folder.path().join(wire);
        let path = file.to_str().expect("a plain path");
        rnic(&["perf", "--wire", wire, "--size", "3000", "--count", "20", "--pcap", path]).ok();
        let bytes = std::fs::read(&file).expect("the capture").len();
        assert!(bytes > 60_000, "{wire}: {bytes} bytes of capture for 60 kB");
    }
}

/// A capture of which no more than so many half kilobytes can be written, as if the disk were full.
#[test]
fn a_capture_that_ends_early_is_said_with_its_reason_and_the_figures_stand() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("a.pcap");
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" perf --size 64KiB --count 20 --json --pcap \"$1\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_rnic")]).arg(&path);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = common::finish(shell.spawn().expect("there is a shell"));
    assert_eq!(said.status.code(), Some(2), "{said:#?}");
    let report: Value = serde_json::from_str(&said.out).expect("what was measured stands");
    assert_whole(&report);
    let notices = report["notices"].as_array().expect("a list");
    assert_eq!(notices.len(), 1, "{report}");
    let reason = notices[0].as_str().expect("text");
    assert!(reason.starts_with("the capture has ended: ") && reason.contains("File too large"), "{reason}");
    assert!(said.err.contains(&format!("Notice: {reason}.")), "{said:#?}");
    let last = said.err.lines().last().expect("a line");
    assert!(last.starts_with("rnic: ") && last.contains("a.pcap") && last.contains(reason), "{said:#?}");
    let report = rnic(&["perf", "--count", "20", "--json"]).json();
    assert_eq!(report["notices"], Value::Array(Vec::new()), "nothing to tell: {report}");
}

/// Within PSP and within ESP, with keys of both lengths.
#[test]
fn f42_what_is_sealed_is_measured_and_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, [7; 32]).expect("a file can be written");
    let file = file.to_str().expect("text");
    for form in ["", "psp256:", "esp:", "esp256:"] {
        let key = format!("{form}{file}");
        let report = rnic(&["perf", "--transport", "falcon", "--key", &key, "--count", "200", "--json"]).json();
        assert_whole(&report);
        assert_eq!(report["ops_wrong"], 0, "{form}: {report}");
    }
}

#[test]
fn bad_arguments_are_refused_with_one_line() {
    let cases: [(&[&str], &[&str]); 32] = [
        (&["--transport", "quic"], &["quic", "roce-gbn, irn"]),
        (&["--wire", "sim", "--transport", "quic"], &["quic", "roce-gbn, irn"]),
        (&["--set", "rto_hihg=1ms"], &["rto_hihg", "rto_high"]),
        (&["--wire", "sim", "--set", "rto_hihg=1ms"], &["rto_hihg"]),
        (&["--set", "rto_high=1KB"], &["rto_high", "1KB", "100us"]),
        (&["--set", "rto_high"], &["KEY=VALUE"]),
        (&["--set", "recovery=luck"], &["luck", "go-back-n"]),
        (&["--set", "extra_header=16B"], &["extra_header", "means nothing here"]),
        (&["--size", "64us"], &["64us", "64KiB"]),
        (&["--size", "2GiB"], &["2GiB", "1GiB"]),
        (&["--loss", "200%"], &["200%", "1%"]),
        (&["--loss", "1ms"], &["1ms"]),
        (&["--loss", "-1%"], &["--loss -1%", "below zero"]),
        (&["--seed", "-1"], &["--seed -1", "below zero"]),
        (&["--transport", "falcon", "--key", "/nowhere"], &["rnic: /nowhere: cannot read the secret"]),
        (&["--transport", "falcon", "--key", "esp:/nowhere"], &["rnic: /nowhere: cannot read the secret"]),
        (&["--transport", "falcon", "--key", "esp512:/nowhere"], &["rnic: esp512:/nowhere: cannot read the secret"]),
        (&["--transport", "falcon", "--key", ""], &["a value is required for '--key <[esp:]FILE>'"]),
        (&["--transport", "falcon", "--set", "ordering=weakly"], &["one of ordered, weak, unordered"]),
        (&["--rate", "0"], &["above zero"]),
        (&["--rate", "5us"], &["5us"]),
        (&["--delay", "5Gbps"], &["5Gbps"]),
        (&["--mtu", "9000"], &["multiple of 4", "8192"]),
        (&["--op", "fly"], &["fly", "atomic"]),
        (&["--wire", "string"], &["string", "sim"]),
        (&["--count", "0"], &["--count"]),
        (&["--count", "1", "--duration", "1s"], &["--count", "--duration"]),
        (&["--listen", "--op", "read"], &["--listen", "--op"]),
        (&["--wire", "sim", "10.0.0.1"], &["10.0.0.1", "sim"]),
        (&["--pcap", "/nowhere/x.pcap"], &["/nowhere/x.pcap"]),
        (&["no-such-host.invalid"], &["no-such-host.invalid"]),
        (&["--listen", "203.0.113.7:4791"], &["203.0.113.7:4791", "not an address of this machine"]),
    ];
    for (words, says) in cases {
        rnic(&[&["perf"], words].concat()).refused(2, says);
    }
}

#[test]
fn without_order_what_cannot_work_is_refused_and_the_rest_works() {
    let words = ["perf", "--transport", "falcon", "--set", "ordering=unordered", "--loss", "1%"];
    for op in ["write", "send"] {
        rnic(&[&words[..], &["--op", op]].concat()).refused(2, &["needs order", "one packet of at most 4096 bytes"]);
        let short = ["--op", op, "--size", "4096", "--count", "2000", "--json"];
        let report = rnic(&[&words[..], &short].concat()).json();
        assert_eq!((&report["ops"], &report["ops_wrong"]), (&2000.into(), &0.into()), "{report}");
        assert_eq!(report["verified"], true, "{report}");
    }
}

/// A listening end that is killed with the test.
struct Listener {
    child: Child,
    address: String,
}

impl Listener {
    fn start(bind: &str) -> Self {
        let mut child = common::command(&["perf", "--listen", bind]).spawn().expect("the command starts");
        let line = common::first_line(child.stderr.as_mut().expect("it is captured"));
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.split(';').next());
        Self { address: address.unwrap_or_else(|| panic!("it says where: {line}")).to_owned(), child }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_end_listens_and_many_others_measure() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let listener = Listener::start(bind);
        for op in ["write", "read"] {
            let report = rnic(&["perf", &listener.address, "--op", op, "--count", "50", "--json"]).json();
            assert_whole(&report);
            assert_eq!(report["verified"], true, "{report}");
        }
        rnic(&["perf", "--listen", &listener.address]).refused(2, &[&listener.address, "in use"]);
    }
}

#[test]
fn a_peer_that_is_killed_ends_the_measurement_soon() {
    let listener = Listener::start("127.0.0.1:0");
    let start = Instant::now();
    let child = common::command(&["perf", &listener.address, "--duration", "60s"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    let address = listener.address.clone();
    drop(listener);
    common::finish(child).refused(2, &[&address, "is gone", "was killed"]);
    assert!(start.elapsed() < Duration::from_secs(30), "after {:?}", start.elapsed());
}

#[test]
fn a_listener_whose_client_is_killed_says_so_and_is_soon_free_for_the_next() {
    // Whether it waits for Writes that pass its program by, has data to send itself, or repeats nothing on its own.
    for words in [&["--op", "write"][..], &["--op", "send", "--depth", "1"], &["--op", "read", "--transport", "falcon"]]
    {
        let mut listener = Listener::start("127.0.0.1:0");
        let arguments = [&["perf", &listener.address, "--duration", "60s"], words].concat();
        let mut child = common::command(&arguments).spawn().expect("it starts");
        std::thread::sleep(Duration::from_secs(1));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let start = Instant::now();
        let line = common::first_line(listener.child.stderr.as_mut().expect("it is captured"));
        assert!(line.contains("is gone") && line.contains("was killed") && line.contains("next"), "{words:?}: {line}");
        assert!(start.elapsed() < Duration::from_secs(10), "{words:?}: after {:?}", start.elapsed());
        assert_eq!(rnic(&["perf", &listener.address, "--count", "50", "--json"]).json()["verified"], true);
    }
}

#[test]
fn nobody_there_is_one_line() {
    // A port that was free a moment ago.
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    rnic(&["perf", &format!("127.0.0.1:{port}")]).refused(2, &["127.0.0.1", "refused"]);
}

#[test]
fn a_peer_that_speaks_garbage_is_one_line_in_bounded_time() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let address = socket.local_addr().expect("it is bound").to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let babbling = std::thread::spawn(move || {
        let (mut packet, mut noise, mut heard) = ([0; 9_000], 0x1234_5678_9abc_def1u64, 0);
        while !stopped.load(Ordering::Relaxed) {
            let Ok((len, from)) = socket.recv_from(&mut packet) else { continue };
            heard += 1;
            // Its own words, its own words with a wrong byte, and noise of many lengths.
            for round in 0..20usize {
                let byte = &mut packet[(round * 7) % len.max(1)];
                *byte ^= u8::from(round != 0) * 0x55;
                let _ = socket.send_to(&packet[..len], from);
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let bytes: Vec<u8> = (0..round * 23).map(|at| (noise >> (at % 57)) as u8).collect();
                let _ = socket.send_to(&bytes, from);
            }
        }
        heard
    });
    let start = Instant::now();
    rnic(&["perf", &address]).refused(2, &[&address]);
    assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
    stop.store(true, Ordering::Relaxed);
    assert!(babbling.join().expect("it babbles") > 0, "it was asked");
}

#[test]
fn garbage_at_a_listener_does_not_keep_it_from_others() {
    let listener = Listener::start("127.0.0.1:0");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for len in 0..200 {
        socket.send_to(&vec![len as u8; len * 5], &listener.address).expect("loopback takes it");
    }
    assert_eq!(rnic(&["perf", &listener.address, "--count", "50", "--json"]).json()["verified"], true);
}

#[test]
fn an_interrupt_ends_a_listener_cleanly() {
    let mut listener = Listener::start("127.0.0.1:0");
    kill_process(Pid::from_child(&listener.child), Signal::INT).expect("it runs");
    let status = listener.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130));
}

#[test]
fn the_second_process_ends_with_the_first() {
    let mut child = common::command(&["perf", "--attached", "--listen", "127.0.0.1:0"]);
    let mut child = child.stdin(Stdio::piped()).spawn().expect("it starts");
    let address = common::first_line(child.stdout.as_mut().expect("it is captured"));
    assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{address}");
    drop(child.stdin.take());
    assert!(common::finish(child).status.success());
}

#[test]
fn a_simulation_says_what_limited_it() {
    for (more, says) in [
        (&["--transport", "falcon", "--rate", "200Gbps", "--duration", "3ms"][..], "the congestion window"),
        (&["--transport", "irn", "--count", "500"], "the link, which was full"),
        (&["--op", "send", "--size", "8", "--depth", "1"], "the operations in flight: 8 B"),
        (&["--set", "cap_packets=10", "--count", "100"], "cap_packets: 10 packets"),
        (&["--transport", "roce-gbn", "--loss", "1%", "--count", "500"], "recovery: "),
    ] {
        let words = [&["perf", "--wire", "sim", "--json"][..], more].concat();
        let said = rnic(&words).json()["limited_by"].as_str().unwrap_or_default().to_owned();
        assert!(said.starts_with(says), "{more:?}: {said}");
    }
}
