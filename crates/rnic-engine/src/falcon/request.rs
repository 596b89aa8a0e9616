//! Translates send queue entries to transactions, and completions of transactions to completions of entries.
//!
//! Requests are submitted to the transaction layer as long as it accepts them (Xoff: F-34): the number that it holds is
//! limited by the resources, and by the permitted number of transactions in flight. A transaction is identified by its
//! entry and its index in the entry. An entry is finished when all its transactions are; entries finish in order, or,
//! without order, independently.

use rnic_base::Time;
use rnic_falcon::connection::Connection;
use rnic_falcon::transaction::{Completion, Kind, Submission};
use rnic_policy::{FalconErrors, FalconOrdering, FalconShape};
use rnic_wire::falcon::rdma::{Header, Operation, SinkTag, Sn};
use rnic_wire::falcon::{CompletionCode, ResyncCode};
use rnic_wire::{Position, Reth};

use super::header;
use super::{BlockedOn, FalconNic};
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

/// Progress of a send queue entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Sequence number (SN) of its first packet; the others' follow.
    first_sn: u32,
    /// Number of transactions that have finished.
    done: u32,
    /// Status of the first transaction that failed.
    failed: Option<WcStatus>,
}

/// State that a queue pair keeps for its own requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// Sequence number (SN) of the next packet; the first is 1.
    next_sn: u32,
    /// Version of the table of memory regions at which the complete scatter/gather list of the entry being submitted
    /// was found valid; while the table has that version, the entry's packets are not checked again.
    is_sound: Option<u64>,
    ordering: FalconOrdering,
    errors: FalconErrors,
    /// Progress of the entries, indexed by send queue entry.
    pub(super) progress: Box<[Progress]>,
    /// Tag of the transaction for which the peer was not ready.
    refused: u64,
    /// Number of consecutive RNR NACKs of that transaction; 0 when there is none.
    times_refused: u32,
    /// Time at which a peer that owes data is next checked for liveness: its request is acknowledged, so no other timer
    /// would detect a dead peer.
    pub(super) watch: Deadline,
    /// Time since which a peer that owes data has been silent.
    last_heard_at: Time,
    /// Number of consecutive expirations of the watch since then.
    silent_periods: u32,
}

/// Returns the tag of transaction `index` of entry `counter`.
const fn tag(counter: u32, index: u32) -> u64 {
    (counter as u64) << 32 | index as u64
}

/// Returns entry and index of a tag.
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
            last_heard_at: Time::ZERO,
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

    /// Returns the sequence number (SN) of the first packet of entry `counter`.
    fn first_sn(&self, counter: u32) -> u32 {
        self.progress[self.place(counter)].first_sn
    }

    /// Records that the peer is alive at `now`, or owes no data from before `now`.
    #[inline]
    pub(super) fn note_peer_alive(&mut self, now: Time) {
        (self.last_heard_at, self.silent_periods) = (now, 0);
    }
}

/// Result of an attempt to submit requests and, with NVMe, responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Submitted {
    /// True when some requests were submitted.
    pub(super) requests: bool,
    /// True when some responses were submitted.
    pub(super) answers: bool,
    /// Resource that the next item is blocked on: the attempt must be repeated when others free some.
    pub(super) lack: Option<BlockedOn>,
}

impl Requests {
    /// Submits requests to the transaction layer, as long as it accepts them.
    pub(super) fn submit_pending(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        connection: &mut Connection,
    ) -> Submitted {
        let mut any = false;
        while verbs.send.queue.has_unsent() && verbs.head.state.sends() && verbs.send.known_failure.is_none() {
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
                // One sequence number for each packet (RDMA over Falcon 8.3.2): it identifies the entry at the target
                // in which the packet waits.
                verbs.send.begin(counter, verbs.send.start, packets);
                connection.expect(packets);
                self.is_sound = check_entry(verbs, core, counter);
            }
            // When the complete list was valid, each part is valid too, until a region changes.
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
                return Submitted { requests: any, answers: false, lack };
            }
            any = true;
            self.next_sn = self.next_sn.wrapping_add(1);
            if verbs.send.queue.get(counter).op.is_fetch() {
                self.watch_fetch(verbs, core.now, starts);
            }
            verbs.send.advance(1);
        }
        Submitted { requests: any, answers: false, lack: None }
    }

    /// Arms the watch, because the peer will owe data; `starts` is true for the first transaction of an entry.
    fn watch_fetch(&mut self, verbs: &Verbs, now: Time, starts: bool) {
        if starts && verbs.send.fetches == 1 {
            self.note_peer_alive(now);
        }
        if !self.watch.is_set() {
            self.watch = Deadline::after(now, verbs.head.transport.response_patience);
        }
    }

    /// Returns the headers of the transaction with `tag`, each time its packet is sent. For an entry that no longer
    /// exists, the headers have no valid content: a Pull may be retransmitted when its data has already arrived, and
    /// its target uses only its number; and in place of a Push of a failed queue pair that still responds, a Resync is
    /// sent, whatever this returns (`drive.rs`).
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

    /// Returns the sequence number (SN) of the packet of transaction `index` of entry `counter`.
    #[inline(always)]
    pub(super) fn packet_sn(&self, counter: u32, index: u32) -> Sn {
        Sn::new(self.first_sn(counter).wrapping_add(index))
    }

    /// Handles the completion of a transaction of this queue pair.
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

    /// Marks entry `counter` as failed with `status`.
    pub(super) fn fail_entry(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32, status: WcStatus) {
        let progress = self.of(counter);
        progress.failed.get_or_insert(status);
        let alone = self.errors == FalconErrors::CompleteInError && is_remote(status);
        if !alone {
            verbs.send.mark_failed(counter, status);
        }
        self.finish_entries(verbs, core, counter);
    }

    /// Completes all finished entries, after the state of entry `counter` has changed.
    pub(super) fn finish_entries(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let head = verbs.send.queue.head;
        if self.ordering == FalconOrdering::Unordered {
            self.finish_alone(verbs, core, counter);
        }
        while verbs.send.queue.head != verbs.send.queue.tail {
            let counter = verbs.send.queue.head;
            if let Some((failing, status)) = verbs.send.known_failure
                && failing == counter
            {
                return verbs.complete_failed_head(core, status);
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

    /// Without order: completes entry `counter` when it is finished, whatever the state of the entries before it.
    fn finish_alone(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let queue = &verbs.send.queue;
        let wqe = queue.get(counter);
        let is_handed_in = counter.wrapping_sub(queue.head) < queue.next.wrapping_sub(queue.head);
        let is_failing = verbs.send.known_failure.is_some_and(|(failing, _)| failing == counter);
        let is_finished = is_handed_in && self.of(counter).done == wqe.packets;
        if is_finished && !is_failing && wqe.state != WqeState::Completed {
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

    /// Handles an RNR NACK for the transaction with `tag`. Consecutive RNR NACKs are counted only for the oldest
    /// transaction: on an ordered connection those behind it are refused with it.
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

    /// Returns the status with which the oldest entry of the send queue will complete, if it is known that it will
    /// fail: the peer has refused it, but has not yet acknowledged the Resync that follows.
    pub(super) fn known_failure(send: &SendHalf, connection: &Connection) -> Option<WcStatus> {
        let head = send.queue.head;
        let is_heads = |tag: u64| untag(tag).0 == head && send.owns(head);
        let failure = connection.transactions().known_failure(is_heads)?;
        (send.queue.get(head).state != WqeState::Completed).then(|| status_of(&failure))
    }

    /// Handles a peer that owes data, has acknowledged everything else, and has been silent for long. The watch is not
    /// moved when a packet of the peer is received: the time since then is checked when it expires.
    pub(super) fn watch_target(&mut self, verbs: &mut Verbs, core: &mut Core, connection: &Connection) {
        if !self.watch.is_due(core.now) {
            return;
        }
        if verbs.send.fetches == 0 || !verbs.head.state.sends() {
            (self.watch, self.silent_periods) = (Deadline::NEVER, 0);
            return;
        }
        let patience = verbs.head.transport.response_patience;
        if core.now.since(self.last_heard_at) < patience {
            self.watch = Deadline::after(self.last_heard_at, patience);
            return;
        }
        let waits = connection.delivery().is_quiet();
        self.silent_periods = if waits { self.silent_periods + 1 } else { 0 };
        self.watch = Deadline::after(core.now, patience);
        if self.silent_periods > verbs.send.retry_count() {
            verbs.complete_failed_head(core, WcStatus::RetryExceeded);
        }
    }
}

/// Returns the version of the table of regions at which the complete memory of entry `counter` is valid for its keys;
/// `None` when it is not.
fn check_entry(verbs: &Verbs, core: &mut Core, counter: u32) -> Option<u64> {
    let wqe = verbs.send.queue.get(counter);
    let is_sound = wqe.op.is_fetch() || verbs.send.gather(&verbs.head, core, counter, 0, wqe.length);
    is_sound.then(|| core.objects.mrs.version())
}

/// Returns the next transaction of the entry at `queue.next`; `None` when its local memory is not valid for its keys,
/// which is not checked when it `is_sound`. Its headers are requested when it is sent.
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
    // The receive that a Send needs is consumed by its first packet.
    let continues = index > 0 && wqe.op.is_send();
    Some(Submission { kind, length: length as u16, payload_len, ulp: None, tag: tag(counter, index), continues })
}

/// Returns the position of transaction `index` of `wqe` in its message.
#[inline(always)]
fn place_of(head: &Head, wqe: &SendWqe, index: u32) -> header::PacketPlace {
    let mtu = head.mtu();
    let offset = index * mtu;
    let (position, part) = (Position::of(index, wqe.packets), (wqe.length - offset).min(mtu));
    header::PacketPlace { index, position, offset, part }
}

/// Returns the length in bytes of the response to a Pull, which its request announces.
fn answer_len(op: WqeOp, part: u32) -> u32 {
    if op.is_atomic() {
        Operation::AtomicResponse { original: 0, sink: SinkTag::default() }.request_len(0)
    } else {
        Operation::ReadResponse { position: Position::Only, sink: SinkTag::default() }.request_len(part)
    }
}

/// Returns whether the status was reported by the peer, so that the queue pair can continue.
const fn is_remote(status: WcStatus) -> bool {
    matches!(status, WcStatus::RemoteInvalidRequest | WcStatus::RemoteAccess | WcStatus::RemoteOperational)
}

/// Returns the resource that a request which could not be submitted waits for.
#[cold]
fn lack_of(nic: &FalconNic, connection: &Connection, submission: &Submission) -> BlockedOn {
    let transactions = connection.transactions();
    if transactions.requests_exceed_share(&nic.resources) {
        BlockedOn::Share
    } else if submission.continues && transactions.holds_nothing() {
        BlockedOn::Reserve
    } else {
        BlockedOn::Request
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

/// Returns the status of a fetch whose response the target gave up sending. When no packet of the response arrived,
/// verbs calls this exceeded retries, regardless of which end counts them: with the RoCE family the requester counts,
/// for responses too.
fn status_of_resync(code: u8) -> WcStatus {
    match ResyncCode::from_code(code) {
        Some(ResyncCode::RetransmissionExhausted | ResyncCode::TransactionTimeout) => WcStatus::RetryExceeded,
        // The target's memory was no longer valid when the data was to be sent (`serve.rs`).
        Some(ResyncCode::LocalXlr) => WcStatus::RemoteAccess,
        _ => WcStatus::RemoteOperational,
    }
}

/// Checks an entry of a queue pair on Falcon: without order, a message that consumes a receive must be one packet.
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
