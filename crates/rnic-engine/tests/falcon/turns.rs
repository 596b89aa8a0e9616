//! A request that is not executed still has its position in the order: it has no effect before its turn, and after
//! its turn it does not block later requests.

use rnic_base::{Duration, Psn32};
use rnic_engine::*;
use rnic_wire::falcon::rdma::Operation;
use rnic_wire::falcon::{
    Acknowledgement, Body, Cid, FlowLabel, OutOfWindow, Packet, Timestamp, Ulp, UlpProtocol, WindowBases,
};

use crate::common::{BASE, DELIVERED, INBOX, LOST, MEMORY, Pair, Setup};

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

/// The local memory of a Write is deregistered while the Send before it waits for a receive or is lost again and
/// again. The Write fails for that reason, but not before the Send has completed successfully. Where the Write's own
/// packet is lost, a Resync is the only packet of it that reaches the peer.
#[test]
fn f8_a_resync_takes_effect_in_order() {
    for (ordering, errors) in
        [("ordered", "verbs"), ("ordered", "complete-in-error"), ("weak", "verbs"), ("weak", "complete-in-error")]
    {
        for [send_lost, write_lost] in [[false, false], [false, true], [true, true]] {
            // With weak ordering, a Write that has arrived is executed.
            if write_lost || ordering == "ordered" {
                resync_in_its_turn(&[("ordering", ordering), ("errors", errors)], send_lost, write_lost);
            }
        }
    }
}

fn resync_in_its_turn(options: &[(&str, &str)], send_lost: bool, write_lost: bool) {
    let name = format!("{options:?}, lost: {send_lost}, {write_lost}");
    let mut setup = Setup::new(options);
    setup.retry_count = if send_lost { 1_000 } else { setup.retry_count };
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let (deregistered, ready) = (pair.now + Duration::from_us(60), pair.now + ms(20));
    pair.set_fate(move |sent| match sent.packet.body.rsn().map(|rsn| rsn.value()) {
        Some(0xff_fffa) if send_lost && sent.at < ready => LOST,
        Some(0xff_fffb) if write_lost && sent.at < deregistered => LOST,
        _ => DELIVERED,
    });
    let remote = pair.remote(0, INBOX);
    let pd = pair.ends[0].pd;
    let region = MemoryRegion { pd, addr: BASE, len: MEMORY as u64 / 2, local: 0, access: Access::all() };
    let key = pair.ends[0].engine.objects_mut().register(region).expect("a legal region");
    pair.ends[0].post(0, SendOp::Send { immediate: None }, BASE, 100);
    let own = Sge { addr: BASE, len: 10, lkey: key.0 };
    let write = SendOp::Write { remote, immediate: None };
    pair.ends[0].try_post(1, write, &[own], SendFlags::empty()).expect("the queue is not full");
    pair.ends[0].post(2, SendOp::Send { immediate: None }, BASE, 100);
    pair.run_for(Duration::from_us(60));
    pair.ends[0].engine.objects_mut().deregister(key).expect("it is registered");
    // Both are retransmitted in the meantime, the Write as a Resync.
    pair.run_for(ms(20));
    let resyncs = pair.log.iter().filter(|sent| matches!(sent.packet.body, Body::Resync { .. })).count();
    assert!(resyncs > 0, "{name}: no Resync was sent");
    (7..9).for_each(|wr_id| pair.ends[1].post_recv(wr_id, INBOX, 200));
    pair.run_for(ms(100));
    let ended = [(0, WcStatus::Success), (1, WcStatus::LocalProtection), (2, WcStatus::WrFlushed)];
    assert_eq!(pair.ends[0].take(), ended, "{name}");
    // In the verbs mode, requests after a failed request have no effect.
    let received = pair.ends[1].take();
    assert_eq!(received[0], (7, WcStatus::Success), "{name}");
    assert!(received.len() == 1 || options.contains(&("errors", "complete-in-error")), "{name}: {received:?}");
}

/// A Send whose offset does not match any packet, and a Send for another queue pair, are refused with every ordering,
/// and the requests after them are executed.
#[test]
fn f8_requests_with_invalid_headers_are_refused_and_later_ones_executed() {
    type Change = fn(&mut rnic_wire::falcon::rdma::Header);
    let changes: [Change; 2] = [
        |header| {
            if let Operation::Send { offset, .. } = &mut header.operation {
                *offset = 4;
            }
        },
        |header| header.dest_qpn = rnic_wire::Qpn::new(header.dest_qpn.get() ^ 1),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for ordering in ["ordered", "weak", "unordered"] {
            let name = format!("change {number}, {ordering}");
            let options = [("ordering", ordering), ("errors", "complete-in-error")];
            let mut is_first = true;
            let mut pair = Pair::new(&Setup::new(&options), move |sent| {
                let is_lost = is_first && matches!(sent.packet.body, Body::PushData { .. });
                is_first &= !is_lost;
                if is_lost { LOST } else { DELIVERED }
            });
            (0..4).for_each(|wr_id| pair.ends[1].post_recv(50 + wr_id, INBOX + 1_000 * wr_id, 200));
            pair.ends[0].post(0, SendOp::Send { immediate: None }, BASE, 100);
            pair.run_for(Duration::from_us(1));
            // Replaces the packet that was lost.
            let mut sent = pair.log[0];
            if let Body::PushData { ulp: Ulp::Rdma(header), .. } = &mut sent.packet.body {
                change(header);
            }
            let payload = pair.ends[0].bytes(BASE, 100).to_vec();
            pair.deliver(1, &sent.packet, FlowLabel::new(0), &payload);
            pair.run_for(ms(20));
            let ended = pair.ends[0].take();
            assert!(matches!(ended[..], [(0, status)] if status != WcStatus::Success), "{name}: {ended:?}");
            (1..3).for_each(|wr_id| pair.ends[0].post(wr_id, SendOp::Send { immediate: None }, BASE, 100));
            let remote = pair.remote(0, INBOX + 9_000);
            pair.ends[0].post(3, SendOp::Read { remote }, BASE, 100);
            pair.run_for(ms(100));
            let mut ended = pair.ends[0].take();
            ended.sort_unstable_by_key(|(wr_id, _)| *wr_id);
            assert!(ended.into_iter().eq((1..4).map(|wr_id| (wr_id, WcStatus::Success))), "{name}");
            let received = pair.ends[1].take();
            let good = received.iter().filter(|(_, status)| *status == WcStatus::Success).count();
            // With weak ordering the initiator determines which receive a Send consumes, so the receive of the
            // refused Send fails.
            let failed = usize::from(ordering == "weak");
            assert_eq!((good, received.len() - good), (2, failed), "{name}: {received:?}");
        }
    }
}

/// Checks that a packet from an earlier connection between the same queue pair numbers does not set the first PSN of
/// this connection.
#[test]
fn a_packet_of_an_earlier_connection_does_not_set_the_first_psn() {
    let setup = Setup::new(&[]);
    let at = Psn32::new(5_000_000);
    let stamp = Timestamp::new(1);
    let own_mistakes = OutOfWindow { data: false, request: false };
    let ack = Acknowledgement {
        t1: stamp,
        t2: stamp,
        hops: 0,
        rx_level: 0,
        ecn: 0,
        metadata: 0,
        out_of_window: own_mistakes,
    };
    let mut donor = Pair::new(&setup, |_| DELIVERED);
    donor.ends[0].post(0, SendOp::Send { immediate: None }, BASE, 100);
    donor.run_for(Duration::from_us(1));
    let Body::PushData { rsn, length, ulp, .. } = donor.log[0].packet.body else { panic!("a Send is a Push") };
    for body in [Body::Ack(ack), Body::PushData { psn: at, rsn, length, ulp }] {
        let mut pair = Pair::unconnected(&setup, |_| DELIVERED);
        let numbers = [0, 1].map(|end| pair.ends[end].qpn);
        [0, 1].into_iter().for_each(|end| pair.ends[end].begin_receiving(&setup, numbers[1 - end], end));
        let stale = Packet {
            cid: Cid::new(numbers[0].get()),
            function: 0,
            protocol: UlpProtocol::Rdma,
            ack_request: false,
            bases: WindowBases { data: at, request: at },
            timestamp: stamp,
            payload_len: 0,
            body,
        };
        assert!(matches!(pair.deliver(0, &stale, FlowLabel::new(0), &[]), RxOutcome::Dropped(_)));
        [0, 1].into_iter().for_each(|end| pair.ends[end].begin_sending(pair.now, &setup, end));
        let remote = pair.remote(0, INBOX);
        pair.ends[0].post(0, SendOp::Write { remote, immediate: None }, BASE, 100);
        pair.run_for(ms(100));
        assert_eq!(pair.ends[0].take(), [(0, WcStatus::Success)]);
    }
}
