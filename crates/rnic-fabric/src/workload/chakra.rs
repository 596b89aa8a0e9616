//! Execution traces of training jobs in MLCommons Chakra's format, one file for each rank.
//!
//! Source: `schema/protobuf/et_def.proto` and the feeder of the public repository. A file is a sequence of protobuf
//! messages, each after its length: the metadata, then nodes. Rank i of the trace is host i.
//!
//! | node | here |
//! |---|---|
//! | `COMP_NODE` | a delay of `duration_micros` |
//! | `METADATA_NODE` | nothing |
//! | any with `is_cpu_op` | a delay of `duration_micros`: a processor issues the work of another node |
//! | `COMM_COLL_NODE` | all-reduce, all-gather, reduce-scatter or all-to-all, as in [`super::collective`] |
//! | `COMM_SEND_NODE`, `COMM_RECV_NODE` | a message: the k-th send to a rank with a tag matches its k-th receive |
//!
//! A node starts when the nodes in its `data_deps` have ended; `ctrl_deps` describe nested calls and are not used, as
//! in the feeder. A node that sends ends when the message has completed at its sender; a collective ends at a rank that
//! has received everything. `comm_size` is the size of the rank's input. The ranks of a process group (`pg_name`) are
//! those that have nodes with its name; without a name, all. The k-th collective of a group on one rank is the k-th one
//! on the others.
//!
//! Everything else is refused by name: other collectives, those of some dimensions of a topology (`involved_dim`),
//! memory nodes, computations without a duration.

mod lower;
pub mod proto;

use core::fmt::{self, Display};
use std::sync::Arc;

use rnic_base::Time;

use super::collective::MESSAGES_IN_FLIGHT_MAX;
use super::script::Script;
use super::text::on_one_line;
use super::{FlowSpec, Operation, Traffic};

/// The reason why execution traces could not be read, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChakraError {
    /// The rank whose trace is wrong; `None`: that of all ranks together.
    pub rank: Option<u32>,
    /// Place in the file: the byte at which the message starts.
    pub byte: Option<usize>,
    /// Description of the error.
    pub what: String,
}

impl ChakraError {
    fn of(rank: u32, what: impl Into<String>) -> Self {
        Self { rank: Some(rank), byte: None, what: on_one_line(&what.into()) }
    }
}

impl Display for ChakraError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}: ")?;
        }
        if let Some(byte) = self.byte {
            write!(f, "byte {byte}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl core::error::Error for ChakraError {}

/// A node of a trace that is carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) data_deps: Vec<u64>,
    pub(crate) work: Work,
}

/// The work of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Compute(rnic_base::Duration),
    Collective { kind: super::collective::CollectiveKind, bytes: u64, group: String },
    Send { dst: u32, tag: u32, bytes: u64 },
    Receive { src: u32, tag: u32, bytes: Option<u64> },
}

/// Execution traces, ready to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChakraPlan {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes of all ranks.
    pub nodes: u64,
    /// Operation of each message, which must have a completion at the receiver.
    pub op: Operation,
    pub(crate) script: Arc<Script>,
}

impl ChakraPlan {
    /// Reads the traces of all ranks, in order.
    ///
    /// # Errors
    /// The first error, or what is not supported.
    pub fn from_traces(traces: &[Vec<u8>], op: Operation) -> Result<Self, ChakraError> {
        let mut ranks = Vec::with_capacity(traces.len());
        let mut size = proto::TraceSize::default();
        for (rank, bytes) in (0..).zip(traces) {
            ranks.push(proto::read(rank, bytes, &mut size)?);
        }
        let nodes = ranks.iter().map(|nodes| nodes.len() as u64).sum();
        let script = Arc::new(lower::script(&ranks)?);
        Ok(Self { ranks: traces.len() as u32, nodes, op, script })
    }

    /// Returns the largest message in bytes.
    pub(crate) fn largest_message(&self) -> u64 {
        let largest = self.script.connections.iter().flat_map(|connection| connection.lengths.iter()).max();
        largest.map_or(0, |bytes| u64::from(*bytes))
    }

    /// Returns the traffic of a connection with these messages.
    pub(crate) fn traffic(&self, lengths: &[u32]) -> Traffic {
        let messages = lengths.len() as u32;
        Traffic {
            op: self.op,
            message_bytes: lengths.iter().copied().max().unwrap_or(1).into(),
            depth: MESSAGES_IN_FLIGHT_MAX.min(messages.max(1)),
            count: Some(messages),
            latencies: true,
            ..Traffic::ONE_MESSAGE
        }
    }

    /// Returns the connections, each as a flow that lasts for the whole run.
    pub(super) fn flows(&self) -> Vec<FlowSpec> {
        let connections = self.script.connections.iter();
        let flow = |connection: &super::script::Connection| FlowSpec {
            start: Time::ZERO,
            src: connection.src,
            dst: connection.dst,
            bytes: connection.lengths.iter().map(|bytes| u64::from(*bytes)).sum(),
            traffic: Arc::new(self.traffic(&connection.lengths)),
            request: None,
            arrivals: None,
            membership: None,
            lengths: Some(Arc::clone(&connection.lengths)),
        };
        connections.map(flow).collect()
    }
}

/// Maximum number of ranks.
pub const RANKS_MAX: usize = 1 << 14;
/// Maximum size of a trace in bytes.
pub const TRACE_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
#[path = "chakra/tests.rs"]
mod tests;
