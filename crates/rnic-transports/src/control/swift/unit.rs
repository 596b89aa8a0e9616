//! Unit in which Swift's congestion windows are stored: 2^-10 packets.

/// A congestion window of one packet.
pub(super) const WINDOW_ONE: u32 = 1 << 10;
