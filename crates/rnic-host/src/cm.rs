//! The connection manager's protocol: InfiniBand connection management messages, retransmitted, deduplicated, bounded.
//!
//! Source: InfiniBand Architecture volume 1, chapter 12: sections 12.9.7 (states), 12.10 (communication establishment).
//! Deviations: the *time wait* state is not kept, because queue pair numbers and communication ids are random and are
//! reused only after years; MRA (a request for more time, which Linux sends with each request that it passes to a
//! program) is neither sent nor processed, because requests are retransmitted for a minute anyway; a peer that responds
//! to a message of an unknown connection is notified once for each message.
//!
//! ```text
//!   active                                               passive
//!   RequestSent ----- REQ --------------------------->   RequestReceived     the program decides
//!   ReplyReceived <-- REP ----------------------------   ReplySent           after `accept`
//!   Established ----- RTU (after the program knows) -->  Established
//!   DisconnectSent -- DREQ -------------------------->   (gone)
//!   (gone) <--------- DREP ---------------------------
//!
//!   LookupSent ------ SIDR_REQ ---------------------->   LookupReceived      the program decides
//!   (gone) <--------- SIDR_REP -----------------------   LookupAnswered      kept for a while
//! ```
//!
//! This is a state machine without a socket: messages and time are its inputs, messages and [`CmEvent`]s its outputs.
//! Queue pairs are managed by `nic/connect.rs`. For verbs programs, [`Endpoint`] adds sockets to the state machine, and
//! `rnic-verbs` manages the queue pairs.

mod alike;
mod endpoint;
mod exchange;
mod gsi;
mod lookup;
mod manager;
pub(crate) mod negotiate;
mod suspects;

pub use alike::{falcon_key_hint, falcon_params, falcon_params_text};
pub use endpoint::{Binding, Endpoint, EndpointStats, Inbox, roce_mtu_towards, source_towards};
pub(crate) use exchange::{Exchange, State};
pub(crate) use gsi::gsi_way;
pub use gsi::{GsiNews, GsiPort};
pub(crate) use manager::Manager;
pub use manager::{CmEvent, ServiceKind};

/// Identifier of a connection, or of an attempt at one. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub(crate) u64);

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

#[cfg(test)]
mod tests;
