//! Both layers together over a bad link: every transaction completes exactly once, in order on ordered connections,
//! whatever is lost, duplicated, reordered, refused or not ready; and no resource is still held at the end.
//!
//! A failing run names its seed; `FALCON_SEED=<seed> cargo test -p rnic-falcon --test both_layers` runs it alone.
#![expect(clippy::disallowed_methods, reason = "the environment selects longer runs")]

mod two_ends;

use rnic_base::{Duration, Psn32, RandomStreams, Serial};
use rnic_falcon::delivery::OutOfWindowRule;
use rnic_falcon::resources::ResourceConfig;
use rnic_falcon::search::ulp::UpperLayerBehaviour;
use rnic_falcon::transaction::{Ordering, TransactionConfig};
use rnic_policy::Cwnd;
use rnic_wire::falcon::{CompletionCode, Rsn, WindowBases};
use two_ends::link::{Fate, Link};
use two_ends::random::Random;
use two_ends::stack::Stack;
use two_ends::{config_of, driver};

const TRANSACTIONS: u64 = 400;
/// Both ends begin to count transactions here.
const FIRST: Rsn = Serial::new(u32::MAX - 100);

fn run(seed: u64) {
    let streams = RandomStreams::new(seed);
    let mut random = streams.stream("config");
    let recovery = ["rack-tlp", "ooo-distance"][random.below(2) as usize];
    let flows = [1, 4][random.below(2) as usize];
    let mut config = config_of(recovery, if flows == 1 { "ecmp" } else { "largest-window" });
    (config.flows, config.accept_stale) = (flows, flows > 1);
    config.out_of_window = [OutOfWindowRule::Keep, OutOfWindowRule::Drop][random.below(2) as usize];
    config.first_sent = WindowBases::both(Psn32::new(u32::MAX - 20));
    config.first_received = WindowBases::both(Psn32::new(u32::MAX - 70));
    config.fcwnd = Cwnd::packets([2, 32, 200][random.below(3) as usize]);
    config.ordered = random.below(2) == 0;
    let ordering = if config.ordered { Ordering::Ordered } else { Ordering::Unordered };
    let transactions = TransactionConfig { ordering, outstanding: 256, ..driver::TRANSACTIONS };
    let manners = UpperLayerBehaviour {
        done_at_once: 500,
        not_ready: random.below(100),
        in_error: random.below(60),
        pulls_held: 0,
    };
    let end = |name| {
        let load = Random::new(TRANSACTIONS, manners, streams.stream(name));
        Stack::new(transactions, FIRST, ResourceConfig::GBPS_200, load)
    };
    let mut network = streams.stream("network");
    let (loss, twice, late) = (random.below(80), random.below(50), random.below(300));
    let rule = move |_, _, _: &_| -> Fate {
        let [arrives, doubles] = [network.below(1_000) >= loss, network.below(1_000) < twice];
        [arrives, doubles].map(|copy| {
            let jitter = if network.below(1_000) < late { network.below(40_000) } else { network.below(50) };
            copy.then(|| Duration::from_ns(5_000 + jitter))
        })
    };
    let mut link = Link::of([end("end/0"), end("end/1")], config, Box::new(rule));
    for end in &mut link.ends {
        end.keeps_log = false;
    }
    link.run_for(Duration::from_ms(4_000));
    let replay = format!("FALCON_SEED={seed} cargo test -p rnic-falcon --test both_layers");
    for (side, end) in link.ends.iter().enumerate() {
        let (verbs, other) = (&end.upper.load.ulp, &link.ends[1 - side].upper.load.ulp);
        let counters = end.delivery.counters();
        assert!(end.upper.is_done(), "end {side} has {} completions: {replay}\n{counters:?}", verbs.completions.len());
        let mut tags: Vec<u64> = verbs.completions.iter().map(|completion| completion.tag).collect();
        assert!(!config.ordered || tags.is_sorted(), "end {side} completes out of order: {replay}");
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..TRANSACTIONS), "end {side} does not complete each transaction once: {replay}");
        let place = |rsn: &Rsn| rsn.value().wrapping_sub(FIRST.value());
        assert!(!config.ordered || other.requests.is_sorted_by_key(place), "requests out of order: {replay}");
        let failed = verbs.completions.iter().filter(|done| done.code != CompletionCode::Ack).count();
        assert_eq!(failed, other.refused.len(), "end {side}: errors differ from those of the other side: {replay}");
        assert_eq!(other.requests.len() + other.refused.len(), TRANSACTIONS as usize, "end {side}: {replay}");
        assert_eq!(counters.peer_errors, 0, "{replay}");
    }
}

#[test]
fn every_transaction_completes_exactly_once_over_a_bad_link() {
    if let Ok(seed) = std::env::var("FALCON_SEED") {
        return run(seed.parse().expect("a seed is a number"));
    }
    let runs = std::env::var("FALCON_RUNS").map_or(60, |runs| runs.parse().expect("a count is a number"));
    (0..runs).for_each(run);
}
