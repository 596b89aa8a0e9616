//! Admission of requests from the network in a shortage of resources (specification Rev 0.9, CR#3; F-32).
//!
//! On an ordered connection, a request is at the head of its line when everything before it has arrived and none of
//! that has to be retransmitted: its delivery releases the requests waiting behind it. When all resources are taken by
//! requests that wait for others which are not admitted, there is a deadlock. Therefore the last part of the resources
//! is reserved for requests at the head of their line. On an unordered connection no request waits, and all are at the
//! head.

use super::Amount;

/// Degree of shortage of the resources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// All requests are admitted.
    Green,
    /// Only requests at the head of their line are admitted.
    Red,
}

/// Boundaries of the zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zones {
    /// All requests are admitted while less than this is held, of packets and of buffers.
    pub green: Amount,
    /// True when there is a red zone; otherwise requests are admitted first come, first served, to demonstrate the
    /// failures that this causes.
    pub head_of_line_only: bool,
}

impl Zones {
    /// Returns the zone when requests hold `held`.
    #[inline]
    pub const fn zone(self, held: Amount) -> Zone {
        if self.head_of_line_only && (held.packets >= self.green.packets || held.buffers >= self.green.buffers) {
            Zone::Red
        } else {
            Zone::Green
        }
    }
}
