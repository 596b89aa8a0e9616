//! Two processes: on loopback, and in network namespaces with a path of their own between them.
//!
//! The other process is this test binary, running one of the ignored tests at the end, which are roles rather than
//! tests. Namespaces need root and `ip` (Debian package iproute2); without them those tests say so and pass.

mod common;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use rnic_base::{Duration, Probability};
use rnic_engine::WcStatus;
use rnic_host::perf::{Length, Op, PerfConfig, PerfError, PerfReport, ServeConfig, measure, serve};
use rnic_host::{ConnectError, Impairment, Nic, NicConfig, NicError, Notice};
use rustix::process::{Pid, Signal, kill_process};

const BOTH: [&str; 2] = ["irn", "roce-gbn"];

/// A process in a role; it is killed when this is dropped.
struct Role {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Role {
    /// Starts `role` in `namespace`, if one is given.
    fn start(role: &str, namespace: Option<&str>, environment: &[(&str, &str)]) -> Self {
        let executable = std::env::current_exe().expect("a test has a file");
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(executable);
                command
            }
            None => Command::new(executable),
        };
        command.args([role, "--exact", "--ignored", "--nocapture"]).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("this binary runs");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, output }
    }

    /// Returns what it prints after `word`, on a line of its own.
    fn wait_for(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let len = self.output.read_line(&mut line).expect("text");
            assert!(len > 0, "it has ended without saying `{word}`");
            // The test harness writes text without a line end before the first line.
            if let Some(at) = line.find(word) {
                return line[at + word.len()..].trim().to_owned();
            }
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(bind: &str) -> Result<Nic, NicError> {
    Nic::open(NicConfig::at(bind.parse().expect("an address")))
}

fn percent(percent: u64) -> Probability {
    Probability::ratio(percent, 100)
}

#[test]
fn two_processes_transfer_and_verify_every_operation_on_an_impaired_network() {
    let mut server = Role::start("serve_role", None, &[("RNIC_TEST_BIND", "127.0.0.1:0")]);
    let address: SocketAddr = server.wait_for("SERVING").parse().expect("an address");
    let mut nic = open("127.0.0.1:0").expect("a free port");
    let impairment =
        Impairment { loss: percent(1), reorder: percent(2), duplicate: percent(1), ..Impairment::default() };
    for transport in BOTH.into_iter().chain(["falcon"]) {
        for op in Op::ALL.into_iter().filter(|op| transport == "falcon" || !op.is_nvme()) {
            let config = PerfConfig {
                transport: transport.to_owned(),
                op,
                size_bytes: if op.is_nvme() { 20_480 } else { 20_000 },
                depth: 8,
                length: Length::Count(100),
                verify: true,
                impairment,
                ..PerfConfig::default()
            };
            let report = measure(&mut nic, address, &config).expect("the server serves");
            assert!(report.verified && report.ops == 100, "{report:?}");
        }
    }
}

/// Runs a measurement whose server is sent `signal`. Returns the error, and how many milliseconds after the signal
/// the measurement ended.
fn measured_until(signal: Signal, transport: &str) -> (SocketAddr, PerfError, u128) {
    let mut server = Role::start("serve_role", None, &[("RNIC_TEST_BIND", "127.0.0.1:0")]);
    let address = server.wait_for("SERVING").parse().expect("an address");
    let process = Pid::from_child(&server.child);
    let signaller = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        kill_process(process, signal).expect("it runs");
        Instant::now()
    });
    let config = PerfConfig {
        transport: transport.to_owned(),
        length: Length::Time(Duration::from_secs(30)),
        ..PerfConfig::default()
    };
    let error = measure(&mut open("127.0.0.1:0").expect("a free port"), address, &config);
    let ended = Instant::now();
    let signalled = signaller.join().expect("it is sent");
    (address, error.expect_err("no response arrives"), ended.duration_since(signalled).as_millis())
}

#[test]
fn connections_to_a_killed_or_stopped_process_fail_in_bounded_time() {
    for transport in BOTH {
        let (address, error, after) = measured_until(Signal::KILL, transport);
        assert!(matches!(error, PerfError::Gone { peer } if peer == address), "{transport}: {error:?}");
        assert!((500..6_000).contains(&after), "{transport}: given up after {after} ms");
        // A stopped process keeps its port, but does not respond.
        let (_, error, after) = measured_until(Signal::STOP, transport);
        let PerfError::Operation { status, .. } = error else { panic!("{transport}: {error:?}") };
        assert_eq!(status, WcStatus::RetryExceeded, "{transport}");
        // By default a silent peer is tolerated for two seconds, and each retry may be a little late.
        assert!((500..6_000).contains(&after), "{transport}: given up after {after} ms");
    }
}

/// Probes are only for peers that are silent: one probe may occur if a busy machine delays the peer.
#[test]
fn a_process_that_sends_packets_is_not_probed() {
    for transport in ["irn", "falcon"] {
        let mut server = Role::start("serve_role", None, &[("RNIC_TEST_BIND", "127.0.0.1:0")]);
        let address = server.wait_for("SERVING").parse().expect("an address");
        let length = Length::Time(Duration::from_ms(2_500));
        let config = PerfConfig { transport: transport.to_owned(), length, ..PerfConfig::default() };
        let mut nic = open("127.0.0.1:0").expect("a free port");
        measure(&mut nic, address, &config).expect("the server serves");
        assert!(nic.stats().probes_sent <= 1, "{transport}: {:?}", nic.stats());
    }
}

#[test]
fn an_address_of_another_process_is_a_one_line_error() {
    let mut server = Role::start("serve_role", None, &[("RNIC_TEST_BIND", "127.0.0.1:0")]);
    let address = server.wait_for("SERVING");
    let error = open(&address).expect_err("taken");
    assert!(matches!(error, NicError::AddressInUse(found) if found.to_string() == address), "{error:?}");
    assert_eq!(error.to_string().lines().count(), 1);
}

/// Network namespaces in a row, `<name>0 - <name>1 - ...`, each connected to the next by a link; deleted when this is
/// dropped.
struct Namespaces {
    names: Vec<String>,
}

impl Namespaces {
    /// Creates `count` namespaces with links of `mtu` bytes between them; host `n` on link `n` has address
    /// `10.99.n.1`, its neighbour `10.99.n.2`. Those in between forward. Returns `None`, and prints a reason, if that
    /// is not possible.
    fn connected(name: &str, count: usize, mtu: u32) -> Option<Self> {
        let names: Vec<String> = (0..count).map(|index| format!("rnic-{name}{index}-{}", std::process::id())).collect();
        let hosts = Self { names };
        for namespace in &hosts.names {
            if let Err(reason) = run(&["ip", "netns", "add", namespace]) {
                eprintln!("skipped: no network namespaces here ({reason}); they need root and iproute2");
                return None;
            }
            run(&["ip", "-n", namespace, "link", "set", "lo", "up"]).expect("loopback comes up");
        }
        for cable in 0..count - 1 {
            let (near, far) = (hosts.end(cable, 1), hosts.end(cable, 2));
            let (here, there) = (&hosts.names[cable], &hosts.names[cable + 1]);
            let add = ["ip", "-n", here, "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", there];
            if let Err(reason) = run(&add) {
                eprintln!("skipped: no virtual cables here ({reason})");
                return None;
            }
            for (namespace, interface, last) in [(here, &near, 1), (there, &far, 2)] {
                let address = format!("10.99.{cable}.{last}/24");
                run(&["ip", "-n", namespace, "addr", "add", &address, "dev", interface]).expect("an address");
                let mtu = mtu.to_string();
                run(&["ip", "-n", namespace, "link", "set", interface, "mtu", &mtu, "up"]).expect("it comes up");
            }
        }
        if count == 3 {
            run(&["ip", "-n", &hosts.names[0], "route", "add", "10.99.1.0/24", "via", "10.99.0.2"]).expect("a route");
            run(&["ip", "-n", &hosts.names[2], "route", "add", "10.99.0.0/24", "via", "10.99.1.1"]).expect("a route");
            let switch = "echo 1 >/proc/sys/net/ipv4/ip_forward";
            run(&["ip", "netns", "exec", &hosts.names[1], "sh", "-c", switch]).expect("the middle forwards");
        }
        Some(hosts)
    }

    /// The interface at an end of a cable.
    fn end(&self, cable: usize, end: u32) -> String {
        format!("rc{cable}e{end}")
    }

    fn set_mtu(&self, namespace: usize, interface: &str, mtu: u32) {
        let mtu = mtu.to_string();
        run(&["ip", "-n", &self.names[namespace], "link", "set", interface, "mtu", &mtu]).expect("a legal MTU");
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in &self.names {
            // Interfaces go with their namespaces.
            let _ = run(&["ip", "netns", "del", namespace]);
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// Measures from the first namespace to the last; calls `during` during the measurement.
fn measure_across(
    hosts: &Namespaces,
    transport: &str,
    to: &str,
    seconds: &str,
    during: impl FnOnce(),
) -> (PerfReport, String) {
    let last = hosts.names.last().expect("there are several");
    let mut server = Role::start("serve_role", Some(last), &[("RNIC_TEST_BIND", "0.0.0.0:4791")]);
    server.wait_for("SERVING");
    let environment = [("RNIC_TEST_TO", to), ("RNIC_TEST_TRANSPORT", transport), ("RNIC_TEST_SECONDS", seconds)];
    let mut client = Role::start("measure_role", Some(&hosts.names[0]), &environment);
    client.wait_for("MEASURING");
    during();
    let report = serde_json::from_str(&client.wait_for("REPORT")).expect("a report");
    (report, client.wait_for("NOTICES"))
}

#[test]
fn packets_fit_a_link_of_1500_bytes() {
    let Some(hosts) = Namespaces::connected("c", 2, 1_500) else { return };
    for transport in BOTH {
        let (report, notices) = measure_across(&hosts, transport, "10.99.0.2:4791", "0.3", || {});
        assert!(report.verified && report.ops > 0, "{report:?}");
        assert_eq!(report.wire_mtu_bytes, 1_424, "not the MTU of a 1500-byte link");
        assert_eq!(notices, "[]", "unexpected notices");
    }
}

/// The MTU of the sender's interface shrinks: the kernel refuses trains and packets that no longer fit.
#[test]
fn a_smaller_interface_mtu_does_not_stall_a_connection() {
    let Some(hosts) = Namespaces::connected("n", 2, 1_500) else { return };
    for transport in BOTH {
        let (report, notices) = measure_across(&hosts, transport, "10.99.0.2:4791", "1.5", || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            hosts.set_mtu(0, &hosts.end(0, 1), 1_000);
        });
        assert!(report.verified && report.elapsed_s < 4.0, "{report:?}");
        assert!(notices.contains("PathMtuTooSmall"), "{transport}: {notices}");
        hosts.set_mtu(0, &hosts.end(0, 1), 1_500);
    }
}

/// The MTU of a hop in the middle shrinks: the router drops packets that do not fit and reports it.
#[test]
fn a_smaller_mtu_of_a_hop_does_not_stall_a_connection() {
    let Some(hosts) = Namespaces::connected("h", 3, 1_500) else { return };
    let (report, notices) = measure_across(&hosts, "irn", "10.99.1.2:4791", "1.5", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        hosts.set_mtu(1, &hosts.end(1, 1), 1_000);
    });
    assert!(report.verified && report.elapsed_s < 4.0, "{report:?}");
    assert!(notices.contains("PathMtuTooSmall"), "{notices}");
    // A new connection uses the current path MTU, or detects it when it sends.
    let (report, _) = measure_across(&hosts, "irn", "10.99.1.2:4791", "0.3", || {});
    assert!(report.verified && report.ops > 0, "{report:?}");
}

#[test]
fn a_namespace_without_route_is_an_error() {
    let Some(hosts) = Namespaces::connected("u", 2, 1_500) else { return };
    let environment = [("RNIC_TEST_TO", "192.0.2.1:4791"), ("RNIC_TEST_TRANSPORT", "irn"), ("RNIC_TEST_SECONDS", "1")];
    let mut client = Role::start("measure_role", Some(&hosts.names[0]), &environment);
    assert_eq!(client.wait_for("FAILED"), "unreachable");
}

/// Role: serves until it is killed.
#[test]
#[ignore = "a role of the other tests"]
fn serve_role() {
    let Ok(bind) = std::env::var("RNIC_TEST_BIND") else { return };
    let mut nic = open(&bind).expect("a free address");
    println!("SERVING {}", nic.local_addr());
    serve(&mut nic, &ServeConfig::default(), || true, |_| {}).expect("it can listen");
}

/// Role: measures verified Writes and prints the outcome.
#[test]
#[ignore = "a role of the other tests"]
fn measure_role() {
    let text = |name| std::env::var(name);
    let (Ok(to), Ok(transport), Ok(seconds)) =
        (text("RNIC_TEST_TO"), text("RNIC_TEST_TRANSPORT"), text("RNIC_TEST_SECONDS"))
    else {
        return;
    };
    let seconds: f64 = seconds.parse().expect("a number");
    let length = Length::Time(Duration::from_ms((seconds * 1e3) as u64));
    let config = PerfConfig { transport, size_bytes: 30_000, depth: 8, length, verify: true, ..PerfConfig::default() };
    let mut nic = open("0.0.0.0:4791").expect("a free address");
    println!("MEASURING");
    match measure(&mut nic, to.parse().expect("an address"), &config) {
        Ok(report) => println!("REPORT {}", serde_json::to_string(&report).expect("plain data")),
        Err(PerfError::Connect(ConnectError::Unreachable { .. })) => println!("FAILED unreachable"),
        Err(error) => println!("FAILED {error:?}"),
    }
    let notices: Vec<Notice> = std::iter::from_fn(|| nic.poll_notice()).collect();
    println!("NOTICES {notices:?}");
}
