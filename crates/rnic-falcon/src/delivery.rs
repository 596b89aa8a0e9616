//! The packet delivery layer of one connection: delivers every packet exactly once to the transaction layer, in any
//! order.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 to 4.3 and 5.2; specification Rev 0.9, section 9.
//!
//! State is divided by direction, and each owner has its methods in files of its own. The two directions do not access
//! each other: [`Delivery`] passes a packet to the direction that it concerns, and transfers the data that both need:
//! bases (the receiver's, written into packets of the sender) and responses (accepted by the receiver, they acknowledge
//! the sender's requests). `shared` is passed to both.
//!
//! ```text
//!   sender (DeliverySender)                          receiver (DeliveryReceiver)
//!     transmit    what leaves next                     accept      what has come, and where it falls
//!     gates       fcwnd, ncwnd, pacing                 rx_window   received and acknowledged bits
//!     tx_window   contexts of packets under way        echo        who is owed an acknowledgement
//!     acks        acknowledgements and NACKs come in   answer      acknowledgements and NACKs as they leave
//!     recover     what is lost (policies)
//!     waits       timeout, probe, round trip         shared
//!     measured    timeouts by what is measured         flows       which path
//!     timers      packets that time out                signal      reports that wait for the adaptive engine
//!     report      reports and settings                 counters    what has happened
//!
//!   exchange      packets from and to the driver     pace          the timing wheel that connections of a NIC share
//! ```
//!
//! Per-flow state is a `PerFlow`, and bitmaps and marks are allocated on first use, because most connections have one
//! flow and packets in order, and there may be very many connections.
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
pub use exchange::{Arrival, Departure, Leaving, Reception};
pub use flows::{FlowCounters, FlowView};
pub use pace::{SLOT, Wheel};
pub use signal::{ControlSettings, SIGNALS_MAX};

use std::sync::Arc;

use rnic_base::{Absence, Duration, Psn32, Time};
use rnic_policy::Cwnd;
use rnic_policy::control::report::{FlowActions, FlowReport};
use rnic_policy::paths::FLOWS_MAX;
use rnic_wire::falcon::{
    Body, Cid, FlowLabel, NackCode, Packet, PacketType, ResyncCode, Rsn, Timestamp, UlpProtocol, Window, WindowBases,
};

use crate::seam::{Gates, Received, Upper};

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

/// Initial value of a packet buffer, overwritten by the next packet.
const BLANK: Packet = Packet {
    cid: Cid::new(0),
    function: 0,
    protocol: UlpProtocol::None,
    ack_request: false,
    bases: WindowBases { data: Psn32::new(0), request: Psn32::new(0) },
    timestamp: Timestamp::new(0),
    payload_len: 0,
    body: Body::Resync {
        psn: Psn32::new(0),
        rsn: Rsn::new(0),
        code: ResyncCode::LocalXlr,
        of: PacketType::PushData,
        vendor: 0,
    },
};

impl Delivery {
    /// Creates the layer of a connection on which no packet was sent.
    ///
    /// # Panics
    /// When `config` has an invalid width or count.
    pub fn new(config: DeliveryConfig) -> Self {
        let (recovery, paths) = (config.recovery, config.paths);
        Self::with_policies(&config, Arc::new(Policies { recovery, paths }))
    }

    /// Same as [`Delivery::new`], with `policies`, which are shared with other connections, in place of those of
    /// `config`.
    ///
    /// # Panics
    /// As [`Delivery::new`].
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
        if sender.is_dead() {
            return Reception::Dropped;
        }
        let packet = arrival.packet;
        let flow = shared.flows.of_label(arrival.label);
        match &packet.body {
            Body::Ack(answer) => sender.take_ack(shared, now, flow, packet, (answer, None), upper),
            Body::ExtendedAck(answer, bitmaps) => {
                sender.take_ack(shared, now, flow, packet, (answer, Some(bitmaps)), upper)
            }
            Body::Nack(nack) => sender.take_nack(shared, now, flow, packet, nack, upper),
            Body::PullRequest { .. } | Body::PullData { .. } | Body::PushData { .. } | Body::Resync { .. } => {
                sender.take_bases(shared, now, &packet.bases, upper);
                receiver.note(flow, Timestamp::at(now - sender.backlog(now)), arrival);
                let (reception, answered) = receiver.take_packet(shared, now, flow, packet, upper);
                if let Some(rsn) = answered {
                    sender.acknowledge_request(shared, now, rsn, upper);
                }
                reception
            }
        }
    }

    /// Returns the next packet that may be sent now; `None` when there is none.
    #[inline]
    pub fn transmit(&mut self, now: Time, upper: &mut impl Upper) -> Option<Departure> {
        let mut packet = BLANK;
        let Leaving { label, context, again } = self.transmit_into(now, &mut packet, upper)?;
        Some(Departure { packet, label, context, again })
    }

    /// Same as [`Delivery::transmit`], with the packet written to `packet`. When no packet is sent, `packet` may have
    /// been modified.
    #[inline]
    pub fn transmit_into(&mut self, now: Time, packet: &mut Packet, upper: &mut impl Upper) -> Option<Leaving> {
        let Self { sender, receiver, shared } = self;
        if sender.is_dead() {
            return None;
        }
        if receiver.has_answer(now)
            && let Some(answer) = receiver.answer(shared, now, packet, upper)
        {
            return Some(answer);
        }
        let leaving = sender.transmit(shared, now, packet, upper)?;
        receiver.join(now, packet);
        Some(leaving)
    }

    /// Returns whether an acknowledgement or NACK is due, or a packet is to be retransmitted.
    #[inline]
    pub(crate) fn has_to_repeat(&self, now: Time) -> bool {
        self.receiver.has_answer(now) || self.sender.has_to_repeat()
    }

    /// Returns the gates of first transmissions, pacing aside.
    #[inline]
    pub(crate) fn open_gates(&self) -> Gates {
        self.sender.open_gates(&self.shared.flows)
    }

    /// Returns the time of the next call of [`Delivery::expire`] or [`Delivery::transmit`], if nothing happens before.
    /// Never later than necessary; sometimes earlier.
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

    /// Returns [`Delivery::deadline`] without [`Delivery::departure`].
    #[inline]
    pub fn timeout(&self) -> Option<Time> {
        match (self.answer_due(), self.expiry()) {
            (Some(answer), Some(expiry)) => Some(answer.min(expiry)),
            (answer, expiry) => answer.or(expiry),
        }
    }

    /// Returns the time at which an acknowledgement or a NACK is due: it is sent by [`Delivery::transmit`].
    #[inline]
    pub fn answer_due(&self) -> Option<Time> {
        if self.is_dead() { None } else { self.receiver.answer_due() }
    }

    /// Returns the time at which [`Delivery::expire`] is to be called, whether packets are sent meanwhile or not.
    #[inline]
    pub fn expiry(&self) -> Option<Time> {
        self.sender.expiry(&self.shared.flows)
    }

    /// Performs the actions that are due. Resulting packets are sent by [`Delivery::transmit`].
    pub fn expire(&mut self, now: Time, upper: &mut impl Upper) {
        self.sender.expire(&mut self.shared, now, upper);
    }

    /// Returns whether there is a report for the adaptive engine.
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
    /// When the connection has no such flow.
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
    /// When the connection has no such flow.
    pub fn apply(&mut self, flow: u8, settings: &ControlSettings) {
        self.sender.apply(&mut self.shared.flows, flow, settings);
    }

    /// Returns the windows of `flow` and of the connection, in the form used in reports.
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

    /// Sets the number of timeouts after which a packet is given up.
    pub fn set_attempts_max(&mut self, attempts_max: u16) {
        self.sender.set_attempts_max(attempts_max);
    }

    /// Acknowledges a received packet on behalf of the upper layer: its sender may release it.
    pub fn acknowledge(&mut self, now: Time, received: Received) {
        self.receiver.acknowledge(now, received);
    }

    /// Refuses a received packet belatedly on behalf of the upper layer: a NACK is sent. A shortage of resources is
    /// never reported this way, but immediately with [`Verdict::NoResources`](crate::seam::Verdict::NoResources).
    pub fn refuse(&mut self, received: Received, code: NackCode) {
        self.receiver.refuse(received, code);
    }

    /// Sends the acknowledgements again immediately, on every flow on which a packet was received; returns whether
    /// there is any.
    pub fn repeat_acknowledgements(&mut self, now: Time) -> bool {
        !self.is_dead() && self.receiver.repeat_acknowledgements(now)
    }

    /// Sends the NACK of the first final refusal again immediately; returns whether there was one. The network may have
    /// lost the NACK, and a peer that learns of the connection's termination first would not know why its requests
    /// failed.
    pub fn repeat_refusal(&mut self) -> bool {
        !self.is_dead() && self.receiver.repeat_refusal()
    }

    /// Returns the connection's `fcwnd`: the sum over its flows.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.shared.flows.fcwnd()
    }

    /// Returns the number of packets with requests that may be in flight, by the last settings of the adaptive engine:
    /// the minimum of `fcwnd` and `ncwnd`.
    #[inline]
    pub fn window(&self) -> u64 {
        self.fcwnd().whole_packets().min(self.sender.ncwnd().into())
    }

    /// Returns the last round-trip time, from a packet to the acknowledgement that echoes it; `None` before the first.
    #[inline]
    pub fn round_trip(&self) -> Option<Duration> {
        self.sender.last_round_trip()
    }

    /// Returns the number of packets from the oldest unacknowledged one to the last one sent.
    #[inline]
    pub fn span(&self, window: Window) -> u64 {
        self.sender.span(window)
    }

    /// Returns the number of packets in both windows that were sent and are not known to have arrived. Packets for
    /// which the receiver was not ready have arrived, until they are retransmitted.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.sender.under_way()
    }

    /// Sets the number of packets that may be sent for the first time from now on, beyond those in flight.
    #[inline]
    pub fn set_credit(&mut self, packets: u64) {
        self.sender.set_credit(packets);
    }

    /// Returns whether the last call of [`Delivery::transmit`] could have sent a packet with more of this credit.
    #[inline]
    pub fn blocked_on_credit(&self) -> bool {
        self.sender.blocked_on_credit()
    }

    /// Returns the number of packets of `flow` that are not acknowledged.
    #[inline]
    pub fn outstanding_on(&self, flow: u8) -> u32 {
        self.shared.flows.get(flow).outstanding
    }

    /// Returns the number of packets of `flow` that were acknowledged and not reported in an event yet: the flow's next
    /// event reports them.
    #[inline]
    pub fn unreported_on(&self, flow: u8) -> u32 {
        self.shared.flows.get(flow).acknowledged.into()
    }

    /// Returns the label of `flow`.
    #[inline]
    pub fn label(&self, flow: u8) -> FlowLabel {
        self.shared.flows.get(flow).label
    }

    /// Returns whether all packets sent are acknowledged.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.sender.is_quiet()
    }

    /// Returns the bases of the receiver's windows.
    #[inline]
    pub fn bases(&self) -> WindowBases {
        self.receiver.bases()
    }

    /// Terminates the connection: no packet is sent or accepted any more.
    pub fn die(&mut self) {
        self.sender.die();
    }

    /// Returns whether the connection was given up.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.sender.is_dead()
    }

    /// See [`crate::connection::Connection::prefetch_indirect`].
    #[inline]
    pub(crate) fn prefetch_indirect(&self) {
        self.sender.prefetch_indirect();
    }

    /// Returns [`DeliveryCounters::timeouts`] so far.
    #[inline]
    pub fn timeouts(&self) -> u64 {
        self.shared.counters.timeouts
    }

    /// Returns the event counts so far.
    pub fn counters(&self) -> DeliveryCounters {
        self.shared.counters
    }

    /// Returns each flow of a connection with several flows. With one flow, the values of the connection are those of
    /// the flow, and the iterator is empty.
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
