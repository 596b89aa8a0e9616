//! Strategies for every Falcon packet that can be encoded, for property tests.

use proptest::prelude::*;

use rnic_base::{Psn32, Serial};
use rnic_wire::falcon::rdma::{Operation, SinkTag, WriteTail};
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, Cid, Nack, NackCode, OutOfWindow, Packet, PacketType, ResyncCode, RnrTimer,
    Timestamp, Ulp, UlpProtocol, Window, WindowBases, nvme, psp, rdma,
};
use rnic_wire::{AtomicOp, Position, Qpn, Reth, SendTail};

/// A packet.
pub fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![6 => transaction(), 1 => resync(), 3 => acknowledgement()]
}

/// A PSP header; its timestamp is the packet's.
pub fn around() -> impl Strategy<Value = psp::Header> {
    (prop::sample::select(psp::Cipher::ALL.to_vec()), any::<(bool, bool, u32, u32, Option<u64>)>()).prop_map(
        |(cipher, (sample, drop, spi, salt, cookie))| {
            let iv = psp::Iv { salt, timestamp: Timestamp::default() };
            psp::Header { cipher, sample, drop, spi, iv, cookie }
        },
    )
}

/// The fields that every packet has.
fn start() -> impl Strategy<Value = Packet> {
    any::<(u32, u32, bool, u32, u32, u32)>().prop_map(|(cid, function, ack_request, data, request, timestamp)| Packet {
        cid: Cid::new(cid),
        function: function >> 8,
        protocol: UlpProtocol::None,
        ack_request,
        bases: WindowBases { data: Psn32::new(data), request: Psn32::new(request) },
        timestamp: Timestamp::new(timestamp),
        payload_len: 0,
        body: Body::Ack(Acknowledgement::default()),
    })
}

fn transaction() -> impl Strategy<Value = Packet> {
    let ulp = prop_oneof![3 => rdma_header().prop_map(Ulp::Rdma), 1 => nvme_header().prop_map(Ulp::Nvme)];
    (start(), ulp, any::<(u32, u32, u16)>(), any::<prop::sample::Index>()).prop_map(
        |(start, ulp, (psn, rsn, length), len)| {
            let (psn, rsn) = (Psn32::new(psn), Serial::new(rsn));
            let payload_len = payload_len(&ulp, len);
            let mut types = [PacketType::PullRequest, PacketType::PullData, PacketType::PushData];
            // An NVMe Read may be a Pull or two Pushes.
            types.rotate_left(rsn.value() as usize % 3);
            let body = match types.into_iter().find(|packet_type| ulp.may_be(*packet_type)) {
                Some(PacketType::PullRequest) => Body::PullRequest { psn, rsn, length, ulp },
                Some(PacketType::PullData) => Body::PullData { psn, rsn, ulp },
                _ => Body::PushData { psn, rsn, length: ulp.request_len(payload_len) as u16, ulp },
            };
            Packet { protocol: ulp.protocol(), payload_len, body, ..start }
        },
    )
}

/// A payload length that is legal for the packet; often short, so that every padding occurs.
fn payload_len(ulp: &Ulp, index: prop::sample::Index) -> u32 {
    let most = match ulp {
        Ulp::None => 0,
        Ulp::Rdma(header) if header.operation.has_payload() => 8192,
        Ulp::Rdma(_) => 0,
        Ulp::Nvme(header) => header.operation.payload_max(),
    };
    let choice = index.index(20_000) as u32;
    if choice < 10_000 { (choice % 64).min(most) } else { choice % (most + 1) }
}

fn rdma_header() -> impl Strategy<Value = rdma::Header> {
    let operation = prop_oneof![
        4 => send(),
        4 => write(),
        1 => (reth(), serial(), sink()).prop_map(|(reth, rmsn, sink)| Operation::ReadRequest { reth, rmsn, sink }),
        2 => (position(), sink()).prop_map(|(position, sink)| Operation::ReadResponse { position, sink }),
        2 => (any::<u64>(), any::<u32>(), atomic_op(), serial(), sink())
            .prop_map(|(va, rkey, op, rmsn, sink)| Operation::AtomicRequest { va, rkey, op, rmsn, sink }),
        1 => (any::<u64>(), sink()).prop_map(|(original, sink)| Operation::AtomicResponse { original, sink }),
        1 => any::<(u32, u32, Option<u32>)>().prop_map(|(queue_key, qpn, immediate)| Operation::Datagram {
            queue_key,
            source_qpn: Qpn::new(qpn),
            immediate,
        }),
    ];
    (any::<(u32, bool, bool)>(), serial(), operation).prop_map(
        |((qpn, solicited, complete_in_error), sn, operation)| rdma::Header {
            dest_qpn: Qpn::new(qpn),
            sn,
            solicited,
            complete_in_error,
            operation,
        },
    )
}

fn send() -> impl Strategy<Value = Operation> {
    let tail = prop_oneof![
        Just(SendTail::Plain),
        any::<u32>().prop_map(SendTail::Immediate),
        any::<u32>().prop_map(SendTail::Invalidate),
    ];
    (position(), tail, serial(), any::<u32>()).prop_map(|(position, tail, rmsn, offset)| Operation::Send {
        position,
        tail: if position.ends() { tail } else { SendTail::Plain },
        rmsn,
        offset,
    })
}

fn write() -> impl Strategy<Value = Operation> {
    (position(), reth(), serial(), any::<Option<u32>>()).prop_map(|(position, reth, rmsn, immediate)| {
        let tail = immediate.filter(|_| position.ends()).map(|immediate| WriteTail { rmsn, immediate });
        Operation::Write { position, reth, tail }
    })
}

fn nvme_header() -> impl Strategy<Value = nvme::Header> {
    use nvme::Operation;
    let base = any::<(u32, [bool; 3], u32, u32, u32, [u8; 2])>().prop_map(
        |(function, [data_invalid, split, second_group], target, initiator, command, [units_less_one, unit])| {
            nvme::Base {
                initiator_function: function >> 8,
                data_invalid,
                split,
                second_group,
                target_tag: target >> 8,
                initiator_tag: initiator >> 8,
                command: command >> 8,
                units_less_one,
                unit,
            }
        },
    );
    let operation = prop_oneof![
        (command(), 0..16u8, any::<u16>()).prop_map(|(command, kind, specific)| Operation::WriteRequest {
            command,
            directive: nvme::Directive { kind, specific },
        }),
        Just(Operation::WriteDataRequest),
        Just(Operation::WriteData),
        (0..0x8000u16).prop_map(|status| Operation::WriteCompletion { status }),
        command().prop_map(|command| Operation::ReadRequest { command }),
        (0..0x8000u16).prop_map(|status| Operation::ReadResponse { status }),
    ];
    (base, operation).prop_map(|(base, operation)| nvme::Header { base, operation })
}

fn command() -> impl Strategy<Value = nvme::Command> {
    any::<([u16; 5], u64, u32, [bool; 2], [u8; 3])>().prop_map(|(halves, slba, reference_tag, flags, bytes)| {
        nvme::Command {
            initiator_nsid: halves[0],
            target_nsid: halves[1],
            slba,
            blocks: halves[2],
            protection: bytes[0] >> 4,
            force_unit_access: flags[0],
            limited_retry: flags[1],
            dataset: bytes[1],
            reference_tag,
            application_mask: halves[3],
            application_tag: halves[4],
            target_queue: bytes[2],
        }
    })
}

fn resync() -> impl Strategy<Value = Packet> {
    let of = prop::sample::select(vec![PacketType::PullRequest, PacketType::PullData, PacketType::PushData]);
    let protocol = prop::sample::select(vec![UlpProtocol::Rdma, UlpProtocol::Nvme]);
    let code = prop::sample::select(ResyncCode::ALL.to_vec());
    (start(), of, protocol, code, any::<(u32, u32, u32)>()).prop_map(
        |(start, of, protocol, code, (psn, rsn, vendor))| {
            let (psn, rsn) = (Psn32::new(psn), Serial::new(rsn));
            Packet { protocol, body: Body::Resync { psn, rsn, code, of, vendor }, ..start }
        },
    )
}

fn acknowledgement() -> impl Strategy<Value = Packet> {
    let measured = (any::<(u32, u32)>(), 0..16u8, 0..32u8, 0..0x4000u16, any::<u32>());
    let refusal = (any::<u32>(), prop::sample::select(Window::ALL.to_vec()), nack_code());
    let bitmaps = any::<(u128, u128, u64)>().prop_map(|(data_acked, data_received, request_received)| Bitmaps {
        data_acked,
        data_received,
        request_received,
    });
    (start(), measured, any::<[bool; 2]>(), bitmaps, refusal, 0..3u8).prop_map(
        |(start, ((t1, t2), hops, rx_level, ecn, metadata), [data, request], bitmaps, (psn, window, code), kind)| {
            let (t1, t2) = (Timestamp::new(t1), Timestamp::new(t2));
            let out_of_window = OutOfWindow { data, request };
            let ack = Acknowledgement { t1, t2, hops, rx_level, ecn, metadata: metadata >> 10, out_of_window };
            let (metadata, psn) = (metadata >> 8, Psn32::new(psn));
            let body = match kind {
                0 => Body::Ack(ack),
                1 => Body::ExtendedAck(ack, bitmaps),
                _ => Body::Nack(Nack { t1, t2, hops, rx_level, ecn, metadata, psn, window, code }),
            };
            Packet { function: 0, ack_request: false, body, ..start }
        },
    )
}

fn nack_code() -> impl Strategy<Value = NackCode> {
    prop_oneof![
        Just(NackCode::Resource),
        (0..32u8).prop_map(|code| NackCode::NotReady { timeout: RnrTimer::from_code(code) }),
        Just(NackCode::Xlr),
        any::<u8>().prop_map(|ulp| NackCode::CompleteInError { ulp }),
        any::<u8>().prop_map(|ulp| NackCode::NonRecoverable { ulp }),
        Just(NackCode::InvalidCid),
    ]
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![Just(Position::First), Just(Position::Middle), Just(Position::Last), Just(Position::Only)]
}

fn serial() -> impl Strategy<Value = Serial<32>> {
    any::<u32>().prop_map(Serial::new)
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(va, rkey, dma_len)| Reth { va, rkey, dma_len })
}

fn sink() -> impl Strategy<Value = SinkTag> {
    any::<(u64, u32)>().prop_map(|(va, lkey)| SinkTag { va, lkey })
}

fn atomic_op() -> impl Strategy<Value = AtomicOp> {
    any::<(bool, u64, u64)>().prop_map(|(swaps, compare, value)| match swaps {
        true => AtomicOp::CompareSwap { compare, swap: value },
        false => AtomicOp::FetchAdd { add: value },
    })
}
