//! Caches of a NIC for state in the host's memory: contexts of queue pairs, translations of addresses, contexts of
//! completion queues. Each is on the chip, with an optional second level below it, and holds entries of one size.
//!
//! A full level evicts a randomly chosen entry. If it is dirty, it has to be written back: to the second level when the
//! entry is there too, otherwise over the bus. Contexts always are, because every packet changes a sequence number and
//! every completion an index; translations never are. An entry that is read over the bus is put into both levels.
//! Requests for an entry that is being read wait for the same read.

use rnic_base::{Duration, RandomStream, Time};

use super::bus::Bus;

/// One cache. Entries are numbered, densely from zero.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The level on the chip; `None` when all entries fit, which has no cost.
    chip: Option<Level>,
    second: Option<SecondLevel>,
    /// Size of an entry.
    bytes: u64,
    /// True when an evicted entry has to be written back.
    is_dirty: bool,
    stream: RandomStream,
    pub(crate) hits: u64,
    /// Accesses that missed on the chip and hit in the second level.
    pub(crate) second_hits: u64,
    /// Accesses that missed in both levels.
    pub(crate) misses: u64,
}

/// The second level of the cache.
#[derive(Debug)]
struct SecondLevel {
    level: Level,
    /// Latency of a read from it.
    latency: Duration,
    /// By number of the entry: the latest time at which it was predicted to be available. A packet must not
    /// overtake an earlier one of its queue pair whose entry was read from a slower level: the second level of the
    /// cache, or the memory behind it.
    predicted: Vec<Time>,
}

impl SecondLevel {
    /// Returns the time at which a packet may use the entry `number`, which is read at `ready`.
    fn in_order(&mut self, number: u32, ready: Time) -> Time {
        if self.predicted.len() <= number as usize {
            self.predicted.resize(number as usize + 1, Time::ZERO);
        }
        let predicted = &mut self.predicted[number as usize];
        *predicted = ready.max(*predicted);
        *predicted
    }
}

/// One level of a cache: a fixed number of entries, unordered.
#[derive(Debug)]
struct Level {
    capacity: u32,
    resident: Vec<Resident>,
    /// Index in `resident` by number of the entry, counted from 1; zero when the entry is not resident.
    slots: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    number: u32,
    /// Time from which the entry is available.
    since: Time,
}

impl Level {
    fn new(capacity: u32) -> Self {
        Self { capacity, resident: Vec::new(), slots: Vec::new() }
    }

    /// Returns the time from which the entry `number` is available, when it is resident.
    fn find(&self, number: u32) -> Option<Time> {
        let slot = self.slots.get(number as usize)?.checked_sub(1)?;
        Some(self.resident[slot as usize].since)
    }

    /// Inserts the entry `number`, which must not be resident; returns the number of the evicted entry.
    fn insert(&mut self, number: u32, since: Time, stream: &mut RandomStream) -> Option<u32> {
        if self.slots.len() <= number as usize {
            self.slots.resize(number as usize + 1, 0);
        }
        let resident = Resident { number, since };
        if self.resident.len() < self.capacity as usize {
            self.resident.push(resident);
            self.slots[number as usize] = self.resident.len() as u32;
            return None;
        }
        let slot = stream.below(u64::from(self.capacity)) as usize;
        let victim = core::mem::replace(&mut self.resident[slot], resident);
        self.slots[victim.number as usize] = 0;
        self.slots[number as usize] = slot as u32 + 1;
        Some(victim.number)
    }

    fn forget(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize).map(core::mem::take) else { return };
        let Some(slot) = slot.checked_sub(1) else { return };
        self.resident.swap_remove(slot as usize);
        if let Some(moved) = self.resident.get(slot as usize) {
            self.slots[moved.number as usize] = slot + 1;
        }
    }
}

impl Cache {
    /// Creates an empty cache of `capacity` entries (`None`: all fit) of `bytes` each, which are written back when they
    /// are evicted.
    pub(crate) fn new(capacity: Option<u32>, bytes: u64, stream: RandomStream) -> Self {
        let chip = capacity.map(Level::new);
        Self { chip, second: None, bytes, is_dirty: true, stream, hits: 0, second_hits: 0, misses: 0 }
    }

    /// Adds a second level, given by its capacity and the latency of a read.
    pub(crate) fn with_second(self, second: Option<(u32, Duration)>) -> Self {
        let level = |(capacity, latency)| SecondLevel { level: Level::new(capacity), latency, predicted: Vec::new() };
        Self { second: second.map(level), ..self }
    }

    /// Makes a cache whose entries are never written back.
    pub(crate) fn clean(self) -> Self {
        Self { is_dirty: false, ..self }
    }

    /// Requests the entry `number` at `now`; returns the time at which it is available.
    pub(crate) fn access(&mut self, now: Time, number: u32, bus: &mut Bus) -> Time {
        self.access_after(now, now, number, bus)
    }

    /// Requests the entry `number` at `begins`, a time that follows from other reads and is not before `now`; returns
    /// the time at which it is available, at the earliest `begins`. The time of a read on the bus is reserved now,
    /// because reads complete in the order in which they are registered.
    pub(crate) fn access_after(&mut self, now: Time, begins: Time, number: u32, bus: &mut Bus) -> Time {
        let Self { chip: Some(chip), second, bytes, stream, .. } = self else { return begins };
        if let Some(since) = chip.find(number) {
            self.hits += 1;
            return since.max(begins);
        }
        let since = match second.as_ref().and_then(|second| Some((second.level.find(number)?, second.latency))) {
            Some((since, latency)) => {
                self.second_hits += 1;
                since.max(begins) + latency
            }
            None => {
                self.misses += 1;
                let since = bus.read(now, *bytes) + begins.since(now);
                // An entry that is still on the chip is written back later, when it is evicted from there.
                if let Some(second) = second
                    && let Some(victim) = second.level.insert(number, since, stream)
                    && chip.find(victim).is_none()
                    && self.is_dirty
                {
                    bus.write(now, *bytes);
                }
                since
            }
        };
        let since = second.as_mut().map_or(since, |second| second.in_order(number, since));
        if let Some(victim) = chip.insert(number, since, stream) {
            let in_second_level = second.as_ref().is_some_and(|second| second.level.find(victim).is_some());
            if !in_second_level && self.is_dirty {
                bus.write(now, *bytes);
            }
        }
        since
    }

    /// Removes an entry that no longer exists.
    pub(crate) fn forget(&mut self, number: u32) {
        if let Some(chip) = &mut self.chip {
            chip.forget(number);
        }
        if let Some(second) = &mut self.second {
            second.level.forget(number);
            if let Some(predicted) = second.predicted.get_mut(number as usize) {
                *predicted = Time::ZERO;
            }
        }
    }

    /// Returns the misses as a share of all accesses.
    pub(super) fn miss_share(hits: u64, misses: u64) -> f64 {
        misses as f64 / (hits + misses).max(1) as f64
    }
}
