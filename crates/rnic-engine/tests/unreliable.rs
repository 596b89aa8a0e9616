//! Unreliable connections: a message is delivered completely and in order, or not at all, and the sender gets no
//! notice.
//!
//! Source: InfiniBand Architecture volume 1, section 9.8.2 (validation at the responder), 9.9 (errors), 10.3.1
//! (states).

mod common;

#[path = "unreliable/chaos.rs"]
mod chaos;
#[path = "unreliable/hostile.rs"]
mod hostile;

use common::*;
use rnic_base::{Duration, Psn};
use rnic_engine::*;
use rnic_wire::{Format, Headers};

/// Offset in memory that Writes and Sends go to.
const TARGET: u64 = 500_000;

fn setup() -> Setup {
    Setup { service: Service::UnreliableConnection, ..Setup::new("irn", &[]) }
}

fn pair() -> Pair {
    Pair::new(&setup())
}

fn send(pair: &mut Pair, wr_id: u64, len: u32) {
    let sge = pair.left.sge(wr_id * 10, len);
    pair.left.post(wr_id, SendOp::Send { immediate: None }, &[sge]);
}

fn write(pair: &mut Pair, wr_id: u64, len: u32, immediate: Option<u32>) {
    let (sge, remote) = (pair.left.sge(wr_id * 10, len), pair.right.remote(TARGET + wr_id * 8_192));
    pair.left.post(wr_id, SendOp::Write { remote, immediate }, &[sge]);
}

fn receive(pair: &mut Pair, wr_id: u64, len: u32) {
    let sge = pair.right.sge(TARGET + wr_id * 8_192, len);
    pair.right.post_recv(wr_id, &[sge]);
}

/// Returns `true` if slot `place` of the right side's memory contains the `len` bytes that message `wr_id` of the
/// left side sends.
fn holds(pair: &Pair, place: u64, wr_id: u64, len: usize) -> bool {
    let (at, from) = ((TARGET + place * 8_192) as usize, wr_id as usize * 10);
    pair.right.memory[at..at + len] == pair.left.memory[from..from + len]
}

fn drops(side: &Side, reason: DropReason) -> u64 {
    side.engine.stats().drops[reason as usize]
}

fn sent(wr_ids: std::ops::Range<u64>) -> Vec<(u64, WcStatus)> {
    wr_ids.map(|wr_id| (wr_id, WcStatus::Success)).collect()
}

#[test]
fn messages_of_any_length_arrive() {
    for len in [0, 1, MTU - 1, MTU, MTU + 1, 5_000] {
        let mut pair = pair();
        receive(&mut pair, 0, 5_000);
        receive(&mut pair, 1, 0);
        send(&mut pair, 0, len);
        write(&mut pair, 2, len, None);
        write(&mut pair, 3, len, Some(0xbeef));
        pair.run();
        let left = pair.left.completions();
        let opcodes: Vec<_> = left.iter().map(|c| (c.wr_id, c.status, c.opcode)).collect();
        let success = WcStatus::Success;
        let expected =
            [(0, success, WcOpcode::Send), (2, success, WcOpcode::RdmaWrite), (3, success, WcOpcode::RdmaWrite)];
        assert_eq!(opcodes, expected, "{len}");
        let right = pair.right.completions();
        let received: Vec<_> = right.iter().map(|c| (c.wr_id, c.opcode, c.byte_len, c.word, c.flags)).collect();
        let expected = [
            (0, WcOpcode::Recv, len, 0, WcFlags::empty()),
            (1, WcOpcode::RecvRdmaWithImm, len, 0xbeef, WcFlags::WITH_IMM),
        ];
        assert_eq!(received, expected, "{len}");
        let bytes = len as usize;
        assert!(holds(&pair, 0, 0, bytes) && holds(&pair, 2, 2, bytes) && holds(&pair, 3, 3, bytes), "{len}");
        assert_eq!(pair.right.info().msn, 3);
        assert!(pair.log.iter().all(|sent| sent.from == From::Left), "the receiver sends packets");
    }
}

#[test]
fn no_packet_requests_an_acknowledgement_and_no_send_waits_for_one() {
    for transport in ["roce-gbn", "irn"] {
        let mut pair = Pair::new(&Setup { transport: Setup::new(transport, &[]).transport, ..setup() });
        pair.wire(|_| Fate::Drop);
        for wr_id in 0..100 {
            write(&mut pair, wr_id, 2_500, None);
        }
        pair.run();
        assert_eq!(pair.left.statuses(), sent(0..100), "a lost message does not complete");
        assert_eq!(pair.log.len(), 300);
        let quiet = |sent: &Sent| !sent.packet.flags.ack_request && sent.kind == TransmitKind::Request;
        assert!(pair.log.iter().all(quiet));
        assert_eq!((pair.now, pair.left.engine.next_timeout()), (rnic_base::Time::ZERO, None));
    }
}

#[test]
fn a_send_completes_with_its_last_packet() {
    let mut pair = pair();
    let now = pair.now;
    send(&mut pair, 0, 2 * MTU + 1);
    for packets in 1..=3 {
        let transmit = *pair.left.engine.transmit(now).and_then(Departure::roce).expect("three packets");
        assert_eq!((transmit.format, transmit.peer), (Format::UnreliableConnection, PeerId(7)));
        assert_eq!(pair.left.statuses().len(), usize::from(packets == 3), "after packet {packets}");
    }
    assert!(pair.left.engine.transmit(now).is_none());
}

/// Whichever packet of the middle message is lost, the messages before and after it arrive, and the next one uses its
/// receive.
#[test]
fn a_lost_packet_loses_its_whole_message() {
    for lost in 0..3 {
        let mut pair = pair();
        pair.wire(drop_requests(setup().psn, &[(3 + lost, 0)]));
        for wr_id in 0..3 {
            receive(&mut pair, wr_id, 5_000);
            send(&mut pair, wr_id, 2 * MTU + 10);
        }
        pair.run();
        assert_eq!(pair.left.statuses(), sent(0..3));
        let bytes = 2 * MTU + 10;
        let received: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.status, c.byte_len)).collect();
        assert_eq!(received, [(0, WcStatus::Success, bytes), (1, WcStatus::Success, bytes)], "packet {lost}");
        assert!(holds(&pair, 0, 0, bytes as usize) && holds(&pair, 1, 2, bytes as usize), "packet {lost}");
        let after = u64::try_from(2 - lost).expect("positive");
        assert_eq!(drops(&pair.right, DropReason::OutOfOrder), after, "not the packets after the loss in its message");
        assert_eq!(pair.right.info().state, QpState::ReadyToSend);
    }
}

#[test]
fn a_lost_write_never_completes_its_receive() {
    for lost in 0..3 {
        let mut pair = pair();
        pair.wire(drop_requests(setup().psn, &[(lost, 0)]));
        receive(&mut pair, 9, 0);
        write(&mut pair, 0, 2 * MTU + 10, Some(1));
        write(&mut pair, 1, 100, Some(2));
        pair.run();
        let received: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.word, c.byte_len)).collect();
        assert_eq!(received, [(9, 2, 100)], "packet {lost}");
        // The packets before the lost one are written; an unreliable Write promises no more than that.
        assert!(holds(&pair, 0, 0, usize::try_from(lost).expect("positive") * MTU as usize));
    }
}

/// A copy, or a message that later ones have overtaken, is not delivered.
#[test]
fn late_packets_and_duplicates_are_dropped() {
    let mut pair = pair();
    let first = setup().psn;
    pair.wire(move |sent| match first.distance_to(sent.packet.psn) {
        0 => Fate::TwiceLate(Duration::from_us(40)),
        2 => Fate::Late(Duration::from_us(30)),
        _ => Fate::Deliver,
    });
    for wr_id in 0..4 {
        receive(&mut pair, wr_id, 100);
        send(&mut pair, wr_id, 50);
    }
    pair.run();
    assert_eq!(pair.right.statuses(), sent(0..3));
    assert!(holds(&pair, 0, 0, 50) && holds(&pair, 1, 1, 50) && holds(&pair, 2, 3, 50));
    assert_eq!(pair.right.engine.stats().packets_duplicate, 2);
}

/// Checks that packets whose sequence numbers have advanced by nearly a full circle are still accepted.
#[test]
fn packets_far_ahead_of_the_expected_psn_are_accepted() {
    for (ahead, delivered) in [(1, true), (1 << 23, true), ((1 << 24) - (1 << 16) - 2, true), ((1 << 24) - 2, false)] {
        let mut pair = pair();
        let (qpn, dest) = (pair.left.qpn, pair.right.qpn);
        let jump = Setup { psn: Psn::new(setup().psn.value() + ahead), ..setup() };
        receive(&mut pair, 0, 100);
        receive(&mut pair, 1, 100);
        send(&mut pair, 0, 10);
        pair.run();
        pair.left.engine.modify_to_reset(qpn).expect("legal in every state");
        pair.left.connect_qp(qpn, &jump, dest);
        send(&mut pair, 1, 10);
        pair.run();
        assert_eq!(pair.right.completions().len(), 1 + usize::from(delivered), "{ahead}");
    }
}

#[test]
fn messages_that_the_responder_refuses_are_dropped_silently() {
    let mut pair = pair();
    let remote = pair.right.remote(TARGET);
    let read_only = {
        let pd = pair.right.pd;
        let region = MemoryRegion { pd, addr: BASE, len: 8_192, local: 0, access: Access::REMOTE_READ };
        RemoteMemory { addr: BASE, rkey: pair.right.engine.objects_mut().register(region).expect("legal").0 }
    };
    let end = RemoteMemory { addr: BASE + MEMORY as u64 - 10, ..remote };
    let bad = [RemoteMemory { rkey: remote.rkey ^ 1, ..remote }, read_only, end];
    receive(&mut pair, 0, 5_000);
    for (wr_id, remote) in (0..).zip(bad) {
        let sge = pair.left.sge(0, 3_000);
        pair.left.post(wr_id, SendOp::Write { remote, immediate: Some(1) }, &[sge]);
    }
    pair.right.memory.fill(0);
    // Neither the first nor the last of these is delivered: the first is too long, and for the last one no receive is
    // left.
    send(&mut pair, 3, 5_001);
    send(&mut pair, 4, 5_000);
    send(&mut pair, 5, 10);
    pair.run();
    assert_eq!(pair.left.statuses(), sent(0..6));
    assert_eq!(pair.right.completions().iter().map(|c| (c.wr_id, c.byte_len)).collect::<Vec<_>>(), [(0, 5_000)]);
    assert!(holds(&pair, 0, 4, 5_000));
    assert_eq!(pair.right.info().state, QpState::ReadyToSend);
    let (refused, not_ready) =
        (drops(&pair.right, DropReason::Refused), drops(&pair.right, DropReason::ReceiverNotReady));
    assert_eq!((refused, not_ready), (4, 1));
    assert!(pair.right.memory[..TARGET as usize].iter().all(|byte| *byte == 0), "a refused Write has changed memory");
    let events: Vec<_> = std::iter::from_fn(|| pair.right.engine.objects_mut().poll_event()).collect();
    assert_eq!(events, []);
}

#[test]
fn the_rights_of_the_queue_pair_are_checked() {
    let mut pair = pair();
    let qpn = pair.right.qpn;
    pair.right.engine.set_access(qpn, Access::all() - Access::REMOTE_WRITE).expect("it exists");
    write(&mut pair, 0, 100, None);
    write(&mut pair, 1, 0, None);
    pair.run();
    assert_eq!(drops(&pair.right, DropReason::Refused), 2);
    pair.right.engine.set_access(qpn, Access::REMOTE_WRITE).expect("it exists");
    write(&mut pair, 2, 100, None);
    pair.run();
    assert!(holds(&pair, 2, 2, 100));
    assert_eq!(pair.right.info().access, Access::REMOTE_WRITE);
}

#[test]
fn unsupported_requests_cannot_be_posted() {
    let mut pair = pair();
    let (qpn, remote, sge) = (pair.left.qpn, pair.right.remote(0), pair.left.sge(0, 8));
    let unsupported = [
        SendOp::Read { remote },
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::CompareSwap { remote, compare: 0, swap: 1 },
        SendOp::SendInvalidate { rkey: 1 },
    ];
    for op in unsupported {
        let request = SendRequest { wr_id: 1, op, sges: &[sge], flags: SendFlags::empty() };
        let refused = Err(PostError::Unsupported(Service::UnreliableConnection));
        assert_eq!(pair.left.engine.post_send(qpn, &request), refused, "{op:?}");
    }
    assert_eq!(pair.left.info().state, QpState::ReadyToSend);
}

/// Any packet of the message may be the one that fails: packets before it have left, and are not delivered.
#[test]
fn an_invalid_local_key_stops_the_send_queue_only() {
    for bad in 0..3 {
        let mut pair = pair();
        for wr_id in 0..3 {
            receive(&mut pair, wr_id, 5_000);
        }
        send(&mut pair, 0, 10);
        let mut sges: Vec<Sge> = (0..3).map(|part| pair.left.sge(part * 2_000, MTU)).collect();
        sges[bad].lkey ^= 1;
        pair.left.post(1, SendOp::Send { immediate: None }, &sges);
        send(&mut pair, 2, 10);
        pair.run();
        let expected = [(0, WcStatus::Success), (1, WcStatus::LocalProtection), (2, WcStatus::WrFlushed)];
        assert_eq!(pair.left.statuses(), expected, "part {bad}");
        assert_eq!(pair.left.info().state, QpState::SendQueueError);
        pair.left.engine.modify_to_rts(pair.now, pair.left.qpn, &timing(&setup())).expect("from send queue error");
        send(&mut pair, 3, 20);
        pair.run();
        assert_eq!(pair.left.statuses(), [(3, WcStatus::Success)]);
        let received: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.byte_len)).collect();
        assert_eq!(received, [(0, 10), (1, 20)], "part {bad}");
        assert!(holds(&pair, 1, 3, 20));
    }
}

#[test]
fn a_draining_send_queue_finishes_the_message_in_flight() {
    let mut pair = pair();
    let qpn = pair.left.qpn;
    send(&mut pair, 0, 3 * MTU);
    send(&mut pair, 1, 10);
    assert!(pair.left.engine.transmit(pair.now).is_some());
    pair.left.engine.modify_to_sqd(qpn).expect("from ready to send");
    assert_eq!(pair.left.engine.objects_mut().poll_event(), None, "drained with a message in flight");
    pair.run();
    assert_eq!(pair.left.statuses(), [(0, WcStatus::Success)]);
    assert_eq!(pair.left.engine.objects_mut().poll_event(), Some(AsyncEvent::SendQueueDrained(qpn)));
    pair.left.engine.modify_to_rts(pair.now, qpn, &timing(&setup())).expect("from drained");
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn a_receive_of_a_shared_receive_queue_is_reused_after_a_lost_message() {
    let mut pair = Pair::new(&Setup { srq: Some(8), ..setup() });
    let srq = pair.right.srq.expect("the setup has an SRQ");
    pair.wire(drop_requests(setup().psn, &[(1, 0)]));
    for wr_id in 0..2 {
        let sges = [pair.right.sge(TARGET + wr_id * 8_192, 5_000)];
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &sges }).expect("not full");
    }
    for wr_id in 0..3 {
        send(&mut pair, wr_id, 2 * MTU);
    }
    pair.run();
    assert_eq!(pair.right.statuses(), sent(0..2));
    assert!(holds(&pair, 0, 1, 2_048) && holds(&pair, 1, 2, 2_048));
    assert_eq!(pair.right.engine.objects().srq_level(srq), Some(0));
}

/// Checks that the first packet raises the event for a program that waits in `ReadyToReceive`.
#[test]
fn the_first_packet_raises_the_communication_established_event() {
    let mut pair = pair();
    let qpn = pair.right.qpn;
    let dest = pair.left.qpn;
    pair.right.engine.modify_to_reset(qpn).expect("legal in every state");
    pair.right.engine.modify_to_init(qpn).expect("from reset");
    pair.right.engine.modify_to_rtr(qpn, &connection(&setup(), dest)).expect("from init");
    write(&mut pair, 0, 10, None);
    write(&mut pair, 1, 10, None);
    pair.run();
    assert_eq!(pair.right.engine.objects_mut().poll_event(), Some(AsyncEvent::CommunicationEstablished(qpn)));
    assert_eq!(pair.right.engine.objects_mut().poll_event(), None);
    assert!(holds(&pair, 1, 1, 10));
    let starts = |sent: &Sent| matches!(sent.packet.headers, Headers::Write { reth: Some(_), recv_sn: None, .. });
    assert!(pair.log.iter().all(starts));
}
