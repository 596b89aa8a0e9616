//! NVMe on queue pairs (F-2, F-43): commands and RDMA share one NIC, whatever the wire does; and a command that
//! cannot be executed completes with a named status, after which the queue pair stays usable.

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, RandomStream, RandomStreams};
use rnic_engine::*;
use rnic_nvme::device::Service as DeviceService;
use rnic_nvme::initiator::Failure;
use rnic_nvme::{DeviceConfig, PeerError, Reads, status};
use rnic_wire::Qpn;

use crate::common::{BASE, DELAY, DELIVERED, INBOX, LOST, Pair, Sent, Setup, Side, attributes, bad};

const BLOCK: u32 = 512;
const BLOCKS: u64 = 256;
/// Address of the namespace, at end 1, above the memory that RDMA writes to there.
const DRIVE: u64 = INBOX + (256 << 10);
const NUMBER: u16 = 7;

fn setup() -> Setup {
    Setup { mtu: 4_096, depth: 32, ..Setup::new(&[]) }
}

fn namespace(pair: &mut Pair, key: u32) -> NamespaceId {
    let side = &mut pair.ends[1];
    let service = |us| DeviceService { latency: Duration::from_us(us), bandwidth: BitRate::gbps(20) };
    let device = DeviceConfig { read: service(20), write: service(5), queue_depth: 8, block_log2: BLOCK.ilog2() };
    let config = NamespaceConfig { number: NUMBER, blocks: BLOCKS, pd: side.pd, addr: DRIVE, key: Key(key), device };
    side.engine.nvme().create_namespace(&config).expect("a legal namespace")
}

fn initiator(namespace: u16, reads: Reads) -> NvmeRole {
    let (block_log2, timeout) = (BLOCK.ilog2(), Duration::from_secs(30));
    NvmeRole::Initiator(NvmeInitiator { namespace, block_log2, reads, timeout })
}

/// Creates a pair with an NVMe connection beside the RDMA connection; returns the queue pairs of its two ends.
fn with_drive(setup: &Setup, reads: Reads) -> (Pair, [Qpn; 2]) {
    let mut pair = Pair::new(setup, |_| DELIVERED);
    let key = pair.ends[1].key;
    let target = namespace(&mut pair, key);
    let ends = pair.connect_nvme(setup, [Some(initiator(NUMBER, reads)), Some(NvmeRole::Target(target))]);
    (pair, ends)
}

/// Posts a Read or Write of `blocks` blocks from block `first` on.
fn command(pair: &mut Pair, qpn: Qpn, wr_id: u64, write: bool, (first, blocks): (u64, u32), addr: u64) {
    let remote = RemoteMemory { addr: first * u64::from(BLOCK), rkey: 0 };
    let op = if write { SendOp::Write { remote, immediate: None } } else { SendOp::Read { remote } };
    pair.ends[0].post_on(qpn, wr_id, op, addr, blocks * BLOCK);
}

fn state(pair: &Pair, end: usize, qpn: Qpn) -> QpState {
    pair.ends[end].engine.query_qp(qpn).expect("it exists").state
}

/// Runs until no command has completed for a while; returns the completions.
fn finish(pair: &mut Pair) -> Vec<Completion> {
    pair.run_for(Duration::from_ms(40));
    pair.ends[0].done.drain(..).collect()
}

/// Posts random commands, none of which touches the blocks of another one in flight, together with RDMA Writes in
/// both directions.
fn share(seed: u64, reads: Reads, mut random: RandomStream) {
    let (mut pair, [ours, theirs]) = with_drive(&setup(), reads);
    pair.set_fate(bad(RandomStreams::new(seed).stream("wire"), 20, 10, 50));
    let drive = (DRIVE - BASE) as usize;
    let mut model = pair.ends[1].memory[drive..drive + (BLOCKS as usize) * BLOCK as usize].to_vec();
    let mut under_way: BTreeMap<u64, (bool, u64, u32)> = BTreeMap::new();
    let (mut commands, mut writes) = (0, 0);
    for wr_id in 0..150 {
        let (first, blocks) = (random.below(BLOCKS - 20), random.between(1, 20) as u32);
        let place = BASE + (wr_id % 16) * 16_384;
        let apart = |(_, other, count): &(bool, u64, u32)| {
            first + u64::from(blocks) <= *other || *other + u64::from(*count) <= first
        };
        let is_free = !under_way.contains_key(&(wr_id % 16));
        if is_free && under_way.values().all(apart) {
            let write = random.below(2) == 0;
            let at = (place - BASE) as usize;
            for byte in &mut pair.ends[0].memory[at..at + (blocks * BLOCK) as usize] {
                *byte = random.below(256) as u8;
            }
            if write {
                let to = first as usize * BLOCK as usize;
                let bytes = pair.ends[0].bytes(place, blocks * BLOCK).to_vec();
                model[to..to + bytes.len()].copy_from_slice(&bytes);
            }
            command(&mut pair, ours, wr_id % 16, write, (first, blocks), place);
            under_way.insert(wr_id % 16, (write, first, blocks));
        }
        for end in [0, 1] {
            let qpn = pair.ends[end].qpn;
            let remote = pair.remote(end, INBOX + (wr_id % 8) * 4_096);
            if pair.ends[end].engine.send_queue_space(qpn).is_some_and(|room| room > 0) {
                pair.ends[end].post(1_000, SendOp::Write { remote, immediate: None }, BASE + 300_000, 4_000);
            }
        }
        pair.run_for(Duration::from_us(random.below(60)));
        if wr_id == 149 {
            pair.run_for(Duration::from_ms(100));
        }
        for done in pair.ends[0].done.drain(..).collect::<Vec<_>>() {
            assert_eq!(done.status, WcStatus::Success, "seed {seed}: {done:?} {:?}", done.nvme_failure());
            if done.wr_id == 1_000 {
                writes += 1;
                continue;
            }
            let (write, first, blocks) = under_way.remove(&done.wr_id).expect("each command completes once");
            commands += 1;
            let from = first as usize * BLOCK as usize;
            let due = &model[from..from + (blocks * BLOCK) as usize];
            let got = pair.ends[0].bytes(BASE + done.wr_id * 16_384, blocks * BLOCK);
            assert!(write || due == got, "seed {seed}: blocks from {first} on");
        }
    }
    assert!(under_way.is_empty() && commands > 40 && writes > 100, "{commands} commands and {writes} Writes");
    assert!(pair.ends[1].memory[drive..][..model.len()] == model, "seed {seed}: wrong data");
    assert_eq!((state(&pair, 0, ours), state(&pair, 1, theirs)), (QpState::ReadyToSend, QpState::ReadyToSend));
    for end in &pair.ends {
        assert!(end.engine.falcon_stats().is_some_and(|stats| stats.is_idle), "resources are still held");
    }
}

#[test]
fn f2_nvme_and_rdma_share_a_nic_over_a_lossy_network() {
    for seed in 0..12 {
        let reads = if seed % 2 == 0 { Reads::Push } else { Reads::Pull };
        share(seed, reads, RandomStreams::new(seed).stream("commands"));
    }
}

fn failures(done: &[Completion]) -> Vec<(u64, WcStatus, Option<Failure>)> {
    let mut all: Vec<_> = done.iter().map(|done| (done.wr_id, done.status, done.nvme_failure())).collect();
    all.sort_unstable_by_key(|(wr_id, ..)| *wr_id);
    all
}

#[test]
fn commands_that_a_namespace_rejects_complete_with_a_named_status() {
    for reads in [Reads::Push, Reads::Pull] {
        let (mut pair, [ours, _]) = with_drive(&setup(), reads);
        command(&mut pair, ours, 0, false, (BLOCKS - 1, 1), BASE);
        command(&mut pair, ours, 1, false, (BLOCKS - 1, 2), BASE + 8_192);
        command(&mut pair, ours, 2, true, (1 << 40, 1), BASE);
        // Beyond the end of any namespace: the initiator itself detects this.
        command(&mut pair, ours, 3, true, (1 << 54, 1), BASE);
        command(&mut pair, ours, 4, true, (0, 1), BASE);
        let out_of_range = (WcStatus::RemoteAccess, Some(Failure::Status(status::OUT_OF_RANGE)));
        let fine = (WcStatus::Success, None);
        let ended: Vec<_> = failures(&finish(&mut pair)).into_iter().map(|(_, status, why)| (status, why)).collect();
        assert_eq!(ended, [fine, out_of_range, out_of_range, out_of_range, fine], "{reads:?}");
        assert_eq!(state(&pair, 0, ours), QpState::ReadyToSend);
    }
}

#[test]
fn commands_to_an_unknown_namespace_complete_with_a_named_status() {
    for reads in [Reads::Push, Reads::Pull] {
        let mut pair = Pair::new(&setup(), |_| DELIVERED);
        let key = pair.ends[1].key;
        let target = NvmeRole::Target(namespace(&mut pair, key));
        let [ours, _] = pair.connect_nvme(&setup(), [Some(initiator(NUMBER + 1, reads)), Some(target)]);
        for wr_id in 0..2 {
            command(&mut pair, ours, wr_id, wr_id == 1, (0, 8), BASE);
            let failure = Failure::Status(status::INVALID_NAMESPACE);
            let ended = (wr_id, WcStatus::RemoteInvalidRequest, Some(failure));
            assert_eq!(failures(&finish(&mut pair)), [ended], "{reads:?}");
            assert_eq!(failure.to_string(), "the target reported status 0x000b (invalid namespace)");
        }
        assert_eq!(state(&pair, 0, ours), QpState::ReadyToSend);
    }
}

/// Checks a namespace whose memory region covers only half of it, as with a file that is too short: commands beyond
/// the end complete with a named status.
#[test]
fn commands_beyond_the_end_of_the_medium_complete_with_a_named_status() {
    for reads in [Reads::Push, Reads::Pull] {
        let mut pair = Pair::new(&setup(), |_| DELIVERED);
        let short = pair.ends[1].register(DRIVE, BLOCKS / 2 * u64::from(BLOCK));
        let target = NvmeRole::Target(namespace(&mut pair, short));
        let [ours, theirs] = pair.connect_nvme(&setup(), [Some(initiator(NUMBER, reads)), Some(target)]);
        let half = BLOCKS / 2;
        for (wr_id, write, first, expected) in [
            (0, false, half - 8, None),
            (1, false, half, Some(status::UNRECOVERED_READ)),
            (2, true, half, Some(status::WRITE_FAULT)),
            (3, true, half - 8, None),
            (4, false, half - 4, Some(status::UNRECOVERED_READ)),
        ] {
            command(&mut pair, ours, wr_id, write, (first, 8), BASE);
            let status = if expected.is_some() { WcStatus::RemoteOperational } else { WcStatus::Success };
            let ended = (wr_id, status, expected.map(Failure::Status));
            assert_eq!(failures(&finish(&mut pair)), [ended], "{reads:?}");
        }
        assert_eq!((state(&pair, 0, ours), state(&pair, 1, theirs)), (QpState::ReadyToSend, QpState::ReadyToSend));
    }
}

#[test]
fn f43_a_peer_without_nvme_refuses_commands_and_both_queue_pairs_stay_usable() {
    let orders: [&[(&str, &str)]; 4] =
        [&[], &[("ordering", "weak")], &[("ordering", "unordered")], &[("errors", "complete-in-error")]];
    for (options, reads) in orders.into_iter().flat_map(|options| [Reads::Push, Reads::Pull].map(|r| (options, r))) {
        let setup = Setup { mtu: 4_096, ..Setup::new(options) };
        let mut pair = Pair::new(&setup, |_| DELIVERED);
        let [ours, theirs] = pair.connect_nvme(&setup, [Some(initiator(NUMBER, reads)), None]);
        for wr_id in 0..4 {
            command(&mut pair, ours, wr_id, wr_id % 2 == 1, (0, 8), BASE);
        }
        let failure = Failure::Refused(PeerError::NoNvme);
        let all: Vec<_> = (0..4).map(|wr_id| (wr_id, WcStatus::RemoteInvalidRequest, Some(failure))).collect();
        assert_eq!(failures(&finish(&mut pair)), all, "{options:?} {reads:?}");
        assert_eq!((state(&pair, 0, ours), state(&pair, 1, theirs)), (QpState::ReadyToSend, QpState::ReadyToSend));
    }
}

#[test]
fn invalid_commands_cannot_be_posted() {
    let (mut pair, [ours, theirs]) = with_drive(&setup(), Reads::Push);
    let key = pair.ends[1].key;
    let unknown = namespace(&mut pair, key);
    let remote = RemoteMemory { addr: 0, rkey: 0 };
    let read = SendOp::Read { remote };
    let mut post = |end: usize, qpn, op, len| {
        let sges = [pair.ends[end].sge(BASE, len)];
        pair.ends[end].engine.post_send(qpn, &SendRequest { wr_id: 0, op, sges: &sges, flags: SendFlags::empty() })
    };
    assert_eq!(post(0, ours, SendOp::Send { immediate: None }, BLOCK), Err(PostError::NvmeOperation));
    assert_eq!(post(0, ours, SendOp::Write { remote, immediate: Some(1) }, BLOCK), Err(PostError::NvmeOperation));
    assert_eq!(post(0, ours, SendOp::FetchAdd { remote, add: 1 }, 8), Err(PostError::NvmeOperation));
    let fenced = SendRequest { wr_id: 0, op: read, sges: &[], flags: SendFlags::FENCE };
    let blocks = |addr, bytes| Err(PostError::NvmeBlocks { addr, bytes, block: BLOCK, most: 1 << 20 });
    assert_eq!(post(0, ours, read, BLOCK + 1), blocks(0, BLOCK + 1));
    assert_eq!(post(0, ours, read, 0), blocks(0, 0));
    assert_eq!(post(0, ours, read, (1 << 20) + BLOCK), blocks(0, (1 << 20) + BLOCK));
    let odd = SendOp::Read { remote: RemoteMemory { addr: 3, rkey: 0 } };
    assert_eq!(post(0, ours, odd, BLOCK), blocks(3, BLOCK));
    assert_eq!(post(1, theirs, read, BLOCK), Err(PostError::NvmeTarget));
    assert_eq!(pair.ends[0].engine.post_send(ours, &fenced), Err(PostError::NvmeOperation));
    let Side { engine, pd, cq, .. } = &mut pair.ends[0];
    let fresh = QpAttributes { nvme: Some(initiator(1, Reads::Push)), ..attributes(&setup(), *pd, *cq, None) };
    let datagrams = QpAttributes { service: Service::UnreliableDatagram, ..fresh.clone() };
    assert_eq!(engine.create_qp(&datagrams), Err(ResourceError::NvmeWithoutFalcon));
    let stranger = QpAttributes { nvme: Some(NvmeRole::Target(unknown)), ..fresh.clone() };
    assert_eq!(engine.create_qp(&stranger), Err(ResourceError::Unknown("namespace")));
    let qpn = engine.create_qp(&fresh).expect("legal attributes");
    engine.modify_to_init(qpn).expect("from reset");
    let connection = QpConnection {
        peer: PeerId(1),
        dest_qpn: Qpn::new(9),
        rq_psn: rnic_base::Psn::new(0),
        mtu: 1_024,
        min_rnr_timer: RnrTimer::from_code(1),
        max_dest_rd_atomic: 1,
    };
    let refused = engine.modify_to_rtr(qpn, &connection).expect_err("the MTU is too small for a unit");
    let says = "invalid value 1024 for the path MTU of a queue pair for NVMe: the allowed range is 4096 to 8192 in ";
    assert_eq!(refused.to_string(), format!("{says}multiples of 4"));
}

#[test]
fn a_silent_peer_fails_the_queue_pair_as_with_rdma() {
    let (mut pair, [ours, _]) = with_drive(&Setup { retry_count: 2, ..setup() }, Reads::Push);
    pair.set_fate(|_| LOST);
    command(&mut pair, ours, 0, false, (0, 8), BASE);
    command(&mut pair, ours, 1, true, (8, 8), BASE);
    pair.run_for(Duration::from_secs(2));
    let ended = pair.ends[0].take();
    assert_eq!(ended, [(0, WcStatus::RetryExceeded), (1, WcStatus::RetryExceeded)]);
    assert_eq!(state(&pair, 0, ours), QpState::Error);
    assert!(pair.ends[0].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// Commands that wait for a slow device, commands whose packets are in flight, and commands that were never sent:
/// when the connection is lost, the oldest one completes with the reason and all later ones are flushed, whatever
/// state each was in.
#[test]
fn when_the_connection_is_lost_the_oldest_command_fails_and_the_others_are_flushed() {
    for reads in [Reads::Push, Reads::Pull] {
        let setup = Setup { retry_count: 2, ..setup() };
        let mut pair = Pair::new(&setup, |_| DELIVERED);
        let (pd, service) = (pair.ends[1].pd, DeviceService { latency: SLOW, bandwidth: BitRate::gbps(20) });
        let device = DeviceConfig { read: service, write: service, queue_depth: 1_024, block_log2: BLOCK.ilog2() };
        let key = Key(pair.ends[1].key);
        let config = NamespaceConfig { number: NUMBER, blocks: BLOCKS, pd, addr: DRIVE, key, device };
        let target = pair.ends[1].engine.nvme().create_namespace(&config).expect("a legal namespace");
        let [ours, _] = pair.connect_nvme(&setup, [Some(initiator(NUMBER, reads)), Some(NvmeRole::Target(target))]);
        let all = |pair: &mut Pair, range: core::ops::Range<u64>| {
            range.for_each(|wr_id| command(pair, ours, wr_id, wr_id % 2 == 1, (0, BLOCKS as u32), BASE));
        };
        all(&mut pair, 0..4);
        pair.run_for(DELAY * 20);
        pair.set_fate(|_| LOST);
        // 32 units each: the last ones exceed the limit of outstanding units.
        all(&mut pair, 4..24);
        pair.run_for(Duration::from_secs(2));
        let ended: Vec<_> = pair.ends[0].done.drain(..).collect();
        let expected: Vec<_> = (0..24)
            .map(|wr_id| (wr_id, if wr_id == 0 { WcStatus::RetryExceeded } else { WcStatus::WrFlushed }, None))
            .collect();
        let told: Vec<_> = ended.iter().map(|done| (done.wr_id, done.status, done.nvme_failure())).collect();
        assert_eq!(told, expected, "{reads:?}");
        assert_eq!(state(&pair, 0, ours), QpState::Error);
        assert!(pair.ends[0].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
    }
}

/// Longer than the time after which a peer is declared gone.
const SLOW: Duration = Duration::from_secs(20);

/// Checks that commands that the device still processes when their target queue pair ends are dropped, and in
/// particular are not taken for commands of the next queue pair in the same slot.
#[test]
fn commands_of_a_target_that_is_reset_or_destroyed_are_dropped_at_its_device() {
    let (mut pair, [ours, theirs]) = with_drive(&setup(), Reads::Push);
    let namespace = NamespaceConfig {
        number: NUMBER,
        blocks: BLOCKS,
        pd: pair.ends[1].pd,
        addr: DRIVE,
        key: Key(pair.ends[1].key),
        device: DeviceConfig {
            read: DeviceService { latency: Duration::from_ms(1), bandwidth: BitRate::gbps(20) },
            write: DeviceService { latency: Duration::from_ms(1), bandwidth: BitRate::gbps(20) },
            queue_depth: 8,
            block_log2: BLOCK.ilog2(),
        },
    };
    let slow = pair.ends[1].engine.nvme().create_namespace(&namespace).expect("a legal namespace");
    let [first, second] =
        pair.connect_nvme(&setup(), [Some(initiator(NUMBER, Reads::Push)), Some(NvmeRole::Target(slow))]);
    for wr_id in 0..16 {
        command(&mut pair, first, wr_id, false, (wr_id * 8, 8), BASE + wr_id * 4_096);
    }
    pair.run_for(DELAY * 10);
    let busy = pair.ends[1].engine.nvme().destroy_namespace(slow);
    assert_eq!(busy, Err(ResourceError::Busy("namespace")));
    pair.ends[1].engine.destroy_qp(second).expect("it exists");
    pair.ends[1].others.retain(|qpn| *qpn != second);
    pair.ends[1].engine.nvme().destroy_namespace(slow).expect("no target uses the namespace");
    pair.ends[0].engine.modify_to_error(first).expect("it exists");
    pair.ends[0].take();
    command(&mut pair, ours, 0, false, (0, 8), BASE);
    pair.run_for(Duration::from_ms(20));
    let ended = pair.ends[0].take();
    assert!(ended.contains(&(0, WcStatus::Success)), "{ended:?}");
    pair.ends[1].engine.modify_to_reset(theirs).expect("it exists");
    pair.run_for(Duration::from_ms(20));
    assert!(pair.ends[1].engine.falcon_stats().is_some_and(|stats| stats.is_idle));
}

/// Several targets hold their share of the NIC's resources with responses, and one holds most of them when it is
/// destroyed. Those that hold the least must continue immediately, all of them: after a target has sent responses the
/// next one is tried, even though the first has more to send.
#[test]
fn f35_targets_continue_when_another_releases_its_resources() {
    let small = Setup { mtu: 4_096, depth: 32, ..Setup::new(&[("resources", "2")]) };
    let mut pair = Pair::unconnected(&small, |_| DELIVERED);
    // The NIC of the initiators has enough resources for all of them.
    let Side { engine, pd, cq, qpn, .. } = &mut pair.ends[0];
    engine.destroy_qp(*qpn).expect("it exists");
    let large = Setup::new(&[("resources", "1000")]);
    engine.create_qp(&attributes(&large, *pd, *cq, None)).expect("the NIC has no other Falcon queue pair");
    let key = pair.ends[1].key;
    let target = namespace(&mut pair, key);
    let roles = [Some(initiator(NUMBER, Reads::Pull)), Some(NvmeRole::Target(target))];
    let ends: Vec<[Qpn; 2]> = (0..6).map(|_| pair.connect_nvme(&setup(), roles)).collect();
    // Packets of the targets are delayed for a long time.
    pair.set_fate(|sent| if sent.from == 1 { [Some(Duration::from_ms(5)), None] } else { DELIVERED });
    for [ours, _] in &ends {
        (0..16).for_each(|wr_id| command(&mut pair, *ours, wr_id, false, (0, BLOCKS as u32), BASE));
        pair.run_for(Duration::from_us(150));
    }
    let answers = |pair: &Pair, to: Qpn| {
        let is_answer = |sent: &&Sent| sent.kind == TransmitKind::Response && sent.packet.cid.get() == to.get();
        pair.log.iter().filter(is_answer).count()
    };
    let before: Vec<usize> = ends.iter().map(|[ours, _]| answers(&pair, *ours)).collect();
    pair.ends[1].engine.destroy_qp(ends[0][1]).expect("it exists");
    pair.ends[1].others.retain(|qpn| *qpn != ends[0][1]);
    pair.run_for(Duration::from_ns(1));
    let after: Vec<usize> = ends.iter().map(|[ours, _]| answers(&pair, *ours)).collect();
    // Each had half of what those before it had left; the others hold as much as is free.
    assert!((3..6).all(|end| after[end] > before[end]), "{before:?} responses before, {after:?} after");
}

/// S-27: a scheduler divides the link between NVMe and RDMA, and neither the initiator nor the program knows of it: the
/// commands are those of every other test here.
#[test]
fn s27_a_scheduler_divides_the_link_between_nvme_and_rdma() {
    for schedule in ["static", "water-filling"] {
        let setup = Setup { mtu: 4_096, depth: 64, ..Setup::new(&[("schedule", schedule)]) };
        let (mut pair, [drive, _]) = with_drive(&setup, Reads::Push);
        let rdma = pair.ends[0].qpn;
        let capacity = BitRate::gbps(2);
        let now = pair.now;
        pair.ends[0].engine.sharing().set_capacity(Some(capacity));
        pair.ends[0].engine.sharing().set_weight(now, drive, 3).expect("a valid weight");
        for wr_id in 0..64 {
            command(&mut pair, drive, wr_id, true, (0, 64), BASE);
            let remote = pair.remote(0, BASE);
            pair.ends[0].post_on(rdma, wr_id, SendOp::Write { remote, immediate: None }, BASE, 64 * BLOCK);
        }
        pair.run_for(Duration::from_ms(1));
        let begin = pair.now;
        pair.run_for(Duration::from_ms(3));
        let data = || pair.log.iter().filter(|sent| sent.from == 0 && sent.at >= begin);
        let bytes = |qpn: Qpn| -> u64 {
            data().filter(|sent| sent.qpn == qpn).map(|sent| u64::from(sent.packet.payload_len)).sum()
        };
        let (three, one) = (bytes(drive), bytes(rdma));
        assert!((5 * one / 2..=7 * one / 2).contains(&three), "{schedule}: {three} and {one}");
        let total = capacity.bytes_in(Duration::from_ms(3));
        assert!((one + three) * 10 >= total * 8, "{schedule}: {one} and {three} of {total}");
        pair.run_for(Duration::from_ms(60));
        let completions = pair.ends[0].take();
        assert_eq!(completions.len(), 128, "{schedule}");
        assert!(completions.iter().all(|(_, status)| *status == WcStatus::Success), "{schedule}");
    }
}

/// S-22, S-27: the data of Reads come from the drive's side, whose scheduler divides the link that they use. An
/// initiator that only reads is not held, although its commands are for much data.
#[test]
fn s27_reads_of_a_drive_are_not_held_by_the_scheduler_of_the_initiator() {
    let setup = Setup { mtu: 4_096, depth: 64, ..Setup::new(&[("schedule", "water-filling")]) };
    let (mut pair, [drive, _]) = with_drive(&setup, Reads::Push);
    pair.ends[0].engine.sharing().set_capacity(Some(BitRate::gbps(1)));
    for wr_id in 0..32 {
        command(&mut pair, drive, wr_id, false, (0, 64), BASE);
    }
    pair.run_for(Duration::from_ms(2));
    // 1 MB of Reads: more than 8 ms at the capacity of the initiator's side.
    assert_eq!(pair.ends[0].take().len(), 32);
    assert_eq!(pair.ends[0].engine.shares().members, 0);
}
