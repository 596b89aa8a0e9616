//! The fixed stage of the Incoming module (Tonic, section 3.2.3): advances the window, and records a selective
//! acknowledgement.

use crate::bits::RingMap;
use crate::shape::{SegmentId, Shape, forward};
use crate::state::Window;
use crate::wires::Packet;

/// Result of the fixed stage for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acknowledged {
    /// First segment of the window before the packet.
    pub(crate) old_start: SegmentId,
    pub(crate) start: SegmentId,
    /// Segments in the window that are acknowledged after the packet.
    pub(crate) acked: RingMap,
    /// Positions that the window has passed.
    pub(crate) passed: RingMap,
    /// Number of segments that the packet acknowledges for the first time.
    pub(crate) newly: u32,
    /// The packet selectively acknowledges a segment in flight that was not acknowledged before.
    pub(crate) sack_new: bool,
}

/// Computes the effect of a packet on the window; `None` if the packet acknowledges segments that were never sent, and
/// is therefore ignored.
pub(crate) fn acknowledge(window: &Window, packet: &Packet, shape: &Shape) -> Option<Acknowledged> {
    let outstanding = forward(window.start, window.next);
    let has_cum = packet.ack || packet.nack || packet.trimmed;
    let steps = if has_cum { window.start.distance_to(packet.cum).max(0) as u32 } else { 0 };
    if steps > outstanding {
        return None;
    }
    let start = window.start.plus(steps);
    let passed = RingMap::range(shape.position(window.start), steps, shape.window());
    let mut acked = window.acked & !passed;
    let position = shape.position(packet.sack);
    let is_outstanding = forward(start, packet.sack) < outstanding - steps;
    let sack_new = packet.sacked && is_outstanding && !acked.test(position);
    if sack_new {
        acked.set(position);
    }
    let newly = steps - (window.acked & passed).count() + u32::from(sack_new);
    Some(Acknowledged { old_start: window.start, start, acked, passed, newly, sack_new })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Scheme;
    use crate::shape::Sizes;

    fn window(start: u32, sent: u32, acked: &[u32]) -> (Shape, Window) {
        let shape = Shape::new(Sizes::default(), Scheme::Window, 0).unwrap();
        let start = SegmentId::new(start);
        let mut map = RingMap::EMPTY;
        acked.iter().for_each(|&offset| map.set(shape.position(start.plus(offset))));
        (shape, Window { in_use: true, start, next: start.plus(sent), acked: map, ..Window::default() })
    }

    fn ack(cum: u32) -> Packet {
        Packet { ack: true, cum: SegmentId::new(cum), ..Packet::default() }
    }

    #[test]
    fn t10_a_cumulative_acknowledgement_counts_what_is_new() {
        // Both at zero and across the wrap.
        for base in [0, 0xFF_FFFE] {
            let (shape, window) = window(base, 10, &[2, 3, 7]);
            let done = acknowledge(&window, &ack(base.wrapping_add(5)), &shape).unwrap();
            assert_eq!((done.newly, done.start), (3, SegmentId::new(base.wrapping_add(5))));
            assert_eq!(done.acked.count(), 1, "only segment 7 is left in the map");
            assert!(done.acked.test(shape.position(SegmentId::new(base.wrapping_add(7)))));
            assert_eq!(done.passed.count(), 5);
        }
    }

    #[test]
    fn t10_a_selective_acknowledgement_is_new_once() {
        let (shape, mut window) = window(0xFF_FFF0, 40, &[]);
        let packet = Packet { sacked: true, sack: SegmentId::new(4), ..ack(0xFF_FFF0) };
        let first = acknowledge(&window, &packet, &shape).unwrap();
        assert!(first.sack_new && first.acked.test(4) && first.newly == 1);
        window.acked = first.acked;
        let again = acknowledge(&window, &packet, &shape).unwrap();
        assert!(!again.sack_new && again.newly == 0);
    }

    #[test]
    fn t10_acknowledgements_outside_of_the_window_change_nothing() {
        let (shape, window) = window(100, 10, &[]);
        assert_eq!(acknowledge(&window, &ack(111), &shape), None, "of segments never generated");
        let stale = acknowledge(&window, &ack(50), &shape).unwrap();
        assert_eq!((stale.start, stale.newly), (window.start, 0));
        for sack in [99, 110, 228] {
            let packet = Packet { sacked: true, sack: SegmentId::new(sack), ..ack(100) };
            let done = acknowledge(&window, &packet, &shape).unwrap();
            assert!(!done.sack_new && done.acked.is_empty(), "{sack} is not outstanding");
        }
        let trimmed = Packet { trimmed: true, ack: false, sack: SegmentId::new(103), ..ack(101) };
        let missing = acknowledge(&window, &trimmed, &shape).unwrap();
        assert!(!missing.sack_new && missing.acked.is_empty(), "a segment without payload is not acknowledged");
        assert_eq!(missing.newly, 1, "but those before the one that is expected are");
        let cnp = Packet { cnp: true, cum: SegmentId::new(5000), ..Packet::default() };
        assert_eq!(acknowledge(&window, &cnp, &shape).unwrap().start, window.start, "a CNP acknowledges nothing");
    }
}
