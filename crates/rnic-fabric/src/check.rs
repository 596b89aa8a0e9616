//! Checkers: independent of the code that they check, and always enabled.
//!
//! | property | checked by |
//! |---|---|
//! | each operation completes once at each side, in the order of posting | the ledger, from posts and completions |
//! | the correct bytes arrive, and none outside the buffers | [`crate::host::memory`], when the payload is carried |
//! | no leaks: packets, buffers, queue pairs, memory | the end of the run, see [`crate::Simulation`] |
//! | no deadlock and no stall | the run itself: no useful packet for a bounded time, or no event left |
//!
//! A property that does not hold is a [`Violation`] in the report: the run has failed, and the report contains the
//! information needed to repeat it.

mod ledger;

use core::fmt;

use rnic_base::Time;

pub(crate) use ledger::Ledger;

/// A checked property that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Time at which the violation was detected.
    pub at: Time,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// The first violations, up to a fixed number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations {
    list: Vec<Violation>,
}

impl Violations {
    #[cold]
    pub(crate) fn add(&mut self, at: Time, what: String) {
        if self.list.len() < VIOLATIONS_MAX {
            self.list.push(Violation { at, what });
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Violation> {
        core::mem::take(&mut self.list)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Number of violations kept per host: one violation usually causes more, and the first few of each host show the
/// cause.
const VIOLATIONS_MAX: usize = 8;
