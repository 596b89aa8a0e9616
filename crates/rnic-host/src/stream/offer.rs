//! The description of a stream in the private data of connection management messages.

use rnic_stream::SEGMENT_BYTES_MAX;

use super::limits::SEGMENT_BYTES_LEAST;

/// Properties of a stream, as requested by the end that establishes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Largest segment size that this end can use, in bytes. The number of receives of both ends follows from it.
    pub segment_bytes: u32,
    /// Local TCP port of a connection that belongs to the stream; 0 for none.
    pub port: u16,
    /// Number that the requesting end also sends on that connection.
    pub token: u64,
}

impl Offer {
    /// Returns the private data of a request.
    pub(super) fn emit(self) -> Vec<u8> {
        [&head(self.segment_bytes)[..], &self.port.to_be_bytes(), &[0; 2], &self.token.to_be_bytes()].concat()
    }

    /// Parses the private data of a request; returns `None` if the data does not describe a stream.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (segment_bytes, rest) = parse_head(data)?;
        let (port, rest) = rest.split_first_chunk()?;
        let (reserved, rest) = rest.split_first_chunk::<2>()?;
        let (token, rest) = rest.split_first_chunk()?;
        let is_exact = *reserved == [0; 2] && rest.is_empty();
        is_exact.then_some(Self { segment_bytes, port: u16::from_be_bytes(*port), token: u64::from_be_bytes(*token) })
    }
}

/// Returns the private data of a reply: the largest segment size that the accepting end can use.
pub(super) fn emit_answer(segment_bytes: u32) -> Vec<u8> {
    head(segment_bytes).to_vec()
}

/// Parses the private data of a reply.
pub(super) fn parse_answer(data: &[u8]) -> Option<u32> {
    parse_head(data).filter(|(_, rest)| rest.is_empty()).map(|(segment_bytes, _)| segment_bytes)
}

fn head(segment_bytes: u32) -> [u8; 4] {
    // Lengths of segments have 14 bits.
    let [high, low] = (segment_bytes as u16).to_be_bytes();
    [TAG, VERSION, high, low]
}

fn parse_head(data: &[u8]) -> Option<(u32, &[u8])> {
    let ([tag, version, high, low], rest) = data.split_first_chunk()?;
    let segment_bytes = u32::from(u16::from_be_bytes([*high, *low]));
    let is_valid = (*tag, *version) == (TAG, VERSION);
    (is_valid && (SEGMENT_BYTES_LEAST..=SEGMENT_BYTES_MAX).contains(&segment_bytes)).then_some((segment_bytes, rest))
}

const TAG: u8 = b'S';
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_and_answers_round_trip_and_all_else_is_refused() {
        let offer = Offer { segment_bytes: 1_024, port: 5_201, token: u64::MAX - 7 };
        let data = offer.emit();
        assert_eq!((data.len(), Offer::parse(&data)), (16, Some(offer)));
        assert_eq!(parse_answer(&emit_answer(4_096)), Some(4_096));
        let mut longer = data.clone();
        longer.push(0);
        assert_eq!(Offer::parse(&longer), None, "private data that are too long");
        for len in 0..data.len() {
            assert_eq!(Offer::parse(&data[..len]), None, "{len} bytes");
        }
        for (at, value) in [(0, b'D'), (1, 2), (2, 0x40), (2, 0), (6, 1)] {
            let mut wrong = data.clone();
            wrong[at] = value;
            assert_eq!(Offer::parse(&wrong), None, "byte {at} = {value}");
        }
        assert_eq!(parse_answer(&emit_answer(127)), None);
        assert_eq!(parse_answer(&data), None);
    }
}
