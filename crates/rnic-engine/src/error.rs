//! Errors of callers, and errors of peers.
//!
//! Errors of peers never surface as Rust errors: they become a [`DropReason`] in the statistics, a NAK on the wire or a
//! completion status. Internal bugs are assertions.

use rnic_base::limits;

use rnic_wire::Qpn;

use crate::state::QpState;
use crate::state::Service;

/// Reason why a resource could not be created or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResourceError {
    /// The size is below the minimum or above the maximum.
    #[error("{what}: {asked} is outside {least} to {limit}")]
    Size {
        /// The resource or attribute concerned.
        what: &'static str,
        /// Requested size.
        asked: u64,
        /// Minimum.
        least: u64,
        /// Maximum.
        limit: u64,
    },
    /// The queue holds more entries than would fit.
    #[error("{what}: {asked} are too few for the {holds} that are taken")]
    Holds {
        /// The queue concerned.
        what: &'static str,
        /// Requested size.
        asked: u64,
        /// Entries that the queue holds.
        holds: u64,
    },
    /// The engine has the maximum number of such objects.
    #[error("no more than {limit} {what}")]
    Exhausted {
        /// The type of object.
        what: &'static str,
        /// Maximum number.
        limit: u64,
    },
    /// The number is taken.
    #[error("queue pair number {0:#x} is in use or reserved")]
    NumberTaken(u32),
    /// The resources that the Falcon queue pairs of a NIC share have a single size.
    #[error(
        "transport option resources = {asked}, but this NIC has resources = {has} from its first Falcon queue pair: \
         give all of them the same, or give it to the first alone"
    )]
    FalconResources {
        /// Requested resources, in percent.
        asked: u32,
        /// Resources in use, in percent.
        has: u32,
    },
    /// NVMe requires a reliable connection on Falcon.
    #[error("NVMe is carried by reliable connections on Falcon alone: take a transport of that protocol")]
    NvmeWithoutFalcon,
    /// An adaptive engine is configured to run on a thread, but the driver starts none.
    #[error(
        "transport option fae_place = thread: this NIC has no thread for the adaptive engine, leave it at datapath"
    )]
    NoAdaptiveThread,
    /// The identifier refers to no object.
    #[error("no such {0}")]
    Unknown(&'static str),
    /// The object is still in use.
    #[error("{0} is still in use")]
    Busy(&'static str),
}

/// Reason why memory could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The range wraps around the address space.
    #[error("memory region {addr:#x}+{len} wraps around the address space")]
    Wraps {
        /// Address of the first byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Remote write or atomic access without local write access.
    #[error("remote write and atomic access need local write access too")]
    RemoteWithoutLocalWrite,
    /// The maximum number of regions exists.
    #[error("no more than {} memory regions", limits::MEMORY_REGIONS_MAX)]
    Exhausted,
    /// The key is 0 or belongs to another region.
    #[error("memory key {0:#x} is in use or reserved")]
    KeyTaken(u32),
    /// The key refers to no region.
    #[error("no memory region has key {0:#x}")]
    Unknown(u32),
    /// Memory windows are bound to the region.
    #[error("memory windows are bound to the region: take them back first")]
    Bound,
    /// The identifier refers to no protection domain.
    #[error("no such protection domain")]
    UnknownDomain,
    /// The maximum number of windows exists.
    #[error("no more than {} memory windows", limits::MEMORY_WINDOWS_MAX)]
    WindowsExhausted,
}

/// Reason why a work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// No queue pair has this number.
    #[error("no such queue pair")]
    UnknownQp,
    /// The identifier refers to no shared receive queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// The queue accepts no requests in this state.
    #[error("the queue pair takes no such work in state {0:?}")]
    State(QpState),
    /// All entries are in use: completions must be polled first.
    #[error("the queue is full")]
    QueueFull,
    /// The request has more scatter/gather entries than the queue was created for.
    #[error("{asked} scatter/gather entries, the queue takes {limit}")]
    TooManySges {
        /// Number of entries in the request.
        asked: usize,
        /// Maximum number of entries.
        limit: usize,
    },
    /// The message exceeds the maximum message length.
    #[error("a message of {0} bytes exceeds {max}", max = limits::MESSAGE_BYTES_MAX)]
    MessageTooLong(u64),
    /// The result of an atomic needs exactly eight local bytes.
    #[error("an atomic operation needs eight bytes of local memory, not {0}")]
    AtomicLength(u64),
    /// The datagram is longer than a packet.
    #[error("a datagram of {bytes} bytes exceeds the MTU, {mtu}")]
    DatagramTooLong {
        /// Length of the datagram in bytes.
        bytes: u64,
        /// Path MTU in bytes.
        mtu: u32,
    },
    /// The queue pair's service has no such operation.
    #[error("a queue pair of service {0:?} has no such operation")]
    Unsupported(Service),
    /// A queue pair without order accepts only messages of one packet, except for Writes without immediate and Reads.
    #[error("a message of {bytes} bytes needs order: without, one packet of {mtu} bytes is all")]
    TooLongWithoutOrder {
        /// Length of the message in bytes.
        bytes: u32,
        /// Path MTU in bytes.
        mtu: u32,
    },
    /// The destination is a management queue pair, which programs must not use.
    #[error("queue pair {0} belongs to management")]
    Destination(Qpn),
    /// A receive was posted to a queue pair that has a shared receive queue.
    #[error("receives go to the shared receive queue")]
    HasSrq,
    /// A request other than a Read or a Write without immediate, or one with a fence, on a queue pair for NVMe.
    #[error("a queue pair for NVMe takes Reads, and Writes without immediate, and knows no fence")]
    NvmeOperation,
    /// A request on a queue pair for NVMe that is the target's end.
    #[error("the target's end of NVMe takes no requests: commands go from initiator to target")]
    NvmeTarget,
    /// The NVMe command does not cover complete blocks, or is too long.
    #[error(
        "an NVMe command of {bytes} bytes at byte {addr} is not 1 or more whole blocks of {block} bytes, at most {most}"
    )]
    NvmeBlocks {
        /// Start address of the command in the namespace, in bytes.
        addr: u64,
        /// Length of the command in bytes.
        bytes: u32,
        /// Block size in bytes.
        block: u32,
        /// Maximum length of a command in bytes.
        most: u32,
    },
}

/// Reason why a queue pair could not be modified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// No queue pair has this number.
    #[error("no such queue pair")]
    UnknownQp,
    /// The transition does not exist.
    #[error("no transition from {from:?} to {to:?}")]
    Transition {
        /// Current state.
        from: QpState,
        /// Requested state.
        to: QpState,
    },
    /// The queue pair's service has no such attribute, or is connected in a different way.
    #[error("not for a queue pair of service {0:?}")]
    Service(Service),
    /// An attribute is out of range.
    #[error("{what}: {asked} is outside {min} to {max}{}", steps_of(*step))]
    Attribute {
        /// Name of the attribute.
        what: &'static str,
        /// Requested value.
        asked: u64,
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
        /// Step: legal values are multiples of it.
        step: u64,
    },
}

fn steps_of(step: u64) -> String {
    if step == 1 { String::new() } else { format!(" in steps of {step}") }
}

/// Result of processing a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RxOutcome {
    /// The packet was in order, or was an acknowledgement that was used.
    Accepted,
    /// The packet arrived out of order and was kept.
    Early,
    /// The packet is a duplicate.
    Duplicate,
    /// The packet was not used.
    Dropped(DropReason),
}

/// Reason why a packet was not used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// No queue pair has this number.
    UnknownQp,
    /// The packet was not sent by the queue pair's peer.
    WrongPeer,
    /// The packet's headers are not those of the queue pair's transport.
    WrongFormat,
    /// The queue pair does not receive in its current state.
    State,
    /// The packet arrived out of order, and the transport keeps no out-of-order packets.
    OutOfOrder,
    /// The packet is too far ahead, or too old, for the window to classify it.
    OutOfWindow,
    /// No receive request was posted.
    ReceiverNotReady,
    /// The request was refused with a NAK, or was dropped without one.
    Refused,
    /// An acknowledgement of a packet that was never sent, or a response without a request.
    Unsolicited,
    /// The datagram carries another queue key than the queue pair's.
    QueueKey,
    /// A duplicate, or a packet overtaken by later ones, in an unreliable connection.
    Duplicate,
}

impl DropReason {
    /// Number of drop reasons.
    pub const COUNT: usize = 11;
}
