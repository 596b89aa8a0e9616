//! The checkers of a run detect injected errors.

use core::ops::ControlFlow;

use rnic_base::{Psn, Time};
use rnic_engine::{Completion, WcFlags, WcOpcode, WcStatus};
use rnic_wire::{Format, Headers, Packet, PacketFlags, Qpn};

use super::Simulation;
use crate::Plan;
use crate::host::memory::Block;
use crate::packets::Endpoints;

/// Creates a run with one flow of ten messages from host 1 to host 0, which takes 80 us.
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

/// Creates the run and advances it to `until`.
fn in_flight(overrides: &[(&str, &str)], until: Time) -> Simulation {
    let plan = Plan::from_toml_with(PLAN, overrides, &mut |_| Err("no file".to_owned())).expect("the plan is valid");
    let mut simulation = Simulation::new(&plan, 1).expect("the plan is valid");
    while simulation.now < until {
        let next = simulation.next_event();
        simulation.window(next);
    }
    simulation
}

/// Runs to the end and returns the violations in the report.
fn failure_of(mut simulation: Simulation) -> String {
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    let failure = report.check().expect_err("the injected error is found").to_string();
    assert!(failure.contains("planted") && failure.contains("seed 1"), "plan or seed is missing: {failure}");
    failure
}

/// Returns the address of the receiver's buffers.
fn target(simulation: &Simulation) -> Block {
    let (_, active) = simulation.active.iter().next().expect("the flow is active");
    active.buffers[1].block.expect("payload is checked")
}

const AFTER_FIRST_MESSAGE: Time = Time::from_us(12);

#[test]
fn a_run_without_an_injected_error_has_no_violations() {
    let mut simulation = in_flight(&[], AFTER_FIRST_MESSAGE);
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().expect("the run has no violations");
    assert_eq!((report.flows, report.messages), (1, 10));
}

#[test]
fn a_wrong_byte_is_found() {
    // The first message takes 8 us, and half of it has arrived: a change of the half that has arrived is detected.
    let mut simulation = in_flight(&[], Time::from_us(6));
    let block = target(&simulation);
    let memory = simulation.parts.host_mut(0).memory.as_mut().expect("payload is checked");
    memory.bytes_mut(block.local + 7, 1)[0] ^= 0x10;
    let found = failure_of(simulation);
    assert!(found.contains("message 0 is wrong from byte 7"), "{found}");
}

#[test]
fn a_write_outside_the_memory_is_found() {
    let mut simulation = in_flight(&[], AFTER_FIRST_MESSAGE);
    let block = target(&simulation);
    let memory = simulation.parts.host_mut(0).memory.as_mut().expect("payload is checked");
    memory.bytes_mut(block.local + block.len, 1)[0] ^= 1;
    let found = failure_of(simulation);
    assert!(found.contains("bytes outside the memory"), "{found}");
}

#[test]
fn a_second_completion_is_found() {
    let mut simulation = in_flight(&[], Time::from_us(40));
    let (_, active) = simulation.active.iter().next().expect("the flow is active");
    let (sender, qpn) = (active.sender, active.src_qpn);
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
    let found = failure_of(simulation);
    assert!(found.contains("completion 0 of queue 0 was delivered twice"), "{found}");
}

#[test]
fn a_leaked_packet_is_found() {
    let mut simulation = in_flight(&[], AFTER_FIRST_MESSAGE);
    let flags = PacketFlags::default();
    let packet = Packet { dest_qpn: Qpn::new(5), psn: Psn::new(1), flags, payload_len: 0, headers: Headers::Cnp };
    simulation
        .parts
        .part_mut(0)
        .network
        .packets
        .insert(&packet, Endpoints { src: 0, source_port: 0xc000, format: Format::Irn });
    let found = failure_of(simulation);
    assert!(found.contains("1 packets in no queue"), "{found}");
}

#[test]
fn bytes_that_a_switch_miscounts_are_found() {
    let mut simulation = in_flight(&[], AFTER_FIRST_MESSAGE);
    simulation.parts.part_mut(0).switches[0].add_unaccounted_bytes(1, 64);
    let found = failure_of(simulation);
    assert!(found.contains("64 unaccounted bytes in a switch"), "{found}");
}

#[test]
fn memory_that_is_not_freed_is_found() {
    let mut simulation = in_flight(&[], AFTER_FIRST_MESSAGE);
    simulation.parts.host_mut(0).memory.as_mut().expect("payload is checked").allocate(100);
    let found = failure_of(simulation);
    assert!(found.contains("228 bytes of flow memory"), "with its guards: {found}");
}

/// Pauses `host` forever.
fn failure_with_paused_host(host: u32, transport: &str) -> String {
    let mut simulation = in_flight(&[("transport", transport)], AFTER_FIRST_MESSAGE);
    let now = simulation.now;
    simulation.parts.host_mut(host).port.pause(now);
    failure_of(simulation)
}

#[test]
fn a_stall_and_a_deadlock_are_found_and_described() {
    // All acknowledgements are lost: retransmissions are not progress.
    let found = failure_with_paused_host(0, r#"{ name = "irn" }"#);
    assert!(found.contains("no useful packet has arrived since"), "{found}");
    for part in
        ["flow 0 from host 1 to 0", "1 of 10 messages complete", "packets in flight", "its receiving host is paused"]
    {
        assert!(found.contains(part), "{part}: {found}");
    }
    // With no packet in flight and no timer set there are no more events.
    let found = failure_with_paused_host(1, r#"{ name = "roce-gbn", rto = 0 }"#);
    assert!(found.contains("deadlock, no event is left") && found.contains("its sending host is paused"), "{found}");
}

#[test]
fn a_network_that_loses_every_packet_stalls() {
    let everything = ("fault", r#"[{ kind = "drop", probability = "100%", packets = "data" }]"#);
    let found = failure_of(in_flight(&[everything], AFTER_FIRST_MESSAGE));
    assert!(
        found.contains("no useful packet has arrived since")
            && found.contains(" in flight (0 of them have arrived in order), "),
        "{found}"
    );
}

/// With about one message every 80 ms, there are periods without events that are longer than the stall interval.
/// These are no stall, but messages that are never received are.
#[test]
fn long_gaps_between_messages_are_no_stall() {
    let rare_messages =
        r#"{ kind = "open-loop", op = "write", message = "1KB", load = "0.0001%", duration = "2s", from = 1, to = 0 }"#;
    let mut simulation = in_flight(&[("workload", rare_messages)], AFTER_FIRST_MESSAGE);
    let report = simulation.run(&mut |_| ControlFlow::Continue(()));
    report.check().expect("the run has no violations");
    assert!((10..40).contains(&report.messages), "{}", report.messages);
    let lost = ("fault", r#"[{ kind = "drop", probability = "100%", packets = "data" }]"#);
    let found = failure_of(in_flight(&[("workload", rare_messages), lost], AFTER_FIRST_MESSAGE));
    assert!(found.contains("no useful packet has arrived since"), "{found}");
}

/// A host that writes the same blocks of a drive repeatedly.
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
fn a_drive_block_with_stale_data_is_found() {
    let mut simulation = in_flight(DRIVE, Time::from_us(1_000));
    let block = simulation.drive.and_then(|drive| drive.buffers.block).expect("payload is checked");
    let memory = |simulation: &mut Simulation| -> Vec<u8> {
        let memory = simulation.parts.host_mut(0).memory.as_ref().expect("payload is checked");
        memory.bytes(block.local, block.len).to_vec()
    };
    let before = memory(&mut simulation);
    while simulation.next_event() != crate::calendar::NEVER {
        let next = simulation.next_event();
        simulation.window(next);
    }
    let after = memory(&mut simulation);
    let mut pairs = before.chunks(512).zip(after.chunks(512));
    let stale = |(old, new): (&[u8], &[u8])| old != new && old.iter().any(|byte| *byte != 0);
    let number = pairs.position(stale).expect("a block was written before and after that time");
    let old = &before[number * 512..][..512];
    let memory = simulation.parts.host_mut(0).memory.as_mut().expect("payload is checked");
    memory.bytes_mut(block.local + number as u64 * 512, 512).copy_from_slice(old);
    let found = failure_of(simulation);
    assert!(found.contains(&format!("block {number} of the drive differs from the written data")), "{found}");
}
