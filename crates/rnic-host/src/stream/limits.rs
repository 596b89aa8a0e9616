//! Bounds of a stream.

/// Smallest segment size, in bytes. Smaller ones would need more receives than a queue pair should have.
pub(super) const SEGMENT_BYTES_LEAST: u32 = 128;

/// Bytes that a stream can send before it must know that some are delivered, and bytes for which it has receives.
pub(super) const WINDOW_BYTES: u32 = 256 << 10;

/// Receives beyond those for data: for messages that only announce receives, of which at most one at a time is in
/// flight, but which the receiving end may process late.
pub(super) const SPARE_RECEIVES: u32 = 8;
