//! Tests of the limit: each rule by numbers computed by hand, and hostile messages in any order.

use proptest::prelude::*;
use rnic_wire::Qpn;

use super::*;

const LINE: BitRate = BitRate::gbps(100);
const ROUND_TRIP: Duration = Duration::from_us(20);
const PERIOD: Duration = Duration::from_us(20);
/// 8 periods.
const VALID_US: u16 = 160;

fn bounds() -> Bounds {
    Bounds::shared(LINE, 1, Bounds::STEP, PERIOD)
}

fn us(us: u64) -> Time {
    Time::from_us(us)
}

fn grant(gbps: u32) -> Grant {
    let (kind, rate_kbps) = (GrantKind::Limit, gbps * 1_000_000);
    Grant { qpn: Qpn::new(5), kind, rate_kbps, valid_us: VALID_US, reason: 0 }
}

/// A limit under test.
struct Sender {
    limit: RemoteLimit,
    bounds: Bounds,
}

impl Sender {
    fn new() -> Self {
        Self { limit: RemoteLimit::default(), bounds: bounds() }
    }

    fn grant(&mut self, at_us: u64, gbps: u32) {
        self.limit.granted(&grant(gbps), ROUND_TRIP, us(at_us), &self.bounds);
    }

    fn press(&mut self, at_us: u64, local: BitRate) {
        self.limit.pressed(local, ROUND_TRIP, us(at_us), &self.bounds);
    }

    /// The limit in Mbit/s.
    fn at(&mut self, at_us: u64) -> Option<u64> {
        self.limit.advance(us(at_us), &self.bounds);
        self.limit.limit(&self.bounds).map(|rate| rate.as_bps() / 1_000_000)
    }
}

#[test]
fn s25_s26_the_floor_is_one_percent_shared_by_the_queue_pairs_and_at_least_1_mbps() {
    let floor = |gbps, flows| Bounds::shared(BitRate::gbps(gbps), flows, Bounds::STEP, PERIOD).floor;
    assert_eq!(floor(100, 1), BitRate::gbps(1));
    assert_eq!(floor(100, 0), BitRate::gbps(1));
    assert_eq!(floor(100, 10), BitRate::bps(100_000_000));
    assert_eq!(floor(100, 4_096), FLOOR_MIN);
    assert_eq!(Bounds::with_floor(LINE, BitRate::ZERO, Bounds::STEP, PERIOD).floor, FLOOR_MIN);
}

#[test]
fn s25_a_granted_rate_is_kept_until_the_next_grant() {
    let mut sender = Sender::new();
    assert_eq!(sender.at(0), None);
    sender.grant(0, 40);
    assert_eq!((sender.at(0), sender.at(159)), (Some(40_000), Some(40_000)));
    sender.grant(159, 60);
    assert_eq!((sender.at(159), sender.at(318)), (Some(60_000), Some(60_000)));
    sender.grant(318, 30);
    assert_eq!(sender.at(318), Some(30_000));
}

#[test]
fn s25_a_grant_never_raises_the_local_rate() {
    let mut sender = Sender::new();
    sender.grant(0, 40);
    let local = [BitRate::gbps(10), BitRate::gbps(40), BitRate::gbps(70), BitRate::bps(5)];
    let applied = local.map(|rate| sender.limit.apply(rate, &sender.bounds));
    assert_eq!(applied, [local[0], local[1], BitRate::gbps(40), local[3]]);
    sender.grant(20, 100);
    assert_eq!(sender.at(20), None, "the line rate is no limit");
}

/// 40 Gbit/s by quarters: 50, 62.5, 78.125, 97.656, and then more than the line.
#[test]
fn s25_a_grant_without_news_fades_by_a_quarter_each_period() {
    let mut sender = Sender::new();
    sender.grant(0, 40);
    assert_eq!(sender.limit.next_timeout(), Some(us(160)));
    let faded = [159, 160, 179, 180, 200, 220, 239, 240].map(|at_us| sender.at(at_us));
    let expected = [40_000, 50_000, 50_000, 62_500, 78_125, 97_656, 97_656].map(Some);
    assert_eq!((&faded[..7], faded[7]), (&expected[..], None));
    assert_eq!(sender.limit.next_timeout(), None);

    let mut late = Sender::new();
    late.grant(0, 40);
    assert_eq!((late.at(221), late.at(10_000)), (Some(97_656), None), "at once after a long time");
}

#[test]
fn s25_a_grant_while_the_limit_fades_puts_it_into_force_again() {
    let mut sender = Sender::new();
    sender.grant(0, 40);
    assert_eq!(sender.at(200), Some(78_125));
    sender.grant(205, 20);
    assert_eq!((sender.at(205), sender.at(364), sender.at(365)), (Some(20_000), Some(20_000), Some(25_000)));
}

/// Decreases at 0; at 5 and 10 a grant of less; the last one is in force from 20 on, and the next one from 40 on.
#[test]
fn s25_grants_lower_the_limit_at_most_once_a_round_trip() {
    let mut sender = Sender::new();
    sender.grant(0, 40);
    sender.grant(5, 30);
    sender.grant(10, 20);
    assert_eq!((sender.at(19), sender.limit.next_timeout()), (Some(40_000), Some(us(20))));
    assert_eq!(sender.at(20), Some(20_000));
    sender.grant(25, 10);
    assert_eq!((sender.at(39), sender.at(40)), (Some(20_000), Some(10_000)));
    sender.grant(41, 5);
    sender.grant(42, 50);
    assert_eq!((sender.at(42), sender.at(61)), (Some(50_000), Some(50_000)), "a higher rate is applied at once");
}

#[test]
fn s25_a_receiver_can_lift_its_limit_and_lower_it_later() {
    let mut sender = Sender::new();
    sender.grant(0, 40);
    let lift = Grant { kind: GrantKind::Lift, ..grant(0) };
    sender.limit.granted(&lift, ROUND_TRIP, us(5), &sender.bounds);
    assert_eq!((sender.at(5), sender.limit.next_timeout()), (None, None));
    sender.grant(6, 30);
    assert_eq!((sender.at(6), sender.at(19), sender.at(20)), (None, None, Some(30_000)), "once a round trip");
}

/// 80 Gbit/s halved, then 0.4 Gbit/s more each round trip: 150 of them up to the line.
#[test]
fn s26_back_pressure_halves_the_rate_which_then_grows_by_the_step() {
    let mut sender = Sender::new();
    sender.press(0, BitRate::gbps(80));
    assert_eq!(sender.at(0), Some(40_000));
    let grown = [19, 20, 39, 40, 200, 2_979, 2_980, 3_000].map(|at_us| sender.at(at_us));
    let expected = [40_000, 40_400, 40_400, 40_800, 44_000, 99_200, 99_600];
    assert_eq!((&grown[..7], grown[7]), (&expected.map(Some)[..], None));
    let mut late = Sender::new();
    late.press(0, BitRate::gbps(80));
    assert_eq!((late.at(205), late.at(220)), (Some(44_000), Some(44_400)), "all steps at once, and on time");
}

/// However slowly the limit grows, it ends 100 ms after the last notice.
#[test]
fn s26_back_pressure_without_news_ends() {
    let mut sender = Sender::new();
    sender.bounds = Bounds::shared(LINE, 1, FLOOR_MIN, PERIOD);
    sender.press(0, BitRate::gbps(80));
    sender.limit.pressed(LINE, Duration::MAX, us(30_000), &sender.bounds);
    assert_eq!((sender.at(129_999), sender.limit.next_timeout()), (Some(20_750), Some(us(130_000))));
    assert_eq!((sender.at(130_000), sender.limit.next_timeout()), (None, None));
}

#[test]
fn s26_the_slope_is_the_step() {
    let mut sender = Sender::new();
    sender.bounds = Bounds::shared(LINE, 1, BitRate::bps(40_000_000), PERIOD);
    sender.press(0, BitRate::gbps(80));
    assert_eq!(sender.at(1_000), Some(40_000 + 50 * 40), "0.005 GB/s for 50 round trips");
}

#[test]
fn s26_the_rate_is_halved_at_most_once_a_round_trip_and_not_below_the_floor() {
    let mut sender = Sender::new();
    let limits: Vec<_> = (0..160)
        .map(|at_us| {
            sender.press(at_us, BitRate::gbps(64));
            sender.at(at_us).expect("a limit")
        })
        .collect();
    // At the end of each round trip the rate grows by 400 Mbit/s and is halved.
    let expected = [32_000, 16_200, 8_300, 4_350, 2_375, 1_387, 1_000, 1_000];
    for (at_us, limit) in limits.iter().enumerate() {
        assert_eq!(*limit, expected[at_us / 20], "at {at_us} us");
    }
}

#[test]
fn s25_s26_a_grant_and_back_pressure_share_the_round_trip() {
    let mut sender = Sender::new();
    sender.grant(0, 40);
    sender.press(10, BitRate::gbps(40));
    assert_eq!(sender.at(10), Some(40_000));
    sender.press(20, BitRate::gbps(40));
    sender.grant(30, 10);
    assert_eq!((sender.at(30), sender.at(40)), (Some(20_000), Some(10_000)));
}

/// One hostile message: a grant or a notice with any content, after any time.
type Hostile = (bool, bool, u32, u16, u64, u64, u64);

fn hostile() -> impl Strategy<Value = Vec<Hostile>> {
    let rates = prop_oneof![Just(0), any::<u32>(), 0..200_000_000u32];
    let waits = prop_oneof![Just(0), 0..1_000_000u64, 0..100_000_000_000u64];
    let one = (any::<bool>(), any::<bool>(), rates, any::<u16>(), waits, any::<u64>(), any::<u64>());
    prop::collection::vec(one, 0..200)
}

proptest! {
    /// For all messages of a peer with a valid cookie: the rate is not below the floor, nor above the local rate; it
    /// falls at most once a round trip; and without further messages the limit is gone after a bounded time.
    #[test]
    fn s25_s26_no_peer_stops_a_queue_pair_or_holds_it_for_ever(
        attack in hostile(), flows in 1..5_000u32, round_trip_us in 1..2_000u64, is_slow in any::<bool>()
    ) {
        let step = if is_slow { FLOOR_MIN } else { Bounds::STEP };
        let bounds = Bounds::shared(LINE, flows, step, Duration::from_us(round_trip_us));
        let round_trip = Duration::from_us(round_trip_us);
        let (mut limit, mut now, mut fell_at) = (RemoteLimit::default(), Time::ZERO, None::<Time>);
        for (is_grant, is_lift, rate_kbps, valid_us, wait, local, rate) in attack {
            now += Duration::from_ps(wait);
            limit.advance(now, &bounds);
            let before = limit.apply(LINE, &bounds);
            if is_grant {
                let kind = if is_lift { GrantKind::Lift } else { GrantKind::Limit };
                let grant = Grant { qpn: Qpn::new(5), kind, rate_kbps, valid_us, reason: 0 };
                limit.granted(&grant, round_trip, now, &bounds);
            } else {
                limit.pressed(BitRate::bps(rate), round_trip, now, &bounds);
            }
            let after = limit.apply(LINE, &bounds);
            prop_assert!(after >= bounds.floor);
            let local = BitRate::bps(local);
            prop_assert!(limit.apply(local, &bounds) <= local);
            prop_assert!(limit.apply(local, &bounds) >= local.min(bounds.floor));
            if after < before {
                prop_assert!(fell_at.is_none_or(|fell_at| now.since(fell_at) >= round_trip));
                fell_at = Some(now);
            }
        }
        // 65 ms of validity, and 52 quarters from 1 Mbit/s.
        now += VALID_MAX + round_trip.saturating_mul(60);
        limit.advance(now, &bounds);
        prop_assert_eq!((limit.limit(&bounds), limit.next_timeout()), (None, None));
    }

    /// A driver that calls `advance` rarely gets the same limit as one that calls it each microsecond.
    #[test]
    fn s25_s26_the_limit_does_not_depend_on_how_often_it_is_advanced(
        messages in prop::collection::vec((any::<bool>(), 1..120u32, 1..400u64), 1..40), rest in 0..500u64
    ) {
        let [mut often, mut rarely] = [Sender::new(), Sender::new()];
        let mut now_us = 0;
        for (is_grant, gbps, wait_us) in messages {
            for _ in 0..wait_us {
                now_us += 1;
                often.at(now_us);
                if rarely.limit.next_timeout().is_some_and(|timeout| timeout <= us(now_us)) {
                    rarely.at(now_us);
                }
            }
            for sender in [&mut often, &mut rarely] {
                if is_grant { sender.grant(now_us, gbps) } else { sender.press(now_us, LINE) }
            }
            prop_assert_eq!(often.at(now_us), rarely.at(now_us));
        }
        for at_us in now_us..=now_us + rest {
            often.at(at_us);
            if rarely.limit.next_timeout().is_some_and(|timeout| timeout <= us(at_us)) {
                rarely.at(at_us);
            }
        }
        prop_assert_eq!(often.at(now_us + rest), rarely.at(now_us + rest));
    }
}
