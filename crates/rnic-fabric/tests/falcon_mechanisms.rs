//! Falcon's mechanisms as a network and several transports show them: F-24, F-39, F-43.

mod common;

use common::*;
use rnic_base::{Duration, RandomStreams};
use rnic_engine::{RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_fabric::simulation::QueuePairSpec;
use rnic_fabric::{Plan, Report, Simulation};

/// A host sends to another pod, over links that take a tenth of what it could send. `more` are options.
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

/// F-24: flows of one queue pair have labels that switches send over different uplinks.
#[test]
fn f24_labels_of_one_queue_pair_take_several_uplinks() {
    let goodput = |flows| {
        let report = to_another_pod(&format!("flows = {flows}"), "[]");
        report.steady_goodput_gbps.expect("it ends by the clock")
    };
    let (one, eight) = (goodput(1), goodput(8));
    assert!((7.5..10.0).contains(&one), "one label is one path of 10 Gbit/s: {one}");
    assert!(eight > 12.0, "eight labels find more than one: {eight} Gbit/s");
}

/// F-24: while no flow changes its label, each label has one path. A port that is used is one that can lose packets.
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

/// Microseconds that 8 MB from host 0 to host 1 take beside other flows of the same NIC to host 2, of whose packets
/// `lost` do not arrive; and how often anybody had to wait for a timeout.
fn beside_others(lost: &str) -> (f64, u64) {
    let mut lines = "0us,0,1,8MB\n".to_owned();
    (0..64).for_each(|_| lines.push_str("0us,0,2,4KB\n"));
    let fault = format!("[{{ kind = \"drop\", links = \"switch-0>host-2\", probability = \"{lost}\" }}]");
    let with = [
        ("workload", r#"{ kind = "trace", file = "flows.csv" }"#),
        // Without probes, so that there are timeouts.
        ("transport", r#"{ name = "falcon", recovery = "ooo-distance" }"#),
        ("switch.buffer", "1MB"),
        ("fault", fault.as_str()),
    ];
    let plan = Plan::from_toml_with(STAR, &with, &mut |_| Ok(lines.clone())).expect("sound");
    let report = finish(Simulation::new(&plan, 1).expect("sound"));
    report.check().expect("every promise is kept");
    assert_eq!(report.flows_unfinished, 0);
    let clean = report.records.iter().find(|flow| flow.dst == 1).expect("it is done");
    (clean.fct.as_ns() as f64 / 1_000.0, report.timeouts)
}

/// F-39: half of what other connections of a NIC send is lost, again and again; one that loses nothing does not notice.
#[test]
fn f39_a_connection_in_trouble_slows_no_other() {
    let (quiet, timeouts) = beside_others("0%");
    assert_eq!(timeouts, 0);
    let (stormy, timeouts) = beside_others("50%");
    println!("{stormy} us beside connections in trouble ({timeouts} timeouts), {quiet} beside quiet ones");
    assert!(timeouts > 20, "the others do wait for timeouts: {timeouts}");
    assert!(stormy < quiet * 1.05, "{stormy} us beside connections in trouble, {quiet} beside quiet ones");
}

/// F-15: what `rack-tlp` is told holds after the adaptive engine has measured something, too: here, nearly always.
#[test]
fn f15_options_of_rack_tlp_count_with_the_adaptive_engine() {
    let with = |options: &str, fault: &str| {
        let transport = format!("{{ name = \"falcon\", {options} }}");
        run(WIRE, &[("transport", transport.as_str()), ("fault", fault)], 1)
    };
    let late = r#"[{ kind = "reorder", probability = "5%", displacement = 30, packets = "data" }]"#;
    let again = |options: &str| with(options, late).packets_retransmitted;
    let (none, default, long) = (again("reorder_percent = 0"), again(""), again("reorder_min = \"100us\""));
    println!("sent again, of packets that are late: {none}, {default} by default, {long}");
    assert!(none > default && long == 0, "{none}, {default} by default, {long}");
    let lost = r#"[{ kind = "drop", probability = "5%" }]"#;
    let waits = |options: &str| with(options, lost).timeouts;
    let (probed, silent) = (waits(""), waits("probe_min = \"1s\""));
    println!("timeouts: {probed} with probes, {silent} where they come too late");
    assert!(silent > probed, "{silent}, {probed} with probes");
}

/// F-35: shares of what is free do not hold back who is alone, with the defaults. (Reads are bounded by how many may be
/// outstanding.)
#[test]
fn f35_a_lone_connection_has_the_link() {
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
            run(WIRE, &with, 1).steady_goodput_gbps.expect("it ends by the clock")
        };
        let (shares, alone) =
            (goodput(r#"{ name = "falcon" }"#), goodput(r#"{ name = "falcon", isolation = "none" }"#));
        assert!(shares > least && shares > 0.99 * alone, "{op}: {shares} of 200 Gbit/s, {alone} without shares");
    }
}

/// F-43: a program that uses verbs does not know what carries them: the same work, the same bytes, the same
/// completions, over four transports and a network that loses, doubles and reorders.
#[test]
fn f43_the_same_program_over_every_transport() {
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

/// Nanoseconds of a Read of 8 bytes over a connection that is chosen by chance among so many, one at a time, in a NIC
/// whose chip holds the state of 256 (figure 21): the median. And the share of packets whose state was not there.
fn ping_pong(connections: usize, nic: &str) -> (u64, f64) {
    let manual = ("workload", r#"{ kind = "manual" }"#);
    let with = [manual, ("transport", r#"{ name = "falcon" }"#), ("nic", nic), ("payload", "checked")];
    let mut simulation = simulation(WIRE, &with, 1);
    let spec = QueuePairSpec { sends: 4, receives: 4, sges: 1 };
    let ends: Vec<_> = (0..connections).map(|_| simulation.connect_by_hand(0, 1, spec).0).collect();
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
        simulation.post_send(0, qpn, &request).expect("an empty queue");
        let limit = posted + Duration::from_ms(1);
        let done = loop {
            if let Some((at, completion)) = simulation.poll(0) {
                assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Success));
                break at;
            }
            assert!(simulation.now() < limit, "it does not come back");
            let next = simulation.now() + Duration::from_us(1);
            simulation.advance(next);
        };
        times.push(done.since(posted).as_ns());
        // Acknowledgements that were held back leave.
        let quiet = simulation.now() + Duration::from_us(20);
        simulation.advance(quiet);
    }
    times.sort_unstable();
    let report = finish(simulation);
    (times[times.len() / 2], report.nic.expect("it is modelled").miss_share)
}

/// Writes of 8 bytes over so many queue pairs, in millions a second, in a NIC that lets a packet of each go every 50 ns
/// and one in all every 10 ns (figure 20b).
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
    let gbps = run(WIRE, &with, 1).steady_goodput_gbps.expect("it ends by the clock");
    gbps * 1e3 / 64.0
}

/// F-R17: a queue pair gets what its limit lets through, and all together what the NIC's does: the turns cost nothing.
#[test]
fn turns_among_queue_pairs_cost_no_operations() {
    for (queue_pairs, mops) in [(1, 20.0), (3, 60.0), (5, 100.0), (12, 100.0), (64, 100.0)] {
        let found = small_writes(queue_pairs);
        assert!((mops * 0.98..mops * 1.02).contains(&found), "{queue_pairs} queue pairs: {found} million a second");
    }
}

/// F-38: with misses all the time, a Read is a fraction slower, not a multiple; behind the host's bus it would be.
#[test]
fn f38_misses_all_the_time_are_no_cliff() {
    const OWN: &str = r#"{ qpc_entries = 256, bus_latency = "250ns" }"#;
    let (few, hits) = ping_pong(64, OWN);
    let (many, misses) = ping_pong(8_192, OWN);
    let (host, _) = ping_pong(8_192, r#"{ qpc_entries = 256, bus_latency = "3us" }"#);
    // With a second level, step by step: all on the chip, most in the second level, most in the NIC's memory.
    const TWO: &str = r#"{ qpc_entries = 256, second_entries = 2048, second_latency = "60ns", bus_latency = "250ns" }"#;
    let steps = [64, 1_024, 8_192].map(|connections| ping_pong(connections, TWO));
    println!("over two levels {steps:?}");
    let [(on_chip, _), (second, in_second), (memory, in_memory)] = steps;
    assert!(on_chip == few && in_second < 0.1 && in_memory > 0.15, "{steps:?}");
    assert!(on_chip < second && second < memory && memory <= many, "{steps:?}: each step costs");
    assert!(second * 2 < on_chip * 3 && memory * 2 < second * 3, "{steps:?}: and none is a cliff");
    println!("{few} ns with 64 connections, {many} with 8192 ({misses:.3} misses), {host} from the host's memory");
    // A Read makes some eight packets come and go; the first at either end finds nothing.
    assert!(hits < 0.02 && misses > 0.2, "misses: {hits} and {misses}");
    assert!(many > few && many < few * 3 / 2, "{many} ns after {few}");
    assert!(host > few * 2, "over the host's bus {host} ns");
}

/// Median nanoseconds of Writes of 8 bytes, eight every microsecond, each on a connection that nobody has used for a
/// while; and the share of packets whose state was not there.
fn round_robin(nic: &str) -> (u64, f64) {
    const CONNECTIONS: u64 = 512;
    let manual = ("workload", r#"{ kind = "manual" }"#);
    let with = [manual, ("transport", r#"{ name = "falcon" }"#), ("nic", nic), ("payload", "checked")];
    let mut simulation = simulation(WIRE, &with, 1);
    let spec = QueuePairSpec { sends: 4, receives: 4, sges: 1 };
    let ends: Vec<_> = (0..CONNECTIONS).map(|_| simulation.connect_by_hand(0, 1, spec).0).collect();
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
            simulation.post_send(0, ends[(wr_id % CONNECTIONS) as usize], &request).expect("an empty queue");
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
    (times[times.len() / 2], finish(simulation).nic.expect("it is modelled").miss_share)
}

/// F-38: with hardly a hit, a Write waits once for each packet that it is made of, and keeps its pace.
#[test]
fn f38_with_hardly_a_hit_there_is_no_cliff() {
    let (there, none) = round_robin(r#"{ qpc_entries = 1024, bus_latency = "250ns" }"#);
    let (away, nearly_all) = round_robin(r#"{ qpc_entries = 1, bus_latency = "250ns" }"#);
    println!("{there} ns with {none:.3} misses, {away} with {nearly_all:.3}");
    assert!(none < 0.1 && nearly_all > 0.9, "misses: {none} and {nearly_all}");
    // A packet comes and goes at either end: four times a quarter of a microsecond.
    assert!(away > there + 500 && away < there + 1_200, "{away} ns after {there}");
}

/// Trap 10 (events): behind an adaptive engine that is slow a queue fills. From its threshold on fewer events enter,
/// and what does not is not lost: acknowledged packets come with the next, windows go on, everything is delivered.
#[test]
fn probe10_a_queue_that_fills_holds_events_back() {
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
        report.falcon.expect("hosts speak Falcon")
    };
    let (open, throttled) = (figures("100"), figures("25"));
    println!("{open:?}\n{throttled:?}");
    // Each of a host's 16 connections has one event under way at most: that never fills the queue.
    assert!(open.fae_held_back == 0 && open.fae_events > 1_000, "{open:?}");
    assert!(throttled.fae_held_back > 100 && throttled.fae_events > 1_000, "{throttled:?}");
}
