//! Bounds of a stream.

/// Smallest segment size, in bytes. Smaller ones would need more receives than a queue pair should have.
pub(super) const SEGMENT_BYTES_LEAST: u32 = 128;

/// Number of bytes that a stream can send before some must be known to be delivered; receives for this number of bytes
/// are posted.
pub(super) const WINDOW_BYTES: u32 = 256 << 10;

/// Number of receives beyond those for data: for messages that only announce receives, at most one of which is in
/// flight, but which the receiver may process late.
pub(super) const SPARE_RECEIVES: u32 = 8;
