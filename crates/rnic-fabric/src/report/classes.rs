//! Results of classes of packets.

use serde::Serialize;

/// Results of one class over all hosts and switches and the whole run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ClassFigures {
    /// Packets that hosts sent, acknowledgements and retransmissions included.
    pub packets: u64,
    /// Bytes of their frames, with preambles and gaps.
    pub wire_bytes: u64,
    /// Packets that switches dropped because the part of the class of their buffers had no space.
    pub dropped: u64,
    /// Packets that switches marked (ECN).
    pub marked: u64,
    /// Largest number of bytes of the class that waited for one output of a switch.
    pub queue_max_bytes: u64,
    /// Pause frames (XOFF) for the class.
    pub pauses: u64,
    /// Time for which the class was paused, summed over ports, in microseconds.
    pub pause_time_us: f64,
}
