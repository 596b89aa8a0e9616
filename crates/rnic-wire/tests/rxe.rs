//! Packets recorded from Linux's software RoCEv2: the coverage of their ICRC, and the contents of their headers and
//! connection management messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::cm::ip::IpHeader;
use rnic_wire::cm::{CmError, Gid, LookupStatus, Mad, Message, RejectReason, Request, ServiceId, TransportService};
use rnic_wire::icrc::IdentificationFinder;
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, ICRC_LEN, IcrcPrefix, cm, codec, gsi, icrc};

/// A recorded packet: its name, and its bytes from the IP header on.
struct Recorded {
    name: String,
    packet: Vec<u8>,
}

fn recorded() -> Vec<Recorded> {
    let text = include_str!("golden/rxe.txt");
    let mut packets: Vec<Recorded> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("== ") {
            Some(name) => packets.push(Recorded { name: name.to_owned(), packet: Vec::new() }),
            None => {
                let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal");
                let bytes = (0..line.len()).step_by(2).map(byte);
                packets.last_mut().expect("a name comes first").packet.extend(bytes);
            }
        }
    }
    packets
}

impl Recorded {
    /// Returns the packet's addresses, its IP identification, and the UDP payload.
    fn parts(&self) -> (Addresses, u16, &[u8]) {
        let packet = &self.packet[..];
        let is_v4 = packet[0] >> 4 == 4;
        let udp = &packet[if is_v4 { 20 } else { 40 }..];
        let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let ip = |at: usize| -> IpAddr {
            match is_v4 {
                true => Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).expect("four bytes")).into(),
                false => Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("sixteen bytes")).into(),
            }
        };
        let (from, to) = if is_v4 { (ip(12), ip(16)) } else { (ip(8), ip(24)) };
        let path = Addresses::new(SocketAddr::new(from, port(0)), SocketAddr::new(to, port(2)));
        let identification = if is_v4 { u16::from_be_bytes([packet[4], packet[5]]) } else { 0 };
        (path.expect("one IP version"), identification, &udp[8..])
    }

    fn mad(&self) -> Mad {
        let (_, _, datagram) = self.parts();
        cm::parse(gsi::decode(datagram).expect("a management datagram").mad).expect("a message")
    }
}

fn recorded_packet(name: &str) -> Recorded {
    recorded().into_iter().find(|recorded| recorded.name == name).unwrap_or_else(|| panic!("no packet named {name}"))
}

#[test]
fn recorded_icrcs_match_their_ip_identification() {
    let packets = recorded();
    assert!(packets.len() > 20, "{}", packets.len());
    for recorded in &packets {
        let (path, identification, datagram) = recorded.parts();
        assert_eq!(path.dst().port(), UDP_PORT);
        assert!(icrc::verify_ip_packet(&recorded.packet), "{}", recorded.name);
        assert_eq!(icrc::verify(&path, datagram), identification == 0, "{}: a socket's view", recorded.name);
        // A socket does not see the identification, but it can be derived from the ICRC.
        let (covered, recorded_icrc) = datagram.split_last_chunk::<ICRC_LEN>().expect("an ICRC");
        let computed_icrc = IcrcPrefix::new(&path, datagram.len() as u32).start(covered).finish();
        let difference = u32::from_le_bytes(*recorded_icrc) ^ u32::from_le_bytes(computed_icrc);
        let found = IdentificationFinder::new(datagram.len() as u32).find(difference);
        assert_eq!(found, Some(identification), "{}", recorded.name);
    }
}

#[test]
fn recorded_headers_decode_as_named() {
    for recorded in recorded().iter().filter(|recorded| !recorded.name.contains(" CM ")) {
        let (_, _, datagram) = recorded.parts();
        let decoded = codec::decode(datagram).unwrap_or_else(|error| panic!("{}: {error}", recorded.name));
        let (format, headers) = (format!("{:?}", decoded.format), format!("{:?}", decoded.packet.headers));
        let (service, operation) =
            recorded.name.split_once(' ').and_then(|(_, name)| name.split_once(' ')).expect("service and operation");
        let expected = match service {
            "RC" => "RoceV2",
            "UC" => "UnreliableConnection",
            _ => "UnreliableDatagram",
        };
        assert_eq!(format, expected, "{}", recorded.name);
        let expected = match operation {
            "SEND only" if service == "UD" => "Datagram",
            "acknowledge" => "Ack",
            "SEND only" => "Send",
            "RDMA READ request" => "ReadRequest",
            "RDMA READ response only" | "RDMA READ response last" => "ReadResponse",
            "ATOMIC acknowledge" => "AtomicResponse",
            "compare and swap" | "fetch and add" => "AtomicRequest",
            "RDMA WRITE only" => "Write",
            other => panic!("{other} is not known here"),
        };
        assert!(headers.starts_with(expected), "{}: {headers}", recorded.name);
    }
}

fn request(version: u8) -> (Addresses, Request) {
    let recorded = recorded_packet(&format!("v{version} CM REQ"));
    match recorded.mad().message {
        Message::Request(request) => (recorded.parts().0, request),
        other => panic!("{other:?}"),
    }
}

#[test]
fn recorded_requests_have_the_expected_fields() {
    for version in [4, 6] {
        let (addresses, request) = request(version);
        assert_eq!(request.service_id, ServiceId::for_port(7_174), "rping's port");
        assert_eq!(request.transport_service, TransportService::Reliable);
        assert_eq!(request.path_mtu.bytes(), Some(1_024), "not the path MTU of 1500-byte frames");
        assert_eq!((request.retry_count.get(), request.rnr_retry_count.get()), (7, 7));
        let path = request.primary;
        assert_eq!(
            (path.local_gid, path.remote_gid),
            (Gid::from(addresses.src().ip()), Gid::from(addresses.dst().ip()))
        );
        assert_eq!((path.local_lid, path.remote_lid, path.hop_limit), (0xffff, 0xffff, 64));
        assert_eq!(request.alternate, None);
        assert_eq!(request.vendor, Default::default());
        let (header, data) = IpHeader::split(&request.private_data.0).expect("the private data has an IP header");
        assert_eq!((header.source, header.destination), (addresses.src().ip(), addresses.dst().ip()));
        assert!(data.iter().all(|byte| *byte == 0), "rping sends private data");
        // Encoding the decoded message gives the same message.
        let mad = Mad { transaction_id: 1, message: Message::Request(request) };
        assert_eq!(cm::parse(&cm::emit(&mad)), Ok(mad));
    }
}

#[test]
fn recorded_lookups_and_rejects_are_decoded() {
    let (_, request) = request(4);
    let message = recorded_packet("v4 CM SIDR_REQ").mad().message;
    let Message::LookupRequest(lookup) = message else { panic!("not a lookup request") };
    assert_eq!(lookup.service_id.0 >> 16, 0x0111, "UDP's port space");
    assert!(IpHeader::split(&lookup.private_data.0).is_some());
    let Message::Reject(reject) = recorded_packet("v4 CM REJ").mad().message else { panic!("not a reject") };
    assert_eq!((reject.reason, reject.local_comm_id), (RejectReason::TIMEOUT, request.local_comm_id));
}

#[test]
fn recorded_replies_are_decoded() {
    for version in ["v4", "v6"] {
        let message = |name: &str| recorded_packet(&format!("{version} CM {name}")).mad().message;
        let Message::Reply(reply) = message("REP") else { panic!("not a reply") };
        assert!(reply.local_qpn.get() < 0x4_0000, "the number of one of our queue pairs");
        assert_eq!(reply.vendor, Default::default());
        let Message::DisconnectRequest(disconnect) = message("DREQ") else { panic!("not a disconnect request") };
        assert!(disconnect.remote_qpn.get() >= 0x4_0000, "not the number of one of our queue pairs");
        assert!(matches!(message("DREP"), Message::DisconnectReply(_)));
        let Message::LookupReply(lookup) = message("SIDR_REP") else { panic!("not a lookup reply") };
        assert_eq!((lookup.status, lookup.queue_key), (LookupStatus::VALID, 0x0123_4567));
        // MRA messages are not supported.
        let mra = recorded_packet(&format!("{version} CM MRA"));
        let (_, _, datagram) = mra.parts();
        let mad = gsi::decode(datagram).expect("a management datagram").mad;
        assert_eq!(cm::parse(mad), Err(CmError::Attribute));
    }
}
