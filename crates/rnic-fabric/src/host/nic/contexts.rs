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
    second: Option<Second>,
    bytes: u64,
    stream: RandomStream,
    pub(crate) hits: u64,
    /// Not on the chip, and in the second level.
    pub(crate) second_hits: u64,
    /// In neither.
    pub(crate) misses: u64,
}

/// The level behind the chip.
#[derive(Debug)]
struct Second {
    level: Level,
    /// What it takes to read from it.
    latency: Duration,
    /// By queue pair number: when its context was last promised. A packet must not overtake the one before it whose
    /// context came from the other level.
    promised: Vec<Time>,
}

impl Second {
    /// When `qpn`, whose context comes at `ready`, has it.
    fn in_order(&mut self, qpn: u32, ready: Time) -> Time {
        if self.promised.len() <= qpn as usize {
            self.promised.resize(qpn as usize + 1, Time::ZERO);
        }
        let promised = &mut self.promised[qpn as usize];
        *promised = ready.max(*promised);
        *promised
    }
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
    /// An empty one of `capacity` contexts of `bytes` each (`None`: all), before a second level (`behind`) of so
    /// many, which takes so long to read.
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

    /// When the context of `qpn`, which is wanted at `now`, is there.
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
                // What the chip still has goes back when the chip gives it up.
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

    /// A queue pair is no more: its place is free.
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
