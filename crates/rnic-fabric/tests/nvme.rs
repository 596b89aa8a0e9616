//! Hosts that use a drive of another host over Falcon (F-2, F-R26).

mod common;

use core::ops::ControlFlow;

use rnic_base::Time;
use rnic_engine::{Access, MemoryRegion, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcStatus};
use rnic_fabric::simulation::QueuePairSpec;
use rnic_fabric::{Plan, Report, Simulation};

/// Two clients and a drive of 26 and 12 Gbit/s; `work` is what they do, `rest` more of the plan.
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
    run(&plan(work, rest)).steady_goodput_gbps.expect("it ends by the clock")
}

const WARM: &str = "[run]\nwarmup = \"1ms\"";

#[test]
fn f2_a_drive_is_as_fast_over_the_network_as_in_its_own_host() {
    for (work, rate) in [
        ("op = \"read\"\nmessage = \"16KiB\"\ndepth = 128", 26.0),
        ("op = \"write\"\nmessage = \"64KiB\"\ndepth = 64", 12.0),
        ("op = \"read\"\nmessage = \"4KiB\"\ndepth = 128\nclients = 2", 26.0),
    ] {
        let (remote, local) = (goodput(work, WARM), goodput(work, &format!("local = true\n{WARM}")));
        assert!((rate * 0.98..rate * 1.02).contains(&local), "{work}: {local} by itself");
        assert!((rate * 0.95..rate * 1.02).contains(&remote), "{work}: {remote}");
    }
}

/// A drive that serves few units at once, so that its latency bounds it: long commands have as many units, and wait as
/// long, in the drive's own host as over the network.
#[test]
fn f2_a_short_queue_bounds_long_commands_alike_with_and_without_the_network() {
    let work = "op = \"read\"\nmessage = \"64KiB\"\ndepth = 4";
    let run = |rest: &str| run(&plan(work, rest).replace("queue_depth = 128", "queue_depth = 8"));
    let [remote, local] = [WARM, &format!("local = true\n{WARM}")].map(run);
    let [far, near] = [&remote, &local].map(|report| report.steady_goodput_gbps.expect("it ends by the clock"));
    // Eight units at once, each some 61 us: 4.3 Gbit/s, of the 26 that whole commands would have.
    assert!((4.0..4.5).contains(&near) && (0.95..1.02).contains(&(far / near)), "{far} of {near} Gbit/s");
    let [far, near] = [remote, local].map(|report| report.latency_us.expect("latencies are recorded").p50);
    assert!((0.0..20.0).contains(&(far - near)), "{far} us, {near} us alone");
}

/// What a report of a drive's users says follows from the commands that are done.
#[test]
fn commands_that_are_done_are_the_flows_of_the_report() {
    let work = "op = \"read\"\nmessage = \"16KiB\"\ndepth = 8\nclients = 2";
    for (rest, clients) in [("", 2), ("local = true", 1)] {
        let report = run(&plan(work, rest));
        let done = report.messages;
        assert!(done > 100 && report.flows == done && report.bytes == done << 14, "{rest}: {report:?}");
        let moved = (done << 14) as f64 * 8.0 / report.elapsed_us / 1e3;
        assert!((report.goodput_gbps / moved - 1.0).abs() < 1e-3, "{rest}: {} or {moved}", report.goodput_gbps);
        let steady = report.steady_goodput_gbps.expect("it ends by the clock");
        let ops_per_s = report.ops_per_s.expect("it ends by the clock");
        assert!((ops_per_s * 16_384.0 * 8.0 / 1e9 / steady - 1.0).abs() < 1e-9, "{rest}: {ops_per_s} of {steady}");
        // All but those that were under way at the end.
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
fn f2_nothing_is_lost_on_a_bad_network() {
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

/// Bytes of commands, as packets and on the wire: what was read is what the drive has, and what was written is there.
#[test]
fn f2_right_bytes_arrive_over_a_bad_network() {
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

/// Messages of 64 KiB that a client reads from the drive's host by RDMA, beside what it reads from the drive.
fn messages_beside(isolation: &str, drive: &str) -> u64 {
    let work = "op = \"read\"\nmessage = \"1MiB\"\ndepth = 64\nclients = 2";
    let text = plan(work, "").replace("ordering", &format!("isolation = \"{isolation}\"\nresources = 25\nordering"));
    let text = text.replace("read_latency = \"60us\"", drive);
    let plan = Plan::from_toml(&text).expect("a sound plan");
    let mut simulation = Simulation::new(&plan, 1).expect("a sound plan");
    let spec = QueuePairSpec { sends: 16, receives: 0, sges: 1 };
    let (qpn, _) = simulation.connect_by_hand(0, 3, spec);
    let [(from, lkey), (addr, rkey)] = [0, 3].map(|host| {
        let pd = simulation.protection_domain(host);
        let region = MemoryRegion { pd, addr: 1 << 52, len: 1 << 16, local: 1 << 52, access: Access::all() };
        (
            1 << 52,
            simulation.with_engine(host, |engine, _| engine.objects_mut().register(region).expect("a legal region")).0,
        )
    });
    let (mut posted, mut done, until) = (0, 0, Time::from_us(4_000));
    while simulation.now() < until {
        while posted < done + 16 {
            let op = SendOp::Read { remote: RemoteMemory { addr, rkey } };
            let sges = [Sge { addr: from, len: 1 << 16, lkey }];
            let request = SendRequest { wr_id: posted, op, sges: &sges, flags: SendFlags::SIGNALED };
            simulation.post_send(0, qpn, &request).expect("room for sixteen");
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

/// A drive that answers nothing for long has its commands hold resources of the NIC for as long: RDMA beside it goes on
/// where each connection has its share, and stands still where none has (F-35).
#[test]
fn f35_rdma_goes_on_beside_a_drive_that_stands_still() {
    let still = "read_latency = \"50ms\"\nreads = \"pull\"";
    let alone = messages_beside("dynamic", "read_latency = \"50ms\"\nlocal = true");
    let [shares, none] = ["dynamic", "none"].map(|isolation| messages_beside(isolation, still));
    println!("{alone} messages alone; beside a drive that stands still {shares}, without shares {none}");
    assert!(alone > 500 && shares * 10 > alone * 8, "{alone} alone, {shares} beside a drive that stands still");
    assert!(none * 10 < alone, "{none} of {alone} without shares: nothing was held");
}

/// A link to the client that carries next to nothing for a while, so that PFC stops the drive's port.
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
    // Eight at a time, each some 61 us: all that wait take 3.9 ms.
    assert!(paused.messages * 100 > free.messages * 95, "{} of {}", paused.messages, free.messages);
}

#[test]
fn the_order_of_nodes_makes_no_difference() {
    let text = plan("op = \"write\"\nmessage = \"16KiB\"\ndepth = 32\nclients = 3", "");
    common::assert_the_same_otherwise(&run(&text), &text, &[], 1, "nvme");
}

#[test]
fn a_command_alone_takes_what_drive_and_network_take() {
    let remote = run(&plan("op = \"read\"\nmessage = \"4KiB\"", ""));
    let local = run(&plan("op = \"read\"\nmessage = \"4KiB\"", "local = true"));
    let [remote, local] = [remote, local].map(|report| report.latency_us.expect("latencies are recorded"));
    // 4096 bytes at 26 Gbit/s are 1.26 us.
    assert!((61.2..61.4).contains(&local.p50), "{}", local.p50);
    // Two links of a microsecond each way, and a little for packets.
    assert!((4.0..6.0).contains(&(remote.p50 - local.p50)), "{}", remote.p50);
}

#[test]
fn plans_that_make_no_sense_say_why() {
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
        ("mtu = 4096", "mtu = 4096\nrun = { slice = \"1ms\" }", "run.slice: is for flows"),
    ] {
        let text = sound.replace(from, to);
        let error = Plan::from_toml(&text).and_then(|plan| Simulation::new(&plan, 1).map(drop));
        let error = error.expect_err(to).to_string();
        assert!(error.contains(key), "{to}: {error}");
    }
}

/// A leaf-spine whose links carry nothing for 60 ms; `op` is what the client does, of a drive that takes `latency`.
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
    let plan = Plan::from_toml(&text).expect("a sound plan");
    Simulation::new(&plan, 1).expect("a sound plan").run(&mut |_| ControlFlow::Continue(()))
}

#[test]
fn commands_end_after_an_outage_that_took_their_answers() {
    let report = with_an_outage("op = \"read\"\nmessage = \"4KiB\"\ndepth = 4", "1ms");
    assert_eq!((report.violations.as_slice(), report.flows_unfinished), (&[][..], 0));
    assert!(report.messages > 100, "{}", report.messages);
}

#[test]
fn a_command_whose_request_was_lost_with_its_news_is_named_and_no_peer_is_blamed() {
    for op in ["read", "write"] {
        let report = with_an_outage(&format!("op = \"{op}\"\nmessage = \"16KiB\"\ndepth = 16"), "60us");
        let told =
            |violation: &String| violation.ends_with("an NVMe command failed: a request ended with LocalTimeout");
        assert!(!report.violations.is_empty() && report.violations.iter().all(told), "{:?}", report.violations);
        assert_eq!(report.flows_unfinished, 0);
    }
}

#[test]
fn a_command_that_its_drive_keeps_for_more_than_half_a_minute_fails() {
    let text = plan("op = \"read\"\nmessage = \"4KiB\"\ndepth = 1", "[run]\nlimit = \"100s\"");
    let plan = Plan::from_toml(&text.replace("60us", "40s")).expect("a sound plan");
    let report = Simulation::new(&plan, 1).expect("a sound plan").run(&mut |_| ControlFlow::Continue(()));
    let [told] = report.violations.as_slice() else { panic!("{:?}", report.violations) };
    assert!(told.ends_with("an NVMe command failed: it took too long"), "{told}");
    assert_eq!((report.flows_unfinished, report.flows, report.messages, report.bytes), (0, 0, 0, 0));
}

/// A link to the client that carries nothing from some time on: its queue pair fails, and it posts nothing more. All
/// that it posted then would be flushed at the same moment, and posted again, without end.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the thread is there to notice that a run does not end, and decides nothing"
)]
fn a_client_whose_queue_pair_fails_posts_nothing_more() {
    let text = plan(
        "op = \"read\"\nmessage = \"16KiB\"\ndepth = 8",
        "[[fault]]\nkind = \"down\"\nlinks = \"*host-0*\"\nfrom = \"1ms\"\nuntil = \"5s\"",
    );
    let text = text.replace("duration = \"6ms\"", "duration = \"2s\"");
    let (report, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let plan = Plan::from_toml(&text).expect("a sound plan");
        let ended = Simulation::new(&plan, 1).expect("a sound plan").run(&mut |_| ControlFlow::Continue(()));
        report.send(ended).expect("somebody waits for it");
    });
    // It takes some milliseconds.
    let report = told.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
    assert!(report.messages > 100 && report.flows_unfinished == 0, "{report:?}");
    // By the rule of verbs, at one time: the oldest has the reason, those behind it are flushed.
    let [first, rest @ ..] = report.violations.as_slice() else { panic!("nothing was told") };
    let (when, why) = first.split_once(": ").expect("a time and a text");
    assert_eq!((why, rest.len()), ("an NVMe command failed: RetryExceeded", 7));
    let flushed = format!("{when}: an NVMe command failed: WrFlushed");
    assert!(rest.iter().all(|told| *told == flushed), "{:?}", report.violations);
}
