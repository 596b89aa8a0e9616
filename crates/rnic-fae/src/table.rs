//! The table of states: whole cache lines, on huge pages where the system gives them.
//!
//! On pages of 4 KiB a table for 100,000 connections needs more entries than a processor's second-level TLB has, and a
//! state that has been fetched ahead is found late all the same: with huge pages a million random connections cost a
//! fifth of the rate instead of half of it (benches/fae.rs). Without them everything works, only slower.

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;
use rnic_base::prefetch_all;

/// A cache line. States begin at one, so that a state of 64 bytes is one line and not two.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u64; 8]);

/// States, by number.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<Line>),
    Pages(MmapMut),
}

/// From this size on (a huge page) pages are asked for.
const PAGES_FROM_BYTES: usize = 2 << 20;

/// Lines of one state.
const fn lines<S>() -> usize {
    size_of::<S>().div_ceil(size_of::<Line>())
}

/// A table's states.
pub(crate) struct States<'a>(&'a mut [Line]);

impl States<'_> {
    /// State `number`.
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
    /// `count` states, each `fresh`.
    pub(crate) fn new<S: Pod>(count: usize, fresh: &S) -> Self {
        const { assert!(align_of::<S>() <= align_of::<Line>() && size_of::<S>() > 0) };
        let bytes = count * lines::<S>() * size_of::<Line>();
        let pages = if bytes >= PAGES_FROM_BYTES { pages(bytes) } else { None };
        let heap = || Memory::Heap(vec![Line::zeroed(); count * lines::<S>()]);
        let mut table = Self { memory: pages.map_or_else(heap, Memory::Pages) };
        for number in 0..count {
            *table.get_mut::<S>(number) = *fresh;
        }
        table
    }

    /// State `number`.
    #[inline(always)]
    pub(crate) fn get_mut<S: Pod>(&mut self, number: usize) -> &mut S {
        state_mut(self.lines_mut(), number)
    }

    /// All states, for several look-ups.
    #[inline(always)]
    pub(crate) fn states(&mut self) -> States<'_> {
        States(self.lines_mut())
    }

    /// Asks for state `number`, if there is one.
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

/// Memory of our own, marked for huge pages; `None` where there is no such thing.
fn pages(bytes: usize) -> Option<MmapMut> {
    // Whole huge pages, so that the last states lie on one too.
    let memory = MmapMut::map_anon(bytes.next_multiple_of(PAGES_FROM_BYTES)).ok()?;
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
    fn states_keep_apart_on_the_heap_and_on_pages() {
        for count in [3, 20_000] {
            let mut table = Table::new(count, &Wide([7; 20]));
            assert_eq!(matches!(table.memory, Memory::Heap(_)), count == 3, "160 bytes are three lines");
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
