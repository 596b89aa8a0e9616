//! Tests of rates, independence and reproducibility of every setting, and of the delay line.

use super::*;
use crate::datagram::Datagram;
use rnic_wire::{Addresses, IpVersion};

const UDP_PAYLOAD_LEN: u32 = 4_132;

fn percent(percent: u64) -> Probability {
    Probability::ratio(percent, 100)
}

fn judge_all(config: &Impairment, nic: &str, packets: usize) -> (Vec<ImpairmentOutcome>, ImpairmentStats) {
    let mut peer = PeerImpairment::new(config, nic, 0);
    let mut stats = ImpairmentStats::default();
    let outcomes =
        (0..packets).map(|_| peer.decide_faults(Time::ZERO, IpVersion::V4, UDP_PAYLOAD_LEN, &mut stats)).collect();
    (outcomes, stats)
}

fn is_lost(outcome: &ImpairmentOutcome) -> bool {
    !outcome.passes && outcome.copies.is_empty()
}

fn datagram(number: u8) -> Datagram {
    let address = |text: &str| text.parse().expect("an address");
    let addresses = Addresses::new(address("10.0.0.1:4791"), address("10.0.0.2:4791")).expect("both IPv4");
    Datagram { addresses, bytes: vec![number; 32], ip_fields: crate::PackedIpFields::NONE }
}

/// Returns whether `count` of `packets` is within three standard deviations of `percent`.
fn is_within_3_sigma(count: u64, packets: u64, percent: u64) -> bool {
    let probability = percent as f64 / 100.0;
    let (mean, deviation) = (packets as f64 * probability, (packets as f64 * probability * (1.0 - probability)).sqrt());
    (count as f64 - mean).abs() <= 3.0 * deviation
}

#[test]
fn without_settings_no_packet_is_impaired() {
    let config = Impairment::default();
    assert!(config.is_none());
    let (outcomes, stats) = judge_all(&config, "nic", 1_000);
    assert!(outcomes.iter().all(|outcome| outcome.passes && outcome.copies.is_empty()));
    assert_eq!(stats, ImpairmentStats { packets: 1_000, ..ImpairmentStats::default() });
}

/// Trimming and marks: at the configured rates, independently of each other, and only where there is something to cut
/// or to mark.
#[test]
fn received_packets_are_trimmed_and_marked_at_the_configured_rates() {
    use rnic_base::Psn;
    use rnic_wire::{Format, Headers, Packet, PacketFlags, Position, Qpn, Reth};
    let config = Impairment { trim: percent(4), mark: percent(7), ..Impairment::default() };
    assert!(!config.is_none());
    let packets = 100_000;
    let mut counts = [Format::Irn, Format::RoceV2].map(|format| {
        let (mut peer, mut stats) = (PeerImpairment::new(&config, "nic", 0), ImpairmentStats::default());
        let headers =
            Headers::Write { position: Position::Only, reth: Some(Reth::default()), immediate: None, recv_sn: None };
        let flags = PacketFlags::default();
        let packet = Packet { dest_qpn: Qpn::new(5), psn: Psn::new(1), flags, payload_len: 100, headers };
        let (mut trimmed, mut marked) = (0, 0);
        for _ in 0..packets {
            let mut decoded = Decoded { format, packet, payload: 28..128 };
            marked += u64::from(peer.receive(&mut decoded, &mut stats));
            trimmed += u64::from(decoded.packet.is_trimmed());
            assert_eq!(decoded.payload.len(), decoded.packet.payload_len as usize);
            let ack = Packet { payload_len: 0, headers: Headers::Cnp, ..packet };
            let mut decoded = Decoded { format, packet: ack, payload: 28..28 };
            assert!(!peer.receive(&mut decoded, &mut stats) && !decoded.packet.is_trimmed());
        }
        assert_eq!((trimmed, marked), (stats.trimmed, stats.marked));
        (trimmed, marked)
    });
    counts.sort_unstable();
    let [(roce_trimmed, roce_marked), (trimmed, marked)] = counts;
    assert_eq!((roce_trimmed, roce_marked), (0, marked), "RoCE has no trimmed packets");
    assert!(is_within_3_sigma(trimmed, packets, 4) && is_within_3_sigma(marked, packets, 7), "{trimmed} {marked}");
}

#[test]
fn any_jitter_value_is_accepted() {
    let config = Impairment { jitter: Duration::MAX, ..Impairment::default() };
    let (outcomes, _) = judge_all(&config, "nic", 100);
    assert!(outcomes.iter().all(|outcome| outcome.copies.len() == 1));
}

#[test]
fn measured_rates_match_the_configured_ones() {
    let packets = 100_000;
    let config = Impairment {
        loss: percent(1),
        corrupt: percent(2),
        duplicate: percent(3),
        reorder: percent(5),
        ..Impairment::default()
    };
    let (outcomes, stats) = judge_all(&config, "nic", packets);
    assert_eq!(outcomes.iter().filter(|outcome| is_lost(outcome)).count() as u64, stats.lost);
    assert!(is_within_3_sigma(stats.lost, packets as u64, 1), "{stats:?}");
    let remaining = packets as u64 - stats.lost;
    assert!(is_within_3_sigma(stats.corrupted, remaining, 2), "{stats:?}");
    assert!(is_within_3_sigma(stats.duplicated, remaining, 3), "{stats:?}");
    assert!(is_within_3_sigma(stats.reordered, remaining, 5), "{stats:?}");
    let flipped = outcomes.iter().flat_map(|outcome| &outcome.copies).filter(|copy| copy.flip.is_some()).count() as u64;
    assert_eq!(flipped, stats.corrupted);
}

#[test]
fn equal_seeds_and_names_give_equal_outcomes() {
    let config =
        Impairment { loss: percent(10), duplicate: percent(10), jitter: Duration::from_us(5), ..Default::default() };
    assert_eq!(judge_all(&config, "nic", 1_000), judge_all(&config, "nic", 1_000));
    assert_ne!(judge_all(&config, "nic", 1_000).0, judge_all(&config, "other", 1_000).0);
    let other_seed = Impairment { seed: 2, ..config };
    assert_ne!(judge_all(&config, "nic", 1_000).0, judge_all(&other_seed, "nic", 1_000).0);
}

#[test]
fn impairment_settings_draw_independently() {
    let alone = Impairment { loss: percent(10), ..Impairment::default() };
    let together = Impairment { duplicate: percent(50), reorder: percent(30), corrupt: percent(5), ..alone };
    let losses = |config| judge_all(config, "nic", 2_000).0.iter().map(is_lost).collect::<Vec<_>>();
    assert_eq!(losses(&alone), losses(&together));
}

#[test]
fn delay_and_jitter_are_within_their_bounds() {
    let (delay, jitter) = (Duration::from_us(100), Duration::from_us(40));
    let (outcomes, _) = judge_all(&Impairment { delay, jitter, ..Impairment::default() }, "nic", 1_000);
    let dues: Vec<Time> = outcomes.iter().map(|outcome| outcome.copies[0].due).collect();
    assert!(dues.iter().all(|due| (Time::from_us(100)..=Time::from_us(140)).contains(due)));
    assert!(dues.iter().any(|due| *due < Time::from_us(105)) && dues.iter().any(|due| *due > Time::from_us(135)));
}

#[test]
fn the_slow_link_serializes_packets_and_bounds_its_queue() {
    let rate = BitRate::gbps(1);
    let config = Impairment { rate: Some(rate), rate_queue_bytes: 10_000, ..Impairment::default() };
    let (outcomes, stats) = judge_all(&config, "nic", 10);
    let packet_time = rate.serialize(u64::from(net::link_len(IpVersion::V4, UDP_PAYLOAD_LEN)));
    let dues: Vec<Time> = outcomes.iter().flat_map(|outcome| &outcome.copies).map(|copy| copy.due).collect();
    // Three packets bring the backlog past 10 000 bytes.
    assert_eq!(dues, [Time::ZERO + packet_time, Time::ZERO + packet_time * 2, Time::ZERO + packet_time * 3]);
    assert_eq!(stats.queue_full, 7);
}

#[test]
fn the_delay_line_releases_packets_in_order_of_their_due_times() {
    let mut line = DelayLine::default();
    let mut peer = PeerImpairment::new(&Impairment::default(), "nic", 0);
    for (number, us) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
        let copy = DelayedCopy { due: Time::from_us(us), flip: None, overtaken_by: None };
        assert!(line.insert(&copy, datagram(number), Some(&mut peer)));
    }
    assert_eq!(line.next_due(), Some(Time::from_us(10)));
    let due = |line: &mut DelayLine, us| {
        std::iter::from_fn(|| line.pop_due(Time::from_us(us))).map(|datagram| datagram.bytes[0]).collect::<Vec<_>>()
    };
    assert!(due(&mut line, 9).is_empty());
    assert_eq!(due(&mut line, 25), [2, 4, 3], "not in order of due time and arrival");
    assert_eq!(due(&mut line, 30), [1]);
    assert!(line.is_empty());
}

#[test]
fn a_reordered_packet_is_released_after_the_configured_number_of_others() {
    let mut line = DelayLine::default();
    let mut peer = PeerImpairment::new(&Impairment::default(), "nic", 0);
    let copy = DelayedCopy { due: Time::from_us(1_000), flip: None, overtaken_by: Some(2) };
    assert!(line.insert(&copy, datagram(1), Some(&mut peer)));
    line.overtake(&mut peer, Time::from_us(1));
    assert_eq!(line.pop_due(Time::from_us(1)), None);
    line.overtake(&mut peer, Time::from_us(2));
    assert_eq!(line.pop_due(Time::from_us(2)), Some(datagram(1)));
    // When no other packets follow, a held packet is released at the end of its hold time.
    assert!(line.insert(&copy, datagram(2), Some(&mut peer)));
    assert_eq!(line.pop_due(Time::from_us(1_000)), Some(datagram(2)));
    line.overtake(&mut peer, Time::from_us(1_001));
    line.overtake(&mut peer, Time::from_us(1_002));
    assert!(peer.waiting.is_empty() && line.is_empty());
}

#[test]
fn corruption_flips_exactly_one_bit() {
    let mut line = DelayLine::default();
    let mut peer = PeerImpairment::new(&Impairment::default(), "nic", 0);
    let copy = DelayedCopy { due: Time::ZERO, flip: Some(u64::MAX), overtaken_by: None };
    assert!(line.insert(&copy, datagram(0), Some(&mut peer)));
    let bytes = line.pop_due(Time::ZERO).expect("the packet is due").bytes;
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
}
