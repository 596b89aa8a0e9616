//! Tests of batches: the packets are complete, and the kernel accepts the trains.

use super::*;
use rnic_base::limits::SGE_MAX;
use rnic_base::{Psn, Serial};
use rnic_engine::TransmitKind;
use rnic_policy::PathLabel;
use rnic_wire::{Addresses, Aeth, Format, Headers, Packet, PacketFlags, Position, Qpn, Reth, Syndrome, codec, icrc};

const PEER: PeerId = PeerId(0);
const OTHER: PeerId = PeerId(1);

fn addresses() -> Addresses {
    let address = |text: &str| text.parse().expect("an address");
    Addresses::new(address("10.0.0.1:4791"), address("10.0.0.2:4791")).expect("both IPv4")
}

fn transmit(peer: PeerId, psn: u32, payload_len: u32) -> Transmit {
    let (headers, kind) = match payload_len {
        0 => {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: Serial::new(psn) };
            (Headers::Ack { aeth, sack: None }, TransmitKind::Ack)
        }
        _ => {
            let reth = Some(Reth { va: 0x1000, rkey: 7, dma_len: payload_len });
            let headers = Headers::Write { position: Position::Only, reth, immediate: None, recv_sn: None };
            (headers, TransmitKind::Request)
        }
    };
    let flags = PacketFlags::default();
    let packet = Packet { dest_qpn: Qpn::new(9), psn: Psn::new(psn), flags, payload_len, headers };
    Transmit { packet, format: Format::Irn, peer, label: PathLabel::default(), from: Qpn::new(3), kind, mark: 0 }
}

fn wrapping(len: u32, may_join_train: bool) -> Wrapping {
    let (ip_fields, prefix) = (PackedIpFields::NONE, IcrcPrefix::new(&addresses(), len));
    Wrapping { len, port: 4_791, ip_fields, prefix, may_join_train, is_numbered: false }
}

/// Peer, packet length and number of packets of a train.
type Shape = (PeerId, u32, u32);

struct Bench {
    memory: Memory,
    slab: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let mut memory = Memory::default();
        let slot = memory.allocate(1 << 20).expect("a megabyte");
        for (index, byte) in memory.bytes_mut(slot).iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        Self { memory, slab: vec![0xee; SLAB_BYTES] }
    }

    /// Fills a batch; returns the shape of every train and the bytes of every packet.
    fn fill(&mut self, packets: &[(PeerId, u32)], may_join_train: bool) -> (Vec<Shape>, Vec<Vec<u8>>) {
        let mut batch = Batch::new(&mut self.slab);
        for (psn, (peer, payload_len)) in packets.iter().enumerate() {
            let transmit = transmit(*peer, psn as u32, *payload_len);
            let len = transmit.packet.udp_payload_len(transmit.format);
            // The payload consists of two segments.
            let first = payload_len / 3;
            let pieces = [(100, first), (5_000, payload_len - first)].map(|(local, len)| Segment { local, len });
            let pieces: Vec<Segment> = pieces.into_iter().filter(|piece| piece.len > 0).collect();
            assert!(batch.has_room(&Acks::default()));
            batch.add(&transmit, &pieces, &self.memory, wrapping(len, may_join_train)).expect("the memory is mapped");
        }
        assert!(!batch.is_empty());
        let trains = batch.trains().iter().map(|train| (train.peer, train.segment, train.count)).collect();
        let packets = batch.trains().iter().flat_map(|train| batch.packets(train).map(<[u8]>::to_vec)).collect();
        (trains, packets)
    }
}

#[test]
fn packets_are_complete_and_their_icrc_is_valid() {
    let mut bench = Bench::new();
    let lens = [4_096, 4_096, 5, 0, 1, 0, 4_096];
    let (_, packets) = bench.fill(&lens.map(|len| (PEER, len)), true);
    assert_eq!(packets.len(), lens.len());
    for (psn, (bytes, len)) in packets.iter().zip(lens).enumerate() {
        assert!(icrc::verify(&addresses(), bytes), "packet {psn}");
        let decoded = codec::decode(bytes).expect("a legal packet");
        assert_eq!((decoded.packet.psn.value(), decoded.packet.payload_len), (psn as u32, len));
        let first = (len / 3) as usize;
        let pattern = |at: usize, len: usize| (at..at + len).map(|index| (index % 251) as u8);
        let expected: Vec<u8> = pattern(100, first).chain(pattern(5_000, len as usize - first)).collect();
        assert_eq!(bytes[decoded.payload], expected, "packet {psn}");
    }
}

/// The ICRC that real RoCEv2 peers check is that of the packets that the kernel creates; their identifications count
/// from 0 in each train.
#[test]
fn the_icrc_of_numbered_trains_covers_the_identifications() {
    let mut bench = Bench::new();
    let mut batch = Batch::new(&mut bench.slab);
    for (psn, payload_len) in [1_024, 1_024, 1_024, 8, 1_024, 1_024].into_iter().enumerate() {
        let transmit = transmit(PEER, psn as u32, payload_len);
        let wrapping = wrapping(transmit.packet.udp_payload_len(transmit.format), true);
        let payload = [Segment { local: 100, len: payload_len }];
        batch.add(&transmit, &payload, &bench.memory, Wrapping { is_numbered: true, ..wrapping }).expect("mapped");
    }
    assert_eq!(batch.trains().iter().map(|train| train.count).collect::<Vec<_>>(), [4, 2]);
    for train in batch.trains() {
        for (number, bytes) in batch.packets(train).enumerate() {
            let prefix = IcrcPrefix::with_identification(&addresses(), bytes.len() as u32, number as u16);
            assert!(prefix.verify(bytes), "{number}");
        }
    }
}

#[test]
fn a_train_has_one_peer_and_one_length_and_only_its_last_packet_is_shorter() {
    let mut bench = Bench::new();
    let full = transmit(PEER, 0, 1_024).packet.udp_payload_len(Format::Irn);
    let short = transmit(PEER, 0, 8).packet.udp_payload_len(Format::Irn);
    let packets = [(PEER, 1_024), (PEER, 1_024), (PEER, 8), (PEER, 1_024), (OTHER, 1_024), (OTHER, 8), (OTHER, 8)];
    let (trains, _) = bench.fill(&packets, true);
    assert_eq!(trains, [(PEER, full, 3), (PEER, full, 1), (OTHER, full, 2), (OTHER, short, 1)]);
    let (trains, _) = bench.fill(&packets, false);
    assert!(trains.iter().all(|(_, _, count)| *count == 1) && trains.len() == packets.len(), "{trains:?}");
    let (trains, _) = bench.fill(&[(PEER, 8), (PEER, 0)], true);
    assert_eq!(trains, [(PEER, short, 2)], "the acknowledgement is in another train");
}

/// Adds packets with the given paths and lengths to a batch in `slab`. Each packet starts with its number; returns
/// the path and the packet numbers of every train.
fn spread(slab: &mut [u8], paths: impl IntoIterator<Item = (u8, u32)>, may_join_train: bool) -> Vec<(u8, Vec<u32>)> {
    let mut batch = Batch::new(slab);
    for (number, (path, len)) in paths.into_iter().enumerate() {
        assert!(batch.has_room(&Acks::default()), "packet {number}");
        let path = SendPath { peer: PEER, port: 4_791, path, ip_fields: PackedIpFields::NONE };
        let fault = |out: &mut [u8]| {
            out.fill(0xbb);
            Err(MemoryFault)
        };
        // A packet whose payload cannot be read does not change the batch.
        assert_eq!(batch.add_with(path, len, may_join_train, fault), Err(MemoryFault));
        let added = batch.add_with(path, len, may_join_train, |out| {
            assert_eq!(out.len(), len as usize);
            out.fill(0xdd);
            out[..4].copy_from_slice(&(number as u32).to_be_bytes());
            Ok(())
        });
        assert_eq!(added, Ok(()));
    }
    let number = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().expect("it has four bytes"));
    batch.trains().iter().map(|train| (train.path, batch.packets(train).map(number).collect())).collect()
}

#[test]
fn each_path_has_a_train_and_its_packets_stay_in_order() {
    let mut slab = vec![0xee; SLAB_BYTES];
    let packets = |paths: u32| (0..56).map(move |number| (1 + (number % paths) as u8, 4_168));
    let trains = spread(&mut slab, packets(4), true);
    let expected: Vec<_> = (0..4).map(|path| (1 + path as u8, (0..14).map(|nth| path + nth * 4).collect())).collect();
    assert_eq!(trains, expected);
    assert_eq!(spread(&mut slab, packets(8), true).len(), 8);
    assert_eq!(spread(&mut slab, packets(1), true).len(), 56_usize.div_ceil(15), "the trains are too short");
    assert_eq!(spread(&mut slab, packets(4).take(20), false).len(), 20);
    // A shorter packet ends its train, and a longer one starts another train; a packet on the default path is
    // appended only to the last train.
    let mixed = [(1, 100), (2, 100), (1, 60), (1, 60), (2, 200), (0, 90), (2, 200), (0, 90), (1, 60), (3, 50), (0, 90)];
    let expected: [(u8, &[u32]); 7] =
        [(1, &[0, 2]), (2, &[1]), (1, &[3, 8]), (2, &[4, 6]), (0, &[5, 7]), (3, &[9]), (0, &[10])];
    assert_eq!(spread(&mut slab, mixed, true), expected.map(|(path, numbers)| (path, numbers.to_vec())));
}

#[test]
fn paths_fill_a_batch_before_anything_overflows() {
    let mut slab = vec![0xee; SLAB_BYTES];
    for (paths, len) in [(16, 4_168), (16, 60), (3, 8_264), (1, 4_168), (16, 1_500)] {
        let mut batch = Batch::new(&mut slab);
        let mut given = 0;
        while batch.has_room(&Acks::default()) {
            let path =
                SendPath { peer: PEER, port: 4_791, path: 1 + (given % paths) as u8, ip_fields: PackedIpFields::NONE };
            let added = batch.add_with(path, len, true, |out| {
                out.fill(given as u8);
                Ok(())
            });
            assert_eq!(added, Ok(()));
            given += 1;
        }
        assert!(given >= 10, "{paths} paths, {len} bytes: {given}");
        assert!(batch.end + ACKS_BYTES_MAX <= SLAB_BYTES);
        for train in batch.trains() {
            let whole = |bytes: &[u8]| bytes.len() == len as usize && bytes.iter().all(|byte| *byte == bytes[0]);
            assert!(batch.packets(train).all(whole), "a packet was overwritten");
        }
    }
}

#[test]
fn a_train_is_limited_by_datagram_size_and_segment_count() {
    let mut bench = Bench::new();
    let (trains, _) = bench.fill(&[(PEER, 4_096); 15], true);
    assert_eq!(trains.len(), 1, "15 packets of 4 KB are not one train");
    let (trains, _) = bench.fill(&[(PEER, 1); 64], true);
    assert_eq!(trains.iter().map(|(_, _, count)| *count).collect::<Vec<_>>(), [64]);
}

#[test]
fn a_batch_is_full_before_anything_overflows() {
    let mut bench = Bench::new();
    for payload_len in [1, 500, 4_096, 8_192] {
        for (peers, may_join_train) in [(1, true), (1, false), (64, true)] {
            let (mut acks, mut batch) = (Acks::default(), Batch::new(&mut bench.slab));
            let mut given = 0;
            while batch.has_room(&acks) {
                let peer = PeerId(given % peers);
                let mut packet = transmit(peer, given, if given % 3 == 0 { 0 } else { payload_len });
                // Each packet is from a different queue pair, so that none makes another one redundant.
                packet.from = Qpn::new(given);
                given += 1;
                if packet.packet.payload_len == 0 {
                    assert!(!acks.push(packet, may_join_train));
                    continue;
                }
                let len = packet.packet.udp_payload_len(packet.format);
                // The payload has the maximum number of segments.
                let piece = Segment { local: 0, len: 1 };
                let mut pieces = vec![piece; (payload_len as usize).min(SGE_MAX)];
                pieces[0].len += payload_len - pieces.len() as u32;
                batch.add(&packet, &pieces, &bench.memory, wrapping(len, may_join_train)).expect("mapped memory");
            }
            for ack in acks.iter() {
                let len = ack.packet.udp_payload_len(ack.format);
                batch.add(ack, &[], &bench.memory, wrapping(len, may_join_train)).expect("acks have no payload");
            }
            assert!(!batch.is_empty());
            let packets: u32 = batch.trains().iter().map(|train| train.count).sum();
            assert_eq!(packets, given, "{payload_len} bytes, {peers} peers, {may_join_train}");
            for train in batch.trains() {
                assert!(batch.packets(train).all(|bytes| icrc::verify(&addresses(), bytes)));
            }
        }
    }
}

/// Near the limit, each packet is longer than the one before and starts a new train; each of these trains could still
/// accept packets of its own length.
#[test]
fn trains_that_stay_open_do_not_overflow_the_slab() {
    let mut bench = Bench::new();
    let mut batch = Batch::new(&mut bench.slab);
    let mut len = 5_000;
    while batch.has_room(&Acks::default()) {
        let transmit = transmit(PEER, len, len);
        let pieces = [Segment { local: 0, len }];
        let wrapping = wrapping(transmit.packet.udp_payload_len(transmit.format), true);
        batch.add(&transmit, &pieces, &bench.memory, wrapping).expect("the memory is mapped");
        len = if batch.end < BATCH_BYTES_MIN - 20_000 { len } else { len + 32 };
    }
    assert!(batch.end > BATCH_BYTES_MIN && batch.end + ACKS_BYTES_MAX <= SLAB_BYTES, "{} bytes", batch.end);
}

#[test]
fn a_plain_acknowledgement_is_replaced_by_a_later_one() {
    let ack = |psn| transmit(PEER, psn, 0);
    let with = |change: fn(&mut Transmit)| {
        let mut ack = ack(2);
        change(&mut ack);
        ack
    };
    let aeth = |syndrome| Aeth { syndrome, msn: Serial::new(2) };
    let nak = Headers::Ack { aeth: aeth(Syndrome::Nak(rnic_wire::NakCode::PsnSequenceError)), sack: None };
    let not_replaced = [
        with(|ack| ack.peer = OTHER),
        with(|ack| ack.from = Qpn::new(4)),
        // Of another flow of the same queue pair.
        with(|ack| ack.packet.dest_qpn = Qpn::new(ack.packet.dest_qpn.get() ^ 1)),
        with(|ack| ack.packet.headers = Headers::Cnp),
        Transmit { packet: Packet { headers: nak, ..ack(2).packet }, ..ack(2) },
        with(|ack| {
            let Headers::Ack { aeth, .. } = ack.packet.headers else { return };
            ack.packet.headers = Headers::Ack { aeth, sack: Some(Psn::new(7)) };
        }),
        with(|ack| {
            let Headers::Ack { aeth, .. } = ack.packet.headers else { return };
            ack.packet.headers = Headers::ReadAck { aeth, sack: None };
        }),
        with(|ack| ack.packet.headers = pull(2)),
        with(|ack| {
            let Headers::Ack { aeth, .. } = ack.packet.headers else { return };
            ack.packet.headers = Headers::TrimNack { aeth, trimmed: Psn::new(2), of_response: false };
        }),
    ];
    for other in not_replaced {
        let mut acks = Acks::default();
        assert!(!acks.push(ack(1), true));
        assert!(!acks.push(other, true), "{other:?} was replaced");
        assert!(!acks.push(ack(3), true), "{other:?} was replaced");
    }
    let mut acks = Acks::default();
    assert!(!acks.push(ack(1), true));
    assert!(acks.push(ack(2), true) && acks.push(ack(3), true));
    let psns: Vec<u32> = acks.iter().map(|ack| ack.packet.psn.value()).collect();
    assert_eq!(psns, [3]);
    let pull = |granted| Transmit { packet: Packet { headers: pull(granted), ..ack(0).packet }, ..ack(0) };
    let mut acks = Acks::default();
    assert!(!acks.push(pull(5), true) && acks.push(pull(8), true), "a pull includes those before it");
    assert!(!acks.push(Transmit { from: Qpn::new(4), ..pull(9) }, true), "a pull of another queue pair was replaced");
    assert_eq!(acks.iter().count(), 2);
}

fn pull(granted: u32) -> Headers {
    Headers::Pull { granted: rnic_base::Serial::new(granted) }
}
