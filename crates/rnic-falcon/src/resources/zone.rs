//! Who is let in when room for requests from the network runs short (specification Rev 0.9, CR#3; F-32).
//!
//! On an ordered connection, a request is at the head of its line when everything before it has arrived, and none of
//! that was told to come again: delivering it frees what waits behind it. When all room is taken by requests that wait
//! for others which cannot get in, nothing moves any more. So the last of the room is theirs alone. On an unordered
//! connection nothing waits, and all are at the head.

use super::Amount;

/// How short room is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// Everybody is let in.
    Green,
    /// Only who is at the head of its line.
    Red,
}

/// Where zones begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zones {
    /// While less than this is held, of packets and of buffers, everybody is let in.
    pub green: Amount,
    /// Whether there is a red zone at all; without, whoever comes first is served, to show what that breaks.
    pub head_of_line_only: bool,
}

impl Zones {
    /// The zone when requests hold `held`.
    #[inline]
    pub const fn zone(self, held: Amount) -> Zone {
        if self.head_of_line_only && (held.packets >= self.green.packets || held.buffers >= self.green.buffers) {
            Zone::Red
        } else {
            Zone::Green
        }
    }
}
