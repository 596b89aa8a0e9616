//! Hello messages: OpenRNIC NICs use them to exchange the settings of queue pairs, so that incompatible ends are
//! detected and reported.
//!
//! The messages are specific to OpenRNIC (attribute 0x0011 of [the vendor management datagrams](crate::vendor)).
//! Programs that connect queue pairs without the connection manager exchange queue pair numbers and PSNs but no
//! settings; the use of the messages is described in `rnic-host`'s `hello.rs`. A request carries the settings of the
//! requester's end, the response those of the other end.
//!
//! ```text
//!        0               1               2               3
//!  8  |   reserved    |         queue pair of the sender              |
//! 12  |   reserved    |              queue pair of the receiver       |
//! 40  |                 wire MTU: payload bytes                       |
//! 44  |        Falcon settings that must be equal; 0 without Falcon   |
//! 48  |        name of the transport: a to z, 0 to 9, hyphens, then zeros ... 24 bytes
//! 72  | messages      | zeros ...
//! ```
//!
//! `messages` is the version of the messages between NICs ([`crate::scr`]) that the sender exchanges; 0 for none. NICs
//! that do not know them send zeros.

use crate::Qpn;
use crate::bytes::{array, be24, be32, put, put24};
use crate::gsi::MAD_LEN;
use crate::vendor::{DATA_AT, Method, head, method_of};

/// A hello message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// True for a response, false for a request.
    pub is_response: bool,
    /// Queue pair that sends the message.
    pub from: Qpn,
    /// Destination queue pair.
    pub to: Qpn,
    /// Settings of `from`.
    pub terms: Terms,
    /// Version of the messages between NICs that the sender exchanges; 0 for none. It need not be the same at both
    /// ends.
    pub messages: u8,
}

/// Settings that must be equal at both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Name of the transport.
    pub transport: TransportName,
    /// Payload of a full packet in bytes.
    pub mtu: u32,
    /// Falcon settings: order, errors, flows, protection, in a word encoded by `rnic-host`. 0 for other transports.
    pub falcon: u32,
}

/// Name of a transport as transmitted: lower-case letters, digits and hyphens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportName([u8; TransportName::LEN_MAX]);

impl TransportName {
    /// Length of the longest name in bytes.
    pub const LEN_MAX: usize = 24;

    /// Returns the name; `None` when it is empty or too long, or has characters that are not allowed.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; Self::LEN_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Self::parse(bytes)
    }

    fn parse(bytes: [u8; Self::LEN_MAX]) -> Option<Self> {
        let name = Self(bytes);
        let len = name.as_str().len();
        let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let is_name = len > 0 && bytes[..len].iter().all(is_letter) && bytes[len..].iter().all(|byte| *byte == 0);
        is_name.then_some(name)
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::LEN_MAX);
        // Before validation the bytes are arbitrary; invalid UTF-8 results in an empty name, which is rejected.
        core::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl Hello {
    /// Parses a management datagram; returns `None` when it is not a hello message, or its transport name is invalid.
    #[must_use]
    pub fn parse(mad: &[u8; MAD_LEN]) -> Option<Self> {
        let method = method_of(mad, ATTRIBUTE)?;
        let transport = TransportName::parse(array(mad, NAME_AT))?;
        let terms = Terms { transport, mtu: be32(mad, DATA_AT), falcon: be32(mad, FALCON_AT) };
        let number = |at| Qpn::new(be24(mad, at));
        let [messages] = array(mad, MESSAGES_AT);
        Some(Self { is_response: method == Method::GetResp, from: number(9), to: number(13), terms, messages })
    }

    /// Encodes the message as a management datagram.
    #[must_use]
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let method = if self.is_response { Method::GetResp } else { Method::Get };
        let mut out = head(method, ATTRIBUTE);
        put24(&mut out, 9, self.from.get());
        put24(&mut out, 13, self.to.get());
        put(&mut out, DATA_AT, self.terms.mtu.to_be_bytes());
        put(&mut out, FALCON_AT, self.terms.falcon.to_be_bytes());
        put(&mut out, NAME_AT, self.terms.transport.0);
        out[MESSAGES_AT] = self.messages;
        out
    }
}

const ATTRIBUTE: u16 = 0x0011;
const FALCON_AT: usize = DATA_AT + 4;
const NAME_AT: usize = FALCON_AT + 4;
const MESSAGES_AT: usize = NAME_AT + TransportName::LEN_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(transport: &str) -> Hello {
        let transport = TransportName::new(transport).expect("a name");
        let terms = Terms { transport, mtu: 4_096, falcon: 0x3001_0000 };
        Hello { is_response: false, from: Qpn::new(0x01_0203), to: Qpn::new(0xa0_b0c0), terms, messages: 0 }
    }

    #[test]
    fn golden_round_trip() {
        let request = hello("irn-plus");
        let mad = request.emit();
        let header = [1, 0x3f, 1, 1, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0xa0, 0xb0, 0xc0, 0, 0x11, 0, 0, 0, 0, 0, 0];
        assert_eq!(mad[..24], header);
        assert_eq!(mad[36..48], [0, 2, b'R', b'N', 0, 0, 0x10, 0, 0x30, 1, 0, 0]);
        assert_eq!(&mad[48..56], b"irn-plus");
        assert!(mad[56..].iter().all(|byte| *byte == 0));
        let mad = Hello { messages: 1, ..request }.emit();
        assert!(mad[56..72].iter().chain(&mad[73..]).all(|byte| *byte == 0) && mad[72] == 1);
        let response = Hello { is_response: true, messages: 1, ..hello(&"x".repeat(TransportName::LEN_MAX)) };
        assert_eq!([request, response].map(|message| Hello::parse(&message.emit())), [Some(request), Some(response)]);
    }

    #[test]
    fn other_messages_are_not_hello_messages() {
        for at in [0, 1, 2, 3, 4, 5, 16, 17, 37, 38, 39, 48] {
            let mut mad = hello("falcon").emit();
            mad[at] ^= 0x20;
            assert_eq!(Hello::parse(&mad), None, "byte {at}");
        }
        assert_eq!(Hello::parse(&[0; MAD_LEN]), None);
    }

    #[test]
    fn names_with_unprintable_characters_are_rejected() {
        for name in ["", "IRN", "irn\n", "irn irn", "\u{1b}[2J", "größe", &"x".repeat(25)] {
            assert_eq!(TransportName::new(name), None, "{name:?}");
        }
        for bytes in [*b"irn\0irn\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", [0xff; 24]] {
            assert_eq!(TransportName::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(TransportName::new("roce-gbn").expect("a name").as_str(), "roce-gbn");
    }
}
