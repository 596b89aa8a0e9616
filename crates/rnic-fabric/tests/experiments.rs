//! Report values that the experiments of papers need.

mod common;

use common::*;

/// I-R15: the completion time of a request is that of its last flow. I-R16: requests and background traffic are
/// reported separately, and affect each other.
#[test]
fn an_incast_reports_its_requests_separately_from_the_background() {
    let incast = |background: &str| {
        format!(
            "{{ kind = \"incast\", senders = 5, bytes = \"500KB\", repeats = 4, interval = \"300us\", \
             start = \"50us\"{background} }}"
        )
    };
    let (alone, mixed) = (incast(""), incast(", background = { load = \"50%\", sizes = \"uniform:1KB-40KB\" }"));
    let pfc = ("switch", r#"{ model = "input-queued", buffer = "100KB", pfc = {} }"#);
    let alone = run(STAR, &[pfc, ("workload", &alone)], 3);
    let rct = alone.rct_us.expect("there are requests");
    // 500 KB at 100 Gbit/s are 40 us of payload; headers and the propagation delay are added.
    assert_eq!((rct.count, alone.requests_unfinished, alone.background), (4, 0, None));
    assert!((40.0..60.0).contains(&rct.avg), "{rct:?}");
    let last = alone.records.iter().filter(|flow| flow.request == Some(3));
    let (start, end) = last.fold((u64::MAX, 0), |(start, end), flow| {
        (start.min(flow.start.as_ps()), end.max((flow.start + flow.fct).as_ps()))
    });
    assert!(rct.max * 1e6 >= (end - start) as f64, "{rct:?} {start} {end}");

    let mixed = run(STAR, &[pfc, ("workload", &mixed)], 3);
    let background = mixed.background.expect("there are other flows");
    assert_eq!(background.flows + 20, mixed.flows);
    assert!(mixed.rct_us.expect("there are requests").avg > rct.avg * 1.1, "the background did not delay the requests");
    assert!(background.slowdown.avg > 1.0 && background.fct_us.max > background.fct_us.p50);
    assert!(!mixed.single_packet_tail.is_empty());
}

/// A request that the run's limit cuts off is reported as unfinished, not omitted.
#[test]
fn unfinished_requests_are_counted() {
    let repeats = "{ kind = \"incast\", senders = 5, bytes = \"500KB\", repeats = 2, interval = \"300us\" }";
    let pfc = ("switch", r#"{ model = "input-queued", buffer = "100KB", pfc = {} }"#);
    let report = finish(simulation(STAR, &[("workload", repeats), ("run.limit", "310us"), pfc], 3));
    assert_eq!((report.rct_us.map(|rct| rct.count), report.requests_unfinished), (Some(1), 1));
    assert!(report.flows_unfinished > 0 && report.cut_at_us == Some(310.0), "{report:?}");
    let whole = finish(simulation(STAR, &[("workload", repeats)], 3));
    assert_eq!((whole.flows_unfinished, whole.cut_at_us, whole.not_begun_from_us), (0, None, None));
    // All requests that have begun are complete, and the second one never begins.
    let apart = repeats.replace("300us", "5ms");
    let half = finish(simulation(STAR, &[("workload", &apart), ("run.limit", "4ms")], 3));
    assert_eq!((half.flows, half.flows_unfinished), (5, 0));
    assert_eq!(half.cut_at_us, Some(4_000.0));
    assert!(half.not_begun_from_us.is_some_and(|from_us| (5_000.0..5_001.0).contains(&from_us)), "{half:?}");
}

/// R-R2: with one queue pair a recovery of a complete window contains several losses; with many at the same rate,
/// nearly all recoveries concern one packet. R-R19: three bits count the missing packets.
#[test]
fn with_more_queue_pairs_most_recoveries_have_a_single_missing_packet() {
    let loss = ("fault", r#"[{ kind = "drop", probability = "1%", packets = "data" }]"#);
    let with = |queue_pairs: &str| {
        let settings = [
            loss,
            ("transport", r#"{ name = "irn", cap_packets = 512, rto_high = "200us" }"#),
            ("links.delay", "10us"),
            ("workload.op", "write"),
            ("workload.depth", "64"),
            ("workload.count", "400"),
            ("workload.queue_pairs", queue_pairs),
        ];
        run(WIRE, &settings, 5)
    };
    let (one, many) = (with("1"), with("40"));
    let [few_share, many_share] =
        [&one, &many].map(|report| report.recoveries.expect("packets were lost").single_share);
    assert!(few_share < 0.5 && many_share > 0.7, "{few_share} {many_share}");
    let many = many.recoveries.expect("packets were lost");
    assert!(many.at_most_seven_share > 0.9, "{many:?}");
    assert_eq!(many.by_missed.iter().sum::<u64>(), many.count);
    assert_eq!(many.by_most_at_once.iter().sum::<u64>(), many.count);
}

/// One packet of a hundred is lost, and the report gives the drop rate of data packets only.
#[test]
fn the_drop_rate_counts_data_packets_only() {
    let loss = |packets: &str| format!("[{{ kind = \"drop\", probability = \"1%\", packets = \"{packets}\" }}]");
    let rate = |packets: &str| run(WIRE, &[("workload.count", "1000"), ("fault", &loss(packets))], 5);
    let (data, acks) = (rate("data"), rate("acks"));
    assert!((0.008..0.012).contains(&data.drop_rate), "{}", data.drop_rate);
    assert_eq!((data.drops.acks, acks.drop_rate), (0, 0.0));
    assert_eq!(acks.drops.acks, acks.packets_dropped);
    assert!(acks.drops.acks > 0);
}

/// FaSR 7b and 7c: several clients, reads and writes; goodput of the time between the warm-up and the end.
#[test]
fn a_loop_of_several_clients_has_a_steady_goodput() {
    let workload = "{ kind = \"closed-loop\", op = \"read-write\", message = \"8KB\", from = 1, clients = 3, to = 0, \
                    queue_pairs = 36, duration = \"200us\" }";
    let switch = ("switch", r#"{ model = "input-queued", buffer = "200KB", pfc = {} }"#);
    let report = run(STAR, &[("workload", workload), switch, ("run.warmup", "50us")], 3);
    let steady = report.steady_goodput_gbps.expect("the workload has a duration");
    // Writes fill the server's link one way, reads the other way.
    assert!((150.0..190.0).contains(&steady), "{steady}");
    let bytes: u64 = report.records.iter().map(|flow| flow.bytes).sum();
    assert_eq!((report.flows, report.bytes), (36, bytes));
    assert!(bytes < 10_000_000, "more bytes than were sent: {bytes}");
}

/// Checks that messages posted in the warm-up, while the link was slow, are not in the latencies of the steady state.
#[test]
fn latencies_of_the_warm_up_are_excluded() {
    let workload =
        "{ kind = \"closed-loop\", op = \"write\", message = \"8KB\", queue_pairs = 4, duration = \"400us\" }";
    let slow = r#"[{ kind = "slow", rate = "1Gbps", until = "100us" }]"#;
    let worst = |warmup: &str| {
        let settings = [("workload", workload), ("fault", slow), ("run.warmup", warmup)];
        run(WIRE, &settings, 3).latency_us.expect("a closed loop has latencies").max
    };
    let (all, steady) = (worst("0us"), worst("300us"));
    assert!(steady * 5.0 < all, "{steady} of {all}");
}

/// R-2, R-11 to R-15 in a run, R-R12, R-R21: at 1 % loss the paper's pool of 20 units and 70 blocks is enough for one
/// queue pair and for many, its lists are never walked, and the more queue pairs there are, the more repairs take the
/// fast path. A tiny pool runs out, and everything still arrives. FaSR loses no more goodput to losses than IRN.
#[test]
fn a_shared_pool_is_large_enough_and_fast_path_use_grows_with_queue_pairs() {
    let with = |transport: &str, queue_pairs: &str| {
        let settings = [
            ("fault", r#"[{ kind = "drop", probability = "1%", packets = "data" }]"#),
            ("transport", transport),
            ("links.delay", "10us"),
            ("workload.op", "write"),
            ("workload.depth", "64"),
            ("workload.count", "400"),
            ("workload.queue_pairs", queue_pairs),
        ];
        let report = run(WIRE, &settings, 5);
        report.check().expect("the run has no violations");
        report
    };
    let paper = r#"{ name = "fasr", rto_high = "200us" }"#;
    let pools = ["1", "8", "64"].map(|queue_pairs| with(paper, queue_pairs).pool.expect("packets were lost"));
    for pool in &pools {
        assert_eq!((pool.fallbacks, pool.traversals), (0, 0), "{pool:?}");
        assert!(pool.units_in_use_max <= 20 && pool.blocks_in_use_max <= 70, "{pool:?}");
    }
    let fast = pools.map(|pool| pool.fast_path as f64 / (pool.fast_path + pool.slow_path) as f64);
    assert!(fast[0] < fast[1] && fast[1] < fast[2], "{fast:?}");
    assert!(pools[2].recoveries_without_blocks * 10 > pools[2].recoveries * 7, "{:?}", pools[2]);

    let tiny = with(r#"{ name = "fasr", rto_high = "200us", pool_units = 1, pool_blocks = 2 }"#, "8");
    assert!(tiny.pool.is_some_and(|pool| pool.fallbacks > 10), "{:?}", tiny.pool);

    let irn = with(r#"{ name = "irn", cap_packets = 500, rto_high = "200us" }"#, "1");
    let fasr = with(paper, "1");
    assert!(fasr.goodput_gbps > irn.goodput_gbps * 0.95, "{} {}", fasr.goodput_gbps, irn.goodput_gbps);
    assert_eq!(irn.pool, None);
}
