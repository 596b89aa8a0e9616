//! State of a direction for each of its two windows.

use core::ops::{Index, IndexMut};

use rnic_wire::falcon::Window;

/// One value of type `T` for each window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows<T> {
    pub(crate) request: T,
    pub(crate) data: T,
}

impl<T> Windows<T> {
    /// Creates the state of both windows by calling `of` for each.
    #[inline]
    pub(crate) fn new(mut of: impl FnMut(Window) -> T) -> Self {
        Self { request: of(Window::Request), data: of(Window::Data) }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.request, &self.data].into_iter()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        [&mut self.request, &mut self.data].into_iter()
    }
}

impl<T> Index<Window> for Windows<T> {
    type Output = T;
    #[inline]
    fn index(&self, window: Window) -> &T {
        match window {
            Window::Request => &self.request,
            Window::Data => &self.data,
        }
    }
}

impl<T> IndexMut<Window> for Windows<T> {
    #[inline]
    fn index_mut(&mut self, window: Window) -> &mut T {
        match window {
            Window::Request => &mut self.request,
            Window::Data => &mut self.data,
        }
    }
}
