//! What a datapath with flows, timestamps and timers of its own reports to a controller, and what it is told: Falcon.
//!
//! Source: OCP Falcon Transport Protocol, Rev 0.9, section 10.6 (events and results of the rate update engine), and the
//! Falcon paper (SIGCOMM'25), table 3, which has more signals and more results than the specification. Widths are
//! those of the records (`rnic-fae`): whatever a report or an answer holds can be written into 512 bits.
//!
//! A report speaks of one flow of one connection, and a flow has at most one report outstanding. What is in force comes
//! with it, so that a controller may keep nothing at all ([`Carried`]).

use rnic_base::{BitRate, Csig, Duration, Time};

use super::Cwnd;

/// An instant or a length of time in Falcon's unit: 24 bits of 2^17 ps (131.072 ns). Instants wrap every 2.199 s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ticks(u32);

impl Ticks {
    /// Bits of a value.
    pub const BITS: u32 = 24;
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest length, 2.199 s.
    pub const MAX: Self = Self((1 << Self::BITS) - 1);
    /// A tick is 2 to this power of picoseconds.
    const PS_LOG2: u32 = 17;

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MAX.0)
    }

    /// `value`, or the largest that 24 bits hold.
    #[inline]
    pub const fn saturating(value: u64) -> Self {
        if value > Self::MAX.0 as u64 { Self::MAX } else { Self(value as u32) }
    }

    /// The bits.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The instant `now`, as a clock with this resolution shows it.
    #[inline]
    pub const fn at(now: Time) -> Self {
        Self::new(Self::count(now) as u32)
    }

    /// Whole ticks until the instant `now`, of a clock that does not wrap.
    #[inline]
    pub const fn count(now: Time) -> u64 {
        now.as_ps() >> Self::PS_LOG2
    }

    /// The instant at which such a clock shows `count`.
    #[inline]
    pub const fn time(count: u64) -> Time {
        Time::from_ps(count << Self::PS_LOG2)
    }

    /// The length nearest to `span`.
    #[inline]
    pub const fn of(span: Duration) -> Self {
        Self::saturating(span.as_ps().saturating_add(1 << (Self::PS_LOG2 - 1)) >> Self::PS_LOG2)
    }

    /// This length.
    #[inline]
    pub const fn duration(self) -> Duration {
        Duration::from_ps((self.0 as u64) << Self::PS_LOG2)
    }

    /// From instant `earlier` to this one, modulo 2.199 s.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self::new(self.0.wrapping_sub(earlier.0))
    }

    /// As [`Ticks::since`], but what seems to be more than half of the circle is less than nothing: zero. Rounding of
    /// four instants makes a short delay negative, and taken for 2.199 s it would close a window.
    #[inline]
    pub const fn since_or_zero(self, earlier: Self) -> Self {
        let span = self.since(earlier);
        if span.0 > Self::MAX.0 / 2 { Self::ZERO } else { span }
    }
}

/// A gap between packets, in slots of the timing wheel (512 ns): 20 bits. Counted from the packet before, which has
/// been on its way for a round trip: a sender that remembers no last departure adds it to *now*.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Gap(u32);

impl Gap {
    /// No pacing.
    pub const NONE: Self = Self(0);
    /// The longest, 0.54 s.
    pub const MAX: Self = Self((1 << 20) - 1);
    const PS: u64 = 512_000;

    /// `slots` slots, at most [`Gap::MAX`].
    #[inline]
    pub const fn slots(slots: u64) -> Self {
        if slots > Self::MAX.0 as u64 { Self::MAX } else { Self(slots as u32) }
    }

    /// The shortest gap that is not shorter than `ticks` ticks.
    #[inline]
    pub const fn of_ticks(ticks: u64) -> Self {
        // 131.072 / 512 = 32 / 125.
        Self::slots((ticks.saturating_mul(32)).div_ceil(125))
    }

    /// Slots.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The length.
    #[inline]
    pub const fn duration(self) -> Duration {
        Duration::from_ps(self.0 as u64 * Self::PS)
    }

    /// The length in ticks, rounded up.
    #[inline]
    pub const fn ticks(self) -> u64 {
        (self.0 as u64 * 125).div_ceil(32)
    }
}

/// A rate that a connection's packets keep to, in steps of a Mbit/s: 20 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RateLimit(u32);

impl RateLimit {
    /// None.
    pub const NONE: Self = Self(0);
    /// Bits of a value.
    pub const BITS: u32 = 20;
    const STEP_BPS: u64 = 1_000_000;

    /// Returns `rate` in whole steps, at least one; none where that is the line's or more than 20 bits hold.
    #[inline]
    pub const fn of(rate: BitRate, line_rate: BitRate) -> Self {
        let steps = rate.as_bps() / Self::STEP_BPS;
        if rate.as_bps() >= line_rate.as_bps() || steps >> Self::BITS != 0 {
            return Self::NONE;
        }
        Self(if steps == 0 { 1 } else { steps as u32 })
    }

    /// Returns the limit that the low 20 bits of `steps` stand for.
    #[inline]
    pub const fn steps(steps: u32) -> Self {
        Self(steps & ((1 << Self::BITS) - 1))
    }

    /// Returns its steps.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether there is one.
    #[inline]
    pub const fn is_set(self) -> bool {
        self.0 != 0
    }

    /// Returns how long `bytes` take at it: no time where there is none.
    #[inline]
    pub const fn time_of(self, bytes: u64) -> Duration {
        if self.is_set() { BitRate::bps(self.0 as u64 * Self::STEP_BPS).serialize(bytes) } else { Duration::ZERO }
    }
}

/// How large a share of what is free one connection may hold (dynamic thresholds): 2^(3 - code), 8 to 1/4096.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Alpha(u8);

impl Alpha {
    /// 2^(3 - `code`); codes beyond 15 count as 15.
    #[inline]
    pub const fn code(code: u32) -> Self {
        Self(if code > 15 { 15 } else { code as u8 })
    }

    /// The code, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The threshold when `free` units are free: one at least, so that nobody is shut out for ever.
    #[inline]
    pub const fn of_free(self, free: u64) -> u64 {
        let share = (free << 3) >> self.0;
        if share == 0 { 1 } else { share }
    }
}

/// How often to ask for an acknowledgement: two packets in 2^code + 1, all of them for code 0, and 11.76 % for code 4.
///
/// The published simulator gives those two points; that the rest lies on the same curve is our inference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AckRate(u8);

impl AckRate {
    /// Every packet asks.
    pub const ALL: Self = Self(0);

    /// The rate of `code`; codes beyond 15 count as 15.
    #[inline]
    pub const fn code(code: u32) -> Self {
        Self(if code > 15 { 15 } else { code as u8 })
    }

    /// The code, 0 to 15.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Of so many packets, two ask.
    #[inline]
    pub const fn packets_per_two(self) -> u32 {
        (1 << self.0) + 1
    }
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportKind {
    /// An acknowledgement came in.
    Acked,
    /// A NACK came in.
    Nacked {
        /// Its code; 1 says that the receiver lacked resources ([`NACK_RESOURCES`]).
        code: u8,
    },
    /// A packet was sent again.
    Retransmitted {
        /// How often it has been by now, 1 for the first time; stops at 7.
        count: u8,
        /// Before its timeout, because later packets have arrived.
        early: bool,
    },
}

/// NACK code of a packet dropped for want of resources (specification, section 7.8).
pub const NACK_RESOURCES: u8 = 1;

/// Which delay the datapath wants to be regulated by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DelaySelect {
    /// The round trip, with the receiver's part in it.
    Full,
    /// The round trip less the receiver's part (F-17).
    #[default]
    Fabric,
    /// There alone; needs synchronised clocks.
    Forward,
    /// Back alone; needs synchronised clocks.
    Reverse,
}

/// What the datapath does at the moment, from earlier [`FlowActions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InForce {
    /// The flow's window.
    pub fcwnd: Cwnd,
    /// The connection's window towards the receiving NIC, in packets.
    pub ncwnd: u16,
    /// Pacing.
    pub gap: Gap,
    /// The connection's rate.
    pub rate: RateLimit,
    /// The retransmission timeout.
    pub rto: Ticks,
    /// How often acknowledgements are asked for.
    pub ack_rate: AckRate,
}

/// A datapath's report on one flow of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// What happened.
    pub kind: ReportKind,
    /// Index of the flow.
    pub flow: u8,
    /// Flows of the connection, 1 to 8.
    pub flows: u8,
    /// Packets of this flow acknowledged since the report before; stops at 1023.
    pub acked: u16,
    /// Of this flow, packets that arrived marked since the report before; stops at 1023.
    pub marked: u16,
    /// Packets of this flow that left since then, again or for the first time; stops at 1023.
    pub sent: u16,
    /// Packets of this flow that are in flight, with the one of the report no more; stops at 1023.
    pub in_flight: u16,
    /// Recovery has taken packets of this flow for lost since then, before their timeout.
    pub lost: bool,
    /// When the packet that drew the acknowledgement left (the sender's clock).
    pub t1: Ticks,
    /// When it arrived (the receiver's clock).
    pub t2: Ticks,
    /// When the acknowledgement left (the receiver's clock).
    pub t3: Ticks,
    /// When it arrived (the sender's clock): now. In a report on a retransmission the time of that, and the only one.
    pub t4: Ticks,
    /// Hops on the way there; stops at 15. Zero in a report on a retransmission.
    pub hops: u8,
    /// Occupancy of the receiver's buffers, 0 to 31. Zero in a report on a retransmission.
    pub rx_level: u8,
    /// Packets of this flow that arrived marked, cumulative, 14 bits. A report on a retransmission says again what the
    /// flow's last one said.
    pub ecn: u16,
    /// The tag that the most congested hop has written into the packet that drew the answer; `None` where switches
    /// write none.
    pub csig: Option<Csig>,
    /// Occupancy of our own resources, 0 to 31.
    pub occupancy: u8,
    /// Flow label in use, 20 bits.
    pub label: u32,
    /// It was an extended acknowledgement.
    pub extended: bool,
    /// It said that packets beyond the receiver's window were dropped.
    pub window_drop: bool,
    /// Which delay to go by.
    pub delay: DelaySelect,
    /// What is in force.
    pub in_force: InForce,
}

impl FlowReport {
    /// The four times.
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

    /// The delay to go by.
    #[inline]
    pub const fn delay(&self) -> Ticks {
        self.times().delay(self.delay)
    }
}

/// When a packet and its acknowledgement left and arrived; see [`FlowReport::t1`] and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The packet left (the sender's clock).
    pub t1: Ticks,
    /// It arrived (the receiver's clock).
    pub t2: Ticks,
    /// The acknowledgement left (the receiver's clock).
    pub t3: Ticks,
    /// It arrived (the sender's clock).
    pub t4: Ticks,
}

impl Times {
    /// The round trip: t4 - t1. A coalesced acknowledgement makes it longer.
    #[inline]
    pub const fn rtt(self) -> Ticks {
        self.t4.since_or_zero(self.t1)
    }

    /// What the fabric took there and back: (t4 - t1) - (t3 - t2), whatever the receiver's clock shows and however long
    /// it waited (paper, section 4.2).
    #[inline]
    pub const fn fabric_delay(self) -> Ticks {
        self.t4.since(self.t1).since_or_zero(self.t3.since(self.t2))
    }

    /// The delay that `select` names.
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

/// What a controller wants of such a datapath: for the flow of the report, or, as a first answer, for a connection
/// whose flows share `fcwnd` evenly ([`Cwnd::share`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowActions {
    /// The flow's window: 11 bits of packets, 10 of a packet's fraction. The datapath bounds a connection by the sum of
    /// its flows' (F-25).
    pub fcwnd: Cwnd,
    /// The connection's window towards the receiving NIC, in packets, 1 to 2047.
    pub ncwnd: u16,
    /// Pacing of the connection.
    pub gap: Gap,
    /// Rate of the connection, beside the gap.
    pub rate: RateLimit,
    /// Retransmission timeout of the connection. Zero leaves it as it is; so do the next two, to the recovery policy.
    pub rto: Ticks,
    /// RACK: so long after a packet of this flow was sent it is lost, if a later one has arrived.
    pub rack: Ticks,
    /// TLP: so long after the last packet or acknowledgement a probe is sent.
    pub tlp: Ticks,
    /// Give the flow a new label, and with it another path.
    pub repath: bool,
    /// The connection's share of resources for requests.
    pub alpha_requests: Alpha,
    /// The connection's share of resources for responses.
    pub alpha_responses: Alpha,
    /// How often to ask for acknowledgements.
    pub ack_rate: AckRate,
}

impl FlowActions {
    /// The widest [`Self::fcwnd`]: 11 bits of packets, 10 of a packet's fraction.
    pub const FCWND_MAX: Cwnd = Cwnd::from_fixed((1 << 27) - (1 << 6));
    /// The widest [`Self::ncwnd`]: 11 bits of packets.
    pub const NCWND_MAX: u16 = (1 << 11) - 1;
}

impl FlowActions {
    /// What is in force where that was done.
    #[inline]
    pub const fn in_force(&self) -> InForce {
        let Self { fcwnd, ncwnd, gap, rate, rto, ack_rate, .. } = *self;
        InForce { fcwnd, ncwnd, gap, rate, rto, ack_rate }
    }
}

/// What of a controller's state travels in events and responses, so that whoever runs it needs no memory of the
/// connection: the fields that the specification names. What is in force comes beside it ([`InForce`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// 24 bits for anything; the connection's.
    pub metadata: u32,
    /// When the flow's window was last cut, or a round trip ago.
    pub fabric_marker: Ticks,
    /// When the window towards the NIC last changed, or a round trip ago; the connection's.
    pub nic_marker: Ticks,
    /// That was an increase; the connection's.
    pub nic_grew: bool,
    /// The target delay before scaling.
    pub base_delay: Ticks,
    /// 24 bits of state on delays.
    pub delay_state: u32,
    /// The smoothed round trip.
    pub rtt_state: Ticks,
    /// 2 bits for anything.
    pub opaque: u8,
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
