//! Wireshark's view of Falcon, with the dissector in `tools/wireshark`: every packet of `tests/golden/falcon.txt`,
//! field by field.
//!
//! Needs `tshark` (Debian package tshark). Without it the tests say so and pass; with `RNIC_REQUIRE_TSHARK=1` in the
//! environment they fail. The expected values come from the packets, the dissector's values from the bytes, with its
//! own tables: the two are independent.

mod common;

use std::collections::BTreeMap;

use common::dissect::{Frame, Numbers, Sent, dissect, dissect_cut, find, find_key};
use common::falcon::{Golden, all, around};
use common::golden;
use serde_json::Value;

use rnic_base::Psn32;
use rnic_wire::falcon::rdma::{Operation, SinkTag};
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, FlowLabel, Nack, NackCode, Packet, PacketType, RnrTimer, Timestamp, Ulp, Window,
    WireError, codec, nvme, psp, rdma,
};
use rnic_wire::{AtomicOp, Format, IpFields, Reth, SendTail};

const SCRIPT: &str = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/falcon.lua");

fn datagram(header: &psp::Header, packet: &Packet) -> Vec<u8> {
    let mut datagram = Vec::new();
    codec::assemble(header, packet, &[&common::payload(packet.payload_len)], &mut datagram).expect("a legal packet");
    datagram
}

/// A datagram on a flow of its connection.
fn sent(datagram: Vec<u8>, flow: u8) -> Sent {
    let path = common::path("[fd00::3]:49153", "[fd00::6]:1000");
    let flow_label = FlowLabel::of_flow(flow, 2, 0x1_2345).get();
    Sent { path, fields: IpFields { flow_label, ..IpFields::default() }, datagram }
}

fn dissect_falcon(name: &str, sent: &[Sent], arguments: &[&str]) -> Option<Vec<Value>> {
    dissect(name, sent, &[&["-X", SCRIPT], arguments].concat())
}

fn check_clean(frame: &Frame<'_>) {
    let complaints = [find_key(frame.layers, "_ws.malformed"), find_key(frame.layers, "_ws.expert")];
    assert_eq!(complaints, [None, None], "{}", frame.name);
    frame.check_numbers(&vec![("udp.checksum.status", 1), ("udp.dstport", 1000)]);
}

#[test]
fn packets_dissect_field_by_field() {
    let goldens: Vec<(Golden, psp::Header)> =
        around().into_iter().flat_map(|header| all().into_iter().map(move |golden| (golden, header))).collect();
    let datagrams: Vec<Sent> = goldens
        .iter()
        .enumerate()
        .map(|(at, (golden, header))| sent(datagram(header, &golden.packet), at as u8 % 4))
        .collect();
    let Some(dissected) = dissect_falcon("falcon", &datagrams, &[]) else { return };
    for (at, ((golden, header), layers)) in goldens.iter().zip(&dissected).enumerate() {
        let frame = Frame { name: golden.name, layers };
        check_clean(&frame);
        frame.check_numbers(&vec![("falcon.flow", at as u64 % 4)]);
        frame.check_numbers(&psp_fields(header, golden.packet.timestamp));
        frame.check_numbers(&start_fields(&golden.packet));
        frame.check_numbers(&body_fields(&golden.packet.body));
        if let Some(ulp) = golden.packet.body.ulp() {
            frame.check_numbers(&ulp_fields(ulp, golden.packet.pad_len()));
        }
        if let Some(Ulp::Rdma(_)) = golden.packet.body.ulp() {
            let opcode = golden.bytes[golden.packet.body.packet_type().headers_len() as usize + 3];
            frame.check_numbers(&vec![("falcon.rdma.opcode", u64::from(opcode))]);
        }
        check_payload(&frame, &golden.packet);
        if let Body::ExtendedAck(_, bitmaps) = &golden.packet.body {
            check_sets(&frame, &golden.packet, bitmaps);
        }
    }
}

fn psp_fields(header: &psp::Header, timestamp: Timestamp) -> Numbers {
    let has_cookie = header.cookie.is_some();
    let mut fields = vec![
        ("falcon.psp.next_header", 252),
        ("falcon.psp.more_words", if has_cookie { 2 } else { 1 }),
        ("falcon.psp.crypt_offset", if has_cookie { 3 } else { 1 }),
        ("falcon.psp.version", header.cipher as u64),
        ("falcon.psp.has_cookie", u64::from(has_cookie)),
        ("falcon.psp.spi", u64::from(header.spi)),
        ("falcon.psp.salt", u64::from(header.iv.salt)),
        ("falcon.timestamp", u64::from(timestamp.value())),
    ];
    fields.extend(header.cookie.map(|cookie| ("falcon.psp.cookie", cookie)));
    fields
}

fn start_fields(packet: &Packet) -> Numbers {
    let mut fields = vec![
        ("falcon.version", 1),
        ("falcon.cid", u64::from(packet.cid.get())),
        ("falcon.type", u64::from(packet.body.packet_type().code())),
        ("falcon.data_base", u64::from(packet.bases.data.value())),
        ("falcon.request_base", u64::from(packet.bases.request.value())),
    ];
    if packet.body.psn().is_some() {
        fields.extend([
            ("falcon.function", u64::from(packet.function)),
            ("falcon.protocol", u64::from(packet.protocol.code())),
            ("falcon.ack_request", u64::from(packet.ack_request)),
        ]);
    }
    fields
}

fn body_fields(body: &Body) -> Numbers {
    let mut fields = Vec::new();
    fields.extend(body.psn().map(|psn| ("falcon.psn", u64::from(psn.value()))));
    fields.extend(body.rsn().map(|rsn| ("falcon.rsn", u64::from(rsn.value()))));
    match body {
        Body::PullRequest { length, .. } | Body::PushData { length, .. } => {
            fields.push(("falcon.request_length", u64::from(*length)));
        }
        Body::PullData { .. } => {}
        Body::Resync { code, of, vendor, .. } => fields.extend([
            ("falcon.resync.code", u64::from(code.code())),
            ("falcon.resync.type", u64::from(of.code())),
            ("falcon.resync.vendor", u64::from(*vendor)),
        ]),
        Body::Ack(ack) | Body::ExtendedAck(ack, _) => fields.extend(acknowledgement_fields(ack)),
        Body::Nack(nack) => fields.extend(nack_fields(nack)),
    }
    fields
}

fn acknowledgement_fields(ack: &Acknowledgement) -> Numbers {
    vec![
        ("falcon.t1", u64::from(ack.t1.value())),
        ("falcon.t2", u64::from(ack.t2.value())),
        ("falcon.hops", u64::from(ack.hops)),
        ("falcon.rx_level", u64::from(ack.rx_level)),
        ("falcon.ecn", u64::from(ack.ecn)),
        ("falcon.metadata", u64::from(ack.metadata)),
        ("falcon.out_of_window.data", u64::from(ack.out_of_window.data)),
        ("falcon.out_of_window.request", u64::from(ack.out_of_window.request)),
    ]
}

fn nack_fields(nack: &Nack) -> Numbers {
    let (wait, ulp) = match nack.code {
        NackCode::NotReady { timeout } => (timeout.code(), 0),
        NackCode::CompleteInError { ulp } | NackCode::NonRecoverable { ulp } => (0, ulp),
        _ => (0, 0),
    };
    vec![
        ("falcon.t1", u64::from(nack.t1.value())),
        ("falcon.t2", u64::from(nack.t2.value())),
        ("falcon.hops", u64::from(nack.hops)),
        ("falcon.rx_level", u64::from(nack.rx_level)),
        ("falcon.ecn", u64::from(nack.ecn)),
        ("falcon.nack.metadata", u64::from(nack.metadata)),
        ("falcon.nack.psn", u64::from(nack.psn.value())),
        ("falcon.nack.code", u64::from(nack.code.code())),
        ("falcon.nack.wait", u64::from(wait)),
        ("falcon.nack.window", u64::from(nack.window == Window::Request)),
        ("falcon.nack.ulp_code", u64::from(ulp)),
    ]
}

fn ulp_fields(ulp: &Ulp, pad: u32) -> Numbers {
    match ulp {
        Ulp::None => vec![],
        Ulp::Rdma(header) => [rdma_fields(header, pad), operation_fields(&header.operation)].concat(),
        Ulp::Nvme(header) => nvme_fields(header),
    }
}

fn rdma_fields(header: &rdma::Header, pad: u32) -> Numbers {
    vec![
        ("falcon.rdma.version", 1),
        ("falcon.rdma.complete_in_error", u64::from(header.complete_in_error)),
        ("falcon.rdma.pad", u64::from(pad)),
        ("falcon.rdma.solicited", u64::from(header.solicited)),
        ("falcon.rdma.dest_qp", u64::from(header.dest_qpn.get())),
        ("falcon.rdma.sn", u64::from(header.sn.value())),
    ]
}

fn operation_fields(operation: &Operation) -> Numbers {
    match operation {
        Operation::Send { tail, rmsn, offset, .. } => {
            let placement = [("falcon.rdma.rmsn", u64::from(rmsn.value())), ("falcon.rdma.offset", u64::from(*offset))];
            let tail = match tail {
                SendTail::Plain => None,
                SendTail::Immediate(value) => Some(("falcon.rdma.immediate", u64::from(*value))),
                SendTail::Invalidate(rkey) => Some(("falcon.rdma.invalidate", u64::from(*rkey))),
            };
            placement.into_iter().chain(tail).collect()
        }
        Operation::Write { reth, tail, .. } => {
            let mut fields = reth_fields(reth);
            if let Some(tail) = tail {
                fields.push(("falcon.rdma.rmsn", u64::from(tail.rmsn.value())));
                fields.push(("falcon.rdma.immediate", u64::from(tail.immediate)));
            }
            fields
        }
        Operation::ReadRequest { reth, rmsn, sink } => {
            [reth_fields(reth), vec![("falcon.rdma.rmsn", u64::from(rmsn.value()))], sink_fields(sink)].concat()
        }
        Operation::ReadResponse { sink, .. } => sink_fields(sink),
        Operation::AtomicRequest { va, rkey, op, rmsn, sink } => {
            let (swap_or_add, compare) = match op {
                AtomicOp::CompareSwap { compare, swap } => (*swap, *compare),
                AtomicOp::FetchAdd { add } => (*add, 0),
            };
            let own = vec![
                ("falcon.rdma.va", *va),
                ("falcon.rdma.rkey", u64::from(*rkey)),
                ("falcon.rdma.swap_or_add", swap_or_add),
                ("falcon.rdma.compare", compare),
                ("falcon.rdma.rmsn", u64::from(rmsn.value())),
            ];
            [own, sink_fields(sink)].concat()
        }
        Operation::AtomicResponse { original, sink } => {
            [vec![("falcon.rdma.original", *original)], sink_fields(sink)].concat()
        }
        Operation::Datagram { queue_key, source_qpn, immediate } => {
            let mut fields = vec![
                ("falcon.rdma.queue_key", u64::from(*queue_key)),
                ("falcon.rdma.source_qp", u64::from(source_qpn.get())),
            ];
            fields.extend(immediate.map(|value| ("falcon.rdma.immediate", u64::from(value))));
            fields
        }
    }
}

fn reth_fields(reth: &Reth) -> Numbers {
    vec![
        ("falcon.rdma.va", reth.va),
        ("falcon.rdma.rkey", u64::from(reth.rkey)),
        ("falcon.rdma.length", u64::from(reth.dma_len)),
    ]
}

fn sink_fields(sink: &SinkTag) -> Numbers {
    vec![("falcon.rdma.sink_va", sink.va), ("falcon.rdma.sink_lkey", u64::from(sink.lkey))]
}

fn nvme_fields(header: &nvme::Header) -> Numbers {
    let base = &header.base;
    let mut fields = vec![
        ("falcon.nvme.version", 1),
        ("falcon.nvme.initiator_function", u64::from(base.initiator_function)),
        ("falcon.nvme.data_invalid", u64::from(base.data_invalid)),
        ("falcon.nvme.split", u64::from(base.split)),
        ("falcon.nvme.second_group", u64::from(base.second_group)),
        ("falcon.nvme.target_tag", u64::from(base.target_tag)),
        ("falcon.nvme.units_less_one", u64::from(base.units_less_one)),
        ("falcon.nvme.initiator_tag", u64::from(base.initiator_tag)),
        ("falcon.nvme.unit", u64::from(base.unit)),
        ("falcon.nvme.command", u64::from(base.command)),
    ];
    match &header.operation {
        nvme::Operation::WriteRequest { command, directive } => {
            fields.extend(command_fields(command));
            fields.push(("falcon.nvme.type", 0));
            fields.push(("falcon.nvme.directive_type", u64::from(directive.kind)));
            fields.push(("falcon.nvme.directive", u64::from(directive.specific)));
        }
        nvme::Operation::WriteDataRequest => fields.push(("falcon.nvme.type", 1)),
        nvme::Operation::WriteData => fields.push(("falcon.nvme.type", 2)),
        nvme::Operation::WriteCompletion { status } => {
            fields.extend([("falcon.nvme.type", 3), ("falcon.nvme.status", u64::from(*status))]);
        }
        nvme::Operation::ReadRequest { command } => {
            fields.extend(command_fields(command));
            fields.push(("falcon.nvme.type", 4));
        }
        nvme::Operation::ReadResponse { status } => {
            fields.extend([("falcon.nvme.type", 5), ("falcon.nvme.status", u64::from(*status))]);
        }
    }
    fields
}

fn command_fields(command: &nvme::Command) -> Numbers {
    vec![
        ("falcon.nvme.initiator_nsid", u64::from(command.initiator_nsid)),
        ("falcon.nvme.target_nsid", u64::from(command.target_nsid)),
        ("falcon.nvme.slba", command.slba),
        ("falcon.nvme.blocks", u64::from(command.blocks)),
        ("falcon.nvme.protection", u64::from(command.protection)),
        ("falcon.nvme.force_unit_access", u64::from(command.force_unit_access)),
        ("falcon.nvme.limited_retry", u64::from(command.limited_retry)),
        ("falcon.nvme.dataset", u64::from(command.dataset)),
        ("falcon.nvme.reference_tag", u64::from(command.reference_tag)),
        ("falcon.nvme.application_mask", u64::from(command.application_mask)),
        ("falcon.nvme.application_tag", u64::from(command.application_tag)),
        ("falcon.nvme.target_queue", u64::from(command.target_queue)),
    ]
}

fn check_payload(frame: &Frame<'_>, packet: &Packet) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let payload = common::payload(packet.payload_len);
    let payload = (!payload.is_empty()).then(|| hex(&payload));
    assert_eq!(find(frame.layers, "falcon.payload"), payload.as_deref(), "{}", frame.name);
    let padding = vec![0; packet.pad_len() as usize];
    let padding = (!padding.is_empty()).then(|| hex(&padding));
    assert_eq!(find(frame.layers, "falcon.padding"), padding.as_deref(), "{}", frame.name);
}

/// Returns the numbers whose bit equals `wanted`, up to the highest bit that is set, in the notation of the
/// dissector.
fn set(base: Psn32, bits: u128, wanted: bool) -> String {
    let end = 128 - bits.leading_zeros();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for bit in (0..end).filter(|bit| (bits >> bit & 1 == 1) == wanted) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == bit => *last = bit,
            _ => ranges.push((bit, bit)),
        }
    }
    let name = |bit: u32| base.plus(bit).value();
    let text = |(first, last): (u32, u32)| match first == last {
        true => name(first).to_string(),
        false => format!("{}-{}", name(first), name(last)),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

fn check_sets(frame: &Frame<'_>, packet: &Packet, bitmaps: &Bitmaps) {
    let (data, request) = (packet.bases.data, packet.bases.request);
    frame.check_texts(&[
        ("falcon.data_acked", set(data, bitmaps.data_acked, true)),
        ("falcon.data_received", set(data, bitmaps.data_received, true)),
        ("falcon.data_missing", set(data, bitmaps.data_received, false)),
        ("falcon.request_received", set(request, bitmaps.request_received.into(), true)),
        ("falcon.request_missing", set(request, bitmaps.request_received.into(), false)),
    ]);
}

fn eack(data_base: u32, data_received: u128) -> Packet {
    let golden = all().into_iter().find(|golden| golden.packet.body.packet_type() == PacketType::ExtendedAck);
    let mut packet = golden.expect("a golden EACK").packet;
    let bitmaps = Bitmaps { data_acked: 0, data_received, request_received: 0 };
    packet.bases.data = Psn32::new(data_base);
    packet.body = Body::ExtendedAck(Acknowledgement::default(), bitmaps);
    packet
}

/// After losses {3, 7, 9} of 0..20 the capture lists these numbers; ranges continue across the wrap of sequence
/// numbers.
#[test]
fn f9_a_capture_lists_the_missing_packets() {
    let holes = (0..18).filter(|bit| ![0, 4, 6].contains(bit)).fold(0, |bits, bit| bits | 1u128 << bit);
    let packets = [eack(3, holes), eack(u32::MAX - 1, 0b1_0110), eack(7, 0), eack(0, u128::MAX)];
    let datagrams = packets.map(|packet| sent(datagram(&around()[0], &packet), 0));
    let Some(dissected) = dissect_falcon("falcon_sets", &datagrams, &[]) else { return };
    let expected = [("4-6, 8, 10-20", "3, 7, 9"), ("4294967295-0, 2", "4294967294, 1"), ("", ""), ("0-127", "")];
    for (layers, (received, missing)) in dissected.iter().zip(expected) {
        let frame = Frame { name: "EACK", layers };
        check_clean(&frame);
        let texts = [("falcon.data_received", received), ("falcon.data_missing", missing)];
        frame.check_texts(&texts.map(|(key, text)| (key, text.to_owned())));
    }
}

/// Waits in milliseconds, as the specification's table has them.
#[test]
fn waits_are_shown_in_milliseconds() {
    let golden = all().into_iter().find(|golden| golden.name == "NACK, receiver not ready").expect("a golden NACK");
    let datagrams: Vec<Sent> = (0..32)
        .map(|code| {
            let mut packet = golden.packet;
            let Body::Nack(nack) = &mut packet.body else { panic!("a NACK") };
            nack.code = NackCode::NotReady { timeout: RnrTimer::from_code(code) };
            sent(datagram(&around()[0], &packet), 0)
        })
        .collect();
    let Some(dissected) = dissect_falcon("falcon_waits", &datagrams, &[]) else { return };
    for (code, layers) in dissected.iter().enumerate() {
        let shown: f64 = Frame { name: "NACK", layers }.text("falcon.nack.wait_ms").parse().expect("a number");
        let wait = RnrTimer::from_code(code as u8).wait();
        assert_eq!((shown * 1_000.0).round() as u64, wait.as_ns() / 1_000, "code {code}");
    }
}

/// The flow has as many bits as the connection's configuration says; IPv4 has no flow label for it.
#[test]
fn f27_a_capture_shows_the_flow() {
    let golden = all().into_iter().find(|golden| golden.name == "BACK").expect("a golden packet");
    let whole = datagram(&around()[0], &golden.packet);
    let path = common::path("10.1.2.3:49152", "10.4.5.6:1000");
    let label = FlowLabel::of_flow(6, 3, 0x2345);
    let fields = IpFields { flow_label: label.get(), ..IpFields::default() };
    let datagrams = [Sent { fields, ..sent(whole.clone(), 0) }, Sent::plain(path, whole)];
    for (bits, flow) in [("2", 2), ("3", 6), ("20", u64::from(label.get()))] {
        let preference = format!("falcon.flow_bits:{bits}");
        let Some(dissected) = dissect_falcon("falcon_flows", &datagrams, &["-o", &preference]) else { return };
        for layers in &dissected {
            check_clean(&Frame { name: "BACK", layers });
        }
        Frame { name: "IPv6", layers: &dissected[0] }.check_numbers(&vec![("falcon.flow", flow)]);
        assert_eq!(find_key(&dissected[1], "falcon.flow"), None);
        assert_eq!(find(&dissected[1], "falcon.type"), Some("9"));
    }
}

/// Packets sent through sockets carry the flow in PSP's initialization vector, seven bits of which are the label's:
/// needed over IPv4, which has no label, and over IPv6, where the kernel sets the label.
#[test]
fn f27_a_capture_of_sockets_shows_the_flow() {
    let golden = all().into_iter().find(|golden| golden.name == "BACK").expect("a golden packet");
    // The label 0x55, between the bits of the time and the bits of the packet counter.
    let iv = psp::Iv { salt: 0x1234 << 17 | 0x55 << 10 | 0x25a, ..psp::Iv::default() };
    let keyed = psp::Header { cipher: psp::Cipher::Gcm128, spi: 1, ..around()[1] };
    let headers = [psp::Header { iv, ..around()[0] }, psp::Header { iv, ..keyed }];
    let fields = IpFields { flow_label: 0xa_bcd2, ..IpFields::default() };
    let of_sockets =
        |header| common::paths().map(|path| Sent { path, fields, datagram: datagram(header, &golden.packet) });
    let datagrams: Vec<Sent> = headers.iter().flat_map(of_sockets).collect();
    for (bits, flow) in [("2", 1), ("3", 5), ("7", 0x55), ("20", 0x55)] {
        let preference = format!("falcon.flow_bits:{bits}");
        let Some(dissected) = dissect_falcon("falcon_vectors", &datagrams, &["-o", &preference]) else { return };
        for layers in &dissected {
            Frame { name: "BACK", layers }.check_numbers(&vec![("falcon.flow", flow)]);
        }
    }
}

/// Sockets use arbitrary ports: Falcon packets are recognised without configuration, also on the port of RoCEv2.
#[test]
fn socket_packets_are_recognized_on_every_port() {
    let paths =
        [("[fd00::3]:49153", "[fd00::6]:4791"), ("10.1.2.3:4791", "10.4.5.6:49153"), ("10.1.2.3:9", "10.4.5.6:65001")];
    let paths = paths.map(|(from, to)| common::path(from, to));
    let goldens: Vec<(Golden, psp::Header)> =
        around().into_iter().flat_map(|header| all().into_iter().map(move |golden| (golden, header))).collect();
    let on_way = |(at, (golden, header)): (usize, &(Golden, psp::Header))| {
        Sent::plain(paths[at % paths.len()], datagram(header, &golden.packet))
    };
    let datagrams: Vec<Sent> = goldens.iter().enumerate().map(on_way).collect();
    let Some(dissected) = dissect_falcon("falcon_ports", &datagrams, &[]) else { return };
    for ((golden, _), layers) in goldens.iter().zip(&dissected) {
        let frame = Frame { name: golden.name, layers };
        assert_eq!(find_key(layers, "_ws.malformed"), None, "{}", golden.name);
        frame.check_numbers(&start_fields(&golden.packet));
    }
}

/// A datagram with a single bit that Falcon excludes, or a byte too few, on an arbitrary port, is left to other
/// dissectors.
#[test]
fn other_datagrams_are_not_dissected() {
    let golden = all().into_iter().find(|golden| golden.name == "BACK").expect("a golden packet");
    let whole = datagram(&psp::Header { cookie: None, ..around()[0] }, &golden.packet);
    // Next header, length in words, offset; in the flags byte the undefined ciphers, the cookie bit and the bit that
    // must be one; the version.
    let fixed = [(0, 0xff), (1, 0xff), (2, 0xff), (3, 0b0011_0011), (16, 0xf0)];
    let bits = fixed.into_iter().flat_map(|(at, mask)| (0..8).map(move |bit| (at, 1 << bit & mask)));
    let others = bits.filter(|(_, bit)| *bit != 0).map(|(at, bit)| {
        let mut other = whole.clone();
        other[at] ^= bit;
        other
    });
    let others: Vec<Vec<u8>> = others.chain([whole[..whole.len() - 1].to_vec(), vec![252], vec![]]).collect();
    assert_eq!(others.len(), 35);
    let datagrams: Vec<Sent> =
        others.into_iter().map(|other| Sent::plain(common::path("10.1.2.3:65000", "10.4.5.6:65001"), other)).collect();
    let Some(dissected) = dissect_falcon("falcon_others", &datagrams, &[]) else { return };
    for (layers, Sent { datagram, .. }) in dissected.iter().zip(&datagrams) {
        assert_eq!(find_key(layers, "falcon"), None, "{datagram:02x?}");
        assert_eq!(find_key(layers, "_ws.lua.error"), None, "{datagram:02x?}");
    }
}

/// RoCEv2 packets on RoCEv2's port are still dissected as RoCEv2.
#[test]
fn roce_packets_are_still_dissected_as_roce() {
    let goldens = golden::of_format(Format::RoceV2);
    let [path, _] = common::paths();
    let assemble = |golden: &golden::Golden| {
        let (mut out, payload) = (Vec::new(), common::payload(golden.packet.payload_len));
        rnic_wire::codec::assemble(golden.format, &golden.packet, &[&payload], &path, &mut out)
            .expect("a legal packet");
        Sent::plain(path, out)
    };
    let datagrams: Vec<Sent> = goldens.iter().map(assemble).collect();
    let Some(with) = dissect_falcon("falcon_beside_roce", &datagrams, &[]) else { return };
    let without = dissect("roce_alone", &datagrams, &[]).expect("tshark runs");
    for (with, without) in with.iter().zip(&without) {
        assert_eq!(find_key(with, "falcon"), None);
        assert!(find_key(with, "infiniband").is_some());
        assert_eq!(find_key(with, "infiniband"), find_key(without, "infiniband"));
    }
}

/// Truncated and damaged frames on RoCEv2's port are dissected as if the script were not installed.
#[test]
fn malformed_packets_on_the_roce_port_are_left_to_wireshark() {
    let [path, _] = common::paths();
    let mut complete_datagrams: Vec<Vec<u8>> = Vec::new();
    for golden in golden::of_format(Format::RoceV2) {
        let (mut out, payload) = (Vec::new(), common::payload(golden.packet.payload_len));
        rnic_wire::codec::assemble(golden.format, &golden.packet, &[&payload], &path, &mut out)
            .expect("a legal packet");
        complete_datagrams.push(out);
    }
    let back = all().into_iter().find(|golden| golden.name == "BACK").expect("a golden packet");
    complete_datagrams.push(datagram(&psp::Header { cookie: None, ..around()[0] }, &back.packet));
    complete_datagrams.push(vec![0x04, 0x40, 0xff, 0xff, 0, 0, 0, 9]);
    let truncations = |whole: &Vec<u8>| -> Vec<Sent> {
        (0..whole.len()).map(|len| Sent::plain(path, whole[..len].to_vec())).collect()
    };
    let datagrams: Vec<Sent> = complete_datagrams.iter().flat_map(truncations).collect();
    let Some(with) = dissect_falcon("falcon_beside_short_roce", &datagrams, &[]) else { return };
    let mut without = dissect("short_roce_alone", &datagrams, &[]).expect("tshark runs");
    let mut malformed = 0;
    for ((mut with, without), sent) in with.into_iter().zip(&mut without).zip(&datagrams) {
        malformed += usize::from(find_key(without, "_ws.malformed").is_some());
        for layers in [&mut with, without] {
            // tshark may report that it called a script.
            let told = layers.as_object_mut().expect("layers have names");
            told.retain(|name, _| name != "frame" && name != "_ws.lua.fake");
        }
        assert_eq!(with, *without, "{:02x?}", sent.datagram);
    }
    assert!(malformed > 100, "{malformed} of {} are malformed", datagrams.len());
}

/// RoCE packets that the capture has truncated do not disturb the script, however many there are: Lua's stack
/// overflows after two hundred calls that do not return.
#[test]
fn truncated_roce_packets_do_not_exhaust_the_lua_stack() {
    let [path, _] = common::paths();
    let golden = golden::of_format(Format::RoceV2).into_iter().find(|golden| golden.packet.payload_len > 0);
    let golden = golden.expect("one with payload");
    let (mut roce, payload) = (Vec::new(), common::payload(golden.packet.payload_len));
    rnic_wire::codec::assemble(golden.format, &golden.packet, &[&payload], &path, &mut roce).expect("a legal packet");
    let back = all().into_iter().find(|golden| golden.name == "BACK").expect("a golden packet");
    let cut = 600;
    let mut datagrams: Vec<Sent> = (0..cut).map(|_| Sent::plain(path, roce.clone())).collect();
    datagrams.push(sent(datagram(&around()[0], &back.packet), 0));
    let snap_len = |at: usize| if at < cut { 44 + at % 28 } else { usize::MAX };
    let Some(dissected) = dissect_cut("falcon_beside_cut_roce", &datagrams, snap_len, &["-X", SCRIPT]) else { return };
    for (at, layers) in dissected.iter().enumerate() {
        assert!(
            find_key(layers, "_ws.lua.error").is_none() && !layers.to_string().contains("Lua Error"),
            "{at}: {layers:#}"
        );
    }
    assert!(find_key(&dissected[cut], "falcon.type").is_some(), "{:#}", dissected[cut]);
}

/// In a capture with a snap length, the available bytes are shown as in a complete capture, on every port, and no
/// packet is marked as malformed because of the missing ones.
#[test]
fn truncated_packets_show_their_available_bytes() {
    let paths = [common::path("[fd00::3]:49153", "[fd00::6]:1000"), common::path("10.1.2.3:4791", "10.4.5.6:49153")];
    let [clear, keyed] = around();
    let headers = [clear, keyed, psp::Header { cipher: psp::Cipher::Gcm128, spi: 1, ..keyed }];
    let mut datagrams = Vec::new();
    let mut lens = Vec::new();
    for (at, golden) in all().iter().enumerate() {
        for header in &headers {
            let path = paths[at % paths.len()];
            let encapsulation_len = if path.src().is_ipv4() { 42 } else { 62 };
            let whole = datagram(header, &golden.packet);
            // From the shortest length at which a packet is recognised, in steps that end in the middle of every
            // field.
            for len in (25..whole.len()).step_by(9).chain([whole.len() - 16, whole.len() - 1, whole.len()]) {
                datagrams.push(Sent::plain(path, whole.clone()));
                lens.push(encapsulation_len + len);
            }
        }
    }
    let Some(cut) = dissect_cut("falcon_cut", &datagrams, |at| lens[at], &["-X", SCRIPT]) else { return };
    let mut whole = BTreeMap::new();
    for (at, (layers, sent)) in cut.iter().zip(&datagrams).enumerate().rev() {
        // The last capture of each datagram is complete.
        if datagrams.get(at + 1).is_none_or(|next| next.datagram != sent.datagram) {
            whole = falcon_fields(layers);
            assert!(whole.contains_key("falcon.psp.icv"));
        }
        check_cut(layers, &whole, &format!("{} bytes of {:02x?}", lens[at], sent.datagram));
    }
}

/// Length fields are checked against the original length of a packet, even if the capture has truncated it.
#[test]
fn wrong_length_fields_are_marked_in_truncated_packets() {
    let golden = all().into_iter().find(|golden| golden.name == "RDMA WRITE first").expect("a golden packet");
    let whole = datagram(&around()[0], &golden.packet);
    let length_at = whole.len() - 16 - golden.packet.message_len() as usize + 26;
    let mut wrong = whole.clone();
    wrong[length_at + 1] ^= 4;
    let (datagrams, snap_len) = ([sent(whole, 0), sent(wrong, 0)], 62 + length_at + 4);
    let Some(dissected) = dissect_cut("falcon_wrong", &datagrams, |_| snap_len, &["-X", SCRIPT]) else { return };
    assert_eq!([0, 1].map(|at| find_key(&dissected[at], "falcon.malformed").is_some()), [false, true]);
}

/// The fields that the dissector has shown, by name.
fn falcon_fields(layers: &Value) -> BTreeMap<String, Value> {
    fn gather(value: &Value, into: &mut BTreeMap<String, Value>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            if key.starts_with("falcon.") && !inner.is_object() {
                into.insert(key.clone(), inner.clone());
            }
            gather(inner, into);
        }
    }
    let mut fields = BTreeMap::new();
    gather(layers, &mut fields);
    fields
}

fn check_cut(layers: &Value, whole: &BTreeMap<String, Value>, what: &str) {
    assert!(find_key(layers, "falcon").is_some(), "{what}");
    for key in ["falcon.malformed", "_ws.malformed", "_ws.lua.error"] {
        assert_eq!(find_key(layers, key), None, "{what}");
    }
    for (key, value) in falcon_fields(layers) {
        let expected = whole.get(&key).unwrap_or_else(|| panic!("{key}: {what}"));
        if key == "falcon.payload" || key == "falcon.encrypted" {
            let [shown, sent] = [&value, expected].map(|value| value.as_str().expect("bytes"));
            assert!(sent.starts_with(shown), "{key}: {what}");
        } else {
            assert_eq!(value, *expected, "{key}: {what}");
        }
    }
}

/// Of an encrypted packet only the connection is shown, unless the dissector is configured for captures of plain
/// text.
#[test]
fn f42_sealed_packets_show_only_their_connection() {
    let golden = all().into_iter().find(|golden| golden.name == "SEND only").expect("a golden packet");
    let [_, header] = around();
    let header = psp::Header { cipher: psp::Cipher::Gcm128, ..header };
    let datagrams = || [sent(datagram(&header, &golden.packet), 3)];
    let Some(sealed) = dissect_falcon("falcon_sealed", &datagrams(), &[]) else { return };
    let frame = Frame { name: "sealed", layers: &sealed[0] };
    check_clean(&frame);
    frame.check_numbers(&vec![("falcon.version", 1), ("falcon.cid", 0x12_3456), ("falcon.flow", 3)]);
    for key in ["falcon.type", "falcon.psn", "falcon.payload", "falcon.rdma.opcode"] {
        assert_eq!(find(frame.layers, key), None, "{key}");
    }
    let encrypted = frame.text("falcon.encrypted").split(':').count();
    assert_eq!(encrypted, golden.packet.message_len() as usize - 4);
    let arguments = ["-o", "falcon.in_clear:TRUE"];
    let Some(open) = dissect_falcon("falcon_open", &datagrams(), &arguments) else { return };
    let frame = Frame { name: "open", layers: &open[0] };
    frame.check_numbers(&start_fields(&golden.packet));
}

/// The dissector and the decoder reject the same packets, and the script itself never fails.
#[test]
fn malformed_packets_are_marked() {
    let header = around()[0];
    let mut datagrams = Vec::new();
    let mut expected = Vec::new();
    for golden in all().iter().filter(|golden| golden.packet.payload_len < 16) {
        let whole = datagram(&header, &golden.packet);
        for len in (36..whole.len()).step_by(5) {
            let mut cut = whole[..len - 16].to_vec();
            cut.resize(len, 0);
            expected.push(codec::decode_datagram(&cut).is_err());
            datagrams.push(sent(cut, 0));
        }
        for at in 0..whole.len() - 16 {
            let mut wrong = whole.clone();
            wrong[at] ^= 0x25;
            let error = codec::decode_datagram(&wrong).err();
            // Packets of other protocols are not marked.
            if error != Some(WireError::NextHeader) {
                expected.push(error.is_some());
                datagrams.push(sent(wrong, 0));
            }
        }
    }
    let Some(dissected) = dissect_falcon("falcon_malformed", &datagrams, &[]) else { return };
    assert!(expected.iter().filter(|wrong| **wrong).count() > 100, "few packets are wrong");
    for (at, (layers, wrong)) in dissected.iter().zip(expected).enumerate() {
        let marked = find_key(layers, "falcon.malformed").is_some();
        assert_eq!(marked, wrong, "frame {}: {layers:#}", at + 1);
        assert_eq!(find_key(layers, "_ws.lua.error"), None, "frame {}: {layers:#}", at + 1);
        assert_eq!(find_key(layers, "_ws.malformed").is_some(), marked, "frame {}", at + 1);
    }
}
