//! Index of region slots by key.
//!
//! Keys that a driver passes are random ([`crate::Objects::register_as`]), so a key does not reveal the location of
//! its region. The index is a table of slot numbers with open addressing and linear probing (Knuth, volume 3, section
//! 6.4, algorithms L and R), at most half full. A lookup of a key chosen by a peer probes a run of entries whose
//! length depends only on the keys in use, which the peer does not know.

use rnic_base::prefetch_at;

/// Slot numbers by key. The keys themselves are stored in the slots.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// Table entries; their number is a power of two.
    entries: Vec<u32>,
    count: usize,
}

/// Value of an empty entry.
const EMPTY: u32 = u32::MAX;

/// Initial number of table entries.
const SLOTS_MIN: usize = 16;

impl KeyIndex {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), count: 0 }
    }

    /// Prefetches the first entries: all of a small index.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_at(&self.entries, 0);
    }

    /// Returns the slot of `key`; `key_of` returns the key of a slot.
    #[inline(always)]
    pub(super) fn find(&self, key: u32, key_of: impl Fn(u32) -> u32) -> Option<u32> {
        let mask = self.entries.len().wrapping_sub(1);
        let mut place = home_slot(key) & mask;
        loop {
            // This also returns for an empty index.
            let slot = self.entries.get(place).copied().filter(|slot| *slot != EMPTY)?;
            if key_of(slot) == key {
                return Some(slot);
            }
            place = (place + 1) & mask;
        }
    }

    /// Adds `slot`, whose key is not in the index yet.
    pub(super) fn insert(&mut self, slot: u32, key_of: impl Fn(u32) -> u32) {
        if (self.count + 1) * 2 > self.entries.len() {
            let capacity = (self.entries.len() * 2).max(SLOTS_MIN);
            let old = std::mem::replace(&mut self.entries, vec![EMPTY; capacity]);
            old.into_iter().filter(|slot| *slot != EMPTY).for_each(|slot| self.place(slot, &key_of));
        }
        self.place(slot, &key_of);
        self.count += 1;
    }

    fn place(&mut self, slot: u32, key_of: impl Fn(u32) -> u32) {
        let mask = self.entries.len() - 1;
        let mut place = home_slot(key_of(slot)) & mask;
        while self.entries[place] != EMPTY {
            place = (place + 1) & mask;
        }
        self.entries[place] = slot;
    }

    /// Removes the slot of `key`, and moves the entries after it so that no run has a gap.
    pub(super) fn remove(&mut self, key: u32, key_of: impl Fn(u32) -> u32) {
        let mask = self.entries.len().wrapping_sub(1);
        let mut gap = home_slot(key) & mask;
        loop {
            match self.entries.get(gap) {
                None | Some(&EMPTY) => return,
                Some(slot) if key_of(*slot) == key => break,
                Some(_) => gap = (gap + 1) & mask,
            }
        }
        let mut next = gap;
        loop {
            next = (next + 1) & mask;
            let slot = self.entries[next];
            if slot == EMPTY {
                break;
            }
            // The entry may be moved to the gap unless its home position is between the gap and its present position.
            let probe_distance = next.wrapping_sub(home_slot(key_of(slot))) & mask;
            if probe_distance >= next.wrapping_sub(gap) & mask {
                self.entries[gap] = slot;
                gap = next;
            }
        }
        self.entries[gap] = EMPTY;
        self.count -= 1;
    }
}

/// Returns the position where the search for a key starts (Fibonacci hashing: the upper bits of the product are mixed
/// best).
#[inline]
fn home_slot(key: u32) -> usize {
    (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rnic_base::RandomStreams;

    use super::*;

    #[test]
    fn the_index_matches_a_map_under_random_inserts_and_removals() {
        let mut random = RandomStreams::new(4).stream("index");
        let (mut index, mut map) = (KeyIndex::new(), BTreeMap::new());
        let mut keys: Vec<u32> = Vec::new();
        assert_eq!(index.find(7, |_| 0), None, "an empty index finds a key");
        for _ in 0..20_000 {
            // A small set of keys, for many of which the search begins at the same or a neighbouring position.
            let key = (random.below(300) as u32).wrapping_mul(0x0101_0000);
            let known = map.get(&key).copied();
            assert_eq!(index.find(key, |slot| keys[slot as usize]), known, "key {key:#x}");
            match known {
                Some(_) => {
                    index.remove(key, |slot| keys[slot as usize]);
                    map.remove(&key);
                }
                None => {
                    keys.push(key);
                    let slot = keys.len() as u32 - 1;
                    index.insert(slot, |slot| keys[slot as usize]);
                    map.insert(key, slot);
                }
            }
            assert_eq!(index.count, map.len());
        }
        index.remove(u32::MAX, |slot| keys[slot as usize]);
        assert_eq!(index.count, map.len(), "removal of an absent key changes the index");
    }
}
