//! The current rates, which only the thread of the engine writes.
//!
//! Source: SCR (NSDI'25), section 4.3.2: one writer of rates; other threads send it what they decided.
//!
//! Restrictions: the table cannot be shared between threads, which the compiler checks:
//!
//! ```compile_fail
//! fn needs_sync<T: Sync>() {}
//! needs_sync::<rnic_scr::Rates>();
//! ```

use core::cell::Cell;

use crate::steering::FLOWS_MAX;

/// The rate of each flow, by its index, as a share of the line rate in Q20; `None` is no limit.
#[derive(Debug, Default)]
pub struct Rates {
    /// Cells are not `Sync`.
    rates: Vec<Cell<Option<u32>>>,
}

impl Rates {
    /// Sets the rate of `flow` and returns `true` if it is another than before. A `flow` of [`FLOWS_MAX`] or more,
    /// which no pool assigns, is ignored.
    pub fn set(&mut self, flow: u32, rate: Option<u32>) -> bool {
        if flow >= FLOWS_MAX {
            return false;
        }
        if self.rates.len() <= flow as usize {
            self.rates.resize(flow as usize + 1, Cell::new(None));
        }
        self.rates[flow as usize].replace(rate) != rate
    }

    /// Returns the rate of `flow`.
    pub fn get(&self, flow: u32) -> Option<u32> {
        self.rates.get(flow as usize).and_then(Cell::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s12_a_rate_is_that_of_its_last_writer() {
        let mut rates = Rates::default();
        assert!(rates.set(3, Some(1 << 19)));
        assert!(!rates.set(3, Some(1 << 19)), "unchanged");
        assert_eq!([rates.get(2), rates.get(3), rates.get(4)], [None, Some(1 << 19), None]);
        assert!(rates.set(3, None));
        assert!(!rates.set(FLOWS_MAX, Some(1)));
        assert_eq!((rates.get(3), rates.get(FLOWS_MAX)), (None, None));
    }
}
