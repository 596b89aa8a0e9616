//! Wireshark's view of messages between NICs, with the dissector in `tools/wireshark`: every message of
//! `tests/golden/scr.txt`, field by field, and RoCEv2 and Falcon packets beside them.
//!
//! Needs `tshark`, as `tests/falcon_tshark.rs` does.

mod common;

use common::dissect::{Frame, Numbers, Sent, dissect, dissect_cut, find, find_key};
use common::{golden, scr};
use serde_json::Value;

use rnic_wire::scr::{Body, Cookie, Message};
use rnic_wire::{Format, codec};

const SCRIPT: &str = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/scr.lua");
const FALCON: &str = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/falcon.lua");

/// Every golden message, between each pair of addresses.
fn sent() -> Vec<(&'static str, Message, Sent)> {
    let of_path = |path| {
        scr::all().into_iter().map(move |golden| {
            let datagram = golden.message.encode(&path).expect(golden.name).to_vec();
            (golden.name, golden.message, Sent::plain(path, datagram))
        })
    };
    common::paths().into_iter().flat_map(of_path).collect()
}

fn header_fields(message: &Message) -> Numbers {
    let records = match &message.body {
        Body::Grants(records) => records.as_slice().len(),
        Body::BackPressure(records) => records.as_slice().len(),
        _ => 0,
    };
    vec![
        ("scr.dest_qp", message.dest_qpn.get().into()),
        ("scr.psn", u64::from(message.sequence.value() & 0xff_ffff)),
        ("scr.version", 1),
        ("scr.type", message.body.kind() as u64),
        ("scr.announces", message.announced.is_some().into()),
        ("scr.answer_wanted", message.answer_wanted.into()),
        ("scr.last", message.is_last.into()),
        ("scr.records", records as u64),
        ("scr.cookie", message.cookie.map_or(0, Cookie::get)),
        ("scr.announced", message.announced.map_or(0, Cookie::get)),
        ("scr.sequence", message.sequence.value().into()),
        ("scr.source_qp", message.source_qpn.get().into()),
        ("scr.time", message.time),
    ]
}

fn body_fields(body: &Body) -> Numbers {
    match body {
        Body::Probe(path) => vec![("scr.path", path.index.into()), ("scr.label", path.label.into())],
        Body::Answer(answer) => vec![
            ("scr.path", answer.path.index.into()),
            ("scr.label", answer.path.label.into()),
            ("scr.echoed", answer.echoed),
            ("scr.received", answer.received),
            ("scr.sent", answer.sent),
        ],
        Body::NodeReport(report) => vec![
            ("scr.bus_latency", report.bus_latency_ns.into()),
            ("scr.bus_use", report.bus_use.into()),
            ("scr.nic_use", report.nic_use.into()),
            ("scr.rx_rate", report.rx_rate.into()),
            ("scr.headroom", report.headroom.into()),
            ("scr.members", report.members.into()),
            ("scr.drops", report.drops.into()),
        ],
        // JSON shows the last of fields with the same name.
        Body::Grants(records) => {
            let last = records.as_slice().last().expect("a record");
            vec![
                ("scr.grant.qp", last.qpn.get().into()),
                ("scr.grant.kind", last.kind as u64),
                ("scr.grant.rate", last.rate_kbps.into()),
                ("scr.grant.valid", last.valid_us.into()),
                ("scr.grant.reason", last.reason.into()),
            ]
        }
        Body::BackPressure(records) => {
            let last = records.as_slice().last().expect("a record");
            vec![
                ("scr.pressure.qp", last.qpn.get().into()),
                ("scr.pressure.severity", last.severity.into()),
                ("scr.pressure.waiting", last.waiting_bytes.into()),
                ("scr.pressure.count", last.count.into()),
            ]
        }
        Body::Hint(hint) => vec![
            ("scr.tenant", hint.tenant.into()),
            ("scr.weight", hint.weight.into()),
            ("scr.limit", hint.limit_kbps.into()),
        ],
    }
}

fn complaints(layers: &Value) -> [Option<&Value>; 2] {
    [find_key(layers, "_ws.malformed"), find_key(layers, "_ws.expert")]
}

#[test]
fn s6_messages_dissect_field_by_field() {
    let sent = sent();
    let messages: Vec<(&str, Message)> = sent.iter().map(|(name, message, _)| (*name, *message)).collect();
    let datagrams: Vec<Sent> = sent.into_iter().map(|(.., sent)| sent).collect();
    let Some(dissected) = dissect("scr", &datagrams, &["-X", SCRIPT]) else { return };
    for (((name, message), layers), sent) in messages.iter().zip(&dissected).zip(&datagrams) {
        let frame = Frame { name, layers };
        assert_eq!(complaints(layers), [None, None], "{name}: {layers:#}");
        frame.check_numbers(&header_fields(message));
        frame.check_numbers(&body_fields(&message.body));
        let icrc = u32::from_le_bytes(*sent.datagram.last_chunk().expect("an ICRC"));
        frame.check_numbers(&vec![("scr.icrc", icrc.into())]);
    }
}

#[test]
fn s6_refused_messages_are_marked() {
    let changes: [(&str, usize, u8, &str); 9] = [
        ("probe", 12, 2, "unknown version"),
        ("probe", 13, 9, "unknown type"),
        ("probe answer", 14, 3, "flags that the type cannot have"),
        ("grants", 15, 7, "too many records"),
        ("probe answer", 14, 0, "a cookie is absent or unexpected"),
        ("probe", 11, 0, "PSN and sequence number differ"),
        ("grants", 51, 9, "unknown kind of grant"),
        ("probe", 39, 1, "a reserved bit is set"),
        ("hint", 100, 1, "a reserved bit is set"),
    ];
    let [path, _] = common::paths();
    let damage = |(name, at, value, _): &(&str, usize, u8, &str)| {
        let golden = scr::all().into_iter().find(|golden| golden.name == *name).expect("a golden message");
        let mut datagram = golden.message.encode(&path).expect("a message").to_vec();
        datagram[*at] = *value;
        assert!(Message::parse(&datagram).is_err(), "{name} {at}");
        Sent::plain(path, datagram)
    };
    let datagrams: Vec<Sent> = changes.iter().map(damage).collect();
    let Some(dissected) = dissect("scr_refused", &datagrams, &["-X", SCRIPT]) else { return };
    for ((name, at, _, why), layers) in changes.iter().zip(&dissected) {
        assert_eq!(find(layers, "_ws.expert.message"), Some(*why), "{name} {at}: {layers:#}");
    }
}

/// Packets of RoCEv2 are dissected as without the script, in either order of the two scripts, and messages in both.
#[test]
fn s6_other_packets_on_the_port_are_passed_on() {
    let [path, _] = common::paths();
    let mut roce = Vec::new();
    let write = golden::of_format(Format::RoceV2).swap_remove(0);
    let payload = common::payload(write.packet.payload_len);
    codec::assemble(Format::RoceV2, &write.packet, &[&payload], &path, &mut roce).expect("a legal packet");
    let message = scr::all().swap_remove(0).message.encode(&path).expect("a message").to_vec();
    let datagrams = [Sent::plain(path, roce), Sent::plain(path, message)];
    for scripts in [&["-X", SCRIPT][..], &["-X", SCRIPT, "-X", FALCON], &["-X", FALCON, "-X", SCRIPT]] {
        let Some(dissected) = dissect("scr_mixed", &datagrams, scripts) else { return };
        let frame = Frame { name: "RoCEv2", layers: &dissected[0] };
        frame.check_numbers(&vec![("infiniband.bth.psn", write.packet.psn.value().into())]);
        assert_eq!(find_key(&dissected[0], "scr.type"), None);
        let frame = Frame { name: "message", layers: &dissected[1] };
        frame.check_numbers(&vec![("scr.type", 1)]);
        assert_eq!(find_key(&dissected[1], "infiniband.bth.psn"), None);
    }
}

#[test]
fn s6_a_message_cut_by_the_capture_is_no_error() {
    let [path, _] = common::paths();
    let message = scr::all().swap_remove(0).message.encode(&path).expect("a message").to_vec();
    let datagrams: Vec<Sent> = (0..100).map(|_| Sent::plain(path, message.clone())).collect();
    // Ethernet, IP and UDP take 42 bytes.
    let Some(dissected) = dissect_cut("scr_cut", &datagrams, |at| 42 + 4 + at, &["-X", SCRIPT]) else { return };
    for layers in &dissected {
        assert!(find_key(layers, "scr").is_some(), "{layers:#}");
        assert_eq!(find_key(layers, "_ws.expert"), None, "{layers:#}");
    }
}
