//! A network that is down for longer than packets are retransmitted: each command ends exactly once, successfully or
//! with a reason, no state remains, and neither end reports an error of the other.

mod common;

use common::{Net, WORLD, World};
use rnic_base::Duration;
use rnic_nvme::Direction::{self, Read, Write};
use rnic_nvme::initiator::{Command, Failure};
use rnic_nvme::{InitiatorConfig, status};
use rnic_wire::falcon::CompletionCode;

/// Longer than all attempts of a packet, but shorter than those plus the attempts of its Resync, after which the
/// connection is dead.
const OUTAGE: Duration = Duration::from_ms(44);

/// Runs commands of which an outage begins after `before`. Returns their results, the number of units that the
/// initiator had given up when their response arrived, and the number of responses that were repeated.
fn run_with_outage(direction: Direction, before: Duration, seed: u64) -> (Vec<Result<(), Failure>>, u64, u64) {
    let mut device = WORLD.device;
    device.read.latency = Duration::from_us(60);
    let mut net = Net::new(World { device, ..WORLD }, seed);
    net.keeps_sent = false;
    let submit_commands = |net: &mut Net, cookies: core::ops::Range<u64>| {
        for cookie in cookies {
            net.host.buffers.insert(cookie, vec![cookie as u8; 4 * 4096]);
            net.initiator
                .submit(net.now, &Command { direction, first_block: 32 * cookie, blocks: 32, cookie })
                .expect("the command is accepted");
        }
    };
    // So that the round trip is measured.
    submit_commands(&mut net, 12..16);
    assert!(net.run());
    assert_eq!(std::iter::from_fn(|| net.initiator.poll()).count(), 4);
    submit_commands(&mut net, 0..8);
    net.run_for(before);
    net.world.lost = 1_000;
    net.run_for(OUTAGE);
    net.world.lost = 0;
    assert!(net.run(), "the network is not idle after the outage");
    let completions: Vec<_> = std::iter::from_fn(|| net.initiator.poll()).collect();
    assert_eq!(completions.len(), 8, "not each command has ended once");
    submit_commands(&mut net, 8..12);
    assert!(net.run());
    let results_after: Vec<_> = std::iter::from_fn(|| net.initiator.poll()).map(|done| done.result).collect();
    assert_eq!(results_after, [Ok(()); 4], "a command after the outage failed");
    assert_eq!((net.initiator.peer_errors().total(), net.targets[0].peer_errors().total()), (0, 0));
    let (late, repeated) = (net.initiator.stats().late, net.targets[0].stats().resubmitted_responses);
    (completions.iter().map(|done| done.result).collect(), late, repeated)
}

#[test]
fn commands_end_after_an_outage_at_any_time_without_peer_errors() {
    for direction in [Read, Write] {
        let (mut done, mut failed, mut late, mut repeated) = (0, 0, 0, 0);
        for nth in 0..40 {
            let (results, late_now, repeated_now) = run_with_outage(direction, Duration::from_us(3 * nth), nth);
            for result in results {
                match result {
                    Ok(()) => done += 1,
                    Err(Failure::Transaction(CompletionCode::LocalTimeout)) => failed += 1,
                    Err(Failure::Status(status::DATA_TRANSFER_ERROR)) if direction == Write => failed += 1,
                    other => panic!("{direction:?} {nth}: {other:?}"),
                }
            }
            (late, repeated) = (late + late_now, repeated + repeated_now);
        }
        println!("{direction:?}: {done} done, {failed} failed, {late} late, {repeated} repeated");
        assert!(done > 0 && failed > 0 && late > 0 && repeated > 0);
    }
}

#[test]
fn a_command_times_out_when_its_target_is_silent_and_late_responses_are_counted() {
    for direction in [Read, Write] {
        let mut device = WORLD.device;
        (device.read.latency, device.write.latency) = (Duration::from_ms(3), Duration::from_ms(3));
        let initiator = InitiatorConfig { units: 4, timeout: Duration::from_ms(1), ..WORLD.initiator };
        let mut net = Net::new(World { device, initiator, ..WORLD }, 1);
        net.host.buffers.insert(0, vec![7; 16 * 4096]);
        let command = Command { direction, first_block: 0, blocks: 128, cookie: 0 };
        let start = net.now;
        assert_eq!(net.initiator.next_timeout(), None);
        net.initiator.submit(net.now, &command).expect("the command is accepted");
        assert_eq!(net.initiator.next_timeout(), Some(start + Duration::from_ms(1)));
        net.run_for(Duration::from_us(999));
        net.initiator.expire(net.now);
        assert_eq!((net.initiator.poll(), net.initiator.units_in_flight()), (None, 4), "ended before its deadline");
        net.run_for(Duration::from_us(1));
        net.initiator.expire(net.now);
        let ended = net.initiator.poll().expect("the command has timed out");
        assert_eq!((ended.result, net.initiator.poll()), (Err(Failure::TimedOut), None));
        assert_eq!((net.initiator.next_timeout(), net.initiator.is_idle()), (None, true));
        assert!(net.run());
        assert_eq!((net.initiator.stats().late, net.initiator.stats().units), (4, 4), "{direction:?}");
        assert_eq!((net.initiator.peer_errors().total(), net.targets[0].peer_errors().total()), (0, 0));
        assert!(net.host.placed.is_empty(), "late data was placed");
    }
}
