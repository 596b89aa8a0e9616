//! The table of queue pairs, which finds them by number and by slot.

use rnic_base::limits::QUEUE_PAIRS_MAX;
use rnic_base::{prefetch, prefetch_at, prefetch_whole_at};
use rnic_wire::Qpn;

use crate::error::ResourceError;
use crate::qp::Qp;

/// Queue pair numbers per page: with small numbers, a small engine needs one page; with random numbers, nearly every
/// queue pair needs its own page.
const PAGE_SLOTS: usize = 256;

/// Divisor that determines the growth of the slot table. The table grows by 1/64 of its size: doubling would leave up
/// to half of the table of a large engine unused, and an idle connection must occupy less than a KiB.
const GROWTH_DIVISOR: usize = 64;

/// Slots of `PAGE_SLOTS` consecutive queue pair numbers.
type Page = [u32; PAGE_SLOTS];

/// Value of entries without a queue pair.
const NO_SLOT: u32 = u32::MAX;

/// All queue pairs. They are stored in reusable slots; a table of pages finds the slot of a 24-bit number in two
/// loads. A page without any number in use is freed; the list of pages, 8 bytes for each, is never shortened.
#[derive(Debug)]
pub(super) struct QpTable {
    slots: Vec<Option<Qp>>,
    free: Vec<u32>,
    pages: Vec<Option<Box<Page>>>,
    /// The last page that was freed, kept for the next one that is needed: usually numbers are added and removed one
    /// at a time.
    spare_page: Option<Box<Page>>,
    /// The last number that was searched for, and its slot: consecutive packets and posts often use the same number.
    last_lookup: (Qpn, u32),
    /// State of the generator of queue pair numbers.
    random_state: u64,
    count: u32,
}

impl QpTable {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            pages: Vec::new(),
            spare_page: None,
            last_lookup: (Qpn::new(0), NO_SLOT),
            random_state: secret,
            count: 0,
        }
    }

    /// Prefetches the headers of the table.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.slots);
        prefetch(&self.pages);
    }

    /// Prefetches the first entries of the list of pages, which are those of small numbers; to be called after
    /// [`Self::prefetch`].
    #[inline]
    pub(super) fn prefetch_pages(&self) {
        prefetch_at(&self.pages, 0);
    }

    /// Prefetches the slot of `number`; the step after [`Self::prefetch_pages`].
    #[inline]
    pub(super) fn prefetch_number(&self, number: Qpn) {
        let number = number.get() as usize;
        if let Some(Some(page)) = self.pages.get(number / PAGE_SLOTS) {
            prefetch_at(page.as_slice(), number % PAGE_SLOTS);
        }
    }

    /// Prefetches the queue pair in `slot`; the step after [`Self::prefetch_number`].
    #[inline]
    pub(super) fn prefetch_slot(&self, slot: u32) {
        prefetch_whole_at(&self.slots, slot as usize);
    }

    /// Returns the queue pair in `slot`.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> Option<&Qp> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn slot_of(&self, number: Qpn) -> u32 {
        let number = number.get() as usize;
        match self.pages.get(number / PAGE_SLOTS) {
            Some(Some(page)) => page[number % PAGE_SLOTS],
            _ => NO_SLOT,
        }
    }

    #[inline]
    pub(super) fn find_mut(&mut self, number: Qpn) -> Option<&mut Qp> {
        if number != self.last_lookup.0 {
            self.last_lookup = (number, self.slot_of(number));
        }
        let slot = self.last_lookup.1;
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn find(&self, number: Qpn) -> Option<&Qp> {
        self.slots.get(self.slot_of(number) as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut Qp> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Returns the queue pairs in two different slots.
    pub(super) fn pair_mut(&mut self, one: u32, other: u32) -> Option<(&mut Qp, &mut Qp)> {
        let [one, other] = self.slots.get_disjoint_mut([one as usize, other as usize]).ok()?;
        one.as_mut().zip(other.as_mut())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.slots.iter_mut().flatten()
    }

    /// Inserts a queue pair with `number`, or with a generated number; `create` receives the number and the slot.
    pub(super) fn insert(
        &mut self,
        number: Option<Qpn>,
        create: impl FnOnce(Qpn, u32) -> Qp,
    ) -> Result<Qpn, ResourceError> {
        if self.count >= QUEUE_PAIRS_MAX {
            return Err(ResourceError::Exhausted { what: "queue pairs", limit: u64::from(QUEUE_PAIRS_MAX) });
        }
        let number = match number {
            // 0 and 1 are reserved for management (IBA 10.3.1.1).
            Some(number) if number.get() < 2 || self.slot_of(number) != NO_SLOT => {
                return Err(ResourceError::NumberInUse(number.get()));
            }
            Some(number) => number,
            None => self.draw_number(),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(self.slots.len() / GROWTH_DIVISOR + 1);
            }
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(create(number, slot));
        self.insert_number(number, slot);
        self.count += 1;
        Ok(number)
    }

    pub(super) fn remove(&mut self, number: Qpn) -> Option<Qp> {
        let slot = self.slot_of(number);
        let qp = self.slots.get_mut(slot as usize)?.take()?;
        self.remove_number(number);
        self.free.push(slot);
        self.count -= 1;
        Some(qp)
    }

    /// Returns a free number that is not obvious from the previous one.
    fn draw_number(&mut self) -> Qpn {
        loop {
            // SplitMix64.
            self.random_state = self.random_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut hash = self.random_state;
            hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let number = Qpn::new((hash >> 40) as u32);
            if number.get() >= 2 && self.slot_of(number) == NO_SLOT {
                return number;
            }
        }
    }

    /// Maps `number`, which is not in use, to `slot`.
    fn insert_number(&mut self, number: Qpn, slot: u32) {
        self.last_lookup = (number, slot);
        let (page, index) = (number.get() as usize / PAGE_SLOTS, number.get() as usize % PAGE_SLOTS);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let spare_page = &mut self.spare_page;
        let page = self.pages[page]
            .get_or_insert_with(|| spare_page.take().unwrap_or_else(|| Box::new([NO_SLOT; PAGE_SLOTS])));
        page[index] = slot;
    }

    /// Removes `number`, and frees its page if no other number in the page is in use. Scanning a page takes less time
    /// than the rest of destroying a queue pair, and with a counter, a page would be larger than a kilobyte.
    fn remove_number(&mut self, number: Qpn) {
        self.last_lookup = (number, NO_SLOT);
        let (page, index) = (number.get() as usize / PAGE_SLOTS, number.get() as usize % PAGE_SLOTS);
        let entry = &mut self.pages[page];
        let page = entry.as_mut().expect("the number is in use");
        page[index] = NO_SLOT;
        if page.iter().all(|slot| *slot == NO_SLOT) {
            self.spare_page = entry.take();
        }
    }
}
