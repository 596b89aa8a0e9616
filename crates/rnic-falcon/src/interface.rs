//! Interface between the transaction layer and the packet delivery layer.
//!
//! Source: Falcon (SIGCOMM'25) section 4 and figure 2; specification Rev 0.9 sections 8, 9 and 11.
//!
//! There are no hidden callbacks. The driver of a connection calls the delivery layer, which queries and notifies the
//! transaction layer through [`Upper`] during the call; between such calls the transaction layer may call
//! `Delivery::acknowledge` and `Delivery::refuse`. The delivery layer never inspects a transaction: it stores the
//! handle ([`Context`]) that it received and returns it.
//!
//! ```text
//!   sending                                             receiving
//!   next(open gates)   -> sends a packet, with a PSN     offer(packet)      -> accepted, rejected, no resources
//!   again(context)     -> retransmits the packet         duplicate(packet)  -> received before, not acknowledged yet
//!   acked, nacked, exhausted(context)                   Delivery::acknowledge, Delivery::refuse (later)
//! ```
//!
//! Decisions:
//!
//! - A packet gets its PSN when it is sent, not before: a Push blocked by `ncwnd` must not precede Pull Data in the
//!   same window (Falcon mechanism F-19). Therefore the transaction layer's queues are queried with the set of open
//!   gates.
//! - Packet contents are not stored twice: for each retransmission the delivery layer queries the transaction layer
//!   again. This is also how a Resync replaces a packet: from some time on the transaction layer returns the Resync,
//!   with the same RSN; the PSN is filled in by the delivery layer.
//! - A packet is *received* when the transaction layer keeps it, *acknowledged* when the sender may release it. They
//!   coincide for all but Push Data, which the upper layer must have acknowledged.

use rnic_base::{Psn32, Time};
use rnic_wire::falcon::{Body, NackCode, Packet, UlpProtocol};

pub use rnic_wire::falcon::Window;

/// Handle by which the transaction layer finds the transaction of an outgoing packet. The delivery layer only stores
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Context(pub u32);

/// A packet to be sent, as passed by the transaction layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Handle of the packet, returned with every notification about it.
    pub context: Context,
    /// Protocol of the upper layer.
    pub protocol: UlpProtocol,
    /// Payload length in bytes, without the upper layer's headers.
    pub payload_len: u32,
    /// Pull Request, Pull Data, Push Data or Resync. The delivery layer replaces its PSN.
    pub body: Body,
}

impl Outgoing {
    /// Writes its contents into `packet`.
    #[inline]
    pub fn put(&self, packet: &mut Packet) {
        (packet.protocol, packet.payload_len, packet.body) = (self.protocol, self.payload_len, self.body);
    }
}

/// Writes the sequence number `number` into `body`.
#[inline]
pub(crate) fn number(body: &mut Body, number: Psn32) {
    match body {
        Body::PullRequest { psn, .. }
        | Body::PullData { psn, .. }
        | Body::PushData { psn, .. }
        | Body::Resync { psn, .. } => *psn = number,
        Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => {
            panic!("the upper layer sends requests, data and Resyncs, not {body:?}")
        }
    }
}

/// Types of packets for which the gates of first transmissions are open (specification 9.1.2). An open gate admits one
/// packet; then the gates are computed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gates {
    /// Gate of Pull Requests: `fcwnd` and `ncwnd`.
    pub pull_request: bool,
    /// Gate of Push Data: `fcwnd` and `ncwnd`.
    pub push_data: bool,
    /// Gate of Pull Data: `fcwnd` alone (Falcon mechanism F-19).
    pub pull_data: bool,
}

impl Gates {
    /// Returns whether any gate is open.
    #[inline]
    pub const fn any(self) -> bool {
        self.pull_request || self.push_data || self.pull_data
    }

    /// Returns whether the gate for `body` is open. Acknowledgements have no gate, and a Resync only replaces another
    /// packet.
    #[inline]
    pub const fn admits(self, body: &Body) -> bool {
        match body {
            Body::PullRequest { .. } => self.pull_request,
            Body::PushData { .. } => self.push_data,
            Body::PullData { .. } => self.pull_data,
            Body::Resync { .. } | Body::Ack(_) | Body::ExtendedAck(..) | Body::Nack(_) => false,
        }
    }
}

/// Outcome of a packet that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet is kept. `acknowledged` indicates whether the sender may release it immediately; if not,
    /// `Delivery::acknowledge` follows.
    Accepted {
        /// Always true for Pull Requests, Pull Data and Resyncs; true for Push Data when the upper layer has
        /// acknowledged already.
        acknowledged: bool,
    },
    /// The packet is kept, and a NACK is sent immediately: the upper layer was not ready, or completes it in error. The
    /// packet counts as received; a retransmission ([`Upper::duplicate`]) or a Resync follows.
    Refused(NackCode),
    /// No resources: the packet is discarded, with a resource NACK (or, beyond the window, with the out of window
    /// notification).
    NoResources,
    /// The packet is invalid, or the connection is not alive: dropped without notification.
    Dropped,
}

/// Action for a packet that has reached its maximum number of transmissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exhausted {
    /// The count is reset: from now on [`Upper::retransmission`] returns a Resync for this context (specification 11).
    Resync,
    /// Recovery is impossible: the connection is dead.
    Terminated,
}

/// Interface of the transaction layer to the delivery layer.
pub trait Upper {
    /// Returns the next packet to be sent for the first time, of a type that one of the `open` [`Gates`] permits;
    /// `None` if there is none. In RSN order within requests (Pull Requests and Push Data together) and within Pull
    /// Data, on ordered connections.
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing>;

    /// Returns the packet of `context`, to be retransmitted.
    fn retransmission(&mut self, now: Time, context: Context) -> Outgoing;

    /// Returns whether [`Upper::next`] might have a packet if gates were open.
    fn has_next(&self) -> bool {
        true
    }

    /// Same as [`Upper::next`], with the packet written directly to `packet`.
    #[inline]
    fn write_next(&mut self, now: Time, open: Gates, packet: &mut Packet) -> Option<Context> {
        let outgoing = self.next(now, open)?;
        outgoing.put(packet);
        Some(outgoing.context)
    }

    /// Notifies that the packet of `context` is acknowledged, and that the delivery layer has released it. Called
    /// exactly once for every packet of a live connection.
    fn acked(&mut self, now: Time, context: Context);

    /// Notifies that the packet of `context` was refused: by [`NackCode::Xlr`], `CompleteInError`, `NonRecoverable` or
    /// `InvalidCid`. From now on [`Upper::retransmission`] returns a Resync, which is sent immediately. May be called
    /// more than once (the NACK is repeated when it crosses a retransmission). Refusals because the receiver is not
    /// ready or has no resources are handled by the delivery layer, which retransmits.
    fn nacked(&mut self, now: Time, context: Context, code: NackCode);

    /// Notifies that the peer's upper layer was not ready for the packet of `context`, which will be retransmitted.
    fn not_ready(&mut self, now: Time, context: Context) {
        let _ = (now, context);
    }

    /// Handles a packet of `context` that has reached its maximum number of transmissions without a response.
    fn exhausted(&mut self, now: Time, context: Context) -> Exhausted;

    /// Offers a received packet that was not received before; or a Resync for a packet that was received and is not
    /// acknowledged.
    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict;

    /// Handles a duplicate of a packet that was received and is not acknowledged. Returns the NACK to send (again), if
    /// any: "a duplicate of what was refused gets the same NACK again".
    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode>;

    /// Returns the occupancy of the receive buffers, 0 to 31: carried in acknowledgements.
    fn rx_level(&self) -> u8;
}

/// Identification of a received packet in `Delivery::acknowledge` and `Delivery::refuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Window of the packet.
    pub window: Window,
    /// Sequence number in that window.
    pub psn: Psn32,
}
