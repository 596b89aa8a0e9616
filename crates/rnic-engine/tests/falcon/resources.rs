//! What the queue pairs of a NIC share has one size: who asks for another is refused, not ignored.

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

/// Makes a queue pair with `options` beside one with `first`.
fn beside(first: &[(&str, &str)], options: &[(&str, &str)]) -> Result<(), ResourceError> {
    let mut pair = Pair::new(&Setup::new(first), |_| DELIVERED);
    let attributes = attributes(&pair, options);
    pair.ends[0].engine.create_qp(&attributes).map(|_| ())
}

#[test]
fn other_resources_than_those_of_the_nic_are_refused_in_one_line() {
    for (first, has) in [(&[("resources", "50")][..], 50), (&[], 100)] {
        let error = beside(first, &[("resources", "60")]).expect_err("they are not what the NIC has");
        assert_eq!(error, ResourceError::FalconResources { asked: 60, has });
        let text = error.to_string();
        let says = [format!("resources = {has} "), "resources = 60,".to_owned(), "the same".to_owned()];
        assert!(says.iter().all(|says| text.contains(says)) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn the_same_resources_or_none_are_what_the_nic_has() {
    for first in [&[("resources", "50")][..], &[("resources", "50"), ("flows", "2")]] {
        assert_eq!(beside(first, &[("resources", "50"), ("ordering", "weak")]), Ok(()));
        assert_eq!(beside(first, &[("ordering", "weak")]), Ok(()), "nobody chose any");
    }
    assert_eq!(beside(&[], &[("resources", "100")]), Ok(()), "as they are by default");
}

/// Nobody starts threads here, as nobody does in a simulation.
#[test]
fn an_adaptive_engine_on_a_thread_needs_somebody_who_starts_it() {
    let error = beside(&[], &[("fae_place", "thread")]).expect_err("there is no thread");
    assert_eq!(error, ResourceError::NoAdaptiveThread);
    let text = error.to_string();
    assert!(text.contains("fae_place = thread") && text.lines().count() == 1, "{text}");
}

#[test]
fn queue_pairs_without_connections_have_no_part_in_it() {
    let mut pair = Pair::new(&Setup::new(&[("resources", "50")]), |_| DELIVERED);
    let service = Service::UnreliableDatagram;
    let attributes = QpAttributes { service, ..attributes(&pair, &[("resources", "60")]) };
    assert!(pair.ends[0].engine.create_qp(&attributes).is_ok());
}

/// Neither a queue pair that is refused nor one that could not be made leaves anything.
#[test]
fn what_is_refused_leaves_nothing() {
    let setup = Setup { srq: Some(8), ..Setup::new(&[("resources", "50")]) };
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let refused = attributes(&pair, &[("resources", "60")]);
    let side = &mut pair.ends[0];
    assert!(matches!(side.engine.create_qp(&refused), Err(ResourceError::FalconResources { .. })));
    side.engine.destroy_qp(side.qpn).expect("the one that there is");
    assert_eq!(side.engine.objects_mut().destroy_srq(side.srq.expect("one was made")), Ok(()), "nobody else uses it");

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
    let irn = Transport::new(rnic_transports::profile("irn").expect("a transport")).expect("a sound one");
    let irn = QpAttributes { transport: Arc::new(irn), ..other("50") };
    let number = Some(engine.create_qp(&irn).expect("legal attributes"));
    let taken = engine.create_qp(&QpAttributes { number, ..other("50") });
    assert!(matches!(taken, Err(ResourceError::NumberTaken(_))), "{taken:?}");
    assert!(engine.create_qp(&other("60")).is_ok(), "it is the first of the NIC");
}

/// Who comes when the last has gone is the first again.
#[test]
fn resources_are_those_of_the_queue_pairs_that_live() {
    let mut pair = Pair::new(&Setup::new(&[("resources", "50")]), |_| DELIVERED);
    let others = ["60", "50", "70"].map(|resources| attributes(&pair, &[("resources", resources)]));
    let (engine, first) = (&mut pair.ends[0].engine, pair.ends[0].qpn);
    let beside = engine.create_qp(&others[1]).expect("the same resources");
    engine.destroy_qp(first).expect("it exists");
    let has = |engine: &mut Engine, other: &QpAttributes| match engine.create_qp(other) {
        Err(ResourceError::FalconResources { has, .. }) => has,
        other => panic!("{other:?}"),
    };
    assert_eq!(has(engine, &others[0]), 50, "one still lives");
    engine.destroy_qp(beside).expect("it exists");
    engine.create_qp(&others[0]).expect("it is the first");
    assert_eq!(has(engine, &others[2]), 60);
    assert!(engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// Connections come and go beside one that stays, each with a transport of its own. What the NIC keeps for their
/// adaptive engines is what one needs, not what all have needed.
#[test]
fn adaptive_engines_end_with_their_last_connection() {
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
        // The engine waits for the next transport to take its place.
        assert!(engines.strong_count() <= 2, "one at each end");
        kept.push(engines);
    }
    let alive = kept.iter().filter(|engines| engines.strong_count() > 0).count();
    assert!(alive <= 1, "{alive} of 200 transports are kept");
}

/// Packets that find no room are answered each time, so their sender knows that the peer lives: it goes on for as long
/// as the peer's host takes, longer than it would wait for one that is silent.
#[test]
fn f34_a_peer_without_room_is_not_given_up() {
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
        // Silence is another matter.
        pair.set_fate(|_| LOST);
        pair.ends[0].post(3, SendOp::Write { remote, immediate: None }, BASE, 10);
        pair.run_for(rnic_base::Duration::from_ms(100));
        assert_eq!(pair.ends[0].take(), [(3, WcStatus::RetryExceeded)], "{ordering}");
    }
}

/// F-32: Sends hold all contexts but one, for their receiver is not ready: the receive that they wait for is lent to a
/// message of another connection. The rest of that message leaves with what is left for it.
#[test]
fn f32_who_has_the_receive_that_all_others_wait_for_can_go_on() {
    let setup = Setup { srq: Some(128), ..Setup::new(&[("resources", "1"), ("isolation", "none")]) };
    let mut pair = Pair::new(&setup, |_| DELIVERED);
    let [other, _] = pair.connect_another(&setup);
    let (first, first_far) = (pair.ends[0].qpn, pair.ends[1].qpn);
    let send = SendOp::Send { immediate: None };
    let post_others = |pair: &mut Pair, ids: std::ops::Range<u64>| {
        ids.for_each(|id| pair.ends[0].post_on(other, id, send, BASE, 64));
    };
    // Of 57 contexts.
    post_others(&mut pair, 100..155);
    pair.run_for(Duration::from_us(30));

    // Nobody hears that the beginning of the message has arrived, until others want what it held.
    pair.set_fate(move |sent| if sent.from == 1 && sent.packet.cid.get() == first.get() { LOST } else { DELIVERED });
    pair.ends[1].post_recv(1, INBOX, 20 * MTU);
    pair.ends[0].post(1, send, BASE, 20 * MTU);
    pair.run_for(Duration::from_us(30));
    let begun = pair.log.iter().filter(|sent| sent.packet.cid.get() == first_far.get()).count();
    assert!((1..=2).contains(&begun), "{begun} packets");
    let is_answer = |sent: &&Sent| sent.from == 1 && sent.packet.cid.get() == first.get();
    let answer = pair.log.iter().rfind(is_answer).expect("it has arrived").packet;
    pair.set_fate(|_| DELIVERED);
    post_others(&mut pair, 155..160);
    pair.deliver(0, &answer, FlowLabel::new(0), &[]);

    pair.run_for(Duration::from_ms(20));
    assert_eq!(pair.ends[0].take(), [(1, WcStatus::Success)], "the others wait for a receive");
    (0..60).for_each(|id| pair.ends[1].post_recv(id, INBOX, 64));
    pair.run_for(Duration::from_ms(200));
    assert_eq!(pair.ends[0].take().len(), 60);
    assert!(pair.ends[0].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// Two have such receives, and nothing else, and what is left is for one: it is the other's as soon as the one has
/// ended, not when some timer comes by.
#[test]
fn f32_those_who_have_receives_wait_for_the_reserve_and_get_it() {
    let options = [("resources", "1"), ("isolation", "none"), ("outstanding", "4")];
    // Four packets of a message at a time; of others, many.
    let [slow, fast] = [3, 2].map(|count| Setup { srq: Some(128), ..Setup::new(&options[..count]) });
    let mut pair = Pair::new(&slow, |_| DELIVERED);
    let (second, others) = (pair.connect_another(&slow), pair.connect_another(&fast)[0]);
    let first = [pair.ends[0].qpn, pair.ends[1].qpn];
    let send = SendOp::Send { immediate: None };
    let post_others = |pair: &mut Pair, ids: std::ops::Range<u64>| {
        ids.for_each(|id| pair.ends[0].post_on(others, id, send, BASE, 64));
    };
    // Of 57 contexts: four each are for the beginnings of two messages, and one is left.
    post_others(&mut pair, 100..148);
    pair.run_for(Duration::from_us(30));

    // Nobody hears that these have arrived, until others want what they held.
    let begun = [first, second];
    let is_for = |sent: &Sent, [near, _]: [Qpn; 2]| sent.from == 1 && sent.packet.cid.get() == near.get();
    pair.set_fate(move |sent| if begun.iter().any(|pair| is_for(sent, *pair)) { LOST } else { DELIVERED });
    (1..3).for_each(|id| pair.ends[1].post_recv(id, INBOX, 20 * MTU));
    for (id, [near, _]) in (1..).zip(begun) {
        pair.ends[0].post_on(near, id, send, BASE, 20 * MTU);
    }
    pair.run_for(Duration::from_us(30));
    let answer_of = |pair: &Pair, ends| pair.log.iter().rfind(|sent| is_for(sent, ends)).map(|sent| sent.packet);
    let answers = begun.map(|ends| answer_of(&pair, ends).expect("it has arrived"));
    pair.set_fate(|_| DELIVERED);
    post_others(&mut pair, 148..170);
    for answer in &answers {
        pair.deliver(0, answer, FlowLabel::new(0), &[]);
    }

    pair.run_for(Duration::from_us(800));
    let mut ended = pair.ends[0].take();
    ended.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(ended, [(1, WcStatus::Success), (2, WcStatus::Success)], "the others wait for receives");
    (0..70).for_each(|id| pair.ends[1].post_recv(id, INBOX, 64));
    pair.run_for(Duration::from_ms(200));
    assert_eq!(pair.ends[0].take().len(), 70);
    assert!(pair.ends[0].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// F-34: who holds as much as it may is no reason for those behind it to wait on: what comes free is theirs at once,
/// not when something else happens.
#[test]
fn f34_who_has_its_share_is_not_in_the_way_of_who_waits_for_room() {
    let options = [("resources", "1"), ("rto", "10ms"), ("rto_min", "10ms"), ("isolation", "none")];
    let own = [&options[..3], &[("isolation", "static"), ("isolation_packets", "8")]].concat();
    let mut pair = Pair::new(&Setup::new(&own), |_| DELIVERED);
    let [holder, holder_far] = pair.connect_another(&Setup::new(&options));
    let [last, last_far] = pair.connect_another(&Setup::new(&options));
    let write = SendOp::Write { remote: pair.remote(0, INBOX), immediate: None };

    // Of 57 contexts: eight are all that the first may have, who wants more; the others' end up with the second.
    pair.set_fate(
        move |sent| if sent.from == 1 || sent.packet.cid.get() != holder_far.get() { LOST } else { DELIVERED },
    );
    pair.ends[0].post(1, write, BASE, 100 * MTU);
    pair.run_for(Duration::from_us(30));
    (100..148).for_each(|id| pair.ends[0].post_on(holder, id, write, BASE, 64));
    pair.run_for(Duration::from_us(60));
    let of = |pair: &Pair, far: Qpn| pair.log.iter().filter(|sent| sent.packet.cid.get() == far.get()).count();
    assert!(of(&pair, holder_far) > 8, "as many as its window has");
    pair.ends[0].post_on(last, 2, write, BASE, 64);
    pair.run_for(Duration::from_us(30));
    assert_eq!(of(&pair, last_far), 0, "nothing is left");

    let is_answer = |sent: &&Sent| sent.from == 1 && sent.packet.cid.get() == holder.get();
    let answer = pair.log.iter().rfind(is_answer).expect("they have arrived").packet;
    pair.deliver(0, &answer, FlowLabel::new(0), &[]);
    pair.run_for(Duration::from_us(1));
    assert_eq!(of(&pair, last_far), 1, "room has come free");
}
