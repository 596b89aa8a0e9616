//! The receiver: acknowledgements, grants and congestion notifications for one packet a cycle (Tonic, section 2.1).
//!
//! It does not place data. It generates the packets that [`Tonic`](crate::Tonic) receives.

use crate::bits::RingMap;
use crate::program::Scheme;
use crate::shape::{FlowId, SegmentId, Shape, SizeError, Sizes, Ticks, tick_of};
use crate::state::{Field, Pack, Packed, group};
use crate::wires::Packet;

/// Acknowledgement scheme of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverKind {
    /// Cumulatively (Reno, NewReno). With a delay, a segment that arrives in order is acknowledged with the next one or
    /// after the delay; segments out of order and repeats are acknowledged at once.
    Cumulative {
        /// The delay in ticks; zero to acknowledge every segment at once.
        delay: u32,
    },
    /// Cumulatively, with the number of an out-of-order segment (SACK).
    Selective,
    /// As [`ReceiverKind::Selective`]; out-of-order segments are also reported as a gap (IRN).
    SelectiveNack,
    /// As [`ReceiverKind::Selective`]; segments without payload are reported missing, and every arrival grants one more
    /// segment (NDP).
    Trimmed,
    /// Cumulative acknowledgements; segments out of order are dropped, and the first of them is reported (RoCE).
    GoBackN,
}

/// Configuration of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverSizes {
    /// Number of flows.
    pub flows: u16,
    /// Width K of the window in segments: 64, 128 or 256.
    pub window: u16,
    /// Acknowledgement scheme.
    pub kind: ReceiverKind,
    /// Minimum time in ticks between two congestion notifications for a flow, at least 1; 313 ticks are 50 us.
    pub cnp_interval: u32,
}

/// A data packet that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Flow that the received packet belongs to.
    pub flow: FlowId,
    /// Segment that the received packet carries.
    pub segment: SegmentId,
    /// Number of times that the segment has been sent before.
    pub times_sent: u8,
    /// A switch has removed (trimmed) the payload.
    pub is_trimmed: bool,
    /// A switch has set the congestion mark.
    pub is_marked: bool,
}

group! {
    /// State of a flow at its receiver.
    Reception of shape {
        /// The flow exists.
        in_use: bool = 1,
        /// Next segment expected in order.
        expected: SegmentId = 24,
        /// Segments that have arrived out of order.
        seen: RingMap = shape.window(),
        /// An acknowledgement is delayed.
        is_delayed: bool = 1,
        /// Arrival time of the segment whose acknowledgement is delayed.
        delayed_at: Ticks = 24,
        /// The gap before the arrived segments has been reported.
        is_reported: bool = 1,
        /// Number of segments granted since the flow was added.
        granted: SegmentId = 24,
        /// A notification was sent less than an interval ago.
        is_notified: bool = 1,
        /// Time of the last notification.
        notified_at: Ticks = 24,
    }
}

/// The receiver of all flows of a Tonic NIC.
///
/// It visits one flow per cycle, in turn: it sends delayed acknowledgements in cycles without another response, and
/// forgets notifications older than the interval, so that times are only compared while they are recent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receiver {
    shape: Shape,
    kind: ReceiverKind,
    cnp_interval: u32,
    flows: Vec<Reception>,
    round: FlowId,
    now: u64,
    /// The response that is sent in the next cycle.
    output: Option<(FlowId, Packet)>,
    dropped: u64,
}

impl Receiver {
    /// Creates a receiver without flows.
    ///
    /// # Errors
    /// When a size is out of range.
    pub fn new(sizes: ReceiverSizes) -> Result<Self, SizeError> {
        let ReceiverSizes { flows, window, kind, cnp_interval } = sizes;
        let shape = Shape::new(Sizes { flows, window, ..Sizes::default() }, Scheme::Window, 0)?;
        let flows = vec![Reception::default(); usize::from(flows)];
        Ok(Self { shape, kind, cnp_interval: cnp_interval.max(1), flows, round: 0, now: 0, output: None, dropped: 0 })
    }

    /// Adds a flow, or restarts it, with `first` as its first segment. Flow numbers that are out of range are ignored.
    pub fn add_flow(&mut self, flow: FlowId, first: SegmentId) {
        if let Some(state) = self.flows.get_mut(usize::from(flow)) {
            *state = Reception { in_use: true, expected: first, ..Reception::default() };
        }
    }

    /// Removes a flow from the receiver.
    pub fn remove_flow(&mut self, flow: FlowId) {
        if let Some(state) = self.flows.get_mut(usize::from(flow)) {
            *state = Reception::default();
        }
    }

    /// Returns the fields of a flow's state, lowest bits first.
    pub fn fields(&self) -> Vec<Field> {
        Reception::fields(&self.shape)
    }

    /// Returns the number of bits of state per flow.
    pub fn bits(&self) -> u32 {
        Reception::bits(&self.shape)
    }

    /// Returns the state of a flow, packed; `None` if its number is out of range.
    pub fn context(&self, flow: FlowId) -> Option<Packed> {
        let mut packed = Packed::default();
        self.flows.get(usize::from(flow))?.pack(&self.shape, &mut packed);
        Some(packed)
    }

    /// Returns the next segment that `flow` expects; `None` if there is no such flow.
    pub fn expected(&self, flow: FlowId) -> Option<SegmentId> {
        self.flows.get(usize::from(flow)).filter(|state| state.in_use).map(|state| state.expected)
    }

    /// Returns the number of arrivals that were ignored: outside of the window, out of order for a receiver that
    /// requires order, without payload for a receiver that does not support trimming, or for flows that do not exist.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Runs one cycle; returns the response to the arrival of the previous cycle.
    pub fn step(&mut self, arrival: Option<&Arrival>) -> Option<(FlowId, Packet)> {
        let tick = tick_of(self.now);
        let response = arrival.and_then(|arrival| self.arrive(arrival, tick));
        let response = self.visit(response, tick);
        self.now += 1;
        core::mem::replace(&mut self.output, response)
    }

    fn arrive(&mut self, arrival: &Arrival, now: Ticks) -> Option<(FlowId, Packet)> {
        let (shape, kind) = (self.shape, self.kind);
        let state = self.flows.get_mut(usize::from(arrival.flow)).filter(|state| state.in_use);
        let Some(state) = state.filter(|_| !arrival.is_trimmed || kind == ReceiverKind::Trimmed) else {
            self.dropped += 1;
            return None;
        };
        let place = place_of(state, arrival, kind, &shape);
        self.dropped += u64::from(matches!(place, Place::Outside | Place::OutOfOrder));
        if let Place::Early = place {
            state.seen.set(shape.position(arrival.segment));
        }
        if let Place::InOrder { .. } = place {
            advance(state, &shape);
        }
        let mut packet = acknowledgement(state, arrival, place, kind, now);
        if arrival.is_marked && !is_recent(state, self.cnp_interval, now) {
            (state.is_notified, state.notified_at) = (true, now);
            packet.get_or_insert_default().cnp = true;
        }
        packet.map(|packet| (arrival.flow, packet))
    }

    /// Processes the next flow in turn: the interval between its congestion notifications and its delayed
    /// acknowledgement, unless that would coincide with another response in this cycle.
    fn visit(&mut self, response: Option<(FlowId, Packet)>, now: Ticks) -> Option<(FlowId, Packet)> {
        let state = &mut self.flows[usize::from(self.round)];
        if state.is_notified && !is_recent(state, self.cnp_interval, now) {
            state.is_notified = false;
        }
        let is_due = match self.kind {
            ReceiverKind::Cumulative { delay } => {
                state.is_delayed && state.delayed_at.distance_to(now) >= i64::from(delay)
            }
            _ => false,
        };
        if is_due && response.is_some() {
            return response;
        }
        let flow = self.round;
        self.round = (flow + 1) % self.shape.flows();
        if !is_due {
            return response;
        }
        state.is_delayed = false;
        Some((flow, Packet { ack: true, cum: state.expected, ..Packet::default() }))
    }
}

/// Position of a segment relative to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The segment is the expected one.
    InOrder {
        /// True if later segments have arrived already, and this one closes the gap before the first of them.
        closes_gap: bool,
    },
    /// The segment has arrived before.
    Repeat,
    /// The segment is out of order, and is kept.
    Early,
    /// The segment is out of order, and is dropped because the receiver requires order.
    OutOfOrder,
    /// The segment is beyond the window.
    Outside,
    /// The segment has no payload.
    Trimmed,
}

fn place_of(state: &Reception, arrival: &Arrival, kind: ReceiverKind, shape: &Shape) -> Place {
    match state.expected.distance_to(arrival.segment) {
        ..0 => Place::Repeat,
        steps if steps >= i64::from(shape.window()) => Place::Outside,
        _ if arrival.is_trimmed => Place::Trimmed,
        0 => Place::InOrder { closes_gap: !state.seen.is_empty() },
        _ if kind == ReceiverKind::GoBackN => Place::OutOfOrder,
        _ if state.seen.test(shape.position(arrival.segment)) => Place::Repeat,
        _ => Place::Early,
    }
}

/// Advances the expected segment past all segments that have arrived in sequence.
fn advance(state: &mut Reception, shape: &Shape) {
    let head = shape.position(state.expected);
    // The run of early segments depends on stored state alone; the expected segment's own bit is clear and ends it.
    let missing = !state.seen & RingMap::below(shape.window());
    let after = (head + 1) & (shape.window() - 1);
    let end = missing.first(after).unwrap_or(head);
    let run = end.wrapping_sub(after) & (shape.window() - 1);
    state.seen &= !RingMap::range(after, run, shape.window());
    state.expected = state.expected.plus(1 + run);
}

fn acknowledgement(
    state: &mut Reception,
    arrival: &Arrival,
    place: Place,
    kind: ReceiverKind,
    now: Ticks,
) -> Option<Packet> {
    let Arrival { segment, times_sent, .. } = *arrival;
    let cumulative = Packet { ack: true, cum: state.expected, times_sent, ..Packet::default() };
    let selective = Packet { sacked: true, sack: segment, ..cumulative };
    let packet = match (kind, place) {
        (ReceiverKind::Cumulative { delay }, Place::InOrder { closes_gap }) => {
            let is_second = state.is_delayed;
            let may_wait = delay != 0 && !is_second && !closes_gap;
            state.is_delayed = may_wait;
            if may_wait {
                state.delayed_at = now;
                return None;
            }
            cumulative
        }
        (ReceiverKind::Cumulative { .. }, _) => {
            state.is_delayed = false;
            cumulative
        }
        (ReceiverKind::GoBackN, Place::OutOfOrder | Place::Outside) => {
            if core::mem::replace(&mut state.is_reported, true) {
                return None;
            }
            Packet { nack: true, ack: false, ..cumulative }
        }
        (ReceiverKind::GoBackN, Place::InOrder { .. }) => {
            state.is_reported = false;
            cumulative
        }
        (ReceiverKind::Trimmed, Place::Trimmed) => Packet { trimmed: true, ack: false, sack: segment, ..cumulative },
        (ReceiverKind::SelectiveNack, Place::Early) => Packet { nack: true, ..selective },
        (ReceiverKind::SelectiveNack, Place::Outside) => Packet { nack: true, ..cumulative },
        (_, Place::Early) => selective,
        _ => cumulative,
    };
    if kind == ReceiverKind::Trimmed {
        state.granted = state.granted.plus(1);
        return Some(Packet { grant: Some(state.granted), ..packet });
    }
    Some(packet)
}

/// Returns whether the last notification was sent less than `interval` ago.
fn is_recent(state: &Reception, interval: u32, now: Ticks) -> bool {
    state.is_notified && state.notified_at.distance_to(now) < i64::from(interval)
}

#[cfg(test)]
#[path = "receiver/tests.rs"]
mod tests;
