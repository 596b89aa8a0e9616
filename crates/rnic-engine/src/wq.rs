//! Work queues: rings of posted requests.
//!
//! Entries are addressed by a counter that only grows (and wraps at 2^32); a power-of-two ring keeps them. The counters
//! of a send queue run `head <= next <= tail`: completed | outstanding | not yet sent. Those of a receive queue are
//! IRN's `recv_WQE_SN`.

use rnic_base::{Seq, prefetch_at};

use crate::state::Service;
use crate::wr::{SendFlags, Sge};

/// What a send queue entry does; the compact form of [`crate::SendOp`].
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
}

impl WqeOp {
    #[inline]
    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns whether the responder answers with a response, and not with an acknowledgement alone.
    #[inline]
    pub(crate) const fn is_fetch(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd | Self::AtomicWrite | Self::Flush)
    }

    /// Returns whether the responder answers with Read responses.
    #[inline]
    pub(crate) const fn is_read_like(self) -> bool {
        matches!(self, Self::Read | Self::AtomicWrite | Self::Flush)
    }

    /// Returns whether it ends here: nothing of it travels.
    #[inline]
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::BindWindow | Self::LocalInvalidate)
    }

    /// What may be posted to a queue pair of `service`, as bits.
    pub(crate) const fn allowed(service: Service) -> u16 {
        let unacknowledged = Self::Write.bit() | Self::WriteImm.bit() | Self::Send.bit() | Self::SendImm.bit();
        let local = Self::BindWindow.bit() | Self::LocalInvalidate.bit();
        let answered = Self::SendInvalidate.bit() | Self::Read.bit() | Self::CompareSwap.bit() | Self::FetchAdd.bit();
        match service {
            Service::ReliableConnection => {
                unacknowledged | answered | local | Self::AtomicWrite.bit() | Self::Flush.bit()
            }
            Service::UnreliableConnection => unacknowledged | local,
            Service::UnreliableDatagram => Self::Datagram.bit() | Self::DatagramImm.bit(),
        }
    }

    /// The operations that may be posted to a queue pair on Falcon, as bits: RDMA over Falcon (chapter 8) has no
    /// packets for the memory placement extensions.
    pub(crate) const CARRIED_BY_FALCON: u16 =
        Self::allowed(Service::ReliableConnection) & !(Self::AtomicWrite.bit() | Self::Flush.bit());

    /// Its bit among those of [`WqeOp::allowed`].
    #[inline]
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u8
    }

    /// A Write, with or without immediate.
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    #[inline]
    pub(crate) const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInvalidate | Self::Datagram | Self::DatagramImm)
    }

    /// Whether it consumes a receive request at the far end.
    #[inline]
    pub(crate) const fn consumes_receive(self) -> bool {
        self.is_send() || matches!(self, Self::WriteImm)
    }
}

/// How far a send queue entry has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum WqeState {
    /// Waiting, or partly or wholly sent.
    Posted,
    /// A read or atomic whose data is all here.
    Fetched,
    /// Its completion has been left, although it is not the oldest.
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
    /// Compare operand, or summand; length of a binding; bytes of an atomic write; length of a flush; of what
    /// takes a receive of a shared receive queue at a target, the number of that.
    pub(crate) operand: u64,
    /// New value of a compare and swap; rights of a binding (`verbs/send/local.rs`); mark of a datagram.
    pub(crate) swap: u64,
    /// Remote key; queue key of a datagram; key of a window.
    pub(crate) rkey: u32,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// Sequence numbers that it takes.
    pub(crate) packets: u32,
    /// Immediate data, or the key to invalidate; key of the region of a binding; what a flush means.
    pub(crate) word: u32,
    /// `recv_WQE_SN` or `read_WQE_SN`; queue pair that a datagram is for.
    pub(crate) sn: u32,
    pub(crate) op: WqeOp,
    pub(crate) flags: SendFlags,
    pub(crate) sge_count: u8,
    pub(crate) state: WqeState,
}

const _: () = assert!(size_of::<SendWqe>() == 64);

impl SendWqe {
    /// What lies in a slot that has never been used.
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

    /// The sequence number after the last packet.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.first + u64::from(self.packets)
    }
}

/// A ring with room for a fixed number of scatter/gather entries beside each entry.
#[derive(Debug)]
struct Ring<T> {
    entries: Box<[T]>,
    sges: Box<[Sge]>,
    sges_each: u32,
    limit: u32,
}

impl<T: Copy> Ring<T> {
    fn new(limit: u32, sges_each: u32) -> Self {
        Self { entries: Box::default(), sges: Box::default(), sges_each, limit }
    }

    /// Makes the ring, when the first entry comes: a queue that is never used takes no memory.
    #[cold]
    fn make(&mut self, blank: T) {
        let capacity = self.limit.next_power_of_two() as usize;
        self.entries = vec![blank; capacity].into_boxed_slice();
        self.sges = vec![Sge::default(); capacity * self.sges_each as usize].into_boxed_slice();
    }

    #[inline]
    fn is_unmade(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    fn slot(&self, counter: u32) -> usize {
        // An empty ring has no slots: the mask wraps and the access below panics, as it must.
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

    /// The scatter/gather entries of `counter`, for writing.
    #[inline]
    fn put_sges(&mut self, counter: u32, sges: &[Sge]) {
        let first = self.slot(counter) * self.sges_each as usize;
        match sges {
            // The most common list by far, without a call to copy it.
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
    /// The entry whose next packet has never been sent.
    pub(crate) next: u32,
    /// Where the next entry will be posted.
    pub(crate) tail: u32,
    /// Packets (of a shared-space read: responses asked for) of the entry at `next` that have been sent.
    pub(crate) sent_of_next: u32,
}

impl SendQueue {
    pub(crate) fn new(limit: u32, sges_each: u32) -> Self {
        Self { ring: Ring::new(limit, sges_each), head: 0, next: 0, tail: 0, sent_of_next: 0 }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head) >= self.ring.limit
    }

    /// Entries that it still takes.
    pub(crate) fn room(&self) -> u32 {
        self.ring.limit.saturating_sub(self.tail.wrapping_sub(self.head))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Whether an entry still has packets that were never sent.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.next != self.tail
    }

    pub(crate) fn limit(&self) -> u32 {
        self.ring.limit
    }

    /// Has the oldest entry brought near, and the one that is handed in or sent for the first time.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.ring.prefetch(self.head);
        if self.has_unsent() {
            self.ring.prefetch(self.next);
        }
    }

    #[inline]
    pub(crate) fn sge_limit(&self) -> usize {
        self.ring.sges_each as usize
    }

    #[inline]
    pub(crate) fn push(&mut self, wqe: SendWqe, sges: &[Sge]) {
        if self.ring.is_unmade() {
            self.ring.make(SendWqe::BLANK);
        }
        *self.ring.get_mut(self.tail) = wqe;
        self.ring.put_sges(self.tail, sges);
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

    /// The entry that packet `seq` belongs to, among those of which something has been sent.
    pub(crate) fn find(&self, seq: Seq) -> Option<u32> {
        let started = self.under_way();
        // First entries are by far the most asked for: losses are repaired from the front.
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

    /// Entries of which something has been sent, and that are not complete.
    pub(crate) fn under_way(&self) -> u32 {
        self.next.wrapping_sub(self.head) + u32::from(self.partly_sent())
    }

    /// Whether the entry at `next` has some of its packets out already: then it has a first sequence number.
    fn partly_sent(&self) -> bool {
        self.has_unsent() && self.get(self.next).first != Seq::UNSET
    }
}

/// A receive queue entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    /// Bytes that fit.
    pub(crate) capacity: u64,
    pub(crate) sge_count: u8,
    /// The completion, once the message's last packet is here (IRN's "premature CQE", section 5.3.3).
    pub(crate) done: Option<RecvDone>,
}

impl RecvWqe {
    /// What lies in a slot that has never been used.
    const BLANK: Self = Self { wr_id: 0, capacity: 0, sge_count: 0, done: None };
}

/// What a receive completes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecvDone {
    /// The packet that ended the message: the completion may be delivered once all up to it have arrived.
    pub(crate) last: Seq,
    pub(crate) byte_len: u32,
    pub(crate) tail: RecvTail,
    pub(crate) solicited: bool,
}

/// What ended the message.
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
    /// `recv_WQE_SN` of the next entry to come.
    pub(crate) tail: u32,
}

impl RecvQueue {
    pub(crate) fn new(limit: u32, sges_each: u32) -> Self {
        Self { ring: Ring::new(limit, sges_each), head: 0, tail: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.ring.limit
    }

    pub(crate) fn limit(&self) -> u32 {
        self.ring.limit
    }

    #[inline]
    pub(crate) fn sge_limit(&self) -> usize {
        self.ring.sges_each as usize
    }

    #[inline]
    pub(crate) fn push(&mut self, wr_id: u64, sges: &[Sge]) {
        if self.ring.is_unmade() {
            self.ring.make(RecvWqe::BLANK);
        }
        let capacity = sges.iter().map(|sge| u64::from(sge.len)).sum();
        let wqe = RecvWqe { wr_id, capacity, sge_count: sges.len() as u8, done: None };
        *self.ring.get_mut(self.tail) = wqe;
        self.ring.put_sges(self.tail, sges);
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

    /// Whether entry `counter` is posted and not completed.
    #[inline]
    pub(crate) fn contains(&self, counter: u32) -> bool {
        counter.wrapping_sub(self.head) < self.len()
    }
}
