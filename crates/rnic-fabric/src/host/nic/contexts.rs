//! The cache of queue pair contexts: on the chip, with an optional second level behind it.
//!
//! A full level evicts a randomly chosen context; it is dirty and has to be written back (every packet changes a
//! number): to the second level when the context is there too, otherwise over the bus. A context that is read over the
//! bus is put into both levels. Requests for a context that is being read wait for the same read.

use rnic_base::{Duration, RandomStream, Time};
use rnic_wire::Qpn;

use super::bus::Bus;

/// The contexts that are on the NIC.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// The level on the chip; `None` when all contexts fit, which costs nothing.
    chip: Option<Level>,
    second: Option<Second>,
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
struct Second {
    level: Level,
    /// Latency of a read from it.
    latency: Duration,
    /// By queue pair number: the latest time at which its context was announced to be available. A packet must not
    /// overtake the one before it whose context came from the other level.
    promised: Vec<Time>,
}

impl Second {
    /// Returns the time at which a packet of `qpn`, whose context is read at `ready`, may use it.
    fn in_order(&mut self, qpn: u32, ready: Time) -> Time {
        if self.promised.len() <= qpn as usize {
            self.promised.resize(qpn as usize + 1, Time::ZERO);
        }
        let promised = &mut self.promised[qpn as usize];
        *promised = ready.max(*promised);
        *promised
    }
}

/// One level of the cache: a fixed number of contexts, in no order.
#[derive(Debug)]
struct Level {
    capacity: u32,
    resident: Vec<Resident>,
    /// By queue pair number: its index in `resident`, counted from 1; zero when it is not resident.
    places: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    qpn: u32,
    /// Time from which the context is available.
    since: Time,
}

impl Level {
    fn new(capacity: u32) -> Self {
        Self { capacity, resident: Vec::new(), places: Vec::new() }
    }

    /// Returns the time from which the context of `qpn` is available, when it is resident.
    fn find(&self, qpn: u32) -> Option<Time> {
        let place = self.places.get(qpn as usize)?.checked_sub(1)?;
        Some(self.resident[place as usize].since)
    }

    /// Inserts the context of `qpn`, which must not be resident; returns the number of the evicted queue pair.
    fn insert(&mut self, qpn: u32, since: Time, stream: &mut RandomStream) -> Option<u32> {
        if self.places.len() <= qpn as usize {
            self.places.resize(qpn as usize + 1, 0);
        }
        let resident = Resident { qpn, since };
        if self.resident.len() < self.capacity as usize {
            self.resident.push(resident);
            self.places[qpn as usize] = self.resident.len() as u32;
            return None;
        }
        let place = stream.below(u64::from(self.capacity)) as usize;
        let victim = core::mem::replace(&mut self.resident[place], resident);
        self.places[victim.qpn as usize] = 0;
        self.places[qpn as usize] = place as u32 + 1;
        Some(victim.qpn)
    }

    fn forget(&mut self, qpn: u32) {
        let Some(place) = self.places.get_mut(qpn as usize).map(core::mem::take) else { return };
        let Some(place) = place.checked_sub(1) else { return };
        self.resident.swap_remove(place as usize);
        if let Some(moved) = self.resident.get(place as usize) {
            self.places[moved.qpn as usize] = place + 1;
        }
    }
}

impl Contexts {
    /// Creates an empty cache of `capacity` contexts (`None`: all fit) of `bytes` each, before a second level
    /// (`behind`) given by its capacity and its read latency.
    pub(crate) fn new(
        capacity: Option<u32>,
        behind: Option<(u32, Duration)>,
        bytes: u64,
        stream: RandomStream,
    ) -> Self {
        let second = |(capacity, latency)| Second { level: Level::new(capacity), latency, promised: Vec::new() };
        let (chip, second) = (capacity.map(Level::new), behind.map(second));
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
                // A context that is still on the chip is written back when the chip evicts it.
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
            let stays = second.as_ref().is_some_and(|second| second.level.find(victim).is_some());
            if !stays {
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
            if let Some(promised) = second.promised.get_mut(number as usize) {
                *promised = Time::ZERO;
            }
        }
    }
}
