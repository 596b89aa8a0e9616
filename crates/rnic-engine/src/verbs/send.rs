//! The send queue: posting, sequence numbers of its entries, local memory, completing and flushing.
//!
//! This module follows a send queue entry up to its completion, for every protocol: when it may start, its sequence
//! numbers, how much of it has been sent and acknowledged, and its failure.

mod flows;
mod local;

use rnic_base::Seq;
use rnic_wire::{Aeth, Headers, NakCode, Packet, Syndrome};

use super::gather::for_each_segment;
use super::head::Head;
use super::placement::placement_entry;
use crate::completion::{Completion, WcFlags, WcOpcode, WcStatus};
use crate::config::{QpAttributes, QpTiming};
use crate::core::Core;
use crate::dma::{Dma, Segment};
use crate::error::PostError;
use crate::event::AsyncEvent;
use crate::latency::OperationTimes;
use crate::mr::Access;
use crate::state::QpState;
use crate::stats::WaitReason;
use crate::wq::{SendQueue, SendWqe, WqeOp, WqeState};
use crate::wr::{SendFlags, SendOp, SendRequest};
use local::bind_entry;

pub(crate) use flows::Course;

/// The sending half of the verbs state of a queue pair.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) queue: SendQueue,
    /// First sequence number this queue pair has used, in the request space and in the response space.
    pub(crate) start: Seq,
    /// The entry that will fail and its status, while earlier entries are still in flight. No new packets are sent.
    pub(crate) known_failure: Option<(u32, WcStatus)>,
    /// `recv_WQE_SN` of the next request that consumes a receive.
    next_recv_sn: u32,
    /// `read_WQE_SN` of the next read or atomic.
    next_read_sn: u32,
    /// Number of reads and atomics in flight.
    pub(crate) fetches: u8,
    pub(crate) fetches_max: u8,
    /// See [`QpTiming`]; larger values saturate at the maximum of this type.
    retry_count: u16,
    rnr_retry: Option<u16>,
}

impl SendHalf {
    pub(crate) fn new(attributes: &QpAttributes) -> Self {
        Self {
            queue: SendQueue::new(attributes.max_send_wr, attributes.max_send_sge),
            start: Seq::UNSET,
            known_failure: None,
            next_recv_sn: 0,
            next_read_sn: 0,
            fetches: 0,
            fetches_max: 0,
            retry_count: RETRY_COUNT_UNSET,
            rnr_retry: None,
        }
    }

    /// Applies the limits on retries without a response from the peer, and on the number of reads and atomics in
    /// flight.
    pub(crate) fn set_limits(&mut self, timing: &QpTiming) {
        self.retry_count = timing.retry_count.min(u16::MAX.into()) as u16;
        self.rnr_retry = timing.rnr_retry.map(|count| count.min(u16::MAX.into()) as u16);
        self.fetches_max = timing.max_rd_atomic as u8;
    }

    /// Returns the number of consecutive timeouts that are tolerated.
    #[inline]
    pub(crate) fn retry_count(&self) -> u32 {
        self.retry_count.into()
    }

    /// Returns whether `rnr_naks` consecutive receiver-not-ready responses exceed the limit.
    pub(crate) fn exceeds_rnr_retry(&self, rnr_naks: u32) -> bool {
        self.rnr_retry.is_some_and(|limit| rnr_naks > limit.into())
    }

    /// Returns the entry for `request`, or the reason why it cannot be posted. No state is changed.
    #[inline(always)]
    pub(crate) fn prepare(&self, head: &Head, request: &SendRequest<'_>) -> Result<SendWqe, PostError> {
        let queue = &self.queue;
        if !head.state.accepts_sends() {
            return Err(PostError::State(head.state));
        }
        if queue.is_full() {
            return Err(PostError::QueueFull);
        }
        if request.sges.len() > queue.sges_max() {
            return Err(PostError::TooManySges { requested: request.sges.len(), limit: queue.sges_max() });
        }
        let mut wqe = compact(request, head.mtu())?;
        if head.signal_all {
            wqe.flags |= SendFlags::SIGNALED;
        }
        if head.transport.operations & wqe.op.bit() == 0 {
            return flows::entry_on_flow(&head.transport, wqe);
        }
        if head.transport.split && wqe.op == WqeOp::Read {
            // The response has separate sequence numbers.
            wqe.packets = 1;
        }
        Ok(wqe)
    }

    /// Queues an entry made by [`SendHalf::prepare`]; returns whether it is to be sent. In an error state it is
    /// flushed.
    #[inline(always)]
    pub(crate) fn post(&mut self, head: &Head, core: &mut Core, wqe: SendWqe, request: &SendRequest<'_>) -> bool {
        self.queue.push(wqe, request.sges);
        let may_send = head.state.sends();
        if !may_send {
            self.flush(head, core);
        }
        may_send
    }

    /// Checks whether the next entry may start, credit not considered; packets up to `una` are acknowledged.
    ///
    /// # Errors
    /// The reason why it must wait, or `None` when there is no entry that may start.
    #[inline]
    pub(crate) fn may_begin(&self, head: &Head, una: Seq) -> Result<(), Option<WaitReason>> {
        if head.state == QpState::SendQueueDrained {
            return Err(None);
        }
        let wqe = self.queue.get(self.queue.next);
        if wqe.flags.contains(SendFlags::FENCE) && self.fetches > 0 {
            return Err(Some(WaitReason::Fence));
        }
        if wqe.op.is_fetch() && self.fetches >= self.fetches_max {
            return Err(Some(WaitReason::ReadLimit));
        }
        if head.transport.orders_messages && self.waits_for_earlier(head, wqe, una) {
            return Err(Some(WaitReason::Fence));
        }
        Ok(())
    }

    /// Returns whether `wqe` waits for earlier requests: for requests on other flows, because it keeps the order in
    /// which requests were posted, or for Writes to the same memory.
    #[cold]
    fn waits_for_earlier(&self, head: &Head, wqe: &SendWqe, una: Seq) -> bool {
        let waits_for_flows = head.transport.flows > 1 && !wqe.op.is_on_flow();
        waits_for_flows && self.is_carried_by_flows()
            || head.transport.fences_overlaps && self.overlaps_unarrived(wqe, una)
    }

    /// Returns whether `wqe` is a Write to memory that is also the target of an earlier, unacknowledged Write of this
    /// queue pair: a lost and retransmitted packet of the earlier Write would overwrite the newer data (IRN section
    /// 5.3.4). The comparison uses addresses; overlap of memory that two keys map at different addresses is not
    /// detected. Every entry in flight is checked, so at most as many as the send queue holds.
    fn overlaps_unarrived(&self, wqe: &SendWqe, una: Seq) -> bool {
        wqe.op.is_write()
            && self
                .in_progress()
                .filter(|earlier| earlier.op.is_write() && earlier.end() > una)
                .any(|earlier| flows::overlap(wqe, earlier))
    }

    /// Returns the entries that have started and have not completed, the oldest first.
    fn in_progress(&self) -> impl Iterator<Item = &SendWqe> {
        let queue = &self.queue;
        (0..queue.next.wrapping_sub(queue.head)).map(|age| queue.get(queue.head.wrapping_add(age)))
    }

    /// Assigns entry `counter` its numbers: `first` is the number of its first packet, which is about to be built. A
    /// fetch uses `reads` values of `read_WQE_SN`, which identifies fetches at their target.
    #[inline]
    pub(crate) fn begin(&mut self, counter: u32, first: Seq, reads: u32) {
        let entry = self.queue.get_mut(counter);
        entry.first = first;
        if entry.op.consumes_receive() {
            entry.sn = self.next_recv_sn;
            self.next_recv_sn = self.next_recv_sn.wrapping_add(1);
        } else if entry.op.is_fetch() {
            entry.sn = self.next_read_sn;
            self.next_read_sn = self.next_read_sn.wrapping_add(reads);
            self.fetches += 1;
        }
    }

    /// Reverts the start of entry `counter`, the last one started, which used `reads` values of `read_WQE_SN`.
    pub(crate) fn revert_start(&mut self, counter: u32, reads: u32) {
        let entry = self.queue.get_mut(counter);
        entry.first = Seq::UNSET;
        if entry.op.consumes_receive() {
            self.next_recv_sn = self.next_recv_sn.wrapping_sub(1);
        } else if entry.op.is_fetch() {
            self.next_read_sn = self.next_read_sn.wrapping_sub(reads);
            self.fetches -= 1;
        }
    }

    /// Records that `packets` more packets of the next entry have been passed on for sending; after its last packet,
    /// the following entry becomes the next.
    #[inline]
    pub(crate) fn advance(&mut self, packets: u32) {
        let counter = self.queue.next;
        self.queue.packets_sent_of_next += packets;
        if self.queue.packets_sent_of_next == self.queue.get(counter).packets {
            self.queue.packets_sent_of_next = 0;
            self.queue.next = counter.wrapping_add(1);
        }
    }

    /// Marks entry `counter` as one that cannot succeed: the oldest marked entry fails once it is at the head.
    pub(crate) fn mark_failed(&mut self, counter: u32, status: WcStatus) {
        let head = self.queue.head;
        let age = |other: u32| other.wrapping_sub(head);
        if self.known_failure.is_none_or(|(failing, _)| age(counter) < age(failing)) {
            self.known_failure = Some((counter, status));
        }
    }

    /// Collects the local memory of `len` bytes at `offset` of entry `counter`; returns false when a key does not cover
    /// it.
    #[inline(always)]
    pub(crate) fn gather(&self, head: &Head, core: &mut Core, counter: u32, offset: u32, len: u32) -> bool {
        let Core { objects, segments, .. } = core;
        segments.clear();
        if len == 0 {
            return true;
        }
        let sges = self.queue.sges(counter);
        for_each_segment(&objects.mrs, head.pd, sges, offset, len, Access::empty(), |_, segment| {
            segments.push(segment);
            Ok(())
        })
        .is_ok()
    }

    /// Places packet `index` of the response to entry `counter` in local memory.
    pub(crate) fn place_response<D: Dma>(
        &self,
        head: &Head,
        core: &Core,
        counter: u32,
        index: u32,
        packet: &Packet,
        dma: &mut D,
    ) -> Result<(), WcStatus> {
        let wqe = self.queue.get(counter);
        let sges = self.queue.sges(counter);
        let offset = u64::from(index) * u64::from(head.mtu());
        let bytes_left = u64::from(wqe.length).checked_sub(offset).ok_or(WcStatus::BadResponse)?;
        let expected_len = bytes_left.min(u64::from(head.mtu())) as u32;
        let (mrs, access) = (&core.objects.mrs, Access::LOCAL_WRITE);
        let protection = |_| WcStatus::LocalProtection;
        match packet.headers {
            Headers::ReadResponse { .. } if wqe.op.is_read_like() && packet.payload_len == expected_len => {
                let place = |at, segment| dma.place(at, segment);
                for_each_segment(mrs, head.pd, sges, offset as u32, expected_len, access, place).map_err(protection)
            }
            Headers::AtomicResponse { original, .. } if wqe.op.is_atomic() => {
                let mut first_segment: Option<Segment> = None;
                for_each_segment(mrs, head.pd, sges, 0, 8, access, |_, segment| {
                    first_segment.get_or_insert(segment);
                    Ok(())
                })
                .map_err(protection)?;
                // The result of an atomic must not be scattered: it must be eight bytes in one segment.
                let segment = first_segment.filter(|segment| segment.len == 8).ok_or(WcStatus::LocalProtection)?;
                dma.store(segment.local, original).map_err(|_| WcStatus::LocalProtection)
            }
            _ => Err(refusal_in(packet).map_or(WcStatus::BadResponse, WcStatus::refused)),
        }
    }

    /// Returns whether entry `counter` is posted and not completed.
    pub(crate) fn is_pending(&self, counter: u32) -> bool {
        let queue = &self.queue;
        counter.wrapping_sub(queue.head) < queue.tail.wrapping_sub(queue.head)
    }

    /// Completes the oldest entry with `status`, if there is one.
    pub(crate) fn fail_oldest(&mut self, head: &Head, core: &mut Core, status: WcStatus) {
        let queue = &mut self.queue;
        if !queue.is_empty() {
            let completion = send_completion(head.number, queue.get(queue.head), status);
            note_times(head, core, queue.head, queue.get(queue.head), status);
            queue.head = queue.head.wrapping_add(1);
            core.complete(head.send_cq, completion);
        }
    }

    /// Completes the next entry after its last packet has been passed on for sending, on services without
    /// acknowledgements.
    pub(crate) fn complete_sent(&mut self, head: &Head, core: &mut Core) {
        let queue = &mut self.queue;
        let wqe = queue.get(queue.next);
        if wqe.flags.contains(SendFlags::SIGNALED) {
            core.complete(head.send_cq, send_completion(head.number, wqe, WcStatus::Success));
        }
        if let Some(times) = &mut core.times {
            times.sent(head.slot, queue.next, core.now);
        }
        note_times(head, core, queue.next, wqe, WcStatus::Success);
        queue.next = queue.next.wrapping_add(1);
        queue.head = queue.next;
        self.queue.packets_sent_of_next = 0;
        if head.state == QpState::SendQueueDrained {
            self.report_if_drained(head, core);
        }
    }

    /// Notifies the program if the send queue is drained.
    pub(crate) fn report_if_drained(&self, head: &Head, core: &mut Core) {
        let queue = &self.queue;
        if queue.head == queue.next && self.queue.packets_sent_of_next == 0 {
            core.raise_event(AsyncEvent::SendQueueDrained(head.number));
        }
    }

    /// Completes every send request as flushed.
    #[cold]
    pub(crate) fn flush(&mut self, head: &Head, core: &mut Core) {
        let queue = &mut self.queue;
        while !queue.is_empty() {
            let entry = queue.get(queue.head);
            let completion = send_completion(head.number, entry, WcStatus::WrFlushed);
            // Where completions are not ordered, an entry may have completed before older ones.
            let is_completed = entry.state == WqeState::Completed;
            if !is_completed {
                note_times(head, core, queue.head, entry, WcStatus::WrFlushed);
            }
            queue.head = queue.head.wrapping_add(1);
            if !is_completed {
                core.complete(head.send_cq, completion);
            }
        }
        queue.next = queue.tail;
        self.queue.packets_sent_of_next = 0;
    }
}

impl WqeOp {
    pub(crate) fn wc_opcode(self) -> WcOpcode {
        match self {
            Self::Write | Self::WriteImm | Self::WriteOnFlow => WcOpcode::RdmaWrite,
            Self::Send | Self::SendImm | Self::SendInvalidate | Self::Datagram | Self::DatagramImm => WcOpcode::Send,
            Self::Read | Self::ReadOnFlow => WcOpcode::RdmaRead,
            Self::CompareSwap => WcOpcode::CompareSwap,
            Self::FetchAdd => WcOpcode::FetchAdd,
            Self::BindWindow => WcOpcode::BindWindow,
            Self::LocalInvalidate => WcOpcode::LocalInvalidate,
            Self::AtomicWrite => WcOpcode::AtomicWrite,
            Self::Flush => WcOpcode::Flush,
        }
    }
}

/// Records the times of entry `counter`, which is `wqe` and has completed with `status`, while they are collected.
#[inline]
pub(crate) fn note_times(head: &Head, core: &mut Core, counter: u32, wqe: &SendWqe, status: WcStatus) {
    let now = core.now;
    if let Some(times) = &mut core.times {
        let of = OperationTimes {
            wr_id: wqe.wr_id,
            qpn: head.number,
            peer: head.peer(),
            dest_qpn: head.dest_qpn,
            opcode: wqe.op.wc_opcode(),
            status,
            bytes: wqe.length,
            numbers: [Seq::UNSET; 2],
            posted: now,
            admitted: now,
            sent: now,
            completed: now,
        };
        times.completed(head.slot, counter, wqe.packets, &of, now);
    }
}

/// Returns the completion of `wqe` with `status`.
#[inline(always)]
pub(crate) fn send_completion(qpn: rnic_wire::Qpn, wqe: &SendWqe, status: WcStatus) -> Completion {
    Completion {
        wr_id: wqe.wr_id,
        qpn,
        status,
        opcode: wqe.op.wc_opcode(),
        byte_len: if wqe.op.reports_length() { wqe.length } else { 0 },
        word: 0,
        flags: WcFlags::empty(),
        source: rnic_wire::Qpn::default(),
    }
}

/// Returns the NAK code of a response that reports that its data is not available; `None` for other packets.
#[inline]
pub(crate) fn refusal_in(packet: &Packet) -> Option<NakCode> {
    match packet.headers {
        Headers::ReadResponse { aeth: Some(Aeth { syndrome: Syndrome::Nak(code), .. }), .. } => Some(code),
        _ => None,
    }
}

/// Checks `request` against the limits of verbs and converts it into its compact form.
#[inline]
fn compact(request: &SendRequest<'_>, mtu: u32) -> Result<SendWqe, PostError> {
    let length = match request.sges {
        [only] => u64::from(only.len),
        sges => sges.iter().map(|sge| u64::from(sge.len)).sum(),
    };
    if length > rnic_base::limits::MESSAGE_BYTES_MAX {
        return Err(PostError::MessageTooLong(length));
    }
    let mut wqe = SendWqe {
        wr_id: request.wr_id,
        length: length as u32,
        // Most messages are shorter than a packet; this check avoids the division for them.
        packets: if length <= u64::from(mtu) { 1 } else { (length as u32).div_ceil(mtu) },
        flags: request.flags,
        sge_count: request.sges.len() as u8,
        ..SendWqe::BLANK
    };
    match request.op {
        SendOp::Write { remote, immediate } => {
            (wqe.remote, wqe.rkey) = (remote.addr, remote.rkey);
            (wqe.op, wqe.word) = immediate.map_or((WqeOp::Write, 0), |word| (WqeOp::WriteImm, word));
        }
        SendOp::Send { immediate } => {
            (wqe.op, wqe.word) = immediate.map_or((WqeOp::Send, 0), |word| (WqeOp::SendImm, word));
        }
        SendOp::SendInvalidate { rkey } => (wqe.op, wqe.word) = (WqeOp::SendInvalidate, rkey),
        SendOp::Read { remote } => (wqe.op, wqe.remote, wqe.rkey) = (WqeOp::Read, remote.addr, remote.rkey),
        SendOp::CompareSwap { remote, compare, swap } => {
            (wqe.op, wqe.remote, wqe.rkey) = (WqeOp::CompareSwap, remote.addr, remote.rkey);
            (wqe.operand, wqe.swap) = (compare, swap);
        }
        SendOp::FetchAdd { remote, add } => {
            (wqe.op, wqe.remote, wqe.rkey) = (WqeOp::FetchAdd, remote.addr, remote.rkey);
            wqe.operand = add;
        }
        SendOp::Bind(binding) => bind_entry(&mut wqe, &binding),
        SendOp::AtomicWrite { remote, value } => {
            placement_entry(&mut wqe, WqeOp::AtomicWrite, remote, u64::from_ne_bytes(value));
        }
        SendOp::Flush { remote, len, placement, selectivity } => {
            placement_entry(&mut wqe, WqeOp::Flush, remote, u64::from(len));
            wqe.word = u32::from(placement) | u32::from(selectivity) << 8;
        }
        SendOp::LocalInvalidate { rkey } => {
            (wqe.op, wqe.rkey) = (WqeOp::LocalInvalidate, rkey);
            (wqe.length, wqe.packets) = (0, 0);
        }
        SendOp::Datagram { to, immediate } => {
            if length > u64::from(mtu) {
                return Err(PostError::DatagramTooLong { bytes: length, mtu });
            }
            if to.qpn.is_management() {
                return Err(PostError::Destination(to.qpn));
            }
            (wqe.remote, wqe.sn, wqe.rkey) = (u64::from(to.peer.0), to.qpn.get(), to.qkey);
            wqe.swap = to.mark;
            (wqe.op, wqe.word) = immediate.map_or((WqeOp::Datagram, 0), |word| (WqeOp::DatagramImm, word));
        }
    }
    if wqe.op.is_atomic() && length != 8 {
        return Err(PostError::AtomicLength(length));
    }
    Ok(wqe)
}

/// Retry count until the transition to `ReadyToSend` sets it. A queue pair that only serves Reads may never make that
/// transition, and its peer, which waits for the data, is expected to time out first: with timeouts of a millisecond,
/// this limit is reached after about a minute, and the peer is then considered unreachable.
const RETRY_COUNT_UNSET: u16 = u16::MAX;
