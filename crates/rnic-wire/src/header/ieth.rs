//! Invalidate extended transport header (InfiniBand Architecture volume 1, section 9.3): the key that is invalidated
//! by a Send with invalidate.

use crate::bytes::split;
use crate::error::WireError;

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// View of an invalidate extended transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct IethView<'a>(&'a [u8; LEN]);

impl<'a> IethView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the key to invalidate.
    #[inline]
    pub const fn rkey(self) -> u32 {
        u32::from_be_bytes(*self.0)
    }
}

/// Writes the header.
#[inline]
pub fn emit(rkey: u32, out: &mut [u8; LEN]) {
    *out = rkey.to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut bytes = [0; LEN];
        emit(0x8899_aabb, &mut bytes);
        assert_eq!(bytes, [0x88, 0x99, 0xaa, 0xbb]);
        assert_eq!(IethView::split(&bytes).map(|(view, rest)| (view.rkey(), rest.len())), Ok((0x8899_aabb, 0)));
        assert_eq!(IethView::split(&[]).err(), Some(WireError::Short));
    }
}
