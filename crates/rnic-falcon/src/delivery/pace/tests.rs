//! The wheel against a sorted list.

use std::collections::BTreeMap;

use rnic_base::RandomStreams;

use super::*;

#[test]
fn f20_the_wheel_lets_connections_go_in_slot_order_and_never_early() {
    let mut wheel = Wheel::new(4);
    let at = Time::from_ns;
    wheel.wait(2, at(1_000));
    wheel.wait(0, at(512));
    wheel.wait(1, at(513));
    wheel.wait(3, at(600));
    assert_eq!(wheel.take(at(511)), None);
    assert_eq!(wheel.deadline(), Some(at(512)));
    assert_eq!(wheel.take(at(1_023)), Some(0));
    assert_eq!(wheel.take(at(1_023)), None, "513 ns is not over until its slot begins");
    assert_eq!((wheel.take(at(1_024)), wheel.take(at(1_024)), wheel.take(at(1_024))), (Some(2), Some(1), Some(3)));
    assert_eq!((wheel.waiting(), wheel.deadline()), (0, None));
}

#[test]
fn random_waits_agree_with_a_sorted_list() {
    let mut random = RandomStreams::new(7).stream("wheel");
    let mut wheel = Wheel::new(64);
    let mut model: BTreeMap<u32, u64> = BTreeMap::new();
    let mut now = 0;
    for _ in 0..200_000 {
        now += random.below(2_000_000);
        while let Some(connection) = wheel.take(Time::from_ps(now)) {
            let due = model.remove(&connection).expect("it waits");
            assert!(due <= now, "connection {connection} left at {now}, before {due}");
        }
        let left_behind = model.values().filter(|due| **due + SLOT.as_ps() <= now).count();
        assert_eq!(left_behind, 0, "somebody is late");
        let earliest = model.values().min().map(|due| due.div_ceil(SLOT.as_ps()) * SLOT.as_ps());
        assert_eq!(wheel.deadline().map(Time::as_ps), earliest);
        let connection = random.below(64) as u32;
        if random.below(4) == 0 {
            wheel.cancel(connection);
            model.remove(&connection);
        } else {
            let due = now + random.below(SLOT.as_ps() * (SLOTS as u64 - 2));
            wheel.wait(connection, Time::from_ps(due));
            model.insert(connection, due);
        }
    }
    assert_eq!(wheel.waiting(), model.len());
}
