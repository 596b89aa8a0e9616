//! One Falcon packet for every type, opcode and NACK code, and the header bytes that `tests/golden/falcon.txt` gives
//! it.

use rnic_base::Psn32;
use rnic_wire::falcon::rdma::{Operation, Rmsn, SinkTag, Sn, WriteTail};
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, Cid, Nack, NackCode, OutOfWindow, Packet, PacketType, ResyncCode, RnrTimer, Rsn,
    Timestamp, Ulp, UlpProtocol, Window, WindowBases, nvme, psp, rdma,
};
use rnic_wire::{AtomicOp, Position, Qpn, Reth, SendTail};

use super::golden::{sections, unhex};

/// A packet and its headers' bytes.
pub struct Golden {
    pub name: &'static str,
    pub packet: Packet,
    pub bytes: Vec<u8>,
}

/// Every golden packet, in the order of the file.
pub fn all() -> Vec<Golden> {
    let vectors = sections(include_str!("../golden/falcon.txt"));
    let packets: Vec<Named> =
        [sends(), writes(), reads(), datagrams(), storage(), resyncs(), acknowledgements(), nacks()].concat();
    assert_eq!(vectors.len(), packets.len(), "a packet without bytes or bytes without a packet");
    let golden = |(name, hex): (&'static str, String)| {
        let known = packets.iter().find(|(known, _)| *known == name);
        let (_, packet) = known.unwrap_or_else(|| panic!("no packet is called {name}"));
        Golden { name, packet: *packet, bytes: unhex(&hex) }
    };
    vectors.into_iter().map(golden).collect()
}

/// Returns PSP headers to put around packets: one without a key, and one with a key and its fields.
pub fn around() -> [psp::Header; 2] {
    let open = psp::Header { cipher: psp::Cipher::Gmac128, ..psp::Header::default() };
    let iv = psp::Iv { salt: 0x0102_0304, timestamp: Timestamp::new(0) };
    [open, psp::Header { cipher: psp::Cipher::Gmac256, spi: 0x8765_4321, iv, cookie: Some(0xc0ff_ee00), ..open }]
}

/// The PSN that is acknowledged, resent or refused in the golden packets.
pub const PSN: Psn32 = Psn32::new(0x1112_1314);
const RSN: Rsn = Rsn::new(0x2122_2324);
const RMSN: Rmsn = Rmsn::new(0x5152_5354);
const RETH: Reth = Reth { va: 0x0011_2233_4455_6677, rkey: KEY, dma_len: 0x0001_0203 };
const SINK: SinkTag = SinkTag { va: 0x7071_7273_7475_7677, lkey: 0x7879_7a7b };
const ATOMIC_VA: u64 = 0x0011_2233_4455_6670;
const IMMEDIATE: u32 = 0xc0de_cafe;
const KEY: u32 = 0x8899_aabb;

type Named = (&'static str, Packet);

/// A packet of RDMA.
fn packet(payload_len: u32, body: Body) -> Packet {
    Packet {
        cid: Cid::new(0x12_3456),
        function: 0x0a_0b0c,
        protocol: UlpProtocol::Rdma,
        ack_request: false,
        bases: WindowBases { data: Psn32::new(0x0102_0304), request: Psn32::new(0x0506_0708) },
        timestamp: Timestamp::new(0x3132_3334),
        payload_len,
        body,
    }
}

fn asking(packet: Packet) -> Packet {
    Packet { ack_request: true, ..packet }
}

fn header(operation: Operation) -> rdma::Header {
    rdma::Header {
        dest_qpn: Qpn::new(0x65_4321),
        sn: Sn::new(0x4142_4344),
        solicited: false,
        complete_in_error: false,
        operation,
    }
}

fn push(payload_len: u32, length: u16, header: rdma::Header) -> Packet {
    packet(payload_len, Body::PushData { psn: PSN, rsn: RSN, length, ulp: Ulp::Rdma(header) })
}

fn pull(length: u16, operation: Operation) -> Packet {
    packet(0, Body::PullRequest { psn: PSN, rsn: RSN, length, ulp: Ulp::Rdma(header(operation)) })
}

fn data(payload_len: u32, header: rdma::Header) -> Packet {
    packet(payload_len, Body::PullData { psn: PSN, rsn: RSN, ulp: Ulp::Rdma(header) })
}

fn sends() -> Vec<Named> {
    use Position::{First, Last, Middle, Only};
    let send = |position, tail| header(Operation::Send { position, tail, rmsn: RMSN, offset: 0x1_0000 });
    let immediate = SendTail::Immediate(IMMEDIATE);
    let invalidate = SendTail::Invalidate(KEY);
    let solicited = rdma::Header { solicited: true, ..send(Last, immediate) };
    let in_error = rdma::Header { complete_in_error: true, ..send(Only, invalidate) };
    vec![
        ("SEND first", push(256, 276, send(First, SendTail::Plain))),
        ("SEND middle", push(256, 276, send(Middle, SendTail::Plain))),
        ("SEND last", asking(push(5, 28, send(Last, SendTail::Plain)))),
        ("SEND last with immediate", push(6, 32, solicited)),
        ("SEND only", push(7, 28, send(Only, SendTail::Plain))),
        ("SEND only with immediate", push(0, 24, send(Only, immediate))),
        ("SEND last with invalidate", push(8, 32, send(Last, invalidate))),
        ("SEND only with invalidate", push(8, 32, in_error)),
    ]
}

fn writes() -> Vec<Named> {
    use Position::{First, Last, Middle, Only};
    let write = |position, tail| header(Operation::Write { position, reth: RETH, tail });
    let tail = Some(WriteTail { rmsn: RMSN, immediate: IMMEDIATE });
    vec![
        ("RDMA WRITE first", push(4096, 4124, write(First, None))),
        ("RDMA WRITE middle", push(4096, 4124, write(Middle, None))),
        ("RDMA WRITE last", asking(push(3, 32, write(Last, None)))),
        ("RDMA WRITE last with immediate", push(4, 40, write(Last, tail))),
        ("RDMA WRITE only", push(1, 32, write(Only, None))),
        ("RDMA WRITE only with immediate", push(2, 40, write(Only, tail))),
    ]
}

fn reads() -> Vec<Named> {
    use Position::{First, Last, Middle, Only};
    let response = |position| header(Operation::ReadResponse { position, sink: SINK });
    let in_error = rdma::Header { complete_in_error: true, ..response(Only) };
    let atomic = |op| Operation::AtomicRequest { va: ATOMIC_VA, rkey: KEY, op, rmsn: RMSN, sink: SINK };
    let swap = AtomicOp::CompareSwap { compare: 0x1011_1213_1415_1617, swap: 0x2021_2223_2425_2627 };
    let original = Operation::AtomicResponse { original: 0x6061_6263_6465_6667, sink: SINK };
    vec![
        ("RDMA READ request", asking(pull(4120, Operation::ReadRequest { reth: RETH, rmsn: RMSN, sink: SINK }))),
        ("RDMA READ response first", data(256, response(First))),
        ("RDMA READ response middle", data(256, response(Middle))),
        ("RDMA READ response last", data(9, response(Last))),
        ("RDMA READ response only", data(0, in_error)),
        ("ATOMIC response", data(0, header(original))),
        ("ATOMIC compare and swap", pull(32, atomic(swap))),
        ("ATOMIC fetch and add", pull(32, atomic(AtomicOp::FetchAdd { add: 0x3031_3233_3435_3637 }))),
    ]
}

fn datagrams() -> Vec<Named> {
    let datagram = |immediate| {
        let source_qpn = Qpn::new(0x0a_bcde);
        header(Operation::Datagram { queue_key: 0x1122_3344, source_qpn, immediate })
    };
    let solicited = rdma::Header { solicited: true, ..datagram(Some(IMMEDIATE)) };
    vec![("UD SEND only", push(7, 28, datagram(None))), ("UD SEND only with immediate", push(12, 36, solicited))]
}

fn storage() -> Vec<Named> {
    use nvme::Operation;
    let base = nvme::Base {
        initiator_function: 0x0d_0e0f,
        target_tag: 0x31_3233,
        initiator_tag: 0x34_3536,
        command: 0x37_3839,
        units_less_one: 7,
        unit: 2,
        ..nvme::Base::default()
    };
    let split = nvme::Base { split: true, ..base };
    let command = nvme::Command {
        initiator_nsid: 0x4142,
        target_nsid: 0x4344,
        slba: 0x5152_5354_5556_5758,
        blocks: 0x595a,
        protection: 5,
        force_unit_access: false,
        limited_retry: true,
        dataset: 0x61,
        reference_tag: 0x6465_6667,
        application_mask: 0x6869,
        application_tag: 0x6a6b,
        target_queue: 0x6c,
    };
    let write = Operation::WriteRequest {
        command: nvme::Command { protection: 10, force_unit_access: true, ..command },
        directive: nvme::Directive { kind: 5, specific: 0x6263 },
    };
    let ulp = |base, operation| Ulp::Nvme(nvme::Header { base, operation });
    let of = |payload_len, body| Packet { protocol: UlpProtocol::Nvme, ..packet(payload_len, body) };
    let push = |len, length, ulp| of(len, Body::PushData { psn: PSN, rsn: RSN, length, ulp });
    let wanted = ulp(base, Operation::WriteDataRequest);
    let fetched = ulp(nvme::Base { data_invalid: true, ..base }, Operation::WriteData);
    vec![
        ("NVMe Write Request", push(0, 64, ulp(nvme::Base { second_group: true, ..split }, write))),
        ("NVMe Write Data Request", of(0, Body::PullRequest { psn: PSN, rsn: RSN, length: 4128, ulp: wanted })),
        ("NVMe Write Data", of(4096, Body::PullData { psn: PSN, rsn: RSN, ulp: fetched })),
        ("NVMe Write Completion", push(0, 36, ulp(base, Operation::WriteCompletion { status: 0x7abc }))),
        ("NVMe Read Request", asking(push(0, 64, ulp(split, Operation::ReadRequest { command })))),
        ("NVMe Read Response", push(4224, 4260, ulp(base, Operation::ReadResponse { status: 0 }))),
    ]
}

fn resyncs() -> Vec<Named> {
    let resync = |code, of, vendor| packet(0, Body::Resync { psn: PSN, rsn: RSN, code, of, vendor });
    let of_pull = resync(ResyncCode::TransactionTimeout, PacketType::PullRequest, 0);
    vec![
        ("Resync of Push Data", resync(ResyncCode::RetransmissionExhausted, PacketType::PushData, 0xdead_beef)),
        ("Resync of a Pull Request", Packet { protocol: UlpProtocol::Nvme, ..asking(of_pull) }),
        ("Resync of Pull Data", resync(ResyncCode::TargetInvalidCid, PacketType::PullData, 0)),
    ]
}

fn bare(body: Body) -> Packet {
    Packet { function: 0, protocol: UlpProtocol::None, ..packet(0, body) }
}

fn acknowledgements() -> Vec<Named> {
    let ack = |data, request| Acknowledgement {
        t1: Timestamp::new(0x8182_8384),
        t2: Timestamp::new(0x9192_9394),
        hops: 5,
        rx_level: 21,
        ecn: 0x2abc,
        metadata: 0x2a_bcde,
        out_of_window: OutOfWindow { data, request },
    };
    let bitmaps = Bitmaps {
        data_acked: 1 << 127 | 0xe,
        data_received: 1 << 127 | 1 << 32 | 0x3_ffae,
        request_received: 1 << 63 | 1,
    };
    vec![("BACK", bare(Body::Ack(ack(false, true)))), ("EACK", bare(Body::ExtendedAck(ack(true, false), bitmaps)))]
}

fn nacks() -> Vec<Named> {
    let nack = |window, code| {
        bare(Body::Nack(Nack {
            t1: Timestamp::new(0x8182_8384),
            t2: Timestamp::new(0x9192_9394),
            hops: 5,
            rx_level: 21,
            ecn: 0x2abc,
            metadata: 0xab_cdef,
            psn: PSN,
            window,
            code,
        }))
    };
    let timeout = RnrTimer::from_code(19);
    vec![
        ("NACK for lack of resources", nack(Window::Data, NackCode::Resource)),
        ("NACK, receiver not ready", nack(Window::Data, NackCode::NotReady { timeout })),
        ("NACK for an xLR", nack(Window::Request, NackCode::Xlr)),
        ("NACK, complete in error", nack(Window::Data, NackCode::CompleteInError { ulp: 0x77 })),
        ("NACK, not recoverable", nack(Window::Data, NackCode::NonRecoverable { ulp: 0x78 })),
        ("NACK, connection not expected", nack(Window::Request, NackCode::InvalidCid)),
    ]
}
