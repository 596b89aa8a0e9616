//! The header that all management datagrams share (InfiniBand Architecture volume 1, section 13.4.2).
//!
//! ```text
//!        0               1               2               3
//!  0  | base version 1| class  0x07   | class version 2| method 0x03  |
//!  4  |            status             |        class specific         |
//!  8  |                       transaction id                          |
//! 12  |                                                               |
//! 16  |          attribute            |           reserved            |
//! 20  |         attribute modifier: a vendor's options                |
//! 24  ... 232 bytes of message
//! ```

use crate::bytes::{be16, be32, be64, put};
use crate::gsi::MAD_LEN;

/// Bytes of the header.
pub(super) const HEADER_LEN: usize = 24;
/// Bytes that a message has for itself.
pub(super) const BODY_LEN: usize = MAD_LEN - HEADER_LEN;

/// A message without the header.
pub(super) type Body = [u8; BODY_LEN];

/// Why a management datagram is not a connection management message: the peer's error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum CmError {
    /// The base version is not 1.
    #[error("unknown management base version")]
    BaseVersion,
    /// The class is not communication management.
    #[error("not communication management")]
    Class,
    /// The class version is not 2.
    #[error("unknown communication management version")]
    ClassVersion,
    /// The method is not Send.
    #[error("not a Send")]
    Method,
    /// The attribute is not a message that we speak.
    #[error("unknown communication management message")]
    Attribute,
    /// A REJ says that it has more additional information than it has room for.
    #[error("additional reject information longer than its field")]
    RejectInfo,
}

/// What the header of a connection management message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadHeader {
    /// Joins the messages of one exchange.
    pub transaction_id: u64,
    /// Which message it is.
    pub attribute: u16,
    /// A vendor's options in messages that have a vendor, else nothing.
    pub modifier: u32,
}

impl MadHeader {
    /// Reads the header. Status and class specific bytes mean nothing here and are ignored.
    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, CmError> {
        match *bytes {
            [BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND, ..] => {
                let (transaction_id, attribute) = (be64(bytes, 8), be16(bytes, 16));
                Ok(Self { transaction_id, attribute, modifier: be32(bytes, 20) })
            }
            [BASE_VERSION, CLASS, CLASS_VERSION, ..] => Err(CmError::Method),
            [BASE_VERSION, CLASS, ..] => Err(CmError::ClassVersion),
            [BASE_VERSION, ..] => Err(CmError::Class),
            _ => Err(CmError::BaseVersion),
        }
    }

    /// Writes the header.
    pub(super) fn emit(self, out: &mut [u8; HEADER_LEN]) {
        *out = [0; HEADER_LEN];
        put(out, 0, [BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND]);
        put(out, 8, self.transaction_id.to_be_bytes());
        put(out, 16, self.attribute.to_be_bytes());
        put(out, 20, self.modifier.to_be_bytes());
    }
}

/// Header and message.
pub(super) fn split(mad: &[u8; MAD_LEN]) -> (&[u8; HEADER_LEN], &Body) {
    let (header, body) = mad.split_at(HEADER_LEN);
    (header.try_into().expect("the first 24 of 256"), body.try_into().expect("the other 232"))
}

/// Header and message, to be written.
pub(super) fn split_mut(mad: &mut [u8; MAD_LEN]) -> (&mut [u8; HEADER_LEN], &mut Body) {
    let (header, body) = mad.split_at_mut(HEADER_LEN);
    (header.try_into().expect("the first 24 of 256"), body.try_into().expect("the other 232"))
}

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;
