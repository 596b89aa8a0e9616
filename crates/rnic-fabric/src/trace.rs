//! Traces of a run: every packet on every link, every operation of every queue pair, for Perfetto.
//!
//! Nodes write what happens to them into logs of their own, which the simulation collects between two windows, node by
//! node: so a trace does not depend on the order of nodes, on parts or on threads, and it changes neither the run nor
//! its trace hash. Without a trace no node has a log, and ports and hosts run the same code as ever: those with a log
//! take the paths of links with faults and of hosts with a model.

pub(crate) mod encode;
pub(crate) mod log;

use rnic_base::Time;

/// Selection of what a trace contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracePlan {
    /// Events that begin before this time are left out.
    pub from: Time,
    /// Events that begin at this time or later are left out.
    pub until: Time,
    /// Names of the nodes whose links are traced, in which `*` matches any text.
    pub nodes: String,
    /// Both ends of the queue pairs that are traced, `host-0>host-3`, in which `*` matches any text.
    pub queue_pairs: String,
    /// Most events of a trace.
    pub events_max: u64,
}

impl TracePlan {
    /// Returns whether an event that begins at `at` is in the trace.
    pub(crate) fn covers(&self, at: Time) -> bool {
        (self.from..self.until).contains(&at)
    }
}

/// The reason why a trace ended before its run.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Writing failed.
    #[error("cannot write the trace: {0}")]
    Write(#[from] std::io::Error),
    /// The trace has as many events as it may have.
    #[error("{0} events are the most that trace.events_max permits; other keys of the table `trace` select fewer")]
    Full(u64),
}
