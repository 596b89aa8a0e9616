//! RDMA over Falcon: reliable connections that use Falcon packets.
//!
//! Sources: OCP RDMA over Falcon Transport, Rev 0.9, sections 6 and 8; OCP Falcon Transport Protocol, Rev 0.9,
//! sections 6 and 8; Falcon (SIGCOMM'25) section 4. Windows, acknowledgements, gates and transactions are implemented
//! in `rnic-falcon`; this module translates verbs into transactions and back. The verbs half of a queue pair (queues,
//! states, memory checks, flushing) is the same as with other transports.
//!
//! ```text
//!   engine/falcon.rs   functions of the engine that handle Falcon packets
//!   falcon/drive.rs    received packets, packets to send, timeouts: one queue pair at a time
//!   falcon/request.rs  send queue entries -> transactions; their completions -> completions
//!   falcon/upper.rs    callbacks of the transaction layer; payload that was buffered
//!   falcon/serve.rs    the peer's requests, in each of the three orders
//!   falcon/header.rs   conversion between the headers of RDMA over Falcon and those of the engine
//!   falcon/lifecycle.rs creation and end of a connection
//!   falcon/mapping.rs  the upper layer of a connection: RDMA, or NVMe (`nvme.rs`)
//!   falcon/prefetch.rs prefetching of state before it is needed
//!   falcon/credit.rs   credit at the peer, which the packets of all queue pairs share
//!   falcon/nic.rs      state that the connections of a NIC share
//! ```
//!
//! | verb | transactions of at most one MTU | headers |
//! |---|---|---|
//! | Write | a Push for each packet | RETH in each; with immediate data, SETH and ImmDt in the last |
//! | Send | a Push for each packet | SETH and OETH in each |
//! | Read | a Pull for each packet | RETH for its own part, SETH, STETH |
//! | atomics | a Pull | AtomicETH, SETH, STETH |
//!
//! | order | connection | what is in order |
//! |---|---|---|
//! | ordered | ordered | everything; the driver buffers payload that arrives out of order |
//! | weak | unordered | completions at both ends, Reads and atomics; data is placed as it arrives |
//! | unordered | unordered | nothing; Sends are limited to one packet, and so are Writes with immediate data |
//!
//! | error | at the target | at the initiator |
//! |---|---|---|
//! | a Push is refused | NACK that carries the code of RoCE's NAK as the upper layer's code | as that NAK in RoCE |
//! | a Pull is refused | Pull Data without data, marked "completed in error", with the code | as that NAK in RoCE |
//! | no receive is posted | NACK (RNR); the request is retransmitted with its payload | counted against `rnr_retry` |
//! | timeouts exhausted | | retries exceeded |
//! | local memory is invalid when a packet is to be sent | Resync instead of the packet | a local protection error |
//!
//! With error handling as in verbs, both queue pairs then fail. A queue pair that refused a request continues to
//! respond to its peer until it is reset: the peer needs the acknowledgement of the Resync that follows a NACK. With
//! "complete in error", only the request fails, and other transactions of the same message are refused with it;
//! failures of local memory, and of the connection, remain fatal.
//!
//! Choices on which the sources say nothing:
//!
//! * a queue pair's number is its connection identifier; PSNs and RSNs start at the PSNs that were agreed on at
//!   connection setup. A queue pair whose own start number is not set yet takes it from the bases in the peer's first
//!   packet;
//! * a Pull's response has the position "only" in the message: the target sees a Read only as separate Pulls;
//! * Reads and atomics in flight are limited at their initiator (`max_rd_atomic`), as in RoCE; the number of parts of
//!   a Read in flight is limited only by the number of transactions;
//! * the response to a refused atomic carries the code instead of the value; the response to a refused Read carries
//!   it instead of the address in its sink tag (STETH), which a failed response does not need. A response without a
//!   code is a remote access error;
//! * without order, a message consumes the oldest receive at the time of its arrival, not the one that corresponds to
//!   its number;
//! * a Read is split where packets are full, but not at the ends of the initiator's scatter/gather entries (6.7
//!   specifies both): the sink of a part that covers two entries is zeros. The initiator places data according to its
//!   own list, so targets of any implementation can serve it;
//! * the sequence number of a packet (SN) is checked in responses only: a target detects missing packets, and the
//!   order, by RSNs, and a Pull of a request that no longer exists has no SN (`request.rs`, `headers`).

mod credit;
mod drive;
mod header;
mod lifecycle;
mod mapping;
mod nic;
mod prefetch;
mod request;
mod serve;
mod upper;

use rnic_base::Seq;
use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::Delivery;
use rnic_nvme::device::Io;

use crate::core::Core;
use crate::error::PostError;
use crate::limiter::Limiter;
use crate::namespace::NvmeRole;
use crate::processors::Processed;
use crate::scheduling::{Scheduling, Started};
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::wq::SendWqe;
use credit::CreditUse;
use mapping::Mapping;
use nic::BlockedSet;

pub(crate) use drive::tick_nic;
pub(crate) use nic::{BlockedOn, FalconNic, NIC_TIMER_SLOT};

/// Maximum number of valid entries of a queue pair in the timer heap: about one for each type of timeout. When more are
/// needed, a valid entry is removed and armed again later.
const ARMED_DEADLINES_MAX: usize = 4;

/// Maximum number of entries of a queue pair in the timer heap, including entries that are no longer valid.
const TIMER_ENTRIES: usize = 4 * ARMED_DEADLINES_MAX;

/// A queue pair's Falcon connection, and its state in the rings of the NIC.
#[derive(Debug)]
pub(crate) struct FalconEnd {
    schedule: Schedule,
    /// The connection; created with the first packet in either direction.
    link: Option<Box<Endpoint>>,
    /// Role in NVMe, when NVMe is the upper layer.
    nvme: Option<Box<NvmeRole>>,
}

/// State of a queue pair in the rings and in the timer heap of its NIC.
#[derive(Debug)]
struct Schedule {
    /// `true` while the queue pair is in the ring of queue pairs that can send.
    queued: bool,
    /// The rings of blocked queue pairs that contain this queue pair.
    waits_for: BlockedSet,
    /// The queue pair's valid entries in the timer heap, earliest first. Timeouts for acknowledgements are
    /// microseconds, those for probes and packets are much longer: an entry for the latter stays valid while entries
    /// for the former expire before it.
    alarms: [Deadline; ARMED_DEADLINES_MAX],
    /// Scheduler and dequeue rate, if the scheduler processes events or the rate is limited.
    scheduling: Option<Box<Scheduling>>,
    /// The queue pair's far deadline ([`crate::timer::Timers::move_distant`]).
    distant_deadline: Deadline,
}

/// A connection, and the state that the upper layer has for it.
#[derive(Debug)]
struct Endpoint {
    connection: Connection,
    /// Index of the connection's adaptive engine in the NIC.
    adaptive: usize,
    mapping: Mapping,
    credit: CreditUse,
}

// This type has very many instances: this detects a change of its size that would move it into another size class of
// the allocator.
const _: () = assert!(size_of::<Endpoint>() <= 1_608);

impl Schedule {
    /// Adds the queue pair in `slot` to the ring of queue pairs that can send.
    #[inline]
    fn enlist(&mut self, slot: u32, core: &mut Core) {
        if !self.queued {
            self.queued = true;
            core.ready.push_falcon(slot, 0);
        }
    }

    /// Adds the queue pair to the ring of queue pairs blocked on `blocked_on`.
    fn wait_for(&mut self, nic: &mut FalconNic, slot: u32, blocked_on: BlockedOn) {
        if !self.waits_for.has(blocked_on) {
            self.waits_for.add(blocked_on);
            nic.push_waiting(slot, blocked_on);
        }
    }

    /// Moves the queue pair's far deadline to `deadline`.
    #[inline]
    fn set_distant_deadline(&mut self, slot: u32, core: &mut Core, deadline: Deadline) {
        if deadline != self.distant_deadline {
            core.timers.move_distant(slot, self.distant_deadline, deadline);
            self.distant_deadline = deadline;
        }
    }

    /// Arms an entry at `timeout`, which is earlier than all other entries of the queue pair in the timer heap.
    #[inline(never)]
    fn arm(&mut self, slot: u32, core: &mut Core, timeout: Deadline) {
        // When the array is full, the earliest entry is replaced: it will be the first to leave the heap.
        if !self.alarms[ARMED_DEADLINES_MAX - 1].is_set() {
            self.alarms.rotate_right(1);
        }
        self.alarms[0] = timeout;
        let mut not_armed = Deadline::NEVER;
        core.timers.arm(slot, timeout, &mut not_armed);
    }
}

impl FalconEnd {
    /// Returns the state of a queue pair whose connection does not exist yet; `nvme` is its role if NVMe is the upper
    /// layer.
    pub(crate) fn new(nvme: Option<Box<NvmeRole>>) -> Self {
        let alarms = [Deadline::NEVER; ARMED_DEADLINES_MAX];
        let schedule = Schedule {
            queued: false,
            waits_for: BlockedSet::NONE,
            alarms,
            scheduling: None,
            distant_deadline: Deadline::NEVER,
        };
        Self { schedule, link: None, nvme }
    }

    /// Replaces the limits of the dequeue rate.
    pub(crate) fn set_limiter(&mut self, verbs: &Verbs, core: &mut Core, mut limiter: Limiter) {
        limiter.update(core.now, verbs.head.mtu(), core.config.burst);
        if limiter.rate().is_some() || self.schedule.scheduling.is_some() {
            self.schedule.scheduling.get_or_insert_default().limiter = limiter;
            self.schedule.enlist(verbs.head.slot, core);
        }
    }

    /// Starts the scheduler if it processes events. The lengths of turns that other schedulers set have no meaning for
    /// Falcon.
    pub(crate) fn start_scheduler(&mut self, verbs: &Verbs, core: &mut Core) {
        if verbs.head.transport.scheduler_uses_events {
            let started = Started::new(&verbs.head, core);
            let scheduling = self.schedule.scheduling.get_or_insert_default();
            scheduling.leave(core);
            scheduling.start(&verbs.head, core, &started);
        }
    }

    /// See [`crate::qp::Qp::on_processed`].
    pub(crate) fn on_processed(&mut self, verbs: &Verbs, core: &mut Core, processed: &Processed) -> u32 {
        let Some(scheduling) = &mut self.schedule.scheduling else { return 0 };
        let share = scheduling.on_processed(&verbs.head, core, processed);
        // The timeout at which the rate applies is armed when the queue pair is served.
        self.schedule.enlist(verbs.head.slot, core);
        share
    }

    /// Applies a change of the weight of the queue pair.
    pub(crate) fn set_weight(&mut self, verbs: &Verbs, core: &mut Core) {
        if let Some(scheduling) = &mut self.schedule.scheduling {
            scheduling.set_weight(core, verbs.head.weight);
        }
    }

    /// Returns the limits of the dequeue rate, if it has ever been limited.
    pub(crate) fn limiter(&self) -> Option<&Limiter> {
        self.schedule.scheduling.as_ref().map(|scheduling| &scheduling.limiter)
    }

    /// Returns the role in NVMe, if NVMe is the upper layer.
    pub(crate) fn nvme_role(&self) -> Option<&NvmeRole> {
        self.nvme.as_deref()
    }

    /// Returns the number of invalid NVMe packets received from the peer.
    pub(crate) fn nvme_errors(&self) -> u64 {
        self.link.as_deref().map_or(0, |link| link.mapping.nvme_errors())
    }

    /// Checks whether an entry may be added to the send queue.
    #[inline]
    pub(crate) fn check(&self, head: &Head, wqe: &SendWqe) -> Result<(), PostError> {
        match &self.nvme {
            None => request::check_order(head, wqe),
            Some(role) => role.check(wqe),
        }
    }

    /// Handles the completion of `io` by the device of its namespace.
    pub(crate) fn on_device_completion(&mut self, io: &Io, verbs: &Verbs, core: &mut Core) {
        if let Some(end) = self.link.as_deref_mut().and_then(|link| link.mapping.nvme()) {
            end.on_device_completion(io);
            self.schedule.enlist(verbs.head.slot, core);
        }
    }

    /// Returns read access to the packet delivery layer of the connection; `None` before the first packet and after
    /// the end of the connection.
    pub(crate) fn delivery(&self) -> Option<&Delivery> {
        self.link.as_deref().map(|link| link.connection.delivery())
    }

    /// Returns the sequence numbers of a connection that can be queried, counted in transactions instead of packets:
    /// the first one not acknowledged, the next one to be sent for the first time, the next expected request, and the
    /// next expected response.
    pub(crate) fn numbers(&self, first_sent: Seq, first_received: Seq) -> [Seq; 4] {
        let stats = self.link.as_ref().map(|link| *link.connection.transactions().stats()).unwrap_or_default();
        let una = first_sent + stats.completed;
        [una, first_sent + stats.submitted, first_received + stats.delivered, una]
    }

    /// Returns the number of timeouts that acknowledgements have shown to be spurious.
    pub(crate) fn spurious_timeouts(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.connection.delivery().timeouts_spurious())
    }

    /// Returns `true` if `deadline`, which has expired in the timer heap, is a valid entry of this queue pair;
    /// removes the entry.
    pub(crate) fn remove_expired(&mut self, deadline: Deadline) -> bool {
        if self.schedule.distant_deadline == deadline {
            // The entry has already been removed from the set of far deadlines.
            self.schedule.distant_deadline = Deadline::NEVER;
            return true;
        }
        let alarms = &mut self.schedule.alarms;
        let index_found = alarms.iter().position(|alarm| *alarm == deadline);
        if let Some(index) = index_found {
            alarms[index..].rotate_left(1);
            alarms[ARMED_DEADLINES_MAX - 1] = Deadline::NEVER;
        }
        index_found.is_some()
    }
}
