//! Immediate data (InfiniBand Architecture volume 1, section 9.3): four bytes for the receiver's completion.
//!
//! The bytes belong to the application; the number here is what they make in network order.

use crate::bytes::split;
use crate::error::WireError;

/// Bytes of the header.
pub const LEN: usize = 4;

/// Immediate data in place.
#[derive(Clone, Copy, Debug)]
pub struct ImmDtView<'a>(&'a [u8; LEN]);

impl<'a> ImmDtView<'a> {
    /// Takes the header off the front of `bytes`; gives it and what follows.
    ///
    /// # Errors
    /// [`WireError::Short`] when it is not all there.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// The immediate data.
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
