//! A table whose places are used again.

/// Things by a number that is used again.
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
    /// Takes `item`; answers its number.
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(item);
        slot
    }

    /// Gives the item of a number back.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn remove(&mut self, slot: u32) -> T {
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a slot in use")
    }

    /// The item of a number.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        self.slots[slot as usize].as_ref().expect("a slot in use")
    }

    /// The same, for changing.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].as_mut().expect("a slot in use")
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All of them, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}
