//! The packets to send, sorted by class, in an engine that serves several.
//!
//! Queue pairs put acknowledgements and themselves into the queues of [`Core`], as without classes.
//! Before each packet these are sorted into the queues here; an engine without classes has none of this, and no code on
//! its path asks for it. When a queue pair has had its turn, it may have put itself at the front or at the back of its
//! ring: a mark between the two (`Ready::mark`) tells.

use super::{CONTROL_QUEUE_MAX, ControlPacket, Core};
use crate::arbiter::{CLASSES_MAX, ClassShares, ClassTurns};
use crate::fifo::Fifo;
use crate::ready::{Half, Ready};

/// The queues of all classes of an engine.
#[derive(Debug)]
pub(crate) struct ClassQueues {
    shares: ClassShares,
    turns: ClassTurns,
    /// Class of the acknowledgements of each class.
    acks: [u8; CLASSES_MAX],
    control: [Fifo<ControlPacket>; CLASSES_MAX],
    ready: [Ready; CLASSES_MAX],
    /// For each class, true when its Falcon queue pairs are served next, if others are ready, too.
    falcon_next: [bool; CLASSES_MAX],
}

/// The next item to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Control(ControlPacket),
    /// A queue pair on Falcon, with the tag of its entry.
    Falcon(u32, u32),
    /// Half of another queue pair.
    Other(Half, u32),
}

impl ClassQueues {
    pub(crate) fn new(shares: ClassShares, acks: [u8; CLASSES_MAX]) -> Self {
        Self {
            shares,
            turns: ClassTurns::default(),
            acks,
            control: core::array::from_fn(|_| Fifo::new(ControlPacket::BLANK)),
            ready: core::array::from_fn(|_| Ready::default()),
            falcon_next: [false; CLASSES_MAX],
        }
    }

    /// Sorts everything that waits in `core` into the queues of its class; `class_of` returns that of the queue pair in
    /// a slot.
    pub(crate) fn sort(&mut self, core: &mut Core, class_of: impl Fn(u32) -> u8) {
        while let Some(control) = core.control.pop() {
            let class = self.acks[usize::from(class_of(control.slot))];
            self.control[usize::from(class)].push(control);
        }
        core.ready.sort(&mut self.ready, |slot| usize::from(class_of(slot)));
        self.limit(core);
    }

    /// Lets queue pairs queue as many acknowledgements as there would be without classes, those here included.
    fn limit(&self, core: &mut Core) {
        let held: usize = self.control.iter().map(Fifo::len).sum();
        core.control_max = CONTROL_QUEUE_MAX.saturating_sub(held);
    }

    /// Returns the class that is served next, of those in `open`, and removes what it serves.
    pub(crate) fn next(&mut self, open: u8, core: &mut Core) -> Option<(u8, Next)> {
        let ready = self.waiting() & open;
        let class = self.shares.select(&mut self.turns, ready)?;
        if let Some(control) = self.control[class].pop() {
            self.limit(core);
            return Some((class as u8, Next::Control(control)));
        }
        let ready = &mut self.ready[class];
        let serves_falcon = ready.has_falcon() && (self.falcon_next[class] || ready.is_empty());
        self.falcon_next[class] = !serves_falcon;
        let falcon = if serves_falcon { ready.pop_falcon() } else { None };
        let next = match falcon {
            Some((slot, tag)) => Next::Falcon(slot, tag),
            None => ready.pop().map(|(half, slot)| Next::Other(half, slot))?,
        };
        Some((class as u8, next))
    }

    /// Counts a packet of `bytes` that `class` has sent.
    pub(crate) fn charge(&mut self, class: u8, bytes: u32) {
        self.turns.charge(usize::from(class), bytes);
    }

    /// Returns the classes for which something waits, a bit for each.
    pub(crate) fn waiting(&self) -> u8 {
        let waits = |class: usize| {
            !self.control[class].is_empty() || !self.ready[class].is_empty() || self.ready[class].has_falcon()
        };
        (0..CLASSES_MAX).filter(|class| waits(*class)).fold(0, |set, class| set | 1 << class)
    }

    /// Removes all entries of `slot`.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.control.iter_mut().for_each(|control| control.retain(|control| control.slot != slot));
        self.ready.iter_mut().for_each(|ready| ready.forget(slot));
    }

    /// Removes the entries of `slot` in the rings of Falcon.
    pub(crate) fn forget_falcon(&mut self, slot: u32) {
        self.ready.iter_mut().for_each(|ready| ready.forget_falcon(slot));
    }
}
