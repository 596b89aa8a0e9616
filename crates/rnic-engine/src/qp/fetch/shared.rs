//! Responses in a shared sequence space: RoCE.
//!
//! Responses leave in the order of their requests and are forgotten. A requester that misses some asks again from where
//! it is; whatever was still to be sent from there on is then moot. Results of atomics are remembered, because doing
//! one again would be wrong: as many as the peer may have outstanding (InfiniBand Architecture volume 1, section
//! 9.4.5.3).

use std::collections::VecDeque;

use rnic_base::{Seq, Time};
use rnic_wire::NakCode;

use super::{Fetch, FetchRequest, FetchServer};
use crate::core::Core;
use crate::qp::Qp;

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
    pub(super) fn new(limit: u32) -> Self {
        Self { jobs: VecDeque::new(), sent: 0, atomics: VecDeque::new(), limit: limit as usize, last_again: false }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(super) fn admit(&mut self, fetch: Fetch) -> Result<(), NakCode> {
        // A repeated answer may still be on its way out when its requester, who has it already, asks for the next one:
        // those do not count.
        let full = self.jobs.len() >= self.limit && self.jobs.iter().filter(|job| !job.again).count() >= self.limit;
        if full {
            return Err(NakCode::InvalidRequest);
        }
        self.jobs.push_back(Fetch { first: fetch.seq, ..fetch });
        Ok(())
    }

    pub(super) fn newest(&mut self, seq: Seq) -> Option<&mut Fetch> {
        self.jobs.back_mut().filter(|fetch| fetch.seq == seq)
    }

    /// What was just admitted is refused after all, and not to be answered.
    #[cold]
    pub(super) fn withdraw_newest(&mut self) {
        self.jobs.pop_back();
        if self.jobs.is_empty() {
            self.sent = 0;
        }
    }

    pub(super) fn begin(&mut self, seq: Seq) {
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
    pub(super) fn answered(&self, seq: Seq) -> Option<Fetch> {
        self.atomics.iter().find(|fetch| fetch.seq == seq).map(|fetch| Fetch { again: true, ..*fetch })
    }

    /// Of the first answer nothing is sent from `seq` on.
    pub(super) fn drop_rest(&mut self, seq: Seq) {
        if self.sent > 0 && self.jobs.front().is_some_and(|job| seq < job.end()) {
            self.jobs.pop_front();
            self.sent = 0;
        }
    }

    /// Returns whether the response that was made last was asked for before.
    pub(super) fn last_again(&self) -> bool {
        self.last_again
    }

    /// Nothing that was asked for is answered any more.
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
        self.sent = 0;
    }

    /// The requester has gone back to `fetch`: everything from there on is answered anew.
    pub(super) fn repeat(&mut self, fetch: Fetch) {
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

impl Qp {
    pub(super) fn next_shared_response(&mut self, core: &mut Core, now: Time) -> bool {
        if let Some(at) = self.pacing_allows_at(now) {
            self.arm_pacing(core, at);
            return false;
        }
        let Some(FetchServer::Shared(server)) = self.responder.fetches.as_deref_mut() else { return false };
        let Some(fetch) = server.jobs.front().copied() else { return false };
        let index = server.sent;
        server.sent += 1;
        server.last_again = fetch.again;
        if server.sent >= fetch.packets {
            server.jobs.pop_front();
            server.sent = 0;
        }
        let seq = fetch.first + u64::from(index);
        match self.build_response(core, now, &fetch, index, false) {
            Ok(()) => true,
            Err(code) => self.refuse_shared_response(core, seq, fetch.again, code),
        }
    }
}
