//! Prefetches the data that a host will need, while other hosts have their scheduling turns.
//!
//! In a window of time each host in turn processes a few packets. By the next turn of a host, its state has been
//! evicted from the first-level cache, and with many connections from all caches. There are nine dependent memory
//! accesses from a host to the data that a packet needs. Therefore prefetching for a host starts several turns before
//! its own ([`STEPS`]), and each of these turns prefetches one step more: first the host, then the steps of
//! [`rnic_engine::Engine::prefetch`], and with the first of those the packets that arrive and their headers.
//! Correctness does not depend on it: data of packets that are received or sent unexpectedly is loaded when it is
//! needed.

use rnic_base::{Time, prefetch};
use rnic_engine::{Hints, PREFETCH_STEPS};
use rnic_wire::Qpn;

use super::Host;
use crate::entry::Flags;
use crate::network::Network;

/// Number of other hosts that are simulated between the start of prefetching for a host and the host itself.
pub(crate) const STEPS: u32 = PREFETCH_STEPS + 1;

/// Maximum number of arriving packets whose data is prefetched: as many as a 100 Gbit/s link carries in a
/// microsecond, plus as many acknowledgements.
const ARRIVING_PACKETS_MAX: u32 = 8;

impl Host {
    /// Prefetches the memory that this host will access before `horizon`. This is called several times for a host, each
    /// time with a smaller number `turns` of other hosts that run before it: each call follows pointers that an earlier
    /// one has prefetched, and stores in `expected` what later calls need.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, turns: u32, horizon: Time, network: &Network, expected: &mut Hints) {
        match turns {
            STEPS => return self.prefetch(),
            8 => {
                network.links.prefetch_ring(self.ring);
                self.port.prefetch_ring(network);
            }
            7 => {
                network.links.prefetch_first(self.ring, ARRIVING_PACKETS_MAX);
                self.port.prefetch_tail(network);
            }
            6 => {
                for entry in network.links.packets_until(self.ring, horizon, ARRIVING_PACKETS_MAX) {
                    match entry.has(Flags::FALCON) {
                        true => network.falcon_packets.prefetch(entry.packet),
                        false => network.packets.prefetch(entry.packet),
                    }
                }
            }
            _ => {}
        }
        self.engine.prefetch(PREFETCH_STEPS - turns, horizon, self.receivers(horizon, network), expected);
    }

    /// Returns the queue pairs of the arriving packets.
    fn receivers(&self, horizon: Time, network: &Network) -> impl Iterator<Item = Qpn> {
        let arriving = network.links.packets_until(self.ring, horizon, ARRIVING_PACKETS_MAX);
        arriving.filter(|entry| !entry.is_for_nic()).map(|entry| match entry.has(Flags::FALCON) {
            true => Qpn::new(network.falcon_packets.headers(entry.packet).cid.get()),
            false => network.packets.headers(entry.packet).dest_qpn,
        })
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(&self.ring);
        prefetch(&self.wake);
        prefetch(&self.falcon);
        prefetch(&self.engine);
        prefetch(&self.port);
        prefetch(&self.codec);
        prefetch(&self.sessions);
        prefetch(&self.stats);
        prefetch(&self.trace);
        prefetch(&self.cq);
        prefetch(&self.has_model);
        prefetch(&self.starts);
    }
}
