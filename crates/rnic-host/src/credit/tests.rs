//! The state machine alone: requests, answers, losses and time, by hand.

use super::*;

const PEER: PeerId = PeerId(3);
const PORT: u16 = 4_000;
const LIMIT: Option<u64> = Some(16);

/// The machine, with cookies that count up and a clock.
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

    /// Lets it act; cookies of the requests that leave, and how many packets no longer count.
    fn act(&mut self, limit: Option<u64>) -> (Vec<u64>, u64) {
        let next_cookie = &mut self.next_cookie;
        let mut cookie = || {
            *next_cookie += 1;
            *next_cookie
        };
        self.credits.tick(self.now, &mut cookie);
        self.credits.ask(self.now, |_| limit, &mut cookie);
        let asks: Vec<u64> = std::iter::from_fn(|| self.credits.pop_ask()).map(|ask| ask.cookie).collect();
        let settled = std::iter::from_fn(|| self.credits.pop_settled()).map(|(_, packets)| packets).sum();
        (asks, settled)
    }

    /// Waits until something is due and lets it act.
    fn later(&mut self) -> (Vec<u64>, u64) {
        self.now = self.credits.next_due().expect("something is due");
        self.act(LIMIT)
    }

    fn answer(&mut self, cookie: u64) -> bool {
        self.credits.answered(self.now, PEER, cookie)
    }

    /// Lets time pass until it gives up: requests that left, packets that no longer count, and how long it took.
    fn give_up(&mut self) -> (usize, u64, Duration) {
        let (start, before, mut requests) = (self.now, self.credits.given_up, 0);
        loop {
            let (asks, settled) = self.later();
            requests += asks.len();
            if self.credits.given_up > before {
                return (requests, settled, self.now.since(start));
            }
            assert_eq!(settled, 0);
        }
    }
}

#[test]
fn a_quarter_of_the_limit_is_asked_about_and_an_answer_settles_it() {
    let mut rig = Rig::new();
    rig.send(3);
    assert_eq!(rig.act(LIMIT), (vec![], 0));
    rig.send(1);
    let (asks, settled) = rig.act(LIMIT);
    assert_eq!((asks.len(), settled), (1, 0));
    rig.send(2);
    assert!(rig.answer(asks[0]));
    assert_eq!(rig.act(LIMIT), (vec![], 4));
    assert!(!rig.answer(asks[0]), "each counts once");
    // The last two are asked about as well, a little later.
    let ask = loop {
        let (asks, settled) = rig.later();
        assert_eq!(settled, 0);
        if let [ask] = asks[..] {
            break ask;
        }
    };
    assert!(rig.answer(ask));
    assert_eq!(rig.act(LIMIT), (vec![], 2));
    while rig.credits.next_due().is_some() {
        assert_eq!(rig.later(), (vec![], 0), "nothing more to come");
    }
}

#[test]
fn an_answer_speaks_for_earlier_requests_and_there_are_few_at_a_time() {
    let mut rig = Rig::new();
    let asks: Vec<u64> = (0..6)
        .flat_map(|_| {
            rig.send(4);
            rig.act(LIMIT).0
        })
        .collect();
    assert_eq!(asks.len(), 4);
    assert!(rig.answer(asks[2]));
    let (more, settled) = rig.act(LIMIT);
    assert_eq!((more.len(), settled), (1, 12));
    assert!(!rig.answer(asks[0]) && rig.answer(more[0]));
    assert_eq!(rig.act(LIMIT).1, 12);
}

#[test]
fn a_lost_request_is_made_again_and_gives_no_room() {
    let mut rig = Rig::new();
    rig.send(4);
    let first = rig.act(LIMIT).0[0];
    rig.now += TIMEOUT;
    let (again, settled) = rig.act(LIMIT);
    assert_eq!((again.len(), settled), (1, 0));
    assert_ne!(again[0], first);
    assert!(rig.answer(again[0]));
    assert_eq!(rig.act(LIMIT).1, 4);
}

#[test]
fn who_never_answers_is_soon_left_alone_and_may_come_back() {
    let mut rig = Rig::new();
    rig.send(16);
    let first = rig.act(LIMIT).0[0];
    let (requests, settled, took) = rig.give_up();
    assert_eq!((requests as u32, settled), (TRIES - 1, 16));
    assert!(took < Duration::from_ms(100), "{took}");
    // No longer limited.
    rig.send(500);
    assert_eq!(rig.act(LIMIT), (vec![], 500));
    // Asked again now and then, without waiting for it.
    rig.send(PROBE_PACKETS);
    let (probe, settled) = rig.act(LIMIT);
    assert_eq!((probe.len(), settled), (1, PROBE_PACKETS));
    rig.now += Duration::from_secs(5);
    assert_eq!(rig.act(LIMIT), (vec![], 0));
    // A late answer, to any of them.
    assert!(rig.answer(first));
    rig.send(16);
    let (asks, settled) = rig.act(LIMIT);
    assert_eq!((asks.len(), settled), (1, 0), "limited again");
    // Now that it has answered, it is given more time.
    let (requests, settled, took) = rig.give_up();
    assert!(requests as u32 == TRIES_OF_SPEAKER - 1 && settled == 16, "{requests}, {settled}");
    assert!(took > Duration::from_ms(400), "{took}");
}

#[test]
fn slow_paths_are_given_time() {
    let mut rig = Rig::new();
    rig.send(16);
    let first = rig.act(LIMIT).0[0];
    rig.now += Duration::from_ms(50);
    assert!(rig.answer(first));
    rig.send(16);
    rig.act(LIMIT);
    rig.now += Duration::from_ms(90);
    assert_eq!(rig.act(LIMIT), (vec![], 0));
    rig.now += Duration::from_ms(11);
    assert_eq!(rig.act(LIMIT).0.len(), 1);
}

#[test]
fn forged_answers_change_nothing() {
    let mut rig = Rig::new();
    rig.send(16);
    let ask = rig.act(LIMIT).0[0];
    assert!(!rig.answer(ask + 1) && !rig.answer(0) && !rig.answer(u64::MAX));
    assert!(!rig.credits.answered(rig.now, PeerId(2), ask), "another peer");
    assert!(!rig.credits.answered(rig.now, PeerId(u32::MAX - 1), ask), "a stranger");
    assert_eq!(rig.act(LIMIT), (vec![], 0));
}

#[test]
fn peers_without_a_limit_are_not_asked() {
    let mut rig = Rig::new();
    rig.send(100);
    assert_eq!(rig.act(None), (vec![], 100));
    assert_eq!(rig.credits.next_due(), None);
}

#[test]
fn state_is_bounded_and_a_forgotten_peer_leaves_nothing() {
    let mut rig = Rig::new();
    for port in 0..2 * TARGETS_MAX as u16 {
        rig.credits.sent(PEER, port * 16);
    }
    let known = rig.credits.peers[PEER.0 as usize].as_deref().expect("there have been packets");
    assert_eq!((known.targets.len(), known.fresh), (TARGETS_MAX, TARGETS_MAX as u64));
    let (asks, settled) = rig.act(LIMIT);
    assert_eq!((asks.len(), settled), (TARGETS_MAX, TARGETS_MAX as u64), "who is not watched is not limited");
    // One that has nothing under way makes room.
    assert!(rig.answer(asks[0]));
    rig.act(LIMIT);
    rig.credits.sent(PEER, 60_000);
    assert_eq!(rig.act(LIMIT).1, 0);
    rig.credits.forget_peer(PEER);
    assert_eq!(rig.act(LIMIT), (vec![], TARGETS_MAX as u64));
    assert!(!rig.answer(asks[1]));
    while rig.credits.next_due().is_some() {
        assert_eq!(rig.later(), (vec![], 0));
    }
}

#[test]
fn a_request_list_that_overflows_loses_no_packet() {
    let mut target = CreditTarget::new(PORT);
    for cookie in 0..3 * ASKED_MAX as u64 {
        target.fresh = 2;
        target.ask(Time::ZERO, PEER, cookie);
    }
    assert_eq!(target.answered(Time::ZERO, 3 * ASKED_MAX as u64 - 1), Some(6 * ASKED_MAX as u64));
}
