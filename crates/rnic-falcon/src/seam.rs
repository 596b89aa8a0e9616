//! What passes between the transaction layer and the packet delivery layer.
//!
//! Source: Falcon (SIGCOMM'25) section 4 and figure 2; specification Rev 0.9 sections 8, 9 and 11.
//!
//! Nothing is called behind anybody's back. Whoever drives a connection calls the delivery layer, which asks and tells
//! the transaction layer through [`Upper`] while it works; between such calls the transaction layer may call
//! `Delivery::acknowledge` and `Delivery::refuse`. The delivery layer never looks into a transaction: it keeps the
//! handle ([`Context`]) that it was given and hands it back.
//!
//! ```text
//!   sending                                             receiving
//!   next(open gates)   -> a packet leaves, gets a PSN   offer(packet)      -> kept, refused, no room
//!   again(context)     -> the same, sent again          duplicate(packet)  -> here already, not yet acknowledged
//!   acked, nacked, exhausted(context)                   Delivery::acknowledge, Delivery::refuse (later)
//! ```
//!
//! Decisions:
//!
//! - A packet gets its PSN when it leaves, not before: a Push that `ncwnd` holds back must not stand in front of
//!   Pull Data in the same window (F-19). So the transaction layer's queues are asked, and told which gates are open.
//! - What a packet says is not kept twice: for each retransmission the delivery layer asks again. That is also how a
//!   Resync takes a packet's place: from some moment on the answer is the Resync, with the same RSN; the PSN is
//!   filled in by the delivery layer.
//! - A packet is *received* when the transaction layer keeps it, *acknowledged* when the sender may forget it. They
//!   coincide for all but Push Data, which the upper layer must have acknowledged.

use rnic_base::{Psn32, Time};
use rnic_wire::falcon::{Body, NackCode, Packet, UlpProtocol};

pub use rnic_wire::falcon::Window;

/// How the transaction layer finds what an outgoing packet belongs to. The delivery layer only keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Context(pub u32);

/// A packet on its way out, as the transaction layer hands it over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Comes back with everything that is said about this packet.
    pub context: Context,
    /// The upper layer.
    pub protocol: UlpProtocol,
    /// Payload bytes behind the upper layer's headers.
    pub payload_len: u32,
    /// Pull Request, Pull Data, Push Data or Resync. The delivery layer replaces its PSN.
    pub body: Body,
}

impl Outgoing {
    /// Writes what it says into `packet`.
    #[inline]
    pub fn put(&self, packet: &mut Packet) {
        (packet.protocol, packet.payload_len, packet.body) = (self.protocol, self.payload_len, self.body);
    }
}

/// For which packets the gates of first transmissions are open (specification 9.1.2). A gate that is open lets one
/// packet out; then they are computed anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gates {
    /// Pull Requests: `fcwnd` and `ncwnd`.
    pub pull_request: bool,
    /// Push Data: `fcwnd` and `ncwnd`.
    pub push_data: bool,
    /// Pull Data: `fcwnd` alone (F-19).
    pub pull_data: bool,
}

impl Gates {
    /// Whether one of them is open.
    #[inline]
    pub const fn any(self) -> bool {
        self.pull_request || self.push_data || self.pull_data
    }

    /// Whether the one for `body` is open. Acknowledgements have none, and a Resync only takes another packet's place.
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

/// What becomes of a packet that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is kept. `acknowledged` says whether the sender may forget it at once; if not, `Delivery::acknowledge`
    /// follows.
    Accepted {
        /// Always for Pull Requests, Pull Data and Resyncs; for Push Data when the upper layer has acknowledged
        /// already.
        acknowledged: bool,
    },
    /// Kept, and answered with a NACK at once: the upper layer was not ready, or completes it in error. The packet
    /// counts as received; what follows is a retransmission ([`Upper::duplicate`]) or a Resync.
    Refused(NackCode),
    /// No room: it is forgotten, with a resource NACK (or, beyond the window, with the out of window notification).
    NoResources,
    /// It makes no sense, or the connection is not alive: dropped in silence.
    Dropped,
}

/// What to do about a packet that was sent as often as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exhausted {
    /// Count anew: from now on [`Upper::again`] answers with a Resync for this context (specification 11).
    Resync,
    /// Nothing helps: the connection is dead.
    Dead,
}

/// The transaction layer, as the delivery layer sees it.
pub trait Upper {
    /// The next packet that leaves for the first time, through one of the `open` gates; `None` when there is none. In
    /// RSN order within requests (Pull Requests and Push Data together) and within Pull Data, on ordered connections.
    fn next(&mut self, now: Time, open: Gates) -> Option<Outgoing>;

    /// The packet of `context`, to be sent again.
    fn again(&mut self, now: Time, context: Context) -> Outgoing;

    /// Whether [`Upper::next`] might have a packet if gates were open.
    fn has_next(&self) -> bool {
        true
    }

    /// [`Upper::next`], written where it leaves from.
    #[inline]
    fn put_next(&mut self, now: Time, open: Gates, packet: &mut Packet) -> Option<Context> {
        let outgoing = self.next(now, open)?;
        outgoing.put(packet);
        Some(outgoing.context)
    }

    /// The packet of `context` is acknowledged: it is forgotten below. Exactly once for every packet of a live
    /// connection.
    fn acked(&mut self, now: Time, context: Context);

    /// The packet of `context` was refused: by [`NackCode::Xlr`], `CompleteInError`, `NonRecoverable` or
    /// `InvalidCid`. From now on [`Upper::again`] answers with a Resync; it leaves at once. May come more than once
    /// (the NACK repeats when a retransmission crosses it). What is not ready or has no room is the delivery layer's
    /// to repeat.
    fn nacked(&mut self, now: Time, context: Context, code: NackCode);

    /// The peer's upper layer was not ready for the packet of `context`, which will be sent again.
    fn not_ready(&mut self, now: Time, context: Context) {
        let _ = (now, context);
    }

    /// The packet of `context` was sent as often as it may, without an answer.
    fn exhausted(&mut self, now: Time, context: Context) -> Exhausted;

    /// A packet has arrived that is not here yet; or a Resync for one that is here and not acknowledged.
    fn offer(&mut self, now: Time, packet: &Packet) -> Verdict;

    /// A packet has arrived that is here, and not acknowledged. The answer is the NACK to say (again), if any: "a
    /// duplicate of what was refused gets the same NACK again".
    fn duplicate(&mut self, now: Time, packet: &Packet) -> Option<NackCode>;

    /// How full the receive buffers are, 0 to 31: travels in acknowledgements.
    fn rx_level(&self) -> u8;
}

/// How `Delivery::acknowledge` and `Delivery::refuse` name a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Its window.
    pub window: Window,
    /// Its number there.
    pub psn: Psn32,
}
