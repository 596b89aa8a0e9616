//! Measurement of a stream of bytes ([`crate::stream`]): there is no control connection, because the order, the answer
//! and the outcome are sent on the stream, before and behind the data.
//!
//! ```text
//!   client   order   data of all operations, end of stream
//!   server     answer  the same data (ping-pong only), outcome, end of stream
//! ```

mod channel;
mod client;
mod data;
mod service;

use serde::{Deserialize, Serialize};

use super::plan::{ImpairmentOrder, Outcome};

pub(super) use client::{check, measure};
pub(super) use service::serve;

/// First message of the client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Order {
    /// Version of these messages.
    version: u32,
    /// Bytes of an operation.
    size_bytes: u32,
    /// True to return all data.
    ping_pong: bool,
    /// True to compare the data that arrive.
    verify: bool,
    /// Impairment of the server's packets.
    impairment: ImpairmentOrder,
}

/// Message of the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// The end is ready for data.
    Ready,
    /// The order is refused.
    Refused {
        /// Reason of the refusal.
        reason: String,
    },
    /// Results at the server, after all data.
    Outcome(Outcome),
}

/// Version of these messages: both ends must have the same.
const VERSION: u32 = 1;

/// Longest message, in bytes.
const MESSAGE_BYTES: usize = 4_096;
