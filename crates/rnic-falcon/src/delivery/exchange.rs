//! Packets passed between the driver and the connection.

use rnic_base::Csig;
use rnic_wire::falcon::{FlowLabel, Packet};

use crate::interface::Context;

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The decoded packet; its payload is processed by the transaction layer.
    pub packet: &'a Packet,
    /// Flow label from the IPv6 header.
    pub label: FlowLabel,
    /// True when the packet carries a congestion mark.
    pub marked: bool,
    /// Number of switches on its path.
    pub hops: u8,
    /// Congestion signal written by the most congested of these switches, if the switches support it.
    pub csig: Option<Csig>,
}

/// Outcome of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reception {
    /// Accepted by the transaction layer.
    Kept,
    /// Duplicate of a packet received before.
    Duplicate,
    /// Dropped because it is beyond the window; the sender is notified.
    OutOfWindow,
    /// Dropped for lack of resources; the sender is notified.
    NoResources,
    /// An acknowledgement or NACK, processed.
    Processed,
    /// An acknowledgement or NACK with a base older than the current one: dropped.
    Stale,
    /// Invalid (an error of the peer), or the connection is dead: dropped without notification.
    Dropped,
}

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// The packet. Its timestamp is the current time; a driver that transmits it later may overwrite the timestamp.
    pub packet: Packet,
    /// Flow label for the IPv6 header: selects the path.
    pub label: FlowLabel,
    /// Context that the packet belongs to; `None` for acknowledgements.
    pub context: Option<Context>,
    /// True for a retransmission.
    pub is_retransmission: bool,
}

/// Description of a packet to be sent, for packets that are written to a buffer of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DepartureInfo {
    /// See [`Departure::label`].
    pub label: FlowLabel,
    /// See [`Departure::context`].
    pub context: Option<Context>,
    /// See [`Departure::is_retransmission`].
    pub is_retransmission: bool,
}
