//! Loss by position in the stream: the same segments are lost at any sending rate, so that two senders can be compared.

use std::collections::BTreeMap;

use rnic_base::{Probability, RandomStreams};

use super::is_after;
use crate::endpoint::TcpSegment;

/// Drops arriving segments, depending on the connection, the position in the stream and the number of earlier losses at
/// this position. A retransmission of a segment that has arrived is never dropped.
#[derive(Debug)]
pub struct PositionLoss {
    probability: Probability,
    seed: u64,
    /// For each connection, the number after the last byte that has arrived or was dropped.
    ends: BTreeMap<u32, u32>,
    /// Positions at which all arrivals were lost, by connection and sequence number: how many.
    missing: BTreeMap<(u32, u32), u32>,
}

impl PositionLoss {
    /// Creates the rule; each arrival is lost with `probability`.
    pub fn new(probability: Probability, seed: u64) -> Self {
        Self { probability, seed, ends: BTreeMap::new(), missing: BTreeMap::new() }
    }

    /// Returns whether this arrival is lost.
    pub(super) fn loses(&mut self, segment: &TcpSegment) -> bool {
        let TcpSegment { connection, sequence, len, .. } = *segment;
        let end = sequence.wrapping_add(u32::from(len));
        let highest = self.ends.entry(connection).or_insert(sequence);
        let key = (connection, sequence);
        let is_new = is_after(end, *highest);
        if is_new {
            *highest = end;
        }
        let earlier = match self.missing.get(&key) {
            Some(earlier) => *earlier,
            None if is_new => 0,
            None => return false,
        };
        let position = u64::from(connection) << 32 | u64::from(sequence);
        let mixed =
            position.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(earlier).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let is_lost = RandomStreams::new(self.seed ^ mixed).stream("position-loss").chance(self.probability);
        if is_lost {
            self.missing.insert(key, earlier + 1);
        } else {
            self.missing.remove(&key);
        }
        is_lost
    }
}
