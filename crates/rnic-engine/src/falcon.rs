//! RDMA over Falcon: reliable connections whose packets are Falcon's.
//!
//! Sources: OCP RDMA over Falcon Transport, Rev 0.9, sections 6 and 8; OCP Falcon Transport Protocol, Rev 0.9, sections
//! 6 and 8; Falcon (SIGCOMM'25) section 4. Windows, acknowledgements, gates and transactions are `rnic-falcon`'s; here
//! is what turns verbs into transactions and back. A queue pair keeps its verbs half: queues, states, checks of memory,
//! flushing.
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
//!   falcon/near.rs     state brought near before it is needed
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
//! In verbs' way of errors both queue pairs fail then. A queue pair that refused answers its peer on until it is reset:
//! the peer needs the acknowledgement of the Resync that follows a NACK. Completing in error, the request alone fails,
//! and what belongs to the same message is refused with it; failures of one's own memory, and of the connection,
//! remain fatal.
//!
//! Choices, where the sources are silent:
//!
//! * a queue pair's number is its connection identifier; PSNs and RSNs begin at the PSNs that connection set-up has
//!   agreed on. A queue pair that has not been told its own yet learns them from the bases in the peer's first packet;
//! * a Pull's answer has its place in the message as "only": a target knows a Read by its pieces;
//! * Reads and atomics under way are bounded where they begin (`max_rd_atomic`), as in RoCE; of the pieces of a Read,
//!   as many are under way as there may be transactions;
//! * the answer to an atomic that is refused has the code in place of the value, that to a Read in place of the address
//!   in its sink tag (STETH), which a failed answer has no use for; one without a code is a remote access error;
//! * without order, a message takes the receive that is the oldest when it comes, not the one that its number names;
//! * a Read is cut where packets are full, not where a piece of the initiator's memory ends (6.7 says both): the sink
//!   of a part that goes to two pieces is zeros. The initiator places by its own list, so a target of any make serves
//!   it;
//! * the number of a packet (SN) is compared in responses alone: a target knows what is missing, and the order, by
//!   RSNs, and a Pull of a request that is no more has none (`request.rs`, `headers`).

mod drive;
mod header;
mod life;
mod mapping;
mod near;
mod nic;
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
use nic::Lacks;
use room::CreditUse;

pub(crate) use drive::tick_nic;
pub(crate) use nic::{Lack, Nic, SLOT};

/// Entries of a queue pair in the timer heap that are good: one for each kind of timeout, about. Where there are more,
/// one is armed anew when its turn comes.
const ALARMS_MAX: usize = 4;

/// Entries of a queue pair in the timer heap, with those that are not good any more.
const TIMER_ENTRIES: usize = 4 * ALARMS_MAX;

/// A queue pair's Falcon connection, and its place in the rings of the NIC.
#[derive(Debug)]
pub(crate) struct FalconEnd {
    schedule: Schedule,
    /// Made with the first packet in either direction.
    link: Option<Box<Link>>,
    /// NVMe is the upper layer, in this role.
    nvme: Option<Box<NvmeRole>>,
}

/// Where a queue pair stands in the rings and in the timer heap of its NIC.
#[derive(Debug)]
struct Schedule {
    /// In the ring of those who can send.
    queued: bool,
    /// In which rings of those who wait for resources.
    waits: Lacks,
    /// Its entries in the timer heap that are good, earliest first. Acknowledgements wait for microseconds, probes and
    /// packets for many more: what was armed for the latter stays good while the former go before it.
    alarms: [Deadline; ALARMS_MAX],
    /// Its far deadline ([`crate::timer::Timers::move_far`]).
    far: Deadline,
}

/// A connection, and what its upper layer keeps of it.
#[derive(Debug)]
struct Link {
    connection: Connection,
    /// Which of the NIC's adaptive engines is its.
    adaptive: usize,
    mapping: Mapping,
    credit: CreditUse,
}

// There are very many of them: it shall not grow unseen into another size class of the allocator.
const _: () = assert!(size_of::<Link>() <= 1_608);

impl Schedule {
    /// Puts the queue pair in `slot` into the ring of those who can send.
    #[inline]
    fn enlist(&mut self, slot: u32, core: &mut Core) {
        if !self.queued {
            self.queued = true;
            core.ready.push_falcon(slot, 0);
        }
    }

    /// Puts it into the ring of those who wait for resources.
    fn wait_for(&mut self, nic: &mut Nic, slot: u32, lack: Lack) {
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

    /// Wakes it at `timeout`, before all its other entries in the timer heap.
    #[inline(never)]
    fn arm(&mut self, slot: u32, core: &mut Core, timeout: Deadline) {
        // Where there is no place, the earliest gives way: its entry is the first to leave the heap.
        if !self.alarms[ALARMS_MAX - 1].is_set() {
            self.alarms.rotate_right(1);
        }
        self.alarms[0] = timeout;
        let mut none = Deadline::NEVER;
        core.timers.arm(slot, timeout, &mut none);
    }
}

impl FalconEnd {
    /// Returns the end of a connection that there is not yet; `nvme` is its role where NVMe is the upper layer.
    pub(crate) fn new(nvme: Option<Box<NvmeRole>>) -> Self {
        let alarms = [Deadline::NEVER; ALARMS_MAX];
        let schedule = Schedule { queued: false, waits: Lacks::NONE, alarms, far: Deadline::NEVER };
        Self { schedule, link: None, nvme }
    }

    /// Returns the role in NVMe, where that is the upper layer.
    pub(crate) fn nvme_role(&self) -> Option<&NvmeRole> {
        self.nvme.as_deref()
    }

    /// Returns how many packets of NVMe from the peer made no sense.
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

    /// The device behind its namespace has served `io`.
    pub(crate) fn served(&mut self, io: &Io, verbs: &Verbs, core: &mut Core) {
        if let Some(end) = self.link.as_deref_mut().and_then(|link| link.mapping.nvme()) {
            end.served(io);
            self.schedule.enlist(verbs.head.slot, core);
        }
    }

    /// Returns the packet delivery layer of its connection, to look at; none before the first packet and after the end.
    pub(crate) fn delivery(&self) -> Option<&Delivery> {
        self.link.as_deref().map(|link| link.connection.delivery())
    }

    /// Returns what can be asked about a connection, with transactions for packets: the first not acknowledged, the
    /// next never sent, the request expected, the response expected.
    pub(crate) fn numbers(&self, first_sent: Seq, first_received: Seq) -> [Seq; 4] {
        let stats = self.link.as_ref().map(|link| *link.connection.transactions().stats()).unwrap_or_default();
        let una = first_sent + stats.completed;
        [una, first_sent + stats.submitted, first_received + stats.delivered, una]
    }

    /// Returns whether `deadline`, which has come up in the timer heap, is one of ours; then it is so no more.
    pub(crate) fn take_alarm(&mut self, deadline: Deadline) -> bool {
        if self.schedule.far == deadline {
            // It is out of the set already.
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
