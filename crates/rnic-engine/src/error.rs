//! What callers can do wrong, and what peers can.
//!
//! Peers' errors never surface as Rust errors: they become a [`DropReason`] in the statistics, a NAK on the wire or a
//! completion status. Our own bugs are assertions.

use rnic_base::limits;

use rnic_wire::Qpn;

use crate::state::QpState;
use crate::state::Service;

/// Why a resource could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResourceError {
    /// The size is below the least or above its limit.
    #[error("{what}: {asked} is outside {least} to {limit}")]
    Size {
        /// What was sized.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The fewest there can be.
        least: u64,
        /// The most there can be.
        limit: u64,
    },
    /// More is in the queue than would fit.
    #[error("{what}: {asked} are too few for the {holds} that are taken")]
    Holds {
        /// What was sized.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// What is there.
        holds: u64,
    },
    /// The engine has as many as it can number.
    #[error("no more than {limit} {what}")]
    Exhausted {
        /// What there is too much of.
        what: &'static str,
        /// The most there can be.
        limit: u64,
    },
    /// The number is taken.
    #[error("queue pair number {0:#x} is in use or reserved")]
    NumberTaken(u32),
    /// What Falcon's queue pairs of a NIC share has one size.
    #[error(
        "transport option resources = {asked}, but this NIC has resources = {has} from its first Falcon queue pair: \
         give all of them the same, or give it to the first alone"
    )]
    FalconResources {
        /// What was asked for, in percent.
        asked: u32,
        /// What there is, in percent.
        has: u32,
    },
    /// NVMe needs a reliable connection on Falcon below it.
    #[error("NVMe is carried by reliable connections on Falcon alone: take a transport of that protocol")]
    NvmeWithoutFalcon,
    /// An adaptive engine is to run on a thread, and nobody starts one.
    #[error(
        "transport option fae_place = thread: this NIC has no thread for the adaptive engine, leave it at datapath"
    )]
    NoAdaptiveThread,
    /// An identifier names nothing.
    #[error("no such {0}")]
    Unknown(&'static str),
    /// Something still uses it.
    #[error("{0} is still in use")]
    Busy(&'static str),
}

/// Why memory could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The range wraps around the address space.
    #[error("memory region {addr:#x}+{len} wraps around the address space")]
    Wraps {
        /// First byte.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// Remote write or atomic access without local write access.
    #[error("remote write and atomic access need local write access too")]
    RemoteWithoutLocalWrite,
    /// No more regions.
    #[error("no more than {} memory regions", limits::MEMORY_REGIONS_MAX)]
    Exhausted,
    /// The key is 0 or that of another region.
    #[error("memory key {0:#x} is in use or reserved")]
    KeyTaken(u32),
    /// The key names no region.
    #[error("no memory region has key {0:#x}")]
    Unknown(u32),
    /// Memory windows are bound to the region.
    #[error("memory windows are bound to the region: take them back first")]
    Bound,
    /// The identifier names no protection domain.
    #[error("no such protection domain")]
    UnknownDomain,
    /// No more windows.
    #[error("no more than {} memory windows", limits::MEMORY_WINDOWS_MAX)]
    WindowsExhausted,
}

/// Why work could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// No queue pair has this number.
    #[error("no such queue pair")]
    UnknownQp,
    /// The identifier names no shared receive queue.
    #[error("no such shared receive queue")]
    UnknownSrq,
    /// The queue takes no work in this state.
    #[error("the queue pair takes no such work in state {0:?}")]
    State(QpState),
    /// All entries are taken: poll completions first.
    #[error("the queue is full")]
    QueueFull,
    /// More scatter/gather entries than the queue was made for.
    #[error("{asked} scatter/gather entries, the queue takes {limit}")]
    TooManySges {
        /// How many there were.
        asked: usize,
        /// How many the queue takes.
        limit: usize,
    },
    /// Longer than a message may be.
    #[error("a message of {0} bytes exceeds {max}", max = limits::MESSAGE_BYTES_MAX)]
    MessageTooLong(u64),
    /// An atomic's result needs exactly eight local bytes.
    #[error("an atomic operation needs eight bytes of local memory, not {0}")]
    AtomicLength(u64),
    /// A datagram longer than a packet.
    #[error("a datagram of {bytes} bytes exceeds the MTU, {mtu}")]
    DatagramTooLong {
        /// Its length.
        bytes: u64,
        /// What fits.
        mtu: u32,
    },
    /// The queue pair's service has no such operation.
    #[error("a queue pair of service {0:?} has no such operation")]
    Unsupported(Service),
    /// A queue pair without order takes messages of one packet, Writes without immediate and Reads apart.
    #[error("a message of {bytes} bytes needs order: without, one packet of {mtu} bytes is all")]
    TooLongWithoutOrder {
        /// Its length.
        bytes: u32,
        /// What fits.
        mtu: u32,
    },
    /// Programs have no business with management queue pairs.
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
    /// A command of NVMe that is no whole blocks, or too long.
    #[error(
        "an NVMe command of {bytes} bytes at byte {addr} is not 1 or more whole blocks of {block} bytes, at most {most}"
    )]
    NvmeBlocks {
        /// Where it begins in the namespace.
        addr: u64,
        /// Its bytes.
        bytes: u32,
        /// Bytes of a block.
        block: u32,
        /// Bytes of a command, at most.
        most: u32,
    },
}

/// Why a queue pair could not change state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// No queue pair has this number.
    #[error("no such queue pair")]
    UnknownQp,
    /// There is no such transition.
    #[error("no transition from {from:?} to {to:?}")]
    Transition {
        /// Present state.
        from: QpState,
        /// Wanted state.
        to: QpState,
    },
    /// The queue pair's service has no such attribute, or is connected in another way.
    #[error("not for a queue pair of service {0:?}")]
    Service(Service),
    /// An attribute is out of range.
    #[error("{what}: {asked} is outside {min} to {max}{}", steps_of(*step))]
    Attribute {
        /// The attribute.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
        /// Legal values are multiples of it.
        step: u64,
    },
}

fn steps_of(step: u64) -> String {
    if step == 1 { String::new() } else { format!(" in steps of {step}") }
}

/// What became of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RxOutcome {
    /// In order, or an acknowledgement that was used.
    Accepted,
    /// Early, and kept.
    Early,
    /// Seen before.
    Duplicate,
    /// Not used.
    Dropped(DropReason),
}

/// Why a packet was not used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// No queue pair has this number.
    UnknownQp,
    /// It does not come from the queue pair's peer.
    WrongPeer,
    /// Its headers are not those of the queue pair's transport.
    WrongFormat,
    /// The queue pair's state receives nothing.
    State,
    /// Early, and the transport keeps nothing early.
    OutOfOrder,
    /// So early, or so old, that the window cannot tell.
    OutOfWindow,
    /// No receive request posted.
    ReceiverNotReady,
    /// Refused with a NAK, or not worth one.
    Refused,
    /// An acknowledgement of something never sent, or a response to nothing asked.
    Unsolicited,
    /// A datagram with another key than the queue pair's.
    QueueKey,
    /// Seen before, or overtaken by later ones, in an unreliable connection.
    Duplicate,
}

impl DropReason {
    /// How many there are.
    pub const COUNT: usize = 11;
}
