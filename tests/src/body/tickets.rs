//! Tickets of a host, which queue pairs of all hosts take by adding one to a word.

use crate::arena::BlockId;

/// The tickets of one host.
pub(super) struct Tickets {
    block: BlockId,
    /// Requests for a ticket posted.
    posted: u64,
    /// Tickets that are known to be taken.
    taken: Vec<bool>,
    /// Set when a request failed that may or may not have taken a ticket.
    is_uncertain: bool,
}

impl Tickets {
    /// Creates the tickets that are taken from the counter in `block`.
    pub(super) fn new(block: BlockId) -> Self {
        Self { block, posted: 0, taken: Vec::new(), is_uncertain: false }
    }

    /// Returns the block of the counter.
    pub(super) fn block(&self) -> BlockId {
        self.block
    }

    /// Counts a posted request for a ticket.
    pub(super) fn note_request(&mut self) {
        self.posted += 1;
    }

    /// Records that a request received the ticket `found`: every ticket is returned once.
    ///
    /// # Errors
    /// When it was returned before, or there can be no such ticket.
    pub(super) fn take(&mut self, found: u64) -> Result<(), String> {
        if found >= self.posted {
            return Err(format!("ticket {found} of {}", self.posted));
        }
        let index = found as usize;
        if self.taken.len() <= index {
            self.taken.resize(index + 1, false);
        }
        if std::mem::replace(&mut self.taken[index], true) {
            return Err(format!("ticket {found} was given twice"));
        }
        Ok(())
    }

    /// Records that a request failed, which may have taken a ticket.
    pub(super) fn note_uncertain(&mut self) {
        self.is_uncertain = true;
    }

    /// Checks the final value `found` of the counter.
    ///
    /// # Errors
    /// When more or fewer tickets were taken than possible.
    pub(super) fn check_count(&self, found: u64) -> Result<(), String> {
        let (posted, taken) = (self.posted, self.taken.len() as u64);
        if found > posted || found < taken || (found != posted && !self.is_uncertain) {
            return Err(format!("{posted} tickets were drawn, the count is {found}"));
        }
        Ok(())
    }
}
