//! A peer that sends invalid packets in the middle of valid traffic: copies of real packets with any field changed,
//! and random packets. Nothing panics, no byte is changed that no key grants, the amount of held data is bounded, and
//! every resource is free again when the queue pair is reset.

use rnic_base::{Duration, Psn32, RandomStream, RandomStreams, Serial};
use rnic_engine::*;
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag, WriteTail};
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, FlowLabel, Nack, NackCode, OutOfWindow, Packet, PacketType, ResyncCode, Timestamp,
    Ulp, UlpProtocol, Window, codec, psp,
};
use rnic_wire::{AtomicOp, Position, Qpn, Reth, SendTail};

use crate::common::{BASE, DELIVERED, INBOX, MEMORY, MTU, Pair, Setup, travelled};

/// Bytes from [`INBOX`] on that the peer may access.
const GRANTED: u64 = 1 << 16;
/// Address of the receive buffers, which the peer's Sends may fill.
const RECEIVES: u64 = INBOX + 2 * GRANTED;

fn any<T: Copy>(random: &mut RandomStream, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// Returns a value that is mostly close to `value`.
fn near(random: &mut RandomStream, value: u32) -> u32 {
    match random.below(4) {
        0 => value,
        1 => value.wrapping_add(random.below(8) as u32),
        2 => value.wrapping_sub(random.below(600) as u32),
        _ if random.below(4) == 0 => random.bits() as u32,
        _ => value.wrapping_add(random.below(700) as u32),
    }
}

fn any_operation(random: &mut RandomStream, key: u32) -> Operation {
    let position = any(random, &[Position::First, Position::Middle, Position::Last, Position::Only]);
    let rkey = if random.below(4) == 0 { random.bits() as u32 } else { key };
    let va = if random.below(4) == 0 { random.bits() } else { INBOX + random.below(2 * GRANTED) };
    let dma_len = any(random, &[0, 1, MTU, 3 * MTU, u32::MAX, MTU + 1]);
    let reth = Reth { va, rkey, dma_len };
    let (rmsn, sink) = (Serial::new(random.below(300) as u32), SinkTag { va, lkey: rkey });
    match random.below(8) {
        0..2 => {
            let tail = any(random, &[SendTail::Plain, SendTail::Immediate(1), SendTail::Invalidate(key)]);
            let offset = any(random, &[0, MTU, 2 * MTU, 7, u32::MAX]);
            Operation::Send { position, tail, rmsn, offset }
        }
        2..4 => {
            let tail = (random.below(3) == 0).then_some(WriteTail { rmsn, immediate: 3 });
            Operation::Write { position, reth, tail }
        }
        4 => Operation::ReadRequest { reth, rmsn, sink },
        5 => Operation::ReadResponse { position, sink },
        6 => {
            let op = any(random, &[AtomicOp::FetchAdd { add: 1 }, AtomicOp::CompareSwap { compare: 0, swap: 1 }]);
            Operation::AtomicRequest { va, rkey, op, rmsn, sink }
        }
        _ => Operation::AtomicResponse { original: random.bits(), sink },
    }
}

/// Returns `like` or a random body, mostly with the numbers of `like` or numbers close to them.
fn any_body(random: &mut RandomStream, like: &Body, key: u32, dest_qpn: Qpn) -> Body {
    let psn = Psn32::new(near(random, like.psn().map_or(0xff_fffa, |psn| psn.value())));
    let rsn = Psn32::new(near(random, like.rsn().map_or(0xff_fffa, |rsn| rsn.value())));
    let old = like.ulp().copied().unwrap_or(Ulp::None);
    let header = Header {
        dest_qpn: if random.below(16) == 0 { Qpn::new(5) } else { dest_qpn },
        sn: Serial::new(random.below(500) as u32),
        solicited: random.below(2) == 0,
        complete_in_error: random.below(8) == 0,
        operation: any_operation(random, key),
    };
    let ulp = if random.below(3) == 0 { old } else { Ulp::Rdma(header) };
    let ulp = if random.below(20) == 0 { Ulp::None } else { ulp };
    let length = any(random, &[0, 24, 100, 1_060, 1_088, u16::MAX]);
    let (t1, t2) = (Timestamp::new(random.bits() as u32), Timestamp::new(random.bits() as u32));
    let out_of_window = OutOfWindow { data: random.below(4) == 0, request: random.below(4) == 0 };
    let ack = Acknowledgement { t1, t2, hops: 15, rx_level: 31, ecn: 16_383, metadata: 0, out_of_window };
    match random.below(12) {
        0..3 => Body::PushData { psn, rsn, length, ulp },
        3..5 => Body::PullRequest { psn, rsn, length, ulp },
        5..7 => Body::PullData { psn, rsn, ulp },
        7 => {
            let of = any(random, &[PacketType::PushData, PacketType::PullData, PacketType::PullRequest]);
            Body::Resync { psn, rsn, code: any(random, &ResyncCode::ALL), of, vendor: 0 }
        }
        8 => Body::Ack(ack),
        9 => {
            let wide = |random: &mut RandomStream| u128::from(random.bits()) << 64 | u128::from(random.bits());
            let (data_acked, data_received) = (wide(random), wide(random));
            Body::ExtendedAck(ack, Bitmaps { data_acked, data_received, request_received: random.bits() })
        }
        _ => {
            let timeout = RnrTimer::from_code(random.below(32) as u8);
            let code = any(
                random,
                &[
                    NackCode::Resource,
                    NackCode::NotReady { timeout },
                    NackCode::Xlr,
                    NackCode::CompleteInError { ulp: 200 },
                    NackCode::NonRecoverable { ulp: 2 },
                    NackCode::InvalidCid,
                ],
            );
            let window = any(random, &Window::ALL);
            Body::Nack(Nack { t1, t2, hops: 0, rx_level: 0, ecn: 0, metadata: 0, psn, window, code })
        }
    }
}

fn any_packet(random: &mut RandomStream, like: &Packet, key: u32, dest_qpn: Qpn) -> Packet {
    let mut packet = *like;
    if random.below(4) > 0 {
        packet.body = any_body(random, &like.body, key, dest_qpn);
    }
    if random.below(3) == 0 {
        packet.bases.data = Psn32::new(near(random, like.bases.data.value()));
        packet.bases.request = Psn32::new(near(random, like.bases.request.value()));
    }
    packet.payload_len = any(random, &[0, 1, MTU, MTU + 100, like.payload_len, 9_000]);
    packet.ack_request = random.below(2) == 0;
    packet.protocol = any(random, &[UlpProtocol::Rdma, UlpProtocol::Rdma, UlpProtocol::None, UlpProtocol::Nvme]);
    packet
}

/// As [`any_packet`], but returns only packets that can be encoded.
fn any_that_travels(random: &mut RandomStream, like: &Packet, key: u32, dest_qpn: Qpn) -> Packet {
    loop {
        let packet = any_packet(random, like, key, dest_qpn);
        if let Ok(read) = travelled(&packet) {
            assert_eq!(read, packet);
            return packet;
        }
    }
}

/// Returns the packet that is decoded from the bytes of `like` after some of them are changed, as no integrity check
/// detects this.
fn any_bytes(random: &mut RandomStream, like: &Packet, _: u32, _: Qpn) -> Packet {
    let (mut datagram, payload) = (Vec::new(), vec![0xa5; like.payload_len as usize]);
    codec::assemble(&psp::Header::default(), like, &[&payload], &mut datagram).expect("the packet can be encoded");
    loop {
        let mut changed = datagram.clone();
        for _ in 0..=random.below(4) {
            // Mostly bytes of headers rather than of the payload.
            let at = random.below(datagram.len().min(100) as u64) as usize;
            changed[at] = if random.below(2) == 0 { changed[at] ^ 1 << random.below(8) } else { random.bits() as u8 };
        }
        if let Ok((_, decoded)) = codec::decode_datagram(&changed) {
            return decoded.packet;
        }
    }
}

/// Makes an invalid packet from one that the peer has sent to a queue pair, with a key that the peer has.
type Forgery = fn(&mut RandomStream, &Packet, u32, Qpn) -> Packet;

fn attack(options: &[(&str, &str)], seed: u64, (forge, travels): (Forgery, bool)) {
    let mut random = RandomStreams::new(seed).stream("hostile");
    let mut pair = Pair::new(&Setup::new(options), |_| DELIVERED);
    pair.encodes = travels;
    // Registers one region that the peer may access, and one for the local program alone.
    let (pd, old) = (pair.ends[1].pd, pair.ends[1].key);
    pair.ends[1].engine.objects_mut().deregister(Key(old)).expect("it was registered");
    let region = |addr, len, access| MemoryRegion { pd, addr, len, local: addr - BASE, access };
    let engine = &mut pair.ends[1].engine;
    let own = engine.objects_mut().register(region(BASE, MEMORY as u64, Access::LOCAL_WRITE)).expect("legal").0;
    let granted = engine.objects_mut().register(region(INBOX, GRANTED, Access::all())).expect("legal").0;
    pair.ends[1].key = own;
    let before = pair.ends[1].memory.clone();
    for wr_id in 0..40 {
        pair.ends[1].post_recv(wr_id, RECEIVES + wr_id * 4_096, 4_096);
    }
    let remote = RemoteMemory { addr: INBOX, rkey: granted };
    for wr_id in 0..30 {
        let (op, len) = match wr_id % 4 {
            0 => (SendOp::Write { remote, immediate: None }, 5 * MTU),
            1 => (SendOp::Send { immediate: Some(1) }, MTU),
            2 => (SendOp::Read { remote }, 3 * MTU),
            _ => (SendOp::FetchAdd { remote, add: 1 }, 8),
        };
        pair.ends[0].post(wr_id, op, BASE, len);
        let op = SendOp::Read { remote: RemoteMemory { addr: BASE, rkey: pair.ends[0].key } };
        pair.ends[1].post(100 + wr_id, op, RECEIVES + (40 + wr_id) * 4_096, 4_096);
    }
    let dest_qpn = pair.ends[1].qpn;
    for _ in 0..300 {
        pair.run_for(Duration::from_ns(random.below(2_000)));
        let honest: Vec<Packet> = pair.log.iter().filter(|sent| sent.from == 0).map(|sent| sent.packet).collect();
        let Some(like) = (!honest.is_empty()).then(|| any(&mut random, &honest)) else { continue };
        let packet = forge(&mut random, &like, granted, dest_qpn);
        let (label, payload) = (FlowLabel::new(random.bits() as u32), vec![0xa5; packet.payload_len as usize]);
        pair.deliver(1, &packet, label, &payload);
        assert!(pair.ends[1].kept.len() <= 512, "seed {seed}: {} payloads are kept", pair.ends[1].kept.len());
    }
    pair.run_for(Duration::from_ms(20));
    let outside = |at: u64| at < INBOX || (INBOX + GRANTED..RECEIVES).contains(&at) || at >= RECEIVES + 70 * 4_096;
    for (index, (old, new)) in before.iter().zip(&pair.ends[1].memory).enumerate() {
        assert!(old == new || !outside(BASE + index as u64), "seed {seed}: byte {index:#x} was changed illegally");
    }
    for end in [0, 1] {
        let qpn = pair.ends[end].qpn;
        pair.ends[end].engine.modify_to_reset(qpn).expect("it exists");
        let stats = pair.ends[end].engine.falcon_stats().expect("Falcon is in use");
        assert!(stats.is_idle, "seed {seed}, end {end}: {stats:?}");
    }
    // Payload that was held is dropped with the next packet, whichever queue pair that is for.
    let setup = Setup::new(options);
    let dest_qpn = pair.ends[0].qpn;
    pair.ends[1].begin_receiving(&setup, dest_qpn, 1);
    let log = std::mem::take(&mut pair.log);
    if let Some(sent) = log.iter().find(|sent| sent.from == 0) {
        pair.deliver(1, &sent.packet, FlowLabel::new(0), &vec![0; sent.packet.payload_len as usize]);
        let still = pair.ends[1].kept.len();
        assert!(still <= 1, "seed {seed}: {still} payloads are still kept");
    }
}

#[test]
fn random_packets_from_a_peer_do_no_harm() {
    let variants: [&[(&str, &str)]; 6] = [
        &[],
        &[("flows", "4"), ("recovery", "ooo-distance"), ("resources", "1")],
        &[("ordering", "weak")],
        &[("errors", "complete-in-error"), ("out_of_window", "drop")],
        &[("ordering", "weak"), ("errors", "complete-in-error"), ("data_window", "512")],
        &[("ordering", "unordered"), ("errors", "complete-in-error"), ("fae_interface", "1us")],
    ];
    for options in variants {
        // On sockets, only packets that could be decoded arrive, and every packet that leaves must be encodable,
        // whatever arrived before. Simulations pass structures instead: a Pull without headers is answered with a
        // response without headers.
        let forgeries: [(Forgery, bool, u64); 3] =
            [(any_packet, false, 60), (any_that_travels, true, 40), (any_bytes, true, 20)];
        for (forge, travels, seeds) in forgeries {
            (0..seeds).for_each(|seed| attack(options, seed, (forge, travels)));
        }
    }
}

/// A Send that found no receive is only retried by its own retransmission: another packet with the same sequence
/// number, or with the packet number of another one, is not accepted as that retransmission.
#[test]
fn a_send_that_found_no_receive_is_accepted_only_from_its_own_retransmission() {
    type Change = fn(&mut Packet);
    let shorter: Change = |packet| packet.payload_len = 0;
    let data_of_a_pull: Change = |packet| {
        let Body::PushData { psn, rsn, ulp, .. } = packet.body else { unreachable!("Sends are Pushes") };
        packet.body = Body::PullData { psn, rsn, ulp };
    };
    let number_of_another: Change = |packet| {
        let Body::PushData { psn, .. } = &mut packet.body else { unreachable!("Sends are Pushes") };
        *psn = Psn32::new(psn.value().wrapping_sub(1));
    };
    for forge in [shorter, data_of_a_pull, number_of_another] {
        let mut pair = Pair::new(&Setup::new(&[]), |_| DELIVERED);
        pair.ends[1].post_recv(0, RECEIVES, MTU);
        for wr_id in 0..2 {
            pair.ends[0].post(wr_id, SendOp::Send { immediate: None }, BASE, 1_000);
        }
        pair.run_for(Duration::from_us(100));
        let sent: Vec<Packet> = pair.log.iter().filter(|sent| sent.from == 0).map(|sent| sent.packet).collect();
        let mut packet = *sent.iter().rfind(|packet| packet.payload_len == 1_000).expect("the second Send");
        pair.ends[1].post_recv(1, RECEIVES + 4_096, MTU);
        forge(&mut packet);
        pair.deliver(1, &packet, FlowLabel::new(0), &vec![0xa5; packet.payload_len as usize]);
        pair.run_for(Duration::from_ms(400));
        let done = pair.ends[1].take();
        assert_eq!(done, [(0, WcStatus::Success), (1, WcStatus::Success)]);
        assert_eq!(pair.ends[1].bytes(RECEIVES + 4_096, 1_000), pair.ends[0].bytes(BASE, 1_000));
    }
}

/// An atomic whose request leaves no room for the response is refused, and neither it nor a retransmission of it is
/// executed.
#[test]
fn an_atomic_without_space_for_its_response_is_not_executed() {
    let mut pair = Pair::new(&Setup::new(&[("errors", "complete-in-error")]), |_| DELIVERED);
    let remote = pair.remote(0, INBOX);
    pair.ends[0].post(1, SendOp::FetchAdd { remote, add: 1 }, BASE, 8);
    pair.run_for(Duration::from_us(100));
    let before = pair.ends[1].word(INBOX);
    let mut packet = pair.log.iter().find(|sent| sent.from == 0).expect("the request was sent").packet;
    let Body::PullRequest { psn, rsn, length, .. } = &mut packet.body else { panic!("atomics are Pulls") };
    (*psn, *rsn, *length) = (Psn32::new(psn.value().wrapping_add(1)), Psn32::new(rsn.value().wrapping_add(1)), 1);
    pair.deliver(1, &packet, FlowLabel::new(0), &[]);
    pair.log.clear();
    pair.run_for(Duration::from_us(100));
    assert_eq!(pair.ends[1].word(INBOX), before);
    let answered = pair.log.iter().any(|sent| sent.packet.body.packet_type() == PacketType::PullData);
    assert!(answered, "the refusal is not reported");
}
