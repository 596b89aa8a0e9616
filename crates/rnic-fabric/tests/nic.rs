//! The memory of NICs: what it costs, where, and that nothing gets lost in it.

mod common;

use common::*;

/// One queue pair, both ends with a modelled NIC whose bus is no bound.
const STREAM: &str = r#"
    name = "stream"
    mtu = 1024
    topology = { kind = "point-to-point" }
    links = { rate = "100Gbps", delay = "500ns" }
    transport = { name = "srnic", cap_packets = 4000, rto_low = "100us", rto_high = "100us" }
    nic = { bus_rate = "4Tbps", bus_reads = 1024, cycle = "0ns" }
    workload = { kind = "closed-loop", op = "write", message = "8KB", depth = 512, duration = "2ms" }
    fault = [{ kind = "drop", probability = "1%", packets = "data" }]
    run = { warmup = "200us" }
"#;

fn goodput(text: &str, settings: &[(&str, &str)]) -> f64 {
    run(text, settings, 1).steady_goodput_gbps.expect("it ends by the clock")
}

/// R-R1: a question of 1.4 us for every packet that is sent again stops the sender for so long: throughput is
/// 1 / (1 + p * 1.4 us / t), t the time of a packet on the link. FaSR's figure 2 (40 % lost at 400 Gbit/s and 1 %).
/// Nothing but the waiting costs time here: the receiver's questions are behind the link, and a pipeline that has
/// caught up by the next one hides them. (With a cycle of 5.5 ns the receiver does not catch up at 400 Gbit/s, and
/// all is lost.)
#[test]
fn waiting_for_a_bitmap_costs_what_the_formula_says() {
    for (rate, bits_per_ns) in [("100Gbps", 100.0), ("200Gbps", 200.0), ("400Gbps", 400.0)] {
        let longer = [("links.rate", rate), ("workload.duration", "6ms"), ("run.warmup", "500us")];
        let asked = goodput(STREAM, &[&longer[..], &[("nic.bitmap_latency", "1.4us")]].concat());
        let lossless = goodput(STREAM, &[&longer[..], &[("fault", "[]")]].concat());
        // 1024 bytes, 78 of headers as IRN has them on a Write, 20 of preamble and gap.
        let packet_ns = (1_024.0 + 78.0 + 20.0) * 8.0 / bits_per_ns;
        let formula = 1.0 / (1.0 + 0.01 * 1_400.0 / packet_ns);
        // One packet of a hundred is sent twice, whatever that costs beside.
        let kept = asked / lossless / 0.99;
        println!("R-R1 {rate}: {asked:.1} of {lossless:.1} Gbit/s, {kept:.3}; the formula {formula:.3}");
        assert!((kept / formula - 1.0).abs() < 0.07, "{rate}: {kept:.3}, the formula {formula:.3}");
    }
}

/// Without loss nobody asks a bitmap, wherever it is (R-R6: SRNIC is flat).
#[test]
fn a_lossless_run_asks_no_bitmap() {
    let report = run(STREAM, &[("fault", "[]")], 1);
    let nic = report.nic.expect("it is modelled");
    assert_eq!((nic.bitmap_queries, nic.dropped, nic.context_misses), (0, 0, 0));
    let lossy = run(STREAM, &[], 1);
    let queries = lossy.nic.expect("it is modelled").bitmap_queries;
    assert!(queries > lossy.packets_retransmitted, "the sender asks, and so does the receiver: {queries}");
}

/// R-19, as far as a model can say it: every packet asks for the context of its queue pair, once, also the early one,
/// the repair and the SACK; an acknowledgement that leaves does not ask: its context was there when it was made.
#[test]
fn r19_a_packet_asks_for_its_context_once() {
    for fault in ["[]", r#"[{ kind = "drop", probability = "1%", packets = "data" }]"#] {
        let report = run(STREAM, &[("fault", fault), ("transport.name", "fasr"), ("nic.qpc_entries", "4")], 1);
        let nic = report.nic.expect("it is modelled");
        let data = report.packets_sent + report.packets_retransmitted;
        let received = data - report.packets_dropped + report.acks_sent;
        assert!(report.acks_sent > 10_000 && nic.dropped == 0, "{nic:?}");
        assert_eq!(nic.context_hits + nic.context_misses, data + received, "{fault}");
    }
}

/// R-25 in the fabric's model of the pipeline: full packets at the rate of the link, at 100 Gbit/s and at 200; and
/// where the link would take more, 181 million packets a second, both ways together.
#[test]
fn r25_line_rate_and_181_million_packets_a_second() {
    let fasr = [("fault", "[]"), ("transport.name", "fasr"), ("nic.wqe_fetch", "ahead")];
    let rate = |settings: &[(&str, &str)]| {
        let text = STREAM.replace("cycle = \"0ns\"", "receive_buffer = \"600KB\"");
        goodput(&text, &[&fasr[..], settings].concat())
    };
    for (gbps, link) in [(100.0, "100Gbps"), (200.0, "200Gbps")] {
        let goodput = rate(&[("links.rate", link)]);
        // 12 bytes more than RoCE in all but the first packet of a message, 66 of headers, 20 of preamble and gap.
        let share = goodput / gbps / (1_024.0 / (1_024.0 + 66.0 + 12.0 + 20.0));
        assert!((0.99..=1.02).contains(&share), "{link}: {goodput:.1} Gbit/s");
    }
    let small = [("links.rate", "1600Gbps"), ("workload.message", "8"), ("workload.duration", "300us")];
    let messages = rate(&[&small[..], &[("run.warmup", "100us")]].concat()) * 1e3 / 64.0;
    println!("R-25: {messages:.1} million messages a second");
    // Each is a packet one way and an acknowledgement the other.
    assert!((0.97..=1.01).contains(&(messages * 2.0 / 181.0)), "{messages} million a second");
}

/// Work requests and payload are read over the bus before a packet leaves: two latencies more than without.
#[test]
fn one_message_waits_for_its_work_request_and_its_payload() {
    let one = ("workload", r#"{ kind = "closed-loop", op = "write", message = 8, count = 100 }"#);
    let latency = |settings: &[(&str, &str)]| {
        let settings = [&[one, ("fault", "[]")], settings].concat();
        run(STREAM, &settings, 1).latency_us.expect("a loop has latencies").p50
    };
    let without = latency(&[("nic.enabled", "false")]);
    assert!((latency(&[]) - without - 2.4).abs() < 0.1, "{} {without}", latency(&[]));
    assert!((latency(&[("nic.wqe_fetch", "ahead")]) - without - 1.2).abs() < 0.1);
    assert!((latency(&[("nic.bus_latency", "300ns")]) - without - 0.6).abs() < 0.1);
}

/// R-R6 in small: below its cache a transport does not feel how many queue pairs there are, above it does, and the
/// bytes of a context, which follow from the transport, say where that is.
#[test]
fn the_knee_lies_where_contexts_stop_fitting() {
    let text = STREAM.replace("4Tbps", "126Gbps").replace("point-to-point\"", "star\", hosts = 4").replace(
        "kind = \"closed-loop\", op = \"write\", message = \"8KB\", depth = 512, duration = \"2ms\"",
        "kind = \"closed-loop\", op = \"read-write\", message = \"8KB\", from = 1, clients = 3, to = 0, \
         queue_pairs = 100, depth = 2, duration = \"1ms\"",
    );
    let switch = ("switch", r#"{ model = "input-queued", buffer = "240KB", pfc = {} }"#);
    let figures = |name: &str, queue_pairs: &str| {
        let cache = ("nic.qpc_cache", "117KB");
        let settings =
            [("fault", "[]"), switch, cache, ("transport.name", name), ("workload.queue_pairs", queue_pairs)];
        let settings = [&settings[..], &[("transport.cap_packets", "500")]].concat();
        let report = run(&text, &settings, 1);
        let nic = report.nic.expect("it is modelled");
        (nic.contexts_fit, nic.miss_share, report.steady_goodput_gbps.expect("it ends by the clock"))
    };
    let (fit, few_missed, few) = figures("irn-plus", "150");
    let (_, many_missed, many) = figures("irn-plus", "600");
    // 588.5 bytes, rounded up.
    assert_eq!((fit, few_missed < 0.01), (117_000 / 589, true));
    assert!(many_missed > 0.3 && many < few * 0.95, "{many_missed} {many} {few}");
    // 268 bytes each: all 400 fit.
    let ((fit, missed, some), (_, _, more)) = (figures("srnic", "150"), figures("srnic", "400"));
    assert_eq!((fit, missed < 0.01), (117_000 / 268, true));
    assert!((more / some - 1.0).abs() < 0.05, "{more} {some}");
}

/// What comes in faster than contexts are read waits, and with PFC the NIC pauses its switch instead of dropping.
#[test]
fn a_nic_that_cannot_keep_up_pauses_its_neighbour() {
    let workload = r#"{ kind = "closed-loop", op = "write", message = "1KB", from = 1, clients = 5, to = 0,
        queue_pairs = 200, depth = 8, count = 100 }"#;
    let nic = r#"{ qpc_entries = 4, bus_reads = 2, receive_buffer = "60KB" }"#;
    let switch = |pfc: &str| format!("{{ model = \"input-queued\", buffer = \"240KB\"{pfc} }}");
    let with = |pfc: &str| run(STAR, &[("workload", workload), ("nic", nic), ("switch", &switch(pfc))], 2);
    let paused = with(", pfc = {}");
    assert_eq!(paused.packets_dropped, 0);
    assert!(paused.pauses > 0 && paused.pause_time_us > 100.0, "{}", paused.pauses);
    let dropping = with("");
    assert!(dropping.drops.nic > 0);
    assert_eq!(dropping.nic.expect("it is modelled").receive_buffer_max_bytes / 1_000, 59);
}

/// Neither the order of nodes nor bytes on the wire make a difference; and a model that is switched off is none.
#[test]
fn the_model_is_deterministic() {
    let nic = r#"{ qpc_entries = 3, receive_buffer = "40KB" }"#;
    for transport in TRANSPORTS {
        for (name, text) in [("wire", WIRE), ("star", STAR), ("tree", TREE)] {
            let hash = |more: &[(&'static str, &'static str)]| {
                run(text, &[&[("transport", transport), ("nic", nic)], more].concat(), 7).trace_hash
            };
            let settings = [("transport", transport), ("nic", nic)];
            assert_the_same_otherwise(&run(text, &settings, 7), text, &settings, 7, &format!("{name}, {transport}"));
            assert_eq!(hash(&[]), hash(&[("payload", "checked"), ("wire", "encoded")]), "{name}, {transport}");
            let without = run(text, &[("transport", transport)], 7).trace_hash;
            assert_eq!(hash(&[("nic.enabled", "false")]), without, "{name}, {transport}");
            assert_ne!(hash(&[]), without, "{name}, {transport}");
        }
    }
}

/// The same of Falcon's, with packets that are damaged on the way, which belong to no connection.
#[test]
fn the_model_of_a_falcon_nic_is_deterministic() {
    let damage = r#"[{ kind = "corrupt", probability = "1%" }]"#;
    let falcon = [
        ("transport", r#"{ name = "falcon", flows = 4 }"#),
        ("nic", r#"{ qpc_entries = 3 }"#),
        ("workload.duration", "200us"),
    ];
    for (name, text, settings) in [("wire", WIRE, &falcon[..2]), ("star", STAR, &falcon[..2]), ("tree", TREE, &falcon)]
    {
        for fault in ["[]", damage] {
            let with = |more: &[(&'static str, &'static str)]| [settings, &[("fault", fault)], more].concat();
            let report = run(text, &with(&[]), 7);
            assert_the_same_otherwise(&report, text, &with(&[]), 7, name);
            let encoded = run(text, &with(&[("payload", "checked"), ("wire", "encoded")]), 7);
            assert_eq!(report.trace_hash, encoded.trace_hash, "{name}, {fault}");
        }
    }
}
