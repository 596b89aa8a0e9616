//! The table of connection states: aligned to cache lines, on huge pages if the system provides them.
//!
//! On pages of 4 KiB a table for 100,000 connections needs more entries than a processor's second-level TLB has, so
//! access to a state is slow even when it was prefetched. With events of a million random connections, the event rate
//! drops by a fifth with huge pages, and by half without (benches/fae.rs). Huge pages are not required: without them,
//! the table is only slower.

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;
use rnic_base::prefetch_all;

/// A cache line. States are aligned to lines, so that a state of 64 bytes never occupies two lines.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u64; 8]);

/// State of each connection, or of each flow, indexed by its number.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<Line>),
    Pages(MmapMut),
}

/// Size of a huge page in bytes, from which on huge pages are requested for a table.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Returns the number of cache lines of one state.
const fn lines<S>() -> usize {
    size_of::<S>().div_ceil(size_of::<Line>())
}

/// Access to a table's states.
pub(crate) struct States<'a>(&'a mut [Line]);

impl States<'_> {
    /// Returns the state with index `number`.
    #[inline(always)]
    pub(crate) fn get_mut<S: Pod>(&mut self, number: usize) -> &mut S {
        state_mut(self.0, number)
    }
}

#[inline(always)]
fn state_mut<S: Pod>(all: &mut [Line], number: usize) -> &mut S {
    let first = number * lines::<S>();
    let lines = &mut all[first..first + lines::<S>()];
    bytemuck::from_bytes_mut(&mut bytemuck::cast_slice_mut(lines)[..size_of::<S>()])
}

impl Table {
    /// Creates `count` states, each initialised to `initial`.
    pub(crate) fn new<S: Pod>(count: usize, initial: &S) -> Self {
        const { assert!(align_of::<S>() <= align_of::<Line>() && size_of::<S>() > 0) };
        let bytes = count * lines::<S>() * size_of::<Line>();
        let pages = if bytes >= HUGE_PAGE_BYTES { pages(bytes) } else { None };
        let heap = || Memory::Heap(vec![Line::zeroed(); count * lines::<S>()]);
        let mut table = Self { memory: pages.map_or_else(heap, Memory::Pages) };
        for number in 0..count {
            *table.get_mut::<S>(number) = *initial;
        }
        table
    }

    /// Returns the state with index `number`.
    #[inline(always)]
    pub(crate) fn get_mut<S: Pod>(&mut self, number: usize) -> &mut S {
        state_mut(self.lines_mut(), number)
    }

    /// Returns access to all states, for several accesses in a row.
    #[inline(always)]
    pub(crate) fn states(&mut self) -> States<'_> {
        States(self.lines_mut())
    }

    /// Prefetches state `number`, if it exists.
    #[inline(always)]
    pub(crate) fn fetch<S: Pod>(&self, number: usize) {
        let first = number * lines::<S>();
        if let Some(state) = self.lines().get(first..first + lines::<S>()) {
            prefetch_all(state);
        }
    }

    #[inline(always)]
    fn lines(&self) -> &[Line] {
        match &self.memory {
            Memory::Heap(lines) => lines,
            Memory::Pages(bytes) => bytemuck::cast_slice(bytes),
        }
    }

    #[inline(always)]
    fn lines_mut(&mut self) -> &mut [Line] {
        match &mut self.memory {
            Memory::Heap(lines) => lines,
            Memory::Pages(bytes) => bytemuck::cast_slice_mut(bytes),
        }
    }
}

/// Maps separate memory, marked for huge pages; returns `None` where this is not available.
fn pages(bytes: usize) -> Option<MmapMut> {
    // The size is a multiple of the huge page size, so that the last states are on a huge page too.
    let memory = MmapMut::map_anon(bytes.next_multiple_of(HUGE_PAGE_BYTES)).ok()?;
    #[cfg(target_os = "linux")]
    memory.advise(memmap2::Advice::HugePage).ok()?;
    Some(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
    #[repr(C)]
    struct Wide([u64; 20]);

    #[test]
    fn states_do_not_overlap_on_the_heap_or_on_huge_pages() {
        for count in [3, 20_000] {
            let mut table = Table::new(count, &Wide([7; 20]));
            assert_eq!(matches!(table.memory, Memory::Heap(_)), count == 3, "160 bytes occupy three cache lines");
            for number in 0..count {
                assert_eq!(*table.get_mut::<Wide>(number), Wide([7; 20]));
                *table.get_mut(number) = Wide([number as u64; 20]);
            }
            table.fetch::<Wide>(count - 1);
            for number in 0..count {
                assert_eq!(*table.get_mut::<Wide>(number), Wide([number as u64; 20]));
                assert!(core::ptr::from_mut(table.get_mut::<Wide>(number)).addr().is_multiple_of(64));
            }
        }
    }
}
