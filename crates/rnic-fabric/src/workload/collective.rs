//! Collectives, as training and MPI use them. Ranks send to each other in steps, and a rank continues only when it has
//! received the data that it needs of the step before.
//!
//! Sources: ring algorithms as Patarasuk and Yuan describe them (J. Parallel Distrib. Comput. 69, 2009); the set-up
//! for Falcon's figures 3 and 15 to 18, for which the paper's text is not available, was chosen for OpenRNIC
//! (`experiments/falcon/collective`).
//!
//! Deviations: ranks compute nothing, so received data can be sent on immediately; a buffer is divided into equal
//! parts, the last one padded; collectives follow each other at each rank without a barrier: a rank starts the next
//! one as soon as it has the data that it needs.

use std::sync::Arc;

use rnic_base::{RandomStreams, Time};

use super::{FlowSpec, Operation, Traffic};

/// The operation of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveKind {
    /// Every rank gets the sum of all buffers: around the ring, parts are summed, and then the sums are distributed.
    AllReduce,
    /// Every rank gets the parts of the buffer of all ranks, around the ring.
    AllGather,
    /// Every rank gets its part of the sum of all buffers, around the ring.
    ReduceScatter,
    /// Every rank sends a part of its buffer to each other rank, all at the same time.
    AllToAll,
}

impl CollectiveKind {
    /// All operations, with their names in plans.
    pub const ALL: [(&'static str, Self); 4] = [
        ("all-reduce", Self::AllReduce),
        ("all-gather", Self::AllGather),
        ("reduce-scatter", Self::ReduceScatter),
        ("all-to-all", Self::AllToAll),
    ];

    /// Returns the number of steps with `ranks` ranks.
    pub(crate) const fn steps(self, ranks: u32) -> u32 {
        match self {
            Self::AllReduce => 2 * (ranks - 1),
            Self::AllGather | Self::ReduceScatter => ranks - 1,
            Self::AllToAll => 1,
        }
    }

    /// Returns the bus bandwidth with `ranks` ranks as a multiple of the algorithm bandwidth, as NCCL's tests define
    /// both.
    pub(crate) fn bus_factor(self, ranks: u32) -> f64 {
        let others = f64::from(ranks - 1) / f64::from(ranks);
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => others,
        }
    }

    /// Returns the number of ranks that each rank sends to in a step, and receives from.
    const fn peers(self, ranks: u32) -> u32 {
        match self {
            Self::AllReduce | Self::AllGather | Self::ReduceScatter => 1,
            Self::AllToAll => ranks - 1,
        }
    }
}

/// Repetitions of a collective operation, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectivePlan {
    /// Collective operation.
    pub kind: CollectiveKind,
    /// Number of ranks: hosts 0 to `ranks - 1` take part.
    pub ranks: u32,
    /// Size of the buffer of each rank in bytes.
    pub bytes: u64,
    /// Number of collectives.
    pub count: u32,
    /// Number of connections from each rank to each of its peers; every message is divided among these connections.
    pub connections: u32,
    /// True when ranks are assigned to the hosts at random; otherwise neighbours in the ring are neighbours in the
    /// topology.
    pub shuffle: bool,
    /// Operation of each message, which must have a completion at the receiver.
    pub op: Operation,
}

/// Maximum number of messages of a connection in flight: a step continues when its data has arrived, without waiting
/// for acknowledgements. Transports that acknowledge several messages together must not stop short steps: Falcon waits
/// for ten packets, or 8 us.
pub(super) const MESSAGES_IN_FLIGHT_MAX: u32 = 32;

impl CollectivePlan {
    /// Returns the number of messages on each connection.
    pub(crate) fn messages(&self) -> u64 {
        u64::from(self.kind.steps(self.ranks)) * u64::from(self.count)
    }

    /// Returns the size of each message in bytes.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.ranks)).div_ceil(u64::from(self.connections))
    }

    /// Returns the number of connections on which each rank sends.
    pub(crate) fn connections_of_rank(&self) -> u64 {
        u64::from(self.kind.peers(self.ranks)) * u64::from(self.connections)
    }

    /// Returns the traffic of each connection.
    pub(crate) fn traffic(&self) -> Traffic {
        let messages = self.messages() as u32;
        Traffic {
            op: self.op,
            message_bytes: self.message_bytes(),
            depth: MESSAGES_IN_FLIGHT_MAX.min(messages.max(1)),
            count: Some(messages),
            latencies: true,
            ..Traffic::ONE_MESSAGE
        }
    }

    /// Returns the connections, each as a flow that lasts for all collectives.
    pub(super) fn flows(&self, streams: &RandomStreams) -> Vec<FlowSpec> {
        let mut hosts: Vec<u32> = (0..self.ranks).collect();
        if self.shuffle {
            streams.stream("workload/collective").shuffle(&mut hosts);
        }
        let (traffic, bytes) = (Arc::new(self.traffic()), self.message_bytes() * self.messages());
        let peers = self.kind.peers(self.ranks) as usize;
        let mut flows = Vec::new();
        for (rank, src) in hosts.iter().enumerate() {
            // Each rank starts with the rank after its own, so that the ranks do not all send to the same one first.
            let others = hosts.iter().cycle().skip(rank + 1).take(peers);
            flows.extend(others.flat_map(|dst| (0..self.connections).map(move |_| (*src, *dst))));
        }
        flows.sort_by_key(|(src, _)| *src);
        let flow = |(src, dst)| FlowSpec {
            start: Time::ZERO,
            src,
            dst,
            bytes,
            traffic: Arc::clone(&traffic),
            request: None,
            arrivals: None,
            membership: None,
            lengths: None,
        };
        flows.into_iter().map(flow).collect()
    }
}
