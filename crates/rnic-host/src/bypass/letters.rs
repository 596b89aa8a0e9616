//! What NICs write each other about rings, and where.
//!
//! ```text
//!  0 version, 8 bytes      8 kind    9 which name   10 port of the sender's NIC   12 port that its packets come from
//! 16 where its packets come from    32 where they go   48 nonce   64 ticket                          80 bytes
//! ```
//!
//! What a kind does not say is zero.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Whose letterbox: of the NIC that receives on `port`, under the `name`-th of the names that it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) port: u16,
    pub(super) name: u8,
}

impl Place {
    /// Where the letterbox of the NIC on `port` may be.
    pub(super) fn all(port: u16) -> impl Iterator<Item = Self> {
        (0..NAMES).map(move |name| Self { port, name })
    }

    /// The abstract name of the socket.
    pub(super) fn socket_name(self) -> Vec<u8> {
        match self.name {
            0 => format!("rnic-wire-{}", self.port).into_bytes(),
            name => format!("rnic-wire-{}.{name}", self.port).into_bytes(),
        }
    }
}

/// What a question says that nobody can guess.
pub(super) type Nonce = [u8; 16];

/// What an answer gives to whoever has asked, for the offer.
pub(super) type Ticket = [u8; 16];

/// A letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Words {
    /// "Are you the user that I am? I am here."
    Ask { from: Place, nonce: Nonce },
    /// "I am, says the kernel."
    Answer { nonce: Nonce, ticket: Ticket },
    /// "Here is the memory." It comes with the file.
    Offer { offer: Offer, nonce: Nonce, ticket: Ticket },
}

/// What comes with a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// The NIC that will write.
    pub(super) from: Place,
    /// Where its packets come from, and would over UDP.
    pub(super) source: SocketAddr,
    /// Where they go.
    pub(super) to: IpAddr,
}

impl Words {
    pub(super) const BYTES: usize = 80;

    pub(super) fn emit(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, VERSION);
        match self {
            Self::Ask { from, nonce } => {
                put(8, &[ASK, from.name]);
                put(10, &from.port.to_be_bytes());
                put(48, nonce);
            }
            Self::Answer { nonce, ticket } => {
                put(8, &[ANSWER]);
                put(48, nonce);
                put(64, ticket);
            }
            Self::Offer { offer, nonce, ticket } => {
                put(8, &[OFFER, offer.from.name]);
                put(10, &offer.from.port.to_be_bytes());
                put(12, &offer.source.port().to_be_bytes());
                put(16, &mapped(offer.source.ip()).octets());
                put(32, &mapped(offer.to).octets());
                put(48, nonce);
                put(64, ticket);
            }
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let long = |at: usize| -> Option<[u8; 16]> { bytes[at..at + 16].try_into().ok() };
        let ip = |at: usize| Some(IpAddr::from(long(at)?).to_canonical());
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let from = Place { port: port(10), name: bytes[9] };
        if bytes[..8] != *VERSION || from.name >= NAMES {
            return None;
        }
        let (nonce, ticket) = (long(48)?, long(64)?);
        match bytes[8] {
            ASK => Some(Self::Ask { from, nonce }),
            ANSWER => Some(Self::Answer { nonce, ticket }),
            OFFER => {
                let (source, to) = (SocketAddr::new(ip(16)?, port(12)), ip(32)?);
                let offer = Offer { from, source, to };
                (source.is_ipv4() == to.is_ipv4()).then_some(Self::Offer { offer, nonce, ticket })
            }
            _ => None,
        }
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Names that a letterbox may have: somebody else may have taken one or two of them.
pub(super) const NAMES: u8 = 4;

/// Of letters and rings.
const VERSION: &[u8; 8] = b"rnicwir3";

const ASK: u8 = 1;
const ANSWER: u8 = 2;
const OFFER: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> [Words; 4] {
        let ip = |text: &str| text.parse().expect("an address");
        let (from, nonce, ticket) = (Place { port: 1_040, name: 2 }, [7; 16], [9; 16]);
        let offer = Offer { from, source: SocketAddr::new(ip("127.0.0.1"), 4_791), to: ip("127.0.0.2") };
        let v6 = Offer { from, source: SocketAddr::new(ip("fd00::1"), 1_024), to: ip("::1") };
        [
            Words::Ask { from, nonce },
            Words::Answer { nonce, ticket },
            Words::Offer { offer, nonce, ticket },
            Words::Offer { offer: v6, nonce, ticket },
        ]
    }

    #[test]
    fn what_is_emitted_is_parsed() {
        for words in every_kind() {
            let bytes = words.emit();
            assert_eq!(Words::parse(&bytes), Some(words));
            assert_eq!(Words::parse(&bytes[1..]), None);
            for at in 0..10 {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                assert_eq!(Words::parse(&wrong), None, "byte {at} of {words:?}");
            }
        }
        let Words::Offer { offer, nonce, ticket } = every_kind()[2] else { panic!("an offer") };
        let mixed = Offer { to: "::1".parse().expect("an address"), ..offer };
        assert_eq!(Words::parse(&Words::Offer { offer: mixed, nonce, ticket }.emit()), None);
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<Vec<u8>> = Place::all(1_040).map(Place::socket_name).collect();
        assert_eq!(names.len(), usize::from(NAMES));
        assert!(names.contains(&b"rnic-wire-1040"[..]));
    }
}
