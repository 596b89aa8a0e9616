//! Congestion control: how much may be in flight, and how fast.
//!
//! The engine's gate is the conjunction of everything that can hold a packet back: the static
//! cap of the profile, this policy's window and this policy's rate. A policy that sets neither leaves the sender at
//! line rate.
//!
//! A datapath that measures more and can be told more (Falcon: [`report`]) speaks by the same contract, with an event
//! and an answer of its own: [`ControlEvent::Reported`], [`ControlActions::flow`]. A controller that does not read
//! reports itself is told in the events of the others ([`adapt`]), so every controller runs on both kinds of datapath.

pub mod adapt;
pub mod lanes;
pub mod report;
pub mod report_control;
pub mod signals;

use bytemuck::Pod;
use rnic_base::{BitRate, Duration, Time};

use self::report::{FlowActions, FlowReport};
use self::report_control::ReportPolicy;
use self::signals::Signals;

use crate::params::{ParamSpec, Params};
use crate::state::PolicyState;

/// A congestion window in packets, with 16 fractional bits: Falcon's fcwnd goes down to 0.01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Cwnd(u64);

impl Cwnd {
    /// One packet.
    pub const ONE: Self = Self(1 << 16);
    /// Records have 10 fractional bits.
    const STEP_LOG2: u32 = 6;

    /// `packets` whole packets.
    #[inline]
    pub const fn packets(packets: u64) -> Self {
        Self(packets << 16)
    }

    /// From the 48.16 fixed-point form.
    #[inline]
    pub const fn from_fixed(fixed: u64) -> Self {
        Self(fixed)
    }

    /// The 48.16 fixed-point form.
    #[inline]
    pub const fn fixed(self) -> u64 {
        self.0
    }

    /// As people read it: 0.25 is a packet every four round trips.
    #[inline]
    pub fn as_packets_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }

    /// What flow `flow` of `flows` has of this window when they share it: steps of 1/1024 packet, as records have them,
    /// of which the first flows take one more where it cannot be divided. The shares add up to the window; but none has
    /// less than a step.
    #[inline]
    pub const fn share(self, flow: u8, flows: u8) -> Self {
        let (steps, flows) = (self.0 >> Self::STEP_LOG2, flows as u64);
        let share = steps / flows + ((flow as u64) < steps % flows) as u64;
        Self(if share == 0 { 1 } else { share } << Self::STEP_LOG2)
    }

    /// Whole packets that fit, at least one: a window below one packet is enforced by pacing, not by silence.
    #[inline]
    pub const fn whole_packets(self) -> u64 {
        let whole = self.0 >> 16;
        if whole == 0 { 1 } else { whole }
    }
}

/// What a controller hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlEvent {
    /// The cumulative acknowledgement moved on, or the packet being timed was acknowledged selectively.
    Acked {
        /// By how many packets; zero when only the round-trip time is news.
        packets: u64,
        /// Round-trip time of a packet that was sent once (or again: [`ControlInterest::resent`]), when one was being
        /// timed.
        rtt: Option<Duration>,
        /// Of the packets, those whose acknowledgement said that a packet had met congestion. Always zero without
        /// [`ControlInterest::echo`].
        marked: u64,
    },
    /// The receiver reported a gap.
    Nacked {
        /// Recovery takes it for a loss, and sends something again. Otherwise it waits, and so should the controller.
        lost: bool,
    },
    /// The retransmission timer ran out and the recovery policy acted on it.
    TimedOut,
    /// A congestion notification packet came in.
    Cnp,
    /// Packets left. Sent only to controllers with [`ControlInterest::sent`].
    Sent {
        /// Payload bytes.
        bytes: u64,
    },
    /// The time asked for with [`ControlActions::tick_after`] has come.
    Tick,
    /// A datapath with flows reports on one of them. Sent instead of the others, and only to controllers with
    /// [`ControlInterest::reports`].
    Reported(FlowReport),
}

/// What a controller sees, read-only.
#[derive(Clone, Copy, Debug)]
pub struct ControlView {
    /// Now. Falcon's adaptive engine has it from [`FlowReport::t4`]: when the event happened, in steps of 131 ns. On a
    /// thread nothing else tells the time, and where the whole NIC hears nothing for 2.1 s or more, multiples of
    /// 2.199 s are missing.
    pub now: Time,
    /// Rate of the local link.
    pub line_rate: BitRate,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Packets outstanding: requests, and responses where they have numbers of their own. Always zero in Falcon's
    /// adaptive engine, whose events do not tell.
    pub in_flight: u64,
}

/// What a controller wants done; `None` leaves things as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlActions {
    /// The window from now on.
    pub window: Option<Cwnd>,
    /// The sending rate from now on, above zero and at most the line rate.
    pub rate: Option<BitRate>,
    /// Send a [`ControlEvent::Tick`] after this long; replaces an earlier wish. A datapath with flows has no ticks, and
    /// an answer to [`ControlEvent::Reported`] asks for none.
    pub tick_after: Option<Duration>,
    /// What a datapath with flows is to do from now on: in answer to every [`ControlEvent::Reported`], and as a first
    /// word for those that will report. A datapath without flows never looks at it.
    pub flow: Option<FlowActions>,
}

/// The signals that a controller needs, and the frequent events that it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlInterest {
    /// The signals that it cannot do without. A profile whose transport does not measure all of them is refused.
    pub needs: Signals,
    /// [`ControlEvent::Acked`].
    pub acked: bool,
    /// [`ControlEvent::Sent`].
    pub sent: bool,
    /// The receiver shall turn congestion marks into CNPs, at most one in this interval.
    pub cnp_interval: Option<Duration>,
    /// The receiver shall say in an acknowledgement (by its BECN bit) whether the packet that drew it was marked. Where
    /// not every packet draws one, an acknowledgement speaks for all since the last.
    pub echo: bool,
    /// A packet that is sent again may tell the round-trip time too, from when it was sent last. Where receivers drop
    /// early packets (go-back-N) nothing else is sent after a loss for as long as there is something to repeat, and
    /// an acknowledgement answers the last sending; after a timeout that was wrong it may answer the one before.
    pub resent: bool,
    /// Understands [`ControlEvent::Reported`].
    pub reports: bool,
}

/// A congestion control algorithm, as its author writes it. The type itself is the private state of one queue pair.
pub trait Control: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunables.
    const PARAMS: &'static [ParamSpec];
    /// Of a [`ReportControl`](report_control::ReportControl): `ReportPolicy::of::<Self>()`.
    const REPORTS: ReportPolicy = ReportPolicy::NONE;

    /// Required: the state of a fresh queue pair, and its first window and rate.
    fn start(params: &Params, view: &ControlView) -> (Self, ControlActions);

    /// Required: which frequent events to be told about.
    fn interest(params: &Params) -> ControlInterest;

    /// Required: reacts to `event`.
    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions;
}

/// A [`Control`] algorithm with its type forgotten.
#[derive(Clone, Copy, Debug)]
pub struct ControlPolicy {
    /// See [`Control::NAME`].
    pub name: &'static str,
    /// See [`Control::SUMMARY`].
    pub summary: &'static str,
    /// See [`Control::PARAMS`].
    pub params: &'static [ParamSpec],
    /// Bytes of private state per queue pair.
    pub state_bytes: usize,
    /// See [`Control::start`].
    pub start: fn(&Params, &ControlView) -> (PolicyState, ControlActions),
    /// The same on a datapath that reports on flows: the answer says what those are to do.
    pub start_on_flows: fn(&Params, &ControlView) -> (PolicyState, ControlActions),
    /// See [`Control::interest`].
    pub interest: fn(&Params) -> ControlInterest,
    /// See [`Control::on_event`].
    pub on_event: fn(&mut PolicyState, &ControlEvent, &ControlView, &Params) -> ControlActions,
    /// See [`Control::REPORTS`].
    pub reports: ReportPolicy,
}

impl ControlPolicy {
    /// Forgets the type of `T`.
    pub const fn of<T: Control>() -> Self {
        Self {
            name: T::NAME,
            summary: T::SUMMARY,
            params: T::PARAMS,
            state_bytes: size_of::<T>(),
            start: |params, view| {
                let (state, actions) = T::start(params, view);
                (PolicyState::of(state), actions)
            },
            start_on_flows: adapt::start::<T>,
            interest: T::interest,
            on_event: |state, event, view, params| match event {
                ControlEvent::Reported(report) if !T::interest(params).reports => {
                    adapt::on_report::<T>(state, report, view, params)
                }
                _ => state.get_mut::<T>().on_event(event, view, params),
            },
            reports: T::REPORTS,
        }
    }

    /// Returns whether it runs on a datapath that reports on flows: it reads reports, or is [adapted](adapt).
    pub fn takes_reports(&self, params: &Params) -> bool {
        (self.interest)(params).reports || self.state_bytes <= adapt::ADAPTED_STATE_MAX
    }

    /// Whether its state travels, as [`carry`](report_control::ReportControl::carry) says of a fresh one.
    pub fn travels(&self, params: &Params) -> bool {
        let view = ControlView { now: Time::ZERO, line_rate: BitRate::gbps(100), mtu: 1_024, in_flight: 0 };
        let (mut state, _) = (self.start_on_flows)(params, &view);
        (self.reports.carry)(&mut state).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cwnd_below_one_still_lets_one_packet_out() {
        assert_eq!(Cwnd::from_fixed(Cwnd::ONE.fixed() / 100).whole_packets(), 1);
        assert_eq!(Cwnd::packets(110).whole_packets(), 110);
    }

    #[test]
    fn shares_of_a_window_add_up_to_it() {
        let shares = |window: Cwnd, flows| (0..flows).map(move |flow| window.share(flow, flows).fixed());
        for (packets, flows) in [1, 2, 7, 8, 32, 64, 1_024].into_iter().flat_map(|n| (1..=8).map(move |of| (n, of))) {
            let window = Cwnd::packets(packets);
            assert_eq!(shares(window, flows).sum::<u64>(), window.fixed(), "{packets} packets, {flows} flows");
            let (least, most) = (shares(window, flows).min(), shares(window, flows).max());
            assert!(most <= least.map(|least| least + (1 << 6)), "{packets} packets, {flows} flows: evenly");
            assert!(shares(window, flows).all(|share| share % (1 << 6) == 0), "as records have them");
        }
        assert!(shares(Cwnd::packets(32), 3).eq([10_923 << 6, 10_923 << 6, 10_922 << 6]), "the first take the rest");
        assert!(shares(Cwnd::from_fixed(2 << 6), 4).eq([1 << 6; 4]), "nobody has none");
    }
}
