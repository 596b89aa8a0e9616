//! A map from flows to values: open addressing in memory that is allocated once.
//!
//! Source: SCR (NSDI'25), section 4.3.3 (a hash map); Knuth, The Art of Computer Programming, volume 3, section 6.4,
//! algorithms L (linear probing) and R (deletion by shifting back).
//!
//! Restrictions: at most half of the slots are used, and a key is at most 64 slots from its place; other keys are
//! refused and counted. The hash has the driver's key, so that a peer cannot choose flows that fill one place. The map
//! cannot be iterated, because its order depends on that key.

use crate::tools::hash::keyed_hash;

/// Maximum number of slots that are probed for a key.
const PROBES_MAX: usize = 64;

/// The reason why a key was not inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapFull {
    /// Half of the slots are used.
    #[error("the map has {0} flows, which is half of its slots: create it with more")]
    HalfFull(usize),
    /// All slots near the key's place are used.
    #[error("flow {0} has no free slot near its place: create the map with more slots")]
    Crowded(u64),
}

/// A map with keys of 64 bits.
#[derive(Clone, Debug)]
pub struct FlowMap<V> {
    slots: Box<[Option<(u64, V)>]>,
    key: u64,
    len: usize,
    refused: u64,
}

impl<V: Copy> FlowMap<V> {
    /// Creates a map for `flows` flows, at least one; `key` is a secret of the driver.
    pub fn new(flows: usize, key: u64) -> Self {
        let slots = (flows.max(1) * 2).next_power_of_two();
        Self { slots: vec![None; slots].into_boxed_slice(), key, len: 0, refused: 0 }
    }

    /// Sets the value of `flow`, and returns the value that it had.
    ///
    /// # Errors
    /// Returns an error if the flow is new and has no place.
    pub fn insert(&mut self, flow: u64, value: V) -> Result<Option<V>, MapFull> {
        let mut slot = self.place(flow);
        let is_half_full = self.len * 2 >= self.slots.len();
        for _ in 0..PROBES_MAX.min(self.slots.len()) {
            match &mut self.slots[slot] {
                Some((key, old)) if *key == flow => return Ok(Some(core::mem::replace(old, value))),
                Some(_) => slot = self.following(slot),
                None if is_half_full => {
                    self.refused += 1;
                    return Err(MapFull::HalfFull(self.len));
                }
                free => {
                    *free = Some((flow, value));
                    self.len += 1;
                    return Ok(None);
                }
            }
        }
        self.refused += 1;
        Err(MapFull::Crowded(flow))
    }

    /// Returns the value of `flow`.
    #[inline]
    pub fn get(&self, flow: u64) -> Option<&V> {
        let slot = self.find(flow)?;
        self.slots[slot].as_ref().map(|(_, value)| value)
    }

    /// Returns the value of `flow`, to change it.
    #[inline]
    pub fn get_mut(&mut self, flow: u64) -> Option<&mut V> {
        let slot = self.find(flow)?;
        self.slots[slot].as_mut().map(|(_, value)| value)
    }

    /// Removes `flow` and returns its value.
    pub fn remove(&mut self, flow: u64) -> Option<V> {
        let mut free = self.find(flow)?;
        let (_, removed) = self.slots[free].take()?;
        self.len -= 1;
        let mut slot = self.following(free);
        // Keys up to the next free slot move back to the gap, unless it is before their place.
        while let Some((key, _)) = &self.slots[slot] {
            if self.distance(self.place(*key), slot) >= self.distance(free, slot) {
                self.slots[free] = self.slots[slot].take();
                free = slot;
            }
            slot = self.following(slot);
        }
        Some(removed)
    }

    /// Returns the number of flows.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there is no flow.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of insertions that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    #[inline]
    fn find(&self, flow: u64) -> Option<usize> {
        let mut slot = self.place(flow);
        for _ in 0..PROBES_MAX.min(self.slots.len()) {
            match &self.slots[slot] {
                Some((key, _)) if *key == flow => return Some(slot),
                Some(_) => slot = self.following(slot),
                None => return None,
            }
        }
        None
    }

    #[inline]
    fn place(&self, flow: u64) -> usize {
        keyed_hash(self.key, flow) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn following(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Returns the number of slots from `from` on to `to`.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::RandomStreams;
    use std::collections::BTreeMap;

    #[test]
    fn s16_the_map_equals_a_tree_under_a_million_random_operations() {
        // 32,768 keys for 8192 places: the map is often full.
        let mut map = FlowMap::new(8_192, 3);
        let mut tree = BTreeMap::new();
        let mut random = RandomStreams::new(1).stream("map");
        let mut refused = 0;
        for step in 0..1_000_000u64 {
            let flow = random.below(32_768);
            match random.below(8) {
                0..=3 => match map.insert(flow, step) {
                    Ok(old) => assert_eq!(old, tree.insert(flow, step)),
                    Err(MapFull::HalfFull(len)) => {
                        assert_eq!(len, 8_192);
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                },
                4..=5 => assert_eq!(map.remove(flow), tree.remove(&flow)),
                6 => assert_eq!(map.get(flow), tree.get(&flow)),
                _ => {
                    assert_eq!(
                        map.get_mut(flow).map(|value| *value += 1),
                        tree.get_mut(&flow).map(|value| *value += 1)
                    );
                }
            }
            assert_eq!(map.len(), tree.len());
        }
        assert!((0..32_768).all(|flow| map.get(flow) == tree.get(&flow)));
        assert!(refused > 1_000 && refused == map.refused());
    }

    #[test]
    fn s16_half_of_the_slots_are_used() {
        let mut map = FlowMap::new(100, 7);
        let accepted = (0..1_000).filter(|flow| map.insert(*flow, ()).is_ok()).count();
        assert_eq!((accepted, map.len(), map.refused()), (128, 128, 872));
        assert_eq!(map.insert(0, ()), Ok(Some(())), "a flow that is present can be set");
        assert!((0..128).all(|flow| map.remove(flow).is_some()) && map.is_empty());
    }

    #[test]
    fn s16_a_key_without_a_slot_near_its_place_is_refused() {
        let mut map = FlowMap::new(4_096, 11);
        // Flows of one place, which a peer that knew the key could choose.
        let place = map.place(0);
        let crowd: Vec<u64> = (0..).filter(|flow| map.place(*flow) == place).take(66).collect();
        assert!(crowd[..64].iter().all(|flow| map.insert(*flow, *flow).is_ok()));
        assert_eq!(map.insert(crowd[64], 0), Err(MapFull::Crowded(crowd[64])));
        assert_eq!(map.remove(crowd[64]), None);
        assert_eq!((map.get(crowd[64]), map.refused()), (None, 1));
        assert!(map.remove(crowd[10]).is_some());
        assert_eq!(map.insert(crowd[64], 1), Ok(None));
        assert!(crowd[..64].iter().all(|flow| *flow == crowd[10] || map.get(*flow) == Some(flow)));
        // With another key the same flows are no crowd.
        let mut other = FlowMap::new(4_096, 12);
        assert!(crowd.iter().all(|flow| other.insert(*flow, ()).is_ok()));
    }
}
