//! Congestion control: the amount of data that may be in flight, and the sending rate.
//!
//! The engine sends a packet only when every limit allows it: the static cap of the profile, this policy's window and
//! this policy's rate. With a policy that sets neither, the sender transmits at line rate.
//!
//! A datapath that measures more and accepts more settings (Falcon: [`report`]) uses the same contract, with an
//! additional event and additional actions: [`ControlEvent::Reported`], [`ControlActions::flow`]. For a controller
//! that does not read reports itself, reports are translated into the other events ([`adapt`]), so every controller
//! runs on both types of datapath.

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

use crate::params::{Configured, ParamSpec, Params};
use crate::paths::PathLabel;
use crate::state::PolicyState;

/// A congestion window in packets, with 16 fractional bits: Falcon's fcwnd goes down to 0.01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Cwnd(u64);

impl Cwnd {
    /// A window of one packet.
    pub const ONE: Self = Self(1 << 16);
    /// Number of fractional bits of a window beyond the 10 that the adaptive engine's records have.
    const STEP_LOG2: u32 = 6;

    /// Returns a window of `packets` whole packets.
    #[inline]
    pub const fn packets(packets: u64) -> Self {
        Self(packets << 16)
    }

    /// Builds a window from the 48.16 fixed-point form.
    #[inline]
    pub const fn from_fixed(fixed: u64) -> Self {
        Self(fixed)
    }

    /// Returns the 48.16 fixed-point form.
    #[inline]
    pub const fn fixed(self) -> u64 {
        self.0
    }

    /// Returns the window in packets as a floating-point number, for display: 0.25 is a packet every four round trips.
    #[inline]
    pub fn as_packets_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }

    /// Returns the share of flow `flow` when `flows` flows divide this window: in steps of 1/1024 packet, the
    /// resolution of the adaptive engine's records; where it cannot be divided evenly, the first flows get one step
    /// more. The shares add up to the window, except that no share is below one step.
    #[inline]
    pub const fn share(self, flow: u8, flows: u8) -> Self {
        let (steps, flows) = (self.0 >> Self::STEP_LOG2, flows as u64);
        let share = steps / flows + ((flow as u64) < steps % flows) as u64;
        Self(if share == 0 { 1 } else { share } << Self::STEP_LOG2)
    }

    /// Returns the whole packets that fit, at least one: a window below one packet is enforced by pacing, not by
    /// sending nothing.
    #[inline]
    pub const fn whole_packets(self) -> u64 {
        let whole = self.0 >> 16;
        if whole == 0 { 1 } else { whole }
    }
}

/// An event that is delivered to a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlEvent {
    /// The cumulative acknowledgement advanced, or the packet being timed was acknowledged selectively.
    Acked {
        /// Number of packets newly acknowledged; zero when only the round-trip time is new.
        packets: u64,
        /// Round-trip time of a packet that was sent once (or retransmitted:
        /// [`ControlInterest::times_retransmitted`]), when one was being timed.
        rtt: Option<Duration>,
        /// Number of these packets whose acknowledgement reported congestion marks. Always zero without
        /// [`ControlInterest::echo`].
        marked: u64,
    },
    /// The receiver reported a gap.
    Nacked {
        /// True when recovery treats the gap as a loss and retransmits. Otherwise recovery waits, and the controller
        /// should too.
        lost: bool,
    },
    /// The retransmission timer expired and the recovery policy acted on it.
    TimedOut,
    /// A congestion notification packet was received.
    Cnp,
    /// Packets were sent. Delivered only to controllers with [`ControlInterest::sent`].
    Sent {
        /// Number of payload bytes sent.
        bytes: u64,
    },
    /// The time requested with [`ControlActions::tick_after`] is reached.
    Tick,
    /// A probe that was requested with [`ControlActions::probe`] has been answered (SCR mechanism S-8).
    RoundTrip {
        /// Path on which the probe was sent.
        path: PathLabel,
        /// Round-trip time, without the time that the answering NIC took.
        rtt: Duration,
        /// Delays in the hosts at both ends, as last reported.
        host: HostDelays,
    },
    /// A probe that was requested with [`ControlActions::probe`] has not been answered in time.
    ProbeLost {
        /// Path on which the probe was sent.
        path: PathLabel,
    },
    /// A datapath with flows reports on one of them. Delivered instead of the other events, and only to controllers
    /// with [`ControlInterest::reports`].
    Reported(FlowReport),
}

/// Delays of packets in the hosts at both ends of a path, beyond the network: the latency of the host bus, or what
/// takes its place. Zero where it is not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostDelays {
    /// Delay at this end of the connection.
    pub local: Duration,
    /// Delay at the other end of the connection.
    pub peer: Duration,
    /// True when probes have these delays, too: the round trip of a probe contains both. Otherwise NICs answer probes
    /// before the host has any part in it.
    pub are_in_round_trip: bool,
}

/// Read-only state that a controller receives with an event.
#[derive(Clone, Copy, Debug)]
pub struct ControlView {
    /// Current time. Falcon's adaptive engine takes it from [`FlowReport::t4`]: the time of the event, in steps of
    /// 131 ns. When the engine runs on a thread, it has no other source of time; if the NIC receives no packet at all
    /// for 2.1 s or more, this time may be too small by a multiple of 2.199 s.
    pub now: Time,
    /// Rate of the local link.
    pub line_rate: BitRate,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Packets outstanding: requests, and responses where they have sequence numbers of their own. Always zero in
    /// Falcon's adaptive engine, whose events do not carry it.
    pub in_flight: u64,
}

/// Actions that a controller requests; `None` leaves a setting unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlActions {
    /// New congestion window, in packets.
    pub window: Option<Cwnd>,
    /// New sending rate, above zero and at most the line rate.
    pub rate: Option<BitRate>,
    /// Delay after which a [`ControlEvent::Tick`] is delivered; replaces an earlier request. A datapath with flows has
    /// no ticks, and a response to [`ControlEvent::Reported`] requests none.
    pub tick_after: Option<Duration>,
    /// Sends a probe on the current path, for controllers that need [`Signals::PROBES`]. Each request ends in a
    /// [`ControlEvent::RoundTrip`] or, when the probe is not answered within this time or cannot be sent, in a
    /// [`ControlEvent::ProbeLost`]. At most one probe is outstanding; a request while one is ends in the same event as
    /// that one.
    pub probe: Option<Duration>,
    /// New settings of the flow that an event is about, for datapaths with flows: set in the response to every
    /// [`ControlEvent::Reported`], and, when a connection is created, to the initial settings of all its flows. A
    /// datapath without flows ignores it.
    pub flow: Option<FlowActions>,
}

/// The signals that a controller needs, and the frequent events that it subscribes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlInterest {
    /// The signals that the controller requires. A profile whose transport does not measure all of them is refused.
    pub needs: Signals,
    /// True to receive [`ControlEvent::Acked`].
    pub acked: bool,
    /// True to receive [`ControlEvent::Sent`].
    pub sent: bool,
    /// Makes the receiver turn congestion marks into CNPs, at most one in this interval.
    pub cnp_interval: Option<Duration>,
    /// Makes the receiver indicate in an acknowledgement (by its BECN bit) whether the packet that caused it was
    /// marked. When packets are not acknowledged individually, the bit covers all packets since the previous
    /// acknowledgement.
    pub echo: bool,
    /// True when a retransmitted packet may be used for a round-trip measurement too, from its last transmission.
    /// Where receivers drop out-of-order packets (go-back-N), no new packet is sent after a loss until all
    /// retransmissions are done, and an acknowledgement belongs to the last transmission; after a spurious timeout it
    /// may belong to the previous transmission.
    pub times_retransmitted: bool,
    /// True when the controller processes [`ControlEvent::Reported`].
    pub reports: bool,
}

/// A congestion control algorithm, as its author writes it. The implementing type is the private state of one queue
/// pair.
pub trait Control: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunable parameters.
    const PARAMS: &'static [ParamSpec];
    /// The report policy of a [`ReportControl`](report_control::ReportControl): `ReportPolicy::of::<Self>()`.
    const REPORTS: ReportPolicy = ReportPolicy::NONE;

    /// Required: returns the state of a new queue pair, and its first window and rate.
    fn start(params: &Params, view: &ControlView) -> (Self, ControlActions);

    /// Required: returns the frequent events that the controller subscribes to.
    fn interest(params: &Params) -> ControlInterest;

    /// Required: reacts to `event` and returns the actions to apply.
    fn on_event(&mut self, event: &ControlEvent, view: &ControlView, params: &Params) -> ControlActions;
}

/// A type-erased [`Control`] algorithm.
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
    /// Like [`Control::start`], on a datapath that reports on flows: the returned actions include the flows' settings.
    pub start_on_flows: fn(&Params, &ControlView) -> (PolicyState, ControlActions),
    /// See [`Control::interest`].
    pub interest: fn(&Params) -> ControlInterest,
    /// See [`Control::on_event`].
    pub on_event: fn(&mut PolicyState, &ControlEvent, &ControlView, &Params) -> ControlActions,
    /// See [`Control::REPORTS`].
    pub reports: ReportPolicy,
}

impl ControlPolicy {
    /// Builds the type-erased policy of `T`.
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

    /// Returns the type-erased policy of `T` with the defaults of its parameters.
    pub const fn configured<T: Control>() -> Configured<Self> {
        Configured { policy: Self::of::<T>(), params: Params::defaults(T::PARAMS) }
    }

    /// Returns whether the controller runs on a datapath that reports on flows: it reads reports, or is
    /// [adapted](adapt).
    pub fn takes_reports(&self, params: &Params) -> bool {
        (self.interest)(params).reports || self.state_bytes <= adapt::ADAPTED_STATE_MAX
    }

    /// Returns whether the controller's state is carried in events and responses, as
    /// [`carry`](report_control::ReportControl::carry) indicates for a new state.
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
    fn cwnd_below_one_still_permits_one_packet() {
        assert_eq!(Cwnd::from_fixed(Cwnd::ONE.fixed() / 100).whole_packets(), 1);
        assert_eq!(Cwnd::packets(110).whole_packets(), 110);
    }

    #[test]
    fn shares_of_a_window_add_up_to_it() {
        let shares = |window: Cwnd, flows| (0..flows).map(move |flow| window.share(flow, flows).fixed());
        for (packets, flows) in
            [1, 2, 7, 8, 32, 64, 1_024].into_iter().flat_map(|packets| (1..=8).map(move |flows| (packets, flows)))
        {
            let window = Cwnd::packets(packets);
            assert_eq!(shares(window, flows).sum::<u64>(), window.fixed(), "{packets} packets, {flows} flows");
            let (smallest, largest) = (shares(window, flows).min(), shares(window, flows).max());
            assert!(
                largest <= smallest.map(|smallest| smallest + (1 << 6)),
                "{packets} packets, {flows} flows: the shares are uneven"
            );
            assert!(shares(window, flows).all(|share| share % (1 << 6) == 0), "no whole steps of a record");
        }
        assert!(shares(Cwnd::packets(32), 3).eq([10_923 << 6, 10_923 << 6, 10_922 << 6]), "wrong division of the rest");
        assert!(shares(Cwnd::from_fixed(2 << 6), 4).eq([1 << 6; 4]), "a share is zero");
    }
}
