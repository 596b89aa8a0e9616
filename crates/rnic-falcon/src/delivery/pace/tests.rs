//! The wheel against a sorted list.

use std::collections::BTreeMap;

use rnic_base::RandomStreams;

use super::*;

#[test]
fn f20_the_wheel_lets_connections_go_in_slot_order_and_never_early() {
    let mut wheel = Wheel::new(4);
    let at = Time::from_ns;
    wheel.wait(at(0), 2, at(1_000));
    wheel.wait(at(0), 0, at(512));
    wheel.wait(at(0), 1, at(513));
    wheel.wait(at(0), 3, at(600));
    assert_eq!(wheel.take(at(511)), None);
    assert_eq!(wheel.deadline(), Some(at(512)));
    assert_eq!(wheel.take(at(1_023)), Some(0));
    assert_eq!(wheel.take(at(1_023)), None, "513 ns is not over until its slot begins");
    assert_eq!((wheel.take(at(1_024)), wheel.take(at(1_024)), wheel.take(at(1_024))), (Some(2), Some(1), Some(3)));
    assert_eq!((wheel.waiting(), wheel.deadline()), (0, None));
}

/// Whatever time has passed since anybody asked last: a wheel that has its full length is too short then.
#[test]
fn f20_a_wheel_that_nobody_asked_for_long_lets_nobody_go_early() {
    let mut wheel = Wheel::new(2);
    let at = |ms: u64| Time::from_us(1_000 * ms);
    wheel.wait(at(0), 0, at(33));
    wheel.cancel(0);
    wheel.wait(at(100), 1, at(101));
    assert_eq!(wheel.take(at(100)), None);
    assert_eq!(wheel.take(at(102)), Some(1));
}

#[test]
fn random_waits_agree_with_a_sorted_list() {
    let mut random = RandomStreams::new(7).stream("wheel");
    let mut wheel = Wheel::new(64);
    let mut model: BTreeMap<u32, u64> = BTreeMap::new();
    let mut now = 0;
    for round in 0..200_000 {
        if round == 100_000 {
            assert_eq!(wheel.lists.len(), SLOTS_FIRST, "near departures need no more");
        }
        now += random.below(2_000_000);
        while let Some(connection) = wheel.take(Time::from_ps(now)) {
            let due = model.remove(&connection).expect("it waits");
            assert!(due <= now, "connection {connection} left at {now}, before {due}");
        }
        let left_behind = model.values().filter(|due| **due + SLOT.as_ps() <= now).count();
        assert_eq!(left_behind, 0, "somebody is late");
        let earliest = model.values().min().map(|due| due.div_ceil(SLOT.as_ps()) * SLOT.as_ps());
        assert_eq!(wheel.deadline().map(Time::as_ps), earliest);
        let horizon = now + 3 * SLOT.as_ps();
        for connection in wheel.few_until(Time::from_ps(horizon)) {
            assert!(model[&connection] < horizon, "connection {connection} leaves later");
        }
        let connection = random.below(64) as u32;
        if random.below(4) == 0 {
            wheel.cancel(connection);
            model.remove(&connection);
        } else {
            // Near ones for a while, then up to the furthest that there may be.
            let slots = if round < 100_000 { SLOTS_FIRST / 4 } else { SLOTS_MAX - 2 };
            let due = now + random.below(SLOT.as_ps() * slots as u64);
            wheel.wait(Time::from_ps(now), connection, Time::from_ps(due));
            model.insert(connection, due);
        }
    }
    assert_eq!(wheel.waiting(), model.len());
}

/// Whoever waits keeps place and order when a departure far away needs more slots, also behind the end of the wheel.
#[test]
fn a_far_departure_makes_the_wheel_longer_and_moves_nobody() {
    let at = |slots: u64| Time::from_ps(slots * SLOT.as_ps());
    for start in [0, 1000, 1_000_000] {
        let mut wheel = Wheel::new(8);
        let now = at(start);
        let waits = [(5, 7), (1, 7), (4, 900), (0, 1000), (7, 3)];
        waits.iter().for_each(|(connection, slots)| wheel.wait(now, *connection, at(start + slots)));
        assert_eq!(wheel.few_until(at(start + 8)).collect::<Vec<_>>(), [7, 5, 1]);
        assert_eq!(wheel.few_until(at(start + 7)).collect::<Vec<_>>(), [7]);
        wheel.wait(now, 6, at(start + 5000));
        wheel.wait(now, 2, at(start + (1 << 20)));
        assert_eq!(wheel.lists.len(), SLOTS_MAX);
        assert_eq!(wheel.all().count(), 7);
        let mut left = Vec::new();
        for slots in 0..SLOTS_MAX as u64 {
            while let Some(connection) = wheel.take(at(start + slots)) {
                left.push((connection, slots));
            }
        }
        // The last one, beyond what a wheel reaches, comes back at its end.
        let end = SLOTS_MAX as u64 - 1;
        assert_eq!(left, [(7, 3), (5, 7), (1, 7), (4, 900), (0, 1000), (6, 5000), (2, end)], "from {start}");
    }
}

/// Time passes without anybody who waits, or who takes: that is no reason for more slots.
#[test]
fn a_pause_makes_no_wheel_longer() {
    let mut wheel = Wheel::new(2);
    let at = |slots: u64| Time::from_ps(slots * SLOT.as_ps());
    wheel.wait(at(0), 0, at(10));
    assert_eq!(wheel.take(at(10)), Some(0));
    wheel.wait(at(1 << 30), 0, at((1 << 30) + 10));
    wheel.wait(at((1 << 30) + 5), 1, at((1 << 30) + 1000));
    assert_eq!(wheel.lists.len(), SLOTS_FIRST);
    assert_eq!(wheel.take(at((1 << 30) + 9)), None);
    assert_eq!((wheel.take(at((1 << 30) + 10)), wheel.take(at((1 << 30) + 1000))), (Some(0), Some(1)));
}
