//! Unreliable datagrams: each message is one packet, goes to any queue pair whose queue key it carries, and is
//! delivered completely or not at all.
//!
//! Source: InfiniBand Architecture volume 1, sections 9.8.3 (validation), 10.2.5 (queue keys), 10.3.1 (states); annex
//! A17.4.5 (the 40 bytes before the data); the manual pages of `ibv_post_send` and `ibv_poll_cq`.

mod common;

use common::*;
use rnic_base::{Duration, Psn, Time};
use rnic_engine::*;
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

/// Offset that datagrams are received at.
const TARGET: u64 = 500_000;
const GRH_BYTES: usize = GRH_LEN as usize;

fn setup() -> Setup {
    Setup { service: Service::UnreliableDatagram, ..Setup::new("irn", &[]) }
}

fn pair() -> Pair {
    Pair::new(&setup())
}

fn to(qpn: Qpn, qkey: u32) -> DatagramAddress {
    DatagramAddress { peer: PeerId(7), qpn, qkey, mark: 0 }
}

/// Posts a datagram of `len` bytes from the left to the right side; each datagram has different contents.
fn post(pair: &mut Pair, wr_id: u64, len: u32, immediate: Option<u32>) {
    let op = SendOp::Datagram { to: to(pair.right.qpn, QKEY), immediate };
    let sge = pair.left.sge(wr_id * 100, len);
    pair.left.post(wr_id, op, &[sge]);
}

fn receive_into(pair: &mut Pair, wr_id: u64, len: u32) {
    let sge = pair.right.sge(TARGET + wr_id * 8_192, len);
    pair.right.post_recv(wr_id, &[sge]);
}

/// Returns a packet for the right side as an attacker could forge it.
fn forged(pair: &Pair, queue_key: u32, len: u32) -> Packet {
    let headers = Headers::Datagram { queue_key, source_qpn: Qpn::new(0x77), immediate: None };
    Packet { dest_qpn: pair.right.qpn, psn: Psn::new(1), flags: PacketFlags::default(), payload_len: len, headers }
}

fn inject(pair: &mut Pair, format: Format, peer: u32, packet: &Packet) -> RxOutcome {
    let meta = RxMeta { peer: PeerId(peer), congested: false };
    pair.right.receive(Time::ZERO, format, packet, meta, &vec![0xa5; packet.payload_len as usize])
}

fn drops(side: &Side, reason: DropReason) -> u64 {
    side.engine.stats().drops[reason as usize]
}

#[test]
fn a_datagram_is_placed_after_its_global_route_header() {
    for len in [0, 1, 40, MTU - 1, MTU] {
        let mut pair = pair();
        let (first, second) = (pair.right.sge(TARGET, 60), pair.right.sge(TARGET + 1_000, 4_000));
        pair.right.post_recv(10, &[first, second]);
        post(&mut pair, 1, len, Some(0xfeed));
        pair.run();
        assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
        let completion = Completion {
            wr_id: 10,
            qpn: pair.right.qpn,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: GRH_LEN + len,
            word: 0xfeed,
            flags: WcFlags::WITH_IMM | WcFlags::GRH,
            source: pair.left.qpn,
        };
        assert_eq!(pair.right.completions(), [completion]);
        let target = TARGET as usize;
        let memory = &pair.right.memory;
        let received = [&memory[target..target + 60], &memory[target + 1_000..target + 5_000]].concat();
        assert_eq!(received[..GRH_BYTES], GRH);
        assert_eq!(received[GRH_BYTES..GRH_BYTES + len as usize], pair.left.memory[100..100 + len as usize]);
        assert_eq!(received[GRH_BYTES + len as usize..][..8], memory_before(target, len as usize)[..8]);
    }
}

/// Returns the initial memory contents after a datagram of `len` bytes, in the layout of the test above.
fn memory_before(target: usize, len: usize) -> Vec<u8> {
    let fresh = pair().right.memory;
    [&fresh[target..target + 60], &fresh[target + 1_000..target + 5_000]].concat()[GRH_BYTES + len..].to_vec()
}

#[test]
fn sends_complete_when_transmitted_and_are_never_retransmitted() {
    let mut pair = pair();
    pair.wire(|_| Fate::Drop);
    for wr_id in 0..20 {
        post(&mut pair, wr_id, 100, None);
    }
    pair.run();
    let sent: Vec<_> = (0..20).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(pair.left.statuses(), sent, "a lost datagram does not complete");
    assert_eq!(pair.log.len(), 20, "a datagram is retransmitted");
    assert!(pair.log.iter().all(|sent| sent.kind == TransmitKind::Request && !sent.packet.flags.ack_request));
    let numbers = pair.data_of(From::Left, setup().psn);
    assert_eq!(numbers, (0..20).map(|number| (number, false)).collect::<Vec<_>>(), "wrong PSNs across the wrap");
    assert_eq!(pair.left.engine.next_timeout(), None, "a timer is armed");
}

#[test]
fn only_signalled_sends_produce_completions() {
    let mut pair = Pair::new(&Setup { signal_all: false, ..setup() });
    for wr_id in 0..4 {
        receive_into(&mut pair, wr_id, 200);
        let flags = if wr_id % 2 == 1 { SendFlags::SIGNALED | SendFlags::SOLICITED } else { SendFlags::empty() };
        let op = SendOp::Datagram { to: to(pair.right.qpn, QKEY), immediate: None };
        let sges = [pair.left.sge(0, 10)];
        pair.left.engine.post_send(pair.left.qpn, &SendRequest { wr_id, op, sges: &sges, flags }).expect("not full");
    }
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (3, WcStatus::Success)]);
    let solicited = pair.right.completions().iter().map(|c| c.flags.contains(WcFlags::SOLICITED)).collect::<Vec<_>>();
    assert_eq!(solicited, [false, true, false, true]);
}

#[test]
fn only_datagrams_with_the_right_queue_key_are_accepted() {
    let mut pair = pair();
    receive_into(&mut pair, 0, 200);
    let wrong = SendOp::Datagram { to: to(pair.right.qpn, QKEY + 1), immediate: None };
    let sge = pair.left.sge(0, 10);
    pair.left.post(1, wrong, &[sge]);
    pair.run();
    assert_eq!((pair.left.statuses().len(), pair.right.completions().len()), (1, 0));
    assert_eq!(drops(&pair.right, DropReason::QueueKey), 1);
    // A request cannot set a privileged key: the packet carries the queue pair's own key instead.
    let privileged = SendOp::Datagram { to: to(pair.right.qpn, 0x8000_0000), immediate: None };
    pair.left.post(2, privileged, &[sge]);
    pair.run();
    assert_eq!(pair.right.statuses(), [(0, WcStatus::Success)]);
    // A request can set a key that is not privileged, whatever the queue pair's own key is.
    receive_into(&mut pair, 1, 200);
    pair.left.engine.set_qkey(pair.left.qpn, 5).expect("a key");
    post(&mut pair, 3, 10, None);
    pair.left.post(4, privileged, &[sge]);
    pair.run();
    assert_eq!(pair.right.statuses(), [(1, WcStatus::Success)]);
    assert_eq!(drops(&pair.right, DropReason::QueueKey), 2);
    assert_eq!(pair.left.info().qkey, 5);
}

#[test]
fn datagrams_without_a_large_enough_receive_are_dropped_and_consume_none() {
    let mut pair = pair();
    post(&mut pair, 0, 100, None);
    pair.run();
    assert_eq!(drops(&pair.right, DropReason::ReceiverNotReady), 1, "no receive");
    receive_into(&mut pair, 7, GRH_LEN + 100);
    post(&mut pair, 1, 101, None);
    pair.run();
    assert_eq!(drops(&pair.right, DropReason::Refused), 1, "a byte too long");
    post(&mut pair, 2, 100, None);
    pair.run();
    assert_eq!(pair.right.completions().iter().map(|c| (c.wr_id, c.byte_len)).collect::<Vec<_>>(), [(7, 140)]);
    assert_eq!(pair.right.info().state, QpState::ReadyToSend);
    let place = (TARGET + 7 * 8_192) as usize + GRH_BYTES;
    assert_eq!(pair.right.memory[place..place + 100], pair.left.memory[200..300]);
}

#[test]
fn datagrams_are_accepted_from_any_peer_and_other_packets_from_none() {
    let mut pair = pair();
    for wr_id in 0..3 {
        receive_into(&mut pair, wr_id, 200);
    }
    let good = forged(&pair, QKEY, 8);
    for peer in [0, 7, 4_000_000_000] {
        assert_eq!(inject(&mut pair, Format::UnreliableDatagram, peer, &good), RxOutcome::Accepted);
    }
    let sources: Vec<_> = pair.right.completions().iter().map(|c| (c.wr_id, c.source.get())).collect();
    assert_eq!(sources, [(0, 0x77), (1, 0x77), (2, 0x77)]);
    receive_into(&mut pair, 9, 200);
    for format in [Format::RoceV2, Format::Irn, Format::UnreliableConnection] {
        let outcome = inject(&mut pair, format, 7, &good);
        assert_eq!(outcome, RxOutcome::Dropped(DropReason::WrongFormat), "{format:?}");
    }
    let others = [
        Headers::Cnp,
        Headers::Send { position: rnic_wire::Position::Only, tail: rnic_wire::SendTail::Plain, placement: None },
    ];
    for headers in others {
        let outcome = inject(&mut pair, Format::UnreliableDatagram, 7, &Packet { headers, ..good });
        assert_eq!(outcome, RxOutcome::Dropped(DropReason::WrongFormat), "{headers:?}");
    }
    let huge = Packet { payload_len: u32::MAX, ..good };
    let meta = RxMeta { peer: PeerId(1), congested: true };
    let outcome = pair.right.receive(Time::ZERO, Format::UnreliableDatagram, &huge, meta, &[]);
    assert_eq!(outcome, RxOutcome::Dropped(DropReason::Refused), "a length that wraps");
    assert!(pair.right.completions().is_empty());
}

/// Checks that a connected queue pair rejects datagrams and their attributes.
#[test]
fn connected_queue_pairs_reject_datagrams() {
    for service in [Service::ReliableConnection, Service::UnreliableConnection] {
        let mut pair = Pair::new(&Setup { service, ..setup() });
        receive_into(&mut pair, 0, 200);
        let packet = forged(&pair, 0, 8);
        let outcome = inject(&mut pair, Format::UnreliableDatagram, 7, &packet);
        assert_eq!(outcome, RxOutcome::Dropped(DropReason::WrongFormat), "{service:?}");
        let op = SendOp::Datagram { to: to(pair.right.qpn, QKEY), immediate: None };
        let request = SendRequest { wr_id: 1, op, sges: &[], flags: SendFlags::empty() };
        assert_eq!(pair.left.engine.post_send(pair.left.qpn, &request), Err(PostError::Unsupported(service)));
        assert_eq!(pair.left.engine.set_qkey(pair.left.qpn, 1), Err(ModifyError::Service(service)));
        let qpn = pair.left.qpn;
        pair.left.engine.modify_to_reset(qpn).expect("legal in every state");
        pair.left.engine.modify_to_init(qpn).expect("from reset");
        let refused = pair.left.engine.modify_to_rtr_unconnected(qpn, MTU);
        assert_eq!(refused, Err(ModifyError::Service(service)));
        assert_eq!(pair.left.info().state, QpState::Init);
    }
}

#[test]
fn unsupported_requests_cannot_be_posted() {
    let mut pair = pair();
    let (qpn, right) = (pair.left.qpn, pair.right.qpn);
    let (remote, sge) = (pair.right.remote(0), pair.left.sge(0, 8));
    let mut post = |op, sge| {
        let request = SendRequest { wr_id: 1, op, sges: &[sge], flags: SendFlags::empty() };
        pair.left.engine.post_send(qpn, &request)
    };
    let unsupported = Err(PostError::Unsupported(Service::UnreliableDatagram));
    assert_eq!(post(SendOp::Send { immediate: None }, sge), unsupported);
    assert_eq!(post(SendOp::Write { remote, immediate: Some(1) }, sge), unsupported);
    assert_eq!(post(SendOp::Read { remote }, sge), unsupported);
    assert_eq!(post(SendOp::FetchAdd { remote, add: 1 }, sge), unsupported);
    let datagram = |qpn| SendOp::Datagram { to: to(qpn, QKEY), immediate: None };
    let long = Sge { len: MTU + 1, ..sge };
    let too_long = PostError::DatagramTooLong { bytes: u64::from(MTU) + 1, mtu: MTU };
    assert_eq!(post(datagram(right), long), Err(too_long));
    for management in [0, 1] {
        let number = Qpn::new(management);
        assert_eq!(post(datagram(number), sge), Err(PostError::Destination(number)));
    }
    assert_eq!(post(datagram(right), sge), Ok(()));
    assert_eq!(pair.left.info().state, QpState::ReadyToSend);
}

#[test]
fn state_changes_need_no_peer() {
    let mut pair = pair();
    let (qpn, engine) = (pair.left.qpn, &mut pair.left.engine);
    let op = SendOp::Datagram { to: to(pair.right.qpn, QKEY), immediate: None };
    let request = SendRequest { wr_id: 1, op, sges: &[], flags: SendFlags::SIGNALED };
    engine.modify_to_reset(qpn).expect("legal in every state");
    assert_eq!(engine.query_qp(qpn).map(|info| info.qkey), Some(0), "the queue key is not cleared");
    engine.modify_to_init(qpn).expect("from reset");
    let connected = engine.modify_to_rtr(qpn, &connection(&setup(), Qpn::new(9)));
    assert_eq!(connected, Err(ModifyError::Service(Service::UnreliableDatagram)));
    for mtu in [0, 255, 257, 8_196] {
        assert!(matches!(engine.modify_to_rtr_unconnected(qpn, mtu), Err(ModifyError::Attribute { .. })), "{mtu}");
    }
    assert_eq!(engine.post_send(qpn, &request), Err(PostError::State(QpState::Init)));
    engine.modify_to_rtr_unconnected(qpn, 256).expect("from init");
    assert_eq!(engine.post_send(qpn, &request), Err(PostError::State(QpState::ReadyToReceive)));
    engine.modify_to_rts(Time::ZERO, qpn, &timing(&setup())).expect("from ready to receive");
    assert_eq!(engine.post_send(qpn, &request), Ok(()));
    engine.modify_to_sqd(qpn).expect("from ready to send");
    assert_eq!(engine.objects_mut().poll_event(), Some(AsyncEvent::SendQueueDrained(qpn)), "not drained at once");
    assert!(engine.transmit(Time::ZERO).is_none(), "a drained queue pair sends");
    engine.modify_to_rts(Time::ZERO, qpn, &timing(&setup())).expect("from drained");
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn datagrams_are_accepted_only_in_receiving_states() {
    let mut pair = pair();
    let qpn = pair.right.qpn;
    let good = forged(&pair, QKEY, 8);
    let state = RxOutcome::Dropped(DropReason::State);
    pair.right.engine.modify_to_error(qpn).expect("legal in every state");
    assert_eq!(inject(&mut pair, Format::UnreliableDatagram, 7, &good), state);
    pair.right.engine.modify_to_reset(qpn).expect("legal in every state");
    assert_eq!(inject(&mut pair, Format::UnreliableDatagram, 7, &good), state);
    pair.right.engine.modify_to_init(qpn).expect("from reset");
    receive_into(&mut pair, 3, 100);
    assert_eq!(inject(&mut pair, Format::UnreliableDatagram, 7, &good), state);
    pair.right.engine.modify_to_rtr_unconnected(qpn, MTU).expect("from init");
    pair.right.engine.set_qkey(qpn, QKEY).expect("a key");
    assert_eq!(inject(&mut pair, Format::UnreliableDatagram, 7, &good), RxOutcome::Accepted);
    assert_eq!(pair.right.statuses(), [(3, WcStatus::Success)]);
    assert_eq!(pair.right.engine.objects_mut().poll_event(), None, "an event is raised");
}

#[test]
fn an_invalid_local_key_stops_the_send_queue_only() {
    let mut pair = pair();
    receive_into(&mut pair, 0, 200);
    receive_into(&mut pair, 1, 200);
    let good = pair.left.sge(0, 10);
    let op = SendOp::Datagram { to: to(pair.right.qpn, QKEY), immediate: None };
    for (wr_id, lkey) in [(0, good.lkey), (1, good.lkey ^ 1), (2, good.lkey)] {
        pair.left.post(wr_id, op, &[Sge { lkey, ..good }]);
    }
    pair.run();
    let expected = [(0, WcStatus::Success), (1, WcStatus::LocalProtection), (2, WcStatus::WrFlushed)];
    assert_eq!(pair.left.statuses(), expected);
    assert_eq!(pair.left.info().state, QpState::SendQueueError);
    pair.left.post(3, op, &[good]);
    assert_eq!(pair.left.statuses(), [(3, WcStatus::WrFlushed)], "the request is not flushed");
    // The queue pair still receives.
    let sge = pair.left.sge(TARGET, 200);
    pair.left.post_recv(50, &[sge]);
    let back = SendOp::Datagram { to: to(pair.left.qpn, QKEY), immediate: None };
    let sge = pair.right.sge(0, 10);
    pair.right.post(60, back, &[sge]);
    pair.run();
    assert_eq!(pair.left.statuses(), [(50, WcStatus::Success)]);
    pair.left.engine.modify_to_rts(pair.now, pair.left.qpn, &timing(&setup())).expect("from send queue error");
    pair.left.post(4, op, &[good]);
    pair.run();
    assert_eq!(pair.left.statuses(), [(4, WcStatus::Success)]);
    assert_eq!(pair.right.statuses(), [(0, WcStatus::Success), (60, WcStatus::Success), (1, WcStatus::Success)]);
}

#[test]
fn a_receive_with_an_invalid_key_fails_the_queue_pair() {
    let mut pair = pair();
    let good = pair.right.sge(TARGET, 200);
    pair.right.post_recv(0, &[Sge { lkey: good.lkey ^ 1, ..good }]);
    pair.right.post_recv(1, &[good]);
    post(&mut pair, 0, 10, None);
    post(&mut pair, 1, 10, None);
    pair.run();
    assert_eq!(pair.right.statuses(), [(0, WcStatus::LocalProtection), (1, WcStatus::WrFlushed)]);
    assert_eq!(pair.right.info().state, QpState::Error);
    assert_eq!(drops(&pair.right, DropReason::State), 1);
}

#[test]
fn the_error_state_flushes_both_queues() {
    let mut pair = pair();
    let qpn = pair.left.qpn;
    pair.left.engine.modify_to_sqd(qpn).expect("from ready to send");
    post(&mut pair, 0, 10, None);
    let sge = pair.left.sge(TARGET, 100);
    pair.left.post_recv(10, &[sge]);
    pair.left.engine.modify_to_error(qpn).expect("legal in every state");
    post(&mut pair, 1, 10, None);
    pair.left.post_recv(11, &[sge]);
    pair.run();
    let flushed = |wr_id| (wr_id, WcStatus::WrFlushed);
    assert_eq!(pair.left.statuses(), [0, 10, 1, 11].map(flushed));
    assert!(pair.log.is_empty());
}

#[test]
fn receives_may_be_taken_from_a_shared_receive_queue() {
    let mut pair = Pair::new(&Setup { srq: Some(8), ..setup() });
    let srq = pair.right.srq.expect("the setup has an SRQ");
    pair.right.engine.objects_mut().set_srq_limit(srq, 1).expect("it exists");
    for wr_id in 0..2 {
        let sges = [pair.right.sge(TARGET + wr_id * 1_000, 200)];
        pair.right.engine.objects_mut().post_srq_recv(srq, &RecvRequest { wr_id, sges: &sges }).expect("not full");
    }
    for wr_id in 0..3 {
        post(&mut pair, wr_id, 50, None);
    }
    pair.run();
    assert_eq!(pair.right.statuses(), [(0, WcStatus::Success), (1, WcStatus::Success)]);
    assert_eq!(drops(&pair.right, DropReason::ReceiverNotReady), 1);
    let event = std::iter::from_fn(|| pair.right.engine.objects_mut().poll_event()).collect::<Vec<_>>();
    assert_eq!(event, [AsyncEvent::SrqLimitReached(srq)]);
}

/// Checks that congestion marks do not delay datagrams.
#[test]
fn congestion_marks_do_not_delay_datagrams() {
    let mut pair =
        Pair::new(&Setup { service: Service::UnreliableDatagram, ..Setup::new("irn", &[("control", "dcqcn")]) });
    pair.wire(|_| Fate::Marked);
    for wr_id in 0..10 {
        receive_into(&mut pair, wr_id, 200);
        post(&mut pair, wr_id, 50, None);
    }
    pair.run_until(pair.now + Duration::from_us(6));
    assert_eq!(pair.right.completions().len(), 10);
    assert!(pair.log.iter().all(|sent| sent.from == From::Left), "the receiver sends packets");
}

#[test]
fn a_completion_queue_overrun_fails_its_queue_pairs() {
    let mut pair = Pair::new(&Setup { completions: 2, ..setup() });
    for wr_id in 0..3 {
        receive_into(&mut pair, wr_id, 200);
    }
    let good = forged(&pair, QKEY, 8);
    for _ in 0..3 {
        inject(&mut pair, Format::UnreliableDatagram, 7, &good);
    }
    assert_eq!(pair.right.info().state, QpState::Error);
    for wr_id in 0..3 {
        post(&mut pair, wr_id, 10, None);
    }
    pair.run();
    assert_eq!(pair.left.info().state, QpState::Error);
}
