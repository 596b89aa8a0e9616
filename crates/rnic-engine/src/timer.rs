//! Wake-up times of the queue pairs.
//!
//! Each queue pair has one entry in a heap, for the earliest of its deadlines. Deadlines change constantly (every
//! acknowledgement restarts a timeout) and nearly always become later. Therefore an entry is not changed when its
//! deadline becomes later; when the entry expires, the queue pair checks which deadlines are really due, and a new
//! entry is inserted. A timeout thus costs one store per packet, and one heap operation per timeout period.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rnic_base::{Duration, Time, prefetch_at};

/// A point in time, or "never", in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(u64);

impl Default for Deadline {
    fn default() -> Self {
        Self::NEVER
    }
}

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
    /// Heap of (deadline, queue pair slot). Entries of queue pairs whose timer has since been set to another time are
    /// stale and ignored.
    heap: BinaryHeap<Reverse<(Deadline, u32)>>,
    /// Number of entries for which space is reserved.
    expected: usize,
    /// Deadlines in the distant future. Unlike heap entries, they are removed when they are no longer needed:
    /// otherwise a simulation would run until the last of them.
    distant: BTreeSet<(Deadline, u32)>,
}

impl Timers {
    /// Reserves space for `entries` more entries.
    pub(crate) fn reserve_entries(&mut self, entries: usize) {
        self.expected += entries;
        self.heap.reserve(self.expected.saturating_sub(self.heap.len()));
    }

    /// Releases the reservation of `entries` entries, whose user no longer exists.
    pub(crate) fn release_entries(&mut self, entries: usize) {
        self.expected -= entries;
    }

    /// Ensures that `slot` wakes at `deadline` or earlier; `armed` is the deadline of its current entry.
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
        if self.distant.is_empty() { next.time() } else { self.earlier_of(next) }
    }

    #[cold]
    fn earlier_of(&self, next: Deadline) -> Option<Time> {
        self.distant.first().map_or(next, |(distant, _)| next.min(*distant)).time()
    }

    /// Moves the distant deadline of `slot` from `from` to `to`; unlike with [`Self::arm`], the old entry is removed.
    #[cold]
    pub(crate) fn move_distant(&mut self, slot: u32, from: Deadline, to: Deadline) {
        self.distant.remove(&(from, slot));
        if to.is_set() {
            self.distant.insert((to, slot));
        }
    }

    /// Prefetches the first entries and the end of the heap.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let entries = self.heap.as_slice();
        let prefetched = entries.len().min(PREFETCHED_ENTRIES_MAX);
        (0..prefetched).step_by(4).for_each(|index| prefetch_at(entries, index));
        prefetch_at(entries, entries.len().wrapping_sub(1));
    }

    /// Returns some of the slots that are due before `horizon`: those among the first few heap entries, of which only
    /// the first is certainly the earliest.
    #[inline]
    pub(crate) fn first_due_before(&self, horizon: Time) -> impl Iterator<Item = u32> {
        let end = Deadline::at(horizon);
        let first =
            self.heap.as_slice().iter().take(SCANNED_ENTRIES_MAX).filter(move |Reverse((deadline, _))| *deadline < end);
        first.map(|Reverse((_, slot))| *slot)
    }

    /// Removes and returns the next entry that is due, with its deadline.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Deadline, u32)> {
        let is_due = self.heap.peek().is_some_and(|Reverse((deadline, _))| deadline.is_due(now));
        if is_due {
            return self.heap.pop().map(|Reverse(entry)| entry);
        }
        self.pop_distant(now)
    }

    #[inline(never)]
    fn pop_distant(&mut self, now: Time) -> Option<(Deadline, u32)> {
        self.distant.first().filter(|(deadline, _)| deadline.is_due(now))?;
        self.distant.pop_first()
    }
}

/// Number of entries considered: the first entry, and the two heap levels below it.
const SCANNED_ENTRIES_MAX: usize = 7;

/// Number of entries near the top that are prefetched: an entry that is sifted down from the top passes one on each
/// level.
const PREFETCHED_ENTRIES_MAX: usize = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_keeps_the_earliest_deadline_and_pop_returns_deadlines_in_order() {
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
    fn distant_deadlines_are_exact_and_ordered_with_the_others() {
        let mut timers = Timers::default();
        let at = |us| Deadline::at(Time::from_us(us));
        let mut armed = Deadline::NEVER;
        timers.arm(1, at(50), &mut armed);
        timers.move_distant(2, Deadline::NEVER, at(20));
        timers.move_distant(3, Deadline::NEVER, at(70));
        assert_eq!(timers.next(), Some(Time::from_us(20)));
        timers.move_distant(2, at(20), at(60));
        assert_eq!(timers.next(), Some(Time::from_us(50)));
        timers.move_distant(3, at(70), Deadline::NEVER);
        assert_eq!(timers.pop_due(Time::from_us(100)), Some((at(50), 1)));
        assert_eq!(timers.pop_due(Time::from_us(59)), None);
        assert_eq!(timers.pop_due(Time::from_us(100)), Some((at(60), 2)));
        assert_eq!((timers.pop_due(Time::from_us(100)), timers.next()), (None, None));
    }

    #[test]
    fn only_deadlines_before_the_horizon_are_returned() {
        let mut timers = Timers::default();
        for (slot, us) in [(1, 50), (2, 20), (3, 30), (4, 90)] {
            let mut armed = Deadline::NEVER;
            timers.arm(slot, Deadline::at(Time::from_us(us)), &mut armed);
        }
        let due_before = |us| {
            let mut slots: Vec<u32> = timers.first_due_before(Time::from_us(us)).collect();
            slots.sort_unstable();
            slots
        };
        assert_eq!([due_before(20), due_before(31), due_before(91)], [vec![], vec![2, 3], vec![1, 2, 3, 4]]);
    }
}
