//! Rates, independence and repeatability of every knob; the delay line.

use super::*;
use crate::datagram::Datagram;
use rnic_wire::{Addresses, IpVersion};

const LEN: u32 = 4_132;

fn percent(percent: u64) -> Probability {
    Probability::ratio(percent, 100)
}

fn judge_all(config: &Impairment, nic: &str, packets: usize) -> (Vec<Fate>, ImpairmentStats) {
    let mut peer = PeerImpairment::new(config, nic, 0);
    let mut stats = ImpairmentStats::default();
    let fates = (0..packets).map(|_| peer.judge(Time::ZERO, IpVersion::V4, LEN, &mut stats)).collect();
    (fates, stats)
}

fn is_lost(fate: &Fate) -> bool {
    !fate.passes && fate.copies.is_empty()
}

fn datagram(number: u8) -> Datagram {
    let address = |text: &str| text.parse().expect("an address");
    let addresses = Addresses::new(address("10.0.0.1:4791"), address("10.0.0.2:4791")).expect("both IPv4");
    Datagram { addresses, bytes: vec![number; 32], marking: crate::Marking::NONE }
}

/// Whether `count` of `packets` is within three standard deviations of `percent`.
fn is_likely(count: u64, packets: u64, percent: u64) -> bool {
    let p = percent as f64 / 100.0;
    let (mean, deviation) = (packets as f64 * p, (packets as f64 * p * (1.0 - p)).sqrt());
    (count as f64 - mean).abs() <= 3.0 * deviation
}

#[test]
fn nothing_asked_nothing_done() {
    let config = Impairment::default();
    assert!(config.is_none());
    let (fates, stats) = judge_all(&config, "nic", 1_000);
    assert!(fates.iter().all(|fate| fate.passes && fate.copies.is_empty()));
    assert_eq!(stats, ImpairmentStats { packets: 1_000, ..ImpairmentStats::default() });
}

#[test]
fn jitter_may_be_any_time() {
    let config = Impairment { jitter: Duration::MAX, ..Impairment::default() };
    let (fates, _) = judge_all(&config, "nic", 100);
    assert!(fates.iter().all(|fate| fate.copies.len() == 1));
}

#[test]
fn rates_are_as_asked() {
    let packets = 100_000;
    let config = Impairment {
        loss: percent(1),
        corrupt: percent(2),
        duplicate: percent(3),
        reorder: percent(5),
        ..Impairment::default()
    };
    let (fates, stats) = judge_all(&config, "nic", packets);
    assert_eq!(fates.iter().filter(|fate| is_lost(fate)).count() as u64, stats.lost);
    assert!(is_likely(stats.lost, packets as u64, 1), "{stats:?}");
    let survivors = packets as u64 - stats.lost;
    assert!(is_likely(stats.corrupted, survivors, 2), "{stats:?}");
    assert!(is_likely(stats.duplicated, survivors, 3), "{stats:?}");
    assert!(is_likely(stats.reordered, survivors, 5), "{stats:?}");
    let flipped = fates.iter().flat_map(|fate| &fate.copies).filter(|copy| copy.flip.is_some()).count() as u64;
    assert_eq!(flipped, stats.corrupted);
}

#[test]
fn equal_seeds_and_names_give_equal_fates() {
    let config =
        Impairment { loss: percent(10), duplicate: percent(10), jitter: Duration::from_us(5), ..Default::default() };
    assert_eq!(judge_all(&config, "nic", 1_000), judge_all(&config, "nic", 1_000));
    assert_ne!(judge_all(&config, "nic", 1_000).0, judge_all(&config, "other", 1_000).0);
    let other_seed = Impairment { seed: 2, ..config };
    assert_ne!(judge_all(&config, "nic", 1_000).0, judge_all(&other_seed, "nic", 1_000).0);
}

#[test]
fn knobs_do_not_move_each_other() {
    let alone = Impairment { loss: percent(10), ..Impairment::default() };
    let together = Impairment { duplicate: percent(50), reorder: percent(30), corrupt: percent(5), ..alone };
    let losses = |config| judge_all(config, "nic", 2_000).0.iter().map(is_lost).collect::<Vec<_>>();
    assert_eq!(losses(&alone), losses(&together));
}

#[test]
fn delay_and_jitter_are_within_their_bounds() {
    let (delay, jitter) = (Duration::from_us(100), Duration::from_us(40));
    let (fates, _) = judge_all(&Impairment { delay, jitter, ..Impairment::default() }, "nic", 1_000);
    let dues: Vec<Time> = fates.iter().map(|fate| fate.copies[0].due).collect();
    assert!(dues.iter().all(|due| (Time::from_us(100)..=Time::from_us(140)).contains(due)));
    assert!(dues.iter().any(|due| *due < Time::from_us(105)) && dues.iter().any(|due| *due > Time::from_us(135)));
}

#[test]
fn the_slow_link_serialises_and_its_queue_is_bounded() {
    let rate = BitRate::gbps(1);
    let config = Impairment { rate: Some(rate), rate_queue_bytes: 10_000, ..Impairment::default() };
    let (fates, stats) = judge_all(&config, "nic", 10);
    let each = rate.serialize(u64::from(net::link_len(IpVersion::V4, LEN)));
    let dues: Vec<Time> = fates.iter().flat_map(|fate| &fate.copies).map(|copy| copy.due).collect();
    // Three packets bring the backlog past 10 000 bytes.
    assert_eq!(dues, [Time::ZERO + each, Time::ZERO + each * 2, Time::ZERO + each * 3]);
    assert_eq!(stats.queue_full, 7);
}

#[test]
fn the_line_gives_packets_back_in_time() {
    let mut line = DelayLine::default();
    let mut peer = PeerImpairment::new(&Impairment::default(), "nic", 0);
    for (number, us) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
        let copy = LateCopy { due: Time::from_us(us), flip: None, overtaken_by: None };
        assert!(line.insert(&copy, datagram(number), &mut peer));
    }
    assert_eq!(line.next_due(), Some(Time::from_us(10)));
    let due = |line: &mut DelayLine, us| {
        std::iter::from_fn(|| line.pop_due(Time::from_us(us))).map(|datagram| datagram.bytes[0]).collect::<Vec<_>>()
    };
    assert!(due(&mut line, 9).is_empty());
    assert_eq!(due(&mut line, 25), [2, 4, 3], "in time, then in order of arrival");
    assert_eq!(due(&mut line, 30), [1]);
    assert!(line.is_empty());
}

#[test]
fn a_packet_that_is_overtaken_leaves_after_so_many_others() {
    let mut line = DelayLine::default();
    let mut peer = PeerImpairment::new(&Impairment::default(), "nic", 0);
    let copy = LateCopy { due: Time::from_us(1_000), flip: None, overtaken_by: Some(2) };
    assert!(line.insert(&copy, datagram(1), &mut peer));
    line.overtake(&mut peer, Time::from_us(1));
    assert_eq!(line.pop_due(Time::from_us(1)), None);
    line.overtake(&mut peer, Time::from_us(2));
    assert_eq!(line.pop_due(Time::from_us(2)), Some(datagram(1)));
    // And when no others come, at the end of its hold.
    assert!(line.insert(&copy, datagram(2), &mut peer));
    assert_eq!(line.pop_due(Time::from_us(1_000)), Some(datagram(2)));
    line.overtake(&mut peer, Time::from_us(1_001));
    line.overtake(&mut peer, Time::from_us(1_002));
    assert!(peer.waiting.is_empty() && line.is_empty());
}

#[test]
fn a_flipped_bit_is_one_bit() {
    let mut line = DelayLine::default();
    let mut peer = PeerImpairment::new(&Impairment::default(), "nic", 0);
    let copy = LateCopy { due: Time::ZERO, flip: Some(u64::MAX), overtaken_by: None };
    assert!(line.insert(&copy, datagram(0), &mut peer));
    let bytes = line.pop_due(Time::ZERO).expect("it is due").bytes;
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
}
