//! The queues of one thread that have records, served in cyclic order.
//!
//! Source: SCR (NSDI'25), section 4.3.3: the multiplexer serves the next queue that has events, without priorities.
//!
//! Restrictions: a queue that has records is served after at most one turn of every other queue of its thread.

/// Bits of a word.
const WORD_BITS: u32 = u64::BITS;

/// A set of positions in a cycle, and the position that was served last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    ready: Vec<u64>,
    served: u32,
}

impl Turns {
    /// Marks the queue at `position` as ready.
    #[inline]
    pub(crate) fn insert(&mut self, position: u32) {
        self.insert_word((position / WORD_BITS) as usize, 1 << (position % WORD_BITS));
    }

    /// Adds the positions whose bits are set in `bits`; bit 0 is position `64 * word`.
    #[inline]
    pub(crate) fn insert_word(&mut self, word: usize, bits: u64) {
        if word >= self.ready.len() {
            self.ready.resize(word + 1, 0);
        }
        self.ready[word] |= bits;
    }

    /// Marks the queue at `position` as not ready, so that it gets no turn.
    #[inline]
    pub(crate) fn remove(&mut self, position: u32) {
        if let Some(word) = self.ready.get_mut((position / WORD_BITS) as usize) {
            *word &= !(1 << (position % WORD_BITS));
        }
    }

    /// Returns `true` if no queue has a record.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.iter().all(|word| *word == 0)
    }

    /// Returns the first position after the one that was served last, and makes it the one served last.
    #[inline]
    pub(crate) fn serve(&mut self) -> Option<u32> {
        let from = self.served + 1;
        let position = self.first(from).or_else(|| self.first(0))?;
        self.served = position;
        Some(position)
    }

    #[inline]
    fn first(&self, from: u32) -> Option<u32> {
        let start = (from / WORD_BITS) as usize;
        let masked = self.ready.get(start)? & (u64::MAX << (from % WORD_BITS));
        let rest = self.ready[start + 1..].iter().copied();
        let mut words = core::iter::once(masked).chain(rest).zip(start as u32..);
        words.find(|(word, _)| *word != 0).map(|(word, number)| number * WORD_BITS + word.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s13_positions_are_served_in_cyclic_order() {
        let mut turns = Turns::default();
        assert_eq!((turns.serve(), turns.is_empty()), (None, true));
        [3, 64, 200, 0].into_iter().for_each(|position| turns.insert(position));
        let served: Vec<_> = (0..5).map(|_| turns.serve()).collect();
        assert_eq!(served, [Some(3), Some(64), Some(200), Some(0), Some(3)]);
        turns.remove(200);
        turns.insert_word(1, 1 << 63);
        assert_eq!([turns.serve(), turns.serve(), turns.serve()], [Some(64), Some(127), Some(0)]);
        [0, 3, 64, 127, 9_999].into_iter().for_each(|position| turns.remove(position));
        assert!(turns.is_empty());
    }

    #[test]
    fn s13_one_position_is_served_again_and_again() {
        for position in [0, 63, 64, 1_000] {
            let mut turns = Turns::default();
            turns.insert(position);
            assert_eq!([turns.serve(), turns.serve()], [Some(position); 2]);
        }
    }
}
