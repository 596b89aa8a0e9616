//! htsim's `.topo`: the numbers of a folded Clos of two or three tiers, as the fat-tree of csg-htsim reads them
//! (<https://github.com/Broadcom/csg-htsim>, `sim/datacenter/fat_tree_topology.cpp`).
//!
//! The lines before the first `Tier` give the numbers of hosts (`Nodes`), tiers, and hosts of a pod. Tier 0 are the
//! switches of hosts (`tor-0 ..`), tier 1 those above them (`agg-0 ..`), tier 2 those that join pods (`core-0 ..`). The
//! numbers must be consistent; each is checked. A bundle is a number of links between the same two switches: of tier
//! `t`, those down. The latency of a switch is added to its links, half to each, so that every path has its sum. Queues
//! are the plan's, not the file's; a note says so.

use rnic_base::{BitRate, Duration, similar};

use super::{FileError, LinkPlan, Wiring, Word, words_of_line};
use crate::link_spec::DELAY_MAX;
use crate::topology::wiring::{HOSTS_MAX, SWITCHES_MAX};

/// Keys before the first tier, and the key that begins one, in lower case.
const HEADER: [&str; 4] = ["nodes", "tiers", "podsize", "tier"];
/// Keys of a tier.
const OF_TIER: [&str; 9] = [
    "downlink_speed_gbps",
    "radix_up",
    "radix_down",
    "queue_up",
    "queue_down",
    "oversubscribed",
    "bundle",
    "switch_latency_ns",
    "downlink_latency_ns",
];

/// Returns whether a file that starts with `word` is one of htsim.
pub(super) fn is_key(word: &str) -> bool {
    HEADER.iter().any(|key| word.eq_ignore_ascii_case(key))
}

/// A value, and where it is.
type Value<'t> = Option<(u32, Word<'t>)>;

/// The lines of a tier.
#[derive(Clone, Copy, Default)]
struct Tier<'t> {
    word: Option<Word<'t>>,
    speed: Option<(BitRate, Word<'t>)>,
    radix_up: Value<'t>,
    radix_down: Value<'t>,
    oversubscribed: Value<'t>,
    bundle: Value<'t>,
    switch_latency: Value<'t>,
    link_latency: Value<'t>,
    queue_up: Value<'t>,
    queue_down: Value<'t>,
}

#[derive(Default)]
struct File<'t> {
    nodes: Value<'t>,
    tiers: Value<'t>,
    pod_size: Value<'t>,
    all: [Tier<'t>; 3],
}

pub(super) fn read(text: &str) -> Result<(Wiring, Vec<String>), FileError> {
    let (mut file, mut tier) = (File::default(), None);
    for line in (1..).zip(text.lines()) {
        let words: Vec<Word<'_>> = words_of_line(line).collect();
        let (key, value) = match words[..] {
            [] => continue,
            [key, value] => (key, value),
            [key] => return Err(key.wrong(format!("`{}` has no value; write `KEY VALUE`", key.shown()))),
            [_, _, extra, ..] => {
                return Err(extra.wrong(format!("`{}` is too much; a line is `KEY VALUE`", extra.shown())));
            }
        };
        file.line(key, value, &mut tier)?;
    }
    let has_queues = file.all.iter().any(|tier| tier.queue_up.is_some() || tier.queue_down.is_some());
    let note = "the file of the topology gives sizes of queues, which are not used; buffers are those of [switch]";
    let notes = if has_queues { vec![note.to_owned()] } else { Vec::new() };
    Ok((file.wiring()?, notes))
}

/// Sets a value that may be given once.
fn set<T>(field: &mut Option<T>, value: T, key: &Word<'_>) -> Result<(), FileError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(key.wrong(format!("`{}` is given twice; remove one", key.text))),
    }
}

impl<'t> File<'t> {
    fn line(&mut self, key: Word<'t>, value: Word<'t>, tier: &mut Option<usize>) -> Result<(), FileError> {
        let name = key.text.to_ascii_lowercase();
        let all = HEADER.iter().chain(&OF_TIER).copied();
        if !all.clone().any(|known| known == name) {
            let hint = similar::hint(&name, all);
            return Err(key.wrong(format!("`{}` is no key of htsim's topologies{hint}", key.shown())));
        }
        if name == "downlink_speed_gbps" {
            let text = format!("{}Gbps", value.text);
            let rate = Word { text: &text, ..value }.rate()?;
            return set(&mut self.tier(&key, *tier)?.speed, (rate, value), &key);
        }
        let number = value.number("a number")?;
        let field = match &*name {
            "nodes" => &mut self.nodes,
            "tiers" => &mut self.tiers,
            "podsize" => &mut self.pod_size,
            "tier" => {
                let known = self.all.get_mut(number as usize);
                let known = known.ok_or_else(|| value.wrong("there is no such tier; tiers are numbered 0, 1 and 2"))?;
                *tier = Some(number as usize);
                return set(&mut known.word, key, &key);
            }
            _ => {
                let tier = self.tier(&key, *tier)?;
                match &*name {
                    "radix_up" => &mut tier.radix_up,
                    "radix_down" => &mut tier.radix_down,
                    "queue_up" => &mut tier.queue_up,
                    "queue_down" => &mut tier.queue_down,
                    "oversubscribed" => &mut tier.oversubscribed,
                    "bundle" => &mut tier.bundle,
                    "switch_latency_ns" => &mut tier.switch_latency,
                    _ => &mut tier.link_latency,
                }
            }
        };
        set(field, (number, value), &key)
    }

    fn tier(&mut self, key: &Word<'_>, tier: Option<usize>) -> Result<&mut Tier<'t>, FileError> {
        let tier = tier.ok_or_else(|| key.wrong("this key belongs to a tier; write it below `Tier 0`, 1 or 2"))?;
        Ok(&mut self.all[tier])
    }

    /// Returns the graph.
    fn wiring(&self) -> Result<Wiring, FileError> {
        let missing = |what: &str| FileError::Graph(format!("has no line `{what}`; add it before the first tier"));
        let (nodes, nodes_word) = self.nodes.ok_or_else(|| missing("Nodes"))?;
        let (tiers, tiers_word) = self.tiers.ok_or_else(|| missing("Tiers"))?;
        let (pod_size, pod_word) = self.pod_size.ok_or_else(|| missing("Podsize"))?;
        if !(2..=3).contains(&tiers) {
            return Err(tiers_word.wrong("the number of tiers must be 2 or 3"));
        }
        if !(1..=HOSTS_MAX as u32).contains(&nodes) {
            return Err(nodes_word.wrong(format!("the number of nodes must be 1 to {HOSTS_MAX}")));
        }
        if pod_size == 0 || !nodes.is_multiple_of(pod_size) {
            return Err(pod_word.wrong(format!("the size of a pod must divide the number of nodes, {nodes}")));
        }
        let read: Vec<Numbers<'_>> =
            (0..tiers).map(|tier| self.all[tier as usize].numbers(tier, tiers)).collect::<Result<_, _>>()?;
        let shape = Shape::new(&read, nodes, pod_size)?;
        shape.wiring(&read).map_err(FileError::Graph)
    }
}

/// The numbers of a tier, with the places of those that others are compared with.
struct Numbers<'t> {
    link: LinkPlan,
    up: u32,
    down: u32,
    bundle: u32,
    up_word: Word<'t>,
    down_word: Word<'t>,
    oversubscribed: Value<'t>,
    /// Half of the latency of a switch.
    half_latency: Duration,
}

impl<'t> Tier<'t> {
    fn numbers(&self, tier: u32, tiers: u32) -> Result<Numbers<'t>, FileError> {
        let word =
            self.word.ok_or_else(|| FileError::Graph(format!("has no line `Tier {tier}`; add it and its keys")))?;
        let missing = |key: &str| word.wrong(format!("tier {tier} has no `{key}`; add it"));
        let (speed, _) = self.speed.ok_or_else(|| missing("Downlink_speed_Gbps"))?;
        let (latency, latency_word) = self.link_latency.ok_or_else(|| missing("Downlink_Latency_ns"))?;
        let (down, down_word) = self.radix_down.ok_or_else(|| missing("Radix_Down"))?;
        let (up, up_word) = match self.radix_up {
            Some((_, word)) if tier + 1 == tiers => {
                return Err(word.wrong("the highest tier has no links up; remove this line"));
            }
            None if tier + 1 == tiers => (0, word),
            found => found.ok_or_else(|| missing("Radix_Up"))?,
        };
        let (bundle, bundle_word) = self.bundle.unwrap_or((1, word));
        let bundle_max = if tier == 0 { 1 } else { down };
        if !(1..=bundle_max).contains(&bundle) || !down.is_multiple_of(bundle) {
            return Err(bundle_word.wrong("a bundle must divide Radix_Down, and be 1 in tier 0"));
        }
        let delay = latency_word.check_delay(Duration::from_ns(u64::from(latency)))?;
        let (switch_latency, switch_word) = self.switch_latency.unwrap_or((0, word));
        if Duration::from_ns(u64::from(switch_latency)) > DELAY_MAX {
            return Err(switch_word.wrong(format!("the latency of a switch must be at most {DELAY_MAX}")));
        }
        let half_latency = Duration::from_ps(u64::from(switch_latency) * 500);
        let (link, oversubscribed) = (LinkPlan { rate: speed, delay }, self.oversubscribed);
        Ok(Numbers { link, up, down, bundle, up_word, down_word, oversubscribed, half_latency })
    }
}

/// Numbers of switches.
#[derive(Clone, Copy)]
struct Shape {
    nodes: u32,
    pods: u32,
    /// Switches of tier 0 of each pod.
    tors: u32,
    /// Switches of tier 1 of each pod.
    aggs: u32,
    /// Switches of tier 2.
    cores: u32,
}

impl Shape {
    /// Computes the numbers of switches, and checks that the radices agree with them.
    fn new(tiers: &[Numbers<'_>], nodes: u32, pod_size: u32) -> Result<Self, FileError> {
        let (tor, agg) = (&tiers[0], &tiers[1]);
        let pods = nodes / pod_size;
        if tor.down == 0 || !pod_size.is_multiple_of(tor.down) {
            return Err(tor.down_word.wrong(format!("Radix_Down of tier 0 must divide the size of a pod, {pod_size}")));
        }
        let tors = pod_size / tor.down;
        if tor.up == 0 || !tor.up.is_multiple_of(agg.bundle) {
            let what = format!("Radix_Up of tier 0 must be a multiple of the bundle of tier 1, {}", agg.bundle);
            return Err(tor.up_word.wrong(what));
        }
        let aggs = tor.up / agg.bundle;
        let expect = |numbers: &Numbers<'_>, tier: u32, expected: u64, why: &str| {
            if u64::from(numbers.down) == expected {
                return Ok(());
            }
            Err(numbers.down_word.wrong(format!("Radix_Down of tier {tier} must be {expected}, {why}")))
        };
        let below = u64::from(tors) * u64::from(agg.bundle);
        expect(agg, 1, below, "a bundle for each switch of tier 0 in the pod")?;
        let mut cores = 0;
        if let Some(core) = tiers.get(2) {
            if agg.up == 0 || !agg.up.is_multiple_of(core.bundle) {
                let what = format!("Radix_Up of tier 1 must be a multiple of the bundle of tier 2, {}", core.bundle);
                return Err(agg.up_word.wrong(what));
            }
            expect(core, 2, u64::from(pods) * u64::from(core.bundle), "a bundle for each pod")?;
            cores = u64::from(aggs) * u64::from(agg.up / core.bundle);
        }
        for (tier, above) in tiers.iter().zip(&tiers[1..]) {
            let Some((factor, word)) = tier.oversubscribed else { continue };
            let down = u128::from(tier.down) * u128::from(tier.link.rate.as_bps());
            let up = u128::from(tier.up) * u128::from(above.link.rate.as_bps());
            if down != up * u128::from(factor) {
                let what = format!("links down have {down} bit/s and links up {up}, which is not {factor} to 1");
                return Err(word.wrong(what));
            }
        }
        let switches = u64::from(pods) * (u64::from(tors) + u64::from(aggs)) + cores;
        if switches > SWITCHES_MAX as u64 {
            return Err(FileError::Graph(format!("has {switches} switches; a network may have {SWITCHES_MAX}")));
        }
        Ok(Self { nodes, pods, tors, aggs, cores: cores as u32 })
    }

    fn wiring(&self, tiers: &[Numbers<'_>]) -> Result<Wiring, String> {
        let Self { nodes, pods, tors, aggs, cores } = *self;
        let mut wiring = Wiring::default();
        let mut switches = |name: &str, count| -> Result<Vec<_>, String> {
            (0..count).map(|index| wiring.add_switch(format!("{name}-{index}"))).collect()
        };
        let (tor_switches, agg_switches) = (switches("tor", pods * tors)?, switches("agg", pods * aggs)?);
        let core_switches = switches("core", cores)?;
        // The links below a tier, with half of the latencies of the switches at both ends.
        let link = |tier: usize| {
            let below = tier.checked_sub(1).map_or(Duration::ZERO, |below| tiers[below].half_latency);
            let LinkPlan { rate, delay } = tiers[tier].link;
            let delay = delay + below + tiers[tier].half_latency;
            let what =
                || format!("has links of {delay} with the latency of their switches; the maximum is {DELAY_MAX}");
            if delay > DELAY_MAX { Err(what()) } else { Ok(LinkPlan { rate, delay }) }
        };
        for node in 0..nodes {
            let host = wiring.add_host()?;
            wiring.add_own_link(host, tor_switches[(node / tiers[0].down) as usize], link(0)?)?;
        }
        for tor in 0..pods * tors {
            for agg in 0..aggs {
                for _ in 0..tiers[1].bundle {
                    let above = agg_switches[(tor / tors * aggs + agg) as usize];
                    wiring.add_own_link(tor_switches[tor as usize], above, link(1)?)?;
                }
            }
        }
        for (agg, below) in (0..pods * aggs).zip(agg_switches.iter().filter(|_| cores > 0)) {
            for core in (agg % aggs..cores).step_by(aggs as usize) {
                for _ in 0..tiers[2].bundle {
                    wiring.add_own_link(*below, core_switches[core as usize], link(2)?)?;
                }
            }
        }
        Ok(wiring)
    }
}
