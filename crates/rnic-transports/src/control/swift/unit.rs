//! The unit of windows.

/// One packet of a window.
pub(super) const WINDOW_ONE: u32 = 1 << 10;
