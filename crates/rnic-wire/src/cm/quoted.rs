//! Which message of ours an ICMP error is about.
//!
//! An ICMP error quotes the beginning of the datagram that it is about (RFC 792: eight bytes behind the IP header; RFC
//! 1812, section 4.3.2.3: as much as fits into 576 bytes). The kernel finds the socket by addresses and ports alone,
//! which anybody can guess. The names in a message are drawn at random, and only the two ends and the path between them
//! see them: 96 bits, which whoever quotes them must have seen.

use super::mad::{HEADER_LEN, MadHeader};
use crate::gsi::{self, HEADERS_LEN};

/// What the sender of a message called the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentNames {
    /// Of the exchange of messages.
    pub transaction_id: u64,
    /// The sender's name for the connection, or for its question.
    pub local_comm_id: u32,
}

impl SentNames {
    /// Bytes of a datagram that say them.
    pub const BYTES: usize = HEADERS_LEN + HEADER_LEN + size_of::<u32>();

    /// Reads them from the first bytes of a datagram; `None` when it is no message, or too little of it is there.
    #[must_use]
    pub fn of_datagram(start: &[u8]) -> Option<Self> {
        let (header, body) = start.get(HEADERS_LEN..Self::BYTES)?.split_first_chunk()?;
        let header = MadHeader::parse(header).ok().filter(|_| gsi::is_gsi(start))?;
        // Every message begins with it.
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
    fn every_message_names_its_exchange_in_its_first_bytes() {
        let parse = |text: &str| text.parse().expect("an address");
        let way = Addresses::new(parse("10.0.0.1:49152"), parse("10.0.0.2:4791")).expect("both IPv4");
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
            let datagram = gsi::GsiPacket { source_qpn: Qpn::GSI, psn: Psn::new(7), mad: &mad }.encode(&way);
            let names = SentNames { transaction_id: 0x1122_3344_5566_7788, local_comm_id: id };
            assert_eq!(SentNames::of_datagram(&datagram[..SentNames::BYTES]), Some(names));
            assert_eq!(SentNames::of_datagram(&datagram), Some(names));
            assert_eq!(SentNames::of_datagram(&datagram[..SentNames::BYTES - 1]), None, "too little");
            let mut other = datagram;
            other[7] = 2;
            assert_eq!(SentNames::of_datagram(&other), None, "for another queue pair");
        }
        assert_eq!(SentNames::of_datagram(&[]), None);
    }
}
