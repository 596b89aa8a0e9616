//! Hosts that use another host's drive over Falcon (F-2, F-R26).

mod common;

use core::ops::ControlFlow;

use rnic_base::Time;
use rnic_engine::{Access, MemoryRegion, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_fabric::simulation::QueuePairSpec;
use rnic_fabric::{Plan, Report, Simulation};

/// Returns a plan with two clients and a drive that reads at 26 Gbit/s and writes at 12; `work` is the clients'
/// workload, `rest` is appended to the plan.
fn plan(work: &str, rest: &str) -> String {
    format!(
        r#"
        mtu = 4096
        [topology]
        kind = "star"
        hosts = 4
        [links]
        rate = "200Gbps"
        delay = "1us"
        [switch]
        model = "shared-buffer"
        buffer = "8MB"
        [transport]
        name = "falcon"
        ordering = "unordered"
        [workload]
        kind = "nvme"
        from = 0
        to = 3
        duration = "6ms"
        {work}
        [workload.drive]
        read_rate = "26Gbps"
        read_latency = "60us"
        write_rate = "12Gbps"
        write_latency = "15us"
        queue_depth = 128
        {rest}
        "#
    )
}

fn run(text: &str) -> Report {
    common::run(text, &[], 1)
}

fn goodput(work: &str, rest: &str) -> f64 {
    run(&plan(work, rest)).steady_goodput_gbps.expect("the workload has a duration")
}

const WITH_WARMUP: &str = "[run]\nwarmup = \"1ms\"";

#[test]
fn f2_a_drive_is_as_fast_over_the_network_as_in_its_own_host() {
    for (work, rate) in [
        ("op = \"read\"\nmessage = \"16KiB\"\ndepth = 128", 26.0),
        ("op = \"write\"\nmessage = \"64KiB\"\ndepth = 64", 12.0),
        ("op = \"read\"\nmessage = \"4KiB\"\ndepth = 128\nclients = 2", 26.0),
    ] {
        let (remote, local) = (goodput(work, WITH_WARMUP), goodput(work, &format!("local = true\n{WITH_WARMUP}")));
        assert!((rate * 0.98..rate * 1.02).contains(&local), "{work}: {local} by itself");
        assert!((rate * 0.95..rate * 1.02).contains(&remote), "{work}: {remote}");
    }
}

/// A drive that serves few units at a time, so that its latency limits throughput: long commands consist of as many
/// units, and wait as long, on the drive's own host as over the network.
#[test]
fn f2_a_short_queue_limits_long_commands_equally_with_and_without_the_network() {
    let work = "op = \"read\"\nmessage = \"64KiB\"\ndepth = 4";
    let run = |rest: &str| run(&plan(work, rest).replace("queue_depth = 128", "queue_depth = 8"));
    let [remote, local] = [WITH_WARMUP, &format!("local = true\n{WITH_WARMUP}")].map(run);
    let [far, near] = [&remote, &local].map(|report| report.steady_goodput_gbps.expect("the workload has a duration"));
    // Eight units at a time, each some 61 us: 4.3 Gbit/s, instead of the 26 that would be possible if commands were
    // not split.
    assert!((4.0..4.5).contains(&near) && (0.95..1.02).contains(&(far / near)), "{far} of {near} Gbit/s");
    let [far, near] = [remote, local].map(|report| report.latency_us.expect("latencies are recorded").p50);
    assert!((0.0..20.0).contains(&(far - near)), "{far} us, {near} us alone");
}

/// Checks that the report of a plan with a drive counts each completed command as a flow.
#[test]
fn completed_commands_are_reported_as_flows() {
    let work = "op = \"read\"\nmessage = \"16KiB\"\ndepth = 8\nclients = 2";
    for (rest, clients) in [("", 2), ("local = true", 1)] {
        let report = run(&plan(work, rest));
        let done = report.messages;
        assert!(done > 100 && report.flows == done && report.bytes == done << 14, "{rest}: {report:?}");
        let moved = (done << 14) as f64 * 8.0 / report.elapsed_us / 1e3;
        assert!((report.goodput_gbps / moved - 1.0).abs() < 1e-3, "{rest}: {} or {moved}", report.goodput_gbps);
        let steady = report.steady_goodput_gbps.expect("the workload has a duration");
        let ops_per_s = report.ops_per_s.expect("the workload has a duration");
        assert!((ops_per_s * 16_384.0 * 8.0 / 1e9 / steady - 1.0).abs() < 1e-9, "{rest}: {ops_per_s} of {steady}");
        // All but those that were outstanding at the end.
        let all = done as f64 / 6e-3;
        assert!((all * 0.9..=all).contains(&ops_per_s), "{rest}: {ops_per_s} of {all}");
        // The last ones are posted before 6 ms are over.
        assert!((6_000.0..6_400.0).contains(&report.elapsed_us), "{rest}: {} us", report.elapsed_us);
        let latency = report.latency_us.expect("latencies are recorded");
        assert_eq!((latency.p50, latency.p99), (report.fct_p50_us, report.fct_p99_us), "{rest}");
        // 60 us, and 16 KiB at 26 Gbit/s.
        assert!(report.records.iter().all(|command| (65.0..65.1).contains(&command.ideal.as_us_f64())));
        assert!(report.records.iter().all(|command| command.slowdown() >= 1.0 && command.dst == 3));
        assert!(report.records.iter().zip(0..).all(|(command, id)| command.id == id));
        let sources: std::collections::BTreeSet<u32> = report.records.iter().map(|command| command.src).collect();
        assert_eq!(sources.len(), clients, "{rest}");
    }
}

#[test]
fn f2_every_command_completes_over_a_lossy_network() {
    let faults =
        "[[fault]]\nkind = \"drop\"\nprobability = \"1%\"\n[[fault]]\nkind = \"duplicate\"\nprobability = \"1%\"
        [[fault]]\nkind = \"reorder\"\nprobability = \"1%\"\ndelay = \"5us\"\n";
    for op in ["read", "write"] {
        let work = format!("op = \"{op}\"\nmessage = \"16KiB\"\ndepth = 32\nclients = 2");
        let report = run(&plan(&work, faults));
        assert!(report.messages > 500 && report.packets_retransmitted > 50, "{op}: {} commands", report.messages);
        assert!(report.drops.fault > 50, "{op}: {:?}", report.drops);
    }
}

/// Commands carry real bytes, as packets in memory and encoded: Reads return the drive's content, and Writes change
/// it.
#[test]
fn f2_correct_bytes_arrive_over_a_lossy_network() {
    let faults = ["drop", "duplicate", "corrupt", "reorder"].map(|kind| {
        let delay = if kind == "reorder" { "delay = \"5us\"" } else { "" };
        format!("[[fault]]\nkind = \"{kind}\"\nprobability = \"1%\"\n{delay}\n")
    });
    let faults = faults.concat();
    for (op, reads) in [("read", "push"), ("read", "pull"), ("write", "push")] {
        for wire in ["direct", "encoded"] {
            let work = format!("op = \"{op}\"\nmessage = \"16KiB\"\ndepth = 32\nclients = 2");
            let text = plan(&work, &faults)
                .replace("mtu = 4096", &format!("mtu = 4096\npayload = \"checked\"\nwire = \"{wire}\""));
            let report = run(&text.replace("[workload.drive]", &format!("[workload.drive]\nreads = \"{reads}\"")));
            assert!(report.messages > 500 && report.packets_retransmitted > 50, "{op} {wire}: {}", report.messages);
            assert!(report.drops.corrupt > 10, "{op} {wire}: {:?}", report.drops);
        }
    }
}

/// Returns the number of 64 KiB messages that a client reads from the drive's host by RDMA while it also reads from
/// the drive.
fn messages_beside(isolation: &str, drive: &str) -> u64 {
    let work = "op = \"read\"\nmessage = \"1MiB\"\ndepth = 64\nclients = 2";
    let text = plan(work, "").replace("ordering", &format!("isolation = \"{isolation}\"\nresources = 25\nordering"));
    let text = text.replace("read_latency = \"60us\"", drive);
    let plan = Plan::from_toml(&text).expect("the plan is valid");
    let mut simulation = Simulation::new(&plan, 1).expect("the plan is valid");
    let spec = QueuePairSpec { sends: 16, receives: 0, sges: 1 };
    let (qpn, _) = simulation.connect_manually(0, 3, spec);
    let [(from, lkey), (addr, rkey)] = [0, 3].map(|host| {
        let pd = simulation.protection_domain(host);
        let region = MemoryRegion { pd, addr: 1 << 52, len: 1 << 16, local: 1 << 52, access: Access::all() };
        (
            1 << 52,
            simulation
                .with_engine(host, |engine, _| engine.objects_mut().register(region).expect("the region is legal"))
                .0,
        )
    });
    let (mut posted, mut done, until) = (0, 0, Time::from_us(4_000));
    while simulation.now() < until {
        while posted < done + 16 {
            let op = SendOp::Read { remote: RemoteMemory { addr, rkey } };
            let sges = [Sge { addr: from, len: 1 << 16, lkey }];
            let request = SendRequest { wr_id: posted, op, sges: &sges, flags: SendFlags::SIGNALED };
            simulation.post_send(0, qpn, &request).expect("the queue has a free entry");
            posted += 1;
        }
        simulation.advance(until);
        while let Some((_, completion)) = simulation.poll(0) {
            assert_eq!(completion.status, WcStatus::Success);
            done += 1;
        }
    }
    done
}

/// Commands to a drive that does not respond for a long time hold resources of the NIC for as long: RDMA traffic
/// beside it continues if each connection has its own share, and stops if there are no shares (F-35).
#[test]
fn f35_rdma_continues_beside_a_stalled_drive() {
    let stalled = "read_latency = \"50ms\"\nreads = \"pull\"";
    let alone = messages_beside("dynamic", "read_latency = \"50ms\"\nlocal = true");
    let [shares, none] = ["dynamic", "none"].map(|isolation| messages_beside(isolation, stalled));
    println!("{alone} messages alone; beside a drive that stands still {shares}, without shares {none}");
    assert!(alone > 500 && shares * 10 > alone * 8, "{alone} alone, {shares} beside a drive that stands still");
    assert!(none * 10 < alone, "{none} of {alone} without shares");
}

/// A link to the client that carries almost nothing for a while, so that PFC pauses the drive's port.
#[test]
fn a_pause_of_its_port_does_not_stop_the_drive() {
    let work = "op = \"read\"\nmessage = \"4KiB\"\ndepth = 512";
    let slow =
        "[[fault]]\nkind = \"slow\"\nlinks = \"switch-0>host-0\"\nrate = \"100Mbps\"\nfrom = \"2ms\"\nuntil = \"4ms\"";
    let with = |faults: &str| {
        let text = plan(work, faults).replace("queue_depth = 128", "queue_depth = 8");
        run(&text.replace("buffer = \"8MB\"", "buffer = \"8MB\"\npfc = {}\nalpha = \"1/4096\""))
    };
    let (free, paused) = (with(""), with(slow));
    println!("{} {} pauses {} {} us", free.messages, paused.messages, paused.pauses, paused.pause_time_us);
    assert!(paused.pauses > 0 && paused.pause_time_us > 1_000.0, "{} of {} us", paused.pauses, paused.pause_time_us);
    // Eight at a time, each some 61 us: all waiting commands together take 3.9 ms.
    assert!(paused.messages * 100 > free.messages * 95, "{} of {}", paused.messages, free.messages);
}

#[test]
fn the_order_of_nodes_makes_no_difference() {
    let text = plan("op = \"write\"\nmessage = \"16KiB\"\ndepth = 32\nclients = 3", "");
    common::assert_independent_of_order_and_parts(&run(&text), &text, &[], 1, "nvme");
}

#[test]
fn a_single_command_takes_the_time_of_drive_and_network() {
    let remote = run(&plan("op = \"read\"\nmessage = \"4KiB\"", ""));
    let local = run(&plan("op = \"read\"\nmessage = \"4KiB\"", "local = true"));
    let [remote, local] = [remote, local].map(|report| report.latency_us.expect("latencies are recorded"));
    // 4096 bytes at 26 Gbit/s are 1.26 us.
    assert!((61.2..61.4).contains(&local.p50), "{}", local.p50);
    // Two links of a microsecond each way, plus the time of the packets.
    assert!((4.0..6.0).contains(&(remote.p50 - local.p50)), "{}", remote.p50);
}

#[test]
fn invalid_nvme_plans_are_refused_with_their_key() {
    let sound = plan("op = \"read\"\nmessage = \"4KiB\"", "");
    assert!(Plan::from_toml(&sound).is_ok_and(|plan| Simulation::new(&plan, 1).is_ok()));
    for (from, to, key) in [
        ("name = \"falcon\"\n        ordering = \"unordered\"", "name = \"irn\"", "transport.name"),
        ("mtu = 4096", "mtu = 1024", "mtu"),
        ("op = \"read\"", "op = \"send\"", "workload.op"),
        ("message = \"4KiB\"", "message = \"100B\"", "workload.message"),
        ("to = 3", "to = 0", "workload.to"),
        ("from = 0", "from = 4", "workload.clients"),
        ("queue_depth = 128", "queue_depth = 0", "workload.drive.queue_depth"),
        (r#"read_rate = "26Gbps""#, r#"read_rate = "0""#, "workload.drive.read_rate"),
        (r#"write_rate = "12Gbps""#, r#"write_rate = "1bps""#, "workload.drive.write_rate"),
        (r#"write_latency = "15us""#, r#"write_latency = "61s""#, "workload.drive.write_latency"),
        (r#"op = "read""#, "", "workload.op: is missing"),
        ("mtu = 4096", "mtu = 4096\nnic = { qpc_entries = 8 }", "workload.kind"),
        ("queue_depth = 128", "queue_depth = 128\nreads = \"both\"", "workload.drive.reads"),
        ("mtu = 4096", "mtu = 4096\nrun = { slice = \"1ms\" }", "run.slice: does not apply to NVMe"),
    ] {
        let text = sound.replace(from, to);
        let error = Plan::from_toml(&text).and_then(|plan| Simulation::new(&plan, 1).map(drop));
        let error = error.expect_err(to).to_string();
        assert!(error.contains(key), "{to}: {error}");
    }
}

/// Runs a leaf-spine network whose links are down for 60 ms; `op` is the client's operation, on a drive with a read
/// latency of `latency`.
fn with_an_outage(op: &str, latency: &str) -> Report {
    let text = format!(
        r#"
        mtu = 4096
        topology = {{ kind = "leaf-spine", spines = 1, leaves = 2, hosts_per_leaf = 2 }}
        links = {{ rate = "200Gbps", delay = "1us" }}
        switch = {{ model = "shared-buffer", buffer = "16MB" }}
        transport = {{ name = "falcon", ordering = "unordered" }}
        run = {{ warmup = "1ms", limit = "1s" }}
        fault = [{{ kind = "down", from = "5500us", until = "65500us" }}]
        [workload]
        kind = "nvme"
        from = 0
        to = 3
        duration = "100ms"
        {op}
        [workload.drive]
        read_rate = "26Gbps"
        read_latency = "{latency}"
        write_rate = "12Gbps"
        write_latency = "15us"
        queue_depth = 128
        "#
    );
    let plan = Plan::from_toml(&text).expect("the plan is valid");
    Simulation::new(&plan, 1).expect("the plan is valid").run(&mut |_| ControlFlow::Continue(()))
}

#[test]
fn commands_complete_after_an_outage_that_lost_their_responses() {
    let report = with_an_outage("op = \"read\"\nmessage = \"4KiB\"\ndepth = 4", "1ms");
    assert_eq!((report.violations.as_slice(), report.flows_unfinished), (&[][..], 0));
    assert!(report.messages > 100, "{}", report.messages);
}

#[test]
fn a_command_lost_in_an_outage_fails_with_a_local_timeout_and_no_peer_error() {
    for op in ["read", "write"] {
        let report = with_an_outage(&format!("op = \"{op}\"\nmessage = \"16KiB\"\ndepth = 16"), "60us");
        let is_local_timeout = |violation: &String| {
            violation.ends_with("an NVMe command failed: a request completed with error LocalTimeout")
        };
        assert!(
            !report.violations.is_empty() && report.violations.iter().all(is_local_timeout),
            "{:?}",
            report.violations
        );
        assert_eq!(report.flows_unfinished, 0);
    }
}

#[test]
fn a_command_that_takes_longer_than_its_timeout_fails() {
    let text = plan("op = \"read\"\nmessage = \"4KiB\"\ndepth = 1", "[run]\nlimit = \"100s\"");
    let plan = Plan::from_toml(&text.replace("60us", "40s")).expect("the plan is valid");
    let report = Simulation::new(&plan, 1).expect("the plan is valid").run(&mut |_| ControlFlow::Continue(()));
    let [message] = report.violations.as_slice() else { panic!("{:?}", report.violations) };
    assert!(message.ends_with("an NVMe command failed: the command timed out"), "{message}");
    assert_eq!((report.flows_unfinished, report.flows, report.messages, report.bytes), (0, 0, 0, 0));
}

/// A link to the client that carries nothing from some time on: the client's queue pair fails, and the client posts
/// nothing more. Any command posted after that would be flushed in the same instant and posted again, without end.
#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the thread is there to notice that a run does not end, and decides nothing"
)]
fn a_client_whose_queue_pair_fails_posts_nothing_more() {
    let text = plan(
        "op = \"read\"\nmessage = \"16KiB\"\ndepth = 8",
        "[[fault]]\nkind = \"down\"\nlinks = \"*host-0*\"\nfrom = \"1ms\"\nuntil = \"5s\"",
    );
    let text = text.replace("duration = \"6ms\"", "duration = \"2s\"");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let plan = Plan::from_toml(&text).expect("the plan is valid");
        let ended = Simulation::new(&plan, 1).expect("the plan is valid").run(&mut |_| ControlFlow::Continue(()));
        sender.send(ended).expect("the test waits for the report");
    });
    // The run takes some milliseconds.
    let report = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the run ends");
    assert!(report.messages > 100 && report.flows_unfinished == 0, "{report:?}");
    // As verbs prescribe, all fail at the same time: the oldest with the reason, those after it are flushed.
    let [first, rest @ ..] = report.violations.as_slice() else { panic!("the report has no violations") };
    let (when, reason) = first.split_once(": ").expect("a time and a text");
    assert_eq!((reason, rest.len()), ("an NVMe command failed: RetryExceeded", 7));
    let flushed = format!("{when}: an NVMe command failed: WrFlushed");
    assert!(rest.iter().all(|message| *message == flushed), "{:?}", report.violations);
}
