//! The timing wheel: selects the connection of a NIC that may send next, when several connections wait for their
//! departure times.
//!
//! Source: Carousel (SIGCOMM'17), which Falcon (SIGCOMM'25) section 3.2 refers to; slots of 512 ns (the
//! specification's unit of gaps), up to 65536 of them, the maximum of a 16-bit packet gap: 33.5 ms. The wheel has as
//! many slots as the furthest departure so far required, because most departures are within microseconds.
//!
//! The project implements its own wheel, because available implementations read a clock, allocate per entry or store
//! callbacks; this one takes `now`, and an entry is a connection's number, linked through one array. A connection has
//! at most one entry (its next departure); entering the connection again moves the entry. No connection departs early
//! or a slot or more late; connections in the same slot depart in the order in which they were entered. Connections
//! whose departure is beyond the horizon are entered in the last slot; they are then removed too early, have no
//! packet to send yet, and are entered again.

use rnic_base::{Duration, Time, prefetch_at};

/// Length of a slot.
pub const SLOT_LEN: Duration = Duration::from_ns(512);

/// Maximum and initial number of slots of a wheel; initially half a millisecond.
const SLOTS_MAX: usize = 1 << 16;
const SLOTS_INITIAL: usize = 1 << 10;

const NO_ENTRY: u32 = u32::MAX;

/// Entry of a connection, linked into the list of its slot.
#[derive(Clone, Copy, Debug)]
struct ListNode {
    next: u32,
    previous: u32,
    /// Slot of the connection; [`NO_ENTRY`] if it has no entry.
    slot: u32,
}

const UNLINKED: ListNode = ListNode { next: NO_ENTRY, previous: NO_ENTRY, slot: NO_ENTRY };

/// Connections that depart in a slot: the first and the last of a linked list.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY_LIST: List = List { head: NO_ENTRY, tail: NO_ENTRY };

/// The timing wheel, see the module documentation. Connections are numbered from zero to one less than the capacity.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// Lists by slot; the number of lists is a power of two.
    lists: Box<[List]>,
    links: Vec<ListNode>,
    /// Bitmap of the slots that have an entry; `summary` is a bitmap of the non-zero words of `occupied`.
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
    /// If their number exceeds the 32-bit range.
    pub fn new(connections: usize) -> Self {
        assert!(connections < NO_ENTRY as usize, "connections have 32-bit numbers");
        Self {
            lists: vec![EMPTY_LIST; SLOTS_INITIAL].into_boxed_slice(),
            links: vec![UNLINKED; connections],
            occupied: vec![0; SLOTS_INITIAL / 64].into_boxed_slice(),
            summary: [0; SLOTS_MAX / 64 / 64],
            position: 0,
            waiting: 0,
        }
    }

    /// Extends the capacity to connections 0 to `connections` - 1, if that is larger than before.
    ///
    /// # Panics
    /// If their number exceeds the 32-bit range.
    pub fn grow(&mut self, connections: usize) {
        assert!(connections < NO_ENTRY as usize, "connections have 32-bit numbers");
        if connections > self.links.len() {
            self.links.resize(connections, UNLINKED);
        }
    }

    /// Returns the number of connections that have an entry.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Enters `connection` at time `now` with departure time `departure`, replacing its previous entry, if any.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn schedule(&mut self, now: Time, connection: u32, departure: Time) {
        self.cancel(connection);
        let slot = departure.as_ps().div_ceil(SLOT_LEN.as_ps());
        if slot.saturating_sub(self.position) >= self.lists.len() as u64 {
            self.extend_to(now, slot);
        }
        let index = self.list_index(self.position + self.distance_to(slot) as u64);
        self.append(connection, index);
        self.waiting += 1;
    }

    /// Returns the distance of `slot` from the current position, in slots, limited to that of the last slot of the
    /// largest wheel.
    #[inline]
    fn distance_to(&self, slot: u64) -> usize {
        slot.saturating_sub(self.position).min(SLOTS_MAX as u64 - 1) as usize
    }

    /// Returns the index in `lists` of `slot`, which is counted from time zero.
    #[inline]
    fn list_index(&self, slot: u64) -> usize {
        slot as usize & (self.lists.len() - 1)
    }

    /// Appends `connection` to the list at index `index` in `lists`.
    #[inline]
    fn append(&mut self, connection: u32, index: usize) {
        let list = &mut self.lists[index];
        self.links[connection as usize] = ListNode { next: NO_ENTRY, previous: list.tail, slot: index as u32 };
        match list.tail {
            NO_ENTRY => list.head = connection,
            last => self.links[last as usize].next = connection,
        }
        list.tail = connection;
        self.occupied[index / 64] |= 1 << (index % 64);
        self.summary[index / 64 / 64] |= 1 << (index / 64 % 64);
    }

    /// Extends the wheel, if necessary, so that it reaches `slot` or has the maximum number of slots.
    #[cold]
    fn extend_to(&mut self, now: Time, slot: u64) {
        // Slots before `now` without an entry can be skipped, although `take` was not called for them.
        let now_slot = now.as_ps() / SLOT_LEN.as_ps();
        self.position = self.position.max(self.next_slot().map_or(now_slot, |next| next.min(now_slot)));
        let distance = self.distance_to(slot);
        if distance < self.lists.len() {
            return;
        }
        let waiting: Vec<(u64, u32)> = self.all().collect();
        let slots = (distance + 1).next_power_of_two();
        self.lists = vec![EMPTY_LIST; slots].into_boxed_slice();
        self.occupied = vec![0; slots / 64].into_boxed_slice();
        self.summary = [0; SLOTS_MAX / 64 / 64];
        for (slot, connection) in waiting {
            self.append(connection, self.list_index(slot));
        }
    }

    /// Returns all connections that have an entry in the order of their departures, with their slots.
    fn all(&self) -> impl Iterator<Item = (u64, u32)> {
        let first = self.next_slot().map(|slot| (slot, self.lists[self.list_index(slot)].head));
        core::iter::successors(first, |(slot, connection)| match self.links[*connection as usize].next {
            NO_ENTRY => self.slot_from(slot + 1).map(|slot| (slot, self.lists[self.list_index(slot)].head)),
            next => Some((*slot, next)),
        })
    }

    /// Returns the first few connections that depart before `horizon`.
    #[inline]
    pub fn first_due_before(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let is_before_horizon = move |(slot, _): &(u64, u32)| slot * SLOT_LEN.as_ps() < horizon.as_ps();
        self.all().take(PREFETCHED_MAX).take_while(is_before_horizon).map(|(_, connection)| connection)
    }

    /// Prefetches the memory that is accessed for the next departures.
    #[inline]
    pub fn prefetch(&self) {
        let index = self.list_index(self.position);
        prefetch_at(&self.lists, index);
        prefetch_at(&self.occupied, index / 64);
    }

    /// Removes the entry of `connection`, if it has one.
    ///
    /// # Panics
    /// If there is no such connection.
    pub fn cancel(&mut self, connection: u32) {
        let ListNode { next, previous, slot } = self.links[connection as usize];
        if slot == NO_ENTRY {
            return;
        }
        let index = slot as usize;
        match previous {
            NO_ENTRY => self.lists[index].head = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NO_ENTRY => self.lists[index].tail = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.links[connection as usize] = UNLINKED;
        self.waiting -= 1;
        if self.lists[index].head == NO_ENTRY {
            let word = index / 64;
            self.occupied[word] &= !(1 << (index % 64));
            if self.occupied[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    /// Removes the entry of a connection whose departure time has been reached, earliest slot first, and returns the
    /// connection.
    pub fn take(&mut self, now: Time) -> Option<u32> {
        let now_slot = now.as_ps() / SLOT_LEN.as_ps();
        let due = self.next_slot().filter(|slot| *slot <= now_slot);
        let Some(slot) = due else {
            self.position = self.position.max(now_slot);
            return None;
        };
        self.position = slot;
        let connection = self.lists[self.list_index(slot)].head;
        self.cancel(connection);
        Some(connection)
    }

    /// Returns the time of the next departure.
    pub fn deadline(&self) -> Option<Time> {
        self.next_slot().map(|slot| Time::from_ps(slot * SLOT_LEN.as_ps()))
    }

    /// Returns the first slot with an entry at or after the current position; slots are counted from time zero.
    #[inline]
    fn next_slot(&self) -> Option<u64> {
        self.slot_from(self.position)
    }

    /// Returns the first slot with an entry at or after `slot`, which must not be before the current position.
    #[inline]
    fn slot_from(&self, slot: u64) -> Option<u64> {
        if self.waiting == 0 || slot - self.position >= self.lists.len() as u64 {
            return None;
        }
        let (position, start) = (self.list_index(self.position), self.list_index(slot));
        let mask = self.lists.len() - 1;
        let is_later = |index: &usize| index.wrapping_sub(position) & mask >= start.wrapping_sub(position) & mask;
        let found = self.occupied_from(start).filter(is_later).or_else(|| self.occupied_from(0).filter(is_later))?;
        Some(slot + (found.wrapping_sub(start) & mask) as u64)
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

/// Maximum number of connections that [`Wheel::first_due_before`] returns.
const PREFETCHED_MAX: usize = 4;

#[cfg(test)]
#[path = "pace/tests.rs"]
mod tests;
