//! State fetched into the cache before the packets that need it.
//!
//! A driver of many engines, or of one with many connections, finds what the next packet needs in a far level of the
//! cache or in memory, several dependent loads away. A driver that knows a little ahead what will come takes these
//! loads one after the other, a step at a time, and does other things in between. Nothing depends on it.

use rnic_base::{Time, near, near_whole};
use rnic_wire::Qpn;

use super::Engine;
use crate::core::Core;
use crate::qp::{Carrier, Qp};

/// Steps of [`Engine::prefetch`]: each reads what the one before it has fetched.
pub const PREFETCH_STEPS: u32 = 8;

/// The first of the steps in which queue pairs are fetched, and not what all share.
const QUEUE_PAIRS: u32 = 4;

/// Where the queue pairs lie that are expected to need their state, each once: what one step finds for the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    slots: [u32; 32],
    count: usize,
    /// By the low bits of slots: where none is, none need be looked for.
    low_bits: u64,
}

impl Hints {
    /// Adds the queue pair in `slot`, when there is place for one more.
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
    /// Takes step `step` of [`PREFETCH_STEPS`] towards what the packets need that come or leave before `horizon`.
    /// Falcon's packets that are known to come are for the queue pairs `arriving`.
    #[inline]
    pub fn prefetch(&self, step: u32, horizon: Time, arriving: impl Iterator<Item = Qpn>, hints: &mut Hints) {
        match step {
            0 => self.prefetch_own(),
            1 => {
                self.qps.touch_pages();
                self.core.timers.touch();
                if let Some(nic) = &self.falcon {
                    nic.touch();
                }
            }
            2 => {
                if let Some(nic) = &self.falcon {
                    self.core.ready.touch_falcon();
                    nic.touch_apart();
                }
            }
            3 => {
                arriving.for_each(|number| self.qps.touch_number(number));
                if let Some(nic) = &self.falcon {
                    nic.touch_rest();
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
        near(&core.now);
        near(&self.falcon);
        near(&core.objects.mrs);
        near(&core.objects.cqs);
        near(&core.timers);
        near(&core.segments);
        near(&core.stats);
        near(&core.watch);
        near(&core.overrun);
        near_whole(&core.ready);
        near(&core.control);
        self.qps.touch();
    }

    /// Returns where Falcon's queue pairs lie that will send or have a timeout before `horizon`, as far as that is
    /// known: the next few of those who can send, whose timeout is due, and whose packet is paced.
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
