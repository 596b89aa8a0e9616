//! A peer that sends invalid packets, of any kind and in any order. No message is delivered that was not sent
//! completely, no memory is changed that no key grants, and the queue pair stays usable.

use super::*;
use rnic_base::{RandomStream, RandomStreams, Time};
use rnic_wire::{Aeth, Packet, PacketFlags, Position, Reth, SendTail, Syndrome};

const POSITIONS: [Position; 4] = [Position::First, Position::Middle, Position::Last, Position::Only];

/// Bytes that each receive has space for.
const ROOM: u32 = 3_000;

fn packet(pair: &Pair, psn: Psn, payload_len: u32, headers: Headers) -> Packet {
    Packet { dest_qpn: pair.right.qpn, psn, flags: PacketFlags::default(), payload_len, headers }
}

fn inject(pair: &mut Pair, packet: &Packet) -> RxOutcome {
    let meta = RxMeta { peer: PeerId(7), congested: false };
    let payload = vec![0xa5; packet.payload_len as usize];
    pair.right.receive(Time::ZERO, Format::UnreliableConnection, packet, meta, &payload)
}

fn any_headers(pair: &Pair, random: &mut RandomStream) -> Headers {
    let position = POSITIONS[random.below(4) as usize];
    let rkey = if random.below(4) == 0 { random.bits() as u32 } else { pair.right.key };
    let va = if random.below(4) == 0 { random.bits() } else { BASE + TARGET + random.below(10_000) };
    let dma_len = [0, MTU, 2 * MTU, 100, u32::MAX, MTU + 1][random.below(6) as usize];
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: rnic_base::Serial::new(1) };
    match random.below(10) {
        0..4 => Headers::Send {
            position,
            tail: [SendTail::Plain, SendTail::Immediate(1), SendTail::Invalidate(pair.right.key)]
                [random.below(3) as usize],
            placement: None,
        },
        4..8 => Headers::Write {
            position,
            reth: (position.starts() || random.below(8) == 0).then_some(Reth { va, rkey, dma_len }),
            immediate: (random.below(3) == 0).then_some(7),
            recv_sn: None,
        },
        8 => Headers::ReadRequest { reth: Reth { va, rkey, dma_len }, read_sn: None, fasr: None },
        _ => Headers::Ack { aeth, sack: None },
    }
}

#[test]
fn random_packets_in_any_order_have_no_effect_outside_their_receives() {
    let mut completed = 0;
    for seed in 0..300 {
        let mut random = RandomStreams::new(seed).stream("hostile");
        let mut pair = pair();
        let before = pair.right.memory.clone();
        let mut psn = setup().psn;
        for wr_id in 0..6 {
            receive(&mut pair, wr_id, ROOM);
        }
        for _ in 0..200 {
            let len = [0, MTU, MTU, MTU, 10, MTU + 1][random.below(6) as usize];
            let headers = any_headers(&pair, &mut random);
            let packet = packet(&pair, psn, len, headers);
            inject(&mut pair, &packet);
            psn = if random.below(20) == 0 { Psn::new(random.bits() as u32) } else { psn.plus(1) };
        }
        assert_eq!(pair.right.info().state, QpState::ReadyToSend, "seed {seed}");
        assert!(pair.right.engine.transmit(Time::ZERO).is_none(), "seed {seed}: it sends a packet");
        for completion in pair.right.completions() {
            assert_eq!(completion.status, WcStatus::Success, "seed {seed}");
            assert!(completion.byte_len <= ROOM || completion.opcode == WcOpcode::RecvRdmaWithImm, "seed {seed}");
            completed += 1;
        }
        let (start, end) = (TARGET as usize, TARGET as usize + 8_192 * 6);
        assert!(pair.right.memory[..start] == before[..start], "seed {seed}");
        assert!(pair.right.memory[end..] == before[end..], "seed {seed}");
    }
    assert!(completed > 300, "only {completed} messages were completed");
}

#[test]
fn packets_of_other_peers_or_formats_are_dropped() {
    let mut pair = pair();
    receive(&mut pair, 0, 100);
    let send = Headers::Send { position: Position::Only, tail: SendTail::Plain, placement: None };
    let good = packet(&pair, setup().psn, 8, send);
    let mut from = |peer: u32, format| {
        let meta = RxMeta { peer: PeerId(peer), congested: false };
        pair.right.receive(Time::ZERO, format, &good, meta, &[0; 8])
    };
    let connection = Format::UnreliableConnection;
    assert_eq!(from(8, connection), RxOutcome::Dropped(DropReason::WrongPeer));
    for format in [Format::RoceV2, Format::Irn, Format::UnreliableDatagram] {
        assert_eq!(from(7, format), RxOutcome::Dropped(DropReason::WrongFormat), "{format:?}");
    }
    assert_eq!(from(7, connection), RxOutcome::Accepted);
    assert_eq!(from(7, connection), RxOutcome::Duplicate, "a copy is not a duplicate");
}

/// Checks that a reliable connection drops unreliable packets, too.
#[test]
fn a_reliable_connection_drops_unreliable_packets() {
    let mut pair = Pair::of("roce-gbn");
    receive(&mut pair, 0, 100);
    let send = Headers::Send { position: Position::Only, tail: SendTail::Plain, placement: None };
    let good = packet(&pair, setup().psn, 8, send);
    assert_eq!(inject(&mut pair, &good), RxOutcome::Dropped(DropReason::WrongFormat));
    assert!(pair.right.completions().is_empty());
}

/// A message whose packets do not have the length that its first one announces is not delivered, not even in part.
#[test]
fn messages_whose_packets_do_not_add_up_to_their_length_are_dropped() {
    let reth = |dma_len| Some(Reth { va: BASE + TARGET, rkey: 0, dma_len });
    const FIRST: Position = Position::First;
    const MIDDLE: Position = Position::Middle;
    const LAST: Position = Position::Last;
    const ONLY: Position = Position::Only;
    /// The packets of a Write with immediate, as (position, length in the RETH, payload), and `true` if they form a
    /// message.
    type Case = (&'static [(Position, u32, u32)], bool);
    let cases: [Case; 8] = [
        (&[(FIRST, 2_058, 1_024), (MIDDLE, 0, 1_024), (LAST, 0, 10)], true),
        (&[(FIRST, 2_058, 1_024), (LAST, 0, 10)], false),
        (&[(FIRST, 1_034, 1_024), (MIDDLE, 0, 1_024), (LAST, 0, 10)], false),
        (&[(FIRST, 1_034, 1_000), (LAST, 0, 34)], false),
        (&[(MIDDLE, 0, 1_024), (LAST, 0, 10)], false),
        (&[(ONLY, 10, 11)], false),
        (&[(ONLY, 10, 9)], false),
        (&[(FIRST, 1_034, 1_024), (ONLY, 10, 10)], true),
    ];
    for (packets, whole) in cases {
        let mut pair = pair();
        receive(&mut pair, 0, 0);
        for (psn, (position, dma_len, len)) in (0..).zip(packets) {
            let reth = reth(*dma_len).filter(|_| position.starts()).map(|reth| Reth { rkey: pair.right.key, ..reth });
            let immediate = position.ends().then_some(1);
            let headers = Headers::Write { position: *position, reth, immediate, recv_sn: None };
            let packet = packet(&pair, setup().psn.plus(psn), *len, headers);
            inject(&mut pair, &packet);
        }
        assert_eq!(pair.right.completions().len(), usize::from(whole), "{packets:?}");
    }
}
