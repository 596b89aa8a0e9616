//! IRN's selective recovery.
//!
//! Source: IRN (SIGCOMM'18) sections 3.1 (recovery), 4.1 (timeouts), 4.3 (the variants), 6.2.1 (`receiveAck`, `txFree`,
//! `timeout`), 7 (NACK threshold). Mechanisms I-3 to I-8, I-24, I-25, I-28.
//!
//! Mapping of the paper's modules:
//!
//! * `receiveAck`: [`Irn::on_ack`] and [`Irn::on_nack`]; the SACK bitmap itself is the engine's window;
//! * `txFree`'s look-ahead in that bitmap: the engine sends marked packets, lowest first, one packet per call; the
//!   range that [`Irn::new_holes`] returns is exactly the one that the look-ahead would visit, and packets
//!   acknowledged before they are sent are removed from it;
//! * `timeout`: [`Irn::on_timeout`].
//!
//! Deviations and choices, where the paper does not specify the behaviour:
//!
//! * an ordinary acknowledgement in recovery that uncovers a new `una` marks that packet for retransmission only if a
//!   packet above it has been selectively acknowledged (section 3.1, taken literally), or if a timeout started the
//!   recovery and the packet was sent before that: then the absence of acknowledgements is evidence of loss, and one
//!   timeout per packet of a lost window would be far too slow. The authors' published `receiveAck` marks it in any
//!   case. Such a recovery sustains itself: each retransmission advances the recovery sequence, recovery does not
//!   end, and every acknowledgement in it retransmits another packet that was not lost (with 1 % loss both ways at
//!   100 Gbit/s and 24 us, a third of all packets; with 1 % reordering, a quarter). The disadvantage of our rule: of
//!   several losses at the very end of a message, the NACK recovers the first, and a timeout starts the recovery of
//!   the others. Without the bitmap no such evidence exists, and every recovery uses the packets sent before it (as
//!   in RFC 6582);
//! * every retransmission advances the recovery sequence to the last new packet sent, as in the authors' `txFree`;
//! * a lost retransmission is detected by timeout only (our interpretation); a timeout keeps the bitmap and discards
//!   the record of retransmissions, so that gaps are retransmitted once more;
//! * "fewer than N in flight" is taken literally (the authors' code tests for more than N);
//! * with `nack_threshold` above 1, the NACKs of one recovery episode are counted from the last cumulative advance.

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Seq, SeqRange};
use rnic_policy::footprint::PSN_BITS;
use rnic_policy::recovery::{Interest, TimerChange};
use rnic_policy::{FootprintField, ParamSpec, Params, Placement, Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// Per-window state. In hardware: two 24-bit sequence numbers and flags (section 6.1 counts 52 bits); the estimator is
/// needed only for the `dynamic_rto` variant.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Irn {
    /// Recovery sequence: recovery ends when a packet after this one is cumulatively acknowledged.
    recovery_seq: u64,
    /// Gaps below this packet have been retransmitted in this recovery.
    retransmitted_below: u64,
    /// Packets below this one count as lost once everything before them is acknowledged.
    presumed_lost_below: u64,
    /// Smoothed round-trip time, nanoseconds; 0 before the first sample.
    srtt_ns: u64,
    /// Mean deviation of the round-trip time, nanoseconds.
    rttvar_ns: u64,
    /// NACKs since the cumulative acknowledgement last advanced.
    nacks: u32,
    /// 1 while recovering.
    recovering: u32,
}

/// Bits of flags at each end (IRN, section 6.1).
const FLAG_BITS: u64 = 4;
/// Bits of additional state for Reads at the responder (IRN, section 6.1).
const READ_STATE_BITS: u64 = 56;
/// Bits of the three values that all queue pairs share (IRN, section 6.1).
const SHARED_BITS: u64 = 10 * 8;

const RTO_LOW_INDEX: usize = 0;
const RTO_HIGH_INDEX: usize = 1;
const RTO_LOW_PACKETS_INDEX: usize = 2;
const SACK_BITMAP_INDEX: usize = 3;
const NACK_THRESHOLD_INDEX: usize = 4;
const DYNAMIC_RTO_INDEX: usize = 5;
const RTO_FROM_NACK_INDEX: usize = 6;

impl Recovery for Irn {
    const NAME: &'static str = "irn";
    const SUMMARY: &'static str = "selective retransmission from a SACK bitmap, two static timeouts (IRN 3.1)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration(
                "rto_low",
                Duration::from_us(100),
                "timeout when few packets are in flight (IRN section 4.1)",
            )
        },
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration(
                "rto_high",
                Duration::from_us(320),
                "timeout otherwise: longest path plus one full buffer (IRN section 4.1)",
            )
        },
        ParamSpec::count("rto_low_packets", 3, 0, 1 << 20, "N: rto_low holds with fewer packets in flight than this"),
        ParamSpec::switch(
            "sack_bitmap",
            true,
            "off: the variant without a bitmap, one gap per round trip (section 4.3)",
        ),
        ParamSpec::count("nack_threshold", 1, 1, 1 << 16, "enter recovery at this many NACKs (section 7)"),
        ParamSpec::switch("dynamic_rto", false, "on: rto_high is computed from round-trip times (section 4.3)"),
        ParamSpec::switch("rto_from_nack", false, "on: a NACK restarts the timer, too, as in ConWeave's simulator"),
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::PlaceOutOfOrder;
    const FOOTPRINT: &'static [FootprintField] = &[
        FootprintField::connection("PSN to retransmit, at both ends", 2 * PSN_BITS),
        FootprintField::connection("recovery sequence, at both ends", 2 * PSN_BITS),
        FootprintField::connection("flags, at both ends", 2 * FLAG_BITS),
        FootprintField::connection("timer and Reads in progress, at the responder", READ_STATE_BITS),
        FootprintField::wqe("sequence number of a work request", PSN_BITS),
        FootprintField::shared("cap, RTO_low and its packets", SHARED_BITS),
    ];

    fn start(_: &Params) -> Self {
        Self::zeroed()
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_LOW_INDEX))
    }

    fn interest(params: &Params) -> Interest {
        if params.is_on(DYNAMIC_RTO_INDEX) || params.get(NACK_THRESHOLD_INDEX) > 1 {
            Interest::Always
        } else {
            Interest::Recovering
        }
    }

    fn tolerates_reordering(params: &Params) -> bool {
        params.get(NACK_THRESHOLD_INDEX) > 1
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        let mut actions = RecoveryActions::default();
        match *event {
            RecoveryEvent::Acked { rtt, .. } => {
                if let Some(rtt) = rtt {
                    self.add_rtt_sample(rtt);
                }
                actions.retransmit = self.on_ack(view, params);
            }
            RecoveryEvent::Nacked { .. } => {
                actions.retransmit = self.on_nack(view, params);
                if params.is_on(RTO_FROM_NACK_INDEX) {
                    actions.timer = TimerChange::Restart;
                }
            }
            RecoveryEvent::TimedOut { extended } => self.on_timeout(extended, view, params, &mut actions),
            RecoveryEvent::Delivered { .. }
            | RecoveryEvent::Trimmed { .. }
            | RecoveryEvent::Quiet
            | RecoveryEvent::Arrived { .. }
            | RecoveryEvent::Congested
            | RecoveryEvent::Tick => {}
        }
        actions.recovering = self.recovering != 0;
        actions
    }
}

impl Irn {
    /// Handles an advance of the cumulative acknowledgement: recovery may be complete (IRN mechanism I-6), or there is
    /// another gap at the new position.
    fn on_ack(&mut self, view: &WindowView<'_>, params: &Params) -> Option<SeqRange> {
        self.nacks = 0;
        if self.recovering == 0 {
            return None;
        }
        if view.una.get() > self.recovery_seq || view.una == view.next {
            self.recovering = 0;
            return None;
        }
        let overtaken =
            params.is_on(SACK_BITMAP_INDEX) && view.highest_sacked.is_some_and(|highest| highest > view.una);
        if overtaken || view.una.get() < self.presumed_lost_below { self.new_holes(view, params) } else { None }
    }

    /// Handles a NACK: enters recovery with the packet at the cumulative acknowledgement (IRN mechanism I-4), or
    /// searches for new gaps.
    fn on_nack(&mut self, view: &WindowView<'_>, params: &Params) -> Option<SeqRange> {
        if self.recovering == 0 {
            self.nacks += 1;
            if u64::from(self.nacks) < params.get(NACK_THRESHOLD_INDEX) || view.una == view.next {
                return None;
            }
            let presumed_lost_below = if params.is_on(SACK_BITMAP_INDEX) { view.una } else { view.next };
            self.enter(view, presumed_lost_below);
        }
        self.new_holes(view, params)
    }

    fn enter(&mut self, view: &WindowView<'_>, presumed_lost_below: Seq) {
        self.recovering = 1;
        self.nacks = 0;
        self.retransmitted_below = view.una.get();
        self.presumed_lost_below = presumed_lost_below.get();
    }

    /// Returns the gaps that have not been retransmitted in this recovery: the packet at `una`, and the unacknowledged
    /// packets below the highest selectively acknowledged packet (IRN mechanism I-4). The engine skips acknowledged
    /// packets in between.
    fn new_holes(&mut self, view: &WindowView<'_>, params: &Params) -> Option<SeqRange> {
        let una = view.una;
        let from = una + self.retransmitted_below.saturating_sub(una.get());
        let bitmap = view.sacked.filter(|_| params.is_on(SACK_BITMAP_INDEX));
        let sacked_up_to = bitmap.and(view.highest_sacked).unwrap_or(una);
        let first_zero = bitmap.and_then(|ring| ring.first_zero(from.since(una) as u32));
        let start = first_zero.map_or(from, |offset| una + u64::from(offset));
        let end = sacked_up_to.max(una + 1);
        if start >= end {
            return None;
        }
        self.retransmitted_below = end.get();
        self.recovery_seq = (view.next - 1).get();
        Some(SeqRange::new(start, end))
    }

    /// Handles a timeout: when many packets are in flight, extends the timer (IRN mechanism I-24); otherwise
    /// retransmits the oldest packet (IRN mechanism I-7).
    fn on_timeout(&mut self, extended: bool, view: &WindowView<'_>, params: &Params, actions: &mut RecoveryActions) {
        let extension = self.rto_high(params).saturating_sub(params.duration(RTO_LOW_INDEX));
        let few_in_flight = view.in_flight() < params.get(RTO_LOW_PACKETS_INDEX);
        if !few_in_flight && !extended && extension != Duration::ZERO {
            actions.timer = TimerChange::Extend(extension);
            return;
        }
        self.enter(view, view.next);
        actions.retransmit = self.new_holes(view, params);
    }

    fn rto_high(&self, params: &Params) -> Duration {
        let fixed = params.duration(RTO_HIGH_INDEX);
        if !params.is_on(DYNAMIC_RTO_INDEX) || self.srtt_ns == 0 {
            return fixed;
        }
        // RFC 6298, section 2, limited to four times the static value, the range of IRN's own robustness test.
        Duration::from_ns(self.srtt_ns + 4 * self.rttvar_ns).min(fixed.saturating_mul(4))
    }

    /// Updates the estimator (RFC 6298 section 2, in integers).
    fn add_rtt_sample(&mut self, rtt: Duration) {
        let sample = rtt.as_ns().max(1);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (sample, sample / 2);
            return;
        }
        let deviation = self.srtt_ns.abs_diff(sample);
        self.rttvar_ns = (3 * self.rttvar_ns + deviation) / 4;
        self.srtt_ns = (7 * self.srtt_ns + sample) / 8;
    }
}
