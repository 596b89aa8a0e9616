//! Tests with trains that contain datagrams of different kinds.

use std::io::IoSlice;

use rnic_base::Duration;
use rnic_wire::icrc::Icrc;
use socket2::SockAddr;

use crate::bypass::RecordKind;
use crate::config::NicConfig;
use crate::connection::{ConnectionConfig, ConnectionEvent};
use crate::nic::Nic;
use crate::sys::{Outgoing, SocketOptions, UdpSocket};

use super::*;

const SERVICE: u16 = 7_471;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// Returns the first datagram that a NIC sends to request a connection.
fn recorded_request() -> Vec<u8> {
    let peer_socket = std::net::UdpSocket::bind(loopback()).expect("a free port");
    let mut nic = Nic::open(NicConfig::at(loopback())).expect("a free port");
    let (pd, cq) =
        (nic.verbs().create_pd().expect("a protection domain"), nic.verbs().create_cq(16).expect("a legal size"));
    let to = peer_socket.local_addr().expect("the socket is bound");
    nic.start_connect(to, SERVICE, &ConnectionConfig::new(pd, cq)).expect("there is a route to the peer");
    while nic.progress() {}
    let mut bytes = vec![0; 2_048];
    let len = peer_socket.recv(&mut bytes).expect("it was sent");
    bytes.truncate(len);
    bytes
}

/// Returns `datagram` with the ICRC for the addresses `path`.
fn sealed(datagram: &[u8], path: &Addresses) -> Vec<u8> {
    let covered = &datagram[..datagram.len() - ICRC_LEN];
    [covered, &Icrc::new(path, datagram.len() as u32, covered).finish()].concat()
}

/// Returns whether a NIC receives a connection request that `make` includes in a train, and the NIC's statistics.
fn receive_train(make: impl FnOnce(Vec<u8>) -> (Vec<u8>, u16)) -> (bool, crate::stats::NicStats) {
    let mut nic = Nic::open(NicConfig::at(loopback())).expect("a free port");
    nic.listen(SERVICE, 4).expect("a free service");
    let socket = UdpSocket::open(&SocketOptions::at(loopback(), 1 << 20, 1 << 20, false)).expect("a free port");
    let path = Addresses::new(socket.local_addr(), nic.local_addr()).expect("both IPv4");
    let (train, segment) = make(sealed(&recorded_request(), &path));
    let (to, parts) = (SockAddr::from(nic.local_addr()), [IoSlice::new(&train)]);
    let sent = socket.send(&[Outgoing {
        to: &to,
        from: None,
        parts: &parts,
        segment: Some(segment),
        ip_fields: PackedIpFields::NONE,
    }]);
    assert_eq!(sent.expect("the socket buffer has space"), 1);
    for _ in 0..100 {
        if nic.stats().datagrams_received >= 2 {
            break;
        }
        nic.wait(Duration::from_ms(20)).expect("the sockets can be polled");
        nic.progress();
    }
    let is_received = matches!(nic.poll_connection_event(), Some(ConnectionEvent::Requested(_)));
    (is_received, *nic.stats())
}

/// Returns a datagram that starts like a Falcon datagram but is not one.
fn falcon_like(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0] = rnic_wire::falcon::psp::NEXT_HEADER;
    bytes
}

#[test]
fn a_cm_request_after_a_falcon_datagram_in_one_train_is_received() {
    let (is_received, stats) = receive_train(|request| {
        let first = falcon_like(request.len());
        let segment = first.len() as u16;
        ([first, request].concat(), segment)
    });
    assert!(is_received, "{stats:?}");
    assert_eq!((stats.datagrams_received, stats.receive_calls), (2, 1), "not one train: {stats:?}");
}

#[test]
fn a_falcon_datagram_after_a_cm_request_in_one_train_is_checked_as_falcon() {
    let (is_received, stats) = receive_train(|request| {
        let segment = request.len() as u16;
        // It is long enough for all headers of Falcon, and its queue pair does not exist.
        ([request, falcon_like(100)].concat(), segment)
    });
    assert!(is_received, "{stats:?}");
    assert_eq!((stats.datagrams_received, stats.receive_calls), (2, 1), "not one train: {stats:?}");
    assert_eq!(stats.dropped(RxDrop::UnknownPeer) + stats.dropped(RxDrop::Malformed), 1, "{stats:?}");
}

/// The writer of a ring cannot stop the reader's capture: a record that is too long for a datagram closes the ring.
#[test]
fn a_record_too_long_for_a_datagram_does_not_end_the_capture() {
    for byte in [rnic_wire::falcon::psp::NEXT_HEADER, 0] {
        for len in [65_000, 65_491, 65_492, 65_503] {
            let open = || Nic::open(NicConfig::shared()).expect("a free port");
            let (mut left, mut right) = (open(), open());
            let peer = left.acquire_host("127.0.0.1".parse().expect("an address"), None).expect("loopback");
            let (target, now) = ((peer, right.port()), left.device.clock.now());
            let path = left.device.link.peers.get(peer).path(target.1);
            left.device.link.bypass.as_mut().expect("it is on").prepare(now, peer, &path);
            right.start_capture(Box::new(std::io::sink())).expect("the capture starts");
            for _ in 0..200 {
                left.progress();
                right.progress();
            }
            let bypass = left.device.link.bypass.as_mut().expect("it is on");
            let taken =
                bypass.send_from_nic(now, target, &[&[byte][..], &vec![0; len - 1]].concat(), RecordKind::default());
            assert_eq!(taken, crate::bypass::RingResult::Sent);
            bypass.publish(now);
            for _ in 0..200 {
                right.progress();
            }
            assert!(right.device.link.capture.is_some(), "{byte} and {len} bytes: {:?}", right.poll_notice());
            assert_eq!(right.stats().captured + right.stats().bypass_broken, 1, "{byte} and {len} bytes");
        }
    }
}
