//! What is counted of each queue pair for whoever watches: nothing decides by it.
//!
//! It lies beside the queue pairs and not in them, and only where somebody watches ([`crate::Engine::watch`]): a
//! simulation of a hundred thousand connections has none of it, and an idle connection stays below a KiB.

mod round_trip;

use crate::error::RxOutcome;
use round_trip::RoundTrip;

/// What a queue pair took from its peer, and did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Packets of the peer taken: data, responses, acknowledgements.
    pub packets_received: u64,
    /// Of these, early and kept.
    pub packets_early: u64,
    /// Packets of the peer that had come in before.
    pub packets_duplicate: u64,
    /// Packets of the peer not used for any other reason.
    pub packets_dropped: u64,
}

/// What is known of one queue pair.
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

/// What is known of all, by slot; nothing while nobody watches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    on: bool,
    entries: Vec<Watched>,
}

impl Watch {
    /// From now on, queue pairs that are made are watched.
    pub(crate) fn begin(&mut self) {
        self.on = true;
    }

    /// A queue pair is made in `slot`, or begins anew.
    pub(crate) fn start(&mut self, slot: u32) {
        if self.on {
            let slot = slot as usize;
            if self.entries.len() <= slot {
                self.entries.resize(slot + 1, Watched::NEW);
            }
            self.entries[slot] = Watched::NEW;
        }
    }

    /// What is known of the queue pair in `slot`.
    pub(crate) fn get(&self, slot: u32) -> Option<&Watched> {
        self.entries.get(slot as usize)
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn of(&mut self, slot: u32) -> Option<&mut Watched> {
        self.entries.get_mut(slot as usize)
    }

    /// Counts a packet of the peer.
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
