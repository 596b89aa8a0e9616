//! Segment Generation (Tonic, section 3.2.3): sends the lowest marked segment first, otherwise the next new one.

use crate::bits::RingMap;
use crate::shape::{SegmentId, Shape, forward};
use crate::state::{Duty, Window};

/// The segment that a flow sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generated {
    /// Number of the segment.
    pub(crate) id: SegmentId,
    /// The segment is a retransmission.
    pub(crate) is_repeat: bool,
    /// Number of times that the segment has been sent before, at most 3.
    pub(crate) times_sent: u8,
    /// True if this is the last segment, and shorter than the others.
    pub(crate) is_short: bool,
}

/// Returns the segment that the flow sends next, regardless of free entries in the ring; `None` if none is within its
/// window and limit.
///
/// A mark outside of the current window remains until the window covers it.
pub(crate) fn next_segment(window: &Window, duty: &Duty, shape: &Shape) -> Option<Generated> {
    let size = u32::from(window.size);
    let head = shape.position(window.start);
    let wanted = duty.marked & !window.acked & RingMap::range(head, size, shape.window());
    let is_short = |id: SegmentId| window.has_short_last && id.plus(1) == window.limit;
    if let Some(position) = wanted.first(head) {
        let offset = position.wrapping_sub(head) & (shape.window() - 1);
        let id = window.start.plus(offset);
        // The bits of the count, incremented by this generation and saturating.
        let before = u8::from(window.repeats_low.test(position)) | u8::from(window.repeats_high.test(position)) << 1;
        return Some(Generated { id, is_repeat: true, times_sent: (before + 1).min(3), is_short: is_short(id) });
    }
    let is_within = forward(window.start, window.next) < size && window.next.is_before(window.limit);
    is_within.then(|| Generated { id: window.next, is_repeat: false, times_sent: 0, is_short: is_short(window.next) })
}

/// Returns whether the flow may send a segment.
#[inline]
pub(crate) fn is_eligible(window: &Window, duty: &Duty) -> bool {
    window.in_use && !duty.idle && !duty.back_pressured
}
