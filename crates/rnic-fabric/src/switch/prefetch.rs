//! Prefetches the data that a switch will need while other nodes are simulated, as for hosts (see [`crate::host`]):
//! only that of ports at which a packet arrives or may be sent in the window.

use rnic_base::{Time, prefetch_all, prefetch_at, prefetch_whole};

use super::Switch;
use crate::link::{GROUP, Key, PORTS_MAX};
use crate::network::Network;

/// Number of other nodes that are simulated between the start of prefetching for a switch and the switch itself.
const STEPS: u32 = 7;

/// Number of arriving packets per port that are prefetched: the packets that a 100 Gbit/s link carries in a
/// microsecond, and one more.
const ARRIVING_PACKETS_MAX: u32 = 4;

/// The ports of a switch that are expected to be used: the result that one step passes to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortHints {
    /// Ports at which packets arrive.
    inputs: PortSet,
    /// Ports that send.
    outputs: PortSet,
}

/// A set of ports, one bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct PortSet([u64; PORTS_MAX / 64]);

impl PortSet {
    /// Replaces the set by those of `count` ports whose key is less than `end`.
    #[inline]
    fn set_due(&mut self, keys: &[[Key; GROUP]], count: usize, end: Key) {
        for (word, groups) in self.0[..count.div_ceil(64)].iter_mut().zip(keys.chunks(64 / GROUP)) {
            let bit = |(index, key): (usize, &Key)| u64::from(*key < end) << index;
            *word = groups.as_flattened().iter().enumerate().map(bit).sum();
        }
    }

    #[inline]
    fn add(&mut self, port: usize) {
        self.0[port / 64] |= 1 << (port % 64);
    }

    /// Returns the ports, of a switch with `count` ports.
    #[inline]
    fn iter(&self, count: usize) -> impl Iterator<Item = usize> {
        let words = self.0[..count.div_ceil(64)].iter().copied().enumerate();
        words.flat_map(|(index, mut word)| {
            core::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

impl Switch {
    /// Prefetches data that the switch needs before `horizon`, when `turns` other nodes are simulated before it. Each
    /// step reads what the one before has prefetched, and `hints` passes on which ports are expected to be used.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, turns: u32, horizon: Time, network: &Network, hints: &mut PortHints) {
        let count = self.ports.len();
        let ring = |port: usize| self.first_ring + port as u32;
        let PortHints { inputs, outputs } = hints;
        match turns {
            STEPS => prefetch_whole(self),
            6 => {
                network.links.prefetch_heads(self.first_ring, self.wakes.len());
                prefetch_all(&self.wakes);
            }
            5 => {
                let end = Key::new(horizon, 0);
                inputs.set_due(network.links.heads(self.first_ring, self.wakes.len()), count, end);
                outputs.set_due(&self.wakes, count, end);
                inputs.iter(count).for_each(|port| network.links.prefetch_ring(ring(port)));
            }
            4 => {
                inputs.iter(count).for_each(|port| network.links.prefetch_first(ring(port), ARRIVING_PACKETS_MAX));
            }
            3 => self.prefetch_senders(horizon, network, hints),
            2 => {
                for output in outputs.iter(count) {
                    self.ports[output].prefetch_ring(network);
                    self.queues.prefetch_first(output);
                }
            }
            1 => outputs.iter(count).for_each(|output| self.ports[output].prefetch_tail(network)),
            _ => {}
        }
    }

    /// Determines where the arriving packets go, and prefetches the state of the ports that send.
    #[inline]
    fn prefetch_senders(&self, horizon: Time, network: &Network, PortHints { inputs, outputs }: &mut PortHints) {
        let count = self.ports.len();
        for input in inputs.iter(count) {
            let ring = self.first_ring + input as u32;
            for entry in network.links.packets_until(ring, horizon, ARRIVING_PACKETS_MAX) {
                let output = self.route.port(entry.dst(), entry.flow_hash);
                outputs.add(output);
                self.queues.prefetch_list(output, input);
            }
            self.admission.prefetch(input);
        }
        for output in outputs.iter(count) {
            prefetch_at(&self.ports, output);
            self.queues.prefetch_output(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_ports_has_those_that_are_due_and_those_added() {
        let mut keys = vec![[Key::NEVER; GROUP]; 25];
        for (port, ns) in [(0, 5), (63, 9), (64, 3), (130, 7), (199, 4)] {
            keys[port / GROUP][port % GROUP] = Key::new(Time::from_ns(ns), port);
        }
        let mut ports = PortSet::default();
        ports.set_due(&keys, 200, Key::new(Time::from_ns(9), 0));
        assert_eq!(ports.iter(200).collect::<Vec<_>>(), [0, 64, 130, 199]);
        ports.add(65);
        ports.add(64);
        assert_eq!(ports.iter(200).collect::<Vec<_>>(), [0, 64, 65, 130, 199]);
        ports.set_due(&keys, 200, Key::new(Time::ZERO, 0));
        assert_eq!(ports.iter(200).count(), 0);
    }
}
