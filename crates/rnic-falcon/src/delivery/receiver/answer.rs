//! Creation of acknowledgements and NACKs.
//!
//! Source: specification Rev 0.9, sections 7.7, 7.8 and 9.1.6.
//!
//! Choices: [`ExtendedRule`] determines whether an acknowledgement has bitmaps; an acknowledgement that reports
//! packets dropped beyond a window clears the flag, so the sender is notified again only after another drop. Like an
//! acknowledgement, a NACK echoes the last packet received on the flow, here the flow of the refused packet; if the
//! NACK is sent immediately, that is the refused packet itself.

use rnic_base::{LazyQueue, Time};
use rnic_wire::falcon::{
    Acknowledgement, Bitmaps, Body, Nack, NackCode, OutOfWindow, Packet, Timestamp, UlpProtocol, reflected_metadata,
};

use crate::delivery::config::ExtendedRule;
use crate::delivery::exchange::DepartureInfo;
use crate::delivery::shared::Shared;
use crate::delivery::windows::Windows;
use crate::interface::{Received, Upper};

use super::DeliveryReceiver;

/// NACKs waiting to be sent. NACKs beyond the limit are dropped, because a retransmission of the packet causes
/// another NACK.
#[derive(Clone, Debug)]
pub(crate) struct Nacks {
    waiting: LazyQueue<PendingNack>,
    /// The first final NACK, which was queued because the upper layer has failed. It is repeated when the connection
    /// is terminated.
    refusal: Option<Box<PendingNack>>,
}

type PendingNack = (u8, Received, NackCode);

/// Maximum number of waiting NACKs of a connection: enough for a burst received on a full link before the first NACK is
/// sent.
const NACKS_MAX: usize = 16;

impl Nacks {
    pub(crate) fn new() -> Self {
        Self { waiting: LazyQueue::new(), refusal: None }
    }

    pub(crate) fn push(&mut self, flow: u8, refused: Received, code: NackCode) {
        let nack = (flow, refused, code);
        if self.waiting.len() < NACKS_MAX {
            self.waiting.push_back(nack);
        }
        if matches!(code, NackCode::NonRecoverable { .. }) {
            self.refusal.get_or_insert_with(|| Box::new(nack));
        }
    }

    /// Queues the final NACK as the next one to send, even if it was sent before; returns `true` if there is one.
    pub(crate) fn repeat_refusal(&mut self) -> bool {
        if let Some(refusal) = &self.refusal {
            let waiting = self.waiting.get_or_allocate(1);
            waiting.truncate(NACKS_MAX - 1);
            waiting.push_front(**refusal);
        }
        self.refusal.is_some()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl DeliveryReceiver {
    /// Returns `true` if a NACK or an acknowledgement may be due.
    #[inline]
    pub(crate) fn has_acknowledgement(&self, now: Time) -> bool {
        self.echo.deadline() <= now || !self.nacks.is_empty()
    }

    /// Writes a NACK or an acknowledgement to `packet`, if one is due.
    #[inline(never)]
    pub(crate) fn write_acknowledgement(
        &mut self,
        shared: &mut Shared,
        now: Time,
        packet: &mut Packet,
        upper: &impl Upper,
    ) -> Option<DepartureInfo> {
        let (flow, body) = match self.nacks.waiting.pop_front() {
            Some((flow, refused, code)) => (flow, self.nack(shared, flow, refused, code, upper)),
            None => {
                let flow = self.echo.take_due(now)?;
                (flow, self.acknowledgement(shared, flow, upper))
            }
        };
        *packet = Packet {
            cid: shared.cid,
            function: 0,
            protocol: UlpProtocol::None,
            ack_request: false,
            bases: self.bases(),
            timestamp: Timestamp::at(now),
            payload_len: 0,
            body,
        };
        Some(DepartureInfo { label: self.echo.latest(flow).label, context: None, is_retransmission: false })
    }

    fn nack(
        &self,
        shared: &mut Shared,
        flow: u8,
        Received { window, psn }: Received,
        code: NackCode,
        upper: &impl Upper,
    ) -> Body {
        let latest = self.echo.latest(flow);
        let (t1, t2, hops, ecn) = (latest.t1, latest.t2, latest.hops, latest.ecn);
        shared.counters.nacks_sent += 1;
        let metadata = reflected_metadata(self.echo.csig(flow));
        Body::Nack(Nack { t1, t2, hops, rx_level: upper.rx_level(), ecn, metadata, psn, window, code })
    }

    fn acknowledgement(&mut self, shared: &mut Shared, flow: u8, upper: &impl Upper) -> Body {
        let latest = self.echo.latest(flow);
        let Windows { request, data } = &mut self.rx;
        let out_of_window = OutOfWindow { data: data.out_of_window, request: request.out_of_window };
        let acknowledgement = Acknowledgement {
            t1: latest.t1,
            t2: latest.t2,
            hops: latest.hops,
            rx_level: upper.rx_level(),
            ecn: latest.ecn,
            metadata: reflected_metadata(self.echo.csig(flow)),
            out_of_window,
        };
        let bitmaps = Bitmaps {
            data_acked: data.acknowledged_bits(),
            data_received: data.received_bits(),
            request_received: request.received_bits() as u64,
        };
        let extended = out_of_window.any() || needs_bitmaps(self.extended, &bitmaps);
        shared.counters.acks_sent += 1;
        if extended {
            (data.out_of_window, request.out_of_window) = (false, false);
            shared.counters.extended_acks_sent += 1;
            Body::ExtendedAck(acknowledgement, bitmaps)
        } else {
            Body::Ack(acknowledgement)
        }
    }
}

fn needs_bitmaps(rule: ExtendedRule, bitmaps: &Bitmaps) -> bool {
    let received = bitmaps.data_received;
    let data = match rule {
        ExtendedRule::WhenReceived => received != 0,
        // Counts the contiguous ones from bit 0 on: adding one carries through all of them.
        ExtendedRule::WhenGap => bitmaps.data_acked != 0 || received & received.wrapping_add(1) != 0,
    };
    data || bitmaps.request_received != 0
}
