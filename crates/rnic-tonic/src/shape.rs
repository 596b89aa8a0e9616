//! Sizes of a template, and the numbers that all modules use.

use rnic_base::Serial;

use crate::program::Scheme;

/// Number of a flow.
pub type FlowId = u16;

/// A segment id, and a counter of segments: 24 bits, compared serially.
pub type SegmentId = Serial<24>;

/// A time in ticks of 16 cycles, modulo 2^24.
pub type Ticks = Serial<24>;

/// Cycles of a tick, as a power of two.
pub const TICK_SHIFT: u32 = 4;

/// Largest number of flows (Tonic, table 4).
pub const FLOWS_MAX: u16 = 2048;

/// Largest ring of addresses of a flow.
pub const RING_MAX: u8 = 32;

/// Bits of the length of a segment in bytes.
pub const LENGTH_BITS: u32 = 14;

/// Longest segment in bytes.
pub const LENGTH_MAX: u16 = (1 << LENGTH_BITS) - 1;

/// Returns the tick in which `cycle` lies.
#[inline]
pub const fn tick_of(cycle: u64) -> Ticks {
    Ticks::new((cycle >> TICK_SHIFT) as u32)
}

/// Returns the number of steps forward from `from` to `to`, modulo 2^24.
#[inline]
pub const fn forward(from: SegmentId, to: SegmentId) -> u32 {
    to.value().wrapping_sub(from.value()) & SegmentId::MAX.value()
}

/// Sizes of a template: parameters of the circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Number of flows, at most [`FLOWS_MAX`].
    pub flows: u16,
    /// Segments of a window, K: 64, 128 or 256.
    pub window: u16,
    /// Addresses that wait for credit, per flow: N, at most [`RING_MAX`].
    pub ring: u8,
    /// Generation of a flow stops when so many of its addresses wait.
    pub stop: u8,
    /// A stopped flow continues when fewer of its addresses wait than this.
    pub start: u8,
}

impl Default for Sizes {
    /// The sizes of Tonic's evaluation (section 6.1); the ring and its thresholds are those of its public circuits.
    fn default() -> Self {
        Self { flows: 1024, window: 128, ring: 16, stop: 11, start: 10 }
    }
}

/// Error: sizes that no circuit has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// Number of flows.
    #[error("a template has 1 to {FLOWS_MAX} flows, not {0}")]
    Flows(u16),
    /// Window.
    #[error("a window has 64, 128 or 256 segments, not {0}")]
    Window(u16),
    /// Ring and its thresholds.
    #[error(
        "a ring of {ring} addresses, stop at {stop}, start below {start}: not 1 <= start <= stop <= ring <= {RING_MAX}"
    )]
    Ring {
        /// Addresses of a ring.
        ring: u8,
        /// Number of outstanding addresses at which generation stops.
        stop: u8,
        /// Number of outstanding addresses below which it continues.
        start: u8,
    },
    /// State of the program.
    #[error("the program has {0} words of state; a flow has at most {STATE_WORDS_MAX}")]
    State(usize),
}

/// Largest number of words of a program's state: 448 bytes (Tonic, table 4).
pub const STATE_WORDS_MAX: usize = 56;

/// Sizes that were checked, with what the program adds to them: determines the width of every field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    sizes: Sizes,
    scheme: Scheme,
    state_bits: u32,
}

impl Shape {
    /// Checks `sizes` for a program with a credit scheme and so many bits of state.
    ///
    /// # Errors
    /// The size that no circuit has.
    pub fn new(sizes: Sizes, scheme: Scheme, state_bits: u32) -> Result<Self, SizeError> {
        let Sizes { flows, window, ring, stop, start } = sizes;
        if flows == 0 || flows > FLOWS_MAX {
            return Err(SizeError::Flows(flows));
        }
        if !matches!(window, 64 | 128 | 256) {
            return Err(SizeError::Window(window));
        }
        if start == 0 || start > stop || stop > ring || ring > RING_MAX {
            return Err(SizeError::Ring { ring, stop, start });
        }
        Ok(Self { sizes, scheme, state_bits })
    }

    /// Returns the sizes.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns the credit scheme.
    #[inline]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the bits of the program's state.
    pub const fn state_bits(&self) -> u32 {
        self.state_bits
    }

    /// Returns the segments of a window, K.
    #[inline]
    pub const fn window(&self) -> u32 {
        self.sizes.window as u32
    }

    /// Returns the number of flows.
    #[inline]
    pub const fn flows(&self) -> u16 {
        self.sizes.flows
    }

    /// Returns the position of a segment in a map: its id mod K.
    #[inline]
    pub const fn position(&self, id: SegmentId) -> u32 {
        id.value() & (self.window() - 1)
    }

    /// Returns the bits that hold the numbers 0 to `largest`.
    pub const fn bits_for(largest: u32) -> u32 {
        u32::BITS - largest.leading_zeros()
    }
}
