//! Responses in a shared sequence space: RoCE.
//!
//! Responses leave in the order of their requests and are forgotten. A requester that misses some asks again from where
//! it is; whatever was still to be sent from there on is then moot. Results of atomics are remembered, because doing
//! one again would be wrong: as many as the peer may have outstanding (InfiniBand Architecture volume 1, section
//! 9.4.5.3).

use std::collections::VecDeque;

use rnic_base::Seq;
use rnic_wire::NakCode;

use super::{Fetch, FetchRequest};
use crate::core::Core;
use crate::roce::shared::ConnShared;
use crate::verbs::Verbs;

/// Responses to send, and atomics to remember.
#[derive(Debug)]
pub(crate) struct SharedServer {
    /// In the order of their numbers; of the first one, `sent` packets are out.
    jobs: VecDeque<Fetch>,
    sent: u32,
    atomics: VecDeque<Fetch>,
    limit: usize,
    /// What was made last was asked for before.
    last_again: bool,
}

impl SharedServer {
    pub(in crate::roce) fn new(limit: u32) -> Self {
        Self { jobs: VecDeque::new(), sent: 0, atomics: VecDeque::new(), limit: limit as usize, last_again: false }
    }

    pub(in crate::roce) fn has_work(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(in crate::roce) fn admit(&mut self, fetch: Fetch) -> Result<(), NakCode> {
        // A repeated answer may still be on its way out when its requester, who has it already, asks for the next one:
        // those do not count.
        let full = self.jobs.len() >= self.limit && self.jobs.iter().filter(|job| !job.again).count() >= self.limit;
        if full {
            return Err(NakCode::InvalidRequest);
        }
        self.jobs.push_back(Fetch { first: fetch.seq, ..fetch });
        Ok(())
    }

    pub(in crate::roce) fn newest(&mut self, seq: Seq) -> Option<&mut Fetch> {
        self.jobs.back_mut().filter(|fetch| fetch.seq == seq)
    }

    /// What was just admitted is refused after all, and not to be answered.
    #[cold]
    pub(in crate::roce) fn withdraw_newest(&mut self) {
        self.jobs.pop_back();
        if self.jobs.is_empty() {
            self.sent = 0;
        }
    }

    pub(in crate::roce) fn begin(&mut self, seq: Seq) {
        let fetch = *self.jobs.back().expect("just admitted");
        assert!(fetch.seq == seq, "fetches begin in order");
        if matches!(fetch.request, FetchRequest::Atomic { .. } | FetchRequest::Placement { .. }) {
            if self.atomics.len() == self.limit {
                self.atomics.pop_front();
            }
            self.atomics.push_back(fetch);
        }
    }

    /// The remembered atomic that `seq` asked for.
    pub(in crate::roce) fn answered(&self, seq: Seq) -> Option<Fetch> {
        self.atomics.iter().find(|fetch| fetch.seq == seq).map(|fetch| Fetch { again: true, ..*fetch })
    }

    /// Of the first answer nothing is sent from `seq` on.
    pub(in crate::roce) fn drop_rest(&mut self, seq: Seq) {
        if self.sent > 0 && self.jobs.front().is_some_and(|job| seq < job.end()) {
            self.jobs.pop_front();
            self.sent = 0;
        }
    }

    /// Returns whether the response that was made last was asked for before.
    pub(in crate::roce) fn last_again(&self) -> bool {
        self.last_again
    }

    /// Nothing that was asked for is answered any more.
    pub(in crate::roce) fn clear(&mut self) {
        self.jobs.clear();
        self.sent = 0;
    }

    /// The requester has gone back to `fetch`: everything from there on is answered anew.
    pub(in crate::roce) fn repeat(&mut self, fetch: Fetch) {
        while let Some(last) = self.jobs.back() {
            let started = self.jobs.len() == 1 && self.sent > 0;
            let from = if started { last.first + u64::from(self.sent) } else { last.first };
            if from < fetch.first {
                break;
            }
            self.jobs.pop_back();
            if self.jobs.is_empty() {
                self.sent = 0;
            }
        }
        // A read under way that reaches beyond this point is cut short there.
        if let Some(last) = self.jobs.back_mut()
            && last.end() > fetch.first
        {
            last.packets = fetch.first.since(last.first) as u32;
        }
        if self.jobs.len() < 2 * self.limit {
            self.jobs.push_back(fetch);
        }
    }
}

impl SharedServer {
    /// Makes the next response, if one may leave now; returns whether it has.
    ///
    /// # Errors
    /// The number of the response whose memory is gone, and the code to refuse it with.
    pub(in crate::roce) fn transmit(
        &mut self,
        shared: &mut ConnShared,
        verbs: &mut Verbs,
        core: &mut Core,
        in_flight: u64,
    ) -> Result<bool, (Seq, NakCode)> {
        let Some(fetch) = self.jobs.front().copied() else { return Ok(false) };
        let index = self.sent;
        self.sent += 1;
        self.last_again = fetch.again;
        if self.sent >= fetch.packets {
            self.jobs.pop_front();
            self.sent = 0;
        }
        let made = fetch.respond(shared, verbs, core, in_flight, (index, false));
        made.map(|()| true).map_err(|code| (fetch.first + u64::from(index), code))
    }
}
