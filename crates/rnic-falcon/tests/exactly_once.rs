//! Checks that every packet is delivered exactly once whatever the link does, also when sequence numbers wrap.
//!
//! A failing run names its seed; `FALCON_SEED=<seed> cargo test -p rnic-falcon --test exactly_once` runs it alone.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

mod two_ends;

use rnic_base::{Duration, Psn32, RandomStream, RandomStreams};
use rnic_falcon::delivery::{DeliveryConfig, ExtendedRule, OutOfWindowRule};
use rnic_policy::Cwnd;
use rnic_wire::falcon::WindowBases;
use two_ends::config_of;
use two_ends::link::{Fate, Link};
use two_ends::upper::{Acknowledging, Counting};

/// Returns a configuration whose options are drawn from the seed.
fn draw_config(random: &mut RandomStream) -> DeliveryConfig {
    let recovery = ["rack-tlp", "ooo-distance"][random.below(2) as usize];
    let flows = [1, 1, 2, 4, 8][random.below(5) as usize];
    let paths = if flows == 1 { "ecmp" } else { ["largest-window", "spray", "scatter"][random.below(3) as usize] };
    let mut config = config_of(recovery, paths);
    config.flows = flows;
    config.accept_stale = flows > 1 && random.below(2) == 0;
    config.ordered = random.below(2) == 0;
    if random.below(2) == 0 {
        config.out_of_window = OutOfWindowRule::Drop;
        config.pause_after_out_of_window = random.below(2) == 0;
    }
    if random.below(2) == 0 {
        config.extended = ExtendedRule::WhenGap;
    }
    config.request_window = 64 << random.below(4);
    config.data_window = 64 << random.below(4);
    // Numbers wrap within the first few hundred packets.
    let near_wrap = |random: &mut RandomStream| Psn32::new(u32::MAX - random.below(300) as u32);
    config.first_sent = WindowBases { request: near_wrap(random), data: near_wrap(random) };
    config.first_received = WindowBases { request: near_wrap(random), data: near_wrap(random) };
    config.fcwnd = Cwnd::packets([1, 4, 32, 128, 300][random.below(5) as usize]);
    config.ncwnd = [1, 8, 64, 256][random.below(4) as usize];
    config
}

fn queue_work(upper: &mut Counting, random: &mut RandomStream) {
    for _ in 0..600 {
        if random.below(3) == 0 {
            upper.pull();
        } else {
            upper.push();
        }
    }
}

fn run(seed: u64) {
    let streams = RandomStreams::new(seed);
    let mut random = streams.stream("config");
    let config = draw_config(&mut random);
    let mut link_random = streams.stream("link");
    let (loss, twice, late) = (random.below(80), random.below(50), random.below(300));
    let rule = move |_, _, _: &_| -> Fate {
        let one = |random: &mut RandomStream| {
            let jitter = if random.below(1_000) < late { random.below(60_000) } else { random.below(50) };
            Duration::from_ns(5_000 + jitter)
        };
        let arrives = link_random.below(1_000) >= loss;
        let doubles = link_random.below(1_000) < twice;
        [arrives.then(|| one(&mut link_random)), doubles.then(|| one(&mut link_random))]
    };
    let mut link = Link::new(config, Box::new(rule));
    for end in &mut link.ends {
        end.keeps_log = false;
        if random.below(2) == 0 {
            end.upper.acknowledging = Acknowledging::After(Duration::from_ns(random.between(1, 20_000)));
        }
        queue_work(&mut end.upper, &mut random);
    }
    link.run_for(Duration::from_ms(2_000));
    let replay = format!("FALCON_SEED={seed} cargo test -p rnic-falcon --test exactly_once");
    for (side, end) in link.ends.iter().enumerate() {
        let upper = &end.upper;
        assert!(upper.all_acked() && upper.queued() == 0, "end {side} has unacked packets: {replay}\n{config:?}");
        assert!(upper.kept_once(), "end {side} received a packet twice: {replay}");
        assert_eq!(upper.exhausted, vec![], "{replay}");
        let counters = end.delivery.counters();
        assert_eq!(counters.peer_errors, 0, "{replay}");
        let pulls = link.ends[1 - side].upper.kept.len();
        assert!(pulls >= 600, "end {} kept {pulls}: {replay}", 1 - side);
    }
    // Everything that was queued at one end has been delivered at the other.
    for side in [0, 1] {
        assert_eq!(link.ends[side].upper.acked.len(), link.ends[1 - side].upper.kept.len(), "{replay}");
    }
}

#[test]
fn f9_everything_arrives_exactly_once_over_a_bad_link() {
    if let Ok(seed) = std::env::var("FALCON_SEED") {
        return run(seed.parse().expect("a seed is a number"));
    }
    let runs = std::env::var("FALCON_RUNS").map_or(150, |runs| runs.parse().expect("a count is a number"));
    (0..runs).for_each(run);
}
