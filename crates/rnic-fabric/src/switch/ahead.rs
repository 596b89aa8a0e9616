//! What a switch will need, brought near while other nodes have their turn: as for hosts
//! ([`crate::host`]'s own), with fewer steps.

use rnic_base::{near_at, near_whole};

use super::Switch;
use crate::network::Network;

/// Turns of other nodes before its own in which a switch is looked at.
pub(crate) const STEPS: u32 = 3;

/// Packets that come in at a port which are looked at: what a 100 Gbit/s link carries in a microsecond, and one more.
const ARRIVING: u32 = 4;

impl Switch {
    /// Has what it needs brought near, when `turns` others come before it.
    #[inline]
    pub(crate) fn look_ahead(&self, turns: u32, network: &Network) {
        let rings = self.first_ring..self.first_ring + self.ports.len() as u32;
        match turns {
            3 => {
                near_whole(self);
                network.links.touch_rings(rings);
            }
            2 => {
                (0..self.ports.len()).for_each(|port| near_at(&self.ports, port));
                (0..self.wakes.len()).for_each(|group| near_at(&self.wakes, group));
                self.queues.touch();
            }
            1 => {
                rings.for_each(|ring| network.links.touch_first(ring, ARRIVING));
                self.queues.touch_upcoming();
            }
            _ => {}
        }
    }
}
