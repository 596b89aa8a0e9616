//! The sending end: NewReno in bytes (RFC 5681, RFC 6582).

use std::collections::VecDeque;

use rnic_base::Time;

use super::is_after;
use super::rto::{Rto, RtoLimits};
use crate::endpoint::TcpSegment;

/// Parameters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpParameters {
    /// SMSS: bytes of a full segment.
    pub segment: u16,
    /// First congestion window in segments (RFC 6928: 10).
    pub first_window: u32,
    /// Receive window in bytes that is assumed until the first acknowledgement carries it.
    pub receive_window: u32,
    /// Bounds of the timeout.
    pub rto: RtoLimits,
}

impl Default for TcpParameters {
    fn default() -> Self {
        Self { segment: 1_000, first_window: 10, receive_window: 128_000, rto: RtoLimits::default() }
    }
}

/// Duplicate acknowledgements that indicate a loss (RFC 5681 section 3.2).
const DUPLICATES: u32 = 3;

/// Largest receive window (RFC 7323 section 2.3).
const WINDOW_MAX: u64 = 1 << 30;

/// The readable state of a sending end, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderView<'s> {
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Slow start threshold; `u64::MAX` before the first loss.
    pub ssthresh: u64,
    /// Receive window in bytes.
    pub receive_window: u64,
    /// Number of bytes acknowledged.
    pub acknowledged: u64,
    /// True during fast recovery.
    pub is_recovering: bool,
    /// Number of segments sent, retransmissions included.
    pub segments: u64,
    /// Number of expiries of the retransmission timer.
    pub timeouts: u64,
    /// Positions in the stream of retransmitted segments, in the order of the retransmissions.
    pub repeats: &'s [u64],
}

/// A segment that was sent and is not acknowledged: an entry of the scoreboard.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    is_repeated: bool,
}

/// State of a sending end.
#[derive(Debug)]
pub(super) struct Sender {
    parameters: TcpParameters,
    /// SND.UNA, SND.NXT, and the number after the last byte ever sent.
    una: u32,
    next: u32,
    end: u32,
    cwnd: u64,
    ssthresh: u64,
    receive_window: u64,
    duplicates: u32,
    /// RFC 6582's variable; `None` before the first loss.
    recover: Option<u32>,
    is_recovering: bool,
    /// A partial acknowledgement has been received in this recovery.
    had_partial: bool,
    /// True when the timer has retransmitted the first segment, and nothing has been acknowledged since.
    is_timed_out: bool,
    rto: Rto,
    deadline: Option<Time>,
    /// All segments from `una` to `end`, in order: all have the full length.
    sent: VecDeque<Sent>,
    acknowledged: u64,
    segments: u64,
    timeouts: u64,
    repeats: Vec<u64>,
}

/// Function that sends a segment, given its sequence number and length.
type Emit<'e> = dyn FnMut(u32, u16) + 'e;

impl Sender {
    pub(super) fn new(parameters: TcpParameters) -> Self {
        let parameters = TcpParameters { segment: parameters.segment.max(1), ..parameters };
        let segment = u64::from(parameters.segment);
        Self {
            parameters,
            una: 0,
            next: 0,
            end: 0,
            cwnd: segment * u64::from(parameters.first_window),
            ssthresh: u64::MAX,
            receive_window: u64::from(parameters.receive_window).min(WINDOW_MAX),
            duplicates: 0,
            recover: None,
            is_recovering: false,
            had_partial: false,
            is_timed_out: false,
            rto: Rto::new(parameters.rto),
            deadline: None,
            sent: VecDeque::new(),
            acknowledged: 0,
            segments: 0,
            timeouts: 0,
            repeats: Vec::new(),
        }
    }

    pub(super) fn view(&self) -> SenderView<'_> {
        let &Self { cwnd, ssthresh, receive_window, acknowledged, is_recovering, segments, timeouts, .. } = self;
        let repeats = &self.repeats[..];
        SenderView { cwnd, ssthresh, receive_window, acknowledged, is_recovering, segments, timeouts, repeats }
    }

    pub(super) fn timer(&self) -> Option<Time> {
        self.deadline
    }

    fn smss(&self) -> u64 {
        self.parameters.segment.into()
    }

    /// FlightSize (RFC 5681 section 2).
    fn flight(&self) -> u64 {
        self.next.wrapping_sub(self.una).into()
    }

    /// Sends as much as the window permits.
    pub(super) fn send(&mut self, now: Time, emit: &mut Emit<'_>) {
        let window = self.cwnd.min(self.receive_window);
        while self.flight() + self.smss() <= window {
            let number = self.next;
            self.next = number.wrapping_add(self.parameters.segment.into());
            self.emit(now, number, emit);
        }
    }

    /// Sends the segment at `number`, which may be a retransmission.
    fn emit(&mut self, now: Time, number: u32, emit: &mut Emit<'_>) {
        let segment = u32::from(self.parameters.segment);
        let index = (number.wrapping_sub(self.una) / segment) as usize;
        match self.sent.get_mut(index) {
            None => {
                self.sent.push_back(Sent { at: now, is_repeated: false });
                self.end = number.wrapping_add(segment);
            }
            Some(sent) => {
                *sent = Sent { at: now, is_repeated: true };
                self.repeats.push(self.acknowledged + u64::from(number.wrapping_sub(self.una)));
            }
        }
        self.segments += 1;
        if self.deadline.is_none() {
            self.deadline = Some(now + self.rto.current());
        }
        emit(number, self.parameters.segment);
    }

    /// Processes an acknowledgement.
    pub(super) fn receive(&mut self, now: Time, segment: &TcpSegment, emit: &mut Emit<'_>) {
        let number = segment.acknowledgement;
        // All segments are full, so a receiver acknowledges no part of one.
        let is_whole = number.wrapping_sub(self.una).is_multiple_of(self.parameters.segment.into());
        if is_after(number, self.end) || is_after(self.una, number) || !is_whole {
            return;
        }
        let window = u64::from(segment.window).min(WINDOW_MAX);
        let is_window_update = core::mem::replace(&mut self.receive_window, window) != window;
        if number != self.una {
            self.acknowledge(now, number, emit);
        } else if self.una != self.end && segment.len == 0 && !is_window_update {
            self.duplicate(now, emit);
        }
        self.send(now, emit);
    }

    /// Handles an acknowledgement of data that was not acknowledged before.
    fn acknowledge(&mut self, now: Time, number: u32, emit: &mut Emit<'_>) {
        let bytes = u64::from(number.wrapping_sub(self.una));
        self.measure(now, bytes);
        self.una = number;
        self.acknowledged += bytes;
        self.is_timed_out = false;
        if is_after(self.una, self.next) {
            self.next = self.una;
        }
        self.duplicates = 0;
        let mut restarts = true;
        match self.recover.filter(|_| self.is_recovering) {
            None => self.grow(bytes),
            // A full acknowledgement (RFC 6582, 3.2 step 3), with the first of its two windows.
            Some(recover) if !is_after(recover, number) => {
                self.cwnd = self.ssthresh.min(self.flight().max(self.smss()) + self.smss());
                self.is_recovering = false;
            }
            Some(_) => {
                self.emit(now, number, emit);
                self.cwnd = self.cwnd.saturating_sub(bytes);
                if bytes >= self.smss() {
                    self.cwnd += self.smss();
                }
                // The impatient variant: only the first partial acknowledgement restarts the timer.
                restarts = !core::mem::replace(&mut self.had_partial, true);
            }
        }
        if self.una == self.end {
            self.deadline = None;
        } else if restarts {
            self.deadline = Some(now + self.rto.current());
        }
    }

    /// Removes acknowledged segments from the scoreboard, and measures the round-trip time unless an acknowledged
    /// segment was retransmitted (Karn's algorithm).
    fn measure(&mut self, now: Time, bytes: u64) {
        let count = (bytes / self.smss()) as usize;
        let count = count.min(self.sent.len());
        let mut last = None;
        let mut was_repeated = false;
        for sent in self.sent.drain(..count) {
            was_repeated |= sent.is_repeated;
            last = Some(sent);
        }
        if let Some(sent) = last.filter(|_| !was_repeated) {
            self.rto.measure(now.since(sent.at));
        }
    }

    /// Slow start and congestion avoidance (RFC 5681, equations 2 and 3).
    fn grow(&mut self, bytes: u64) {
        let smss = self.smss();
        self.cwnd += if self.cwnd < self.ssthresh { bytes.min(smss) } else { (smss * smss / self.cwnd).max(1) };
    }

    /// Returns half of the data in flight, at least two segments (RFC 5681, equation 4).
    fn half_of_flight(&self) -> u64 {
        (self.flight() / 2).max(2 * self.smss())
    }

    /// Handles a duplicate acknowledgement.
    fn duplicate(&mut self, now: Time, emit: &mut Emit<'_>) {
        self.duplicates += 1;
        if self.is_recovering {
            self.cwnd += self.smss();
            return;
        }
        // Only losses of data sent after the last recovery or timeout (RFC 6582, 3.2 step 2).
        let is_covered = self.recover.is_some_and(|recover| is_after(recover, self.una));
        if self.duplicates != DUPLICATES || is_covered {
            return;
        }
        self.recover = Some(self.end);
        (self.is_recovering, self.had_partial) = (true, false);
        self.ssthresh = self.half_of_flight();
        self.cwnd = self.ssthresh + u64::from(DUPLICATES) * self.smss();
        self.emit(now, self.una, emit);
    }

    /// Handles the expiry of the timer (RFC 5681 section 3.1, RFC 6298 section 5, RFC 6582 section 4).
    pub(super) fn time_out(&mut self, now: Time, emit: &mut Emit<'_>) {
        self.timeouts += 1;
        // The threshold stays when the same segment is repeated again (RFC 5681, equation 4).
        if !core::mem::replace(&mut self.is_timed_out, true) {
            self.ssthresh = self.half_of_flight();
        }
        self.cwnd = self.smss();
        (self.is_recovering, self.duplicates) = (false, 0);
        self.recover = Some(self.end);
        self.rto.back_off();
        self.deadline = Some(now + self.rto.current());
        self.next = self.una;
        self.send(now, emit);
    }
}
