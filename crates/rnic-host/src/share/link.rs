//! The shared link: a bottleneck of a given rate, in front of which the packets of all processes of a user queue.
//!
//! The queue is virtual. The page holds the time until which the link is paid; a packet advances it by its own time on
//! the link, and leaves when that time has come. Until then it waits in the delay line of its NIC. No packet is lost:
//! when the queue holds [`backlog_ns`], a NIC takes no more packets from its engine, until a timer resumes it. A NIC
//! whose own packets in the queue are fewer than its reserve ([`reserve_bytes`]) may always add one, so one with little
//! to send waits for the queue as it stands, however much others want to add.
//!
//! A NIC that has had packets for the link since it had to wait, but was not driven in time (timers are late, its
//! process was off its core), has not lost its time on the link, if no other NIC has used it: up to [`CATCH_UP_NS`] are
//! made up for. In any time `t`, the link carries at most what its rate carries in `t` and that time.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use rnic_base::{BitRate, Duration};

use super::page::Page;

/// A NIC's access to the shared link: a queue whose length all NICs compute from a common page.
#[derive(Debug)]
pub(crate) struct SharedLink {
    rate: BitRate,
    /// Length of the queue at which NICs take no more packets, in nanoseconds.
    backlog_ns: u64,
    /// Number of bytes that every NIC may have in the queue, whatever its length.
    reserve_bytes: u64,
    /// Packets of this NIC that are still in the queue of the shared link: times at which they will have been sent, and
    /// their bytes on the link.
    own: VecDeque<(u64, u32)>,
    own_bytes: u64,
    /// Fraction of a nanosecond used by earlier packets, in picoseconds.
    remainder_ps: u64,
    /// Time at which a NIC that had to stop taking packets tries again.
    full_until_ns: Option<u64>,
    /// True when the NIC had to wait and has had packets for the link ever since: it may then use link time that has
    /// passed unused.
    may_catch_up: bool,
    /// Number of times that the NIC had to wait, not counting repeated attempts.
    waits: u64,
    wire_bytes: u64,
}

impl SharedLink {
    /// Returns the end of a NIC at a link of the rate `rate`, which must not be zero.
    pub(super) fn new(rate: BitRate) -> Self {
        Self {
            rate,
            backlog_ns: backlog_ns(rate),
            reserve_bytes: reserve_bytes(rate),
            own: VecDeque::new(),
            own_bytes: 0,
            remainder_ps: 0,
            full_until_ns: None,
            may_catch_up: false,
            waits: 0,
            wire_bytes: 0,
        }
    }

    /// Returns how often the NIC had to wait, and the bytes that it has sent on the link.
    pub(super) fn counters(&self) -> (u64, u64) {
        (self.waits, self.wire_bytes)
    }

    /// Returns whether the NIC must take no packets now.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full_until_ns.is_some()
    }

    /// Returns the time at which the NIC may take packets from the engine again, in nanoseconds; `None` if it may take
    /// packets now.
    pub(super) fn full_until_ns(&self) -> Option<u64> {
        self.full_until_ns
    }

    /// Adds a packet of `bytes` to the queue; returns the time at which it has been sent, which may be in the past.
    pub(super) fn enqueue(&mut self, page: &Page, now_ns: u64, bytes: u32) -> u64 {
        let time_ps = self.rate.serialize(bytes.into()).as_ps() + self.remainder_ps;
        let time_ns = time_ps / 1_000;
        self.remainder_ps = time_ps % 1_000;
        let earliest = if self.may_catch_up { now_ns.saturating_sub(CATCH_UP_NS) } else { now_ns };
        let leaves = self.pay(page, now_ns, earliest, time_ns);
        self.wire_bytes += u64::from(bytes);
        self.forget_left(now_ns);
        if leaves > now_ns {
            self.own.push_back((leaves, bytes));
            self.own_bytes += u64::from(bytes);
            let was_full = self.is_full();
            self.stop_if_full(now_ns, leaves);
            self.waits += u64::from(self.is_full() && !was_full);
        }
        leaves
    }

    /// Reserves `time_ns` of link time after everything in the queue, but not before `earliest`; returns the end of
    /// this time.
    fn pay(&self, page: &Page, now_ns: u64, earliest: u64, time_ns: u64) -> u64 {
        let paid = page.paid_until_ns();
        let longest = self.longest_ns(page);
        let mut before = paid.load(Ordering::Acquire);
        let mut leaves = 0;
        for _ in 0..PAY_TRIES {
            leaves = believed(before, now_ns, longest).max(earliest).saturating_add(time_ns);
            match paid.compare_exchange_weak(before, leaves, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return leaves,
                Err(present) => before = present,
            }
        }
        // A process writes without pause, which no NIC does.
        paid.fetch_max(leaves, Ordering::AcqRel);
        leaves
    }

    /// Checks whether a NIC that had to wait may take packets again.
    pub(super) fn resume(&mut self, page: &Page, now_ns: u64) {
        if self.full_until_ns.is_none_or(|until| now_ns < until) {
            return;
        }
        self.full_until_ns = None;
        self.may_catch_up = true;
        self.forget_left(now_ns);
        let paid = believed(page.paid_until_ns().load(Ordering::Acquire), now_ns, self.longest_ns(page));
        self.stop_if_full(now_ns, paid);
    }

    /// Records that the NIC has no packets for the link: it must then not use link time that passes unused.
    pub(super) fn note_idle(&mut self) {
        self.may_catch_up = false;
    }

    fn forget_left(&mut self, now_ns: u64) {
        while let Some((_, bytes)) = self.own.pop_front_if(|(leaves, _)| *leaves <= now_ns) {
            self.own_bytes -= u64::from(bytes);
        }
    }

    fn stop_if_full(&mut self, now_ns: u64, paid_ns: u64) {
        if paid_ns.saturating_sub(now_ns) < self.backlog_ns || self.own_bytes < self.reserve_bytes {
            return;
        }
        // A quarter of the queue is refilled at a time, so that packets are sent in batches; the queue does not run
        // empty meanwhile, if the NIC is driven in time.
        let is_shorter = paid_ns - self.backlog_ns / 4 * 3;
        let mut left = self.own_bytes;
        let own_are_few = self.own.iter().find_map(|(leaves, bytes)| {
            left -= u64::from(*bytes);
            (left < self.reserve_bytes).then_some(*leaves)
        });
        self.full_until_ns = Some(own_are_few.map_or(is_shorter, |leaves| leaves.min(is_shorter)));
    }

    /// Returns the maximum plausible length of the queue in nanoseconds: what all NICs may add at the limit, each its
    /// reserve and a packet, and the same again for NICs that are still adding. The number of NICs was written by
    /// untrusted processes, so it is limited, and so is the result.
    fn longest_ns(&self, page: &Page) -> u64 {
        let nics = (page.lines_used() as u64 + 1).min(NICS_COUNTED_MAX);
        let reserves = self.rate.serialize(nics * (self.reserve_bytes + PACKET_BYTES_MAX));
        (2 * (self.backlog_ns + reserves.as_ns())).min(LONGEST_NS_MAX)
    }
}

/// Returns `paid_ns`, unless it is implausibly far ahead: then a process has written an invalid value, and the queue
/// counts as empty.
fn believed(paid_ns: u64, now_ns: u64, longest_ns: u64) -> u64 {
    if paid_ns > now_ns.saturating_add(longest_ns) { now_ns } else { paid_ns }
}

/// Returns the length of the queue at which NICs take no more packets, in nanoseconds: the time of 256 KiB, but at
/// least 1 ms, because timers are late, and at most 4 ms, because timeouts include the wait.
fn backlog_ns(rate: BitRate) -> u64 {
    rate.serialize(BACKLOG_BYTES).as_ns().clamp(1_000_000, 4_000_000)
}

const BACKLOG_BYTES: u64 = 256 << 10;

/// Returns the bytes that every NIC may have in the queue, however long it is: what the link carries in a millisecond,
/// but at least one packet of any length, and at most 16 KiB, which are some full packets or many small ones.
fn reserve_bytes(rate: BitRate) -> u64 {
    rate.bytes_in(RESERVE_TIME).clamp(1, RESERVE_BYTES_MAX)
}

const RESERVE_TIME: Duration = Duration::from_ms(1);
const RESERVE_BYTES_MAX: u64 = 16 << 10;

/// Maximum number of bytes of a packet on the link.
const PACKET_BYTES_MAX: u64 = 66_000;

/// Number of NICs whose reserves may be in the queue at once: more do not send at the same moment.
const NICS_COUNTED_MAX: u64 = 64;

/// Longest queue that is ever believed, in nanoseconds; transports have given up by then.
const LONGEST_NS_MAX: u64 = 10_000_000_000;

/// Number of attempts to add a packet to the queue, which fail while other NICs add theirs.
const PAY_TRIES: u32 = 1_000;

/// Maximum unused link time that a NIC may use after it was driven too late, in nanoseconds: several scheduler ticks of
/// a busy machine, as for rate limits.
const CATCH_UP_NS: u64 = 20_000_000;

#[cfg(test)]
mod tests;
