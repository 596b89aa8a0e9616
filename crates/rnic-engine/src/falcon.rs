//! RDMA over Falcon: reliable connections that use Falcon packets.
//!
//! Sources: OCP RDMA over Falcon Transport, Rev 0.9, sections 6 and 8; OCP Falcon Transport Protocol, Rev 0.9, sections
//! 6 and 8; Falcon (SIGCOMM'25) section 4. Windows, acknowledgements, gates and transactions are implemented in
//! `rnic-falcon`; this module translates verbs into transactions and back. A queue pair keeps its verbs half: queues,
//! states, memory checks, flushing.
//!
//! ```text
//!   engine/falcon.rs   the doors
//!   falcon/drive.rs    a packet in, a packet out, a moment has come: one queue pair at a time
//!   falcon/request.rs  send queue entries -> transactions; their completions -> completions
//!   falcon/upper.rs    what the transaction layer asks and tells; payload that was kept
//!   falcon/serve.rs    the peer's requests, in each of the three orders
//!   falcon/header.rs   RDMA over Falcon's headers from and to the engine's
//!   falcon/life.rs     begin and end of a connection
//!   falcon/mapping.rs  the upper layer of a connection: RDMA, or NVMe (`nvme.rs`)
//!   falcon/prefetch.rs prefetching of state before it is needed
//!   falcon/room.rs     its packets at the peer: they count with those of all other queue pairs
//!   falcon/nic.rs      what the connections of a NIC share
//! ```
//!
//! | verb | transactions of at most one MTU | headers |
//! |---|---|---|
//! | Write | a Push for each packet | RETH in each; with immediate SETH and ImmDt in the last |
//! | Send | a Push for each packet | SETH and OETH in each |
//! | Read | a Pull for each packet | RETH for its own part, SETH, STETH |
//! | atomics | a Pull | AtomicETH, SETH, STETH |
//!
//! | order | connection | what is in order |
//! |---|---|---|
//! | ordered | ordered | everything; what comes early is kept by the body |
//! | weak | unordered | completions at both ends, Reads and atomics; data is placed as it comes |
//! | unordered | unordered | nothing; Sends of one packet, no Write with immediate of several |
//!
//! | what goes wrong | at the target | at the initiator |
//! |---|---|---|
//! | a Push is refused | NACK with the code of RoCE's NAK as the upper layer's | as such a NAK |
//! | a Pull is refused | Pull Data without data that says "completed in error", with the code | as such a NAK |
//! | no receive is posted | NACK (RNR), and it comes again with its payload | counted against `rnr_retry` |
//! | timeouts exhausted | | retries exceeded |
//! | memory of our own is gone when a packet is to leave | Resync in its place | a local protection error |
//!
//! With error handling as in verbs, both queue pairs fail then. A queue pair that refused a request continues to
//! respond to its peer until it is reset: the peer needs the acknowledgement of the Resync that follows a NACK. With
//! "complete in error", only the request fails, and other transactions of the same message are refused with it;
//! failures of local memory, and of the connection, remain fatal.
//!
//! Choices, where the sources are silent:
//!
//! * a queue pair's number is its connection identifier; PSNs and RSNs start at the PSNs that connection setup has
//!   agreed on. A queue pair whose own start number is not set yet learns it from the bases in the peer's first packet;
//! * a Pull's response has the position "only" in the message: a target recognises a Read by its parts;
//! * Reads and atomics in flight are limited at their initiator (`max_rd_atomic`), as in RoCE; of the parts of a Read,
//!   as many are in flight as transactions are permitted;
//! * the response to an atomic that is refused carries the code in place of the value, that to a Read in place of the
//!   address in its sink tag (STETH), which a failed response has no use for; a response without a code is a remote
//!   access error;
//! * without order, a message consumes the receive that is the oldest when it arrives, not the one that its number
//!   names;
//! * a Read is split where packets are full, not where a piece of the initiator's memory ends (6.7 specifies both): the
//!   sink of a part that covers two pieces is zeros. The initiator places data by its own list, so targets of any
//!   implementation can serve it;
//! * the sequence number of a packet (SN) is compared in responses only: a target detects missing packets, and the
//!   order, by RSNs, and a Pull of a request that no longer exists has none (`request.rs`, `headers`).

mod drive;
mod header;
mod life;
mod mapping;
mod nic;
mod prefetch;
mod request;
mod room;
mod serve;
mod upper;

use rnic_base::Seq;
use rnic_falcon::connection::Connection;
use rnic_falcon::delivery::Delivery;
use rnic_nvme::device::Io;

use crate::core::Core;
use crate::error::PostError;
use crate::namespace::NvmeRole;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::head::Head;
use crate::wq::SendWqe;
use mapping::Mapping;
use nic::BlockedSet;
use room::CreditUse;

pub(crate) use drive::tick_nic;
pub(crate) use nic::{BlockedOn, FalconNic, SLOT};

/// Maximum number of valid entries of a queue pair in the timer heap: about one for each type of timeout. When more are
/// needed, the displaced one is armed again when its time comes.
const ALARMS_MAX: usize = 4;

/// Maximum number of entries of a queue pair in the timer heap, including those that are no longer valid.
const TIMER_ENTRIES: usize = 4 * ALARMS_MAX;

/// A queue pair's Falcon connection, and its position in the rings of the NIC.
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
    /// Set while it is in the ring of queue pairs that can send.
    queued: bool,
    /// Rings of queue pairs blocked on resources that it is in.
    waits: BlockedSet,
    /// Its valid entries in the timer heap, earliest first. Acknowledgements wait for microseconds, probes and packets
    /// for much longer: an entry armed for the latter stays valid while the former expire before it.
    alarms: [Deadline; ALARMS_MAX],
    /// Its far deadline ([`crate::timer::Timers::move_far`]).
    far: Deadline,
}

/// A connection, and the state that its upper layer keeps for it.
#[derive(Debug)]
struct Endpoint {
    connection: Connection,
    /// Index of its adaptive engine in the NIC.
    adaptive: usize,
    mapping: Mapping,
    credit: CreditUse,
}

// Very many of these exist: the type must not grow unnoticed into another size class of the allocator.
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

    /// Adds it to the ring of queue pairs blocked on `lack`.
    fn wait_for(&mut self, nic: &mut FalconNic, slot: u32, lack: BlockedOn) {
        if !self.waits.has(lack) {
            self.waits.add(lack);
            nic.push_waiting(slot, lack);
        }
    }

    /// Moves its far deadline to `to`.
    #[inline]
    fn set_far(&mut self, slot: u32, core: &mut Core, to: Deadline) {
        if to != self.far {
            core.timers.move_far(slot, self.far, to);
            self.far = to;
        }
    }

    /// Arms an entry at `timeout`, which is before all its other entries in the timer heap.
    #[inline(never)]
    fn arm(&mut self, slot: u32, core: &mut Core, timeout: Deadline) {
        // When the array is full, the earliest entry is replaced: it is the first to leave the heap.
        if !self.alarms[ALARMS_MAX - 1].is_set() {
            self.alarms.rotate_right(1);
        }
        self.alarms[0] = timeout;
        let mut none = Deadline::NEVER;
        core.timers.arm(slot, timeout, &mut none);
    }
}

impl FalconEnd {
    /// Returns the state of a connection that does not exist yet; `nvme` is its role where NVMe is the upper layer.
    pub(crate) fn new(nvme: Option<Box<NvmeRole>>) -> Self {
        let alarms = [Deadline::NEVER; ALARMS_MAX];
        let schedule = Schedule { queued: false, waits: BlockedSet::NONE, alarms, far: Deadline::NEVER };
        Self { schedule, link: None, nvme }
    }

    /// Returns the role in NVMe, where NVMe is the upper layer.
    pub(crate) fn nvme_role(&self) -> Option<&NvmeRole> {
        self.nvme.as_deref()
    }

    /// Returns the number of invalid NVMe packets received from the peer.
    pub(crate) fn nvme_errors(&self) -> u64 {
        self.link.as_deref().map_or(0, |link| link.mapping.nvme_errors())
    }

    /// Checks an entry for the send queue.
    #[inline]
    pub(crate) fn check(&self, head: &Head, wqe: &SendWqe) -> Result<(), PostError> {
        match &self.nvme {
            None => request::check_order(head, wqe),
            Some(role) => role.check(wqe),
        }
    }

    /// Handles completion of `io` by the device of its namespace.
    pub(crate) fn served(&mut self, io: &Io, verbs: &Verbs, core: &mut Core) {
        if let Some(end) = self.link.as_deref_mut().and_then(|link| link.mapping.nvme()) {
            end.served(io);
            self.schedule.enlist(verbs.head.slot, core);
        }
    }

    /// Returns read access to the packet delivery layer of its connection; `None` before the first packet and after the
    /// end.
    pub(crate) fn delivery(&self) -> Option<&Delivery> {
        self.link.as_deref().map(|link| link.connection.delivery())
    }

    /// Returns the sequence numbers of a connection that can be queried, in transactions instead of packets: the first
    /// not acknowledged, the next never sent, the request expected, the response expected.
    pub(crate) fn numbers(&self, first_sent: Seq, first_received: Seq) -> [Seq; 4] {
        let stats = self.link.as_ref().map(|link| *link.connection.transactions().stats()).unwrap_or_default();
        let una = first_sent + stats.completed;
        [una, first_sent + stats.submitted, first_received + stats.delivered, una]
    }

    /// Returns whether `deadline`, which has expired in the timer heap, is a valid entry of this queue pair; removes
    /// it.
    pub(crate) fn take_expired(&mut self, deadline: Deadline) -> bool {
        if self.schedule.far == deadline {
            // The entry has already been removed from the set of far deadlines.
            self.schedule.far = Deadline::NEVER;
            return true;
        }
        let alarms = &mut self.schedule.alarms;
        let found = alarms.iter().position(|alarm| *alarm == deadline);
        if let Some(index) = found {
            alarms[index..].rotate_left(1);
            alarms[ALARMS_MAX - 1] = Deadline::NEVER;
        }
        found.is_some()
    }
}
