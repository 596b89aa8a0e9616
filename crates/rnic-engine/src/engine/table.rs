//! Queue pairs by number and by slot.

use rnic_base::limits::QUEUE_PAIRS_MAX;
use rnic_base::{prefetch, prefetch_at, prefetch_whole_at};
use rnic_wire::Qpn;

use crate::error::ResourceError;
use crate::qp::Qp;

/// Queue pair numbers per page: small engines with small numbers have one page, random numbers access one page each.
const PAGE: usize = 256;

/// Divisor that determines the growth of the slot table: it grows by 1/64 of its size, because doubling would leave up
/// to half of the memory of a large engine unused, and an idle connection must cost less than a KiB.
const GROWTH: usize = 64;

/// Slots of `PAGE` consecutive queue pair numbers.
type Page = [u32; PAGE];

/// Value of entries without a queue pair.
const NOBODY: u32 = u32::MAX;

/// All queue pairs. They are stored in reusable slots; a table of pages finds the slot of a 24-bit number in two loads.
/// A page without any number in use is freed; the list of pages, 8 bytes for each, stays.
#[derive(Debug)]
pub(super) struct QpTable {
    slots: Vec<Option<Qp>>,
    free: Vec<u32>,
    pages: Vec<Option<Box<Page>>>,
    /// The last page that was freed, for the next page that is needed: usually numbers are added and removed one at a
    /// time.
    spare: Option<Box<Page>>,
    /// The last number looked up and its slot: consecutive packets and posts often use the same number.
    last: (Qpn, u32),
    /// State of the generator of queue pair numbers.
    draw: u64,
    count: u32,
}

impl QpTable {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            pages: Vec::new(),
            spare: None,
            last: (Qpn::new(0), NOBODY),
            draw: secret,
            count: 0,
        }
    }

    /// Prefetches the headers of the table.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.slots);
        prefetch(&self.pages);
    }

    /// Prefetches the page entry for small numbers; the step after [`Self::prefetch`].
    #[inline]
    pub(super) fn touch_pages(&self) {
        prefetch_at(&self.pages, 0);
    }

    /// Prefetches the slot of `number`; the step after [`Self::touch_pages`].
    #[inline]
    pub(super) fn touch_number(&self, number: Qpn) {
        let number = number.get() as usize;
        if let Some(Some(page)) = self.pages.get(number / PAGE) {
            prefetch_at(page.as_slice(), number % PAGE);
        }
    }

    /// Prefetches the queue pair in `slot`; the step after [`Self::touch_number`].
    #[inline]
    pub(super) fn touch_at(&self, slot: u32) {
        prefetch_whole_at(&self.slots, slot as usize);
    }

    /// Returns the queue pair in `slot`.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> Option<&Qp> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(super) fn slot_of(&self, number: Qpn) -> u32 {
        let number = number.get() as usize;
        match self.pages.get(number / PAGE) {
            Some(Some(page)) => page[number % PAGE],
            _ => NOBODY,
        }
    }

    #[inline]
    pub(super) fn find_mut(&mut self, number: Qpn) -> Option<&mut Qp> {
        if number != self.last.0 {
            self.last = (number, self.slot_of(number));
        }
        let slot = self.last.1;
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn find(&self, number: Qpn) -> Option<&Qp> {
        self.slots.get(self.slot_of(number) as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut Qp> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.slots.iter_mut().flatten()
    }

    /// Inserts a queue pair with `number`, or with a generated number; `make` gets number and slot.
    pub(super) fn insert(
        &mut self,
        number: Option<Qpn>,
        make: impl FnOnce(Qpn, u32) -> Qp,
    ) -> Result<Qpn, ResourceError> {
        if self.count >= QUEUE_PAIRS_MAX {
            return Err(ResourceError::Exhausted { what: "queue pairs", limit: u64::from(QUEUE_PAIRS_MAX) });
        }
        let number = match number {
            // 0 and 1 are reserved for management (IBA 10.3.1.1).
            Some(number) if number.get() < 2 || self.slot_of(number) != NOBODY => {
                return Err(ResourceError::NumberTaken(number.get()));
            }
            Some(number) => number,
            None => self.draw_number(),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact(self.slots.len() / GROWTH + 1);
            }
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(make(number, slot));
        self.enter(number, slot);
        self.count += 1;
        Ok(number)
    }

    pub(super) fn remove(&mut self, number: Qpn) -> Option<Qp> {
        let slot = self.slot_of(number);
        let qp = self.slots.get_mut(slot as usize)?.take()?;
        self.strike(number);
        self.free.push(slot);
        self.count -= 1;
        Some(qp)
    }

    /// Returns a free number that cannot be derived simply from the last one.
    fn draw_number(&mut self) -> Qpn {
        loop {
            // SplitMix64.
            self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.draw;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let number = Qpn::new((mixed >> 40) as u32);
            if number.get() >= 2 && self.slot_of(number) == NOBODY {
                return number;
            }
        }
    }

    /// Maps `number`, which was unused, to `slot`.
    fn enter(&mut self, number: Qpn, slot: u32) {
        self.last = (number, slot);
        let (page, index) = (number.get() as usize / PAGE, number.get() as usize % PAGE);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let spare = &mut self.spare;
        let page = self.pages[page].get_or_insert_with(|| spare.take().unwrap_or_else(|| Box::new([NOBODY; PAGE])));
        page[index] = slot;
    }

    /// Removes `number`, and frees its page when it was the last number in use there. Scanning a page takes less time
    /// than the rest of destroying a queue pair, and a counter beside it would make it larger than a kilobyte.
    fn strike(&mut self, number: Qpn) {
        self.last = (number, NOBODY);
        let (page, index) = (number.get() as usize / PAGE, number.get() as usize % PAGE);
        let place = &mut self.pages[page];
        let page = place.as_mut().expect("the number was somebody's");
        page[index] = NOBODY;
        if page.iter().all(|slot| *slot == NOBODY) {
            self.spare = place.take();
        }
    }
}
