//! Congestion notification packet (InfiniBand Architecture annex A17): a base transport header with
//! BECN set, then sixteen reserved bytes, zero when sent and ignored when received.

use crate::bytes::split;
use crate::error::WireError;

/// Number of reserved bytes after the base transport header.
pub const LEN: usize = 16;

/// Splits the reserved bytes off the front of `bytes`; returns the bytes after them.
///
/// # Errors
/// [`WireError::Short`] when `bytes` is too short.
#[inline]
pub fn split_reserved(bytes: &[u8]) -> Result<&[u8], WireError> {
    split::<LEN>(bytes).map(|(_, rest)| rest)
}

/// Writes the reserved bytes.
#[inline]
pub fn emit(out: &mut [u8; LEN]) {
    *out = [0; LEN];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_zero_when_sent_and_ignored_when_received() {
        let mut bytes = [0xee; LEN];
        assert_eq!(split_reserved(&bytes), Ok(&[][..]));
        emit(&mut bytes);
        assert_eq!(bytes, [0; LEN]);
        assert_eq!(split_reserved(&bytes[1..]), Err(WireError::Short));
    }
}
