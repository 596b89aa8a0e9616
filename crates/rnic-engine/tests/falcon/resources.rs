//! The resources that the queue pairs of a NIC share have one size: a queue pair that requests another size is
//! refused, and the request is not silently ignored.

use std::sync::Arc;

use rnic_base::Duration;
use rnic_engine::*;
use rnic_wire::Qpn;
use rnic_wire::falcon::FlowLabel;

use crate::common::{BASE, DELIVERED, INBOX, LOST, MTU, Pair, Sent, Setup};

fn attributes(pair: &Pair, options: &[(&str, &str)]) -> QpAttributes {
    let side = &pair.ends[0];
    QpAttributes {
        pd: side.pd,
        send_cq: side.cq,
        recv_cq: side.cq,
        srq: side.srq,
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: true,
        service: Service::ReliableConnection,
        transport: Setup::new(options).transport,
        number: None,
        nvme: None,
    }
}

/// Creates a queue pair with `options` on a NIC that already has one with `first`.
fn beside(first: &[(&str, &str)], options: &[(&str, &str)]) -> Result<(), ResourceError> {
    let mut pair = Pair::new(&Setup::new(first), |_| DELIVERED);
    let attributes = attributes(&pair, options);
    pair.ends[0].engine.create_qp(&attributes).map(|_| ())
}

#[test]
fn resources_that_differ_from_those_of_the_nic_are_refused_with_a_one_line_error() {
    for (first, has) in [(&[("resources", "50")][..], 50), (&[], 100)] {
        let error = beside(first, &[("resources", "60")]).expect_err("the NIC has other resources");
        assert_eq!(error, ResourceError::FalconResources { requested: 60, has });
        let text = error.to_string();
        let says = [format!("resources={has},"), "resources=60 ".to_owned(), "one value for all".to_owned()];
        assert!(says.iter().all(|says| text.contains(says)) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn the_same_resources_or_unspecified_ones_are_accepted() {
    for first in [&[("resources", "50")][..], &[("resources", "50"), ("flows", "2")]] {
        assert_eq!(beside(first, &[("resources", "50"), ("ordering", "weak")]), Ok(()));
        assert_eq!(beside(first, &[("ordering", "weak")]), Ok(()), "unspecified resources are refused");
    }
    assert_eq!(beside(&[], &[("resources", "100")]), Ok(()), "the default resources are refused");
}

/// The engine's owner starts no threads here, as in a simulation.
#[test]
fn an_adaptive_engine_on_a_thread_needs_a_driver_that_starts_threads() {
    let error = beside(&[], &[("fae_place", "thread")]).expect_err("no thread is configured");
    assert_eq!(error, ResourceError::NoAdaptiveThread);
    let text = error.to_string();
    assert!(text.contains("fae_place=thread") && text.lines().count() == 1, "{text}");
}

#[test]
fn queue_pairs_without_connections_do_not_affect_resources() {
    let mut pair = Pair::new(&Setup::new(&[("resources", "50")]), |_| DELIVERED);
    let service = Service::UnreliableDatagram;
    let attributes = QpAttributes { service, ..attributes(&pair, &[("resources", "60")]) };
    assert!(pair.ends[0].engine.create_qp(&attributes).is_ok());
}

/// Checks that neither a queue pair that is refused nor one that could not be created leaves any state behind.
#[test]
fn a_refused_queue_pair_leaves_no_state_behind() {
    let setup = Setup { srq: Some(8), ..Setup::new(&[("resources", "50")]) };
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let refused = attributes(&pair, &[("resources", "60")]);
    let side = &mut pair.ends[0];
    assert!(matches!(side.engine.create_qp(&refused), Err(ResourceError::FalconResources { .. })));
    side.engine.destroy_qp(side.qpn).expect("it exists");
    assert_eq!(side.engine.objects_mut().destroy_srq(side.srq.expect("it has an SRQ")), Ok(()), "it is still in use");

    let mut engine = Engine::new(EngineConfig::default());
    let (pd, cq) = (
        engine.objects_mut().create_pd().expect("a protection domain"),
        engine.objects_mut().create_cq(16).expect("a legal size"),
    );
    let other = |resources: &str| QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        transport: Setup::new(&[("resources", resources)]).transport,
        ..refused.clone()
    };
    let irn = Transport::new(rnic_transports::profile("irn").expect("it is registered")).expect("valid");
    let irn = QpAttributes { transport: Arc::new(irn), ..other("50") };
    let number = Some(engine.create_qp(&irn).expect("legal attributes"));
    let taken = engine.create_qp(&QpAttributes { number, ..other("50") });
    assert!(matches!(taken, Err(ResourceError::NumberInUse(_))), "{taken:?}");
    assert!(engine.create_qp(&other("60")).is_ok(), "the NIC's first Falcon queue pair is refused");
}

/// Checks that a queue pair that is created after all others are destroyed determines the size of the resources
/// again.
#[test]
fn resources_are_determined_by_the_existing_queue_pairs() {
    let mut pair = Pair::new(&Setup::new(&[("resources", "50")]), |_| DELIVERED);
    let others = ["60", "50", "70"].map(|resources| attributes(&pair, &[("resources", resources)]));
    let (engine, first) = (&mut pair.ends[0].engine, pair.ends[0].qpn);
    let beside = engine.create_qp(&others[1]).expect("the same resources");
    engine.destroy_qp(first).expect("it exists");
    let has = |engine: &mut Engine, other: &QpAttributes| match engine.create_qp(other) {
        Err(ResourceError::FalconResources { has, .. }) => has,
        other => panic!("{other:?}"),
    };
    assert_eq!(has(engine, &others[0]), 50, "the resources have changed");
    engine.destroy_qp(beside).expect("it exists");
    engine.create_qp(&others[0]).expect("no other queue pair exists");
    assert_eq!(has(engine, &others[2]), 60);
    assert!(engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// Connections are created and destroyed beside one that stays, each with its own transport. The state that the NIC
/// holds for their adaptive engines must not grow with the number of connections.
#[test]
fn adaptive_engines_are_freed_with_their_last_connection() {
    let mut pair = Pair::new(&Setup::new(&[]), |_| DELIVERED);
    pair.keeps_log = false;
    let remote = pair.remote(0, INBOX);
    let mut kept = Vec::new();
    for nth in 0..200 {
        let setup = Setup::new(&[]);
        let engines = std::sync::Arc::downgrade(&setup.transport);
        let numbers = pair.connect_another(&setup);
        pair.ends[0].post_on(numbers[0], nth, SendOp::Write { remote, immediate: None }, BASE, 100);
        pair.run_for(rnic_base::Duration::from_us(100));
        assert_eq!(pair.ends[0].take(), [(nth, WcStatus::Success)]);
        for (end, number) in pair.ends.iter_mut().zip(numbers) {
            end.engine.destroy_qp(number).expect("it exists");
            end.others.clear();
        }
        drop(setup);
        // The adaptive engine is held until the next transport replaces it.
        assert!(engines.strong_count() <= 2, "more than one engine at each end");
        kept.push(engines);
    }
    let alive = kept.iter().filter(|engines| engines.strong_count() > 0).count();
    assert!(alive <= 1, "{alive} of 200 transports are kept");
}

/// Packets that find no resources are each answered with a NACK, so the sender knows that the peer is alive. It goes
/// on as long as the peer's host takes, which is longer than it would wait for a silent peer.
#[test]
fn f34_a_peer_without_resources_is_not_declared_gone() {
    for ordering in ["ordered", "weak", "unordered"] {
        let mut pair = Pair::new(&Setup::new(&[("ordering", ordering)]), |_| DELIVERED);
        let remote = pair.remote(0, INBOX);
        pair.ends[0].post(1, SendOp::Write { remote, immediate: None }, BASE, 10);
        pair.run_for(rnic_base::Duration::from_ms(1));
        pair.ends[1].engine.set_falcon_backlog(1 << 40);
        pair.ends[0].post(2, SendOp::Write { remote, immediate: None }, BASE, 20 * MTU);
        pair.run_for(rnic_base::Duration::from_ms(100));
        assert_eq!((pair.ends[0].take(), pair.ends[0].state()), (vec![(1, WcStatus::Success)], QpState::ReadyToSend));
        pair.ends[1].engine.set_falcon_backlog(0);
        pair.run_for(rnic_base::Duration::from_ms(10));
        assert_eq!(pair.ends[0].take(), [(2, WcStatus::Success)], "{ordering}");
        assert_eq!(pair.ends[1].bytes(INBOX, 20 * MTU), pair.ends[0].bytes(BASE, 20 * MTU));
        // A silent peer, in contrast, is declared gone.
        pair.set_fate(|_| LOST);
        pair.ends[0].post(3, SendOp::Write { remote, immediate: None }, BASE, 10);
        pair.run_for(rnic_base::Duration::from_ms(100));
        assert_eq!(pair.ends[0].take(), [(3, WcStatus::RetryExceeded)], "{ordering}");
    }
}

/// F-32: Sends hold all contexts but one, because their receiver is not ready, and the receive that they wait for is
/// assigned to a message of another connection. The rest of that message is sent with the remaining context.
#[test]
fn f32_the_connection_that_holds_the_receive_others_wait_for_can_continue() {
    let setup = Setup { srq: Some(128), ..Setup::new(&[("resources", "1"), ("isolation", "none")]) };
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let [other, _] = pair.connect_another(&setup);
    let (first, first_far) = (pair.ends[0].qpn, pair.ends[1].qpn);
    let send = SendOp::Send { immediate: None };
    let post_others = |pair: &mut Pair, ids: std::ops::Range<u64>| {
        ids.for_each(|id| pair.ends[0].post_on(other, id, send, BASE, 64));
    };
    // 55 of the 57 contexts.
    post_others(&mut pair, 100..155);
    pair.run_for(Duration::from_us(30));

    // The acknowledgement that the beginning of the message has arrived is lost, until other requests want the
    // contexts that it held.
    pair.set_fate(move |sent| if sent.from == 1 && sent.packet.cid.get() == first.get() { LOST } else { DELIVERED });
    pair.ends[1].post_recv(1, INBOX, 20 * MTU);
    pair.ends[0].post(1, send, BASE, 20 * MTU);
    pair.run_for(Duration::from_us(30));
    let begun = pair.log.iter().filter(|sent| sent.packet.cid.get() == first_far.get()).count();
    assert!((1..=2).contains(&begun), "{begun} packets");
    let is_answer = |sent: &&Sent| sent.from == 1 && sent.packet.cid.get() == first.get();
    let answer = pair.log.iter().rfind(is_answer).expect("the response has arrived").packet;
    pair.set_fate(|_| DELIVERED);
    post_others(&mut pair, 155..160);
    pair.deliver(0, &answer, FlowLabel::new(0), &[]);

    pair.run_for(Duration::from_ms(20));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)], "other requests complete without a receive");
    (0..60).for_each(|id| pair.ends[1].post_recv(id, INBOX, 64));
    pair.run_for(Duration::from_ms(200));
    assert_eq!(pair.ends[0].take().len(), 60);
    assert!(pair.ends[0].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// Two connections have such receives, and hold no other resources; the remaining context is enough for one of them.
/// The other one must get it as soon as the first has ended, not only when a timer expires.
#[test]
fn f32_connections_that_hold_receives_get_the_reserve_one_after_another() {
    let options = [("resources", "1"), ("isolation", "none"), ("outstanding", "4")];
    // Each message may have four packets outstanding at a time; the others may have many.
    let [slow, fast] = [3, 2].map(|count| Setup { srq: Some(128), ..Setup::new(&options[..count]) });
    let mut pair = Pair::new(&slow, |_| DELIVERED);
    let (second, others) = (pair.connect_another(&slow), pair.connect_another(&fast)[0]);
    let first = [pair.ends[0].qpn, pair.ends[1].qpn];
    let send = SendOp::Send { immediate: None };
    let post_others = |pair: &mut Pair, ids: std::ops::Range<u64>| {
        ids.for_each(|id| pair.ends[0].post_on(others, id, send, BASE, 64));
    };
    // 48 of the 57 contexts: the beginnings of two messages take four each, and one is left.
    post_others(&mut pair, 100..148);
    pair.run_for(Duration::from_us(30));

    // The acknowledgements that these have arrived are lost, until other requests want the contexts that they held.
    let begun = [first, second];
    let is_for = |sent: &Sent, [near, _]: [Qpn; 2]| sent.from == 1 && sent.packet.cid.get() == near.get();
    pair.set_fate(move |sent| if begun.iter().any(|pair| is_for(sent, *pair)) { LOST } else { DELIVERED });
    (1..3).for_each(|id| pair.ends[1].post_recv(id, INBOX, 20 * MTU));
    for (id, [near, _]) in (1..).zip(begun) {
        pair.ends[0].post_on(near, id, send, BASE, 20 * MTU);
    }
    pair.run_for(Duration::from_us(30));
    let answer_of = |pair: &Pair, ends| pair.log.iter().rfind(|sent| is_for(sent, ends)).map(|sent| sent.packet);
    let answers = begun.map(|ends| answer_of(&pair, ends).expect("the response has arrived"));
    pair.set_fate(|_| DELIVERED);
    post_others(&mut pair, 148..170);
    for answer in &answers {
        pair.deliver(0, answer, FlowLabel::new(0), &[]);
    }

    pair.run_for(Duration::from_us(800));
    let mut ended = pair.ends[0].take();
    ended.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(ended, [(1, WcStatus::Success), (2, WcStatus::Success)], "other requests complete without receives");
    (0..70).for_each(|id| pair.ends[1].post_recv(id, INBOX, 64));
    pair.run_for(Duration::from_ms(200));
    assert_eq!(pair.ends[0].take().len(), 70);
    assert!(pair.ends[0].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// F-34: a connection that holds its full share must not block those that wait behind it: resources that become free
/// go to them immediately, not only after another event.
#[test]
fn f34_a_connection_at_its_share_does_not_block_those_that_wait_for_resources() {
    let options = [("resources", "1"), ("rto", "10ms"), ("rto_min", "10ms"), ("isolation", "none")];
    let own = [&options[..3], &[("isolation", "static"), ("isolation_packets", "8")]].concat();
    let mut pair = Pair::new(&Setup::new(&own), |_| DELIVERED);
    let [holder, holder_far] = pair.connect_another(&Setup::new(&options));
    let [last, last_far] = pair.connect_another(&Setup::new(&options));
    let write = SendOp::Write { remote: pair.remote(0, INBOX), immediate: None };

    // Of the 57 contexts the first connection may have only eight and wants more; the second connection takes the
    // rest.
    pair.set_fate(
        move |sent| if sent.from == 1 || sent.packet.cid.get() != holder_far.get() { LOST } else { DELIVERED },
    );
    pair.ends[0].post(1, write, BASE, 100 * MTU);
    pair.run_for(Duration::from_us(30));
    (100..148).for_each(|id| pair.ends[0].post_on(holder, id, write, BASE, 64));
    pair.run_for(Duration::from_us(60));
    let of = |pair: &Pair, far: Qpn| pair.log.iter().filter(|sent| sent.packet.cid.get() == far.get()).count();
    assert!(of(&pair, holder_far) > 8, "fewer packets than its window permits");
    pair.ends[0].post_on(last, 2, write, BASE, 64);
    pair.run_for(Duration::from_us(30));
    assert_eq!(of(&pair, last_far), 0, "a packet is sent without a free context");

    let is_answer = |sent: &&Sent| sent.from == 1 && sent.packet.cid.get() == holder.get();
    let answer = pair.log.iter().rfind(is_answer).expect("the responses have arrived").packet;
    pair.deliver(0, &answer, FlowLabel::new(0), &[]);
    pair.run_for(Duration::from_us(1));
    assert_eq!(of(&pair, last_far), 1, "the freed context is not used");
}
