//! When somebody counts as gone, and when not.

use std::net::SocketAddr;

use super::*;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_ms(ms)
}

fn heard(of: &[(u16, u64)]) -> BTreeMap<PeerProcess, u64> {
    of.iter().map(|(port, count)| ((PeerId(1), *port), *count)).collect()
}

const HERE: PeerProcess = (PeerId(1), 2_048);
const NONCES: [Nonce; 2] = [[1; 16], [2; 16]];

impl Keepalive {
    /// Looks, and asks everybody who is to be asked the same.
    fn compare_and_ask(&mut self, now: Time, heard: &BTreeMap<PeerProcess, u64>) -> Vec<PeerProcess> {
        let chosen = self.compare(now, heard);
        chosen.iter().for_each(|place| self.ask(*place, NONCES[0]));
        chosen
    }
}

#[test]
fn who_speaks_is_not_asked_and_who_is_silent_is_asked_once_a_round() {
    let mut keepalive = Keepalive::default();
    assert!(keepalive.compare(at(0), &heard(&[(2_048, 5)])).is_empty(), "it is new");
    assert_eq!(keepalive.compare(at(500), &heard(&[(2_048, 5)])), [HERE]);
    assert!(keepalive.compare(at(600), &heard(&[(2_048, 5)])).is_empty(), "too early");
    assert!(keepalive.compare(at(1_000), &heard(&[(2_048, 6)])).is_empty(), "it has spoken");
    assert_eq!(keepalive.next_due(), Some(at(1_500)));
    assert!(keepalive.compare(at(1_500), &heard(&[])).is_empty());
    assert_eq!(keepalive.next_due(), None, "nothing is connected");
}

#[test]
fn only_refusals_in_a_row_of_probes_that_were_sent_count() {
    let mut keepalive = Keepalive::default();
    let silent = heard(&[(2_048, 5), (2_064, 1)]);
    keepalive.compare_and_ask(at(0), &silent);
    assert!(keepalive.refuse(at(100), &[PeerId(1)], 2_048, &NONCES[0]).is_empty());
    assert_eq!(keepalive.watched[&HERE].refusals, 0, "nobody has asked");
    assert_eq!(keepalive.compare_and_ask(at(500), &silent).len(), 2);
    for _ in 0..100 {
        assert!(keepalive.refuse(at(501), &[PeerId(1)], 2_048, &NONCES[1]).is_empty());
    }
    assert_eq!(keepalive.watched[&HERE].refusals, 0, "whoever says so has not seen the probe");
    for _ in 0..5 {
        assert!(keepalive.refuse(at(501), &[PeerId(1)], 2_048, &NONCES[0]).is_empty(), "one probe, one answer");
        assert!(keepalive.refuse(at(501), &[PeerId(2)], 2_064, &NONCES[0]).is_empty(), "another host's port");
    }
    assert_eq!(keepalive.compare_and_ask(at(651), &silent), [HERE], "soon, and only it");
    assert!(keepalive.refuse(at(652), &[PeerId(1)], 2_048, &NONCES[0]).is_empty());
    // A word in between.
    keepalive.compare_and_ask(at(802), &heard(&[(2_048, 6), (2_064, 1)]));
    assert_eq!(keepalive.watched[&HERE].refusals, 0);
    for (ms, is_gone) in [(1_100, false), (1_251, false), (1_402, true)] {
        keepalive.compare_and_ask(at(ms), &heard(&[(2_048, 6), (2_064, 1)]));
        assert_eq!(keepalive.refuse(at(ms), &[PeerId(1)], 2_048, &NONCES[0]).contains(&HERE), is_gone, "{ms}");
    }
}

#[test]
fn a_refusal_does_not_stand_for_ever() {
    let mut keepalive = Keepalive::default();
    let silent = heard(&[(2_048, 5)]);
    keepalive.compare_and_ask(at(0), &silent);
    keepalive.compare_and_ask(at(500), &silent);
    keepalive.refuse(at(500), &[PeerId(1)], 2_048, &NONCES[0]);
    keepalive.compare_and_ask(at(10_000), &silent);
    assert_eq!(keepalive.watched[&HERE].refusals, 1);
    keepalive.compare_and_ask(at(10_501), &silent);
    assert_eq!(keepalive.watched[&HERE].refusals, 0);
}

#[test]
fn all_of_many_have_their_turn() {
    let mut keepalive = Keepalive::default();
    let many: Vec<(u16, u64)> = (100..700).map(|port| (port, 0)).collect();
    let silent = heard(&many);
    keepalive.compare(at(0), &silent);
    let mut asked = std::collections::BTreeSet::new();
    for round in 1..=3 {
        let chosen = keepalive.compare(at(round * 500), &silent);
        assert_eq!(chosen.len(), PROBES_AT_ONCE);
        asked.extend(chosen);
    }
    assert_eq!(asked.len(), 600);
}

#[test]
fn a_probe_is_a_packet_and_known_again() {
    let parse = |text: &str| text.parse().expect("an address");
    let way = Addresses::new(parse("10.0.0.1:2048"), parse("10.0.0.2:2064")).expect("both IPv4");
    let nonce: Nonce = std::array::from_fn(|index| index as u8 + 1);
    let bytes = probe(&way, &nonce);
    assert_eq!(quoted_nonce(&bytes), Some(nonce));
    assert_eq!(quoted_nonce(&bytes[..28]), Some(nonce), "as much as a report must quote");
    assert_eq!((quoted_nonce(&bytes[..27]), quoted_nonce(&[])), (None, None));
    let mut other = bytes.clone();
    other[7] ^= 1;
    assert_eq!(quoted_nonce(&other), None, "a notification for somebody");
    let decoded = codec::decode(&bytes).expect("a packet");
    assert!(is_probe(&decoded.packet) && rnic_wire::icrc::verify(&way, &bytes));
    assert!(!is_probe(&Packet { dest_qpn: Qpn::new(0x80_001), ..decoded.packet }), "a notification for somebody");
}

#[test]
fn who_is_here_has_a_loopback_address_or_our_own() {
    let way = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|ip| SocketAddr::new(ip.parse().expect("an address"), 4_791));
        Addresses::new(from, to).expect("of one version")
    };
    for (from, to, expected) in [
        ("127.0.0.1", "127.0.0.9", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("::1", "::1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("2001:db8::1", "2001:db8::2", false),
    ] {
        assert_eq!(is_here(&way(from, to)), expected, "{from} to {to}");
    }
}
