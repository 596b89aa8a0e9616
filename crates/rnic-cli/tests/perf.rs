//! `rnic perf` on both wires: its JSON report, with both ends in one process and in two, and the arguments that it
//! rejects.

mod common;

use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::rnic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Checks that the report has every field that programs rely on, and that its figures are consistent.
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
            let arguments = [
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
            let report = rnic(&arguments).json();
            assert_whole(&report);
            assert_eq!(report["transport"], transport);
            assert_eq!((&report["op"], &report["wire"]), (&op.into(), &"udp".into()));
            assert_eq!((&report["ops"], &report["ops_verified"]), (&400.into(), &400.into()), "{report}");
            assert_eq!((&report["verified"], &report["simulated"]), (&true.into(), &false.into()), "{report}");
            again += report["packets_retransmitted"].as_u64().expect("a number");
        }
        assert!(again > 0, "{transport}: nothing was retransmitted");
    }
}

#[test]
fn t26_a_stream_between_two_processes_through_a_lossy_network() {
    let report = rnic(&["perf", "--stream", "--count", "500", "--size", "20000", "--loss", "1%", "--json"]).json();
    assert_whole(&report);
    assert_eq!((&report["transport"], &report["op"]), (&"tonic-new-reno".into(), &"stream".into()), "{report}");
    assert_eq!((&report["ops"], &report["verified"]), (&500.into(), &true.into()), "{report}");
    assert!(report["packets_retransmitted"].as_u64() > Some(0), "{report}");
    let latency = ["perf", "--stream", "--depth", "1", "--size", "8", "--transport", "irn", "--count", "50", "--json"];
    let report = rnic(&latency).json();
    assert_eq!((&report["transport"], &report["latency_kind"]), (&"irn".into(), &"half-round-trip".into()), "{report}");
    for other in [["--wire", "sim"], ["--peers", "roce"]] {
        rnic(&[&["perf", "--stream"][..], &other].concat()).assert_refused(2, &["--stream: streams run between two"]);
    }
}

#[test]
fn every_operation_on_the_fabric() {
    for transport in ["irn", "roce-gbn"] {
        for op in ["write", "send", "read", "atomic"] {
            let arguments = [
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
            let report = rnic(&arguments).json();
            assert_whole(&report);
            assert_eq!((&report["wire"], &report["simulated"]), (&"sim".into(), &true.into()));
            assert_eq!((&report["ops"], &report["verified"]), (&200.into(), &true.into()), "{report}");
            assert_eq!(rnic(&arguments).json()["trace_hash"], report["trace_hash"], "a repeated run differs");
        }
    }
}

#[test]
fn on_the_fabric_loss_costs_irn_little_and_go_back_n_much() {
    let goodput = |transport: &str, loss: &str| {
        let arguments = ["perf", "--wire", "sim", "--transport", transport, "--loss", loss, "--json"];
        rnic(&arguments).json()["goodput_gbps"].as_f64().expect("a number")
    };
    let (clean, irn, gbn) = (goodput("irn", "0"), goodput("irn", "1%"), goodput("roce-gbn", "1%"));
    assert!(clean > 95.0, "a 100 Gbit/s link carries {clean}");
    assert!(irn >= 0.9 * clean, "irn {irn} of {clean}");
    assert!(gbn <= 0.65 * clean, "roce-gbn {gbn} of {clean}");
}

#[test]
fn the_output_is_one_table_with_its_source() {
    let output = rnic(&["perf", "--wire", "sim", "--count", "50"]).ok();
    for shown in ["irn, write of 64 KiB", "Gbit/s", "p99.9", "Simulated"] {
        assert!(output.out.contains(shown), "{shown} is not shown: {output:#?}");
    }
    let output = rnic(&["perf", "--count", "50", "--op", "send", "--size", "8", "--depth", "1"]).ok();
    for shown in ["send of 8 B", "half of a round trip", "not figures of RDMA hardware", "load average"] {
        assert!(output.out.contains(shown), "{shown} is not shown: {output:#?}");
    }
}

/// Checks that on both wires the report says what each flow carried when there are several flows.
#[test]
fn f27_flows_are_reported_separately() {
    for wire in ["udp", "sim"] {
        let arguments = |flows| ["perf", "--wire", wire, "--transport", "falcon", "--set", flows, "--count", "500"];
        let report = rnic(&[&arguments("flows=4")[..], &["--json", "--loss", "1%"]].concat()).json();
        let flows = report["flows"].as_array().expect("there are several");
        let sum = |key: &str| flows.iter().filter_map(|flow| flow[key].as_f64()).sum::<f64>();
        assert_eq!(flows.len(), 4, "{report}");
        assert!(flows.iter().all(|flow| flow["packets"].as_u64() > Some(0)), "a flow carried no packet: {report}");
        assert!((sum("share") - 1.0).abs() < 1e-9, "{report}");
        // Only one end writes, so the other one sends hardly any packets with data.
        let all = report["packets_sent"].as_f64().expect("a number");
        assert!((0.99 * all..=all).contains(&sum("packets")), "{wire}: {report}");
        assert!(sum("packets_retransmitted") > 10.0, "{wire}: {report}");
        let output = rnic(&arguments("flows=2")).ok();
        assert!(output.out.contains("flow of each connection"), "{output:#?}");
        let report = rnic(&[&arguments("flows=1")[..], &["--json"]].concat()).json();
        assert!(report["flows"].is_null(), "a single flow is listed: {report}");
    }
}

#[test]
fn unverified_data_are_not_reported_as_verified() {
    let arguments = ["perf", "--wire", "sim", "--size", "1GiB", "--qps", "2", "--count", "1", "--rate", "10Tbps"];
    assert!(rnic(&arguments).ok().out.contains("not compared"));
    let report = rnic(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!((&report["verified"], &report["ops_verified"]), (&false.into(), &0.into()), "{report}");
}

#[test]
fn configured_rate_and_delay_limit_the_results() {
    let arguments = ["perf", "--rate", "500Mbps", "--delay", "2ms", "--count", "100", "--json"];
    let report = rnic(&arguments).json();
    assert_whole(&report);
    let goodput = report["goodput_gbps"].as_f64().expect("a number");
    assert!((0.02..0.5).contains(&goodput), "{report}");
    assert!(report["latency_us"]["p50"].as_f64() > Some(4_000.0), "the latency is below the delay: {report}");
}

#[test]
fn udp_and_simulation_write_captures() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    for wire in ["udp", "sim"] {
        let file = folder.path().join(wire);
        let path = file.to_str().expect("a plain path");
        rnic(&["perf", "--wire", wire, "--size", "3000", "--count", "20", "--pcap", path]).ok();
        let bytes = std::fs::read(&file).expect("the capture").len();
        assert!(bytes > 60_000, "{wire}: {bytes} bytes of capture for 60 kB");
    }
}

/// Checks a capture whose file may not grow beyond a small number of blocks of half a kilobyte, as on a full disk:
/// the command reports that the capture ended early and why, and its measured figures remain valid.
#[test]
fn a_capture_that_ends_early_is_reported_with_its_reason() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("a.pcap");
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" perf --size 64KiB --count 20 --json --pcap \"$1\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_rnic")]).arg(&path);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = common::finish(shell.spawn().expect("there is a shell"));
    assert_eq!(output.status.code(), Some(2), "{output:#?}");
    let report: Value = serde_json::from_str(&output.out).expect("the report is valid JSON");
    assert_whole(&report);
    let notices = report["notices"].as_array().expect("a list");
    assert_eq!(notices.len(), 1, "{report}");
    let reason = notices[0].as_str().expect("text");
    assert!(
        reason.starts_with("the packet capture stopped early and is incomplete: ") && reason.contains("File too large"),
        "{reason}"
    );
    assert!(output.err.contains(&format!("Notice: {reason}.")), "{output:#?}");
    let last = output.err.lines().last().expect("a line");
    assert!(last.starts_with("rnic: ") && last.contains("a.pcap") && last.contains(reason), "{output:#?}");
    let report = rnic(&["perf", "--count", "20", "--json"]).json();
    assert_eq!(report["notices"], Value::Array(Vec::new()), "unexpected notices: {report}");
}

/// Measures with PSP and with ESP encryption, with keys of both lengths, and verifies the data.
#[test]
fn f42_encrypted_transfers_are_measured_and_verified() {
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
    let cases: [(&[&str], &[&str]); 33] = [
        (&["--transport", "quic"], &["quic", "roce-gbn, irn"]),
        (&["--wire", "sim", "--transport", "quic"], &["quic", "roce-gbn, irn"]),
        (&["--set", "rto_hihg=1ms"], &["rto_hihg", "rto_high"]),
        (&["--wire", "sim", "--set", "rto_hihg=1ms"], &["rto_hihg"]),
        (&["--set", "rto_high=1KB"], &["rto_high", "1KB", "100us"]),
        (&["--set", "rto_high"], &["KEY=VALUE"]),
        (&["--set", "recovery=luck"], &["luck", "go-back-n"]),
        (&["--set", "extra_header=16B"], &["extra_header", "has no effect here"]),
        (&["--size", "64us"], &["64us", "64KiB"]),
        (&["--size", "2GiB"], &["2GiB", "1GiB"]),
        (&["--loss", "200%"], &["200%", "1%"]),
        (&["--loss", "1ms"], &["1ms"]),
        (&["--loss", "-1%"], &["--loss -1%", "negative"]),
        (&["--seed", "-1"], &["--seed -1", "negative"]),
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
        (&["--wire", "sim", "--events"], &["--events", "sim"]),
        (&["--pcap", "/nowhere/x.pcap"], &["/nowhere/x.pcap"]),
        (&["no-such-host.invalid"], &["no-such-host.invalid"]),
        (&["--listen", "203.0.113.7:4791"], &["203.0.113.7:4791", "not an address of an interface of this machine"]),
    ];
    for (arguments, expected_texts) in cases {
        rnic(&[&["perf"], arguments].concat()).assert_refused(2, expected_texts);
    }
}

#[test]
fn unordered_transport_refuses_only_operations_that_require_order() {
    let arguments = ["perf", "--transport", "falcon", "--set", "ordering=unordered", "--loss", "1%"];
    for op in ["write", "send"] {
        rnic(&[&arguments[..], &["--op", op]].concat())
            .assert_refused(2, &["requires order", "one packet (4096 bytes)"]);
        let short = ["--op", op, "--size", "4096", "--count", "2000", "--json"];
        let report = rnic(&[&arguments[..], &short].concat()).json();
        assert_eq!((&report["ops"], &report["ops_wrong"]), (&2000.into(), &0.into()), "{report}");
        assert_eq!(report["verified"], true, "{report}");
    }
}

/// A listening end, which is killed when the test ends.
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
        rnic(&["perf", "--listen", &listener.address]).assert_refused(2, &[&listener.address, "in use"]);
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
    common::finish(child).assert_refused(2, &[&address, "has exited", "was killed"]);
    assert!(start.elapsed() < Duration::from_secs(30), "after {:?}", start.elapsed());
}

#[test]
fn a_listener_whose_client_is_killed_says_so_and_is_soon_free_for_the_next() {
    // The listener waits for Writes, which its program does not notice; or has data to send itself; or, with
    // `falcon`, does not retransmit anything by itself.
    for extra in [&["--op", "write"][..], &["--op", "send", "--depth", "1"], &["--op", "read", "--transport", "falcon"]]
    {
        let mut listener = Listener::start("127.0.0.1:0");
        let arguments = [&["perf", &listener.address, "--duration", "60s"], extra].concat();
        let mut child = common::command(&arguments).spawn().expect("it starts");
        std::thread::sleep(Duration::from_secs(1));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let start = Instant::now();
        let line = common::first_line(listener.child.stderr.as_mut().expect("it is captured"));
        assert!(
            line.contains("has exited") && line.contains("was killed") && line.contains("next"),
            "{arguments:?}: {line}"
        );
        assert!(start.elapsed() < Duration::from_secs(10), "{arguments:?}: after {:?}", start.elapsed());
        assert_eq!(rnic(&["perf", &listener.address, "--count", "50", "--json"]).json()["verified"], true);
    }
}

#[test]
fn a_closed_port_is_a_one_line_error() {
    // A port that was free a moment ago, so that probably no process listens on it.
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    rnic(&["perf", &format!("127.0.0.1:{port}")]).assert_refused(2, &["127.0.0.1", "refused"]);
}

#[test]
fn a_peer_that_sends_garbage_is_a_one_line_error_in_bounded_time() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let address = socket.local_addr().expect("it is bound").to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let garbage_sender = std::thread::spawn(move || {
        let (mut packet, mut noise, mut packets_received) = ([0; 9_000], 0x1234_5678_9abc_def1u64, 0);
        while !stopped.load(Ordering::Relaxed) {
            let Ok((len, from)) = socket.recv_from(&mut packet) else { continue };
            packets_received += 1;
            // Replies with the client's own packet, with that packet with one wrong byte, and with noise of many
            // lengths.
            for round in 0..20usize {
                let byte = &mut packet[(round * 7) % len.max(1)];
                *byte ^= u8::from(round != 0) * 0x55;
                let _ = socket.send_to(&packet[..len], from);
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let bytes: Vec<u8> = (0..round * 23).map(|at| (noise >> (at % 57)) as u8).collect();
                let _ = socket.send_to(&bytes, from);
            }
        }
        packets_received
    });
    let start = Instant::now();
    rnic(&["perf", &address]).assert_refused(2, &[&address]);
    assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
    stop.store(true, Ordering::Relaxed);
    assert!(garbage_sender.join().expect("the garbage thread ends") > 0, "no packet arrived");
}

#[test]
fn garbage_does_not_stop_a_listener() {
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
fn a_simulation_reports_its_bottleneck() {
    for (more, expected_texts) in [
        (&["--transport", "falcon", "--rate", "200Gbps", "--duration", "3ms"][..], "the congestion window"),
        (&["--transport", "irn", "--count", "500"], "the link rate: the link was full"),
        (&["--op", "send", "--size", "8", "--depth", "1"], "the bytes in flight: 8 B"),
        (&["--set", "cap_packets=10", "--count", "100"], "cap_packets: at most 10 packets"),
        (&["--transport", "roce-gbn", "--loss", "1%", "--count", "500"], "recovery: "),
    ] {
        let arguments = [&["perf", "--wire", "sim", "--json"][..], more].concat();
        let output = rnic(&arguments).json()["limited_by"].as_str().unwrap_or_default().to_owned();
        assert!(output.starts_with(expected_texts), "{more:?}: {output}");
    }
}
