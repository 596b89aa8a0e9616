//! Loss recovery: decides which packets are lost and which are retransmitted, and sets timeouts.
//!
//! The engine keeps the window (Tonic's fixed function): it advances the cumulative acknowledgement, records selective
//! ones, stores which packets are marked for retransmission, sends marked packets lowest first and before new ones, and
//! runs one timer. The policy decides which packets to mark and how to set the timer.
//!
//! Falcon's windows also store the transmit time of each packet, so that policies can distinguish loss from reordering
//! by time (RACK-TLP): they return a rule ([`LossRule`]), and the window searches for the packets to which it applies.

use bytemuck::Pod;
use rnic_base::{AnyRing, BitRate, Duration, Seq, SeqRange, Time};

use crate::field::FootprintField;
use crate::params::{ParamSpec, Params};

/// The receiver's treatment of out-of-order packets, in which the papers differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Drops packets that arrive out of order: go-back-N.
    Drop,
    /// Writes packets that arrive out of order to their final location in memory, and completes messages in order: IRN
    /// (section 5.3).
    PlaceOutOfOrder,
    /// Places out-of-order Writes (except a last packet with immediate data, which consumes a receive) and Read
    /// responses in the same way, and drops out-of-order Sends and requests: RoCE's selective repeat. Its
    /// acknowledgements carry only the next expected sequence number, not those of other packets that have arrived.
    PlaceWrites,
}

impl Placement {
    /// Returns whether any out-of-order packets are kept, so that windows need bitmaps and each packet needs its own
    /// address.
    #[inline]
    pub const fn keeps_out_of_order(self) -> bool {
        !matches!(self, Self::Drop)
    }
}

/// An event of a window, delivered after the window itself has been updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryEvent {
    /// The cumulative acknowledgement advanced.
    Acked {
        /// Number of packets newly acknowledged.
        packets: u64,
        /// Round-trip time of a packet that was sent once and is now acknowledged, when one was being timed.
        rtt: Option<Duration>,
    },
    /// The receiver reports a gap: it expects `una`, and (when `sack` is set) has kept a later packet.
    Nacked {
        /// The out-of-order packet that was kept; `None` when the receiver keeps none.
        sack: Option<Seq>,
        /// Number of packets that the receiver is missing, for transports whose receiver counts them (FaSR section
        /// III-B).
        losses: Option<LossReport>,
        /// True when the sender did not know yet that the packet `sack` was kept.
        is_new: bool,
        /// True when the same packet has advanced the cumulative acknowledgement: an [`RecoveryEvent::Acked`] precedes.
        advanced: bool,
    },
    /// The receiver reports that packet `seq`, which is outstanding, arrived without its payload: a switch has trimmed
    /// it. Only where receivers pull ([`crate::Profile::pulls`]).
    Trimmed {
        /// Sequence number of the packet.
        seq: Seq,
    },
    /// The retransmission timer expired.
    TimedOut {
        /// True when the timer was extended since it was last started.
        extended: bool,
    },
    /// A packet, last transmitted at `sent`, has arrived. Only for policies with [`Recovery::TIMES_PACKETS`].
    Delivered {
        /// Transmit time of the packet. If the peer echoes times of coarser resolution, the beginning of the interval
        /// of that resolution that contains it.
        sent: Time,
        /// Time from the transmission to its acknowledgement, if the acknowledgement carries it.
        rtt: Option<Duration>,
    },
    /// No packet was sent or acknowledged for the time given by [`RecoveryActions::probe`]. Only for policies with
    /// [`Recovery::TIMES_PACKETS`].
    Quiet,
    /// A report that is older than the last acknowledgement shows that this packet was kept, which was not known yet.
    /// Only for programs.
    Arrived {
        /// The packet that was kept.
        seq: Seq,
    },
    /// The peer reports that packets of this window met congestion (a CNP). Only for programs.
    Congested,
    /// The time given by [`RecoveryActions::tick_after`] has passed. Only for programs.
    Tick,
}

/// Loss information of FaSR's receivers in addition to the position of the gap (sections III-B and III-D).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossReport {
    /// Number of packets missing at the receiver below the highest received one: `lost-cnt`.
    pub lost: u8,
    /// True when more are missing than the counter can hold; the counter then stays unchanged until the recovery is
    /// complete.
    pub overflow: bool,
    /// Cause of the report.
    pub cause: LossCause,
}

/// The packet that caused a [`LossReport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossCause {
    /// An out-of-order packet, which the receiver kept: SACK.
    OutOfOrder,
    /// A retransmitted packet that had been missing: AACK. It does not indicate a gap by itself.
    Repaired,
    /// A packet beyond the first gap and below the highest packet, which indicates that the packets retransmitted
    /// before it are lost again. The receiver dropped it: FNACK.
    Misplaced,
}

/// The sender's side of a window, read-only.
#[derive(Clone, Copy, Debug)]
pub struct WindowView<'a> {
    /// Current time.
    pub now: Time,
    /// The oldest packet not yet cumulatively acknowledged.
    pub una: Seq,
    /// The next packet to be sent for the first time.
    pub next: Seq,
    /// The highest selectively acknowledged packet, if there is one above `una`.
    pub highest_sacked: Option<Seq>,
    /// Selectively acknowledged packets, as offsets from `una`; `None` when the window keeps no bitmap. With Falcon,
    /// which reports arrivals before it acknowledges them: packets that have arrived.
    pub sacked: Option<&'a AnyRing>,
    /// Packets marked for retransmission, as offsets from `una`; `None` when the window keeps no bitmap.
    pub marked: Option<&'a AnyRing>,
    /// Number of packets sent, retransmissions included, counted from an arbitrary start. Only for programs.
    pub sent: u64,
}

impl WindowView<'_> {
    /// Returns the number of packets in flight as counted by IRN (section 3.2): next sequence number minus last
    /// acknowledged one.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.next.since(self.una)
    }

    /// Returns the range of unacknowledged packets.
    #[inline]
    pub fn outstanding(&self) -> SeqRange {
        SeqRange::new(self.una, self.next)
    }
}

/// A change of the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimerChange {
    /// The default: the timer restarts when the cumulative acknowledgement advances and after it expired, and otherwise
    /// continues.
    #[default]
    Keep,
    /// Starts the timer anew from the current time.
    Restart,
    /// The timer expired too early to act: it is extended by this duration. Permitted only in response to
    /// [`RecoveryEvent::TimedOut`].
    Extend(Duration),
    /// The timer continues, even if the cumulative acknowledgement has advanced.
    Continue,
}

/// A rule that declares packets lost by time: all packets in `range` that have not arrived, whose last transmission was
/// not later than `sent_until`, once that transmission is `age` old. The window, which stores the times, searches for
/// such packets when the rule is set and when more reach that age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossRule {
    /// Range in which the rule applies: within the outstanding packets.
    pub range: SeqRange,
    /// Latest transmit time to which the rule applies. Not in the future.
    pub sent_until: Time,
    /// Time since transmission after which a packet is lost.
    pub age: Duration,
}

/// Actions that a recovery policy requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryActions {
    /// Packets to retransmit, except those acknowledged in the meantime. Must lie within the range in flight.
    pub retransmit: Option<SeqRange>,
    /// Change of the timer.
    pub timer: TimerChange,
    /// New timeout; `Some(None)` switches the timer off.
    pub rto: Option<Option<Duration>>,
    /// True while the sender is recovering from a loss: policies that declare [`Interest::Recovering`] receive
    /// acknowledgements only then. Programs, for which it may be true from the beginning: while an acknowledgement may
    /// change anything.
    pub recovering: bool,
    /// New loss rule; replaces an earlier rule. Only from policies with [`Recovery::TIMES_PACKETS`].
    pub lost: Option<LossRule>,
    /// New time without transmissions or acknowledgements after which a [`RecoveryEvent::Quiet`] is delivered;
    /// `Some(None)` switches that off. Only from policies with [`Recovery::TIMES_PACKETS`].
    pub probe: Option<Option<Duration>>,
    /// New window: maximum number of packets in flight, counted from `una`. Only from programs.
    pub window: Option<u32>,
    /// New sending rate; `Some(None)` means the rate of the link. Only from programs.
    pub rate: Option<Option<BitRate>>,
    /// Time after which a [`RecoveryEvent::Tick`] is delivered; `None` cancels an earlier request. Only from programs.
    pub tick_after: Option<Duration>,
    /// True when the program has been replaced for good by a trusted substitute, from which these actions are.
    pub replaced: bool,
}

/// The acknowledgements that are delivered to a policy. Not calling a policy for acknowledgements that it ignores saves
/// time in the common case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// None: NACKs and timeouts are sufficient.
    Never,
    /// Acknowledgements that arrive while the policy is recovering.
    Recovering,
    /// All acknowledgements, with round-trip times.
    Always,
}

/// A loss recovery algorithm. The implementing type is the private state of one window.
pub trait Recovery: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunable parameters.
    const PARAMS: &'static [ParamSpec];
    /// True when a gap alone makes the policy retransmit. Such a policy must not be combined with paths that reorder,
    /// unless [`Recovery::tolerates_reordering`] indicates that its parameters allow for it.
    const GAP_IS_LOSS: bool;
    /// The receiver's treatment of out-of-order packets that this algorithm requires.
    const PLACEMENT: Placement;
    /// True when the receiver reports gaps. If false, the sender detects a loss only by the absence of
    /// acknowledgements.
    const REPORTS_GAPS: bool = true;
    /// True when the policy uses the time at which each packet was last sent. Only windows that store it (Falcon's) can
    /// run such a policy; each flow of a window has a state of its own, and receives the events of its own packets.
    const TIMES_PACKETS: bool = false;
    /// State that a hardware implementation would store for the policy, in addition to a RoCE adapter's own context
    /// and the windows' bitmaps.
    const FOOTPRINT: &'static [FootprintField] = &[];

    /// Required: returns the state of a window without packets in flight.
    fn start(params: &Params) -> Self;

    /// Required: returns the initial timeout; `None` means that the timer never runs.
    fn initial_rto(params: &Params) -> Option<Duration>;

    /// Required: returns which acknowledgements are delivered to the policy, under these parameters.
    fn interest(params: &Params) -> Interest;

    /// Required: reacts to `event` and returns the actions to apply.
    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions;

    /// Optional: returns the longest timeout, for an algorithm that backs off; `None` means unlimited. Default: the
    /// initial timeout.
    fn longest_rto(params: &Params) -> Option<Duration> {
        Self::initial_rto(params)
    }

    /// Optional: returns whether the timer runs from the last packet sent instead of from the last acknowledgement.
    /// Default: no.
    fn times_last_sent(params: &Params) -> bool {
        let _ = params;
        false
    }

    /// Optional: returns whether these parameters make the policy wait before it treats a gap as a loss. Default: no.
    fn tolerates_reordering(params: &Params) -> bool {
        let _ = params;
        !Self::GAP_IS_LOSS
    }
}
