//! A meter of a flow's bandwidth: bytes by time since the last event, smoothed.
//!
//! Source: SCR (NSDI'25), section 5.1, whose scheduler compares the bandwidth of each queue pair with its rate. The
//! weights and the extra bits are not specified by SCR.
//!
//! An event gives bytes and the time of the *last* packet in it; the time of the event itself would include the time
//! that it waited. Bandwidths are shares of the line rate in Q20: 2^20 is the line rate, steps are 95 kbit/s at 100
//! Gbit/s. The average has 16 more bits: without them its steps are rounded to zero 7 units below the truth.

use bytemuck::{Pod, Zeroable};
use rnic_base::{BitRate, Duration, Time};

/// The line rate, in the unit in which a meter returns shares of it (Q20).
pub const SHARE_ONE: u32 = 1 << 20;

/// Maximum share of an interval: twice the line rate. Packets that were held back can be sent faster than the line rate
/// for a moment.
const SHARE_MAX: u64 = 2 << 20;

/// Number of fractional bits of the average in addition to those of a returned share.
const EXTRA_BITS: u32 = 16;

/// Number of bits of a weight by time.
const WEIGHT_BITS: u32 = 24;

/// Interval length with which, weighted by time, a new value counts one half.
const TIME_CONSTANT_PS: u64 = Duration::from_us(32).as_ps();

/// Maximum interval that is distinguished, 0.55 s: a longer one has the same weight, 1 - 1/17,000.
const INTERVAL_MAX_PS: u64 = 1 << 39;

/// The weight of an interval in the average.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MeterWeight {
    /// Every interval has weight 1/8, whatever its length. If events are merged irregularly, short intervals count too
    /// much.
    #[default]
    Event,
    /// An interval of length `dt` has weight `dt / (dt + 32 us)`.
    Time,
}

/// The settings of a meter, with the division by the line rate done in advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterScale {
    /// Picoseconds that a byte takes on the link, in Q20.
    ps_per_byte: u64,
    weight: MeterWeight,
}

impl MeterScale {
    /// Returns the scale of meters for a link of `line_rate`, at least 1 bit/s.
    #[inline]
    pub const fn new(line_rate: BitRate, weight: MeterWeight) -> Self {
        const PS_PER_S: u64 = 1_000_000_000_000;
        let bits_per_second = if line_rate.as_bps() == 0 { 1 } else { line_rate.as_bps() };
        Self { ps_per_byte: ((8 * PS_PER_S) << 20) / bits_per_second, weight }
    }

    /// Returns the share of the line rate that transfers `bytes` in `interval_ps`, which is not zero.
    #[inline]
    fn share(&self, bytes: u32, interval_ps: u64) -> u64 {
        let share = match u64::from(bytes).checked_mul(self.ps_per_byte) {
            Some(line_time) => line_time / interval_ps,
            // A slow line, or megabytes in one event.
            None => (u128::from(bytes) * u128::from(self.ps_per_byte) / u128::from(interval_ps))
                .min(u128::from(SHARE_MAX)) as u64,
        };
        share.min(SHARE_MAX)
    }
}

/// The meter of one flow: 24 bytes of plain data, initially zero, so that it fits into a policy's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Meter {
    /// Time of the last packet, in picoseconds.
    last: u64,
    /// Average share with `EXTRA_BITS` additional fractional bits.
    average: i64,
    /// Bytes since the last interval ended.
    bytes: u32,
    /// Number of events that were later than the preceding one: none, one (no interval yet), or more.
    instants: u32,
}

const _: () = assert!(size_of::<Meter>() <= 32);

impl Meter {
    /// Counts `bytes`, the last of which were sent at `last_sent`; returns `true` if the average was updated.
    ///
    /// The first event only starts the first interval: one time gives no bandwidth, and its bytes were sent before it.
    /// Bytes of an event at the same time as the last one, or earlier, count in the next interval, and an interval goes
    /// on while its bytes are more than twice what the line carries in it: so no bytes are lost.
    #[inline]
    pub fn record(&mut self, bytes: u64, last_sent: Time, scale: &MeterScale) -> bool {
        self.measure(bytes, last_sent, scale).is_some()
    }

    /// Like [`Meter::record`], but returns the share of the line rate in the interval that ends with the event, if an
    /// interval ends.
    #[inline]
    pub fn measure(&mut self, bytes: u64, last_sent: Time, scale: &MeterScale) -> Option<u32> {
        let now = last_sent.as_ps();
        if self.instants == 0 {
            (self.last, self.instants) = (now, 1);
            return None;
        }
        let is_same_instant = now <= self.last;
        if is_same_instant && self.instants == 1 {
            return None;
        }
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if is_same_instant {
            return None;
        }
        let interval = now - self.last;
        let share = scale.share(self.bytes, interval);
        if share >= SHARE_MAX {
            // A NIC can take packets from a queue pair faster than the link carries them.
            return None;
        }
        let measured = (share as i64) << EXTRA_BITS;
        self.average = match (self.instants, scale.weight) {
            (1, _) => measured,
            (_, MeterWeight::Event) => self.average + ((measured - self.average + 4) >> 3),
            (_, MeterWeight::Time) => self.average + weighted(measured - self.average, interval),
        };
        (self.last, self.bytes, self.instants) = (now, 0, 2);
        Some(share as u32)
    }

    /// Returns the average as a share of the line rate in Q20; zero before the first interval ends.
    #[inline]
    pub const fn share(&self) -> u32 {
        ((self.average + (1 << (EXTRA_BITS - 1))) >> EXTRA_BITS) as u32
    }

    /// Returns the average as a rate, for a link of `line_rate`.
    #[inline]
    pub const fn rate(&self, line_rate: BitRate) -> BitRate {
        BitRate::bps(((line_rate.as_bps() as u128 * self.share() as u128) >> 20) as u64)
    }

    /// Returns `true` if an interval was measured.
    #[inline]
    pub const fn is_measured(&self) -> bool {
        self.instants > 1
    }
}

/// Returns `difference * interval / (interval + TIME_CONSTANT_PS)`, rounded.
#[inline]
const fn weighted(difference: i64, interval_ps: u64) -> i64 {
    let interval = if interval_ps < INTERVAL_MAX_PS { interval_ps } else { INTERVAL_MAX_PS };
    let weight = ((interval << WEIGHT_BITS) / (interval + TIME_CONSTANT_PS)) as i64;
    (difference * weight + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::PolicyState;
    use rnic_base::RandomStreams;

    const LINE: BitRate = BitRate::gbps(100);
    const PACKET: u64 = 1_102;
    const WEIGHTS: [MeterWeight; 2] = [MeterWeight::Event, MeterWeight::Time];

    /// Sends packets at a percentage of the line rate, and reports several of them per event.
    struct Sender {
        now: Time,
        percent: u64,
    }

    impl Sender {
        /// Returns the bytes and the last transmit time of the next `packets` packets.
        fn fold(&mut self, packets: u64) -> (u64, Time) {
            self.now += LINE.serialize(PACKET * packets) * 100 / self.percent;
            (PACKET * packets, self.now)
        }
    }

    fn percent(meter: &Meter) -> f64 {
        f64::from(meter.share()) * 100.0 / f64::from(SHARE_ONE)
    }

    #[test]
    fn s18_a_constant_rate_is_measured_within_1_percent_however_events_are_folded() {
        for (weight, rate) in WEIGHTS.into_iter().flat_map(|weight| [1, 10, 47, 90, 100].map(|rate| (weight, rate))) {
            let scale = MeterScale::new(LINE, weight);
            let mut random = RandomStreams::new(rate).stream("meter");
            let (mut meter, mut sender) = (Meter::default(), Sender { now: Time::from_us(3), percent: rate });
            for _ in 0..40 {
                let (bytes, at) = sender.fold([1, 8, 64][random.below(3) as usize]);
                meter.record(bytes, at, &scale);
            }
            let measured = percent(&meter);
            assert!((measured / rate as f64 - 1.0).abs() < 0.01, "{weight:?}: {measured} of {rate} percent");
        }
    }

    #[test]
    fn s18_jitter_within_folded_events_does_not_bias_a_meter_that_weights_by_time() {
        let scale = MeterScale::new(LINE, MeterWeight::Time);
        let mut random = RandomStreams::new(5).stream("jitter");
        let (mut meter, mut sender) = (Meter::default(), Sender { now: Time::ZERO, percent: 50 });
        let (mut sum, mut count) = (0.0, 0u32);
        for event in 0..4_000 {
            let (bytes, at) = sender.fold([1, 8, 64][random.below(3) as usize]);
            meter.record(bytes, at + Duration::from_ns(random.below(80)), &scale);
            if event >= 40 {
                (sum, count) = (sum + percent(&meter), count + 1);
            }
        }
        let mean = sum / f64::from(count);
        assert!((mean - 50.0).abs() < 1.0, "{mean} of 50 percent");
    }

    #[test]
    fn s18_a_step_reaches_90_percent_in_18_events() {
        let scale = MeterScale::new(LINE, MeterWeight::Event);
        let (mut meter, mut sender) = (Meter::default(), Sender { now: Time::ZERO, percent: 10 });
        for _ in 0..40 {
            let (bytes, at) = sender.fold(8);
            meter.record(bytes, at, &scale);
        }
        sender.percent = 90;
        let after: Vec<f64> = (0..18)
            .map(|_| {
                let (bytes, at) = sender.fold(8);
                meter.record(bytes, at, &scale);
                percent(&meter)
            })
            .collect();
        // 1 - (7/8)^17 = 0.897 and 1 - (7/8)^18 = 0.910 of the step from 10 to 90.
        assert!(after[16] < 82.0 && after[17] >= 82.0, "{after:?}");
    }

    #[test]
    fn s18_the_average_does_not_stall_below_the_truth() {
        for weight in WEIGHTS {
            let scale = MeterScale::new(LINE, weight);
            let (mut meter, mut sender) = (Meter::default(), Sender { now: Time::ZERO, percent: 10 });
            // The intervals of both rates are whole picoseconds.
            for percent in [10, 80] {
                sender.percent = percent;
                for _ in 0..10_000 {
                    let (bytes, at) = sender.fold(1);
                    meter.record(bytes, at, &scale);
                }
            }
            let truth = u64::from(SHARE_ONE) * 80 / 100;
            assert!(u64::from(meter.share()).abs_diff(truth) <= 1, "{weight:?}: {} of {truth}", meter.share());
        }
    }

    #[test]
    fn s18_bytes_of_the_same_instant_count_once() {
        let scale = MeterScale::new(LINE, MeterWeight::Event);
        let mut meter = Meter::default();
        assert!(!meter.record(5_000, Time::from_us(1), &scale), "one time gives no bandwidth");
        assert!(!meter.record(5_000, Time::from_us(1), &scale), "still one time");
        assert!(!meter.is_measured());
        assert!(meter.record(6_250, Time::from_us(2), &scale));
        assert_eq!(meter.share(), SHARE_ONE / 2, "6250 bytes in 1 us are 50 Gbit/s");
        // The second event is at the time of the last interval's end, the third earlier: both count in the next one.
        assert!(!meter.record(3_000, Time::from_us(2), &scale));
        assert!(!meter.record(250, Time::from_ns(1_999), &scale));
        assert_eq!(meter.measure(3_000, Time::from_us(3), &scale), Some(SHARE_ONE / 2));
        assert_eq!(meter.share(), SHARE_ONE / 2);
        assert_eq!(meter.rate(LINE), BitRate::gbps(50));
    }

    /// A NIC accepts bursts of packets within a few nanoseconds: their bytes are counted like all others.
    #[test]
    fn s18_bursts_faster_than_the_line_do_not_bias_the_average() {
        let scale = MeterScale::new(LINE, MeterWeight::Time);
        let (mut meter, mut sum) = (Meter::default(), 0.0);
        for burst in 1..=2_000u64 {
            // Four packets of 334 bytes every 4 us: 2.672 % of the line rate.
            for packet in 0..4 {
                meter.record(334, Time::from_us(4 * burst) + Duration::from_ns(5 * packet), &scale);
            }
            sum += if burst > 1_000 { percent(&meter) } else { 0.0 };
        }
        let mean = sum / 1_000.0;
        assert!((mean / 2.672 - 1.0).abs() < 0.1, "{mean} percent");
    }

    #[test]
    fn s18_no_input_overflows() {
        for weight in WEIGHTS {
            for line in [BitRate::ZERO, BitRate::bps(1), BitRate::gbps(800), BitRate::bps(u64::MAX)] {
                let scale = MeterScale::new(line, weight);
                let mut meter = Meter::default();
                for (bytes, ps) in [(0, 0), (u64::MAX, 1), (u64::MAX, 1), (1, u64::MAX), (0, u64::MAX)] {
                    meter.record(bytes, Time::from_ps(ps), &scale);
                    assert!(u64::from(meter.share()) <= SHARE_MAX);
                    meter.rate(line);
                }
            }
        }
    }

    #[test]
    fn s18_a_meter_fits_a_policys_state_with_room_for_a_law() {
        assert_eq!(size_of::<Meter>(), 24);
        assert!(!PolicyState::default().get_mut::<Meter>().is_measured(), "zero bytes are a new meter");
    }
}
