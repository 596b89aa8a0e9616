//! Links: packets in flight between two ports, in order of arrival.
//!
//! Each direction of a link is a ring that belongs to the receiving end. The rings of a node's ports are adjacent in
//! memory, and so are the arrival times of their first entries: a node finds its next arrival by reading one or two
//! cache lines.

use rnic_base::{Duration, Time, prefetch_all, prefetch_at, prefetch_soon_at};

use crate::calendar::EventCalendar;
use crate::entry::{CLASS_SHIFT, Entry, NO_PACKET};

/// Maximum number of ports of a node: the values that the low bits of a [`Key`] can hold.
pub(crate) const PORTS_MAX: usize = 1 << PORT_BITS;

const PORT_BITS: u32 = 10;

/// Largest time in any run: just under 2^54 ps, five hours; larger times do not fit next to the port in a [`Key`].
pub(crate) const RUN_TIME_MAX: Time = Time::from_ps((1 << (64 - PORT_BITS)) - 2);

/// Largest time and duration that a plan may contain: five hours. Packets sent then arrive before [`RUN_TIME_MAX`].
pub(crate) const PLAN_TIME_MAX: Duration = Duration::from_secs(5 * 3_600);

const _: () = assert!(PORTS_MAX <= 1 << CLASS_SHIFT);
const _: () = assert!(PLAN_TIME_MAX.as_ps() + Duration::from_secs(10).as_ps() < RUN_TIME_MAX.as_ps());
const _: () = assert!(Key::NEVER.0 >> PORT_BITS == crate::calendar::NEVER.as_ps());
const _: () = assert!(RUN_TIME_MAX.as_ps() < crate::calendar::NEVER.as_ps());

/// A time and a port number in one machine word, so that the smallest of several keys is the earliest event, and, of
/// two events at the same time, the one of the lower port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn new(time: Time, port: usize) -> Self {
        debug_assert!(time <= RUN_TIME_MAX && port < PORTS_MAX);
        Self(time.as_ps() << PORT_BITS | port as u64)
    }

    /// Returns the time; for [`Key::NEVER`] it is [`crate::calendar::NEVER`].
    #[inline]
    pub(crate) fn time(self) -> Time {
        Time::from_ps(self.0 >> PORT_BITS)
    }

    /// Returns time and port in one machine word, for the trace.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn port(self) -> usize {
        self.0 as usize & (PORTS_MAX - 1)
    }
}

/// Location of the receiving end of a link, stored at the sending end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnd {
    /// Index of the ring in its part of the network.
    pub(crate) ring: u32,
    /// Index of the node in that part.
    pub(crate) node: u32,
    /// Index of the port of that node.
    pub(crate) port: u16,
    /// Index of the part of the network.
    pub(crate) part: u16,
}

/// All packets on links.
#[derive(Debug)]
pub(crate) struct Links {
    rings: Vec<Ring>,
    /// Arrival time and input port of each ring's head entry, in groups of [`GROUP`] (one cache line).
    heads: Vec<[Key; GROUP]>,
}

/// Number of rings whose heads share a cache line. The groups of a switch are not shared with other nodes.
pub(crate) const GROUP: usize = 8;

/// An entry in flight on a link.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Time at which its last bit arrives, and the input port.
    at: Key,
    entry: Entry,
}

const _: () = assert!(size_of::<Arrival>() == 32);

/// Entries of one direction of a link, in order of arrival.
#[derive(Debug, Default)]
struct Ring {
    /// The slots; their number is a power of two, or zero.
    slots: Box<[Arrival]>,
    /// Counters of removed and of added entries; their difference is the number of entries.
    head: u32,
    tail: u32,
}

impl Links {
    pub(crate) fn new(rings: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(rings, Ring::default);
        Self { rings: all, heads: vec![[Key::NEVER; GROUP]; rings.div_ceil(GROUP)] }
    }

    /// Returns the first arrivals at the ports of a switch: `groups` groups from ring `first` on.
    #[inline]
    pub(crate) fn heads(&self, first: u32, groups: usize) -> &[[Key; GROUP]] {
        let first = first as usize / GROUP;
        &self.heads[first..first + groups]
    }

    /// Returns the first arrival of one ring.
    #[inline]
    pub(crate) fn head(&self, ring: u32) -> Key {
        self.heads[ring as usize / GROUP][ring as usize % GROUP]
    }

    /// Returns the index of the headers of the first entry of `ring`; any value when it is empty.
    #[inline]
    pub(crate) fn first_packet(&self, ring: u32) -> u32 {
        let ring = &self.rings[ring as usize];
        ring.slots.get(ring.slot_index(ring.head)).map_or(NO_PACKET, |arrival| arrival.entry.packet)
    }

    /// Returns the packets that arrive on `ring` before `horizon`, at most the first `max_count`.
    #[inline]
    pub(crate) fn packets_until(&self, ring: u32, horizon: Time, max_count: u32) -> impl Iterator<Item = Entry> {
        let ring = &self.rings[ring as usize];
        let end = Key::new(horizon, 0);
        let first =
            (0..ring.len().min(max_count)).map(|offset| ring.slots[ring.slot_index(ring.head.wrapping_add(offset))]);
        first.take_while(move |arrival| arrival.at < end).map(|arrival| arrival.entry)
    }

    /// Prefetches the state of `ring`.
    #[inline]
    pub(crate) fn prefetch_ring(&self, ring: u32) {
        prefetch_at(&self.rings, ring as usize);
        prefetch_at(&self.heads, ring as usize / GROUP);
    }

    /// Prefetches the first arrivals at the ports of a switch, as [`Self::heads`] returns them.
    #[inline]
    pub(crate) fn prefetch_heads(&self, first: u32, groups: usize) {
        prefetch_all(self.heads(first, groups));
    }

    /// Prefetches the first entries of `ring`, at most `max_count`.
    #[inline]
    pub(crate) fn prefetch_first(&self, ring: u32, max_count: u32) {
        let ring = &self.rings[ring as usize];
        let count = max_count.min(ring.len());
        (0..count).for_each(|offset| prefetch_at(&ring.slots, ring.slot_index(ring.head.wrapping_add(offset))));
    }

    /// Prefetches the slot of the next entry of `ring`.
    #[inline]
    pub(crate) fn prefetch_next_slot(&self, ring: u32) {
        let ring = &self.rings[ring as usize];
        prefetch_at(&ring.slots, ring.slot_index(ring.tail));
    }

    /// Prefetches the first entry of `ring`, which is needed next.
    #[inline]
    pub(crate) fn prefetch(&self, ring: u32) {
        let ring = &self.rings[ring as usize];
        prefetch_soon_at(&ring.slots, ring.slot_index(ring.head));
    }

    /// Removes the first entry of `ring`, which must not be empty, and returns it.
    #[inline]
    pub(crate) fn pop(&mut self, ring: u32) -> Entry {
        let index = ring as usize;
        let ring = &mut self.rings[index];
        debug_assert!(!ring.is_empty());
        let entry = ring.slots[ring.slot_index(ring.head)].entry;
        ring.head = ring.head.wrapping_add(1);
        let next = if ring.is_empty() { Key::NEVER } else { ring.slots[ring.slot_index(ring.head)].at };
        self.heads[index / GROUP][index % GROUP] = next;
        entry
    }

    /// Adds `entry` to the link to `end`, to arrive at `at`, after all packets on the same link.
    #[inline]
    pub(crate) fn push(&mut self, end: LinkEnd, at: Time, entry: Entry, calendar: &mut EventCalendar) {
        let index = end.ring as usize;
        let ring = &mut self.rings[index];
        let key = Key::new(at, usize::from(end.port));
        debug_assert!(
            ring.is_empty() || ring.last().at <= key,
            "a packet would arrive before an earlier one on the same link"
        );
        let was_empty = ring.is_empty();
        ring.push(Arrival { at: key, entry });
        if was_empty {
            self.heads[index / GROUP][index % GROUP] = key;
            calendar.lower(end.node, at);
        }
    }

    /// Adds `entry` to the link to `end`, to arrive at `at`, before the packets that arrive later: for links that
    /// reorder.
    pub(crate) fn insert(&mut self, end: LinkEnd, at: Time, entry: Entry, calendar: &mut EventCalendar) {
        let index = end.ring as usize;
        let ring = &mut self.rings[index];
        ring.push(Arrival { at: Key::new(at, usize::from(end.port)), entry });
        ring.sink_last();
        let first = ring.slots[ring.slot_index(ring.head)].at;
        self.heads[index / GROUP][index % GROUP] = first;
        calendar.lower(end.node, first.time());
    }

    /// Returns the number of entries in flight.
    pub(crate) fn len(&self) -> usize {
        self.rings.iter().map(|ring| ring.len() as usize).sum()
    }
}

/// The smallest of the keys of many groups, found again after one of them has changed: by the smallest of each of a few
/// runs of groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    of_runs: [Key; GROUP],
    /// Number of groups in a run.
    run: usize,
    runs: usize,
}

impl Least {
    #[inline]
    pub(crate) fn new(keys: &[[Key; GROUP]]) -> Self {
        let run = keys.len().div_ceil(GROUP);
        let mut of_runs = [Key::NEVER; GROUP];
        let mut runs = 0;
        for (keys, of_run) in keys.chunks(run).zip(&mut of_runs) {
            *of_run = least(keys);
            runs += 1;
        }
        Self { of_runs, run, runs }
    }

    /// Returns the smallest key.
    #[inline]
    pub(crate) fn get(&self) -> Key {
        self.of_runs[..self.runs].iter().copied().fold(Key::NEVER, Key::min)
    }

    /// Takes into account that the key of `port` has changed.
    #[inline]
    pub(crate) fn update(&mut self, keys: &[[Key; GROUP]], port: usize) {
        let run = if self.run == 1 { port / GROUP } else { port / GROUP / self.run };
        let first = run * self.run;
        self.of_runs[run] = least(&keys[first..keys.len().min(first + self.run)]);
    }
}

/// Returns the smallest of `keys`.
#[inline]
pub(crate) fn least(keys: &[[Key; GROUP]]) -> Key {
    let of_group = |group: &[Key; GROUP]| {
        let [a, b, c, d, e, f, g, h] = *group;
        a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
    };
    keys.iter().map(of_group).fold(Key::NEVER, Key::min)
}

impl Ring {
    #[inline]
    fn slot_index(&self, counter: u32) -> usize {
        counter as usize & (self.slots.len().wrapping_sub(1))
    }

    #[inline]
    fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    fn last(&self) -> &Arrival {
        &self.slots[self.slot_index(self.tail.wrapping_sub(1))]
    }

    #[inline]
    fn push(&mut self, arrival: Arrival) {
        if self.len() as usize == self.slots.len() {
            self.grow();
        }
        let slot_index = self.slot_index(self.tail);
        self.slots[slot_index] = arrival;
        self.tail = self.tail.wrapping_add(1);
    }

    /// Moves the last entry in front of the entries that arrive later.
    fn sink_last(&mut self) {
        let mut counter = self.tail.wrapping_sub(1);
        while counter != self.head {
            let (here, before) = (self.slot_index(counter), self.slot_index(counter.wrapping_sub(1)));
            if self.slots[before].at <= self.slots[here].at {
                break;
            }
            self.slots.swap(before, here);
            counter = counter.wrapping_sub(1);
        }
    }

    /// Doubles the capacity. This happens a few times per link and run, because the packets in flight are bounded by
    /// delay times rate.
    #[cold]
    fn grow(&mut self) {
        let capacity = (self.slots.len() * 2).max(RING_CAPACITY_MIN);
        let len = self.len();
        let mut slots = Vec::with_capacity(capacity);
        slots.extend((0..len).map(|offset| self.slots[self.slot_index(self.head.wrapping_add(offset))]));
        slots.resize(capacity, Arrival { at: Key::NEVER, entry: Entry::pause_frame(crate::entry::Flags::NONE) });
        self.slots = slots.into_boxed_slice();
        (self.head, self.tail) = (0, len);
    }
}

/// Initial number of entries of a ring when it is first used: four cache lines.
const RING_CAPACITY_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::NEVER;
    use crate::entry::Flags;

    const END: LinkEnd = LinkEnd { ring: 1, node: 0, port: 3, part: 0 };

    fn entry(id: u64) -> Entry {
        Entry::new(id, 0, 0, 0, 64, Flags::NONE)
    }

    #[test]
    fn a_link_is_first_in_first_out_and_grows() {
        let (mut links, mut calendar) = (Links::new(2), EventCalendar::new(1));
        for id in 0..100 {
            links.push(END, Time::from_ns(10 + id), entry(id), &mut calendar);
        }
        assert_eq!(calendar.next_of(0), Time::from_ns(10));
        assert_eq!((links.head(1).time(), links.head(1).port()), (Time::from_ns(10), 3));
        assert_eq!(links.len(), 100);
        for id in 0..100 {
            assert_eq!(links.pop(1).identity, id);
        }
        assert_eq!(links.head(1).time(), NEVER);
    }

    #[test]
    fn insert_sorts_by_arrival_and_keeps_equals_in_order() {
        let (mut links, mut calendar) = (Links::new(2), EventCalendar::new(1));
        for (id, ns) in [(1, 50), (2, 20), (3, 50), (4, 10), (5, 30)] {
            links.insert(END, Time::from_ns(ns), entry(id), &mut calendar);
        }
        assert_eq!(calendar.next_of(0), Time::from_ns(10));
        let order: Vec<u64> = (0..5).map(|_| links.pop(1).identity).collect();
        assert_eq!(order, [4, 2, 5, 1, 3]);
    }

    /// As keys change one at a time, with up to 1,024 ports, the least one is found without a search of all.
    #[test]
    fn the_least_of_many_groups_follows_each_change() {
        let mut random = rnic_base::RandomStreams::new(5).stream("keys");
        for ports in [3usize, 8, 9, 64, 65, 200, 1_024] {
            let mut keys = vec![[Key::NEVER; GROUP]; ports.div_ceil(GROUP)];
            let mut known = Least::new(&keys);
            for _ in 0..2_000 {
                let port = random.below(ports as u64) as usize;
                let is_empty = random.below(3) == 0;
                let key = if is_empty { Key::NEVER } else { Key::new(Time::from_ns(random.below(50)), port) };
                keys[port / GROUP][port % GROUP] = key;
                known.update(&keys, port);
                assert_eq!(known.get(), least(&keys), "{ports} ports");
                assert_eq!(known.get(), Least::new(&keys).get(), "{ports} ports");
            }
        }
    }

    #[test]
    fn the_least_key_is_the_earliest_and_then_the_lowest_port() {
        let mut keys =
            [Key::new(Time::from_ns(5), 1), Key::NEVER, Key::new(Time::from_ns(4), 9), Key::new(Time::from_ns(4), 2)];
        keys.sort();
        assert_eq!(keys.map(Key::port)[..3], [2, 9, 1]);
        assert_eq!(Key::new(RUN_TIME_MAX, PORTS_MAX - 1).time(), RUN_TIME_MAX);
        assert_ne!(Key::new(RUN_TIME_MAX, PORTS_MAX - 1), Key::NEVER);
    }
}
