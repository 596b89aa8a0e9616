//! The packet delivery layer of one connection: every packet exactly once to the transaction layer, in any order.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 to 4.3 and 5.2; specification Rev 0.9, section 9.
//!
//! State is divided by direction, and each owner has its methods in files of its own. The two directions do not know
//! each other: [`Delivery`] gives a packet to the one that it concerns, and carries what passes between them, which is
//! bases (the receiver's, in what the sender sends) and responses (accepted by the receiver, they acknowledge the
//! sender's requests). `shared` is lent to both.
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
//! Everything there may be for each flow is a `PerFlow`, and bitmaps and marks are made with their first use:
//! most connections have one flow and packets in order, and there may be very many of them.
//!
//! Whoever drives it: gives it what arrives ([`Delivery::receive`]); calls [`Delivery::transmit`] until nothing leaves;
//! calls [`Delivery::expire`] at [`Delivery::deadline`]; carries reports ([`Delivery::signal`]) to an adaptive
//! engine and its answers back ([`Delivery::obey`]). Time is an argument. Nothing is allocated once windows have had
//! their size.

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

/// The packet delivery layer of one connection: its sender, its receiver, and what passes between them.
#[derive(Clone, Debug)]
pub struct Delivery {
    sender: DeliverySender,
    receiver: DeliveryReceiver,
    shared: Shared,
}

/// What stands where the next packet will be written.
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
    /// A connection on which nothing was sent.
    ///
    /// # Panics
    /// When `config` has a width or a count that there is not.
    pub fn new(config: DeliveryConfig) -> Self {
        let (recovery, paths) = (config.recovery, config.paths);
        Self::with_policies(&config, Arc::new(Policies { recovery, paths }))
    }

    /// As [`Delivery::new`], with `policies`, which others have too, in place of those of `config`.
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

    /// Takes in a packet that arrives now.
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

    /// The next packet that may leave now; `None` when there is none.
    #[inline]
    pub fn transmit(&mut self, now: Time, upper: &mut impl Upper) -> Option<Departure> {
        let mut packet = BLANK;
        let Leaving { label, context, again } = self.transmit_into(now, &mut packet, upper)?;
        Some(Departure { packet, label, context, again })
    }

    /// As [`Delivery::transmit`], with the packet written to `packet`. When none leaves, that may have been touched.
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

    /// Whether an answer is due, or a packet is to be sent again.
    #[inline]
    pub(crate) fn has_to_repeat(&self, now: Time) -> bool {
        self.receiver.has_answer(now) || self.sender.has_to_repeat()
    }

    /// The gates of first transmissions, pacing aside.
    #[inline]
    pub(crate) fn open_gates(&self) -> Gates {
        self.sender.open_gates(&self.shared.flows)
    }

    /// When [`Delivery::expire`] or [`Delivery::transmit`] is to be called next, if nothing happens before. Not
    /// later than it must be; sometimes earlier.
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        match (self.timeout(), self.departure()) {
            (Some(timeout), Some(departure)) => Some(timeout.min(departure)),
            (timeout, departure) => timeout.or(departure),
        }
    }

    /// When a packet that is ready and too early may leave: for a timing wheel.
    #[inline]
    pub fn departure(&self) -> Option<Time> {
        self.sender.departure()
    }

    /// [`Delivery::deadline`] without [`Delivery::departure`].
    #[inline]
    pub fn timeout(&self) -> Option<Time> {
        match (self.answer_due(), self.expiry()) {
            (Some(answer), Some(expiry)) => Some(answer.min(expiry)),
            (answer, expiry) => answer.or(expiry),
        }
    }

    /// When an acknowledgement or a NACK is due: it leaves when [`Delivery::transmit`] is called.
    #[inline]
    pub fn answer_due(&self) -> Option<Time> {
        if self.is_dead() { None } else { self.receiver.answer_due() }
    }

    /// When [`Delivery::expire`] is to be called, whether packets leave meanwhile or not.
    #[inline]
    pub fn expiry(&self) -> Option<Time> {
        self.sender.expiry(&self.shared.flows)
    }

    /// Does what is due. What leaves because of it leaves in [`Delivery::transmit`].
    pub fn expire(&mut self, now: Time, upper: &mut impl Upper) {
        self.sender.expire(&mut self.shared, now, upper);
    }

    /// Whether there is a report for the adaptive engine.
    #[inline]
    pub(crate) fn has_signal(&self) -> bool {
        !self.shared.signals.is_empty()
    }

    /// The next report for the adaptive engine.
    #[inline]
    pub fn signal(&mut self) -> Option<FlowReport> {
        self.shared.signals.pop()
    }

    /// Does what the adaptive engine wants for `flow`, and for the connection.
    ///
    /// # Panics
    /// When the connection has no such flow.
    pub fn obey(&mut self, flow: u8, actions: &FlowActions) {
        self.apply(flow, &ControlSettings::of(actions));
        self.sender.set_ack_rate(actions.ack_rate);
        if actions.repath {
            let Shared { flows, counters, .. } = &mut self.shared;
            counters.moves += 1;
            flows.repath(flow, counters.moves);
        }
    }

    /// Applies single settings to `flow`, and to the connection.
    ///
    /// # Panics
    /// When the connection has no such flow.
    pub fn apply(&mut self, flow: u8, settings: &ControlSettings) {
        self.sender.apply(&mut self.shared.flows, flow, settings);
    }

    /// The windows of `flow` and of the connection, as reports have them.
    #[inline]
    pub(crate) fn windows(&self, flow: u8) -> (Cwnd, u16) {
        self.sender.windows(&self.shared.flows, flow)
    }

    /// The retransmission timeout at the moment.
    pub(crate) const fn rto(&self) -> Duration {
        self.sender.rto()
    }

    /// Nobody drove the connection for a while.
    #[inline]
    pub(crate) fn note_absence(&mut self, absence: Absence) {
        self.sender.note_absence(absence);
    }

    /// From now on, a packet that timed out so often is given up.
    pub fn set_attempts_max(&mut self, attempts_max: u16) {
        self.sender.set_attempts_max(attempts_max);
    }

    /// The upper layer has acknowledged a received packet: its sender may forget it.
    pub fn acknowledge(&mut self, now: Time, received: Received) {
        self.receiver.acknowledge(now, received);
    }

    /// The upper layer refuses a received packet after all: a NACK leaves. Refused for want of room is nothing that
    /// comes later, and is [`Verdict::NoResources`](crate::seam::Verdict::NoResources).
    pub fn refuse(&mut self, received: Received, code: NackCode) {
        self.receiver.refuse(received, code);
    }

    /// Says once more, at once, what has arrived, on every flow that a packet came on; whether there is any.
    pub fn repeat_acknowledgements(&mut self, now: Time) -> bool {
        !self.is_dead() && self.receiver.repeat_acknowledgements(now)
    }

    /// Says once more what was refused for good first, at once; whether anything was. The network may have lost the
    /// NACK, and whoever hears of the connection's end before it cannot know why its requests failed.
    pub fn repeat_refusal(&mut self) -> bool {
        !self.is_dead() && self.receiver.repeat_refusal()
    }

    /// The connection's `fcwnd`: the sum of its flows'.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.shared.flows.fcwnd()
    }

    /// Packets with requests that may be under way, as the adaptive engine has said last: `fcwnd` and `ncwnd`.
    #[inline]
    pub fn window(&self) -> u64 {
        self.fcwnd().whole_packets().min(self.sender.ncwnd().into())
    }

    /// From a packet to the answer that echoes it, the last time; none before the first.
    #[inline]
    pub fn round_trip(&self) -> Option<Duration> {
        self.sender.last_round_trip()
    }

    /// Packets from the oldest that is not acknowledged to the last that was sent.
    #[inline]
    pub fn span(&self, window: Window) -> u64 {
        self.sender.span(window)
    }

    /// Packets that have left and are not known to have arrived, in both windows. What the receiver was not ready for
    /// has arrived, until it leaves again.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.sender.under_way()
    }

    /// From now on so many packets may leave for the first time, beyond those under way.
    #[inline]
    pub fn set_room(&mut self, packets: u64) {
        self.sender.set_room(packets);
    }

    /// Whether something could have left the last time that [`Delivery::transmit`] was called, had there been room.
    #[inline]
    pub fn lacks_room(&self) -> bool {
        self.sender.lacks_room()
    }

    /// Packets of `flow` that are not acknowledged.
    #[inline]
    pub fn outstanding_on(&self, flow: u8) -> u32 {
        self.shared.flows.get(flow).outstanding
    }

    /// Packets of `flow` that were acknowledged and are not in an event yet: they go with the flow's next.
    #[inline]
    pub fn untold_on(&self, flow: u8) -> u32 {
        self.shared.flows.get(flow).acknowledged.into()
    }

    /// The label of `flow`.
    #[inline]
    pub fn label(&self, flow: u8) -> FlowLabel {
        self.shared.flows.get(flow).label
    }

    /// Whether everything that was sent is acknowledged.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.sender.is_quiet()
    }

    /// How far it has come as a receiver.
    #[inline]
    pub fn bases(&self) -> WindowBases {
        self.receiver.bases()
    }

    /// Ends: nothing is sent or taken any more.
    pub fn die(&mut self) {
        self.sender.die();
    }

    /// Whether it was given up.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.sender.is_dead()
    }

    /// See [`crate::connection::Connection::touch_apart`].
    #[inline]
    pub(crate) fn touch_apart(&self) {
        self.sender.touch_apart();
    }

    /// [`DeliveryCounters::timeouts`] so far.
    #[inline]
    pub fn timeouts(&self) -> u64 {
        self.shared.counters.timeouts
    }

    /// What has happened so far.
    pub fn counters(&self) -> DeliveryCounters {
        self.shared.counters
    }

    /// Each flow in turn, of a connection that has several: what there is to see of one alone is the connection's.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        self.shared.flows.views()
    }

    /// How often each flow took another path.
    pub fn moves(&self) -> [u64; FLOWS_MAX] {
        let mut moves = [0; FLOWS_MAX];
        moves[0] = self.shared.counters.moves;
        self.flows().zip(&mut moves).for_each(|(flow, moves)| *moves = flow.counters.moves);
        moves
    }
}
