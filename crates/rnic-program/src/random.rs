//! Random programs of a chosen depth, which calibrate the estimate of [`Graph::levels`] by synthesis.
//!
//! Source: Tonic, section 6.1.2: 70 random functions for incoming packets, with different numbers of arithmetic,
//! logical and bitmap operations, at most 125 bytes of state and at most 65 levels. Here 64 is the maximum, as a graph
//! may not have more. Multiplications and divisions are left out: levels are comparable only where all operations are
//! LUTs.

use rnic_base::{RandomStream, RandomStreams};

use crate::graph::{Graph, Index, Kind, LEVELS_MAX, Node, OFFSET_BITS, Op, Port};

/// Minimum number of levels of a random program.
pub const LEVELS_MIN: u32 = 3;

/// Maximum state of a random program in bits: 125 bytes.
pub const STATE_BITS_MAX: u32 = 1000;

/// Largest number of fields of state.
const FIELDS_MAX: u32 = 40;

/// Widths of state fields and of intermediate values.
const WIDTHS: [u8; 7] = [1, 4, 8, 12, 16, 24, 32];

/// Largest number of operations of a random program.
const OPERATIONS_MAX: usize = 320;

/// Returns a program that depends on `seed` alone: between one and 125 bytes of state, and exactly `levels` levels.
///
/// # Panics
/// When `levels` is less than [`LEVELS_MIN`] or more than [`LEVELS_MAX`].
pub fn program(seed: u64, levels: u32) -> Graph {
    assert!((LEVELS_MIN..=LEVELS_MAX).contains(&levels), "{levels} levels are not possible");
    let mut builder = Builder::new(RandomStreams::new(seed).stream("random program"));
    builder.inputs();
    builder.operations(2 * levels);
    builder.finish(2 * levels)
}

/// Returns the number of bits of state of a random program.
pub fn state_bits(graph: &Graph) -> u32 {
    let bits = |port: &Port| match port.kind {
        Kind::Bits(bits) if port.name.starts_with("state_") => u32::from(bits),
        _ => 0,
    };
    graph.inputs().iter().map(bits).sum()
}

/// A graph in construction, with the depth of each node in half levels.
struct Builder {
    rng: RandomStream,
    inputs: Vec<Port>,
    nodes: Vec<Node>,
    depths: Vec<u32>,
    /// Inputs that are state.
    state: Vec<Index>,
    maps: Vec<Index>,
}

impl Builder {
    const fn new(rng: RandomStream) -> Self {
        Self { rng, inputs: Vec::new(), nodes: Vec::new(), depths: Vec::new(), state: Vec::new(), maps: Vec::new() }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn width(&self, node: Index) -> u8 {
        self.nodes[usize::from(node)].width
    }

    fn depth(&self, node: Index) -> u32 {
        self.depths[usize::from(node)]
    }

    /// Appends a node.
    fn push(&mut self, op: Op, arguments: &[Index], width: u8) -> Index {
        let mut args = [0; 3];
        args[..arguments.len()].copy_from_slice(arguments);
        let before = arguments.iter().map(|&arg| self.depth(arg)).max().unwrap_or(0);
        self.depths.push(before + op.half_levels(self.operand_bits(arguments)));
        self.nodes.push(Node { op, args, width });
        (self.nodes.len() - 1) as Index
    }

    fn operand_bits(&self, arguments: &[Index]) -> u32 {
        arguments.iter().map(|&arg| u32::from(self.width(arg))).max().unwrap_or(0)
    }

    fn input(&mut self, name: String, kind: Kind) -> Index {
        let width = if let Kind::Bits(bits) = kind { bits } else { 0 };
        self.inputs.push(Port { name, kind });
        self.push(Op::Input((self.inputs.len() - 1) as u16), &[], width)
    }

    /// Returns one of [`WIDTHS`] from number `first` on.
    fn any_width(&mut self, first: usize) -> u8 {
        WIDTHS[first + self.below(WIDTHS.len() - first)]
    }

    /// Declares the packet, two maps, and state of 8 to 1000 bits.
    fn inputs(&mut self) {
        for (name, bits) in
            [("ack", 1), ("nack", 1), ("sacked", 1), ("cum", 24), ("sack", 24), ("now", 24), ("newly", 9)]
        {
            self.input(format!("in_{name}"), Kind::Bits(bits));
        }
        self.maps = ["acked", "marked"].map(|name| self.input(format!("in_{name}"), Kind::Map)).to_vec();
        let mut left = 8 * self.rng.between(1, u64::from(STATE_BITS_MAX / 8)) as u32;
        while left > 0 {
            // Wide enough that the fields which remain can hold the rest.
            let least = left.div_ceil(FIELDS_MAX - self.state.len() as u32);
            let bits = u32::from(self.any_width(0)).max(least).min(left);
            left -= bits;
            let field = self.input(format!("state_f{}", self.state.len()), Kind::Bits(bits as u8));
            self.state.push(field);
        }
    }

    /// Returns a value of `width` bits whose depth is at most `depth`: an input, a result, or sometimes a constant.
    fn value(&mut self, width: u8, depth: u32) -> Index {
        if self.below(6) == 0 && width > 1 {
            let value = self.rng.bits() >> (64 - u32::from(width)) | 1;
            return self.push(Op::Constant(value), &[], width);
        }
        // One bit of a number that is not a flag would be the same as its lowest bit in every use: comparisons are not.
        let fits = |at: usize| {
            let own = self.nodes[at].width;
            self.depths[at] <= depth
                && !matches!(self.nodes[at].op, Op::Constant(_))
                && (own == width || width > 1 && own > 1)
        };
        let candidates: Vec<Index> = (0..self.nodes.len()).filter(|&at| fits(at)).map(|at| at as Index).collect();
        let found = candidates[self.below(candidates.len())];
        if self.width(found) == width { found } else { self.push(Op::Resize, &[found], width) }
    }

    /// Returns a value as [`Builder::value`] does, but not that of `x` or a part of it: `x - x` would cut the chain.
    fn other(&mut self, width: u8, x: Index) -> Index {
        loop {
            let kept = self.nodes.len();
            let found = self.value(width, self.depth(x));
            if self.origin(found) != self.origin(x) {
                return found;
            }
            self.nodes.truncate(kept);
            self.depths.truncate(kept);
        }
    }

    /// Returns the node of which `node` is a resized copy, or itself.
    fn origin(&self, mut node: Index) -> Index {
        while self.nodes[usize::from(node)].op == Op::Resize {
            node = self.nodes[usize::from(node)].args[0];
        }
        node
    }

    /// Appends an operation on `x`, and returns its result.
    fn step(&mut self, x: Index) -> Index {
        let width = self.width(x);
        let choice = self.below(20);
        if width == 1 {
            return match choice {
                0..=2 => {
                    let other = self.other(1, x);
                    self.push([Op::And, Op::Or, Op::Xor][choice], &[x, other], 1)
                }
                _ => {
                    let width = self.any_width(1);
                    let yes = self.other(width, x);
                    let no = self.other(width, yes);
                    self.push(Op::Mux, &[x, yes, no], width)
                }
            };
        }
        match choice {
            0..=6 => {
                let other = self.other(width, x);
                self.push([Op::Add, Op::Sub][choice % 2], &[x, other], width)
            }
            7..=11 => {
                let other = self.other(width, x);
                self.push([Op::Lt, Op::Lt, Op::Eq][choice % 3], &[x, other], 1)
            }
            12..=15 => {
                let (flag, other) = (self.value(1, self.depth(x)), self.other(width, x));
                self.push(Op::Mux, &[flag, x, other], width)
            }
            16 => {
                let shifted = self.push(Op::Shr(1 + (width / 4).min(3)), &[x], width);
                let other = self.other(width, x);
                self.push(Op::Sub, &[other, shifted], width)
            }
            17 => {
                let other = self.other(width, x);
                self.push(Op::Xor, &[x, other], width)
            }
            _ => self.map_operation(x, choice == 18),
        }
    }

    /// Appends a lookup in, or a search of, a map at the offset `x`.
    fn map_operation(&mut self, x: Index, is_search: bool) -> Index {
        let offset_bits = OFFSET_BITS as u8;
        let offset = if self.width(x) == offset_bits { x } else { self.push(Op::Resize, &[x], offset_bits) };
        let which = self.below(self.maps.len());
        let map = self.maps[which];
        if !is_search {
            return self.push(Op::Test, &[map, offset], 1);
        }
        let search = [Op::FirstZero, Op::FirstOne][self.below(2)];
        self.push(search, &[map, offset], offset_bits)
    }

    /// Appends operations until one path has `half_levels`: a chain, each of whose operations also uses any values
    /// before it, and others beside it.
    fn operations(&mut self, half_levels: u32) {
        // The last level is that of the selection of the next state.
        let end = half_levels - 2;
        let mut x = self.value(24, 0);
        while self.depth(x) < end {
            let kept = (self.nodes.len(), self.depths.len());
            let next = self.step(x);
            // A level is left for a selection; half a level by itself can only be filled by a flag.
            let left = i64::from(end) - i64::from(self.depth(next));
            if left == 0 || left >= 2 || (left == 1 && self.width(next) == 1) {
                x = next;
            } else {
                self.nodes.truncate(kept.0);
                self.depths.truncate(kept.1);
            }
            if self.nodes.len() < OPERATIONS_MAX && self.below(2) == 0 {
                let (width, depth) = (self.any_width(0), self.depth(x));
                let beside = self.value(width, depth.saturating_sub(12));
                if self.depth(self.nodes.len() as Index - 1) + 24 <= end {
                    self.step(beside);
                }
            }
        }
        self.state.push(x);
    }

    /// Returns the graph: the next state is the last value, other results, or the state itself.
    fn finish(mut self, half_levels: u32) -> Graph {
        let end = half_levels - 2;
        let last = self.state.pop().unwrap_or(0);
        let state = self.state.clone();
        let mut outputs = Vec::new();
        let bits = Kind::Bits;
        for (at, &field) in state.iter().enumerate() {
            let width = self.width(field);
            let flag = self.value(1, end);
            let value = self.value(width, end);
            let next = self.push(Op::Mux, &[flag, value, field], width);
            outputs.push((Port { name: format!("next_f{at}"), kind: bits(width) }, next));
        }
        let width = self.width(last);
        let (flag, other) = (self.value(1, end), self.value(width, end));
        let selected = self.push(Op::Mux, &[flag, last, other], width);
        outputs.push((Port { name: "act_last".to_owned(), kind: bits(width) }, selected));
        Graph::new(self.inputs, outputs, self.nodes).expect("a random program is a graph")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t19_random_programs_have_the_depth_asked_for_and_at_most_125_bytes() {
        for (seed, levels) in (LEVELS_MIN..=LEVELS_MAX).enumerate() {
            let graph = program(seed as u64, levels);
            assert_eq!(graph.levels().into_iter().max(), Some(levels), "seed {seed}");
            assert!((8..=STATE_BITS_MAX).contains(&state_bits(&graph)), "seed {seed}");
            assert_eq!(graph, program(seed as u64, levels), "seed {seed}");
        }
    }
}
