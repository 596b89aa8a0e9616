//! Tests of the state machine alone: requests, responses, losses and time, without sockets.

use super::*;

const PEER: PeerId = PeerId(3);
const PORT: u16 = 4_000;
const LIMIT: Option<u64> = Some(16);

/// The state machine with a clock; cookies are consecutive numbers.
struct Rig {
    credits: Credits,
    next_cookie: u64,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        Self { credits: Credits::default(), next_cookie: 100, now: Time::ZERO + Duration::from_secs(1) }
    }

    fn send(&mut self, packets: u64) {
        (0..packets).for_each(|_| self.credits.sent(PEER, PORT));
    }

    /// Runs the state machine; returns the cookies of the requests it sends, and the number of packets that no longer
    /// count as in flight.
    fn step(&mut self, limit: Option<u64>) -> (Vec<u64>, u64) {
        let next_cookie = &mut self.next_cookie;
        let mut cookie = || {
            *next_cookie += 1;
            *next_cookie
        };
        self.credits.tick(self.now, &mut cookie);
        self.credits.create_requests(self.now, |_| limit, &mut cookie);
        let cookies: Vec<u64> = std::iter::from_fn(|| self.credits.pop_request()).map(|sent| sent.cookie).collect();
        let settled = std::iter::from_fn(|| self.credits.pop_settled()).map(|(_, packets)| packets).sum();
        (cookies, settled)
    }

    /// Advances to the next deadline and runs the state machine.
    fn step_to_deadline(&mut self) -> (Vec<u64>, u64) {
        self.now = self.credits.next_due().expect("a timer is pending");
        self.step(LIMIT)
    }

    fn respond(&mut self, cookie: u64) -> bool {
        self.credits.on_response(self.now, PEER, cookie)
    }

    /// Advances time until the peer counts as unresponsive; returns the number of requests sent, the number of
    /// packets that no longer count, and the elapsed time.
    fn abandon(&mut self) -> (usize, u64, Duration) {
        let (start, before, mut requests) = (self.now, self.credits.abandoned, 0);
        loop {
            let (cookies, settled) = self.step_to_deadline();
            requests += cookies.len();
            if self.credits.abandoned > before {
                return (requests, settled, self.now.since(start));
            }
            assert_eq!(settled, 0);
        }
    }
}

#[test]
fn a_request_is_sent_per_quarter_of_the_limit_and_its_response_frees_credit() {
    let mut rig = Rig::new();
    rig.send(3);
    assert_eq!(rig.step(LIMIT), (vec![], 0));
    rig.send(1);
    let (cookies, settled) = rig.step(LIMIT);
    assert_eq!((cookies.len(), settled), (1, 0));
    rig.send(2);
    assert!(rig.respond(cookies[0]));
    assert_eq!(rig.step(LIMIT), (vec![], 4));
    assert!(!rig.respond(cookies[0]), "a response was counted twice");
    // The last two packets are also followed by a request, a little later.
    let cookie = loop {
        let (cookies, settled) = rig.step_to_deadline();
        assert_eq!(settled, 0);
        if let [cookie] = cookies[..] {
            break cookie;
        }
    };
    assert!(rig.respond(cookie));
    assert_eq!(rig.step(LIMIT), (vec![], 2));
    while rig.credits.next_due().is_some() {
        assert_eq!(rig.step_to_deadline(), (vec![], 0), "an unexpected request or credit");
    }
}

#[test]
fn a_response_covers_earlier_requests_and_few_are_outstanding() {
    let mut rig = Rig::new();
    let cookies: Vec<u64> = (0..6)
        .flat_map(|_| {
            rig.send(4);
            rig.step(LIMIT).0
        })
        .collect();
    assert_eq!(cookies.len(), 4);
    assert!(rig.respond(cookies[2]));
    let (more, settled) = rig.step(LIMIT);
    assert_eq!((more.len(), settled), (1, 12));
    assert!(!rig.respond(cookies[0]) && rig.respond(more[0]));
    assert_eq!(rig.step(LIMIT).1, 12);
}

#[test]
fn a_lost_request_is_retransmitted_and_frees_no_credit() {
    let mut rig = Rig::new();
    rig.send(4);
    let first = rig.step(LIMIT).0[0];
    rig.now += TIMEOUT;
    let (again, settled) = rig.step(LIMIT);
    assert_eq!((again.len(), settled), (1, 0));
    assert_ne!(again[0], first);
    assert!(rig.respond(again[0]));
    assert_eq!(rig.step(LIMIT).1, 4);
}

#[test]
fn a_peer_that_never_responds_is_no_longer_limited_until_it_responds() {
    let mut rig = Rig::new();
    rig.send(16);
    let first = rig.step(LIMIT).0[0];
    let (requests, settled, took) = rig.abandon();
    assert_eq!((requests as u32, settled), (TRIES - 1, 16));
    assert!(took < Duration::from_ms(100), "{took}");
    // The peer's in-flight limit no longer applies.
    rig.send(500);
    assert_eq!(rig.step(LIMIT), (vec![], 500));
    // A probe is sent occasionally, and sending does not wait for the response to it.
    rig.send(PROBE_PACKETS);
    let (probe, settled) = rig.step(LIMIT);
    assert_eq!((probe.len(), settled), (1, PROBE_PACKETS));
    rig.now += Duration::from_secs(5);
    assert_eq!(rig.step(LIMIT), (vec![], 0));
    // A late response is accepted, whichever request it belongs to.
    assert!(rig.respond(first));
    rig.send(16);
    let (cookies, settled) = rig.step(LIMIT);
    assert_eq!((cookies.len(), settled), (1, 0), "the peer is not limited again");
    // A peer that has responded before is declared unresponsive only after a longer time.
    let (requests, settled, took) = rig.abandon();
    assert!(requests as u32 == TRIES_OF_RESPONSIVE - 1 && settled == 16, "{requests}, {settled}");
    assert!(took > Duration::from_ms(400), "{took}");
}

#[test]
fn the_timeout_follows_the_round_trip_time() {
    let mut rig = Rig::new();
    rig.send(16);
    let first = rig.step(LIMIT).0[0];
    rig.now += Duration::from_ms(50);
    assert!(rig.respond(first));
    rig.send(16);
    rig.step(LIMIT);
    rig.now += Duration::from_ms(90);
    assert_eq!(rig.step(LIMIT), (vec![], 0));
    rig.now += Duration::from_ms(11);
    assert_eq!(rig.step(LIMIT).0.len(), 1);
}

#[test]
fn forged_responses_are_ignored() {
    let mut rig = Rig::new();
    rig.send(16);
    let cookie = rig.step(LIMIT).0[0];
    assert!(!rig.respond(cookie + 1) && !rig.respond(0) && !rig.respond(u64::MAX));
    assert!(!rig.credits.on_response(rig.now, PeerId(2), cookie), "another peer was accepted");
    assert!(!rig.credits.on_response(rig.now, PeerId(u32::MAX - 1), cookie), "an unknown peer was accepted");
    assert_eq!(rig.step(LIMIT), (vec![], 0));
}

#[test]
fn peers_without_a_limit_get_no_requests() {
    let mut rig = Rig::new();
    rig.send(100);
    assert_eq!(rig.step(None), (vec![], 100));
    assert_eq!(rig.credits.next_due(), None);
}

#[test]
fn state_is_bounded_and_removed_with_its_peer() {
    let mut rig = Rig::new();
    for port in 0..2 * TARGETS_MAX as u16 {
        rig.credits.sent(PEER, port * 16);
    }
    let known = rig.credits.peers[PEER.0 as usize].as_deref().expect("packets have been sent to the peer");
    assert_eq!((known.targets.len(), known.uncovered), (TARGETS_MAX, TARGETS_MAX as u64));
    let (cookies, settled) = rig.step(LIMIT);
    assert_eq!((cookies.len(), settled), (TARGETS_MAX, TARGETS_MAX as u64), "an untracked target is limited");
    // A target without packets in flight is replaced.
    assert!(rig.respond(cookies[0]));
    rig.step(LIMIT);
    rig.credits.sent(PEER, 60_000);
    assert_eq!(rig.step(LIMIT).1, 0);
    rig.credits.forget_peer(PEER);
    assert_eq!(rig.step(LIMIT), (vec![], TARGETS_MAX as u64));
    assert!(!rig.respond(cookies[1]));
    while rig.credits.next_due().is_some() {
        assert_eq!(rig.step_to_deadline(), (vec![], 0));
    }
}

#[test]
fn a_request_list_that_overflows_loses_no_packet() {
    let mut target = CreditTarget::new(PORT);
    for cookie in 0..3 * PENDING_REQUESTS_MAX as u64 {
        target.uncovered = 2;
        target.create_request(Time::ZERO, PEER, cookie);
    }
    assert_eq!(
        target.on_response(Time::ZERO, 3 * PENDING_REQUESTS_MAX as u64 - 1),
        Some(6 * PENDING_REQUESTS_MAX as u64)
    );
}
