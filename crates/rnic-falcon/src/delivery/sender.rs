//! The sending direction of a connection: outstanding packets, selection of the next packet to send, and processing
//! of acknowledgements.
//!
//! It does not access the receiving direction: [`Delivery`](super::Delivery) has the receiver write its bases into
//! packets to be sent, and notifies the sender of received responses.

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
use crate::delivery::signal::ACK_RATE_INITIAL;
use crate::delivery::windows::Windows;
use crate::interface::Gates;

use gates::Limits;
use tx_window::TxWindow;
use waits::ConnectionTimes;

/// The sender of one connection.
#[derive(Clone, Debug)]
pub(crate) struct DeliverySender {
    config: SenderSettings,
    tx: Windows<TxWindow>,
    limits: Limits,
    ack_requester: AckRequester,
    recovery: PerFlow<Windows<PolicyState>>,
    waits: ConnectionTimes,
    /// Earliest departure time of a packet that is ready but held back by pacing; the timing wheel is set to it.
    paced_until: Time,
    /// Set when the last packet sent was a retransmission, so that the next one is a first transmission.
    new_packet_next: bool,
    /// Set when lack of space at the peer's host was the only reason for which a packet was not sent.
    blocked_on_credit: bool,
    /// The last ACK-request rate set by the adaptive engine, which reports return to it.
    ack_rate: AckRate,
    terminated: bool,
}

impl DeliverySender {
    /// Creates a sender that has sent no packet yet.
    pub(crate) fn new(config: &DeliveryConfig, policies: Arc<Policies>) -> Self {
        let (recovery, flows) = (&policies.recovery, usize::from(config.flows));
        let tx = |window| TxWindow::new(window, config.first_sent.of(window), config.tx_window, flows);
        let fresh = (recovery.policy.start)(&recovery.params);
        Self {
            tx: Windows::new(tx),
            limits: Limits::new(config.ncwnd),
            ack_requester: AckRequester::default(),
            recovery: PerFlow::new(flows, |_| Windows { request: fresh, data: fresh }),
            waits: ConnectionTimes::new(config),
            paced_until: NEVER,
            new_packet_next: false,
            blocked_on_credit: false,
            ack_rate: ACK_RATE_INITIAL,
            terminated: false,
            config: SenderSettings::of(config, policies),
        }
    }

    /// See [`Delivery::set_attempts_max`](super::Delivery::set_attempts_max).
    pub(crate) fn set_attempts_max(&mut self, attempts_max: u16) {
        self.config.attempts_max = attempts_max.max(1);
    }

    /// Sets the ACK-request rate that reports carry.
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

    /// Returns the maximum age of a packet processed at `now`: how long ago it may have arrived.
    #[inline]
    pub(crate) fn backlog(&self, now: Time) -> Duration {
        self.waits.backlog(now)
    }

    /// See [`Delivery::span`](super::Delivery::span).
    #[inline]
    pub(crate) fn span(&self, window: Window) -> u64 {
        self.tx[window].span()
    }

    /// See [`Delivery::in_flight`](super::Delivery::in_flight).
    #[inline]
    pub(crate) fn in_flight(&self) -> u64 {
        self.tx.iter().map(TxWindow::in_flight).sum()
    }

    /// See [`Delivery::set_credit`](super::Delivery::set_credit).
    #[inline]
    pub(crate) fn set_credit(&mut self, packets: u64) {
        self.limits.peer_space = packets;
    }

    /// See [`Delivery::blocked_on_credit`](super::Delivery::blocked_on_credit).
    #[inline]
    pub(crate) fn blocked_on_credit(&self) -> bool {
        self.blocked_on_credit
    }

    /// Returns `true` if all packets sent are acknowledged.
    #[inline]
    pub(crate) fn all_acknowledged(&self) -> bool {
        self.tx.iter().all(TxWindow::is_idle)
    }

    /// Returns `true` if a packet is to be retransmitted.
    #[inline]
    pub(crate) fn has_to_repeat(&self) -> bool {
        self.tx.iter().any(|tx| tx.first_marked().is_some())
    }

    /// Returns the gates of first transmissions, without considering pacing.
    #[inline]
    pub(crate) fn open_gates(&self, flows: &Flows) -> Gates {
        self.limits.first(&self.tx, flows.fcwnd())
    }

    /// Terminates the connection: no packet is sent or accepted any more, in either direction.
    pub(crate) fn terminate(&mut self) {
        self.terminated = true;
    }

    /// Returns `true` if the connection was terminated or has failed.
    #[inline]
    pub(crate) fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// See [`crate::connection::Connection::prefetch_indirect`].
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        self.tx.iter().for_each(TxWindow::prefetch_indirect);
    }
}
