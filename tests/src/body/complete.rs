//! Checks completions of requests: in order, once, with the correct status, and with the promised effect on memory.

use rnic_engine::{Completion, CqId, WcOpcode, WcStatus};
use rnic_policy::Protocol;

use super::Body;
use super::end::{Check, Posted, State, Word};
use crate::arena::BlockId;
use crate::backend::Backend;
use crate::log::Happened;
use crate::scenario::{Op, PlannedFailure};

/// Statuses of requests that the other end has refused.
const REFUSALS: [WcStatus; 2] = [WcStatus::RemoteAccess, WcStatus::RemoteInvalidRequest];

/// Marks the work request ids of receives.
pub(super) const RECEIVE: u64 = 1 << 63;

impl<B: Backend> Body<'_, B> {
    pub(super) fn complete(&mut self, host: usize, cq: CqId, completion: &Completion) -> Result<(), String> {
        let known = self.ends.find(host, completion.qpn);
        let end =
            known.ok_or_else(|| format!("host {host}: a completion for an unknown queue pair: {completion:?}"))?;
        let is_receive = completion.wr_id & RECEIVE != 0;
        let expected = if is_receive { self.ends[end].recv_cq } else { self.ends[end].send_cq };
        if cq != expected {
            return Err(format!("end {end}: in the wrong queue: {completion:?}"));
        }
        let verdict =
            if is_receive { self.complete_receive(end, completion) } else { self.complete_send(end, completion) };
        verdict.map_err(|what| format!("end {end}: {what}: {completion:?}"))
    }

    fn complete_send(&mut self, end: usize, completion: &Completion) -> Result<(), String> {
        let index = completion.wr_id & ((1 << 40) - 1);
        self.log.add(self.backend.now(), Happened::Sent { end, index, status: completion.status });
        if completion.wr_id >> 40 != end as u64 {
            return Err("the completion belongs to a request of another queue pair".to_owned());
        }
        if self.ends[end].failed {
            let next = self.ends[end].ops.pop_front().ok_or("nothing is posted")?;
            // The cause is behind requests of other flows whose result is unknown.
            let is_cause = self.has_flows(end) && next.planned.is_some_and(|of| of.status() == completion.status);
            if next.index != index || completion.status != WcStatus::WrFlushed && !is_cause {
                return Err(format!("behind a failure, request {} must be flushed next", next.index));
            }
            self.ends[end].was_refused |= is_cause && REFUSALS.contains(&completion.status);
            return self.record_failed(end, next);
        }
        // Unsignalled requests before this one have succeeded.
        loop {
            let next = self.ends[end].ops.pop_front().ok_or("nothing like it is posted")?;
            if next.index == index {
                return self.complete_request(end, next, completion);
            }
            if next.signalled || next.planned.is_some() {
                return Err(format!("request {} must complete before", next.index));
            }
            self.succeed(end, next)?;
        }
    }

    fn complete_request(&mut self, end: usize, request: Posted, completion: &Completion) -> Result<(), String> {
        if completion.opcode != opcode_of(request.op) {
            return Err(format!("of a {:?}", request.op));
        }
        if completion.status != WcStatus::Success {
            self.check_failure(end, &request, completion.status)?;
            self.ends[end].failed = true;
            self.ends[end].was_refused = REFUSALS.contains(&completion.status);
            *self.tally.failures.entry(format!("{:?}", completion.status)).or_default() += 1;
            self.begin_teardown(end);
            return self.record_failed(end, request);
        }
        if !request.signalled {
            return Err("no request asked for it".to_owned());
        }
        if let Some(planned) = request.planned {
            return Err(format!("it cannot succeed: {planned:?}"));
        }
        let has_length = matches!(request.check, Check::Fetched(_) | Check::Found(_) | Check::Ticket);
        if has_length && completion.byte_len as usize != request.len {
            return Err(format!("of {} bytes", request.len));
        }
        self.succeed(end, request)
    }

    /// Checks whether the first request that does not succeed may be this one, with this status.
    fn check_failure(&self, end: usize, request: &Posted, status: WcStatus) -> Result<(), String> {
        if let Some(planned) = request.planned
            && status == planned.status()
        {
            return Ok(());
        }
        let exceeded = [WcStatus::RetryExceeded, WcStatus::RnrRetryExceeded, WcStatus::WrFlushed];
        if self.ends.is_fragile(end) && exceeded.contains(&status) {
            return Ok(());
        }
        let [own, other] = [end, end ^ 1].map(|end| self.ends[end].met_failure());
        // A refusal at the other end, or a program that gives up, also ends this direction, at any request.
        let is_flushed = status == WcStatus::WrFlushed;
        if is_flushed && self.has_flows(end) && own.is_some_and(|planned| !planned.is_local()) {
            return Ok(());
        }
        if is_flushed
            && (other.is_some()
                || own.is_some_and(|planned| PlannedFailure::GIVEN_UP.contains(&planned) && !planned.is_local()))
        {
            return Ok(());
        }
        // RoCE: a fetch posted before a refused request cannot be requested again when its response is lost.
        let is_shared = self.scenario.profile(end / 2).protocol == Protocol::Roce;
        let is_fetch = matches!(request.check, Check::Fetched(_) | Check::Found(_) | Check::Ticket);
        if is_shared && is_fetch && own.is_some() && status == WcStatus::RetryExceeded {
            return Ok(());
        }
        Err(format!("of request {} ({:?}), whose planned failure is {:?}", request.index, request.op, request.planned))
    }

    /// Returns whether the queue pair of `end` uses several flows, on which a refusal leaves the results of earlier
    /// requests unknown.
    fn has_flows(&self, end: usize) -> bool {
        self.scenario.profile(end / 2).flow_count() > 1
    }

    /// Handles the success of a request: checks the effect that it promises.
    pub(super) fn succeed(&mut self, end: usize, request: Posted) -> Result<(), String> {
        self.tally.succeeded += 1;
        let (here, there) = (self.ends[end].host, self.ends[end ^ 1].host);
        self.check_result(end, &request)
            .map_err(|what| format!("request {} ({:?}): {what}", request.index, request.op))?;
        if request.consumes {
            self.ends[end].acknowledged += 1;
        }
        if matches!(request.check, Check::Found(_)) {
            self.ends[end].word.history.pop_front();
        }
        self.memory.release_all(self.backend, here, &request.local.blocks)?;
        match request.target {
            Some(target) => self.release_target(end, there, target),
            None => Ok(()),
        }
    }

    pub(super) fn release_target(&mut self, end: usize, there: usize, target: BlockId) -> Result<(), String> {
        if self.memory.release(self.backend, there, target)? {
            self.ends[end].targets.remove(&target);
        }
        Ok(())
    }

    fn check_result(&mut self, end: usize, request: &Posted) -> Result<(), String> {
        let (here, there) = (self.ends[end].host, self.ends[end ^ 1].host);
        let blocks = &request.local.blocks;
        if let Some(seed) = request.source {
            self.memory
                .check_pieces(self.backend, here, blocks, (request.len, seed))
                .map_err(|what| format!("its source has changed: {what}"))?;
        }
        match request.check {
            Check::Sent => Ok(()),
            Check::Written(seed) => self.check_written(end, request, seed),
            Check::Fetched(seed) => self.memory.check_pieces(self.backend, here, blocks, (request.len, seed)),
            Check::Found(expected) => match self.memory.found(self.backend, here, blocks) {
                found if found == expected => Ok(()),
                found => Err(format!("found {found:#x}, not {expected:#x}")),
            },
            Check::Ticket => {
                let found = self.memory.found(self.backend, here, blocks);
                self.hosts[there].tickets.take(found)
            }
        }
    }

    /// Checks that the target holds what was written, or a later version.
    fn check_written(&mut self, end: usize, request: &Posted, seed: u64) -> Result<(), String> {
        let Some(target) = request.target else { return Ok(()) };
        let versions = &self.ends[end].targets.get(&target).expect("targets are known while in use").versions;
        let first_valid = versions.iter().position(|version| *version == seed).expect("it is one of the versions");
        let there = self.ends[end ^ 1].host;
        self.memory.check_versions(self.backend, there, (target, request.len), &versions[first_valid..])
    }

    /// Records a request that did not succeed; it is kept until its memory can no longer be written.
    fn record_failed(&mut self, end: usize, request: Posted) -> Result<(), String> {
        self.tally.failed += 1;
        if request.check_is_ticket() {
            self.hosts[self.ends[end ^ 1].host].tickets.note_uncertain();
        }
        self.ends[end].fallen.push(request);
        Ok(())
    }

    /// Checks the memory of failed and flushed requests: each byte holds the old value or the value to be transferred.
    pub(super) fn check_fallen(&mut self, end: usize) -> Result<(), String> {
        let (here, there) = (self.ends[end].host, self.ends[end ^ 1].host);
        for request in std::mem::take(&mut self.ends[end].fallen) {
            if let Check::Fetched(seed) = request.check {
                self.memory.check_mixed(self.backend, here, &request.local.blocks, &[(seed, 0)])?;
            }
            self.memory.release_all(self.backend, here, &request.local.blocks)?;
            if let Some(target) = request.target {
                let known = self.ends[end].targets.get(&target).map_or(&[][..], |known| &known.versions);
                let versions: Vec<_> = known.iter().map(|seed| (*seed, 0)).collect();
                self.memory.check_mixed(self.backend, there, &[target], &versions)?;
                self.release_target(end, there, target)?;
            }
        }
        let Word { block, history, .. } = &self.ends[end].word;
        let (block, values) = (*block, history.clone());
        let found = self.memory.word_at(self.backend, there, block);
        if !values.contains(&found) {
            return Err(format!("the word of end {end} is {found:#x}, which none of its last atomics left"));
        }
        self.memory.release(self.backend, there, block).map(|_| ())
    }

    /// Starts the teardown of a connection that has failed.
    fn begin_teardown(&mut self, end: usize) {
        // The other end of a refusal fails first, and an end that vanishes knows of it before any other: the completion
        // at the requester determines how the connection ends.
        let has_vanished = self.ends[end ^ 1].met_failure() == Some(PlannedFailure::PeerUnresponsive);
        let causes_teardown = self.ends[end].planned.is_some() || (self.ends.is_fragile(end) && !has_vanished);
        if self.links[end / 2] == State::Alive && causes_teardown {
            self.links[end / 2] = State::TearingDown(self.steps.below(20) as u32);
        }
    }
}

impl Posted {
    fn check_is_ticket(&self) -> bool {
        matches!(self.check, Check::Ticket)
    }
}

impl PlannedFailure {
    /// Returns the completion status of the request.
    fn status(self) -> WcStatus {
        if Self::DENIED.contains(&self) {
            WcStatus::RemoteAccess
        } else if Self::INVALID.contains(&self) {
            WcStatus::RemoteInvalidRequest
        } else if self.is_local() {
            WcStatus::LocalProtection
        } else {
            WcStatus::WrFlushed
        }
    }

    /// Returns whether the request is invalid at the requester already.
    pub(super) fn is_local(self) -> bool {
        matches!(self, Self::WriteLocalKey | Self::SendLocalRange | Self::ReadLocalKey)
    }
}

fn opcode_of(op: Op) -> WcOpcode {
    match op {
        Op::Write | Op::WriteImm | Op::Overwrite | Op::Echo => WcOpcode::RdmaWrite,
        Op::Send | Op::SendImm | Op::SendInvalidate => WcOpcode::Send,
        Op::Read | Op::ReadBack => WcOpcode::RdmaRead,
        Op::CompareSwap => WcOpcode::CompareSwap,
        Op::FetchAdd | Op::SharedAdd => WcOpcode::FetchAdd,
    }
}
