//! Letters: who may send one, and what it may say.

use super::*;

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
    assert!(bypass.look_for_letters(true));
    assert!(bypass.incoming.is_empty());
    // The right words from the right socket, without memory, then with the wrong kind, then with the right.
    let named = unix::bind_letterbox(&name_of(1_000)).expect("free too");
    let from_named = Hello { port: 1_000, ..hello() }.emit();
    let null = std::fs::File::open("/dev/null").expect("it is there");
    unix::send_letter(&named, &name_of(1_008), &from_named, null.as_fd()).expect("room");
    bypass.look_for_letters(true);
    assert!(bypass.incoming.is_empty());
    unix::send_letter(&named, &name_of(1_008), &from_named, producer.file()).expect("room");
    bypass.look_for_letters(true);
    assert_eq!(bypass.incoming.len(), 1);
    // Again: the same NIC has begun anew.
    unix::send_letter(&named, &name_of(1_008), &from_named, Producer::create().expect("memory").file()).expect("room");
    bypass.look_for_letters(true);
    assert_eq!(bypass.incoming.len(), 1);
}
