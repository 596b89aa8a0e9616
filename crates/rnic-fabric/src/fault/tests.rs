//! Tests that each rule has its documented effect, at the configured rate, and does not affect other rules.

use super::*;
use rnic_base::RandomStreams;

fn stream(name: &str) -> RandomStream {
    RandomStreams::new(3).stream(name)
}

fn verdicts(kind: FaultKind, count: u64) -> Vec<Verdict> {
    let mut rule = kind.build(stream("rule"));
    let at = |index: u64| PacketInfo {
        now: Time::from_ns(100 * index),
        arrival: Time::from_ns(100 * index + 1_000),
        frame_len: 1_500,
    };
    (0..count).map(|index| rule.judge(&at(index))).collect()
}

fn count(verdicts: &[Verdict], wanted: Verdict) -> usize {
    verdicts.iter().filter(|verdict| **verdict == wanted).count()
}

const PERCENT: Probability = Probability::ratio(1, 100);

#[test]
fn random_rules_act_with_their_probability() {
    for (kind, verdict) in [
        (FaultKind::Drop(PERCENT), Verdict::Drop),
        (FaultKind::Duplicate(PERCENT), Verdict::Duplicate),
        (FaultKind::Corrupt(PERCENT), Verdict::Corrupt),
        (FaultKind::Mark(PERCENT), Verdict::Mark),
        (
            FaultKind::Reorder { probability: PERCENT, delay: Duration::from_us(3) },
            Verdict::Delay(Duration::from_us(3)),
        ),
    ] {
        let all = verdicts(kind, 100_000);
        let hits = count(&all, verdict);
        assert!((900..1_100).contains(&hits), "{kind:?}: {hits}");
        assert_eq!(hits + count(&all, Verdict::Pass), 100_000);
    }
}

/// Returns the lengths of the sequences of consecutive lost packets.
fn bursts(verdicts: &[Verdict]) -> Vec<usize> {
    verdicts.split(|verdict| *verdict == Verdict::Pass).map(<[_]>::len).filter(|len| *len > 0).collect()
}

#[test]
fn bursts_of_fixed_length_have_that_length() {
    let lengths =
        bursts(&verdicts(FaultKind::BurstOfLength { begin: Probability::ratio(1, 1_000), packets: 7 }, 200_000));
    assert!((150..250).contains(&lengths.len()), "{} bursts", lengths.len());
    // Two bursts may follow each other without a gap.
    assert!(lengths.iter().all(|len| len.is_multiple_of(7)), "{lengths:?}");
}

#[test]
fn gilbert_bursts_have_their_mean_length_and_loss() {
    let (begin, end) = (Probability::ratio(1, 500), Probability::ratio(1, 5));
    let all = verdicts(FaultKind::Burst { begin, end, loss: Probability::ALWAYS }, 500_000);
    let lengths = bursts(&all);
    let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
    assert!((4.6..5.4).contains(&mean), "mean burst {mean}");
    let half = verdicts(FaultKind::Burst { begin, end, loss: Probability::ratio(1, 2) }, 500_000);
    let (all, half) = (count(&all, Verdict::Drop) as f64, count(&half, Verdict::Drop) as f64);
    assert!((0.42..0.58).contains(&(half / all)), "not half of the burst packets are lost: {half} of {all}");
}

#[test]
fn jitter_stays_within_its_bound_and_keeps_the_order() {
    let (fixed, jitter) = (Duration::from_us(2), Duration::from_us(1));
    let all = verdicts(FaultKind::Delay { fixed, jitter }, 1_000);
    let delays: Vec<u64> = all
        .iter()
        .map(|verdict| match verdict {
            Verdict::Delay(delay) => delay.as_ps(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(delays.iter().all(|delay| (fixed.as_ps()..=(fixed + jitter).as_ps()).contains(delay)));
    assert!(
        delays.iter().max() > delays.iter().min().map(|least| least + 500_000).as_ref(),
        "the jitter varies by less than 500 ns"
    );
    let arrivals: Vec<u64> = delays.iter().zip(0u64..).map(|(delay, index)| 100_000 * index + delay).collect();
    assert!(arrivals.is_sorted());
}

#[test]
fn a_down_link_drops_packets_only_in_its_interval() {
    let all = verdicts(FaultKind::Down { from: Time::from_us(1), until: Time::from_us(2) }, 40);
    let lost: Vec<usize> = (0..40).filter(|index| all[*index] == Verdict::Drop).collect();
    assert_eq!(lost, (10..20).collect::<Vec<_>>());
}

#[test]
fn rules_are_applied_in_order_until_one_drops_the_packet() {
    let always = Probability::ALWAYS;
    let build = |kinds: &[(Target, FaultKind)]| {
        let rules = kinds.iter().map(|(target, kind)| (*target, kind.build(stream("x")))).collect();
        FaultChain::new(rules, stream("flips"))
    };
    let data = Entry::new(1, 2, 3, 4, 1_000, Flags::NONE);
    let ack = Entry::new(1, 2, 3, 4, 64, Flags::ACK);
    let delay = FaultKind::Reorder { probability: always, delay: Duration::from_us(1) };
    let mut chain = build(&[
        (Target::All, delay),
        (Target::Data, FaultKind::Duplicate(always)),
        (Target::Acks, FaultKind::Drop(always)),
    ]);
    let outcome = chain.judge(Time::ZERO, Time::from_us(5), &data);
    assert_eq!(outcome, FaultOutcome { copies: 1, delay: Duration::from_us(1), ..FaultOutcome::default() });
    assert!(chain.judge(Time::ZERO, Time::from_us(5), &ack).lost);
    let mut chain = build(&[(Target::All, FaultKind::Mark(always))]);
    let marked = [&data, &ack].map(|packet| chain.judge(Time::ZERO, Time::from_us(5), packet).marked);
    assert_eq!(marked, [true, false], "acknowledgements carry no marks");
    let mut chain = build(&[(Target::All, FaultKind::Drop(always)), (Target::All, FaultKind::Corrupt(always))]);
    assert_eq!(
        chain.judge(Time::ZERO, Time::from_us(5), &data),
        FaultOutcome { lost: true, ..FaultOutcome::default() }
    );
}

/// Regression test: flipping the same bits twice restored a packet, so that a run with bytes and a run without them
/// diverged.
#[test]
fn a_corrupt_packet_is_not_corrupted_again() {
    let mut chain = FaultChain::new(Vec::new(), stream("flips"));
    let (mut packet, mut datagram) = (Entry::new(1, 2, 3, 4, 1_000, Flags::NONE), vec![0u8; 60]);
    chain.damage(&mut packet, |_| &mut datagram);
    let once = datagram.clone();
    assert!(packet.has(Flags::CORRUPT) && once.iter().any(|byte| *byte != 0));
    (0..50).for_each(|_| chain.damage(&mut packet, |_| &mut datagram));
    assert_eq!(datagram, once);
}

#[test]
fn one_to_three_bits_covered_by_the_icrc_are_flipped() {
    let mut chain = FaultChain::new(Vec::new(), stream("flips"));
    for len in [16usize, 60, 1_000] {
        for _ in 0..500 {
            let mut datagram = vec![0u8; len];
            chain.flip_bits(&mut datagram);
            let flipped: u32 = datagram.iter().map(|byte| byte.count_ones()).sum();
            assert!((1..=3).contains(&flipped));
            assert_eq!(datagram[UNPROTECTED_BYTE], 0);
        }
    }
}

#[test]
fn patterns_match_names() {
    for (pattern, name, is_match) in [
        ("*", "host-3>edge-1", true),
        ("host-*>*", "host-3>edge-1", true),
        ("host-*>*", "edge-1>host-3", false),
        ("host-3>edge-1", "host-3>edge-1", true),
        ("host-3>*", "host-31>edge-1", false),
        ("*>core-*", "agg-2>core-0", true),
        ("*agg*core*", "agg-2>core-0", true),
        ("edge-1", "edge-10", false),
        ("*-1", "a-11>b-1", true),
        ("**", "x", true),
        ("a*a", "a", false),
    ] {
        assert_eq!(matches(pattern, name), is_match, "{pattern} and {name}");
    }
}

#[test]
fn a_rule_may_apply_to_several_links() {
    let links = "leaf-*>spine-1, spine-1>leaf-*".to_owned();
    let fault = FaultPlan { kind: FaultKind::Drop(PERCENT), target: Target::All, links };
    for (name, is_for) in
        [("leaf-3>spine-1", true), ("spine-1>leaf-0", true), ("leaf-3>spine-2", false), ("spine-2>leaf-0", false)]
    {
        assert_eq!(fault.is_for(name), is_for, "{name}");
    }
}

#[test]
fn the_lowest_of_several_rates_applies_while_it_lasts() {
    let slow = |gbps, from, until: Option<u64>| {
        let kind =
            FaultKind::Slow { rate: BitRate::gbps(gbps), from: Time::from_us(from), until: until.map(Time::from_us) };
        (Target::All, kind.build(stream("rule")))
    };
    let chain = FaultChain::new(vec![slow(50, 10, None), slow(20, 20, Some(30))], stream("bits"));
    let rates = [9, 10, 20, 29, 30].map(|at| chain.rate(Time::from_us(at)).map(BitRate::as_bps));
    let gbps = |rate| Some(BitRate::gbps(rate).as_bps());
    assert_eq!(rates, [None, gbps(50), gbps(20), gbps(20), gbps(50)]);
}
