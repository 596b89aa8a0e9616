//! A network that carries nothing for longer than packets are sent again: what ends does so once, well or with a
//! reason, nothing stays for ever, and nobody is blamed.

mod common;

use common::{Net, WORLD, World};
use rnic_base::Duration;
use rnic_nvme::Direction::{self, Read, Write};
use rnic_nvme::initiator::{Command, Failure};
use rnic_nvme::{InitiatorConfig, status};
use rnic_wire::falcon::CompletionCode;

/// Longer than the attempts of a packet, shorter than with those of its Resync, after which the connection is dead.
const OUTAGE: Duration = Duration::from_ms(44);

/// How commands ended around an outage that began `before` it is over, and what was counted: units given up by their
/// initiator whose answer came, and answers that were given anew.
fn around(direction: Direction, before: Duration, seed: u64) -> (Vec<Result<(), Failure>>, u64, u64) {
    let mut device = WORLD.device;
    device.read.latency = Duration::from_us(60);
    let mut net = Net::new(World { device, ..WORLD }, seed);
    net.keeps_sent = false;
    let post = |net: &mut Net, cookies: core::ops::Range<u64>| {
        for cookie in cookies {
            net.host.buffers.insert(cookie, vec![cookie as u8; 4 * 4096]);
            net.initiator
                .submit(net.now, &Command { direction, first_block: 32 * cookie, blocks: 32, cookie })
                .expect("room");
        }
    };
    // So that the round trip is known.
    post(&mut net, 12..16);
    assert!(net.run());
    assert_eq!(std::iter::from_fn(|| net.initiator.poll()).count(), 4);
    post(&mut net, 0..8);
    net.run_for(before);
    net.world.lost = 1_000;
    net.run_for(OUTAGE);
    net.world.lost = 0;
    assert!(net.run(), "something is left");
    let all: Vec<_> = std::iter::from_fn(|| net.initiator.poll()).collect();
    assert_eq!(all.len(), 8, "each command ends");
    post(&mut net, 8..12);
    assert!(net.run());
    let after: Vec<_> = std::iter::from_fn(|| net.initiator.poll()).map(|done| done.result).collect();
    assert_eq!(after, [Ok(()); 4], "those after the outage");
    assert_eq!((net.initiator.peer_errors().total(), net.targets[0].peer_errors().total()), (0, 0));
    let (late, anew) = (net.initiator.stats().late, net.targets[0].stats().answered_anew);
    (all.iter().map(|done| done.result).collect(), late, anew)
}

#[test]
fn commands_end_after_an_outage_whenever_it_begins_and_no_end_blames_the_other() {
    for direction in [Read, Write] {
        let (mut done, mut failed, mut late, mut anew) = (0, 0, 0, 0);
        for nth in 0..40 {
            let (results, gone, again) = around(direction, Duration::from_us(3 * nth), nth);
            for result in results {
                match result {
                    Ok(()) => done += 1,
                    Err(Failure::Transaction(CompletionCode::LocalTimeout)) => failed += 1,
                    Err(Failure::Status(status::DATA_TRANSFER_ERROR)) if direction == Write => failed += 1,
                    other => panic!("{direction:?} {nth}: {other:?}"),
                }
            }
            (late, anew) = (late + gone, anew + again);
        }
        println!("{direction:?}: {done} done, {failed} failed, {late} late, {anew} anew");
        assert!(done > 0 && failed > 0 && late > 0 && anew > 0);
    }
}

#[test]
fn a_command_whose_target_says_nothing_fails_in_time_and_what_comes_later_is_late() {
    for direction in [Read, Write] {
        let mut device = WORLD.device;
        (device.read.latency, device.write.latency) = (Duration::from_ms(3), Duration::from_ms(3));
        let initiator = InitiatorConfig { units: 4, timeout: Duration::from_ms(1), ..WORLD.initiator };
        let mut net = Net::new(World { device, initiator, ..WORLD }, 1);
        net.host.buffers.insert(0, vec![7; 16 * 4096]);
        let command = Command { direction, first_block: 0, blocks: 128, cookie: 0 };
        let start = net.now;
        assert_eq!(net.initiator.next_timeout(), None);
        net.initiator.submit(net.now, &command).expect("room");
        assert_eq!(net.initiator.next_timeout(), Some(start + Duration::from_ms(1)));
        net.run_for(Duration::from_us(999));
        net.initiator.expire(net.now);
        assert_eq!((net.initiator.poll(), net.initiator.units_under_way()), (None, 4), "there is time left");
        net.run_for(Duration::from_us(1));
        net.initiator.expire(net.now);
        let ended = net.initiator.poll().expect("its time is over");
        assert_eq!((ended.result, net.initiator.poll()), (Err(Failure::TimedOut), None));
        assert_eq!((net.initiator.next_timeout(), net.initiator.is_idle()), (None, true));
        assert!(net.run());
        assert_eq!((net.initiator.stats().late, net.initiator.stats().units), (4, 4), "{direction:?}");
        assert_eq!((net.initiator.peer_errors().total(), net.targets[0].peer_errors().total()), (0, 0));
        assert!(net.host.placed.is_empty(), "late data belongs nowhere");
    }
}
