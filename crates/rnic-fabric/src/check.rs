//! Checkers: outside the code that they check, always on.
//!
//! | promise | who looks |
//! |---|---|
//! | each operation completes once at each side, in the order of posting | the ledger, fed with posts and completions |
//! | right bytes, nothing written beside them | [`crate::host::memory`], when the payload is carried |
//! | nothing leaked: packets, buffers, queue pairs, memory | the end of the run, see [`crate::Simulation`] |
//! | no deadlock, no standstill | the run itself: no useful packet for a bounded time, or nothing left to happen |
//!
//! A broken promise is a [`Violation`] in the report: the run has failed, and the report says how to repeat it.

mod ledger;

use core::fmt;

use rnic_base::Time;

pub(crate) use ledger::Ledger;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When it was seen.
    pub at: Time,
    /// What it is.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.at, self.what)
    }
}

/// Broken promises, as many as anybody reads.
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

/// One violation usually brings more; the first few of each host tell the story.
const VIOLATIONS_MAX: usize = 8;
