//! ACK extended transport header (InfiniBand Architecture volume 1, section 9.3): the result that a responder
//! reports.
//!
//! ```text
//!        0               1               2               3
//!  0  |   syndrome    |             message sequence number           |
//!
//!  syndrome, from the top bit:  0 00 ccccc  ACK, c encoded credits (31: none counted)
//!                               0 01 ttttt  RNR NAK, t encoded wait
//!                               0 11 nnnnn  NAK, n: 0 PSN sequence error, 1 invalid request, 2 remote access error,
//!                                           3 remote operational error (4 and up: not for reliable connections)
//!                               0 10 and 1 .. are reserved
//! ```

use rnic_base::Serial;

use crate::bytes::split;
use crate::error::{EncodeError, WireError};
use crate::packet::{Aeth, NakCode, Syndrome};

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// View of an ACK extended transport header in the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct AethView<'a>(&'a [u8; LEN]);

impl<'a> AethView<'a> {
    /// Splits the header off the front of `bytes`; returns it and the bytes after it.
    ///
    /// # Errors
    /// [`WireError::Short`] when `bytes` is too short.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        split(bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Returns the syndrome.
    ///
    /// # Errors
    /// [`WireError::Syndrome`] for a reserved value.
    #[inline]
    pub const fn syndrome(self) -> Result<Syndrome, WireError> {
        let (kind, value) = (self.0[0] >> VALUE_BITS, self.0[0] & VALUE_MAX);
        match (kind, value) {
            (KIND_ACK, credits) => Ok(Syndrome::Ack { credits }),
            (KIND_RNR_NAK, timer) => Ok(Syndrome::RnrNak { timer }),
            (KIND_NAK, 0) => Ok(Syndrome::Nak(NakCode::PsnSequenceError)),
            (KIND_NAK, 1) => Ok(Syndrome::Nak(NakCode::InvalidRequest)),
            (KIND_NAK, 2) => Ok(Syndrome::Nak(NakCode::RemoteAccessError)),
            (KIND_NAK, 3) => Ok(Syndrome::Nak(NakCode::RemoteOperationalError)),
            _ => Err(WireError::Syndrome),
        }
    }

    /// Returns the number of messages that the responder has completed, modulo 2^24.
    #[inline]
    pub fn msn(self) -> Serial<24> {
        Serial::new(u32::from_be_bytes(*self.0))
    }

    /// Returns the decoded header.
    ///
    /// # Errors
    /// [`WireError::Syndrome`] for a reserved syndrome.
    #[inline]
    pub fn to_repr(self) -> Result<Aeth, WireError> {
        Ok(Aeth { syndrome: self.syndrome()?, msn: self.msn() })
    }
}

impl Aeth {
    /// Writes the header.
    ///
    /// # Errors
    /// [`EncodeError::Range`] when credits or timer need more than five bits.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) -> Result<(), EncodeError> {
        let (kind, value, field) = match self.syndrome {
            Syndrome::Ack { credits } => (KIND_ACK, credits, "the credit count"),
            Syndrome::RnrNak { timer } => (KIND_RNR_NAK, timer, "the RNR timer"),
            Syndrome::Nak(code) => (KIND_NAK, nak_code(code), "the NAK code"),
        };
        if value > VALUE_MAX {
            return Err(EncodeError::Range { field, value: u32::from(value), max: u32::from(VALUE_MAX) });
        }
        *out = (u32::from(kind << VALUE_BITS | value) << 24 | self.msn.value()).to_be_bytes();
        Ok(())
    }
}

/// Returns the largest credit code that represents at most `posted` receives.
#[inline]
pub fn credit_code(posted: u32) -> u8 {
    RECEIVES_OF.partition_point(|receives| *receives <= posted) as u8 - 1
}

/// Returns the number of receives that the credit code `code` represents; `None` when the code means that receives are
/// not counted.
#[inline]
pub fn receives_of(code: u8) -> Option<u32> {
    RECEIVES_OF.get(usize::from(code)).copied()
}

const fn nak_code(code: NakCode) -> u8 {
    match code {
        NakCode::PsnSequenceError => 0,
        NakCode::InvalidRequest => 1,
        NakCode::RemoteAccessError => 2,
        NakCode::RemoteOperationalError => 3,
    }
}

/// Number of receives that each credit code represents (InfiniBand Architecture volume 1, section 9.7.7.2): from 2 on,
/// two codes for each doubling. The code after the last one means that receives are not counted.
const RECEIVES_OF: [u32; VALUE_MAX as usize] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096,
    6_144, 8_192, 12_288, 16_384, 24_576, 32_768,
];

const VALUE_BITS: u32 = 5;
const VALUE_MAX: u8 = 31;
const KIND_ACK: u8 = 0b000;
const KIND_RNR_NAK: u8 = 0b001;
const KIND_NAK: u8 = 0b011;

#[cfg(test)]
mod tests {
    use super::*;

    /// Syndrome bytes as listed in the specification's table.
    const GOLDEN: [(u8, Syndrome); 8] = [
        (0x00, Syndrome::Ack { credits: 0 }),
        (0x1f, Syndrome::ACK),
        (0x20, Syndrome::RnrNak { timer: 0 }),
        (0x2e, Syndrome::RnrNak { timer: 14 }),
        (0x60, Syndrome::Nak(NakCode::PsnSequenceError)),
        (0x61, Syndrome::Nak(NakCode::InvalidRequest)),
        (0x62, Syndrome::Nak(NakCode::RemoteAccessError)),
        (0x63, Syndrome::Nak(NakCode::RemoteOperationalError)),
    ];

    #[test]
    fn golden_syndromes_both_ways() {
        for (byte, syndrome) in GOLDEN {
            let header = Aeth { syndrome, msn: Serial::new(0x01_0203) };
            let mut bytes = [0xee; LEN];
            header.emit(&mut bytes).expect("five bits suffice");
            assert_eq!(bytes, [byte, 1, 2, 3]);
            let (view, _) = AethView::split(&bytes).expect("four bytes");
            assert_eq!(view.to_repr(), Ok(header));
        }
    }

    #[test]
    fn reserved_syndromes_are_refused() {
        for byte in (0x40..0x60).chain(0x64..=0xff) {
            let bytes = [byte, 0, 0, 0];
            let (view, _) = AethView::split(&bytes).expect("four bytes");
            assert_eq!(view.to_repr(), Err(WireError::Syndrome), "{byte:#x}");
        }
    }

    /// Every number of receives is encoded as the largest code that does not represent more receives, and the number
    /// that a code represents is encoded as this code.
    #[test]
    fn credits_are_rounded_down_to_a_code() {
        let stated = [(0, 0), (1, 1), (4, 4), (5, 4), (6, 5), (7, 5), (8, 6), (100, 13), (128, 14), (4_095, 23)];
        let beyond = [(32_767, 29), (32_768, 30), (u32::MAX, 30)];
        for (posted, code) in stated.into_iter().chain(beyond) {
            assert_eq!(credit_code(posted), code, "{posted} receives");
        }
        for code in 0..31 {
            let receives = receives_of(code).expect("the code is a count");
            assert_eq!(credit_code(receives), code);
            assert!(code < 4 || receives == 2 * receives_of(code - 2).expect("the code is a count"), "code {code}");
        }
        assert_eq!([31, 32, 255].map(receives_of), [None; 3]);
    }

    #[test]
    fn credit_counts_of_six_bits_are_rejected() {
        let header = Aeth { syndrome: Syndrome::Ack { credits: 32 }, msn: Serial::new(0) };
        let error = header.emit(&mut [0; LEN]).expect_err("32 needs six bits");
        assert_eq!(error.to_string(), "the credit count is 32, which exceeds the maximum of 31");
    }
}
