//! Posts requests, and records their expected results.

use rnic_engine::{PostError, SendFlags, SendRequest, WcFlags};

use super::Body;
use super::draft::{Draft, Drafts};
use super::end::State;
use crate::backend::Backend;
use crate::log::Happened;
use crate::scenario::{Op, PlannedFailure, one_in};

impl<B: Backend> Body<'_, B> {
    /// Posts a request at `end`, if there are a free entry and memory; returns whether it did.
    pub(super) fn post_one(&mut self, end: usize) -> Result<bool, String> {
        match self.links[end / 2] {
            State::Alive => {}
            State::TearingDown(_) if one_in(&mut self.steps, 8) && self.ends[end].ops.len() < self.ends[end].depth => {}
            _ => return Ok(false),
        }
        if self.ends[end].failed && !one_in(&mut self.steps, 8) {
            return Ok(false);
        }
        let hosts = [end, end ^ 1].map(|end| self.ends[end].host);
        if hosts.iter().any(|host| self.memory.used(*host) > self.scenario.request_bytes_max()) {
            self.close_silent_run(end)?;
            return Ok(false);
        }
        if self.ends[end].ops.len() >= self.ends[end].depth {
            // Unsignalled requests may be complete: a signalled request of no bytes shows it.
            return if self.is_in_error(end) { Ok(false) } else { self.post_nothing(end) };
        }
        let planned = self.ends[end].planned.filter(|(at, _)| *at == self.ends[end].posted).map(|(_, planned)| planned);
        let draft = match planned {
            Some(planned) => self.draft_failing(end, planned)?,
            None => {
                let is_starved =
                    self.ends[end].planned.is_some_and(|(_, planned)| planned == PlannedFailure::NeverReady);
                let op = if is_starved { Op::Send } else { self.ends[end].draw_op(&self.scenario.mix) };
                self.drafts().draft(end, op)?
            }
        };
        let Some(draft) = draft else { return Ok(false) };
        self.post(end, draft)
    }

    /// Returns the parts of the driver from which requests are generated.
    pub(super) fn drafts(&mut self) -> Drafts<'_, B> {
        let Self { backend, scenario, hosts, memory, ends, .. } = self;
        Drafts { backend, scenario, hosts, memory, ends }
    }

    /// Posts a signalled Write of no bytes. A failure that was planned for this request is planned for the next one.
    pub(super) fn post_nothing(&mut self, end: usize) -> Result<bool, String> {
        let draft = self.drafts().draft_nothing(end);
        let index = self.ends[end].posted;
        let was_posted = self.post(end, draft)?;
        if was_posted && let Some((at, _)) = &mut self.ends[end].planned {
            *at += u64::from(*at == index);
        }
        Ok(was_posted)
    }

    /// Posts a signalled request after each series of unsignalled ones, because these are not known to be complete
    /// until a later request is.
    pub(super) fn close_silent_runs(&mut self) -> Result<(), String> {
        (0..self.ends.len()).try_for_each(|end| self.close_silent_run(end))
    }

    fn close_silent_run(&mut self, end: usize) -> Result<(), String> {
        let is_silent = self.ends[end].ops.back().is_some_and(|op| !op.signalled);
        if is_silent && self.links[end / 2] == State::Alive {
            self.post_nothing(end)?;
        }
        Ok(())
    }

    fn post(&mut self, index: usize, draft: Draft) -> Result<bool, String> {
        let Draft { posted, request, message, fenced } = draft;
        let end = &mut self.ends[index];
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, posted.signalled);
        flags.set(SendFlags::FENCE, fenced);
        flags.set(SendFlags::SOLICITED, message.as_ref().is_some_and(|m| m.flags.contains(WcFlags::SOLICITED)));
        let wr_id = (index as u64) << 40 | posted.index;
        let request = SendRequest { wr_id, op: request, sges: &posted.local.sges, flags };
        match self.backend.post_send(end.host, end.qpn, &request) {
            Ok(()) => {}
            Err(PostError::QueueFull) if end.ops.len() >= end.depth => return Ok(false),
            Err(error) => return Err(format!("end {index}, {} of {} entries: {error}", end.ops.len(), end.depth)),
        }
        let (len, planned_to_fail) = (posted.len, posted.planned.is_some());
        let what = Happened::Posted { end: index, index: posted.index, op: posted.op, len, planned_to_fail };
        self.log.add(self.backend.now(), what);
        self.tally.posted += 1;
        end.posted += 1;
        end.silent = if posted.signalled { 0 } else { end.silent + 1 };
        end.messages.extend(message);
        end.ops.push_back(posted);
        Ok(true)
    }
}
