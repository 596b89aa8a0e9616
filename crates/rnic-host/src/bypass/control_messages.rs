//! Control messages that NICs exchange about rings, and the names of the sockets that carry them.
//!
//! ```text
//!  0 version, 8 bytes      8 kind    9 name index   10 port of the sender's NIC   12 source port of its packets
//! 16 source address of its packets  32 destination     48 nonce   64 ticket                          80 bytes
//! ```
//!
//! Fields that a message type does not use are zero.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Address of a control socket: that of the NIC that receives on `port`, with the number `name` of its possible
/// names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ControlAddress {
    pub(super) port: u16,
    pub(super) name: u8,
}

impl ControlAddress {
    /// Returns all possible addresses of the control socket of the NIC on `port`.
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

/// Value that an answer passes to the prober, which includes it in its offer.
pub(super) type Ticket = [u8; 16];

/// A control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlMessage {
    /// Asks whether the receiver belongs to the same user; carries the address of the sender's control socket.
    Probe { from: ControlAddress, nonce: Nonce },
    /// Answer: the kernel has confirmed that the prober belongs to the same user.
    ProbeReply { nonce: Nonce, ticket: Ticket },
    /// Offer: passes the memory of a ring; the message carries its file descriptor.
    Offer { offer: Offer, nonce: Nonce, ticket: Ticket },
}

/// Properties of an offered ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// Control socket of the NIC that will write the ring.
    pub(super) from: ControlAddress,
    /// Source address and port that its packets would have over UDP.
    pub(super) source: SocketAddr,
    /// Destination address of its packets.
    pub(super) to: IpAddr,
}

impl ControlMessage {
    pub(super) const BYTES: usize = 80;

    pub(super) fn emit(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, VERSION);
        match self {
            Self::Probe { from, nonce } => {
                put(8, &[PROBE, from.name]);
                put(10, &from.port.to_be_bytes());
                put(48, nonce);
            }
            Self::ProbeReply { nonce, ticket } => {
                put(8, &[PROBE_REPLY]);
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
        let from = ControlAddress { port: port(10), name: bytes[9] };
        if bytes[..8] != *VERSION || from.name >= NAMES {
            return None;
        }
        let (nonce, ticket) = (long(48)?, long(64)?);
        match bytes[8] {
            PROBE => Some(Self::Probe { from, nonce }),
            PROBE_REPLY => Some(Self::ProbeReply { nonce, ticket }),
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

/// Number of candidate names for a control socket: if another process has bound a name, the next one is tried.
pub(super) const NAMES: u8 = 4;

/// Version of the control messages and of the ring layout.
const VERSION: &[u8; 8] = b"rnicwir3";

const PROBE: u8 = 1;
const PROBE_REPLY: u8 = 2;
const OFFER: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> [ControlMessage; 4] {
        let ip = |text: &str| text.parse().expect("an address");
        let (from, nonce, ticket) = (ControlAddress { port: 1_040, name: 2 }, [7; 16], [9; 16]);
        let offer = Offer { from, source: SocketAddr::new(ip("127.0.0.1"), 4_791), to: ip("127.0.0.2") };
        let v6 = Offer { from, source: SocketAddr::new(ip("fd00::1"), 1_024), to: ip("::1") };
        [
            ControlMessage::Probe { from, nonce },
            ControlMessage::ProbeReply { nonce, ticket },
            ControlMessage::Offer { offer, nonce, ticket },
            ControlMessage::Offer { offer: v6, nonce, ticket },
        ]
    }

    #[test]
    fn emitted_messages_are_parsed_again() {
        for text in every_kind() {
            let bytes = text.emit();
            assert_eq!(ControlMessage::parse(&bytes), Some(text));
            assert_eq!(ControlMessage::parse(&bytes[1..]), None);
            for at in 0..10 {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                assert_eq!(ControlMessage::parse(&wrong), None, "byte {at} of {text:?}");
            }
        }
        let ControlMessage::Offer { offer, nonce, ticket } = every_kind()[2] else { panic!("an offer") };
        let mixed = Offer { to: "::1".parse().expect("an address"), ..offer };
        assert_eq!(ControlMessage::parse(&ControlMessage::Offer { offer: mixed, nonce, ticket }.emit()), None);
    }

    #[test]
    fn control_socket_names_differ() {
        let names: std::collections::BTreeSet<Vec<u8>> =
            ControlAddress::all(1_040).map(ControlAddress::socket_name).collect();
        assert_eq!(names.len(), usize::from(NAMES));
        assert!(names.contains(&b"rnic-wire-1040"[..]));
    }
}
