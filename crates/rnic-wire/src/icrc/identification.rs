//! Relation between the IPv4 identification and the ICRC.
//!
//! The ICRC covers the identification of an IPv4 packet, and a UDP socket does not see it. But a CRC is linear: of two
//! packets that differ in the identification alone, the exclusive or of both CRCs depends only on the exclusive or of
//! both identifications and on the length. So a sender can convert a CRC from one identification to another, and a
//! receiver can compute the one identification, if there is any, for which the ICRC of a packet is correct.
//!
//! Polynomials have the bit order of the CRC's register: bit 31 is x^0. One byte of zeros multiplies by x^8.

use crate::length::ICRC_LEN;
use crate::net::{IPV4_LEN, UDP_LEN};

/// Returns the exclusive or of the CRCs of masked IPv4 and UDP headers with identification `identification` and with 0.
#[inline]
#[must_use]
pub(super) fn difference_of_prefixes(identification: u16) -> u32 {
    let [high, low] = identification.to_be_bytes();
    FIRST_BYTE[usize::from(high)] ^ SECOND_BYTE[usize::from(low)]
}

/// Finds the IPv4 identification of packets of one length from their ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentificationFinder {
    /// Factor that moves a difference of ICRCs back to the position before the identification: x^-8n, where n is the
    /// number of bytes covered from there.
    factor: u32,
}

impl IdentificationFinder {
    /// Creates a finder for datagrams of `udp_payload_len` bytes, base transport header through ICRC.
    #[must_use]
    pub fn new(udp_payload_len: u32) -> Self {
        let covered = udp_payload_len.saturating_sub(ICRC_LEN as u32);
        Self { factor: power(X_MINUS_8, covered + IPV4_LEN + UDP_LEN - IDENTIFICATION_AT) }
    }

    /// Returns the identification that a packet must have had, given the exclusive or of its ICRC and the ICRC
    /// computed for identification 0, both as little-endian numbers; `None` when there is none. This is the case for
    /// all but one in 65,536 differences.
    #[inline]
    #[must_use]
    pub fn find(self, difference: u32) -> Option<u16> {
        // The register value that, before two bytes of zeros, would lead to the difference. It equals the two bytes
        // of the identification, because these would have the same effect.
        let register = multiply(difference, self.factor);
        (register >> 16 == 0).then_some((register as u16).swap_bytes())
    }
}

/// Returns the product modulo the CRC's polynomial.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        // All ones where the bit is set.
        product ^= shifted & (a >> bit & 1).wrapping_neg();
        shifted = shifted >> 1 ^ (POLYNOMIAL & (shifted & 1).wrapping_neg());
    }
    product
}

/// Returns `base` to the power of `exponent`, modulo the polynomial of the CRC.
const fn power(base: u32, exponent: u32) -> u32 {
    let (mut product, mut square, mut exponent_left) = (X_0, base, exponent);
    while exponent_left > 0 {
        if exponent_left & 1 == 1 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        exponent_left >>= 1;
    }
    product
}

/// Returns, for each value of a byte, the value that it contributes to a register when `bytes_after` more bytes are
/// processed after it.
const fn table(bytes_after: u32) -> [u32; 256] {
    let factor = power(X_8, bytes_after + 1);
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = multiply(byte as u32, factor);
        byte += 1;
    }
    table
}

/// Offset of the identification in an IPv4 header, in bytes.
const IDENTIFICATION_AT: u32 = 4;

/// Number of header bytes after the identification.
const BYTES_AFTER_IDENTIFICATION: u32 = IPV4_LEN + UDP_LEN - IDENTIFICATION_AT - 2;

static FIRST_BYTE: [u32; 256] = table(BYTES_AFTER_IDENTIFICATION + 1);
static SECOND_BYTE: [u32; 256] = table(BYTES_AFTER_IDENTIFICATION);

/// Polynomial of the CRC.
const POLYNOMIAL: u32 = 0xedb8_8320;
const X_0: u32 = 1 << 31;
const X_8: u32 = X_0 >> 8;
/// The inverse of x: the result of dividing x^0 by x.
const X_MINUS_1: u32 = (X_0 ^ POLYNOMIAL) << 1 | 1;
const X_MINUS_8: u32 = power(X_MINUS_1, 8);

const _: () = assert!(multiply(X_MINUS_8, X_8) == X_0 && multiply(X_MINUS_1, X_0 >> 1) == X_0);
