//! What a host with Falcon will need, brought near while other hosts have their turn.
//!
//! In a window of time each host handles a few packets, and then all other hosts do: by its next turn, its state is out
//! of the nearest cache, and with many connections out of all of them. From a host to what a packet touches there are
//! seven steps through memory. So a host is looked at several turns before its own ([`STEPS`]), and each time is asked
//! for one step more: the host, its engine and what arrives, the headers, and then as [`Reach`] has it. Nothing depends
//! on it: what arrives or leaves otherwise than expected is fetched when it is needed.

use rnic_base::{Time, near};
use rnic_engine::Reach;
use rnic_wire::Qpn;

use super::Host;
use crate::entry::Flags;
use crate::port::Network;

/// Turns of other hosts before its own in which a host is looked at.
pub(crate) const STEPS: u32 = 7;

/// Packets that leave which are looked at: what a 100 Gbit/s link carries in a microsecond, and one more.
const LEAVING: u32 = 4;

/// Packets that arrive which are looked at, at most: as many, and as many acknowledgements.
const ARRIVING: u32 = 8;

impl Host {
    /// Has what it needs before `horizon` brought near, when `turns` others come before it.
    #[inline]
    pub(crate) fn look_ahead(&self, turns: u32, horizon: Time, network: &Network) {
        match turns {
            7 => self.touch(),
            6 => {
                network.links.touch_ring(self.ring);
                self.engine.touch();
            }
            5 => {
                network.links.touch(self.ring);
                self.engine.touch_falcon();
            }
            4 => {
                let arriving = network.links.packets_until(self.ring, horizon, ARRIVING);
                arriving.for_each(|entry| network.falcon_packets.touch(entry.packet));
                self.touch_senders(horizon, Reach::QueuePair);
            }
            3 => {
                self.touch_receivers(horizon, network, Reach::QueuePair);
                self.touch_senders(horizon, Reach::Connection);
            }
            2 => {
                self.touch_receivers(horizon, network, Reach::Connection);
                self.touch_senders(horizon, Reach::Link);
            }
            1 => {
                self.touch_receivers(horizon, network, Reach::Link);
                self.touch_senders(horizon, Reach::Apart);
            }
            _ => self.touch_receivers(horizon, network, Reach::Apart),
        }
    }

    fn touch_senders(&self, horizon: Time, reach: Reach) {
        (0..LEAVING).for_each(|index| self.engine.touch_falcon_sender(index, reach));
        self.engine.touch_falcon_timers(horizon, reach);
    }

    fn touch_receivers(&self, horizon: Time, network: &Network, reach: Reach) {
        let arriving = network.links.packets_until(self.ring, horizon, ARRIVING);
        for entry in arriving.filter(|entry| entry.has(Flags::FALCON)) {
            let number = Qpn::new(network.falcon_packets.headers(entry.packet).cid.get());
            self.engine.touch_falcon_receiver(number, reach);
        }
    }

    #[inline]
    fn touch(&self) {
        near(&self.ring);
        near(&self.wake);
        near(&self.falcon);
        near(&self.engine);
        near(&self.port);
        near(&self.carriage);
        near(&self.sessions);
        near(&self.stats);
        near(&self.trace);
        near(&self.cq);
        near(&self.is_special);
        near(&self.starts);
    }
}
