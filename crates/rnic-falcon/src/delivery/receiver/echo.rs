//! Per-flow pending acknowledgements, and the path information that they echo.
//!
//! Source: specification Rev 0.9, sections 9.1.6 and 10.1; Falcon (SIGCOMM'25) section 4.3: coalescing and timestamps
//! are per flow (Falcon mechanisms F-21, F-27). An acknowledgement carries T1 and T2 of the last packet received on its
//! flow, so waiting for more packets does not look like delay (Falcon mechanism F-17).
//!
//! Choices:
//!
//! - Receiving a packet and acknowledging it each count one half: a Push that waits for its upper layer counts only
//!   half towards an acknowledgement. An acknowledgement is due at twice `coalesce_count` (as in the reference
//!   simulator).
//! - A duplicate counts both halves immediately. When it requests an acknowledgement, it is acknowledged immediately
//!   (specification 11 over 9.2.2.4: the sender repeats the request because an acknowledgement was lost).
//! - A packet that fills a gap, that is, a later packet of its flow was already received, is acknowledged immediately,
//!   even if it does not request it. TCP does so (RFC 5681, section 4.2), and RACK relies on it: its reordering window,
//!   a quarter of a round trip, covers the delay of a packet, not the delay of its acknowledgement. Waiting for the ten
//!   packets that share an acknowledgement can take longer than that, even on a fast link, and packets that arrived out
//!   of order but in time would be retransmitted unnecessarily. The specification allows a receiver to acknowledge
//!   sooner than required. Retransmissions request an acknowledgement anyway, so this costs acknowledgements only when
//!   there is reordering without loss. Flows have different delays, so a gap caused by packets of other flows is not
//!   considered (Falcon mechanism F-29). Packets that arrive ahead of a gap are acknowledged with the usual coalescing.
//!   TCP acknowledges those immediately too, but only for senders that count duplicate acknowledgements.
//! - An acknowledgement is sent with the label of the packet that it echoes, so when a flow changes its path, its
//!   acknowledgements do too.

use rnic_base::{Csig, Duration, Time};
use rnic_wire::falcon::{FlowLabel, Timestamp};

use crate::delivery::config::NEVER;
use crate::delivery::exchange::Arrival;
use crate::delivery::per_flow::PerFlow;

/// Properties of the last packet received on a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latest {
    pub(crate) t1: Timestamp,
    pub(crate) t2: Timestamp,
    pub(crate) hops: u8,
    pub(crate) label: FlowLabel,
    /// Number of packets received with a congestion mark so far, modulo 2^14.
    pub(crate) ecn: u16,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    latest: Latest,
    /// CSIG tag of that packet.
    csig: Option<Csig>,
    /// True after a packet was received on the flow.
    has_received: bool,
    pending: u32,
    due: Time,
}

/// Pending acknowledgements of each flow, and the values that they will echo.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    flows: PerFlow<Flow>,
    /// Time at which the earliest acknowledgement is due; may be too early.
    due: Time,
}

impl Echo {
    /// Creates the state of `count` flows on which no packet was received yet.
    pub(crate) fn new(count: u8) -> Self {
        let fresh = Flow { latest: Latest::default(), csig: None, has_received: false, pending: 0, due: NEVER };
        Self { flows: PerFlow::new(usize::from(count), |_| fresh), due: NEVER }
    }

    #[inline]
    fn earliest(&self) -> Time {
        if let Some(only) = self.flows.only() {
            return only.due;
        }
        self.flows.iter().map(|flow| flow.due).min().unwrap_or(NEVER)
    }

    /// Records that `arrival` was received on `flow` at `t2`.
    #[inline]
    pub(crate) fn note(&mut self, flow: u8, arrival: &Arrival<'_>, t2: Timestamp) {
        let Arrival { packet, label, marked, hops, csig } = *arrival;
        let Flow { latest, csig: tag, has_received, .. } = &mut self.flows[flow];
        *has_received = true;
        *tag = csig;
        let ecn = (latest.ecn + u16::from(marked)) & ECN_MASK;
        *latest = Latest { t1: packet.timestamp, t2, hops, label, ecn };
    }

    /// Returns the properties of the last packet received on `flow`.
    #[inline]
    pub(crate) fn latest(&self, flow: u8) -> Latest {
        self.flows[flow].latest
    }

    /// Returns the CSIG tag of the last packet received on `flow`, if it had one.
    #[inline]
    pub(crate) fn csig(&self, flow: u8) -> Option<Csig> {
        self.flows[flow].csig
    }

    /// Adds `half_packets`, halves of a packet to be acknowledged, to those pending on `flow`. The acknowledgement is
    /// due after `count` packets or `timeout`.
    #[inline]
    pub(crate) fn pend(&mut self, now: Time, flow: u8, half_packets: u32, count: u32, timeout: Duration) {
        let entry = &mut self.flows[flow];
        entry.pending += half_packets;
        let due = if entry.pending >= 2 * count { now } else { now + timeout };
        entry.due = entry.due.min(due);
        self.due = self.due.min(entry.due);
    }

    /// Makes an acknowledgement of `flow` due immediately.
    #[inline]
    pub(crate) fn make_due(&mut self, now: Time, flow: u8) {
        let entry = &mut self.flows[flow];
        entry.due = entry.due.min(now);
        self.due = self.due.min(now);
    }

    /// Makes an acknowledgement due immediately on every flow on which a packet was received; returns `true` if there
    /// is such a flow.
    pub(crate) fn make_all_due(&mut self, now: Time) -> bool {
        for flow in self.flows.iter_mut().filter(|flow| flow.has_received) {
            flow.due = flow.due.min(now);
            self.due = self.due.min(now);
        }
        self.flows.iter().any(|flow| flow.has_received)
    }

    /// Returns the time at which the next acknowledgement is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.due
    }

    /// Returns `true` if an acknowledgement is pending on any flow.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.due != NEVER
    }

    /// Selects a flow whose acknowledgement is due, clears its pending acknowledgement, and returns the flow.
    #[inline]
    pub(crate) fn take_due(&mut self, now: Time) -> Option<u8> {
        if now < self.due {
            return None;
        }
        let flow = self.flows.iter().position(|flow| flow.due <= now).map(|flow| flow as u8);
        if let Some(flow) = flow {
            self.settle(flow);
        }
        self.due = self.earliest();
        flow
    }

    /// Clears the pending acknowledgement of `flow`, which is sent now.
    #[inline]
    pub(crate) fn settle(&mut self, flow: u8) {
        let entry = &mut self.flows[flow];
        (entry.pending, entry.due) = (0, NEVER);
    }

    /// Cancels acknowledgements that are not due yet, because a packet in the other direction carries all that they
    /// would report except timestamps.
    #[inline]
    pub(crate) fn cancel_waiting(&mut self, now: Time) {
        for flow in self.flows.iter_mut() {
            if flow.due > now {
                (flow.pending, flow.due) = (0, NEVER);
            }
        }
        self.due = self.earliest();
    }
}

/// Mask of the ECN counter, which has 14 bits.
const ECN_MASK: u16 = 0x3fff;
