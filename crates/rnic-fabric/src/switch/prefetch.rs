//! Prefetches the data that a switch will need while other nodes are simulated, as for hosts (see [`crate::host`]), but
//! in fewer steps.

use rnic_base::{prefetch_at, prefetch_whole};

use super::Switch;
use crate::network::Network;

/// Number of other nodes that are simulated between the start of prefetching for a switch and the switch itself.
pub(crate) const STEPS: u32 = 3;

/// Number of arriving packets per port that are prefetched: the packets that a 100 Gbit/s link carries in a
/// microsecond, and one more.
const ARRIVING_PACKETS_MAX: u32 = 4;

impl Switch {
    /// Prefetches data that the switch needs, when `turns` other nodes are simulated before it.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, turns: u32, network: &Network) {
        let rings = self.first_ring..self.first_ring + self.ports.len() as u32;
        match turns {
            3 => {
                prefetch_whole(self);
                network.links.prefetch_rings(rings);
            }
            2 => {
                (0..self.ports.len()).for_each(|port| prefetch_at(&self.ports, port));
                (0..self.wakes.len()).for_each(|group| prefetch_at(&self.wakes, group));
                self.queues.prefetch();
            }
            1 => {
                rings.for_each(|ring| network.links.prefetch_first(ring, ARRIVING_PACKETS_MAX));
                self.queues.prefetch_upcoming();
            }
            _ => {}
        }
    }
}
