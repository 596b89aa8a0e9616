//! Tenants: groups of queue pairs that share the NICs of their hosts, each group with its own sizes of messages and its
//! own number of messages in flight (SCR, NSDI'25, sections 5.1 and 5.2).
//!
//! Queue pairs post messages in a closed loop, or, with a rate, in an open loop (see [`loops`]). A tenant posts between
//! its start and its stop. At its stop, messages that an open loop has not posted are dropped, so that the tenant ends
//! its requests and leaves the NIC to the others.
//!
//! [`loops`]: super::loops

use std::sync::Arc;

use rnic_base::{BitRate, Duration, RandomStreams, Time};

use super::distribution::Distribution;
use super::loops::{Arrivals, Between};
use super::{FlowSpec, Operation, Traffic};

/// The workload `tenants`.
#[derive(Clone, Debug)]
pub struct TenantsPlan {
    /// The tenants, ordered by name.
    pub tenants: Vec<TenantPlan>,
    /// Time after which no tenant posts messages.
    pub until: Time,
}

/// A tenant: queue pairs of one user, which share NICs with those of other users.
#[derive(Clone, Debug)]
pub struct TenantPlan {
    /// Name in reports.
    pub name: String,
    /// Hosts and number of queue pairs.
    pub between: Between,
    /// Operation of each message.
    pub op: Operation,
    /// Sizes of messages, by queue pair.
    pub sizes: TenantSizes,
    /// Maximum number of messages of a queue pair in flight.
    pub depth: u32,
    /// Time at which the first queue pair joins.
    pub start: Time,
    /// Time from which no message is posted.
    pub stop: Time,
    /// Time between the joins of two successive queue pairs.
    pub stagger: Duration,
    /// Interval over which the joins are distributed at random, in addition to `stagger`.
    pub jitter: Duration,
    /// For an open loop: payload per second that all queue pairs of the tenant offer together.
    pub rate: Option<BitRate>,
    /// Weight of each queue pair for the scheduler, and of the tenant in the fairness of tenants; at least 1.
    pub weight: u16,
    /// Limit of the rate at which each queue pair's payload is taken out of memory, in bits per second on the wire.
    pub rate_limit: Option<BitRate>,
    /// Hints of the application, in order of time.
    pub hints: Vec<HintPlan>,
}

/// A hint of a tenant's application, for all of its queue pairs (SCR, mechanism S-9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HintPlan {
    /// Time at which it is given.
    pub at: Time,
    /// Weight of each queue pair for the scheduler.
    pub weight: u16,
    /// Cap of the rate of each queue pair, in bits per second on the wire.
    pub cap: Option<BitRate>,
}

/// Sizes of messages. All messages of a queue pair have the same size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TenantSizes {
    /// Each queue pair has the next size of the list, which is repeated.
    Listed(Arc<[u64]>),
    /// The size of each queue pair is drawn at random.
    Drawn(Arc<Distribution>),
}

/// The part of a flow in the workload `tenants`: a queue pair of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    /// Index of the tenant in [`TenantsPlan::tenants`].
    pub tenant: u32,
    /// Index of the queue pair among all queue pairs of its tenant.
    pub index: u32,
    /// See [`TenantPlan::weight`].
    pub weight: u16,
    /// See [`TenantPlan::rate_limit`].
    pub rate_limit: Option<BitRate>,
    /// Time from which no message is posted.
    pub stop: Time,
}

impl TenantsPlan {
    /// Returns the flows: one for each queue pair for which a message arrives.
    pub(super) fn flows(&self, streams: &RandomStreams) -> Vec<FlowSpec> {
        let flows_of = |(tenant, number): (&TenantPlan, u32)| {
            let indexes = 0..tenant.between.queue_pairs;
            indexes.filter_map(|index| tenant.flow(number, index, streams)).collect::<Vec<_>>()
        };
        self.tenants.iter().zip(0..).flat_map(flows_of).collect()
    }

    /// Returns the number of queue pairs of all tenants.
    pub(crate) fn queue_pairs(&self) -> u64 {
        self.tenants.iter().map(|tenant| u64::from(tenant.between.queue_pairs)).sum()
    }
}

impl TenantPlan {
    /// Returns the time at which the last queue pair joins, if the random part of its start is the longest.
    pub(crate) fn last_start(&self) -> Time {
        let joins = u64::from(self.between.queue_pairs.saturating_sub(1));
        self.start + self.stagger.saturating_mul(joins) + self.jitter
    }

    /// Returns the flow of queue pair `index`. Its random parameters depend only on the seed, the tenant's name and the
    /// index, so that the flows of a tenant do not change when other tenants are added.
    fn flow(&self, tenant: u32, index: u32, streams: &RandomStreams) -> Option<FlowSpec> {
        let mut stream = streams.stream(&format!("workload/tenant-{}-{index}", self.name));
        let message_bytes = match &self.sizes {
            TenantSizes::Listed(sizes) => sizes[index as usize % sizes.len()],
            TenantSizes::Drawn(distribution) => distribution.draw(&mut stream),
        };
        let join = self.start + self.stagger * u64::from(index);
        let join = join + Duration::from_ps(stream.between(0, self.jitter.as_ps()));
        let mut arrivals = self.rate.map(|rate| {
            // Mean gap: bytes * 8 * queue pairs / rate, in picoseconds.
            let bits = u128::from(message_bytes) * 8 * u128::from(self.between.queue_pairs);
            let gap = bits * 1_000_000_000_000 / u128::from(rate.as_bps());
            let gap = Duration::from_ps(u64::try_from(gap).unwrap_or(u64::MAX)).max(GAP_MIN);
            Arrivals::new(stream, gap, self.stop)
        });
        let start = arrivals.as_mut().map_or(Some(join), |arrivals| arrivals.after(join))?;
        let (src, dst) = self.between.ends(index);
        let traffic = Traffic {
            op: self.op,
            message_bytes,
            depth: self.depth,
            count: Some(u32::MAX),
            latencies: true,
            until: Some(self.stop),
            ..Traffic::ONE_MESSAGE
        };
        Some(FlowSpec {
            start,
            src,
            dst,
            bytes: message_bytes * u64::from(u32::MAX),
            traffic: Arc::new(traffic),
            request: None,
            arrivals,
            membership: Some(Membership {
                tenant,
                index,
                weight: self.weight,
                rate_limit: self.rate_limit,
                stop: self.stop,
            }),
            lengths: None,
        })
    }
}

/// Shortest mean time between two messages of a queue pair. A higher rate would be far above that of any link, and with
/// a gap of zero there would be infinitely many messages.
const GAP_MIN: Duration = Duration::from_ns(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantPlan {
        TenantPlan {
            name: name.to_owned(),
            between: Between { from: 1, clients: 2, to: 5, servers: 1, queue_pairs: 4 },
            op: Operation::Write,
            sizes: TenantSizes::Listed([1_000, 2_000, 3_000].into()),
            depth: 7,
            start: Time::from_us(10),
            stop: Time::from_us(900),
            stagger: Duration::from_us(100),
            jitter: Duration::ZERO,
            rate: None,
            weight: 3,
            rate_limit: Some(BitRate::gbps(5)),
            hints: Vec::new(),
        }
    }

    fn flows(tenants: &[TenantPlan], seed: u64) -> Vec<FlowSpec> {
        let plan = TenantsPlan { tenants: tenants.to_vec(), until: Time::from_us(1_000) };
        assert_eq!(plan.queue_pairs(), 4 * tenants.len() as u64);
        plan.flows(&RandomStreams::new(seed))
    }

    #[test]
    fn queue_pairs_join_one_after_the_other_with_the_sizes_of_the_list() {
        let found = flows(&[tenant("a"), tenant("b")], 1);
        let starts: Vec<u64> = found[..4].iter().map(|flow| flow.start.as_ps() / 1_000_000).collect();
        assert_eq!(starts, [10, 110, 210, 310]);
        assert_eq!(tenant("a").last_start(), Time::from_us(310));
        let sizes: Vec<u64> = found[..4].iter().map(|flow| flow.traffic.message_bytes).collect();
        assert_eq!(sizes, [1_000, 2_000, 3_000, 1_000]);
        assert_eq!(
            found[..4].iter().map(|flow| (flow.src, flow.dst)).collect::<Vec<_>>(),
            [(1, 5), (2, 5), (1, 5), (2, 5)]
        );
        let member = found[6].membership.expect("a flow of a tenant");
        assert_eq!((member.tenant, member.index, member.weight, member.stop), (1, 2, 3, Time::from_us(900)));
        assert_eq!((member.rate_limit, found[6].traffic.depth), (Some(BitRate::gbps(5)), 7));
        assert_eq!(found[6].traffic.until, Some(Time::from_us(900)));
    }

    #[test]
    fn drawn_sizes_and_starts_depend_on_the_seed_and_the_queue_pair_alone() {
        let drawn = |name: &str| TenantPlan {
            sizes: TenantSizes::Drawn(Arc::new(Distribution::uniform(4_000, 1_000_000))),
            jitter: Duration::from_us(50),
            ..tenant(name)
        };
        let of = |flows: &[FlowSpec]| -> Vec<(u64, Time)> {
            flows.iter().map(|flow| (flow.traffic.message_bytes, flow.start)).collect()
        };
        let alone = of(&flows(&[drawn("b")], 1));
        assert_eq!(alone, of(&flows(&[drawn("a"), drawn("b")], 1)[4..]));
        assert_ne!(alone, of(&flows(&[drawn("b")], 2)));
        for (index, (size, start)) in (0..).zip(&alone) {
            assert!((4_000..=1_000_000).contains(size) && alone.iter().filter(|(other, _)| other == size).count() == 1);
            let earliest = Time::from_us(10 + 100 * index);
            assert!((earliest..=earliest + Duration::from_us(50)).contains(start), "{start:?}");
        }
    }

    /// 5 Gbit/s among four queue pairs of 1000 to 3000 bytes, from their joins to 900 us.
    #[test]
    fn an_open_loop_offers_the_rate_of_the_tenant() {
        let open = TenantPlan { rate: Some(BitRate::gbps(5)), stagger: Duration::ZERO, ..tenant("a") };
        let (mut bytes, mut seeds) = (0, 0);
        for seed in 0..20 {
            for mut flow in flows(std::slice::from_ref(&open), seed) {
                let (mut at, mut arrivals) = (Some(flow.start), flow.arrivals.take().expect("an open loop"));
                while let Some(now) = at {
                    assert!(now < open.stop);
                    bytes += flow.traffic.message_bytes;
                    at = arrivals.after(now);
                }
            }
            seeds += 1;
        }
        let expected = 5e9 / 8.0 * 890e-6 * f64::from(seeds);
        assert!((bytes as f64 / expected - 1.0).abs() < 0.05, "{bytes} of {expected}");
    }
}
