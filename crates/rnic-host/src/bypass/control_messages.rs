//! Control messages that NICs exchange about rings, and the names of the sockets that carry them.
//!
//! ```text
//!  0 version, 8 bytes      8 kind    9 which name   10 port of the sender's NIC   12 port that its packets come from
//! 16 where its packets come from    32 where they go   48 nonce   64 ticket                          80 bytes
//! ```
//!
//! Fields that a message type does not use are zero.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Address of a control socket: of the NIC that receives on `port`, under the `name`-th of the names that it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) port: u16,
    pub(super) name: u8,
}

impl Place {
    /// Returns all addresses that the control socket of the NIC on `port` may have.
    pub(super) fn all(port: u16) -> impl Iterator<Item = Self> {
        (0..NAMES).map(move |name| Self { port, name })
    }

    /// Returns the abstract name of the socket.
    pub(super) fn socket_name(self) -> Vec<u8> {
        match self.name {
            0 => format!("rnic-wire-{}", self.port).into_bytes(),
            name => format!("rnic-wire-{}.{name}", self.port).into_bytes(),
        }
    }
}

/// Unpredictable value in a probe.
pub(super) type Nonce = [u8; 16];

/// Value that an answer passes to the prober, for use in its offer.
pub(super) type Ticket = [u8; 16];

/// A control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlText {
    /// Ask: probes whether the receiver belongs to the same user, and names the sender's control socket.
    Ask { from: Place, nonce: Nonce },
    /// Answer: the kernel has confirmed that the prober belongs to the same user.
    Answer { nonce: Nonce, ticket: Ticket },
    /// Offer: passes the memory of a ring; the message carries its file descriptor.
    Offer { offer: Offer, nonce: Nonce, ticket: Ticket },
}

/// Properties of an offered ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// Control socket of the NIC that will write.
    pub(super) from: Place,
    /// Source of its packets, as it would be over UDP.
    pub(super) source: SocketAddr,
    /// Destination address of its packets.
    pub(super) to: IpAddr,
}

impl ControlText {
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

/// Number of names that a control socket may have: another process may have bound one or two of them.
pub(super) const NAMES: u8 = 4;

/// Version of the control messages and of the ring layout.
const VERSION: &[u8; 8] = b"rnicwir3";

const ASK: u8 = 1;
const ANSWER: u8 = 2;
const OFFER: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> [ControlText; 4] {
        let ip = |text: &str| text.parse().expect("an address");
        let (from, nonce, ticket) = (Place { port: 1_040, name: 2 }, [7; 16], [9; 16]);
        let offer = Offer { from, source: SocketAddr::new(ip("127.0.0.1"), 4_791), to: ip("127.0.0.2") };
        let v6 = Offer { from, source: SocketAddr::new(ip("fd00::1"), 1_024), to: ip("::1") };
        [
            ControlText::Ask { from, nonce },
            ControlText::Answer { nonce, ticket },
            ControlText::Offer { offer, nonce, ticket },
            ControlText::Offer { offer: v6, nonce, ticket },
        ]
    }

    #[test]
    fn what_is_emitted_is_parsed() {
        for words in every_kind() {
            let bytes = words.emit();
            assert_eq!(ControlText::parse(&bytes), Some(words));
            assert_eq!(ControlText::parse(&bytes[1..]), None);
            for at in 0..10 {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                assert_eq!(ControlText::parse(&wrong), None, "byte {at} of {words:?}");
            }
        }
        let ControlText::Offer { offer, nonce, ticket } = every_kind()[2] else { panic!("an offer") };
        let mixed = Offer { to: "::1".parse().expect("an address"), ..offer };
        assert_eq!(ControlText::parse(&ControlText::Offer { offer: mixed, nonce, ticket }.emit()), None);
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<Vec<u8>> = Place::all(1_040).map(Place::socket_name).collect();
        assert_eq!(names.len(), usize::from(NAMES));
        assert!(names.contains(&b"rnic-wire-1040"[..]));
    }
}
