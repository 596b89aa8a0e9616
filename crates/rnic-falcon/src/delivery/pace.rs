//! The timing wheel: selects the connection of a NIC that may send next, when many wait for their departure times.
//!
//! Source: Carousel (SIGCOMM'17), which Falcon (SIGCOMM'25) section 3.2 names; slots of 512 ns (the specification's
//! unit of gaps), up to 65536 of them, the maximum of a 16-bit packet gap: 33.5 ms. The wheel has as many slots as the
//! furthest departure so far has needed, because most departures are within microseconds.
//!
//! The wheel is the project's own, because available implementations read a clock, allocate per entry or store
//! callbacks; this one takes `now`, and an entry is a connection's number, linked through one array. A connection has
//! at most one entry (its next departure); waiting again moves it. Departures are never early and less than a slot
//! late; connections of a slot depart in the order in which they were entered. Departures beyond the horizon wait in
//! its last slot; their connections are then taken too early, have no packet to send yet, and are entered again.

use rnic_base::{Duration, Time, prefetch_at};

/// Length of a slot.
pub const SLOT: Duration = Duration::from_ns(512);

/// Maximum and initial number of slots of a wheel; initially half a millisecond.
const SLOTS_MAX: usize = 1 << 16;
const SLOTS_FIRST: usize = 1 << 10;

const NONE: u32 = u32::MAX;

/// Entry of a connection, linked into the list of its slot.
#[derive(Clone, Copy, Debug)]
struct ListNode {
    next: u32,
    previous: u32,
    /// Slot of the connection; [`NONE`] while it does not wait.
    slot: u32,
}

const UNLINKED: ListNode = ListNode { next: NONE, previous: NONE, slot: NONE };

/// Connections that depart in a slot: the first and the last of a linked list.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NONE, tail: NONE };

/// Timing wheel, see the module. Connections are numbers below the capacity.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// Lists by slot; their number is a power of two.
    lists: Box<[List]>,
    links: Vec<ListNode>,
    /// Bitmap of the slots with an entry; `summary` is a bitmap of its words that are not zero.
    occupied: Box<[u64]>,
    summary: [u64; SLOTS_MAX / 64 / 64],
    /// Slot number of `now`, counted from time zero.
    position: u64,
    waiting: usize,
}

impl Wheel {
    /// Creates a wheel for connections 0 to `connections` - 1.
    ///
    /// # Panics
    /// When their number exceeds the 32-bit range.
    pub fn new(connections: usize) -> Self {
        assert!(connections < NONE as usize, "connections have 32-bit numbers");
        Self {
            lists: vec![EMPTY; SLOTS_FIRST].into_boxed_slice(),
            links: vec![UNLINKED; connections],
            occupied: vec![0; SLOTS_FIRST / 64].into_boxed_slice(),
            summary: [0; SLOTS_MAX / 64 / 64],
            position: 0,
            waiting: 0,
        }
    }

    /// Extends the capacity to connections 0 to `connections` - 1, if that is more than before.
    ///
    /// # Panics
    /// When their number exceeds the 32-bit range.
    pub fn grow(&mut self, connections: usize) {
        assert!(connections < NONE as usize, "connections have 32-bit numbers");
        if connections > self.links.len() {
            self.links.resize(connections, UNLINKED);
        }
    }

    /// Returns the number of connections that wait.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Enters `connection` at time `now` for `departure`, replacing an earlier entry.
    ///
    /// # Panics
    /// When there is no such connection.
    pub fn wait(&mut self, now: Time, connection: u32, departure: Time) {
        self.cancel(connection);
        let slot = departure.as_ps().div_ceil(SLOT.as_ps());
        if slot.saturating_sub(self.position) >= self.lists.len() as u64 {
            self.reach(now, slot);
        }
        let place = self.place(self.position + self.ahead(slot) as u64);
        self.put(connection, place);
        self.waiting += 1;
    }

    /// Returns the distance of `slot` from the position in slots, limited to the last slot of the largest wheel.
    #[inline]
    fn ahead(&self, slot: u64) -> usize {
        slot.saturating_sub(self.position).min(SLOTS_MAX as u64 - 1) as usize
    }

    /// Returns the index in `lists` of `slot`, which is counted from time zero.
    #[inline]
    fn place(&self, slot: u64) -> usize {
        slot as usize & (self.lists.len() - 1)
    }

    /// Appends `connection` to the list at index `place`.
    #[inline]
    fn put(&mut self, connection: u32, place: usize) {
        let list = &mut self.lists[place];
        self.links[connection as usize] = ListNode { next: NONE, previous: list.tail, slot: place as u32 };
        match list.tail {
            NONE => list.head = connection,
            last => self.links[last as usize].next = connection,
        }
        list.tail = connection;
        self.occupied[place / 64] |= 1 << (place % 64);
        self.summary[place / 64 / 64] |= 1 << (place / 64 % 64);
    }

    /// Ensures that the wheel has slots up to `slot`, or the maximum number.
    #[cold]
    fn reach(&mut self, now: Time, slot: u64) {
        // Slots before `now` without an entry can be skipped, although `take` was not called for them.
        let now_slot = now.as_ps() / SLOT.as_ps();
        self.position = self.position.max(self.next_slot().map_or(now_slot, |next| next.min(now_slot)));
        let ahead = self.ahead(slot);
        if ahead < self.lists.len() {
            return;
        }
        let waiting: Vec<(u64, u32)> = self.all().collect();
        let slots = (ahead + 1).next_power_of_two();
        self.lists = vec![EMPTY; slots].into_boxed_slice();
        self.occupied = vec![0; slots / 64].into_boxed_slice();
        self.summary = [0; SLOTS_MAX / 64 / 64];
        for (slot, connection) in waiting {
            self.put(connection, self.place(slot));
        }
    }

    /// Returns all connections in the order of their departures, with their slots.
    fn all(&self) -> impl Iterator<Item = (u64, u32)> {
        let first = self.next_slot().map(|slot| (slot, self.lists[self.place(slot)].head));
        core::iter::successors(first, |(slot, connection)| match self.links[*connection as usize].next {
            NONE => self.slot_from(slot + 1).map(|slot| (slot, self.lists[self.place(slot)].head)),
            next => Some((*slot, next)),
        })
    }

    /// Returns the first few connections that depart before `horizon`.
    #[inline]
    pub fn few_until(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let before = move |(slot, _): &(u64, u32)| slot * SLOT.as_ps() < horizon.as_ps();
        self.all().take(FEW).take_while(before).map(|(_, connection)| connection)
    }

    /// Prefetches the memory that the next departures need.
    #[inline]
    pub fn prefetch(&self) {
        let place = self.place(self.position);
        prefetch_at(&self.lists, place);
        prefetch_at(&self.occupied, place / 64);
    }

    /// Removes the entry of `connection`, if it waits.
    ///
    /// # Panics
    /// When there is no such connection.
    pub fn cancel(&mut self, connection: u32) {
        let ListNode { next, previous, slot } = self.links[connection as usize];
        if slot == NONE {
            return;
        }
        let place = slot as usize;
        match previous {
            NONE => self.lists[place].head = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[place].tail = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.links[connection as usize] = UNLINKED;
        self.waiting -= 1;
        if self.lists[place].head == NONE {
            let word = place / 64;
            self.occupied[word] &= !(1 << (place % 64));
            if self.occupied[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    /// Removes and returns a connection whose departure time has been reached, earliest slot first.
    pub fn take(&mut self, now: Time) -> Option<u32> {
        let now_slot = now.as_ps() / SLOT.as_ps();
        let due = self.next_slot().filter(|slot| *slot <= now_slot);
        let Some(slot) = due else {
            self.position = self.position.max(now_slot);
            return None;
        };
        self.position = slot;
        let connection = self.lists[self.place(slot)].head;
        self.cancel(connection);
        Some(connection)
    }

    /// Returns the time of the next departure.
    pub fn deadline(&self) -> Option<Time> {
        self.next_slot().map(|slot| Time::from_ps(slot * SLOT.as_ps()))
    }

    /// Returns the first slot with an entry, at or after the position, counted from time zero.
    #[inline]
    fn next_slot(&self) -> Option<u64> {
        self.slot_from(self.position)
    }

    /// Returns the first slot with an entry, at or after `slot`, which is not before the position.
    #[inline]
    fn slot_from(&self, slot: u64) -> Option<u64> {
        if self.waiting == 0 || slot - self.position >= self.lists.len() as u64 {
            return None;
        }
        let (position, start) = (self.place(self.position), self.place(slot));
        let turn = self.lists.len() - 1;
        let is_later = |place: &usize| place.wrapping_sub(position) & turn >= start.wrapping_sub(position) & turn;
        let found = self.occupied_from(start).filter(is_later).or_else(|| self.occupied_from(0).filter(is_later))?;
        Some(slot + (found.wrapping_sub(start) & turn) as u64)
    }

    fn occupied_from(&self, start: usize) -> Option<usize> {
        let word = start / 64;
        let bits = self.occupied[word] >> (start % 64);
        if bits != 0 {
            return Some(start + bits.trailing_zeros() as usize);
        }
        let mut group = (word + 1) / 64;
        let mut words = self.summary.get(group)? >> ((word + 1) % 64) << ((word + 1) % 64);
        while words == 0 {
            group += 1;
            words = *self.summary.get(group)?;
        }
        let word = group * 64 + words.trailing_zeros() as usize;
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }
}

/// Number of connections returned ahead of time.
const FEW: usize = 4;

#[cfg(test)]
#[path = "pace/tests.rs"]
mod tests;
