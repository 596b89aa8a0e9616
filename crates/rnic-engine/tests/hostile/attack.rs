//! Packets that an honest peer would not send.

use rnic_base::{Psn, RandomStream, Serial};
use rnic_engine::{QpInfo, Transmit, TransmitKind};
use rnic_policy::PathLabel;
use rnic_wire::{
    Aeth, AtomicOp, FasrReadFields, Format, Headers, LossCause, LossReportFields, NakCode, Packet, PacketFlags,
    Position, Qpn, Reth, SendPlacement, SendTail, Sink, Syndrome,
};

use crate::node::{ATOMIC, INVALIDATE, Node, READ, WRITE};

/// Largest payload of a packet, in bytes.
pub const PAYLOAD_MAX: u64 = 8_192;

/// Knowledge of an attacker about the queue pair that it aims at.
pub struct Aim<'a> {
    pub victim: &'a Node,
    pub info: QpInfo,
    pub domain: usize,
    pub mtu: u32,
}

fn pick<T: Copy>(random: &mut RandomStream, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

/// Returns a PSN near one that matters, or a random one.
fn psn(random: &mut RandomStream, info: &QpInfo) -> Psn {
    let near = [info.expected, info.una, info.next, info.response_expected];
    let near = pick(random, &near).wire::<24>();
    match random.below(8) {
        0..3 => near,
        3 | 4 => near.plus(random.below(5) as u32),
        5 => near.plus((1 << 24) - 1 - random.below(5) as u32),
        6 => near.plus(random.below(300) as u32),
        _ => Psn::new(random.bits() as u32),
    }
}

fn flags(random: &mut RandomStream) -> PacketFlags {
    let bits = random.bits();
    PacketFlags { solicited: bits & 1 != 0, ack_request: bits & 6 != 0, fecn: bits & 8 != 0, becn: bits & 16 != 0 }
}

/// Returns an address in the victim's memory and a key. For half of the packets both are valid for `region`, because
/// packets that are refused early test little; otherwise they are nearly right, of another domain, or random.
fn place(random: &mut RandomStream, aim: &Aim<'_>, region: usize) -> (u64, u32) {
    if random.below(2) == 0 {
        let known = aim.victim.domains[aim.domain].regions[region];
        return (known.region.addr + 8 * random.below(16), known.key);
    }
    let domains = &aim.victim.domains;
    let domain = if random.below(8) == 0 { random.below(domains.len() as u64) as usize } else { aim.domain };
    let known = pick(random, &domains[domain].regions);
    let key = match random.below(12) {
        0 => known.key ^ 1 << random.below(32),
        1 => random.bits() as u32,
        _ => known.key,
    };
    let (start, len) = (known.region.addr, known.region.len);
    let addr = match random.below(8) {
        0 => start,
        1..4 => start + random.below(len / 8) * 8,
        4 => start + random.below(len + 1),
        5 => start + len - random.below(16),
        6 => start - random.below(16),
        _ => random.bits(),
    };
    (addr, key)
}

fn length(random: &mut RandomStream, mtu: u32) -> u32 {
    let mtu = u64::from(mtu);
    let wish = match random.below(12) {
        0 => 0,
        1 => 1,
        2..6 => mtu,
        6 => mtu - 1,
        7 => mtu + 1,
        8 => 8,
        9 => random.below(3 * mtu),
        10 => random.below(PAYLOAD_MAX),
        _ => PAYLOAD_MAX,
    };
    wish.min(PAYLOAD_MAX) as u32
}

fn dma_len(random: &mut RandomStream, payload: u32, mtu: u32) -> u32 {
    match random.below(8) {
        0..3 => payload,
        3 => random.below(8_000) as u32,
        4 => mtu * random.below(9) as u32,
        5 => u32::MAX - random.below(3) as u32,
        6 => 1 << 30,
        _ => random.bits() as u32,
    }
}

fn serial(random: &mut RandomStream) -> Serial<24> {
    match random.below(4) {
        0..2 => Serial::new(random.below(8) as u32),
        2 => Serial::new(random.below(400) as u32),
        _ => Serial::new(random.bits() as u32),
    }
}

fn position(random: &mut RandomStream) -> Position {
    pick(random, &[Position::First, Position::Middle, Position::Last, Position::Only])
}

fn aeth(random: &mut RandomStream) -> Aeth {
    let syndrome = match random.below(40) {
        0..20 => Syndrome::Ack { credits: random.below(32) as u8 },
        20..23 => Syndrome::RnrNak { timer: random.below(32) as u8 },
        23..39 => Syndrome::Nak(NakCode::PsnSequenceError),
        _ => {
            let codes = [NakCode::InvalidRequest, NakCode::RemoteAccessError, NakCode::RemoteOperationalError];
            Syndrome::Nak(pick(random, &codes))
        }
    };
    Aeth { syndrome, msn: serial(random) }
}

/// Returns headers of any kind, with the payload length that fits them.
fn headers(random: &mut RandomStream, aim: &Aim<'_>) -> (Headers, u32) {
    let payload = length(random, aim.mtu);
    let dma_len = dma_len(random, payload, aim.mtu);
    let reth = |random: &mut RandomStream, region| {
        let (va, rkey) = place(random, aim, region);
        Reth { va, rkey, dma_len }
    };
    let maybe = |random: &mut RandomStream| random.below(4) > 0;
    let sack = maybe(random).then(|| psn(random, &aim.info));
    let sn = maybe(random).then(|| serial(random));
    match random.below(16) {
        0 | 1 => {
            let tail = match random.below(4) {
                0 => SendTail::Immediate(7),
                1 => SendTail::Invalidate(place(random, aim, INVALIDATE).1),
                _ => SendTail::Plain,
            };
            let placement = sn.map(|recv_sn| SendPlacement { recv_sn, offset: serial(random) });
            (Headers::Send { position: position(random), tail, placement }, payload)
        }
        2 | 3 => {
            let immediate = (random.below(3) == 0).then_some(9);
            let reth = maybe(random).then(|| reth(random, WRITE));
            (Headers::Write { position: position(random), reth, immediate, recv_sn: sn }, payload)
        }
        4 => {
            let payload = if random.below(8) == 0 { payload } else { 0 };
            let fasr = maybe(random).then(|| fasr(random));
            (Headers::ReadRequest { reth: reth(random, READ), read_sn: sn, fasr }, payload)
        }
        5 => {
            let add = AtomicOp::FetchAdd { add: random.bits() };
            let op = if random.below(2) == 0 { add } else { AtomicOp::CompareSwap { compare: 0, swap: random.bits() } };
            let (va, rkey) = place(random, aim, ATOMIC);
            (Headers::AtomicRequest { va, rkey, op, read_sn: sn, expected_psn: fasr(random).expected_psn.into() }, 0)
        }
        6 => {
            let (aeth, sink) = (maybe(random).then(|| aeth(random)), maybe(random).then(|| sink(random, aim.mtu)));
            (Headers::ReadResponse { position: position(random), aeth, sink }, payload)
        }
        7 => {
            let sink = maybe(random).then(|| sink(random, aim.mtu));
            (Headers::AtomicResponse { aeth: aeth(random), original: random.bits(), sink }, 0)
        }
        8 => (Headers::Ack { aeth: aeth(random), sack }, 0),
        9 => (Headers::ReadAck { aeth: aeth(random), sack }, 0),
        10 | 11 => (Headers::LossAck { aeth: aeth(random), report: loss_report(random, aim) }, 0),
        12 => {
            let (trimmed, of_response) = (psn(random, &aim.info), random.below(4) == 0);
            (Headers::TrimNack { aeth: aeth(random), trimmed, of_response }, 0)
        }
        13 => (Headers::Pull { granted: serial(random) }, 0),
        _ => (Headers::Cnp, 0),
    }
}

fn fasr(random: &mut RandomStream) -> FasrReadFields {
    FasrReadFields { expected_psn: serial(random), stamp: random.bits() as u32 }
}

/// Returns an offset in a response: mostly one at which a packet could begin.
fn sink(random: &mut RandomStream, mtu: u32) -> Sink {
    let offset = match random.below(4) {
        0 => random.bits(),
        1 => random.below(100_000),
        _ => random.below(8) * u64::from(mtu),
    };
    Sink { read_sn: serial(random), offset }
}

fn loss_report(random: &mut RandomStream, aim: &Aim<'_>) -> LossReportFields {
    let cause = pick(random, &[LossCause::OutOfOrder, LossCause::Repaired, LossCause::Misplaced]);
    LossReportFields { cause, psn: psn(random, &aim.info), lost: random.below(8) as u8, overflow: random.below(4) == 0 }
}

/// Returns a packet with random contents.
pub fn invented(random: &mut RandomStream, aim: &Aim<'_>, format: Format) -> Transmit {
    let (headers, payload_len) = headers(random, aim);
    let (psn, flags) = (psn(random, &aim.info), flags(random));
    let packet = Packet { dest_qpn: aim.info.number, psn, flags, payload_len, headers };
    let from = Qpn::new(0);
    let (peer, label, kind) = (rnic_engine::PeerId(0), PathLabel(0), TransmitKind::Ack);
    Transmit { packet, format, peer, label, from, kind, mark: 0 }
}

/// Returns an honest packet with one detail changed, or with none: then it is a copy that arrives at another time.
pub fn mutated(random: &mut RandomStream, aim: &Aim<'_>, honest: &Transmit) -> Transmit {
    let mut transmit = *honest;
    let packet = &mut transmit.packet;
    match random.below(9) {
        8 => *packet = packet.trimmed(transmit.format).unwrap_or(*packet),
        0 => packet.psn = psn(random, &aim.info),
        1 => packet.psn = packet.psn.plus(1),
        2 => packet.payload_len = length(random, aim.mtu),
        3 => packet.flags = flags(random),
        4 => mutate_headers(random, aim, packet),
        5 => packet.headers = headers(random, aim).0,
        6 => packet.dest_qpn = aim.info.number,
        _ => {}
    }
    transmit
}

fn mutate_headers(random: &mut RandomStream, aim: &Aim<'_>, packet: &mut Packet) {
    let region = random.below(6) as usize;
    let (va, rkey) = place(random, aim, region);
    let dma_len = dma_len(random, packet.payload_len, aim.mtu);
    match &mut packet.headers {
        Headers::Send { position: at, tail, placement } => match random.below(3) {
            0 => *at = position(random),
            1 => *tail = SendTail::Invalidate(rkey),
            _ => *placement = Some(SendPlacement { recv_sn: serial(random), offset: serial(random) }),
        },
        Headers::Write { position: at, reth, immediate, recv_sn } => match random.below(4) {
            0 => *at = position(random),
            1 => *reth = Some(Reth { va, rkey, dma_len }),
            2 => *immediate = Some(3),
            _ => *recv_sn = Some(serial(random)),
        },
        Headers::ReadRequest { reth, read_sn, fasr: said } => match random.below(4) {
            0 => *reth = Reth { va, rkey, dma_len },
            1 => reth.dma_len = dma_len,
            2 => *said = said.map(|_| fasr(random)),
            _ => *read_sn = Some(serial(random)),
        },
        Headers::AtomicRequest { va: at, read_sn, .. } => match random.below(2) {
            0 => *at = va,
            _ => *read_sn = Some(serial(random)),
        },
        Headers::ReadResponse { position: at, sink: place, .. } => match random.below(2) {
            0 => *at = position(random),
            _ => *place = place.map(|_| sink(random, aim.mtu)),
        },
        Headers::Ack { aeth: said, sack } | Headers::ReadAck { aeth: said, sack } => match random.below(2) {
            0 => *said = aeth(random),
            _ => *sack = Some(psn(random, &aim.info)),
        },
        Headers::LossAck { aeth: said, report, .. } => match random.below(2) {
            0 => *said = aeth(random),
            _ => *report = loss_report(random, aim),
        },
        Headers::PlacementRequest { va: at, .. } => *at = va,
        Headers::TrimNack { aeth: said, trimmed, of_response } => match random.below(3) {
            0 => *said = aeth(random),
            1 => *trimmed = psn(random, &aim.info),
            _ => *of_response = !*of_response,
        },
        Headers::Pull { granted } => *granted = serial(random),
        Headers::AtomicResponse { .. }
        | Headers::Datagram { .. }
        | Headers::Cnp
        | Headers::SharedSend { .. }
        | Headers::SharedWrite { .. } => {}
    }
}
