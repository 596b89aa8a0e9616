//! What goes to the adaptive engine, and what comes back.
//!
//! Source: Falcon (SIGCOMM'25) table 3 (F-22, F-23); specification Rev 0.9, section 10.6.2 (field lists of the event
//! and the result). One event per acknowledgement, NACK and timeout, in a queue of fixed length. When it is full,
//! what an acknowledgement counted is not lost: it goes with the flow's next event (specification 10.6.1:
//! `num_packets_acked` saturates).

use std::collections::VecDeque;

use rnic_base::Duration;
use rnic_policy::Cwnd;
use rnic_wire::falcon::{NackCode, OutOfWindow, Timestamp};

use crate::delivery::ack_request::AckRequestRule;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalKind {
    /// An acknowledgement came.
    Acked {
        /// It had bitmaps.
        extended: bool,
        /// Packets were dropped beyond a window.
        out_of_window: OutOfWindow,
    },
    /// A NACK came.
    Nacked {
        /// Why.
        code: NackCode,
    },
    /// A packet timed out.
    TimedOut {
        /// So often in a row.
        count: u16,
    },
}

/// One event: Falcon's datapath reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlSignal {
    /// The flow that it is about.
    pub flow: u8,
    /// What happened.
    pub kind: SignalKind,
    /// The packet that is echoed left its sender; of no meaning in [`SignalKind::TimedOut`], as the other three.
    pub t1: Timestamp,
    /// It arrived.
    pub t2: Timestamp,
    /// The answer left.
    pub t3: Timestamp,
    /// The answer arrived: now.
    pub t4: Timestamp,
    /// Packets of this flow that were acknowledged since its last event; saturates at 1023 (10 bits).
    pub acked: u16,
    /// Switches on the way.
    pub hops: u8,
    /// How full the receiver is, 0 to 31.
    pub rx_level: u8,
    /// Packets that the receiver has seen marked, modulo 2^14.
    pub ecn: u16,
    /// The connection's windows as they are in force.
    pub fcwnd: Cwnd,
    /// See `fcwnd`.
    pub ncwnd: u32,
}

/// What the adaptive engine wants; `None` leaves things as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlSettings {
    /// Window of the flow.
    pub fcwnd: Option<Cwnd>,
    /// Requests outstanding in each window of the connection, at least 1.
    pub ncwnd: Option<u32>,
    /// Wait between the opening of a window and the next packet.
    pub packet_gap: Option<Duration>,
    /// Timeout of each packet.
    pub rto: Option<Duration>,
    /// RACK's timeout (`rack_rto`) instead of the recovery policy's; `Some(None)` gives it back.
    pub rack_rto: Option<Option<Duration>>,
    /// The wait for a probe instead of the recovery policy's; `Some(None)` gives it back.
    pub probe: Option<Option<Duration>>,
    /// When to ask for acknowledgements.
    pub ack_request: Option<AckRequestRule>,
    /// Another path for the flow: new bits for its label.
    pub label: Option<u32>,
}

/// Events waiting for the adaptive engine.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    queue: VecDeque<ControlSignal>,
    /// Events that found the queue full.
    pub(crate) refused: u64,
}

/// Events of a connection that can wait. Twice the flows would do for an engine that answers each before it takes the
/// next; the rest is for timeouts that come together.
pub const SIGNALS_MAX: usize = 32;

/// The count of acknowledged packets has 10 bits.
pub(crate) const ACKED_MAX: u32 = 1_023;

impl Signals {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(SIGNALS_MAX), refused: 0 }
    }

    /// Whether there is room for one more.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        let room = self.queue.len() < SIGNALS_MAX;
        self.refused += u64::from(!room);
        room
    }

    #[inline]
    pub(crate) fn push(&mut self, signal: ControlSignal) {
        self.queue.push_back(signal);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<ControlSignal> {
        self.queue.pop_front()
    }
}
