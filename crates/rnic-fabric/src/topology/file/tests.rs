//! Readers of topologies: what they accept, and the place and text of each error.

use super::*;
use crate::topology::{LinkClass, Paths};

fn read_any(text: &str) -> Result<Read, String> {
    read(text, None, &Defaults::default()).map_err(|error| error.to_string())
}

fn topology(text: &str) -> Topology {
    read_any(text).unwrap_or_else(|error| panic!("{error}: {text}")).topology
}

/// Returns the number of links of the path between two hosts.
fn path_len(topology: &Topology, src: u32, dst: u32) -> usize {
    let mut classes = Vec::new();
    Paths::new(topology).link_classes(src, dst, &mut classes);
    classes.len()
}

const GRAPH: &str = "\
# Two leaves and two spines.
host a b h[0-1]
switch leaf[0,1] spine-[0-1]
link a leaf0 100Gbps 1us # a comment
link b leaf0 25Gbps 500ns
link h[0-1] leaf1 100Gbps 1us
link leaf[0-1] spine-[0-1] 400Gbps 2us
";

#[test]
fn a_graph_has_its_names_links_and_ports_in_order() {
    let graph = topology(GRAPH);
    let names: Vec<String> = (0..8).map(|node| graph.name(node)).collect();
    assert_eq!(names, ["a", "b", "h0", "h1", "leaf0", "leaf1", "spine-0", "spine-1"]);
    let links: Vec<String> = graph.links.iter().map(|link| graph.direction_name(link.a, link.b)).collect();
    assert_eq!(
        links,
        [
            "a>leaf0",
            "b>leaf0",
            "h0>leaf1",
            "h1>leaf1",
            "leaf0>spine-0",
            "leaf0>spine-1",
            "leaf1>spine-0",
            "leaf1>spine-1"
        ]
    );
    let ports: Vec<u32> = graph.links.iter().map(|link| link.b.port).collect();
    assert_eq!(ports, [0, 1, 0, 1, 0, 0, 1, 1]);
    assert_eq!(graph.links[1].class, LinkClass::Own(1));
    let slow = LinkPlan { rate: BitRate::gbps(25), delay: Duration::from_ns(500) };
    assert_eq!((graph.own_links.len(), graph.own_links[1]), (3, slow));
    assert_eq!((path_len(&graph, 0, 1), path_len(&graph, 1, 3)), (2, 4));
}

#[test]
fn links_without_rate_or_delay_have_those_of_the_plan() {
    let text = "host a b\nswitch s t\nlink a s\nlink b t 5us\nlink s t 10Gbps\n";
    let us = |us| Some(Duration::from_us(us));
    let defaults = Defaults { host: (Some(BitRate::gbps(40)), us(1)), fabric: (None, us(2)) };
    let links = read(text, None, &defaults).expect("the text is valid").topology.own_links;
    let link = |gbps, us| LinkPlan { rate: BitRate::gbps(gbps), delay: Duration::from_us(us) };
    assert_eq!(links, [link(40, 1), link(40, 5), link(10, 2)]);
    let error = read(text, None, &Defaults { host: (None, us(1)), ..defaults }).expect_err("no rate");
    let expected = "line 3, column 8: no rate; write one, such as 100Gbps, or give links.rate in the plan";
    assert_eq!(error.to_string(), expected);
}

/// A node of HPCC's file may have any number: here switches are first and last.
const HPCC: &str = "\
6 2 6\r
0 5\r
1 0 100Gbps 0.001ms 0\r
2 0 25Gb/s 1000ns 0.000000\r
3 5 100Gbps 1us 0
4 5 100Gbps 0.000001 0
0 5 400Gbps 2us 0
5 0 400Gbps 2us 0
9 9 the rest is not read
";

#[test]
fn hpcc_files_have_their_nodes_and_links() {
    let graph = topology(HPCC);
    assert_eq!((graph.hosts, graph.switches.len(), graph.links.len()), (4, 2, 6));
    let names: Vec<String> = (0..6).map(|node| graph.name(node)).collect();
    assert_eq!(names, ["host-0", "host-1", "host-2", "host-3", "switch-0", "switch-5"]);
    assert_eq!(graph.own_links.len(), 3, "100 Gbit/s and 1 us are written in three ways: {:?}", graph.own_links);
    assert_eq!(graph.own_links[1].rate, BitRate::gbps(25));
    assert_eq!(graph.switches[0].ports(), 4, "two links between the switches");
}

const HTSIM: &str = "\
# Three tiers, two links in each bundle at the top.
Nodes 12
Tiers 3
Podsize 6

Tier 0
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 300
Queue_Up 100

Tier 1
downlink_speed_gbps 100
Radix_Down 3
Radix_Up 4
Downlink_Latency_ns 2000
Switch_Latency_ns 500

Tier 2
Downlink_speed_Gbps 50
Radix_Down 4
Downlink_Latency_ns 3000
Bundle 2
";

#[test]
fn htsim_files_become_a_clos() {
    let Read { topology: graph, notes } = read_any(HTSIM).expect("the text is valid");
    // Two pods of three and two switches; each of the two has four links up, in two bundles: four core switches.
    assert_eq!((graph.hosts, graph.switches.len()), (12, 6 + 4 + 4));
    assert_eq!(graph.links.len(), 12 + 6 * 2 + 4 * 4);
    let names = [12, 17, 18, 21, 22, 25].map(|node| graph.name(node));
    assert_eq!(names, ["tor-0", "tor-5", "agg-0", "agg-3", "core-0", "core-3"]);
    let ns = |ns| Duration::from_ns(ns);
    let delays: Vec<Duration> = graph.own_links.iter().map(|link| link.delay).collect();
    assert_eq!(delays, [ns(1_150), ns(2_400), ns(3_250)], "half of the latencies of the switches are not included");
    assert_eq!(graph.own_links[2].rate, BitRate::gbps(50));
    assert_eq!((path_len(&graph, 0, 1), path_len(&graph, 0, 2), path_len(&graph, 0, 6)), (2, 4, 6));
    assert!(notes.len() == 1 && notes[0].contains("sizes of queues"), "{notes:?}");
    // Aggregation switch 1 of each pod is linked to the odd core switches (csg-htsim).
    let to_cores = graph.links[24..].iter().map(|link| graph.direction_name(link.a, link.b)).collect::<Vec<_>>();
    assert_eq!(
        to_cores[..8],
        [
            "agg-0>core-0",
            "agg-0>core-0",
            "agg-0>core-2",
            "agg-0>core-2",
            "agg-1>core-1",
            "agg-1>core-1",
            "agg-1>core-3",
            "agg-1>core-3"
        ]
    );
}

/// Returns a text with `from` replaced, which must be in it.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn every_error_has_one_line_with_its_place() {
    assert_errors(&[
        (
            with(GRAPH, "host a", "hots a"),
            "line 2, column 1: `hots` starts no line; lines start with host, switch or link; did you mean `host`?",
        ),
        (with(GRAPH, "host a b", "host a a"), "line 2, column 8: `a` is declared twice"),
        (with(GRAPH, "a b h[0-1]", "a b h[1-0]"), "line 2, column 10: `h[1-0]` is not 1 to 65536 names"),
        (with(GRAPH, "a b h[0-1]", "a b h[0-4000000000]"), "line 2, column 10: `h[0-4000000000]` is not 1 to 65536"),
        (with(GRAPH, "a b h[0-1]", "a b h[0-1"), "line 2, column 10: `h[0-1` is not a name with one list"),
        (with(GRAPH, "a b h[0-1]", "a* b h[0-1]"), "line 2, column 6: `a*` is no name"),
        (
            with(GRAPH, "link b leaf0", "link b leaf2"),
            "line 5, column 8: `leaf2` is not declared above; write `host` or `switch` and its name; did you",
        ),
        (with(GRAPH, "25Gbps", "25Gbs"), "line 5, column 14: "),
        (with(GRAPH, "25Gbps", "25kbps"), "line 5, column 14: the rate must be between 1Mbps and 10Tbps"),
        (with(GRAPH, "500ns", "0ns"), "line 5, column 21: the delay must be between 1 ns and 1 s"),
        (with(GRAPH, "500ns", "500ns 0"), "line 5, column 27: `0` is too much"),
        (with(GRAPH, "link b leaf0 25Gbps 500ns", "link b"), "line 5, column 1: a link needs two nodes"),
        (with(GRAPH, "link b leaf0", "link b b"), "line 5, column 8: `b` is linked to itself"),
        (
            with(GRAPH, "link b leaf0", "link b h0"),
            "line 5, column 8: links the hosts `b` and `h0`; link each to a switch",
        ),
        (with(GRAPH, "link b leaf0", "link a leaf0"), "line 5, column 8: the host `a` has two links"),
        (with(GRAPH, "link b leaf0 25Gbps 500ns\n", ""), "the host `b` has no link; link it to a switch"),
        (with(GRAPH, "link leaf[0-1]", "link leaf1"), "there is no path between the hosts `a` and `h0`"),
        (with(GRAPH, "spine-[0-1]", "spine-[0-2]"), "there is no path from the switch `spine-2` to the host `a`"),
        ("host a\nswitch s\nlink a s 1Gbps 1us".to_owned(), "has 1 hosts; a network needs two"),
        (String::new(), "has 0 hosts; a network needs two"),
    ]);
}

#[test]
fn every_error_in_files_of_other_simulators_has_its_place() {
    assert_errors(&[
        (with(HPCC, "6 2 6", "6 2 7"), "line 9, column 1: there is no node 9; the 6 nodes are numbered from 0"),
        (with(HPCC, "6 2 6", "6 2 70"), "line 9, column 1: there is no node 9"),
        (with(HPCC, "6 2 6", "6 2 x"), "line 1, column 5: `x` is not the number of links, a whole number"),
        (with(HPCC, "6 2 6", "900000 2 6"), "line 1, column 1: the number of nodes must be at most"),
        (with(HPCC, "0 5\r", "0 0\r"), "line 2, column 3: the switch 0 is listed twice"),
        (with(HPCC, "1 0 100Gbps", "1 0 fast"), "line 3, column 5: "),
        (
            with(HPCC, "25Gb/s 1000ns 0.0", "25Gb/s 1000ns 0.1"),
            "line 4, column 19: the error rate is not 0; write 0, and a [[fault]]",
        ),
        (with(HPCC, "2 0 25Gb/s", "1 0 25Gb/s"), "line 4, column 1: the host `host-0` has two links"),
        ("2 0 1 0 1 1Gbps 1us 0".to_owned(), "line 1, column 7: links the hosts `host-0` and `host-1`"),
        ("3 1 2\n2\n0 2 1Gbps".to_owned(), "line 3, column 5: the file ends before the delay of a link; is it cut off"),
        (with(HTSIM, "Nodes", "Noodes"), "line 2, column 1: `Noodes` starts no line"),
        (
            with(HTSIM, "Podsize 6", "Podsize 5"),
            "line 4, column 9: the size of a pod must divide the number of nodes, 12",
        ),
        (
            with(HTSIM, "Podsize 6", "Podsized 6"),
            "line 4, column 1: `Podsized` is no key of htsim's topologies; did you mean `podsize`?",
        ),
        (with(HTSIM, "Tiers 3", "Tiers 4"), "line 3, column 7: the number of tiers must be 2 or 3"),
        (with(HTSIM, "Tier 2", "Tier 3"), "line 21, column 6: there is no such tier"),
        (with(HTSIM, "Tier 0\n", ""), "line 6, column 1: this key belongs to a tier"),
        (
            with(HTSIM, "Radix_Down 3", "Radix_Down 4"),
            "line 16, column 12: Radix_Down of tier 1 must be 3, a bundle for each switch of tier 0",
        ),
        (with(HTSIM, "Radix_Up 2", "Radix_Up 0"), "line 9, column 10: Radix_Up of tier 0 must be a multiple"),
        (with(HTSIM, "Bundle 2", "Bundle 3"), "line 25, column 8: a bundle must divide Radix_Down"),
        (with(HTSIM, "Bundle 2", "Oversubscribed"), "line 25, column 1: `Oversubscribed` has no value"),
        (
            with(HTSIM, "Queue_Up 100", "Oversubscribed 2"),
            "line 12, column 16: links down have 200000000000 bit/s and links up 200000000000",
        ),
        (with(HTSIM, "Radix_Up 4\n", ""), "line 14, column 1: tier 1 has no `Radix_Up`; add it"),
        (with(HTSIM, "Radix_Up 4", "Radix_Up 4\nRadix_Up 4"), "line 18, column 1: `Radix_Up` is given twice"),
        (with(HTSIM, "Nodes 12\n", ""), "has no line `Nodes`"),
    ]);
}

/// Asserts that reading each text ends with the error that starts as given.
fn assert_errors(cases: &[(String, &str)]) {
    for (text, expected) in cases {
        let error = read_any(text).expect_err(expected);
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_file_has_at_most_16_mib() {
    let long = " ".repeat(FILE_BYTES_MAX + 1);
    assert!(read_any(&long).expect_err("too long").starts_with("has 16777217 bytes; a topology may have 16777216"));
}

#[test]
fn sizes_have_their_limits() {
    let many = |count: u32| format!("host h[0-{}]\nswitch s\n", count - 1);
    let error = read_any(&format!("{}host x", many(65_536))).expect_err("too many hosts");
    assert!(error.starts_with("line 3, column 6: more than 65536 hosts"), "{error}");
    let error = read_any(&format!("{}link h[0-1024] s 1Gbps 1us", many(1_025))).expect_err("too many ports");
    assert!(error.starts_with("line 3, column 16: the switch `s` has more than 1024 links"), "{error}");
    let error = read_any("switch s[0-4096]").expect_err("too many switches");
    assert!(error.starts_with("line 1, column 8: more than 4096 switches"), "{error}");
    let error = read_any("switch s[0-4000]\nlink s[0-4000] s[0-4000] 1Gbps 1us").expect_err("too many links");
    assert!(error.starts_with("line 2, column 1: more than 262144 links"), "{error}");
    let chain: String = (0..63).map(|at| format!("link s{at} s{} 1Gbps 1us\n", at + 1)).collect();
    let text = format!("host a b\nswitch s[0-63]\nlink a s0 1Gbps 1us\nlink b s63 1Gbps 1us\n{chain}");
    let error = read_any(&text).expect_err("a path of 64 switches");
    assert!(error.contains("from `s63` to `s0` has more than 63 switches"), "{error}");
}
