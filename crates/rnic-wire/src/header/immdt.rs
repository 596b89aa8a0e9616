//! Immediate data (InfiniBand Architecture volume 1, section 9.3): four bytes for the receiver's completion.
//!
//! The bytes belong to the application; the number here is their value in network byte order.

use crate::bytes::split;
use crate::error::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// View of immediate data in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct ImmDtView<'a>(&'a [u8; LEN]);

impl<'a> ImmDtView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the immediate data.
    #[inline]
    pub const fn value(self) -> u32 {
        u32::from_be_bytes(*self.0)
    }
}

/// Writes immediate data.
#[inline]
pub fn emit(value: u32, out: &mut [u8; LEN]) {
    *out = value.to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut bytes = [0; LEN];
        emit(0x0102_0304, &mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert_eq!(
            ImmDtView::split(&[1, 2, 3, 4, 5]).map(|(view, rest)| (view.value(), rest.len())),
            Ok((0x0102_0304, 1))
        );
        assert_eq!(ImmDtView::split(&[1, 2, 3]).err(), Some(WireError::Short));
    }
}
