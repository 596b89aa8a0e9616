//! Checks that each work request completes exactly once and in the promised order.
//!
//! There is one account for each queue of a queue pair in use. It uses only the work that was posted (numbered from 0)
//! and the work that completed; it does not inspect the driver or the engine.

use rnic_engine::WcStatus;

/// The accounts of a host, indexed by the number that the driver gives its queues.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: Vec<Account>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    open: bool,
    posted: u32,
    completed: u32,
}

impl Ledger {
    /// Opens an account for queue `number`.
    pub(crate) fn open(&mut self, number: u32) {
        let index = number as usize;
        if self.accounts.len() <= index {
            self.accounts.resize(index + 1, Account::default());
        }
        assert!(!self.accounts[index].open, "queue {number} is opened twice");
        self.accounts[index] = Account { open: true, ..Account::default() };
    }

    /// Counts a work request posted to queue `number`.
    #[inline]
    pub(crate) fn posted(&mut self, number: u32) {
        self.accounts[number as usize].posted += 1;
    }

    /// Records that work `index` of queue `number` completed with `status`.
    ///
    /// # Errors
    ///
    /// A description of the violation, when the completion breaks a checked property.
    #[inline]
    pub(crate) fn completed(&mut self, number: u32, index: u32, status: WcStatus) -> Result<(), String> {
        let Some(account) = self.accounts.get_mut(number as usize).filter(|account| account.open) else {
            return Err(format!("completion for queue {number}, which is not in use"));
        };
        if index >= account.posted {
            return Err(format!(
                "completion {index} of queue {number} has no request: only {} requests were posted",
                account.posted
            ));
        }
        if index < account.completed {
            return Err(format!("completion {index} of queue {number} was delivered twice"));
        }
        if index > account.completed {
            return Err(format!(
                "completion {index} of queue {number} was delivered out of order, before completion {}",
                account.completed
            ));
        }
        account.completed += 1;
        if status != WcStatus::Success {
            return Err(format!("request {index} of queue {number} completed with status {status:?}"));
        }
        Ok(())
    }

    /// Closes the account of queue `number`. `spare` posted requests need not have completed.
    ///
    /// # Errors
    ///
    /// A description of the violation, when too few requests completed.
    pub(crate) fn close(&mut self, number: u32, spare: u32) -> Result<(), String> {
        let account = core::mem::take(&mut self.accounts[number as usize]);
        assert!(account.open, "queue {number} is closed twice");
        if account.completed + spare < account.posted {
            let Account { posted, completed, .. } = account;
            return Err(format!("only {completed} of the {posted} requests of queue {number} completed"));
        }
        Ok(())
    }

    /// Returns the number of queues in use.
    pub(crate) fn open_count(&self) -> usize {
        self.accounts.iter().filter(|account| account.open).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: WcStatus = WcStatus::Success;

    #[test]
    fn completions_once_each_and_in_order_pass() {
        let mut ledger = Ledger::default();
        ledger.open(3);
        for index in 0..10 {
            ledger.posted(3);
            assert_eq!(ledger.completed(3, index, GOOD), Ok(()));
        }
        assert_eq!((ledger.open_count(), ledger.close(3, 0), ledger.open_count()), (1, Ok(()), 0));
    }

    #[test]
    fn every_other_completion_is_reported() {
        let mut ledger = Ledger::default();
        ledger.open(0);
        (0..3).for_each(|_| ledger.posted(0));
        let expect_violation = |result: Result<(), String>, expected: &str| {
            let text = result.expect_err("the ledger reports a violation");
            assert!(text.contains(expected), "{text}");
        };
        expect_violation(ledger.completed(0, 1, GOOD), "before completion 0");
        assert_eq!(ledger.completed(0, 0, GOOD), Ok(()));
        expect_violation(ledger.completed(0, 0, GOOD), "twice");
        expect_violation(ledger.completed(0, 3, GOOD), "only 3 requests were posted");
        expect_violation(ledger.completed(0, 1, WcStatus::RetryExceeded), "RetryExceeded");
        expect_violation(ledger.completed(1, 0, GOOD), "not in use");
        expect_violation(ledger.close(0, 0), "only 2 of the 3 requests");
    }
}
