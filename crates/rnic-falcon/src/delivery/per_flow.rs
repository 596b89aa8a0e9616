//! Per-flow state of a connection: the state of the first flow is stored inline, because most connections have only
//! one flow.

use core::ops::{Index, IndexMut};

/// One value of type `T` for each flow.
#[derive(Clone, Debug)]
pub(crate) struct PerFlow<T> {
    first: T,
    others: Box<[T]>,
}

impl<T> PerFlow<T> {
    /// Creates the state of `count` flows, at least one, by calling `of` with the index of each.
    pub(crate) fn new(count: usize, mut of: impl FnMut(usize) -> T) -> Self {
        Self { first: of(0), others: (1..count).map(of).collect() }
    }

    /// Returns the state of the first flow if there is no other flow.
    #[inline]
    pub(crate) fn only(&self) -> Option<&T> {
        self.others.is_empty().then_some(&self.first)
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        core::iter::once(&self.first).chain(&*self.others)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        core::iter::once(&mut self.first).chain(&mut *self.others)
    }
}

impl<T> Index<u8> for PerFlow<T> {
    type Output = T;
    #[inline]
    fn index(&self, flow: u8) -> &T {
        if flow == 0 { &self.first } else { &self.others[usize::from(flow) - 1] }
    }
}

impl<T> IndexMut<u8> for PerFlow<T> {
    #[inline]
    fn index_mut(&mut self, flow: u8) -> &mut T {
        if flow == 0 { &mut self.first } else { &mut self.others[usize::from(flow) - 1] }
    }
}
