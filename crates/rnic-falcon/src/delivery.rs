//! The packet delivery layer of one connection: every packet exactly once to the transaction layer, in any order.
//!
//! Source: Falcon (SIGCOMM'25) sections 4.1 to 4.3 and 5.2; specification Rev 0.9, section 9. This file has the
//! state and the doors; each thing that is done has a file of its own.
//!
//! ```text
//!   sending                                          receiving
//!   transmit      what leaves next                   receive       what has come, and where it falls
//!   gates         fcwnd, ncwnd, pacing               rx_window     received and acknowledged bits
//!   tx_window     contexts of packets under way      echo          who is owed an acknowledgement
//!   flows         which path                         answer        acknowledgements and NACKs as they leave
//!   acks          acknowledgements and NACKs come in
//!   measured      timeouts by what is measured
//!   recover       what is lost (policies)            timers        timeouts, probes, packets that come of age
//!   signal        to and from the adaptive engine    pace          the timing wheel that connections of a NIC share
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
mod acks;
mod answer;
mod config;
mod echo;
mod flows;
mod gates;
mod measured;
mod pace;
pub(crate) mod per_flow;
mod receive;
mod recover;
mod rx_window;
mod signal;
mod timers;
mod transmit;
mod tx_window;
mod windows;

pub use ack_request::AckRequestRule;
pub use config::{DeliveryConfig, ExtendedRule, OutOfWindowRule, Policies, TRACKED_MAX, TX_WINDOW_MAX};
pub use flows::{FlowCounters, FlowView};
pub use pace::{SLOT, Wheel};
pub use receive::{Arrival, Reception};
pub use signal::{ControlSettings, SIGNALS_MAX};
pub use transmit::{Departure, Leaving};

use std::sync::Arc;

use rnic_base::{Duration, Time};
use rnic_policy::control::report::AckRate;
use rnic_policy::paths::FLOWS_MAX;
use rnic_policy::{Cwnd, PolicyState};
use rnic_wire::falcon::{FlowLabel, NackCode, Window, WindowBases};

use crate::delivery::ack_request::AckRequester;
use crate::delivery::answer::Nacks;
use crate::delivery::config::{NEVER, Settings};
use crate::delivery::echo::Echo;
use crate::delivery::flows::Flows;
use crate::delivery::gates::Limits;
use crate::delivery::measured::Measured;
use crate::delivery::per_flow::PerFlow;
use crate::delivery::recover::Waits;
use crate::delivery::rx_window::RxWindow;
use crate::delivery::signal::Signals;
use crate::delivery::tx_window::TxWindow;
use crate::delivery::windows::Windows;
use crate::seam::Received;

/// What has happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliveryCounters {
    /// Packets that left for the first time.
    pub sent: u64,
    /// Packets sent again because recovery took them for lost, before their timeout.
    pub sent_again_early: u64,
    /// Packets that timed out.
    pub timeouts: u64,
    /// Probes for the end of a burst.
    pub probes: u64,
    /// Acknowledgements that left, and of them those with bitmaps.
    pub acks_sent: u64,
    /// See `acks_sent`.
    pub extended_acks_sent: u64,
    /// NACKs that left.
    pub nacks_sent: u64,
    /// Packets that came a second time.
    pub duplicates: u64,
    /// Packets dropped beyond a window.
    pub out_of_window: u64,
    /// Acknowledgements dropped because a base was behind.
    pub stale_acks: u64,
    /// Acknowledgements of what was never sent, and labels or numbers that make no sense: the peer's mistakes.
    pub peer_errors: u64,
    /// Events that found the queue to the adaptive engine full.
    pub signals_refused: u64,
    /// Times that a flow took another path.
    pub moves: u64,
}

impl DeliveryCounters {
    /// Adds those of another connection.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_again_early += other.sent_again_early;
        self.timeouts += other.timeouts;
        self.probes += other.probes;
        self.acks_sent += other.acks_sent;
        self.extended_acks_sent += other.extended_acks_sent;
        self.nacks_sent += other.nacks_sent;
        self.duplicates += other.duplicates;
        self.out_of_window += other.out_of_window;
        self.stale_acks += other.stale_acks;
        self.peer_errors += other.peer_errors;
        self.signals_refused += other.signals_refused;
        self.moves += other.moves;
    }
}

/// The packet delivery layer of one connection, both directions of it.
#[derive(Clone, Debug)]
pub struct Delivery {
    config: Settings,
    tx: Windows<TxWindow>,
    rx: Windows<RxWindow>,
    flows: Flows,
    limits: Limits,
    requester: AckRequester,
    echo: Echo,
    nacks: Nacks,
    recovery: PerFlow<Windows<PolicyState>>,
    waits: Waits,
    /// Where timeouts follow what is measured.
    measured: Option<Box<Measured>>,
    signals: Signals,
    counters: DeliveryCounters,
    /// The timing wheel shall come back then: a packet is ready and too early.
    paced_until: Time,
    /// The last packet that left had been sent before, and the next turn is for what is new.
    gives_way: bool,
    /// Something could have left, had there been room at the peer's host.
    lacks_room: bool,
    /// The rate of acknowledgements that was last asked for, which comes back in reports.
    ack_rate: AckRate,
    dead: bool,
}

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
        let (recovery, flows) = (&policies.recovery, usize::from(config.flows));
        let tx = |window| TxWindow::new(window, config.first_sent.of(window), config.tx_window, flows);
        let keeps = config.out_of_window == OutOfWindowRule::Keep;
        let rx = |window| RxWindow::new(config.first_received.of(window), config.width(window), keeps);
        let fresh = (recovery.policy.start)(&recovery.params);
        let waits = Waits::new(config);
        let measured = config.measured.map(|nominal| Box::new(Measured::new(waits.rto, nominal)));
        Self {
            tx: Windows::new(tx),
            rx: Windows::new(rx),
            flows: Flows::new(config),
            limits: Limits::new(config.ncwnd),
            requester: AckRequester::default(),
            echo: Echo::new(config.flows),
            nacks: Nacks::new(),
            recovery: PerFlow::new(flows, |_| Windows { request: fresh, data: fresh }),
            waits,
            measured,
            signals: Signals::new(config.flows),
            counters: DeliveryCounters::default(),
            paced_until: NEVER,
            gives_way: false,
            lacks_room: false,
            ack_rate: signal::ACK_RATE_FIRST,
            dead: false,
            config: Settings::of(config, policies),
        }
    }

    /// From now on, a packet that timed out so often is given up.
    pub fn set_attempts_max(&mut self, attempts_max: u16) {
        self.config.attempts_max = attempts_max.max(1);
    }

    /// The upper layer has acknowledged a received packet: its sender may forget it.
    pub fn acknowledge(&mut self, now: Time, received: Received) {
        if let Some(arrived) = self.rx[received.window].acknowledge(received.psn) {
            self.owe(now, arrived.flow, 1);
            if arrived.asks {
                self.echo.hurry(now, arrived.flow);
            }
        }
    }

    /// The upper layer refuses a received packet after all: a NACK leaves. Refused for want of room is nothing that
    /// comes later, and is [`Verdict::NoResources`](crate::seam::Verdict::NoResources).
    pub fn refuse(&mut self, received: Received, code: NackCode) {
        let rx = &self.rx[received.window];
        let (seq, place) = rx.place(received.psn);
        if place == rx_window::Place::Received {
            self.nacks.push(rx.arrived(seq).flow, received, code);
        }
    }

    /// Says once more, at once, what has arrived, on every flow that a packet came on; whether there is any.
    pub fn repeat_acknowledgements(&mut self, now: Time) -> bool {
        !self.dead && self.echo.hurry_all(now)
    }

    /// Says once more what was refused for good first, at once; whether anything was. The network may have lost the
    /// NACK, and whoever hears of the connection's end before it cannot know why its requests failed.
    pub fn repeat_refusal(&mut self) -> bool {
        !self.dead && self.nacks.repeat_refusal()
    }

    fn owe(&mut self, now: Time, flow: u8, halves: u32) {
        self.echo.owe(now, flow, halves, self.config.coalesce_count, self.config.coalesce_timeout);
    }

    /// The connection's `fcwnd`: the sum of its flows'.
    #[inline]
    pub fn fcwnd(&self) -> Cwnd {
        self.flows.fcwnd()
    }

    /// Packets with requests that may be under way, as the adaptive engine has said last: `fcwnd` and `ncwnd`.
    #[inline]
    pub fn window(&self) -> u64 {
        self.fcwnd().whole_packets().min(self.limits.ncwnd.into())
    }

    /// From a packet to the answer that echoes it, the last time; none before the first.
    #[inline]
    pub fn round_trip(&self) -> Option<Duration> {
        self.waits.measured()
    }

    /// Packets from the oldest that is not acknowledged to the last that was sent.
    #[inline]
    pub fn span(&self, window: Window) -> u64 {
        self.tx[window].span()
    }

    /// Packets that have left and are not known to have arrived, in both windows. What the receiver was not ready for
    /// has arrived, until it leaves again.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.tx.iter().map(TxWindow::under_way).sum()
    }

    /// From now on so many packets may leave for the first time, beyond those under way.
    #[inline]
    pub fn set_room(&mut self, packets: u64) {
        self.limits.room = packets;
    }

    /// Whether something could have left the last time that [`Delivery::transmit`] was called, had there been room.
    #[inline]
    pub fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Packets of `flow` that are not acknowledged.
    #[inline]
    pub fn outstanding_on(&self, flow: u8) -> u32 {
        self.flows.get(flow).outstanding
    }

    /// Packets of `flow` that were acknowledged and are not in an event yet: they go with the flow's next.
    #[inline]
    pub fn untold_on(&self, flow: u8) -> u32 {
        self.flows.get(flow).acknowledged.into()
    }

    /// The label of `flow`.
    #[inline]
    pub fn label(&self, flow: u8) -> FlowLabel {
        self.flows.get(flow).label
    }

    /// Whether everything that was sent is acknowledged.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.tx.iter().all(TxWindow::is_idle)
    }

    /// How far it has come as a receiver.
    #[inline]
    pub fn bases(&self) -> WindowBases {
        WindowBases { data: self.rx.data.base(), request: self.rx.request.base() }
    }

    /// Ends: nothing is sent or taken any more.
    pub fn die(&mut self) {
        self.dead = true;
    }

    /// Whether it was given up.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// See [`crate::connection::Connection::touch_apart`].
    #[inline]
    pub(crate) fn touch_apart(&self) {
        self.tx.iter().for_each(TxWindow::touch_apart);
    }

    /// [`DeliveryCounters::timeouts`] so far.
    #[inline]
    pub fn timeouts(&self) -> u64 {
        self.counters.timeouts
    }

    /// What has happened so far.
    pub fn counters(&self) -> DeliveryCounters {
        self.counters
    }

    /// Each flow in turn, of a connection that has several: what there is to see of one alone is the connection's.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> {
        self.flows.views()
    }

    /// How often each flow took another path.
    pub fn moves(&self) -> [u64; FLOWS_MAX] {
        let mut moves = [0; FLOWS_MAX];
        moves[0] = self.counters.moves;
        self.flows().zip(&mut moves).for_each(|(flow, moves)| *moves = flow.counters.moves);
        moves
    }
}
