//! Credit messages: OpenRNIC NICs use them to query each other whether unreliable packets have been processed.
//!
//! A protocol of OpenRNIC (attribute 0x0010 of [the vendor management datagrams](crate::vendor)). The use of the
//! messages is described in `rnic-host`'s `credit.rs`.
//!
//! ```text
//!        0               1               2               3
//!  8  |                           cookie                              |
//! 12  |                                                               |
//! 40  |         response port         | zeros ...
//! ```

use crate::bytes::{be16, be64, put};
use crate::gsi::MAD_LEN;
use crate::vendor::{DATA_AT, Method, head, method_of};

/// A credit message. The cookie is a secret of the requester, and is returned in the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// Requests confirmation that all packets that arrived earlier on the same path have been processed.
    Request {
        /// Identifies the response to this request.
        cookie: u64,
        /// UDP port on which the requester receives responses.
        response_port: u16,
    },
    /// Confirms that these packets have been processed.
    Response {
        /// Cookie of the request.
        cookie: u64,
    },
}

impl Credit {
    /// Parses a management datagram; returns `None` when it is not a credit message.
    #[must_use]
    pub fn parse(mad: &[u8; MAD_LEN]) -> Option<Self> {
        let cookie = be64(mad, 8);
        match method_of(mad, ATTRIBUTE)? {
            Method::Get => Some(Self::Request { cookie, response_port: be16(mad, DATA_AT) }),
            Method::GetResp => Some(Self::Response { cookie }),
        }
    }

    /// Encodes the message as a management datagram.
    #[must_use]
    pub fn emit(self) -> [u8; MAD_LEN] {
        let (method, cookie, response_port) = match self {
            Self::Request { cookie, response_port } => (Method::Get, cookie, response_port),
            Self::Response { cookie } => (Method::GetResp, cookie, 0),
        };
        let mut out = head(method, ATTRIBUTE);
        put(&mut out, 8, cookie.to_be_bytes());
        put(&mut out, DATA_AT, response_port.to_be_bytes());
        out
    }
}

const ATTRIBUTE: u16 = 0x0010;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_round_trip() {
        let request = Credit::Request { cookie: 0x0102_0304_0506_0708, response_port: 0xc0de };
        let mad = request.emit();
        let header = [1, 0x3f, 1, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x10, 0, 0, 0, 0, 0, 0];
        assert_eq!(mad[..24], header);
        assert_eq!(mad[24..42], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, b'R', b'N', 0xc0, 0xde]);
        assert!(mad[42..].iter().all(|byte| *byte == 0));
        let response = Credit::Response { cookie: u64::MAX - 1 };
        assert_eq!([request, response].map(|message| Credit::parse(&message.emit())), [Some(request), Some(response)]);
    }

    #[test]
    fn other_messages_are_not_credit_messages() {
        for at in [0, 1, 2, 3, 4, 5, 16, 17, 37, 38, 39] {
            let mut mad = Credit::Request { cookie: 1, response_port: 2 }.emit();
            mad[at] ^= 0x20;
            assert_eq!(Credit::parse(&mad), None, "byte {at}");
        }
        assert_eq!(Credit::parse(&[0; MAD_LEN]), None);
    }
}
