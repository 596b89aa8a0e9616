//! What passes between the transaction layer and the packet delivery layer.
//!
//! Source: Falcon (SIGCOMM'25) section 4 and figure 2; specification Rev 0.9 sections 8 and 9.
//!
//! Nothing is called behind anybody's back: whoever drives a connection calls the delivery layer, which calls the
//! transaction layer through one trait while it works. The delivery layer never looks into a transaction; it keeps the
//! handle that it was given and hands it back.

/// One of the two windows of a direction, each with a sequence space of its own (F-4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Window {
    /// Pull Requests.
    Request,
    /// Push Data, Pull Data, and the Resync that takes the place of either.
    Data,
}

/// How the transaction layer finds what an outgoing packet belongs to. The delivery layer only keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Context(pub u32);
