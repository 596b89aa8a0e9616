//! Accessors for big-endian fields in byte arrays, shared by all headers.

use crate::error::WireError;

/// Splits the first `N` bytes off `bytes`; returns them and the rest.
#[inline]
pub(crate) fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), WireError> {
    bytes.split_first_chunk().ok_or(WireError::Short)
}

/// Returns the `N` bytes from `at`.
///
/// # Panics
/// When they are outside `bytes`. Offsets are constants of a header's layout, and lengths are checked before.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

/// Returns the 16-bit field at `at`.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// Returns the 24-bit field at `at`.
#[inline]
pub(crate) fn be24(bytes: &[u8], at: usize) -> u32 {
    let [high, middle, low] = array(bytes, at);
    u32::from_be_bytes([0, high, middle, low])
}

/// Returns the 32-bit field at `at`.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// Returns the 64-bit field at `at`.
#[inline]
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// Writes `field` at `at`.
///
/// # Panics
/// When the field is outside `bytes`, as in [`array()`].
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// Writes the low 24 bits of `value` at `at`.
#[inline]
pub(crate) fn put24(bytes: &mut [u8], at: usize, value: u32) {
    let [_, high, middle, low] = value.to_be_bytes();
    put(bytes, at, [high, middle, low]);
}
