//! Goodput of hosts per time slice: a host whose memory is slow for a while, other hosts that share its senders, and
//! the sum of all slices.

mod common;

use common::*;
use rnic_fabric::report::Slices;

/// Two hosts write to two others; the memory of host-2 takes only half of its link's rate from 2 ms until 4 ms.
const TEMPORARILY_SLOW_HOST: &str = r#"
    name = "slow for a while"
    mtu = 4096
    topology = { kind = "star", hosts = 4 }
    links = { rate = "200Gbps", delay = "1us" }
    switch = { model = "shared-buffer", buffer = "16MB" }
    transport = { name = "falcon" }
    slow_host = { hosts = "host-2", rate = "100Gbps", from = "2ms", until = "4ms" }
    workload = { kind = "closed-loop", op = "write", message = "64KB", depth = 8, queue_pairs = 16,
                 clients = 2, from = 0, servers = 2, to = 2, duration = "6ms" }
    run = { slice = "500us" }
"#;

/// The mean of some slices.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The slow host's goodput equals the rate of its memory while that is slow, and the link's rate before and after;
/// the other host, which has the same senders, loses nothing.
#[test]
fn f18_a_temporarily_slow_host_does_not_slow_other_hosts() {
    let slices = run(TEMPORARILY_SLOW_HOST, &[], 1).slices.expect("the plan has slices");
    assert_eq!(slices.slice_us, 500.0);
    let [slow, other] = ["host-2", "host-3"].map(|host| &slices.hosts[host].goodput_gbps);
    // A millisecond for the start; half a millisecond after each change for windows to shrink or grow.
    let phases = |values: &[f64]| [&values[2..4], &values[5..8], &values[9..12]].map(mean);
    let [before, during, after] = phases(slow);
    assert!((95.0..105.0).contains(&during), "{during} Gbit/s: {slow:?}");
    assert!(before > 170.0 && after > 170.0, "{before} and {after} Gbit/s: {slow:?}");
    let [before, during, after] = phases(other);
    assert!(during > 0.95 * before && after > 0.95 * before, "{other:?}");
}

/// Checks that a slow host without `from` and `until` is slow all the time, with an identical packet trace, and that
/// measuring slices does not change the trace.
#[test]
fn slices_and_an_unlimited_slow_interval_do_not_change_the_trace() {
    let slow = |text: &'static str| run(TEMPORARILY_SLOW_HOST, &[("slow_host", text)], 1).trace_hash;
    let always = slow(r#"{ hosts = "host-2", rate = "100Gbps" }"#);
    assert_eq!(always, slow(r#"{ hosts = "host-2", rate = "100Gbps", from = "0us", until = "1s" }"#));
    let report = run(TEMPORARILY_SLOW_HOST, &[], 1);
    assert_ne!(always, report.trace_hash);
    assert_eq!(report.to_json(), run(TEMPORARILY_SLOW_HOST, &[], 1).to_json());
    assert_eq!(
        report.trace_hash,
        run(TEMPORARILY_SLOW_HOST, &[("run", r#"{ slice = "77us", limit = "1s" }"#)], 1).trace_hash
    );
    let whole = run(TEMPORARILY_SLOW_HOST, &[("run", "{}")], 1);
    assert_eq!((whole.trace_hash, whole.slices), (report.trace_hash.clone(), None));
    assert_independent_of_order_and_parts(&report, TEMPORARILY_SLOW_HOST, &[], 1, "slices");
}

/// Payload delivered in all slices, in bytes.
fn payload_bytes(slices: &Slices, host: &str) -> f64 {
    let goodput = &slices.hosts[host].goodput_gbps;
    goodput.iter().map(|gbps| gbps * slices.slice_us * 1e3 / 8.0).sum()
}

/// Checks that slices add up to the payload of all flows, including those that end during the run; that a Read's
/// payload counts for the host that posted it; and that slices without traffic are reported as zero.
#[test]
fn slices_add_up_to_the_payload_of_flows() {
    let incast = ("workload", r#"{ kind = "incast", senders = 3, bytes = "600KB", repeats = 2, interval = "1ms" }"#);
    let report = run(STAR, &[incast, ("run", r#"{ slice = "50us", limit = "1s" }"#)], 3);
    let slices = report.slices.expect("the plan has slices");
    let sum: f64 = slices.hosts.keys().map(|host| payload_bytes(&slices, host)).sum();
    assert!((payload_bytes(&slices, "host-0") - sum).abs() < 1.0 && sum > 0.0, "{slices:?}");
    // Payload that completed after the last complete slice is not counted.
    assert!(sum <= report.bytes as f64 && sum > 0.6 * report.bytes as f64, "{sum} of {}", report.bytes);
    let quiet = slices.hosts["host-0"].goodput_gbps.iter().filter(|gbps| **gbps == 0.0).count();
    assert!(quiet > 2, "no empty slices between two requests: {slices:?}");
    assert!(slices.hosts["host-0"].queue_mean_bytes[0] > 0.0, "no queue although three hosts send to it: {slices:?}");

    let reads = ("workload", r#"{ kind = "closed-loop", op = "read", message = "16KB", depth = 4, count = 500 }"#);
    let report = run(WIRE, &[reads, ("run", r#"{ slice = "10us", limit = "1s" }"#)], 3);
    let slices = report.slices.expect("the plan has slices");
    assert!(payload_bytes(&slices, "host-0") > 0.9 * report.bytes as f64, "{slices:?}");
    assert_eq!((payload_bytes(&slices, "host-1"), slices.hosts["host-1"].queue_mean_bytes[3]), (0.0, 0.0));
}

/// A message counts in the slice in which it arrives, not in the one in which its acknowledgement arrives, which on
/// long links is many slices later.
#[test]
fn payload_counts_in_the_slice_in_which_it_arrives() {
    let text = r#"
        name = "long links"
        mtu = 4096
        topology = { kind = "leaf-spine", spines = 1, leaves = 2, hosts_per_leaf = 1 }
        links = { rate = "100Gbps", delay = "30us", fabric = { delay = "1us" } }
        switch = { model = "shared-buffer", buffer = "9MB" }
        transport = { name = "irn" }
        workload = { kind = "closed-loop", op = "write", message = "4KB", depth = 1, count = 3, to = 1 }
        run = { slice = "2us", limit = "100ms" }
    "#;
    let report = run(text, &[], 3);
    let slices = report.slices.expect("the plan has slices");
    let with_payload = slices.hosts["host-1"].goodput_gbps.iter().enumerate().filter(|(_, gbps)| **gbps > 0.0);
    let slice_starts: Vec<f64> = with_payload.map(|(slice, _)| slice as f64 * slices.slice_us).collect();
    assert!((3..=6).contains(&slice_starts.len()), "not one or two slices per message: {slice_starts:?}");
    for slice_start in slice_starts {
        // Three messages, each of which takes a round trip; one way is 62 us and four times 0.34 us for a packet on a
        // link.
        let within = slice_start % (report.elapsed_us / 3.0);
        assert!((60.0..63.5).contains(&within), "{within} us after it was posted");
    }
}

/// One message of 20 MB on a link of 100 Gbit/s completes only once, but its bytes arrive all the time: no slice has
/// more than the link carries, even if slices are shorter than a packet, or than a window of the simulation.
#[test]
fn no_slice_has_more_than_the_link_carries() {
    let text = r#"
        name = "late comer"
        mtu = 1000
        topology = { kind = "star", hosts = 3 }
        links = { rate = "100Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "12MB", pfc = {} }
        transport = { name = "roce-gbn" }
        workload = { kind = "permutation", bytes = "20MB", message = "20MB" }
        run = { slice = "100us", limit = "4ms" }
    "#;
    for (slice, transport) in [("100us", "roce-gbn"), ("50ns", "roce-gbn"), ("50ns", "irn"), ("300ns", "falcon")] {
        let bytes = if slice == "100us" { "20MB" } else { "1MB" };
        let with = [("run.slice", slice), ("transport", transport), ("workload.bytes", bytes)];
        let report = run(text, &with, 1);
        let slices = report.slices.expect("the plan has slices");
        for (host, series) in &slices.hosts {
            let most = series.goodput_gbps.iter().copied().fold(0.0, f64::max);
            assert!((80.0..=100.0).contains(&most), "{transport}, {slice}: {most} Gbit/s at {host}");
        }
        let sum: f64 = slices.hosts.keys().map(|host| payload_bytes(&slices, host)).sum();
        assert!(sum > 0.9 * report.bytes as f64 && sum <= report.bytes as f64 + 1.0, "{sum} of {}", report.bytes);
    }
}

/// A tenant whose packets are few, probed every 20 us, beside one that is not probed because it sends nothing.
const PROBED: &str = r#"
    name = "probed"
    mtu = 1024
    topology = { kind = "star", hosts = 2 }
    links = { rate = "100Gbps", delay = "500ns" }
    switch = { model = "shared-buffer", buffer = "9MB" }
    transport = { name = "irn" }
    scr = { probes = "20us" }
    run = { slice = "40us", limit = "1ms" }
    [workload]
    kind = "tenants"
    duration = "800us"
    [workload.tenant.probed]
    message = "64B"
    rate = "100Mbps"
    [workload.tenant.late]
    message = "64B"
    start = "790us"
    depth = 1
"#;

/// Each slice has the round trips of its probes: of an empty network, and 10 us more where a link is longer. Slices do
/// not change the trace.
#[test]
fn slices_have_the_round_trips_of_probes() {
    let longer = ("fault", r#"[{ kind = "delay", delay = "10us", links = "host-0>switch-0" }]"#);
    for (faults, added_us) in [(&[][..], 0.0), (&[longer][..], 10.0)] {
        let report = run(PROBED, faults, 1);
        let slices = report.slices.as_ref().expect("the plan has slices");
        let probes = slices.queue_pairs["probed-0"].probes.as_ref().expect("it is probed");
        // Four links: propagation, and a frame of 174 bytes with preamble and gap.
        let expected = 4.0 * (0.5 + 194.0 * 8e-5) + added_us;
        assert_eq!(probes.mean_us.len(), slices.queue_pairs["probed-0"].goodput_gbps.len());
        for series in [&probes.min_us, &probes.median_us, &probes.mean_us, &probes.max_us] {
            let is_right = |us: &f64| (us - expected).abs() < 0.1;
            assert!(series[2..18].iter().all(is_right), "not {expected}: {series:?}");
        }
        assert!(probes.spread_us.iter().all(|spread| *spread < 0.1), "{:?}", probes.spread_us);
        let scr = report.scr.as_ref().expect("the plan has messages");
        assert!(scr.round_trip_us.is_some_and(|round_trips| round_trips.count >= 35), "{scr:?}");
    }
    let report = run(PROBED, &[], 1);
    let without = run(PROBED, &[("run", r#"{ limit = "1ms" }"#)], 1);
    assert_eq!((without.trace_hash, without.slices), (report.trace_hash.clone(), None));
    assert_independent_of_order_and_parts(&report, PROBED, &[], 1, "probes");
    let silent = run(PROBED, &[("scr", "{}")], 1).slices.expect("the plan has slices");
    assert_eq!(silent.queue_pairs["probed-0"].probes, None, "without probes there is no series");
}
