//! The rings of queue pairs that can send.
//!
//! Tonic's active set (section 3.1): first in, first out, one turn each, re-queued only while there is more to send.
//! There are two rings, for requests and for responses, served alternately: neither type can starve the other (Falcon
//! section 4.4 arbitrates its packet types in the same way). Queue pairs on Falcon have a separate ring, and a second
//! one for those about to be moved to it.

use crate::fifo::Fifo;

/// Half of a queue pair: requester or responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    Requester,
    Responder,
    /// Both halves of a queue pair on Falcon, which has a separate ring.
    Falcon,
}

/// The rings of queue pairs that can send.
#[derive(Debug)]
pub(crate) struct Ready {
    requesters: Fifo<u32>,
    responders: Fifo<u32>,
    /// Falcon queue pairs that can send. The bits of an entry above the slot number hold the resource for which the
    /// queue pair waited.
    falcon: Fifo<u32>,
    /// Falcon queue pairs that waited for credit at their peer and have been granted it; they are about to be moved
    /// to the Falcon ring.
    with_credit: Fifo<u32>,
    /// True when the responders are served next if both rings have entries.
    responders_next: bool,
}

impl Default for Ready {
    fn default() -> Self {
        let ring = || Fifo::new(0);
        Self { requesters: ring(), responders: ring(), falcon: ring(), with_credit: ring(), responders_next: false }
    }
}

impl Ready {
    /// Appends the queue pair in `slot` to the ring of its `half` (requester or responder), unless `queued` states that
    /// it is in the ring already.
    #[inline]
    pub(crate) fn push(&mut self, half: Half, slot: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.requeue(half, slot);
        }
    }

    /// Appends `slot`, which is still marked as queued, to its ring again.
    #[inline]
    pub(crate) fn requeue(&mut self, half: Half, slot: u32) {
        match half {
            Half::Requester => self.requesters.push(slot),
            Half::Responder => self.responders.push(slot),
            Half::Falcon => self.with_credit.push(slot),
        }
    }

    /// Appends a Falcon queue pair to the ring of those that can send; `tag` is returned when it is removed.
    #[inline]
    pub(crate) fn push_falcon(&mut self, slot: u32, tag: u32) {
        self.falcon.push(slot | tag << TAG_SHIFT);
    }

    /// Removes and returns the next Falcon queue pair that can send, with its tag.
    #[inline]
    pub(crate) fn pop_falcon(&mut self) -> Option<(u32, u32)> {
        self.falcon.pop().map(|entry| (slot_of(entry), entry >> TAG_SHIFT))
    }

    /// Returns `true` when a Falcon queue pair can send, or has been granted credit.
    #[inline]
    pub(crate) fn has_falcon(&self) -> bool {
        !self.falcon.is_empty() || !self.with_credit.is_empty()
    }

    /// Returns the next few queue pairs that can send.
    #[inline]
    pub(crate) fn senders(&self) -> impl Iterator<Item = u32> {
        let rings = [&self.requesters, &self.responders, &self.falcon];
        rings.into_iter().flat_map(|ring| (0..SENDERS_MAX).map_while(|index| ring.get(index)).map(slot_of))
    }

    /// Prefetches the fronts of the rings.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.requesters.prefetch();
        self.responders.prefetch();
        self.falcon.prefetch();
    }

    /// Removes `slot` from the ring of Falcon queue pairs that can send.
    pub(crate) fn forget_falcon(&mut self, slot: u32) {
        self.falcon.retain(|entry| slot_of(*entry) != slot);
    }

    /// Removes and returns the next Falcon queue pair that has been granted credit.
    #[inline]
    pub(crate) fn pop_with_credit(&mut self) -> Option<u32> {
        self.with_credit.pop()
    }

    /// Returns `true` when no queue pair can send, disregarding Falcon queue pairs.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requesters.is_empty() && self.responders.is_empty()
    }

    /// Removes and returns the next entry; the caller must clear its `queued` flag.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Half, u32)> {
        if self.responders_next || self.requesters.is_empty() {
            self.responders_next = false;
            if let Some(slot) = self.responders.pop() {
                return Some((Half::Responder, slot));
            }
        }
        self.responders_next = true;
        self.requesters.pop().map(|slot| (Half::Requester, slot))
    }

    /// Removes `slot` from all rings except the Falcon ring.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.requesters.retain(|queued| *queued != slot);
        self.responders.retain(|queued| *queued != slot);
        self.with_credit.retain(|queued| *queued != slot);
    }

    /// Marks the ends of the rings of requesters and responders, which are empty: a queue pair whose turn is not over
    /// is inserted before the mark, all others after it.
    pub(crate) fn mark(&mut self) {
        self.requesters.push(MARK);
        self.responders.push(MARK);
    }

    /// Moves all entries to the rings of their classes; those before a mark to the front.
    pub(crate) fn sort(&mut self, rings: &mut [Self], class_of: impl Fn(u32) -> usize) {
        for half in [Half::Requester, Half::Responder] {
            let ring = if half == Half::Requester { &mut self.requesters } else { &mut self.responders };
            let mut goes_first = (0..ring.len() as u32).any(|index| ring.get(index) == Some(MARK));
            while let Some(slot) = ring.pop() {
                match slot {
                    MARK => goes_first = false,
                    slot if goes_first => rings[class_of(slot)].push_front(half, slot),
                    slot => rings[class_of(slot)].requeue(half, slot),
                }
            }
        }
        while let Some((slot, tag)) = self.pop_falcon() {
            rings[class_of(slot)].push_falcon(slot, tag);
        }
    }

    /// Inserts the queue pair in `slot` at the front of its ring again, because its scheduling turn is not over.
    #[inline]
    pub(crate) fn push_front(&mut self, half: Half, slot: u32) {
        match half {
            Half::Requester => self.requesters.push_front(slot),
            Half::Responder => self.responders.push_front(slot),
            Half::Falcon => self.with_credit.push_front(slot),
        }
    }
}

#[inline]
const fn slot_of(entry: u32) -> u32 {
    entry & ((1 << TAG_SHIFT) - 1)
}

/// Entry that is no slot: see [`Ready::mark`].
const MARK: u32 = u32::MAX;

/// Position of the tag in an entry. Slots have 24 bits.
const TAG_SHIFT: u32 = 29;

/// Number of queue pairs inspected in advance: the number of data packets that a 100 Gbit/s link sends in a
/// microsecond, as many acknowledgements, and some more, because some queue pairs turn out to have nothing to send.
const SENDERS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries reach the rings of their classes in order; a queue pair whose turn is not over is first in its ring.
    #[test]
    fn entries_are_sorted_by_class() {
        let (mut ready, mut rings) = (Ready::default(), [Ready::default(), Ready::default()]);
        let class_of = |slot: u32| slot as usize % 2;
        [1, 2, 3, 4].into_iter().for_each(|slot| ready.requeue(Half::Requester, slot));
        ready.push_falcon(5, 1);
        ready.sort(&mut rings, class_of);
        ready.mark();
        ready.requeue(Half::Requester, 6);
        ready.push_front(Half::Requester, 8);
        ready.requeue(Half::Responder, 7);
        ready.sort(&mut rings, class_of);
        assert!(ready.is_empty() && !ready.has_falcon());
        assert_eq!((rings[0].has_falcon(), rings[1].pop_falcon()), (false, Some((5, 1))));
        let mut order =
            |class: usize| -> Vec<u32> { std::iter::from_fn(|| rings[class].pop()).map(|(_, slot)| slot).collect() };
        assert_eq!((order(0), order(1)), (vec![8, 2, 4, 6], vec![1, 7, 3]));
    }

    #[test]
    fn pop_alternates_between_halves_and_is_round_robin_in_each() {
        let mut ready = Ready::default();
        let mut queued = [false; 4];
        for slot in [0, 1] {
            ready.push(Half::Requester, slot, &mut queued[slot as usize]);
        }
        ready.push(Half::Requester, 0, &mut queued[0]);
        for slot in [2, 3] {
            ready.push(Half::Responder, slot, &mut queued[slot as usize]);
        }
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop()).map(|(_, slot)| slot).collect();
        assert_eq!(order, [0, 2, 1, 3]);
    }
}
