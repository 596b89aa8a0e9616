//! What a host with Falcon will need, brought near while other hosts have their turn.
//!
//! In a window of time each host handles a few packets, and then all other hosts do: by its next turn, its state is out
//! of the nearest cache, and with many connections out of all of them. From a host to what a packet touches there are
//! nine steps through memory. So a host is looked at several turns before its own ([`STEPS`]), and each time is asked
//! for one step more: the host, its engine and what arrives, the headers, and then as [`Reach`] has it. Nothing depends
//! on it: what arrives or leaves otherwise than expected is fetched when it is needed.

use rnic_base::{Time, near};
use rnic_engine::Reach;
use rnic_wire::Qpn;

use super::Host;
use crate::entry::Flags;
use crate::network::Network;

/// Turns of other hosts before its own in which a host is looked at.
pub(crate) const STEPS: u32 = 9;

/// Packets that arrive which are looked at, at most: what a 100 Gbit/s link carries in a microsecond and as many
/// acknowledgements.
const ARRIVING: u32 = 8;

/// Where the queue pairs lie that a host will need in its turn, each once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    slots: [u32; 32],
    count: usize,
    /// By the low bits of slots: where none is, none need be looked for.
    low_bits: u64,
}

impl Expected {
    /// One more, when there is room.
    #[inline]
    fn add(&mut self, slot: u32) {
        let bit = 1 << (slot % u64::BITS);
        let is_new = self.low_bits & bit == 0 || !self.slots().contains(&slot);
        if is_new && self.count < self.slots.len() {
            self.slots[self.count] = slot;
            self.count += 1;
            self.low_bits |= bit;
        }
    }

    #[inline]
    fn slots(&self) -> &[u32] {
        &self.slots[..self.count]
    }
}

impl Host {
    /// Has what it needs before `horizon` brought near, when `turns` others come before it; what is found on the way
    /// is `expected` in the steps that follow.
    #[inline]
    pub(crate) fn look_ahead(&self, turns: u32, horizon: Time, network: &Network, expected: &mut Expected) {
        match turns {
            9 => self.touch(),
            8 => {
                network.links.touch_ring(self.ring);
                self.engine.touch();
            }
            7 => {
                network.links.touch_first(self.ring, ARRIVING);
                self.engine.touch_falcon();
            }
            6 => {
                let arriving = network.links.packets_until(self.ring, horizon, ARRIVING);
                arriving.for_each(|entry| network.falcon_packets.touch(entry.packet));
                self.engine.touch_falcon_apart();
            }
            5 => {
                self.receivers(horizon, network).for_each(|number| self.engine.touch_number(number));
                self.engine.touch_falcon_rest();
            }
            4 => {
                *expected = Expected::default();
                self.receivers(horizon, network).for_each(|number| expected.add(self.engine.slot_of(number)));
                self.engine.falcon_slots_until(horizon).for_each(|slot| expected.add(slot));
                self.touch_expected(expected, Reach::QueuePair);
            }
            3 => self.touch_expected(expected, Reach::Connection),
            2 => self.touch_expected(expected, Reach::Link),
            1 => self.touch_expected(expected, Reach::Apart),
            _ => {}
        }
    }

    fn touch_expected(&self, expected: &Expected, reach: Reach) {
        expected.slots().iter().for_each(|slot| self.engine.touch_slot(*slot, reach));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_expected_once_and_no_more_than_there_is_room_for() {
        let mut expected = Expected::default();
        [7, 3, 7, 0, 3].into_iter().for_each(|slot| expected.add(slot));
        assert_eq!(expected.slots(), [7, 3, 0]);
        (0..100).for_each(|slot| expected.add(slot));
        assert_eq!((expected.slots().len(), expected.slots()[31]), (32, 31));
    }
}
