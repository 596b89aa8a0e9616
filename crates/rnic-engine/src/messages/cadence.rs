//! The times at which a NIC sends a message to a peer: three modes.
//!
//! Source: SCR (NSDI'25) section 4.3.1, mechanism S-7: periodically, after a number of in-band bytes, or when a
//! utilisation changes. Modes can be combined: the first condition that is met causes a message, and all modes then
//! restart.

use core::num::NonZeroU64;

use rnic_base::{Duration, RandomStream, Time};

/// Modes in which messages are sent, as enabled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Modes {
    /// Sends a message each period, with a jitter of 1/8 of the period, so that peers do not synchronize.
    pub periodic: bool,
    /// Sends a message each time this number of bytes has been sent to the peer, at least [`SAMPLING_BYTES_MIN`].
    pub sampling_bytes: Option<NonZeroU64>,
    /// Sends a message when a load has changed by more than 10 percentage points since the last message, but at most
    /// one per period.
    pub anomaly: bool,
}

/// Minimum number of bytes between two messages in mode sampling. A message takes 194 bytes on the wire, so messages
/// use at most 5 % of the link.
pub const SAMPLING_BYTES_MIN: u64 = 4_096;

/// Shortest and longest period; a value outside is replaced by the nearer one.
pub const PERIODS: [Duration; 2] = [Duration::from_us(1), Duration::from_secs(10)];

/// Loads that mode anomaly compares, as fractions of 2^16.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Loads {
    /// Utilisation of the host bus.
    pub bus: u16,
    /// Utilisation of the port.
    pub port: u16,
    /// Packets dropped, as a fraction of the packets received.
    pub drops: u16,
}

/// Reason to send a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The period has ended.
    Period,
    /// Enough bytes have been sent.
    Bytes,
    /// A load has changed by more than the threshold.
    Change,
}

/// Decides when messages to one peer are sent.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    modes: Modes,
    period: Duration,
    /// Time of the next message of mode periodic.
    next_at: Time,
    /// True while mode periodic is paused.
    rests: bool,
    /// Time from which mode anomaly may send again.
    quiet_until: Time,
    /// Bytes sent to the peer since the last message.
    bytes: u64,
    /// Loads at the time of the last message; before the first message, the first loads recorded.
    reported: Option<Loads>,
    /// Loads of this NIC as last measured.
    loads: Option<Loads>,
}

impl Cadence {
    /// Starts at `now`. The first period also has a jitter drawn from `random`.
    #[must_use]
    pub fn new(modes: Modes, period: Duration, now: Time, random: &mut RandomStream) -> Self {
        let period = clamp(period);
        let (bytes, reported, loads) = (0, None, None);
        let next_at = now + jittered(period, random);
        Self { modes, period, next_at, rests: false, quiet_until: now, bytes, reported, loads }
    }

    /// Counts in-band bytes sent to the peer.
    pub fn count_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Records the current loads. The first ones are the reference for later ones.
    pub fn observe(&mut self, loads: Loads) {
        self.reported.get_or_insert(loads);
        self.loads = Some(loads);
    }

    /// Returns the reason to send a message at `now`, if there is one.
    #[must_use]
    pub fn due(&self, now: Time) -> Option<Cause> {
        if self.modes.periodic && !self.rests && now >= self.next_at {
            return Some(Cause::Period);
        }
        if self.modes.sampling_bytes.is_some_and(|bytes| self.bytes >= bytes.get().max(SAMPLING_BYTES_MIN)) {
            return Some(Cause::Bytes);
        }
        (self.has_changed() && now >= self.quiet_until).then_some(Cause::Change)
    }

    /// Returns the time at which [`Self::due`] has to be called again, if nothing else happens before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let periodic = (self.modes.periodic && !self.rests).then_some(self.next_at);
        let change = self.has_changed().then_some(self.quiet_until);
        periodic.into_iter().chain(change).min()
    }

    /// Records that a message was sent at `now`; all modes restart.
    pub fn sent(&mut self, now: Time, random: &mut RandomStream) {
        self.next_at = now + jittered(self.period, random);
        self.quiet_until = now + self.period;
        self.bytes = 0;
        self.reported = self.loads;
    }

    /// Defers the next messages of modes periodic and anomaly.
    pub fn postpone(&mut self, by: Duration) {
        self.next_at += by;
        self.quiet_until += by;
    }

    /// Pauses mode periodic until [`Self::resume`].
    pub fn rest(&mut self) {
        self.rests = true;
    }

    /// Starts a period at `now`, if mode periodic is paused; returns whether it was.
    pub fn resume(&mut self, now: Time, random: &mut RandomStream) -> bool {
        let did_rest = std::mem::take(&mut self.rests);
        if did_rest {
            self.next_at = now + jittered(self.period, random);
        }
        did_rest
    }

    fn has_changed(&self) -> bool {
        let (Some(reported), Some(loads)) = (self.reported, self.loads) else { return false };
        let pairs = [(reported.bus, loads.bus), (reported.port, loads.port), (reported.drops, loads.drops)];
        self.modes.anomaly && pairs.iter().any(|(before, after)| before.abs_diff(*after) > TEN_POINTS)
    }
}

/// Ten points in fractions of 2^16, rounded down: a difference of more than this is more than ten points.
const TEN_POINTS: u16 = 6_553;

fn clamp(period: Duration) -> Duration {
    period.clamp(PERIODS[0], PERIODS[1])
}

/// Returns a duration between 7/8 and 9/8 of `period`.
fn jittered(period: Duration, random: &mut RandomStream) -> Duration {
    let eighth = period.as_ps() / 8;
    Duration::from_ps(period.as_ps() - eighth + random.below(2 * eighth + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rnic_base::RandomStreams;

    use super::*;

    const PERIOD: Duration = Duration::from_us(20);
    /// 100 Gbit/s carry 12,500 bytes in 1 us.
    const BYTES_PER_US: u64 = 12_500;

    fn random() -> RandomStream {
        RandomStreams::new(1).stream("scr/oob")
    }

    fn sampling(bytes: u64) -> Modes {
        Modes { sampling_bytes: NonZeroU64::new(bytes), ..Modes::default() }
    }

    const PERIODIC: Modes = Modes { periodic: true, sampling_bytes: None, anomaly: false };
    const ANOMALY: Modes = Modes { periodic: false, sampling_bytes: None, anomaly: true };

    /// Runs in steps of 1 us, in each of which `load` gives the bytes sent and the utilisation of the bus in percent;
    /// returns the log of messages, with times in us.
    fn log(modes: Modes, until_us: u64, load: impl Fn(u64) -> (u64, u16)) -> Vec<(u64, Cause)> {
        let mut random = random();
        let mut cadence = Cadence::new(modes, PERIOD, Time::ZERO, &mut random);
        let mut log = Vec::new();
        for us in 0..=until_us {
            let (bytes, bus_percent) = load(us);
            let bus = (u32::from(bus_percent) * 65_536 / 100).min(65_535) as u16;
            cadence.count_bytes(bytes);
            cadence.observe(Loads { bus, ..Loads::default() });
            if let Some(cause) = cadence.due(Time::from_us(us)) {
                cadence.sent(Time::from_us(us), &mut random);
                log.push((us, cause));
            }
        }
        log
    }

    /// The interval is 7/8 of the period and a number of picoseconds up to 2/8 of it: 17.5 us and up to 5 us.
    #[test]
    fn s7_periodic_sends_at_the_times_that_the_stream_gives() {
        let (mut random, mut draws) = (random(), random());
        let mut cadence = Cadence::new(PERIODIC, PERIOD, Time::ZERO, &mut random);
        let mut expected = Time::ZERO;
        let mut shortest_and_longest = [u64::MAX, 0];
        for _ in 0..1_000 {
            let interval = 17_500_000 + draws.below(5_000_001);
            let [shortest, longest] = shortest_and_longest;
            shortest_and_longest = [shortest.min(interval), longest.max(interval)];
            expected += Duration::from_ps(interval);
            assert_eq!(cadence.next_timeout(), Some(expected));
            assert_eq!(cadence.due(expected - Duration::from_ps(1)), None);
            assert_eq!(cadence.due(expected), Some(Cause::Period));
            cadence.sent(expected, &mut random);
        }
        let [shortest, longest] = shortest_and_longest;
        assert!(shortest < 17_600_000 && longest > 22_400_000, "jitter of {shortest} to {longest} ps");
    }

    /// 250,000 bytes take 20 us: the byte that completes them is counted at 19 us, and each 20 us after.
    #[test]
    fn s7_sampling_sends_after_the_bytes_of_a_round_trip() {
        let expected: Vec<_> = (1..=5).map(|n| (20 * n - 1, Cause::Bytes)).collect();
        assert_eq!(log(sampling(250_000), 100, |_| (BYTES_PER_US, 50)), expected);
        let halved = log(sampling(250_000), 100, |_| (BYTES_PER_US / 2, 50));
        assert_eq!(halved, [(39, Cause::Bytes), (79, Cause::Bytes)]);
        assert_eq!(log(sampling(250_000), 100, |_| (0, 50)), [], "without traffic");
    }

    #[test]
    fn s7_sampling_never_sends_a_message_for_each_packet() {
        let messages = log(sampling(1), 1_000, |_| (1_102, 0)).len() as u64;
        assert_eq!(messages, 1_001 / 4, "4,096 bytes are four packets");
    }

    /// The load rises by 10 points at 10 us, which is not more than ten; by one more at 30 us; and by 40 at 35 us. That
    /// has to wait until a period after the message at 30 us. At 60 us the load falls back.
    #[test]
    fn s7_anomaly_sends_when_a_load_has_changed_by_more_than_ten_points() {
        let bus = |us| match us {
            0..10 => 20,
            10..30 => 30,
            30..35 => 31,
            35..60 => 71,
            _ => 20,
        };
        let expected = [(30, Cause::Change), (50, Cause::Change), (70, Cause::Change)];
        assert_eq!(log(ANOMALY, 200, |us| (BYTES_PER_US, bus(us))), expected);
    }

    #[test]
    fn s7_anomaly_sends_nothing_under_steady_load() {
        assert_eq!(log(ANOMALY, 10_000, |us| (BYTES_PER_US, 50 + (us % 7) as u16)), [], "in 10 ms");
    }

    #[test]
    fn s7_each_load_alone_is_a_change() {
        let eleven_points = 7_209;
        let base = Loads { bus: 20_000, port: 20_000, drops: 0 };
        for loads in [
            Loads { bus: base.bus - eleven_points, ..base },
            Loads { port: base.port + eleven_points, ..base },
            Loads { drops: eleven_points, ..base },
        ] {
            let mut cadence = Cadence::new(ANOMALY, PERIOD, Time::ZERO, &mut random());
            cadence.observe(base);
            assert_eq!((cadence.due(Time::ZERO), cadence.next_timeout()), (None, None));
            cadence.observe(loads);
            assert_eq!((cadence.due(Time::ZERO), cadence.next_timeout()), (Some(Cause::Change), Some(Time::ZERO)));
        }
    }

    /// Bytes come first, after each 10 us until 40 us; then there is no traffic, and a change at 75 us follows.
    #[test]
    fn s7_sampling_and_anomaly_send_by_the_first_reason() {
        let modes = Modes { periodic: false, sampling_bytes: NonZeroU64::new(125_000), anomaly: true };
        let load = |us| (if us < 40 { BYTES_PER_US } else { 0 }, if us < 75 { 20 } else { 60 });
        let expected = [9, 19, 29, 39].map(|us| (us, Cause::Bytes));
        assert_eq!(log(modes, 110, load), [&expected[..], &[(75, Cause::Change)]].concat());
    }

    /// Each message starts the period anew: with bytes for a message each 10 us it never passes, and without traffic
    /// from 40 us on it decides.
    #[test]
    fn s7_sampling_and_periodic_send_by_the_first_reason() {
        let modes = Modes { periodic: true, sampling_bytes: NonZeroU64::new(125_000), anomaly: false };
        let log = log(modes, 110, |us| (if us < 40 { BYTES_PER_US } else { 0 }, 20));
        let expected = [9, 19, 29, 39].map(|us| (us, Cause::Bytes));
        assert_eq!(log[..4], expected);
        let mut last = 39;
        for (us, cause) in &log[4..] {
            assert!((18..=23).contains(&(us - last)) && *cause == Cause::Period, "{log:?}");
            last = *us;
        }
        assert!(last > 110 - 23, "{log:?}");
    }

    proptest! {
        /// A peer receives at most one message per 7/8 of a period, and one per number of bytes.
        #[test]
        fn s7_the_number_of_messages_is_bounded(
            steps in prop::collection::vec((0..50u64, 0..100_000u64, any::<u16>()), 0..300)
        ) {
            let modes = Modes { periodic: true, sampling_bytes: NonZeroU64::new(10_000), anomaly: true };
            let mut random = random();
            let (mut us, mut bytes, mut messages) = (0, 0, 0);
            let mut cadence = Cadence::new(modes, PERIOD, Time::ZERO, &mut random);
            for (step_us, step_bytes, bus) in steps {
                us += step_us;
                bytes += step_bytes;
                cadence.count_bytes(step_bytes);
                cadence.observe(Loads { bus, ..Loads::default() });
                if cadence.due(Time::from_us(us)).is_some() {
                    cadence.sent(Time::from_us(us), &mut random);
                    messages += 1;
                    prop_assert!(cadence.due(Time::from_us(us)).is_none());
                }
            }
            // Mode anomaly adds one at the start, before any message.
            let bound = us * 2 / 35 + bytes / 10_000 + 1;
            prop_assert!(messages <= bound, "{} messages, at most {}", messages, bound);
        }
    }
}
