//! How much may be under way to each peer: its receive buffer, divided among all queue pairs by need.
//!
//! A userspace NIC receives into a socket buffer of a few dozen packets (verbs study, section 3.7); all queue pairs
//! between two hosts share it. Whoever connects to the peer tells the engine how much that is.

use std::collections::VecDeque;

use crate::PeerId;
use crate::ready::Half;

/// A peer with a limit.
#[derive(Debug, Default)]
struct Peer {
    /// Packets under way, at most; `None` is unlimited.
    limit: Option<u64>,
    in_flight: u64,
    /// Acknowledgements that made progress, of all its queue pairs, modulo 2^32.
    answers: u32,
    /// Halves of queue pairs that found no room, in order of arrival.
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

    /// All that may ever have had a limit.
    pub(crate) fn limited(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..self.0.len() as u32).map(PeerId)
    }

    /// Whether there ever was a peer with a limit.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// How many packets may be sent to `peer` now.
    #[inline]
    pub(crate) fn room(&self, peer: PeerId) -> u64 {
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

    /// Packets have arrived, or their queue pair is gone. Answers whether somebody may be waiting for the room.
    #[inline]
    pub(crate) fn settled(&mut self, peer: PeerId, packets: u64) -> bool {
        // Most engines have no limited peer at all.
        let Some(peer) = self.0.get_mut(peer.0 as usize) else { return false };
        // A limit may have been set while packets were under way that nobody counted.
        peer.in_flight = peer.in_flight.saturating_sub(packets);
        !peer.waiting.is_empty()
    }

    /// As [`Peers::settled`], because the peer has acknowledged the packets.
    #[inline]
    pub(crate) fn acknowledged(&mut self, peer: PeerId, packets: u64) -> bool {
        let Some(peer) = self.0.get_mut(peer.0 as usize) else { return false };
        peer.answers = peer.answers.wrapping_add(1);
        peer.in_flight = peer.in_flight.saturating_sub(packets);
        !peer.waiting.is_empty()
    }

    /// Returns a number that changes with each acknowledgement of `peer` that makes progress; 0 for peers without a
    /// limit.
    pub(crate) fn answers(&self, peer: PeerId) -> u32 {
        self.0.get(peer.0 as usize).map_or(0, |peer| peer.answers)
    }

    /// Remembers that a half of `slot` waits for room.
    pub(crate) fn wait(&mut self, peer: PeerId, half: Half, slot: u32) {
        if let Some(peer) = self.0.get_mut(peer.0 as usize) {
            peer.waiting.push_back((half, slot));
        }
    }

    /// A half of `slot` need not wait after all; answers whether it did. For the slow path.
    pub(crate) fn stop_waiting(&mut self, peer: PeerId, half: Half, slot: u32) -> bool {
        let Some(peer) = self.0.get_mut(peer.0 as usize) else { return false };
        let found = peer.waiting.iter().position(|waiting| *waiting == (half, slot));
        found.is_some_and(|index| peer.waiting.remove(index).is_some())
    }

    /// Who has waited longest.
    pub(crate) fn pop_waiting(&mut self, peer: PeerId) -> Option<(Half, u32)> {
        self.0.get_mut(peer.0 as usize)?.waiting.pop_front()
    }

    /// `slot` waits no more.
    pub(crate) fn forget(&mut self, slot: u32) {
        for peer in &mut self.0 {
            peer.waiting.retain(|(_, waiting)| *waiting != slot);
        }
    }
}
