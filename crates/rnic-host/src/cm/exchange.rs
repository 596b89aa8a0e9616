//! State of one connection as seen by its messages.

use rnic_base::{Duration, Time};
use rnic_wire::cm::{Message, ServiceId};
use rnic_wire::{Addresses, Qpn};

use super::ConnectionId;

/// State of a connection.
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
    /// In use.
    Established,
    /// DREQ has been sent.
    DisconnectSent,
    /// SIDR_REQ has been sent.
    LookupSent,
    /// SIDR_REQ has been received; the program has not decided yet.
    LookupReceived,
    /// SIDR_REP has been sent, and is kept in case it gets lost.
    LookupAnswered,
    /// Finished.
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
    /// Service that the remote end requested, when the remote end is the requester.
    pub(crate) service: Option<ServiceId>,
    /// Message that is retransmitted until it is answered.
    pub(crate) message: Option<Box<Message>>,
    /// Time of the next retransmission.
    pub(crate) resend_at: Option<Time>,
    /// Interval to the retransmission after that.
    pub(crate) interval: Duration,
    /// Time at which the message is abandoned.
    pub(crate) give_up_at: Time,
    /// Total time allowed for a response, reported in the error.
    pub(crate) patience: Duration,
    /// Time at which the message was sent first.
    pub(crate) sent_at: Time,
    /// Number of times the message was sent.
    pub(crate) sendings: u32,
}

impl Exchange {
    /// Changes the state.
    ///
    /// # Panics
    /// When the change is not legal: messages are checked before.
    pub(crate) fn become_(&mut self, state: State) {
        assert!(TRANSITIONS.contains(&(self.state, state)), "no way from {:?} to {state:?}", self.state);
        self.state = state;
        self.message = None;
        self.resend_at = None;
    }

    /// Returns the round-trip time of the message that has just been answered. `None` when it was sent more than once,
    /// because the response cannot be attributed to one of the transmissions (Karn and Partridge, SIGCOMM'87; RFC 6298,
    /// section 3).
    pub(crate) fn round_trip(&self, now: Time) -> Option<Duration> {
        (self.sendings == 1).then(|| now.since(self.sent_at))
    }

    /// Returns whether the remote end has sent a request that is not completely answered yet: state that an unknown
    /// sender can make this end keep.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.state, State::RequestReceived | State::ReplySent | State::LookupReceived | State::LookupAnswered)
    }

    /// Returns whether the program has to decide.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::RequestReceived | State::LookupReceived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves the whole table: a change that appears or vanishes shows here.
    #[test]
    fn the_table_of_transitions() {
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
