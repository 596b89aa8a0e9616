//! A switch: store and forward, buffers, pauses, marks, trimming.
//!
//! A packet costs one event when its output is idle: the event of its arrival also routes it, sends it and computes
//! its arrival at the next node. An output has a separate event only when packets wait, at the time at which its
//! transmitter is free again.
//!
//! Within a node, events are processed in the order of time; at the same instant arrivals are processed before
//! transmissions, and lower ports before higher ones. A pause frame is carried on its link in order with the packets,
//! so it needs no separate rule.

mod admission;
mod classes;
mod csig;
mod ecn;
mod prefetch;
mod queues;
mod trimming;

use rnic_base::{RandomStream, Time, TraceHash, prefetch_all};
use rnic_engine::ClassShares;

use crate::calendar::NEVER;
use crate::entry::{Entry, Flags};
use crate::link::{GROUP, Key, Least, least};
use crate::network::Network;
use crate::port::Port;
use crate::route::Route;
use crate::topology::Node;
use crate::trace::log::{PacketSummary, PortRecord};

pub use admission::Alpha;
pub use ecn::{EcnPlan, MarkDepth, MarkDraw};
pub use trimming::TrimPlan;

use admission::{Admission, Signal};
pub(crate) use classes::ClassCounts;
use classes::Classes;
use csig::Stamp;
pub(crate) use csig::TAG_LEN;
use ecn::Marker;
pub(crate) use prefetch::PortHints;
use queues::Queues;
use trimming::{Trimming, trim};

/// The buffers of every switch of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferPlan {
    /// Each input port has a separate buffer, and a queue for every output.
    InputQueued {
        /// Buffer of each port in bytes.
        per_port: u64,
    },
    /// All ports share one buffer, with one queue per output.
    Shared {
        /// Total buffer in bytes.
        total: u64,
        /// Limit of one queue, as a multiple of the free buffer.
        alpha: Alpha,
    },
}

/// Thresholds at which switches pause their neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcPlan {
    /// Input-queued: number of bytes in a port's buffer above which the neighbour is paused.
    pub threshold: u64,
    /// Number of bytes below the threshold at which the neighbour is resumed: two full packets.
    pub hysteresis: u64,
    /// Shared buffer: bytes reserved for each port for packets that arrive after the pause.
    pub headroom: u64,
}

/// Parameters shared by all switches of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchPlan {
    /// Buffers of the switch.
    pub buffer: BufferPlan,
    /// Pause parameters; `None` without PFC.
    pub pfc: Option<PfcPlan>,
    /// Marking parameters; `None` without ECN.
    pub ecn: Option<EcnPlan>,
    /// True when switches write into packets how long they were queued (CSIG).
    pub csig: bool,
    /// Parameters of trimming; `None` when switches drop packets for which there is no buffer space.
    pub trim: Option<TrimPlan>,
    /// Policy for choosing among up links.
    pub multipath: Multipath,
}

/// Policy for choosing among links of equal cost: the choice is made for each flow by its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Multipath {
    /// All links have equal shares.
    #[default]
    Ecmp,
    /// Each link has a share in proportion to its rate.
    Wcmp,
}

impl SwitchPlan {
    /// Returns whether each input port has a separate buffer.
    fn is_input_queued(&self) -> bool {
        matches!(self.buffer, BufferPlan::InputQueued { .. })
    }

    /// Returns the number of bytes that an input can store after it has paused its neighbour; `None` without PFC.
    pub(crate) fn pfc_slack(&self) -> Option<u64> {
        let pfc = self.pfc?;
        Some(match self.buffer {
            BufferPlan::InputQueued { per_port } => per_port.saturating_sub(pfc.threshold),
            BufferPlan::Shared { .. } => pfc.headroom,
        })
    }
}

/// Counters of a switch, in addition to those of its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SwitchStats {
    /// Packets dropped because there was no buffer space.
    pub(crate) dropped: u64,
    /// Of these, acknowledgements and notifications.
    pub(crate) dropped_acks: u64,
    pub(crate) events: u64,
}

/// A switch. The fields that every packet needs come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Switch {
    pub(crate) trace: TraceHash,
    next_wake: Key,
    route: Route,
    /// Ring of packets for port 0; the rings for the other ports follow in order.
    first_ring: u32,
    node: Node,
    ports: Box<[Port]>,
    /// Time at which each output with waiting packets is ready to send the next one; in groups, like the first
    /// arrivals of rings.
    wakes: Box<[[Key; GROUP]]>,
    pub(crate) stats: SwitchStats,
    queues: Queues,
    admission: Admission,
    signals: Option<CongestionSignals>,
    trimming: Option<Box<Trimming>>,
    /// Queues of classes, in place of `queues`, when the plan has classes.
    classes: Option<Box<Classes>>,
}

/// Congestion signals that a switch writes into packets.
#[derive(Debug, Default)]
struct CongestionSignals {
    marker: Option<Marker>,
    stamp: Option<Stamp>,
}

impl Switch {
    pub(crate) fn new(node: Node, first_ring: u32, route: Route, ports: Vec<Port>, plan: &SwitchPlan) -> Self {
        let count = ports.len();
        Self {
            trace: TraceHash::new(),
            next_wake: Key::NEVER,
            route,
            first_ring,
            node,
            ports: ports.into_boxed_slice(),
            wakes: vec![[Key::NEVER; GROUP]; count.div_ceil(GROUP)].into_boxed_slice(),
            stats: SwitchStats::default(),
            queues: Queues::new(count, plan.is_input_queued()),
            admission: Admission::of(plan, count),
            signals: None,
            trimming: plan.trim.map(|trim| Box::new(Trimming::new(trim, count))),
            classes: None,
        }
    }

    /// Divides the switch among classes with these shares and parts; marks are drawn from `streams`.
    pub(crate) fn set_classes(&mut self, shares: ClassShares, parts: &[SwitchPlan], streams: Vec<RandomStream>) {
        let mut classes = Classes::new(self.ports.len(), shares, parts);
        for ((part, stream), class) in parts.iter().zip(streams).zip(0..) {
            if let Some(ecn) = &part.ecn {
                classes.set_marking(class, ecn, stream);
            }
        }
        self.classes = Some(Box::new(classes));
    }

    /// Enables ECN marking.
    pub(crate) fn set_marking(&mut self, plan: &EcnPlan, stream: RandomStream) {
        let marker = Marker::new(plan, self.ports.len(), stream);
        self.signals.get_or_insert_default().marker = Some(marker);
    }

    /// Enables writing of queueing delays into waiting packets, with `locator` as the number of the switch.
    pub(crate) fn set_stamping(&mut self, locator: u32) {
        self.signals.get_or_insert_default().stamp = Some(Stamp::new(locator));
    }

    /// Processes all events before `horizon`.
    pub(crate) fn run(&mut self, horizon: Time, network: &mut Network) {
        if self.classes.is_some() {
            return self.run_classes(horizon, network);
        }
        self.turn::<false>(horizon, network);
    }

    #[cold]
    #[inline(never)]
    fn run_classes(&mut self, horizon: Time, network: &mut Network) {
        self.turn::<true>(horizon, network);
    }

    /// Processes all events before `horizon`, in a switch with classes or without: compiled for each, so that a switch
    /// without classes has no code for them.
    #[inline(always)]
    fn turn<const CLASSES: bool>(&mut self, horizon: Time, network: &mut Network) {
        let end = Key::new(horizon, 0);
        let mut events = 0;
        let groups = self.wakes.len();
        let mut arrivals = Least::new(network.links.heads(self.first_ring, groups));
        let mut arrival = arrivals.get();
        loop {
            if arrival.time() <= self.next_wake.time() {
                if arrival >= end {
                    break;
                }
                let entry = network.links.pop(self.first_ring + arrival.port() as u32);
                // The next arrival is already known, because transmissions do not change what arrives here before the
                // horizon.
                arrivals.update(network.links.heads(self.first_ring, groups), arrival.port());
                let next = arrivals.get();
                if next < end {
                    network.links.prefetch(self.first_ring + next.port() as u32);
                }
                self.arrive::<CLASSES>(arrival, entry, network);
                arrival = next;
            } else {
                if self.next_wake >= end {
                    break;
                }
                if CLASSES {
                    self.wake_of_classes(self.next_wake, network);
                } else {
                    self.wake(self.next_wake, network);
                }
            }
            events += 1;
        }
        self.stats.events += events;
        network.calendar.set(self.node, arrival.min(self.next_wake).time());
    }

    #[inline]
    fn arrive<const CLASSES: bool>(&mut self, key: Key, entry: Entry, network: &mut Network) {
        let now = key.time();
        self.trace.add_word(key.word() ^ entry.trace_word());
        if entry.is_pause_frame() {
            return match CLASSES {
                true => self.on_class_pause(now, key.port(), &entry),
                false => self.on_pause_frame(now, key.port(), &entry),
            };
        }
        let output = self.route.port(entry.dst(), entry.flow_hash);
        let port = &mut self.ports[output];
        if port.open_at <= now {
            port.send(now, entry, network);
            port.open_at = port.free_at;
            return;
        }
        if port.is_logged() {
            return self.enqueue_logged(key, output, entry, network);
        }
        if CLASSES {
            return self.enqueue_of_class(key, output, entry, network);
        }
        self.enqueue(key, output, entry, network);
    }

    /// Does the same as [`Self::enqueue`], and logs what becomes of the packet.
    #[cold]
    fn enqueue_logged(&mut self, key: Key, output: usize, entry: Entry, network: &mut Network) {
        let (at, packet) = (key.time(), PacketSummary::of(&entry, network));
        let count = |switch: &Self| [switch.stats.dropped, switch.trimmed(), switch.marked()];
        let before = count(self);
        match self.classes {
            Some(_) => self.enqueue_of_class(key, output, entry, network),
            None => self.enqueue(key, output, entry, network),
        }
        let after = count(self);
        let [dropped, trimmed, marked] = core::array::from_fn(|index| after[index] > before[index]);
        let port = &mut self.ports[output];
        if trimmed {
            port.log(PortRecord::Trimmed { at, packet });
        }
        if marked {
            port.log(PortRecord::Marked { at, packet });
        }
        if dropped {
            port.log(PortRecord::Dropped { at, packet });
        } else {
            self.log_depth(at, output);
        }
    }

    /// Logs the number of bytes that wait for `output`.
    #[cold]
    fn log_depth(&mut self, at: Time, output: usize) {
        let bytes = self.waiting_at(output);
        self.ports[output].log(PortRecord::Depth { at, bytes });
    }

    fn enqueue(&mut self, key: Key, output: usize, entry: Entry, network: &mut Network) {
        let (now, input) = (key.time(), key.port());
        let waits = match self.trimming {
            None => self.store(key, output, entry, network),
            Some(_) => self.store_or_trim(key, output, entry, network),
        };
        if waits {
            let port = &mut self.ports[output];
            port.open_at = NEVER;
            if !port.is_paused() && self.wakes[output / GROUP][output % GROUP] == Key::NEVER {
                let at = port.free_at;
                self.set_wake(output, at);
            }
        } else {
            self.drop_packet(&entry, network);
        }
        if self.admission.pause_signal(input) == Signal::Pause {
            self.ports[input].send_pause_frame(now, Flags::PAUSE, network);
        }
    }

    /// Counts a packet for which there is no buffer space, and removes it from the network.
    fn drop_packet(&mut self, entry: &Entry, network: &mut Network) {
        self.stats.dropped += 1;
        self.stats.dropped_acks += u64::from(entry.has(Flags::ACK));
        self.trace.add_word(DROPPED);
        network.remove(entry);
    }

    /// Stores a packet until `output` can send it; returns false when there is no buffer space.
    #[inline]
    fn store(&mut self, key: Key, output: usize, mut entry: Entry, network: &mut Network) -> bool {
        let (now, input, len) = (key.time(), key.port(), u64::from(entry.frame_len));
        let waiting = self.queues.output(output).bytes;
        if !self.admission.take(input, len, waiting) {
            return false;
        }
        if let Some(CongestionSignals { marker, stamp }) = &mut self.signals {
            if let Some(marker) = marker {
                let depth = marker.on_enqueue(output, input, len, waiting, self.admission.held(input));
                if !entry.has(Flags::ACK) && marker.marks(depth, entry.identity) {
                    entry.set(Flags::MARKED);
                }
            }
            if let Some(stamp) = stamp {
                stamp.write(now, &entry, self.queues.output(output), &self.ports[output], network);
            }
        }
        self.queues.push(now, output, input, entry);
        true
    }

    /// Does the same as [`Self::store`] in a switch that trims: packets without data, and the headers of data packets
    /// for which there is no space, wait in a queue of higher priority.
    #[cold]
    fn store_or_trim(&mut self, key: Key, output: usize, mut entry: Entry, network: &mut Network) -> bool {
        let Some(trimming) = &self.trimming else { return false };
        let is_data = !entry.has(Flags::ACK) && !entry.has(Flags::TRIMMED);
        if is_data {
            let has_space = trimming.has_space(self.queues.output(output).packets);
            if has_space && self.store(key, output, entry, network) {
                return true;
            }
            if !trim(&mut entry, &mut network.packets) {
                return false;
            }
        }
        let Some(trimming) = &mut self.trimming else { return false };
        let waits = trimming.push(key.time(), output, entry);
        if waits && is_data {
            trimming.trimmed += 1;
            self.trace.add_word(TRIMMED);
        }
        waits
    }

    /// Returns whether no packet waits for `output`.
    #[inline]
    fn is_idle(&self, output: usize) -> bool {
        self.queues.is_empty(output) && self.trimming.as_ref().is_none_or(|trimming| trimming.is_empty(output))
    }

    /// Handles the event of output `key.port()`, which may be free.
    fn wake(&mut self, key: Key, network: &mut Network) {
        let (now, output) = (key.time(), key.port());
        let mut next = Key::NEVER;
        let port = &self.ports[output];
        if !port.is_paused() && !self.is_idle(output) {
            if port.free_at <= now {
                self.serve(now, output, network);
                if self.ports[output].is_logged() {
                    self.log_depth(now, output);
                }
            }
            let free_at = self.ports[output].free_at;
            if self.is_idle(output) {
                self.ports[output].open_at = free_at;
            } else {
                next = Key::new(free_at, output);
            }
        }
        self.wakes[output / GROUP][output % GROUP] = next;
        self.next_wake = least(&self.wakes);
    }

    /// Sends the next packet of `output`.
    #[inline]
    fn serve(&mut self, now: Time, output: usize, network: &mut Network) {
        if let Some(trimming) = &mut self.trimming
            && let Some(entry) = trimming.pop(now, output, !self.queues.is_empty(output))
        {
            return self.ports[output].send(now, entry, network);
        }
        let entry = self.queues.pop(now, output);
        let (input, len) = (usize::from(entry.input), u64::from(entry.frame_len));
        self.ports[output].send(now, entry, network);
        if let Some(CongestionSignals { marker: Some(marker), .. }) = &mut self.signals {
            marker.on_dequeue(output, input, len);
        }
        if self.admission.release(input, len) == Signal::Resume {
            self.ports[input].send_pause_frame(now, Flags::RESUME, network);
        }
    }

    /// Does the same as [`Self::enqueue`] in a switch with classes.
    fn enqueue_of_class(&mut self, key: Key, output: usize, entry: Entry, network: &mut Network) {
        let (now, input, class) = (key.time(), key.port(), entry.class());
        let Some(classes) = &mut self.classes else { return };
        let waits = classes.store(now, input, output, entry);
        let signal = classes.pause_signal(input, class);
        if waits {
            let port = &mut self.ports[output];
            port.open_at = NEVER;
            let is_open = port.paused_classes() >> class & 1 == 0;
            if is_open && self.wakes[output / GROUP][output % GROUP] == Key::NEVER {
                let at = port.free_at.max(now);
                self.set_wake(output, at);
            }
        } else {
            self.drop_packet(&entry, network);
        }
        if signal == Signal::Pause {
            self.ports[input].send_class_pause(now, Flags::PAUSE, class, network);
        }
    }

    /// Handles the event of output `key.port()` of a switch with classes, which may be free.
    fn wake_of_classes(&mut self, key: Key, network: &mut Network) {
        let (now, output) = (key.time(), key.port());
        let open = !self.ports[output].paused_classes();
        let Some(classes) = &mut self.classes else { return };
        let next = if self.ports[output].free_at <= now { classes.pop(now, output, open) } else { None };
        if let Some((entry, signal)) = next {
            let (input, class) = (entry.input_port(), entry.class());
            self.ports[output].send(now, entry, network);
            if signal == Signal::Resume {
                self.ports[input].send_class_pause(now, Flags::RESUME, class, network);
            }
            if self.ports[output].is_logged() {
                self.log_depth(now, output);
            }
        }
        self.schedule_classes(now, output);
        self.next_wake = least(&self.wakes);
    }

    /// Decides when `output` of a switch with classes sends its next packet, and whether packets may pass directly.
    fn schedule_classes(&mut self, now: Time, output: usize) {
        let Some(classes) = &self.classes else { return };
        let port = &mut self.ports[output];
        let paused = port.paused_classes();
        let at = port.free_at.max(now);
        if !classes.has_packets(output, u8::MAX) && paused == 0 {
            port.open_at = port.free_at;
        }
        let key = if classes.has_packets(output, !paused) { Key::new(at, output) } else { Key::NEVER };
        self.wakes[output / GROUP][output % GROUP] = key;
    }

    #[cold]
    fn on_class_pause(&mut self, now: Time, port: usize, frame: &Entry) {
        // When a pending wake event finds that no class may send, it does not schedule another one.
        self.ports[port].set_class_paused(now, frame.class(), frame.has(Flags::PAUSE));
        self.schedule_classes(now, port);
        self.next_wake = least(&self.wakes);
    }

    /// Returns the results of `class`, in a switch with classes.
    pub(crate) fn class_counts(&self, class: usize) -> ClassCounts {
        self.classes.as_ref().map_or_else(ClassCounts::default, |classes| classes.counts(class))
    }

    /// Disables faults on the switch's links from now on.
    pub(crate) fn end_faults(&mut self) {
        self.ports.iter_mut().for_each(Port::end_faults);
    }

    /// Returns the number of bytes that wait for `output` now.
    pub(crate) fn waiting_at(&self, output: usize) -> u64 {
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.bytes_at(output));
        self.queues.output(output).bytes
            + self.trimming.as_ref().map_or(0, |trimming| trimming.bytes_at(output))
            + of_classes
    }

    /// Starts to log the events of all ports.
    pub(crate) fn start_log(&mut self) {
        self.ports.iter_mut().for_each(Port::start_log);
    }

    /// Returns the switch's ports, for their logs.
    pub(crate) fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// Prefetches what [`Self::waited`] and the counters of all ports need.
    pub(crate) fn prefetch_outputs(&self) {
        prefetch_all(&self.ports);
        self.queues.prefetch_outputs();
    }

    /// Returns the switch's ports, for their counters.
    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Returns the number of marked packets.
    pub(crate) fn marked(&self) -> u64 {
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.marked());
        self.signals.as_ref().and_then(|signals| signals.marker.as_ref()).map_or(of_classes, |marker| marker.marked)
    }

    /// Returns the largest number of bytes that waited for one output.
    pub(crate) fn most_bytes_waiting(&self) -> u64 {
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.most_bytes_waiting());
        let of_outputs = (0..self.ports.len()).map(|output| self.queues.output(output).bytes_max);
        of_outputs.max().unwrap_or(0).max(of_classes)
    }

    /// Returns the waiting bytes, integrated over time and summed over outputs.
    pub(crate) fn byte_time(&self) -> u128 {
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.byte_time());
        (0..self.ports.len()).map(|output| self.queues.output(output).byte_time).sum::<u128>() + of_classes
    }

    /// Returns the bytes that waited for `output`, integrated over time until `now`, in bytes times picoseconds.
    pub(crate) fn waited(&self, output: usize, now: Time) -> u128 {
        let headers = self.trimming.as_ref().map_or(0, |trimming| trimming.waited(output, now));
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.waited(output, now));
        self.queues.output(output).byte_time_at(now) + headers + of_classes
    }

    /// Returns the number of packets that were forwarded without their payload.
    pub(crate) fn trimmed(&self) -> u64 {
        self.trimming.as_ref().map_or(0, |trimming| trimming.trimmed)
    }

    /// Returns the number of bytes waiting now.
    pub(crate) fn bytes_waiting(&self) -> u64 {
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.bytes());
        self.queues.bytes() + self.trimming.as_ref().map_or(0, |trimming| trimming.bytes()) + of_classes
    }

    /// Returns the difference between the bytes that inputs account for and the bytes that wait.
    pub(crate) fn unaccounted_bytes(&self) -> u64 {
        let held: u64 = (0..self.ports.len()).map(|input| self.admission.held(input)).sum();
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.unaccounted_bytes());
        held.abs_diff(self.queues.bytes()) + of_classes
    }

    /// Counts bytes for `input` that do not exist, for a test of the checker.
    #[cfg(test)]
    pub(crate) fn add_unaccounted_bytes(&mut self, input: usize, bytes: u64) {
        self.admission.take(input, bytes, 0);
    }

    /// Returns the number of ports that their neighbours have paused.
    pub(crate) fn paused_ports(&self) -> usize {
        self.ports.iter().filter(|port| port.is_paused() || port.paused_classes() != 0).count()
    }

    /// Returns the number of neighbours that this switch has paused.
    pub(crate) fn paused_neighbours(&self) -> usize {
        let of_classes = self.classes.as_ref().map_or(0, |classes| classes.paused_neighbours());
        (0..self.ports.len()).filter(|input| self.admission.is_paused(*input)).count() + of_classes
    }

    #[inline]
    fn set_wake(&mut self, output: usize, at: Time) {
        let key = Key::new(at, output);
        self.wakes[output / GROUP][output % GROUP] = key;
        self.next_wake = self.next_wake.min(key);
    }

    #[cold]
    fn on_pause_frame(&mut self, now: Time, port: usize, frame: &Entry) {
        if frame.has(Flags::PAUSE) {
            // When a pending wake event finds the port paused, it does not schedule another one.
            return self.ports[port].pause(now);
        }
        self.ports[port].resume(now);
        let free_at = self.ports[port].free_at;
        if self.is_idle(port) {
            self.ports[port].open_at = free_at;
        } else if self.wakes[port / GROUP][port % GROUP] == Key::NEVER {
            self.set_wake(port, free_at.max(now));
        }
    }
}

/// Value recorded in the trace after a packet that was dropped.
const DROPPED: u64 = u64::MAX;

/// Value recorded in the trace after a packet whose payload was cut.
const TRIMMED: u64 = u64::MAX - 1;
