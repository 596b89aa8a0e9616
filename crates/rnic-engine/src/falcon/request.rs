//! From send queue entries to transactions, and from their completions to completions.
//!
//! Requests are handed to the transaction layer as long as it takes them (Xoff: F-34): what it holds is bounded by the
//! resources, and by as many transactions as there may be under way. A transaction is named by its entry and its place
//! in it. An entry is finished when all its transactions are; in order, or, without order, each as it comes.

use rnic_base::Time;
use rnic_falcon::connection::Connection;
use rnic_falcon::transaction::{Completion, Kind, Submission};
use rnic_policy::{FalconErrors, FalconOrdering, FalconShape};
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag, Sn};
use rnic_wire::falcon::{CompletionCode, ResyncCode};
use rnic_wire::{Position, Reth};

use super::header;
use super::{Lack, Nic};
use crate::completion::WcStatus;
use crate::core::Core;
use crate::error::PostError;
use crate::state::QpState;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::send::{SendHalf, send_completion};
use crate::wq::{SendWqe, WqeOp, WqeState};
use crate::wr::SendFlags;

/// How far an entry of the send queue has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The number (SN) of its first packet; the others' follow.
    first_sn: u32,
    /// Transactions that have ended.
    done: u32,
    /// How the first of them ended that did not end well.
    failed: Option<WcStatus>,
}

/// What a queue pair keeps of its own requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// The number of the next packet (SN); the first is 1.
    next_sn: u32,
    /// Version of the table of memory regions at which the whole scatter/gather list of the entry that is being handed
    /// in was found valid; while the table has that version, the entry's packets are not checked again.
    is_sound: Option<u64>,
    ordering: FalconOrdering,
    errors: FalconErrors,
    /// By entry of the send queue.
    pub(super) progress: Box<[Progress]>,
    /// The transaction that the peer was not ready for.
    refused: u64,
    /// How often in a row it was not; 0 when there is none.
    times_refused: u32,
    /// When to wonder whether a peer that owes data is still there: what asked for it is acknowledged, so nothing else
    /// would tell.
    pub(super) watch: Deadline,
    /// Since when a peer that owes data has said nothing.
    silent_since: Time,
    /// Times in a row that the watch has run out since.
    silent_periods: u32,
}

/// The name of transaction `index` of entry `counter`.
const fn tag(counter: u32, index: u32) -> u64 {
    (counter as u64) << 32 | index as u64
}

/// Entry and index of a name.
pub(super) const fn untag(tag: u64) -> (u32, u32) {
    ((tag >> 32) as u32, tag as u32)
}

impl Requests {
    pub(super) fn new(entries: u32, shape: &FalconShape) -> Self {
        Self {
            next_sn: 1,
            is_sound: None,
            ordering: shape.ordering,
            errors: shape.errors,
            progress: vec![Progress::default(); entries.max(1).next_power_of_two() as usize].into_boxed_slice(),
            refused: 0,
            times_refused: 0,
            watch: Deadline::NEVER,
            silent_since: Time::ZERO,
            silent_periods: 0,
        }
    }

    fn place(&self, counter: u32) -> usize {
        counter as usize & (self.progress.len() - 1)
    }

    fn of(&mut self, counter: u32) -> &mut Progress {
        let place = self.place(counter);
        &mut self.progress[place]
    }

    /// The number (SN) of the first packet of entry `counter`.
    fn first_sn(&self, counter: u32) -> u32 {
        self.progress[self.place(counter)].first_sn
    }

    /// The peer lives, or owes nothing before now.
    #[inline]
    pub(super) fn hear(&mut self, now: Time) {
        (self.silent_since, self.silent_periods) = (now, 0);
    }
}

/// The result of an attempt to hand in requests, and with NVMe answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handed {
    /// Some requests were taken.
    pub(super) requests: bool,
    /// Some answers were.
    pub(super) answers: bool,
    /// There is no room of that sort for what is next: try again when others give some back.
    pub(super) lack: Option<Lack>,
}

impl Requests {
    /// Hands requests to the transaction layer, as long as it takes them.
    pub(super) fn hand_in(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut Nic,
        connection: &mut Connection,
    ) -> Handed {
        let mut any = false;
        while verbs.send.queue.has_unsent() && verbs.head.state.sends() && verbs.send.doom.is_none() {
            let counter = verbs.send.queue.next;
            let starts = verbs.send.queue.sent_of_next == 0;
            if starts && let Err(reason) = verbs.send.may_begin(&verbs.head, verbs.send.start) {
                if let Some(reason) = reason {
                    core.count_wait(reason);
                    if reason == WaitReason::ReadLimit && verbs.send.fetches_max == 0 {
                        self.fail_entry(verbs, core, counter, WcStatus::LocalQpOperation);
                    }
                }
                break;
            }
            if verbs.send.queue.get(counter).op.is_local() {
                *self.of(counter) = Progress::default();
                if let Err(status) = verbs.send.do_local(&verbs.head, core, counter) {
                    self.fail_entry(verbs, core, counter, status);
                    break;
                }
                verbs.send.begin(counter, verbs.send.start, 0);
                verbs.send.advance(0);
                self.finish_entries(verbs, core, counter);
                continue;
            }
            if connection.transactions().is_full() {
                core.count_wait(WaitReason::Cap);
                break;
            }
            if starts {
                let first_sn = self.next_sn;
                *self.of(counter) = Progress { first_sn, ..Progress::default() };
                let packets = verbs.send.queue.get(counter).packets;
                // One number for each packet (RDMA over Falcon 8.3.2): it is the place at the target where that waits.
                verbs.send.begin(counter, verbs.send.start, packets);
                connection.expect(packets);
                self.is_sound = check_entry(verbs, core, counter);
            }
            // What was sound as a whole is so in each part, until some region changes.
            let is_sound = self.is_sound == Some(core.objects.mrs.version());
            let Some(submission) = submission(verbs, core, counter, is_sound) else {
                self.fail_entry(verbs, core, counter, WcStatus::LocalProtection);
                break;
            };
            if connection.submit(&mut nic.resources, &submission).is_err() {
                if starts {
                    verbs.send.put_back(counter, verbs.send.queue.get(counter).packets);
                }
                core.count_wait(WaitReason::Window);
                let lack = Some(lack_of(nic, connection, &submission));
                return Handed { requests: any, answers: false, lack };
            }
            any = true;
            self.next_sn = self.next_sn.wrapping_add(1);
            if verbs.send.queue.get(counter).op.is_fetch() {
                self.watch_fetch(verbs, core.now, starts);
            }
            verbs.send.advance(1);
        }
        Handed { requests: any, answers: false, lack: None }
    }

    /// The peer will owe data; whether it is the first of its entry's.
    fn watch_fetch(&mut self, verbs: &Verbs, now: Time, starts: bool) {
        if starts && verbs.send.fetches == 1 {
            self.hear(now);
        }
        if !self.watch.is_set() {
            self.watch = Deadline::after(now, verbs.head.transport.response_patience);
        }
    }

    /// What the transaction called `tag` says, whenever its packet leaves. Of an entry that is no more, nothing that
    /// makes sense: a Pull may be sent again when its data is here, and its target goes by its number; and in the place
    /// of a Push of a queue pair that has failed and lingers a Resync leaves, whatever this says (`drive.rs`).
    #[inline(always)]
    pub(super) fn headers(&self, verbs: &Verbs, tag: u64) -> Header {
        let (counter, index) = untag(tag);
        if !verbs.send.owns(counter) {
            let (reth, sink, none) = (Reth::default(), SinkTag::default(), rnic_base::Serial::new(0));
            let operation = Operation::ReadRequest { reth, rmsn: none, sink };
            return Header {
                dest_qpn: verbs.head.dest_qpn,
                sn: none,
                solicited: false,
                complete_in_error: false,
                operation,
            };
        }
        let wqe = verbs.send.queue.get(counter);
        let place = place_of(&verbs.head, wqe, index);
        Header {
            dest_qpn: verbs.head.dest_qpn,
            sn: self.packet_sn(counter, index),
            solicited: place.position.ends() && wqe.flags.contains(SendFlags::SOLICITED) && wqe.op.consumes_receive(),
            complete_in_error: false,
            operation: header::operation(wqe, verbs.send.queue.sges(counter), &place),
        }
    }

    /// The number (SN) of the packet of transaction `index` of entry `counter`.
    #[inline(always)]
    pub(super) fn packet_sn(&self, counter: u32, index: u32) -> Sn {
        Sn::new(self.first_sn(counter).wrapping_add(index))
    }

    /// A transaction of ours has ended.
    pub(super) fn end_transaction(&mut self, verbs: &mut Verbs, core: &mut Core, completion: &Completion) {
        let (counter, _) = untag(completion.tag);
        if !verbs.head.state.sends() || !verbs.send.owns(counter) {
            return;
        }
        if self.refused == completion.tag {
            self.times_refused = 0;
        }
        self.of(counter).done += 1;
        if completion.code != CompletionCode::Ack {
            let status = status_of(completion);
            return self.fail_entry(verbs, core, counter, status);
        }
        self.finish_entries(verbs, core, counter);
    }

    /// Entry `counter` cannot succeed.
    pub(super) fn fail_entry(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32, status: WcStatus) {
        let progress = self.of(counter);
        progress.failed.get_or_insert(status);
        let alone = self.errors == FalconErrors::CompleteInError && is_remote(status);
        if !alone {
            verbs.send.doom(counter, status);
        }
        self.finish_entries(verbs, core, counter);
    }

    /// Completes what is finished, now that something is known of entry `counter`.
    pub(super) fn finish_entries(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let head = verbs.send.queue.head;
        if self.ordering == FalconOrdering::Unordered {
            self.finish_alone(verbs, core, counter);
        }
        while verbs.send.queue.head != verbs.send.queue.tail {
            let counter = verbs.send.queue.head;
            if let Some((doomed, status)) = verbs.send.doom
                && doomed == counter
            {
                return verbs.fail_head(core, status);
            }
            let wqe = verbs.send.queue.get(counter);
            if wqe.state != WqeState::Completed {
                if counter == verbs.send.queue.next || self.of(counter).done < wqe.packets {
                    break;
                }
                self.complete_entry(verbs, core, counter);
            }
            verbs.send.queue.head = counter.wrapping_add(1);
        }
        if verbs.head.state == QpState::SendQueueDrained && verbs.send.queue.head != head {
            verbs.send.notice_drained(&verbs.head, core);
        }
    }

    /// Without order: entry `counter` completes when it is finished, whatever is before it.
    fn finish_alone(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let queue = &verbs.send.queue;
        let wqe = queue.get(counter);
        let is_handed_in = counter.wrapping_sub(queue.head) < queue.next.wrapping_sub(queue.head);
        let is_doomed = verbs.send.doom.is_some_and(|(doomed, _)| doomed == counter);
        let is_finished = is_handed_in && self.of(counter).done == wqe.packets;
        if is_finished && !is_doomed && wqe.state != WqeState::Completed {
            self.complete_entry(verbs, core, counter);
        }
    }

    fn complete_entry(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let status = self.of(counter).failed.unwrap_or(WcStatus::Success);
        let entry = verbs.send.queue.get_mut(counter);
        entry.state = WqeState::Completed;
        let wqe = *entry;
        if wqe.op.is_fetch() {
            verbs.send.fetches -= 1;
        }
        if wqe.flags.contains(SendFlags::SIGNALED) || status != WcStatus::Success {
            core.complete(verbs.head.send_cq, send_completion(verbs.head.number, &wqe, status));
        }
    }

    /// The peer was not ready for the transaction named `tag`. How often in a row it may be so is counted for the
    /// oldest one alone: on an ordered connection those behind it are refused with it.
    pub(super) fn on_rnr_nack(&mut self, verbs: &mut Verbs, core: &mut Core, tag: u64) {
        verbs.stats.rnr_naks += 1;
        let (counter, _) = untag(tag);
        if !verbs.head.state.sends() || !verbs.send.owns(counter) {
            return;
        }
        let head = verbs.send.queue.head;
        let age = |tag: u64| (untag(tag).0.wrapping_sub(head), untag(tag).1);
        let times = match self.times_refused {
            0 => 1,
            times if self.refused == tag => times + 1,
            _ if age(self.refused) < age(tag) => return,
            _ => 1,
        };
        (self.refused, self.times_refused) = (tag, times);
        if verbs.send.exceeds_rnr_retry(times) {
            self.fail_entry(verbs, core, counter, WcStatus::RnrRetryExceeded);
        }
    }

    /// Returns how the oldest entry of the send queue will end, if it is known that it will fail: the peer has refused
    /// it, and has yet to acknowledge that it was heard.
    pub(super) fn known_failure(send: &SendHalf, connection: &Connection) -> Option<WcStatus> {
        let head = send.queue.head;
        let is_heads = |tag: u64| untag(tag).0 == head && send.owns(head);
        let failure = connection.transactions().known_failure(is_heads)?;
        (send.queue.get(head).state != WqeState::Completed).then(|| status_of(&failure))
    }

    /// A peer owes us data, has acknowledged all else, and has been silent for long. The watch stays where it is when
    /// the peer is heard: how long ago that was is asked when it runs out.
    pub(super) fn watch_target(&mut self, verbs: &mut Verbs, core: &mut Core, connection: &Connection) {
        if !self.watch.is_due(core.now) {
            return;
        }
        if verbs.send.fetches == 0 || !verbs.head.state.sends() {
            (self.watch, self.silent_periods) = (Deadline::NEVER, 0);
            return;
        }
        let patience = verbs.head.transport.response_patience;
        if core.now.since(self.silent_since) < patience {
            self.watch = Deadline::after(self.silent_since, patience);
            return;
        }
        let waits = connection.delivery().is_quiet();
        self.silent_periods = if waits { self.silent_periods + 1 } else { 0 };
        self.watch = Deadline::after(core.now, patience);
        if self.silent_periods > verbs.send.retry_count() {
            verbs.fail_head(core, WcStatus::RetryExceeded);
        }
    }
}

/// The version of the table of regions by which the memory of all of entry `counter` is what its keys say; none
/// when it is not.
fn check_entry(verbs: &Verbs, core: &mut Core, counter: u32) -> Option<u64> {
    let wqe = verbs.send.queue.get(counter);
    let is_sound = wqe.op.is_fetch() || verbs.send.gather(&verbs.head, core, counter, 0, wqe.length);
    is_sound.then(|| core.objects.mrs.version())
}

/// The next transaction of the entry at `queue.next`; none when its local memory is not what its keys say, which is
/// not looked at when it `is_sound`. Its headers are asked for when it leaves.
#[inline(always)]
fn submission(verbs: &Verbs, core: &mut Core, counter: u32, is_sound: bool) -> Option<Submission> {
    let wqe = verbs.send.queue.get(counter);
    let index = verbs.send.queue.sent_of_next;
    let place = place_of(&verbs.head, wqe, index);
    let payload_len = if wqe.op.is_fetch() { 0 } else { place.part };
    if !is_sound && !verbs.send.gather(&verbs.head, core, counter, place.offset, payload_len) {
        return None;
    }
    let (kind, length) = if wqe.op.is_fetch() {
        (Kind::Pull, answer_len(wqe.op, place.part))
    } else {
        (Kind::Push, header::operation(wqe, &[], &place).request_len(payload_len))
    };
    // The receive that a Send needs is its first packet's.
    let continues = index > 0 && wqe.op.is_send();
    Some(Submission { kind, length: length as u16, payload_len, ulp: None, tag: tag(counter, index), continues })
}

/// Where in its message transaction `index` of `wqe` is.
#[inline(always)]
fn place_of(head: &Head, wqe: &SendWqe, index: u32) -> header::Place {
    let mtu = head.mtu();
    let offset = index * mtu;
    let (position, part) = (Position::of(index, wqe.packets), (wqe.length - offset).min(mtu));
    header::Place { index, position, offset, part }
}

/// Bytes of the answer to a Pull: what its request asks for.
fn answer_len(op: WqeOp, part: u32) -> u32 {
    if op.is_atomic() {
        Operation::AtomicResponse { original: 0, sink: SinkTag::default() }.request_len(0)
    } else {
        Operation::ReadResponse { position: Position::Only, sink: SinkTag::default() }.request_len(part)
    }
}

/// Whether the peer said so, and can go on.
const fn is_remote(status: WcStatus) -> bool {
    matches!(status, WcStatus::RemoteInvalidRequest | WcStatus::RemoteAccess | WcStatus::RemoteOperational)
}

/// What a request that found no room waits for.
#[cold]
fn lack_of(nic: &Nic, connection: &Connection, submission: &Submission) -> Lack {
    let transactions = connection.transactions();
    if transactions.requests_exceed_share(&nic.resources) {
        Lack::Share
    } else if submission.continues && transactions.holds_nothing() {
        Lack::Reserve
    } else {
        Lack::Request
    }
}

fn status_of(completion: &Completion) -> WcStatus {
    match completion.code {
        CompletionCode::TargetCompleteInError | CompletionCode::TargetNonRecoverable => {
            WcStatus::refused(header::nak_of(completion.ulp_code))
        }
        CompletionCode::TargetInvalidCid => WcStatus::RemoteInvalidRequest,
        CompletionCode::LocalTimeout | CompletionCode::DeadConnection => WcStatus::RetryExceeded,
        CompletionCode::LocalXlr => WcStatus::LocalProtection,
        CompletionCode::OperationError => WcStatus::BadResponse,
        CompletionCode::RemoteError => status_of_resync(completion.ulp_code),
        _ => WcStatus::LocalQpOperation,
    }
}

/// What it means to a fetch that the target gave up answering. Where nothing of the answer got through, that is what
/// verbs call exceeded retries, whoever counts them: with the RoCE family the requester does, for answers too.
fn status_of_resync(code: u8) -> WcStatus {
    match ResyncCode::from_code(code) {
        Some(ResyncCode::RetransmissionExhausted | ResyncCode::TransactionTimeout) => WcStatus::RetryExceeded,
        // Its memory was gone when the data was to leave (`serve.rs`).
        Some(ResyncCode::LocalXlr) => WcStatus::RemoteAccess,
        _ => WcStatus::RemoteOperational,
    }
}

/// Checks an entry of a queue pair that Falcon carries: without order, what takes a receive is one packet.
#[cold]
#[inline(never)]
pub(crate) fn check_order(head: &Head, wqe: &SendWqe) -> Result<(), PostError> {
    let is_unordered = head.transport.falcon().is_some_and(|shape| shape.ordering == FalconOrdering::Unordered);
    let is_alone = matches!(wqe.op, WqeOp::Write | WqeOp::Read) || wqe.op.is_atomic();
    if is_unordered && !is_alone && wqe.packets > 1 {
        return Err(PostError::TooLongWithoutOrder { bytes: wqe.length, mtu: head.mtu() });
    }
    Ok(())
}
