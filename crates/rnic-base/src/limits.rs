//! Bounds that more than one crate relies on, with their reasons.
//!
//! A bound that only one module needs is defined in that module, also with its reason. Every data structure of
//! OpenRNIC has a bound.

/// Largest message of one work request: 1 GiB. The minimum that a verbs device must offer is 2^31, but larger messages
/// would need more than a quarter of the 24-bit sequence space at an MTU of 256.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of scatter/gather entries of one work request.
pub const SGE_MAX: usize = 16;

/// Smallest payload of a full packet in bytes: InfiniBand's smallest path MTU.
pub const MTU_MIN: u32 = 256;

/// Largest payload of a full packet in bytes: twice InfiniBand's largest path MTU, still within a 9000-byte Ethernet
/// frame.
pub const MTU_MAX: u32 = 8192;

/// Maximum number of packets outstanding in a shared sequence space: with half of 2^24, old and new packets would be
/// indistinguishable; a quarter of it leaves room to recognise delayed packets.
pub const OUTSTANDING_PACKETS_MAX: u64 = 1 << 22;

/// Maximum number of work requests in one queue.
pub const WORK_REQUESTS_MAX: u32 = 1 << 15;

/// Maximum number of entries of a completion queue.
pub const COMPLETIONS_MAX: u32 = 1 << 22;

/// Maximum number of Reads and atomics that one queue pair may have in progress in each direction. The verbs
/// attribute has 8 bits.
pub const READS_IN_PROGRESS_MAX: u32 = 128;

/// Maximum number of queue pairs of one engine: the number of 24-bit numbers, minus the two reserved for management.
pub const QUEUE_PAIRS_MAX: u32 = (1 << 24) - 2;

/// Maximum number of protection domains of one engine, of completion queues, and of shared receive queues, each. A
/// program uses few of them, but the engine keeps a table of the size that a device offers.
pub const QUEUES_MAX: u32 = 1 << 16;

/// Maximum number of memory regions of one engine: 24 bits of a key select the region, 8 bits are the generation of
/// that region.
pub const MEMORY_REGIONS_MAX: u32 = 1 << 24;

/// Maximum number of memory windows of one engine: each uses 256 keys, and the keys left over must suffice for
/// regions.
pub const MEMORY_WINDOWS_MAX: u32 = 1 << 16;

const _: () = assert!(MESSAGE_BYTES_MAX / (MTU_MIN as u64) <= OUTSTANDING_PACKETS_MAX);
const _: () = assert!(OUTSTANDING_PACKETS_MAX <= 1 << 22);
