//! Tracks completed operations that may complete in any order.

use std::collections::VecDeque;

/// Set of numbers that have been seen, each once; all are within `span` of the first missing one.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The first missing number: all before it have been seen.
    first: u64,
    /// For `first` and each number after it: true when it has been seen.
    come: VecDeque<bool>,
    /// Numbers must be less than this distance beyond the first missing one.
    span: u64,
}

impl Seen {
    /// Returns an empty set.
    pub(super) fn within(span: u64) -> Self {
        Self { first: 0, come: VecDeque::new(), span }
    }

    /// Returns the first missing number.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Adds a number; returns whether it is new and within the permitted span.
    #[inline]
    pub(super) fn note(&mut self, number: u64) -> bool {
        if number == self.first && self.come.is_empty() {
            self.first += 1;
            return true;
        }
        let Some(offset) = number.checked_sub(self.first).filter(|offset| *offset < self.span) else { return false };
        let offset = offset as usize;
        if self.come.len() <= offset {
            self.come.resize(offset + 1, false);
        }
        let is_new = !std::mem::replace(&mut self.come[offset], true);
        while self.come.front() == Some(&true) {
            self.come.pop_front();
            self.first += 1;
        }
        is_new
    }

    /// Returns the number with the lower 32 bits `word` that is closest to the first missing number.
    pub(super) fn closest(&self, word: u32) -> u64 {
        let distance = word.wrapping_sub(self.first as u32) as i32;
        self.first.wrapping_add_signed(distance.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_in_any_order() {
        let mut seen = Seen::within(4);
        for number in [0, 1, 3, 2, 6, 5, 7] {
            assert!(seen.note(number), "{number}");
            assert!(!seen.note(number), "{number} once more");
        }
        assert_eq!(seen.first(), 4);
        assert!(!seen.note(8), "beyond what can have come");
        assert!(seen.note(4) && seen.first() == 8);
    }

    #[test]
    fn a_number_is_known_by_its_lower_half() {
        let mut seen = Seen::within(4);
        seen.first = (7 << 32) - 2;
        for number in [(7 << 32) - 3, (7 << 32) - 2, 7 << 32, (7 << 32) + 1] {
            assert_eq!(seen.closest(number as u32), number);
        }
    }
}
