//! Tests of which peers are sent a hello and a response to one, and of the differences that are reported to the user.

use rnic_wire::hello::TransportName;

use super::*;

const PEER: PeerId = PeerId(3);
const LOCAL: Qpn = Qpn::new(0x10_0001);
const REMOTE: Qpn = Qpn::new(0x20_0002);

fn terms(transport: &str) -> Terms {
    Terms { transport: TransportName::new(transport).expect("a name"), mtu: 4_096, falcon: 0 }
}

fn connected(ours: Terms) -> Hellos {
    let mut hellos = Hellos::default();
    hellos.connected(Time::ZERO, LOCAL, (PEER, REMOTE), ours);
    hellos
}

fn hello_with(terms: Terms, is_response: bool) -> Hello {
    Hello { is_response, from: REMOTE, to: LOCAL, terms, messages: 0 }
}

#[test]
fn hello_requests_to_a_silent_peer_are_few_and_back_off() {
    let mut hellos = connected(terms("irn"));
    let mut times = Vec::new();
    while let Some(due) = hellos.next_due() {
        let requests = hellos.take_due(due);
        assert_eq!(
            requests,
            [OutgoingHello { peer: PEER, hello: Hello { from: LOCAL, to: REMOTE, ..hello_with(terms("irn"), false) } }]
        );
        times.push(due.since(Time::ZERO).as_ps() / 1_000_000_000);
    }
    assert_eq!(times, [0, 50, 150, 350], "not the expected milliseconds");
}

#[test]
fn hello_requests_of_many_new_connections_are_sent_in_bursts() {
    let mut hellos = Hellos::default();
    (0..100).for_each(|local_qpn| hellos.connected(Time::ZERO, Qpn::new(local_qpn), (PEER, REMOTE), terms("irn")));
    let mut requested = Vec::new();
    for burst in 0..7 {
        let now = Time::ZERO + BURST_INTERVAL.saturating_mul(burst);
        assert_eq!(hellos.next_due(), Some(now));
        requested.extend(hellos.take_due(now).into_iter().map(|outgoing| outgoing.hello.from.get()));
        assert!(hellos.take_due(now).is_empty() && requested.len() <= (burst as usize + 1) * REQUESTS_PER_CALL);
    }
    assert_eq!(requested, (0..100).collect::<Vec<u32>>(), "not every queue pair once");
}

#[test]
fn a_response_or_a_request_ends_the_hello_requests() {
    for is_response in [true, false] {
        let mut hellos = connected(terms("irn"));
        assert_eq!(hellos.take_due(Time::ZERO).len(), 1);
        let outcome = hellos.on_message(PEER, &hello_with(terms("irn"), is_response));
        assert_eq!(
            (outcome.answer.map(|outgoing| outgoing.hello.is_response), outcome.differs),
            ((!is_response).then_some(true), None)
        );
        assert_eq!(hellos.next_due(), None);
    }
}

/// The version of messages between NICs that the remote end announces is taken from the first hello about a queue
/// pair, and from the first that agrees; this end announces its own in requests and answers.
#[test]
fn s6_hellos_carry_the_version_of_messages_between_nics() {
    let mut hellos = connected(terms("irn"));
    hellos.announce_messages(1);
    assert_eq!(hellos.take_due(Time::ZERO)[0].hello.messages, 1);
    let theirs = Hello { messages: 1, ..hello_with(terms("irn"), false) };
    let outcome = hellos.on_message(PEER, &theirs);
    assert_eq!((outcome.is_news, outcome.answer.map(|outgoing| outgoing.hello.messages)), (true, Some(1)));
    assert!(!hellos.on_message(PEER, &theirs).is_news, "the second hello of a queue pair");
    assert_eq!(hellos.on_message(PEER, &theirs).differs, None, "it need not be the same at both ends");

    // A forged hello that arrives before that of the peer turns nothing off.
    let mut hellos = connected(terms("irn"));
    hellos.announce_messages(1);
    let mut is_news = |messages| hellos.on_message(PEER, &Hello { messages, ..theirs }).is_news;
    assert_eq!([0, 0, 2, 1, 1, 0].map(&mut is_news), [true, false, false, true, false, false]);
}

#[test]
fn differing_settings_are_reported_once_per_connection() {
    let (ours, theirs) = (terms("irn"), terms("falcon"));
    let mut hellos = connected(ours);
    assert_eq!(hellos.on_message(PEER, &hello_with(theirs, false)).differs, Some([theirs, ours]));
    assert_eq!(hellos.on_message(PEER, &hello_with(theirs, true)).differs, None);
    hellos.connected(Time::ZERO, LOCAL, (PEER, REMOTE), ours);
    assert_eq!(hellos.on_message(PEER, &hello_with(theirs, true)).differs, Some([theirs, ours]), "not reported again");
}

#[test]
fn hellos_of_other_peers_and_queue_pairs_are_ignored() {
    let mut hellos = connected(terms("irn"));
    let hello = hello_with(terms("falcon"), false);
    let unknown_senders =
        [(PeerId(4), hello), (PEER, Hello { from: Qpn::new(7), ..hello }), (PEER, Hello { to: Qpn::new(7), ..hello })];
    for (peer, hello) in unknown_senders {
        assert_eq!(hellos.on_message(peer, &hello), HelloOutcome::default(), "{peer:?} {hello:?}");
    }
    hellos.disconnected(LOCAL);
    assert_eq!(
        hellos.on_message(PEER, &hello),
        HelloOutcome::default(),
        "a hello to a removed queue pair was processed"
    );
    assert!(hellos.take_due(Time::ZERO).is_empty() && hellos.next_due().is_none());
}

#[test]
fn the_report_names_the_setting_to_change() {
    let text = |theirs, ours| SettingsDiffer { peer: [192, 0, 2, 1].into(), theirs, ours }.to_string();
    let irn = terms("irn");
    let transports = text(terms("falcon"), irn);
    assert!(transports.contains("192.0.2.1 uses transport falcon, but this end uses irn"), "{transports}");
    assert!(transports.ends_with("set the same --transport at both ends"), "{transports}");
    let packets = text(Terms { mtu: 1_024, ..irn }, irn);
    assert!(
        packets.contains("packets of 1024 bytes, but this end sends packets of 4096 bytes; set the same --mtu"),
        "{packets}"
    );
    let falcon = Terms { falcon: 0x3001_0000, ..terms("falcon") };
    let flows = text(Terms { falcon: 0x3004_0000, ..falcon }, falcon);
    assert!(
        flows.contains("flows=4, no key, but this end uses falcon with") && flows.contains("--set and --key"),
        "{flows}"
    );
    let flows = text(Terms { falcon: 4, ..terms("tonic-irn") }, terms("tonic-irn"));
    assert!(flows.contains("uses flows=4, but this end uses flows=1; set the same --set flows"), "{flows}");
    let keys = text(Terms { falcon: 0x3101_0001, ..falcon }, Terms { falcon: 0x3101_0002, ..falcon });
    assert!(keys.contains("the --key secrets differ"), "{keys}");
}
