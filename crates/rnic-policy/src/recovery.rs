//! Loss recovery: when is a packet lost, what is sent again, how long do we wait.
//!
//! The engine keeps the window (Tonic's fixed function): it moves the cumulative acknowledgement, records selective
//! ones, remembers what is marked for retransmission, sends marked packets lowest first and before new ones, and runs
//! one timer. The policy decides which packets to mark and what the timer does.
//!
//! Falcon's windows also keep when each packet left, so that policies can tell loss from reordering by time
//! (RACK-TLP): they answer with a rule ([`LossRule`]), and looking through packets remains the window's work.

use bytemuck::Pod;
use rnic_base::{AnyRing, Duration, Seq, SeqRange, Time};

use crate::field::FootprintField;
use crate::params::{ParamSpec, Params};
use crate::state::PolicyState;

/// What a receiver does with packets that arrive before their turn: the papers differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Drops them: go-back-N.
    Drop,
    /// Writes them to their final place and completes in order: IRN (section 5.3).
    PlaceOutOfOrder,
    /// Does that with Writes (but for a last packet with immediate data, which takes a receive) and Read responses, and
    /// drops early Sends and requests: RoCE's selective repeat. Its acknowledgements name the next packet expected and
    /// nothing else that has arrived.
    PlaceWrites,
}

impl Placement {
    /// Whether any early packet is kept, so that windows need bitmaps and packets addresses of their own.
    #[inline]
    pub const fn keeps_early(self) -> bool {
        !matches!(self, Self::Drop)
    }
}

/// What happened to a window, after the window itself has been updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryEvent {
    /// The cumulative acknowledgement moved on.
    Acked {
        /// By how many packets.
        packets: u64,
        /// Round-trip time of a packet that was sent once and is now acknowledged, when one was being timed.
        rtt: Option<Duration>,
    },
    /// The receiver reports a gap: it expects `una`, and (if `sack` says so) has kept a later packet.
    Nacked {
        /// The out-of-order packet that was kept; `None` when the receiver keeps none.
        sack: Option<Seq>,
        /// How much the receiver misses, where it counts that (FaSR section III-B).
        losses: Option<LossReport>,
    },
    /// The timer ran out.
    TimedOut {
        /// Whether it had been extended since it was last started.
        extended: bool,
    },
    /// A packet arrived that left, for the last time, at `sent`. Only to policies with [`Recovery::TIMES_PACKETS`].
    Delivered {
        /// When it left: the beginning of the unit of time in which it did, where the peer echoes coarser times.
        sent: Time,
        /// How long its acknowledgement took, when it says so.
        rtt: Option<Duration>,
    },
    /// Nothing was sent or acknowledged for as long as [`RecoveryActions::probe`] said. Only to policies with
    /// [`Recovery::TIMES_PACKETS`].
    Quiet,
}

/// What FaSR's receivers say beside where the gap is (sections III-B and III-D).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossReport {
    /// Packets that the receiver misses below the highest that it has: `lost-cnt`.
    pub lost: u8,
    /// There are more than the counter can say; it stands still until the recovery is over.
    pub overflow: bool,
    /// What made the receiver say so.
    pub cause: LossCause,
}

/// What a [`LossReport`] answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossCause {
    /// An early packet, which it kept: SACK.
    Early,
    /// A packet that was sent again, and had been missing: AACK. Not a gap by itself.
    Repaired,
    /// A packet from behind the first gap and before the highest packet: what was sent again before it must be lost
    /// again. It was dropped: FNACK.
    Misplaced,
}

/// The sender's side of a window, read-only.
#[derive(Clone, Copy, Debug)]
pub struct WindowView<'a> {
    /// Now.
    pub now: Time,
    /// The oldest packet not yet cumulatively acknowledged.
    pub una: Seq,
    /// The next packet that has never been sent.
    pub next: Seq,
    /// The highest selectively acknowledged packet, when there is one above `una`.
    pub highest_sacked: Option<Seq>,
    /// Selectively acknowledged packets, as offsets from `una`; `None` when the window keeps no bitmap. Where packets
    /// arrive before they are acknowledged (Falcon), those that have arrived.
    pub sacked: Option<&'a AnyRing>,
}

impl WindowView<'_> {
    /// Packets in flight the way IRN counts them (section 3.2): next sequence number minus last acknowledged one.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.next.since(self.una)
    }

    /// Everything outstanding.
    #[inline]
    pub fn outstanding(&self) -> SeqRange {
        SeqRange::new(self.una, self.next)
    }
}

/// What to do with the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimerChange {
    /// The default: it restarts when the cumulative acknowledgement moves and after it ran out, else it runs on.
    #[default]
    Keep,
    /// Start it anew now.
    Restart,
    /// It ran out, but too early to act: wait this much longer. Legal only in answer to [`RecoveryEvent::TimedOut`].
    Extend(Duration),
}

/// Which packets are lost, said by time: all in `range` that have not arrived, whose last transmission is not later
/// than `sent_until`, once it is `age` old. The window, which keeps the times, looks for them, now and when they
/// come of age.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossRule {
    /// Where to look: within what is outstanding.
    pub range: SeqRange,
    /// Packets sent later are not judged. Not in the future.
    pub sent_until: Time,
    /// How long ago a packet must have been sent.
    pub age: Duration,
}

/// What a recovery policy wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryActions {
    /// Send these again, except those acknowledged meanwhile. Must lie within what is outstanding.
    pub retransmit: Option<SeqRange>,
    /// What to do with the timer.
    pub timer: TimerChange,
    /// From now on the timer runs this long; `Some(None)` switches it off.
    pub rto: Option<Option<Duration>>,
    /// Whether the sender is recovering from a loss: policies that declare [`Interest::Recovering`] hear of
    /// acknowledgements only then.
    pub recovering: bool,
    /// From now on this is what is lost; replaces an earlier rule. Only from policies with [`Recovery::TIMES_PACKETS`].
    pub lost: Option<LossRule>,
    /// From now on a [`RecoveryEvent::Quiet`] follows when nothing is sent or acknowledged for so long; `Some(None)`
    /// switches that off. Only from policies with [`Recovery::TIMES_PACKETS`].
    pub probe: Option<Option<Duration>>,
}

/// Which acknowledgements a policy wants to hear of. Not hearing of them keeps the common case free of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// None: NACKs and timeouts tell it enough.
    Never,
    /// Those that arrive while it is recovering.
    Recovering,
    /// All of them, with round-trip times.
    Always,
}

/// A loss recovery algorithm, as its author writes it. The type itself is the private state of one window.
pub trait Recovery: Pod {
    /// Name in plans and tables.
    const NAME: &'static str;
    /// One line for `rnic list`, with the source.
    const SUMMARY: &'static str;
    /// Tunables.
    const PARAMS: &'static [ParamSpec];
    /// Whether a gap alone makes it retransmit. Such a policy must not be combined with paths that reorder, unless
    /// [`Recovery::tolerates_reordering`] says that its parameters allow for it.
    const GAP_IS_LOSS: bool;
    /// What the receiver must do with packets that arrive early for this algorithm to make sense.
    const PLACEMENT: Placement;
    /// Whether the receiver reports gaps. If not, nothing but silence tells the sender of a loss.
    const REPORTS_GAPS: bool = true;
    /// Whether it reckons with the time at which each packet was last sent. Only windows that keep it can run such a
    /// policy (Falcon's); each flow of a window has a state of its own, and hears of its own packets.
    const TIMES_PACKETS: bool = false;
    /// What hardware would keep for it beside a RoCE adapter's own context and the windows' bitmaps.
    const FOOTPRINT: &'static [FootprintField] = &[];

    /// Required: the state of a window in which nothing is outstanding.
    fn start(params: &Params) -> Self;

    /// Required: how long the timer runs at first; `None` means that it never does.
    fn initial_rto(params: &Params) -> Option<Duration>;

    /// Required: which acknowledgements to be told about, under these parameters.
    fn interest(params: &Params) -> Interest;

    /// Required: reacts to `event`.
    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions;

    /// Optional: how long the timer runs at most, for an algorithm that backs off; `None` means for ever. Default: as
    /// long as at first.
    fn longest_rto(params: &Params) -> Option<Duration> {
        Self::initial_rto(params)
    }

    /// Optional: whether the timer runs from the last packet sent, and not from the last acknowledgement. Default: no.
    fn times_last_sent(params: &Params) -> bool {
        let _ = params;
        false
    }

    /// Optional: whether these parameters make it wait before it takes a gap for a loss. Default: no.
    fn tolerates_reordering(params: &Params) -> bool {
        let _ = params;
        !Self::GAP_IS_LOSS
    }
}

/// A [`Recovery`] algorithm with its type forgotten: what registries hold and engines call.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryPolicy {
    /// See [`Recovery::NAME`].
    pub name: &'static str,
    /// See [`Recovery::SUMMARY`].
    pub summary: &'static str,
    /// See [`Recovery::PARAMS`].
    pub params: &'static [ParamSpec],
    /// See [`Recovery::PLACEMENT`].
    pub placement: Placement,
    /// See [`Recovery::REPORTS_GAPS`].
    pub reports_gaps: bool,
    /// See [`Recovery::TIMES_PACKETS`].
    pub times_packets: bool,
    /// See [`Recovery::FOOTPRINT`].
    pub footprint: &'static [FootprintField],
    /// Bytes of private state per window.
    pub state_bytes: usize,
    /// See [`Recovery::start`].
    pub start: fn(&Params) -> PolicyState,
    /// See [`Recovery::initial_rto`].
    pub initial_rto: fn(&Params) -> Option<Duration>,
    /// See [`Recovery::longest_rto`].
    pub longest_rto: fn(&Params) -> Option<Duration>,
    /// See [`Recovery::interest`].
    pub interest: fn(&Params) -> Interest,
    /// See [`Recovery::on_event`].
    pub on_event: fn(&mut PolicyState, &RecoveryEvent, &WindowView<'_>, &Params) -> RecoveryActions,
    /// See [`Recovery::times_last_sent`].
    pub times_last_sent: fn(&Params) -> bool,
    /// See [`Recovery::tolerates_reordering`].
    pub tolerates_reordering: fn(&Params) -> bool,
}

impl RecoveryPolicy {
    /// Forgets the type of `T`.
    pub const fn of<T: Recovery>() -> Self {
        Self {
            name: T::NAME,
            summary: T::SUMMARY,
            params: T::PARAMS,
            placement: T::PLACEMENT,
            reports_gaps: T::REPORTS_GAPS,
            times_packets: T::TIMES_PACKETS,
            footprint: T::FOOTPRINT,
            state_bytes: size_of::<T>(),
            start: |params| PolicyState::of(T::start(params)),
            initial_rto: T::initial_rto,
            longest_rto: T::longest_rto,
            interest: T::interest,
            on_event: |state, event, view, params| state.get_mut::<T>().on_event(event, view, params),
            times_last_sent: T::times_last_sent,
            tolerates_reordering: T::tolerates_reordering,
        }
    }
}
