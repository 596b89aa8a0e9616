//! Steering: the thread of a pool that handles the signals of a flow and kind.
//!
//! Source: SCR (NSDI'25), sections 4.3.2 (by software and by hardware) and 4.3.3, appendix A.10 (sizes of pools). The
//! numbers of flows are OpenRNIC's.
//!
//! ```text
//! thread(flow, kind) = first thread of the kind's pool + (software: flow mod T | hardware: hash of the flow mod T)
//! ```
//!
//! A flow's index is the smallest free number when it joins. So each flow has a thread of its own until the pool is
//! full, and then numbers of flows differ by at most one; a hash leaves 1/e of the threads idle when there are as many
//! flows as threads. Kinds that belong to a node have one thread each.
//!
//! Restrictions: the same flow and kind always have the same thread. The key of the hash comes from the driver, so that
//! a peer that chooses numbers cannot put many flows on one thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rnic_base::Duration;

use crate::signal::{Kind, Scope};
use crate::tools::hash::keyed_hash;

/// Maximum number of threads of one pool.
pub const THREADS_MAX: u16 = 1_024;

/// Maximum number of flows: the queue pairs of a NIC.
pub const FLOWS_MAX: u32 = 1 << 20;

/// Maximum number of a node: peers, tenants.
pub const NODES_MAX: u32 = 1 << 12;

/// Error: the sizes of the pools are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolError {
    /// A pool has no thread, or too many.
    #[error("pool `{pool}` has {threads} threads: set 1 to {THREADS_MAX}")]
    Threads {
        /// Name of the pool.
        pool: &'static str,
        /// Number of threads of the pool.
        threads: u16,
    },
}

/// Numbers of threads for each kind of signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSizes {
    /// Threads for TX, RX, CNP, ACK and NACK.
    pub in_band: u16,
    /// Threads for probes and for signals of peers.
    pub out_of_band: u16,
    /// Threads for signals of the host.
    pub host: HostThreads,
}

/// Threads for hints, bus and NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostThreads {
    /// A pool for each of the three.
    Each(u16),
    /// One pool for all signals of the host.
    Shared(u16),
}

impl PoolSizes {
    /// The sizes of section 4.3.3, with which figures are reproduced: 64 in-band, 16 out-of-band, 8 per host signal.
    pub const FIGURES: Self = Self { in_band: 64, out_of_band: 16, host: HostThreads::Each(8) };

    /// The sizes of appendix A.10, preset `a10`: 25 in-band, 1 to the host, 2 for probes, 2 for peers; 30 together.
    pub const A10: Self = Self { in_band: 25, out_of_band: 4, host: HostThreads::Shared(1) };

    /// Returns the number of threads in all pools.
    pub const fn threads(&self) -> usize {
        let host = match self.host {
            HostThreads::Each(threads) => 3 * threads as usize,
            HostThreads::Shared(threads) => threads as usize,
        };
        self.in_band as usize + self.out_of_band as usize + host
    }

    /// Checks each number of threads.
    ///
    /// # Errors
    /// Returns an error if a pool has none, or more than [`THREADS_MAX`].
    pub fn check(&self) -> Result<(), PoolError> {
        let (HostThreads::Each(host) | HostThreads::Shared(host)) = self.host;
        for (pool, threads) in [("in_band", self.in_band), ("out_of_band", self.out_of_band), ("host", host)] {
            if !(1..=THREADS_MAX).contains(&threads) {
                return Err(PoolError::Threads { pool, threads });
            }
        }
        Ok(())
    }

    /// Returns the first thread and the number of threads of the pool of `kind`.
    #[inline]
    const fn pool(&self, kind: Kind) -> (usize, usize) {
        let out_of_band = self.in_band as usize;
        let host = out_of_band + self.out_of_band as usize;
        match kind {
            Kind::Tx | Kind::Rx | Kind::Cnp | Kind::Ack | Kind::Nack => (0, self.in_band as usize),
            Kind::Rtt | Kind::Credit | Kind::PeerBus | Kind::PeerNic => (out_of_band, self.out_of_band as usize),
            Kind::Hint | Kind::Bus | Kind::Nic => match self.host {
                HostThreads::Shared(threads) => (host, threads as usize),
                HostThreads::Each(threads) => {
                    (host + (kind.index() - Kind::Hint.index()) * threads as usize, threads as usize)
                }
            },
        }
    }
}

/// The way in which flows are distributed over the threads of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SteeringMode {
    /// By the index of the flow.
    Software,
    /// By a hash of the flow's identity, as hardware does it, with this key.
    Hardware {
        /// Key of the hash.
        key: u64,
    },
}

/// The flows of a NIC and their threads.
#[derive(Debug)]
pub struct Steering {
    sizes: PoolSizes,
    mode: SteeringMode,
    /// Hash of each flow's identity; `None` for a number that is free.
    flows: Vec<Option<u64>>,
    free: BinaryHeap<Reverse<u32>>,
}

impl Steering {
    /// Creates the steering of pools of `sizes`.
    ///
    /// # Errors
    /// See [`PoolSizes::check`].
    pub fn new(sizes: PoolSizes, mode: SteeringMode) -> Result<Self, PoolError> {
        sizes.check()?;
        Ok(Self { sizes, mode, flows: Vec::new(), free: BinaryHeap::new() })
    }

    /// Returns the index of a new flow with `identity` (its queue pair number): the smallest free number; `None` if
    /// there are [`FLOWS_MAX`] flows.
    pub fn join(&mut self, identity: u64) -> Option<u32> {
        let key = match self.mode {
            SteeringMode::Software => 0,
            SteeringMode::Hardware { key } => key,
        };
        let hash = keyed_hash(key, identity);
        if let Some(Reverse(index)) = self.free.pop() {
            self.flows[index as usize] = Some(hash);
            return Some(index);
        }
        let index = self.flows.len() as u32;
        (index < FLOWS_MAX).then(|| {
            self.flows.push(Some(hash));
            index
        })
    }

    /// Frees the index of a flow; returns `false` if no flow has it.
    pub fn leave(&mut self, index: u32) -> bool {
        let is_used = self.flows.get_mut(index as usize).and_then(Option::take).is_some();
        if is_used {
            self.free.push(Reverse(index));
        }
        is_used
    }

    /// Returns the number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// Returns the number of threads in all pools.
    pub const fn threads(&self) -> usize {
        self.sizes.threads()
    }

    /// Returns the thread that handles `kind` of `subject`; `None` if no flow has the index, or the number of the node
    /// is [`NODES_MAX`] or more.
    #[inline]
    pub fn thread(&self, subject: u32, kind: Kind) -> Option<usize> {
        let (first, threads) = self.sizes.pool(kind);
        let offset = match kind.scope() {
            // The kind alone decides: one thread for all nodes.
            Scope::Node => (subject < NODES_MAX).then(|| kind.index() % threads)?,
            Scope::Flow => {
                let hash = (*self.flows.get(subject as usize)?)?;
                match self.mode {
                    SteeringMode::Software => subject as usize % threads,
                    SteeringMode::Hardware { .. } => (hash % threads as u64) as usize,
                }
            }
        };
        Some(first + offset)
    }

    /// Returns flow, kind and thread of all flows, in the order of their indices.
    pub fn table(&self) -> impl Iterator<Item = (u32, Kind, usize)> + '_ {
        (0..self.flows.len() as u32).flat_map(move |flow| {
            let kinds = Kind::ALL.into_iter().filter(|kind| kind.scope() == Scope::Flow);
            kinds.filter_map(move |kind| self.thread(flow, kind).map(|thread| (flow, kind, thread)))
        })
    }
}

/// Returns the number of flows that a thread can serve once per `period` if it sends `per_second` messages a second
/// (appendix A.10: messages to peers, one per flow and round trip).
pub const fn flows_served(per_second: u64, period: Duration) -> u64 {
    (per_second as u128 * period.as_ps() as u128 / 1_000_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn steering(in_band: u16, mode: SteeringMode, flows: u64) -> Steering {
        let mut steering = Steering::new(PoolSizes { in_band, ..PoolSizes::FIGURES }, mode).expect("it is valid");
        (0..flows).for_each(|identity| assert_eq!(steering.join(identity), Some(identity as u32)));
        steering
    }

    /// Returns the number of flows on each thread that has one, for TX.
    fn loads(steering: &Steering) -> Vec<u32> {
        let mut loads = BTreeMap::new();
        for (_, _, thread) in steering.table().filter(|(_, kind, _)| *kind == Kind::Tx) {
            *loads.entry(thread).or_insert(0) += 1;
        }
        loads.into_values().collect()
    }

    #[test]
    fn s14_each_flow_has_a_thread_of_its_own_until_the_pool_is_full() {
        for flows in [1, 2, 25, 63, 64] {
            assert_eq!(loads(&steering(64, SteeringMode::Software, flows)), vec![1; flows as usize]);
        }
        for flows in [65, 100, 127, 128, 1_000, 1_024] {
            let loads = loads(&steering(64, SteeringMode::Software, flows));
            let (least, most) = (loads.iter().min(), loads.iter().max());
            assert_eq!(loads.len(), 64);
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{flows} flows: {loads:?}");
        }
    }

    #[test]
    fn s14_a_hash_leaves_threads_idle() {
        let mut idle = 0;
        for key in 0..100 {
            idle += 64 - loads(&steering(64, SteeringMode::Hardware { key }, 64)).len();
        }
        // 64 (1 - 1/64)^64 = 23.4 of 64.
        assert!((2_200..2_480).contains(&idle), "{idle} of 6400 threads are idle");
    }

    #[test]
    fn s14_a_flow_that_joins_gets_the_smallest_free_number() {
        let mut steering = steering(4, SteeringMode::Software, 6);
        assert!(steering.leave(3) && steering.leave(1) && steering.leave(4));
        assert!(!steering.leave(3), "it has left");
        assert!(!steering.leave(99));
        assert_eq!(steering.flows(), 3);
        assert_eq!([7, 8, 9, 10].map(|identity| steering.join(identity)), [Some(1), Some(3), Some(4), Some(6)]);
        assert_eq!(loads(&steering), [2, 2, 2, 1]);
    }

    #[test]
    fn s14_the_pools_are_those_of_the_paper() {
        assert_eq!((PoolSizes::FIGURES.threads(), PoolSizes::A10.threads()), (64 + 16 + 3 * 8, 30));
        let steering = Steering::new(PoolSizes::A10, SteeringMode::Software).expect("it is valid");
        assert_eq!(steering.thread(0, Kind::Tx), None, "no flow has joined");
        assert_eq!([Kind::Hint, Kind::Bus, Kind::Nic].map(|kind| steering.thread(0, kind)), [Some(29); 3]);
        let none = PoolSizes { out_of_band: 0, ..PoolSizes::A10 };
        let error = Steering::new(none, SteeringMode::Software).expect_err("it has no thread");
        assert_eq!(error.to_string(), "pool `out_of_band` has 0 threads: set 1 to 1024");
    }

    #[test]
    fn s14_pools_do_not_share_threads_and_kinds_of_nodes_have_one() {
        let steering = steering(64, SteeringMode::Software, 200);
        let in_band: Vec<_> = steering.table().filter(|(_, _, thread)| *thread < 64).map(|(_, kind, _)| kind).collect();
        assert!(in_band.iter().all(|kind| !matches!(kind, Kind::Rtt | Kind::Credit)));
        assert_eq!(in_band.len(), 200 * 5);
        assert!(steering.table().all(|(_, _, thread)| thread < 80), "no flow is on a thread of host signals");
        for kind in Kind::ALL.into_iter().filter(|kind| kind.scope() == Scope::Node) {
            assert!((0..NODES_MAX).all(|node| steering.thread(node, kind) == steering.thread(0, kind)));
            assert_eq!(steering.thread(NODES_MAX, kind), None);
        }
        let bus = steering.thread(0, Kind::Bus).expect("a node needs not join");
        assert!((88..96).contains(&bus), "bus signals have the second pool of the host: {bus}");
    }

    #[test]
    fn s13_a_flow_keeps_its_thread_while_others_join_and_leave() {
        for mode in [SteeringMode::Software, SteeringMode::Hardware { key: 9 }] {
            let mut steering = steering(16, mode, 40);
            let before: Vec<_> = steering.table().filter(|(flow, _, _)| flow % 2 == 0).collect();
            (1..40).step_by(2).for_each(|flow| assert!(steering.leave(flow)));
            (100..160).for_each(|identity| assert!(steering.join(identity).is_some()));
            let after: Vec<_> = steering.table().filter(|(flow, _, _)| flow % 2 == 0 && *flow < 40).collect();
            assert_eq!(before, after);
        }
    }

    #[test]
    fn s14_a_thread_of_1_8_million_messages_a_second_serves_36_flows_in_20_us() {
        assert_eq!(flows_served(1_800_000, Duration::from_us(20)), 36);
        assert_eq!(flows_served(1_800_000, Duration::from_ns(19_999)), 35);
    }
}
