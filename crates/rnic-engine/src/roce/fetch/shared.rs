//! Responses in a shared sequence space: RoCE.
//!
//! Responses are sent in the order of their requests; no state is kept of a response that has been sent. A requester
//! that misses some repeats its request from the first missing one; responses from that point on that were not sent
//! yet are then obsolete. Results of atomics are stored, because executing one twice would be wrong: as many as the
//! peer may have outstanding (InfiniBand Architecture volume 1, section 9.4.5.3).

use std::collections::VecDeque;

use rnic_base::Seq;
use rnic_wire::NakCode;

use super::{Fetch, FetchRequest};
use crate::core::Core;
use crate::roce::shared::ConnShared;
use crate::verbs::Verbs;

/// Queue of responses to send, and stored results of atomics.
#[derive(Debug)]
pub(crate) struct SharedServer {
    /// Fetches to respond to, in the order of their numbers; `sent` packets of the first one have been sent.
    jobs: VecDeque<Fetch>,
    sent: u32,
    atomics: VecDeque<Fetch>,
    limit: usize,
    /// True when the last response built had been requested before.
    last_was_repeated: bool,
}

impl SharedServer {
    pub(in crate::roce) fn new(limit: u32) -> Self {
        Self {
            jobs: VecDeque::new(),
            sent: 0,
            atomics: VecDeque::new(),
            limit: limit as usize,
            last_was_repeated: false,
        }
    }

    pub(in crate::roce) fn has_work(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(in crate::roce) fn admit(&mut self, fetch: Fetch) -> Result<(), NakCode> {
        // A repeated response may still be queued when its requester, which has it already, sends its next request:
        // repeated responses do not count towards the limit.
        let is_full = self.jobs.len() >= self.limit
            && self.jobs.iter().filter(|job| !job.is_retransmission).count() >= self.limit;
        if is_full {
            return Err(NakCode::InvalidRequest);
        }
        self.jobs.push_back(Fetch { first: fetch.seq, ..fetch });
        Ok(())
    }

    pub(in crate::roce) fn newest(&mut self, seq: Seq) -> Option<&mut Fetch> {
        self.jobs.back_mut().filter(|fetch| fetch.seq == seq)
    }

    /// Removes the fetch just admitted, because its request is being refused.
    #[cold]
    pub(in crate::roce) fn withdraw_newest(&mut self) {
        self.jobs.pop_back();
        if self.jobs.is_empty() {
            self.sent = 0;
        }
    }

    pub(in crate::roce) fn begin(&mut self, seq: Seq) {
        let fetch = *self.jobs.back().expect("a fetch was admitted");
        assert!(fetch.seq == seq, "fetches begin in order");
        if matches!(fetch.request, FetchRequest::Atomic { .. } | FetchRequest::Placement { .. }) {
            if self.atomics.len() == self.limit {
                self.atomics.pop_front();
            }
            self.atomics.push_back(fetch);
        }
    }

    /// Returns the stored atomic that request `seq` executed.
    pub(in crate::roce) fn stored_atomic(&self, seq: Seq) -> Option<Fetch> {
        self.atomics.iter().find(|fetch| fetch.seq == seq).map(|fetch| Fetch { is_retransmission: true, ..*fetch })
    }

    /// Cancels the rest of the first response, from `seq` on.
    pub(in crate::roce) fn drop_rest(&mut self, seq: Seq) {
        if self.sent > 0 && self.jobs.front().is_some_and(|job| seq < job.end()) {
            self.jobs.pop_front();
            self.sent = 0;
        }
    }

    /// Returns whether the last response built had been requested before.
    pub(in crate::roce) fn last_was_repeated(&self) -> bool {
        self.last_was_repeated
    }

    /// Discards all queued responses.
    pub(in crate::roce) fn clear(&mut self) {
        self.jobs.clear();
        self.sent = 0;
    }

    /// Restarts responses at `fetch`, from which the requester has repeated its requests: every response from there
    /// on is retransmitted.
    pub(in crate::roce) fn repeat(&mut self, fetch: Fetch) {
        while let Some(last) = self.jobs.back() {
            let has_started = self.jobs.len() == 1 && self.sent > 0;
            let restart_seq = if has_started { last.first + u64::from(self.sent) } else { last.first };
            if restart_seq < fetch.first {
                break;
            }
            self.jobs.pop_back();
            if self.jobs.is_empty() {
                self.sent = 0;
            }
        }
        // A read in progress that extends beyond this point is cut short there.
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
    /// Builds the next response, if one may be sent now; returns whether it did.
    ///
    /// # Errors
    /// The number of the response whose memory is no longer valid, and the NAK code of the refusal.
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
        self.last_was_repeated = fetch.is_retransmission;
        if self.sent >= fetch.packets {
            self.jobs.pop_front();
            self.sent = 0;
        }
        let result = fetch.respond(shared, verbs, core, in_flight, (index, false));
        result.map(|()| true).map_err(|code| (fetch.first + u64::from(index), code))
    }
}
