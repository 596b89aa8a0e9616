//! Tonic's template as the endpoint of a simulated host: its cycles run in simulated time, and only those in which
//! something can change (T-29).
//!
//! The template names segments; [`Wire`] makes packets of them that receivers of the simulator understand, which know
//! nothing of the template. A cycle covers the time from its number to the next, in units of its length: a packet takes
//! part in the cycle in which it arrives, or in the next one without another, and an address can leave when its cycle
//! has ended. Packets wait for the link in a queue; while it is full, the output is blocked.

use std::collections::VecDeque;

use rnic_base::{Duration, Time};
use rnic_fabric::endpoint::{Datagram, Endpoint, Incoming, Outgoing};
use rnic_tonic::{Address, FlowId, FlowSetup, FlowView, Input, Nic, Packet, Refused, SegmentId, Tonic};

use super::wire::{Wire, WireFlow};

/// Segments that are announced ahead of the first unacknowledged one; when half of them are used up, more are.
const ANNOUNCED: u32 = 1 << 21;

/// Cycles ahead in which events are searched for.
const FAR: u64 = 1 << 40;

/// A flow of the host.
#[derive(Debug)]
struct Flow {
    wire: WireFlow,
    /// First unacknowledged segment, as the template has it, and counted from the start of the flow.
    start: (SegmentId, u64),
    /// Announced segments, counted from the start of the flow.
    announced: u64,
    sent: u64,
    cnps: u64,
    repeats: Vec<u64>,
}

/// Counters of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowCounts<'f> {
    /// Segments acknowledged in order.
    pub acknowledged: u64,
    /// Number of packets sent, retransmissions included.
    pub sent: u64,
    /// Congestion notifications received.
    pub cnps: u64,
    /// Segments that were retransmitted, counted from the start of the flow, in that order.
    pub repeats: &'f [u64],
}

/// Settings of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSettings {
    /// Length of a cycle.
    pub cycle: Duration,
    /// Bytes of each segment.
    pub segment_bytes: u16,
    /// Maximum number of packets queued for the link before Tonic's output is blocked; at least 1.
    pub queue: usize,
    /// Number of segments of each flow.
    pub segments: u64,
    /// True to run every cycle, as a circuit does: the same packets at the same times, but slow.
    pub every_cycle: bool,
}

/// A host with a Tonic NIC: the model, or a circuit.
#[derive(Debug)]
pub struct TonicHost<N = Tonic> {
    tonic: N,
    cycle: Duration,
    segment_bytes: u16,
    wire: Wire,
    flows: Vec<Flow>,
    arrivals: VecDeque<(FlowId, Packet)>,
    output: VecDeque<Outgoing>,
    /// Packets that `output` holds before the template's output is blocked.
    queue: usize,
    /// Number of segments of each flow.
    segments: u64,
    every_cycle: bool,
    /// End of the next cycle that must be run.
    due: Option<Time>,
}

impl<N: Nic> TonicHost<N> {
    /// Adds `flows` to a Tonic NIC; flow number `n` of the NIC is the n-th of them.
    ///
    /// # Errors
    /// The call of the NIC that was rejected.
    pub fn new(tonic: N, settings: HostSettings, wire: Wire, flows: Vec<WireFlow>) -> Result<Self, Refused> {
        let HostSettings { cycle, segment_bytes, queue, segments, every_cycle } = settings;
        let first = SegmentId::new(0);
        let flow = |wire| Flow { wire, start: (first, 0), announced: 0, sent: 0, cnps: 0, repeats: Vec::new() };
        let flows: Vec<Flow> = flows.into_iter().map(flow).collect();
        let count = flows.len() as FlowId;
        let mut host = Self {
            tonic,
            cycle,
            segment_bytes,
            wire,
            flows,
            arrivals: VecDeque::new(),
            output: VecDeque::new(),
            queue,
            segments,
            every_cycle,
            due: None,
        };
        for number in 0..count {
            host.call(|tonic| tonic.add_flow(number, FlowSetup { first, segment_bytes }))?;
        }
        let announced = segments.min(u64::from(ANNOUNCED));
        for number in 0..count {
            host.call(|tonic| tonic.set_limit(number, first.plus(announced as u32), 0))?;
            host.flows[usize::from(number)].announced = announced;
        }
        host.set_due();
        Ok(host)
    }

    /// Calls the template; while its queue of commands is full, cycles pass.
    fn call(&mut self, call: impl Fn(&mut N) -> Result<(), Refused>) -> Result<(), Refused> {
        loop {
            match call(&mut self.tonic) {
                Err(Refused::Commands) => self.step(None),
                answer => return answer,
            }
        }
    }

    /// Returns the state of a flow held by the modelled Tonic NIC.
    ///
    /// # Errors
    /// When the NIC has no such flow.
    pub fn flow(&self, flow: FlowId) -> Result<FlowView, Refused> {
        self.tonic.flow(flow)
    }

    /// Returns the counters of a flow; `None` when there is no such flow.
    pub fn counts(&self, flow: FlowId) -> Option<FlowCounts<'_>> {
        let Flow { sent, cnps, repeats, .. } = self.flows.get(usize::from(flow))?;
        let acknowledged = self.position(flow, self.tonic.flow(flow).ok()?.start);
        Some(FlowCounts { acknowledged, sent: *sent, cnps: *cnps, repeats })
    }

    /// Runs the cycles that have ended at `now`.
    fn run_to(&mut self, now: Time) {
        let end = self.cycle_at(now);
        while self.tonic.now() < end {
            if let Some(packet) = self.arrivals.pop_front() {
                self.step(Some(packet));
                continue;
            }
            if self.every_cycle {
                self.step(None);
                continue;
            }
            match self.tonic.next_event(end) {
                // Passes cycles without events.
                None => drop(self.tonic.advance_to(end)),
                Some(event) => {
                    let passed = self.tonic.advance_to(event);
                    debug_assert_eq!(passed, None, "no address leaves before the next event");
                    self.step(None);
                }
            }
        }
    }

    fn cycle_at(&self, now: Time) -> u64 {
        now.as_ps() / self.cycle.as_ps()
    }

    /// Runs one cycle.
    fn step(&mut self, packet: Option<(FlowId, Packet)>) {
        let flow = packet.map(|(flow, _)| flow);
        let is_blocked = self.output.len() >= self.queue;
        let address = self.tonic.step(&Input { packet, is_blocked });
        if let Some(address) = address.filter(|_| !is_blocked) {
            self.take(&address);
        }
        if let Some(flow) = flow {
            self.announce(flow);
        }
    }

    /// Makes the packet of an address.
    fn take(&mut self, address: &Address) {
        let segment = self.position(address.flow, address.segment);
        let Some(flow) = self.flows.get_mut(usize::from(address.flow)) else { return };
        flow.sent += 1;
        if address.times_sent > 0 {
            flow.repeats.push(segment);
        }
        let datagram = self.wire.packet(&flow.wire, segment, self.segment_bytes);
        self.output.push_back(Outgoing { to: flow.wire.to, datagram });
    }

    /// Returns the number of a segment, counted from the start of its flow.
    fn position(&self, flow: FlowId, segment: SegmentId) -> u64 {
        let (id, position) = self.flows[usize::from(flow)].start;
        position.saturating_add_signed(id.distance_to(segment))
    }

    /// Notes the start of the window, and announces more segments when half of them have been acknowledged.
    fn announce(&mut self, number: FlowId) {
        let Ok(view) = self.tonic.flow(number) else { return };
        let position = self.position(number, view.start);
        let flow = &mut self.flows[usize::from(number)];
        flow.start = (view.start, position);
        if flow.announced < self.segments && flow.announced - position < u64::from(ANNOUNCED / 2) {
            let announced = self.segments.min(position + u64::from(ANNOUNCED));
            let limit = view.start.plus((announced - position) as u32);
            // Refused while commands wait: the next acknowledgement announces them.
            if self.tonic.set_limit(number, limit, 0).is_ok() {
                flow.announced = announced;
            }
        }
    }

    fn set_due(&mut self) {
        let next = self.tonic.now();
        let is_next = self.every_cycle || !self.arrivals.is_empty();
        let event = if is_next { Some(next) } else { self.tonic.next_event(next + FAR) };
        self.due = event.map(|cycle| Time::ZERO + self.cycle.saturating_mul(cycle + 1));
    }
}

impl<N: Nic + 'static> Endpoint for TonicHost<N> {
    fn next_event(&self) -> Option<Time> {
        self.due
    }

    fn advance(&mut self, now: Time) {
        self.run_to(now);
        self.set_due();
    }

    fn receive(&mut self, now: Time, incoming: &Incoming) {
        self.run_to(now);
        let flows = self.flows.iter().zip(0..);
        let mut found = flows.filter(|(flow, _)| flow.wire.to == incoming.from);
        let number = match incoming.datagram {
            Datagram::Tcp(segment) => found.find(|(flow, _)| flow.wire.connection == segment.connection),
            Datagram::Roce(_, packet) => found.find(|(flow, _)| flow.wire.own_qpn == packet.dest_qpn),
        };
        let Some(number) = number.map(|(_, number)| number) else { return self.set_due() };
        let flow = &mut self.flows[usize::from(number)];
        if let Some(packet) = self.wire.read(&flow.wire, flow.start.1, &incoming.datagram, self.segment_bytes) {
            flow.cnps += u64::from(packet.cnp);
            self.arrivals.push_back((number, packet));
        }
        self.set_due();
    }

    fn transmit(&mut self, now: Time) -> Option<Outgoing> {
        self.run_to(now);
        let outgoing = self.output.pop_front();
        self.set_due();
        outgoing
    }
}
