//! Tracks completed operations that may complete in any order.

use std::collections::VecDeque;

/// Set of numbers, each of which is added once; all numbers are within `span` of the first missing one.
#[derive(Clone, Debug)]
pub(super) struct SeenNumbers {
    /// The first missing number: all smaller numbers have been added.
    first: u64,
    /// For `first` and each number after it: true when the number has been added.
    received: VecDeque<bool>,
    /// Numbers must be less than this distance above the first missing one.
    span: u64,
}

impl SeenNumbers {
    /// Returns an empty set.
    pub(super) fn within(span: u64) -> Self {
        Self { first: 0, received: VecDeque::new(), span }
    }

    /// Returns the first missing number.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Adds a number; returns whether it is new and within the permitted span.
    #[inline]
    pub(super) fn note(&mut self, number: u64) -> bool {
        if number == self.first && self.received.is_empty() {
            self.first += 1;
            return true;
        }
        let Some(offset) = number.checked_sub(self.first).filter(|offset| *offset < self.span) else { return false };
        let offset = offset as usize;
        if self.received.len() <= offset {
            self.received.resize(offset + 1, false);
        }
        let is_new = !std::mem::replace(&mut self.received[offset], true);
        while self.received.front() == Some(&true) {
            self.received.pop_front();
            self.first += 1;
        }
        is_new
    }

    /// Returns the number with the lower 32 bits `low_bits` that is closest to the first missing number.
    pub(super) fn extend_low_bits(&self, low_bits: u32) -> u64 {
        let distance = low_bits.wrapping_sub(self.first as u32) as i32;
        self.first.wrapping_add_signed(distance.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_accepted_once_in_any_order() {
        let mut seen = SeenNumbers::within(4);
        for number in [0, 1, 3, 2, 6, 5, 7] {
            assert!(seen.note(number), "{number}");
            assert!(!seen.note(number), "{number} was accepted twice");
        }
        assert_eq!(seen.first(), 4);
        assert!(!seen.note(8), "a number beyond the window was accepted");
        assert!(seen.note(4) && seen.first() == 8);
    }

    #[test]
    fn a_number_is_extended_from_its_low_32_bits() {
        let mut seen = SeenNumbers::within(4);
        seen.first = (7 << 32) - 2;
        for number in [(7 << 32) - 3, (7 << 32) - 2, 7 << 32, (7 << 32) + 1] {
            assert_eq!(seen.extend_low_bits(number as u32), number);
        }
    }
}
