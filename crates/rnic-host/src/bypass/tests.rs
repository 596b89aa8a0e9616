//! Letters: who may send one, and what it may say.

use super::*;
use crate::{Nic, NicConfig, RxDrop};
use ring::PACKET_BYTES_MAX;
use rnic_base::RandomStreams;
use rnic_wire::ICRC_LEN;

fn hello() -> Hello {
    let ip = |text: &str| text.parse().expect("an address");
    Hello { port: 1_040, source: SocketAddr::new(ip("127.0.0.1"), 4_791), to: ip("127.0.0.2") }
}

fn letter(port: u16) -> Letter {
    Letter { len: HELLO_BYTES, from: Some(name_of(port)), uid: Some(unix::own_uid()), file: None }
}

#[test]
fn what_is_emitted_is_parsed() {
    assert_eq!(Hello::parse(&hello().emit()), Some(hello()));
    let ip = |text: &str| text.parse().expect("an address");
    let v6 = Hello { port: 65_520, source: SocketAddr::new(ip("fd00::1"), 1_024), to: ip("::1") };
    assert_eq!(Hello::parse(&v6.emit()), Some(v6));
    let bytes = hello().emit();
    assert_eq!(Hello::parse(&bytes[1..]), None);
    for at in 0..MAGIC.len() {
        let mut wrong = bytes;
        wrong[at] ^= 1;
        assert_eq!(Hello::parse(&wrong), None);
    }
    let mixed = Hello { to: ip("::1"), ..hello() };
    assert_eq!(Hello::parse(&mixed.emit()), None);
}

#[test]
fn a_letter_is_believed_from_its_own_socket_user_and_addresses_only() {
    assert!(is_credible(&hello(), &letter(1_040)));
    assert!(!is_credible(&hello(), &letter(1_056)), "the socket of another port");
    assert!(!is_credible(&hello(), &Letter { from: None, ..letter(1_040) }), "a socket without a name");
    assert!(!is_credible(&hello(), &Letter { uid: Some(unix::own_uid() + 1), ..letter(1_040) }), "another user");
    assert!(!is_credible(&hello(), &Letter { uid: None, ..letter(1_040) }));
    let foreign = SocketAddr::new("192.0.2.1".parse().expect("an address"), 4_791);
    assert!(!is_credible(&Hello { source: foreign, ..hello() }, &letter(1_040)), "an address of another machine");
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
fn a_letterbox_survives_what_strangers_put_into_it() {
    let mut bypass = Bypass::open(1_008).expect("a name that nobody has: no NIC has a port this low");
    let stranger = UnixDatagram::unbound().expect("a socket");
    let connected = unix::connect_letterbox(&name_of(1_008)).expect("it is there");
    connected.send(b"").expect("room");
    connected.send(&[0x5a; 200]).expect("room");
    connected.send(&hello().emit()).expect("room");
    // The right words with memory, from a socket without a name.
    let producer = Producer::create().expect("memory");
    unix::send_letter(&stranger, &name_of(1_008), &hello().emit(), producer.file()).expect("room");
    assert!(bypass.look_for_letters(Time::ZERO, true));
    assert!(bypass.incoming.is_empty());
    // The right words from the right socket, without memory, then with the wrong kind, then with the right.
    let named = unix::bind_letterbox(&name_of(1_000)).expect("free too");
    let from_named = Hello { port: 1_000, ..hello() }.emit();
    let null = std::fs::File::open("/dev/null").expect("it is there");
    unix::send_letter(&named, &name_of(1_008), &from_named, null.as_fd()).expect("room");
    bypass.look_for_letters(Time::ZERO, true);
    assert!(bypass.incoming.is_empty());
    unix::send_letter(&named, &name_of(1_008), &from_named, producer.file()).expect("room");
    bypass.look_for_letters(Time::ZERO, true);
    assert_eq!(bypass.incoming.len(), 1);
    // Again: the same NIC has begun anew.
    unix::send_letter(&named, &name_of(1_008), &from_named, Producer::create().expect("memory").file()).expect("room");
    bypass.look_for_letters(Time::ZERO, true);
    assert_eq!(bypass.incoming.len(), 1);
}

/// Two NICs of low numbers, the first with a ring to the second, which has attached it.
fn attached(ports: (u16, u16)) -> (Bypass, Bypass, (PeerId, u16)) {
    let open = |port| Bypass::open(port).expect("a name that nobody has: no NIC has a port this low");
    let (mut writer, mut reader) = (open(ports.0), open(ports.1));
    let at = |port| SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
    let target = (PeerId(7), ports.1);
    let way = Addresses::new(at(4_791), at(ports.1)).expect("both IPv4");
    writer.prepare(Time::ZERO, target.0, &way);
    assert!(reader.look_for_letters(Time::ZERO, true));
    assert_eq!((writer.rings(), reader.incoming.len()), (1, 1));
    (writer, reader, target)
}

#[test]
fn a_ring_goes_with_its_last_user_when_it_has_been_read() {
    let (mut writer, mut reader, target) = attached((976, 960));
    assert_eq!(writer.send_own(Time::ZERO, target, b"last", false), Taken::Yes);
    writer.release(Time::ZERO, target);
    assert!(writer.rings() == 0 && writer.targets.is_empty());
    // Another one does not push out what is left in the first.
    let at = |port| SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
    writer.prepare(Time::ZERO, target.0, &Addresses::new(at(4_791), at(target.1)).expect("both IPv4"));
    reader.look_for_letters(Time::ZERO, true);
    assert_eq!(reader.incoming.len(), 2);
    let words = reader.incoming[0].consumer.next().expect("it is sound").expect("it is there").bytes.to_vec();
    assert_eq!(words, b"last");
    reader.look_for_letters(Time::ZERO, true);
    assert_eq!((reader.incoming.len(), writer.rings()), (1, 1));
}

#[test]
fn the_ring_of_a_writer_that_was_killed_goes() {
    let (mut writer, mut reader, target) = attached((944, 928));
    assert_eq!(writer.send_own(Time::ZERO, target, b"last", false), Taken::Yes);
    writer.publish(Time::ZERO);
    let later = |ms| Time::ZERO + Duration::from_ms(ms);
    reader.look_for_letters(later(20), true);
    assert_eq!(reader.incoming.len(), 1, "it is there");
    // The kernel closes its letterbox, and nobody says anything in the ring.
    let Bypass { letterbox, channels, .. } = writer;
    std::mem::forget(channels);
    drop(letterbox);
    reader.look_for_letters(later(40), true);
    assert_eq!(reader.incoming.len(), 1, "it has not been read");
    assert!(reader.incoming[0].consumer.next().is_ok_and(|record| record.is_some()));
    reader.look_for_letters(later(60), true);
    assert!(reader.incoming.is_empty());
}

#[test]
fn places_where_nobody_was_are_not_kept_for_ever() {
    let mut bypass = Bypass::open(912).expect("a name that nobody has");
    let at = |port| SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
    let way = |port| Addresses::new(at(4_791), at(port)).expect("both IPv4");
    for peer in 0..CHANNELS_MAX as u32 {
        bypass.prepare(Time::ZERO, PeerId(peer), &way(896));
    }
    assert_eq!(bypass.targets.len(), CHANNELS_MAX);
    let reader = Bypass::open(880).expect("a name that nobody has");
    bypass.prepare(Time::ZERO + ASK_AGAIN_AFTER, PeerId(9_999), &way(880));
    assert!(matches!(bypass.targets.get(&(PeerId(9_999), 880)), Some(Target::Channel(_))));
    drop(reader);
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

#[test]
fn a_live_nic_survives_a_writer_of_noise_and_goes_on() {
    let mut nic = Nic::open(NicConfig::shared()).expect("a free port");
    nic.acquire_host("127.0.0.1".parse().expect("an address"), None).expect("loopback");
    let pd = nic.create_pd().expect("a protection domain");
    let cq = nic.create_cq(64).expect("legal");
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
    });
    let qpn = nic.create_qp(&attributes.expect("it exists")).expect("a free number").get();
    let named = unix::bind_letterbox(&name_of(992)).expect("no NIC has a port this low");
    let loopback = "127.0.0.1".parse().expect("an address");
    let hello = Hello { port: 992, source: SocketAddr::new(loopback, 4_791), to: loopback };
    let mut random = RandomStreams::new(5).stream("noise");
    for round in 0..20 {
        // A capture gives what is not sealed an ICRC.
        if round == 10 {
            nic.start_capture(Box::new(std::io::sink())).expect("nothing is written");
        }
        let mut producer = Producer::create().expect("memory");
        unix::send_letter(&named, &name_of(nic.port()), &hello.emit(), producer.file()).expect("room");
        for _ in 0..=LETTERS_EVERY {
            nic.progress();
        }
        assert_eq!(producer.state(), State::Attached);
        for _ in 0..100 {
            for _ in 0..random.below(20) {
                let bytes = noise(&mut random, qpn);
                let sealed = random.below(4) == 0;
                if let Ok(Some(mut writer)) = producer.begin(bytes.len(), sealed) {
                    writer.put(&bytes);
                }
            }
            producer.publish();
            nic.progress();
        }
        // And then nonsense in the ring itself, or what would be no datagram with an ICRC.
        if random.below(2) == 0 {
            let too_long = PACKET_BYTES_MAX - random.below(ICRC_LEN as u64) as usize;
            assert!(producer.begin(too_long, false).is_ok_and(|writer| writer.is_some()), "room");
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
