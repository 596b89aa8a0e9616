//! FaSR's sender: selective retransmission without a bitmap, as long as one packet is missing.
//!
//! Source: FaSR (2025) sections III-B.2 (fast and slow path), III-D (FNACK, overflow). Mechanisms,
//! R-16, and the sender's part of R-14.
//!
//! * A SACK that begins a recovery sends everything from the cumulative acknowledgement up to it, whatever it counts
//!   . Later ones send what lies between the highest SACK so far and them, if there is a gap and the receiver
//!   counts more losses than it did: without the second it is the SACKs that were lost.
//! * The count is the receiver's, always: this side compares, and never computes. After an overflow the
//!   receiver's count stands still, and a gap alone is enough.
//! * A timeout sends the oldest packet, if one is missing; that and every packet below the highest SACK that is not
//!   known to have arrived, if more are; everything outstanding, if nothing is known.
//! * An FNACK acts as a timeout, once until the next new acknowledgement.
//!
//! Deviations and choices, where the paper is silent:
//!
//! * a recovery ends when the cumulative acknowledgement has passed the highest SACK;
//! * the count that an AACK brings is heeded as a SACK's is: otherwise a loss right behind a repair would leave the
//!   count as it was;
//! * timeouts as in IRN: a short one while few packets are in flight, else a long one;
//! * a NAK that reports no count comes from a receiver whose pool is empty, or that could not take the packet:
//!   everything outstanding is sent again, once until the next new acknowledgement;
//! * where the receiver never counts (another store than the pool), a gap alone is enough;
//! * FNACKs, like gaps, are taken to mean loss: on paths that reorder they would not, so the profile's check
//!   refuses those.

use bytemuck::{Pod, Zeroable};
use rnic_base::{Duration, Seq, SeqRange};
use rnic_policy::recovery::{Interest, TimerChange};
use rnic_policy::{LossCause, LossReport, ParamSpec, Params, Placement};
use rnic_policy::{Recovery, RecoveryActions, RecoveryEvent, WindowView};

/// Per-window state.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Fasr {
    /// `sack-high`: the highest packet that a SACK has named in this recovery.
    sack_high: u64,
    /// `lost-cnt` as the receiver said it last.
    lost: u32,
    /// 1 after the receiver's count has overflowed.
    overflow: u32,
    /// 1 while recovering.
    recovering: u32,
    /// 1 from an FNACK, timeout or plain NAK that was heeded until the next new acknowledgement.
    heeded: u32,
}

const RTO_LOW: usize = 0;
const RTO_HIGH: usize = 1;
const RTO_LOW_PACKETS: usize = 2;

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
        Some(params.duration(RTO_LOW))
    }

    fn interest(_: &Params) -> Interest {
        Interest::Recovering
    }

    fn on_event(&mut self, event: &RecoveryEvent, view: &WindowView<'_>, params: &Params) -> RecoveryActions {
        let mut actions = RecoveryActions::default();
        match *event {
            RecoveryEvent::Acked { .. } => self.on_ack(view),
            RecoveryEvent::Nacked { sack: Some(sack), losses } => actions.retransmit = self.on_sack(sack, losses, view),
            RecoveryEvent::Nacked { sack: None, losses: Some(report) } => {
                actions.retransmit = self.on_report(&report, view);
            }
            RecoveryEvent::Nacked { sack: None, losses: None } => actions.retransmit = self.go_back(view),
            RecoveryEvent::TimedOut { extended } => self.on_timeout(extended, view, params, &mut actions),
            RecoveryEvent::Delivered { .. } | RecoveryEvent::Quiet => {}
        }
        actions.recovering = self.recovering != 0;
        actions
    }
}

impl Fasr {
    fn on_ack(&mut self, view: &WindowView<'_>) {
        self.heeded = 0;
        if view.una.get() > self.sack_high || view.una == view.next {
            *self = Self::zeroed();
        }
    }

    ///
    fn on_sack(&mut self, sack: Seq, losses: Option<LossReport>, view: &WindowView<'_>) -> Option<SeqRange> {
        if sack <= view.una || sack >= view.next {
            // Not of this window: whoever says so is not to be believed.
            return None;
        }
        let (lost, overflow) = losses.map_or((0, true), |report| (u32::from(report.lost), report.overflow));
        let from = if self.recovering == 0 {
            view.una
        } else if sack.get() <= self.sack_high {
            // An older one: what it counts is past.
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
        // Whatever else could call for it is either news already heeded or not a loss.
        if report.cause != LossCause::Misplaced || self.heeded != 0 {
            return None;
        }
        self.enter(view);
        Some(self.missing_from_una(view))
    }

    /// A plain NAK: the receiver keeps nothing now.
    fn go_back(&mut self, view: &WindowView<'_>) -> Option<SeqRange> {
        if self.heeded != 0 {
            return None;
        }
        self.enter(view);
        Some(view.outstanding())
    }

    /// Sends from the oldest packet again: not once more for the same reason before there is progress.
    fn enter(&mut self, view: &WindowView<'_>) {
        if self.recovering == 0 {
            self.sack_high = view.una.get();
        }
        (self.recovering, self.heeded) = (1, 1);
    }

    /// What the receiver misses, as far as is known.
    fn missing_from_una(&self, view: &WindowView<'_>) -> SeqRange {
        let una = view.una;
        let several = self.lost > 1 || self.overflow != 0;
        // In a recovery the highest SACK lies below `next`.
        let end = if several { una + self.sack_high.saturating_sub(una.get()).max(1) } else { una + 1 };
        SeqRange::new(una, end.min(view.next))
    }

    /// R-8, after IRN's two levels.
    fn on_timeout(&mut self, extended: bool, view: &WindowView<'_>, params: &Params, actions: &mut RecoveryActions) {
        let extension = params.duration(RTO_HIGH).saturating_sub(params.duration(RTO_LOW));
        let few_in_flight = view.in_flight() < params.get(RTO_LOW_PACKETS);
        if !few_in_flight && !extended && extension != Duration::ZERO {
            actions.timer = TimerChange::Extend(extension);
            return;
        }
        let nothing_known = self.lost == 0 && self.overflow == 0;
        actions.retransmit = Some(if nothing_known { view.outstanding() } else { self.missing_from_una(view) });
        self.enter(view);
    }
}
