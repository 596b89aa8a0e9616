//! Tests of the rules for messages of peers: each rule alone, and forged and hostile messages in any order.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rnic_wire::Qpn;
use rnic_wire::scr::{Answer, Body, Grant, Hint, NodeReport, ProbePath, Records};

use super::*;
use crate::PeerId;

const PEER: NicId = NicId::of(PeerId(7));
const ORIGIN: Origin = Origin { peer: PEER, is_connected: true };
const OURS: u64 = 0x1111_2222_3333_4444;
const THEIRS: u64 = 0x5555_6666_7777_8888;

fn cookie(bits: u64) -> Cookie {
    Cookie::new(bits).expect("not zero")
}

fn peers() -> Peers {
    let mut peers = Peers::default();
    assert!(peers.add(PEER, cookie(OURS)));
    peers
}

/// Peers of which one has announced its cookie, with sequence number `sequence`.
fn acquainted(sequence: u32) -> Peers {
    let mut peers = peers();
    assert_eq!(peers.judge(ORIGIN, &announcing(OURS, THEIRS, sequence), Time::ZERO), ACCEPT);
    peers
}

fn message(cookie: u64, sequence: u32, body: Body) -> Message {
    Message {
        dest_qpn: Qpn::GSI,
        source_qpn: Qpn::GSI,
        cookie: Cookie::new(cookie),
        announced: None,
        answer_wanted: false,
        is_last: false,
        sequence: Psn32::new(sequence),
        time: 0,
        body,
    }
}

fn probe(cookie: u64, sequence: u32) -> Message {
    Message { answer_wanted: true, ..message(cookie, sequence, Body::Probe(ProbePath::default())) }
}

fn announcing(to: u64, own: u64, sequence: u32) -> Message {
    Message { announced: Some(cookie(own)), ..message(to, sequence, Body::Answer(Answer::default())) }
}

fn grants(cookie: u64, sequence: u32) -> Message {
    message(cookie, sequence, Body::Grants(Records::new(&[Grant::default()]).expect("one")))
}

const ACCEPT: Verdict = Verdict::Accept { answer: false };
const ANSWER: Verdict = Verdict::Accept { answer: true };
const DROP_COOKIE: Verdict = Verdict::Drop(DropCause::Cookie);

/// Two NICs that know nothing of each other: one probe and its answer each way.
#[test]
fn s6_two_nics_exchange_cookies_by_probes() {
    let (mut here, mut there) = (peers(), Peers::default());
    assert!(there.add(PEER, cookie(THEIRS)));
    assert_eq!(here.address(PEER, Type::Grants), None, "the peer's cookie is unknown");
    let first = here.address(PEER, Type::Probe).expect("a probe");
    assert_eq!((first.cookie, first.announced), (None, Some(cookie(OURS))));
    let question = Message { cookie: first.cookie, announced: first.announced, ..probe(1, first.sequence.value()) };
    let verdict = there.judge(ORIGIN, &question, Time::ZERO);
    assert_eq!(verdict, Verdict::Announce { cookie: cookie(OURS), announced: cookie(THEIRS) });
    assert_eq!(there.address(PEER, Type::Grants), None, "an announcement without its cookie is not recorded");

    let sequence = there.number_announcement(PEER).expect("a peer").value();
    assert_eq!(here.judge(ORIGIN, &announcing(OURS, THEIRS, sequence), Time::ZERO), ACCEPT);
    let second = here.address(PEER, Type::Probe).expect("a probe");
    assert_eq!((second.cookie, second.announced), (Some(cookie(THEIRS)), Some(cookie(OURS))));
    assert_eq!(second.sequence.value(), 1);
    let question = Message { cookie: second.cookie, announced: second.announced, ..probe(1, 1) };
    assert_eq!(there.judge(ORIGIN, &question, Time::ZERO), ANSWER);
    let grant = there.address(PEER, Type::Grants).expect("the cookie is known");
    assert_eq!((grant.cookie, grant.announced), (Some(cookie(OURS)), None));
    assert_eq!(here.judge(ORIGIN, &grants(OURS, grant.sequence.value()), Time::ZERO), ACCEPT);
}

#[test]
fn s6_messages_of_other_hosts_are_dropped_without_an_answer() {
    let mut peers = acquainted(1);
    let unknown = Origin { peer: NicId::of(PeerId(8)), ..ORIGIN };
    let not_connected = Origin { is_connected: false, ..ORIGIN };
    for message in [grants(OURS, 2), probe(OURS, 2), Message { announced: Some(cookie(9)), ..probe(0, 2) }] {
        assert_eq!(peers.judge(unknown, &message, Time::ZERO), Verdict::Drop(DropCause::UnknownPeer));
        assert_eq!(peers.judge(not_connected, &message, Time::ZERO), Verdict::Drop(DropCause::NotConnected));
    }
}

#[test]
fn s6_every_type_that_changes_behaviour_needs_the_cookie() {
    let mut peers = acquainted(1);
    let bodies = [
        Body::NodeReport(NodeReport::default()),
        Body::Grants(Records::default()),
        Body::BackPressure(Records::default()),
        Body::Hint(Hint::default()),
        Body::Answer(Answer::default()),
    ];
    for (sequence, body) in (2..).zip(bodies) {
        for wrong in [0, 1, THEIRS, OURS ^ 1, OURS ^ 1 << 63] {
            assert_eq!(peers.judge(ORIGIN, &message(wrong, sequence, body), Time::ZERO), DROP_COOKIE, "{body:?}");
        }
        assert_eq!(peers.judge(ORIGIN, &message(OURS, sequence, body), Time::ZERO), ACCEPT, "{body:?}");
    }
}

#[test]
fn s6_a_message_before_any_announcement_is_dropped() {
    let mut peers = peers();
    assert_eq!(peers.judge(ORIGIN, &grants(OURS, 1), Time::ZERO), Verdict::Drop(DropCause::NotAnnounced));
    assert_eq!(peers.judge(ORIGIN, &probe(OURS, 2), Time::ZERO), Verdict::Drop(DropCause::NotAnnounced));
}

#[test]
fn s6_sequence_numbers_are_serial_and_bounded() {
    for start in [0, 1 << 31, u32::MAX - 3, u32::MAX] {
        let mut peers = acquainted(start);
        let mut judge = |message: Message| peers.judge(ORIGIN, &message, Time::ZERO);
        let at = |steps: u32| start.wrapping_add(steps);
        assert_eq!(judge(grants(OURS, start)), Verdict::Drop(DropCause::Old), "repeated");
        assert_eq!(judge(grants(OURS, at(5))), ACCEPT);
        assert_eq!(judge(grants(OURS, at(5))), Verdict::Drop(DropCause::Old), "duplicate");
        assert_eq!(judge(grants(OURS, at(4))), Verdict::Drop(DropCause::Old), "overtaken");
        assert_eq!(judge(probe(OURS, at(3))), ANSWER, "probes may overtake each other");
        assert_eq!(judge(grants(OURS, at(6 + (1 << 16)))), Verdict::Drop(DropCause::Ahead));
        assert_eq!(judge(grants(OURS, at(5 + (1 << 16)))), ACCEPT);
        assert_eq!(judge(probe(OURS, at(5))), Verdict::Drop(DropCause::Old), "2^16 behind");
        assert_eq!(judge(probe(OURS, at(6))), ANSWER);
    }
}

/// After an interruption in which more than 2^16 messages were lost, the second message is accepted.
#[test]
fn s6_an_interruption_of_many_messages_ends() {
    for lost in [1 << 17, 1 << 24, (1 << 31) - 3] {
        let mut peers = acquainted(10);
        let mut judge = |sequence| peers.judge(ORIGIN, &grants(OURS, sequence), Time::ZERO);
        assert_eq!(judge(10 + lost), Verdict::Drop(DropCause::Ahead));
        assert_eq!(judge(10 + lost + 2), Verdict::Drop(DropCause::Ahead), "not consecutive");
        assert_eq!(judge(10 + lost + 1), Verdict::Drop(DropCause::Ahead), "not consecutive");
        assert_eq!(judge(10 + lost + 2), ACCEPT);
        assert_eq!(judge(11), Verdict::Drop(DropCause::Old));
    }
}

/// With probes alone, for so long that sequence numbers wrap, a grant is accepted at any time, and an old one never.
#[test]
fn s6_long_silence_of_one_type_does_not_make_it_old() {
    let mut peers = acquainted(0);
    let mut sequence = 0_u32;
    for _ in 0..(3 << 16) {
        sequence = sequence.wrapping_add(1 << 15);
        let answer = message(OURS, sequence, Body::Answer(Answer::default()));
        assert_eq!(peers.judge(ORIGIN, &answer, Time::ZERO), ACCEPT);
        if sequence.is_multiple_of(1 << 29) {
            let old = grants(OURS, sequence.wrapping_sub(1 << 16));
            assert_eq!(peers.judge(ORIGIN, &old, Time::ZERO), Verdict::Drop(DropCause::Old));
        }
    }
    assert_eq!(peers.judge(ORIGIN, &grants(OURS, sequence), Time::ZERO), ACCEPT);
}

#[test]
fn s6_a_restarted_peer_is_learned_by_probes() {
    let mut peers = acquainted(1_000_000);
    // The peer restarts: it knows no cookie of ours, and counts from 0.
    let restarted = Message { announced: Some(cookie(0x99)), ..probe(0, 0) };
    let announce = |own| Verdict::Announce { cookie: cookie(0x99), announced: cookie(own) };
    assert_eq!(peers.judge(ORIGIN, &restarted, Time::ZERO), announce(OURS));
    assert_eq!(peers.address(PEER, Type::Grants).expect("known").cookie, Some(cookie(THEIRS)), "not yet");
    let verified = Message { announced: Some(cookie(0x99)), ..probe(OURS, 1) };
    assert_eq!(peers.judge(ORIGIN, &verified, Time::ZERO), ANSWER);
    assert_eq!(peers.address(PEER, Type::Grants).expect("known").cookie, Some(cookie(0x99)));
    assert_eq!(peers.judge(ORIGIN, &grants(OURS, 2), Time::ZERO), ACCEPT);

    peers.remove(PEER);
    assert_eq!(peers.judge(ORIGIN, &grants(OURS, 6), Time::ZERO), Verdict::Drop(DropCause::UnknownPeer));
    assert!(peers.peers.is_empty());
}

#[test]
fn s6_answers_are_limited_by_the_rate_and_the_burst() {
    let mut peers = acquainted(0);
    let mut answers = [0, 0];
    let mut sequence = 0;
    for us in (0..2_000_000).step_by(100) {
        let now = Time::from_us(us);
        for attempt in 0..2 {
            sequence += 1;
            let question = if attempt == 0 { probe(OURS, sequence) } else { probe(1, sequence) };
            match peers.judge(ORIGIN, &question, now) {
                ANSWER => answers[0] += 1,
                Verdict::Announce { .. } => answers[1] += 1,
                verdict => assert_eq!(verdict, Verdict::Drop(DropCause::RateLimited)),
            }
        }
    }
    // In 2 s.
    assert_eq!(answers[1], 2 * 64 + 4 - 1, "announcements: the last token is added at 2 s");
    assert!((2 * 936 + 58..=2 * 936 + 60).contains(&answers[0]), "{answers:?}");
    assert!(answers[0] + answers[1] <= 2 * 1_000 + 64);
}

/// A message that changes behaviour is applied even when there is no token for its answer.
#[test]
fn s6_a_report_is_accepted_without_a_token() {
    let mut peers = acquainted(0);
    let report = |sequence| {
        let body = Body::NodeReport(NodeReport::default());
        Message { answer_wanted: true, ..message(OURS, sequence, body) }
    };
    let verdicts: Vec<_> = (1..=62).map(|sequence| peers.judge(ORIGIN, &report(sequence), Time::ZERO)).collect();
    assert!(verdicts[..60].iter().all(|verdict| *verdict == ANSWER));
    assert_eq!(verdicts[60..], [ACCEPT, ACCEPT]);
}

#[test]
fn s6_the_number_of_peers_is_bounded() {
    let mut peers = Peers::default();
    for id in 0..PEERS_MAX as u32 {
        assert!(peers.add(NicId::of(PeerId(id)), cookie(OURS)));
    }
    assert!(
        !peers.add(NicId::of(PeerId(PEERS_MAX as u32)), cookie(OURS))
            && peers.add(NicId::of(PeerId(3)), cookie(THEIRS))
    );
    assert_eq!(peers.peers.len(), PEERS_MAX);
    peers.remove(NicId::of(PeerId(3)));
    assert!(peers.add(NicId::of(PeerId(PEERS_MAX as u32)), cookie(OURS)));
    assert!(size_of::<Peer>() <= 48);
}

fn any_body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::Probe(ProbePath::default())),
        Just(Body::Answer(Answer::default())),
        Just(Body::NodeReport(NodeReport::default())),
        Just(Body::Grants(Records::default())),
        Just(Body::BackPressure(Records::default())),
        Just(Body::Hint(Hint::default())),
    ]
}

/// A body, the receiver's cookie, the sender's cookie, whether an answer is wanted, a sequence number, and a wait.
type Forged = (Body, Option<u64>, Option<u64>, bool, u32, u64);

/// Messages whose sequence numbers are any, or near those of the peer.
fn forged() -> impl Strategy<Value = Vec<Forged>> {
    let sequences = prop_oneof![1 => any::<u32>(), 4 => 90..400u32, 1 => 65_000..70_000u32];
    let own = prop_oneof![2 => Just(None), 1 => Just(Some(THEIRS)), 1 => any::<Option<u64>>()];
    let one = (any_body(), any::<Option<u64>>(), own, any::<bool>(), sequences, 0..100_000u64);
    prop::collection::vec(one, 0..200)
}

fn forge((body, to, own, answer_wanted, sequence, _): Forged) -> Message {
    let announced = own.and_then(Cookie::new);
    Message { announced, answer_wanted, ..message(to.unwrap_or(0), sequence, body) }
}

/// The generated messages reach the rules behind the check of the cookie, and each of these rules.
#[test]
fn s6_hostile_messages_reach_every_rule() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut verdicts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..100 {
        let attack = forged().new_tree(&mut runner).expect("a value").current();
        let (mut peers, mut now) = (acquainted(100), Time::ZERO);
        for forged in attack {
            now += Duration::from_us(forged.5);
            let message = Message { cookie: Cookie::new(OURS), ..forge(forged) };
            *verdicts.entry(format!("{:?}", peers.judge(ORIGIN, &message, now))).or_default() += 1;
        }
    }
    let all: u32 = verdicts.values().sum();
    let share = |verdict: &str| {
        let found: u32 = verdicts.iter().filter(|(name, _)| name.contains(verdict)).map(|(_, count)| count).sum();
        f64::from(found) / f64::from(all)
    };
    assert!(share("Accept") > 0.3 && share("Old") > 0.05 && share("Ahead") > 0.05, "{verdicts:?}");
    assert!(share("answer: true") > 0.1 && share("Cookie") == 0.0, "{verdicts:?}");
}

proptest! {
    /// A sender that does not know this NIC's cookie gets nothing accepted. Afterwards the peer's next messages, and
    /// our messages to it, are the same as without the attack.
    #[test]
    fn s6_a_sender_off_the_path_changes_nothing(attack in forged()) {
        let (mut attacked, mut other) = (acquainted(100), acquainted(100));
        let mut now = Time::ZERO;
        for forged in attack {
            now += Duration::from_us(forged.5);
            prop_assume!(forged.1 != Some(OURS));
            let verdict = attacked.judge(ORIGIN, &forge(forged), now);
            prop_assert!(!matches!(verdict, Verdict::Accept { .. }), "{:?}", verdict);
        }
        for sequence in 101..180 {
            for message in [probe(OURS, sequence), grants(OURS, sequence)] {
                let verdicts = [&mut attacked, &mut other].map(|peers| peers.judge(ORIGIN, &message, now));
                prop_assert_eq!(verdicts[0], verdicts[1]);
            }
        }
        let envelopes = [&mut attacked, &mut other].map(|peers| peers.address(PEER, Type::Grants));
        prop_assert_eq!(envelopes[0], envelopes[1]);
    }

    /// By any messages with the cookie, a peer gets no more answers than questions, nor than the limits; and messages
    /// that change behaviour are applied in the order of their numbers, unless the peer starts anew.
    #[test]
    fn s6_a_hostile_peer_gets_bounded_answers_and_one_order(attack in forged(), forgets in 0..4u32) {
        let mut peers = acquainted(100);
        let (mut now, mut answers, mut last) = (Time::ZERO, 0, None::<Psn32>);
        for forged in attack {
            now += Duration::from_us(forged.5);
            let mut message = forge(forged);
            // At least half of the messages have the cookie.
            message.cookie = if forged.4 % 4 < forgets.min(2) { message.cookie } else { Cookie::new(OURS) };
            let verdict = peers.judge(ORIGIN, &message, now);
            let accepted = matches!(verdict, Verdict::Accept { .. });
            let answered = matches!(verdict, Verdict::Accept { answer: true } | Verdict::Announce { .. });
            prop_assert!(!answered || message.answer_wanted);
            answers += u64::from(answered);
            prop_assert!(answers <= 64 + now.as_ps() / 1_000_000_000);
            if accepted && message.announced.is_some() {
                last = None;
            }
            if accepted && message.body.kind().changes_behaviour() {
                prop_assert!(last.is_none_or(|last| last.is_before(message.sequence)));
                last = Some(message.sequence);
            }
        }
    }
}
