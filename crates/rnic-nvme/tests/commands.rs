//! Commands as packets on the wire, and as data compared with a model of the blocks.

mod common;

use std::collections::BTreeMap;

use common::{BLOCK_LOG2, HOST, Net, TARGET, WORLD, World};
use rnic_nvme::Direction::{Read, Write};
use rnic_nvme::initiator::{Command, Completion, Failure, SubmitError};
use rnic_nvme::{Direction, InitiatorConfig, PeerError, Reads, status};
use rnic_wire::falcon::PacketType::{PullData, PullRequest, PushData};

fn submit(net: &mut Net, direction: Direction, first_block: u64, blocks: u32, cookie: u64) {
    let bytes = (blocks as usize) << BLOCK_LOG2;
    let initial_byte =
        |index: usize| if direction == Write { (index / 512 + index % 251) as u8 ^ cookie as u8 } else { 0xee };
    net.host.buffers.insert(cookie, (0..bytes).map(initial_byte).collect());
    net.initiator.submit(net.now, &Command { direction, first_block, blocks, cookie }).expect("command accepted");
}

fn as_pulls(world: World) -> World {
    World { initiator: InitiatorConfig { reads: Reads::Pull, ..world.initiator }, ..world }
}

fn completions(net: &mut Net) -> Vec<Completion> {
    std::iter::from_fn(|| net.initiator.poll()).collect()
}

#[test]
fn f2_an_nvme_read_is_a_push_in_each_direction_per_unit() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, Read, 0, 3 * 8, 5);
    assert!(net.run());
    assert_eq!((net.types(HOST), net.types(TARGET)), (vec![PushData; 3], vec![PushData; 3]));
    let payload: Vec<u32> = net.sent.iter().map(|(.., packet)| packet.payload_len).collect();
    assert_eq!(payload, [0, 0, 0, 4096, 4096, 4096]);
    assert_eq!(completions(&mut net), [Completion { cookie: 5, result: Ok(()) }]);
}

#[test]
fn f2_an_nvme_read_is_a_pull_per_unit_as_in_the_paper() {
    let mut net = Net::new(as_pulls(WORLD), 1);
    submit(&mut net, Read, 0, 2 * 8 + 1, 5);
    assert!(net.run());
    assert_eq!((net.types(HOST), net.types(TARGET)), (vec![PullRequest; 3], vec![PullData; 3]));
    let mut payload: Vec<u32> = net.sent.iter().map(|(.., packet)| packet.payload_len).collect();
    payload.sort_unstable();
    assert_eq!(payload, [0, 0, 0, 512, 4096, 4096]);
    assert_eq!(completions(&mut net), [Completion { cookie: 5, result: Ok(()) }]);
}

#[test]
fn f2_an_nvme_write_is_a_push_and_a_pull_of_the_target_per_unit() {
    let mut net = Net::new(WORLD, 1);
    submit(&mut net, Write, 0, 2 * 8 + 1, 5);
    assert!(net.run());
    assert_eq!(net.types(HOST), [[PushData; 3], [PullData; 3]].concat());
    assert_eq!(net.types(TARGET), [[PullRequest; 3], [PushData; 3]].concat());
    let mut payload: Vec<u32> = net.sent.iter().map(|(.., packet)| packet.payload_len).collect();
    payload.sort_unstable();
    assert_eq!(payload[9..], [512, 4096, 4096], "wrong payload lengths");
    assert_eq!(completions(&mut net), [Completion { cookie: 5, result: Ok(()) }]);
}

/// Random commands to two targets, none touching blocks of another command in flight; Reads return what the model
/// contains.
#[test]
fn every_block_is_read_and_written_exactly_once_over_a_bad_network() {
    for seed in 0..100 {
        let world = if seed % 2 == 0 { WORLD } else { as_pulls(WORLD) };
        let mut net = Net::new(World { connections: 2, lost: 100, duplicated: 50, late: 200, ..world }, seed);
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut in_flight: BTreeMap<u64, (Direction, u64, u32)> = BTreeMap::new();
        let (mut written, mut read) = (0, 0);
        for cookie in 0..60 {
            let direction = if net.random.below(2) == 0 { Read } else { Write };
            // Around the edges of stripes, so that many are split.
            let first = net.random.below(3) * 512 + 490 + net.random.below(30);
            let blocks = net.random.between(1, 40) as u32;
            let end = first + u64::from(blocks);
            let disjoint =
                |(_, other, count): &(Direction, u64, u32)| end <= *other || *other + u64::from(*count) <= first;
            if in_flight.len() < 16 && in_flight.values().all(disjoint) {
                submit(&mut net, direction, first, blocks, cookie);
                in_flight.insert(cookie, (direction, first, blocks));
            }
            (0..net.random.below(12)).for_each(|_| net.run_5_us());
            if cookie == 59 {
                assert!(net.run(), "seed {seed}");
            }
            for Completion { cookie, result } in completions(&mut net) {
                let (direction, first, blocks) = in_flight.remove(&cookie).expect("each command completes once");
                assert_eq!(result, Ok(()), "seed {seed}");
                let buffer = &net.host.buffers[&cookie];
                for (block, bytes) in (first..).zip(buffer.chunks(1 << BLOCK_LOG2)) {
                    if direction == Write {
                        model.insert(block, bytes.to_vec());
                    } else {
                        let expected = model.get(&block).cloned().unwrap_or(vec![0; 1 << BLOCK_LOG2]);
                        assert!(expected == bytes, "block {block}, seed {seed}");
                    }
                }
                *(if direction == Write { &mut written } else { &mut read }) += u64::from(blocks);
            }
        }
        assert!(in_flight.is_empty() && net.initiator.is_idle() && net.initiator.stats().split > 0);
        let blocks_written = net.disks.iter().flat_map(|disk| &disk.writes).map(|extent| u64::from(extent.blocks));
        assert_eq!(blocks_written.sum::<u64>(), written, "not each block was written once, seed {seed}");
        let placed: u64 = net.host.placed.iter().map(|span| u64::from(span.length)).sum();
        assert_eq!(placed, read << BLOCK_LOG2, "not each byte was placed once, seed {seed}");
        assert_eq!(net.initiator.peer_errors().total(), 0);
        assert!(net.targets.iter().all(|target| target.peer_errors().total() == 0));
    }
}

#[test]
fn blocks_beyond_the_namespace_result_in_a_status() {
    check_blocks_beyond_the_namespace(Net::new(WORLD, 1));
    check_blocks_beyond_the_namespace(Net::new(as_pulls(WORLD), 1));
}

fn check_blocks_beyond_the_namespace(mut net: Net) {
    net.targets[0] = rnic_nvme::Target::new(rnic_nvme::TargetConfig {
        owner: 0,
        namespace: common::NAMESPACE,
        blocks: 64 + 100,
        block_log2: BLOCK_LOG2,
        units: 32,
    });
    submit(&mut net, Read, 92, 8, 0);
    submit(&mut net, Read, 93, 8, 1);
    submit(&mut net, Write, 93, 8, 2);
    assert!(net.run());
    let mut completed = completions(&mut net);
    completed.sort_unstable_by_key(|completion| completion.cookie);
    let out_of_range = Err(Failure::Status(status::OUT_OF_RANGE));
    assert_eq!(completed.iter().map(|done| done.result).collect::<Vec<_>>(), [Ok(()), out_of_range, out_of_range]);
}

#[test]
fn only_units_beyond_the_agreed_number_are_refused() {
    let mut net = Net::new(World { target_units: 4, ..WORLD }, 1);
    submit(&mut net, Read, 0, 4 * 8, 0);
    assert!(net.run());
    submit(&mut net, Read, 0, 5 * 8, 1);
    assert!(net.run());
    submit(&mut net, Read, 0, 4 * 8, 2);
    assert!(net.run());
    let results: Vec<_> = completions(&mut net).iter().map(|done| done.result).collect();
    assert_eq!(results, [Ok(()), Err(Failure::Refused(PeerError::TooManyUnits)), Ok(())]);
    assert_eq!(net.targets[0].peer_errors().of(PeerError::TooManyUnits), 1);
}

#[test]
fn queues_are_bounded_and_their_waits_are_counted() {
    let small_limits = InitiatorConfig { commands: 2, units: 4, ..WORLD.initiator };
    let mut device = WORLD.device;
    device.queue_depth = 1;
    let mut net = Net::new(World { initiator: small_limits, device, ..WORLD }, 1);
    let command = Command { direction: Read, first_block: 0, blocks: 2048, cookie: 0 };
    assert_eq!(net.initiator.submit(net.now, &Command { blocks: 2049, ..command }), Err(SubmitError::TooLong(257)));
    submit(&mut net, Read, 0, 2048, 0);
    submit(&mut net, Read, 2048, 8, 1);
    assert_eq!(net.initiator.submit(net.now, &command), Err(SubmitError::Full));
    net.run_5_us();
    assert_eq!(net.initiator.units_in_flight(), 4);
    assert!(net.run());
    assert_eq!(net.initiator.submit(net.now, &command), Err(SubmitError::Full), "completions are not polled yet");
    assert_eq!(completions(&mut net).len(), 2);
    assert!(net.initiator.stats().waited_for_units > 0 && net.devices[0].waited() > 0);
    assert_eq!(net.targets[0].stats().served, 257);
    // Four units of the first command were sent immediately, and the device started the first of 257 units on
    // arrival.
    assert!(net.initiator.stats().waited_for_units <= 253 && net.devices[0].waited() <= 256);
}

#[test]
fn a_failed_write_to_the_medium_is_reported_as_a_status() {
    let mut net = Net::new(WORLD, 1);
    net.disks[0].writable_blocks = Some(64 + 8);
    submit(&mut net, Write, 0, 8, 0);
    submit(&mut net, Write, 8, 8, 1);
    assert!(net.run());
    let mut completed = completions(&mut net);
    completed.sort_unstable_by_key(|completion| completion.cookie);
    let fault = Failure::Status(status::WRITE_FAULT);
    assert_eq!(completed.iter().map(|done| done.result).collect::<Vec<_>>(), [Ok(()), Err(fault)]);
    assert_eq!(fault.to_string(), "the target reported status 0x0280 (write fault)");
}

#[test]
fn inaccessible_memory_fails_only_its_command() {
    for (world, direction) in [(WORLD, Read), (as_pulls(WORLD), Read), (WORLD, Write)] {
        let mut net = Net::new(world, 1);
        submit(&mut net, direction, 0, 8, 0);
        submit(&mut net, direction, 8, 8, 1);
        net.host.buffers.remove(&0);
        assert!(net.run());
        let mut completed = completions(&mut net);
        completed.sort_unstable_by_key(|completion| completion.cookie);
        assert_eq!(completed.iter().map(|done| done.result).collect::<Vec<_>>(), [Err(Failure::Memory), Ok(())]);
    }
}

#[test]
fn failure_words_decode_to_their_failures() {
    let words = (0..8_u32 << 16).filter_map(|word| Failure::from_word(word).map(|failure| (word, failure)));
    let mut seen = 0;
    for (word, failure) in words.filter(|(word, _)| word & 0xffff <= 0xff || word >> 16 == 0) {
        seen += 1;
        assert!(failure.word() == word || failure.word() & 0xffff == 0, "{failure:?}");
        assert_eq!(Failure::from_word(failure.word()), Some(failure));
    }
    assert!(seen > 1 << 16);
}
