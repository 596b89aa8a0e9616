//! Admission of requests from the network in a shortage of resources (specification Rev 0.9, CR#3; Falcon mechanism
//! F-32).
//!
//! On an ordered connection, a request is at the head of its line when all requests before it have arrived and none
//! of them has to be retransmitted: its delivery allows the delivery of the requests that wait for it. If requests
//! that wait for others hold all resources, and those others are therefore not admitted, there is a deadlock.
//! Therefore the last part of the resources is reserved for requests at the head of their line. On an unordered
//! connection no request waits for another, and all count as being at the head.

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
    /// All requests are admitted while the packets and the buffers held by requests are both below these numbers.
    pub green: Amount,
    /// True if there is a red zone. Otherwise requests are admitted in order of arrival, to demonstrate the failures
    /// that this causes.
    pub head_of_line_only: bool,
}

impl Zones {
    /// Returns the zone in which requests hold `held`.
    #[inline]
    pub const fn zone(self, held: Amount) -> Zone {
        if self.head_of_line_only && (held.packets >= self.green.packets || held.buffers >= self.green.buffers) {
            Zone::Red
        } else {
            Zone::Green
        }
    }
}
