//! The limit of packets in flight to a peer, for packets that are not acknowledged: they count, and the engine's
//! owner reports when they have left the network.

mod common;

use common::*;
use rnic_engine::*;
use rnic_wire::Qpn;

const NEAR: PeerId = PeerId(7);
const FAR: PeerId = PeerId(8);

fn pair(service: Service) -> Pair {
    Pair::new(&Setup { service, ..Setup::new("irn", &[]) })
}

fn write(pair: &mut Pair, wr_id: u64, packets: u32) {
    let (sge, remote) = (pair.left.sge(0, packets * MTU), pair.right.remote(0));
    pair.left.post(wr_id, SendOp::Write { remote, immediate: None }, &[sge]);
}

fn datagram(side: &mut Side, from: Qpn, wr_id: u64, peer: PeerId) {
    let to = DatagramAddress { peer, qpn: Qpn::new(0x99), qkey: QKEY, mark: 0 };
    let sges = [side.sge(0, 10)];
    let op = SendOp::Datagram { to, immediate: None };
    let request = SendRequest { wr_id, op, sges: &sges, flags: SendFlags::SIGNALED };
    side.engine.post_send(from, &request).expect("the queue is not full");
}

/// Transmits until no packet may leave; returns the queue pair and the peer of each packet.
fn leaving(pair: &mut Pair) -> Vec<(Qpn, PeerId)> {
    let now = pair.now;
    std::iter::from_fn(|| {
        pair.left.engine.transmit(now).and_then(Departure::roce).map(|transmit| (transmit.from, transmit.peer))
    })
    .collect()
}

#[test]
fn a_connection_sends_up_to_the_peer_limit() {
    let mut pair = pair(Service::UnreliableConnection);
    pair.left.engine.set_peer_limit(NEAR, Some(3));
    assert_eq!(pair.left.engine.peer_limit(NEAR), Some(3));
    write(&mut pair, 1, 2);
    write(&mut pair, 2, 4);
    assert_eq!(leaving(&mut pair).len(), 3);
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success)], "the second message has completed");
    assert!(pair.left.engine.stats().waits[WaitReason::PeerWindow as usize] > 0);
    pair.left.engine.settle(FAR, 3);
    assert_eq!((leaving(&mut pair).len(), pair.left.engine.has_packets()), (0, false), "another peer's credit is used");
    pair.left.engine.settle(NEAR, 2);
    assert!(pair.left.engine.has_packets());
    assert_eq!(leaving(&mut pair).len(), 2);
    // Settling more packets than can be in flight settles all of them.
    pair.left.engine.settle(NEAR, 1_000);
    assert_eq!(leaving(&mut pair).len(), 1);
    assert_eq!(pair.left.statuses(), [(2, WcStatus::Success)]);
    write(&mut pair, 3, 5);
    assert_eq!(leaving(&mut pair).len(), 2, "not two packets are sent");
    pair.left.engine.set_peer_limit(NEAR, None);
    assert_eq!(leaving(&mut pair).len(), 3);
}

#[test]
fn datagrams_to_other_peers_do_not_wait() {
    let setup = Setup { service: Service::UnreliableDatagram, ..Setup::new("irn", &[]) };
    let mut pair = Pair::new(&setup);
    let (first, (second, _)) = (pair.left.qpn, pair.another(&setup));
    pair.left.engine.set_peer_limit(NEAR, Some(1));
    for wr_id in 0..3 {
        datagram(&mut pair.left, first, wr_id, NEAR);
        datagram(&mut pair.left, second, wr_id, FAR);
    }
    let mut all = leaving(&mut pair);
    all.sort_by_key(|(_, peer)| peer.0);
    assert_eq!(all, [(first, NEAR), (second, FAR), (second, FAR), (second, FAR)]);
}

#[test]
fn an_ended_queue_pair_leaves_its_credit_to_others() {
    let setup = Setup { service: Service::UnreliableDatagram, ..Setup::new("irn", &[]) };
    for (destroys, when_woken) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut pair = Pair::new(&setup);
        let (first, (second, _)) = (pair.left.qpn, pair.another(&setup));
        pair.left.engine.set_peer_limit(NEAR, Some(1));
        datagram(&mut pair.left, first, 0, NEAR);
        assert_eq!(leaving(&mut pair), [(first, NEAR)]);
        datagram(&mut pair.left, first, 1, NEAR);
        assert_eq!(leaving(&mut pair), []);
        datagram(&mut pair.left, second, 2, NEAR);
        assert_eq!(leaving(&mut pair), []);
        if when_woken {
            pair.left.engine.settle(NEAR, 1);
        }
        if destroys {
            pair.left.engine.destroy_qp(first).expect("no object depends on it");
        } else {
            pair.left.engine.modify_to_error(first).expect("legal in every state");
        }
        if !when_woken {
            pair.left.engine.settle(NEAR, 1);
        }
        assert_eq!(leaving(&mut pair), [(second, NEAR)], "{destroys} {when_woken}");
    }
}

#[test]
fn reliable_and_unreliable_packets_share_the_peer_limit() {
    let reliable = Setup::new("irn", &[]);
    let mut pair = Pair::new(&reliable);
    let (lossy, _) = pair.another(&Setup { service: Service::UnreliableConnection, ..reliable });
    pair.left.engine.set_peer_limit(NEAR, Some(2));
    let (sge, remote) = (pair.left.sge(0, 2 * MTU), pair.right.remote(0));
    let op = SendOp::Write { remote, immediate: None };
    let request = SendRequest { wr_id: 1, op, sges: &[sge], flags: SendFlags::SIGNALED };
    pair.left.engine.post_send(lossy, &request).expect("the queue is not full");
    pair.run();
    write(&mut pair, 2, 1);
    pair.run();
    assert_eq!(pair.log.len(), 2, "the reliable packet exceeds the limit");
    pair.left.engine.settle(NEAR, 1);
    pair.run();
    assert_eq!(pair.left.statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
}
