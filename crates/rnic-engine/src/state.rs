//! The service of a queue pair, its states, and the legal transitions.
//!
//! ```text
//!   Reset --> Init --> ReadyToReceive --> ReadyToSend <--> SendQueueDrained
//!     ^          \           |               |   ^              |
//!     |           `----------+------.--------+---+--------------'
//!     |                             v        v   |
//!     `---- (from any) ---------- Error   SendQueueError
//! ```
//!
//! InfiniBand Architecture volume 1, section 10.3.1. The send-queue-error state exists only for unreliable services:
//! a failed request then affects only later requests, and receiving continues. A queue pair enters it on a failure,
//! not on request of the program.

/// Service guarantee of a queue pair: `ibv_qp_type`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Service {
    /// Messages arrive once, complete and in order, or the queue pair fails.
    #[default]
    ReliableConnection,
    /// Messages arrive complete and in order, or not at all. Sends and Writes only.
    UnreliableConnection,
    /// Messages of one packet, each addressed to its own peer, without guarantee of delivery.
    UnreliableDatagram,
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QpState {
    /// Initial state: nothing is configured, no operation is permitted.
    Reset,
    /// Receives may be posted.
    Init,
    /// The peer is configured: packets are received.
    ReadyToReceive,
    /// Fully operational: requests are sent and received.
    ReadyToSend,
    /// No new requests are sent; requests in flight complete.
    SendQueueDrained,
    /// A send request of an unreliable service has failed: later ones are flushed, and receiving continues.
    SendQueueError,
    /// All posted work requests are flushed.
    Error,
}

/// Permitted transitions other than those to `Reset` and `Error`, which are always permitted.
const TRANSITIONS: &[(QpState, QpState)] = &[
    (QpState::Reset, QpState::Init),
    (QpState::Init, QpState::Init),
    (QpState::Init, QpState::ReadyToReceive),
    (QpState::ReadyToReceive, QpState::ReadyToSend),
    (QpState::ReadyToSend, QpState::ReadyToSend),
    (QpState::ReadyToSend, QpState::SendQueueDrained),
    (QpState::SendQueueDrained, QpState::ReadyToSend),
    (QpState::SendQueueDrained, QpState::SendQueueDrained),
    (QpState::SendQueueError, QpState::ReadyToSend),
];

impl QpState {
    /// Returns whether the transition to `to` is permitted.
    pub fn may_become(self, to: Self) -> bool {
        matches!(to, Self::Reset | Self::Error) || TRANSITIONS.contains(&(self, to))
    }

    /// Returns whether the peer's requests are served.
    #[inline]
    pub(crate) fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrained | Self::SendQueueError)
    }

    /// Returns whether send requests may be posted. Requests posted in an error state are flushed.
    #[inline]
    pub(crate) fn accepts_sends(self) -> bool {
        !matches!(self, Self::Reset | Self::Init | Self::ReadyToReceive)
    }

    /// Returns whether local requests may be in flight.
    #[inline]
    pub(crate) fn sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the complete transition table: an added or removed transition fails this test.
    #[test]
    fn the_transitions_are_exactly_those_of_the_table() {
        use QpState::*;
        let all = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];
        let table: Vec<String> = all
            .iter()
            .map(|from| {
                let targets: Vec<_> =
                    all.iter().filter(|to| from.may_become(**to)).map(|to| format!("{to:?}")).collect();
                format!("{from:?} -> {}", targets.join(" "))
            })
            .collect();
        assert_eq!(
            table,
            [
                "Reset -> Reset Init Error",
                "Init -> Reset Init ReadyToReceive Error",
                "ReadyToReceive -> Reset ReadyToSend Error",
                "ReadyToSend -> Reset ReadyToSend SendQueueDrained Error",
                "SendQueueDrained -> Reset ReadyToSend SendQueueDrained Error",
                "SendQueueError -> Reset ReadyToSend Error",
                "Error -> Reset Error",
            ]
        );
    }
}
