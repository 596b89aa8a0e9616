//! All parts of a network: a window for each, and nodes by their number in the whole network.

use rnic_base::Time;

use super::part::{Part, Window};
use super::partition::{Partition, Place};
use crate::host::{Host, News};
use crate::switch::Switch;

/// Who has the parts of a network do their windows. The fabric starts no thread: its caller may bring some.
///
/// # Examples
/// ```
/// use rnic_fabric::simulation::{Crew, Part};
///
/// struct Threads;
///
/// impl Crew for Threads {
///     fn run(&mut self, parts: &mut [Part]) {
///         std::thread::scope(|scope| parts.iter_mut().for_each(|part| drop(scope.spawn(|| part.run()))));
///     }
/// }
/// ```
pub trait Crew: Send {
    /// Calls [`Part::run`] once for each of `parts`, in any order or all at once, and comes back when all are done.
    /// They stay in their places.
    fn run(&mut self, parts: &mut [Part]);
}

/// One part after the other.
#[derive(Debug)]
struct Alone;

impl Crew for Alone {
    fn run(&mut self, parts: &mut [Part]) {
        parts.iter_mut().for_each(Part::run);
    }
}

/// The parts of a network, and which node is where.
pub(super) struct Parts {
    parts: Vec<Part>,
    /// Where each host is: its part, and its index there.
    hosts: Vec<(usize, usize)>,
    /// The same of each switch.
    switches: Vec<(usize, usize)>,
    crew: Box<dyn Crew>,
}

impl Parts {
    /// `parts` are cut as `partition` says.
    pub(super) fn new(parts: Vec<Part>, partition: &Partition) -> Self {
        let (hosts, switches) = partition.places().split_at(parts.iter().map(|part| part.hosts.len()).sum());
        let host = |place: &Place| (usize::from(place.part), place.node as usize);
        let switch = |place: &Place| {
            let part = usize::from(place.part);
            (part, place.node as usize - parts[part].hosts.len())
        };
        let (hosts, switches) = (hosts.iter().map(host).collect(), switches.iter().map(switch).collect());
        Self { parts, hosts, switches, crew: Box::new(Alone) }
    }

    /// From now on `crew` has them run.
    pub(super) fn set_crew(&mut self, crew: Box<dyn Crew>) {
        self.crew = crew;
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The earliest event of any node.
    pub(super) fn earliest(&self) -> Time {
        self.parts.iter().map(|part| part.network.earliest()).min().expect("there is a part")
    }

    /// Does everything before the horizon of `window`, and hands over what goes from part to part.
    pub(super) fn run(&mut self, window: Window) {
        self.parts.iter_mut().for_each(|part| part.set_window(window));
        match &mut self.parts[..] {
            [only] => return only.run(),
            parts => self.crew.run(parts),
        }
        let is_sound = |(part, number): (&Part, u16)| part.is_done() && part.network.part() == number;
        assert!(self.parts.iter().zip(0..).all(is_sound), "the crew has every part run, and leaves it in its place");
        for first in 0..self.parts.len() {
            for second in first + 1..self.parts.len() {
                let both = self.parts.get_disjoint_mut([first, second]).expect("two parts");
                let [first, second] = both.map(|part| &mut part.network);
                first.take_parcel(second);
                second.take_parcel(first);
            }
        }
    }

    /// Moves what nodes have told to the end of `news`.
    pub(super) fn take_news(&mut self, news: &mut Vec<News>) {
        self.parts.iter_mut().for_each(|part| news.append(&mut part.news));
    }

    /// Packets under way now.
    pub(super) fn live(&self) -> usize {
        self.parts.iter().map(|part| part.network.live()).sum()
    }

    /// Entries on links now.
    pub(super) fn on_links(&self) -> usize {
        self.parts.iter().map(|part| part.network.on_links()).sum()
    }

    /// How many hosts there are.
    pub(super) fn host_count(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn host(&self, host: u32) -> &Host {
        let (part, index) = self.hosts[host as usize];
        &self.parts[part].hosts[index]
    }

    pub(super) fn host_mut(&mut self, host: u32) -> &mut Host {
        let (part, index) = self.hosts[host as usize];
        &mut self.parts[part].hosts[index]
    }

    /// `host` has something to do at `time`, perhaps earlier than what it had before.
    pub(super) fn lower(&mut self, host: u32, time: Time) {
        let (part, index) = self.hosts[host as usize];
        self.parts[part].network.agenda.lower(index as u32, time);
    }

    /// All hosts, in order.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.parts.iter().flat_map(|part| &part.hosts)
    }

    /// All hosts, in order.
    pub(super) fn hosts_mut(&mut self) -> impl Iterator<Item = &mut Host> {
        self.parts.iter_mut().flat_map(|part| &mut part.hosts)
    }

    pub(super) fn switch(&self, switch: usize) -> &Switch {
        let (part, index) = self.switches[switch];
        &self.parts[part].switches[index]
    }

    /// All switches, in order.
    pub(super) fn switches(&self) -> impl Iterator<Item = &Switch> {
        (0..self.switches.len()).map(|switch| self.switch(switch))
    }

    /// All switches, part by part.
    pub(super) fn switches_mut(&mut self) -> impl Iterator<Item = &mut Switch> {
        self.parts.iter_mut().flat_map(|part| &mut part.switches)
    }

    /// One part, to plant something.
    #[cfg(test)]
    pub(super) fn part_mut(&mut self, part: usize) -> &mut Part {
        &mut self.parts[part]
    }
}
