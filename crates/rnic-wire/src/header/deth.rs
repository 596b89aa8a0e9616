//! Datagram extended transport header (InfiniBand Architecture volume 1, section 9.3): the source of an unreliable
//! datagram, and the queue key that the receiver checks.
//!
//! ```text
//!        0               1               2               3
//!  0  |                             Q_Key                             |
//!  4  |   reserved    |                 source QP                     |
//! ```

use crate::bytes::{be32, put, split};
use crate::error::WireError;
use crate::packet::Qpn;

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// View of a datagram extended transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct DethView<'a>(&'a [u8; LEN]);

impl<'a> DethView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the Q_Key.
    #[inline]
    pub fn queue_key(self) -> u32 {
        be32(self.0, 0)
    }

    /// Returns the source queue pair of the datagram.
    #[inline]
    pub fn source_qpn(self) -> Qpn {
        Qpn::new(be32(self.0, 4))
    }
}

/// Writes the header.
#[inline]
pub fn emit(queue_key: u32, source_qpn: Qpn, out: &mut [u8; LEN]) {
    put(out, 0, queue_key.to_be_bytes());
    put(out, 4, source_qpn.get().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut bytes = [0xee; LEN];
        emit(0x8001_0000, Qpn::new(0x12_3456), &mut bytes);
        assert_eq!(bytes, [0x80, 1, 0, 0, 0, 0x12, 0x34, 0x56]);
        let (view, rest) = DethView::split(&bytes).expect("eight bytes");
        assert_eq!((view.queue_key(), view.source_qpn(), rest.len()), (0x8001_0000, Qpn::new(0x12_3456), 0));
        assert_eq!(DethView::split(&bytes[..7]).err(), Some(WireError::Short));
    }
}
