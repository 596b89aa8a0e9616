//! The checkers of a run find what is planted.

use core::ops::ControlFlow;

use rnic_base::{Psn, Time};
use rnic_engine::{Completion, WcFlags, WcOpcode, WcStatus};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

use super::Simulation;
use crate::Plan;
use crate::host::memory::Block;
use crate::packets::Ends;

/// One flow of ten messages from host 1 to host 0, 80 us long.
const PLAN: &str = r#"
    name = "planted"
    mtu = 1024
    payload = "checked"
    topology = { kind = "star", hosts = 2 }
    links = { rate = "100Gbps", delay = "1us" }
    switch = { model = "input-queued", buffer = "100KB" }
    transport = { name = "irn" }
    workload = { kind = "closed-loop", op = "write-imm", message = "100KB", depth = 2, count = 10, from = 1, to = 0 }
    run = { stall_after = "5ms" }
"#;

/// A run that has come as far as `until`.
fn under_way(overrides: &[(&str, &str)], until: Time) -> Simulation {
    let plan = Plan::from_toml_with(PLAN, overrides, &mut |_| Err("no file".to_owned())).expect("a sound plan");
    let mut simulation = Simulation::new(&plan, 1).expect("a sound plan");
    while simulation.now < until {
        let next = simulation.next_event();
        simulation.window(next);
    }
    simulation
}

/// What the report complains of after the rest of the run.
fn complaint(mut simulation: Simulation) -> String {
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    let failure = report.check().expect_err("the planted fault is found").to_string();
    assert!(failure.contains("planted") && failure.contains("seed 1"), "it says how to repeat it: {failure}");
    failure
}

/// Where the receiver has the flow's messages.
fn target(simulation: &Simulation) -> Block {
    let live = simulation.live.iter().next().expect("the flow is under way");
    live.buffers[1].block.expect("bytes matter")
}

const EARLY: Time = Time::from_us(12);

#[test]
fn without_a_planted_fault_nothing_is_found() {
    let mut simulation = under_way(&[], EARLY);
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().expect("all is well");
    assert_eq!((report.flows, report.messages), (1, 10));
}

#[test]
fn a_wrong_byte_is_found() {
    // The first message is 8 us long and half there: what has arrived changes.
    let mut simulation = under_way(&[], Time::from_us(6));
    let block = target(&simulation);
    let memory = simulation.parts.host_mut(0).memory.as_mut().expect("bytes matter");
    memory.bytes_mut(block.local + 7, 1)[0] ^= 0x10;
    let found = complaint(simulation);
    assert!(found.contains("message 0 is wrong from byte 7"), "{found}");
}

#[test]
fn a_byte_beside_the_memory_is_found() {
    let mut simulation = under_way(&[], EARLY);
    let block = target(&simulation);
    let memory = simulation.parts.host_mut(0).memory.as_mut().expect("bytes matter");
    memory.bytes_mut(block.local + block.len, 1)[0] ^= 1;
    let found = complaint(simulation);
    assert!(found.contains("bytes beside the memory"), "{found}");
}

#[test]
fn a_second_completion_is_found() {
    let mut simulation = under_way(&[], Time::from_us(40));
    let live = simulation.live.iter().next().expect("the flow is under way");
    let (sender, qpn) = (live.sender, live.src_qpn);
    let completion = Completion {
        wr_id: u64::from(sender) << 32,
        qpn,
        status: WcStatus::Success,
        opcode: WcOpcode::RdmaWrite,
        byte_len: 0,
        word: 0,
        flags: WcFlags::empty(),
        source: Qpn::new(0),
    };
    let now = simulation.now;
    let crate::host::Host { sessions, engine, memory, violations, .. } = simulation.parts.host_mut(1);
    sessions.complete(now, &completion, engine, memory.as_mut(), violations);
    let found = complaint(simulation);
    assert!(found.contains("completion 0 of queue 0 came twice"), "{found}");
}

#[test]
fn a_packet_that_nobody_has_is_found() {
    let mut simulation = under_way(&[], EARLY);
    let flags = PacketFlags::default();
    let packet = Packet { dest_qpn: Qpn::new(5), psn: Psn::new(1), flags, payload_len: 0, headers: Headers::Cnp };
    simulation
        .parts
        .part_mut(0)
        .network
        .packets
        .insert(&packet, Ends { src: 0, source_port: 0xc000, format: Format::Irn });
    let found = complaint(simulation);
    assert!(found.contains("1 packets without an owner"), "{found}");
}

#[test]
fn bytes_that_a_switch_miscounts_are_found() {
    let mut simulation = under_way(&[], EARLY);
    simulation.parts.part_mut(0).switches[0].miscount(1, 64);
    let found = complaint(simulation);
    assert!(found.contains("64 bytes in a switch that come from nowhere"), "{found}");
}

#[test]
fn memory_that_nobody_gives_back_is_found() {
    let mut simulation = under_way(&[], EARLY);
    simulation.parts.host_mut(0).memory.as_mut().expect("bytes matter").allocate(100);
    let found = complaint(simulation);
    assert!(found.contains("228 bytes of memory"), "with its guards: {found}");
}

/// A pause of `host` that never ends.
fn silenced(host: u32, transport: &str) -> String {
    let mut simulation = under_way(&[("transport", transport)], EARLY);
    let now = simulation.now;
    simulation.parts.host_mut(host).port.pause(now);
    complaint(simulation)
}

#[test]
fn a_standstill_is_found_and_told_of() {
    // No acknowledgement leaves; what is sent again and again is no progress.
    let found = silenced(0, r#"{ name = "irn" }"#);
    assert!(found.contains("no useful packet since"), "{found}");
    for part in ["flow 0 from host 1 to 0", "1 of 10 messages done", "packets in flight", "the other host is paused"] {
        assert!(found.contains(part), "{part}: {found}");
    }
    // Nothing in flight, no timer: nothing is left to happen at all.
    let found = silenced(1, r#"{ name = "roce-gbn", rto = 0 }"#);
    assert!(found.contains("nothing will ever happen again") && found.contains("its host is paused"), "{found}");
}

#[test]
fn a_network_that_loses_everything_is_a_standstill() {
    let everything = ("fault", r#"[{ kind = "drop", probability = "100%", packets = "data" }]"#);
    let found = complaint(under_way(&[everything], EARLY));
    assert!(
        found.contains("no useful packet since") && found.contains(" in flight (0 of them arrived in order), "),
        "{found}"
    );
}

/// A message every 80 ms or so leaves nothing to happen for longer than the checker's patience. That is no standstill;
/// messages that nobody gets are one.
#[test]
fn silence_between_messages_is_no_standstill() {
    let seldom =
        r#"{ kind = "open-loop", op = "write", message = "1KB", load = "0.0001%", duration = "2s", from = 1, to = 0 }"#;
    let mut simulation = under_way(&[("workload", seldom)], EARLY);
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().expect("all is well");
    assert!((10..40).contains(&report.messages), "{}", report.messages);
    let lost = ("fault", r#"[{ kind = "drop", probability = "100%", packets = "data" }]"#);
    let found = complaint(under_way(&[("workload", seldom), lost], EARLY));
    assert!(found.contains("no useful packet since"), "{found}");
}

/// A host that writes the same blocks of a drive again and again.
const DRIVE: &[(&str, &str)] = &[
    ("mtu", "4096"),
    ("transport", r#"{ name = "falcon", ordering = "unordered" }"#),
    (
        "workload",
        r#"{ kind = "nvme", op = "write", message = "256KiB", depth = 4, from = 1, to = 0, duration = "2ms",
            drive = { read_rate = "90Gbps", read_latency = "5us", write_rate = "90Gbps", write_latency = "5us",
            queue_depth = 256 } }"#,
    ),
];

#[test]
fn a_block_of_a_drive_that_has_its_data_of_an_earlier_command_is_found() {
    let mut simulation = under_way(DRIVE, Time::from_us(1_000));
    let block = simulation.drive.and_then(|drive| drive.buffers.block).expect("bytes matter");
    let memory = |simulation: &mut Simulation| -> Vec<u8> {
        let memory = simulation.parts.host_mut(0).memory.as_ref().expect("bytes matter");
        memory.bytes(block.local, block.len).to_vec()
    };
    let before = memory(&mut simulation);
    while simulation.next_event() != crate::agenda::NEVER {
        let next = simulation.next_event();
        simulation.window(next);
    }
    let after = memory(&mut simulation);
    let mut pairs = before.chunks(512).zip(after.chunks(512));
    let stale = |(old, new): (&[u8], &[u8])| old != new && old.iter().any(|byte| *byte != 0);
    let number = pairs.position(stale).expect("some block was written before and behind that time");
    let old = &before[number * 512..][..512];
    let memory = simulation.parts.host_mut(0).memory.as_mut().expect("bytes matter");
    memory.bytes_mut(block.local + number as u64 * 512, 512).copy_from_slice(old);
    let found = complaint(simulation);
    assert!(found.contains(&format!("block {number} of the drive is not what was written")), "{found}");
}
