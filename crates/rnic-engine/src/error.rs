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
    #[error("invalid value {requested} for the {what}: the allowed range is {minimum} to {limit}")]
    Size {
        /// The resource or attribute concerned.
        what: &'static str,
        /// Requested size.
        requested: u64,
        /// Minimum size.
        minimum: u64,
        /// Maximum size.
        limit: u64,
    },
    /// The queue holds more entries than would fit.
    #[error("cannot resize the queue to {requested} {what}, because {holds} are in use")]
    Holds {
        /// The queue concerned.
        what: &'static str,
        /// Requested size.
        requested: u64,
        /// Entries that the queue holds.
        holds: u64,
    },
    /// The engine already has the maximum number of objects of this type.
    #[error("the limit of {limit} {what} is reached; destroy one before creating another")]
    Exhausted {
        /// The type of object.
        what: &'static str,
        /// Maximum number.
        limit: u64,
    },
    /// The number is already in use.
    #[error("queue pair number {0:#x} is in use or reserved; choose another number")]
    NumberInUse(u32),
    /// The requested size of the resources that the Falcon queue pairs of a NIC share differs from the size in use.
    #[error(
        "transport option resources={requested} differs from resources={has}, which the first Falcon queue pair of \
         this NIC set; use one value for all, or set it for the first only"
    )]
    FalconResources {
        /// Requested resources, in percent.
        requested: u32,
        /// Resources in use, in percent.
        has: u32,
    },
    /// NVMe requires a reliable connection on Falcon.
    #[error("NVMe requires a reliable connection with a Falcon transport; select the transport `falcon`")]
    NvmeWithoutFalcon,
    /// An adaptive engine is configured to run on a thread, but the driver does not start threads.
    #[error(
        "transport option fae_place=thread is not available: this NIC has no thread for the adaptive engine; use \
         fae_place=datapath"
    )]
    NoAdaptiveThread,
    /// The identifier refers to no object.
    #[error("the requested {0} does not exist")]
    Unknown(&'static str),
    /// The object is still in use.
    #[error("the {0} is still in use; destroy the objects that refer to it first")]
    Busy(&'static str),
}

/// Reason why memory could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The range wraps around the address space.
    #[error("the memory region of {len} bytes at address {addr:#x} extends beyond the end of the address space")]
    Wraps {
        /// Address of the first byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Remote write or atomic access without local write access.
    #[error("remote write and remote atomic access require local write access; request local write access too")]
    RemoteWithoutLocalWrite,
    /// The engine already has the maximum number of memory regions.
    #[error(
        "the limit of {} memory regions is reached; deregister one before registering another",
        limits::MEMORY_REGIONS_MAX
    )]
    Exhausted,
    /// The key is 0 or belongs to another region.
    #[error("memory key {0:#x} is in use or reserved; choose another key")]
    KeyInUse(u32),
    /// The key refers to no region.
    #[error("no memory region has key {0:#x}")]
    Unknown(u32),
    /// Memory windows are bound to the region.
    #[error("memory windows are still bound to the memory region; unbind, invalidate or deallocate them first")]
    Bound,
    /// The identifier refers to no protection domain.
    #[error("the requested protection domain does not exist")]
    UnknownDomain,
    /// The engine already has the maximum number of memory windows.
    #[error(
        "the limit of {} memory windows is reached; deallocate one before allocating another",
        limits::MEMORY_WINDOWS_MAX
    )]
    WindowsExhausted,
}

/// Reason why a work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// No queue pair has this number.
    #[error("the requested queue pair does not exist")]
    UnknownQp,
    /// The identifier refers to no shared receive queue.
    #[error("the requested shared receive queue does not exist")]
    UnknownSrq,
    /// The queue accepts no requests in this state.
    #[error("a queue pair in state {0:?} does not accept this work request")]
    State(QpState),
    /// All entries are in use: completions must be polled first.
    #[error("the work queue is full; poll completions before posting more requests")]
    QueueFull,
    /// The request has more scatter/gather entries than the queue was created for.
    #[error("the work request has {requested} scatter/gather entries, but the queue accepts at most {limit}")]
    TooManySges {
        /// Number of entries in the request.
        requested: usize,
        /// Maximum number of entries.
        limit: usize,
    },
    /// The message exceeds the maximum message length.
    #[error("a message of {0} bytes exceeds the maximum of {max} bytes", max = limits::MESSAGE_BYTES_MAX)]
    MessageTooLong(u64),
    /// The local memory for the result of an atomic is not exactly eight bytes long.
    #[error("an atomic operation requires exactly 8 bytes of local memory, but the request has {0} bytes")]
    AtomicLength(u64),
    /// The datagram is longer than the path MTU.
    #[error("a datagram of {bytes} bytes exceeds the path MTU of {mtu} bytes")]
    DatagramTooLong {
        /// Length of the datagram in bytes.
        bytes: u64,
        /// Path MTU in bytes.
        mtu: u32,
    },
    /// The queue pair's service has no such operation.
    #[error("a queue pair of service {0:?} does not support this operation")]
    Unsupported(Service),
    /// The message is longer than a packet: an unordered queue pair accepts only messages of one packet, except for
    /// Reads and for Writes without immediate data.
    #[error(
        "a message of {bytes} bytes is too long for an unordered queue pair, which sends this operation as one \
         packet of at most {mtu} bytes"
    )]
    TooLongWithoutOrder {
        /// Length of the message in bytes.
        bytes: u32,
        /// Path MTU in bytes.
        mtu: u32,
    },
    /// The destination is a management queue pair, which programs must not use.
    #[error("queue pair {0} is reserved for management and is not a valid destination")]
    Destination(Qpn),
    /// A receive was posted to a queue pair that has a shared receive queue.
    #[error("the queue pair uses a shared receive queue; post receives to the shared receive queue")]
    HasSrq,
    /// The queue pair is for NVMe, and the request is not a Read or a Write without immediate data, or has a fence.
    #[error("a queue pair for NVMe supports only Reads and Writes without immediate data, and no fence")]
    NvmeOperation,
    /// The queue pair is the target's end of an NVMe connection, which sends no requests.
    #[error("the NVMe target's queue pair does not accept requests; post commands on the initiator's queue pair")]
    NvmeTarget,
    /// The NVMe command does not cover complete blocks, or is too long.
    #[error(
        "an NVMe command of {bytes} bytes at byte offset {addr} is invalid: use one or more complete blocks of \
         {block} bytes, at most {most} bytes"
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
    #[error("the requested queue pair does not exist")]
    UnknownQp,
    /// There is no transition between these states.
    #[error("a queue pair cannot change from state {from:?} to state {to:?}")]
    Transition {
        /// State of the queue pair.
        from: QpState,
        /// Requested state of the queue pair.
        to: QpState,
    },
    /// The flows of the transport could not be created. The queue pair keeps the transport that it had.
    #[error("the flows of the transport could not be created: {0}")]
    Flows(ResourceError),
    /// The queue pair's service does not have this attribute, or requires another function to connect it.
    #[error("the attribute or transition does not apply to a queue pair of service {0:?} and its transport")]
    Service(Service),
    /// An attribute is out of range.
    #[error("invalid value {requested} for the {what}: the allowed range is {min} to {max}{}", steps_of(*step))]
    Attribute {
        /// Name of the attribute.
        what: &'static str,
        /// Requested value.
        requested: u64,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
        /// Step: valid values are multiples of it.
        step: u64,
    },
}

fn steps_of(step: u64) -> String {
    if step == 1 { String::new() } else { format!(" in multiples of {step}") }
}

/// Result of processing a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RxOutcome {
    /// The packet was in order, or was an acknowledgement that took effect.
    Accepted,
    /// The packet arrived out of order and was accepted.
    OutOfOrder,
    /// The packet is a duplicate.
    Duplicate,
    /// The packet was dropped.
    Dropped(DropReason),
}

/// Reason why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// No queue pair has this number.
    UnknownQp,
    /// The packet was not sent by the queue pair's peer.
    WrongPeer,
    /// The packet's headers do not belong to the queue pair's transport.
    WrongFormat,
    /// The queue pair does not receive in its current state.
    State,
    /// The packet arrived out of order, and the transport accepts no out-of-order packets.
    OutOfOrder,
    /// The packet is too far ahead, or too old, for the window to classify it.
    OutOfWindow,
    /// No receive request was posted.
    ReceiverNotReady,
    /// The request was refused with a NAK, or was dropped without one.
    Refused,
    /// An acknowledgement of a packet that was never sent, or a response without a request.
    Unsolicited,
    /// The datagram carries a queue key other than the queue pair's.
    QueueKey,
    /// A duplicate, or a packet overtaken by later ones, in an unreliable connection.
    Duplicate,
    /// A message between NICs was rejected ([`crate::messages::stats`] counts the causes).
    Message,
    /// A switch has trimmed the packet's payload. A receiver that pulls answers with a NACK.
    Trimmed,
}

impl DropReason {
    /// Number of drop reasons.
    pub const COUNT: usize = 13;
}
