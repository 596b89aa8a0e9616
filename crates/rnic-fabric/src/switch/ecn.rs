//! Marking by queue depth (RED with instantaneous depth).
//!
//! Source: DCQCN (SIGCOMM'15) section 3.1: a packet is never marked below `kmin`, always above `kmax`, and in between
//! with a probability that rises from zero to `pmax`. The depth is that of the output's queue including the packet:
//! the paper marks at the egress queue. Acknowledgements are not marked: they are not ECN-capable here.
//!
//! A switch whose packets wait at their inputs (IRN section 4.1) has no such queue. The depth can be the sum over all
//! packets that wait for the output; or, where an input only has information about its own buffer, its virtual queue
//! for that output, or the complete buffer. No source describes what IRN's simulator does, so all three are
//! implemented ([`MarkDepth`]).

use rnic_base::RandomStream;

/// The marking rule of a switch, with a separate random stream.
#[derive(Debug)]
pub(super) struct Marker {
    kmin: u64,
    kmax: u64,
    /// `pmax` times 2^32.
    pmax: u64,
    stream: RandomStream,
    depth: MarkDepth,
    /// Seed from which each packet's marking decision is drawn; with `None`, decisions are drawn from `stream` in the
    /// order of arrival.
    packet_seed: Option<u64>,
    /// Bytes in each virtual queue (`output * ports + input`), when virtual queues are measured.
    virtual_queues: Box<[u64]>,
    ports: usize,
    pub(super) marked: u64,
}

/// The depth that is compared with the thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarkDepth {
    /// All bytes that wait for the output.
    #[default]
    Output,
    /// Bytes that wait for the same output and arrived at the same input port as the packet.
    VirtualQueue,
    /// All bytes in the buffer of the port at which the packet arrived.
    Input,
}

/// The random numbers that decide about marks between the thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarkDraw {
    /// Random numbers are drawn one after the other, in the order in which packets arrive.
    #[default]
    Sequence,
    /// A function of the packet and the seed, so that simulations that are compared mark the same packets at the same
    /// depth, whenever they come.
    Packet,
}

/// Thresholds of marking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcnPlan {
    /// Depth in bytes up to which no packet is marked.
    pub kmin: u64,
    /// Depth in bytes above which every packet is marked.
    pub kmax: u64,
    /// Marking probability just below `kmax`.
    pub pmax: rnic_base::Probability,
    /// The depth that is measured.
    pub depth: MarkDepth,
    /// Random numbers that decide about marks between the thresholds.
    pub draw: MarkDraw,
}

impl Marker {
    /// Creates the rule of a switch with `ports` ports.
    pub(super) fn new(plan: &EcnPlan, ports: usize, mut stream: RandomStream) -> Self {
        let pmax = (plan.pmax.as_f64() * (1u64 << 32) as f64) as u64;
        let EcnPlan { kmin, kmax, depth, draw, .. } = *plan;
        let packet_seed = (draw == MarkDraw::Packet).then(|| stream.bits());
        let queues = if depth == MarkDepth::VirtualQueue { ports * ports } else { 0 };
        let virtual_queues = vec![0; queues].into_boxed_slice();
        Self { kmin, kmax, pmax, stream, depth, packet_seed, virtual_queues, ports, marked: 0 }
    }

    /// Records that `len` bytes from `input` start to wait for `output`; returns the measured depth including them.
    /// `waiting` bytes wait for the output already; `held` bytes are in the input's buffer, including the new ones.
    #[inline]
    pub(super) fn on_enqueue(&mut self, output: usize, input: usize, len: u64, waiting: u64, held: u64) -> u64 {
        match self.depth {
            MarkDepth::Output => waiting + len,
            MarkDepth::Input => held,
            MarkDepth::VirtualQueue => {
                let depth = &mut self.virtual_queues[output * self.ports + input];
                *depth += len;
                *depth
            }
        }
    }

    /// Records that `len` bytes from `input` no longer wait for `output`.
    #[inline]
    pub(super) fn on_dequeue(&mut self, output: usize, input: usize, len: u64) {
        if self.depth == MarkDepth::VirtualQueue {
            self.virtual_queues[output * self.ports + input] -= len;
        }
    }

    /// Returns whether the packet with this identity is marked, which makes the queue `depth` bytes deep.
    #[inline]
    pub(super) fn marks(&mut self, depth: u64, identity: u64) -> bool {
        if depth <= self.kmin {
            return false;
        }
        let marks = depth > self.kmax || {
            // Marked for 2^32 * (depth - kmin) / (kmax - kmin) * pmax of the 2^32 random values.
            let share = u128::from(self.pmax) * u128::from(depth - self.kmin) / u128::from(self.kmax - self.kmin);
            u128::from(self.draw(identity) >> 32) < share
        };
        self.marked += u64::from(marks);
        marks
    }

    fn draw(&mut self, identity: u64) -> u64 {
        let Some(seed) = self.packet_seed else { return self.stream.bits() };
        // SplitMix64 of both.
        let mixed = (seed ^ identity).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{Probability, RandomStreams};

    fn marker(depth: MarkDepth) -> Marker {
        marker_with(depth, MarkDraw::Sequence, 1)
    }

    fn marker_with(depth: MarkDepth, draw: MarkDraw, seed: u64) -> Marker {
        let plan = EcnPlan { kmin: 10_000, kmax: 110_000, pmax: Probability::ratio(1, 5), depth, draw };
        Marker::new(&plan, 3, RandomStreams::new(seed).stream("ecn"))
    }

    /// A packet of 700 bytes from port 1 for output 2, where 600 bytes wait; with it the input's buffer holds 1000.
    #[test]
    fn the_measured_depth_is_that_of_output_virtual_queue_or_input() {
        let depth = |depth| marker(depth).on_enqueue(2, 1, 700, 600, 1_000);
        assert_eq!((depth(MarkDepth::Output), depth(MarkDepth::Input)), (1_300, 1_000));
        let mut marker = marker(MarkDepth::VirtualQueue);
        assert_eq!(marker.on_enqueue(2, 1, 700, 600, 1_000), 700);
        assert_eq!(marker.on_enqueue(2, 0, 300, 1_300, 300), 300, "another input");
        assert_eq!(marker.on_enqueue(0, 1, 400, 0, 1_400), 400, "another output");
        assert_eq!(marker.on_enqueue(2, 1, 50, 1_600, 1_450), 750);
        marker.on_dequeue(2, 1, 700);
        assert_eq!(marker.on_enqueue(2, 1, 50, 950, 800), 100);
    }

    #[test]
    fn the_probability_rises_from_kmin_to_kmax() {
        for draw in [MarkDraw::Sequence, MarkDraw::Packet] {
            let mut marker = marker_with(MarkDepth::Output, draw, 1);
            let mut rate = |depth: u64| (0..20_000).filter(|packet| marker.marks(depth, *packet)).count();
            assert_eq!((rate(10_000), rate(110_001)), (0, 20_000));
            assert!((1_850..2_150).contains(&rate(60_000)), "not a tenth half way to kmax");
            assert!((3_800..4_200).contains(&rate(110_000)), "not a fifth at kmax");
            assert!(rate(11_000) < 100);
        }
    }

    #[test]
    fn a_draw_by_packet_depends_on_packet_and_seed_and_not_on_the_sequence() {
        let marked = |draw, seed, packets: &mut dyn Iterator<Item = u64>| {
            let mut marker = marker_with(MarkDepth::Output, draw, seed);
            let mut marked: Vec<u64> = packets.filter(|packet| marker.marks(60_000, *packet)).collect();
            marked.sort_unstable();
            marked
        };
        let by_packet = marked(MarkDraw::Packet, 1, &mut (0..1_000));
        assert_eq!(by_packet, marked(MarkDraw::Packet, 1, &mut (0..1_000).rev()));
        assert_ne!(by_packet, marked(MarkDraw::Packet, 2, &mut (0..1_000)));
        let in_sequence = marked(MarkDraw::Sequence, 1, &mut (0..1_000));
        assert_ne!(in_sequence, marked(MarkDraw::Sequence, 1, &mut (0..1_000).rev()));
    }
}
