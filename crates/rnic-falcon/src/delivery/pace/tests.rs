//! Tests: the wheel is compared with a sorted list.

use std::collections::BTreeMap;

use rnic_base::RandomStreams;

use super::*;

#[test]
fn f20_connections_depart_in_slot_order_and_never_early() {
    let mut wheel = Wheel::new(4);
    let at = Time::from_ns;
    wheel.schedule(at(0), 2, at(1_000));
    wheel.schedule(at(0), 0, at(512));
    wheel.schedule(at(0), 1, at(513));
    wheel.schedule(at(0), 3, at(600));
    assert_eq!(wheel.take(at(511)), None);
    assert_eq!(wheel.deadline(), Some(at(512)));
    assert_eq!(wheel.take(at(1_023)), Some(0));
    assert_eq!(wheel.take(at(1_023)), None, "a departure at 513 ns waits for the next slot");
    assert_eq!((wheel.take(at(1_024)), wheel.take(at(1_024)), wheel.take(at(1_024))), (Some(2), Some(1), Some(3)));
    assert_eq!((wheel.waiting(), wheel.deadline()), (0, None));
}

/// A long time has passed since the last call of `take`. The wheel is not extended for it: even a wheel with the
/// maximum number of slots would be too short.
#[test]
fn f20_no_connection_departs_early_after_a_long_time_without_a_call() {
    let mut wheel = Wheel::new(2);
    let at = |ms: u64| Time::from_us(1_000 * ms);
    wheel.schedule(at(0), 0, at(33));
    wheel.cancel(0);
    wheel.schedule(at(100), 1, at(101));
    assert_eq!(wheel.take(at(100)), None);
    assert_eq!(wheel.take(at(102)), Some(1));
}

#[test]
fn random_departures_agree_with_a_sorted_list() {
    let mut random = RandomStreams::new(7).stream("wheel");
    let mut wheel = Wheel::new(64);
    let mut model: BTreeMap<u32, u64> = BTreeMap::new();
    let mut now = 0;
    for round in 0..200_000 {
        if round == 100_000 {
            assert_eq!(wheel.lists.len(), SLOTS_INITIAL, "near departures need no more slots");
        }
        now += random.below(2_000_000);
        while let Some(connection) = wheel.take(Time::from_ps(now)) {
            let due = model.remove(&connection).expect("the connection has an entry");
            assert!(due <= now, "connection {connection} left at {now}, before {due}");
        }
        let left_behind = model.values().filter(|due| **due + SLOT_LEN.as_ps() <= now).count();
        assert_eq!(left_behind, 0, "a departure is late");
        let earliest = model.values().min().map(|due| due.div_ceil(SLOT_LEN.as_ps()) * SLOT_LEN.as_ps());
        assert_eq!(wheel.deadline().map(Time::as_ps), earliest);
        let horizon = now + 3 * SLOT_LEN.as_ps();
        for connection in wheel.first_due_before(Time::from_ps(horizon)) {
            assert!(model[&connection] < horizon, "connection {connection} leaves later");
        }
        let connection = random.below(64) as u32;
        if random.below(4) == 0 {
            wheel.cancel(connection);
            model.remove(&connection);
        } else {
            // First only near departures, then departures up to the largest distance that a wheel supports.
            let slots = if round < 100_000 { SLOTS_INITIAL / 4 } else { SLOTS_MAX - 2 };
            let due = now + random.below(SLOT_LEN.as_ps() * slots as u64);
            wheel.schedule(Time::from_ps(now), connection, Time::from_ps(due));
            model.insert(connection, due);
        }
    }
    assert_eq!(wheel.waiting(), model.len());
}

/// When a far departure requires more slots, the existing entries keep their slots and their order, even those that
/// wrap around the end of the wheel.
#[test]
fn a_far_departure_extends_the_wheel_and_keeps_all_entries() {
    let at = |slots: u64| Time::from_ps(slots * SLOT_LEN.as_ps());
    for start in [0, 1000, 1_000_000] {
        let mut wheel = Wheel::new(8);
        let now = at(start);
        let waits = [(5, 7), (1, 7), (4, 900), (0, 1000), (7, 3)];
        waits.iter().for_each(|(connection, slots)| wheel.schedule(now, *connection, at(start + slots)));
        assert_eq!(wheel.first_due_before(at(start + 8)).collect::<Vec<_>>(), [7, 5, 1]);
        assert_eq!(wheel.first_due_before(at(start + 7)).collect::<Vec<_>>(), [7]);
        wheel.schedule(now, 6, at(start + 5000));
        wheel.schedule(now, 2, at(start + (1 << 20)));
        assert_eq!(wheel.lists.len(), SLOTS_MAX);
        assert_eq!(wheel.all().count(), 7);
        let mut left = Vec::new();
        for slots in 0..SLOTS_MAX as u64 {
            while let Some(connection) = wheel.take(at(start + slots)) {
                left.push((connection, slots));
            }
        }
        // Connection 2 departs after the last slot that the wheel can have, so it is returned at the end of the
        // wheel.
        let end = SLOTS_MAX as u64 - 1;
        assert_eq!(left, [(7, 3), (5, 7), (1, 7), (4, 900), (0, 1000), (6, 5000), (2, end)], "from {start}");
    }
}

/// A long time passes while no connection has an entry, or while `take` is not called: this does not require more
/// slots.
#[test]
fn a_long_pause_does_not_extend_the_wheel() {
    let mut wheel = Wheel::new(2);
    let at = |slots: u64| Time::from_ps(slots * SLOT_LEN.as_ps());
    wheel.schedule(at(0), 0, at(10));
    assert_eq!(wheel.take(at(10)), Some(0));
    wheel.schedule(at(1 << 30), 0, at((1 << 30) + 10));
    wheel.schedule(at((1 << 30) + 5), 1, at((1 << 30) + 1000));
    assert_eq!(wheel.lists.len(), SLOTS_INITIAL);
    assert_eq!(wheel.take(at((1 << 30) + 9)), None);
    assert_eq!((wheel.take(at((1 << 30) + 10)), wheel.take(at((1 << 30) + 1000))), (Some(0), Some(1)));
}
