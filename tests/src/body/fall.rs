//! Connections that end: a request that will fail, both ends flushed, the memory checked, and a new start.

use std::collections::VecDeque;

use rnic_engine::{RemoteMemory, SendOp, Sge, WcOpcode};

use super::Body;
use super::draft::Draft;
use super::end::{Check, Drain, End, Message, Posted, State, Word};
use super::setup::{EDGE_BYTES, EDGE_COLOUR};
use crate::backend::Backend;
use crate::log::Happened;
use crate::scenario::{Op, PlannedFailure, one_in};

impl<B: Backend> Body<'_, B> {
    /// Generates a request that must fail as `planned` specifies, or makes the program close the connection instead.
    pub(super) fn draft_failing(&mut self, end: usize, planned: PlannedFailure) -> Result<Option<Draft>, String> {
        let (host, there) = (self.ends[end].host, self.ends[end ^ 1].host);
        let (base, rkey) = self.memory.whole(there);
        let (closed, closed_key) = self.backend.region(there, self.hosts[there].closed);
        let (edge, edge_key) = self.backend.region(there, self.hosts[there].edge);
        let len = self.ends[end].draw_len(&self.scenario.mix, self.scenario.links[end / 2].mtu).clamp(1, EDGE_BYTES);
        let write = |addr, rkey| SendOp::Write { remote: RemoteMemory { addr, rkey }, immediate: None };
        let read = |addr, rkey| SendOp::Read { remote: RemoteMemory { addr, rkey } };
        let add = |addr, rkey| SendOp::FetchAdd { remote: RemoteMemory { addr, rkey }, add: 1 };
        let (op, len, request) = match planned {
            PlannedFailure::WriteKey => (Op::Write, len, write(base, rkey ^ 0x100)),
            PlannedFailure::WriteRight => (Op::Write, len.min(4_000), write(closed, closed_key)),
            PlannedFailure::WriteRange => (Op::Write, len, write(edge + (EDGE_BYTES - len + 1) as u64, edge_key)),
            PlannedFailure::ReadKey => (Op::Read, len, read(base, rkey ^ 0x100)),
            PlannedFailure::ReadRight => (Op::Read, len.min(4_000), read(closed, closed_key)),
            PlannedFailure::AtomicRight => (Op::FetchAdd, 8, add(closed, closed_key)),
            PlannedFailure::AtomicAlignment => (Op::FetchAdd, 8, add(base + 4, rkey)),
            PlannedFailure::InvalidateKey => (Op::SendInvalidate, len, SendOp::SendInvalidate { rkey: rkey ^ 0x100 }),
            PlannedFailure::InvalidateRight => (Op::SendInvalidate, len, SendOp::SendInvalidate { rkey: closed_key }),
            PlannedFailure::SendTooLong => {
                (Op::Send, self.scenario.capacity() + 1 + len / 8, SendOp::Send { immediate: None })
            }
            PlannedFailure::SendLocalRange => (Op::Send, len, SendOp::Send { immediate: None }),
            PlannedFailure::WriteLocalKey => (Op::Write, len, write(edge, edge_key)),
            PlannedFailure::ReadLocalKey => (Op::Read, len, read(base, rkey)),
            PlannedFailure::QpFailedByPeer | PlannedFailure::QpFailedLocally => return self.give_up(end, planned),
            PlannedFailure::PeerUnresponsive => {
                self.fail(end ^ 1);
                return Ok(Some(self.drafts().draft_nothing(end)));
            }
            PlannedFailure::NeverReady => return self.drafts().draft(end, Op::Send),
        };
        let is_source = matches!(op, Op::Write | Op::Send | Op::SendInvalidate);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 9);
        let local = if op == Op::FetchAdd {
            self.drafts().word_piece(end)?
        } else {
            self.drafts().own_pieces(end, len, is_source.then_some(seed))?
        };
        let Some(mut local) = local else { return Ok(None) };
        if planned == PlannedFailure::SendLocalRange {
            // The packets before the last one may be sent: they carry the content of that region.
            let (addr, lkey) = self.backend.region(host, self.hosts[host].own_edge);
            local.sges = vec![Sge { addr: addr + (EDGE_BYTES - len + 1) as u64, len: len as u32, lkey }];
        } else if planned.is_local() {
            let last = local.sges.iter().rposition(|sge| sge.len > 0).expect("the request has bytes");
            local.sges[last].lkey ^= 0x100;
        }
        let uses_receive = matches!(op, Op::Send | Op::SendInvalidate);
        let message = uses_receive.then(|| {
            let message = self.ends[end].message(WcOpcode::Recv, len, None, seed);
            let pattern = match planned {
                PlannedFailure::SendLocalRange => (EDGE_COLOUR, (EDGE_BYTES - len + 1) as u64),
                _ => message.pattern,
            };
            Message { planned: Some(planned), pattern, ..message }
        });
        let posted = self.ends[end].blank(&self.scenario.mix, op, len, Check::Sent);
        let posted = Posted { local, planned: Some(planned), consumes: uses_receive, ..posted };
        Ok(Some(Draft { posted, request, message, fenced: false }))
    }

    /// Puts a queue pair into the error state, as a program that gives up does: some posted requests complete, the
    /// others are flushed.
    fn give_up(&mut self, end: usize, planned: PlannedFailure) -> Result<Option<Draft>, String> {
        let failing_end = if planned == PlannedFailure::QpFailedLocally { end } else { end ^ 1 };
        // The failure applies from now on, whatever is posted.
        self.ends[end].planned = Some((0, planned));
        self.ends[end].posted = self.ends[end].posted.max(1);
        self.fail(failing_end);
        self.links[end / 2] = State::TearingDown(self.steps.below(60) as u32);
        Ok(None)
    }

    fn fail(&mut self, end: usize) {
        self.log.add(self.backend.now(), Happened::QpFailedByProgram { end });
        self.backend.fail_qp(self.ends[end].host, self.ends[end].qpn);
    }

    /// Tears down failed connections: when one side has failed, the other side's program also puts its queue pair into
    /// the error state.
    pub(super) fn tear_down_failed(&mut self) -> Result<(), String> {
        for link in 0..self.links.len() {
            let State::TearingDown(left) = self.links[link] else { continue };
            if left > 0 {
                self.links[link] = State::TearingDown(left - 1);
                continue;
            }
            let ends = [link * 2, link * 2 + 1];
            let is_working = ends.map(|end| !self.is_in_error(end));
            for end in ends {
                if is_working[end % 2] {
                    self.fail(end);
                }
            }
            if is_working == [false, false] {
                // All requests were flushed immediately when the error state was entered, and their completions have
                // been processed since.
                self.close_connection(link).map_err(|what| format!("connection {link}: {what}"))?;
            }
        }
        Ok(())
    }

    fn close_connection(&mut self, link: usize) -> Result<(), String> {
        let ends = [link * 2, link * 2 + 1];
        for end in ends {
            self.finish_silent_run(end)?;
            let left = (self.ends[end].ops.len(), self.ends[end].receives.len());
            if left != (0, 0) {
                return Err(format!("{left:?} requests and receives of end {end} were not flushed"));
            }
            if self.ends[end].was_refused && !self.ends[end ^ 1].got_error_event {
                return Err(format!("end {end} was refused, and nothing was said where that was done"));
            }
        }
        for end in ends {
            self.check_fallen(end)?;
            let host = self.ends[end].host;
            for (receive, pattern) in std::mem::take(&mut self.ends[end].failed_receives) {
                if self.scenario.shared_receives.is_none() {
                    let patterns: Vec<_> = pattern.into_iter().collect();
                    self.memory.check_mixed(self.backend, host, &receive.pieces.blocks, &patterns)?;
                }
                self.memory.release_all(self.backend, host, &receive.pieces.blocks)?;
            }
        }
        for end in ends {
            for message in std::mem::take(&mut self.ends[end].messages) {
                if let Some(region) = message.invalidates {
                    self.backend.deregister(self.ends[end ^ 1].host, region);
                }
            }
        }
        self.tally.connections_failed += 1;
        self.log.add(self.backend.now(), Happened::Closed { link });
        self.links[link] = State::Closed;
        self.close_or_reconnect(link);
        Ok(())
    }

    /// Completes the unsignalled requests of a queue pair that had nothing left to flush: all of them have succeeded.
    fn finish_silent_run(&mut self, end: usize) -> Result<(), String> {
        if self.ends[end].failed || self.ends[end].ops.iter().any(|op| op.signalled || op.planned.is_some()) {
            return Ok(());
        }
        while let Some(request) = self.ends[end].ops.pop_front() {
            self.succeed(end, request)?;
        }
        self.ends.check_received()
    }

    /// Destroys the queue pairs of a connection, or establishes it again, with the same queue pairs or new ones.
    fn close_or_reconnect(&mut self, link: usize) {
        let ends = [link * 2, link * 2 + 1];
        let reconnects = self.scenario.reconnects && !self.is_calm;
        let keeps_queue_pairs = reconnects && one_in(&mut self.steps, 2);
        for end in ends {
            let End { host, qpn, .. } = self.ends[end];
            if keeps_queue_pairs {
                self.backend.reset_qp(host, qpn);
            } else {
                self.ends.forget(end);
                self.backend.destroy_qp(host, qpn);
            }
        }
        if !reconnects {
            return;
        }
        for end in ends {
            let mut random = self.ends[end].random.clone();
            let block = self.memory.word(self.backend, self.ends[end ^ 1].host, &mut random);
            let own = &mut self.ends[end];
            own.random = random;
            own.word = Word { block, value: 0, history: VecDeque::from([0]) };
            own.salt = own.random.bits();
            // Far from the PSNs of all packets that may still be in flight.
            own.psn = (own.psn + (1 << 23)) % (1 << 24);
            (own.planned, own.failed, own.drain, own.silent) = (None, false, Drain::No, 0);
            (own.was_refused, own.got_error_event) = (false, false);
            own.targets.clear();
            own.received = own.acknowledged;
        }
        if !keeps_queue_pairs {
            self.make_queue_pairs(link);
        }
        self.connect(link);
        self.tally.reconnected += 1;
        self.links[link] = State::Alive;
    }
}
