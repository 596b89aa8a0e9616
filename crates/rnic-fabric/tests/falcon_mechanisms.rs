//! Falcon's mechanisms as seen in a network and with several transports: F-24, F-39, F-43.

mod common;

use common::*;
use rnic_base::{Duration, RandomStreams};
use rnic_engine::{RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_fabric::report::PacketBufferFigures;
use rnic_fabric::simulation::QueuePairSpec;
use rnic_fabric::{Plan, Report, Simulation};

/// Runs a host that sends to another pod, over links with a tenth of its own rate. `more` are options of the
/// transport.
fn to_another_pod(more: &str, fault: &str) -> Report {
    let transport = format!("{{ name = \"falcon\", paths = \"largest-window\", {more} }}");
    let with = [
        ("links", r#"{ rate = "100Gbps", delay = "1us", fabric = { rate = "10Gbps" } }"#),
        ("switch", r#"{ model = "shared-buffer", buffer = "2MB" }"#),
        ("transport", transport.as_str()),
        (
            "workload",
            r#"{ kind = "closed-loop", op = "write", message = "64KB", depth = 16, duration = "3ms", to = 12 }"#,
        ),
        ("run", r#"{ warmup = "1ms" }"#),
        ("fault", fault),
    ];
    run(TREE, &with, 1)
}

/// F-24: flows of one queue pair have different labels, which switches hash to different uplinks.
#[test]
fn f24_labels_of_one_queue_pair_take_several_uplinks() {
    let goodput = |flows| {
        let report = to_another_pod(&format!("flows = {flows}"), "[]");
        report.steady_goodput_gbps.expect("the workload has a duration")
    };
    let (one, eight) = (goodput(1), goodput(8));
    assert!((7.5..10.0).contains(&one), "one label is one path of 10 Gbit/s: {one}");
    assert!(eight > 12.0, "eight labels find more than one: {eight} Gbit/s");
}

/// F-24: while no flow changes its label, each label has one path. A port is in use if dropping packets there has an
/// effect.
#[test]
fn f24_one_label_uses_one_port_of_each_layer_and_eight_use_more() {
    let ports = ["edge-0>agg-0", "edge-0>agg-1", "agg-0>core-0", "agg-0>core-1", "agg-1>core-2", "agg-1>core-3"];
    let used = |flows| {
        let is_used = |port: &&str| {
            let fault = format!(r#"[{{ kind = "drop", links = "{port}", probability = "2%" }}]"#);
            let report = to_another_pod(&format!("flows = {flows}, plb_rounds = 0, prr_timeouts = 0"), &fault);
            report.drops.fault > 0
        };
        ports.iter().filter(|port| is_used(port)).copied().collect::<Vec<_>>()
    };
    let (one, eight) = (used(1), used(8));
    let uplinks =
        |ports: &[&str]| [0, 1].map(|layer| ports.iter().filter(|port| port.starts_with(["e", "a"][layer])).count());
    assert_eq!(uplinks(&one), [1, 1], "one label: {one:?}");
    // Eight labels hashed to four ports fill all in five cases of eight, and three in nearly all others.
    let [lower, upper] = uplinks(&eight);
    assert!(lower == 2 && upper >= 3, "eight labels: {eight:?}");
}

/// Returns the microseconds that 8 MB from host 0 to host 1 take beside other flows of the same NIC to host 2, which
/// lose the share `loss` of their packets; and the number of timeouts.
fn beside_others(loss: &str) -> (f64, u64) {
    let mut lines = "0us,0,1,8MB\n".to_owned();
    (0..64).for_each(|_| lines.push_str("0us,0,2,4KB\n"));
    let fault = format!("[{{ kind = \"drop\", links = \"switch-0>host-2\", probability = \"{loss}\" }}]");
    let with = [
        ("workload", r#"{ kind = "trace", file = "flows.csv" }"#),
        // Without probes, so that timeouts occur.
        ("transport", r#"{ name = "falcon", recovery = "ooo-distance" }"#),
        ("switch.buffer", "1MB"),
        ("fault", fault.as_str()),
    ];
    let plan = Plan::from_toml_with(STAR, &with, &mut |_| Ok(lines.clone())).expect("the plan is valid");
    let report = finish(Simulation::new(&plan, 1).expect("the plan is valid"));
    report.check().expect("no checked property is violated");
    assert_eq!(report.flows_unfinished, 0);
    let clean = report.records.iter().find(|flow| flow.dst == 1).expect("the flow is complete");
    (clean.fct.as_ns() as f64 / 1_000.0, report.timeouts)
}

/// F-39: half of the packets of a NIC's other connections is lost repeatedly; a connection without losses is not
/// affected.
#[test]
fn f39_a_lossy_connection_does_not_slow_others() {
    let (quiet, timeouts) = beside_others("0%");
    assert_eq!(timeouts, 0);
    let (lossy, timeouts) = beside_others("50%");
    println!("{lossy} us beside connections in trouble ({timeouts} timeouts), {quiet} beside quiet ones");
    assert!(timeouts > 20, "the others have few timeouts: {timeouts}");
    assert!(lossy < quiet * 1.05, "{lossy} us beside connections in trouble, {quiet} beside quiet ones");
}

/// F-15: the options of `rack-tlp` still apply after the adaptive engine has measured something, which here is nearly
/// always the case.
#[test]
fn f15_options_of_rack_tlp_apply_with_the_adaptive_engine() {
    let with = |options: &str, fault: &str| {
        let transport = format!("{{ name = \"falcon\", {options} }}");
        run(WIRE, &[("transport", transport.as_str()), ("fault", fault)], 1)
    };
    let late = r#"[{ kind = "reorder", probability = "5%", displacement = 30, packets = "data" }]"#;
    let again = |options: &str| with(options, late).packets_retransmitted;
    let (none, default, long) = (again("reorder_percent = 0"), again(""), again("reorder_min = \"100us\""));
    println!("sent again, of packets that are late: {none}, {default} by default, {long}");
    assert!(none > default && long == 0, "{none}, {default} by default, {long}");
    let loss = r#"[{ kind = "drop", probability = "5%" }]"#;
    let waits = |options: &str| with(options, loss).timeouts;
    let (probed, unprobed) = (waits(""), waits("probe_min = \"1s\""));
    println!("timeouts: {probed} with probes, {unprobed} where they come too late");
    assert!(unprobed > probed, "{unprobed}, {probed} with probes");
}

/// F-35: with the defaults, limits on shares of the free resources do not slow down a connection that is alone.
/// (Reads are bounded by the number that may be outstanding.)
#[test]
fn f35_a_single_connection_fills_the_link() {
    for (op, least) in [("write", 185.0), ("send", 185.0), ("read", 90.0)] {
        let goodput = |transport: &str| {
            let workload = format!(
                "{{ kind = \"closed-loop\", op = \"{op}\", message = \"8KB\", depth = 256, duration = \"2ms\" }}"
            );
            let with = [
                ("mtu", "4096"),
                ("links", r#"{ rate = "200Gbps", delay = "5us" }"#),
                ("transport", transport),
                ("workload", workload.as_str()),
                ("run", r#"{ warmup = "1ms" }"#),
            ];
            run(WIRE, &with, 1).steady_goodput_gbps.expect("the workload has a duration")
        };
        let (shares, alone) =
            (goodput(r#"{ name = "falcon" }"#), goodput(r#"{ name = "falcon", isolation = "none" }"#));
        assert!(shares > least && shares > 0.99 * alone, "{op}: {shares} of 200 Gbit/s, {alone} without shares");
    }
}

/// F-43: a program that uses verbs does not depend on the transport: the same requests, the same bytes and the same
/// completions, over four transports and a network that loses, duplicates and reorders packets.
#[test]
fn f43_the_same_program_runs_over_every_transport() {
    const FAULTS: &str = r#"[{ kind = "drop", packets = "data", probability = "1%" },
        { kind = "duplicate", probability = "1%" }, { kind = "reorder", probability = "2%", displacement = 3 }]"#;
    let falcon = [r#"{ name = "falcon" }"#, r#"{ name = "falcon", flows = 4, ordering = "weak" }"#];
    for op in ["write", "write-imm", "send", "read", "fetch-add"] {
        let message = if op == "fetch-add" { "8B" } else { "20KB" };
        let workload =
            format!("{{ kind = \"closed-loop\", op = \"{op}\", message = \"{message}\", depth = 4, count = 60 }}");
        for transport in TRANSPORTS.into_iter().chain(falcon) {
            let with = [("workload", &*workload), ("transport", transport), ("payload", "checked"), ("fault", FAULTS)];
            let report = run(WIRE, &with, 3);
            assert_eq!(
                (report.messages, report.bytes),
                (60, 60 * if op == "fetch-add" { 8 } else { 20_000 }),
                "{op}: {transport}"
            );
        }
    }
}

/// Returns the median time in nanoseconds of a Read of 8 bytes, one at a time, each over a connection that is chosen
/// at random among `connections`, with a NIC whose chip holds the state of 256 (figure 21); and the share of packets
/// whose state was not on the chip.
fn ping_pong(connections: usize, nic: &str) -> (u64, f64) {
    let manual = ("workload", r#"{ kind = "manual" }"#);
    let with = [manual, ("transport", r#"{ name = "falcon" }"#), ("nic", nic), ("payload", "checked")];
    let mut simulation = simulation(WIRE, &with, 1);
    let spec = QueuePairSpec { sends: 4, receives: 4, sges: 1 };
    let ends: Vec<_> = (0..connections).map(|_| simulation.connect_manually(0, 1, spec).0).collect();
    let (_, addr, lkey) = simulation.allocate(0, 64);
    let (_, remote, rkey) = simulation.allocate(1, 64);
    let mut random = RandomStreams::new(1).stream("choice");
    let mut times = Vec::new();
    for wr_id in 0..4_000 {
        let qpn = ends[random.below(connections as u64) as usize];
        let op = SendOp::Read { remote: RemoteMemory { addr: remote, rkey } };
        let sges = &[Sge { addr, len: 8, lkey }];
        let request = SendRequest { wr_id, op, sges, flags: SendFlags::SIGNALED };
        let posted = simulation.now();
        simulation.post_send(0, qpn, &request).expect("the queue has a free entry");
        let limit = posted + Duration::from_ms(1);
        let done = loop {
            if let Some((at, completion)) = simulation.poll(0) {
                assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Success));
                break at;
            }
            assert!(simulation.now() < limit, "the Read has not completed");
            let next = simulation.now() + Duration::from_us(1);
            simulation.advance(next);
        };
        times.push(done.since(posted).as_ns());
        // Sends the acknowledgements that were held back.
        let quiet = simulation.now() + Duration::from_us(20);
        simulation.advance(quiet);
    }
    times.sort_unstable();
    let report = finish(simulation);
    (times[times.len() / 2], report.nic.expect("the plan models the NIC").miss_share)
}

/// Returns the rate of 8-byte Writes over `queue_pairs` queue pairs, in millions per second, with a NIC that sends
/// one packet of each queue pair every 50 ns and one in all every 10 ns (figure 20b).
fn small_writes(queue_pairs: u32) -> f64 {
    let pairs = queue_pairs.to_string();
    let workload = r#"{ kind = "closed-loop", op = "write", message = 8, depth = 128, duration = "400us" }"#;
    let with = [
        ("mtu", "4096"),
        ("links", r#"{ rate = "200Gbps", delay = "500ns" }"#),
        ("transport", r#"{ name = "falcon" }"#),
        ("nic", r#"{ qp_cycle = "50ns", cycle = "10ns" }"#),
        ("workload", workload),
        ("workload.queue_pairs", &*pairs),
        ("run", r#"{ warmup = "200us" }"#),
    ];
    let gbps = run(WIRE, &with, 1).steady_goodput_gbps.expect("the workload has a duration");
    gbps * 1e3 / 64.0
}

/// F-R17: a queue pair reaches its own limit, and all together reach that of the NIC: taking turns costs no
/// throughput.
#[test]
fn alternating_queue_pairs_reach_the_packet_rate_limits() {
    for (queue_pairs, mops) in [(1, 20.0), (3, 60.0), (5, 100.0), (12, 100.0), (64, 100.0)] {
        let found = small_writes(queue_pairs);
        assert!((mops * 0.98..mops * 1.02).contains(&found), "{queue_pairs} queue pairs: {found} million a second");
    }
}

/// F-38: with continuous misses, a Read is slower by a fraction, not by a multiple; with the state in host memory it
/// is slower by a multiple.
#[test]
fn f38_continuous_misses_slow_a_read_by_a_fraction_only() {
    const NIC_MEMORY: &str = r#"{ qpc_entries = 256, bus_latency = "250ns" }"#;
    let (few, hits) = ping_pong(64, NIC_MEMORY);
    let (many, misses) = ping_pong(8_192, NIC_MEMORY);
    let (host, _) = ping_pong(8_192, r#"{ qpc_entries = 256, bus_latency = "3us" }"#);
    // With a second level, step by step: all on the chip, most in the second level, most in the NIC's memory.
    const TWO_LEVELS: &str =
        r#"{ qpc_entries = 256, second_entries = 2048, second_latency = "60ns", bus_latency = "250ns" }"#;
    let steps = [64, 1_024, 8_192].map(|connections| ping_pong(connections, TWO_LEVELS));
    println!("over two levels {steps:?}");
    let [(on_chip, _), (second, in_second), (memory, in_memory)] = steps;
    assert!(on_chip == few && in_second < 0.1 && in_memory > 0.15, "{steps:?}");
    assert!(on_chip < second && second < memory && memory <= many, "{steps:?}: each step costs");
    assert!(second * 2 < on_chip * 3 && memory * 2 < second * 3, "{steps:?}: and none is a cliff");
    println!("{few} ns with 64 connections, {many} with 8192 ({misses:.3} misses), {host} from the host's memory");
    // A Read sends and receives some eight packets; the first one at either end misses.
    assert!(hits < 0.02 && misses > 0.2, "misses: {hits} and {misses}");
    assert!(many > few && many < few * 3 / 2, "{many} ns after {few}");
    assert!(host > few * 2, "over the host's bus {host} ns");
}

/// Returns the median nanoseconds of Writes of 8 bytes, eight every microsecond, each on the connection that was idle
/// longest; and the share of packets whose state was not on the chip.
fn round_robin(nic: &str) -> (u64, f64) {
    const CONNECTIONS: u64 = 512;
    let manual = ("workload", r#"{ kind = "manual" }"#);
    let with = [manual, ("transport", r#"{ name = "falcon" }"#), ("nic", nic), ("payload", "checked")];
    let mut simulation = simulation(WIRE, &with, 1);
    let spec = QueuePairSpec { sends: 4, receives: 4, sges: 1 };
    let ends: Vec<_> = (0..CONNECTIONS).map(|_| simulation.connect_manually(0, 1, spec).0).collect();
    let (_, addr, lkey) = simulation.allocate(0, 64);
    let (_, remote, rkey) = simulation.allocate(1, 64);
    let (mut posted, mut times) = (Vec::new(), Vec::new());
    let limit = simulation.now() + Duration::from_ms(2);
    while times.len() < 4_000 {
        for _ in 0..8.min(4_000 - posted.len()) {
            let wr_id = posted.len() as u64;
            let op = SendOp::Write { remote: RemoteMemory { addr: remote, rkey }, immediate: None };
            let sges = &[Sge { addr, len: 8, lkey }];
            let request = SendRequest { wr_id, op, sges, flags: SendFlags::SIGNALED };
            posted.push(simulation.now());
            simulation
                .post_send(0, ends[(wr_id % CONNECTIONS) as usize], &request)
                .expect("the queue has a free entry");
        }
        while let Some((at, completion)) = simulation.poll(0) {
            assert_eq!(completion.status, WcStatus::Success);
            times.push(at.since(posted[completion.wr_id as usize]).as_ns());
        }
        assert!(simulation.now() < limit, "{} are done", times.len());
        let next = simulation.now() + Duration::from_us(1);
        simulation.advance(next);
    }
    times.sort_unstable();
    (times[times.len() / 2], finish(simulation).nic.expect("the plan models the NIC").miss_share)
}

/// F-38: with hardly any hit, a Write waits once for each of its packets, and the rate stays the same.
#[test]
fn f38_nearly_continuous_misses_delay_a_write_once_per_packet() {
    let (on_chip, none) = round_robin(r#"{ qpc_entries = 1024, bus_latency = "250ns" }"#);
    let (off_chip, nearly_all) = round_robin(r#"{ qpc_entries = 1, bus_latency = "250ns" }"#);
    println!("{on_chip} ns with {none:.3} misses, {off_chip} with {nearly_all:.3}");
    assert!(none < 0.1 && nearly_all > 0.9, "misses: {none} and {nearly_all}");
    // One packet and its acknowledgement are sent and received: four misses of a quarter of a microsecond each.
    assert!(off_chip > on_chip + 500 && off_chip < on_chip + 1_200, "{off_chip} ns after {on_chip}");
}

/// Returns the goodput of four connections in Gbit/s, 200 Gbit/s over 50 us with 3 % of packets lost, and the NIC's
/// figures; the plan's `nic` has packet buffers.
fn over_losses(nic: &str) -> (f64, PacketBufferFigures) {
    let transport = r#"{ name = "falcon", data_window = 512, outstanding = 1024, initial_window = 320,
                         window_max = 512, base_target = "80us" }"#;
    let workload = r#"{ kind = "closed-loop", op = "write", message = "64KB", depth = 64, queue_pairs = 4,
                        duration = "16ms" }"#;
    let with = [
        ("mtu", "4096"),
        ("links", r#"{ rate = "200Gbps", delay = "25us" }"#),
        ("transport", transport),
        ("nic", nic),
        ("fault", r#"[{ kind = "drop", packets = "data", probability = "3%" }]"#),
        ("workload", workload),
        ("run", r#"{ warmup = "8ms" }"#),
    ];
    let report = run(WIRE, &with, 1);
    let goodput = report.steady_goodput_gbps.expect("the workload has a duration");
    (goodput, report.nic.and_then(|nic| nic.packet_buffer).expect("the plan has packet buffers"))
}

/// F-37: packets that wait for a lost one overflow from the chip into DRAM, which costs what the DRAM's rate makes it
/// cost; without DRAM they are refused.
#[test]
fn f37_a_packet_buffer_overflows_into_dram_without_a_cliff() {
    let dram = |gbps: u32| format!(r#"{{ packet_buffer = "75KB", dram_buffer = "8MB", dram_rate = "{gbps}Gbps" }}"#);
    let large = over_losses(r#"{ packet_buffer = "8MB" }"#);
    let [fast, slow] = [400, 200].map(|gbps| over_losses(&dram(gbps)));
    let none = over_losses(r#"{ packet_buffer = "75KB" }"#);
    println!("large: {large:?}\nfast DRAM: {fast:?}\nslow DRAM: {slow:?}\nno DRAM: {none:?}");
    assert!(fast.0 > large.0 * 0.95, "{} Gbit/s with fast DRAM, {} with a large chip", fast.0, large.0);
    assert!(slow.0 > large.0 * 0.4 && slow.0 < large.0 * 0.8, "{} of {} Gbit/s", slow.0, large.0);
    assert!(none.0 < large.0 * 0.4, "{} of {} Gbit/s without DRAM", none.0, large.0);
    assert!(large.1.kept > 1_000 && large.1.refused == 0, "{:?}", large.1);
    assert!(fast.1.kept_in_dram > 1_000 && fast.1.refused == 0, "{:?}", fast.1);
    assert!(none.1.kept_in_dram == 0 && none.1.refused > 100, "{:?}", none.1);
    for (_, buffers) in [fast, slow, none] {
        assert!(buffers.chip_max_bytes <= 75_000, "{buffers:?}");
    }
    assert!(large.1.chip_max_bytes > 1_000_000, "{:?}", large.1);
}

/// F-37: the bytes that arrive are those that were sent, wherever they waited.
#[test]
fn f37_payload_that_waited_in_dram_is_intact() {
    let with = [
        ("transport", r#"{ name = "falcon" }"#),
        ("nic", r#"{ packet_buffer = "20KB", dram_buffer = "1MB", dram_rate = "100Gbps" }"#),
        ("payload", "checked"),
        ("wire", "encoded"),
        ("fault", r#"[{ kind = "drop", packets = "data", probability = "5%" }]"#),
        ("workload", r#"{ kind = "closed-loop", op = "write", message = "50KB", depth = 8, count = 200 }"#),
    ];
    let report = run(WIRE, &with, 1);
    assert!(report.violations.is_empty() && report.messages == 200, "{:?}", report.violations);
    let buffers = report.nic.and_then(|nic| nic.packet_buffer).expect("the plan has packet buffers");
    assert!(buffers.kept_in_dram > 100, "{buffers:?}");
}

/// Trap 10 (events): a queue fills in front of a slow adaptive engine. From its threshold on fewer events enter it,
/// and no information is lost: acknowledged packets are reported with the next event, windows continue to work, and
/// everything is delivered.
#[test]
fn probe10_a_filling_event_queue_holds_events_back() {
    let text = r#"
        name = "slow engine"
        mtu = 1024
        topology = { kind = "star", hosts = 5 }
        links = { rate = "100Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "9MB" }
        transport = { name = "falcon", fae_work = "1us", fae_queue = 32 }

        [workload]
        kind = "closed-loop"
        op = "write"
        message = "16KiB"
        depth = 4
        queue_pairs = 64
        count = 20
        clients = 4
        to = 4
    "#;
    let figures = |throttle: &str| {
        let report = run(text, &[("transport.fae_throttle", throttle)], 1);
        assert_eq!((report.messages, report.flows_unfinished), (64 * 20, 0), "{throttle}: all are done");
        report.falcon.expect("the transport is Falcon")
    };
    let (open, throttled) = (figures("100"), figures("25"));
    println!("{open:?}\n{throttled:?}");
    // Each of a host's 16 connections has at most one event in flight, which never fills the queue.
    assert!(open.fae_held_back == 0 && open.fae_events > 1_000, "{open:?}");
    assert!(throttled.fae_held_back > 100 && throttled.fae_events > 1_000, "{throttled:?}");
}
