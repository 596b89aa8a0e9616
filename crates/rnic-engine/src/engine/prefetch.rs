//! Prefetches state into the cache before the packets that need it are processed.
//!
//! In a driver of many engines, or of one engine with many connections, the state that the next packet needs is in a
//! distant cache level or in memory, several dependent loads away. A driver that knows the next packets a little in
//! advance issues these loads one after the other, a step at a time, and does other work in between. Correctness does
//! not depend on it.

use rnic_base::{Time, prefetch, prefetch_whole};
use rnic_wire::Qpn;

use super::Engine;
use crate::core::Core;
use crate::qp::{Carrier, Qp};

/// Number of steps of [`Engine::prefetch`]: each reads the data that the step before it has fetched.
pub const PREFETCH_STEPS: u32 = 8;

/// First step in which queue pairs are fetched, instead of shared state.
const QUEUE_PAIRS: u32 = 4;

/// Slots of the queue pairs that are expected to need their state, each once: the result that one step passes to the
/// next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    slots: [u32; 32],
    count: usize,
    /// Bit set of the low bits of the slots: when a bit is clear, `slots` need not be searched.
    low_bits: u64,
}

impl Hints {
    /// Adds the queue pair in `slot`, when there is space for one more.
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

impl Engine {
    /// Executes step `step` of [`PREFETCH_STEPS`] of fetching the state for packets that will be received or sent
    /// before `horizon`. The queue pairs `arriving` are those for which Falcon packets are known to arrive.
    #[inline]
    pub fn prefetch(&self, step: u32, horizon: Time, arriving: impl Iterator<Item = Qpn>, hints: &mut Hints) {
        match step {
            0 => self.prefetch_own(),
            1 => {
                self.qps.touch_pages();
                self.core.timers.prefetch();
                if let Some(nic) = &self.falcon {
                    nic.prefetch();
                }
            }
            2 => {
                if let Some(nic) = &self.falcon {
                    self.core.ready.touch_falcon();
                    nic.prefetch_indirect();
                }
            }
            3 => {
                arriving.for_each(|number| self.qps.touch_number(number));
                if let Some(nic) = &self.falcon {
                    nic.prefetch_rest();
                }
            }
            QUEUE_PAIRS => {
                *hints = Hints::default();
                arriving.for_each(|number| hints.add(self.qps.slot_of(number)));
                self.expected_until(horizon).for_each(|slot| hints.add(slot));
                hints.slots().iter().for_each(|slot| self.qps.touch_at(*slot));
            }
            _ => {
                let Some(nic) = &self.falcon else { return };
                for slot in hints.slots() {
                    if let Some(Qp { verbs, carrier: Carrier::Falcon(end) }) = self.qps.at(*slot) {
                        end.prefetch(step - QUEUE_PAIRS - 1, verbs, nic);
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
        prefetch(&core.overrun);
        prefetch_whole(&core.ready);
        prefetch(&core.control);
        self.qps.prefetch();
    }

    /// Returns the slots of the Falcon queue pairs that will send or have a timeout before `horizon`, as far as that is
    /// known: the next few of those that can send, whose timeout is due, and whose packet is paced.
    fn expected_until(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let (nics, Core { ready, timers, .. }) = (self.falcon.iter(), &self.core);
        nics.flat_map(move |nic| ready.falcon_senders().chain(timers.few_until(horizon)).chain(nic.few_until(horizon)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_expected_once_and_no_more_than_there_is_place_for() {
        let mut hints = Hints::default();
        [7, 3, 7, 0, 3].into_iter().for_each(|slot| hints.add(slot));
        assert_eq!(hints.slots(), [7, 3, 0]);
        (0..100).for_each(|slot| hints.add(slot));
        assert_eq!((hints.slots().len(), hints.slots()[31]), (32, 31));
    }
}
