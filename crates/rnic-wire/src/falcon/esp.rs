//! Encapsulation of a Falcon packet as an alternative to PSP: IPsec's ESP over UDP, in transport mode, with AES-GCM
//! (RFC 4303; RFC 3948 for UDP; RFC 4106 and, without encryption, RFC 4543; OCP Falcon Transport Protocol, Rev 0.9,
//! section 7.1), with Falcon's timestamp in the initialization vector.
//!
//! ```text
//!     Ethernet | IP | UDP | ESP, 16 | Falcon, upper layer, payload, padding | ESP's trailer, 2 to 5 | ICV, 16
//!
//!     0               1               2               3
//!  0 |                 security parameters index                     | authenticated
//!  1 |                 sequence number                               | authenticated
//!  2 |                 initialization vector: salt                   |
//!  3 |                 initialization vector: timestamp              |
//!    |                 the packet                                    | encrypted
//!    |   padding: 1, 2, 3            |   its length  |  next header  | encrypted
//! ```
//!
//! - ESP has no cleartext field after its vector: the connection is identified by the index.
//! - *Next header* is 252 as in PSP. The padding aligns to words, as RFC 4303 requires, and is checked after
//!   authentication.
//! - The *timestamp* is at the same position in the vector as with PSP.
//! - Sequence numbers have 32 bits; a sender changes its key long before they wrap.
//! - The receiver chooses the index (RFC 4303, section 2.1). OpenRNIC sets its two highest bits, which are never both
//!   set in the first byte of a packet of the RoCE family, because both protocols share one UDP port.

use core::ops::Range;

use crate::bytes::{be32, put};
use crate::falcon::psp::{Cipher, ICV_LEN, Iv, NEXT_HEADER};
use crate::falcon::{Timestamp, WireError};

/// Length of the header in bytes: index, sequence number, vector.
pub const LEN: usize = 16;
/// Maximum length of the trailer in bytes: padding, its length, next header.
pub const TRAILER_LEN_MAX: usize = 5;
/// Bits that are set in every index that OpenRNIC assigns.
pub const SPI_MARK: u32 = 0xc000_0000;

/// Returns the length of the trailer after a packet of `message_len` bytes, in bytes.
#[inline]
pub const fn trailer_len(message_len: usize) -> usize {
    2 + pad_len(message_len)
}

/// Returns the number of padding bytes that align the end of the trailer to a word.
#[inline]
const fn pad_len(message_len: usize) -> usize {
    (message_len + 2).wrapping_neg() & 3
}

/// Returns the number of bytes that header, trailer and check value add to a packet of `message_len` bytes.
#[inline]
pub const fn encapsulation_len(message_len: usize) -> usize {
    LEN + trailer_len(message_len) + ICV_LEN
}

/// An ESP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Header {
    /// Security parameters index: identifies the key.
    pub spi: u32,
    /// Sequence number of the packet under this key, from 1 on.
    pub sequence: u32,
    /// Initialization vector of AES-GCM.
    pub iv: Iv,
}

impl Header {
    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        put(out, 0, self.spi.to_be_bytes());
        put(out, 4, self.sequence.to_be_bytes());
        put(out, 8, self.iv.salt.to_be_bytes());
        put(out, 12, self.iv.timestamp.value().to_be_bytes());
    }

    /// Returns the nonce of the cipher: four bytes known to both ends, and the vector.
    #[inline]
    pub fn nonce(&self, salt: [u8; 4]) -> [u8; 12] {
        let mut nonce = [0; 12];
        put(&mut nonce, 0, salt);
        put(&mut nonce, 4, self.iv.salt.to_be_bytes());
        put(&mut nonce, 8, self.iv.timestamp.value().to_be_bytes());
        nonce
    }
}

/// Offsets of the parts of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    datagram_len: usize,
}

impl Layout {
    /// Returns the layout of a datagram of `datagram_len` bytes.
    ///
    /// # Panics
    /// When that is less than header, trailer and check value.
    #[inline]
    pub const fn new(datagram_len: usize) -> Self {
        assert!(datagram_len >= LEN + 2 + ICV_LEN);
        Self { datagram_len }
    }

    /// Returns the range of bytes that are authenticated but not encrypted: with GMAC, which encrypts nothing, all
    /// bytes.
    #[inline]
    pub const fn associated(self, cipher: Cipher) -> Range<usize> {
        if cipher.encrypts() { 0..LEN - size_of::<Iv>() } else { 0..self.icv().start }
    }

    /// Returns the range of bytes that are encrypted.
    #[inline]
    pub const fn sealed(self, cipher: Cipher) -> Range<usize> {
        if cipher.encrypts() { LEN..self.icv().start } else { self.icv().start..self.icv().start }
    }

    /// Returns the range of the check value.
    #[inline]
    pub const fn icv(self) -> Range<usize> {
        self.datagram_len - ICV_LEN..self.datagram_len
    }

    /// Writes the trailer after the packet in `datagram`; the packet ends `trailer_len` bytes before the check value.
    ///
    /// # Panics
    /// When the length of `datagram` does not match this layout, or there is no space for the trailer.
    #[inline]
    pub fn close(self, datagram: &mut [u8], trailer_len: usize) {
        let end = self.icv().start;
        let trailer = &mut datagram[end - trailer_len..end];
        let pad = trailer.len() - 2;
        (1..).zip(&mut *trailer).for_each(|(value, byte)| *byte = value);
        trailer[pad..].copy_from_slice(&[pad as u8, NEXT_HEADER]);
    }

    /// Returns the range of the packet in `datagram`, which must have been authenticated and decrypted.
    ///
    /// # Errors
    /// [`WireError`] when its ESP trailer is invalid, or the packet is not Falcon.
    ///
    /// # Panics
    /// When the length of `datagram` does not match this layout.
    #[inline]
    pub fn message(self, datagram: &[u8]) -> Result<Range<usize>, WireError> {
        assert_eq!(datagram.len(), self.datagram_len, "wrong datagram length");
        let [rest @ .., pad, next_header] = &datagram[LEN..self.icv().start] else { return Err(WireError::Short) };
        if *next_header != NEXT_HEADER {
            return Err(WireError::NextHeader);
        }
        let len = rest.len().checked_sub(usize::from(*pad)).ok_or(WireError::Esp)?;
        let is_counted = rest[len..].iter().zip(1..=u8::MAX).all(|(byte, value)| *byte == value);
        if is_counted { Ok(LEN..LEN + len) } else { Err(WireError::Esp) }
    }
}

/// Returns whether a datagram whose first byte is `first` can be an ESP datagram with an index that OpenRNIC assigns.
#[inline]
pub const fn is_index(first: u8) -> bool {
    first >= (SPI_MARK >> 24) as u8
}

/// Parses the header of a datagram; returns it and the offsets of the other parts.
///
/// # Errors
/// [`WireError`] when it cannot be ESP with an index that OpenRNIC assigns.
#[inline]
pub fn parse(datagram: &[u8]) -> Result<(Header, Layout), WireError> {
    let header: &[u8; LEN] = datagram.first_chunk().ok_or(WireError::Short)?;
    if !is_index(header[0]) {
        return Err(WireError::Esp);
    }
    if datagram.len() < LEN + 2 + ICV_LEN {
        return Err(WireError::Short);
    }
    if !datagram.len().is_multiple_of(4) {
        return Err(WireError::Esp);
    }
    let iv = Iv { salt: be32(header, 8), timestamp: Timestamp::new(be32(header, 12)) };
    Ok((Header { spi: be32(header, 0), sequence: be32(header, 4), iv }, Layout::new(datagram.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        spi: 0xc765_4321,
        sequence: 0x0a0b_0c0d,
        iv: Iv { salt: 0x0102_0304, timestamp: Timestamp::new(0x0506_0708) },
    };

    /// Returns a datagram around a message of this length, unencrypted.
    fn datagram(message_len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; message_len + encapsulation_len(message_len)];
        HEADER.emit(bytes.first_chunk_mut().expect("header and trailer fit"));
        Layout::new(bytes.len()).close(&mut bytes, trailer_len(message_len));
        bytes
    }

    #[test]
    fn golden() {
        let mut expected = vec![0xc7, 0x65, 0x43, 0x21, 10, 11, 12, 13, 1, 2, 3, 4, 5, 6, 7, 8];
        expected.extend_from_slice(&[0xee, 0xee, 0xee, 1, 2, 3, 3, 252]);
        let bytes = datagram(3);
        assert_eq!(bytes[..24], expected);
        assert_eq!(bytes.len(), 24 + 16);
        assert_eq!(datagram(4)[20..24], [1, 2, 2, 252]);
        assert_eq!(datagram(5)[21..24], [1, 1, 252]);
        assert_eq!(datagram(6)[22..24], [0, 252]);
        assert_eq!(HEADER.nonce([9, 8, 7, 6]), [9, 8, 7, 6, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn f42_the_timestamp_is_in_the_vector_of_esp() {
        for len in 0..70 {
            let bytes = datagram(len);
            let (header, layout) = parse(&bytes).expect("the datagram has the ESP format");
            assert_eq!((header, header.iv.timestamp), (HEADER, Timestamp::new(0x0506_0708)));
            assert_eq!(layout.message(&bytes), Ok(LEN..LEN + len));
        }
        let (_, layout) = parse(&datagram(4)).expect("the datagram has the ESP format");
        assert_eq!((layout.associated(Cipher::Gcm128), layout.sealed(Cipher::Gcm128)), (0..8, 16..24));
        assert_eq!((layout.associated(Cipher::Gmac256), layout.sealed(Cipher::Gmac256)), (0..24, 24..24));
    }

    #[test]
    fn esp_payloads_other_than_falcon_are_refused() {
        let good = datagram(4);
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            parse(&bytes).and_then(|(_, layout)| layout.message(&bytes))
        };
        assert_eq!(changed(0, 0xbf), Err(WireError::Esp), "an index without the mark");
        assert_eq!(changed(23, 4), Err(WireError::NextHeader), "a tunnel");
        assert_eq!(changed(22, 7), Err(WireError::Esp), "padding longer than the message");
        assert_eq!(changed(22, 3), Err(WireError::Esp), "padding bytes that are not 1, 2, 3");
        assert_eq!(changed(21, 1), Err(WireError::Esp));
        assert_eq!(changed(22, 0), Ok(LEN..LEN + 6), "shorter padding was refused");
        let cut = |len: usize| parse(&good[..len]).err();
        assert_eq!(
            [cut(0), cut(15), cut(33), cut(39)],
            [Some(WireError::Short), Some(WireError::Short), Some(WireError::Short), Some(WireError::Esp)]
        );
    }
}
