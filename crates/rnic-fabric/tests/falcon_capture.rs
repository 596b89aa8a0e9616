//! A capture of Falcon: every packet that leaves a host is in it, as IPv6 with its flow label, UDP and PSP around it,
//! and can be read again.

mod common;

use std::collections::BTreeSet;

use common::*;
use rnic_wire::falcon::codec::decode_datagram;
use rnic_wire::falcon::{Body, FlowLabel, Timestamp};

/// Time in nanoseconds and frame of every record.
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
fn what_leaves_is_in_the_capture() {
    let with = [
        ("transport", r#"{ name = "falcon", flows = 4 }"#),
        ("workload", r#"{ kind = "closed-loop", op = "write", message = "10KB", depth = 8, count = 200 }"#),
        ("payload", "checked"),
        ("fault", r#"[{ kind = "drop", probability = "2%" }]"#),
    ];
    let mut simulation = simulation(WIRE, &with, 3);
    let file = Shared::default();
    simulation.capture_to(file.clone()).expect("memory takes it");
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
        let (_, decoded) = decode_datagram(&frame[62..]).expect("a Falcon packet");
        let packet = decoded.packet;
        // It says when it left, in units of 131 ns; the capture has whole nanoseconds.
        let left = Timestamp::at(rnic_base::Time::from_ns(*time));
        assert!(packet.timestamp.units_since(left) <= 1, "{left:?} and {:?}", packet.timestamp);
        if let Body::PushData { .. } = packet.body {
            data += 1;
            payload += decoded.payload.len();
            flows.insert(FlowLabel::new(label).flow(2));
        }
    }
    let sent = report.packets_sent + report.packets_retransmitted;
    assert_eq!((data, records.len() as u64), (sent, sent + report.acks_sent));
    assert_eq!(flows.len(), 4, "every flow has a label of its own");
    assert!(payload >= 2_000_000 && report.packets_retransmitted > 10, "{payload} bytes");
}
