//! The packet delivery layer of one connection: delivers every packet exactly once to the transaction layer, in any
//! order.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 to 4.3 and 5.2; specification Rev 0.9, section 9.
//!
//! State is divided by direction, and the methods of each direction are in its own files. The two directions do not
//! access each other: [`Delivery`] passes a packet to the direction that it concerns, and transfers the data that
//! both need: the receiver's bases, which are written into the packets of the sender, and responses, which the
//! receiver accepts and which acknowledge the sender's requests. `shared` is passed to both.
//!
//! ```text
//!   sender (DeliverySender)                          receiver (DeliveryReceiver)
//!     transmit    selects the next packet              accept      accepts packets, and positions them in the windows
//!     gates       fcwnd, ncwnd, pacing                 rx_window   received and acknowledged bits
//!     tx_window   contexts of packets in flight        echo        acknowledgements that are due
//!     acks        received acknowledgements and NACKs  answer      acknowledgements and NACKs to send
//!     recover     losses (policies)
//!     waits       timeout, probe, round trip         shared
//!     measured    timeouts from measurements           flows       choice of the path
//!     timers      packets that time out                signal      reports that wait for the adaptive engine
//!     report      reports and settings                 counters    counts of events
//!
//!   exchange      packets from and to the driver     pace          the timing wheel that connections of a NIC share
//! ```
//!
//! Per-flow state is stored in a `PerFlow`, and bitmaps and marks are allocated on first use, because most
//! connections have one flow and receive packets in order, and there may be very many connections.
//!
//! The driver passes received packets to [`Delivery::receive`]; calls [`Delivery::transmit`] until it returns no
//! packet; calls [`Delivery::expire`] at [`Delivery::deadline`]; passes reports ([`Delivery::signal`]) to an adaptive
//! engine and its responses to [`Delivery::apply_response`]. Time is an argument. No memory is allocated once the
//! windows have reached their size.

mod ack_request;
mod config;
mod counters;
mod exchange;
mod flows;
mod pace;
pub(crate) mod per_flow;
mod receiver;
mod sender;
mod shared;
mod signal;
mod windows;

pub use ack_request::AckRequestRule;
pub use config::{DeliveryConfig, ExtendedRule, OutOfWindowRule, Policies, TRACKED_MAX, TX_WINDOW_MAX};
pub use counters::DeliveryCounters;
pub use exchange::{Arrival, Departure, DepartureInfo, Reception};
pub use flows::{FlowCounters, FlowView};
pub use pace::{SLOT_LEN, Wheel};
pub use signal::{ControlSettings, SIGNALS_MAX};

use std::sync::Arc;

use rnic_base::{Absence, Duration, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{FlowActions, FlowReport};
use rnic_policy::paths::FLOWS_MAX;
use rnic_wire::falcon::{Body, FlowLabel, NackCode, Packet, Timestamp, Window, WindowBases};

use crate::interface::{Gates, Received, Upper};

use receiver::DeliveryReceiver;
use sender::DeliverySender;
use shared::Shared;

/// The packet delivery layer of one connection: its sender, its receiver, and the state shared by both.
#[derive(Clone, Debug)]
pub struct Delivery {
    sender: DeliverySender,
    receiver: DeliveryReceiver,
    shared: Shared,
}

impl Delivery {
    /// Creates the delivery layer of a connection on which no packet was sent yet.
    ///
    /// # Panics
    /// If `config` has an invalid width or count.
    pub fn new(config: DeliveryConfig) -> Self {
        let (recovery, paths) = (config.recovery, config.paths);
        Self::with_policies(&config, Arc::new(Policies { recovery, paths }))
    }

    /// Same as [`Delivery::new`], with `policies`, which are shared with other connections, instead of those of
    /// `config`.
    ///
    /// # Panics
    /// See [`Delivery::new`].
    pub fn with_policies(config: &DeliveryConfig, policies: Arc<Policies>) -> Self {
        config.check();
        Self {
            sender: DeliverySender::new(config, policies),
            receiver: DeliveryReceiver::new(config),
            shared: Shared::new(config),
        }
    }

    /// Processes a packet that arrives now.
    #[inline]
    pub fn receive(&mut self, now: Time, arrival: &Arrival<'_>, upper: &mut impl Upper) -> Reception {
        let Self { sender, receiver, shared } = self;
        if sender.is_terminated() {
            return Reception::Dropped;
        }
        let packet = arrival.packet;
        let flow = shared.flows.of_label(arrival.label);
        match &packet.body {
            Body::Ack(ack) => sender.on_ack_packet(shared, now, flow, packet, (ack, None), upper),
            Body::ExtendedAck(ack, bitmaps) => {
                sender.on_ack_packet(shared, now, flow, packet, (ack, Some(bitmaps)), upper)
            }
            Body::Nack(nack) => sender.on_nack_packet(shared, now, flow, packet, nack, upper),
            Body::PullRequest { .. } | Body::PullData { .. } | Body::PushData { .. } | Body::Resync { .. } => {
                sender.apply_bases(shared, now, &packet.bases, upper);
                receiver.note(flow, Timestamp::at(now - sender.backlog(now)), arrival);
                let (reception, answered_rsn) = receiver.receive_packet(shared, now, flow, packet, upper);
                if let Some(rsn) = answered_rsn {
                    sender.acknowledge_request(shared, now, rsn, upper);
                }
                reception
            }
        }
    }

    /// Returns the next packet that may be sent now; `None` if there is none.
    #[inline]
    pub fn transmit(&mut self, now: Time, upper: &mut impl Upper) -> Option<Departure> {
        let mut packet = Packet::BLANK;
        let DepartureInfo { label, context, is_retransmission } = self.transmit_into(now, &mut packet, upper)?;
        Some(Departure { packet, label, context, is_retransmission })
    }

    /// Same as [`Delivery::transmit`], with the packet written to `packet`. If no packet is sent, `packet` may have
    /// been modified.
    #[inline]
    pub fn transmit_into(&mut self, now: Time, packet: &mut Packet, upper: &mut impl Upper) -> Option<DepartureInfo> {
        let Self { sender, receiver, shared } = self;
        if sender.is_terminated() {
            return None;
        }
        if receiver.has_acknowledgement(now)
            && let Some(acknowledgement) = receiver.write_acknowledgement(shared, now, packet, upper)
        {
            return Some(acknowledgement);
        }
        let departure = sender.transmit(shared, now, packet, upper)?;
        receiver.join(now, packet);
        Some(departure)
    }

    /// Returns `true` if an acknowledgement or NACK is due, or a packet is to be retransmitted.
    #[inline]
    pub(crate) fn has_to_repeat(&self, now: Time) -> bool {
        self.receiver.has_acknowledgement(now) || self.sender.has_to_repeat()
    }

    /// Returns which packet types the windows currently allow to be sent for the first time; pacing is not considered.
    #[inline]
    pub(crate) fn open_gates(&self) -> Gates {
        self.sender.open_gates(&self.shared.flows)
    }

    /// Returns the time at which [`Delivery::expire`] or [`Delivery::transmit`] must be called next, if no other
    /// event occurs before. It is never later than necessary, but may be earlier.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        match (self.timeout(), self.departure()) {
            (Some(timeout), Some(departure)) => Some(timeout.min(departure)),
            (timeout, departure) => timeout.or(departure),
        }
    }

    /// Returns the time at which a packet that is ready but held back by pacing may be sent: for a timing wheel.
    #[inline]
    pub fn departure(&self) -> Option<Time> {
        self.sender.departure()
    }

    /// Same as [`Delivery::deadline`], but does not consider [`Delivery::departure`].
    #[inline]
    pub fn timeout(&self) -> Option<Time> {
        match (self.acknowledgement_due(), self.expiry()) {
            (Some(acknowledgement), Some(expiry)) => Some(acknowledgement.min(expiry)),
            (acknowledgement, expiry) => acknowledgement.or(expiry),
        }
    }

    /// Returns the time at which an acknowledgement or a NACK is due; [`Delivery::transmit`] sends it.
    #[inline]
    pub fn acknowledgement_due(&self) -> Option<Time> {
        if self.is_terminated() { None } else { self.receiver.acknowledgement_due() }
    }

    /// Returns the time at which [`Delivery::expire`] must be called even if packets are sent earlier.
    #[inline]
    pub fn expiry(&self) -> Option<Time> {
        self.sender.expiry(&self.shared.flows)
    }

    /// Performs the actions that are due. [`Delivery::transmit`] sends the resulting packets.
    pub fn expire(&mut self, now: Time, upper: &mut impl Upper) {
        self.sender.expire(&mut self.shared, now, upper);
    }

    /// Returns `true` if there is a report for the adaptive engine.
    #[inline]
    pub(crate) fn has_signal(&self) -> bool {
        !self.shared.signals.is_empty()
    }

    /// Returns the next report for the adaptive engine.
    #[inline]
    pub fn signal(&mut self) -> Option<FlowReport> {
        self.shared.signals.pop()
    }

    /// Applies the actions of the adaptive engine to `flow` and to the connection.
    ///
    /// # Panics
    /// If the connection has no such flow.
    pub fn apply_response(&mut self, flow: u8, actions: &FlowActions) {
        self.apply(flow, &ControlSettings::of(actions));
        self.sender.set_ack_rate(actions.ack_rate);
        if actions.repath {
            let Shared { flows, counters, .. } = &mut self.shared;
            counters.moves += 1;
            flows.repath(flow, counters.moves);
        }
    }

    /// Applies individual settings to `flow` and to the connection.
    ///
    /// # Panics
    /// If the connection has no such flow.
    pub fn apply(&mut self, flow: u8, settings: &ControlSettings) {
        self.sender.apply(&mut self.shared.flows, flow, settings);
    }

    /// Returns the windows of `flow` and of the connection, in the format used in reports.
    #[inline]
    pub(crate) fn windows(&self, flow: u8) -> (Cwnd, u16) {
        self.sender.windows(&self.shared.flows, flow)
    }

    /// Returns the current retransmission timeout.
    pub(crate) const fn rto(&self) -> Duration {
        self.sender.rto()
    }

    /// Records a period in which the connection was not driven.
    #[inline]
    pub(crate) fn note_absence(&mut self, absence: Absence) {
        self.sender.note_absence(absence);
    }

    /// Sets the number of timeouts of a packet after which the connection fails.
    pub fn set_attempts_max(&mut self, attempts_max: u16) {
        self.sender.set_attempts_max(attempts_max);
    }

    /// Acknowledges a received packet on behalf of the upper layer: its sender may release it.
    pub fn acknowledge(&mut self, now: Time, received: Received) {
        self.receiver.acknowledge(now, received);
    }

    /// Refuses a packet on behalf of the upper layer some time after it was received: a NACK is sent. A shortage of
    /// resources is never reported this way, but immediately with
    /// [`Verdict::NoResources`](crate::interface::Verdict::NoResources).
    pub fn refuse(&mut self, received: Received, code: NackCode) {
        self.receiver.refuse(received, code);
    }

    /// Sends the acknowledgements again immediately, on every flow on which a packet was received; returns `true` if
    /// there is such a flow.
    pub fn repeat_acknowledgements(&mut self, now: Time) -> bool {
        !self.is_terminated() && self.receiver.repeat_acknowledgements(now)
    }

    /// Sends the NACK of the first final refusal again immediately; returns `true` if there was one. The network may
    /// have lost the NACK, and a peer that is notified only of the connection's termination cannot determine why its
    /// requests failed.
    pub fn repeat_refusal(&mut self) -> bool {
        !self.is_terminated() && self.receiver.repeat_refusal()
    }

    /// Returns the connection's `fcwnd`: the sum over its flows.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.shared.flows.fcwnd()
    }

    /// Returns the number of packets with requests that may be in flight, according to the last settings of the
    /// adaptive engine: the minimum of `fcwnd` and `ncwnd`.
    #[inline]
    pub fn window(&self) -> u64 {
        self.fcwnd().whole_packets().min(self.sender.ncwnd().into())
    }

    /// Returns the last round-trip time, measured from sending a packet to receiving the acknowledgement that echoes
    /// it; `None` before the first.
    #[inline]
    pub fn round_trip(&self) -> Option<Duration> {
        self.sender.last_round_trip()
    }

    /// Returns the number of packets from the oldest unacknowledged one to the last one sent.
    #[inline]
    pub fn span(&self, window: Window) -> u64 {
        self.sender.span(window)
    }

    /// Returns the number of packets in both windows that were sent and are not known to have arrived. A packet for
    /// which the receiver was not ready counts as arrived until it is retransmitted.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.sender.in_flight()
    }

    /// Sets the number of packets that may be sent for the first time from now on, beyond those in flight.
    #[inline]
    pub fn set_credit(&mut self, packets: u64) {
        self.sender.set_credit(packets);
    }

    /// Returns `true` if the last call of [`Delivery::transmit`] could have sent a packet with more credit (see
    /// [`Delivery::set_credit`]).
    #[inline]
    pub fn blocked_on_credit(&self) -> bool {
        self.sender.blocked_on_credit()
    }

    /// Returns the number of packets of `flow` that are not acknowledged.
    #[inline]
    pub fn outstanding_on(&self, flow: u8) -> u32 {
        self.shared.flows.get(flow).outstanding
    }

    /// Returns the number of packets of `flow` that were acknowledged and are to be reported in the flow's next
    /// event.
    #[inline]
    pub fn unreported_on(&self, flow: u8) -> u32 {
        self.shared.flows.get(flow).acknowledged.into()
    }

    /// Returns the current label of `flow`.
    #[inline]
    pub fn label(&self, flow: u8) -> FlowLabel {
        self.shared.flows.get(flow).label
    }

    /// Returns `true` if all packets sent are acknowledged.
    #[inline]
    pub fn all_acknowledged(&self) -> bool {
        self.sender.all_acknowledged()
    }

    /// Returns the bases of the receiver's windows.
    #[inline]
    pub fn bases(&self) -> WindowBases {
        self.receiver.bases()
    }

    /// Terminates the connection: no packet is sent or accepted any more.
    pub fn terminate(&mut self) {
        self.sender.terminate();
    }

    /// Returns `true` if the connection has failed permanently.
    #[inline]
    pub fn is_terminated(&self) -> bool {
        self.sender.is_terminated()
    }

    /// See [`crate::connection::Connection::prefetch_indirect`].
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        self.sender.prefetch_indirect();
    }

    /// Returns the current value of [`DeliveryCounters::timeouts`].
    #[inline]
    pub fn timeouts(&self) -> u64 {
        self.shared.counters.timeouts
    }

    /// Returns the current value of [`DeliveryCounters::timeouts_spurious`].
    #[inline]
    pub fn timeouts_spurious(&self) -> u32 {
        self.shared.counters.timeouts_spurious
    }

    /// Returns the event counts so far.
    pub fn counters(&self) -> DeliveryCounters {
        self.shared.counters
    }

    /// Returns a snapshot of each flow of a connection with several flows. With one flow, the iterator is empty,
    /// because the values of the connection are those of the flow.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        self.shared.flows.views()
    }

    /// Returns the number of path changes of each flow.
    pub fn moves(&self) -> [u64; FLOWS_MAX] {
        let mut moves = [0; FLOWS_MAX];
        moves[0] = self.shared.counters.moves;
        self.flows().zip(&mut moves).for_each(|(flow, moves)| *moves = flow.counters.moves);
        moves
    }
}
