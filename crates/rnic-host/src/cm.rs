//! The connection manager's protocol: InfiniBand connection management messages, retransmitted, deduplicated, bounded.
//!
//! Source: InfiniBand Architecture volume 1, chapter 12: sections 12.9.7 (states), 12.10 (communication establishment).
//! Deviations: the *time wait* state is not kept, because queue pair numbers and communication ids are random and come
//! back after years; MRA (a request for patience, which Linux sends with each request that it hands to a program) is
//! neither sent nor heeded, for requests are repeated for a minute anyway; a peer that answers a message of an unknown
//! connection is told so once for each message.
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
//! This is a state machine without a socket: messages and time come in, messages and [`CmEvent`]s come out. Queue
//! pairs are `nic/connect.rs`'s business. For verbs programs, [`Endpoint`] gives the machine sockets of its own, and
//! queue pairs are `rnic-verbs`' business.

mod alike;
mod endpoint;
mod exchange;
mod gsi;
mod lookup;
mod manager;
pub(crate) mod negotiate;
mod suspects;

pub use alike::{falcon_key_hint, falcon_text, falcon_word};
pub use endpoint::{Binding, Endpoint, EndpointStats, Inbox, roce_mtu_towards, source_towards};
pub(crate) use exchange::{Exchange, State};
pub(crate) use gsi::gsi_way;
pub use gsi::{GsiNews, GsiPort};
pub(crate) use manager::Manager;
pub use manager::{CmEvent, ServiceKind};

/// A connection, or an attempt at one. Never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub(crate) u64);

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

#[cfg(test)]
mod tests;
