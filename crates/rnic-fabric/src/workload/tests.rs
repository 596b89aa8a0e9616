//! Each workload generates the flows that its description specifies.

use std::collections::BTreeSet;

use rnic_base::{BitRate, Duration, RandomStreams, Time};

use super::distribution::{BUILT_IN, Distribution, ShareMeaning, SizesForm};
use super::*;

fn all(plan: &WorkloadPlan, hosts: u32, seed: u64) -> Vec<FlowSpec> {
    let mut source = plan.source(&vec![BitRate::gbps(40); hosts as usize], &RandomStreams::new(seed));
    let mut flows: Vec<FlowSpec> = Vec::new();
    while let Some(start) = source.next_start() {
        let flow = source.next_flow();
        assert_eq!(flow.start, start);
        assert!(flows.last().is_none_or(|last| last.start <= start), "the flows are not in order of time");
        assert!(flow.src != flow.dst && flow.src < hosts && flow.dst < hosts);
        flows.push(flow);
    }
    flows
}

#[test]
fn poisson_offers_its_load_evenly_from_and_to_all_hosts() {
    for (name, duration) in [("irn-heavy-tail", 400), ("uniform", 400), ("web-search", 2_000)] {
        let sizes = Arc::new(Distribution::built_in(name).expect("the distribution is built in"));
        let duration = Duration::from_ms(duration);
        let plan = WorkloadPlan::Poisson { load_ppm: 700_000, sizes, duration, op: Operation::WriteImmediate };
        let flows = all(&plan, 54, 5);
        let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
        let offered = bytes as f64 * 8.0 / (54.0 * 40e9 * duration.as_secs_f64());
        assert!((offered / 0.7 - 1.0).abs() < 0.02, "{name}: load {offered}");
        let mut to = [0u32; 54];
        let mut from = [0u32; 54];
        flows.iter().for_each(|flow| {
            to[flow.dst as usize] += 1;
            from[flow.src as usize] += 1;
        });
        let flows_per_host = flows.len() as u32 / 54;
        assert!(
            to.iter().chain(&from).all(|count| count.abs_diff(flows_per_host) < flows_per_host / 4),
            "{name}: {to:?} {from:?}"
        );
    }
}

#[test]
fn poisson_gaps_are_exponential() {
    let sizes = Arc::new(Distribution::fixed(10_000));
    let plan = WorkloadPlan::Poisson {
        load_ppm: 500_000,
        sizes,
        duration: Duration::from_ms(100),
        op: Operation::WriteImmediate,
    };
    let flows: Vec<FlowSpec> = all(&plan, 4, 1).into_iter().filter(|flow| flow.src == 2).collect();
    let gaps: Vec<f64> = flows.windows(2).map(|pair| pair[1].start.since(pair[0].start).as_us_f64()).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((mean - 4.0).abs() < 0.1, "80 kbit at 20 Gbit/s every 4 us, found {mean}");
    let above = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
    assert!((above - (-1.0f64).exp()).abs() < 0.01, "{above}");
}

#[test]
fn flows_of_a_host_do_not_depend_on_the_number_of_hosts() {
    let sizes = Arc::new(Distribution::fixed(10_000));
    let plan = WorkloadPlan::Poisson {
        load_ppm: 500_000,
        sizes,
        duration: Duration::from_ms(1),
        op: Operation::WriteImmediate,
    };
    let starts =
        |hosts| all(&plan, hosts, 1).iter().filter(|flow| flow.src == 2).map(|flow| flow.start).collect::<Vec<_>>();
    assert_eq!(starts(4), starts(40));
}

#[test]
fn built_in_distributions_have_their_published_means() {
    let mean =
        |name: &str| Distribution::built_in(name).expect("the distribution is built in").mean_milli_bytes() / 1_000_000;
    assert!((167..170).contains(&mean("irn-heavy-tail")), "{} KB", mean("irn-heavy-tail"));
    assert_eq!(mean("uniform"), 2_749);
    assert!((1_650..1_750).contains(&mean("web-search")), "{} KB", mean("web-search"));
    assert!((7_000..8_000).contains(&mean("data-mining")), "{} KB", mean("data-mining"));
    for (name, _) in BUILT_IN {
        let sizes = Distribution::built_in(name).expect("the distribution is built in");
        let mut stream = RandomStreams::new(2).stream(name);
        let drawn: Vec<u64> = (0..200_000).map(|_| sizes.draw(&mut stream)).collect();
        let average = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        let expected = sizes.mean_milli_bytes() as f64 / 1_000.0;
        // The tail of `data-mining` is too heavy for a closer match.
        let tolerance = if *name == "data-mining" { 0.05 } else { 0.02 };
        assert!((average / expected - 1.0).abs() < tolerance, "{name}: {average} instead of {expected}");
    }
}

#[test]
fn irn_heavy_tail_has_its_shares() {
    let sizes = Distribution::built_in("irn-heavy-tail").expect("the distribution is built in");
    let mut stream = RandomStreams::new(2).stream("x");
    let drawn: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut stream)).collect();
    let share = |low: u64, high: u64| drawn.iter().filter(|size| (low..high).contains(*size)).count();
    assert!((49_000..51_000).contains(&share(32, 1_000)));
    assert!((14_500..15_500).contains(&share(200_000, 3_000_000)));
    assert_eq!(share(0, 32) + share(3_000_001, u64::MAX), 0);
    // Log-uniform sizes: half of them are below the geometric mean.
    assert!((6_900..8_100).contains(&share(200_000, 774_597)), "{}", share(200_000, 774_597));
}

#[test]
fn errors_of_distributions_are_one_line() {
    for (text, what) in [
        ("100 0\n50 1", "line 2, column 1: the size or the share is smaller than in the line before"),
        ("100 50%\n200 40%", "line 2"),
        ("100 50%", "its last line must have"),
        ("", "its last line must have"),
        ("100", "line 1, column 1: `"),
        ("0 1", "line 1, column 1: the size is out of range"),
        ("2GiB 1", "line 1, column 1: the size is out of range"),
        ("1 parsec 1", "line 1, column 1: `"),
        ("100x 1", "unknown unit"),
        ("interpolation cubic", "interpolation"),
    ] {
        let error = Distribution::from_text(text).expect_err(text).to_string();
        assert!(error.contains(what) && error.lines().count() == 1, "{text:?}: {error}");
    }
    let commented = Distribution::from_text("# sizes\n\n 1KB, 0 # smallest\n2KB,100%\n").expect("the text is valid");
    assert_eq!(commented.mean_milli_bytes() / 1_000, 1_499);
}

/// The same sizes in each published form: percentages, percentages with a sign, fractions, and ns-2's three columns
/// with sizes in packets.
#[test]
fn published_forms_of_sizes_are_read() {
    let expected = Distribution::from_text("1460 0%\n2920 15.5%\n14600 100%\n").expect("the text is valid");
    for text in [
        "1460 0\n2920 15.5\n14600 100\n",
        "# HPCC\n1460\t0\n2920,15.5\n14600.0 100.0\n",
        "1460 0.0\n2920 0.155\n14600 1\n",
        "1460 0\n2920 0.155\n14600 1.000\n",
        "unit 1460B\n1 1 0\n2 1 0.155\n10 1 1\n",
        "unit 1B\n1460 7 0\n2920 3 15.5\n14600 1 100\n",
    ] {
        assert_eq!(Distribution::from_text(text).as_ref(), Ok(&expected), "{text}");
    }
    let packets = SizesForm { unit: Some(1_460), ..SizesForm::default() };
    assert_eq!(Distribution::from_file("1 1 0\n2 1 0.155\n10 1 1\n", packets), Ok(expected));
}

/// Shares of each size are never taken for cumulative ones, or the reverse.
#[test]
fn shares_of_each_size_need_a_key() {
    let each = SizesForm { shares: Some(ShareMeaning::Each), ..SizesForm::default() };
    let cumulative = SizesForm { shares: Some(ShareMeaning::Cumulative), ..SizesForm::default() };
    for text in ["64 50%\n1KB 30%\n1MB 20%\n", "64 20\n1KB 30\n1MB 50\n", "64 0.2\n1KB 0.3\n1MB 0.5\n"] {
        let error = Distribution::from_text(text).expect_err("it may be either").to_string();
        assert!(error.contains(r#"unless the key shares = "each""#) && error.lines().count() == 1, "{error}");
        assert!(Distribution::from_file(text, cumulative).is_err(), "{text}");
        let sizes = Distribution::from_file(text, each).expect("it is complete");
        let mut stream = RandomStreams::new(1).stream("sizes");
        let drawn: Vec<u64> = (0..10_000).map(|_| sizes.draw(&mut stream)).collect();
        assert!(drawn.iter().all(|size| [64, 1_000, 1_000_000].contains(size)), "{text}");
        let middle = drawn.iter().filter(|size| **size == 1_000).count();
        assert!(middle.abs_diff(3_000) < 5 * 46, "{middle} of 10000 are 1 KB, not 30 %");
    }
    for (text, form, what) in [
        ("64 50%\n1KB 40%\n", each, "must add up to 100%"),
        ("1 1 0\n6 1 0.15\n20 1 1\n", SizesForm::default(), "line 1, column 1: lines of three fields"),
        ("0 0\n1KB 100%\ninterpolation log\n", SizesForm::default(), "a first size above zero"),
        ("unit 2KB\n1KB 100%\n", SizesForm::default(), "line 2, column 1: `1KB` has a unit"),
        ("1KB 120%\n", SizesForm::default(), "line 1, column 5: `120%`"),
    ] {
        let error = Distribution::from_file(text, form).expect_err(text).to_string();
        assert!(error.contains(what) && error.lines().count() == 1, "{text}: {error}");
    }
}

/// Mean and percentiles of the sizes that are drawn agree with the file: within five standard errors of a sample of
/// this size, computed from the file.
#[test]
fn drawn_sizes_agree_with_their_file() {
    const DRAWS: u32 = 200_000;
    // A file that starts at zero, and one of packets in which half of the flows have the smallest size.
    for (text, unit) in
        [("0 0\n10000 15\n20000 20\n1000000 70\n30000000 100\n", 1.0), ("unit 1460B\n1 50\n70 90\n2000 100\n", 1_460.0)]
    {
        let points: Vec<(f64, f64)> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(size, share)| Some((size.parse::<f64>().ok()? * unit, share.parse::<f64>().ok()? / 100.0)))
            .collect();
        let (first, share) = points[0];
        let (mut mean, mut square) = (first * share, first * first * share);
        for pair in points.windows(2) {
            let ((low, before), (high, after)) = (pair[0], pair[1]);
            mean += (after - before) * (low + high) / 2.0;
            square += (after - before) * (low * low + low * high + high * high) / 3.0;
        }
        let sizes = Distribution::from_text(text).expect("the text is valid");
        let mut stream = RandomStreams::new(5).stream("sizes");
        let drawn: Vec<f64> = (0..DRAWS).map(|_| sizes.draw(&mut stream) as f64).collect();
        let count = f64::from(DRAWS);
        let found = drawn.iter().sum::<f64>() / count;
        let error = 5.0 * ((square - mean * mean) / count).sqrt();
        assert!((found - mean).abs() < error, "mean {found}, not {mean} within {error}");
        assert!((sizes.mean_milli_bytes() as f64 / 1e3 / mean - 1.0).abs() < 1e-4, "{}", sizes.mean_milli_bytes());
        for (size, share) in &points[..points.len() - 1] {
            let below = drawn.iter().filter(|drawn| **drawn <= *size).count() as f64 / count;
            let error = 5.0 * (share * (1.0 - share) / count).sqrt() + 1.0 / count;
            assert!((below - share).abs() < error, "{below} of the flows have up to {size} bytes, not {share}");
        }
    }
}

#[test]
fn incast_stripes_all_bytes_over_the_senders() {
    let plan = WorkloadPlan::Incast {
        senders: 30,
        bytes: 1_000_007,
        to: 3,
        jitter: Duration::from_us(5),
        repeats: 4,
        interval: Duration::from_ms(1),
        start: Duration::ZERO,
        background: None,
        op: Operation::Send,
    };
    let flows = all(&plan, 54, 9);
    assert_eq!((flows.len(), flows.iter().map(|flow| flow.bytes).sum::<u64>()), (120, 4 * 1_000_007));
    assert!(flows.iter().all(|flow| flow.dst == 3 && flow.traffic.op == Operation::Send));
    let first: BTreeSet<u32> = flows[..30].iter().map(|flow| flow.src).collect();
    let second: BTreeSet<u32> = flows[30..60].iter().map(|flow| flow.src).collect();
    assert_eq!((first.len(), second.len()), (30, 30));
    assert_ne!(first, second, "two requests have the same senders");
    assert!(flows[29].start < Time::from_us(6) && flows[30].start >= Time::from_us(1_000));
    assert!(flows.iter().zip(0u32..).all(|(flow, index)| flow.request == Some(index / 30)));
}

/// I-R16: combining requests with background traffic changes neither of them.
#[test]
fn an_incast_with_background_generates_the_flows_of_both() {
    let sizes = Arc::new(Distribution::built_in("irn-heavy-tail").expect("the distribution is built in"));
    let (load_ppm, duration) = (500_000, Duration::from_ms(3));
    let background = Background { load_ppm, sizes: Arc::clone(&sizes), duration };
    let incast = |background| WorkloadPlan::Incast {
        senders: 30,
        bytes: 15_000_000,
        to: 3,
        jitter: Duration::from_us(5),
        repeats: 2,
        interval: Duration::from_ms(1),
        start: Duration::from_ms(1),
        background,
        op: Operation::WriteImmediate,
    };
    let key = |flow: &FlowSpec| (flow.start, flow.src, flow.dst, flow.bytes);
    let keys = |flows: &[FlowSpec]| flows.iter().map(key).collect::<Vec<_>>();
    let both = all(&incast(Some(background)), 54, 9);
    let (requests, others): (Vec<_>, Vec<_>) = both.into_iter().partition(|flow| flow.request.is_some());
    assert_eq!(keys(&requests), keys(&all(&incast(None), 54, 9)));
    assert_eq!(
        keys(&others),
        keys(&all(&WorkloadPlan::Poisson { load_ppm, sizes, duration, op: Operation::WriteImmediate }, 54, 9))
    );
    assert_eq!(requests[0].start.as_ps() / 1_000_000_000, 1, "the first request is not at its start");
    assert!(others.len() > 1_000 && others[0].start < requests[0].start);
}

#[test]
fn a_permutation_has_every_host_once_as_sender_and_once_as_receiver() {
    let plan = WorkloadPlan::Permutation { bytes: 5, connections: 1, traffic: Traffic::ONE_MESSAGE };
    for seed in 0..20 {
        let flows = all(&plan, 128, seed);
        assert_eq!(flows.iter().map(|flow| flow.src).collect::<BTreeSet<_>>().len(), 128);
        assert_eq!(flows.iter().map(|flow| flow.dst).collect::<BTreeSet<_>>().len(), 128);
    }
}

#[test]
fn a_permutation_with_several_connections_has_one_cycle_per_connection() {
    let plan = WorkloadPlan::Permutation { bytes: 640, connections: 64, traffic: Traffic::ONE_MESSAGE };
    let flows = all(&plan, 16, 3);
    for host in 0..16 {
        let sent: Vec<_> = flows.iter().filter(|flow| flow.src == host).collect();
        assert_eq!((sent.len(), flows.iter().filter(|flow| flow.dst == host).count()), (64, 64));
        assert!(sent.iter().all(|flow| flow.bytes == 10 && flow.dst != host));
        assert!(sent.iter().map(|flow| flow.dst).collect::<BTreeSet<_>>().len() > 8, "one host sends to few others");
    }
}

#[test]
fn a_closed_loop_has_the_given_queue_pairs_and_messages() {
    let traffic =
        Traffic { op: Operation::Send, message_bytes: 100, depth: 8, latencies: true, ..Traffic::ONE_MESSAGE };
    let plan = closed_loop(1, 3, None, traffic);
    let flows = all(&plan, 2, 0);
    assert_eq!(flows.len(), 3);
    assert!(flows.iter().all(|flow| (flow.src, flow.bytes, flow.traffic.messages(flow.bytes)) == (1, 5_000, 50)));
    let empty = Traffic { message_bytes: 0, ..traffic };
    let plan = closed_loop(1, 1, None, empty);
    let flows = all(&plan, 2, 0);
    assert_eq!((flows[0].bytes, flows[0].traffic.messages(0)), (0, 50), "messages of no bytes are not counted");
}

/// FaSR, figure 7b: one server and three clients, reads and writes mixed.
#[test]
fn a_closed_loop_distributes_its_queue_pairs_over_clients_and_operations() {
    let traffic = Traffic { op: Operation::Write, message_bytes: 8, ..Traffic::ONE_MESSAGE };
    let flows = all(&closed_loop(3, 12, Some(Operation::Read), traffic), 4, 0);
    assert_eq!(flows.len(), 12);
    for client in 1..4 {
        let ops: Vec<_> = flows.iter().filter(|flow| flow.src == client).map(|flow| flow.traffic.op).collect();
        assert_eq!(ops, [Operation::Write, Operation::Read, Operation::Write, Operation::Read], "client {client}");
    }
    assert!(flows.iter().all(|flow| flow.dst == 0));
}

fn closed_loop(clients: u32, queue_pairs: u32, alternate: Option<Operation>, traffic: Traffic) -> WorkloadPlan {
    let jitter = Duration::ZERO;
    let between = Between { from: 1, clients, to: 0, servers: 1, queue_pairs };
    WorkloadPlan::ClosedLoop { between, jitter, alternate, count: 50, traffic }
}

/// One client and three servers: each server has queue pairs for both operations.
#[test]
fn a_closed_loop_distributes_its_queue_pairs_over_servers() {
    let traffic = Traffic { op: Operation::Write, message_bytes: 8, ..Traffic::ONE_MESSAGE };
    let mut plan = closed_loop(1, 12, Some(Operation::Read), traffic);
    if let WorkloadPlan::ClosedLoop { between, .. } = &mut plan {
        *between = Between { from: 0, to: 1, servers: 3, ..*between };
    }
    let flows = all(&plan, 4, 0);
    for server in 1..4 {
        let ops: Vec<_> = flows.iter().filter(|flow| flow.dst == server).map(|flow| flow.traffic.op).collect();
        assert_eq!(ops, [Operation::Write, Operation::Read, Operation::Write, Operation::Read], "server {server}");
    }
    assert!(flows.iter().all(|flow| flow.src == 0));
}

/// Eight queue pairs offer 60 % of 40 Gbit/s in messages of 10 KB: on each, one message arrives every 26.7 us on
/// average, and a share of 1/e of the gaps is longer than this average.
#[test]
fn an_open_loop_offers_its_load_at_random() {
    let duration = Duration::from_ms(40);
    let until = Some(Time::ZERO + duration);
    let traffic = Traffic { message_bytes: 10_000, until, count: Some(u32::MAX), ..Traffic::ONE_MESSAGE };
    let between = Between { from: 0, clients: 1, to: 1, servers: 2, queue_pairs: 8 };
    let plan = WorkloadPlan::OpenLoop { between, load_ppm: 600_000, traffic };
    let mut times: Vec<Vec<Time>> = Vec::new();
    for mut flow in all(&plan, 3, 4) {
        assert!(flow.src == 0 && flow.traffic.latencies == traffic.latencies);
        let arrivals = flow.arrivals.as_mut().expect("messages have arrival times");
        times.push(std::iter::successors(Some(flow.start), |at| arrivals.after(*at)).collect());
    }
    let messages: usize = times.iter().map(Vec::len).sum();
    let offered = messages as f64 * 80_000.0 / duration.as_secs_f64();
    assert!((offered / 24e9 - 1.0).abs() < 0.02, "{offered}");
    assert!(
        times.iter().all(|times| times.len().abs_diff(messages / 8) < messages / 80),
        "the queue pairs have unequal shares"
    );
    let gaps = times.iter().flat_map(|times| times.windows(2).map(|pair| pair[1].since(pair[0]).as_us_f64()));
    let above = gaps.filter(|gap| *gap > 80.0 / 3.0).count() as f64 / messages as f64;
    assert!((above - (-1.0f64).exp()).abs() < 0.02, "{above}");
    assert!(times.iter().flatten().all(|at| *at < Time::ZERO + duration));
    // No queue pair is created when no message arrives for it.
    let rare = WorkloadPlan::OpenLoop { between: Between { queue_pairs: 100_000, ..between }, load_ppm: 100, traffic };
    assert!(all(&rare, 3, 4).len() < 40);
}

/// The same queue pairs, with random start times.
#[test]
fn queue_pairs_of_a_closed_loop_may_start_at_random_times() {
    let spread = Duration::from_us(100);
    let mut plan = closed_loop(3, 12, None, Traffic::ONE_MESSAGE);
    assert!(all(&plan, 4, 0).iter().all(|flow| flow.start == Time::ZERO));
    if let WorkloadPlan::ClosedLoop { jitter, .. } = &mut plan {
        *jitter = spread;
    }
    let starts = |seed| all(&plan, 4, seed).iter().map(|flow| flow.start).collect::<BTreeSet<_>>();
    assert_eq!(starts(0).len(), 12, "two queue pairs start at the same time");
    assert!(starts(0).last().is_some_and(|last| *last <= Time::ZERO + spread));
    assert_ne!(starts(0), starts(1));
    let clients: Vec<u32> = all(&plan, 4, 0).iter().map(|flow| flow.src).collect();
    assert_eq!(clients.iter().filter(|client| **client == 1).count(), 4);
}

#[test]
fn sizes_fixed_and_uniform_need_no_file() {
    let form = |text: &str| Distribution::from_form(text);
    let uniform = form("uniform:500KB-5MB").expect("the text is a form").expect("the text is valid");
    assert_eq!(Some(&uniform), Distribution::built_in("uniform").as_ref());
    assert_eq!(form("fixed:8KB"), Some(Ok(Distribution::fixed(8_000))));
    assert_eq!(
        form("fixed:8KB").expect("the text is a form").expect("the text is valid").mean_milli_bytes(),
        8_000_000
    );
    assert_eq!((form("irn-heavy-tail"), form("normal:1KB")), (None, None));
    for (text, what) in [
        ("fixed:", "no"),
        ("fixed:0", "1 to"),
        ("fixed:3GB", "1 to"),
        ("uniform:5MB", "two sizes"),
        ("uniform:5MB-1MB", "exceeds the upper size"),
        ("uniform:0-1MB", "1 to"),
    ] {
        let error = form(text).expect("the text is a form").expect_err(text);
        assert!(error.contains(what) || what == "no", "{text}: {error}");
    }
}

#[test]
fn traffic_divides_bytes_into_messages() {
    let traffic = Traffic { message_bytes: 1_000, ..Traffic::ONE_MESSAGE };
    assert_eq!(traffic.messages(2_500), 3);
    assert_eq!([0, 1, 2, 3].map(|index| traffic.message_len(2_500, index)), [1_000, 1_000, 500, 0]);
    assert_eq!((traffic.messages(0), traffic.message_len(0, 0)), (1, 0));
    assert_eq!((traffic.slot_bytes(2_500), traffic.slot_bytes(13)), (1_000, 16));
}
