//! Messages between NICs (SCR, NSDI'25, section 4.3.1), as the engine passes them on: what ends with a queue pair.

#[path = "common/back_to_back.rs"]
mod back_to_back;

use back_to_back::{BackToBack, Shape};
use rnic_base::Duration;
use rnic_engine::messages::config::{ExchangeConfig, GrantScope};
use rnic_engine::messages::exchange::Exchange;
use rnic_engine::messages::stats::ExchangeStats;
use rnic_engine::*;
use rnic_wire::scr::Type;

/// Two engines that exchange messages, after the left one has sent a message of 64 packets.
fn pair() -> BackToBack<NoDma> {
    let mut pair = BackToBack::new(&Shape::new("irn", &[]), NoDma);
    let probe_interval = Some(Duration::from_us(20));
    let config = ExchangeConfig { credits: GrantScope::All, probe_interval, ..ExchangeConfig::default() };
    for side in [&mut pair.left, &mut pair.right] {
        Messages::of(&mut side.engine).enable(pair.now, config);
    }
    write(&mut pair);
    while pair.left.completion().is_none() {
        pair.round();
    }
    (0..20).for_each(|_| pair.round());
    pair
}

fn write(pair: &mut BackToBack<NoDma>) {
    let remote = pair.right.remote(0);
    pair.left.post(0, 0, SendOp::Write { remote, immediate: None }, 65_536);
}

fn stats<D>(side: &back_to_back::Side<D>) -> &ExchangeStats {
    Exchange::of(&side.engine).expect("messages are enabled").stats()
}

/// A queue pair that fails, is reset or destroyed is not probed any more, and with the last one of a peer nothing is
/// sent to that.
#[test]
fn s6_nothing_is_sent_about_a_queue_pair_that_is_gone() {
    type End = fn(&mut Engine, rnic_wire::Qpn);
    let ends: [(&str, End); 4] = [
        ("fails", |engine, qpn| engine.modify_to_error(qpn).expect("it exists")),
        ("its peer is gone", |engine, qpn| engine.on_peer_gone(qpn).expect("it exists")),
        ("is reset", |engine, qpn| engine.modify_to_reset(qpn).expect("it exists")),
        ("is destroyed", |engine, qpn| engine.destroy_qp(qpn).expect("it exists")),
    ];
    for (what, end) in ends {
        let mut pair = pair();
        let qpn = pair.left.numbers[0];
        let exchange = Exchange::of(&pair.left.engine).expect("messages are enabled");
        assert!(exchange.round_trip(qpn).is_some() && stats(&pair.left).sent(Type::Probe) > 3, "{what}");
        assert!(stats(&pair.right).grants_sent > 0, "{what}");
        end(&mut pair.left.engine, qpn);
        let before = stats(&pair.left).all_sent();
        for _ in 0..1_000 {
            pair.now += Duration::from_us(20);
            pair.left.engine.tick(pair.now);
            while pair.left.engine.transmit(pair.now).is_some() {}
        }
        let after = stats(&pair.left).all_sent();
        assert_eq!(after, before, "{what}");
        let exchange = Exchange::of(&pair.left.engine).expect("messages are enabled");
        assert_eq!(exchange.round_trip(qpn), None, "{what}");
        assert_eq!(pair.left.engine.next_timeout(), None, "{what}");
    }
}

/// A peer that does not answer makes the queue pair fail, and is then not probed any more.
#[test]
fn s8_a_dead_peer_is_not_probed_for_ever() {
    let mut pair = pair();
    write(&mut pair);
    let mut lost = 0;
    while let Some(at) = pair.left.engine.next_timeout() {
        pair.now = pair.now.max(at);
        pair.left.engine.tick(pair.now);
        while pair.left.engine.transmit(pair.now).is_some() {
            lost += 1;
        }
        assert!(lost < 1_000_000, "messages to a dead peer");
    }
    assert!(stats(&pair.left).probes_lost > 0);
}
