//! A device shared by several targets, which get queue entries round robin.
//!
//! Source: none; NVMe leaves arbitration between queues to the controller, and has round robin as the default (NVM
//! Express Base Specification, section 3.4.4). A turn is one unit, whatever its length and direction.

use std::collections::{BTreeMap, VecDeque};

use rnic_base::Time;

use crate::device::{Device, DeviceConfig, Io};

/// A device, and the requests that wait for an entry in its queue.
#[derive(Debug)]
pub struct Drive {
    device: Device,
    /// Waiting units, by owner.
    waiting: BTreeMap<u32, VecDeque<Io>>,
    /// Owners with waiting units, each once: the first gets the next free entry.
    turns: VecDeque<u32>,
    /// Number of requests that found no free entry on submission.
    waited: u64,
}

impl Drive {
    /// Creates an idle drive.
    ///
    /// # Panics
    /// As [`Device::new`].
    pub fn new(config: DeviceConfig) -> Self {
        Self { device: Device::new(config), waiting: BTreeMap::new(), turns: VecDeque::new(), waited: 0 }
    }

    /// Returns the settings of its device.
    pub const fn config(&self) -> &DeviceConfig {
        self.device.config()
    }

    /// Accepts a request of [`Io::owner`], which waits when the device has no free entry.
    pub fn submit(&mut self, now: Time, io: Io) {
        let queue = self.waiting.entry(io.owner).or_default();
        if queue.is_empty() {
            self.turns.push_back(io.owner);
        }
        queue.push_back(io);
        self.waited += u64::from(self.device.is_full());
        self.fill(now);
    }

    /// Returns the completion time of the next request.
    pub fn next_done(&self) -> Option<Time> {
        self.device.next_done()
    }

    /// Returns a request completed by `now`, if there is one; its entry is assigned to the owner next in turn.
    pub fn done(&mut self, now: Time) -> Option<Io> {
        let io = self.device.done(now)?;
        self.fill(now);
        Some(io)
    }

    /// Removes all requests of `owner`, which then never complete.
    pub fn forget(&mut self, now: Time, owner: u32) {
        self.device.forget(owner);
        self.waiting.remove(&owner);
        self.turns.retain(|other| *other != owner);
        self.fill(now);
    }

    /// Returns the number of requests that found no free entry on submission.
    pub const fn waited(&self) -> u64 {
        self.waited
    }

    /// Assigns free entries, one request per owner and turn.
    fn fill(&mut self, now: Time) {
        while !self.device.is_full()
            && let Some(owner) = self.turns.pop_front()
        {
            let queue = self.waiting.get_mut(&owner).expect("an owner with a turn has a queue");
            let io = queue.pop_front().expect("an owner with a turn has something that waits");
            if !queue.is_empty() {
                self.turns.push_back(owner);
            }
            self.device.submit(now, io).expect("it is not full");
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

    /// An owner that asks for more bytes at a time, or has more units waiting, gets no more places.
    #[test]
    fn places_go_by_turns() {
        let mut drive = drive(4);
        let now = Time::from_us(1);
        for (owner, (count, blocks)) in [(64, 8), (48, 1), (48, 8)].into_iter().enumerate() {
            (0..count).for_each(|tag| drive.submit(now, io(owner as u32, tag, blocks)));
        }
        assert_eq!(drive.waited(), 64 + 48 + 48 - 4);
        let mut served = [0_u32; 3];
        for _ in 0..40 * 3 {
            let at = drive.next_done().expect("it is busy");
            served[drive.done(at).expect("it is done").owner as usize] += 1;
        }
        let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
        // The first had four places before the others came.
        assert!(most - least <= 5, "{served:?}");
    }

    #[test]
    fn what_is_forgotten_is_never_done_and_gives_its_places_back() {
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
