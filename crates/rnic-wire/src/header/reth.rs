//! RDMA extended transport header (InfiniBand Architecture volume 1, section 9.3): the remote memory that is accessed.
//!
//! ```text
//!        0               1               2               3
//!  0  |                       virtual address                         |
//!  4  |                                                               |
//!  8  |                             R_Key                             |
//! 12  |                          DMA length                           |
//! ```

use crate::bytes::{be32, be64, put, split};
use crate::error::WireError;
use crate::packet::Reth;

/// Length of the header in bytes.
pub const LEN: usize = 16;

/// View of an RDMA extended transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct RethView<'a>(&'a [u8; LEN]);

impl<'a> RethView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the decoded header.
    #[inline]
    pub fn to_repr(self) -> Reth {
        Reth { va: be64(self.0, 0), rkey: be32(self.0, 8), dma_len: be32(self.0, 12) }
    }
}

impl Reth {
    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        put(out, 0, self.va.to_be_bytes());
        put(out, 8, self.rkey.to_be_bytes());
        put(out, 12, self.dma_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let header = Reth { va: 0x0011_2233_4455_6677, rkey: 0x8899_aabb, dma_len: 0x0001_0000 };
        let mut bytes = [0xee; LEN];
        header.emit(&mut bytes);
        let expected = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0, 1, 0, 0];
        assert_eq!(bytes, expected);
        assert_eq!(RethView::split(&bytes).map(|(view, rest)| (view.to_repr(), rest.len())), Ok((header, 0)));
        assert_eq!(RethView::split(&bytes[..15]).err(), Some(WireError::Short));
    }
}
