//! The service of a queue pair, its states, and the changes that are legal.
//!
//! ```text
//!   Reset --> Init --> ReadyToReceive --> ReadyToSend <--> SendQueueDrained
//!     ^          \           |               |   ^              |
//!     |           `----------+------.--------+---+--------------'
//!     |                             v        v   |
//!     `---- (from any) ---------- Error   SendQueueError
//! ```
//!
//! InfiniBand Architecture volume 1, section 10.3.1. The send-queue-error state exists only for unreliable services: a
//! request that fails there hurts nobody but the requests behind it, and receiving goes on. A queue pair goes into it
//! by itself.

/// What a queue pair promises: `ibv_qp_type`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Service {
    /// Messages arrive once, whole and in order, or the queue pair fails.
    #[default]
    ReliableConnection,
    /// Messages arrive whole and in order, or not at all. Sends and Writes only.
    UnreliableConnection,
    /// Messages of one packet, each to a peer of its own, arrive or do not.
    UnreliableDatagram,
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QpState {
    /// Fresh: knows nothing, does nothing.
    Reset,
    /// Receives may be posted.
    Init,
    /// Knows its peer: packets are received.
    ReadyToReceive,
    /// Fully operational.
    ReadyToSend,
    /// No new requests leave; those under way complete.
    SendQueueDrained,
    /// A send request of an unreliable service has failed: those behind it are flushed, and receiving goes on.
    SendQueueError,
    /// Everything posted is flushed.
    Error,
}

/// Every legal change beside those to `Reset` and `Error`, which are always legal.
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
    /// Whether the change to `to` is legal.
    pub fn may_become(self, to: Self) -> bool {
        matches!(to, Self::Reset | Self::Error) || TRANSITIONS.contains(&(self, to))
    }

    /// Whether the peer's requests are served.
    #[inline]
    pub(crate) fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrained | Self::SendQueueError)
    }

    /// Whether send requests may be posted. Those that come too late are flushed.
    #[inline]
    pub(crate) fn takes_sends(self) -> bool {
        !matches!(self, Self::Reset | Self::Init | Self::ReadyToReceive)
    }

    /// Whether own requests may be under way.
    #[inline]
    pub(crate) fn sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves the whole table: a change that appears or vanishes shows here.
    #[test]
    fn the_table_of_transitions() {
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
