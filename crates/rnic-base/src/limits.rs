//! Every bound that more than one room relies on, with its reason.
//!
//! A bound that only one module needs stands in that module, with its reason too. Nothing in OpenRNIC grows without
//! one.

/// Largest message of one work request: 1 GiB, the least that a verbs device must offer is 2^31; larger ones would need
/// more than a quarter of the 24-bit sequence space at an MTU of 256.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// Scatter/gather entries of one work request.
pub const SGE_MAX: usize = 16;

/// Smallest payload of a full packet. InfiniBand's smallest path MTU.
pub const MTU_MIN: u32 = 256;

/// Largest payload of a full packet: two InfiniBand maxima, still inside a 9000-byte Ethernet frame.
pub const MTU_MAX: u32 = 8192;

/// Packets a shared sequence space can have outstanding: half of 2^24 would make old and new indistinguishable, and a
/// quarter leaves the other half for stragglers.
pub const OUTSTANDING_PACKETS_MAX: u64 = 1 << 22;

/// Work requests in one queue.
pub const WORK_REQUESTS_MAX: u32 = 1 << 15;

/// Entries of a completion queue.
pub const COMPLETIONS_MAX: u32 = 1 << 22;

/// Reads and atomics that one queue pair may have in progress in each direction. Verbs carry it in 8 bits.
pub const READS_IN_PROGRESS_MAX: u32 = 128;

/// Queue pairs of one engine: what 24-bit numbers can name, less the two reserved management ones.
pub const QUEUE_PAIRS_MAX: u32 = (1 << 24) - 2;

/// Protection domains of one engine, completion queues, and shared receive queues: each as many. A program has a few of
/// each; what a device offers, it keeps a table for.
pub const QUEUES_MAX: u32 = 1 << 16;

/// Memory regions of one engine: 24 bits of a key select the region, 8 bits are its generation.
pub const MEMORY_REGIONS_MAX: u32 = 1 << 24;

/// Memory windows of one engine: each takes 256 of the keys, and regions must find theirs among the others.
pub const MEMORY_WINDOWS_MAX: u32 = 1 << 16;

const _: () = assert!(MESSAGE_BYTES_MAX / (MTU_MIN as u64) <= OUTSTANDING_PACKETS_MAX);
const _: () = assert!(OUTSTANDING_PACKETS_MAX <= 1 << 22);
