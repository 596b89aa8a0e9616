//! Messages between the software of two NICs: datagrams of 128 bytes that look like RoCEv2.
//!
//! Source: SCR (NSDI'25) section 4.3.1, mechanism S-6: signals of the peer travel in unreliable, routable datagrams of
//! 128 bytes. The paper gives no layout; this one is OpenRNIC's. A base transport header with an opcode of the
//! manufacturer's range (binary 11xxxxxx) comes first and the ICRC last, so that routers, hashes, captures and sockets
//! process a message like any RoCEv2 packet.
//!
//! ```text
//!        0               1               2               3
//!  0  | opcode 0xc0   |  zeros        |         P_Key 0xffff          |
//!  4  |F|B|  resv8a   |  destination queue pair; 1 is the whole NIC   |
//!  8  |  zeros        |  PSN: low 24 bits of the sequence number      |
//! 12  |   version 1   |     type      |     flags     |    records    |
//! 16  |  cookie of the receiver, as it last announced it; 0 only in   |
//! 20  |                    the first probe                            |
//! 24  |  cookie of the sender, when it announces it; otherwise zeros  |
//! 28  |                                                               |
//! 32  |        sequence number of messages to this peer NIC           |
//! 36  |            source queue pair                  |     zeros     |
//! 40  |  time of sending, by the sender's clock; opaque to others     |
//! 44  |                                                               |
//! 48  |  by type, 76 bytes (scr/body.rs)                              |
//! 124 |                          ICRC                                 |
//!
//! flags: 1 announces a cookie (probes and probe answers only), 2 answer wanted, 4 last of a burst
//! ```
//!
//! Byte 4 is the one that routers may change, so a receiver ignores it. All other bits that have no meaning are zeros,
//! and a message in which they are not is refused.
//!
//! No packet of the RoCE family has this opcode ([`crate::codec::decode`] refuses it). PSP starts with 252. An index of
//! ESP may start with the same four bytes as a message: that of queue pair 0x00ffff under every 64th key. A receiver
//! of both tries [`Message::parse_verified`] first: the ICRC tells a message from such a packet.

use core::num::NonZeroU64;

use rnic_base::{Psn, Psn32};

use crate::bytes::{be24, be32, be64, put, put24};
use crate::header::bth::{self, Bth, BthView};
use crate::header::irn::VERSION_ROCE;
use crate::icrc::{self, IcrcPrefix};
use crate::length::ICRC_LEN;
use crate::net::Addresses;
use crate::packet::{PacketFlags, Qpn};

pub use body::{Answer, BackPressure, Body, Grant, GrantKind, Hint, NodeReport, ProbePath, RECORDS_MAX, Records, Type};

mod body;

/// Length of a message in bytes: a UDP payload.
pub const MESSAGE_LEN: usize = 128;

/// Opcode of a message in the base transport header.
pub const OPCODE: u8 = 0xc0;

/// Version of the messages that this module reads and writes.
pub const VERSION: u8 = 1;

/// A secret of a NIC, a different one for each of its peers. A sender whose message carries the receiver's cookie has
/// received a message of the receiver before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(NonZeroU64);

impl Cookie {
    /// Returns the cookie with these bits; `None` for zero, which means no cookie.
    #[must_use]
    pub const fn new(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Returns the bits as transmitted.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Cookies are secrets, so their values are not printed.
impl core::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Cookie(..)")
    }
}

/// A message between NICs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Queue pair of the receiver that the message is about; [`Qpn::GSI`] is the whole NIC.
    pub dest_qpn: Qpn,
    /// Queue pair of the sender that the message is about; [`Qpn::GSI`] is the whole NIC.
    pub source_qpn: Qpn,
    /// Cookie of the receiver; `None` only in a probe that announces the sender's cookie.
    pub cookie: Option<Cookie>,
    /// Cookie of the sender, which is announced only in probes and probe answers.
    pub announced: Option<Cookie>,
    /// True when the sender requests an answer; never in a probe answer.
    pub answer_wanted: bool,
    /// True for the last message of a burst.
    pub is_last: bool,
    /// Sequence number of the message among all messages from this NIC to the receiver.
    pub sequence: Psn32,
    /// Transmit time, by the sender's clock, in units that are known only to the sender.
    pub time: u64,
    /// Contents of the message.
    pub body: Body,
}

/// Reason why a datagram is not a valid message, or a message cannot be encoded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum MessageError {
    /// The datagram does not have 128 bytes.
    #[error("a message has 128 bytes, the datagram has not")]
    Length,
    /// The opcode of the base transport header is not 0xc0.
    #[error("the opcode is not 0xc0")]
    Opcode,
    /// The partition key is not the default one.
    #[error("the partition key is not the default key, 0xffff")]
    PartitionKey,
    /// The PSN differs from the low 24 bits of the sequence number.
    #[error("the PSN is not the low 24 bits of the sequence number")]
    Psn,
    /// The version is not 1.
    #[error("the version of the message is not 1")]
    Version,
    /// The type is unknown.
    #[error("the type of the message is not one of 1 to 6")]
    Type,
    /// A flag is set that is unknown or that the type cannot have.
    #[error("a flag of the message is unknown, or its type cannot have it")]
    Flags,
    /// There are more than six records, or records in a type without records.
    #[error("the number of records is more than 6, or more than 0 for a type without records")]
    RecordCount,
    /// The receiver's cookie is absent, and the message is not a probe that announces the sender's; or the sender's
    /// cookie and the flag that announces it contradict each other.
    #[error("a cookie of the message is absent or unexpected")]
    Cookie,
    /// The kind of a grant is unknown.
    #[error("the kind of a grant is not 0 or 1")]
    GrantKind,
    /// A bit without meaning is set.
    #[error("a reserved bit of the message is not zero")]
    Reserved,
    /// The ICRC is wrong.
    #[error("the ICRC of the message is wrong")]
    Icrc,
}

/// Returns whether a datagram may be a message, by its length and its first four bytes, and so is to be parsed by
/// [`Message::parse`] rather than by [`crate::codec::decode`].
#[inline]
#[must_use]
pub fn is_message(datagram: &[u8]) -> bool {
    datagram.len() == MESSAGE_LEN && datagram[..4] == [OPCODE, VERSION_ROCE, 0xff, 0xff]
}

impl Message {
    /// Returns the complete UDP payload, including the ICRC.
    ///
    /// # Errors
    /// [`MessageError::Cookie`] or [`MessageError::Flags`] when a message of this type cannot have these cookies or
    /// flags.
    pub fn encode(&self, addresses: &Addresses) -> Result<[u8; MESSAGE_LEN], MessageError> {
        self.check()?;
        let mut out = [0; MESSAGE_LEN];
        let mut base = [0; bth::LEN];
        let header = Bth {
            opcode: OPCODE,
            migrated: false,
            pad: 0,
            version: VERSION_ROCE,
            dest_qpn: self.dest_qpn,
            psn: Psn::new(self.sequence.value()),
            flags: PacketFlags::default(),
        };
        header.emit(&mut base);
        put(&mut out, 0, base);
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.announced.is_some(), ANNOUNCES)
            | flag(self.answer_wanted, ANSWER_WANTED)
            | flag(self.is_last, LAST);
        put(&mut out, 12, [VERSION, self.body.kind() as u8, flags, self.body.record_count()]);
        put(&mut out, COOKIE_AT, self.cookie.map_or(0, Cookie::get).to_be_bytes());
        put(&mut out, ANNOUNCED_AT, self.announced.map_or(0, Cookie::get).to_be_bytes());
        put(&mut out, SEQUENCE_AT, self.sequence.value().to_be_bytes());
        put24(&mut out, SOURCE_AT, self.source_qpn.get());
        put(&mut out, TIME_AT, self.time.to_be_bytes());
        self.body.emit(&mut out[BODY_AT..ICRC_AT]);
        let icrc = IcrcPrefix::new(addresses, MESSAGE_LEN as u32).start(&out[..ICRC_AT]).finish();
        put(&mut out, ICRC_AT, icrc);
        Ok(out)
    }

    /// Parses a message. The ICRC is not checked, because that requires the addresses too: see
    /// [`Self::parse_verified`].
    ///
    /// # Errors
    /// [`MessageError`] when the datagram is not a valid message. No input causes a panic.
    pub fn parse(datagram: &[u8]) -> Result<Self, MessageError> {
        let bytes: &[u8; MESSAGE_LEN] = datagram.try_into().map_err(|_| MessageError::Length)?;
        let (base, _) = BthView::split(bytes).map_err(|_| MessageError::Length)?;
        if base.opcode() != OPCODE {
            return Err(MessageError::Opcode);
        }
        if base.partition_key() != bth::DEFAULT_PARTITION_KEY {
            return Err(MessageError::PartitionKey);
        }
        let [version, kind, flags, records] = [bytes[12], bytes[13], bytes[14], bytes[15]];
        if version != VERSION {
            return Err(MessageError::Version);
        }
        if bytes[1] != VERSION_ROCE || bytes[8] != 0 || bytes[SOURCE_AT + 3] != 0 {
            return Err(MessageError::Reserved);
        }
        let kind = Type::from_byte(kind).ok_or(MessageError::Type)?;
        if flags & !(ANNOUNCES | ANSWER_WANTED | LAST) != 0 {
            return Err(MessageError::Flags);
        }
        let sequence = Psn32::new(be32(bytes, SEQUENCE_AT));
        if base.psn() != Psn::new(sequence.value()) {
            return Err(MessageError::Psn);
        }
        let announced = Cookie::new(be64(bytes, ANNOUNCED_AT));
        if announced.is_some() != (flags & ANNOUNCES != 0) {
            return Err(MessageError::Cookie);
        }
        let message = Self {
            dest_qpn: base.dest_qpn(),
            source_qpn: Qpn::new(be24(bytes, SOURCE_AT)),
            cookie: Cookie::new(be64(bytes, COOKIE_AT)),
            announced,
            answer_wanted: flags & ANSWER_WANTED != 0,
            is_last: flags & LAST != 0,
            sequence,
            time: be64(bytes, TIME_AT),
            body: Body::parse(kind, records, &bytes[BODY_AT..ICRC_AT])?,
        };
        message.check()?;
        Ok(message)
    }

    /// Parses a message that arrived between `addresses`, and checks its ICRC.
    ///
    /// # Errors
    /// As [`Self::parse`]; [`MessageError::Icrc`] when only the ICRC is wrong.
    pub fn parse_verified(datagram: &[u8], addresses: &Addresses) -> Result<Self, MessageError> {
        let message = Self::parse(datagram)?;
        if icrc::verify(addresses, datagram) { Ok(message) } else { Err(MessageError::Icrc) }
    }

    /// Checks that the cookies and flags are permitted for the type. Without these rules an answer could cause an
    /// answer, and a sender that knows no cookie could send anything but a first probe.
    fn check(&self) -> Result<(), MessageError> {
        let kind = self.body.kind();
        if self.announced.is_some() && !matches!(kind, Type::Probe | Type::Answer) {
            return Err(MessageError::Flags);
        }
        if self.answer_wanted && kind == Type::Answer {
            return Err(MessageError::Flags);
        }
        let is_first_probe = kind == Type::Probe && self.announced.is_some();
        if self.cookie.is_none() && !is_first_probe { Err(MessageError::Cookie) } else { Ok(()) }
    }
}

const ANNOUNCES: u8 = 1;
const ANSWER_WANTED: u8 = 2;
const LAST: u8 = 4;

const COOKIE_AT: usize = 16;
const ANNOUNCED_AT: usize = 24;
const SEQUENCE_AT: usize = 32;
const SOURCE_AT: usize = 36;
const TIME_AT: usize = 40;
const BODY_AT: usize = 48;
const ICRC_AT: usize = MESSAGE_LEN - ICRC_LEN;
