//! Atomic acknowledge extended transport header (InfiniBand Architecture volume 1, section 9.3): the value from
//! before the operation.

use crate::bytes::split;
use crate::error::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// View of an atomic acknowledge extended transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AtomicAckEthView<'a>(&'a [u8; LEN]);

impl<'a> AtomicAckEthView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the value from before the operation.
    #[inline]
    pub const fn original(self) -> u64 {
        u64::from_be_bytes(*self.0)
    }
}

/// Writes the header.
#[inline]
pub fn emit(original: u64, out: &mut [u8; LEN]) {
    *out = original.to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut bytes = [0; LEN];
        emit(0x0102_0304_0506_0708, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
        let split = AtomicAckEthView::split(&bytes).map(|(view, rest)| (view.original(), rest.len()));
        assert_eq!(split, Ok((0x0102_0304_0506_0708, 0)));
        assert_eq!(AtomicAckEthView::split(&bytes[..7]).err(), Some(WireError::Short));
    }
}
