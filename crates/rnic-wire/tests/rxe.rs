//! Packets of Linux's software RoCEv2, as it sent them: what their ICRC covers, what their headers and connection
//! management messages say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_wire::cm::ip::IpHeader;
use rnic_wire::cm::{CmError, Gid, LookupStatus, Mad, Message, RejectReason, Request, ServiceId, TransportService};
use rnic_wire::icrc::IdentificationFinder;
use rnic_wire::net::UDP_PORT;
use rnic_wire::{Addresses, ICRC_LEN, IcrcPrefix, cm, codec, gsi, icrc};

/// A packet: its name, and what it is from the IP header on.
struct Recorded {
    name: String,
    packet: Vec<u8>,
}

fn recorded() -> Vec<Recorded> {
    let text = include_str!("golden/rxe.txt");
    let mut all: Vec<Recorded> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("== ") {
            Some(name) => all.push(Recorded { name: name.to_owned(), packet: Vec::new() }),
            None => {
                let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal");
                let bytes = (0..line.len()).step_by(2).map(byte);
                all.last_mut().expect("a name comes first").packet.extend(bytes);
            }
        }
    }
    all
}

impl Recorded {
    /// Where the packet went, its identification, and the UDP payload.
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
        let way = Addresses::new(SocketAddr::new(from, port(0)), SocketAddr::new(to, port(2)));
        let identification = if is_v4 { u16::from_be_bytes([packet[4], packet[5]]) } else { 0 };
        (way.expect("one IP version"), identification, &udp[8..])
    }

    fn mad(&self) -> Mad {
        let (_, _, datagram) = self.parts();
        cm::parse(gsi::decode(datagram).expect("a management datagram").mad).expect("a message")
    }
}

fn named(name: &str) -> Recorded {
    recorded().into_iter().find(|recorded| recorded.name == name).unwrap_or_else(|| panic!("no packet named {name}"))
}

#[test]
fn their_icrc_is_right_for_the_identification_that_they_had() {
    let all = recorded();
    assert!(all.len() > 20, "{}", all.len());
    for recorded in &all {
        let (way, identification, datagram) = recorded.parts();
        assert_eq!(way.dst().port(), UDP_PORT);
        assert!(icrc::verify_ip_packet(&recorded.packet), "{}", recorded.name);
        assert_eq!(icrc::verify(&way, datagram), identification == 0, "{}: a socket's view", recorded.name);
        // What a socket can do: the identification follows from the ICRC.
        let (covered, theirs) = datagram.split_last_chunk::<ICRC_LEN>().expect("an ICRC");
        let ours = IcrcPrefix::new(&way, datagram.len() as u32).start(covered).finish();
        let difference = u32::from_le_bytes(*theirs) ^ u32::from_le_bytes(ours);
        let found = IdentificationFinder::new(datagram.len() as u32).find(difference);
        assert_eq!(found, Some(identification), "{}", recorded.name);
    }
}

#[test]
fn their_headers_are_what_they_are_called() {
    for recorded in recorded().iter().filter(|recorded| !recorded.name.contains(" CM ")) {
        let (_, _, datagram) = recorded.parts();
        let decoded = codec::decode(datagram).unwrap_or_else(|error| panic!("{}: {error}", recorded.name));
        let (format, headers) = (format!("{:?}", decoded.format), format!("{:?}", decoded.packet.headers));
        let (service, operation) =
            recorded.name.split_once(' ').and_then(|(_, name)| name.split_once(' ')).expect("both");
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
    let recorded = named(&format!("v{version} CM REQ"));
    match recorded.mad().message {
        Message::Request(request) => (recorded.parts().0, request),
        other => panic!("{other:?}"),
    }
}

#[test]
fn their_requests_say_what_ours_say() {
    for version in [4, 6] {
        let (way, request) = request(version);
        assert_eq!(request.service_id, ServiceId::for_port(7_174), "rping's port");
        assert_eq!(request.transport_service, TransportService::Reliable);
        assert_eq!(request.path_mtu.bytes(), Some(1_024), "what 1500 bytes carry");
        assert_eq!((request.retry_count.get(), request.rnr_retry_count.get()), (7, 7));
        let path = request.primary;
        assert_eq!((path.local_gid, path.remote_gid), (Gid::from(way.src().ip()), Gid::from(way.dst().ip())));
        assert_eq!((path.local_lid, path.remote_lid, path.hop_limit), (0xffff, 0xffff, 64));
        assert_eq!(request.alternate, None);
        assert_eq!(request.vendor, Default::default());
        let (header, data) = IpHeader::split(&request.private_data.0).expect("who asks, in terms of IP");
        assert_eq!((header.source, header.destination), (way.src().ip(), way.dst().ip()));
        assert!(data.iter().all(|byte| *byte == 0), "rping has nothing to say");
        // Written by us from what was read, it is the same message.
        let mad = Mad { transaction_id: 1, message: Message::Request(request) };
        assert_eq!(cm::parse(&cm::emit(&mad)), Ok(mad));
    }
}

#[test]
fn their_other_messages_are_understood() {
    let (_, request) = request(4);
    let Message::LookupRequest(lookup) = named("v4 CM SIDR_REQ").mad().message else { panic!("not a question") };
    assert_eq!(lookup.service_id.0 >> 16, 0x0111, "UDP's port space");
    assert!(IpHeader::split(&lookup.private_data.0).is_some());
    let Message::Reject(reject) = named("v4 CM REJ").mad().message else { panic!("not a refusal") };
    assert_eq!((reject.reason, reject.local_comm_id), (RejectReason::TIMEOUT, request.local_comm_id));
}

#[test]
fn their_answers_are_understood() {
    for version in ["v4", "v6"] {
        let message = |name: &str| named(&format!("{version} CM {name}")).mad().message;
        let Message::Reply(reply) = message("REP") else { panic!("not a reply") };
        assert!(reply.local_qpn.get() < 0x4_0000, "not the number of a queue pair of ours");
        assert_eq!(reply.vendor, Default::default());
        let Message::DisconnectRequest(end) = message("DREQ") else { panic!("not an end") };
        assert!(end.remote_qpn.get() >= 0x4_0000, "ours");
        assert!(matches!(message("DREP"), Message::DisconnectReply(_)));
        let Message::LookupReply(found) = message("SIDR_REP") else { panic!("not an answer") };
        assert_eq!((found.status, found.queue_key), (LookupStatus::VALID, 0x0123_4567));
        // Requests for patience are no message that we speak.
        let patience = named(&format!("{version} CM MRA"));
        let (_, _, datagram) = patience.parts();
        let mad = gsi::decode(datagram).expect("a management datagram").mad;
        assert_eq!(cm::parse(mad), Err(CmError::Attribute));
    }
}
