//! Tests of the transaction layer's mechanisms (F-1 and following) through its public interface, over a stub of the
//! delivery layer.

#[path = "transactions/stepwise.rs"]
mod stepwise;

use rnic_base::Duration;
use rnic_falcon::interface::Exhausted;
use rnic_falcon::resources::threshold::Isolation;
use rnic_falcon::resources::zone::{Zone, Zones};
use rnic_falcon::resources::{Amount, ResourceConfig};
use rnic_falcon::search::net::Scenario;
use rnic_falcon::search::ulp::{RSN_FIRST, UpperLayerBehaviour};
use rnic_falcon::transaction::{Kind, Ordering, PullResponse, SubmitError, TransactionConfig};
use rnic_wire::falcon::{Body, CompletionCode, NackCode, PacketType, ResyncCode, Rsn, Ulp, UlpProtocol};
use stepwise::Net;

const SCENARIO: Scenario = Scenario {
    resources: ResourceConfig::GBPS_200,
    transactions: TransactionConfig {
        ordering: Ordering::Ordered,
        protocol: UlpProtocol::Rdma,
        mtu: 4_096,
        outstanding: 256,
        timeout: Duration::from_ms(100),
        isolation: Isolation::None,
    },
    manners: UpperLayerBehaviour { done_at_once: 1_000, not_ready: 0, in_error: 0, pulls_held: 0 },
    pushes: 500,
    pulls_out: 0,
    message: 1,
    receives: 0,
    connections: 1,
    window: 128,
    shared_space: false,
    work_probability: 1_000,
    lost: 0,
    doubled: 0,
};

const UNORDERED: Scenario =
    Scenario { transactions: TransactionConfig { ordering: Ordering::Unordered, ..SCENARIO.transactions }, ..SCENARIO };

fn rsn(nth: u32) -> Rsn {
    RSN_FIRST.plus(nth)
}

fn submit(net: &mut Net, kinds: &[Kind]) {
    for kind in kinds {
        net.submit(0, 0, *kind, 1_000).expect("resources are available");
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
fn f2_pushes_send_data_and_pulls_return_it() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Push; 3]);
    net.run();
    assert_eq!((types(&net, 0), types(&net, 1)), (vec![PacketType::PushData; 3], vec![]));
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Pull; 3]);
    net.run();
    assert_eq!((types(&net, 0), types(&net, 1)), (vec![PacketType::PullRequest; 3], vec![PacketType::PullData; 3]));
    let pulled: Vec<u16> = net.ends[0][0].ulp.completions.iter().map(|done| done.data.unwrap()).collect();
    assert_eq!((pulled, net.is_idle()), (vec![1_000; 3], true));
}

#[test]
fn f3_a_transaction_is_one_packet_at_most_and_completes_once() {
    let mut net = Net::new(SCENARIO, 1);
    assert_eq!(net.submit(0, 0, Kind::Push, 4_097), Err(SubmitError::TooLong { length: 4_097, mtu: 4_096 }));
    assert_eq!(net.submit(0, 0, Kind::Push, 4_096), Ok(()), "its length equals the MTU");
    submit(&mut net, &[Kind::Push]);
    net.run();
    let numbers: Vec<_> =
        net.sent.iter().map(|(_, packet)| (packet.body.rsn().unwrap(), packet.body.psn().unwrap().value())).collect();
    assert_eq!(numbers, [(rsn(0), 0), (rsn(1), 1)]);
    assert_eq!(tags(&net), [0, 1]);
}

/// More requests than the window holds, none of which arrives: responses to the peer's requests are sent all the
/// same.
#[test]
fn f4_waiting_requests_do_not_block_responses() {
    for scenario in [SCENARIO, UNORDERED] {
        let mut net = Net::new(Scenario { window: 4, ..scenario }, 1);
        submit(&mut net, &[Kind::Pull; 8]);
        while net.send(0, 0) {}
        net.lose_all();
        (0..3).for_each(|_| net.submit(1, 0, Kind::Pull, 1_000).expect("resources are available"));
        while net.send(1, 0) {}
        while net.deliver() {}
        while net.work(0, 0) || net.send(0, 0) || net.deliver() {}
        assert_eq!(net.ends[1][0].ulp.completions.len(), 3);
        assert_eq!(types(&net, 0)[4..], [PacketType::PullData; 3], "the other requests still wait");
    }
}

/// Pull Requests that never arrive fill their window: Push Data after them is sent nevertheless on an unordered
/// connection, and waits on an ordered one.
#[test]
fn f4_waiting_pull_requests_block_pushes_only_on_ordered_connections() {
    for (scenario, delivered) in [(UNORDERED, 3), (SCENARIO, 0)] {
        let mut net = Net::new(Scenario { window: 4, ..scenario }, 1);
        submit(&mut net, &[Kind::Pull; 8]);
        while net.send(0, 0) {}
        net.lose_all();
        submit(&mut net, &[Kind::Push; 3]);
        while net.send(0, 0) || net.deliver() {}
        assert_eq!(net.ends[1][0].ulp.requests.len(), delivered, "{:?}", scenario.transactions.ordering);
        assert_eq!(types(&net, 0)[4..], vec![PacketType::PushData; delivered]);
        assert!(net.settle());
        assert_eq!(net.ends[0][0].ulp.completions.len(), 11);
    }
}

/// RSN order across both windows.
#[test]
fn f5_probe5_ordered_connections_deliver_and_complete_in_order_over_a_faulty_network() {
    for seed in 0..60 {
        let manners = UpperLayerBehaviour { done_at_once: 500, not_ready: 100, ..SCENARIO.manners };
        let mut net = Net::new(Scenario { lost: 100, doubled: 50, manners, ..SCENARIO }, seed);
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
        let manners = UpperLayerBehaviour { done_at_once: 500, not_ready: 100, ..SCENARIO.manners };
        let mut net = Net::new(Scenario { lost: 100, doubled: 50, manners, ..UNORDERED }, seed);
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
fn f6_probe5_early_requests_wait_if_ordered_and_are_delivered_if_unordered() {
    for (scenario, early) in [(SCENARIO, vec![]), (UNORDERED, vec![rsn(1), rsn(2)])] {
        let mut net = Net::new(scenario, 1);
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
fn f7_probe5_not_ready_requests_are_retried_without_an_error() {
    for kind in [Kind::Push, Kind::Pull] {
        let mut net = Net::new(SCENARIO, 1);
        net.ends[1][0].ulp.manners.not_ready = 1_000;
        submit(&mut net, &[kind, Kind::Push]);
        for _ in 0..5 {
            net.run();
            (0..net.outstanding(0, 0)).for_each(|nth| net.repeat(0, 0, nth));
            net.pass_time(Duration::from_us(10));
        }
        assert!(net.ends[1][0].ulp.requests.is_empty() && net.ends[0][0].ulp.completions.is_empty());
        assert!(net.ends[1][0].ulp.offers >= 5, "{kind:?}: not offered repeatedly");
        net.ends[1][0].ulp.manners.not_ready = 0;
        assert!(net.settle());
        assert_eq!(codes(&net), [CompletionCode::Ack; 2], "{kind:?}");
        assert_eq!(net.ends[1][0].ulp.requests, [rsn(0), rsn(1)], "later requests waited (probe 5)");
    }
}

/// Two connections to a target with room for four requests plus one at the head of a line; the first connection's
/// upper layer is not ready.
fn with_room_for_one_head() -> Net {
    let mut capacity = SCENARIO.resources.capacity;
    capacity[3] = Amount { packets: 5, buffers: 80 };
    let zones = Zones { green: Amount { packets: 4, buffers: 64 }, head_of_line_only: true };
    let resources = ResourceConfig { capacity, zones, ..SCENARIO.resources };
    let mut net = Net::new(Scenario { resources, connections: 2, ..SCENARIO }, 1);
    net.ends[1][0].ulp.manners.not_ready = 1_000;
    net
}

/// An upper layer that is not ready may depend on a request of another connection of the NIC: there must be room for
/// that.
#[test]
fn f7_f32_requests_behind_one_that_is_not_ready_leave_resources_for_heads_of_lines() {
    let mut net = with_room_for_one_head();
    submit(&mut net, &[Kind::Push; 8]);
    while net.send(0, 0) {}
    (0..8).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.nics[1].requests_held().packets, 4, "the others will be retransmitted");
    net.run();
    net.submit(0, 1, Kind::Push, 1_000).expect("resources are available");
    net.run();
    assert_eq!(net.ends[1][1].ulp.requests, [rsn(0)], "another connection's request is admitted");
    for nth in [6, 5, 3] {
        net.repeat(0, 0, nth);
        net.run();
    }
    assert_eq!((net.ends[1][0].ulp.offers, net.outstanding(0, 0)), (1, 8), "refused without being offered");
    net.ends[1][0].ulp.manners.not_ready = 0;
    for nth in [6, 0] {
        net.repeat(0, 0, nth);
        net.run();
    }
    assert_eq!(net.ends[1][0].ulp.requests, (0..5).map(rsn).collect::<Vec<_>>(), "stored requests are delivered too");
    assert!(net.settle());
    assert_eq!(net.ends[1][0].ulp.requests, (0..8).map(rsn).collect::<Vec<_>>());
}

/// Pulls after a Push that is not ready arrive in order and wait for it with the resources they hold; together they
/// hold no more than is allowed to requests that are not at the head of their line.
#[test]
fn f32_pulls_behind_one_that_is_not_ready_are_not_at_the_head_of_the_line() {
    let mut net = with_room_for_one_head();
    submit(&mut net, &[Kind::Push]);
    submit(&mut net, &[Kind::Pull; 8]);
    while net.send(0, 0) {}
    (0..9).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.nics[1].requests_held().packets, 4, "the others will be retransmitted");
    net.run();
    net.submit(0, 1, Kind::Push, 1_000).expect("resources are available");
    net.run();
    assert_eq!(net.ends[1][1].ulp.requests, [rsn(0)], "another connection's request is admitted");
    net.ends[1][0].ulp.manners.not_ready = 0;
    assert!(net.settle());
    assert_eq!(net.ends[1][0].ulp.requests, (0..9).map(rsn).collect::<Vec<_>>());
}

/// The acknowledgements of a Pull Request are lost while its response is pending: a Resync of the request has no
/// effect at the target.
#[test]
fn a_resync_of_a_pull_being_served_has_no_effect() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Pull]);
    net.send(0, 0);
    assert!(net.deliver(), "the request is in flight");
    net.lose_all();
    assert_eq!(net.exhaust(0, 0), [Exhausted::Resync]);
    net.repeat(0, 0, 0);
    assert!(net.deliver(), "the Resync is in flight");
    let answer = PullResponse { payload_len: 1, length: 1, ulp: Ulp::None };
    let rnic_falcon::search::net::Net { ends, nics, .. } = &mut *net;
    assert_eq!(ends[1][0].transactions.respond(&mut nics[1], rsn(0), &answer), Ok(()));
}

#[test]
fn f7_a_pull_that_is_not_ready_is_retried_at_the_target_after_its_wait() {
    let mut net = Net::new(SCENARIO, 1);
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

/// The upper layer's part of probe 3: a lost NACK is repeated, and a Resync replaces the packet.
#[test]
fn f8_probe3_a_refused_push_completes_in_error_and_the_others_succeed() {
    for scenario in [SCENARIO, UNORDERED] {
        let mut net = Net::new(scenario, 1);
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
        let so_far = if scenario.transactions.ordering == Ordering::Ordered { 4 } else { 9 };
        assert_eq!(codes(&net).len(), so_far, "the NACK was lost");
        net.repeat(0, 0, 0);
        net.deliver_rsn(1, 4);
        assert!(net.deliver(), "the NACK is in flight");
        net.lose_all();
        assert_eq!(types(&net, 0).last(), Some(&PacketType::Resync));
        submit(&mut net, &[Kind::Push]);
        net.run();
        let others = if scenario.transactions.ordering == Ordering::Ordered { 4 } else { 10 };
        assert_eq!(codes(&net), vec![CompletionCode::Ack; others], "the target has not received the Resync");
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
fn f33_resources_of_a_transaction_are_released_on_completion() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Pull, Kind::Push]);
    let usage = *net.ends[0][0].transactions.usage();
    assert_eq!(usage.tx, Amount { packets: 2, buffers: 1 + 1 }, "for sending both");
    assert_eq!(usage.rx, Amount { packets: 2, buffers: 4 }, "for the data of one and the completion of the other");
    net.run();
    assert_eq!((net.ends[0][0].transactions.usage().tx, net.is_idle()), (Amount::NONE, true));
}

#[test]
fn f33_response_resources_are_held_until_completion() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Pull]);
    while net.send(0, 0) || net.deliver() {}
    let usage = *net.ends[0][0].transactions.usage();
    assert_eq!((net.outstanding(0, 0), usage.tx), (0, Amount::NONE), "the request is acknowledged");
    assert_eq!(usage.rx, Amount { packets: 1, buffers: 4 }, "its data has not arrived");
    net.run();
    assert_eq!((net.ends[0][0].transactions.usage().rx, net.is_idle()), (Amount::NONE, true));
}

/// The initiator gives up on a request that waits for its turn at the target: a Resync replaces it.
#[test]
fn f33_a_skipped_request_releases_its_resources() {
    let mut net = Net::new(SCENARIO, 1);
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

/// An upper layer with an unrecoverable failure: requests that wait for their turn, and those that still arrive, hold
/// no resources, are refused, and are not passed to the upper layer, except for Pulls, whose responses carry the
/// error.
#[test]
fn f33_requests_that_can_only_be_refused_hold_no_resources() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Push, Kind::Push, Kind::Pull, Kind::Push, Kind::Pull, Kind::Push]);
    while net.send(0, 0) {}
    (1..3).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.nics[1].requests_held().packets, 2);
    let rnic_falcon::search::net::Net { ends, nics, .. } = &mut *net;
    ends[1][0].transactions.refuse_all(&mut nics[1], NackCode::NonRecoverable { ulp: 7 });
    assert_eq!(nics[1].requests_held(), Amount::NONE, "stored requests hold resources");
    (3..5).for_each(|nth| net.deliver_rsn(1, nth));
    let target = &net.ends[1][0];
    assert_eq!((net.nics[1].requests_held(), target.transactions.kept().count()), (Amount::NONE, 0), "later requests");
    assert_eq!(target.ulp.offers, 0, "no request is offered out of order");
    assert!(net.settle());
    let refused = CompletionCode::TargetNonRecoverable;
    let pulled = CompletionCode::Ack;
    assert_eq!(codes(&net), [refused, refused, pulled, refused, pulled, refused]);
    assert_eq!((net.ends[1][0].ulp.requests.len(), net.is_idle()), (2, true));
}

#[test]
fn f33_a_terminated_connection_releases_all_resources() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Pull, Kind::Push, Kind::Push, Kind::Push]);
    while net.send(0, 0) {}
    // The target answers the Pull, and keeps the last Push until its turn.
    net.deliver_rsn(1, 0);
    net.deliver_rsn(1, 3);
    assert!(net.work(1, 0) && net.send(1, 0));
    assert!((0..2).all(|nic| !net.nics[nic].is_idle()));
    (0..2).for_each(|nic| net.terminate(nic, 0));
    assert!((0..2).all(|nic| net.nics[nic].is_idle()));
}

#[test]
fn f34_without_resources_the_upper_layer_is_paused_and_arrivals_are_refused() {
    let ResourceConfig { mut capacity, reserve, .. } = SCENARIO.resources;
    // Plus the reserve for messages that have begun: none has begun here.
    capacity[0] = Amount { packets: 8 + reserve.tx.packets, buffers: 512 };
    capacity[3] = Amount { packets: 2, buffers: 64 };
    let zones = Zones { green: Amount { packets: 1, buffers: 32 }, head_of_line_only: true };
    let resources = ResourceConfig { capacity, zones, ..SCENARIO.resources };
    let mut net = Net::new(Scenario { resources, ..SCENARIO }, 1);
    submit(&mut net, &[Kind::Push; 8]);
    assert_eq!(net.submit(0, 0, Kind::Push, 1), Err(SubmitError::Paused));
    while net.send(0, 0) {}
    (1..8).for_each(|nth| net.deliver_rsn(1, nth));
    assert_eq!(net.ends[1][0].transactions.stats().no_resources, 6, "one is stored, and one context is for the head");
    assert!(net.settle());
    assert_eq!((tags(&net), net.submit(0, 0, Kind::Push, 1)), ((0..8).collect(), Ok(())), "complete, and Xon again");
}

#[test]
fn probe6_a_full_pool_still_admits_the_head_of_the_line() {
    let mut capacity = SCENARIO.resources.capacity;
    capacity[3] = Amount { packets: 5, buffers: 80 };
    let zones = Zones { green: Amount { packets: 4, buffers: 64 }, head_of_line_only: true };
    let resources = ResourceConfig { capacity, zones, ..SCENARIO.resources };
    let mut net = Net::new(Scenario { resources, connections: 2, ..SCENARIO }, 1);
    for connection in [0, 1] {
        (0..6).for_each(|_| net.submit(0, connection, Kind::Push, 1_000).expect("resources are available"));
        while net.send(0, connection) {}
    }
    // All packets but the first of each connection arrive, and fill the room that is not reserved for the head of a
    // line.
    for nth in 1..6 {
        (0..2).for_each(|_| net.deliver_rsn(1, nth));
    }
    assert_eq!(net.nics[1].requests_held().packets, 4);
    for connection in [0, 1] {
        net.deliver_rsn(1, 0);
        assert!(!net.ends[1][connection].ulp.requests.is_empty(), "connection {connection}: the head was refused");
    }
    assert!(net.settle(), "not all requests completed");
}

#[test]
fn probe6_a_paused_upper_layer_still_gets_its_responses() {
    let mut capacity = SCENARIO.resources.capacity;
    capacity[0] = Amount { packets: 8, buffers: 512 };
    let resources = ResourceConfig { capacity, ..SCENARIO.resources };
    let mut net = Net::new(Scenario { resources, ..SCENARIO }, 1);
    submit(&mut net, &[Kind::Pull; 2]);
    for nic in [0, 1] {
        while net.submit(nic, 0, Kind::Push, 64).is_ok() {}
        while net.send(nic, 0) {}
    }
    // The Pulls arrive, and all other packets are lost: both ends have as many in flight as they may send.
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
fn f35_a_slow_connection_is_paused_before_the_pool_is_empty() {
    let transactions = TransactionConfig { isolation: Isolation::Dynamic, ..SCENARIO.transactions };
    let mut capacity = SCENARIO.resources.capacity;
    capacity[0] = Amount { packets: 64, buffers: 4_096 };
    let resources = ResourceConfig { capacity, ..SCENARIO.resources };
    let mut net = Net::new(Scenario { transactions, resources, connections: 2, ..SCENARIO }, 1);
    let mut taken = 0;
    while net.submit(0, 0, Kind::Push, 64).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 32, "the free share");
    assert_eq!(net.submit(0, 1, Kind::Push, 64), Ok(()), "another connection is not paused");
}

#[test]
fn f41_packet_types_are_served_round_robin_and_each_in_order() {
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
        assert!(three.contains(&PacketType::PullData), "a type waits until another queue is empty: {order:?}");
    }
    let requests: Vec<PacketType> = order.iter().copied().filter(|kind| *kind != PacketType::PullData).collect();
    for four in requests.windows(4).take(3) {
        assert!(four.contains(&PacketType::PushData) && four.contains(&PacketType::PullRequest), "{order:?}");
    }
    for kind in [PacketType::PullData, PacketType::PushData, PacketType::PullRequest] {
        let of_kind = net.sent[before..].iter().filter(|(_, packet)| packet.body.packet_type() == kind);
        let numbers: Vec<_> = of_kind.map(|(_, packet)| packet.body.rsn().expect("it has an RSN").value()).collect();
        assert!(numbers.iter().is_sorted_by_key(|rsn| rsn.wrapping_sub(numbers[0])), "{kind:?}: {numbers:?}");
    }
}

/// An ordered connection has one queue of requests, sent in order; responses alternate with them.
#[test]
fn f41_on_an_ordered_connection_responses_and_requests_alternate() {
    let mut net = Net::new(SCENARIO, 1);
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
        let numbers: Vec<_> = of_kind.map(|body| body.rsn().expect("it has an RSN")).collect();
        assert_eq!(numbers, (0..count).map(rsn).collect::<Vec<_>>());
    }
}

#[test]
fn a_transaction_that_times_out_completes_in_error_and_a_resync_replaces_it() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Push, Kind::Push]);
    net.send(0, 0);
    net.lose_all();
    net.pass_time(Duration::from_ms(100));
    net.send(0, 0);
    net.run();
    assert!(codes(&net).is_empty(), "the target has not received the Resync");
    net.repeat(0, 0, 0);
    net.run();
    assert_eq!(codes(&net), [CompletionCode::LocalTimeout, CompletionCode::Ack]);
    assert_eq!(net.ends[1][0].ulp.requests, [rsn(1)]);
}

#[test]
fn an_exhausted_packet_becomes_a_resync_and_an_exhausted_resync_ends_the_connection() {
    let mut net = Net::new(SCENARIO, 1);
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
    assert_eq!(net.exhaust(0, 0), [Exhausted::Terminated; 2]);
    net.terminate(0, 0);
    assert_eq!(codes(&net), [CompletionCode::LocalTimeout; 2]);
    assert!(net.nics[0].is_idle(), "resources are still held");
    assert_eq!(net.submit(0, 0, Kind::Push, 1), Err(SubmitError::Terminated));
}

/// The initiator of the Pull is informed that the other side gave up, and of the reason.
#[test]
fn an_exhausted_response_completes_the_pull_with_the_reason() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Pull]);
    net.send(0, 0);
    assert!(net.deliver(), "the request is in flight");
    assert!(net.deliver(), "its acknowledgement is in flight");
    while !net.send(1, 0) {
        assert!(net.work(1, 0), "no request waits for a response");
    }
    net.lose_all();
    assert_eq!(net.exhaust(1, 0), [Exhausted::Resync]);
    assert!(codes(&net).is_empty());
    net.repeat(1, 0, 0);
    net.run();
    let [ended] = net.ends[0][0].ulp.completions[..] else { panic!("not exactly one completion") };
    let why = ResyncCode::RetransmissionExhausted.code();
    assert_eq!((ended.code, ended.ulp_code), (CompletionCode::RemoteError, why));
}

#[test]
fn a_terminated_connection_completes_all_transactions_in_order() {
    let mut net = Net::new(SCENARIO, 1);
    submit(&mut net, &[Kind::Push, Kind::Pull, Kind::Push]);
    net.send(0, 0);
    net.terminate(0, 0);
    assert_eq!((tags(&net), codes(&net)), (vec![0, 1, 2], vec![CompletionCode::DeadConnection; 3]));
    assert!(net.nics[0].is_idle());
}

/// The problem that F-4 avoids: with one window for both, requests that wait hold back responses to the peer.
#[test]
fn f4_in_one_sequence_space_waiting_requests_block_responses() {
    for (shared_space, complete) in [(false, 3), (true, 0)] {
        let mut net = Net::new(Scenario { window: 4, shared_space, ..UNORDERED }, 1);
        submit(&mut net, &[Kind::Pull; 8]);
        while net.send(0, 0) {}
        net.lose_all();
        (0..3).for_each(|_| net.submit(1, 0, Kind::Pull, 1_000).expect("resources are available"));
        while net.send(1, 0) {}
        while net.deliver() {}
        while net.work(0, 0) || net.send(0, 0) || net.deliver() {}
        assert_eq!(net.ends[1][0].ulp.completions.len(), complete, "one space: {shared_space}");
    }
}

/// When resources are short, only requests at the head of their line are accepted. Without ordering no request waits
/// for another, so each one is at the head.
#[test]
fn f32_without_order_every_request_is_at_the_head_of_its_line() {
    for (scenario, refused, requests) in [(SCENARIO, 1, vec![]), (UNORDERED, 0, vec![rsn(2)])] {
        let mut net = Net::new(scenario, 1);
        net.nics[1].set_backlog(scenario.resources.zones.green.buffers);
        assert_eq!(net.nics[1].zone(), Zone::Red);
        submit(&mut net, &[Kind::Push; 3]);
        while net.send(0, 0) {}
        net.deliver_rsn(1, 2);
        assert_eq!(net.ends[1][0].transactions.stats().no_resources, refused);
        assert_eq!(net.ends[1][0].ulp.requests, requests);
        net.deliver_rsn(1, 0);
        assert!(net.ends[1][0].ulp.requests.contains(&rsn(0)), "the head of the line was not admitted");
        net.nics[1].set_backlog(0);
        assert!(net.settle());
    }
}
