//! A load that sends, answers and refuses at random.

use rnic_base::{Duration, RandomStream, Time};
use rnic_falcon::resources::Resources;
use rnic_falcon::search::ulp::{Recorder, UpperLayerBehaviour};
use rnic_falcon::transaction::{PullResponse, RespondError, Transactions};
use rnic_wire::falcon::Ulp;

use super::any_submission;
use super::stack::{Load, Stack};

/// See the module.
#[derive(Debug)]
pub struct Random {
    pub ulp: Recorder,
    /// How many transactions it hands in.
    transactions: u64,
    submitted: u64,
    now: Time,
}

impl Random {
    pub fn new(transactions: u64, manners: UpperLayerBehaviour, random: RandomStream) -> Self {
        Self { ulp: Recorder::new(manners, random, None), transactions, submitted: 0, now: Time::ZERO }
    }

    /// Acknowledges and answers, about half of what waits.
    fn respond(&mut self, transactions: &mut Transactions, resources: &mut Resources) {
        let ulp = &mut self.ulp;
        while ulp.random.below(2) == 0
            && let Some(rsn) = ulp.pushes.pop_front()
        {
            // Fails for a request that a Resync has skipped meanwhile: the connection no longer knows it.
            let _ = transactions.acknowledge(rsn);
        }
        while ulp.random.below(2) == 0
            && let Some((rsn, length)) = ulp.pulls.front().copied()
        {
            let answer = PullResponse { payload_len: u32::from(length), length: u32::from(length), ulp: Ulp::None };
            match transactions.respond(resources, rsn, &answer) {
                Err(RespondError::Paused) => break,
                Ok(()) | Err(_) => drop(ulp.pulls.pop_front()),
            }
        }
    }
}

impl Stack<Random> {
    /// Returns whether no transaction is in progress, of this end or requested from the other.
    pub fn is_done(&self) -> bool {
        let Random { ulp, transactions, submitted, .. } = &self.load;
        submitted == transactions
            && ulp.completions.len() as u64 == *submitted
            && self.transactions.is_idle()
            && self.resources.is_idle()
    }
}

impl Load for Random {
    type Ulp = Recorder;

    fn ulp(&mut self) -> &mut Recorder {
        &mut self.ulp
    }

    fn work(&mut self, now: Time, transactions: &mut Transactions, resources: &mut Resources) {
        self.now = now;
        while self.submitted < self.transactions {
            let submission = any_submission(&mut self.ulp.random, self.submitted, None);
            if transactions.submit(resources, &submission).is_err() {
                break;
            }
            self.submitted += 1;
        }
        self.respond(transactions, resources);
    }

    fn wake(&self, transactions: &Transactions, resources: &Resources) -> Option<Time> {
        let waits = !self.ulp.pushes.is_empty() || !self.ulp.pulls.is_empty();
        let has_more = self.submitted < self.transactions && !transactions.paused(resources);
        (waits || has_more).then(|| self.now + Duration::from_us(1))
    }
}
