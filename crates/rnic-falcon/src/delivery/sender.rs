//! The sending direction of a connection: outstanding packets, selection of the next packet to send, and processing of
//! acknowledgements.
//!
//! It does not access the receiving direction: [`Delivery`](super::Delivery) has the receiver write its bases into
//! packets to be sent, and informs the sender of received responses.

mod acks;
mod gates;
mod measured;
mod recover;
mod report;
mod timers;
mod transmit;
mod tx_window;
mod waits;

use std::sync::Arc;

use rnic_base::{Absence, Duration, Time};
use rnic_policy::PolicyState;
use rnic_policy::control::report::AckRate;
use rnic_wire::falcon::Window;

use crate::delivery::ack_request::AckRequester;
use crate::delivery::config::{DeliveryConfig, NEVER, Policies, SenderSettings};
use crate::delivery::flows::Flows;
use crate::delivery::per_flow::PerFlow;
use crate::delivery::signal::ACK_RATE_FIRST;
use crate::delivery::windows::Windows;
use crate::seam::Gates;

use gates::Limits;
use tx_window::TxWindow;
use waits::Waits;

/// The sender of one connection.
#[derive(Clone, Debug)]
pub(crate) struct DeliverySender {
    config: SenderSettings,
    tx: Windows<TxWindow>,
    limits: Limits,
    requester: AckRequester,
    recovery: PerFlow<Windows<PolicyState>>,
    waits: Waits,
    /// Time for which the timing wheel is to be set: a packet is ready and held back by pacing until then.
    paced_until: Time,
    /// Set when the last packet sent was a retransmission, so that the next one is a first transmission.
    new_packet_next: bool,
    /// Set when a packet was not sent only for lack of space at the peer's host.
    blocked_on_credit: bool,
    /// The last acknowledgement rate set by the adaptive engine, returned to it in reports.
    ack_rate: AckRate,
    dead: bool,
}

impl DeliverySender {
    /// Creates a sender that has sent nothing.
    pub(crate) fn new(config: &DeliveryConfig, policies: Arc<Policies>) -> Self {
        let (recovery, flows) = (&policies.recovery, usize::from(config.flows));
        let tx = |window| TxWindow::new(window, config.first_sent.of(window), config.tx_window, flows);
        let fresh = (recovery.policy.start)(&recovery.params);
        Self {
            tx: Windows::new(tx),
            limits: Limits::new(config.ncwnd),
            requester: AckRequester::default(),
            recovery: PerFlow::new(flows, |_| Windows { request: fresh, data: fresh }),
            waits: Waits::new(config),
            paced_until: NEVER,
            new_packet_next: false,
            blocked_on_credit: false,
            ack_rate: ACK_RATE_FIRST,
            dead: false,
            config: SenderSettings::of(config, policies),
        }
    }

    /// See [`Delivery::set_attempts_max`](super::Delivery::set_attempts_max).
    pub(crate) fn set_attempts_max(&mut self, attempts_max: u16) {
        self.config.attempts_max = attempts_max.max(1);
    }

    /// Sets the acknowledgement rate that reports carry.
    pub(crate) fn set_ack_rate(&mut self, ack_rate: AckRate) {
        self.ack_rate = ack_rate;
    }

    /// Returns the maximum number of requests outstanding in each window.
    #[inline]
    pub(crate) fn ncwnd(&self) -> u32 {
        self.limits.ncwnd
    }

    /// Returns the current retransmission timeout.
    #[inline]
    pub(crate) const fn rto(&self) -> Duration {
        self.waits.rto()
    }

    /// Returns the last round-trip time; `None` before the first.
    #[inline]
    pub(crate) fn last_round_trip(&self) -> Option<Duration> {
        self.waits.last_round_trip()
    }

    /// Records the last period in which the connection was not driven.
    #[inline]
    pub(crate) fn note_absence(&mut self, absence: Absence) {
        self.waits.note_absence(absence);
    }

    /// Returns how long before `now` a packet that is processed at `now` may have arrived.
    #[inline]
    pub(crate) fn backlog(&self, now: Time) -> Duration {
        self.waits.backlog(now)
    }

    /// See [`Delivery::span`](super::Delivery::span).
    #[inline]
    pub(crate) fn span(&self, window: Window) -> u64 {
        self.tx[window].span()
    }

    /// See [`Delivery::under_way`](super::Delivery::under_way).
    #[inline]
    pub(crate) fn under_way(&self) -> u64 {
        self.tx.iter().map(TxWindow::under_way).sum()
    }

    /// See [`Delivery::set_credit`](super::Delivery::set_credit).
    #[inline]
    pub(crate) fn set_credit(&mut self, packets: u64) {
        self.limits.room = packets;
    }

    /// See [`Delivery::blocked_on_credit`](super::Delivery::blocked_on_credit).
    #[inline]
    pub(crate) fn blocked_on_credit(&self) -> bool {
        self.blocked_on_credit
    }

    /// Returns whether all packets sent are acknowledged.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.tx.iter().all(TxWindow::is_idle)
    }

    /// Returns whether a packet is to be retransmitted.
    #[inline]
    pub(crate) fn has_to_repeat(&self) -> bool {
        self.tx.iter().any(|tx| tx.first_marked().is_some())
    }

    /// Returns the gates of first transmissions, pacing aside.
    #[inline]
    pub(crate) fn open_gates(&self, flows: &Flows) -> Gates {
        self.limits.first(&self.tx, flows.fcwnd())
    }

    /// Terminates the connection: no packet is sent or accepted any more, in either direction.
    pub(crate) fn die(&mut self) {
        self.dead = true;
    }

    /// Returns whether the connection was terminated or given up.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// See [`crate::connection::Connection::prefetch_indirect`].
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        self.tx.iter().for_each(TxWindow::prefetch_indirect);
    }
}
