//! Checks that the pcap file written by a live NIC contains what was on the wire, and that tshark reads it without
//! complaint.
//!
//! Without tshark (Debian package tshark) that part says so and passes; with `RNIC_REQUIRE_TSHARK=1` in the
//! environment it fails. Every frame is also checked by this project's own decoder, ICRC included.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use common::{HALF, Pair, SharedFile, Side};
use rnic_engine::SendOp;
use rnic_host::{ConnectionConfig, TransportChoice};
use rnic_psp::Vector;
use rnic_wire::falcon::PacketType;
use rnic_wire::falcon::codec::decode_datagram;
use rnic_wire::{codec, gsi, icrc};

/// Ethernet, IPv4 and UDP headers before the datagram.
const LOWER_HEADERS_LEN: usize = 14 + 20 + 8;

/// Runs every operation; the capture begins before the connection does.
fn traffic(transport: &str, host: u8) -> SharedFile {
    let file = SharedFile::default();
    let side = |last: u8| Side::at(&format!("127.87.{host}.{last}:4791"));
    let (mut left, right) = (side(1), side(2));
    left.nic.start_capture(Box::new(file.clone())).expect("memory");
    let mut pair = Pair::connected(left, right, transport);
    let (from, to) = (pair.from.qpn, pair.to.qpn);
    let (sge, remote) = (pair.left.sge(0, 10_001), pair.right.region.remote(HALF));
    let receive = pair.right.sge(HALF, 10_001);
    pair.right.post_recv(to, 1, &[receive]);
    pair.right.post_recv(to, 2, &[receive]);
    pair.left.post(from, 1, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.left.post(from, 2, SendOp::Write { remote, immediate: Some(7) }, &[sge]);
    pair.left.post(from, 3, SendOp::Send { immediate: Some(8) }, &[sge]);
    let back = pair.left.sge(HALF, 10_001);
    pair.left.post(from, 4, SendOp::Read { remote }, &[back]);
    let word = pair.left.sge(HALF, 8);
    pair.left.post(from, 5, SendOp::FetchAdd { remote, add: 1 }, &[word]);
    pair.left.post(from, 6, SendOp::CompareSwap { remote, compare: 1, swap: 2 }, &[word]);
    pair.succeed(6);
    drop(pair.left.nic.stop_capture());
    file
}

/// Counts the packets of each opcode in a capture with the project's own decoder; checks every frame's ICRC.
fn opcodes(frames: &[Vec<u8>]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for frame in frames {
        assert!(icrc::verify_ip_packet(&frame[14..]), "ICRC of {frame:02x?}");
        let datagram = &frame[LOWER_HEADERS_LEN..];
        assert!(gsi::is_gsi(datagram) || codec::decode(datagram).is_ok(), "{frame:02x?}");
        *counts.entry(u64::from(datagram[0])).or_default() += 1;
    }
    counts
}

/// Runs tshark with `arguments` and returns the `fields` of every frame, one line each; `None` without tshark.
fn tshark(path: &Path, arguments: &[&str], fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=/s", "-E", "occurrence=f"]);
    command.args(["--disable-protocol", "rpcordma"]).args(arguments);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    match command.arg("-r").arg(path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
        }
        Err(error) => {
            let required = std::env::var("RNIC_REQUIRE_TSHARK").is_ok_and(|value| value == "1");
            assert!(!required, "tshark is required but does not run: {error}");
            eprintln!("skipped: tshark does not run ({error}); install the package tshark to check captures");
            None
        }
    }
}

#[test]
fn tshark_dissects_a_live_capture_without_complaints() {
    for (host, transport) in [(1, "roce-gbn"), (2, "irn")] {
        let file = traffic(transport, host);
        let frames = file.frames();
        let ours = opcodes(&frames);
        // Three Writes and Sends of three packets each, a Read, two atomics, their responses, and the connection
        // management messages.
        assert!(frames.len() >= 9 + 1 + 3 + 2 + 2 + 3, "{} frames", frames.len());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-{transport}.pcap"));
        std::fs::write(&path, file.bytes()).expect("a file");
        let Some(lines) = tshark(&path, &[], &["infiniband.bth.opcode", "_ws.malformed", "_ws.expert"]) else { return };
        assert_eq!(lines.len(), frames.len());
        let mut theirs = BTreeMap::new();
        for line in &lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.len(), 1, "{transport}: tshark complains: {line}");
            *theirs.entry(words[0].parse::<u64>().expect("an opcode")).or_default() += 1;
        }
        assert_eq!(theirs, ours, "{transport}: the opcodes differ");
    }
}

/// Captures the data of a connection with four flows, and its acknowledgements, at the sender.
fn falcon_traffic(left: &str, right: &str) -> SharedFile {
    let (left, right) = (Side::at(left), Side::at(right));
    let choice = TransportChoice::named("falcon", &[("flows", "4")]).expect("a transport that exists");
    let config = |side: &Side| ConnectionConfig::new(side.pd, side.cq).with_transports(vec![choice.clone()]);
    let (from, to) = (config(&left), config(&right));
    let mut pair = Pair::connected_with(left, right, &from, &to);
    let file = SharedFile::default();
    pair.left.nic.start_capture(Box::new(file.clone())).expect("memory");
    let (sge, remote) = (pair.left.sge(0, 400_000), pair.right.region.remote(HALF));
    for wr_id in 0..4 {
        pair.left.post(pair.from.qpn, wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
        pair.succeed(1);
    }
    drop(pair.left.nic.stop_capture());
    file
}

/// Returns type and flow of a frame's packet, decoded by the project's own code.
fn type_and_flow(frame: &[u8]) -> (u8, u8) {
    let datagram = if frame[14] >> 4 == 4 { &frame[LOWER_HEADERS_LEN..] } else { &frame[LOWER_HEADERS_LEN + 20..] };
    let (header, decoded) = decode_datagram(datagram).expect("a Falcon packet");
    (decoded.packet.body.packet_type().code(), Vector::read(header.iv).label % 4)
}

/// Data is sent to one NIC's port and acknowledgements to the other's, each flow from a port of its own, and the flow
/// is in PSP's initialization vector: tshark gets no configuration for any of this.
#[test]
fn f27_a_live_capture_of_falcon_shows_flows_in_both_directions() {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/falcon.lua");
    // Ports that the kernel chooses may belong to another protocol in tshark.
    let arguments = ["-X", script, "-o", "udp.try_heuristic_first:TRUE"];
    for (name, left, right) in [("v4", "127.87.3.1:0", "127.87.3.2:4791"), ("v6", "[::1]:0", "[::1]:0")] {
        let file = falcon_traffic(left, right);
        let ours: Vec<(u8, u8)> = file.frames().iter().map(|frame| type_and_flow(frame)).collect();
        let data = PacketType::PushData.code();
        for is_data in [true, false] {
            let flows = ours.iter().filter(|(code, _)| (*code == data) == is_data).map(|(_, flow)| *flow);
            assert_eq!(flows.collect::<BTreeSet<u8>>().len(), 4, "{name}: a flow has no packets; data: {is_data}");
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-falcon-{name}.pcap"));
        std::fs::write(&path, file.bytes()).expect("a file");
        let fields = ["falcon.type", "falcon.flow", "_ws.malformed", "_ws.lua.error"];
        let Some(lines) = tshark(&path, &arguments, &fields) else { return };
        let theirs: Vec<String> = ours.iter().map(|(code, flow)| format!("{code} {flow}")).collect();
        assert_eq!(lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>(), theirs, "{name}");
    }
}
