//! Execution traces: their conversion, and what is refused.

use prost::Message;

use super::proto::{Attribute, Bools, Metadata, NodeMessage, Value};
use super::*;

fn number(name: &str, number: i64) -> Attribute {
    Attribute { name: name.to_owned(), value: Some(Value::Int64(number)) }
}

fn node(id: u64, kind: i32, data_deps: &[u64], attr: Vec<Attribute>) -> NodeMessage {
    NodeMessage { id, name: format!("n{id}"), kind, data_deps: data_deps.to_vec(), duration_micros: 5, attr }
}

fn collective(id: u64, kind: i64, bytes: i64) -> NodeMessage {
    node(id, 7, &[], vec![number("comm_type", kind), number("comm_size", bytes)])
}

fn message(id: u64, kind: i32, peer: (&str, i64), bytes: i64) -> NodeMessage {
    node(id, kind, &[], vec![number(peer.0, peer.1), number("comm_size", bytes)])
}

fn trace(nodes: &[NodeMessage]) -> Vec<u8> {
    let mut bytes = Metadata { version: "0.0.4".to_owned() }.encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

fn read(traces: &[Vec<u8>]) -> Result<ChakraPlan, String> {
    ChakraPlan::from_traces(traces, Operation::WriteImmediate).map_err(|error| error.to_string())
}

/// Messages and bytes of each collective among four ranks, from the size of a rank's input.
#[test]
fn collectives_become_messages() {
    for (kind, messages, bytes) in
        [(0, 4 * 6, 4 * 6 * 250), (2, 4 * 3, 4 * 3 * 1_000), (6, 12, 12 * 250), (7, 12, 12 * 250)]
    {
        let plan = read(&vec![trace(&[collective(1, kind, 1_000)]); 4]).expect("it is supported");
        let lengths = || plan.script.connections.iter().flat_map(|connection| connection.lengths.iter());
        assert_eq!((lengths().count(), lengths().sum::<u32>()), (messages, bytes), "type {kind}");
        assert_eq!((plan.nodes, plan.ranks), (4, 4));
    }
}

/// Nodes that cannot be carried out are refused with their rank and number.
#[test]
fn what_is_not_supported_is_refused_by_name() {
    let two = |first: Vec<NodeMessage>, second: Vec<NodeMessage>| read(&[trace(&first), trace(&second)]);
    let both = |node: NodeMessage| two(vec![node.clone()], vec![node]);
    let named = |id, name: &str| {
        let mut node = collective(id, 0, 8);
        node.attr.push(Attribute { name: "pg_name".to_owned(), value: Some(Value::Text(name.to_owned())) });
        node
    };
    let of_dimensions = |values: &[bool]| {
        let value = Some(Value::Bools(Bools { values: values.to_vec() }));
        let attr = Attribute { name: "involved_dim".to_owned(), value };
        let mut node = collective(1, 0, 8);
        node.attr.push(attr);
        node
    };
    assert!(both(of_dimensions(&[true, true])).is_ok());
    let mut operations = node(1, 4, &[], vec![number("num_ops", 7)]);
    operations.duration_micros = 0;
    let (send, receive) = (message(1, 5, ("comm_dst", 1), 8), message(2, 6, ("comm_src", 0), 8));
    for (result, what) in [
        (
            both(collective(3, 5, 8)),
            "rank 0: byte 8: node 3 (`n3`): collectives of type BROADCAST (5) are not supported",
        ),
        (both(node(1, 2, &[], vec![])), "node 1 (`n1`): nodes of type MEM_LOAD_NODE are not supported"),
        (both(node(1, 99, &[], vec![])), "its type, 99, is unknown"),
        (both(operations), "it has `num_ops` but no duration"),
        (both(collective(1, 0, 0)), "its `comm_size` is 0"),
        (both(of_dimensions(&[true, false])), "its `involved_dim` leaves out a dimension"),
        (both(node(1, 7, &[], vec![])), "it has no `comm_type`"),
        (both(node(1, 4, &[2], vec![])), "rank 0: node 1: it depends on node 2, which the trace does not have"),
        (two(vec![node(1, 4, &[], vec![]); 2], vec![]), "rank 1: the trace has no nodes"),
        (two(vec![node(1, 4, &[], vec![]); 2], vec![node(1, 4, &[], vec![])]), "rank 0: two nodes have the number 1"),
        (
            two(vec![send.clone()], vec![node(1, 4, &[], vec![])]),
            "rank 0: node 1: rank 0 sends 1 messages with tag 0 to",
        ),
        (
            two(vec![send.clone()], vec![message(2, 6, ("comm_src", 0), 9)]),
            "rank 1: node 2: it receives 9 bytes, but rank 0",
        ),
        (
            two(vec![message(1, 5, ("comm_dst", 2), 8)], vec![receive.clone()]),
            "there is no rank 2: there are traces of 2 ranks",
        ),
        (
            two(vec![collective(1, 0, 8)], vec![node(1, 4, &[], vec![])]),
            "rank 1: it has no collectives without `pg_name`",
        ),
        (
            two(vec![named(1, "tp"), named(2, "tp")], vec![named(1, "tp")]),
            "rank 1: it has 1 collectives of process group `tp`",
        ),
        (two(vec![collective(1, 0, 8)], vec![collective(2, 0, 9)]), "rank 1: node 2: its type or size differs"),
    ] {
        let error = result.expect_err(what);
        assert!(error.contains(what) && error.lines().count() == 1, "{what}: {error}");
    }
    assert!(two(vec![send], vec![receive]).is_ok());
    let solo = read(&[trace(&[named(1, "a")]), trace(&[named(1, "b")])]).expect("groups of one rank");
    assert!(solo.script.connections.is_empty());
}

/// A processor that issues a collective needs time, and sends nothing.
#[test]
fn nodes_of_processors_are_delays() {
    let mut issue = node(1, 7, &[], vec![]);
    issue.attr.push(Attribute { name: "is_cpu_op".to_owned(), value: Some(Value::Bool(true)) });
    let plan = read(&[trace(&[issue])]).expect("it is supported");
    assert_eq!(plan.script.shortest_time(), rnic_base::Duration::from_us(5));
    assert!(plan.script.connections.is_empty());
}

/// Nodes that wait for each other are named, within a rank and across ranks.
#[test]
fn cycles_are_refused() {
    let error = read(&[trace(&[node(1, 4, &[2], vec![]), node(2, 4, &[1], vec![])])]).expect_err("a cycle");
    assert!(
        error.contains("node 1 of rank 0") && error.contains("node 2 of rank 0") && error.contains("wait for each"),
        "{error}"
    );
    assert!(
        read(&[trace(&[node(1, 4, &[1], vec![])])]).expect_err("a cycle").contains("node 1 of rank 0 waits for itself")
    );
    let rank = |peer: i64| {
        let receive = message(1, 6, ("comm_src", peer), 8);
        let send = NodeMessage { data_deps: vec![1], ..message(2, 5, ("comm_dst", peer), 8) };
        trace(&[receive, send])
    };
    let error = read(&[rank(1), rank(0)]).expect_err("both receive first");
    assert!(error.contains("of rank 0") && error.contains("of rank 1"), "{error}");
}

#[test]
fn files_that_are_no_traces_are_refused() {
    let whole = trace(&[collective(1, 0, 8)]);
    for (bytes, what) in [
        (whole[..whole.len() - 1].to_vec(), "a message of"),
        (vec![0x1f, 0x8b, 8], "decompress it with gunzip"),
        (b"{\"schema\": 1}".to_vec(), "byte 0: a message of 123 bytes starts here"),
        (vec![], "the trace has no nodes"),
        (vec![0x80; 12], "this is no length"),
    ] {
        let error = read(&[bytes]).expect_err(what);
        assert!(error.contains(what) && error.starts_with("rank 0: ") && error.lines().count() == 1, "{error}");
    }
}
