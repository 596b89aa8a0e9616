//! Reports of a datapath that has flows, timestamps and timers of its own (Falcon) to a controller, and the settings
//! the controller returns.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 10.6 (events and results of the rate update engine), and the
//! Falcon paper (SIGCOMM'25), table 3, which has more signals and more results than the specification. Widths are those
//! of the records (`rnic-fae`): every value of a report or a response fits into the 512-bit records.
//!
//! A report concerns one flow of one connection, and a flow has at most one report outstanding. The report contains
//! the settings in force, so that a controller can run without stored state ([`Carried`]).

use rnic_base::{BitRate, Csig, Duration, Time};

use super::Cwnd;

/// A time or a duration in Falcon's unit: 24 bits of 2^17 ps (131.072 ns). Times wrap every 2.199 s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ticks(u32);

impl Ticks {
    /// Width of a value in bits.
    pub const BITS: u32 = 24;
    /// The zero duration.
    pub const ZERO: Self = Self(0);
    /// The longest duration, 2.199 s.
    pub const MAX: Self = Self((1 << Self::BITS) - 1);
    /// Base-2 logarithm of the picoseconds in a tick.
    const TICK_PS_LOG2: u32 = 17;

    /// Builds a value from the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MAX.0)
    }

    /// Builds a value from `value`, limited to the largest that 24 bits hold.
    #[inline]
    pub const fn saturating(value: u64) -> Self {
        if value > Self::MAX.0 as u64 { Self::MAX } else { Self(value as u32) }
    }

    /// Returns the value in ticks.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Converts the time `now`, as a clock with this resolution shows it.
    #[inline]
    pub const fn at(now: Time) -> Self {
        Self::new(Self::count(now) as u32)
    }

    /// Returns the number of whole ticks at the time `now`, as counted by a clock that does not wrap.
    #[inline]
    pub const fn count(now: Time) -> u64 {
        now.as_ps() >> Self::TICK_PS_LOG2
    }

    /// Returns the time at which a clock that does not wrap shows `count` ticks.
    #[inline]
    pub const fn time(count: u64) -> Time {
        Time::from_ps(count << Self::TICK_PS_LOG2)
    }

    /// Returns the duration nearest to `span`.
    #[inline]
    pub const fn of(span: Duration) -> Self {
        Self::saturating(span.as_ps().saturating_add(1 << (Self::TICK_PS_LOG2 - 1)) >> Self::TICK_PS_LOG2)
    }

    /// Converts to a duration.
    #[inline]
    pub const fn duration(self) -> Duration {
        Duration::from_ps((self.0 as u64) << Self::TICK_PS_LOG2)
    }

    /// Returns the duration from `earlier` to this time, modulo 2.199 s.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self::new(self.0.wrapping_sub(earlier.0))
    }

    /// Returns the same as [`Ticks::since`], but zero where the result exceeds half of the wrap period and is
    /// therefore negative. Rounding of four timestamps can make a short delay negative, and a controller that took it
    /// for 2.199 s would reduce its window to the minimum.
    #[inline]
    pub const fn since_or_zero(self, earlier: Self) -> Self {
        let span = self.since(earlier);
        if span.0 > Self::MAX.0 / 2 { Self::ZERO } else { span }
    }
}

/// An inter-packet gap for pacing, in slots of the timing wheel (512 ns): 20 bits. The gap is measured from the
/// transmission of the previous packet, about a round trip ago; a sender that does not store that time adds the gap
/// to the current time instead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Gap(u32);

impl Gap {
    /// No pacing.
    pub const NONE: Self = Self(0);
    /// The longest gap, 0.54 s.
    pub const MAX: Self = Self((1 << 20) - 1);
    const SLOT_PS: u64 = 512_000;

    /// Returns a gap of `slots` slots, at most [`Gap::MAX`].
    #[inline]
    pub const fn slots(slots: u64) -> Self {
        if slots > Self::MAX.0 as u64 { Self::MAX } else { Self(slots as u32) }
    }

    /// Returns the shortest gap that is not shorter than `ticks` ticks.
    #[inline]
    pub const fn of_ticks(ticks: u64) -> Self {
        // Ticks to slots: 131.072 ns / 512 ns = 32 / 125.
        Self::slots((ticks.saturating_mul(32)).div_ceil(125))
    }

    /// Returns the gap in slots.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the gap as a duration.
    #[inline]
    pub const fn duration(self) -> Duration {
        Duration::from_ps(self.0 as u64 * Self::SLOT_PS)
    }

    /// Returns the gap in ticks, rounded up.
    #[inline]
    pub const fn ticks(self) -> u64 {
        (self.0 as u64 * 125).div_ceil(32)
    }
}

/// A rate limit for a connection's packets, in steps of 1 Mbit/s: 20 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RateLimit(u32);

impl RateLimit {
    /// No limit.
    pub const NONE: Self = Self(0);
    /// Width of a value in bits.
    pub const BITS: u32 = 20;
    const STEP_BPS: u64 = 1_000_000;

    /// Returns `rate` in whole steps, at least one; no limit where `rate` is the line rate or exceeds 20 bits.
    #[inline]
    pub const fn of(rate: BitRate, line_rate: BitRate) -> Self {
        let steps = rate.as_bps() / Self::STEP_BPS;
        if rate.as_bps() >= line_rate.as_bps() || steps >> Self::BITS != 0 {
            return Self::NONE;
        }
        Self(if steps == 0 { 1 } else { steps as u32 })
    }

    /// Returns the limit encoded by the low 20 bits of `steps`.
    #[inline]
    pub const fn steps(steps: u32) -> Self {
        Self(steps & ((1 << Self::BITS) - 1))
    }

    /// Returns the limit in steps.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether a limit is set.
    #[inline]
    pub const fn is_set(self) -> bool {
        self.0 != 0
    }

    /// Returns the time that `bytes` take at this rate: zero where no limit is set.
    #[inline]
    pub const fn time_of(self, bytes: u64) -> Duration {
        if self.is_set() { BitRate::bps(self.0 as u64 * Self::STEP_BPS).serialize(bytes) } else { Duration::ZERO }
    }
}

/// The share of the free resources that one connection may hold (dynamic thresholds): 2^(3 - code), 8 to 1/4096.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Alpha(u8);

impl Alpha {
    /// Returns the share 2^(3 - `code`); codes beyond 15 count as 15.
    #[inline]
    pub const fn code(code: u32) -> Self {
        Self(if code > 15 { 15 } else { code as u8 })
    }

    /// Returns the code, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the threshold when `free` entries of a resource are free: at least one, so that no connection is
    /// excluded indefinitely.
    #[inline]
    pub const fn threshold_for_free(self, free: u64) -> u64 {
        let share = (free << 3) >> self.0;
        if share == 0 { 1 } else { share }
    }
}

/// The rate at which acknowledgements are requested: for two packets in 2^code + 1, which is every packet for code 0,
/// and 11.76 % for code 4.
///
/// The published simulator gives the rates for these two codes; that the other codes follow the same formula is our
/// inference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AckRate(u8);

impl AckRate {
    /// Every packet requests an acknowledgement.
    pub const ALL: Self = Self(0);

    /// Returns the rate of `code`; codes beyond 15 count as 15.
    #[inline]
    pub const fn code(code: u32) -> Self {
        Self(if code > 15 { 15 } else { code as u8 })
    }

    /// Returns the code, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number of packets of which two request an acknowledgement.
    #[inline]
    pub const fn packets_per_two(self) -> u32 {
        (1 << self.0) + 1
    }
}

/// The type of event reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportKind {
    /// An acknowledgement was received.
    Acked,
    /// A NACK was received.
    Nacked {
        /// NACK code; 1 indicates that the receiver lacked resources ([`NACK_RESOURCES`]).
        code: u8,
    },
    /// A packet was retransmitted.
    Retransmitted {
        /// Number of its retransmissions so far, 1 for the first; saturates at 7.
        count: u8,
        /// True when it was retransmitted before its timeout, because later packets have arrived.
        early: bool,
    },
}

/// NACK code of a packet dropped for lack of resources (specification, section 7.8).
pub const NACK_RESOURCES: u8 = 1;

/// The delay that the datapath selects for congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DelaySelect {
    /// The round trip, including the receiver's delay.
    Full,
    /// The round trip minus the receiver's delay (Falcon mechanism F-17).
    #[default]
    Fabric,
    /// The forward one-way delay; needs synchronised clocks.
    Forward,
    /// The reverse one-way delay; needs synchronised clocks.
    Reverse,
}

/// Settings of the datapath currently in force, from earlier [`FlowActions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentSettings {
    /// The flow's window, in packets.
    pub fcwnd: Cwnd,
    /// The connection's window towards the receiving NIC, in packets.
    pub ncwnd: u16,
    /// Pacing gap of the connection.
    pub gap: Gap,
    /// Rate limit of the connection.
    pub rate: RateLimit,
    /// Timeout after which a packet of the flow is retransmitted.
    pub rto: Ticks,
    /// Rate at which acknowledgements are requested.
    pub ack_rate: AckRate,
}

/// A datapath's report on one flow of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Type of event that is reported.
    pub kind: ReportKind,
    /// Index of the flow in its connection.
    pub flow: u8,
    /// Flows of the connection, 1 to 8.
    pub flows: u8,
    /// Packets of this flow acknowledged since the previous report; saturates at 1023.
    pub acked: u16,
    /// Packets of this flow that arrived marked since the previous report; saturates at 1023.
    pub marked: u16,
    /// Packets of this flow that were sent since the previous report, including retransmissions; saturates at 1023.
    pub sent: u16,
    /// Packets of this flow that are in flight, without the packet that the report is about; saturates at 1023.
    pub in_flight: u16,
    /// True when recovery has declared packets of this flow lost since the previous report, before their timeout.
    pub lost: bool,
    /// Time at which the packet that caused the acknowledgement was sent (the sender's clock).
    pub t1: Ticks,
    /// Time at which that packet arrived (the receiver's clock).
    pub t2: Ticks,
    /// Time at which the acknowledgement was sent (the receiver's clock).
    pub t3: Ticks,
    /// Time at which the acknowledgement arrived (the sender's clock): the current time. In a report on a
    /// retransmission, the time of the retransmission, and the only timestamp.
    pub t4: Ticks,
    /// Hops on the forward path; saturates at 15. Zero in a report on a retransmission.
    pub hops: u8,
    /// Occupancy of the receiver's buffers, 0 to 31. Zero in a report on a retransmission.
    pub rx_level: u8,
    /// Packets of this flow that arrived marked, cumulative, 14 bits. A report on a retransmission repeats the value of
    /// the flow's last report.
    pub ecn: u16,
    /// The tag that the most congested hop has written into the packet that caused the acknowledgement; `None` where
    /// switches write none.
    pub csig: Option<Csig>,
    /// Occupancy of the sender's own resources, 0 to 31.
    pub occupancy: u8,
    /// Flow label in use, 20 bits.
    pub label: u32,
    /// True for an extended acknowledgement.
    pub extended: bool,
    /// True when the acknowledgement reported that packets beyond the receiver's window were dropped.
    pub window_drop: bool,
    /// The delay to use for congestion control.
    pub delay: DelaySelect,
    /// Settings of the datapath currently in force.
    pub in_force: CurrentSettings,
}

impl FlowReport {
    /// Returns the four timestamps of a packet and its acknowledgement.
    #[inline]
    pub const fn times(&self) -> Times {
        Times { t1: self.t1, t2: self.t2, t3: self.t3, t4: self.t4 }
    }

    /// See [`Times::rtt`].
    #[inline]
    pub const fn rtt(&self) -> Ticks {
        self.times().rtt()
    }

    /// See [`Times::fabric_delay`].
    #[inline]
    pub const fn fabric_delay(&self) -> Ticks {
        self.times().fabric_delay()
    }

    /// Returns the delay selected for congestion control.
    #[inline]
    pub const fn delay(&self) -> Ticks {
        self.times().delay(self.delay)
    }
}

/// Timestamps of a packet and its acknowledgement; see [`FlowReport::t1`] and the fields after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Time at which the packet was sent (the sender's clock).
    pub t1: Ticks,
    /// Time at which the packet arrived (the receiver's clock).
    pub t2: Ticks,
    /// Time at which the acknowledgement was sent (the receiver's clock).
    pub t3: Ticks,
    /// Time at which the acknowledgement arrived (the sender's clock).
    pub t4: Ticks,
}

impl Times {
    /// Returns the round trip: t4 - t1. A coalesced acknowledgement makes it longer.
    #[inline]
    pub const fn rtt(self) -> Ticks {
        self.t4.since_or_zero(self.t1)
    }

    /// Returns the delay of the fabric in both directions: (t4 - t1) - (t3 - t2), independent of the offset of the
    /// receiver's clock and of the receiver's delay (paper, section 4.2).
    #[inline]
    pub const fn fabric_delay(self) -> Ticks {
        self.t4.since(self.t1).since_or_zero(self.t3.since(self.t2))
    }

    /// Returns the delay selected by `select`.
    #[inline]
    pub const fn delay(self, select: DelaySelect) -> Ticks {
        match select {
            DelaySelect::Full => self.rtt(),
            DelaySelect::Fabric => self.fabric_delay(),
            DelaySelect::Forward => self.t2.since_or_zero(self.t1),
            DelaySelect::Reverse => self.t4.since_or_zero(self.t3),
        }
    }
}

/// Settings that a controller requests from a datapath with flows: for the flow of the report, or, as the initial
/// settings, for a connection whose flows share `fcwnd` evenly ([`Cwnd::share`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowActions {
    /// The flow's window, in packets: 11 integer bits, 10 fractional bits. The datapath limits a connection by the sum
    /// of its flows' windows (Falcon mechanism F-25).
    pub fcwnd: Cwnd,
    /// The connection's window towards the receiving NIC, in packets, 1 to 2047.
    pub ncwnd: u16,
    /// Pacing gap of the connection.
    pub gap: Gap,
    /// Rate limit of the connection, in addition to the gap.
    pub rate: RateLimit,
    /// Retransmission timeout of the connection. Zero leaves it to the recovery policy; the same holds for the next two
    /// fields.
    pub rto: Ticks,
    /// RACK timeout: a packet of this flow is lost this long after it was sent, if a later one has arrived.
    pub rack: Ticks,
    /// TLP timeout: a probe is sent this long after the last packet or acknowledgement.
    pub tlp: Ticks,
    /// True to give the flow a new label, and thereby another path.
    pub repath: bool,
    /// The connection's share of resources for requests.
    pub alpha_requests: Alpha,
    /// The connection's share of resources for responses.
    pub alpha_responses: Alpha,
    /// Rate at which to request acknowledgements.
    pub ack_rate: AckRate,
}

impl FlowActions {
    /// The largest [`Self::fcwnd`]: 11 integer bits, 10 fractional bits.
    pub const FCWND_MAX: Cwnd = Cwnd::from_fixed((1 << 27) - (1 << 6));
    /// The largest [`Self::ncwnd`]: 11 bits of packets.
    pub const NCWND_MAX: u16 = (1 << 11) - 1;
}

impl FlowActions {
    /// Returns the settings in force after these actions are applied.
    #[inline]
    pub const fn in_force(&self) -> CurrentSettings {
        let Self { fcwnd, ncwnd, gap, rate, rto, ack_rate, .. } = *self;
        CurrentSettings { fcwnd, ncwnd, gap, rate, rto, ack_rate }
    }
}

/// The part of a controller's state that is carried in events and responses, so that the engine that runs it needs no
/// per-connection memory: the fields named by the specification. The settings in force are passed separately
/// ([`CurrentSettings`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// 24 bits for any use; one value for the connection.
    pub metadata: u32,
    /// Time of the last reduction of the flow's window; if it was not reduced recently, the time one round trip ago.
    pub fabric_marker: Ticks,
    /// Time of the last change of the window towards the receiving NIC; if it was not changed recently, the time one
    /// round trip ago. One value for the connection.
    pub nic_marker: Ticks,
    /// True when that change was an increase; one value for the connection.
    pub nic_grew: bool,
    /// The target delay before scaling.
    pub base_delay: Ticks,
    /// 24 bits of state about delays.
    pub delay_state: u32,
    /// The smoothed round-trip time.
    pub rtt_state: Ticks,
    /// 2 bits for any use.
    pub opaque: u8,
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
