//! The connection manager's protocol: InfiniBand connection management messages, with retransmission, detection of
//! duplicates, and a limited number of connections.
//!
//! Source: InfiniBand Architecture volume 1, chapter 12: sections 12.9.7 (states), 12.10 (communication
//! establishment). Deviations: the *time wait* state is not kept, because queue pair numbers and communication ids
//! are random and are reused only after years; MRA (a request for more time, which Linux sends with each request that
//! it passes to a program) is neither sent nor processed, because requests are retransmitted for a minute anyway; a
//! peer that sends a message for an unknown connection is notified once for each message.
//!
//! ```text
//!   active                                               passive
//!   RequestSent ----- REQ --------------------------->   RequestReceived     the program decides
//!   ReplyReceived <-- REP ----------------------------   ReplySent           after `accept`
//!   Established ----- RTU (program was notified) ----->  Established
//!   DisconnectSent -- DREQ -------------------------->   (gone)
//!   (gone) <--------- DREP ---------------------------
//!
//!   LookupSent ------ SIDR_REQ ---------------------->   LookupReceived      the program decides
//!   (gone) <--------- SIDR_REP -----------------------   LookupAnswered      for some time
//! ```
//!
//! This is a state machine without a socket: messages and time are its inputs, and messages and [`CmEvent`]s are its
//! outputs. Queue pairs are managed by `nic/connect.rs`. For verbs programs, [`Endpoint`] adds sockets to the state
//! machine, and `rnic-verbs` manages the queue pairs.

mod endpoint;
mod exchange;
mod falcon_parameters;
mod gsi;
mod lookup;
mod manager;
pub(crate) mod negotiate;
mod suspects;

pub use endpoint::{Binding, Endpoint, EndpointStats, Inbox, roce_mtu_towards, source_address_for};
pub(crate) use exchange::{Exchange, State};
pub use falcon_parameters::{falcon_key_hint, falcon_params, falcon_params_text, is_flow_count};
pub(crate) use gsi::gsi_addresses;
pub use gsi::{GsiItem, GsiPort};
pub(crate) use manager::Manager;
pub use manager::{CmEvent, ServiceKind};

/// Identifier of a connection or of an attempt to connect. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub(crate) u64);

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

#[cfg(test)]
mod tests;
