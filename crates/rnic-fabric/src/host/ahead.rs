//! What a host with Falcon will need, brought near while other hosts have their turn.
//!
//! In a window of time each host handles a few packets, and then all other hosts do: by its next turn, its state is out
//! of the nearest cache, and with many connections out of all of them. From a host to what a packet touches there are
//! nine steps through memory. So a host is looked at several turns before its own ([`STEPS`]), and each time is asked
//! for one step more: the host, then as [`rnic_engine::Engine::prefetch`] has it, and beside its first steps what
//! arrives and the headers of that. Nothing depends on it: what arrives or leaves otherwise than expected is fetched
//! when it is needed.

use rnic_base::{Time, near};
use rnic_engine::{Hints, PREFETCH_STEPS};
use rnic_wire::Qpn;

use super::Host;
use crate::entry::Flags;
use crate::network::Network;

/// Turns of other hosts before its own in which a host is looked at.
pub(crate) const STEPS: u32 = PREFETCH_STEPS + 1;

/// Packets that arrive which are looked at, at most: what a 100 Gbit/s link carries in a microsecond and as many
/// acknowledgements.
const ARRIVING: u32 = 8;

impl Host {
    /// Has what it needs before `horizon` brought near, when `turns` others come before it; what is found on the way
    /// is `expected` in the steps that follow.
    #[inline]
    pub(crate) fn look_ahead(&self, turns: u32, horizon: Time, network: &Network, expected: &mut Hints) {
        match turns {
            STEPS => return self.touch(),
            8 => network.links.touch_ring(self.ring),
            7 => network.links.touch_first(self.ring, ARRIVING),
            6 => {
                let arriving = network.links.packets_until(self.ring, horizon, ARRIVING);
                arriving.for_each(|entry| network.falcon_packets.touch(entry.packet));
            }
            _ => {}
        }
        self.engine.prefetch(PREFETCH_STEPS - turns, horizon, self.receivers(horizon, network), expected);
    }

    /// For whom packets arrive.
    fn receivers(&self, horizon: Time, network: &Network) -> impl Iterator<Item = Qpn> {
        let arriving = network.links.packets_until(self.ring, horizon, ARRIVING);
        let arriving = arriving.filter(|entry| entry.has(Flags::FALCON));
        arriving.map(|entry| Qpn::new(network.falcon_packets.headers(entry.packet).cid.get()))
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
