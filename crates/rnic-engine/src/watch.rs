//! Traffic statistics of each queue pair, for monitoring only: no decision depends on them.
//!
//! They are stored beside the queue pairs and not in them, and only while monitoring is on ([`crate::Engine::watch`]):
//! a simulation of a hundred thousand connections does not allocate them, and an idle connection stays below a KiB.

mod round_trip;

use crate::error::RxOutcome;
use round_trip::RoundTrip;

/// Counters of the packets from the peer that a queue pair accepted, and of those that it did not accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Packets from the peer that were accepted: data, responses, acknowledgements.
    pub packets_received: u64,
    /// Number of accepted packets that arrived out of order and were kept.
    pub packets_out_of_order: u64,
    /// Packets from the peer that had been received before.
    pub packets_duplicate: u64,
    /// Packets from the peer that were discarded for any other reason.
    pub packets_dropped: u64,
}

impl Traffic {
    /// Returns the sums with the counters of a flow of the same queue pair.
    pub(crate) fn plus(&self, flow: &Self) -> Self {
        Self {
            packets_received: self.packets_received + flow.packets_received,
            packets_out_of_order: self.packets_out_of_order + flow.packets_out_of_order,
            packets_duplicate: self.packets_duplicate + flow.packets_duplicate,
            packets_dropped: self.packets_dropped + flow.packets_dropped,
        }
    }
}

/// Statistics of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MonitoredQp {
    pub(crate) traffic: Traffic,
    pub(crate) round_trip: RoundTrip,
}

impl MonitoredQp {
    const NEW: Self = Self {
        traffic: Traffic { packets_received: 0, packets_out_of_order: 0, packets_duplicate: 0, packets_dropped: 0 },
        round_trip: RoundTrip::NEW,
    };
}

/// Statistics of all queue pairs, by slot; empty while monitoring is off.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    is_on: bool,
    entries: Vec<MonitoredQp>,
}

impl Monitor {
    /// Turns monitoring on for queue pairs created from now on.
    pub(crate) fn begin(&mut self) {
        self.is_on = true;
    }

    /// Resets the statistics of `slot`, where a queue pair is created or restarted.
    pub(crate) fn start(&mut self, slot: u32) {
        if self.is_on {
            let slot = slot as usize;
            if self.entries.len() <= slot {
                self.entries.resize(slot + 1, MonitoredQp::NEW);
            }
            self.entries[slot] = MonitoredQp::NEW;
        }
    }

    /// Starts to monitor the queue pair in `slot`, which may have existed before, unless it is monitored already.
    pub(crate) fn ensure(&mut self, slot: u32) {
        if self.get(slot).is_none() {
            self.start(slot);
        }
    }

    /// Returns the statistics of the queue pair in `slot`.
    pub(crate) fn get(&self, slot: u32) -> Option<&MonitoredQp> {
        self.entries.get(slot as usize)
    }

    /// Returns mutable access to the statistics of the queue pair in `slot`.
    #[inline]
    pub(crate) fn of(&mut self, slot: u32) -> Option<&mut MonitoredQp> {
        self.entries.get_mut(slot as usize)
    }
}

impl MonitoredQp {
    /// Counts a packet from the peer.
    #[inline]
    pub(crate) fn count(&mut self, outcome: RxOutcome) {
        let traffic = &mut self.traffic;
        match outcome {
            RxOutcome::Accepted => traffic.packets_received += 1,
            RxOutcome::OutOfOrder => {
                traffic.packets_received += 1;
                traffic.packets_out_of_order += 1;
            }
            RxOutcome::Duplicate => traffic.packets_duplicate += 1,
            RxOutcome::Dropped(_) => traffic.packets_dropped += 1,
        }
    }
}
