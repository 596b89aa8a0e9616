//! The timing wheel: which connection of a NIC may send next, when many wait for their departure.
//!
//! Source: Carousel (SIGCOMM'17), which Falcon (SIGCOMM'25) section 3.2 names; slots of 512 ns (the specification's
//! unit of gaps), 65536 of them, as many as 16 bits of packet gap can ask for: 33.5 ms.
//!
//! Own code, because the wheels that are to be had read a clock, allocate per entry or hold callbacks; this one takes
//! `now`, and an entry is a connection's number, linked through one array. A connection waits at most once (its next
//! departure); waiting again moves it. Departures are never early and less than a slot late; connections of a slot
//! leave in the order in which they came. Departures beyond the horizon wait in its last slot, and their
//! connections, asked too early, come back.

use rnic_base::{Duration, Time};

/// How long a slot is.
pub const SLOT: Duration = Duration::from_ns(512);

const SLOTS: usize = 1 << 16;
const WORDS: usize = SLOTS / 64;
const NONE: u32 = u32::MAX;

/// Where a connection stands.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
    /// Its slot; [`NONE`] while it does not wait.
    slot: u32,
}

const UNLINKED: Link = Link { next: NONE, previous: NONE, slot: NONE };

/// See the module. Connections are numbers below the capacity.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// First and last of every slot.
    heads: Box<[u32]>,
    tails: Box<[u32]>,
    links: Vec<Link>,
    /// Slots that have an entry, and words of that which have a bit.
    occupied: Box<[u64]>,
    summary: [u64; WORDS / 64],
    /// The slot of `now`, counted from the beginning of time.
    position: u64,
    waiting: usize,
}

impl Wheel {
    /// A wheel for connections 0 to `connections` - 1.
    ///
    /// # Panics
    /// When they are more than 32-bit numbers can name.
    pub fn new(connections: usize) -> Self {
        assert!(connections < NONE as usize, "connections have 32-bit numbers");
        Self {
            heads: vec![NONE; SLOTS].into_boxed_slice(),
            tails: vec![NONE; SLOTS].into_boxed_slice(),
            links: vec![UNLINKED; connections],
            occupied: vec![0; WORDS].into_boxed_slice(),
            summary: [0; WORDS / 64],
            position: 0,
            waiting: 0,
        }
    }

    /// From now on there is room for connections 0 to `connections` - 1, if that is more than before.
    ///
    /// # Panics
    /// When they are more than 32-bit numbers can name.
    pub fn grow(&mut self, connections: usize) {
        assert!(connections < NONE as usize, "connections have 32-bit numbers");
        if connections > self.links.len() {
            self.links.resize(connections, UNLINKED);
        }
    }

    /// Connections that wait.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// `connection` waits for `departure`, whatever it waited for before.
    ///
    /// # Panics
    /// When there is no such connection.
    pub fn wait(&mut self, connection: u32, departure: Time) {
        self.cancel(connection);
        let slot = departure.as_ps().div_ceil(SLOT.as_ps());
        let slot = (slot.clamp(self.position, self.position + SLOTS as u64 - 1) % SLOTS as u64) as u32;
        let tail = self.tails[slot as usize];
        self.links[connection as usize] = Link { next: NONE, previous: tail, slot };
        match tail {
            NONE => self.heads[slot as usize] = connection,
            _ => self.links[tail as usize].next = connection,
        }
        self.tails[slot as usize] = connection;
        let word = slot as usize / 64;
        self.occupied[word] |= 1 << (slot % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.waiting += 1;
    }

    /// `connection` waits no more.
    ///
    /// # Panics
    /// When there is no such connection.
    pub fn cancel(&mut self, connection: u32) {
        let Link { next, previous, slot } = self.links[connection as usize];
        if slot == NONE {
            return;
        }
        match previous {
            NONE => self.heads[slot as usize] = next,
            _ => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.tails[slot as usize] = previous,
            _ => self.links[next as usize].previous = previous,
        }
        self.links[connection as usize] = UNLINKED;
        self.waiting -= 1;
        if self.heads[slot as usize] == NONE {
            let word = slot as usize / 64;
            self.occupied[word] &= !(1 << (slot % 64));
            if self.occupied[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    /// Takes a connection whose departure has come, earliest slot first.
    pub fn take(&mut self, now: Time) -> Option<u32> {
        let now_slot = now.as_ps() / SLOT.as_ps();
        let due = self.next_slot().filter(|slot| *slot <= now_slot);
        let Some(slot) = due else {
            self.position = self.position.max(now_slot);
            return None;
        };
        self.position = slot;
        let connection = self.heads[(slot % SLOTS as u64) as usize];
        self.cancel(connection);
        Some(connection)
    }

    /// When the next departure comes.
    pub fn deadline(&self) -> Option<Time> {
        self.next_slot().map(|slot| Time::from_ps(slot * SLOT.as_ps()))
    }

    /// The first slot with an entry, at or after the position, counted from the beginning of time.
    fn next_slot(&self) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        let start = (self.position % SLOTS as u64) as usize;
        let found = self.occupied_from(start).or_else(|| self.occupied_from(0)).expect("somebody waits");
        let ahead = (found + SLOTS - start) % SLOTS;
        Some(self.position + ahead as u64)
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

#[cfg(test)]
#[path = "pace/tests.rs"]
mod tests;
