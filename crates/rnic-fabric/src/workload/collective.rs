//! Collectives: what training and MPI ask of a network. Ranks send to each other in steps, and none goes on before what
//! it needs of the step before has come.
//!
//! Sources: ring algorithms as Patarasuk and Yuan describe them (J. Parallel Distrib. Comput. 69, 2009); the set-up is
//! ours for Falcon's figures 3 and 15 to 18, whose text is lost (`experiments/falcon/collective`).
//!
//! Deviations: ranks compute nothing, so what arrives can be sent on at once; a buffer is cut into equal parts, the
//! last one filled up; one collective follows the other at each rank without a barrier between them, as far as data
//! allows.

use std::sync::Arc;

use rnic_base::{RandomStreams, Time};

use super::{FlowSpec, Operation, Traffic};

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveKind {
    /// Everybody gets the sum of all buffers: around the ring, parts are summed, and then the sums handed out.
    AllReduce,
    /// Everybody gets everybody's part of the buffer, around the ring.
    AllGather,
    /// Everybody gets its part of the sum of all buffers, around the ring.
    ReduceScatter,
    /// Everybody sends a part of its buffer to each other, all at once.
    AllToAll,
}

impl CollectiveKind {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Self); 4] = [
        ("all-reduce", Self::AllReduce),
        ("all-gather", Self::AllGather),
        ("reduce-scatter", Self::ReduceScatter),
        ("all-to-all", Self::AllToAll),
    ];

    /// Steps of it, among so many ranks.
    pub(crate) const fn steps(self, ranks: u32) -> u32 {
        match self {
            Self::AllReduce => 2 * (ranks - 1),
            Self::AllGather | Self::ReduceScatter => ranks - 1,
            Self::AllToAll => 1,
        }
    }

    /// Ranks that each one sends to in a step, and receives from.
    const fn peers(self, ranks: u32) -> u32 {
        match self {
            Self::AllReduce | Self::AllGather | Self::ReduceScatter => 1,
            Self::AllToAll => ranks - 1,
        }
    }
}

/// Collectives of the same kind, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectivePlan {
    /// The operation.
    pub kind: CollectiveKind,
    /// Hosts that take part: the first ones.
    pub ranks: u32,
    /// Of the buffer of each rank.
    pub bytes: u64,
    /// How many collectives.
    pub count: u32,
    /// From each rank to each that it sends to; every message is divided among them.
    pub connections: u32,
    /// Ranks are dealt out to the hosts at random; otherwise neighbours in the ring are neighbours in the topology.
    pub shuffle: bool,
    /// What moves a message: one that its receiver hears of.
    pub op: Operation,
}

/// Messages of a connection under way at once: a step goes on when data has come, whether its acknowledgement has or
/// not.
const DEPTH: u32 = 4;

impl CollectivePlan {
    /// Messages on each connection.
    pub(crate) fn messages(&self) -> u64 {
        u64::from(self.kind.steps(self.ranks)) * u64::from(self.count)
    }

    /// Bytes of each of them.
    pub(crate) fn message_bytes(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.ranks)).div_ceil(u64::from(self.connections))
    }

    /// Connections that each rank sends on.
    pub(crate) fn connections_of_rank(&self) -> u64 {
        u64::from(self.kind.peers(self.ranks)) * u64::from(self.connections)
    }

    /// What each connection carries.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            op: self.op,
            message_bytes: self.message_bytes(),
            depth: DEPTH,
            count: Some(self.messages() as u32),
            latencies: true,
            until: None,
        }
    }

    /// The connections, each a flow that lasts as long as everything.
    pub(super) fn flows(&self, streams: &RandomStreams) -> Vec<FlowSpec> {
        let mut hosts: Vec<u32> = (0..self.ranks).collect();
        if self.shuffle {
            streams.stream("workload/collective").shuffle(&mut hosts);
        }
        let (traffic, bytes) = (Arc::new(self.traffic()), self.message_bytes() * self.messages());
        let peers = self.kind.peers(self.ranks) as usize;
        let mut flows = Vec::new();
        for (rank, src) in hosts.iter().enumerate() {
            // Everybody begins with the rank after its own, so that not all send to the same one first.
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
        };
        flows.into_iter().map(flow).collect()
    }
}
