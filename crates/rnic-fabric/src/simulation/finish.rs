//! The end of a run: collects the results and checks for leaks.

use rnic_base::{BitRate, Time};
use rnic_engine::DropReason;
use rnic_engine::messages::exchange::Exchange;
use rnic_policy::Profile;

use super::connect::Flow;
use super::{NEVER, Simulation, groups, script};
use crate::entry::LINK_OVERHEAD;
use crate::falcon_counts::FalconCounts;
use crate::fault::FaultKind;
use crate::frames::Family;
use crate::host::{CompletionRate, Host, NvmeUser, Recoveries, TenantTally};
use crate::ideal::ideal_time;
use crate::report::{
    CollectiveFigures, FlowRecord, PoolFigures, ProcessorFigures, QueuePairs, Report, ScrFigures, Spread,
};
use crate::topology::{BestPaths, LinkClass};
use crate::workload::WorkloadPlan;
use crate::workload::collective::CollectivePlan;
use crate::workload::nvme::NvmePlan;

impl Simulation {
    /// Collects the results; checks for leaks when there are no more events.
    pub(super) fn report(&mut self) -> Report {
        let stalled = !self.violations.is_empty();
        if self.next_event() == NEVER {
            if !self.active.is_empty() && !stalled {
                let what = format!("deadlock, no event is left: {}", self.describe_stuck());
                self.violations.add(self.now, what);
            }
            self.check_leaks();
        }
        let mut report = Report::empty();
        report.plan.clone_from(&self.plan.name);
        report.transport = rnic_transports::label(&self.plan.transport);
        report.program = self.plan.transports().into_iter().find_map(Profile::loaded_programs);
        report.executor = self.plan.transports().into_iter().find_map(Profile::executor);
        report.seed = self.seed;
        report.trace_hash = self.trace_hash();
        report.records = self.records();
        report.flows_unfinished = self.flows.len() as u64 - report.records.len() as u64;
        if let WorkloadPlan::Nvme(nvme) = &self.plan.workload {
            report.records = self.commands(nvme);
        }
        report.simulated_us = self.now.since(Time::ZERO).as_us_f64();
        report.packets_under_way_max = self.in_flight_max as u64;
        self.count_hosts(&mut report);
        report.scr = self.plan.scr.as_ref().map(|_| self.count_messages());
        let since_zero = |time: Time| time.since(Time::ZERO).as_us_f64();
        let not_begun = self.source.next_start().filter(|_| self.is_truncated);
        report.not_begun_from_us = not_begun.map(since_zero);
        let is_truncated = self.is_truncated && (report.flows_unfinished > 0 || not_begun.is_some());
        report.cut_at_us = is_truncated.then(|| since_zero(self.plan.run.limit));
        report.slices = self.slices();
        report.latency_parts = self.tracer.as_ref().and_then(|tracer| tracer.latency_parts());
        if let Some(tenancy) = &self.tenancy {
            tenancy.report(&self.parts, &mut report);
        }
        report.drops.nic = report.nic.map_or(0, |nic| nic.dropped);
        self.count_switches(&mut report);
        report.packets_dropped = report.drops.buffer + report.drops.nic + report.drops.fault + report.drops.corrupt;
        let data_lost = report.drops.buffer + report.drops.fault - report.drops.acks;
        report.drop_rate = data_lost as f64 / (report.packets_sent + report.packets_retransmitted).max(1) as f64;
        match (&self.plan.workload, self.plan.workload.collective()) {
            (_, Some((collective, _))) => self.sum_up_collectives(collective, &mut report),
            (WorkloadPlan::Chakra(chakra), _) => script::sum_up(self, chakra, &mut report),
            // Requests of several groups are numbered separately.
            (WorkloadPlan::Groups(_), _) => {}
            _ => (report.rct_us, report.requests_unfinished) = self.request_times(None),
        }
        report.summarise(self.counted_time(), u64::from(self.plan.mtu));
        groups::report(self, &mut report);
        let records = self.parts.hosts().filter_map(|host| host.engine.shares().records);
        let packets = report.packets_sent + report.packets_retransmitted;
        report.processors = ProcessorFigures::of(records, packets, self.now.since(Time::ZERO));
        report.warnings = self.plan.warnings();
        report.warnings.extend(self.result_warnings(&report));
        let mut violations = self.violations.take();
        violations.extend(self.parts.hosts_mut().flat_map(|host| host.violations.take()));
        violations.sort_by_key(|violation| violation.at);
        report.violations = violations.iter().map(ToString::to_string).collect();
        report
    }

    /// Returns the combined hash of the traces of all nodes, in order.
    pub fn trace_hash(&self) -> String {
        let mut hash = rnic_base::TraceHash::new();
        let hosts = self.parts.hosts().map(|host| host.trace);
        let switches = self.parts.switches().map(|switch| switch.trace);
        hosts.chain(switches).for_each(|node| hash.add_word(node.value()));
        hash.to_string()
    }

    /// Returns the hash of all completions of all hosts, in order of hosts: time, queue pair and all fields of a
    /// completion.
    pub fn completion_hash(&self) -> String {
        let mut hash = rnic_base::TraceHash::new();
        self.parts.hosts().for_each(|host| hash.add_word(host.completions.value()));
        hash.to_string()
    }

    fn records(&self) -> Vec<FlowRecord> {
        let mut classes = Vec::new();
        let families: Vec<Family> = self.transports.iter().map(|transport| Family::of(transport)).collect();
        let has_groups = !self.group_counts.is_empty();
        let (topology, mut both) = (self.plan.topology.build(), <[Vec<LinkClass>; 2]>::default());
        let mut best_paths = topology.tables.is_some().then(|| BestPaths::new(&topology));
        let packet = self.plan.largest_frame() + LINK_OVERHEAD;
        let delay = |class| self.plan.link(class).rate.serialize(packet) + self.plan.link(class).delay;
        let finished = self.flows.iter().zip(0..).filter_map(|(flow, id)| Some((flow, id, flow.done?)));
        let record = |(flow, id, done): (&Flow, u32, Time)| {
            let family = families[usize::from(flow.group)];
            let ideal = match &mut best_paths {
                None => {
                    self.paths.link_classes(flow.src, flow.dst, &mut classes);
                    ideal_time(&self.plan, family, flow.bytes, &classes)
                }
                Some(best) => {
                    best.find((flow.src, flow.dst), |class| self.plan.link(class), delay, &mut both);
                    let [one, other] = both.each_ref().map(|path| ideal_time(&self.plan, family, flow.bytes, path));
                    one.min(other)
                }
            };
            let Flow { start, src, dst, bytes, request, group, .. } = *flow;
            let group = has_groups.then_some(u32::from(group));
            let tenant = self.tenancy.as_ref().map(|tenancy| tenancy.tenant_of(id));
            FlowRecord { id, src, dst, bytes, start, fct: done.since(start), ideal, request, tenant, group }
        };
        finished.map(record).collect()
    }

    /// Returns the completed commands, which are the flows of hosts that use a drive.
    fn commands(&self, nvme: &NvmePlan) -> Vec<FlowRecord> {
        let ideal = nvme.ideal_time();
        let of_host = |(host, src): (&Host, u32)| {
            let done = host.nvme.as_deref().map_or(&[][..], NvmeUser::completed).iter();
            let record = move |&(start, fct)| FlowRecord {
                id: 0,
                src,
                dst: nvme.to,
                bytes: nvme.bytes,
                start,
                fct,
                ideal,
                request: None,
                tenant: None,
                group: None,
            };
            done.map(record).collect::<Vec<_>>()
        };
        let mut records: Vec<_> = self.parts.hosts().zip(0..).flat_map(of_host).collect();
        records.sort_by_key(|command| (command.start, command.src));
        records.iter_mut().zip(0..).for_each(|(command, id)| command.id = id);
        records
    }

    /// Returns the completion times of requests in microseconds, of a group of traffic or of the whole run, and the
    /// number of those that are not complete. Requests of a group that started in the warm-up are not included.
    pub(super) fn request_times(&self, group: Option<u32>) -> (Option<Spread>, u64) {
        let mut requests: Vec<Option<(Time, Option<Time>)>> = Vec::new();
        for flow in self.flows.iter().filter(|flow| group.is_none_or(|group| group == u32::from(flow.group))) {
            let Some(index) = flow.request.map(|request| request as usize) else { continue };
            if requests.len() <= index {
                requests.resize(index + 1, None);
            }
            // Flows are in order of their start, so the start of a request is that of its first flow.
            let (start, end) = requests[index].unwrap_or((flow.start, Some(flow.start)));
            let end = end.zip(flow.done).map(|(end, done)| end.max(done));
            requests[index] = Some((start, end));
        }
        let first = group.map_or(Time::ZERO, |_| Time::ZERO + self.plan.run.warmup);
        let times = || requests.iter().flatten().filter(|(start, _)| *start >= first);
        let done = times().filter_map(|(start, end)| end.map(|end| end.since(*start).as_us_f64()));
        let spread = Spread::of(&mut done.collect::<Vec<_>>());
        (spread, times().filter(|(_, end)| end.is_none()).count() as u64)
    }

    /// Computes the time of each collective, from the end of the previous one until the last rank has received
    /// everything. As with flows, collectives that started in the warm-up are not included.
    fn sum_up_collectives(&self, collective: &CollectivePlan, report: &mut Report) {
        let ranks: Vec<&[Time]> =
            self.parts.hosts().take(collective.ranks as usize).filter_map(Host::finished).collect();
        let done = ranks.iter().map(|finished| finished.len()).min().unwrap_or(0);
        let ends = (0..done).map(|index| ranks.iter().map(|finished| finished[index]).max().unwrap_or_default());
        let mut previous_end = Time::ZERO;
        let spans = ends.map(|end| (core::mem::replace(&mut previous_end, end), end));
        let counted = spans.filter(|(start, _)| *start >= Time::ZERO + self.plan.run.warmup);
        let mut times: Vec<f64> = counted.map(|(start, end)| end.since(start).as_us_f64()).collect();
        report.rct_us = Spread::of(&mut times);
        report.collective = report.rct_us.map(|times| CollectiveFigures::of(collective, times.avg));
        report.requests_unfinished = u64::from(collective.count) - done as u64;
    }

    fn count_hosts(&mut self, report: &mut Report) {
        let (mut latencies, mut recoveries, mut steady_bytes) = (Vec::new(), Recoveries::default(), 0);
        let mut falcon = FalconCounts::default();
        for host in self.parts.hosts_mut() {
            let engine = host.engine.stats();
            report.packets_sent += engine.packets_sent;
            report.packets_retransmitted += engine.packets_retransmitted;
            report.acks_sent += engine.acks_sent;
            report.timeouts += engine.timeouts;
            report.nacks += engine.nacks;
            report.cnps += engine.cnps_received;
            let dropped_messages = engine.drops[DropReason::Message as usize];
            report.drops.unused += engine.drops.iter().sum::<u64>() - dropped_messages;
            report.drops.corrupt += host.stats.corrupt;
            report.events += host.stats.events;
            report.messages += host.sessions.messages;
            recoveries.add(&host.recoveries.done);
            PoolFigures::add(&mut report.pool, &host.engine.pool_stats());
            report.flows_unfinished += host.nvme.as_ref().map_or(0, |user| user.in_flight());
            if let Some(nic) = &host.nic {
                report.nic.get_or_insert_default().add(nic);
            }
            if let Some((counts, backlog)) = host.falcon_counts() {
                falcon.add(&counts, backlog);
            }
            steady_bytes += host.sessions.steady_bytes;
            let of_tenants = host.sessions.tallies.iter().flat_map(TenantTally::latencies);
            let all = host.sessions.latencies.iter().chain(of_tenants);
            latencies.extend(all.map(|latency| latency.as_us_f64()));
            count_port(host.port_stats(self.now), report);
        }
        let shape = self.plan.transports().into_iter().find_map(|profile| profile.protocol.falcon());
        report.falcon = shape.map(|shape| falcon.figures(shape.flows));
        report.latency_us = Spread::of(&mut latencies);
        report.queue_pairs = QueuePairs::of(self.parts.hosts().map(|host| {
            let rate = |rate: CompletionRate| BitRate::from_transfer(rate.get().0, rate.get().1).as_gbps_f64();
            host.sessions.rates().map(rate).collect()
        }));
        report.recoveries = Some(recoveries).filter(|recoveries| recoveries.count > 0);
        report.steady_goodput_gbps = self
            .steady_interval()
            .map(|(start, end)| BitRate::from_transfer(steady_bytes, end.since(start)).as_gbps_f64());
        if let WorkloadPlan::Nvme(nvme) = &self.plan.workload {
            // All commands have the same length.
            let commands = steady_bytes / nvme.bytes;
            report.ops_per_s =
                self.steady_interval().map(|(start, end)| commands as f64 / end.since(start).as_secs_f64());
        }
    }

    fn count_messages(&self) -> ScrFigures {
        let (mut figures, mut round_trips) = (ScrFigures::default(), Vec::new());
        for host in self.parts.hosts() {
            Exchange::of(&host.engine).into_iter().for_each(|exchange| figures.add(exchange));
            round_trips.extend(host.round_trips.iter().map(|measured| measured.round_trip.as_us_f64()));
        }
        ScrFigures { round_trip_us: Spread::of(&mut round_trips), ..figures }
    }

    fn count_switches(&self, report: &mut Report) {
        let (mut byte_time, mut outputs) = (0u128, 0u64);
        for switch in self.parts.switches() {
            report.drops.buffer += switch.stats.dropped;
            report.drops.acks += switch.stats.dropped_acks;
            report.events += switch.stats.events;
            report.ecn_marks += switch.marked();
            report.trimmed += switch.trimmed();
            report.queue_max_bytes = report.queue_max_bytes.max(switch.most_bytes_waiting());
            byte_time += switch.byte_time();
            for port in switch.ports() {
                count_port(port.stats_at(self.now), report);
                outputs += 1;
            }
        }
        let elapsed = self.now.as_ps();
        if elapsed > 0 && outputs > 0 {
            report.queue_mean_bytes = byte_time as f64 / elapsed as f64 / outputs as f64;
        }
    }

    /// Returns the interval of start times of the flows that are included in averages.
    fn counted_time(&self) -> core::ops::Range<Time> {
        let run = &self.plan.run;
        let end = match self.plan.workload {
            WorkloadPlan::Poisson { duration, .. } => Time::ZERO + duration - run.cooldown,
            _ => NEVER,
        };
        Time::ZERO + run.warmup..end
    }

    /// Returns warnings about results that were probably not intended and that the plan alone does not show.
    fn result_warnings(&self, report: &Report) -> Vec<String> {
        let mut warnings = Vec::new();
        let has_no_flows = report.flows == 0 && report.flows_unfinished == 0;
        if has_no_flows && !matches!(self.plan.workload, WorkloadPlan::Manual) {
            warnings.push("no flow has started, so the run simulated no traffic".to_owned());
        }
        let reorders = self.plan.faults.iter().any(|fault| !matches!(fault.kind, FaultKind::Slow { .. }));
        if report.packets_dropped == 0 && !reorders && report.timeouts > 0 && report.packets_retransmitted > 0 {
            warnings.push(format!(
                "{} timeouts occurred and {} packets were retransmitted although no packet was lost: packets were \
                 queued longer than the transport's timeout",
                report.timeouts, report.packets_retransmitted
            ));
        }
        let parts = self.plan.classes.iter().map(|class| class.switch);
        let has_pfc = self.plan.switch.is_some_and(|switch| switch.pfc.is_some())
            && parts.flatten().all(|part| part.pfc.is_some());
        if has_pfc && report.drops.buffer > 0 {
            warnings.push(format!(
                "switches dropped {} packets because of full buffers although PFC is on: PFC needs {} B of buffer \
                 beyond the threshold",
                report.drops.buffer,
                self.plan.pause_reaction_bytes()
            ));
        }
        warnings
    }

    /// Returns the time between the warm-up and the cooldown, for a workload that ends at a given time.
    pub(super) fn steady_interval(&self) -> Option<(Time, Time)> {
        let (run, until) = (&self.plan.run, self.plan.workload.until()?);
        let (start, end) = (Time::ZERO + run.warmup, until - run.cooldown);
        (start < end).then_some((start, end))
    }

    /// Checks that no packet, byte, pause or other resource is left when there are no more events.
    fn check_leaks(&mut self) {
        self.check_drive();
        let nvme_errors = self.nvme_errors();
        let mut leaks = Vec::new();
        let mut leak = |what: &str, count: u64| {
            if count > 0 {
                leaks.push(format!("{count} {what}"));
            }
        };
        leak("packets in no queue", self.parts.in_flight_count() as u64);
        leak("packets on links", self.parts.on_links() as u64);
        for switch in self.parts.switches() {
            leak("unaccounted bytes in a switch", switch.unaccounted_bytes());
            leak("bytes waiting in a switch", switch.bytes_waiting());
            leak("ports still paused by a switch", switch.paused_neighbours() as u64);
        }
        let drives = self.parts.hosts().filter_map(|host| host.nvme.as_deref());
        leak("unfinished NVMe commands", drives.map(NvmeUser::in_flight).sum());
        leak("invalid NVMe packets", nvme_errors);
        if self.active.is_empty() {
            leak("open ends of flows", self.parts.hosts().map(|host| host.sessions.open_count() as u64).sum());
            let by_flows = |host: &Host| host.memory_of_flows();
            leak("bytes of flow memory", self.parts.hosts().map(by_flows).sum());
        }
        if !leaks.is_empty() {
            self.violations
                .add(self.now, format!("resources were not released at the end of the run: {}", leaks.join(", ")));
        }
    }
}

fn count_port(stats: crate::port::PortStats, report: &mut Report) {
    report.packet_hops += stats.packets;
    report.drops.fault += stats.faulted;
    report.drops.acks += stats.faulted_acks;
    report.ecn_marks += stats.marked;
    report.pauses += stats.pauses_sent;
    report.pause_time_us += stats.paused.as_us_f64();
}

impl Report {
    /// Returns a report without results.
    pub(crate) fn empty() -> Self {
        Self::default()
    }
}
