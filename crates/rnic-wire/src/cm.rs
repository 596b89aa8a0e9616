//! Connection management: the messages that make and end a connection between two queue pairs.
//!
//! Source: InfiniBand Architecture volume 1, chapter 12 (messages), section 13.4 (the MAD header they share). These are
//! the datagrams that adapters and Linux exchange, so that other stacks understand us and Wireshark dissects us.
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
//! For datagrams, SIDR_REQ asks and SIDR_REP says which queue pair serves them.
//!
//! Here are formats only; who answers what and when is a body's business. **Not spoken:** MRA, LAP, APR (path
//! migration): [`parse`] refuses them by attribute. Fields of other services (EE contexts, RDC) are reserved to us:
//! zero when sent, ignored when received.

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
pub use quoted::SentNames;
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
    /// REQ: asks for a connection.
    Request(Request),
    /// REJ: refuses, or gives up.
    Reject(Reject),
    /// REP: accepts.
    Reply(Reply),
    /// RTU: the connection may be used.
    ReadyToUse(ReadyToUse),
    /// DREQ: ends a connection.
    DisconnectRequest(DisconnectRequest),
    /// DREP: confirms the end.
    DisconnectReply(DisconnectReply),
    /// SIDR_REQ: asks for a queue pair that serves datagrams.
    LookupRequest(LookupRequest),
    /// SIDR_REP: names it.
    LookupReply(LookupReply),
}

impl Message {
    /// The attribute that says which message a MAD holds.
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

    /// The attribute modifier: options of the messages that name a vendor.
    const fn modifier(&self) -> u32 {
        match self {
            Self::Request(message) => message.vendor.options,
            Self::Reply(message) => message.vendor.options,
            Self::LookupReply(message) => message.vendor.options,
            _ => 0,
        }
    }
}

/// A message with its transaction: what one management datagram carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Joins the messages of one exchange: REQ, REP, REJ and RTU share one, DREQ and DREP another.
    pub transaction_id: u64,
    /// The message.
    pub message: Message,
}

/// Reads a connection management datagram.
///
/// # Errors
/// [`CmError`] when the header is not that of a message that we speak, or the message contradicts itself. Values that
/// are merely unknown (a reject reason, an MTU code) are kept: answering them takes a connection. No input makes it
/// panic.
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

/// Writes a connection management datagram.
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
