//! Control messages: who may send one, and what it may carry.

use super::control_messages::NAMES;
use super::*;
use crate::{Marking, Nic, NicConfig, RxDrop};
use ring::PACKET_BYTES_MAX;
use rnic_base::RandomStreams;
use rnic_wire::ICRC_LEN;

fn open(port: u16) -> Bypass {
    let secret = crate::Secrets::of_seed(port.into()).stream("bypass");
    Bypass::open(port, secret).expect("a name that nobody has: no NIC has a port this low")
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new("127.0.0.1".parse().expect("an address"), port)
}

fn way_to(port: u16) -> Addresses {
    Addresses::new(at(4_791), at(port)).expect("both IPv4")
}

fn offer(from: Place) -> Offer {
    Offer { from, source: at(4_791), to: "127.0.0.2".parse().expect("an address") }
}

/// Lets each of two NICs read its control messages until a ring from the first to the second is made.
fn exchange(now: Time, writer: &mut Bypass, reader: &mut Bypass) {
    for _ in 0..2 {
        reader.poll_control_socket(now, true);
        writer.poll_control_socket(now, true);
    }
    reader.poll_control_socket(now, true);
}

/// The kernel and the C library say the same of which addresses are ours.
#[test]
fn own_addresses_are_those_that_can_be_bound() {
    for own in local_addresses().expect("the system tells") {
        assert!(sys::is_own(own.ip), "{own:?}");
    }
    for foreign in ["192.0.2.1", "2001:db8::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
        assert!(!sys::is_own(foreign.parse().expect("an address")), "{foreign}");
    }
}

#[test]
fn a_control_socket_survives_what_other_processes_send() {
    let mut bypass = open(1_008);
    let place = bypass.place;
    let bell = unix::connect_control_socket(&place.socket_name()).expect("it is there");
    bell.send(b"").expect("room");
    bell.send(&[0x5a; 200]).expect("room");
    // The right words with memory, and a ticket that nobody has given.
    let producer = Producer::create().expect("memory");
    let from = Place { port: 1_000, name: 0 };
    let (nonce, offer) = ([5; 16], offer(from));
    let invented = ControlText::Offer { offer, nonce, ticket: [6; 16] };
    unix::send_file(&bell, &invented.emit(), producer.file()).expect("room");
    assert!(bypass.poll_control_socket(Time::ZERO, true));
    assert!(bypass.incoming.is_empty());
    // With the ticket that goes with the nonce and the control socket, but about an address of another machine, or for
    // another control socket; without memory; with the wrong kind; then with the right.
    let ticket = bypass.ticket_for(from, &nonce);
    let foreign = Offer { source: "192.0.2.1:4791".parse().expect("an address"), ..offer };
    let other = Offer { from: Place { port: 984, name: 0 }, ..offer };
    let null = std::fs::File::open("/dev/null").expect("it is there");
    for offer in [foreign, other] {
        let words = ControlText::Offer { offer, nonce, ticket };
        unix::send_file(&bell, &words.emit(), producer.file()).expect("room");
    }
    let words = ControlText::Offer { offer, nonce, ticket }.emit();
    bell.send(&words).expect("room");
    unix::send_file(&bell, &words, null.as_fd()).expect("room");
    bypass.poll_control_socket(Time::ZERO, true);
    assert!(bypass.incoming.is_empty());
    unix::send_file(&bell, &words, producer.file()).expect("room");
    bypass.poll_control_socket(Time::ZERO, true);
    assert_eq!(bypass.incoming.len(), 1);
    // Again: the same NIC has begun anew.
    unix::send_file(&bell, &words, Producer::create().expect("memory").file()).expect("room");
    bypass.poll_control_socket(Time::ZERO, true);
    assert_eq!(bypass.incoming.len(), 1);
}

#[test]
fn answers_that_nobody_has_asked_for_bring_nothing() {
    let (mut writer, reader) = (open(864), open(848));
    writer.prepare(Time::ZERO, PeerId(7), &way_to(848));
    let to_writer = writer.place.socket_name();
    // From the right control socket with another nonce; then with the right one, from another of this user's.
    let question = unix::receive_control_message(&reader.control_socket, &mut [0; 200]).expect("a question");
    assert!(question.file.is_none(), "nothing comes with it");
    let answer = ControlText::Answer { nonce: [1; 16], ticket: [2; 16] }.emit();
    unix::send_control_message(&reader.control_socket, &to_writer, &answer).expect("room");
    writer.poll_control_socket(Time::ZERO, true);
    assert!(writer.channels.is_empty());
    writer.prepare(Time::ZERO + ASK_AGAIN_AFTER, PeerId(7), &way_to(848));
    let mut bytes = [0; ControlText::BYTES];
    unix::receive_control_message(&reader.control_socket, &mut bytes).expect("another question");
    let Some(ControlText::Ask { nonce, .. }) = ControlText::parse(&bytes) else { panic!("a question") };
    let answer = ControlText::Answer { nonce, ticket: [2; 16] }.emit();
    unix::send_control_message(&open(832).control_socket, &to_writer, &answer).expect("room");
    writer.poll_control_socket(Time::ZERO, true);
    assert!(writer.channels.is_empty());
    unix::send_control_message(&reader.control_socket, &to_writer, &answer).expect("room");
    writer.poll_control_socket(Time::ZERO, true);
    assert_eq!(writer.channels.len(), 1, "as it should be");
}

#[test]
fn a_control_socket_whose_name_is_taken_gets_another_and_rings_are_made() {
    let name = |name| Place { port: 816, name }.socket_name();
    let squatters: Vec<_> =
        (0..NAMES - 1).map(|index| unix::bind_control_socket(&name(index)).expect("free")).collect();
    let (mut writer, mut reader) = (open(800), open(816));
    assert_eq!(reader.place, Place { port: 816, name: NAMES - 1 });
    writer.prepare(Time::ZERO, PeerId(7), &way_to(816));
    exchange(Time::ZERO, &mut writer, &mut reader);
    assert_eq!((writer.rings(), reader.incoming.len()), (1, 1));
    for squatter in &squatters {
        let message = unix::receive_control_message(squatter, &mut [0; 200]).expect("they were asked");
        assert!(message.file.is_none() && unix::receive_control_message(squatter, &mut [0; 200]).is_none());
    }
    // With all names taken there is no control socket.
    let secret = crate::Secrets::of_seed(1).stream("bypass");
    let error = Bypass::open(816, secret).expect_err("no name is left");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

/// Two NICs of low numbers, the first with a ring to the second, which has attached it.
fn attached(ports: (u16, u16)) -> (Bypass, Bypass, (PeerId, u16)) {
    let (mut writer, mut reader) = (open(ports.0), open(ports.1));
    let target = (PeerId(7), ports.1);
    writer.prepare(Time::ZERO, target.0, &way_to(ports.1));
    exchange(Time::ZERO, &mut writer, &mut reader);
    assert_eq!((writer.rings(), reader.incoming.len()), (1, 1));
    (writer, reader, target)
}

#[test]
fn a_ring_goes_with_its_last_user_when_it_has_been_read() {
    let (mut writer, mut reader, target) = attached((976, 960));
    assert_eq!(writer.send_own(Time::ZERO, target, b"last", Kind::default()), Taken::Yes);
    writer.release(Time::ZERO, target);
    assert!(writer.rings() == 0 && writer.targets.is_empty());
    // Another one does not push out what is left in the first.
    writer.prepare(Time::ZERO, target.0, &way_to(target.1));
    exchange(Time::ZERO, &mut writer, &mut reader);
    assert_eq!(reader.incoming.len(), 2);
    let words = reader.incoming[0].consumer.next().expect("it is sound").expect("it is there").bytes.to_vec();
    assert_eq!(words, b"last");
    reader.poll_control_socket(Time::ZERO, true);
    assert_eq!((reader.incoming.len(), writer.rings()), (1, 1));
}

#[test]
fn the_ring_of_a_writer_that_was_killed_goes() {
    let (mut writer, mut reader, target) = attached((944, 928));
    assert_eq!(writer.send_own(Time::ZERO, target, b"last", Kind::default()), Taken::Yes);
    writer.publish(Time::ZERO);
    let later = |ms| Time::ZERO + Duration::from_ms(ms);
    reader.poll_control_socket(later(20), true);
    assert_eq!(reader.incoming.len(), 1, "it is there");
    // The kernel closes its control socket, and nobody says anything in the ring.
    let Bypass { control_socket, channels, .. } = writer;
    std::mem::forget(channels);
    drop(control_socket);
    reader.poll_control_socket(later(40), true);
    assert_eq!(reader.incoming.len(), 1, "it has not been read");
    assert!(reader.incoming[0].consumer.next().is_ok_and(|record| record.is_some()));
    reader.poll_control_socket(later(60), true);
    assert!(reader.incoming.is_empty());
}

#[test]
fn places_where_nobody_was_are_not_kept_for_ever() {
    let mut bypass = open(912);
    for peer in 0..CHANNELS_MAX as u32 {
        bypass.prepare(Time::ZERO, PeerId(peer), &way_to(896));
    }
    assert_eq!(bypass.targets.len(), CHANNELS_MAX);
    let (mut reader, now) = (open(880), Time::ZERO + ASK_AGAIN_AFTER);
    bypass.prepare(now, PeerId(9_999), &way_to(880));
    exchange(now, &mut bypass, &mut reader);
    assert!(matches!(bypass.targets.get(&(PeerId(9_999), 880)), Some(RingTarget::Channel(_))));
}

/// A packet for queue pair `to`, with anything in it.
fn noise(random: &mut rnic_base::RandomStream, to: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..random.below(200)).map(|_| random.bits() as u8).collect();
    if bytes.len() >= 12 && random.below(8) > 0 {
        // A legal beginning, so that it gets further.
        bytes[0] = [0x00, 0x04, 0x06, 0x0a, 0x0c, 0x11, 0x13, 0x24, 0x2a, 0x64][random.below(10) as usize];
        bytes[1] = (random.below(4) * 0x10) as u8 & 0x30;
        bytes[2..4].copy_from_slice(&[0xff; 2]);
        bytes[4..8].copy_from_slice(&to.to_be_bytes());
    }
    bytes
}

/// A NIC invites whoever has the control socket of port 992 to offer a ring: where to, and in which words.
fn invited(nic: &mut Nic) -> ([UnixDatagram; 2], [u8; ControlText::BYTES]) {
    let from = Place { port: 992, name: 0 };
    let named = unix::bind_control_socket(&from.socket_name()).expect("no NIC has a port this low");
    let bell = unix::connect_control_socket(&Place { port: nic.port(), name: 0 }.socket_name()).expect("it is there");
    let nonce = [3; 16];
    bell.send(&ControlText::Ask { from, nonce }.emit()).expect("room");
    for _ in 0..=LETTERS_EVERY {
        nic.progress();
    }
    let mut bytes = [0; ControlText::BYTES];
    unix::receive_control_message(&named, &mut bytes).expect("an answer");
    let Some(ControlText::Answer { ticket, .. }) = ControlText::parse(&bytes) else { panic!("an answer") };
    let words = ControlText::Offer { offer: Offer { to: at(0).ip(), ..offer(from) }, nonce, ticket }.emit();
    // A writer that has no control socket is gone.
    ([named, bell], words)
}

#[test]
fn a_live_nic_survives_a_writer_of_noise_and_goes_on() {
    let mut nic = Nic::open(NicConfig::shared()).expect("a free port");
    nic.acquire_host("127.0.0.1".parse().expect("an address"), None).expect("loopback");
    let pd = nic.verbs().create_pd().expect("a protection domain");
    let cq = nic.verbs().create_cq(64).expect("legal");
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
        transport: std::sync::Arc::new(rnic_engine::Transport::new(choice.profile).expect("whole")),
        number: None,
        nvme: None,
    });
    let qpn = nic.verbs().create_qp(&attributes.expect("it exists")).expect("a free number").get();
    let ([_named, bell], words) = invited(&mut nic);
    let mut random = RandomStreams::new(5).stream("noise");
    for round in 0..20 {
        // A capture gives what is not sealed an ICRC.
        if round == 10 {
            nic.start_capture(Box::new(std::io::sink())).expect("nothing is written");
        }
        let mut producer = Producer::create().expect("memory");
        unix::send_file(&bell, &words, producer.file()).expect("room");
        for _ in 0..=LETTERS_EVERY {
            nic.progress();
        }
        assert_eq!(producer.state(), State::Attached);
        for _ in 0..100 {
            for _ in 0..random.below(20) {
                let bytes = noise(&mut random, qpn);
                let marking = Marking::of_bits(random.below(1 << 36)).expect("36 bits");
                let kind = Kind { is_sealed: random.below(4) == 0, marking };
                if let Ok(Some(mut writer)) = producer.begin(bytes.len(), kind) {
                    writer.put(&bytes);
                }
            }
            producer.publish();
            nic.progress();
        }
        // And then nonsense in the ring itself, or what would be no datagram with an ICRC.
        if random.below(2) == 0 {
            let too_long = PACKET_BYTES_MAX - random.below(ICRC_LEN as u64) as usize;
            assert!(producer.begin(too_long, Kind::default()).is_ok_and(|writer| writer.is_some()), "room");
            producer.publish();
        } else {
            producer.corrupt(random.bits());
        }
        for _ in 0..64 {
            nic.progress();
        }
        assert_eq!(producer.state(), State::Closed, "it is read no more");
    }
    let stats = nic.stats();
    assert_eq!(stats.bypass_broken, 20);
    assert!(stats.bypass_received > 10_000 && stats.dropped(RxDrop::Malformed) > 1_000, "{stats:?}");
    assert!(stats.dropped(RxDrop::Icrc) > 100, "what is sealed is checked: {stats:?}");
}
