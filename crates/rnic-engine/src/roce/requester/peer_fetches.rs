//! FaSR's Read responses: the responder schedules and sends them like RDMA Writes.
//!
//! Source: FaSR (2025) section IV-D ("R-READ, similar to the WRITE operation, is scheduled on the responder") and
//! IV-B (which side runs which timer); mechanisms. The paper contains only these two sentences; the
//! following is this project's design:
//!
//! * *Sequence numbers*: when the first packet of a response is sent, the response is given a contiguous range of PSNs
//!   of the send direction of the responder's queue pair. From then on its packets are handled like those of a Write:
//!   both share the window, the limit of packets in flight, congestion control, the receive credit of the peer, the
//!   retransmission timer, loss recovery and, if the engine has a shared pool, one unit of it. The send queue and the
//!   requested responses alternate, one message each; while a message waits for a fence or for outstanding Reads,
//!   responses are sent before it. The queue pair state SQD stops the send queue only.
//! * *State and bound*: the request waits in the Read WQE buffer (`fetch/buffer.rs`) from its arrival until its
//!   response is acknowledged: as many as the peer may have outstanding (`max_dest_rd_atomic`), never more. The
//!   buffer gives the location of the data of a packet that must be retransmitted; no other state is kept.
//! * *At the remote end*: each packet carries the identifier of its Read and its position in the response, so that it
//!   is placed on arrival (`requester/scheduled_responses.rs`). The Read is complete when its last packet is
//!   processed in order: then all of its packets have arrived, and all packets that the responder sent before them.
//! * *Requests* are packets of the requester, acknowledged like others. Until one is acknowledged, it is
//!   retransmitted after each timeout, with a later timestamp. The duplicate has the same sequence number as the
//!   original, so that it is not served twice: it is acknowledged again, and the packets of the response in flight
//!   are not affected, because the responder has its own timer for them. The timestamp distinguishes requests that
//!   the requester has repeated from packets that the network has duplicated, for the statistics.
//! * *Errors*: a Read that is not permitted is refused with a NAK when the responses before it are acknowledged. If
//!   memory becomes invalid later, the requester is notified, and determines whether the data is still missing
//!   (`fetch/refused_fetch.rs`). A requester that cannot place a response fails its Read, and reports that with a
//!   NAK. If the requester never acknowledges, responses are retransmitted at growing intervals.
//! * *Atomics* are not in the paper: they are executed once, in order, and the response is handled like that of a
//!   Read of 8 bytes.
//!
//! The single sequence space has two consequences:
//!
//! * responses wait behind a Send for which the requester of the Read has posted no receive: its RNR pause applies to
//!   both. A program that posts a receive only when its Read is complete, while the remote end sends, waits
//!   indefinitely. With RoCE and IRN, such a program does not;
//! * a responder that was never moved to the RTS state does not know its first PSN yet: requests therefore carry the
//!   PSN of the response that the requester expects.

use rnic_base::Seq;
use rnic_wire::NakCode;

use super::Requester;
use crate::core::Core;
use crate::roce::fetch::Fetch;
use crate::roce::fetch::buffer::ReadBuffer;
use crate::stats::WaitReason;
use crate::verbs::Verbs;

/// The peer's fetch requests, and the progress of sending their responses.
#[derive(Debug)]
pub(crate) struct ScheduledServer {
    buffer: ReadBuffer,
    /// `read_WQE_SN` of the fetch whose packets are sent next.
    sending: u32,
    /// Number of packets of that fetch already sent.
    sent: u32,
    /// True when the last message sent was a response: the send queue is served next.
    requests_next: bool,
    /// Number of packets in flight whose credit at the peer is granted to other QPs, because they have not been
    /// acknowledged for a long time.
    granted: u64,
}

impl ScheduledServer {
    fn new(limit: u32) -> Self {
        Self { buffer: ReadBuffer::new(limit), sending: 0, sent: 0, requests_next: false, granted: 0 }
    }

    fn has_unsent(&self) -> bool {
        self.sending != self.buffer.begun()
    }
}

/// The peer's reads and atomics, where the responses are packets of the requester; empty before the first one
/// arrives.
#[derive(Debug, Default)]
pub(in crate::roce) struct PeerFetches(Option<Box<ScheduledServer>>);

impl PeerFetches {
    /// Returns the buffer of the peer's fetches, with `limit` slots; allocates it on first use.
    pub(in crate::roce) fn buffer(&mut self, limit: u32) -> &mut ReadBuffer {
        &mut self.0.get_or_insert_with(|| Box::new(ScheduledServer::new(limit))).buffer
    }

    /// Returns the fetch that is next in order, if its request has arrived.
    pub(in crate::roce) fn next_requested(&mut self) -> Option<&mut Fetch> {
        self.0.as_deref_mut()?.buffer.next()
    }

    /// Returns whether the peer has requested any fetch so far.
    #[inline]
    pub(in crate::roce) fn has_any(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the peer may still be waiting for a response.
    pub(in crate::roce) fn has_pending(&self) -> bool {
        self.0.as_ref().is_some_and(|server| server.buffer.is_busy())
    }

    fn server(&mut self) -> &mut ScheduledServer {
        self.0.as_deref_mut().expect("the peer has requested fetches")
    }

    /// Frees the slots of the responses that the peer has acknowledged, which are those before `una`.
    #[inline(never)]
    pub(super) fn free_acknowledged(&mut self, una: Seq) {
        if let Some(server) = self.0.as_deref_mut() {
            server.buffer.free_acknowledged(una);
        }
    }

    /// Records that request `seq`, which was received before, has arrived again with timestamp `stamp`.
    #[cold]
    pub(in crate::roce) fn note_resubmission(&mut self, core: &mut Core, seq: Seq, stamp: u32) {
        let Some(server) = self.0.as_deref_mut() else { return };
        // A packet duplicated by the network has a timestamp that was seen before; the comparison allows for clock
        // wraparound.
        if let Some(fetch) = server.buffer.requested_by(seq)
            && stamp.wrapping_sub(fetch.stamp).cast_signed() > 0
        {
            fetch.stamp = stamp;
            core.stats.reads_resubmitted += 1;
        }
    }

    /// Reclaims the credit at the peer that was granted to other QPs because responses were not acknowledged; returns
    /// the number of packets, if there were any.
    #[cold]
    pub(super) fn reclaim_granted(&mut self) -> Option<u64> {
        self.0.as_deref_mut().map(|server| std::mem::take(&mut server.granted)).filter(|granted| *granted > 0)
    }
}

/// Returns whether all packets in flight of this queue pair are responses to the peer's Reads and atomics.
pub(super) fn only_responses_in_flight(verbs: &Verbs) -> bool {
    let queue = &verbs.send.queue;
    verbs.head.transport.scheduled && queue.head == queue.next && queue.packets_sent_of_next == 0
}

impl Requester {
    /// Starts the next fetch, which is now in order.
    pub(in crate::roce) fn schedule_response(&mut self, verbs: &mut Verbs, core: &mut Core) {
        self.peer_fetches.server().buffer.begin();
        self.serves_responses = true;
        self.wake(verbs, core);
    }

    /// Builds the next new packet while responses wait: a packet of one of them, or of the send queue. A message is
    /// sent completely before the next one starts.
    #[inline(never)]
    pub(super) fn transmit_serving(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        if verbs.send.queue.packets_sent_of_next > 0 {
            return self.transmit_new(verbs, core);
        }
        let server = self.peer_fetches.server();
        let requests_next = server.requests_next && server.sent == 0;
        if requests_next
            && verbs.send.queue.has_unsent()
            && let Some(is_built) = self.transmit_own_request(verbs, core)
        {
            return is_built;
        }
        verbs.head.transmits() && self.transmit_response(verbs, core)
    }

    /// Sends a packet of the send queue's next message; returns `None` when a reason that applies only to the send
    /// queue blocks it.
    fn transmit_own_request(&mut self, verbs: &mut Verbs, core: &mut Core) -> Option<bool> {
        match self.packets_allowed(verbs, core) {
            Ok(_) => {
                let is_built = self.transmit_new(verbs, core);
                if is_built {
                    self.peer_fetches.server().requests_next = false;
                }
                if !is_built {
                    self.wake(verbs, core);
                }
                Some(is_built)
            }
            Err(None) => None,
            Err(Some(reason)) => {
                self.register_wait(verbs, core, reason);
                (!matches!(reason, WaitReason::Fence | WaitReason::ReadLimit)).then_some(false)
            }
        }
    }

    fn transmit_response(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        let (capacity, reason) = self.gate(verbs, core);
        if capacity == 0 {
            self.register_wait(verbs, core, reason);
            return false;
        }
        let next = self.window.next;
        let server = self.peer_fetches.server();
        let (sn, index) = (server.sending, server.sent);
        let fetch = server.buffer.at(sn).expect("a started fetch stays until it is acknowledged");
        if index == 0 {
            fetch.first = next;
        }
        let fetch = *fetch;
        fetch.respond_or_refuse(&mut self.shared, verbs, core, self.window.in_flight(), (index, false));
        let server = self.peer_fetches.server();
        server.sent += 1;
        if server.sent == fetch.packets {
            (server.sending, server.sent, server.requests_next) = (sn.wrapping_add(1), 0, true);
        }
        self.serves_responses = server.has_unsent();
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.sent(next, core.now);
        }
        self.window.sent(1, true, core.now, &verbs.head.transport);
        self.shared.arm(&verbs.head, core, self.window.deadline);
        core.peers.sent(verbs.head.peer(), 1);
        true
    }

    /// Builds packet `seq` of a response for retransmission.
    #[cold]
    pub(super) fn retransmit_response(&mut self, verbs: &mut Verbs, core: &mut Core, seq: Seq) -> bool {
        let found: Option<Fetch> = self.peer_fetches.0.as_deref_mut().and_then(|server| server.buffer.find(seq));
        let fetch = found.expect("an outstanding packet belongs to an entry or to a response");
        let index = seq.since(fetch.first) as u32;
        fetch.respond_or_refuse(&mut self.shared, verbs, core, self.window.in_flight(), (index, true));
        self.window.mark_retransmitted(seq, seq + 1, true, core.now, &verbs.head.transport);
        if verbs.head.transport.times_last_sent {
            self.window.restart_timer(core.now);
        }
        if let Some(watched) = core.watch.of(verbs.head.slot) {
            watched.round_trip.forget();
        }
        true
    }

    /// Handles the acknowledgement of responses up to `una` that the peer's next request implies.
    ///
    /// # Errors
    /// When an entry of the send queue that had to wait for this has failed.
    pub(in crate::roce) fn advance_responses(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        una: Seq,
    ) -> Result<(), NakCode> {
        self.advance(verbs, core, una);
        self.peer_fetches.free_acknowledged(self.window.una);
        if verbs.head.state.receives() { Ok(()) } else { Err(NakCode::RemoteOperationalError) }
    }

    /// Handles repeated timeouts when only responses are in flight: the queue pair does not fail, but retransmits
    /// them at growing intervals, like IRN's responses (`fetch/split.rs`). Returns whether only responses are in
    /// flight.
    #[cold]
    pub(super) fn back_off_responses(&mut self, verbs: &mut Verbs, core: &mut Core) -> bool {
        if !only_responses_in_flight(verbs) {
            return false;
        }
        // The NAK of a refused request is delayed until the responses before it are acknowledged. The wait ends here,
        // after more timeouts than the retry count permits: the queue pair fails, and a failed one sends the NAK
        // without waiting.
        if let Some(code) = verbs.recv.refused {
            verbs.fail_as_responder(core, code);
            return true;
        }
        // Timeouts computed from measured round-trip times already include a backoff.
        if !verbs.head.transport.measured {
            self.window.back_off(core.now, self.retries - verbs.send.retry_count());
        }
        self.has_granted_credit = true;
        let in_flight = self.window.in_flight();
        let Some(server) = self.peer_fetches.0.as_deref_mut() else { return false };
        let newly_granted = in_flight - std::mem::replace(&mut server.granted, in_flight);
        core.settle(verbs.head.peer(), newly_granted);
        true
    }
}
