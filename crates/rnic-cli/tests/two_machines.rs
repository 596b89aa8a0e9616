//! `rnic perf --listen` and `rnic perf HOST` on two machines, emulated by two network namespaces that a virtual cable
//! connects.

mod common;

use std::process::{Child, Command, Stdio};

use common::{command, finish, first_line};

/// Two network namespaces that are joined by a link with an MTU of 1500 bytes.
struct Cable {
    names: [String; 2],
}

impl Cable {
    /// Creates a cable with this name; the error says why that is not possible here.
    fn create(name: &str) -> Result<Self, String> {
        let names = ["a", "b"].map(|end| format!("rnic-{}-{name}-{end}", std::process::id()));
        let [a, b] = names.clone();
        let cable = Self { names };
        ip(&["netns", "add", &a])?;
        ip(&["netns", "add", &b])?;
        ip(&["-n", &a, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", &b])?;
        for (name, address) in [(&a, "10.77.0.1/24"), (&b, "10.77.0.2/24")] {
            ip(&["-n", name, "address", "add", address, "dev", "wire"])?;
            ip(&["-n", name, "link", "set", "wire", "mtu", "1500", "up"])?;
        }
        Ok(cable)
    }

    /// Runs the command at one end.
    fn spawn(&self, end: usize, arguments: &[&str]) -> Child {
        let program = command::<&str>(&[]).get_program().to_owned();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ip runs it")
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

#[test]
fn two_machines_measure_over_a_link_of_1500_bytes() {
    let cable = match Cable::create("ours") {
        Ok(cable) => cable,
        Err(why) => {
            eprintln!("skipped: network namespaces cannot be made here ({why})");
            return;
        }
    };
    let mut listener = cable.spawn(0, &["perf", "--listen"]);
    let line = first_line(listener.stderr.as_mut().expect("it is captured"));
    assert!(line.contains("0.0.0.0:4791"), "{line}");
    for transport in ["irn", "roce-gbn"] {
        for op in ["write", "send", "read", "atomic"] {
            let arguments =
                ["perf", "10.77.0.1", "--transport", transport, "--op", op, "--count", "100", "--loss", "1%", "--json"];
            let report = finish(cable.spawn(1, &arguments)).json();
            assert_eq!((&report["verified"], &report["ops"]), (&true.into(), &100.into()), "{report}");
            let mtu = report["mtu_bytes"].as_u64().expect("a number");
            assert!((1_024..1_500).contains(&mtu), "the MTU does not fit the link: {report}");
        }
    }
    finish(cable.spawn(1, &["perf", "10.77.0.9"])).assert_refused(2, &["10.77.0.9:4791"]);
    finish(cable.spawn(1, &["perf", "10.78.0.1"])).assert_refused(2, &["10.78.0.1:4791"]);
    listener.kill().expect("it is still there");
    listener.wait().expect("it ends");
}

/// Checks what differs from `perf` on one machine and is as between RDMA adapters: port 4791 at both ends, InfiniBand
/// MTUs, and receives that are counted.
#[test]
fn two_machines_measure_with_real_roce_settings() {
    let cable = match Cable::create("roce") {
        Ok(cable) => cable,
        Err(why) => {
            eprintln!("skipped: network namespaces cannot be made here ({why})");
            return;
        }
    };
    let mut listener = cable.spawn(0, &["perf", "--listen", "--peers", "roce"]);
    let line = first_line(listener.stderr.as_mut().expect("it is captured"));
    assert!(line.contains("0.0.0.0:4791"), "{line}");
    for op in ["write", "send", "read", "atomic"] {
        let arguments =
            ["perf", "10.77.0.1", "--peers", "roce", "--op", op, "--count", "100", "--loss", "1%", "--json"];
        let report = finish(cable.spawn(1, &arguments)).json();
        assert_eq!((&report["verified"], &report["ops"]), (&true.into(), &100.into()), "{report}");
        assert_eq!((&report["transport"], &report["mtu_bytes"]), (&"roce-gbn".into(), &1_024.into()), "{report}");
    }
    finish(cable.spawn(1, &["perf", "10.77.0.9", "--peers", "roce"])).assert_refused(2, &["10.77.0.9:4791"]);
    listener.kill().expect("it is still there");
    listener.wait().expect("it ends");
}
