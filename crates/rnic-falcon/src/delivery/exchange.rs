//! Packets as they come in from, and go out to, whoever drives the connection.

use rnic_base::Csig;
use rnic_wire::falcon::{FlowLabel, Packet};

use crate::seam::Context;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// As it was decoded; its payload is the transaction layer's business.
    pub packet: &'a Packet,
    /// From the IPv6 header.
    pub label: FlowLabel,
    /// It met congestion.
    pub marked: bool,
    /// Switches on its way.
    pub hops: u8,
    /// What the most congested of them wrote into it, where they write.
    pub csig: Option<Csig>,
}

/// What became of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reception {
    /// The transaction layer has it.
    Kept,
    /// It was here before.
    Duplicate,
    /// Dropped beyond the window; the sender hears of it.
    OutOfWindow,
    /// There was no room; the sender hears of it.
    NoResources,
    /// An acknowledgement or NACK, taken in.
    Answer,
    /// An acknowledgement or NACK with a base that is behind: dropped.
    Stale,
    /// It makes no sense (the peer's mistake), or the connection is dead: dropped in silence.
    Dropped,
}

/// A packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// As it leaves. Its timestamp is that of now; whoever puts it on the wire later may write another.
    pub packet: Packet,
    /// For the IPv6 header: which path.
    pub label: FlowLabel,
    /// What it belongs to; `None` for acknowledgements.
    pub context: Option<Context>,
    /// It was sent before.
    pub again: bool,
}

/// A packet that leaves, without the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// See [`Departure::label`].
    pub label: FlowLabel,
    /// See [`Departure::context`].
    pub context: Option<Context>,
    /// See [`Departure::again`].
    pub again: bool,
}
