//! The receiving end: cumulative acknowledgements, delayed (RFC 5681 section 4.2).

use std::collections::BTreeMap;

use rnic_base::{Duration, Time};

use super::{ACK_DELAY, ReceiverView, is_after};
use crate::endpoint::TcpSegment;

/// Rule for the acknowledgement of segments that arrive in order; all others are acknowledged at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayedAcks {
    /// Number of segments that are acknowledged together: at most two (RFC 5681); with one, no acknowledgement is
    /// delayed.
    pub every: u32,
    /// Maximum delay of an acknowledgement.
    pub delay: Duration,
}

impl Default for DelayedAcks {
    fn default() -> Self {
        Self { every: 2, delay: ACK_DELAY }
    }
}

/// An acknowledgement that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Acknowledgement(u32);

/// State of a receiving end.
#[derive(Debug)]
pub(super) struct Receiver {
    acks: DelayedAcks,
    window: u32,
    /// Next byte expected in order.
    expected: u32,
    /// Data received after a gap: the number of its first byte, and that of the byte after its last one. Limited by the
    /// window.
    early: BTreeMap<u32, u32>,
    /// Segments in order that are not acknowledged yet.
    unacknowledged: u32,
    deadline: Option<Time>,
    view: ReceiverView,
}

impl Receiver {
    pub(super) fn new(acks: DelayedAcks, window: u32) -> Self {
        let view = ReceiverView { bytes: 0, segments: 0, acknowledgements: 0 };
        Self { acks, window, expected: 0, early: BTreeMap::new(), unacknowledged: 0, deadline: None, view }
    }

    pub(super) fn view(&self) -> ReceiverView {
        self.view
    }

    pub(super) fn timer(&self) -> Option<Time> {
        self.deadline
    }

    /// Processes a data segment; returns the acknowledgement that has to be sent immediately, if any.
    pub(super) fn receive(&mut self, now: Time, segment: &TcpSegment) -> Option<Acknowledgement> {
        let (start, end) = (segment.sequence, segment.sequence.wrapping_add(u32::from(segment.len)));
        if segment.len == 0 {
            return None;
        }
        self.view.segments += 1;
        let is_old = !is_after(end, self.expected);
        let is_beyond = end.wrapping_sub(self.expected) > self.window;
        if is_old || is_beyond {
            return Some(self.due());
        }
        if is_after(start, self.expected) {
            self.early.insert(start, end);
            return Some(self.due());
        }
        let had_gap = !self.early.is_empty();
        self.advance(end);
        while let Some(end) = self.take_next() {
            self.advance(end);
        }
        self.unacknowledged += 1;
        if had_gap || self.unacknowledged >= self.acks.every {
            return Some(self.due());
        }
        self.deadline = self.deadline.or(Some(now + self.acks.delay));
        None
    }

    /// Handles the expiry of the delay.
    pub(super) fn expire(&mut self) -> Acknowledgement {
        self.due()
    }

    /// Returns the acknowledgement as a segment of `connection`.
    pub(super) fn acknowledge(&mut self, connection: u32, acknowledgement: Acknowledgement) -> TcpSegment {
        self.view.acknowledgements += 1;
        let Acknowledgement(number) = acknowledgement;
        TcpSegment { connection, sequence: 0, acknowledgement: number, window: self.window, len: 0 }
    }

    fn due(&mut self) -> Acknowledgement {
        (self.unacknowledged, self.deadline) = (0, None);
        Acknowledgement(self.expected)
    }

    fn advance(&mut self, end: u32) {
        if is_after(end, self.expected) {
            self.view.bytes += u64::from(end.wrapping_sub(self.expected));
            self.expected = end;
        }
    }

    /// Removes out-of-order data that begins at or before the expected byte; returns its end.
    fn take_next(&mut self) -> Option<u32> {
        let expected = self.expected;
        let start = *self.early.keys().find(|start| !is_after(**start, expected))?;
        self.early.remove(&start)
    }
}
