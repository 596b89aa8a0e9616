//! Drawing a request, posting it, and remembering what must come of it.

use rnic_base::RandomStream;
use rnic_engine::{Access, PostError, RemoteMemory, SendFlags, SendOp, SendRequest, Sge, WcFlags, WcOpcode};

use super::end::{Check, End, Message, Pieces, Posted, State, Target};
use super::{Body, Host};
use crate::arena::BlockId;
use crate::backend::Backend;
use crate::log::Happened;
use crate::pattern;
use crate::scenario::{Doom, Op, one_in, pick};

/// A request about to be posted.
pub(super) struct Draft {
    pub(super) posted: Posted,
    pub(super) request: SendOp,
    pub(super) message: Option<Message>,
    pub(super) fenced: bool,
}

impl<B: Backend> Body<'_, B> {
    /// Posts a request at `end`, if there is room and memory; answers whether it did.
    pub(super) fn post_one(&mut self, end: usize) -> Result<bool, String> {
        match self.links[end / 2] {
            State::Alive => {}
            State::Dying(_) if one_in(&mut self.steps, 8) && self.ends[end].ops.len() < self.ends[end].depth => {}
            _ => return Ok(false),
        }
        if self.ends[end].failed && !one_in(&mut self.steps, 8) {
            return Ok(false);
        }
        let is_full = self.hosts[self.ends[end].host].arena.used() > self.request_bytes_max();
        if is_full || self.hosts[self.ends[end ^ 1].host].arena.used() > self.request_bytes_max() {
            self.close_silent_run(end)?;
            return Ok(false);
        }
        if self.ends[end].ops.len() >= self.ends[end].depth {
            // Those without a signal may be done: a request of nothing finds out.
            return if self.is_in_error(end) { Ok(false) } else { self.post_nothing(end) };
        }
        let doom = self.ends[end].doom.filter(|(at, _)| *at == self.ends[end].posted).map(|(_, doom)| doom);
        let draft = match doom {
            Some(doom) => self.draft_doomed(end, doom)?,
            None => {
                let is_starved = self.ends[end].doom.is_some_and(|(_, doom)| doom == Doom::NeverReady);
                let op = if is_starved { Op::Send } else { self.draw_op(end) };
                self.draft(end, op)?
            }
        };
        let Some(draft) = draft else { return Ok(false) };
        self.post(end, draft)
    }

    /// A Write of no bytes with a signal.
    pub(super) fn post_nothing(&mut self, end: usize) -> Result<bool, String> {
        let draft = self.draft_nothing(end);
        self.post(end, draft)
    }

    pub(super) fn draft_nothing(&mut self, end: usize) -> Draft {
        let remote = RemoteMemory { addr: 3, rkey: 0xbad };
        let request = SendOp::Write { remote, immediate: None };
        let posted = self.blank(end, Op::Write, 0, Check::Sent);
        Draft { posted: Posted { signalled: true, ..posted }, request, message: None, fenced: false }
    }

    /// Requests without a signal are not known to be done until a later one is.
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

    /// A request that is still to be filled in.
    pub(super) fn blank(&mut self, end: usize, op: Op, len: usize, check: Check) -> Posted {
        let end = &mut self.ends[end];
        let signalled = end.random.below(100) < self.scenario.mix.signalled_percent || end.silent + 1 >= end.depth;
        Posted {
            index: end.posted,
            op,
            doom: None,
            signalled,
            len,
            local: Pieces::default(),
            source: None,
            target: None,
            check,
            consumes: false,
        }
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
        let (len, doomed) = (posted.len, posted.doom.is_some());
        let what = Happened::Posted { end: index, index: posted.index, op: posted.op, len, doomed };
        self.log.add(self.backend.now(), what);
        self.tally.posted += 1;
        end.posted += 1;
        end.silent = if posted.signalled { 0 } else { end.silent + 1 };
        end.messages.extend(message);
        end.ops.push_back(posted);
        Ok(true)
    }

    fn draw_op(&mut self, end: usize) -> Op {
        let weights = &self.scenario.mix.weights;
        let total: u32 = weights.iter().sum();
        let mut left = self.ends[end].random.below(u64::from(total)) as u32;
        for (op, weight) in Op::ALL.iter().zip(weights) {
            if left < *weight {
                return *op;
            }
            left -= weight;
        }
        Op::Write
    }

    pub(super) fn draw_len(&mut self, end: usize) -> usize {
        let mtu = u64::from(self.scenario.links[end / 2].mtu);
        let most = u64::from(self.scenario.mix.len_max);
        let random = &mut self.ends[end].random;
        if random.below(100) < self.scenario.mix.round_percent {
            let packets = random.below(1 + (most / mtu).min(12));
            return (packets * mtu + random.below(3)).saturating_sub(1).min(most) as usize;
        }
        match random.below(8) {
            0 => 0,
            1 => random.between(1, most.min(9)) as usize,
            2 => most as usize,
            _ => {
                let share = pick(random, &[1, 4, 30]);
                random.below(1 + most / share) as usize
            }
        }
    }

    pub(super) fn draft(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        match op {
            Op::Write | Op::WriteImm => self.draft_write(end, op),
            Op::Send | Op::SendImm | Op::SendInvalidate => self.draft_send(end, op),
            Op::Read => self.draft_read(end),
            Op::ReadBack => self.draft_read_back(end),
            Op::Overwrite => self.draft_overwrite(end),
            Op::Echo => self.draft_echo(end),
            Op::CompareSwap | Op::FetchAdd | Op::SharedAdd => self.draft_atomic(end, op),
        }
    }

    fn fence(&mut self, end: usize) -> bool {
        self.ends[end].random.below(100) < self.scenario.mix.fenced_percent
    }

    /// Memory at `host`, fresh, for `len` bytes in several pieces; painted with `source` if it is given.
    pub(super) fn pieces(
        &mut self,
        host: usize,
        len: usize,
        source: Option<u64>,
        random: &mut RandomStream,
    ) -> Result<Option<Pieces>, String> {
        let count = random.between(u64::from(len > 0), u64::from(self.scenario.mix.sges_max)) as usize;
        let access = if source.is_some() { Access::empty() } else { Access::LOCAL_WRITE };
        let mut pieces = Pieces::default();
        let mut done = 0;
        for place in 0..count {
            let rest = len - done;
            let here = if place + 1 == count { rest } else { random.below(rest as u64 + 1) as usize };
            if here == 0 && one_in(random, 2) {
                // Of nothing, no key is checked.
                pieces.sges.push(Sge { addr: 1, len: 0, lkey: 0xbad });
                continue;
            }
            let Host { arena, region, .. } = &mut self.hosts[host];
            let Some(block) = arena.allocate(here, 1, random) else {
                self.release_all(host, &pieces.blocks)?;
                return Ok(None);
            };
            let bytes = self.backend.bytes(host, *region);
            arena.check_fresh(block, bytes).map_err(|what| format!("host {host}: {what}"))?;
            if let Some(seed) = source {
                pattern::fill(&mut bytes[arena.range(block)], seed, done as u64);
            }
            let addr = arena.addr_of(block);
            self.give_key(host, block, access);
            pieces.sges.push(Sge { addr, len: here as u32, lkey: self.key_of(host, block) });
            pieces.blocks.push(block);
            done += here;
        }
        Ok(Some(pieces))
    }

    /// The same, drawn by the end whose memory it is.
    pub(super) fn own_pieces(&mut self, end: usize, len: usize, source: Option<u64>) -> Result<Option<Pieces>, String> {
        let mut random = self.ends[end].random.clone();
        let pieces = self.pieces(self.ends[end].host, len, source, &mut random);
        self.ends[end].random = random;
        pieces
    }

    /// Memory at the other end for `len` bytes.
    fn target(&mut self, end: usize, len: usize, paint: Option<u64>) -> Result<Option<BlockId>, String> {
        let there = self.ends[end ^ 1].host;
        let Host { arena, region, .. } = &mut self.hosts[there];
        let Some(block) = arena.allocate(len, 1, &mut self.ends[end].random) else { return Ok(None) };
        let bytes = self.backend.bytes(there, *region);
        arena.check_fresh(block, bytes).map_err(|what| format!("host {there}: {what}"))?;
        if let Some(seed) = paint {
            pattern::fill(&mut bytes[arena.range(block)], seed, 0);
        }
        self.give_key(there, block, Access::all());
        Ok(Some(block))
    }

    pub(super) fn remote(&mut self, end: usize, block: BlockId) -> RemoteMemory {
        let there = self.ends[end ^ 1].host;
        RemoteMemory { addr: self.hosts[there].arena.addr_of(block), rkey: self.key_of(there, block) }
    }

    fn draft_write(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        let len = self.draw_len(end);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 1);
        let Some(target) = self.target(end, len, None)? else { return Ok(None) };
        let Some(local) = self.own_pieces(end, len, Some(seed))? else {
            self.release(self.ends[end ^ 1].host, target)?;
            return Ok(None);
        };
        self.ends[end].targets.insert(target, Target::new(seed, false));
        let immediate = (op == Op::WriteImm).then(|| self.ends[end].random.bits() as u32);
        let message = immediate.map(|word| self.message(end, WcOpcode::RecvRdmaWithImm, len, Some(word), seed));
        let posted = self.blank(end, op, len, Check::Written(seed));
        let consumes = message.is_some();
        let posted = Posted { local, source: Some(seed), target: Some(target), consumes, ..posted };
        let request = SendOp::Write { remote: self.remote(end, target), immediate };
        let fenced = self.fence(end);
        Ok(Some(Draft { posted, request, message, fenced }))
    }

    /// What the other end must receive.
    pub(super) fn message(
        &mut self,
        end: usize,
        opcode: WcOpcode,
        len: usize,
        word: Option<u32>,
        seed: u64,
    ) -> Message {
        let mut flags = if word.is_some() { WcFlags::WITH_IMM } else { WcFlags::empty() };
        flags.set(WcFlags::SOLICITED, one_in(&mut self.ends[end].random, 4));
        let word = word.unwrap_or(0);
        Message { opcode, len, word, flags, pattern: (seed, 0), invalidates: None, doom: None }
    }

    pub(super) fn draft_send(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        let len = self.draw_len(end);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 2);
        let Some(local) = self.own_pieces(end, len, Some(seed))? else { return Ok(None) };
        let immediate = (op == Op::SendImm).then(|| self.ends[end].random.bits() as u32);
        let mut message = self.message(end, WcOpcode::Recv, len, immediate, seed);
        let mut request = SendOp::Send { immediate };
        let mut fenced = self.fence(end);
        let mut invalidates = None;
        if op == Op::SendInvalidate {
            invalidates = self.read_before(end);
        }
        if let Some(target) = invalidates {
            let rkey = self.key_of(self.ends[end ^ 1].host, target);
            // What was read is invalidated; a Read is over before what is behind a fence.
            (request, fenced) = (SendOp::SendInvalidate { rkey }, true);
            message.flags |= WcFlags::WITH_INV;
            message.word = rkey;
        } else if op == Op::SendInvalidate {
            let there = self.ends[end ^ 1].host;
            let region = self.backend.register(there, 64, Access::LOCAL_WRITE | Access::REMOTE_INVALIDATE);
            let (_, rkey) = self.backend.region(there, region);
            request = SendOp::SendInvalidate { rkey };
            message.flags |= WcFlags::WITH_INV;
            (message.word, message.invalidates) = (rkey, Some(region));
        }
        let posted = self.blank(end, op, len, Check::Sent);
        let posted = Posted { local, source: Some(seed), target: invalidates, consumes: true, ..posted };
        Ok(Some(Draft { posted, request, message: Some(message), fenced }))
    }

    /// What a Read under way reads by a key of its own, which is to be invalidated: from now on nothing else uses it.
    fn read_before(&mut self, end: usize) -> Option<BlockId> {
        let there = self.ends[end ^ 1].host;
        let is_read = |of: &End, op: &Posted| {
            let known = |target| of.targets.get(&target).is_some_and(|known| known.read_last && !known.is_gone);
            op.op == Op::Read && op.target.is_some_and(|target| known(target) && self.is_passing(there, target))
        };
        let target = self.earlier(end, is_read)?.target?;
        self.ends[end].targets.get_mut(&target)?.is_gone = true;
        self.hosts[there].arena.retain(target);
        Some(target)
    }

    fn draft_read(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let len = self.draw_len(end);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 3);
        let Some(target) = self.target(end, len, Some(seed))? else { return Ok(None) };
        let Some(local) = self.own_pieces(end, len, None)? else {
            self.release(self.ends[end ^ 1].host, target)?;
            return Ok(None);
        };
        self.ends[end].targets.insert(target, Target::new(seed, true));
        let posted = self.blank(end, Op::Read, len, Check::Fetched(seed));
        let posted = Posted { local, target: Some(target), ..posted };
        let request = SendOp::Read { remote: self.remote(end, target) };
        let fenced = self.fence(end);
        Ok(Some(Draft { posted, request, message: None, fenced }))
    }

    /// The youngest request under way that `fits`, if there is one.
    fn earlier(&self, end: usize, fits: impl Fn(&End, &Posted) -> bool) -> Option<Posted> {
        let end = &self.ends[end];
        let found = end.ops.iter().rev().find(|op| op.len > 0 && op.doom.is_none() && fits(end, op));
        found.cloned()
    }

    fn draft_read_back(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let is_there = |end: &End, op: &Posted| {
            matches!(op.check, Check::Written(_))
                && op.target.and_then(|target| end.targets.get(&target)).is_some_and(|target| !target.is_gone)
        };
        let Some(before) = self.earlier(end, is_there) else { return self.draft_read(end) };
        let Some(local) = self.own_pieces(end, before.len, None)? else { return Ok(None) };
        let target = before.target.expect("a Write has a target");
        self.hosts[self.ends[end ^ 1].host].arena.retain(target);
        let known = self.ends[end].targets.get_mut(&target).expect("targets are known while in use");
        known.read_last = true;
        let seed = *known.versions.last().expect("it has been written");
        let posted = self.blank(end, Op::ReadBack, before.len, Check::Fetched(seed));
        let posted = Posted { local, target: Some(target), ..posted };
        let request = SendOp::Read { remote: self.remote(end, target) };
        let fenced = self.fence(end);
        Ok(Some(Draft { posted, request, message: None, fenced }))
    }

    /// Only behind a read, and behind a fence: two Writes to one place may be placed in any order.
    fn draft_overwrite(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let is_read_last = |end: &End, op: &Posted| {
            let target = op.target.and_then(|target| end.targets.get(&target));
            matches!(op.check, Check::Fetched(_)) && target.is_some_and(|target| target.read_last && !target.is_gone)
        };
        let Some(before) = self.earlier(end, is_read_last) else { return self.draft_write(end, Op::Write) };
        let seed = self.ends[end].seed_of(self.ends[end].posted, 4);
        let Some(local) = self.own_pieces(end, before.len, Some(seed))? else { return Ok(None) };
        let target = before.target.expect("a read has a target");
        self.hosts[self.ends[end ^ 1].host].arena.retain(target);
        let known = self.ends[end].targets.get_mut(&target).expect("targets are known while in use");
        known.read_last = false;
        known.versions.push(seed);
        let posted = self.blank(end, Op::Overwrite, before.len, Check::Written(seed));
        let posted = Posted { local, source: Some(seed), target: Some(target), ..posted };
        let request = SendOp::Write { remote: self.remote(end, target), immediate: None };
        Ok(Some(Draft { posted, request, message: None, fenced: true }))
    }

    /// What a read brings leaves again from where it came to: the fence sees to it that it has come.
    fn draft_echo(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let Some(before) = self.earlier(end, |_, op| matches!(op.check, Check::Fetched(_))) else {
            return self.draft_write(end, Op::Write);
        };
        let Check::Fetched(seed) = before.check else { return Ok(None) };
        let Some(target) = self.target(end, before.len, None)? else { return Ok(None) };
        self.ends[end].targets.insert(target, Target::new(seed, false));
        let here = self.ends[end].host;
        before.local.blocks.iter().for_each(|block| self.hosts[here].arena.retain(*block));
        let posted = self.blank(end, Op::Echo, before.len, Check::Written(seed));
        let posted = Posted { local: before.local, source: Some(seed), target: Some(target), ..posted };
        let request = SendOp::Write { remote: self.remote(end, target), immediate: None };
        Ok(Some(Draft { posted, request, message: None, fenced: true }))
    }

    /// Where an atomic's answer goes: eight bytes that may not be scattered.
    pub(super) fn word_piece(&mut self, end: usize) -> Result<Option<Pieces>, String> {
        let End { host, random, .. } = &mut self.ends[end];
        let Host { arena, region, .. } = &mut self.hosts[*host];
        let Some(block) = arena.allocate(8, 1, random) else { return Ok(None) };
        arena.check_fresh(block, self.backend.bytes(*host, *region))?;
        let (host, addr) = (*host, arena.addr_of(block));
        self.give_key(host, block, Access::LOCAL_WRITE);
        let sge = Sge { addr, len: 8, lkey: self.key_of(host, block) };
        Ok(Some(Pieces { blocks: vec![block], sges: vec![sge] }))
    }

    fn draft_atomic(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        let Some(local) = self.word_piece(end)? else { return Ok(None) };
        let there = self.ends[end ^ 1].host;
        let (block, check, request): (_, _, fn(_, _, _) -> SendOp);
        let (mut first, mut second) = (0, 0);
        if op == Op::SharedAdd {
            let tickets = &mut self.hosts[there].tickets;
            tickets.posted += 1;
            (block, check) = (tickets.block, Check::Ticket);
            request = |remote, _, _| SendOp::FetchAdd { remote, add: 1 };
        } else {
            let End { word, random, .. } = &mut self.ends[end];
            (block, check, first, second) = (word.block, Check::Found(word.value), word.value, random.bits());
            if op == Op::FetchAdd {
                word.value = word.value.wrapping_add(second);
                request = |remote, _, add| SendOp::FetchAdd { remote, add };
            } else {
                if one_in(random, 4) {
                    // It finds another value than it expects, and changes nothing.
                    first ^= 1 << random.below(64);
                } else {
                    word.value = second;
                }
                request = |remote, compare, swap| SendOp::CompareSwap { remote, compare, swap };
            }
            word.history.push_back(word.value);
        }
        let posted = Posted { local, ..self.blank(end, op, 8, check) };
        let request = request(self.remote(end, block), first, second);
        let fenced = self.fence(end);
        Ok(Some(Draft { posted, request, message: None, fenced }))
    }
}
