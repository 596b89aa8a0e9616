//! One connection as its messages see it.

use rnic_base::{Duration, Time};
use rnic_wire::cm::{Message, ServiceId};
use rnic_wire::{Addresses, Qpn};

use super::ConnectionId;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// REQ is out.
    RequestSent,
    /// REP is here; the program has not been told yet.
    ReplyReceived,
    /// REQ is here; the program has not decided yet.
    RequestReceived,
    /// REP is out.
    ReplySent,
    /// In use.
    Established,
    /// DREQ is out.
    DisconnectSent,
    /// SIDR_REQ is out.
    LookupSent,
    /// SIDR_REQ is here; the program has not decided yet.
    LookupReceived,
    /// SIDR_REP is out, and kept in case that it gets lost.
    LookupAnswered,
    /// Over.
    Gone,
}

/// Every legal change.
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

/// What is known about a connection.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) id: ConnectionId,
    /// From us to the other side.
    pub(crate) addresses: Addresses,
    /// Our name for the connection.
    pub(crate) local_comm_id: u32,
    /// The other side's name; 0 while it is not known.
    pub(crate) remote_comm_id: u32,
    /// The other side's queue pair, as it said; 0 while it is not known.
    pub(crate) remote_qpn: Qpn,
    /// Of the exchange that is going on.
    pub(crate) transaction_id: u64,
    pub(crate) state: State,
    /// What we were asked for, when the other side asked.
    pub(crate) service: Option<ServiceId>,
    /// What is sent again until it is answered.
    pub(crate) message: Option<Box<Message>>,
    /// When.
    pub(crate) resend_at: Option<Time>,
    /// After how long then.
    pub(crate) interval: Duration,
    /// When it is given up.
    pub(crate) give_up_at: Time,
    /// How long that was, for the error.
    pub(crate) patience: Duration,
    /// When the message was sent for the first time.
    pub(crate) sent_at: Time,
    /// How often it was sent.
    pub(crate) sendings: u32,
}

impl Exchange {
    /// Changes state.
    ///
    /// # Panics
    /// When there is no such change: messages are checked before.
    pub(crate) fn become_(&mut self, state: State) {
        assert!(TRANSITIONS.contains(&(self.state, state)), "no way from {:?} to {state:?}", self.state);
        self.state = state;
        self.message = None;
        self.resend_at = None;
    }

    /// The round trip of the message that has been answered now. None when it was sent more than once: nobody knows
    /// which of them the answer is for (Karn and Partridge, SIGCOMM'87; RFC 6298, section 3).
    pub(crate) fn round_trip(&self, now: Time) -> Option<Duration> {
        (self.sendings == 1).then(|| now.since(self.sent_at))
    }

    /// Whether the other side has asked us and we have not finished answering: what a stranger can make us remember.
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.state, State::RequestReceived | State::ReplySent | State::LookupReceived | State::LookupAnswered)
    }

    /// Whether the program has to decide.
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
