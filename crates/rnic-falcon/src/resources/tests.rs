//! Parts, zones, thresholds and levels: each as the targets say an observer checks it.

use rnic_base::{Duration, RandomStreams, Serial};
use rnic_policy::{FalconIsolation, FalconShape};
use rnic_wire::falcon::UlpProtocol;

use super::threshold::{Alpha, Isolation, Usage};
use super::*;
use crate::transaction::{Kind, Ordering, Submission, TransactionConfig, Transactions};

const TINY: ResourceConfig = ResourceConfig {
    capacity: [Amount { packets: 4, buffers: 8 }; 4],
    carving: Carving::Full,
    reserve: cost::Transaction::NONE,
    zones: Zones { green: Amount { packets: 3, buffers: 6 }, head_of_line_only: true },
    units: cost::Units { tx: 64, rx: 256 },
};

/// The option `resources`: a hundred per cent is the public simulator's NIC, and the least still moves any transaction.
#[test]
fn f31_resources_of_a_nic_are_so_many_percent() {
    let of = |resources_percent| ResourceConfig::of(&FalconShape { resources_percent, ..FalconShape::DEFAULT });
    assert_eq!(of(100), ResourceConfig::GBPS_200);
    assert_eq!(of(1_000).capacity[0], Amount { packets: 57_750, buffers: 57_750 });
    let (least, largest) = (of(1), rnic_base::limits::MTU_MAX);
    let arrived = least.units.arrived_push(largest);
    for part in Part::ALL {
        assert!(least.capacity[part as usize].covers(Amount { packets: 2, buffers: 2 }), "{part:?}");
    }
    assert!(least.capacity[Part::RequestRx as usize].buffers >= 2 * arrived.buffers);
}

/// F-31: transactions hold contexts and buffers, as many as the specification's tables say.
#[test]
fn f31_costs_are_those_of_the_tables() {
    let units = cost::Units { tx: 64, rx: 256 };
    let push = units.push(1_000);
    assert_eq!((push.tx, push.rx), (Amount { packets: 1, buffers: 16 }, Amount { packets: 1, buffers: 0 }));
    let pull = units.pull(1_000);
    assert_eq!((pull.tx, pull.rx), (Amount { packets: 1, buffers: 1 }, Amount { packets: 1, buffers: 4 }));
    assert_eq!(units.pull_data(1_000), Amount { packets: 1, buffers: 16 });
    assert_eq!(units.arrived_push(1_000), Amount { packets: 1, buffers: 4 });
    assert_eq!(units.arrived_pull(), Amount { packets: 1, buffers: 1 });
}

/// F-31: requests that wait to leave hold what the tables say, of each part; high-water marks are made of that.
#[test]
fn f31_what_waits_to_leave_is_held_part_by_part() {
    let config = TransactionConfig {
        ordering: Ordering::Ordered,
        protocol: UlpProtocol::Rdma,
        mtu: 4_096,
        outstanding: 16,
        timeout: Duration::from_ms(100),
        isolation: Isolation::None,
    };
    // Of 57 contexts 5, and of 81 buffers for responses 32; or of 5775 and 8192.
    for (resources_percent, packets, buffers) in [(1, 87, 395), (100, 0, 3)] {
        let shape = FalconShape { resources_percent, ..FalconShape::DEFAULT };
        let mut resources = Resources::new(ResourceConfig::of(&shape));
        let mut transactions = Transactions::new(config, Serial::new(0));
        for (tag, kind) in (0..).zip([Kind::Push, Kind::Pull, Kind::Push, Kind::Push, Kind::Pull]) {
            let payload_len = if kind == Kind::Push { 4_096 } else { 0 };
            let submission = Submission { kind, length: 4_096, payload_len, ulp: None, tag, continues: false };
            transactions.submit(&mut resources, &submission).expect("room");
        }
        let held = Part::ALL.map(|part| resources.capacity(part).minus(resources.free(part)));
        let (requests, responses) = (Amount { packets: 5, buffers: 3 + 2 }, Amount { packets: 5, buffers: 2 * 16 });
        assert_eq!(held, [requests, Amount::NONE, responses, Amount::NONE], "{resources_percent} %");
        assert_eq!((transactions.usage().tx, transactions.usage().rx), (requests, responses));
        assert_eq!(resources.fullest(), Amount { packets, buffers }, "thousandths, {resources_percent} %");
    }
}

/// F-32: fill any part to the brim, and the other three are as they were.
#[test]
fn f32_parts_do_not_starve_each_other() {
    for full in Part::ALL {
        let mut resources = Resources::new(TINY);
        let mut held: Vec<Held> = std::iter::from_fn(|| resources.hold(full, Amount::packet(1))).collect();
        assert_eq!(held.len(), 4);
        for other in Part::ALL.into_iter().filter(|other| *other != full) {
            assert_eq!(resources.free(other), TINY.capacity[other as usize], "{other:?} beside a full {full:?}");
        }
        held.drain(..).for_each(|held| resources.release(held));
        assert!(resources.is_idle());
    }
}

/// F-32: without carving, one part takes it all.
#[test]
fn f32_shared_pools_are_shared() {
    let count = |carving, part| {
        let mut resources = Resources::new(ResourceConfig { carving, ..TINY });
        let held: Vec<Held> = std::iter::from_fn(|| resources.hold(part, Amount::packet(1))).collect();
        let left = Part::ALL.map(|part| resources.free(part).packets);
        held.into_iter().for_each(|held| resources.release(held));
        left
    };
    assert_eq!(count(Carving::SharedDirections, Part::RequestTx), [0, 8, 8, 0]);
    assert_eq!(count(Carving::SharedClasses, Part::DataTx), [0, 0, 8, 8]);
    assert_eq!(count(Carving::None, Part::ResponseRx), [0; 4]);
}

/// F-32: beyond the threshold only the head of a line gets in.
#[test]
fn f32_probe6_the_last_room_is_for_the_head_of_line() {
    let mut resources = Resources::new(TINY);
    let mut held: Vec<Held> = (0..3).map(|_| resources.hold_arrival(Amount::packet(1), false).unwrap()).collect();
    assert_eq!(resources.zone(), Zone::Red);
    assert!(resources.hold_arrival(Amount::packet(1), false).is_none(), "not its turn");
    held.push(resources.hold_arrival(Amount::packet(1), true).expect("its turn"));
    assert!(resources.hold_arrival(Amount::packet(1), true).is_none(), "no room for anybody");
    held.drain(..).for_each(|held| resources.release(held));
    assert_eq!((resources.zone(), resources.is_idle()), (Zone::Green, true));
    assert_eq!(resources.refused(), 2);
}

/// What is left for those that go on with a message is for nobody else, of any of what a request needs.
#[test]
fn f32_the_reserve_is_for_those_it_is_for() {
    let of_one = TINY.units.push(64);
    let mut resources = Resources::new(ResourceConfig { reserve: of_one, ..TINY });
    let mut held = Vec::new();
    for nth in 0..4 {
        assert_eq!(resources.may_hold_transaction(false), nth < 3, "of four, one is left");
        held.extend(resources.hold_transaction(of_one, false).map(|(tx, rx)| [tx, rx]));
    }
    assert_eq!((held.len(), resources.refused()), (3, 1));
    assert!(resources.may_hold_transaction(true));
    held.extend(resources.hold_transaction(of_one, true).map(|(tx, rx)| [tx, rx]));
    assert_eq!((held.len(), resources.may_hold_transaction(true)), (4, false));
    held.into_iter().flatten().for_each(|held| resources.release(held));
    assert!(resources.is_idle());
}

/// F-33: a request is accepted with room for what it brings, or not at all.
#[test]
fn f33_both_ends_of_a_transaction_are_reserved_together() {
    let mut resources = Resources::new(TINY);
    let need = TINY.units.pull(8 * 256);
    let (tx, rx) = resources.hold_transaction(need, false).expect("room for one");
    assert!(resources.hold_transaction(need, false).is_none(), "no room for a second answer");
    assert_eq!(resources.free(Part::RequestTx), Amount { packets: 3, buffers: 7 }, "and nothing held for it");
    resources.release(tx);
    resources.release(rx);
    assert!(resources.is_idle());
}

/// F-33: whatever is held in whatever order, all of it comes back.
#[test]
fn f33_nothing_leaks() {
    for carving in [Carving::Full, Carving::SharedDirections, Carving::SharedClasses, Carving::None] {
        let mut random = RandomStreams::new(1).stream("resources");
        let mut resources = Resources::new(ResourceConfig { carving, ..TINY });
        let mut held = Vec::new();
        for _ in 0..100_000 {
            let amount = Amount { packets: random.below(3) as u32, buffers: random.below(5) as u32 };
            match random.below(4) {
                0 => held.extend(resources.hold_arrival(amount, random.below(2) == 0)),
                1 => held.extend(resources.hold(Part::ALL[random.below(4) as usize], amount)),
                _ if held.is_empty() => {}
                _ => resources.release(held.swap_remove(random.below(held.len() as u64) as usize)),
            }
        }
        held.drain(..).for_each(|held| resources.release(held));
        assert!(resources.is_idle(), "{carving:?}");
        assert_eq!(resources.requests_held(), Amount::NONE);
    }
}

/// F-35: T = alpha x free: the threshold moves with what others hold, and the slow one is stopped before all is gone.
#[test]
fn f35_thresholds_move_with_what_is_free() {
    let config = ResourceConfig { capacity: [Amount { packets: 64, buffers: 64 }; 4], ..TINY };
    let mut resources = Resources::new(config);
    let request_alpha = Alpha::from_shift(6);
    let usage = |packets| Usage { tx: Amount { packets, buffers: 0 }, request_alpha, ..Usage::default() };
    let pauses = |resources: &Resources, packets| usage(packets).pauses_requests(Isolation::Dynamic, resources);
    assert_eq!([pauses(&resources, 7), pauses(&resources, 8)], [false, true], "an eighth of 64");
    let others = resources.hold(Part::RequestTx, Amount { packets: 32, buffers: 0 }).unwrap();
    assert_eq!([pauses(&resources, 3), pauses(&resources, 4)], [false, true], "an eighth of 32");
    assert!(!pauses(&resources, 0), "one is always allowed");
    resources.release(others);
}

/// F-36: the connection whose alpha falls is the one that is held back.
#[test]
fn f36_alpha_concerns_one_connection() {
    let config = ResourceConfig { capacity: [Amount { packets: 64, buffers: 64 }; 4], ..TINY };
    let resources = Resources::new(config);
    let some = Amount { packets: 4, buffers: 0 };
    let fast = Usage { tx: some, data: some, ..Usage::default() };
    let slow = Usage { request_alpha: Alpha::from_shift(7), ..fast };
    assert!(!fast.pauses_requests(Isolation::Dynamic, &resources));
    assert!(slow.pauses_requests(Isolation::Dynamic, &resources), "a sixteenth of 64");
    assert!(!slow.pauses_data(Isolation::Dynamic, &resources), "responses have a threshold of their own");
    let mute = Usage { data_alpha: Alpha::from_shift(7), ..fast };
    assert!(mute.pauses_data(Isolation::Dynamic, &resources) && !mute.pauses_requests(Isolation::Dynamic, &resources));
    let (tx, rx) = (Amount { packets: 4, buffers: 64 }, Amount { packets: 4, buffers: 8 });
    let held = Isolation::Static { tx, rx };
    assert!(fast.pauses_requests(held, &resources) && !fast.pauses_requests(Isolation::None, &resources));
    assert_eq!([0, 3, 15].map(|shift| Alpha::from_shift(shift).share(4_096)), [32_768, 4_096, 1]);
}

/// F-18: payload that the upper layer has taken fills buffers until it is in the host's memory.
#[test]
fn f18_payload_on_its_way_into_memory_fills_buffers() {
    let mut resources = Resources::new(TINY);
    resources.set_backlog(6);
    assert_eq!(resources.free(Part::RequestRx), Amount { packets: 4, buffers: 2 });
    assert_eq!((resources.zone(), resources.requests_held().buffers), (Zone::Red, 6));
    (0..20).for_each(|_| resources.set_backlog(6));
    assert_eq!(resources.rx_level(), 23, "just below six of eight, of 32 levels");
    resources.set_backlog(100);
    assert_eq!(resources.free(Part::RequestRx).buffers, 0, "no more than there is");
    resources.set_backlog(0);
    assert!(resources.is_idle() && resources.requests_held() == Amount::NONE);
}

/// F-18: the level that travels is the fuller of packets and buffers, smoothed.
#[test]
fn f18_levels_follow_occupancy() {
    let capacity = Amount { packets: 100, buffers: 320 };
    let mut level = level::Level::default();
    let mut settled = |held| {
        (0..20).for_each(|_| level.update(held));
        level.of(capacity)
    };
    assert_eq!(settled(Amount { packets: 1, buffers: 161 }), 16);
    assert_eq!(settled(Amount { packets: 100, buffers: 320 }), 31);
    assert_eq!(settled(Amount::NONE), 0);
    let mut rising = level::Level::default();
    rising.update(capacity);
    assert_eq!(rising.of(capacity), 16, "half the way at once");
}

/// F-34: a static share counts what a full packet takes of each part, in that part's buffers.
#[test]
fn f34_a_static_share_is_of_so_many_packets_in_every_part() {
    let shape = FalconShape { isolation: FalconIsolation::Static, isolation_packets: 64, ..FalconShape::DEFAULT };
    let config = ResourceConfig::GBPS_200;
    let isolation = Isolation::of(&shape, 4_096, &config);
    let resources = Resources::new(config);
    let pauses = |pulls: u32| {
        let of_one = config.units.pull(4_096);
        let times = |one: Amount| Amount { packets: pulls * one.packets, buffers: pulls * one.buffers };
        let usage = Usage { tx: times(of_one.tx), rx: times(of_one.rx), ..Usage::default() };
        usage.pauses_requests(isolation, &resources)
    };
    assert_eq!([63, 64].map(pauses), [false, true]);
}
