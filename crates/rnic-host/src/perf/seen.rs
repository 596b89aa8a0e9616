//! Which operations are done, where they may be done in any order.

use std::collections::VecDeque;

/// Numbers that have come, each once, none far beyond the first that has not.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// All before it have come.
    first: u64,
    /// Of `first` and those behind it.
    come: VecDeque<bool>,
    /// How far one may be beyond the first that has not come.
    span: u64,
}

impl Seen {
    /// None yet.
    pub(super) fn within(span: u64) -> Self {
        Self { first: 0, come: VecDeque::new(), span }
    }

    /// The first that has not come.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Notes one; answers whether it is new, and one that can have come.
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

    /// The number whose lower 32 bits are `word` that is the closest to the first that has not come.
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
