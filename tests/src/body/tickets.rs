//! Tickets of a host, which queue pairs of all hosts draw by adding one to a word.

use crate::arena::BlockId;

/// The tickets of one host.
pub(super) struct Tickets {
    block: BlockId,
    /// Requests posted.
    posted: u64,
    /// Those known to be done.
    taken: Vec<bool>,
    /// A request may or may not have been done.
    doubtful: bool,
}

impl Tickets {
    /// Creates the tickets that are drawn from the counter in `block`.
    pub(super) fn new(block: BlockId) -> Self {
        Self { block, posted: 0, taken: Vec::new(), doubtful: false }
    }

    /// Returns the word.
    pub(super) fn block(&self) -> BlockId {
        self.block
    }

    /// Counts a request that is to draw one.
    pub(super) fn ask(&mut self) {
        self.posted += 1;
    }

    /// Takes in that a request has drawn `found`: every ticket is given once.
    ///
    /// # Errors
    /// When it was given before, or there can be no such ticket.
    pub(super) fn take(&mut self, found: u64) -> Result<(), String> {
        if found >= self.posted {
            return Err(format!("ticket {found} of {}", self.posted));
        }
        let place = found as usize;
        if self.taken.len() <= place {
            self.taken.resize(place + 1, false);
        }
        if std::mem::replace(&mut self.taken[place], true) {
            return Err(format!("ticket {found} was given twice"));
        }
        Ok(())
    }

    /// Takes in that a request has failed, which may have drawn one.
    pub(super) fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Checks what stands in the word at the end.
    ///
    /// # Errors
    /// When more or fewer tickets were drawn than can have been.
    pub(super) fn check_count(&self, found: u64) -> Result<(), String> {
        let (posted, taken) = (self.posted, self.taken.len() as u64);
        if found > posted || found < taken || (found != posted && !self.doubtful) {
            return Err(format!("{posted} tickets were drawn, the count is {found}"));
        }
        Ok(())
    }
}
