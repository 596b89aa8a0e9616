//! A host's turn: everything that happens at it before the horizon, in order of time.
//!
//! There are four kinds of hosts (with Falcon or without, each with a modelled NIC or without), and one order of
//! events. What a kind does at each of them is its [`Steps`]. Each gets a loop of its own: nothing on the way of a
//! packet asks which kind it is.

use rnic_base::Time;

use super::Host;
use crate::agenda::NEVER;
use crate::entry::Entry;
use crate::network::Network;

/// What a kind of host does when something happens.
pub(super) trait Steps {
    /// When something of its own is due that comes after arrivals and before all else of the same instant.
    #[inline(always)]
    fn due(_: &Host) -> Time {
        NEVER
    }

    /// Does what is due.
    #[inline(always)]
    fn act(_: &mut Host, _: Time, _: &mut Network) {}

    /// Has what arrives next brought near.
    #[inline(always)]
    fn look_ahead(_: &Host, _: &Network) {}

    /// A packet, or a pause frame, arrives.
    fn arrive(host: &mut Host, now: Time, entry: &Entry, network: &mut Network);

    /// Sends what can leave, and remembers when to look again.
    fn offer(host: &mut Host, now: Time, network: &mut Network);
}

/// A host of the RoCE family, without a modelled NIC.
pub(super) struct Plain;

impl Steps for Plain {
    #[inline(always)]
    fn look_ahead(host: &Host, network: &Network) {
        network.packets.touch(network.links.first_packet(host.ring));
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
    /// Does everything that happens before `horizon`. At the same instant: arrivals, what is the kind's own, starts of
    /// flows, timers, then what leaves.
    #[inline(always)]
    pub(super) fn turn<S: Steps>(&mut self, horizon: Time, network: &mut Network) {
        loop {
            let arrival = network.links.head(self.ring).time();
            let start = self.starts.front().map_or(NEVER, |(at, _)| *at);
            let due = S::due(self);
            let now = arrival.min(start).min(due).min(self.timer).min(self.wake);
            if now >= horizon {
                network.agenda.set(self.node, now);
                return;
            }
            self.stats.events += 1;
            if arrival == now {
                let key = network.links.head(self.ring);
                let entry = network.links.pop(self.ring);
                S::look_ahead(self, network);
                self.trace.word(key.word() ^ entry.trace_word());
                S::arrive(self, now, &entry, network);
            } else if due == now {
                S::act(self, now, network);
            } else if start == now {
                self.start_next(now);
            } else if self.timer == now {
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
