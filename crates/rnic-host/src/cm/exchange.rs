//! State of one connection: the connection management messages that it has sent and received.

use rnic_base::{Duration, Time};
use rnic_wire::cm::{Message, ServiceId};
use rnic_wire::{Addresses, Qpn};

use super::ConnectionId;

/// State of a connection in the CM protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// REQ has been sent.
    RequestSent,
    /// REP has been received; the program has not been notified yet.
    ReplyReceived,
    /// REQ has been received; the program has not decided yet.
    RequestReceived,
    /// REP has been sent.
    ReplySent,
    /// The connection is established.
    Established,
    /// DREQ has been sent.
    DisconnectSent,
    /// SIDR_REQ has been sent.
    LookupSent,
    /// SIDR_REQ has been received; the program has not decided yet.
    LookupReceived,
    /// SIDR_REP has been sent, and is kept for retransmission in case it was lost.
    LookupAnswered,
    /// The exchange is finished, and can be removed.
    Gone,
}

/// All legal state changes.
const TRANSITIONS: &[(State, State)] = &[
    (State::RequestSent, State::ReplyReceived),
    (State::RequestSent, State::Gone),
    (State::ReplyReceived, State::Established),
    (State::ReplyReceived, State::Gone),
    (State::RequestReceived, State::ReplySent),
    (State::RequestReceived, State::Gone),
    (State::ReplySent, State::Established),
    (State::ReplySent, State::Gone),
    (State::Established, State::DisconnectSent),
    (State::Established, State::Gone),
    (State::DisconnectSent, State::Gone),
    (State::LookupSent, State::Gone),
    (State::LookupReceived, State::LookupAnswered),
    (State::LookupReceived, State::Gone),
    (State::LookupAnswered, State::Gone),
];

/// State of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) id: ConnectionId,
    /// Addresses, from the local to the remote end.
    pub(crate) addresses: Addresses,
    /// Local communication id of the connection.
    pub(crate) local_comm_id: u32,
    /// Remote communication id; 0 while it is not known.
    pub(crate) remote_comm_id: u32,
    /// Queue pair at the remote end, as reported by it; 0 while it is not known.
    pub(crate) remote_qpn: Qpn,
    /// Transaction id of the current exchange.
    pub(crate) transaction_id: u64,
    pub(crate) state: State,
    /// Service that the remote end requested, if the remote end is the requester.
    pub(crate) service: Option<ServiceId>,
    /// Message that is retransmitted until a response is received.
    pub(crate) message: Option<Box<Message>>,
    /// Time of the next retransmission.
    pub(crate) retransmit_at: Option<Time>,
    /// Interval between that retransmission and the one after it.
    pub(crate) interval: Duration,
    /// Time after which the message is no longer retransmitted and the attempt fails.
    pub(crate) abandon_at: Time,
    /// Total time allowed for a response, reported in the error.
    pub(crate) timeout: Duration,
    /// Time of the first transmission of the message.
    pub(crate) sent_at: Time,
    /// Number of times the message was sent.
    pub(crate) send_count: u32,
}

impl Exchange {
    /// Changes the state.
    ///
    /// # Panics
    /// When the transition is not legal: callers check that a message is permitted in the current state.
    pub(crate) fn set_state(&mut self, state: State) {
        assert!(TRANSITIONS.contains(&(self.state, state)), "no transition from {:?} to {state:?}", self.state);
        self.state = state;
        self.message = None;
        self.retransmit_at = None;
    }

    /// Returns the round-trip time of the message that has just been answered. `None` when it was sent more than once,
    /// because the response cannot be attributed to one of the transmissions (Karn and Partridge, SIGCOMM'87; RFC 6298,
    /// section 3).
    pub(crate) fn round_trip(&self, now: Time) -> Option<Duration> {
        (self.send_count == 1).then(|| now.since(self.sent_at))
    }

    /// Returns whether the remote end has sent a request that has not been fully answered yet. An unverified sender
    /// can create such state here, so its amount is limited.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.state, State::RequestReceived | State::ReplySent | State::LookupReceived | State::LookupAnswered)
    }

    /// Returns whether the connection waits for a decision of the program.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::RequestReceived | State::LookupReceived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the complete transition table with the expected one, so that an added or removed transition fails the
    /// test.
    #[test]
    fn the_transition_table_is_complete() {
        use State::*;
        let connections = [RequestSent, ReplyReceived, RequestReceived, ReplySent, Established, DisconnectSent];
        let lookups = [LookupSent, LookupReceived, LookupAnswered, Gone];
        let all: Vec<State> = connections.into_iter().chain(lookups).collect();
        let table: Vec<String> = all
            .iter()
            .map(|from| {
                let to: Vec<String> =
                    all.iter().filter(|to| TRANSITIONS.contains(&(*from, **to))).map(|to| format!("{to:?}")).collect();
                format!("{from:?} -> {}", to.join(" "))
            })
            .collect();
        assert_eq!(
            table,
            [
                "RequestSent -> ReplyReceived Gone",
                "ReplyReceived -> Established Gone",
                "RequestReceived -> ReplySent Gone",
                "ReplySent -> Established Gone",
                "Established -> DisconnectSent Gone",
                "DisconnectSent -> Gone",
                "LookupSent -> Gone",
                "LookupReceived -> LookupAnswered Gone",
                "LookupAnswered -> Gone",
                "Gone -> ",
            ]
        );
    }
}
