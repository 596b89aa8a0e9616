//! Links: what is under way between two ports, in order of arrival.
//!
//! Each direction of a link is a ring that belongs to the receiving end. The rings of a node's ports lie side by side,
//! and so do the instants of their first entries: a node finds its next arrival by looking at one or two cache lines.

use rnic_base::Time;

use crate::agenda::Agenda;
use crate::entry::Entry;

/// Ports of a node, at most: what the low bits of a [`Key`] can name.
pub(crate) const PORTS_MAX: usize = 1 << PORT_BITS;

const PORT_BITS: u32 = 10;

/// The longest run: just under 2^54 ps, five hours; later instants do not fit beside the port in a [`Key`].
pub(crate) const RUN_TIME_MAX: Time = Time::from_ps((1 << (64 - PORT_BITS)) - 2);

const _: () = assert!(Key::NEVER.0 >> PORT_BITS == crate::agenda::NEVER.as_ps());
const _: () = assert!(RUN_TIME_MAX.as_ps() < crate::agenda::NEVER.as_ps());

/// An instant and a port in one word, so that the least of several keys is the earliest event, and of two at the same
/// instant that of the lower port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn new(time: Time, port: usize) -> Self {
        debug_assert!(time <= RUN_TIME_MAX && port < PORTS_MAX);
        Self(time.as_ps() << PORT_BITS | port as u64)
    }

    /// [`crate::agenda::NEVER`] for [`Key::NEVER`].
    #[inline]
    pub(crate) fn time(self) -> Time {
        Time::from_ps(self.0 >> PORT_BITS)
    }

    /// Both in one word, for the trace.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn port(self) -> usize {
        self.0 as usize & (PORTS_MAX - 1)
    }
}

/// The receiving end of a link, as its sender knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnd {
    /// Which ring.
    pub(crate) ring: u32,
    /// Which node.
    pub(crate) node: u32,
    /// Which port of that node.
    pub(crate) port: u32,
}

/// Everything that is on a link.
#[derive(Debug)]
pub(crate) struct Links {
    rings: Vec<Ring>,
    /// The first arrival of every ring, with the port that it will come in at.
    heads: Vec<Key>,
}

/// Entries of one direction of a link, in order of arrival.
#[derive(Debug, Default)]
struct Ring {
    /// A power of two, or nothing.
    entries: Box<[Entry]>,
    head: u32,
    len: u32,
}

impl Links {
    pub(crate) fn new(rings: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(rings, Ring::default);
        Self { rings: all, heads: vec![Key::NEVER; rings] }
    }

    /// The first arrivals at `ports` ports from ring `first` on.
    #[inline]
    pub(crate) fn heads(&self, first: u32, ports: usize) -> &[Key] {
        &self.heads[first as usize..first as usize + ports]
    }

    /// The first arrival at one ring.
    #[inline]
    pub(crate) fn head(&self, ring: u32) -> Key {
        self.heads[ring as usize]
    }

    /// Takes the first entry of `ring`, which is that of `port`.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub(crate) fn pop(&mut self, ring: u32, port: usize) -> Entry {
        let index = ring as usize;
        let ring = &mut self.rings[index];
        let entry = ring.pop();
        self.heads[index] = if ring.len == 0 { Key::NEVER } else { Key::new(ring.first().at, port) };
        entry
    }

    /// Puts `entry` on the way to `end`; it arrives after everything that is on the same way.
    #[inline]
    pub(crate) fn push(&mut self, end: LinkEnd, entry: Entry, agenda: &mut Agenda) {
        let ring = &mut self.rings[end.ring as usize];
        debug_assert!(ring.len == 0 || ring.last().at <= entry.at, "a link keeps its order");
        ring.push(entry);
        if ring.len == 1 {
            self.heads[end.ring as usize] = Key::new(entry.at, end.port as usize);
            agenda.lower(end.node, entry.at);
        }
    }

    /// Puts `entry` on the way to `end`, before whatever arrives later: for links that reorder.
    pub(crate) fn insert(&mut self, end: LinkEnd, entry: Entry, agenda: &mut Agenda) {
        let ring = &mut self.rings[end.ring as usize];
        ring.push(entry);
        ring.sink_last();
        let first = ring.first().at;
        self.heads[end.ring as usize] = Key::new(first, end.port as usize);
        agenda.lower(end.node, first);
    }

    /// How many entries are under way.
    pub(crate) fn len(&self) -> usize {
        self.rings.iter().map(|ring| ring.len as usize).sum()
    }
}

impl Ring {
    #[inline]
    fn slot(&self, index: u32) -> usize {
        index as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn first(&self) -> &Entry {
        &self.entries[self.slot(self.head)]
    }

    fn last(&self) -> &Entry {
        &self.entries[self.slot(self.head.wrapping_add(self.len - 1))]
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        if self.len as usize == self.entries.len() {
            self.grow();
        }
        let slot = self.slot(self.head.wrapping_add(self.len));
        self.entries[slot] = entry;
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Entry {
        assert!(self.len > 0, "nothing is under way");
        let entry = *self.first();
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        entry
    }

    /// Moves the last entry before those that arrive later than it.
    fn sink_last(&mut self) {
        let mut index = self.head.wrapping_add(self.len - 1);
        while index != self.head {
            let (here, before) = (self.slot(index), self.slot(index.wrapping_sub(1)));
            if self.entries[before].at <= self.entries[here].at {
                break;
            }
            self.entries.swap(before, here);
            index = index.wrapping_sub(1);
        }
    }

    /// Twice the room. Happens a few times per link and run: what is under way is bounded by delay times rate.
    #[cold]
    fn grow(&mut self) {
        let capacity = (self.entries.len() * 2).max(RING_START);
        let mut entries = Vec::with_capacity(capacity);
        for offset in 0..self.len {
            entries.push(self.entries[self.slot(self.head.wrapping_add(offset))]);
        }
        entries.resize(capacity, Entry::pause_frame(crate::entry::Flags::NONE));
        self.entries = entries.into_boxed_slice();
        self.head = 0;
    }
}

/// Entries that a ring starts with when it is first used: four cache lines.
const RING_START: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::NEVER;
    use crate::entry::Flags;

    const END: LinkEnd = LinkEnd { ring: 1, node: 0, port: 3 };

    fn entry(id: u64, ns: u64) -> Entry {
        Entry { at: Time::from_ns(ns), ..Entry::new(id, 0, 0, 0, 64, Flags::NONE) }
    }

    #[test]
    fn a_link_is_first_in_first_out_and_grows() {
        let (mut links, mut agenda) = (Links::new(2), Agenda::new(1));
        for id in 0..100 {
            links.push(END, entry(id, 10 + id), &mut agenda);
        }
        assert_eq!(agenda.next_of(0), Time::from_ns(10));
        assert_eq!((links.head(1).time(), links.head(1).port()), (Time::from_ns(10), 3));
        assert_eq!(links.len(), 100);
        for id in 0..100 {
            assert_eq!(links.pop(1, 3).identity, id);
        }
        assert_eq!(links.head(1).time(), NEVER);
    }

    #[test]
    fn insert_sorts_by_arrival_and_keeps_equals_in_order() {
        let (mut links, mut agenda) = (Links::new(2), Agenda::new(1));
        for (id, ns) in [(1, 50), (2, 20), (3, 50), (4, 10), (5, 30)] {
            links.insert(END, entry(id, ns), &mut agenda);
        }
        assert_eq!(agenda.next_of(0), Time::from_ns(10));
        let order: Vec<u64> = (0..5).map(|_| links.pop(1, 3).identity).collect();
        assert_eq!(order, [4, 2, 5, 1, 3]);
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
