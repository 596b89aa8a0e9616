//! Tests of the conditions under which a peer is declared dead.

use std::net::SocketAddr;

use super::*;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_ms(ms)
}

fn packets_received(counts: &[(u16, u64)]) -> BTreeMap<PeerProcess, u64> {
    counts.iter().map(|(port, count)| ((PeerId(1), *port), *count)).collect()
}

const PROCESS: PeerProcess = (PeerId(1), 2_048);
const NONCES: [Nonce; 2] = [[1; 16], [2; 16]];

impl Keepalive {
    /// Runs the keepalive check, and records a probe with the same nonce for each port to be probed; returns these
    /// ports.
    fn compare_and_ask(&mut self, now: Time, packets_received: &BTreeMap<PeerProcess, u64>) -> Vec<PeerProcess> {
        let chosen = self.compare(now, packets_received);
        chosen.iter().for_each(|process| self.note_probe(*process, NONCES[0]));
        chosen
    }
}

#[test]
fn only_silent_processes_are_probed_once_per_interval() {
    let mut keepalive = Keepalive::default();
    assert!(keepalive.compare(at(0), &packets_received(&[(2_048, 5)])).is_empty(), "a new process was probed");
    assert_eq!(keepalive.compare(at(500), &packets_received(&[(2_048, 5)])), [PROCESS]);
    assert!(keepalive.compare(at(600), &packets_received(&[(2_048, 5)])).is_empty(), "a process was probed too early");
    assert!(keepalive.compare(at(1_000), &packets_received(&[(2_048, 6)])).is_empty(), "an active process was probed");
    assert_eq!(keepalive.next_due(), Some(at(1_500)));
    assert!(keepalive.compare(at(1_500), &packets_received(&[])).is_empty());
    assert_eq!(keepalive.next_due(), None, "a timer is pending without connections");
}

#[test]
fn only_consecutive_refusals_of_sent_probes_count() {
    let mut keepalive = Keepalive::default();
    let silent = packets_received(&[(2_048, 5), (2_064, 1)]);
    keepalive.compare_and_ask(at(0), &silent);
    assert!(keepalive.refuse(at(100), &[PeerId(1)], 2_048, &NONCES[0]).is_empty());
    assert_eq!(keepalive.watched[&PROCESS].refusals, 0, "a refusal without a probe was counted");
    assert_eq!(keepalive.compare_and_ask(at(500), &silent).len(), 2);
    for _ in 0..100 {
        assert!(keepalive.refuse(at(501), &[PeerId(1)], 2_048, &NONCES[1]).is_empty());
    }
    assert_eq!(keepalive.watched[&PROCESS].refusals, 0, "a refusal with a wrong nonce was counted");
    for _ in 0..5 {
        assert!(keepalive.refuse(at(501), &[PeerId(1)], 2_048, &NONCES[0]).is_empty(), "a probe was refused twice");
        assert!(keepalive.refuse(at(501), &[PeerId(2)], 2_064, &NONCES[0]).is_empty(), "another host's refusal counts");
    }
    assert_eq!(keepalive.compare_and_ask(at(651), &silent), [PROCESS], "not exactly the refused process was probed");
    assert!(keepalive.refuse(at(652), &[PeerId(1)], 2_048, &NONCES[0]).is_empty());
    // A packet of the first process is received, which resets its count.
    keepalive.compare_and_ask(at(802), &packets_received(&[(2_048, 6), (2_064, 1)]));
    assert_eq!(keepalive.watched[&PROCESS].refusals, 0);
    for (ms, is_gone) in [(1_100, false), (1_251, false), (1_402, true)] {
        keepalive.compare_and_ask(at(ms), &packets_received(&[(2_048, 6), (2_064, 1)]));
        assert_eq!(keepalive.refuse(at(ms), &[PeerId(1)], 2_048, &NONCES[0]).contains(&PROCESS), is_gone, "{ms}");
    }
}

#[test]
fn refusals_expire() {
    let mut keepalive = Keepalive::default();
    let silent = packets_received(&[(2_048, 5)]);
    keepalive.compare_and_ask(at(0), &silent);
    keepalive.compare_and_ask(at(500), &silent);
    keepalive.refuse(at(500), &[PeerId(1)], 2_048, &NONCES[0]);
    keepalive.compare_and_ask(at(10_000), &silent);
    assert_eq!(keepalive.watched[&PROCESS].refusals, 1);
    keepalive.compare_and_ask(at(10_501), &silent);
    assert_eq!(keepalive.watched[&PROCESS].refusals, 0);
}

#[test]
fn all_silent_processes_are_probed_in_turn() {
    let mut keepalive = Keepalive::default();
    let many: Vec<(u16, u64)> = (100..700).map(|port| (port, 0)).collect();
    let silent = packets_received(&many);
    keepalive.compare(at(0), &silent);
    let mut probed = std::collections::BTreeSet::new();
    for round in 1..=3 {
        let chosen = keepalive.compare(at(round * 500), &silent);
        assert_eq!(chosen.len(), PROBES_PER_CALL);
        probed.extend(chosen);
    }
    assert_eq!(probed.len(), 600);
}

#[test]
fn a_probe_is_a_valid_packet_and_is_recognized() {
    let parse = |text: &str| text.parse().expect("an address");
    let path = Addresses::new(parse("10.0.0.1:2048"), parse("10.0.0.2:2064")).expect("both IPv4");
    let nonce: Nonce = std::array::from_fn(|index| index as u8 + 1);
    let bytes = probe(&path, &nonce);
    assert_eq!(quoted_nonce(&bytes), Some(nonce));
    assert_eq!(quoted_nonce(&bytes[..28]), Some(nonce), "the minimum quote was not recognized");
    assert_eq!((quoted_nonce(&bytes[..27]), quoted_nonce(&[])), (None, None));
    let mut other = bytes.clone();
    other[7] ^= 1;
    assert_eq!(quoted_nonce(&other), None, "a CNP was taken for a probe");
    let decoded = codec::decode(&bytes).expect("a packet");
    assert!(is_probe(&decoded.packet) && rnic_wire::icrc::verify(&path, &bytes));
    assert!(!is_probe(&Packet { dest_qpn: Qpn::new(0x80_001), ..decoded.packet }), "a CNP was taken for a probe");
}

#[test]
fn same_host_paths_have_loopback_or_equal_addresses() {
    let path = |from: &str, to: &str| {
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
        assert_eq!(is_same_host(&path(from, to)), expected, "{from} to {to}");
    }
}
