//! Back-pressure: a receiver notifies a sender that its packets are queued for the host or dropped.
//!
//! Source: SCR (NSDI'25) section A.8, mechanism S-26. The paper does not specify the threshold and the interval; those
//! here are defined by OpenRNIC.

use rnic_base::{Duration, Time};
use rnic_wire::Qpn;
use rnic_wire::scr::BackPressure;

use super::limit::interval;

/// Packets that are queued for the host, and packets that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backlog {
    /// Number of queued bytes.
    pub waiting_bytes: u64,
    /// Packets that have been dropped since the start.
    pub drops: u64,
    /// Number of earlier backlogs. A backlog lasts from the time at which the bytes exceed the threshold until they
    /// fall to half of it.
    pub number: u32,
}

/// Decides when back-pressure is sent for one queue pair: when more bytes wait than the threshold, again while they
/// become more, and when packets have been dropped; at most once in a round trip and [`NIC_TIME`]. The round trip
/// counts as at least 1 us and at most [`INTERVAL_MAX`](super::limit::INTERVAL_MAX).
///
/// A backlog that shrinks needs no second notice: the first one has had its effect. One that remains because a notice
/// was lost, or was not enough, grows.
#[derive(Clone, Copy, Debug)]
pub struct PressureLaw {
    /// Queue pair of the sender.
    qpn: Qpn,
    threshold_bytes: u64,
    /// Maximum number of bytes queued in the backlog with number `backlog`.
    peak_bytes: u64,
    backlog: u32,
    quiet_until: Time,
    /// Dropped packets at the last notice.
    reported_drops: u64,
}

/// Time after which a notice reduces the backlog, in addition to a round trip: allows for packets that the sender's NIC
/// has already fetched from memory, and for packets queued at the receiver.
pub const NIC_TIME: Duration = Duration::from_us(5);

/// Bytes that may wait without back-pressure, unless a driver chooses otherwise.
pub const THRESHOLD_BYTES: u64 = 32 << 10;

impl PressureLaw {
    /// Creates the law for the queue pair `qpn` of a peer, after `drops` packets have been dropped.
    #[must_use]
    pub const fn new(qpn: Qpn, threshold_bytes: u64, drops: u64) -> Self {
        Self { qpn, threshold_bytes, peak_bytes: 0, backlog: 0, quiet_until: Time::ZERO, reported_drops: drops }
    }

    /// Returns whether it is too early to send another notice of back-pressure.
    pub fn is_quiet(&self, now: Time) -> bool {
        now < self.quiet_until
    }

    /// Records the backlog at `now`; returns the notice to send, if any.
    pub fn observe(&mut self, backlog: Backlog, round_trip: Duration, now: Time) -> Option<BackPressure> {
        let Backlog { waiting_bytes, drops, number } = backlog;
        let new_drops = drops.saturating_sub(self.reported_drops);
        if number != self.backlog {
            (self.backlog, self.peak_bytes) = (number, 0);
        }
        let grows = waiting_bytes > self.threshold_bytes.max(self.peak_bytes);
        self.peak_bytes = self.peak_bytes.max(waiting_bytes);
        if (!grows && new_drops == 0) || now < self.quiet_until {
            return None;
        }
        self.reported_drops = drops;
        // The round trip depends on answers of the peer, which may be hostile.
        self.quiet_until = now + reaction_time(round_trip);
        let limited = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Some(BackPressure {
            qpn: self.qpn,
            severity: if new_drops > 0 { SEVERITY_DROPS } else { SEVERITY_WAITING },
            waiting_bytes: limited(waiting_bytes),
            count: limited(new_drops),
        })
    }
}

/// Returns the time from a notice until it reduces the backlog. Packets that arrived earlier are not part of the
/// backlog.
pub(super) fn reaction_time(round_trip: Duration) -> Duration {
    interval(round_trip) + NIC_TIME
}

const SEVERITY_WAITING: u8 = 1;
const SEVERITY_DROPS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_us(20);

    /// Returns the times, in microseconds, of notices for a backlog that is `waiting` at each microsecond.
    fn notices(waiting: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut law = PressureLaw::new(Qpn::new(0x11), THRESHOLD_BYTES, 0);
        let mut number = 0;
        let sends = |us: &u64| {
            let waiting_bytes = waiting(*us);
            number += u32::from(waiting_bytes <= THRESHOLD_BYTES);
            law.observe(Backlog { waiting_bytes, drops: 0, number }, ROUND_TRIP, Time::from_us(*us)).is_some()
        };
        (0..100).filter(sends).collect()
    }

    /// A round trip of 20 us and 5 us for NICs between notices.
    #[test]
    fn s26_back_pressure_is_sent_while_the_backlog_above_the_threshold_grows() {
        assert_eq!(notices(|us| 32_758 + us), [11, 36, 61, 86]);
        assert_eq!(notices(|_| 32_768), [0_u64; 0], "not above the threshold");
    }

    /// The sender has slowed down: a second notice would halve its rate twice for one backlog.
    #[test]
    fn s26_a_backlog_that_shrinks_needs_no_second_notice() {
        assert_eq!(notices(|us| 32_768 + 20 - us.abs_diff(20)), [1]);
        assert_eq!(notices(|us| 32_768 + (50 - us.abs_diff(50))), [1, 26]);
        // It comes back after it was gone, and is then less than the first one.
        assert_eq!(notices(|us| 32_768 + if us < 40 { 90 } else { us.saturating_sub(60).min(5) }), [0, 61]);
    }

    #[test]
    fn s26_back_pressure_is_sent_for_drops_and_counts_them() {
        let mut law = PressureLaw::new(Qpn::new(0x11), THRESHOLD_BYTES, 7);
        let backlog = |drops| Backlog { waiting_bytes: 100, drops, number: 0 };
        let mut observe = |us, drops| law.observe(backlog(drops), ROUND_TRIP, Time::from_us(us));
        assert_eq!(observe(1, 7), None, "dropped before");
        let notice = observe(2, 10).expect("three drops");
        let expected = BackPressure { qpn: Qpn::new(0x11), severity: 2, waiting_bytes: 100, count: 3 };
        assert_eq!(notice, expected);
        assert_eq!(observe(3, 12), None, "within a round trip");
        assert_eq!(observe(27, 12).map(|notice| notice.count), Some(2), "later");
        assert_eq!(observe(60, 12), None, "no more drops");
    }

    /// A round trip of zero, or of hours, by answers of a hostile peer.
    #[test]
    fn s26_the_interval_of_notices_is_bounded() {
        for (round_trip, expected) in [(Duration::ZERO, 6), (Duration::MAX, 100_005)] {
            let mut law = PressureLaw::new(Qpn::new(0x11), THRESHOLD_BYTES, 0);
            let backlog = |us| Backlog { waiting_bytes: (1 << 20) + us, drops: 0, number: 0 };
            let mut observe = |us| law.observe(backlog(us), round_trip, Time::from_us(us)).is_some();
            assert_eq!((observe(5), observe(5 + expected - 1), observe(5 + expected)), (true, false, true));
        }
    }
}
