//! Waiting while the rate is stable: the program does not run for records that tell it nothing new.
//!
//! Source: SCR (NSDI'25), section 4.3.2 ("convergence-aware" coalescing by software). All bounds are OpenRNIC's.
//!
//! A record is *folded* if the last eight rates were equal within 2 %, no restart was requested since, fewer than 15
//! were folded before it, the first of them is less than 100 us old, and the record itself is within 10 % of the
//! average. Every other record is processed, together with what was folded.
//!
//! Restrictions: a program sees sums and loses no byte. What is folded stays until the queue's next record: a flow that
//! stops has at most 15 records that its program has not seen.

use rnic_base::{Duration, Time};
use rnic_policy::{Meter, MeterScale};

use crate::queue::Strategy;
use crate::signal::{Kind, Signal};

/// Rates in a row that must be equal for a flow to be stable.
const STABLE_RATES: usize = 8;

/// Maximum number of records that are merged into one, including the one that is processed.
const RECORDS_MAX: u8 = 16;

/// Age at which merged records are processed in any case.
const AGE_MAX: Duration = Duration::from_us(100);

/// State of one queue that waits while the rate is stable.
#[derive(Clone, Debug, Default)]
pub struct Convergence {
    /// The last rates, as a ring.
    rates: [u32; STABLE_RATES],
    next: u8,
    /// Number of decided rates, at most [`STABLE_RATES`].
    decided: u8,
    is_stable: bool,
    /// Number of records merged into `folded`.
    records: u8,
    epoch: u32,
    meter: Meter,
    /// Value and level of the last processed record.
    processed: Option<(u64, u32)>,
    folded: Option<Signal>,
}

impl Convergence {
    /// Records `rate`, which the program decided for a record, or left unchanged.
    pub fn on_decision(&mut self, rate: u32) {
        self.rates[usize::from(self.next)] = rate;
        self.next = (self.next + 1) % STABLE_RATES as u8;
        if usize::from(self.decided) < STABLE_RATES {
            self.decided += 1;
        }
        let most = self.rates.iter().copied().max().unwrap_or(0);
        let least = self.rates.iter().copied().min().unwrap_or(0);
        self.is_stable = usize::from(self.decided) == STABLE_RATES && u64::from(most - least) * 50 <= u64::from(most);
    }

    /// Returns `true` if the last rates were equal within 2 %.
    pub const fn is_stable(&self) -> bool {
        self.is_stable
    }

    /// Returns the record that the program must process, including all merged ones; `None` if `record` was merged.
    /// `epoch` is the number of restarts.
    pub fn offer(&mut self, record: &Signal, epoch: u32, scale: &MeterScale) -> Option<Signal> {
        let is_near = self.is_near_average(record, scale);
        let is_folded = is_near
            && self.is_stable
            && self.epoch == epoch
            && self.records < RECORDS_MAX - 1
            && record.last.since(self.first(record)) < AGE_MAX;
        let mut sum = self.folded.take().unwrap_or(*record);
        if self.records > 0 {
            sum.fold(record, Strategy::WhileStable.kept_value());
        }
        if is_folded {
            (self.folded, self.records) = (Some(sum), self.records + 1);
            return None;
        }
        if self.epoch != epoch {
            // Rates from before the restart say nothing about those after it.
            (self.epoch, self.decided, self.is_stable) = (epoch, 0, false);
        }
        (self.records, self.processed) = (0, Some((sum.value, sum.level)));
        Some(sum)
    }

    /// Returns the merged records that have not been processed.
    pub const fn folded(&self) -> Option<&Signal> {
        self.folded.as_ref()
    }

    fn first(&self, record: &Signal) -> Time {
        self.folded.as_ref().map_or(record.first, |folded| folded.first)
    }

    /// Counts the bytes of `record`, and returns `true` if it differs by at most 10 % from what the program has seen:
    /// its bandwidth from the average before it, or its values from those processed last.
    fn is_near_average(&mut self, record: &Signal, scale: &MeterScale) -> bool {
        if is_counted_in_bytes(record.kind) {
            let (was_measured, average) = (self.meter.is_measured(), self.meter.share());
            let share = self.meter.measure(record.bytes, record.last, scale);
            return was_measured && share.is_some_and(|share| is_near(share.into(), average.into()));
        }
        self.processed
            .is_some_and(|(value, level)| is_near(record.value, value) && is_near(record.level.into(), level.into()))
    }
}

const fn is_counted_in_bytes(kind: Kind) -> bool {
    matches!(kind, Kind::Tx | Kind::Rx)
}

/// Returns `true` if `value` differs from `average` by at most 10 % of it.
const fn is_near(value: u64, average: u64) -> bool {
    value.abs_diff(average) <= average / 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::BitRate;
    use rnic_policy::MeterWeight;

    const LINE: BitRate = BitRate::gbps(100);
    const SCALE: MeterScale = MeterScale::new(LINE, MeterWeight::Event);

    /// Returns TX records of 6250 bytes each microsecond: half of the line rate.
    fn tx(us: u64) -> Signal {
        Signal::new(Kind::Tx, 3, Time::from_us(us)).with_bytes(6_250)
    }

    /// Returns a state whose last eight rates were equal, and the time of its next record in microseconds.
    fn stable() -> (Convergence, u64) {
        let mut convergence = Convergence::default();
        for us in 0..8 {
            assert_eq!(convergence.offer(&tx(us), 0, &SCALE), Some(tx(us)), "not stable yet");
            convergence.on_decision(1_000);
        }
        (convergence, 8)
    }

    #[test]
    fn s11_while_the_rate_is_stable_15_of_16_records_are_folded() {
        let (mut convergence, mut us) = stable();
        for _ in 0..3 {
            let first = us;
            for _ in 0..15 {
                assert_eq!(convergence.offer(&tx(us), 0, &SCALE), None);
                us += 1;
            }
            let processed = convergence.offer(&tx(us), 0, &SCALE).expect("it is the sixteenth");
            assert_eq!((processed.count, processed.bytes), (16, 16 * 6_250));
            assert_eq!((processed.first, processed.last), (Time::from_us(first), Time::from_us(us)));
            convergence.on_decision(1_000);
            us += 1;
        }
    }

    #[test]
    fn s11_rates_that_differ_by_more_than_2_percent_are_not_stable() {
        for (rate, is_stable) in [(1_000, true), (981, true), (979, false), (1_020, true), (1_021, false)] {
            let (mut convergence, _) = stable();
            convergence.on_decision(rate);
            assert_eq!(convergence.is_stable(), is_stable, "{rate}");
        }
        let mut convergence = Convergence::default();
        (0..7).for_each(|_| convergence.on_decision(5));
        assert!(!convergence.is_stable(), "seven rates");
    }

    #[test]
    fn s11_a_restart_a_change_of_bandwidth_and_age_end_the_waiting() {
        let (mut convergence, us) = stable();
        assert!(convergence.offer(&tx(us), 1, &SCALE).is_some(), "a restart");
        assert!(convergence.offer(&tx(us + 1), 1, &SCALE).is_some(), "rates from before the restart do not count");

        let (mut convergence, us) = stable();
        assert_eq!(convergence.offer(&tx(us), 0, &SCALE), None);
        let faster = tx(us + 1).with_bytes(7_000);
        assert_eq!(convergence.offer(&faster, 0, &SCALE).map(|sum| sum.bytes), Some(13_250), "12 % faster");

        let (mut convergence, us) = stable();
        let slow = |step: u64| Signal { bytes: 6_250 * 40, ..tx(us - 1 + 40 * step) };
        assert_eq!(convergence.offer(&slow(1), 0, &SCALE), None);
        assert_eq!(convergence.offer(&slow(2), 0, &SCALE), None);
        assert_eq!(convergence.offer(&slow(3), 0, &SCALE), None, "80 us after the first");
        assert_eq!(convergence.offer(&slow(4), 0, &SCALE).map(|sum| sum.count), Some(4), "120 us after the first");
    }

    #[test]
    fn s11_values_are_compared_with_those_processed_last() {
        let bus = |us, latency, level| Signal::new(Kind::Bus, 0, Time::from_us(us)).with_value(latency, level);
        let mut convergence = Convergence::default();
        for us in 0..8 {
            assert!(convergence.offer(&bus(us, 600_000, 32_768), 0, &SCALE).is_some());
            convergence.on_decision(7);
        }
        assert_eq!(convergence.offer(&bus(9, 650_000, 32_768), 0, &SCALE), None);
        let slower = bus(10, 661_000, 32_768);
        assert_eq!(convergence.offer(&slower, 0, &SCALE).map(|sum| (sum.count, sum.value)), Some((2, 661_000)));
        assert!(convergence.offer(&bus(11, 661_000, 40_000), 0, &SCALE).is_some(), "the utilisation changed");
        assert!(convergence.folded().is_none());
    }

    #[test]
    fn s11_no_byte_is_lost_by_waiting() {
        let (mut convergence, mut us) = stable();
        let (mut offered, mut processed) = (0, 0);
        for step in 0..10_000u64 {
            us += 1 + step % 3 / 2;
            let record = tx(us).with_bytes(6_000 + step * 7_919 % 900);
            offered += record.bytes;
            if let Some(sum) = convergence.offer(&record, u32::from(step > 5_000), &SCALE) {
                processed += sum.bytes;
                convergence.on_decision(1_000);
            }
        }
        assert_eq!(offered, processed + convergence.folded().map_or(0, |folded| folded.bytes));
    }
}
