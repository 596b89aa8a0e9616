//! Translates send queue entries into transactions, and completions of transactions into completions of entries.
//!
//! Requests are submitted to the transaction layer as long as it accepts them (Xoff: F-34): the number that it holds
//! is limited by the resources, and by the permitted number of transactions in flight. A transaction is identified by
//! its entry and its index in the entry. An entry is finished when all its transactions are finished; entries finish
//! in order, or independently on unordered connections.

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
use crate::ready::Half;
use crate::scheduling::Scheduling;
use crate::state::QpState;
use crate::stats::WaitReason;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::verbs::send::{SendHalf, note_times, send_completion};
use crate::wq::{SendWqe, WqeOp, WqeState};
use crate::wr::SendFlags;

/// Progress of a send queue entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Sequence number (SN) of the entry's first packet; the numbers of its other packets follow.
    first_sn: u32,
    /// Number of transactions that have finished.
    done: u32,
    /// Status of the first transaction that failed.
    failed: Option<WcStatus>,
}

/// State of a queue pair for its own requests.
#[derive(Debug)]
pub(super) struct Requests {
    /// Sequence number (SN) of the next packet; the first is 1.
    next_sn: u32,
    /// Version of the table of memory regions with which the complete scatter/gather list of the entry being
    /// submitted was found valid. As long as the table has this version, the entry's packets are not checked again.
    checked_at_version: Option<u64>,
    ordering: FalconOrdering,
    errors: FalconErrors,
    /// Progress of the entries, indexed by send queue entry.
    pub(super) progress: Box<[Progress]>,
    /// Tag of the transaction for which the peer was not ready (RNR).
    refused: u64,
    /// Number of consecutive RNR NACKs of that transaction; 0 when there is no such transaction.
    times_refused: u32,
    /// Time of the next check whether a peer that still has to send data is alive: the requests are acknowledged, so
    /// no other timer would detect its failure.
    pub(super) watch: Deadline,
    /// Time since which the peer has been silent although it still has to send data.
    last_response_at: Time,
    /// Number of consecutive expirations of `watch` since then.
    silent_periods: u32,
}

/// Returns the tag of transaction `index` of entry `counter`.
const fn tag(counter: u32, index: u32) -> u64 {
    (counter as u64) << 32 | index as u64
}

/// Returns the entry and the index of a tag.
pub(super) const fn untag(tag: u64) -> (u32, u32) {
    ((tag >> 32) as u32, tag as u32)
}

impl Requests {
    pub(super) fn new(entries: u32, shape: &FalconShape) -> Self {
        Self {
            next_sn: 1,
            checked_at_version: None,
            ordering: shape.ordering,
            errors: shape.errors,
            progress: vec![Progress::default(); entries.max(1).next_power_of_two() as usize].into_boxed_slice(),
            refused: 0,
            times_refused: 0,
            watch: Deadline::NEVER,
            last_response_at: Time::ZERO,
            silent_periods: 0,
        }
    }

    fn slot(&self, counter: u32) -> usize {
        counter as usize & (self.progress.len() - 1)
    }

    fn of(&mut self, counter: u32) -> &mut Progress {
        let slot = self.slot(counter);
        &mut self.progress[slot]
    }

    /// Returns the sequence number (SN) of the first packet of entry `counter`.
    fn first_sn(&self, counter: u32) -> u32 {
        self.progress[self.slot(counter)].first_sn
    }

    /// Records that the peer is alive at `now`, or that no data requested before `now` is outstanding.
    #[inline]
    pub(super) fn note_peer_alive(&mut self, now: Time) {
        (self.last_response_at, self.silent_periods) = (now, 0);
    }
}

/// Result of an attempt to submit requests and, with NVMe, responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Submitted {
    /// True when some requests were submitted.
    pub(super) requests: bool,
    /// True when some responses were submitted.
    pub(super) responses: bool,
    /// Resource that the next request or response is blocked on: the attempt must be repeated when some of it is
    /// freed.
    pub(super) blocked_on: Option<BlockedOn>,
}

impl Submitted {
    /// Returns the result of this attempt and a later one together.
    pub(super) fn followed_by(self, later: Self) -> Self {
        Self {
            requests: self.requests || later.requests,
            responses: self.responses || later.responses,
            blocked_on: later.blocked_on,
        }
    }
}

/// Records that the transaction layer has accepted a transaction, the first one of entry `starts` if it starts one.
#[inline]
fn note_admission(verbs: &Verbs, core: &mut Core, connection: &Connection, starts: Option<u32>) {
    if let (Some(times), Some(counter)) = (&mut core.times, starts) {
        let submitted = connection.transactions().stats().submitted;
        times.admitted(verbs.head.slot, counter, core.now);
        times.numbered(verbs.head.slot, counter, verbs.send.start + (submitted - 1));
    }
}

impl Requests {
    /// Submits requests to the transaction layer, as long as it accepts them.
    pub(super) fn submit_pending(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        nic: &mut FalconNic,
        connection: &mut Connection,
        mut scheduling: Option<&mut Scheduling>,
    ) -> Submitted {
        let mut has_submitted = false;
        while verbs.send.queue.has_unsent() && verbs.head.state.sends() && verbs.send.known_failure.is_none() {
            let counter = verbs.send.queue.next;
            let starts_entry = verbs.send.queue.packets_sent_of_next == 0;
            if starts_entry && !self.may_begin(verbs, core, counter) {
                break;
            }
            if verbs.send.queue.get(counter).op.is_local() {
                if self.do_local_work(verbs, core, counter) {
                    continue;
                }
                break;
            }
            if scheduling.as_mut().is_some_and(|scheduling| scheduling.holds(core, Half::Requester)) {
                break;
            }
            if connection.transactions().is_full() {
                core.count_wait(WaitReason::Cap);
                break;
            }
            if starts_entry {
                let first_sn = self.next_sn;
                *self.of(counter) = Progress { first_sn, ..Progress::default() };
                let packets = verbs.send.queue.get(counter).packets;
                // One sequence number for each packet (RDMA over Falcon 8.3.2): at the target, it identifies the
                // table entry in which the packet waits.
                verbs.send.begin(counter, verbs.send.start, packets);
                connection.expect(packets);
                self.checked_at_version = check_entry(verbs, core, counter);
            }
            // If the complete list was valid, each part of it is valid too until a region changes.
            let checked_at_version = self.checked_at_version == Some(core.objects.mrs.version());
            let Some(submission) = submission(verbs, core, counter, checked_at_version) else {
                self.fail_entry(verbs, core, counter, WcStatus::LocalProtection);
                break;
            };
            if connection.submit(&mut nic.resources, &submission).is_err() {
                if starts_entry {
                    verbs.send.revert_start(counter, verbs.send.queue.get(counter).packets);
                }
                core.count_wait(WaitReason::Window);
                let blocked_on = Some(missing_resource(nic, connection, &submission));
                return Submitted { requests: has_submitted, responses: false, blocked_on };
            }
            note_admission(verbs, core, connection, starts_entry.then_some(counter));
            has_submitted = true;
            self.next_sn = self.next_sn.wrapping_add(1);
            if verbs.send.queue.get(counter).op.is_fetch() {
                self.watch_fetch(verbs, core.now, starts_entry);
            }
            verbs.send.advance(1);
            if let Some(scheduling) = &mut scheduling {
                let has_work = verbs.send.queue.has_unsent();
                let bytes = (submission.payload_len, submission.payload_len);
                scheduling.on_submitted(&verbs.head, core, bytes, Half::Requester, has_work);
            }
        }
        if let Some(scheduling) = scheduling {
            scheduling.limiter.note_work(Half::Requester, verbs.send.queue.has_unsent());
        }
        Submitted { requests: has_submitted, responses: false, blocked_on: None }
    }

    /// Returns whether entry `counter` may begin; otherwise the reason is counted, and an entry that never may fails.
    fn may_begin(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) -> bool {
        let Err(reason) = verbs.send.may_begin(&verbs.head, verbs.send.start) else { return true };
        if let Some(reason) = reason {
            core.count_wait(reason);
            if reason == WaitReason::ReadLimit && verbs.send.fetches_max == 0 {
                self.fail_entry(verbs, core, counter, WcStatus::LocalQpOperation);
            }
        }
        false
    }

    /// Executes entry `counter`, which needs no packet; returns whether it succeeded.
    fn do_local_work(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) -> bool {
        *self.of(counter) = Progress::default();
        if let Err(status) = verbs.send.do_local(&verbs.head, core, counter) {
            self.fail_entry(verbs, core, counter, status);
            return false;
        }
        verbs.send.begin(counter, verbs.send.start, 0);
        verbs.send.advance(0);
        self.finish_entries(verbs, core, counter);
        true
    }

    /// Arms `watch`, because the peer will have to send data; `starts_entry` is `true` for the first transaction of an
    /// entry.
    fn watch_fetch(&mut self, verbs: &Verbs, now: Time, starts_entry: bool) {
        if starts_entry && verbs.send.fetches == 1 {
            self.note_peer_alive(now);
        }
        if !self.watch.is_set() {
            self.watch = Deadline::after(now, verbs.head.transport.response_timeout);
        }
    }

    /// Returns the headers of the transaction with `tag`; called each time its packet is sent. For an entry that no
    /// longer exists, the headers have no valid content: a Pull may be retransmitted after its data has arrived, and
    /// the target then uses only its number; a Push of a failed queue pair that still responds is replaced by a
    /// Resync, so its headers are not sent (`drive.rs`).
    #[inline(always)]
    pub(super) fn header(&self, verbs: &Verbs, tag: u64) -> Header {
        let (counter, index) = untag(tag);
        if !verbs.send.is_pending(counter) {
            let (reth, sink, placeholder) = (Reth::default(), SinkTag::default(), rnic_base::Serial::new(0));
            let operation = Operation::ReadRequest { reth, rmsn: placeholder, sink };
            return Header {
                dest_qpn: verbs.head.dest_qpn,
                sn: placeholder,
                solicited: false,
                complete_in_error: false,
                operation,
            };
        }
        let wqe = verbs.send.queue.get(counter);
        let location = position_of(&verbs.head, wqe, index);
        Header {
            dest_qpn: verbs.head.dest_qpn,
            sn: self.packet_sn(counter, index),
            solicited: location.position.ends()
                && wqe.flags.contains(SendFlags::SOLICITED)
                && wqe.op.consumes_receive(),
            complete_in_error: false,
            operation: header::operation(wqe, verbs.send.queue.sges(counter), &location),
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
        if !verbs.head.state.sends() || !verbs.send.is_pending(counter) {
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
        let fails_alone = self.errors == FalconErrors::CompleteInError && is_remote(status);
        if !fails_alone {
            verbs.send.mark_failed(counter, status);
        }
        self.finish_entries(verbs, core, counter);
    }

    /// Completes all finished entries, after the state of entry `counter` has changed.
    pub(super) fn finish_entries(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
        let head = verbs.send.queue.head;
        if self.ordering == FalconOrdering::Unordered {
            self.finish_unordered(verbs, core, counter);
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
            verbs.send.report_if_drained(&verbs.head, core);
        }
    }

    /// On an unordered connection: completes entry `counter` if it is finished, regardless of the entries before it.
    fn finish_unordered(&mut self, verbs: &mut Verbs, core: &mut Core, counter: u32) {
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
        note_times(&verbs.head, core, counter, &wqe, status);
        if wqe.flags.contains(SendFlags::SIGNALED) || status != WcStatus::Success {
            core.complete(verbs.head.send_cq, send_completion(verbs.head.number, &wqe, status));
        }
    }

    /// Handles an RNR NACK for the transaction with `tag`. Consecutive RNR NACKs are counted only for the oldest
    /// transaction: on an ordered connection, the transactions after it are refused together with it.
    pub(super) fn on_rnr_nack(&mut self, verbs: &mut Verbs, core: &mut Core, tag: u64) {
        verbs.stats.rnr_naks += 1;
        let (counter, _) = untag(tag);
        if !verbs.head.state.sends() || !verbs.send.is_pending(counter) {
            return;
        }
        let head = verbs.send.queue.head;
        let age = |tag: u64| (untag(tag).0.wrapping_sub(head), untag(tag).1);
        let rnr_nacks = match self.times_refused {
            0 => 1,
            rnr_nacks if self.refused == tag => rnr_nacks + 1,
            _ if age(self.refused) < age(tag) => return,
            _ => 1,
        };
        (self.refused, self.times_refused) = (tag, rnr_nacks);
        if verbs.send.exceeds_rnr_retry(rnr_nacks) {
            self.fail_entry(verbs, core, counter, WcStatus::RnrRetryExceeded);
        }
    }

    /// Returns the status with which the oldest entry of the send queue will complete, if it is known that it will
    /// fail: the peer has refused it, but has not yet acknowledged the Resync that follows.
    pub(super) fn known_failure(send: &SendHalf, connection: &Connection) -> Option<WcStatus> {
        let head = send.queue.head;
        let belongs_to_head = |tag: u64| untag(tag).0 == head && send.is_pending(head);
        let failure = connection.transactions().known_failure(belongs_to_head)?;
        (send.queue.get(head).state != WqeState::Completed).then(|| status_of(&failure))
    }

    /// Detects a peer that still has to send data, has acknowledged all packets, and has been silent for a long time.
    /// `watch` is not moved when a packet is received from the peer; when it expires, the time since that packet is
    /// checked.
    pub(super) fn watch_target(&mut self, verbs: &mut Verbs, core: &mut Core, connection: &Connection) {
        if !self.watch.is_due(core.now) {
            return;
        }
        if verbs.send.fetches == 0 || !verbs.head.state.sends() {
            (self.watch, self.silent_periods) = (Deadline::NEVER, 0);
            return;
        }
        let silence_max = verbs.head.transport.response_timeout;
        if core.now.since(self.last_response_at) < silence_max {
            self.watch = Deadline::after(self.last_response_at, silence_max);
            return;
        }
        let is_waiting = connection.delivery().all_acknowledged();
        self.silent_periods = if is_waiting { self.silent_periods + 1 } else { 0 };
        self.watch = Deadline::after(core.now, silence_max);
        if self.silent_periods > verbs.send.retry_count() {
            verbs.complete_failed_head(core, WcStatus::RetryExceeded);
        }
    }
}

/// Returns the version of the table of regions with which the keys of send queue entry `counter` cover all its local
/// memory; `None` when they do not.
fn check_entry(verbs: &Verbs, core: &mut Core, counter: u32) -> Option<u64> {
    let wqe = verbs.send.queue.get(counter);
    let checked_at_version = wqe.op.is_fetch() || verbs.send.gather(&verbs.head, core, counter, 0, wqe.length);
    checked_at_version.then(|| core.objects.mrs.version())
}

/// Returns the next transaction of the entry at `queue.next`; `None` when the keys do not cover its local memory,
/// which is not checked if `checked_at_version`. The transaction layer requests the headers when it sends the packet.
#[inline(always)]
fn submission(verbs: &Verbs, core: &mut Core, counter: u32, checked_at_version: bool) -> Option<Submission> {
    let wqe = verbs.send.queue.get(counter);
    let index = verbs.send.queue.packets_sent_of_next;
    let location = position_of(&verbs.head, wqe, index);
    let payload_len = if wqe.op.is_fetch() { 0 } else { location.part };
    if !checked_at_version && !verbs.send.gather(&verbs.head, core, counter, location.offset, payload_len) {
        return None;
    }
    let (kind, length) = if wqe.op.is_fetch() {
        (Kind::Pull, response_len(wqe.op, location.part))
    } else {
        (Kind::Push, header::operation(wqe, &[], &location).request_len(payload_len))
    };
    // The receive that a Send needs is consumed by its first packet.
    let continues = index > 0 && wqe.op.is_send();
    Some(Submission { kind, length: length as u16, payload_len, ulp: None, tag: tag(counter, index), continues })
}

/// Returns the position of transaction `index` of `wqe` in its message.
#[inline(always)]
fn position_of(head: &Head, wqe: &SendWqe, index: u32) -> header::MessagePosition {
    let mtu = head.mtu();
    let offset = index * mtu;
    let (position, part) = (Position::of(index, wqe.packets), (wqe.length - offset).min(mtu));
    header::MessagePosition { index, position, offset, part }
}

/// Returns the length in bytes of the response to a Pull, as announced in the request.
fn response_len(op: WqeOp, part: u32) -> u32 {
    if op.is_atomic() {
        Operation::AtomicResponse { original: 0, sink: SinkTag::default() }.request_len(0)
    } else {
        Operation::ReadResponse { position: Position::Only, sink: SinkTag::default() }.request_len(part)
    }
}

/// Returns `true` if the status was reported by the peer, in which case the queue pair can continue.
const fn is_remote(status: WcStatus) -> bool {
    matches!(status, WcStatus::RemoteInvalidRequest | WcStatus::RemoteAccess | WcStatus::RemoteOperational)
}

/// Returns the resource that a request which could not be submitted waits for.
#[cold]
fn missing_resource(nic: &FalconNic, connection: &Connection, submission: &Submission) -> BlockedOn {
    let transactions = connection.transactions();
    if transactions.requests_exceed_share(&nic.resources) {
        BlockedOn::Share
    } else if submission.continues && transactions.holds_no_resources() {
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

/// Returns the status of a Read or atomic for which the target has stopped sending the response. If the target's
/// attempts are exhausted, the verbs status is exceeded retries, although here the target counts them: with the RoCE
/// family, the requester counts the retries for responses too.
fn status_of_resync(code: u8) -> WcStatus {
    match ResyncCode::from_code(code) {
        Some(ResyncCode::RetransmissionExhausted | ResyncCode::TransactionTimeout) => WcStatus::RetryExceeded,
        // The target's memory was no longer valid when the target was about to send the data (`serve.rs`).
        Some(ResyncCode::LocalXlr) => WcStatus::RemoteAccess,
        _ => WcStatus::RemoteOperational,
    }
}

/// Checks a send queue entry of a Falcon queue pair: on an unordered connection, a message that consumes a receive
/// must fit into one packet.
#[cold]
#[inline(never)]
pub(crate) fn check_order(head: &Head, wqe: &SendWqe) -> Result<(), PostError> {
    let is_unordered = head.transport.falcon().is_some_and(|shape| shape.ordering == FalconOrdering::Unordered);
    let needs_no_order = matches!(wqe.op, WqeOp::Write | WqeOp::Read) || wqe.op.is_atomic();
    if is_unordered && !needs_no_order && wqe.packets > 1 {
        return Err(PostError::TooLongWithoutOrder { bytes: wqe.length, mtu: head.mtu() });
    }
    Ok(())
}
