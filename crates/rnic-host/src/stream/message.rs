//! The immediate data of a message of a stream.
//!
//! ```text
//!   bits 31..30  kind
//!   bits 29..0   receives for data that the sending end has posted since the beginning of the stream, modulo 2^30
//! ```

/// Kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A segment of the agreed size.
    Whole,
    /// A shorter segment.
    SubSegment,
    /// The end of the stream in this direction; without payload.
    End,
    /// No data: announces receives, or probes whether the peer still exists.
    Credit,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Whole, Self::SubSegment, Self::End, Self::Credit];

    /// Returns whether the message uses one of the receives for data.
    pub(super) fn uses_credit(self) -> bool {
        self != Self::Credit
    }

    /// Returns whether a message of this kind may have `len` bytes when segments have `segment_bytes`.
    pub(super) fn permits(self, len: u32, segment_bytes: u32) -> bool {
        match self {
            Self::Whole => len == segment_bytes,
            Self::SubSegment => 0 < len && len < segment_bytes,
            Self::End | Self::Credit => len == 0,
        }
    }
}

/// Returns the immediate data of a message of this kind from an end that has posted `posted` receives for data.
pub(super) fn immediate(kind: Kind, posted: u64) -> u32 {
    ((kind as u32) << COUNT_BITS) | (posted as u32 & COUNT_MASK)
}

/// Returns the kind of a message with these immediate data, and the number of posted receives, modulo 2^30.
pub(super) fn parse(immediate: u32) -> (Kind, u32) {
    (Kind::ALL[(immediate >> COUNT_BITS) as usize], immediate & COUNT_MASK)
}

/// Returns the number of posted receives that ends with the bits `low_bits`, if it is between `known`, the last number,
/// and `most`.
pub(super) fn extend(low_bits: u32, known: u64, most: u64) -> Option<u64> {
    let further = low_bits.wrapping_sub(known as u32) & COUNT_MASK;
    Some(known + u64::from(further)).filter(|posted| *posted <= most)
}

const COUNT_BITS: u32 = 30;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_counts_round_trip_also_when_the_count_wraps() {
        for kind in Kind::ALL {
            for posted in [0, 72, (1 << 30) - 1, 1 << 30, (5 << 30) + 3] {
                let (parsed, low_bits) = parse(immediate(kind, posted));
                assert_eq!(parsed, kind);
                assert_eq!(extend(low_bits, posted.saturating_sub(72), posted), Some(posted));
            }
        }
    }

    #[test]
    fn receives_that_cannot_have_been_posted_are_refused() {
        let (_, low_bits) = parse(immediate(Kind::Whole, 100));
        assert_eq!(extend(low_bits, 36, 99), None, "more than the window");
        assert_eq!(extend(low_bits, 101, 165), None, "fewer than before");
        assert_eq!(extend(low_bits, 100, 164), Some(100));
    }
}
