//! Wake-up times of the queue pairs.
//!
//! One entry in a heap per queue pair, for the earliest of its deadlines. Deadlines move all the time (every
//! acknowledgement restarts a timeout) and nearly always to later: so an entry is not changed when its deadline moves
//! to later; when the entry expires, the queue pair checks which deadlines are really due and is armed anew. A timeout
//! costs a store per packet, and a heap operation per timeout period.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rnic_base::{Duration, Time, prefetch_at};

/// An instant that may be "never", in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(u64);

impl Deadline {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn at(time: Time) -> Self {
        Self(time.as_ps())
    }

    #[inline]
    pub(crate) fn after(now: Time, wait: Duration) -> Self {
        Self::at(now + wait)
    }

    #[inline]
    pub(crate) fn is_due(self, now: Time) -> bool {
        self.0 <= now.as_ps()
    }

    #[inline]
    pub(crate) fn is_set(self) -> bool {
        self != Self::NEVER
    }

    #[inline]
    pub(crate) fn time(self) -> Option<Time> {
        self.is_set().then(|| Time::from_ps(self.0))
    }
}

/// Wake-ups of all queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Heap of (deadline, queue pair slot). Entries whose queue pair has moved its wake-up are stale and ignored.
    heap: BinaryHeap<Reverse<(Deadline, u32)>>,
    /// Number of entries for which space is reserved.
    expected: usize,
    /// Deadlines in the distant future, which are removed when nothing waits for them: a simulation would otherwise run
    /// until then.
    far: BTreeSet<(Deadline, u32)>,
}

impl Timers {
    /// Reserves space for `entries` more entries.
    pub(crate) fn expect(&mut self, entries: usize) {
        self.expected += entries;
        self.heap.reserve(self.expected.saturating_sub(self.heap.len()));
    }

    /// Releases the reservation of `entries` entries, whose user no longer exists.
    pub(crate) fn expect_no_more(&mut self, entries: usize) {
        self.expected -= entries;
    }

    /// Ensures that `slot` wakes at `deadline` or earlier; `armed` is the deadline of its present entry.
    #[inline]
    pub(crate) fn arm(&mut self, slot: u32, deadline: Deadline, armed: &mut Deadline) {
        if deadline < *armed {
            *armed = deadline;
            self.heap.push(Reverse((deadline, slot)));
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let next = self.heap.peek().map_or(Deadline::NEVER, |Reverse((deadline, _))| *deadline);
        if self.far.is_empty() { next.time() } else { self.next_of_both(next) }
    }

    #[cold]
    fn next_of_both(&self, next: Deadline) -> Option<Time> {
        self.far.first().map_or(next, |(far, _)| next.min(*far)).time()
    }

    /// Moves the distant deadline of `slot` from `from` to `to`, exactly.
    #[cold]
    pub(crate) fn move_far(&mut self, slot: u32, from: Deadline, to: Deadline) {
        self.far.remove(&(from, slot));
        if to.is_set() {
            self.far.insert((to, slot));
        }
    }

    /// Prefetches the first entries and the end of the heap.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let entries = self.heap.as_slice();
        let few = entries.len().min(TOUCHED);
        (0..few).step_by(4).for_each(|index| prefetch_at(entries, index));
        prefetch_at(entries, entries.len().wrapping_sub(1));
    }

    /// Returns approximately the slots that are due before `horizon`: those among the first few heap entries, of which
    /// only the very first is in order.
    #[inline]
    pub(crate) fn few_until(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let end = Deadline::at(horizon);
        let first = self.heap.as_slice().iter().take(FEW).filter(move |Reverse((deadline, _))| *deadline < end);
        first.map(|Reverse((_, slot))| *slot)
    }

    /// Removes and returns the next entry that is due, with its deadline.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Deadline, u32)> {
        let is_due = self.heap.peek().is_some_and(|Reverse((deadline, _))| deadline.is_due(now));
        if is_due {
            return self.heap.pop().map(|Reverse(entry)| entry);
        }
        self.pop_far(now)
    }

    #[inline(never)]
    fn pop_far(&mut self, now: Time) -> Option<(Deadline, u32)> {
        self.far.first().filter(|(deadline, _)| deadline.is_due(now))?;
        self.far.pop_first()
    }
}

/// Number of entries considered: the first entry, and two levels behind it in the heap.
const FEW: usize = 7;

/// Number of entries near the top that are prefetched: an entry that sifts down from the top passes one of each level.
const TOUCHED: usize = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_keeps_the_earliest_and_pop_brings_them_in_order() {
        let mut timers = Timers::default();
        let at = |us| Deadline::at(Time::from_us(us));
        let (mut first, mut second) = (Deadline::NEVER, Deadline::NEVER);
        timers.arm(1, at(50), &mut first);
        timers.arm(2, at(20), &mut second);
        timers.arm(1, at(80), &mut first);
        assert_eq!(timers.next(), Some(Time::from_us(20)));
        assert_eq!(timers.pop_due(Time::from_us(10)), None);
        assert_eq!(timers.pop_due(Time::from_us(60)), Some((at(20), 2)));
        assert_eq!(timers.pop_due(Time::from_us(60)), Some((at(50), 1)));
        assert_eq!(timers.pop_due(Time::from_us(60)), None);
    }

    #[test]
    fn far_deadlines_are_exact_and_come_up_beside_the_others() {
        let mut timers = Timers::default();
        let at = |us| Deadline::at(Time::from_us(us));
        let mut armed = Deadline::NEVER;
        timers.arm(1, at(50), &mut armed);
        timers.move_far(2, Deadline::NEVER, at(20));
        timers.move_far(3, Deadline::NEVER, at(70));
        assert_eq!(timers.next(), Some(Time::from_us(20)));
        timers.move_far(2, at(20), at(60));
        assert_eq!(timers.next(), Some(Time::from_us(50)));
        timers.move_far(3, at(70), Deadline::NEVER);
        assert_eq!(timers.pop_due(Time::from_us(100)), Some((at(50), 1)));
        assert_eq!(timers.pop_due(Time::from_us(59)), None);
        assert_eq!(timers.pop_due(Time::from_us(100)), Some((at(60), 2)));
        assert_eq!((timers.pop_due(Time::from_us(100)), timers.next()), (None, None));
    }

    #[test]
    fn only_those_are_looked_at_whose_time_comes_before_the_horizon() {
        let mut timers = Timers::default();
        for (slot, us) in [(1, 50), (2, 20), (3, 30), (4, 90)] {
            let mut armed = Deadline::NEVER;
            timers.arm(slot, Deadline::at(Time::from_us(us)), &mut armed);
        }
        let until = |us| {
            let mut slots: Vec<u32> = timers.few_until(Time::from_us(us)).collect();
            slots.sort_unstable();
            slots
        };
        assert_eq!([until(20), until(31), until(91)], [vec![], vec![2, 3], vec![1, 2, 3, 4]]);
    }
}
