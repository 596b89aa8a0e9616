//! Tenants: queue pairs join and leave, and are measured.

use core::cmp::Reverse;
use core::ops::Range;

use std::collections::BTreeMap;

use rnic_base::{BitRate, Duration, Time, jain_f64};
use rnic_engine::{Engine, LimitSource, QpInfo, RateLimit, Signals};
use rnic_policy::PathLabel;
use rnic_wire::Qpn;

use super::parts::Parts;
use crate::host::{QueuePairCounter, TenantTally};
use crate::plan::{Plan, RunPlan};
use crate::report::{
    BusFigures, Fairness, FairnessSlices, ProbeSlices, QueuePairSlices, Report, Slices, Spread, TenantFigures,
    TenantSlices,
};
use crate::workload::tenants::{HintPlan, Membership, TenantPlan, TenantsPlan};
use crate::workload::{FlowSpec, Operation, WorkloadPlan};

/// A queue pair of a tenant; it remains after it has left.
#[derive(Debug)]
struct TenantQueuePair {
    membership: Membership,
    joined: Time,
    /// Host that sends the payload, and its queue pair, until that is destroyed.
    sending: Option<(u32, Qpn)>,
    /// Host and number of the queue pair at its sending end; after the queue pair has been destroyed, a later one may
    /// have its number.
    sender: (u32, Qpn),
    /// Host that receives the payload, and the index of its counter.
    receiving: (u32, usize),
    /// Rates and path at the ends of slices.
    settings: Settings,
}

/// Settings of the queue pair that sends the payload at the end of each slice, up to the last slice in which there was
/// one.
#[derive(Debug, Default)]
struct Settings {
    /// Dequeue rate, in Gbit/s.
    dequeue_gbps: Vec<f64>,
    /// Rate of congestion control, in Gbit/s.
    control_gbps: Vec<f64>,
    /// 1 for slices in which the path label changed.
    path_changes: Vec<f64>,
    /// Path label at the end of the last slice.
    label: Option<PathLabel>,
}

impl Settings {
    /// Records the settings at the end of slice `slice`.
    fn measure(&mut self, slice: usize, info: &QpInfo) {
        let push = |values: &mut Vec<f64>, value: Option<f64>| {
            if let Some(value) = value {
                values.resize(slice, 0.0);
                values.push(value);
            }
        };
        push(&mut self.dequeue_gbps, info.dequeue_rate.map(|rate| rate.as_gbps_f64()));
        push(&mut self.control_gbps, info.control_rate.map(|rate| rate.as_gbps_f64()));
        let before = self.label.replace(info.label);
        push(&mut self.path_changes, before.is_some_and(|before| before != info.label).then_some(1.0));
    }
}

impl TenantQueuePair {
    /// Returns whether the queue pair may send during all of `slice`.
    fn is_member(&self, slice: &Range<Time>) -> bool {
        self.joined <= slice.start && slice.end <= self.membership.stop
    }

    /// Returns the counter of the bytes that arrived at the receiver.
    fn counter<'p>(&self, parts: &'p Parts) -> &'p QueuePairCounter {
        let (host, counter) = self.receiving;
        parts.host(host).meter.as_ref().expect("hosts of tenants have a meter").counter(counter)
    }

    /// Returns the goodput that counts for fairness.
    fn share(&self, goodput_gbps: f64) -> f64 {
        goodput_gbps / f64::from(self.membership.weight)
    }
}

/// The tenants of a run.
#[derive(Debug)]
pub(super) struct Tenancy {
    plan: TenantsPlan,
    run: RunPlan,
    /// True when the plan has messages between NICs.
    has_messages: bool,
    /// The queue pairs, in the order of flows: in this workload every flow is a queue pair of a tenant.
    queue_pairs: Vec<TenantQueuePair>,
    /// Hints that have not been given yet, the last one first, with the numbers of their tenants.
    hints: Vec<(HintPlan, u32)>,
    /// The last hint that each tenant has given.
    hints_in_force: Vec<Option<HintPlan>>,
}

impl Tenancy {
    /// Prepares the hosts to measure tenants, when the workload has tenants.
    pub(super) fn new(plan: &Plan, parts: &mut Parts) -> Option<Box<Self>> {
        let WorkloadPlan::Tenants(tenants) = &plan.workload else { return None };
        let has_messages = plan.scr.is_some();
        let of_tenant = |(tenant, number): (&TenantPlan, u32)| {
            let hints = tenant.hints.iter().map(move |hint| (*hint, number));
            hints.collect::<Vec<_>>()
        };
        let mut hints: Vec<_> = tenants.tenants.iter().zip(0..).flat_map(of_tenant).collect();
        hints.sort_by_key(|(hint, tenant)| Reverse((hint.at, *tenant)));
        let tenancy = Self {
            hints_in_force: vec![None; tenants.tenants.len()],
            plan: tenants.clone(),
            run: plan.run,
            has_messages,
            queue_pairs: Vec::new(),
            hints,
        };
        let measured = tenants.tenants.iter().map(|tenant| tenancy.measured_time(tenant.start, tenant.stop));
        let measured: Vec<_> = measured.collect();
        for host in parts.hosts_mut() {
            host.sessions.tallies = measured.iter().cloned().map(TenantTally::new).collect();
            if let Some(nic) = &mut host.nic {
                nic.measure_bus(tenancy.whole_time());
            }
        }
        Some(Box::new(tenancy))
    }

    /// Returns the part of the time from `start` to `stop` that is measured.
    fn measured_time(&self, start: Time, stop: Time) -> Range<Time> {
        start.max(Time::ZERO + self.run.warmup)..stop.min(self.plan.until - self.run.cooldown)
    }

    /// Returns the time between warm-up and cooldown.
    fn whole_time(&self) -> Range<Time> {
        self.measured_time(Time::ZERO, self.plan.until)
    }

    /// Adds the queue pairs `qpns`, of the source and of the destination of a new flow, to their tenant: counts the
    /// payload where it arrives, and gives the queue pair that sends it the properties by which the NIC shares its
    /// link.
    pub(super) fn join(&mut self, spec: &FlowSpec, membership: Membership, qpns: [Qpn; 2], parts: &mut Parts) {
        let (source, destination) = ((spec.src, qpns[0]), (spec.dst, qpns[1]));
        let (sending, receiving) = match spec.traffic.op {
            Operation::Read => (destination, source),
            _ => (source, destination),
        };
        let engine = &mut parts.host_mut(sending.0).engine;
        set_share(engine, spec.start, sending.1, &membership);
        if let Some(hint) = &self.hints_in_force[membership.tenant as usize] {
            follow_hint(engine, spec.start, sending.1, hint);
        }
        let measured = self.measured_time(spec.start, membership.stop);
        let meter = parts.host_mut(receiving.0).meter.as_mut().expect("hosts of tenants have a meter");
        let counter = meter.open(receiving.1, measured);
        self.queue_pairs.push(TenantQueuePair {
            membership,
            joined: spec.start,
            sending: Some(sending),
            sender: sending,
            receiving: (receiving.0, counter),
            settings: Settings::default(),
        });
    }

    /// Gives the hints that are due before `horizon` to the NICs that send the payload, at `now`.
    pub(super) fn give_hints(&mut self, now: Time, horizon: Time, parts: &mut Parts) {
        while let Some((hint, tenant)) = self.hints.pop_if(|(hint, _)| hint.at < horizon) {
            self.hints_in_force[tenant as usize] = Some(hint);
            let pairs = self.queue_pairs.iter().filter(|pair| pair.membership.tenant == tenant);
            let mut hosts = Vec::new();
            for pair in pairs {
                let Some((host, qpn)) = pair.sending else { continue };
                follow_hint(&mut parts.host_mut(host).engine, now, qpn, &hint);
                hosts.push(host);
            }
            hosts.sort_unstable();
            hosts.dedup();
            for host in hosts {
                let node = parts.host_mut(host);
                let cap = hint.cap.map_or(0, BitRate::as_bps);
                Signals::of(&mut node.engine).note_hint(now, tenant, hint.weight, cap);
                let wake = node.schedule_wake(now);
                parts.lower(host, wake);
            }
        }
    }

    /// Notes that the queue pairs of `flow` have been destroyed.
    pub(super) fn leave(&mut self, flow: u32) {
        self.queue_pairs[flow as usize].sending = None;
    }

    /// Returns the tenant of `flow`.
    pub(super) fn tenant_of(&self, flow: u32) -> u32 {
        self.queue_pairs[flow as usize].membership.tenant
    }

    /// Records the settings of each queue pair at the end of slice `slice`.
    pub(super) fn measure_settings(&mut self, slice: usize, parts: &Parts) {
        for pair in &mut self.queue_pairs {
            if let Some(info) = pair.sending.and_then(|(host, qpn)| parts.host(host).engine.query_qp(qpn)) {
                pair.settings.measure(slice, &info);
            }
        }
    }

    /// Returns the round trips of each queue pair that has been probed, by its index and by slice, in picoseconds.
    fn round_trips(&self, slice: Duration, count: usize, parts: &Parts) -> BTreeMap<usize, Vec<Vec<u64>>> {
        let mut users: BTreeMap<(u32, Qpn), Vec<usize>> = BTreeMap::new();
        for (pair, index) in self.queue_pairs.iter().zip(0..) {
            users.entry(pair.sender).or_default().push(index);
        }
        let mut found: BTreeMap<usize, Vec<Vec<u64>>> = BTreeMap::new();
        for (host, number) in parts.hosts().zip(0..) {
            for measured in &host.round_trips {
                // Of the queue pairs that have had this number, the last one that had joined.
                let joined = |index: &&usize| self.queue_pairs[**index].joined <= measured.at;
                let user = users.get(&(number, measured.qpn)).and_then(|users| users.iter().rev().find(joined));
                let index = (measured.at.as_ps() / slice.as_ps()) as usize;
                if let Some(user) = user.filter(|_| index < count) {
                    let slices = found.entry(*user).or_insert_with(|| vec![Vec::new(); count]);
                    slices[index].push(measured.round_trip.as_ps());
                }
            }
        }
        found
    }

    /// Writes the results of each tenant, the fairness, and the traffic on buses to `report`.
    pub(super) fn report(&self, parts: &Parts, report: &mut Report) {
        let tenants = &self.plan.tenants;
        let figures: Vec<_> =
            tenants.iter().zip(0..).map(|(tenant, number)| self.figures(tenant, number, parts)).collect();
        let of_pair = |pair: &TenantQueuePair| {
            let measured = self.measured_time(pair.joined, pair.membership.stop);
            pair.share(gbps(pair.counter(parts).payload, measured.end.since(measured.start)))
        };
        let of_tenant = |(figures, plan): (&TenantFigures, &TenantPlan)| figures.goodput_gbps / f64::from(plan.weight);
        report.fairness = Some(Fairness {
            jain_queue_pairs: jain_f64(self.queue_pairs.iter().map(of_pair)),
            jain_tenants: jain_f64(figures.iter().zip(tenants).map(of_tenant)),
        });
        report.bus = self.bus_figures(parts);
        report.tenants = Some(tenants.iter().map(|tenant| tenant.name.clone()).zip(figures).collect());
    }

    fn figures(&self, tenant: &TenantPlan, number: u32, parts: &Parts) -> TenantFigures {
        let measured = self.measured_time(tenant.start, tenant.stop);
        let time = measured.end.since(measured.start);
        let mut figures = TenantFigures::default();
        let (mut payload, mut wire) = (0, 0);
        for pair in self.queue_pairs.iter().filter(|pair| pair.membership.tenant == number) {
            let counter = pair.counter(parts);
            payload += counter.payload;
            wire += counter.wire;
            figures.queue_pairs += 1;
        }
        (figures.goodput_gbps, figures.wire_gbps) = (gbps(payload, time), gbps(wire, time));
        let tallies = || parts.hosts().filter_map(|host| host.sessions.tallies.get(number as usize));
        figures.completions = tallies().map(TenantTally::completions).sum();
        let latencies = tallies().flat_map(TenantTally::latencies).map(|latency| latency.as_us_f64());
        figures.latency_us = Spread::of(&mut latencies.collect::<Vec<_>>());
        figures
    }

    /// Returns the traffic on the NICs' buses, when the plan models NICs.
    fn bus_figures(&self, parts: &Parts) -> Option<BusFigures> {
        let measured = self.whole_time();
        let time = measured.end.since(measured.start);
        let counts = || parts.hosts().filter_map(|host| Some(host.nic.as_ref()?.bus_counts()));
        counts().next()?;
        let reads: u64 = counts().map(|counts| counts.payload_reads).sum();
        Some(BusFigures {
            read_gbps: gbps(counts().map(|counts| counts.read).sum(), time),
            write_gbps: gbps(counts().map(|counts| counts.written).sum(), time),
            payload_read_gbps: gbps(counts().map(|counts| counts.payload_read).sum(), time),
            payload_reads_per_s: reads as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE),
        })
    }

    /// Adds the results of tenants and of their queue pairs to `slices`; `count` is the number of slices.
    pub(super) fn add_slices(&self, slices: &mut Slices, slice: Duration, count: usize, parts: &Parts) {
        let plan = &self.plan;
        let name = |pair: &TenantQueuePair| {
            let Membership { tenant, index, .. } = pair.membership;
            format!("{}-{index}", plan.tenants[tenant as usize].name)
        };
        let mut round_trips = self.round_trips(slice, count, parts);
        let mut of_pair = |(pair, index): (&TenantQueuePair, usize)| {
            let (counter, settings) = (pair.counter(parts), &pair.settings);
            let goodput_gbps = (0..count).map(|index| gbps(counter.bytes_in(index), slice)).collect();
            let complete = |values: &Vec<f64>| padded(values.clone(), count);
            let known = |values: &Vec<f64>| (!values.is_empty()).then(|| complete(values));
            QueuePairSlices {
                goodput_gbps,
                dequeue_gbps: known(&settings.dequeue_gbps),
                control_gbps: known(&settings.control_gbps),
                path_changes: self.has_messages.then(|| complete(&settings.path_changes)),
                probes: round_trips.remove(&index).map(|mut round_trips| ProbeSlices::of(&mut round_trips)),
            }
        };
        let pairs: Vec<_> =
            self.queue_pairs.iter().zip(0..).map(|(pair, index)| (pair, of_pair((pair, index)))).collect();
        let mut tenants = vec![TenantSlices { goodput_gbps: vec![0.0; count] }; plan.tenants.len()];
        for (pair, of_pair) in &pairs {
            let sums = &mut tenants[pair.membership.tenant as usize].goodput_gbps;
            sums.iter_mut().zip(&of_pair.goodput_gbps).for_each(|(sum, goodput)| *sum += goodput);
        }
        let mut fairness = FairnessSlices::default();
        for index in 0..count {
            let start = Time::ZERO + slice * index as u64;
            let mut is_member = vec![false; tenants.len()];
            let members = pairs.iter().filter(|(pair, _)| pair.is_member(&(start..start + slice)));
            let shares = members.map(|(pair, of_pair)| {
                is_member[pair.membership.tenant as usize] = true;
                pair.share(of_pair.goodput_gbps[index])
            });
            fairness.jain_queue_pairs.push(jain_f64(shares));
            let members = plan.tenants.iter().zip(&tenants).zip(is_member).filter(|(_, is_member)| *is_member);
            let shares = members.map(|((plan, tenant), _)| tenant.goodput_gbps[index] / f64::from(plan.weight));
            fairness.jain_tenants.push(jain_f64(shares));
            fairness.goodput_gbps.push(tenants.iter().map(|tenant| tenant.goodput_gbps[index]).sum());
        }
        slices.tenants = plan.tenants.iter().map(|tenant| tenant.name.clone()).zip(tenants).collect();
        slices.queue_pairs = pairs.into_iter().map(|(pair, of_pair)| (name(pair), of_pair)).collect();
        slices.fairness = Some(fairness);
    }
}

/// Sets the properties by which a NIC shares its link among the queue pairs of tenants: the weight of `qpn`, which
/// sends the payload, and the limit of its rate.
fn set_share(engine: &mut Engine, now: Time, qpn: Qpn, membership: &Membership) {
    let set = engine.sharing().set_weight(now, qpn, membership.weight);
    set.expect("the queue pair exists, and the plan's weight is legal");
    if let Some(rate) = membership.rate_limit {
        let limit = RateLimit { rate, burst_bytes: None };
        let set = engine.set_rate_limit(now, qpn, LimitSource::Operator, Some(limit));
        set.expect("the queue pair exists, and the plan's limit is legal");
    }
}

/// Changes the properties of `qpn` by which a NIC shares its link, as `hint` says.
fn follow_hint(engine: &mut Engine, now: Time, qpn: Qpn, hint: &HintPlan) {
    let set = engine.sharing().set_weight(now, qpn, hint.weight);
    set.expect("the queue pair exists, and the plan's weight is legal");
    let limit = hint.cap.map(|rate| RateLimit { rate, burst_bytes: None });
    let set = engine.set_rate_limit(now, qpn, LimitSource::Hint, limit);
    set.expect("the queue pair exists, and the plan's cap is legal");
}

fn gbps(bytes: u64, time: Duration) -> f64 {
    BitRate::from_transfer(bytes, time).as_gbps_f64()
}

fn padded(mut values: Vec<f64>, count: usize) -> Vec<f64> {
    values.resize(count, 0.0);
    values
}
