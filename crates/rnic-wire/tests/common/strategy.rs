//! Strategies for every packet that a format can express and for every message, for property tests.

use proptest::prelude::*;

use rnic_base::{Psn, Serial};
use rnic_wire::{
    Aeth, AtomicOp, FasrReadFields, Format, Headers, LossCause, LossReportFields, NakCode, PackedPsn, Packet,
    PacketFlags, PlacementOp, Position, Qpn, Reth, SendPlacement, SendTail, Sink, Syndrome, WqeSn,
};

/// Any format.
pub fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(Format::ALL.to_vec())
}

/// A packet that `format` can express.
pub fn packet(format: Format) -> impl Strategy<Value = Packet> {
    let headers = match format {
        Format::RoceV2 | Format::Irn => reliable(format == Format::Irn).boxed(),
        Format::Fasr => {
            prop_oneof![9 => (reliable(true), any::<(u32, u32, u64)>()).prop_map(as_fasr), 1 => loss_ack()].boxed()
        }
        Format::UnreliableConnection => prop_oneof![send(false, false), write(false)].boxed(),
        Format::UnreliableDatagram => datagram().boxed(),
    };
    (headers, 2..=u32::MAX, any::<u32>(), flags(), any::<prop::sample::Index>()).prop_map(
        |(headers, qpn, psn, flags, len)| Packet {
            // Datagrams for queue pairs 0 and 1 are management datagrams.
            dest_qpn: Qpn::new(qpn | 2),
            psn: Psn::new(psn),
            flags,
            payload_len: payload_len(&headers, len),
            headers,
        },
    )
}

/// Headers of packets on reliable connections.
fn reliable(irn: bool) -> impl Strategy<Value = Headers> {
    prop_oneof![
        4 => send(irn, true),
        4 => write(irn),
        1 => (reth(), serial(irn)).prop_map(|(reth, read_sn)| Headers::ReadRequest { reth, read_sn, fasr: None }),
        2 => read_response(),
        2 => (any::<u64>(), any::<u32>(), atomic_op(), serial(irn))
            .prop_map(|(va, rkey, op, read_sn)| Headers::AtomicRequest {
                va,
                rkey,
                op,
                read_sn,
                expected_psn: PackedPsn::default(),
            }),
        1 => (any::<u64>(), any::<u32>(), placement_op(), serial(irn))
            .prop_map(|(va, rkey, op, read_sn)| Headers::PlacementRequest {
                va,
                rkey,
                op,
                read_sn,
                expected_psn: PackedPsn::default(),
            }),
        1 => (aeth(), any::<u64>()).prop_map(|(aeth, original)| Headers::AtomicResponse { aeth, original, sink: None }),
        3 => acknowledgement(irn),
        1 => Just(Headers::Cnp),
        2 => (prop_oneof![send(irn, true), write(irn)], any::<u32>()).prop_map(|(headers, srqn)| {
            headers.shared(Qpn::new(srqn)).unwrap_or(headers)
        }),
    ]
}

/// Adds the fields of FaSR to a packet's headers: no length in the middle of a Write, no SACK in a plain
/// acknowledgement, and the fields with which responses are packets of the responder's own.
fn as_fasr((headers, (number, stamp, offset)): (Headers, (u32, u32, u64))) -> Headers {
    let fasr = Some(FasrReadFields { expected_psn: Psn::new(number), stamp });
    let sink = Some(Sink { read_sn: WqeSn::new(number), offset });
    match headers {
        Headers::ReadRequest { reth, read_sn, .. } => Headers::ReadRequest { reth, read_sn, fasr },
        Headers::AtomicRequest { va, rkey, op, read_sn, .. } => {
            Headers::AtomicRequest { va, rkey, op, read_sn, expected_psn: Psn::new(number).into() }
        }
        Headers::PlacementRequest { va, rkey, op, read_sn, .. } => {
            Headers::PlacementRequest { va, rkey, op, read_sn, expected_psn: Psn::new(number).into() }
        }
        Headers::ReadResponse { position, aeth, .. } => Headers::ReadResponse { position, aeth, sink },
        Headers::AtomicResponse { aeth, original, .. } => Headers::AtomicResponse { aeth, original, sink },
        Headers::Write { position, reth: Some(reth), immediate: None, recv_sn } if !position.starts() => {
            Headers::Write { position, reth: Some(Reth { dma_len: 0, ..reth }), immediate: None, recv_sn }
        }
        Headers::Ack { aeth, .. } => Headers::Ack { aeth, sack: None },
        Headers::ReadAck { aeth, .. } | Headers::TrimNack { aeth, .. } => Headers::Ack { aeth, sack: None },
        Headers::Pull { .. } => Headers::Cnp,
        other => other,
    }
}

fn loss_ack() -> impl Strategy<Value = Headers> {
    let causes = prop::sample::select(vec![LossCause::OutOfOrder, LossCause::Repaired, LossCause::Misplaced]);
    (any::<(u32, u32, bool)>(), causes, 0..32u8, 0..8u8).prop_map(|((psn, msn, overflow), cause, credits, lost)| {
        let syndrome = match cause {
            LossCause::Repaired => Syndrome::Ack { credits },
            _ => Syndrome::Nak(NakCode::PsnSequenceError),
        };
        let report = LossReportFields { cause, psn: Psn::new(psn), lost, overflow };
        Headers::LossAck { aeth: Aeth { syndrome, msn: Serial::new(msn) }, report }
    })
}

fn datagram() -> impl Strategy<Value = Headers> {
    any::<(u32, u32, Option<u32>)>().prop_map(|(queue_key, qpn, immediate)| Headers::Datagram {
        queue_key,
        source_qpn: Qpn::new(qpn),
        immediate,
    })
}

/// A payload length that is legal for the packet; often short, so that every padding occurs.
fn payload_len(headers: &Headers, index: prop::sample::Index) -> u32 {
    let least = match &headers.unshared() {
        Headers::Send { position: Position::Only, .. }
        | Headers::Write { position: Position::Only, .. }
        | Headers::ReadResponse { position: Position::Only, .. }
        | Headers::Datagram { .. } => 0,
        Headers::Send { .. } | Headers::Write { .. } | Headers::ReadResponse { .. } => 1,
        _ => return 0,
    };
    let choice = index.index(20_000) as u32;
    if choice < 10_000 { least + choice % 64 } else { least + choice % (8192 - least + 1) }
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![Just(Position::First), Just(Position::Middle), Just(Position::Last), Just(Position::Only)]
}

fn flags() -> impl Strategy<Value = PacketFlags> {
    any::<[bool; 4]>().prop_map(|[solicited, ack_request, fecn, becn]| PacketFlags {
        solicited,
        ack_request,
        fecn,
        becn,
    })
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(va, rkey, dma_len)| Reth { va, rkey, dma_len })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let code = prop_oneof![
        Just(NakCode::PsnSequenceError),
        Just(NakCode::InvalidRequest),
        Just(NakCode::RemoteAccessError),
        Just(NakCode::RemoteOperationalError),
    ];
    let syndrome = prop_oneof![
        (0..32u8).prop_map(|credits| Syndrome::Ack { credits }),
        (0..32u8).prop_map(|timer| Syndrome::RnrNak { timer }),
        code.prop_map(Syndrome::Nak),
    ];
    (syndrome, any::<u32>()).prop_map(|(syndrome, msn)| Aeth { syndrome, msn: Serial::new(msn) })
}

/// A WQE sequence number when `present`.
fn serial(present: bool) -> impl Strategy<Value = Option<WqeSn>> {
    any::<u32>().prop_map(move |number| present.then_some(WqeSn::new(number)))
}

fn send(irn: bool, invalidates: bool) -> impl Strategy<Value = Headers> {
    let tail = prop_oneof![
        Just(SendTail::Plain),
        any::<u32>().prop_map(SendTail::Immediate),
        any::<u32>().prop_map(move |key| if invalidates { SendTail::Invalidate(key) } else { SendTail::Plain }),
    ];
    (position(), tail, any::<(u32, u32)>()).prop_map(move |(position, tail, (recv_sn, offset))| Headers::Send {
        position,
        tail: if position.ends() { tail } else { SendTail::Plain },
        placement: irn.then_some(SendPlacement { recv_sn: WqeSn::new(recv_sn), offset: Serial::new(offset) }),
    })
}

fn write(irn: bool) -> impl Strategy<Value = Headers> {
    (position(), reth(), any::<Option<u32>>(), any::<u32>()).prop_map(move |(position, reth, immediate, recv_sn)| {
        let immediate = immediate.filter(|_| position.ends());
        Headers::Write {
            position,
            reth: (irn || position.starts()).then_some(reth),
            immediate,
            recv_sn: (irn && immediate.is_some()).then_some(WqeSn::new(recv_sn)),
        }
    })
}

fn read_response() -> impl Strategy<Value = Headers> {
    (position(), aeth()).prop_map(|(position, aeth)| Headers::ReadResponse {
        position,
        aeth: (position != Position::Middle).then_some(aeth),
        sink: None,
    })
}

fn atomic_op() -> impl Strategy<Value = AtomicOp> {
    any::<(bool, u64, u64)>().prop_map(|(swaps, compare, value)| match swaps {
        true => AtomicOp::CompareSwap { compare, swap: value },
        false => AtomicOp::FetchAdd { add: value },
    })
}

fn placement_op() -> impl Strategy<Value = PlacementOp> {
    (any::<(bool, [u8; 8], u32)>(), 0..16u8, 0..4u8).prop_map(|((writes, value, len), placement, selectivity)| {
        match writes {
            true => PlacementOp::AtomicWrite { value },
            false => PlacementOp::Flush { len, placement, selectivity },
        }
    })
}

fn acknowledgement(irn: bool) -> impl Strategy<Value = Headers> {
    (any::<(bool, u8)>(), aeth(), any::<Option<u32>>()).prop_map(move |((read, choice), aeth, sack)| {
        let sack = sack.filter(|_| irn).map(Psn::new);
        match (irn, choice % 8, sack) {
            (true, 0, Some(trimmed)) => {
                let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), ..aeth };
                return Headers::TrimNack { aeth, trimmed, of_response: read };
            }
            (true, 1, Some(number)) => return Headers::Pull { granted: Serial::new(number.value()) },
            _ => {}
        }
        match read && irn {
            true => Headers::ReadAck { aeth, sack },
            false => Headers::Ack { aeth, sack },
        }
    })
}
