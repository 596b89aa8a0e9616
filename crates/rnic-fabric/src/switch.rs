//! A switch: store and forward, buffers, pauses, marks.
//!
//! A packet costs one event when its output is idle: it arrives, is routed and is sent, and its arrival at the next
//! node is known. Only when something waits does the output have an event of its own, at the instant its transmitter is
//! free again.
//!
//! Within a node, events happen in the order of time; at the same instant arrivals come before sending, lower ports
//! before higher ones. A pause frame travels on its link in order with the packets and so needs no rule of its own.

mod admission;
mod ecn;
mod queues;

use rnic_base::{RandomStream, Time, TraceHash};

use crate::entry::{Entry, Flags};
use crate::link::Key;
use crate::port::{Network, Port};
use crate::route::Route;
use crate::topology::Node;

pub use admission::Alpha;
pub use ecn::EcnPlan;

use admission::{Admission, Pfc, Signal};
use ecn::Marker;
use queues::Queues;

/// The buffers of every switch of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferPlan {
    /// Each input port has its own, and a queue for every output.
    InputQueued {
        /// Bytes of each port.
        per_port: u64,
    },
    /// All ports share one; a queue per output.
    Shared {
        /// Bytes in all.
        total: u64,
        /// What share of the free buffer one queue may take.
        alpha: Alpha,
    },
}

/// When switches pause their neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcPlan {
    /// Input-queued: pause above so many bytes in a port's buffer.
    pub threshold: u64,
    /// Let go on at so many bytes below the threshold: two full packets.
    pub hysteresis: u64,
    /// Shared buffer: bytes set aside for each port for what comes in after the pause.
    pub headroom: u64,
}

/// What is the same for every switch of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchPlan {
    /// Its buffers.
    pub buffer: BufferPlan,
    /// Pauses, if any.
    pub pfc: Option<PfcPlan>,
    /// Marks, if any.
    pub ecn: Option<EcnPlan>,
}

/// What a switch has done, beside what its ports have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SwitchStats {
    /// Packets dropped for want of room.
    pub(crate) dropped: u64,
    pub(crate) events: u64,
}

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    node: Node,
    /// The ring of its port 0; the others follow.
    first_ring: u32,
    route: Route,
    ports: Vec<Port>,
    queues: Queues,
    admission: Admission,
    marker: Option<Marker>,
    /// When each output must be looked at because something waits for it; and the least of them.
    wakes: Vec<Key>,
    next_wake: Key,
    pub(crate) trace: TraceHash,
    pub(crate) stats: SwitchStats,
}

impl Switch {
    pub(crate) fn new(node: Node, first_ring: u32, route: Route, ports: Vec<Port>, plan: &SwitchPlan) -> Self {
        let count = ports.len();
        let pfc =
            plan.pfc.map(|pfc| Pfc { threshold: pfc.threshold, hysteresis: pfc.hysteresis, headroom: pfc.headroom });
        let admission = match plan.buffer {
            BufferPlan::InputQueued { per_port } => Admission::per_input(count, per_port, pfc),
            BufferPlan::Shared { total, alpha } => Admission::shared(count, total, alpha, pfc),
        };
        let per_input = matches!(plan.buffer, BufferPlan::InputQueued { .. });
        Self {
            node,
            first_ring,
            route,
            queues: Queues::new(count, per_input),
            admission,
            marker: None,
            wakes: vec![Key::NEVER; count],
            next_wake: Key::NEVER,
            ports,
            trace: TraceHash::new(),
            stats: SwitchStats::default(),
        }
    }

    /// From now on packets are marked.
    pub(crate) fn set_marking(&mut self, plan: &EcnPlan, stream: RandomStream) {
        self.marker = Some(Marker::new(plan, stream));
    }

    /// Does everything that happens before `horizon`.
    pub(crate) fn run(&mut self, horizon: Time, network: &mut Network) {
        let end = Key::new(horizon, 0);
        let next = loop {
            let arrival = least(network.links.heads(self.first_ring, self.ports.len()));
            let next = arrival.min(self.next_wake);
            if next >= end {
                break next;
            }
            self.stats.events += 1;
            if arrival.time() <= self.next_wake.time() {
                let entry = network.links.pop(self.first_ring + arrival.port() as u32, arrival.port());
                self.arrive(arrival, entry, network);
            } else {
                self.wake(next, network);
            }
        };
        network.agenda.set(self.node, next.time());
    }

    #[inline]
    fn arrive(&mut self, key: Key, mut entry: Entry, network: &mut Network) {
        let (now, input) = (key.time(), key.port());
        self.trace.word(key.word());
        self.trace.word(entry.trace_word());
        if entry.is_pause_frame() {
            return self.heed_pause_frame(now, input, &entry);
        }
        let output = self.route.port(entry.dst(), entry.flow_hash);
        if self.queues.is_empty(output) && self.ports[output].is_open(now) {
            return self.ports[output].send(now, entry, network);
        }
        entry.in_port = input as u16;
        self.enqueue(now, output, entry, network);
    }

    fn enqueue(&mut self, now: Time, output: usize, mut entry: Entry, network: &mut Network) {
        let (input, len) = (usize::from(entry.in_port), u64::from(entry.frame_len));
        let waiting = self.queues.output(output).bytes;
        if self.admission.take(input, len, waiting) {
            if let Some(marker) = &mut self.marker
                && !entry.has(Flags::ACK)
                && marker.marks(waiting + len)
            {
                entry.set(Flags::MARKED);
            }
            self.queues.push(now, output, entry);
            let port = &self.ports[output];
            if self.wakes[output] == Key::NEVER && !port.is_paused() {
                self.set_wake(output, port.free_at);
            }
        } else {
            self.stats.dropped += 1;
            self.trace.word(DROPPED);
            network.packets.remove(entry.packet);
        }
        if self.admission.after_taking(input) == Signal::Stop {
            self.ports[input].stats.pauses_sent += 1;
            self.ports[input].send_pause_frame(now, Entry::pause_frame(Flags::PAUSE), network);
        }
    }

    /// Output `key.port()` may be free.
    fn wake(&mut self, key: Key, network: &mut Network) {
        let (now, output) = (key.time(), key.port());
        self.wakes[output] = Key::NEVER;
        let port = &self.ports[output];
        if !port.is_paused() && !self.queues.is_empty(output) {
            if port.free_at <= now {
                self.serve(now, output, network);
            }
            if !self.queues.is_empty(output) {
                self.wakes[output] = Key::new(self.ports[output].free_at, output);
            }
        }
        self.next_wake = least(&self.wakes);
    }

    /// Sends what `output` sends next.
    #[inline]
    fn serve(&mut self, now: Time, output: usize, network: &mut Network) {
        let entry = self.queues.pop(now, output);
        let input = usize::from(entry.in_port);
        self.ports[output].send(now, entry, network);
        if self.admission.give_back(input, u64::from(entry.frame_len)) == Signal::Go {
            self.ports[input].send_pause_frame(now, Entry::pause_frame(Flags::RESUME), network);
        }
    }

    /// From now on nothing goes wrong on its links.
    pub(crate) fn end_faults(&mut self) {
        self.ports.iter_mut().for_each(Port::end_faults);
    }

    /// Its ports, for their counters.
    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Packets marked.
    pub(crate) fn marked(&self) -> u64 {
        self.marker.as_ref().map_or(0, |marker| marker.marked)
    }

    /// The most bytes that have waited for one output.
    pub(crate) fn most_bytes_waiting(&self) -> u64 {
        (0..self.ports.len()).map(|output| self.queues.output(output).most_bytes).max().unwrap_or(0)
    }

    /// Bytes waiting, integrated over time and summed over outputs.
    pub(crate) fn byte_time(&self) -> u128 {
        (0..self.ports.len()).map(|output| self.queues.output(output).byte_time).sum()
    }

    /// Bytes waiting now.
    pub(crate) fn bytes_waiting(&self) -> u64 {
        self.queues.bytes()
    }

    /// How far what inputs account for and what waits differ.
    pub(crate) fn unaccounted_bytes(&self) -> u64 {
        let held: u64 = (0..self.ports.len()).map(|input| self.admission.held(input)).sum();
        held.abs_diff(self.queues.bytes())
    }

    /// Ports that their neighbours keep from sending.
    pub(crate) fn paused_ports(&self) -> usize {
        self.ports.iter().filter(|port| port.is_paused()).count()
    }

    /// Neighbours that this switch keeps from sending.
    pub(crate) fn stopped_neighbours(&self) -> usize {
        (0..self.ports.len()).filter(|input| self.admission.is_stopped(*input)).count()
    }

    fn set_wake(&mut self, output: usize, at: Time) {
        let key = Key::new(at, output);
        self.wakes[output] = key;
        self.next_wake = self.next_wake.min(key);
    }

    #[cold]
    fn heed_pause_frame(&mut self, now: Time, port: usize, frame: &Entry) {
        if frame.has(Flags::PAUSE) {
            // A wake-up that is set finds the port paused and is not set again.
            return self.ports[port].pause(now);
        }
        self.ports[port].resume(now);
        if !self.queues.is_empty(port) && self.wakes[port] == Key::NEVER {
            let at = self.ports[port].free_at.max(now);
            self.set_wake(port, at);
        }
    }
}

/// The least of `keys`.
#[inline]
fn least(keys: &[Key]) -> Key {
    let mut lanes = [Key::NEVER; 4];
    let (chunks, rest) = keys.as_chunks::<4>();
    for chunk in chunks {
        for (lane, key) in lanes.iter_mut().zip(chunk) {
            *lane = (*lane).min(*key);
        }
    }
    for (lane, key) in lanes.iter_mut().zip(rest) {
        *lane = (*lane).min(*key);
    }
    lanes[0].min(lanes[1]).min(lanes[2].min(lanes[3]))
}

/// Says in the trace that the packet before was dropped.
const DROPPED: u64 = u64::MAX;
