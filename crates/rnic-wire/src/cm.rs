//! Connection management: the messages that establish and release a connection between two queue pairs.
//!
//! Source: InfiniBand Architecture volume 1, chapter 12 (messages), section 13.4 (the MAD header they share). The
//! format is that of the datagrams exchanged by hardware adapters and Linux, so that other stacks interoperate and
//! Wireshark dissects them.
//!
//! ```text
//!  active side                       passive side
//!     REQ  ------------------------->
//!          <-------------------------  REP   (or REJ)
//!     RTU  ------------------------->
//!          ... data ...
//!     DREQ ------------------------->
//!          <-------------------------  DREP
//! ```
//!
//! For datagrams, SIDR_REQ requests the queue pair that serves them, and SIDR_REP reports it.
//!
//! This module contains only formats; the driver decides when each message is sent. **Not supported:** MRA, LAP, APR
//! (path migration): [`parse`] rejects them by attribute. Fields of other services (EE contexts, RDC) are treated as
//! reserved: zero when sent, ignored when received.

mod disconnect;
mod field;
pub mod ip;
mod mad;
mod quoted;
mod reject;
mod reply;
mod request;
mod rtu;
mod sidr;

pub use disconnect::{DisconnectReply, DisconnectRequest};
pub use field::{Bits, Gid, PathMtu, PrivateData, ServiceId, Vendor};
pub use mad::{CmError, MadHeader};
pub use quoted::SentIds;
pub use reject::{Reject, RejectInfo, RejectReason, Rejected};
pub use reply::{Failover, Reply};
pub use request::{Path, Request, TransportService};
pub use rtu::ReadyToUse;
pub use sidr::{LookupReply, LookupRequest, LookupStatus};

use crate::gsi::MAD_LEN;

/// A connection management message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "all are a 256-byte datagram on the wire; few exist at a time")]
pub enum Message {
    /// REQ: requests a connection.
    Request(Request),
    /// REJ: rejects a connection, or gives up establishing it.
    Reject(Reject),
    /// REP: accepts a connection.
    Reply(Reply),
    /// RTU: the connection may be used.
    ReadyToUse(ReadyToUse),
    /// DREQ: requests the end of a connection.
    DisconnectRequest(DisconnectRequest),
    /// DREP: confirms the end of a connection.
    DisconnectReply(DisconnectReply),
    /// SIDR_REQ: requests the queue pair that serves datagrams of a service.
    LookupRequest(LookupRequest),
    /// SIDR_REP: reports the queue pair that serves datagrams of a service.
    LookupReply(LookupReply),
}

impl Message {
    /// Returns the attribute that identifies the message type in the MAD header.
    #[must_use]
    pub const fn attribute(&self) -> u16 {
        match self {
            Self::Request(_) => Request::ATTRIBUTE,
            Self::Reject(_) => Reject::ATTRIBUTE,
            Self::Reply(_) => Reply::ATTRIBUTE,
            Self::ReadyToUse(_) => ReadyToUse::ATTRIBUTE,
            Self::DisconnectRequest(_) => DisconnectRequest::ATTRIBUTE,
            Self::DisconnectReply(_) => DisconnectReply::ATTRIBUTE,
            Self::LookupRequest(_) => LookupRequest::ATTRIBUTE,
            Self::LookupReply(_) => LookupReply::ATTRIBUTE,
        }
    }

    /// Returns the attribute modifier: the vendor's options, in messages that carry a vendor.
    const fn modifier(&self) -> u32 {
        match self {
            Self::Request(message) => message.vendor.options,
            Self::Reply(message) => message.vendor.options,
            Self::LookupReply(message) => message.vendor.options,
            _ => 0,
        }
    }
}

/// A message with its transaction id: the content of one management datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Identifies the exchange that a message belongs to: REQ, REP, REJ and RTU of a connection have the same
    /// identifier, DREQ and DREP another.
    pub transaction_id: u64,
    /// Contents of the management datagram.
    pub message: Message,
}

/// Parses a connection management datagram.
///
/// # Errors
/// [`CmError`] when the header is not that of a supported message, or when the message is inconsistent. Values that
/// are merely unknown (a reject reason, an MTU code) are preserved, because a response to them requires a connection.
/// No input causes a panic.
pub fn parse(mad: &[u8; MAD_LEN]) -> Result<Mad, CmError> {
    let (header, body) = mad::split(mad);
    let header = MadHeader::parse(header)?;
    let message = match header.attribute {
        Request::ATTRIBUTE => Message::Request(Request::parse(body, header.modifier)),
        Reject::ATTRIBUTE => Message::Reject(Reject::parse(body)?),
        Reply::ATTRIBUTE => Message::Reply(Reply::parse(body, header.modifier)),
        ReadyToUse::ATTRIBUTE => Message::ReadyToUse(ReadyToUse::parse(body)),
        DisconnectRequest::ATTRIBUTE => Message::DisconnectRequest(DisconnectRequest::parse(body)),
        DisconnectReply::ATTRIBUTE => Message::DisconnectReply(DisconnectReply::parse(body)),
        LookupRequest::ATTRIBUTE => Message::LookupRequest(LookupRequest::parse(body)),
        LookupReply::ATTRIBUTE => Message::LookupReply(LookupReply::parse(body, header.modifier)),
        _ => return Err(CmError::Attribute),
    };
    Ok(Mad { transaction_id: header.transaction_id, message })
}

/// Encodes a connection management datagram.
#[must_use]
pub fn emit(mad: &Mad) -> [u8; MAD_LEN] {
    let mut out = [0; MAD_LEN];
    let (header, body) = mad::split_mut(&mut out);
    let (attribute, modifier) = (mad.message.attribute(), mad.message.modifier());
    MadHeader { transaction_id: mad.transaction_id, attribute, modifier }.emit(header);
    match &mad.message {
        Message::Request(message) => message.emit(body),
        Message::Reject(message) => message.emit(body),
        Message::Reply(message) => message.emit(body),
        Message::ReadyToUse(message) => message.emit(body),
        Message::DisconnectRequest(message) => message.emit(body),
        Message::DisconnectReply(message) => message.emit(body),
        Message::LookupRequest(message) => message.emit(body),
        Message::LookupReply(message) => message.emit(body),
    }
    out
}
