//! The rate that this NIC reaches, measured for schedulers where no link has a known rate: the processors are what its
//! queue pairs share then.
//!
//! Source: scr.md 6.3. A rate is measured only while packets queue in front of the scheduler, and not because of the
//! scheduler. Turns of the NIC's loop are of three kinds, by what is left when their packets have been sent:
//!
//! * *backlogged*: queue pairs could send more, and wait for the next turn;
//! * *held*: none could, and the last one that stopped waits for its dequeue rate;
//! * *other*: none could, for want of data, or of space in its window.
//!
//! A window with enough backlogged time, which is most of that which is not held, is a sample: the bytes sent in its
//! turns that are not held by their time. So what schedulers hold back does not lower the result: the less they permit,
//! the fewer turns count, and in those the NIC sends as fast as it can.
//!
//! Schedulers use a part of what was measured, and see no queue when the machine has become faster. While queue pairs
//! are held, the capacity grows, by 1 % in a second, then twice as fast each [`SEARCH_DOUBLES`] without a sample: by
//! some 5 % in the first second, and to twice the rate in two. When it exceeds what the NIC reaches, packets queue, and
//! samples end the search.

use rnic_base::{BitRate, Duration, Time};

/// Measures the rate that a NIC reaches.
#[derive(Debug)]
pub(crate) struct CapacityMeter {
    /// Start of the current iteration of the NIC's loop, and how the last one ended.
    turned_at: Time,
    turn: Turn,
    /// Latest time until which a queue pair has to wait for its dequeue rate.
    held_until: Time,
    /// The counts at the end of the last iteration of the NIC's loop, and the bytes sent at its start.
    latest: Counts,
    bytes_at_turn: u64,
    /// Start of the current measurement window, and its time by kind of iteration of the NIC's loop.
    began: Time,
    backlogged: Duration,
    other: Duration,
    held: Duration,
    /// Bytes sent in the iterations of the window that were not held, that is, ended by waiting for a dequeue rate.
    bytes: u64,
    /// The last samples; zero for none.
    samples: [BitRate; SAMPLES],
    /// Rate that the NIC reaches; zero before the first sample.
    reached: BitRate,
    /// Rate of the line, which is the upper bound.
    line: BitRate,
    /// Growth of the search, and the time from which it is doubled.
    search: u64,
    faster_at: Time,
}

/// Counts since the NIC was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Bytes sent, on the wire.
    pub(crate) bytes: u64,
    /// Number of times that a packet had to wait for its dequeue rate.
    pub(crate) waits: u64,
}

/// State at the end of an iteration of the NIC's loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Backlogged,
    Held,
    Other,
}

impl CapacityMeter {
    /// Starts at `now` with these counts, for a NIC whose line has the rate `line`.
    pub(crate) fn new(now: Time, counts: Counts, line: BitRate) -> Self {
        Self {
            turned_at: now,
            turn: Turn::Other,
            held_until: now,
            latest: counts,
            bytes_at_turn: counts.bytes,
            began: now,
            backlogged: Duration::ZERO,
            other: Duration::ZERO,
            held: Duration::ZERO,
            bytes: 0,
            samples: [BitRate::ZERO; SAMPLES],
            reached: BitRate::ZERO,
            line,
            search: SEARCH,
            faster_at: now + SEARCH_DOUBLES,
        }
    }

    /// Returns the rate that schedulers may divide, in wire bytes; `None` while it is not known.
    pub(crate) fn capacity(&self) -> Option<BitRate> {
        let capacity = self.reached.scaled(USED_PERCENT, 100);
        (capacity > BitRate::ZERO).then_some(capacity)
    }

    /// Begins an iteration of the NIC's loop at `now`, when `bytes` have been sent in total; returns whether the
    /// measured capacity has changed.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Time, bytes: u64) -> bool {
        let elapsed = now.since(self.turned_at).min(TURN_MAX);
        let sent = bytes - std::mem::replace(&mut self.bytes_at_turn, bytes);
        match self.turn {
            Turn::Held => self.held += elapsed,
            Turn::Backlogged => (self.backlogged, self.bytes) = (self.backlogged + elapsed, self.bytes + sent),
            Turn::Other => (self.other, self.bytes) = (self.other + elapsed, self.bytes + sent),
        }
        self.turned_at = now;
        now.since(self.began) >= WINDOW && self.end_window()
    }

    /// Records the counts after the packets of an iteration of the NIC's loop have been sent; `is_backlogged` is true
    /// if queue pairs had more to send.
    #[inline]
    pub(crate) fn end_turn(&mut self, counts: Counts, is_backlogged: bool) {
        let before = std::mem::replace(&mut self.latest, counts);
        self.turn = if is_backlogged {
            Turn::Backlogged
        } else if counts.waits != before.waits {
            self.held_until = self.turned_at + HELD_MAX;
            Turn::Held
        } else if counts.bytes == before.bytes && self.turn == Turn::Held && self.turned_at < self.held_until {
            // Nothing was sent, and nothing has stopped.
            Turn::Held
        } else {
            Turn::Other
        };
    }

    /// Ends the window; returns whether the capacity has changed.
    fn end_window(&mut self) -> bool {
        let (before, now) = (self.reached, self.turned_at);
        let (free, held) = (self.backlogged + self.other, self.held);
        if self.backlogged >= ENOUGH && self.backlogged >= self.other {
            self.samples.rotate_right(1);
            self.samples[0] = BitRate::from_transfer(self.bytes, free);
            // Single low samples are of moments in which the processor did something else.
            self.reached = self.samples.into_iter().max().unwrap_or_default();
            (self.search, self.faster_at) = (SEARCH, now + SEARCH_DOUBLES);
        } else if held > free {
            let growth = self.reached.scaled(self.search, THOUSAND).scaled(held.as_ps(), PS_PER_SECOND);
            self.reached = self.reached.saturating_add(growth).min(self.line);
            if now >= self.faster_at {
                (self.search, self.faster_at) = ((2 * self.search).min(SEARCH_MAX), now + SEARCH_DOUBLES);
            }
        }
        (self.began, self.bytes) = (now, 0);
        (self.backlogged, self.other, self.held) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        self.reached != before
    }
}

/// Longest wait for a dequeue rate without another packet.
const HELD_MAX: Duration = Duration::from_ms(10);

/// Maximum counted time of an iteration of the NIC's loop: a process that repeatedly waits for a processor is slower
/// because of that; a process that was stopped, or did something else, is not.
const TURN_MAX: Duration = Duration::from_ms(20);

/// Length of a window.
const WINDOW: Duration = Duration::from_ms(100);

/// Backlogged time in a window that is enough for a sample.
const ENOUGH: Duration = Duration::from_ms(10);

/// Number of samples, of which the highest counts: half a second, for which other programs may use the processor.
const SAMPLES: usize = 5;

/// Share in percent of the measured rate that schedulers may divide, so that the queue of packets that wait to be
/// passed to the kernel stays short.
const USED_PERCENT: u64 = 95;

/// Growth of the search per second in thousandths: initial value and maximum.
const SEARCH: u64 = 10;
const SEARCH_MAX: u64 = 1_000;

/// Time without a sample after which the search is twice as fast.
const SEARCH_DOUBLES: Duration = Duration::from_ms(200);

const THOUSAND: u64 = 1_000;
const PS_PER_SECOND: u64 = 1_000_000_000_000;

#[cfg(test)]
#[path = "capacity/tests.rs"]
mod tests;
