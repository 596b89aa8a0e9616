//! Tests of control messages: which senders are accepted, and what a message may contain.

use super::control_messages::NAMES;
use super::*;
use crate::{Nic, NicConfig, PackedIpFields, RxDrop};
use ring::PACKET_BYTES_MAX;
use rnic_base::RandomStreams;
use rnic_wire::ICRC_LEN;

fn open(port: u16) -> Bypass {
    let secret = crate::Secrets::of_seed(port.into()).stream("bypass");
    Bypass::open(port, secret).expect("no NIC uses a port this low")
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new("127.0.0.1".parse().expect("an address"), port)
}

fn addresses_to(port: u16) -> Addresses {
    Addresses::new(at(4_791), at(port)).expect("both IPv4")
}

fn offer(from: ControlAddress) -> Offer {
    Offer { from, source: at(4_791), to: "127.0.0.2".parse().expect("an address") }
}

/// Lets two NICs process their control messages until a ring from the first to the second exists.
fn exchange(now: Time, writer: &mut Bypass, reader: &mut Bypass) {
    for _ in 0..2 {
        reader.poll_control_socket(now, true);
        writer.poll_control_socket(now, true);
    }
    reader.poll_control_socket(now, true);
}

/// The addresses that the kernel can bind are those that the C library reports as local.
#[test]
fn own_addresses_match_those_of_the_c_library() {
    for own in local_addresses().expect("the system reports its addresses") {
        assert!(sys::is_own(own.ip), "{own:?}");
    }
    for remote in ["192.0.2.1", "2001:db8::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
        assert!(!sys::is_own(remote.parse().expect("an address")), "{remote}");
    }
}

#[test]
fn a_control_socket_survives_what_other_processes_send() {
    let mut bypass = open(1_008);
    let address = bypass.address;
    let sender = unix::connect_control_socket(&address.socket_name()).expect("the control socket exists");
    sender.send(b"").expect("the socket buffer has space");
    sender.send(&[0x5a; 200]).expect("the socket buffer has space");
    // A valid message with memory, but with a ticket that was never issued.
    let producer = Producer::create().expect("memory");
    let from = ControlAddress { port: 1_000, name: 0 };
    let (nonce, offer) = ([5; 16], offer(from));
    let unexpected = ControlMessage::Offer { offer, nonce, ticket: [6; 16] };
    unix::send_file(&sender, &unexpected.emit(), producer.file()).expect("the socket buffer has space");
    assert!(bypass.poll_control_socket(Time::ZERO, true));
    assert!(bypass.incoming.is_empty());
    // Now with the ticket that belongs to the nonce and the control socket: first an offer for an address of another
    // machine, then one for another control socket, one without memory, one with a file of the wrong kind, and
    // finally a valid one.
    let ticket = bypass.ticket_for(from, &nonce);
    let remote = Offer { source: "192.0.2.1:4791".parse().expect("an address"), ..offer };
    let other = Offer { from: ControlAddress { port: 984, name: 0 }, ..offer };
    let null = std::fs::File::open("/dev/null").expect("/dev/null exists");
    for offer in [remote, other] {
        let text = ControlMessage::Offer { offer, nonce, ticket };
        unix::send_file(&sender, &text.emit(), producer.file()).expect("the socket buffer has space");
    }
    let text = ControlMessage::Offer { offer, nonce, ticket }.emit();
    sender.send(&text).expect("the socket buffer has space");
    unix::send_file(&sender, &text, null.as_fd()).expect("the socket buffer has space");
    bypass.poll_control_socket(Time::ZERO, true);
    assert!(bypass.incoming.is_empty());
    unix::send_file(&sender, &text, producer.file()).expect("the socket buffer has space");
    bypass.poll_control_socket(Time::ZERO, true);
    assert_eq!(bypass.incoming.len(), 1);
    // A second offer from the same control socket replaces the first ring, because the NIC may have restarted.
    unix::send_file(&sender, &text, Producer::create().expect("memory").file()).expect("the socket buffer has space");
    bypass.poll_control_socket(Time::ZERO, true);
    assert_eq!(bypass.incoming.len(), 1);
}

#[test]
fn probe_replies_without_a_matching_probe_are_ignored() {
    let (mut writer, reader) = (open(864), open(848));
    writer.prepare(Time::ZERO, PeerId(7), &addresses_to(848));
    let to_writer = writer.address.socket_name();
    // First an answer from the right control socket with a wrong nonce, then one with the right nonce from another
    // control socket of the same user.
    let probe = unix::receive_control_message(&reader.control_socket, &mut [0; 200]).expect("a probe has arrived");
    assert!(probe.file.is_none(), "the probe has a file");
    let answer = ControlMessage::ProbeReply { nonce: [1; 16], ticket: [2; 16] }.emit();
    unix::send_control_message(&reader.control_socket, &to_writer, &answer).expect("the socket buffer has space");
    writer.poll_control_socket(Time::ZERO, true);
    assert!(writer.channels.is_empty());
    writer.prepare(Time::ZERO + PROBE_RETRY_INTERVAL, PeerId(7), &addresses_to(848));
    let mut bytes = [0; ControlMessage::BYTES];
    unix::receive_control_message(&reader.control_socket, &mut bytes).expect("another probe has arrived");
    let Some(ControlMessage::Probe { nonce, .. }) = ControlMessage::parse(&bytes) else { panic!("not a probe") };
    let answer = ControlMessage::ProbeReply { nonce, ticket: [2; 16] }.emit();
    unix::send_control_message(&open(832).control_socket, &to_writer, &answer).expect("the socket buffer has space");
    writer.poll_control_socket(Time::ZERO, true);
    assert!(writer.channels.is_empty());
    unix::send_control_message(&reader.control_socket, &to_writer, &answer).expect("the socket buffer has space");
    writer.poll_control_socket(Time::ZERO, true);
    assert_eq!(writer.channels.len(), 1, "the valid reply created no ring");
}

#[test]
fn a_control_socket_whose_name_is_taken_uses_another_name() {
    let name = |name| ControlAddress { port: 816, name }.socket_name();
    let squatters: Vec<_> =
        (0..NAMES - 1).map(|index| unix::bind_control_socket(&name(index)).expect("the name is free")).collect();
    let (mut writer, mut reader) = (open(800), open(816));
    assert_eq!(reader.address, ControlAddress { port: 816, name: NAMES - 1 });
    writer.prepare(Time::ZERO, PeerId(7), &addresses_to(816));
    exchange(Time::ZERO, &mut writer, &mut reader);
    assert_eq!((writer.rings(), reader.incoming.len()), (1, 1));
    for squatter in &squatters {
        let message = unix::receive_control_message(squatter, &mut [0; 200]).expect("the socket has received a probe");
        assert!(message.file.is_none() && unix::receive_control_message(squatter, &mut [0; 200]).is_none());
    }
    // If all names are in use, opening the control socket fails.
    let secret = crate::Secrets::of_seed(1).stream("bypass");
    let error = Bypass::open(816, secret).expect_err("no name is left");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

/// Creates two NICs with low port numbers; the first has a ring to the second, which is attached to it.
fn attached(ports: (u16, u16)) -> (Bypass, Bypass, (PeerId, u16)) {
    let (mut writer, mut reader) = (open(ports.0), open(ports.1));
    let target = (PeerId(7), ports.1);
    writer.prepare(Time::ZERO, target.0, &addresses_to(ports.1));
    exchange(Time::ZERO, &mut writer, &mut reader);
    assert_eq!((writer.rings(), reader.incoming.len()), (1, 1));
    (writer, reader, target)
}

#[test]
fn a_ring_is_released_with_its_last_user_after_it_has_been_read() {
    let (mut writer, mut reader, target) = attached((976, 960));
    assert_eq!(writer.send_from_nic(Time::ZERO, target, b"last", RecordKind::default()), RingResult::Sent);
    writer.release(Time::ZERO, target);
    assert!(writer.rings() == 0 && writer.targets.is_empty());
    // A new ring does not replace the first one while that one still contains records.
    writer.prepare(Time::ZERO, target.0, &addresses_to(target.1));
    exchange(Time::ZERO, &mut writer, &mut reader);
    assert_eq!(reader.incoming.len(), 2);
    let record = reader.incoming[0].consumer.next().expect("the ring is valid").expect("a record").bytes.to_vec();
    assert_eq!(record, b"last");
    reader.poll_control_socket(Time::ZERO, true);
    assert_eq!((reader.incoming.len(), writer.rings()), (1, 1));
}

#[test]
fn the_ring_of_a_killed_writer_is_released() {
    let (mut writer, mut reader, target) = attached((944, 928));
    assert_eq!(writer.send_from_nic(Time::ZERO, target, b"last", RecordKind::default()), RingResult::Sent);
    writer.publish(Time::ZERO);
    let later = |ms| Time::ZERO + Duration::from_ms(ms);
    reader.poll_control_socket(later(20), true);
    assert_eq!(reader.incoming.len(), 1, "the ring was released too early");
    // As if the process was killed: the kernel closes its control socket, but the ring is not marked as closed.
    let Bypass { control_socket, channels, .. } = writer;
    std::mem::forget(channels);
    drop(control_socket);
    reader.poll_control_socket(later(40), true);
    assert_eq!(reader.incoming.len(), 1, "an unread ring was released");
    assert!(reader.incoming[0].consumer.next().is_ok_and(|record| record.is_some()));
    reader.poll_control_socket(later(60), true);
    assert!(reader.incoming.is_empty());
}

#[test]
fn entries_of_absent_targets_are_replaced() {
    let mut bypass = open(912);
    for peer in 0..CHANNELS_MAX as u32 {
        bypass.prepare(Time::ZERO, PeerId(peer), &addresses_to(896));
    }
    assert_eq!(bypass.targets.len(), CHANNELS_MAX);
    let (mut reader, now) = (open(880), Time::ZERO + PROBE_RETRY_INTERVAL);
    bypass.prepare(now, PeerId(9_999), &addresses_to(880));
    exchange(now, &mut bypass, &mut reader);
    assert!(matches!(bypass.targets.get(&(PeerId(9_999), 880)), Some(RingTarget::Channel(_))));
}

/// Creates a packet with random content for queue pair `to`.
fn noise(random: &mut rnic_base::RandomStream, to: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..random.below(200)).map(|_| random.bits() as u8).collect();
    if bytes.len() >= 12 && random.below(8) > 0 {
        // A valid opcode lets the packet pass more checks.
        bytes[0] = [0x00, 0x04, 0x06, 0x0a, 0x0c, 0x11, 0x13, 0x24, 0x2a, 0x64][random.below(10) as usize];
        bytes[1] = (random.below(4) * 0x10) as u8 & 0x30;
        bytes[2..4].copy_from_slice(&[0xff; 2]);
        bytes[4..8].copy_from_slice(&to.to_be_bytes());
    }
    bytes
}

/// Makes the NIC accept a ring from control socket 992. Returns the sockets, and the offer that the NIC accepts.
fn send_probe_and_get_offer(nic: &mut Nic) -> ([UnixDatagram; 2], [u8; ControlMessage::BYTES]) {
    let from = ControlAddress { port: 992, name: 0 };
    let named = unix::bind_control_socket(&from.socket_name()).expect("no NIC uses a port this low");
    let sender =
        unix::connect_control_socket(&ControlAddress { port: nic.port(), name: 0 }.socket_name()).expect("it is bound");
    let nonce = [3; 16];
    sender.send(&ControlMessage::Probe { from, nonce }.emit()).expect("the socket buffer has space");
    for _ in 0..=CONTROL_POLL_TURNS {
        nic.progress();
    }
    let mut bytes = [0; ControlMessage::BYTES];
    unix::receive_control_message(&named, &mut bytes).expect("a response has arrived");
    let Some(ControlMessage::ProbeReply { ticket, .. }) = ControlMessage::parse(&bytes) else {
        panic!("not a response")
    };
    let text = ControlMessage::Offer { offer: Offer { to: at(0).ip(), ..offer(from) }, nonce, ticket }.emit();
    // The sockets are returned because the NIC considers a writer without a control socket as terminated.
    ([named, sender], text)
}

#[test]
fn a_nic_survives_a_ring_writer_of_random_records() {
    let mut nic = Nic::open(NicConfig::shared()).expect("a free port");
    nic.acquire_host("127.0.0.1".parse().expect("an address"), None).expect("loopback");
    let pd = nic.verbs().create_pd().expect("a protection domain");
    let cq = nic.verbs().create_cq(64).expect("valid");
    let attributes = crate::TransportChoice::named("irn", &[]).map(|choice| rnic_engine::QpAttributes {
        service: rnic_engine::Service::ReliableConnection,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        transport: std::sync::Arc::new(rnic_engine::Transport::new(choice.profile).expect("a complete profile")),
        number: None,
        nvme: None,
    });
    let qpn = nic.verbs().create_qp(&attributes.expect("it exists")).expect("a free number").get();
    let ([_named, sender], text) = send_probe_and_get_offer(&mut nic);
    let mut random = RandomStreams::new(5).stream("noise");
    for round in 0..20 {
        // During a capture, an ICRC is added to packets that are not sealed.
        if round == 10 {
            nic.start_capture(Box::new(std::io::sink())).expect("nothing is written");
        }
        let mut producer = Producer::create().expect("memory");
        unix::send_file(&sender, &text, producer.file()).expect("the socket buffer has space");
        for _ in 0..=CONTROL_POLL_TURNS {
            nic.progress();
        }
        assert_eq!(producer.state(), State::Attached);
        for _ in 0..100 {
            for _ in 0..random.below(20) {
                let bytes = noise(&mut random, qpn);
                let ip_fields = PackedIpFields::of_bits(random.below(1 << 36)).expect("36 bits");
                let kind = RecordKind { is_sealed: random.below(4) == 0, ip_fields };
                if let Ok(Some(mut writer)) = producer.begin(bytes.len(), kind) {
                    writer.put(&bytes);
                }
            }
            producer.publish();
            nic.progress();
        }
        // Finally, a record that is too long for a datagram with an ICRC, or random bytes in the ring itself.
        if random.below(2) == 0 {
            let too_long = PACKET_BYTES_MAX - random.below(ICRC_LEN as u64) as usize;
            assert!(producer.begin(too_long, RecordKind::default()).is_ok_and(|writer| writer.is_some()), "room");
            producer.publish();
        } else {
            producer.corrupt(random.bits());
        }
        for _ in 0..64 {
            nic.progress();
        }
        assert_eq!(producer.state(), State::Closed, "the NIC still reads the ring");
    }
    let stats = nic.stats();
    assert_eq!(stats.bypass_broken, 20);
    assert!(stats.bypass_received > 10_000 && stats.dropped(RxDrop::Malformed) > 1_000, "{stats:?}");
    assert!(stats.dropped(RxDrop::Icrc) > 100, "corrupt sealed packets were accepted: {stats:?}");
}
