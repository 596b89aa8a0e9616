//! Traffic statistics of each queue pair, for monitoring only: no decision depends on them.
//!
//! They are stored beside the queue pairs and not in them, and only while monitoring is on ([`crate::Engine::watch`]):
//! a simulation of a hundred thousand connections does not allocate them, and an idle connection stays below a KiB.

mod round_trip;

use crate::error::RxOutcome;
use round_trip::RoundTrip;

/// Counters of the packets that a queue pair accepted from its peer, and of those that it did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Packets from the peer that were accepted: data, responses, acknowledgements.
    pub packets_received: u64,
    /// The part of the accepted packets that arrived out of order and were kept.
    pub packets_early: u64,
    /// Packets from the peer that had been received before.
    pub packets_duplicate: u64,
    /// Packets from the peer that were not used for any other reason.
    pub packets_dropped: u64,
}

/// Statistics of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) traffic: Traffic,
    pub(crate) round_trip: RoundTrip,
}

impl Watched {
    const NEW: Self = Self {
        traffic: Traffic { packets_received: 0, packets_early: 0, packets_duplicate: 0, packets_dropped: 0 },
        round_trip: RoundTrip::NEW,
    };
}

/// Statistics of all queue pairs, by slot; empty while monitoring is off.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    on: bool,
    entries: Vec<Watched>,
}

impl Watch {
    /// Turns monitoring on for queue pairs created from now on.
    pub(crate) fn begin(&mut self) {
        self.on = true;
    }

    /// Resets the statistics of `slot`, where a queue pair is created or restarted.
    pub(crate) fn start(&mut self, slot: u32) {
        if self.on {
            let slot = slot as usize;
            if self.entries.len() <= slot {
                self.entries.resize(slot + 1, Watched::NEW);
            }
            self.entries[slot] = Watched::NEW;
        }
    }

    /// Returns the statistics of the queue pair in `slot`.
    pub(crate) fn get(&self, slot: u32) -> Option<&Watched> {
        self.entries.get(slot as usize)
    }

    /// Returns mutable access to the statistics of the queue pair in `slot`.
    #[inline]
    pub(crate) fn of(&mut self, slot: u32) -> Option<&mut Watched> {
        self.entries.get_mut(slot as usize)
    }

    /// Counts a packet from the peer.
    #[inline]
    pub(crate) fn count(&mut self, slot: u32, outcome: RxOutcome) {
        let Some(Watched { traffic, .. }) = self.of(slot) else { return };
        match outcome {
            RxOutcome::Accepted => traffic.packets_received += 1,
            RxOutcome::Early => {
                traffic.packets_received += 1;
                traffic.packets_early += 1;
            }
            RxOutcome::Duplicate => traffic.packets_duplicate += 1,
            RxOutcome::Dropped(_) => traffic.packets_dropped += 1,
        }
    }
}
