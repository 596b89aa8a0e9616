//! Credit messages: how NICs of ours ask each other whether unreliable packets have been taken in.
//!
//! Our own protocol, in a form that everybody knows to ignore: a management datagram of a vendor's class (InfiniBand
//! Architecture volume 1, section 16.5.2, classes 0x30 to 0x4f: the vendor is named by an OUI; method Get, answered by
//! GetResp). The OUI is a locally administered one, which belongs to nobody. What the messages are for is told in
//! `rnic-host`'s `credit.rs`.
//!
//! ```text
//!        0               1               2               3
//!  0  | base version 1|  class 0x3f   | class version1| method        |
//!  4  |            status             |        class specific         |
//!  8  |                           cookie                              |
//! 12  |                                                               |
//! 16  |       attribute 0x0010        |           reserved            |
//! 20  |                      attribute modifier                       |
//! 24  ... 12 bytes of RMPP header, zeros: not used
//! 36  |    reserved   |                     OUI                       |
//! 40  |          answer port          | zeros ...
//! ```

use crate::bytes::{array, be16, be64, put};
use crate::gsi::MAD_LEN;

/// A credit message. The cookie is the asker's secret, and comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// Asks whether everything that came before on the same way has been taken in.
    Request {
        /// Joins the answer to it.
        cookie: u64,
        /// The UDP port that the asker hears answers on.
        answer_port: u16,
    },
    /// It has.
    Answer {
        /// Of the request.
        cookie: u64,
    },
}

impl Credit {
    /// Reads a management datagram; `None` when it is something else.
    #[must_use]
    pub fn parse(mad: &[u8; MAD_LEN]) -> Option<Self> {
        let is_ours = mad[..3] == [BASE_VERSION, CLASS, CLASS_VERSION]
            && be16(mad, 4) == 0
            && be16(mad, 16) == ATTRIBUTE
            && array::<3>(mad, 37) == OUI;
        let cookie = be64(mad, 8);
        match mad[3] {
            METHOD_GET if is_ours => Some(Self::Request { cookie, answer_port: be16(mad, 40) }),
            METHOD_GET_RESP if is_ours => Some(Self::Answer { cookie }),
            _ => None,
        }
    }

    /// Writes it as a management datagram.
    #[must_use]
    pub fn emit(self) -> [u8; MAD_LEN] {
        let mut out = [0; MAD_LEN];
        let (method, cookie, answer_port) = match self {
            Self::Request { cookie, answer_port } => (METHOD_GET, cookie, answer_port),
            Self::Answer { cookie } => (METHOD_GET_RESP, cookie, 0),
        };
        put(&mut out, 0, [BASE_VERSION, CLASS, CLASS_VERSION, method]);
        put(&mut out, 8, cookie.to_be_bytes());
        put(&mut out, 16, ATTRIBUTE.to_be_bytes());
        put(&mut out, 37, OUI);
        put(&mut out, 40, answer_port.to_be_bytes());
        out
    }
}

const BASE_VERSION: u8 = 1;
/// A vendor's class that nobody is known to use over IP.
const CLASS: u8 = 0x3f;
const CLASS_VERSION: u8 = 1;
const METHOD_GET: u8 = 0x01;
const METHOD_GET_RESP: u8 = 0x81;
const ATTRIBUTE: u16 = 0x0010;
/// The second bit of the first byte: locally administered.
const OUI: [u8; 3] = [0x02, b'R', b'N'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_and_back() {
        let request = Credit::Request { cookie: 0x0102_0304_0506_0708, answer_port: 0xc0de };
        let mad = request.emit();
        let header = [1, 0x3f, 1, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x10, 0, 0, 0, 0, 0, 0];
        assert_eq!(mad[..24], header);
        assert_eq!(mad[24..42], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, b'R', b'N', 0xc0, 0xde]);
        assert!(mad[42..].iter().all(|byte| *byte == 0));
        let answer = Credit::Answer { cookie: u64::MAX - 1 };
        assert_eq!([request, answer].map(|message| Credit::parse(&message.emit())), [Some(request), Some(answer)]);
    }

    #[test]
    fn what_is_not_one_is_none() {
        for at in [0, 1, 2, 3, 4, 5, 16, 17, 37, 38, 39] {
            let mut mad = Credit::Request { cookie: 1, answer_port: 2 }.emit();
            mad[at] ^= 0x20;
            assert_eq!(Credit::parse(&mad), None, "byte {at}");
        }
        assert_eq!(Credit::parse(&[0; MAD_LEN]), None);
    }
}
