//! The classes of a switch: each has buffers, marks and pauses of its own, and at each output queues of its own.
//!
//! An output serves its classes by priority and weight ([`ClassShares`]), and only those that the neighbour has not
//! paused (802.1Qbb). Each class has an equal part of the buffers, so that none can take those of another: what a class
//! loses, and whom it pauses, does not depend on the others.

use rnic_base::{RandomStream, Time};
use rnic_engine::{ClassShares, ClassTurns};

use super::admission::{Admission, Signal};
use super::ecn::Marker;
use super::queues::Queues;
use super::{EcnPlan, SwitchPlan};
use crate::entry::{CLASS_SHIFT, Entry, Flags};
use crate::link::PORTS_MAX;

// Entries have the class above the number of the input.
const _: () = assert!(PORTS_MAX <= 1 << CLASS_SHIFT);

/// All classes of a switch.
#[derive(Debug)]
pub(super) struct Classes {
    shares: ClassShares,
    /// By output.
    outputs: Box<[Output]>,
    classes: Vec<Class>,
}

/// State of an output over all classes.
#[derive(Clone, Copy, Default, Debug)]
struct Output {
    turns: ClassTurns,
    /// Classes of which packets wait, a bit for each.
    waiting: u8,
    bytes: u64,
    bytes_max: u64,
}

/// The part of a switch that a class has.
#[derive(Debug)]
struct Class {
    queues: Queues,
    admission: Admission,
    marker: Option<Marker>,
    dropped: u64,
}

/// Results of a class in one switch.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ClassCounts {
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
    /// Largest number of bytes that waited for one output.
    pub(crate) queue_max_bytes: u64,
}

impl Classes {
    /// Creates the classes of a switch with `ports` ports, each with the part of the switch in `parts`.
    pub(super) fn new(ports: usize, shares: ClassShares, parts: &[SwitchPlan]) -> Self {
        let class = |part: &SwitchPlan| Class {
            queues: Queues::new(ports, part.is_input_queued()),
            admission: Admission::of(part, ports),
            marker: None,
            dropped: 0,
        };
        let outputs = vec![Output::default(); ports].into_boxed_slice();
        Self { shares, outputs, classes: parts.iter().map(class).collect() }
    }

    /// Enables ECN marking of a class.
    pub(super) fn set_marking(&mut self, class: usize, plan: &EcnPlan, stream: RandomStream) {
        self.classes[class].marker = Some(Marker::new(plan, self.outputs.len(), stream));
    }

    /// Stores a packet until `output` can send it; returns false when its class has no buffer space.
    pub(super) fn store(&mut self, now: Time, input: usize, output: usize, mut entry: Entry) -> bool {
        let (number, len) = (entry.class(), u64::from(entry.frame_len));
        let class = &mut self.classes[usize::from(number)];
        let waiting = class.queues.output(output).bytes;
        if !class.admission.take(input, len, waiting) {
            class.dropped += 1;
            return false;
        }
        if let Some(marker) = &mut class.marker {
            let depth = marker.on_enqueue(output, input, len, waiting, class.admission.held(input));
            if !entry.has(Flags::ACK) && marker.marks(depth, entry.identity) {
                entry.set(Flags::MARKED);
            }
        }
        class.queues.push_of_class(now, output, input, entry);
        let output = &mut self.outputs[output];
        output.waiting |= 1 << number;
        output.bytes += len;
        output.bytes_max = output.bytes_max.max(output.bytes);
        true
    }

    /// Returns whether `output` has a packet of a class that is in `open`, a bit for each.
    pub(super) fn has_packets(&self, output: usize, open: u8) -> bool {
        self.outputs[output].waiting & open != 0
    }

    /// Removes the packet that `output` sends next, of a class in `open`; returns it with the signal for the neighbour
    /// from which it came.
    pub(super) fn pop(&mut self, now: Time, output: usize, open: u8) -> Option<(Entry, Signal)> {
        let state = &mut self.outputs[output];
        let number = self.shares.select(&mut state.turns, state.waiting & open)?;
        let class = &mut self.classes[number];
        let entry = class.queues.pop(now, output);
        let (input, len) = (entry.input_port(), u64::from(entry.frame_len));
        state.turns.charge(number, entry.link_len() as u32);
        state.bytes -= len;
        if class.queues.is_empty(output) {
            state.waiting &= !(1 << number);
        }
        if let Some(marker) = &mut class.marker {
            marker.on_dequeue(output, input, len);
        }
        let signal = class.admission.release(input, len);
        Some((entry, signal))
    }

    /// Returns whether the neighbour at `input` must pause `class`, after bytes of it were stored or dropped.
    pub(super) fn pause_signal(&mut self, input: usize, class: u8) -> Signal {
        self.classes[usize::from(class)].admission.pause_signal(input)
    }

    /// Returns the bytes that wait for `output`.
    pub(super) fn bytes_at(&self, output: usize) -> u64 {
        self.outputs[output].bytes
    }

    /// Returns the largest number of bytes that waited for one output.
    pub(super) fn most_bytes_waiting(&self) -> u64 {
        self.outputs.iter().map(|output| output.bytes_max).max().unwrap_or(0)
    }

    /// Returns the bytes that waited, integrated over time and summed over outputs.
    pub(super) fn byte_time(&self) -> u128 {
        let of_class =
            |class: &Class| (0..self.outputs.len()).map(|output| class.queues.output(output).byte_time).sum::<u128>();
        self.classes.iter().map(of_class).sum()
    }

    /// Returns the bytes that waited for `output`, integrated over time until `now`.
    pub(super) fn waited(&self, output: usize, now: Time) -> u128 {
        self.classes.iter().map(|class| class.queues.output(output).byte_time_at(now)).sum()
    }

    /// Returns the number of bytes waiting now.
    pub(super) fn bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.queues.bytes()).sum()
    }

    /// Returns the bytes that inputs account for and that do not wait, or the reverse, over all classes.
    pub(super) fn unaccounted_bytes(&self) -> u64 {
        let of_class = |class: &Class| {
            let held: u64 = (0..self.outputs.len()).map(|input| class.admission.held(input)).sum();
            held.abs_diff(class.queues.bytes())
        };
        self.classes.iter().map(of_class).sum()
    }

    /// Returns the number of classes of neighbours that this switch has paused.
    pub(super) fn paused_neighbours(&self) -> usize {
        let of_class =
            |class: &Class| (0..self.outputs.len()).filter(|input| class.admission.is_paused(*input)).count();
        self.classes.iter().map(of_class).sum()
    }

    /// Returns the results of `class`.
    pub(super) fn counts(&self, class: usize) -> ClassCounts {
        let class = &self.classes[class];
        let most = |output| class.queues.output(output).bytes_max;
        ClassCounts {
            dropped: class.dropped,
            marked: class.marker.as_ref().map_or(0, |marker| marker.marked),
            queue_max_bytes: (0..self.outputs.len()).map(most).max().unwrap_or(0),
        }
    }

    /// Returns the number of marked packets.
    pub(super) fn marked(&self) -> u64 {
        (0..self.classes.len()).map(|class| self.counts(class).marked).sum()
    }
}

impl Queues {
    /// Appends `entry` to its queue, and keeps its class.
    fn push_of_class(&mut self, now: Time, output: usize, input: usize, entry: Entry) {
        let class = usize::from(entry.class()) << CLASS_SHIFT;
        self.push_tagged(now, output, input, entry, (input | class) as u16);
    }
}
