//! Work queues: rings of posted requests.
//!
//! Entries are addressed by a counter that only increases (and wraps at 2^32); a ring of power-of-two size stores them.
//! The counters of a send queue run `head <= next <= tail`: completed | outstanding | not yet sent. Those of a receive
//! queue are IRN's `recv_WQE_SN`.

use rnic_base::{Seq, prefetch_at};

use crate::state::Service;
use crate::wr::{SendFlags, Sge};

/// Operation of a send queue entry; the compact form of [`crate::SendOp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum WqeOp {
    Write,
    WriteImm,
    Send,
    SendImm,
    SendInvalidate,
    Datagram,
    DatagramImm,
    Read,
    CompareSwap,
    FetchAdd,
    BindWindow,
    LocalInvalidate,
    AtomicWrite,
    Flush,
    /// A Write that another flow of the queue pair carries.
    WriteOnFlow,
    /// A Read that another flow of the queue pair carries.
    ReadOnFlow,
}

impl WqeOp {
    #[inline]
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns whether the responder sends a response, not only an acknowledgement.
    #[inline]
    pub(crate) const fn is_fetch(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd | Self::AtomicWrite | Self::Flush)
    }

    /// Returns whether the responder sends Read responses.
    #[inline]
    pub(crate) const fn is_read_like(self) -> bool {
        matches!(self, Self::Read | Self::AtomicWrite | Self::Flush)
    }

    /// Returns whether the queue pair itself sends no packets for the operation: it is executed locally, or another
    /// flow carries it.
    #[inline]
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::BindWindow | Self::LocalInvalidate) || self.is_on_flow()
    }

    /// Returns whether another flow of the queue pair carries the operation.
    #[inline]
    pub(crate) const fn is_on_flow(self) -> bool {
        matches!(self, Self::WriteOnFlow | Self::ReadOnFlow)
    }

    /// Returns whether the operation completes later than its packets are acknowledged: after a response, or by another
    /// flow.
    #[inline]
    pub(crate) const fn completes_later(self) -> bool {
        self.is_fetch() || self.is_on_flow()
    }

    /// Returns whether the completion contains the length of the data.
    #[inline]
    pub(crate) const fn reports_length(self) -> bool {
        self.is_fetch() || matches!(self, Self::ReadOnFlow)
    }

    /// Returns the operations that may be posted to a queue pair of `service`, as a bit mask.
    pub(crate) const fn allowed(service: Service) -> u16 {
        let without_response = Self::Write.bit() | Self::WriteImm.bit() | Self::Send.bit() | Self::SendImm.bit();
        let local_ops = Self::BindWindow.bit() | Self::LocalInvalidate.bit();
        let with_response =
            Self::SendInvalidate.bit() | Self::Read.bit() | Self::CompareSwap.bit() | Self::FetchAdd.bit();
        match service {
            Service::ReliableConnection => {
                without_response | with_response | local_ops | Self::AtomicWrite.bit() | Self::Flush.bit()
            }
            Service::UnreliableConnection => without_response | local_ops,
            Service::UnreliableDatagram => Self::Datagram.bit() | Self::DatagramImm.bit(),
        }
    }

    /// The operations that may be posted to a queue pair on Falcon, as a bit mask: RDMA over Falcon (chapter 8) has
    /// no packets for the memory placement extensions.
    pub(crate) const CARRIED_BY_FALCON: u16 =
        Self::allowed(Service::ReliableConnection) & !(Self::AtomicWrite.bit() | Self::Flush.bit());

    /// Returns the bit of the operation in [`WqeOp::allowed`].
    #[inline]
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u8
    }

    /// Returns whether the operation is a Write, with or without immediate.
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    #[inline]
    pub(crate) const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInvalidate | Self::Datagram | Self::DatagramImm)
    }

    /// Returns whether the operation consumes a receive request at the remote end.
    #[inline]
    pub(crate) const fn consumes_receive(self) -> bool {
        self.is_send() || matches!(self, Self::WriteImm)
    }
}

/// Progress of a send queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum WqeState {
    /// Waiting, or partly or completely sent.
    Posted,
    /// A read or atomic whose data has been received completely, or a request that another flow has completed.
    Fetched,
    /// The completion has been generated, although the entry is not the oldest.
    Completed,
}

/// A send queue entry: one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    /// Remote address of Write, Read and atomics; peer of a datagram; address of a binding.
    pub(crate) remote: u64,
    /// Sequence number of the first packet, once it has been sent.
    pub(crate) first: Seq,
    /// Compare operand or addend; length of a binding; bytes of an atomic write; length of a flush; for an operation
    /// that consumes a receive of a shared receive queue at a target, the number of that queue.
    pub(crate) operand: u64,
    /// By operation: new value of a compare and swap; access rights of a binding (`verbs/send/local.rs`); for a
    /// datagram, the destination's mark, which is passed to the driver with the packet.
    pub(crate) swap: u64,
    /// Remote key; queue key of a datagram; key of a window.
    pub(crate) rkey: u32,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// Number of sequence numbers that the entry uses.
    pub(crate) packets: u32,
    /// Immediate data, or the key to invalidate; key of the region of a binding; placement type and selectivity of a
    /// flush.
    pub(crate) word: u32,
    /// `recv_WQE_SN` or `read_WQE_SN`; destination queue pair of a datagram; flow that carries the request.
    pub(crate) sn: u32,
    pub(crate) op: WqeOp,
    pub(crate) flags: SendFlags,
    pub(crate) sge_count: u8,
    pub(crate) state: WqeState,
}

const _: () = assert!(size_of::<SendWqe>() == 64);

impl SendWqe {
    /// Content of a slot that has never been used.
    pub(crate) const BLANK: Self = Self {
        wr_id: 0,
        remote: 0,
        first: Seq::UNSET,
        operand: 0,
        swap: 0,
        rkey: 0,
        length: 0,
        packets: 0,
        word: 0,
        sn: 0,
        op: WqeOp::Send,
        flags: SendFlags::empty(),
        sge_count: 0,
        state: WqeState::Posted,
    };

    /// Returns the sequence number after the last packet.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.first + u64::from(self.packets)
    }
}

/// A ring with space for a fixed number of scatter/gather entries beside each entry.
#[derive(Debug)]
struct Ring<T> {
    entries: Box<[T]>,
    sges: Box<[Sge]>,
    sges_each: u32,
    capacity: u32,
}

impl<T: Copy> Ring<T> {
    fn new(capacity: u32, sges_each: u32) -> Self {
        Self { entries: Box::default(), sges: Box::default(), sges_each, capacity }
    }

    /// Allocates the ring when the first entry is posted: a queue that is never used uses no memory.
    #[cold]
    fn allocate(&mut self, blank: T) {
        let slots = self.capacity.next_power_of_two() as usize;
        self.entries = vec![blank; slots].into_boxed_slice();
        self.sges = vec![Sge::default(); slots * self.sges_each as usize].into_boxed_slice();
    }

    #[inline]
    fn is_unallocated(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn slot(&self, counter: u32) -> usize {
        // An empty ring has no slots: the mask wraps and the access below panics, as intended.
        counter as usize & self.entries.len().wrapping_sub(1)
    }

    #[inline]
    fn get(&self, counter: u32) -> &T {
        &self.entries[self.slot(counter)]
    }

    #[inline]
    fn get_mut(&mut self, counter: u32) -> &mut T {
        let slot = self.slot(counter);
        &mut self.entries[slot]
    }

    #[inline]
    fn prefetch(&self, counter: u32) {
        let slot = self.slot(counter);
        prefetch_at(&self.entries, slot);
        prefetch_at(&self.sges, slot.wrapping_mul(self.sges_each as usize));
    }

    /// Stores the scatter/gather entries of `counter`.
    #[inline]
    fn store_sges(&mut self, counter: u32, sges: &[Sge]) {
        let first = self.slot(counter) * self.sges_each as usize;
        match sges {
            // By far the most common list, stored without a call to copy it.
            [only] => self.sges[first] = *only,
            _ => self.sges[first..first + sges.len()].copy_from_slice(sges),
        }
    }

    #[inline(always)]
    fn sges(&self, counter: u32, count: u8) -> &[Sge] {
        let first = self.slot(counter) * self.sges_each as usize;
        &self.sges[first..first + count as usize]
    }
}

/// The send queue of a queue pair.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Ring<SendWqe>,
    /// Oldest entry that has not completed.
    pub(crate) head: u32,
    /// The first entry with packets that have never been sent.
    pub(crate) next: u32,
    /// Counter of the next entry to be posted.
    pub(crate) tail: u32,
    /// Number of packets (for a shared-space read: of responses requested) of the entry at `next` that have been sent.
    pub(crate) packets_sent_of_next: u32,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32, sges_each: u32) -> Self {
        Self { ring: Ring::new(capacity, sges_each), head: 0, next: 0, tail: 0, packets_sent_of_next: 0 }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head) >= self.ring.capacity
    }

    /// Returns the number of entries that can still be posted.
    pub(crate) fn free_entries(&self) -> u32 {
        self.ring.capacity.saturating_sub(self.tail.wrapping_sub(self.head))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Returns whether an entry still has packets that were never sent.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.next != self.tail
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    /// Prefetches the oldest entry, and the one that is posted or sent next.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.ring.prefetch(self.head);
        if self.has_unsent() {
            self.ring.prefetch(self.next);
        }
    }

    #[inline]
    pub(crate) fn sges_max(&self) -> usize {
        self.ring.sges_each as usize
    }

    #[inline]
    pub(crate) fn push(&mut self, wqe: SendWqe, sges: &[Sge]) {
        if self.ring.is_unallocated() {
            self.ring.allocate(SendWqe::BLANK);
        }
        *self.ring.get_mut(self.tail) = wqe;
        self.ring.store_sges(self.tail, sges);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn get(&self, counter: u32) -> &SendWqe {
        self.ring.get(counter)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, counter: u32) -> &mut SendWqe {
        self.ring.get_mut(counter)
    }

    #[inline]
    pub(crate) fn sges(&self, counter: u32) -> &[Sge] {
        self.ring.sges(counter, self.ring.get(counter).sge_count)
    }

    /// Returns the entry that packet `seq` belongs to, among the entries that have been sent at least in part.
    pub(crate) fn find(&self, seq: Seq) -> Option<u32> {
        let started = self.in_progress();
        // The oldest entries are by far the most frequently needed, because losses are recovered from the front.
        let (mut low, mut high) = (0, started);
        while low < high {
            let middle = low + (high - low) / 2;
            let wqe = self.get(self.head.wrapping_add(middle));
            if seq < wqe.first {
                high = middle;
            } else if seq >= wqe.end() {
                low = middle + 1;
            } else {
                return Some(self.head.wrapping_add(middle));
            }
        }
        None
    }

    /// Returns the number of entries that have been sent at least in part and are not complete.
    pub(crate) fn in_progress(&self) -> u32 {
        self.next.wrapping_sub(self.head) + u32::from(self.partly_sent())
    }

    /// Returns whether some packets of the entry at `next` have been sent already; in that case it has a first sequence
    /// number.
    fn partly_sent(&self) -> bool {
        self.has_unsent() && self.get(self.next).first != Seq::UNSET
    }
}

/// A receive queue entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    /// Bytes that fit into its scatter/gather list.
    pub(crate) capacity: u64,
    pub(crate) sge_count: u8,
    /// The completion, once the message's last packet has arrived (IRN's "premature CQE", section 5.3.3).
    pub(crate) done: Option<RecvDone>,
}

impl RecvWqe {
    /// Content of a slot that has never been used.
    const BLANK: Self = Self { wr_id: 0, capacity: 0, sge_count: 0, done: None };
}

/// Data with which a receive completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecvDone {
    /// The last packet of the message: the completion may be delivered once all packets up to it have arrived.
    pub(crate) last: Seq,
    pub(crate) byte_len: u32,
    pub(crate) tail: RecvTail,
    pub(crate) solicited: bool,
}

/// Type of operation that ended the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecvTail {
    Send,
    SendImm(u32),
    SendInvalidate(u32),
    WriteImm(u32),
}

/// The receive queue of a queue pair: its own entries, or those it has claimed from a shared queue.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    ring: Ring<RecvWqe>,
    /// `recv_WQE_SN` of the oldest entry.
    pub(crate) head: u32,
    /// `recv_WQE_SN` of the next entry to be added.
    pub(crate) tail: u32,
}

impl RecvQueue {
    pub(crate) fn new(capacity: u32, sges_each: u32) -> Self {
        Self { ring: Ring::new(capacity, sges_each), head: 0, tail: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.ring.capacity
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    #[inline]
    pub(crate) fn sges_max(&self) -> usize {
        self.ring.sges_each as usize
    }

    #[inline]
    pub(crate) fn push(&mut self, wr_id: u64, sges: &[Sge]) {
        if self.ring.is_unallocated() {
            self.ring.allocate(RecvWqe::BLANK);
        }
        let capacity = sges.iter().map(|sge| u64::from(sge.len)).sum();
        let wqe = RecvWqe { wr_id, capacity, sge_count: sges.len() as u8, done: None };
        *self.ring.get_mut(self.tail) = wqe;
        self.ring.store_sges(self.tail, sges);
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn get(&self, counter: u32) -> &RecvWqe {
        self.ring.get(counter)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, counter: u32) -> &mut RecvWqe {
        self.ring.get_mut(counter)
    }

    #[inline]
    pub(crate) fn sges(&self, counter: u32) -> &[Sge] {
        self.ring.sges(counter, self.ring.get(counter).sge_count)
    }

    /// Returns whether entry `counter` is posted and not completed.
    #[inline]
    pub(crate) fn contains(&self, counter: u32) -> bool {
        counter.wrapping_sub(self.head) < self.len()
    }
}
