//! Files of flows in each format, and their errors.

use super::*;
use crate::workload::WorkloadPlan;

const LIST: &str = "# t,s,d,b\n1.5us, 0, 1, 64KiB\n0,1,0,100\n";

fn read(text: &str) -> FlowFile {
    read_flows(text, None, 4).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn flow(start: Time, src: u32, dst: u32, bytes: u64) -> TraceFlow {
    TraceFlow { start, src, dst, bytes, op: Operation::WriteImmediate }
}

/// The same two flows in every format, found by the first line.
#[test]
fn the_same_flows_are_read_in_every_format() {
    let expected = [flow(Time::from_ns(1_500), 0, 1, 65_536), flow(Time::ZERO, 1, 0, 100)];
    for text in [
        LIST,
        "start,src,dst,bytes\n1.5us,0,1,64KiB\n0,1,0,100\n",
        "\u{feff}Size_KiB ; To; flow-id; Start Time (us); From\r\n64;1;7;1.5;0\r\n100B;0;8;0;1\r\n",
        "\"destination\"\t\"source\"\t\"flow_size\"\t\"arrival_time_ns\"\n\
         1\t0\t65536\t\"1500\"\n# a comment\n0\t1\t100\t0.0\n",
        "2\n0 1 3 100 65536 0.0000015\n1 0 3 100 100 0\n",
        "Nodes 4\nConnections 2\n0->1 id 1 start 1500000 size 65536\n1->0 start 0.000000 size 100\n",
    ] {
        assert_eq!(read(text).flows, expected, "{text}");
    }
}

#[test]
fn a_table_may_have_an_operation_and_columns_without_an_effect() {
    let file = read("op,src,dst,start,bytes,tag\nread,0,1,0,1KB,x\nwrite-imm,0,1,0,1KB,y\n");
    assert_eq!(file.flows.iter().map(|flow| flow.op).collect::<Vec<_>>(), [Operation::Read, Operation::WriteImmediate]);
    assert_eq!(file.notes, ["columns without an effect: `tag`"]);
}

/// HPCC's simulator reads as many flows as the first line says.
#[test]
fn hpcc_flows_after_the_count_are_not_read() {
    let file = read("1\n0 1 3 100 65536 2\n1 0 3 100 100 2\n");
    assert_eq!(file.flows, [flow(Time::from_us(2_000_000), 0, 1, 65_536)]);
    assert_eq!(file.notes, ["1 lines after the 1 flows of the first line are not read"]);
}

const WITH_TRIGGERS: &str = "Nodes 4\nConnections 5\nTriggers 3\n\
    0->1 id 1 start 0 size 10000 send_done_trigger 1\n\
    1->2 id 2 start 0 size 10000 recv_done_trigger 3\n\
    0->2 id 3 trigger 1 size 10000 recv_done_trigger 3 send_done_trigger 2\n\
    0->3 id 4 trigger 2 size 10000\n\
    3->0 id 5 trigger 3 size 10000\n\
    trigger id 1 oneshot\ntrigger id 2 multishot\ntrigger id 3 barrier count 2\n";

/// Starts and ends of triggers in a run: each flow starts after those that it waits for, late by at most a link delay.
#[test]
fn flows_wait_for_triggers() {
    let text = r#"
        topology = { kind = "star", hosts = 4 }
        links = { rate = "100Gbps", delay = "1us" }
        switch = { model = "shared-buffer", buffer = "8MB" }
        transport = "irn"
        workload = { kind = "trace", file = "flows.cm" }
    "#;
    let plan = crate::Plan::from_toml_with(text, &[], &mut |_| Ok(WITH_TRIGGERS.to_owned())).expect("a valid plan");
    assert!(matches!(&plan.workload, WorkloadPlan::Trace(file) if file.triggers.is_some()));
    for parts in [1, 3] {
        let mut simulation = crate::Simulation::in_parts(&plan, 1, parts).expect("a valid plan");
        let report = simulation.run(&mut |_| core::ops::ControlFlow::Continue(()));
        report.check().expect("a correct run");
        assert_eq!((report.flows, report.bytes), (5, 50_000));
        let of = |src, dst| report.records.iter().find(|flow| (flow.src, flow.dst) == (src, dst)).expect("a flow");
        let end = |src, dst| of(src, dst).start + of(src, dst).fct;
        let is_soon_after = |start: Time, end: Time| start >= end && start.since(end) <= Duration::from_us(5);
        assert!(is_soon_after(of(0, 2).start, end(0, 1)), "{:?}", report.records);
        assert!(is_soon_after(of(0, 3).start, end(0, 2)), "{:?}", report.records);
        assert!(is_soon_after(of(3, 0).start, end(0, 2).max(end(1, 2))), "{:?}", report.records);
    }
}

/// Every error is one line with the place, and says what to write.
#[test]
fn errors_name_line_and_column() {
    for (text, what) in [
        ("0,1,0", "line 1, column 1: `0,1,0` does not have four fields; a line is start,src"),
        ("0,0,1,1\n0, 0, 4,1", "line 2, column 7: `4` is not a host number; hosts are numbered 0 to 3"),
        ("0,a,1,1", "line 1, column 3: `a` is not a host"),
        ("0,1,1,1", "column 5: source and destination are the same host, 1;"),
        ("5,0,1,1", "line 1, column 1: `5`"),
        ("0,0,1,1 zebra", "zebra"),
        ("start,src,dst\n", "line 1, column 1: the header has no column `bytes`"),
        ("start,scr,dst,bytes\n", "has no column `src`; it has `scr`, did you mean `src`?"),
        ("start,src,from,dst,bytes\n", "column 11: `src` and `from` are the same column"),
        ("start,src,dst,bytes\n5,0,1,7\n", "line 2, column 1: `5`"),
        ("start_us,src,dst,bytes\n5,0,1,7\n5,0,9,7\n", "line 3, column 5: `9` is not a host"),
        ("start_us,src,dst,bytes\n5,0,1\n", "line 2, column 1: the line has only 3 fields"),
        ("start,src,dst,bytes,op\n0,0,1,7,fetch-add\n", "column 9: unknown operation `fetch-add`; use write"),
        ("3\n0 1 3 100 1000\n", "line 2, column 1: `0 1 3 100 1000` does not have six fields"),
        ("1\n0 1 x 100 1000 2\n", "line 2, column 5: `x` is not a number"),
        ("2\n0 1 3 100 1000 2\n", "line 1, column 1: the file has 1 flows, but its first line says 2"),
        ("Nodes 5\n", "line 1, column 7: the file is for 5 nodes, the topology has 4 hosts"),
        (
            "Connections 2\n0->1 start 0 size 1\n",
            "line 1, column 1: the file has 1 connections, but `Connections` says 2",
        ),
        ("0->1 start 0 size 0\n", "line 1, column 1: the connection has no size, or size 0"),
        ("0->1 size 7\n", "neither `start` nor `trigger`"),
        ("0->1 start 0 size 7 prio 3\n", "line 1, column 21: `prio` is not supported"),
        ("0->1 id 1 trigger 1 size 7\n", "line 1, column 1: trigger 1 is not defined"),
        ("0->1 id 1 trigger 1 size 7\ntrigger id 1 oneshot\n", "line 1, column 1: the flow never starts"),
        ("Failures 1\n", "failures of links are not supported"),
        ("0->1 start 0 size 7\nfailure switch_type TOR\n", "line 2, column 1: unknown word `failure`"),
        ("0->1 start 0 size 7\ntrigger id 1\n", "a trigger needs an id and a type"),
        ("", "the file contains no flows"),
        ("start_us,src,dst,bytes\n", "the file contains no flows"),
    ] {
        let error = read_flows(text, None, 4).expect_err(text).to_string();
        assert!(error.contains(what) && error.lines().count() == 1, "{text:?}: {error}");
    }
    // A given format wins over the first line.
    let error = read_flows(LIST, Some(FlowFormat::Hpcc), 4).expect_err("a list").to_string();
    assert!(error.contains("is not the number of flows"), "{error}");
}

/// A barrier that too few flows activate, or a multishot trigger with too many flows, leaves flows behind.
#[test]
fn flows_that_never_start_are_refused() {
    let short = WITH_TRIGGERS.replace("count 2", "count 3");
    let error = read_flows(&short, None, 4).expect_err("two activations of three").to_string();
    assert!(error.starts_with("line 8, column 1: the flow never starts"), "{error}");
}
