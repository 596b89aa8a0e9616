//! A device shared by several targets, which get queue entries round robin.
//!
//! Source: none; NVMe leaves arbitration between queues to the controller, and has round robin as the default (NVM
//! Express Base Specification, section 3.4.4). One unit is served per turn, whatever its length and direction.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::Time;

use crate::device::{Device, DeviceConfig, Io};

/// A device, and the requests that wait for an entry in its queue.
#[derive(Debug)]
pub struct Drive {
    device: Device,
    /// Requests that wait for a free queue entry of the device, by owner.
    waiting: BTreeMap<u32, VecDeque<Io>>,
    /// Owners with waiting requests, each once: the first one gets the next free entry.
    round_robin: VecDeque<u32>,
    /// Number of requests that found no free entry on submission.
    waited: u64,
}

impl Drive {
    /// Creates an idle drive.
    ///
    /// # Panics
    /// As [`Device::new`].
    pub fn new(config: DeviceConfig) -> Self {
        Self { device: Device::new(config), waiting: BTreeMap::new(), round_robin: VecDeque::new(), waited: 0 }
    }

    /// Returns the settings of its device.
    pub const fn config(&self) -> &DeviceConfig {
        self.device.config()
    }

    /// Accepts a request of [`Io::owner`], which waits when the device has no free entry.
    pub fn submit(&mut self, now: Time, io: Io) {
        let queue = self.waiting.entry(io.owner).or_default();
        if queue.is_empty() {
            self.round_robin.push_back(io.owner);
        }
        queue.push_back(io);
        self.waited += u64::from(self.device.is_full());
        self.fill(now);
    }

    /// Returns the completion time of the next request.
    pub fn next_done(&self) -> Option<Time> {
        self.device.next_done()
    }

    /// Returns a request completed by `now`, if there is one. The queue entry that this frees is assigned to the next
    /// owner in round-robin order.
    pub fn done(&mut self, now: Time) -> Option<Io> {
        let io = self.device.done(now)?;
        self.fill(now);
        Some(io)
    }

    /// Removes all requests of `owner`, which then never complete.
    pub fn forget(&mut self, now: Time, owner: u32) {
        self.device.forget(owner);
        self.waiting.remove(&owner);
        self.round_robin.retain(|other| *other != owner);
        self.fill(now);
    }

    /// Returns the number of requests that found no free entry on submission.
    pub const fn waited(&self) -> u64 {
        self.waited
    }

    /// Assigns free queue entries of the device to owners in round-robin order, one request at a time.
    fn fill(&mut self, now: Time) {
        while !self.device.is_full()
            && let Some(owner) = self.round_robin.pop_front()
        {
            let queue = self.waiting.get_mut(&owner).expect("a scheduled owner has a queue");
            let io = queue.pop_front().expect("a scheduled owner has a waiting request");
            if !queue.is_empty() {
                self.round_robin.push_back(owner);
            }
            self.device.submit(now, io).expect("the device is not full");
        }
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::{BitRate, Duration};

    use super::*;
    use crate::device::Service;
    use crate::{Direction, Extent};

    fn drive(queue_depth: u32) -> Drive {
        let service = Service { latency: Duration::from_us(1), bandwidth: BitRate::gbps(32) };
        Drive::new(DeviceConfig { read: service, write: service, queue_depth, block_log2: 9 })
    }

    fn io(owner: u32, tag: u32, blocks: u32) -> Io {
        Io { owner, tag, direction: Direction::Read, extent: Extent { first_block: 0, blocks } }
    }

    /// Owners get equally many queue entries of the device, also if the commands of one are longer or it has more
    /// requests waiting.
    #[test]
    fn queue_entries_are_assigned_round_robin() {
        let mut drive = drive(4);
        let now = Time::from_us(1);
        for (owner, (count, blocks)) in [(64, 8), (48, 1), (48, 8)].into_iter().enumerate() {
            (0..count).for_each(|tag| drive.submit(now, io(owner as u32, tag, blocks)));
        }
        assert_eq!(drive.waited(), 64 + 48 + 48 - 4);
        let mut served = [0_u32; 3];
        for _ in 0..40 * 3 {
            let at = drive.next_done().expect("a request is in flight");
            served[drive.done(at).expect("the request is complete").owner as usize] += 1;
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        // The first owner had four entries before the others started.
        assert!(most - least <= 5, "{served:?}");
    }

    #[test]
    fn removed_requests_never_complete_and_free_their_entries() {
        let mut drive = drive(2);
        let now = Time::from_us(1);
        (0..4).for_each(|tag| drive.submit(now, io(7, tag, 1)));
        (0..2).for_each(|tag| drive.submit(now, io(8, tag, 1)));
        drive.forget(now, 7);
        let done: Vec<(u32, u32)> = std::iter::from_fn(|| {
            let at = drive.next_done()?;
            drive.done(at).map(|io| (io.owner, io.tag))
        })
        .collect();
        assert_eq!(done, [(8, 0), (8, 1)]);
        drive.forget(now, 9);
        assert_eq!(drive.next_done(), None);
    }
}
