//! A table whose slots are reused.

/// Items indexed by slot numbers that are reused.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Inserts `item`; returns its slot.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(item);
        slot
    }

    /// Removes the item of a slot and returns it.
    ///
    /// # Panics
    /// When the slot is empty.
    pub(crate) fn remove(&mut self, slot: u32) -> T {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a slot in use")
    }

    /// Returns the item of a slot.
    ///
    /// # Panics
    /// When the slot is empty.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        self.slots[slot as usize].as_ref().expect("a slot in use")
    }

    /// Returns mutable access to the item of a slot.
    ///
    /// # Panics
    /// When the slot is empty.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].as_mut().expect("a slot in use")
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns all items, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}
