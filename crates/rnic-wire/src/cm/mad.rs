//! The header that all management datagrams share (InfiniBand Architecture volume 1, section 13.4.2).
//!
//! ```text
//!        0               1               2               3
//!  0  | base version 1| class  0x07   | class version 2| method 0x03  |
//!  4  |            status             |        class specific         |
//!  8  |                       transaction id                          |
//! 12  |                                                               |
//! 16  |          attribute            |           reserved            |
//! 20  |         attribute modifier: vendor options                    |
//! 24  ... 232 bytes of message
//! ```

use crate::bytes::{be16, be32, be64, put};
use crate::gsi::MAD_LEN;

/// Length of the header in bytes.
pub(super) const HEADER_LEN: usize = 24;
/// Length of a message without the header, in bytes.
pub(super) const BODY_LEN: usize = MAD_LEN - HEADER_LEN;

/// A message without the header.
pub(super) type Body = [u8; BODY_LEN];

/// Reason why a management datagram is not a valid connection management message: an error of the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum CmError {
    /// The base version is not 1.
    #[error("the base version of the management datagram is not 1")]
    BaseVersion,
    /// The class is not communication management.
    #[error("the management class is not communication management")]
    Class,
    /// The class version is not 2.
    #[error("the communication management class version is not 2")]
    ClassVersion,
    /// The method is not Send.
    #[error("the management method is not Send")]
    Method,
    /// The attribute is not that of a supported message.
    #[error("the communication management message type is unknown")]
    Attribute,
    /// A REJ indicates more additional information than its field can hold.
    #[error("the additional reject information is longer than its field")]
    RejectInfo,
}

/// Content of the header of a connection management message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadHeader {
    /// Identifies the exchange that a message belongs to.
    pub transaction_id: u64,
    /// Identifies the type of the message.
    pub attribute: u16,
    /// Attribute modifier: vendor-specific options in messages that have a vendor ID; otherwise zero.
    pub modifier: u32,
}

impl MadHeader {
    /// Parses the header. The status and class-specific bytes have no meaning here and are ignored.
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

/// Splits a management datagram into header and message.
pub(super) fn split(mad: &[u8; MAD_LEN]) -> (&[u8; HEADER_LEN], &Body) {
    let (header, body) = mad.split_at(HEADER_LEN);
    (header.try_into().expect("the first 24 of 256"), body.try_into().expect("the other 232"))
}

/// Splits a management datagram into mutable header and message.
pub(super) fn split_mut(mad: &mut [u8; MAD_LEN]) -> (&mut [u8; HEADER_LEN], &mut Body) {
    let (header, body) = mad.split_at_mut(HEADER_LEN);
    (header.try_into().expect("the first 24 of 256"), body.try_into().expect("the other 232"))
}

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 0x07;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;
