//! The protobuf messages of a trace, as far as they are used, and their conversion to nodes.

use prost::Message;
use rnic_base::Duration;

use super::{ChakraError, Node, TRACE_BYTES_MAX, Work};
use crate::link::PLAN_TIME_MAX;
use crate::workload::collective::CollectiveKind;

/// The first message of a trace.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    /// Version of the format.
    #[prost(string, tag = "1")]
    pub version: String,
}

/// A node as it is in a trace.
#[derive(Clone, PartialEq, Message)]
pub struct NodeMessage {
    /// Number of the node.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name of the node.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Type of the node: an index of `NODE_TYPES`.
    #[prost(int32, tag = "3")]
    pub kind: i32,
    /// Numbers of the nodes that it waits for.
    #[prost(uint64, repeated, tag = "5")]
    pub data_deps: Vec<u64>,
    /// Duration in microseconds.
    #[prost(uint64, tag = "7")]
    pub duration_micros: u64,
    /// Further properties.
    #[prost(message, repeated, tag = "10")]
    pub attr: Vec<Attribute>,
}

/// A property of a node.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Name of the property.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value of the property, when its type is one that is used.
    #[prost(oneof = "Value", tags = "7, 9, 11, 13, 15, 17, 27, 28, 29")]
    pub value: Option<Value>,
}

/// The value of a property.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// A number.
    #[prost(int32, tag = "7")]
    Int32(i32),
    /// A number.
    #[prost(int64, tag = "9")]
    Int64(i64),
    /// A number.
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    /// A number.
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    /// A number.
    #[prost(sint32, tag = "15")]
    Sint32(i32),
    /// A number.
    #[prost(sint64, tag = "17")]
    Sint64(i64),
    /// A truth value.
    #[prost(bool, tag = "27")]
    Bool(bool),
    /// Truth values.
    #[prost(message, tag = "28")]
    Bools(Bools),
    /// A text.
    #[prost(string, tag = "29")]
    Text(String),
}

/// A list of truth values.
#[derive(Clone, PartialEq, Message)]
pub struct Bools {
    /// The values.
    #[prost(bool, repeated, tag = "1")]
    pub values: Vec<bool>,
}

/// The size of the traces that have been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceSize {
    nodes: usize,
    dependencies: usize,
}

impl NodeMessage {
    fn attribute(&self, name: &str) -> Option<&Value> {
        self.attr.iter().find(|attribute| attribute.name == name)?.value.as_ref()
    }

    /// Returns the value of a property that is a number and not negative.
    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.attribute(name) else { return Ok(None) };
        let number = match value {
            Value::Int32(number) | Value::Sint32(number) => u64::try_from(*number).ok(),
            Value::Int64(number) | Value::Sint64(number) => u64::try_from(*number).ok(),
            Value::Uint32(number) => Some(u64::from(*number)),
            Value::Uint64(number) => Some(*number),
            Value::Bool(_) | Value::Bools(_) | Value::Text(_) => None,
        };
        number.map(Some).ok_or_else(|| format!("its `{name}` is not a number from 0 on"))
    }

    fn needed(&self, name: &str) -> Result<u64, String> {
        self.number(name)?.ok_or_else(|| format!("it has no `{name}`"))
    }

    /// Returns a rank or a tag.
    fn small(&self, name: &str) -> Result<Option<u32>, String> {
        let number = self.number(name)?;
        number.map(|number| u32::try_from(number).map_err(|_| format!("its `{name}` is too large"))).transpose()
    }

    /// Returns whether the node is work of a processor: the time in which it issues work for others.
    fn is_of_processor(&self) -> bool {
        match self.attribute("is_cpu_op") {
            Some(Value::Bool(is_cpu_op)) => *is_cpu_op,
            _ => self.number("is_cpu_op").is_ok_and(|number| number.is_some_and(|number| number != 0)),
        }
    }

    fn bytes(&self) -> Result<u64, String> {
        match self.needed("comm_size")? {
            0 => Err("its `comm_size` is 0".to_owned()),
            bytes => Ok(bytes),
        }
    }

    /// Returns what the node of `rank` does.
    fn work(&self, rank: u32) -> Result<Work, String> {
        let name = usize::try_from(self.kind).ok().and_then(|kind| NODE_TYPES.get(kind));
        match name.copied() {
            Some("METADATA_NODE") => Ok(Work::Compute(Duration::ZERO)),
            Some("COMP_NODE") => self.computation(),
            Some("COMM_SEND_NODE" | "COMM_RECV_NODE" | "COMM_COLL_NODE") if self.is_of_processor() => {
                self.computation()
            }
            Some("COMM_SEND_NODE") => {
                let src = self.small("comm_src")?;
                if let Some(src) = src.filter(|src| *src != rank) {
                    return Err(format!("its `comm_src` is {src}, another rank"));
                }
                let dst = self.small("comm_dst")?.ok_or("it has no `comm_dst`")?;
                Ok(Work::Send { dst, tag: self.small("comm_tag")?.unwrap_or(0), bytes: self.bytes()? })
            }
            Some("COMM_RECV_NODE") => {
                let dst = self.small("comm_dst")?;
                if let Some(dst) = dst.filter(|dst| *dst != rank) {
                    return Err(format!("its `comm_dst` is {dst}, another rank"));
                }
                let src = self.small("comm_src")?.ok_or("it has no `comm_src`")?;
                let bytes = self.number("comm_size")?;
                Ok(Work::Receive { src, tag: self.small("comm_tag")?.unwrap_or(0), bytes })
            }
            Some("COMM_COLL_NODE") => self.collective(),
            Some(name) => Err(format!("nodes of type {name} are not supported")),
            None => Err(format!("its type, {}, is unknown", self.kind)),
        }
    }

    fn computation(&self) -> Result<Work, String> {
        if self.duration_micros == 0 && self.number("num_ops")?.is_some_and(|ops| ops > 0) {
            return Err("it has `num_ops` but no duration; its time is not computed from operations".to_owned());
        }
        let longest = PLAN_TIME_MAX.as_ps() / MICROSECOND_PS;
        if self.duration_micros > longest {
            return Err(format!("its duration is longer than the longest run, {PLAN_TIME_MAX}"));
        }
        Ok(Work::Compute(Duration::from_us(self.duration_micros)))
    }

    fn collective(&self) -> Result<Work, String> {
        let number = self.needed("comm_type")?;
        let name = usize::try_from(number).ok().and_then(|number| COLLECTIVES.get(number)).copied();
        let kind = match name.unwrap_or("unknown") {
            "ALL_REDUCE" => CollectiveKind::AllReduce,
            "ALL_GATHER" => CollectiveKind::AllGather,
            "ALL_TO_ALL" => CollectiveKind::AllToAll,
            "REDUCE_SCATTER" | "REDUCE_SCATTER_BLOCK" => CollectiveKind::ReduceScatter,
            name => {
                return Err(format!(
                    "collectives of type {name} ({number}) are not supported; only ALL_REDUCE, ALL_GATHER, \
                     REDUCE_SCATTER and ALL_TO_ALL are"
                ));
            }
        };
        if let Some(Value::Bools(dimensions)) = self.attribute("involved_dim")
            && dimensions.values.contains(&false)
        {
            return Err("its `involved_dim` leaves out a dimension, which is not supported; use `pg_name`".to_owned());
        }
        let group = match self.attribute("pg_name") {
            None => String::new(),
            Some(Value::Text(name)) => name.clone(),
            Some(_) => return Err("its `pg_name` is not a text".to_owned()),
        };
        Ok(Work::Collective { kind, bytes: self.bytes()?, group })
    }
}

/// Reads the trace of a rank.
pub(super) fn read(rank: u32, bytes: &[u8], size: &mut TraceSize) -> Result<Vec<Node>, ChakraError> {
    let error = |byte: usize, what: String| ChakraError { rank: Some(rank), byte: Some(byte), what };
    if bytes.len() > TRACE_BYTES_MAX {
        let what = format!("the trace has {} bytes; the maximum is {TRACE_BYTES_MAX}", bytes.len());
        return Err(ChakraError::of(rank, what));
    }
    if bytes.starts_with(&GZIP) {
        return Err(ChakraError::of(rank, "the trace is compressed; decompress it with gunzip"));
    }
    let (mut rest, mut nodes) = (bytes, Vec::new());
    let mut is_first = true;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let message = take_message(&mut rest).map_err(|what| error(at, what))?;
        if is_first {
            is_first = false;
            Metadata::decode(message).map_err(|wrong| error(at, format!("this is no metadata: {wrong}{NO_TRACE}")))?;
            continue;
        }
        let node = NodeMessage::decode(message).map_err(|wrong| error(at, format!("this is no node: {wrong}")))?;
        size.nodes += 1;
        size.dependencies += node.data_deps.len();
        if size.nodes > NODES_MAX || size.dependencies > DEPENDENCIES_MAX {
            let what = format!(
                "the traces have {} nodes and {} dependencies so far; the maximum is {NODES_MAX} and \
                 {DEPENDENCIES_MAX}",
                size.nodes, size.dependencies
            );
            return Err(error(at, what));
        }
        let work = node.work(rank).map_err(|what| {
            let name: String = node.name.chars().take(NAME_CHARS_MAX).filter(|letter| !letter.is_control()).collect();
            error(at, format!("node {} (`{name}`): {what}", node.id))
        })?;
        nodes.push(Node { id: node.id, data_deps: node.data_deps, work });
    }
    if nodes.is_empty() {
        return Err(ChakraError::of(rank, format!("the trace has no nodes{NO_TRACE}")));
    }
    Ok(nodes)
}

/// Removes the next message and its length.
fn take_message<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], String> {
    let len = prost::decode_length_delimiter(&mut *rest).map_err(|error| format!("this is no length: {error}"))?;
    let message = rest.get(..len).ok_or_else(|| {
        format!("a message of {len} bytes starts here, but the file has only {} more bytes", rest.len())
    })?;
    *rest = &rest[len..];
    Ok(message)
}

/// Types of nodes, by number.
const NODE_TYPES: [&str; 8] = [
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
];
/// Types of collectives, by number.
const COLLECTIVES: [&str; 10] = [
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
];
const NO_TRACE: &str = "; a trace is a protobuf file (.et), not JSON";
const GZIP: [u8; 2] = [0x1f, 0x8b];
const NAME_CHARS_MAX: usize = 60;
const MICROSECOND_PS: u64 = 1_000_000;
/// Maximum number of nodes of all ranks.
const NODES_MAX: usize = 1 << 20;
/// Maximum number of dependencies of all ranks.
const DEPENDENCIES_MAX: usize = 1 << 23;
