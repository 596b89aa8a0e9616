//! Fields of acknowledgements after the four words that every packet begins with (OCP Falcon Transport Protocol, Rev
//! 0.9, sections 7.7.1 and 7.8).
//!
//! ```text
//!     0               1               2               3
//!  4 |                             T1                                |
//!  5 |                             T2                                |
//!  6 | hops  |  level  |          marks            |    reserved     | 4, 5, 14 and 9 bits
//!  7 |   reserved    |           engine: 22 bits             |  own  | BACK and EACK: data window, request window
//!  7 |   reserved    |           engine: 24 bits                     | NACK
//! ```
//!
//! Widths are taken from the tables: the figures show one bit less for the engine in both packets. With 22 bits and the
//! two of the window notification, or with 24, the engine gets 24 bits, the width of that field in its events. "Bit 0"
//! of the notification is the lowest, the last of the word: requests.

use super::split;
use crate::bytes::{be32, put};
use crate::falcon::{Acknowledgement, OutOfWindow, Timestamp, WireError};

/// Length of words 4 to 7 in bytes.
pub const LEN: usize = 16;

/// Maximum number of switches that the field can hold.
pub const HOPS_MAX: u8 = 15;
/// Largest buffer level.
pub const LEVEL_MAX: u8 = 31;
/// Largest count of congestion marks, before it wraps.
pub const ECN_MAX: u16 = 0x3fff;
/// Maximum value of the engine's bits in acknowledgements.
pub const METADATA_MAX: u32 = 0x3f_ffff;
/// Maximum value of the adaptive engine's metadata in a NACK (24 bits).
pub const NACK_METADATA_MAX: u32 = 0xff_ffff;

/// View of words 4 to 7 in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AcknowledgementView<'a>(&'a [u8; LEN]);

impl<'a> AcknowledgementView<'a> {
    /// Splits words 4 to 7 off the front of `bytes`; returns them and the bytes after them.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the time at which the acknowledged packet was sent.
    #[inline]
    pub fn t1(self) -> Timestamp {
        Timestamp::new(be32(self.0, 0))
    }

    /// Returns the time at which the acknowledged packet arrived.
    #[inline]
    pub fn t2(self) -> Timestamp {
        Timestamp::new(be32(self.0, 4))
    }

    /// Returns the number of switches on the path of the acknowledged packet.
    #[inline]
    pub fn hops(self) -> u8 {
        self.0[8] >> 4
    }

    /// Returns the level of the receiver's buffers.
    #[inline]
    pub fn rx_level(self) -> u8 {
        (be32(self.0, 8) >> LEVEL_SHIFT) as u8 & LEVEL_MAX
    }

    /// Returns the count of congestion marks.
    #[inline]
    pub fn ecn(self) -> u16 {
        (be32(self.0, 8) >> ECN_SHIFT) as u16 & ECN_MAX
    }

    /// Returns the engine's 24 bits of a NACK.
    #[inline]
    pub fn nack_metadata(self) -> u32 {
        be32(self.0, 12) & NACK_METADATA_MAX
    }

    /// Returns the content of a BACK or EACK.
    #[inline]
    pub fn to_repr(self) -> Acknowledgement {
        let last = be32(self.0, 12);
        Acknowledgement {
            t1: self.t1(),
            t2: self.t2(),
            hops: self.hops(),
            rx_level: self.rx_level(),
            ecn: self.ecn(),
            metadata: last >> METADATA_SHIFT & METADATA_MAX,
            out_of_window: OutOfWindow { data: last & OWN_DATA != 0, request: last & OWN_REQUEST != 0 },
        }
    }
}

/// Measurements that both types of acknowledgement carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) t1: Timestamp,
    pub(crate) t2: Timestamp,
    pub(crate) hops: u8,
    pub(crate) rx_level: u8,
    pub(crate) ecn: u16,
}

/// Writes words 4 to 7; the last one is given.
#[inline]
pub(crate) fn emit(measured: Measured, last: u32, out: &mut [u8; LEN]) {
    let Measured { t1, t2, hops, rx_level, ecn } = measured;
    put(out, 0, t1.value().to_be_bytes());
    put(out, 4, t2.value().to_be_bytes());
    let word = u32::from(hops) << HOPS_SHIFT | u32::from(rx_level) << LEVEL_SHIFT | u32::from(ecn) << ECN_SHIFT;
    put(out, 8, word.to_be_bytes());
    put(out, 12, last.to_be_bytes());
}

/// Returns the last word of a BACK or EACK.
#[inline]
pub(crate) fn last_word(ack: &Acknowledgement) -> u32 {
    let own =
        if ack.out_of_window.data { OWN_DATA } else { 0 } | if ack.out_of_window.request { OWN_REQUEST } else { 0 };
    ack.metadata << METADATA_SHIFT | own
}

const HOPS_SHIFT: u32 = 28;
const LEVEL_SHIFT: u32 = 23;
const ECN_SHIFT: u32 = 9;
const METADATA_SHIFT: u32 = 2;
const OWN_REQUEST: u32 = 1;
const OWN_DATA: u32 = 2;
