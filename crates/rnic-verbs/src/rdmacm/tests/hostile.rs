//! A listener that receives datagrams which a correct peer does not send.

use std::net::UdpSocket;

use rnic_base::{Psn, RandomStreams};
use rnic_wire::cm::ip::IpHeader;
use rnic_wire::cm::{self, Bits, Mad, Message, Request, ServiceId, Vendor};
use rnic_wire::{Addresses, Qpn, gsi};

use super::super::transport_choice;
use super::*;

/// An untrusted sender, and the addresses of its datagrams.
struct RawClient {
    socket: UdpSocket,
    path: Addresses,
}

impl RawClient {
    fn towards(port: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(("127.0.0.1", port)).expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let path = Addresses::new(socket.local_addr().expect("bound"), socket_address("127.0.0.1", port));
        Self { socket, path: path.expect("both IPv4") }
    }

    fn request(&self, local_comm_id: u32, port: u16, vendor: Vendor) -> Mad {
        let (source, destination) = (self.path.src().ip(), self.path.dst().ip());
        let private_data =
            IpHeader { source_port: self.path.src().port(), source, destination }.join(b"").expect("fits");
        let service_id = ServiceId::for_port(port);
        let request = Request { local_comm_id, service_id, vendor, private_data, ..Request::default() };
        Mad { transaction_id: local_comm_id.into(), message: Message::Request(request) }
    }

    fn send(&self, mad: &[u8; gsi::MAD_LEN]) {
        let packet = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(1), mad };
        // When the kernel has no buffer space, this datagram is lost.
        let _ = self.socket.send(&packet.encode(&self.path));
    }

    fn answer(&self) -> Mad {
        let mut bytes = [0; 2_048];
        let len = self.socket.recv(&mut bytes).expect("an answer");
        cm::parse(gsi::decode(&bytes[..len]).expect("a management datagram").mad).expect("a message")
    }
}

/// Establishes a connection, exchanges no data, and disconnects.
fn check_still_serving(bench: &Bench, port: u16) {
    let client = Bench::new();
    let active = client.resolved("127.0.0.1", port, RDMA_PS_TCP);
    assert_eq!(connect(active, b"honest"), 0);
    let passive = loop {
        let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
        let (is_honest, id) = (request.data().starts_with(b"honest"), request.id());
        request.acknowledge();
        if is_honest {
            break id;
        }
        bench.destroy(&[id]);
    };
    assert_eq!(accept(passive, b""), 0);
    client.next(RDMA_CM_EVENT_CONNECT_RESPONSE).acknowledge();
    client.destroy(&[active]);
    bench.destroy(&[passive]);
}

#[test]
fn a_request_for_another_transport_is_refused_with_a_reason() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 0);
    let raw_client = RawClient::towards(port);
    let vendor = Vendor { id: Bits::clamped(0x4f_524e), options: 1 };
    raw_client.send(&cm::emit(&raw_client.request(77, port, vendor)));
    match raw_client.answer().message {
        Message::Reject(reject) => {
            assert_eq!((reject.reason, reject.remote_comm_id), (transport_choice::REASON, 77));
            let local_transport = transport_choice::own_text();
            assert!(reject.private_data.0.starts_with(local_transport.as_bytes()), "the local transport is missing");
        }
        message => panic!("{message:?}"),
    }
    assert!(!bench.is_readable(), "the program got an event");
    bench.destroy(&[listener]);
}

#[test]
fn the_backlog_limits_queued_requests() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 4);
    let raw_client = RawClient::towards(port);
    for comm_id in 1..=20 {
        raw_client.send(&cm::emit(&raw_client.request(comm_id, port, transport_choice::local_vendor())));
    }
    for _ in 0..16 {
        match raw_client.answer().message {
            Message::Reject(reject) => assert_eq!(reject.reason, cm::RejectReason::NO_RESOURCES),
            message => panic!("{message:?}"),
        }
    }
    // A retransmitted request counts as the same request.
    for comm_id in 1..=4 {
        raw_client.send(&cm::emit(&raw_client.request(comm_id, port, transport_choice::local_vendor())));
    }
    let mut ids = Vec::new();
    for _ in 0..4 {
        let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
        ids.push(request.id());
        request.acknowledge();
    }
    assert!(!bench.is_readable());
    bench.destroy(&ids);
    bench.destroy(&[listener]);
}

/// Garbage, and messages with a few errors: the listener keeps working and stores no more than its backlog.
#[test]
fn random_and_damaged_messages_change_nothing() {
    let bench = Bench::new();
    let (listener, port) = bench.listen("127.0.0.1", RDMA_PS_TCP, 8);
    let raw_client = RawClient::towards(port);
    let mut random = RandomStreams::new(5).stream("nonsense");
    for round in 0..30_000u32 {
        match random.below(3) {
            0 => {
                let bytes: Vec<u8> = (0..random.below(400)).map(|_| random.bits() as u8).collect();
                let _ = raw_client.socket.send(&bytes);
            }
            kind => {
                let mut mad = cm::emit(&raw_client.request(round, port, transport_choice::local_vendor()));
                let attributes = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19];
                mad[17] = if kind == 1 { attributes[random.below(10) as usize] } else { mad[17] };
                for _ in 0..random.below(6) {
                    mad[random.below(256) as usize] = random.bits() as u8;
                }
                raw_client.send(&mad);
            }
        }
        if round % 1_000 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // The first requests fill the backlog; fetching and rejecting one makes space for another. Therefore no request
    // is fetched before the thread has processed all datagrams of the socket.
    std::thread::sleep(Duration::from_millis(500));
    let mut waited = 0;
    while bench.becomes_readable(300) {
        waited += 1;
        let request = bench.next(RDMA_CM_EVENT_CONNECT_REQUEST);
        let id = request.id();
        request.acknowledge();
        bench.destroy(&[id]);
    }
    assert!((1..=8).contains(&waited), "{waited} requests were queued; the backlog is 8");
    check_still_serving(&bench, port);
    bench.destroy(&[listener]);
}
