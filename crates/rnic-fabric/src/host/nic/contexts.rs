//! The cache of queue pair contexts: on the chip, and, where there is one, a second level behind it.
//!
//! Full, a level gives up a context chosen by chance; what was changed goes back (every packet changes a number): to
//! the second level where the context is there too, else over the bus. What comes over the bus is put into both. A
//! context that is being read serves whoever asks for it in the meantime when it has come.

use rnic_base::{Duration, RandomStream, Time};
use rnic_wire::Qpn;

use super::bus::Bus;

/// Which contexts are on the NIC.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// None: all fit, which costs nothing.
    chip: Option<Level>,
    /// And what it takes to read from it.
    second: Option<(Level, Duration)>,
    bytes: u64,
    stream: RandomStream,
    pub(crate) hits: u64,
    /// Not on the chip, and in the second level.
    pub(crate) second_hits: u64,
    /// In neither.
    pub(crate) misses: u64,
}

/// So many contexts, in no order.
#[derive(Debug)]
struct Level {
    capacity: u32,
    resident: Vec<Resident>,
    /// By queue pair number: its place in `resident`, from 1.
    places: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    qpn: u32,
    /// When it is there.
    since: Time,
}

impl Level {
    fn new(capacity: u32) -> Self {
        Self { capacity, resident: Vec::new(), places: Vec::new() }
    }

    /// Since when the context of `qpn` is there, if it is.
    fn find(&self, qpn: u32) -> Option<Time> {
        let place = self.places.get(qpn as usize)?.checked_sub(1)?;
        Some(self.resident[place as usize].since)
    }

    /// Puts the context of `qpn` in, which is not there; gives the one that made room.
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
    /// An empty one of `capacity` contexts of `bytes` each (`None`: all), before a `second` level of so many, which
    /// takes so long to read.
    pub(crate) fn new(
        capacity: Option<u32>,
        second: Option<(u32, Duration)>,
        bytes: u64,
        stream: RandomStream,
    ) -> Self {
        let second = second.map(|(capacity, latency)| (Level::new(capacity), latency));
        Self { chip: capacity.map(Level::new), second, bytes, stream, hits: 0, second_hits: 0, misses: 0 }
    }

    /// When the context of `qpn`, which is wanted at `now`, is there.
    pub(crate) fn access(&mut self, now: Time, qpn: Qpn, bus: &mut Bus) -> Time {
        let Self { chip: Some(chip), second, bytes, stream, .. } = self else { return now };
        let number = qpn.get();
        if let Some(since) = chip.find(number) {
            self.hits += 1;
            return since.max(now);
        }
        let since = match second.as_ref().and_then(|(level, latency)| Some((level.find(number)?, *latency))) {
            Some((since, latency)) => {
                self.second_hits += 1;
                since.max(now) + latency
            }
            None => {
                self.misses += 1;
                let since = bus.read(now, *bytes);
                if let Some((level, _)) = second
                    && level.insert(number, since, stream).is_some()
                {
                    bus.write(now, *bytes);
                }
                since
            }
        };
        if let Some(victim) = chip.insert(number, since, stream) {
            let stays = second.as_ref().is_some_and(|(level, _)| level.find(victim).is_some());
            if !stays {
                bus.write(now, *bytes);
            }
        }
        since
    }

    /// A queue pair is no more: its place is free.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        let second = self.second.as_mut().map(|(level, _)| level);
        for level in self.chip.as_mut().into_iter().chain(second) {
            level.forget(qpn.get());
        }
    }
}
