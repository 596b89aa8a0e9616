//! Who is owed an acknowledgement, per flow, and what it will say about the path.
//!
//! Source: specification Rev 0.9, sections 9.1.6 and 10.1; Falcon (SIGCOMM'25) section 4.3: coalescing and
//! timestamps are those of a flow (F-21, F-27). An acknowledgement has T1 and T2 of the packet of its flow that came
//! last, so waiting for more packets does not look like delay (F-17).
//!
//! Choices:
//!
//! - Receiving counts one, and acknowledging counts one: a Push that waits for its upper layer is on the way to an
//!   acknowledgement, but not yet at it. An acknowledgement is due at twice `coalesce_count` (as the reference
//!   simulator has it).
//! - A duplicate counts both at once. When it asks, it is answered at once (specification 11 over 9.2.2.4: an answer
//!   that was lost is what made the sender ask again).
//! - A packet that fills a gap of its flow, since a later one of that flow is here, is acknowledged at once, whether
//!   it asks or not. TCP does so (RFC 5681, section 4.2), and RACK counts on it: its reordering window, a quarter of a
//!   round trip, says how late a packet may be, not how late the news of it. Ten packets that share an acknowledgement
//!   take longer than that on a fast link, and what came late, but in time, would be sent again in vain. The
//!   specification lets a receiver acknowledge sooner than it must. What was lost and is sent again asks anyway, so
//!   this costs acknowledgements where there is reordering alone. Flows have different delays, so a gap that packets
//!   of other flows make says nothing (F-29). Early packets wait as others do: TCP acknowledges those at once too,
//!   for a sender that counts duplicates.
//! - An acknowledgement travels with the label of the packet that it echoes, so a flow that is moved takes its
//!   acknowledgements along.

use rnic_base::{Csig, Duration, Time};
use rnic_wire::falcon::{FlowLabel, Timestamp};

use crate::delivery::config::NEVER;
use crate::delivery::exchange::Arrival;
use crate::delivery::per_flow::PerFlow;

/// What is known of the packet of a flow that came last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latest {
    pub(crate) t1: Timestamp,
    pub(crate) t2: Timestamp,
    pub(crate) hops: u8,
    pub(crate) label: FlowLabel,
    /// Packets with a congestion mark so far, modulo 2^14.
    pub(crate) ecn: u16,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    latest: Latest,
    /// The tag of that packet.
    csig: Option<Csig>,
    /// A packet has come.
    is_heard: bool,
    owed: u32,
    due: Time,
}

/// What each flow is owed, and what its acknowledgement will echo.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    flows: PerFlow<Flow>,
    /// The earliest of what is due, or earlier.
    due: Time,
}

impl Echo {
    /// Nothing has come on any of `count` flows.
    pub(crate) fn new(count: u8) -> Self {
        let fresh = Flow { latest: Latest::default(), csig: None, is_heard: false, owed: 0, due: NEVER };
        Self { flows: PerFlow::new(usize::from(count), |_| fresh), due: NEVER }
    }

    #[inline]
    fn earliest(&self) -> Time {
        if let Some(only) = self.flows.only() {
            return only.due;
        }
        self.flows.iter().map(|flow| flow.due).min().unwrap_or(NEVER)
    }

    /// `arrival` came on `flow` at `t2`.
    #[inline]
    pub(crate) fn note(&mut self, flow: u8, arrival: &Arrival<'_>, t2: Timestamp) {
        let Arrival { packet, label, marked, hops, csig } = *arrival;
        let Flow { latest, csig: tag, is_heard, .. } = &mut self.flows[flow];
        *is_heard = true;
        *tag = csig;
        let ecn = (latest.ecn + u16::from(marked)) & ECN_MASK;
        *latest = Latest { t1: packet.timestamp, t2, hops, label, ecn };
    }

    /// The packet of `flow` that came last.
    #[inline]
    pub(crate) fn latest(&self, flow: u8) -> Latest {
        self.flows[flow].latest
    }

    /// The tag of that packet, if it had one.
    #[inline]
    pub(crate) fn csig(&self, flow: u8) -> Option<Csig> {
        self.flows[flow].csig
    }

    /// `halves` of a packet's acknowledgement are owed to `flow`: due after `count` packets or `timeout`.
    #[inline]
    pub(crate) fn owe(&mut self, now: Time, flow: u8, halves: u32, count: u32, timeout: Duration) {
        let entry = &mut self.flows[flow];
        entry.owed += halves;
        let due = if entry.owed >= 2 * count { now } else { now + timeout };
        entry.due = entry.due.min(due);
        self.due = self.due.min(entry.due);
    }

    /// An acknowledgement is owed to `flow` at once.
    #[inline]
    pub(crate) fn hurry(&mut self, now: Time, flow: u8) {
        let entry = &mut self.flows[flow];
        entry.due = entry.due.min(now);
        self.due = self.due.min(now);
    }

    /// An acknowledgement is owed at once to every flow on which a packet has come; whether there is any.
    pub(crate) fn hurry_all(&mut self, now: Time) -> bool {
        for flow in self.flows.iter_mut().filter(|flow| flow.is_heard) {
            flow.due = flow.due.min(now);
            self.due = self.due.min(now);
        }
        self.flows.iter().any(|flow| flow.is_heard)
    }

    /// When the next acknowledgement is due.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        self.due
    }

    /// Whether an acknowledgement is owed to anybody.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.due != NEVER
    }

    /// Takes a flow whose acknowledgement is due.
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

    /// An acknowledgement of `flow` leaves.
    #[inline]
    pub(crate) fn settle(&mut self, flow: u8) {
        let entry = &mut self.flows[flow];
        (entry.owed, entry.due) = (0, NEVER);
    }

    /// A packet in the other direction carries everything that is owed but timestamps: what only waits need not leave.
    #[inline]
    pub(crate) fn cancel_waiting(&mut self, now: Time) {
        for flow in self.flows.iter_mut() {
            if flow.due > now {
                (flow.owed, flow.due) = (0, NEVER);
            }
        }
        self.due = self.earliest();
    }
}

/// The ECN counter has 14 bits.
const ECN_MASK: u16 = 0x3fff;
