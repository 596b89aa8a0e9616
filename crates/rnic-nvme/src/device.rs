//! An emulated block device: models the timing of requests, not their data.
//!
//! It serves up to `queue_depth` requests concurrently. Each request passes through one channel, which transfers one
//! request after the other at the bandwidth of the request's direction, and additionally takes the latency of that
//! direction. This is the simplest model with the three performance values of a solid-state disk's data sheet (F-R26:
//! bandwidth of reads, of writes, operations per second; the latter is `queue_depth / latency` when requests are
//! small). The model has no source: caches, erasure and parallel planes of real devices are left out. All times are
//! integers; requests complete in the order of their completion times, and those with equal times in the order of
//! submission.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rnic_base::{BitRate, Duration, Time};

use crate::{Direction, Extent};

/// Service time parameters of a direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// Latency in addition to the transfer time on the device's channel, which all requests share.
    pub latency: Duration,
    /// Bandwidth of the device's channel, which all requests share.
    pub bandwidth: BitRate,
}

/// Parameters of an emulated block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceConfig {
    /// Latency and bandwidth of reads.
    pub read: Service,
    /// Latency and bandwidth of writes.
    pub write: Service,
    /// Number of requests served concurrently.
    pub queue_depth: u32,
    /// Base-2 logarithm of the block size in bytes.
    pub block_log2: u32,
}

/// Maximum number of concurrent requests: NVMe's limit for a queue.
pub const QUEUE_DEPTH_MAX: u32 = 1 << 16;

/// A request to the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Io {
    /// Owner of the request: identifies the target, when several targets share a device.
    pub owner: u32,
    /// Identifier of the request, chosen by its owner.
    pub tag: u32,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Blocks to transfer.
    pub extent: Extent,
}

/// Error of a device that already serves its maximum number of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the request queue of the NVMe device is full")]
pub struct Full;

/// An emulated block device.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    channel_free: Time,
    submitted: u64,
    in_flight: BinaryHeap<Reverse<(Time, u64, Io)>>,
}

impl Device {
    /// Creates an idle device.
    ///
    /// # Panics
    /// When its queue has no entry, or more than [`QUEUE_DEPTH_MAX`].
    pub fn new(config: DeviceConfig) -> Self {
        assert!((1..=QUEUE_DEPTH_MAX).contains(&config.queue_depth), "invalid queue depth: {}", config.queue_depth);
        let in_flight = BinaryHeap::with_capacity(config.queue_depth as usize);
        Self { config, channel_free: Time::ZERO, submitted: 0, in_flight }
    }

    /// Returns the parameters of the device.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Returns whether the device accepts no more requests now.
    pub fn is_full(&self) -> bool {
        self.in_flight.len() == self.config.queue_depth as usize
    }

    /// Accepts a request; returns its completion time.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn submit(&mut self, now: Time, io: Io) -> Result<Time, Full> {
        if self.is_full() {
            return Err(Full);
        }
        let service = match io.direction {
            Direction::Read => self.config.read,
            Direction::Write => self.config.write,
        };
        let bytes = u64::from(io.extent.blocks) << self.config.block_log2;
        self.channel_free = self.channel_free.max(now) + service.bandwidth.serialize(bytes);
        let done = self.channel_free + service.latency;
        self.in_flight.push(Reverse((done, self.submitted, io)));
        self.submitted += 1;
        Ok(done)
    }

    /// Removes all requests of `owner`, which then never complete. The transfer time that they have already been given
    /// on the device's channel remains used.
    pub fn forget(&mut self, owner: u32) {
        self.in_flight.retain(|Reverse((.., io))| io.owner != owner);
    }

    /// Returns the completion time of the next request.
    pub fn next_done(&self) -> Option<Time> {
        self.in_flight.peek().map(|Reverse((done, ..))| *done)
    }

    /// Returns a request completed by `now`, if there is one.
    pub fn done(&mut self, now: Time) -> Option<Io> {
        self.next_done().filter(|done| *done <= now)?;
        self.in_flight.pop().map(|Reverse((.., io))| io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: DeviceConfig = DeviceConfig {
        read: Service { latency: Duration::from_us(80), bandwidth: BitRate::gbps(32) },
        write: Service { latency: Duration::from_us(20), bandwidth: BitRate::gbps(16) },
        queue_depth: 64,
        block_log2: 12,
    };

    fn io(direction: Direction, tag: u32, blocks: u32) -> Io {
        Io { owner: 0, tag, direction, extent: Extent { first_block: 0, blocks } }
    }

    /// Keeps the queue full until `count` commands have completed; returns the completion time of the last one.
    fn closed_loop(config: DeviceConfig, direction: Direction, blocks: u32, count: u32) -> Time {
        let mut device = Device::new(config);
        let (mut now, mut begun) = (Time::ZERO, 0);
        for _ in 0..count {
            while begun < count && device.submit(now, io(direction, begun, blocks)).is_ok() {
                begun += 1;
            }
            now = device.next_done().unwrap();
            assert!(device.done(now).is_some());
        }
        assert_eq!(device.done(now), None);
        now
    }

    #[test]
    fn a_single_request_takes_transfer_time_and_latency() {
        // The transfer of 4096 bytes at 32 and 16 Gbit/s takes 1024 and 2048 ns; the latency is added.
        assert_eq!(Device::new(CONFIG).submit(Time::ZERO, io(Direction::Read, 0, 1)), Ok(Time::from_ns(81_024)));
        assert_eq!(Device::new(CONFIG).submit(Time::ZERO, io(Direction::Write, 0, 1)), Ok(Time::from_ns(22_048)));
    }

    #[test]
    fn large_requests_are_bound_by_bandwidth_and_small_ones_by_queue_depth_over_latency() {
        // 256 MiB are 2^31 bits, which take 67.1 ms at 32 Gbit/s; one latency is added at the end.
        let time = closed_loop(CONFIG, Direction::Read, 256, 256);
        assert_eq!(time, Time::from_ps((1 << 31) * 125 / 4 + 80_000_000));
        let small_queue = DeviceConfig { queue_depth: 4, ..CONFIG };
        let time = closed_loop(small_queue, Direction::Read, 1, 4_000);
        let rounds = 1_000 * 81_024;
        assert!((rounds..rounds + 4 * 1_024).contains(&(time.as_ps() / 1_000)), "{} ns", time.as_ps() / 1_000);
    }

    #[test]
    fn the_queue_is_bounded_and_requests_complete_in_time_order() {
        let mut device = Device::new(DeviceConfig { queue_depth: 3, ..CONFIG });
        for (tag, direction) in [Direction::Read, Direction::Write, Direction::Write].into_iter().enumerate() {
            device.submit(Time::ZERO, io(direction, tag as u32, 1)).unwrap();
        }
        assert_eq!((device.is_full(), device.submit(Time::ZERO, io(Direction::Read, 9, 1))), (true, Err(Full)));
        assert_eq!(device.done(Time::from_ns(23_071)), None, "the write overtook the read in the channel");
        let tags: Vec<u32> = std::iter::from_fn(|| device.done(Time::from_us(100))).map(|io| io.tag).collect();
        assert_eq!((tags, device.next_done()), (vec![1, 2, 0], None));
    }
}
