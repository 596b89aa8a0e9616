//! Limit of the packets in flight to each peer: its receive buffer, shared on demand by all queue pairs.
//!
//! A userspace NIC receives into a socket buffer of a few dozen packets (verbs study, section 3.7), which all queue
//! pairs between two hosts share. The program that connects to the peer sets the limit in the engine.

use std::collections::VecDeque;

use crate::PeerId;
use crate::ready::Half;

/// A peer with a limit.
#[derive(Debug, Default)]
struct Peer {
    /// Maximum number of packets in flight; `None` is unlimited.
    limit: Option<u64>,
    in_flight: u64,
    /// Number of acknowledgements that made progress, of all its queue pairs, modulo 2^32.
    acks: u32,
    /// Requesters and responders that wait for credit, in the order in which they started to wait.
    waiting: VecDeque<(Half, u32)>,
}

/// All peers with a limit, by number.
#[derive(Debug, Default)]
pub(crate) struct Peers(Vec<Peer>);

impl Peers {
    pub(crate) fn set_limit(&mut self, peer: PeerId, limit: Option<u64>) {
        let index = peer.0 as usize;
        if self.0.len() <= index {
            if limit.is_none() {
                return;
            }
            self.0.resize_with(index + 1, Peer::default);
        }
        self.0[index].limit = limit;
    }

    pub(crate) fn limit(&self, peer: PeerId) -> Option<u64> {
        self.0.get(peer.0 as usize)?.limit
    }

    /// Returns all peers that may have had a limit at some time.
    pub(crate) fn limited(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.0.len() as u32).map(PeerId)
    }

    /// Returns whether any peer has had a limit.
    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the number of packets that may be sent to `peer` now.
    #[inline]
    pub(crate) fn available(&self, peer: PeerId) -> u64 {
        match self.0.get(peer.0 as usize) {
            Some(Peer { limit: Some(limit), in_flight, .. }) => limit.saturating_sub(*in_flight),
            _ => u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, peer: PeerId, packets: u64) {
        if let Some(peer) = self.0.get_mut(peer.0 as usize) {
            peer.in_flight += packets;
        }
    }

    /// Records that `packets` packets to `peer` are no longer in flight: they have arrived, or their queue pair no
    /// longer exists. Returns whether queue pairs may be waiting for the credit.
    #[inline]
    pub(crate) fn settled(&mut self, peer: PeerId, packets: u64) -> bool {
        // Most engines have no limited peer at all.
        let Some(peer) = self.0.get_mut(peer.0 as usize) else { return false };
        // A limit may have been set while uncounted packets were in flight.
        peer.in_flight = peer.in_flight.saturating_sub(packets);
        !peer.waiting.is_empty()
    }

    /// Does the same as [`Peers::settled`] for packets that the peer has acknowledged.
    #[inline]
    pub(crate) fn acknowledged(&mut self, peer: PeerId, packets: u64) -> bool {
        let Some(peer) = self.0.get_mut(peer.0 as usize) else { return false };
        peer.acks = peer.acks.wrapping_add(1);
        peer.in_flight = peer.in_flight.saturating_sub(packets);
        !peer.waiting.is_empty()
    }

    /// Returns a number that changes with each acknowledgement of `peer` that makes progress; 0 for peers without a
    /// limit.
    pub(crate) fn acks(&self, peer: PeerId) -> u32 {
        self.0.get(peer.0 as usize).map_or(0, |peer| peer.acks)
    }

    /// Records that the requester or the responder of the queue pair in `slot` waits for credit.
    pub(crate) fn wait(&mut self, peer: PeerId, half: Half, slot: u32) {
        if let Some(peer) = self.0.get_mut(peer.0 as usize) {
            peer.waiting.push_back((half, slot));
        }
    }

    /// Removes the requester or the responder of `slot` from the queue of those that wait for credit; returns whether
    /// it was in the queue. Searches the queue, so it is used on the slow path only.
    pub(crate) fn stop_waiting(&mut self, peer: PeerId, half: Half, slot: u32) -> bool {
        let Some(peer) = self.0.get_mut(peer.0 as usize) else { return false };
        let found = peer.waiting.iter().position(|waiting| *waiting == (half, slot));
        found.is_some_and(|index| peer.waiting.remove(index).is_some())
    }

    /// Removes and returns the requester or responder that has waited longest.
    pub(crate) fn pop_waiting(&mut self, peer: PeerId) -> Option<(Half, u32)> {
        self.0.get_mut(peer.0 as usize)?.waiting.pop_front()
    }

    /// Removes `slot` from all waiting queues.
    pub(crate) fn forget(&mut self, slot: u32) {
        for peer in &mut self.0 {
            peer.waiting.retain(|(_, waiting)| *waiting != slot);
        }
    }
}
