//! The receiving direction of a connection: received packets, and their acknowledgement to the peer's sender.
//!
//! It does not access the sending direction: [`Delivery`](super::Delivery) notifies the sender of received responses.
//!
//! Every packet sent carries both bases of the receiver. When the bases describe the receive state completely,
//! acknowledgements that are only waiting to be coalesced need not be sent (specification 9.1.6; conformance probe
//! 4).

mod accept;
mod answer;
mod echo;
mod rx_window;

use rnic_base::{Duration, Time};
use rnic_wire::falcon::{NackCode, Packet, Timestamp, WindowBases};

use crate::delivery::config::{DeliveryConfig, ExtendedRule, NEVER, OutOfWindowRule};
use crate::delivery::exchange::Arrival;
use crate::delivery::windows::Windows;
use crate::interface::Received;

use answer::Nacks;
use echo::Echo;
use rx_window::{RxWindow, WindowPosition};

/// The receiver of one connection.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryReceiver {
    rx: Windows<RxWindow>,
    echo: Echo,
    nacks: Nacks,
    /// [`DeliveryConfig`] describes this field and the other two settings, `coalesce_count` and `extended`.
    coalesce_timeout: Duration,
    coalesce_count: u32,
    extended: ExtendedRule,
}

impl DeliveryReceiver {
    /// Creates a receiver on which no packet was received yet.
    pub(crate) fn new(config: &DeliveryConfig) -> Self {
        let keeps_beyond = config.out_of_window == OutOfWindowRule::Keep;
        let rx = |window| RxWindow::new(config.first_received.of(window), config.width(window), keeps_beyond);
        Self {
            rx: Windows::new(rx),
            echo: Echo::new(config.flows),
            nacks: Nacks::new(),
            coalesce_timeout: config.coalesce_timeout,
            coalesce_count: config.coalesce_count,
            extended: config.extended,
        }
    }

    /// Records the values of `arrival`, received on `flow` at `t2`, that the acknowledgements of the flow echo.
    #[inline]
    pub(crate) fn note(&mut self, flow: u8, t2: Timestamp, arrival: &Arrival<'_>) {
        self.echo.note(flow, arrival, t2);
    }

    /// See [`Delivery::acknowledge`](super::Delivery::acknowledge).
    pub(crate) fn acknowledge(&mut self, now: Time, received: Received) {
        if let Some(arrived) = self.rx[received.window].acknowledge(received.psn) {
            self.pend(now, arrived.flow, 1);
            if arrived.requests_ack {
                self.echo.make_due(now, arrived.flow);
            }
        }
    }

    /// See [`Delivery::refuse`](super::Delivery::refuse).
    pub(crate) fn refuse(&mut self, received: Received, code: NackCode) {
        let rx = &self.rx[received.window];
        let (seq, position) = rx.locate(received.psn);
        if position == WindowPosition::Received {
            self.nacks.push(rx.arrived(seq).flow, received, code);
        }
    }

    /// See [`Delivery::repeat_acknowledgements`](super::Delivery::repeat_acknowledgements).
    pub(crate) fn repeat_acknowledgements(&mut self, now: Time) -> bool {
        self.echo.make_all_due(now)
    }

    /// See [`Delivery::repeat_refusal`](super::Delivery::repeat_refusal).
    pub(crate) fn repeat_refusal(&mut self) -> bool {
        self.nacks.repeat_refusal()
    }

    fn pend(&mut self, now: Time, flow: u8, half_packets: u32) {
        self.echo.pend(now, flow, half_packets, self.coalesce_count, self.coalesce_timeout);
    }

    /// Returns the bases of both windows.
    #[inline]
    pub(crate) fn bases(&self) -> WindowBases {
        WindowBases { data: self.rx.data.base(), request: self.rx.request.base() }
    }

    /// Writes the bases into `packet` of the sender, which is sent now, and cancels the pending acknowledgements that
    /// the packet makes unnecessary.
    #[inline]
    pub(crate) fn join(&mut self, now: Time, packet: &mut Packet) {
        if self.echo.is_waiting() && self.rx.iter().all(RxWindow::is_covered_by_base) {
            self.echo.cancel_waiting(now);
        }
        packet.bases = self.bases();
    }

    /// See [`Delivery::acknowledgement_due`](super::Delivery::acknowledgement_due).
    #[inline]
    pub(crate) fn acknowledgement_due(&self) -> Option<Time> {
        let due = if self.nacks.is_empty() { self.echo.deadline() } else { Time::ZERO };
        (due < NEVER).then_some(due)
    }
}
