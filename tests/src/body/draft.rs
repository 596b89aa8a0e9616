//! Generates a random request: its operation, its memory, and its expected result.

use rnic_engine::{Access, RemoteMemory, SendOp, WcFlags, WcOpcode};

use super::Host;
use super::end::{Check, End, Message, Posted, Target};
use super::ends::Ends;
use super::memory::{Memory, Pieces};
use crate::arena::BlockId;
use crate::backend::Backend;
use crate::scenario::{Op, Scenario, one_in};

/// A request about to be posted.
pub(super) struct Draft {
    pub(super) posted: Posted,
    pub(super) request: SendOp,
    pub(super) message: Option<Message>,
    pub(super) fenced: bool,
}

/// The parts of the test driver from which requests are generated.
pub(super) struct Drafts<'d, B> {
    pub(super) backend: &'d mut B,
    pub(super) scenario: &'d Scenario,
    pub(super) hosts: &'d mut [Host],
    pub(super) memory: &'d mut Memory,
    pub(super) ends: &'d mut Ends,
}

impl<B: Backend> Drafts<'_, B> {
    /// Generates a signalled Write of no bytes.
    pub(super) fn draft_nothing(&mut self, end: usize) -> Draft {
        let remote = RemoteMemory { addr: 3, rkey: 0xbad };
        let request = SendOp::Write { remote, immediate: None };
        let posted = self.blank(end, Op::Write, 0, Check::Sent);
        Draft { posted: Posted { signalled: true, ..posted }, request, message: None, fenced: false }
    }

    /// Generates a request of this type; `None` when there is no memory for it.
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

    /// Allocates memory at the end for `len` bytes in several pieces, filled with `source` if it is given.
    pub(super) fn own_pieces(&mut self, end: usize, len: usize, source: Option<u64>) -> Result<Option<Pieces>, String> {
        let End { host, random, .. } = &mut self.ends[end];
        self.memory.pieces(self.backend, *host, len, source, random)
    }

    /// Allocates memory at the end for the response of an atomic.
    pub(super) fn word_piece(&mut self, end: usize) -> Result<Option<Pieces>, String> {
        let End { host, random, .. } = &mut self.ends[end];
        self.memory.word_piece(self.backend, *host, random)
    }

    /// Allocates memory at the other end for `len` bytes.
    fn target(&mut self, end: usize, len: usize, paint: Option<u64>) -> Result<Option<BlockId>, String> {
        let there = self.ends[end ^ 1].host;
        self.memory.target(self.backend, there, len, paint, &mut self.ends[end].random)
    }

    fn remote(&self, end: usize, block: BlockId) -> RemoteMemory {
        self.memory.remote(self.ends[end ^ 1].host, block)
    }

    /// Releases memory at the other end, because the request was not generated.
    fn release_remote(&mut self, end: usize, target: BlockId) -> Result<(), String> {
        self.memory.release(self.backend, self.ends[end ^ 1].host, target).map(|_| ())
    }

    fn draw_len(&mut self, end: usize) -> usize {
        let mtu = self.scenario.links[end / 2].mtu;
        self.ends[end].draw_len(&self.scenario.mix, mtu)
    }

    fn blank(&mut self, end: usize, op: Op, len: usize, check: Check) -> Posted {
        self.ends[end].blank(&self.scenario.mix, op, len, check)
    }

    fn draw_fence(&mut self, end: usize) -> bool {
        self.ends[end].draw_fence(&self.scenario.mix)
    }

    fn draft_write(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        let len = self.draw_len(end);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 1);
        let Some(target) = self.target(end, len, None)? else { return Ok(None) };
        let Some(local) = self.own_pieces(end, len, Some(seed))? else {
            self.release_remote(end, target)?;
            return Ok(None);
        };
        self.ends[end].targets.insert(target, Target::new(seed, false));
        let immediate = (op == Op::WriteImm).then(|| self.ends[end].random.bits() as u32);
        let message = immediate.map(|word| self.ends[end].message(WcOpcode::RecvRdmaWithImm, len, Some(word), seed));
        let posted = self.blank(end, op, len, Check::Written(seed));
        let consumes = message.is_some();
        let posted = Posted { local, source: Some(seed), target: Some(target), consumes, ..posted };
        let request = SendOp::Write { remote: self.remote(end, target), immediate };
        let fenced = self.draw_fence(end);
        Ok(Some(Draft { posted, request, message, fenced }))
    }

    pub(super) fn draft_send(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        let len = self.draw_len(end);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 2);
        let Some(local) = self.own_pieces(end, len, Some(seed))? else { return Ok(None) };
        let immediate = (op == Op::SendImm).then(|| self.ends[end].random.bits() as u32);
        let mut message = self.ends[end].message(WcOpcode::Recv, len, immediate, seed);
        let mut request = SendOp::Send { immediate };
        let mut fenced = self.draw_fence(end);
        let mut invalidates = None;
        if op == Op::SendInvalidate {
            invalidates = self.read_before(end);
        }
        if let Some(target) = invalidates {
            let rkey = self.memory.key_of(self.ends[end ^ 1].host, target);
            // Invalidates the key of memory that a Read used; the fence ensures that the Read is complete before.
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

    /// Returns the target of a Read in flight that uses a separate key, which is to be invalidated; no later request
    /// uses the target.
    fn read_before(&mut self, end: usize) -> Option<BlockId> {
        let there = self.ends[end ^ 1].host;
        let is_read = |of: &End, op: &Posted| {
            let known = |target| of.targets.get(&target).is_some_and(|known| known.read_last && !known.is_gone);
            op.op == Op::Read
                && op.target.is_some_and(|target| known(target) && self.memory.has_separate_key(there, target))
        };
        let target = self.ends[end].earlier(is_read)?.target?;
        self.ends[end].targets.get_mut(&target)?.is_gone = true;
        self.memory.retain(there, target);
        Some(target)
    }

    fn draft_read(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let len = self.draw_len(end);
        let seed = self.ends[end].seed_of(self.ends[end].posted, 3);
        let Some(target) = self.target(end, len, Some(seed))? else { return Ok(None) };
        let Some(local) = self.own_pieces(end, len, None)? else {
            self.release_remote(end, target)?;
            return Ok(None);
        };
        self.ends[end].targets.insert(target, Target::new(seed, true));
        let posted = self.blank(end, Op::Read, len, Check::Fetched(seed));
        let posted = Posted { local, target: Some(target), ..posted };
        let request = SendOp::Read { remote: self.remote(end, target) };
        let fenced = self.draw_fence(end);
        Ok(Some(Draft { posted, request, message: None, fenced }))
    }

    fn draft_read_back(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let is_usable = |end: &End, op: &Posted| {
            matches!(op.check, Check::Written(_))
                && op.target.and_then(|target| end.targets.get(&target)).is_some_and(|target| !target.is_gone)
        };
        let Some(before) = self.ends[end].earlier(is_usable) else { return self.draft_read(end) };
        let Some(local) = self.own_pieces(end, before.len, None)? else { return Ok(None) };
        let target = before.target.expect("a Write has a target");
        self.memory.retain(self.ends[end ^ 1].host, target);
        let known = self.ends[end].targets.get_mut(&target).expect("targets are known while in use");
        known.read_last = true;
        let seed = *known.versions.last().expect("a target has a version");
        let posted = self.blank(end, Op::ReadBack, before.len, Check::Fetched(seed));
        let posted = Posted { local, target: Some(target), ..posted };
        let request = SendOp::Read { remote: self.remote(end, target) };
        let fenced = self.draw_fence(end);
        Ok(Some(Draft { posted, request, message: None, fenced }))
    }

    /// Generates a fenced Write over memory that an earlier read uses; only behind a read and with a fence, because two
    /// Writes to one location may be placed in any order.
    fn draft_overwrite(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let is_read_last = |end: &End, op: &Posted| {
            let target = op.target.and_then(|target| end.targets.get(&target));
            matches!(op.check, Check::Fetched(_)) && target.is_some_and(|target| target.read_last && !target.is_gone)
        };
        let Some(before) = self.ends[end].earlier(is_read_last) else { return self.draft_write(end, Op::Write) };
        let seed = self.ends[end].seed_of(self.ends[end].posted, 4);
        let Some(local) = self.own_pieces(end, before.len, Some(seed))? else { return Ok(None) };
        let target = before.target.expect("a read has a target");
        self.memory.retain(self.ends[end ^ 1].host, target);
        let known = self.ends[end].targets.get_mut(&target).expect("targets are known while in use");
        known.read_last = false;
        known.versions.push(seed);
        let posted = self.blank(end, Op::Overwrite, before.len, Check::Written(seed));
        let posted = Posted { local, source: Some(seed), target: Some(target), ..posted };
        let request = SendOp::Write { remote: self.remote(end, target), immediate: None };
        Ok(Some(Draft { posted, request, message: None, fenced: true }))
    }

    /// Generates a fenced Write whose source is the local buffer of an earlier read; the fence ensures that the read is
    /// complete.
    fn draft_echo(&mut self, end: usize) -> Result<Option<Draft>, String> {
        let Some(before) = self.ends[end].earlier(|_, op| matches!(op.check, Check::Fetched(_))) else {
            return self.draft_write(end, Op::Write);
        };
        let Check::Fetched(seed) = before.check else { return Ok(None) };
        let Some(target) = self.target(end, before.len, None)? else { return Ok(None) };
        self.ends[end].targets.insert(target, Target::new(seed, false));
        let here = self.ends[end].host;
        before.local.blocks.iter().for_each(|block| self.memory.retain(here, *block));
        let posted = self.blank(end, Op::Echo, before.len, Check::Written(seed));
        let posted = Posted { local: before.local, source: Some(seed), target: Some(target), ..posted };
        let request = SendOp::Write { remote: self.remote(end, target), immediate: None };
        Ok(Some(Draft { posted, request, message: None, fenced: true }))
    }

    fn draft_atomic(&mut self, end: usize, op: Op) -> Result<Option<Draft>, String> {
        let Some(local) = self.word_piece(end)? else { return Ok(None) };
        let there = self.ends[end ^ 1].host;
        let (block, check, request): (_, _, fn(_, _, _) -> SendOp);
        let (mut first, mut second) = (0, 0);
        if op == Op::SharedAdd {
            let tickets = &mut self.hosts[there].tickets;
            tickets.note_request();
            (block, check) = (tickets.block(), Check::Ticket);
            request = |remote, _, _| SendOp::FetchAdd { remote, add: 1 };
        } else {
            let End { word, random, .. } = &mut self.ends[end];
            (block, check, first, second) = (word.block, Check::Found(word.value), word.value, random.bits());
            if op == Op::FetchAdd {
                word.value = word.value.wrapping_add(second);
                request = |remote, _, add| SendOp::FetchAdd { remote, add };
            } else {
                if one_in(random, 4) {
                    // The compare value does not match, so that the operation changes nothing.
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
        let fenced = self.draw_fence(end);
        Ok(Some(Draft { posted, request, message: None, fenced }))
    }
}
