//! Streams that wait until the program accepts the TCP connection that belongs to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rnic_host::stream::StreamId;

/// Streams by the remote address of their TCP connection.
#[derive(Debug, Default)]
pub(crate) struct Accepted(BTreeMap<SocketAddr, Waiting>);

/// A stream that waits to be accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: StreamId,
    /// Number that arrives on the TCP connection.
    pub(crate) token: u64,
}

impl Accepted {
    /// Adds a stream; returns false if there are too many, or there is one for this connection already.
    pub(crate) fn insert(&mut self, from: SocketAddr, waiting: Waiting) -> bool {
        if self.0.len() >= WAITING_MAX || self.0.contains_key(&from) {
            return false;
        }
        self.0.insert(from, waiting);
        true
    }

    /// Removes and returns the stream to which the connection from this address belongs.
    pub(crate) fn take(&mut self, from: SocketAddr) -> Option<Waiting> {
        self.0.remove(&from)
    }

    /// Calls `act` with each stream.
    pub(crate) fn each(&self, act: impl FnMut(StreamId)) {
        self.0.values().map(|waiting| waiting.id).for_each(act);
    }

    /// Removes a stream that has ended.
    pub(crate) fn remove(&mut self, id: StreamId) {
        self.0.retain(|_, waiting| waiting.id != id);
    }
}

/// Maximum number of streams that wait, each with the memory of its windows. Clients beyond them use TCP.
const WAITING_MAX: usize = 128;
