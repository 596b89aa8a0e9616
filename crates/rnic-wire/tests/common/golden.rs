//! One packet for every opcode of each format, and the header bytes that `tests/golden/*.txt` gives it.

use rnic_base::{Psn, Serial};
use rnic_wire::{
    Aeth, AtomicOp, FasrReadFields, Format, Headers, LossCause, LossReportFields, NakCode, PackedPsn, Packet,
    PacketFlags, PlacementOp, Position, Qpn, Reth, SendPlacement, SendTail, Sink, Syndrome, WqeSn,
};

/// A packet and its headers' bytes.
pub struct Golden {
    pub name: &'static str,
    pub format: Format,
    pub packet: Packet,
    pub bytes: Vec<u8>,
}

/// Every golden packet of every format.
pub fn all() -> Vec<Golden> {
    Format::ALL.into_iter().flat_map(of_format).collect()
}

/// Every golden packet of one format, in the order of its file.
pub fn of_format(format: Format) -> Vec<Golden> {
    let vectors = sections(match format {
        Format::RoceV2 => include_str!("../golden/roce.txt"),
        Format::Irn => include_str!("../golden/irn.txt"),
        Format::Fasr => include_str!("../golden/fasr.txt"),
        Format::UnreliableConnection => include_str!("../golden/unreliable_connection.txt"),
        Format::UnreliableDatagram => include_str!("../golden/unreliable_datagram.txt"),
    });
    let lists = match format {
        Format::RoceV2 | Format::Irn | Format::Fasr => {
            vec![sends(format), writes(format), invalidating(format), reads(format), atomics(format), acks(format)]
        }
        Format::UnreliableConnection => vec![sends(format), writes(format)],
        Format::UnreliableDatagram => vec![datagrams()],
    };
    let packets: Vec<(&str, Packet)> = lists.into_iter().flatten().collect();
    assert_eq!(vectors.len(), packets.len(), "{format:?}: a packet without bytes or bytes without a packet");
    let golden = |(name, hex): (&'static str, String)| {
        let known = packets.iter().find(|(known, _)| *known == name);
        let (_, packet) = known.unwrap_or_else(|| panic!("{format:?} has no packet called {name}"));
        Golden { name, format, packet: *packet, bytes: unhex(&hex) }
    };
    vectors.into_iter().map(golden).collect()
}

/// The sections of a file of golden bytes, by name: hexadecimal text without comments.
pub fn sections(text: &'static str) -> Vec<(&'static str, String)> {
    let mut sections: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("== "), sections.last_mut()) {
            (Some(name), _) => sections.push((name, String::new())),
            (None, Some((_, hex))) => hex.push_str(line.split('#').next().unwrap_or("")),
            (None, None) => assert!(line.is_empty() || line.starts_with('#'), "before the first name: {line}"),
        }
    }
    sections
}

/// Converts hexadecimal text to bytes; ignores white space.
pub fn unhex(hex: &str) -> Vec<u8> {
    let digit = |character: char| character.to_digit(16).unwrap_or_else(|| panic!("{character:?} in {hex}"));
    let digits: Vec<u32> = hex.chars().filter(|character| !character.is_whitespace()).map(digit).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {hex}");
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

const RETH: Reth = Reth { va: 0x0011_2233_4455_6677, rkey: KEY, dma_len: 0x0001_0203 };
const ATOMIC_VA: u64 = 0x0011_2233_4455_6670;
const IMMEDIATE: u32 = 0xc0de_cafe;
const KEY: u32 = 0x8899_aabb;
const PLACEMENT: SendPlacement = SendPlacement { recv_sn: WqeSn::new(0x01_0203), offset: Serial::new(0x04_0506) };
const ASKED: FasrReadFields = FasrReadFields { expected_psn: Psn::new(0x0d_0e0f), stamp: 0x1718_191a };
const SINK: Sink = Sink { read_sn: SN, offset: 0x5051_5253_5455_5657 };
const SN: WqeSn = WqeSn::new(0x0a_0b0c);
const ACK: Aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(0x00_0102) };
const COMPARE_SWAP: AtomicOp = AtomicOp::CompareSwap { compare: 0x1011_1213_1415_1617, swap: 0x2021_2223_2425_2627 };
const FLUSH: PlacementOp = PlacementOp::Flush { len: RETH.dma_len, placement: 2, selectivity: 1 };
const ATOMIC_WRITE: PlacementOp = PlacementOp::AtomicWrite { value: [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17] };
const FETCH_ADD: AtomicOp = AtomicOp::FetchAdd { add: 0x3031_3233_3435_3637 };

type Named = (&'static str, Packet);

fn packet(payload_len: u32, headers: Headers) -> Packet {
    let flags = PacketFlags::default();
    Packet { dest_qpn: Qpn::new(0x12_3456), psn: Psn::new(0xab_cdef), flags, payload_len, headers }
}

/// A packet that asks for an acknowledgement.
fn asking(payload_len: u32, headers: Headers) -> Packet {
    Packet { flags: PacketFlags { ack_request: true, ..PacketFlags::default() }, ..packet(payload_len, headers) }
}

/// A packet that asks for an acknowledgement and an event.
fn solicited(payload_len: u32, headers: Headers) -> Packet {
    let flags = PacketFlags { solicited: true, ack_request: true, ..PacketFlags::default() };
    Packet { flags, ..packet(payload_len, headers) }
}

fn sends(format: Format) -> Vec<Named> {
    use Position::{First, Last, Middle, Only};
    let placement = format.allows_independent_placement().then_some(PLACEMENT);
    let send = |position, tail| Headers::Send { position, tail, placement };
    vec![
        ("SEND first", packet(256, send(First, SendTail::Plain))),
        ("SEND middle", packet(256, send(Middle, SendTail::Plain))),
        ("SEND last", asking(5, send(Last, SendTail::Plain))),
        ("SEND last with immediate", solicited(6, send(Last, SendTail::Immediate(IMMEDIATE)))),
        ("SEND only", packet(7, send(Only, SendTail::Plain))),
        ("SEND only with immediate", packet(0, send(Only, SendTail::Immediate(IMMEDIATE)))),
    ]
}

/// Packets that only reliable connections have.
fn invalidating(format: Format) -> Vec<Named> {
    let placement = format.allows_independent_placement().then_some(PLACEMENT);
    let send = |position| packet(8, Headers::Send { position, tail: SendTail::Invalidate(KEY), placement });
    vec![("SEND last with invalidate", send(Position::Last)), ("SEND only with invalidate", send(Position::Only))]
}

fn datagrams() -> Vec<Named> {
    let datagram = |immediate| {
        let source_qpn = Qpn::new(0x65_4321);
        Headers::Datagram { queue_key: 0x1122_3344, source_qpn, immediate }
    };
    vec![
        ("SEND only", packet(7, datagram(None))),
        ("SEND only with immediate", solicited(12, datagram(Some(IMMEDIATE)))),
    ]
}

fn writes(format: Format) -> Vec<Named> {
    use Position::{First, Last, Middle, Only};
    let alone = format.allows_independent_placement();
    let short = |position: Position, immediate: Option<u32>| {
        format == Format::Fasr && !position.starts() && immediate.is_none()
    };
    let write = |position: Position, immediate: Option<u32>| Headers::Write {
        position,
        reth: (alone || position.starts()).then_some(match short(position, immediate) {
            true => Reth { dma_len: 0, ..RETH },
            false => RETH,
        }),
        immediate,
        recv_sn: immediate.filter(|_| alone).map(|_| SN),
    };
    vec![
        ("RDMA WRITE first", packet(256, write(First, None))),
        ("RDMA WRITE middle", packet(256, write(Middle, None))),
        ("RDMA WRITE last", asking(3, write(Last, None))),
        ("RDMA WRITE last with immediate", packet(4, write(Last, Some(IMMEDIATE)))),
        ("RDMA WRITE only", packet(1, write(Only, None))),
        ("RDMA WRITE only with immediate", packet(2, write(Only, Some(IMMEDIATE)))),
    ]
}

fn reads(format: Format) -> Vec<Named> {
    use Position::{First, Last, Middle, Only};
    let read_sn = format.allows_independent_placement().then_some(SN);
    let response = |position| Headers::ReadResponse {
        position,
        aeth: (position != Middle).then_some(ACK),
        sink: (format == Format::Fasr).then_some(SINK),
    };
    let fasr = (format == Format::Fasr).then_some(ASKED);
    vec![
        ("RDMA READ request", packet(0, Headers::ReadRequest { reth: RETH, read_sn, fasr })),
        ("RDMA READ response first", packet(256, response(First))),
        ("RDMA READ response middle", packet(256, response(Middle))),
        ("RDMA READ response last", packet(9, response(Last))),
        ("RDMA READ response only", packet(10, response(Only))),
    ]
}

fn atomics(format: Format) -> Vec<Named> {
    let read_sn = format.allows_independent_placement().then_some(SN);
    let fasr = format == Format::Fasr;
    let expected_psn = if fasr { ASKED.expected_psn.into() } else { PackedPsn::default() };
    let request = |op| Headers::AtomicRequest { va: ATOMIC_VA, rkey: KEY, op, read_sn, expected_psn };
    let placement = |va, op| Headers::PlacementRequest { va, rkey: KEY, op, read_sn, expected_psn };
    let response = Headers::AtomicResponse { aeth: ACK, original: 0x4041_4243_4445_4647, sink: fasr.then_some(SINK) };
    vec![
        ("ATOMIC acknowledge", packet(0, response)),
        ("COMPARE SWAP", packet(0, request(COMPARE_SWAP))),
        ("FETCH ADD", packet(0, request(FETCH_ADD))),
        ("FLUSH", packet(0, placement(RETH.va, FLUSH))),
        ("ATOMIC WRITE", packet(0, placement(ATOMIC_VA, ATOMIC_WRITE))),
    ]
}

fn acks(format: Format) -> Vec<Named> {
    let congested = PacketFlags { becn: true, ..PacketFlags::default() };
    let cnp = ("CNP", Packet { flags: congested, ..packet(0, Headers::Cnp) });
    let ack = |syndrome| packet(0, Headers::Ack { aeth: Aeth { syndrome, ..ACK }, sack: None });
    let missing = Syndrome::Nak(NakCode::PsnSequenceError);
    if format == Format::RoceV2 {
        return vec![
            ("ACK", ack(Syndrome::ACK)),
            ("ACK with credits", ack(Syndrome::Ack { credits: 5 })),
            ("RNR NAK", ack(Syndrome::RnrNak { timer: 14 })),
            ("NAK sequence", ack(missing)),
            ("NAK invalid", ack(Syndrome::Nak(NakCode::InvalidRequest))),
            ("NAK access", ack(Syndrome::Nak(NakCode::RemoteAccessError))),
            ("NAK operation", ack(Syndrome::Nak(NakCode::RemoteOperationalError))),
            cnp,
        ];
    }
    let sack = Some(Psn::new(0xab_cdf7));
    let nack = Aeth { syndrome: missing, ..ACK };
    if format == Format::Fasr {
        let loss = |cause, lost, overflow, syndrome| {
            let report = LossReportFields { cause, psn: Psn::new(0xab_cdf7), lost, overflow };
            packet(0, Headers::LossAck { aeth: Aeth { syndrome, ..ACK }, report })
        };
        return vec![
            ("ACK", ack(Syndrome::ACK)),
            ("SACK", loss(LossCause::OutOfOrder, 2, false, missing)),
            ("SACK after an overflow", loss(LossCause::OutOfOrder, 7, true, missing)),
            ("AACK", loss(LossCause::Repaired, 1, false, Syndrome::ACK)),
            ("FNACK", loss(LossCause::Misplaced, 3, false, missing)),
            ("NAK sequence", ack(missing)),
            ("RNR NAK", ack(Syndrome::RnrNak { timer: 14 })),
            cnp,
        ];
    }
    let trim_nack = |aeth, of_response| Headers::TrimNack { aeth, trimmed: Psn::new(0xab_cdf7), of_response };
    let write = Headers::Write { position: Position::Middle, reth: Some(RETH), immediate: None, recv_sn: None };
    let trimmed = packet(256, write).trimmed(format);
    let (read_ack, read_nack) = (Aeth { msn: Serial::new(0), ..ACK }, Aeth { msn: Serial::new(0), ..nack });
    vec![
        ("ACK", ack(Syndrome::ACK)),
        ("NACK", packet(0, Headers::Ack { aeth: nack, sack })),
        ("RNR NAK", ack(Syndrome::RnrNak { timer: 14 })),
        ("read ACK", packet(0, Headers::ReadAck { aeth: read_ack, sack: None })),
        ("read NACK", packet(0, Headers::ReadAck { aeth: read_nack, sack })),
        ("NACK of a trimmed packet", packet(0, trim_nack(nack, false))),
        ("read NACK of a trimmed packet", packet(0, trim_nack(read_nack, true))),
        ("trimmed WRITE middle", trimmed.expect("IRN has trimmed packets")),
        ("pull", packet(0, Headers::Pull { granted: Serial::new(0xab_cdf7) })),
        cnp,
    ]
}
