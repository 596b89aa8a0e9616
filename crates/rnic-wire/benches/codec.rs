//! The cost of encoding and decoding a packet's headers and of computing its length, all of which happen for every
//! packet.
//!
//! Results are passed to the harness by reference: passing them by value would add a copy of a result that was just
//! written in small pieces, which costs more than the measured work.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

use rnic_base::{Psn, Psn32, Serial};
use rnic_wire::falcon::rdma::{Header, Operation, Sn};
use rnic_wire::falcon::{
    self, Acknowledgement, Bitmaps, Body, Cid, Encapsulation, Rsn, Timestamp, Ulp, UlpProtocol, WindowBases,
};
use rnic_wire::{
    Aeth, Format, HEADERS_MAX, Headers, IpVersion, Packet, PacketFlags, Position, Qpn, Reth, SendPlacement, SendTail,
    Syndrome, WqeSn, codec,
};

fn packet(payload_len: u32, headers: Headers) -> Packet {
    let flags = PacketFlags { ack_request: true, ..PacketFlags::default() };
    Packet { dest_qpn: Qpn::new(0x1234), psn: Psn::new(0xab_cdef), flags, payload_len, headers }
}

fn packets() -> Vec<(&'static str, Format, Packet)> {
    let reth = Reth { va: 0x7f00_1234_5678, rkey: 0x0102_0304, dma_len: 65_536 };
    let write = |position, reth| Headers::Write { position, reth, immediate: None, recv_sn: None };
    let ack = Headers::Ack { aeth: Aeth { syndrome: Syndrome::ACK, msn: Serial::new(5) }, sack: None };
    let placement = Some(SendPlacement { recv_sn: WqeSn::new(3), offset: Serial::new(4) });
    let send = Headers::Send { position: Position::Only, tail: SendTail::Plain, placement };
    vec![
        ("roce write first", Format::RoceV2, packet(1024, write(Position::First, Some(reth)))),
        ("roce write middle", Format::RoceV2, packet(1024, write(Position::Middle, None))),
        ("roce ack", Format::RoceV2, packet(0, ack)),
        ("irn write middle", Format::Irn, packet(1024, write(Position::Middle, Some(reth)))),
        ("irn send only", Format::Irn, packet(8, send)),
        ("irn ack", Format::Irn, packet(0, ack)),
    ]
}

fn codecs(criterion: &mut Criterion) {
    for (name, format, packet) in packets() {
        criterion.bench_function(&format!("encode/{name}"), |bencher| {
            let mut out = [0; HEADERS_MAX];
            bencher.iter(|| {
                let _ = black_box(&codec::encode_headers(format, black_box(&packet), &mut out));
                black_box(&out);
            });
        });
        let mut headers = [0; HEADERS_MAX];
        let len = codec::encode_headers(format, &packet, &mut headers).expect("a legal packet");
        let mut datagram = headers[..len].to_vec();
        datagram.resize(packet.udp_payload_len(format) as usize, 0);
        criterion.bench_function(&format!("decode/{name}"), |bencher| {
            bencher.iter(|| {
                let _ = black_box(&codec::decode(black_box(&datagram)));
            });
        });
        criterion.bench_function(&format!("length/{name}"), |bencher| {
            bencher.iter(|| black_box(&packet).link_len(black_box(format), IpVersion::V4));
        });
    }
}

fn falcon_packets() -> Vec<(&'static str, falcon::Packet)> {
    let packet = |protocol, payload_len, body| falcon::Packet {
        cid: Cid::new(0x1234),
        function: 0,
        protocol,
        ack_request: false,
        bases: WindowBases::default(),
        timestamp: Timestamp::new(7),
        payload_len,
        body,
    };
    let reth = Reth { va: 0x7f00_1234_5678, rkey: 0x0102_0304, dma_len: 65_536 };
    let operation = Operation::Write { position: Position::Middle, reth, tail: None };
    let dest_qpn = Qpn::new(0x1234);
    let header = Header { dest_qpn, sn: Sn::new(9), solicited: false, complete_in_error: false, operation };
    let ulp = Ulp::Rdma(header);
    let length = ulp.request_len(1024) as u16;
    let push = Body::PushData { psn: Psn32::new(5), rsn: Rsn::new(6), length, ulp };
    let ack = Acknowledgement::default();
    let bitmaps = Bitmaps { data_acked: 0b1010, data_received: 0b1110, request_received: 0 };
    vec![
        ("falcon write middle", packet(UlpProtocol::Rdma, 1024, push)),
        ("falcon back", packet(UlpProtocol::None, 0, Body::Ack(ack))),
        ("falcon eack", packet(UlpProtocol::None, 0, Body::ExtendedAck(ack, bitmaps))),
    ]
}

fn falcon_codecs(criterion: &mut Criterion) {
    for (name, packet) in falcon_packets() {
        let mut headers = [0; falcon::HEADERS_MAX];
        criterion.bench_function(&format!("encode/{name}"), |bencher| {
            bencher.iter(|| {
                let _ = black_box(&falcon::codec::encode_headers(black_box(&packet), &mut headers));
                black_box(&headers);
            });
        });
        let len = falcon::codec::encode_headers(&packet, &mut headers).expect("a legal packet");
        let mut message = headers[..len].to_vec();
        message.resize(packet.message_len() as usize, 0);
        criterion.bench_function(&format!("decode/{name}"), |bencher| {
            bencher.iter(|| {
                let _ = black_box(&falcon::codec::decode(black_box(&message), packet.timestamp));
            });
        });
        criterion.bench_function(&format!("length/{name}"), |bencher| {
            bencher.iter(|| black_box(&packet).link_len(black_box(Encapsulation::IPV6)));
        });
    }
}

criterion_group!(benches, codecs, falcon_codecs);
criterion_main!(benches);
