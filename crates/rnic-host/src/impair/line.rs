//! Delay line: copies of packets that are sent later, in the order in which they are due.

use std::collections::BTreeMap;

use rnic_base::Time;

use super::{DelayedCopy, PeerImpairment};
use crate::datagram::Datagram;

/// Due time, and a sequence number that orders packets with the same due time.
pub(crate) type Key = (Time, u64);

/// All delayed packets.
#[derive(Debug, Default)]
pub(crate) struct DelayLine {
    waiting: BTreeMap<Key, Datagram>,
    order: u64,
    bytes: usize,
}

impl DelayLine {
    /// Adds a copy; returns false when there is no space, as would be the case in a network with a long delay and a
    /// high rate.
    #[must_use]
    pub(crate) fn insert(
        &mut self,
        copy: &DelayedCopy,
        mut datagram: Datagram,
        peer: Option<&mut PeerImpairment>,
    ) -> bool {
        if self.bytes + datagram.bytes.len() > LINE_BYTES_MAX {
            return false;
        }
        if let Some(flip) = copy.flip {
            let bit = (flip % (datagram.bytes.len() as u64 * 8)) as usize;
            datagram.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let key = (copy.due, self.order);
        self.order += 1;
        self.bytes += datagram.bytes.len();
        self.waiting.insert(key, datagram);
        if let (Some(packets), Some(peer)) = (copy.overtaken_by, peer) {
            peer.waiting.push((key, packets));
        }
        true
    }

    /// Records that another packet is sent to the peer; packets that have now been overtaken often enough become due.
    pub(crate) fn overtake(&mut self, peer: &mut PeerImpairment, now: Time) {
        for (key, left) in &mut peer.waiting {
            *left = left.saturating_sub(1);
            if *left == 0
                && let Some(datagram) = self.waiting.remove(key)
            {
                // The packet becomes due immediately: it needs no delay and jitter in addition to the wait.
                self.waiting.insert((now, self.order), datagram);
                self.order += 1;
            }
        }
        peer.waiting.retain(|(_, left)| *left > 0);
    }

    /// Returns the next packet, if it is due.
    pub(crate) fn first_due(&self, now: Time) -> Option<&Datagram> {
        self.waiting.first_key_value().filter(|((due, _), _)| *due <= now).map(|(_, datagram)| datagram)
    }

    /// Removes and returns the next packet, if it is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Datagram> {
        let entry = self.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        let datagram = entry.remove();
        self.bytes -= datagram.bytes.len();
        Some(datagram)
    }

    /// Discards all delayed packets.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Returns the time at which the next packet is due.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Maximum number of delayed bytes: 20 ms at 100 Gbit/s.
const LINE_BYTES_MAX: usize = 256 << 20;
