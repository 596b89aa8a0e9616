//! Trains of datagrams of different kinds.

use std::io::IoSlice;

use rnic_base::Duration;
use rnic_wire::icrc::Icrc;
use socket2::SockAddr;

use crate::bypass::Kind;
use crate::config::NicConfig;
use crate::connection::{ConnectionConfig, ConnectionEvent};
use crate::nic::Nic;
use crate::sys::{Outgoing, SocketOptions, UdpSocket};

use super::*;

const SERVICE: u16 = 7_471;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// What a NIC sends first when it asks for a connection.
fn recorded_request() -> Vec<u8> {
    let far = std::net::UdpSocket::bind(loopback()).expect("a free port");
    let mut nic = Nic::open(NicConfig::at(loopback())).expect("a free port");
    let (pd, cq) =
        (nic.verbs().create_pd().expect("a protection domain"), nic.verbs().create_cq(16).expect("a legal size"));
    let to = far.local_addr().expect("bound");
    nic.start_connect(to, SERVICE, &ConnectionConfig::new(pd, cq)).expect("a way there");
    while nic.progress() {}
    let mut bytes = vec![0; 2_048];
    let len = far.recv(&mut bytes).expect("it was sent");
    bytes.truncate(len);
    bytes
}

/// `datagram` with the ICRC that it has on `way`.
fn sealed(datagram: &[u8], way: &Addresses) -> Vec<u8> {
    let covered = &datagram[..datagram.len() - ICRC_LEN];
    [covered, &Icrc::new(way, datagram.len() as u32, covered).finish()].concat()
}

/// Whether a NIC hears a request for a connection when `make` puts it into a train; its statistics.
fn hears(make: impl FnOnce(Vec<u8>) -> (Vec<u8>, u16)) -> (bool, crate::stats::NicStats) {
    let mut nic = Nic::open(NicConfig::at(loopback())).expect("a free port");
    nic.listen(SERVICE, 4).expect("a free service");
    let socket = UdpSocket::open(&SocketOptions::at(loopback(), 1 << 20, 1 << 20, false)).expect("a free port");
    let way = Addresses::new(socket.local_addr(), nic.local_addr()).expect("both IPv4");
    let (train, segment) = make(sealed(&recorded_request(), &way));
    let (to, parts) = (SockAddr::from(nic.local_addr()), [IoSlice::new(&train)]);
    let sent =
        socket.send(&[Outgoing { to: &to, from: None, parts: &parts, segment: Some(segment), marking: Marking::NONE }]);
    assert_eq!(sent.expect("room"), 1);
    for _ in 0..100 {
        if nic.stats().datagrams_received >= 2 {
            break;
        }
        nic.wait(Duration::from_ms(20)).expect("sockets can be waited for");
        nic.progress();
    }
    let heard = matches!(nic.poll_connection_event(), Some(ConnectionEvent::Requested(_)));
    (heard, *nic.stats())
}

/// What begins as Falcon's do, and is none.
fn falcon_like(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = rnic_wire::falcon::psp::NEXT_HEADER;
    bytes
}

#[test]
fn a_request_behind_a_datagram_of_falcon_in_one_train_is_heard() {
    let (heard, stats) = hears(|request| {
        let first = falcon_like(request.len());
        let segment = first.len() as u16;
        ([first, request].concat(), segment)
    });
    assert!(heard, "{stats:?}");
    assert_eq!((stats.datagrams_received, stats.receive_calls), (2, 1), "one train: {stats:?}");
}

#[test]
fn a_datagram_of_falcon_behind_a_request_in_one_train_is_judged_as_one() {
    let (heard, stats) = hears(|request| {
        let segment = request.len() as u16;
        // Long enough for all of Falcon's headers, so that it is its queue pair that does not exist.
        ([request, falcon_like(100)].concat(), segment)
    });
    assert!(heard, "{stats:?}");
    assert_eq!((stats.datagrams_received, stats.receive_calls), (2, 1), "one train: {stats:?}");
    assert_eq!(stats.dropped(RxDrop::UnknownPeer) + stats.dropped(RxDrop::Malformed), 1, "{stats:?}");
}

/// Whoever writes a ring does not end its reader's capture: what is too long to be a datagram ends the ring.
#[test]
fn a_record_too_long_for_a_datagram_does_not_end_the_capture() {
    for byte in [rnic_wire::falcon::psp::NEXT_HEADER, 0] {
        for len in [65_000, 65_491, 65_492, 65_503] {
            let open = || Nic::open(NicConfig::shared()).expect("a free port");
            let (mut left, mut right) = (open(), open());
            let peer = left.acquire_host("127.0.0.1".parse().expect("an address"), None).expect("loopback");
            let (target, now) = ((peer, right.port()), left.device.clock.now());
            let way = left.device.link.peers.get(peer).way(target.1);
            left.device.link.bypass.as_mut().expect("it is on").prepare(now, peer, &way);
            right.start_capture(Box::new(std::io::sink())).expect("somewhere");
            for _ in 0..200 {
                left.progress();
                right.progress();
            }
            let bypass = left.device.link.bypass.as_mut().expect("it is on");
            let taken = bypass.send_own(now, target, &[&[byte][..], &vec![0; len - 1]].concat(), Kind::default());
            assert_eq!(taken, crate::bypass::Taken::Yes);
            bypass.publish(now);
            for _ in 0..200 {
                right.progress();
            }
            assert!(right.device.link.capture.is_some(), "{byte} and {len} bytes: {:?}", right.poll_notice());
            assert_eq!(right.stats().captured + right.stats().bypass_broken, 1, "{byte} and {len} bytes");
        }
    }
}
