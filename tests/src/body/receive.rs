//! Receives: posted early or late, completed once, in order, with the message that was sent.

use rnic_engine::{Completion, RecvRequest, Sge, WcOpcode, WcStatus};

use super::Body;
use super::complete::RECEIVE;
use super::end::{Message, Receive};
use crate::backend::Backend;
use crate::log::Happened;
use crate::scenario::{PlannedFailure, one_in};

impl<B: Backend> Body<'_, B> {
    /// Posts a receive to the queue pair of `end`; returns whether it did.
    pub(super) fn post_receive(&mut self, end: usize) -> Result<bool, String> {
        let has_room = self.ends[end].receives.len() < self.ends[end].receives_max;
        // Receives of the error state are flushed immediately; a few are enough to test it.
        let has_failed = !self.ends[end].failed_receives.is_empty() && !one_in(&mut self.steps, 8);
        let is_reached = |(at, planned)| planned == PlannedFailure::NeverReady && self.ends[end ^ 1].posted >= at;
        let is_starved = self.ends[end ^ 1].planned.is_some_and(is_reached);
        if !has_room || has_failed || is_starved || self.links[end / 2] != super::State::Alive {
            return Ok(false);
        }
        let host = self.ends[end].host;
        let Some((receive, request_sges)) = self.make_receive(host)? else { return Ok(false) };
        let request = RecvRequest { wr_id: receive.wr_id, sges: &request_sges };
        self.backend.post_recv(host, self.ends[end].qpn, &request).map_err(|error| format!("end {end}: {error}"))?;
        self.log.add(self.backend.now(), Happened::Receive { place: end, wr_id: receive.wr_id });
        self.ends[end].receives.push_back(receive);
        Ok(true)
    }

    /// Posts a receive to the shared queue of `host`; returns whether it did.
    pub(super) fn post_shared_receive(&mut self, host: usize) -> Result<bool, String> {
        let Some(srq) = self.hosts[host].srq else { return Ok(false) };
        if self.hosts[host].shared.len() >= self.scenario.shared_entries() as usize {
            return Ok(false);
        }
        let Some((receive, request_sges)) = self.make_receive(host)? else { return Ok(false) };
        let request = RecvRequest { wr_id: receive.wr_id, sges: &request_sges };
        self.backend.post_srq_recv(host, srq, &request).map_err(|error| format!("host {host}: {error}"))?;
        self.log.add(self.backend.now(), Happened::Receive { place: host, wr_id: receive.wr_id });
        self.hosts[host].shared.insert(receive.wr_id, receive);
        Ok(true)
    }

    fn make_receive(&mut self, host: usize) -> Result<Option<(Receive, Vec<Sge>)>, String> {
        let random = &mut self.hosts[host].random;
        let pieces = self.memory.pieces(self.backend, host, self.scenario.capacity(), None, random)?;
        let Some(pieces) = pieces else { return Ok(None) };
        let wr_id = RECEIVE | self.hosts[host].receives_posted;
        self.hosts[host].receives_posted += 1;
        let sges = pieces.sges.clone();
        Ok(Some((Receive { wr_id, pieces }, sges)))
    }

    pub(super) fn complete_receive(&mut self, end: usize, completion: &Completion) -> Result<(), String> {
        self.log.add(self.backend.now(), Happened::Received { end, completion: *completion });
        let host = self.ends[end].host;
        let receive = if self.scenario.shared_receives.is_some() {
            self.hosts[host].shared.remove(&completion.wr_id).ok_or("no such receive is posted")?
        } else {
            let first = self.ends[end].receives.pop_front().ok_or("no receive is posted")?;
            if first.wr_id != completion.wr_id {
                return Err(format!("receive {:#x} comes first", first.wr_id));
            }
            first
        };
        let sender = end ^ 1;
        if completion.status != WcStatus::Success {
            return self.complete_failed_receive(end, receive, completion.status);
        }
        if self.ends[end].failed_receives.iter().any(|_| true) {
            return Err("behind a receive that failed".to_owned());
        }
        let message = self.ends[sender].messages.pop_front().ok_or("no message was sent")?;
        check_fields(&message, completion)?;
        self.ends[sender].received += 1;
        self.tally.received += 1;
        if message.opcode == WcOpcode::Recv {
            let expected = (message.len, message.pattern.0);
            self.memory.check_pieces(self.backend, host, &receive.pieces.blocks, expected)?;
        } else {
            self.memory.check_untouched(self.backend, host, &receive.pieces.blocks)?;
        }
        if let Some(region) = message.invalidates {
            self.backend.deregister(host, region);
        }
        self.memory.release_all(self.backend, host, &receive.pieces.blocks)
    }

    /// Handles a receive that failed: legal only when the connection has ended, or the message was too long.
    fn complete_failed_receive(&mut self, end: usize, receive: Receive, status: WcStatus) -> Result<(), String> {
        let failures = [end, end ^ 1].map(|end| self.ends[end].met_failure());
        let next = self.ends[end ^ 1].messages.get(self.ends[end].failed_receives.len());
        let legal = match status {
            WcStatus::WrFlushed => failures.iter().any(Option::is_some) || self.ends.is_fragile(end),
            WcStatus::LocalLength => {
                let is_first = self.ends[end].failed_receives.is_empty();
                is_first && next.is_some_and(|message| message.planned == Some(PlannedFailure::SendTooLong))
            }
            _ => false,
        };
        if !legal {
            return Err(format!("a receive may not end so; the planned failures here are {failures:?}"));
        }
        let pattern = next.map(|message| message.pattern);
        self.ends[end].failed_receives.push((receive, pattern));
        Ok(())
    }
}

fn check_fields(message: &Message, completion: &Completion) -> Result<(), String> {
    let Message { opcode, len, word, flags, planned, .. } = message;
    if let Some(planned) = planned {
        return Err(format!("the message arrived successfully, but was planned to fail: {planned:?}"));
    }
    let expected = (*opcode, *len, *word, *flags);
    let found = (completion.opcode, completion.byte_len as usize, completion.word, completion.flags);
    if expected == found { Ok(()) } else { Err(format!("sent was {expected:?}")) }
}
