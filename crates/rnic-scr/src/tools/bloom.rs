//! Membership: a Bloom filter of 2^16 bits, and a bitmap of 2^24 bits with which it is compared.
//!
//! Source: SCR (NSDI'25), section 4.3.3; Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM
//! 1970. Three slices of one hash are the three places, which saves two hashes.
//!
//! Restrictions: a filter cannot forget an item. It says when it must be made again from the program's map of flows.

use crate::tools::hash::keyed_hash;

/// Number of bits of a filter.
const FILTER_BITS: usize = 1 << 16;

/// Number of bits of a bitmap with one bit for each of the 2^24 queue pair numbers.
const BITMAP_BITS: usize = 1 << 24;

/// A Bloom filter for 8192 flows in 8 KiB. Of items that were not inserted, `(1 - e^(-3 n / 2^16))^3` are found
/// with `n` items in it: 3.06 % at 8192.
#[derive(Clone, Debug)]
pub struct BloomFilter {
    words: Box<[u64]>,
    key: u64,
    inserted: u32,
    left: u32,
}

impl BloomFilter {
    /// Creates an empty filter; `key` is the driver's secret.
    pub fn new(key: u64) -> Self {
        Self { words: vec![0; FILTER_BITS / 64].into_boxed_slice(), key, inserted: 0, left: 0 }
    }

    /// Returns the memory that it uses, in bytes.
    pub const fn memory() -> usize {
        FILTER_BITS / 8
    }

    /// Inserts `item` and returns `true` if it was not found before.
    #[inline]
    pub fn insert(&mut self, item: u64) -> bool {
        let mut is_new = false;
        for place in places(self.key, item) {
            let word = &mut self.words[place / 64];
            is_new |= *word >> (place % 64) & 1 == 0;
            *word |= 1 << (place % 64);
        }
        self.inserted = self.inserted.saturating_add(u32::from(is_new));
        is_new
    }

    /// Returns `true` if `item` was inserted, and for a few percent of other items.
    #[inline]
    pub fn contains(&self, item: u64) -> bool {
        // All three bits are read, because a processor cannot predict at which one a test ends.
        places(self.key, item).into_iter().fold(1, |all, place| all & self.words[place / 64] >> (place % 64)) & 1 == 1
    }

    /// Counts an item that left.
    pub const fn note_left(&mut self) {
        self.left = self.left.saturating_add(1);
    }

    /// Returns `true` if a quarter of all items have been removed, so that the filter has to be rebuilt.
    pub const fn is_stale(&self) -> bool {
        self.left > 0 && self.left as u64 * 4 >= self.inserted as u64
    }

    /// Rebuilds the filter from the items that are present.
    pub fn rebuild(&mut self, items: impl IntoIterator<Item = u64>) {
        self.words.fill(0);
        (self.inserted, self.left) = (0, 0);
        for item in items {
            self.insert(item);
        }
    }
}

/// Returns the three places of `item`.
#[inline]
const fn places(key: u64, item: u64) -> [usize; 3] {
    let hash = keyed_hash(key, item);
    [(hash & 0xffff) as usize, (hash >> 16 & 0xffff) as usize, (hash >> 32 & 0xffff) as usize]
}

/// A bit for each queue pair number, in 2 MiB.
#[derive(Clone, Debug)]
pub struct FlowBitmap {
    words: Box<[u64]>,
}

impl Default for FlowBitmap {
    fn default() -> Self {
        Self { words: vec![0; BITMAP_BITS / 64].into_boxed_slice() }
    }
}

impl FlowBitmap {
    /// Returns the memory that it uses, in bytes.
    pub const fn memory() -> usize {
        BITMAP_BITS / 8
    }

    /// Sets the bit of `flow`, of which 24 bits count, and returns `true` if it was not set.
    #[inline]
    pub fn insert(&mut self, flow: u32) -> bool {
        let (word, bit) = position(flow);
        let is_new = self.words[word] >> bit & 1 == 0;
        self.words[word] |= 1 << bit;
        is_new
    }

    /// Clears the bit of `flow`.
    #[inline]
    pub fn remove(&mut self, flow: u32) {
        let (word, bit) = position(flow);
        self.words[word] &= !(1 << bit);
    }

    /// Returns `true` if the bit of `flow` is set.
    #[inline]
    pub fn contains(&self, flow: u32) -> bool {
        let (word, bit) = position(flow);
        self.words[word] >> bit & 1 == 1
    }
}

#[inline]
const fn position(flow: u32) -> (usize, u32) {
    let flow = flow as usize % BITMAP_BITS;
    (flow / 64, flow as u32 % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::RandomStreams;

    #[test]
    fn s16_a_filter_has_8_kib_and_a_bitmap_2_mib() {
        assert_eq!((BloomFilter::memory(), FlowBitmap::memory()), (8_192, 1 << 21));
        assert_eq!(BloomFilter::new(0).words.len() * 8, BloomFilter::memory());
        assert_eq!(FlowBitmap::default().words.len() * 8, FlowBitmap::memory());
    }

    #[test]
    fn s16_of_a_million_other_items_3_percent_are_found_at_8192_items() {
        for key in [0, 1, 0x0123_4567_89ab_cdef] {
            let mut filter = BloomFilter::new(key);
            (0..8_192).for_each(|item| {
                filter.insert(item * 3);
            });
            assert!((0..8_192).all(|item| filter.contains(item * 3)), "an item is always found");
            let found = (0..1_000_000).filter(|other| filter.contains((1 << 40) + other)).count();
            assert!((28_000..=33_000).contains(&found), "{found} of 1,000,000; (1 - e^(-3/8))^3 = 0.0306");
        }
    }

    #[test]
    fn s16_a_filter_is_made_again_when_a_quarter_has_left() {
        let mut filter = BloomFilter::new(5);
        assert!(!filter.is_stale());
        let inserted = (0..1_000).filter(|item| filter.insert(*item)).count() as u32;
        assert!(inserted > 990);
        (0..inserted.div_ceil(4) - 1).for_each(|_| filter.note_left());
        assert!(!filter.is_stale());
        filter.note_left();
        assert!(filter.is_stale());
        filter.rebuild(250..1_000);
        assert!(!filter.is_stale() && (250..1_000).all(|item| filter.contains(item)));
        assert!((0..250).filter(|item| filter.contains(*item)).count() < 10);
    }

    #[test]
    fn s16_a_key_that_a_peer_does_not_know_moves_its_collisions() {
        let places_of = |key, items: &[u64]| {
            let mut places: Vec<_> = items.iter().flat_map(|item| places(key, *item)).collect();
            places.sort_unstable();
            places.dedup();
            places.len()
        };
        // Items that fall into a sixteenth of the filter with key 1.
        let chosen: Vec<u64> =
            (0..4_000_000).filter(|item| places(1, *item).iter().all(|place| *place < 4_096)).take(500).collect();
        assert_eq!(chosen.len(), 500);
        assert!(places_of(1, &chosen) < 1_300);
        assert!(places_of(2, &chosen) > 1_450, "with another key they are spread over all of it");
    }

    #[test]
    fn s16_a_bitmap_is_exact() {
        let mut bitmap = FlowBitmap::default();
        let mut random = RandomStreams::new(1).stream("bitmap");
        let flows: std::collections::BTreeSet<u32> = (0..10_000).map(|_| random.below(1 << 24) as u32).collect();
        assert!(flows.iter().all(|flow| bitmap.insert(*flow)));
        assert!((0..1 << 24).all(|flow| bitmap.contains(flow) == flows.contains(&flow)));
        assert!(!bitmap.insert(*flows.first().expect("there are flows")));
        flows.iter().for_each(|flow| bitmap.remove(*flow));
        assert!(bitmap.words.iter().all(|word| *word == 0));
    }
}
