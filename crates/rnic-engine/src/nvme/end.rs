//! One end of NVMe: divides the commands of a send queue into units (4 KiB parts), and passes units of a target to and
//! from a device.

use rnic_base::Time;
use rnic_falcon::connection::Connection;
use rnic_falcon::resources::Resources;
use rnic_falcon::transaction::ulp::PulledData;
use rnic_falcon::transaction::{Completion, PullReply, PushReply, Request, UpperLayer};
use rnic_nvme::device::Io;
use rnic_nvme::initiator::{Command, Failure, SubmitError};
use rnic_nvme::layout::{Chunk, Geometry};
use rnic_nvme::{Attached, Direction, Initiator, InitiatorConfig, Layout, Target, TargetConfig, status};
use rnic_wire::falcon::{Body, CompletionCode, Ulp};

use super::UNITS_IN_FLIGHT_MAX;
use super::memory::{CommandMemory, Medium, Sources, gather_blocks};
use crate::completion::{WcFlags, WcStatus};
use crate::core::Core;
use crate::dma::{Dma, NoDma};
use crate::namespace::{NamespaceId, NvmeInitiator, NvmeRole};
use crate::ready::Half;
use crate::scheduling::Scheduling;
use crate::state::QpState;
use crate::timer::Deadline;
use crate::verbs::Verbs;
use crate::verbs::send::send_completion;
use crate::wq::{WqeOp, WqeState};

/// NVMe's part of a connection.
#[derive(Debug)]
pub(crate) struct NvmeEnd {
    role: Role,
    /// Location of the response data for the peer's Pulls.
    sources: Sources,
}

#[derive(Debug)]
enum Role {
    Initiator { initiator: Initiator, block_log2: u32 },
    Target { target: Target, namespace: NamespaceId },
}

/// Work that could not be submitted to the transaction layer because of missing resources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Blocked {
    /// True when a request is blocked.
    pub(crate) request: bool,
    /// True when a response is blocked.
    pub(crate) answer: bool,
}

/// Size of the only chunk of an initiator's namespace, as the base-2 logarithm in GB: a petabyte from the namespace's
/// first block. Only the target knows the actual size.
const CHUNK_LOG2_GB: u32 = 20;

impl NvmeEnd {
    /// Returns the NVMe end of a queue pair, with `role`. It tracks up to `requests_max` requests of the peer at a
    /// time. Returns `None` when a target's namespace does not exist.
    pub(crate) fn new(role: &NvmeRole, verbs: &Verbs, core: &Core, requests_max: u32) -> Option<Self> {
        let role = match *role {
            NvmeRole::Initiator(NvmeInitiator { namespace, block_log2, reads, timeout }) => {
                let geometry = Geometry { chunk: CHUNK_LOG2_GB, stripe: 0, group: 0, block: block_log2 };
                let layout = Layout::new(geometry, &[Chunk { connection: 0, namespace, first_block: 0 }]);
                let config = InitiatorConfig {
                    function: verbs.head.number.get(),
                    namespace,
                    commands: verbs.send.queue.capacity().max(1),
                    units: UNITS_IN_FLIGHT_MAX,
                    timeout,
                    reads,
                };
                let initiator = Initiator::new(config, layout.expect("the size of a block was checked"));
                Role::Initiator { initiator, block_log2 }
            }
            NvmeRole::Target(namespace) => {
                let namespace_config = core.namespaces.config(namespace)?;
                let target = Target::new(TargetConfig {
                    owner: verbs.head.slot,
                    namespace: namespace_config.number,
                    blocks: namespace_config.blocks,
                    block_log2: namespace_config.device.block_log2,
                    units: UNITS_IN_FLIGHT_MAX,
                });
                Role::Target { target, namespace }
            }
        };
        Some(Self { role, sources: Sources::new(requests_max) })
    }

    /// Returns this end as the upper layer of its connection, borrowed for one call.
    pub(crate) fn upper<'a, D: Dma>(
        &'a mut self,
        verbs: &'a Verbs,
        core: &'a Core,
        dma: &'a mut D,
    ) -> NvmeUpper<'a, D> {
        let Self { role, sources } = self;
        let mrs = &core.objects.mrs;
        match role {
            Role::Initiator { initiator, .. } => {
                let (head, send) = (&verbs.head, &verbs.send);
                NvmeUpper::Initiator(initiator, CommandMemory { head, send, mrs, sources, dma })
            }
            Role::Target { target, namespace } => {
                let namespace = core.namespaces.config(*namespace);
                NvmeUpper::Target(target, Medium { namespace, mrs, sources, dma })
            }
        }
    }

    /// Submits as much pending work to the transaction layer as it accepts; returns which types of work are blocked.
    pub(crate) fn submit_pending(
        &mut self,
        verbs: &mut Verbs,
        core: &mut Core,
        resources: &mut Resources,
        connection: &mut Connection,
        scheduling: Option<&mut Scheduling>,
    ) -> Blocked {
        self.convert_entries(verbs, core, scheduling);
        let now = core.now;
        // Received data is placed when its packet is processed, never here.
        let mut nothing = NoDma;
        // The result is ignored: a failed connection fails its queue pair, which flushes the commands.
        let _ = match self.upper(verbs, core, &mut nothing) {
            NvmeUpper::Initiator(initiator, mut memory) => {
                connection.work(now, |transactions| initiator.advance(0, transactions, resources, &mut memory))
            }
            NvmeUpper::Target(target, mut medium) => {
                connection.work(now, |transactions| target.advance(transactions, resources, &mut medium))
            }
        };
        self.deliver_results(verbs, core);
        let is_full = connection.transactions().is_full();
        match &self.role {
            Role::Initiator { initiator, .. } => {
                Blocked { request: initiator.request_waits(0) && !is_full, answer: initiator.data_waits(0) }
            }
            Role::Target { target, .. } => {
                let (request, answer) = target.waits();
                Blocked { request: request && !is_full, answer }
            }
        }
    }

    /// Converts new entries of the send queue to commands. The dequeue rate is charged with the data of a command, in
    /// either direction.
    fn convert_entries(&mut self, verbs: &mut Verbs, core: &mut Core, mut scheduling: Option<&mut Scheduling>) {
        let Role::Initiator { initiator, block_log2 } = &mut self.role else { return };
        while verbs.send.queue.has_unsent() && verbs.head.state == QpState::ReadyToSend {
            if scheduling.as_mut().is_some_and(|scheduling| scheduling.holds(core, Half::Requester)) {
                break;
            }
            let counter = verbs.send.queue.next;
            let wqe = verbs.send.queue.get(counter);
            let direction = if wqe.op == WqeOp::Read { Direction::Read } else { Direction::Write };
            let (first_block, blocks) = (wqe.remote >> *block_log2, wqe.length >> *block_log2);
            let command = Command { direction, first_block, blocks, cookie: counter.into() };
            let length = wqe.length;
            let (packets, result) = (wqe.packets, initiator.submit(core.now, &command));
            // When the connection is lost, the queue pair determines how posted requests complete.
            if matches!(result, Err(SubmitError::Full | SubmitError::Lost(_))) {
                break;
            }
            verbs.send.advance(packets);
            if let (Ok(_), Some(scheduling)) = (&result, &mut scheduling) {
                let has_work = verbs.send.queue.has_unsent();
                // The data of a Read come from the peer, whose scheduler counts them.
                let payload_len = if direction == Direction::Read { 0 } else { length };
                scheduling.on_submitted(&verbs.head, core, (length, payload_len), Half::Requester, has_work);
            }
            if result.is_err() {
                // The address exceeds the largest possible namespace.
                complete(verbs, core, counter, Err(Failure::Status(status::OUT_OF_RANGE)));
            }
        }
    }

    /// Delivers the results of the last input: completions to the program, and requests to the device.
    pub(crate) fn deliver_results(&mut self, verbs: &mut Verbs, core: &mut Core) {
        match &mut self.role {
            Role::Initiator { initiator, .. } => {
                while let Some(done) = initiator.poll() {
                    // A lost connection fails the queue pair, which completes everything posted in order.
                    if done.result != Err(Failure::Lost) {
                        complete(verbs, core, done.cookie as u32, done.result);
                    }
                }
            }
            Role::Target { target, namespace } => {
                while let Some(io) = target.take_io() {
                    let Core { namespaces, timers, now, .. } = core;
                    namespaces.submit(*now, *namespace, io, timers);
                }
            }
        }
    }

    /// Returns whether work is waiting to be submitted to the transaction layer.
    pub(crate) fn has_to_submit(&self, verbs: &Verbs) -> bool {
        match &self.role {
            Role::Initiator { initiator, .. } => {
                verbs.send.queue.has_unsent() && verbs.head.state == QpState::ReadyToSend || initiator.has_to_send(0)
            }
            Role::Target { target, .. } => target.has_to_send(),
        }
    }

    /// Returns the number of invalid packets received from the peer.
    pub(crate) fn peer_errors(&self) -> u64 {
        match &self.role {
            Role::Initiator { initiator, .. } => initiator.peer_errors().total(),
            Role::Target { target, .. } => target.peer_errors().total(),
        }
    }

    /// Handles completion of `io` by the device.
    pub(crate) fn on_device_completion(&mut self, io: &Io) {
        if let Role::Target { target, .. } = &mut self.role {
            target.served(io);
        }
    }

    /// Fails commands that have exceeded their timeout.
    pub(crate) fn expire(&mut self, verbs: &mut Verbs, core: &mut Core) {
        if let Role::Initiator { initiator, .. } = &mut self.role {
            initiator.expire(core.now);
            self.deliver_results(verbs, core);
        }
    }

    /// Returns the earliest time at which [`Self::expire`] has a command to fail.
    pub(crate) fn deadline(&self) -> Deadline {
        match &self.role {
            Role::Initiator { initiator, .. } => initiator.next_timeout().map_or(Deadline::NEVER, Deadline::at),
            Role::Target { .. } => Deadline::NEVER,
        }
    }

    /// Collects the payload of a packet to be sent, where `tag` is the transaction's tag if it is a local one; returns
    /// false when the memory is no longer valid.
    pub(crate) fn gather(&self, verbs: &Verbs, core: &mut Core, body: &Body, tag: Option<u64>, len: u32) -> bool {
        let answer = if let Body::PullData { rsn, .. } = body { Some(self.sources.get(*rsn)) } else { None };
        match &self.role {
            Role::Initiator { .. } => answer.is_some_and(|source| {
                // The memory of a completed command belongs to the program again, even while its entry is still
                // queued behind incomplete ones.
                let is_owned = verbs.send.is_pending(source.counter)
                    && verbs.send.queue.get(source.counter).state != WqeState::Completed;
                let is_valid = is_owned && source.len == len;
                is_valid && verbs.send.gather(&verbs.head, core, source.counter, source.offset as u32, len)
            }),
            Role::Target { target, namespace } => {
                let Core { namespaces, objects, segments, .. } = core;
                let Some(namespace) = namespaces.config(*namespace) else { return false };
                let log2 = namespace.device.block_log2;
                let push_offset = || tag.and_then(|tag| target.extent_of(tag)).map(|extent| extent.first_block << log2);
                let Some(offset) = answer.map(|source| source.offset).or_else(push_offset) else { return false };
                gather_blocks(namespace, &objects.mrs, segments, offset, len)
            }
        }
    }

    /// Frees the NIC resources that this end holds, because the connection has ended.
    pub(crate) fn detach(&self, verbs: &Verbs, core: &mut Core) {
        if let Role::Target { namespace, .. } = &self.role {
            let Core { namespaces, timers, now, .. } = core;
            namespaces.forget(*now, *namespace, verbs.head.slot, timers);
        }
    }
}

/// Completes entry `counter` of the send queue, and frees completed entries at its head.
fn complete(verbs: &mut Verbs, core: &mut Core, counter: u32, result: Result<(), Failure>) {
    let queue = &mut verbs.send.queue;
    if counter.wrapping_sub(queue.head) >= queue.next.wrapping_sub(queue.head) {
        // The entry was flushed.
        return;
    }
    let entry = queue.get_mut(counter);
    entry.state = WqeState::Completed;
    let status = result.map_or_else(status_of, |()| WcStatus::Success);
    let mut completion = send_completion(verbs.head.number, entry, status);
    if let Err(failure) = result {
        (completion.word, completion.flags) = (failure.word(), WcFlags::NVME);
    }
    let is_reported = entry.flags.contains(crate::SendFlags::SIGNALED) || result.is_err();
    while queue.head != queue.next && queue.get(queue.head).state == WqeState::Completed {
        queue.head = queue.head.wrapping_add(1);
    }
    if is_reported {
        core.complete(verbs.head.send_cq, completion);
    }
    if verbs.head.state == QpState::SendQueueDrained {
        verbs.send.report_if_drained(&verbs.head, core);
    }
}

/// Returns the verbs status that corresponds most closely to `failure`.
const fn status_of(failure: Failure) -> WcStatus {
    match failure {
        Failure::Status(status::OUT_OF_RANGE) => WcStatus::RemoteAccess,
        Failure::Status(status::INVALID_NAMESPACE | status::INVALID_FIELD) | Failure::Refused(_) => {
            WcStatus::RemoteInvalidRequest
        }
        Failure::Transaction(CompletionCode::LocalTimeout) | Failure::Lost | Failure::TimedOut => {
            WcStatus::RetryExceeded
        }
        Failure::Status(_) | Failure::Transaction(_) => WcStatus::RemoteOperational,
        Failure::Peer(_) => WcStatus::BadResponse,
        Failure::Memory => WcStatus::LocalProtection,
    }
}

/// NVMe as the upper layer of a connection, borrowed for one call.
pub(crate) enum NvmeUpper<'a, D> {
    Initiator(&'a mut Initiator, CommandMemory<'a, D>),
    Target(&'a mut Target, Medium<'a, D>),
}

/// Calls a method of the initiator or target.
macro_rules! of_either {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self {
            Self::Initiator(end, memory) => Attached { end: &mut **end, connection: 0, memory }.$method($($argument),*),
            Self::Target(end, memory) => Attached { end: &mut **end, connection: 0, memory }.$method($($argument),*),
        }
    };
}

impl<D: Dma> UpperLayer for NvmeUpper<'_, D> {
    fn push(&mut self, now: Time, request: &Request) -> PushReply {
        of_either!(self, push(now, request))
    }

    fn pull(&mut self, now: Time, request: &Request) -> PullReply {
        of_either!(self, pull(now, request))
    }

    /// Units are submitted together with their headers.
    fn headers(&self, _: u64) -> Ulp {
        Ulp::None
    }

    fn complete(&mut self, now: Time, completion: &Completion) {
        of_either!(self, complete(now, completion));
    }

    fn pulled(&mut self, now: Time, tag: u64, data: &PulledData) {
        of_either!(self, pulled(now, tag, data));
    }
}
