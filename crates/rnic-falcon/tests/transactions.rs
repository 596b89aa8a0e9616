//! The transaction layer's mechanisms, each as the targets say an observer checks it, over a stand-in for delivery.

use rnic_base::{Duration, Serial};
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::zone::{Zone, Zones};
use rnic_falcon::resources::{Amount, ResourceConfig};
use rnic_falcon::seam::Exhausted;
use rnic_falcon::transaction::{Answer, Kind, Ordering, SubmitError, TransactionConfig};
use rnic_trials::deadlock::net::{Net, World};
use rnic_trials::deadlock::ulp::Manners;
use rnic_wire::falcon::{Body, CompletionCode, NackCode, PacketType, ResyncCode, Rsn, Ulp, UlpProtocol};

const WORLD: World = World {
    resources: ResourceConfig::GBPS_200,
    transactions: TransactionConfig {
        ordering: Ordering::Ordered,
        protocol: UlpProtocol::Rdma,
        mtu: 4_096,
        outstanding: 256,
        timeout: Duration::from_ms(100),
        isolation: Isolation::None,
    },
    manners: Manners { done_at_once: 1_000, not_ready: 0, in_error: 0, pulls_held: 0 },
    pushes: 500,
    pulls_out: 0,
    message: 1,
    receives: 0,
    connections: 1,
    window: 128,
    shared_space: false,
    diligence: 1_000,
    lost: 0,
    doubled: 0,
};

const UNORDERED: World =
    World { transactions: TransactionConfig { ordering: Ordering::Unordered, ..WORLD.transactions }, ..WORLD };

const FIRST: Rsn = Serial::new(u32::MAX - 40);

fn rsn(nth: u32) -> Rsn {
    FIRST.plus(nth)
}

fn submit(net: &mut Net, kinds: &[Kind]) {
    for kind in kinds {
        net.submit(0, 0, *kind, 1_000).expect("room");
    }
}

fn types(net: &Net, from: usize) -> Vec<PacketType> {
    net.sent.iter().filter(|(nic, _)| *nic == from).map(|(_, packet)| packet.body.packet_type()).collect()
}

fn codes(net: &Net) -> Vec<CompletionCode> {
    net.ends[0][0].ulp.completions.iter().map(|completion| completion.code).collect()
}

fn tags(net: &Net) -> Vec<u64> {
    net.ends[0][0].ulp.completions.iter().map(|completion| completion.tag).collect()
}

#[test]
fn f2_pushes_take_data_there_and_pulls_bring_it_back() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Push; 3]);
    net.run();
    assert_eq!((types(&net, 0), types(&net, 1)), (vec![PacketType::PushData; 3], vec![]));
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Pull; 3]);
    net.run();
    assert_eq!((types(&net, 0), types(&net, 1)), (vec![PacketType::PullRequest; 3], vec![PacketType::PullData; 3]));
    let pulled: Vec<u16> = net.ends[0][0].ulp.completions.iter().map(|done| done.data.unwrap()).collect();
    assert_eq!((pulled, net.is_idle()), (vec![1_000; 3], true));
}

#[test]
fn f3_a_transaction_is_one_packet_at_most_and_completes_once() {
    let mut net = Net::new(WORLD, 1);
    assert_eq!(net.submit(0, 0, Kind::Push, 4_097), Err(SubmitError::TooLong { length: 4_097, mtu: 4_096 }));
    assert_eq!(net.submit(0, 0, Kind::Push, 4_096), Ok(()), "as long as the MTU");
    submit(&mut net, &[Kind::Push]);
    net.run();
    let numbers: Vec<_> =
        net.sent.iter().map(|(_, packet)| (packet.body.rsn().unwrap(), packet.body.psn().unwrap().value())).collect();
    assert_eq!(numbers, [(rsn(0), 0), (rsn(1), 1)]);
    assert_eq!(tags(&net), [0, 1]);
}

/// More requests than the window holds, none of which arrives: what the peer asks for is sent all the same.
#[test]
fn f4_requests_that_wait_do_not_hold_back_responses() {
    for world in [WORLD, UNORDERED] {
        let mut net = Net::new(World { window: 4, ..world }, 1);
        submit(&mut net, &[Kind::Pull; 8]);
        while net.send(0, 0) {}
        net.lose_all();
        (0..3).for_each(|_| net.submit(1, 0, Kind::Pull, 1_000).expect("room"));
        while net.send(1, 0) {}
        while net.deliver() {}
        while net.work(0, 0) || net.send(0, 0) || net.deliver() {}
        assert_eq!(net.ends[1][0].ulp.completions.len(), 3);
        assert_eq!(types(&net, 0)[4..], [PacketType::PullData; 3], "and requests still wait");
    }
}

/// Pull Requests that never arrive fill their window: Push Data behind them goes its way, but for the order of requests
/// where there is one.
#[test]
fn f4_pull_requests_that_wait_hold_back_pushes_for_the_sake_of_order_alone() {
    for (world, delivered) in [(UNORDERED, 3), (WORLD, 0)] {
        let mut net = Net::new(World { window: 4, ..world }, 1);
        submit(&mut net, &[Kind::Pull; 8]);
        while net.send(0, 0) {}
        net.lose_all();
        submit(&mut net, &[Kind::Push; 3]);
        while net.send(0, 0) || net.deliver() {}
        assert_eq!(net.ends[1][0].ulp.requests.len(), delivered, "{:?}", world.transactions.ordering);
        assert_eq!(types(&net, 0)[4..], vec![PacketType::PushData; delivered]);
        assert!(net.settle());
        assert_eq!(net.ends[0][0].ulp.completions.len(), 11);
    }
}

/// RSN order across both windows.
#[test]
fn f5_probe5_ordered_connections_deliver_and_complete_in_order_whatever_the_network_does() {
    for seed in 0..60 {
        let manners = Manners { done_at_once: 500, not_ready: 100, ..WORLD.manners };
        let mut net = Net::new(World { lost: 100, doubled: 50, manners, ..WORLD }, seed);
        (0..600).for_each(|_| net.step(4_096));
        assert!(net.settle(), "seed {seed}");
        for nic in [0, 1] {
            let handed_in = net.ends[nic][0].next_tag;
            let expected: Vec<Rsn> = (0..handed_in as u32).map(rsn).collect();
            assert_eq!(net.ends[1 - nic][0].ulp.requests, expected, "requests, seed {seed}");
            let done: Vec<Rsn> = net.ends[nic][0].ulp.completions.iter().map(|completion| completion.rsn).collect();
            assert_eq!(done, expected, "completions, seed {seed}");
        }
    }
}

#[test]
fn f5_unordered_connections_deliver_and_complete_each_once() {
    for seed in 0..60 {
        let manners = Manners { done_at_once: 500, not_ready: 100, ..WORLD.manners };
        let mut net = Net::new(World { lost: 100, doubled: 50, manners, ..UNORDERED }, seed);
        (0..600).for_each(|_| net.step(4_096));
        assert!(net.settle(), "seed {seed}");
        for nic in [0, 1] {
            let expected: Vec<u64> = (0..net.ends[nic][0].next_tag).collect();
            let mut done: Vec<u64> = net.ends[nic][0].ulp.completions.iter().map(|completion| completion.tag).collect();
            done.sort_unstable();
            assert_eq!(done, expected, "completions, seed {seed}");
            assert_eq!(net.ends[1 - nic][0].ulp.requests.len(), expected.len(), "requests, seed {seed}");
        }
    }
}

#[test]
fn f6_probe5_ordered_holds_what_comes_early_and_unordered_delivers_it() {
    for (world, early) in [(WORLD, vec![]), (UNORDERED, vec![rsn(1), rsn(2)])] {
        let mut net = Net::new(world, 1);
        submit(&mut net, &[Kind::Push; 3]);
        while net.send(0, 0) {}
        net.deliver_rsn(1, 1);
        net.deliver_rsn(1, 2);
        assert_eq!(net.ends[1][0].ulp.requests, early);
        let held = net.nics[1].requests_held();
        assert_eq!(held, if early.is_empty() { Amount { packets: 2, buffers: 8 } } else { Amount::NONE });
        net.deliver_rsn(1, 0);
        assert_eq!(net.ends[1][0].ulp.requests.len(), 3);
        net.run();
        assert!(net.is_idle());
    }
}

#[test]
fn f7_probe5_not_ready_is_tried_again_and_neither_side_hears_of_an_error() {
    for kind in [Kind::Push, Kind::Pull] {
        let mut net = Net::new(WORLD, 1);
        net.ends[1][0].ulp.manners.not_ready = 1_000;
        submit(&mut net, &[kind, Kind::Push]);
        for _ in 0..5 {
            net.run();
            (0..net.outstanding(0, 0)).for_each(|nth| net.repeat(0, 0, nth));
            net.pass_time(Duration::from_us(10));
        }
        assert!(net.ends[1][0].ulp.requests.is_empty() && net.ends[0][0].ulp.completions.is_empty());
        assert!(net.ends[1][0].ulp.offers >= 5, "{kind:?}: offered again and again");
        net.ends[1][0].ulp.manners.not_ready = 0;
        assert!(net.settle());
        assert_eq!(codes(&net), [CompletionCode::Ack; 2], "{kind:?}");
        assert_eq!(net.ends[1][0].ulp.requests, [rsn(0), rsn(1)], "in order: all behind waited (probe 5)");
    }
}

/// Two connections whose target has room for four requests and a head of a line; the first one's upper layer is not
/// ready.
fn with_room_for_one_head() -> Net {
    let mut capacity = WORLD.resources.capacity;
    capacity[3] = Amount { packets: 5, buffers: 80 };
    let zones = Zones { green: Amount { packets: 4, buffers: 64 }, head_of_line_only: true };
    let resources = ResourceConfig { capacity, zones, ..WORLD.resources };
    let mut net = Net::new(World { resources, connections: 2, ..WORLD }, 1);
    net.ends[1][0].ulp.manners.not_ready = 1_000;
    net
}

/// Whoever is not ready may wait for what another connection of the NIC brings: that finds room.
#[test]
fn f7_f32_what_is_behind_one_that_is_not_ready_leaves_room_for_heads_of_lines() {
    let mut net = with_room_for_one_head();
    submit(&mut net, &[Kind::Push; 8]);
    while net.send(0, 0) {}
    (0..8).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.nics[1].requests_held().packets, 4, "the others come again");
    net.run();
    net.submit(0, 1, Kind::Push, 1_000).expect("room");
    net.run();
    assert_eq!(net.ends[1][1].ulp.requests, [rsn(0)], "another connection's gets in");
    for nth in [6, 5, 3] {
        net.repeat(0, 0, nth);
        net.run();
    }
    assert_eq!((net.ends[1][0].ulp.offers, net.outstanding(0, 0)), (1, 8), "refused unasked while the first is");
    net.ends[1][0].ulp.manners.not_ready = 0;
    for nth in [6, 0] {
        net.repeat(0, 0, nth);
        net.run();
    }
    assert_eq!(net.ends[1][0].ulp.requests, (0..5).map(rsn).collect::<Vec<_>>(), "and those that were kept");
    assert!(net.settle());
    assert_eq!(net.ends[1][0].ulp.requests, (0..8).map(rsn).collect::<Vec<_>>());
}

/// Pulls behind a Push that is not ready come in order, and wait for it with what they hold: no more than anybody may
/// that is not at the head of its line.
#[test]
fn f32_pulls_behind_one_that_is_not_ready_are_not_at_the_head_of_the_line() {
    let mut net = with_room_for_one_head();
    submit(&mut net, &[Kind::Push]);
    submit(&mut net, &[Kind::Pull; 8]);
    while net.send(0, 0) {}
    (0..9).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.nics[1].requests_held().packets, 4, "the others come again");
    net.run();
    net.submit(0, 1, Kind::Push, 1_000).expect("room");
    net.run();
    assert_eq!(net.ends[1][1].ulp.requests, [rsn(0)], "another connection's gets in");
    net.ends[1][0].ulp.manners.not_ready = 0;
    assert!(net.settle());
    assert_eq!(net.ends[1][0].ulp.requests, (0..9).map(rsn).collect::<Vec<_>>());
}

/// The acknowledgements of a Pull Request are lost, while its answer waits: giving the request up changes nothing here.
#[test]
fn a_resync_of_a_pull_that_is_being_served_is_of_no_effect() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Pull]);
    net.send(0, 0);
    assert!(net.deliver(), "the request comes");
    net.lose_all();
    assert_eq!(net.exhaust(0, 0), [Exhausted::Resync]);
    net.repeat(0, 0, 0);
    assert!(net.deliver(), "the Resync comes");
    let answer = Answer { payload_len: 1, length: 1, ulp: Ulp::None };
    let Net { ends, nics, .. } = &mut net;
    assert_eq!(ends[1][0].transactions.answer(&mut nics[1], rsn(0), &answer), Ok(()));
}

#[test]
fn f7_a_pull_that_is_not_ready_waits_its_time_at_the_target() {
    let mut net = Net::new(WORLD, 1);
    net.ends[1][0].ulp.manners.not_ready = 1_000;
    submit(&mut net, &[Kind::Pull]);
    net.run();
    assert_eq!((net.outstanding(0, 0), net.ends[1][0].ulp.offers), (0, 1), "acknowledged, no NACK");
    net.pass_time(Duration::from_us(9));
    assert_eq!(net.ends[1][0].ulp.offers, 1);
    net.ends[1][0].ulp.manners.not_ready = 0;
    net.pass_time(Duration::from_us(1));
    assert_eq!(net.ends[1][0].ulp.offers, 2);
    net.run();
    assert_eq!(codes(&net), [CompletionCode::Ack]);
}

/// The upper layer's part of probe 3: a lost refusal is said again, and a Resync takes the packet's place.
#[test]
fn f8_probe3_the_fifth_of_ten_ends_in_error_and_the_rest_does_not() {
    for world in [WORLD, UNORDERED] {
        let mut net = Net::new(world, 1);
        submit(&mut net, &[Kind::Push; 4]);
        net.run();
        net.ends[1][0].ulp.manners.in_error = 1_000;
        submit(&mut net, &[Kind::Push]);
        net.send(0, 0);
        net.deliver_rsn(1, 4);
        net.lose_all();
        net.ends[1][0].ulp.manners.in_error = 0;
        submit(&mut net, &[Kind::Push; 5]);
        net.run();
        let so_far = if world.transactions.ordering == Ordering::Ordered { 4 } else { 9 };
        assert_eq!(codes(&net).len(), so_far, "the refusal was lost");
        net.repeat(0, 0, 0);
        net.deliver_rsn(1, 4);
        assert!(net.deliver(), "the refusal");
        net.lose_all();
        assert_eq!(types(&net, 0).last(), Some(&PacketType::Resync));
        submit(&mut net, &[Kind::Push]);
        net.run();
        let others = if world.transactions.ordering == Ordering::Ordered { 4 } else { 10 };
        assert_eq!(codes(&net), vec![CompletionCode::Ack; others], "not before the target has the Resync");
        net.repeat(0, 0, 0);
        net.run();
        let completions = &net.ends[0][0].ulp.completions;
        let failed: Vec<_> = completions.iter().filter(|done| done.code != CompletionCode::Ack).collect();
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].tag, failed[0].code, failed[0].ulp_code), (4, CompletionCode::TargetCompleteInError, 7));
        assert_eq!((completions.len(), net.ends[1][0].ulp.requests.len()), (11, 10));
        assert_eq!(types(&net, 0).iter().filter(|kind| **kind == PacketType::Resync).count(), 2);
        assert!(net.is_idle());
    }
}

#[test]
fn f33_what_is_held_for_a_transaction_is_free_when_it_is_over() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Pull, Kind::Push]);
    let usage = *net.ends[0][0].transactions.usage();
    assert_eq!(usage.tx, Amount { packets: 2, buffers: 1 + 1 }, "to send both");
    assert_eq!(usage.rx, Amount { packets: 2, buffers: 4 }, "for the data of one and the completion of the other");
    net.run();
    assert_eq!((net.ends[0][0].transactions.usage().tx, net.is_idle()), (Amount::NONE, true));
}

#[test]
fn f33_the_place_of_a_response_is_kept_until_it_is_handed_over() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Pull]);
    while net.send(0, 0) || net.deliver() {}
    let usage = *net.ends[0][0].transactions.usage();
    assert_eq!((net.outstanding(0, 0), usage.tx), (0, Amount::NONE), "the request is acknowledged");
    assert_eq!(usage.rx, Amount { packets: 1, buffers: 4 }, "its data has not come");
    net.run();
    assert_eq!((net.ends[0][0].transactions.usage().rx, net.is_idle()), (Amount::NONE, true));
}

/// A request that waits for its turn is given up: a Resync takes its place.
#[test]
fn f33_a_request_that_is_skipped_leaves_its_room() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Push; 2]);
    while net.send(0, 0) {}
    net.deliver_rsn(1, 1);
    net.lose_all();
    assert_eq!(net.nics[1].requests_held().packets, 1);
    net.pass_time(Duration::from_ms(100));
    net.repeat(0, 0, 1);
    net.deliver_rsn(1, 1);
    assert_eq!(net.nics[1].requests_held(), Amount::NONE);
    assert!(net.settle());
    assert_eq!(codes(&net), [CompletionCode::LocalTimeout; 2]);
}

/// An upper layer that has failed for good: what waits for its turn, and what still comes, holds nothing, is refused,
/// and is handed over to nobody; but for Pulls, whose answers say so.
#[test]
fn f33_what_can_only_be_refused_holds_no_room() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Push, Kind::Push, Kind::Pull, Kind::Push, Kind::Pull, Kind::Push]);
    while net.send(0, 0) {}
    (1..3).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.nics[1].requests_held().packets, 2);
    let Net { ends, nics, .. } = &mut net;
    ends[1][0].transactions.refuse_all(&mut nics[1], NackCode::NonRecoverable { ulp: 7 });
    assert_eq!(nics[1].requests_held(), Amount::NONE, "what was kept");
    (3..5).for_each(|nth| net.deliver_rsn(1, nth));
    let target = &net.ends[1][0];
    assert_eq!((net.nics[1].requests_held(), target.transactions.kept().count()), (Amount::NONE, 0), "what came since");
    assert_eq!(target.ulp.offers, 0, "before its turn");
    assert!(net.settle());
    let refused = CompletionCode::TargetNonRecoverable;
    let pulled = CompletionCode::Ack;
    assert_eq!(codes(&net), [refused, refused, pulled, refused, pulled, refused]);
    assert_eq!((net.ends[1][0].ulp.requests.len(), net.is_idle()), (2, true));
}

#[test]
fn f33_a_connection_that_dies_gives_everything_back() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Pull, Kind::Push, Kind::Push, Kind::Push]);
    while net.send(0, 0) {}
    // The target answers the Pull, and keeps the last Push for its turn.
    net.deliver_rsn(1, 0);
    net.deliver_rsn(1, 3);
    assert!(net.work(1, 0) && net.send(1, 0));
    assert!((0..2).all(|nic| !net.nics[nic].is_idle()));
    (0..2).for_each(|nic| net.die(nic, 0));
    assert!((0..2).all(|nic| net.nics[nic].is_idle()));
}

#[test]
fn f34_out_of_resources_the_upper_layer_is_paused_and_the_network_refused() {
    let ResourceConfig { mut capacity, reserve, .. } = WORLD.resources;
    // And what is left for messages that have begun: here none has.
    capacity[0] = Amount { packets: 8 + reserve.tx.packets, buffers: 512 };
    capacity[3] = Amount { packets: 2, buffers: 64 };
    let zones = Zones { green: Amount { packets: 1, buffers: 32 }, head_of_line_only: true };
    let resources = ResourceConfig { capacity, zones, ..WORLD.resources };
    let mut net = Net::new(World { resources, ..WORLD }, 1);
    submit(&mut net, &[Kind::Push; 8]);
    assert_eq!(net.submit(0, 0, Kind::Push, 1), Err(SubmitError::Paused));
    while net.send(0, 0) {}
    (1..8).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.ends[1][0].transactions.stats().no_resources, 6, "one is kept, and a place for the head");
    assert!(net.settle());
    assert_eq!((tags(&net), net.submit(0, 0, Kind::Push, 1)), ((0..8).collect(), Ok(())), "exact, and Xon");
}

#[test]
fn probe6_a_pool_full_of_others_still_takes_the_head_of_the_line() {
    let mut capacity = WORLD.resources.capacity;
    capacity[3] = Amount { packets: 5, buffers: 80 };
    let zones = Zones { green: Amount { packets: 4, buffers: 64 }, head_of_line_only: true };
    let resources = ResourceConfig { capacity, zones, ..WORLD.resources };
    let mut net = Net::new(World { resources, connections: 2, ..WORLD }, 1);
    for connection in [0, 1] {
        (0..6).for_each(|_| net.submit(0, connection, Kind::Push, 1_000).expect("room"));
        while net.send(0, connection) {}
    }
    // All but the first of each connection come, and fill what is not for the head of a line.
    for nth in 1..6 {
        (0..2).for_each(|_| net.deliver_rsn(1, nth));
    }
    assert_eq!(net.nics[1].requests_held().packets, 4);
    for connection in [0, 1] {
        net.deliver_rsn(1, 0);
        assert!(!net.ends[1][connection].ulp.requests.is_empty(), "the head of connection {connection} got in");
    }
    assert!(net.settle(), "and then all others");
}

#[test]
fn probe6_a_paused_upper_layer_still_gets_its_responses() {
    let mut capacity = WORLD.resources.capacity;
    capacity[0] = Amount { packets: 8, buffers: 512 };
    let resources = ResourceConfig { capacity, ..WORLD.resources };
    let mut net = Net::new(World { resources, ..WORLD }, 1);
    submit(&mut net, &[Kind::Pull; 2]);
    for nic in [0, 1] {
        while net.submit(nic, 0, Kind::Push, 64).is_ok() {}
        while net.send(nic, 0) {}
    }
    // The Pulls arrive, and everything else is lost: both ends have all that they may send under way.
    [0, 1].into_iter().for_each(|nth| net.deliver_rsn(1, nth));
    net.lose_all();
    while net.work(1, 0) || net.send(1, 0) {}
    for nic in [0, 1] {
        assert_eq!(net.submit(nic, 0, Kind::Push, 64), Err(SubmitError::Paused), "NIC {nic}");
    }
    while net.deliver() {}
    assert_eq!((tags(&net), codes(&net)), (vec![0, 1], vec![CompletionCode::Ack; 2]));
    assert!(net.settle());
}

#[test]
fn f35_a_slow_connection_is_stopped_before_the_pool_is_empty() {
    let transactions = TransactionConfig { isolation: Isolation::Dynamic, ..WORLD.transactions };
    let mut capacity = WORLD.resources.capacity;
    capacity[0] = Amount { packets: 64, buffers: 4_096 };
    let resources = ResourceConfig { capacity, ..WORLD.resources };
    let mut net = Net::new(World { transactions, resources, connections: 2, ..WORLD }, 1);
    let mut taken = 0;
    while net.submit(0, 0, Kind::Push, 64).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 32, "as much as is left");
    assert_eq!(net.submit(0, 1, Kind::Push, 64), Ok(()), "another connection goes on");
}

#[test]
fn f41_types_take_turns_and_each_is_in_order() {
    let mut net = Net::new(UNORDERED, 1);
    for nic in [0, 1] {
        (0..4).for_each(|_| net.submit(nic, 0, Kind::Pull, 100).unwrap());
    }
    while net.send(0, 0) || net.send(1, 0) {}
    while net.deliver() {}
    (0..4).for_each(|_| assert!(net.work(0, 0)));
    (0..4).for_each(|_| net.submit(0, 0, Kind::Push, 100).unwrap());
    (0..4).for_each(|_| net.submit(0, 0, Kind::Pull, 100).unwrap());
    let before = net.sent.len();
    while net.send(0, 0) {}
    let order: Vec<PacketType> = net.sent[before..].iter().map(|(_, packet)| packet.body.packet_type()).collect();
    let count = |kind| order.iter().filter(|found| **found == kind).count();
    assert_eq!([PacketType::PullData, PacketType::PushData, PacketType::PullRequest].map(count), [4; 3]);
    for three in order[..6].chunks(3) {
        assert!(three.contains(&PacketType::PullData), "no type waits for another's queue to empty: {order:?}");
    }
    let requests: Vec<PacketType> = order.iter().copied().filter(|kind| *kind != PacketType::PullData).collect();
    for four in requests.windows(4).take(3) {
        assert!(four.contains(&PacketType::PushData) && four.contains(&PacketType::PullRequest), "{order:?}");
    }
    for kind in [PacketType::PullData, PacketType::PushData, PacketType::PullRequest] {
        let of_kind = net.sent[before..].iter().filter(|(_, packet)| packet.body.packet_type() == kind);
        let numbers: Vec<_> = of_kind.map(|(_, packet)| packet.body.rsn().expect("it has one").value()).collect();
        assert!(numbers.iter().is_sorted_by_key(|rsn| rsn.wrapping_sub(numbers[0])), "{kind:?} in order: {numbers:?}");
    }
}

/// On an ordered connection requests are one queue, in their order, and answers take turns with it.
#[test]
fn f41_on_an_ordered_connection_answers_and_requests_take_turns() {
    let mut net = Net::new(WORLD, 1);
    (0..4).for_each(|_| net.submit(1, 0, Kind::Pull, 100).unwrap());
    while net.send(1, 0) {}
    while net.deliver() {}
    (0..4).for_each(|_| assert!(net.work(0, 0)));
    submit(&mut net, &[Kind::Push, Kind::Pull, Kind::Pull, Kind::Push, Kind::Pull, Kind::Push, Kind::Push, Kind::Pull]);
    let before = net.sent.len();
    while net.send(0, 0) {}
    let sent: Vec<_> = net.sent[before..].iter().map(|(_, packet)| packet.body).collect();
    let is_answer = |body: &Body| body.packet_type() == PacketType::PullData;
    for two in sent[..8].chunks(2) {
        assert_eq!(two.iter().filter(|body| is_answer(body)).count(), 1, "{sent:?}");
    }
    for (answers, count) in [(true, 4), (false, 8)] {
        let of_kind = sent.iter().filter(|body| is_answer(body) == answers);
        let numbers: Vec<_> = of_kind.map(|body| body.rsn().expect("it has one")).collect();
        assert_eq!(numbers, (0..count).map(rsn).collect::<Vec<_>>());
    }
}

#[test]
fn a_transaction_that_takes_too_long_ends_in_error_and_its_number_is_not_missed() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Push, Kind::Push]);
    net.send(0, 0);
    net.lose_all();
    net.pass_time(Duration::from_ms(100));
    net.send(0, 0);
    net.run();
    assert!(codes(&net).is_empty(), "not before the other side knows");
    net.repeat(0, 0, 0);
    net.run();
    assert_eq!(codes(&net), [CompletionCode::LocalTimeout, CompletionCode::Ack]);
    assert_eq!(net.ends[1][0].ulp.requests, [rsn(1)]);
}

#[test]
fn a_packet_sent_too_often_becomes_a_resync_and_then_the_connection_is_dead() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Push, Kind::Pull]);
    while net.send(0, 0) {}
    net.lose_all();
    assert_eq!(net.exhaust(0, 0), [Exhausted::Resync; 2]);
    let code = ResyncCode::RetransmissionExhausted;
    (0..2).for_each(|nth| net.repeat(0, 0, nth));
    let resyncs = net.sent.iter().filter(
        |(_, packet)| matches!(packet.body, rnic_wire::falcon::Body::Resync { code: found, .. } if found == code),
    );
    assert_eq!(resyncs.count(), 2);
    assert_eq!(net.exhaust(0, 0), [Exhausted::Dead; 2]);
    net.die(0, 0);
    assert_eq!(codes(&net), [CompletionCode::LocalTimeout; 2]);
    assert!(net.nics[0].is_idle(), "all that was held is free");
    assert_eq!(net.submit(0, 0, Kind::Push, 1), Err(SubmitError::Dead));
}

/// Whoever asked hears that it is the other side that gave up, and why.
#[test]
fn an_answer_sent_too_often_ends_the_pull_with_the_reason() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Pull]);
    net.send(0, 0);
    assert!(net.deliver(), "the request comes");
    assert!(net.deliver(), "and its acknowledgement");
    while !net.send(1, 0) {
        assert!(net.work(1, 0), "there is something to answer");
    }
    net.lose_all();
    assert_eq!(net.exhaust(1, 0), [Exhausted::Resync]);
    assert!(codes(&net).is_empty());
    net.repeat(1, 0, 0);
    net.run();
    let [ended] = net.ends[0][0].ulp.completions[..] else { panic!("one Pull ends once") };
    let why = ResyncCode::RetransmissionExhausted.code();
    assert_eq!((ended.code, ended.ulp_code), (CompletionCode::RemoteError, why));
}

#[test]
fn a_dead_connection_ends_everything_in_order() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, &[Kind::Push, Kind::Pull, Kind::Push]);
    net.send(0, 0);
    net.die(0, 0);
    assert_eq!((tags(&net), codes(&net)), (vec![0, 1, 2], vec![CompletionCode::DeadConnection; 3]));
    assert!(net.nics[0].is_idle());
}

/// What F-4 is against: with one window for both, requests that wait hold back what the peer asks for.
#[test]
fn f4_in_one_sequence_space_requests_that_wait_hold_back_responses() {
    for (shared_space, complete) in [(false, 3), (true, 0)] {
        let mut net = Net::new(World { window: 4, shared_space, ..UNORDERED }, 1);
        submit(&mut net, &[Kind::Pull; 8]);
        while net.send(0, 0) {}
        net.lose_all();
        (0..3).for_each(|_| net.submit(1, 0, Kind::Pull, 1_000).expect("room"));
        while net.send(1, 0) {}
        while net.deliver() {}
        while net.work(0, 0) || net.send(0, 0) || net.deliver() {}
        assert_eq!(net.ends[1][0].ulp.completions.len(), complete, "one space: {shared_space}");
    }
}

/// Where room is short only heads of lines are let in. Without order nothing waits for anything, so all are that.
#[test]
fn f32_every_request_is_at_the_head_of_its_line_without_order() {
    for (world, refused, requests) in [(WORLD, 1, vec![]), (UNORDERED, 0, vec![rsn(2)])] {
        let mut net = Net::new(world, 1);
        net.nics[1].set_backlog(world.resources.zones.green.buffers);
        assert_eq!(net.nics[1].zone(), Zone::Red);
        submit(&mut net, &[Kind::Push; 3]);
        while net.send(0, 0) {}
        net.deliver_rsn(1, 2);
        assert_eq!(net.ends[1][0].transactions.stats().no_resources, refused);
        assert_eq!(net.ends[1][0].ulp.requests, requests);
        net.deliver_rsn(1, 0);
        assert!(net.ends[1][0].ulp.requests.contains(&rsn(0)), "there is room, for the head of the line");
        net.nics[1].set_backlog(0);
        assert!(net.settle());
    }
}
