//! Parameters that two OpenRNIC NICs exchange when they connect, in the private data of REQ and REP.
//!
//! ```text
//!   0 "ORN" and version 2         4 bytes of application data    5 bytes of names
//!   6 wire MTU, bytes             8 receive window, packets      12 cap on packets in flight (0: none)
//!  16 names of transports, best first, separated by commas; 20 bytes, padded with zeros
//!  35 last of these bytes, if the names are shorter: version of the messages between NICs that this end exchanges; 0
//!     for none, as NICs that do not know them send
//!  36 settings of Falcon that must be equal ([`super::falcon_parameters`]), 0 without Falcon
//!  40 private data of the application
//! ```
//!
//! A REQ contains what the requester offers; the REP contains what was chosen. A peer that does not send this block
//! is another implementation: it is assumed to use RoCEv2 with go-back-N and an MTU of InfiniBand, and its buffer
//! space is unknown (IRN section 7: IRN is used only if both ends support it, otherwise RoCE).
//!
//! The connection uses the smaller of the two wire MTUs. It also uses the smaller of the two caps, because a receiver
//! can accept out-of-order packets only within its own bitmap.

use rnic_base::limits::{MTU_MAX, MTU_MIN};

/// Length of the block in bytes.
pub(crate) const BLOCK_BYTES: usize = 40;

/// Bytes of application data that fit in a REQ after the addresses and the block.
pub(crate) const REQUEST_DATA_BYTES: usize = 56 - BLOCK_BYTES;

/// Bytes of application data that fit in a REP after the block.
pub(crate) const REPLY_DATA_BYTES: usize = 196 - BLOCK_BYTES;

/// The transport that is assumed for other implementations.
pub(crate) const FALLBACK: &str = "roce-gbn";

/// Parameters that one end sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// Payload bytes of a full packet.
    pub(crate) wire_mtu: u32,
    /// Packets that may be in flight to this end; `None` when this end specifies no limit.
    pub(crate) receive_window: Option<u32>,
    /// Maximum number of packets that this end has in flight per queue pair; `None` when only its memory limits the
    /// number.
    pub(crate) cap_packets: Option<u32>,
    /// Encoded parameters that must be equal at both ends for Falcon: [`super::falcon_parameters`]; 0 when this end
    /// does not support Falcon.
    pub(crate) falcon: u32,
    /// Version of the messages between NICs that this end exchanges; 0 for none.
    pub(crate) messages: u8,
    /// In a REQ, the transports that this end supports, best first; in a REP, the chosen transport.
    pub(crate) transports: Vec<String>,
}

impl Terms {
    /// Returns the parameters that are assumed for another implementation, which sends none.
    pub(crate) fn of_other_stack(wire_mtu: u32) -> Self {
        Self {
            wire_mtu,
            receive_window: None,
            cap_packets: None,
            falcon: 0,
            messages: 0,
            transports: vec![FALLBACK.to_owned()],
        }
    }

    /// Returns the block, followed by `data`.
    ///
    /// # Panics
    /// When `data` is longer than 255 bytes or the names are longer than 20: callers check.
    pub(crate) fn emit(&self, data: &[u8]) -> Vec<u8> {
        let names = self.names();
        let mut block = Vec::with_capacity(BLOCK_BYTES + data.len());
        block.extend_from_slice(MAGIC);
        block.push(u8::try_from(data.len()).expect("callers check that private data has at most 255 bytes"));
        block.push(names.len() as u8);
        block.extend_from_slice(&(self.wire_mtu as u16).to_be_bytes());
        block.extend_from_slice(&self.receive_window.unwrap_or(0).to_be_bytes());
        block.extend_from_slice(&self.cap_packets.unwrap_or(0).to_be_bytes());
        block.extend_from_slice(names.as_bytes());
        block.resize(FALCON_AT, 0);
        if names.len() < NAMES_LEN {
            block[MESSAGES_AT] = self.messages;
        }
        block.extend_from_slice(&self.falcon.to_be_bytes());
        block.extend_from_slice(data);
        block
    }

    /// Parses the block and the application data after it; returns `None` when there is no block, or it is invalid.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (block, rest) = bytes.split_first_chunk::<BLOCK_BYTES>()?;
        if block[..4] != *MAGIC {
            return None;
        }
        let data = rest.get(..usize::from(block[4]))?;
        let names = block[NAMES_AT..FALCON_AT].get(..usize::from(block[5]))?;
        let names = std::str::from_utf8(names).ok()?;
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !names.split(',').all(is_name) {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let wire_mtu = u32::from(u16::from_be_bytes([block[6], block[7]]));
        if !(MTU_MIN..=MTU_MAX).contains(&wire_mtu) || !wire_mtu.is_multiple_of(4) {
            return None;
        }
        let some = |value: u32| (value != 0).then_some(value);
        let terms = Self {
            wire_mtu,
            receive_window: some(word(8)),
            cap_packets: some(word(12)),
            falcon: word(FALCON_AT),
            messages: if names.len() < NAMES_LEN { block[MESSAGES_AT] } else { 0 },
            transports: names.split(',').map(str::to_owned).collect(),
        };
        Some((terms, data))
    }

    /// Returns the names of the transports, separated by commas, as many as fit.
    fn names(&self) -> String {
        let mut names = String::new();
        for name in &self.transports {
            let more = name.len() + usize::from(!names.is_empty());
            if names.len() + more > FALCON_AT - NAMES_AT {
                break;
            }
            if !names.is_empty() {
                names.push(',');
            }
            names.push_str(name);
        }
        names
    }
}

/// Returns the smaller of two limits, of which either may be absent.
pub(crate) fn smaller(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}

const MAGIC: &[u8; 4] = b"ORN\x02";
const NAMES_AT: usize = 16;
const FALCON_AT: usize = 36;
const NAMES_LEN: usize = FALCON_AT - NAMES_AT;
const MESSAGES_AT: usize = FALCON_AT - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let transports = vec!["irn".to_owned(), "roce-gbn".to_owned()];
        let (wire_mtu, receive_window, cap_packets) = (1_424, Some(700), Some(110));
        Terms { wire_mtu, receive_window, cap_packets, falcon: 0x0102_0084, messages: 0, transports }
    }

    #[test]
    fn terms_encode_to_golden_bytes_and_decode_again() {
        let bytes = terms().emit(b"hello");
        let mut expected = b"ORN\x02\x05\x0c\x05\x90\0\0\x02\xbc\0\0\0\x6eirn,roce-gbn".to_vec();
        expected.resize(FALCON_AT, 0);
        expected.extend_from_slice(&[1, 2, 0, 0x84]);
        expected.extend_from_slice(b"hello");
        assert_eq!(bytes, expected);
        // Private data is padded to a fixed length.
        let padded = [&bytes[..], &[0; 11]].concat();
        assert_eq!(Terms::parse(&padded), Some((terms(), &b"hello"[..])));
        let bare = Terms { receive_window: None, cap_packets: None, ..terms() };
        assert_eq!(Terms::parse(&bare.emit(&[])), Some((bare, &[][..])));
    }

    #[test]
    fn invalid_terms_are_rejected() {
        let good = terms().emit(b"hello");
        assert_eq!(Terms::parse(&good[..BLOCK_BYTES]), None, "application data missing");
        assert_eq!(Terms::parse(&[0; 56]), None);
        for (at, value) in [(0, b'X'), (3, 1), (4, 200), (5, 21), (5, 0), (6, 0xff), (7, 0x91), (16, b','), (17, 0xff)]
        {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Terms::parse(&bad), None, "byte {at} = {value}");
        }
    }

    /// The version is in a byte that NICs without messages send as zero and do not read.
    #[test]
    fn the_version_of_messages_is_in_the_padding_of_the_names() {
        let with = Terms { messages: 1, ..terms() };
        let (bytes, before) = (with.emit(&[]), terms().emit(&[]));
        assert_eq!((bytes[MESSAGES_AT], before[MESSAGES_AT]), (1, 0));
        assert_eq!((&bytes[..MESSAGES_AT], &bytes[MESSAGES_AT + 1..]), (&before[..MESSAGES_AT], &before[FALCON_AT..]));
        assert_eq!(Terms::parse(&bytes).map(|(terms, _)| terms), Some(with.clone()));
        let transports = vec!["a-name-of-19-letters".to_owned()];
        assert_eq!(transports[0].len(), NAMES_LEN);
        let full = Terms::parse(&Terms { transports, ..with }.emit(&[])).map(|(terms, _)| terms.messages);
        assert_eq!(full, Some(0), "a letter was taken for a version");
    }

    #[test]
    fn transport_names_that_do_not_fit_are_omitted() {
        let transports = ["a-long-name", "another-one", "x", "short"].map(str::to_owned).to_vec();
        let bytes = Terms { transports, ..terms() }.emit(&[]);
        let (read, _) = Terms::parse(&bytes).expect("a legal block");
        assert_eq!(read.transports, ["a-long-name"]);
    }

    #[test]
    fn the_smaller_limit_applies() {
        assert_eq!([smaller(None, None), smaller(Some(3), None), smaller(Some(3), Some(2))], [None, Some(3), Some(2)]);
    }
}
