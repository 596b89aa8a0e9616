//! The cache of queue pair contexts: on the chip, with an optional second level below it.
//!
//! A full level evicts a randomly chosen context; it is dirty, because every packet changes a sequence number, and
//! has to be written back: to the second level when the context is there too, otherwise over the bus. A context that
//! is read over the bus is put into both levels. Requests for a context that is being read wait for the same read.

use rnic_base::{Duration, RandomStream, Time};
use rnic_wire::Qpn;

use super::bus::Bus;

/// The contexts that are on the NIC.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// The level on the chip; `None` when all contexts fit, which has no cost.
    chip: Option<Level>,
    second: Option<SecondLevel>,
    bytes: u64,
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
    /// By queue pair number: the latest time at which its context was predicted to be available. A packet must not
    /// overtake an earlier one of its queue pair whose context was read from a slower level: the second level of the
    /// cache, or the memory behind it.
    predicted: Vec<Time>,
}

impl SecondLevel {
    /// Returns the time at which a packet of `qpn` may use its context, which is read at `ready`.
    fn in_order(&mut self, qpn: u32, ready: Time) -> Time {
        if self.predicted.len() <= qpn as usize {
            self.predicted.resize(qpn as usize + 1, Time::ZERO);
        }
        let predicted = &mut self.predicted[qpn as usize];
        *predicted = ready.max(*predicted);
        *predicted
    }
}

/// One level of the cache: a fixed number of contexts, unordered.
#[derive(Debug)]
struct Level {
    capacity: u32,
    resident: Vec<ResidentContext>,
    /// Index in `resident` by queue pair number, counted from 1; zero when the context is not resident.
    slots: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct ResidentContext {
    qpn: u32,
    /// Time from which the context is available.
    since: Time,
}

impl Level {
    fn new(capacity: u32) -> Self {
        Self { capacity, resident: Vec::new(), slots: Vec::new() }
    }

    /// Returns the time from which the context of `qpn` is available, when it is resident.
    fn find(&self, qpn: u32) -> Option<Time> {
        let slot = self.slots.get(qpn as usize)?.checked_sub(1)?;
        Some(self.resident[slot as usize].since)
    }

    /// Inserts the context of `qpn`, which must not be resident; returns the number of the evicted queue pair.
    fn insert(&mut self, qpn: u32, since: Time, stream: &mut RandomStream) -> Option<u32> {
        if self.slots.len() <= qpn as usize {
            self.slots.resize(qpn as usize + 1, 0);
        }
        let resident = ResidentContext { qpn, since };
        if self.resident.len() < self.capacity as usize {
            self.resident.push(resident);
            self.slots[qpn as usize] = self.resident.len() as u32;
            return None;
        }
        let slot = stream.below(u64::from(self.capacity)) as usize;
        let victim = core::mem::replace(&mut self.resident[slot], resident);
        self.slots[victim.qpn as usize] = 0;
        self.slots[qpn as usize] = slot as u32 + 1;
        Some(victim.qpn)
    }

    fn forget(&mut self, qpn: u32) {
        let Some(slot) = self.slots.get_mut(qpn as usize).map(core::mem::take) else { return };
        let Some(slot) = slot.checked_sub(1) else { return };
        self.resident.swap_remove(slot as usize);
        if let Some(moved) = self.resident.get(slot as usize) {
            self.slots[moved.qpn as usize] = slot + 1;
        }
    }
}

impl Contexts {
    /// Creates an empty cache of `capacity` contexts (`None`: all fit) of `bytes` each, above an optional second
    /// level (`second_level`), given by its capacity and read latency.
    pub(crate) fn new(
        capacity: Option<u32>,
        second_level: Option<(u32, Duration)>,
        bytes: u64,
        stream: RandomStream,
    ) -> Self {
        let second = |(capacity, latency)| SecondLevel { level: Level::new(capacity), latency, predicted: Vec::new() };
        let (chip, second) = (capacity.map(Level::new), second_level.map(second));
        Self { chip, second, bytes, stream, hits: 0, second_hits: 0, misses: 0 }
    }

    /// Requests the context of `qpn` at `now`; returns the time at which it is available.
    pub(crate) fn access(&mut self, now: Time, qpn: Qpn, bus: &mut Bus) -> Time {
        let Self { chip: Some(chip), second, bytes, stream, .. } = self else { return now };
        let number = qpn.get();
        if let Some(since) = chip.find(number) {
            self.hits += 1;
            return since.max(now);
        }
        let since = match second.as_ref().and_then(|second| Some((second.level.find(number)?, second.latency))) {
            Some((since, latency)) => {
                self.second_hits += 1;
                since.max(now) + latency
            }
            None => {
                self.misses += 1;
                let since = bus.read(now, *bytes);
                // A context that is still on the chip is written back later, when it is evicted from there.
                if let Some(second) = second
                    && let Some(victim) = second.level.insert(number, since, stream)
                    && chip.find(victim).is_none()
                {
                    bus.write(now, *bytes);
                }
                since
            }
        };
        let since = second.as_mut().map_or(since, |second| second.in_order(number, since));
        if let Some(victim) = chip.insert(number, since, stream) {
            let in_second_level = second.as_ref().is_some_and(|second| second.level.find(victim).is_some());
            if !in_second_level {
                bus.write(now, *bytes);
            }
        }
        since
    }

    /// Removes the context of a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        let number = qpn.get();
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
}
