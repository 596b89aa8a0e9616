//! Tags of 24 bits: identifiers of state, returned by the peer.
//!
//! Source: OCP NVMe over Falcon Transport, Rev 0.9, section 8 (the fields). Their values are chosen freely by their
//! owner: here the low bits are the index of a table entry, and the bits above are the low bits of the number of
//! earlier uses of the entry. The entry that was free for the longest time is used next. Therefore an old tag is
//! recognized as old, until these bits wrap around.

use std::collections::VecDeque;

/// Number of bits of a tag.
pub const TAG_BITS: u32 = 24;

/// Maximum number of entries of a table: leaves eight bits to distinguish an old tag from a new one.
pub const ENTRIES_MAX: u32 = 1 << 16;

/// Table of state by tag.
#[derive(Debug)]
pub struct Tags<T> {
    entries: Box<[TagSlot<T>]>,
    free: VecDeque<u32>,
    index_bits: u32,
}

#[derive(Debug)]
struct TagSlot<T> {
    /// Total number of earlier uses of the entry; a tag contains the low bits.
    uses: u64,
    value: Option<T>,
}

impl<T> Tags<T> {
    /// Creates a table with this number of entries.
    ///
    /// # Panics
    /// When there are none, or more than [`ENTRIES_MAX`].
    pub fn new(entries: u32) -> Self {
        assert!((1..=ENTRIES_MAX).contains(&entries), "invalid number of entries: {entries}");
        Self {
            entries: (0..entries).map(|_| TagSlot { uses: 0, value: None }).collect(),
            free: (0..entries).collect(),
            index_bits: entries.next_power_of_two().trailing_zeros(),
        }
    }

    /// Returns the number of entries in use.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Returns whether every entry is in use.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Stores `value` and returns its tag; `None` when every entry is in use.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let index = self.free.pop_front()?;
        let uses = {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            entry.uses
        };
        Some(self.tag_of(uses, index as usize))
    }

    /// Returns the state with this tag.
    #[inline]
    pub fn get(&self, tag: u32) -> Option<&T> {
        self.entries[self.index_in_use(tag)?].value.as_ref()
    }

    /// Returns mutable access to the state with this tag.
    #[inline]
    pub fn get_mut(&mut self, tag: u32) -> Option<&mut T> {
        let index = self.index_in_use(tag)?;
        self.entries[index].value.as_mut()
    }

    /// Removes and returns the state with this tag; the entry is free then.
    pub fn remove(&mut self, tag: u32) -> Option<T> {
        let index = self.index_in_use(tag)?;
        let entry = &mut self.entries[index];
        let value = entry.value.take()?;
        entry.uses += 1;
        self.free.push_back(index as u32);
        Some(value)
    }

    /// Returns the tag of the first entry, by index, whose state satisfies `wanted`, among the entries after that of
    /// `after`. A search continued from the last result checks each entry once.
    pub fn find(&self, after: Option<u32>, wanted: impl Fn(&T) -> bool) -> Option<u32> {
        let first = after.map_or(0, |tag| self.index(tag) + 1);
        let found = |entry: &TagSlot<T>| entry.value.as_ref().is_some_and(&wanted);
        let index = first + self.entries.get(first..)?.iter().position(found)?;
        Some(self.tag_of(self.entries[index].uses, index))
    }

    /// Returns whether `tag` is not in use, but was before.
    pub fn is_old(&self, tag: u32) -> bool {
        let index = self.index(tag);
        let Some(entry) = self.entries.get(index).filter(|_| tag >> TAG_BITS == 0) else { return false };
        // Distance back to the use with that tag: from the current use, or from the next one when the entry is free.
        let uses_ago = entry.uses.wrapping_sub(u64::from(tag >> self.index_bits)) & self.uses_mask();
        let uses_ago = if uses_ago > 0 { uses_ago } else { self.uses_mask() + 1 };
        uses_ago <= entry.uses && self.index_in_use(tag).is_none()
    }

    /// Returns the tag of entry `index` after `uses` earlier uses.
    fn tag_of(&self, uses: u64, index: usize) -> u32 {
        ((uses & self.uses_mask()) as u32) << self.index_bits | index as u32
    }

    /// Returns the mask of the bits of [`TagSlot::uses`] that a tag contains.
    const fn uses_mask(&self) -> u64 {
        (1 << (TAG_BITS - self.index_bits)) - 1
    }

    /// Returns the index in `tag`.
    const fn index(&self, tag: u32) -> usize {
        (tag & ((1 << self.index_bits) - 1)) as usize
    }

    /// Returns the index of the entry of `tag`, if it is in use with that tag.
    fn index_in_use(&self, tag: u32) -> Option<usize> {
        let index = self.index(tag);
        let entry = self.entries.get(index)?;
        (entry.value.is_some() && self.tag_of(entry.uses, index) == tag).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rnic_base::RandomStreams;

    use super::*;

    #[test]
    fn a_tag_in_use_is_not_assigned_again_and_an_old_tag_is_recognized() {
        let mut random = RandomStreams::new(1).stream("tags");
        for entries in [1, 3, 8, 100] {
            let mut tags = Tags::new(entries);
            let mut model = BTreeMap::new();
            let (mut retired, mut last) = (BTreeSet::new(), None);
            for value in 0..20_000_u64 {
                if random.below(2) == 0 {
                    match tags.insert(value) {
                        Some(tag) => assert_eq!((model.insert(tag, value), tag >> TAG_BITS), (None, 0)),
                        None => assert_eq!(model.len(), entries as usize),
                    }
                } else if !model.is_empty() {
                    let nth = random.below(model.len() as u64) as usize;
                    let tag = *model.keys().nth(nth).unwrap();
                    assert_eq!(tags.remove(tag), model.remove(&tag));
                    assert_eq!(tags.remove(tag), None, "a tag was removed twice");
                    retired.insert(tag);
                    last = Some(tag);
                }
                if let Some(tag) = last {
                    assert_eq!((tags.get(tag), tags.is_old(tag)), (None, true));
                }
                let any = random.below(1 << 10) as u32;
                assert_eq!(tags.is_old(any), retired.contains(&any), "{any:#x}");
                assert!(model.iter().all(|(tag, value)| tags.get(*tag) == Some(value)));
                assert_eq!(tags.len(), model.len());
            }
        }
    }

    #[test]
    fn a_continued_search_checks_each_entry_once() {
        let mut tags = Tags::new(1_000);
        let tags_in_use: Vec<u32> = (0..1_000).map(|value| tags.insert(value).unwrap()).collect();
        (0..1_000).step_by(7).for_each(|nth| assert_eq!(tags.remove(tags_in_use[nth]), Some(nth)));
        let checked = core::cell::Cell::new(0);
        let wanted = |value: &usize| {
            checked.set(checked.get() + 1);
            value.is_multiple_of(3)
        };
        let (mut found, mut last) = (Vec::new(), None);
        while let Some(tag) = tags.find(last, wanted) {
            found.extend(tags.remove(tag));
            last = Some(tag);
        }
        assert!(found.iter().copied().eq((0..1_000).filter(|value| value % 7 != 0 && value % 3 == 0)));
        assert_eq!(checked.get(), tags.len() + found.len(), "an entry was checked more than once");
    }

    #[test]
    fn the_largest_table_distinguishes_256_uses_of_an_entry() {
        let mut tags = Tags::new(ENTRIES_MAX);
        let first = tags.insert(0).unwrap();
        tags.remove(first);
        let mut round = || {
            let tags_in_use: Vec<u32> = (0..ENTRIES_MAX).map(|_| tags.insert(0).unwrap()).collect();
            assert_ne!(tags.is_old(first), tags_in_use.contains(&first));
            tags_in_use.iter().for_each(|tag| assert!(tags.remove(*tag).is_some()));
            tags_in_use.contains(&first)
        };
        assert_eq!((0..256).map(|_| round()).position(|used_again| used_again), Some(255));
    }
}
