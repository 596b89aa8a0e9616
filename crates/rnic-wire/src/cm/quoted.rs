//! Identification of the sent message that an ICMP error refers to.
//!
//! An ICMP error quotes the beginning of the datagram that it refers to (RFC 792: eight bytes after the IP header;
//! RFC 1812, section 4.3.2.3: as much as fits into 576 bytes). The kernel finds the socket by addresses and ports
//! alone, which an attacker can guess. The identifiers in a message are generated randomly, and only the two
//! endpoints and the path between them see them: a sender that quotes these 96 bits must have seen the message.

use super::mad::{HEADER_LEN, MadHeader};
use crate::gsi::{self, HEADERS_LEN};

/// Identifiers that the sender of a message has assigned to the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentIds {
    /// Transaction id of the exchange of messages.
    pub transaction_id: u64,
    /// Communication id of the sender's connection, or id of its lookup request.
    pub local_comm_id: u32,
}

impl SentIds {
    /// Number of bytes of a datagram needed to read the identifiers.
    pub const BYTES: usize = HEADERS_LEN + HEADER_LEN + size_of::<u32>();

    /// Reads the identifiers from the first bytes of a datagram; returns `None` when it is not a message, or too few
    /// bytes are given.
    #[must_use]
    pub fn of_datagram(start: &[u8]) -> Option<Self> {
        let (header, body) = start.get(HEADERS_LEN..Self::BYTES)?.split_first_chunk()?;
        let header = MadHeader::parse(header).ok().filter(|_| gsi::is_gsi(start))?;
        // Every message begins with the sender's communication id.
        let local_comm_id = u32::from_be_bytes(body.try_into().ok()?);
        Some(Self { transaction_id: header.transaction_id, local_comm_id })
    }
}

#[cfg(test)]
mod tests {
    use rnic_base::Psn;

    use super::*;
    use crate::cm::{
        self, DisconnectReply, DisconnectRequest, LookupReply, LookupRequest, Mad, Message, ReadyToUse, Reject, Reply,
        Request,
    };
    use crate::{Addresses, Qpn};

    #[test]
    fn the_first_bytes_of_every_message_identify_its_exchange() {
        let parse = |text: &str| text.parse().expect("an address");
        let path = Addresses::new(parse("10.0.0.1:49152"), parse("10.0.0.2:4791")).expect("both IPv4");
        let id = 0xa1b2_c3d4;
        for message in [
            Message::Request(Request { local_comm_id: id, ..Request::default() }),
            Message::Reject(Reject { local_comm_id: id, ..Reject::default() }),
            Message::Reply(Reply { local_comm_id: id, ..Reply::default() }),
            Message::ReadyToUse(ReadyToUse { local_comm_id: id, ..ReadyToUse::default() }),
            Message::DisconnectRequest(DisconnectRequest { local_comm_id: id, ..DisconnectRequest::default() }),
            Message::DisconnectReply(DisconnectReply { local_comm_id: id, ..DisconnectReply::default() }),
            Message::LookupRequest(LookupRequest { request_id: id, ..LookupRequest::default() }),
            Message::LookupReply(LookupReply { request_id: id, ..LookupReply::default() }),
        ] {
            let mad = cm::emit(&Mad { transaction_id: 0x1122_3344_5566_7788, message });
            let datagram = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(7), mad: &mad }.encode(&path);
            let names = SentIds { transaction_id: 0x1122_3344_5566_7788, local_comm_id: id };
            assert_eq!(SentIds::of_datagram(&datagram[..SentIds::BYTES]), Some(names));
            assert_eq!(SentIds::of_datagram(&datagram), Some(names));
            assert_eq!(SentIds::of_datagram(&datagram[..SentIds::BYTES - 1]), None, "too short, yet identified");
            let mut other = datagram;
            other[7] = 2;
            assert_eq!(SentIds::of_datagram(&other), None, "a datagram to another queue pair was identified");
        }
        assert_eq!(SentIds::of_datagram(&[]), None);
    }
}
