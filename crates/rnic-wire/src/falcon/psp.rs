//! Encapsulation of a Falcon packet: the PSP security protocol over UDP (PSP Architecture Specification, 2022; OCP
//! Falcon Transport Protocol, Rev 0.9, section 7.1), with Falcon's timestamp in the initialization vector.
//!
//! ```text
//!     Ethernet | IP | UDP, port 1000 | PSP, 16 or 24 | Falcon, upper layer, payload, padding | ICV, 16
//!
//!     0               1               2               3
//!  0 | next header   |  more words   |rsv|crypt off. |S|D|version|V|1| S: sample, D: drop, V: cookie present
//!  1 |                 security parameters index                     |
//!  2 |                 initialization vector: salt                   |
//!  3 |                 initialization vector: timestamp              |
//!  4 |                 virtualization cookie, when V                 |
//!  5 |                                                               |
//! ```
//!
//! - *Next header* is 252. Tunnels (next header IPv4 or IPv6, an inner packet with Falcon in it) are not supported.
//! - *More words* counts words of 8 bytes after the first: 1, or 2 with a cookie.
//! - The *crypt offset* counts words of 4 bytes from the end of the vector to the encrypted part. Falcon leaves its
//!   first word (version and connection) in clear: 1, or 3 with a cookie. Everything before the encrypted part is
//!   authenticated.
//! - Neither specification defines the position of the 32-bit timestamp in the 64-bit *vector*. Here it is the low
//!   half. The sender chooses the high half so that the vectors under one key are unique, because several packets can
//!   be sent within 131 ns.
//! - The *index* 0 means no key (section 9.2.2.3 of Falcon's: not configured). Here such a packet is not protected:
//!   this is used by simulations, and by drivers configured without protection. Its check value is zero in a
//!   simulation; on sockets its last four bytes are a CRC-32 of all bytes before it, because UDP's checksum is weak
//!   and loopback has none. A peer that requires protection rejects it.
//! - S and D, which are for network operators, have no effect here: they are read, written and preserved.
//!
//! The driver performs the encryption: AES-GCM with [`Header::nonce`] over the ranges of [`Layout`].

use core::ops::Range;

use crate::bytes::{be32, be64, put};
use crate::falcon::{Timestamp, WireError};

/// Destination UDP port of PSP packets.
pub const UDP_PORT: u16 = 1000;
/// PSP next header value of Falcon.
pub const NEXT_HEADER: u8 = 252;
/// Length of the header without a cookie, in bytes.
pub const LEN: usize = 16;
/// Length of the virtualization cookie in bytes.
pub const COOKIE_LEN: usize = 8;
/// Maximum length of the header in bytes.
pub const LEN_MAX: usize = LEN + COOKIE_LEN;
/// Length of the integrity check value at the end of the datagram, in bytes.
pub const ICV_LEN: usize = 16;
/// Number of bytes at the start of the Falcon packet that are sent in clear: version and connection.
pub const CLEAR_LEN: usize = 4;

/// Returns the length of the header in bytes.
#[inline]
pub const fn header_len(has_cookie: bool) -> usize {
    if has_cookie { LEN_MAX } else { LEN }
}

/// The initialization vector, 64 bits. It must be unique for each packet under one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Iv {
    /// High half: distinguishes packets with the same timestamp.
    pub salt: u32,
    /// Low half: time at which the packet was sent.
    pub timestamp: Timestamp,
}

/// Protection of packets: PSP's version field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Cipher {
    /// 0: AES-GCM with a key of 128 bits.
    #[default]
    Gcm128 = 0,
    /// 1: AES-GCM with a key of 256 bits.
    Gcm256 = 1,
    /// 2: AES-GMAC with a key of 128 bits: authenticated, not encrypted.
    Gmac128 = 2,
    /// 3: AES-GMAC with a key of 256 bits.
    Gmac256 = 3,
}

impl Cipher {
    /// All values, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Gcm128, Self::Gcm256, Self::Gmac128, Self::Gmac256];

    /// Returns whether packets are encrypted, and not only authenticated.
    #[inline]
    pub const fn encrypts(self) -> bool {
        matches!(self, Self::Gcm128 | Self::Gcm256)
    }
}

/// A PSP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Header {
    /// Protection of the packet.
    pub cipher: Cipher,
    /// True when the packet is to be sampled.
    pub sample: bool,
    /// True when the packet is to be dropped after it was counted. No driver of OpenRNIC does so: the packet is
    /// received like any other.
    pub drop: bool,
    /// Security parameters index: identifies the key; its highest bit selects one of two device keys. 0 means no key.
    pub spi: u32,
    /// Initialization vector of AES-GCM.
    pub iv: Iv,
    /// Virtualization cookie: distinguishes connections of one tunnel.
    pub cookie: Option<u64>,
}

impl Header {
    /// Returns whether the packet is protected by a key.
    #[inline]
    pub const fn is_protected(&self) -> bool {
        self.spi != NO_KEY
    }

    /// Returns the nonce of the cipher: index and vector.
    #[inline]
    pub fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        put(&mut nonce, 0, self.spi.to_be_bytes());
        put(&mut nonce, 4, self.iv.salt.to_be_bytes());
        put(&mut nonce, 8, self.iv.timestamp.value().to_be_bytes());
        nonce
    }

    /// Encodes the header; returns its length in bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN_MAX]) -> usize {
        let has_cookie = self.cookie.is_some();
        let flags = if self.sample { SAMPLE } else { 0 }
            | if self.drop { DROP } else { 0 }
            | (self.cipher as u8) << CIPHER_SHIFT
            | if has_cookie { COOKIE } else { 0 }
            | ALWAYS_ONE;
        put(out, 0, [NEXT_HEADER, more_words(has_cookie), crypt_offset(has_cookie), flags]);
        put(out, 4, self.spi.to_be_bytes());
        put(out, 8, self.iv.salt.to_be_bytes());
        put(out, 12, self.iv.timestamp.value().to_be_bytes());
        if let Some(cookie) = self.cookie {
            put(out, LEN, cookie.to_be_bytes());
        }
        header_len(has_cookie)
    }
}

/// Offsets of the parts of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    header_len: usize,
    datagram_len: usize,
}

impl Layout {
    /// Returns the layout of a datagram of `datagram_len` bytes.
    ///
    /// # Panics
    /// When that is less than the total length of the header, the packet's bytes in clear, and the check value.
    #[inline]
    pub const fn new(has_cookie: bool, datagram_len: usize) -> Self {
        let header_len = header_len(has_cookie);
        assert!(datagram_len >= header_len + CLEAR_LEN + ICV_LEN);
        Self { header_len, datagram_len }
    }

    /// Returns the range of bytes that are authenticated but not encrypted: PSP header, version and connection.
    #[inline]
    pub const fn associated(self) -> Range<usize> {
        0..self.header_len + CLEAR_LEN
    }

    /// Returns the range of bytes that are encrypted or, with GMAC, only authenticated.
    #[inline]
    pub const fn sealed(self) -> Range<usize> {
        self.header_len + CLEAR_LEN..self.datagram_len - ICV_LEN
    }

    /// Returns the range of the check value.
    #[inline]
    pub const fn icv(self) -> Range<usize> {
        self.datagram_len - ICV_LEN..self.datagram_len
    }

    /// Returns the range of the packet, which is valid once decrypted.
    #[inline]
    pub const fn message(self) -> Range<usize> {
        self.header_len..self.datagram_len - ICV_LEN
    }
}

/// Parses the header of a datagram; returns it and the offsets of the other parts.
///
/// # Errors
/// [`WireError`] when it is not Falcon inside PSP.
#[inline]
pub fn parse(datagram: &[u8]) -> Result<(Header, Layout), WireError> {
    parse_front(datagram, datagram.len())
}

/// Like [`parse`], for a datagram of `len` bytes of which only the `front` is given: at least all of it but the check
/// value, or [`LEN_MAX`] bytes.
///
/// # Errors
/// As [`parse`].
#[inline]
pub fn parse_front(front: &[u8], len: usize) -> Result<(Header, Layout), WireError> {
    let (header, rest) = front.split_first_chunk::<LEN>().ok_or(WireError::Short)?;
    let [next_header, words, offset, flags, ..] = *header;
    if next_header != NEXT_HEADER {
        return Err(WireError::NextHeader);
    }
    let has_cookie = flags & COOKIE != 0;
    let cipher = usize::from(flags >> CIPHER_SHIFT & CIPHER_MASK);
    let cipher = *Cipher::ALL.get(cipher).ok_or(WireError::Psp)?;
    if flags & ALWAYS_ONE == 0 || words != more_words(has_cookie) {
        return Err(WireError::Psp);
    }
    if offset & OFFSET_MASK != crypt_offset(has_cookie) {
        return Err(WireError::CryptOffset);
    }
    if len < header_len(has_cookie) + CLEAR_LEN + ICV_LEN || front.len() < header_len(has_cookie) {
        return Err(WireError::Short);
    }
    let header = Header {
        cipher,
        sample: flags & SAMPLE != 0,
        drop: flags & DROP != 0,
        spi: be32(header, 4),
        iv: Iv { salt: be32(header, 8), timestamp: Timestamp::new(be32(header, 12)) },
        cookie: has_cookie.then(|| be64(rest, 0)),
    };
    Ok((header, Layout::new(has_cookie, len)))
}

/// Returns the number of 8-byte words after the first.
#[inline]
const fn more_words(has_cookie: bool) -> u8 {
    (header_len(has_cookie) / 8 - 1) as u8
}

/// Returns the number of 4-byte words from the end of the vector to the encrypted part.
#[inline]
const fn crypt_offset(has_cookie: bool) -> u8 {
    ((header_len(has_cookie) - LEN + CLEAR_LEN) / 4) as u8
}

/// Index that means no key.
const NO_KEY: u32 = 0;

const OFFSET_MASK: u8 = 0x3f;
const SAMPLE: u8 = 0x80;
const DROP: u8 = 0x40;
const CIPHER_SHIFT: u32 = 2;
const CIPHER_MASK: u8 = 0xf;
const COOKIE: u8 = 0x02;
const ALWAYS_ONE: u8 = 0x01;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        cipher: Cipher::Gcm256,
        sample: true,
        drop: false,
        spi: 0x8765_4321,
        iv: Iv { salt: 0x0102_0304, timestamp: Timestamp::new(0x0506_0708) },
        cookie: Some(0x1112_1314_1516_1718),
    };

    #[test]
    fn golden() {
        let mut bytes = [0xee; LEN_MAX];
        assert_eq!(HEADER.emit(&mut bytes), 24);
        let expected = [
            0xfc, 2, 3, 0x87, 0x87, 0x65, 0x43, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, // from next header to vector
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, // cookie
        ];
        assert_eq!(bytes, expected);
        let plain = Header { cookie: None, sample: false, drop: true, cipher: Cipher::Gmac128, ..HEADER };
        let mut bytes = [0xee; LEN_MAX];
        assert_eq!(plain.emit(&mut bytes), 16);
        assert_eq!(bytes[..4], [0xfc, 1, 1, 0x49]);
        assert_eq!(bytes[16], 0xee);
    }

    /// The nonce consists of the twelve bytes from the index to the vector, as they are transmitted.
    #[test]
    fn f42_the_timestamp_is_in_the_vector_and_the_nonce() {
        let mut bytes = [0; LEN_MAX];
        HEADER.emit(&mut bytes);
        assert_eq!(HEADER.nonce(), bytes[4..16]);
        let mut datagram = bytes.to_vec();
        datagram.resize(24 + 4 + 16, 0);
        let (header, _) = parse(&datagram).expect("the shortest datagram");
        assert_eq!(header.iv.timestamp, Timestamp::new(0x0506_0708));
    }

    #[test]
    fn f42_the_connection_is_in_clear_and_the_rest_is_sealed() {
        let with_cookie = Layout::new(true, 24 + 32 + 16);
        assert_eq!((with_cookie.associated(), with_cookie.sealed()), (0..28, 28..56));
        assert_eq!((with_cookie.message(), with_cookie.icv()), (24..56, 56..72));
        let without = Layout::new(false, 16 + 32 + 16);
        assert_eq!((without.associated(), without.sealed()), (0..20, 20..48));
        // The crypt offset counts from the end of the vector, so it covers the cookie.
        assert_eq!((crypt_offset(false), crypt_offset(true)), (1, 3));
    }

    #[test]
    fn psp_payloads_other_than_falcon_are_refused() {
        let mut datagram = [0; 64];
        HEADER.emit(datagram.first_chunk_mut().expect("64 bytes"));
        assert_eq!(parse(&datagram).map(|(header, _)| header), Ok(HEADER));
        let changed = |at: usize, byte: u8| {
            let mut datagram = datagram;
            datagram[at] = byte;
            parse(&datagram).map(|_| ())
        };
        assert_eq!(changed(0, 4), Err(WireError::NextHeader), "a tunnel");
        assert_eq!(changed(1, 1), Err(WireError::Psp), "a cookie without its words");
        assert_eq!(changed(1, 3), Err(WireError::Psp));
        assert_eq!(changed(2, 1), Err(WireError::CryptOffset));
        assert_eq!(changed(2, 0xc3), Ok(()), "reserved bits are ignored");
        assert_eq!(changed(3, 0x86), Err(WireError::Psp), "the bit that is always one");
        assert_eq!(changed(3, 0x93), Err(WireError::Psp), "version 4");
        assert_eq!(changed(3, 0x85), Err(WireError::Psp), "a longer header without a cookie");
        assert_eq!(parse(&datagram[..43]).err(), Some(WireError::Short));
        assert_eq!(parse(&datagram[..15]).err(), Some(WireError::Short));
        assert_eq!(parse(&datagram[..44]).map(|(_, layout)| layout.sealed()), Ok(28..28));
    }
}
