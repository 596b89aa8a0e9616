//! Who may send next: the ring of queue pairs that can.
//!
//! Tonic's active set (section 3.1): first in, first out, one turn each, put back only while there is more to send.
//! There are two rings, for requests and for responses, served alternately: neither kind can starve the other (Falcon
//! section 4.4 arbitrates its packet types the same way). Queue pairs that speak Falcon have a ring of their own, and
//! there is one for those on their way to it.

use crate::fifo::Fifo;

/// Which half of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    Requester,
    Responder,
    /// Both, of a queue pair whose packets are Falcon's: it is in a ring of its own.
    Falcon,
}

/// The rings.
#[derive(Debug)]
pub(crate) struct Ready {
    requesters: Fifo<u32>,
    responders: Fifo<u32>,
    /// Falcon's queue pairs that can send, in bits above the slot with what they waited for.
    falcon: Fifo<u32>,
    /// Falcon's queue pairs that have waited for room at their peer: on their way into their own ring.
    roomy: Fifo<u32>,
    /// Whose turn it is when both wait.
    responders_next: bool,
}

impl Default for Ready {
    fn default() -> Self {
        let ring = || Fifo::new(0);
        Self { requesters: ring(), responders: ring(), falcon: ring(), roomy: ring(), responders_next: false }
    }
}

impl Ready {
    /// Puts `slot` at the end of its ring, unless `queued` says that it is in it.
    #[inline]
    pub(crate) fn push(&mut self, half: Half, slot: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.requeue(half, slot);
        }
    }

    /// Puts `slot`, which is still marked as queued, back at the end of its ring.
    #[inline]
    pub(crate) fn requeue(&mut self, half: Half, slot: u32) {
        match half {
            Half::Requester => self.requesters.push(slot),
            Half::Responder => self.responders.push(slot),
            Half::Falcon => self.roomy.push(slot),
        }
    }

    /// Puts a queue pair of Falcon's at the end of the ring of those that can send; `tag` comes out with it.
    #[inline]
    pub(crate) fn push_falcon(&mut self, slot: u32, tag: u32) {
        self.falcon.push(slot | tag << TAG_SHIFT);
    }

    /// Takes the next queue pair of Falcon's that can send, and its tag.
    #[inline]
    pub(crate) fn pop_falcon(&mut self) -> Option<(u32, u32)> {
        self.falcon.pop().map(|entry| (slot_of(entry), entry >> TAG_SHIFT))
    }

    /// Returns `true` when a queue pair of Falcon's can send, or has been given room.
    #[inline]
    pub(crate) fn has_falcon(&self) -> bool {
        !self.falcon.is_empty() || !self.roomy.is_empty()
    }

    /// Returns the next few queue pairs of Falcon's that can send.
    #[inline]
    pub(crate) fn falcon_senders(&self) -> impl Iterator<Item = u32> {
        (0..SENDERS).map_while(|index| self.falcon.get(index)).map(slot_of)
    }

    /// Prefetches the front of the ring of Falcon's queue pairs.
    #[inline]
    pub(crate) fn touch_falcon(&self) {
        self.falcon.touch();
    }

    /// Takes `slot` out of the ring of Falcon's queue pairs that can send.
    pub(crate) fn forget_falcon(&mut self, slot: u32) {
        self.falcon.retain(|entry| slot_of(*entry) != slot);
    }

    /// Takes the next queue pair of Falcon's that has been given room.
    #[inline]
    pub(crate) fn pop_roomy(&mut self) -> Option<u32> {
        self.roomy.pop()
    }

    /// Whether nobody wants to send, Falcon's queue pairs aside.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requesters.is_empty() && self.responders.is_empty()
    }

    /// Takes the next one; the caller must clear its `queued` flag.
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

    /// Takes `slot` out of all rings.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.requesters.retain(|queued| *queued != slot);
        self.responders.retain(|queued| *queued != slot);
        self.roomy.retain(|queued| *queued != slot);
    }

    /// Puts `slot` back at the front: its turn is not over.
    #[inline]
    pub(crate) fn push_front(&mut self, half: Half, slot: u32) {
        match half {
            Half::Requester => self.requesters.push_front(slot),
            Half::Responder => self.responders.push_front(slot),
            Half::Falcon => self.roomy.push_front(slot),
        }
    }
}

#[inline]
const fn slot_of(entry: u32) -> u32 {
    entry & ((1 << TAG_SHIFT) - 1)
}

/// Slots have 24 bits.
const TAG_SHIFT: u32 = 29;

/// Queue pairs that are looked at ahead: for what a 100 Gbit/s link carries in a microsecond, as many acknowledgements,
/// and some that find nothing to send.
const SENDERS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pop_alternates_between_halves_and_goes_round_in_each() {
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
