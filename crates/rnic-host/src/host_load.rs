//! The load of this host, for the NICs of peers and for congestion control (SCR mechanism S-9): how long received
//! packets wait until the NIC takes them, and how much of the time it is busy.
//!
//! A NIC in software has no bus whose latency could be measured. What takes its place is the *host delay*: the time
//! from the reception of a packet by the kernel (`SO_TIMESTAMPNS`), or from its publication in a ring in shared memory,
//! until the NIC takes it. It contains the time in which the process did not run, did something else, or handled
//! earlier packets. The time from when a packet is due until it leaves is no part of it: a probe carries the time at
//! which it leaves, so round trips do not contain that time either, and congestion control subtracts one from the
//! other.
//!
//! | in | out |
//! |---|---|
//! | the wait of each train of datagrams, and of one record in each read of a ring | its mean over [`INTERVAL`] |
//! | the time of each call of the NIC's loop, and whether it had work | the part of the time after calls with work |
//!
//! Only what came from peers counts. A time stamp is of the clock of the date: when the date is set, the packets that
//! wait then count with a wrong time, at most [`DELAY_MAX`]. Another process may write what it likes into a ring: its
//! records count as published after the ring was last found empty.

use rnic_base::{Duration, Time};
use rnic_engine::messages::exchange::HostLoad;

/// Measures the load of this host.
#[derive(Debug)]
pub(crate) struct HostMeter {
    /// Start of the current interval.
    began: Time,
    /// Sum of the waiting times in the current interval, and their number.
    waited: Duration,
    waits: u64,
    /// Time in the current interval that followed calls with work.
    busy: Duration,
    /// Time of the last call of the NIC's loop, and whether it had work.
    called_at: Time,
    had_work: bool,
    /// Mean waiting time in the last interval with any, and the end of that interval.
    delay: Option<(Duration, Time)>,
    /// Utilisation of the NIC in the last interval, as a fraction of 2^16.
    nic_use: u16,
}

impl HostMeter {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            began: now,
            waited: Duration::ZERO,
            waits: 0,
            busy: Duration::ZERO,
            called_at: now,
            had_work: false,
            delay: None,
            nic_use: 0,
        }
    }

    /// Counts packets that waited for `waited_ns` nanoseconds until the NIC read them.
    pub(crate) fn record_wait(&mut self, waited_ns: u64) {
        self.waited += Duration::from_ns(waited_ns.min(DELAY_MAX.as_ns()));
        self.waits += 1;
    }

    /// Records a call of the NIC's loop that began at `now`, and whether it had work.
    #[inline]
    pub(crate) fn note_call(&mut self, now: Time, had_work: bool) {
        if std::mem::replace(&mut self.had_work, had_work) {
            self.busy += now.since(self.called_at);
        }
        self.called_at = now;
        self.end_interval(now);
    }

    /// Returns the load. Without a packet for [`RECENT`], there is no delay.
    pub(crate) fn load(&mut self, now: Time) -> HostLoad {
        self.end_interval(now);
        HostLoad {
            bus_latency: self.delay(now).unwrap_or_default(),
            bus_use: 0,
            nic_use: self.nic_use,
            context_misses: 0,
        }
    }

    /// Returns the delay of the last interval in which packets were taken, if that was lately.
    pub(crate) fn delay(&self, now: Time) -> Option<Duration> {
        self.delay.filter(|(_, at)| now.since(*at) <= RECENT).map(|(delay, _)| delay)
    }

    /// Ends the current interval if it is over at `now`.
    fn end_interval(&mut self, now: Time) {
        let elapsed = now.since(self.began);
        if elapsed < INTERVAL {
            return;
        }
        if self.waits > 0 {
            self.delay = Some((self.waited / self.waits, now));
        }
        let busy = u128::from(self.busy.as_ps()) * u128::from(u16::MAX) / u128::from(elapsed.as_ps());
        self.nic_use = busy.min(u128::from(u16::MAX)) as u16;
        (self.began, self.waited, self.waits, self.busy) = (now, Duration::ZERO, 0, Duration::ZERO);
    }
}

/// Shortest interval over which the load is measured: that of reports, so that each report covers a separate interval.
pub(crate) const INTERVAL: Duration = Duration::from_ms(4);

/// Maximum delay that counts: the process was stopped, or a clock was set.
pub(crate) const DELAY_MAX: Duration = Duration::from_ms(100);

/// Time for which a delay is valid without further packets.
const RECENT: Duration = Duration::from_ms(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_us(us)
    }

    #[test]
    fn s9_the_delay_is_the_mean_wait_of_the_last_interval() {
        let mut meter = HostMeter::new(at(0));
        assert_eq!((meter.delay(at(0)), meter.load(at(0)).bus_latency), (None, Duration::ZERO));
        meter.record_wait(100_000);
        meter.record_wait(300_000);
        assert_eq!(meter.load(at(3_999)).bus_latency, Duration::ZERO, "the interval is not over");
        assert_eq!(meter.load(at(4_000)).bus_latency, Duration::from_us(200));
        // The next interval is without packets, and the one after with others.
        assert_eq!(meter.load(at(8_000)).bus_latency, Duration::from_us(200));
        meter.record_wait(7_000);
        assert_eq!(meter.load(at(12_000)).bus_latency, Duration::from_us(7));
        assert_eq!(meter.delay(at(112_000)), Some(Duration::from_us(7)));
        assert_eq!(meter.delay(at(112_001)), None, "it is old");
    }

    /// A process that was off its core for 10 ms finds packets that have waited.
    #[test]
    fn s9_a_process_that_did_not_run_reports_that_at_once() {
        let mut meter = HostMeter::new(at(0));
        meter.note_call(at(100), true);
        (0..8).for_each(|_| meter.record_wait(9_000_000));
        assert_eq!(meter.load(at(10_100)).bus_latency, Duration::from_ms(9));
    }

    #[test]
    fn s9_a_delay_is_bounded() {
        let mut meter = HostMeter::new(at(0));
        (0..3).for_each(|_| meter.record_wait(u64::MAX));
        assert_eq!(meter.load(at(4_000)).bus_latency, DELAY_MAX);
    }

    /// Calls every 100 us, of which the first 10 in 40 have work.
    #[test]
    fn s9_the_use_of_a_nic_is_the_time_after_calls_with_work() {
        let mut meter = HostMeter::new(at(0));
        for call in 0..=40 {
            meter.note_call(at(call * 100), call < 10);
        }
        let quarter = 65_535 / 4;
        assert!(meter.load(at(4_000)).nic_use.abs_diff(quarter) <= 1, "{}", meter.load(at(4_000)).nic_use);
        for call in 41..=80 {
            meter.note_call(at(call * 100), true);
        }
        assert!(meter.load(at(8_000)).nic_use > 63_000);
        assert_eq!(meter.load(at(20_000)).nic_use, 0, "nothing was driven");
    }
}
