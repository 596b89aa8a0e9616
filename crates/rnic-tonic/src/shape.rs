//! Sizes of a Tonic NIC, and the types of numbers that all modules use.

use rnic_base::Serial;

use crate::program::Scheme;

/// Number that identifies a flow.
pub type FlowId = u16;

/// A segment id, or a counter of segments: 24 bits, in serial arithmetic.
pub type SegmentId = Serial<24>;

/// A time in ticks of 16 cycles, modulo 2^24.
pub type Ticks = Serial<24>;

/// Number of cycles of a tick, as a power of two.
pub const TICK_SHIFT: u32 = 4;

/// Maximum number of flows (Tonic, table 4).
pub const FLOWS_MAX: u16 = 2048;

/// Maximum number of addresses in a flow's ring.
pub const RING_MAX: u8 = 32;

/// Width in bits of the length of a segment in bytes.
pub const LENGTH_BITS: u32 = 14;

/// Maximum length of a segment in bytes.
pub const LENGTH_MAX: u16 = (1 << LENGTH_BITS) - 1;

/// Returns the tick that contains `cycle`.
#[inline]
pub const fn tick_of(cycle: u64) -> Ticks {
    Ticks::new((cycle >> TICK_SHIFT) as u32)
}

/// Returns the distance from `from` to `to` in forward direction, modulo 2^24.
#[inline]
pub const fn forward(from: SegmentId, to: SegmentId) -> u32 {
    to.value().wrapping_sub(from.value()) & SegmentId::MAX.value()
}

/// Sizes of a Tonic NIC: parameters of the circuit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Number of flows, at most [`FLOWS_MAX`].
    pub flows: u16,
    /// Width K of the window in segments: 64, 128 or 256.
    pub window: u16,
    /// Size N of a flow's ring: the maximum number of addresses that wait for credit, at most [`RING_MAX`].
    pub ring: u8,
    /// Number of waiting addresses at which a flow stops generating more.
    pub stop: u8,
    /// Number of waiting addresses below which a stopped flow continues.
    pub start: u8,
}

impl Default for Sizes {
    /// Returns the sizes of Tonic's evaluation (section 6.1), and the ring and thresholds of its public circuits.
    fn default() -> Self {
        Self { flows: 1024, window: 128, ring: 16, stop: 11, start: 10 }
    }
}

/// Error: a size is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// The number of flows is out of range.
    #[error("the number of flows is {0}, but must be 1 to {FLOWS_MAX}")]
    Flows(u16),
    /// The width of the window is not supported.
    #[error("a window has 64, 128 or 256 segments, not {0}")]
    Window(u16),
    /// The size of the ring and its thresholds do not fit together.
    #[error(
        "a ring of {ring} addresses, stop at {stop}, start below {start}: not 1 <= start <= stop <= ring <= {RING_MAX}"
    )]
    Ring {
        /// Number of addresses of a ring.
        ring: u8,
        /// Number of waiting addresses at which generation stops.
        stop: u8,
        /// Number of waiting addresses below which it continues.
        start: u8,
    },
    /// The state of the program is too large.
    #[error("the program has {0} words of state; a flow has at most {STATE_WORDS_MAX}")]
    State(usize),
}

/// Maximum number of words of a program's state: 448 bytes (Tonic, table 4).
pub const STATE_WORDS_MAX: usize = 56;

/// Valid sizes and the needs of the program, which together determine the width of every field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    sizes: Sizes,
    scheme: Scheme,
    state_bits: u32,
}

impl Shape {
    /// Checks whether hardware of `sizes` is possible for a program with `state_bits` bits of state and the credit
    /// scheme `scheme`.
    ///
    /// # Errors
    /// The first size that is out of range.
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

    /// Returns the sizes of the NIC.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns the credit scheme of the NIC's program.
    #[inline]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the number of bits of the program's state.
    pub const fn state_bits(&self) -> u32 {
        self.state_bits
    }

    /// Returns the width K of the window in segments.
    #[inline]
    pub const fn window(&self) -> u32 {
        self.sizes.window as u32
    }

    /// Returns the number of flows.
    #[inline]
    pub const fn flows(&self) -> u16 {
        self.sizes.flows
    }

    /// Returns the position of a segment in a map: its id modulo K.
    #[inline]
    pub const fn position(&self, id: SegmentId) -> u32 {
        id.value() & (self.window() - 1)
    }

    /// Returns the number of bits needed for the numbers 0 to `largest`.
    pub const fn bits_for(largest: u32) -> u32 {
        u32::BITS - largest.leading_zeros()
    }
}
