//! Checks that Wireshark decodes the packets that the fabric carries.
//!
//! Needs `tshark` (Debian package tshark). Without it the test prints a message and passes; with
//! `RNIC_REQUIRE_TSHARK=1` in the environment it fails. The ICRC, which tshark prints but does not verify, is
//! verified here.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it has tshark read files")]

mod common;

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use rnic_fabric::Report;
use rnic_wire::{Addresses, icrc};

/// Runs `workload` and returns the report and the capture.
fn captured(transport: &str, workload: &str) -> (Report, Vec<u8>) {
    let fault = ("fault", r#"[{ kind = "drop", probability = "3%" }]"#);
    let with = [("transport", transport), ("workload", workload), ("payload", "checked"), fault];
    let mut simulation = simulation(WIRE, &with, 3);
    let file = Shared::default();
    simulation.capture_to(file.clone()).expect("writing to memory succeeds");
    let report = simulation.run(&mut |_| core::ops::ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    assert!(simulation.capture_failure().is_none());
    let bytes = file.bytes();
    (report, bytes)
}

/// Fields that tshark prints for each packet.
const FIELDS: [&str; 9] = [
    "frame.time_relative",
    "ip.src",
    "ip.dst",
    "udp.srcport",
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.invariant.crc",
    "udp.payload",
    "_ws.malformed",
];

/// Returns one line of `fields` for each packet, from tshark with additional `arguments`; `None` if tshark does not
/// run.
fn dissect(name: &str, capture: &[u8], arguments: &[&str], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if let Err(error) = Command::new("tshark").arg("--version").output() {
        let required = std::env::var("RNIC_REQUIRE_TSHARK").is_ok_and(|value| value == "1");
        assert!(!required, "tshark is required but does not run: {error}");
        eprintln!("skipped: tshark does not run ({error}); install the package tshark to check captures");
        return None;
    }
    let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fabric-{name}.pcap"));
    std::fs::write(&path, capture).expect("the capture can be written");
    let mut command = Command::new("tshark");
    command.args(["-n", "--disable-protocol", "rpcordma", "-T", "fields", "-E", "separator=;"]).args(arguments);
    command.arg("-r").arg(&path);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    Some(text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect())
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    digits
        .chunks(2)
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("the digits are ASCII"), 16)
                .expect("the digits are hexadecimal")
        })
        .collect()
}

/// Verifies every packet and returns the number of packets by opcode.
fn opcodes(name: &str, frames: &[Vec<String>]) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    let mut last = 0.0;
    for fields in frames {
        let [time, src, dst, from, to, opcode, _, payload, malformed] = &fields[..] else {
            panic!("{name}: {fields:?}")
        };
        assert!(malformed.is_empty(), "{name}: {fields:?}");
        let time: f64 = time.parse().expect("the time is a number");
        assert!(time >= last, "{name}: not in order of time");
        last = time;
        assert_eq!(to, "4791", "{name}");
        let end = |ip: &str, port: &str| {
            SocketAddr::new(
                ip.parse::<IpAddr>().expect("the address is valid"),
                port.parse().expect("the port is a number"),
            )
        };
        let addresses = Addresses::new(end(src, from), end(dst, to)).expect("both addresses have one IP version");
        assert!(icrc::verify(&addresses, &unhex(payload)), "{name}: the checksum covers {fields:?}");
        *counts.entry(opcode.parse().expect("the field is a number")).or_insert(0) += 1;
    }
    counts
}

#[test]
fn tshark_decodes_every_packet_of_the_fabric() {
    // InfiniBand opcodes that must occur for each operation.
    let cases: [(&str, &[u32]); 5] = [
        ("write", &[6, 7, 8, 17]),
        ("send", &[0, 1, 3, 17]),
        ("read", &[12, 13, 14, 15]),
        ("fetch-add", &[18, 20]),
        ("compare-swap", &[18, 19]),
    ];
    for (transport, format) in TRANSPORTS.iter().zip(["irn", "roce"]) {
        for (op, expected) in cases {
            let message = if expected.len() == 2 { "8" } else { "5000" };
            let workload =
                format!(r#"{{ kind = "closed-loop", op = "{op}", message = {message}, depth = 4, count = 60 }}"#);
            let (report, capture) = captured(transport, &workload);
            let name = format!("{format}-{op}");
            let Some(frames) = dissect(&name, &capture, &[], &FIELDS) else { return };
            let sent = report.packets_sent + report.packets_retransmitted + report.acks_sent;
            assert_eq!(frames.len() as u64, sent, "{name}: every packet that a host sent, lost ones too");
            assert!(report.drops.fault > 0, "{name}: no packet was lost");
            let counts = opcodes(&name, &frames);
            for opcode in expected {
                assert!(counts.contains_key(opcode), "{name}: no packet with opcode {opcode} in {counts:?}");
            }
        }
    }
}

#[test]
fn tshark_decodes_every_nvme_packet() {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/falcon.lua");
    let fields = ["falcon.type", "falcon.nvme.type", "falcon.payload", "falcon.malformed", "_ws.malformed"];
    // Falcon packet types of each NVMe operation, and the type that carries data.
    for (op, expected, with_data) in [("read", &["4", "5"][..], "5"), ("write", &["0", "1", "2", "3"], "2")] {
        let (report, capture) = nvme_captured(op);
        let Some(frames) = dissect(&format!("nvme-{op}"), &capture, &["-X", script], &fields) else { return };
        let sent = report.packets_sent + report.packets_retransmitted + report.acks_sent;
        assert_eq!(frames.len() as u64, sent, "{op}");
        let mut seen = BTreeMap::new();
        for frame in &frames {
            let [falcon, nvme, payload, problems @ ..] = &frame[..] else { panic!("{op}: {frame:?}") };
            assert!(problems.iter().all(String::is_empty), "{op}: {frame:?}");
            // Acknowledgements are of types 8 and above.
            let is_acknowledgement = falcon.parse::<u8>().expect("the field is a number") >= 8;
            assert_eq!(nvme.is_empty(), is_acknowledgement, "{op}: {frame:?}");
            assert_eq!(unhex(payload).len(), if nvme == with_data { 4096 } else { 0 }, "{op}: {frame:?}");
            *seen.entry(nvme.as_str()).or_insert(0) += 1;
        }
        seen.remove("");
        assert!(seen.keys().eq(expected), "{op}: {seen:?}");
    }
}
