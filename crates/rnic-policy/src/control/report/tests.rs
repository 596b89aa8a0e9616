//! Arithmetic of delays modulo 2^24, and the short codes.

use super::*;
use crate::kit;

const IN_FORCE: CurrentSettings = CurrentSettings {
    fcwnd: Cwnd::ONE,
    ncwnd: 64,
    gap: Gap::NONE,
    rate: RateLimit::NONE,
    rto: Ticks::MAX,
    ack_rate: AckRate::ALL,
};

/// Returns the report of a packet that is sent at `sent`, takes `forward`, waits `wait` at the receiver, and whose
/// acknowledgement takes `backward`; the receiver's clock is ahead by `skew`.
fn report(sent: u32, forward: u32, wait: u32, backward: u32, skew: u32) -> FlowReport {
    let now = Ticks::new(sent.wrapping_add(forward + wait + backward));
    let unskewed = kit::report(0, now, [forward, wait, backward], IN_FORCE);
    let skewed = |time: Ticks| Ticks::new(time.get().wrapping_add(skew));
    FlowReport { acked: 1, hops: 3, t2: skewed(unskewed.t2), t3: skewed(unskewed.t3), ..unskewed }
}

#[test]
fn f17_a_skewed_clock_leaves_the_fabric_delay_unchanged() {
    let second = Ticks::of(Duration::from_secs(1)).get();
    assert_eq!(second, 7_629_395);
    for skew in [0, 1, second, Ticks::MAX.get(), Ticks::MAX.get() / 2] {
        for sent in [0, Ticks::MAX.get() - 50, Ticks::MAX.get()] {
            let report = report(sent, 90, 40, 100, skew);
            assert_eq!(report.fabric_delay().get(), 190, "skew {skew}, sent {sent}");
            assert_eq!(report.rtt().get(), 230);
        }
    }
}

#[test]
fn f17_a_wait_at_the_receiver_lengthens_the_round_trip_and_not_the_fabric_delay() {
    for wait in [0, 61, 100_000] {
        let report = report(16_777_000, 90, wait, 100, 12_345);
        assert_eq!(report.fabric_delay().get(), 190);
        assert_eq!(report.rtt().get(), 190 + wait);
    }
}

#[test]
fn f17_rounding_never_makes_a_short_delay_two_seconds() {
    // The path takes half a tick; with clocks of whole ticks, the time at the receiver is longer than the total.
    let [t1, t2, t3, t4] = [10, 10, 12, 11].map(Ticks::new);
    let report = FlowReport { t1, t2, t3, t4, ..report(0, 0, 0, 0, 0) };
    assert_eq!(report.fabric_delay(), Ticks::ZERO);
    let forward = FlowReport { t2: Ticks::new(9), delay: DelaySelect::Forward, ..report };
    assert_eq!(forward.delay(), Ticks::ZERO);
}

#[test]
fn f17_the_datapath_selects_the_delay_that_counts() {
    let report = report(5, 90, 40, 100, 7);
    let delays = [DelaySelect::Full, DelaySelect::Fabric, DelaySelect::Forward, DelaySelect::Reverse]
        .map(|delay| FlowReport { delay, ..report }.delay().get());
    assert_eq!(delays, [230, 190, 97, 93]);
}

#[test]
fn ticks_round_to_the_nearest_and_stop_at_24_bits() {
    let ticks = [25, 1, 100, 250].map(|us| Ticks::of(Duration::from_us(us)).get());
    assert_eq!(ticks, [191, 8, 763, 1_907], "the defaults of the published simulator");
    assert_eq!(Ticks::of(Duration::from_secs(3)), Ticks::MAX);
    assert_eq!(Ticks::of(Duration::MAX), Ticks::MAX);
    assert_eq!(Ticks::at(Time::from_ps((1 << 41) + (5 << 17) + 3)).get(), 5, "wrong wrap or rounding");
    assert_eq!(Ticks::new(191).duration(), Duration::from_ps(191 << 17));
}

#[test]
fn f20_a_gap_is_never_shorter_than_requested() {
    for ticks in [0, 1, 3, 4, 124, 125, 126, 99_999] {
        let gap = Gap::of_ticks(ticks);
        let (requested, actual) = (ticks * 131_072, gap.duration().as_ps());
        assert!(actual >= requested && actual < requested + Gap::SLOT_PS, "{ticks} ticks: {actual} ps for {requested}");
        assert!(gap.ticks() >= ticks);
    }
    assert_eq!(Gap::of_ticks(u64::MAX), Gap::MAX);
}

#[test]
fn f23_codes_of_shares_and_rates() {
    assert_eq!(Alpha::code(0).threshold_for_free(100), 800);
    assert_eq!(Alpha::code(6).threshold_for_free(100), 12, "not an eighth");
    assert_eq!(Alpha::code(15).threshold_for_free(100), 1, "not at least one");
    assert_eq!(AckRate::ALL.packets_per_two(), 2);
    assert_eq!(AckRate::code(4).packets_per_two(), 17, "1 in 8.5");
}
