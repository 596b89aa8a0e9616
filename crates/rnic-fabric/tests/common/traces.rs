//! Writes execution traces, and gives them to plans.

use prost::Message;
use rnic_fabric::Plan;
use rnic_fabric::plan::{PlanError, TraceFiles};
use rnic_fabric::workload::chakra::proto::{Attribute, Metadata, NodeMessage, Value};

/// Returns a property of a node.
pub fn number(name: &str, number: i64) -> Attribute {
    Attribute { name: name.to_owned(), value: Some(Value::Int64(number)) }
}

/// Returns a computation.
pub fn computation(id: u64, data_deps: &[u64], micros: u64) -> NodeMessage {
    let data_deps = data_deps.to_vec();
    NodeMessage { id, name: format!("compute-{id}"), kind: 4, data_deps, duration_micros: micros, attr: Vec::new() }
}

/// Returns a collective with the number of its type in the format.
pub fn collective(id: u64, data_deps: &[u64], kind: i64, bytes: i64) -> NodeMessage {
    let attr = vec![number("comm_type", kind), number("comm_size", bytes)];
    NodeMessage { kind: 7, name: format!("collective-{id}"), attr, ..computation(id, data_deps, 0) }
}

/// Returns a node that sends to another rank.
pub fn send(id: u64, data_deps: &[u64], dst: i64, bytes: i64) -> NodeMessage {
    let attr = vec![number("comm_dst", dst), number("comm_size", bytes)];
    NodeMessage { kind: 5, name: format!("send-{id}"), attr, ..computation(id, data_deps, 0) }
}

/// Returns a node that receives from another rank.
pub fn receive(id: u64, data_deps: &[u64], src: i64, bytes: i64) -> NodeMessage {
    let attr = vec![number("comm_src", src), number("comm_size", bytes)];
    NodeMessage { kind: 6, name: format!("receive-{id}"), attr, ..computation(id, data_deps, 0) }
}

/// Returns the file of a trace.
pub fn trace(nodes: &[NodeMessage]) -> Vec<u8> {
    let mut bytes = Metadata { version: "0.0.4".to_owned() }.encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

/// Returns the traces of four ranks that train in two steps: gradients are summed while the next layer computes, then
/// a pipeline passes its result on, and all exchange their parts.
pub fn training() -> Vec<Vec<u8>> {
    let rank = |rank: i64| {
        let mut nodes = vec![
            computation(1, &[], 20 + rank as u64),
            collective(2, &[1], 0, 400_000),
            computation(3, &[1], 30),
            collective(4, &[2, 3], 2, 50_000),
            collective(5, &[4], 7, 200_000),
        ];
        if rank > 0 {
            nodes.push(receive(6, &[5], rank - 1, 64_000));
        }
        nodes.push(computation(7, if rank > 0 { &[6] } else { &[5] }, 10));
        if rank < 3 {
            nodes.push(send(8, &[7], rank + 1, 64_000));
        }
        nodes.push(collective(9, &[7], 6, 100_000));
        trace(&nodes)
    };
    (0..4).map(rank).collect()
}

/// The traces of ranks in memory, as `run.0.et`, `run.1.et` and so on.
#[derive(Clone, Debug)]
pub struct Traces(pub Vec<Vec<u8>>);

impl TraceFiles for Traces {
    fn list(&mut self, folder: &str) -> Result<Vec<String>, String> {
        let names = (0..self.0.len()).map(|rank| format!("run.{rank}.et"));
        if folder == "." || folder == "traces" { Ok(names.collect()) } else { Err("no such folder".to_owned()) }
    }

    fn read(&mut self, name: &str, _: u64) -> Result<Vec<u8>, String> {
        let rank = name.rsplit('.').nth(1).and_then(|rank| rank.parse::<usize>().ok());
        rank.and_then(|rank| self.0.get(rank).cloned()).ok_or_else(|| format!("no file {name}"))
    }
}

/// Reads a plan with these traces.
pub fn plan_with(text: &str, overrides: &[(&str, &str)], traces: &[Vec<u8>]) -> Result<Plan, PlanError> {
    Plan::from_toml_in(text, overrides, &mut |_| Ok("0,0,1,1KB\n".to_owned()), &mut Traces(traces.to_vec()))
}
