//! Who is asked and answered, and what people are told.

use rnic_wire::hello::TransportName;

use super::*;

const PEER: PeerId = PeerId(3);
const NEAR: Qpn = Qpn::new(0x10_0001);
const FAR: Qpn = Qpn::new(0x20_0002);

fn terms(transport: &str) -> Terms {
    Terms { transport: TransportName::new(transport).expect("a name"), mtu: 4_096, falcon: 0 }
}

fn connected(ours: Terms) -> Hellos {
    let mut hellos = Hellos::default();
    hellos.connected(Time::ZERO, NEAR, (PEER, FAR), ours);
    hellos
}

fn says(terms: Terms, is_answer: bool) -> Hello {
    Hello { is_answer, from: FAR, to: NEAR, terms }
}

#[test]
fn a_silent_peer_is_asked_a_few_times_ever_later() {
    let mut hellos = connected(terms("irn"));
    let mut times = Vec::new();
    while let Some(due) = hellos.next_due() {
        let requests = hellos.take_due(due);
        assert_eq!(
            requests,
            [OutgoingHello { peer: PEER, hello: Hello { from: NEAR, to: FAR, ..says(terms("irn"), false) } }]
        );
        times.push(due.since(Time::ZERO).as_ps() / 1_000_000_000);
    }
    assert_eq!(times, [0, 50, 150, 350], "milliseconds");
}

#[test]
fn many_that_are_connected_at_once_are_asked_a_few_at_a_time() {
    let mut hellos = Hellos::default();
    (0..100).for_each(|near| hellos.connected(Time::ZERO, Qpn::new(near), (PEER, FAR), terms("irn")));
    let mut asked = Vec::new();
    for turn in 0..7 {
        let now = Time::ZERO + PAUSE.saturating_mul(turn);
        assert_eq!(hellos.next_due(), Some(now));
        asked.extend(hellos.take_due(now).into_iter().map(|outgoing| outgoing.hello.from.get()));
        assert!(hellos.take_due(now).is_empty() && asked.len() <= (turn as usize + 1) * ASKS_AT_ONCE);
    }
    assert_eq!(asked, (0..100).collect::<Vec<u32>>(), "each once");
}

#[test]
fn an_answer_or_a_question_ends_the_asking() {
    for is_answer in [true, false] {
        let mut hellos = connected(terms("irn"));
        assert_eq!(hellos.take_due(Time::ZERO).len(), 1);
        let (answer, differs) = hellos.heard(PEER, &says(terms("irn"), is_answer));
        assert_eq!((answer.map(|outgoing| outgoing.hello.is_answer), differs), ((!is_answer).then_some(true), None));
        assert_eq!(hellos.next_due(), None);
    }
}

#[test]
fn what_differs_is_told_once_for_each_connection() {
    let (ours, theirs) = (terms("irn"), terms("falcon"));
    let mut hellos = connected(ours);
    assert_eq!(hellos.heard(PEER, &says(theirs, false)).1, Some([theirs, ours]));
    assert_eq!(hellos.heard(PEER, &says(theirs, true)).1, None);
    hellos.connected(Time::ZERO, NEAR, (PEER, FAR), ours);
    assert_eq!(hellos.heard(PEER, &says(theirs, true)).1, Some([theirs, ours]), "connected anew");
}

#[test]
fn only_the_far_end_is_heard() {
    let mut hellos = connected(terms("irn"));
    let hello = says(terms("falcon"), false);
    let strangers =
        [(PeerId(4), hello), (PEER, Hello { from: Qpn::new(7), ..hello }), (PEER, Hello { to: Qpn::new(7), ..hello })];
    for (peer, hello) in strangers {
        assert_eq!(hellos.heard(peer, &hello), (None, None), "{peer:?} {hello:?}");
    }
    hellos.gone(NEAR);
    assert_eq!(hellos.heard(PEER, &hello), (None, None), "of a queue pair that is gone");
    assert!(hellos.take_due(Time::ZERO).is_empty() && hellos.next_due().is_none());
}

#[test]
fn people_are_told_what_to_change() {
    let text = |theirs, ours| Differs { peer: [192, 0, 2, 1].into(), theirs, ours }.to_string();
    let irn = terms("irn");
    let transports = text(terms("falcon"), irn);
    assert!(transports.contains("192.0.2.1, uses transport falcon, and this one irn"), "{transports}");
    assert!(transports.ends_with("give both the same --transport"), "{transports}");
    let packets = text(Terms { mtu: 1_024, ..irn }, irn);
    assert!(packets.contains("packets of 1024 bytes, and this one of 4096: give both the same --mtu"), "{packets}");
    let falcon = Terms { falcon: 0x3001_0000, ..terms("falcon") };
    let flows = text(Terms { falcon: 0x3004_0000, ..falcon }, falcon);
    assert!(
        flows.contains("flows=4, no key, and this one falcon with") && flows.contains("--set and --key"),
        "{flows}"
    );
    let keys = text(Terms { falcon: 0x3101_0001, ..falcon }, Terms { falcon: 0x3101_0002, ..falcon });
    assert!(keys.contains("it is not the same --key"), "{keys}");
}
