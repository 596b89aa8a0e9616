//! FaSR's sender: selective retransmission without a bitmap, as long as one packet is missing.
//!
//! Source: FaSR (2025) sections III-B.2 (fast and slow path), III-D (FNACK, overflow). Mechanisms,
//! R-16, and the sender's part of R-14.
//!
//! * A SACK that starts a recovery retransmits all packets from the cumulative acknowledgement up to the SACK's packet,
//!   regardless of its count (FaSR mechanism R-6). Later ones retransmit the packets between the highest SACK so far
//!   and the new one, if there is a gap and the receiver counts more losses than before: without the second condition,
//!   the gap may be due to lost SACKs.
//! * The count always comes from the receiver: the sender compares it, and never computes it (FaSR mechanism R-5).
//!   After an overflow
//!   the receiver's count stays unchanged, and a gap alone is sufficient (FaSR mechanism R-16).
//! * A timeout retransmits the oldest packet if one packet is missing; if more are, also every packet below the highest
//!   SACK that is not known to have arrived; all outstanding packets if nothing is known about them (FaSR mechanism
//!
//! * An FNACK acts as a timeout, once until the next new acknowledgement (FaSR mechanism R-15).
//!
//! Deviations and choices, where the paper does not specify the behaviour:
//!
//! * a recovery ends when the cumulative acknowledgement has passed the highest SACK;
//! * the count carried by an AACK is stored like that of a SACK: otherwise a loss right after a retransmission would
//!   leave the count unchanged;
//! * timeouts are as in IRN: a short one while few packets are in flight, otherwise a long one;
//! * a NAK that reports no count comes from a receiver whose pool is empty, or which could not accept the packet: all
//!   outstanding packets are retransmitted, once until the next new acknowledgement;
//! * where the receiver never counts losses (because it stores its state elsewhere than in the pool), a gap alone is
//!   sufficient;
//! * FNACKs, like gaps, are interpreted as loss: on paths that reorder this would be wrong, so the profile's check
//!   rejects such paths.

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Seq, SeqRange};
use rnic_policy::recovery::{Interest, TimerChange};
use rnic_policy::{LossCause, LossReport, ParamSpec, Params, Placement};
use rnic_policy::{Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// Per-window state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Fasr {
    /// `sack-high`: the highest packet that a SACK has reported in this recovery.
    sack_high: u64,
    /// `lost-cnt` as last reported by the receiver.
    lost: u32,
    /// 1 after the receiver's count has overflowed.
    overflow: u32,
    /// 1 while recovering.
    recovering: u32,
    /// 1 after an FNACK, timeout or plain NAK was processed, until the next new acknowledgement.
    acted_on: u32,
}

const RTO_LOW_INDEX: usize = 0;
const RTO_HIGH_INDEX: usize = 1;
const RTO_LOW_PACKETS_INDEX: usize = 2;

impl Recovery for Fasr {
    const NAME: &'static str = "fasr";
    const SUMMARY: &'static str = "selective retransmission by the receiver's count of losses (FaSR III)";
    const PARAMS: &'static [ParamSpec] = &[
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("rto_low", Duration::from_us(100), "timeout when few packets are in flight")
        },
        ParamSpec {
            min: Duration::from_us(1).as_ps(),
            ..ParamSpec::duration("rto_high", Duration::from_us(320), "timeout otherwise")
        },
        ParamSpec::count("rto_low_packets", 3, 0, 1 << 20, "rto_low holds with fewer packets in flight than this"),
    ];
    const GAP_IS_LOSS: bool = true;
    const PLACEMENT: Placement = Placement::PlaceOutOfOrder;

    fn start(_: &Params) -> Self {
        Self::zeroed()
    }

    fn initial_rto(params: &Params) -> Option<Duration> {
        Some(params.duration(RTO_LOW_INDEX))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Recovering
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        let mut actions = RecoveryActions::default();
        match *event {
            RecoveryEvent::Acked { .. } => self.on_ack(view),
            RecoveryEvent::Nacked { sack: Some(sack), losses, .. } => {
                actions.retransmit = self.on_sack(sack, losses, view);
            }
            RecoveryEvent::Nacked { sack: None, losses: Some(report), .. } => {
                actions.retransmit = self.on_report(&report, view);
            }
            RecoveryEvent::Nacked { sack: None, losses: None, .. } => actions.retransmit = self.go_back(view),
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

impl Fasr {
    fn on_ack(&mut self, view: &WindowView<'_>) {
        self.acted_on = 0;
        if view.una.get() > self.sack_high || view.una == view.next {
            *self = Self::zeroed();
        }
    }

    /// Handles a SACK (FaSR mechanisms ).
    fn on_sack(&mut self, sack: Seq, losses: Option<LossReport>, view: &WindowView<'_>) -> Option<SeqRange> {
        if sack <= view.una || sack >= view.next {
            // A packet outside this window: the report is not valid.
            return None;
        }
        let (lost, overflow) = losses.map_or((0, true), |report| (u32::from(report.lost), report.overflow));
        let from = if self.recovering == 0 {
            view.una
        } else if sack.get() <= self.sack_high {
            // An older SACK: its count is out of date.
            return None;
        } else {
            let gap = sack.get() > self.sack_high + 1;
            let lost_more = lost > self.lost || overflow;
            let high = view.una + (self.sack_high + 1).saturating_sub(view.una.get());
            if gap && lost_more { high } else { sack }
        };
        self.recovering = 1;
        (self.sack_high, self.lost, self.overflow) = (sack.get(), lost, u32::from(overflow));
        (from < sack).then(|| SeqRange::new(from, sack))
    }

    fn on_report(&mut self, report: &LossReport, view: &WindowView<'_>) -> Option<SeqRange> {
        let was_recovering = self.recovering != 0;
        if was_recovering || report.cause == LossCause::Misplaced {
            (self.lost, self.overflow) = (u32::from(report.lost), u32::from(report.overflow));
        }
        // All other causes have already been processed or do not indicate a loss.
        if report.cause != LossCause::Misplaced || self.acted_on != 0 {
            return None;
        }
        self.enter(view);
        Some(self.missing_from_una(view))
    }

    /// Handles a plain NAK: the receiver could not store the packet.
    fn go_back(&mut self, view: &WindowView<'_>) -> Option<SeqRange> {
        if self.acted_on != 0 {
            return None;
        }
        self.enter(view);
        Some(view.outstanding())
    }

    /// Enters recovery from the oldest packet; the same cause does not trigger it again before there is progress.
    fn enter(&mut self, view: &WindowView<'_>) {
        if self.recovering == 0 {
            self.sack_high = view.una.get();
        }
        (self.recovering, self.acted_on) = (1, 1);
    }

    /// Returns the range of packets that are missing at the receiver, as far as is known (FaSR mechanism R-8).
    fn missing_from_una(&self, view: &WindowView<'_>) -> SeqRange {
        let una = view.una;
        let several = self.lost > 1 || self.overflow != 0;
        // In a recovery the highest SACK is below `next`.
        let end = if several { una + self.sack_high.saturating_sub(una.get()).max(1) } else { una + 1 };
        SeqRange::new(una, end.min(view.next))
    }

    /// Handles a timeout according to R-8, with IRN's two timeout levels.
    fn on_timeout(&mut self, extended: bool, view: &WindowView<'_>, params: &Params, actions: &mut RecoveryActions) {
        let extension = params.duration(RTO_HIGH_INDEX).saturating_sub(params.duration(RTO_LOW_INDEX));
        let few_in_flight = view.in_flight() < params.get(RTO_LOW_PACKETS_INDEX);
        if !few_in_flight && !extended && extension != Duration::ZERO {
            actions.timer = TimerChange::Extend(extension);
            return;
        }
        let nothing_known = self.lost == 0 && self.overflow == 0;
        actions.retransmit = Some(if nothing_known { view.outstanding() } else { self.missing_from_una(view) });
        self.enter(view);
    }
}
