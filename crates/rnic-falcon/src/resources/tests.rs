//! Tests: partitions, zones, thresholds and occupancy levels of the resource pools, as stated in `targets.md` for an
//! external observer.

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

/// The option `resources`: 100 % results in the resources of the public simulator's NIC, and even the smallest value
/// suffices for any transaction.
#[test]
fn f31_resources_scale_by_the_configured_percentage() {
    let of = |resources_percent| ResourceConfig::of(&FalconShape { resources_percent, ..FalconShape::DEFAULT });
    assert_eq!(of(100), ResourceConfig::GBPS_200);
    assert_eq!(of(1_000).capacity[0], Amount { packets: 57_750, buffers: 57_750 });
    let (least, largest) = (of(1), rnic_base::limits::MTU_MAX);
    let arrived = least.units.arrived_push(largest);
    for part in ResourcePart::ALL {
        assert!(least.capacity[part as usize].covers(Amount { packets: 2, buffers: 2 }), "{part:?}");
    }
    assert!(least.capacity[ResourcePart::RequestRx as usize].buffers >= 2 * arrived.buffers);
}

/// F-31: a transaction occupies as many contexts and buffers as the specification's tables state.
#[test]
fn f31_costs_match_the_tables_of_the_specification() {
    let units = cost::Units { tx: 64, rx: 256 };
    let push = units.push(1_000);
    assert_eq!((push.tx, push.rx), (Amount { packets: 1, buffers: 16 }, Amount { packets: 1, buffers: 0 }));
    let pull = units.pull(1_000);
    assert_eq!((pull.tx, pull.rx), (Amount { packets: 1, buffers: 1 }, Amount { packets: 1, buffers: 4 }));
    assert_eq!(units.pull_data(1_000), Amount { packets: 1, buffers: 16 });
    assert_eq!(units.arrived_push(1_000), Amount { packets: 1, buffers: 4 });
    assert_eq!(units.arrived_pull(), Amount { packets: 1, buffers: 1 });
}

/// F-31: requests that wait for transmission hold the amounts stated in the tables, in each pool; the highest
/// occupancies are computed from these amounts.
#[test]
fn f31_waiting_requests_hold_the_specified_amounts_in_each_part() {
    let config = TransactionConfig {
        ordering: Ordering::Ordered,
        protocol: UlpProtocol::Rdma,
        mtu: 4_096,
        outstanding: 16,
        timeout: Duration::from_ms(100),
        isolation: Isolation::None,
    };
    // At 1 %: 5 of 57 contexts and 32 of 81 response buffers; at 100 %: of 5775 and 8192.
    for (resources_percent, packets, buffers) in [(1, 87, 395), (100, 0, 3)] {
        let shape = FalconShape { resources_percent, ..FalconShape::DEFAULT };
        let mut resources = Resources::new(ResourceConfig::of(&shape));
        let mut transactions = Transactions::new(config, Serial::new(0));
        for (tag, kind) in (0..).zip([Kind::Push, Kind::Pull, Kind::Push, Kind::Push, Kind::Pull]) {
            let payload_len = if kind == Kind::Push { 4_096 } else { 0 };
            let submission = Submission { kind, length: 4_096, payload_len, ulp: None, tag, continues: false };
            transactions.submit(&mut resources, &submission).expect("resources are available");
        }
        let held = ResourcePart::ALL.map(|part| resources.capacity(part).minus(resources.free(part)));
        let (requests, responses) = (Amount { packets: 5, buffers: 3 + 2 }, Amount { packets: 5, buffers: 2 * 16 });
        assert_eq!(held, [requests, Amount::NONE, responses, Amount::NONE], "{resources_percent} %");
        assert_eq!((transactions.usage().tx, transactions.usage().rx), (requests, responses));
        assert_eq!(resources.fullest(), Amount { packets, buffers }, "thousandths at {resources_percent} %");
    }
}

/// F-32: when one pool is exhausted, the other three are not affected.
#[test]
fn f32_parts_do_not_starve_each_other() {
    for full in ResourcePart::ALL {
        let mut resources = Resources::new(TINY);
        let mut held: Vec<Held> = std::iter::from_fn(|| resources.hold(full, Amount::packet(1))).collect();
        assert_eq!(held.len(), 4);
        for other in ResourcePart::ALL.into_iter().filter(|other| *other != full) {
            assert_eq!(resources.free(other), TINY.capacity[other as usize], "{other:?} while {full:?} is exhausted");
        }
        held.drain(..).for_each(|held| resources.release(held));
        assert!(resources.is_idle());
    }
}

/// F-32: if parts share a pool, one part can exhaust it.
#[test]
fn f32_one_part_can_exhaust_a_shared_pool() {
    let count = |carving, part| {
        let mut resources = Resources::new(ResourceConfig { carving, ..TINY });
        let held: Vec<Held> = std::iter::from_fn(|| resources.hold(part, Amount::packet(1))).collect();
        let left = ResourcePart::ALL.map(|part| resources.free(part).packets);
        held.into_iter().for_each(|held| resources.release(held));
        left
    };
    assert_eq!(count(Carving::SharedDirections, ResourcePart::RequestTx), [0, 8, 8, 0]);
    assert_eq!(count(Carving::SharedClasses, ResourcePart::DataTx), [0, 0, 8, 8]);
    assert_eq!(count(Carving::None, ResourcePart::ResponseRx), [0; 4]);
}

/// F-32: above the threshold, only packets at the head of the line are accepted.
#[test]
fn f32_probe6_the_last_resources_are_for_the_head_of_line() {
    let mut resources = Resources::new(TINY);
    let mut held: Vec<Held> = (0..3).map(|_| resources.hold_arrival(Amount::packet(1), false).unwrap()).collect();
    assert_eq!(resources.zone(), Zone::Red);
    assert!(resources.hold_arrival(Amount::packet(1), false).is_none(), "not at the head of the line");
    held.push(resources.hold_arrival(Amount::packet(1), true).expect("the head of the line is admitted"));
    assert!(resources.hold_arrival(Amount::packet(1), true).is_none(), "no resources are left");
    held.drain(..).for_each(|held| resources.release(held));
    assert_eq!((resources.zone(), resources.is_idle()), (Zone::Green, true));
    assert_eq!(resources.refused(), 2);
}

/// The reserve for messages that have started is not available to other requests, for any of the resources that a
/// request needs.
#[test]
fn f32_the_reserve_is_only_for_messages_that_have_started() {
    let of_one = TINY.units.push(64);
    let mut resources = Resources::new(ResourceConfig { reserve: of_one, ..TINY });
    let mut held = Vec::new();
    for nth in 0..4 {
        assert_eq!(resources.may_hold_transaction(false), nth < 3, "one of four contexts is reserved");
        held.extend(resources.hold_transaction(of_one, false).map(|(tx, rx)| [tx, rx]));
    }
    assert_eq!((held.len(), resources.refused()), (3, 1));
    assert!(resources.may_hold_transaction(true));
    held.extend(resources.hold_transaction(of_one, true).map(|(tx, rx)| [tx, rx]));
    assert_eq!((held.len(), resources.may_hold_transaction(true)), (4, false));
    held.into_iter().flatten().for_each(|held| resources.release(held));
    assert!(resources.is_idle());
}

/// F-33: a request is accepted together with all resources that it needs, or not at all.
#[test]
fn f33_request_and_response_resources_are_reserved_together() {
    let mut resources = Resources::new(TINY);
    let need = TINY.units.pull(8 * 256);
    let (tx, rx) = resources.hold_transaction(need, false).expect("resources for one request");
    assert!(resources.hold_transaction(need, false).is_none(), "no resources for a second response");
    assert_eq!(resources.free(ResourcePart::RequestTx), Amount { packets: 3, buffers: 7 }, "it holds nothing");
    resources.release(tx);
    resources.release(rx);
    assert!(resources.is_idle());
}

/// F-33: all resources are released, in whatever order they were allocated and are released.
#[test]
fn f33_no_resources_leak() {
    for carving in [Carving::Full, Carving::SharedDirections, Carving::SharedClasses, Carving::None] {
        let mut random = RandomStreams::new(1).stream("resources");
        let mut resources = Resources::new(ResourceConfig { carving, ..TINY });
        let mut held = Vec::new();
        for _ in 0..100_000 {
            let amount = Amount { packets: random.below(3) as u32, buffers: random.below(5) as u32 };
            match random.below(4) {
                0 => held.extend(resources.hold_arrival(amount, random.below(2) == 0)),
                1 => held.extend(resources.hold(ResourcePart::ALL[random.below(4) as usize], amount)),
                _ if held.is_empty() => {}
                _ => resources.release(held.swap_remove(random.below(held.len() as u64) as usize)),
            }
        }
        held.drain(..).for_each(|held| resources.release(held));
        assert!(resources.is_idle(), "{carving:?}");
        assert_eq!(resources.requests_held(), Amount::NONE);
    }
}

/// F-35: T = alpha x free: the threshold changes with the resources that other connections use, and a slow connection
/// is paused before the pool is empty.
#[test]
fn f35_thresholds_follow_the_free_resources() {
    let config = ResourceConfig { capacity: [Amount { packets: 64, buffers: 64 }; 4], ..TINY };
    let mut resources = Resources::new(config);
    let request_alpha = Alpha::from_shift(6);
    let usage = |packets| Usage { tx: Amount { packets, buffers: 0 }, request_alpha, ..Usage::default() };
    let pauses = |resources: &Resources, packets| usage(packets).pauses_requests(Isolation::Dynamic, resources);
    assert_eq!([pauses(&resources, 7), pauses(&resources, 8)], [false, true], "an eighth of 64");
    let others = resources.hold(ResourcePart::RequestTx, Amount { packets: 32, buffers: 0 }).unwrap();
    assert_eq!([pauses(&resources, 3), pauses(&resources, 4)], [false, true], "an eighth of 32");
    assert!(!pauses(&resources, 0), "one packet is always allowed");
    resources.release(others);
}

/// F-36: only the connection whose alpha decreases is limited.
#[test]
fn f36_alpha_limits_only_its_own_connection() {
    let config = ResourceConfig { capacity: [Amount { packets: 64, buffers: 64 }; 4], ..TINY };
    let resources = Resources::new(config);
    let some = Amount { packets: 4, buffers: 0 };
    let fast = Usage { tx: some, data: some, ..Usage::default() };
    let slow = Usage { request_alpha: Alpha::from_shift(7), ..fast };
    assert!(!fast.pauses_requests(Isolation::Dynamic, &resources));
    assert!(slow.pauses_requests(Isolation::Dynamic, &resources), "a sixteenth of 64");
    assert!(!slow.pauses_data(Isolation::Dynamic, &resources), "responses have their own threshold");
    let mute = Usage { data_alpha: Alpha::from_shift(7), ..fast };
    assert!(mute.pauses_data(Isolation::Dynamic, &resources) && !mute.pauses_requests(Isolation::Dynamic, &resources));
    let (tx, rx) = (Amount { packets: 4, buffers: 64 }, Amount { packets: 4, buffers: 8 });
    let held = Isolation::Static { tx, rx };
    assert!(fast.pauses_requests(held, &resources) && !fast.pauses_requests(Isolation::None, &resources));
    assert_eq!([0, 3, 15].map(|shift| Alpha::from_shift(shift).share(4_096)), [32_768, 4_096, 1]);
}

/// F-18: payload that the upper layer has accepted occupies buffers until it is written to the host's memory.
#[test]
fn f18_payload_not_yet_in_host_memory_occupies_buffers() {
    let mut resources = Resources::new(TINY);
    resources.set_backlog(6);
    assert_eq!(resources.free(ResourcePart::RequestRx), Amount { packets: 4, buffers: 2 });
    assert_eq!((resources.zone(), resources.requests_held().buffers), (Zone::Red, 6));
    (0..20).for_each(|_| resources.set_backlog(6));
    assert_eq!(resources.rx_level(), 23, "just below 6 of 8 buffers, in 32 levels");
    resources.set_backlog(100);
    assert_eq!(resources.free(ResourcePart::RequestRx).buffers, 0, "the backlog is limited to the free buffers");
    resources.set_backlog(0);
    assert!(resources.is_idle() && resources.requests_held() == Amount::NONE);
}

/// F-18: the reported occupancy level is the higher of the levels of packets and buffers, smoothed.
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
    assert_eq!(rising.of(capacity), 16, "one sample moves the level by half");
}

/// F-34: a static share of a number of packets includes, in each part, the buffers that full packets occupy there.
#[test]
fn f34_a_static_share_limits_packets_in_every_part() {
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
