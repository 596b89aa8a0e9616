//! Prefetches state into the cache before the packets that need it are processed.
//!
//! In a driver of many engines, or of one engine with many connections, the state that the next packet needs is in a
//! distant cache level or in memory, several dependent loads away. A driver that knows the next packets a short time
//! in advance issues these loads step by step, and does other work in between. Correctness does not depend on it.

use rnic_base::{Time, prefetch, prefetch_whole};
use rnic_wire::Qpn;

use super::Engine;
use crate::core::Core;
use crate::qp::ProtocolState;

/// Number of steps of [`Engine::prefetch`]: each step reads the data that the previous step has prefetched.
pub const PREFETCH_STEPS: u32 = 8;

/// First step in which queue pairs are fetched, instead of shared state.
const FIRST_QP_STEP: u32 = 4;

/// Slots of the queue pairs whose state is expected to be needed, without duplicates: the result that one step passes
/// to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    slots: [u32; 32],
    count: usize,
    /// Set of the slots modulo 64: when the bit for a slot is clear, `slots` does not contain it and is not searched.
    slots_modulo_64: u64,
}

impl Hints {
    /// Adds the queue pair in `slot`, if it is new and there is space for one more.
    #[inline]
    fn add(&mut self, slot: u32) {
        let bit = 1 << (slot % u64::BITS);
        let is_new = self.slots_modulo_64 & bit == 0 || !self.slots().contains(&slot);
        if is_new && self.count < self.slots.len() {
            self.slots[self.count] = slot;
            self.count += 1;
            self.slots_modulo_64 |= bit;
        }
    }

    #[inline]
    fn slots(&self) -> &[u32] {
        &self.slots[..self.count]
    }
}

impl Engine {
    /// Executes step `step`, of [`PREFETCH_STEPS`] in all, of prefetching the state for packets that will be received
    /// or sent before `horizon`. The queue pairs `destinations` are those for which packets are known to arrive.
    #[inline]
    pub fn prefetch(&self, step: u32, horizon: Time, destinations: impl Iterator<Item = Qpn>, hints: &mut Hints) {
        match step {
            0 => self.prefetch_own(),
            1 => {
                self.qps.prefetch_pages();
                self.core.timers.prefetch();
                match &self.falcon {
                    Some(nic) => nic.prefetch(),
                    None => self.core.objects.prefetch(),
                }
            }
            2 => {
                self.core.ready.prefetch();
                match &self.falcon {
                    Some(nic) => nic.prefetch_indirect(),
                    None => {
                        self.core.control.prefetch();
                        self.core.objects.prefetch_indirect();
                    }
                }
            }
            3 => {
                destinations.for_each(|number| self.qps.prefetch_number(number));
                if let Some(nic) = &self.falcon {
                    nic.prefetch_rest();
                }
            }
            FIRST_QP_STEP => {
                *hints = Hints::default();
                destinations.for_each(|number| hints.add(self.qps.slot_of(number)));
                self.expected_until(horizon).for_each(|slot| hints.add(slot));
                hints.slots().iter().for_each(|slot| self.qps.prefetch_slot(*slot));
            }
            _ => {
                let step = step - FIRST_QP_STEP - 1;
                if step > 0 && self.falcon.is_none() {
                    return;
                }
                for qp in hints.slots().iter().filter_map(|slot| self.qps.at(*slot)) {
                    match (&qp.protocol, &self.falcon) {
                        (ProtocolState::Falcon(end), Some(nic)) => end.prefetch(step, &qp.verbs, nic),
                        (ProtocolState::Roce(_), _) if step == 0 => qp.verbs.send.queue.prefetch(),
                        _ => {}
                    }
                }
            }
        }
    }

    #[inline]
    fn prefetch_own(&self) {
        let core = &self.core;
        prefetch(&core.now);
        prefetch(&self.falcon);
        prefetch(&core.objects.mrs);
        prefetch(&core.objects.cqs);
        prefetch(&core.timers);
        prefetch(&core.segments);
        prefetch(&core.stats);
        prefetch(&core.watch);
        prefetch(&core.overrun_cqs);
        prefetch_whole(&core.ready);
        prefetch(&core.control);
        self.qps.prefetch();
    }

    /// Returns the slots of the queue pairs that are known to send or to have a timeout before `horizon`: the next few
    /// of those that can send, of those with a timeout, and of those with a paced packet.
    fn expected_until(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let Core { ready, timers, .. } = &self.core;
        let paced = self.falcon.iter().flat_map(move |nic| nic.first_due_before(horizon));
        ready.senders().chain(timers.first_due_before(horizon)).chain(paced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_added_once_and_slots_beyond_the_capacity_are_dropped() {
        let mut hints = Hints::default();
        [7, 3, 7, 0, 3].into_iter().for_each(|slot| hints.add(slot));
        assert_eq!(hints.slots(), [7, 3, 0]);
        (0..100).for_each(|slot| hints.add(slot));
        assert_eq!((hints.slots().len(), hints.slots()[31]), (32, 31));
    }
}
