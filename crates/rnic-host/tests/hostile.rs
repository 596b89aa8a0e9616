//! A live NIC that receives random bytes, mutated packets, and invalid management messages, from unknown senders and
//! from the peer's own address. It must not crash, must not write to memory without permission, and must still serve
//! its connections and establish new ones.

mod common;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use common::{HALF, Pair, SharedFile, Side, connect};
use rnic_base::{RandomStream, RandomStreams};
use rnic_engine::SendOp;
use rnic_host::{ConnectionEvent, Nic, NicConfig, RxDrop};
use rnic_wire::{Addresses, icrc};

/// Real datagrams that a connection has exchanged: what mutations start from.
fn real_datagrams() -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    for transport in ["irn", "roce-gbn"] {
        let mut left = Side::at("127.0.0.1:0");
        let file = SharedFile::default();
        left.nic.start_capture(Box::new(file.clone())).expect("memory");
        let mut pair = Pair::connected(left, Side::at("127.0.0.1:0"), transport);
        let (sge, remote) = (pair.left.sge(0, 5_000), pair.right.region.remote(0));
        for op in [SendOp::Write { remote, immediate: None }, SendOp::Read { remote }] {
            pair.left.post(pair.from.qpn, 1, op, &[sge]);
        }
        let sge = pair.left.sge(HALF, 8);
        pair.left.post(pair.from.qpn, 2, SendOp::FetchAdd { remote, add: 1 }, &[sge]);
        pair.succeed(3);
        pair.left.nic.stop_capture();
        // Ethernet 14, IPv4 20, UDP 8.
        datagrams.extend(file.frames().into_iter().map(|frame| frame[42..].to_vec()));
    }
    assert!(datagrams.len() > 20, "REQ, REP, RTU, requests, responses, acknowledgements");
    datagrams
}

fn mutate(random: &mut RandomStream, datagram: &mut Vec<u8>) {
    for _ in 0..random.between(1, 8) {
        if datagram.is_empty() {
            return;
        }
        let at = random.below(datagram.len() as u64) as usize;
        match random.below(5) {
            // Mostly header bytes, which determine how a packet is handled.
            0 | 1 => {
                let at = at.min(random.below(64) as usize).min(datagram.len() - 1);
                datagram[at] = random.bits() as u8;
            }
            2 => datagram[at] ^= 1 << random.below(8),
            3 => datagram.truncate(at),
            _ => {
                let extra = random.below(300) as usize;
                datagram.extend((0..extra).map(|_| random.bits() as u8));
            }
        }
    }
}

/// Makes the ICRC right, so that the datagram gets past it.
fn seal(datagram: &mut [u8], addresses: &Addresses) {
    if datagram.len() < 16 {
        return;
    }
    let covered = datagram.len() - 4;
    let icrc = icrc::Icrc::new(addresses, datagram.len() as u32, &datagram[..covered]).finish();
    datagram[covered..].copy_from_slice(&icrc);
}

#[test]
fn a_nic_survives_random_datagrams_and_continues_to_serve() {
    let samples = real_datagrams();
    let mut random = RandomStreams::new(2026).stream("hostile");
    let mut pair = Pair::loopback("irn");
    let target = pair.right.addr();
    let unknown_peers: Vec<UdpSocket> = (0..4).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
    let before = pair.right.nic.bytes(&pair.right.region).to_vec();
    let start = Instant::now();
    let mut sent = 0u64;
    while start.elapsed() < Duration::from_secs(3) {
        for _ in 0..64 {
            let socket = &unknown_peers[random.below(4) as usize];
            let addresses = Addresses::new(socket.local_addr().expect("it is bound"), target).expect("both IPv4");
            let mut datagram = match random.below(4) {
                0 => (0..random.below(600)).map(|_| random.bits() as u8).collect(),
                _ => samples[random.below(samples.len() as u64) as usize].clone(),
            };
            if random.below(4) > 0 {
                mutate(&mut random, &mut datagram);
            }
            if random.below(2) == 0 {
                seal(&mut datagram, &addresses);
            }
            sent += u64::from(socket.send_to(&datagram, target).is_ok());
        }
        while pair.right.nic.progress() {}
        reject_client(&mut pair.right);
        while pair.right.nic.verbs().poll_cq_one(pair.right.cq).is_some() {}
    }
    let stats = *pair.right.nic.stats();
    assert!(sent > 10_000, "{sent}");
    for reason in [RxDrop::UnknownPeer, RxDrop::Icrc, RxDrop::Malformed, RxDrop::Management] {
        assert!(stats.dropped(reason) > 0, "{reason:?}: {stats:?}");
    }
    assert!(pair.right.nic.bytes(&pair.right.region) == before, "an unknown peer wrote data");
    serves(&mut pair);
}

/// Rejects connection requests that have passed all checks.
fn reject_client(side: &mut Side) {
    while let Some(event) = side.event() {
        if let ConnectionEvent::Requested(request) = event {
            side.nic.reject(request.id, "").expect("it waits");
        }
    }
}

/// Checks that the existing connection works, and that a new one can be established.
fn serves(pair: &mut Pair) {
    let (sge, remote) = (pair.left.sge(0, 100_000), pair.right.region.remote(HALF));
    pair.left.post(pair.from.qpn, 9, SendOp::Write { remote, immediate: None }, &[sge]);
    pair.succeed(1);
    assert_eq!(
        pair.right.nic.bytes(&pair.right.region)[HALF..HALF + 100_000],
        pair.left.nic.bytes(&pair.left.region)[..100_000]
    );
    let (ours, theirs) = (pair.left.config("irn"), pair.right.config("irn"));
    connect(&mut pair.left, &mut pair.right, &ours, &theirs);
}

/// Invalid packets from the peer's own address, with right ICRCs, for the right queue pair. They may fail the
/// connection (as errors in requests do), but must have no other effect.
#[test]
fn invalid_packets_of_a_peer_fail_only_its_own_connections() {
    let samples = real_datagrams();
    let mut random = RandomStreams::new(7).stream("mad peer");
    for round in 0..40 {
        let transport = if round % 2 == 0 { "irn" } else { "roce-gbn" };
        let Pair { left, mut right, from, to } = Pair::loopback(transport);
        let (address, target) = (left.addr(), right.addr());
        drop(left);
        let peer = UdpSocket::bind(address).expect("the address of the NIC that is gone");
        let addresses = Addresses::new(address, target).expect("both IPv4");
        let _ = from;
        let half = right.nic.bytes(&right.region).to_vec();
        for _ in 0..400 {
            let mut datagram = samples[random.below(samples.len() as u64) as usize].clone();
            mutate(&mut random, &mut datagram);
            if datagram.len() >= 16 && datagram[0] != 0x64 {
                // Sometimes for the right queue pair, and with a PSN close to the expected one.
                datagram[5..8].copy_from_slice(&to.qpn.get().to_be_bytes()[1..]);
                if let Some(info) = right.nic.query_qp(to.qpn)
                    && random.below(2) == 0
                {
                    let psn = info.expected.wire::<24>().plus(random.below(200) as u32).value();
                    datagram[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
                }
            }
            seal(&mut datagram, &addresses);
            let _ = peer.send_to(&datagram, target);
            right.nic.progress();
            while right.nic.poll_connection_event().is_some() {}
        }
        assert!(right.nic.bytes(&right.region) == half, "data were written without a key");
    }
}

#[test]
fn icmp_errors_from_many_ports_are_survived() {
    let mut nic = Nic::open(NicConfig::at("127.0.0.1:0".parse().expect("an address"))).expect("a free port");
    let pd = nic.verbs().create_pd().expect("a protection domain");
    let cq = nic.verbs().create_cq(16).expect("a legal size");
    let config = rnic_host::ConnectionConfig::new(pd, cq);
    let mut failed = 0;
    for port in 1..=60 {
        let to = std::net::SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
        if nic.start_connect(to, common::PORT, &config).is_ok() {
            nic.progress();
        }
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        nic.progress();
        while let Some(event) = nic.poll_connection_event() {
            assert!(matches!(event, ConnectionEvent::Failed { .. }), "{event:?}");
            failed += 1;
        }
    }
    assert!(failed >= 50, "only {failed} of 60 attempts were refused");
}
