//! Start and end of flows: queue pairs, memory, queue pair numbers.

use std::collections::VecDeque;

use rnic_base::{Psn, Time};
use rnic_engine::{
    Access, Classes, Key, MemoryRegion, Messages, NvmeRole, PeerId, QpAttributes, QpConnection, QpTiming, RemoteMemory,
    RnrTimer, Service, Transport,
};
use rnic_wire::Qpn;
use std::sync::Arc;

use super::{Simulation, WatchedFlow, groups, watch};
use crate::fault::matches;
use crate::host::memory::Block;
use crate::host::{Buffers, Host, Receiver, Sender};
use crate::workload::{FlowSpec, Operation};

/// Data kept for every flow until the end of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) start: Time,
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) bytes: u64,
    /// Completion time: of the last message at the receiver; for Reads and other operations without a completion at the
    /// receiver, at the sender.
    pub(crate) done: Option<Time>,
    /// Number of the incast request to which the flow belongs; `None` in other workloads.
    pub(crate) request: Option<u32>,
    /// Index of its group of traffic; 0 in plans without groups.
    pub(crate) group: u16,
    /// Slot of the flow in the table of flows in progress.
    active: u32,
}

impl Flow {
    /// Returns the slot of the flow in the table of flows in progress, if it is in progress.
    pub(crate) fn slot(&self) -> usize {
        self.active as usize
    }
}

/// Data kept for a flow while it is in progress.
#[derive(Debug)]
pub(crate) struct ActiveFlow {
    pub(crate) flow: u32,
    pub(crate) sender: u32,
    pub(crate) receiver: Option<u32>,
    pub(crate) src_qpn: Qpn,
    pub(crate) dst_qpn: Qpn,
    pub(super) buffers: [Buffers; 2],
    delivered: bool,
    acknowledged: bool,
}

/// Queue pair numbers of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct QpNumbers {
    allocated: u32,
    returned: VecDeque<u32>,
}

impl QpNumbers {
    /// Returns a number that has never been used, or has not been used for a long time; a multiple of `spacing`.
    pub(crate) fn next_flow(&mut self, spacing: u32) -> Qpn {
        if self.returned.len() > QUARANTINED_NUMBERS
            && let Some(number) = self.returned.pop_front()
        {
            return Qpn::new(number);
        }
        self.allocated += 1;
        // Queue pair numbers 0 and 1 are reserved for management.
        Qpn::new((self.allocated + 1) * spacing)
    }

    pub(crate) fn release(&mut self, number: Qpn) {
        self.returned.push_back(number.get());
    }
}

/// Numbers of a queue pair that uses several flows: they differ in the low bits.
pub(crate) const NUMBERS_OF_FLOWS: u32 = 16;

/// Number of released queue pair numbers that are not reused yet, so that no old packet of a previous connection
/// arrives at a new one.
const QUARANTINED_NUMBERS: usize = 1 << 14;

/// Capacities of the queues of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueSizes {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) sges: u32,
}

impl Simulation {
    /// Creates the flows that start before `horizon`.
    pub(super) fn open_flows(&mut self, horizon: Time) {
        while self.source.next_start().is_some_and(|start| start < horizon) {
            let group = self.source.next_group();
            let spec = self.source.next_flow();
            self.open(&spec, group);
        }
    }

    fn open(&mut self, spec: &FlowSpec, group: u32) {
        let flow = self.flows.len() as u32;
        let traffic = &spec.traffic;
        let depth = traffic.depth.min(traffic.messages(spec.bytes));
        let consumes_receive = traffic.op.consumes_receive();
        let sending = QueueSizes { sends: depth, receives: 0, sges: 1 };
        let receives = if consumes_receive { depth } else { 0 };
        let receiving = QueueSizes { sends: 0, receives, sges: u32::from(traffic.op == Operation::Send) };
        let ends = [(spec.src, sending), (spec.dst, receiving)];
        let transports = watch::transports_of(self, flow, group, traffic.op);
        let (src_qpn, dst_qpn) = self.connect_as(spec.start, ends, [None, None], u32::MAX, (group, transports));
        watch::show(self, &WatchedFlow { flow, hosts: [spec.src, spec.dst], qpns: [src_qpn, dst_qpn] });
        if let (Some(tenancy), Some(membership)) = (&mut self.tenancy, spec.membership) {
            tenancy.join(spec, membership, [src_qpn, dst_qpn], &mut self.parts);
        }

        let memory = traffic.slot_bytes(spec.bytes).max(8) * u64::from(depth);
        let buffers = [spec.src, spec.dst].map(|host| self.parts.host_mut(host).make_buffers(memory));
        let remote = RemoteMemory { addr: buffers[1].addr, rkey: buffers[1].key.0 };
        let mut sender = Sender::new(flow, src_qpn, Arc::clone(traffic), spec.bytes, buffers[0], remote);
        spec.arrivals.iter().for_each(|arrivals| sender.set_arrivals(arrivals.clone()));
        sender.tenant = spec.membership.map(|membership| membership.tenant);
        sender.lengths.clone_from(&spec.lengths);
        groups::assign(&mut sender, group, &self.plan.workload);
        self.parts.host_mut(spec.dst).prepare_target(&sender, &buffers[1]);
        let receiver = consumes_receive.then(|| {
            let mut receiver = Receiver::new(flow, dst_qpn, Arc::clone(traffic), spec.bytes, buffers[1]);
            receiver.lengths.clone_from(&spec.lengths);
            receiver.is_ranked = sender.is_ranked;
            let Host { sessions, engine, .. } = self.parts.host_mut(spec.dst);
            sessions.add_receiver(receiver, engine)
        });
        let host = self.parts.host_mut(spec.src);
        let sender = host.sessions.add_sender(sender);
        host.start_at(spec.start, sender);
        self.parts.lower(spec.src, spec.start);

        let active = ActiveFlow {
            flow,
            sender,
            receiver,
            src_qpn,
            dst_qpn,
            buffers,
            // When a loop with a duration ends, receives for further messages remain posted.
            delivered: !consumes_receive || traffic.until.is_some(),
            acknowledged: false,
        };
        let slot = self.active.insert(active);
        let FlowSpec { start, src, dst, bytes, request, .. } = *spec;
        let flow = Flow { start, src, dst, bytes, done: None, request, group: group as u16, active: slot as u32 };
        if let Some(recorder) = &mut self.recorder {
            recorder.open(slot, &flow, &self.active[slot], &self.parts);
        }
        self.flows.push(flow);
    }

    /// Creates a queue pair at each of two hosts, connected and ready to send.
    pub(super) fn connect(&mut self, now: Time, a: (u32, QueueSizes), b: (u32, QueueSizes)) -> (Qpn, Qpn) {
        // Retries are unlimited, because the duration of a recovery depends on the network: only the stall checker
        // ends a run that makes no progress.
        let transports = watch::planned_transports(self, 0);
        self.connect_as(now, [a, b], [None, None], u32::MAX, (0, transports))
    }

    /// Creates a connected queue pair at each of two hosts, with their NVMe roles, the limit of retransmissions, the
    /// group, and the transports of both ends.
    pub(super) fn connect_as(
        &mut self,
        now: Time,
        [a, b]: [(u32, QueueSizes); 2],
        roles: [Option<NvmeRole>; 2],
        retry_count: u32,
        (group, transports): (u32, [Arc<Transport>; 2]),
    ) -> (Qpn, Qpn) {
        let qpns = [a.0, b.0].map(|host| self.qp_numbers[host as usize].next_flow(self.number_spacing));
        let psns = [(); 2].map(|()| Psn::new(self.first_psns.bits() as u32));
        for (side, (host, sizes)) in [a, b].into_iter().enumerate() {
            let other = 1 - side;
            let peer = PeerId([a.0, b.0][other]);
            let Host { engine, pd, cq, .. } = self.parts.host_mut(host);
            let attributes = QpAttributes {
                pd: *pd,
                send_cq: *cq,
                recv_cq: *cq,
                srq: None,
                max_send_wr: sizes.sends,
                max_recv_wr: sizes.receives,
                max_send_sge: if sizes.sends > 0 { sizes.sges } else { 0 },
                max_recv_sge: if sizes.receives > 0 { sizes.sges } else { 0 },
                signal_all: false,
                service: Service::ReliableConnection,
                transport: Arc::clone(&transports[side]),
                number: Some(qpns[side]),
                nvme: roles[side],
            };
            let connection = QpConnection {
                peer,
                dest_qpn: qpns[other],
                rq_psn: psns[other],
                mtu: self.plan.mtu,
                min_rnr_timer: RnrTimer::from_code(1),
                max_dest_rd_atomic: self.plan.reads,
            };
            let max_rd_atomic = self.plan.reads;
            let timing = QpTiming { sq_psn: psns[side], retry_count, rnr_retry: None, max_rd_atomic };
            engine.create_qp(&attributes).expect("the number is free and the sizes are legal");
            if let Some(group) = self.plan.workload.groups().get(group as usize) {
                Classes::of(engine).set_class(qpns[side], group.class).expect("the queue pair and its class exist");
            }
            engine.modify_to_init(qpns[side]).expect("the queue pair is in Reset");
            engine.modify_to_rtr(qpns[side], &connection).expect("the queue pair is in Init and the MTU is legal");
            engine.modify_to_rts(now, qpns[side], &timing).expect("the queue pair is in RTR");
        }
        if self.plan.scr.is_some() {
            self.exchange_messages(now, [a.0, b.0], qpns);
        }
        (qpns[0], qpns[1])
    }

    /// Enables rate grants to the senders that the plan names, and makes both hosts send their first messages.
    fn exchange_messages(&mut self, now: Time, hosts: [u32; 2], qpns: [Qpn; 2]) {
        let Some(scr) = &self.plan.scr else { return };
        for (side, &host) in hosts.iter().enumerate() {
            let sender = format!("host-{}", hosts[1 - side]);
            let node = self.parts.host_mut(host);
            if scr.credits.as_deref().is_some_and(|pattern| matches(pattern, &sender)) {
                Messages::of(&mut node.engine).grant_to(qpns[side]);
            }
            let wake = node.schedule_wake(now);
            self.parts.lower(host, wake);
        }
    }

    /// Processes the reports of nodes, in order of time, and removes flows that are done at both sides.
    pub(super) fn process_flow_events(&mut self) {
        self.parts.collect_flow_events(&mut self.flow_events);
        if self.flow_events.is_empty() {
            return;
        }
        let mut flow_events = core::mem::take(&mut self.flow_events);
        flow_events.sort_unstable();
        for event in flow_events.drain(..) {
            self.source.ended(event.flow, event.delivered, self.now);
            let flow = &mut self.flows[event.flow as usize];
            let active = &mut self.active[flow.active as usize];
            if event.delivered {
                active.delivered = true;
                flow.done = Some(event.at);
            } else {
                active.acknowledged = true;
                if active.receiver.is_none() || flow.done.is_none() && active.delivered {
                    flow.done = Some(event.at);
                }
            }
            if active.delivered && active.acknowledged {
                self.close(event.at, event.flow);
            }
        }
        self.flow_events = flow_events;
    }

    fn close(&mut self, at: Time, flow: u32) {
        let closed @ Flow { src, dst, active: slot, .. } = self.flows[flow as usize];
        let active = self.active.remove(slot as usize);
        if let Some(watch) = &mut self.flow_watch {
            watch.closed(flow);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.close(slot as usize, &closed, &active, &self.parts);
        }
        let ends = [(src, active.src_qpn, active.buffers[0]), (dst, active.dst_qpn, active.buffers[1])];
        if let Some(counts) = self.group_counts.get_mut(usize::from(closed.group)) {
            counts.add(&self.parts, &ends.map(|(host, qpn, _)| (host, qpn)));
        }
        let sender = self.parts.host_mut(src).sessions.remove_sender(at, active.sender, &mut self.violations);
        if sender.traffic.until.is_some() {
            // The flow ended at a given time, so its size is the total size of the messages that completed.
            self.flows[flow as usize].bytes = sender.traffic.message_bytes * u64::from(sender.completed);
        }
        if let Some(tenancy) = &mut self.tenancy {
            tenancy.leave(flow);
        }
        self.parts.host_mut(dst).check_target(at, &sender, &active.buffers[1], &mut self.violations);
        if let Some(receiver) = active.receiver {
            self.parts.host_mut(dst).sessions.remove_receiver(at, receiver, &mut self.violations);
        }
        for (host, qpn, buffers) in ends {
            self.qp_numbers[host as usize].release(qpn);
            let host = self.parts.host_mut(host);
            host.engine.destroy_qp(qpn).expect("the queue pair exists");
            host.forget(qpn);
            if !host.release_buffers(buffers) {
                self.violations
                    .add(at, format!("flow {flow}: bytes outside the memory of queue pair {qpn} were written"));
            }
        }
    }
}

impl Host {
    /// Allocates and registers memory for one end of a flow.
    pub(crate) fn make_buffers(&mut self, len: u64) -> Buffers {
        let Some(memory) = &mut self.memory else {
            let key = *self.whole_memory.get_or_insert_with(|| {
                let access = Access::all();
                let region = MemoryRegion { pd: self.pd, addr: 0, len: WHOLE_MEMORY_LEN, local: 0, access };
                self.engine.objects_mut().register(region).expect("the region is legal")
            });
            return Buffers { addr: 0, key, block: None };
        };
        let block = memory.allocate(len);
        let (addr, key) = self.register(block);
        Buffers { addr, key, block: Some(block) }
    }

    /// Registers a block with the engine; returns the address and the key for work requests.
    pub(crate) fn register(&mut self, block: Block) -> (u64, Key) {
        let addr = ADDRESS_OFFSET + block.local;
        let region = MemoryRegion { pd: self.pd, addr, len: block.len, local: block.local, access: Access::all() };
        (addr, self.engine.objects_mut().register(region).expect("the region is legal"))
    }

    /// Frees the memory; returns false when bytes outside of it were written.
    fn release_buffers(&mut self, buffers: Buffers) -> bool {
        let (Some(memory), Some(block)) = (&mut self.memory, buffers.block) else { return true };
        self.engine.objects_mut().deregister(buffers.key).expect("the key is registered");
        memory.release(block)
    }
}

/// Size of the memory region of a host whose bytes are not checked: it covers all addresses that a flow of many large
/// messages may use.
const WHOLE_MEMORY_LEN: u64 = 1 << 50;

/// Difference between addresses in work requests and offsets in memory, so that a confusion of the two is detected.
const ADDRESS_OFFSET: u64 = 0x7000_0000_0000;
