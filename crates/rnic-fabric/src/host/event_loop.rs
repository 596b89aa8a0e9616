//! A host's scheduling turn: processes all events of the host before the horizon, in order of time.
//!
//! There are five types of hosts (with Falcon or without, each with a modelled NIC or without, and with classes), and
//! one order of events. Each type implements [`HostModel`], its actions for each event. The loop is compiled separately
//! for each type, so that no code on the path of a packet has to test the type.

use rnic_base::Time;

use super::{Host, messages};
use crate::calendar::NEVER;
use crate::entry::Entry;
use crate::network::Network;

/// The actions of a type of host.
pub(super) trait HostModel {
    /// Called before each event.
    #[inline(always)]
    fn begin(_: &mut Host, _: Time) {}

    /// Returns the time of the next event that only this type of host has; it is processed after arrivals and before
    /// all other events of the same instant.
    #[inline(always)]
    fn due(_: &Host) -> Time {
        NEVER
    }

    /// Processes that event.
    #[inline(always)]
    fn step(_: &mut Host, _: Time, _: &mut Network) {}

    /// Prefetches the next arriving packet.
    #[inline(always)]
    fn prefetch_ahead(_: &Host, _: &Network) {}

    /// Handles the arrival of a packet or a pause frame.
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network);

    /// Sends a packet if one is ready, and records when to poll again.
    fn offer(host: &mut Host, now: Time, network: &mut Network);
}

/// A host of the RoCE family, without a modelled NIC.
pub(super) struct Plain;

impl HostModel for Plain {
    #[inline(always)]
    fn prefetch_ahead(host: &Host, network: &Network) {
        network.packets.prefetch_soon(network.links.first_packet(host.ring));
    }

    #[inline(always)]
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network) {
        host.arrive(now, entry, network);
    }

    #[inline(always)]
    fn offer(host: &mut Host, now: Time, network: &mut Network) {
        host.offer(now, network);
    }
}

impl Host {
    /// Processes all events before `horizon`. The order at the same instant: arrivals, the events of this type of host,
    /// starts of flows, timers, then transmissions.
    #[inline(always)]
    pub(super) fn turn<S: HostModel>(&mut self, horizon: Time, network: &mut Network) {
        loop {
            let arrival = network.links.head(self.ring).time();
            let start = self.starts.front().map_or(NEVER, |(at, _)| *at);
            let due = S::due(self);
            let now = arrival.min(start).min(due).min(self.timer).min(self.wake);
            if now >= horizon {
                network.calendar.set(self.node, now);
                return;
            }
            self.stats.events += 1;
            S::begin(self, now);
            if arrival == now {
                let key = network.links.head(self.ring);
                let entry = network.links.pop(self.ring);
                S::prefetch_ahead(self, network);
                self.trace.add_word(key.word() ^ entry.trace_word());
                S::arrive(self, now, &entry, network);
            } else if due == now {
                S::step(self, now, network);
            } else if start == now {
                self.start_next(now);
            } else if self.timer == now {
                messages::report_load(self, now);
                self.engine.tick(now);
                self.take_completions(now);
            } else {
                self.wake = NEVER;
            }
            S::offer(self, now, network);
            self.timer = self.engine.next_timeout().map_or(NEVER, |at| at.max(now));
        }
    }
}
