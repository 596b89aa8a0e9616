//! A capture of Falcon contains every packet that leaves a host, encapsulated in IPv6 with its flow label, UDP and
//! PSP, and can be decoded again.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use rnic_wire::falcon::codec::decode_datagram;
use rnic_wire::falcon::nvme::Operation;
use rnic_wire::falcon::{Body, FlowLabel, Timestamp, Ulp};

/// Returns the time in nanoseconds and the frame of every record.
fn records(capture: &[u8]) -> Vec<(u64, &[u8])> {
    let word = |at: usize| u64::from(u32::from_be_bytes(*capture[at..].first_chunk().expect("four bytes")));
    let (mut at, mut records) = (24, Vec::new());
    while at < capture.len() {
        let (time, len) = (word(at) * 1_000_000_000 + word(at + 4), word(at + 8) as usize);
        records.push((time, &capture[at + 16..at + 16 + len]));
        at += 16 + len;
    }
    records
}

#[test]
fn the_capture_contains_every_packet_sent() {
    let with = [
        ("transport", r#"{ name = "falcon", flows = 4 }"#),
        ("workload", r#"{ kind = "closed-loop", op = "write", message = "10KB", depth = 8, count = 200 }"#),
        ("payload", "checked"),
        ("fault", r#"[{ kind = "drop", probability = "2%" }]"#),
    ];
    let mut simulation = simulation(WIRE, &with, 3);
    let file = Shared::default();
    simulation.capture_to(file.clone()).expect("writing to memory succeeds");
    let report = simulation.run(&mut |_| core::ops::ControlFlow::Continue(()));
    report.check().unwrap_or_else(|failure| panic!("{failure}"));
    let capture = file.bytes();

    let (mut data, mut flows, mut payload) = (0, BTreeSet::new(), 0);
    let records = records(&capture);
    for (time, frame) in &records {
        // Ethernet 14, IPv6 40, UDP 8.
        assert_eq!((&frame[12..14], frame[14] >> 4), (&[0x86, 0xdd][..], 6), "IPv6");
        assert_eq!(frame[14 + 40 + 2..14 + 40 + 4], 1000u16.to_be_bytes(), "PSP's port");
        let label = u32::from_be_bytes(*frame[14..].first_chunk().expect("four bytes"));
        let (_, decoded) = decode_datagram(&frame[62..]).expect("the datagram is a Falcon packet");
        let packet = decoded.packet;
        // The packet carries its departure time, in units of 131 ns; the capture has whole nanoseconds.
        let departure = Timestamp::at(rnic_base::Time::from_ns(*time));
        assert!(packet.timestamp.units_since(departure) <= 1, "{departure:?} and {:?}", packet.timestamp);
        if let Body::PushData { .. } = packet.body {
            data += 1;
            payload += decoded.payload.len();
            flows.insert(FlowLabel::new(label).flow(2));
        }
    }
    let sent = report.packets_sent + report.packets_retransmitted;
    assert_eq!((data, records.len() as u64), (sent, sent + report.acks_sent));
    assert_eq!(flows.len(), 4, "the flows do not have separate labels");
    assert!(payload >= 2_000_000 && report.packets_retransmitted > 10, "{payload} bytes");
}

fn name(operation: &Operation) -> &'static str {
    match operation {
        Operation::WriteRequest { .. } => "write request",
        Operation::WriteDataRequest => "write data request",
        Operation::WriteData => "write data",
        Operation::WriteCompletion { .. } => "write completion",
        Operation::ReadRequest { .. } => "read request",
        Operation::ReadResponse { .. } => "read response",
    }
}

/// Returns the packets and data bytes of each kind, and the number of acknowledgements; the data of a host without
/// memory is zeros.
fn nvme_packets(capture: &[u8]) -> (BTreeMap<&'static str, (u64, u64)>, u64) {
    let (mut counts, mut acks) = (BTreeMap::new(), 0);
    for (_, frame) in records(capture) {
        let datagram = &frame[62..];
        let (_, decoded) = decode_datagram(datagram).expect("the datagram is a Falcon packet");
        match decoded.packet.body.ulp() {
            Some(Ulp::Nvme(header)) => {
                let data = &datagram[decoded.payload];
                assert!(data.iter().all(|byte| *byte == 0), "the data is not zero although nothing was written");
                let (packets, bytes) = counts.entry(name(&header.operation)).or_insert((0, 0));
                (*packets, *bytes) = (*packets + 1, *bytes + data.len() as u64);
            }
            None => acks += 1,
            Some(other) => panic!("{other:?} between hosts with NVMe"),
        }
    }
    (counts, acks)
}

#[test]
fn the_capture_contains_every_nvme_packet_sent() {
    let kinds: [(&str, &[&str], &str); 2] = [
        ("read", &["read request", "read response"], "read response"),
        ("write", &["write completion", "write data", "write data request", "write request"], "write data"),
    ];
    for (op, expected, with_data) in kinds {
        let (report, capture) = nvme_captured(op);
        let (counts, acks) = nvme_packets(&capture);
        assert!(counts.keys().eq(expected), "{op}: {counts:?}");
        let sent = counts.values().map(|(packets, _)| packets).sum::<u64>();
        assert_eq!((sent, acks), (report.packets_sent + report.packets_retransmitted, report.acks_sent), "{op}");
        assert!(report.packets_retransmitted > 10, "{op}: few retransmissions in the capture");
        for (kind, (packets, bytes)) in counts {
            // A command of 16 KiB has four units, each with one packet of every kind.
            assert!(packets >= 4 * report.messages && report.messages > 50, "{op}: {packets} times {kind}");
            assert_eq!(bytes, if kind == with_data { packets * 4096 } else { 0 }, "{op}: data of each {kind}");
        }
    }
}

/// Checks that capturing does not change the run.
#[test]
fn a_capture_does_not_change_an_nvme_run() {
    let (captured, _) = nvme_captured("write");
    let alone = finish(nvme("write"));
    assert_eq!((captured.trace_hash, captured.messages), (alone.trace_hash, alone.messages));
}
