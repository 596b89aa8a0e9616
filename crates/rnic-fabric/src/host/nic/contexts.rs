//! The cache of queue pair contexts.
//!
//! Full, it gives up a context chosen by chance; what was changed goes back over the bus (every packet changes a
//! number). A context that is being read serves whoever asks for it in the meantime when it has come.

use rnic_base::{RandomStream, Time};
use rnic_wire::Qpn;

use super::bus::Bus;

/// Which contexts are on the NIC.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// How many fit; `None`: all, which costs nothing.
    capacity: Option<u32>,
    bytes: u64,
    resident: Vec<Resident>,
    /// By queue pair number: its place in `resident`, from 1.
    places: Vec<u32>,
    stream: RandomStream,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    qpn: u32,
    /// When it is there.
    since: Time,
}

impl Contexts {
    pub(crate) fn new(capacity: Option<u32>, bytes: u64, stream: RandomStream) -> Self {
        Self { capacity, bytes, resident: Vec::new(), places: Vec::new(), stream, hits: 0, misses: 0 }
    }

    /// When the context of `qpn`, which is wanted at `now`, is there.
    pub(crate) fn access(&mut self, now: Time, qpn: Qpn, bus: &mut Bus) -> Time {
        let Some(capacity) = self.capacity else { return now };
        let number = qpn.get() as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        if let Some(place) = self.places[number].checked_sub(1) {
            self.hits += 1;
            return self.resident[place as usize].since.max(now);
        }
        self.misses += 1;
        let since = bus.read(now, self.bytes);
        let resident = Resident { qpn: qpn.get(), since };
        if self.resident.len() < capacity as usize {
            self.resident.push(resident);
            self.places[number] = self.resident.len() as u32;
        } else {
            let place = self.stream.below(u64::from(capacity)) as usize;
            let victim = core::mem::replace(&mut self.resident[place], resident);
            bus.write(now, self.bytes);
            self.places[victim.qpn as usize] = 0;
            self.places[number] = place as u32 + 1;
        }
        since
    }

    /// A queue pair is no more: its place is free.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        let Some(place) = self.places.get_mut(qpn.get() as usize).map(core::mem::take) else { return };
        let Some(place) = place.checked_sub(1) else { return };
        self.resident.swap_remove(place as usize);
        if let Some(moved) = self.resident.get(place as usize) {
            self.places[moved.qpn as usize] = place + 1;
        }
    }
}
